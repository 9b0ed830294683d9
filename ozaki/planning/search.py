"""The fewest slice products whose bound meets a target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf, log2
from typing import NoReturn

from ozaki.bounds.a_priori import a_priori, usual_rms, usual_worst
from ozaki.bounds.levels import EVERY, MOST_UNSAMPLED, SAMPLE
from ozaki.caches import cached
from ozaki.planning.proof import Proof, holds_every_bit
from ozaki.records.accuracy import Accuracy
from ozaki.schemes import Scheme, scaling_of
from ozaki.schemes.named import FAMILIES, least_of, scheme_of


@dataclass(frozen=True)
class Choice:
    """A scheme of a family with the bound proven for it, before the rounding to the output.

    `inner_scaling` says whether that is the bound of rows scaled along k (definitions.md, 10), `undecided_apart`
    whether it holds since undecided entries are computed apart (B14).
    """

    scheme: Scheme
    bound: float
    family: str
    inner_scaling: bool = False
    undecided_apart: bool = False


def choose_a_priori(accuracy: Accuracy, k: int, names: tuple[str, ...]) -> Choice:
    """The scheme of the fewest slice products whose a-priori bound meets a row-column or normwise target."""
    # The bound of a few slices is beyond the range of a float in units of a far smaller tolerance.
    starts = {name: _usual(name, accuracy, k) if accuracy.exponent else least_of(name, k) for name in names}
    order = sorted(names, key=lambda name: scheme_of(name, starts[name]).products)

    def bound(scheme: Scheme) -> float:
        return a_priori(scheme, k, accuracy.exponent)

    choice = _cheapest(order, starts, bound, bound, accuracy, k)
    return choice or _unreachable(accuracy, names)


def search(
    target: Accuracy,
    k: int,
    names: tuple[str, ...],
    proof: Proof,
    must_succeed: bool = True,
    rival: Choice | None = None,
) -> Choice | None:
    """The scheme of the fewest slice products whose bound for the operands meets the target.

    Parameters
    ----------
    target : the accuracy asked for
    k : inner dimension
    names : the names of the schemes to choose from
    proof : what facts prove of the operands; the search may sharpen it
    must_succeed : whether a choice has to be found: the proof may then go to the wide level, and none is an error
    rival : a choice that meets the target, and is returned unless no more slice products do without it

    Returns
    -------
    Choice, or None if it need not be found, and no count meets the target without the wide level

    Raises
    ------
    ValueError
        If one has to be found, and no count meets the target.
    """
    order, spans = likely_order(target, k, names), proof.spans
    starts = {name: exact_below(name, _usual(name, target, k), k, spans) for name in names}
    first = scheme_of(order[0], starts[order[0]])
    settled, most = _exact_images(order, k, spans), inf
    if settled is not None:
        most = settled.scheme.products - _WORTH_A_BOUND
    if rival is not None and (settled is None or rival.scheme.products < settled.scheme.products):
        settled, most = rival, rival.scheme.products
        if all(scheme_of(name, start).products > most for name, start in starts.items()):
            return rival
    while True:
        if proof.gain > 1 and proof.bound(first) > target.tolerance:  # the next level costs less than another slice
            proof.sharpen(1)
            continue
        choice = _cheapest(order, starts, proof.bound, proof.at_least, target, k, most) or settled
        spared = inf
        if choice is not None:
            spared = choice.scheme.products - scheme_of(choice.family, starts[choice.family]).products
            if spared <= 0 and _one_less_in_reach(choice, target, k, proof.gain):
                spared = 1
        if not proof.sharpen(spared, must_succeed):
            if choice is None:
                return None if not must_succeed else _unreachable(target, names)
            return choice if choice is rival else replace(choice, inner_scaling=proof.inner_scaling)


def _exact_images(order: Sequence[str], k: int, spans: tuple[int, int]) -> Choice | None:
    """The scheme of the fewest slice products with which all images are exact, so that it needs no proof; or None."""
    counts = {name: exact_below(name, FAMILIES[name].most, k, spans) for name in order}
    found = [Choice(scheme_of(name, c), 0.0, name) for name, c in counts.items() if c < FAMILIES[name].most]
    return min(found, key=lambda choice: choice.scheme.products, default=None)


def _one_less_in_reach(choice: Choice, accuracy: Accuracy, k: int, gain: int) -> bool:
    """Whether one slice less might meet the target if the next level divided its bound by `gain`."""
    if choice.scheme.count == 1 or choice.bound * choice.scheme.growth > gain * accuracy.tolerance:
        return False
    return _usually_good(scheme_of(choice.family, choice.scheme.count - 1), accuracy, k)


def _cheapest(
    order: Sequence[str],
    starts: dict[str, int],
    bound: Callable[[Scheme], float],
    at_least: Callable[[Scheme], float],
    accuracy: Accuracy,
    k: int,
    most: float = inf,
) -> Choice | None:
    """The scheme of the fewest slice products that meets the target; on a tie the one whose name is first in `order`.

    Parameters
    ----------
    starts : the count that the search begins at, for each name
    bound : the bound of a scheme
    at_least : a lower bound of `bound` that costs less; rules a scheme out
    most : slice products up to which a bound is worth its time; beyond them something else is known to do
    """
    best: Choice | None = None
    for name in order:
        start, last = starts[name], FAMILIES[name].most
        if best is None and most < inf:
            last = max(start, _most_below(name, int(most) + 1))
        elif best is not None:
            fewer = _fewer(name, start, best.scheme.products, accuracy, k)
            if fewer is None or at_least(fewer) > accuracy.tolerance:
                continue
            start, last = min(start, fewer.count), fewer.count
        choice = _fewest(name, bound, accuracy, k, start, last, most >= 2 * scheme_of(name, start).products)
        if choice is None and most < inf and bound(scheme_of(name, start)) == inf:
            break  # an entry has no lower bound at this level, so that slices of another kind prove no more
        if choice is not None and (best is None or choice.scheme.products < best.scheme.products):
            best = choice
    return best


_WORTH_A_BOUND = 3
"""Slice products that one more bound must be able to save: to find it takes about as long as one or two of them."""


def _most_below(name: str, products: int) -> int:
    """The largest count of slices with fewer than `products` slice products; 0 if there is none."""
    return first_count(lambda c: scheme_of(name, c).products >= products, 1, FAMILIES[name].most + 1, products) - 1


_SPARED = 2
"""How far below its start a search may end: data with single large elements may need so many slices fewer."""


@cached(1024)
def _fewer(name: str, start: int, products: int, accuracy: Accuracy, k: int) -> Scheme | None:
    """The most slices with fewer than `products` slice products.

    None if that is more than `_SPARED` below `start`, where the search stops, or if ordinary data need more.
    """
    count = _most_below(name, products)
    if count >= start or (count >= max(start - _SPARED, 1) and _usually_good(scheme_of(name, count), accuracy, k)):
        return scheme_of(name, count)
    return None


def _fewest(
    name: str, bound: Callable[[Scheme], float], accuracy: Accuracy, k: int, first: int, last: int, persist: bool
) -> Choice | None:
    """The smallest count up to `last` that meets the target, searched from `first` on; None if none is found.

    `persist`: whether one more count is tried where the first bound is infinite, with which more rows may be exact.
    """

    def meets(choice: Choice) -> bool:
        usual = choice.bound == 0 or _usually_good(choice.scheme, accuracy, k)
        return choice.bound <= accuracy.tolerance and usual

    def at(count: int) -> Choice:
        scheme = scheme_of(name, count)
        return Choice(scheme, bound(scheme), name)

    choice = at(first)
    while not meets(choice):
        count = choice.scheme.count
        following = min(_in_reach(choice, accuracy, k), last)
        if following == count or (choice.bound == inf and (count > first or not persist)):
            return None
        choice = at(following)
    while choice.scheme.count > 1 and choice.bound * choice.scheme.growth <= accuracy.tolerance:
        if choice.bound > 0 and not _usually_good(scheme_of(name, choice.scheme.count - 1), accuracy, k):
            break  # its bound need not be asked: images that are not exact now are not exact with fewer slices
        fewer = at(choice.scheme.count - 1)
        if not meets(fewer):
            break
        choice = fewer
    return choice


def _in_reach(choice: Choice, accuracy: Accuracy, k: int) -> int:
    """The next larger count that may meet the target while no more rows become exact.

    The bound then shrinks as the units of the images do. A count in between meets the target only where rows become
    exact. Skipping counts is safe: the downward search tries them again.
    """
    name, count = choice.family, choice.scheme.count
    if choice.bound == inf:
        return count + 1
    missing = log2(choice.bound) - log2(accuracy.tolerance)
    room = scaling_of(choice.scheme, k).room

    def more(count: int) -> bool:
        return ceil(scaling_of(scheme_of(name, count), k).room - room - 2.0**-20) >= missing

    return first_count(more, count + 1, FAMILIES[name].most)


def _unreachable(accuracy: Accuracy, names: tuple[str, ...]) -> NoReturn:
    most = " or ".join(f"{FAMILIES[name].most} {scheme_of(name, 1).name}" for name in names)
    raise ValueError(
        f"accuracy: {accuracy.measure} {accuracy.in_words} cannot be proven with up to {most}; "
        "ask for a larger tolerance or the row-column measure"
    )


# Counts that the search begins at -------------------------------------------------------------------------------------


@cached(1024)
def likely_schemes(accuracy: Accuracy, k: int, names: tuple[str, ...]) -> tuple[Scheme, ...]:
    """The scheme of each name with the count that ordinary data need, fewest slice products first."""
    return tuple(scheme_of(name, _likely(name, accuracy, k)) for name in likely_order(accuracy, k, names))


@cached(1024)
def likely_order(accuracy: Accuracy, k: int, names: tuple[str, ...]) -> tuple[str, ...]:
    """The names of families in the order of the slice products that ordinary data need, the fewest first."""
    return tuple(sorted(names, key=lambda name: scheme_of(name, _likely(name, accuracy, k)).products))


def _likely(name: str, accuracy: Accuracy, k: int) -> int:
    """The smallest count with which the first level of a proof most likely proves the target of ordinary data (E3)."""
    start, most = _usual(name, accuracy, k), FAMILIES[name].most
    if name.endswith("residues") or accuracy.measure != "componentwise":
        return start
    sampling_factor = EVERY // SAMPLE if k > MOST_UNSAMPLED else 1
    fits = (c for c in range(start, most) if sampling_factor * usual_worst(scheme_of(name, c), k) <= accuracy.tolerance)
    return next(fits, most)


@cached(1024)
def _usual(name: str, accuracy: Accuracy, k: int) -> int:
    """The least count that ordinary data need, whatever the measure.

    For residues it is the one whose a-priori row-column bound meets the tolerance; for digits one less, since their
    a-priori bound allows for rows with a single large element. More if the root-mean-square error takes more.
    """

    def enough(count: int) -> bool:
        return a_priori(scheme_of(name, count), k, accuracy.exponent) <= accuracy.tolerance

    most = FAMILIES[name].most
    bits = 1 + log2(max(k, 1)) / 2 - log2(accuracy.tolerance) - accuracy.exponent  # of 2 sqrt(k) / tolerance (B4)
    count = first_count(enough, 1, most, _holding(name, bits, most))
    if not name.endswith("residues"):
        count = max(count - 1, 1)
    return first_count(lambda c: _usually_good(scheme_of(name, c), accuracy, k), count, most)


def _usually_good(scheme: Scheme, accuracy: Accuracy, k: int) -> bool:
    """Whether ordinary data get a root-mean-square error (E1) like a native product's, if the target has `bits`.

    The error of cuBLAS on normal data is 0.45 2**-24 for float32 and 0.46 2**-53 for float64.
    """
    if accuracy.bits is None:
        return True
    return usual_rms(scheme, k, accuracy.exponent) <= 0.45 * 2.0 ** -(accuracy.bits + accuracy.exponent)


@cached(1024)
def exact_below(name: str, most: int, k: int, spans: tuple[int, int]) -> int:
    """The smallest count that holds every bit of rows of these spans; `most` if that is not smaller."""
    if 2 * max(spans) > 21 * most:  # no slice holds more bits than that of a sum; moduli take long to find
        return most
    # By norm scaling an image may have 10 bits fewer than its largest norm, by max scaling one bit fewer.
    guess = _holding(name, max(spans) + 10, most)
    return first_count(lambda count: holds_every_bit(scheme_of(name, count), k, spans), 1, most, guess)


def _holding(name: str, bits: float, most: int) -> int:
    """The smallest count, up to `most`, whose largest images have so many bits: a guess, which costs no bound."""
    return first_count(lambda count: scheme_of(name, count).largest.bit_length() > bits, 1, most)


def first_count(holds: Callable[[int], bool], first: int, last: int, guess: int = 0) -> int:
    """The smallest count from `first` on for which a condition holds; `last` if none before it is found.

    The condition must hold for all counts beyond the smallest. Steps away from the guess are doubled, then halved, so
    that few counts far from the smallest are tried; a right guess takes two tries at most.
    """
    low, high, step = first, last, 1
    held = failed = False
    while low < high:
        if held and failed:
            probe = (low + high) // 2
        elif held:
            probe, step = high - step, 2 * step
        elif failed:
            probe, step = low + step - 1, 2 * step
        else:
            probe = guess
        probe = min(max(probe, low), high - 1)
        if holds(probe):
            high, held = probe, True
        else:
            low, failed = probe + 1, True
    return low
