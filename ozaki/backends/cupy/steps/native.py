"""The native product, by cuBLAS, and the settings under which that is no IEEE product."""

from __future__ import annotations

import os
from itertools import product
from typing import NamedTuple

from ozaki.backends.cupy.program.arrays import Array
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.steps.copying import copy
from ozaki.backends.cupy.steps.gemm import COMPLEX64, COMPLEX128, FP32, FP64, gemms

_TYPES = {"float32": FP32, "float64": FP64, "complex64": COMPLEX64, "complex128": COMPLEX128}
_CHARS = {dtype: types.product_char for dtype, types in _TYPES.items()}


def native(b: Builder, x: Array, y: Array, dtype: str, out: Array) -> None:
    """Add the steps of out = x y, in `dtype`, for matrices or stacks of them, whose batches are broadcast.

    The rows of out must be contiguous, and complex operands have its dtype. Operands that cuBLAS cannot read as they
    lie in memory are copied.

    CuPy's own products through cuBLAS are not used: they take as long again as cuBLAS, copy stacks that are transposed,
    and sum a single entry by kernels that flush float32 subnormals.
    """
    left, right = _readable(b, x, dtype), _readable(b, y, dtype)
    (m, k), n = x.shape[-2:], y.shape[-1]
    b.title = f"native product of ({m} x {k}) ({k} x {n}), {dtype}"
    ldc = max(n if m == 1 else out.steps[-2], n)
    arrays = left.array, right.array, out
    dims = _merged(out.shape[:-2], *(_steps(each, len(out.shape)) for each in arrays))
    shared_right = dims and not left.transposed and dims[-1].steps == (m * left.leading, 0, m * ldc)
    if shared_right and m * dims[-1].size < _LONGEST:
        m *= dims.pop().size  # all matrices on the left times one on the right: the rows of a single larger matrix
    inner = dims.pop() if dims and min(dims[-1].steps) >= 0 else _Dim(1, (0, 0, 0))
    for at in product(*(range(dim.size) for dim in dims)):
        steps = [sum(i * dim.steps[of] for i, dim in zip(at, dims, strict=True)) for of in range(3)]
        at_a, at_b, at_c = (each.at.plus(each.dtype.itemsize * step) for each, step in zip(arrays, steps, strict=True))
        gemms(
            b, _TYPES[dtype], (at_a, at_b, at_c), (m, n, k), (left.leading, right.leading, ldc), inner.size,
            inner.steps, (left.transposed, right.transposed),
        )  # fmt: skip
    b.release(*(of.array for of, given in ((left, x), (right, y)) if of.array.buffer is not given.buffer))


class _Dim(NamedTuple):
    """A dimension of a batch: its length, and the entries from one matrix of A, B and C to the next."""

    size: int
    steps: tuple[int, int, int]


def _steps(x: Array, ndim: int) -> list[int]:
    """Entries from one matrix of a stack to the next, for each dimension of a batch; 0 where x is broadcast."""
    steps = [0 if size == 1 else step for size, step in zip(x.shape[:-2], x.steps, strict=False)]
    return [0] * (ndim - len(x.shape)) + steps


def _merged(sizes: tuple[int, ...], *steps: list[int]) -> list[_Dim]:
    """The dimensions of a batch, merged where one step leads through both; `steps` as `_steps` returns them."""
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
    """Matrices that cuBLAS can read.

    Attributes
    ----------
    array : the matrices
    transposed : whether their rows and columns are exchanged with respect to the operand
    leading : leading dimension: entries from one row to the next
    """

    array: Array
    transposed: bool
    leading: int


def _readable(b: Builder, x: Array, dtype: str) -> _Readable:
    """The matrices of x if cuBLAS can read them as they lie in memory, else a contiguous copy in `dtype`."""
    if abs(x.steps[-1]) > abs(x.steps[-2]):
        readable = _readable(b, x.swapped(), dtype)
        return readable._replace(transposed=not readable.transposed)
    rows, cols = x.shape[-2:]
    down, along = x.steps[-2:]
    if x.dtype.char == _CHARS[dtype] and (along == 1 or cols == 1) and (rows == 1 or cols <= down < _LONGEST):
        return _Readable(x, False, cols if rows == 1 else down)
    made = b.array(f"{x.buffer.name} copied", x.shape, _CHARS[dtype])
    given, taken = (of.with_axis(0) if len(x.shape) == 2 else of for of in (x, made))
    for at in product(*map(range, given.shape[:-3])):
        source, target = given, taken
        for i in at:
            source, target = source.at_index(0, i), target.at_index(0, i)
        copy(b, source, target)
    return _Readable(made, False, cols)


_LONGEST = 2**31
"""Sizes and leading dimensions of cuBLAS are less than this."""


def native_obstacle(dtype: str) -> str | None:
    """Why cuBLAS may emulate products of this dtype, in place of an IEEE product; None if it does not.

    TF32 is no obstacle: the products of `gemm.FP32` never use it, whatever mode the handle has.
    """
    import cupy as cp
    from cupy.cuda import cublas

    setting, bit = _EMULATION[dtype]
    if _is_set(setting) or setting in _SET_AT_IMPORT:
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
"""The environment variable and the bit of a handle's cublasMath_t that turn emulation on, by dtype."""

_SET_AT_IMPORT = {setting for setting, _ in _EMULATION.values() if _is_set(setting)}
"""Variables that were set when this module was imported: cuBLAS reads them once, so that it is late to unset them."""
