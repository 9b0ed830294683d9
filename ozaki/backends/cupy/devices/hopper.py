"""Hopper (H100, H200): its own kernels for slices, words, proofs, and for operands described and split in one read."""

from ozaki.backends.cupy.devices.device import Family
from ozaki.backends.cupy.devices.rates import KernelRates, Rates
from ozaki.backends.cupy.devices.tiles import Tiles
from ozaki.schemes.formats import H100

FAMILY = Family(
    capabilities=("90",),
    rates=Rates(  # measured on an H200 (benchmarks/results): the fused kernels have 1423 to 1592, words 660 to 667
        float64=57.0,
        float32=51.0,
        int8=1300.0,
        memory=3.9,
        kernels=KernelRates(int8=1550.0, int8_cool=1850.0, words=660.0, words_cool=740.0),
        measured=True,
    ),
    core=H100,
    tiles=Tiles(rows=256, columns=192, depth=128, strip=64, few_digits_side=128, stages=4, smallest=256),
    fused=("residues", "digits"),
    proofs="registers",
    words="wgmma",
    stacks="wgmma",
    one_read=True,
    two_halves=True,
    suffix="a",
)
