"""Calls of the compiled library for numbers of many bits: operands, residues of two digits, and results."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy._scaled import ScaledRows
from ozaki.backends.numpy._undecided import Undecided as UndecidedEntries
from ozaki.backends.numpy.compiled.calls import cost_of, inner_factors, inner_fields, operands_of
from ozaki.backends.numpy.compiled.memory import LINE, Block
from ozaki.backends.numpy.compiled.panels import Panels, tile
from ozaki.backends.numpy.compiled.sharing import share_out
from ozaki.backends.numpy.compiled.structures import Result
from ozaki.backends.numpy.compiled.wide_structures import (
    Leading,
    NumbersOut,
    Source,
    Undecided,
    WideOperands,
    WideRemainders,
    WideResult,
    WideSplit,
    no_rows,
    numbers_out,
    rows_of,
    steps_of,
)
from ozaki.backends.numpy.compiled.wide_tables import WideTables
from ozaki.multiprecision.numbers import Numbers

_Ints = npt.NDArray[np.int64]

_LANES, _GROUP, _LEADING = 16, 48, 128
"""Elements of a vector, rows that are split at a time, and those whose leading bits are found (kernels/cpu/)."""


def can_write(out: npt.NDArray[Any] | Numbers) -> bool:
    """Whether the library writes entries into out, shape (batch, m, n): where rows are contiguous."""
    planes = (out.signs, out.exponents, *out.limbs) if isinstance(out, Numbers) else (out,)
    return all(x.strides[2] == x.itemsize and x.flags.aligned and x.strides[1] % x.itemsize == 0 for x in planes)


def leading(
    library: Any, x: Numbers, least: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """What `_numbers.leading` returns of rows x, shape (batch, rows, k), no axis of which is empty.

    The values lie in memory in the order of x.
    """
    batch, rows, k = x.shape
    across = x.limbs.strides[2] < x.limbs.strides[3]
    values = np.empty((batch, k, rows)).swapaxes(1, 2) if across else np.empty(x.shape)
    tops, bottoms = np.empty((batch, rows), np.int64), np.empty((batch, rows), np.int64)
    given = Leading(rows_of(x), values.ctypes.data, steps_of(values), tops.ctypes.data, bottoms.ctypes.data, least)
    at = ctypes.byref(given)

    def call(begin: int, end: int) -> None:
        library.ozaki_cpu_leading(at, begin, end)

    share_out(batch * -(-rows // _LEADING), 4.0 * x.size, call, x, values, tops, bottoms)
    return values, tops, bottoms


def image_words(largest: int) -> int:
    """Words of 32 bits of images up to `largest` in magnitude."""
    return -(-(largest.bit_length() + 1) // 32)


def planes_of(moduli: tuple[int, ...]) -> int:
    """Planes of the slices of residues: of those of two digits three."""
    return sum(1 if m <= 256 else 3 for m in moduli)


def split_wide(
    library: Any, of_rows: npt.NDArray[Any] | ScaledRows | Numbers, mu: _Ints, side: str, tables: WideTables
) -> Panels:
    """The residues of the images of rows, shape (batch, rows, k), with exponents mu, as panels.

    Rows are floats, of which NaN and Inf count as zero, or multiprecision numbers; images are as wide as the tables.
    """
    x, inner = (of_rows, None) if isinstance(of_rows, Numbers) else inner_factors(of_rows)
    batch, rows, k = x.shape
    panels = Panels.empty(planes_of(tables.crt.moduli), batch, rows, k, side)
    memory, exponents, of = panels.memory, np.ascontiguousarray(mu, np.int64), tables.sides[side]
    if isinstance(x, Numbers):
        source = Source(None, 0, (0, 0, 0), rows_of(x), exponents.ctypes.data, None, 0)
        limbs = len(x.limbs)
    else:
        source = Source(
            x.ctypes.data, x.itemsize == 4, steps_of(x), no_rows(x), exponents.ctypes.data, *inner_fields(inner)
        )
        limbs = 0
    given = WideSplit(
        source, tables.words, of.rows.ctypes.data, of.starts.ctypes.data, of.bytes.ctypes.data, len(of.bytes),
        of.digits.ctypes.data, len(of.digits), memory.ctypes.data, memory.strides[0], memory.strides[1], panels.depth,
    )  # fmt: skip
    groups, at, room = batch * -(-rows // _GROUP), ctypes.byref(given), split_room(tables.words, limbs)

    def call(begin: int, end: int) -> None:
        own = Block((room,))
        library.ozaki_cpu_split_wide(at, side == "right", begin, end, own.array.ctypes.data)

    share_out(groups, float(x.size) * len(memory) * (4 + tables.words), call, x, inner, exponents, tables, panels)
    return panels


def split_room(words: int, limbs: int) -> int:
    """Bytes that a thread holds while it splits numbers of so many limbs."""
    return 4 * (4 * words * _GROUP + (min(limbs, words + 3) + 2) * _LANES)


def multiply_wide(
    library: Any,
    a: Panels,
    b: Panels,
    wide: WideTables,
    mu: _Ints,
    nu: _Ints,
    out: npt.NDArray[Any] | Numbers,
    triangle: bool,
    undecided: UndecidedEntries | None = None,
) -> None:
    """Write the product, rounded once, into out, shape (batch, m, n), floats or numbers, contiguous along rows.

    With `triangle`, of each `TRIANGLE` rows the columns beyond the last one of these are left as they are. `undecided`
    flags undecided entries of floats.
    """
    batch, m, n = out.shape
    rows, columns = tile(m, n, wide.planes, triangle=triangle)
    result = Result(batch, m, n, rows, columns, triangle=triangle)
    numbers = NumbersOut()
    if isinstance(out, Numbers):
        numbers = numbers_out(out)
    else:
        result.single, result.out = out.itemsize == 4, out.ctypes.data
        result.of_batch, result.of_rows = (step // out.itemsize for step in out.strides[:2])
    mu, nu = (np.ascontiguousarray(x, np.int64) for x in (mu, nu))
    steps = (0 if len(x) == 1 else x.shape[1] for x in (mu, nu))
    residues = residue_bytes(m, n, wide.planes)
    errors, flagged = _undecided(undecided)
    given_result = WideResult(
        result, isinstance(out, Numbers), numbers, mu.ctypes.data, nu.ctypes.data, *steps, flagged, residues
    )
    words = -(-wide.planes // 4)
    remainders = WideRemainders(
        wide.planes, words, wide.limbs, wide.quotient.ctypes.data, wide.quotient_starts.ctypes.data,
        wide.weights.ctypes.data, wide.starts.ctypes.data,
    )  # fmt: skip
    operands = _operands(a, b, wide)
    given, room = tuple(map(ctypes.byref, (operands, remainders, given_result))), wide_scratch_bytes(m, n, wide.planes)

    def call(begin: int, end: int) -> None:
        own = Block((room,))
        library.ozaki_cpu_multiply_wide(*given, begin, end, own.array.ctypes.data)

    tiles = batch * -(-m // rows) * -(-n // columns)
    share_out(tiles, cost_of(a, b), call, a, b, wide, out, mu, nu, errors)


def _undecided(of: UndecidedEntries | None) -> tuple[tuple[npt.NDArray[np.float64], ...], Undecided]:
    """What the library is told of undecided entries, and the arrays that it reads."""
    if of is None:
        return (), Undecided()
    assert of.flags.strides[2] == 1
    errors = tuple(np.ascontiguousarray(x) for side in of.errors for x in side)
    steps = (0 if len(x) == 1 else x.shape[1] for x in errors[::2])
    return errors, Undecided(of.flags.ctypes.data, *of.flags.strides[:2], *(x.ctypes.data for x in errors), *steps)


def multiply_residues(library: Any, a: Panels, b: Panels, wide: WideTables) -> npt.NDArray[np.int16]:
    """The residues of the products, shape (moduli, batch, m, n)."""
    batch, m, n = max(a.batch, b.batch), a.rows, b.rows
    out = np.empty((len(wide.crt.moduli), batch, m, n), np.int16)
    rows, columns = tile(m, n, wide.planes)
    result = Result(batch, m, n, rows, columns)
    result.out = out.ctypes.data
    operands = _operands(a, b, wide)
    given, room = (ctypes.byref(operands), ctypes.byref(result)), wide_scratch_bytes(m, n, wide.planes)

    def call(begin: int, end: int) -> None:
        own = Block((room,))
        library.ozaki_cpu_residues_wide(*given, begin, end, own.array.ctypes.data)

    share_out(batch * -(-m // rows) * -(-n // columns), cost_of(a, b), call, a, b, wide, out)
    return out


def residue_bytes(m: int, n: int, planes: int) -> int:
    """Bytes of the residues of a tile: a multiple of 64, with room for reading beyond them."""
    rows, columns = tile(m, n, planes)
    return planes * (rows * columns + LINE) + LINE


def wide_scratch_bytes(m: int, n: int, planes: int) -> int:
    """Bytes that a thread holds while it multiplies: the residues of a tile, and words of 48 entries."""
    # Limbs are no more than the bytes of residues take, and one more that makes them even.
    return residue_bytes(m, n, planes) + 4 * _GROUP * (2 * (-(-planes // 4)) + 6)


def _operands(a: Panels, b: Panels, wide: WideTables) -> Any:
    return WideOperands(operands_of(a, b, wide.moduli), wide.products.ctypes.data, len(wide.products))
