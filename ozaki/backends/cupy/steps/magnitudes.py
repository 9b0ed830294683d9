"""Magnitudes of both operands; their product is a lower bound of abs(A) abs(B) (docs/bounds.md, B7)."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from struct import Struct
from typing import NamedTuple

from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.devices.tiles import round_up
from ozaki.backends.cupy.program.arrays import Array, Place, View
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel, Macros
from ozaki.backends.cupy.program.steps import Clear, Out
from ozaki.backends.cupy.steps.operands import Described
from ozaki.bounds.levels import EVERY, NARROW_BITS, NARROW_DEPTH, SAMPLE, SAMPLED_EVERY, levels, wide_bits
from ozaki.caches import cached


class MagnitudeLayout(NamedTuple):
    """Where the magnitudes of both operands lie in memory.

    Attributes
    ----------
    rows : stored rows of A and columns of B, with padding
    k : stored inner indices, with padding
    sampled : whether only the inner indices of the sampled level are taken
    tiles : rows of a tile of the left and of the right operand; 0 for rows without tiles
    bits : bits of a magnitude; 7 are stored as int8, more as float64
    """

    rows: tuple[int, int]
    k: int
    sampled: bool = False
    tiles: tuple[int, int] = (0, 0)
    bits: int = NARROW_BITS

    @classmethod
    def of(cls, device: Device, level: str, m: int, n: int, k: int, parts: int = 1) -> MagnitudeLayout:
        """The layout for a level of proof, in tiles where a kernel of the device keeps their products in registers.

        `k` elements of a row, of `parts` real numbers each.
        """
        if level == "wide":
            return cls((m, round_up(n, 4)), round_up(k, 128), bits=wide_bits(parts * k))
        sampled = level == "sampled"
        every = SAMPLED_EVERY[parts]
        taken = (k // every) * SAMPLE + min(k % every, SAMPLE) if sampled else k
        taken = min(taken, NARROW_DEPTH)  # a sum over a part of k is a lower bound, too
        family, tiles = device.family, device.family.tiles
        if family.proofs == "registers" and tiles is not None and min(m, n, taken) >= tiles.smallest:
            sizes = (("left", m), ("right", n))
            (tile_a, _, rows_a, k), (tile_b, _, rows_b, _) = (tiles.padded(*x, taken) for x in sizes)
            return cls((rows_a, rows_b), k, sampled, (tile_a, tile_b))
        return cls((round_up(m, 16), round_up(n, 16)), round_up(taken, 128), sampled)

    @property
    def in_tiles(self) -> bool:
        """Whether the magnitudes lie in tiles; their products then stay in registers."""
        return self.tiles != (0, 0)

    @property
    def char(self) -> str:
        """The dtype of a magnitude, as in `numpy.dtype.char`."""
        return "d" if self.bits > NARROW_BITS else "b"

    @property
    def of_block(self) -> int:
        """The number of real elements that are taken out of every 128 of a row."""
        return SAMPLE if self.sampled else EVERY


RESULT = Struct("dQQQ")
"""The result of a proof, as kernels/arithmetic/worst.cuh and proof.cu write it, zero before.

It holds the worst ratio, the largest top - bottom of a row of A, the largest one of a column of B, and `NO_SPAN` minus
the smallest one of any of these rows that has a nonzero.
"""

_USUAL_RESULTS = 2
"""Results for which there is room beside magnitudes: as many as a proof most often asks for."""

RESULT_EIGHTS = _USUAL_RESULTS * RESULT.size // 8
"""That room in units of eight bytes."""


def results(b: Builder, count: int, clear: bool = True) -> list[Place]:
    """Room for `count` results of proofs; with `clear` it is zeroed now, else a kernel of the caller zeroes it."""
    place = b.buffer("results", count * RESULT.size, counted=False)
    if clear:
        b.add(Clear(b.stream, place, count * RESULT.size))
    return [place.plus(i * RESULT.size) for i in range(count)]


@dataclass(frozen=True)
class Magnitudes:
    """The magnitudes of both operands, and room for the results of proofs with their product.

    Attributes
    ----------
    left, right : magnitudes, [batch][rows][k] or in tiles
    layout : MagnitudeLayout
    results : places of results, which are zero; whoever uses one pops it
    """

    left: Array
    right: Array
    layout: MagnitudeLayout
    results: list[Place]

    @classmethod
    def room(cls, b: Builder, left: Array, right: Array, layout: MagnitudeLayout, clear: bool = True) -> Magnitudes:
        """Memory for the magnitudes of operands, shapes (batch, rows, k); `clear` as for `results`."""
        x, y = (
            b.array(f"{of.buffer.name}.magnitudes", (of.shape[0], rows, layout.k), layout.char)
            for of, rows in zip((left, right), layout.rows, strict=True)
        )
        return cls(x, y, layout, results(b, _USUAL_RESULTS, clear))


def room_for_one_read(b: Builder, device: Device, left: Array, right: Array) -> Magnitudes | None:
    """Memory for the first level's magnitudes, if they are to lie in tiles, else None.

    The kernels that describe and split the operands in one read fill it; that of the left one also zeroes `results`.
    """
    (_, m, k), n = left.shape, right.shape[1]
    layout = MagnitudeLayout.of(device, levels(k)[0], m, n, k)
    return Magnitudes.room(b, left, right, layout, clear=False) if layout.in_tiles else None


def magnitudes(b: Builder, device: Device, left: Described, right: Described, level: str) -> Magnitudes:
    """The magnitudes for a level of proof: those that were taken when the operands were split, or new ones."""
    (_, m, k), n = left.x.shape, right.x.shape[1]
    layout = MagnitudeLayout.of(device, level, m, n, k, left.x.dtype.parts)
    found: Magnitudes | None = left.magnitudes
    if found is not None and found is right.magnitudes and found.layout == layout:
        return found
    taken = Magnitudes.room(b, left.x, right.x, layout)
    scaled = left.inner is not None
    kernel = _taking_kernel(left.x.view, right.x.view, (left.only_largest, right.only_largest), layout, scaled)
    places: list[Array | Out] = []
    for of, to in ((left, taken.left), (right, taken.right)):
        places += [of.x, of.fields, Out(to), *([] if of.inner is None else [of.inner])]
    b.launch(kernel, *places)
    return taken


@cached(1024)
def _taking_kernel(
    left: View, right: View, largest: tuple[bool, bool], layout: MagnitudeLayout, scaled: bool
) -> Kernel:
    macros: Macros = {"MAGNITUDE": "int8_t" if layout.char == "b" else "double", "REALS": left.dtype.parts}
    for side, view, tile, alone in zip("AB", (left, right), layout.tiles, largest, strict=True):
        macros |= {f"INPUT_{side}": view.dtype.ctype_of_part, f"ALONG_K_{side}": view.along_k, f"TILE_{side}": tile}
        macros |= {f"LARGEST_{side}": int(alone)}
    views = list(zip((left, right), layout.rows, strict=True))
    blocks = [view.shape[0] * ceil(rows / 32) * (layout.k // 128) for view, rows in views]
    factors: tuple[None, ...] = ()
    if scaled:
        macros, factors = macros | {"INNER": 1}, (None,)
    operands = [(None, None, None, view.shape[1], rows, *view.steps_of_parts, *factors) for view, rows in views]
    sizes = blocks[0], left.shape[2], layout.k, layout.bits, int(layout.sampled)
    return Kernel.of("proof/proof.cu", "magnitudes", macros, (sum(blocks),), (256,), *operands, *sizes)
