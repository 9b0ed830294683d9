"""The exact product of fixed-point images on NumPy, before it is rounded: the seam between engines and results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.combining import combine_into
from ozaki.backends.numpy import _limbs
from ozaki.backends.numpy._limbs import Floats
from ozaki.backends.numpy._numbers import exact_numbers, round_into
from ozaki.backends.numpy._tiles import COMBINED_SHARE, TILE
from ozaki.backends.numpy._undecided import Undecided, round_decided
from ozaki.backends.numpy.engines import Engine
from ozaki.backends.results import copy
from ozaki.multiprecision.floats import to_floats
from ozaki.multiprecision.numbers import Numbers
from ozaki.records.combination import ONE, Combination
from ozaki.records.progress import Share
from ozaki.records.shapes import tiles_of_rows

Ints = npt.NDArray[np.int64]

Project = Callable[[Floats, slice, slice, slice], None]
"""Is told the limbs of some entries, before they are rounded, and which matrices, rows and columns these are."""

_MOST_LIMBS = 38
"""Most limbs whose weights are powers of two in the range of a float64."""

_NEAR = 2**8
"""Sums of exponents that scale all entries of a product by powers of two in the range of a float64, most often."""

_FARTHEST = 2**30
"""Largest sum of exponents that is sure to fit the int32 that scales a float64."""


class Unrounded:
    """The exact product of some rows of A and columns of B over a part of k, or over all of it.

    Parts of k are added, in any order, and the sum is rounded once. Exact products of Abar and Bbar are integers; A B
    is these times 2**-(mu_i + nu_j).

    Parameters
    ----------
    engine : of all of k; it makes limbs of the sums
    sums : as the engine holds them (`Engine.multiply`)
    mu, nu : exponents of the images of the rows, shape (batch or 1, m), and of the columns, shape (batch or 1, n)
    """

    def __init__(self, engine: Engine, sums: Floats, mu: Ints, nu: Ints) -> None:
        self.engine, self.mu, self.nu = engine, mu, nu
        self._sums: Floats | None = sums

    def add(self, other: Unrounded) -> None:
        """Add another part of k, of the same engine, rows and columns, and free its sums."""
        assert self._sums is not None and other._sums is not None and self.engine == other.engine
        self._sums += other._sums
        other._sums = None

    def round_into(
        self,
        out: npt.NDArray[Any] | Numbers,
        combination: Combination | None = None,
        mirrored: bool = False,
        progress: Share | None = None,
        project: Project | None = None,
        undecided: Undecided | None = None,
    ) -> None:
        """Round A B once into out, shape (batch, m, n), and free the sums.

        Parameters
        ----------
        out : any format; complex entries of complex operands: rows of them are contiguous
        combination : an expression of the product, which is rounded in its place; its addend has the shape of out
        mirrored : whether the product is symmetric, so that entries above the diagonal are copied
        progress : is told of each tile
        project : is told the integers of each tile; it may carry limbs
        undecided : flags entries that are undecided, of real floats without an expression
        """
        assert self._sums is not None
        sums, self._sums = self._sums, None
        mu, nu = self.mu, self.nu
        if isinstance(out, np.ndarray) and out.dtype.kind == "c":  # parts of entries are neighbours, as columns are
            out, nu = out.view(out.real.dtype), np.repeat(nu, 2, axis=1)
            if combination is not None and combination.c is not None:
                combination = replace(combination, c=combination.c.view(combination.c.real.dtype))
        power = combination is None or (combination.alpha.is_power and combination.c is None)
        alpha = ONE if combination is None else combination.alpha
        mu = (self.engine.shift + (alpha.exponent if power else 0)) - mu
        nu = -nu
        reach = int(np.abs(mu).max(initial=0)) + int(np.abs(nu).max(initial=0))
        batch, m, n = out.shape
        tiles = tiles_of_rows(batch, m, n, TILE // (4 if power else COMBINED_SHARE))
        for turn, (b, rows) in enumerate(tiles):
            cols = slice(0, rows.stop if mirrored else n)
            to = out[b, rows, cols]
            limbs = self.engine.limbs(sums[:, b, rows, cols].reshape(len(sums), -1))
            if project is not None:
                project(limbs, b, rows, slice(0, cols.stop // self.engine.parts))
            of_rows, of_cols = (mu if len(mu) == 1 else mu[b])[:, rows], (nu if len(nu) == 1 else nu[b])[:, cols]
            if power and alpha.whole < 0:
                np.subtract(0.0, limbs, out=limbs)  # which leaves zeros their sign, as -limbs would not
            if undecided is not None:
                assert combination is None and isinstance(to, np.ndarray)
                round_decided(limbs, of_rows, of_cols, to, undecided.at((b, rows, cols)))
            elif power and isinstance(to, np.ndarray) and len(limbs) <= _MOST_LIMBS and reach <= _FARTHEST:
                _limbs.round_scaled(limbs, of_rows, of_cols, to, reach if reach <= _NEAR else None)
            else:
                of_entries = np.broadcast_to(of_rows[..., :, None] + of_cols[..., None, :], to.shape)
                if not power:
                    assert combination is not None
                    combine_into(exact_numbers(limbs, of_entries), combination.at((b, rows, cols)), to)
                elif isinstance(to, Numbers):
                    round_into(limbs, of_entries, to)
                else:
                    to[...] = to_floats(exact_numbers(limbs, of_entries), str(to.dtype))
            if mirrored:
                if undecided is not None:
                    undecided.flags[b, cols, rows] = undecided.flags[b, rows, cols].swapaxes(1, 2)
                copy(to.swapaxes(1, 2), out[b, cols, rows])
            if progress is not None:
                progress.turn(turn, len(tiles))
