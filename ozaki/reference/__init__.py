"""Exact products, and the error measures of the literature, taken against exact products.

Nothing here depends on how the library multiplies: products are computed in
Python integers, so they can judge every scheme and every backend.
"""

from ozaki.reference._exact import exact_entries, exact_matmul, mpmath_matmul
from ozaki.reference._measures import (
    componentwise_error,
    componentwise_errors,
    normwise_error,
    relative_error,
    relative_residual,
    row_column_error,
)

__all__ = [
    "componentwise_error",
    "componentwise_errors",
    "exact_entries",
    "exact_matmul",
    "mpmath_matmul",
    "normwise_error",
    "relative_error",
    "relative_residual",
    "row_column_error",
]
