"""The functions of `multiprecision/limbs.py` on a GPU: one kernel each, where CuPy's own operations would be dozens.

Arguments and results are as described there. Kernels run on CuPy's current stream; no function waits for them.
"""

from __future__ import annotations

from math import ceil
from typing import Any

import cupy as cp
import numpy as np

from ozaki.backends.cupy.program.kernels import Kernel
from ozaki.backends.cupy.program.launches import launch
from ozaki.caches import cached
from ozaki.multiprecision.limbs import limbs_of


def leading_zeros(limbs: Any) -> Any:
    """Number of zero bits before the first one that is set."""
    zeros = cp.empty(limbs.shape[1], np.int64)
    _run("count_leading_zeros", limbs, (), zeros)
    return zeros


def trailing_zeros(limbs: Any) -> Any:
    """Number of zero bits after the last one that is set."""
    zeros = cp.empty(limbs.shape[1], np.int64)
    _run("count_trailing_zeros", limbs, (), zeros)
    return zeros


def window(limbs: Any, start: Any, count: int) -> Any:
    """The bits from `start` on as `count` limbs."""
    found = cp.empty((count, limbs.shape[1]), np.uint32)
    _run("take_window", limbs, (count,), cp.ascontiguousarray(start), found)
    return found


def add_window(sums: Any, signs: Any, limbs: Any, start: Any, sticky: bool) -> None:
    """Add the windows of magnitudes, with their signs, to sums."""
    contiguous = cp.ascontiguousarray(signs), cp.ascontiguousarray(start)
    _run("add_window", limbs, (len(sums), int(sticky)), *contiguous, sums)


def settled(sums: Any, width: int) -> tuple[Any, Any]:
    """Signs and magnitudes of sums of limbs."""
    count, n = sums.shape
    signs, limbs = cp.empty(n, np.int8), cp.empty((count, n), np.uint32)
    if n:
        sums = cp.ascontiguousarray(sums)
        launch(_kernel("settle", n, n, count, width, None, None, None), *_addresses(sums, signs, limbs))
    return signs, limbs


def rounded(limbs: Any, bits: int) -> tuple[Any, Any]:
    """Magnitudes that have limbs for so many bits at least, rounded to these, and where they carry."""
    kept, carried = cp.empty((limbs_of(bits), limbs.shape[1]), np.uint32), cp.empty(limbs.shape[1], np.bool_)
    _run("round_at", limbs, (bits,), kept, carried)
    return kept, carried


def to_double(signs: Any, exponents: Any, limbs: Any, precision: int, least: int) -> Any:
    """Numbers rounded to float64 numbers of `precision` bits that are multiples of 2**least."""
    found = cp.empty(limbs.shape[1], np.float64)
    given = cp.ascontiguousarray(signs), cp.ascontiguousarray(exponents)
    _run("to_double", limbs, (precision, least), *given, found)
    return found


def _run(function: str, limbs: Any, numbers: tuple[int, ...], *arrays: Any) -> None:
    """Launch a function of kernels/conversion/limbs.cu: limbs, how many, numbers, contiguous arrays."""
    count, n = limbs.shape
    if n:
        view = (None, limbs.strides[0] // 4, limbs.strides[1] // 4, count)
        launch(_kernel(function, n, view, n, *numbers, *(None for _ in arrays)), *_addresses(limbs, *arrays))


def _addresses(*arrays: Any) -> list[int]:
    return [x.data.ptr for x in arrays]


@cached(1024)
def _kernel(function: str, n: int, *arguments: Any) -> Kernel:
    """A function for n elements, with all its arguments but addresses, for which None stands."""
    return Kernel.of("conversion/limbs.cu", function, {}, (ceil(n / 256),), (256,), *arguments)
