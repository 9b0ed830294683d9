"""Memory for slices that is used again: the system takes longer to clear new pages than to fill them with slices."""

from __future__ import annotations

from math import prod

import numpy as np
import numpy.typing as npt

from ozaki.caches import CacheInfo, register
from ozaki.locks import Lock

LINE = 64
"""Bytes of a line of the processor's cache."""

_MOST_BYTES = 2**28
"""Most bytes that are spare."""

_FEW = 2**16
"""Bytes of memory that is soon had anew: less than this is not kept."""

Bytes = npt.NDArray[np.int8]


class SpareMemory:
    """Memory that no product uses at present, as a cache: at most 256 MiB, of the sizes that were asked for last."""

    def __init__(self) -> None:
        self._changing = Lock()
        self._spare: list[Bytes] = []
        self._hits = self._misses = 0

    def take(self, nbytes: int) -> Bytes:
        """Memory of at least so many bytes, with whatever it holds: the least that is spare and suffices.

        If none suffices, all that is spare is freed, so that no more is held than the last product held.
        """
        with self._changing.held:
            fitting = [i for i, memory in enumerate(self._spare) if memory.size >= nbytes]
            if fitting:
                self._hits += 1
                return self._spare.pop(min(fitting, key=lambda i: self._spare[i].size))
            self._misses += 1
            self._spare.clear()
        return np.empty(nbytes, np.int8)

    def give(self, memory: Bytes) -> None:
        """Keep memory for others; what has been spare for longest is freed where there is too much."""
        with self._changing.held:
            self._spare.append(memory)
            while sum(x.size for x in self._spare) > _MOST_BYTES:
                del self._spare[0]

    def info(self, name: str) -> CacheInfo:
        """What it holds."""
        nbytes = sum(x.size for x in self._spare)
        return CacheInfo(name, len(self._spare), None, self._hits, self._misses, nbytes)

    def clear(self) -> None:
        """Free all of it."""
        with self._changing.held:
            self._spare, self._hits, self._misses = [], 0, 0


SPARE = register("memory of int8 slices", SpareMemory())


class Block:
    """An array of bytes that begins with a line of the processor's cache; its memory is spare once the block is freed.

    Attributes
    ----------
    array : as long as the block lives
    address : where it begins
    """

    __slots__ = ("_memory", "address", "array")

    def __init__(self, shape: tuple[int, ...]) -> None:
        nbytes = prod(shape)
        few = nbytes < _FEW
        memory = np.empty(nbytes + LINE, np.int8) if few else SPARE.take(nbytes + LINE)
        self._memory = None if few else memory
        found: int = memory.ctypes.data
        begin = -found % LINE
        self.address = found + begin
        self.array: Bytes = memory[begin : begin + nbytes].reshape(shape)

    def keep(self) -> None:
        """Leave the memory to whoever uses the array, for long: it is not spare when that is freed."""
        self._memory = None

    def __del__(self) -> None:
        memory: Bytes | None = getattr(self, "_memory", None)
        if memory is not None:  # else there was none
            SPARE.give(memory)
