"""Residues by the library's own int8 kernel."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from typing import Any, ClassVar, NamedTuple

from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.devices.rates import RESIDUES, reads_of_rows
from ozaki.backends.cupy.devices.tiles import Tiles, round_up
from ozaki.backends.cupy.program.arrays import Array
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel, Macros, struct
from ozaki.backends.cupy.program.steps import Out
from ozaki.backends.cupy.steps.cutting import accumulator_moduli
from ozaki.backends.cupy.steps.engines.engine import finished
from ozaki.backends.cupy.steps.engines.halves import Places, places
from ozaki.backends.cupy.steps.engines.shares import columns, deepest, of_parts, parts_of_k
from ozaki.backends.cupy.steps.engines.tiled import LABEL, Operand, Tiled, Together, group, layout, together
from ozaki.backends.cupy.steps.epilogue import Epilogue
from ozaki.backends.cupy.steps.operands import Layout, Slices
from ozaki.backends.cupy.steps.unrounded import Planes, Symmetry, Unrounded
from ozaki.caches import cached
from ozaki.schemes import Residues, constants

_LARGE = 420_000_000_000
"""From this many multiplications on, tiles are assigned by the half of the second-level cache that a cluster is at
(float64 from 3200 on, float32 from 4000). Below, clearing the count of places between two kernels that would otherwise
overlap costs more than it saves: 5 microseconds (H200: the kernel of 14 residues gains 1 of 28 microseconds at 1024, 2
to 5 of 175 at 2048, 23 to 29 of 1260 at 4096)."""


@dataclass(frozen=True)
class FusedResidues(Tiled):
    """The kernel of which each launch multiplies many moduli; it leaves bytes, which another kernel recombines."""

    keeps: ClassVar[bool] = True
    label: str = LABEL

    def layout(self, scheme: Residues, side: str, batch: int, rows: int, k: int) -> Layout:
        """Where the slices of an operand lie: in tiles."""
        tiles = self.device.tiles
        tile = tiles.rows if side == "left" else tiles.columns
        return layout(tiles, scheme.products, side, batch, rows, k, tile, neighbours=16, in_pairs=True)

    def workspace(self, scheme: Residues, batch: int, rows: int, cols: int, k: int) -> int:
        """Bytes of the y_t, which are held beside the slices."""
        tiles = self.device.tiles
        parts = _parts(self.device, scheme, batch, rows, cols, tiles.blocks(k))
        return parts * scheme.bytes * batch * rows * round_up(cols, 2 * tiles.columns)

    def multiply(
        self, b: Builder, scheme: Residues, left: Slices, right: Slices, epilogue: Epilogue
    ) -> Unrounded | None:  # fmt: skip
        """Left right^T, shape (batch, m, n), which is returned to be kept, or finished by the epilogue."""
        planes = products(b, self.device, scheme, left, right, (left.operand, right.operand), epilogue.shape)
        product = Planes(scheme, planes.part(1, 0, epilogue.shape[0]), left.scales, right.scales)
        return finished(b, self.device, product, epilogue)

    def seconds(self, scheme: Residues, batch: int, m: int, k: int, n: int, dtype: str) -> float:
        """How long a product takes that is planned from its data."""
        rates = self.device.rates
        each = rates.fused(batch * m * n, self.busy_entries(scheme, batch, m, k, n))
        return rates.slices(
            batch, m, k, n, dtype, scheme, operation_ps=each, product_bytes=2 * scheme.count, reads=reads_of_rows(k),
            planned=RESIDUES,
        )  # fmt: skip

    def busy_entries(self, scheme: Residues, batch: int, m: int, k: int, n: int) -> float:
        """The product's time, as the number of entries that a fully occupied device computes in it."""
        tiles, clusters = self.device.tiles, self.device.clusters
        blocks = tiles.blocks(k)
        parts = _parts(self.device, scheme, batch, m, n, blocks)
        rows = scheme.products * batch * parts * -(-m // tiles.rows)
        _, end, _ = columns(tiles, n, rows, clusters, blocks // parts)
        return clusters * end * 2 * tiles.rows / (scheme.products * parts)


@dataclass(frozen=True)
class SymmetricResidues(FusedResidues):
    """The same kernel, which leaves tiles above the diagonal out: for a matrix times its own (conjugate) transpose.

    Both operands have the same rows, or those of the right one are their conjugates. Entries below the diagonal, or
    their conjugates, are copied above it.
    """

    label: str = f"{LABEL}, one triangle"
    symmetry: Symmetry = "symmetric"

    @classmethod
    def of(cls, device: Device, symmetry: Symmetry) -> SymmetricResidues:
        """The engine for results of that symmetry."""
        return cls(device, symmetry=symmetry)

    def multiply(
        self, b: Builder, scheme: Residues, left: Slices, right: Slices, epilogue: Epilogue
    ) -> Unrounded | None:  # fmt: skip
        """Left right^T, shape (batch, n, n), which is returned to be kept, or finished by the epilogue."""
        at = left.operand, right.operand
        planes = products(b, self.device, scheme, left, right, at, epilogue.shape, triangle=True)
        product = Planes(scheme, planes, left.scales, right.scales, self.symmetry)
        return finished(b, self.device, product, epilogue)


_LEAST_SYMMETRIC = 1024
"""Least rows, columns and k of a product of which triangles are multiplied: of fewer, most tiles touch the diagonal."""


def triangle_is_faster(scheme: Residues, shape: tuple[int, int, int]) -> bool:
    """Whether a matrix times its own transpose, of shape (m, k, n), is to be multiplied by triangles."""
    return not scheme.several and min(shape) >= _LEAST_SYMMETRIC


def in_triangle(tiles: Tiles, n: int) -> int:
    """Pairs of wide tiles with an entry on or below the diagonal of n x n entries."""
    rows, of_pair = -(-n // tiles.rows), 2 * tiles.columns
    return sum(rows - of_pair * j // tiles.rows for j in range(-(-n // of_pair)) if of_pair * j // tiles.rows < rows)


def multiplies(scheme: Residues) -> bool:
    """Whether the kernel multiplies residues of this scheme: those of three digits it does not."""
    return scheme.by_digits[2] == 0


def _parts(device: Device, scheme: Residues, batch: int, m: int, n: int, blocks: int) -> int:
    """Parts of k that are multiplied at the same time; one where moduli are so many that all clusters are busy."""
    if scheme.several:
        return 1
    return parts_of_k(device.tiles, device.clusters, scheme.count, batch, m, n, blocks)


class Group(NamedTuple):
    """Slice products of one launch: one of each of some moduli with equally many digits.

    Attributes
    ----------
    slice, apart : the first slice, and how many slices on the next one is
    byte : how many bytes of residues come before those of these moduli
    moduli : the moduli
    product : None of moduli with one digit; else which product of theirs
    """

    slice: int
    apart: int
    byte: int
    moduli: tuple[int, ...]
    product: int | None = None

    @property
    def digits(self) -> int:
        """Digits of the residues, and bytes."""
        return 1 if self.product is None else 2


@cached(1024)
def groups_of(scheme: Residues) -> tuple[Group, ...]:
    """The launches of a product, in order: later products of a modulus are added to the first one."""
    ones, twos, _ = scheme.by_digits
    groups = [Group(0, 1, 0, scheme.moduli[:ones])]
    for first in range(0, twos, constants.MOST_AT_ONCE):
        moduli = scheme.moduli[ones:][first : first + constants.MOST_AT_ONCE]
        groups += [Group(ones + 3 * first + p, 3, ones + 2 * first, moduli, p) for p in range(3)]
    return tuple(groups)


def products(
    b: Builder, device: Device, scheme: Residues, left: Slices, right: Slices, operands: tuple[Operand, Operand],
    shape: tuple[int, ...], triangle: bool = False,
) -> Array:  # fmt: skip
    """Multiply, and return the bytes y_t of products of shape (batch, m, n), which the caller releases.

    They are the first matrices and columns of an array of shape (bytes, batch or more, m, n or more), whose columns are
    padded to pairs of tiles. With `triangle` only tiles that touch the diagonal, or lie below it, are computed.
    """
    batch, m, n = shape
    tiles = device.tiles
    blocks = left.layout.k // tiles.depth
    parts = 1 if triangle else _parts(device, scheme, batch, m, n, blocks)
    planes = b.array("y", (scheme.bytes, parts * batch, m, round_up(n, 2 * tiles.columns)), "B")

    def launch(group: Group, first: int, last: int, shares: int) -> None:
        """Multiply blocks first .. last of k, in `shares` equal parts, each with its own products in the planes."""
        each = (last - first) // shares
        large = len(group.moduli) * shares * batch * m * planes.shape[3] * each * tiles.depth >= _LARGE
        halves = places(device) if large else Places()
        at_a, at_b = ((at[0], group.apart * at[1], at[2]) for at in operands)
        if shares > 1:
            at_a = None, at_a[1], each * tiles.rows * tiles.depth
            at_b = None, at_b[1], each * tiles.columns * tiles.depth
        add = first > 0 or (group.product or 0) > 0
        beginning, kernel = _gemm(
            device, group, (at_a, at_b), (blocks, each, add), (shares * batch, m, n), planes.shape[1], halves, triangle
        )
        slices = (
            x.planes.at.plus(group.slice * x.layout.slice_bytes + first * rows * tiles.depth)
            for x, rows in ((left, tiles.rows), (right, tiles.columns))
        )
        counters = [*beginning.counter(b), *halves.counter(b)]
        b.launch(kernel, *slices, Out(planes.part(0, group.byte, scheme.bytes).at), *map(Out, counters))
        b.release(*counters)

    if parts > 1:
        (group,) = groups_of(scheme)
        each, rest = of_parts(blocks, parts)
        launch(group, 0, parts * each, parts)
        if rest > 0:
            launch(group, parts * each, blocks, 1)
        b.launch(_summing(scheme, parts, m * planes.shape[3]), Out(planes))
    else:
        # The kernel works on two blocks of k at least, so what is left over for the last launch is never less.
        pieces = -(-blocks // deepest(tiles))
        for first, last in pairwise([blocks * i // pieces for i in range(pieces + 1)]):
            for group in groups_of(scheme):
                launch(group, first, last, 1)
    return planes


@cached(1024)
def _gemm(
    device: Device,
    group: Group,
    operands: tuple[Operand, Operand],
    depth: tuple[int, int, bool],
    shape: tuple[int, int, int],
    entries: int,
    halves: Places,
    triangle: bool,
) -> tuple[Together, Kernel]:
    """How clusters begin tiles together, and the launch.

    Parameters
    ----------
    depth : the blocks of k that operands have, those that are multiplied, and whether to add to what planes hold
    shape : (batch, m, n), the shares of k counted as matrices of the batch
    entries : matrices that planes have room for, for each modulus
    triangle : whether tiles above the diagonal are left out
    """
    tiles = device.tiles
    (blocks, taken, add), (batch, m, n) = depth, shape
    cols = round_up(n, 2 * tiles.columns)
    of_moduli = len(group.moduli)
    if triangle:
        grid, wide, *walk = _work_of_triangle(device, of_moduli, batch, n, blocks)
    else:
        grid, wide, *walk = work_of(device, of_moduli, batch, (m,), n, blocks)
    beginning = together(wide, grid // 2, taken)
    macros: Macros = {"ACCUMULATE": int(add), "PAIRS": int(group.product is not None), "TRIANGLE": int(triangle)}
    plane = entries * m * cols
    kernel = Kernel.of(
        "products/residue_gemm_sm90.cu", "residue_gemm", macros, (grid,), (384,), *operands, None,
        group.digits * plane, m * cols, cols, plane, m, taken, blocks, beginning.struct, halves.struct, *walk,
        _moduli(group), shared_mem=tiles.shared_mem,
    )  # fmt: skip
    return beginning, kernel


@cached(256)
def _moduli(group: Group) -> Any:
    """The struct AccumulatorModuli or PairModuli of kernels/arithmetic/residues.cuh."""
    if group.product is None:
        return accumulator_moduli(group.moduli, unsigned=True)
    return struct(constants.pair_moduli(group.moduli, group.product))


@cached(1024)
def _summing(scheme: Residues, parts: int, entries: int) -> Kernel:
    grid, moduli = (ceil(entries / 4096), scheme.count), accumulator_moduli(scheme.moduli, unsigned=True)
    return Kernel.of("conversion/sum_parts.cu", "sum_parts", {}, grid, (256,), None, entries, parts, moduli)


def _work_of_triangle(
    device: Device, matrices: int, batch: int, n: int, blocks: int
) -> tuple[int, int, *tuple[Any, ...]]:
    """What `work_of` returns, for tiles on or below the diagonal, which are all wide (`TRIANGLE` of walk_sm90.cuh)."""
    tiles, clusters = device.tiles, device.clusters
    each, rows = in_triangle(tiles, n), -(-n // tiles.rows)
    wide = matrices * batch * each
    return 2 * clusters, wide, struct([wide, 0, 0, 0]), struct([rows, each, group(tiles, tiles.rows, blocks), batch])


def work_of(
    device: Device, matrices: int, batch: int, rows: tuple[int, ...], n: int, blocks: int
) -> tuple[int, int, *tuple[Any, ...]]:
    """The grid, wide pairs, and structs of kernels/products/walk_sm90.cuh: Work, and Tiles for each number of `rows`.

    `matrices`: products of each matrix of the batch; `blocks`: blocks of k.
    """
    tiles, clusters = device.tiles, device.clusters
    tile_rows = [-(-m // tiles.rows) for m in rows]
    pairs, _, light = columns(tiles, n, matrices * batch * sum(tile_rows), clusters, blocks)
    wide, narrow = (matrices * batch * sum(tile_rows) * each for each in pairs)
    work, grouped = struct([wide, narrow, light, pairs[1]]), group(tiles, tiles.rows, blocks)
    return 2 * clusters, wide, work, *(struct([each, pairs[0], grouped, batch]) for each in tile_rows)
