"""Facts about operands that are shared out: each process finds what its elements say, and all merge it.

What merges does so by maximum, or by addition of integers, so the facts are those that one process would find, whatever
the shares are, and every process chooses the same plan.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy import parts
from ozaki.backends.numpy._crossings import SomeRows, foretell
from ozaki.backends.numpy._scaled import ScaledRows, inner_factors, inner_range, inner_statistics
from ozaki.bounds.description import NO_SPAN, Description, Ints
from ozaki.bounds.exact import ErrorTerms
from ozaki.bounds.levels import FEW_ROWS, NARROW_DEPTH, SAMPLE, SAMPLED_EVERY, Level
from ozaki.bounds.merging import described, no_extremes
from ozaki.bounds.of_scheme import error_terms, rows_bound
from ozaki.bounds.sampled_products import looked_at, spread
from ozaki.distributed.communicators.communicator import Communicator
from ozaki.distributed.layouts import Share
from ozaki.distributed.moving import Account, Held, Move, begin, panels
from ozaki.distributed.sharing import Sharing
from ozaki.planning.facts import (
    InnerRange,
    Need,
    Ratio,
    RelativeError,
    RowsBound,
    Spans,
    UndecidedShare,
    WorstRatio,
)
from ozaki.schemes import Scheme

Array = npt.NDArray[Any]


class Operands:
    """Both operands of a product, and what all processes know of them.

    Parameters
    ----------
    communicator : the processes
    a, b : the operands
    shape : (m, k, n)
    sharing : who computes which tile, in one layer: for lower bounds of entries
    dtype : the format of the result
    account : of this process

    Attributes
    ----------
    as above
    """

    def __init__(
        self,
        communicator: Communicator,
        a: Held,
        b: Held,
        shape: tuple[int, int, int],
        sharing: Sharing,
        dtype: str,
        account: Account,
    ) -> None:
        self.communicator, self.a, self.b, self.shape = communicator, a, b, shape
        self.sharing, self.dtype, self.account = sharing, dtype, account
        self._lower: tuple[tuple[Level, bool, tuple[int, int]], parts.LowerBounds] | None = None
        # No `cached_property`: that of Python 3.11 has a lock for all instances, on which ranks in threads would wait.
        self._described: tuple[Description, Description] | None = None
        self._scaled: tuple[Description, Description] | None = None
        self._factors: tuple[Array, Array] | None = None

    @property
    def reals(self) -> int:
        """Real parts of an element."""
        return 2 if self.a.local.dtype.kind == "c" else 1

    # Rows and their descriptions --------------------------------------------------------------------------------------

    @property
    def described(self) -> tuple[Description, Description]:
        """The descriptions of all rows of A and of all columns of B, each field of shape (1, rows)."""
        if self._described is None:
            self._described = self._describe(None, None)
        return self._described

    @property
    def scaled(self) -> tuple[Description, Description]:
        """Those of rows scaled along k (docs/definitions.md, 10)."""
        if self._scaled is None:
            self._scaled = self._describe(*self.factors)
        return self._scaled

    def of(self, inner_scaling: bool) -> tuple[Description, Description]:
        """The descriptions of the rows that are sliced."""
        return self.scaled if inner_scaling else self.described

    def rows(self, side: int, x: Array, inner: Any, inner_scaling: bool) -> parts.Rows:
        """Rows x of a side, shape (rows, indices), at some inner indices, as they are or scaled along k."""
        if not inner_scaling:
            return x[None]
        return ScaledRows(x[None], self.factors[side][:, :, _as_index(inner)])

    def _describe(self, *factors: Array | None) -> tuple[Description, Description]:
        k, communicator = self.shape[1], self.communicator
        step = "describing the operands"
        mine, extremes = [], []
        began = perf_counter()
        for side, (held, rows_of) in enumerate(((self.a, self.shape[0]), (self.b, self.shape[2]))):
            share = held.shares[communicator.rank] if side == 0 else held.shares[communicator.rank].T
            x = (held.local if side == 0 else held.local.T)[None]
            of_side = factors[side]
            rows: parts.Rows = x if of_side is None else ScaledRows(x, of_side[:, :, _as_index(share.cols)])
            found = no_extremes(rows_of)
            if held.replicas[communicator.rank] == 0 and x.size:
                found[:, _as_index(share.rows)] = parts.extremes(rows)
            mine.append((rows, share, held, rows_of))
            extremes.append(found)
        self.account.computed += perf_counter() - began
        merged = np.ascontiguousarray(np.concatenate(extremes, axis=1))
        self._merge(merged, "max", step)
        sums = np.zeros((4, merged.shape[1]), np.int64)
        began, first = perf_counter(), 0
        of_sides: list[slice] = []
        for rows, share, held, rows_of in mine:
            of_sides.append(slice(first, first + rows_of))
            if held.replicas[communicator.rank] == 0 and rows.size:
                at = first + np.arange(rows_of)[_as_index(share.rows)]
                sums[:, at] = parts.sums(rows, merged[:, at], self.reals * k)
            first += rows_of
        self.account.computed += perf_counter() - began
        self._merge(sums, "sum", step)
        left, right = (
            described(merged[:, at], sums[:, at], self.reals * k, str(held.local.dtype))
            for at, held in zip(of_sides, (self.a, self.b), strict=True)
        )
        return left, right

    @property
    def factors(self) -> tuple[Array, Array]:
        """The factors of the inner indices, shape (1, 1, k) each."""
        if self._factors is None:
            self._factors = self._find_factors()
        return self._factors

    def _find_factors(self) -> tuple[Array, Array]:
        k, found = self.shape[1], []
        for side, held in enumerate((self.a, self.b)):
            share = held.shares[self.communicator.rank] if side == 0 else held.shares[self.communicator.rank].T
            x = held.local if side == 0 else held.local.T
            sums, extremes = np.zeros((2, k), np.int64), np.full((2, k), -(2.0**15))
            if held.replicas[self.communicator.rank] == 0 and x.size:
                at = _as_index(share.cols)
                sums[:, at], extremes[:, at] = inner_statistics(x[None])
            found.append((sums, extremes))
        sums = np.ascontiguousarray(np.concatenate([each for each, _ in found]))
        extremes = np.ascontiguousarray(np.concatenate([each for _, each in found]))
        self._merge(sums, "sum", "scaling along k")
        self._merge(extremes, "max", "scaling along k")
        dtypes = [str(held.local.real.dtype) for held in (self.a, self.b)]
        return inner_factors((sums[:2], extremes[:2]), (sums[2:], extremes[2:]), dtypes)

    def _merge(self, x: Array, how: Any, step: str) -> None:
        began = perf_counter()
        self.communicator.all_reduce(x, how, step)
        self.account.waited += perf_counter() - began

    def all_largest(self, x: float, step: str) -> float:
        """The largest of a number that each process gives; no NaN."""
        found = np.array([x])
        self._merge(found, "max", step)
        return float(found[0])

    # Facts ------------------------------------------------------------------------------------------------------------

    def measure(self, need: Need, relative: Callable[[Scheme, bool], float]) -> Any:
        """Find a fact; `relative` finds the fact `RelativeError`, which takes a product."""
        match need:
            case Spans(inner_scaling):
                return self.spans(inner_scaling)[0]
            case InnerRange():
                return inner_range(ScaledRows(np.empty((1, 0, self.shape[1])), self.factors[0]))
            case RowsBound(scheme, measure, exponent):
                left, right = self.described
                return rows_bound(left, right, scheme, measure, self.spans(False)[0], exponent)
            case WorstRatio(scheme, level, few_rows, _, exponent, inner_scaling):
                left, right = self.of(inner_scaling)
                spans, least = self.spans(inner_scaling)
                terms = error_terms(left, right, scheme, scheme.dropped(left.k, spans), exponent)
                return Ratio(self._worst_ratio(terms, level, few_rows, inner_scaling), spans, least)
            case UndecidedShare(scheme, inner_scaling):
                return self._foretold(scheme, inner_scaling)
            case RelativeError(scheme, inner_scaling):
                return relative(scheme, inner_scaling)
        raise TypeError(f"need: {need!r} is not known here")

    def spans(self, inner_scaling: bool) -> tuple[tuple[int, int], int]:
        """The largest exponent span of a row of both operands, and the smallest of a row that is not empty."""
        spans = [(each.top - each.bottom, each) for each in self.of(inner_scaling)]
        least = min(int(span[each.filled].min(initial=NO_SPAN)) for span, each in spans)
        return (int(spans[0][0].max()), int(spans[1][0].max())), least

    def _worst_ratio(self, terms: ErrorTerms, level: Level, few_rows: bool, inner_scaling: bool) -> float:
        """The largest ratio over all tiles; with `few_rows` over the first rows of A alone."""
        worst, rank = 0.0, self.communicator.rank
        for number in self.sharing.numbers():
            if few_rows and number[0]:
                continue  # a block has more rows than these
            rows, cols = self.sharing.block(rank, number)
            lower = self._lower_bounds(level, inner_scaling, number)
            began = perf_counter()
            of_block = ErrorTerms(
                np.ascontiguousarray(terms.left[:, :, _as_index(rows)]),
                np.ascontiguousarray(terms.right[:, :, _as_index(cols)]),
            )
            count = min(len(rows), max(FEW_ROWS - rows.start, 0)) if few_rows else len(rows)
            worst = max(worst, lower.worst_ratio(of_block, count))
            self.account.computed += perf_counter() - began
        return self.all_largest(worst, "proving the accuracy")

    def release(self) -> None:
        """Free the lower bounds."""
        self._lower = None

    def _lower_bounds(self, level: Level, inner_scaling: bool, number: tuple[int, int]) -> parts.LowerBounds:
        """The lower bounds of a block of this process's tile; those that were asked for last are kept."""
        if self._lower is not None and self._lower[0] == (level, inner_scaling, number):
            return self._lower[1]
        self.release()
        left, right = (
            each.part(slice(None), slice(at.start, at.stop))
            for each, at in zip(self.of(inner_scaling), self.sharing.block(self.communicator.rank, number), strict=True)
        )
        lower = parts.LowerBounds(level, left, right)
        self._over_panels(lower.add, level, inner_scaling, number)
        if level == "wide" and self.all_largest(float(lower.unknown), "proving the accuracy"):
            self._over_panels(lower.add_exponents, level, inner_scaling, number)
            lower.finish()
        self._lower = (level, inner_scaling, number), lower
        return lower

    def _over_panels(
        self, function: Callable[..., None], level: Level, inner_scaling: bool, number: tuple[int, int]
    ) -> None:
        """Call a function with the parts of a block's operands at the inner indices that a level reads, by panels."""
        k, sharing = self.shape[1], self.sharing
        read = indices_read(k, level, self.reals)

        def indices(rank: int, of: int) -> Any:
            panel = sharing.panel(rank, of)
            if isinstance(read, range):
                return range(min(panel.start, read.stop), min(panel.stop, read.stop))
            first, last = np.searchsorted(read, (panel.start, panel.stop))
            return read[first:last]

        step = "proving the accuracy"
        loaded = panels(
            self.communicator, self.a, self.b, sharing, number, indices, sharing.panels(), self.account, step
        )
        for x, y, inner in loaded:
            began = perf_counter()
            function(self.rows(0, x, inner, inner_scaling), self.rows(1, y, inner, inner_scaling))
            self.account.computed += perf_counter() - began

    def _foretold(self, scheme: Scheme, inner_scaling: bool) -> Any:
        """The fact `UndecidedShare`, from a few rows of A and columns of B, which every process receives."""
        (m, k, n), size = self.shape, self.communicator.size
        at = [spread(rows, looked_at((1, rows, k))[1]) for rows in (m, n)]
        order = [np.argsort(each, kind="stable") for each in at]
        sorted_ = [each[by] for each, by in zip(at, order, strict=True)]
        x, y = np.empty((len(at[0]), k), self.a.local.dtype), np.empty((k, len(at[1])), self.b.local.dtype)
        moves = [
            Move(self.a, [Share(sorted_[0], range(k))] * size, x),
            Move(self.b, [Share(range(k), sorted_[1])] * size, y),
        ]
        begin(self.communicator, moves, self.account, "foretelling undecided entries").wait()
        some = []
        for side, (rows, of, description) in enumerate(zip((x, y.T), order, self.of(inner_scaling), strict=True)):
            in_order: Array = np.empty_like(rows)
            in_order[of] = rows
            on_host = Description(
                description.k,
                **{name: getattr(description, name)[:, at[side]] for name in _FIELDS},
            )
            numbers: tuple[Ints, Ints] = (np.zeros((1, 1), np.int64), np.arange(len(rows)))
            some.append(SomeRows(self.rows(side, in_order, range(k), inner_scaling), numbers, on_host))
        return foretell(some[0], some[1], scheme, self.dtype)


_FIELDS = ("top", "peak", "magnitudes", "squares", "bottom", "nonfinite")


def indices_read(k: int, level: Level, of_parts: int) -> Any:
    """The inner indices that a level reads, ascending: a range, or an array."""
    if level == "wide":
        return range(k)
    if level == "narrow":
        return range(min(k, NARROW_DEPTH))
    every = SAMPLED_EVERY[of_parts]
    count = min(k // every * SAMPLE + min(k % every, SAMPLE), NARROW_DEPTH)
    at = np.arange(count, dtype=np.int64)
    return at // SAMPLE * every + at % SAMPLE


def _as_index(of: Any) -> Any:
    """An index of an array for rows or columns: a slice of neighbours."""
    return slice(of.start, of.stop) if isinstance(of, range) else of
