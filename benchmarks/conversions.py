"""Seconds that a million numbers of mpmath take into an `MPArray` and out of it: `python -m benchmarks.conversions`.

The medians of three runs in one thread, with numbers of 53, 200 and 1000 bits.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import mpmath
import numpy as np

import ozaki

SIDE = 1000
"""The matrices are square."""


def median(call: Callable[[], Any]) -> float:
    """Seconds of the median of three calls."""
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


def numbers(bits: int) -> list[Any]:
    """A million random numbers of so many bits, of both signs, with exponents of their own."""
    chance = random.Random(bits)
    with mpmath.workprec(bits):
        return [
            mpmath.ldexp(chance.getrandbits(bits) | 1, chance.randint(-300, 300)) * chance.choice((-1, 1))
            for _ in range(SIDE**2)
        ]


def main() -> None:
    """Print a table."""
    print("bits   array in   lists in   matrix in   asarray   to_mpmath   to_ints")
    for bits in (53, 200, 1000):
        flat = np.empty(SIDE**2, object)
        flat[:] = numbers(bits)
        array = flat.reshape(SIDE, SIDE)
        x = ozaki.mparray(array)
        lists, matrix = array.tolist(), x.to_mpmath()
        calls: list[tuple[int, Callable[[], Any]]] = [
            (10, partial(ozaki.mparray, array)),
            (10, partial(ozaki.mparray, lists)),
            (11, partial(ozaki.mparray, matrix)),
            (9, partial(np.asarray, x)),
            (11, x.to_mpmath),
            (9, x.to_ints),
        ]
        print(f"{bits:4}" + "".join(f"{median(call):{width}.2f} " for width, call in calls), flush=True)


if __name__ == "__main__":
    main()
