"""Determinants: of triangular matrices that nearly invert a matrix, and, exactly, of residues modulo primes."""
