"""Calls of the compiled library (kernels/cpu/library.cpp), whose work threads share out."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy._scaled import ScaledRows
from ozaki.backends.numpy.compiled.memory import LINE, Block
from ozaki.backends.numpy.compiled.panels import Panels, tile
from ozaki.backends.numpy.compiled.sharing import share_out
from ozaki.backends.numpy.compiled.structures import Describe, Operands, Result, Split
from ozaki.backends.numpy.compiled.tables import Tables
from ozaki.schemes import magnitude_bits
from ozaki.schemes.image import EMPTY_TOP

_Ints = npt.NDArray[np.int64]


def can_read(x: npt.NDArray[Any] | ScaledRows) -> bool:
    """Whether the library reads the elements of x: where the parts of each lie at multiples of their size."""
    x = x.x if isinstance(x, ScaledRows) else x
    return x.flags.aligned and all(step % part_size(x) == 0 for step in x.strides)


def inner_factors(x: npt.NDArray[Any] | ScaledRows) -> tuple[npt.NDArray[Any], npt.NDArray[np.float64] | None]:
    """The array of rows that the library reads, and the factors of inner indices, shape (batch, k); None without."""
    if not isinstance(x, ScaledRows):
        return x, None
    return x.x, np.ascontiguousarray(x.factors[:, 0], np.float64)


def inner_fields(factors: npt.NDArray[np.float64] | None) -> tuple[int | None, int]:
    """The fields `INNER` of a structure for factors, which have to live as long as it."""
    if factors is None:
        return None, 0
    return factors.ctypes.data, 0 if len(factors) == 1 else factors.shape[1]


def parts_of(x: npt.NDArray[Any] | ScaledRows) -> int:
    """Real numbers of an element: 2 of a complex one."""
    return 2 if x.dtype.kind == "c" else 1


def part_size(x: npt.NDArray[Any]) -> int:
    """Bytes of a part of an element."""
    return x.itemsize // parts_of(x)


def can_describe(x: npt.NDArray[Any] | ScaledRows) -> bool:
    """Whether `describe` takes x: complex rows are contiguous, or neighbouring rows are neighbours in memory."""
    return x.dtype.kind in "fc" and can_read(x) and (x.dtype.kind == "f" or x.itemsize in x.strides[1:])


def describe(library: Any, rows: npt.NDArray[Any] | ScaledRows, fields: _Ints) -> None:
    """Write the description of rows, shape (batch, rows, k), into fields (`FIELDS`).

    Elements are float32 or float64, or complex numbers of which all parts are described together.
    """
    x, inner = inner_factors(rows)
    if x.dtype.kind == "f":
        _describe(library, x, inner, magnitude_bits(x.shape[2]), fields)
        return
    width = magnitude_bits(2 * x.shape[2])
    if x.strides[2] == x.itemsize:
        of_parts = None if inner is None else np.repeat(inner, 2, axis=1)
        _describe(library, x.view(x.real.dtype), of_parts, width, fields)
        return
    parts = x.swapaxes(1, 2).view(x.real.dtype).swapaxes(1, 2)
    of_both = np.empty((len(fields), *parts.shape[:2]), np.int64)
    _describe(library, parts, inner, width, of_both, pairs=True)
    fields[...] = of_both[..., ::2]


def _describe(
    library: Any,
    x: npt.NDArray[Any],
    inner: npt.NDArray[np.float64] | None,
    width: int,
    fields: _Ints,
    pairs: bool = False,
) -> None:
    """Do as `describe` does, with magnitudes of `width` bits; of `pairs` of rows, that of both together, twice."""
    batch, rows, k = x.shape
    given = Describe(
        x.ctypes.data, x.itemsize == 4, batch, rows, k, *(step // x.itemsize for step in x.strides),
        pairs, width, EMPTY_TOP, *(field.ctypes.data for field in fields), *inner_fields(inner),
    )  # fmt: skip
    at = ctypes.byref(given)

    def call(begin: int, end: int) -> None:
        library.ozaki_cpu_describe(at, begin, end)

    share_out(batch * -(-rows // 32), 2.0 * x.size, call, x, inner, fields)


def split(
    library: Any, of: npt.NDArray[Any] | ScaledRows, mu: _Ints, side: str, tables: Tables, narrow: bool = False
) -> Panels:
    """The residues of the images of rows, shape (batch, rows, k), with exponents mu.

    Elements are of float32 or float64, or complex, and have as many parts as those of `tables`. NaN and Inf count as
    zero; images are below 2**63, `narrow` ones below 2**31.
    """
    function = library.ozaki_cpu_split if tables.parts == 1 else library.ozaki_cpu_split_complex
    return split_into(function, of, mu, side, tables.residues[side], len(tables.moduli), narrow)


def split_into(
    function: Callable[[Any, int, int, int], object],
    of: npt.NDArray[Any] | ScaledRows,
    mu: _Ints,
    side: str,
    slices: npt.NDArray[Any],
    planes: int,
    narrow: bool,
) -> Panels:
    """The panels of the images of rows, as `split` makes them by a function of the library.

    `slices` says how images become them, and there are so many planes of them.
    """
    x, inner = inner_factors(of)
    batch, rows, k = x.shape
    panels = Panels.empty(planes, batch, rows, k, side)
    memory = panels.memory
    exponents = np.ascontiguousarray(mu, np.int64)
    given = Split(
        x.ctypes.data, part_size(x) == 4, batch, rows, k, *(step // part_size(x) for step in x.strides),
        exponents.ctypes.data, slices.ctypes.data, len(slices), memory.ctypes.data,
        memory.strides[0], memory.strides[1], panels.depth, narrow, *inner_fields(inner),
    )  # fmt: skip
    at = ctypes.byref(given)

    def call(begin: int, end: int) -> None:
        function(at, side == "right", begin, end)

    share_out(batch * -(-rows // panels.width), float(x.size) * len(slices), call, x, inner, exponents, slices, panels)
    return panels


def multiply_rounded(
    library: Any,
    a: Panels,
    b: Panels,
    tables: Tables,
    mu: _Ints,
    nu: _Ints,
    out: npt.NDArray[Any],
    triangle: bool = False,
) -> None:
    """Write the product, rounded once, into out, shape (batch, m, n), real or complex, whose last axis is contiguous.

    With `triangle`, of each `TRIANGLE` rows the columns beyond the last one of these are left as they are. No power of
    two 2**-(mu + nu) may be beyond 2**-900 and 2**800.
    """
    result, tiles = result_of(out, triangle)
    factors = set_factors(result, mu, nu)
    scratch = _scratch_of(result, a)
    operands = operands_of(a, b, tables.moduli)
    given = tuple(map(ctypes.byref, (operands, tables.recombination, result)))
    function = library.ozaki_cpu_multiply if tables.parts == 1 else library.ozaki_cpu_multiply_complex

    def call(begin: int, end: int) -> None:
        own = scratch()
        function(*given, begin, end, own.address)

    share_out(tiles, cost_of(a, b), call, a, b, tables, out, *factors)


def multiply(library: Any, a: Panels, b: Panels, tables: Tables) -> npt.NDArray[np.int8]:
    """The residues of the products, shape (planes, batch, m, n), as int8; of complex operands all P, then all Q."""
    out = np.empty((len(tables.moduli), max(a.batch, b.batch), a.rows, b.rows), np.int8)
    result, tiles = result_of(out[0])
    scratch = _scratch_of(result, a)
    operands = operands_of(a, b, tables.moduli)
    given = ctypes.byref(operands), ctypes.byref(result)

    def call(begin: int, end: int) -> None:
        own = scratch()
        library.ozaki_cpu_residues(*given, begin, end, own.address)

    share_out(tiles, cost_of(a, b), call, a, b, tables, out)
    return out


def result_of(out: npt.NDArray[Any], triangle: bool = False) -> tuple[Result, int]:
    """What the library is told of a result of shape (batch, m, n), without factors, and the number of its tiles."""
    batch, m, n = out.shape
    rows, columns = tile(m, n, triangle=triangle)
    steps = (step // part_size(out) for step in out.strides[:2])
    result = Result(batch, m, n, rows, columns, part_size(out) == 4, triangle, out.ctypes.data, *steps)
    return result, batch * -(-m // rows) * -(-n // columns)


def set_factors(result: Result, mu: _Ints, nu: _Ints) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Tell the library by what entries are multiplied, 2**-(mu + nu); returns the factors, which it reads."""
    rows, columns = np.ldexp(1.0, -mu.astype(np.int32)), np.zeros((len(nu), nu.shape[1] + 16))
    columns[:, :-16] = np.ldexp(1.0, -nu.astype(np.int32))
    result.row_factors, result.column_factors = rows.ctypes.data, columns.ctypes.data
    result.step_of_row_factors = 0 if len(rows) == 1 else rows.shape[1]
    result.step_of_column_factors = 0 if len(columns) == 1 else columns.shape[1]
    return rows, columns


def _scratch_of(result: Result, a: Panels) -> Callable[[], Block]:
    """What makes a thread's scratch, in the thread: for the residues of a tile."""
    return lambda: Block((len(a.memory) * (result.tile_rows * result.tile_columns + LINE) + LINE,))


def operands_of(a: Panels, b: Panels, moduli: npt.NDArray[Any] | None) -> Operands:
    """What the library is told of both operands.

    `moduli` are those of the planes of one byte, which come first; None of digits, which have none.
    """
    x, y = a.memory, b.memory
    steps = x.strides[0], y.strides[0], *(0 if len(of[0]) == 1 else of.strides[1] for of in (x, y))
    at, count = (None, len(x)) if moduli is None else (moduli.ctypes.data, len(moduli))
    return Operands(x.ctypes.data, y.ctypes.data, *steps, a.depth, b.depth, -(-a.k // 4), at, count)


def cost_of(a: Panels, b: Panels, products: int | None = None) -> float:
    """The work of so many products of planes, or of one for each plane, in the units of `share_out`."""
    count = len(a.memory) if products is None else products
    return float(max(a.batch, b.batch)) * a.rows * b.rows * (a.k + 64) * count / 16
