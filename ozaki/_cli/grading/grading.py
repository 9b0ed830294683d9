"""What the errors of a way show: which algorithm it may be, as `test_blas3` says it, and its grade."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ozaki._cli.grading.measuring import Measured

LEAST_SIZES = 3
"""Sizes from which on a slope is fitted: of two it is chance."""


@dataclass(frozen=True)
class Grade:
    """The grade of a way to multiply.

    Attributes
    ----------
    way : its name
    grade : "A", "B" or "C" for the first measure of componentwise, row-column and normwise in which no error of any
        test exceeds the limit, A also only if `slope` is at most 1; or "none"
    slope : of the logarithm of the largest error of uniform data over that of n, against exact entries; None if there
        are fewer than `LEAST_SIZES` sizes with an error
    slope_against_float64 : the same against sums in float64, as `grade_blas3` fits it
    algorithm : that which tests 2, 4 and 6 do not tell it from
    failed : the tests that are failed, each with its n
    """

    way: str
    grade: str
    slope: float | None
    slope_against_float64: float | None
    algorithm: str
    failed: tuple[str, ...]


def grades(found: Sequence[Measured]) -> list[Grade]:
    """Return the grade of each way, in the order in which they first occur."""
    return [_grade([one for one in found if one.way == way]) for way in dict.fromkeys(one.way for one in found)]


def _grade(found: Sequence[Measured]) -> Grade:
    uniform = [one for one in found if one.test == "growth"]
    slope = _slope([(one.n, one.error) for one in uniform])
    componentwise = all(one.error <= one.limit for one in found) and (slope is None or slope <= 1)
    row_column, normwise = (
        all(error is None or error <= limit for error, limit in pairs)
        for pairs in ([(one.row_column, one.limit) for one in found], [(one.normwise, one.limit) for one in found])
    )
    return Grade(
        way=found[0].way,
        grade="A" if componentwise else "B" if row_column else "C" if normwise else "none",
        slope=slope,
        slope_against_float64=_slope([(one.n, one.against_float64 or 0.0) for one in uniform]),
        algorithm=_algorithm(found),
        failed=tuple(f"{one.test}, n = {one.n}" for one in found if not one.passes),
    )


def _algorithm(found: Sequence[Measured]) -> str:
    """The algorithm that `test_blas3` would name, whose test 6 counts only where test 2 is failed, and test 4 else."""
    is_strassen = not all(one.keeps_zeros for one in found)
    judged = "Strassen" if is_strassen else "spread"
    point = "floating point" if all(one.passes for one in found if one.test == judged) else "fixed point"
    return f"Strassen in {point}" if is_strassen else point


def _slope(points: Sequence[tuple[int, float]]) -> float | None:
    """The slope of the line through the logarithms of points, by least squares, without those of errors that are 0."""
    usable = [(n, error) for n, error in points if 0 < error < np.inf]
    if len({n for n, _ in usable}) < LEAST_SIZES:
        return None
    x, y = np.log([n for n, _ in usable]), np.log([error for _, error in usable])
    return float(np.polyfit(x, y, 1)[0])
