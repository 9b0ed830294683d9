"""An emulated DGEMM beside the native one."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import ozaki
from ozaki import reference
from ozaki._cli.devices import array_library, to_host


@dataclass(frozen=True)
class Timed:
    """One float64 product, with its error and its time.

    Attributes
    ----------
    name : what was asked for
    what : what ran
    error : the largest componentwise error over the sampled entries
    rms : its root mean square
    bound : the proven componentwise bound, inf without one
    seconds : the median time of a product
    report : the library's own account of it
    """

    name: str
    what: str
    error: float
    rms: float
    bound: float
    seconds: float
    report: str


REQUESTS: dict[str, str | int] = {"fp32": "fp32", "40 bits": 40, "fp64": "fp64", "64 bits": 64}
"""The accuracies of the emulated products, by the names that are printed."""

SIZES = {"cpu": 2000, "gpu": 4096}
"""Rows of the emulated products."""


def emulate_dgemm(size: int, device: str, seed: int = 0) -> Iterator[Timed]:
    """Multiply two normal matrices natively, and then to each accuracy of `REQUESTS`.

    Errors are measured against exact entries, in 16 rows and 200 columns.

    Raises
    ------
    MemoryError
        Where the memory does not hold matrices of that size.
    """
    xp = array_library(device)
    rng = np.random.default_rng(seed)
    try:
        a, b = rng.standard_normal((2, size, size))
    except (ValueError, MemoryError):  # NumPy raises ValueError for sizes beyond any memory
        raise MemoryError(f"size: {size}; two matrices of so many rows and columns do not fit into memory") from None
    rows, cols = (rng.choice(size, min(size, count), replace=False) for count in (16, 200))
    x, y = xp.asarray(a), xp.asarray(b)

    def timed(name: str, product: Callable[..., Any], **options: Any) -> Timed:
        report = ozaki.matmul(x, y, **options, return_report=True)[1]
        seconds, c = _median_time(product, device)
        errors = reference.componentwise_errors(to_host(c)[rows][:, cols], a[rows], b[:, cols])
        error, rms = float(errors.max()), float(np.sqrt((errors**2).mean()))
        what = "float64" if report.native else f"{report.slices} {report.scheme}"
        return Timed(name, what, error, rms, report.bound, seconds, str(report))

    yield timed("native", lambda: x @ y, scheme="native")
    for name, accuracy in REQUESTS.items():
        options = {"accuracy": accuracy, "reproducible": True}
        yield timed(name, partial(ozaki.matmul, x, y, **options), **options)


def _median_time(product: Callable[[], Any], device: str, enough: float = 1.0) -> tuple[float, Any]:
    """Return the median time of at most five runs after one to warm up, and the result."""
    finish = array_library(device).cuda.Device().synchronize if device == "gpu" else lambda: None
    c = product()
    finish()
    times: list[float] = []
    while len(times) < 5 and sum(times) < enough:
        start = time.perf_counter()
        c = product()
        finish()
        times.append(time.perf_counter() - start)
    return statistics.median(times), c
