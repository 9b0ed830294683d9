"""What a product of many processes would take, known from shapes alone: nothing is started."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from ozaki.backends.numpy import parts
from ozaki.distributed.arrays import shares_of
from ozaki.distributed.layouts import Distribution, ProcessGrid, Slab, check_distribution
from ozaki.distributed.planning import check_shared_out, checked
from ozaki.distributed.sharing import Sharing, Work, shared_out, within
from ozaki.planning.for_shapes import plan_for_shapes
from ozaki.records.formats import DTYPES, format_named
from ozaki.records.options import Options, ProductOptions, takes
from ozaki.records.plan import Plan
from ozaki.records.report import bytes_in_words
from ozaki.records.shapes import length_of, shape_of, shapes


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
    a, b : tuple of int
        Shapes (m, k) and (k, n) of both matrices.
    processes : int
        Number of processes.
    distributions : three Distributions, optional
        Of a, b and the result. Default: rows of a, columns of b, rows of the result.
    grid, layers : as for `ozaki.distributed.matmul`
    **options
        As for `ozaki.plan` of two shapes: `dtype`, and a number of slices, or an accuracy that shapes can prove.
        `workspace_limit` is that of each process: blocks and panels are made so small that they keep within it.

    Returns
    -------
    Outline

    Raises
    ------
    ValueError, TypeError, NotImplementedError
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
        raise ValueError(f"dtype: {asked.dtype!r}; expected one of {', '.join(DTYPES)}, that of the operands")
    for name, shape in (("a", a), ("b", b)):
        if not isinstance(shape, tuple) or len(shape_of(name, shape)) != 2:
            raise ValueError(f"{name}: shape {shape!r}; expected that of a matrix, (rows, columns)")
    sizes = shapes(shape_of("a", a), shape_of("b", b))
    check_shared_out(asked)
    made = checked(plan_for_shapes(sizes, dtype, asked._replace(reproducible=True, workspace_limit=None)))
    scheme: Any = made.scheme
    engine = parts.engine_for(scheme, length_of(made.shape[1], made.parts), made.engine)
    element = np.dtype(dtype).itemsize
    work = work_of(engine, element)
    sharing = within(shared_out(sizes.shape, processes, grid, layers), work, asked.workspace_limit)
    m, k, n = sizes.shape
    of_shares = [0] * processes
    chosen = distributions or (Slab.X, Slab.Y, Slab.X)
    if len(chosen) != 3:
        raise ValueError(f"distributions: {len(chosen)}; expected 3: of a, of b and of the result")
    for distribution, shape in zip(chosen, ((m, k), (k, n), (m, n)), strict=True):
        check_distribution(distribution)
        distribution.check(processes)
        distribution.check_cover(shape)
        for rank, share in enumerate(shares_of(distribution, shape, processes)):
            of_shares[rank] += element * share.shape[0] * share.shape[1]
    return Outline(made, sharing, tuple(of_shares), (sharing.bytes_held(work),) * processes)


def work_of(engine: Any, element: int) -> Work:
    """What a product by an engine asks of a process, of elements of so many bytes."""
    planes = engine.sums or engine.planes
    of_slice = 1 if engine.of_int8 and engine.by != "BLAS" else 8
    return Work(element, planes * max(engine.sum_bytes, 4), engine.planes * of_slice)
