"""`Numbers` as numbers of mpmath and python-flint, and as Python's integers and fractions: always exactly."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.multiprecision.collector import paused_collector
from ozaki.multiprecision.errors import element
from ozaki.multiprecision.numbers import MOST_BITS, Numbers, moved
from ozaki.multiprecision.wholes import signed, to_wholes


@paused_collector()
def to_ints(x: Numbers) -> tuple[npt.NDArray[np.object_], npt.NDArray[np.int64]]:
    """Odd integers, or 0, and the exponents of the powers of two that they are multiplied by.

    Raises
    ------
    TypeError
        If x is complex.
    """
    check_real(x, "to_ints")
    wholes, exponents = _signed_wholes(x)
    return _objects(wholes, x.shape), exponents.reshape(x.shape)


@paused_collector()
def to_integers(x: Numbers) -> npt.NDArray[np.object_]:
    """An array of objects: Python's integers.

    Raises
    ------
    ValueError
        If one is no whole number, or would take more than `MOST_BITS` bits; the message names it.
    TypeError
        If x is complex.
    """
    check_real(x, "to_integers")
    wholes, exponents = _signed_wholes(x)
    for wrong, what in (
        (exponents < 0, "is no whole number; to_fractions() takes it"),
        (exponents > MOST_BITS, f"takes more than {MOST_BITS} bits"),
    ):
        if wrong.any():
            raise ValueError(f"{element(np.unravel_index(int(wrong.argmax()), x.shape))} {what}")
    each = zip(wholes, exponents.tolist(), strict=True)
    return _objects([whole << exponent for whole, exponent in each], x.shape)


@paused_collector()
def to_fractions(x: Numbers) -> npt.NDArray[np.object_]:
    """An array of objects: Python's fractions.

    Raises
    ------
    ValueError
        If one would take more than `MOST_BITS` bits; the message names it.
    TypeError
        If x is complex.
    """
    check_real(x, "to_fractions")
    wholes, exponents = _signed_wholes(x)
    far = abs(exponents) > MOST_BITS
    if far.any():
        index = np.unravel_index(int(far.argmax()), x.shape)
        raise ValueError(f"{element(index)} lies so far from 1 that its fraction takes more than {MOST_BITS} bits")
    parts = zip(wholes, exponents.tolist(), strict=True)
    return _objects([Fraction(whole << max(e, 0), 1 << max(-e, 0)) for whole, e in parts], x.shape)


@paused_collector()
def to_mpfs(x: Numbers) -> npt.NDArray[np.object_]:
    """An array of objects: mpmath's mpf, or mpc of complex numbers, whatever mpmath's precision is."""
    import mpmath  # here, since its import takes as long as NumPy's

    x = moved(x, np)
    if x.is_complex:
        pairs = to_mpfs(x.parts).reshape(-1, 2).tolist()
        return _objects([mpmath.mp.make_mpc((real._mpf_, imag._mpf_)) for real, imag in pairs], x.shape)
    wholes, exponents = to_wholes(x)
    signs, tops, _ = x.flat
    lengths = tops - exponents  # the number of bits of each whole number
    parts = zip(
        (signs < 0).astype(int).tolist(),
        map(mpmath.libmp.MPZ, wholes),
        exponents.tolist(),
        lengths.tolist(),
        strict=True,
    )
    return _objects([*map(mpmath.mp.make_mpf, parts)], x.shape)


@paused_collector()
def to_mpmath(x: Numbers) -> Any:
    """An mpmath.matrix for two dimensions, an mpf (or mpc) for none, else an array of these."""
    found = to_mpfs(x)
    if found.ndim == 0:
        return found[()]
    if found.ndim != 2:
        return found
    import mpmath

    rows, columns = x.shape
    matrix = mpmath.matrix(rows, columns)
    for i, row in enumerate(found.tolist()):
        for j, value in enumerate(row):
            matrix[i, j] = value
    return matrix


@paused_collector()
def to_flint(x: Numbers) -> Any:
    """An arb_mat for two dimensions, a column for one, an arb for none; acb_mat and acb of complex numbers.

    Raises
    ------
    ImportError
        If python-flint is not installed.
    ValueError
        If x has three dimensions or more.
    """
    if x.ndim > 2:
        raise ValueError(f"to_flint: {x.ndim} dimensions; python-flint has matrices of two, convert each of these")
    try:
        import flint
    except ImportError:
        raise ImportError("to_flint needs python-flint; install python-flint") from None
    balls: list[Any] = [*map(flint.acb, _balls(x.real), _balls(x.imag))] if x.is_complex else _balls(x)
    if x.ndim == 0:
        return balls[0]
    rows, columns = x.shape if x.ndim == 2 else (x.size, 1)
    return (flint.acb_mat if x.is_complex else flint.arb_mat)(rows, columns, balls)


def _balls(x: Numbers) -> list[Any]:
    """Real numbers in row-major order as numbers of python-flint."""
    import flint

    wholes, exponents = _signed_wholes(x)
    return [*map(flint.arb, zip(wholes, exponents.tolist(), strict=True))]


def _signed_wholes(x: Numbers) -> tuple[list[int], npt.NDArray[np.int64]]:
    """Real numbers in row-major order as odd integers, or 0, and the exponents of two that they are multiplied by."""
    x = moved(x, np)
    wholes, exponents = to_wholes(x)
    return signed(wholes, x.signs.reshape(-1)), exponents


def check_real(x: Numbers, name: str) -> None:
    """Refuse complex numbers, of which the method `name` of `MPArray` makes nothing.

    Raises
    ------
    TypeError
    """
    if x.is_complex:
        raise TypeError(f"{name}: the numbers are complex; use it of x.real and x.imag")


def _objects(values: list[Any], shape: tuple[int, ...]) -> npt.NDArray[np.object_]:
    array = np.empty(len(values), object)
    array[:] = values
    return array.reshape(shape)
