"""The candidates that planning weighed for a product, with the time that each would take and what it proves."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from ozaki.bounds.rounding import with_rounding
from ozaki.planning.candidates import Candidates, candidates_of, native_bound
from ozaki.planning.facts import CutBound, Facts, MissingFact
from ozaki.planning.proof import Proof
from ozaki.planning.question import Question, Way
from ozaki.planning.search import likely_schemes
from ozaki.records.accuracy import Accuracy
from ozaki.records.plan import Candidate, Plan
from ozaki.records.report import counted
from ozaki.schemes import Words, slice_products


def weigh(question: Question, facts: Facts, plan: Plan) -> tuple[Candidate, ...]:
    """The candidates for a product, that of the plan among them, the fastest first and unknown times last.

    Parameters
    ----------
    facts : the facts that the plan rests on; no others are found
    """
    if question.empty:
        return ()
    named = not question.options.leave_slices or question.options.scheme == "native" or plan.target.exact
    ways = [plan.scheme] if named else _ways(question, candidates_of(question), plan)
    weighed = [_weighed(question, facts, plan, way) for way in ways]
    return tuple(sorted(weighed, key=lambda x: (inf if x.seconds is None else x.seconds, not x.chosen)))


def _ways(question: Question, candidates: Candidates, plan: Plan) -> list[Way]:
    """All candidates: slices as many as the plan has, and of another scheme as many as ordinary operands need."""
    likely = likely_schemes(candidates.target, max(question.length, 1), candidates.families)
    own = () if plan.scheme is None or not plan.scheme.exact else (plan.scheme,)
    slices = (*own, *(scheme for scheme in likely if all(scheme.name != one.name for one in own)))
    native: tuple[Way, ...] = (None,) if question.options.scheme == "auto" else ()
    words: list[Way] = [] if plan.scheme is None or plan.scheme.exact else [plan.scheme]
    words += [each for each in candidates.words if each not in words]
    return [*native, *words, *slices]


def _weighed(question: Question, facts: Facts, plan: Plan, way: Way) -> Candidate:
    seconds = question.machine.seconds(question.sizes, question.dtype, way)
    name = "native product" if way is None else counted(way.count, way.name)
    chosen = way == plan.scheme
    unknown = chosen and way is not None and plan.bound == inf  # from shapes: the elements decide what it proves
    bound = None if unknown else plan.bound if chosen else _known_bound(question, facts, plan.target, way)
    verdict = "chosen" if chosen else _why_not(question, plan, way, bound)
    return Candidate(name, seconds, bound, chosen, verdict, plan.target.exponent, slice_products(way))


def _known_bound(question: Question, facts: Facts, target: Accuracy, way: Way) -> float | None:
    """The bound that the facts prove of a candidate, with the rounding to the result; None if a fact is missing."""
    if way is None:
        return native_bound(question)
    try:
        if isinstance(way, Words):
            bound: float = facts[CutBound(way)] * question.sizes.spread
        else:
            bound = Proof(facts, question.length, target, way, question.sizes.parts).bound(way)
    except MissingFact:
        return None
    return with_rounding(bound, question.dtype, target.exponent)


def _why_not(question: Question, plan: Plan, way: Way, bound: float | None) -> str:
    """The verdict on a candidate that was not chosen: why it does not run."""
    ruled_out = candidates_of(question).native_ruled_out if question.options.leave_slices else None
    if way is None and ruled_out and "proves at best" not in ruled_out:
        return ruled_out.removeprefix("native product ")
    if bound is None:
        return "not asked what it proves"
    enough = with_rounding(plan.target.tolerance, question.dtype, plan.target.exponent)
    if bound > enough and (way is not None or ruled_out):
        return "proves too little"
    return "slower"


def explained(question: Question, facts: Facts, plan: Plan) -> Plan:
    """The plan with its `candidates` filled in."""
    return replace(plan, candidates=weigh(question, facts, plan))
