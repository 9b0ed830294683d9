"""Hopper (H100, H200): its own kernels for slices, words, proofs, and for operands described and split in one read."""

from ozaki.backends.cupy.devices.device import Family
from ozaki.backends.cupy.devices.rates import Rates
from ozaki.backends.cupy.devices.tiles import Tiles
from ozaki.schemes.formats import H100

FAMILY = Family(
    capabilities=("90",),
    rates=Rates(57.0, 51.0, 1300.0, 3.9),  # measured on an H200 (benchmarks/results)
    core=H100,
    tiles=Tiles(rows=256, columns=192, depth=128, strip=64, few_digits_side=128, stages=4, smallest=256),
    words="wgmma",
    one_read=True,
    two_halves=True,
    suffix="a",
)
