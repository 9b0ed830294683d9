"""The plan: which scheme, how many slices, and what is proven."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, inf, log2
from numbers import Integral
from typing import NoReturn

from ozaki import _bounds, _word_bounds
from ozaki._accuracy import Accuracy, Measure
from ozaki._description import Described
from ozaki._proof import EVERY, SAMPLE, SAMPLED_FROM, ChangedError, Proof, ProofBackend
from ozaki._report import counted, rounded_up
from ozaki.schemes import PRESETS, Digits, Residues, Scheme, Words
from ozaki.schemes.digits import MAX_DIGITS, fp16_digit_bits
from ozaki.schemes.residues import MAX_RESIDUES

SCHEMES = ("auto", "digits", "digits7", "fp16-digits", "residues", "native", *PRESETS)

_SHORTHAND = {"float32": "fp32", "float64": "fp64"}

_WORTH_A_WIDE_PRODUCT = 3
"""Slices that a sharper lower bound must promise to save before a float64 product is spent on it."""


@dataclass(frozen=True)
class Plan:
    """How a product will be computed; plain data, equal on every backend, usable as often as wanted.

    Attributes
    ----------
    shape : (m, k, n)
    batch : leading dimensions of the result
    dtype : "float32" or "float64", the format of the result
    scheme : Digits, Residues, Words, or None for the native product
    target : the accuracy asked for, or what the bound is relative to where a count or the native product was
    bound : what is proven in the target's measure, the rounding to `dtype` included (inf: nothing is). A plan made
        from operands speaks of these operands; an a-priori plan, of all operands (a native one, of those where no
        partial sum over- or underflows).
    a_priori : made without looking at data
    engine : engine asked for, "auto" for the backend's choice
    workspace_limit : bytes, or None
    why : why this scheme
    """

    shape: tuple[int, int, int]
    batch: tuple[int, ...]
    dtype: str
    scheme: Scheme | Words | None
    target: Accuracy
    bound: float
    a_priori: bool
    engine: str = "auto"
    workspace_limit: int | None = None
    why: str = ""

    @property
    def native(self) -> bool:
        return self.scheme is None

    @property
    def reproducible(self) -> bool:
        return isinstance(self.scheme, Scheme)

    @property
    def slices(self) -> int:
        """Number of slices of each operand; 0 for the native product."""
        return 0 if self.scheme is None else self.scheme.count

    @property
    def products(self) -> int:
        """Number of slice products; 1 for the native product."""
        return 1 if self.scheme is None else self.scheme.products

    def __str__(self) -> str:
        m, k, n = self.shape
        stack = "".join(f"{b} x " for b in self.batch)
        what = "the native product"
        if self.scheme is not None:
            what = f"{counted(self.slices, self.scheme.name)}, {self.products} products"
        proven = "no bound" if self.bound == inf else f"{self.target.measure} error <= {rounded_up(self.bound)}"
        origin = "for any operands" if self.a_priori else "for these operands"
        return f"{stack}({m} x {k}) ({k} x {n}), {self.dtype}: {what}\n{proven}, {origin}" + (
            f"\n{self.why}" if self.why else ""
        )


def forced(name: str, count: int) -> Scheme:
    """The scheme of that name with that many slices."""
    if not name.startswith(("digits", "fp16-digits", "residues")):
        raise ValueError(
            f"slices: {count} slices of scheme {name!r}; name what to count: scheme='digits' or 'residues'"
        )
    most = _most(name)
    if isinstance(count, bool) or not isinstance(count, Integral) or not 1 <= count <= most:
        raise ValueError(f"slices: {count!r}; expected a whole number from 1 to {most} for scheme {name!r}")
    return _scheme(name, int(count))


def _scheme(name: str, count: int) -> Scheme:
    if name == "residues":
        return Residues(count)
    kind, _, bits = name.partition("digits")
    return Digits(count, int(bits or 8), "fp16" if kind else "int8")


def words_of(scheme: str | Words) -> Words | None:
    """The words that a choice of scheme means, if it means words."""
    return scheme if isinstance(scheme, Words) else PRESETS.get(scheme)


def integer_scheme(name: str, k: int) -> str:
    """The name with "fp16-digits" spelled out: digits of as many bits as FP16 products leave exact at this k."""
    return f"{name}{fp16_digit_bits(k)}" if name == "fp16-digits" else name


def default_accuracy(dtype: str, k: int) -> Accuracy:
    """What `accuracy=None` asks for: the shorthand of the output's dtype."""
    return Accuracy.of(_SHORTHAND[dtype], k)


@dataclass(frozen=True)
class Choice:
    """A scheme with the bound proven for it, before the rounding to the output."""

    scheme: Scheme
    bound: float


def choose_a_priori(accuracy: Accuracy, k: int, names: tuple[str, ...]) -> Choice:
    """The fewest slice products whose a-priori bound meets a row-column or normwise target."""
    starts = {name: _least(name, k) for name in names}
    order = sorted(names, key=lambda name: _scheme(name, starts[name]).products)

    def bound(scheme: Scheme) -> float:
        return _bounds.a_priori(scheme, k)

    choice = _cheapest(order, starts, bound, bound, accuracy, k)
    return choice or _unreachable(accuracy, names)


class Search:
    """For the fewest slice products whose bound for these operands meets the target.

    Attributes
    ----------
    likely : the scheme that ordinary data needs
    """

    _measured: Measured

    def __init__(self, backend: ProofBackend, k: int, accuracy: Accuracy, names: tuple[str, ...]) -> None:
        self._backend, self._k, self._accuracy, self._names = backend, k, accuracy, names
        self._usual = {name: _usual(name, accuracy, k) for name in names}
        likely = {name: _scheme(name, _likely(name, self._usual[name], accuracy, k)) for name in names}
        self._order = sorted(names, key=lambda name: likely[name].products)
        self.likely = likely[self._order[0]]

    def begin(self, left: Described, right: Described, meanwhile: Callable[[], object] | None = None) -> None:
        """Begin what ordinary data will be asked for; `meanwhile` gives the device something to do beside it."""
        self._measured = Measured(self._backend, left, right, self._accuracy.measure, meanwhile is None)
        self._measured.open()
        if meanwhile is not None:
            meanwhile()
        others = (
            _fewer(name, self._usual[name], self.likely.products, self._accuracy, self._k) for name in self._order[1:]
        )
        self._measured.begin(self.likely, [scheme for scheme in others if scheme is not None])

    def choose(self) -> Choice:
        """The scheme, and the bound proven for it."""
        measured, accuracy, k = self._measured, self._accuracy, self._k
        starts = {name: measured.exact_below(name, count) for name, count in self._usual.items()}
        first = _scheme(self._order[0], starts[self._order[0]])
        while True:
            if measured.gain > 1 and measured.bound(first) > accuracy.tolerance:  # more slices are worth the next level
                measured.settle()
                measured.sharpen(1)
                continue
            choice = _cheapest(self._order, starts, measured.bound, measured.at_least, accuracy, k)
            if choice is None:
                excess = MAX_DIGITS
            else:
                excess = choice.scheme.count - starts[choice.scheme.name]
                excess = max(excess, _one_less_in_reach(choice, accuracy, k, measured.gain))
            measured.settle()
            if not measured.sharpen(excess):
                return choice or _unreachable(accuracy, self._names)

    @property
    def plain(self) -> bool:
        """What was looked at can be done again, and tells then what `choose` asks."""
        return self._measured.plain

    def keep(self) -> None:
        """Let go of the operands, and of all that was found."""
        self._measured.keep()

    def finds(self, scheme: Scheme | Words | None) -> bool:
        """Whether a search that was kept, and has been begun anew by others, ends with that scheme."""
        self._measured.keep()
        try:
            return self.choose().scheme == scheme
        except (ChangedError, ValueError):
            return False
        finally:
            self._measured.settle()  # before others have the memory


def _one_less_in_reach(choice: Choice, accuracy: Accuracy, k: int, gain: int) -> bool:
    """Whether a slice less might do if the bound shrank by that gain."""
    if choice.scheme.count == 1 or choice.bound * _growth(choice.scheme) > gain * accuracy.tolerance:
        return False
    return _usually_good(_scheme(choice.scheme.name, choice.scheme.count - 1), accuracy, k)


@lru_cache(maxsize=1024)
def _usual(name: str, accuracy: Accuracy, k: int) -> int:
    """The count that ordinary data needs in any measure, at least.

    For residues the one that a-priori meets the tolerance in the row-column measure; for digits one less, since max
    scaling fears rows with a single large element.
    """
    counts = range(1, _most(name))
    enough = next((c for c in counts if _bounds.a_priori(_scheme(name, c), k) <= accuracy.tolerance), _most(name))
    if name != "residues":
        enough = max(enough - 1, 1)
    while enough < _most(name) and not _usually_good(_scheme(name, enough), accuracy, k):
        enough += 1
    return enough


@lru_cache(maxsize=1024)
def _likely(name: str, start: int, accuracy: Accuracy, k: int) -> int:
    """The count that the first level of proof grants ordinary data."""
    if name == "residues" or accuracy.measure != "componentwise":
        return start
    counts = range(start, _most(name))
    unseen = EVERY // SAMPLE if k > SAMPLED_FROM else 1
    fits = (c for c in counts if unseen * _bounds.usual_worst(_scheme(name, c), k) <= accuracy.tolerance)
    return next(fits, _most(name))


def _usually_good(scheme: Scheme, accuracy: Accuracy, k: int) -> bool:
    """Ordinary data get the root-mean-square error of a native product of the format that the target names.

    That of cuBLAS is 0.45 2**-24 for float32 and 0.46 2**-53 for float64 on normal data.
    """
    return accuracy.bits is None or _bounds.usual_rms(scheme, k) <= 0.45 * 2.0**-accuracy.bits


class Measured:
    """Bounds of schemes for one pair of operands in one measure; `alone` as a `ProofBackend` takes it."""

    def __init__(
        self, backend: ProofBackend, left: Described, right: Described, measure: Measure, alone: bool = True
    ) -> None:
        self._backend, self._left, self._right, self._measure = backend, left, right, measure
        self._alone = alone
        self._proof: Proof | None = None
        self._known: dict[Scheme | Words, float] = {}

    def bound(self, scheme: Scheme | Words) -> float:
        """The bound at the present level of proof; inf where there is none."""
        if scheme not in self._known:
            self._known[scheme] = self._bound(scheme)
        return self._known[scheme]

    def _bound(self, scheme: Scheme | Words) -> float:
        if isinstance(scheme, Words):
            bound = _bounds.words_by_rows(self._left.on_host, self._right.on_host, scheme)
            return bound if bound < inf else _word_bounds.relative(scheme, self._left.k) + self._of_terms(scheme)
        return inf if scheme.scaling(self._left.k) is None else self._of_terms(scheme)

    def _of_terms(self, scheme: Scheme | Words) -> float:
        """What the outer products of B1 come to in the measure."""
        if self._measure == "componentwise":
            self.open()
            assert self._proof is not None
            return self._proof.ratio(scheme)
        left, right = self._left.on_host, self._right.on_host
        terms = _bounds.error_terms(left, right, scheme, self._spans)
        of_measure = _bounds.normwise if self._measure == "normwise" else _bounds.row_column
        return of_measure(left, right, terms)

    def at_least(self, scheme: Scheme) -> float:
        """What the bound is no smaller than, at a glance."""
        if self._measure != "componentwise" or scheme.scaling(self._left.k) is None:
            return self.bound(scheme)
        assert self._proof is not None
        return self._proof.at_least(scheme)

    def open(self) -> None:
        """Begin what the proofs of all schemes need, in the componentwise measure."""
        if self._measure == "componentwise" and self._proof is None:
            self._proof = Proof(self._backend, self._left, self._right, self._alone)

    def begin(self, likely: Scheme, others: Sequence[Scheme]) -> None:
        """Begin to prove a bound, where a device does that, and to find what those of others are no smaller than."""
        self.open()
        if self._proof is not None:
            wanted = ((likely, False), *((other, True) for other in others))
            self._proof.begin(each for each in wanted if each[0].scaling(self._left.k) is not None)

    def settle(self) -> None:
        """Wait for all that was begun."""
        if self._proof is not None:
            self._proof.settle()

    @property
    def plain(self) -> bool:
        """All was looked at by one proof on a device, which can do that again."""
        return self._proof is not None and self._proof.plain

    def keep(self) -> None:
        """Let go of the operands, and of all that was found."""
        self._known.clear()
        if self._proof is not None:
            self._proof.keep()
            self._left, self._right = self._proof.operands

    @property
    def _spans(self) -> tuple[int, int]:
        return (self._left.span, self._right.span) if self._proof is None else self._proof.spans

    def exact_below(self, name: str, most: int) -> int:
        """The smallest count at which the images of all rows are exact; `most` if that is not smaller."""
        return _exact_below(name, most, self._left.k, self._spans)

    @property
    def gain(self) -> int:
        """Factor by which the next level of proof shrinks the bounds of ordinary data."""
        return 1 if self._proof is None or self._proof.next_level != "narrow" else EVERY // SAMPLE

    def sharpen(self, excess: int) -> bool:
        """Go to a sharper lower bound, if there is one that is worth it for `excess` slices."""
        if self._proof is None or self._proof.next_level is None or excess <= 0:
            return False
        if self._proof.next_level == "wide" and excess < _WORTH_A_WIDE_PRODUCT:
            return False
        self._proof.sharpen()
        self._known.clear()
        return True


@lru_cache(maxsize=1024)
def _exact_below(name: str, most: int, k: int, spans: tuple[int, int]) -> int:
    for count in range(_least(name, k), most):
        scheme = _scheme(name, count)
        scaling = scheme.scaling(k)
        assert scaling is not None
        if max(spans) <= scaling.base and _bounds.dropped(scheme, k, spans) == 0:
            return count
    return most


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
        start, last = starts[name], _most(name)
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
    count = max((c for c in range(1, _most(name) + 1) if _scheme(name, c).products < products), default=0)
    if count >= start or (count >= max(start - _SPARED, 1) and _usually_good(_scheme(name, count), accuracy, k)):
        return _scheme(name, count)
    return None


def _fewest(
    name: str, bound: Callable[[Scheme], float], accuracy: Accuracy, k: int, first: int, last: int
) -> Choice | None:
    """The smallest count up to `last` that meets the target, searched from `first`."""

    def meets(choice: Choice) -> bool:
        usual = choice.bound == 0 or _usually_good(choice.scheme, accuracy, k)
        return choice.bound <= accuracy.tolerance and usual

    def at(count: int) -> Choice:
        return Choice(_scheme(name, count), bound(_scheme(name, count)))

    choice = at(first)
    while not meets(choice):
        count = choice.scheme.count
        following = min(_in_reach(choice, accuracy, k), last)
        if following == count or (choice.bound == inf and count > first):
            return None
        choice = at(following)
    while choice.scheme.count > 1 and choice.bound * _growth(choice.scheme) <= accuracy.tolerance:
        if choice.bound > 0 and not _usually_good(_scheme(name, choice.scheme.count - 1), accuracy, k):
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
    more, room = range(count + 1, _most(name)), _room(choice.scheme, k)
    return next((c for c in more if ceil(_room(_scheme(name, c), k) - room - 2.0**-20) >= missing), _most(name))


@lru_cache(maxsize=1024)
def _room(scheme: Scheme, k: int) -> float:
    scaling = scheme.scaling(k)
    assert scaling is not None  # else there is no bound
    return scaling.room


@lru_cache(maxsize=1024)
def _least(name: str, k: int) -> int:
    """The smallest count that has room for this k."""
    return next(count for count in range(1, _most(name)) if _scheme(name, count).scaling(k) is not None)


def _most(name: str) -> int:
    return MAX_RESIDUES if name == "residues" else MAX_DIGITS


def _unreachable(accuracy: Accuracy, names: tuple[str, ...]) -> NoReturn:
    most = " or ".join(f"{_most(name)} {name}" for name in names)
    raise ValueError(
        f"accuracy: {accuracy.measure} {accuracy.tolerance:.3g} cannot be proven with up to {most}; "
        "ask for a larger tolerance or the row-column measure"
    )
