"""The choices of the word kernels that no method fixes: combinations, rules that filter them, kernels."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar
from unittest import mock

from benchmarks.results import Shape
from ozaki.schemes import Words

COLUMNS = {1: (128, 192, 256), 2: (128, 192, 208)}
"""By words: those that kernels/wgmma_words.cuh has instructions for, and a thread has registers for."""

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

    file: ClassVar[str] = "word_gemm_sm90.cu"
    module: ClassVar[str] = "ozaki.backends._word_hopper"
    rows: ClassVar[int] = 256
    """Of what a group counts: a pair of tiles."""

    def __str__(self) -> str:
        return f"{self.columns} columns, groups of {self.group}, {self.stages} stages"

    @property
    def shared_memory(self) -> int:
        """Bytes of a block: a stage of 128 rows and the columns, 128 bytes each; its two barriers; the alignment."""
        return self.stages * ((128 + self.columns) * 128 + 16) + 1024

    @property
    def constants(self) -> dict[str, int]:
        """Of the kernel's source: none, columns and stages are macros."""
        return {}

    def multiplies(self, words: Words) -> bool:
        """Whether the kernel has such tiles of so many words."""
        return self.columns in COLUMNS[words.count]

    def engine(self) -> Any:
        return import_module(self.module).Engine(self.columns, self.stages, self.group)

    @classmethod
    def of(cls, words: Words, shape: Shape) -> Wgmma:
        """The library's own choice."""
        engine = import_module(cls.module).Engine.of(words, shape.batch, shape.m, shape.k, shape.n)
        return cls(engine.columns, engine.group, engine.stages)

    @classmethod
    def read(cls, text: str) -> Wgmma | None:
        """What a result file says; None of the other kernel."""
        found = re.fullmatch(r"(\d+) columns, groups of (\d+), (\d+) stages", text)
        return found and cls(*map(int, found.groups()))


@dataclass(frozen=True)
class MmaSync:
    """The one choice of kernels/word_mma.cu: row tiles walked together."""

    group: int

    file: ClassVar[str] = "word_mma.cu"
    module: ClassVar[str] = "ozaki.backends._word_mma"
    rows: ClassVar[int] = 128
    shared_memory: ClassVar[int] = 0

    def __str__(self) -> str:
        return f"groups of {self.group}"

    @property
    def constants(self) -> dict[str, int]:
        return {"GROUP": self.group}

    def multiplies(self, words: Words) -> bool:
        return True

    def engine(self) -> Any:
        return import_module(self.module)

    @classmethod
    def of(cls, words: Words, shape: Shape) -> MmaSync:
        from ozaki.backends._jit import folder

        (group,) = re.findall(r"\bGROUP = (\d+)", (folder() / cls.file).read_text())
        return cls(int(group))


Candidate = Wgmma | MmaSync

SPACE: dict[type[Candidate], tuple[Candidate, ...]] = {
    Wgmma: tuple(Wgmma(*choice) for choice in product(sorted({*COLUMNS[1], *COLUMNS[2]}), GROUPS, STAGES)),
    MmaSync: tuple(map(MmaSync, GROUPS)),
}


def fits(candidate: Candidate, words: Words, shared_memory: int) -> bool:
    """Rule: the kernel has such tiles of the words, and a block needs no more shared memory than it can have."""
    return candidate.multiplies(words) and candidate.shared_memory <= shared_memory


def distinct(candidate: Candidate, shape: Shape) -> bool:
    """Rule: the group is the smallest that holds all rows, or smaller; larger ones walk as it does."""
    return candidate.group == 1 or candidate.group // 2 < -(-shape.m // candidate.rows)


def kernel_of(words: Words) -> type[Candidate]:
    """The kernel that is tuned for these words on this device."""
    from ozaki.backends import _word_hopper
    from ozaki.backends._cupy import _word_engine

    return Wgmma if isinstance(_word_engine(words, (1, 1, 1, 1)), _word_hopper.Engine) else MmaSync


def with_constants(text: str, constants: dict[str, int]) -> str:
    """A kernel's source with other values of its constants."""
    for name, value in constants.items():
        text, found = re.subn(rf"\b{name} = \d+(?=[,;])", f"{name} = {value}", text)
        if found != 1:
            raise ValueError(f"{name}: defined {found} times; expected once")
    return text


@contextmanager
def built(candidate: Candidate) -> Iterator[None]:
    """The library with a candidate's kernel in place of its own, where its source has other constants."""
    if not candidate.constants:
        yield
        return
    from ozaki.backends import _jit

    module = import_module(candidate.module)
    caches = _jit._cubin, _jit._function, module._multiplying
    with TemporaryDirectory() as place, ExitStack() as stack:
        stack.callback(lambda: [cache.cache_clear() for cache in caches])
        sources = Path(shutil.copytree(_jit.folder(), Path(place) / "kernels"))
        changed = with_constants((sources / candidate.file).read_text(), candidate.constants)
        (sources / candidate.file).write_text(changed)
        for name, value in {"folder": lambda: sources, "_cache": lambda: Path(place) / "cubins"}.items():
            stack.enter_context(mock.patch.object(_jit, name, value))
        for cache in caches:
            cache.cache_clear()
        yield
