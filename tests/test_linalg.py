"""Linear algebra: what is promised holds against exact rational solutions, and what cannot be promised is refused."""

from fractions import Fraction

import flint
import numpy as np
import pytest
from exact_linalg import error, exact_solve, fractions, parts, product_error
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import eigsy, matrix, mpc, norm, workprec
from scipy.linalg import invhilbert
from tiers import some_first

import ozaki
from ozaki import Accuracy, linalg
from ozaki.linalg.common.arrays import added
from ozaki.linalg.common.products import native_error, native_product


@pytest.fixture(params=["numpy", pytest.param("cupy", marks=pytest.mark.gpu)])
def xp(request):
    """The array library: NumPy, or CuPy on a real GPU."""
    if request.param == "numpy":
        return np
    return pytest.importorskip("cupy", reason="a real device needs CuPy")


# Matrices ------------------------------------------------------------------------------------------------------------


def hilbert(n):
    return 1 / (1 + np.add.outer(np.arange(float(n)), np.arange(float(n))))


def kahan(n, angle=1.2):
    s, c = np.sin(angle), np.cos(angle)
    return np.diag(s ** np.arange(n)) @ (np.eye(n) - c * np.triu(np.ones((n, n)), 1))


def conditioned(n, condition, seed=0):
    rng = np.random.default_rng(seed)
    left, right = (np.linalg.qr(rng.standard_normal((n, n)))[0] for _ in range(2))
    return left * np.geomspace(1, 1 / condition, n) @ right


def unimodular(n, seed=0):
    """Integers with determinant 1: of 30 rows with a condition number of some 1e35."""
    rng = np.random.default_rng(seed)
    low, high = (np.tril(rng.integers(-9, 10, (n, n)), -1) + np.eye(n, dtype=int) for _ in range(2))
    return (low.astype(object) @ high.T.astype(object)).astype(np.int64)


RNG = np.random.default_rng(1)

MATRICES = {
    "1 x 1": np.array([[3.0]]),
    "random": RNG.standard_normal((12, 12)),
    "permuted": np.eye(7)[[3, 1, 0, 6, 2, 5, 4]] * -(2.0**70),
    "hilbert": hilbert(12),
    "hilbert plus": hilbert(20) + 1e-8 * np.eye(20),
    "hilbert 20": hilbert(20),
    "vandermonde": np.vander(np.linspace(1, 2, 14)),
    "kahan": kahan(20),
    "1e4": conditioned(10, 1e4),
    "1e15": conditioned(10, 1e15),
    "graded": np.ldexp(RNG.standard_normal((9, 9)), np.arange(9)[:, None] * 60 - np.arange(9) * 90),
    "subnormal": RNG.standard_normal((4, 4)) * 2.0**-1060,
    "unimodular": unimodular(26),
}
"""Square matrices of condition numbers from 1 to 1e30."""


@pytest.mark.parametrize("accuracy", ["fp64", 150, Accuracy("relative", 1e-14)], ids=str)
@pytest.mark.parametrize("name", MATRICES)
def test_solutions_are_as_accurate_as_they_promise(xp, name, accuracy):
    a = MATRICES[name]
    b = np.random.default_rng(2).standard_normal((len(a), 2))
    dtype = "mp" if accuracy == 150 or name == "subnormal" else "float64"
    found = linalg.solve(xp.asarray(a), xp.asarray(b), accuracy=accuracy, dtype=dtype)
    measure = "relative" if isinstance(accuracy, Accuracy) else "normwise"
    wanted = {150: 2.0**-149}.get(accuracy, 3e-16 if measure == "normwise" else 1.1e-14)
    exact = exact_solve(fractions(a), fractions(b))
    assert error(found.x, exact, measure) <= found.error_bound <= wanted
    assert found.iterations >= 1 and found.x.shape == b.shape


@pytest.mark.parametrize("name", [name for name in MATRICES if name not in ("subnormal", "hilbert 20")])
@pytest.mark.parametrize("accuracy", ["fp64", 200])
def test_inverses_are_as_accurate_as_they_promise(xp, name, accuracy):
    a = MATRICES[name]
    found = linalg.inv(xp.asarray(a), accuracy=accuracy, dtype="mp" if accuracy == 200 else None)
    exact = exact_solve(fractions(a), np.eye(len(a), dtype=int))
    assert error(found.x, exact) <= found.error_bound <= (3e-16 if accuracy == "fp64" else 2.0**-199)


def test_the_inverse_of_a_hilbert_matrix_is_that_of_scipy(xp):
    scale = 5342931457063200  # the least common multiple of 1 to 39: the entries are integers
    h = np.array([[scale // (i + j + 1) for j in range(20)] for i in range(20)])
    found = scale * linalg.inv(xp.asarray(h), accuracy=Accuracy("relative", 2.0**-120), dtype="mp").x
    assert (np.frompyfunc(round, 1, 1)(found.to_fractions()) == invhilbert(20, exact=True)).all()


LEAST_SQUARES = {
    "column": np.arange(1.0, 6.0)[:, None],
    "square": MATRICES["random"],
    "random": RNG.standard_normal((30, 5)),
    "vandermonde": np.vander(np.linspace(1, 2, 30), 12),
    "1e14": np.linalg.qr(RNG.standard_normal((18, 6)))[0] @ conditioned(6, 1e14),
    "graded": RNG.standard_normal((15, 5)) * 10.0 ** np.arange(0, -250, -50),
    "hilbert": hilbert(16)[:, :12],
    "banded": np.eye(9, 7) * 4 + np.eye(9, 7, k=1) + np.eye(9, 7, k=-1),
}


@pytest.mark.parametrize("accuracy", ["fp64", 150, Accuracy("relative", 1e-14)], ids=str)
@pytest.mark.parametrize("name", LEAST_SQUARES)
def test_least_squares_are_as_accurate_as_they_promise(xp, name, accuracy):
    a = LEAST_SQUARES[name]
    b = np.random.default_rng(2).standard_normal(len(a))
    found = linalg.lstsq(xp.asarray(a), xp.asarray(b), accuracy=accuracy, dtype="mp" if accuracy == 150 else None)
    measure = "relative" if isinstance(accuracy, Accuracy) else "normwise"
    wanted = {150: 2.0**-149}.get(accuracy, 3e-16 if measure == "normwise" else 1.1e-14)
    rows = fractions(a)
    exact = exact_solve(rows.T @ rows, (rows.T @ fractions(b)).reshape(-1, 1))
    assert found.x.shape == (a.shape[1],)
    assert error(found.x, exact, measure) <= found.error_bound <= wanted


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 7), st.integers(0, 40), st.integers(0, 2**32 - 1), st.integers(20, 180))
def test_promises_hold_for_matrices_of_all_kinds(n, spread, seed, bits):
    rng = np.random.default_rng(seed)
    a = np.ldexp(rng.integers(-99, 100, (n, n)).astype(float), rng.integers(-spread, spread + 1, (n, n)))
    b = np.ldexp(rng.standard_normal((n, 1)), rng.integers(-spread, spread + 1, (n, 1)))
    try:
        found = linalg.solve(a, b, accuracy=bits, dtype="mp")
    except np.linalg.LinAlgError:
        with pytest.raises(StopIteration):
            exact_solve(fractions(a), fractions(b))  # it finds no pivot
        return
    assert error(found.x, exact_solve(fractions(a), fractions(b))) <= found.error_bound <= 2.0 ** (1 - bits)


def test_right_hand_sides_that_are_orthogonal_to_the_matrix(xp):
    a = np.array([[1.0, 1.0], [1.0, -1.0], [1.0, 1.0], [1.0, -1.0]])
    b = np.array([[1.0, 1.0, 0.1], [1.0, 1.0, 0.2], [-1.0, -1.0 + 2.0**-52, 0.3], [-1.0, -1.0, 0.7]])
    found = linalg.lstsq(xp.asarray(a), xp.asarray(b), accuracy="fp64")
    assert found.x[:, 0].tolist() == [0, 0] and abs(found.x[:, 1] - 2.0**-54).max() < 2.0**-100
    assert found.error_bound < 3e-16


def test_least_squares_solutions_that_are_tiny_or_zero():
    a = np.random.default_rng(0).standard_normal((3, 1))
    a[0] *= 2.0**-980
    b = np.array([1.0, 0.0, 0.0])
    found = linalg.lstsq(a, b)
    rows = fractions(a)
    exact = exact_solve(rows.T @ rows, (rows.T @ fractions(b)).reshape(1, 1))
    assert error(found.x, exact) <= found.error_bound < 3e-16
    p, q = np.random.default_rng(0).random(2)
    assert linalg.lstsq(np.array([[q], [-p]]), np.array([p, q])).x.tolist() == [0]
    found = linalg.lstsq(np.array([[2.0**-200], [1.0]]), b[:2], accuracy=890, dtype="mp")
    assert abs(found.x.to_fractions()[0] * 2**200 - 1) < Fraction(2) ** -390 and found.error_bound < 2.0**-880


@pytest.mark.parametrize("power", some_first(1, [60, 120, 250]))
def test_many_bits_of_ill_conditioned_matrices(power):
    a = ozaki.mparray([[1, 1], [1, 1]]) + ozaki.mparray([[0, 1], [0, 0]]).ldexp(-power)
    exact = np.array([[-(2**power), 2**power + 1], [2**power, -(2**power)]])
    found = linalg.inv(a, accuracy=890, dtype="mp")
    assert error(found.x, exact) <= found.error_bound < 2.0**-888 and found.iterations < 20
    found = linalg.solve(a, np.array([1.0, 0.0]), accuracy=890, dtype="mp")
    assert error(found.x, exact[:, :1]) <= found.error_bound < 2.0**-888 and found.iterations < 100


SINGULAR = {
    "zero": np.zeros((3, 3)),
    "ones": np.ones((4, 4)),
    "rank 1": np.array([[1.0, 2.0], [2.0, 4.0]]),
    "rank 2": np.arange(16.0).reshape(4, 4),
    "column": np.array([[1.0, 0.0], [3.0, 0.0]]),
    "magic": np.array([[16.0, 2, 3, 13], [5, 11, 10, 8], [9, 7, 6, 12], [4, 14, 15, 1]]),
}


@pytest.mark.parametrize("name", SINGULAR)
def test_singular_matrices_are_refused(xp, name):
    a, b = xp.asarray(SINGULAR[name]), xp.ones(len(SINGULAR[name]))
    for function in (linalg.inv, lambda x: linalg.solve(x, b), linalg.lu_factor):
        with pytest.raises(np.linalg.LinAlgError, match=r"^a: singular"):
            function(a)
    for function in (lambda x: linalg.lstsq(x, b), linalg.qr):
        with pytest.raises(np.linalg.LinAlgError, match=r"^a: columns are dependent"):
            function(a)


@pytest.mark.full
def test_nearly_singular_matrices_are_solved(xp):
    """Whose inverse in float64 may be exactly singular: then products with it are, too."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(2, 12))
        a = rng.integers(-9, 10, (n, n)).astype(float)
        corner = np.zeros((n, n))
        a[0], corner[0, 0] = (a[1] if seed % 2 else a[1:].sum(axis=0)), 1
        x = ozaki.mparray(a) + ozaki.mparray(corner).ldexp(-(60, 120, 50)[seed % 3])
        b = np.arange(1.0, n + 1)
        try:
            exact = exact_solve(fractions(x), fractions(b))
        except StopIteration:  # singular
            continue
        found = linalg.solve(moved(xp, x), xp.asarray(b), accuracy=80, dtype="mp")
        assert error(found.x, exact) <= found.error_bound <= 2.0**-79


def test_matrices_that_elimination_in_float64_finds_singular_are_solved(xp):
    """As rows that are units of the last place apart, and pivots that are only what couples a row to another one."""
    for pivot in (3.0, 5.0, 7.0):
        corner = (0.7 / pivot) * (1 / 3)  # the second pivot is 0 in float64, and 1e-17 at most
        a = np.array([[pivot, 1 / 3, 0], [0.7, corner, 1e-95], [0, 1e-95, 1.0]])
        exact = exact_solve(fractions(a), fractions(np.eye(3)))
        found = linalg.inv(xp.asarray(a))
        assert error(found.x, exact) <= found.error_bound <= 2.0**-52
        assert linalg.lstsq(xp.asarray(a), xp.ones(3)).error_bound <= 2.0**-52
    rows = np.arange(8)
    for top in (5e8 + 3, 900782642.0, 2.0**30 - 1):  # Frank's matrix, and a number that is added to it
        a = np.where(rows >= rows[:, None] - 1, top - np.maximum.outer(rows, rows), 0)
        exact = exact_solve(fractions(a), fractions(np.ones(8)))
        found = linalg.solve(xp.asarray(a), xp.ones(8), accuracy=60, dtype="mp")
        assert error(found.x, exact) <= found.error_bound <= 2.0**-60
        assert linalg.lu_factor(xp.asarray(a)).error_bound <= 2.0**-50


@pytest.mark.full
@pytest.mark.parametrize("dtype", ["mp", "mp1400"])
@pytest.mark.parametrize("function", ["solve", "inv"])
def test_bounds_of_many_bits_and_large_condition_numbers_do_not_underflow(function, dtype):
    for seed in (1, 3):
        rng = np.random.default_rng(seed)
        u = rng.integers(1, 9, (2, 1))
        singular = np.concatenate([u, u * int(rng.integers(1, 4))], axis=1)
        power = 180 + 25 * seed
        a = ozaki.mparray(singular) + ozaki.mparray(rng.integers(-9, 10, (2, 2))).ldexp(-power)
        b = np.eye(2) if function == "inv" else ozaki.mparray(rng.integers(-9, 10, (2, 1))).ldexp(-900) + 1
        exact = exact_solve(fractions(a), fractions(b))
        found = (
            linalg.inv(a, accuracy=895, dtype=dtype)
            if function == "inv"
            else linalg.solve(a, b, accuracy=895, dtype=dtype)
        )
        assert error(found.x, exact) <= Fraction(found.error_bound) <= Fraction(2) ** -894


@pytest.mark.parametrize("accuracy", [1, 5, "fp64", 200])
def test_a_least_squares_solution_far_smaller_than_b(accuracy):
    found = linalg.lstsq(np.ones((2, 1)), np.array([1, -1 + 2.0**-52]), accuracy=accuracy, dtype="mp")
    assert error(found.x, np.array([[Fraction(1, 2**53)]])) <= found.error_bound <= 0.6


# Factors -------------------------------------------------------------------------------------------------------------


def positive(n, seed=0):
    g = np.random.default_rng(seed).standard_normal((n, n))
    return g @ g.T


POSITIVE = {
    "1 x 1": np.array([[2.0]]),
    "random": positive(12),
    "hilbert": hilbert(10),
    "graded": np.outer(10.0 ** np.arange(0, -60, -6), 10.0 ** np.arange(0, -60, -6)) * (hilbert(10) + np.eye(10)),
    "tridiagonal": 4 * np.eye(5) + np.eye(5, k=1) + np.eye(5, k=-1),
    "kernel": np.exp(-np.subtract.outer(np.arange(12.0), np.arange(12.0)) ** 2),
    "grid": sum(
        np.kron(x, y) for x, y in ((np.eye(4), 2 * np.eye(4) - np.eye(4, k=1)), (-np.eye(4, k=1), np.eye(4)))
    ) + 2 * np.eye(16),
    "nearly diagonal": np.array([[1.0, 1e-305], [1e-305, 1.0]]),
    "1e30": ozaki.mparray([[f"1/{i + j + 1}" for j in range(21)] for i in range(21)], bits=200),
}  # fmt: skip
"""Positive definite matrices, by their lower triangles."""


def moved(xp, x):
    """The matrix in the array library's memory."""
    return x if xp is np else ozaki.ascupy(x) if isinstance(x, ozaki.MPArray) else xp.asarray(x)


@pytest.mark.parametrize("accuracy", ["fp64", 150])
@pytest.mark.parametrize("name", POSITIVE)
def test_cholesky_is_as_accurate_as_it_promises(xp, name, accuracy):
    a = POSITIVE[name]
    found = linalg.cholesky(moved(xp, a), accuracy=accuracy, dtype="mp" if accuracy == 150 else None)
    low, exact = fractions(found.l), np.tril(fractions(a))  # whatever is above the diagonal
    assert not np.triu(low, 1).any()
    exact = exact + np.tril(exact, -1).T
    assert product_error(exact, low, low.T) <= found.error_bound <= (3.4e-16 if accuracy == "fp64" else 2.0**-148)


TALL = {
    **LEAST_SQUARES,
    "1e30": ozaki.mparray([[f"1/{i + j + 1}" for j in range(19)] for i in range(22)], bits=200),
    "zero rows": np.vstack([np.zeros((3, 10)), RNG.standard_normal((10, 10))]),
    "sines": np.sin(np.pi * np.linspace(0, 1, 21)[:, None] * np.arange(1, 9)),
    "tiny rows": RNG.standard_normal((16, 8)) * np.where(np.arange(16) < 8, 2.0**-300, 1)[:, None],
    "wide": np.array([[1e160, 1e160], [1e160, -1e160], [1e-160, 1e-160]]),
    "vandermonde 25": np.vander(np.linspace(0, 1, 30), 25),
}


@pytest.mark.parametrize("accuracy", ["fp64", 150])
@pytest.mark.parametrize("name", TALL)
def test_qr_is_as_accurate_as_it_promises(xp, name, accuracy):
    a = TALL[name]
    found = linalg.qr(moved(xp, a), accuracy=accuracy, dtype="mp" if accuracy == 150 else None)
    q, r, eye = fractions(found.q), fractions(found.r), np.eye(a.shape[1], dtype=int)
    assert not np.tril(r, -1).any()
    worst = max(product_error(fractions(a), q, r, by_columns=True), product_error(eye, q.T, q))
    assert worst <= found.error_bound <= (3.4e-16 if accuracy == "fp64" else 2.0**-148)


FACTORED = {
    **{name: MATRICES[name] for name in ("1 x 1", "random", "permuted", "hilbert", "vandermonde", "kahan", "1e4")},
    **{name: POSITIVE[name] for name in ("tridiagonal", "kernel", "nearly diagonal")},
    "hessenberg": np.triu(RNG.standard_normal((9, 9)), -1) + 3 * np.eye(9),
    **{name: MATRICES[name] for name in ("hilbert 20", "1e15", "unimodular")},
    "1e30": TALL["1e30"][:19],
    "one huge row": np.where(np.arange(6)[:, None] == 2, 1e200, 1.0) * RNG.standard_normal((6, 6)),
}


@pytest.mark.parametrize("accuracy", ["fp64", 150])
@pytest.mark.parametrize("name", FACTORED)
def test_lu_is_as_accurate_as_it_promises(xp, name, accuracy):
    a = FACTORED[name]
    found = linalg.lu_factor(moved(xp, a), accuracy=accuracy, dtype="mp" if accuracy == 150 else None)
    low, high = fractions(found.l), fractions(found.u)
    order = np.asarray(found.p.get() if xp is not np else found.p)
    assert not np.triu(low, 1).any() and not np.tril(high, -1).any() and (np.diag(low) == 1).all()
    assert product_error(fractions(a[order]), low, high) <= found.error_bound
    assert found.error_bound <= (3.4e-16 if accuracy == "fp64" else 2.0**-148)
    b = np.arange(1.0, len(a) + 1)
    solved = linalg.lu_solve(found, xp.asarray(b), accuracy="fp64", dtype="float64")
    wanted = linalg.solve(moved(xp, a), xp.asarray(b), accuracy="fp64")
    assert (solved.x == wanted.x).all() and solved[1:] == wanted[1:]


def symmetric(values, seed=0):
    q = np.linalg.qr(np.random.default_rng(seed).standard_normal((len(values), len(values))))[0]
    a = (q * np.asarray(values)) @ q.T
    return (a + a.T) / 2


SYMMETRIC = {
    "1 x 1": np.array([[-2.0]]),
    "zero": np.zeros((3, 3)),
    "one": np.eye(5),
    "ones": np.ones((6, 6)),
    "random": symmetric(np.random.default_rng(3).standard_normal(12)),
    "hilbert": hilbert(10),
    "cluster": symmetric([1, 1 + 1e-15, 1 + 2e-15, 2, 3, 1e-8]),
    "wilkinson": np.diag(abs(np.arange(21) - 10.0)) + np.diag(np.ones(20), 1) + np.diag(np.ones(20), -1),
    "graded": POSITIVE["graded"],
    "large": -hilbert(5) * 1e300,
}


@pytest.mark.parametrize("accuracy", ["fp64", 180])
@pytest.mark.parametrize("name", SYMMETRIC)
def test_eigenvalues_are_as_accurate_as_they_promise(xp, name, accuracy):
    a = SYMMETRIC[name]
    found = linalg.eigh(xp.asarray(a), accuracy=accuracy, dtype="mp" if accuracy == 180 else None)
    values, vectors = fractions(found.values), fractions(found.vectors)
    with workprec(700):
        exact = sorted(eigsy(matrix(a.tolist()), eigvals_only=True))
        largest = max(map(abs, exact)) or 1
        worst = max(abs(x.numerator / matrix([x.denominator])[0] - y) for x, y in zip(values, exact, strict=True))
        assert worst / largest <= found.error_bound <= (4e-16 if accuracy == "fp64" else 2.0**-178)
    assert (values[1:] >= values[:-1]).all()
    # The vectors satisfy their equations, and are orthonormal.
    scale, tolerance = (
        abs(fractions(a)).max() or 1,
        Fraction(len(a)) * (Fraction(2) ** (-52 if accuracy == "fp64" else -178)),
    )
    assert (abs(fractions(a) @ vectors - vectors * values) <= 4 * len(a) * tolerance * scale).all()
    assert (abs(vectors.T @ vectors - np.eye(len(a), dtype=int)) <= 4 * tolerance).all()
    assert found.vector_bounds.shape == (len(a),) and (found.vector_bounds >= 0).all()


ANGLES = {
    "2 x 2": np.array([[2.0, 1.0], [1.0, 2.0]]),
    "close pair": np.ones((3, 3)) + 2.0**-40 * np.diag([1.0, 2.0, 3.0]),
    "random": symmetric(np.random.default_rng(4).standard_normal(8)),
    "wilkinson": np.diag(abs(np.arange(11) - 5.0)) + np.diag(np.ones(10), 1) + np.diag(np.ones(10), -1),
}


@pytest.mark.parametrize("accuracy", some_first(1, [100, "fp64", 706]))
@pytest.mark.parametrize("name", some_first(2, ANGLES))
def test_the_angles_of_eigenvectors_are_bounded(name, accuracy):
    a = ANGLES[name]
    found = linalg.eigh(a, accuracy=accuracy, dtype="mp1100")
    exact = linalg.eigh(a, accuracy=890, dtype="mp1100").vectors
    with workprec(1200):
        for j, bound in enumerate(found.vector_bounds):
            x, y = found.vectors.to_mpmath()[:, j], exact.to_mpmath()[:, j]
            across = x - y * ((y.T * x)[0] / (y.T * y)[0])
            assert norm(across) / norm(x) <= bound < 1e-3


def test_angles_of_vectors_of_equal_eigenvalues_have_no_bound():
    assert (linalg.eigh(np.diag([1.0, 1.0, 2.0])).vector_bounds[:2] == np.inf).all()


@pytest.mark.parametrize("dtype", some_first(1, ["mp2", "mp10", "float32"]))
def test_eigenvalues_that_are_rounded_to_few_bits(dtype):
    for a in (np.array([[1.25]]), np.array([[1 / 7]]), np.diag([1.3, -0.7])):
        found = linalg.eigh(a, accuracy=300, dtype=dtype)
        exact = np.sort(fractions(np.diag(a)))
        assert max(abs(fractions(found.values) - exact)) / max(abs(exact)) <= found.error_bound


def test_a_factored_matrix_may_change_afterwards():
    a = np.array([[2.0, 0.0], [0.0, 2.0]])
    factors = linalg.lu_factor(a)
    a[:] = [[1.0, 1.0], [0.0, 1.0]]
    assert linalg.lu_solve(factors, np.array([2.0, 2.0])).x.tolist() == [1, 1]


@pytest.mark.parametrize("function", [linalg.cholesky, linalg.qr, linalg.lu_factor])
@pytest.mark.parametrize("scale", [-5000, -1030, -600, 600])
def test_tiny_and_huge_matrices_are_factored(function, scale):
    a = ozaki.mparray([[2, 1], [1, 3]]).ldexp(scale)
    found, wanted = (function(x, accuracy=80, dtype="mp") for x in (a, a.ldexp(-scale)))
    assert found.error_bound == wanted.error_bound < 2.0**-78
    if scale == -600:
        assert function(a.astype("float64")).error_bound < 4e-16
    if scale == 600:
        with pytest.raises(OverflowError, match=r"^dtype: .* too large for float32"):
            function(a.astype("float64"), dtype="float32")


def test_factors_of_complex64(rng):
    for a in (np.array([[2 + 1j]]), rng.standard_normal((4, 4)) + 1j * rng.standard_normal((4, 4))):
        found = linalg.qr(a, accuracy=100, dtype="complex64")
        assert product_error(parts(a), parts(found.q), parts(found.r), by_columns=True) <= found.error_bound < 4e-7


@pytest.mark.parametrize(
    ("function", "a"),
    [
        (linalg.cholesky, -np.eye(3)), (linalg.cholesky, hilbert(15)), (linalg.cholesky, np.ones((3, 3))),
        (linalg.cholesky, np.diag([1.0, 1.0, -1e-300])), (linalg.qr, np.array([[1.0, 0.0], [1.0, 0.0]])),
    ],
    ids=["negative", "hilbert", "semidefinite", "slightly negative", "zero column"],
)  # fmt: skip
def test_matrices_without_such_factors_are_refused(function, a):
    with pytest.raises(np.linalg.LinAlgError, match=r"^a: "):
        function(a)


@pytest.mark.parametrize("accuracy", some_first(1, [2, 300]))
@pytest.mark.parametrize("power", some_first(1, [30, 110]))
def test_factors_of_large_condition_numbers(power, accuracy):
    """Of integers times powers of two: the square of the condition number of b is that of b^T b."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(3, 7))
        columns = -np.sort(rng.integers(0, power, n))
        triangle = np.triu(rng.integers(-9, 10, (n, n)), 1) + np.eye(n, dtype=int)
        b = ozaki.mparray(rng.integers(-9, 10, (n + 3, n))).ldexp(columns)
        b = ozaki.matmul(b, ozaki.mparray(triangle), accuracy="exact")
        a = ozaki.matmul(b.T, b, accuracy="exact")
        wanted = 2.0**-accuracy
        low = linalg.cholesky(a, accuracy=accuracy, dtype="mp")
        left = fractions(low.l)
        assert product_error(fractions(a), left, left.T) <= low.error_bound <= 2 * wanted
        q, r, bound, _ = linalg.qr(b, accuracy=accuracy, dtype="mp")
        q, r, eye = fractions(q), fractions(r), fractions(np.eye(n))
        assert (
            max(product_error(fractions(b), q, r, by_columns=True), product_error(eye, q.T, q)) <= bound <= 2 * wanted
        )
        lu = linalg.lu_factor(b[:n], accuracy=accuracy, dtype="mp")
        square = fractions(b[:n])[lu.p]
        assert product_error(square, fractions(lu.l), fractions(lu.u)) <= lu.error_bound <= 2 * wanted


@pytest.mark.parametrize("function", [linalg.cholesky, linalg.eigh])
def test_only_the_lower_triangle_is_read(xp, function):
    a = np.array([[2.0, 0.5], [0.5, 3.0]])
    for above in (7.0, np.nan, np.inf):
        other = np.array([[2.0, above], [0.5, 3.0]])
        assert_same(function(xp.asarray(a)), function(xp.asarray(other)))
        imaginary = np.array([[complex(2, above), above], [0.5, complex(3, -above)]])
        assert_same(function(xp.asarray(a + 0j)), function(xp.asarray(imaginary)))
    with pytest.raises(ValueError, match=r"^a: element \[1, 0\] is nan; expected finite numbers"):
        function(xp.asarray(np.array([[2.0, 1.0], [np.nan, 3.0]])))


@pytest.mark.parametrize("function", [linalg.cholesky, linalg.eigh])
def test_only_the_lower_triangle_of_objects_is_read(function):
    a, nan = np.array([[2.0, 0.5], [0.5, 3.0]]), float("nan")
    wanted = function(a, accuracy=80, dtype="mp")
    tail = np.array([[0.0, nan], [0.0, 0.0]])
    for other in (
        [[2.0, nan], [0.5, 3.0]],
        (np.array([[2.0, nan], [0.5, 3.0]]), tail),
        matrix([[2, nan], [0.5, 3]]),
        flint.arb_mat([[2, flint.arb("nan")], [0.5, 3]]),
        flint.fmpq_mat([[2, 9], [flint.fmpq(1, 2), 3]]),
    ):
        assert_same(wanted, function(other, accuracy=80, dtype="mp"))
    found = function(matrix([[mpc(2, nan), nan], [0.5, mpc(3, nan)]]), accuracy=80, dtype="mp")
    assert_same(wanted, found)
    with pytest.raises(ValueError, match=r"^a: shape \(3, 2\); expected a square matrix"):
        function(matrix(3, 2))


def assert_same(wanted, found):
    assert all((x == y).all() for x, y in zip(wanted[:2], found[:2], strict=True) if getattr(x, "ndim", 0))


def test_eigenvalues_with_gaps_among_the_subnormal_numbers():
    found = linalg.eigh(np.diag([1, 3e-317, 0]).astype(complex), accuracy=106, dtype="mp")
    assert error(found.values, np.array([[0], [Fraction(3e-317)], [1]])) <= found.error_bound <= 2.0**-104


# How much is multiplied ----------------------------------------------------------------------------------------------

CALLS = {
    "solve": (0, lambda a, s, b: linalg.solve(a, b)),
    "inv": (0, lambda a, s, b: linalg.inv(a)),
    "lstsq": (0, lambda a, s, b: linalg.lstsq(a, b)),
    "cholesky": (0, lambda a, s, b: linalg.cholesky(s)),
    "qr": (0, lambda a, s, b: linalg.qr(a)),
    "lu_factor": (0, lambda a, s, b: linalg.lu_factor(a)),
    "eigh": (0, lambda a, s, b: linalg.eigh(s)),
}
"""How many products of this library a function takes of a well-conditioned matrix, and its call."""


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", [float, complex])
def test_well_conditioned_matrices_take_few_products(xp, name, dtype, rng):
    a = (
        12 * np.eye(12)
        + rng.standard_normal((12, 12))
        + (1j * rng.standard_normal((12, 12)) if dtype is complex else 0)
    )
    b, (products, call) = rng.standard_normal(12), CALLS[name]
    with ozaki.recording() as run:
        found = call(*map(xp.asarray, (a, a @ a.conj().T, b)))
    assert run.inside == products and found.error_bound < 4e-16


@pytest.mark.parametrize("name", CALLS)
def test_bounds_hold_where_native_products_have_none(name, rng, monkeypatch):
    """Then products of this library take their place."""
    a, b = rng.standard_normal((6, 6)) + 6 * np.eye(6), rng.standard_normal(6)
    s, (products, call) = a @ a.T, CALLS[name]
    monkeypatch.setattr("ozaki.backends.numpy.backend.native_obstacle", lambda dtype: "ruled out")
    with ozaki.recording() as run:
        found = call(a, s, b)
    assert run.inside > products
    exact_a, exact_s, eye = fractions(a), fractions(s), fractions(np.eye(6))
    x = fractions(found[1] if name == "lu_factor" else found[0])
    if name in ("solve", "lstsq", "inv"):
        worst = error(found.x, exact_solve(exact_a, eye if name == "inv" else fractions(b)))
    elif name == "eigh":
        with workprec(200):
            exact = ozaki.mparray(sorted(eigsy(matrix(s.tolist()), eigvals_only=True)))
        worst = error(found.values, exact.to_fractions()[:, None])
    elif name == "lu_factor":
        worst = product_error(exact_a[found.p], x, fractions(found.u))
    else:
        worst = (
            product_error(exact_s, x, x.T)
            if name == "cholesky"
            else product_error(exact_a, x, fractions(found.r), by_columns=True)
        )
    assert worst <= found.error_bound < 4e-16


@pytest.mark.parametrize("power", [0, 20, 26, 33, 40, 50])
def test_native_products_are_left_where_they_prove_too_little(power, rng):
    """From a condition number on: bounds hold before and after, and for many bits."""
    a, b = conditioned(8, 2.0**power, seed=power), rng.standard_normal((8, 2))
    exact = exact_solve(fractions(a), fractions(b))
    for accuracy, wanted in (("fp64", 3e-16), (150, 2.0**-149), (3, 0.25)):
        found = linalg.solve(a, b, accuracy=accuracy, dtype="mp" if accuracy == 150 else None)
        assert error(found.x, exact) <= found.error_bound <= wanted
        tall = linalg.lstsq(np.vstack([a, a]), np.vstack([b, b]), accuracy=accuracy, dtype="mp")
        assert error(tall.x, exact) <= tall.error_bound <= wanted


def test_the_sum_of_two_floats_is_exact(rng):
    x = np.ldexp(rng.standard_normal(200), rng.integers(-60, 60, 200))
    y = np.ldexp(rng.standard_normal(200), rng.integers(-60, 60, 200))
    x[:50], y[50:60] = -y[:50] * (1 + 2.0**-50), 0
    high, low = added(x, y)
    assert (fractions(high) + fractions(low) == fractions(x) + fractions(y)).all() and (high == x + y).all()


@pytest.mark.parametrize("dtype", [float, complex])
def test_errors_of_native_products_are_bounded(dtype, rng):
    for k in (1, 2, 30):
        x, y = (
            np.ldexp(rng.standard_normal(shape), rng.integers(-9, 9, shape)).astype(dtype) for shape in ((3, k), (k, 4))
        )
        if dtype is complex:
            x, y = x * (1 + 2j), y * (3 - 1j)
        missed = parts(native_product(x, y)) - parts(x) @ parts(y)
        sizes = native_error(x, y) * (abs(x) @ abs(y)) * (1 + 1e-12)
        assert (abs(missed[:3, :4]) <= sizes).all() and (abs(missed[3:, :4]) <= sizes).all()


# Operands and results ------------------------------------------------------------------------------------------------


def test_complex_operands(xp):
    rng = np.random.default_rng(0)
    a = rng.standard_normal((6, 6)) + 1j * rng.standard_normal((6, 6))
    one, given = np.ones(6), xp.asarray(a)
    exact = exact_solve(parts(a), fractions(np.r_[one, 0 * one]))
    solved = linalg.solve(given, xp.asarray(one), accuracy="fp64")
    x = fractions(np.r_[solved.x.real.tolist(), solved.x.imag.tolist()])
    assert max(abs(x - exact[:, 0])) / max(abs(exact[:, 0])) <= 1.5 * Fraction(solved.error_bound) < 4e-16
    assert abs(given @ linalg.inv(given).x - xp.eye(6)).max() < 1e-14
    assert abs(linalg.lstsq(given, xp.asarray(one)).x - solved.x).max() < 1e-15
    hermitian = given @ given.conj().T
    low = linalg.cholesky(hermitian, accuracy=100, dtype="mp")
    assert low.l.is_complex and low.error_bound < 2.0**-98
    on_host = (lambda x: x) if xp is np else xp.asnumpy
    q, r, bound, _ = linalg.qr(given)
    q, r = on_host(q), on_host(r)
    assert (
        max(
            product_error(parts(a), parts(q), parts(r), by_columns=True),
            product_error(fractions(np.eye(12)), parts(q).T, parts(q)),
        )
        <= bound
    )
    assert bound < 4e-16
    factors = linalg.lu_factor(given)
    low, high = (parts(on_host(x)) for x in (factors.l, factors.u))
    assert product_error(parts(a[on_host(factors.p)]), low, high) <= factors.error_bound < 4e-16
    values, vectors, bound, *_ = linalg.eigh(hermitian)
    assert values.dtype == np.float64 and abs(hermitian @ vectors - vectors * values).max() < 1e-13 and bound < 4e-16


@pytest.mark.parametrize(
    ("a", "b", "dtype"),
    [("f8", "f8", "float64"), ("f4", "f4", "float32"), ("f4", "f8", "float64"), ("i8", "i4", "float64"),
     ("c8", "f4", "complex64"), ("f8", "c16", "complex128")],
)  # fmt: skip
def test_dtypes(a, b, dtype):
    found = linalg.solve(np.array([[2, 1], [1, 3]], a), np.array([1, 2], b))
    assert found.x.dtype == dtype and abs(found.x - [0.2, 0.6]).max() < (
        1e-7 if dtype in ("float32", "complex64") else 1e-15
    )


def test_multiprecision_operands_and_results():
    a, b = ozaki.mparray([["1/3", "0.1"], ["0.1", "1/7"]], bits=150), ozaki.mparray(["1", "0.3"], bits=150)
    found = linalg.solve(a, b)
    assert found.x.bits <= 152 and found.error_bound <= 2.0**-149
    assert error(found.x, exact_solve(a.to_fractions(), b.to_fractions())) <= found.error_bound
    assert linalg.solve(a, b, dtype="float64").x.dtype == np.float64
    assert linalg.solve(np.eye(2), np.ones(2), accuracy=80, dtype="mp60").x.bits <= 60
    large = linalg.solve(np.eye(2) * 1e-300, np.ones(2) * 1e300, dtype="mp")
    assert large.x.to_fractions()[0] > 10**599


def test_matrices_of_mpmath():
    a = matrix([[4, 1], [1, 3]])
    found = linalg.solve(a, np.array([1.0, 2.0]), accuracy=100)
    exact = exact_solve(fractions(np.array([[4, 1], [1, 3]])), fractions(np.array([1, 2])))
    assert error(found.x, exact) <= found.error_bound <= 2.0**-53


def test_empty_and_zero_operands(xp):
    nothing = xp.zeros((0, 0))
    factors = linalg.lu_factor(nothing)
    for columns in ((), (0,), (3,)):
        for found in (
            linalg.solve(nothing, xp.zeros((0, *columns))),
            linalg.lu_solve(factors, xp.zeros((0, *columns))),
        ):
            assert found.x.shape == (0, *columns) and found.error_bound == 0
        assert linalg.lstsq(xp.zeros((3, 0)), xp.ones((3, *columns))).x.shape == (0, *columns)
        assert linalg.lstsq(nothing, xp.ones((0, *columns))).x.shape == (0, *columns)
    assert linalg.inv(nothing).x.shape == (0, 0)
    for function in (linalg.cholesky, linalg.qr, linalg.lu_factor, linalg.eigh):
        assert function(nothing).error_bound == 0
    assert [x.shape for x in linalg.qr(xp.zeros((3, 0)))[:2]] == [(3, 0), (0, 0)]
    zeros = linalg.solve(xp.eye(3), xp.asarray([[0.0, 1.0], [0.0, 0.0], [0.0, 0.0]]))
    assert not zeros.x[:, 0].any() and zeros.error_bound < 1e-15


def test_a_matrix_is_judged_without_right_hand_sides_as_with_them(xp):
    none = xp.zeros((3, 0))
    for found in (
        linalg.solve(xp.eye(3), none), linalg.lstsq(xp.eye(3), none), linalg.lu_solve(linalg.lu_factor(xp.eye(3)), none)
    ):  # fmt: skip
        assert found.x.shape == (3, 0) and found.error_bound == 0
    for a in (xp.zeros((3, 3)), xp.ones((3, 3))):
        with pytest.raises(np.linalg.LinAlgError, match=r"^a: singular"):
            linalg.solve(a, none)
        with pytest.raises(np.linalg.LinAlgError, match=r"^a: columns are dependent"):
            linalg.lstsq(a, none)
    with pytest.raises(ValueError, match=r"^b: shape \(2,\); expected \(3,\)"):
        linalg.solve(xp.zeros((3, 3)), xp.ones(2))


def test_operands_are_left_as_they_are_in_any_layout():
    a, b = np.random.default_rng(0).standard_normal((2, 8, 8))
    wanted = linalg.solve(a[::2, ::2].copy(), b[::2, :3].copy()).x
    a.flags.writeable = b.flags.writeable = False
    before = a.copy(), b.copy()
    assert (linalg.solve(a[::2, ::2], b[::2, :3]).x == wanted).all()
    assert (linalg.solve(np.asfortranarray(a[::2, ::2]), b[::2, :3][:, ::-1]).x == wanted[:, ::-1]).all()
    assert (a == before[0]).all() and (b == before[1]).all()


def test_tensors_come_back_as_tensors():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    a = torch.tensor([[4.0, 2.0], [2.0, 3.0]], dtype=torch.float64)
    assert isinstance(linalg.solve(a, torch.ones(2, dtype=torch.float64)).x, torch.Tensor)
    found = linalg.eigh(a)
    assert isinstance(found.values, torch.Tensor) and isinstance(found.vectors, torch.Tensor)
    assert isinstance(linalg.qr(a).r, torch.Tensor) and type(linalg.qr(a)).__name__ == "QR"


EYE, ONE = np.eye(2), np.ones(2)

REFUSED = {
    "not square": (lambda: linalg.solve(np.ones((2, 3)), ONE), ValueError, r"^a: shape \(2, 3\); expected a square"),
    "vector": (lambda: linalg.cholesky(np.ones(3)), ValueError, r"^a: shape \(3,\); .* or a stack of them"),
    "rows": (lambda: linalg.solve(EYE, np.ones(3)), ValueError, r"^b: shape \(3,\); expected \(2,\)"),
    "wide": (lambda: linalg.lstsq(np.ones((2, 3)), ONE), ValueError, "^a: .*as many rows as columns"),
    "mode of qr": (lambda: linalg.qr(EYE, "economic"), ValueError, "^mode: 'economic'; expected 'reduced', "),
    "nan": (lambda: linalg.solve(EYE * np.nan, ONE), ValueError, r"^a: element \[0, 0\] is nan"),
    "inf": (lambda: linalg.solve(EYE, ONE * np.inf), ValueError, r"^b: element \[0\] is inf"),
    "objects": (lambda: linalg.solve(EYE.astype(object), ONE), TypeError, "^a: dtype object"),
    "exact": (lambda: linalg.lstsq(EYE, ONE, accuracy="exact"), ValueError, "^accuracy: 'exact'"),
    "too many": (lambda: linalg.solve(EYE, ONE, accuracy=901), ValueError, "^accuracy: 901; .* 1 to 900 "),
    "no bits": (lambda: linalg.eigh(EYE, accuracy=0), ValueError, "^accuracy: 0; expected .* bits from 1 to 900 "),
    "too small": (lambda: linalg.qr(EYE, accuracy=1e-300), ValueError, "^accuracy: 1e-300; .*tolerance from 2\\^-900 "),
    "not a tolerance": (lambda: linalg.inv(EYE, accuracy=1.5), ValueError, "^accuracy: 1.5; expected "),
    "not an accuracy": (lambda: linalg.inv(EYE, accuracy=[53]), TypeError, r"^accuracy: \[53\]; expected "),
    "far too small": (
        lambda: linalg.solve(EYE, ONE, accuracy=Accuracy("normwise", 0.5, exponent=-2000)),
        ValueError,
        r"^accuracy: Accuracy\(measure='normwise', tolerance=0.5, exponent=-2000\); expected",
    ),
    "unknown": (lambda: linalg.inv(EYE, accuracy="fp65"), ValueError, "^accuracy: 'fp65'; expected"),
    "measure": (
        lambda: linalg.solve(EYE, ONE, accuracy=Accuracy("componentwise", 1e-9)),
        ValueError,
        "^accuracy: measure 'componentwise'; expected 'normwise' or 'relative'",
    ),
    "factors": (lambda: linalg.qr(EYE, accuracy=Accuracy("relative", 1e-9)), ValueError, "^accuracy: an Accuracy"),
    "zero": (
        lambda: linalg.solve(np.array([[1.0, 1.0], [1.0, 2.0]]), ONE, accuracy=Accuracy("relative", 1e-9)),
        ValueError,
        "^accuracy: an element of the solution is zero",
    ),
    "int64": (lambda: linalg.solve(EYE, ONE, dtype="int64"), TypeError, "^dtype: 'int64'"),
    "real": (lambda: linalg.solve(EYE * 1j, ONE, dtype="float64"), TypeError, "^dtype: 'float64', but operands are"),
    "overflow": (lambda: linalg.solve(EYE * 1e-300, ONE * 1e300), OverflowError, "^dtype: an element of the result"),
    "underflow": (
        lambda: linalg.solve(EYE * 1e300, ONE * 1e-100),
        OverflowError,
        "^dtype: elements of the result are too small for float64; ask for dtype='mp'",
    ),
    "underflow of factors": (
        lambda: linalg.qr(EYE * 1e-300, dtype="float32"), OverflowError, "^dtype: elements of the result are too small",
    ),
    "strings": (lambda: linalg.inv([["1/3"]]), TypeError, "objects and strings"),
    "dependent columns": (lambda: linalg.lstsq(np.ones((5, 2)), np.ones(5)), np.linalg.LinAlgError, "^a: "),
    "bits of the result": (lambda: linalg.inv(EYE, dtype="mp1000"), ValueError, "^accuracy: none named"),
    "graded": (
        lambda: linalg.solve(np.array([[1.0, 2.0**-900], [1.0, 2.0**-899]]), ONE),
        ValueError,
        "^accuracy: out of reach",
    ),
    "no factors": (lambda: linalg.lu_solve(EYE, ONE), TypeError, "^factors: ndarray; expected an LU"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_had_is_refused(name):
    call, kind, message = REFUSED[name]
    with pytest.raises(kind, match=message):
        call()
