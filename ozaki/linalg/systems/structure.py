"""Which elements of a matrix are read, by the names of `scipy.linalg.solve`."""

from __future__ import annotations

from typing import Any

from ozaki.backends import backend_of
from ozaki.call.operands import as_array
from ozaki.linalg.common.arrays import array_library, masked
from ozaki.linalg.common.triangles import mirrored
from ozaki.multiprecision.array import MPArray
from ozaki.multiprecision.numbers import Numbers
from ozaki.multiprecision.objects import mparray
from ozaki.planning.checks import check_flag

_GENERAL = (None, "general", "gen", "banded")
_SYMMETRIC = ("symmetric", "sym")
_HERMITIAN = ("hermitian", "her", "positive definite", "pos")
_PARTS = ("diagonal", "tridiagonal", "upper triangular", "lower triangular")

_NAMES = (*_GENERAL, *_SYMMETRIC, *_HERMITIAN, *_PARTS)


def structured(a: Any, assume_a: str | None, lower: bool, transposed: bool) -> Any:
    """The matrices that are meant, with zeros, or elements of the other triangle, in place of what is not read.

    Raises
    ------
    ValueError, TypeError
        For other names, and for flags that are none.
    """
    check_flag("lower", lower)
    check_flag("transposed", transposed)
    if assume_a not in _NAMES:
        raise ValueError(f"assume_a: {assume_a!r}; expected one of {', '.join(map(repr, _NAMES))}")
    if assume_a in _GENERAL and not transposed:
        return a
    given = mparray(a) if isinstance(a, tuple) else a
    x = as_array("a", given, backend_of(("a", given)))
    x = MPArray._of(x) if isinstance(x, Numbers) else x
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        return x  # which is refused by its shape
    xp, n = array_library(x), x.shape[-1]
    if assume_a == "diagonal":
        x = masked(x, xp.eye(n))
    elif assume_a == "tridiagonal":
        x = masked(x, xp.tri(n, k=1) - xp.tri(n, k=-2))
    elif assume_a in ("upper triangular", "lower triangular"):
        x = masked(x, xp.tri(n) if assume_a == "lower triangular" else xp.tri(n).T)
    elif assume_a in (*_SYMMETRIC, *_HERMITIAN):
        x = mirrored(x, bool(lower), conjugate=assume_a in _HERMITIAN)
    return x.swapaxes(-1, -2) if transposed else x
