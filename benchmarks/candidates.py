"""The choices of the word kernels that no method fixes: combinations, and rules that filter them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from typing import Any, ClassVar, Self

from benchmarks.results import Shape
from ozaki.schemes import Words
from ozaki.schemes.words import groups

COLUMNS = {1: (128, 192, 208, 256), 2: (128, 192, 208)}
"""By words, or sets of sums: those that kernels/wgmma_words.cuh has instructions for, and threads have registers."""

GROUPS = (1, 2, 4, 8, 16, 32)

STAGES = (4, 5, 6, 7)


@dataclass(frozen=True)
class Wgmma:
    """Choices of kernels/word_gemm_sm90.cu.

    Attributes
    ----------
    columns : of a tile
    group : row-tile pairs walked together
    stages : of the ring in shared memory
    """

    columns: int
    group: int
    stages: int

    module: ClassVar[str] = "ozaki.backends.cupy.engines._word_hopper"
    rows: ClassVar[int] = 256
    """Of what a group counts: a pair of tiles."""

    def __str__(self) -> str:
        return f"{self.columns} columns, groups of {self.group}, {self.stages} stages"

    def shared_memory(self, words: Words) -> int:
        """Bytes of a block: a stage of 128 rows and the columns, 128 bytes each; its two barriers; the alignment."""
        return self.stages * ((128 + self.columns) * 128 + 16) + 1024

    def multiplies(self, words: Words) -> bool:
        """Whether the kernel has such tiles of so many words."""
        return self.columns in COLUMNS.get(words.count, ())

    def engine(self) -> Any:
        return import_module(self.module).Engine(self.columns, self.group, self.stages)

    @classmethod
    def of(cls, words: Words, shape: Shape) -> Self:
        """The library's own choice."""
        engine = import_module(cls.module).Engine.of(words, shape.batch, shape.m, shape.k, shape.n)
        return cls(engine.columns, engine.group, engine.stages)


@dataclass(frozen=True)
class WgmmaOfPairs(Wgmma):
    """The same of kernels/word_pairs_sm90.cu."""

    module: ClassVar[str] = "ozaki.backends.cupy.engines._word_pairs"

    def multiplies(self, words: Words) -> bool:
        """Whether a thread has registers for such tiles and the totals beside them."""
        if words.promotion == "fp64":
            return self.columns == 128
        several = words.block is not None or len(groups(words)) > 1
        return self.columns in COLUMNS[2 if several else 1]


@dataclass(frozen=True)
class MmaSync:
    """Choices of kernels/word_mma.cu.

    Attributes
    ----------
    warps : of a block, 4 (of which a multiprocessor has two) or 8
    height, width : of what a warp owns
    units : of k, of 32 bytes, held at a time
    group : row tiles walked together
    """

    warps: int
    height: int
    width: int
    units: int
    group: int

    module: ClassVar[str] = "ozaki.backends.cupy.engines._word_mma"
    rows: ClassVar[int] = 128

    def __str__(self) -> str:
        tile = f"{self.warps} warps of {self.height} x {self.width}"
        return f"{tile}, {self.units} units of k, groups of {self.group}"

    @property
    def columns(self) -> int:
        """Of a block's tile."""
        return self.warps * self.height // self.rows * self.width

    def shared_memory(self, words: Words) -> int:
        """Bytes for all blocks of a multiprocessor: units that are multiplied and as many that come."""
        return 8 // self.warps * (2 * self.units * words.count * (self.rows + self.columns) * 32 + 1024)

    def multiplies(self, words: Words) -> bool:
        """Whether a row of operands is padded to whole tiles, and a thread has registers for its sums."""
        outside = int(words.block is not None) + int(len(groups(words)) > 1)
        sums = 1 + outside * (2 if words.promotion == "fp64" else 1)
        return 16 <= self.columns <= 128 and self.height * self.width // 32 * sums <= REGISTERS

    def engine(self) -> Any:
        return import_module(self.module).Engine(self.warps, self.height, self.width, self.units, self.group)

    @classmethod
    def of(cls, words: Words, shape: Shape) -> MmaSync:
        """The library's own choice."""
        engine = import_module(cls.module).Engine.of(words, shape.batch, shape.m, shape.k, shape.n)
        return cls(engine.warps, engine.rows, engine.columns, engine.units, engine.group)


REGISTERS = 192
"""For sums, of the 255 of a thread."""

Candidate = Wgmma | MmaSync


def numbers(text: str) -> tuple[int, ...]:
    """What a candidate is made of, as it says itself, and its engine is made of the same."""
    return tuple(map(int, re.findall(r"\d+", text)))


SPACE: dict[type[Candidate], tuple[Candidate, ...]] = {
    **{
        kernel: tuple(kernel(*choice) for choice in product(sorted({*COLUMNS[1], *COLUMNS[2]}), GROUPS, STAGES))
        for kernel in (Wgmma, WgmmaOfPairs)
    },
    MmaSync: tuple(MmaSync(*choice) for choice in product((4, 8), (32, 64), (16, 32, 64), (2, 4, 8), GROUPS)),
}


def fits(candidate: Candidate, words: Words, shared_memory: int) -> bool:
    """Rule: the kernel has such tiles of the words, and a block needs no more shared memory than it can have."""
    return candidate.multiplies(words) and candidate.shared_memory(words) <= shared_memory


def distinct(candidate: Candidate, shape: Shape) -> bool:
    """Rule: the group is the smallest that holds all rows, or smaller; larger ones walk as it does."""
    return candidate.group == 1 or candidate.group // 2 < -(-shape.m // candidate.rows)


def kernel_of(words: Words) -> type[Candidate]:
    """The kernel that is tuned for these words on this device."""
    from ozaki.backends.cupy._choice import word_engine

    module = type(word_engine(words, (1, 1, 1, 1))).__module__
    return next(kernel for kernel in SPACE if kernel.module == module)
