"""Devices that nobody has described: slices by cuBLAS; how their tensor cores add words is not known."""

from ozaki.backends.cupy.devices.device import Family
from ozaki.backends.cupy.devices.rates import Rates

CARDS = Rates(float64=0.6, float32=30.0, int8=250.0, memory=0.6)
"""Cards without float64 tensor cores, as 7.5, 8.6, 8.9 (`ampere.py`), 12.0: float64 at 1/32 to 1/64 of float32."""

BLACKWELL = Family(capabilities=("100",), rates=Rates(float64=37.0, float32=75.0, int8=2500.0, memory=7.0))
"""By the vendor's figures; nobody has measured them."""

FAMILY = Family(capabilities=(), rates=CARDS)
"""What is assumed of devices that nobody has described here."""
