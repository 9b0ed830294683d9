"""What is known of a device: plain numbers, so that anything that follows from them can be worked out anywhere."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Self

from ozaki.backends.cupy.devices.rates import Rates
from ozaki.backends.cupy.devices.tiles import Tiles
from ozaki.schemes.formats import TensorCore


@dataclass(frozen=True)
class Family:
    """What devices of some compute capabilities have in common.

    Attributes
    ----------
    capabilities : as "90"
    rates : how fast they are; that of memory counts where the driver does not tell clock and width
    core : how their tensor cores add floating-point words; None if that is not known
    tiles : how int8 matrices lie for this library's own kernels; None where there are none
    fused : schemes whose slices these kernels multiply, so that products do not go to memory first
    proofs : where the products of magnitudes are compared: "registers", by a kernel that reads tiles, or "memory"
    words : which kernels multiply low-precision words
    stacks : what multiplies residues of a stack of small matrices where tiles have 64 rows; others take mma.sync
    one_read : whether there are kernels that describe and split an operand in one read
    two_halves : whether the second-level cache has two halves, so that it pays to tell which multiprocessor is near
        which (`steps/engines/halves.py`)
    suffix : of the architecture's name, for instructions that this family alone has
    """

    capabilities: tuple[str, ...]
    rates: Rates
    core: TensorCore | None = None
    tiles: Tiles | None = None
    fused: tuple[Literal["residues", "digits"], ...] = ()
    proofs: Literal["registers", "memory"] = "memory"
    words: Literal["wgmma", "mma.sync"] = "mma.sync"
    stacks: Literal["wgmma", "mma.sync"] = "mma.sync"
    one_read: bool = False
    two_halves: bool = False
    suffix: str = ""


@dataclass(frozen=True, eq=False)
class Device:
    """One device.

    Attributes
    ----------
    family : what it has in common with others
    capability : compute capability, as "90"
    rates : those of the family, that of memory by its clock and width, if the driver tells them
    multiprocessors : how many there are
    shared_memory : bytes of shared memory of a multiprocessor
    memory : bytes of its memory; None where nobody has asked it
    number : CuPy's number of it; None for the record of a device that is not there
    name : as the driver has it
    """

    family: Family
    capability: str
    rates: Rates
    multiprocessors: int
    shared_memory: int
    memory: int | None = None
    number: int | None = None
    name: str = "no device"

    @classmethod
    def of(cls, family: Family, capability: str, memory_bits: int = 0, **numbers: Any) -> Self:
        """A device of a family, with `numbers` as its other fields.

        `memory_bits`: the peak of its memory in bits a second, from clock and width; 0 if unknown: the family's rate.
        """
        rates = family.rates
        if memory_bits:
            rates = replace(rates, memory=_REACHED * 1e-12 * memory_bits / 8)
        return cls(family, capability, rates, **numbers)

    @property
    def architecture(self) -> str:
        """What kernels are compiled for, as "sm_90a"."""
        return f"sm_{self.capability}{self.family.suffix}"

    @property
    def block_memory(self) -> int:
        """Bytes of shared memory that a block may take: those of a multiprocessor but for what it keeps for itself."""
        return self.shared_memory - 1024

    @cached_property
    def tiles(self) -> Tiles:
        """Those of the family, which has some."""
        assert self.family.tiles is not None
        return self.family.tiles

    @property
    def cluster_blocks(self) -> int:
        """A block for each multiprocessor, as many as clusters of two make."""
        return self.multiprocessors // 2 * 2

    @property
    def clusters(self) -> int:
        """Clusters of two blocks that it holds at once, if a block takes a multiprocessor for itself."""
        return self.multiprocessors // 2


_REACHED = 0.88
"""The part of a memory's peak bandwidth that copies reach (H200 0.86, H100 0.88)."""
