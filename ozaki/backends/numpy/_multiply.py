"""NumPy: the exact product of two panels through float64 BLAS, and its one rounding."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy import _limbs
from ozaki.backends.numpy._describe import TILE, row_tiles
from ozaki.backends.numpy._limbs import Floats
from ozaki.backends.numpy._slices import Slices, reduce, slices_of
from ozaki.bounds.description import Described
from ozaki.schemes import Digits
from ozaki.schemes.blas import Engine, weight_limbs
from ozaki.schemes.residues import Remainders


def multiply(
    engine: Engine,
    left: Described | Slices,
    right: Described | Slices,
    mu: npt.NDArray[np.int64],
    nu: npt.NDArray[np.int64],
    at_left: slice,
    at_right: slice,
    rows: slice,
    cols: slice,
) -> Floats:
    """The exact product of two panels, shape (planes, batch, m, n): by residues, or as limbs of the digits' sum."""
    k = (left.described if isinstance(left, Slices) else left).k
    sums: Floats | None = None
    for h in range(0, k, engine.slab):
        hs = slice(h, min(h + engine.slab, k))
        a = slices_of(left, mu, engine, "left", at_left, rows, hs)
        b = slices_of(right, nu, engine, "right", at_right, cols, hs)
        product: Floats = np.matmul(a, b.swapaxes(-1, -2))
        del a, b  # before the next ones
        if engine.remainders is None:
            sums = np.zeros((engine.limbs, *product.shape[1:])) if sums is None else sums
            _add_digit_products(engine, product, sums)
        else:
            if k > engine.slab:  # else it is reduced when it is recombined
                _reduce_planes(product, engine.remainders)
            sums = product if sums is None else np.add(sums, product, out=sums)
        del product
    assert sums is not None
    return sums


def _reduce_planes(product: Floats, crt: Remainders) -> None:
    """Each plane modulo its modulus, in place."""
    planes = product.reshape(len(product), -1)
    scratch = np.empty(min(TILE, planes.shape[1]))
    for plane, m in zip(planes, crt.moduli, strict=True):
        for i in range(0, plane.size, TILE):
            tile = plane[i : i + TILE]
            reduce(tile, m, scratch[: tile.size], tile)


def _add_digit_products(engine: Engine, product: Floats, limbs: Floats) -> None:
    """Add the rectangles' products to the limbs by their weights, in units of the last digit kept."""
    assert isinstance(engine.scheme, Digits)
    p, bits = engine.scheme.count, engine.scheme.bits
    planes, limbs = product.reshape(len(product), -1), limbs.reshape(len(limbs), -1)
    for i in range(0, planes.shape[1], TILE // 4):
        for block, plane in zip(engine.rectangles, planes[:, i : i + TILE // 4], strict=True):
            last = block.s0 + block.rows + block.t0 + block.cols
            _limbs.add_shifted(limbs[:, i : i + TILE // 4], plane, bits * (p + 1 - last))


def recombine(
    engine: Engine, sums: Floats, mu: npt.NDArray[np.int64], nu: npt.NDArray[np.int64], out: npt.NDArray[Any]
) -> None:
    """The exact integers, rounded once into out, shape (batch, m, n)."""
    shift = engine.scheme.bits * (engine.scheme.count - 1) if isinstance(engine.scheme, Digits) else 0
    batch, m, n = out.shape
    for at in row_tiles(batch, m, n, share=4):
        limbs = sums[(slice(None), *at)].reshape(len(sums), -1)
        if engine.remainders:
            limbs = _limbs_of_residues(engine.remainders, limbs)
        rows = at if mu.shape[0] == batch else (slice(0, 1), at[1])
        cols = at[0] if nu.shape[0] == batch else slice(0, 1)
        _limbs.round_scaled(limbs, shift - mu[rows], -nu[cols], out[at])


def _limbs_of_residues(crt: Remainders, residues: Floats) -> Floats:
    """Chinese remainders: limbs = weights y - q product, one small matrix product."""
    count = len(crt.moduli)
    y = np.empty((count + 1, residues.shape[1]))
    for t, m in enumerate(crt.moduli):
        reduce(residues[t], m, y[count], y[t])
    np.matmul(np.array([1.0 / m for m in crt.moduli]), y[:count], out=y[count])
    np.rint(y[count], out=y[count])
    limbs: Floats = np.matmul(_weights(crt), y)
    return limbs


@lru_cache(maxsize=1024)
def _weights(crt: Remainders) -> Floats:
    return np.array(weight_limbs(crt), np.float64)
