"""Speed of products whose operands were cut before, or that are no calls of a routine: answers checked, then timed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.devices import Device, median_seconds
from benchmarks.measure import Sample, WrongAnswerError
from reproduce.figures import Series


@dataclass(frozen=True)
class Product:
    """One way to multiply two matrices.

    Attributes
    ----------
    name : of the series in a figure
    multiply : computes the product; its operands are bound already
    out : the array that `multiply` writes
    most : largest componentwise error of a right answer
    """

    name: str
    multiply: Callable[[], object]
    out: Any
    most: float


def speeds(device: Device, a: Any, b: Any, products: Iterable[Product], min_seconds: float) -> dict[str, float]:
    """TFLOP/s of each, 2 m n k over the time; each for `min_seconds`, or a few calls.

    Raises
    ------
    WrongAnswerError
        Where an error is above what is allowed; nothing is timed then.
    """
    sample = Sample.of(a, b, device.xp, 0)
    found = {}
    for product in products:
        product.out.fill(np.nan)
        product.multiply()
        ((error, _),) = sample.errors(sample.entries(product.out))
        if not error <= product.most:
            raise WrongAnswerError(f"{product.name}, n = {b.shape[1]}: error {error:.3g}, at most {product.most:.3g}")
        found[product.name] = 2e-12 * a.size * b.shape[1] / median_seconds(device, [product.multiply], min_seconds)
    device.release()
    return found


def over(points: Iterable[tuple[float, dict[str, float]]]) -> Series:
    """The series of each name over x."""
    series: Series = {}
    for x, values in points:
        for name, y in values.items():
            series.setdefault(name, []).append((x, y))
    return series


def ratios(series: Series, name: str, other: str) -> dict[int, float]:
    """One series over another, at each size of both."""
    rival = dict(series[other])
    return {int(x): y / rival[x] for x, y in series[name] if x in rival}
