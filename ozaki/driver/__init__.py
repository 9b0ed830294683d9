"""One product from its facts to its report; the memory, progress and floating-point environment of a call."""
