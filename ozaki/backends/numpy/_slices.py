"""NumPy: the slices of rows, as float64 BLAS multiplies them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy._describe import Described, along_memory, scale, turned
from ozaki.backends.numpy._limbs import Floats
from ozaki.backends.numpy.engines import Engine


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
        engine.split(image, side, planes[(slice(None), *at)])
    return turned(planes, x)


def _image(x: npt.NDArray[Any], mu: npt.NDArray[np.int64], nonfinite: bool) -> Floats:
    """RN(2**mu x), ties to even, as float64."""
    values = x.astype(np.float64, copy=False)
    if nonfinite:
        values = np.where(np.isfinite(values), values, 0.0)
    image = scale(values, mu)
    return np.rint(image, out=image)
