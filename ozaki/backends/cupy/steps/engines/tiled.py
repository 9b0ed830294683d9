"""Int8 slices in tiles: how they lie in memory, and in which order clusters of blocks take the tiles of a product."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.devices.tiles import Tiles
from ozaki.backends.cupy.program.arrays import Place
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import round_up
from ozaki.backends.cupy.steps.operands import Layout
from ozaki.schemes import Digits, Residues, Scheme

_FEW_DIGITS = 3
"""As a thread has accumulators for all diagonals."""

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


def few(scheme: Scheme) -> bool:
    """Whether all diagonals are summed at once."""
    return isinstance(scheme, Digits) and scheme.count <= _FEW_DIGITS


def tile_of(tiles: Tiles, scheme: Scheme) -> tuple[int, int]:
    """Rows and columns of a tile of that scheme's products."""
    return (tiles.few_digits_side, tiles.few_digits_side) if few(scheme) else (tiles.rows, tiles.columns)


def group(tiles: Tiles, rows: int, blocks: int) -> int:
    """Pairs of tiles of so many rows that are walked together."""
    return max(min(_GROUP, _PANEL // (tiles.depth * blocks)) // rows, 1)


def tiles_of(device: Device) -> Tiles:
    """The tiles of a device that has kernels for them."""
    assert device.tiles is not None
    return device.tiles


@lru_cache(maxsize=1024)
def layout(tiles: Tiles, scheme: Scheme, side: str, batch: int, rows: int, k: int) -> Layout:
    """Slices in tiles, the columns of a tile permuted; at least two blocks of k."""
    _, unit, padded, k = tiles.padded(side, rows, k)
    each, of_tile = padded * k, tile_of(tiles, scheme)[side == "right"]
    in_pairs = side == "right" and (isinstance(scheme, Residues) or few(scheme))  # of strips, four at least
    filled = max(round_up(rows, 2 * tiles.strip), 4 * tiles.strip) if in_pairs else padded
    neighbours = 0 if side == "left" else 4 if isinstance(scheme, Digits) else 16
    return Layout(
        padded, k, each, k, batch * each, k, 0, scheme.count * batch * each, unit, of_tile, neighbours, True, filled
    )
