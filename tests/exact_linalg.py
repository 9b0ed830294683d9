"""Linear algebra in fractions, which judges results of `ozaki.linalg`."""

from fractions import Fraction
from math import isqrt

import numpy as np

import ozaki


def fractions(x):
    return ozaki.mparray(x).to_fractions()


def exact_solve(a, b):
    """Gauss-Jordan elimination in fractions."""
    n = len(a)
    rows = np.concatenate([a, b.reshape(n, -1)], axis=1)
    for p in range(n):
        q = next(i for i in range(p, n) if rows[i, p])
        rows[[p, q]] = rows[[q, p]]
        rows[p] = rows[p] / rows[p, p]
        for i in range(n):
            if i != p and rows[i, p]:
                rows[i] = rows[i] - rows[i, p] * rows[p]
    return rows[:, n:]


def error(x, exact, measure="normwise"):
    """The largest error of x, in a measure of solutions."""
    x, exact = fractions(x).reshape(exact.shape), np.asarray(exact)
    difference = abs(x - exact)
    if measure == "normwise":
        largest = abs(exact).max(axis=0)
        return max((d / m for d, m in zip(difference.max(axis=0), largest, strict=True) if d), default=Fraction(0))
    return max((d / abs(e) for d, e in zip(difference.flat, exact.flat, strict=True) if d), default=Fraction(0))


def product_error(a, x, y, by_columns=False):
    """The largest abs(a - x y)_ij / (norm(row i of x) norm(column j of y)), rounded to float64 at the end.

    With `by_columns` over the norm of the column alone.
    """
    rows = (x**2).sum(axis=1)
    missed, size = (a - x @ y) ** 2, np.outer(rows * 0 + 1 if by_columns else rows, (y**2).sum(axis=0))
    return max(sqrt_of(m / s) for m, s in zip(missed.flat, size.flat, strict=True) if m) if missed.any() else 0


def parts(x):
    """The real matrix that multiplies real and imaginary parts as a complex one does, in fractions."""
    return fractions(np.block([[x.real, -x.imag], [x.imag, x.real]]))


def sqrt_of(x):
    """The square root of a fraction, rounded, however small."""
    shift = max(0, x.denominator.bit_length() - x.numerator.bit_length()) // 2 + 60
    return isqrt(int(x * 4**shift)) * 2.0**-shift


def moduli(x):
    """The squares of the moduli of an `MPArray`'s numbers."""
    return fractions(x.real) ** 2 + fractions(x.imag) ** 2


def complex_solve(a, b):
    """The solution of a x = b, or of least squares, of `MPArray`s: its real and its imaginary parts."""
    of_a, of_b = parts(a), parts(b)[:, : b.shape[1]]
    x = exact_solve(of_a, of_b) if a.shape[0] == a.shape[1] else exact_solve(of_a.T @ of_a, of_a.T @ of_b)
    return x[: a.shape[1]], x[a.shape[1] :]


def complex_error(x, real, imag):
    """As `error` of an `MPArray`: the largest modulus of an error of a column over the largest modulus in that column.

    `real` and `imag` are the parts of the exact solution.
    """
    missed = (fractions(x.real) - real) ** 2 + (fractions(x.imag) - imag) ** 2
    sizes = (real**2 + imag**2).max(axis=0)
    return max(sqrt_of(m / s) for m, s in zip(missed.max(axis=0), sizes, strict=True) if m) if missed.any() else 0


def holds_eigenvalues(a, values, bound):
    """Whether the eigenvalues of a Hermitian `MPArray` lie within bound times the largest one of these values."""
    matrix, near = parts(a), fractions(values)
    error = Fraction(bound) * abs(near).max() * (1 + Fraction(2) ** -40)
    # A matrix of parts has each eigenvalue twice.
    return all(
        eigenvalues_below(matrix, x - error) <= 2 * i and eigenvalues_below(matrix, x + error) >= 2 * (i + 1)
        for i, x in enumerate(near)
    )


def eigenvalues_below(a, x):
    """How many eigenvalues of a symmetric matrix of fractions are below x: the negative pivots of a - x I."""
    rows, count = a - x * np.eye(len(a), dtype=int), 0
    for i in range(len(a)):
        pivot = rows[i, i]
        count += pivot < 0
        rows[i + 1 :] = rows[i + 1 :] - np.outer(rows[i + 1 :, i] / pivot, rows[i])
    return count


def complex_product_error(a, x, y, by_columns=False):
    """As `product_error`, of complex `MPArray`s."""
    missed = parts(a)[:, : a.shape[1]] - parts(x) @ parts(y)[:, : a.shape[1]]
    missed = missed[: len(a)] ** 2 + missed[len(a) :] ** 2
    rows, columns = moduli(x).sum(axis=1), moduli(y).sum(axis=0)
    size = np.outer(rows * 0 + 1 if by_columns else rows, columns)
    return max(sqrt_of(m / s) for m, s in zip(missed.flat, size.flat, strict=True) if m) if missed.any() else 0
