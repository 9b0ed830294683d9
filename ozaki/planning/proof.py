"""What facts prove of schemes: the bound of each, level by level (docs/bounds.md, B1 to B4, B7, B8)."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from ozaki.bounds import words as word_bounds
from ozaki.bounds.description import NO_SPAN
from ozaki.bounds.exact import FAR
from ozaki.bounds.levels import SAMPLE, SAMPLED_EVERY, bits_of, levels
from ozaki.bounds.rounding import UP, scaled
from ozaki.caches import cached
from ozaki.planning.facts import Facts, LeastProduct, Ratio, RelativeError, RowsBound, Spans, WorstRatio
from ozaki.records.accuracy import Accuracy
from ozaki.records.shapes import REAL, Parts, spread_of
from ozaki.schemes import Scheme, Words, is_exact
from ozaki.schemes.image import ceil_log2

_WIDE_PRODUCT = 30
"""Slice products that the wide level, a float64 product, has to save to be worth its time.

It takes as long as 23 slice products on an A100, 30 on an H200, and 400 where float64 is slow. The number is the
same for all machines, though far too small for these last ones, so that plans are the same everywhere.
"""


class Proof:
    """The bounds that facts prove in the measure and the unit of a target, for one decision.

    Componentwise bounds are worst ratios at a level; a decision begins at the cheapest level and may `sharpen`. In the
    other measures there is one level, that of the descriptions.

    Parameters
    ----------
    k : inner dimension of the (real) product
    first : the scheme whose worst ratio is asked for first; that fact also has the spans of the operands
    parts : real parts of an element of A and of B
    inner_scaling : whether the rows are those scaled along k (definitions.md, 10); in componentwise measure alone

    Attributes
    ----------
    inner_scaling : as given
    gain : factor by which the next level divides the bounds of ordinary data
    """

    def __init__(
        self,
        facts: Facts,
        k: int,
        target: Accuracy,
        first: Scheme | Words,
        parts: Parts = REAL,
        inner_scaling: bool = False,
    ) -> None:
        assert target.measure == "componentwise" or not inner_scaling
        self.inner_scaling = inner_scaling
        self._facts, self._k, self._first, self._spread = facts, k, first, spread_of(parts)
        self._measure, self._exponent = target.measure, target.exponent
        self._levels = levels(k) if target.measure == "componentwise" else ()
        self._level_index = 0
        self._least_span: int | None = None
        self.gain = SAMPLED_EVERY[min(parts)] // SAMPLE if self._levels[:1] == ("sampled",) else 1

    def bound(self, scheme: Scheme | Words) -> float:
        """The bound of a scheme at the current level, before the rounding to the output; inf where there is none."""
        if self._needs_none(scheme):
            return 0.0
        bound = self._bound(scheme) * self._spread
        return inf if bound > FAR / 2.0**100 else bound

    def _needs_none(self, scheme: Scheme | Words) -> bool:
        """Whether the spans, which the first ratio has found, show that the product by this scheme is exact."""
        if not self._levels or isinstance(scheme, Words) or scheme == self._first:
            return False
        return holds_every_bit(scheme, self._k, self.spans)

    def _bound(self, scheme: Scheme | Words) -> float:
        if isinstance(scheme, Words):
            bound: float = self._facts[RowsBound(scheme, "componentwise")]  # of words: the exponent is 0
            if bound < inf:
                return bound
            if self._levels:
                return word_bounds.relative(scheme, self._k) + self._ratio(scheme) * UP
        elif scheme.scaling(self._k) is None:
            return inf
        elif self._levels:
            return self._ratio(scheme) * UP
        bound = self._facts[RowsBound(scheme, self._measure, self._exponent)]
        return bound

    def at_least(self, scheme: Scheme) -> float:
        """A lower bound of `bound(scheme)`, from the first rows of A; inf where `bound` is surely inf at this level."""
        if not self._levels or scheme.scaling(self._k) is None or self._needs_none(scheme):
            return self.bound(scheme)
        return self._ratio(scheme, few_rows=True) * self._spread

    def _ratio(self, scheme: Scheme | Words, few_rows: bool = False) -> float:
        """The worst ratio of the scheme at the current level, a number without unit; inf where it has none."""
        if self._surely_unproven(scheme):
            return inf
        level = self._levels[self._level_index]
        need = WorstRatio(scheme, level, few_rows, exponent=self._exponent, inner_scaling=self.inner_scaling)
        ratio: Ratio = self._facts[need]
        if not isinstance(scheme, Words) and _vanishing(scheme, self._k, ratio.spans):
            ratio = self._facts[replace(need, drops=False)]
        if ratio.worst == inf:
            self._least_span = ratio.least_span
        return ratio.worst * 4.0 ** bits_of(level, self._k)

    def _surely_unproven(self, scheme: Scheme | Words) -> bool:
        """Whether an entry has no lower bound at this level but an error, since the scheme rounds every row."""
        if isinstance(scheme, Words) or self._least_span is None:
            return False
        scaling = scheme.scaling(self._k)
        return scaling is not None and scaling.most_bits < self._least_span

    @property
    def spans(self) -> tuple[int, int]:
        """The largest exponent spans of rows: those of the first ratio, or, where there is none, the fact `Spans`."""
        if self._levels and (isinstance(self._first, Words) or self._first.scaling(self._k) is not None):
            need = WorstRatio(self._first, self._levels[0], exponent=self._exponent, inner_scaling=self.inner_scaling)
            ratio: Ratio = self._facts[need]
            return ratio.spans
        spans: tuple[int, int] = self._facts[Spans(self.inner_scaling)]
        return spans

    @property
    def _next_level(self) -> str | None:
        return self._levels[self._level_index + 1] if self._level_index + 1 < len(self._levels) else None

    def sharpen(self, spared: float, allow_wide: bool = True) -> bool:
        """Go to the next level if `spared` slice products are worth its time; to the wide one only with `allow_wide`.

        Returns whether it went there; False if there is no further level.
        """
        level = self._next_level
        if level is None or spared <= 0 or (level == "wide" and (spared < _WIDE_PRODUCT or not allow_wide)):
            return False
        self._level_index += 1
        self._least_span, self.gain = None, 1
        return True


def holds_every_bit(scheme: Scheme, k: int, spans: tuple[int, int]) -> bool:
    """Whether the product of rows of length k and of these spans is exact: their images, and all that is added."""
    scaling = scheme.scaling(k)
    return scaling is not None and max(spans) <= scaling.base and scheme.dropped(k, spans) == 0


def exact_bits(spans: tuple[int, int], k: int) -> int:
    """Bits that hold every entry of the exact product of rows of these spans, from its first set bit to its last."""
    return max(sum(spans) + ceil_log2(max(k, 1)), 2)


def relative_bound(bits: float, exponent: int) -> float:
    """The relative error 2**-bits in units of 2**exponent; inf where none is proven, 0 where there is none."""
    if abs(bits) == inf:
        return 0.0 if bits > 0 else inf
    return scaled(2.0 ** (int(bits) - bits), -int(bits) - exponent) * UP


@cached(1024)
def _vanishing(scheme: Scheme, k: int, spans: tuple[int, int]) -> bool:
    """Whether the slice products that a scheme leaves out are all zero for operands of these spans, but not for all."""
    return scheme.drop > 0 and scheme.dropped(k, spans) != scheme.dropped(k, (NO_SPAN, NO_SPAN))


def proven_bound(
    scheme: Scheme | Words,
    target: Accuracy,
    k: int,
    facts: Facts,
    wanted: float = inf,
    parts: Parts = REAL,
    inner_scaling: bool = False,
) -> float:
    """The bound of a given scheme, before the rounding to the output, from the first level at which it suffices.

    With `inner_scaling` that of the product of rows scaled along k.

    It suffices if it meets the target and is no larger than `wanted`. Where no level suffices, it is the bound at the
    last one, or, for words, by the least product (B9), if that is smaller.
    """
    if target.measure == "relative":
        if not is_exact(scheme):
            return inf
        return relative_bound(facts[RelativeError(scheme)], target.exponent)

    enough = min(target.tolerance, wanted)
    proof = Proof(facts, k, target, scheme, parts, inner_scaling)
    while (bound := proof.bound(scheme)) > enough and proof.sharpen(inf):
        pass
    if isinstance(scheme, Words) and bound > enough:
        bound = min(bound, word_bounds.by_least(facts[LeastProduct()], scheme, k) * spread_of(parts))
    return bound
