"""How DTensors of PyTorch are shared out over a mesh of processes, as a distribution. Pure data, without PyTorch."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from math import prod

from ozaki.distributed.layouts import Distribution, Shape, Share, check_size


@dataclass(frozen=True)
class Chunked(Distribution):
    """Chunks over a mesh of processes, dimension after dimension, as placements of a DTensor say.

    A chunk is one of `torch.chunk`: all have as many rows or columns, but for the last ones, which have what is left,
    or none. Two dimensions of the mesh that cut the same axis cut the chunks of the first one once more.

    Attributes
    ----------
    mesh : processes along each dimension of the mesh; ranks count its last dimension first
    axes : by dimension of the mesh, the axis that it cuts, as `Shard(0)` and `Shard(1)` do, or None: `Replicate()`

    Examples
    --------
    >>> from ozaki.distributed import Chunked
    >>> [Chunked((4,), (0,)).share((5, 3), rank, 4).rows for rank in range(4)]
    [range(0, 2), range(2, 4), range(4, 5), range(5, 5)]
    """

    mesh: tuple[int, ...]
    axes: tuple[int | None, ...]

    def __post_init__(self) -> None:
        if len(self.mesh) != len(self.axes) or not all(axis in (0, 1, None) for axis in self.axes):
            raise ValueError(f"axes: {self.axes!r} of a mesh of {self.mesh}; expected 0, 1 or None for each dimension")

    @property
    def T(self) -> Chunked:  # noqa: N802 - as arrays have it
        return replace(self, axes=tuple(None if axis is None else 1 - axis for axis in self.axes))

    def place(self, rank: int) -> tuple[int, ...]:
        """The coordinates of a process in the mesh."""
        found: list[int] = []
        for count in reversed(self.mesh):
            rank, at = divmod(rank, count)
            found.insert(0, at)
        return tuple(found)

    def check(self, size: int) -> None:
        check_size(prod(self.mesh), size)

    def share(self, shape: Shape, rank: int, size: int) -> Share:
        ranges = [range(extent) for extent in shape]
        for parts, axis, number in zip(self.mesh, self.axes, self.place(rank), strict=True):
            if axis is not None:
                ranges[axis] = _chunk(ranges[axis], number, parts)
        return Share(*ranges)

    def replica(self, rank: int) -> int:
        found = 0
        for parts, axis, number in zip(self.mesh, self.axes, self.place(rank), strict=True):
            if axis is None:
                found = found * parts + number
        return found

    def parts(self, rank: int) -> tuple[Hashable, Hashable]:
        rows, cols = (
            tuple(number for of, number in zip(self.axes, self.place(rank), strict=True) if of == axis)
            for axis in (0, 1)
        )
        return rows, cols


def _chunk(of: range, number: int, parts: int) -> range:
    each = -(-len(of) // parts)
    first = min(number * each, len(of))
    return of[first : min(first + each, len(of))]
