"""Section 11 of docs/definitions.md once more, slowly, in Python's integers and rationals.

It shares nothing with the library, so equal bits mean that the text and the code agree.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import sqrt
from operator import mul

import numpy as np
from cases import integers, power
from definition import Row

DIGITS = {"bfloat16": (2, (2, 3)), "float16": (3, (3, 4))}
"""By format: digits of columns, and the numbers of digits of rows."""

PRECISION = {"bfloat16": 8, "float16": 11}
LEAST = {"bfloat16": -133, "float16": -24}
PAST = {"bfloat16": 128, "float16": 16}
EXACT = 0

THRESHOLDS = [Fraction(7 - b % 4, 8) / 2 ** (b // 4) for b in range(64)]
STEPS = [x - y for x, y in zip(THRESHOLDS, [*THRESHOLDS[1:], 0], strict=True)]


@dataclass
class Digits:
    """A scheme as `Row.image` asks about it."""

    count: int
    name: str = "digits"
    bits: int = 8


class Operand(Row):
    """A row of A or a column of B, whose NaN and Inf count as zero."""

    def of(self, p):
        """The exponent of the image of p digits, its digits, and the statistics n and lam_s."""
        mu, image = self.image(Digits(p))
        digits = [[] for _ in range(p)]
        for x in image:
            rest = x
            for s in reversed(range(p)):
                low = (rest + 128) % 256 - 128
                digits[s].append(low)
                rest = (rest - low) >> 8
            assert rest == 0
        h = 0 if self.top is None else 8 * p - 1 - (mu + self.top)
        assert h in (0, 1)
        inexact = sum(
            Fraction(z) != x * power(e + mu) for z, x, e in zip(image, self.elements, self.exponents, strict=True)
        )
        low = {s: sum(d * d for d in digits[s - 1]) * 4**h * 4 ** (8 * (p - s)) for s in range(2, p + 1)}
        return mu, digits, inexact * 4**h, low

    @property
    def counts(self):
        if self.top is None:
            return [0] * 64
        sizes = [abs(x) * power(e - self.top) for x, e in zip(self.elements, self.exponents, strict=True)]
        return [sum(size >= least for size in sizes) for least in THRESHOLDS]


def operands(x):
    x = np.asarray(x, np.float64)
    elements, exponents = integers(np.where(np.isfinite(x), x, 0.0))
    return [Operand(*row) for row in zip(elements, exponents, strict=True)]


def kind_of(row, columns, dtype):
    """The digits of a row of A, or EXACT, and what is proven of it, given all columns of B."""
    q, kinds = DIGITS[dtype]
    k, unit = len(row.elements), 2.0**-row.width
    if k > 2**24:
        return EXACT, 0.0
    columns = [column for column in columns if column.top is not None]
    of_columns = [column.of(q) for column in columns]
    inexact = max((n for _, _, n, _ in of_columns), default=0)
    low = {t: max((lam[t] for *_, lam in of_columns), default=0) for t in range(2, q + 1)}
    squares = max((column.squares for column in columns), default=0)
    fewest = [min(counts) for counts in zip(*(column.counts for column in columns), strict=True)] or [k] * 64
    least = sum(
        d * e * max(0, c + n - k)
        for d, c in zip(STEPS, row.counts, strict=True)
        for e, n in zip(STEPS, fewest, strict=True)
    )
    for p in kinds:
        _, _, n, lam = row.of(p)
        of_row, of_column = 8 * p - 1, 8 * q - 1
        row_error = sqrt(float(n)) * 2.0 ** -(of_row + 1)
        column_error = sqrt(float(inexact)) * 2.0 ** -(of_column + 1)
        row_norm, column_norm = sqrt(float(row.squares)) * unit, sqrt(float(squares)) * unit
        dropped = 0.0
        for s in range(2, p + 1):
            for t in range(2, q + 1):
                if s + t > max(p, q) + 1:
                    dropped = dropped + sqrt(float(lam[s]) * float(low[t])) * 2.0 ** -(of_row + of_column)
        total = row_error * column_norm + column_error * (row_norm + row_error)
        total = (total + dropped) * (1 + 2.0**-30)
        bound = float(int(least * 2**38)) * 2.0**-38
        if total <= 2.0 ** -PRECISION[dtype] * bound:
            return p, total / bound if total > 0 else 0.0
    return EXACT, 0.0


def bits_of(value, dtype):
    """A rational rounded once, to nearest, ties to even: the bits of the number."""
    precision, smallest = PRECISION[dtype], LEAST[dtype]
    if value == 0:
        return 0
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < power(exponent)
    ulp = max(exponent - precision + 1, smallest)
    units = round(size / power(ulp))
    most = (PAST[dtype] - precision - smallest + 2) << (precision - 1)  # those of Inf
    # Subnormal numbers count from 0, and each binade after these has as many numbers as they are.
    bits = min(units + ((ulp - smallest) << (precision - 1)), most)
    return bits | (value < 0) << 15


def exact_values(a, b, dtype):
    """What the entries of A B are before they are rounded, the kinds of the rows and the largest error proven.

    A has the shape (m, k), B (k, n). NaN and Inf count as zero.
    """
    left, right = operands(a), operands(np.swapaxes(b, -1, -2))
    q, _ = DIGITS[dtype]
    values, kinds, worst = [], [], 0.0
    of_columns = [column.of(q) for column in right]
    for row in left:
        kind, ratio = kind_of(row, right, dtype)
        kinds.append(kind)
        worst = max(worst, ratio)
        if kind == EXACT:
            values.append([inner_product(row, column) for column in right])
            continue
        mu, a_digits, _, _ = row.of(kind)
        pairs = [(s, t) for s in range(1, kind + 1) for t in range(1, q + 1) if s + t <= max(kind, q) + 1]
        values.append([])
        for nu, b_digits, _, _ in of_columns:
            cbar = sum(
                2 ** (8 * (kind + q - s - t)) * sum(map(mul, a_digits[s - 1], b_digits[t - 1])) for s, t in pairs
            )
            values[-1].append(cbar * power(-(mu + nu)))
    return values, kinds, worst


def inner_product(row, column):
    pairs = zip(row.elements, row.exponents, column.elements, column.exponents, strict=True)
    return sum((x * y * power(e + f) for x, e, y, f in pairs), Fraction(0))


def product(a, b, dtype, alpha=1.0, beta=0.0, c=None):
    """The bits of alpha A B + beta C, the kinds of the rows and the largest error proven; C is finite."""
    values, kinds, worst = exact_values(a, b, dtype)
    out = np.zeros((len(values), b.shape[-1]), np.uint16)
    for at in np.ndindex(out.shape):
        value = Fraction(alpha) * values[at[0]][at[1]]
        if beta:
            value += Fraction(beta) * Fraction(float(c[at]))
        out[at] = bits_of(value, dtype)
    return out, kinds, worst
