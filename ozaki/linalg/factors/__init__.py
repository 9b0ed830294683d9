"""Factors of matrices, corrected until their product is the matrix."""
