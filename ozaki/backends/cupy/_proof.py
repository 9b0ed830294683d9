"""The proof's products of magnitudes on the device, and the worst ratio to them (docs/design.md, section 9).

They run on the current stream or, beside the splitting of the operands, on one of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, inf
from typing import Any, NamedTuple, TypeVar

import cupy as cp
import numpy as np

from ozaki._bounds import dropped, word_terms
from ozaki._description import FIELDS, NO_SPAN, Described
from ozaki._proof import NARROW_BITS, SAMPLED_FROM, Look, Ratio
from ozaki.backends.cupy._magnitudes import RESULT, MagnitudeLayout, Magnitudes, magnitudes, results
from ozaki.backends.cupy._native import native_obstacle
from ozaki.backends.cupy._terms import Terms
from ozaki.backends.cupy._tops import Tops
from ozaki.backends.cupy.engines import _cublas
from ozaki.backends.cupy.engines._hopper_residues import tiles_of
from ozaki.backends.cupy.engines._hopper_tiles import SHARED
from ozaki.backends.cupy.launching._beside import Beside, beside
from ozaki.backends.cupy.launching._host import to_host
from ozaki.backends.cupy.launching._launch import Launch, Macros, View
from ozaki.backends.cupy.launching._tape import Tape
from ozaki.schemes import Scheme, Words, magnitude_bits, scaling_of
from ozaki.schemes.image import EMPTY_TOP

T = TypeVar("T")


def _beside(steps: str) -> Beside:
    return beside(cp.cuda.runtime.getDevice(), steps)


def _stream(alone: bool) -> AbstractContextManager[None]:
    return nullcontext() if alone else _beside("proof")


@contextmanager
def _products(alone: bool) -> Iterator[None]:
    """Where a proof begins, once the operands are described: on the stream of its products, which waits for that."""
    if not alone:
        _beside("proof").fork()
    with _stream(alone):
        yield


def some_rows(operand: Described, batch: slice, rows: slice) -> Described:
    """Some rows of an operand, described alike; their description is a copy."""
    Tape.misses()
    fields = cp.ascontiguousarray(operand.fields[:, batch, rows])
    return replace(operand, x=operand.x[batch, rows], fields=fields, ahead=None)


def proof_workspace(level: str, left: tuple[int, ...], right: tuple[int, ...]) -> int:
    """Bytes held while the worst ratios of a level are found for operands of these shapes (batch, rows, k)."""
    m, n, k = left[1], right[1], left[2]
    wide = level == "wide"
    layout = MagnitudeLayout.wide(m, n, k) if wide else MagnitudeLayout.narrow(m, n, k, level == "sampled")
    of_element, of_entry = (8, 8) if wide else (1, 4)
    elements = (left[0] * layout.rows[0] + right[0] * layout.rows[1]) * layout.k
    entries = max(left[0], right[0]) * m * layout.rows[1] if layout.tiles == (0, 0) else 0
    terms = Terms(left[0], m, right[0], n).nbytes
    return of_element * elements + of_entry * entries + _AT_ONCE * terms


@dataclass(frozen=True)
class _Product:
    """Exact products of magnitudes, int32 (of 7 bits) or float64 (wider), [batch][m][ld]; results that are zero."""

    values: Any
    results: list[cp.cuda.MemoryPointer]

    @property
    def wide(self) -> bool:
        return bool(self.values.dtype == np.float64)


def narrow_product(left: Described, right: Described, sampled: bool, alone: bool = True) -> _Product | Magnitudes:
    """Exact products of 7-bit magnitudes, or what a kernel needs to form them where it compares them."""
    m, n = left.x.shape[1], right.x.shape[1]
    layout = MagnitudeLayout.narrow(m, n, left.k, sampled)
    with _products(alone):
        found = magnitudes(left, right, layout)
        return found if layout.tiles != (0, 0) else _product(_cublas.INT8, found, m)


def _product(types: _cublas.Types, of: Magnitudes, m: int) -> _Product:
    a, b = of.left, of.right
    batch, ld, k = max(a.shape[0], b.shape[0]), b.shape[1], a.shape[2]
    out = cp.empty((batch, m, ld), types.dtype)
    steps = *(x.shape[1] * k if x.shape[0] > 1 else 0 for x in (a, b)), m * ld
    _cublas.gemms(types, a.data.ptr, b.data.ptr, out.data.ptr, m, ld, k, k, k, batch, steps)
    return _Product(out, of.results)


def wide_product(left: Described, right: Described, alone: bool = True) -> _Product:
    """Exact products of wider magnitudes, and a lower bound by exponents where they are zero."""
    m = left.x.shape[1]
    layout = MagnitudeLayout.wide(m, right.x.shape[1], left.k)
    with _products(alone):
        found = magnitudes(left, right, layout)
        if native_obstacle("float64"):  # then cuBLAS may not add exactly
            exact = np.matmul(found.left.get(), found.right.get().swapaxes(1, 2))
            product = _Product(cp.asarray(exact), found.results)
        else:
            product = _product(_cublas.FP64, found, m)
        views, values = (View.of(left.x), View.of(right.x)), product.values
        launch = _bounding_by_exponents(cp.cuda.runtime.getDevice(), *views, *values.shape[1:], 2 * layout.bits)
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
    return Launch(
        "proof/proof_exponents.cu", "lower_by_exponents", macros, grid, (256,), *operands, None, *sizes, raised
    )


def worst_ratios(
    lower: _Product | Magnitudes,
    left: Described,
    right: Described,
    wanted: Sequence[tuple[Scheme | Words, int]],
    alone: bool = True,
    spans: tuple[int, int] | None = None,
) -> list[Look]:
    """Begin to look for the largest image error / lower of each scheme, in so many rows.

    Without `spans`, those of all rows, the device finds them, and the looks are made anew where they are unusual.
    """
    if spans is not None:
        known = [(x, rows, 0.0 if isinstance(x, Words) else dropped(x, left.k, spans)) for x, rows in wanted]
        return [Look(wait) for wait in _begin(lower, left, right, known, alone)]
    usual = [(scheme, rows, _usually_dropped(scheme, left.k)) for scheme, rows in wanted]
    begun = _begin(lower, left, right, usual, alone)
    return [_look(lower, left, right, *each, wait, alone) for each, wait in zip(wanted, begun, strict=True)]


def least_product(left: Described, right: Described) -> Callable[[], float]:
    """Begin to look for the least lower bound of the first level among rows that are not all zeros.

    Calling the result waits for it, in a call done again for its own.
    """
    lower = narrow_product(left, right, left.k > SAMPLED_FROM)
    terms = Terms.of(left, right)
    memory = cp.cuda.alloc(terms.nbytes)
    found = _Found(terms, terms.m, terms.places(memory), lower.results.pop())
    launch = _units(cp.cuda.runtime.getDevice(), terms, tuple(isinstance(x, Tops) for x in (left, right)))
    launch(left.fields.data, *found.places[:2], right.fields.data, *found.places[2:])
    _compare(lower, [found])
    arrived = _on_its_way(found.result)

    def least() -> float:
        worst = arrived().worst
        return round(1 / worst) * 4.0**-NARROW_BITS if worst else inf

    return least


def _begin(
    lower: _Product | Magnitudes,
    left: Described,
    right: Described,
    wanted: Sequence[tuple[Scheme | Words, int, float]],
    alone: bool,
) -> list[Callable[[], Ratio]]:
    """Begin to compare the errors of schemes, in so many rows, with so much dropped; the results wait."""
    with _stream(alone):
        found = _terms_of(lower, left, right, wanted)
        _compare(lower, found)
        aside = _beside("answers")
        aside.fork()
        with aside:
            return [_on_its_way(each.result) for each in found]


def _look(
    lower: _Product | Magnitudes,
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

    terms: Terms
    rows: int
    places: list[cp.cuda.MemoryPointer]
    result: cp.cuda.MemoryPointer


def _terms_of(
    lower: _Product | Magnitudes,
    left: Described,
    right: Described,
    wanted: Sequence[tuple[Scheme | Words, int, float]],
) -> list[_Found]:
    """The error terms of all schemes; those of words are few numbers of the host."""
    terms = Terms.of(left, right)
    found: list[_Found] = []
    on_device: list[tuple[tuple[Scheme, float], _Found]] = []
    for scheme, rows, lost in wanted:
        if isinstance(scheme, Words):
            memory = cp.asarray(terms.from_host(word_terms(left.on_host, right.on_host, scheme))).data
        else:
            memory = cp.cuda.alloc(terms.nbytes)
        result = lower.results.pop() if lower.results else results(1)[0]
        found.append(_Found(terms, rows, terms.places(memory), result))
        if isinstance(scheme, Scheme):
            on_device.append(((scheme, lost), found[-1]))
    for some in _some_at_once(on_device):
        schemes, places = zip(*some, strict=True)
        launch = _finding_terms(cp.cuda.runtime.getDevice(), terms, left.k, schemes)
        launch(left.fields.data, right.fields.data, *_addresses(places))
    return found


def _addresses(found: Sequence[_Found]) -> list[cp.cuda.MemoryPointer]:
    return [address for each in found for address in (*each.places, each.result)]


def _compare(lower: _Product | Magnitudes, found: list[_Found]) -> None:
    device = cp.cuda.runtime.getDevice()
    if isinstance(lower, _Product):
        for each in found:
            comparing = _comparing(device, each.terms, lower.wide, *lower.values.shape[1:], each.rows)
            comparing(lower.values.data, *each.places, each.result)
        return
    found = sorted(found, key=lambda each: each.rows)  # so that glances, which take few tiles, come first
    for some in _some_at_once(found):
        rows = tuple(each.rows for each in some)
        launch = _multiplying(device, some[0].terms, lower.left.shape, lower.right.shape, rows)
        launch(lower.left.data, lower.right.data, *_addresses(some))


def _on_its_way(result: cp.cuda.MemoryPointer) -> Callable[[], Ratio]:
    """Copy to the host when the stream gets there; calling what is returned waits for that, and holds the result."""
    arrived, held = to_host(result, RESULT, (1,)), [result]

    def ratio() -> Ratio:
        worst, spans, spare = arrived()[0]
        held.clear()
        return Ratio(float(worst), (int(spans[0]), int(spans[1])), NO_SPAN - int(spare))

    return ratio


@lru_cache(maxsize=1024)
def _units(device: int, terms: Terms, tops: tuple[bool, ...]) -> Launch:
    sides = [((*side, 0 if of else EMPTY_TOP), (None, None)) for side, of in zip(_sides(terms), tops, strict=True)]
    grid = (sum(ceil(rows / 256) for rows in terms.rounded),)
    return Launch("proof/proof.cu", "unit_terms", {}, grid, (256,), *sides[0], *sides[1])


def _sides(terms: Terms) -> list[tuple[int | None, ...]]:
    """The structs Side of both operands."""
    batches = terms.batch_a, terms.batch_b
    return [(None, *of) for of in zip(batches, terms.rows, terms.rounded, strict=True)]


@lru_cache(maxsize=1024)
def _finding_terms(device: int, terms: Terms, k: int, wanted: tuple[tuple[Scheme, float], ...]) -> Launch:
    each = []
    for scheme, lost in wanted:
        scaling = scaling_of(scheme, k)
        numbers = FIELDS.index(scaling.statistic), scaling.step, scaling.base, scaling.threshold, float(lost)
        each.append((*[None] * 5, *numbers))
    grid = sum(ceil(rows / 256) for rows in terms.rounded), len(wanted)
    return Launch(
        "proof/proof.cu",
        "error_terms",
        {},
        grid,
        (256,),
        *_sides(terms),
        _of_all(each),
        magnitude_bits(k),
        float(k),
        NO_SPAN,
    )


_AT_ONCE = 2
"""Schemes of a launch, as in kernels."""


def _some_at_once(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """As many as a launch takes."""
    for i in range(0, len(items), _AT_ONCE):
        yield items[i : i + _AT_ONCE]


def _of_all(each: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    """A struct of _AT_ONCE structs."""
    return *each, *[(0,) * len(each[0])] * (_AT_ONCE - len(each))


@lru_cache(maxsize=1024)
def _comparing(device: int, terms: Terms, wide: bool, padded: int, ld: int, rows: int) -> Launch:
    file, function, *each = (
        ("proof/proof_wide.cu", "worst_ratio_wide", 32, 256) if wide else ("proof/proof.cu", "worst_ratio", 128, 128)
    )
    grid = (max(terms.batch_a, terms.batch_b) * ceil(rows / each[0]) * ceil(terms.n / each[1]),)
    return Launch(file, function, {}, grid, (256,), None, *terms.structs, None, ld, padded, terms.n, rows)


@lru_cache(maxsize=1024)
def _multiplying(
    device: int, terms: Terms, left: tuple[int, int, int], right: tuple[int, int, int], rows: tuple[int, ...]
) -> Launch:
    operands = [(None, 0, x[1] * x[2] if x[0] > 1 else 0) for x in (left, right)]
    blocks = left[2] // 128
    of_looks = *rows, *[0] * (_AT_ONCE - len(rows))
    grid, _, *walk = tiles_of(device, 1, max(left[0], right[0]), of_looks, terms.n, blocks)
    looks = _of_all([(*terms.structs, None, each) for each in rows])
    return Launch(
        "proof/proof_gemm_sm90.cu", "proof_gemm", {}, (grid,), (384,), *operands, looks, blocks, blocks, *walk,
        shared_mem=SHARED,
    )  # fmt: skip
