"""The slices of an operand on NumPy, as float64 BLAS multiplies them."""

from __future__ import annotations

from dataclasses import dataclass
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
    x, mu = operand.x[b, rows, hs], mu[b, rows]
    if operand.numbers is not None:
        planes = np.empty((engine.planes, *x.shape))
        _split_numbers(operand.numbers[b, rows, hs], mu, engine, side, planes)
        return planes
    nonfinite = bool(operand.on_host.nonfinite.any())
    if isinstance(engine, ResidueEngine) and engine.pieces * PIECE_BITS > _WIDEST:
        found = planes = np.empty((engine.planes, *x.shape))
        for part, of_parts, to in _parts(x, engine, planes):
            finite = np.where(np.isfinite(part), part, 0) if nonfinite else part
            _split_numbers(of_floats(finite), mu, of_parts, side, to)
    else:
        # Slices get the memory order of x, so that a transposed operand, too, is read and written along memory.
        planes = np.empty((engine.planes, *turned(x, x).shape))
        found = turned(planes, x)
        for part, of_parts, to in _parts(x, engine, planes):
            for at, piece, exponents in along_memory(part, mu):
                of_parts.split(_image(piece, exponents, nonfinite), side, to[(slice(None), *at)])
    if isinstance(engine, ComplexResidueEngine):
        engine.join_parts(planes)
    return found


def _parts(x: npt.NDArray[Any], engine: Engine, planes: Floats) -> list[tuple[npt.NDArray[Any], Engine, Floats]]:
    """The real parts of elements, the engine that splits them, and where their slices go; of real x it alone."""
    if not isinstance(engine, ComplexResidueEngine):
        return [(x, engine, planes)]
    return [*zip((x.real, x.imag), 2 * (engine.of_parts,), np.split(planes, 2), strict=True)]


def _split_numbers(x: Numbers, mu: npt.NDArray[np.int64], engine: Engine, side: str, planes: Floats) -> None:
    """Split multiprecision rows x, shape (batch, rows, k), whose images have the exponents mu, into contiguous ones."""
    assert isinstance(engine, ResidueEngine)
    batch, rows, k = x.shape
    for at in row_tiles(batch, rows, k, share=4):
        tile = x[at]
        of_elements = np.broadcast_to(mu[at][..., None], tile.shape).reshape(-1)
        pieces = image_pieces(tile.reshape(-1), of_elements, engine.pieces)
        engine.split_pieces(pieces, side, planes[(slice(None), *at)])


def _image(x: npt.NDArray[Any], mu: npt.NDArray[np.int64], nonfinite: bool) -> Floats:
    """The fixed-point image RN(2**mu x), ties to even, float64; NaN and Inf count as zero."""
    values = x.astype(np.float64, copy=False)
    if nonfinite:
        values = np.where(np.isfinite(values), values, 0.0)
    image = scale(values, mu)
    return np.rint(image, out=image)
