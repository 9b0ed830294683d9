"""The plan of one product: ask, measure, choose; or the plan that the caller gives, proven for these operands."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import Any, NamedTuple

from ozaki.call.pair import Pair
from ozaki.call.plan_fits import check_plan_fits
from ozaki.driver.works import Works
from ozaki.planning.asking import question_of
from ozaki.planning.choose import choose
from ozaki.planning.facts import Facts, MissingFact, NativeInRange, Need, RowsBound, WorstRatio, settle
from ozaki.planning.halves import plan_for_halves
from ozaki.planning.ordinary import foresee
from ozaki.planning.promise import Proven, proven
from ozaki.planning.question import Question
from ozaki.process.warning import warn
from ozaki.records.formats import HALVES
from ozaki.records.plan import Chosen, Plan
from ozaki.records.report import rounded_up

SPECULATE = True
"""Whether a device, while it finds facts, splits the operands for the plan of ordinary ones; it changes no bits."""


class Settled(NamedTuple):
    """A plan for these operands, and what it rests on.

    Attributes
    ----------
    plan : the plan that runs
    facts : those that were found about the operands
    question : what the plan answers; None if the caller gave it
    proven : what a given plan proves for these operands; None where nothing was to be proven
    """

    plan: Plan
    facts: Facts
    question: Question | None = None
    proven: Proven | None = None

    @property
    def chosen(self) -> Chosen:
        """The plan, with the bound that is known for these operands."""
        plan = self.plan
        if self.question is not None:
            return Chosen(plan, known_bound(self.question, self.facts, plan))
        if plan.strict and self.proven is not None:
            return Chosen(plan, self.proven.bound)
        return Chosen(plan, plan.bound if plan.a_priori and not plan.native else None)


def known_bound(question: Question, facts: Facts, plan: Plan) -> float | None:
    """The bound of a plan that was chosen for operands with these facts; None if that would need another fact."""
    if not plan.native or question.empty:
        return plan.bound
    if plan.a_priori or question.native_obstacle:  # nobody asked whether sums stay in range
        return None
    try:
        return plan.bound if facts[NativeInRange()] else inf
    except MissingFact:
        return None


def settled(works: Works, given: Plan | None, report: bool) -> Settled:
    """The plan that runs: the given one, or the one that `choose` picks for these operands.

    With `report`, the bound of a given plan is proven for these operands, to be reported.

    Raises
    ------
    ValueError, TypeError
        If a choice makes no sense, no plan meets it, or a given strict plan misses its target.
    """
    if given is None and works.pair.half is not None:
        plan = plan_for_halves(works.pair.sizes, works.pair.half, works.pair.choices)
        check_plan_fits(plan, works.pair)
        found = Settled(plan, Facts())
    elif given is None:
        found = planned(works, question(works.pair))
    else:
        check_plan_fits(given, works.pair)
        found = _checked(works, given, report)
    if report and found.plan.native and not works.pair.empty:
        # The report of a native product describes the operands.
        works.check_describing(works.as_real)
    return found


def question(pair: Pair, for_operands: bool = False) -> Question:
    """The question that planning answers for a product.

    With `for_operands`, its plan is to state a bound for these operands even where a count is given.

    Raises
    ------
    ValueError, TypeError
        If an operand is prepared for a plan already, or a choice makes no sense.
    """
    for name, x in (("a", pair.left), ("b", pair.right)):
        if x.prepared:
            if for_operands:
                raise ValueError(f"{name}: prepared for a plan already, which is {name}.plan; expected an array")
            if x.format in HALVES:  # it needs no plan beside an operand of its format
                raise ValueError(
                    f"{name}: prepared for a product of two {x.format} operands, rounded to it; expected the other one "
                    "of that format, too, and no option that asks for another result"
                )
            raise ValueError(f"plan: missing; {name} is prepared for a plan, so give plan={name}.plan")
    return question_of(
        pair.sizes,
        pair.dtype,
        pair.choices,
        pair.backend.machine(),
        pair.native_obstacle,
        pair.native_fits,
        for_operands,
        pair.multiprecision,
        pair.combination is not None,
    )


def planned(works: Works, asked: Question) -> Settled:
    """The plan that answers a question for these operands; finds the facts that the choice needs."""
    early = asked.machine.finds_facts_on_device and works.pair.memory.limit is None and not asked.for_operands
    measure = partial(_measured_early, works, asked) if SPECULATE and early else works.measure
    plan, facts = settle(partial(choose, asked), measure, Facts())
    return Settled(plan, facts, asked)


def _measured_early(works: Works, asked: Question, need: Need, facts: Facts) -> Any:
    """Find a fact; begin early splitting before the first one of a proof of slices.

    The device then finds all facts of that proof that ordinary operands need, and meanwhile splits the operands for
    the plan that ordinary ones get.
    """
    if isinstance(need, WorstRatio | RowsBound) and not any(isinstance(x, WorstRatio | RowsBound) for x in facts):
        plan, needs = foresee(asked, facts)
        if plan.scheme is not None and plan.scheme.exact:
            works.begin([each for each in needs if each.of_proof(need)], plan)
    return works.measure(need)


def _checked(works: Works, plan: Plan, report: bool) -> Settled:
    """A given plan, its bound proven for these operands if the plan is strict or a report needs the bound.

    Where the target is missed, a plan made with strict=False is let through with a warning.

    Raises
    ------
    ValueError
        If a strict plan misses its target.
    """
    pair = works.pair
    if pair.empty or plan.a_priori or not (plan.strict or report):
        return Settled(plan, Facts())
    wanted = plan.unrounded_bound if report else inf
    prove = partial(proven, plan, pair.native_obstacle, wanted=wanted)
    answer, facts = settle(prove, works.measure, Facts())
    if not answer.met and plan.strict is not None:
        bound = rounded_up(answer.bound, plan.target.exponent)
        why, remedy = "other operands", "plan from these, or make the plan with strict=False"
        if plan.inner_scaling and pair.prepared:  # even the same operands are scaled otherwise then
            why = "operands scaled along k by what both have, not by what the prepared one has"
            remedy = "plan with inner_scaling=False, or with strict=False, and prepare anew"
        message = (
            f"plan: proves a {plan.target.measure} error of {bound} for these operands, but it was made for an "
            f"accuracy of {plan.target.in_words} and {why}"
        )
        if plan.strict:
            raise ValueError(f"{message}; {remedy}")
        warn(message)
    return Settled(plan, facts, proven=answer)
