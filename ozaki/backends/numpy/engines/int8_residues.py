"""Residues of eight bits, by compiled code for the processor's int8 units (kernels/cpu/)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy._limbs import Floats
from ozaki.backends.numpy._scaled import ScaledRows
from ozaki.backends.numpy._undecided import Undecided
from ozaki.backends.numpy.compiled import Compiled
from ozaki.backends.numpy.compiled.calls import can_read, multiply, multiply_rounded, split
from ozaki.backends.numpy.compiled.panels import Panels, padded_depth, scratch_bytes, whole
from ozaki.backends.numpy.compiled.panels import slice_bytes as bytes_of_panels
from ozaki.backends.numpy.compiled.tables import MOST_LIMBS, Tables, tables_of
from ozaki.backends.numpy.compiled.whole import FARTHEST, multiply_whole
from ozaki.backends.numpy.compiled.wide import image_words, multiply_wide
from ozaki.backends.numpy.compiled.wide_tables import wide_tables_of
from ozaki.backends.numpy.engines.by_blas import Ints
from ozaki.backends.numpy.engines.residues import ResidueEngine
from ozaki.multiprecision.numbers import Numbers
from ozaki.records.progress import Progress
from ozaki.records.shapes import Side
from ozaki.schemes import Residues, Scaling
from ozaki.schemes.residues import remainders

DEPTH = 2**13
"""Most inner indices of a slab."""

LEAST_SLAB = 2**7
"""Fewest inner indices of a slab that is shortened for a limit of workspace."""

MOST_SLABS = 2**7
"""Most slabs whose residues, in [-128, 127], int16 adds up."""


@dataclass(frozen=True)
class Int8ResidueEngine(ResidueEngine):
    """The engine of residues modulo numbers of at most 256, whose images are below 2**63, of rows of floats.

    Attributes
    ----------
    scheme, k, slab, crt, folded, of_int8 : see `ResidueEngine`; the moduli are those of the scheme
    compiled : the library that splits, multiplies and rounds
    """

    compiled: Compiled | None = None

    split_copies: ClassVar[int] = 0

    @classmethod
    def fits(cls, scheme: Residues, k: int) -> bool:
        """Whether the library has the residues of this scheme for rows of k real numbers."""
        return scheme.largest < 2**63 and max(scheme.moduli) <= 256 and k <= MOST_SLABS * DEPTH

    @classmethod
    def compiled_as(cls, scheme: Residues, k: int, compiled: Compiled) -> Self:
        """The engine for rows of k real numbers by a library."""
        return cls(scheme, k, max(1, min(k, DEPTH)), remainders(scheme.moduli), of_int8=True, compiled=compiled)

    @cached_property
    def _of_sums(self) -> type[np.signedinteger[Any]]:
        return np.int16 if self.k <= MOST_SLABS * self.slab else np.int32

    @cached_property
    def sum_bytes(self) -> int:  # type: ignore[override]
        """Bytes of a product, and of an element of sums."""
        return 1 + np.dtype(self._of_sums).itemsize

    @cached_property
    def what(self) -> str:
        """Number and kind of the planes, for people."""
        return f"residues modulo {self.planes} numbers, as int8"

    @cached_property
    def by(self) -> str:  # type: ignore[override]
        """What multiplies planes, for people."""
        return str(self.compiled)

    @cached_property
    def label(self) -> str:
        """The engine, as reports name it."""
        return f"int8 by {self.compiled}"

    @property
    def _library(self) -> Any:
        assert self.compiled is not None
        return self.compiled.library

    @cached_property
    def _narrow(self) -> bool:
        """Whether the library makes images of four bytes."""
        return self.scheme.largest < 2**31

    @cached_property
    def _tables(self) -> Tables:
        return tables_of(self.crt.moduli)

    def shortened(self) -> Self | None:
        """The engine with slabs half as long, as `Engine` says; panels are 48 rows at least, also of fewer."""
        slab = padded_depth(-(-self.slab // 2))
        return replace(self, slab=slab) if slab >= LEAST_SLAB else None

    def joined(self) -> Self:
        """The engine with one slab, as `Engine` says: the library reduces sums of parts of k itself."""
        return replace(self, slab=max(self.k, 1))

    def symmetric(self) -> None:
        """Return None: left residues are signed, right ones are not."""
        return

    def slice_bytes(
        self, together: int, rows: int, columns: int, threads: int, limbs: int, sides: tuple[Side, ...]
    ) -> int:
        """Bytes of the slices of a slab, and of what each thread holds, as `Engine` says."""
        sizes = {"left": rows, "right": columns}
        panels = sum(bytes_of_panels(together, sizes[side], self.slab, side, self.planes) for side in sides)
        return panels + threads * self._thread_bytes(rows, columns, limbs)

    def _thread_bytes(self, rows: int, columns: int, limbs: int) -> int:
        """Bytes that a thread holds: the residues of its tile."""
        return scratch_bytes(rows, columns, self.planes)

    def whole_panels(self, rows: int, columns: int) -> tuple[int, int]:
        """So many rows and columns or some more that are whole panels."""
        return whole(rows, "left"), whole(columns, "right")

    def split_rows(self, x: npt.NDArray[Any] | ScaledRows, mu: Ints, side: str, finite: bool) -> Panels:  # type: ignore[override]
        """The slices of rows of floats, as `Engine` says."""
        return split(self._library, x if can_read(x) else x.copy(), mu, side, self._tables, self._narrow)

    def split_numbers(self, x: Numbers, mu: Ints, side: str) -> Any:
        """Raise, since `engine_of` gives such rows `Int8WideResidueEngine`."""
        raise NotImplementedError(f"{self.label}: no slices of multiprecision numbers")

    def multiply_whole(self, x: Any, y: Any, scaling: Scaling, out: Any, most: int) -> int | None:
        """Compute whole products in one call, as `Engine` says, where threads need not share out a matrix."""
        return multiply_whole(self._library, x, y, scaling, self._tables, out, most, self._narrow)

    def multiply(self, a: Any, b: Any, progress: Progress | None = None) -> Any:
        """The sums of a slab, as `Engine` says: integers, modulo each number."""
        products = multiply(self._library, a, b, self._tables)
        if progress is not None:
            progress.step(self.planes)
        return products if self.k <= self.slab else products.astype(self._of_sums)  # of one slab nothing is added

    def limbs(self, sums: Any) -> Floats:
        """The limbs of entries, as `Engine` says; residues to which nothing was added are reduced already."""
        if sums.dtype != np.int8:
            return super().limbs(sums)
        y = np.empty((len(sums) + 1, sums.shape[1]))
        y[:-1] = sums
        return self.limbs_of_residues(y)

    def multiply_into(
        self, a: Any, b: Any, mu: Ints, nu: Ints, out: Any, triangle: bool, undecided: Undecided | None = None
    ) -> bool:
        """Round in the same pass, as `Engine` says, floats whose exponents are not extreme."""
        reach = int(np.abs(mu).max(initial=0)) + int(np.abs(nu).max(initial=0))
        kind = "c" if self.parts == 2 else "f"
        rounds = isinstance(out, np.ndarray) and out.dtype.kind == kind and self._tables.limbs <= MOST_LIMBS
        if not rounds or reach > FARTHEST or out.strides[2] != out.itemsize or out.strides[1] % out.itemsize:
            return False
        if undecided is not None:
            if self.parts == 2:
                return False
            wide = wide_tables_of(self.crt.moduli, image_words(self.scheme.largest))
            multiply_wide(self._library, a, b, wide, mu, nu, out, triangle, undecided)
            return True
        multiply_rounded(self._library, a, b, self._tables, mu, nu, out, triangle)
        return True
