"""One product: finding facts about its operands, planning, computing and reporting."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import cached_property, partial
from math import inf, prod
from typing import Any, TypeVar

from ozaki.backends import Work, as_computed, results
from ozaki.backends.combining import addend_into, axpby
from ozaki.bounds import native
from ozaki.bounds import words as word_bounds
from ozaki.bounds.rounding import with_rounding
from ozaki.call.pair import Pair
from ozaki.call.plan_fits import check_plan_fits
from ozaki.call.range import out_of_range
from ozaki.driver.repeating import known_bound, plan_for_others
from ozaki.planning.asking import question_of
from ozaki.planning.checks import check_options
from ozaki.planning.choose import choose
from ozaki.planning.facts import (
    Facts,
    NativeInRange,
    Need,
    RelativeError,
    RowsBound,
    WorstRatio,
    settle,
)
from ozaki.planning.ordinary import foresee
from ozaki.planning.promise import Proven, proven
from ozaki.planning.proof import relative_bound
from ozaki.planning.question import Question
from ozaki.process.warning import warn
from ozaki.records.combination import Combination
from ozaki.records.formats import is_multiprecision, part_of
from ozaki.records.memory import too_few_bytes
from ozaki.records.options import Options
from ozaki.records.plan import Chosen, Plan
from ozaki.records.progress import SILENT, Progress
from ozaki.records.report import Report, rounded_up
from ozaki.records.shapes import COMPLEX, REAL, SIDES
from ozaki.schemes import ComplexResidues, Words, is_exact

T = TypeVar("T")

SPECULATE = True
"""Whether a device, while it finds facts, splits the operands for the plan of ordinary ones; it changes no bits."""


class Product:
    """One product of two operands, from its facts to its report.

    Parameters
    ----------
    pair : the operands
    choices : what the caller chose
    plan : a plan that the caller gives in place of choices, or None
    progress : is told how far the product is

    Attributes
    ----------
    facts : the facts found so far, which the plan rests on
    answered : the question that the plan answers; None before `settle`, and where the caller gave the plan

    Notes
    -----
    A product has one or more of the backend's objects (`Work`):

    | object | rows | used for |
    |---|---|---|
    | `work` | complex if both operands are, else real | facts; complex slices; the native product |
    | `_work_of_parts` | real; of a complex operand its parts | all other slices, words, the addend alone |
    | `_native_work()` | `work`'s, one or both converted | the native product if the formats are not the result's |

    The first two are one object unless both operands are complex numbers of the hardware; also of these, where one was
    prepared as rows of parts. The third is `work` unless the product is complex and an operand has another format than
    the result.
    """

    def __init__(self, pair: Pair, choices: Options, plan: Plan | None = None, progress: Progress = SILENT) -> None:
        self._pair, self._choices, self._given, self._progress = pair, choices, plan, progress
        self._memory = pair.memory
        self._describes: set[bool] = set()  # rows, of parts or not, whose description the limit allows
        if plan is not None:
            check_plan_fits(plan, pair)
        self.facts = Facts()
        self.answered: Question | None = None
        self._began_early = False
        self._proven = Proven(inf, inf, False)
        self._made: list[Work] = []  # `work` and `_work_of_parts`, as far as they were needed

    @cached_property
    def work(self) -> Work:
        """The backend's object that finds facts about these operands, and multiplies them by slices of their rows."""
        return self._made_work(self._as_real)

    @cached_property
    def _as_real(self) -> bool:
        """Whether the rows of `work` are real ones."""
        pair = self._pair
        if not pair.of_complex_rows:
            return True
        return self._given is not None and pair.prepared and as_computed(self._given, pair.backend).parts == REAL

    @cached_property
    def _work_of_parts(self) -> Work:
        """The backend's object that computes a real product, of complex operands that of their parts."""
        return self.work if self._as_real else self._made_work(as_real=True)

    def _made_work(self, as_real: bool) -> Work:
        pair = self._pair
        combination = None if pair.sums_exactly else pair.combination
        addend = None
        if combination is not None and combination.c is not None:
            addend = partial(pair.computed_addend, as_real)
        dtype = part_of(pair.dtype) if as_real else pair.dtype
        rows = partial(pair.rows, as_real=as_real)
        adjoint = pair.adjoint and not as_real
        matrices, memory = pair.matrices(as_real), self._memory
        work = pair.backend.work(*matrices, rows, dtype, memory, combination, addend, adjoint, self._progress)
        self._made.append(work)
        return work

    def _going_on(self, work: Work) -> Work:
        """The object that goes on, after the other one has freed what it holds for its own work alone."""
        for other in self._made:
            if other is not work:
                other.release()
        return work

    def _check_describing(self, as_real: bool) -> None:
        """Refuse a limit that leaves too little for describing both operands, once before they are described."""
        if as_real not in self._describes:
            self._pair.check_describing(as_real)
            self._describes.add(as_real)

    def _work_of(self, computed: Plan) -> Work:
        """The object that multiplies by a plan, given as the backend computes it."""
        return self.work if computed.parts == COMPLEX else self._work_of_parts

    # Planning --------------------------------------------------------------------------------------------------------

    def settle(self, report: bool) -> Plan:
        """The plan that runs: the given one, or the one that `choose` picks for these operands.

        With `report`, the bound of a given plan is proven for these operands, to be reported.

        Raises
        ------
        ValueError, TypeError
            If a choice makes no sense, no plan meets it, or a given strict plan misses its target.
        """
        if self._given is None:
            self.answered = self.question()
            plan = self.plan(self.answered)
        else:
            plan = self._given
            self._check(plan, report)
        if report and plan.native and not self._pair.empty:
            # The report of a native product describes the operands.
            self._check_describing(self._as_real)
        return plan

    def chosen(self, plan: Plan) -> Chosen:
        """The plan that `settle` returned, with the bound that is known for these operands."""
        if self.answered is not None:
            return Chosen(plan, known_bound(self.answered, self.facts, plan))
        if plan.strict and not self._pair.empty:
            return Chosen(plan, self._proven.bound)
        return Chosen(plan, plan.bound if plan.a_priori and not plan.native else None)

    def question(self, for_operands: bool = False) -> Question:
        """The question that planning answers for this product.

        With `for_operands`, its plan is to state a bound for these operands even where a count is given.

        Raises
        ------
        ValueError, TypeError
            If an operand is prepared for a plan already, or a choice makes no sense.
        """
        pair, choices = self._pair, self._choices
        for name, x in (("a", pair.left), ("b", pair.right)):
            if x.prepared:
                if for_operands:
                    raise ValueError(f"{name}: prepared for a plan already, which is {name}.plan; expected an array")
                raise ValueError(f"plan: missing; {name} is prepared for a plan, so give plan={name}.plan")
        check_options(choices, pair.backend)
        return question_of(
            pair.sizes,
            pair.dtype,
            choices,
            pair.backend.machine(),
            pair.native_obstacle,
            pair.native_fits,
            for_operands,
            pair.multiprecision,
        )

    def plan(self, question: Question) -> Plan:
        """Choose the plan for these operands; finds the facts that the choice needs."""
        early = question.machine.finds_facts_on_device and self._memory.limit is None and not question.for_operands
        measure = partial(self._measure_and_begin, question) if SPECULATE and early else self._measure
        plan, self.facts = settle(partial(choose, question), measure, self.facts)
        return plan

    def decide(self, answer: Callable[[Facts], T | Need]) -> T:
        """The decision that `answer` makes of facts about these operands, each found when it asks for it."""
        decision, self.facts = settle(answer, self._measure, self.facts)
        return decision

    def _measure(self, need: Need, _facts: Facts | None = None) -> Any:
        """Find a fact about the operands within the limit of workspace; waits for it."""
        self._check_describing(self._as_real)
        if isinstance(need, RelativeError) and not self._as_real:  # which is found from a product
            if self._pair.backend.splits_complex(need.scheme, (self._given or self._choices).engine):
                assert isinstance(need.scheme, ComplexResidues)
                return self._going_on(self.work).measure(RelativeError(need.scheme.slices))
            self._check_describing(as_real=True)
            return self._going_on(self._work_of_parts).measure(need)
        return self._going_on(self.work).measure(need)

    def _measure_and_begin(self, question: Question, need: Need, facts: Facts) -> Any:
        """Find a fact; begin early splitting before the first one of a proof of slices.

        The device then finds all facts of that proof that ordinary operands need, and meanwhile splits the operands for
        the plan that ordinary ones get.
        """
        if not self._began_early and isinstance(need, WorstRatio | RowsBound):
            self._began_early = True
            plan, needs = foresee(question, facts)
            if plan.scheme is not None and plan.scheme.exact:
                computed = as_computed(plan, self._pair.backend)
                if computed.parts == COMPLEX or not self._pair.of_complex_rows:
                    self.work.begin([each for each in needs if _of_one_level(each, need)], computed)
        return self._measure(need)

    def _check(self, plan: Plan, report: bool) -> None:
        """Prove the bound of a given plan for these operands, if the plan is strict or a report needs the bound.

        Where the target is missed, a plan made with strict=False is let through with a warning.

        Raises
        ------
        ValueError
            If a strict plan misses its target.
        """
        pair = self._pair
        if pair.empty or plan.a_priori or not (plan.strict or report):
            return
        wanted = plan.unrounded_bound if report else inf
        prove = partial(proven, plan, pair.native_obstacle, wanted=wanted)
        self._proven, self.facts = settle(prove, self._measure, self.facts)
        if self._proven.met or plan.strict is None:
            return
        bound = rounded_up(self._proven.bound, plan.target.exponent)
        message = (
            f"plan: proves a {plan.target.measure} error of {bound} for these operands, but it was made for an "
            f"accuracy of {plan.target.in_words} and other operands"
        )
        if plan.strict:
            raise ValueError(f"{message}; plan from these, or make the plan with strict=False")
        warn(message)

    def _native_bound(self) -> float:
        """The componentwise bound of the native product for these operands, roundings included; inf if it has none."""
        pair = self._pair
        if pair.native_obstacle or not self._measure(NativeInRange()):
            return inf
        return native.bound(max(pair.sizes.length, 1), pair.dtype, pair.sizes.spread)

    # Computing -------------------------------------------------------------------------------------------------------

    def compute(self, plan: Plan) -> Any:
        """Compute the product, or the expression, by a plan: shape `sizes.stack`, in memory of the destination."""
        pair = self._pair
        combination = None if pair.sums_exactly else pair.combination
        c = pair.destination.memory(plan.dtype)
        if 0 in pair.sizes.stack:
            return c
        if pair.sums_exactly:
            self._memory.hold(pair.returning_bytes(plan.dtype))
        if pair.nothing_to_multiply:
            self._without_product(plan, combination, c)
            return c
        if plan.scheme is None:
            pair.check_native_limit()
            self._going_on(self._native_work()).native(pair.sizes.own_shape(c))
        else:
            computed = as_computed(plan, pair.backend)
            self._check_describing(as_real=computed.parts == REAL)
            self._check_slices_within_limit(plan)
            apart = pair.sizes.parts != REAL and computed.parts == REAL
            entries = pair.destination.entries(c) if apart else c
            self._going_on(self._work_of(computed)).multiply(computed, entries)
            if apart:
                pair.destination.join(entries, c)
        if combination is not None and not plan.rounds_once(combination):
            self._combine(c)
        return c

    def _without_product(self, plan: Plan, combination: Combination | None, c: Any) -> None:
        """Write into c what an expression is whose product is zero: beta times the addend; zeros without either."""
        pair = self._pair
        if combination is None:
            if not is_multiprecision(plan.dtype):  # else it begins with zeros
                c[...] = 0
        elif isinstance(combination.beta.special, complex):
            addend_into(replace(combination, c=pair.addend), c, self._memory)
        else:
            entries = pair.destination.entries(c)
            self._work_of_parts.addend(entries)
            pair.destination.join(entries, c)

    @property
    def _converts(self) -> bool:
        """Whether a native product takes an operand that is converted to the complex format of the result first."""
        pair = self._pair
        return pair.sizes.is_complex and any(str(x.dtype) != pair.dtype for x in pair.matrices(as_real=False))

    def _native_work(self) -> Work:
        """The backend's object that multiplies natively: `work`, or a new one of converted operands."""
        if not self._converts:
            return self.work
        pair = self._pair
        a, b = map(self._converted, pair.matrices(as_real=False))
        work = pair.backend.work(a, b, partial(pair.rows, as_real=False), pair.dtype, self._memory)
        self._made.append(work)
        return work

    def _converted(self, x: Any) -> Any:
        """A matrix of the dtype of the result; x itself, if it has that."""
        dtype = self._pair.dtype
        if str(x.dtype) == dtype:
            return x
        self._memory.hold(results.nbytes(tuple(x.shape), dtype))
        found = self._pair.backend.empty(tuple(x.shape), dtype)
        found[...] = x
        return found

    def _combine(self, c: Any) -> None:
        """Make the rounded product in c the expression; each operation rounds."""
        pair = self._pair
        if not pair.sizes.is_complex:
            self.work.combine(c)
            return
        assert pair.combination is not None
        alpha, beta = (factor.value for factor in pair.combination.factors)
        axpby(c, alpha, beta, pair.addend, self._memory)

    def _check_slices_within_limit(self, plan: Plan) -> None:
        """Refuse a limit that leaves too little for the engine that an operand was prepared for.

        The operand was prepared under the whole limit; less, without what the pair holds, may need another engine.
        """
        pair, limit = self._pair, plan.workspace_limit
        if limit is None or not pair.prepared:
            return
        held = self._memory.held
        plan = as_computed(plan, pair.backend)
        if not pair.backend.same_slices(plan, replace(plan, workspace_limit=limit - held)):
            too_few_bytes(limit, limit + held)

    def keep(self, key: Hashable, plan: Plan) -> None:
        """Let the backend keep the program of this product for repeated calls, unless a repeated call cannot use it."""
        pair = self._pair
        large = prod(pair.sizes.batch) * prod(pair.sizes.shape) > _LARGEST_KEPT
        of_one_work = not pair.multiprecision and self._made == [self.work]
        if pair.sizes.is_complex and not (of_one_work and self._is_one_program(plan)):
            return
        if pair.repeatable and plan.dtype == pair.dtype and pair.sizes.in_order and not (pair.empty or large):
            made = self.work, self.facts, partial(self._plan_for_others, plan)
            pair.backend.keep(*pair.given, key, *made, pair.sizes.result, pair.dtype)

    def _plan_for_others(self, plan: Plan) -> Callable[[Facts], Chosen | None]:
        """What `plan_for_others` gives of this product."""
        return plan_for_others(self._pair, self.answered, self.facts, self.chosen(plan))

    def _is_one_program(self, plan: Plan) -> bool:
        """Whether the program of `work` computes all of a complex product, or of an expression with it."""
        pair = self._pair
        if plan.native:
            return pair.combination is None and not self._converts
        if pair.of_complex_rows and as_computed(plan, pair.backend).parts == REAL:
            return False
        return pair.combination is None or plan.rounds_once(pair.combination)

    # Reporting -------------------------------------------------------------------------------------------------------

    def report(self, plan: Plan, relative: bool, c: Any) -> Report:
        """The report of a product c by this plan; the bound of a given plan is the one proven for these operands.

        With `relative` it has the relative bound, too, which the computed product proves.
        """
        pair = self._pair
        scheme, bound, unrounded = plan.scheme, plan.bound, plan.unrounded_bound
        # A multiprecision result refuses NaN and Inf, and has no range that it could leave.
        nonfinite = 0 if pair.empty or is_multiprecision(plan.dtype) else None
        if not pair.empty and (scheme is None or not plan.a_priori):
            if scheme is None:
                bound = unrounded = self._native_bound()
            elif self._given is not None:
                unrounded, bound, _ = self._proven
            nonfinite = sum(pair.flagged(side, self.work.nonfinite(side) > 0) for side in SIDES)
        underflows = estimate = None
        if isinstance(scheme, Words):
            underflows = sum(self._work_of_parts.underflows(side, scheme) // pair.repeats(side) for side in SIDES)
            likely = word_bounds.relative(scheme, max(pair.sizes.length, 1), probable=True)
            estimate = with_rounding(likely * pair.sizes.spread, pair.dtype)
        counted = not pair.empty and not plan.native and (relative or nonfinite is not None)
        outside = self._out_of_range(plan, c) if counted else None
        relative_error = (inf if outside else self._relative_bound(plan, bound)) if relative else None
        once = None if pair.combination is None else plan.rounds_once(pair.combination)
        return Report(
            bound=bound,
            unrounded_bound=unrounded,
            measure=plan.target.measure,
            scheme="native" if scheme is None else scheme.name,
            slices=plan.slices,
            products=plan.products,
            exponent=plan.target.exponent,
            engine=pair.backend.engine_name(as_computed(plan, pair.backend), once is True),
            native=plan.native,
            why=plan.why,
            workspace_bytes=self._memory.most,
            reproducible=plan.reproducible,
            nonfinite=nonfinite,
            out_of_range=outside,
            underflows=underflows,
            estimate=estimate,
            relative_bound=relative_error,
            rounded_once=once,
        )

    def _out_of_range(self, plan: Plan, c: Any) -> int:
        """Number of entries of the result that over- or underflowed, or may have (`Report.out_of_range`)."""
        pair = self._pair
        if is_multiprecision(plan.dtype):
            return 0
        if not pair.multiprecision and pair.combination is None and self._measure(NativeInRange()):
            return 0
        if pair.prepared and pair.sizes.is_complex:  # a prepared operand may be rows of parts alone
            return out_of_range(c, None, self._memory)
        left, right = (x.read if x.prepared else pair.rows(side, False) for x, side in pair.operands)
        return out_of_range(c, (left, right), self._memory)

    def _relative_bound(self, plan: Plan, bound: float) -> float:
        """The largest relative error of an entry (B10), its rounding included, in the unit of the plan's target.

        `bound` is the one that the report has in the plan's measure.
        """
        if plan.scheme is None or not is_exact(plan.scheme):
            return inf
        if bound == 0:
            return 0.0
        bits = inf if self._pair.empty else self._measure(RelativeError(plan.scheme))
        return with_rounding(relative_bound(bits, plan.target.exponent), plan.dtype, plan.target.exponent)


def _of_one_level(x: Need, y: Need) -> bool:
    """Whether two facts are found by the same kind of proof at the same level."""
    return type(x) is type(y) and getattr(x, "level", None) == getattr(y, "level", None)


_LARGEST_KEPT = 2**39
"""Scalar multiplications of the largest product that is kept: beyond it memory matters more than the host's time."""
