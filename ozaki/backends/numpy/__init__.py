"""The NumPy backend: exact products through float64 BLAS, with the same bits as on every other backend."""
