"""Facts about operands in chunks: what `choose` asks for, computed by dask's scheduler when a plan is made."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
from dask.base import tokenize

from ozaki.backends.parts import on_host
from ozaki.bounds.description import FIELDS, Description, Ints
from ozaki.bounds.exact import ErrorTerms
from ozaki.bounds.levels import FEW_ROWS, Level
from ozaki.bounds.relative import NONE, Quotient, relative_bits
from ozaki.distributed import dask_graphs as graphs
from ozaki.distributed import dask_tasks
from ozaki.distributed.dask_graphs import DaskOperands, Tasks
from ozaki.distributed.dask_tasks import WHOLE, Inner, Panel, Product
from ozaki.distributed.layouts import as_index
from ozaki.distributed.measuring import Factors, Measuring, NDArray, indices_read, read_within
from ozaki.records.formats import part_of, precision_of
from ozaki.schemes import Scheme

_KEPT = 2**30
"""Most bytes of lower bounds that are kept between proofs; those of more entries are found anew for each."""


class MeasuredChunks(Measuring):
    """Both operands of a product, and what was computed of them.

    Parameters
    ----------
    operands : of the product
    dtype : the format of the result

    Attributes
    ----------
    operands : as above
    """

    def __init__(self, operands: DaskOperands, dtype: str) -> None:
        super().__init__(operands.shape, dtype, operands.reals)
        self.operands = operands
        self._lower: tuple[Level, bool, Any] | None = None

    def known(self, inner_scaling: bool) -> graphs.Sources | None:
        """What was found of the rows that are sliced, as data; None if that was not asked for yet."""
        of = self._scaled if inner_scaling else self._described
        return None if of is None else graphs.known(self.operands, of, self.factors if inner_scaling else None)

    def _sources(self, inner_scaling: bool) -> graphs.Sources:
        return graphs.known(self.operands, self.of(inner_scaling), self.factors if inner_scaling else None)

    def _describe(self, factors: Factors | None) -> tuple[Description, Description]:
        found = graphs.describing(self.operands, graphs.factors_known(self.operands, factors))
        name = self.operands.name("descriptions", factors is not None)
        left, right = map(_joined, graphs.compute(self.operands.arrays, name, found.tasks, [found.left, found.right]))
        return left, right

    def _find_factors(self) -> Factors:
        found = graphs.factors_of(self.operands)
        factors: Factors = graphs.compute(
            self.operands.arrays, self.operands.name("factors"), found.tasks, [found.factors]
        )[0]
        return factors

    def _some_rows(self, at: tuple[Ints, Ints]) -> tuple[NDArray, NDArray]:
        left, right = self.operands.arrays
        x, y = da.compute(left[at[0]], right[:, at[1]])
        return on_host(x), on_host(y).T

    # Proofs -----------------------------------------------------------------------------------------------------------

    def _worst_ratio(self, terms: ErrorTerms, level: Level, few_rows: bool, inner_scaling: bool) -> float:
        lower, sources = self._lower_bounds(level, inner_scaling), self._sources(inner_scaling)
        of_terms = tokenize(terms.left, terms.right, few_rows)
        name, tasks = self.operands.name("worst-ratio", inner_scaling, level, of_terms), dict(sources.tasks)
        keys = []
        for i, rows in enumerate(self.operands.rows(0)):
            count = rows.stop - rows.start
            count = min(count, max(FEW_ROWS - rows.start, 0)) if few_rows else count
            for j, cols in enumerate(self.operands.rows(1)):
                if not count:
                    continue
                of_tile = ErrorTerms(
                    np.ascontiguousarray(terms.left[:, :, rows]), np.ascontiguousarray(terms.right[:, :, cols])
                )
                of_rows = sources.left[i], sources.right[j]
                tasks[name, i, j] = dask_tasks.worst_ratio, level, *of_rows, (lower.name, i, j), of_tile, count
                keys.append((name, i, j))
        found = graphs.compute([*self.operands.arrays, lower], name, tasks, keys)
        return max(found, default=0.0)

    def release(self) -> None:
        """Free the lower bounds."""
        self._lower = None

    def _lower_bounds(self, level: Level, inner_scaling: bool) -> Any:
        """The lower bounds of all entries as a dask array, shape (m, n); those that were asked for last are kept."""
        if self._lower is None or self._lower[:2] != (level, inner_scaling):
            self.release()
            self._lower = level, inner_scaling, self._find_lower_bounds(level, inner_scaling)
        return self._lower[2]

    def _find_lower_bounds(self, level: Level, inner_scaling: bool) -> Any:
        operands, sources = self.operands, self._sources(inner_scaling)
        read, dtype = indices_read(self.shape[1], level, self.reals), "float64" if level == "wide" else "int32"
        inner = {}
        for t, at in enumerate(operands.inner):
            some = read_within(read, at.start, at.stop)
            if len(some):
                inner[t] = Inner(as_index(_less(some, at.start)), as_index(some))
        tasks, name = dict(sources.tasks), operands.name("lower", level, inner_scaling)
        for i, j in np.ndindex(len(sources.left), len(sources.right)):
            groups = self._groups(i, j, np.dtype(dtype).itemsize, inner)
            before = None
            for number, group in enumerate(groups):
                key = (name, i, j) if number == len(groups) - 1 else (f"{name}-partial", i, j, number)
                panel = Panel(tuple(inner[t] for t in group), operands.dtypes)
                tasks[key] = (
                    dask_tasks.lower_bounds, level, panel, sources.left[i], sources.right[j], before,
                    *graphs.pairs(operands, i, j, group), sources.factors,
                )  # fmt: skip
                before = key
        lower = self._kept(graphs.array_of(operands.arrays, name, tasks, operands.sizes[::2], dtype))
        return lower if level != "wide" else self._second_pass(lower, sources, inner_scaling)

    def _second_pass(self, lower: Any, sources: graphs.Sources, inner_scaling: bool) -> Any:
        """The lower bounds at the wide level, with those that are zero replaced by what exponents say."""
        operands = self.operands
        tiles = list(np.ndindex(len(sources.left), len(sources.right)))
        known = operands.name("known", inner_scaling)
        asked: Tasks = {(known, *tile): (dask_tasks.all_known, (lower.name, *tile)) for tile in tiles}
        every = graphs.compute([*operands.arrays, lower], known, asked, list(asked))
        if all(every):
            return lower
        tasks, name = dict(sources.tasks), operands.name("lower-finished", inner_scaling)
        whole = {t: Inner(WHOLE, at) for t, at in enumerate(operands.inner) if at.stop > at.start}
        for (i, j), is_known in zip(tiles, every, strict=True):
            of_tile, before = (sources.left[i], sources.right[j]), None
            found = lower.name, i, j
            for number, group in enumerate([] if is_known else self._groups(i, j, 8, whole)):
                panel = Panel(tuple(whole[t] for t in group), operands.dtypes)
                tasks[key := (f"{name}-exponents", i, j, number)] = (
                    dask_tasks.exponents, panel, *of_tile, found, before,
                    *graphs.pairs(operands, i, j, group), sources.factors,
                )  # fmt: skip
                before = key
            tasks[name, i, j] = dask_tasks.finished_bounds, *of_tile, found, before
        return self._kept(graphs.array_of([*operands.arrays, lower], name, tasks, operands.sizes[::2], "float64"))

    def _groups(self, i: int, j: int, itemsize: int, inner: dict[int, Inner]) -> list[list[int]]:
        rows, _, cols = self.operands.sizes
        groups = graphs.grouped(self.operands, i, j, itemsize * rows[i] * cols[j])
        read = [[t for t in group if t in inner] for group in groups]
        return [group for group in read if group] or [[]]

    def _kept(self, lower: Any) -> Any:
        return lower.persist() if lower.nbytes <= _KEPT else lower

    # The product itself -----------------------------------------------------------------------------------------------

    def relative_bits(self, scheme: Scheme, inner_scaling: bool) -> float:
        """The fact `RelativeError`: from a product by the scheme, of which no chunk is kept."""
        operands, sources, spans = self.operands, self._sources(inner_scaling), self.spans(inner_scaling)[0]
        product = Product(scheme, "auto", self.described[0].k, self.dtype, operands.on_gpu)
        c = graphs.product_of(operands, sources, product)
        name, tasks = operands.name("quotient", product, inner_scaling), dict(sources.tasks)
        keys = []
        for i, j in np.ndindex(len(sources.left), len(sources.right)):
            descriptions = sources.left[i], sources.right[j]
            tasks[name, i, j] = dask_tasks.worst_quotient, product, *descriptions, list(spans), (c.name, i, j)
            keys.append((name, i, j))
        found = graphs.compute([*operands.arrays, c], name, tasks, keys)
        worst = max((Quotient(*each) for each in found), default=NONE)
        return relative_bits(worst, precision_of(part_of(self.dtype)))


def _less(of: Any, first: int) -> Any:
    """Positions, counted from `first` on."""
    return range(of.start - first, of.stop - first) if isinstance(of, range) else of - first


def _joined(found: list[Description]) -> Description:
    """The description of all rows from those of blocks of rows."""
    fields = {name: np.concatenate([getattr(each, name) for each in found], axis=1) for name in FIELDS}
    return Description(found[0].k, **fields)
