"""Square roots of multiprecision numbers, cut off behind as many bits as are needed."""

from __future__ import annotations

from math import isqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.multiprecision.objects import mparray


def of_ints(ints: npt.NDArray[np.object_], exponents: Any) -> Any:
    """Whole numbers times powers of two."""
    found = mparray(ints.reshape(-1).tolist()).reshape(ints.shape) if ints.size else mparray(np.zeros(ints.shape))
    return found.ldexp(np.asarray(exponents, np.int64))


def square_roots(x: Any, bits: int) -> Any:
    """The square roots of multiprecision numbers in host memory, off by less than 2**-bits of themselves."""
    ints, exponents = x.to_ints()
    found, powers = np.empty(ints.shape, object), np.zeros(ints.shape, np.int64)
    for i, value in np.ndenumerate(ints):
        found[i], powers[i] = _root(int(value), int(exponents[i]), bits)
    return of_ints(found, powers)


def _root(value: int, exponent: int, bits: int) -> tuple[int, int]:
    """The square root of value 2**exponent, cut off behind at least so many bits."""
    shift = max(0, 2 * bits + 2 - value.bit_length())
    shift += (exponent - shift) % 2
    return isqrt(value << shift), (exponent - shift) // 2
