"""The native product on the device: cuBLAS, where its settings leave it an IEEE product."""

from __future__ import annotations

import os
from functools import lru_cache
from itertools import product
from math import ceil, prod
from typing import Any, NamedTuple

import cupy as cp
from cupy.cuda import cublas

from ozaki.backends.cupy.engines._cublas import FP32, FP64, gemms
from ozaki.backends.cupy.launching._launch import Launch, Macros, View

_TYPES = {"float32": FP32, "float64": FP64}


def native(a: Any, b: Any, dtype: str, out: Any) -> int:
    """The native product out = a b, in `dtype`, of matrices or of stacks, whose batches are broadcast.

    Returns the bytes of copies.

    CuPy's own way to cuBLAS takes as long again as cuBLAS, copies stacks that are transposed, and sums a single entry
    by kernels that flush float32 subnormals.
    """
    if not out.flags.c_contiguous:
        computed = cp.empty(out.shape, dtype)
        copied = native(a, b, dtype, computed)
        out[...] = computed
        return copied + int(computed.nbytes)
    (x, op_a, lda), (y, op_b, ldb) = (_readable(of, dtype) for of in (a, b))
    (m, k), n = a.shape[-2:], b.shape[-1]
    types, arrays = _TYPES[dtype], (x, y, out)
    dims = _merged(out.shape[:-2], *(_steps(each, out.ndim) for each in arrays))
    by_one_b = dims and op_a == cublas.CUBLAS_OP_N and dims[-1].steps == (m * lda, 0, m * n)
    if by_one_b and m * dims[-1].size < _LONGEST:
        m *= dims.pop().size  # rows of one matrix
    inner = dims.pop() if dims and min(dims[-1].steps) >= 0 else _Dim(1, (0, 0, 0))
    for at in product(*(range(dim.size) for dim in dims)):
        steps = (sum(i * dim.steps[of] for i, dim in zip(at, dims, strict=True)) for of in range(3))
        at_a, at_b, at_c = (each.data.ptr + types.size * step for each, step in zip(arrays, steps, strict=True))
        gemms(types, at_a, at_b, at_c, m, n, k, lda, ldb, inner.size, inner.steps, (op_b, op_a))
    return sum(int(of.nbytes) for of, given in ((x, a), (y, b)) if not cp.may_share_memory(of, given))


class _Dim(NamedTuple):
    """Of a batch: so many matrices, each so many entries of a, b and the result from the one before."""

    size: int
    steps: tuple[int, int, int]


def _steps(x: Any, ndim: int) -> list[int]:
    """Entries between the matrices of a stack, for each dimension of a batch; 0 where they are all the same."""
    steps = [0 if size == 1 else step // x.itemsize for size, step in zip(x.shape[:-2], x.strides, strict=False)]
    return [0] * (ndim - x.ndim) + steps


def _merged(sizes: tuple[int, ...], *steps: list[int]) -> list[_Dim]:
    """The dimensions of a batch, as few as there can be."""
    dims: list[_Dim] = []
    for size, a, b, c in zip(sizes, *steps, strict=True):
        if size == 1:
            continue
        before = dims[-1] if dims else None
        if before is not None and before.steps == (size * a, size * b, size * c):
            dims[-1] = _Dim(before.size * size, (a, b, c))
        else:
            dims.append(_Dim(size, (a, b, c)))
    return dims


def _readable(x: Any, dtype: str) -> tuple[Any, int, int]:
    """Matrices that cuBLAS can read, copies where it could not: they, what it does with them, the leading dimension."""
    if abs(x.strides[-1]) > abs(x.strides[-2]):
        turned, op, ld = _readable(x.swapaxes(-1, -2), dtype)
        return turned, _OTHER[op], ld
    rows, cols = x.shape[-2:]
    down, along = (step // x.itemsize for step in x.strides[-2:])
    if x.dtype == dtype and (along == 1 or cols == 1) and (rows == 1 or cols <= down < _LONGEST):
        return x, cublas.CUBLAS_OP_N, cols if rows == 1 else down
    copy = cp.empty(x.shape, dtype)
    stacks = (x[None], copy[None]) if x.ndim == 2 else (x, copy)
    for at in product(*map(range, stacks[0].shape[:-3])):
        given, taken = (stack[at] for stack in stacks)
        _copying(cp.cuda.runtime.getDevice(), View.of(given), View.of(taken))(given.data, taken.data)
    return copy, cublas.CUBLAS_OP_N, cols


_OTHER = {cublas.CUBLAS_OP_N: cublas.CUBLAS_OP_T, cublas.CUBLAS_OP_T: cublas.CUBLAS_OP_N}

_LONGEST = 2**31
"""Sizes and leading dimensions that cuBLAS takes are below."""


@lru_cache(maxsize=1024)
def _copying(device: int, x: View, out: View) -> Launch:
    macros: Macros = {"INPUT": x.ctype, "OUTPUT": out.ctype}
    entries = prod(x.shape)
    return Launch(
        "conversion/copy.cu",
        "copy",
        macros,
        (ceil(entries / 1024),),
        (256,),
        None,
        *x.steps,
        *x.shape[1:],
        None,
        entries,
    )


def native_obstacle(dtype: str) -> str | None:
    """Why cuBLAS may emulate products of this dtype, in place of an IEEE product; None if it does not.

    Of TF32 nothing need be asked: `FP32` leaves it out, whatever mode the handle has.
    """
    setting, bit = _EMULATION[dtype]
    if _is_set(setting) or setting in _SET_AT_FIRST:
        return f"native product ruled out: {setting} leaves its accuracy to cuBLAS"
    if cublas.getMathMode(cp.cuda.device.get_cublas_handle()) & bit:
        return (
            f"native product ruled out: CuPy's cuBLAS handle is in the math mode of emulated {dtype}, which leaves the "
            "accuracy to cuBLAS"
        )
    return None


def _is_set(setting: str) -> bool:
    return os.environ.get(setting, "0") != "0"


_EMULATION = {"float32": ("CUBLAS_EMULATE_SINGLE_PRECISION", 4), "float64": ("CUBLAS_EMULATE_DOUBLE_PRECISION", 8)}
"""By dtype: the environment variable that turns emulation on, and the bit of a handle's cublasMath_t that does."""

_SET_AT_FIRST = {setting for setting, _ in _EMULATION.values() if _is_set(setting)}
"""Variables that were set when this module was imported: cuBLAS reads them once, so that it is late to unset them."""
