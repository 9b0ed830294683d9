"""The library's own kernels on a GPU: bytes moved per second, beside a device-to-device copy in the same run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any
from unittest import mock

import ozaki
from benchmarks.devices import Device, median_seconds
from benchmarks.measure import normal
from benchmarks.results import Row

SIZES = (8192, 16384)
"""Far past the cache."""

SCHEMES = {"float64": {"residues": 14}, "float32": {"residues": 7, "digits": 3}}

FILES = ("describe.cu", "split.cu", "reduce.cu", "recombine.cu")
"""The kernels that are measured, by source file."""

REPEATS = 10
"""Between two events, so that the host is ahead of the device."""


@dataclass(frozen=True)
class Launch:
    """One kernel launch, to be repeated.

    Attributes
    ----------
    file : source file of the kernel
    along_k : whether it reads an operand whose rows are contiguous
    arrays : its arguments that are arrays
    again : launches it with the same arguments
    """

    file: str
    along_k: bool
    arrays: tuple[Any, ...]
    again: Callable[[], object]


@dataclass(frozen=True)
class Kernel:
    """What one step of a product launches.

    Attributes
    ----------
    name : as "split rows, residues 14"
    slices : number of slices
    bytes : read and written, each once
    launch : starts it on the current stream
    """

    name: str
    slices: int
    bytes: int
    launch: Callable[[], object]


def kernel_rows(device: Device, n: int, dtype: str, seed: int, least: float) -> Iterator[Row]:
    """Measure the copy of an n x n matrix, and then each kernel for n x n operands, `least` seconds each."""
    a, b = normal(device, n, dtype, seed)
    target = device.xp.empty_like(a)
    copy = Kernel("copy", 0, a.nbytes + target.nbytes, lambda: device.xp.copyto(target, a))
    copied = _row(device, copy, n, dtype, least, None)
    bandwidth = copy.bytes / copied.seconds
    yield copied
    measured = set()
    for scheme, slices in SCHEMES[dtype].items():
        for kernel in kernels_of(a, b, scheme, slices):
            if kernel.name not in measured:
                yield _row(device, kernel, n, dtype, least, bandwidth)
                measured.add(kernel.name)
        device.release()


def kernels_of(a: Any, b: Any, scheme: str, slices: int) -> Iterator[Kernel]:
    """Describe, split, reduce and recombine, as one product launches them.

    "rows" are those of A, contiguous in memory; "columns" those of B.
    """
    for (file, along_k), launches in groupby(recorded(a, b, scheme, slices), lambda x: (x.file, x.along_k)):
        group = list(launches)
        step = file.removesuffix(".cu")
        name = step if step == "describe" else f"{step}, {scheme} {slices}"
        if step in ("describe", "split"):
            name = name.replace(step, f"{step} {'rows' if along_k else 'columns'}")
        distinct = {array.data.ptr: array.nbytes for launch in group for array in launch.arrays}
        moved = sum(distinct.values())
        if step == "reduce":  # int32 to a byte, plane by plane through the same accumulators
            moved = 5 * group[0].arrays[1].nbytes
        yield Kernel(name, 0 if step == "describe" else slices, moved, partial(_all_again, group))


def recorded(a: Any, b: Any, scheme: str, slices: int) -> list[Launch]:
    """The launches of one product."""
    from ozaki.backends import _cupy, _jit

    launches: list[Launch] = []
    compiled = _jit.kernel

    def kernel(file: str, name: str, **macros: Any) -> Callable[..., None]:
        call = compiled(file, name, **macros)

        def launch(grid: Any, block: Any, arguments: tuple[Any, ...]) -> None:
            call(grid, block, arguments)
            if file in FILES:
                arrays = tuple(x for x in arguments if _cupy.owns(x))
                again = partial(call, grid, block, arguments)
                launches.append(Launch(file, bool(macros.get("ALONG_K", 0)), arrays, again))

        return launch

    with mock.patch.object(_cupy, "kernel", kernel):
        ozaki.matmul(a, b, scheme=scheme, slices=slices)
    return launches


def _all_again(launches: list[Launch]) -> None:
    for launch in launches:
        launch.again()


def _row(device: Device, kernel: Kernel, n: int, dtype: str, least: float, bandwidth: float | None) -> Row:
    def repeated() -> None:
        for _ in range(REPEATS):
            kernel.launch()

    seconds = median_seconds(device, [repeated], least) / REPEATS
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
        products=kernel.slices,
        sm_mhz=device.sm_mhz(),
        bytes=kernel.bytes,
        of_copy=None if bandwidth is None else kernel.bytes / seconds / bandwidth,
    )
