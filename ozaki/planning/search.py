"""The fewest slice products whose bound meets a target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, inf, log2
from typing import NoReturn

from ozaki.bounds.a_priori import a_priori, usual_rms, usual_worst
from ozaki.bounds.levels import EVERY, MOST_UNSAMPLED, SAMPLE
from ozaki.planning.proof import Proof
from ozaki.records.accuracy import Accuracy
from ozaki.schemes import Scheme, scaling_of
from ozaki.schemes.named import first_count, least_of, most_of, scheme_of


@dataclass(frozen=True)
class Choice:
    """A scheme of a family with the bound proven for it, before the rounding to the output."""

    scheme: Scheme
    bound: float
    family: str


def choose_a_priori(accuracy: Accuracy, k: int, names: tuple[str, ...]) -> Choice:
    """The scheme of the fewest slice products whose a-priori bound meets a row-column or normwise target."""
    # The bound of a few slices is beyond the range of a float in units of a far smaller tolerance.
    starts = {name: _usual(name, accuracy, k) if accuracy.exponent else least_of(name, k) for name in names}
    order = sorted(names, key=lambda name: scheme_of(name, starts[name]).products)

    def bound(scheme: Scheme) -> float:
        return a_priori(scheme, k, accuracy.exponent)

    choice = _cheapest(order, starts, bound, bound, accuracy, k)
    return choice or _unreachable(accuracy, names)


def search(target: Accuracy, k: int, names: tuple[str, ...], proof: Proof, must_succeed: bool = True) -> Choice | None:
    """The scheme of the fewest slice products whose bound for the operands meets the target.

    Parameters
    ----------
    target : the accuracy asked for
    k : inner dimension
    names : the names of the schemes to choose from
    proof : what facts prove of the operands; the search may sharpen it
    must_succeed : whether a choice has to be found: the proof may then go to the wide level, and none is an error

    Returns
    -------
    Choice, or None if it need not be found, and no count meets the target without the wide level

    Raises
    ------
    ValueError
        If one has to be found, and no count meets the target.
    """
    usual = {name: _usual(name, target, k) for name in names}
    order = likely_order(target, k, names)
    starts = {name: proof.exact_below(name, count) for name, count in usual.items()}
    first = scheme_of(order[0], starts[order[0]])
    while True:
        if proof.gain > 1 and proof.bound(first) > target.tolerance:  # the next level costs less than another slice
            proof.sharpen(1)
            continue
        choice = _cheapest(order, starts, proof.bound, proof.at_least, target, k)
        spared = inf
        if choice is not None:
            name = choice.family
            spared = choice.scheme.products - scheme_of(name, starts[name]).products
            if spared <= 0 and _one_less_in_reach(choice, target, k, proof.gain):
                spared = 1
        if not proof.sharpen(spared, must_succeed):
            if choice or not must_succeed:
                return choice
            return _exact_images(order[0], proof) or _unreachable(target, names)


def _exact_images(name: str, proof: Proof) -> Choice | None:
    """The scheme with which all images are exact, for operands without a bound for fewer slices; None if none is."""
    most = most_of(name)
    count = proof.exact_below(name, most)
    return Choice(scheme_of(name, count), 0.0, name) if count < most else None


def _one_less_in_reach(choice: Choice, accuracy: Accuracy, k: int, gain: int) -> bool:
    """Whether one slice less might meet the target if the next level divided its bound by `gain`."""
    if choice.scheme.count == 1 or choice.bound * choice.scheme.growth > gain * accuracy.tolerance:
        return False
    return _usually_good(scheme_of(choice.family, choice.scheme.count - 1), accuracy, k)


@lru_cache(maxsize=1024)
def _usual(name: str, accuracy: Accuracy, k: int) -> int:
    """The least count that ordinary data need, whatever the measure.

    For residues it is the one whose a-priori row-column bound meets the tolerance; for digits one less, since their
    a-priori bound allows for rows with a single large element. More if the root-mean-square error takes more.
    """

    def enough(count: int) -> bool:
        return a_priori(scheme_of(name, count), k, accuracy.exponent) <= accuracy.tolerance

    count = first_count(enough, 1, most_of(name))
    if not name.endswith("residues"):
        count = max(count - 1, 1)
    return first_count(lambda c: _usually_good(scheme_of(name, c), accuracy, k), count, most_of(name))


@lru_cache(maxsize=1024)
def likely_schemes(accuracy: Accuracy, k: int, names: tuple[str, ...]) -> tuple[Scheme, ...]:
    """The scheme of each name with the count that ordinary data need, fewest slice products first."""
    return tuple(scheme_of(name, _likely(name, accuracy, k)) for name in likely_order(accuracy, k, names))


@lru_cache(maxsize=1024)
def likely_order(accuracy: Accuracy, k: int, names: tuple[str, ...]) -> tuple[str, ...]:
    """The names of families in the order of the slice products that ordinary data need, the fewest first."""
    return tuple(sorted(names, key=lambda name: scheme_of(name, _likely(name, accuracy, k)).products))


def _likely(name: str, accuracy: Accuracy, k: int) -> int:
    """The smallest count with which the first level of a proof most likely proves the target of ordinary data (E3)."""
    start = _usual(name, accuracy, k)
    if name.endswith("residues") or accuracy.measure != "componentwise":
        return start
    counts = range(start, most_of(name))
    sampling_factor = EVERY // SAMPLE if k > MOST_UNSAMPLED else 1
    fits = (c for c in counts if sampling_factor * usual_worst(scheme_of(name, c), k) <= accuracy.tolerance)
    return next(fits, most_of(name))


def _usually_good(scheme: Scheme, accuracy: Accuracy, k: int) -> bool:
    """Whether ordinary data get a root-mean-square error (E1) like a native product's, if the target has `bits`.

    The error of cuBLAS on normal data is 0.45 2**-24 for float32 and 0.46 2**-53 for float64.
    """
    if accuracy.bits is None:
        return True
    return usual_rms(scheme, k, accuracy.exponent) <= 0.45 * 2.0 ** -(accuracy.bits + accuracy.exponent)


def _cheapest(
    order: Sequence[str],
    starts: dict[str, int],
    bound: Callable[[Scheme], float],
    at_least: Callable[[Scheme], float],
    accuracy: Accuracy,
    k: int,
) -> Choice | None:
    """The scheme of the fewest slice products that meets the target; on a tie the one whose name is first in `order`.

    Parameters
    ----------
    starts : the count that the search begins at, for each name
    bound : the bound of a scheme
    at_least : a lower bound of `bound` that costs less; rules a scheme out
    """
    best: Choice | None = None
    for name in order:
        start, last = starts[name], most_of(name)
        if best is not None:
            fewer = _fewer(name, start, best.scheme.products, accuracy, k)
            if fewer is None or at_least(fewer) > accuracy.tolerance:
                continue
            start, last = min(start, fewer.count), fewer.count
        choice = _fewest(name, bound, accuracy, k, start, last)
        if choice is not None and (best is None or choice.scheme.products < best.scheme.products):
            best = choice
    return best


_SPARED = 2
"""How far below its start a search may end: data with single large elements may need so many slices fewer."""


@lru_cache(maxsize=1024)
def _fewer(name: str, start: int, products: int, accuracy: Accuracy, k: int) -> Scheme | None:
    """The most slices with fewer than `products` slice products; None if a search from `start` cannot end so low."""
    count = first_count(lambda c: scheme_of(name, c).products >= products, 1, most_of(name) + 1) - 1
    if count >= start or (count >= max(start - _SPARED, 1) and _usually_good(scheme_of(name, count), accuracy, k)):
        return scheme_of(name, count)
    return None


def _fewest(
    name: str, bound: Callable[[Scheme], float], accuracy: Accuracy, k: int, first: int, last: int
) -> Choice | None:
    """The smallest count up to `last` that meets the target, searched from `first` on; None if none is found."""

    def meets(choice: Choice) -> bool:
        usual = choice.bound == 0 or _usually_good(choice.scheme, accuracy, k)
        return choice.bound <= accuracy.tolerance and usual

    def at(count: int) -> Choice:
        return Choice(scheme_of(name, count), bound(scheme_of(name, count)), name)

    choice = at(first)
    while not meets(choice):
        count = choice.scheme.count
        following = min(_in_reach(choice, accuracy, k), last)
        if following == count or (choice.bound == inf and count > first):
            return None
        choice = at(following)
    while choice.scheme.count > 1 and choice.bound * choice.scheme.growth <= accuracy.tolerance:
        if choice.bound > 0 and not _usually_good(scheme_of(name, choice.scheme.count - 1), accuracy, k):
            break  # without its bound: images that are not exact now are not exact with fewer slices
        fewer = at(choice.scheme.count - 1)
        if not meets(fewer):
            break
        choice = fewer
    return choice


def _in_reach(choice: Choice, accuracy: Accuracy, k: int) -> int:
    """The next larger count that may meet the target while no more rows become exact.

    The bound then shrinks as the units of the images do. A count in between meets the target only where rows become
    exact; then this one does too, and the way down finds the other.
    """
    name, count = choice.family, choice.scheme.count
    if choice.bound == inf:
        return count + 1
    missing = log2(choice.bound) - log2(accuracy.tolerance)
    room = _room(choice.scheme, k)

    def more(count: int) -> bool:
        return ceil(_room(scheme_of(name, count), k) - room - 2.0**-20) >= missing

    return first_count(more, count + 1, most_of(name))


@lru_cache(maxsize=1024)
def _room(scheme: Scheme, k: int) -> float:
    """`Scaling.room` of a scheme, in bits, cached."""
    return scaling_of(scheme, k).room


def _unreachable(accuracy: Accuracy, names: tuple[str, ...]) -> NoReturn:
    most = " or ".join(f"{most_of(name)} {scheme_of(name, 1).name}" for name in names)
    raise ValueError(
        f"accuracy: {accuracy.measure} {accuracy.in_words} cannot be proven with up to {most}; "
        "ask for a larger tolerance or the row-column measure"
    )
