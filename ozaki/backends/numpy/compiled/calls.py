"""Calls of the compiled library (kernels/cpu/library.cpp), whose work threads share out."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy.compiled.memory import LINE, Block
from ozaki.backends.numpy.compiled.panels import DEPTH, WIDTHS, Panels, padded, tile
from ozaki.backends.numpy.compiled.sharing import share_out
from ozaki.backends.numpy.compiled.structures import Describe, Operands, Result, Split
from ozaki.backends.numpy.compiled.tables import Tables
from ozaki.schemes import magnitude_bits
from ozaki.schemes.image import EMPTY_TOP

_Ints = npt.NDArray[np.int64]


def can_read(x: npt.NDArray[Any]) -> bool:
    """Whether the library reads the elements of x: where each lies at a multiple of its size."""
    return x.flags.aligned and all(step % x.itemsize == 0 for step in x.strides)


def describe(library: Any, x: npt.NDArray[Any], fields: _Ints) -> None:
    """Write the description of rows x, shape (batch, rows, k), of float32 or float64, into fields (`FIELDS`)."""
    batch, rows, k = x.shape
    given = Describe(
        x.ctypes.data, x.itemsize == 4, batch, rows, k, *(step // x.itemsize for step in x.strides),
        magnitude_bits(k), EMPTY_TOP, *(field.ctypes.data for field in fields),
    )  # fmt: skip
    at = ctypes.byref(given)

    def call(begin: int, end: int) -> None:
        library.ozaki_cpu_describe(at, begin, end)

    share_out(batch * -(-rows // 32), 2.0 * x.size, call, x, fields)


def split(library: Any, x: npt.NDArray[Any], mu: _Ints, side: str, tables: Tables) -> Panels:
    """The residues of the images of rows x, shape (batch, rows, k), of float32 or float64, with exponents mu.

    NaN and Inf count as zero; images are below 2**63.
    """
    batch, rows, k = x.shape
    depth, width = -(-k // DEPTH) * DEPTH, WIDTHS[side]
    block = Block((len(tables.moduli), batch, padded(rows, k, side)))
    memory = block.array
    exponents = np.ascontiguousarray(mu, np.int64)
    residues = tables.residues[side]
    given = Split(
        x.ctypes.data, x.itemsize == 4, batch, rows, k, *(step // x.itemsize for step in x.strides),
        exponents.ctypes.data, residues.ctypes.data, len(residues), memory.ctypes.data,
        memory.strides[0], memory.strides[1], depth,
    )  # fmt: skip
    panels, at = batch * -(-rows // width), ctypes.byref(given)

    def call(begin: int, end: int) -> None:
        library.ozaki_cpu_split(at, side == "right", begin, end)

    share_out(panels, float(x.size) * len(residues), call, x, exponents, residues, block)
    return Panels(block, rows, k, depth)


def multiply_rounded(
    library: Any, a: Panels, b: Panels, tables: Tables, mu: _Ints, nu: _Ints, out: npt.NDArray[Any]
) -> None:
    """Write the product, rounded once, into out, shape (batch, m, n), whose last axis is contiguous.

    No power of two 2**-(mu + nu) may be beyond 2**-900 and 2**800.
    """
    result, scratch, tiles = _result(a, b, out)
    rows, columns = np.ldexp(1.0, -mu.astype(np.int32)), np.zeros((len(nu), nu.shape[1] + 16))
    columns[:, :-16] = np.ldexp(1.0, -nu.astype(np.int32))
    result.row_factors, result.column_factors = rows.ctypes.data, columns.ctypes.data
    result.step_of_row_factors = 0 if len(rows) == 1 else rows.shape[1]
    result.step_of_column_factors = 0 if len(columns) == 1 else columns.shape[1]
    operands = _operands(a, b, tables)
    given = tuple(map(ctypes.byref, (operands, tables.recombination, result)))

    def call(begin: int, end: int) -> None:
        own = scratch()
        library.ozaki_cpu_multiply(*given, begin, end, own.array.ctypes.data)

    share_out(tiles, _cost(a, b, tables), call, a, b, tables, out, rows, columns)


def multiply(library: Any, a: Panels, b: Panels, tables: Tables) -> npt.NDArray[np.int8]:
    """The residues of the products, shape (moduli, batch, m, n)."""
    out = np.empty((len(tables.moduli), max(a.batch, b.batch), a.rows, b.rows), np.int8)
    result, scratch, tiles = _result(a, b, out[0])
    result.out = out.ctypes.data
    operands = _operands(a, b, tables)
    given = ctypes.byref(operands), ctypes.byref(result)

    def call(begin: int, end: int) -> None:
        own = scratch()
        library.ozaki_cpu_residues(*given, begin, end, own.array.ctypes.data)

    share_out(tiles, _cost(a, b, tables), call, a, b, tables, out)
    return out


def _result(a: Panels, b: Panels, out: npt.NDArray[Any]) -> tuple[Any, Callable[[], Block], int]:
    """What the library is told of the result, what makes a thread's scratch, and the number of tiles."""
    batch, m, n = out.shape
    rows, columns = tile(m, n)
    steps = (step // out.itemsize for step in out.strides[:2])
    result = Result(batch, m, n, rows, columns, out.itemsize == 4, out.ctypes.data, *steps)
    # Each thread has its own scratch, made in the thread.
    return (
        result,
        lambda: Block((len(a.memory) * (rows * columns + LINE) + LINE,)),
        batch * -(-m // rows) * -(-n // columns),
    )


def _operands(a: Panels, b: Panels, tables: Tables) -> Any:
    (x, y), moduli = (a.memory, b.memory), tables.moduli
    steps = x.strides[0], y.strides[0], *(0 if len(of[0]) == 1 else of.strides[1] for of in (x, y))
    return Operands(x.ctypes.data, y.ctypes.data, *steps, a.depth, -(-a.k // 4), moduli.ctypes.data, len(moduli))


def _cost(a: Panels, b: Panels, tables: Tables) -> float:
    return float(max(a.batch, b.batch)) * a.rows * b.rows * (a.depth + 64) * len(tables.moduli) / 16
