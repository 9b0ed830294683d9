"""Slice products by the library's own kernels for Hopper: what is left of them in registers, in one launch.

Residues leave bytes, which are recombined; digits the result itself.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from math import ceil
from typing import Any

import cupy as cp
import numpy as np

from ozaki.backends import _halves
from ozaki.backends._halves import Places
from ozaki.backends._launch import Launch, Macros, Together, View, cluster_blocks, output, round_up, struct
from ozaki.backends._recombine import recombine
from ozaki.backends._split import Layout, Slices, accumulator_moduli
from ozaki.backends._tape import cleared
from ozaki.schemes import Digits, Residues, Scheme
from ozaki.schemes.residues import UNSIGNED_DEPTH

label = "fused int8 kernel"

_ROWS, _COLS, _DEPTH = 256, 192, 128
"""A tile, as in kernels/ring_sm90.cuh."""

FROM = 256
"""Least m, n and k for which these tiles are not mostly padding."""

_OF_FEW_DIGITS = 128
"""Rows and columns of a tile, as in kernels/digit_gemm_sm90.cu."""

SHARED = 4 * (_ROWS + _COLS) * _DEPTH + 1024
_GROUP, _PANEL = 2048, 2**24
"""Rows walked together, and the bytes of a slice that they may have: so much stays in the second-level cache while
columns pass by (docs/performance-log.md, step 38)."""


def _few(scheme: Scheme) -> bool:
    """Whether all diagonals are summed at once."""
    return isinstance(scheme, Digits) and scheme.count <= _FEW_DIGITS


def _tile(scheme: Scheme) -> tuple[int, int]:
    """Rows and columns of a tile."""
    return (_OF_FEW_DIGITS, _OF_FEW_DIGITS) if _few(scheme) else (_ROWS, _COLS)


def _group(rows: int, blocks: int) -> int:
    """Pairs of tiles of so many rows."""
    return max(min(_GROUP, _PANEL // (_DEPTH * blocks)) // rows, 1)


_MOST_DIGITS, _FEW_DIGITS = 7, 3
"""As kernels/diagonals.cuh joins them, and as a thread has accumulators for all diagonals."""


_Operand = tuple[None, int, int]


def fits(scheme: Scheme, k: int) -> bool:
    """Whether there is a kernel for these slices: digits need accumulators that never overflow."""
    if isinstance(scheme, Residues):
        return True
    deepest = scheme.depth(2**31 - 2 ** (31 - scheme.bits) - 4)
    return scheme.count <= _MOST_DIGITS and _DEPTH * _blocks(k) <= deepest


def _blocks(k: int) -> int:
    """Of k, as they are stored: the kernels work on two at least."""
    return max(-(-k // _DEPTH), 2)


def tiled(side: str, rows: int, k: int) -> tuple[int, int, int, int]:
    """Rows of a tile and of what panels are made of, and the rows and k that are stored.

    Columns in pairs of tiles, which is what a panel of few of them multiplies (`_columns`).
    """
    tile, unit = (_ROWS, _ROWS) if side == "left" else (_COLS, 2 * _COLS)
    return tile, unit, round_up(rows, unit), _DEPTH * _blocks(k)


@lru_cache(maxsize=1024)
def layout(scheme: Scheme, side: str, batch: int, rows: int, k: int) -> Layout:
    """Slices in tiles, the columns of a tile permuted; at least two blocks of k."""
    _, unit, padded, k = tiled(side, rows, k)
    each, tile = padded * k, _tile(scheme)[side == "right"]
    in_pairs = side == "right" and (isinstance(scheme, Residues) or _few(scheme))  # of strips, four at least
    filled = max(round_up(rows, 2 * _STRIP), 4 * _STRIP) if in_pairs else padded
    neighbours = 0 if side == "left" else 4 if isinstance(scheme, Digits) else 16
    return Layout(
        padded, k, each, k, batch * each, k, 0, scheme.count * batch * each, unit, tile, neighbours, True, filled
    )


def workspace(scheme: Scheme, batch: int, rows: int, cols: int, k: int) -> int:
    """Bytes held beside the slices."""
    device = cp.cuda.runtime.getDevice()
    if isinstance(scheme, Digits):
        return sum(_beside(scheme, cluster_blocks(device), True))
    parts = _parts(device, scheme.count, batch, rows, cols, _blocks(k))
    return parts * scheme.count * batch * rows * round_up(cols, 2 * _COLS)


def multiply(scheme: Scheme, a: Slices, b: Slices, out: Any) -> int:
    """out = a b^T, shape (batch, m, n), its columns neighbours in memory; returns the bytes of workspace."""
    return _residues(scheme, a, b, out) if isinstance(scheme, Residues) else _digits(scheme, a, b, out)


def _residues(scheme: Residues, a: Slices, b: Slices, out: Any) -> int:
    planes = residue_products(scheme, a, b, a.operand, b.operand, out.shape)
    recombine(scheme, planes[:, : out.shape[0]], a.mu, b.mu, out)
    return int(planes.nbytes)


def residue_products(
    scheme: Residues, a: Slices, b: Slices, at_a: _Operand, at_b: _Operand, shape: tuple[int, int, int]
) -> Any:
    """The bytes y_t of products of that shape (batch, m, n): the first of (moduli, batch or more, m, columns or more).

    Columns in pairs of tiles.
    """
    batch, m, n = shape
    device, blocks = cp.cuda.runtime.getDevice(), a.layout.k // _DEPTH
    parts = _parts(device, scheme.count, batch, m, n, blocks)
    planes = cp.empty((scheme.count, parts * batch, m, round_up(n, 2 * _COLS)), np.uint8)

    def launch(first: int, last: int, parts: int) -> None:
        """Products of blocks first .. last of k, or, in as many entries of the planes, of parts of them."""
        each = (last - first) // parts
        large = scheme.count * parts * batch * m * planes.shape[3] * each * _DEPTH >= _LARGE
        places = _halves.places(device) if large else Places()
        if parts > 1:
            operands = (None, at_a[1], each * _ROWS * _DEPTH), (None, at_b[1], each * _COLS * _DEPTH)
        else:
            operands = at_a, at_b
        together, run = _residue_gemm(
            device, scheme, operands, (blocks, each, first > 0), (parts * batch, m, n), planes.shape[1], places
        )
        slices = a.planes.data + first * _ROWS * _DEPTH, b.planes.data + first * _COLS * _DEPTH
        run(*slices, planes.data, *together.arrays(), *places.arrays())

    if parts > 1:
        each, rest = _shares_of_parts(blocks, parts)
        launch(0, parts * each, parts)
        if rest > 0:
            launch(parts * each, blocks, 1)
        _summing(device, scheme, parts, m * planes.shape[3])(planes.data)
    else:
        # The kernel works on two blocks of k at least, so what is left over for the last launch is never less.
        pieces = -(-blocks // _DEEPEST)
        for first, last in pairwise([blocks * i // pieces for i in range(pieces + 1)]):
            launch(first, last, 1)
    return planes


_DEEPEST = UNSIGNED_DEPTH // _DEPTH
"""Blocks of k that an accumulator takes."""


@lru_cache(maxsize=1024)
def _parts(device: int, matrices: int, batch: int, m: int, n: int, blocks: int) -> int:
    """Parts of k that are multiplied beside one another, where there are fewer tiles than clusters, or few more.

    In the place of a batch, so there is none for a batch of products.
    """
    if batch > 1:
        return 1
    clusters, rows = cluster_blocks(device) // 2, matrices * -(-m // _ROWS)

    def added(parts: int) -> float:
        return parts * matrices * m * n * _SUMMED + _SUMMING

    def time(parts: int) -> float:
        each, rest = _shares_of_parts(blocks, parts)
        end = _columns(n, parts * rows, clusters, each)[1] * each
        if rest > 0:
            end += _columns(n, rows, clusters, rest)[1] * rest
        return end + added(parts)

    whole = _columns(n, rows, clusters, blocks)[1] * blocks
    idle = whole - rows * n / 2 * blocks / clusters  # the most that parts can save
    least = max(-(-blocks // _DEEPEST), 2)
    choices = [x for x in range(least, clusters + 1) if blocks >= _LEAST_OF_PART * x and added(x) < idle]
    times = {1: whole} | {parts: time(parts) for parts in choices}
    return min(times, key=lambda parts: times[parts])


def _shares_of_parts(blocks: int, parts: int) -> tuple[int, int]:
    """Blocks of each part, and what is left for the first one: none, or two at least."""
    each, rest = divmod(blocks, parts)
    return (each - 1, rest + parts) if rest == 1 else (each, rest)


_LEAST_OF_PART = 8
"""Blocks."""

_SUMMED, _SUMMING = 9e-5, 900.0
"""What an entry of a part costs to write and add, and what that takes at least, in the time that a cluster takes for a
block of k of one column of a wide tile, 6 nanoseconds."""


@lru_cache(maxsize=1024)
def _summing(device: int, scheme: Residues, parts: int, entries: int) -> Launch:
    grid, moduli = (ceil(entries / 4096), scheme.count), accumulator_moduli(scheme, unsigned=True)
    return Launch("sum_parts.cu", "sum_parts", {}, grid, (256,), None, entries, parts, moduli)


@lru_cache(maxsize=1024)
def _residue_gemm(
    device: int,
    scheme: Residues,
    operands: tuple[_Operand, _Operand],
    depth: tuple[int, int, bool],
    shape: tuple[int, int, int],
    entries: int,
    places: Places,
) -> tuple[Together, Launch]:
    """Of so many of the blocks that operands have, added to what is there or not, where planes have so many entries."""
    (blocks, taken, add), (batch, m, n) = depth, shape
    cols, (grid, wide, *walk) = round_up(n, 2 * _COLS), tiles_of(device, scheme.count, batch, (m,), n, blocks)
    together = Together.of(wide, grid // 2) if taken >= _LONG else Together()
    macros: Macros = {"ACCUMULATE": int(add)}
    launch = Launch(
        "residue_gemm_sm90.cu", "residue_gemm", macros, (grid,), (384,), *operands, None, entries * m * cols, m * cols,
        cols, m, taken, blocks, together.struct, places.struct, *walk,
        accumulator_moduli(scheme, unsigned=True), shared_mem=SHARED,
    )  # fmt: skip
    return together, launch


_LARGE = 420_000_000_000
"""Products of bytes from which on places are by halves (float64 from 3200 on, float32 from 4000): what counts places is
cleared between two kernels that overlap else, which takes 5 microseconds (docs/performance-log.md, step 65)."""

_LONG = 64
"""Blocks of k from which on clusters begin tiles, or passes over k, together (docs/performance-log.md, step 62)."""


def tiles_of(
    device: int, matrices: int, batch: int, rows: tuple[int, ...], n: int, blocks: int
) -> tuple[int, int, *tuple[Any, ...]]:
    """The grid, wide pairs, and the structs Work and, for so many rows each, Tiles of kernels/walk_sm90.cuh.

    Of so many products of each batch entry; `blocks`: of k.
    """
    clusters = cluster_blocks(device) // 2
    tiles = [-(-m // _ROWS) for m in rows]
    columns, _, light = _columns(n, matrices * batch * sum(tiles), clusters, blocks)
    wide, narrow = (matrices * batch * sum(tiles) * each for each in columns)
    work = struct([wide, narrow, light, columns[1]])
    return 2 * clusters, wide, work, *(struct([each, columns[0], _group(_ROWS, blocks), batch]) for each in tiles)


_STRIP = 64
"""Columns that all tiles are made of, wide ones of three, narrow ones of two of them, as in kernels/walk_sm90.cuh."""


@lru_cache(maxsize=1024)
def _columns(n: int, rows: int, clusters: int, blocks: int) -> tuple[tuple[int, int], float, int]:
    """Wide and narrow pairs of column tiles, for so many rows of them, that end soonest; and what _narrow_shares tells.

    They have all strips, one more if they are odd, and four at least.
    """
    strips = max(-(-n // (2 * _STRIP)), 2)  # of one tile of each pair
    choices = [((strips - 2 * narrow) // 3, narrow) for narrow in range(-strips % 3, strips // 2 + 1, 3)]
    shared = [(pairs, *_narrow_shares(rows * pairs[0], rows * pairs[1], clusters, blocks)) for pairs in choices]
    return min(shared, key=lambda choice: choice[1])


def _narrow_shares(wide: int, narrow: int, clusters: int, blocks: int) -> tuple[float, int]:
    """When the last cluster ends, and how many narrow pairs go to clusters that have one wide pair less than others.

    In the time of a column of a wide tile.
    """
    each, heavy = divmod(wide, clusters)
    of_wide, of_narrow = (time + _END / blocks for time in (_COLS, _NARROW_TIME))
    if heavy == 0:
        return each * of_wide + -(-narrow // clusters) * of_narrow, narrow
    light = clusters - heavy

    def end(of_light: int) -> float:
        rest = narrow - of_light
        return each * of_wide + max(-(-of_light // light) * of_narrow, of_wide + -(-rest // heavy) * of_narrow)

    fair = int((heavy * of_wide + narrow * of_narrow) / (clusters * of_narrow))  # all end together then
    return min((end(most), most) for most in (min(narrow, light * x) for x in (fair, fair + 1)))


_NARROW_TIME, _END = 150, 192
"""What a narrow tile takes, and the end of a tile (H200: docs/performance-log.md, step 80)."""


def occupied(scheme: Scheme, batch: int, m: int, k: int, n: int) -> float:
    """Entries of each slice product that would keep all clusters busy for as long as a product does."""
    device, blocks = cp.cuda.runtime.getDevice(), _blocks(k)
    clusters = cluster_blocks(device) // 2
    if isinstance(scheme, Residues):
        parts = _parts(device, scheme.count, batch, m, n, blocks)
        _, end, _ = _columns(n, scheme.count * batch * parts * -(-m // _ROWS), clusters, blocks // parts)
        return clusters * end * 2 * _ROWS / (scheme.count * parts)
    rows, cols = _tile(scheme)
    tiles = batch * -(-m // (2 * rows)) * -(-n // cols)
    _, whole, sharers = _clusters_of(scheme, tiles, blocks, clusters)
    last = (tiles - whole) / sharers if sharers else 0
    return clusters * (-(-whole // clusters) + last) * 2 * rows * cols


def _clusters_of(scheme: Digits, tiles: int, blocks: int, clusters: int) -> tuple[int, int, int]:
    """Clusters, how many tiles they multiply as a whole, and how many clusters split the rest along k."""
    return _few_shares(tiles, blocks, clusters) if _few(scheme) else _shares(tiles, blocks, scheme, clusters)


def _digits(scheme: Digits, a: Slices, b: Slices, out: Any) -> int:
    views = a.operand, b.operand, a.layout.k // _DEPTH, View.of(out), a.mu_step, b.mu_step
    beside, together, launch = _digit_gemm(cp.cuda.runtime.getDevice(), scheme, *views)
    memory = [cp.cuda.alloc(size) if size else None for size in beside]
    flags = cleared(_FLAGS) if beside[-1] else None
    slices, exponents = (a.planes.data, b.planes.data), (a.mu.data, b.mu.data)
    spare = out.data  # for what is not used
    launch(*slices, out.data, *exponents, *(x or spare for x in (*memory, flags)), *together.arrays())
    if out.dtype == np.float64:
        far = _digit_far(cp.cuda.runtime.getDevice(), scheme, *views)
        far(a.planes.data, b.planes.data, out.data, a.mu.data, b.mu.data)
    return sum(beside)


@lru_cache(maxsize=1024)
def _digit_far(
    device: int, scheme: Digits, a: _Operand, b: _Operand, blocks: int, out: View, mu_step: int, nu_step: int
) -> Launch:
    batch, m, n = out.shape
    macros: Macros = {"SLICES": scheme.count, "DIGIT_BITS": scheme.bits}
    grid = (batch * ceil(m / _FAR_REGION) * ceil(n / _FAR_REGION),)
    return Launch(
        "digit_far_sm90.cu", "digit_far", macros, grid, (256,), a, b, None, None, None, *out.steps[:2],
        mu_step, nu_step, m, n, blocks,
    )  # fmt: skip


_FAR_REGION = 128
"""Rows and columns that a block looks after, as in kernels/digit_far_sm90.cu."""


@lru_cache(maxsize=1024)
def _digit_gemm(
    device: int, scheme: Digits, a: _Operand, b: _Operand, blocks: int, out: View, mu_step: int, nu_step: int
) -> tuple[tuple[int, ...], Together, Launch]:
    """The bytes that it needs beside, the last of what is handed over, what clusters begin together, and the launch."""
    batch, m, n = out.shape
    tile_rows, tile_cols = _tile(scheme)
    rows, columns = -(-m // (2 * tile_rows)), -(-n // tile_cols)
    work = batch * rows * columns
    most = cluster_blocks(device) // 2
    clusters, whole, sharers = _clusters_of(scheme, work, blocks, most)
    together = Together.of(whole, clusters) if blocks >= _LONG else Together()
    macros: Macros = {"OUTPUT": out.ctype, "SLICES": scheme.count, "DIGIT_BITS": scheme.bits}
    tiles = struct([rows, columns, _group(2 * tile_rows, blocks), batch])
    beside, name = _beside(scheme, 2 * clusters, whole < work), "digit" if _few(scheme) else "diagonal"
    launch = Launch(
        f"{name}_gemm_sm90.cu", f"{name}_gemm", macros, (2 * clusters,), (384,), a, b, output(out, mu_step, nu_step),
        *(None for _ in beside), None, blocks, struct([whole, work - whole, sharers]), tiles, together.struct,
        shared_mem=SHARED,
    )  # fmt: skip
    return beside, together, launch


def _beside(scheme: Digits, grid: int, split: bool) -> tuple[int, ...]:
    """Bytes of digits that blocks keep aside, where they do, and of what they hand over."""
    tile_rows, tile_cols = _tile(scheme)
    entries = grid * tile_rows * tile_cols
    handed_over = entries * (scheme.count + 3) if split else 0
    return (handed_over,) if _few(scheme) else (entries * (scheme.count - 1), handed_over)


def _shares(work: int, blocks: int, scheme: Digits, clusters: int) -> tuple[int, int, int]:
    """A piece has two blocks of k at least, a cluster four.

    To hand over takes as long as about 6 blocks for each diagonal (H200: seven digits gain 15 per cent at 2048).
    """
    rest = work % clusters
    if work < clusters:
        clusters = max(min(clusters, rest * blocks // 4), work)
    saved = scheme.products * blocks * (clusters - rest) / clusters
    worth = rest > 0 and blocks >= 4 and rest * blocks >= 4 * clusters and saved > _HANDED_OVER * scheme.count
    return clusters, work - rest if worth else work, clusters if worth else 0


_HANDED_OVER = 6


def _few_shares(work: int, blocks: int, clusters: int) -> tuple[int, int, int]:
    """The same for few digits, where a piece of a tile is handed over in the time of about a block of k.

    (H200, three digits: 3000 gains 5 per cent, 6144 and 8192 2 and 3, 4096, by 66 pieces of 50 tiles, nothing.)
    """
    rest = work % clusters
    sharers = min(clusters, rest * int(blocks**0.5), rest * blocks // 4)
    if sharers <= rest or blocks * (1 - rest / sharers) < 3 * sharers / rest + 4:
        return min(clusters, work), work, 0
    return (sharers if work < clusters else clusters), work - rest, sharers


_FLAGS = 4 * 2 * 1024
"""Bytes of flags, two for each block of the largest grid."""
