"""The columns of B, as rows of A with digits of their own count are multiplied by them, on NumPy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy.typing as npt

from ozaki.backends.numpy._describe import Described, describe
from ozaki.backends.numpy._row_statistics import summary_of
from ozaki.backends.numpy.compiled.memory import SPARE
from ozaki.backends.numpy.compiled.panels import Panels
from ozaki.backends.numpy.engines.row_digits import Int8RowDigitEngine, engine_of_rows
from ozaki.bounds.row_digits import Ints, RowStatistics
from ozaki.schemes.row_digits import RowDigits


@dataclass(frozen=True)
class Columns:
    """The columns of B, and what of them decides how many digits rows of A have.

    Attributes
    ----------
    scheme : of the product
    described : the columns as rows, shape (batch or 1, n, k), float32
    summary : of the columns of each matrix
    nu : exponents of the images, shape (batch or 1, n)
    engine, planes : what split the columns, and their digits, for rows of any number of digits; None, if nothing did
    """

    scheme: RowDigits
    described: Described
    summary: RowStatistics
    nu: Ints
    engine: Int8RowDigitEngine | None = None
    planes: Panels | None = None

    @property
    def x(self) -> npt.NDArray[Any]:
        """The columns as rows, shape (batch or 1, n, k)."""
        rows: npt.NDArray[Any] = self.described.unscaled
        return rows

    def part(self, batch: slice) -> Columns:
        """Those of some matrices."""
        planes = None if self.planes is None else self.planes[:, batch, :, :]
        inexact, low, squares, counts = self.summary
        summary = RowStatistics(inexact[batch], low[:, batch], squares[batch], counts[batch])
        described = self.described.part(batch, slice(None))
        return Columns(self.scheme, described, summary, self.nu[batch], self.engine, planes)

    def are_split_for(self, library: object) -> bool:
        """Whether their digits are there, as the compiled code that products take now multiplies them."""
        return self.planes is not None and self.engine is not None and self.engine.compiled == library


def columns_of(scheme: RowDigits, y: npt.NDArray[Any], split: bool = False) -> Columns:
    """Describe and summarise the columns of B, given as rows y, shape (batch, n, k), float32 with any strides.

    With `split` their digits are made, too, where compiled code has them, for many products.
    """
    described = describe(y)
    k = y.shape[2]
    nu = described.on_host.exponents(scheme.scaling_of_columns(k))
    columns = Columns(scheme, described, summary_of(scheme, described), nu)
    engine = engine_of_rows(scheme, scheme.fewest, k)
    if not split or not isinstance(engine, Int8RowDigitEngine) or y.size == 0:
        return columns
    SPARE.clear()  # which may have much more memory than is wanted
    planes = engine.split_rows(y, nu, "right", described.finite)
    planes.block.keep()
    return replace(columns, engine=engine, planes=planes)
