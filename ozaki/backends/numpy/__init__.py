"""NumPy: the same image and the same bits, through float64 BLAS."""
