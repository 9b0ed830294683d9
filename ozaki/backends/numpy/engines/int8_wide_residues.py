"""Residues of images of any width, of one byte or two digits, by compiled code: numbers of many bits, wide floats."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ozaki.backends import results
from ozaki.backends.numpy._scaled import ScaledRows
from ozaki.backends.numpy._undecided import Undecided
from ozaki.backends.numpy.compiled.calls import can_read, multiply_rounded
from ozaki.backends.numpy.compiled.panels import Panels, scratch_bytes
from ozaki.backends.numpy.compiled.tables import MOST_LIMBS
from ozaki.backends.numpy.compiled.whole import FARTHEST
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
from ozaki.backends.numpy.engines.int8_residues import DEPTH, MOST_SLABS, Int8ResidueEngine
from ozaki.backends.numpy.engines.residues import limbs_of_product
from ozaki.multiprecision.floats import empty
from ozaki.multiprecision.numbers import Numbers
from ozaki.records.progress import Progress
from ozaki.schemes import Residues, Scaling

_MOST_INT64 = 2**63
"""Images below it are an int64."""

_MOST_WORDS = 2**7
"""Most words of an image whose products by powers of 256 the library reduces (kernels/cpu/words.h: near_residue)."""

_LEAST_OF_DIGITS = 2**12
"""Least modulus of residues of two digits, for the same reason."""


@dataclass(frozen=True)
class Int8WideResidueEngine(Int8ResidueEngine):
    """The engine of residues modulo numbers below 2**14, of real rows of floats and of multiprecision numbers.

    Residues modulo numbers above 256 are two digits, and take three products. Narrow images of floats, and their
    products, are those of `Int8ResidueEngine`.
    """

    rounds: ClassVar[bool] = True

    @classmethod
    def fits(cls, scheme: Residues, k: int) -> bool:
        """Whether the library has the residues of this scheme for rows of k real numbers."""
        return (
            k <= MOST_SLABS * DEPTH
            and image_words(scheme.largest) <= _MOST_WORDS
            and all(m <= 256 or _LEAST_OF_DIGITS <= m < 2**14 for m in scheme.moduli)
        )

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
    def rounding_copies(self) -> int:
        """Arrays held while a tile is rounded outside the library: residues, limbs, and scratch."""
        return 2 * len(self.crt.moduli) + 2 * limbs_of_product(self.crt) + 12

    @cached_property
    def _digits(self) -> bool:
        """Whether some residues have two digits."""
        return max(self.crt.moduli) > 256

    @cached_property
    def _of_int64(self) -> bool:
        """Whether the library splits floats without wide images."""
        return not self._digits and self.scheme.largest < _MOST_INT64

    @cached_property
    def _words(self) -> int:
        return image_words(self.scheme.largest)

    @cached_property
    def _wide(self) -> WideTables:
        return wide_tables_of(self.crt.moduli, self._words)

    def _thread_bytes(self, rows: int, columns: int, limbs: int) -> int:
        """Bytes that a thread holds, for its tile or while it splits."""
        of_tile = wide_scratch_bytes(rows, columns, sum(1 if m <= 256 else 2 for m in self.crt.moduli))
        if not self._digits:
            of_tile = max(of_tile, scratch_bytes(rows, columns, self.planes))
        return max(of_tile, split_room(self._words, limbs))

    def split_rows(self, x: npt.NDArray[Any] | ScaledRows, mu: Ints, side: str, finite: bool) -> Panels:  # type: ignore[override]
        """The slices of rows of floats, as `Engine` says."""
        if self._of_int64:
            return super().split_rows(x, mu, side, finite)
        return split_wide(self._library, x if can_read(x) else x.copy(), mu, side, self._wide)

    def split_numbers(self, x: Numbers, mu: Ints, side: str) -> Panels:  # type: ignore[override]
        """The slices of rows of multiprecision numbers, as `Engine` says."""
        return split_wide(self._library, x, mu, side, self._wide)

    def multiply_whole(self, x: Any, y: Any, scaling: Scaling, out: Any, most: int) -> int | None:
        """Compute whole products of narrow images in one call, as `Engine` says."""
        return super().multiply_whole(x, y, scaling, out, most) if self._of_int64 else None

    def multiply(self, a: Any, b: Any, progress: Progress | None = None) -> Any:
        """The sums of a slab, as `Engine` says: integers modulo each number, which may be added."""
        if not self._digits:
            return super().multiply(a, b, progress)
        products = multiply_residues(self._library, a, b, self._wide).astype(np.int32)
        if progress is not None:
            progress.step(self.planes)
        return products

    def multiply_into(
        self, a: Any, b: Any, mu: Ints, nu: Ints, out: Any, triangle: bool, undecided: Undecided | None = None
    ) -> bool:
        """Round in the same pass, as `Engine` says."""
        if not can_write(out):
            apart = empty(out.shape, out.bits, np) if isinstance(out, Numbers) else np.empty(out.shape, out.dtype)
            self.multiply_into(a, b, mu, nu, apart, triangle=False, undecided=undecided)
            results.copy(apart, out)
            return True
        reach = int(np.abs(mu).max(initial=0)) + int(np.abs(nu).max(initial=0))
        as_limbs = isinstance(out, Numbers) or self._digits or self._tables.limbs > MOST_LIMBS or reach > FARTHEST
        if as_limbs or undecided is not None:
            multiply_wide(self._library, a, b, self._wide, mu, nu, out, triangle, undecided)
        else:
            multiply_rounded(self._library, a, b, self._tables, mu, nu, out, triangle)
        return True
