"""CuPy: describing, planning and the choice of an engine for the slice products.

Everything runs on the current device and stream, in memory of CuPy's pool; only what plans from data waits for the
device.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain
from math import ceil, prod
from threading import get_ident
from typing import Any

import cupy as cp
import numpy as np

from ozaki._bounds import dropped, word_terms
from ozaki._description import FIELDS, Described
from ozaki._plan import Plan
from ozaki._proof import EVERY, NARROW_DEPTH, SAMPLE, Ratio, wide_bits
from ozaki.backends import _cublas, _hopper, _numpy, _word_hopper, _word_mma, _word_split
from ozaki.backends import _split as splitting
from ozaki.backends._jit import architecture
from ozaki.backends._launch import Beside, Launch, Macros, Tape, View, round_up
from ozaki.backends._rates import rates_of
from ozaki.backends._split import Engine, Slices
from ozaki.backends._tops import tops
from ozaki.schemes import Residues, Scheme, Words, magnitude_bits
from ozaki.schemes.formats import A100, H100

name = "cupy"
engines: tuple[str, ...] = ("cublas", "hopper")
waits = True


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
        array = x if isinstance(x, cp.ndarray) else x.slices.described.x
        device = array.data.device_id
        if device != current:
            raise ValueError(
                f"{label}: lies on device {device}, the current device is {current}; "
                f"move it, or enter cupy.cuda.Device({device})"
            )


# Describing ---------------------------------------------------------------------------------------------------------


def describe(x: Any) -> Described:
    """The description of the rows of x, shape (batch, rows, k)."""
    fields = cp.empty((len(FIELDS), *x.shape[:2]), np.int64)
    size, launches = _describing(cp.cuda.runtime.getDevice(), View.of(x))
    between = cp.cuda.alloc(size) if size else fields.data
    for launch in launches:
        launch(x.data, fields.data, between)
    return Described(x, fields)


@lru_cache(maxsize=1024)
def _describing(device: int, view: View) -> tuple[int, tuple[Launch, ...]]:
    """Bytes between the launches, and these."""
    batch, rows, k = view.shape
    if batch * rows == 0:
        return 0, ()
    held = 256 // view.itemsize if view.along_k or view.itemsize == 8 else 48
    if view.along_k:
        warps = next((w for w in (1, 2, 4) if 32 * held * w >= k), 8)
        segment = max(min(32 * held, round_up(-(-k // warps), 256)), 256) * warps
        group, finish_group = 8 // warps, 8
    else:
        warps, segment, group, finish_group = 8, 8 * held, 32, 32
    segments = max(-(-k // segment), 1)
    macros: Macros = {"INPUT": view.ctype, "ALONG_K": view.along_k}
    arguments = (None, None, None, *view.steps, *view.shape, segment, segments, warps, magnitude_bits(k))
    grid = (batch * -(-rows // group) * segments,)
    first = Launch("describe.cu", "describe", macros, grid, (256,), *arguments)
    if segments == 1:
        return 0, (first,)
    grid = (batch * -(-rows // finish_group),)
    second = Launch("describe.cu", "describe_finish", macros, grid, (256,), *arguments)
    return _PIECE * segments * batch * rows, (first, second)


_PIECE = 72
"""Bytes of the struct Piece in kernels/describe.cu."""


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
    batch, rows, _ = operand.x.shape
    out = cp.empty((batch, round_up(rows, 16), round_up(kept, 128)), np.int8)
    launch = _sampling(cp.cuda.runtime.getDevice(), View.of(operand.x), out.shape, sampled)
    launch(operand.x.data, operand.fields.data, out.data)
    return out


@lru_cache(maxsize=1024)
def _sampling(device: int, view: View, padded: tuple[int, int, int], sampled: bool) -> Launch:
    batch, rows, k = view.shape
    macros: Macros = {"INPUT": view.ctype, "ALONG_K": view.along_k}
    grid = (batch * ceil(padded[1] / 32) * ceil(padded[2] / 128),)
    sizes = rows, k, *padded[1:]
    return Launch("proof.cu", "magnitudes", macros, grid, (256,), None, None, None, *view.steps, *sizes, int(sampled))


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


def worst_ratio(lower: Any, left: Described, right: Described, scheme: Scheme | Words) -> Callable[[], Ratio]:
    """Largest image error / lower over lower > 0; number of positive errors over lower == 0."""
    if not isinstance(lower, _NarrowProduct):
        return _numpy.worst_ratio(lower.get(), left, right, scheme)
    if isinstance(scheme, Words):
        return _compare_words(lower, left, right, scheme)
    usual = left.k * scheme.drop  # but for spans that the device has yet to find
    wait = _compare(lower, left, right, scheme, usual)

    def found() -> Ratio:
        ratio = wait()
        actual = dropped(scheme, left.k, ratio.spans)
        return ratio if actual == usual else _compare(lower, left, right, scheme, actual)()

    return found


def _compare(
    lower: _NarrowProduct, left: Described, right: Described, scheme: Scheme, dropped: float
) -> Callable[[], Ratio]:
    """Begin to compare image errors with their lower bound; calling the result waits for it."""
    (batch_a, m, k), (batch_b, n, _) = left.x.shape, right.x.shape
    ld = lower.values.shape[2]
    launches = _comparing(cp.cuda.runtime.getDevice(), batch_a, batch_b, m, n, ld, k, scheme, dropped)
    terms = cp.empty(3 * (batch_a * m + batch_b * n))
    result = cp.cuda.alloc(_RESULT.itemsize)
    result.memset_async(0, _RESULT.itemsize)
    launches[0](left.fields.data, right.fields.data, terms.data, result)
    launches[1](lower.values.data, terms.data, terms.data + 24 * batch_a * m, result)
    return _on_its_way(result, _RESULT)


def _compare_words(lower: _NarrowProduct, left: Described, right: Described, words: Words) -> Callable[[], Ratio]:
    """The same for words, whose error terms are few numbers of the host."""
    (batch_a, m, _), (batch_b, n, _) = left.x.shape, right.x.shape
    of_words = word_terms(left.on_host, right.on_host, words)
    terms = cp.asarray(np.concatenate([of_words.left.ravel(), of_words.right.ravel()]))
    result = cp.cuda.alloc(_RESULT.itemsize)
    result.memset_async(0, _RESULT.itemsize)
    launch = _ratio(cp.cuda.runtime.getDevice(), batch_a, batch_b, m, n, lower.values.shape[2])
    launch(lower.values.data, terms.data, terms.data + 24 * batch_a * m, result)
    wait = _on_its_way(result, _RESULT)
    return lambda: wait()._replace(spans=(left.span, right.span))


_RESULT = np.dtype([("worst", np.float64), ("missing", np.uint64), ("spans", np.uint64, 2)])


def _on_its_way(source: cp.cuda.MemoryPointer, dtype: np.dtype[Any]) -> Callable[[], Ratio]:
    """Copy to the host when the stream gets there; calling the result waits for it."""
    target = cp.cuda.alloc_pinned_memory(dtype.itemsize)
    source.copy_to_host_async(target.ptr, dtype.itemsize, cp.cuda.get_current_stream())
    copied = cp.cuda.Event(disable_timing=True)
    copied.record()

    def arrived() -> Ratio:
        copied.synchronize()
        worst, missing, spans = np.frombuffer(target, dtype, 1)[0]
        return Ratio(float(worst), int(missing), (int(spans[0]), int(spans[1])))

    return arrived


@lru_cache(maxsize=1024)
def _comparing(
    device: int, batch_a: int, batch_b: int, m: int, n: int, ld: int, k: int, scheme: Scheme, dropped: float
) -> tuple[Launch, Launch]:
    scaling = scheme.scaling(k)
    assert scaling is not None
    a, b = batch_a * m, batch_b * n
    terms = Launch(
        "proof.cu", "error_terms", {}, (ceil(a / 256) + ceil(b / 256),), (256,), None, None, None, None, a, b,
        magnitude_bits(k), FIELDS.index(scaling.statistic), scaling.step, scaling.base, scaling.threshold, float(k),
        float(dropped),
    )  # fmt: skip
    return terms, _ratio(device, batch_a, batch_b, m, n, ld)


@lru_cache(maxsize=1024)
def _ratio(device: int, batch_a: int, batch_b: int, m: int, n: int, ld: int) -> Launch:
    grid = (max(batch_a, batch_b) * ceil(m / 128) * ceil(n / 128),)
    steps = batch_a * m, batch_b * n, m if batch_a > 1 else 0, n if batch_b > 1 else 0
    return Launch("proof.cu", "worst_ratio", {}, grid, (256,), None, None, None, None, ld, *steps, m, n)


def worst_ratio_by_exponents(
    lower: Any, left: Described, right: Described, scheme: Scheme | Words, spans: tuple[int, int]
) -> float:
    """Worst ratio over the entries with lower == 0: rare, so on the host."""
    on_host = [Described(x.x.get(), x.fields.get()) for x in (left, right)]
    return _numpy.worst_ratio_by_exponents(lower.get(), on_host[0], on_host[1], scheme, spans)


# Splitting, multiplying, recombining ---------------------------------------------------------------------------------


def _engine_of(plan: Plan) -> Engine:
    assert plan.scheme is not None
    if isinstance(plan.scheme, Words):
        return _word_engine(plan.scheme, (prod(plan.batch), plan.shape[0], plan.shape[2]))
    return _engine(plan.scheme, plan.engine, plan.shape, plan.workspace_limit)


def _engine(scheme: Scheme, asked: str, shape: tuple[int, int, int], limit: int | None) -> Engine:
    """The engine that is asked for, or the fastest here; panels do not shrink what digits on Hopper keep aside."""
    if asked == "cublas":
        return _cublas
    fits = architecture(cp.cuda.runtime.getDevice()) == "sm_90a" and _hopper.fits(scheme, shape[1])
    if asked == "hopper" and not fits:
        raise ValueError(
            "engine: 'hopper' multiplies residues, or up to 7 digits with moderate k, on devices of compute capability "
            "9.0; use scheme='residues' there, or engine='auto'"
        )
    fast = fits and min(shape) >= _HOPPER_FROM and (limit is None or isinstance(scheme, Residues))
    return _hopper if asked == "hopper" or fast else _cublas


_HOPPER_FROM = 256
"""Least m, n and k for which tiles of 256 x 192 are not mostly padding."""


def _word_engine(words: Words, stack: tuple[int, int, int]) -> Engine:
    fits = architecture(cp.cuda.runtime.getDevice()) == "sm_90a" and _word_hopper.fits(words)
    return _word_hopper.Engine.of(*stack) if fits else _word_mma


def underflows(operand: Described, words: Words) -> int:
    """Elements that lose more than their share of bits; counted on the device, and waited for."""
    if not operand.on_host.below(words.floor - words.ceiling).any():
        return 0
    return _word_split.underflows(operand, words)


_CORES = {"80": A100, "86": A100, "87": A100, "89": A100, "90": H100}
"""By compute capability: the tensor cores whose sums are known."""


def words_obstacle(words: Words) -> str | None:
    """The device has no tensor cores that the words' bounds speak of."""
    capability = cp.cuda.Device().compute_capability
    if capability not in _CORES:
        known = ", ".join(f"{c[:-1]}.{c[-1:]}" for c in _CORES)
        return (
            f"words have bounds for tensor cores of compute capability {known}, not {capability[:-1]}."
            f"{capability[-1:]}; use scheme='digits'"
        )
    here = _CORES[capability]
    if words.core != here:
        return (
            f"{words.name} speaks of the tensor cores of {words.core.name}, and those here add as those of "
            f"{here.name}; use dataclasses.replace(words, core=ozaki.tensor_core.{here.name})"
        )
    return None


def split(operand: Described, side: str, plan: Plan) -> Slices:
    """The slices of a whole operand."""
    assert plan.scheme is not None
    layout = _engine_of(plan).layout(plan.scheme, side, *operand.x.shape)
    if isinstance(plan.scheme, Words):
        return _word_split.split(operand, plan.scheme, layout)
    return splitting.split(operand, side, plan.scheme, layout)


def product(plan: Plan, x: Any, y: Any, out: Any) -> int:
    """Compute out = x y^T of rows that nothing is known of; returns the bytes of workspace."""
    if plan.workspace_limit is not None:
        return execute(plan, describe(x), describe(y), out)
    device, same = cp.cuda.runtime.getDevice(), bool(x.data.ptr == y.data.ptr)
    tape = _tape(get_ident(), device, plan.scheme, plan.engine, View.of(x), View.of(y), View.of(out), same)
    if tape.complete:
        return int(tape(x, y, out))
    look = describe if isinstance(plan.scheme, Residues) else tops
    if _engine_of(plan) is _cublas:
        return execute(plan, look(x), look(y), out)

    def compute() -> int:
        beside = _beside(device)
        beside.fork()
        left = look(x)
        with beside:
            right = split(look(y), "right", plan)
        slices = split(left, "left", plan)
        beside.join()
        return execute(plan, slices, right, out)

    return int(tape.record(compute, x, y, out))


@cache
def _beside(device: int) -> Beside:
    return Beside()


@lru_cache(maxsize=1024)
def _tape(
    thread: int, device: int, scheme: Scheme | Words, engine: str, x: View, y: View, out: View, same: bool
) -> Tape:
    """Of products by kernels of our own alone; `same`: the operands share their memory."""
    return Tape()


def execute(plan: Plan, left: Described | Slices, right: Described | Slices, out: Any) -> int:
    """Compute out, shape (batch, m, n); returns the bytes of workspace."""
    engine = _engine_of(plan)
    _, m, n = out.shape
    assert plan.scheme is not None
    rows, cols = _panel(engine, plan.scheme, plan.shape[1], *out.shape, plan.workspace_limit)
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
    views = View.of(a.x), View.of(b.x), View.of(out)
    arrays = (a.x, b.x, a.fields, b.fields, out)
    _patching(cp.cuda.runtime.getDevice(), *views)(*(x.data for x in arrays))


@lru_cache(maxsize=1024)
def _patching(device: int, a: View, b: View, out: View) -> Launch:
    batch, m, n = out.shape
    macros: Macros = {"INPUT_A": a.ctype, "INPUT_B": b.ctype, "OUTPUT": out.ctype}
    grid = (batch * ceil(m / _PATCH[0]) * ceil(n / _PATCH[1]),)
    steps = ((0 if view.shape[0] == 1 else view.steps[0], *view.steps[1:]) for view in (a, b, out))
    sizes = a.shape[0], b.shape[0], m, n, a.shape[2]
    return Launch("nonfinite.cu", "patch", macros, grid, (256,), *[None] * 5, *chain(*steps), *sizes)


_PATCH = (128, 2048)
"""Rows and columns that a block looks after, as in kernels/nonfinite.cu."""


@lru_cache(maxsize=1024, typed=True)
def _panel(
    engine: Engine, scheme: Scheme | Words, k: int, batch: int, m: int, n: int, limit: int | None
) -> tuple[int, int]:
    """Rows and columns computed at a time, within the caller's limit."""

    def workspace(rows: int, cols: int) -> int:
        slices = sum(engine.layout(scheme, side, batch, x, k).size for side, x in (("left", rows), ("right", cols)))
        return int(slices + batch * engine.workspace(scheme, rows, cols, k))

    rows, cols = m, n
    units = [engine.layout(scheme, side, 1, 1, k).unit for side in ("left", "right")]
    while limit is not None and workspace(rows, cols) > limit:
        if rows <= units[0] and cols <= units[1]:
            raise ValueError(
                f"workspace_limit: {limit} bytes are too few; this product needs at least {workspace(rows, cols)}"
            )
        if rows > units[0] and (rows >= cols or cols <= units[1]):
            rows = round_up(-(-rows // 2), units[0])
        else:
            cols = round_up(-(-cols // 2), units[1])
    return rows, cols


def engine_name(plan: Plan) -> str:
    device = cp.cuda.runtime.getDeviceProperties(cp.cuda.runtime.getDevice())["name"].decode()
    return device if plan.scheme is None else f"{device}, {_engine_of(plan).label}"


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


def fastest(
    stack: tuple[int, int, int], k: int, dtype: str, scheme: Scheme, words: tuple[Words, ...]
) -> Scheme | Words | None:
    """What takes least of the native product (None), slices as of that scheme and these words."""
    batch, m, n = stack
    rates = rates_of(cp.cuda.Device().compute_capability)
    engine = _engine(scheme, "auto", (m, k, n), None)
    rows, cols = (engine.layout(scheme, side, 1, x, k).rows for side, x in (("left", m), ("right", n)))
    times: dict[Scheme | Words | None, float] = {
        None: rates.native(batch, m, k, n, dtype),
        scheme: rates.slices(batch, m, k, n, dtype, scheme, rows * cols, engine is _hopper),
    }
    for method in words:
        if architecture(cp.cuda.runtime.getDevice()) == "sm_90a" and _word_hopper.fits(method):
            times[method] = rates.words(batch, m, k, n, method)
    return min(times, key=lambda way: times[way])
