"""The papers that the library starts from: tables and figures, reproduced on models of tensor cores and on GPUs."""
