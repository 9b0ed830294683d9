"""What a product of many processes would take, known from shapes alone: nothing is started."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from ozaki.backends.numpy import parts
from ozaki.distributed.arrays import shares_of
from ozaki.distributed.layouts import Distribution, ProcessGrid, Slab, check_distribution
from ozaki.distributed.sharing import Sharing, Work, shared_out, within
from ozaki.planning.for_shapes import plan_for_shapes
from ozaki.records.formats import DTYPES, format_named
from ozaki.records.options import Options, ProductOptions, takes
from ozaki.records.plan import Plan
from ozaki.records.report import bytes_in_words
from ozaki.records.shapes import shape_of, shapes
from ozaki.schemes import ComplexResidues


@dataclass(frozen=True)
class Outline:
    """A product of many processes before it runs.

    Attributes
    ----------
    plan : Plan
        Made for shapes alone.
    sharing : Sharing
        Who computes what.
    shares : tuple of int
        For each process, the bytes of its shares of both operands and of the result.
    workspace : tuple of int
        For each process, most bytes that it holds beside these.
    """

    plan: Plan
    sharing: Sharing
    shares: tuple[int, ...]
    workspace: tuple[int, ...]

    @property
    def peak(self) -> int:
        """Most bytes that any process holds."""
        return max(map(sum, zip(self.shares, self.workspace, strict=True)))

    def __str__(self) -> str:
        grid, blocks = self.sharing.grid.shape, self.sharing.blocks
        lines = [
            str(self.plan),
            f"{self.sharing.size} processes: {grid[0]} x {grid[1]} tiles, {self.sharing.layers} of k, panels of "
            f"{self.sharing.width} inner indices, {blocks[0]} x {blocks[1]} blocks of a tile",
        ]
        lines += [
            f"process {rank}: {bytes_in_words(share + work)}, of which {bytes_in_words(share)} operands and result"
            for rank, (share, work) in enumerate(zip(self.shares, self.workspace, strict=True))
        ]
        return "\n".join(lines)


@takes(ProductOptions)
def plan(
    a: tuple[int, int],
    b: tuple[int, int],
    processes: int,
    *,
    distributions: tuple[Distribution, Distribution, Distribution] | None = None,
    grid: ProcessGrid | None = None,
    layers: int | None = None,
    **options: Unpack[ProductOptions],
) -> Outline:
    """Say how a product would be shared out, and what each process would hold, without starting anything.

    Parameters
    ----------
    a, b : shapes of both matrices
    processes : number of processes
    distributions : of a, b and the result. Default: rows of a, columns of b, rows of the result
    grid, layers : as for `ozaki.distributed.matmul`
    **options
        As for `ozaki.plan` of two shapes: `dtype`, and a number of slices, or an accuracy that shapes can prove.
        `workspace_limit` is that of each process: blocks and panels are made so small that they keep within it.

    Returns
    -------
    Outline

    Raises
    ------
    ValueError, TypeError
        For an argument that cannot be used, or a limit that the smallest blocks exceed.

    Examples
    --------
    >>> from ozaki.distributed import plan
    >>> found = plan((200_000, 20_000), (20_000, 200_000), 8, dtype="float64", scheme="residues", slices=14,
    ...     workspace_limit=16 * 2**30)
    >>> found.sharing.grid.shape, max(found.workspace) <= 16 * 2**30
    ((2, 4), True)
    """
    asked = Options.of("plan", options)
    if isinstance(processes, bool) or not isinstance(processes, int) or processes < 1:
        raise ValueError(f"processes: {processes!r}; expected a whole number, at least 1")
    dtype = format_named(asked.dtype)
    if dtype not in DTYPES:
        raise ValueError(f"dtype: {asked.dtype!r}; expected one of {', '.join(DTYPES)}")
    if not isinstance(a, tuple) or not isinstance(b, tuple) or len(a) != 2 or len(b) != 2:
        raise ValueError(f"a: shapes {a!r} and {b!r}; expected those of two matrices, as tuples")
    sizes = shapes(shape_of("a", a), shape_of("b", b))
    made = plan_for_shapes(sizes, dtype, asked._replace(reproducible=True, workspace_limit=None))
    assert made.scheme is not None
    scheme: Any = made.scheme
    reals = sizes.shape[1] * (2 if isinstance(scheme, ComplexResidues) else 1)
    engine = parts.engine_for(
        scheme.slices if isinstance(scheme, ComplexResidues) else scheme, max(reals, 1), made.engine
    )
    work = work_of(engine, np.dtype(dtype).itemsize)
    sharing = within(shared_out(sizes.shape, processes, grid, layers), work, asked.workspace_limit)
    (m, k, n), element = sizes.shape, np.dtype(dtype).itemsize
    held = [0] * processes
    chosen = distributions or (Slab.X, Slab.Y, Slab.X)
    if len(chosen) != 3:
        raise ValueError(f"distributions: {chosen!r}; expected three, of a, b and the result")
    for distribution, shape in zip(chosen, ((m, k), (k, n), (m, n)), strict=True):
        check_distribution(distribution)
        distribution.check(processes)
        distribution.check_cover(shape)
        for rank, share in enumerate(shares_of(distribution, shape, processes)):
            held[rank] += element * share.shape[0] * share.shape[1]
    return Outline(made, sharing, tuple(held), (sharing.bytes_held(work),) * processes)


def work_of(engine: Any, element: int) -> Work:
    """What a product by an engine asks of a process, of elements of so many bytes."""
    planes = engine.sums or engine.planes
    of_slice = 1 if engine.of_int8 and engine.by != "BLAS" else 8
    return Work(element, planes * max(engine.sum_bytes, 4), engine.planes * of_slice)
