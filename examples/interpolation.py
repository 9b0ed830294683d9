"""A polynomial of degree 50 through equispaced points, which float64 cannot find.

Between the points, this interpolation magnifies errors of the data up to 4e12 times, and the matrix that gives the
coefficients, here of Chebyshev polynomials, is as ill-conditioned. So float64 leaves a few digits. With matrix and data
of more bits, float64's inverse of the matrix, and exact residuals, the polynomial is right to 212 bits.

The oracles: the same polynomial by Lagrange's formula in fractions, and the function itself from mpmath.
"""

from fractions import Fraction
from math import prod

import mpmath
import numpy as np

import ozaki

DEGREE = 50
BITS = 212
MORE_BITS = BITS + 53
"""Bits to compute with: some 45 of them are lost to the condition number."""


def chebyshev(points):
    """The matrix of T_j(points[i]), j from 0 to the degree."""
    with mpmath.workprec(MORE_BITS + 20):
        angles = [mpmath.acos(x) for x in points.tolist()]
        return ozaki.mparray([[mpmath.cos(j * t) for j in range(DEGREE + 1)] for t in angles], bits=MORE_BITS)


def function(points):
    """exp(sin(2 x))."""
    with mpmath.workprec(MORE_BITS + 20):
        return ozaki.mparray([mpmath.exp(mpmath.sin(2 * mpmath.mpf(x))) for x in points.tolist()], bits=MORE_BITS)


def solve(matrix, rhs):
    """Solve by float64's inverse and exact residuals, until these are small enough."""
    inverse = np.linalg.inv(matrix.astype("float64"))
    x = ozaki.mparray(inverse @ rhs.astype("float64"))
    for _ in range(100):  # each step gains two or three digits
        residual = rhs - ozaki.matmul(matrix, x, accuracy="exact")
        if abs(residual).max() < 2.0**-MORE_BITS:
            break
        x = (x + inverse @ residual.astype("float64")).round_to(2 * MORE_BITS)
    return x


def lagrange(points, values, x):
    """The polynomial through (points, values) at x, in fractions."""
    terms = (y * prod((x - q) / (p - q) for q in points if q != p) for p, y in zip(points, values, strict=True))
    return sum(terms)


def worst(x, exact):
    """The largest difference from an array of fractions."""
    return float(abs(ozaki.mparray(x).to_fractions() - exact).max())


def main():
    nodes = np.linspace(-1, 1, DEGREE + 1)
    between = np.concatenate([(nodes[:5] + nodes[1:6]) / 2, [0.01]])  # the first gaps are the worst
    matrix, values, wanted = chebyshev(nodes), function(nodes), function(between).to_fractions()

    points, heights = list(map(Fraction, nodes.tolist())), values.to_fractions()
    exact = np.array([lagrange(points, heights, Fraction(x)) for x in between.tolist()])

    found = ozaki.matmul(chebyshev(between), solve(matrix, values), accuracy=MORE_BITS)
    double = np.linalg.solve(matrix.astype("float64"), values.astype("float64"))
    float64 = chebyshev(between).astype("float64") @ double

    condition = np.linalg.cond(matrix.astype("float64"))
    print(f"degree {DEGREE}, condition number {condition:.0e}; largest error between points")
    print(f"  float64: {worst(float64, exact):.0e} from the polynomial, {worst(float64, wanted):.0e} from the function")
    print(f"  ozaki:   {worst(found, exact):.0e} from the polynomial, {worst(found, wanted):.0e} from the function")
    assert worst(found, exact) < 2.0**-BITS
    assert worst(found, wanted) < 1e-17  # as far as the exact polynomial is


if __name__ == "__main__":
    main()
