"""The ways to multiply that are graded: the library's, and the native products of the machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import matmul
from typing import Any

import ozaki
from ozaki._cli.devices import array_library, placed, to_host
from ozaki._cli.grading.inputs import Array
from ozaki.records.report import counted

MOST, ENOUGH = 5, 0.2
"""Most timed products, and seconds that they may take together before a further one."""


@dataclass(frozen=True)
class Ran:
    """A product that a way computed.

    Attributes
    ----------
    c : array of NumPy
    what : what ran, in words
    slices : number of slices of each operand, 0 without any
    seconds : the shortest time of a product
    """

    c: Array
    what: str
    slices: int
    seconds: float


@dataclass(frozen=True)
class Way:
    """A way to multiply.

    Attributes
    ----------
    name : as "NumPy"
    device : "cpu" or "gpu", where its operands lie
    multiply : function of the operands: the product
    account : function of the operands, which multiplies, too: what runs, in words, and the number of slices
    """

    name: str
    device: str
    multiply: Callable[[Any, Any], Any]
    account: Callable[[Any, Any], tuple[str, int]]

    def run(self, a: Array, b: Array) -> Ran:
        """Multiply operands of NumPy, and take the times of several products of them in the memory of the device."""
        x, y = placed(a, self.device), placed(b, self.device)
        finish = array_library(self.device).cuda.Device().synchronize if self.device == "gpu" else lambda: None
        what, slices = self.account(x, y)
        finish()
        times: list[float] = []
        while not times or (len(times) < MOST and sum(times) < ENOUGH):
            start = time.perf_counter()
            c = self.multiply(x, y)
            finish()
            times.append(time.perf_counter() - start)
        return Ran(to_host(c), what, slices, min(times))


def ours(device: str, name: str = "ozaki", **options: Any) -> Way:
    """Return `ozaki.matmul` with these options; it takes slices, so never the native product."""
    options = {**options, "reproducible": True}

    def account(a: Any, b: Any) -> tuple[str, int]:
        report = ozaki.matmul(a, b, **options, return_report=True)[1]
        return counted(report.slices, report.scheme), report.slices

    return Way(name, device, partial(ozaki.matmul, **options), account)


def other(name: str, device: str, multiply: Callable[[Any, Any], Any], what: str, slices: int = 0) -> Way:
    """Return a way that runs the same for all operands: `what`, in words."""

    def account(a: Any, b: Any) -> tuple[str, int]:
        multiply(a, b)
        return what, slices

    return Way(name, device, multiply, account)


def native(device: str) -> Way:
    """Return the product of NumPy, or of CuPy."""
    return other("NumPy" if device == "cpu" else "CuPy", device, matmul, "native")


def ways(device: str, **options: Any) -> list[Way]:
    """Return ours on a device, with the arguments of `ours`, and the native products of this and of the CPU."""
    return [ours(device, **options), *(native(each) for each in dict.fromkeys((device, "cpu")))]
