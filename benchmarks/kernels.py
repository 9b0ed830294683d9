"""The library's own kernels on a GPU: bytes moved per second, beside a device-to-device copy in the same run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.devices import Device, median_seconds
from benchmarks.measure import normal
from benchmarks.results import Row

SIZES = (8192, 16384)
"""Far past the cache."""

DTYPES = ("float64", "float32")

LAUNCHES = 10
"""Between two events, so that the host is ahead of the device."""


@dataclass(frozen=True)
class Kernel:
    """One kernel on given operands.

    Attributes
    ----------
    name : as "split residues 14"
    products : number of slices that it reads or writes
    bytes : read and written, each once
    launch : starts it on the current stream
    """

    name: str
    products: int
    bytes: int
    launch: Callable[[], object]


def kernels_of(a: Any, b: Any) -> Iterator[Kernel]:
    """Describe, split, reduce and recombine, as the CuPy backend launches them for these operands."""
    raise NotImplementedError("kernels: the CuPy backend does not tell its kernels apart")


def kernel_rows(device: Device, n: int, dtype: str, seed: int, least: float) -> Iterator[Row]:
    """Measure the copy of an n x n matrix, and then each kernel for n x n operands, `least` seconds each."""
    a, b = normal(device, n, dtype, seed)
    target = device.xp.empty_like(a)
    copy = Kernel("copy", 0, a.nbytes + target.nbytes, lambda: device.xp.copyto(target, a))
    copied = _row(device, copy, n, dtype, least, None)
    assert copied.bytes is not None
    bandwidth = copied.bytes / copied.seconds
    yield copied
    for kernel in kernels_of(a, b):
        yield _row(device, kernel, n, dtype, least, bandwidth)


def _row(device: Device, kernel: Kernel, n: int, dtype: str, least: float, bandwidth: float | None) -> Row:
    def launches() -> None:
        for _ in range(LAUNCHES):
            kernel.launch()

    seconds = median_seconds(device, [launches], least) / LAUNCHES
    return Row(
        task="kernels",
        routine=kernel.name,
        ours=bandwidth is not None,
        m=n,
        n=n,
        k=n,
        dtype=dtype,
        data="normal",
        seconds=seconds,
        tflops=None,
        error=None,
        bound=None,
        products=kernel.products,
        sm_mhz=device.sm_mhz(),
        bytes=kernel.bytes,
        of_copy=None if bandwidth is None else kernel.bytes / seconds / bandwidth,
    )
