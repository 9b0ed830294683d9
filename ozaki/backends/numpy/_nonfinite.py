"""The entries of a product that NaN or Inf touch, on NumPy (docs/definitions.md, section 6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import isqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.combining import special_addend
from ozaki.backends.numpy._limbs import Floats
from ozaki.records.combination import Combination
from ozaki.records.memory import Memory

_PATCH = 256
"""Most rows, columns and inner indices that are multiplied at a time."""

_ARRAYS = 8
"""Float64 arrays of so many rows and columns that are held at a time, masks included."""


def patch(
    left: npt.NDArray[Any],
    right: npt.NDArray[Any],
    flags: list[npt.NDArray[np.int64]],
    out: npt.NDArray[Any],
    memory: Memory,
    combination: Combination | None = None,
    convert: Callable[[Floats], npt.NDArray[Any]] | None = None,
) -> None:
    """Write into out, shape (batch, m, n), what IEEE arithmetic gives in rows and columns with NaN or Inf.

    left and right are stacks of rows, shapes (batch or 1, m, k) and (batch or 1, n, k); `flags` holds, for each of
    the two, the numbers of nonfinite elements of its rows, shape (batch or 1, rows). The addend of `combination` has
    the shape of out. `convert` makes of float64 numbers what out has, where that is none of NumPy's formats. The real
    part of a complex product is the sum of x u and y (-v), the imaginary one of x v and y u, of elements x + i y and
    u + i v.
    """
    rest, side = memory.rest, min(_PATCH, max(*out.shape[1:], left.shape[2]))
    if rest is not None:
        side = max(1, min(side, isqrt(rest // (8 * _ARRAYS))))
    memory.pass_through(8 * _ARRAYS * side**2)
    if out.dtype.kind != "c":
        _patch([(left, right, 1)], flags, out, side, combination, convert)
        return
    x, u, y, v = left.real, right.real, left.imag, right.imag
    _patch([(x, u, 1), (y, v, -1)], flags, out.real, side, _part(combination, "real"))
    _patch([(x, v, 1), (y, u, 1)], flags, out.imag, side, _part(combination, "imag"))


def _part(combination: Combination | None, part: str) -> Combination | None:
    """The expression of the real or the imaginary part of entries, whose factors are real."""
    if combination is None or combination.c is None:
        return combination
    return replace(combination, c=getattr(combination.c, part))


Terms = list[tuple[npt.NDArray[Any], npt.NDArray[Any], int]]
"""Pairs of real operands whose products are added, or (-1) subtracted."""


def _patch(
    terms: Terms,
    flags: list[npt.NDArray[np.int64]],
    out: npt.NDArray[Any],
    side: int,
    combination: Combination | None,
    convert: Callable[[Floats], npt.NDArray[Any]] | None = None,
) -> None:
    """Patch a real result, the sum of the products of `terms`; `side` rows, columns and inner indices at a time."""
    for b in range(out.shape[0]):
        pairs = [(x[min(b, len(x) - 1)], y[min(b, len(y) - 1)], sign) for x, y, sign in terms]
        rows, cols = (np.flatnonzero(flag[min(b, len(flag) - 1)]) for flag in flags)
        for patched_rows, patched_cols in ((rows, np.arange(out.shape[2])), (np.arange(out.shape[1]), cols)):
            for r in range(0, len(patched_rows), side):
                for c in range(0, len(patched_cols), side):
                    at = np.ix_(patched_rows[r : r + side], patched_cols[c : c + side])
                    found = _sign_product(pairs, at[0], at[1], side, np)
                    if combination is not None:
                        found *= np.sign(combination.alpha.whole)
                        if combination.c is not None:
                            found += special_addend(combination, (b, *at))
                    out[b][at] = found if convert is None else convert(found)


def _sign_product(
    terms: Terms, rows: npt.NDArray[np.intp], cols: npt.NDArray[np.intp], side: int, xp: Any
) -> Floats:  # fmt: skip
    """Multiply rows by rows, with finite elements replaced by their signs: shape (len(rows), len(cols)).

    `xp` is the array library of the operands.
    """
    total: Floats = xp.zeros((rows.size, cols.size))
    for a, b, sign in terms:
        for h in range(0, a.shape[1], side):
            x, y = (of[at.ravel(), h : h + side] for of, at in ((a, rows), (b, cols)))
            total += xp.matmul(sign * _signs(x, xp), _signs(y, xp).T)
    total[xp.isnan(total)] = np.nan  # always the same NaN, whichever the processor returned
    return total


def _signs(x: npt.NDArray[Any], xp: Any) -> Floats:
    """x with finite elements replaced by their signs."""
    found: Floats = xp.where(xp.isfinite(x), xp.sign(x), x).astype(np.float64)
    return found


class Touched:
    """The entries of a tile that NaN or Inf touch, found from parts of k (docs/definitions.md, 6).

    Parameters
    ----------
    flags : for the rows of A and the columns of B of the tile, whether each has NaN or Inf, shapes (m,) and (n,)
    is_complex : whether both operands are

    Attributes
    ----------
    totals : sums of products of signs: of each flagged row with all columns, of all rows with each flagged column. Of
        other parts they may be added: what is not NaN or Inf in a sum does not matter. Of complex operands those of
        real parts come first, those of imaginary parts after these.
    """

    _library: Any = np
    """The array library of the parts."""

    _side = _PATCH
    """Rows, columns and inner indices that are multiplied at a time, at most."""

    def __init__(self, flags: tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]], is_complex: bool = False) -> None:
        self._rows, self._cols = (np.flatnonzero(flag) for flag in flags)
        self._shape = flags[0].size, flags[1].size
        shapes = (self._rows.size, self._shape[1]), (self._shape[0], self._cols.size)
        self.totals: list[npt.NDArray[Any]] = [
            self._library.zeros(shape) for _ in range(1 + is_complex) for shape in shapes
        ]

    @property
    def some(self) -> bool:
        """Whether there are such entries."""
        return self._rows.size + self._cols.size > 0

    def add(self, x: npt.NDArray[Any], y: npt.NDArray[Any]) -> None:
        """Add what a part of the rows of A and columns of B has, shapes (m, indices) and (n, indices)."""
        if x.dtype.kind == "c":
            re, im, u, v = x.real, x.imag, y.real, y.imag
            of_parts: list[Terms] = [[(re, u, 1), (im, v, -1)], [(re, v, 1), (im, u, 1)]]
        else:
            of_parts = [[(x, y, 1)]]
        every = np.arange(self._shape[0]), np.arange(self._shape[1])
        for part, terms in enumerate(of_parts):
            for i, (rows, cols) in enumerate(((self._rows, every[1]), (every[0], self._cols))):
                total = self.totals[2 * part + i]
                side = self._side
                for r in range(0, rows.size, side):
                    for c in range(0, cols.size, side):
                        some = rows[r : r + side, None], cols[None, c : c + side]
                        total[r : r + side, c : c + side] += _sign_product(terms, *some, side, self._library)

    def write(self, out: npt.NDArray[Any], first: int = 0, combination: Combination | None = None) -> None:
        """Write those of some rows into out, shape (rows, n), from row `first` of the tile on.

        The addend of the expression has the shape (1, rows, n). With alpha = 0, NaN and Inf of operands do not count.
        """
        if combination is not None and combination.alpha.is_zero:
            return
        of_parts = [(out.real, "real"), (out.imag, "imag")] if out.dtype.kind == "c" else [(out, None)]
        every = np.arange(self._shape[0]), np.arange(self._shape[1])
        for part, (to, name) in enumerate(of_parts):
            some = combination if name is None else _part(combination, name)
            for i, (rows, cols) in enumerate(((self._rows, every[1]), (every[0], self._cols))):
                of_out = np.flatnonzero((rows >= first) & (rows < first + len(out)))
                found, at = self.totals[2 * part + i][of_out], np.ix_(rows[of_out] - first, cols)
                found[self._library.isnan(found)] = np.nan  # always the same NaN
                if some is not None:
                    found *= np.sign(some.alpha.whole)
                    if some.c is not None:
                        found += special_addend(some.at(0), at)
                to[at] = found
