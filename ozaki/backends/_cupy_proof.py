"""The proof's products of magnitudes on the device, and the worst ratio to them (docs/design.md, section 9).

They run on the current stream or, beside the splitting of the operands, on one of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, lru_cache
from math import ceil
from typing import Any, NamedTuple

import cupy as cp
import numpy as np
import numpy.typing as npt

from ozaki._bounds import ErrorTerms, dropped, word_terms
from ozaki._description import FIELDS, NO_SPAN, Described
from ozaki._proof import EVERY, NARROW_BITS, NARROW_DEPTH, SAMPLE, Look, Ratio, wide_bits
from ozaki.backends import _cublas, _hopper
from ozaki.backends._cupy_native import native_obstacle
from ozaki.backends._jit import architecture
from ozaki.backends._launch import Beside, Clear, Copy, Launch, Macros, Record, View, beside, round_up
from ozaki.schemes import Scheme, Words, magnitude_bits


def _beside(steps: str) -> Beside:
    return beside(cp.cuda.runtime.getDevice(), steps, urgent=True)


def _stream(alone: bool) -> AbstractContextManager[None]:
    return nullcontext() if alone else _beside("proof")


def _aside() -> Beside:
    """For small steps, which need not wait for the products."""
    return _beside("proof, aside")


@contextmanager
def _products(alone: bool) -> Iterator[None]:
    """Where a proof begins, once the operands are described: on the stream of its products, which waits for that."""
    if not alone:
        _beside("proof").fork()
    with _stream(alone):
        _aside().fork()
        yield


@dataclass(frozen=True)
class _Product:
    """Exact products of magnitudes, int32 (of 7 bits) or float64 (wider), [batch][m][ld]."""

    values: Any

    @property
    def wide(self) -> bool:
        return bool(self.values.dtype == np.float64)


@dataclass(frozen=True)
class _Magnitudes:
    """7-bit magnitudes in tiles, [batch][padded rows][padded k], whose products stay in registers."""

    left: Any
    right: Any


def narrow_product(left: Described, right: Described, sampled: bool, alone: bool = True) -> _Product | _Magnitudes:
    """Exact products of 7-bit magnitudes, or what a kernel needs to form them where it compares them."""
    k = (left.k // EVERY) * SAMPLE + min(left.k % EVERY, SAMPLE) if sampled else left.k
    k = min(k, NARROW_DEPTH)  # saturate: a sum over part of k bounds from below as well
    m, n = left.x.shape[1], right.x.shape[1]
    in_tiles = architecture(cp.cuda.runtime.getDevice()) == "sm_90a" and min(m, n, k) >= _hopper.FROM
    if in_tiles:
        (tile_a, _, rows_a, depth), (tile_b, _, rows_b, _) = _hopper.tiled("left", m, k), _hopper.tiled("right", n, k)
        layout = _Layout((rows_a, rows_b), depth, (tile_a, tile_b))
    else:
        layout = _Layout((round_up(m, 16), round_up(n, 16)), round_up(k, 128))
    with _products(alone):
        a, b = _magnitudes(left, right, layout, sampled)
        return _Magnitudes(a, b) if in_tiles else _product(_cublas.INT8, a, b, m)


class _Layout(NamedTuple):
    """Of the magnitudes of both operands: rows and k, rounded up; rows of tiles, 0 for none; bits, int8 or wider."""

    rows: tuple[int, int]
    k: int
    tiles: tuple[int, int] = (0, 0)
    bits: int = NARROW_BITS

    @property
    def wide(self) -> bool:
        """float64."""
        return self.bits > NARROW_BITS


def _magnitudes(left: Described, right: Described, layout: _Layout, sampled: bool) -> tuple[Any, Any]:
    """Both [batch][rows][k], or in tiles."""
    dtype = np.float64 if layout.wide else np.int8
    a, b = (cp.empty((x.x.shape[0], rows, layout.k), dtype) for x, rows in zip((left, right), layout.rows, strict=True))
    launch = _taking_magnitudes(cp.cuda.runtime.getDevice(), View.of(left.x), View.of(right.x), layout, sampled)
    launch(left.x.data, left.fields.data, a.data, right.x.data, right.fields.data, b.data)
    return a, b


@lru_cache(maxsize=1024)
def _taking_magnitudes(device: int, left: View, right: View, layout: _Layout, sampled: bool) -> Launch:
    macros: Macros = {"INPUT_A": left.ctype, "ALONG_K_A": left.along_k, "TILE_A": layout.tiles[0]}
    macros |= {"INPUT_B": right.ctype, "ALONG_K_B": right.along_k, "TILE_B": layout.tiles[1]}
    macros |= {"MAGNITUDE": "double" if layout.wide else "int8_t"}
    views = list(zip((left, right), layout.rows, strict=True))
    blocks = [view.shape[0] * ceil(rows / 32) * (layout.k // 128) for view, rows in views]
    operands = [(None, None, None, view.shape[1], rows, *view.steps) for view, rows in views]
    sizes = blocks[0], left.shape[2], layout.k, layout.bits, int(sampled)
    return Launch("proof.cu", "magnitudes", macros, (sum(blocks),), (256,), *operands, *sizes)


def _product(types: _cublas.Types, a: Any, b: Any, m: int) -> _Product:
    batch, ld, k = max(a.shape[0], b.shape[0]), b.shape[1], a.shape[2]
    out = cp.empty((batch, m, ld), types.dtype)
    steps = *(x.shape[1] * k if x.shape[0] > 1 else 0 for x in (a, b)), m * ld
    _cublas.gemms(types, a.data.ptr, b.data.ptr, out.data.ptr, m, ld, k, k, k, batch, steps)
    return _Product(out)


def wide_product(left: Described, right: Described, alone: bool = True) -> _Product:
    """Exact products of wider magnitudes, and a lower bound by exponents where they are zero."""
    bits, m = wide_bits(left.k), left.x.shape[1]
    layout = _Layout((m, round_up(right.x.shape[1], 4)), round_up(left.k, 128), bits=bits)
    with _products(alone):
        a, b = _magnitudes(left, right, layout, False)
        if native_obstacle("float64"):  # then cuBLAS may not add exactly
            product = _Product(cp.asarray(np.matmul(a.get(), b.get().swapaxes(1, 2))))
        else:
            product = _product(_cublas.FP64, a, b, m)
        views, values = (View.of(left.x), View.of(right.x)), product.values
        launch = _bounding_by_exponents(cp.cuda.runtime.getDevice(), *views, *values.shape[1:], 2 * bits)
        launch(left.x.data, left.fields.data, right.x.data, right.fields.data, values.data)
        return product


@lru_cache(maxsize=1024)
def _bounding_by_exponents(device: int, left: View, right: View, padded: int, ld: int, raised: int) -> Launch:
    macros: Macros = {"INPUT_A": left.ctype, "INPUT_B": right.ctype}
    operands = []
    for batch, rows, _, *steps in ((*view.shape, *view.steps) for view in (left, right)):
        operands.append((None, None, rows, *((rows, steps[0]) if batch > 1 else (0, 0)), *steps[1:]))
    tiles = [ceil(view.shape[1] / 64) for view in (left, right)]
    grid = (max(left.shape[0], right.shape[0]) * tiles[0] * tiles[1],)
    sizes = left.shape[2], padded, ld
    return Launch("proof_exponents.cu", "lower_by_exponents", macros, grid, (256,), *operands, None, *sizes, raised)


def worst_ratios(
    lower: _Product | _Magnitudes,
    left: Described,
    right: Described,
    wanted: Sequence[tuple[Scheme | Words, int]],
    alone: bool = True,
) -> list[Look]:
    """Largest image error / lower over lower > 0; number of positive errors over lower == 0; in the first rows."""
    usual = [(scheme, rows, _usually_dropped(scheme, left.k)) for scheme, rows in wanted]
    begun = _begin(lower, left, right, usual, alone)
    return [_look(lower, left, right, *each, wait, alone) for each, wait in zip(wanted, begun, strict=True)]


def _begin(
    lower: _Product | _Magnitudes,
    left: Described,
    right: Described,
    wanted: Sequence[tuple[Scheme | Words, int, float]],
    alone: bool,
) -> list[Callable[[], Ratio]]:
    """Begin to compare the errors of schemes, in so many rows, with so much dropped; the results wait."""
    (scheme, rows, lost), *others = wanted
    aside = _aside()
    with _stream(alone):
        with aside:  # small kernels before large ones, beside which they would wait for their turn
            ready = [_terms_of(left, right, *each) for each in others]
        if others:
            aside.fork()
        found = _terms_of(left, right, scheme, rows, lost)
        _compare(lower, found)
        with aside:  # beside the end of what looks at all entries, and leaves multiprocessors idle there
            for other in ready:
                _compare(lower, other)
        if others:
            aside.join()
        aside.fork()
        with aside:
            return [_on_its_way(each.result) for each in (found, *ready)]


def _look(
    lower: _Product | _Magnitudes,
    left: Described,
    right: Described,
    scheme: Scheme | Words,
    rows: int,
    wait: Callable[[], Ratio],
    alone: bool,
) -> Look:
    """Only its `anew` holds operands: a look that is kept lets go of them with that."""
    if isinstance(scheme, Words):
        spans, least_span = (left.span, right.span), min(left.least_span, right.least_span)
        return Look(lambda: wait()._replace(spans=spans, least_span=least_span))
    k = left.k

    def anew(ratio: Ratio) -> Ratio:
        (again,) = _begin(lower, left, right, [(scheme, rows, dropped(scheme, k, ratio.spans))], alone)
        return again()

    return Look(wait, lambda ratio: dropped(scheme, k, ratio.spans) == _usually_dropped(scheme, k), anew)


def _usually_dropped(scheme: Scheme | Words, k: int) -> float:
    """But for spans that the device has yet to find."""
    return 0.0 if isinstance(scheme, Words) else k * scheme.drop


class _Found(NamedTuple):
    """Error terms on the device, the rows to look at, and where the worst ratio there goes."""

    terms: _Terms
    rows: int
    places: list[cp.cuda.MemoryPointer]
    result: cp.cuda.MemoryPointer


def _terms_of(left: Described, right: Described, scheme: Scheme | Words, rows: int, dropped: float) -> _Found:
    """Those of words are few numbers of the host."""
    terms, result = _Terms.of(left, right), _cleared_result()
    if isinstance(scheme, Words):
        of_words = word_terms(left.on_host, right.on_host, scheme)
        return _Found(terms, rows, terms.places(cp.asarray(terms.from_host(of_words)).data), result)
    places = terms.places(cp.cuda.alloc(terms.nbytes))
    launch = _finding_terms(cp.cuda.runtime.getDevice(), terms, left.k, scheme, dropped)
    launch(left.fields.data, *places[:2], right.fields.data, *places[2:], result)
    return _Found(terms, rows, places, result)


def _compare(lower: _Product | _Magnitudes, found: _Found) -> None:
    device = cp.cuda.runtime.getDevice()
    if isinstance(lower, _Product):
        launch = _comparing(device, found.terms, lower.wide, *lower.values.shape[1:], found.rows)
        launch(lower.values.data, *found.places, found.result)
    else:
        launch = _multiplying(device, found.terms, lower.left.shape, lower.right.shape, found.rows)
        launch(lower.left.data, lower.right.data, *found.places, found.result)


class _Terms(NamedTuple):
    """Where the error terms of both operands lie: all rounded ones, then the exact ones (kernels/worst.cuh)."""

    batch_a: int
    m: int
    batch_b: int
    n: int

    @classmethod
    def of(cls, left: Described, right: Described) -> _Terms:
        return cls(*left.x.shape[:2], *right.x.shape[:2])

    @property
    def rows(self) -> tuple[int, int]:
        """Of all of the batch."""
        return self.batch_a * self.m, self.batch_b * self.n

    @property
    def padded(self) -> tuple[int, int]:
        """Rows of a batch entry for which there are rounded terms; the columns are those of whole tiles."""
        return round_up(self.m, 4), _hopper.tiled("right", self.n, 1)[2]

    @property
    def rounded(self) -> tuple[int, int]:
        """Those of all of the batch."""
        return self.batch_a * self.padded[0], self.batch_b * self.padded[1]

    @property
    def nbytes(self) -> int:
        return _ROUNDED * sum(self.rounded) + 24 * sum(self.rows)

    def places(self, memory: cp.cuda.MemoryPointer) -> list[cp.cuda.MemoryPointer]:
        """Exact and rounded terms of the left operand, then of the right one."""
        exact = memory + _ROUNDED * sum(self.rounded)
        return [exact, memory, exact + 24 * self.rows[0], memory + _ROUNDED * self.rounded[0]]

    @property
    def structs(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The structs Terms of both."""
        (a, b), (padded_a, padded_b) = self.rows, self.padded
        left = (self.m, _ROUNDED // 4 * padded_a) if self.batch_a > 1 else (0, 0)
        right = (self.n, _ROUNDED // 4 * padded_b) if self.batch_b > 1 else (0, 0)
        return (None, None, a, *left), (None, None, b, *right)

    def from_host(self, terms: ErrorTerms) -> npt.NDArray[np.uint8]:
        """The bytes at these places."""
        left, right = self.padded
        rounded = _rounded(terms.left, left, False).tobytes() + _rounded(terms.right, right, True).tobytes()
        return np.frombuffer(rounded + terms.left.tobytes() + terms.right.tobytes(), np.uint8)


_ROUNDED = 20
"""Bytes of a row's rounded terms: ROUNDED floats of kernels/worst.cuh."""


def _rounded(terms: npt.NDArray[np.float64], padded: int, columns: bool) -> npt.NDArray[np.float32]:
    """Rounded terms as there, [batch][rows / 4][5][4]."""
    _, batch, rows = terms.shape
    out = np.zeros((batch, padded // 4, 5, 4), np.float32)
    each = np.zeros((3, batch, padded), np.float32)
    each[..., :rows] = _to_float32(terms, np.inf)
    out[:, :, :3] = each.reshape(3, batch, -1, 4).transpose(1, 2, 0, 3)
    if columns:
        first = np.where(terms[0] == 0, np.nan, terms[0])
        inverse = np.full((batch, padded), np.nan, np.float32)
        inverse[:, :rows] = _to_float32(1 / first, -np.inf)
        out[:, :, 3] = inverse.reshape(batch, -1, 4)
        quotients = np.zeros((2, batch, padded), np.float32)
        quotients[..., :rows] = np.nan_to_num(_to_float32(terms[1:] / first, np.inf), posinf=np.inf)
        largest = quotients.reshape(2, batch, -1, 16).max(3)
        out[:, :, 4, :2] = largest.repeat(4, 2).transpose(1, 2, 0)
    return out


def _to_float32(x: npt.NDArray[np.float64], toward: float) -> npt.NDArray[np.float32]:
    """Rounded up or down."""
    with np.errstate(over="ignore"):
        nearest = x.astype(np.float32)
    beyond = nearest < x if toward > 0 else nearest > x
    return np.where(beyond, np.nextafter(nearest, np.float32(toward)), nearest)


_RESULT = np.dtype([("worst", np.float64), ("missing", np.uint64), ("spans", np.uint64, 2), ("spare", np.uint64)])


def _cleared_result() -> cp.cuda.MemoryPointer:
    result = cp.cuda.alloc(_RESULT.itemsize)
    _clear()(result)
    return result


@cache
def _clear() -> Clear:
    return Clear(_RESULT.itemsize)


def _on_its_way(result: cp.cuda.MemoryPointer) -> Callable[[], Ratio]:
    """Copy to the host when the stream gets there; calling what is returned waits for that, and holds the result."""
    target, copied = cp.cuda.alloc_pinned_memory(_RESULT.itemsize), cp.cuda.Event(disable_timing=True)
    Copy(target, _RESULT.itemsize)(result)
    Record(copied)()
    held = [result]

    def arrived() -> Ratio:
        copied.synchronize()
        held.clear()
        worst, missing, spans, spare = np.frombuffer(target, _RESULT, 1)[0]
        return Ratio(float(worst), int(missing), (int(spans[0]), int(spans[1])), NO_SPAN - int(spare))

    return arrived


@lru_cache(maxsize=1024)
def _finding_terms(device: int, terms: _Terms, k: int, scheme: Scheme, dropped: float) -> Launch:
    scaling = scheme.scaling(k)
    assert scaling is not None
    left, right = (
        (None, None, None, *sizes)
        for sizes in zip((terms.batch_a, terms.batch_b), terms.rows, terms.rounded, strict=True)
    )
    return Launch(
        "proof.cu", "error_terms", {}, (sum(ceil(rows / 256) for rows in terms.rounded),), (256,), left, right, None,
        magnitude_bits(k), FIELDS.index(scaling.statistic), scaling.step, scaling.base, scaling.threshold, float(k),
        float(dropped), NO_SPAN,
    )  # fmt: skip


@lru_cache(maxsize=1024)
def _comparing(device: int, terms: _Terms, wide: bool, padded: int, ld: int, rows: int) -> Launch:
    file, function, *each = (
        ("proof_wide.cu", "worst_ratio_wide", 32, 256) if wide else ("proof.cu", "worst_ratio", 128, 128)
    )
    grid = (max(terms.batch_a, terms.batch_b) * ceil(rows / each[0]) * ceil(terms.n / each[1]),)
    return Launch(file, function, {}, grid, (256,), None, *terms.structs, None, ld, padded, terms.n, rows)


@lru_cache(maxsize=1024)
def _multiplying(
    device: int, terms: _Terms, left: tuple[int, int, int], right: tuple[int, int, int], rows: int
) -> Launch:
    operands = [(None, 0, x[1] * x[2] if x[0] > 1 else 0) for x in (left, right)]
    blocks = left[2] // 128
    grid, *walk = _hopper.tiles_of(device, 1, max(left[0], right[0]), rows, terms.n, blocks)
    return Launch(
        "proof_gemm_sm90.cu", "proof_gemm", {}, (grid,), (384,), *operands, *terms.structs, None, rows, blocks, blocks,
        *walk, shared_mem=_hopper.SHARED,
    )  # fmt: skip
