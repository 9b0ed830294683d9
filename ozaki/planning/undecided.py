"""Exact products by fewer residues: entries that their error leaves undecided are computed apart.

With a few bits beyond the format almost every entry is decided: both ends of its error interval round alike (B14). The
few others are summed exactly, one by one. How many these are the fact `UndecidedShare` foretells; that every entry is
right does not hang on it.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, log2, sqrt

from ozaki.bounds.rounding import scaled
from ozaki.bounds.undecided import Crossings
from ozaki.planning.facts import Facts, UndecidedShare
from ozaki.planning.question import Question
from ozaki.planning.search import first_count
from ozaki.records.accuracy import Accuracy
from ozaki.records.formats import precision_of
from ozaki.schemes import Scheme, scaling_of
from ozaki.schemes.constants import MOST_AT_ONCE
from ozaki.schemes.named import FAMILIES, least_of, scheme_of

_LEAST_SAVED = 4
"""Slice products that undecided entries of ordinary data have to save at least, for those of these operands to be
foretold where others would be proven."""

_ENTRY, _FIXED = 500.0, 2.0**25
"""There, `entry_apart` and `foretelling` of all machines: what is chosen is the same on all, and so are the bits."""

_SPARE = 4
"""Bits that images have beyond the format with the fewest residues that are weighed: fewer decide no entry."""


def few_residues(
    question: Question, target: Accuracy, facts: Facts, most: float, inner_scaling: bool = False
) -> Scheme | None:
    """The residues that take least time if undecided entries are computed apart; None if they save nothing.

    `target`: of the slices, before the rounding; `most`: slice products of what else does.
    """
    if not target.exact and scaled(target.tolerance, target.exponent) < 2.0 ** -(precision_of(question.dtype) + _SPARE):
        return None  # what is asked for is more than the format shows, as of products whose slices are counted so
    if not question.rounds_floats or question.empty or question.options.scheme not in ("auto", "residues"):
        return None
    if inner_scaling and not target.exact:
        return None
    # The exact product is the same by all plans; what else is asked for is settled alike on all machines.
    machine = question.machine
    entry, fixed = (machine.entry_apart, machine.foretelling) if target.exact else (_ENTRY, _FIXED)
    k = max(question.length, 1)
    bits = precision_of(question.dtype) + _SPARE
    batch, m, n = question.sizes.stack
    fixed /= float(batch) * m * n * k
    least = first_count(lambda c: _bits(c, k) >= bits, least_of("residues", k), FAMILIES["residues"].most)
    counts = range(least, int(min(most, MOST_AT_ONCE)) + 1)
    ordinary, _ = _cheapest(counts, lambda count: entry * _usual_share(count, k, question.dtype))
    if ordinary + max(fixed, 0 if target.exact else _LEAST_SAVED) + 1 > most:
        return None  # and nothing is asked of the operands
    found: Crossings = facts[UndecidedShare(scheme_of("residues", least), inner_scaling)]

    def share(count: int) -> float:
        return found.share(_bits(count, k) - _bits(least, k))

    cost, _ = _cheapest(counts, lambda count: entry * share(count))
    if cost + fixed + 1 > most:
        return None
    _, count = _cheapest(counts, lambda count: machine.entry_apart * share(count))
    return scheme_of("residues", count)


def _cheapest(counts: range, apart: Callable[[int], float]) -> tuple[float, int]:
    """The least of count + apart(count), and its count; counts beyond it are not tried, since none costs less."""
    least, best = inf, counts.start
    for count in counts:
        if count >= least:
            break
        total = count + apart(count)
        if total < least:
            least, best = total, count
    return least, best


def _usual_share(count: int, k: int, dtype: str) -> float:
    """About the share of entries of ordinary data, N(0, 1), that so many residues leave undecided.

    Of the entries whose rows are not exact, 16 sqrt(k) 2**(p - b); and of these rows there are k 2**(p - b).
    """
    beyond: float = 2.0 ** (precision_of(dtype) - _bits(count, k))
    return min(16 * sqrt(k) * beyond, 1.0) * min(k * beyond, 1.0)


def _bits(count: int, k: int) -> float:
    """Bits, not rounded to an integer, of the images of rows of k equal elements by so many residues."""
    scaling = scaling_of(scheme_of("residues", count), k)
    return scaling.room - scaling.width - log2(k) / 2
