"""Linear algebra: bounds hold for results as they are returned, rounded to few bits, tiny and huge ones included."""

from fractions import Fraction

import numpy as np
import pytest
from exact_linalg import complex_product_error, complex_solve, fractions
from mpmath import eighe, mpf, norm, workprec

import ozaki
from ozaki import Accuracy, linalg

LEAST = {"float32": -149, "complex64": -149, "float64": -1074, "complex128": -1074, "mp2": -3000, "mp10": -3000}
"""Formats of results, and the exponent of the smallest number of each; any, of multiprecision numbers."""


def drawn(rng, dtype, *shape):
    """A matrix of floats or of small integers, for complex dtypes, and some others, a complex one."""
    normal = rng.random() < 0.7
    parts = [rng.standard_normal(shape) if normal else rng.integers(-9, 10, shape).astype(float) for _ in range(2)]
    is_complex = dtype.startswith("complex") or (dtype.startswith("mp") and rng.random() < 0.3)
    return parts[0] + 1j * parts[1] if is_complex else parts[0]


def hermitian(a):
    a = np.tril(a) + np.tril(a, -1).conj().T
    a[np.diag_indices(len(a))] = a[np.diag_indices(len(a))].real
    return a


def check_solution(found, a, b, measure):
    real, imaginary = complex_solve(a, b)
    x = ozaki.mparray(found.x)
    missed = (fractions(x.real) - real) ** 2 + (fractions(x.imag) - imaginary) ** 2
    sizes = real**2 + imaginary**2
    if measure == "normwise":
        missed, sizes = missed.max(axis=0), sizes.max(axis=0)
    assert (missed <= sizes * Fraction(found.error_bound) ** 2).all()


def check_eigen(found, a):
    with workprec(900):
        exact, exact_vectors = eighe(a.to_mpmath())
        order = sorted(range(len(a)), key=lambda i: exact[i])
        largest, vectors = max(map(abs, exact)), ozaki.mparray(found.vectors).to_mpmath()
        for j, (i, x) in enumerate(zip(order, fractions(found.values), strict=True)):
            missed = abs(mpf(x.numerator) / x.denominator - exact[i])
            assert missed <= (mpf(found.error_bound) + mpf(2) ** -800) * largest
            v, y = vectors[:, j], exact_vectors[:, i]
            sine = norm(v - y * ((y.H * v)[0] / (y.H * y)[0])) / norm(v)
            assert sine <= mpf(float(found.vector_bounds[j])) + mpf(2) ** -800


def check_call(function, rng):
    """A random call, whose result is judged by an exact one.

    In half of the calls results are near the smallest numbers of their dtype.
    """
    dtype = str(rng.choice(list(LEAST)))
    accuracy, measure = [None, "fp32", "fp64", 150, 2, 0.9][rng.integers(6)], "normwise"
    n = int(rng.integers(1, 5))
    power = int(rng.integers(LEAST[dtype] - 5, LEAST[dtype] + 60)) if rng.random() < 0.5 else 0
    a = drawn(rng, dtype, n + int(rng.integers(0, 3)) * (function in ("lstsq", "qr")), n)
    b = ozaki.mparray(drawn(rng, dtype, len(a), 2)).ldexp(power)
    if function in ("solve", "inv", "lstsq") and rng.random() < 0.3:
        accuracy, measure = Accuracy("relative", 1e-9), "relative"
    options = {"accuracy": accuracy, "dtype": dtype}
    if function == "inv":
        a = ozaki.mparray(a).ldexp(-power)
        check_solution(linalg.inv(a, **options), a, ozaki.mparray(np.eye(n)), measure)
    elif function in ("solve", "lstsq"):
        check_solution(getattr(linalg, function)(a, b, **options), ozaki.mparray(a), b, measure)
    elif function == "lu_solve":
        check_solution(linalg.lu_solve(linalg.lu_factor(a), b, **options), ozaki.mparray(a), b, measure)
    elif function == "eigh":
        a = ozaki.mparray(hermitian(a)).ldexp(power)
        check_eigen(linalg.eigh(a, **options), a)
    elif function == "cholesky":
        a = ozaki.mparray(hermitian(a @ a.conj().T)).ldexp(2 * power)
        found = linalg.cholesky(a, **options)
        low = ozaki.mparray(found.l)
        assert complex_product_error(a, low, low.conj().T) <= found.error_bound
    elif function == "qr":
        a = ozaki.mparray(a).ldexp(power + rng.integers(0, 9, n))
        found = linalg.qr(a, **options)
        q, r, eye = ozaki.mparray(found.q), ozaki.mparray(found.r), ozaki.mparray(np.eye(n))
        assert complex_product_error(a, q, r, by_columns=True) <= found.error_bound
        assert complex_product_error(eye, q.conj().T, q) <= found.error_bound
    else:
        a = ozaki.mparray(a).ldexp(power + rng.integers(0, 9, n))
        found = linalg.lu_factor(a, **options)
        assert complex_product_error(a[found.p], ozaki.mparray(found.l), ozaki.mparray(found.u)) <= found.error_bound


FUNCTIONS = ["solve", "inv", "lstsq", "lu_solve", "cholesky", "qr", "lu_factor", "eigh"]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_bounds_hold_for_what_is_returned(function, rng):
    for _ in range(6):
        try:
            check_call(function, rng)
        except (OverflowError, np.linalg.LinAlgError):  # too small for the dtype, or singular
            continue
        except ValueError as error:
            assert str(error).startswith("accuracy: an element of the solution is zero")  # noqa: PT017


@pytest.mark.parametrize("dtype", ["float32", "complex64", "mp8"])
def test_angles_include_the_rounding_of_vectors(dtype):
    """Of (1, t) and (-t, 1), t the golden ratio less 1: in float32 their sines are above 1e-9."""
    found = linalg.eigh(np.array([[2, 1], [1, 1]]), accuracy=150, dtype=dtype)
    check_eigen(found, ozaki.mparray(np.array([[2.0, 1], [1, 1]])))
    assert (found.vector_bounds > 1e-9).all()


UNDERFLOWS = {
    "solve": lambda a, **k: linalg.solve(np.eye(2), a, **k),
    "lu_solve": lambda a, **k: linalg.lu_solve(linalg.lu_factor(np.eye(2)), a, **k),
    "lstsq": lambda a, **k: linalg.lstsq(np.eye(3, 2), np.vstack([a, a[:1]]), **k),
    "inv": lambda a, **k: linalg.inv(np.linalg.inv(a), **k),
    "cholesky": lambda a, **k: linalg.cholesky(ozaki.mparray(a).ldexp(-150), **k),
    "qr": linalg.qr,
    "lu_factor": linalg.lu_factor,
    "eigh": linalg.eigh,
}


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.parametrize("function", UNDERFLOWS)
def test_results_of_which_nothing_is_left_are_refused(function, dtype):
    a = np.array([[2.0, 1.0], [1.0, 2.0]])
    for scale, message in ((1e-60, "elements of the result are too small for"), (1e60, "an element of the result is")):
        if function == "cholesky" and scale > 1:
            scale = 1e130
        with pytest.raises(OverflowError, match=f"^dtype: {message}"):
            UNDERFLOWS[function](a * scale, accuracy="fp32", dtype=dtype)
    assert linalg.eigh(np.zeros((2, 2)), dtype=dtype).values.tolist() == [0, 0]


@pytest.mark.parametrize("reproducible", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["solve", "inv", "lu_factor", "cholesky", "qr", "lq", "svd", "eigh"])
def test_complex_numbers_are_not_rounded_to_real_ones(name, dtype, reproducible):
    if reproducible and name in ("lq", "svd", "eigh"):
        pytest.skip("has no such option")
    options = {"reproducible": True} if reproducible else {}
    a = np.array([[2, 1j], [-1j, 3]])
    for of_a in (a, ozaki.mparray(a)):
        operands = (of_a, np.ones(2)) if name == "solve" else (of_a,)
        with pytest.raises(TypeError, match=f"^dtype: '{dtype}', but operands are complex; expected complex64"):
            getattr(linalg, name)(*operands, dtype=dtype, **options)


@pytest.mark.parametrize(("dtype", "of_complex"), [("float32", "complex64"), ("float64", "complex128")])
@pytest.mark.parametrize("function", [linalg.svdvals, linalg.eigvalsh, linalg.norm, linalg.cond])
def test_results_that_are_real_of_complex_matrices_may_have_a_real_dtype(function, dtype, of_complex):
    a = np.array([[2, 1j], [-1j, 3]])
    for x in (a, a.astype("complex64"), ozaki.mparray(a)):
        found, same = function(x, dtype=dtype), function(x, dtype=of_complex)
        assert found[0].dtype == dtype and (found[0] == same[0]).all() and found.error_bound == same.error_bound
