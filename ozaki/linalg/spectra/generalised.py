"""First eigenvalues and eigenvectors of pairs of Hermitian matrices, A x = d B x, B positive definite.

A lower triangular Y is found for which Y B Y^H is nearly the identity. Then those of Y A Y^H are those of the pair, but
for Y. Nothing here needs to be proven: the residuals of X with A and B themselves prove it, and that B is positive
definite (docs/linalg.md, L11).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ozaki.functions.products import matmul
from ozaki.linalg.common.arrays import adjoint, array_library, rounded
from ozaki.linalg.common.products import componentwise, product_of_inverses
from ozaki.linalg.common.triangles import mirrored
from ozaki.linalg.common.upper import column_norm, row_norm
from ozaki.linalg.factors.cholesky import native_factor, of_nearly_definite
from ozaki.linalg.systems.inverses import LARGEST, LIMIT, MOST_FACTORS

NOT_POSITIVE = (
    f"b: not positive definite, or its condition number is too large ({LIMIT}, the diagonal scaled); "
    "ozaki.linalg.eigvalsh tells which"
)

_EASY = 2.0**10
"""A norm of an inverse of the factor of b, up to which float64 is accurate enough for a first X."""


def first_of_pair(a: Any, b: Any) -> tuple[Any, Any]:
    """Eigenvalues of a pair, in float64, and eigenvectors, in float64 or many bits.

    The parts of elements of a, and the diagonal of b, are below 1.

    Raises
    ------
    numpy.linalg.LinAlgError
        If b is not positive definite, or its condition number too large; or none are found.
    """
    xp = array_library(a)
    try:
        y = _whitening(b)
        if row_norm(y) <= _EASY:
            y = rounded(y)
            of_pair = mirrored(y @ rounded(a) @ adjoint(y), lower=True, conjugate=True)
            values, vectors = xp.linalg.eigh(of_pair)
            return values, adjoint(y) @ vectors
        transformed = _transformed(y, a)
        values, vectors = xp.linalg.eigh(rounded(transformed))
    except np.linalg.LinAlgError:
        raise np.linalg.LinAlgError(NOT_POSITIVE) from None
    return values, matmul(adjoint(y), vectors, accuracy=componentwise(_sharp(y)), dtype="mp")


def _whitening(b: Any) -> Any:
    """A lower triangular Y with Y B Y^H near the identity: a product of inverses of factors of float64.

    Raises
    ------
    numpy.linalg.LinAlgError
        If there is none.
    """
    xp, n = array_library(b), b.shape[0]
    y: Any = xp.eye(n)
    now = rounded(b)
    for count in range(1, MOST_FACTORS + 1):
        inverse, _ = of_nearly_definite(_inverse_factor, now)
        if count == 1 and row_norm(inverse) <= _EASY:
            return inverse
        y = product_of_inverses(inverse, y, count)
        if not row_norm(y) ** 2 <= LARGEST:
            break
        now = rounded(_transformed(y, b))
        if row_norm(now - xp.eye(n)) <= 2.0**-40:
            return y
    raise np.linalg.LinAlgError


def _inverse_factor(b: Any) -> Any:
    """The inverse of the Cholesky factor that NumPy or CuPy finds.

    Raises
    ------
    numpy.linalg.LinAlgError
        If there is none.
    """
    xp = array_library(b)
    inverse = xp.tril(xp.linalg.inv(native_factor(b)))
    if not bool(xp.isfinite(inverse).all()):
        raise np.linalg.LinAlgError
    return inverse


def _sharp(y: Any) -> float:
    """A tolerance of products with Y that leaves 70 bits of Y B Y^H, whatever cancels."""
    return 2.0**-70 / (row_norm(y) * column_norm(y) * len(y))


def _transformed(y: Any, a: Any) -> Any:
    """Y A Y^H, Hermitian, to 70 bits of what it may be."""
    fine = componentwise(_sharp(y))
    found = matmul(matmul(y, a, accuracy=fine, dtype="mp"), adjoint(y), accuracy=fine, dtype="mp")
    return mirrored(found, lower=True, conjugate=True)
