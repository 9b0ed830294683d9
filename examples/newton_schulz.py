"""The inverse of an ill-conditioned matrix to more than 212 bits, by Newton-Schulz with growing precision.

A step X + X (I - A X) squares the residual I - A X, so the number of correct bits doubles. It starts from the inverse
that float64 finds, of which about 4 digits are right, and each step computes with the bits that it gains, no more.

The oracle is the residual in fractions: it bounds the error of every entry of X.
"""

from fractions import Fraction
from math import log2

import numpy as np

import ozaki

BITS = 212


def ill_conditioned(n, condition, rng):
    """Singular values from 1 down to 1 / condition between two random orthogonal matrices."""
    left, right = (np.linalg.qr(rng.standard_normal((n, n)))[0] for _ in range(2))
    return left * np.geomspace(1, 1 / condition, n) @ right


def improved(a, x):
    """One step, and the norm of the residual before it."""
    # The residual is what remains of 1 - 1. Exact, it is right however small it is.
    residual = np.eye(len(a)) - ozaki.matmul(a, x, accuracy="exact", dtype="mp")
    norm = np.linalg.norm(residual.astype("float64"))
    # The step squares the norm. A float64's worth of bits more keeps roundings, times the condition number, below that.
    bits = 53 + int(-2 * log2(norm))
    return (x + ozaki.matmul(x, residual, accuracy=bits)).round_to(bits), norm


def worst_error(a, x):
    """An upper bound of the relative error of every entry of x, the inverse of a."""
    a, x = ozaki.mparray(a).to_fractions(), x.to_fractions()
    rho = abs(np.eye(len(a), dtype=int) - a @ x).sum(axis=1).max()
    # With R the residual, inv(A) - X = X R / (I - R). No entry of R / (I - R) is above its norm, rho / (1 - rho).
    assert rho < 1
    return (abs(x).sum(axis=1) / abs(x).min(axis=1)).max() * rho / (1 - rho)


def main():
    a = ill_conditioned(40, 1e12, np.random.default_rng(0))
    print(f"40 x 40, condition number {np.linalg.cond(a):.0e}")
    x = ozaki.mparray(np.linalg.inv(a))
    for _ in range(10):
        before = x.bits
        x, norm = improved(a, x)
        print(f"  X of {before:3} bits: norm of I - A X {norm:.0e}")
        if norm < 2.0 ** -(BITS // 2 + 20):  # the step has squared it, and there are some bits to spare
            break
    error = worst_error(a, x)
    print(f"  X of {x.bits:3} bits: every entry is right to {-log2(error):.0f} bits, proven in fractions")
    assert error < Fraction(1, 2**BITS)


if __name__ == "__main__":
    main()
