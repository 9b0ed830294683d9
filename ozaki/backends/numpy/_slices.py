"""NumPy: the slices of rows, as float64 BLAS multiplies them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy._describe import along_memory, scale, turned
from ozaki.backends.numpy._limbs import Floats
from ozaki.bounds.description import Described
from ozaki.schemes import Digits
from ozaki.schemes.blas import PIECE_BITS, Engine, piece_residues
from ozaki.schemes.residues import Remainders


@dataclass(frozen=True)
class Slices:
    """One operand, split: `planes` of shape (planes, batch, rows, k), float64 integers, and the exponents mu."""

    described: Described
    planes: Floats
    mu: npt.NDArray[np.int64]

    @property
    def x(self) -> npt.NDArray[Any]:
        """The rows of the operand."""
        rows: npt.NDArray[Any] = self.described.x
        return rows


def slices_of(
    operand: Described | Slices, mu: npt.NDArray[np.int64], engine: Engine, side: str, b: slice, rows: slice, hs: slice
) -> Floats:
    """The slices of some rows and inner indices, shape (planes, batch, rows, k)."""
    if isinstance(operand, Slices):
        return operand.planes[:, b, rows, hs]
    x = operand.x[b, rows, hs]
    mu = mu[b, rows]
    # The memory order of x is kept, so that a transposed operand is read and written along its rows.
    planes = np.empty((engine.planes, *turned(x, x).shape))
    nonfinite = bool(operand.on_host.nonfinite.any())
    for at, piece, exponents in along_memory(x, mu):
        image = _image(piece, exponents, nonfinite)
        if engine.remainders:
            _residues(image, engine.remainders, side, planes[(slice(None), *at)])
        else:
            _digit_blocks(image, engine, side, planes[(slice(None), *at)])
    return turned(planes, x)


def _image(x: npt.NDArray[Any], mu: npt.NDArray[np.int64], nonfinite: bool) -> Floats:
    """RN(2**mu x), ties to even, as float64."""
    values = x.astype(np.float64, copy=False)
    if nonfinite:
        values = np.where(np.isfinite(values), values, 0.0)
    image = scale(values, mu)
    return np.rint(image, out=image)


def _residues(image: Floats, crt: Remainders, side: str, out: Floats) -> None:
    """out[t] = image (times the CRT inverse on the left) mod moduli[t], symmetric; of a tile, contiguous."""
    bits = int(np.frexp(np.abs(image).max(initial=0.0))[1])
    count = max(-(-bits // PIECE_BITS), 1)
    pieces = np.empty((count, image.size))
    pieces[0] = image.reshape(-1)
    for below, above in pairwise(pieces):
        np.rint(below * 2.0**-PIECE_BITS, out=above)
        below -= above * 2.0**PIECE_BITS
    totals = out.reshape(len(out), -1)
    np.matmul(_table(crt, count, side == "left"), pieces, out=totals)  # exact (schemes/blas.py)
    for total, m in zip(totals, crt.moduli, strict=True):
        reduce(total, m, pieces[0], total)


@lru_cache(maxsize=1024)
def _table(crt: Remainders, pieces: int, with_inverses: bool) -> Floats:
    return np.array(piece_residues(crt, pieces, with_inverses), np.float64)


def reduce(x: Floats, m: int, scratch: Floats, out: Floats) -> None:
    """out = x mod m, which may be x; abs(out) <= m/2 (1 + 2**-20); x an integer up to 2**53."""
    np.multiply(x, 1.0 / m, out=scratch)
    np.rint(scratch, out=scratch)
    scratch *= m
    np.subtract(x, scratch, out=out)


def _digit_blocks(image: Floats, engine: Engine, side: str, out: Floats) -> None:
    """out[r] = the block of digits that rectangle r takes from this side, as one integer."""
    assert isinstance(engine.scheme, Digits)
    p, bits = engine.scheme.count, engine.scheme.bits
    leading = [_leading_digits(image, s, p, bits) for s in range(p + 1)]
    for r, block in enumerate(engine.rectangles):
        first, count = (block.s0, block.rows) if side == "left" else (block.t0, block.cols)
        out[r] = leading[first + count] - leading[first] * 2.0 ** (bits * count)


def _leading_digits(image: Floats, s: int, p: int, bits: int) -> Floats:
    """The first s balanced digits of p as one integer: floor((image + B) / w), B = half of w - 1 in every digit."""
    if s == 0:
        return np.zeros_like(image)
    low = bits * (p - s)
    if low == 0:
        return image
    whole = np.floor(image * 2.0**-low)
    rest = image - whole * 2.0**low
    below = (2 ** (bits - 1)) * ((2**low - 1) // (2**bits - 1))
    whole += rest >= _at_least(2**low - below)
    return whole


def _at_least(x: int) -> float:
    """Smallest float64 >= x."""
    nearest = float(x)
    return nearest if int(nearest) >= x else float(np.nextafter(nearest, np.inf))
