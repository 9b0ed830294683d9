"""Programs that find facts about the operands of a product, and that split them for a likely plan meanwhile."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from ozaki.backends.cupy import evidence
from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.inputs import Inputs
from ozaki.backends.cupy.program.arrays import Array, Place
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.program import Evidence, Program
from ozaki.backends.cupy.program.steps import Stream
from ozaki.backends.cupy.steps.describing import describe, description_on_host
from ozaki.backends.cupy.steps.engines.choice import engine_of, panel_of, word_engine
from ozaki.backends.cupy.steps.engines.engine import Engine
from ozaki.backends.cupy.steps.inner import Factors, inner_factors, inner_range
from ozaki.backends.cupy.steps.magnitudes import Magnitudes, room_for_one_read
from ozaki.backends.cupy.steps.numbers import describe_numbers, leading_bytes
from ozaki.backends.cupy.steps.operands import Described, Slices
from ozaki.backends.cupy.steps.overlap import overlap
from ozaki.backends.cupy.steps.product import split_in_one_read
from ozaki.backends.cupy.steps.proof import Lower, Wanted, least_product, lower_bound, panels_of, worst_ratios
from ozaki.backends.cupy.steps.sample import sample
from ozaki.backends.cupy.steps.unrounded import Symmetry
from ozaki.backends.panels import Panel, Panels
from ozaki.bounds.description import Description
from ozaki.bounds.levels import FEW_ROWS, Level, levels
from ozaki.bounds.of_scheme import error_terms
from ozaki.planning.facts import (
    CutBound,
    InnerRange,
    LeastProduct,
    NativeInRange,
    Need,
    Overlap,
    RowsBound,
    Sample,
    Spans,
    WorstRatio,
)
from ozaki.records.plan import Plan
from ozaki.records.shapes import SIDES, Side
from ozaki.schemes import Scheme, Words


class EarlySlices(NamedTuple):
    """Slices or words of both operands, made before the plan is known."""

    scheme: Scheme | Words
    engine: Engine
    left: Slices
    right: Slices


class OpenLevel(NamedTuple):
    """The lower bound of a level of proof, of all entries, that later programs may compare with."""

    level: Level
    stream: Stream
    lower: Lower


@dataclass(frozen=True)
class Made:
    """What the programs of a call so far keep in device memory for later ones.

    Attributes
    ----------
    described : whole descriptions of operands
    on_host : the descriptions that arrive, or have arrived, on the host
    early : slices made before the plan is known, or None
    open : the lower bound of the last level of proof, or None
    spans : evidence of a `Ratio`, which has the spans of the operands; None if there is none yet
    scaled : the same of the rows scaled along k, whose slices are never made early; None if nothing was asked of them
    factors : of the inner indices of such rows; None of rows as they are, and until they are found
    """

    described: Mapping[Side, Described] = field(default_factory=dict)
    on_host: Mapping[Side, Evidence] = field(default_factory=dict)
    early: EarlySlices | None = None
    open: OpenLevel | None = None
    spans: Evidence | None = None
    scaled: Made | None = None
    factors: Factors | None = None

    @classmethod
    def of(cls, inputs: Inputs) -> Made:
        """What is there before the first program: the descriptions of prepared operands."""
        return cls({side: slices.described for side, slices in inputs.prepared.items()})

    @property
    def arrays(self) -> list[Array | Place]:
        """All arrays that are kept, with repetitions."""
        described = [*self.described.values()]
        kept: list[Array | Place] = []
        magnitudes: list[Magnitudes] = []
        if self.early is not None:
            for slices in (self.early.left, self.early.right):
                described.append(slices.described)
                kept += slices.planes, slices.mu
        for of in described:
            kept += of.x, of.fields
            if of.tops is not None:
                kept.append(of.tops)
            if of.magnitudes is not None:
                magnitudes.append(of.magnitudes)
        if self.open is not None:
            magnitudes.append(self.open.lower.magnitudes)
            if self.open.lower.products is not None:
                kept.append(self.open.lower.products)
        for each in magnitudes:
            kept += each.left, each.right, *each.results
        kept += self.factors or ()
        return kept + (self.scaled.arrays if self.scaled is not None else [])

    def beside_leading(self, limit: int | None, inputs: Inputs) -> int | None:
        """What a limit leaves beside the leading bits of multiprecision operands that are still to be described."""
        if limit is None:
            return None
        missing = (of.signs.size for side, of in inputs.numbers.items() if side not in self.described)
        return max(limit - sum(map(leading_bytes, missing)), 0)

    def without_slices(self, b: Builder) -> Made:
        """Free early slices, and the largest elements that were found with them; whole descriptions stay."""
        if self.early is not None:
            for slices in (self.early.left, self.early.right):
                b.release(slices.planes, slices.mu)
                if slices.described.only_largest:
                    b.release(slices.described.fields)
        return replace(self, early=None)

    def without_products(self) -> Made:
        """What stays when a product has used early slices and lower bounds, or their memory is freed."""
        scaled = None if self.scaled is None else self.scaled.without_products()
        return replace(self, early=None, open=None, scaled=scaled)

    def without_magnitudes(self) -> Made:
        """Descriptions alone."""
        scaled = None if self.scaled is None else self.scaled.without_magnitudes()
        described = {side: replace(of, magnitudes=None) for side, of in self.described.items()}
        return replace(self, described=described, early=None, open=None, scaled=scaled)

    def without_level(self, b: Builder) -> Made:
        """Free the lower bound; no comparison with it may be under way on another stream."""
        scaled = None if self.scaled is None else self.scaled.without_level(b)
        if self.open is None:
            return replace(self, scaled=scaled)
        self.open.lower.release(b)
        described = {side: replace(of, magnitudes=None) for side, of in self.described.items()}
        return replace(self, open=None, described=described, scaled=scaled)


class Asked(NamedTuple):
    """What a program of facts is to find, and what is known for that.

    Attributes
    ----------
    needs : the facts, in the order in which they are asked for
    likely : the plan of slices that both operands are split for before the first proof; None to split nothing
    describe : whether to describe both operands
    bring : operands whose descriptions are to arrive on the host
    of_scaled : whether both speak of the rows scaled along k
    sampled : words that lose part of an element, so that their `CutBound` asks for a sample
    descriptions : of both operands, or of their scaled rows where facts of these are asked for, if they are on the host
        already, as error terms that are computed there ask for
    limit : most bytes of workspace, beside what is made already; None for any
    dtype : the format of the result
    """

    needs: Sequence[Need]
    dtype: str
    likely: Plan | None = None
    describe: bool = False
    bring: Sequence[Side] = ()
    of_scaled: bool = False
    sampled: Collection[Words] = ()
    descriptions: tuple[Description, Description] | None = None
    limit: int | None = None


def facts_program(inputs: Inputs, device: Device, asked: Asked, made: Made) -> tuple[Program, Made]:
    """The program that finds facts, and what is made for later programs when it has run.

    `made` is what earlier programs of the call have made. Facts have readers in the program, by their needs.
    """
    finding = _Finding(inputs, device, asked, made, Builder(inputs.buffers))
    scaled = _Finding(inputs, device, asked, made.scaled or Made(), finding.b, inner_scaling=True)
    likely = asked.likely
    for need in asked.needs:
        if isinstance(need, InnerRange) or getattr(need, "inner_scaling", False):
            scaled.add(need)
            continue
        if likely is not None and isinstance(need, WorstRatio | RowsBound):
            finding.begin([each for each in asked.needs if each.of_proof(need)], likely)
            likely = None
        finding.add(need)
    if asked.describe:
        (scaled if asked.of_scaled else finding).both()
    for side in asked.bring:
        (scaled if asked.of_scaled else finding).description(side)
    found = replace(finding.made, scaled=scaled.made if scaled.made != Made() else None)
    return finding.b.program(keeps=found.arrays), found


def scaled_rows(b: Builder, inputs: Inputs, factors: Factors | None) -> tuple[Described, Described]:
    """Both operands, described as rows scaled along k; without factors as they are, and prepared ones as those are."""
    left, right = (None, None) if factors is None else (factors.left, factors.right)

    def scaled(side: Side, inner: Array | None) -> Described:
        prepared = inputs.prepared.get(side)
        return prepared.described if prepared is not None else describe(b, inputs.rows_given[side], inner)

    return scaled("left", left), scaled("right", right)


def needs_descriptions(need: Need) -> bool:
    """Whether the host computes the error terms of a ratio from descriptions, which it needs first."""
    return isinstance(need, WorstRatio) and (isinstance(need.scheme, Words) or need.exponent != 0)


def engine_for(
    device: Device, plan: Plan, inputs: Inputs, combined: bool = False, with_addend: bool = False
) -> Engine:  # fmt: skip
    """The engine that multiplies the operands by a plan of slices or words.

    `combined`: it rounds alpha A B + beta C once; `with_addend`: where beta is not zero.
    """
    views = inputs.views
    symmetry: Symmetry | None = "hermitian" if views.adjoint else "symmetric" if views.itself else None
    return engine_of(device, plan, inputs.multiprecision, combined, None if with_addend else symmetry)


class _Finding:
    """A program of facts while it is built.

    Attributes
    ----------
    b : Builder
    made : what the steps so far make for later programs
    """

    def __init__(
        self, inputs: Inputs, device: Device, asked: Asked, made: Made, b: Builder, inner_scaling: bool = False
    ) -> None:
        """Begin with what earlier programs have made; `inner_scaling`: of the rows scaled along k."""
        self._inputs, self._device, self._asked, self._inner_scaling = inputs, device, asked, inner_scaling
        self.b, self.made = b, made
        self._stream: Stream = "main" if made.open is None else made.open.stream

    # Descriptions -----------------------------------------------------------------------------------------------------

    def _describe(self, side: Side) -> Described:
        """The whole description of an operand; adds the steps that compute it if there are none yet."""
        if side not in self.made.described and self._inner_scaling:
            left, right = scaled_rows(self.b, self._inputs, self._factors())
            self.made = replace(self.made, described={"left": left, "right": right})
        if side not in self.made.described:
            inputs = self._inputs
            numbers = inputs.numbers.get(side)
            of = describe(self.b, inputs.rows_given[side]) if numbers is None else describe_numbers(self.b, numbers)
            self.made = replace(self.made, described={**self.made.described, side: of})
        return self.made.described[side]

    def _factors(self) -> Factors | None:
        """The factors of inner indices; None of a matrix beside itself."""
        if self.made.factors is None and not self._inputs.views.itself:
            rows = self._inputs.rows_given
            self.made = replace(self.made, factors=inner_factors(self.b, rows["left"], rows["right"]))
        return self.made.factors

    def both(self) -> tuple[Described, Described]:
        """The whole descriptions of both operands."""
        return self._describe("left"), self._describe("right")

    def _rows(self, side: Side) -> Array:
        """An operand as a stack of rows; of multiprecision numbers, and of prepared operands, the described ones."""
        given = self._inputs.rows_given.get(side)
        return self._describe(side).x if given is None else given

    def _both_rows(self) -> tuple[Array, Array]:
        return self._rows("left"), self._rows("right")

    def description(self, side: Side) -> Evidence:
        """The description of an operand on the host; the first call adds its copy, on the builder's stream."""
        if side not in self.made.on_host:
            of = description_on_host(self.b, self._describe(side))
            self.made = replace(self.made, on_host={**self.made.on_host, side: of})
        return self.made.on_host[side]

    def _descriptions(self) -> tuple[Evidence, Evidence]:
        return self.description("left"), self.description("right")

    @property
    def _limit(self) -> int | None:
        """Most bytes that a proof may hold, when the leading bits of multiprecision operands are there."""
        return self.made.beside_leading(self._asked.limit, self._inputs)

    # Facts ------------------------------------------------------------------------------------------------------------

    def add(self, need: Need) -> None:
        """Add the steps that bring a fact to the host, and register its reader, unless there is one."""
        b = self.b
        if b.reader(need) is not None:
            return
        match need:
            case Sample():
                b.read(need, (sample(b, *self._both_rows()),), evidence.unchanged)
            case Overlap():
                b.read(need, (overlap(b, *self._both_rows()),), evidence.unchanged)
            case NativeInRange():
                b.read(need, self._descriptions(), partial(evidence.native_in_range, dtype=self._asked.dtype))
            case InnerRange():
                factors = self._factors()
                found = () if factors is None else (inner_range(b, factors),)
                b.read(need, found, evidence.inner_range)
            case Spans() if self.made.spans is not None:
                b.read(need, (self.made.spans,), evidence.spans_of)
            case Spans():
                b.read(need, self._descriptions(), evidence.spans)
            case RowsBound(scheme, measure, exponent):
                bound = partial(evidence.rows_bound, scheme=scheme, measure=measure, exponent=exponent)
                b.read(need, self._descriptions(), bound)
            case CutBound(words):
                self._add_cut_bound(need, words)
            case LeastProduct():
                b.read(need, self._least_product(), evidence.least)
            case WorstRatio():
                self._begin_ratios([need])
            case _:
                raise TypeError(f"need: {need!r} is not known here")

    def begin(self, needs: Sequence[Need], plan: Plan) -> None:
        """Begin facts of one proof, and split both operands for a likely plan: the device would be idle otherwise.

        needs : all `WorstRatio` of one level, or all `RowsBound`
        """
        assert plan.scheme is not None and self._asked.limit is None
        b, ratios = self.b, [need for need in needs if isinstance(need, WorstRatio)]
        self.made = self.made.without_slices(b)
        engine = engine_for(self._device, plan, self._inputs)
        self._stream = "proof"
        if not self.made.described and self._fits_one_read(engine, plan.scheme, whole=True):
            room = room_for_one_read(b, self._device, *self._both_rows()) if ratios else None
            early = self._split_in_one_read(engine, plan.scheme, whole=True, magnitudes=room)
            described: dict[Side, Described] = {"left": early.left.described, "right": early.right.described}
            self.made = replace(self.made, described=described)
        left, right = self.both()
        if ratios:
            self._open(ratios[0].level)
        else:
            with b.on("to_host", fork=True):
                self._descriptions()
        if self.made.early is None and self._in_one_panel(engine, plan):
            x, y = (engine.split(b, of, side, plan.scheme) for of, side in zip((left, right), SIDES, strict=True))
            self.made = replace(self.made, early=EarlySlices(plan.scheme, engine, x, y))
        self._begin_ratios(ratios)

    def _in_one_panel(self, engine: Engine, plan: Plan) -> bool:
        """Whether the slices of whole operands fit the device."""
        (batch_a, m, _), (batch_b, n, _) = (x.shape for x in self._both_rows())
        return panel_of(engine, plan, (max(batch_a, batch_b), m, n)) == (m, n)

    def _fits_one_read(self, engine: Engine, scheme: Scheme | Words, whole: bool) -> bool:
        """Whether one kernel for each operand, which reads it once, splits both faster than two kernels do."""
        if self._inputs.multiprecision:
            return False
        return all(engine.splits_in_one_read(scheme, side, self._rows(side), whole) for side in SIDES)

    def _split_in_one_read(self, engine: Engine, scheme: Scheme | Words, whole: bool, **options: Any) -> EarlySlices:
        """Split both operands by one kernel each, which reads it once; `options` as of `split_in_one_read`."""
        left, right = (
            split_in_one_read(
                self.b, self._device, engine, scheme, self._rows(side), side, whole, overlaps=side == "right", **options
            )
            for side in SIDES
        )
        early = EarlySlices(scheme, engine, left, right)
        self.made = replace(self.made, early=early)
        return early

    def _add_cut_bound(self, need: CutBound, words: Words) -> None:
        """Add the steps for a `CutBound`, and register its reader.

        Where one kernel reads and cuts each operand, it cuts them now, and finds whether words lose part of an element;
        only of words that are known to, both operands are sampled. Elsewhere the bound follows from the descriptions of
        all rows.
        """
        b = self.b
        left, right = self._both_rows()
        (batch, m, k), n = left.shape, right.shape[1]
        early = self.made.early
        if early is not None and early.scheme == words and words in self._asked.sampled:
            found = sample(b, left, right, (early.left.described, early.right.described))
            b.read(need, (found,), partial(evidence.cut_bound, True, words=words, k=k))
            return
        self.made = self.made.without_slices(b)
        engine = word_engine(self._device, words, max(batch, right.shape[0]), m, k, n)
        may_cut = left.dtype.parts == 1 and self._asked.limit is None and not self.made.described  # of real rows
        if not may_cut or not self._fits_one_read(engine, words, whole=False):
            bound = partial(evidence.rows_bound, scheme=words, measure="componentwise")
            b.read(need, self._descriptions(), bound)
            return
        lost = b.cleared_on_host("lost", (1,), "I")
        early = self._split_in_one_read(engine, words, whole=False, lost=lost)
        of_read = [b.evidence(b.arrive(lost), evidence.flag_is_set)]
        if words in self._asked.sampled:
            of_read.append(sample(b, left, right, (early.left.described, early.right.described)))
        b.read(need, tuple(of_read), partial(evidence.cut_bound, words=words, k=k))

    # Worst ratios (docs/bounds.md, B7) --------------------------------------------------------------------------------

    def _open(self, level: Level) -> None:
        """Begin the lower bound of a level, unless it is the present one, whose lower bound is freed before that."""
        if self.made.open is not None and self.made.open.level == level:
            return
        self._close()
        left, right = self.both()
        with self.b.on(self._stream, fork=True):
            lower = lower_bound(self.b, self._device, left, right, level)
        self.made = replace(self.made, open=OpenLevel(level, self._stream, lower))

    def _close(self) -> None:
        """Free the lower bound; what a stream other than the main one touches shares its memory with nothing else."""
        self.made = self.made.without_level(self.b)

    def _begin_ratios(self, needs: Sequence[WorstRatio]) -> None:
        """Begin to find worst ratios, all of one level, and register their readers."""
        b = self.b
        new = [need for need in dict.fromkeys(needs) if b.reader(need) is None]
        if not new:
            return
        level = new[0].level
        left, right = self.both()
        panels = panels_of(self._device, level, left.x, right.x, self._limit)
        if not panels.one:
            self._close()
            self._begin_in_panels(panels, level, new)
            return
        self._open(level)
        assert self.made.open is not None
        m = left.x.shape[1]
        wanted = [self._wanted(need, min(m, FEW_ROWS) if need.few_rows else m) for need in new]
        with b.on(self.made.open.stream):
            found = worst_ratios(b, self._device, self.made.open.lower, left, right, wanted)
        for need, each in zip(new, found, strict=True):
            if needs_descriptions(need):
                b.read(need, (each, *self._descriptions()), evidence.ratio_with_spans)
            else:
                self.made = replace(self.made, spans=self.made.spans or each)
                b.read(need, (each,), evidence.unchanged)

    def _least_product(self) -> tuple[Evidence, ...]:
        """Begin to find the least entry of the first level's lower bound: one value for each panel."""
        b, device, early = self.b, self._device, self.made.early
        described = self.both() if early is None else (early.left.described, early.right.described)
        left, right = (replace(of, magnitudes=None) for of in described)
        level = levels(left.k)[0]
        if self.made.open is not None and self.made.open.level == level:
            with b.on(self.made.open.stream):
                return (least_product(b, device, self.made.open.lower, left, right),)
        self._close()
        found = []
        for _, x, y in self._in_panels(panels_of(device, level, left.x, right.x, self._limit), left, right):
            lower = lower_bound(b, device, x, y, level)
            found.append(least_product(b, device, lower, x, y))
            lower.release(b)
        return tuple(found)

    def _wanted(self, need: WorstRatio, rows: int, panel: Panel | None = None) -> Wanted:
        """What the device is to compare with the lower bound, in the first rows of A, or of a panel if one is given.

        The error terms of words, and those in units of another power of two than 1, are computed on the host.
        """
        k = self._describe("left").k
        dropped = k * need.scheme.drop if need.drops and not isinstance(need.scheme, Words) else 0.0
        if not needs_descriptions(need):
            assert not isinstance(need.scheme, Words)
            return Wanted(need.scheme, rows, dropped)
        assert self._asked.descriptions is not None
        left, right = self._asked.descriptions
        if panel is not None:
            left, right = (
                of.part(*(slice(*each) for each in panel.of(side, self._rows(side).shape[0])))
                for side, of in zip(SIDES, (left, right), strict=True)
            )
        return Wanted(error_terms(left, right, need.scheme, dropped, need.exponent), rows, 0.0)

    def _begin_in_panels(self, panels: Panels, level: Level, needs: Sequence[WorstRatio]) -> None:
        """Begin to find worst ratios in one panel after the other, and register their readers."""
        b = self.b
        left, right = self.both()
        m = left.x.shape[1]
        row_limits = [min(m, FEW_ROWS) if need.few_rows else m for need in needs]
        found: list[list[Evidence]] = [[] for _ in needs]
        for panel, x, y in self._in_panels(panels, left, right):
            first, last = panel.rows
            concerned = [i for i, to in enumerate(row_limits) if to > first]
            if not concerned:
                continue
            wanted = [self._wanted(needs[i], min(row_limits[i], last) - first, panel) for i in concerned]
            lower = lower_bound(b, self._device, x, y, level)
            for i, each in zip(concerned, worst_ratios(b, self._device, lower, x, y, wanted), strict=True):
                found[i].append(each)
            lower.release(b)
        for need, ratios in zip(needs, found, strict=True):
            b.read(need, (*ratios, *self._descriptions()), evidence.ratio_of_panels)

    def _in_panels(
        self, panels: Panels, left: Described, right: Described
    ) -> Iterator[tuple[Panel, Described, Described]]:
        """Each panel, with its rows of both operands, whose descriptions are released when the next panel begins."""
        b = self.b
        for panel in panels:
            x = left.some_rows(b, *panel.of("left", left.x.shape[0]))
            y = right.some_rows(b, *panel.of("right", right.x.shape[0]))
            yield panel, x, y
            x.release_rows(b, left)
            y.release_rows(b, right)
