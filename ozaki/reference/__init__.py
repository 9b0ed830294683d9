"""Exact products, and the error measures of the field against them.

Nothing here knows how the library multiplies: a product is pure integer
arithmetic on Python integers, so it can judge every scheme and every backend.
"""

from ozaki.reference._exact import exact_entries, exact_matmul, mpmath_matmul
from ozaki.reference._measures import (
    componentwise_error,
    componentwise_errors,
    normwise_error,
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
    "relative_residual",
    "row_column_error",
]
