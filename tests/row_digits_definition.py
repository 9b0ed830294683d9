"""Section 11 of docs/definitions.md once more, slowly, in Python's integers and rationals.

It shares nothing with the library, so equal bits mean that the text and the code agree.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import sqrt

import numpy as np
from cases import integers, power
from definition import Row

DIGITS = {"bfloat16": (2, (2, 3)), "float16": (3, (3,))}
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


def product(a, b, dtype):
    """The bits of A B, the kinds of the rows and the largest error proven, of finite operands of floats.

    A has the shape (m, k), B (k, n). NaN and Inf count as zero.
    """
    left, right = operands(a), operands(np.swapaxes(b, -1, -2))
    q, _ = DIGITS[dtype]
    out, kinds, worst = np.zeros((len(left), len(right)), np.uint16), [], 0.0
    of_columns = [column.of(q) for column in right]
    for i, row in enumerate(left):
        kind, ratio = kind_of(row, right, dtype)
        kinds.append(kind)
        worst = max(worst, ratio)
        if kind != EXACT:
            mu, a_digits, _, _ = row.of(kind)
        for j, column in enumerate(right):
            if kind == EXACT:
                pairs = zip(row.elements, row.exponents, column.elements, column.exponents, strict=True)
                value = sum((x * y * power(e + f) for x, e, y, f in pairs), Fraction(0))
            else:
                nu, b_digits, _, _ = of_columns[j]
                cbar = sum(
                    2 ** (8 * (kind + q - s - t)) * sum(x * y for x, y in zip(a_s, b_t, strict=True))
                    for s, a_s in enumerate(a_digits, 1)
                    for t, b_t in enumerate(b_digits, 1)
                    if s + t <= max(kind, q) + 1
                )
                value = cbar * power(-(mu + nu))
            out[i, j] = bits_of(Fraction(value), dtype)
    return out, kinds, worst
