"""Residues of one byte or of two digits, by compiled code for the processor's int8 units (kernels/cpu/)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from ozaki.backends import results
from ozaki.backends.numpy.compiled import Compiled
from ozaki.backends.numpy.compiled.calls import can_read, multiply, multiply_rounded, split
from ozaki.backends.numpy.compiled.panels import Panels, scratch_bytes
from ozaki.backends.numpy.compiled.panels import slice_bytes as bytes_of_panels
from ozaki.backends.numpy.compiled.tables import MOST_LIMBS, Tables, tables_of
from ozaki.backends.numpy.compiled.wide import (
    can_write,
    image_words,
    multiply_residues,
    multiply_wide,
    planes_of,
    split_room,
    split_wide,
    wide_scratch_bytes,
)
from ozaki.backends.numpy.compiled.wide_tables import WideTables, wide_tables_of
from ozaki.backends.numpy.engines.by_blas import Ints
from ozaki.backends.numpy.engines.residues import ResidueEngine, limbs_of_product
from ozaki.multiprecision.floats import empty
from ozaki.multiprecision.numbers import Numbers
from ozaki.records.progress import Progress
from ozaki.schemes import Residues
from ozaki.schemes.residues import remainders

_DEPTH = 2**13
"""Most inner indices of a slab."""

_FARTHEST = 800
"""Largest sum of two exponents for which no entry but zero leaves the normal range of float64 before it is rounded."""

_MOST_SLABS = 2**7
"""Most slabs whose residues, in [-128, 127], int16 adds up; those of two digits int32 does."""

_NARROW = 2**63
"""Images below it are an int64."""

_MOST_WORDS = 2**7
"""Most words of an image whose products by powers of 256 the library reduces (kernels/cpu/words.h: near_residue)."""

_LEAST_OF_DIGITS = 2**12
"""Least modulus of residues of two digits, for the same reason."""


@dataclass(frozen=True)
class Int8ResidueEngine(ResidueEngine):
    """The engine of residues modulo numbers below 2**14, of rows of floats and of multiprecision numbers.

    Residues modulo numbers above 256 are two digits, and take three products.

    Attributes
    ----------
    scheme, k, slab, crt, folded, of_int8 : see `ResidueEngine`; the moduli are those of the scheme
    compiled : the library that splits, multiplies and rounds
    """

    compiled: Compiled | None = None

    sum_bytes: ClassVar[int] = 3  # of products, and of their sums
    split_copies: ClassVar[int] = 0
    rounds: ClassVar[bool] = True

    @classmethod
    def fits(cls, scheme: Residues, k: int) -> bool:
        """Whether the library has the residues of this scheme."""
        return (
            k <= _MOST_SLABS * _DEPTH
            and image_words(scheme.largest) <= _MOST_WORDS
            and all(m <= 256 or _LEAST_OF_DIGITS <= m < 2**14 for m in scheme.moduli)
        )

    @classmethod
    def compiled_as(cls, scheme: Residues, k: int, compiled: Compiled) -> Self:
        """The engine for rows of k real numbers by a library."""
        return cls(scheme, k, max(1, min(k, _DEPTH)), remainders(scheme.moduli), of_int8=True, compiled=compiled)

    @cached_property
    def planes(self) -> int:
        """Number of matrix products for each slab: of residues of two digits three."""
        return planes_of(self.crt.moduli)

    @cached_property
    def sums(self) -> int:  # type: ignore[override]
        """Number of moduli where residues have digits, whose products become one residue."""
        return len(self.crt.moduli) if self._digits else 0

    @cached_property
    def what(self) -> str:
        """Number and kind of the planes, for people."""
        return f"residues modulo {len(self.crt.moduli)} numbers, as int8"

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
        """Arrays held while a tile is rounded outside the library: residues, limbs, and scratch."""
        return 2 * len(self.crt.moduli) + 2 * limbs_of_product(self.crt) + 12

    @property
    def _library(self) -> Any:
        assert self.compiled is not None
        return self.compiled.library

    @cached_property
    def _digits(self) -> bool:
        """Whether some residues have two digits."""
        return max(self.crt.moduli) > 256

    @cached_property
    def _tables(self) -> Tables:
        return tables_of(self.crt.moduli)

    @cached_property
    def _wide(self) -> WideTables:
        return wide_tables_of(self.crt.moduli, self._words)

    @cached_property
    def _words(self) -> int:
        return image_words(self.scheme.largest)

    def symmetric(self) -> None:
        """Return None: left residues are signed, right ones are not."""
        return

    def slice_bytes(self, together: int, rows: int, columns: int, threads: int, limbs: int = 0) -> int:
        """Bytes of the slices of a slab of both operands, and of the residues of each thread's tile."""
        of_operands = ((rows, "left"), (columns, "right"))
        panels = sum(bytes_of_panels(together, each, self.slab, side, self.planes) for each, side in of_operands)
        count = len(self.crt.moduli)
        of_tile = max(scratch_bytes(rows, columns, count), wide_scratch_bytes(rows, columns, 2 * count))
        return panels + threads * max(of_tile, split_room(self._words, limbs))

    def split_rows(self, x: npt.NDArray[Any], mu: Ints, side: str, finite: bool) -> Panels:  # type: ignore[override]
        """The slices of rows of floats, as `Engine` says."""
        x = x if can_read(x) else x.copy()
        if self._digits or self.scheme.largest >= _NARROW:
            return split_wide(self._library, x, mu, side, self._wide)
        return split(self._library, x, mu, side, self._tables)

    def split_numbers(self, x: Numbers, mu: Ints, side: str) -> Panels:  # type: ignore[override]
        """The slices of rows of multiprecision numbers, as `Engine` says."""
        return split_wide(self._library, x, mu, side, self._wide)

    def multiply(self, a: Any, b: Any, progress: Progress | None = None) -> Any:
        """The sums of a slab, as `Engine` says: integers modulo each number, which may be added."""
        if self._digits:
            products = multiply_residues(self._library, a, b, self._wide).astype(np.int32)
        else:
            products = multiply(self._library, a, b, self._tables).astype(np.int16)
        if progress is not None:
            progress.step(self.planes)
        return products

    def multiply_into(self, a: Any, b: Any, mu: Ints, nu: Ints, out: Any) -> bool:
        """Round in the same pass, as `Engine` says."""
        if not can_write(out):
            apart = empty(out.shape, out.bits, np) if isinstance(out, Numbers) else np.empty(out.shape, out.dtype)
            self.multiply_into(a, b, mu, nu, apart)
            results.copy(apart, out)
            return True
        reach = int(np.abs(mu).max(initial=0)) + int(np.abs(nu).max(initial=0))
        if isinstance(out, Numbers) or self._digits or self._tables.limbs > MOST_LIMBS or reach > _FARTHEST:
            multiply_wide(self._library, a, b, self._wide, mu, nu, out)
        else:
            multiply_rounded(self._library, a, b, self._tables, mu, nu, out)
        return True
