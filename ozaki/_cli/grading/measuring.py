"""Errors of products against exact entries, in the measures of the grades."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ozaki import reference
from ozaki._cli.grading.inputs import Array, Input
from ozaki._cli.grading.ways import Ran, Way

EPSILON = 2.0**-52
"""The unit of errors, that of `grade_blas3`: the distance of 1 to the next number of float64."""

FACTOR = 5
"""A product of k terms may err by `FACTOR` k units: the tolerance of `test_blas3`, 10 k units of half this size."""


@dataclass(frozen=True)
class Measured:
    """What was measured of the product of a test's operands by one way.

    Attributes
    ----------
    test, n, k : the test, and the rows of A and of B
    way, ran, slices, seconds : as `Way` and `Ran` have them
    entries : number of entries that were measured
    error, mean : the largest and the mean componentwise error; where terms underflow, of what these roundings leave
    row_column, normwise : errors of the same entries in other measures; None where the measure before is at most
        `limit`, since each is no larger than that before
    limit : the most that an error may be
    keeps_zeros : whether the entries are zero that a test wants to be; True of tests that want none
    passes : whether they are, and the errors that the test judges are at most `limit`
    against_float64 : the largest componentwise error against sums in float64, which `grade_blas3` prints; None but of
        the data of that program

    All errors are in units of `EPSILON`.
    """

    test: str
    n: int
    k: int
    way: str
    ran: str
    slices: int
    seconds: float
    entries: int
    error: float
    mean: float
    row_column: float | None
    normwise: float | None
    limit: int
    keeps_zeros: bool
    passes: bool
    against_float64: float | None


def measured(given: Input, ways: Sequence[Way]) -> list[Measured]:
    """Multiply the operands of a test in several ways, and measure the errors of each."""
    products = [way.run(given.a, given.b) for way in ways]
    a = given.a[given.rows]
    found = np.stack([ran.c[given.rows] for ran in products])
    if given.underflows:
        errors = np.stack([_errors_beyond_underflow(c, a, given.b) for c in found])
    else:
        errors = reference.componentwise_errors(found, a, given.b)
    return [_of_one(given, way, ran, of_it / EPSILON) for way, ran, of_it in zip(ways, products, errors, strict=True)]


def _of_one(given: Input, way: Way, ran: Ran, errors: Array) -> Measured:
    """What is measured of one way; `errors` are the componentwise errors of the entries to measure."""
    (n, k), a, c = given.a.shape, given.a[given.rows], ran.c[given.rows]
    limit, worst = FACTOR * k, float(np.max(errors, initial=0.0))
    keeps_zeros = bool((ran.c[given.zeros] == 0).all())
    judged = errors[: given.judged, : given.judged]

    def unless(error: float | None, measure: Callable[..., float]) -> float | None:
        return None if error is None or error <= limit else measure(c, a, given.b) / EPSILON

    row_column = unless(worst, reference.row_column_error)
    return Measured(
        test=given.test,
        n=n,
        k=k,
        way=way.name,
        ran=ran.what,
        slices=ran.slices,
        seconds=ran.seconds,
        entries=errors.size,
        error=worst,
        mean=float(np.mean(errors)),
        row_column=row_column,
        normwise=unless(row_column, reference.normwise_error),
        limit=limit,
        keeps_zeros=keeps_zeros,
        passes=keeps_zeros and bool((judged <= limit).all()),
        against_float64=_against_float64(c, a, given.b) if given.test == "growth" else None,
    )


def _errors_beyond_underflow(c: Array, a: Array, b: Array) -> Array:
    """Componentwise errors beyond what roundings of k terms that underflow allow: half of the least number for each.

    The operands are real, or complex numbers whose imaginary parts are zero.
    """
    exact, exponent = reference.exact_matmul(a.real, b.real)
    scales, scale_exponent = reference.exact_matmul(abs(a.real), abs(b.real))
    allowed = Fraction(a.shape[1], 2**1075)

    def beyond(entry: complex, integer: int, scale: int) -> float:
        if not np.isfinite(entry):
            return float("nan") if np.isnan(entry) else float("inf")
        off = abs(Fraction(float(entry.real)) - integer * Fraction(2) ** exponent) + abs(Fraction(float(entry.imag)))
        return float(max(off - allowed, Fraction()) / (scale * Fraction(2) ** scale_exponent))

    found: Array = np.vectorize(beyond, otypes=[float])(c, exact, scales)
    return found


def _against_float64(c: Array, a: Array, b: Array) -> float:
    """The largest error that `grade_blas3` finds: against sums in float64, one term after the other, over such sums."""
    sums, sizes = np.zeros_like(c), np.zeros(c.shape)
    for column, row in zip(a.T, b, strict=True):
        sums += column[:, None] * row
        sizes += abs(column)[:, None] * abs(row)
    return float((abs(c - sums) / sizes).max() / EPSILON)
