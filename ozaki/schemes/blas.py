"""Constants of exact products through float64 BLAS: widths of limbs, pieces and slabs."""

LIMB_BITS = 26
"""Bits of a limb: products of limbs by small numbers, and sums of such products, are exact in float64."""

PIECE_BITS = 24
"""Bits of the pieces that an image is cut into before it is reduced modulo the moduli."""

DEPTH = 2048
"""Most inner indices of a slab (the part of k that is multiplied at a time); bounds the workspace."""

LEAST_DEPTH = 1024
"""Least number of inner indices for which moduli are chosen, even if k is smaller: it limits them to 2**22.5.

Then a residue is below 2**21.5, and a sum of `MOST_PIECES` of them times pieces, each at most 2**24, below 2**52, where
one quotient finds the residue of least absolute value.
"""

MOST_PIECES = 64
"""Most pieces that are multiplied by residues, and added, before the sum is reduced."""

MOST_WEIGHTS = 32
"""Most residues, at most 2**21.6, that are multiplied by limbs of weights, at most 2**25, and added before limbs carry.

The sums stay below 2**51.6, and below 2**52 after the limbs of the sums before are added.
"""
