"""What the functions for numbers of many bits are given: structures, field by field (kernels/cpu/)."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy.compiled.structures import INNER, Operands, Result
from ozaki.multiprecision.numbers import Numbers

_POINTER, _INTEGER = ctypes.c_void_p, ctypes.c_int64


def _integers(*names: str) -> list[tuple[str, Any]]:
    return [(name, _INTEGER) for name in names]


def _pointers(*names: str) -> list[tuple[str, Any]]:
    return [(name, _POINTER) for name in names]


class Steps(ctypes.Structure):
    """Steps of an array of rows, in elements (numbers.h)."""

    _fields_ = _integers("of_batch", "of_rows", "of_k")


class Rows(ctypes.Structure):
    """Multiprecision rows (`Numbers` of numbers.h)."""

    _fields_ = (
        *_pointers("signs", "exponents", "limbs"),
        *_integers("count", "batch", "rows", "k"),
        *[(name, Steps) for name in ("of_signs", "of_exponents", "of_limbs")],
        ("of_limb", _INTEGER),
    )


class Leading(ctypes.Structure):
    """Multiprecision rows, and where their leading bits go (numbers.h)."""

    _fields_ = (
        ("x", Rows), ("values", _POINTER), ("of_values", Steps), *_pointers("tops", "bottoms"), *_integers("least"),
    )  # fmt: skip


class Source(ctypes.Structure):
    """Rows of which images are made (images.h)."""

    _fields_ = (
        ("floats", _POINTER), ("single", _INTEGER), ("of_floats", Steps), ("numbers", Rows), ("exponents", _POINTER),
        *INNER,
    )  # fmt: skip


class WideSplit(ctypes.Structure):
    """Rows, and where the residues of their images go (wide_split.h)."""

    _fields_ = (
        ("source", Source), *_integers("words"), *_pointers("rows", "starts", "bytes"), *_integers("byte_count"),
        *_pointers("digits"), *_integers("digit_count"), *_pointers("out"), *_integers("plane", "matrix", "depth"),
    )  # fmt: skip


class WideOperands(ctypes.Structure):
    """The residues of both operands, of one byte and of two digits (digit_products.h)."""

    _fields_ = (("bytes", Operands), ("digits", _POINTER), ("digit_count", _INTEGER))


class WideRemainders(ctypes.Structure):
    """The Chinese remainder theorem of any moduli (`Remainders` of limbs.h)."""

    _fields_ = (
        *_integers("planes", "words", "limbs"), *_pointers("quotient", "quotient_starts", "weights", "starts"),
    )  # fmt: skip


class NumbersOut(ctypes.Structure):
    """Where numbers of many bits go (limbs.h)."""

    _fields_ = (
        *_pointers("signs", "exponents", "limbs"), *_integers("bits", "of_limb"),
        *_integers(*(f"{what}_{step}" for what in ("signs", "exponents", "limbs") for step in ("batch", "row"))),
    )  # fmt: skip


class Undecided(ctypes.Structure):
    """Flags of undecided entries, and the errors of rows and columns (limbs.h)."""

    _fields_ = (
        *_pointers("flags"), *_integers("of_batch", "of_rows"), *_pointers("left0", "left1", "right0", "right1"),
        *_integers("step_of_left", "step_of_right"),
    )  # fmt: skip


class WideResult(ctypes.Structure):
    """Where tiles of the result go, and the exponents of the images (limbs.h)."""

    _fields_ = (
        ("result", Result), ("to_numbers", _INTEGER), ("numbers", NumbersOut), *_pointers("mu", "nu"),
        *_integers("step_of_mu", "step_of_nu"), ("undecided", Undecided), *_integers("residues"),
    )  # fmt: skip


def steps_of(x: npt.NDArray[Any]) -> Steps:
    """The steps of an array of shape (batch, rows, k)."""
    return Steps(*(step // x.itemsize for step in x.strides))


def rows_of(x: Numbers) -> Rows:
    """Multiprecision rows, shape (batch, rows, k), as long as x lives."""
    planes = x.signs, x.exponents, x.limbs
    return Rows(
        *(plane.ctypes.data for plane in planes), len(x.limbs), *x.shape,
        steps_of(x.signs), steps_of(x.exponents), steps_of(x.limbs[0]), x.limbs.strides[0] // 4,
    )  # fmt: skip


def numbers_out(x: Numbers) -> NumbersOut:
    """Where a result, shape (batch, m, n), goes, whose planes are contiguous along rows."""
    planes = x.signs, x.exponents, x.limbs
    steps = (plane.strides[axis - 3] // plane.itemsize for plane in planes for axis in (0, 1))
    return NumbersOut(*(plane.ctypes.data for plane in planes), x.bits, x.limbs.strides[0] // 4, *steps)


def no_rows(x: npt.NDArray[np.floating[Any]]) -> Rows:
    """The shape of rows of floats, without any numbers."""
    batch, rows, k = x.shape
    found = Rows()
    found.batch, found.rows, found.k = batch, rows, k
    return found


def declare_wide(library: ctypes.CDLL) -> None:
    """Let ctypes know the arguments of these functions; none returns anything."""
    arguments = {
        "leading": (_POINTER, _INTEGER, _INTEGER),
        "split_wide": (_POINTER, ctypes.c_int, _INTEGER, _INTEGER, _POINTER),
        "multiply_wide": (_POINTER, _POINTER, _POINTER, _INTEGER, _INTEGER, _POINTER),
        "residues_wide": (_POINTER, _POINTER, _INTEGER, _INTEGER, _POINTER),
    }
    for name, types in arguments.items():
        function = getattr(library, f"ozaki_cpu_{name}")
        function.argtypes, function.restype = types, None
