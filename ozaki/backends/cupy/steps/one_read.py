"""Kernels that describe and split an operand in one read: their blocks hold whole rows in shared memory."""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.devices.rates import LONGEST_OF_SUMS, LONGEST_OF_WORDS
from ozaki.backends.cupy.devices.tiles import round_up
from ozaki.backends.cupy.program.arrays import Array, Place, View
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel, Macros
from ozaki.backends.cupy.program.steps import Out
from ozaki.backends.cupy.steps.cutting import cutting_constants, cutting_macros
from ozaki.backends.cupy.steps.describing import fields_of
from ozaki.backends.cupy.steps.magnitudes import RESULT_EIGHTS, MagnitudeLayout, Magnitudes
from ozaki.backends.cupy.steps.operands import Described, Layout, Slices
from ozaki.backends.cupy.steps.words import tile_macros
from ozaki.bounds.description import FIELDS
from ozaki.caches import cached
from ozaki.schemes import Scaling, Words
from ozaki.schemes.constants import KernelScheme, image_limbs

_BLOCK = 128
"""Elements of a row that a warp cuts together."""

_SHORT, _SHORT_OF_MANY, _MANY = 512, 1024, 8192
"""A warp takes whole rows for itself where they have at most `_SHORT` elements, or at most `_SHORT_OF_MANY` and there
are `_MANY` rows or more (H200: 16384 rows of 1024 float64 then take 115 microseconds instead of 128, but 1024 of them
would take 16 instead of 10)."""

_MOST_IMAGE_LIMBS = 4
"""The most 32-bit limbs of an image: more do not fit into a thread's registers (tests/test_compile.py)."""

_EXCHANGED = 1152
"""Bytes of shared memory before the elements: EXCHANGED of kernels/conversion/describe_split_sm90.cu."""

_FOUR_BLOCKS = 55 * 1024
"""A multiprocessor has room for four blocks if each has at most this many bytes of shared memory."""

_MOST_BYTES, _MOST_BYTES_OF_COLUMN = 65536, 49152
"""The most bytes of a row that is cut into slices in one read; `_MOST_BYTES_OF_COLUMN` for float64 rows whose elements
are not neighbours in memory, as those of a column. For longer rows two kernels are faster (H200: one takes 580
microseconds instead of 761 for contiguous rows of 16384 float32, 762 instead of 870 for columns)."""


def fits(scheme: KernelScheme | Words, layout: Layout, view: View, whole: bool) -> bool:
    """Whether a kernel of this file can split the operand faster than two; `whole`: with a whole description."""
    if layout.tile == 0 or view.dtype.parts == 2:
        return False
    if isinstance(scheme, Words):
        return layout.k <= LONGEST_OF_WORDS
    itemsize = view.dtype.itemsize
    longest = (_MOST_BYTES if itemsize == 4 or view.along_k else _MOST_BYTES_OF_COLUMN) // itemsize
    longest = min(longest, LONGEST_OF_SUMS) if whole else longest
    return layout.k <= longest and image_limbs(scheme) <= _MOST_IMAGE_LIMBS


def describe_and_split(
    b: Builder, x: Array, side: str, scheme: KernelScheme, layout: Layout, whole: bool,
    magnitudes: Magnitudes | None = None, overlaps: bool = False,
) -> Slices:  # fmt: skip
    """Describe x, shape (batch, rows, k), and split it into digits or residues, in one read.

    Parameters
    ----------
    side : "left" or "right"
    whole : find the whole description; else the largest elements alone
    magnitudes : with `whole`, where to store the magnitudes of both operands for a proof, or None; the kernel of the
        left operand also zeroes the results there
    overlaps : run at the same time as the step before, which is a launch of this kind for the other operand
    """
    described = Described(x, fields_of(b, x), not whole, magnitudes if whole else None)
    slices = Slices.room(b, described, layout)
    wanted = magnitudes and magnitudes.layout
    kernel = _describe_split_kernel(x.view, described.scaling(scheme), side, scheme, layout, whole, wanted, overlaps)
    room: list[Array | Place] = []
    if magnitudes is not None:
        room = [magnitudes.left, magnitudes.results[0]] if side == "left" else [magnitudes.right]
    written = described.fields, slices.mu, slices.planes, *room
    b.launch(kernel, x, *map(Out, written), overlaps=overlaps)
    return slices


def find_and_split(
    b: Builder, device: Device, x: Array, words: Words, layout: Layout, lost: Array | None = None,
    overlaps: bool = False,
) -> Slices:  # fmt: skip
    """Find the largest elements of x, shape (batch, rows, k), and cut it into words, in one read.

    Parameters
    ----------
    lost : uint32, shape (1,): becomes 1 if an element is so small that words lose part of it; or None
    overlaps : run at the same time as the step before, which is a launch of this kind for the other operand
    """
    described = Described(x, fields_of(b, x), only_largest=True)
    slices = Slices.room(b, described, layout)
    kernel = _split_words_kernel(device, x.view, words, layout, lost is not None, overlaps)
    written = described.fields, slices.mu, slices.planes, *((lost,) if lost else ())
    b.launch(kernel, x, *map(Out, written), overlaps=overlaps)
    return slices


class _Held(NamedTuple):
    """How the blocks of `describe_split` share rows.

    Attributes
    ----------
    cluster : blocks that share each row
    share : elements of each row that a block holds
    rows : rows of a group
    sharing : warps of a block that share a group: 4, or 1 where each warp has a group of its own
    """

    cluster: int
    share: int
    rows: int
    sharing: int = 4

    @property
    def macros(self) -> Macros:
        """Macros of kernels/conversion/describe_split_sm90.cu."""
        return {"CLUSTER": self.cluster, "HELD": self.rows, "SHARING": self.sharing}

    @property
    def all_rows(self) -> int:
        """Rows of a block, in all of its groups."""
        return 4 // self.sharing * self.rows


def _held(k: int, view: View, whole: bool) -> _Held:
    """How blocks share rows of length k, padding included."""
    itemsize, along_k = view.dtype.itemsize, view.along_k
    row, batch, rows = k * itemsize, *view.shape[:2]
    if k <= (_SHORT_OF_MANY if batch * rows >= _MANY else _SHORT):
        return _Held(1, k, 2 if along_k else 16 // itemsize, 1)
    if along_k:
        return _Held(1, k, 2 if row <= 16384 else 1)
    # Eight neighbouring float32 are a whole sector of memory, 32 bytes (H200: 49 instead of 56 microseconds for 4096,
    # 181 instead of 192 for 8192).
    few_measures = itemsize == 4 and not whole and k > 2048  # the largest element and a count
    cluster = 4 if few_measures and k > 4096 else 2
    columns = 8 if few_measures and k <= 8192 else 2 if itemsize == 8 and row > 32768 else 4
    return _Held(cluster, round_up(ceil(k / cluster), _BLOCK), columns)


@cached(1024)
def _describe_split_kernel(
    view: View,
    scaling: Scaling,
    side: str,
    scheme: KernelScheme,
    layout: Layout,
    whole: bool,
    wanted: MagnitudeLayout | None,
    overlaps: bool,
) -> Kernel:
    batch, rows, k = view.shape
    assert whole or (scaling.statistic == "peak" and wanted is None)
    magnitudes: tuple[int | None, ...] = 0, 0, 0, 0, 0, 0
    if wanted is not None:
        cleared = (None, RESULT_EIGHTS) if side == "left" else (0, 0)
        of_side = wanted.rows[side == "right"] * wanted.k
        magnitudes = None, of_side, wanted.k, wanted.of_block | wanted.bits << 32, *cleared
    held = _held(layout.k, view, whole)
    rows_of_block = held.all_rows
    shared_mem = _EXCHANGED + rows_of_block * held.share * view.dtype.itemsize
    macros = cutting_macros(view, side, scheme, layout) | held.macros
    macros |= {"SUMS": int(whole), "FEW": int(shared_mem > _FOUR_BLOCKS)}
    if whole:
        macros |= {"RIGHT": int(side == "right")}
    grid = (held.cluster * batch * (layout.written_rows // rows_of_block),)
    return Kernel.of(
        "conversion/describe_split_sm90.cu", "describe_split", macros, grid, (128,), None, *view.steps, rows, k,
        layout.written_rows,
        layout.k, None, batch * rows, scaling.width, FIELDS.index(scaling.statistic), scaling.step, scaling.base,
        scaling.threshold, None, None, layout.matrix_bytes, layout.slice_bytes, held.share, int(overlaps),
        magnitudes, *cutting_constants(scheme, side, layout), shared_mem=shared_mem,
    )  # fmt: skip


class _Stream(NamedTuple):
    """How the clusters of `tops_split_words` take rows: in groups, of which each warp has two pieces of 4096 bytes.

    Attributes
    ----------
    cluster : blocks of a cluster
    warps : warps of a block
    rows : rows of a group
    """

    cluster: int
    warps: int
    rows: int

    @property
    def macros(self) -> Macros:
        """Macros of kernels/words/tops_split_words_sm90.cu."""
        return {"CLUSTER": self.cluster, "WARPS": self.warps, "HELD": self.rows}

    @property
    def shared_mem(self) -> int:
        """Bytes for three pieces for each warp, and for the measures of three groups of rows."""
        return 3 * 4096 * self.warps + 3 * 8 * self.rows


def _stream(k: int, view: View) -> _Stream:
    """How clusters take rows of length k, padding included."""
    rows = 16 if view.along_k or k > LONGEST_OF_WORDS // 2 else 32
    of_warp = 2048 // rows
    cluster = next((cluster for cluster in (1, 2, 4) if k <= 8 * of_warp * cluster), 8)
    return _Stream(cluster, ceil(k / (cluster * of_warp)), rows)


@cached(1024)
def _split_words_kernel(
    device: Device, view: View, words: Words, layout: Layout, flagged: bool, overlaps: bool
) -> Kernel:
    batch, rows, k = view.shape
    stream = _stream(layout.k, view)
    macros = tile_macros(view, words, layout) | stream.macros
    arguments = (
        None, *view.steps, batch, rows, k, layout.rows, layout.k, None, batch * rows, words.ceiling, words.floor, None,
        None, layout.matrix_bytes, layout.slice_bytes, None if flagged else 0, int(overlaps),
    )  # fmt: skip
    groups = batch * ceil(layout.rows / stream.rows)

    def launching(clusters: int) -> Kernel:
        return Kernel.of(
            "words/tops_split_words_sm90.cu", "tops_split_words", macros, (stream.cluster * clusters,),
            (32 * stream.warps,), *arguments, shared_mem=stream.shared_mem,
        )  # fmt: skip

    return launching(min(groups, _clusters_at_once(device, launching(1), stream.cluster)))


def _clusters_at_once(device: Device, kernel: Kernel, cluster: int) -> int:
    """How many clusters of `cluster` blocks the device runs at once.

    For the record of a device that is not present, as if a multiprocessor had room for two blocks.
    """
    if device.number is None:
        return max(1, 2 * device.multiprocessors // cluster)
    from ozaki.backends.cupy.program.launches import clusters_at_once

    return max(1, clusters_at_once(kernel, cluster))  # if not even one fits, the launch reports it
