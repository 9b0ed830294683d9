"""Ampere and Ada: slices by cuBLAS, words by `mma.sync`, whose sums are known."""

from ozaki.backends.cupy.devices.device import Family
from ozaki.backends.cupy.devices.others import CARDS
from ozaki.backends.cupy.devices.rates import Rates
from ozaki.schemes.formats import A100

FAMILIES = (
    Family(capabilities=("80",), rates=Rates(19.5, 19.5, 450.0, 1.4), core=A100),
    Family(capabilities=("86", "87", "89"), rates=CARDS, core=A100),
)
"""A100, and cards without float64 tensor cores. The vendor's figures, derated by a third."""
