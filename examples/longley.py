"""Longley's regression by the normal equations, to all digits that NIST certifies.

Of a matrix A of nearly dependent columns, the normal equations A'A b = A'y square the condition number, which is why
nobody solves them in double precision. Here the data are read to 200 bits, A'A and A'y are exact products, and the
inverse that float64 finds of A'A is only what corrects b by its residual A'y - A'A b, which is exact, too.

The oracle is the certified values of NIST's Statistical Reference Datasets, in the file of the data.
"""

import re
from decimal import Decimal
from importlib import resources

import mpmath
import numpy as np

import ozaki


def read():
    """The rows 1, x1, ..., x6 of A, y, and the certified values, as decimal strings."""
    text = resources.files("ozaki").joinpath("data", "longley.dat").read_text("utf-8")
    rows = [line.split() for line in text.splitlines() if not line.startswith("#")]
    certified = re.findall(r"\bb\d (-?\d\S*)", text) + re.findall(r"deviation (\S+)", text)
    return [["1", *row[1:]] for row in rows], [row[0] for row in rows], certified


def exact(x, y):
    """The product with all of its bits."""
    return ozaki.matmul(x, y, accuracy="exact")


def solve(matrix, rhs, bits):
    """Solve a symmetric positive definite system: float64's inverse corrects the solution by exact residuals."""
    approximate = matrix.astype("float64")
    # Float64 inverts a matrix with ones on its diagonal better. Powers of two scale without rounding.
    scales = 2.0 ** -(np.frexp(approximate.diagonal())[1] // 2)
    inverse = np.linalg.inv(approximate * scales * scales[:, None]) * scales * scales[:, None]
    x = ozaki.mparray(inverse @ rhs.astype("float64"))
    for _ in range(10):  # each gains 7 digits or so
        residual = rhs - exact(matrix, x)
        x = (x + inverse @ residual.astype("float64")).round_to(bits)
    return x


def agrees(value, certified):
    """Whether a number rounds to a certified one, at the last digit of that."""
    unit = mpmath.mpf(10) ** Decimal(certified).as_tuple().exponent
    return abs(value - mpmath.mpf(certified)) <= unit / 2


def main():
    predictors, observed, certified = read()
    a, y = ozaki.mparray(predictors, bits=200), ozaki.mparray(observed, bits=200)
    b = solve(exact(a.T, a), exact(a.T, y), bits=106)
    residual = y - exact(a, b)

    rounded, rhs = a.astype("float64"), y.astype("float64")
    float64 = np.linalg.solve(rounded.T @ rounded, rounded.T @ rhs)
    with mpmath.workprec(200):
        deviation = mpmath.sqrt(exact(residual, residual).to_mpmath() / (len(a) - a.shape[1]))
        found = [*b.to_mpmath(), deviation]
        print("      float64              ozaki                     NIST")
        spread = np.linalg.norm(rhs - rounded @ float64) / np.sqrt(len(a) - a.shape[1])
        names = [*(f"b{i}" for i in range(len(b))), "sd"]
        for name, double, value, known in zip(names, [*float64, spread], found, certified, strict=True):
            print(f"  {name}  {double:<19.15g}  {mpmath.nstr(value, 18):<24}  {known}")
        assert all(agrees(value, known) for value, known in zip(found, certified, strict=True))
    print("all certified digits are right; sd is the residual standard deviation")


if __name__ == "__main__":
    main()
