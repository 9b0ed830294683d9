"""Arrays of binary floating-point numbers of any precision, on NumPy or CuPy memory."""
