"""Facts: numbers, or small tuples of numbers, found in the operands, each named by the need that asks for it.

`choose` asks for facts by name and holds no arrays; a backend's `Work.measure` finds them. A fact is the same on every
backend, except `CutBound`, for which each backend takes its cheapest evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

from ozaki.bounds.levels import Level
from ozaki.records.accuracy import Measure
from ozaki.schemes import Scheme, Words

P = ParamSpec("P")
T = TypeVar("T")


class Need:
    """The name by which a decision asks for a fact. Needs are equal if they ask for the same fact."""

    def of_proof(self, other: Need) -> bool:
        """Whether this fact and another one are found by the same kind of proof at the same level."""
        return type(self) is type(other) and all(
            getattr(self, name, None) == getattr(other, name, None) for name in ("level", "inner_scaling")
        )


@dataclass(frozen=True)
class Sample(Need):
    """Least values of rows by their first `SAMPLED` real numbers: (Least, Least), of the left and the right operand."""


@dataclass(frozen=True)
class Overlap(Need):
    """How much the large elements of A and B share inner indices (E5; docs/bounds.md): float.

    The least k (abs(A) abs(B))_ij / (s_i s_j), s a row's sum of magnitudes, over a few rows of A and columns of B, at
    some inner indices: about 1 for independent elements, near 0 where large elements are multiplied by small ones.
    """


@dataclass(frozen=True)
class NativeInRange(Need):
    """Whether no product and no partial sum of the native product can over- or underflow (B5): bool."""


@dataclass(frozen=True)
class Spans(Need):
    """Largest exponent span of a row of the left and of the right operand, in bits: (int, int).

    The span of a row is its top - bottom (definitions.md, 1): an exact image has so many bits.

    Attributes
    ----------
    inner_scaling : whether rows are those scaled along k (definitions.md, 10)
    """

    inner_scaling: bool = False


@dataclass(frozen=True)
class InnerRange(Need):
    """How far the exponents of S that scale the operands along k (definitions.md, 10) lie apart: int, in bits.

    The largest difference of two of them in a matrix: scaling takes no more from the span of a row.
    """


@dataclass(frozen=True)
class RowsBound(Need):
    """The bound of a scheme that the descriptions of all rows prove, in a measure: float.

    Row-column and normwise by B2 and B3; componentwise for words alone, by B8 with B9 (inf where the descriptions do
    not prove enough). That of slices is in units of 2**exponent.
    """

    scheme: Scheme | Words
    measure: Measure
    exponent: int = 0


@dataclass(frozen=True)
class CutBound(Need):
    """The componentwise bound of words (B8) by the backend's cheapest evidence: float, inf where that proves nothing.

    Where a device cuts words in one read of the operands, the evidence is whether that read finds elements below
    2**floor (B8), and, if so, a sample, which bounds what these lose. Elsewhere the fact is that of `RowsBound`.
    """

    words: Words


@dataclass(frozen=True)
class LeastProduct(Need):
    """The least lower bound of (abs(A) abs(B))_ij 2**-(top_i + top_j) at the first level of B7: float.

    Rows and columns that are all zeros do not count; inf if no others exist.
    """


class Ratio(NamedTuple):
    """The worst ratio of the entries compared.

    Attributes
    ----------
    worst : largest image error / lower bound of (abs(A) abs(B))_ij, in units of 4**bits of the level; inf where the
        lower bound is 0 and the error is not
    spans : largest exponent span of a row of the left and of the right operand, as the fact `Spans`
    least_span : smallest exponent span of a row of either operand with a nonzero element
    """

    worst: float
    spans: tuple[int, int]
    least_span: int


@dataclass(frozen=True)
class WorstRatio(Need):
    """The worst ratio of a scheme at a level (B7): Ratio.

    Attributes
    ----------
    scheme : whose image error is compared
    level : of the lower bound that it is compared with
    few_rows : whether only the first rows of A are compared (`bounds.levels.FEW_ROWS`); enough to rule a scheme out
    drops : whether the image error includes the digit pairs that the scheme leaves out. Where the spans of the operands
        show that these are all zero, the ratio is asked for without them.
    exponent : the ratio of slices is in units of 2**exponent
    inner_scaling : whether rows are those scaled along k (definitions.md, 10)
    """

    scheme: Scheme | Words
    level: Level
    few_rows: bool = False
    drops: bool = True
    exponent: int = 0
    inner_scaling: bool = False


@dataclass(frozen=True)
class RelativeError(Need):
    """How exact the product by a scheme is, entry by entry (B10): float, the least -log2 of a relative error.

    It takes the product itself. inf if all images are exact; -inf if an entry is no larger than its error.

    Attributes
    ----------
    scheme : of the product
    inner_scaling : whether its slices are those of rows scaled along k (definitions.md, 10)
    """

    scheme: Scheme
    inner_scaling: bool = False


@dataclass(frozen=True)
class UndecidedShare(Need):
    """How many entries a scheme is likely to leave undecided when they are rounded (B14): `bounds.undecided.Crossings`.

    It comes from some rows and columns; a few of these decide nothing but time.

    Attributes
    ----------
    scheme : whose errors are taken
    inner_scaling : whether its slices are those of rows scaled along k (definitions.md, 10)
    """

    scheme: Scheme
    inner_scaling: bool = False


class MissingFact(LookupError):  # noqa: N818 - not an error: the answer of a decision that needs more
    """Raised inside a decision that reads a fact which is not found yet; `or_need` turns it into an answer.

    Attributes
    ----------
    need : the name of the missing fact
    """

    def __init__(self, need: Need) -> None:
        super().__init__(need)
        self.need = need


class Facts(Mapping[Need, Any]):
    """An immutable mapping of the facts found so far; reading any other fact raises `MissingFact`."""

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
        """A copy with one more fact."""
        return Facts(self._found | {need: value})


def or_need(decide: Callable[P, T]) -> Callable[P, T | Need]:
    """The decision that `decide` makes of facts, as a function that answers with the need of a fact that is missing."""

    @wraps(decide)
    def answer(*args: P.args, **kwargs: P.kwargs) -> T | Need:
        try:
            return decide(*args, **kwargs)
        except MissingFact as missing:
            return missing.need

    return answer


def settle(answer: Callable[[Facts], T | Need], measure: Callable[[Need, Facts], Any], facts: Facts) -> tuple[T, Facts]:
    """Make a decision: ask for it, measure the fact that it lacks, and ask anew with that fact, until none is missing.

    Parameters
    ----------
    answer : function of the facts: the decision, or the need of the fact that it lacks
    measure : finds the fact of a need; is also given the facts found so far
    facts : the facts that are known before

    Returns
    -------
    The decision, and all facts that are known then.
    """
    while isinstance(found := answer(facts), Need):
        facts = facts.having(found, measure(found, facts))
    return found, facts
