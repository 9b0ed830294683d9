"""Calls of the compiled library (kernels/cpu/library.cpp): what it is given, and how threads share its work out."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from math import prod
from threading import Event, Thread
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy.spare import Block
from ozaki.caches import cached
from ozaki.process.threads import threads
from ozaki.schemes import magnitude_bits
from ozaki.schemes.image import EMPTY_TOP
from ozaki.schemes.moduli import balanced
from ozaki.schemes.residues import Remainders, remainders

LIMB_BITS = 40
"""Bits of a limb of the library."""

MOST_LIMBS = 3
"""Most limbs of a product of moduli whose entries the library rounds."""

WIDTHS = {"left": 8, "right": 48}
"""Rows of a panel of each operand (kernels/cpu/split.h)."""

_DEPTH = 16
"""What the k of panels is a multiple of."""

_TILE = 256, 480
"""Most rows and columns of a tile: its residues stay in a cache of a megabyte."""

_Ints = npt.NDArray[np.int64]


class _Describe(ctypes.Structure):
    _fields_ = (
        ("x", ctypes.c_void_p),
        *[(name, ctypes.c_int64) for name in ("single", "batch", "rows", "k", "of_batch", "of_rows", "of_k")],
        *[(name, ctypes.c_int64) for name in ("width", "empty")],
        *[(name, ctypes.c_void_p) for name in ("top", "peak", "magnitudes", "squares", "bottom", "nonfinite")],
    )


class _Split(ctypes.Structure):
    _fields_ = (
        ("x", ctypes.c_void_p),
        ("single", ctypes.c_int64),
        *[(name, ctypes.c_int64) for name in ("batch", "rows", "k", "of_batch", "of_rows", "of_k")],
        ("exponents", ctypes.c_void_p),
        ("residues", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("out", ctypes.c_void_p),
        *[(name, ctypes.c_int64) for name in ("plane", "matrix", "depth")],
    )


class _Operands(ctypes.Structure):
    _fields_ = (
        ("left", ctypes.c_void_p),
        ("right", ctypes.c_void_p),
        *[(f"{side}_{what}", ctypes.c_int64) for what in ("plane", "matrix") for side in ("left", "right")],
        ("depth", ctypes.c_int64),
        ("moduli", ctypes.c_void_p),
        ("count", ctypes.c_int64),
    )


class _Recombination(ctypes.Structure):
    _fields_ = (
        ("count", ctypes.c_int64),
        ("limbs", ctypes.c_int64),
        ("weights", ctypes.c_void_p),
        ("product", ctypes.c_void_p),
        ("inverse", ctypes.c_double),
    )


class _Result(ctypes.Structure):
    _fields_ = (
        *[(name, ctypes.c_int64) for name in ("batch", "rows", "columns", "tile_rows", "tile_columns", "single")],
        ("out", ctypes.c_void_p),
        *[(name, ctypes.c_int64) for name in ("of_batch", "of_rows")],
        ("row_factors", ctypes.c_void_p),
        ("column_factors", ctypes.c_void_p),
        *[(name, ctypes.c_int64) for name in ("step_of_row_factors", "step_of_column_factors")],
    )


_RESIDUE = np.dtype(
    [("modulus", "i4"), ("inverse", "f4"), ("start", "i4"), ("low", "i4"), ("high", "i4"), ("offset", "i4")]
)
_MODULUS = np.dtype([("modulus", "i4"), ("inverse", "f4"), ("fold", "i4")])


@dataclass(frozen=True, eq=False)
class Tables:
    """Constants of moduli of at most 256, as the library reads them.

    Attributes
    ----------
    crt : their Chinese remainder theorem
    residues : of images, for each side; the left ones are multiplied by the inverses of the theorem
    moduli : of products
    weights, product : limbs of the weights, [moduli][limbs], and of the product, the highest first, in float64, each
        times its power of two
    """

    crt: Remainders
    residues: dict[str, npt.NDArray[Any]]
    moduli: npt.NDArray[Any]
    weights: npt.NDArray[np.float64]
    product: npt.NDArray[np.float64]

    @property
    def limbs(self) -> int:
        """Limbs of a number below the product."""
        return len(self.product)


@cached(256)
def tables_of(moduli: tuple[int, ...]) -> Tables:
    """The constants of these moduli."""
    crt = remainders(moduli)
    residues = {
        side: np.array([_residue(m, factor, side) for m, factor in zip(moduli, factors, strict=True)], _RESIDUE)
        for side, factors in (("left", crt.inverses), ("right", (1,) * len(moduli)))
    }
    of_products = np.array([(m, 1.0 / m, balanced(2**16, m)) for m in moduli], _MODULUS)
    limbs = -(-crt.product.bit_length() // LIMB_BITS)
    weights = np.array([_limbs(weight, limbs) for weight in crt.weights])
    return Tables(crt, residues, of_products, weights, np.array(_limbs(crt.product, limbs)))


def _residue(m: int, factor: int, side: str) -> tuple[int, float, int, int, int, int]:
    """How images, times a factor, become residues modulo m: int8 on the left, uint8 in [0, m) on the right."""
    offset = 0 if side == "left" or m == 256 else (m - 1) // 2
    words = [
        int.from_bytes(bytes(balanced(factor << 8 * j, m) & 255 for j in range(first, first + 4)), "little")
        for first in (0, 4)
    ]
    low, high = (word - 2**32 if word >= 2**31 else word for word in words)
    return m, 1.0 / m, -(factor << 63) % m - offset, low, high, offset


def _limbs(x: int, limbs: int) -> list[float]:
    """Limbs of x >= 0, the highest first, each times its power of two."""
    parts = [x >> LIMB_BITS * i & (1 << LIMB_BITS) - 1 for i in reversed(range(limbs))]
    return [float(part << LIMB_BITS * i) for i, part in zip(reversed(range(limbs)), parts, strict=True)]


@dataclass(frozen=True, eq=False)
class Panels:
    """Residues of an operand as the library multiplies them (kernels/cpu/split.h).

    Attributes
    ----------
    block : the bytes of all residues, [moduli][batch][panels][depth / 4][rows of a panel][4]
    rows, depth : of a matrix: rows without padding, k with padding
    """

    block: Block
    rows: int
    depth: int

    @property
    def memory(self) -> npt.NDArray[np.int8]:
        """The bytes."""
        return self.block.array

    @property
    def batch(self) -> int:
        """Number of matrices."""
        return int(self.memory.shape[1])


def _padded(rows: int, k: int, side: str) -> int:
    """Bytes of the residues of a matrix modulo one number."""
    width = WIDTHS[side]
    return -(-rows // width) * width * -(-k // _DEPTH) * _DEPTH


def slice_bytes(batch: int, rows: int, k: int, side: str, moduli: int) -> int:
    """Bytes that `split` returns, of `rows` rows in `batch` matrices, and those of the exponents that it copies."""
    return moduli * batch * _padded(-(-rows // batch), k, side) + 24 * rows + 1024


def scratch_bytes(rows: int, columns: int, moduli: int) -> int:
    """Bytes that a thread holds while it multiplies."""
    return moduli * prod(_tile(rows, columns)) + 1024


def _tile(rows: int, columns: int) -> tuple[int, int]:
    """Rows and columns of the tiles of a matrix: whole panels."""
    sizes = zip(_TILE, (rows, columns), WIDTHS.values(), strict=True)
    tile_rows, tile_columns = (min(most, -(-size // width) * width) for most, size, width in sizes)
    return tile_rows, tile_columns


def declare(library: ctypes.CDLL) -> None:
    """Let ctypes know the arguments of the library's functions; none returns anything."""
    pointer, integer = ctypes.c_void_p, ctypes.c_int64
    arguments = {
        "describe": (pointer, integer, integer),
        "split": (pointer, ctypes.c_int, integer, integer),
        "multiply": (pointer, pointer, pointer, integer, integer, pointer),
        "residues": (pointer, pointer, integer, integer, pointer),
    }
    for name, types in arguments.items():
        function = getattr(library, f"ozaki_cpu_{name}")
        function.argtypes, function.restype = types, None


def can_read(x: npt.NDArray[Any]) -> bool:
    """Whether the library reads the elements of x: where each lies at a multiple of its size."""
    return x.flags.aligned and all(step % x.itemsize == 0 for step in x.strides)


def describe(library: Any, x: npt.NDArray[Any], fields: _Ints) -> None:
    """Write the description of rows x, shape (batch, rows, k), of float32 or float64, into fields (`FIELDS`)."""
    batch, rows, k = x.shape
    given = _Describe(
        x.ctypes.data, x.itemsize == 4, batch, rows, k, *(step // x.itemsize for step in x.strides),
        magnitude_bits(k), EMPTY_TOP, *(field.ctypes.data for field in fields),
    )  # fmt: skip
    at = ctypes.byref(given)

    def call(begin: int, end: int) -> None:
        library.ozaki_cpu_describe(at, begin, end)

    _share_out(batch * -(-rows // 32), 2.0 * x.size, call, x, fields)


def split(library: Any, x: npt.NDArray[Any], mu: _Ints, side: str, tables: Tables) -> Panels:
    """The residues of the images of rows x, shape (batch, rows, k), of float32 or float64, with exponents mu.

    NaN and Inf count as zero; images are below 2**63.
    """
    batch, rows, k = x.shape
    depth, width = -(-k // _DEPTH) * _DEPTH, WIDTHS[side]
    block = Block((len(tables.moduli), batch, _padded(rows, k, side)))
    memory = block.array
    exponents = np.ascontiguousarray(mu, np.int64)
    residues = tables.residues[side]
    given = _Split(
        x.ctypes.data, x.itemsize == 4, batch, rows, k, *(step // x.itemsize for step in x.strides),
        exponents.ctypes.data, residues.ctypes.data, len(residues), memory.ctypes.data,
        memory.strides[0], memory.strides[1], depth,
    )  # fmt: skip
    panels, at = batch * -(-rows // width), ctypes.byref(given)

    def call(begin: int, end: int) -> None:
        library.ozaki_cpu_split(at, side == "right", begin, end)

    _share_out(panels, float(x.size) * len(residues), call, x, exponents, residues, block)
    return Panels(block, rows, depth)


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
    recombination = _Recombination(
        len(tables.moduli), tables.limbs, tables.weights.ctypes.data, tables.product.ctypes.data,
        1.0 / tables.crt.product,
    )  # fmt: skip
    operands = _operands(a, b, tables)
    given = tuple(map(ctypes.byref, (operands, recombination, result)))

    def call(begin: int, end: int) -> None:
        own = scratch()
        library.ozaki_cpu_multiply(*given, begin, end, own.array.ctypes.data)

    _share_out(tiles, _cost(a, b, tables), call, a, b, tables, out, rows, columns)


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

    _share_out(tiles, _cost(a, b, tables), call, a, b, tables, out)
    return out


def _result(a: Panels, b: Panels, out: npt.NDArray[Any]) -> tuple[Any, Callable[[], Block], int]:
    """What the library is told of the result, what makes a thread's scratch, and the number of tiles."""
    batch, m, n = out.shape
    rows, columns = _tile(m, n)
    steps = (step // out.itemsize for step in out.strides[:2])
    result = _Result(batch, m, n, rows, columns, out.itemsize == 4, out.ctypes.data, *steps)
    # Each thread has its own scratch, made in the thread.
    return result, lambda: Block((len(a.memory) * rows * columns + 64,)), batch * -(-m // rows) * -(-n // columns)


def _operands(a: Panels, b: Panels, tables: Tables) -> Any:
    (x, y), moduli = (a.memory, b.memory), tables.moduli
    steps = x.strides[0], y.strides[0], *(0 if len(of[0]) == 1 else of.strides[1] for of in (x, y))
    return _Operands(x.ctypes.data, y.ctypes.data, *steps, a.depth, moduli.ctypes.data, len(moduli))


def _cost(a: Panels, b: Panels, tables: Tables) -> float:
    return float(max(a.batch, b.batch)) * a.rows * b.rows * (a.depth + 64) * len(tables.moduli) / 16


_LEAST = 2e6
"""Least work of a thread, in sixteenths of products of bytes, and in residues: some 100 microseconds."""


def _share_out(items: int, cost: float, call: Callable[[int, int], None], *used: Any) -> None:
    """Let threads call `call(begin, end)` for ranges that together are all items.

    An error in one of them ends the others, and is raised here. `used` has what the library is given the addresses of:
    each thread holds it, so that nothing frees it while a thread is in `call`.
    """
    workers = min(threads(), items, max(int(cost / _LEAST), 1))
    if workers <= 1:
        call(0, items)
        return
    step = -(-items // (4 * workers))
    turns, errors, running = count(), list[BaseException](), list[Event]()

    def work() -> None:
        try:
            while not errors and (begin := next(turns) * step) < items:
                call(begin, min(begin + step, items))
        except BaseException as error:
            errors.append(error)

    def work_beside(*_: Any) -> None:
        ended = Event()
        running.append(ended)  # before it takes a turn
        try:
            work()
        finally:
            ended.set()

    try:
        for _ in range(workers - 1):
            Thread(target=work_beside, args=used).start()
    except RuntimeError:  # the system gives no more threads
        pass
    except BaseException as error:  # an interrupt
        errors.append(error)
    work()
    while True:
        try:
            for ended in [*running]:  # they write to the result; those that only begin find no turns left, or an error
                ended.wait()
            break
        except BaseException as error:
            errors.append(error)
    if errors:
        raise errors[0]
