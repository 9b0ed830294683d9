"""Operands of linear algebra, checked: matrices of float64, complex128 or multiprecision numbers."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from ozaki.backends import backend_of
from ozaki.call.integers import as_numbers
from ozaki.call.operands import are_integers, as_array, dtype_of
from ozaki.multiprecision.array import MPArray
from ozaki.multiprecision.floats import not_finite
from ozaki.multiprecision.numbers import Numbers
from ozaki.multiprecision.objects import mparray
from ozaki.records.formats import complex_of


def matrices(**operands: Any) -> tuple[list[Any], list[str]]:
    """Operands as arrays of float64, complex128 or multiprecision numbers, exactly, and the formats that they had.

    Beside those of complex multiprecision numbers one more says so. Integers, which have the format float64 here,
    become multiprecision numbers where float64 does not hold them.

    Raises
    ------
    TypeError
        For dtypes that are not supported, and arrays of two libraries.
    ValueError
        For NaN and Inf.
    """
    given = {name: _sum_of_words(name, x) if isinstance(x, tuple) else x for name, x in operands.items()}
    backend = backend_of(*given.items())
    found, formats = [], []
    for name, each in given.items():
        x = as_array(name, each, backend)
        if isinstance(x, Numbers):
            x = MPArray._of(x)  # a matrix of mpmath is one of numbers by now
        if not isinstance(x, Numbers) and are_integers(x):
            x, form = _of_integers(x), "float64"
        else:
            form = dtype_of(name, x)
        if not isinstance(x, Numbers):
            if (index := not_finite(x)) is not None:
                raise ValueError(f"{name}: element {[*index]} is {x[index]}; expected finite numbers")
            x = x.astype(complex_of("float64") if x.dtype.kind == "c" else np.float64, copy=False)
        found.append(x)
        formats.append(form)
        if isinstance(x, Numbers) and x.is_complex:
            formats.append(_COMPLEX)
    return found, formats


_COMPLEX = "complex64"
"""Stands beside the format of complex multiprecision numbers, which is that of real ones: `target_of` refuses real
dtypes of results then. It has fewer bits than any result."""


def _of_integers(x: Any) -> Any:
    """Integers as float64 numbers, if these hold all of them, else as multiprecision numbers."""
    if x.dtype.kind in "bui" and (x.dtype.itemsize < 8 or not x.size or max(int(x.max()), -int(x.min())) <= 2**53):
        return x.astype(np.float64)
    return mparray(as_numbers(x))


def _sum_of_words(name: str, x: tuple[Any, ...]) -> MPArray:
    """Multiprecision numbers that are the sums of words in a tuple.

    Raises
    ------
    TypeError, ValueError
        As of `mparray`, with the name of the operand.
    """
    try:
        return mparray(x)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}{str(error).removeprefix('x')}") from None


def check_matrix(name: str, x: Any, square: bool = False, tall: bool = False) -> None:
    """Refuse what is no matrix, or stack of them along leading axes; no square one, or one wider than tall.

    Raises
    ------
    ValueError
    """
    if x.ndim < 2 or (square and x.shape[-2] != x.shape[-1]):
        what = "a square matrix, as (3, 3)" if square else "a matrix, as (5, 3)"
        raise ValueError(f"{name}: shape {tuple(x.shape)}; expected {what}, or a stack of them")
    if tall and x.shape[-2] < x.shape[-1]:
        raise ValueError(f"{name}: shape {tuple(x.shape)}; expected at least as many rows as columns")


def columns_for(name: str, b: Any, a: Any) -> tuple[Any, tuple[int, ...]]:
    """Right-hand sides as columns of matrices, shape (..., rows, columns), and the leading axes that they and a make.

    One with a single axis is a vector for each matrix of a, as in NumPy 2 and the array API.

    Raises
    ------
    ValueError
        If they have not as many rows as a, or leading axes that do not fit its.
    """
    rows = a.shape[-2]
    if b.ndim == 1 and b.shape[0] == rows:
        return b.reshape(rows, 1), a.shape[:-2]
    if b.ndim > 1 and b.shape[-2] == rows:
        if b.ndim == a.ndim == 2:
            return b, ()
        with suppress(ValueError):
            return b, np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    raise ValueError(
        f"{name}: shape {tuple(b.shape)}; expected ({rows},) or (..., {rows}, columns), rows and leading axes as of a, "
        f"whose shape is {tuple(a.shape)}"
    )
