"""Operands described and split in one read: blocks that hold whole rows in shared memory."""

from __future__ import annotations

from functools import lru_cache
from math import ceil
from typing import NamedTuple

from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.program.arrays import Array, View
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel, Macros, round_up
from ozaki.backends.cupy.program.steps import Out
from ozaki.backends.cupy.steps.cutting import cutting_constants, cutting_macros
from ozaki.backends.cupy.steps.describing import fields_of
from ozaki.backends.cupy.steps.magnitudes import RESULT_LIMBS, MagnitudeLayout, Magnitudes
from ozaki.backends.cupy.steps.operands import Described, Layout, Slices
from ozaki.backends.cupy.steps.words import tile_macros
from ozaki.bounds.description import FIELDS
from ozaki.schemes import Scheme, Words, magnitude_bits, scaling_of
from ozaki.schemes.constants import image_words

_BLOCK = 128
"""Elements of a row that are cut together."""

_SHORT, _SHORT_OF_MANY, _MANY = 512, 1024, 8192
"""Longest rows of which a warp takes whole ones for itself: always, and of so many (H200: 16384 rows of 1024 float64
take 115 instead of 128 microseconds, 1024 of them 16 instead of 10)."""

_MOST_IMAGE_WORDS = 4
"""Longer images do not fit registers beside the rest (tests/test_compile.py)."""

_EXCHANGED = 1152
"""Bytes before the elements, as in kernels/conversion/describe_split_sm90.cu."""

_FEW = 55 * 1024
"""Bytes of shared memory of which a multiprocessor has no room for four blocks."""

_LONGEST_OF_WORDS = 16384
_LONGEST_OF_SUMS = 8192
"""Longest rows: of words, and of slices where the scaling needs sums."""

_LONGEST, _LONGEST_WIDE = 65536, 49152
"""Bytes of the longest rows of slices, and of such that are columns of float64: beyond, two kernels are faster (H200:
contiguous rows of 16384 float32 take 580 instead of 761 microseconds, columns 762 instead of 870)."""


def fits(scheme: Scheme | Words, layout: Layout, view: View, sums: bool) -> bool:
    """Whether blocks can hold whole rows, and are faster than two kernels; `sums`: the rows' sums are needed."""
    if layout.tile == 0:
        return False
    if isinstance(scheme, Words):
        return layout.k <= _LONGEST_OF_WORDS
    longest = (_LONGEST if view.along_k or view.itemsize == 4 else _LONGEST_WIDE) // view.itemsize
    longest = min(longest, _LONGEST_OF_SUMS) if sums else longest
    return layout.k <= longest and image_words(scheme) <= _MOST_IMAGE_WORDS


def describe_and_split(
    b: Builder, device: Device, x: Array, side: str, scheme: Scheme, layout: Layout, sums: bool,
    magnitudes: Magnitudes | None = None, overlaps: bool = False,
) -> Slices:  # fmt: skip
    """The slices of x, shape (batch, rows, k), with its description or, without `sums`, its largest elements.

    With a description, the operand's magnitudes go where a proof looks for them, if there is room for them; the kernel
    of the left one clears the results there. `overlaps`: it begins right after another one of this kind, and does not
    wait for that.
    """
    described = Described(x, fields_of(b, x), not sums, magnitudes if sums else None)
    slices = Slices.room(b, described, layout)
    wanted = magnitudes and magnitudes.layout
    kernel = _launch(device, x.view, side, scheme, layout, sums, wanted, overlaps)
    room = []
    if magnitudes is not None:
        room = [magnitudes.left.at, magnitudes.results[0]] if side == "left" else [magnitudes.right.at]
    written = described.fields.at, slices.mu.at, slices.planes.at, *room
    b.launch(kernel, x, *map(Out, written), overlaps=overlaps)
    return slices


def find_and_split(
    b: Builder, device: Device, x: Array, words: Words, layout: Layout, lost: Array | None = None,
    overlaps: bool = False,
) -> Slices:  # fmt: skip
    """The words of x, shape (batch, rows, k), with its largest elements; `overlaps` as above.

    `lost`: where 1 is written if an element is so small that words lose part of it.
    """
    described = Described(x, fields_of(b, x), largest=True)
    slices = Slices.room(b, described, layout)
    kernel = _launch_of_words(device, x.view, words, layout, lost is not None, overlaps)
    written = described.fields.at, slices.mu.at, slices.planes.at, *((lost.at,) if lost else ())
    b.launch(kernel, x, *map(Out, written), overlaps=overlaps)
    return slices


class _Held(NamedTuple):
    """What blocks of a cluster hold: `share` elements each, of groups of `rows`, of which `sharing` warps take one."""

    cluster: int
    share: int
    rows: int
    sharing: int = 4

    @property
    def macros(self) -> Macros:
        """Those of kernels/conversion/describe_split_sm90.cu."""
        return {"CLUSTER": self.cluster, "HELD": self.rows, "SHARING": self.sharing}

    @property
    def all_rows(self) -> int:
        """Rows of all groups."""
        return 4 // self.sharing * self.rows


def _held(k: int, view: View, sums: bool) -> _Held:
    """For rows of length k, padded."""
    row, batch, rows = k * view.itemsize, *view.shape[:2]
    if k <= (_SHORT_OF_MANY if batch * rows >= _MANY else _SHORT):
        return _Held(1, k, 2 if view.along_k else 16 // view.itemsize, 1)
    if view.along_k:
        return _Held(1, k, 2 if row <= 16384 else 1)
    # By eight, columns of float32 are sectors of memory as a whole (H200: 49 instead of 56 microseconds for 4096, 181
    # instead of 192 for 8192).
    light = view.itemsize == 4 and not sums and k > 2048  # little to note of each
    cluster = 4 if light and k > 4096 else 2
    columns = 8 if light and k <= 8192 else 2 if view.itemsize == 8 and row > 32768 else 4
    return _Held(cluster, round_up(ceil(k / cluster), _BLOCK), columns)


@lru_cache(maxsize=1024)
def _launch(
    device: Device,
    view: View,
    side: str,
    scheme: Scheme,
    layout: Layout,
    sums: bool,
    wanted: MagnitudeLayout | None,
    overlaps: bool,
) -> Kernel:
    batch, rows, k = view.shape
    scaling = scaling_of(scheme, k)
    assert sums or (scaling.statistic == "peak" and wanted is None)
    magnitudes: tuple[int | None, ...] = 0, 0, 0, 0, 0, 0
    if wanted is not None:
        cleared = (None, RESULT_LIMBS) if side == "left" else (0, 0)
        of_side = wanted.rows[side == "right"] * wanted.k
        magnitudes = None, of_side, wanted.k, wanted.of_block | wanted.bits << 32, *cleared
    held = _held(layout.k, view, sums)
    shared_mem = _EXCHANGED + held.all_rows * held.share * view.itemsize
    macros = cutting_macros(view, side, scheme, layout) | held.macros
    macros |= {"SUMS": int(sums), "FEW": int(shared_mem > _FEW)}
    grid = (held.cluster * batch * (layout.filled // held.all_rows),)
    return Kernel.of(
        "conversion/describe_split_sm90.cu", "describe_split", macros, grid, (128,), None, *view.steps, rows, k,
        layout.filled,
        layout.k, None, batch * rows, magnitude_bits(k), FIELDS.index(scaling.statistic), scaling.step, scaling.base,
        scaling.threshold, None, None, layout.batch, layout.slice, held.share, int(overlaps),
        magnitudes, *cutting_constants(scheme, side, layout), shared_mem=shared_mem,
    )  # fmt: skip


class _Stream(NamedTuple):
    """How clusters take an operand: groups of `rows` rows, of which each of a block's warps has two pieces of 4 KB."""

    cluster: int
    warps: int
    rows: int

    @property
    def macros(self) -> Macros:
        """Those of kernels/words/tops_split_words_sm90.cu."""
        return {"CLUSTER": self.cluster, "WARPS": self.warps, "HELD": self.rows}

    @property
    def shared_mem(self) -> int:
        """Three pieces for each warp, and what a cluster has found in three groups."""
        return 3 * 4096 * self.warps + 3 * 8 * self.rows


def _stream(k: int, view: View) -> _Stream:
    """For rows of length k, padded."""
    rows = 16 if view.along_k or k > _LONGEST_OF_WORDS // 2 else 32
    of_warp = 2048 // rows
    cluster = next((cluster for cluster in (1, 2, 4) if k <= 8 * of_warp * cluster), 8)
    return _Stream(cluster, ceil(k / (cluster * of_warp)), rows)


@lru_cache(maxsize=1024)
def _launch_of_words(device: Device, view: View, words: Words, layout: Layout, flagged: bool, overlaps: bool) -> Kernel:
    batch, rows, k = view.shape
    stream = _stream(layout.k, view)
    macros = tile_macros(view, words, layout) | stream.macros
    arguments = (
        None, *view.steps, batch, rows, k, layout.rows, layout.k, None, batch * rows, words.ceiling, words.floor, None,
        None, layout.batch, layout.slice, None if flagged else 0, int(overlaps),
    )  # fmt: skip
    groups = batch * ceil(layout.rows / stream.rows)

    def launching(clusters: int) -> Kernel:
        return Kernel.of(
            "words/tops_split_words_sm90.cu", "tops_split_words", macros, (stream.cluster * clusters,),
            (32 * stream.warps,), *arguments, shared_mem=stream.shared_mem,
        )  # fmt: skip

    return launching(min(groups, _clusters_at_once(device, launching(1), stream.cluster)))


def _clusters_at_once(device: Device, kernel: Kernel, cluster: int) -> int:
    """Clusters of so many blocks that the device runs at once; of a device that is not there, as if two blocks fit."""
    if device.number is None:
        return max(1, 2 * device.multiprocessors // cluster)
    from ozaki.backends.cupy.program.launches import clusters_at_once

    return max(1, clusters_at_once(kernel, cluster))  # if none, the launch says so
