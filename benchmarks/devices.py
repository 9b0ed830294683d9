"""Where the products run: array library, names and versions, and how time is taken."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib import metadata
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

import ozaki
from benchmarks.nvml import Nvml

T = TypeVar("T")

CLOCK = Path(__file__).with_name("clock.cu")

WARM_UPS = 3

FEWEST, MOST = 5, 200
"""Numbers of timed calls."""

TURNS = 3
"""Turns of each routine, when several are compared."""


class Pace(NamedTuple):
    """How fast a GPU ran for a while; None for what cannot be read.

    Attributes
    ----------
    sm_mhz : mean clock of the multiprocessors in MHz, by their own counters
    power_limited : part of the time in which the power limit held the clock down, by NVML
    """

    sm_mhz: float | None = None
    power_limited: float | None = None

    @classmethod
    def mean(cls, paces: Sequence[Pace]) -> Pace:
        """The mean of each attribute, over the paces that have it."""
        columns = ([x for x in column if x is not None] for column in zip(*paces, strict=True))
        return cls(*(round(statistics.mean(column), 3) if column else None for column in columns))


class Device(Protocol):
    """A CPU or a GPU.

    Attributes
    ----------
    name : name of the device in result files
    xp : NumPy or CuPy
    blas : name of the library that computes the native product
    sizes : default sizes of the products
    cache_bytes : bytes of the cache; several sets of smaller operands are taken in turn, so that none stays in it
    """

    name: str
    xp: Any
    blas: str
    sizes: tuple[int, ...]
    cache_bytes: int

    def versions(self) -> dict[str, str]: ...

    def elapsed(self, call: Callable[[], object]) -> float:
        """Seconds that one call takes."""

    def release(self) -> None:
        """Give unused memory back."""

    def watch(self) -> Callable[[], Pace]:
        """Begin to measure the pace; the function that is returned gives the pace since then."""


class Cpu:
    """NumPy on this machine."""

    xp: Any = np
    sizes: tuple[int, ...] = (250, 500, 1000)
    cache_bytes = 0

    def __init__(self) -> None:
        from threadpoolctl import threadpool_info

        libraries = [library for library in threadpool_info() if library["user_api"] == "blas"]
        library: dict[str, Any] = dict(libraries[0]) if libraries else {"internal_api": "numpy"}
        threads = library.get("num_threads", 1)
        self.blas = str(library["internal_api"])
        self.name = f"{cpu_model()}, {threads} thread{'s' if threads > 1 else ''}"
        self._blas_version = " ".join(filter(None, [library.get("version"), library.get("architecture")]))

    def versions(self) -> dict[str, str]:
        return _versions() | {self.blas: self._blas_version}

    def elapsed(self, call: Callable[[], object]) -> float:
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    def release(self) -> None:
        pass

    def watch(self) -> Callable[[], Pace]:
        return Pace


class Gpu:
    """CuPy on its current device."""

    blas = "cublas"
    sizes: tuple[int, ...] = (1024, 2048, 4096, 8192, 16384)

    def __init__(self) -> None:
        import cupy

        self.xp: Any = cupy
        device = cupy.cuda.Device()
        self.name: str = cupy.cuda.runtime.getDeviceProperties(device.id)["name"].decode()
        self.cache_bytes: int = device.attributes["L2CacheSize"]
        self._events = cupy.cuda.Event(), cupy.cuda.Event()
        self._nvml = NvmlReadings(device.pci_bus_id)
        self._mark = cupy.RawKernel(CLOCK.read_text(), "mark")

    def versions(self) -> dict[str, str]:
        cuda = self.xp.cuda
        cublas = cuda.cublas.getVersion(cuda.device.get_cublas_handle())
        driver = self._nvml(Nvml.driver)
        offers = cuda.runtime.driverGetVersion()
        return _versions() | {
            "cupy": self.xp.__version__,
            "cublas": cublas_version(cublas),
            "driver": f"{driver or 'unknown'}, CUDA {offers // 1000}.{offers // 10 % 100}",
        }

    def elapsed(self, call: Callable[[], object]) -> float:
        start, stop = self._events
        start.record()
        call()
        stop.record()
        stop.synchronize()
        return float(self.xp.cuda.get_elapsed_time(start, stop)) * 1e-3

    def release(self) -> None:
        self.xp.get_default_memory_pool().free_all_blocks()

    def watch(self) -> Callable[[], Pace]:
        before, start = self._marks(), time.perf_counter()
        limited = self._nvml(Nvml.seconds_limited)

        def pace() -> Pace:
            after = self._marks()
            clocks, nanoseconds = (after - before)[:, ((before > 0) & (after > 0)).all(axis=0)]
            mhz = round(float(np.median(1e3 * clocks / nanoseconds)), 1) if clocks.size else None
            seconds = time.perf_counter() - start
            now = self._nvml(Nvml.seconds_limited)
            part = None if limited is None or now is None else round(min((now - limited) / seconds, 1.0), 3)
            return Pace(mhz, part)

        return pace

    def _marks(self) -> Any:
        """Clocks and nanoseconds of each multiprocessor, int64; zeros for those on which no block of the kernel ran."""
        cp = self.xp
        count = cp.cuda.Device().attributes["MultiProcessorCount"]
        marks = cp.zeros((2, count), np.int64)
        self._mark((8 * count,), (32,), (marks, np.int32(count)))
        return cp.asnumpy(marks)


def cublas_version(number: int) -> str:
    """A version that cuBLAS returns as one number, as a text: "13.10.0" for 131000."""
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def device_of(name: str) -> Device:
    """The device of that name: "cpu", "gpu", or "auto" for the GPU if there is one, else the CPU."""
    if name == "cpu" or (name == "auto" and not _has_gpu()):
        return Cpu()
    return Gpu()


def median_seconds(device: Device, calls: Sequence[Callable[[], object]], min_seconds: float = 0.5) -> float:
    """Median seconds of the calls, taken in turn, after a warm-up.

    Parameters
    ----------
    device : Device
    calls : sequence of functions
        The same work on different memory.
    min_seconds : float
        Seconds to measure for; at least `FEWEST` calls and at most `MOST`.
    """
    for i in range(max(WARM_UPS, len(calls))):
        device.elapsed(calls[i % len(calls)])
    return statistics.median(_times(device, cycle(calls), min_seconds, FEWEST))


def medians_side_by_side(
    device: Device, routines: Sequence[Sequence[Callable[[], object]]], min_seconds: float
) -> list[tuple[float, Pace]]:
    """Median seconds of each routine, and the device's pace, all routines taken in turn several times over.

    The speed of a device depends on what it did just before, and drifts. So each routine is measured in several turns,
    its calls are timed only after it has run for half a turn, and the order of routines changes from turn to turn.

    Parameters
    ----------
    device : Device
    routines : sequence of sequences of functions
        For each routine, the same work on different memory.
    min_seconds : float
        Seconds to measure each routine for, in all turns together.
    """
    times: list[list[float]] = [[] for _ in routines]
    paces: list[list[Pace]] = [[] for _ in routines]
    cycles = [cycle(calls) for calls in routines]
    shuffled = Random(0)
    for _ in range(TURNS):
        for i in shuffled.sample(range(len(cycles)), len(cycles)):
            _times(device, cycles[i], min_seconds / TURNS / 2, 1)
            pace = device.watch()
            times[i] += _times(device, cycles[i], min_seconds / TURNS, 2)
            paces[i].append(pace())
            device.release()
    return [(statistics.median(t), Pace.mean(p)) for t, p in zip(times, paces, strict=True)]


def _times(device: Device, calls: Iterator[Callable[[], object]], min_seconds: float, fewest: int) -> list[float]:
    """Seconds of each call, until `fewest` calls have taken `min_seconds` or more in all, or there are `MOST` calls."""
    times: list[float] = []
    while len(times) < fewest or (sum(times) < min_seconds and len(times) < MOST):
        times.append(device.elapsed(next(calls)))
    return times


def _has_gpu() -> bool:
    try:
        import cupy
    except ImportError:
        return False
    return bool(cupy.cuda.is_available())


def _versions() -> dict[str, str]:
    return {"ozaki": ozaki.__version__, "python": platform.python_version(), "numpy": metadata.version("numpy")}


def cpu_model() -> str:
    """The name of the CPU, as far as the system tells it."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


class NvmlReadings:
    """Readings of NVML for one GPU; None for what NVML does not tell."""

    def __init__(self, bus_id: str) -> None:
        self._reader: Nvml | None = None
        self._silent: tuple[type[Exception], ...] = ()
        try:
            import pynvml
        except ImportError:
            return
        self._silent = (pynvml.NVMLError,)
        with suppress(*self._silent):
            self._reader = Nvml(bus_id)

    def __call__(self, ask: Callable[[Nvml], T]) -> T | None:
        if self._reader is not None:
            with suppress(*self._silent):
                return ask(self._reader)
        return None
