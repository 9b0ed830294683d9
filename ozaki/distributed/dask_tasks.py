"""What tasks of dask compute: pure functions of plain data, which any worker may run, and run again.

No task changes what it is given, since a scheduler may hand the same object to another one. Engines hold compiled
libraries, which do not travel: each task makes its own from the scheme. Blocks of A are read as rows, those of B as
columns, along their inner indices. Blocks on a GPU are described and multiplied there; what proofs read of them is
copied to the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce, wraps
from typing import Any, TypeVar

import numpy as np

from ozaki.backends.numpy import parts
from ozaki.backends.numpy._scaled import inner_factors, inner_statistics
from ozaki.backends.parts import on_host, parts_at
from ozaki.bounds import merging
from ozaki.bounds.description import Description, Ints
from ozaki.bounds.exact import ErrorTerms
from ozaki.bounds.levels import Level
from ozaki.distributed.measuring import Factors, NDArray, rows_of
from ozaki.distributed.moving import contiguous
from ozaki.process.environment import default_environment
from ozaki.process.placement import on_gpu, where_they_lie
from ozaki.records.combination import Combination
from ozaki.records.formats import is_complex
from ozaki.schemes import Scheme

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _task(function: _Function) -> _Function:
    """Decorate a task: it runs as a public function does, in the default floating-point environment, without a warning.

    A worker's threads have environments and settings of NumPy of their own, and a current GPU: that of the blocks.
    """

    @wraps(function)
    def run(*args: Any) -> Any:
        with np.errstate(all="ignore"), where_they_lie(_blocks(args)):
            return function(*args)

    return default_environment(run)  # type: ignore[return-value]


def _blocks(args: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """The arrays on GPUs among the arguments of a task, with what messages call them."""
    for x in args:
        if isinstance(x, list):
            yield from _blocks(x)
        elif isinstance(x, Partial):
            yield from _blocks([x.sums, *x.totals])
        elif on_gpu(x):
            yield "a chunk", x


@dataclass(frozen=True)
class Inner:
    """Some of the inner indices of a block.

    Attributes
    ----------
    at : which ones of the block: a slice or their numbers
    of_all : which ones these are of all of k
    """

    at: Any
    of_all: Any


WHOLE = slice(None)
"""All inner indices of a block."""


def _rows(side: int, block: NDArray, dtype: str, inner: Inner, factors: Factors | None) -> tuple[parts.Rows, NDArray]:
    """A block of A or B (`side` 0 or 1) as rows, shape (1, rows, indices), scaled along k if there are factors; plain.

    Raises
    ------
    TypeError
        If the block is not what its dask array says.
    """
    is_array, library = isinstance(block, np.ndarray) or on_gpu(block), "CuPy" if on_gpu(block) else "NumPy"
    if not is_array or str(block.dtype) != dtype:
        found = f"dtype {block.dtype}" if is_array else type(block).__name__
        raise TypeError(
            f"{'ab'[side]}: a chunk is {found}; expected a {library} array of dtype {dtype}, as its dask array"
        )
    x = block if on_gpu(block) else np.asarray(block)
    x = (x if side == 0 else x.T)[:, inner.at]
    return rows_of(x, None if factors is None else factors[side][:, :, inner.of_all]), x


# Descriptions ---------------------------------------------------------------------------------------------------------


@_task
def extremes(side: int, block: NDArray, dtype: str, inner: Inner, factors: Factors | None) -> NDArray:
    """The first round of `bounds.merging` for a block."""
    found: NDArray = parts_at(block).extremes(_rows(side, block, dtype, inner, factors)[0])
    return found


@_task
def largest(found: Sequence[NDArray]) -> NDArray:
    """The extremes of whole rows from those of their blocks."""
    return reduce(np.maximum, found)


@_task
def sums(side: int, block: NDArray, dtype: str, inner: Inner, factors: Factors | None, merged: NDArray, k: int) -> Ints:
    """The second round of `bounds.merging` for a block."""
    found: Ints = parts_at(block).sums(_rows(side, block, dtype, inner, factors)[0], merged, k)
    return found


@_task
def described(merged: NDArray, found: Sequence[Ints], k: int, dtype: str) -> Description:
    """The description of whole rows from the sums of their blocks."""
    return merging.described(merged, reduce(np.add, found), k, dtype)


@_task
def statistics(side: int, block: NDArray, dtype: str) -> tuple[Ints, NDArray]:
    """What a block says of its inner indices (`inner_statistics`)."""
    return inner_statistics(_rows(side, block, dtype, Inner(WHOLE, WHOLE), None)[1][None])


@_task
def factors(
    left: Sequence[Sequence[tuple[Ints, NDArray]]], right: Sequence[Sequence[tuple[Ints, NDArray]]], formats: list[str]
) -> Factors:
    """The factors of both operands from the statistics of their blocks, in lists by block of k."""
    of_sides = []
    for side in (left, right):
        added = np.concatenate([reduce(np.add, [sums for sums, _ in blocks]) for blocks in side], axis=1)
        merged = np.concatenate([reduce(np.maximum, [found for _, found in blocks]) for blocks in side], axis=1)
        of_sides.append((added, merged))
    return inner_factors(of_sides[0], of_sides[1], formats)


# Proofs ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Panel:
    """Which inner indices a task reads of the blocks of A and B that it is given.

    Attributes
    ----------
    inner : for each pair of blocks
    dtypes : of A and of B
    """

    inner: tuple[Inner, ...]
    dtypes: tuple[str, str]

    def rows(self, xs: Sequence[NDArray], ys: Sequence[NDArray], factors: Factors | None) -> Any:
        """For each pair of blocks the rows of A and the columns of B, and the same as the operands have them."""
        for x, y, inner in zip(xs, ys, self.inner, strict=True):
            left, plain_left = _rows(0, x, self.dtypes[0], inner, factors)
            right, plain_right = _rows(1, y, self.dtypes[1], inner, factors)
            yield left, right, plain_left, plain_right


@_task
def lower_bounds(
    level: Level,
    panel: Panel,
    left: Description,
    right: Description,
    before: NDArray | None,
    xs: Sequence[NDArray],
    ys: Sequence[NDArray],
    factors: Factors | None,
) -> NDArray:
    """The lower bounds of a tile (`parts.LowerBounds`), shape (m, n): those of earlier blocks with more added."""
    lower = parts.LowerBounds(level, left, right, None if before is None else before[None].copy())
    for x, y, _, _ in panel.rows(xs, ys, factors):
        lower.add(on_host(x), on_host(y))
    found: NDArray = lower.sums[0]
    return found


@_task
def exponents(
    panel: Panel,
    left: Description,
    right: Description,
    lower: NDArray,
    before: Ints | None,
    xs: Sequence[NDArray],
    ys: Sequence[NDArray],
    factors: Factors | None,
) -> Ints | None:
    """What the second pass finds of a tile at the wide level: of earlier blocks, and of more."""
    found = parts.LowerBounds("wide", left, right, lower[None], None if before is None else before.copy())
    for x, y, _, _ in panel.rows(xs, ys, factors):
        found.add_exponents(on_host(x), on_host(y))
    return found.exponents


@_task
def finished_bounds(left: Description, right: Description, lower: NDArray, exponents: Ints | None) -> NDArray:
    """The lower bounds of a tile at the wide level after both passes."""
    found = parts.LowerBounds("wide", left, right, lower[None].copy(), exponents)
    found.finish()
    finished: NDArray = found.sums[0]
    return finished


@_task
def all_known(lower: NDArray) -> bool:
    """Whether no lower bound of a tile is zero."""
    return bool(lower.all())


@_task
def worst_ratio(
    level: Level, left: Description, right: Description, lower: NDArray, terms: ErrorTerms, rows: int
) -> float:
    """The worst ratio in the first rows of a tile."""
    return parts.LowerBounds(level, left, right, lower[None]).worst_ratio(terms, rows)


# Products -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Product:
    """What all tasks of a product have in common.

    Attributes
    ----------
    scheme : of the plan
    engine : its name, as plans have it
    k : real numbers of a row
    dtype : of the result
    on_gpu : whether blocks are arrays of CuPy
    """

    scheme: Scheme
    engine: str
    k: int
    dtype: str
    on_gpu: bool = False

    @property
    def parts(self) -> Any:
        """The module that multiplies parts where the blocks are."""
        if not self.on_gpu:
            return parts
        from ozaki.backends.cupy import parts as on_device

        return on_device

    def zeros(self, shape: tuple[int, int]) -> Any:
        """A chunk of the result where the blocks are."""
        if not self.on_gpu:
            return np.zeros(shape, self.dtype)
        import cupy as cp

        return cp.zeros(shape, self.dtype)


@dataclass(frozen=True)
class Partial:
    """The un-rounded product of a tile over some blocks of k.

    Attributes
    ----------
    sums : exact integers, as the engine holds them; None if nothing was added
    terms : how many products were added to them
    totals : what NaN and Inf make of the entries that they touch (`parts.Touched`)
    engine : the kind of engine whose sums these are
    """

    sums: NDArray | None
    terms: int
    totals: list[NDArray]
    engine: str

    def add_to(self, tile: Any, touched: Any) -> None:
        """Add it to a tile.

        Raises
        ------
        RuntimeError
            If the worker that made it multiplies by another engine, whose sums are other integers.
        """
        if self.engine != type(tile.engine).__name__:
            raise RuntimeError(
                f"engine: workers multiply by different ones, {self.engine} and {type(tile.engine).__name__}; name one "
                "that all have, as engine='float64'"
            )
        if self.sums is not None:
            mine = on_gpu(self.sums) and tile.sums is None  # on GPUs a tile keeps the sums that it is given first
            tile.add(self.sums.copy() if mine else self.sums, self.terms)
        for total, more in zip(touched.totals, self.totals, strict=True):
            total += more


def _added(
    product: Product,
    panel: Panel,
    left: Description,
    right: Description,
    before: Sequence[Partial],
    xs: Sequence[NDArray],
    ys: Sequence[NDArray],
    factors: Factors | None,
    out: NDArray | None = None,
) -> tuple[Any, Any]:
    """Add the products of pairs of blocks to un-rounded ones: a `PartialProduct`, and what NaN and Inf touch.

    If there is no more to a chunk than one pair, an engine may round it into `out` as it multiplies: then None.

    Raises
    ------
    TypeError
        If blocks lie elsewhere than their dask arrays say.
    """
    tile, touched = product.parts.begin(product.scheme, product.engine, left, right, is_complex(product.dtype))
    for each in before:
        each.add_to(tile, touched)
    finite, rounded = (not left.nonfinite.any(), not right.nonfinite.any()), False
    for x, y, plain_x, plain_y in panel.rows(xs, ys, factors):
        for name, block in (("a", plain_x), ("b", plain_y)):
            if on_gpu(block) != product.on_gpu:
                places = "in host memory", "on a GPU"
                where, other = (places[at] for at in (on_gpu(block), product.on_gpu))
                raise TypeError(f"{name}: a chunk is {where}; expected one {other}, as its dask array")
        rounded = out is not None and tile.round_product(x, y, finite, out)
        if not rounded:
            tile.add_product(x, y, finite)
        if touched.some:
            touched.add(plain_x, plain_y)
    return None if rounded else tile, touched


@_task
def multiplied(
    product: Product,
    panel: Panel,
    left: Description,
    right: Description,
    before: Sequence[Partial],
    xs: Sequence[NDArray],
    ys: Sequence[NDArray],
    factors: Factors | None,
) -> Partial:
    """The sum of un-rounded products of a tile, and of the products of some pairs of blocks."""
    tile, touched = _added(product, panel, left, right, before, xs, ys, factors)
    assert tile is not None
    return Partial(tile.sums, tile.terms, touched.totals, type(tile.engine).__name__)


@_task
def rounded(
    product: Product,
    panel: Panel,
    left: Description,
    right: Description,
    before: Sequence[Partial],
    xs: Sequence[NDArray],
    ys: Sequence[NDArray],
    factors: Factors | None,
    combination: Combination | None,
    addend: NDArray | None,
) -> NDArray:
    """The same, rounded once, or in an expression with a block of C: a chunk of the result."""
    out: NDArray = product.zeros((left.top.shape[1], right.top.shape[1]))
    alone = combination is None and not before and len(xs) == 1
    tile, touched = _added(product, panel, left, right, before, xs, ys, factors, out if alone else None)
    if combination is not None and addend is not None:
        combination = replace(combination, c=contiguous(addend)[None] if product.on_gpu else np.asarray(addend)[None])
    if tile is not None:
        tile.round_into(out, combination)
    if touched.some:
        touched.write(out, 0, combination)
    return out


@_task
def worst_quotient(
    product: Product, left: Description, right: Description, spans: tuple[int, int], block: NDArray
) -> tuple[int, int]:
    """The largest quotient of the error of an entry and the entry, of a tile of the rounded product."""
    exponent, mantissa = parts.worst_quotient((left, right), spans, product.scheme, on_host(block))
    return exponent, mantissa
