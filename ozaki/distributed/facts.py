"""Facts about operands that are shared out: each process finds what its elements say, and all merge it.

So every process chooses the same plan.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from ozaki.backends.numpy import parts
from ozaki.backends.numpy._scaled import inner_factors, inner_statistics
from ozaki.backends.parts import parts_at
from ozaki.bounds.description import Description, Ints
from ozaki.bounds.exact import ErrorTerms
from ozaki.bounds.levels import FEW_ROWS, Level
from ozaki.bounds.merging import described, no_extremes
from ozaki.distributed.communicators.communicator import Communicator
from ozaki.distributed.layouts import Index, as_index
from ozaki.distributed.measuring import Factors, Measuring, NDArray, indices_read, read_within, rows_of
from ozaki.distributed.moving import Account, Held, few_rows, panels
from ozaki.distributed.sharing import Sharing

_NO_EXPONENT = -(2.0**15)
"""Less than the exponent of any element, and than minus it: what is said of an inner index without elements."""


class _Local(NamedTuple):
    """What this process has of an operand, as rows of A or columns of B.

    Attributes
    ----------
    x : the elements, shape (rows, indices)
    rows, inner : which of all rows or columns, and which inner indices
    counts : whether there are elements, and no copy of them on another process counts
    """

    x: NDArray
    rows: Index
    inner: Index
    counts: bool


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

    def _of_this_process(self) -> list[_Local]:
        """What this process says of both operands: nothing where another process has the same elements."""
        rank, found = self.communicator.rank, []
        for side, held in enumerate((self.a, self.b)):
            share = held.shares[rank] if side == 0 else held.shares[rank].T
            x = held.local if side == 0 else held.local.T
            found.append(_Local(x, share.rows, share.cols, bool(x.size) and held.replicas[rank] == 0))
        return found

    def _describe(self, factors: Factors | None) -> tuple[Description, Description]:
        (m, k, n), step = self.shape, "describing the operands"
        both, found_by = self._of_this_process(), parts_at(self.a.local)
        # One array has the rows of A, and the columns of B after these: so each round is one call of all processes.
        of_sides = slice(0, m), slice(m, m + n)
        extremes, sums = no_extremes(m + n), np.zeros((4, m + n), np.int64)
        began, said = perf_counter(), []
        for side, each in enumerate(both):
            if each.counts:
                rows = rows_of(each.x, None if factors is None else factors[side][:, :, as_index(each.inner)])
                at = np.arange(of_sides[side].start, of_sides[side].stop)[as_index(each.rows)]
                extremes[:, at] = found_by.extremes(rows)
                said.append((rows, at))
        self.account.computed += perf_counter() - began
        self._merge(extremes, "max", step)
        began = perf_counter()
        for rows, at in said:
            sums[:, at] = found_by.sums(rows, extremes[:, at], self.reals * k)
        self.account.computed += perf_counter() - began
        self._merge(sums, "sum", step)
        left, right = (
            described(extremes[:, at], sums[:, at], self.reals * k, str(held.local.dtype))
            for at, held in zip(of_sides, (self.a, self.b), strict=True)
        )
        return left, right

    def _find_factors(self) -> Factors:
        k, step = self.shape[1], "scaling along k"
        sums, extremes = np.zeros((4, k), np.int64), np.full((4, k), _NO_EXPONENT)  # two of A, and two of B
        for side, each in enumerate(self._of_this_process()):
            if each.counts:
                of_side, at = slice(2 * side, 2 * side + 2), as_index(each.inner)
                sums[of_side, at], extremes[of_side, at] = inner_statistics(each.x[None])
        self._merge(sums, "sum", step)
        self._merge(extremes, "max", step)
        dtypes = [str(held.local.real.dtype) for held in (self.a, self.b)]
        return inner_factors((sums[:2], extremes[:2]), (sums[2:], extremes[2:]), dtypes)

    def _merge(self, x: NDArray, how: Any, step: str) -> None:
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

    def _some_rows(self, at: tuple[Ints, Ints]) -> tuple[NDArray, NDArray]:
        return few_rows(
            self.communicator, self.a, self.b, self.shape[1], at, self.account, "foretelling undecided entries"
        )
