"""Measure routines at one size: check all results, then time the routines in turn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import inf, isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.devices import Device, medians_side_by_side
from benchmarks.results import Row, Shape
from benchmarks.routines import Routine
from ozaki import reference
from ozaki.records.formats import is_complex, part_of

ROWS, COLS = 8, 64
"""Rows and columns in which entries are computed exactly; fewer for a long inner dimension."""

MOST_COPIES = 16


class WrongAnswerError(RuntimeError):
    """A result has an error above its bound."""


@dataclass(frozen=True)
class Sample:
    """Some rows of A and columns of B (of the last matrices of a batch), whose products are computed exactly.

    Attributes
    ----------
    rows, cols : indices of these rows and columns, on the device
    a, b : these rows and columns, NumPy arrays
    """

    rows: Any
    cols: Any
    a: npt.NDArray[Any]
    b: npt.NDArray[Any]

    @classmethod
    def of(cls, a: Any, b: Any, xp: Any, seed: int) -> Sample:
        rng = np.random.default_rng(seed)
        a, b = _last(a), _last(b)
        fewer = max(2**18 // max(len(b), 1), 1)
        rows, cols = (
            xp.asarray(np.sort(rng.choice(size, min(size, count), replace=False)))
            for size, count in ((a.shape[0], min(ROWS, fewer)), (b.shape[1], min(COLS, 8 * fewer)))
        )
        return cls(rows, cols, host(a[rows]), host(b[:, cols]))

    def entries(self, c: Any) -> npt.NDArray[Any]:
        """The entries of a product c that are in the sample, in host memory."""
        return host(_last(c)[self.rows][:, self.cols])

    def errors(self, *entries: npt.NDArray[Any]) -> list[tuple[float, float]]:
        """The largest componentwise error and the root mean square error of each product, given its sampled entries."""
        errors = reference.componentwise_errors(np.stack(entries), self.a, self.b)
        return [(float(e.max()), float(np.sqrt((e**2).mean()))) for e in errors]


def drawn(device: Device, shape: Shape, dtype: str, seed: int) -> tuple[Any, Any]:
    """Random operands of that shape, on the device."""
    rng = device.xp.random.default_rng(seed)
    batch = (shape.batch,) if shape.batch > 1 else ()
    left = (shape.k, shape.m) if shape.turned else (shape.m, shape.k)
    a, b = (_normal(device, rng, (*batch, *matrix), dtype) for matrix in (left, (shape.k, shape.n)))
    a = a.swapaxes(-1, -2) if shape.turned else a
    if shape.data == "graded":
        units = np.exp2(np.random.default_rng(seed).integers(-8, 9, shape.k)).astype(dtype)
        a *= device.xp.asarray(units)
    return a, b


def _normal(device: Device, rng: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """Normally distributed numbers; complex ones of such parts."""
    if not is_complex(dtype):
        return rng.standard_normal(shape, dtype=dtype)
    x = device.xp.empty(shape, dtype)
    x.real, x.imag = (rng.standard_normal(shape, dtype=part_of(dtype)) for _ in range(2))
    return x


def copies(operand_bytes: int, cache_bytes: int) -> int:
    """The number of sets of operands to take in turn, so that none is still in the cache when its turn comes again."""
    return min(MOST_COPIES, 1 + 2 * cache_bytes // operand_bytes)


def rows_of(
    task: str, dtype: str, device: Device, shape: Shape, routines: list[Routine], seed: int, min_seconds: float
) -> Iterator[Row]:
    """Measure routines in turn on the same operands, each for `min_seconds`, but at least a few calls.

    Raises
    ------
    WrongAnswerError
        If an error is above its bound; nothing is timed then.
    """
    a, b = drawn(device, shape, dtype, seed)
    sample = Sample.of(a, b, device.xp, seed)
    count = copies(a.nbytes + b.nbytes, device.cache_bytes)
    sets = [(a, b) if i == 0 else (a.copy(order="K"), b.copy(order="K")) for i in range(count)]
    out = [device.xp.empty((*a.shape[:-1], shape.n), dtype) for _ in sets]
    accounts, entries = [], []
    for routine in routines:
        out[0].fill(np.nan)
        routine.multiply(a, b, out[0])
        accounts.append(routine.account(a, b))
        entries.append(sample.entries(out[0]))
        device.release()
    errors = sample.errors(*entries)
    for routine, account, (error, _) in zip(routines, accounts, errors, strict=True):
        if not (isfinite(error) and error <= (inf if account.bound is None else account.bound)):
            raise WrongAnswerError(f"{routine.name}, {task}, n = {shape}: error {error:.3g}, bound {account.bound}")
    calls = [[partial(routine.multiply, x, y, c) for (x, y), c in zip(sets, out, strict=True)] for routine in routines]
    measured = medians_side_by_side(device, calls, min_seconds)
    for routine, account, (error, rms), (seconds, pace) in zip(routines, accounts, errors, measured, strict=True):
        yield Row(
            task=task,
            routine=routine.name,
            ours=routine.ours,
            m=shape.m,
            n=shape.n,
            k=shape.k,
            dtype=dtype,
            data=shape.data,
            seconds=seconds,
            tflops=(8e-12 if is_complex(dtype) else 2e-12) * shape.batch * shape.m * shape.k * shape.n / seconds,
            error=error,
            bound=account.bound,
            products=account.products,
            rms=rms,
            ran=account.ran,
            sm_mhz=pace.sm_mhz,
            power_limited=pace.power_limited,
            batch=shape.batch if shape.batch > 1 else None,
        )


def _last(x: Any) -> Any:
    return x[-1] if x.ndim == 3 else x


def host(x: Any) -> npt.NDArray[Any]:
    """The array in host memory."""
    return x.get() if hasattr(x, "get") else np.asarray(x)
