"""Residues with few inner indices: multiplied, recombined and rounded by one kernel."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import ClassVar, NamedTuple

from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.devices.rates import RESIDUES
from ozaki.backends.cupy.devices.tiles import round_up
from ozaki.backends.cupy.program.arrays import Array, View
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel, Macros, output, struct
from ozaki.backends.cupy.program.steps import Out
from ozaki.backends.cupy.steps.cutting import accumulator_moduli
from ozaki.backends.cupy.steps.engines.engine import finished
from ozaki.backends.cupy.steps.engines.tiled import LABEL, Operand, Tiled, in_tiles
from ozaki.backends.cupy.steps.epilogue import Epilogue, Round
from ozaki.backends.cupy.steps.operands import Layout, Slices
from ozaki.backends.cupy.steps.unrounded import Planes, Unrounded
from ozaki.caches import cached
from ozaki.schemes import ComplexSlices, Residues
from ozaki.schemes.folded import folded

_ROWS, _COLUMNS, _DEPTH = 64, 96, 128
"""Of a tile of the result: ROWS, COLS and DEPTH of kernels/products/thin_gemm_sm90.cu."""

_THREADS = 512
"""Of the same kernel: threads of a block."""

_MOST_STAGES, _FEWEST_STAGES = 16, 4
"""Of the kernel's ring: more do not help, and with fewer B's tile does not stay in shared memory."""

_ROOM = 232448 - 1024 - 1024
"""Bytes of shared memory for the ring and B's tile: all that a block can have but for barriers and alignment."""

LONGEST = 2 * _DEPTH
"""Most inner indices: sums of more products of bytes are no subnormal numbers of float32 (kernels/arithmetic:
grouped.cuh). Already of more than these, shared memory bounds the kernel: it reads its tiles once for every 32 columns,
residue_gemm, which leaves 14 bytes an entry to another kernel, once for 192."""

_FEWEST, _MOST = 4, 18
"""Moduli. Fewer have no groups; of more a thread has no registers for its entries."""

_BLOCK_ROWS = 16
"""Rows that kernels write are a multiple of those that a block has of any of them that describes and splits short rows.
No more: proofs have room for magnitudes of no more rows than their own tiles have."""

_GROUP = 8192
"""Rows of C that are walked together: blocks at work at a time then share so many rows, and columns."""

_LONGEST_RUN = 16
"""Tiles, one below the other, for which a block keeps B's tile."""


@dataclass(frozen=True)
class ThinResidues(Tiled):
    """The kernel of which a block has all moduli of a tile, so that it writes nothing but the result.

    Of other epilogues than rounding it leaves the bytes y_t, as `FusedResidues` does.
    """

    keeps: ClassVar[bool] = True
    label: str = f"{LABEL}, rounding"

    def layout(self, scheme: Residues, side: str, batch: int, rows: int, k: int) -> Layout:
        """Where the slices of an operand lie: in tiles."""
        return _layout(scheme.count, side, batch, rows, k)

    def workspace(self, scheme: Residues, batch: int, rows: int, cols: int, k: int) -> int:
        """Bytes of the y_t, at most: they are held where the product is not rounded at once."""
        return scheme.count * batch * rows * _ld(cols)

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


_CLOCK = 1.7e9
"""Clocks a second, assumed."""

_BUSY = 0.7
"""The part of the issue slots that is expected to be used."""


@cached(1024)
def seconds_of_kernel(device: Device, scheme: Residues, batch: int, m: int, k: int, n: int) -> float:
    """How long the kernel is expected to take, by counts of instructions.

    For each entry of a warp a modulus takes 3.5 issue slots of the four that a multiprocessor has in a clock, or 1.5
    clocks of its share of shared memory for each 32 inner indices, whichever is longer; and then 4 to recombine and
    round.
    """
    tiles = batch * ceil(m / _ROWS) * ceil(n / _COLUMNS)
    of_block = ceil(tiles / device.multiprocessors) * _ROWS * _COLUMNS / 128  # entries of each lane of four warps
    return of_block * scheme.count * (max(3.5, 1.5 * ceil(k / 32)) + 4) / (_BUSY * _CLOCK)


@cached(1024)
def _layout(count: int, side: str, batch: int, rows: int, k: int) -> Layout:
    tile, depth = _ROWS if side == "left" else _COLUMNS, _DEPTH * _blocks_of(k)
    return in_tiles(
        count, batch, round_up(rows, tile), depth, tile, tile, round_up(rows, _BLOCK_ROWS), shared=_shared(k)
    )


def _blocks_of(k: int) -> int:
    """Blocks of k that are stored."""
    return max(-(-k // _DEPTH), 1)


def _shared(k: int) -> int:
    """Moduli that share a row of a block."""
    return 4 if k <= _DEPTH // 4 else 2 if k <= _DEPTH // 2 else 1


class Ring(NamedTuple):
    """What a block holds in shared memory: so many stages and, if `resident`, B's whole tile."""

    resident: bool
    stages: int
    nbytes: int

    @classmethod
    def of(cls, count: int, k: int) -> Ring:
        """For a tile of so many moduli."""
        chunks = -(-count // _shared(k)) * _blocks_of(k)
        a, b = _ROWS * _DEPTH, _COLUMNS * _DEPTH
        most = min((_ROOM - chunks * b) // a, _MOST_STAGES)
        if most >= _FEWEST_STAGES:
            stages = _stages(most, chunks)
            return cls(True, stages, stages * a + chunks * b + 1024)
        stages = _stages(min(_ROOM // (a + b), _MOST_STAGES), chunks)
        return cls(False, stages, stages * (a + b) + 1024)


def _stages(most: int, chunks: int) -> int:
    """Stages of a ring, at most so many: if not much fewer, so many that tiles begin at few of them."""
    even = (s for s in range(most, most // 2, -1) if s % chunks == 0 or chunks % s == 0)
    return next(even, most)


@cached(1024)
def _run(blocks: int, batch: int, rows: int, columns: int) -> int:
    """Tiles of a run: so many that blocks take about the same number of tiles, and B's tile seldom changes."""

    def longest(run: int) -> float:
        return -(-batch * columns * -(-rows // run) // blocks) * (run + 0.2)

    return min(range(1, _LONGEST_RUN + 1), key=longest)


def _launch(
    device: Device, scheme: Residues, k: int, operands: tuple[Operand, Operand], shape: tuple[int, ...], macros: Macros,
    *result: object,
) -> Kernel:  # fmt: skip
    """The launch, of which `result` are the arguments RESULT."""
    batch, m, n = shape
    rows, columns = ceil(m / _ROWS), ceil(n / _COLUMNS)
    ring = Ring.of(scheme.count, k)
    run = _run(device.multiprocessors, batch, rows, columns) if ring.resident else 1
    runs = batch * ceil(rows / run) * columns
    macros = macros | {"SLICES": scheme.count, "STEPS": max(ceil(k / 32), 1)}
    macros |= {"RESIDENT": int(ring.resident), "STAGES": ring.stages}
    group = max(_GROUP // (_ROWS * run), 1)
    return Kernel.of(
        "products/thin_gemm_sm90.cu", "thin_gemm", macros, (_blocks(device, runs),), (_THREADS,),
        *operands, struct([rows, columns, run, group, runs]), *result, shared_mem=ring.nbytes,
    )  # fmt: skip


def _ld(n: int) -> int:
    """Bytes of a row of y_t, of which other kernels read 16 at a time."""
    return round_up(n, 16)


def _blocks(device: Device, runs: int) -> int:
    """Blocks of a launch: one for each multiprocessor."""
    return min(runs, device.multiprocessors)


@cached(1024)
def _rounding(
    device: Device, scheme: Residues, k: int, operands: tuple[Operand, Operand], out: View, mu_step: int, nu_step: int
) -> Kernel:
    of = folded(scheme, 32 * ceil(k / 32))
    places = "{" + ",".join(map(str, of.places)) + "}"
    macros: Macros = {"ROUNDED": 1, "OUTPUT": out.dtype.ctype, "PLACE_COUNT": len(of.places), "PLACES": places}
    macros |= {"SMALL": int(of.small)}
    return _launch(device, scheme, k, operands, out.shape, macros, output(out, mu_step, nu_step), struct(of.constants))


@cached(1024)
def _keeping(
    device: Device, scheme: Residues, k: int, operands: tuple[Operand, Operand], shape: tuple[int, ...]
) -> Kernel:
    batch, m, n = shape
    ld = _ld(n)
    macros: Macros = {"ROUNDED": 0}
    moduli = accumulator_moduli(scheme.moduli, unsigned=True)
    return _launch(device, scheme, k, operands, shape, macros, None, batch * m * ld, m * ld, ld, m, moduli)
