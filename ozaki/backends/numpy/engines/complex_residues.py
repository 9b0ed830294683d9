"""Residues of complex products through float64 BLAS: two real products a modulus (docs/definitions.md, section 9)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy._limbs import Floats
from ozaki.backends.numpy._scaled import ScaledRows
from ozaki.backends.numpy._tiles import TILE
from ozaki.backends.numpy.engines.by_blas import Ints, in_shape
from ozaki.backends.numpy.engines.residues import ResidueEngine, least_product, limbs_of_product, reduce
from ozaki.schemes import ComplexSlices, Residues, blas
from ozaki.schemes.blas import LEAST_DEPTH
from ozaki.schemes.moduli import balanced, exact_complex_moduli, root_of_minus_one
from ozaki.schemes.residues import remainders


@dataclass(frozen=True)
class ComplexResidueEngine(ResidueEngine):
    """The engine of complex slices, of elements and entries that are complex.

    Modulo m, with s the root of -1, a complex element x + i y has the slices x + s y and x - s y, and two products of
    slices are P = Re + s Im and Q = Re - s Im of an entry.
    """

    @classmethod
    def of(cls, scheme: Residues, k: int, name: str) -> ComplexResidueEngine:
        """The engine for rows of k real numbers; there is none named "int8-simulated"."""
        assert isinstance(scheme, ComplexSlices) and name != "int8-simulated"
        slab = max(1, min(k, blas.DEPTH) // 2)
        moduli = exact_complex_moduli(max(slab, LEAST_DEPTH), 53, least_product(scheme))
        return cls(scheme, k // 2, slab, remainders(moduli))

    parts: ClassVar[int] = 2

    def symmetric(self) -> None:
        """Return None: the slices of the operands differ."""
        return

    @cached_property
    def planes(self) -> int:
        """Number of matrix products for each slab: two for each modulus."""
        return 2 * len(self.crt.moduli)

    @cached_property
    def what(self) -> str:
        """Number and kind of the planes, for people."""
        return f"complex residues modulo {len(self.crt.moduli)} numbers, as float64"

    @cached_property
    def split_copies(self) -> int:
        """Arrays held while a tile is split, and while its slices are made of its residues."""
        return 7 + self.pieces

    @cached_property
    def rounding_copies(self) -> int:
        """Arrays held while a tile is rounded: those of the real and of the imaginary parts."""
        return 2 * (2 * self.planes + 2 * limbs_of_product(self.crt) + 12)

    @cached_property
    def of_parts(self) -> ResidueEngine:
        """The engine that makes residues of the parts of elements."""
        return ResidueEngine(self.scheme, self.k, self.slab, self.crt)

    def split_rows(self, x: npt.NDArray[Any] | ScaledRows, mu: Ints, side: str, finite: bool) -> Floats:
        """The slices of complex rows, as `Engine` says."""
        planes = np.empty((self.planes, x.size))
        for part, of_part in zip((x.real, x.imag), np.split(planes, 2), strict=True):
            turned = self.of_parts.split_real_rows(part, mu, side, finite, of_part)
        self._join_parts(planes)
        return in_shape(planes, x.shape, turned)

    def _join_parts(self, planes: Floats) -> None:
        """Make slices of residues: of x and y, the first and the second half of the planes, x + s y and x - s y."""
        x, y = np.split(planes.reshape(len(planes), -1), 2)
        scratch = np.empty((2, min(TILE, x.shape[1])))
        for t, m in enumerate(self.crt.moduli):
            root = root_of_minus_one(m)
            for i in range(0, x.shape[1], TILE):
                real, imaginary = x[t, i : i + TILE], y[t, i : i + TILE]
                turned, quotient = scratch[:, : real.size]
                np.multiply(imaginary, balanced(root, m), out=turned)
                reduce(turned, m, quotient, turned)
                np.subtract(real, turned, out=imaginary)
                real += turned
                reduce(real, m, quotient, real)
                reduce(imaginary, m, quotient, imaginary)

    @cached_property
    def moduli_of_products(self) -> tuple[int, ...]:
        """The modulus of each matrix product: of all P, then of all Q."""
        return 2 * self.crt.moduli

    def factors_of_parts(self, m: int) -> tuple[int, int]:
        """The factors of P + Q and P - Q that give the real and the imaginary part modulo m."""
        half = (m + 1) // 2
        return half, half * pow(root_of_minus_one(m), -1, m) % m

    def limbs(self, sums: Floats) -> Floats:
        """The limbs of the real and the imaginary part of each entry, one after the other; overwrites `sums`."""
        count, entries = len(self.crt.moduli), sums.shape[1]
        y = np.empty((count + 1, entries, 2))
        scratch = np.empty(entries)
        for t, m in enumerate(self.crt.moduli):
            plus, minus = sums[t], sums[count + t]
            for each in (plus, minus):
                reduce(each, m, scratch, each)
            factors = self.factors_of_parts(m)
            for part, both, factor in zip((0, 1), (plus + minus, plus - minus), factors, strict=True):
                both *= balanced(factor, m)
                reduce(both, m, scratch, both)
                y[t, :, part] = both
        return self.limbs_of_residues(y.reshape(count + 1, 2 * entries))
