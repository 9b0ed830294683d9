"""Matrices of which one triangle is read: what stands in the other, NaN too, is no part of them."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from ozaki.backends import backend_of
from ozaki.call.operands import as_array, holds_complex
from ozaki.linalg.common.arrays import adjoint, array_library, masked, on_host, times_signs
from ozaki.multiprecision.convert import is_matrix
from ozaki.multiprecision.numbers import Numbers
from ozaki.multiprecision.objects import mparray

Diagonal = Literal["read", "real", "ones"]
"""What counts of a diagonal: its elements, the real parts of these, or ones in their place, which are not read."""


def check_diagonal(name: str, a: Any) -> None:
    """Refuse a triangular matrix, or one of a stack, that is singular: with a zero on its diagonal.

    Raises
    ------
    numpy.linalg.LinAlgError
    """
    rows = array_library(a).arange(a.shape[-1])
    diagonal = a[..., rows, rows]
    zeros = (diagonal.signs == 0) if isinstance(a, Numbers) else diagonal == 0
    places = np.argwhere(on_host(zeros.all(axis=-1) if zeros.ndim == a.ndim else zeros))
    if len(places):
        *index, i = places[0].tolist()
        which = f" (matrix {index} of the stack)" if index else ""
        raise np.linalg.LinAlgError(f"{name}: singular, element [{i}, {i}] on the diagonal is zero{which}")


def read(name: str, a: Any, lower: bool, diagonal: Diagonal = "read") -> Any:
    """An operand with zeros in place of what is not read of it, on its diagonal too."""
    if isinstance(a, tuple):
        return tuple(_read(each, lower, diagonal) if getattr(each, "ndim", 0) >= 2 else each for each in a)
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
    """As `read`, of a matrix, or a stack of them, in arrays of floats or multiprecision numbers."""
    mask = _in_triangle(x, lower, diagonal == "ones")
    if isinstance(x, Numbers):
        found = masked(x, mask)
        return found if diagonal != "real" or not x.is_complex else _with_real_diagonal(found, _on_diagonal(x))
    xp = array_library(x)
    found = xp.where(mask, x, xp.zeros((), x.dtype))
    if diagonal == "real" and found.dtype.kind == "c":
        found.imag = xp.where(_on_diagonal(x), 0, found.imag)
    return found


def _in_triangle(x: Any, lower: bool, strict: bool) -> Any:
    """Which elements of a matrix lie in a triangle."""
    rows, columns = _places(x)
    if strict:
        return rows > columns if lower else rows < columns
    return rows >= columns if lower else rows <= columns


def _on_diagonal(x: Any) -> Any:
    """Which elements of a matrix lie on its diagonal."""
    rows, columns = _places(x)
    return rows == columns


def _places(x: Any) -> tuple[Any, Any]:
    xp = array_library(x)
    return xp.arange(x.shape[-2], dtype=np.int32)[:, None], xp.arange(x.shape[-1], dtype=np.int32)


def _with_real_diagonal(x: Any, eye: Any) -> Any:
    """Multiprecision numbers without the imaginary parts of a diagonal."""
    return times_signs(x, ~(eye[..., None] & array_library(x).asarray([False, True])))


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
        strict, across = (_in_triangle(x, each, strict=True) for each in (lower, not lower))
        eye = _on_diagonal(x)
        diagonal = masked(x, eye)
        diagonal = _with_real_diagonal(diagonal, eye) if conjugate and x.is_complex else diagonal
        return masked(x, strict) + masked(other, across) + diagonal
    xp = array_library(x)
    found = xp.where(_in_triangle(x, lower, strict=False), x, other)
    if conjugate and holds_complex(x):
        found.imag = xp.where(_on_diagonal(x), 0, found.imag)
    return found


def triangular_inverse(x: Any, lower: bool) -> Any:
    """The array library's inverse of a triangular matrix of floats; on a GPU a system, a fifth of the time of another.

    Raises
    ------
    numpy.linalg.LinAlgError
        On the host, if it is singular; on a GPU the inverse is not finite then.
    """
    xp = array_library(x)
    if xp is np:
        return np.linalg.inv(x)
    from cupyx.scipy.linalg import solve_triangular

    return solve_triangular(x, xp.eye(len(x), dtype=x.dtype), lower=lower, check_finite=False)
