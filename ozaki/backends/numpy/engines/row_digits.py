"""The engines of rows of p and columns of q digits: those of digits, of which the shorter side has zeros at its end.

A row of p digits times a column of q takes the pairs of max(p, q) digits of the images 2**(8 (P - p)) Abar and
2**(8 (P - q)) Bbar, P = max(p, q), so that is what is split.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ozaki.backends.numpy._limbs import Floats
from ozaki.backends.numpy.engines.digits import DigitEngine
from ozaki.schemes import Digits


@dataclass(frozen=True)
class RowDigitEngine(DigitEngine):
    """The engine by float64 BLAS.

    Attributes
    ----------
    scheme, k, slab, rectangles, of_int8 : see `DigitEngine`; the scheme has the digits of the longer side
    rows, columns : digits p of each row of A and q of each column of B
    """

    rows: int = 0
    columns: int = 0

    @classmethod
    def of_kind(cls, rows: int, columns: int, k: int) -> RowDigitEngine:
        """The engine of rows and columns of so many digits, for inner dimension k."""
        like = DigitEngine.of(Digits(max(rows, columns)), k, "float64")
        assert like is not None
        return cls(like.scheme, k, like.slab, like.rectangles, rows=rows, columns=columns)

    @cached_property
    def shift(self) -> int:
        """Exponent of the unit of limbs, of which images without zeros at their ends have a product.

        It is the weight of the pairs s + t = P + 1, the least that are kept.
        """
        return self.scheme.bits * (self.rows + self.columns - self.scheme.count - 1)

    def split(self, image: Floats, side: str, out: Floats) -> None:
        """Write the digits of a tile of an image of p or q digits, as `BlasEngine` says."""
        zeros = self.scheme.count - (self.rows if side == "left" else self.columns)
        super().split(np.multiply(image, 2.0 ** (8 * zeros), out=image) if zeros else image, side, out)
