"""Componentwise proofs: lower bounds of abs(A) abs(B), and the worst ratio of an error to them (docs/bounds.md, B7)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
from ozaki.backends.cupy.steps.gemm import FP64, INT8, gemms
from ozaki.backends.cupy.steps.magnitudes import RESULT, MagnitudeLayout, Magnitudes, magnitudes, results
from ozaki.backends.cupy.steps.operands import Described
from ozaki.backends.cupy.steps.terms import Terms
from ozaki.backends.panels import Panels
from ozaki.bounds.description import FIELDS, LEAST_LEADING, NO_SPAN
from ozaki.bounds.exact import ErrorTerms
from ozaki.bounds.levels import NARROW_BITS
from ozaki.caches import cached
from ozaki.planning.facts import Ratio
from ozaki.schemes import Scaling, Scheme, magnitude_bits
from ozaki.schemes.image import EMPTY_TOP

T = TypeVar("T")


def proof_workspace(device: Device, level: str, left: tuple[int, ...], right: tuple[int, ...], parts: int) -> int:
    """Bytes held while the worst ratios of a level are found for operands of these shapes (batch, rows, k).

    `parts`: real numbers of an element.
    """
    m, n, k = left[1], right[1], left[2]
    layout = MagnitudeLayout.of(device, level, m, n, k, parts)
    of_element, of_entry = (8, 8) if level == "wide" else (1, 4)
    elements = (left[0] * layout.rows[0] + right[0] * layout.rows[1]) * layout.k
    entries = max(left[0], right[0]) * m * layout.rows[1] if not layout.in_tiles else 0
    terms = Terms.of(left, right).nbytes
    return of_element * elements + of_entry * entries + _PER_LAUNCH * terms


def panels_of(device: Device, level: str, left: Array, right: Array, limit: int | None) -> Panels:
    """The panels of operands, shapes (batch, rows, k); `limit`: bytes, or None for one panel of everything."""
    (batch_a, m, k), (batch_b, n, _), parts = left.shape, right.shape, left.dtype.parts

    def workspace(batch: int, rows: int, columns: int) -> int:
        return proof_workspace(device, level, (min(batch, batch_a), rows, k), (min(batch, batch_b), columns, k), parts)

    return Panels((max(batch_a, batch_b), m, n), workspace, limit)


@dataclass(frozen=True)
class Lower:
    """A lower bound of (abs(A) abs(B))_ij: exact products of magnitudes, or the magnitudes alone.

    Attributes
    ----------
    magnitudes : magnitudes of both operands
    products : their products, int32 for 7-bit magnitudes, else float64, [batch][m][columns or more]; None where
        comparing kernels form them in registers
    """

    magnitudes: Magnitudes
    products: Array | None

    @property
    def wide(self) -> bool:
        """Whether the magnitudes have more than `NARROW_BITS` bits, so that products are float64."""
        return self.magnitudes.layout.bits > NARROW_BITS

    def result(self, b: Builder) -> Place:
        """A place for the result of one proof, zeroed, which no other proof gets."""
        return self.magnitudes.results.pop() if self.magnitudes.results else results(b, 1)[0]

    def release(self, b: Builder) -> None:
        """Free the magnitudes and products; no comparison with them may be under way on another stream."""
        b.release(self.magnitudes.left, self.magnitudes.right)
        if self.products is not None:
            b.release(self.products)


def lower_bound(b: Builder, device: Device, left: Described, right: Described, level: str) -> Lower:
    """Begin the lower bound of a level, on the builder's stream; for the wide one cuBLAS must not emulate float64."""
    m = left.x.shape[1]
    found = magnitudes(b, device, left, right, level)
    if found.layout.in_tiles:
        return Lower(found, None)
    batch, ld = max(found.left.shape[0], found.right.shape[0]), found.right.shape[1]
    types = FP64 if level == "wide" else INT8
    products = b.array("lower", (batch, m, ld), types.product_char)
    _multiply(b, types, found, products)
    if level == "wide":
        known = tuple(_LEAST if of.tops is None else LEAST_LEADING for of in (left, right))
        scaled = left.inner is not None
        kernel = _exponents_kernel(left.x.view, right.x.view, known, m, ld, 2 * found.layout.bits, scaled)
        places = [place for of in (left, right) for place in (of.x, of.fields, of.inner) if place is not None]
        b.launch(kernel, *places, Out(products))
    return Lower(found, products)


def _multiply(b: Builder, types: GemmTypes, of: Magnitudes, products: Array) -> None:
    """Add the products of the magnitudes of both operands, by cuBLAS."""
    x, y = of.left, of.right
    batch, m, ld = products.shape
    k = x.shape[2]
    step_x, step_y = (each.shape[1] * k if each.shape[0] > 1 else 0 for each in (x, y))
    gemms(b, types, (x.at, y.at, products.at), (m, ld, k), (k, k, ld), batch, (step_x, step_y, m * ld))


@cached(1024)
def _exponents_kernel(
    left: View, right: View, known: tuple[int, ...], padded: int, ld: int, raised: int, scaled: bool
) -> Kernel:
    """`known`: the least exponents that elements of both operands are known to have, relative to their row's top."""
    macros: Macros = {
        "INPUT_A": left.dtype.ctype_of_part,
        "INPUT_B": right.dtype.ctype_of_part,
        "REALS": left.dtype.parts,
    }
    factors: tuple[None, ...] = ()
    if scaled:
        macros, factors = macros | {"INNER": 1}, (None,)
    operands = []
    for view, least in zip((left, right), known, strict=True):
        (batch, rows, _), steps = view.shape, view.steps_of_parts
        numbers = rows, *((rows, steps[0]) if batch > 1 else (0, 0)), *steps[1:], least
        operands.append((None, None, *numbers, *factors))
    tiles = [ceil(view.shape[1] / 64) for view in (left, right)]
    grid = (max(left.shape[0], right.shape[0]) * tiles[0] * tiles[1],)
    sizes = left.shape[2], padded, ld
    return Kernel.of(
        "proof/proof_exponents.cu", "lower_by_exponents", macros, grid, (256,), *operands, None, *sizes, raised
    )


_LEAST = -(2**30)
"""Below all exponents of floating-point numbers."""


class Wanted(NamedTuple):
    """One comparison with a lower bound: of the errors of a scheme, in the first rows of each matrix of A.

    Attributes
    ----------
    scheme : Digits or Residues, whose error terms the device computes; or the error terms, computed by the host
    rows : the number of rows that are compared
    dropped : the largest worth of the digit pairs that are left out of an entry, in image units
    """

    scheme: Scheme | ErrorTerms
    rows: int
    dropped: float


def worst_ratios(
    b: Builder, device: Device, lower: Lower, left: Described, right: Described, wanted: Sequence[Wanted]
) -> list[Evidence]:
    """Begin to find the largest error / lower bound for each of `wanted`; the evidence is a `Ratio` each.

    The steps are on the builder's stream, but for the copies to the host, which are on "to_host". The spans of a
    `Ratio` are found for digits and residues only; where error terms come from the host, they mean nothing.
    """
    terms = Terms.of(left.x.shape, right.x.shape)
    found: list[_Comparison] = []
    memory: list[Place] = []
    on_device: list[tuple[tuple[Scaling, float], _Comparison]] = []
    for scheme, rows, dropped in wanted:
        memory.append(b.buffer("error terms", terms.nbytes))
        found.append(_Comparison(terms, rows, terms.places(memory[-1]), lower.result(b)))
        if isinstance(scheme, ErrorTerms):
            b.add(Upload(b.stream, terms.from_host(scheme).tobytes(), memory[-1]))
        else:
            on_device.append(((left.scaling(scheme), dropped), found[-1]))
    for some in _launch_groups(on_device):
        scalings, places = zip(*some, strict=True)
        b.launch(
            _error_terms_kernel(terms, left.k, scalings), left.fields, right.fields, *map(Out, _all_places(places))
        )
    _compare(b, device, lower, found)
    b.release(*memory)
    with b.on("to_host", fork=True):
        return [_ratio(b, each.result) for each in found]


def least_product(b: Builder, device: Device, lower: Lower, left: Described, right: Described) -> Evidence:
    """Begin to find the least entry of the first level's lower bound among rows that are not all zeros.

    The evidence is a float in units of 2**(top_i + top_j); inf if there are no two such rows.
    """
    terms = Terms.of(left.x.shape, right.x.shape)
    memory = b.buffer("unit terms", terms.nbytes)
    found = _Comparison(terms, terms.m, terms.places(memory), lower.result(b))
    places = [Out(place) for place in found.places]
    b.launch(
        _units_kernel(terms, (left.only_largest, right.only_largest)),
        left.fields,
        *places[:2],
        right.fields,
        *places[2:],
    )
    _compare(b, device, lower, [found])
    b.release(memory)
    arrival = b.to_host("least product", found.result, (RESULT.size,), "B")

    def least(raw: npt.NDArray[Any]) -> float:
        worst, *_ = RESULT.unpack(raw.data)
        return round(1 / worst) * 4.0**-NARROW_BITS if worst else inf

    return b.evidence(arrival, least)


def _ratio(b: Builder, result: Place) -> Evidence:
    """Begin to copy a result to the host, on the builder's stream; the evidence is a `Ratio`."""
    arrival = b.to_host("worst ratio", result, (RESULT.size,), "B")

    def ratio(raw: npt.NDArray[Any]) -> Ratio:
        worst, left, right, spare = RESULT.unpack(raw.data)
        return Ratio(worst, (left, right), NO_SPAN - spare)

    return b.evidence(arrival, ratio)


class _Comparison(NamedTuple):
    """One comparison on the device.

    Attributes
    ----------
    terms : the sizes of the operands
    rows : the number of rows that are compared
    places : the addresses of error terms, as `Terms.places` returns them
    result : where the worst ratio goes
    """

    terms: Terms
    rows: int
    places: list[Place]
    result: Place


def _all_places(found: Sequence[_Comparison]) -> list[Place]:
    return [place for each in found for place in (*each.places, each.result)]


def _compare(b: Builder, device: Device, lower: Lower, found: list[_Comparison]) -> None:
    """Add the launches that compare error terms with the lower bound."""
    if lower.products is not None:
        for each in found:
            kernel = _compare_kernel(each.terms, lower.wide, *lower.products.shape[1:], each.rows)
            b.launch(kernel, lower.products, *each.places, Out(each.result))
        return
    left, right = lower.magnitudes.left, lower.magnitudes.right
    found = sorted(found, key=lambda each: each.rows)  # so that a launch does the fewest rows, and tiles, first
    for some in _launch_groups(found):
        kernel = _proof_gemm_kernel(device, some[0].terms, left.shape, right.shape, tuple(each.rows for each in some))
        places: list[Place | Out] = []
        for each in some:
            places += [*each.places, Out(each.result)]
        b.launch(kernel, left, right, *places)


@cached(1024)
def _units_kernel(terms: Terms, tops: tuple[bool, ...]) -> Kernel:
    sides = [((*side, 0 if of else EMPTY_TOP), (None, None)) for side, of in zip(_sides(terms), tops, strict=True)]
    grid = (sum(ceil(rows / 256) for rows in terms.rounded),)
    return Kernel.of("proof/proof.cu", "unit_terms", {}, grid, (256,), *sides[0], *sides[1])


def _sides(terms: Terms) -> list[tuple[int | None, ...]]:
    """The structs Side of both operands."""
    batches = terms.batch_a, terms.batch_b
    return [(None, *of) for of in zip(batches, terms.rows, terms.rounded, strict=True)]


@cached(1024)
def _error_terms_kernel(terms: Terms, k: int, wanted: tuple[tuple[Scaling, float], ...]) -> Kernel:
    each = []
    for scaling, lost in wanted:
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
        _filled_up(each),
        magnitude_bits(k),
        float(k),
        NO_SPAN,
    )


_PER_LAUNCH = 2
"""The most comparisons of a launch, as in kernels/proof."""


def _launch_groups(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield the items in groups that one launch takes."""
    for i in range(0, len(items), _PER_LAUNCH):
        yield items[i : i + _PER_LAUNCH]


def _filled_up(each: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    """A struct of `_PER_LAUNCH` structs, of which zeros fill those that are not needed."""
    return *each, *[(0,) * len(each[0])] * (_PER_LAUNCH - len(each))


@cached(1024)
def _compare_kernel(terms: Terms, wide: bool, padded: int, ld: int, rows: int) -> Kernel:
    file, function, *each = (
        ("proof/proof_wide.cu", "worst_ratio_wide", 32, 256) if wide else ("proof/proof.cu", "worst_ratio", 128, 128)
    )
    grid = (max(terms.batch_a, terms.batch_b) * ceil(rows / each[0]) * ceil(terms.n / each[1]),)
    return Kernel.of(file, function, {}, grid, (256,), None, *terms.structs, None, ld, padded, terms.n, rows)


@cached(1024)
def _proof_gemm_kernel(
    device: Device, terms: Terms, left: tuple[int, ...], right: tuple[int, ...], rows: tuple[int, ...]
) -> Kernel:
    operands = [(None, 0, x[1] * x[2] if x[0] > 1 else 0) for x in (left, right)]
    blocks = left[2] // device.tiles.depth
    of_each = *rows, *[0] * (_PER_LAUNCH - len(rows))
    grid, _, *walk = work_of(device, 1, max(left[0], right[0]), of_each, terms.n, blocks)
    compared = _filled_up([(*terms.structs, None, each) for each in rows])
    return Kernel.of(
        "proof/proof_gemm_sm90.cu", "proof_gemm", {}, (grid,), (384,), *operands, compared, blocks, blocks, *walk,
        shared_mem=device.tiles.shared_mem,
    )  # fmt: skip
