"""Int8 slices in tiles, as the fused kernels read them, and in which order clusters take the tiles of a product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.devices.tiles import Tiles, round_up
from ozaki.backends.cupy.program.arrays import Array, Place
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.steps import cutting, one_read
from ozaki.backends.cupy.steps.operands import Described, Layout, Slices
from ozaki.caches import cached

LABEL = "fused int8 kernel"
"""What reports call an engine that reads tiles."""

_LONG = 64
"""Blocks of k from which on clusters begin tiles, or passes over k, together, so that what one has copied is in the
cache for all (H200: three digits at 16384 take 35.2 ms instead of 36.0 to 36.3; but 14 residues at 4096, 32 blocks,
1.270 instead of 1.259, since a tile begins 950 clocks later)."""

_GROUP, _PANEL = 2048, 2**24
"""Rows walked together, and the bytes of a slice that they may have: so much stays in the second-level cache while
columns pass by (H200: 14 residues at 8192 have 1493 TOPS with 2048 rows, 1418 with 512, 1381 with 8192; three digits at
16384 1447 with 1024 rows, 1427 with 2048)."""

Operand = tuple[None, int, int]
"""Of a kernel's arguments: an address, the bytes between slices and between matrices of a batch."""


class Together(NamedTuple):
    """How many tiles all clusters begin together (kernels/products/ring_sm90.cuh)."""

    until: int = 0

    @classmethod
    def of(cls, tiles: int, clusters: int) -> Together:
        """All but those that some clusters have and others have not; none if a cluster has but one."""
        return cls(tiles // clusters * clusters if tiles >= 2 * clusters else 0)

    @property
    def struct(self) -> tuple[int | None, int]:
        """The argument of a kernel."""
        return None if self.until else 0, self.until

    def counter(self, b: Builder) -> list[Place]:
        """Where clusters are counted, zeroed, if they are; to be released after the launch."""
        return [b.zeroed("cluster count", 4)] if self.until else []


def together(tiles: int, clusters: int, blocks: int) -> Together:
    """How clusters begin so many whole tiles, or passes over k, of so many blocks."""
    return Together.of(tiles, clusters) if blocks >= _LONG else Together()


def group(tiles: Tiles, rows: int, blocks: int) -> int:
    """Pairs of tiles of so many rows that are walked together."""
    return max(min(_GROUP, _PANEL // (tiles.depth * blocks)) // rows, 1)


@cached(1024)
def layout(
    tiles: Tiles, count: int, side: str, batch: int, rows: int, k: int, tile: int, neighbours: int, in_pairs: bool
) -> Layout:
    """Where `count` slices of an operand lie in tiles of `tile` rows, two blocks of k or more.

    `neighbours`: columns of a tile are permuted for kernels of which a thread holds so many neighbours in a row of C.
    `in_pairs`: columns are padded to an even number of strips, four at least; else to whole tiles.
    """
    _, unit, padded, k = tiles.padded(side, rows, k)
    filled = max(round_up(rows, 2 * tiles.strip), 4 * tiles.strip) if in_pairs and side == "right" else padded
    return in_tiles(count, batch, padded, k, unit, tile, filled, neighbours if side == "right" else 0)


def in_tiles(
    count: int, batch: int, rows: int, k: int, unit: int, tile: int, written: int, neighbours: int = 0, shared: int = 1
) -> Layout:
    """Where slices of so many rows and inner indices, padded, lie in tiles: matrix after matrix, slice after slice.

    `unit` and the others are those of `Layout`.
    """
    each = rows * k
    size = -(-count // shared) * batch * each
    return Layout(rows, k, each, k, batch * each, k, 0, size, unit, tile, neighbours, True, written, shared)


@dataclass(frozen=True)
class Tiled:
    """An engine whose slices of floats lie in tiles."""

    device: Device

    def layout(self, scheme: Any, side: str, batch: int, rows: int, k: int) -> Layout:
        """Where the slices of an operand lie: in tiles."""
        raise NotImplementedError

    def split(self, b: Builder, operand: Described, side: str, scheme: Any) -> Slices:
        """The slices of a whole operand."""
        return cutting.split(b, self.device, operand, side, scheme, self.layout(scheme, side, *operand.x.shape))

    def splits_in_one_read(self, scheme: Any, side: str, operand: Array, whole: bool) -> bool:
        """Whether blocks can hold whole rows, and are faster than two kernels."""
        lay = self.layout(scheme, side, *operand.shape)
        return self.device.family.one_read and one_read.fits(scheme, lay, operand.view, whole)
