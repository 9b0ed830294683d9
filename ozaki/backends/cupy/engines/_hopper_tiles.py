"""Tiles of int8 slices as the kernels for Hopper read them: how large they are, and how they lie in memory."""

from __future__ import annotations

from functools import lru_cache

from ozaki.backends.cupy._split import Layout
from ozaki.backends.cupy.launching._launch import Together, cluster_blocks, round_up
from ozaki.schemes import Digits, Residues, Scheme

ROWS, COLS, DEPTH = 256, 192, 128
"""A tile, and the block of k that a stage holds of it, as in kernels/products/ring_sm90.cuh."""

STRIP = 64
"""Columns that all tiles are made of, wide ones of three, narrow ones of two of them, as in products/walk_sm90.cuh."""

FROM = 256
"""Least m, n and k for which these tiles are not mostly padding."""

_OF_FEW_DIGITS = 128
"""Rows and columns of a tile, as in kernels/products/digit_gemm_sm90.cu."""

_FEW_DIGITS = 3
"""As a thread has accumulators for all diagonals."""

SHARED = 4 * (ROWS + COLS) * DEPTH + 1024
"""Bytes of dynamic shared memory of a block: the ring's stages, and their alignment."""

_LONG = 64
"""Blocks of k from which on clusters begin tiles, or passes over k, together, so that what one has copied is in the
cache for all (H200: three digits at 16384 take 35.2 ms instead of 36.0 to 36.3; but 14 residues at 4096, 32 blocks,
1.270 instead of 1.259, since a tile begins 950 clocks later)."""

_GROUP, _PANEL = 2048, 2**24
"""Rows walked together, and the bytes of a slice that they may have: so much stays in the second-level cache while
columns pass by (H200: 14 residues at 8192 have 1493 TOPS with 2048 rows, 1418 with 512, 1381 with 8192; three digits at
16384 1447 with 1024 rows, 1427 with 2048)."""

Operand = tuple[None, int, int]
"""Of a launch: the address, which is given later, and the bytes between slices and between matrices of a batch."""


def clusters_of(device: int) -> int:
    """Clusters of two blocks that the device holds at once."""
    return cluster_blocks(device) // 2


def together(tiles: int, clusters: int, blocks: int) -> Together:
    """How clusters begin so many whole tiles, or passes over k, of so many blocks."""
    return Together.of(tiles, clusters) if blocks >= _LONG else Together()


def few(scheme: Scheme) -> bool:
    """Whether all diagonals are summed at once."""
    return isinstance(scheme, Digits) and scheme.count <= _FEW_DIGITS


def tile(scheme: Scheme) -> tuple[int, int]:
    """Rows and columns."""
    return (_OF_FEW_DIGITS, _OF_FEW_DIGITS) if few(scheme) else (ROWS, COLS)


def group(rows: int, blocks: int) -> int:
    """Pairs of tiles of so many rows that are walked together."""
    return max(min(_GROUP, _PANEL // (DEPTH * blocks)) // rows, 1)


def blocks_of(k: int) -> int:
    """Of k, as they are stored: the kernels work on two at least."""
    return max(-(-k // DEPTH), 2)


def tiled(side: str, rows: int, k: int) -> tuple[int, int, int, int]:
    """Rows of a tile and of what panels are made of, and the rows and k that are stored.

    Columns in pairs of tiles, which is what a panel of few of them multiplies (`_hopper_shares.columns`).
    """
    rows_of_tile, unit = (ROWS, ROWS) if side == "left" else (COLS, 2 * COLS)
    return rows_of_tile, unit, round_up(rows, unit), DEPTH * blocks_of(k)


@lru_cache(maxsize=1024)
def layout(scheme: Scheme, side: str, batch: int, rows: int, k: int) -> Layout:
    """Slices in tiles, the columns of a tile permuted; at least two blocks of k."""
    _, unit, padded, k = tiled(side, rows, k)
    each, of_tile = padded * k, tile(scheme)[side == "right"]
    in_pairs = side == "right" and (isinstance(scheme, Residues) or few(scheme))  # of strips, four at least
    filled = max(round_up(rows, 2 * STRIP), 4 * STRIP) if in_pairs else padded
    neighbours = 0 if side == "left" else 4 if isinstance(scheme, Digits) else 16
    return Layout(
        padded, k, each, k, batch * each, k, 0, scheme.count * batch * each, unit, of_tile, neighbours, True, filled
    )
