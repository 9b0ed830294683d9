"""The schemes: what the slices of an operand are, which pairs of them are multiplied, how products recombine."""

from typing import TypeGuard

from ozaki.schemes.digits import Digits
from ozaki.schemes.image import Scaling, magnitude_bits
from ozaki.schemes.protocol import ExactScheme
from ozaki.schemes.residues import ComplexResidues, ComplexSlices, Residues
from ozaki.schemes.words import PRESETS, Words

Scheme = ExactScheme
"""The schemes with exact slice products. (`named.FAMILIES` lets type checkers see that each follows the protocol.)"""


def is_exact(scheme: Scheme | Words | None) -> TypeGuard[Scheme]:
    """Whether a product runs by slices with exact integer products: neither by words nor natively (None)."""
    return scheme is not None and scheme.exact


def slice_products(scheme: Scheme | Words | None) -> int:
    """Slice products of a plan: of complex residues two or three for each modulus; 1 of the native product."""
    if scheme is None:
        return 1
    return scheme.slices.products if isinstance(scheme, ComplexResidues) else scheme.products


def scaling_of(scheme: Scheme, k: int) -> Scaling:
    """The rule by which a scheme scales rows of length k.

    Raises
    ------
    ValueError
        If the scheme has too few slices for this k.
    """
    scaling = scheme.scaling(k)
    if scaling is None:
        raise ValueError(f"slices: {scheme.count} {scheme.name} leave no room for k = {k}; give more")
    return scaling


__all__ = [
    "PRESETS",
    "ComplexResidues",
    "ComplexSlices",
    "Digits",
    "Residues",
    "Scaling",
    "Scheme",
    "Words",
    "is_exact",
    "magnitude_bits",
    "scaling_of",
    "slice_products",
]
