"""Linear algebra refuses singular matrices, always: neither their size nor the accuracy decides."""

import numpy as np
import pytest
from exact_linalg import error, exact_solve, fractions, product_error

import ozaki
from ozaki import linalg
from ozaki.linalg.common.products import product_of_inverses
from ozaki.linalg.determinants.modular import largest_primes
from ozaki.linalg.determinants.singular import is_singular
from ozaki.linalg.systems import inverses

FUNCTIONS = {
    "solve": lambda a, **options: linalg.solve(a, np.ones(len(a)), **options),
    "inv": linalg.inv,
    "lu_factor": linalg.lu_factor,
    "lstsq": lambda a, **options: linalg.lstsq(a, np.ones(len(a)), **options),
    "qr": linalg.qr,
    "cholesky": linalg.cholesky,
}


def of_rank(rng, rows, n, rank):
    """Integers of no more than this rank."""
    return (rng.integers(-5, 6, (rows, rank)) @ rng.integers(-5, 6, (rank, n))).astype(float)


def equal_columns(rng, rows, n):
    a = rng.standard_normal((rows, n))
    a[:, -1] = a[:, 0]
    return a


def zero_column(rng, rows, n):
    a = rng.standard_normal((rows, n))
    a[:, n // 2] = 0
    return a


def sum_of_columns(rng, rows, n):
    a = rng.integers(-(2**20), 2**20, (rows, n)).astype(float)
    a[:, n // 3] = a.sum(axis=1) - a[:, n // 3]
    a[:, n // 2] = a[:, n // 3]
    return a


DEPENDENT = {
    "ones": lambda rng, rows, n: np.ones((rows, n)),
    "zeros": lambda rng, rows, n: np.zeros((rows, n)),
    "equal columns": equal_columns,
    "zero column": zero_column,
    "sum of columns": sum_of_columns,
    "outer": lambda rng, rows, n: np.outer(rng.integers(1, 9, rows), rng.integers(1, 999, n)),
    "half rank": lambda rng, rows, n: of_rank(rng, rows, n, n // 2),
    "one less": lambda rng, rows, n: of_rank(rng, rows, n, n - 1),
    "ramp": lambda rng, rows, n: np.arange(float(rows * max(n, 3))).reshape(rows, -1)[:, : max(n, 3)],
}
"""Families of matrices of n columns, n at least 2, that are dependent in exact arithmetic."""


def check_refused(family, function, n, dtype, rng):
    rows = max(n, 3) if family == "ramp" else n
    more = int(rng.integers(0, 3)) if function in ("lstsq", "qr") else 0
    a = DEPENDENT[family](rng, rows + more, n).astype(dtype)
    if a.dtype.kind == "c":  # rows times exact numbers, which change no rank
        a = (a * (1j * np.ldexp(1.0, rng.integers(-3, 4, (len(a), 1))))).astype(dtype)
    if function == "cholesky":
        a = ozaki.matmul(ozaki.mparray(a), ozaki.mparray(a.conj().T), accuracy="exact")
    options = [{}, {"accuracy": 2}, {"accuracy": 300, "dtype": "mp"}][rng.integers(3)]
    with pytest.raises(np.linalg.LinAlgError, match=r"^a: (singular|columns are dependent|not positive)"):
        FUNCTIONS[function](a, **options)


@pytest.mark.parametrize("family", DEPENDENT)
def test_dependent_columns_are_refused_at_every_size(family, rng):
    functions = list(FUNCTIONS)
    first = int(rng.integers(len(functions)))
    for n in range(2, 13):
        dtype = str(rng.choice(["float64", "float32", "complex128", "complex64"]))
        check_refused(family, functions[(first + n) % len(functions)], n, dtype, rng)


@pytest.mark.parametrize("family", ["sum of columns", "half rank", "one less"])
@pytest.mark.parametrize("is_complex", [False, True])
def test_singular_matrices_are_known_before_many_bits(family, is_complex, rng, monkeypatch):
    """Inverses in more and more bits up to the largest condition number would take half a second of 200 rows."""
    count = []
    monkeypatch.setattr(inverses, "product_of_inverses", lambda *x: count.append(0) or product_of_inverses(*x))
    n = 24 if is_complex else 60
    a = DEPENDENT[family](rng, n, n) * 2.0 ** rng.integers(-9, 9, n)
    a = a * (1 + 2j) ** rng.integers(0, 3, (n, 1)) if is_complex else a
    for function in (linalg.inv, linalg.lu_factor):
        with pytest.raises(np.linalg.LinAlgError, match=r"^a: singular"):
            function(a)
    assert len(count) <= 2  # one of each


def test_whether_matrices_are_singular_is_known_exactly(rng):
    (prime,) = largest_primes(1)
    for _ in range(60):
        n, is_complex = int(rng.integers(1, 8)), bool(rng.integers(2))
        rank, size = int(rng.integers(0, n + 1)), int(rng.choice([3, 2**20]))

        def entries(*shape, size=size, is_complex=is_complex):
            x = rng.integers(-size, size + 1, (2, *shape))
            return ozaki.mparray(x[0] + 1j * x[1] if is_complex else x[0].astype(float))

        a = ozaki.matmul(entries(n, rank), entries(rank, n), accuracy="exact", dtype="mp")
        a = a.ldexp(rng.integers(-600, 600, (n, 1))).ldexp(rng.integers(-600, 600, n))
        assert is_singular(a) == (linalg.det(a, accuracy="exact").det == 0)
        assert is_singular(a) or rank == n
    triangular = np.triu(rng.integers(1, 9, (5, 5))) * 1.0
    assert not is_singular(triangular)
    triangular[0, 0] = prime  # zero modulo the prime, and no other
    assert not is_singular(triangular) and linalg.det(triangular, accuracy="exact").det != 0
    huge = np.array([[prime, prime], [1, 1 + prime * 2.0**-60]])
    assert not is_singular(ozaki.mparray(huge)) and not is_singular(ozaki.mparray([[prime, 0], [0, prime]]))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_zeros_and_ones_are_refused_by_every_function(function, rng):
    for n in (1, 2, 3):
        check_refused("zeros", function, n, "float64", rng)
    check_refused("ones", function, 2, "float32", rng)
    check_refused("ones", function, 5, "float64", rng)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_one_unit_of_the_last_place_decides(n, rng):
    """A singular matrix is refused, and factored where one element differs by 2^-52 of itself."""
    a = np.ones((n, n)) + np.diag(np.arange(n) * 1.0)
    a[-1] = a[: max(n - 1, 1)].sum(axis=0) if n > 1 else 0
    for function in (linalg.qr, linalg.lu_factor, linalg.inv):
        with pytest.raises(np.linalg.LinAlgError, match=r"^a: (singular|columns are dependent)"):
            function(a)
    a[-1, 0] = np.nextafter(a[-1, 0], 99)
    q, r, bound, _ = linalg.qr(a, accuracy=100, dtype="mp")
    assert product_error(fractions(a), fractions(q), fractions(r), by_columns=True) <= bound < 2.0**-98
    factors = linalg.lu_factor(a, accuracy=100, dtype="mp")
    low, high = fractions(factors.l), fractions(factors.u)
    assert product_error(fractions(a[factors.p]), low, high) <= factors.error_bound < 2.0**-98


@pytest.mark.parametrize(("n", "power", "accuracy"), [(2, 200, 2), (4, 60, "fp64"), (5, 40, 0.9), (3, 90, 150)])
def test_cholesky_refuses_what_is_not_positive_definite_by_however_little(n, power, accuracy, rng):
    b = ozaki.mparray(rng.integers(-9, 10, (n, n - 1)))
    singular, tiny = ozaki.matmul(b, b.T, accuracy="exact"), ozaki.mparray(np.eye(n)).ldexp(-power)
    for a in (singular, singular - tiny):
        with pytest.raises(np.linalg.LinAlgError, match=r"^a: not positive definite"):
            linalg.cholesky(a, accuracy=accuracy)
    low, bound, _ = linalg.cholesky(singular + tiny, accuracy=accuracy, dtype="mp")
    low = fractions(low)
    assert product_error(fractions(singular + tiny), low, low.T) <= bound <= 1.4


def test_cholesky_refuses_what_only_looks_definite():
    for a in ([[1.0, 1.0], [1.0, 1.0]], [[1.0, 2.0], [2.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]], [[1.0, 0], [0, -1e-300]],
              [[1e-300, 1.0], [1.0, 1e-300]], [[-1.0]], [[0.0]]):  # fmt: skip
        for dtype in (float, complex):
            with pytest.raises(np.linalg.LinAlgError, match=r"^a: not positive definite"):
                linalg.cholesky(np.array(a, dtype))


@pytest.mark.parametrize("seed", [41, 74, 117])
def test_columns_that_are_nearly_dependent_are_not_refused(seed):
    """Inverses on the way are larger than the last one, or lost again, as of tiny elements beside zeros."""
    rng = np.random.default_rng(seed)
    n, power = int(rng.integers(3, 9)), int(rng.integers(60, 285))
    a = rng.standard_normal((n, n))
    a = rng.integers(-3, 4, (n, n)) if seed % 3 else a
    a[:, -1] = a[:, 0]
    difference = np.outer(rng.standard_normal(n), np.arange(n) == n - 1)
    a = ozaki.mparray(a) + ozaki.mparray(difference).ldexp(-power)
    found = linalg.inv(a, accuracy=60, dtype="mp")
    assert error(found.x, exact_solve(fractions(a), fractions(np.eye(n)))) <= found.error_bound <= 2.0**-60
    assert linalg.lu_factor(a).error_bound < 2.0**-50
