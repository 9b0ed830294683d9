"""The engines of rows of p and columns of q digits: those of digits, of which the shorter side has zeros at its end.

A row of p digits times a column of q takes the pairs of max(p, q) digits of the images 2**(8 (P - p)) Abar and
2**(8 (P - q)) Bbar, P = max(p, q), so that is what is split.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy._limbs import Floats
from ozaki.backends.numpy._scaled import ScaledRows
from ozaki.backends.numpy._sixteen import Bits
from ozaki.backends.numpy.compiled.calls import can_read
from ozaki.backends.numpy.compiled.digits import digit_tables_of, split_digits
from ozaki.backends.numpy.compiled.panels import Panels
from ozaki.backends.numpy.compiled.row_digits import multiply_short
from ozaki.backends.numpy.engines import compiled_for
from ozaki.backends.numpy.engines.by_blas import Ints
from ozaki.backends.numpy.engines.digits import DigitEngine
from ozaki.backends.numpy.engines.int8_digits import Int8DigitEngine
from ozaki.records.combination import Combination
from ozaki.schemes import Digits
from ozaki.schemes.row_digits import FORMATS, RowDigits, Sixteen


@dataclass(frozen=True)
class OfRows:
    """What an engine of digits knows of rows and columns beside its scheme, which has the digits of a row of A.

    Attributes
    ----------
    rows, columns : digits p of each row of A, and q of each column of B, which are no more
    form : the format of the result
    """

    rows: int = 0
    columns: int = 0
    form: Sixteen = FORMATS["bfloat16"]

    @cached_property
    def shift(self) -> int:
        """Exponent of the unit of limbs, of which images without zeros at their ends have a product.

        It is the weight of the pairs s + t = p + 1, the least that are kept: 8 (q - 1).
        """
        assert self.rows >= self.columns
        return 8 * (self.columns - 1)


@dataclass(frozen=True)
class RowDigitEngine(OfRows, DigitEngine):
    """The engine by float64 BLAS."""

    def split(self, image: Floats, side: str, out: Floats) -> None:
        """Write the digits of a tile of an image of p or q digits, as `BlasEngine` says."""
        zeros = self.rows - self.columns if side == "right" else 0
        super().split(np.multiply(image, 2.0 ** (8 * zeros), out=image) if zeros else image, side, out)


@dataclass(frozen=True)
class Int8RowDigitEngine(OfRows, Int8DigitEngine):
    """The engine by compiled code, which multiplies no zeros, and rounds to 16 bits."""

    rounds: ClassVar[bool] = True

    def split_rows(self, x: npt.NDArray[Any] | ScaledRows, mu: Ints, side: str, finite: bool) -> Panels:  # type: ignore[override]
        """The p or q digits of rows of floats, as `Engine` says."""
        tables = digit_tables_of(Digits(self.rows if side == "left" else self.columns))
        return split_digits(self._library, x if can_read(x) else x.copy(), mu, side, tables)

    def multiply_short(
        self, a: Panels, b: Panels, mu: Ints, nu: Ints, out: Bits, combination: Combination | None = None
    ) -> None:
        """Write the product over all of k, or an expression that `can_combine`, rounded once to 16 bits, into out.

        NaN and Inf of the addend count as zero.
        """
        multiply_short(self._library, a, b, self._tables, mu, nu, out, self.form, combination)


def engine_of_rows(of: RowDigits, rows: int, k: int, name: str = "auto") -> RowDigitEngine | Int8RowDigitEngine:
    """The engine of that name, as `MAKERS` has them, of rows of so many digits, for inner dimension k."""
    scheme = Digits(rows)
    found = compiled_for(scheme, k, name)
    if found is not None:
        like = Int8DigitEngine.compiled_as(scheme, k, found)
        return Int8RowDigitEngine(scheme, k, like.slab, (), True, found, rows, of.columns, of.sixteen)
    by_blas = DigitEngine.of(scheme, k, name)
    assert by_blas is not None
    return RowDigitEngine(scheme, k, by_blas.slab, by_blas.rectangles, by_blas.of_int8, rows, of.columns, of.sixteen)
