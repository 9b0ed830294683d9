"""Products of matrices whose shares lie on GPUs: each process multiplies a tile of C on its own.

A process receives all of k of its rows of A and columns of B, as floats, which its GPU has to hold beside their slices,
and multiplies these by the GPU's own kernels. So facts merge alone: the worst ratio of all tiles, the largest spans,
and the rest as on one GPU.
"""

from __future__ import annotations

from functools import partial
from math import inf
from time import perf_counter
from typing import Any, NamedTuple

import cupy as cp
import numpy as np

import ozaki
from ozaki.backends.cupy import backend
from ozaki.backends.numpy._crossings import SomeRows, foretell
from ozaki.backends.numpy._describe import describe
from ozaki.bounds.description import NO_SPAN
from ozaki.bounds.sampled_products import looked_at, spread
from ozaki.call.pair import Pair
from ozaki.devices.product import of_tile
from ozaki.distributed.arrays import Array, shares_of
from ozaki.distributed.communicators.communicator import Communicator, known_to_all, same_on_all
from ozaki.distributed.layouts import Distribution, Share
from ozaki.distributed.moving import Account, Held, Move, begin, empty_like, finish_work
from ozaki.distributed.multiplying import Expression, delivery
from ozaki.distributed.planning import given
from ozaki.distributed.report import DistributedReport, ProcessReport
from ozaki.distributed.sharing import Sharing
from ozaki.driver.works import Works
from ozaki.planning.choose import choose
from ozaki.planning.facts import Facts as Found
from ozaki.planning.facts import Need, Ratio, RelativeError, RowsBound, Spans, UndecidedShare, WorstRatio, settle
from ozaki.planning.question import Question
from ozaki.records.memory import Memory
from ozaki.records.options import Options
from ozaki.records.plan import Plan
from ozaki.records.progress import Progress


class Tile(NamedTuple):
    """What a process multiplies: rows of A, shape (rows, k), and columns of B, shape (k, columns), on its GPU."""

    x: Any
    y: Any


def fetch(
    communicator: Communicator, a: Held, b: Held, shape: tuple[int, int, int], sharing: Sharing, account: Account
) -> Tile:
    """Receive the rows of A and the columns of B of this process's tile."""
    ranks, k = range(communicator.size), range(shape[1])
    tiles = [sharing.tile(rank) for rank in ranks]
    of_a, of_b = [Share(rows, k) for rows, _ in tiles], [Share(k, cols) for _, cols in tiles]
    x, y = (empty_like(held.local, of[communicator.rank].shape) for held, of in ((a, of_a), (b, of_b)))
    began = perf_counter()
    begin(communicator, [Move(a, of_a, x), Move(b, of_b, y)], account, "moving the operands").wait()
    account.waited += perf_counter() - began
    return Tile(x, y)


class Facts:
    """Facts about operands on GPUs, merged from those of all tiles.

    Parameters
    ----------
    communicator : the processes
    a, b : the operands
    shape : (m, k, n)
    sharing : who computes which tile
    tile : what this process multiplies
    options : those of the call
    dtype : the format of the result
    account : of this process
    """

    def __init__(
        self,
        communicator: Communicator,
        a: Held,
        b: Held,
        shape: tuple[int, int, int],
        sharing: Sharing,
        tile: Tile,
        options: Options,
        dtype: str,
        account: Account,
    ) -> None:
        self.communicator, self._a, self._b, self._shape = communicator, a, b, shape
        self._sharing, self._dtype, self._account = sharing, dtype, account
        self._works: Works | None = None
        if 0 not in (*tile.x.shape, *tile.y.shape):
            self._works = Works(Pair(tile.x, tile.y, Memory(None), options))

    def measure(self, need: Need, _relative: Any = None) -> Any:
        """Find a fact: every process the same."""
        match need:
            case Spans(False):
                found = self._all((0, 0) if self._works is None else self._works.measure(need))
                return max(left for left, _ in found), max(right for _, right in found)
            case RowsBound(_, "row-column", _):
                return max(self._all(0.0 if self._works is None else self._works.measure(need)))
            case WorstRatio(few_rows=few_rows):
                return self._worst_ratio(need, few_rows)
            case RelativeError():
                return min(self._all(inf if self._works is None else self._works.measure(need)))
            case UndecidedShare(scheme):
                return self._foretold(scheme)
            case RowsBound():
                raise NotImplementedError(
                    "accuracy: normwise is not for operands on GPUs of several processes; use row-column"
                )
        raise TypeError(f"need: {need!r} is not known here")

    def release(self) -> None:
        """Free what facts have left on the GPU."""
        if self._works is not None:
            self._works.release()
        self._works = None

    def _worst_ratio(self, need: WorstRatio, few_rows: bool) -> Ratio:
        first = self._sharing.place(self.communicator.rank)[0] == 0
        none = Ratio(0.0, (0, 0), NO_SPAN)
        own = none if self._works is None or (few_rows and not first) else self._works.measure(need)
        found = [Ratio(*each) for each in self._all(tuple(own))]
        spans = max(each.spans[0] for each in found), max(each.spans[1] for each in found)
        return Ratio(max(each.worst for each in found), spans, min(each.least_span for each in found))

    def _foretold(self, scheme: Any) -> Any:
        (m, k, n), size = self._shape, self.communicator.size
        at = [spread(rows, looked_at((1, rows, k))[1]) for rows in (m, n)]
        ascending = [np.sort(each) for each in at]
        x, y = (
            empty_like(held.local, shape) for held, shape in ((self._a, (len(at[0]), k)), (self._b, (k, len(at[1]))))
        )
        every = range(k)
        moves = [
            Move(self._a, [Share(ascending[0], every)] * size, x),
            Move(self._b, [Share(every, ascending[1])] * size, y),
        ]
        begin(self.communicator, moves, self._account, "foretelling undecided entries").wait()
        some = []
        for rows, numbers, sorted_ in zip((cp.asnumpy(x), cp.asnumpy(y).T), at, ascending, strict=True):
            in_order = rows[np.searchsorted(sorted_, numbers)][None]
            of = np.zeros((1, 1), np.int64), np.arange(len(numbers))
            some.append(SomeRows(in_order, of, describe(in_order).on_host))
        return foretell(some[0], some[1], scheme, self._dtype)

    def _all(self, own: Any) -> list[Any]:
        """What all processes have found."""
        began = perf_counter()
        found = self.communicator.all_gather(own, "proving the accuracy")
        self._account.waited += perf_counter() - began
        return found


def computed(
    a: Array,
    b: Array,
    question: Question,
    sharing: Sharing,
    distribution: Distribution,
    options: Options,
    plan: Plan | None,
    expression: Expression | None,
    progress: Progress,
) -> tuple[Array, DistributedReport]:
    """The product, or alpha times it plus beta times an addend, and its report: all processes call it.

    Raises
    ------
    ValueError, NotImplementedError, ProcessError
    """
    communicator, account = a.communicator, Account()
    (m, _, n), size, rank = question.sizes.shape, communicator.size, communicator.rank
    progress.begin(3, "steps")
    with known_to_all(communicator, TypeError, ValueError, NotImplementedError):
        tile = fetch(communicator, a.held, b.held, question.sizes.shape, sharing, account)
        progress.step()
        asked = options._replace(reproducible=True, inner_scaling=False)
        facts = Facts(communicator, a.held, b.held, question.sizes.shape, sharing, tile, asked, question.dtype, account)
        try:
            found = _planned(question, facts) if plan is None else given(plan, question, facts, _no_relative)
        finally:
            facts.release()
    name = backend.engine_name(found)
    same_on_all(communicator, "choosing a plan", scheme=found.scheme, engine=name)
    with known_to_all(communicator):
        terms = None if expression is None else _terms(communicator, expression, sharing, account)
        entries = _multiplied(tile, found, question.dtype, terms, account)
        progress.step()
        wants = shares_of(distribution, (m, n), size)
        out = empty_like(entries, wants[rank].shape)
        delivery(communicator, sharing, wants, out, account)((0, 0), entries)
        finish_work()
        progress.end()
    nonfinite = _nonfinite(communicator, a, b)
    rows, cols = sharing.tile(rank)
    own = ProcessReport(
        rank, ((rows.start, rows.stop), (cols.start, cols.stop)), (0, question.sizes.shape[1]), account.computed,
        account.waited, account.received, account.sent,
    )  # fmt: skip
    reports = tuple(communicator.all_gather(own, "reporting"))
    once = None if expression is None else True
    c = Array(out, (m, n), distribution, communicator)
    return c, DistributedReport(found, found.bound, sharing, name, nonfinite, once, reports)


def _planned(question: Question, facts: Facts) -> Plan:
    plan, _ = settle(partial(choose, question), lambda need, _: facts.measure(need), Found())
    return plan


def _no_relative(scheme: Any, inner_scaling: bool) -> float:
    raise AssertionError((scheme, inner_scaling))  # tiles find it


def _terms(
    communicator: Communicator, expression: Expression, sharing: Sharing, account: Account
) -> tuple[Any, Any, Any]:
    """The factors, and the addend of this process's tile, or None."""
    combination, c = expression
    if c is None:
        return *combination.values, None
    wants = [Share(*sharing.tile(rank)) for rank in range(communicator.size)]
    addend = empty_like(c.local, wants[communicator.rank].shape)
    begin(communicator, [Move(c, wants, addend)], account, "moving the addend").wait()
    return *combination.values, addend


def _multiplied(tile: Tile, plan: Plan, dtype: str, terms: tuple[Any, Any, Any] | None, account: Account) -> Any:
    """The product of a tile, or the expression with it, by the plan of all of C."""
    shape = tile.x.shape[0], tile.y.shape[1]
    began = perf_counter()
    if 0 in shape:
        return cp.empty(shape, dtype)
    of = of_tile(plan, *shape)
    if terms is None:
        c = ozaki.matmul(tile.x, tile.y, plan=of)
    else:
        alpha, beta, addend = terms
        c = ozaki.gemm(alpha, tile.x, tile.y, beta, addend, plan=of)
    finish_work()
    account.computed += perf_counter() - began
    return c


def _nonfinite(communicator: Communicator, a: Array, b: Array) -> int:
    """How many rows of A and columns of B have NaN or Inf."""
    rows, cols = (np.zeros(extent) for extent in (a.shape[0], b.shape[1]))
    for of, x, axis, index in ((rows, a, 1, 0), (cols, b, 0, 1)):
        if x.local.size:
            share = x.distribution.share(x.shape, communicator.rank, communicator.size)
            at = share[index]
            of[slice(at.start, at.stop) if isinstance(at, range) else at] = cp.asnumpy(
                cp.where(cp.isfinite(x.local), 0, 1).max(axis=axis)
            )
    flags = np.concatenate([rows, cols])
    communicator.all_reduce(flags, "max", "reporting")
    return int(flags.sum())
