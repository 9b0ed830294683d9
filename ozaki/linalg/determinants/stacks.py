"""Determinants in float64, all matrices of a stack at once (docs/linalg.md, L7 and L13).

Factors of elimination in float64 give triangular matrices X and Y. Two residuals by slices tell X A Y - I to more bits
than float64 has, and where that is small, only its trace counts. What this leaves, as ill-conditioned matrices,
`deciding.py` finds matrix by matrix.

Functions here raise nothing that depends on the numbers: NaN and Inf make bounds that reach no tolerance.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, log2, prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.driver.watching import step
from ozaki.linalg.common.arrays import array_library, on_host
from ozaki.linalg.common.products import UNIT, native_error, native_product
from ozaki.linalg.common.slices import count_for, exponents, parts, power, residual_by_slices, tops
from ozaki.linalg.common.upper import UP
from ozaki.linalg.determinants.elimination import factors
from ozaki.linalg.determinants.scalars import Determinant, Scalar, product_of_scalars, scalars
from ozaki.linalg.systems.stacks import inverse

_LARGEST = 2.0**400
"""The largest product of norms of X and Y that is taken. What underflows is below 2**-1074 in each element, and so
changes the logarithm of a determinant by less than `_TINY`."""

_TINY = 2.0**-600

_USUAL = 2.0**30
"""Slices are as many as such a product of norms takes. At larger ones the square of X A Y - I is too large."""


def determinants(a: Any, tolerance: float) -> list[Determinant | None]:
    """The determinants of float64 or complex128 matrices, shape (..., n, n), n > 0, to a relative tolerance.

    In row-major order; None stands for those that need more bits.
    """
    xp, n = array_library(a), a.shape[-1]
    a = a.reshape(-1, n, n)
    sizes = parts(a)
    rows = exponents(sizes.max(axis=2))
    columns = exponents((sizes * power(-rows)[:, :, None]).max(axis=1))
    # Columns first: that loses no bits, since their powers are 1 at least.
    a = a * power(-columns)[:, None, :] * power(-rows)[:, :, None]
    order, signs, x, upper = factors(a)
    y = xp.triu(inverse(upper))
    minus_e, errors, condition = _residuals(x, a[xp.arange(len(a))[:, None], order], y, tolerance)
    norm = _sum((abs(minus_e) + errors[:, None, :]) ** 2, (1, 2)) ** 0.5 * UP
    diagonal = xp.diagonal(minus_e, axis1=1, axis2=2)
    trace, of_trace = -diagonal.sum(axis=1), _sum(errors + n * UNIT * abs(diagonal), 1)
    size = abs(trace) * UP
    # log(det(I + E)) = tr(E) - tr(E^2)/2 + ..., of which all but tr(E) is at most norm(E)^2 / (2 (1 - norm(E))), and
    # log(1 + t) is as near to t.
    logarithms = (of_trace + _second_order(norm) + _second_order(size)) * UP + _TINY
    usual = (condition <= _LARGEST) & (norm < 0.5) & (size < 0.5)
    bounds = on_host(xp.where(usual, logarithms * (1 + logarithms), np.inf))
    step("determinants at once: off by up to %s", bounds)
    reached = bounds <= tolerance / 2  # the rest is for numbers that are cut off
    shifts = on_host(rows.sum(axis=1) + columns.sum(axis=1)).tolist()
    bits = max(ceil(-log2(tolerance)), 53) + n.bit_length() + 16
    of_y, traces = on_host(xp.diagonal(y, axis1=1, axis2=2))[reached], on_host(trace)[reached]
    each = zip(_products(of_y, bits), _one_more(traces, bits), strict=True)
    signs, found = on_host(signs).tolist(), list[Determinant | None]([None] * len(a))
    for at, (below, above) in zip(np.flatnonzero(reached).tolist(), each, strict=True):
        value = above.over(below, bits).times(Scalar(int(signs[at]), 0, shifts[at]))
        found[at] = Determinant(value, (float(bounds[at]) + 2.0 ** (5 - bits) * (n + 1)) * UP, 0)
    return found


def _residuals(x: Any, a: Any, y: Any, tolerance: float) -> tuple[Any, Any, Any]:
    """I - X A Y in float64, upper bounds of the largest error of each column, and the product of norms of X and Y."""
    xp, n = array_library(a), a.shape[-1]
    sizes = abs(y)
    condition = _sum(abs(x), 2).max(axis=1) * _sum(sizes, 1).max(axis=1)
    gains = on_host(condition)
    gain = gains[gains <= _USUAL].max(initial=1.0)
    count = count_for(tolerance / (64 * n * gain), x, a)
    minus_w, of_w = residual_by_slices(xp.zeros((n, n)), x, a, count, x_tops=tops(x, -1))
    w = -minus_w.high
    (high, low), errors = residual_by_slices(xp.eye(n), w, y, count, x_tops=tops(w, -1))
    low = low + native_product(minus_w.low, y)
    found = high + low
    # Errors of X A times Y, those of the native product, and two roundings.
    of_w = of_w + native_error(minus_w.low, y) * abs(minus_w.low).max(axis=1)
    errors = errors + _sum(of_w[:, :, None] * sizes, 1)
    return found, (errors + UNIT * (abs(low) + abs(found)).max(axis=1)) * UP, condition


def _second_order(size: Any) -> Any:
    return size**2 / (2 * (1 - size))


def _sum(x: Any, axis: int | tuple[int, int]) -> Any:
    """Upper bounds of sums of numbers that are not negative."""
    return x.sum(axis=axis) * (1 + (x[0].size + 64) * 2.0**-52)


def _products(factors: npt.NDArray[Any], bits: int) -> Iterator[Scalar]:
    """The product of each row: exactly of real numbers, else off by less than 2**(3 - bits) for each factor."""
    if factors.dtype.kind == "c":
        each, n = scalars(factors.ravel()), factors.shape[1]
        for at in range(len(factors)):
            yield product_of_scalars(each[at * n : (at + 1) * n], bits)
        return
    fractions, exponents = np.frexp(factors)
    wholes = (fractions * 2.0**53).astype(np.int64).tolist()
    for row, exponent in zip(wholes, (exponents - 53).sum(axis=1).tolist(), strict=True):
        yield Scalar(prod(row), 0, exponent)


def _one_more(x: npt.NDArray[Any], bits: int) -> Iterator[Scalar]:
    """The numbers 1 + x, abs(x) <= 1/2, off by less than 2**(2 - bits) of their abs."""
    real, imag = (np.ldexp(part, bits).tolist() for part in (x.real, x.imag))
    for re, im in zip(real, imag, strict=True):
        yield Scalar((1 << bits) + int(re), int(im), -bits)
