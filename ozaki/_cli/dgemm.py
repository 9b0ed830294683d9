"""Products in float64 by this library (emulated DGEMM), compared with the native product."""

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
from ozaki.records.report import priced


@dataclass(frozen=True)
class Timed:
    """One float64 product, with its errors and its time.

    Attributes
    ----------
    name : the accuracy that was asked for, a key of `REQUESTS`, or "native"
    what : number and name of the slices that ran, and their products; or "float64"
    error : the largest componentwise error over the sampled entries
    rms : the root mean square of the componentwise errors of the sampled entries
    bound : the proven componentwise bound, inf without one
    seconds : the median time of a product
    report : the text of the library's report
    """

    name: str
    what: str
    error: float
    rms: float
    bound: float
    seconds: float
    report: str


REQUESTS: dict[str, str | int] = {"fp32": "fp32", "40 bits": 40, "fp64": "fp64", "64 bits": 64}
"""The accuracies of the emulated products, by the names that are printed for them."""

SIZES = {"cpu": 2000, "gpu": 4096}
"""Rows and columns of the emulated products, by device."""


def emulate_dgemm(size: int, device: str, seed: int = 0) -> Iterator[Timed]:
    """Multiply two normal matrices natively, and then to each accuracy of `REQUESTS`.

    Errors are measured against exact entries, in 16 rows and 200 columns.

    Raises
    ------
    MemoryError
        If the memory does not hold matrices of that size.
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
        what = "float64" if report.native else priced(report.slices, report.scheme, report.products)
        return Timed(name, what, error, rms, report.bound, seconds, str(report))

    yield timed("native", lambda: x @ y, scheme="native")
    for name, accuracy in REQUESTS.items():
        options = {"accuracy": accuracy, "reproducible": True}
        yield timed(name, partial(ozaki.matmul, x, y, **options), **options)


def _median_time(product: Callable[[], Any], device: str, enough: float = 1.0) -> tuple[float, Any]:
    """Return the median time of a run in seconds, and the result of the last run.

    Runs follow one that warms up, until there are five, or they took `enough` seconds together.
    """
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
