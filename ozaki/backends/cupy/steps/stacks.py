"""Stacks of small products by residues or digits: one kernel reads the operands and leaves the rounded result.

Nothing else lies in memory: no description, no slices, no slice products. So what it is given are rows as they are, and
all that it does is to round the product alone; other products have engines (`steps/engines`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.devices.rates import RESIDUES
from ozaki.backends.cupy.devices.tiles import round_up
from ozaki.backends.cupy.program.arrays import Array, View
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel, Macros, struct
from ozaki.backends.cupy.program.steps import Out
from ozaki.caches import cached
from ozaki.records.plan import Plan
from ozaki.records.report import counted
from ozaki.schemes import ComplexSlices, Digits, Residues, Scheme, Words, scaling_of
from ozaki.schemes.constants import KernelScheme, image_limbs, scheme_of
from ozaki.schemes.grouped import (
    DEPTH,
    FEWEST,
    MOST,
    MOST_COMPLEX,
    grouped_constants,
    image_bits,
    places_of,
    quotients_of,
    raising,
)

LABEL = "kernel of stacks"
"""For reports."""

_LARGEST = 256
"""The most rows and columns of a product; larger ones fill the tiles of engines."""

_TALL = 2**14
"""Rows, or columns, of a product that is no stack, at least: the small operand is cut once for each block."""

_SIDE, _LONG = 64, 128
"""The most rows and columns of a tile. With k above _LONG, slices are cut so often that only products of few rows and
columns, which engines pad, take less time than theirs (1024 x 256^3 of float32 on an H200: 1.05 ms for 0.58)."""

_ROUNDS = 4
"""Runs of tiles of a block, at least, where there are so many: longer ones cut fewer slices, but end less evenly."""

_LANES, _PIECE = 32, 16
"""Lanes of a warp; inner indices of a piece (kernels/stacks/lines.cuh)."""


@dataclass(frozen=True)
class Tile:
    """How blocks share a product: macros of kernels/stacks/stack.cu.

    Attributes
    ----------
    rows, cols : of the tile of C that a block computes at a time, multiples of 16
    pieces : of 16 inner indices that a warp has of its lines
    shared_by : warps that have the same lines
    warps : of a block
    slices : of an element
    direct : whether slices stay in registers
    eights : of columns of C that a warp, or a warpgroup, multiplies at a time
    wgmma : whether warpgroups multiply, 64 rows of C at a time (kernels/stacks/planes_sm90.cuh)
    """

    rows: int
    cols: int
    pieces: int
    shared_by: int
    warps: int
    slices: int
    direct: bool = False
    eights: int = 2
    wgmma: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of shared memory of a block."""
        depth = _PIECE if self.pieces == 1 else round_up(self.pieces, 2) * _PIECE * self.shared_by
        of_line = 0 if self.direct else depth * self.slices
        if self.wgmma:
            of_line = round_up(of_line, 128)
        exchanged = 160 * self.warps if self.shared_by > 1 else 0
        return (of_line + 4) * (self.rows + self.cols) + exchanged


def multiplies(device: Device, plan: Plan) -> bool:
    """Whether the kernel computes the product of a plan, of two operands that are rows of floats.

    It does for a stack of at least two, and for a tall or wide matrix times a small one, as if its tiles were a stack,
    if nothing but the product is asked for.
    """
    if plan.undecided_apart or plan.inner_scaling or plan.engine not in ("auto", "fused"):
        return False
    m, k, n = plan.shape
    return runs(device, plan.scheme, prod(plan.batch), m, k, n, plan.dtype)


def runs(device: Device, scheme: Scheme | Words | None, batch: int, m: int, k: int, n: int, dtype: str) -> bool:
    """Whether the kernel computes plain products of this shape by a scheme."""
    complex_rows = isinstance(scheme, ComplexSlices)
    if dtype not in (_COMPLEX if complex_rows else _REAL):
        return False
    one = batch < 2
    fits = min(m, n) <= _SIDE and k <= _SIDE and max(m, n) >= _TALL if one else max(m, n) <= _LARGEST
    tile = tile_of(device, scheme, m, k, n) if fits else None
    if tile is None or (one and (complex_rows or (tile.rows, tile.cols) != _whole_tile(m, n))):
        return False
    return k <= _LONG or max(m, n) <= _SIDE


_REAL, _COMPLEX = ("float32", "float64"), ("complex64", "complex128")


@cached(1024)
def seconds(device: Device, scheme: KernelScheme, batch: int, m: int, k: int, n: int) -> float:
    """How long a product takes whose count of slices the data decide: the facts, and then the kernel."""
    tile = tile_of(device, scheme, m, k, n)
    assert tile is not None
    down, over, length = -(-m // tile.rows), -(-n // tile.cols), round_up(k, _PIECE)
    entries, elements = down * over * tile.rows * tile.cols, (down * tile.rows + over * tile.cols) * length
    each = (_ENTRY_PS * entries + _ELEMENT_PS * elements) * (scheme.products + 1)
    busy = device.multiprocessors / _MEASURED_ON * min(batch * down * over / device.multiprocessors, 1)
    each *= (_OF_LONG if k > _SIDE else 1.0) * (_OF_COMPLEX if isinstance(scheme, ComplexSlices) else 1.0)
    facts = _FACTS_PS * (m + n) * k
    return max(1e-12 * batch * (each + facts) / busy + _START, RESIDUES.least)


_ENTRY_PS, _ELEMENT_PS, _FACTS_PS = 0.55, 0.27, 5.5
"""Picoseconds for each slice product and one more: of an entry and of an element; and for the facts of an element. On
an H200, of float64 and 14 residues, float32 and 7, or 3 digits, and from 16 to 64 rows, columns and inner indices."""

_OF_LONG, _OF_COMPLEX = 1.2, 1.6
"""How much longer that takes with k above _SIDE, where one block fills a multiprocessor (the same, with 128); and for
slices of complex rows, of which `products` counts two for each of the four products of parts."""

_MEASURED_ON, _START = 132, 10e-6
"""Multiprocessors of that device; seconds that it takes to begin."""


@cached(1024)
def tile_of(device: Device, scheme: Scheme | Words | None, m: int, k: int, n: int) -> Tile | None:
    """The tile for products of a scheme; None if the kernel does not multiply them on this device."""
    if not _has_slices(scheme) or 0 in (m, k, n):
        return None
    assert isinstance(scheme, KernelScheme)
    parts = 2 if isinstance(scheme, ComplexSlices) else 1
    if k > DEPTH // parts:
        return None
    slices, split = parts * scheme_of(scheme).count if isinstance(scheme, Residues) else scheme.count, False
    if isinstance(scheme, Residues):
        split = quotients_of(scheme_of(scheme)).split
    pieces = next(x for x in (1, 2, 4, 8, 16) if k <= _PIECE * x)
    if pieces == 1 and min(m, n) <= 16 and parts == 1 and not split:
        return Tile(16, 16, 1, 1, 1, slices, direct=True)
    ways: tuple[tuple[int, int], ...] = ((2, pieces // 2), (4, pieces // 4))
    if pieces <= 2:
        ways = ((pieces, 1),)
    elif parts == 2 or split:  # more would not stay in registers
        ways = ways[:1]
    elif pieces == 4:
        ways = ((4, 1),)
    rows, cols = _whole_tile(m, n)
    while True:
        fitting = [tile for way in ways if (tile := _fitting(device, rows, cols, *way, slices)) is not None]
        if fitting:  # with many registers a warp has longer parts of lines, and tells others less about them
            last = fitting[-1]
            tile = last if _blocks_of(device, last, parts) * last.warps <= _WARPS_ALONE else fitting[0]
            return _by_warpgroups(device, tile) if type(scheme) is Residues and not split else tile
        if rows == cols == 16:
            return None
        if rows > cols:
            rows = max(rows // 32, 1) * 16
        else:
            cols = max(cols // 32, 1) * 16


def _fitting(device: Device, rows: int, cols: int, pieces: int, shared_by: int, slices: int) -> Tile | None:
    """The tile of this size, with as many warps as keep a multiprocessor busy; None if there is no room for it."""
    units = (rows + cols) // 16
    if shared_by == 1:
        warps = -(-units // 2) if pieces == 1 else units
        tile = Tile(rows, cols, pieces, shared_by, warps, slices)
        return tile if tile.nbytes <= device.block_memory else None
    warps = shared_by
    while warps < min(units * shared_by, _MOST_WARPS):
        tile = Tile(rows, cols, pieces, shared_by, warps, slices)
        blocks = device.shared_memory // (tile.nbytes + 1024)
        if warps * blocks >= (_WARPS_ALONE if blocks == 1 else _MOST_WARPS):
            break
        warps *= 2
    tile = Tile(rows, cols, pieces, shared_by, warps, slices)
    return tile if warps <= _MOST_WARPS and tile.nbytes <= device.block_memory else None


def _by_warpgroups(device: Device, tile: Tile) -> Tile:
    """The tile as warpgroups multiply it, if they do; of residues of real matrices, images in one part."""
    whole = (tile.rows, tile.pieces, tile.warps) == (64, 4, 8) and tile.shared_by <= 2
    if device.family.stacks != "wgmma" or not whole:
        return tile
    return replace(tile, wgmma=True, eights=4 if tile.shared_by == 2 and tile.cols % 32 == 0 else 2)


def _blocks_of(device: Device, tile: Tile, parts: int) -> int:
    """Blocks of a multiprocessor."""
    blocks = (_MOST_WARPS if tile.slices // parts <= _FEW else _FEWER_WARPS) // tile.warps or 1
    if not tile.direct:
        blocks = max(min(blocks, device.shared_memory // (tile.nbytes + 1024)), 1)
    return blocks


def _whole_tile(m: int, n: int) -> tuple[int, int]:
    """The size of the tile of C of a block, if its slices fit into shared memory."""
    rows, cols = (min(round_up(x, 16), _SIDE) for x in (m, n))
    return rows, cols


def _has_slices(scheme: Scheme | Words | None) -> bool:
    """Whether the kernel has slices of this scheme."""
    if isinstance(scheme, Digits):
        return scheme.bits == 8 and scheme.word == "int8" and scheme.count <= _MOST_DIGITS
    if isinstance(scheme, ComplexSlices):
        return FEWEST <= scheme.of.count <= MOST_COMPLEX
    return type(scheme) is Residues and FEWEST <= scheme.count <= MOST


_MOST_DIGITS = 6
"""The most digits: the sum of their diagonals is then below 2**63 (kernels/stacks/digit_slices.cuh)."""

_MOST_WARPS, _FEWER_WARPS, _FEW = 16, 12, 15
"""Warps of a multiprocessor, of 128 registers a thread; and of 168, if blocks are small and there are more than so many
slices of a part."""

_WARPS_ALONE = 8
"""Warps of a block that has a multiprocessor for itself: they have 255 registers a thread, and wait less for one
another than twice as many (2048 x 128^3 on an H200: 0.89 ms for 1.01)."""


def multiply(b: Builder, device: Device, plan: Plan, left: Array, right: Array, out: Array) -> None:
    """Add the step that computes left right^T, shape (batch, m, n), from rows (batch or 1, m or n, k)."""
    assert isinstance(plan.scheme, KernelScheme)
    (m, k, n), count = plan.shape, counted(plan.slices, plan.scheme.name)
    b.title = f"{count} of ({m} x {k}) ({k} x {n}), {plan.dtype}, {device.architecture}"
    b.launch(kernel_of(device, plan.scheme, left.view, right.view, out.view), left, right, Out(out))


@cached(1024)
def kernel_of(device: Device, scheme: KernelScheme, a: View, b: View, out: View) -> Kernel:
    """The kernel for rows of these views; `out`: the view of the result."""
    (batch, m, n), k = out.shape, a.shape[2]
    tile = tile_of(device, scheme, m, k, n)
    assert tile is not None
    parts = a.dtype.parts
    scaling = scaling_of(scheme, parts * k)
    blocks = _blocks_of(device, tile, parts)
    macros: Macros = {
        "PARTS": parts,
        "INPUT_A": a.dtype.ctype_of_part,
        "INPUT_B": b.dtype.ctype_of_part,
        "OUTPUT": out.dtype.ctype_of_part,
        "DIGIT_BITS": scheme.bits if isinstance(scheme, Digits) else 0,
        "SLICES": tile.slices // parts,
        "LIMBS": image_limbs(scheme) if isinstance(scheme, Digits) else 0,
        "BLOCK_ROWS": tile.rows,
        "BLOCK_COLS": tile.cols,
        "WARPS": tile.warps,
        "BLOCKS": blocks,
        "SHARED_BY": tile.shared_by,
        "PIECES_HELD": tile.pieces,
        "DIRECT": int(tile.direct),
        "WHOLE": int((m % tile.rows, n % tile.cols, k) == (0, 0, _PIECE * tile.pieces * tile.shared_by)),
        "EIGHTS": 1 if parts == 2 else tile.eights,
        "ONE_TILE": int(m <= tile.rows and n <= tile.cols),
        "WARPGROUPS": int(tile.wgmma),
        "AHEAD": int(blocks * tile.warps <= _WARPS_ALONE),
    }
    constants: tuple[int, ...] = (0, 0)
    if isinstance(scheme, Residues):
        of_residues, constants = _of_residues(scheme_of(scheme), parts)
        macros |= of_residues
    tiles, at_once = -(-m // tile.rows) * -(-n // tile.cols), blocks * device.multiprocessors
    of_block = batch * tiles // (_ROUNDS * at_once) if batch > 1 else -(-tiles // at_once)
    run = min(max(of_block, 1), tiles)
    jobs = batch * -(-tiles // run)
    steps = (x.steps_of_parts for x in (a, b, out))
    strides = ((0 if x.shape[0] == 1 else of[0], *of[1:]) for x, of in zip((a, b, out), steps, strict=True))
    of_a, of_b, of_out = strides
    return Kernel.of(
        "stacks/stack.cu", "stack", macros, (min(jobs, at_once),),
        (_LANES * tile.warps,), None, *of_a, None, *of_b, None, *of_out, batch, run, m, n, k,
        scaling.base, scaling.threshold, struct(constants), shared_mem=tile.nbytes,
    )  # fmt: skip


def _of_residues(scheme: Residues, parts: int) -> tuple[Macros, tuple[int, ...]]:
    """Macros of residues alone, and the struct Constants (kernels/stacks/residue_slices.cuh), in 32-bit numbers."""
    quotients, places = quotients_of(scheme), places_of(scheme)
    macros: Macros = {
        "PLACE_COUNT": len(places),
        "PLACES": f"{{{','.join(map(str, places))}}}",
        "EVEN": int(scheme.moduli[0] == 256),
        "SPLIT": int(quotients.split),
        "SURE": quotients.sure,
        "IMAGE_BITS": image_bits(scheme),
        "UNSURE": quotients.unsure,
    }
    raised = raising(scheme) if parts == 2 else ()
    return macros, (*quotients.constants, *raised, *grouped_constants(scheme))
