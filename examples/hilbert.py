"""The inverse of the 20 x 20 Hilbert matrix, all digits of all entries, from float64 inverses that are wrong.

The condition number is above 1e28, so float64's inverse has hardly a correct digit. But multiplied from the left it
makes the matrix better conditioned, if that product is accurate, and of the product float64 finds a better inverse: the
method of S. M. Rump, "Inversion of extremely ill-conditioned matrices in floating-point", 2009. Newton's steps end it.

The oracle is SciPy's exact inverse, `scipy.linalg.invhilbert`, whose entries are whole numbers from a formula.
"""

from math import lcm

import numpy as np
from scipy.linalg import invhilbert

import ozaki

N = 20


def product(x, h):
    """X H exactly: almost all of it cancels."""
    return ozaki.matmul(x, h, accuracy="exact", dtype="mp")


def nearest_integers(x):
    """The elements rounded to Python integers."""
    return np.frompyfunc(round, 1, 1)(x.to_fractions())


def main():
    # Times the least common denominator, the entries 1 / (i + j + 1) are whole numbers that float64 holds.
    scale = lcm(*range(1, 2 * N))
    h = np.array([[float(scale // (i + j + 1)) for j in range(N)] for i in range(N)])
    correct = invhilbert(N, exact=True)

    float64 = scale * np.linalg.inv(h)
    print(f"float64: inverse[0, 0] = {float64[0, 0]:.3f}, and it is {correct[0, 0]}")

    x, eye = ozaki.mparray(np.eye(N)), np.eye(N)
    for _ in range(10):
        left = product(x, h)
        residual = eye - left
        norm = np.linalg.norm(residual.astype("float64"), ord=np.inf)
        print(f"  X of {x.bits:3} bits: norm of I - X H {norm:.0e}")
        if norm >= 0.1:  # the steps below, which square the norm, would take long, or diverge
            x = product(np.linalg.inv(left.astype("float64")), x)
        elif norm > 1e-40:  # entries have up to 28 digits
            x = (x + product(residual, x)).round_to(300)
        else:
            break
    # The Hilbert matrix is H / scale, so its inverse is scale X.
    found = nearest_integers(scale * x)
    print(f"rounded: inverse[0, 0] = {found[0, 0]}, the largest entry is {found.max()}")
    assert (found == correct).all()
    print(f"all {found.size} entries are those of scipy.linalg.invhilbert")


if __name__ == "__main__":
    main()
