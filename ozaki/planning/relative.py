"""Relative targets: abs(E_ij) <= tolerance abs(C_ij), proven from the product itself.

How much cancels in an entry shows in the product alone. So the product is computed with the slices that ordinary
operands need; its entries, less their errors, prove a bound or show how many bits are missing; and so on with more
slices. At the latest with images that are exact every entry is right, zeros included.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf, log2

from ozaki.planning.facts import Facts, RelativeError, Spans
from ozaki.planning.proof import relative_bound
from ozaki.planning.search import Choice, exact_below, first_count, likely_schemes
from ozaki.records.accuracy import Accuracy
from ozaki.schemes import Scheme, scaling_of
from ozaki.schemes.named import FAMILIES, scheme_of


def choose_relative(target: Accuracy, k: int, family: str, facts: Facts, few: Callable[[int], Scheme | None]) -> Choice:
    """The first scheme of a family whose product proves a relative target; raises `MissingFact` if a fact is missing.

    `few` gives the residues that take less time than so many slice products if undecided entries are computed apart.

    Raises
    ------
    ValueError
        If no scheme is left to try.
    """
    spans: tuple[int, int] = facts[Spans()]
    most = FAMILIES[family].most
    exact = exact_below(family, most, k, spans)
    componentwise = replace(target, measure="componentwise")
    count = min(likely_schemes(componentwise, k, (family,))[0].count, exact)
    wanted = -log2(target.tolerance) - target.exponent
    while True:
        scheme = scheme_of(family, count)
        proven: float = facts[RelativeError(scheme)]
        if proven >= wanted:
            return Choice(scheme, relative_bound(proven, target.exponent), family)
        if count >= exact:
            raise ValueError(
                f"accuracy: relative {target.in_words} cannot be proven with up to {most} {scheme.name}; ask for a "
                "componentwise accuracy"
            )
        count = min(_next(scheme, k, family, wanted, proven), exact)
        apart = few(scheme_of(family, count).products)
        if apart is not None:
            return Choice(apart, 0.0, family, undecided_apart=True)


def _next(scheme: Scheme, k: int, family: str, wanted: float, proven: float) -> int:
    """The count whose images have the bits that are missing, or half as many again where an entry shows nothing."""
    base = scaling_of(scheme, k).base
    more = base / 2 if proven == -inf else wanted - proven
    most = FAMILIES[family].most
    enough = first_count(lambda c: scaling_of(scheme_of(family, c), k).base >= base + more, scheme.count, most)
    return max(enough, scheme.count + 1)
