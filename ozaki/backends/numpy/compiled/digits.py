"""Calls of the compiled library for balanced digits (kernels/cpu/digits.h)."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy._scaled import ScaledRows
from ozaki.backends.numpy.compiled.calls import cost_of, operands_of, result_of, set_factors, split_into
from ozaki.backends.numpy.compiled.memory import LINE, Block
from ozaki.backends.numpy.compiled.panels import WIDTHS, Panels, tile
from ozaki.backends.numpy.compiled.sharing import share_out
from ozaki.backends.numpy.compiled.structures import DigitOperands
from ozaki.caches import cached
from ozaki.schemes import Digits

MOST_DIGITS = 9
"""Most digits whose diagonals the library rounds (digits.h)."""

_DIGIT = np.dtype([("bias", "u8"), ("shift", "i4"), ("bits", "i4"), ("offset", "i4"), ("padding", "i4")])

_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class DigitTables:
    """Constants of digits, as the library reads them.

    Attributes
    ----------
    scheme : of at most `MOST_DIGITS` digits of at most eight bits, whose images are below 2**63
    digits : how images become them, for each side, the most significant one first
    weights : those of the diagonals, powers of two, the most significant one first
    """

    scheme: Digits
    digits: dict[str, npt.NDArray[Any]]
    weights: npt.NDArray[np.float64]

    @property
    def half(self) -> int:
        """Half of the radix, which right digits are more than they are."""
        return 1 << self.scheme.bits - 1

    @property
    def narrow(self) -> bool:
        """Whether images are below 2**31."""
        return self.scheme.largest < 2**31


@cached(64)
def digit_tables_of(scheme: Digits) -> DigitTables:
    """The constants of a scheme of digits."""
    p, bits, half = scheme.count, scheme.bits, 1 << scheme.bits - 1
    bias = sum(half << bits * i for i in range(p))
    digits = {
        side: np.array([(bias, bits * i, bits, offset, 0) for i in reversed(range(p))], _DIGIT)
        for side, offset in (("left", 0), ("right", half))
    }
    return DigitTables(scheme, digits, np.array([2.0 ** (bits * (2 * p - d)) for d in range(2, p + 2)]))


def split_digits(library: Any, x: npt.NDArray[Any] | ScaledRows, mu: _Ints, side: str, tables: DigitTables) -> Panels:
    """The digits of the images of rows x, shape (batch, rows, k), with exponents mu; NaN and Inf count as zero."""
    slices = tables.digits[side]
    return split_into(library.ozaki_cpu_split_digits, x, mu, side, slices, len(slices), tables.narrow)


def multiply_digits(
    library: Any,
    a: Panels,
    b: Panels,
    tables: DigitTables,
    mu: _Ints,
    nu: _Ints,
    out: npt.NDArray[Any],
    triangle: bool,
) -> None:
    """Write the product, rounded once, into out, as `calls.multiply_rounded` does."""
    result, tiles = result_of(out, triangle)
    factors = set_factors(result, mu, nu)
    operands = operands_of_digits(a, b, tables.half, tables.weights)
    given, room = (ctypes.byref(operands), ctypes.byref(result)), digit_room(result.tile_rows, len(tables.weights))

    def call(begin: int, end: int) -> None:
        own = Block((room,))
        library.ozaki_cpu_multiply_digits(*given, begin, end, own.address)

    share_out(tiles, cost_of(a, b, tables.scheme.products), call, a, b, tables, out, *factors)


def multiply_diagonals(library: Any, a: Panels, b: Panels, tables: DigitTables) -> npt.NDArray[np.int32]:
    """The sums of the diagonals, shape (digits, batch, m, n), the most significant one first."""
    out = np.empty((len(tables.weights), max(a.batch, b.batch), a.rows, b.rows), np.int32)
    result, tiles = result_of(out[0])
    operands = operands_of_digits(a, b, tables.half, tables.weights)
    given, room = (ctypes.byref(operands), ctypes.byref(result)), digit_room(result.tile_rows, len(out))

    def call(begin: int, end: int) -> None:
        own = Block((room,))
        library.ozaki_cpu_diagonals(*given, begin, end, own.address)

    share_out(tiles, cost_of(a, b, tables.scheme.products), call, a, b, tables, out)
    return out


def digit_scratch_bytes(rows: int, columns: int, count: int) -> int:
    """Bytes that a thread holds while it multiplies."""
    return digit_room(tile(rows, columns)[0], count) + 1024


def digit_room(tile_rows: int, count: int) -> int:
    """Bytes of the scratch of `ozaki_cpu_multiply_digits`, for tiles of so many rows."""
    return 4 * count * (tile_rows + prod(WIDTHS.values())) + LINE


def operands_of_digits(a: Panels, b: Panels, half: int, weights: npt.NDArray[np.float64]) -> DigitOperands:
    """What the library is told of digits; `weights` are those of the diagonals."""
    return DigitOperands(operands_of(a, b, None), len(b.memory), half, weights.ctypes.data)
