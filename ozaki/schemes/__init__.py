"""The schemes: what the slices are, which pairs are multiplied, how they recombine."""

from ozaki.schemes.digits import Digits
from ozaki.schemes.image import Scaling, magnitude_bits
from ozaki.schemes.residues import Residues
from ozaki.schemes.words import PRESETS, Words

Scheme = Digits | Residues
"""Those whose slice products are exact, so that one image of the operands decides everything."""


def scaling_of(scheme: Scheme, k: int) -> Scaling:
    """How rows of length k are scaled.

    Raises
    ------
    ValueError
        Where so few slices leave nothing of an element.
    """
    scaling = scheme.scaling(k)
    if scaling is None:
        raise ValueError(f"slices: {scheme.count} {scheme.name} leave no room for k = {k}; give more")
    return scaling


__all__ = ["PRESETS", "Digits", "Residues", "Scaling", "Scheme", "Words", "magnitude_bits", "scaling_of"]
