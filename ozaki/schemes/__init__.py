"""The schemes: what the slices of an operand are, which pairs of them are multiplied, how products recombine."""

from ozaki.schemes.digits import Digits
from ozaki.schemes.image import ExactScheme, Scaling, is_exact, magnitude_bits, scaling_of
from ozaki.schemes.residues import ComplexResidues, ComplexSlices, Residues
from ozaki.schemes.words import PRESETS, Words

Scheme = ExactScheme
"""The schemes with exact slice products. (`named.FAMILIES` lets type checkers see that each follows the protocol.)"""


def slice_products(scheme: Scheme | Words | None) -> int:
    """Slice products of a plan: of complex residues two or three for each modulus; 1 of the native product."""
    if scheme is None:
        return 1
    return scheme.slices.products if isinstance(scheme, ComplexResidues) else scheme.products


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
