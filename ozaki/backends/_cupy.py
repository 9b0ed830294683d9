"""CuPy: own kernels for describing, splitting, reducing and recombining; slice products by cuBLAS int8.

Everything runs on the current device and stream, in memory of CuPy's pool; only what plans from data waits for the
device.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from math import ceil, prod
from typing import Any

import cupy as cp
import numpy as np
from cupy.cuda import cublas

from ozaki._bounds import dropped
from ozaki._description import FIELDS, Described
from ozaki._plan import Plan
from ozaki._proof import EVERY, SAMPLE, wide_bits
from ozaki.backends import _numpy
from ozaki.backends._jit import kernel
from ozaki.schemes import Digits, Residues, Scheme, magnitude_bits
from ozaki.schemes.residues import ACCUMULATOR_DEPTH, remainders

name = "cupy"
engines = ("cublas",)

_ACCUMULATORS = 2**30
"""Bytes of int32 accumulators that slice products of residues are gathered in before they are reduced."""

_BATCHED_BELOW = 2**22
"""Entries of a product from which cuBLAS is faster one product at a time (H200: 1471 against 1147 TOPS at 8192)."""

_FILLING_ROWS = 1024
"""From this many rows on, a block for each row fills the device when describing."""


# Arrays -------------------------------------------------------------------------------------------------------------


def owns(x: Any) -> bool:
    return isinstance(x, cp.ndarray)


def asarray(x: Any) -> Any:
    return x if isinstance(x, cp.ndarray) else cp.asarray(x)


def empty(shape: tuple[int, ...], dtype: str) -> Any:
    return cp.empty(shape, dtype)


def contiguous(x: Any) -> bool:
    return bool(x.flags.c_contiguous)


def overlap(x: Any, y: Any) -> bool:
    return bool(cp.may_share_memory(x, y))


def check_device(operands: tuple[tuple[str, Any], ...]) -> None:
    """All operands lie on the current device."""
    current = cp.cuda.runtime.getDevice()
    for label, x in operands:
        array = x.slices.described.x if hasattr(x, "slices") else x
        if array.device.id != current:
            raise ValueError(
                f"{label}: lies on device {array.device.id}, the current device is {current}; "
                f"move it, or enter cupy.cuda.Device({array.device.id})"
            )


def _strides(x: Any) -> tuple[np.int64, ...]:
    return tuple(np.int64(s // x.itemsize) for s in x.strides)


def _ctype(dtype: Any) -> str:
    return "double" if dtype == np.float64 else "float"


def _along_k(x: Any) -> int:
    """Whether elements along k lie closer together than rows do."""
    return int(x.shape[1] == 1 or abs(x.strides[2]) <= abs(x.strides[1]))


def _round_up(x: int, multiple: int) -> int:
    return -(-x // multiple) * multiple


# Describing ---------------------------------------------------------------------------------------------------------


def describe(x: Any) -> Described:
    """The description of the rows of x, shape (batch, rows, k)."""
    batch, rows, k = x.shape
    fields = cp.empty((len(FIELDS), batch, rows), np.int64)
    macros = {"INPUT": _ctype(x.dtype), "ALONG_K": _along_k(x)}
    width = np.int32(magnitude_bits(k))
    sizes = np.int64(batch), np.int64(rows), np.int64(k)
    if macros["ALONG_K"] and batch * rows >= _FILLING_ROWS:
        call = kernel("describe.cu", "describe_rows", **macros)
        call((batch * rows,), (256,), (x, *_strides(x), *sizes, width, fields))
        return Described(x, fields)
    groups = -(-rows // (8 if macros["ALONG_K"] else 32))
    wanted = max(1, 2112 // max(batch * groups, 1))  # 16 blocks for each of 132 multiprocessors
    segment = max(_round_up(-(-k // wanted), 32), 256)
    segments = -(-k // segment)
    pieces = np.int64(segment), np.uint32(segments)
    each = (ceil(batch * rows / 256),)
    grid = (batch * groups * segments,)
    view = (x, *_strides(x), *sizes, *pieces)
    kernel("describe.cu", "describe_init", **macros)(each, (256,), (fields, np.int64(batch * rows)))
    kernel("describe.cu", "describe_top", **macros)(grid, (256,), (*view, fields))
    kernel("describe.cu", "describe_sums", **macros)(grid, (256,), (*view, width, fields))
    kernel("describe.cu", "describe_finish", **macros)(each, (256,), (fields, np.int64(batch * rows), width))
    return Described(x, fields)


# The lower bound of abs(A) abs(B) -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _NarrowProduct:
    """Exact int32 products of 7-bit magnitudes, [batch][m][ld], of which n columns count."""

    values: Any
    n: int


def narrow_product(left: Described, right: Described, sampled: bool) -> _NarrowProduct:
    """Exact products of 7-bit magnitudes (2**14 k < 2**31 is split like any other k)."""
    k = left.k
    kept = (k // EVERY) * SAMPLE + min(k % EVERY, SAMPLE) if sampled else k
    a, b = (_magnitudes(x, kept, sampled) for x in (left, right))
    batch, m, n = max(a.shape[0], b.shape[0]), left.x.shape[1], right.x.shape[1]
    out = cp.empty((batch, m, b.shape[1]), np.int32)
    if a.shape[2] > ACCUMULATOR_DEPTH:  # saturate: a sum over part of k bounds from below as well
        a, b = a[:, :, :ACCUMULATOR_DEPTH], b[:, :, :ACCUMULATOR_DEPTH]
    for i in range(batch):
        _int8_gemm(a[min(i, a.shape[0] - 1)], b[min(i, b.shape[0] - 1)], out[i], m)
    return _NarrowProduct(out, n)


def _magnitudes(operand: Described, kept: int, sampled: bool) -> Any:
    x = operand.x
    batch, rows, k = x.shape
    padded = _round_up(rows, 16), _round_up(kept, 128)
    out = cp.empty((batch, *padded), np.int8)
    call = kernel("proof.cu", "magnitudes", INPUT=_ctype(x.dtype), ALONG_K=_along_k(x))
    grid = (batch * ceil(padded[0] / 32) * ceil(padded[1] / 128),)
    sizes = (np.int64(rows), np.int64(k), np.int64(padded[0]), np.int64(padded[1]))
    call(grid, (256,), (x, *_strides(x), *sizes, operand.fields, np.int32(sampled), out))
    return out


def wide_product(left: Described, right: Described) -> Any:
    """Exact products of wider magnitudes."""
    bits = wide_bits(left.k)
    a, b = (_wide_magnitudes(x, bits) for x in (left, right))
    return cp.matmul(a, b.swapaxes(1, 2))


def _wide_magnitudes(operand: Described, bits: int) -> Any:
    values = cp.where(cp.isfinite(operand.x), cp.abs(_as_float64(operand.x)), 0.0)
    shift = cp.maximum(bits - operand.fields[0], -2000)[..., None].astype(np.int32)
    return cp.floor(cp.ldexp(values, shift))


def _as_float64(x: Any) -> Any:
    """x as float64 through its bits: CuPy's own cast flushes float32 subnormals."""
    if x.dtype == np.float64:
        return x
    bits = cp.ascontiguousarray(x).view(np.int32)
    field = (bits >> 23) & 255
    mantissa = (bits & 0x7FFFFF) + cp.where(field > 0, 1 << 23, 0)
    magnitude = cp.ldexp(mantissa.astype(np.float64), (cp.maximum(field, 1) - 150).astype(np.int32))
    return cp.where(bits < 0, -magnitude, magnitude)


def worst_ratio(
    lower: Any, left: Described, right: Described, scheme: Scheme, spans: tuple[int, int]
) -> tuple[float, int]:
    """Largest image error / lower over lower > 0; number of positive errors over lower == 0."""
    if not isinstance(lower, _NarrowProduct):
        return _numpy.worst_ratio(lower.get(), left, right, scheme, spans)
    p, q = (_error_terms(x, scheme, spans, is_left) for x, is_left in ((left, 1), (right, 0)))
    (batch_a, m, _), (batch_b, n, _) = left.x.shape, right.x.shape
    result = cp.zeros(2, np.uint64)
    call = kernel("proof.cu", "worst_ratio")
    for i in range(lower.values.shape[0]):
        at_p, at_q = p[0, min(i, batch_a - 1)], q[0, min(i, batch_b - 1)]
        call(
            (ceil(m / 64), ceil(n / 32)),
            (32, 8),
            (lower.values[i], np.int64(lower.values.shape[2]), at_p, np.int64(batch_a * m), at_q,
             np.int64(batch_b * n), np.int64(m), np.int64(n), result),
        )  # fmt: skip
    bits, missing = result.get()
    return float(bits.view(np.float64)), int(missing)


def _error_terms(operand: Described, scheme: Scheme, spans: tuple[int, int], is_left: int) -> Any:
    """The terms of one side, as `ozaki._bounds.error_terms` has them, float64 [3][batch][rows]."""
    batch, rows, k = operand.x.shape
    scaling = scheme.scaling(k)
    assert scaling is not None
    terms = cp.empty((3, batch, rows))
    kernel("proof.cu", "error_terms")(
        (ceil(batch * rows / 256),),
        (256,),
        (operand.fields, np.int64(batch * rows), np.int32(magnitude_bits(k)),
         np.int32(FIELDS.index(scaling.statistic)), np.int32(scaling.step), np.int32(scaling.base),
         np.int64(scaling.threshold), np.float64(k), np.float64(dropped(scheme, k, spans)), np.int32(is_left), terms),
    )  # fmt: skip
    return terms


def worst_ratio_by_exponents(
    lower: Any, left: Described, right: Described, scheme: Scheme, spans: tuple[int, int]
) -> float:
    """Worst ratio over the entries with lower == 0: rare, so on the host."""
    on_host = [Described(x.x.get(), x.fields.get()) for x in (left, right)]
    return _numpy.worst_ratio_by_exponents(lower.get(), on_host[0], on_host[1], scheme, spans)


# Splitting ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Layout:
    """Where slice s of element (b, row, h) lies, in bytes from the start.

    b * batch + row * row_bytes + s * slice + (h // slab) * slab_stride + h % slab.
    """

    rows: int
    k: int
    batch: int
    row_bytes: int
    slice: int
    slab: int
    slab_stride: int
    size: int


@cache
def _layout(scheme: Scheme, batch: int, rows: int, k: int) -> _Layout:
    rows = _round_up(rows, 16)
    if isinstance(scheme, Residues):
        k = _round_up(k, 128)
        each = batch * rows * k
        return _Layout(rows, k, rows * k, k, each, k, 0, scheme.count * each)
    # Digits stand beside one another along k, slab by slab, so that a diagonal is one product.
    slabs = -(-k // (scheme.depth() // 128 * 128))
    slab = _round_up(-(-k // slabs), 128)
    row = scheme.count * slab * slabs
    return _Layout(rows, slab * slabs, rows * row, row, slab, slab, scheme.count * slab, batch * rows * row)


@dataclass(frozen=True)
class Slices:
    """One operand, split.

    Attributes
    ----------
    described : Described
    parts : int8 array, in the order of `layout`
    layout : _Layout
    mu : int32 array, shape (batch, rows), the image exponents
    """

    described: Described
    parts: Any
    layout: _Layout
    mu: Any


def split(operand: Described, side: str, plan: Plan) -> Slices:
    """The slices of a whole operand."""
    assert plan.scheme is not None
    scheme, x = plan.scheme, operand.x
    batch, rows, k = x.shape
    scaling = scheme.scaling(k)
    if scaling is None:
        raise ValueError(f"slices: {scheme.count} {scheme.name} are too few for k = {k}")
    layout = _layout(scheme, batch, rows, k)
    parts, mu = cp.empty(layout.size, np.int8), cp.empty((batch, rows), np.int32)
    residues = isinstance(scheme, Residues)
    call = kernel(
        "split.cu",
        "split",
        INPUT=_ctype(x.dtype),
        SLICES=scheme.count,
        WORDS=_image_words(scheme),
        DIGIT_BITS=0 if residues else scheme.bits,  # type: ignore[union-attr]
        ALONG_K=_along_k(x),
        REVERSED=int(not residues and side == "right"),
    )
    grid = (batch * ceil(layout.rows / 32) * ceil(layout.k / 128),)
    arguments = [
        x, *_strides(x), np.int64(rows), np.int64(k), np.int64(layout.rows), np.int64(layout.k),
        operand.fields, np.int64(batch * rows), np.int32(FIELDS.index(scaling.statistic)), np.int32(scaling.step),
        np.int32(scaling.base), np.int64(scaling.threshold), mu, parts, np.int64(layout.batch),
        np.int64(layout.row_bytes), np.int64(layout.slice), np.int64(layout.slab), np.int64(layout.slab_stride),
    ]  # fmt: skip
    if residues:
        arguments.append(_residue_constants(scheme, side))
    call(grid, (256,), tuple(arguments))
    return Slices(operand, parts, layout, mu)


def _image_words(scheme: Scheme) -> int:
    """32-bit words that hold an image with its sign."""
    if isinstance(scheme, Digits):
        return -(-scheme.bits * scheme.count // 32)
    return -(-(scheme.range.bit_length() // 2 + 2) // 32)


@cache
def _residue_constants(scheme: Residues, side: str) -> Any:
    """The struct ResidueConstants of kernels/residues.cuh."""
    moduli, words = scheme.moduli, _image_words(scheme)
    factors = remainders(moduli).inverses if side == "left" else (1,) * len(moduli)
    fold = [
        sum(f * pow(2, 8 * (4 * w + j), m) % m << (8 * j) for j in range(4))
        for f, m in zip(factors, moduli, strict=True)
        for w in range(words)
    ]
    bias = [-f * 2 ** (32 * words - 1) % m for f, m in zip(factors, moduli, strict=True)]
    return _struct([*fold, *bias, *_reciprocals(moduli), *moduli])


def _reciprocals(moduli: tuple[int, ...]) -> list[int]:
    return [-(-(2**32) // m) for m in moduli]


@cache
def _moduli(scheme: Residues) -> Any:
    """The struct Moduli of kernels/residues.cuh."""
    rest = [0] * (64 - scheme.count)
    return _struct([*scheme.moduli, *rest, *_reciprocals(scheme.moduli), *rest])


def _struct(words: list[int]) -> Any:
    """A struct of uint32 that a kernel takes by value: CuPy passes an array of one element so."""
    return np.array(words, np.uint32).view(f"V{4 * len(words)}")


# Multiplying and recombining ----------------------------------------------------------------------------------------


def _int8_gemm(a: Any, b: Any, out: Any, m: int) -> None:
    """out[:m] = a[:m] b^T for int8 a (rows, k), b (cols, k) and int32 out (m, cols), all row-major with k contiguous."""
    _gemm(a.data.ptr, b.data.ptr, out.data.ptr, m, b.shape[0], a.shape[1], a.strides[0], b.strides[0], 1, 0, 0, 0)


def _gemm(
    a: int, b: int, c: int, m: int, n: int, k: int, lda: int, ldb: int, count: int, step_a: int, step_b: int, step_c: int
) -> None:
    """`count` products of int8 slices into int32, C = A B^T; cuBLAS is column-major, so C^T = B A^T."""
    handle = cp.cuda.device.get_cublas_handle()
    cublas.setStream(handle, cp.cuda.get_current_stream().ptr)
    if count > 1 and m * n < _BATCHED_BELOW:
        cublas.gemmStridedBatchedEx(
            handle, cublas.CUBLAS_OP_T, cublas.CUBLAS_OP_N, n, m, k, _ONE.ctypes.data, b, _INT8, ldb, step_b,
            a, _INT8, lda, step_a, _ZERO.ctypes.data, c, _INT32, n, step_c, count, _COMPUTE_INT32, _DEFAULT,
        )  # fmt: skip
        return
    for i in range(count):
        cublas.gemmEx(
            handle, cublas.CUBLAS_OP_T, cublas.CUBLAS_OP_N, n, m, k, _ONE.ctypes.data, b + i * step_b, _INT8, ldb,
            a + i * step_a, _INT8, lda, _ZERO.ctypes.data, c + 4 * i * step_c, _INT32, n, _COMPUTE_INT32, _DEFAULT,
        )  # fmt: skip


_ONE, _ZERO = np.ones(1, np.int32), np.zeros(1, np.int32)
_INT8, _INT32 = 3, 10  # CUDA_R_8I, CUDA_R_32I
_COMPUTE_INT32 = 72  # CUBLAS_COMPUTE_32I
_DEFAULT = -1  # CUBLAS_GEMM_DEFAULT


def execute(plan: Plan, left: Described | Slices, right: Described | Slices, out: Any) -> int:
    """Compute out, shape (batch, m, n); returns the bytes of workspace."""
    assert plan.scheme is not None
    batch, m, n = out.shape
    rows, cols = _panel(plan, batch, m, n)
    used = 0
    for c in range(0, n, cols):
        b = _take(right, "right", plan, c, min(c + cols, n))
        for r in range(0, m, rows):
            a = _take(left, "left", plan, r, min(r + rows, m))
            panel = out[:, r : r + rows, c : c + cols]
            run = _residues if isinstance(plan.scheme, Residues) else _digits
            used = max(used, a.parts.nbytes + b.parts.nbytes + run(plan.scheme, a, b, panel))
    _patch(left, right, out)
    return used


def _take(operand: Described | Slices, side: str, plan: Plan, first: int, last: int) -> Slices:
    """The slices of some rows."""
    if isinstance(operand, Slices):
        if (first, last) == (0, operand.mu.shape[1]):
            return operand
        return _rows_of(operand, first, last)
    if (first, last) == (0, operand.x.shape[1]):
        return split(operand, side, plan)
    fields = cp.ascontiguousarray(operand.fields[:, :, first:last])
    return split(Described(operand.x[:, first:last], fields), side, plan)


def _rows_of(operand: Slices, first: int, last: int) -> Slices:
    """A view of some rows; panels begin at multiples of 16, so what follows them are rows or padding."""
    layout = operand.layout
    described = Described(operand.described.x[:, first:last], operand.described.fields[:, :, first:last])
    mu = cp.ascontiguousarray(operand.mu[:, first:last])
    return Slices(described, operand.parts[first * layout.row_bytes :], layout, mu)


def _at(b: int, of: Slices) -> int:
    """The batch index into an operand: the same, or the only one."""
    return b if of.mu.shape[0] > 1 else 0


def _residues(scheme: Residues, a: Slices, b: Slices, out: Any) -> int:
    """Residue products, reduced to bytes plane by plane, then the Chinese remainders."""
    batch, m, n = out.shape
    ld = _round_up(n, 16)
    group = max(1, min(scheme.count, _ACCUMULATORS // (4 * m * ld)))
    accumulators = cp.empty((group, m, ld), np.int32)
    planes = cp.empty((scheme.count, m, ld), np.uint8)
    reduce = kernel("reduce.cu", "reduce")
    la, lb = a.layout, b.layout
    for i in range(batch):
        at_a = a.parts.data.ptr + _at(i, a) * la.batch
        at_b = b.parts.data.ptr + _at(i, b) * lb.batch
        for t in range(0, scheme.count, group):
            count = min(group, scheme.count - t)
            for h in range(0, la.k, ACCUMULATOR_DEPTH):
                depth = min(ACCUMULATOR_DEPTH, la.k - h)
                _gemm(
                    at_a + t * la.slice + h, at_b + t * lb.slice + h, accumulators.data.ptr, m, ld, depth,
                    la.row_bytes, lb.row_bytes, count, la.slice, lb.slice, m * ld,
                )  # fmt: skip
                reduce(
                    (ceil(m / 8), ceil(ld / 512), count),
                    (32, 8),
                    (accumulators, np.int64(m * ld), np.int64(ld), planes, np.int64(m * ld), np.int64(ld),
                     np.int64(m), np.int64(ld), np.int32(t), np.int32(h > 0), _moduli(scheme)),
                )  # fmt: skip
        _recombine(scheme, planes, 0, a.mu[_at(i, a)], b.mu[_at(i, b)], out[i], _crt_constants(scheme))
    return int(accumulators.nbytes + planes.nbytes)


def _digits(scheme: Digits, a: Slices, b: Slices, out: Any) -> int:
    """Diagonals of digit products, in int32, or int64 where k is cut into slabs; then their sum."""
    batch, m, n = out.shape
    p, ld = scheme.count, _round_up(n, 16)
    la, lb = a.layout, b.layout
    slabs = la.k // la.slab
    diagonals = cp.empty((p, m, ld), np.int32)
    sums = cp.empty((p, m, ld), np.int64) if slabs > 1 else diagonals
    for i in range(batch):
        at_a = a.parts.data.ptr + _at(i, a) * la.batch
        at_b = b.parts.data.ptr + _at(i, b) * lb.batch
        for g in range(slabs):
            for pairs in range(1, p + 1):  # left slices 1 .. pairs with the reversed right slices pairs .. 1
                _gemm(
                    at_a + g * la.slab_stride, at_b + g * lb.slab_stride + (p - pairs) * lb.slice,
                    diagonals[pairs - 1].data.ptr, m, ld, pairs * la.slab, la.row_bytes, lb.row_bytes, 1, 0, 0, 0,
                )  # fmt: skip
            if slabs > 1:
                count = diagonals.size
                widen = kernel("reduce.cu", "widen")
                widen((ceil(count / 1024),), (256,), (diagonals, sums, np.int64(count), np.int32(g > 0)))
        _recombine(scheme, sums, int(slabs > 1), a.mu[_at(i, a)], b.mu[_at(i, b)], out[i], None)
    return int(diagonals.nbytes + (sums.nbytes if slabs > 1 else 0))


def _recombine(scheme: Scheme, planes: Any, wide: int, mu: Any, nu: Any, out: Any, constants: Any) -> None:
    """The exact integers, rounded once into out, shape (m, n)."""
    m, n = out.shape
    residues = isinstance(scheme, Residues)
    call = kernel(
        "recombine.cu",
        "recombine",
        OUTPUT=_ctype(out.dtype),
        SLICES=scheme.count,
        DIGIT_BITS=0 if residues else scheme.bits,  # type: ignore[union-attr]
        WORDS=_product_words(scheme),
        SUM64=wide,
    )
    ld = planes.shape[2]
    stride_row, stride_col = _strides(out)
    arguments = (planes, np.int64(prod(planes.shape[1:])), np.int64(ld), mu, nu, out, stride_row, stride_col,
                 np.int64(m), np.int64(n))  # fmt: skip
    call((ceil(m / 8), ceil(n / 128)), (32, 8), arguments if constants is None else (*arguments, constants))


def _product_words(scheme: Scheme) -> int:
    """32-bit words that hold an entry of the product with its sign; for digits, whatever k < 2**40."""
    if isinstance(scheme, Digits):
        return -(-(scheme.bits * (scheme.count + 1) + 41) // 32)
    return -(-prod(scheme.moduli).bit_length() // 32)


@cache
def _crt_constants(scheme: Residues) -> Any:
    """The struct CrtConstants of kernels/crt.cuh: moduli in groups of three, the last ones of two."""
    moduli, words = scheme.moduli, _product_words(scheme)
    count = len(moduli)
    groups = -(-count // 3)
    pairs = 0 if count == 1 else (3 - count % 3) % 3
    sizes = [3] * (groups - pairs) + [2] * pairs if count > 1 else [1]
    members, first = [], 0
    for size in sizes:
        members.append(moduli[first : first + size])
        first += size
    product = prod(moduli)
    factor = [prod(group) // m for group in members for m in group]
    weight = [product // prod(group) >> (32 * w) & 0xFFFFFFFF for group in members for w in range(words)]
    shift = min(prod(group) for group in members).bit_length() - 1 + 31
    fraction = [((2 << shift) // prod(group) + 1) // 2 for group in members]
    minus = [(2 ** (32 * words) - product) >> (32 * w) & 0xFFFFFFFF for w in range(words)]
    return _struct([*factor, *weight, *fraction, *minus, shift - 32])


def _patch(left: Described | Slices, right: Described | Slices, out: Any) -> None:
    """What IEEE arithmetic gives in rows and columns with NaN or Inf (docs/design.md, section 8)."""
    a, b = (x.described if isinstance(x, Slices) else x for x in (left, right))
    call = kernel(
        "nonfinite.cu", "patch", INPUT_A=_ctype(a.x.dtype), INPUT_B=_ctype(b.x.dtype), OUTPUT=_ctype(out.dtype)
    )
    flag = FIELDS.index("nonfinite")
    for i in range(out.shape[0]):
        xa, xb = a.x[min(i, a.x.shape[0] - 1)], b.x[min(i, b.x.shape[0] - 1)]
        flags = a.fields[flag, min(i, a.x.shape[0] - 1)], b.fields[flag, min(i, b.x.shape[0] - 1)]
        m, n = out.shape[1:]
        call(
            (ceil(m / 32), ceil(n / 1024)),
            (256,),
            (xa, *_strides(xa), xb, *_strides(xb), *flags, out[i], *_strides(out[i]), np.int64(m), np.int64(n),
             np.int64(a.x.shape[2])),
        )  # fmt: skip


def _panel(plan: Plan, batch: int, m: int, n: int) -> tuple[int, int]:
    """Rows and columns computed at a time, within the caller's limit."""
    rows, cols = m, n
    while plan.workspace_limit is not None and _workspace(plan, batch, rows, cols) > plan.workspace_limit:
        if max(rows, cols) <= 16:
            raise ValueError(
                f"workspace_limit: {plan.workspace_limit} bytes are too few; "
                f"this product needs at least {_workspace(plan, batch, rows, cols)}"
            )
        if rows >= cols:
            rows = _round_up(-(-rows // 2), 16)
        else:
            cols = _round_up(-(-cols // 2), 16)
    return rows, cols


def _workspace(plan: Plan, batch: int, rows: int, cols: int) -> int:
    """Bytes held while a panel is computed."""
    scheme, k = plan.scheme, plan.shape[1]
    assert scheme is not None
    slices = sum(_layout(scheme, batch, x, k).size for x in (rows, cols))
    entries = rows * _round_up(cols, 16)
    if isinstance(scheme, Residues):
        group = max(1, min(scheme.count, _ACCUMULATORS // (4 * entries)))
        return slices + entries * (4 * group + scheme.count)
    return slices + entries * scheme.count * (4 if k <= scheme.depth() // 128 * 128 else 12)


def engine_name(plan: Plan) -> str:
    device = cp.cuda.runtime.getDeviceProperties(cp.cuda.runtime.getDevice())["name"].decode()
    return device if plan.scheme is None else f"{device}, cuBLAS int8"


# The native product -------------------------------------------------------------------------------------------------


def native(a: Any, b: Any, dtype: str, out: Any) -> None:
    """The native product, in `dtype`, of row views: out = a b^T."""
    cp.matmul(a.astype(dtype, copy=False), b.astype(dtype, copy=False).swapaxes(-1, -2), out=out)


def native_obstacle(dtype: str) -> str | None:
    """Settings under which cuBLAS computes less than an IEEE product."""
    if dtype == "float32" and os.environ.get("CUPY_TF32", "0") != "0":
        return "native product ruled out: CUPY_TF32 makes it less accurate than float32"
    if dtype == "float64" and os.environ.get("CUBLAS_EMULATE_DOUBLE_PRECISION", "0") != "0":
        return "native product ruled out: CUBLAS_EMULATE_DOUBLE_PRECISION leaves its accuracy to cuBLAS"
    return None


_RATES = {  # compute capability: peak TFLOP/s of float64 and float32, TOPS of int8 with cuBLAS, TB/s of memory
    (8, 0): (19.5, 19.5, 450.0, 1.4),
    (9, 0): (57.0, 51.0, 1300.0, 3.9),
    (10, 0): (37.0, 75.0, 2500.0, 7.0),
}
"""(9, 0): measured on an H200 (benchmarks/results); the others: the vendor's figures, derated by a third."""

_OTHERS = (0.6, 30.0, 250.0, 0.6)
"""Cards without float64 tensor cores, as sm_75, 86, 89, 120: float64 at 1/32 to 1/64 of float32."""

_LAUNCHES = 60e-6
"""Seconds that the launches of a product out of slices take."""


def native_is_faster(stack: tuple[int, int, int], k: int, dtype: str, products: int) -> bool:
    """Compare times from the rates above: products and memory traffic against the native product."""
    batch, m, n = stack
    capability = cp.cuda.Device().compute_capability
    float64, float32, int8, memory = _RATES.get((int(capability[:-1]), int(capability[-1])), _OTHERS)
    flops = 2e-12 * batch * m * n * k
    itemsize = 8 if dtype == "float64" else 4
    traffic = 1e-12 * batch * ((m + n) * k * (2 * itemsize + products) + m * n * (6 * products + itemsize))
    slices = flops * products / int8 + traffic / memory + _LAUNCHES * batch
    return flops / (float64 if dtype == "float64" else float32) <= slices
