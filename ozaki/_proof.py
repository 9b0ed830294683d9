"""The worst ratio of image error to (abs(A) abs(B))_ij: what a componentwise target needs (docs/bounds.md, B7).

(abs(A) abs(B))_ij is bounded from below by products of magnitudes that are exact integers, so every backend finds
the same ratio. The levels cost more and more; a later one is asked for only where it could save slices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import inf
from typing import Any, NamedTuple, Protocol

from ozaki._description import Described
from ozaki._word_bounds import UP
from ozaki._workspace import too_few_bytes
from ozaki.schemes import Scheme, Words

SAMPLE, EVERY = 32, 128
"""The first level looks at the first SAMPLE of every EVERY inner indices."""

SAMPLED_FROM = 1024
"""Up to this k all of k is looked at."""

NARROW_BITS = 7
"""Magnitudes of the first two levels: int8."""

NARROW_DEPTH = 2**17 - 128
"""They look at this many inner indices at most, so that the sums fit int32."""

_GLANCE = 128
"""Rows that show whether a scheme is worth a look at all of them."""


def wide_bits(k: int) -> int:
    """Bits of magnitudes whose products a float64 accumulator sums exactly over k."""
    return min(21, (53 - (max(k, 2) - 1).bit_length()) // 2)


class Ratio(NamedTuple):
    """What a look at all entries finds.

    Attributes
    ----------
    worst : largest image error / lower; inf where lower is 0 and the error is not
    spans : largest top - bottom of the rows of both operands
    least_span : smallest one of a row with a nonzero
    """

    worst: float
    spans: tuple[int, int]
    least_span: int


class ChangedError(Exception):
    """A search that was kept needs more than it began with."""


@dataclass
class Look:
    """A look at entries that may still be under way.

    Attributes
    ----------
    wait : waits for what it finds
    exact : whether that can be taken as it is
    anew : looks again, knowing that
    renewed : it did
    found : what was waited for
    """

    wait: Callable[[], Ratio]
    exact: Callable[[Ratio], bool] = lambda ratio: True
    anew: Callable[[Ratio], Ratio] | None = None
    renewed: bool = False
    found: Ratio | None = None

    def settle(self) -> Ratio:
        """Wait for it, once."""
        if self.found is None:
            self.found = self.wait()
        return self.found

    def __call__(self) -> Ratio:
        """What it finds."""
        ratio = self.settle()
        if self.exact(ratio):
            return ratio
        if self.anew is None:
            raise ChangedError
        self.renewed = True
        return self.anew(ratio)


class ProofBackend(Protocol):
    """What a backend does for the proof, on its arrays.

    If `alone`, what a device is given next waits for it, else it is done beside that.
    """

    def narrow_product(self, left: Described, right: Described, sampled: bool, alone: bool = True) -> Any:
        """floor(abs(x) 2**(7-top)) products, exact, shape (batch, m, n)."""

    def some_rows(self, operand: Described, batch: slice, rows: slice) -> Described:
        """Some rows of an operand, described alike."""

    def proof_workspace(self, level: str, left: tuple[int, ...], right: tuple[int, ...]) -> int:
        """Bytes held while the worst ratios of a level are found for operands of these shapes (batch, rows, k)."""

    def least_product(self, left: Described, right: Described) -> Callable[[], float]:
        """Begin to find the least of the first level's products, times 2**-14, of rows that are not all zeros.

        Calling the result waits for it: inf if there are no two such rows.
        """

    def wide_product(self, left: Described, right: Described, alone: bool = True) -> Any:
        """floor(abs(x) 2**(w-top)) products with w = wide_bits(k), exact float64, shape (batch, m, n).

        Where that is zero: 4**w times the largest product of leading powers of two, inf where all products are zero.
        """

    def worst_ratios(
        self,
        lower: Any,
        left: Described,
        right: Described,
        wanted: Sequence[tuple[Scheme | Words, int]],
        alone: bool = True,
        spans: tuple[int, int] | None = None,
    ) -> list[Look]:
        """Begin to look for the worst ratio of each scheme, in so many rows of all entries.

        `spans`: the largest top - bottom of all rows, where the operands are some of them.
        """


def _itself(ratio: Ratio) -> Ratio:
    return ratio


def least_product(
    backend: ProofBackend, left: Described, right: Described, limit: int | None
) -> tuple[Callable[[], float], int]:
    """`ProofBackend.least_product` within a limit; and the bytes held for it."""
    panels = Panels(backend, left, right, "sampled" if left.k > SAMPLED_FROM else "narrow", limit)
    if panels.one:
        return backend.least_product(left, right), panels.workspace
    least = min(backend.least_product(*part)() for _, *part in panels)
    return lambda: least, panels.workspace


class _Shape(NamedTuple):
    """All that a kept proof knows of an operand."""

    shape: tuple[int, ...]


class Panels:
    """Both operands of a product in parts, so that what a level of proof holds for two of them keeps within a limit."""

    def __init__(self, backend: ProofBackend, left: Described, right: Described, level: str, limit: int | None) -> None:
        self._backend, self._left, self._right = backend, left, right
        (batch_a, m, k), (batch_b, n, _) = (tuple(x.x.shape) for x in (left, right))
        self._stack = max(batch_a, batch_b), m, n
        batch, rows, columns = self._stack

        def workspace() -> int:
            return backend.proof_workspace(level, (min(batch, batch_a), rows, k), (min(batch, batch_b), columns, k))

        while limit is not None and workspace() > limit:
            if batch > 1:
                batch = -(-batch // 2)
            elif max(rows, columns) <= _LEAST_PANEL:
                too_few_bytes(limit, workspace())
            elif rows >= columns:
                rows = -(-rows // 2)
            else:
                columns = -(-columns // 2)
        self._sizes = batch, rows, columns
        self.workspace = workspace()

    @property
    def one(self) -> bool:
        """All of both operands is one part."""
        return self._sizes == self._stack

    def __iter__(self) -> Iterator[tuple[int, Described, Described]]:
        """The first row of each part of the left operand, that part, and one of the right operand."""
        for b, r, c in product(*map(range, (0, 0, 0), self._stack, self._sizes)):
            batch, rows, columns = (slice(at, at + size) for at, size in zip((b, r, c), self._sizes, strict=True))
            yield r, self._part(self._left, batch, rows), self._part(self._right, batch, columns)

    def _part(self, operand: Described, batch: slice, rows: slice) -> Described:
        return self._backend.some_rows(operand, slice(0, 1) if operand.x.shape[0] == 1 else batch, rows)


_LEAST_PANEL = 16
"""Rows and columns that are proven together at least."""


class Proof:
    """Worst ratios for one pair of operands, at the current level of the lower bound.

    Attributes
    ----------
    workspace : most bytes held for it
    """

    def __init__(
        self, backend: ProofBackend, left: Described, right: Described, alone: bool, limit: int | None = None
    ) -> None:
        self._backend, self._left, self._right, self._alone, self._limit = backend, left, right, alone, limit
        self._levels = ("sampled", "narrow", "wide") if left.k > SAMPLED_FROM else ("narrow", "wide")
        self._at = 0
        self._begun: dict[tuple[int, Scheme | Words, int], Look] = {}
        self._spans: tuple[int, int] | None = None
        self._unproven: tuple[int, int] | None = None
        self._kept = False
        self.workspace = 0
        self._panels: Panels | None = None
        self._lower = self._lower_bound()

    @property
    def level(self) -> str:
        """The current level."""
        return self._levels[self._at]

    @property
    def next_level(self) -> str | None:
        """The level that `sharpen` would go to."""
        return self._levels[self._at + 1] if self._at + 1 < len(self._levels) else None

    def sharpen(self) -> None:
        """Go to the next level."""
        self._at += 1
        if self._kept:
            if not any(at == self._at for at, *_ in self._begun):
                raise ChangedError
            return
        self._lower = None  # free the memory first
        self._let_go()
        self._lower = self._lower_bound()

    def _lower_bound(self) -> Any:
        """That of all entries, or None where it is found anew for each look, in parts."""
        panels = Panels(self._backend, self._left, self._right, self.level, self._limit)
        self.workspace = max(self.workspace, panels.workspace)
        self._panels = None if panels.one else panels
        return self._product(self._left, self._right) if panels.one else None

    def _product(self, left: Described, right: Described) -> Any:
        if self.level == "wide":
            return self._backend.wide_product(left, right, self._alone)
        return self._backend.narrow_product(left, right, self.level == "sampled", self._alone)

    def _let_go(self) -> None:
        """Of what looks would look at again."""
        for look in self._begun.values():
            look.anew = None

    def begin(self, wanted: Iterable[tuple[Scheme | Words, bool]]) -> None:
        """Look for ratios, of those with True at a glance in a few rows only: a device does while the host goes on."""
        keys = [key for key in dict.fromkeys(self._key(*each) for each in wanted) if key not in self._begun]
        if not keys:
            return
        if self._kept:
            raise ChangedError
        each = [key[1:] for key in keys]
        if self._panels is None:
            looks = self._backend.worst_ratios(self._lower, self._left, self._right, each, self._alone)
        else:
            looks = [Look(partial(_itself, ratio)) for ratio in self._in_parts(self._panels, each)]
        self._begun |= dict(zip(keys, looks, strict=True))

    def _in_parts(self, panels: Panels, wanted: Sequence[tuple[Scheme | Words, int]]) -> list[Ratio]:
        """The worst ratios of all parts, one after the other."""
        spans, least_span = (self._left.span, self._right.span), min(self._left.least_span, self._right.least_span)
        worst = [0.0] * len(wanted)
        for first, left, right in panels:
            rows = int(left.x.shape[1])
            here = [(i, scheme, min(to - first, rows)) for i, (scheme, to) in enumerate(wanted) if to > first]
            if not here:
                continue
            of_part = [(scheme, to) for _, scheme, to in here]
            looks = self._backend.worst_ratios(self._product(left, right), left, right, of_part, self._alone, spans)
            for (i, *_), look in zip(here, looks, strict=True):
                worst[i] = max(worst[i], look().worst)
        return [Ratio(each, spans, least_span) for each in worst]

    def _key(self, scheme: Scheme | Words, glance: bool) -> tuple[int, Scheme | Words, int]:
        rows = int(self._left.x.shape[1])
        return self._at, scheme, min(rows, _GLANCE) if glance else rows

    def keep(self) -> None:
        """Let go of the operands: what was begun is all there is from now on, and is waited for anew."""
        self._lower, self._panels, self._spans, self._unproven, self._kept, self._at = None, None, None, None, True, 0
        self._left, self._right = (Described(_Shape(tuple(x.x.shape)), None) for x in self.operands)
        for look in self._begun.values():
            look.anew = look.found = None

    @property
    def plain(self) -> bool:
        """What was begun did not depend on answers, but for whether it was: done again, it tells the same.

        Data that need wide magnitudes are seldom alike: what was done for others would most often be done in vain.
        """
        return self.level != "wide" and not any(look.renewed for look in self._begun.values())

    @property
    def operands(self) -> tuple[Described, Described]:
        """Of a kept proof their shapes alone."""
        return self._left, self._right

    def settle(self) -> None:
        """Wait for all that was begun."""
        for look in self._begun.values():
            look.settle()

    def _found(self, scheme: Scheme | Words, glance: bool = False) -> Ratio:
        self.begin([(scheme, glance)])
        found = self._begun[self._key(scheme, glance)]()
        self._spans = found.spans
        if found.worst == inf:
            self._unproven = self._at, found.least_span
        return found

    def _in_vain(self, scheme: Scheme | Words) -> bool:
        """Some entry has no lower bound at this level, and an error, since no row that is not all zeros is exact."""
        if isinstance(scheme, Words) or self._unproven is None or self._unproven[0] != self._at:
            return False
        scaling = scheme.scaling(self._left.k)
        return scaling is not None and scaling.most_bits(self._left.k) < self._unproven[1]

    @property
    def spans(self) -> tuple[int, int]:
        """Largest top - bottom of the rows of both operands."""
        if self._spans is None:
            if not self._begun:
                return self._left.span, self._right.span
            self._spans = next(iter(self._begun.values()))().spans
        return self._spans

    def at_least(self, scheme: Scheme) -> float:
        """What `ratio` is no smaller than, from a few rows; inf where this level cannot tell."""
        if self._in_vain(scheme):
            return inf
        return self._found(scheme, glance=True).worst * 4.0**self._bits

    @property
    def _bits(self) -> int:
        return wide_bits(self._left.k) if self.level == "wide" else NARROW_BITS

    def ratio(self, scheme: Scheme | Words) -> float:
        """Proven largest image error over (abs(A) abs(B))_ij; inf where this level cannot tell."""
        if self._in_vain(scheme):
            return inf
        return self._found(scheme).worst * 4.0**self._bits * UP
