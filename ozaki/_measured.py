"""Bounds of schemes for the operands at hand, at the present level of proof."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import inf

from ozaki import _bounds, _word_bounds
from ozaki._accuracy import Measure
from ozaki._description import Described
from ozaki._proof import EVERY, SAMPLE, Proof, ProofBackend
from ozaki.schemes import Scheme, Words
from ozaki.schemes.named import least_of, scheme_of

_WIDE_PRODUCT = 24
"""Slice products that take as long as the float64 product of the sharpest lower bound (A100: 23; H200: 27)."""


class Measured:
    """Bounds of schemes for one pair of operands in one measure; `alone` as a `ProofBackend` takes it.

    No proof holds more bytes than `limit`, if there is one.
    """

    def __init__(
        self,
        backend: ProofBackend,
        left: Described,
        right: Described,
        measure: Measure,
        alone: bool = True,
        limit: int | None = None,
    ) -> None:
        self._backend, self._left, self._right, self._measure = backend, left, right, measure
        self._alone, self._limit = alone, limit
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
            self._proof = Proof(self._backend, self._left, self._right, self._alone, self._limit)

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
    def workspace(self) -> int:
        """Most bytes that were held for a proof."""
        return 0 if self._proof is None else self._proof.workspace

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

    def sharpen(self, spared: float, wide: bool = True) -> bool:
        """Go to a sharper lower bound, by a `wide` product or not, if there is one that so many products are worth."""
        if self._proof is None or self._proof.next_level is None or spared <= 0:
            return False
        if self._proof.next_level == "wide" and (spared < _WIDE_PRODUCT or not wide):
            return False
        self._proof.sharpen()
        self._known.clear()
        return True


@lru_cache(maxsize=1024)
def _exact_below(name: str, most: int, k: int, spans: tuple[int, int]) -> int:
    for count in range(least_of(name, k), most):
        scheme = scheme_of(name, count)
        scaling = scheme.scaling(k)
        assert scaling is not None
        if max(spans) <= scaling.base and _bounds.dropped(scheme, k, spans) == 0:
            return count
    return most
