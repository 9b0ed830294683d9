"""Residues of complex products by compiled code: two int8 products a modulus (docs/definitions.md, section 9)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from ozaki.backends.numpy._limbs import Floats
from ozaki.backends.numpy.compiled import Compiled
from ozaki.backends.numpy.compiled.tables import MOST_LIMBS, Tables, complex_tables_of
from ozaki.backends.numpy.engines.complex_residues import ComplexResidueEngine
from ozaki.backends.numpy.engines.int8_residues import DEPTH, Int8ResidueEngine
from ozaki.backends.numpy.engines.residues import limbs_of_product
from ozaki.schemes import ComplexSlices, Residues, Scaling
from ozaki.schemes.moduli import root_of_minus_one
from ozaki.schemes.residues import remainders


@dataclass(frozen=True)
class Int8ComplexResidueEngine(Int8ResidueEngine, ComplexResidueEngine):  # type: ignore[misc]  # slices are `Panels`
    """The engine of complex slices, of elements and entries that are complex, by the library of `Int8ResidueEngine`.

    Slices and products are those of `ComplexResidueEngine`, modulo the numbers of the scheme; the slices of the left
    operand are halved, so that P + Q and P - Q have all factors of the theorem but the root.
    """

    @classmethod
    def fits(cls, scheme: Residues, k: int) -> bool:
        """Whether the library splits and rounds such rows of k real numbers: all moduli have a root of -1."""
        assert isinstance(scheme, ComplexSlices)
        splits = super().fits(scheme, k // 2) and all(map(root_of_minus_one, scheme.moduli))
        return splits and complex_tables_of(scheme.of.moduli).limbs <= MOST_LIMBS

    @classmethod
    def compiled_as(cls, scheme: Residues, k: int, compiled: Compiled) -> Self:
        """The engine for rows of k real numbers by a library."""
        assert isinstance(scheme, ComplexSlices)
        slab, crt = max(1, min(k // 2, DEPTH)), remainders(scheme.of.moduli)
        return cls(scheme, k // 2, slab, crt, of_int8=True, compiled=compiled)

    @cached_property
    def what(self) -> str:
        """Number and kind of the planes, for people."""
        return f"complex residues modulo {len(self.crt.moduli)} numbers, as int8"

    def multiply_whole(self, x: Any, y: Any, scaling: Scaling, out: Any, most: int) -> None:
        """Return None: the library describes and splits complex rows in calls of their own."""
        return

    @cached_property
    def rounding_copies(self) -> int:
        """Arrays held while a tile is rounded: P and Q as int16 and as float64, residues of parts, limbs, and scratch.

        A tile has half as many entries as parts.
        """
        moduli = len(self.crt.moduli)
        return moduli // 4 + 2 * moduli + 2 * limbs_of_product(self.crt) + 12

    @cached_property
    def _tables(self) -> Tables:
        return complex_tables_of(self.crt.moduli)

    def factors_of_parts(self, m: int) -> tuple[int, int]:
        """The factors of P + Q and P - Q that give the real and the imaginary part modulo m."""
        return 1, m - root_of_minus_one(m)

    def limbs(self, sums: Any) -> Floats:
        """The limbs of both parts of each entry, as `ComplexResidueEngine` makes them."""
        return super().limbs(sums.astype(np.float64))
