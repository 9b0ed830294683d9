"""What planning asks of a device: what runs there, and how long it takes; no array is needed for that."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

from ozaki.backends.cupy import devices
from ozaki.backends.cupy.devices import Device
from ozaki.backends.cupy.steps import stacks
from ozaki.backends.cupy.steps.engines.choice import (
    has_complex_slices,
    slice_engine,
    slices_obstacle,
    word_engine,
)
from ozaki.caches import cached
from ozaki.planning.question import Way
from ozaki.records.formats import is_multiprecision, part_of
from ozaki.records.shapes import COMPLEX, REAL, Shapes
from ozaki.schemes import ComplexResidues, Scheme, Words
from ozaki.schemes.constants import KernelScheme
from ozaki.schemes.formats import TensorCore


@dataclass(frozen=True)
class Machine:
    """A device as planning sees it.

    Attributes
    ----------
    finds_facts_on_device : planning waits for the device, which could do something else meanwhile
    entry_apart : an exact inner product reads a row and a column, 64 KiB for k = 4096, in place of a few bytes (H200:
        about 50 nanoseconds, of a slice product 4.5 picoseconds)
    foretelling : the terms of errors, a sample, and what looks for undecided entries (H200: about 80 microseconds, a
        slice product at n = 4096)
    """

    device: Device
    finds_facts_on_device: bool = True
    entry_apart: ClassVar[float] = 10000.0
    foretelling: ClassVar[float] = 2.0**36

    @property
    def timed(self) -> bool:
        """Whether the rates of the family were measured."""
        return self.device.rates.measured

    def core(self) -> TensorCore | None:
        """The tensor cores of words that are given by name; None if those there are unknown."""
        return self.device.family.core

    def obstacle(self, scheme: Scheme | Words, engine: str) -> str | None:
        """Why no engine there, or not the one of that name, multiplies this scheme; None if it runs."""
        return self._words_obstacle(scheme) if isinstance(scheme, Words) else slices_obstacle(scheme, engine)

    def _words_obstacle(self, words: Words) -> str | None:
        """Why these words do not run there; None if they do."""
        here, capability = self.core(), self.device.capability
        if here is None:
            known = ", ".join(f"{c[:-1]}.{c[-1:]}" for c in devices.with_known_cores())
            return (
                f"words have bounds for tensor cores of compute capability {known}, not {capability[:-1]}."
                f"{capability[-1:]}; use scheme='digits'"
            )
        if words.core != here:
            return (
                f"{words.name} speaks of the tensor cores of {words.core.name}, and those here add as those of "
                f"{here.name}; use dataclasses.replace(words, core=ozaki.tensor_core.{here.name})"
            )
        return None

    def fastest(self, sizes: Shapes, dtype: str, ways: tuple[Way, ...]) -> Way:
        """Of these ways, a scheme first, the fastest for a product into a format."""
        if 0 in (*sizes.stack, sizes.shape[1]):
            return None if None in ways else ways[0]
        return _fastest(self.device, sizes, dtype, ways)

    def seconds(self, sizes: Shapes, dtype: str, way: Way) -> float | None:
        """How long a product into a format is expected to take in that way; None where nothing is known of it.

        Nothing is known of multiprecision results.
        """
        empty = 0 in (*sizes.stack, sizes.shape[1])
        return None if empty or is_multiprecision(dtype) else _seconds(self.device, sizes, dtype, way)


@cached(1024)
def _fastest(device: Device, sizes: Shapes, dtype: str, ways: tuple[Way, ...]) -> Way:
    times = {way: _seconds(device, sizes, dtype, way) for way in ways}
    return min(times, key=lambda way: inf if (time := times[way]) is None else time)


@cached(1024)
def _seconds(device: Device, sizes: Shapes, dtype: str, way: Way) -> float | None:
    (batch, m, n), k, start = sizes.real_stack, sizes.length, 0.0
    if isinstance(way, ComplexResidues) and has_complex_slices(way):
        (batch, m, n), k, way = sizes.stack, sizes.shape[1], way.slices
    elif way is None:
        return device.rates.native(batch, m, k, n, part_of(dtype))
    else:
        dtype, start = part_of(dtype), _PARTS if sizes.parts == COMPLEX else 0.0
    if isinstance(way, Words):
        engine = word_engine(device, way, batch, m, k, n)
    else:
        assert isinstance(way, KernelScheme)  # `slices_obstacle` refuses any other
        if sizes.parts in (REAL, COMPLEX) and stacks.runs(device, way, batch, m, k, n, dtype):
            return stacks.seconds(device, way, batch, m, k, n) + start
        engine = slice_engine(device, way, "auto", batch, (m, k, n))
    seconds = engine.seconds(way, batch, m, k, n, dtype)
    return None if seconds is None else seconds + start


_PARTS = 1.5e-3
"""Seconds for which a device waits while the host starts to copy the parts of complex operands (H100: 1.9 for 512)."""
