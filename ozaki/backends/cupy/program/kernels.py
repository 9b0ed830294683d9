"""Kernels as data: their source, grid and arguments, all but addresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ozaki.backends.cupy.program.arrays import View

Macros = dict[str, str | int]


@dataclass(frozen=True, eq=False)
class Kernel:
    """A kernel with its grid and all arguments but addresses; these follow from the views of arrays alone.

    Attributes
    ----------
    file, function, macros : as for `compiling.kernel`
    grid, block : three sizes each, in blocks and in threads; a grid with a zero, as for arrays without elements, is not
        launched, since CUDA would report an error
    shared_mem : bytes of dynamic shared memory of a block
    pieces : all arguments one after the other, in pieces of eight bytes, 0 in place of an address
    addresses : the numbers of the pieces that are addresses
    starts : the number of the first piece of each argument
    """

    file: str
    function: str
    macros: Mapping[str, str | int]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_mem: int
    pieces: tuple[int, ...]
    addresses: tuple[int, ...]
    starts: tuple[int, ...]

    @classmethod
    def of(
        cls,
        file: str,
        function: str,
        macros: Macros,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        *arguments: Any,
        shared_mem: int = 0,
    ) -> Kernel:
        """A kernel with its arguments.

        `arguments`: None for an address; an int for an integer of any size, of which the kernel reads as many low bytes
        as it declares; a float for a double; a `struct`; or a tuple of these for a struct with members of eight bytes.
        """
        pieces: list[int | None] = []
        starts = []
        for x in arguments:
            starts.append(len(pieces))
            pieces += _pieces(x)
        return cls(
            file, function, macros, _three_sizes(grid), _three_sizes(block), shared_mem,
            tuple(piece or 0 for piece in pieces), tuple(i for i, piece in enumerate(pieces) if piece is None),
            tuple(starts),
        )  # fmt: skip

    @property
    def launched(self) -> bool:
        """Whether the grid has any blocks."""
        return all(self.grid)


def _three_sizes(sizes: tuple[int, ...]) -> tuple[int, int, int]:
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def _pieces(x: Any) -> list[int | None]:
    """An argument in pieces of eight bytes; None for an address."""
    if x is None:
        return [None]
    if isinstance(x, tuple):
        return [piece for each in x for piece in _pieces(each)]
    if isinstance(x, np.ndarray):
        memory = x.tobytes()
    else:
        memory = np.float64(x).tobytes() if isinstance(x, float) else np.int64(x).tobytes()
    memory += bytes(-len(memory) % 8)
    return [int(piece) for piece in np.frombuffer(memory, np.uint64)]


def struct(numbers: Sequence[int]) -> Any:
    """A kernel argument: a struct of uint32 members, passed by value."""
    return np.array(numbers, np.uint32).view(f"V{4 * len(numbers)}")


def output(c: View, mu_step: int, nu_step: int) -> tuple[Any, ...]:
    """The struct Output of kernels, without addresses: a result, shape (batch, m, n), and the exponents that scale it.

    `mu_step`, `nu_step`: entries of the exponents mu and nu from one matrix of the batch to the next.
    """
    _, m, n = c.shape
    return None, *c.steps[:2], None, None, mu_step, nu_step, m | n << 32
