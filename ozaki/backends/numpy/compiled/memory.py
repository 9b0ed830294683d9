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
    """

    __slots__ = ("_memory", "array")

    def __init__(self, shape: tuple[int, ...]) -> None:
        nbytes = prod(shape)
        self._memory = memory = SPARE.take(nbytes + LINE)
        begin = -memory.ctypes.data % LINE
        self.array: Bytes = memory[begin : begin + nbytes].reshape(shape)

    def __del__(self) -> None:
        if hasattr(self, "_memory"):  # else there was none
            SPARE.give(self._memory)
