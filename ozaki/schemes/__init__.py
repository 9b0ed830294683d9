"""The integer schemes: what the slices are, which pairs are multiplied, how they recombine."""

from ozaki.schemes.digits import Digits
from ozaki.schemes.image import Scaling, magnitude_bits
from ozaki.schemes.residues import Residues

Scheme = Digits | Residues

__all__ = ["Digits", "Residues", "Scaling", "Scheme", "magnitude_bits"]
