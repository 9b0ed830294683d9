"""What products of shares on GPUs have of their own: proofs, and tiles that are multiplied as a whole.

Products by a named count are multiplied as those of processors, in panels. Error ratios are found from all of k of a
tile, which a process receives first, as floats, beside what proofs hold: all else about the operands merges from
their shares. A tile that is there as a whole is multiplied by the GPU's own kernels, unless layers or a limit ask for
panels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, inf
from time import perf_counter
from typing import Any, NamedTuple

import cupy as cp
import numpy as np

import ozaki
from ozaki.backends.cupy import backend, parts
from ozaki.bounds.description import NO_SPAN
from ozaki.call.pair import Pair
from ozaki.devices.product import of_tile
from ozaki.distributed.communicators.communicator import Communicator, agree
from ozaki.distributed.facts import Operands
from ozaki.distributed.layouts import Share
from ozaki.distributed.moving import Account, Held, Move, begin, empty_like, finish_work
from ozaki.distributed.multiplying import Expression, of_block
from ozaki.distributed.planning import every_bit
from ozaki.distributed.sharing import LEAST_WIDTH, Sharing, Work, shared_out
from ozaki.driver.works import Works
from ozaki.planning.choose import choose
from ozaki.planning.facts import Facts, Ratio, RelativeError, WorstRatio, settle
from ozaki.planning.question import Question
from ozaki.records.memory import Memory, too_few_bytes
from ozaki.records.options import Options
from ozaki.records.plan import Plan
from ozaki.records.progress import Progress
from ozaki.records.shapes import COMPLEX
from ozaki.schemes import ComplexResidues, is_exact


class Tile(NamedTuple):
    """What a process multiplies: rows of A, shape (rows, k), and columns of B, shape (k, columns), on its GPU."""

    x: Any
    y: Any


class OnGpus(Operands):
    """Both operands of a product, whose shares lie on GPUs, and what all processes know of them.

    Parameters
    ----------
    communicator, a, b, shape, dtype, account : as of `Operands`
    sharing : who computes which tile
    options : those of the call; `workspace_limit` is that of each process

    Attributes
    ----------
    tile : all of k of this process's tile, once it was asked for
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
        options: Options,
    ) -> None:
        if sharing.layers > 1:
            sharing = shared_out(shape, communicator.size, None, 1)
        super().__init__(communicator, a, b, shape, sharing, dtype, account)
        self._options = options
        self.tile: Tile | None = None
        self._works: Works | None = None

    def measure(self, need: Any, relative: Any) -> Any:
        """Find a fact: every process the same."""
        match need:
            case WorstRatio(few_rows=few_rows):
                none = Ratio(0.0, (0, 0), NO_SPAN)
                first = self.sharing.place(self.communicator.rank)[0] == 0
                found = [Ratio(*each) for each in self._of_tiles(need, none, few_rows and not first)]
                spans = max(each.spans[0] for each in found), max(each.spans[1] for each in found)
                return Ratio(max(each.worst for each in found), spans, min(each.least_span for each in found))
            case RelativeError():
                return min(self._of_tiles(need, inf))
        return super().measure(need, relative)

    def _of_tiles(self, need: Any, default: Any, left_out: bool = False) -> list[Any]:
        """What all processes find in their tiles; `default` where they are empty or left out."""
        step, own, error = "proving the accuracy", default, None
        began = perf_counter()
        waited = self.account.waited
        try:
            tile = self.whole()
            if not left_out and 0 not in (*tile.x.shape, *tile.y.shape):
                if self._works is None:
                    limit = self._options.workspace_limit
                    rest = None if limit is None else max(limit - tile.x.nbytes - tile.y.nbytes, 0)
                    self._works = Works(Pair(*tile, Memory(rest), self._options._replace(workspace_limit=rest)))
                own = self._works.measure(need)
        except (TypeError, ValueError, NotImplementedError) as problem:  # of this tile, or this GPU, alone
            error = problem
        self.account.computed += perf_counter() - began - (self.account.waited - waited)
        agree(self.communicator, step, error)
        began = perf_counter()
        found = self.communicator.all_gather(tuple(own) if isinstance(own, tuple) else own, step)
        self.account.waited += perf_counter() - began
        return found

    def whole(self) -> Tile:
        """The rows of A and the columns of B of this process's tile, received panel by panel.

        Raises
        ------
        ValueError
            If they take more than the limit.
        """
        if self.tile is not None:
            return self.tile
        sharing, a, b, ranks = self._in_panels(), self.a, self.b, range(self.communicator.size)
        tiles = [sharing.tile(rank) for rank in ranks]
        rows, cols = tiles[self.communicator.rank]
        x, y = empty_like(a.local, (len(rows), self.shape[1])), empty_like(b.local, (self.shape[1], len(cols)))
        for number in range(sharing.panels()):
            inner = sharing.panel(0, number)
            at = slice(inner.start, inner.stop)
            of_a, of_b = [Share(rows, inner) for rows, _ in tiles], [Share(inner, cols) for _, cols in tiles]
            moves = [Move(a, of_a, x[:, at]), Move(b, of_b, y[at])]
            begin(self.communicator, moves, self.account, "moving the operands").wait()
        self.tile = Tile(x, y)
        return self.tile

    def _in_panels(self) -> Sharing:
        """The sharing with panels so narrow that a tile arrives within the limit."""
        sharing, limit, (m, k, n) = self.sharing, self._options.workspace_limit, self.shape
        element = max(self.a.local.itemsize, self.b.local.itemsize)
        of_index = (ceil(m / sharing.grid.shape[0]) + ceil(n / sharing.grid.shape[1])) * element
        while limit is not None and (nbytes := of_index * (k + 2 * min(sharing.width, k))) > limit:
            if sharing.width <= LEAST_WIDTH:
                too_few_bytes(limit, nbytes)
            sharing = replace(sharing, width=max(sharing.width // 2, LEAST_WIDTH))
        return sharing

    def release(self) -> None:
        """Free what proofs have left on the GPU, but for the tile."""
        super().release()
        if self._works is not None:
            self._works.release()
        self._works = None


def planned(question: Question, operands: OnGpus, in_panels: bool) -> Plan:
    """The plan that answers the question for these operands; `in_panels`: undecided entries are not computed apart.

    Raises
    ------
    ValueError
        If no plan meets what is asked.
    """

    def measure(need: Any, _facts: Any = None) -> Any:
        return operands.measure(need, None)

    plan, facts = settle(partial(choose, question), measure, Facts())
    return every_bit(plan, question, facts, measure) if in_panels else plan


def way(plan: Plan, operands: OnGpus, sharing: Sharing, limit: int | None, named: bool) -> tuple[Sharing, bool]:
    """Who computes what by a plan, and whether tiles are multiplied as a whole.

    `named`: whether the caller names grid or layers, so that there are no others.

    Raises
    ------
    NotImplementedError
        If what is asked for takes panels, but these slices are not multiplied in any.
    """
    refused = _obstacle(plan)
    if refused is None:
        there = operands.tile is not None or plan.undecided_apart
        whole = there and sharing.layers == 1 and limit is None
        if not whole:
            operands.tile = None
        return sharing, whole
    if limit is not None:
        raise NotImplementedError(f"workspace_limit: {refused}, which GPUs multiply as a whole alone")
    if sharing.layers > 1 and named:
        raise NotImplementedError(f"layers: {refused}, which GPUs multiply as a whole alone; expected 1")
    return operands.sharing, True


def _obstacle(plan: Plan) -> str | None:
    """Why parts of a plan's product are not multiplied on GPUs; None if they are."""
    assert is_exact(plan.scheme)
    if plan.parts == COMPLEX and not isinstance(plan.scheme, ComplexResidues):
        return f"{plan.scheme.name} of complex operands are those of their parts"
    return parts.obstacle(plan.scheme, plan.engine)


def engine_name(plan: Plan, sharing: Sharing, engine: parts.Parts | None, combined: bool) -> str:
    """The device and the engine of whole tiles, or, of all or part of k of the first block, for reports."""
    if engine is None:
        return backend.engine_name(plan)
    rows, cols = sharing.block(0, (0, 0))
    return engine.name(len(rows), len(sharing.panel(0, 0)), len(cols), sharing.one_panel and not combined)


def multiply_whole(
    operands: OnGpus,
    sharing: Sharing,
    plan: Plan,
    expression: Expression | None,
    deliver: Callable[[tuple[int, int], Any], None],
    progress: Progress,
) -> None:
    """Multiply the tile of each process as a whole, or compute the expression with it, and deliver the only block."""
    account = operands.account
    progress.begin(2, "steps")
    tile = operands.whole()
    shape = tile.x.shape[0], tile.y.shape[1]
    combination = of_block(operands, sharing, (0, 0), expression, shape)
    progress.step()
    began = perf_counter()
    if 0 in shape:
        c = cp.empty(shape, operands.dtype)
    elif combination is None:
        c = ozaki.matmul(*tile, plan=of_tile(plan, *shape))
    else:
        addend = None if combination.c is None else combination.c[0]
        alpha, beta = combination.values
        c = ozaki.gemm(alpha, *tile, beta, addend, plan=of_tile(plan, *shape))
    finish_work()
    account.computed += perf_counter() - began
    operands.tile = None
    deliver((0, 0), c)


@dataclass(frozen=True)
class WorkOnGpu(Work):
    """What a product asks of a process with a GPU.

    Attributes
    ----------
    engine : what multiplies parts
    dtypes, dtype : of both operands, and of the result
    combined : whether an expression is rounded
    nonfinite : whether operands have NaN or Inf
    """

    engine: parts.Parts
    dtypes: tuple[str, str]
    dtype: str
    combined: bool
    nonfinite: bool

    @classmethod
    def of(cls, engine: parts.Parts, operands: Operands, element: int, combined: bool) -> WorkOnGpu:
        """That of a product by an engine, of elements of so many bytes."""
        planes, dtype = engine.planes
        dtypes = str(operands.a.local.dtype), str(operands.b.local.dtype)
        nonfinite = any(bool(each.nonfinite.any()) for each in operands.described)
        return cls(element, planes * np.dtype(dtype).itemsize, 0, engine, dtypes, operands.dtype, combined, nonfinite)

    def multiplied(self, rows: int, cols: int, width: int) -> int:
        """Bytes that a panel takes while it is multiplied, beside the operands and the sums."""
        touched = self.engine.touched_bytes(rows, width, cols) if self.nonfinite else 0
        return max(self.engine.panel_bytes(self.dtypes, self.dtype, rows, width, cols), touched)

    def summed(self, rows: int, cols: int) -> int:
        """Bytes of the un-rounded product of a block."""
        return self.sums * rows * self.engine.sums_shape(rows, cols)[3]

    @property
    def rounding(self) -> int:
        """Bytes that rounding takes beside sums and result."""
        return self.engine.expression_bytes(self.combined)
