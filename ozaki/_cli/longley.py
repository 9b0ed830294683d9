"""Longley's regression (1967), NIST's standard test of least squares, which needs accurate products.

The columns of the data are so nearly dependent that double precision keeps about
half of its digits. Iterative refinement of the augmented system

    [ I   A ] [ r ]   [ y ]
    [ A^T 0 ] [ x ] = [ 0 ]          K z = rhs

corrects the solution by its residual, and is limited by the accuracy of the
residual. Here a residual is one product of this library, [K, rhs] [-z; 1], to a
named accuracy. Nothing is precomputed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from importlib import resources
from math import inf, log10
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

import ozaki
from ozaki._cli.devices import array_library, to_host
from ozaki.records.report import priced

Floats: TypeAlias = npt.NDArray[np.float64]
Product: TypeAlias = Callable[[Floats, Floats], tuple[Floats, float, str]]
"""Multiplies two matrices; returns the product, its componentwise tolerance, and what ran."""

TOLERANCES = (-48, -60, -66, -72)
"""Componentwise tolerances of the residuals, as powers of two."""

DOUBLES = 2
"""Doubles whose sum is an element of z: a single one would round z before the residual is computed."""

FULL = 16.0
"""Most digits that are counted: about as many as a float64 holds."""


@dataclass(frozen=True)
class Longley:
    """The data, with columns scaled to integers, and the exact solution.

    Attributes
    ----------
    a : array, shape (16, 7), the intercept's column of ones and six predictors
    y : array, shape (16,)
    units : the factor by which each column was multiplied, and so its coefficient divided
    certified : the coefficients in decimal, as NIST certifies them
    exact : the coefficients as rational numbers
    """

    a: Floats
    y: Floats
    units: tuple[int, ...]
    certified: tuple[str, ...]
    exact: tuple[Fraction, ...]


@dataclass(frozen=True)
class Solved:
    """One method of solving the regression, with the number of correct digits of its solution.

    Attributes
    ----------
    method : name of the method, as it is printed
    digits : -log10 of the largest relative error of a coefficient, at most `FULL`
    promised : -log10 of the largest relative error that the error bound of the residuals allows, at most `FULL`;
        None for a method without residuals
    product : slices and their products, or format, that the residuals were computed with; empty for a method without
        residuals
    """

    method: str
    digits: float
    promised: float | None = None
    product: str = ""


def longley() -> Longley:
    """Read the data, and solve the regression in rational numbers."""
    text = resources.files("ozaki").joinpath("data", "longley.dat").read_text("utf-8")
    certified = tuple(re.findall(r"\bb\d (-?\d\S*)", text))
    rows = [[Fraction(field) for field in line.split()] for line in text.splitlines() if line[0].isdigit()]
    units = (1, 10, 1, 1, 1, 1, 1)  # x1 has one decimal
    a = [[unit * x for unit, x in zip(units, [Fraction(1), *row[1:]], strict=True)] for row in rows]
    y = [row[0] for row in rows]
    exact = tuple(unit * x for unit, x in zip(units, _least_squares(a, y), strict=True))
    return Longley(np.array(a, float), np.array(y, float), units, certified, exact)


def _least_squares(a: list[list[Fraction]], y: list[Fraction]) -> list[Fraction]:
    """Solve the normal equations by elimination, in rational numbers."""
    columns = list(zip(*a, strict=True))
    rows = [[*(_dot(left, right) for right in columns), _dot(left, y)] for left in columns]
    for p, pivot in enumerate(rows):
        for q, row in enumerate(rows):
            if q != p:
                factor = row[p] / pivot[p]
                rows[q] = [x - factor * z for x, z in zip(row, pivot, strict=True)]
    return [row[-1] / row[p] for p, row in enumerate(rows)]


def _dot(x: Any, y: Any) -> Fraction:
    return sum((p * q for p, q in zip(x, y, strict=True)), Fraction(0))


def solve_longley(data: Longley, device: str = "cpu") -> Iterator[Solved]:
    """Solve the regression by every method of the table, from the least to the most accurate."""
    a, y = data.a, data.y

    def digits(*words: npt.NDArray[Any]) -> float:
        sums = [sum(map(Fraction, column), Fraction(0)) for column in np.stack(words).T.tolist()]
        found = [unit * x for unit, x in zip(data.units, sums, strict=True)]
        error = max(abs(x / z - 1) for x, z in zip(found, data.exact, strict=True))
        return min(FULL, -log10(error)) if error else FULL

    yield Solved("normal equations", digits(np.linalg.solve(a.T @ a, a.T @ y)))
    yield Solved("LAPACK least squares", digits(np.linalg.lstsq(a, y)[0]))
    # Powers of two scale without rounding.
    scales = 2.0 ** -np.frexp(np.linalg.norm(a, axis=0))[1]
    yield Solved("LAPACK least squares, columns scaled", digits(scales * np.linalg.lstsq(a * scales, y)[0]))

    residuals: dict[str, Product] = {"refined, native residuals": _native}
    for power in TOLERANCES:
        accuracy = ozaki.Accuracy("componentwise", 2.0**power)
        residuals[f"refined, residuals to 2^{power}"] = _product_to(accuracy, device)
    for method, product in residuals.items():
        words, error, what = refine(a, y, product)
        yield Solved(method, digits(*words), min(FULL, -log10(error)), what)


def refine(a: Floats, y: Floats, product: Product) -> tuple[Floats, float, str]:
    """Solve a least squares problem by refining its augmented system.

    Parameters
    ----------
    a : array, shape (m, n)
    y : array, shape (m,)
    product : function
        Multiplies two matrices; returns the product, its componentwise tolerance, and what ran.

    Returns
    -------
    x : array, shape (DOUBLES, n)
        The solution as an unevaluated sum of doubles, high word first.
    error : float
        The largest relative error of x that residuals of this tolerance allow, to first order.
    what : str
        How the last residual was computed.
    """
    m, n = a.shape
    k = np.block([[np.eye(m), a], [a.T, np.zeros((n, n))]])
    rhs = np.concatenate([y, np.zeros(n)])
    z = np.zeros((DOUBLES, m + n))
    change = inf
    while True:
        # Powers of two are moved from z into the columns of K: then the elements of z are alike in size, and suit one
        # shared exponent.
        scales = 2.0 ** np.frexp(z[0])[1]
        scaled, unit_z = k * scales, z / scales
        left, right = np.hstack([scaled] * DOUBLES + [rhs[:, None]]), np.append(-unit_z, 1.0)[:, None]
        residual, tolerance, what = product(left, right)
        correction = scales * np.linalg.solve(scaled, residual[:, 0])
        last, change = change, _largest_ratio(correction[m:], z[0, m:] + correction[m:])
        if change > last / 2:  # at its limit, refinement changes the solution without improving it
            errors = abs(np.linalg.inv(scaled)) @ (tolerance * (abs(left) @ abs(right))[:, 0])
            return z[:, m:], _largest_ratio(errors[m:], unit_z[0, m:]), what
        z = _add(z, correction)


def _largest_ratio(x: Floats, y: Floats) -> float:
    """Return the largest abs(x / y)."""
    return float(abs(x / y).max())


def _native(left: Floats, right: Floats) -> tuple[Floats, float, str]:
    """Multiply natively: a `Product`."""
    return left @ right, left.shape[1] * 2.0**-53, "float64"


def _product_to(accuracy: ozaki.Accuracy, device: str) -> Product:
    """Return the `Product` that multiplies to this accuracy on this device."""

    def product(left: Floats, right: Floats) -> tuple[Floats, float, str]:
        xp = array_library(device)
        c, report = ozaki.matmul(xp.asarray(left), xp.asarray(right), accuracy=accuracy, return_report=True)
        return to_host(c), accuracy.tolerance, priced(report.slices, report.scheme, report.products)

    return product


def _add(words: Floats, x: Floats) -> Floats:
    """Add x to unevaluated sums of words, shape (words, len(x)), the high words first."""
    terms = [*words, x]
    for _ in terms:
        # A sweep of error-free sums moves large terms to the front.
        for i in reversed(range(len(terms) - 1)):
            p, q = terms[i], terms[i + 1]
            s = p + q
            t = s - p
            terms[i], terms[i + 1] = s, (p - (s - t)) + (q - t)
    return np.stack(terms[: len(words)])
