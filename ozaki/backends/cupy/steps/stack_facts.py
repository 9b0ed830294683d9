"""Facts of stacks of small matrices: one launch reads both operands and finds what planning asks of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import ceil
from struct import Struct
from typing import Any, NamedTuple

import numpy.typing as npt

from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.devices.tiles import round_up
from ozaki.backends.cupy.program.arrays import Array, View
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel, Macros
from ozaki.backends.cupy.program.program import Evidence
from ozaki.backends.cupy.program.steps import Out
from ozaki.backends.cupy.steps.proof import Wanted
from ozaki.bounds.description import NO_SPAN
from ozaki.bounds.exact import ErrorTerms
from ozaki.bounds.levels import NARROW_BITS
from ozaki.bounds.native import Extent
from ozaki.caches import cached
from ozaki.planning.facts import Ratio
from ozaki.schemes import magnitude_bits, scaling_of

MOST = 256
"""The most rows and columns of a matrix, and inner indices, that the kernel takes: it has rows whole."""

MOST_WANTED = 2
"""The most schemes of a launch, as in kernels/proof/stack_facts.cu."""


class StackFacts(NamedTuple):
    """What a launch finds.

    Attributes
    ----------
    ratios : evidence of a `Ratio` for each comparison
    spans : evidence of the fact `Spans`
    extents : evidence of a pair of `Extent`
    """

    ratios: list[Evidence]
    spans: Evidence
    extents: Evidence


def takes(left: View, right: View) -> bool:
    """Whether the kernel finds facts of two stacks of rows, shapes (batch, rows, k)."""
    (batch_a, m, k), (batch_b, n, _) = left.shape, right.shape
    sizes = batch_a, batch_b, m, n, k
    return left.dtype is right.dtype and min(sizes) > 0 and max(m, n, k) <= MOST


def stack_facts(b: Builder, device: Device, left: Array, right: Array, wanted: Sequence[Wanted]) -> StackFacts:
    """Add the launch that finds facts of both operands, on the builder's stream; at most `MOST_WANTED` comparisons.

    Nothing that it makes takes memory but for the results.
    """
    assert takes(left.view, right.view) and len(wanted) <= MOST_WANTED
    k = left.dtype.parts * left.shape[2]
    each = []
    for scheme, rows, dropped in wanted:
        assert not isinstance(scheme, ErrorTerms)
        each.append((scaling_of(scheme, k), rows, float(dropped)))
    kernel = _kernel(device, left.view, right.view, tuple(each))
    found = b.zeroed("results", _FOUND.size + 8)  # and the number of blocks that are done
    on_host = b.host("facts", (_FOUND.size,), "B")
    b.launch(kernel, left, right, Out(found), Out(on_host))
    arrival = b.arrive(on_host)
    ratios = [b.evidence(arrival, partial(_ratio, number=i)) for i in range(len(wanted))]
    return StackFacts(ratios, b.evidence(arrival, _spans), b.evidence(arrival, _extents))


_FOUND = Struct("2d2QQ2Q2Q")
"""The results, as `Found` in kernels/proof/stack_facts.cu lists them."""

_RAISED = 8192


def _found(raw: npt.NDArray[Any]) -> tuple[Any, ...]:
    found: tuple[Any, ...] = _FOUND.unpack(raw.data)
    return found


def _ratio(raw: npt.NDArray[Any], number: int) -> Ratio:
    """The `Ratio` of one comparison."""
    found = _found(raw)
    return Ratio(found[number], found[2:4], NO_SPAN - found[4])


def _spans(raw: npt.NDArray[Any]) -> tuple[int, int]:
    spans: tuple[int, int] = _found(raw)[2:4]
    return spans


def _extents(raw: npt.NDArray[Any]) -> tuple[Extent | None, Extent | None]:
    """Of both operands, None of one whose rows are all zeros."""
    *_, highest_a, highest_b, lowest_a, lowest_b = _found(raw)
    left, right = (
        Extent(highest - _RAISED, _RAISED - lowest) if highest else None
        for highest, lowest in ((highest_a, lowest_a), (highest_b, lowest_b))
    )
    return left, right


class _Work(NamedTuple):
    """How blocks share a stack out, and what each holds (kernels/proof/stack_facts.cu).

    Attributes
    ----------
    tiles : rows of A, and columns of B, of an item
    matrices : of an item
    staged : rows that are staged at a time
    threads : of a block
    shared_mem : bytes of shared memory of a block
    items : parts of the stack
    """

    tiles: tuple[int, int]
    matrices: int
    staged: int
    threads: int
    shared_mem: int
    items: int

    @classmethod
    def of(cls, device: Device, left: View, right: View) -> _Work:
        """The largest tiles that fit a block, and of which there are enough for every multiprocessor to have some.

        Of small matrices a block has several at a time, as long as there are enough.
        """
        (batch_a, m, _), (batch_b, n, _) = left.shape, right.shape
        batch, enough = max(batch_a, batch_b), 2 * device.multiprocessors
        padded = round_up(m, _STRIP), round_up(n, _STRIP)
        for tile in _TILES:
            tiles = min(padded[0], tile), min(padded[1], tile)
            of_matrix = ceil(m / tiles[0]) * ceil(n / tiles[1])
            last = tile == _TILES[-1]
            if batch * of_matrix < enough and not last:
                continue
            several = min(_TOGETHER // max(tiles), batch // (2 * enough)) if of_matrix == 1 else 1
            ways = [
                way for threads in _THREADS if (way := cls._way(device, left, right, tiles, max(several, 1), threads))
            ]
            if ways or last:
                return max(ways, key=lambda way: way.threads * way.blocks(device))
        raise AssertionError((left, right))

    @classmethod
    def _way(
        cls, device: Device, left: View, right: View, tiles: tuple[int, int], matrices: int, threads: int
    ) -> _Work | None:
        """With blocks of so many threads; None if they do not fit, or most of them would have nothing to describe."""
        (batch_a, m, k), (batch_b, n, _) = left.shape, right.shape
        rows, row_bytes, of_row = matrices * sum(tiles), _row_bytes(left), _bytes_of_row(k)
        at_once = threads // _lanes(k, _UNITS)
        staged = min((device.block_memory - rows * of_row) // (2 * row_bytes), at_once)
        if staged < min(at_once / 2, rows) or (threads > _THREADS[0] and at_once > rows):
            return None
        staged = min(staged, rows)
        shared, of_matrix = rows * of_row + 2 * staged * row_bytes, ceil(m / tiles[0]) * ceil(n / tiles[1])
        return cls(tiles, matrices, staged, threads, shared, ceil(max(batch_a, batch_b) / matrices) * of_matrix)

    def _at_once(self, device: Device) -> int:
        """Blocks that a multiprocessor holds at once."""
        return max(min(device.shared_memory // (self.shared_mem + 1024), _MOST_THREADS // self.threads), 1)

    def blocks(self, device: Device) -> int:
        """Blocks that the device holds at once, but no more than there are items."""
        return min(self.items, device.multiprocessors * self._at_once(device))


_STRIP = 16
"""Rows of a strip, which a warp compares: tiles have whole ones."""

_TILES = (256, 128, 64, 32)
"""Rows of an item in one matrix, at most."""

_TOGETHER = 32
"""Rows of an item in all its matrices, at most, if it has several."""

_THREADS, _MOST_THREADS = (128, 256, 512, 1024), 1024
"""Threads that a block may have, and those of a multiprocessor, of 64 registers each: instructions wait for one another
here, and warps are what fills the time."""

_UNIT, _UNITS = 4, 2
"""Neighbouring elements of a row that a lane has, and how many times it has so many."""


def _row_bytes(x: View) -> int:
    """Bytes of a staged row: whole 16 bytes, and 16 more."""
    return round_up(x.shape[2] * x.dtype.itemsize, 16) + 16


def _lanes(k: int, units: int) -> int:
    """Lanes that share a row of k elements: a power of two, at most 32."""
    return 1 << (ceil(k / (_UNIT * units)) - 1).bit_length()


def _bytes_of_row(k: int) -> int:
    """Bytes of shared memory for a row of an item: its magnitudes, its description and its error terms."""
    return round_up(k, 32) + 16 + 24 + 12


@cached(1024)
def _kernel(device: Device, left: View, right: View, wanted: tuple[tuple[Any, int, float], ...]) -> Kernel:
    work = _Work.of(device, left, right)
    (batch_a, m, k), (batch_b, n, _) = left.shape, right.shape
    parts = left.dtype.parts
    macros: Macros = {"INPUT": left.dtype.ctype_of_part, "REALS": parts, "UNITS": _UNITS, "THREADS": work.threads}
    macros["BLOCKS"] = _MOST_THREADS // work.threads
    operands = []
    for name, view, tile in zip("AB", (left, right), work.tiles, strict=True):
        macros[f"ALONG_{name}"] = view.along_k
        batch_step, row_step, step = view.steps_of_parts
        operands.append(
            (None, batch_step if view.shape[0] > 1 else 0, row_step, step, view.shape[1], tile, work.staged)
        )
    each = []
    for scaling, rows, dropped in wanted:
        of_peak = int(scaling.statistic == "peak")
        each.append((of_peak, scaling.step, scaling.base, scaling.threshold, rows, dropped))
    each += [(0,) * 6] * (MOST_WANTED - len(each))
    across = ceil(n / work.tiles[1])
    tiles = ceil(m / work.tiles[0]) * across
    arguments = (
        *operands, tuple(each), len(wanted), None, None, max(batch_a, batch_b), work.items, across, tiles,
        work.matrices, work.staged, k, _lanes(k, _UNITS), magnitude_bits(parts * k), float(parts * k), NO_SPAN,
    )  # fmt: skip
    grid = (work.blocks(device),)
    return Kernel.of(
        "proof/stack_facts.cu", "stack_facts", macros, grid, (work.threads,), *arguments, shared_mem=work.shared_mem
    )


assert NARROW_BITS == 7, "kernels/proof/stack_facts.cu takes seven bits of each element"
