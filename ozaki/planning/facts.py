"""Facts: the plain numbers that looking at the operands gives, each named by the need that asks for it.

`choose` asks for facts by name and holds no arrays; a backend's `Work.measure` finds them. A fact is the same number on
every backend, except `CutBound`, for which each backend takes its cheapest evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from ozaki._accuracy import Measure
from ozaki.bounds.levels import Level
from ozaki.schemes import Scheme, Words

T = TypeVar("T")


class Need:
    """A fact that a decision asks for. Needs are equal if they ask for the same fact."""


@dataclass(frozen=True)
class Sample(Need):
    """What the first `SAMPLED` elements of each row show: (Least, Least), of the left and the right operand."""


@dataclass(frozen=True)
class Overlap(Need):
    """How much the large elements of a few rows of A and columns of B meet (E5; docs/bounds.md): float.

    The least k (abs(A) abs(B))_ij / (s_i s_j) among them, s a row's sum of magnitudes, over some inner indices: about 1
    for independent elements, near 0 where large elements meet small ones.
    """


@dataclass(frozen=True)
class NativeInRange(Need):
    """Whether no product and no partial sum of the native product can over- or underflow (B5): bool."""


@dataclass(frozen=True)
class Spans(Need):
    """Largest top - bottom of the rows of the left and the right operand: (int, int), bits that exact images need."""


@dataclass(frozen=True)
class RowsBound(Need):
    """The bound of a scheme that the descriptions of all rows prove, in that measure: float.

    Row-column and normwise for digits and residues (B2, B3), componentwise for words (B8 with B9; inf where the
    descriptions do not tell enough).
    """

    scheme: Scheme | Words
    measure: Measure


@dataclass(frozen=True)
class CutBound(Need):
    """The componentwise bound of words (B8) by whatever is cheapest: float, inf where it does not tell enough.

    Where words are cut in one read of the operands, that read tells whether an element loses part of itself, and a
    sample tells how much that may be. Elsewhere it is `RowsBound`.
    """

    words: Words


@dataclass(frozen=True)
class LeastProduct(Need):
    """The least entry of (abs(A) abs(B))_ij 2**-(top_i + top_j) that the first level proves: float.

    Among rows that are not all zeros; inf if there are none.
    """


class Ratio(NamedTuple):
    """The worst ratio over all entries looked at.

    Attributes
    ----------
    worst : largest image error / lower bound of (abs(A) abs(B))_ij; inf where the lower bound is 0 and the error is not
    spans : largest top - bottom of the rows of both operands
    least_span : smallest one of a row with a nonzero
    """

    worst: float
    spans: tuple[int, int]
    least_span: int


@dataclass(frozen=True)
class WorstRatio(Need):
    """The worst ratio of a scheme at a level (B7): Ratio.

    Attributes
    ----------
    scheme, level : what is compared with what
    few_rows : in the first rows of A only (`bounds.levels.FEW_ROWS`); enough to see that a scheme does not do
    drops : the image error includes the digit pairs that the scheme leaves out. They are known to vanish for operands
        of small spans, and then the ratio is asked for without them.
    """

    scheme: Scheme | Words
    level: Level
    few_rows: bool = False
    drops: bool = True


class MissingFact(LookupError):  # noqa: N818 - not an error: the answer of a decision that needs more
    """A decision needs a fact that is not there.

    Attributes
    ----------
    need : what it asks for
    """

    def __init__(self, need: Need) -> None:
        super().__init__(need)
        self.need = need


class Facts(Mapping[Need, Any]):
    """The facts found so far, never changed; asking for another one raises `MissingFact`."""

    def __init__(self, found: Mapping[Need, Any] | None = None) -> None:
        self._found = dict(found or {})

    def __getitem__(self, need: Need) -> Any:
        try:
            return self._found[need]
        except KeyError:
            raise MissingFact(need) from None

    def __contains__(self, need: object) -> bool:
        return need in self._found

    def __iter__(self) -> Iterator[Need]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def having(self, need: Need, value: Any) -> Facts:
        """These facts and one more."""
        return Facts(self._found | {need: value})


def settle(decide: Callable[[Facts], T], measure: Callable[[Need, Facts], Any], facts: Facts) -> tuple[T, Facts]:
    """Ask a decision until it has all the facts that it needs.

    Parameters
    ----------
    decide : function of the facts; raises `MissingFact` while it needs another one
    measure : finds a fact that is needed, given those that are there
    facts : those that are there at first

    Returns
    -------
    The decision, and the facts that there are then.
    """
    while True:
        try:
            return decide(facts), facts
        except MissingFact as missing:
            facts = facts.having(missing.need, measure(missing.need, facts))
