"""Residues modulo chosen numbers: few of every kind, where those of the library would be thousands."""

from __future__ import annotations

from dataclasses import dataclass

from ozaki.schemes import Residues
from ozaki.schemes.moduli import digits_of, first_moduli, products_of

TWOS = first_moduli(115)[49:]
"""Moduli with residues of two digits."""

THREES = tuple(2**21 - i for i in (3, 9, 19, 21, 39, 51, 55, 61, 63, 69, 73))
"""Moduli with residues of three digits; like all others here, each is coprime to all others."""


@dataclass(frozen=True)
class Chosen(Residues):
    """Residues modulo `chosen`, ordered by their digits; those of one digit are the first ones of the library."""

    chosen: tuple[int, ...] = ()

    @classmethod
    def of(cls, ones: int, twos: int, threes: int) -> Chosen:
        """So many moduli with residues of one digit, two and three."""
        moduli = (*first_moduli(ones), *TWOS[:twos], *THREES[:threes])
        return cls(len(moduli), moduli)

    @property
    def moduli(self) -> tuple[int, ...]:
        return self.chosen

    @property
    def products(self) -> int:
        return sum(map(products_of, self.chosen))

    @property
    def by_digits(self) -> tuple[int, int, int]:
        digits = [digits_of(m) for m in self.chosen]
        return digits.count(1), digits.count(2), digits.count(3)
