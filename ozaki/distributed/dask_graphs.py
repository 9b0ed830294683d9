"""Graphs of tasks for products of dask arrays: pure data, made of chunk sizes and names.

A chunk of C takes the blocks of A in its rows and those of B in its columns, pair after pair along k, to its un-rounded
product: integers, which are added, so no bit depends on how many pairs a task takes, or on the order of additions.

Keys are made of the names of the operands and of what is computed, so equal calls have equal keys, and a cluster
computes what they share once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import dask.array as da
import numpy as np
from dask.base import compute_as_if_collection, tokenize
from dask.highlevelgraph import HighLevelGraph

import ozaki
from ozaki.backends.numpy import parts
from ozaki.backends.parts import empty_at
from ozaki.bounds.description import Description
from ozaki.distributed import dask_tasks
from ozaki.distributed.dask_tasks import WHOLE, Inner, Panel, Product
from ozaki.distributed.measuring import Factors
from ozaki.distributed.outline import work_of
from ozaki.process.placement import on_gpu
from ozaki.records.combination import Combination
from ozaki.schemes import Residues

Key = Any
Tasks = dict[Key, Any]


class DaskOperands:
    """Two matrices as dask arrays with the same chunks along k.

    Parameters
    ----------
    a, b : dask arrays, shapes (m, k) and (k, n), of known chunks

    Attributes
    ----------
    arrays : both, rechunked where their chunks along k differ
    sizes : rows of each block of A, inner indices of each pair of blocks, columns of each block of B
    dtypes : their formats
    reals : real parts of an element
    on_gpu : whether chunks are arrays of CuPy
    """

    def __init__(self, a: Any, b: Any) -> None:
        _, (x, y) = da.core.unify_chunks(a, "ik", b, "kj")
        self.arrays = x, y
        self.sizes: tuple[tuple[int, ...], ...] = (x.chunks[0], x.chunks[1], y.chunks[1])
        self.dtypes = str(x.dtype), str(y.dtype)
        self.reals = 2 if x.dtype.kind == "c" else 1
        self.on_gpu = on_gpu(x._meta)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(m, k, n)."""
        m, k, n = map(sum, self.sizes)
        return m, k, n

    def rows(self, side: int) -> list[slice]:
        """The rows of each block of A, or the columns of each block of B, of all."""
        return _places(self.sizes[2 * side])

    @property
    def inner(self) -> list[slice]:
        """The inner indices of each pair of blocks."""
        return _places(self.sizes[1])

    def block(self, side: int, row: int, inner: int) -> Key:
        """The key of a block of A by its row, or of B by its column, and its place along k."""
        name = self.arrays[side].name
        return (name, inner, row) if side else (name, row, inner)

    def name(self, what: str, *of: Any) -> str:
        """The name of keys: the same for the same thing."""
        names = [each.name for each in self.arrays]
        return f"ozaki-{what}-{tokenize(ozaki.__version__, *names, *map(repr, of))}"

    def panel(self, inner: Sequence[int]) -> Panel:
        """The panel that reads all of some pairs of blocks."""
        return Panel(tuple(Inner(WHOLE, self.inner[t]) for t in inner), self.dtypes)


def _places(sizes: Sequence[int]) -> list[slice]:
    ends = list(accumulate(sizes))
    return [slice(end - size, end) for size, end in zip(sizes, ends, strict=True)]


def compute(arrays: Sequence[Any], name: str, tasks: Tasks, keys: Any) -> Any:
    """The results of some tasks, which take chunks of arrays, by the caller's scheduler: in lists as the keys are."""
    return compute_as_if_collection(da.Array, HighLevelGraph.from_collections(name, tasks, dependencies=arrays), keys)


def array_of(
    arrays: Sequence[Any], name: str, tasks: Tasks, chunks: tuple[tuple[int, ...], ...], dtype: str, like: Any = None
) -> Any:
    """The dask array whose chunks, where `like` lies, tasks with its name compute from chunks of other arrays."""
    graph = HighLevelGraph.from_collections(name, tasks, dependencies=arrays)
    return da.Array(graph, name, chunks, meta=empty_at(like, (0, 0), dtype))


# Descriptions ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sources:
    """What is known of the rows that are sliced, for tasks that multiply them.

    Attributes
    ----------
    tasks : what finds it, or what is known already
    left, right : keys of the descriptions, for each block of rows of A and of columns of B
    factors : the key of the factors that scale operands along k; None if they are not scaled
    """

    tasks: Tasks
    left: list[Key]
    right: list[Key]
    factors: Key | None


def factors_of(operands: DaskOperands) -> Sources:
    """The task that finds the factors of the inner indices; no descriptions."""
    name, found, tasks = operands.name("factors"), operands.name("statistics"), Tasks()
    for side in (0, 1):
        for t, _ in enumerate(operands.sizes[1]):
            for row, _ in enumerate(operands.sizes[2 * side]):
                block = operands.block(side, row, t)
                tasks[found, side, t, row] = dask_tasks.statistics, side, block, operands.dtypes[side]
    formats = [str(each.dtype.type(0).real.dtype) for each in operands.arrays]
    of_sides = [
        [
            [(found, side, t, row) for row, _ in enumerate(operands.sizes[2 * side])]
            for t, _ in enumerate(operands.inner)
        ]
        for side in (0, 1)
    ]
    tasks[name] = dask_tasks.factors, of_sides[0], of_sides[1], formats
    return Sources(tasks, [], [], name)


def factors_known(operands: DaskOperands, factors: Factors | None) -> Sources:
    """The factors of the inner indices as data, or none."""
    if factors is None:
        return Sources({}, [], [], None)
    name = operands.name("known-factors")
    return Sources({name: factors}, [], [], name)


def describing(operands: DaskOperands, factors: Sources) -> Sources:
    """The tasks that describe all rows, in two rounds over their blocks (`bounds.merging`)."""
    extremes, largest, sums, name = (
        operands.name(what, factors.factors) for what in ("extremes", "largest", "sums", "description")
    )
    tasks, k = dict(factors.tasks), operands.reals * operands.shape[1]
    for side, dtype in enumerate(operands.dtypes):
        for row, _ in enumerate(operands.rows(side)):
            blocks = [
                (side, operands.block(side, row, t), dtype, Inner(WHOLE, at), factors.factors)
                for t, at in enumerate(operands.inner)
            ]
            for t, block in enumerate(blocks):
                tasks[extremes, side, row, t] = dask_tasks.extremes, *block
                tasks[sums, side, row, t] = dask_tasks.sums, *block, (largest, side, row), k
            every = range(len(blocks))
            tasks[largest, side, row] = dask_tasks.largest, [(extremes, side, row, t) for t in every]
            found = [(sums, side, row, t) for t in every]
            tasks[name, side, row] = dask_tasks.described, (largest, side, row), found, k, dtype
    left, right = ([(name, side, row) for row, _ in enumerate(operands.rows(side))] for side in (0, 1))
    return Sources(tasks, left, right, factors.factors)


def known(operands: DaskOperands, of: tuple[Description, Description], factors: Factors | None) -> Sources:
    """Descriptions and factors as data.

    Their keys differ from those of the tasks that find the same: a cluster takes no key with two meanings.
    """
    found = factors_known(operands, factors)
    name, tasks = operands.name("known-description", factors is not None), dict(found.tasks)
    for side, description in enumerate(of):
        for row, at in enumerate(operands.rows(side)):
            tasks[name, side, row] = description.part(slice(None), at)
    left, right = ([(name, side, row) for row, _ in enumerate(operands.rows(side))] for side in (0, 1))
    return replace(found, tasks=tasks, left=left, right=right)


# Products -------------------------------------------------------------------------------------------------------------

_STRANDS = 16
"""Strands of tasks that a product has at least, where k allows: so many workers are busy however small C is."""

_MOST_BYTES = 2**30
"""Most bytes of the un-rounded products of the strands of a chunk, which are in memory at a time."""


def product_of(
    operands: DaskOperands,
    sources: Sources,
    product: Product,
    combination: Combination | None = None,
    c: Any = None,
) -> Any:
    """The rounded product, or expression with the dask array c, as a dask array.

    For each chunk there are one or more strands of tasks, which each take some of the blocks along k one after the
    other, and keep one un-rounded product; what strands have is added in pairs.

    Raises
    ------
    NotImplementedError
        If chunks lie on GPUs, which do not multiply such slices in parts.
    """
    if product.on_gpu and (obstacle := product.parts.obstacle(product.scheme, product.engine)) is not None:
        raise NotImplementedError(
            f"scheme: {obstacle}, whose chunks are not multiplied on GPUs; move them with map_blocks(cupy.asnumpy)"
        )
    rows, _, cols = operands.sizes
    if c is not None:
        c = c.rechunk((rows, cols))
    expression = None if combination is None else replace(combination, c=None)
    of = sources.left[0], sources.factors, product
    name, partial = (
        operands.name("matmul", *of, expression, None if c is None else c.name),
        operands.name("partial", *of),
    )
    tasks = dict(sources.tasks)
    for i, of_rows in enumerate(rows):
        for j, of_cols in enumerate(cols):
            of_tile = _bytes_of_sums(product) * of_rows * of_cols
            panels = grouped(operands, i, j, of_tile)
            count = max(1, min(len(panels), _STRANDS // (len(rows) * len(cols)), _MOST_BYTES // max(of_tile, 1)))
            strands = _Strands(tasks, operands, sources, product, (i, j), (partial, i, j))
            if count == 1:
                before, inner = strands.chain(panels[:-1], 0), panels[-1] if panels else []
            else:
                of_strand = [panels[s * len(panels) // count : (s + 1) * len(panels) // count] for s in range(count)]
                ends = [key for s, some in enumerate(of_strand) for key in strands.chain(some, s, count)]
                before, inner = strands.added(ends, count), []
            last = strands.task(dask_tasks.rounded, before, inner)
            tasks[name, i, j] = *last, expression, None if c is None else (c.name, i, j)
    arrays = [*operands.arrays] if c is None else [*operands.arrays, c]
    return array_of(arrays, name, tasks, (rows, cols), product.dtype, operands.arrays[0]._meta)


@dataclass(frozen=True)
class _Strands:
    """The strands of a chunk of the result: what adds their tasks to those of the product.

    Attributes
    ----------
    tasks : of the product
    operands, sources, product : what is multiplied
    at : the numbers of the chunk
    key : with which the keys of its un-rounded products begin
    """

    tasks: Tasks
    operands: DaskOperands
    sources: Sources
    product: Product
    at: tuple[int, int]
    key: tuple[Any, ...]

    def task(self, function: Any, before: list[Key], inner: Sequence[int]) -> tuple[Any, ...]:
        """The task that adds the products of some pairs of blocks to un-rounded products."""
        i, j = self.at
        blocks = pairs(self.operands, i, j, inner)
        descriptions = self.sources.left[i], self.sources.right[j]
        return function, self.product, self.operands.panel(inner), *descriptions, before, *blocks, self.sources.factors

    def chain(self, panels: Sequence[Sequence[int]], strand: int, count: int = 1) -> list[Key]:
        """The end of a chain of tasks, one for each panel; none without panels."""
        before: list[Key] = []
        for number, inner in enumerate(panels):
            key = (*self.key, count, strand, number)
            self.tasks[key] = self.task(dask_tasks.multiplied, before, inner)
            before = [key]
        return before

    def added(self, ends: list[Key], count: int) -> list[Key]:
        """The sums of what strands have, in pairs, until no more than two are left."""
        level = 0
        while len(ends) > 2:
            sums = []
            for number in range(0, len(ends) - 1, 2):
                key = (*self.key, count, "sum", level, number)
                self.tasks[key] = self.task(dask_tasks.multiplied, ends[number : number + 2], [])
                sums.append(key)
            ends, level = sums + ends[2 * len(sums) :], level + 1
        return ends


def _bytes_of_sums(product: Product) -> int:
    """Bytes of an entry of an un-rounded product."""
    if product.on_gpu:
        scheme = parts.sliced(product.scheme)
        return scheme.bytes if isinstance(scheme, Residues) else 8 * scheme.count
    engine = parts.engine_for(product.scheme, product.k, product.engine)
    return work_of(engine, np.dtype(product.dtype).itemsize).sums


def grouped(operands: DaskOperands, i: int, j: int, of_tile: int) -> list[list[int]]:
    """The pairs of blocks of a tile in groups, for a task each: no larger than what the task hands on, or one pair.

    So handing it on, which copies it, takes little beside the product, and operands no more room than it does.
    """
    rows, depths, cols = operands.sizes
    of_index = sum(
        extent * array.dtype.itemsize for extent, array in zip((rows[i], cols[j]), operands.arrays, strict=True)
    )
    found: list[list[int]] = []
    of_group = 0
    for t, depth in enumerate(depths):
        if not depth:
            continue
        if not found or of_group + depth * of_index > of_tile:
            found.append([])
            of_group = 0
        found[-1].append(t)
        of_group += depth * of_index
    return found


def pairs(operands: DaskOperands, i: int, j: int, inner: Sequence[int]) -> tuple[list[Key], list[Key]]:
    """The keys of some of the blocks of A and B that a tile takes."""
    return [operands.block(0, i, t) for t in inner], [operands.block(1, j, t) for t in inner]
