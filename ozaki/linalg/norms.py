"""Norms of vectors and matrices to a named accuracy.

Sums of squares and of moduli have positive terms, so that nothing cancels; what is scaled by powers of two first
neither over- nor underflows. Up to some 80 bits squares and moduli are sums of two floats, else integers of Python.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil, inf, isqrt, log2, prod
from numbers import Integral, Real
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from ozaki.call.operands import holds_complex
from ozaki.driver.watching import named, reached, step
from ozaki.functions.products import matmul
from ozaki.interchange.calls import any_arrays
from ozaki.linalg.common.arrays import Sum, added, array_library, exactly, exactly_on_host, on_host
from ozaki.linalg.common.matrices import matrices
from ozaki.linalg.common.products import product
from ozaki.linalg.common.scaling import Exponents, Powers, scaled, tops_or_zero, without_tiny
from ozaki.linalg.common.targets import Target, target_of_real
from ozaki.linalg.common.upper import LEAST, UP, least_magnitudes
from ozaki.linalg.spectra.singular import SingularDecomposition, relative_to_each
from ozaki.linalg.spectra.svd import Scaled
from ozaki.linalg.systems.solution import formatted, missing, too_small
from ozaki.multiprecision.numbers import Numbers, moved
from ozaki.multiprecision.objects import mparray
from ozaki.process.environment import default_environment
from ozaki.records.accuracy import Accuracy
from ozaki.records.formats import part_of

Order = float | Literal["fro", "nuc"] | None


class Norm(NamedTuple):
    """A norm, or those of many vectors or matrices, and what is proven of it.

    Attributes
    ----------
    value : number, array or MPArray, real
    error_bound : float
        No value differs from the exact norm by more than this times that norm. Proven, rounding to the dtype included.
    error_bounds : NumPy array of float64, shape of `value`
        The same of each value; `error_bound` is the largest.
    iterations : int
        Corrections of singular values; 0 of norms that need none.
    """

    value: Any
    error_bound: float
    error_bounds: npt.NDArray[np.float64]
    iterations: int


@any_arrays("x", numpy=("error_bounds",))
@default_environment
@np.errstate(all="ignore")
@named("norm", solves=True)
def norm(
    x: Any,
    ord: Order = None,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    *,
    accuracy: Accuracy | str | float | None = None,
    dtype: Any = None,
) -> Norm:
    """Find norms of vectors or matrices to a named accuracy, which is proven.

    Parameters
    ----------
    x : array or MPArray, real or complex
    ord : {None, "fro", "nuc", inf, -inf, 0, 1, -1, 2, -2, p}, optional
        As in `numpy.linalg.norm`. Of vectors any p that is a multiple of 1/1024, up to 1024; 0 counts what is not zero.
        Of matrices None and "fro" the root of the sum of squares, "nuc" the sum of all singular values, 2 and -2 the
        largest and the smallest one, 1 and -1 the largest and the smallest sum of moduli of a column, inf and -inf of a
        row.
    axis : int or tuple of two, optional
        Along which vectors, or matrices, lie. Default: x is one vector or one matrix; without `ord` it may have any
        number of axes, and is one vector.
    keepdims : bool, optional
        Whether these axes stay, with length 1.
    accuracy : str, int or float, optional
        Before norms are rounded to their dtype: "fp64", a number of bits, or a tolerance t: none is off by more than t
        times itself. Up to 900 bits. Default: as many bits as the dtype has.
    dtype : optional
        As in `solve`; norms are real.

    Returns
    -------
    Norm

    Raises
    ------
    ValueError, TypeError
        For operands that cannot be used, an `ord` that there is not, and the smallest of no numbers. For -2
        if the smallest singular value cannot be told from 0.
    numpy.linalg.LinAlgError
        If corrections of singular values do not converge.
    OverflowError
        If a norm is too large for the dtype, or too small.

    Notes
    -----
    No sum cancels, and elements are scaled by powers of two, so that neither squares nor sums over- or underflow.
    "nuc", 2 and -2 are proven as in `svdvals` (docs/linalg.md, L9).

    Examples
    --------
    >>> import numpy as np, ozaki.linalg
    >>> float(ozaki.linalg.norm(np.full(4, 1e300)).value)  # squares would overflow
    2e+300
    >>> ozaki.linalg.norm(np.array([1.0, 1.0]), accuracy=200, dtype="mp").value
    mparray(1.41421, bits=...)
    """
    (x,), formats = matrices(x=x)
    target = target_of_real(accuracy, dtype, formats)
    axes = _axes(x, ord, axis)
    p = _order(ord, len(axes))
    kept = [i for i in range(x.ndim) if i not in axes]
    shape = tuple(x.shape[i] for i in kept)
    inner = tuple(x.shape[i] for i in axes)
    stack = x.transpose([*kept, *axes]).reshape(-1, *inner) if 0 not in x.shape else x.reshape(prod(shape), *inner)
    bits = ceil(-log2(target.tolerance)) + 12
    values, error, iterations = _norms(stack, p, bits)
    if keepdims:
        shape = tuple(1 if i in axes else size for i, size in enumerate(x.shape))
    found, bounds = relative_format(values, error, target, array_library(x))
    found, bounds = found.reshape(shape), bounds.reshape(shape)
    value = found[()] if isinstance(found, np.ndarray) else found
    step("norm %s: relative error up to %s", p, float(bounds.max(initial=0.0)))
    result = Norm(value, float(bounds.max(initial=0.0)), bounds, iterations)
    return reached(result, x.shape, found, "relative")


def _axes(x: Any, ord: Order, axis: Any) -> tuple[int, ...]:
    """The axes of vectors or matrices.

    Raises
    ------
    ValueError, TypeError
    """
    if axis is None:
        if ord is not None and x.ndim not in (1, 2):
            raise ValueError(f"x: {x.ndim} axes; expected 1 or 2 with ord={ord!r}, or `axis`")
        return tuple(range(x.ndim))
    if isinstance(axis, Integral):
        return (normalize_axis_index(int(axis), x.ndim),)
    if not isinstance(axis, tuple) or len(axis) not in (1, 2):
        raise TypeError(f"axis: {axis!r}; expected None, an integer or a tuple of two")
    return normalize_axis_tuple(axis, x.ndim, "axis")


_NAMED = (inf, -inf, 0, 1, -1, 2, -2)
"""Norms by numbers that matrices have, too, or that are no powers."""


def _order(ord: Order, axes: int) -> str | Fraction:
    """The norm as a name or a power.

    Raises
    ------
    ValueError
    """
    if ord is None:
        return "fro"
    if isinstance(ord, str):
        if axes == 2 and ord in ("fro", "nuc"):
            return ord
    elif isinstance(ord, Real) and ord in _NAMED:
        if axes == 1 or ord != 0:
            return "fro" if axes == 1 and ord == 2 else f"{ord:g}"
    elif isinstance(ord, Real) and axes == 1 and abs(ord) <= _LARGEST and (1024 * ord) == int(1024 * ord):
        return Fraction(int(1024 * ord), 1024)
    expected = "None, inf, -inf or a multiple of 1/1024 up to 1024" if axes == 1 else "None, fro, nuc, ±inf, ±1 or ±2"
    raise ValueError(f"ord: {ord!r}; expected {expected}, of {'vectors' if axes == 1 else 'matrices'}")


_LARGEST = 1024
"""The largest power of a norm, and the finest step between two: 1/1024."""


def _norms(stack: Any, p: str | Fraction, bits: int) -> tuple[Any, npt.NDArray[np.float64] | float, int]:
    """The norms of vectors or matrices along the first axis, in host memory, and bounds of their relative errors."""
    count, *inner = stack.shape
    if p == "fro" or len(inner) < 2:
        return (*vector_norms(stack.reshape(count, prod(inner)), p, bits), 0)
    if p in ("2", "-2", "nuc"):
        each = [singular_norm(stack[i], str(p), 2.0 ** -(bits - 4)) for i in range(count)]
        if not each:
            return mparray(np.zeros(0)), 0.0, 0
        values = np.concatenate([value.reshape(1) for value, _, _ in each])
        return values, np.array([error for _, error, _ in each]), max(steps for _, _, steps in each)
    return (*matrix_norms(stack, str(p), bits), 0)


def matrix_norms(stack: Any, p: str, bits: int) -> tuple[Any, float]:
    """The norms "1", "-1", "inf" and "-inf" of matrices of shape (count, m, n), as of `vector_norms`.

    Raises
    ------
    ValueError
        For the smallest of no sums.
    """
    rows = stack if "inf" in p else stack.transpose([0, 2, 1])
    count, m, n = rows.shape
    if not m and p.startswith("-"):
        raise ValueError(f"x: shape {tuple(stack.shape[1:])}; the norm {p} is the smallest of no sums")
    if not count or not m:
        return mparray(np.zeros(count)), 0.0
    sums, error = vector_norms(rows.reshape(count * m, n), "1", bits)
    sums = sums.reshape(count, m)
    return sums.min(axis=1) if p.startswith("-") else sums.max(axis=1), error


def singular_norm(x: Any, p: str, tolerance: float) -> tuple[Any, float, int]:
    """The norm "2", "-2" or "nuc" of a matrix, a bound of its relative error, and corrections.

    Raises
    ------
    ValueError
        For "-2" where the smallest singular value cannot be told from 0; for the smallest of none.
    """
    if not x.size:
        if p != "-2":
            return mparray(np.zeros(1)), 0.0, 0
        raise ValueError(f"x: shape {tuple(x.shape)}; the norm -2 is the smallest of no singular values")
    scale = Scaled(x)
    if scale.zero:
        return mparray(np.zeros(1)), 0.0, 0
    k = scale.unit.shape[1]
    found = SingularDecomposition(scale.unit, tolerance / (2 * k), vectors=False)
    if p == "-2":
        try:
            relative_to_each(found, tolerance / 2, slice(k - 1, k))
        except ValueError:  # whose remedy, another measure, norms do not have
            if found.least()[k - 1] > 0:
                raise ValueError(
                    "accuracy: too many bits of the norm -2, the smallest singular value, beside the largest; ask for "
                    "fewer"
                ) from None
            raise ValueError(
                f"x: the norm -2 is singular value {k - 1}, which is zero, or too small to be told from it; "
                "ozaki.linalg.svdvals bounds its error relative to the largest"
            ) from None
    else:
        found.reach(tolerance / (2 * k))
    values, errors = exactly_on_host(found.values), scale.errors(found)
    part = slice(0, 1) if p == "2" else slice(k - 1, k) if p == "-2" else slice(0, k)
    value, error = np.sum(values[part]), float(errors[part].sum()) * UP
    least = float(least_magnitudes(value.reshape(1))[0]) - error
    return value.ldexp(scale.exponent), error / least * UP, found.steps


# Vectors -------------------------------------------------------------------------------------------------------------


def vector_norms(rows: Any, p: str | Fraction, bits: int) -> tuple[Any, float]:
    """The norms of rows of a matrix, as multiprecision numbers in host memory, and a bound of their relative errors.

    `p` is "fro" for the Euclidean norm, "1", "-1", "inf", "-inf", "0", "-2" or a power. The bound is at most
    2**(4 - bits).

    Raises
    ------
    ValueError
        For the smallest of no elements, and negative powers of none.
    """
    count, k = rows.shape
    if not k and (p.startswith("-") if isinstance(p, str) else p < 0):
        raise ValueError(f"x: no elements, of which there is no norm {p}")
    if not count or not k:
        return mparray(np.zeros(count)), 0.0
    if p == "0":
        nonzero = (rows.signs != 0) if isinstance(rows, Numbers) else rows != 0
        nonzero = nonzero.any(axis=-1) if nonzero.ndim == 3 else nonzero
        return mparray(on_host(nonzero.sum(axis=1)).astype(np.float64)), 0.0
    if isinstance(p, Fraction) or p in ("-1", "-2"):
        return _powers(rows, Fraction(p), bits), 2.0 ** (4 - bits)
    if "inf" in p:
        sizes = _moduli(rows, bits)
        sizes = exactly(sizes) if isinstance(sizes, Sum) else sizes
        largest = sizes.min(axis=1) if p.startswith("-") else sizes.max(axis=1)
        return exactly_on_host(largest), 2.0 ** (2 - bits) if holds_complex(rows) else 0.0
    exponents = tops_or_zero(rows, 1)
    unit, _ = without_tiny(scaled(rows, Powers(rows=-exponents)))  # of a row they are far below the last bit
    if p == "1":
        found = _sums(_moduli(unit, bits), bits)
    else:
        found = square_roots(moved(_sums_of_squares(unit, bits), np), bits)
    return moved(found, np).ldexp(exponents), 2.0 ** (4 - bits)


_BITS_OF_TWO = 88
"""Of numbers that are sums of two floats, squares and moduli have so many bits at least."""


def _sums(x: Any, bits: int) -> Any:
    """The sums of rows of numbers that are not negative, off by less than 2**-bits of themselves."""
    if isinstance(x, Sum):
        return _sums(x.high, bits) + mparray(x.low.sum(axis=1))
    if not isinstance(x, Numbers) and x.shape[1] > _LONG:  # many rows take less time than a long one
        parts = -(-x.shape[1] // _LONG)
        folded = array_library(x).zeros((len(x), parts * _LONG))
        folded[:, : x.shape[1]] = x
        return np.sum(_sums(folded.reshape(-1, _LONG), bits).reshape(len(x), parts), axis=1)
    ones = array_library(x).ones((x.shape[1], 1))
    # By Cauchy and Schwarz the norms of a row and of ones have a product below the root of k times the sum.
    tolerance = 2.0 ** -(bits + 1 + ceil(log2(x.shape[1]) / 2))
    return product(x, ones, tolerance, multiprecision=True).reshape(-1)


_LONG = 1024
"""Sums of so many terms are taken by one product."""


def _sums_of_squares(x: Any, bits: int) -> Any:
    """The sums of squares of moduli of rows whose largest elements are about 1, off by less than 2**(1 - bits)."""
    if not isinstance(x, Numbers) and bits <= _BITS_OF_TWO:
        return _sums(_squares(x), bits + 1)
    if holds_complex(x):
        x = np.concatenate([exactly(x.real), exactly(x.imag)], axis=1)
    accuracy = Accuracy("row-column", 2.0**-bits)
    return matmul(x[:, None, :], x[:, :, None], accuracy=accuracy, dtype="mp").reshape(-1)


def _squares(x: Any) -> Sum:
    """The squares of moduli of floats, at most about 1, off by less than 2**-100 of themselves, and by `LEAST`."""
    if x.dtype.kind != "c":
        return _square(x)
    real, imag = _square(x.real), _square(x.imag)
    high = added(real.high, imag.high)
    return added(high.high, high.low + (real.low + imag.low))


def _square(x: Any) -> Sum:
    """The exact squares of floats, unless they underflow: by the halves of T. J. Dekker, 1971."""
    high = x * x
    large = x * (2.0**27 + 1)
    upper = large - (large - x)
    lower = x - upper
    return Sum(high, ((upper * upper - high) + 2 * upper * lower) + lower * lower)


def _moduli(x: Any, bits: int) -> Any:
    """The moduli of elements: of real ones exact, else off by less than 2**(1 - bits) of themselves."""
    if not holds_complex(x):
        return abs(x)
    if isinstance(x, Numbers) or bits > _BITS_OF_TWO:
        x = exactly_on_host(x)
        return square_roots(_exact_squares(x.real) + _exact_squares(x.imag), bits)
    xp = array_library(x)
    exponents = xp.maximum(*(xp.where(part != 0, xp.frexp(part)[1], -5000) for part in (x.real, x.imag)))
    unit = xp.empty_like(x)
    unit.real, unit.imag = xp.ldexp(x.real, -exponents), xp.ldexp(x.imag, -exponents)
    squares = _squares(unit)
    high = xp.sqrt(squares.high)
    of_root = _square(high)
    rest = ((squares.high - of_root.high) - of_root.low) + squares.low
    root = added(high, xp.where(high > 0, rest / xp.where(high > 0, 2 * high, 1.0), 0.0))
    back = Sum(xp.ldexp(root.high, exponents), xp.ldexp(root.low, exponents))
    exact = Sum(xp.ldexp(back.high, -exponents), xp.ldexp(back.low, -exponents))
    if bool(((exact.high == root.high) & (exact.low == root.low)).all()):
        return back
    return exactly(root).ldexp(exponents.astype(np.int64))


def _exact_squares(x: Any) -> Any:
    """The squares of real multiprecision numbers, in host memory."""
    ints, exponents = x.to_ints()
    return _of_ints(ints**2, 2 * exponents)


def _of_ints(ints: npt.NDArray[np.object_], exponents: Any) -> Any:
    """Whole numbers times powers of two."""
    found = mparray(ints.reshape(-1).tolist()).reshape(ints.shape) if ints.size else mparray(np.zeros(ints.shape))
    return found.ldexp(np.asarray(exponents, np.int64))


def square_roots(x: Any, bits: int) -> Any:
    """The square roots of multiprecision numbers in host memory, off by less than 2**-bits of themselves."""
    ints, exponents = x.to_ints()
    found, powers = np.empty(ints.shape, object), np.zeros(ints.shape, np.int64)
    for i, value in np.ndenumerate(ints):
        found[i], powers[i] = _root(int(value), int(exponents[i]), bits)
    return _of_ints(found, powers)


def _root(value: int, exponent: int, bits: int) -> tuple[int, int]:
    """The square root of value 2**exponent, cut off behind at least so many bits."""
    shift = max(0, 2 * bits + 2 - value.bit_length())
    shift += (exponent - shift) % 2
    return isqrt(value << shift), (exponent - shift) // 2


# Powers --------------------------------------------------------------------------------------------------------------


def _powers(rows: Any, p: Fraction, bits: int) -> Any:
    """The norms (sum of abs(x)**p)**(1/p) of rows, off by less than 2**(4 - bits) of themselves.

    Where p is negative, and an element 0, it is 0, as it is the limit.
    """
    fine = bits + 16 + 2 * ceil(log2(1 + abs(p))) + ceil(log2(rows.shape[1])) + 2 * ceil(log2(1 + 1 / abs(p)))
    sizes = exactly_on_host(_moduli(rows, fine))
    ints, exponents = sizes.to_ints()
    found, powers = np.empty(len(ints), object), np.zeros(len(ints), np.int64)
    for i, (row, places) in enumerate(zip(ints, exponents, strict=True)):
        found[i], powers[i] = _power_norm([(int(v), int(e)) for v, e in zip(row, places, strict=True)], p, fine)
    return _of_ints(found, powers)


def _power_norm(row: list[tuple[int, int]], p: Fraction, bits: int) -> tuple[int, int]:
    """The norm of one row of whole numbers times powers of two."""
    live = [each for each in row if each[0]]
    if not live or (p < 0 and len(live) < len(row)):
        return 0, 0
    terms = [_power(value, exponent, p, bits) for value, exponent in live]
    top = max(value.bit_length() + exponent for value, exponent in terms)
    least = top - bits - 8 - len(live).bit_length()  # what is below changes the sum by less than 2**-bits of itself
    total = sum(_shifted(value, exponent - least) for value, exponent in terms)
    return _power(total, least, 1 / p, bits)


def _shifted(value: int, places: int) -> int:
    return value << places if places >= 0 else value >> -places


def _power(value: int, exponent: int, p: Fraction, bits: int) -> tuple[int, int]:
    """The power (value 2**exponent)**p, with so many bits at least, but for roundings."""
    value, exponent = _whole_power(value, exponent, abs(p.numerator), bits)
    value, exponent = _whole_root(value, exponent, p.denominator, bits)
    if p < 0:
        shift = value.bit_length() + bits
        value, exponent = (1 << shift) // value, -shift - exponent
    return value, exponent


def _whole_power(value: int, exponent: int, n: int, bits: int) -> tuple[int, int]:
    """The n-th power, by squares, cut off behind more bits than these."""
    found, of_found = 1, 0
    while n:
        if n & 1:
            found, of_found = _cut(found * value, of_found + exponent, bits)
        value, exponent = _cut(value * value, 2 * exponent, bits)
        n >>= 1
    return found, of_found


def _cut(value: int, exponent: int, bits: int) -> tuple[int, int]:
    extra = max(0, value.bit_length() - bits - 32)
    return value >> extra, exponent + extra


def _whole_root(value: int, exponent: int, n: int, bits: int) -> tuple[int, int]:
    """The n-th root, cut off behind at least so many bits: Newton's iteration for whole numbers, from above."""
    if n == 1:
        return value, exponent
    shift = max(0, n * (bits + 2) - value.bit_length())
    shift += (exponent - shift) % n
    whole = value << shift
    x = 1 << -(-whole.bit_length() // n)
    while True:
        y = ((n - 1) * x + whole // x ** (n - 1)) // n
        if y >= x:
            return x, (exponent - shift) // n
        x = y


# Results -------------------------------------------------------------------------------------------------------------


def relative_format(values: Any, error: Any, target: Target, xp: Any) -> tuple[Any, npt.NDArray[np.float64]]:
    """Values in the target's format and a library, and bounds of their relative errors.

    Raises
    ------
    OverflowError
        If one is too large for the format, or too small.
    """
    exponents: Exponents = tops_or_zero(values[None, :], 0) if values.size else np.zeros(0, np.int64)
    unit = values.ldexp(-exponents)
    found, kept = formatted(unit, Powers(columns=exponents), part_of(target.dtype))
    lost = on_host(missing(unit, kept))
    sizes = on_host(least_magnitudes(unit))
    share = np.where(sizes > 0, lost / np.where(sizes > 0, sizes, 1.0), 0.0)
    bounds = np.where(sizes > 0, error + share * (1 + error) + LEAST, 0.0) * UP
    if bool((share >= 1).any()):
        too_small(target.dtype)
    if xp is not np:
        found = moved(found, xp) if isinstance(found, Numbers) else xp.asarray(found)
    return found, bounds
