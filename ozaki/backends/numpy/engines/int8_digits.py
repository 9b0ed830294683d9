"""Digits by compiled code for the processor's int8 units (kernels/cpu/): one product for each diagonal."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy._scaled import ScaledRows
from ozaki.backends.numpy._undecided import Undecided
from ozaki.backends.numpy.compiled import Compiled
from ozaki.backends.numpy.compiled.calls import can_read
from ozaki.backends.numpy.compiled.digits import (
    MOST_DIGITS,
    DigitTables,
    digit_scratch_bytes,
    digit_tables_of,
    multiply_diagonals,
    multiply_digits,
    split_digits,
)
from ozaki.backends.numpy.compiled.panels import DEPTH as WORDS
from ozaki.backends.numpy.compiled.panels import Panels, padded_depth, whole
from ozaki.backends.numpy.compiled.panels import slice_bytes as bytes_of_panels
from ozaki.backends.numpy.compiled.whole import FARTHEST
from ozaki.backends.numpy.engines.by_blas import Ints
from ozaki.backends.numpy.engines.digits import DigitEngine
from ozaki.backends.numpy.engines.int8_residues import DEPTH, LEAST_SLAB
from ozaki.records.progress import Progress
from ozaki.records.shapes import Side
from ozaki.schemes import Digits


@dataclass(frozen=True)
class Int8DigitEngine(DigitEngine):
    """The engine of digits of at most eight bits, whose images are below 2**63, of rows of floats.

    A plane is the sum of the products of all pairs of digits of a diagonal, which an int32 holds over a slab. Slices
    are `Panels`, and sums of slabs int64.

    Attributes
    ----------
    scheme, k, slab, of_int8 : see `DigitEngine`; there are no rectangles
    compiled : the library that splits, multiplies and rounds
    """

    compiled: Compiled | None = None

    split_copies: ClassVar[int] = 0
    sums: ClassVar[int] = 0
    sum_bytes: ClassVar[int] = 4 + 8  # of a product, and of an element of sums

    @classmethod
    def fits(cls, scheme: Digits, k: int) -> bool:
        """Whether the library has the digits of this scheme, for rows of any length."""
        of_int8 = scheme.word == "int8" and scheme.bits <= 8
        return of_int8 and scheme.count <= MOST_DIGITS and scheme.largest < 2**63

    @classmethod
    def compiled_as(cls, scheme: Digits, k: int, compiled: Compiled) -> Self:
        """The engine for rows of k real numbers by a library."""
        slab = min(DEPTH, scheme.depth() // WORDS * WORDS)
        return cls(scheme, k, max(1, min(k, slab)), (), of_int8=True, compiled=compiled)

    @cached_property
    def planes(self) -> int:
        """Number of diagonals."""
        return self.scheme.count

    @cached_property
    def what(self) -> str:
        """Number and kind of the planes, for people."""
        return f"{self.scheme.count} digits, as int8"

    @cached_property
    def by(self) -> str:  # type: ignore[override]
        """What multiplies planes, for people."""
        return self.label

    @cached_property
    def label(self) -> str:
        """The engine, as reports name it."""
        return f"int8 by {self.compiled}"

    @cached_property
    def rounding_copies(self) -> int:
        """Arrays held while a tile is rounded outside the library: sums, limbs, and scratch."""
        return self.planes + 2 * self.limbs_of_sums + 12

    @cached_property
    def shifts(self) -> tuple[int, ...]:
        """Exponents of the weights of the diagonals, in units of 2**shift."""
        p, bits = self.scheme.count, self.scheme.bits
        return tuple(bits * (p - 1 - d) for d in range(p))

    @property
    def _library(self) -> Any:
        assert self.compiled is not None
        return self.compiled.library

    @cached_property
    def _tables(self) -> DigitTables:
        return digit_tables_of(self.scheme)

    def shortened(self) -> Self | None:
        """The engine with slabs half as long, as `Engine` says; panels are 48 rows at least, also of fewer."""
        slab = padded_depth(-(-self.slab // 2))
        return replace(self, slab=slab) if slab >= LEAST_SLAB else None

    def slice_bytes(
        self, together: int, rows: int, columns: int, threads: int, limbs: int, sides: tuple[Side, ...]
    ) -> int:
        """Bytes of the slices of a slab, and of the sums of each thread's panels, as `Engine` says."""
        sizes = {"left": rows, "right": columns}
        panels = sum(bytes_of_panels(together, sizes[side], self.slab, side, self.planes) for side in sides)
        return panels + threads * digit_scratch_bytes(rows, columns, self.planes)

    def whole_panels(self, rows: int, columns: int) -> tuple[int, int]:
        """So many rows and columns or some more that are whole panels."""
        return whole(rows, "left"), whole(columns, "right")

    def split_rows(self, x: npt.NDArray[Any] | ScaledRows, mu: Ints, side: str, finite: bool) -> Panels:  # type: ignore[override]
        """The slices of rows of floats, as `Engine` says."""
        return split_digits(self._library, x if can_read(x) else x.copy(), mu, side, self._tables)

    def multiply(self, a: Any, b: Any, progress: Progress | None = None) -> Any:
        """The sums of a slab, as `Engine` says: those of each diagonal."""
        sums = multiply_diagonals(self._library, a, b, self._tables).astype(np.int64)
        if progress is not None:
            progress.step(self.planes)
        return sums

    def multiply_into(
        self, a: Any, b: Any, mu: Ints, nu: Ints, out: Any, triangle: bool, undecided: Undecided | None = None
    ) -> bool:
        """Round in the same pass, as `Engine` says, floats whose exponents are not extreme."""
        reach = int(np.abs(mu).max(initial=0)) + int(np.abs(nu).max(initial=0))
        if not isinstance(out, np.ndarray) or out.dtype not in (np.float32, np.float64) or reach > FARTHEST:
            return False
        if undecided is not None or any(step % out.itemsize for step in out.strides) or out.strides[2] != out.itemsize:
            return False
        multiply_digits(self._library, a, b, self._tables, mu, nu, out, triangle)
        return True

    def limbs(self, sums: Any) -> Any:
        """The exact integers of some entries as limbs, as `Engine` says."""
        return self.weighted(sums.astype(np.float64))  # exact: below 2**53
