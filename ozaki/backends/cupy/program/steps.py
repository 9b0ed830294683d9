"""The steps of a program: immutable data that say what is done with which places, and on which stream."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from ozaki.backends.cupy.program.arrays import Array, Buffer, Place
from ozaki.backends.cupy.program.kernels import Kernel

Stream = Literal["main", "proof", "answers"]
"""The streams of a program: the one that is current when it runs; one of proofs, whose blocks start before those that
wait on other streams; one of what proofs bring to the host, so that it does not wait for what the proof does next."""

STREAMS: tuple[Stream, ...] = ("main", "proof", "answers")


class Out(NamedTuple):
    """An argument of a kernel that it writes, and may read before, as a counter."""

    place: Place


@dataclass(frozen=True, eq=False)
class Step:
    """Something that a stream does, or, of memory of the host, that the host does when it gets there."""

    stream: Stream

    @property
    def reads(self) -> tuple[Place, ...]:
        """What it reads."""
        return ()

    @property
    def writes(self) -> tuple[Place, ...]:
        """What it writes."""
        return ()

    @cached_property
    def buffers(self) -> tuple[Buffer, ...]:
        """All that it touches."""
        return tuple({place.buffer: None for place in (*self.reads, *self.writes)})

    @property
    def name(self) -> str:
        """What it does, for people."""
        raise NotImplementedError

    @property
    def details(self) -> str:
        """What else a reader may want to know."""
        return ""

    def __str__(self) -> str:
        names = (
            ", ".join(dict.fromkeys(place.buffer.name for place in places)) for places in (self.reads, self.writes)
        )
        read, written = names
        arrow = f"{read} -> {written}" if read and written else read or (f"-> {written}" if written else "")
        where = "" if self.stream == "main" else f"on the stream of {self.stream}"
        return "   ".join(filter(None, (f"{self.name:<20} {arrow:<36}".rstrip(), self.details, where)))


@dataclass(frozen=True, eq=False)
class Launch(Step):
    """A kernel with its addresses, of which it writes those of the numbers `written`.

    `overlaps`: it begins right after the step before it, and does not wait until that is over
    (kernels/hardware/launch.cuh), so neither may write what the other one reads or writes.
    """

    kernel: Kernel
    places: tuple[Place, ...]
    written: frozenset[int]
    overlaps: bool = False

    @cached_property
    def buffers(self) -> tuple[Buffer, ...]:
        return tuple({place.buffer: None for place in self.places})

    @property
    def reads(self) -> tuple[Place, ...]:
        return tuple(place for i, place in enumerate(self.places) if i not in self.written)

    @property
    def writes(self) -> tuple[Place, ...]:
        return tuple(place for i, place in enumerate(self.places) if i in self.written)

    @property
    def name(self) -> str:
        return self.kernel.function

    @property
    def details(self) -> str:
        grid = " x ".join(str(n) for n in self.kernel.grid if n != 1) or "1"
        threads = self.kernel.block[0] * self.kernel.block[1] * self.kernel.block[2]
        return f"grid {grid}, {threads} threads"


class GemmTypes(NamedTuple):
    """What cuBLAS multiplies, adds and returns, by the numbers of cudaDataType_t and cublasComputeType_t.

    Attributes
    ----------
    size : bytes of an operand's entry
    product_char, product_size : dtype of a product and of the factors of the sum, as `numpy.dtype.char`; its bytes
    """

    operands: int
    products: int
    compute: int
    size: int
    product_char: str
    product_size: int


@dataclass(frozen=True, eq=False)
class Gemm(Step):
    """C = A B of cuBLAS, of one matrix or of `count` of them that lie `steps` entries of A, B and C apart.

    All are row-major, their rows `lda`, `ldb` and `ldc` entries apart. `transposed`: whether A lies in memory as k rows
    of m instead of m rows of k, and B as n rows of k, as slices do, instead of k rows of n.
    """

    types: GemmTypes
    a: Place
    b: Place
    c: Place
    m: int
    n: int
    k: int
    lda: int
    ldb: int
    ldc: int
    transposed: tuple[bool, bool] = (False, True)
    count: int = 1
    steps: tuple[int, int, int] = (0, 0, 0)

    @property
    def reads(self) -> tuple[Place, ...]:
        return self.a, self.b

    @property
    def writes(self) -> tuple[Place, ...]:
        return (self.c,)

    @property
    def name(self) -> str:
        return "cublas"

    @property
    def details(self) -> str:
        stack = f"{self.count} x " if self.count > 1 else ""
        return f"{stack}({self.m} x {self.k}) ({self.k} x {self.n})"


@dataclass(frozen=True, eq=False)
class Clear(Step):
    """Zero so many bytes."""

    place: Place
    nbytes: int

    @property
    def writes(self) -> tuple[Place, ...]:
        return (self.place,)

    @property
    def name(self) -> str:
        return "clear"

    @property
    def details(self) -> str:
        return f"{self.nbytes} bytes"


@dataclass(frozen=True, eq=False)
class CopyToHost(Step):
    """Copy so many bytes from the device to the host."""

    source: Place
    target: Place
    nbytes: int

    @property
    def reads(self) -> tuple[Place, ...]:
        return (self.source,)

    @property
    def writes(self) -> tuple[Place, ...]:
        return (self.target,)

    @property
    def name(self) -> str:
        return "copy to host"

    @property
    def details(self) -> str:
        return f"{self.nbytes} bytes"


@dataclass(frozen=True, eq=False)
class ClearHost(Step):
    """Zero so many bytes of the host at once: no step that writes them may be under way."""

    place: Place
    nbytes: int

    @property
    def writes(self) -> tuple[Place, ...]:
        return (self.place,)

    @property
    def name(self) -> str:
        return "clear on host"

    @property
    def details(self) -> str:
        return f"{self.nbytes} bytes"


@dataclass(frozen=True, eq=False)
class Upload(Step):
    """Copy what the host has worked out from these operands: a program that does so is of use for them alone."""

    data: bytes
    target: Place

    @property
    def writes(self) -> tuple[Place, ...]:
        return (self.target,)

    @property
    def name(self) -> str:
        return "copy from host"

    @property
    def details(self) -> str:
        return f"{len(self.data)} bytes"


@dataclass(frozen=True, eq=False)
class Fork(Step):
    """`stream` goes on when all is done that `after` has been given so far."""

    after: Stream

    @property
    def name(self) -> str:
        return "wait"

    @property
    def details(self) -> str:
        return f"for the stream {self.after}"


@dataclass(frozen=True, eq=False)
class Arrive(Step):
    """An array of the host is there when the stream gets here; the host can wait for it."""

    array: Array

    @property
    def reads(self) -> tuple[Place, ...]:
        return (self.array.at,)

    @property
    def name(self) -> str:
        return "arrive"
