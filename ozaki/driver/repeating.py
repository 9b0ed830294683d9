"""Whether the plan of one product is right for other operands, by their facts: so its program may be kept for them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf

import numpy as np

from ozaki.backends import Backend
from ozaki.call.pair import Pair
from ozaki.planning.choose import choose
from ozaki.planning.facts import Facts, MissingFact, NativeInRange, Need
from ozaki.planning.promise import proven
from ozaki.planning.question import Question
from ozaki.records.formats import part_of
from ozaki.records.plan import Chosen, Plan


def plan_for_others(
    pair: Pair, question: Question | None, facts: Facts, this: Chosen
) -> Callable[[Facts], Chosen | None]:
    """Predicate for repeated calls: would `choose` pick the same scheme for a later call's facts? Captures no arrays.

    It returns the plan for these facts if that has the scheme of this one, else None.

    Parameters
    ----------
    pair : the operands of this plan
    question : what it answers; None if the caller gave it
    facts : those of the operands that it rests on
    this : the plan
    """
    plan = this.plan
    if question is None:
        chosen = partial(_keeps_promise, plan) if plan.strict else partial(_always, this)
    elif facts:
        chosen = partial(_is_chosen, question, this, facts)
    else:  # the choice asked for no fact, so it is the same for all operands
        chosen = partial(_always, this)
    native_matters = plan.native if question is None else question.native_may_matter
    if not native_matters or pair.multiprecision:  # of multiprecision numbers there is no native product
        return chosen
    before = pair.native_obstacle if question is None else question.native_obstacle
    return partial(_with_same_obstacle, pair.backend, part_of(pair.dtype), before, chosen)


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


def _always(chosen: Chosen, facts: Facts) -> Chosen:
    """The plan for operands with these facts, where it depends on none."""
    return chosen


@np.errstate(all="ignore")
def _keeps_promise(given: Plan, facts: Facts) -> Chosen | None:
    """A given plan, if it meets its target for operands with these facts; None if not, or if one is missing."""
    answer = proven(given, None, facts)
    return None if isinstance(answer, Need) or not answer.met else Chosen(given, answer.bound)


@np.errstate(all="ignore")
def _is_chosen(question: Question, chosen: Chosen, before: Facts, facts: Facts) -> Chosen | None:
    """The plan for operands with `facts`, if it has the scheme of the one that was chosen with the facts `before`."""
    try:
        if all(facts[need] == value for need, value in before.items()):
            return chosen
    except MissingFact:
        return None
    try:
        answer = choose(question, facts)
    except ValueError:  # no plan meets the target for these operands: an unrepeated call raises this error
        return None
    if isinstance(answer, Need) or answer.scheme != chosen.plan.scheme:
        return None
    return Chosen(answer, known_bound(question, facts, answer))


def _with_same_obstacle(
    backend: Backend, dtype: str, before: str | None, chosen: Callable[[Facts], Chosen | None], facts: Facts
) -> Chosen | None:
    """What `chosen` says of the facts, if the native product has the obstacle (a setting) `before`; else None."""
    return chosen(facts) if backend.native_obstacle(dtype) == before else None
