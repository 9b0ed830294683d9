"""The exact product of fixed-point images on NumPy, before it is rounded."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.combining import combine_into
from ozaki.backends.numpy import _limbs
from ozaki.backends.numpy._limbs import Floats
from ozaki.backends.numpy._numbers import exact_numbers, round_into
from ozaki.backends.numpy._tiles import row_tiles
from ozaki.backends.numpy.engines import Engine
from ozaki.backends.results import copy
from ozaki.call.combination import Combination, Factor
from ozaki.driver.progress import NOTHING, SILENT, Progress, Share
from ozaki.multiprecision.floats import to_floats
from ozaki.multiprecision.numbers import Numbers

Ints = npt.NDArray[np.int64]

_MOST_LIMBS = 38
"""Most limbs whose weights are powers of two in the range of a float64."""

_FARTHEST = 2**30
"""Largest exponent of a row whose sums are sure to fit the int32 that scales a float64."""


class Unrounded:
    """The exact product of some rows of A and columns of B: parts of k are added to it, and then it is rounded once."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._sums: Floats | None = None

    def add(self, a: Floats, b: Floats, progress: Progress = SILENT) -> None:
        """Add the product over a part of k, by slices a, (planes, batch, m, part), and b, (planes, batch, n, part)."""
        b = b.swapaxes(-1, -2)
        if progress.silent:
            products = np.matmul(a, b)
        else:  # the same products, one after another
            products = np.empty((*a.shape[:-1], b.shape[-1]))
            for left, right, product in zip(a, b, products, strict=True):
                np.matmul(left, right, out=product)
                progress.step()
        self._sums = self._engine.add(products, self._sums)

    def round_into(
        self,
        out: npt.NDArray[Any] | Numbers,
        mu: Ints,
        nu: Ints,
        combination: Combination | None = None,
        mirrored: bool = False,
        progress: Share = NOTHING,
    ) -> None:
        """Round the exact integers times 2**-(mu_i + nu_j) into out, shape (batch, m, n), and free their memory.

        mu and nu are the exponents of the images, of shape (batch, m) or (1, m) and (batch, n) or (1, n). With
        `combination`, whose addend has the shape of out, the whole expression is rounded, once. `mirrored`: whether the
        product is symmetric, so that entries above the diagonal are copied. `progress` is told of each tile.
        """
        assert self._sums is not None
        sums, self._sums = self._sums, None
        batch, m, n = out.shape
        power = combination is None or (combination.alpha.is_power and combination.c is None)
        alpha = Factor(1, 0) if combination is None else combination.alpha
        shift = self._engine.shift + (alpha.exponent if power else 0)
        tiles = [*row_tiles(batch, m, n, share=4 if power else COMBINED_SHARE)]
        for turn, at in enumerate(tiles):
            tile = *at, slice(0, at[1].stop if mirrored else n)
            limbs = self._engine.limbs(sums[(slice(None), *tile)].reshape(len(sums), -1))
            rows = at if mu.shape[0] == batch else (slice(0, 1), at[1])
            cols = at[0] if nu.shape[0] == batch else slice(0, 1)
            exponents = shift - mu[rows], -nu[cols, tile[2]]
            if power and alpha.whole < 0:
                np.subtract(0.0, limbs, out=limbs)  # which leaves zeros their sign, as -limbs would not
            far = len(limbs) > _MOST_LIMBS or any(int(np.abs(e).max(initial=0)) > _FARTHEST for e in exponents)
            if power and not far and not isinstance(out, Numbers):
                _limbs.round_scaled(limbs, *exponents, out[tile])
            else:
                of_entries = np.broadcast_to(exponents[0][..., :, None] + exponents[1][..., None, :], out[tile].shape)
                if not power:
                    assert combination is not None
                    combine_into(exact_numbers(limbs, of_entries), combination.at(tile), out[tile])
                elif isinstance(out, Numbers):
                    round_into(limbs, of_entries, out[tile])
                else:
                    out[tile] = to_floats(exact_numbers(limbs, of_entries), str(out.dtype))
            if mirrored:
                copy(out[tile].swapaxes(1, 2), out[at[0], tile[2], at[1]])
            progress.turn(turn, len(tiles))


COMBINED_SHARE = 8
"""Part of a tile that is combined with an addend at a time, since that takes more scratch memory."""
