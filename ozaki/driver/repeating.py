"""Repeated calls: a product's program is cached with what says whether its plan is right for other operands, too."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from math import prod

import numpy as np

from ozaki.backends import Backend, as_computed
from ozaki.call.pair import Pair
from ozaki.driver.settling import Settled, known_bound
from ozaki.driver.works import Works
from ozaki.planning.choose import choose
from ozaki.planning.facts import Facts, MissingFact, Need
from ozaki.planning.promise import proven
from ozaki.planning.question import Question
from ozaki.records.plan import Chosen, Plan
from ozaki.records.shapes import REAL


def keep(works: Works, settled: Settled, key: Hashable) -> None:
    """Let the backend keep the program of a product for repeated calls, unless a repeated call cannot use it.

    `key` is everything else that the call depends on, beside operands, addend and `out`.
    """
    pair, plan = works.pair, settled.plan
    assert pair.backend.keep is not None
    large = prod(pair.sizes.batch) * prod(pair.sizes.shape) > _LARGEST_KEPT
    of_one_work = not pair.multiprecision and works.only_of_rows
    if pair.sizes.is_complex and not (of_one_work and _is_one_program(works, plan)):
        return
    if pair.repeatable and plan.dtype == pair.dtype and pair.sizes.in_order and not (pair.empty or large):
        for_others = partial(plan_for_others, pair, settled)
        pair.backend.keep(*pair.given, key, works.of_rows, settled.facts, for_others, pair.sizes.result, pair.dtype)


_LARGEST_KEPT = 2**39
"""Scalar multiplications of the largest product that is kept: beyond it memory matters more than the host's time."""


def _is_one_program(works: Works, plan: Plan) -> bool:
    """Whether the program of `works.of_rows` computes all of a complex product, or of an expression with it."""
    pair = works.pair
    if plan.native:
        return pair.combination is None and not works.converts
    if pair.of_complex_rows and as_computed(plan, pair.backend).parts == REAL:
        return False
    return pair.combination is None or plan.rounds_once(pair.combination)


def plan_for_others(pair: Pair, settled: Settled) -> Callable[[Facts], Chosen | None]:
    """Predicate for repeated calls: would `choose` pick the same scheme for a later call's facts? Captures no arrays.

    It returns the plan for these facts if that has the scheme of this one, else None.
    """
    plan, question, facts = settled.plan, settled.question, settled.facts
    if question is None:
        asks = plan.strict and pair.half is None  # what digits do not prove is computed exactly
        chosen = partial(_keeps_promise, plan) if asks else partial(_always, settled.chosen)
    elif facts:
        chosen = partial(_is_chosen, question, settled.chosen, facts)
    else:  # the choice asked for no fact, so it is the same for all operands
        chosen = partial(_always, settled.chosen)
    native_matters = plan.native if question is None else question.native_may_matter
    if not native_matters or pair.multiprecision:  # of multiprecision numbers there is no native product
        return chosen
    before = pair.native_obstacle if question is None else question.native_obstacle
    return partial(_with_same_obstacle, pair.backend, pair.part, before, chosen)


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
    if isinstance(answer, Need) or _slices_of(answer) != _slices_of(chosen.plan):
        return None
    return Chosen(answer, known_bound(question, facts, answer))


def _with_same_obstacle(
    backend: Backend, dtype: str, before: str | None, chosen: Callable[[Facts], Chosen | None], facts: Facts
) -> Chosen | None:
    """What `chosen` says of the facts, if the native product has the obstacle (a setting) `before`; else None."""
    return chosen(facts) if backend.native_obstacle(dtype) == before else None


def _slices_of(plan: Plan) -> tuple[object, ...]:
    """What says whether two plans have the same slices of the same operands, and what is computed apart."""
    return plan.scheme, plan.inner_scaling, plan.undecided_apart
