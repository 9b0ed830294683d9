"""Condition numbers and ranks, which are proven or left open."""

from __future__ import annotations

from contextlib import suppress
from fractions import Fraction
from math import ceil, comb, inf, log2
from numbers import Integral, Real
from typing import Any, Literal, NamedTuple

import numpy as np

from ozaki.driver.watching import named, reached, step
from ozaki.interchange.calls import any_arrays
from ozaki.linalg.common.arrays import array_library, exactly, exactly_on_host
from ozaki.linalg.common.matrices import check_matrix, matrices
from ozaki.linalg.common.scaling import Powers, scaled, tops_or_zero
from ozaki.linalg.common.targets import Target, target_of_real
from ozaki.linalg.common.upper import LEAST, UP
from ozaki.linalg.norms import matrix_norms, relative_format, vector_norms
from ozaki.linalg.spectra.singular import SingularDecomposition, relative_to_each
from ozaki.linalg.spectra.svd import Scaled
from ozaki.linalg.systems.gathering import logged, of_each
from ozaki.linalg.systems.inverses import LARGEST, LIMIT, left_inverse
from ozaki.linalg.systems.refinement import Inversion
from ozaki.linalg.systems.solution import solution
from ozaki.linalg.systems.solving import equilibrated
from ozaki.multiprecision.array import MPArray
from ozaki.multiprecision.objects import mparray
from ozaki.process.environment import default_environment
from ozaki.records.accuracy import Accuracy
from ozaki.records.formats import precision_of


class Condition(NamedTuple):
    """A condition number, and what is proven of it.

    Attributes
    ----------
    value : number, MPArray without axes, or array of the shape of a stack; real
    error_bound : float, or NumPy array of float64 of the shape of a stack
        It differs from the exact one by no more than this times that. Proven, rounding to the dtype included.
    iterations : int
        Corrections; of a stack the most of a matrix.
    """

    value: Any
    error_bound: Any
    iterations: int


class Rank(NamedTuple):
    """A rank: how many singular values are above a tolerance, proven or as an interval.

    Attributes
    ----------
    rank : int, or NumPy array of int of the shape of a stack
        How many computed singular values are above the tolerance; of tol=0 `least`.
    least, most : as `rank`
        How many are proven to be above it, and how many are not proven to be at most the tolerance: the rank is one of
        `least` to `most`, and proven where these are equal.
    error_bound : float, or NumPy array of float64 of the shape of a stack
        No singular value that this rests on is off by more than this times the largest of all.
    iterations : int
        Corrections; of a stack the most of a matrix.
    """

    rank: Any
    least: Any
    most: Any
    error_bound: Any
    iterations: int


@any_arrays("a", numpy=("error_bound",))
@default_environment
@np.errstate(all="ignore")
@named("cond", solves=True)
def cond(
    a: Any,
    p: float | Literal["fro"] | None = None,
    *,
    accuracy: Accuracy | str | float | None = None,
    dtype: Any = None,
) -> Condition:
    """Find the condition number of a matrix to a named accuracy, which is proven.

    Parameters
    ----------
    a : array or MPArray, shape (..., m, n), real or complex; square but for p = None, 2 and -2
    p : {None, 2, -2, 1, -1, inf, -inf, "fro"}, optional
        The norm whose product of a and its inverse it is, as in `numpy.linalg.cond`. None and 2: the largest singular
        value over the smallest one, -2 the smallest over the largest.
    accuracy, dtype
        As in `norm`; it is real.

    Returns
    -------
    Condition

    Raises
    ------
    numpy.linalg.LinAlgError
        If a is empty or singular, or its condition number above 2^300, for other norms than None, 2 and -2 with rows
        and columns scaled: an infinite one cannot be proven by approximations, so none is returned.
    ValueError, TypeError
        For operands that cannot be used, before any work; ValueError where None, 2 and -2 would need the smallest
        singular value to more than 900 bits of the largest.
    OverflowError
        If it is too large for the dtype.

    Notes
    -----
    Singular values as in `svdvals`, inverses as in `inv`. For None, 2 and -2 the smallest singular value is found to a
    relative accuracy, or of ill-conditioned square matrices as the reciprocal of the largest one of the inverse
    (docs/linalg.md, L9).

    Examples
    --------
    >>> import numpy as np, ozaki.linalg
    >>> hilbert = 1 / (1 + np.add.outer(np.arange(12.0), np.arange(12.0)))
    >>> found = ozaki.linalg.cond(hilbert)
    >>> f"{found.value:.6e}", found.error_bound < 2e-16
    ('1.681...e+16', True)
    """
    (a,), formats = matrices(a=a)
    p = 2 if p is None else p
    if p not in (2, -2, 1, -1, inf, -inf, "fro"):
        raise ValueError(f"p: {p!r}; expected None, 2, -2, 1, -1, inf, -inf or 'fro'")
    check_matrix("a", a, square=p not in (2, -2))
    target = target_of_real(accuracy, dtype, formats)
    if 0 in a.shape[-2:]:
        raise np.linalg.LinAlgError("a: no elements; a condition number is one of a matrix that has some")
    found = of_each(lambda each: _condition(each, p, target), a)
    return logged(found, a, found.value, "relative")


def _condition(a: Any, p: Any, target: Target) -> Condition:
    """The condition number of one matrix."""
    bits = ceil(-log2(target.tolerance)) + 12
    if p in (2, -2):
        above, below, error, steps = _singular_values(a, bits)
        value = _quotient(*((above, below) if p == 2 else (below, above)), bits)
    else:
        name = p if isinstance(p, str) else f"{p:g}"
        of_a, error_a = _norm(a, name, bits)
        of_inverse, error, steps = _inverse_norm(a, name, bits)
        value, error = of_a.reshape(1, 1) @ of_inverse.reshape(1, 1), error + error_a
    found, bounds = relative_format(value.reshape(1), error + 2.0**-bits, target, array_library(a))
    step("condition number: relative error up to %s", float(bounds[0]))
    number = found.reshape(())
    return Condition(number[()] if isinstance(number, np.ndarray) else number, float(bounds[0]), steps)


def _singular_values(a: Any, bits: int) -> tuple[Any, Any, float, int]:
    """Numbers with the quotient of the largest and the smallest singular value, a bound of its error, and corrections.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the smallest one cannot be told from 0.
    ValueError
        If it cannot be had in so many bits.
    """
    scale = Scaled(a)
    if scale.zero:
        raise np.linalg.LinAlgError("a: singular, all elements are zero")
    (m, n), tolerance = scale.unit.shape, 2.0 ** (2 - bits)
    found = SingularDecomposition(scale.unit, tolerance, vectors=False, of_least=True)
    if m == n and bool(found.values[n - 1] * _MOST_BY_VALUES < n * found.values[0]):
        with suppress(np.linalg.LinAlgError):
            return _by_inverse(a, bits)
    try:
        relative_to_each(found, tolerance, slice(n - 1, n), 1 / LARGEST)
    except ValueError:
        if found.least()[n - 1] > found.largest / LARGEST:
            raise ValueError(
                "accuracy: too many bits of the smallest singular value, beside the largest; ask for fewer"
            ) from None
        raise np.linalg.LinAlgError(f"a: singular, or its condition number is too large ({LIMIT})") from None
    values = exactly_on_host(found.values)
    errors = scale.errors(found)
    error = float(errors[0]) / float(values[0]) + float(errors[-1]) / float(values[-1])
    return values[0], values[n - 1], error * (1 + 2.0**-6), found.steps


_MOST_BY_VALUES = 2.0**21
"""Up to which n times the condition number vectors in float64 find the least singular value, in a third of the time."""


def _by_inverse(a: Any, bits: int) -> tuple[Any, Any, float, int]:
    """As `_singular_values`, the smallest one being the reciprocal of the largest one of the inverse."""
    inverse, error, steps = _inverse(a, bits)
    # In the Frobenius norm the inverse is off by n times that of its largest singular value.
    error, values, tolerance = len(a) * error, [], 2.0 ** (8 - bits)  # two 16ths of what is asked
    for x in (a, inverse):
        scale = Scaled(x)
        found = SingularDecomposition(scale.unit, tolerance, vectors=False)
        found.reach(tolerance)
        value = exactly_on_host(found.values)[0]
        error += float(scale.errors(found)[0]) / float(value)
        values.append(value.ldexp(scale.exponent))
        steps += found.steps
    return values[0], _reciprocal(values[1], bits), (error + 2.0**-bits) * (1 + 2.0**-6), steps


def _reciprocal(x: Any, bits: int) -> MPArray:
    """1 / x of a positive multiprecision number, off by less than 2**-bits of itself."""
    return _quotient(mparray([1]), x, bits)[0]


def _quotient(x: Any, y: Any, bits: int) -> MPArray:
    """x / y of positive multiprecision numbers, off by less than 2**-bits of itself."""
    (above, of_above), (below, of_below) = (each.reshape(1).to_ints() for each in (x, y))
    shift = max(0, bits + 1 + int(below[0]).bit_length() - int(above[0]).bit_length())
    quotient = (int(above[0]) << shift) // int(below[0])
    return mparray([quotient]).ldexp(np.array([int(of_above[0]) - int(of_below[0]) - shift]))


def _norm(a: Any, name: str, bits: int) -> tuple[Any, float]:
    """A norm of one matrix, as of `norm`."""
    if name == "fro":
        return vector_norms(a.reshape(1, -1), "fro", bits)
    return matrix_norms(a[None], name, bits)


def _inverse_norm(a: Any, name: str, bits: int) -> tuple[Any, float, int]:
    """A norm of the inverse, a bound of its relative error, and corrections.

    Errors of an inverse are relative to the largest element of each column. So columns of the inverse of the transpose
    stand for rows.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the matrix is singular.
    """
    found, of_found, steps = _inverse(a.swapaxes(0, 1) if "inf" in name else a, bits)
    value, error = _norm(found, name.replace("inf", "1"), bits)
    # A sum of moduli of a column is at least its largest one, and changes by no more than n errors; roots of sums of
    # squares likewise.
    return value, (error + len(a) * of_found) * (1 + 2.0**-6), steps


def _inverse(a: Any, bits: int) -> tuple[Any, float, int]:
    """The inverse, n times as accurate as so many bits, a bound of its error, relative to columns, and corrections.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the matrix is singular.
    """
    scales, unit, cleared = equilibrated(a)
    n = len(a)
    target = Target("normwise", 2.0**-bits / n, f"mp{bits + ceil(log2(n)) + 2}")
    found = solution(Inversion(left_inverse(unit)), Powers(scales.columns, scales.rows), target, cleared)
    return found.x, found.error_bound, found.iterations


# Ranks ---------------------------------------------------------------------------------------------------------------


@any_arrays("A", numpy=("rank", "least", "most", "error_bound"))
@default_environment
@np.errstate(all="ignore")
@named("matrix_rank", solves=True)
def matrix_rank(A: Any, tol: float | None = None, *, rtol: float | None = None) -> Rank:
    """Count the singular values of a matrix that are above a tolerance: proven, or as an interval.

    Parameters
    ----------
    A : array or MPArray, shape (..., m, n), real or complex
    tol : float, optional
        What singular values are compared with. 0 asks for the rank itself.
    rtol : float, optional
        The same relative to the largest singular value. Default, as in NumPy: max(m, n) times the distance of 1 from
        the next larger number of the dtype of A.

    Returns
    -------
    Rank

    Raises
    ------
    ValueError, TypeError
        For operands that cannot be used, before any work.
    numpy.linalg.LinAlgError
        If float64 finds no singular values.

    Notes
    -----
    Where the errors of singular values leave open whether one is above the tolerance, they are corrected, to 250 bits
    at most, or 850 for tol=0. That values are 0 follows from minors: those of a matrix of integers are integers, so
    that the product of the r + 1 largest singular values is 0 or at least 1 (docs/linalg.md, L9). Floats are integers
    times a power of two. What is left open then is an interval: as where a singular value is equal to the tolerance,
    or for tol=0 where a deficient matrix is too large, or its numbers have too many bits.

    Examples
    --------
    >>> import numpy as np, ozaki.linalg
    >>> ozaki.linalg.matrix_rank(np.arange(1, 10).reshape(3, 3), tol=0)[:3]  # proven
    (2, 2, 2)
    >>> ozaki.linalg.matrix_rank(np.array([[1.0, 0.0], [0.0, 1e-16]]))[:3]
    (1, 1, 1)
    >>> ozaki.linalg.matrix_rank(np.array([[1.0, 0.0], [0.0, 1e-16]]), tol=0)[:3]
    (2, 2, 2)
    """
    (a,), formats = matrices(A=A)
    check_matrix("A", a)
    expected = "a number that is at least 0"
    tol, rtol = limit("tol", tol, expected), limit("rtol", rtol, expected)
    for name, value in (("tol", tol), ("rtol", rtol)):
        if value is not None and not 0 <= value < inf:
            raise ValueError(f"{name}: {value!r}; expected {expected}")
    if tol is not None and rtol is not None:
        raise ValueError("rtol: given with tol; expected one of them")
    if tol is None and rtol is None:
        rtol = max(a.shape[-2:]) * 2.0 ** (1 - precision_of(formats[0]))
    found = of_each(lambda each: _rank(each, tol, rtol), a)
    return reached(found, a.shape, a, "singular value")


def _rank(a: Any, tol: float | None, rtol: float | None) -> Rank:
    """The rank of one matrix."""
    found = _counted(a, tol, rtol)
    step("rank %d to %d, singular values off by up to %s", found.least, found.most, found.error_bound)
    return found


_MOST_BITS = 2.0**-250
"""How accurate singular values are made that are to be told from a tolerance other than 0."""

_OF_ZERO = 2.0**-850
"""The same of 0."""


def _counted(a: Any, tol: float | None, rtol: float | None) -> Rank:
    exact = tol == 0 or rtol == 0
    if exact:  # which scaling does not change
        rows = Powers(rows=-tops_or_zero(a, 1))
        a = scaled(a, Powers(rows.rows, -tops_or_zero(a, 0, rows)))
    scale = Scaled(a) if a.size else None
    if scale is None or scale.zero:
        return Rank(0, 0, 0, 0.0, 0)
    found = SingularDecomposition(scale.unit, 2.0**-53, vectors=False)
    limit, goal, of_fractions = (_OF_ZERO if exact else _MOST_BITS), 1.0, -1.0
    while True:
        rank, least, most = counted_above(found, scale, tol, rtol)
        if exact and least < most:
            of_fractions = _bits_of_fractions(scale) if of_fractions < 0 else of_fractions
            # A matrix of a higher rank has a minor of one more row, which is a multiple of a power of two. The sum of
            # the squares of all these is the sum of products of squares of as many singular values.
            needed = (least + 1) * of_fractions + log2(comb(len(found.errors), least + 1)) / 2
            sizes = np.log2(found.least() + 2 * scale.errors(found) + LEAST)[: least + 1]
            if float(sizes.sum()) + needed < -(2.0**-20) * (needed + 1):
                most = least
            elif float(sizes[:-1].sum()) + needed + log2(limit) > 0:
                rank = least
                break
        rank = least if exact else rank  # a value that is not told from 0 is likely 0
        if least == most or goal <= limit:
            break
        # The first correction is one in float64, if no more is asked of it.
        goal = max(found.bound * (2.0**-40 if found.steps else 2.0**-8), limit)
        try:
            found.reach(goal)
        except np.linalg.LinAlgError:
            break
    error = float(scale.errors(found).max()) / (found.largest - float(found.errors.max())) * UP
    return Rank(rank, least, most, error, found.steps)


def _bits_of_fractions(scale: Scaled) -> float:
    """The least b such that the matrix times 2**b is one of integers."""
    if scale.cleared:
        return inf
    x = exactly(scale.unit)
    exponents = [part.to_ints()[1].min() for part in ((x.real, x.imag) if x.is_complex else (x,))]
    return -float(min(exponents))


def limit(name: str, x: Any, expected: str) -> Any:
    """A limit of singular values, None or a number of which a fraction can be made.

    Raises
    ------
    TypeError
    """
    if x is not None and not isinstance(x, Real):
        raise TypeError(f"{name}: {x!r}; expected {expected}")
    if isinstance(x, Integral):
        return int(x)  # those of NumPy overflow
    return x if x is None or isinstance(x, Fraction) else float(x)


def counted_above(
    found: SingularDecomposition, scale: Scaled, tol: float | None, rtol: float | None
) -> tuple[int, int, int]:
    """How many values are above the tolerance, how many surely so, and how many perhaps."""
    errors = scale.errors(found)
    middle = exactly(found.values).to_fractions()
    values = [(Fraction(x), Fraction(error)) for x, error in zip(middle, errors, strict=True)]
    if tol is None:
        assert rtol is not None
        share, (largest, error) = Fraction(rtol), values[0]
        limits = [share * (largest - error), share * largest, share * (largest + error)]
    else:
        limits = [Fraction(tol) / Fraction(2) ** scale.exponent] * 3
    return (
        sum(x > limits[1] for x, _ in values),
        sum(x - error > limits[2] for x, error in values),
        sum(x + error > limits[0] for x, error in values),
    )
