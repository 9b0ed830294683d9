"""How a matrix is shared out over processes: which rows and columns each one has. Pure data, in nvmath's words.

A process has the elements at some rows and some columns, as one matrix; both are ascending. The names `ProcessGrid`,
`Slab`, `BlockCyclic`, `BlockNonCyclic` and `Box` are those of nvmath.distributed, and so is what they mean.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from operator import index
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

Index = range | npt.NDArray[np.int64]
"""Numbers of rows or columns, ascending: a range of step 1, or an array."""

Shape = tuple[int, int]


class Share(NamedTuple):
    """What a process has of a matrix: the elements at these rows and columns."""

    rows: Index
    cols: Index

    @property
    def shape(self) -> Shape:
        """Shape of the matrix that it holds."""
        return len(self.rows), len(self.cols)

    @property
    def T(self) -> Share:  # noqa: N802 - as arrays have it
        """That of the transpose."""
        return Share(self.cols, self.rows)


class Distribution:
    """How matrices are shared out; every subclass says `share` and `T`, and `parts` or `shape_of`.

    Distributions are equal if they share out alike.
    """

    @property
    def T(self) -> Distribution:  # noqa: N802
        """The distribution of the transpose of a matrix with this one."""
        raise NotImplementedError

    def share(self, shape: Shape, rank: int, size: int) -> Share:
        """What process `rank` of `size` has of a matrix of this shape."""
        raise NotImplementedError

    def replica(self, rank: int) -> int:
        """Number of the copy of the whole matrix that the process has a share of: 0 unless there are several."""
        return 0

    def parts(self, rank: int) -> tuple[Hashable, Hashable]:
        """Which part of the rows a process has, and which of the columns: equal for those that have the same."""
        raise NotImplementedError

    def check(self, size: int) -> None:
        """Refuse a number of processes that it is not for.

        Raises
        ------
        ValueError
        """

    def check_cover(self, shape: Shape) -> None:
        """Refuse a matrix of a shape of which not every element is held, or one twice in a copy.

        Raises
        ------
        ValueError
        """

    def shape_of(self, shapes: Sequence[Shape]) -> Shape:
        """The shape of the matrix of which processes have shares of these shapes, by rank.

        Where shapes contradict one another, most of the processes that have a part count: so the others can be named.

        Raises
        ------
        ValueError
            If they are those of no matrix, and it is not known which one is wrong.
        """
        found = []
        for axis in (0, 1):
            extents: defaultdict[Hashable, Counter[int]] = defaultdict(Counter)
            for rank, shape in enumerate(shapes):
                extents[self.parts(rank)[axis]][shape[axis]] += 1
            found.append(sum(each.most_common(1)[0][0] for each in extents.values()))
        return found[0], found[1]


def part_of(count: int, number: int, parts: int) -> range:
    """Part `number` of `count` things shared out evenly, in order: the first parts have one more."""
    each, more = divmod(count, parts)
    first = number * each + min(number, more)
    return range(first, first + each + (number < more))


@dataclass(frozen=True)
class Slab(Distribution):
    """Rows (`Slab.X`) or columns (`Slab.Y`) shared out evenly, in the order of ranks.

    Attributes
    ----------
    axis : 0 or 1

    Examples
    --------
    >>> from ozaki.distributed import Slab
    >>> Slab.X.share((10, 4), rank=0, size=3)
    Share(rows=range(0, 4), cols=range(0, 4))
    """

    axis: Literal[0, 1]

    X: ClassVar[Slab]
    Y: ClassVar[Slab]

    def __post_init__(self) -> None:
        if self.axis not in (0, 1):
            raise ValueError(f"axis: {self.axis!r}; expected 0 or 1")

    def __repr__(self) -> str:
        return f"Slab.{'XY'[self.axis]}"

    @property
    def T(self) -> Slab:  # noqa: N802
        return Slab(1) if self.axis == 0 else Slab(0)

    def share(self, shape: Shape, rank: int, size: int) -> Share:
        mine, others = part_of(shape[self.axis], rank, size), range(shape[1 - self.axis])
        return Share(mine, others) if self.axis == 0 else Share(others, mine)

    def parts(self, rank: int) -> tuple[Hashable, Hashable]:
        return (rank, 0) if self.axis == 0 else (0, rank)


Slab.X, Slab.Y = Slab(0), Slab(1)


@dataclass(frozen=True)
class ProcessGrid:
    """Processes as a grid.

    Attributes
    ----------
    shape : numbers of rows and columns of processes
    layout : "row-major" or "column-major": which ranks are neighbours
    """

    shape: Shape
    layout: Literal["row-major", "column-major"] = "row-major"

    def __post_init__(self) -> None:
        _take_pair(self, "shape", "two numbers of processes, both at least 1", 1)
        if self.layout not in ("row-major", "column-major"):
            raise ValueError(f"layout: {self.layout!r}; expected 'row-major' or 'column-major'")

    @property
    def size(self) -> int:
        """Number of processes."""
        return self.shape[0] * self.shape[1]

    @property
    def T(self) -> ProcessGrid:  # noqa: N802
        """The grid with rows and columns of processes exchanged."""
        layout: Any = "column-major" if self.layout == "row-major" else "row-major"
        return ProcessGrid((self.shape[1], self.shape[0]), layout)

    def place(self, rank: int) -> tuple[int, int]:
        """Row and column of a process."""
        if self.layout == "row-major":
            return divmod(rank, self.shape[1])
        col, row = divmod(rank, self.shape[0])
        return row, col


@dataclass(frozen=True)
class BlockCyclic(Distribution):
    """Blocks dealt out to a grid of processes in turn, along both axes, as ScaLAPACK does.

    Attributes
    ----------
    process_grid : ProcessGrid
    block_sizes : rows and columns of a block
    first_process : row and column of the process that has the first block

    Examples
    --------
    >>> from ozaki.distributed import BlockCyclic, ProcessGrid
    >>> BlockCyclic(ProcessGrid((2, 1)), (2, 3)).share((7, 3), rank=0, size=2).rows
    array([0, 1, 4, 5])
    """

    process_grid: ProcessGrid
    block_sizes: tuple[int, int]
    first_process: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        check_grid("process_grid", self.process_grid)
        _take_pair(self, "block_sizes", "two sizes, both at least 1", 1)
        _take_pair(self, "first_process", "the row and the column of a process", 0)
        places = zip(self.first_process, self.process_grid.shape, strict=True)
        if not all(0 <= place < count for place, count in places):
            raise ValueError(
                f"first_process: {self.first_process!r}; expected a place in the grid {self.process_grid.shape}"
            )

    @property
    def T(self) -> BlockCyclic:  # noqa: N802
        (rows, cols), (row, col) = self.block_sizes, self.first_process
        return BlockCyclic(self.process_grid.T, (cols, rows), (col, row))

    def check(self, size: int) -> None:
        check_size(self.process_grid.size, size)

    def share(self, shape: Shape, rank: int, size: int) -> Share:
        axes = zip(
            shape, self.block_sizes, self.process_grid.place(rank), self.first_process, self.process_grid.shape,
            strict=True,
        )  # fmt: skip
        return Share(
            *(_dealt(count, block, (place - first) % turns, turns) for count, block, place, first, turns in axes)
        )

    def parts(self, rank: int) -> tuple[Hashable, Hashable]:
        return self.process_grid.place(rank)


@dataclass(frozen=True)
class BlockNonCyclic(Distribution):
    """One block for each process of a grid: rows and columns shared out evenly.

    Attributes
    ----------
    process_grid : ProcessGrid
    """

    process_grid: ProcessGrid

    def __post_init__(self) -> None:
        check_grid("process_grid", self.process_grid)

    @property
    def T(self) -> BlockNonCyclic:  # noqa: N802
        return BlockNonCyclic(self.process_grid.T)

    def check(self, size: int) -> None:
        check_size(self.process_grid.size, size)

    def share(self, shape: Shape, rank: int, size: int) -> Share:
        places = zip(shape, self.process_grid.place(rank), self.process_grid.shape, strict=True)
        return Share(*(part_of(count, place, parts) for count, place, parts in places))

    def parts(self, rank: int) -> tuple[Hashable, Hashable]:
        return self.process_grid.place(rank)


@dataclass(frozen=True)
class Box:
    """The box that one process has: rows lower[0] to upper[0] - 1, columns lower[1] to upper[1] - 1.

    Each process names its own; together they are a distribution (`Boxes`).
    """

    lower: tuple[int, int]
    upper: tuple[int, int]

    def __post_init__(self) -> None:
        for name in ("lower", "upper"):
            _take_pair(self, name, "a row and a column, none negative", 0)

    @property
    def T(self) -> Box:  # noqa: N802
        """The box of the transpose."""
        return Box(self.lower[::-1], self.upper[::-1])

    @property
    def share(self) -> Share:
        """What the process has."""
        return Share(*(range(first, max(last, first)) for first, last in zip(self.lower, self.upper, strict=True)))


@dataclass(frozen=True)
class Boxes(Distribution):
    """A box for each process.

    Attributes
    ----------
    boxes : by rank; those of a copy cover the matrix without overlap
    replicas : for each process the number of the copy of the matrix that its box belongs to; () if there is one
    """

    boxes: tuple[Box, ...]
    replicas: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "boxes", tuple(self.boxes))
        object.__setattr__(self, "replicas", tuple(self.replicas))
        for box in self.boxes:
            if not isinstance(box, Box):
                raise TypeError(f"boxes: {box!r}; expected a Box(lower, upper) of each process")
        if self.replicas and len(self.replicas) != len(self.boxes):
            raise ValueError(f"replicas: {len(self.replicas)} numbers; expected {len(self.boxes)}, one for each box")

    @property
    def T(self) -> Boxes:  # noqa: N802
        return replace(self, boxes=tuple(box.T for box in self.boxes))

    def check(self, size: int) -> None:
        check_size(len(self.boxes), size)

    def share(self, shape: Shape, rank: int, size: int) -> Share:
        return self.boxes[rank].share

    def replica(self, rank: int) -> int:
        return self.replicas[rank] if self.replicas else 0

    def shape_of(self, shapes: Sequence[Shape]) -> Shape:
        ends = [box.upper for box in self.boxes if 0 not in box.share.shape] or [box.upper for box in self.boxes]
        found = max((end[0] for end in ends), default=0), max((end[1] for end in ends), default=0)
        self.check_cover(found)
        return found

    def check_cover(self, shape: Shape) -> None:
        for copy in sorted(set(self.replicas)) or (0,):
            of_copy = [box for rank, box in enumerate(self.boxes) if self.replica(rank) == copy]
            filled = [(*box.lower, *box.upper) for box in of_copy if 0 not in box.share.shape]
            area = sum((row_end - row) * (col_end - col) for row, col, row_end, col_end in filled)
            ends = np.array(filled, np.int64).reshape(-1, 4)
            lower, upper = ends[:, :2], ends[:, 2:]
            overlap = any(
                ((np.maximum(lower[i], lower[:i]) < np.minimum(upper[i], upper[:i])).all(axis=1)).any()
                for i in range(len(ends))
            )
            if area != shape[0] * shape[1] or overlap or (upper > shape).any():
                raise ValueError(
                    f"distribution: boxes of {area} elements for a matrix of shape {shape}; expected boxes that cover "
                    "it without overlap"
                )


@dataclass(frozen=True)
class Replicated(Distribution):
    """The whole matrix on every process."""

    @property
    def T(self) -> Replicated:  # noqa: N802
        return self

    def share(self, shape: Shape, rank: int, size: int) -> Share:
        return Share(range(shape[0]), range(shape[1]))

    def replica(self, rank: int) -> int:
        return rank

    def parts(self, rank: int) -> tuple[Hashable, Hashable]:
        return 0, 0


def _take_pair(of: Any, name: str, expected: str, least: int) -> None:
    """Make an attribute that a caller gives two whole numbers, of Python.

    Raises
    ------
    ValueError
    """
    given = getattr(of, name)
    try:
        pair = tuple(map(index, given))
    except TypeError:
        pair = ()
    if len(pair) != 2 or min(pair) < least:
        raise ValueError(f"{name}: {given!r}; expected {expected}")
    object.__setattr__(of, name, pair)


def check_distribution(distribution: object) -> None:
    """Refuse what is no distribution.

    Raises
    ------
    TypeError
    """
    if not isinstance(distribution, Distribution):
        raise TypeError(f"distribution: {distribution!r}; expected one of all processes, as Slab.X or BlockCyclic(...)")


def check_grid(name: str, grid: object) -> None:
    """Refuse what is no grid of processes.

    Raises
    ------
    TypeError
    """
    if not isinstance(grid, ProcessGrid):
        raise TypeError(f"{name}: {grid!r}; expected a ProcessGrid, as ProcessGrid((2, 3))")


def check_size(expected: int, size: int) -> None:
    """Refuse a number of processes that a distribution is not for.

    Raises
    ------
    ValueError
    """
    if expected != size:
        raise ValueError(f"distribution: for {expected} processes, but there are {size}; expected one for {size}")


def _dealt(count: int, block: int, turn: int, turns: int) -> Index:
    """The numbers below `count` in blocks turn, turn + turns, ... of so many numbers each."""
    if turns == 1:
        return range(count)
    firsts = np.arange(turn * block, count, turns * block, dtype=np.int64)
    if len(firsts) <= 1:
        first = int(firsts[0]) if len(firsts) else count
        return range(first, min(first + block, count) if len(firsts) else count)
    found = (firsts[:, None] + np.arange(block)).ravel()
    return found[found < count]


def as_index(of: Index) -> Any:
    """Numbers of rows or columns as an index of an array: a slice, where they are a range."""
    return slice(of.start, of.stop) if isinstance(of, range) else of


# Where two sets of rows or columns meet -------------------------------------------------------------------------------

Positions = slice | npt.NDArray[np.int64]
"""Places within an index: a slice where they are neighbours."""


def common(have: Index, want: Index) -> tuple[int, Positions, Positions]:
    """How many numbers are in both, and their places in either.

    Examples
    --------
    >>> common(range(2, 6), range(4, 9))
    (2, slice(2, 4, None), slice(0, 2, None))
    """
    if isinstance(have, range) and isinstance(want, range):
        first, last = max(have.start, want.start), min(have.stop, want.stop)
        count = max(last - first, 0)
        return count, _run(first - have.start, count), _run(first - want.start, count)
    if isinstance(want, range):
        at = _within(have, want)
        inside = np.asarray(have)[at] - want.start
        return len(inside), at, _as_slice(inside)
    if isinstance(have, range):
        count, of_want, of_have = common(want, have)
        return count, of_have, of_want
    _, of_have, of_want = np.intersect1d(have, want, assume_unique=True, return_indices=True)
    return len(of_have), _as_slice(of_have), _as_slice(of_want)


def _run(first: int, count: int) -> slice:
    return slice(first, first + count) if count else slice(0, 0)


def _within(have: Index, want: range) -> slice:
    """The places of an ascending array at which it is within a range."""
    first, last = np.searchsorted(np.asarray(have), (want.start, want.stop))
    return slice(int(first), int(max(first, last)))


def _as_slice(at: npt.NDArray[np.int64]) -> Positions:
    """Places as a slice, if they are neighbours."""
    if len(at) == 0:
        return slice(0, 0)
    if int(at[-1] - at[0]) == len(at) - 1:
        return slice(int(at[0]), int(at[-1]) + 1)
    return at
