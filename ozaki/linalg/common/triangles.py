"""Matrices of which one triangle is read: what stands in the other, NaN too, is no part of them."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from ozaki.backends import backend_of
from ozaki.call.operands import as_array, holds_complex
from ozaki.linalg.common.arrays import adjoint, array_library, masked, on_host
from ozaki.linalg.common.matrices import check_matrix, matrices
from ozaki.multiprecision.convert import is_matrix
from ozaki.multiprecision.numbers import Numbers
from ozaki.multiprecision.objects import mparray

Diagonal = Literal["read", "real", "ones"]
"""What counts of a diagonal: its elements, the real parts of these, or ones in their place, which are not read."""


def triangular(name: str, a: Any, lower: bool, diagonal: Diagonal = "read") -> tuple[Any, str]:
    """A triangular matrix, shape (n, n), as an array of float64, complex128 or multiprecision numbers; and its format.

    Raises
    ------
    TypeError, ValueError
        As of `matrices`; if it is no square matrix.
    """
    (x,), (form,) = matrices(**{name: read(name, a, lower, diagonal)})
    check_matrix(name, x, square=True)
    return (with_ones(x) if diagonal == "ones" else x), form


def check_diagonal(name: str, a: Any) -> None:
    """Refuse a triangular matrix that is singular: one with a zero on its diagonal.

    Raises
    ------
    numpy.linalg.LinAlgError
    """
    rows = array_library(a).arange(a.shape[0])
    diagonal = a[rows, rows]
    zeros = (diagonal.signs == 0) if isinstance(a, Numbers) else diagonal == 0
    places = np.flatnonzero(on_host(zeros.all(axis=-1) if zeros.ndim == 2 else zeros))
    if places.size:
        i = int(places[0])
        raise np.linalg.LinAlgError(f"{name}: singular, element [{i}, {i}] on the diagonal is zero")


def read(name: str, a: Any, lower: bool, diagonal: Diagonal = "read") -> Any:
    """An operand with zeros in place of what is not read of it, on its diagonal too."""
    if isinstance(a, tuple):
        return tuple(_read(each, lower, diagonal) if getattr(each, "ndim", 0) == 2 else each for each in a)
    if is_matrix(a):
        rows = a.tolist()
        found = [[_element(each, i - j, lower, diagonal) for j, each in enumerate(row)] for i, row in enumerate(rows)]
        return mparray(found) if rows else a
    x = as_array(name, a, backend_of((name, a)))
    return _read(x, lower, diagonal) if x.ndim >= 2 else x


def _element(x: Any, below: int, lower: bool, diagonal: Diagonal) -> Any:
    """An element of a matrix of objects, as many places below the diagonal, or 0 where that is not read."""
    if below == 0:
        return {"read": x, "real": getattr(x, "real", x), "ones": 0}[diagonal]
    return x if (below > 0) == lower else 0


def _read(x: Any, lower: bool, diagonal: Diagonal) -> Any:
    mask, eye = _masks(x, lower, diagonal == "ones")
    if isinstance(x, Numbers):
        found = masked(x, mask)
        return found if diagonal != "real" or not x.is_complex else _with_real_diagonal(found, eye)
    xp = array_library(x)
    found = xp.where(mask, x, xp.zeros((), x.dtype))
    if diagonal == "real" and found.dtype.kind == "c":
        found.imag = xp.where(eye, 0, found.imag)
    return found


def _masks(x: Any, lower: bool, strict: bool) -> tuple[Any, Any]:
    """Which elements of a matrix lie in a triangle, and which on the diagonal."""
    xp = array_library(x)
    rows, columns = xp.arange(x.shape[-2])[:, None], xp.arange(x.shape[-1])
    below = rows > columns if lower else rows < columns
    return (below if strict else below | (rows == columns)), rows == columns


def _with_real_diagonal(x: Any, eye: Any) -> Any:
    """Multiprecision numbers without the imaginary parts of a diagonal."""
    signs = x.signs * ~(eye[..., None] & array_library(x).asarray([False, True]))
    return type(x)(signs, x.exponents * (signs != 0), x.limbs * (signs != 0), x.bits, x.is_complex)


def with_ones(x: Any) -> Any:
    """A matrix with zeros on its diagonal, with ones there in place of these."""
    eye = array_library(x).eye(x.shape[-1])
    return x + (eye if isinstance(x, Numbers) else eye.astype(x.dtype))


def mirrored(x: Any, lower: bool, conjugate: bool) -> Any:
    """The symmetric, or Hermitian, matrix with a triangle of x: both triangles have the same bits.

    Only that triangle is read, and of a Hermitian matrix the real part of the diagonal.
    """
    other = adjoint(x) if conjugate else x.swapaxes(-1, -2)
    if isinstance(x, Numbers):
        strict, eye = _masks(x, lower, strict=True)
        across, diagonal = _masks(x, not lower, strict=True)[0], masked(x, eye)
        diagonal = _with_real_diagonal(diagonal, eye) if conjugate and x.is_complex else diagonal
        return masked(x, strict) + masked(other, across) + diagonal
    xp = array_library(x)
    found = xp.where(_masks(x, lower, strict=False)[0], x, other)
    if conjugate and holds_complex(x):
        found.imag = xp.where(_masks(x, lower, strict=False)[1], 0, found.imag)
    return found
