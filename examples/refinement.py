"""A linear system of condition number 1e12, refined until no digit is wrong.

Float64 solves it to 4 digits, and refining that by residuals of float64 gains nothing, for b - A x cancels. With an
exact residual, and x of as many bits as are wanted, the same float64 solver gains 4 digits in every step.

The oracle is Gaussian elimination in fractions.
"""

from fractions import Fraction

import numpy as np

import ozaki


def refine(a, b, bits, steps=20):
    """Solve a x = b to `bits` bits, with float64's solver and exact residuals."""
    x = ozaki.mparray(np.linalg.solve(a, b))
    for _ in range(steps):
        residual = b - ozaki.matmul(a, x, accuracy="exact", dtype="mp")
        correction = np.linalg.solve(a, residual.astype("float64"))
        x = (x + correction).round_to(bits)
    return x


def refine_in_float64(a, b, steps=20):
    """The same in float64 alone."""
    x = np.linalg.solve(a, b)
    for _ in range(steps):
        x = x + np.linalg.solve(a, b - a @ x)
    return x


def solve_exactly(a, b):
    """Gaussian elimination in fractions."""
    rows = [[Fraction(x) for x in (*row, y)] for row, y in zip(a.tolist(), b.tolist(), strict=True)]
    for p, pivot in enumerate(rows):  # no pivot of a random matrix is zero
        for q, row in enumerate(rows):
            if q != p:
                factor = row[p] / pivot[p]
                rows[q] = [x - factor * y for x, y in zip(row, pivot, strict=True)]
    return np.array([row[-1] / row[p] for p, row in enumerate(rows)])


def worst_error(x, exact):
    """The largest relative error of a solution: an array, or a tuple of float64 words, whose sums it is."""
    return float(abs(ozaki.mparray(x).to_fractions() / exact - 1).max())


def main():
    n, rng = 20, np.random.default_rng(0)
    left, right = (np.linalg.qr(rng.standard_normal((n, n)))[0] for _ in range(2))
    a, b = left * np.geomspace(1, 1e-12, n) @ right, rng.standard_normal(n)
    exact = solve_exactly(a, b)

    print(f"{n} equations, condition number {np.linalg.cond(a):.0e}; largest relative error of an unknown")
    print(f"  float64's solution            {worst_error(np.linalg.solve(a, b), exact):.0e}")
    print(f"  refined in float64            {worst_error(refine_in_float64(a, b), exact):.0e}")
    one = refine(a, b, bits=106).astype("float64")
    print(f"  exact residuals, one float64  {worst_error(one, exact):.0e}")
    two = tuple(refine(a, b, bits=106).words(2))
    print(f"  exact residuals, two float64  {worst_error(two, exact):.0e}")
    assert one.tolist() == [float(x) for x in exact]  # correctly rounded: Python rounds fractions to nearest
    assert worst_error(two, exact) < 2.0**-104


if __name__ == "__main__":
    main()
