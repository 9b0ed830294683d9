"""The operands of the tests: a function for each test, from its published definition.

Tests 2, 4 and 6 are those of NVIDIA's program `test_blas3`, where they have these numbers, and "growth" is that of
`grade_blas3` (CUDALibrarySamples, cuBLAS/Emulation/gemm_grading, its README); both follow Demmel and others' slides
"How to grade the accuracy of an implementation of the BLAS" (2024) and the paper of that name (arXiv 2609.12307).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import frexp, log2, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

CROSSOVER = 16
"""Rows from which on Strassen's algorithm is assumed to recur: test 6 repeats its scale factors with this period."""

LEAST_SIZE = 4

MOST_PRODUCTS = 2**21
"""Most products of elements that are added exactly for an input: of larger ones only some rows are measured."""

MOST_OF_GROWTH = 2**25
"""The same of data whose errors of several sizes are compared: the largest of fewer entries would be smaller."""

LEAST_ROWS = 8


@dataclass(frozen=True)
class Input:
    """The operands of a test.

    Attributes
    ----------
    test : the name of the test
    a, b : arrays, float64 or complex128, shapes (n, k) and (k, n)
    rows : the rows of the product whose entries are measured
    judged : of the measured rows and the columns, those whose errors decide the test: the first so many; None: all
    zeros : the rows and columns of entries all of whose terms have a factor zero; empty where no test asks for such
    underflows : whether terms of the product underflow
    """

    test: str
    a: Array
    b: Array
    rows: Array
    judged: int | None = None
    zeros: tuple[Array, Array] = (np.empty(0, np.intp), np.empty(0, np.intp))
    underflows: bool = False


def zeros(n: int, rng: np.random.Generator, is_complex: bool) -> Input:
    """Test 2: n/2 entries whose terms are all zero, of N(0, 1) operands that are dense else.

    A random set of indices k is picked for each of n/2 pairs of a row and a column, which is zero there, and the column
    everywhere else. Algorithms like Strassen's add blocks before they multiply, and leave rounding errors there.
    """
    a, b = (_drawn(rng.standard_normal, (n, n), is_complex) for _ in range(2))
    i, j = (rng.choice(n, n // 2, replace=False) for _ in range(2))
    for row, column in zip(i, j, strict=True):
        inside = rng.permutation(n) < rng.integers(1, n)
        a[row, inside] = 0
        b[~inside, column] = 0
    return Input("zeros", a, b, _rows(n, rng), zeros=(i, j))


def spread(n: int, rng: np.random.Generator, is_complex: bool, orders: int | None = None) -> Input:
    """Test 4: circulant operands whose elements spread over 2^-orders to 2^orders, and D by 1/D on the diagonal.

    With x in [1, 2] and D falling evenly over the powers of two, a_ij = (x D)_(i+j) and b_ij = (x / D)_(i+j), indices
    modulo n: a diagonal entry is the sum of x^2, to which small elements contribute as much as large ones, so that
    fixed-point numbers of too few bits lose them. Every row and column has the same largest exponent, however k is
    scaled. Without `orders`, as many as keep all sums from over- and underflow by a factor of 4.
    """
    exponents = np.linspace(1, -1, n) * (_most_orders(n) if orders is None else orders)
    d = np.ldexp(1.0, np.ceil(exponents).astype(int))
    x = _drawn(_from_1_to_2(rng), (n,), is_complex)
    circulant = (np.arange(n)[:, None] + np.arange(n)) % n
    name = "spread" if orders is None else f"spread 2^±{orders}"
    return Input(name, (x * d)[circulant], (x.conj() / d)[circulant], _rows(n, rng))


def strassen(n: int, rng: np.random.Generator, is_complex: bool) -> Input:
    """Test 6: A D and 1/D B, where D repeats itself after `CROSSOVER` rows, and one row and column of the largest size.

    Elements of A, B and of the last row and column, before these are scaled, are in [1, 2]. Strassen's algorithm in
    floating point adds blocks of equal scales, and computes the first entries well; in fixed point it does not.
    """
    period = min(CROSSOVER, n)
    most = _most_orders(n)
    factors = np.ldexp(1.0, rng.permutation(np.ceil(np.linspace(most, -most, period)).astype(int)))
    d = np.resize(factors, n)
    a, b, row, column = (_drawn(_from_1_to_2(rng), shape, is_complex) for shape in ((n, n), (n, n), (n,), (n,)))
    a, b = a * d, b / d[:, None]
    a[-1], b[:, -1] = np.ldexp(1.0, most) * row, np.ldexp(1.0, most) * column
    rows = np.union1d(np.append(np.arange(period - 1), n - 1), _rows(n, rng))
    return Input("Strassen", a, b, rows, judged=period - 1)


def growth(n: int, rng: np.random.Generator, is_complex: bool) -> Input:
    """The data of `grade_blas3`, whose errors of several n may grow no faster than n: uniform elements in [0, 1]."""
    a, b = (_drawn(rng.random, (n, n), is_complex) for _ in range(2))
    return Input("growth", a, b, _rows(n, rng, MOST_OF_GROWTH))


def scaled(n: int, rng: np.random.Generator, is_complex: bool) -> Input:
    """Uniform operands, rows of A and columns of B times random powers of two, 2^-100 to 2^100.

    One of our own. Errors of a row and a column are compared with these alone for A and B, but not for C.
    """
    a, b = (_drawn(rng.random, (n, n), is_complex) for _ in range(2))
    left, right = np.ldexp(1.0, rng.integers(-100, 101, (2, n)))
    return Input("scaled", a * left[:, None], b * right, _rows(n, rng))


def subnormal(n: int, rng: np.random.Generator, is_complex: bool) -> Input:
    """[2^-1074, 7 2^-1023] times [1, -7 2^-60], with random signs: all entries are 463/512 of the least number.

    The authors of TC-EFT (github.com/pauljiang03/TC-EFT, its page "ADP and ESC") found these operands, and prove that
    the scheme of arXiv 2511.13778, as that paper describes it, returns the least number with the wrong sign: where
    exponents of subnormal numbers count as that of the least normal one, too few bits are kept.
    """
    left, right = (rng.choice([-1.0, 1.0], (n, 1)) for _ in range(2))
    a = left * np.array([2.0**-1074, 7 * 2.0**-1023])
    b = (right * np.array([1.0, -7 * 2.0**-60])).T
    if is_complex:
        a, b = a.astype(np.complex128), b.astype(np.complex128)
    return Input("subnormal", a, b, np.arange(min(n, LEAST_ROWS)), underflows=True)


def tiny(n: int, rng: np.random.Generator, is_complex: bool) -> Input:
    """Subnormal numbers of 1 to 52 bits by N(0, 1) numbers times 2^1000: no entry underflows.

    One of our own. Where subnormal numbers count as zeros, the product is zero.
    """
    bits = rng.integers(1, 53, (n, n))
    a = np.ldexp(_drawn(_from_1_to_2(rng), (n, n), is_complex).view(float).reshape(n, n, -1), bits[..., None] - 1075)
    b = _drawn(rng.standard_normal, (n, n), is_complex) * 2.0**1000
    return Input("tiny", a.view(np.complex128)[..., 0] if is_complex else a[..., 0], b, _rows(n, rng))


TESTS: tuple[Callable[[int, np.random.Generator, bool], Input], ...] = (
    zeros,
    lambda n, rng, is_complex: spread(n, rng, is_complex, 8),
    lambda n, rng, is_complex: spread(n, rng, is_complex, 64),
    spread,
    strassen,
    growth,
    scaled,
    subnormal,
    tiny,
)
"""The functions that make the inputs, of n, a generator of random numbers and whether elements are complex."""


def inputs(n: int, seed: int, is_complex: bool) -> list[Input]:
    """Return the operands of all tests of n rows and columns.

    Raises
    ------
    ValueError
        If there are too few rows.
    """
    if n < LEAST_SIZE:
        raise ValueError(f"n: expected {LEAST_SIZE} rows or more, got {n}")
    return [make(n, np.random.default_rng([seed, n, number]), is_complex) for number, make in enumerate(TESTS)]


def _drawn(draw: Callable[[tuple[int, ...]], Array], shape: tuple[int, ...], is_complex: bool) -> Array:
    """Random numbers of a shape, whose parts are drawn alike where they are complex."""
    return draw((*shape, 2)).view(np.complex128)[..., 0] if is_complex else draw(shape)


def _from_1_to_2(rng: np.random.Generator) -> Callable[[tuple[int, ...]], Array]:
    return lambda shape: 1 + rng.random(shape)


def _most_orders(n: int) -> int:
    """The largest power of two of the scale factors: that of the root of the largest number, over 4 n."""
    return int(frexp(sqrt(np.finfo(np.float64).max))[1] - log2(n) - 2)


def _rows(n: int, rng: np.random.Generator, most: int = MOST_PRODUCTS) -> Array:
    """Rows to measure: all, or as many as so many products of elements allow, at random."""
    count = min(n, max(most // n**2, LEAST_ROWS))
    return np.sort(rng.choice(n, count, replace=False))
