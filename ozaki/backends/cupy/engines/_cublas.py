"""Slice products by cuBLAS int8: the engine for every GPU."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import cache, lru_cache, partial
from math import ceil
from typing import Any, NamedTuple

import cupy as cp
import numpy as np
from cupy.cuda import cublas

from ozaki.backends.cupy._recombine import recombine
from ozaki.backends.cupy._split import Layout, Slices, accumulator_moduli
from ozaki.backends.cupy.launching._launch import Launch, Macros, round_up
from ozaki.backends.cupy.launching._tape import Step
from ozaki.schemes import Digits, Residues, Scheme
from ozaki.schemes.residues import ACCUMULATOR_DEPTH

label = "cuBLAS int8"

_ACCUMULATORS = 2**30
"""Bytes of int32 accumulators that slice products of residues are gathered in before they are reduced."""

_BATCHED_BELOW = 2**22
"""Entries of a product from which cuBLAS is faster one product at a time (H200: 1471 against 1147 TOPS at 8192)."""


_MOST_BATCHED = 65535
"""Products of one call: the most that a grid has on its third axis."""


@lru_cache(maxsize=1024)
def layout(scheme: Scheme, side: str, batch: int, rows: int, k: int) -> Layout:
    """Residue slices one after the other; digit slices side by side along k, so that a diagonal is one product."""
    rows = round_up(rows, 16)
    if isinstance(scheme, Residues):
        k = round_up(k, 128)
        check_row(k)
        each = batch * rows * k
        return Layout(rows, k, rows * k, k, each, k, 0, scheme.count * each)
    slabs = max(-(-k // (scheme.depth() // 128 * 128)), 1)
    slab = round_up(-(-k // slabs), 128)
    row = scheme.count * slab * slabs
    check_row(row)
    return Layout(rows, slab * slabs, rows * row, row, slab, slab, scheme.count * slab, batch * rows * row)


def check_row(entries: int) -> None:
    """Rows are no longer than cuBLAS can be told."""
    if entries >= 2**31:
        raise ValueError(
            f"engine: cuBLAS reads rows of less than 2**31 entries, not {entries}; use scheme='residues', or add up "
            "products of parts of the inner dimension"
        )


def workspace(scheme: Scheme, batch: int, rows: int, cols: int, k: int) -> int:
    """Bytes held beside the slices, the same for each entry of a batch."""
    entries = rows * round_up(cols, 16)
    if isinstance(scheme, Residues):
        return entries * (4 * _group(scheme, entries) + scheme.count)
    return entries * scheme.count * (4 if k <= scheme.depth() // 128 * 128 else 12)


def _group(scheme: Residues, entries: int) -> int:
    """Moduli whose products are gathered before they are reduced."""
    return max(1, min(scheme.count, _ACCUMULATORS // max(4 * entries, 1)))


def multiply(scheme: Scheme, a: Slices, b: Slices, out: Any) -> int:
    """out = a b^T, shape (batch, m, n); returns the bytes of workspace."""
    return _residues(scheme, a, b, out) if isinstance(scheme, Residues) else _digits(scheme, a, b, out)


def _residues(scheme: Residues, a: Slices, b: Slices, out: Any) -> int:
    """Residue products, reduced to bytes plane by plane, then the Chinese remainders."""
    batch, m, n = out.shape
    ld = round_up(n, 16)
    group = _group(scheme, m * ld)
    accumulators = cp.empty((group, m, ld), np.int32)
    planes = cp.empty((scheme.count, m, ld), np.uint8)
    la, lb = a.layout, b.layout
    for i in range(batch):
        at_a, at_b = a.of_batch(i), b.of_batch(i)
        for t in range(0, scheme.count, group):
            count = min(group, scheme.count - t)
            for h in range(0, la.k, ACCUMULATOR_DEPTH):
                depth = min(ACCUMULATOR_DEPTH, la.k - h)
                gemms(
                    INT8, at_a + t * la.slice + h, at_b + t * lb.slice + h, accumulators.data.ptr, m, ld, depth,
                    la.row_bytes, lb.row_bytes, count, (la.slice, lb.slice, m * ld),
                )  # fmt: skip
                reduce = _reducing(cp.cuda.runtime.getDevice(), scheme, m * ld, t, count, h > 0)
                reduce(accumulators.data, planes.data)
        recombine(scheme, planes[:, None], a.exponents(i), b.exponents(i), out[i : i + 1])
    return int(accumulators.nbytes + planes.nbytes)


@lru_cache(maxsize=1024)
def _reducing(device: int, scheme: Residues, entries: int, first: int, count: int, add: bool) -> Launch:
    moduli = accumulator_moduli(scheme, unsigned=False)
    grid = (ceil(entries / 4096), count)
    return Launch("conversion/reduce.cu", "reduce", {}, grid, (256,), None, None, entries, first, int(add), moduli)


def _digits(scheme: Digits, a: Slices, b: Slices, out: Any) -> int:
    """Diagonals of digit products, in int32, or int64 where k is cut into slabs; then their sum."""
    batch, m, n = out.shape
    p, ld = scheme.count, round_up(n, 16)
    la, lb = a.layout, b.layout
    slabs = la.k // la.slab
    diagonals = cp.empty((p, m, ld), np.int32)
    sums = cp.empty((p, m, ld), np.int64) if slabs > 1 else diagonals
    for i in range(batch):
        at_a, at_b = a.of_batch(i), b.of_batch(i)
        for g in range(slabs):
            for pairs in range(1, p + 1):  # left slices 1 .. pairs with the reversed right slices pairs .. 1
                gemm(
                    INT8, at_a + g * la.slab_stride, at_b + g * lb.slab_stride + (p - pairs) * lb.slice,
                    diagonals[pairs - 1].data.ptr, m, ld, pairs * la.slab, la.row_bytes, lb.row_bytes,
                )  # fmt: skip
            if slabs > 1:
                collect(diagonals, sums, g > 0)
        recombine(scheme, sums[:, None], a.exponents(i), b.exponents(i), out[i : i + 1])
    return int(diagonals.nbytes + (sums.nbytes if slabs > 1 else 0))


def collect(products: Any, sums: Any, add: bool) -> None:
    """sums = products, or with `add` sums + products; as many entries of other dtypes."""
    dtypes = products.dtype.name, sums.dtype.name
    _collecting(cp.cuda.runtime.getDevice(), *dtypes, products.size, add)(products.data, sums.data)


@lru_cache(maxsize=1024)
def _collecting(device: int, products: str, sums: str, count: int, add: bool) -> Launch:
    macros: Macros = {"PRODUCT": _C_NAMES[products], "SUM": _C_NAMES[sums]}
    return Launch(
        "conversion/collect.cu", "collect", macros, (ceil(count / 1024),), (256,), None, None, count, int(add)
    )


_C_NAMES = {"float32": "float", "int32": "int32_t", "int64": "int64_t"}


class Types(NamedTuple):
    """What cuBLAS multiplies, adds and returns, by the numbers of cudaDataType_t and cublasComputeType_t."""

    operands: int
    products: int
    compute: int
    size: int  # bytes of an operand's entry
    dtype: str  # of a product, and of the factors of the sum

    @property
    def factors(self) -> tuple[int, int]:
        """Addresses of one and zero."""
        return _factor(self.dtype, 1).ctypes.data, _factor(self.dtype, 0).ctypes.data


@cache
def _factor(dtype: str, value: int) -> Any:
    return np.full(1, value, dtype)


INT8 = Types(3, 10, 72, 1, "int32")
"""CUDA_R_8I, CUDA_R_32I, CUBLAS_COMPUTE_32I."""

FP16 = Types(2, 0, 68, 2, "float32")
"""CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F."""

FP64 = Types(1, 1, 70, 8, "float64")
"""CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F."""

FP32 = Types(0, 0, 69, 4, "float32")
"""CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_PEDANTIC: never by TF32, whatever mode or variable asks for that.

On an H100 it takes as long as CUBLAS_COMPUTE_32F and gives the same bits; that of float64 takes a third longer.
"""

ROWS = cublas.CUBLAS_OP_T, cublas.CUBLAS_OP_N
"""What cuBLAS does with B and A where inner indices are neighbours in both: it is column-major, and C^T = B A^T."""


class _At(NamedTuple):
    """An address."""

    ptr: int


class _Stream(NamedTuple):
    """The stream of an address, by the protocol of CUDA's streams."""

    ptr: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.ptr


class _Call(Step):
    """A function of the handle of cuBLAS and the addresses of A, B and C."""

    def __init__(self, function: Callable[[int, int, int, int], object]) -> None:
        self.places, self.words = [0, 1, 2], [0, 0, 0]
        words = self.words

        def start(stream: int) -> None:
            # CuPy runs cuBLAS on its current stream, whatever the handle has: another one when a tape is done again.
            others = stream != cp.cuda.get_current_stream().ptr
            with cp.cuda.Stream.from_external(_Stream(stream)) if others else nullcontext():
                function(cp.cuda.device.get_cublas_handle(), *words)

        self.start = start


def gemm(
    types: Types, a: int, b: int, c: int, m: int, n: int, k: int, lda: int, ldb: int, ops: tuple[int, int] = ROWS
) -> None:
    """C = A B^T, rows lda, ldb and n entries apart, or by other operations columns of A or B."""
    one, zero = types.factors

    def run(handle: int, a: int, b: int, c: int) -> None:
        cublas.gemmEx(
            handle, *ops, n, m, k, one, b, types.operands, ldb, a, types.operands, lda, zero, c, types.products, n,
            types.compute, _DEFAULT,
        )  # fmt: skip

    _Call(run)(_At(a), _At(b), _At(c))


def gemms(
    types: Types, a: int, b: int, c: int, m: int, n: int, k: int, lda: int, ldb: int, count: int,
    steps: tuple[int, int, int], ops: tuple[int, int] = ROWS,
) -> None:  # fmt: skip
    """`count` such products, so many entries of A, B and C apart; all of the same A or B where that is 0."""
    step_a, step_b, step_c = steps
    size, size_c = types.size, np.dtype(types.dtype).itemsize
    if count == 1 or m * n >= _BATCHED_BELOW:
        for i in range(count):
            at = a + i * step_a * size, b + i * step_b * size, c + i * step_c * size_c
            gemm(types, *at, m, n, k, lda, ldb, ops)
        return
    one, zero = types.factors

    def run(handle: int, a: int, b: int, c: int, count: int) -> None:
        cublas.gemmStridedBatchedEx(
            handle, *ops, n, m, k, one, b, types.operands, ldb, step_b, a, types.operands, lda, step_a, zero, c,
            types.products, n, step_c, count, types.compute, _DEFAULT,
        )  # fmt: skip

    for first in range(0, count, _MOST_BATCHED):
        some = partial(run, count=min(_MOST_BATCHED, count - first))
        to_this = (a, step_a * size), (b, step_b * size), (c, step_c * size_c)
        _Call(some)(*[_At(at + first * step) for at, step in to_this])


_DEFAULT = -1  # CUBLAS_GEMM_DEFAULT
