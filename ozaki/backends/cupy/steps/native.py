"""The native product: cuBLAS, where its settings leave it an IEEE product."""

from __future__ import annotations

import os
from itertools import product
from typing import NamedTuple

from ozaki.backends.cupy.program.arrays import Array
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.steps.copying import copy
from ozaki.backends.cupy.steps.gemm import FP32, FP64, gemms

_TYPES = {"float32": FP32, "float64": FP64}
_CHARS = {"float32": "f", "float64": "d"}


def native(b: Builder, x: Array, y: Array, dtype: str, out: Array) -> None:
    """out = x y, in `dtype`, of matrices or of stacks of them, whose batches are broadcast.

    The columns of out are neighbours in memory. Operands that cuBLAS cannot read as they lie are copied.

    CuPy's own way to cuBLAS takes as long again as cuBLAS, copies stacks that are transposed, and sums a single entry
    by kernels that flush float32 subnormals.
    """
    left, right = _readable(b, x, dtype), _readable(b, y, dtype)
    (m, k), n = x.shape[-2:], y.shape[-1]
    b.title = f"native product of ({m} x {k}) ({k} x {n}), {dtype}"
    ldc = max(n if m == 1 else out.strides[-2] // out.itemsize, n)
    arrays = left.array, right.array, out
    dims = _merged(out.shape[:-2], *(_steps(each, len(out.shape)) for each in arrays))
    one_right = dims and not left.turned and dims[-1].steps == (m * left.leading, 0, m * ldc)
    if one_right and m * dims[-1].size < _LONGEST:
        m *= dims.pop().size  # rows of one matrix
    inner = dims.pop() if dims and min(dims[-1].steps) >= 0 else _Dim(1, (0, 0, 0))
    for at in product(*(range(dim.size) for dim in dims)):
        steps = [sum(i * dim.steps[of] for i, dim in zip(at, dims, strict=True)) for of in range(3)]
        at_a, at_b, at_c = (each.at.plus(each.itemsize * step) for each, step in zip(arrays, steps, strict=True))
        gemms(
            b, _TYPES[dtype], (at_a, at_b, at_c), (m, n, k), (left.leading, right.leading, ldc), inner.size,
            inner.steps, (left.turned, right.turned),
        )  # fmt: skip
    b.release(*(of.array for of, given in ((left, x), (right, y)) if of.array.buffer is not given.buffer))


class _Dim(NamedTuple):
    """Of a batch: so many matrices, each so many entries of a, b and the result from the one before."""

    size: int
    steps: tuple[int, int, int]


def _steps(x: Array, ndim: int) -> list[int]:
    """Entries between the matrices of a stack, for each dimension of a batch; 0 where they are all the same."""
    steps = [0 if size == 1 else step // x.itemsize for size, step in zip(x.shape[:-2], x.strides, strict=False)]
    return [0] * (ndim - len(x.shape)) + steps


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


class _Readable(NamedTuple):
    """Matrices that cuBLAS can read: they, whether the last two axes are exchanged, and the leading dimension."""

    array: Array
    turned: bool
    leading: int


def _readable(b: Builder, x: Array, dtype: str) -> _Readable:
    """Matrices that cuBLAS can read, copies where it could not."""
    if abs(x.strides[-1]) > abs(x.strides[-2]):
        readable = _readable(b, x.swapped(), dtype)
        return readable._replace(turned=not readable.turned)
    rows, cols = x.shape[-2:]
    down, along = (step // x.itemsize for step in x.strides[-2:])
    if x.char == _CHARS[dtype] and (along == 1 or cols == 1) and (rows == 1 or cols <= down < _LONGEST):
        return _Readable(x, False, cols if rows == 1 else down)
    made = b.array(f"{x} copied", x.shape, _CHARS[dtype])
    given, taken = (of.with_axis(0) if len(x.shape) == 2 else of for of in (x, made))
    for at in product(*map(range, given.shape[:-3])):
        source, target = given, taken
        for i in at:
            source, target = source.entry(0, i), target.entry(0, i)
        copy(b, source, target)
    return _Readable(made, False, cols)


_LONGEST = 2**31
"""Sizes and leading dimensions that cuBLAS takes are below."""


def native_obstacle(dtype: str) -> str | None:
    """Why cuBLAS may emulate products of this dtype, in place of an IEEE product; None if it does not.

    Of TF32 nothing need be asked: `FP32` leaves it out, whatever mode the handle has.
    """
    import cupy as cp
    from cupy.cuda import cublas

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
