"""The proof's products of magnitudes, and the worst ratio of an error to them (docs/bounds.md, B7)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, inf
from typing import Any, NamedTuple, TypeVar

import numpy.typing as npt

from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.program.arrays import Array, Place, View
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel, Macros
from ozaki.backends.cupy.program.program import Evidence
from ozaki.backends.cupy.program.steps import GemmTypes, Out, Upload
from ozaki.backends.cupy.steps.engines.fused_residues import work_of
from ozaki.backends.cupy.steps.engines.tiled import tiles_of
from ozaki.backends.cupy.steps.gemm import FP64, INT8, gemms
from ozaki.backends.cupy.steps.magnitudes import RESULT, MagnitudeLayout, Magnitudes, magnitudes, results
from ozaki.backends.cupy.steps.operands import Described
from ozaki.backends.cupy.steps.terms import Terms
from ozaki.bounds.description import FIELDS, NO_SPAN
from ozaki.bounds.exact import ErrorTerms
from ozaki.bounds.levels import NARROW_BITS
from ozaki.planning.facts import Ratio
from ozaki.schemes import Scheme, magnitude_bits, scaling_of
from ozaki.schemes.image import EMPTY_TOP

T = TypeVar("T")


def proof_workspace(device: Device, level: str, left: tuple[int, ...], right: tuple[int, ...]) -> int:
    """Bytes held while the worst ratios of a level are found for operands of these shapes (batch, rows, k)."""
    m, n, k = left[1], right[1], left[2]
    layout = MagnitudeLayout.of(device, level, m, n, k)
    of_element, of_entry = (8, 8) if level == "wide" else (1, 4)
    elements = (left[0] * layout.rows[0] + right[0] * layout.rows[1]) * layout.k
    entries = max(left[0], right[0]) * m * layout.rows[1] if not layout.in_tiles else 0
    terms = Terms(left[0], m, right[0], n).nbytes
    return of_element * elements + of_entry * entries + _AT_ONCE * terms


@dataclass(frozen=True)
class Lower:
    """A lower bound of (abs(A) abs(B))_ij: exact products of magnitudes, or what a kernel needs to form them.

    Attributes
    ----------
    magnitudes : of both operands
    products : int32 (of 7 bits) or float64 (wider), [batch][m][columns]; None where they never reach memory
    """

    magnitudes: Magnitudes
    products: Array | None

    @property
    def wide(self) -> bool:
        """Whether the magnitudes are."""
        return self.magnitudes.layout.bits > NARROW_BITS

    def result(self, b: Builder) -> Place:
        """Where a result goes, which is zero."""
        return self.magnitudes.results.pop() if self.magnitudes.results else results(b, 1)[0]

    def release(self, b: Builder) -> None:
        """Free it; what its products were compared for may not be under way on another stream."""
        b.release(self.magnitudes.left, self.magnitudes.right)
        if self.products is not None:
            b.release(self.products)


def lower_bound(
    b: Builder, device: Device, left: Described, right: Described, level: str,
    on_host: Callable[[Array, Array], npt.NDArray[Any]] | None = None,
) -> Lower:  # fmt: skip
    """The lower bound of a level, on the builder's stream.

    `on_host`: multiplies the magnitudes of the last level on the host, where cuBLAS may not add exactly.
    """
    m = left.x.shape[1]
    found = magnitudes(b, device, left, right, level)
    if found.layout.in_tiles:
        return Lower(found, None)
    batch, ld = max(found.left.shape[0], found.right.shape[0]), found.right.shape[1]
    types = FP64 if level == "wide" else INT8
    products = b.array("lower", (batch, m, ld), types.product_char)
    if level == "wide" and on_host is not None:
        b.add(Upload(b.stream, on_host(found.left, found.right).tobytes(), products.at))
    else:
        _multiply(b, types, found, products)
    if level == "wide":
        kernel = _bounding_by_exponents(left.x.view, right.x.view, m, ld, 2 * found.layout.bits)
        b.launch(kernel, left.x, left.fields, right.x, right.fields, Out(products.at))
    return Lower(found, products)


def _multiply(b: Builder, types: GemmTypes, of: Magnitudes, products: Array) -> None:
    x, y = of.left, of.right
    batch, m, ld = products.shape
    k = x.shape[2]
    step_x, step_y = (each.shape[1] * k if each.shape[0] > 1 else 0 for each in (x, y))
    gemms(b, types, (x.at, y.at, products.at), (m, ld, k), (k, k, ld), batch, (step_x, step_y, m * ld))


@lru_cache(maxsize=1024)
def _bounding_by_exponents(left: View, right: View, padded: int, ld: int, raised: int) -> Kernel:
    macros: Macros = {"INPUT_A": left.ctype, "INPUT_B": right.ctype}
    operands = []
    for batch, rows, _, *steps in ((*view.shape, *view.steps) for view in (left, right)):
        operands.append((None, None, rows, *((rows, steps[0]) if batch > 1 else (0, 0)), *steps[1:]))
    tiles = [ceil(view.shape[1] / 64) for view in (left, right)]
    grid = (max(left.shape[0], right.shape[0]) * tiles[0] * tiles[1],)
    sizes = left.shape[2], padded, ld
    return Kernel.of(
        "proof/proof_exponents.cu", "lower_by_exponents", macros, grid, (256,), *operands, None, *sizes, raised
    )


class Wanted(NamedTuple):
    """What is compared with a lower bound: the errors of a scheme in the first rows of each matrix.

    Attributes
    ----------
    scheme : Digits or Residues, whose error terms the device works out; or those terms, from the host
    rows : so many
    dropped : worth of the digit pairs that are left out of an entry, in image units
    """

    scheme: Scheme | ErrorTerms
    rows: int
    dropped: float


def worst_ratios(
    b: Builder, device: Device, lower: Lower, left: Described, right: Described, wanted: Sequence[Wanted]
) -> list[Evidence]:
    """Begin to find the largest error / lower bound of each: `Ratio`s, whose spans are those that the device found.

    On the builder's stream; what is found goes to the host on that of answers. Spans are found for digits and residues
    alone.
    """
    terms = Terms.of(left.x, right.x)
    found: list[_Found] = []
    memory: list[Place] = []
    on_device: list[tuple[tuple[Scheme, float], _Found]] = []
    for scheme, rows, dropped in wanted:
        memory.append(b.buffer("error terms", terms.nbytes))
        found.append(_Found(terms, rows, terms.places(memory[-1]), lower.result(b)))
        if isinstance(scheme, ErrorTerms):
            b.add(Upload(b.stream, terms.from_host(scheme).tobytes(), memory[-1]))
        else:
            on_device.append(((scheme, dropped), found[-1]))
    for some in _some_at_once(on_device):
        schemes, places = zip(*some, strict=True)
        b.launch(_finding_terms(terms, left.k, schemes), left.fields, right.fields, *map(Out, _addresses(places)))
    _compare(b, device, lower, found)
    b.release(*memory)
    with b.on("answers", fork=True):
        return [_ratio(b, each.result) for each in found]


def least_product(b: Builder, device: Device, lower: Lower, left: Described, right: Described) -> Evidence:
    """Begin to find the least lower bound of the first level, of rows that are not all zeros.

    In units of 2**(top_i + top_j); inf if there are no two such rows.
    """
    terms = Terms.of(left.x, right.x)
    memory = b.buffer("unit terms", terms.nbytes)
    found = _Found(terms, terms.m, terms.places(memory), lower.result(b))
    places = [Out(place) for place in found.places]
    b.launch(_units(terms, (left.largest, right.largest)), left.fields, *places[:2], right.fields, *places[2:])
    _compare(b, device, lower, [found])
    b.release(memory)
    arrival = b.to_host("least product", found.result, (RESULT.size,), "B")

    def least(raw: npt.NDArray[Any]) -> float:
        worst, *_ = RESULT.unpack(raw.data)
        return round(1 / worst) * 4.0**-NARROW_BITS if worst else inf

    return b.evidence(arrival, least)


def _ratio(b: Builder, result: Place) -> Evidence:
    """Begin to copy a result to the host: a `Ratio`."""
    arrival = b.to_host("worst ratio", result, (RESULT.size,), "B")

    def ratio(raw: npt.NDArray[Any]) -> Ratio:
        worst, left, right, spare = RESULT.unpack(raw.data)
        return Ratio(worst, (left, right), NO_SPAN - spare)

    return b.evidence(arrival, ratio)


class _Found(NamedTuple):
    """Error terms on the device, the rows to compare, and where the worst ratio there goes."""

    terms: Terms
    rows: int
    places: list[Place]
    result: Place


def _addresses(found: Sequence[_Found]) -> list[Place]:
    return [place for each in found for place in (*each.places, each.result)]


def _compare(b: Builder, device: Device, lower: Lower, found: list[_Found]) -> None:
    if lower.products is not None:
        for each in found:
            kernel = _comparing(each.terms, lower.wide, *lower.products.shape[1:], each.rows)
            b.launch(kernel, lower.products, *each.places, Out(each.result))
        return
    left, right = lower.magnitudes.left, lower.magnitudes.right
    found = sorted(found, key=lambda each: each.rows)  # so that those of few rows, which take few tiles, come first
    for some in _some_at_once(found):
        kernel = _multiplying(device, some[0].terms, left.shape, right.shape, tuple(each.rows for each in some))
        places: list[Place | Out] = []
        for each in some:
            places += [*each.places, Out(each.result)]
        b.launch(kernel, left, right, *places)


@lru_cache(maxsize=1024)
def _units(terms: Terms, tops: tuple[bool, ...]) -> Kernel:
    sides = [((*side, 0 if of else EMPTY_TOP), (None, None)) for side, of in zip(_sides(terms), tops, strict=True)]
    grid = (sum(ceil(rows / 256) for rows in terms.rounded),)
    return Kernel.of("proof/proof.cu", "unit_terms", {}, grid, (256,), *sides[0], *sides[1])


def _sides(terms: Terms) -> list[tuple[int | None, ...]]:
    """The structs Side of both operands."""
    batches = terms.batch_a, terms.batch_b
    return [(None, *of) for of in zip(batches, terms.rows, terms.rounded, strict=True)]


@lru_cache(maxsize=1024)
def _finding_terms(terms: Terms, k: int, wanted: tuple[tuple[Scheme, float], ...]) -> Kernel:
    each = []
    for scheme, lost in wanted:
        scaling = scaling_of(scheme, k)
        numbers = FIELDS.index(scaling.statistic), scaling.step, scaling.base, scaling.threshold, float(lost)
        each.append((*[None] * 5, *numbers))
    grid = sum(ceil(rows / 256) for rows in terms.rounded), len(wanted)
    return Kernel.of(
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
def _comparing(terms: Terms, wide: bool, padded: int, ld: int, rows: int) -> Kernel:
    file, function, *each = (
        ("proof/proof_wide.cu", "worst_ratio_wide", 32, 256) if wide else ("proof/proof.cu", "worst_ratio", 128, 128)
    )
    grid = (max(terms.batch_a, terms.batch_b) * ceil(rows / each[0]) * ceil(terms.n / each[1]),)
    return Kernel.of(file, function, {}, grid, (256,), None, *terms.structs, None, ld, padded, terms.n, rows)


@lru_cache(maxsize=1024)
def _multiplying(
    device: Device, terms: Terms, left: tuple[int, ...], right: tuple[int, ...], rows: tuple[int, ...]
) -> Kernel:
    operands = [(None, 0, x[1] * x[2] if x[0] > 1 else 0) for x in (left, right)]
    blocks = left[2] // tiles_of(device).depth
    of_each = *rows, *[0] * (_AT_ONCE - len(rows))
    grid, _, *walk = work_of(device, 1, max(left[0], right[0]), of_each, terms.n, blocks)
    compared = _of_all([(*terms.structs, None, each) for each in rows])
    return Kernel.of(
        "proof/proof_gemm_sm90.cu", "proof_gemm", {}, (grid,), (384,), *operands, compared, blocks, blocks, *walk,
        shared_mem=tiles_of(device).shared_mem,
    )  # fmt: skip
