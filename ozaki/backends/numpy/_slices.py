"""The slices of an operand on NumPy, as float64 BLAS multiplies them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy._describe import Described, along_memory, scale, turned
from ozaki.backends.numpy._limbs import Floats
from ozaki.backends.numpy._numbers import image_pieces
from ozaki.backends.numpy._tiles import row_tiles
from ozaki.backends.numpy.engines import Engine
from ozaki.backends.numpy.engines.complex_residues import ComplexResidueEngine
from ozaki.backends.numpy.engines.residues import ResidueEngine
from ozaki.multiprecision.floats import of_floats
from ozaki.multiprecision.numbers import Numbers
from ozaki.schemes.blas import PIECE_BITS


@dataclass(frozen=True)
class Slices:
    """An operand that is split: its slices, and the shared exponents of its rows.

    Attributes
    ----------
    described : the operand with its description
    planes : integers in float64, shape (planes, batch, rows, k)
    mu : exponents of the images, shape (batch, rows)
    """

    described: Described
    planes: Floats
    mu: npt.NDArray[np.int64]

    @property
    def x(self) -> npt.NDArray[Any]:
        """The operand, shape (batch, rows, k)."""
        rows: npt.NDArray[Any] = self.described.x
        return rows


_WIDEST = 900
"""Most bits of an image that is a float64 array: a wider one may leave the range of float64."""


def slices_of(
    operand: Described | Slices, mu: npt.NDArray[np.int64], engine: Engine, side: str, b: slice, rows: slice, hs: slice
) -> Floats:
    """The slices of some matrices b, rows and inner indices hs of an operand, shape (planes, batch, rows, k).

    A split operand returns views of its own; one that is described alone is split by `engine`, with exponents `mu`.
    """
    if isinstance(operand, Slices):
        return operand.planes[:, b, rows, hs]
    if isinstance(engine, ComplexResidueEngine):
        return _complex_slices(operand, mu, engine, side, b, rows, hs)
    if operand.numbers is not None:
        return _slices_of_numbers(operand.numbers[b, rows, hs], mu[b, rows], engine, side)
    x = operand.x[b, rows, hs]
    mu = mu[b, rows]
    if isinstance(engine, ResidueEngine) and engine.pieces * PIECE_BITS > _WIDEST:
        finite = np.where(np.isfinite(x), x, 0) if operand.on_host.nonfinite.any() else x
        return _slices_of_numbers(of_floats(finite), mu, engine, side)
    # Slices get the memory order of x, so that a transposed operand, too, is read and written along memory.
    planes = np.empty((engine.planes, *turned(x, x).shape))
    nonfinite = bool(operand.on_host.nonfinite.any())
    for at, piece, exponents in along_memory(x, mu):
        image = _image(piece, exponents, nonfinite)
        engine.split(image, side, planes[(slice(None), *at)])
    return turned(planes, x)


def _complex_slices(
    operand: Described, mu: npt.NDArray[np.int64], engine: ComplexResidueEngine, side: str, b: slice, rows: slice,
    hs: slice,
) -> Floats:  # fmt: skip
    """The slices of complex elements, shape (planes, batch, rows, k), from the residues of their parts."""
    x, mu = operand.x[b, rows, hs], mu[b, rows]
    planes = np.empty((engine.planes, *x.shape))
    everything = slice(None), slice(None), slice(None)
    for part, to in zip((x.real, x.imag), np.split(planes, 2), strict=True):
        to[...] = slices_of(replace(operand, x=part), mu, engine.of_parts, side, *everything)
    engine.join_parts(planes)
    return planes


def _slices_of_numbers(x: Numbers, mu: npt.NDArray[np.int64], engine: Engine, side: str) -> Floats:
    """The slices of multiprecision rows x, shape (batch, rows, k), whose images have the exponents mu."""
    assert isinstance(engine, ResidueEngine)
    planes = np.empty((engine.planes, *x.shape))
    batch, rows, k = x.shape
    for at in row_tiles(batch, rows, k, share=4):
        tile = x[at]
        of_elements = np.broadcast_to(mu[at][..., None], tile.shape).reshape(-1)
        pieces = image_pieces(tile.reshape(-1), of_elements, engine.pieces)
        engine.split_pieces(pieces, side, planes[(slice(None), *at)])
    return planes


def _image(x: npt.NDArray[Any], mu: npt.NDArray[np.int64], nonfinite: bool) -> Floats:
    """The fixed-point image RN(2**mu x), ties to even, float64; NaN and Inf count as zero."""
    values = x.astype(np.float64, copy=False)
    if nonfinite:
        values = np.where(np.isfinite(values), values, 0.0)
    image = scale(values, mu)
    return np.rint(image, out=image)
