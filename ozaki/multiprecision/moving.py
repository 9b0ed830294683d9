"""Arrays of multiprecision numbers between the memory of NumPy and that of CuPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from ozaki.multiprecision.array import MPArray
from ozaki.multiprecision.numbers import moved


def asnumpy(x: MPArray) -> MPArray:
    """The same numbers in host memory.

    Parameters
    ----------
    x : MPArray

    Returns
    -------
    MPArray
        `x` itself, if it lies there already.

    Raises
    ------
    TypeError
        If `x` is no MPArray.

    Examples
    --------
    >>> import ozaki
    >>> ozaki.asnumpy(ozaki.mparray([1, 2]))
    mparray([1.0, 2.0], bits=2)
    """
    return moved(_checked(x), np)


def ascupy(x: MPArray) -> MPArray:
    """The same numbers in the memory of CuPy's current device.

    Parameters
    ----------
    x : MPArray

    Returns
    -------
    MPArray
        `x` itself, if it lies there already.

    Raises
    ------
    TypeError
        If `x` is no MPArray.
    ImportError
        If CuPy is not installed.
    """
    _checked(x)
    try:
        import cupy
    except ImportError:
        raise ImportError("ascupy moves numbers to a GPU by CuPy; install cupy-cuda12x or cupy-cuda13x") from None
    return moved(x, cupy)


def _checked(x: Any) -> MPArray:
    if not isinstance(x, MPArray):
        raise TypeError(f"x: {type(x).__name__}; expected an MPArray, as ozaki.mparray makes it")
    return x
