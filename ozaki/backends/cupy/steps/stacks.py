"""Stacks of small products by residues or digits: one kernel reads the operands and leaves the rounded result.

Nothing else lies in memory: no description, no slices, no slice products. So what it is given are rows as they are, and
all that it does is to round the product alone; other products have engines (`steps/engines`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.devices.tiles import round_up
from ozaki.backends.cupy.program.arrays import Array, View
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel, Macros, struct
from ozaki.backends.cupy.program.steps import Out
from ozaki.caches import cached
from ozaki.records.plan import Plan
from ozaki.records.report import counted
from ozaki.schemes import Digits, Residues, Scheme, Words, scaling_of
from ozaki.schemes.constants import KernelScheme, image_limbs, residue_constants
from ozaki.schemes.grouped import (
    DEPTH,
    FEWEST,
    MOST,
    grouped_constants,
    image_bits,
    places_of,
    quotients_of,
)

LABEL = "kernel of stacks"
"""For reports."""

_LARGEST = 256
"""The most rows and columns of a product; larger ones fill the tiles of engines."""

_TALL = 2**14
"""Rows, or columns, of a product that is no stack, at least: the small operand is cut once for each block."""

_SIDE, _LONG = 64, 128
"""The most rows and columns of a tile. With k above _LONG, slices are cut so often for smaller tiles, where there is no
room for whole ones, that only products of few rows and columns, which engines pad, take less time than theirs."""

_ROUNDS = 4
"""Runs of tiles of a block, at least, where there are so many: longer ones cut fewer slices, but end less evenly."""

_LANES, _PIECE, _STEP = 32, 16, 32
"""Lanes of a warp; inner indices of a piece and of a step (kernels/stacks/stack.cu)."""


@dataclass(frozen=True)
class Tile:
    """How blocks share a product: macros of kernels/stacks/stack.cu.

    Attributes
    ----------
    rows, cols : of the tile of C that a block computes at a time, multiples of 16
    pieces : of 16 inner indices that a warp has of its lines
    shared_by : warps that have the same lines
    """

    rows: int
    cols: int
    pieces: int
    shared_by: int

    @property
    def units(self) -> int:
        """Groups of 16 lines."""
        return (self.rows + self.cols) // 16

    @property
    def direct(self) -> bool:
        """Whether residues stay in registers."""
        return self.pieces == 1

    @property
    def warps(self) -> int:
        """Warps of a block: for each group of lines one, for two of short ones, or several, of one side at a time."""
        if self.shared_by > 1:
            return max(self.rows, self.cols) // 16 * self.shared_by
        return self.units if self.pieces > 2 else -(-self.units // 2)

    def nbytes(self, count: int) -> int:
        """Bytes of shared memory of a block, for so many residues."""
        of_line = 0 if self.direct else count * self.shared_by * -(-self.pieces // 2) * _STEP
        exchanged = 10 * self.shared_by * max(self.rows, self.cols) if self.shared_by > 1 else 0
        return (of_line + 4) * (self.rows + self.cols) + exchanged


def multiplies(device: Device, plan: Plan) -> bool:
    """Whether the kernel computes the product of a plan, of two operands that are rows of floats.

    It does for a stack of at least two, and for a tall or wide matrix times a small one, as if its tiles were a stack,
    if nothing but the product is asked for.
    """
    m, k, n = plan.shape
    if plan.dtype not in ("float32", "float64"):
        return False
    others = plan.undecided_apart or plan.inner_scaling or plan.engine not in ("auto", "fused")
    one = prod(plan.batch) < 2
    fits = min(m, n) <= _SIDE and k <= _SIDE and max(m, n) >= _TALL if one else max(m, n) <= _LARGEST
    tile = None if others or not fits else tile_of(device, plan.scheme, m, k, n)
    if tile is None or (one and (tile.rows, tile.cols) != _whole_tile(m, n)):
        return False
    return k <= _LONG or max(m, n) <= _SIDE or (tile.rows, tile.cols) == _whole_tile(m, n)


@cached(1024)
def tile_of(device: Device, scheme: Scheme | Words | None, m: int, k: int, n: int) -> Tile | None:
    """The tile for products of a scheme; None if the kernel does not multiply them on this device."""
    if not _has_slices(scheme) or not 0 < k <= DEPTH or 0 in (m, n):
        return None
    assert isinstance(scheme, KernelScheme)
    pieces = next(x for x in (1, 2, 4, 8, 16) if k <= _PIECE * x)
    if pieces == 1 and min(m, n) <= 16 and (isinstance(scheme, Digits) or quotients_of(scheme) is not None):
        return Tile(16, 16, 1, 1)
    ways = ((max(pieces, 2), 1),) if pieces <= 4 else ((2, pieces // 2), (4, pieces // 4))
    rows, cols = _whole_tile(m, n)
    while True:
        for way in ways:
            tile = Tile(rows, cols, *way)
            if tile.warps <= _MOST_WARPS and tile.nbytes(scheme.count) <= device.block_memory:
                return tile
        if rows == cols == 16:
            return None
        if rows >= cols:
            rows = max(rows // 32, 1) * 16
        else:
            cols = max(cols // 32, 1) * 16


def _whole_tile(m: int, n: int) -> tuple[int, int]:
    """The size of the tile of C of a block, if its slices fit into shared memory."""
    rows, cols = (min(round_up(x, 16), _SIDE) for x in (m, n))
    return rows, cols


def _has_slices(scheme: Scheme | Words | None) -> bool:
    """Whether the kernel has slices of this scheme."""
    if isinstance(scheme, Digits):
        return scheme.bits == 8 and scheme.word == "int8" and scheme.count <= _MOST_DIGITS
    return type(scheme) is Residues and FEWEST <= scheme.count <= MOST


_MOST_DIGITS = 6
"""The most digits: the sum of their diagonals is then below 2**63 (kernels/stacks/digit_slices.cuh)."""

_MOST_WARPS = 16
"""Warps of a multiprocessor, of 128 registers a thread."""


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
    scaling, nbytes = scaling_of(scheme, k), tile.nbytes(scheme.count)
    blocks = _MOST_WARPS // tile.warps
    if nbytes:
        blocks = max(min(blocks, device.shared_memory // (nbytes + 1024)), 1)
    macros: Macros = {
        "INPUT_A": a.dtype.ctype,
        "INPUT_B": b.dtype.ctype,
        "OUTPUT": out.dtype.ctype,
        "DIGIT_BITS": scheme.bits if isinstance(scheme, Digits) else 0,
        "SLICES": scheme.count,
        "LIMBS": image_limbs(scheme),
        "BLOCK_ROWS": tile.rows,
        "BLOCK_COLS": tile.cols,
        "WARPS": tile.warps,
        "BLOCKS": blocks,
        "SHARED_BY": tile.shared_by,
        "PIECES_HELD": tile.pieces,
    }
    constants: tuple[int, ...] = (0, 0)
    if isinstance(scheme, Residues):
        of_residues, constants = _of_residues(scheme)
        macros |= of_residues
    tiles, at_once = -(-m // tile.rows) * -(-n // tile.cols), blocks * device.multiprocessors
    of_block = batch * tiles // (_ROUNDS * at_once) if batch > 1 else -(-tiles // at_once)
    run = min(max(of_block, 1), tiles)
    jobs = batch * -(-tiles // run)
    strides = ((0 if x.shape[0] == 1 else x.steps[0], *x.steps[1:]) for x in (a, b, out))
    of_a, of_b, of_out = strides
    return Kernel.of(
        "stacks/stack.cu", "stack", macros, (min(jobs, at_once),),
        (_LANES * tile.warps,), None, *of_a, None, *of_b, None, *of_out, batch, run, m, n, k,
        scaling.base, scaling.threshold, struct(constants), shared_mem=nbytes,
    )  # fmt: skip


def _of_residues(scheme: Residues) -> tuple[Macros, tuple[int, ...]]:
    """Macros of residues alone, and the struct Constants (kernels/stacks/residue_slices.cuh), in 32-bit numbers."""
    quotients, places = quotients_of(scheme), places_of(scheme)
    macros: Macros = {
        "PLACE_COUNT": len(places),
        "PLACES": f"{{{','.join(map(str, places))}}}",
        "QUOTIENTS": int(quotients is not None),
        "IMAGE_BITS": image_bits(scheme),
        "UNSURE": -1 if quotients is None else quotients.unsure,
    }
    cut = residue_constants(scheme, "right", True, scheme.count) if quotients is None else quotients.constants
    return macros, (*cut, *[0] * (len(cut) % 2), *grouped_constants(scheme))
