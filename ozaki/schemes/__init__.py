"""The schemes: what the slices are, which pairs are multiplied, how they recombine."""

from ozaki.schemes.digits import Digits
from ozaki.schemes.image import Scaling, magnitude_bits
from ozaki.schemes.residues import Residues
from ozaki.schemes.words import PRESETS, Words

Scheme = Digits | Residues
"""Those whose slice products are exact, so that one image of the operands decides everything."""

__all__ = ["PRESETS", "Digits", "Residues", "Scaling", "Scheme", "Words", "magnitude_bits"]
