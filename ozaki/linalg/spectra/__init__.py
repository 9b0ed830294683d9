"""Eigenvalues and singular values, with vectors."""
