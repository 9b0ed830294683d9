"""Upper bounds in float64: each result is at least the real number that it stands for, whatever float64 has rounded.

The abs of a complex number is the modulus. Numbers are NumPy or CuPy arrays, sums of two, or MPArrays.
"""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.linalg.common.arrays import Sum, array_library, on_host, rounded
from ozaki.multiprecision.numbers import Numbers

LEAST = 2.0**-1000
"""Added to bounds whose terms may have underflowed. Matrices are scaled so that it is far below the largest element of
each row or column, though not below each element."""


UP = 1 + 2.0**-40
"""Times a bound: more than the roundings of some float64 operations, and of sums of up to 4096 numbers, change it."""


def magnitudes(x: Any) -> Any:
    """Upper bounds of the abs of elements: a float64 array of the shape and in the library of x; 0 of zeros alone."""
    if isinstance(x, Numbers):
        nonzero = (x.signs != 0).any(axis=-1) if x.is_complex else x.signs != 0
        x = rounded(x)
    else:
        x = x.high if isinstance(x, Sum) else x
        nonzero = x != 0
        if x.dtype.kind == "c":
            x = x.astype(np.complex128, copy=False)  # the modulus of a complex64 number would be rounded to float32
    # A modulus, and a number that was rounded to float64, may be too small by a few units of the last place.
    return (abs(x).astype(np.float64, copy=False) * (1 + 2.0**-48) + LEAST) * nonzero


def largest_abs(x: Any) -> float:
    """An upper bound of the abs of every element, of which there are some."""
    return float(magnitudes(x).max())


def are_real_floats(x: Any) -> bool:
    """Whether x is an array of float64, whose abs are exact."""
    return not isinstance(x, Numbers | Sum) and bool(x.dtype == np.float64)


def least_magnitudes(x: Any) -> Any:
    """Lower bounds of the abs of elements, as `magnitudes`."""
    return (magnitudes(x) * (1 - 2.0**-46) - 2 * LEAST).clip(0)


def norm_bounds(x: Any, axis: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Lower and upper bounds of the Euclidean norms of a matrix's rows (axis 1) or columns (axis 0), in NumPy.

    They differ from the norms by no more than a 2**-29th, lower ones unless all elements are below 2**-990. Upper ones
    are 0 of zeros alone.
    """
    if (squares := _sums_of_squares(x, axis)) is not None:
        found = squares**0.5
        return found * (1 - 2.0**-30), found * (1 + 2.0**-30)
    least, most = (on_host(_euclidean(sizes(x), axis)) for sizes in (least_magnitudes, magnitudes))
    return least.clip(0, _LARGEST) * (1 - 2.0**-30), most * (1 + 2.0**-30)  # where it overflows it is larger


_LARGEST = float(np.finfo(np.float64).max)


def norms(x: Any, axis: int) -> Any:
    """As `norms_on_host`, in the library of x."""
    return array_library(x).asarray(norms_on_host(x, axis))


def norms_on_host(x: Any, axis: int) -> npt.NDArray[np.float64]:
    """Upper bounds of the Euclidean norms of a matrix's rows (axis 1) or columns (axis 0), as of `norm_bounds`."""
    return norm_bounds(x, axis)[1]


def stacked_norms(x: Any, axis: int | tuple[int, int] = (-2, -1)) -> Any:
    """Upper bounds of Euclidean norms of the matrices of a stack of floats, or of its rows (axis -1) or columns (-2).

    What underflows, squares of numbers below 2**-537, makes up less than 2**-500.
    """
    return _squares(x).sum(axis=axis) ** 0.5 * (1 + 2.0**-30) + 2.0**-500


def stacked_norms_below(x: Any, axis: int) -> Any:
    """Lower bounds of Euclidean norms along an axis of a stack; NaN where squares may under- or overflow."""
    found = _squares(x).sum(axis=axis) ** 0.5
    return array_library(x).where(found > 2.0**-400, found - found * 2.0**-30, np.nan)


def _squares(x: Any) -> Any:
    """The squares of the moduli of floats."""
    return x.real * x.real + x.imag * x.imag if x.dtype.kind == "c" else x * x


def _sums_of_squares(x: Any, axis: int) -> Any:
    """Sums of squares up to a 2**-31st along an axis of floats, in NumPy; None where one would over- or underflow."""
    if isinstance(x, Numbers | Sum) or not x.size or x.dtype.name not in ("float64", "complex128"):
        return None
    found = on_host(_squares(x).sum(axis=axis))
    small = found < 2.0**-900
    if not (found < 2.0**900).all() or (small.any() and (small & on_host((x != 0).any(axis=axis))).any()):
        return None
    return found


def _euclidean(sizes: Any, axis: int) -> Any:
    """The square roots of sums of squares, up to a 2**-31st."""
    largest = sizes.max(axis=axis, keepdims=True)
    usual = (largest > 0) & (largest < inf)
    shares = sizes / array_library(sizes).where(usual, largest, 1.0)  # whose squares do not overflow
    return ((shares * shares).sum(axis=axis, keepdims=True) ** 0.5 * largest).squeeze(axis)


def row_norm(x: Any) -> float:
    """An upper bound of the largest sum of abs of a row: how much larger A x may be than x, by their largest abs."""
    return _summed(x, 1)


def column_norm(x: Any) -> float:
    """An upper bound of the largest sum of abs of a column: `row_norm` of the transpose."""
    return _summed(x, 0)


def _summed(x: Any, axis: int) -> float:
    sizes = abs(x) if are_real_floats(x) else magnitudes(x)
    sums = sizes.sum(axis=axis)
    return float(sums.max()) * (1 + 2 * (sizes.shape[axis] + 8) * 2.0**-53) if sums.size else 0.0


def spectral_norm(x: Any) -> float:
    """An upper bound of the spectral norm of abs(x), and so of x: the root of its row norm times its column norm.

    The product of these bounds of two matrices is one of abs(x) abs(y), on which errors of products rest.
    """
    return row_norm(x) ** 0.5 * column_norm(x) ** 0.5 * (1 + 2.0**-50) if x.size else 0.0


def frobenius_norm(x: Any) -> float:
    """An upper bound of the root of the sum of squares of a matrix's elements, and so of its spectral norm."""
    if not isinstance(x, Sum) and not x.size:
        return 0.0
    if not isinstance(x, Numbers | Sum):
        flat = x.reshape(-1)
        squares = float(array_library(x).vdot(flat, flat).real)
        if 2.0**-900 < squares < 2.0**900:  # what underflows is far smaller
            return float(squares**0.5 * (1 + (x.size + 8) * 2.0**-52))
    return float(norms_on_host(norms_on_host(x, 0)[None, :], 1)[0])


def column_sizes(x: Any) -> npt.NDArray[np.float64]:
    """Upper bounds of the largest abs of each column, in NumPy; 0 of a column of zeros."""
    sizes = magnitudes(x)
    return on_host(sizes.max(axis=0)) if sizes.shape[0] else np.zeros(sizes.shape[1])
