"""Which cluster of Hopper multiplies which tiles, and which part of k: numbers alone, of no device."""

from __future__ import annotations

from ozaki.backends.cupy.devices.tiles import Tiles
from ozaki.caches import cached
from ozaki.schemes import Digits
from ozaki.schemes.residues import UNSIGNED_DEPTH

_NARROW_TIME, _END = 150, 192
"""Times of a block of k of a narrow tile, and of the end of any tile, both in the unit in which a block of k of a wide
tile takes 192: one for each of its columns. With these numbers `columns` multiplies 7 residues at 1024 in 58
microseconds; with the fewest narrow tiles it would be 68 (H200)."""


def deepest(tiles: Tiles) -> int:
    """Blocks of k that an accumulator of residues takes."""
    return UNSIGNED_DEPTH // tiles.depth


_LEAST_OF_PART = 8
"""The fewest blocks of k of a part."""

_SUMMED, _SUMMING = 9e-5, 900.0
"""Time to write an entry of one part and add it to the others, and time to begin adding. The unit is the time in which
a cluster multiplies a block of k of one column of a wide tile, 6 nanoseconds."""

_HANDED_OVER = 6
"""Blocks of k for each diagonal, to hand over a piece (H200: seven digits gain 15 per cent at 2048)."""


@cached(1024)
def columns(tiles: Tiles, n: int, rows: int, clusters: int, blocks: int) -> tuple[tuple[int, int], float, int]:
    """The numbers of wide and narrow pairs of column tiles with the earliest finish; and what `narrow_shares` returns.

    A wide pair has six strips of columns, a narrow one four. Together they have as many strips as cover n columns, one
    more if that is odd, at least four. `rows`: how many rows of tiles there are, in all matrices.
    """
    strips = max(-(-n // (2 * tiles.strip)), 2)  # of one tile of each pair: half of those of all
    choices = [((strips - 2 * narrow) // 3, narrow) for narrow in range(-strips % 3, strips // 2 + 1, 3)]
    shared = [(pairs, *narrow_shares(tiles, rows * pairs[0], rows * pairs[1], clusters, blocks)) for pairs in choices]
    return min(shared, key=lambda choice: choice[1])


def narrow_shares(tiles: Tiles, wide: int, narrow: int, clusters: int, blocks: int) -> tuple[float, int]:
    """When the last cluster ends, and how many narrow pairs go to clusters that have one wide pair less than others.

    Unit of the first value: the time for one column of a wide tile.
    """
    each, heavy = divmod(wide, clusters)
    of_wide, of_narrow = (time + _END / blocks for time in (tiles.columns, _NARROW_TIME))
    if heavy == 0:
        return each * of_wide + -(-narrow // clusters) * of_narrow, narrow
    light = clusters - heavy

    def end(of_light: int) -> float:
        rest = narrow - of_light
        return each * of_wide + max(-(-of_light // light) * of_narrow, of_wide + -(-rest // heavy) * of_narrow)

    fair = int((heavy * of_wide + narrow * of_narrow) / (clusters * of_narrow))  # all end together then
    return min((end(most), most) for most in (min(narrow, light * x) for x in (fair, fair + 1)))


@cached(1024)
def parts_of_k(tiles: Tiles, clusters: int, matrices: int, batch: int, m: int, n: int, blocks: int) -> int:
    """The number of parts of k that are multiplied at the same time, and then added; 1 where that is no faster.

    It is faster where tiles are fewer than clusters, or few more. Kernels take the parts for matrices of a batch, so a
    batch of products is multiplied with the whole k.
    """
    if batch > 1:
        return 1
    rows = matrices * -(-m // tiles.rows)

    def added(parts: int) -> float:
        return parts * matrices * m * n * _SUMMED + _SUMMING

    def time(parts: int) -> float:
        each, rest = of_parts(blocks, parts)
        end = columns(tiles, n, parts * rows, clusters, each)[1] * each
        if rest > 0:
            end += columns(tiles, n, rows, clusters, rest)[1] * rest
        return end + added(parts)

    whole = columns(tiles, n, rows, clusters, blocks)[1] * blocks
    idle = whole - rows * n / 2 * blocks / clusters  # the most that parts can save
    least = max(-(-blocks // deepest(tiles)), 2)
    choices = [x for x in range(least, clusters + 1) if blocks >= _LEAST_OF_PART * x and added(x) < idle]
    times = {1: whole} | {parts: time(parts) for parts in choices}
    return min(times, key=lambda parts: times[parts])


def of_parts(blocks: int, parts: int) -> tuple[int, int]:
    """Blocks of each part, and what is left for the first one: none, or two at least."""
    each, rest = divmod(blocks, parts)
    return (each - 1, rest + parts) if rest == 1 else (each, rest)


def digit_shares(work: int, blocks: int, scheme: Digits, clusters: int) -> tuple[int, int, int]:
    """Clusters, how many tiles they multiply as a whole, and how many clusters split the rest along k.

    A piece has two blocks of k at least, a cluster four.
    """
    rest = work % clusters
    if work < clusters:
        clusters = max(min(clusters, rest * blocks // 4), work)
    saved = scheme.products * blocks * (clusters - rest) / clusters
    worth = rest > 0 and blocks >= 4 and rest * blocks >= 4 * clusters and saved > _HANDED_OVER * scheme.count
    return clusters, work - rest if worth else work, clusters if worth else 0


def few_digit_shares(work: int, blocks: int, clusters: int) -> tuple[int, int, int]:
    """The same for few digits, where a piece of a tile is handed over in the time of about a block of k.

    (H200, three digits: 3000 gains 5 per cent, 6144 and 8192 2 and 3, 4096, by 66 pieces of 50 tiles, nothing.)
    """
    rest = work % clusters
    sharers = min(clusters, rest * int(blocks**0.5), rest * blocks // 4)
    if sharers <= rest or blocks * (1 - rest / sharers) < 3 * sharers / rest + 4:
        return min(clusters, work), work, 0
    return (sharers if work < clusters else clusters), work - rest, sharers
