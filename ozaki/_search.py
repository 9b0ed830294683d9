"""The fewest slice products whose bound meets a target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, inf, log2
from typing import NoReturn

import numpy as np

from ozaki import _bounds
from ozaki._accuracy import Accuracy
from ozaki._description import Described
from ozaki._measured import Measured
from ozaki._proof import EVERY, SAMPLE, SAMPLED_FROM, ChangedError, ProofBackend
from ozaki.schemes import Residues, Scheme, Words, scaling_of
from ozaki.schemes.named import least_of, most_of, scheme_of


@dataclass(frozen=True)
class Choice:
    """A scheme with the bound proven for it, before the rounding to the output."""

    scheme: Scheme
    bound: float


def choose_a_priori(accuracy: Accuracy, k: int, names: tuple[str, ...]) -> Choice:
    """The fewest slice products whose a-priori bound meets a row-column or normwise target."""
    starts = {name: least_of(name, k) for name in names}
    order = sorted(names, key=lambda name: scheme_of(name, starts[name]).products)

    def bound(scheme: Scheme) -> float:
        return _bounds.a_priori(scheme, k)

    choice = _cheapest(order, starts, bound, bound, accuracy, k)
    return choice or _unreachable(accuracy, names)


class Search:
    """For the fewest slice products whose bound for these operands meets the target, within `limit` bytes, if given.

    Attributes
    ----------
    likely : the scheme that ordinary data needs
    """

    _measured: Measured

    def __init__(
        self, backend: ProofBackend, k: int, accuracy: Accuracy, names: tuple[str, ...], limit: int | None = None
    ) -> None:
        self._backend, self._k, self._accuracy, self._names, self._limit = backend, k, accuracy, names, limit
        self._usual = {name: _usual(name, accuracy, k) for name in names}
        by_products = likely_schemes(accuracy, k, names)
        self._order = [scheme.name for scheme in by_products]
        self.likely = by_products[0]

    def begin(self, left: Described, right: Described, meanwhile: Callable[[], object] | None = None) -> None:
        """Begin what ordinary data will be asked for; `meanwhile` gives the device something to do beside it."""
        alone = meanwhile is None
        self._measured = Measured(self._backend, left, right, self._accuracy.measure, alone, self._limit)
        self._measured.open()
        if meanwhile is not None:
            meanwhile()
        others = (
            _fewer(name, self._usual[name], self.likely.products, self._accuracy, self._k) for name in self._order[1:]
        )
        self._measured.begin(self.likely, [scheme for scheme in others if scheme is not None])

    def likely_proven(self) -> bool:
        """Whether the first level of proof grants these operands what ordinary data need; waits for it."""
        try:
            return self._measured.bound(self.likely) <= self._accuracy.tolerance
        finally:
            self._measured.settle()

    def choose(self, wide: bool = True) -> Choice | None:
        """The scheme, and the bound proven for it; None where that would take a wide product and it may not."""
        self._wide = wide
        measured, accuracy, k = self._measured, self._accuracy, self._k
        starts = {name: measured.exact_below(name, count) for name, count in self._usual.items()}
        first = scheme_of(self._order[0], starts[self._order[0]])
        while True:
            if measured.gain > 1 and measured.bound(first) > accuracy.tolerance:  # more slices are worth the next level
                measured.settle()
                measured.sharpen(1)
                continue
            choice = _cheapest(self._order, starts, measured.bound, measured.at_least, accuracy, k)
            spared = inf
            if choice is not None:
                name = choice.scheme.name
                spared = choice.scheme.products - scheme_of(name, starts[name]).products
                spared = max(spared, _one_less_in_reach(choice, accuracy, k, measured.gain))
            measured.settle()
            if not measured.sharpen(spared, wide):
                return choice if choice or not wide else _unreachable(accuracy, self._names)

    @property
    def workspace(self) -> int:
        """Most bytes that were held for a proof."""
        return self._measured.workspace

    @property
    def plain(self) -> bool:
        """What was looked at can be done again, and tells then what `choose` asks."""
        return self._measured.plain

    def keep(self) -> None:
        """Let go of the operands, and of all that was found."""
        self._measured.keep()

    @np.errstate(all="ignore")
    def finds(self, scheme: Scheme | Words | None) -> bool:
        """Whether a search that was kept, and has been begun anew by others, ends as it did with that scheme."""
        self._measured.keep()
        try:
            choice = self.choose(self._wide)
            return choice is not None and choice.scheme == scheme
        except (ChangedError, ValueError):
            return False
        finally:
            self._measured.settle()  # before others have the memory


def _one_less_in_reach(choice: Choice, accuracy: Accuracy, k: int, gain: int) -> bool:
    """Whether a slice less might do if the bound shrank by that gain."""
    if choice.scheme.count == 1 or choice.bound * _growth(choice.scheme) > gain * accuracy.tolerance:
        return False
    return _usually_good(scheme_of(choice.scheme.name, choice.scheme.count - 1), accuracy, k)


@lru_cache(maxsize=1024)
def _usual(name: str, accuracy: Accuracy, k: int) -> int:
    """The count that ordinary data needs in any measure, at least.

    For residues the one that a-priori meets the tolerance in the row-column measure; for digits one less, since max
    scaling fears rows with a single large element.
    """
    counts = range(1, most_of(name))
    enough = next((c for c in counts if _bounds.a_priori(scheme_of(name, c), k) <= accuracy.tolerance), most_of(name))
    if name != "residues":
        enough = max(enough - 1, 1)
    while enough < most_of(name) and not _usually_good(scheme_of(name, enough), accuracy, k):
        enough += 1
    return enough


@lru_cache(maxsize=1024)
def likely_schemes(accuracy: Accuracy, k: int, names: tuple[str, ...]) -> tuple[Scheme, ...]:
    """Of each name what ordinary data need, fewest products first."""
    schemes = (scheme_of(name, _likely(name, accuracy, k)) for name in names)
    return tuple(sorted(schemes, key=lambda scheme: scheme.products))


def _likely(name: str, accuracy: Accuracy, k: int) -> int:
    """The count that the first level of proof grants ordinary data."""
    start = _usual(name, accuracy, k)
    if name == "residues" or accuracy.measure != "componentwise":
        return start
    counts = range(start, most_of(name))
    unseen = EVERY // SAMPLE if k > SAMPLED_FROM else 1
    fits = (c for c in counts if unseen * _bounds.usual_worst(scheme_of(name, c), k) <= accuracy.tolerance)
    return next(fits, most_of(name))


def _usually_good(scheme: Scheme, accuracy: Accuracy, k: int) -> bool:
    """Ordinary data get the root-mean-square error of a native product of the format that the target names.

    That of cuBLAS is 0.45 2**-24 for float32 and 0.46 2**-53 for float64 on normal data.
    """
    return accuracy.bits is None or _bounds.usual_rms(scheme, k) <= 0.45 * 2.0**-accuracy.bits


def _cheapest(
    order: list[str],
    starts: dict[str, int],
    bound: Callable[[Scheme], float],
    at_least: Callable[[Scheme], float],
    accuracy: Accuracy,
    k: int,
) -> Choice | None:
    """The scheme and count with the fewest products that meet the target; of two, the first in that order."""
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
"""Slices less than the start that data with single large elements may need."""


@lru_cache(maxsize=1024)
def _fewer(name: str, start: int, products: int, accuracy: Accuracy, k: int) -> Scheme | None:
    """The most slices with less than that many products, if a search from that start may end there or below."""
    count = max((c for c in range(1, most_of(name) + 1) if scheme_of(name, c).products < products), default=0)
    if count >= start or (count >= max(start - _SPARED, 1) and _usually_good(scheme_of(name, count), accuracy, k)):
        return scheme_of(name, count)
    return None


def _fewest(
    name: str, bound: Callable[[Scheme], float], accuracy: Accuracy, k: int, first: int, last: int
) -> Choice | None:
    """The smallest count up to `last` that meets the target, searched from `first`."""

    def meets(choice: Choice) -> bool:
        usual = choice.bound == 0 or _usually_good(choice.scheme, accuracy, k)
        return choice.bound <= accuracy.tolerance and usual

    def at(count: int) -> Choice:
        return Choice(scheme_of(name, count), bound(scheme_of(name, count)))

    choice = at(first)
    while not meets(choice):
        count = choice.scheme.count
        following = min(_in_reach(choice, accuracy, k), last)
        if following == count or (choice.bound == inf and count > first):
            return None
        choice = at(following)
    while choice.scheme.count > 1 and choice.bound * _growth(choice.scheme) <= accuracy.tolerance:
        if choice.bound > 0 and not _usually_good(scheme_of(name, choice.scheme.count - 1), accuracy, k):
            break  # before it is looked at: what is not exact now will not be with less
        fewer = at(choice.scheme.count - 1)
        if not meets(fewer):
            break
        choice = fewer
    return choice


def _growth(scheme: Scheme) -> int:
    """Least factor by which the error grows when a slice is taken away, so that most often there is nothing to try.

    The last modulus m holds log2(m) / 2 bits of each row, rounded down; a digit holds all of its bits, but the third
    one doubles the pairs that are dropped. A single digit drops none: its error may be no larger than that of two.
    """
    if isinstance(scheme, Residues):
        return 8 if scheme.moduli[-1] >= 64 else 4
    return 2 ** (scheme.bits - 1) if scheme.count > 2 else 0


def _in_reach(choice: Choice, accuracy: Accuracy, k: int) -> int:
    """The next count that may meet the target if no more rows are exact: the bound shrinks as the units of images do.

    Counts in between could do only where rows become exact, and then this one does, too.
    """
    name, count = choice.scheme.name, choice.scheme.count
    if choice.bound == inf:
        return count + 1
    missing = log2(choice.bound) - log2(accuracy.tolerance)
    more, room = range(count + 1, most_of(name)), _room(choice.scheme, k)
    return next((c for c in more if ceil(_room(scheme_of(name, c), k) - room - 2.0**-20) >= missing), most_of(name))


@lru_cache(maxsize=1024)
def _room(scheme: Scheme, k: int) -> float:
    return scaling_of(scheme, k).room


def _unreachable(accuracy: Accuracy, names: tuple[str, ...]) -> NoReturn:
    most = " or ".join(f"{most_of(name)} {name}" for name in names)
    raise ValueError(
        f"accuracy: {accuracy.measure} {accuracy.tolerance:.3g} cannot be proven with up to {most}; "
        "ask for a larger tolerance or the row-column measure"
    )
