"""Residues with few inner indices: multiplied, recombined and rounded by one kernel."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import ClassVar

from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.devices.rates import RESIDUES
from ozaki.backends.cupy.devices.tiles import round_up
from ozaki.backends.cupy.program.arrays import Array, View
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel, Macros, output, struct
from ozaki.backends.cupy.program.steps import Out
from ozaki.backends.cupy.steps import cutting, one_read
from ozaki.backends.cupy.steps.cutting import accumulator_moduli
from ozaki.backends.cupy.steps.engines.engine import finished
from ozaki.backends.cupy.steps.engines.tiled import LABEL, Operand
from ozaki.backends.cupy.steps.epilogue import Epilogue, Round
from ozaki.backends.cupy.steps.operands import Described, Layout, Slices
from ozaki.backends.cupy.steps.unrounded import Planes, Unrounded
from ozaki.caches import cached
from ozaki.schemes import ComplexSlices, Residues, constants

_ROWS, _COLUMNS, _DEPTH = 64, 96, 128
"""Of a tile of the result: ROWS, COLS and DEPTH of kernels/products/thin_gemm_sm90.cu."""

_STAGES, _THREADS = (11, 5), 384
"""Of the same kernel: the most stages of its ring, for one block of k and for two, and threads of a block."""

LONGEST = 2 * _DEPTH
"""Most inner indices: sums of more products of bytes are no subnormal numbers of float32 (kernels/arithmetic:
sums_of_groups.cuh). Already of more than these, shared memory bounds the kernel: it reads its tiles once for every 32
columns, residue_gemm, which leaves 14 bytes an entry to another kernel, once for 192."""

_FEWEST, _MOST = 4, 18
"""Moduli. Of fewer the ring would have too few stages; of more a thread has no registers for its entries."""

_BLOCK_ROWS = 16
"""Rows that kernels write are a multiple of those that a block has of any of them that describes and splits short rows.
No more: proofs have room for magnitudes of no more rows than their own tiles have."""

_GROUP = 16
"""Rows of tiles that are walked together: blocks at work at a time then share about 1000 rows and 800 columns."""


@dataclass(frozen=True)
class ThinResidues:
    """The kernel of which a block has all moduli of a tile, so that it writes nothing but the result.

    Of other epilogues than rounding it leaves the bytes y_t, as `FusedResidues` does.
    """

    keeps: ClassVar[bool] = True
    device: Device
    label: str = f"{LABEL}, rounding"

    def layout(self, scheme: Residues, side: str, batch: int, rows: int, k: int) -> Layout:
        """Where the slices of an operand lie: in tiles."""
        return _layout(scheme.count, side, batch, rows, k)

    def workspace(self, scheme: Residues, batch: int, rows: int, cols: int, k: int) -> int:
        """Bytes of the y_t, at most: they are held where the product is not rounded at once."""
        return scheme.count * batch * rows * _ld(cols)

    def split(self, b: Builder, operand: Described, side: str, scheme: Residues) -> Slices:
        """The slices of a whole operand."""
        return cutting.split(b, self.device, operand, side, scheme, self.layout(scheme, side, *operand.x.shape))

    def splits_in_one_read(self, scheme: Residues, side: str, operand: Array, whole: bool) -> bool:
        """Whether blocks can hold whole rows: they can, since rows are short."""
        lay = self.layout(scheme, side, *operand.shape)
        return self.device.family.one_read and one_read.fits(scheme, lay, operand.view, whole)

    def multiply(
        self, b: Builder, scheme: Residues, left: Slices, right: Slices, epilogue: Epilogue
    ) -> Unrounded | None:  # fmt: skip
        """Left right^T, shape (batch, m, n), rounded at once, or returned to be kept, or finished by the epilogue."""
        k, at = left.described.x.shape[2], (left.operand, right.operand)
        if isinstance(epilogue, Round) and epilogue.projection is None and epilogue.undecided is None:
            out = epilogue.out
            assert isinstance(out, Array)
            kernel = _rounding(self.device, scheme, k, at, out.view, left.mu_step, right.mu_step)
            b.launch(kernel, left.planes, right.planes, Out(out), left.mu, right.mu)
            return None
        batch, m, n = epilogue.shape
        planes = b.array("y", (scheme.count, batch, m, _ld(n)), "B")
        b.launch(_keeping(self.device, scheme, k, at, epilogue.shape), left.planes, right.planes, Out(planes))
        return finished(b, self.device, Planes(scheme, planes, left.scales, right.scales), epilogue)

    def seconds(self, scheme: Residues, batch: int, m: int, k: int, n: int, dtype: str) -> float:
        """How long a product takes that is planned from its data."""
        each = 1e12 * seconds_of_kernel(self.device, scheme, batch, m, k, n) / (2 * scheme.count * k)
        return self.device.rates.slices(
            batch, m, k, n, dtype, scheme, operation_ps=each, product_bytes=0, reads=1, planned=RESIDUES
        )


def multiplies(scheme: Residues, k: int) -> bool:
    """Whether the kernel multiplies residues of real rows of this length."""
    real = not isinstance(scheme, ComplexSlices)
    return real and not scheme.several and _FEWEST <= scheme.count <= _MOST and k <= LONGEST


_CLOCK = 1.6e9
"""Clocks a second, assumed."""

_BUSY = 0.75
"""The part of the issue slots that is expected to be used."""


@cached(1024)
def seconds_of_kernel(device: Device, scheme: Residues, batch: int, m: int, k: int, n: int) -> float:
    """How long the kernel is expected to take, by counts of instructions; nobody has measured it.

    For each entry of a warp a modulus takes 5 issue slots of the four that a multiprocessor has in a clock, or 1.5
    clocks of its share of shared memory for each 32 inner indices, whichever is longer; and then 5 to recombine and
    round (SASS with 14 residues: 74 and 70 instructions).
    """
    tiles = batch * ceil(m / _ROWS) * ceil(n / _COLUMNS)
    of_block = ceil(tiles / device.multiprocessors) * _ROWS * _COLUMNS / 128  # entries of each lane of four warps
    return of_block * scheme.count * (max(5.0, 1.5 * ceil(k / 32)) + 5) / (_BUSY * _CLOCK)


@cached(1024)
def _layout(count: int, side: str, batch: int, rows: int, k: int) -> Layout:
    tile = _ROWS if side == "left" else _COLUMNS
    depth, padded = _DEPTH * _blocks_of(k), round_up(rows, tile)
    each = padded * depth
    neighbours = 0 if side == "left" else 4
    size, written, half = count * batch * each, round_up(rows, _BLOCK_ROWS), k <= _DEPTH // 2
    return Layout(
        padded, depth, each, depth, batch * each, depth, 0, size, tile, tile, neighbours, True, written, half
    )  # fmt: skip


def _blocks_of(k: int) -> int:
    """Blocks of k that are stored."""
    return max(-(-k // _DEPTH), 1)


def _launch(
    device: Device, scheme: Residues, k: int, operands: tuple[Operand, Operand], shape: tuple[int, ...], macros: Macros,
    *result: object,
) -> Kernel:  # fmt: skip
    """The launch, of which `result` are the arguments RESULT."""
    batch, m, n = shape
    rows, columns = ceil(m / _ROWS), ceil(n / _COLUMNS)
    tiles = batch * rows * columns
    macros = macros | {"SLICES": scheme.count, "LIMBS": constants.product_limbs(scheme), "STEPS": ceil(k / 32)}
    blocks = _blocks_of(k)
    shared_mem = min(_STAGES[blocks - 1], scheme.count + 2) * (_ROWS + _COLUMNS) * _DEPTH * blocks + 1024
    return Kernel.of(
        "products/thin_gemm_sm90.cu", "thin_gemm", macros, (_blocks(device, tiles),), (_THREADS,),
        *operands, struct([rows, columns, _GROUP, tiles]), *result, shared_mem=shared_mem,
    )  # fmt: skip


def _ld(n: int) -> int:
    """Bytes of a row of y_t, of which other kernels read 16 at a time."""
    return round_up(n, 16)


def _blocks(device: Device, tiles: int) -> int:
    """Blocks of a launch: one for each multiprocessor."""
    return min(tiles, device.multiprocessors)


@cached(1024)
def _rounding(
    device: Device, scheme: Residues, k: int, operands: tuple[Operand, Operand], out: View, mu_step: int, nu_step: int
) -> Kernel:
    macros: Macros = {"ROUNDED": 1, "OUTPUT": out.dtype.ctype}
    crt, sums = struct(constants.crt_constants(scheme)), struct(constants.group_sums(scheme))
    return _launch(device, scheme, k, operands, out.shape, macros, output(out, mu_step, nu_step), crt, sums)


@cached(1024)
def _keeping(
    device: Device, scheme: Residues, k: int, operands: tuple[Operand, Operand], shape: tuple[int, ...]
) -> Kernel:
    batch, m, n = shape
    ld = _ld(n)
    macros: Macros = {"ROUNDED": 0, "OUTPUT": "double"}
    moduli = accumulator_moduli(scheme.moduli, unsigned=True)
    return _launch(device, scheme, k, operands, shape, macros, None, batch * m * ld, m * ld, ld, m, moduli)
