"""Ampere and Ada: slices by cuBLAS, words by `mma.sync`, whose sums are known."""

from ozaki.backends.cupy.devices.device import Family
from ozaki.backends.cupy.devices.others import CARDS
from ozaki.backends.cupy.devices.rates import Rates
from ozaki.schemes.formats import A100

FAMILIES = (
    Family(capabilities=("80",), rates=Rates(float64=19.5, float32=19.5, int8=450.0, memory=1.4), core=A100),
    Family(capabilities=("86", "87", "89"), rates=CARDS, core=A100),
)
"""A100, and cards without float64 tensor cores.

The rates of the A100 are not measured: float64 and float32 are the vendor's peaks, int8 is assumed to reach 450 of its
624. That of the memory counts only where the driver does not tell the memory's clock and width.
"""
