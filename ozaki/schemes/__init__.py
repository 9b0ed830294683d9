"""The schemes: what the slices are, which pairs are multiplied, how they recombine."""

from typing import TypeGuard

from ozaki.schemes.digits import Digits
from ozaki.schemes.image import Scaling, magnitude_bits
from ozaki.schemes.protocol import ExactScheme
from ozaki.schemes.residues import Residues
from ozaki.schemes.words import PRESETS, Words

Scheme = Digits | Residues
"""Those that answer `ExactScheme`."""

_CONTRACT: tuple[type[ExactScheme], ...] = (Digits, Residues)


def is_exact(scheme: Scheme | Words | None) -> TypeGuard[Scheme]:
    """Whether slice products are exact: integers, no words, and not the native product."""
    return scheme is not None and scheme.exact


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


__all__ = ["PRESETS", "Digits", "Residues", "Scaling", "Scheme", "Words", "is_exact", "magnitude_bits", "scaling_of"]
