"""Where the products run: array library, names and versions, and how time is taken."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

import ozaki
from benchmarks.power import instant_watts

WARM_UPS = 3

FEWEST, MOST = 5, 200
"""Timed calls."""

TURNS = 3
"""Of each routine, where several are compared."""


class State(NamedTuple):
    """What a GPU is at after some work; None where there is nothing to read.

    Attributes
    ----------
    sm_mhz : clock of the multiprocessors
    watts : power
    """

    sm_mhz: int | None = None
    watts: float | None = None


class Device(Protocol):
    """A CPU or a GPU.

    Attributes
    ----------
    name : as the result files have it
    xp : NumPy or CuPy
    blas : what runs the native product
    sizes : default sizes of the products
    cache_bytes : operands that fit in here are rotated
    """

    name: str
    xp: Any
    blas: str
    sizes: tuple[int, ...]
    cache_bytes: int

    def versions(self) -> dict[str, str]: ...

    def elapsed(self, call: Callable[[], object]) -> float:
        """Seconds of one call."""

    def release(self) -> None:
        """Give unused memory back."""

    def state(self) -> State:
        """Clock and power at this moment."""


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
        self.name = f"{_cpu_model()}, {threads} thread{'s' if threads > 1 else ''}"
        self._blas_version = " ".join(filter(None, [library.get("version"), library.get("architecture")]))

    def versions(self) -> dict[str, str]:
        return _versions() | {self.blas: self._blas_version}

    def elapsed(self, call: Callable[[], object]) -> float:
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    def release(self) -> None:
        pass

    def state(self) -> State:
        return State()


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

    def versions(self) -> dict[str, str]:
        cuda = self.xp.cuda
        cublas = cuda.cublas.getVersion(cuda.device.get_cublas_handle())
        driver = _nvml(lambda nvml, _: nvml.nvmlSystemGetDriverVersion(), cuda)
        offers = cuda.runtime.driverGetVersion()
        return _versions() | {
            "cupy": self.xp.__version__,
            "cublas": f"{cublas // 10000}.{cublas // 100 % 100}.{cublas % 100}",
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

    def state(self) -> State:
        cuda = self.xp.cuda
        clock = _nvml(lambda nvml, device: int(nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_SM)), cuda)
        return State(clock, _nvml(instant_watts, cuda))


def device_of(name: str) -> Device:
    """The device that is called "cpu", "gpu", or "auto": the GPU where there is one."""
    if name == "cpu" or (name == "auto" and not _has_gpu()):
        return Cpu()
    return Gpu()


def median_seconds(device: Device, calls: Sequence[Callable[[], object]], least: float = 0.5) -> float:
    """Median seconds of the calls, taken in turn, after a warm-up.

    Parameters
    ----------
    device : Device
    calls : sequence of functions
        The same work on different memory.
    least : float
        Seconds to measure for, however few the calls.
    """
    for i in range(max(WARM_UPS, len(calls))):
        device.elapsed(calls[i % len(calls)])
    return statistics.median(_times(device, cycle(calls), least, FEWEST))


def medians_side_by_side(
    device: Device, routines: Sequence[Sequence[Callable[[], object]]], least: float
) -> list[tuple[float, State]]:
    """Median seconds of each routine, and the device's state after it, all routines taken in turn several times over.

    How fast a device is hangs on what it did just before, and drifts. So no routine is measured in one piece, and half
    a turn goes by before its calls count.

    Parameters
    ----------
    device : Device
    routines : sequence of sequences of functions
        Of each routine the same work on different memory.
    least : float
        Seconds to measure each routine for, however few the calls.
    """
    times: list[list[float]] = [[] for _ in routines]
    states = [State() for _ in routines]
    cycles = [cycle(calls) for calls in routines]
    for _ in range(TURNS):
        for i, calls in enumerate(cycles):
            _times(device, calls, least / TURNS / 2, 1)
            times[i] += _times(device, calls, least / TURNS, 2)
            states[i] = device.state()
            device.release()
    return [(statistics.median(of_routine), state) for of_routine, state in zip(times, states, strict=True)]


def _times(device: Device, calls: Iterator[Callable[[], object]], least: float, fewest: int) -> list[float]:
    """Seconds of each call until it is enough."""
    times: list[float] = []
    while len(times) < fewest or (sum(times) < least and len(times) < MOST):
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


def _cpu_model() -> str:
    """The CPU's name for itself, as far as the system tells."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _nvml(ask: Callable[[Any, Any], Any], cuda: Any) -> Any:
    """What NVML answers about the current device; None where it does not."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        try:
            return ask(pynvml, pynvml.nvmlDeviceGetHandleByPciBusId(cuda.Device().pci_bus_id))
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return None
