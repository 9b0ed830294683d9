"""Facts about operands that are shared out: each process finds what its elements say, and all merge it.

So every process chooses the same plan.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from ozaki.backends.numpy import parts
from ozaki.backends.numpy._scaled import inner_factors, inner_statistics
from ozaki.bounds.description import Description, Ints
from ozaki.bounds.exact import ErrorTerms
from ozaki.bounds.levels import FEW_ROWS, Level
from ozaki.bounds.merging import described, no_extremes
from ozaki.distributed.communicators.communicator import Communicator
from ozaki.distributed.layouts import Share
from ozaki.distributed.measuring import Array, Factors, Measuring, as_index, indices_read, read_within, rows_of
from ozaki.distributed.moving import Account, Held, Move, begin, empty_like, on_host, panels, parts_at
from ozaki.distributed.sharing import Sharing


class Operands(Measuring):
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
        super().__init__(shape, dtype, 2 if a.local.dtype.kind == "c" else 1)
        self.communicator, self.a, self.b = communicator, a, b
        self.sharing, self.account = sharing, account
        self._lower: tuple[tuple[Level, bool, tuple[int, int]], parts.LowerBounds] | None = None

    def _describe(self, factors: Factors | None) -> tuple[Description, Description]:
        k, communicator, found_by = self.shape[1], self.communicator, parts_at(self.a.local)
        step = "describing the operands"
        mine, extremes = [], []
        began = perf_counter()
        for side, (held, extent) in enumerate(((self.a, self.shape[0]), (self.b, self.shape[2]))):
            share = held.shares[communicator.rank] if side == 0 else held.shares[communicator.rank].T
            x = held.local if side == 0 else held.local.T
            rows = rows_of(x, None if factors is None else factors[side][:, :, as_index(share.cols)])
            found = no_extremes(extent)
            if held.replicas[communicator.rank] == 0 and x.size:
                found[:, as_index(share.rows)] = found_by.extremes(rows)
            mine.append((rows, share, held, extent))
            extremes.append(found)
        self.account.computed += perf_counter() - began
        merged = np.ascontiguousarray(np.concatenate(extremes, axis=1))
        self._merge(merged, "max", step)
        sums = np.zeros((4, merged.shape[1]), np.int64)
        began, first = perf_counter(), 0
        of_sides: list[slice] = []
        for rows, share, held, extent in mine:
            of_sides.append(slice(first, first + extent))
            if held.replicas[communicator.rank] == 0 and rows.size:
                at = first + np.arange(extent)[as_index(share.rows)]
                sums[:, at] = found_by.sums(rows, merged[:, at], self.reals * k)
            first += extent
        self.account.computed += perf_counter() - began
        self._merge(sums, "sum", step)
        left, right = (
            described(merged[:, at], sums[:, at], self.reals * k, str(held.local.dtype))
            for at, held in zip(of_sides, (self.a, self.b), strict=True)
        )
        return left, right

    def _find_factors(self) -> Factors:
        k, found = self.shape[1], []
        for side, held in enumerate((self.a, self.b)):
            share = held.shares[self.communicator.rank] if side == 0 else held.shares[self.communicator.rank].T
            x = held.local if side == 0 else held.local.T
            sums, extremes = np.zeros((2, k), np.int64), np.full((2, k), -(2.0**15))
            if held.replicas[self.communicator.rank] == 0 and x.size:
                at = as_index(share.cols)
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
                np.ascontiguousarray(terms.left[:, :, as_index(rows)]),
                np.ascontiguousarray(terms.right[:, :, as_index(cols)]),
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
            return read_within(read, panel.start, panel.stop)

        step = "proving the accuracy"
        loaded = panels(
            self.communicator, self.a, self.b, sharing, number, indices, sharing.panels(), self.account, step
        )
        for x, y, inner in loaded:
            began = perf_counter()
            function(self.rows(0, x, inner, inner_scaling), self.rows(1, y, inner, inner_scaling))
            self.account.computed += perf_counter() - began

    def _some_rows(self, at: tuple[Ints, Ints]) -> tuple[Array, Array]:
        k, size = self.shape[1], self.communicator.size
        order = [np.argsort(each, kind="stable") for each in at]
        sorted_ = [each[by] for each, by in zip(at, order, strict=True)]
        x, y = empty_like(self.a.local, (len(at[0]), k)), empty_like(self.b.local, (k, len(at[1])))
        moves = [
            Move(self.a, [Share(sorted_[0], range(k))] * size, x),
            Move(self.b, [Share(range(k), sorted_[1])] * size, y),
        ]
        begin(self.communicator, moves, self.account, "foretelling undecided entries").wait()
        x, y = on_host(x), on_host(y)
        left, right = np.empty_like(x), np.empty_like(y.T)
        left[order[0]], right[order[1]] = x, y.T
        return left, right
