"""Arrays of multiprecision numbers between the memory of NumPy and that of GPUs."""

from __future__ import annotations

from typing import Any

import numpy as np

from ozaki.multiprecision.array import MPArray
from ozaki.multiprecision.numbers import moved
from ozaki.process.placement import where_they_lie


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
    with where_they_lie((("x", _checked(x)),)):
        return moved(x, np)


def ascupy(x: MPArray) -> MPArray:
    """The same numbers in the memory of CuPy's current device, from host memory or from another device.

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
    if x.library is not cupy:
        return moved(x, cupy)
    if x.limbs.data.device_id == cupy.cuda.runtime.getDevice():
        return x
    return _from_another_device(x, cupy)


def _from_another_device(x: MPArray, cupy: Any) -> MPArray:
    """The same numbers on CuPy's current device.

    No stream of one device waits for one of another by itself: so the host waits until the planes are there to be
    copied, and, before they may be freed, until they are copied.
    """
    with where_they_lie((("x", x),)):
        given = x.copy()  # whose planes are contiguous, as copies from device to device need them
        cupy.cuda.get_current_stream().synchronize()
    planes = given.signs, given.exponents, given.limbs
    signs, exponents, limbs = (cupy.empty(plane.shape, plane.dtype) for plane in planes)
    for to, plane in zip((signs, exponents, limbs), planes, strict=True):
        if plane.size:
            to.data.copy_from_device_async(plane.data, plane.nbytes)
    cupy.cuda.get_current_stream().synchronize()
    return MPArray(signs, exponents, limbs, x.bits, x.is_complex)


def _checked(x: Any) -> MPArray:
    if not isinstance(x, MPArray):
        raise TypeError(f"x: {type(x).__name__}; expected an MPArray, as ozaki.mparray makes it")
    return x
