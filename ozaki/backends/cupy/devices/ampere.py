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

Of the A100 float64 and float32 are the vendor's peaks; int8 is less than that, 624, and the driver tells of the memory.
Nobody has measured them.
"""
