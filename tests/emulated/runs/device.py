"""The emulated device in a case: the work that calls gave it, other rates and sizes, and parts of programs alone."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any
from unittest import mock

import cupy as cp
import numpy as np

import gpus
from ozaki.backends.cupy import devices
from ozaki.backends.cupy import repeated as kept
from ozaki.backends.cupy.devices import Device
from ozaki.backends.cupy.devices.rates import Rates
from ozaki.backends.cupy.inputs import numbers_named, planes_of
from ozaki.backends.cupy.prepared import alike
from ozaki.backends.cupy.program.arrays import DTYPES, Array, Place, view_of
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.program import Evidence, Program
from ozaki.backends.cupy.program.run import Execution, Run
from ozaki.backends.cupy.program.steps import Step
from ozaki.backends.cupy.steps.numbers import NumbersArray
from ozaki.backends.cupy.steps.operands import Described
from ozaki.backends.cupy.work import Work
from ozaki.multiprecision.numbers import Numbers
from ozaki.planning.facts import Need
from ozaki.records.plan import Plan
from ozaki.schemes import Scheme, Words


@dataclass
class Seen:
    """The work that calls gave the device, in the order in which they gave it.

    Attributes
    ----------
    long : number of calls that were planned and built a program ("the long way")
    ran : the schemes of these calls; None for the native product
    needs : the facts that these calls asked for
    repeated : number of calls that a kept program served
    steps : the steps of all programs, and parts of programs, that were started
    """

    long: int = 0
    ran: list[Scheme | Words | None] = field(default_factory=list)
    needs: list[Need] = field(default_factory=list)
    repeated: int = 0
    steps: list[Step] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """The names of the steps: for a kernel, that of its function."""
        return [step.name for step in self.steps]

    def clears(self, buffer: str) -> int:
        """How often a buffer of that name was zeroed."""
        return sum(step.name == "clear" and step.writes[0].buffer.name == buffer for step in self.steps)


@contextmanager
def seen() -> Iterator[Seen]:
    """Record the work that calls give the device within a `with` statement."""
    found = Seen()
    init, multiply, native, measure = Work.__init__, Work.multiply, Work.native, Work.measure
    start, repeated = Run.start, kept.repeated

    def made(self: Work, *arguments: Any) -> None:
        found.long += 1
        init(self, *arguments)

    def multiplied(self: Work, plan: Plan, c: Any) -> None:
        found.ran.append(plan.scheme)
        multiply(self, plan, c)

    def multiplied_natively(self: Work, c: Any) -> None:
        found.ran.append(None)
        native(self, c)

    def measured(self: Work, need: Need) -> Any:
        found.needs.append(need)
        return measure(self, need)

    def started(self: Run, *arguments: Any, **options: Any) -> Any:
        assert self.program is not None
        found.steps += self.program.steps
        return start(self, *arguments, **options)

    def was_repeated(*arguments: Any) -> Any:
        c = repeated(*arguments)
        found.repeated += c is not None
        return c

    with ExitStack() as patches:
        for owner, name, function in (
            (Work, "__init__", made),
            (Work, "multiply", multiplied),
            (Work, "native", multiplied_natively),
            (Work, "measure", measured),
            (Run, "start", started),
            (kept, "repeated", was_repeated),
        ):
            patches.enter_context(mock.patch.object(owner, name, function))
        yield found


@dataclass(frozen=True)
class GivenRates(Rates):
    """Rates with some times given: `times` has functions of the scheme, in seconds, for "native", "words", "slices"."""

    times: Any = None

    def native(self, *arguments: Any) -> float:
        return self._time("native", None) or super().native(*arguments)

    def words(self, *arguments: Any) -> float:
        return self._time("words", arguments[4]) or super().words(*arguments)

    def slices(self, *arguments: Any, **more: Any) -> float:
        return self._time("slices", arguments[5]) or super().slices(*arguments, **more)

    def _time(self, way: str, scheme: Any) -> float | None:
        return self.times[way](scheme) if way in self.times else None


def with_times(**times: float | Callable[[Any], float]) -> Any:
    """A context in which the current device has other times: for "native", "words" or "slices", in seconds."""
    given = {way: time if callable(time) else (lambda _, time=time: time) for way, time in times.items()}
    device = devices.current()
    rates = GivenRates(**{of.name: getattr(device.rates, of.name) for of in fields(Rates)}, times=given)
    return in_place_of_the_device(replace(device, rates=rates))


@contextmanager
def in_place_of_the_device(device: Device) -> Iterator[Device]:
    """Make `device` the current one within a `with` statement; no program is kept from before it or after it."""
    kept.forget()
    with mock.patch.object(devices, "current", return_value=device):
        yield device
    kept.forget()


def like_the_device() -> Device:
    """A copy of the current device's record: caches that are kept for one of the two do not serve the other."""
    return replace(devices.current())


@contextmanager
def guarded() -> Iterator[None]:
    """Let device memory that is allocated within a `with` statement end at a page that may not be read or written.

    A kernel that reads 16 bytes too far, or more, ends the process. Memory is freed at the end of the statement alone.
    """
    kept_alive: list[Any] = []
    protect = ctypes.CDLL(None).mprotect

    def alloc(size: int) -> Any:
        size = -(-max(size, 1) // 16) * 16
        pages = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        memory = mmap.mmap(-1, pages + mmap.PAGESIZE)
        kept_alive.append(memory)
        first = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        ctypes.memset(first, 0xA5, pages)
        assert protect(ctypes.c_void_p(first + pages), ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
        return cp.cuda.MemoryPointer(first + pages - size, memory)

    with mock.patch.object(cp.cuda, "alloc", alloc):
        yield
        cp.cuda.Device().synchronize()


@dataclass
class Held:
    """The most bytes that the current device held at a time within a `with` statement, beside those before it."""

    most: int = 0


@contextmanager
def held_bytes() -> Iterator[Held]:
    """Count the memory of the current device, which no other thread may use meanwhile."""
    found, device = Held(), gpus.current()
    before = gpus.most[device] = gpus.held[device]
    yield found
    found.most = gpus.most[device] - before


class Growing(Builder):
    """A builder of several programs one after the other, each of which keeps all that it does not release."""

    def take(self) -> Program:
        """The program of the steps since the last call."""
        names = [Place(buffer) for buffer in self._made if buffer.kind == "workspace"]
        program = self.program(keeps=[place for place in names if place.buffer not in self._released])
        self._steps, self._releases, self._made = [], [], set()
        return program


class Part:
    """A part of a program that is built and run in a case.

    Attributes
    ----------
    b : the builder of the part
    device : the device that it is built for
    """

    def __init__(self, device: Device | None = None) -> None:
        self.b, self.device = Growing(), device or devices.current()
        self._execution = Execution()

    def given(self, real: Any, name: str = "x") -> Array:
        """The symbolic array that stands for a real one."""
        array = self.b.given(name, view_of(real))
        self._execution.bind([array.buffer], [real])
        return array

    def numbers(self, real: Numbers, name: str = "x") -> NumbersArray:
        """The symbolic array that stands for multiprecision numbers."""
        real = alike(real)
        numbers = numbers_named(name, tuple(map(view_of, planes_of(real))), real.bits, self.b.given)
        self._execution.bind([of.buffer for of in (numbers.signs, numbers.exponents, numbers.limbs)], planes_of(real))
        return numbers

    def run(self) -> None:
        """Run the steps that were added since the last run."""
        self._execution.run(self.b.take())

    def value(self, x: Array | Evidence) -> Any:
        """The elements of an array of the program, or the value of evidence, after the steps that were added."""
        self.run()
        if isinstance(x, Evidence):
            return self._execution.evidence(x)
        return cp.asnumpy(self._execution.array(x))

    def raw(self, place: Place, nbytes: int) -> Any:
        """The first `nbytes` bytes at a place."""
        return self.value(Array(place.buffer, place.offset, DTYPES["B"], (nbytes,), (1,)))

    def fields(self, described: Described) -> np.ndarray:
        """The description of an operand."""
        found: np.ndarray = self.value(described.fields)
        return found
