"""Low-precision words: their bound for any operands (B8), for the operands at hand (with B9), and the estimate E2."""

from __future__ import annotations

from functools import partial
from math import ceil, expm1, inf, log1p, sqrt

import numpy as np

from ozaki.bounds.description import Description, Least
from ozaki.bounds.exact import ErrorTerms
from ozaki.bounds.rounding import UP
from ozaki.caches import cached
from ozaki.schemes.formats import FORMATS
from ozaki.schemes.words import Group, Words, groups

_LEAST_PRODUCT = 2.0**-60
"""Least product of two scaled elements that are counted as at least 2**floor each; no floor is below -30."""

_LEAST_FP16 = 2.0**-25
"""Half the smallest FP16 number: the most that rounding to FP16 loses where a sum underflows."""


@cached(1024)
def relative(words: Words, k: int, probable: bool = False) -> float:
    """B8: bound of abs(E_ij) / (abs(A) abs(B))_ij, elements below 2**floor counted as 2**floor.

    All roundings are included but the last one, to float32. With `probable` it is E2, an estimate and no bound, which
    takes the square roots of the numbers of roundings.
    """
    p = words.count
    pairs = {pair for group in groups(words) for pair in group.pairs}
    left_out = sum(
        words.size(s) * words.size(t) for s in range(1, p + 1) for t in range(1, p + 1) if (s, t) not in pairs
    )
    total = 2 * words.residual + words.residual**2 + left_out
    all_groups = groups(words)
    for i, group in enumerate(all_groups):
        additions = _outer_additions(words, i, len(all_groups))
        error = _compound(_group_error(words, group, k, probable), _growth(_outer_roundoff(words), additions))
        total += sum(words.size(s) * words.size(t) for s, t in group.pairs) * error
    if words.accumulator == "fp32":
        # Twice: an accumulator may lose as much when it is scaled after a turn, and a turn has a step at least.
        underflow = (_cut(words) * 2.0 ** FORMATS["fp32"].least + 2.0**-149) / _LEAST_PRODUCT
        total += underflow * (2 * sum(_steps(words, group, k) for group in all_groups) + len(all_groups))
    return total * UP


@cached(1024)
def small(words: Words, k: int) -> float:
    """B8: c', the factor on what elements below 2**floor add: `relative`, and what their words leave."""
    left = words.size(words.count + 1)
    return relative(words, k) + (2 * left if words.residual == 0 else 0.0)


@cached(1024)
def absolute(words: Words, k: int) -> float:
    """B8: kappa, the most that FP16 accumulators lose to underflow in an entry, in units of the scaled rows."""
    if words.accumulator != "fp16":
        return 0.0
    assert words.block is not None
    (group,), cut = groups(words), _cut(words)
    each = _LEAST_FP16 + cut * 2.0 ** FORMATS["fp16"].least
    inside = _growth(2.0**-11 + cut, _steps(words, group, min(k, words.block)))
    magnified = _compound(inside, _growth(_outer_roundoff(words), ceil(k / words.block)))
    return 2 * _steps(words, group, k) * each * (1 + magnified)


def a_priori(words: Words, k: int) -> float:
    """B8: abs(E_ij) / (norm(a_i) norm(b_j)) for any operands of inner dimension k."""
    phi = 2.0**words.lowest
    lost = small(words, k) * (4 * sqrt(k) * phi + 4 * k * phi**2) + 4 * absolute(words, k) * 4.0**-words.ceiling
    return (relative(words, k) + lost) * UP


def _steps(words: Words, group: Group, k: int) -> int:
    """Sums that the tensor core rounds for an entry, over all blocks."""
    sums = partial(words.core.sums, words.word)
    whole, rest = divmod(k, words.block) if group.promoted and words.block else (0, k)
    return len(group.pairs) * (whole * sums(words.block or 0) + sums(rest))


def _cut(words: Words) -> float:
    """The most that a sum on the tensor core loses when its terms are aligned, relative to 2**(largest exponent).

    The term with that exponent loses nothing if alignment keeps as many bits as FP32 has.
    """
    core = words.core
    return (core.terms(words.word) + (core.alignment_bits < FORMATS["fp32"].bits - 1)) * 2.0**-core.alignment_bits


def _group_error(words: Words, group: Group, k: int, probable: bool) -> float:
    """Error bound of the sum of a group, promotion included, relative to the sum of its absolute products."""
    if not group.promoted:
        return _chain(words, group, k, probable)
    assert words.block is not None
    inner = _chain(words, group, min(k, words.block), probable)
    additions = ceil(k / words.block) - 1
    if words.promotion == "fp32" and len(groups(words)) == 1:
        additions -= 1  # the last one is the rounding to the result
    count = max(additions, 0)
    return _compound(inner, _growth(_outer_roundoff(words), sqrt(count) if probable else count))


def _chain(words: Words, group: Group, k: int, probable: bool) -> float:
    """Error bound of one accumulator of the tensor core over k, relative to the sum of the absolute products.

    Each sum cuts what lies far below its largest term, and rounds, relative to what has been added so far: steps of
    early turns, whose words are small, count less. Cutting toward zero never makes a sum larger, rounding to nearest
    may.
    """
    sums = words.core.sums(words.word, k)
    nearest = words.accumulator == "fp16" or words.core.rounding == "RN"
    roundoff = 2.0 ** -FORMATS[words.accumulator].bits * (1 if nearest else 2)
    each = _cut(words) + roundoff
    added, steps, weighted = 0.0, 0, 0.0
    for turn in group.turns:
        added += sum(words.size(s) * words.size(t) for s, t in turn)
        steps += len(turn) * sums
        weighted += len(turn) * sums * added
    count = weighted / added
    return (sqrt(count) if probable else count) * each * (1 + _growth(roundoff, steps) if nearest else 1)


def _outer_roundoff(words: Words) -> float:
    """Unit roundoff of the sums outside the tensor core."""
    return 2.0**-53 if words.promotion == "fp64" else 2.0**-24


def _outer_additions(words: Words, i: int, count: int) -> int:
    """How often the sum of group i of `count` is rounded when all are added, the rounding to the result not counted."""
    through = count - max(i, 1)
    return through if words.promotion == "fp64" else max(through - 1, 0)


def _growth(roundoff: float, count: float) -> float:
    """(1 + roundoff)**count - 1."""
    exponent = count * log1p(roundoff)
    return expm1(exponent) if exponent < 100 else inf


def _compound(first: float, then: float) -> float:
    """(1 + first) (1 + then) - 1."""
    return first + then + first * then


def error_terms(left: Description, right: Description, words: Words) -> ErrorTerms:
    """B8 for these operands: what small elements add to the relative error of words, as outer products.

    In units of 2**(top_i + top_j), with phi = 2**(floor - ceiling) for a row that may hold elements below 2**floor and
    0 for others. All terms are 0 where the relative bound alone holds.
    """
    k, c = left.k, small(words, left.k)
    lost = absolute(words, k) * 4.0**-words.ceiling
    phi, psi = (np.where(side.below(words.lowest), 2.0**words.lowest, 0.0)
                for side in (left, right))  # fmt: skip
    filled_left, filled_right = (np.where(side.empty, 0.0, 1.0) for side in (left, right))
    return ErrorTerms(
        np.stack([c * phi, c * (left.sums + k * phi), lost * filled_left]) * UP,
        np.stack([right.sums, psi, filled_right]) * UP,
    )


def by_rows(left: Description, right: Description, words: Words) -> float:
    """B8 for these operands, componentwise, from their descriptions alone; inf where these do not prove enough.

    What small elements add is bounded by B9, and that is used only where it is negligible: otherwise B7 is sharper.
    """
    terms = error_terms(left, right, words)
    of_large = relative(words, left.k)
    if terms.vanish:
        return of_large
    share = least_share(left, right)
    if share == 0:
        return inf
    worst_left, worst_right = (
        np.divide(of, side.least_sums, out=np.zeros_like(of), where=~side.empty).max(axis=(1, 2), initial=0.0)
        for of, side in ((terms.left, left), (terms.right, right))
    )
    added = float((worst_left * worst_right).sum()) / share
    return (of_large + added) * UP if added <= _NEGLIGIBLE * of_large else inf


_NEGLIGIBLE = 2.0**-7
"""Most that small elements may add by B9, relative to the bound without them."""


def lossless(words: Words, k: int) -> float:
    """B8 for operands without elements below 2**floor, componentwise; inf if FP16 accumulators may underflow."""
    return relative(words, k) if absolute(words, k) == 0 else inf


def by_sample(left: Least, right: Least, some: int, words: Words, k: int) -> float:
    """B8 for any operands with these samples, componentwise; inf where B9 proves nothing by them.

    `some` of the k inner indices are sampled, the same ones of both operands. Of the others only the largest element of
    each whole row, by `Least.steps`, is known.
    """
    if not (left.every_row_seen and right.every_row_seen):
        return inf
    least = _share(left.elements, right.elements, some)
    for side in (left, right):
        least *= side.sums * 2.0**side.steps
    return by_least(least, words, k)


def by_least(least: float, words: Words, k: int) -> float:
    """B8 for any operands with (abs(A) abs(B))_ij >= `least` 2**(top_i + top_j) except in rows of zeros.

    Componentwise; inf if `least` is 0.
    """
    phi, lost = 2.0**words.lowest, absolute(words, k) * 4.0**-words.ceiling
    added = small(words, k) * k * phi * (2 + phi) + lost
    return (relative(words, k) + added / least) * UP if least > 0 else inf


def least_share(left: Description, right: Description) -> float:
    """B9: a lower bound of (abs(A) abs(B))_ij / (s_i s_j) over all rows that are not empty, s their `least_sums`."""
    return _share(left.least_elements, right.least_elements, left.k)


def _share(left: float, right: float, k: int) -> float:
    """B9: a lower bound of (abs(A) abs(B))_ij / (s_i s_j), from the least s**2 / norm**2 of a row of either operand.

    By the Paley-Zygmund inequality at least (1 - t)**2 s_i**2 / norm(a_i)**2 elements of a row are t s_i / k or more.
    Where two rows have more than k of these together, they share as many inner indices as exceed k. 0 where not.
    """
    counts = sum((1 - _OF_MEAN) ** 2 * min(elements, k) for elements in (left, right))
    meeting = max(counts - k * (1 + 2.0**-20), 0.0)
    return float(meeting * (_OF_MEAN / k) ** 2 / UP)


_OF_MEAN = 2.0**-5
"""t of B9: elements of at least t times the mean magnitude of their row count."""
