"""One routine at one size: the answer checked, then timed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import inf, isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.devices import Device, median_seconds
from benchmarks.results import Row
from benchmarks.routines import Routine
from ozaki import reference

ROWS, COLS = 8, 64
"""Rows and columns in which entries are computed exactly."""

MOST_COPIES = 16


class WrongAnswerError(RuntimeError):
    """A result that misses its bound."""


@dataclass(frozen=True)
class Sample:
    """Some rows of A and columns of B, for exact entries of their product.

    Attributes
    ----------
    rows, cols : indices, on the device
    a, b : those rows and columns, NumPy arrays
    """

    rows: Any
    cols: Any
    a: npt.NDArray[Any]
    b: npt.NDArray[Any]

    @classmethod
    def of(cls, a: Any, b: Any, xp: Any, seed: int) -> Sample:
        rng = np.random.default_rng(seed)
        rows, cols = (
            xp.asarray(np.sort(rng.choice(size, min(size, count), replace=False)))
            for size, count in ((a.shape[0], ROWS), (b.shape[1], COLS))
        )
        return cls(rows, cols, _host(a[rows]), _host(b[:, cols]))

    def errors(self, c: Any) -> tuple[float, float]:
        """Largest componentwise error of a product in the sample, and its root mean square."""
        entries = _host(c[self.rows][:, self.cols])
        largest = reference.componentwise_error(entries, self.a, self.b)
        return largest, reference.componentwise_error(entries, self.a, self.b, rms=True)


def normal(device: Device, n: int, dtype: str, seed: int) -> tuple[Any, Any]:
    """Draw two n x n matrices from N(0, 1), on the device."""
    rng = device.xp.random.default_rng(seed)
    a, b = (rng.standard_normal((n, n), dtype=dtype) for _ in range(2))
    return a, b


def copies(operand_bytes: int, cache_bytes: int) -> int:
    """How many sets of operands to take in turn, so that none is left in the cache from its last turn."""
    return min(MOST_COPIES, 1 + 2 * cache_bytes // operand_bytes)


def rows_of(task: str, device: Device, n: int, routines: list[Routine], seed: int, least: float) -> Iterator[Row]:
    """Measure routines on the same n x n operands, drawn from N(0, 1); `least` seconds each, or a few calls.

    Raises
    ------
    WrongAnswerError
        Where an error is above its bound; nothing is timed then.
    """
    a, b = normal(device, n, task, seed)
    sample = Sample.of(a, b, device.xp, seed)
    count = copies(a.nbytes + b.nbytes, device.cache_bytes)
    sets = [(a, b) if i == 0 else (a.copy(), b.copy()) for i in range(count)]
    out = [device.xp.empty_like(a) for _ in sets]
    for routine in routines:
        out[0].fill(np.nan)
        routine.multiply(a, b, out[0])
        account = routine.account(a, b)
        error, rms = sample.errors(out[0])
        if not (isfinite(error) and error <= (inf if account.bound is None else account.bound)):
            raise WrongAnswerError(f"{routine.name}, {task}, n = {n}: error {error:.3g}, bound {account.bound}")
        calls = [partial(routine.multiply, x, y, c) for (x, y), c in zip(sets, out, strict=True)]
        seconds = median_seconds(device, calls, least)
        sm_mhz = device.sm_mhz()
        device.release()
        yield Row(
            task=task,
            routine=routine.name,
            ours=routine.ours,
            m=n,
            n=n,
            k=n,
            dtype=task,
            data="normal",
            seconds=seconds,
            tflops=2e-12 * n**3 / seconds,
            error=error,
            bound=account.bound,
            products=account.products,
            rms=rms,
            ran=account.ran,
            sm_mhz=sm_mhz,
        )


def _host(x: Any) -> npt.NDArray[Any]:
    return x.get() if hasattr(x, "get") else np.asarray(x)
