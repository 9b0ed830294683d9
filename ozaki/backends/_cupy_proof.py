"""The proof's products of magnitudes on the device, and the worst ratio to them (docs/design.md, section 9).

They run on a stream of their own, beside the splitting of the operands, which need not wait for them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from math import ceil
from typing import Any

import cupy as cp
import numpy as np

from ozaki._bounds import dropped, word_terms
from ozaki._description import FIELDS, Described
from ozaki._proof import EVERY, NARROW_DEPTH, SAMPLE, Look, Ratio, wide_bits
from ozaki.backends import _cublas, _numpy_proof
from ozaki.backends._cupy_native import as_float64, native_obstacle
from ozaki.backends._launch import Beside, Clear, Copy, Launch, Macros, Record, View, pause, round_up
from ozaki.schemes import Scheme, Words, magnitude_bits


@cache
def _beside(device: int) -> Beside:
    return Beside(urgent=True)


def _stream() -> Beside:
    return _beside(cp.cuda.runtime.getDevice())


@dataclass(frozen=True)
class _NarrowProduct:
    """Exact int32 products of 7-bit magnitudes, [batch][m][ld], of which n columns count."""

    values: Any
    n: int


def narrow_product(left: Described, right: Described, sampled: bool) -> _NarrowProduct:
    """Exact products of 7-bit magnitudes (2**14 k < 2**31 is split like any other k)."""
    stream = _stream()
    stream.fork()
    with stream:
        return _narrow_product(left, right, sampled)


def _narrow_product(left: Described, right: Described, sampled: bool) -> _NarrowProduct:
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
            _cublas.INT8, at_a.data.ptr, at_b.data.ptr, out[i].data.ptr, m, b.shape[1], a.shape[2], at_a.strides[0],
            at_b.strides[0],
        )  # fmt: skip
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
    values = cp.where(cp.isfinite(operand.x), cp.abs(as_float64(operand.x)), 0.0)
    shift = cp.maximum(bits - operand.fields[0], -2000)[..., None].astype(np.int32)
    return cp.floor(cp.ldexp(values, shift))


def worst_ratio(lower: Any, left: Described, right: Described, scheme: Scheme | Words, rows: int) -> Look:
    """Largest image error / lower over lower > 0; number of positive errors over lower == 0; in the first rows."""
    if not isinstance(lower, _NarrowProduct):
        return _numpy_proof.worst_ratio(lower[:, :rows].get(), left, right, scheme, rows)
    if isinstance(scheme, Words):
        return Look(_compare_words(lower, left, right, scheme, rows))
    k = left.k
    usual = k * scheme.drop  # but for spans that the device has yet to find

    def anew(ratio: Ratio) -> Ratio:
        return _compare(lower, left, right, scheme, dropped(scheme, k, ratio.spans), rows)()

    wait = _compare(lower, left, right, scheme, usual, rows)
    return Look(wait, lambda ratio: dropped(scheme, k, ratio.spans) == usual, anew)


def _compare(
    lower: _NarrowProduct, left: Described, right: Described, scheme: Scheme, dropped: float, rows: int
) -> Callable[[], Ratio]:
    """Begin to compare image errors with their lower bound; calling the result waits for it."""
    (batch_a, m, k), (batch_b, n, _) = left.x.shape, right.x.shape
    ld = lower.values.shape[2]
    launches = _comparing(cp.cuda.runtime.getDevice(), batch_a, batch_b, m, n, ld, k, scheme, dropped, rows)
    with _stream():
        terms = cp.empty(3 * (batch_a * m + batch_b * n))
        result = _cleared_result()
        launches[0](left.fields.data, right.fields.data, terms.data, result)
        launches[1](lower.values.data, terms.data, terms.data + 24 * batch_a * m, result)
        return _on_its_way(result)


def _compare_words(
    lower: _NarrowProduct, left: Described, right: Described, words: Words, rows: int
) -> Callable[[], Ratio]:
    """The same for words, whose error terms are few numbers of the host."""
    (batch_a, m, _), (batch_b, n, _) = left.x.shape, right.x.shape
    of_words = word_terms(left.on_host, right.on_host, words)
    launch = _ratio(cp.cuda.runtime.getDevice(), batch_a, batch_b, m, n, lower.values.shape[2], rows)
    with _stream():
        terms = cp.asarray(np.concatenate([of_words.left.ravel(), of_words.right.ravel()]))
        result = _cleared_result()
        launch(lower.values.data, terms.data, terms.data + 24 * batch_a * m, result)
        wait = _on_its_way(result)
    return lambda: wait()._replace(spans=(left.span, right.span))


_RESULT = np.dtype([("worst", np.float64), ("missing", np.uint64), ("spans", np.uint64, 2)])


def _cleared_result() -> cp.cuda.MemoryPointer:
    result = cp.cuda.alloc(_RESULT.itemsize)
    _clear()(result)
    return result


@cache
def _clear() -> Clear:
    return Clear(_RESULT.itemsize)


def _on_its_way(result: cp.cuda.MemoryPointer) -> Callable[[], Ratio]:
    """Copy to the host when the stream gets there; calling the result waits for it."""
    target, copied = cp.cuda.alloc_pinned_memory(_RESULT.itemsize), cp.cuda.Event(disable_timing=True)
    Copy(target.ptr, _RESULT.itemsize)(result)
    Record(copied)()

    def arrived() -> Ratio:
        pause()
        copied.synchronize()
        worst, missing, spans = np.frombuffer(target, _RESULT, 1)[0]
        return Ratio(float(worst), int(missing), (int(spans[0]), int(spans[1])))

    return arrived


@lru_cache(maxsize=1024)
def _comparing(
    device: int, batch_a: int, batch_b: int, m: int, n: int, ld: int, k: int, scheme: Scheme, dropped: float, rows: int
) -> tuple[Launch, Launch]:
    scaling = scheme.scaling(k)
    assert scaling is not None
    a, b = batch_a * m, batch_b * n
    terms = Launch(
        "proof.cu", "error_terms", {}, (ceil(a / 256) + ceil(b / 256),), (256,), None, None, None, None, a, b,
        magnitude_bits(k), FIELDS.index(scaling.statistic), scaling.step, scaling.base, scaling.threshold, float(k),
        float(dropped),
    )  # fmt: skip
    return terms, _ratio(device, batch_a, batch_b, m, n, ld, rows)


@lru_cache(maxsize=1024)
def _ratio(device: int, batch_a: int, batch_b: int, m: int, n: int, ld: int, rows: int) -> Launch:
    grid = (max(batch_a, batch_b) * ceil(rows / 128) * ceil(n / 128),)
    steps = batch_a * m, batch_b * n, m if batch_a > 1 else 0, n if batch_b > 1 else 0
    return Launch("proof.cu", "worst_ratio", {}, grid, (256,), None, None, None, None, ld, *steps, m, n, rows)


def worst_ratio_by_exponents(
    lower: Any, left: Described, right: Described, scheme: Scheme | Words, spans: tuple[int, int]
) -> float:
    """Worst ratio over the entries with lower == 0: rare, so on the host."""
    on_host = [Described(x.x.get(), x.fields.get()) for x in (left, right)]
    return _numpy_proof.worst_ratio_by_exponents(lower.get(), on_host[0], on_host[1], scheme, spans)
