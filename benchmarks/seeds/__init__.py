"""The papers that the library starts from: their tables and figures, as far as they need no GPU, reproduced."""
