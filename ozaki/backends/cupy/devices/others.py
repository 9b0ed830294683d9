"""All other devices: slices by cuBLAS; how their tensor cores add words is not known."""

from ozaki.backends.cupy.devices.device import Family
from ozaki.backends.cupy.devices.rates import Rates

CARDS = Rates(0.6, 30.0, 250.0, 0.6)
"""Cards without float64 tensor cores, as 7.5, 8.6, 8.9, 12.0: float64 at 1/32 to 1/64 of float32."""

BLACKWELL = Family(capabilities=("100",), rates=Rates(37.0, 75.0, 2500.0, 7.0))
"""The vendor's figures, derated by a third."""

FAMILY = Family(capabilities=(), rates=CARDS)
"""What is assumed of devices that nobody has described here."""
