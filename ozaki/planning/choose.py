"""The choice of a plan: a pure function of a question and of facts about the operands.

The first case that applies decides:

1. Every bit is asked for: the scheme that is named with its count, if it holds every bit; else the fewest slices that
   do, of the family that is named, or residues; or fewer residues, if the entries of a result of the hardware's formats
   that these leave undecided are few, and are computed apart (`undecided.py`).
2. The caller names a scheme with its count: that scheme, proven if an accuracy is named too.
3. The caller names the native product: the native product.
4. A relative accuracy is asked for: the first residues whose product proves it (`relative.py`), or as in 1.
5. The product is empty: any slices, or the native product where that is fastest.
6. Words may run, but digits are fastest for ordinary operands, the fact `Sample` finds these operands ordinary, and the
   proof of digits succeeds: digits.
7. Words are the fastest candidate and prove enough for these operands: words.
8. The native product is the fastest candidate and may run: the native product.
9. No accuracy is named, the native product may run, and the fact `Overlap` shows that slices will not be proven: words
   or the native product.
10. Otherwise: the fewest slice products that are proven, or that leave all images exact. Where rows are wide, and
   narrower once they are scaled along k, the same is asked of the scaled rows, which are taken only if they need fewer.
   Where these operands need far more slice products than ordinary ones, fewer residues are taken as in 1, if they do;
   where they need more, words and the native product are weighed once more, against that many.

In 1 and 2 rows are scaled along k, too: where the exact product then takes fewer slices, or if the caller wants it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import inf

from ozaki.bounds import words as word_bounds
from ozaki.bounds.a_priori import usual_of_sample
from ozaki.bounds.description import SAMPLED, Least
from ozaki.bounds.rounding import with_rounding
from ozaki.planning.candidates import (
    OUT_OF_RANGE,
    Candidates,
    Kind,
    candidates_of,
    fastest,
    native_bound,
)
from ozaki.planning.checks import check_proven
from ozaki.planning.facts import (
    CutBound,
    Facts,
    InnerRange,
    LeastProduct,
    NativeInRange,
    Overlap,
    Sample,
    Spans,
    or_need,
)
from ozaki.planning.for_shapes import NATIVE_ASKED_FOR, native_plan, plan_for_any, why_named
from ozaki.planning.proof import Proof, exact_bits, holds_every_bit, proven_bound
from ozaki.planning.question import Question, ordinary_spans, splits_whole_rows
from ozaki.planning.relative import choose_relative
from ozaki.planning.search import Choice, choose_a_priori, exact_below, likely_schemes, search
from ozaki.planning.undecided import few_residues
from ozaki.records.accuracy import Accuracy, default_accuracy
from ozaki.records.formats import is_multiprecision
from ozaki.records.plan import Plan, plan_of
from ozaki.schemes import Scheme, Words, is_exact
from ozaki.schemes.named import FAMILIES, integer_scheme, least_of, scheme_of


@or_need
def choose(question: Question, facts: Facts) -> Plan:
    """The plan for a product, or the one fact about its operands that the choice needs next.

    Parameters
    ----------
    question : the product, the caller's options, which have been checked, the machine
    facts : what is known of the operands

    Returns
    -------
    Plan or Need
        The same for the same question and facts, always.

    Raises
    ------
    ValueError
        If no scheme proves what is asked of these operands.
    """
    if question.target is not None and question.target.exact:
        return _exact(question, facts)
    if question.named is not None:
        return _named(question, facts, question.named)
    if question.options.scheme == "native":
        return _native_by_name(question, facts)
    if question.target is not None and question.target.measure == "relative":
        return _relative(question, question.before_rounding(question.target), facts)
    candidates = candidates_of(question)
    if question.empty:
        kind, why = _fastest(question, candidates, facts)
        return _native(question, facts, why) if kind == "native" else _empty_product(question, candidates)
    needed: Scheme | None = None
    if candidates.words:
        digits = _digits_of_ordinary(question, candidates, facts)
        if isinstance(digits, Plan):
            return digits
        needed = digits
    found = _other_than_slices(question, candidates, facts, needed)
    return found if isinstance(found, Plan) else _slices(question, *found, facts)


def _exact(question: Question, facts: Facts) -> Plan:
    """The plan of the exact product: the scheme that is named, or enough slices of its family, and a format for it.

    A result of the hardware's formats is the exact one, rounded once.

    Raises
    ------
    ValueError
        If no scheme of the family holds so many bits, or not the one that is named, or none that runs here.
    """
    k, target, named = question.length, question.target, question.named
    assert target is not None
    spans: tuple[int, int] = (0, 0) if question.empty else facts[Spans()]
    inner_scaling = bool(question.options.inner_scaling)
    if inner_scaling or (named is None and _worth_scaling_along_k(question, facts, spans)):
        scaled: tuple[int, int] = (0, 0) if question.empty else facts[Spans(inner_scaling=True)]
        inner_scaling = inner_scaling or _fewer_exact(question, scaled, spans)
        spans = scaled if inner_scaling else spans
    if named is None:
        most = _products_of_exact(question, spans)
        few = few_residues(question, target, facts, most, inner_scaling)
        if few is not None:
            return _plan(question, few, target, 0.0, _APART, inner_scaling, undecided_apart=True)
        scheme, why = enough_slices(question, max(k, 1), spans), "exact: every bit of the product"
    else:
        assert is_exact(named)  # words have been refused
        scheme, why = named, why_named(named)
        if not holds_every_bit(scheme, max(k, 1), spans):
            raise ValueError(
                f"slices: {named.count} {named.name} do not hold every bit of these operands; leave the count to the "
                "library"
            )
    if question.machine.obstacle(scheme, question.options.engine):
        raise ValueError(
            f"accuracy: every bit of these operands takes {scheme.count} {scheme.name}, more than run here; ask for "
            "bits, as 106 or 'dd'"
        )
    if not is_multiprecision(question.dtype):
        return _plan(question, scheme, target, 0.0, f"{why}, rounded once", inner_scaling)
    plan = _plan(question.with_format(exact_bits(spans, k)), scheme, target, 0.0, why)
    return replace(plan, bound=0.0)  # the format has room for all bits


_WIDER, _NARROWER = 8, 8
"""Bits by which rows are wider than ordinary ones, at least, and bits that scaling along k has to take from the spans
of both operands, for the scaled rows to be weighed: else no slice would be saved, or less than one."""

_LEAST_ROWS = 32
"""Rows of A and columns of B, at least, for which a factor for each inner index takes little memory beside them."""


def _worth_scaling_along_k(question: Question, facts: Facts, spans: tuple[int, int]) -> bool:
    """Whether rows scaled along k are weighed, where the caller leaves it open: rows are wide, and then narrower.

    `spans` are those of the rows as they are.
    """
    if question.options.inner_scaling is False or question.inner_scaling_obstacle or question.empty:
        return False
    _, m, n = question.sizes.stack
    ordinary = ordinary_spans(question)
    if m + n < _LEAST_ROWS or all(span < usual + _WIDER for span, usual in zip(spans, ordinary, strict=True)):
        return False
    if facts[InnerRange()] < _NARROWER:
        return False
    scaled: tuple[int, int] = facts[Spans(inner_scaling=True)]
    return sum(scaled) + _NARROWER <= sum(spans)


def _fewer_exact(question: Question, scaled: tuple[int, int], spans: tuple[int, int]) -> bool:
    """Whether rows of the spans `scaled` take fewer slices to be exact than rows of `spans` do."""
    family = _family(question)
    most, k = FAMILIES[family].most, max(question.length, 1)
    count = exact_below(family, most, k, scaled)
    return count < exact_below(family, most, k, spans) and splits_whole_rows(scheme_of(family, count))


_APART = "exact: entries that these residues leave undecided are computed apart"
"""Why a plan has so few residues (B14)."""


_FAR_MORE = 8
"""Slice products beyond those of ordinary operands, from which on undecided entries are foretold."""


def enough_slices(question: Question, k: int, spans: tuple[int, int]) -> Scheme:
    """The fewest slices that hold every bit of rows of these spans: residues, if the caller names nothing else.

    Raises
    ------
    ValueError
        If no scheme of the family has so many.
    """
    family = _family(question)
    count, most = exact_below(family, FAMILIES[family].most, k, spans), FAMILIES[family].most
    if count == most:
        remedy = "ask for bits" if family.endswith("residues") else "use scheme='residues'"
        raise ValueError(
            f"accuracy: the elements of a row span up to {max(spans)} bits, too many for an exact product by "
            f"{scheme_of(family, most).name}; {remedy}"
        )
    return scheme_of(family, count)


def _products_of_exact(question: Question, spans: tuple[int, int]) -> float:
    """The slice products that hold every bit of rows of these spans; inf if none that runs here does."""
    family, k = _family(question), max(question.length, 1)
    count, most = exact_below(family, FAMILIES[family].most, k, spans), FAMILIES[family].most
    scheme = scheme_of(family, count)
    runs = count < most and not question.machine.obstacle(scheme, question.options.engine)
    return scheme.products if runs else inf


def _family(question: Question) -> str:
    """The family of slices that the caller names, with the count open; residues, if he names none."""
    scheme = "residues" if question.options.scheme == "auto" else str(question.options.scheme)
    return integer_scheme(scheme, question.length, question.complex_rows)


def _relative(question: Question, target: Accuracy, facts: Facts) -> Plan:
    """The plan of slices whose product proves a relative target: residues, if the caller names nothing else."""
    family = _family(question)
    if question.empty:
        return _plan(question, scheme_of(family, least_of(family, 1)), target, 0.0, "an empty product")
    choice = choose_relative(target, question.length, family, facts, partial(few_residues, question, target, facts))
    why = _APART if choice.undecided_apart else "a relative error is proven from the product itself"
    return _plan(question, choice.scheme, target, choice.bound, why, undecided_apart=choice.undecided_apart)


def _named(question: Question, facts: Facts, scheme: Scheme | Words) -> Plan:
    """The plan of a scheme whose count is given."""
    target, why = question.target, why_named(scheme)
    if target is None and not question.for_operands and not question.options.inner_scaling:
        return plan_for_any(question.sizes, question.dtype, scheme, None, question.options, why)
    goal = question.before_rounding(target or default_accuracy(question.dtype, question.k))
    inner_scaling, parts = bool(question.options.inner_scaling), question.sizes.parts
    bound = 0.0
    if not question.empty:
        bound = proven_bound(scheme, goal, question.length, facts, parts=parts, inner_scaling=inner_scaling)
    check_proven(scheme, bound, target, goal.measure, "these operands")
    return _plan(question, scheme, goal, bound, why, inner_scaling)


def _native_by_name(question: Question, facts: Facts) -> Plan:
    """The plan of the native product, where the caller asks for it."""
    target = question.target
    if target is not None and not _in_range(question, facts):
        raise ValueError(f"accuracy: {OUT_OF_RANGE} if the product is native; use scheme='auto'")
    obstacle = question.native_obstacle
    return _native(question, facts, f"{NATIVE_ASKED_FOR}; {obstacle}" if obstacle else NATIVE_ASKED_FOR)


def _native(question: Question, facts: Facts, why: str) -> Plan:
    bound = native_bound(question)
    if question.for_operands and not _in_range(question, facts):
        bound = inf
    a_priori = question.target is None and not question.for_operands
    return native_plan(question.sizes, question.dtype, question.target, bound, why, question.options, a_priori)


def _in_range(question: Question, facts: Facts) -> bool:
    """Whether no product and no partial sum of the native product over- or underflows."""
    return question.empty or bool(facts[NativeInRange()])


def _empty_product(question: Question, candidates: Candidates) -> Plan:
    """The plan of an empty product by slices; any count would do."""
    half = Accuracy("row-column", 0.5)
    scheme = choose_a_priori(half, max(question.length, 1), candidates.families).scheme
    return _plan(question, scheme, candidates.target, 0.0, "an empty product")


def _fastest(
    question: Question, candidates: Candidates, facts: Facts, slices: Scheme | None = None
) -> tuple[Kind, str]:
    """The fastest candidate, and the reason; the native product counts only if it does what is asked."""
    if candidates.native_ruled_out is not None and not candidates.words:
        return "slices", candidates.native_ruled_out
    kind, why = fastest(question, candidates, slices)
    if kind == "native" and not _native_may_run(question, candidates, facts):
        return _fastest(question, candidates.without_native(), facts, slices)
    return kind, why


def _native_may_run(question: Question, candidates: Candidates, facts: Facts) -> bool:
    """Whether the native product does what is asked: it is not ruled out, and in range if an accuracy is named."""
    if candidates.native_ruled_out is not None:
        return False
    return not candidates.accuracy_named or _in_range(question, facts)


def _digits_of_ordinary(question: Question, candidates: Candidates, facts: Facts) -> Plan | Scheme | None:
    """The plan of digits, if they are the fastest candidate for ordinary operands and are proven for these.

    Otherwise the digits that these operands need at least, one more than ordinary ones; None if digits were not tried.
    """
    names, k, target = candidates.families, question.length, candidates.digits_target
    digits = likely_schemes(target, k, names)[0]
    kind, why = _fastest(question, candidates, facts, digits)
    if kind != "slices" or digits.name != "digits" or target.measure != "componentwise":
        return None
    more = replace(digits, count=digits.count + 1)
    left: Least
    right: Least
    left, right = facts[Sample()]
    estimate = usual_of_sample(left, right, min(SAMPLED, k), digits, k)
    if not _SAFETY * estimate * question.sizes.spread <= target.tolerance:
        return more
    proof = Proof(facts, k, target, digits, question.sizes.parts)
    if proof.bound(digits) > target.tolerance:
        return more
    choice = search(target, k, names, proof, must_succeed=False)
    assert choice is not None  # the likely digits have been proven
    return _plan(question, choice.scheme, target, choice.bound, why)


_SAFETY = 1.5
"""Safety factor on the estimated bound (E4) of digits: a proof that fails costs more time than digits may save."""


def _other_than_slices(
    question: Question, candidates: Candidates, facts: Facts, slices: Scheme | None
) -> Plan | tuple[Candidates, str]:
    """The plan of words or of the native product, if one of these is the fastest candidate that does what is asked.

    Otherwise the candidates without the words that prove too little, and the reason why slices are the fastest of them.
    `slices`: the scheme that these operands are known to need; None for the one that ordinary operands do.
    """
    kind, why = _fastest(question, candidates, facts, slices)
    while isinstance(kind, Words):
        bound = _bound_of_words(question, kind, candidates.words_tolerance, facts)
        if bound <= candidates.words_tolerance:
            target = replace(candidates.target, tolerance=min(candidates.words_tolerance, 0.5))
            return _plan(question, kind, target, bound, why)
        candidates = candidates.without(kind)
        # Operands that these words lose too much of need many slices: try other words before a search for slices.
        others = candidates.without_slices() if candidates.words else candidates
        kind, why = _fastest(question, others, facts, slices)
    return _native(question, facts, why) if kind == "native" else (candidates, why)


def _bound_of_words(question: Question, words: Words, tolerance: float, facts: Facts) -> float:
    """The bound of words by the cheapest evidence; if that misses the tolerance, by the least product (B9)."""
    spread = question.sizes.spread
    bound: float = facts[CutBound(words)] * spread
    return bound if bound <= tolerance else word_bounds.by_least(facts[LeastProduct()], words, question.length) * spread


def _slices(question: Question, candidates: Candidates, why: str, facts: Facts) -> Plan:
    """The plan of the fewest slice products, unless these operands need so many that another candidate is faster."""
    k, target = question.length, candidates.target
    if candidates.native_ruled_out is None and not candidates.accuracy_named and facts[Overlap()] < _LEAST_OVERLAP:
        # A proof would fail, and cost a tenth of the product or more. Without a named accuracy none is needed.
        plan = _other_than_slices(question, candidates.without_slices(), facts, None)
        assert isinstance(plan, Plan)
        return plan
    names = candidates.families
    likely = likely_schemes(target, k, names)[0]
    wanted, parts = question.options.inner_scaling, question.sizes.parts
    proof = Proof(facts, k, target, likely, parts, bool(wanted))
    rival: Choice | None = None
    open_ = target.measure == "componentwise" and not wanted and proof.bound(likely) > target.tolerance
    if open_ and _worth_scaling_along_k(question, facts, proof.spans):
        scaled = Proof(facts, k, target, likely, parts, inner_scaling=True)
        rival = search(target, k, names, scaled, must_succeed=False)
        rival = rival if rival is None or splits_whole_rows(rival.scheme) else None
    must_succeed = candidates.native_ruled_out is not None
    choice = search(target, k, names, proof, False, rival)
    if choice is None or choice.scheme.products >= likely.products + _FAR_MORE:
        most = inf if choice is None else choice.scheme.products
        apart = few_residues(question, target, facts, most)
        if apart is not None:
            choice = Choice(apart, 0.0, "residues", undecided_apart=True)
        elif must_succeed or (choice is None and not _native_may_run(question, candidates, facts)):
            choice = search(target, k, names, proof, True, rival)
    if choice is None or choice.scheme.products > likely.products:  # more than ordinary operands need
        needed = choice.scheme if choice else None
        others = candidates if choice else candidates.without_slices()
        found = _other_than_slices(question, others, facts, needed)
        if isinstance(found, Plan):
            return found
        _, why = found
    assert choice is not None
    why = _APART if choice.undecided_apart else why
    return _plan(question, choice.scheme, target, choice.bound, why, choice.inner_scaling, choice.undecided_apart)


_LEAST_OVERLAP = 1 / 16
"""Least overlap (E5) with which a proof of slices is tried where no accuracy is named.

Below it the first level of the proof leaves entries without a lower bound, or nearly so. With k = 2048 the overlap is
0.91 for normal elements, 0.76 for exp(N(0,1)), 0.42 and 0.12 if three and two elements in ten are not zero, and slices
are proven for all of these; it is 0 for exp(2 N(0,1)), Cauchy, triangular and banded data, blocks of different scales,
and one nonzero in ten. Between 0.3 and 0.5 lie exp(1.25 N(0,1)), which is proven, and exp(1.5 N(0,1)), which is not.
"""


def _plan(
    question: Question,
    scheme: Scheme | Words,
    target: Accuracy,
    bound: float,
    why: str,
    inner_scaling: bool = False,
    undecided_apart: bool = False,
) -> Plan:
    if inner_scaling and not splits_whole_rows(scheme):
        raise ValueError(
            f"inner_scaling: True, but {scheme.count} residues of complex operands are more than are scaled along k; "
            "give fewer, or leave it out"
        )
    dtype, proven = question.dtype, with_rounding(bound, question.dtype, target.exponent)
    return plan_of(
        question.sizes, dtype, scheme, target, proven, bound, question.options, why, a_priori=False,
        inner_scaling=inner_scaling, undecided_apart=undecided_apart,
    )  # fmt: skip
