"""Whether a compiled library computes what it should, on this processor, before anything is computed by it."""

from __future__ import annotations

from ctypes import CDLL
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy._sixteen import to_sixteen
from ozaki.backends.numpy.compiled import calls, wide
from ozaki.backends.numpy.compiled.digits import digit_tables_of, multiply_diagonals, split_digits
from ozaki.backends.numpy.compiled.inner_products import inner_products
from ozaki.backends.numpy.compiled.row_digits import multiply_short
from ozaki.backends.numpy.compiled.structures import declare
from ozaki.backends.numpy.compiled.tables import Tables, complex_tables_of, tables_of
from ozaki.backends.numpy.compiled.wide_structures import declare_wide
from ozaki.backends.numpy.compiled.wide_tables import wide_tables_of
from ozaki.schemes import Digits
from ozaki.schemes.moduli import complex_moduli, first_moduli, root_of_minus_one
from ozaki.schemes.row_digits import FORMATS, pairs

INTERFACE = 16
"""The version of the functions of `kernels/cpu/library.cpp`; it goes up with each change of one."""


def self_test(library: CDLL) -> str | None:
    """Why a library is not to be used, in words that follow its name; None if it passes.

    Its processor has the instructions that it takes.
    """
    if (failure := wrong_interface(library)) is not None:
        return failure
    declare(library)
    declare_wide(library)
    for moduli in (first_moduli(14), first_moduli(7)):
        if not all(_products_are_right(library, moduli, k) for k in (5, 1030)):
            return "multiplies wrongly on this processor"
    if not all(_complex_products_are_right(library, complex_moduli(15), k) for k in (5, 1030)):
        return "multiplies complex numbers wrongly on this processor"
    if not all(_diagonals_are_right(library, scheme, k) for scheme in (Digits(3), Digits(9, 7)) for k in (5, 1030)):
        return "multiplies digits wrongly on this processor"
    if not all(_short_products_are_right(library, p, q, k) for p, q in ((3, 2), (4, 3)) for k in (5, 1030)):
        return "multiplies 16-bit floats wrongly on this processor"
    extreme = first_moduli(51)
    if not all(_wide_products_are_right(library, (*extreme[:2], *extreme[-3:]), k) for k in (5, 2100)):
        return "multiplies numbers of many bits wrongly on this processor"
    if not _inner_products_are_right(library):
        return "computes inner products wrongly on this processor"
    return None


def wrong_interface(library: CDLL) -> str | None:
    """Why the functions of a library are not those that are called here; None if they are."""
    version = library.ozaki_cpu_interface()
    return None if version == INTERFACE else f"is of other sources (interface {version}, expected {INTERFACE})"


def _products_are_right(library: CDLL, moduli: tuple[int, ...], k: int) -> bool:
    """Whether residues of images whose residues are extreme have the right products, beyond 2**24 in their sums.

    Units that add pairs of products in 16 bits, as there are without VNNI, would saturate.
    """
    tables = tables_of(moduli)
    rows, columns = np.resize(_IMAGES, (1, 9, k)), np.resize(_IMAGES[::-1], (1, 50, k))
    rows[0, 0], columns[0, 0] = -128, 255
    residues = _products(library, rows, columns, tables)
    integers = rows[0].astype(np.int64), columns[0].astype(np.int64).T
    for m, inverse, found in zip(moduli, tables.crt.inverses, residues, strict=True):
        x, y = (each % m for each in integers)
        if ((found[0] - inverse * (x @ y % m)) % m).any():
            return False
    return True


def _complex_products_are_right(library: CDLL, moduli: tuple[int, ...], k: int) -> bool:
    """Whether both residues of complex images, as `complex_tables_of` has them, have the right products."""
    tables = complex_tables_of(moduli)
    rows, columns = np.resize(_IMAGES, (1, 9, k, 2)), np.resize(_IMAGES[::-1], (1, 50, k, 2))
    residues = _products(library, rows.view(np.complex128)[..., 0], columns.view(np.complex128)[..., 0], tables)
    (x, y), (u, v) = (np.moveaxis(each[0].astype(np.int64), 2, 0) for each in (rows, columns))
    for t, (m, inverse) in enumerate(zip(moduli, tables.crt.inverses, strict=True)):
        for root, found in zip((1, -1), residues[t :: len(moduli)], strict=True):
            s = root * root_of_minus_one(m)
            left, right = ((p % m + s * (q % m)) % m * 1.0 for p, q in ((x, y), (u, v)))  # float64 adds them exactly
            if ((2.0 * found[0] - inverse * (left @ right.T % m)) % m).any():
                return False
    return True


def _diagonals_are_right(library: CDLL, scheme: Digits, k: int) -> bool:
    """Whether digits, some rows of which are the least ones, are added up rightly for each diagonal."""
    tables = digit_tables_of(scheme)
    bias = int(tables.digits["left"]["bias"][0])
    rows, columns = (np.resize(images % bias, (1, count, k)) for images, count in ((_IMAGES, 9), (_IMAGES[::-1], 50)))
    rows[0, 0], columns[0, 0] = -bias, -bias
    left, right = (
        split_digits(library, x, np.zeros(x.shape[:2], np.int64), side, tables)
        for x, side in ((rows, "left"), (columns, "right"))
    )
    mask, half, shifts = 2 * tables.half - 1, tables.half, tables.digits["left"]["shift"].tolist()
    a, b = ([((x[0].astype(np.int64) + bias >> s & mask) - half) * 1.0 for s in shifts] for x in (rows, columns))
    found = multiply_diagonals(library, left, right, tables)
    return all(  # float64 adds them exactly
        (each[0] == sum(a[s] @ b[d - s].T for s in range(d + 1))).all() for d, each in enumerate(found)
    )


def _short_products_are_right(library: CDLL, p: int, q: int, k: int) -> bool:
    """Whether rows of p digits and columns of q, some of them the least ones, have rightly rounded products."""
    sides = []
    for side, count, of_side in (("left", 9, p), ("right", 50, q)):
        tables = digit_tables_of(Digits(of_side))
        bias, largest = int(tables.digits[side]["bias"][0]), tables.scheme.largest
        images = np.resize((_IMAGES if side == "left" else _IMAGES[::-1]) % largest, (1, count, k))
        images[0, 0] = 256 ** (of_side - 1) - bias  # images have no digit below -127 in the first place
        biased = images[0].astype(np.int64) + bias
        digits = [((biased >> 8 * (of_side - s) & 255) - 128) * 1.0 for s in range(1, of_side + 1)]
        sides.append((split_digits(library, images, np.zeros((1, count), np.int64), side, tables), digits))
    (left, a), (right, b) = sides
    form = FORMATS["bfloat16"]
    out = np.zeros((1, 9, 50), np.uint16)
    zeros = np.zeros((1, 9), np.int64), np.zeros((1, 50), np.int64)
    multiply_short(library, left, right, digit_tables_of(Digits(p)), *zeros, out, form)
    exact = sum(2.0 ** (8 * (p + q - s - t)) * (a[s - 1] @ b[t - 1].T) for s, t in pairs(p, q))  # float64 has it
    return bool((out[0] == to_sixteen(np.asarray(exact), form)).all())


def _wide_products_are_right(library: CDLL, moduli: tuple[int, ...], k: int) -> bool:
    """Whether residues of one byte and of two digits, of wide images, have the right products."""
    tables = wide_tables_of(moduli, 7)
    rows, columns = np.resize(_IMAGES, (1, 9, k)), np.resize(_IMAGES[::-1], (1, 50, k))
    shifts = np.resize([0, 150], (1, 9)), np.resize([100, 0], (1, 50))
    left, right = (
        wide.split_wide(library, x, mu, side, tables)
        for x, mu, side in zip((rows, columns), shifts, ("left", "right"), strict=True)
    )
    residues = wide.multiply_residues(library, left, right, tables)
    for m, inverse, found in zip(moduli, tables.crt.inverses, residues, strict=True):
        x, y = (
            each[0].astype(np.int64) % m * np.array([pow(2, int(s), m) for s in mu[0]])[:, None] % m * 1.0
            for each, mu in zip((rows, columns), shifts, strict=True)
        )
        if ((found[0] - inverse * (x @ y.T % m)) % m).any():  # float64 adds them exactly
            return False
    return True


def _inner_products_are_right(library: CDLL) -> bool:
    """Whether sums beside a tie, on one, and of subnormal numbers are rounded to nearest, ties to even."""
    x, y = np.zeros((2, 1, 4, 11))
    x[0, :, :3], y[0, :, :3] = (1.0, 2.0**-40, 2.0**-53), (1.0, 2.0**-50, 1.0)
    x[0, 1, 1] = 0.0
    x[0, 2, 1] *= -1.0
    x[0, 3], y[0, 0, 10] = 0.0, 2.0**-600
    x[0, 3, 10] = 2.0**-474
    ones = np.zeros(4, np.int64)
    found = inner_products(library, x, y, np.array([ones, np.arange(4), ones]), np.dtype(np.float64))
    return bool(found.tolist() == [1.0 + 2.0**-52, 1.0, 1.0, 2.0**-1074])


_IMAGES = np.array([0, 1, -1, 127, -128, 255, 2**52 - 1, -(2**52) + 1, 12345678901], np.float64)


def _products(library: CDLL, rows: npt.NDArray[Any], columns: npt.NDArray[Any], tables: Tables) -> npt.NDArray[np.int8]:
    """The residues of the products of images, shape (planes, 1, rows, columns)."""
    left, right = (
        calls.split(library, x, np.zeros(x.shape[:2], np.int64), side, tables)
        for x, side in ((rows, "left"), (columns, "right"))
    )
    return calls.multiply(library, left, right, tables)
