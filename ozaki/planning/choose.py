"""The choice of a plan: a pure function of a question and of facts about the operands.

1. A scheme is given with its count: that scheme, proven if an accuracy is named too.
2. The native product is asked for: it.
3. Digits are fastest for ordinary operands, a sample finds these to be such, and the proof agrees: digits.
4. Words are the fastest that may do, and prove enough for these operands: words.
5. The native product is the fastest that may run: it.
6. The native product may run, and a sample shows that slices will not be proven: words, or it.
7. Else the fewest slice products that are proven. Where these operands need more of them than ordinary ones do, words
   and the native product are asked once more, now against so many.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

from ozaki._accuracy import Accuracy, default_accuracy
from ozaki._checks import check_native, check_proven
from ozaki._plan import Plan
from ozaki.bounds import estimates
from ozaki.bounds import words as word_bounds
from ozaki.bounds.description import SAMPLED, Least
from ozaki.bounds.rounding import with_rounding
from ozaki.planning.candidates import OUT_OF_RANGE, Candidates, Kind, candidates_of, fastest, names_of, native_bound
from ozaki.planning.facts import CutBound, Facts, LeastProduct, MissingFact, NativeInRange, Need, Overlap, Sample
from ozaki.planning.given import NATIVE_ASKED_FOR, named_scheme, native_plan, plan_for_any, why_named
from ozaki.planning.proof import Proof, proven_bound
from ozaki.planning.question import Question
from ozaki.planning.search import choose_a_priori, likely_schemes, search
from ozaki.schemes import Scheme, Words
from ozaki.schemes.named import integer_scheme


def choose(question: Question, facts: Facts) -> Plan | Need:
    """The plan for a product, or the one fact about its operands that the choice needs next.

    Parameters
    ----------
    question : the product, the caller's choices, the machine
    facts : what is known of the operands

    Returns
    -------
    Plan or Need
        The same for the same question and facts, always.

    Raises
    ------
    ValueError, TypeError
        If the choices contradict one another, or no scheme proves what is asked.
    """
    try:
        return decide(question, facts)
    except MissingFact as missing:
        return missing.need


def decide(question: Question, facts: Facts) -> Plan:
    """As `choose`, but a fact that is missing is raised as `MissingFact`."""
    named = named_scheme(question.choices, question.dtype, question.k, question.machine)
    if named is not None:
        return _named(question, facts, named)
    if question.choices.scheme == "native":
        return _native_by_name(question, facts)
    question.choices.target(question.k)  # refuses 60.0, which `candidates_of` takes for 60 if it was asked that before
    candidates = candidates_of(question)
    if question.empty:
        way, why = fastest(question, candidates)
        return _native(question, facts, why) if way == "native" else _of_nothing(question, candidates)
    needed: Scheme | None = None
    if candidates.words:
        digits = _digits_of_ordinary(question, candidates, facts)
        if isinstance(digits, Plan):
            return digits
        needed = digits
    way, why = _fastest(question, candidates, facts, needed)
    plan, candidates, way, why = _words(question, candidates, facts, way, why, needed)
    if plan is not None:
        return plan
    if way == "native":
        return _native(question, facts, why)
    return _slices(question, candidates, facts, why)


def _named(question: Question, facts: Facts, scheme: Scheme | Words) -> Plan:
    """The plan of a scheme whose count is given."""
    target, why = question.target, why_named(scheme)
    if target is None and not question.for_operands:
        return plan_for_any(question.sizes, question.dtype, scheme, None, question.choices, why)
    goal = target or default_accuracy(question.dtype, question.k)
    bound = 0.0 if question.empty else proven_bound(scheme, goal, question.k, question.dtype, facts)
    check_proven(scheme, bound, target, goal.measure, "these operands")
    return _plan(question, scheme, goal, bound, why)


def _native_by_name(question: Question, facts: Facts) -> Plan:
    """The plan of the native product, where the caller asks for it."""
    target = question.target
    check_native(question.dtype, target, question.choices, native_bound(question))
    if target is not None and not _in_range(question, facts):
        raise ValueError(f"accuracy: {OUT_OF_RANGE} if the product is native; use scheme='auto'")
    obstacle = question.native_obstacle
    return _native(question, facts, f"{NATIVE_ASKED_FOR}; {obstacle}" if obstacle else NATIVE_ASKED_FOR)


def _native(question: Question, facts: Facts, why: str) -> Plan:
    bound = native_bound(question)
    if question.for_operands and not _in_range(question, facts):
        bound = inf
    a_priori = question.target is None and not question.for_operands
    limit = question.choices.workspace_limit
    return native_plan(question.sizes, question.dtype, question.target, bound, why, limit, a_priori)


def _in_range(question: Question, facts: Facts) -> bool:
    """No product and no partial sum of the native product over- or underflows."""
    return question.empty or bool(facts[NativeInRange()])


def _of_nothing(question: Question, candidates: Candidates) -> Plan:
    """The plan of an empty product, which any slices do."""
    assert isinstance(question.choices.scheme, str)
    names = names_of(integer_scheme(question.choices.scheme, question.k))
    scheme = choose_a_priori(Accuracy("row-column", 0.5), max(question.k, 1), names).scheme
    return _plan(question, scheme, candidates.target, 0.0, "an empty product")


def _fastest(
    question: Question, candidates: Candidates, facts: Facts, slices: Scheme | None = None
) -> tuple[Kind, str]:
    """The fastest candidate, but for a native product that proves nothing for these operands."""
    way, why = fastest(question, candidates, slices)
    if way == "native" and not _native_may_run(question, candidates, facts):
        return fastest(question, candidates.without_native(), slices)
    return way, why


def _native_may_run(question: Question, candidates: Candidates, facts: Facts) -> bool:
    """The native product does what is asked."""
    if candidates.native_ruled_out is not None:
        return False
    return not candidates.accuracy_named or _in_range(question, facts)


def _digits_of_ordinary(question: Question, candidates: Candidates, facts: Facts) -> Plan | Scheme | None:
    """The plan of digits, if they are fastest for ordinary operands and these are such.

    Else the slices that these operands will need at least, if that is known.
    """
    names, k, target = names_of("auto"), question.k, candidates.digits_target
    digits = likely_schemes(target, k, names)[0]
    way, why = _fastest(question, candidates, facts, digits)
    if way != "slices" or digits.name != "digits" or target.measure != "componentwise":
        return None
    more = replace(digits, count=digits.count + 1)
    left: Least
    right: Least
    left, right = facts[Sample()]
    estimate = estimates.usual_of_sample(left, right, min(SAMPLED, k), digits, k)
    if not _SAFETY * estimate <= target.tolerance:
        return more
    proof = Proof(facts, k, target.measure, digits)
    if proof.bound(digits) > target.tolerance:
        return more
    choice = search(target, k, names, proof, wide=False)
    assert choice is not None  # the likely digits have been proven
    return _plan(question, choice.scheme, target, choice.bound, why)


_SAFETY = 1.5
"""Factor on the estimated bound of digits: to find out that the proof fails costs more time than digits may save."""


def _words(
    question: Question, candidates: Candidates, facts: Facts, way: Kind, why: str, slices: Scheme | None
) -> tuple[Plan | None, Candidates, Kind, str]:
    """The plan of words, while they are fastest and prove what is asked; else the candidates left, and the fastest."""
    while isinstance(way, Words):
        bound = _bound_of_words(question, way, candidates.words_tolerance, facts)
        if bound <= candidates.words_tolerance:
            target = replace(candidates.target, tolerance=min(candidates.words_tolerance, 0.5))
            return _plan(question, way, target, bound, why), candidates, way, why
        candidates = candidates.without(way)
        # What words lose takes many slices: other words are asked before a search for these.
        others = candidates.without_slices() if candidates.words else candidates
        way, why = _fastest(question, others, facts, slices)
    return None, candidates, way, why


def _bound_of_words(question: Question, words: Words, tolerance: float, facts: Facts) -> float:
    """What words prove by the cheapest evidence, or, where that does not do, by a product of magnitudes."""
    bound: float = facts[CutBound(words)]
    return bound if bound <= tolerance else word_bounds.by_least(facts[LeastProduct()], words, question.k)


def _slices(question: Question, candidates: Candidates, facts: Facts, why: str) -> Plan:
    """The plan of the fewest slice products, unless these operands need so many that another way is faster."""
    assert isinstance(question.choices.scheme, str)
    k, target = question.k, candidates.target
    if candidates.native_ruled_out is None and not candidates.accuracy_named and facts[Overlap()] < _LEAST_OVERLAP:
        # Proofs would fail, at the cost of a tenth of the product or more: nothing has to be proven, so none is tried.
        candidates = candidates.without_slices()
        way, why = _fastest(question, candidates, facts)
        plan, _, way, why = _words(question, candidates, facts, way, why, None)
        return _native(question, facts, why) if plan is None else plan
    names = names_of(integer_scheme(question.choices.scheme, k))
    likely = likely_schemes(target, k, names)[0]
    proof = Proof(facts, k, target.measure, likely)
    choice = search(target, k, names, proof, wide=candidates.native_ruled_out is not None)
    if choice is None and not _native_may_run(question, candidates, facts):
        choice = search(target, k, names, proof)
    if choice is None or choice.scheme.products > likely.products:  # more than ordinary operands need
        needed = choice.scheme if choice else None
        others = candidates if choice else candidates.without_slices()
        way, why = _fastest(question, others, facts, needed)
        plan, _, way, why = _words(question, others, facts, way, why, needed)
        if plan is not None:
            return plan
        if way == "native":
            return _native(question, facts, why)
    assert choice is not None
    return _plan(question, choice.scheme, target, choice.bound, why)


_LEAST_OVERLAP = 1 / 16
"""Where rows and columns overlap less, the first level of proof finds entries without a lower bound, or nearly so.

With k = 2048: 0.91 for normal elements, 0.76 for exp(N(0,1)), 0.42 and 0.12 if three and two elements in ten are not
zero, which all are proven; 0 for exp(2 N(0,1)), Cauchy, triangular and banded data, blocks of different scales, and one
nonzero in ten. Between 0.3 and 0.5 lie exp(1.25 N(0,1)), which is proven, and exp(1.5 N(0,1)), which is not.
"""


def _plan(question: Question, scheme: Scheme | Words, target: Accuracy, bound: float, why: str) -> Plan:
    sizes, choices = question.sizes, question.choices
    proven = with_rounding(bound, question.dtype)
    return Plan(
        sizes.shape, sizes.batch, question.dtype, scheme, target, proven, False, choices.engine,
        choices.workspace_limit, why,
    )  # fmt: skip
