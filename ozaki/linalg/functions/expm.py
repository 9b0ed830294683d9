"""The exponential of a matrix to a named accuracy, by scaling and squaring."""

from __future__ import annotations

from math import ceil, factorial, inf, isqrt, lgamma, log, log2
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from ozaki.driver.watching import named, reached, step
from ozaki.interchange.calls import any_arrays
from ozaki.linalg.common.arrays import Sum, array_library, exactly, on_host
from ozaki.linalg.common.matrices import check_matrix, matrices
from ozaki.linalg.common.scaling import ZERO, Exponents
from ozaki.linalg.common.targets import Target
from ozaki.linalg.common.upper import UP, least_magnitudes, magnitudes
from ozaki.linalg.factors.correcting import factor_target
from ozaki.linalg.functions.doubled import Doubled
from ozaki.linalg.functions.enclosed import Enclosed, multiplied, total
from ozaki.linalg.systems.gathering import of_each
from ozaki.linalg.systems.solution import empty, in_format, too_small, widened
from ozaki.linalg.systems.stacks import at_once
from ozaki.multiprecision.objects import mparray
from ozaki.process.environment import default_environment

_LARGEST = 40
"""The logarithm of the largest norm: one of 2**k takes some k bits and k products more."""

_MOST_BITS = 2**13
"""Bits from which on products are not tried."""


class Expm(NamedTuple):
    """The exponential of a matrix, and what is proven of it.

    Attributes
    ----------
    expm : array or MPArray, shape (..., n, n)
    error_bound : float, or NumPy array of float64 of the shape of a stack
        No element differs from the exact one by more than this times the largest element of the exact exponential.
        Proven, rounding to the dtype included.
    error_bounds : NumPy array of float64, shape (..., n)
        The same of each column, relative to the largest element of that column: where a column is far smaller than the
        others, more than `error_bound`; inf where it cannot be told from zero.
    iterations : int
        How often it was computed anew in more bits; of a stack the most of a matrix.
    """

    expm: Any
    error_bound: Any
    error_bounds: npt.NDArray[np.float64]
    iterations: int


@any_arrays("a", numpy=("error_bound", "error_bounds"))
@default_environment
@np.errstate(all="ignore")
@named("expm", solves=True)
def expm(a: Any, *, accuracy: str | float | None = None, dtype: Any = None) -> Expm:
    """Find the exponential of a square matrix to a named accuracy, which is proven.

    Parameters
    ----------
    a : array or MPArray, shape (..., n, n), real or complex
    accuracy : str, int or float, optional
        Before the exponential is rounded to its dtype: "fp64", a number of bits b up to 900, which allows an error of
        2^-b, or a tolerance, relative to the largest element of the exponential. Default: as many bits as the dtype
        has.
    dtype : {"float64", "float32", "complex128", "complex64", "mp"}, optional
        As in `solve`.

    Returns
    -------
    Expm

    Raises
    ------
    numpy.linalg.LinAlgError
        If the norm of a is above 2^40, or the exponential so much smaller than those of parts of a that more than
        8192 bits would be needed.
    OverflowError
        If an element is too large for the dtype, or all are too small.
    ValueError, TypeError
        For operands that cannot be used, before any work.

    Notes
    -----
    A polynomial of Taylor's of a / 2^s, whose remainder is bounded, is squared s times in as many bits as are needed:
    the error of each product and of each square is bounded by norms of what was computed (docs/linalg.md, L7). So the
    hump of matrices that are not normal costs bits, not digits. C. Moler and C. Van Loan, "Nineteen dubious ways to
    compute the exponential of a matrix, twenty-five years later", SIAM Review 45 (2003); M. S. Paterson and L. J.
    Stockmeyer, SIAM J. Comput. 2 (1973).

    Examples
    --------
    >>> import numpy as np, ozaki.linalg
    >>> turned, error_bound, _, _ = ozaki.linalg.expm(np.array([[0.0, -1e3], [1e3, 0.0]]))
    >>> turned[0], bool(abs(turned[0, 0] - np.cos(1e3)) <= error_bound + 2e-16)
    (array([ 0.56237908, -0.82687954]), True)
    >>> ozaki.linalg.expm(np.array([[-49.0, 24.0], [-64.0, 31.0]]), accuracy=100, dtype="mp").expm
    mparray([[-0.735759,  0.551819],
             [ -1.47152,   1.10364]], bits=102)
    """
    (a,), formats = matrices(a=a)
    check_matrix("a", a, square=True)
    target = factor_target(accuracy, dtype, formats, "of an exponential it is relative to its largest element")
    # What stands in for the matrices of a stack without any is multiplied by 0: the exponential of 0 takes no time.
    found = of_each(lambda each: _exponential(each if a.size else 0 * each, target), a)
    return reached(found, a.shape, found.expm, "normwise")


def _exponential(a: Any, target: Target) -> Expm:
    """The exponential of one matrix.

    Raises
    ------
    numpy.linalg.LinAlgError
        If its norm is too large, or it takes too many bits.
    OverflowError
        If an element is too large for the dtype, or all are too small.
    """
    if not a.size:
        return Expm(empty(a.shape, target.dtype, a), 0.0, np.zeros(0), 0)  # what no element has is exact
    if (quick := _in_float64(a, target)) is not None:
        return quick
    given, powers = _balanced(Enclosed(exactly(a)))
    size = given.norms[1]
    if size > _LARGEST:
        raise np.linalg.LinAlgError(f"a: its norm is about 2^{ceil(size) - 1}; expected at most 2^{_LARGEST}")
    wanted = log2(target.tolerance) - 2
    bits = ceil(max(size, 0) - wanted) + 2 * a.shape[0].bit_length() + 12
    for steps in range(8):
        if bits > _MOST_BITS:
            break
        found = _by_squaring(given, size, bits).scaled(powers)
        step("%d bits: error up to 2^%d, of elements up to 2^%d", bits, ceil(max(found.error, -(2**60))), found.top)
        assert found.top is not None or found.error > -inf
        missing = inf if found.top is None else found.error - (found.top - 2 + wanted)
        if missing <= 0:
            return _rounded(found, target, steps)
        bits += ceil(min(missing, 2.0**20)) + 8
    raise np.linalg.LinAlgError(
        f"a: exponentials of parts of it are larger by so much that this accuracy takes {bits} bits; expected at most "
        f"{_MOST_BITS}"
    )


def _in_float64(a: Any, target: Target) -> Expm | None:
    """The exponential of a matrix of floats that is neither large nor tiny, by sums of two floats.

    None of others, and where the accuracy is not met.
    """
    if not at_once(target, a.shape[0], a) or not 2.0**-_SMALL < float(abs(a).max()) < 2.0**_USUAL:
        return None
    given = Doubled(Sum(a, 0 * a))
    if given.norms[1] > _USUAL:
        return None
    found = _by_squaring(given, given.norms[1], _BITS)
    if not found.error < _FARTHEST:
        return None
    (x, low), error = found.x, 2.0 ** max(found.error, -990.0) * UP
    result = x.astype(target.dtype)
    lost = on_host((magnitudes(x - widened(result)) + magnitudes(low)).max(axis=0)) + error
    sizes = on_host(least_magnitudes(x).max(axis=0)) - error
    largest = float(sizes.max())
    step("sums of two floats: error up to %s, of elements up to %s", error, largest)
    usable = bool(array_library(x).isfinite(result).all()) and bool((result != 0).any())
    if not usable or not 0 < error <= target.tolerance / 4 * largest:
        return None
    bounds = np.where(sizes > 0, lost / np.where(sizes > 0, sizes, 1.0), inf) * UP
    return Expm(result, float(lost.max()) / largest * UP, bounds, 0)


_FARTHEST = 1000
"""The logarithm of an error that is beyond all uses, and a float."""

_BITS = 80
"""How many bits products of sums of two floats have, about: slices make them no more."""

_SMALL = 100
_USUAL = 8
"""Logarithms of norms between which exponentials, powers and their squares are far from the ends of float64."""


def _rounded(found: Enclosed, target: Target, steps: int) -> Expm:
    """An exponential in its format, with the bounds of its errors.

    Raises
    ------
    OverflowError
        If an element is too large for the dtype, or all are too small.
    """
    top = found.top
    assert top is not None
    x = in_format(found.x, target.dtype)
    unit, kept = found.x.ldexp(-top), mparray(x).ldexp(-top)
    error = (2.0 ** max(found.error - top, -990.0)) * UP if found.error > -inf else 0.0
    lost = on_host(magnitudes(unit - kept).max(axis=0)) + error
    sizes = on_host(least_magnitudes(unit).max(axis=0)) - error
    if not bool((kept.signs != 0).any()):
        too_small(target.dtype)
    bounds = np.where(sizes > 0, lost / np.where(sizes > 0, sizes, 1.0), inf) * UP
    bounds[lost == 0] = 0.0
    bound = float(lost.max()) / float(sizes.max()) * UP
    return Expm(x, bound, bounds, steps)


_SWEEPS = 20
"""The most times that rows and columns are balanced."""


def _balanced(a: Enclosed) -> tuple[Enclosed, Exponents]:
    """A matrix D^-1 a D of a smaller norm, if there is one, and the exponents of D: powers of two, so this is exact.

    The largest elements of row and column i beside the diagonal become alike, as in E. E. Osborne, "On pre-conditioning
    of matrices", J. ACM 7 (1960), but none is made smaller than 1, even if the other one is zero.
    """
    n = a.x.shape[0]
    powers = np.zeros(n, np.int64)
    if a.top is None or a.norms[1] <= 0:
        return a, powers
    exponents, present = on_host(a.x.exponents), on_host(a.x.signs != 0)
    sizes = np.where(present, exponents, ZERO)
    sizes = sizes.max(axis=2) if a.x.is_complex else sizes
    np.fill_diagonal(sizes, ZERO)
    for _ in range(_SWEEPS):
        changed = False
        for i in range(n):
            row, column = int(sizes[i].max()), int(sizes[:, i].max())
            half = abs(row - column) // 2  # of zeros it is large
            by = min(half, max(row, 0)) if row > column else -min(half, max(column, 0))
            if by:
                sizes[i] -= np.where(sizes[i] > ZERO, by, 0)
                sizes[:, i] += np.where(sizes[:, i] > ZERO, by, 0)
                powers[i] += by
                changed = True
        if not changed:
            break
    found = a.scaled(-powers)
    return (found, powers) if found.norms[1] < a.norms[1] - 1 else (a, np.zeros(n, np.int64))


# Scaling and squaring ------------------------------------------------------------------------------------------------

_Matrix = TypeVar("_Matrix", Enclosed, Doubled)


def _by_squaring(a: _Matrix, size: float, bits: int) -> _Matrix:
    """The exponential, with products of so many bits; `size` is the logarithm of the spectral norm of a, or more."""
    if a.norms[0] == -inf:
        return a.eye()
    squarings, degree = _plan(max(size, -1e6), bits)
    x = _taylor(a.halved(squarings).shortened(bits), degree, bits)
    for _ in range(squarings):
        x = x.times(x, bits).shortened(bits)
    return x


def _plan(size: float, bits: int) -> tuple[int, int]:
    """How often to square, and the degree of the polynomial, so that there are few products."""
    best = inf, 0, 1
    for squarings in range(max(0, ceil(size) + 1), max(0, ceil(size)) + 64):
        small, degree = size - squarings, 1
        while -(degree + 1) * small + lgamma(degree + 2) / log(2) < bits:
            degree += 1
        width = isqrt(degree) + 1
        best = min(best, (squarings + width + degree // width, squarings, degree))
    return best[1:]


def _taylor(b: _Matrix, degree: int, bits: int) -> _Matrix:
    """Taylor's polynomial of the exponential of b, with its remainder in the error, by Paterson and Stockmeyer."""
    width = isqrt(degree) + 1
    powers = [b.eye(), b]
    for _ in range(2, width + 1):
        powers.append(powers[-1].times(b, bits).shortened(bits))
    found: _Matrix | None = None
    for start in range(degree // width * width, -1, -width):
        terms = [powers[k - start].over(factorial(k), bits) for k in range(start, min(start + width, degree + 1))]
        if found is not None:
            terms.append(found.times(powers[width], bits))
        found = b.summed(terms, bits).shortened(bits)
    assert found is not None
    # The terms left out are at most norm(b)^(m+1) / (m+1)! (1 + q + q^2 + ...), q = norm(b) / (m+2) at most 1/2: one
    # norm is the Euclidean one.
    euclidean, spectral = (total(norm, b.error) for norm in b.norms)
    assert spectral <= 0
    size = lgamma(degree + 2) / log(2) * (1 - 2.0**-40)
    remainder = multiplied(euclidean, *[spectral] * degree, -size, 1.0)
    return type(b)(found.x, total(found.error, remainder))
