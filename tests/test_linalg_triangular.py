"""Triangular systems: bounds hold in fractions, whatever the condition number, and only one triangle is read."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from exact_linalg import complex_error, complex_solve, error, fractions

import ozaki
from ozaki import linalg, mparray


def substituted(u, b):
    """The solution of an upper triangular system in fractions."""
    u, b = fractions(u), fractions(b)
    x = np.zeros(b.shape, object)
    for i in reversed(range(len(u))):
        x[i] = (b[i] - u[i, i + 1 :] @ x[i + 1 :] if i + 1 < len(u) else b[i]) / u[i, i]
    return x


def random(rng, n):
    """A condition number near 2**n."""
    u = np.triu(rng.standard_normal((n, n)))
    return u + np.diag(np.copysign(2.0**-8, u.diagonal()))  # or subnormal ones might have a zero there


def kahan(rng, n):
    return np.diag(0.9 ** np.arange(n)) @ (np.eye(n) - 0.43 * np.triu(np.ones((n, n)), 1))


def ones(rng, n):
    """Its comparison matrix has an inverse of 2**n."""
    return np.triu(np.ones((n, n)))


def rows(rng, n):
    return random(rng, n) * 2.0 ** rng.integers(-400, 400, (n, 1))


def columns(rng, n):
    return random(rng, n) * 2.0 ** rng.integers(-200, 200, n)


def elements(rng, n):
    return random(rng, n) * 2.0 ** rng.integers(-60, 60, (n, n))


def sparse(rng, n):
    return random(rng, n) * (rng.random((n, n)) < 0.2) + np.eye(n)


def subnormal(rng, n):
    return random(rng, n) * 2.0**-1060


FAMILIES = [random, kahan, ones, rows, columns, elements, sparse, subnormal]


@pytest.mark.parametrize("n", [1, 6, 33])
@pytest.mark.parametrize("family", FAMILIES)
def test_bounds_hold_of_upper_and_lower_ones(family, n, rng):
    u, b = family(rng, n), rng.standard_normal((n, 2))
    if n > 1:
        b[n // 2 :, 1] = 0
    exact = substituted(u, b)
    x, bound, _ = linalg.solve_triangular(u, b, dtype="mp53")
    assert error(x, exact) <= bound < 2.0**-52
    x, bound, _ = linalg.solve_triangular(u[::-1, ::-1], b[::-1], lower=True, accuracy=300, dtype="mp")
    assert error(x[::-1], exact) <= bound < 1.01 * 2.0**-300


def test_a_condition_number_above_the_limit_of_inverses():
    flint = pytest.importorskip("flint", reason="python-flint is not installed")
    n, rng = 360, np.random.default_rng(1)
    u, b = random(rng, n), rng.standard_normal(n)
    with pytest.raises(np.linalg.LinAlgError):
        linalg.solve(u, b)
    (x, bound, _), (fine, fine_bound, _) = (
        linalg.solve_triangular(u, b, **options) for options in ({}, {"accuracy": 300, "dtype": "mp"})
    )
    assert bound < 2.0**-52 and fine_bound < 1.01 * 2.0**-300
    before, flint.ctx.prec = flint.ctx.prec, 2000
    try:
        exact = [flint.arb(0)] * n
        for i in reversed(range(n)):
            rest = flint.arb(b[i])
            for j in range(i + 1, n):
                rest -= flint.arb(u[i, j]) * exact[j]
            exact[i] = rest / flint.arb(u[i, i])
        largest = max(abs(each) for each in exact)
        numbers = [flint.arb(each.numerator) / each.denominator for each in fine.to_fractions()]
        for found, error_bound in ((map(flint.arb, x), bound), (numbers, fine_bound)):
            assert all(abs(p - q) <= flint.arb(error_bound) * largest for p, q in zip(found, exact, strict=True))
    finally:
        flint.ctx.prec = before


@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("is_complex", [False, True])
def test_other_triangles_and_transposes(is_complex, lower, unit, rng):
    n = 5
    a = rng.standard_normal((n, n)) + (1j * rng.standard_normal((n, n)) if is_complex else 0)
    b = rng.standard_normal((n, 2)) + (1j if is_complex else 0)
    known = a.copy()
    known[np.triu_indices(n, 1) if lower else np.tril_indices(n, -1)] = np.nan
    matrix = np.tril(a) if lower else np.triu(a)
    if unit:
        known[range(n), range(n)] = np.inf
        matrix[range(n), range(n)] = 1
    before = known.copy(), b.copy()
    for trans, of_a in ((0, matrix), (1, matrix.T), (np.int64(2), matrix.conj().T), ("C", matrix.conj().T)):
        exact = complex_solve(mparray(of_a), mparray(b))
        for options in ({}, {"accuracy": 150, "dtype": "mp"}):
            x, bound, _ = linalg.solve_triangular(known, b, trans, lower, unit, **options)
            assert complex_error(mparray(x), *exact) <= bound < (2.0**-149 if options else 2.0**-52)
        x, bound, _ = linalg.solve_triangular(known, b[:, 0], trans, lower, unit)
        assert x.shape == (n,)
        assert complex_error(mparray(x[:, None]), *(part[:, :1] for part in exact)) <= bound
    assert np.array_equal(before[0], known, equal_nan=True) and (before[1] == b).all()


def test_multiprecision_elements_of_any_size(rng):
    n = 6
    u = mparray(random(rng, n) + n * np.eye(n)).ldexp(rng.integers(-9000, 9000, (n, n)))
    b = mparray(rng.standard_normal((n, 1))).ldexp(rng.integers(-300, 300, (n, 1)))
    exact = substituted(u, b)
    x, bound, _ = linalg.solve_triangular(u, b, accuracy=200)
    assert error(x, exact) <= bound < 2.0**-199
    x, bound, _ = linalg.solve_triangular(mparray(np.eye(2)).ldexp([[0], [2**59]]), np.ones(2), dtype="mp")
    assert x.to_fractions()[0] == 1 and bound < 2.0**-50
    third = ozaki.mparray([[Fraction(1, 4) + Fraction(1, 2**90)]], 100)
    assert linalg.solve_triangular(third, third, accuracy=100).x.to_fractions()[0, 0] == 1


@pytest.mark.parametrize("library", ["mpmath", "words"])
def test_triangles_of_objects_and_words(library):
    if library == "mpmath":
        mpmath = pytest.importorskip("mpmath", reason="mpmath is not installed")
        a = mpmath.matrix([[2, mpmath.nan], [3, 4]])
    else:
        a = np.array([[2.0, np.nan], [3.0, 4.0]]), np.array([[2.0**-80, np.nan], [0.0, 0.0]])
    corner = 2 + (0 if library == "mpmath" else Fraction(1, 2**80))
    x, bound, _ = linalg.solve_triangular(a, np.array([1.0, 1.0]), lower=True, accuracy=120, dtype="mp")
    exact = np.array([1 / Fraction(corner), (1 - 3 / Fraction(corner)) / 4])
    assert error(x, exact[:, None]) <= bound < 2.0**-119


def test_relative_accuracy(rng):
    u, b = columns(rng, 12), rng.standard_normal(12)
    x, bound, _ = linalg.solve_triangular(u, b, accuracy="relative:1e-14", dtype="mp")
    assert error(x, substituted(u, b[:, None]), "relative") <= bound <= 1e-14


def test_where_an_inverse_is_sooner_found_it_is():
    n = 1100  # sums of abs in inv(<u>) are 2**n, and the condition number is 2 n
    u = np.triu(np.ones((n, n)))
    b = np.arange(1.0, n + 1) / 7
    x, bound, _ = linalg.solve_triangular(u, b)
    exact = np.append([Fraction(p) - Fraction(q) for p, q in pairwise(b)], Fraction(b[-1]))
    assert error(mparray(x), exact[:, None]) <= bound < 2.0**-52


U, B = np.triu(np.ones((3, 3))), np.ones(3)
STEEP = np.triu(np.cos(np.arange(64.0) ** 2).reshape(8, 8), 1) + 2.0**-120 * np.eye(8)  # condition number 2**800


def test_the_matrix_that_is_refused_below_is_solved_where_its_elements_are_nearer():
    b = np.ones((8, 1))
    x, bound, _ = linalg.solve_triangular(STEEP, b, dtype="mp")
    assert error(x, substituted(STEEP, b)) <= bound < 2.0**-52


REFUSED = {
    "zero": (
        lambda: linalg.solve_triangular(U * [1, 0, 1], B),
        np.linalg.LinAlgError,
        r"^a: singular, element \[1, 1\]",
    ),
    "zero without columns": (
        lambda: linalg.solve_triangular(U * [1, 0, 1], np.ones((3, 0))),
        np.linalg.LinAlgError,
        r"^a: singular, element \[1, 1\]",
    ),
    "far apart": (
        lambda: linalg.solve_triangular(mparray(STEEP).ldexp(2**45 * np.eye(8, k=7, dtype=int)), np.ones(8)),
        np.linalg.LinAlgError,
        r"^a: too ill-conditioned, for substitution and for an inverse \(2\^300",
    ),
    "trans": (lambda: linalg.solve_triangular(U, B, 3), ValueError, "^trans: 3; expected 0, 1 or 2, or 'N'"),
    "lower": (lambda: linalg.solve_triangular(U, B, lower=1), TypeError, "^lower: 1; expected True or False"),
    "unit": (lambda: linalg.solve_triangular(U, B, unit_diagonal=None), TypeError, "^unit_diagonal: NoneType"),
    "shape": (lambda: linalg.solve_triangular(U[:2], B), ValueError, r"^a: shape \(2, 3\); expected a square"),
    "stack": (lambda: linalg.solve_triangular(np.stack([U, U]), np.ones((3, 3, 1))), ValueError, r"^b: shape \(3, 3,"),
    "rows": (lambda: linalg.solve_triangular(U, B[:2]), ValueError, r"^b: shape \(2,\); expected \(3,\)"),
    "nan": (lambda: linalg.solve_triangular(U * np.nan, B), ValueError, r"^a: element \[0, 0\] is nan"),
    "inf": (lambda: linalg.solve_triangular(U, B * np.inf), ValueError, r"^b: element \[0\] is inf"),
    "exact": (lambda: linalg.solve_triangular(U, B, accuracy="exact"), ValueError, "^accuracy: 'exact'"),
    "large": (lambda: linalg.solve_triangular(U * 1e-300, B * 1e300), OverflowError, "^dtype: an element"),
    "small": (lambda: linalg.solve_triangular(U * 1e300, B * 1e-300), OverflowError, "^dtype: elements"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_had_is_refused(name):
    call, kind, message = REFUSED[name]
    with pytest.raises(kind, match=message):
        call()


def test_shapes_without_elements_and_right_hand_sides_of_zeros():
    assert linalg.solve_triangular(np.zeros((0, 0)), np.zeros(0)).x.shape == (0,)
    assert linalg.solve_triangular(np.zeros((0, 0)), np.zeros((0, 2))).x.shape == (0, 2)
    assert linalg.solve_triangular(U, np.zeros((3, 0))).x.shape == (3, 0)
    x, bound, _ = linalg.solve_triangular(U, np.zeros((3, 2)))
    assert not x.any() and bound == 0
