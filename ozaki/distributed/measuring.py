"""Facts about operands that are in parts, from what the parts say: common to processes and to chunks of dask.

What merges does so by maximum, or by addition of integers, so the facts are those that one NumPy call would find,
however the operands are shared out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy import parts
from ozaki.backends.numpy._crossings import SomeRows, foretell
from ozaki.backends.numpy._scaled import ScaledRows, inner_range
from ozaki.bounds.description import FIELDS, NO_SPAN, Description, Ints
from ozaki.bounds.exact import ErrorTerms
from ozaki.bounds.levels import NARROW_DEPTH, SAMPLE, SAMPLED_EVERY, Level
from ozaki.bounds.of_scheme import error_terms, rows_bound
from ozaki.bounds.sampled_products import looked_at, spread
from ozaki.distributed.layouts import as_index
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

NDArray = npt.NDArray[Any]
"""An array of NumPy; `Array` is a matrix that is shared out."""

Factors = tuple[NDArray, NDArray]
"""Factors of the inner indices of A and of B, shape (1, 1, k) each (docs/definitions.md, 10)."""


class Measuring(ABC):
    """Both operands of a product, and what is known of them.

    Parameters
    ----------
    shape : (m, k, n)
    dtype : the format of the result
    reals : real parts of an element of an operand

    Attributes
    ----------
    as above
    """

    def __init__(self, shape: tuple[int, int, int], dtype: str, reals: int) -> None:
        self.shape, self.dtype, self.reals = shape, dtype, reals
        # No `cached_property`: that of Python 3.11 has a lock for all instances, on which ranks in threads would wait.
        self._described: tuple[Description, Description] | None = None
        self._scaled: tuple[Description, Description] | None = None
        self._factors: Factors | None = None

    # What the parts say -----------------------------------------------------------------------------------------------

    @abstractmethod
    def _describe(self, factors: Factors | None) -> tuple[Description, Description]:
        """The descriptions of all rows of A and of all columns of B, as they are or times factors."""

    @abstractmethod
    def _find_factors(self) -> Factors:
        """The factors that scale the operands along k."""

    @abstractmethod
    def _worst_ratio(self, terms: ErrorTerms, level: Level, few_rows: bool, inner_scaling: bool) -> float:
        """The worst ratio of error terms of all rows to lower bounds, of the first rows or of all."""

    @abstractmethod
    def _some_rows(self, at: tuple[Ints, Ints]) -> tuple[NDArray, NDArray]:
        """A few rows of A and columns of B, by their numbers, in that order: shapes (rows, k) and (columns, k)."""

    # Descriptions -----------------------------------------------------------------------------------------------------

    @property
    def described(self) -> tuple[Description, Description]:
        """The descriptions of all rows of A and of all columns of B, each field of shape (1, rows)."""
        if self._described is None:
            self._described = self._describe(None)
        return self._described

    @property
    def scaled(self) -> tuple[Description, Description]:
        """Those of rows scaled along k (docs/definitions.md, 10)."""
        if self._scaled is None:
            self._scaled = self._describe(self.factors)
        return self._scaled

    def of(self, inner_scaling: bool) -> tuple[Description, Description]:
        """The descriptions of the rows that are sliced."""
        return self.scaled if inner_scaling else self.described

    @property
    def factors(self) -> Factors:
        """The factors of the inner indices, shape (1, 1, k) each."""
        if self._factors is None:
            self._factors = self._find_factors()
        return self._factors

    def rows(self, side: int, x: NDArray, inner: Any, inner_scaling: bool) -> parts.Rows:
        """Rows x of a side, shape (rows, indices), at some inner indices, as they are or scaled along k."""
        return rows_of(x, self.factors[side][:, :, as_index(inner)] if inner_scaling else None)

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

    def _foretold(self, scheme: Scheme, inner_scaling: bool) -> Any:
        """The fact `UndecidedShare`, from a few rows of A and columns of B."""
        m, k, n = self.shape
        left, right = (spread(rows, looked_at((1, rows, k))[1]) for rows in (m, n))
        some = []
        found = zip(self._some_rows((left, right)), (left, right), self.of(inner_scaling), strict=True)
        for side, (x, at, description) in enumerate(found):
            fields = {name: getattr(description, name)[:, at] for name in FIELDS}
            numbers: tuple[Ints, Ints] = (np.zeros((1, 1), np.int64), np.arange(len(x)))
            rows = self.rows(side, x, range(k), inner_scaling)
            some.append(SomeRows(rows, numbers, Description(description.k, **fields)))
        return foretell(some[0], some[1], scheme, self.dtype)


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


def read_within(read: Any, first: int, end: int) -> Any:
    """Those of the indices that a level reads which lie in a part of k."""
    if isinstance(read, range):
        return range(min(first, read.stop), min(end, read.stop))
    begin, stop = np.searchsorted(read, (first, end))
    return read[begin:stop]


def rows_of(x: NDArray, factors: NDArray | None) -> parts.Rows:
    """Rows x, shape (rows, indices), as a stack of one matrix; times the factors of their inner indices, if given."""
    return x[None] if factors is None else ScaledRows(x[None], factors)
