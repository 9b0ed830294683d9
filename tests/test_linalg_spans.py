"""Linear algebra of multiprecision matrices whose elements are 2^-2600 to 2^-10^7 times as large as others."""

from fractions import Fraction
from math import comb, lcm

import numpy as np
import pytest
from exact_linalg import (
    complex_error,
    complex_product_error,
    complex_solve,
    error,
    exact_solve,
    fractions,
    product_error,
)

import ozaki
from ozaki import Accuracy, linalg
from ozaki.linalg.factors import lu

SPANS = [2600, 10**5, 10**7]


def cyclic(span):
    """Ones on the diagonal, and three elements far smaller."""
    powers = np.array([[0, -span, 0], [0, 0, -span // 3], [-span // 2, 0, 0]])
    return ozaki.mparray([[3, 1, 0], [0, 5, 1], [1, 0, 7]]).ldexp(powers)


def exactly(x):
    """The numbers in fractions, without those below 2^-5000, which no comparison here can see."""
    x = ozaki.mparray(x)
    return fractions(ozaki.mparray(x).ldexp(np.where(x.exponents < -5000, -x.exponents, 0))) * (x.exponents >= -5000)


@pytest.mark.parametrize("span", SPANS)
def test_elements_far_apart_cost_nothing(span):
    a, b = cyclic(span), np.array([1.0, -2.0, 4.0])
    near = exactly(a)
    wanted = 2.0**-198
    for function in (linalg.solve, linalg.lstsq):
        found = function(a, b, accuracy=200)
        assert error(exactly(found.x), exact_solve(near, fractions(b))) <= found.error_bound <= wanted
    factors = linalg.lu_factor(a, accuracy=200)
    found = linalg.lu_solve(factors, b, accuracy=200)
    assert error(exactly(found.x), exact_solve(near, fractions(b))) <= found.error_bound <= wanted
    assert product_error(near[factors.p], exactly(factors.l), exactly(factors.u)) <= factors.error_bound <= wanted
    found = linalg.inv(a, accuracy=200)
    assert error(exactly(found.x), exact_solve(near, np.eye(3, dtype=int))) <= found.error_bound <= wanted
    q, r, bound, _ = linalg.qr(a, accuracy=200)
    assert product_error(near, exactly(q), exactly(r), by_columns=True) <= bound <= wanted
    low, bound, _ = linalg.cholesky(a, accuracy=200)
    near = np.tril(near) + np.tril(near, -1).T
    assert product_error(near, exactly(low), exactly(low).T) <= bound <= wanted
    found = linalg.eigh(a, accuracy=200)
    assert error(exactly(found.values), np.array([[3], [5], [7]])) <= found.error_bound <= wanted


@pytest.mark.parametrize("power", [-500, 500, 10**6])
def test_columns_or_rows_far_apart_that_have_zeros(power):
    powers, b = np.array([0, power, 0]), np.array([6.0, 7.0, 10.0])
    a = ozaki.mparray([[3, 0, 2], [1, 5, 1], [1, 2, 7]])
    far = a.ldexp(powers) if power > 1000 else a.ldexp(powers).astype("float64")
    options = {"accuracy": 100, "dtype": "mp"}
    found = linalg.solve(far, b, **options).x
    assert error(fractions(found.ldexp(powers)), exact_solve(fractions(a), fractions(b))) < 2.0**-90
    inverse = exact_solve(fractions(a), np.eye(3, dtype=int))
    assert error(fractions(linalg.inv(far, **options).x.ldexp(powers[:, None])), inverse) < 2.0**-90
    assert error(fractions(linalg.inv(far.T, **options).x.ldexp(powers)).T, inverse) < 2.0**-90
    factors = linalg.lu_factor(far, **options)
    ordered = fractions(ozaki.mparray(far)[factors.p])
    assert product_error(ordered, fractions(factors.l), fractions(factors.u)) < 2.0**-98


def test_rows_and_columns_far_apart_that_have_zeros(rng):
    """Neither scaling rows by their largest elements first nor columns finds the powers then."""
    for _ in range(20):
        n = int(rng.integers(3, 9))
        a = rng.integers(-5, 6, (n, n)) * (rng.random((n, n)) < 0.6) + 9 * np.eye(n, dtype=int)[rng.permutation(n)]
        rows, columns = rng.integers(-400, 400, (2, n))
        if linalg.det(a, accuracy="exact").det == 0:
            continue
        b = ozaki.mparray(np.arange(1.0, n + 1)).ldexp(rows)
        found = linalg.solve(ozaki.mparray(a).ldexp(rows[:, None]).ldexp(columns), b, accuracy=100, dtype="mp")
        wanted = exact_solve(fractions(a), fractions(np.arange(1.0, n + 1))[:, None])
        powers = np.array([Fraction(2) ** -int(each) for each in columns])
        assert error(found.x, wanted * powers[:, None]) <= found.error_bound < 2.0**-99
        assert linalg.lu_factor(ozaki.mparray(a).ldexp(rows[:, None]).ldexp(columns)).error_bound < 2.0**-50


@pytest.mark.parametrize("power", [-(10**6), 10**7])
def test_rows_and_columns_of_any_size(power):
    rows, columns = np.array([[0], [power], [-power // 3]]), np.array([-power // 2, 0, power])
    a = ozaki.mparray([[3, 1, 2], [1, 5, 1], [1, 2, 7]])
    b = np.array([6.0, 7.0, 10.0])
    x = linalg.solve(a.ldexp(rows + columns), ozaki.mparray(b[:, None]).ldexp(rows), accuracy=100).x
    assert error(ozaki.mparray(x).ldexp(columns[:, None]), exact_solve(fractions(a), fractions(b))) < 2.0**-60
    found = linalg.lu_factor(a.ldexp(columns), accuracy=100)
    assert product_error(fractions(a[found.p]), fractions(found.l), fractions(found.u.ldexp(-columns))) < 2.0**-98
    q, r, bound, _ = linalg.qr(a.ldexp(columns), accuracy=100)
    assert product_error(fractions(a), fractions(q), fractions(r.ldexp(-columns)), by_columns=True) <= bound < 2.0**-98
    symmetric = a @ a.T
    low = linalg.cholesky(symmetric.ldexp(2 * (columns[:, None] + columns)), accuracy=100).l.ldexp(
        -2 * columns[:, None]
    )
    assert product_error(fractions(symmetric), fractions(low), fractions(low).T) < 2.0**-98


@pytest.mark.parametrize("power", [5000, 10**6])
def test_right_hand_sides_with_elements_far_apart(power):
    a = np.array([[2.0, 1.0], [1.0, 3.0]])
    b = ozaki.mparray([[1, 1], [0, 1]]).ldexp(np.array([[0, -power], [0, 0]]))
    for function in (linalg.solve, linalg.lstsq):
        found = function(a, b, accuracy=150)
        wanted = exact_solve(fractions(a), np.array([[1, 0], [0, 1]]))
        assert error(found.x, wanted) <= found.error_bound < 2.0**-148


@pytest.mark.parametrize("bits", [400, 880, 899])
@pytest.mark.parametrize("solver", [linalg.solve, linalg.lstsq])
def test_bounds_of_many_bits_of_solutions_far_from_one(solver, bits):
    """Powers for rows and columns, each far from one, do not take a bound below all floats in between."""
    a = np.array([[1 + 2j, -2j], [-2j, 1 - 2j], [2j, -1j], [2j, 2j]])[: 2 if solver is linalg.solve else 4]
    b = np.array([[-1.1165267156265538], [1.665883240751173], [-2.1435947208424144], [-0.5143136337848394]])[: len(a)]
    near = solver(a, b, accuracy=bits, dtype="mp")
    a, b = ozaki.mparray(a).ldexp(np.full(a.shape, 385)), ozaki.mparray(b).ldexp(np.full(b.shape, -571))
    x, bound, _ = solver(a, b, accuracy=bits, dtype="mp")
    assert complex_error(x, *complex_solve(a, b)) <= bound <= 2.0**-bits
    assert bound == pytest.approx(near.error_bound, rel=1e-9, abs=0), "powers of two change nothing"


def test_least_squares_whose_solution_depends_on_tiny_elements():
    """Of (1, t) and b = (0, 1) the solution is t / (1 + t^2), for every t that is not refused."""
    for power in (900, 5000):
        t = Fraction(1, 2**power)
        found = linalg.lstsq(ozaki.mparray([[1], [1]]).ldexp([[0], [-power]]), np.array([0.0, 1.0]), accuracy=100)
        assert error(found.x, np.array([t / (1 + t * t)])[:, None]) <= found.error_bound < 2.0**-98
    tiny = ozaki.mparray([[1], [1]]).ldexp([[0], [-(10**6)]])
    with pytest.raises(ValueError, match=r"^a: has an element below 2\^-\d+ times the largest of its column"):
        linalg.lstsq(tiny, np.array([0.0, 1.0]))
    with pytest.raises(ValueError, match=r"^b: has an element below 2\^-\d+ times the largest of its column"):
        linalg.lstsq(np.ones((3, 1)), ozaki.mparray([1, -1, 1]).ldexp([0, 0, -(10**6)]))
    found = linalg.lstsq(tiny, np.array([1.0, 1.0]), accuracy=100)  # where it does not depend on them
    assert error(found.x, np.array([[1]])) <= found.error_bound < 2.0**-98


def test_square_least_squares_of_rows_far_apart_are_systems(rng):
    """Hilbert matrices: condition numbers, columns scaled, are 2^24 to 2^39, and 2^178 to 2^212 with rows far apart."""
    for n in (6, 8, 9):
        powers = rng.permutation(np.arange(n) * (200 // n) - 100)
        a = np.ldexp(1 / (1 + np.add.outer(np.arange(n), np.arange(n))), powers[:, None])
        b = np.ldexp(rng.standard_normal((n, 2)), powers[:, None])
        found = linalg.lstsq(a, b)
        assert error(found.x, exact_solve(fractions(a), fractions(b))) <= found.error_bound < 2.0**-50
        with pytest.raises(np.linalg.LinAlgError, match="columns are dependent"):
            linalg.lstsq(a @ np.diag([*[1.0] * (n - 1), 0.0]), b)


@pytest.mark.parametrize(("n", "is_complex"), [(5, False), (9, False), (5, True)])
def test_least_squares_of_rows_far_apart(n, is_complex, rng):
    """Hilbert matrices of one row more, rows 2^260 apart: condition numbers, columns scaled, are 2^205 to 2^275."""
    powers = rng.permutation(np.linspace(-130, 130, n + 1).astype(int))
    a = 1 / (1 + np.add.outer(np.arange(n + 1), np.arange(n)))
    a = a * (1 + 1j * rng.integers(-3, 4, a.shape) / 8) if is_complex else a
    b = rng.standard_normal((n + 1, 2))
    for of_b in (0, powers[:, None]):
        given = ozaki.mparray(a).ldexp(powers[:, None]), ozaki.mparray(b).ldexp(of_b)
        found = linalg.lstsq(*(x.astype(a.dtype) for x in given))
        if is_complex:
            missed = complex_error(ozaki.mparray(found.x), *complex_solve(*given))
        else:
            of_a = fractions(given[0])
            missed = error(found.x, exact_solve(of_a.T @ of_a, of_a.T @ fractions(given[1])))
        assert missed <= found.error_bound < 2.0**-50
    q, r, bound, _ = linalg.qr(given[0].astype(a.dtype), accuracy=100, dtype="mp")
    error_of = complex_product_error if is_complex else product_error
    of_factors = [x if is_complex else fractions(x) for x in (given[0], q, r)]
    assert error_of(*of_factors, by_columns=True) <= bound < 2.0**-98


@pytest.mark.parametrize("power", [200, 218, 240])
def test_least_squares_of_rows_far_apart_and_columns_that_float64_takes_for_equal(power):
    """Condition numbers, columns scaled, are some 2^30 times this power of two."""
    first, rest = np.array([[7.0], [0], [-3], [-2]]), np.array([[1.0], [-1], [1], [0.5]])
    a = ozaki.mparray(first @ [[1, 1]]) + ozaki.mparray(rest @ [[0, 1]]).ldexp(-power)
    a = a.ldexp(np.array([[-36], [-26], [60], [31]]))
    found, of_a = linalg.lstsq(a, np.ones(4), accuracy=100), fractions(a)
    exact = exact_solve(of_a.T @ of_a, of_a.T @ fractions(np.ones((4, 1))))
    assert error(found.x, exact) <= found.error_bound < 2.0**-98


def test_rows_too_far_apart_for_factors_are_refused_and_solved():
    a = ozaki.mparray([[1, 1], [1, 3]]).ldexp([[0], [-3000]])
    with pytest.raises(
        np.linalg.LinAlgError, match=r"^a: its condition number is too large for factors .*linalg.solve"
    ):
        linalg.lu_factor(a)
    assert linalg.solve(a, ozaki.mparray([2, 4]).ldexp([0, -3000]), dtype="float64").x.tolist() == [1, 1]


@pytest.mark.parametrize(("power", "solved"), [(60, True), (80, False), (100, False)])
def test_factors_that_no_number_of_inverses_finds_are_refused_after_a_few(power, solved, monkeypatch):
    counts, multiply = [], lu.product_of_inverses
    monkeypatch.setattr(lu, "product_of_inverses", lambda x, y, count: (counts.append(count), multiply(x, y, count))[1])
    a = np.random.default_rng(0).standard_normal((20, 20))
    a = ozaki.mparray(a).ldexp(-power * np.arange(20)[:, None])
    if solved:
        assert linalg.lu_factor(a, accuracy=300, dtype="mp").error_bound < 2.0**-300
        return
    with pytest.raises(np.linalg.LinAlgError, match=r"^a: its condition number is too large for factors"):
        linalg.lu_factor(a, accuracy=300, dtype="mp")
    assert len(counts) <= 12


@pytest.mark.parametrize("seed", range(4))
def test_factors_of_rows_and_columns_of_two_sizes(seed):
    """Inverses of upper factors, whose last rows are some 1e-300 times the first ones, are beyond float64."""
    rng, n = np.random.default_rng(seed), 14
    sizes = 10.0 ** rng.permutation(np.repeat([-150, 150], n // 2))
    a = (1 / (1 + np.add.outer(np.arange(n), np.arange(n)))) * sizes[:, None] * rng.permutation(sizes)
    found = linalg.lu_factor(a, accuracy=100, dtype="mp")
    assert product_error(fractions(a[found.p]), fractions(found.l), fractions(found.u)) <= found.error_bound < 2.0**-99


def test_factors_of_large_rows_that_are_nearly_dependent():
    """What float64 leaves of twelve of them is 1e280 times as large as the others, in the same columns."""
    rng, n = np.random.default_rng(36), 17
    rows, columns = (10.0 ** rng.permutation(np.repeat([150, -150], [k, n - k])) for k in (12, 10))
    a = (1 / (1 + np.add.outer(np.arange(n), np.arange(n))))[rng.permutation(n)] * rows[:, None] * columns
    found = linalg.lu_factor(a, accuracy=100, dtype="mp")
    assert product_error(fractions(a[found.p]), fractions(found.l), fractions(found.u)) <= found.error_bound < 2.0**-99


@pytest.mark.parametrize("scaled", [False, True])
def test_condition_numbers_up_to_the_limit(scaled, rng):
    """Of such a Hilbert matrix, of condition number 2^255, inverses in float64 gain no more than 10 bits at times."""
    n, multiple = 50, lcm(*range(1, 100))
    a = ozaki.mparray([[multiple // (i + j + 1) for j in range(n)] for i in range(n)])
    powers = rng.integers(-400, 400, n) * scaled
    counts = [
        [comb(n + i, n - j - 1) * comb(n + j, n - i - 1) * comb(i + j, i) ** 2 for j in range(n)] for i in range(n)
    ]
    inverse = [[Fraction((-1) ** (i + j) * (i + j + 1) * counts[i][j], multiple) for j in range(n)] for i in range(n)]
    far = a.ldexp(powers[:, None])
    found = linalg.solve(far, ozaki.mparray(np.ones(n)).ldexp(powers), accuracy=60, dtype="mp")
    assert error(found.x, np.array([[sum(row)] for row in inverse])) <= found.error_bound <= 2.0**-60
    if scaled:
        factors = linalg.lu_factor(far, accuracy=60, dtype="mp")
        ordered = fractions(ozaki.mparray(far)[factors.p])
        assert product_error(ordered, fractions(factors.l), fractions(factors.u)) <= factors.error_bound <= 2.0**-60


def test_relative_accuracy_of_elements_that_are_left_out():
    a, b = cyclic(10**6), np.array([1.0, 0.0, 0.0])
    with pytest.raises(ValueError, match=r"^accuracy: an element of the solution is zero, or too small to be told"):
        linalg.solve(a, b, accuracy=Accuracy("relative", 1e-9))
