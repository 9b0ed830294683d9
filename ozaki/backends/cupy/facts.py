"""Programs that find facts about the operands of a product, and that split them for a likely plan meanwhile."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from ozaki.backends.cupy import evidence
from ozaki.backends.cupy.descriptions import Descriptions
from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.inputs import Inputs
from ozaki.backends.cupy.made import EarlySlices, Made
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.program import Program
from ozaki.backends.cupy.proofs import Proofs, needs_descriptions
from ozaki.backends.cupy.steps.crossings import sampled_products
from ozaki.backends.cupy.steps.engines.choice import engine_of, word_engine
from ozaki.backends.cupy.steps.engines.engine import Engine
from ozaki.backends.cupy.steps.inner import inner_range
from ozaki.backends.cupy.steps.magnitudes import room_for_one_read
from ozaki.backends.cupy.steps.operands import Described
from ozaki.backends.cupy.steps.overlap import overlap
from ozaki.backends.cupy.steps.product import is_in_one_panel, split_in_one_read
from ozaki.backends.cupy.steps.sample import sample
from ozaki.backends.cupy.steps.stack_facts import MOST_WANTED, stack_facts, takes
from ozaki.backends.cupy.steps.unrounded import Symmetry
from ozaki.bounds.description import Description
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
    UndecidedShare,
    WorstRatio,
)
from ozaki.records.plan import Plan
from ozaki.records.shapes import SIDES, Side
from ozaki.schemes import Scheme, Words


class Asked(NamedTuple):
    """What a program of facts is to find, and what is known for that.

    Attributes
    ----------
    needs : the facts, in the order in which they are asked for
    likely : the plan of slices that both operands are split for before the first proof, or before their spans are
        asked for; None to split nothing
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
    b = Builder(inputs.buffers)
    as_they_are = Descriptions(b, inputs, made)
    scaled = Descriptions(b, inputs, made.scaled or Made(), inner_scaling=True)
    finding, of_scaled = (_Finding(device, asked, operands) for operands in (as_they_are, scaled))
    likely = asked.likely
    for need in asked.needs:
        if isinstance(need, InnerRange) or getattr(need, "inner_scaling", False):
            of_scaled.add(need)
            continue
        if likely is not None and isinstance(need, WorstRatio | RowsBound | Spans):
            finding.begin([each for each in asked.needs if each.of_proof(need)], likely)
            likely = None
        finding.add(need)
    operands = scaled if asked.of_scaled else as_they_are
    if asked.describe:
        operands.both()
    for side in asked.bring:
        operands.on_host(side)
    found = replace(as_they_are.made, scaled=scaled.made if scaled.made != Made() else None)
    return b.program(keeps=found.arrays), found


def engine_for(
    device: Device, plan: Plan, inputs: Inputs, combined: bool = False, with_addend: bool = False,
    every_bit: bool = False,
) -> Engine:  # fmt: skip
    """The engine that multiplies the operands by a plan of slices or words.

    `combined`: it rounds alpha A B + beta C once; `with_addend`: where beta is not zero. `every_bit`: the product is
    written to multiprecision numbers, whatever format the plan rounds to afterwards.
    """
    views = inputs.views
    symmetry: Symmetry | None = "hermitian" if views.adjoint else "symmetric" if views.itself else None
    multiprecision = inputs.multiprecision or every_bit
    return engine_of(device, plan, multiprecision, combined, None if with_addend else symmetry)


class _Finding:
    """Adds the steps that find facts about operands to a program.

    Parameters
    ----------
    operands : what describes them in the program, and has what the steps make for later programs
    """

    def __init__(self, device: Device, asked: Asked, operands: Descriptions) -> None:
        self._b, self._device, self._asked, self._operands = operands.b, device, asked, operands
        self._proofs = Proofs(device, operands, asked.limit, asked.descriptions)

    @property
    def _early(self) -> EarlySlices | None:
        """Slices that were made before the plan is known."""
        return self._operands.made.early

    def _keep(self, early: EarlySlices) -> EarlySlices:
        """Let later programs use such slices."""
        self._operands.made = replace(self._operands.made, early=early)
        return early

    def _free_early(self) -> None:
        """Free such slices, in favour of others."""
        self._operands.made = self._operands.made.without_slices(self._b)

    def add(self, need: Need) -> None:
        """Add the steps that bring a fact to the host, and register its reader, unless there is one."""
        b, operands = self._b, self._operands
        if b.reader(need) is not None:
            return
        if self._of_stack(need):
            self._find_of_stack()
            return
        match need:
            case Sample():
                b.read(need, (sample(b, *operands.both_rows()),), evidence.unchanged)
            case Overlap():
                b.read(need, (overlap(b, *operands.both_rows()),), evidence.unchanged)
            case NativeInRange():
                b.read(need, operands.both_on_host(), partial(evidence.native_in_range, dtype=self._asked.dtype))
            case InnerRange():
                factors = operands.factors()
                found = () if factors is None else (inner_range(b, factors),)
                b.read(need, found, evidence.inner_range)
            case Spans() if operands.made.spans is not None:
                b.read(need, (operands.made.spans,), evidence.unchanged)
            case Spans():
                b.read(need, operands.both_on_host(), evidence.spans)
            case RowsBound(scheme, measure, exponent):
                bound = partial(evidence.rows_bound, scheme=scheme, measure=measure, exponent=exponent)
                b.read(need, operands.both_on_host(), bound)
            case CutBound(words):
                self._add_cut_bound(need, words)
            case LeastProduct():
                b.read(need, self._proofs.least_product(), evidence.least)
            case UndecidedShare(scheme):
                crossings = partial(evidence.crossings, scheme=scheme, dtype=self._asked.dtype)
                b.read(need, (sampled_products(b, *operands.both()),), crossings)
            case WorstRatio():
                self._proofs.begin_ratios([need])
            case _:
                raise TypeError(f"need: {need!r} is not known here")

    def begin(self, needs: Sequence[Need], plan: Plan) -> None:
        """Begin facts of one proof, and split both operands for a likely plan: the device would be idle otherwise.

        needs : all `WorstRatio` of one level, or all `RowsBound`, or `Spans`
        """
        assert plan.scheme is not None and self._asked.limit is None
        b, operands = self._b, self._operands
        of_stack = any(map(self._of_stack, needs))
        if of_stack:
            self._find_of_stack()
        ratios = [] if of_stack else [need for need in needs if isinstance(need, WorstRatio)]
        self._free_early()
        engine = engine_for(self._device, plan, operands.inputs)
        self._proofs.stream = "proof"
        fits = self._in_one_panel(engine, plan)
        if fits and not operands.made.described and self._fits_one_read(engine, plan.scheme, whole=True):
            room = room_for_one_read(b, self._device, *operands.both_rows()) if ratios else None
            early = self._split_in_one_read(engine, plan.scheme, whole=True, magnitudes=room)
            described: dict[Side, Described] = {"left": early.left.described, "right": early.right.described}
            operands.made = replace(operands.made, described=described)
        left, right = operands.both()
        if ratios:
            self._proofs.open(ratios[0].level)
        elif not of_stack:
            with b.on("to_host", fork=True):
                operands.both_on_host()
        if self._early is None and fits:
            x, y = (engine.split(b, of, side, plan.scheme) for of, side in zip((left, right), SIDES, strict=True))
            self._keep(EarlySlices(plan.scheme, engine, x, y))
        self._proofs.begin_ratios(ratios)

    def _of_stack(self, need: Need) -> bool:
        """Whether one launch finds the fact, of rows that are read whole and are not described already."""
        match need:
            case WorstRatio(inner_scaling=False, level="narrow"):
                found = not needs_descriptions(need)
            case Spans(inner_scaling=False) | NativeInRange():
                found = not self._operands.made.on_host
            case _:
                return False
        rows = self._operands.inputs.rows_given
        return found and len(rows) == len(SIDES) and takes(rows["left"].view, rows["right"].view)

    def _find_of_stack(self) -> None:
        """Add the launches that find all facts of this kind that are asked for, and register their readers."""
        b, operands = self._b, self._operands
        left, right = operands.both_rows()
        needs = [need for need in self._asked.needs if self._of_stack(need) and b.reader(need) is None]
        ratios = [need for need in needs if isinstance(need, WorstRatio)]
        made = operands.made
        for first in range(0, max(len(ratios), 1), MOST_WANTED):
            if not ratios and made.extents is not None:
                break
            some = ratios[first : first + MOST_WANTED]
            found = stack_facts(b, self._device, left, right, [self._proofs.wanted(need) for need in some])
            for ratio, each in zip(some, found.ratios, strict=True):
                b.read(ratio, (each,), evidence.unchanged)
            made = replace(made, spans=found.spans, extents=found.extents)
        operands.made = made
        assert made.spans is not None and made.extents is not None
        k = left.dtype.parts * left.shape[2]
        for need in needs:
            if isinstance(need, Spans):
                b.read(need, (made.spans,), evidence.unchanged)
            elif isinstance(need, NativeInRange):
                in_range = partial(evidence.extents_in_range, k=k, dtype=self._asked.dtype)
                b.read(need, (made.extents,), in_range)

    def _in_one_panel(self, engine: Engine, plan: Plan) -> bool:
        """Whether the slices of whole operands fit the device."""
        (batch_a, m, _), (batch_b, n, _) = (x.shape for x in self._operands.both_rows())
        return is_in_one_panel(engine, plan, (max(batch_a, batch_b), m, n))

    def _fits_one_read(self, engine: Engine, scheme: Scheme | Words, whole: bool) -> bool:
        """Whether one kernel for each operand, which reads it once, splits both faster than two kernels do."""
        if self._operands.inputs.multiprecision:
            return False
        return all(engine.splits_in_one_read(scheme, side, self._operands.rows(side), whole) for side in SIDES)

    def _split_in_one_read(self, engine: Engine, scheme: Scheme | Words, whole: bool, **options: Any) -> EarlySlices:
        """Split both operands by one kernel each, which reads it once; `options` as of `split_in_one_read`."""
        left, right = (
            split_in_one_read(
                self._b, self._device, engine, scheme, rows, side, whole, overlaps=side == "right", **options
            )
            for side, rows in zip(SIDES, self._operands.both_rows(), strict=True)
        )
        return self._keep(EarlySlices(scheme, engine, left, right))

    def _add_cut_bound(self, need: CutBound, words: Words) -> None:
        """Add the steps for a `CutBound`, and register its reader.

        Where one kernel reads and cuts each operand, it cuts them now, and finds whether words lose part of an element;
        only of words that are known to, both operands are sampled. Elsewhere the bound follows from the descriptions of
        all rows.
        """
        b, operands = self._b, self._operands
        left, right = operands.both_rows()
        (batch, m, k), n = left.shape, right.shape[1]
        early = self._early
        if early is not None and early.scheme == words and words in self._asked.sampled:
            found = sample(b, left, right, (early.left.described, early.right.described))
            b.read(need, (found,), partial(evidence.cut_bound, True, words=words, k=k))
            return
        self._free_early()
        engine = word_engine(self._device, words, max(batch, right.shape[0]), m, k, n)
        may_cut = left.dtype.parts == 1 and self._asked.limit is None and not operands.made.described  # of real rows
        if not may_cut or not self._fits_one_read(engine, words, whole=False):
            bound = partial(evidence.rows_bound, scheme=words, measure="componentwise")
            b.read(need, operands.both_on_host(), bound)
            return
        lost = b.cleared_on_host("lost", (1,), "I")
        early = self._split_in_one_read(engine, words, whole=False, lost=lost)
        of_read = [b.evidence(b.arrive(lost), evidence.flag_is_set)]
        if words in self._asked.sampled:
            of_read.append(sample(b, left, right, (early.left.described, early.right.described)))
        b.read(need, tuple(of_read), partial(evidence.cut_bound, words=words, k=k))
