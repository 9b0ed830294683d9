"""CuPy: describing, planning and the choice of an engine for the slice products.

Everything runs on the current device and stream, in memory of CuPy's pool; only what plans from data waits for the
device.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import ceil
from types import ModuleType
from typing import Any

import cupy as cp
import numpy as np

from ozaki._bounds import dropped
from ozaki._description import FIELDS, Described
from ozaki._plan import Plan
from ozaki._proof import EVERY, NARROW_DEPTH, SAMPLE, wide_bits
from ozaki.backends import _cublas, _hopper, _numpy
from ozaki.backends import _split as splitting
from ozaki.backends._jit import architecture, kernel
from ozaki.backends._launch import along_k, ctype, round_up, strides
from ozaki.backends._split import Slices
from ozaki.schemes import Residues, Scheme, Words, magnitude_bits

name = "cupy"
engines: tuple[str, ...] = ("cublas", "hopper")

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


# Describing ---------------------------------------------------------------------------------------------------------


def describe(x: Any) -> Described:
    """The description of the rows of x, shape (batch, rows, k)."""
    batch, rows, k = x.shape
    fields = cp.empty((len(FIELDS), batch, rows), np.int64)
    macros: dict[str, Any] = {"INPUT": ctype(x.dtype), "ALONG_K": along_k(x)}
    width = np.int32(magnitude_bits(k))
    sizes = np.int64(batch), np.int64(rows), np.int64(k)
    if macros["ALONG_K"] and batch * rows >= _FILLING_ROWS:
        call = kernel("describe.cu", "describe_rows", **macros)
        call((batch * rows,), (256,), (x, *strides(x), *sizes, width, fields))
        return Described(x, fields)
    groups = -(-rows // (8 if macros["ALONG_K"] else 32))
    wanted = max(1, 2112 // max(batch * groups, 1))  # 16 blocks for each of 132 multiprocessors
    segment = max(round_up(-(-k // wanted), 32), 256)
    segments = -(-k // segment)
    pieces = np.int64(segment), np.uint32(segments)
    each = (ceil(batch * rows / 256),)
    grid = (batch * groups * segments,)
    view = (x, *strides(x), *sizes, *pieces)
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
    if a.shape[2] > NARROW_DEPTH:  # saturate: a sum over part of k bounds from below as well
        a, b = a[:, :, :NARROW_DEPTH], b[:, :, :NARROW_DEPTH]
    for i in range(batch):
        at_a, at_b = a[min(i, a.shape[0] - 1)], b[min(i, b.shape[0] - 1)]
        _cublas.gemm(
            at_a.data.ptr, at_b.data.ptr, out[i].data.ptr, m, b.shape[1], a.shape[2], at_a.strides[0], at_b.strides[0]
        )
    return _NarrowProduct(out, n)


def _magnitudes(operand: Described, kept: int, sampled: bool) -> Any:
    x = operand.x
    batch, rows, k = x.shape
    padded = round_up(rows, 16), round_up(kept, 128)
    out = cp.empty((batch, *padded), np.int8)
    call = kernel("proof.cu", "magnitudes", INPUT=ctype(x.dtype), ALONG_K=along_k(x))
    grid = (batch * ceil(padded[0] / 32) * ceil(padded[1] / 128),)
    sizes = (np.int64(rows), np.int64(k), np.int64(padded[0]), np.int64(padded[1]))
    call(grid, (256,), (x, *strides(x), *sizes, operand.fields, np.int32(sampled), out))
    return out


def wide_product(left: Described, right: Described) -> Any:
    """Exact products of wider magnitudes."""
    bits = wide_bits(left.k)
    a, b = (_wide_magnitudes(x, bits) for x in (left, right))
    if native_obstacle("float64"):  # then cuBLAS may not add exactly
        return cp.asarray(np.matmul(a.get(), b.get().swapaxes(1, 2)))
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
    lower: Any, left: Described, right: Described, scheme: Scheme | Words, spans: tuple[int, int]
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


def _error_terms(operand: Described, scheme: Scheme | Words, spans: tuple[int, int], is_left: int) -> Any:
    """The terms of one side, as `ozaki._bounds.error_terms` has them, float64 [3][batch][rows]."""
    assert isinstance(scheme, Scheme)
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
    lower: Any, left: Described, right: Described, scheme: Scheme | Words, spans: tuple[int, int]
) -> float:
    """Worst ratio over the entries with lower == 0: rare, so on the host."""
    on_host = [Described(x.x.get(), x.fields.get()) for x in (left, right)]
    return _numpy.worst_ratio_by_exponents(lower.get(), on_host[0], on_host[1], scheme, spans)


# Splitting, multiplying, recombining ---------------------------------------------------------------------------------


def _engine(plan: Plan) -> ModuleType:
    """The engine that the plan asks for, or the fastest here."""
    if plan.engine == "cublas":
        return _cublas
    fits = isinstance(plan.scheme, Residues) and architecture(cp.cuda.runtime.getDevice()) == "sm_90a"
    if plan.engine == "hopper" and not fits:
        raise ValueError(
            "engine: 'hopper' multiplies residues on devices of compute capability 9.0; use scheme='residues' there, "
            "or engine='auto'"
        )
    m, k, n = plan.shape
    return _hopper if plan.engine == "hopper" or (fits and min(m, n) >= _HOPPER_FROM and k >= _HOPPER_FROM) else _cublas


_HOPPER_FROM = 256
"""Least m, n and k for which tiles of 256 x 192 are not mostly padding."""


def underflows(operand: Described, words: Words) -> int:
    raise NotImplementedError


def words_obstacle(words: Words) -> str | None:
    """No kernels multiply words yet."""
    return "words run on NumPy arrays only, so far; use cupy.asnumpy, or scheme='auto'"


def split(operand: Described, side: str, plan: Plan) -> Slices:
    """The slices of a whole operand."""
    assert isinstance(plan.scheme, Scheme)
    layout = _engine(plan).layout(plan.scheme, side, *operand.x.shape)
    return splitting.split(operand, side, plan.scheme, layout)


def execute(plan: Plan, left: Described | Slices, right: Described | Slices, out: Any) -> int:
    """Compute out, shape (batch, m, n); returns the bytes of workspace."""
    engine = _engine(plan)
    _, m, n = out.shape
    rows, cols = _panel(plan, engine, *out.shape)
    used = 0
    for c in range(0, n, cols):
        b = _take(right, "right", plan, c, min(c + cols, n))
        for r in range(0, m, rows):
            a = _take(left, "left", plan, r, min(r + rows, m))
            beside = engine.multiply(plan.scheme, a, b, out[:, r : r + rows, c : c + cols])
            used = max(used, a.parts.nbytes + b.parts.nbytes + beside)
    _patch(left, right, out)
    return used


def _take(operand: Described | Slices, side: str, plan: Plan, first: int, last: int) -> Slices:
    """The slices of some rows."""
    if isinstance(operand, Slices):
        return operand.some_rows(first, last)
    if (first, last) == (0, operand.x.shape[1]):
        return split(operand, side, plan)
    fields = cp.ascontiguousarray(operand.fields[:, :, first:last])
    return split(Described(operand.x[:, first:last], fields), side, plan)


def _patch(left: Described | Slices, right: Described | Slices, out: Any) -> None:
    """What IEEE arithmetic gives in rows and columns with NaN or Inf (docs/design.md, section 8)."""
    a, b = (x.described if isinstance(x, Slices) else x for x in (left, right))
    call = kernel("nonfinite.cu", "patch", INPUT_A=ctype(a.x.dtype), INPUT_B=ctype(b.x.dtype), OUTPUT=ctype(out.dtype))
    flag = FIELDS.index("nonfinite")
    for i in range(out.shape[0]):
        xa, xb = a.x[min(i, a.x.shape[0] - 1)], b.x[min(i, b.x.shape[0] - 1)]
        flags = a.fields[flag, min(i, a.x.shape[0] - 1)], b.fields[flag, min(i, b.x.shape[0] - 1)]
        m, n = out.shape[1:]
        call(
            (ceil(m / 32), ceil(n / 1024)),
            (256,),
            (xa, *strides(xa), xb, *strides(xb), *flags, out[i], *strides(out[i]), np.int64(m), np.int64(n),
             np.int64(a.x.shape[2])),
        )  # fmt: skip


def _panel(plan: Plan, engine: ModuleType, batch: int, m: int, n: int) -> tuple[int, int]:
    """Rows and columns computed at a time, within the caller's limit."""
    scheme, k = plan.scheme, plan.shape[1]

    def workspace(rows: int, cols: int) -> int:
        slices = sum(engine.layout(scheme, side, batch, x, k).size for side, x in (("left", rows), ("right", cols)))
        return int(slices + batch * engine.workspace(scheme, rows, cols, k))

    rows, cols = m, n
    units = [engine.layout(scheme, side, 1, 1, k).unit for side in ("left", "right")]
    while plan.workspace_limit is not None and workspace(rows, cols) > plan.workspace_limit:
        if rows <= units[0] and cols <= units[1]:
            raise ValueError(
                f"workspace_limit: {plan.workspace_limit} bytes are too few; "
                f"this product needs at least {workspace(rows, cols)}"
            )
        if rows > units[0] and (rows >= cols or cols <= units[1]):
            rows = round_up(-(-rows // 2), units[0])
        else:
            cols = round_up(-(-cols // 2), units[1])
    return rows, cols


def engine_name(plan: Plan) -> str:
    device = cp.cuda.runtime.getDeviceProperties(cp.cuda.runtime.getDevice())["name"].decode()
    return device if plan.scheme is None else f"{device}, {_engine(plan).label}"


# The native product -------------------------------------------------------------------------------------------------


def native(a: Any, b: Any, dtype: str, out: Any) -> None:
    """The native product, in `dtype`, of row views: out = a b^T."""
    if dtype == "float64":
        a, b = _as_float64(a), _as_float64(b)
    cp.matmul(a, b.swapaxes(-1, -2), out=out)


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
