"""The steps of a program: immutable data that say what is done with which places in buffers, and on which stream."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from ozaki.backends.cupy.program.arrays import Array, Buffer, Place
from ozaki.backends.cupy.program.kernels import Kernel

Stream = Literal["main", "proof", "to_host"]
"""The streams of a program.

"main"     CuPy's current stream when the program runs
"proof"    proofs and samples, at a high priority: their blocks start before those that wait on the main stream
"to_host"  copies of facts to the host, so that these do not wait for the proof's next steps
"""

STREAMS: tuple[Stream, ...] = ("main", "proof", "to_host")


class Out(NamedTuple):
    """An address that a kernel writes; the kernel may also read it first, as it does a counter."""

    place: Array | Place


@dataclass(frozen=True, eq=False)
class Step:
    """One operation on a stream; `ClearHost` alone is done by the host itself, when it reaches the step."""

    stream: Stream

    @property
    def reads(self) -> tuple[Place, ...]:
        """The places that the step reads."""
        return ()

    @property
    def writes(self) -> tuple[Place, ...]:
        """The places that the step writes, and may also read."""
        return ()

    @cached_property
    def buffers(self) -> tuple[Buffer, ...]:
        """All buffers that the step reads or writes, each once."""
        return tuple({place.buffer: None for place in (*self.reads, *self.writes)})

    @property
    def name(self) -> str:
        """What the step does, for listings."""
        raise NotImplementedError

    @property
    def details(self) -> str:
        """Sizes and the like for listings; may be empty."""
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
    """The launch of a kernel.

    Attributes
    ----------
    kernel : with its grid and all arguments but addresses
    places : addresses, in the order of `kernel.addresses`
    written : numbers of the places that the kernel writes
    buffers : those of the places, each once
    overlaps : the kernel runs at the same time as the step before it (kernels/hardware/launch.cuh); so neither may
        write what the other reads or writes, and its memory must be allocated before that step starts
    """

    kernel: Kernel
    places: tuple[Place, ...]
    written: frozenset[int]
    buffers: tuple[Buffer, ...]
    overlaps: bool = False

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
    """The number formats of a cuBLAS product.

    Attributes
    ----------
    operands, products : cudaDataType_t of A and B, and of C
    compute : cublasComputeType_t
    size : bytes of an entry of A or B
    product_char : dtype of C and of cuBLAS's factors alpha and beta, as in `numpy.dtype.char`
    product_size : bytes of an entry of C
    """

    operands: int
    products: int
    compute: int
    size: int
    product_char: str
    product_size: int


@dataclass(frozen=True, eq=False)
class Gemm(Step):
    """A call of cuBLAS: C = A B, row-major, with C of m rows and n columns.

    Attributes
    ----------
    a, b, c : addresses of the first matrices
    lda, ldb, ldc : entries from one row to the next, as A, B and C lie in memory
    transposed : whether A lies in memory as k rows of m instead of m rows of k, and whether B lies as n rows of k, as
        slices do, instead of k rows of n
    count : number of products
    steps : entries from one A, B and C to the next
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
    """Set `nbytes` bytes of device memory to zero."""

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
    """Copy `nbytes` bytes from the device to the host."""

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
    """Set `nbytes` bytes of host memory to zero, by the host, at once: no step that writes them may be under way."""

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
    """Copy bytes of the host to the device.

    Attributes
    ----------
    of_operands : whether the host computed them from these operands; the program is then valid for them alone
    """

    data: bytes
    target: Place
    of_operands: bool = True

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
    """`stream` waits until all steps that were added to the stream `after` before this one are complete."""

    after: Stream

    @property
    def name(self) -> str:
        return "wait"

    @property
    def details(self) -> str:
        return f"for the stream {self.after}"


@dataclass(frozen=True, eq=False)
class Arrive(Step):
    """An event that the host can wait for: `array`, in host memory, is complete when the stream reaches it."""

    array: Array

    @property
    def reads(self) -> tuple[Place, ...]:
        return (self.array.at,)

    @property
    def name(self) -> str:
        return "arrive"
