"""Factors of every shape and mode, their uses, and bounds of their columns: all judged in fractions."""

import copy
import inspect
import pickle
import typing

import numpy as np
import pytest
from exact_linalg import complex_error, complex_product_error, complex_solve

import ozaki
from ozaki import linalg, mparray

SHAPES = [(5, 3), (3, 5), (4, 4), (4, 1), (1, 1)]
FORMATS = {
    "float64": ({}, 2.0**-51),
    "float32": ({"dtype": "float32"}, 2.0**-22),
    "130 bits": ({"accuracy": 130, "dtype": "mp"}, 2.0**-129),
}


def made(rng, shape, is_complex):
    """A matrix whose first columns and rows are independent."""
    x = rng.uniform(-1, 1, shape) + 3 * np.eye(*shape)
    return x + 1j * rng.uniform(-1, 1, shape) if is_complex else x


def adjoint(x):
    return x.conj().T


def errors(a, x, y, by_columns=False):
    """Of each column of a - x y the error, as `complex_product_error` of the whole."""
    a, x, y = map(mparray, (a, x, y))
    return [complex_product_error(a[:, [j]], x, y[:, [j]], by_columns) for j in range(a.shape[1])]


def check_qr(a, q, r, found):
    """Assert that the bounds of all columns hold."""
    k = q.shape[1]
    of_a, of_eye = errors(a, q, r, by_columns=True), errors(np.eye(k), adjoint(mparray(q)), q)
    assert len(found.error_bounds) == max(len(of_a), k) and found.error_bounds.max() == found.error_bound
    for each in (of_a, of_eye):
        assert all(x <= bound for x, bound in zip(each, found.error_bounds, strict=False))
    below = mparray(r).to_fractions() if not mparray(r).is_complex else abs(mparray(r).astype("complex128"))
    assert not np.tril(below, -1).any()


@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mode", ["reduced", "complete"])
def test_qr_and_lq_of_every_shape(mode, shape, is_complex, rng):
    a = made(rng, shape, is_complex)
    q_shape, r_shape = (x.shape for x in np.linalg.qr(a, mode))
    for name, (options, most) in FORMATS.items():
        if name == "float32" and (is_complex or mode == "complete"):
            continue
        found = linalg.qr(a, mode, **options)
        assert len(found) == 4 and (found.q.shape, found.r.shape) == (q_shape, r_shape)
        check_qr(a, found.q, found.r, found)
        assert found.error_bound < most
        found = linalg.lq(adjoint(a), mode, **options)
        assert (found.l.shape, found.q.shape) == (r_shape[::-1], q_shape[::-1])
        check_qr(a, *(adjoint(mparray(x)) for x in (found.q, found.l)), found)
        assert found.error_bound < most


@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
@pytest.mark.parametrize("shape", [(7, 5), (4, 9)])
def test_pivots_are_those_of_scipy(shape, mode, rng):
    scipy_linalg = pytest.importorskip("scipy.linalg", reason="SciPy is not installed")
    a = rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4, shape[1])
    found = linalg.qr(a, mode, pivoting=True)
    known = {"reduced": "economic", "complete": "full"}.get(mode, mode)
    *_, r, p = scipy_linalg.qr(a, mode=known, pivoting=True)
    assert (found.p == p).all()
    assert found.r.shape == (r if mode != "r" else np.linalg.qr(a, "r")).shape
    if mode == "r":
        assert found.q is None
    else:
        check_qr(a[:, p], found.q, found.r, found)
    numbers = linalg.qr(mparray(a).ldexp(5000), mode, pivoting=True, accuracy=60)
    assert (numbers.p == p).all() and numbers.error_bound < 2.0**-59


def test_only_r_is_that_of_the_reduced_factors(rng):
    a = rng.standard_normal((6, 4))
    alone, both = linalg.qr(a, "r"), linalg.qr(a)
    assert alone.q is None and (alone.r == both.r).all() and alone.error_bound == both.error_bound


def test_pivoting_takes_dependent_columns_of_wide_matrices():
    a = np.array([[1.0, 2.0, 0.5, 4.0], [2.0, 4.0, 0.25, 1.0]])
    with pytest.raises(np.linalg.LinAlgError, match=r"^a: columns are dependent"):
        linalg.qr(a)
    pytest.importorskip("scipy", reason="SciPy is not installed")
    found = linalg.qr(a, pivoting=True)
    check_qr(a[:, found.p], found.q, found.r, found)
    for pivoting in (False, True):
        with pytest.raises(np.linalg.LinAlgError, match=r"^a: columns are dependent"):
            linalg.qr(np.array([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]]), pivoting=pivoting)
    with pytest.raises(np.linalg.LinAlgError, match=r"^a: rows are dependent"):
        linalg.lq(np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0]]))


@pytest.mark.parametrize("mode", ["reduced", "complete"])
def test_ill_conditioned_ones(mode):
    a = 1 / (1 + np.add.outer(np.arange(15.0), np.arange(13.0)))  # condition number 1e17
    found = linalg.qr(a, mode, accuracy=60, dtype="mp")
    check_qr(a, found.q, found.r, found)
    wide = 1 / (1 + np.add.outer(np.arange(13.0), np.arange(16.0)))
    wide[:, 14] = 0
    found = linalg.qr(wide, mode, accuracy=60, dtype="mp")
    check_qr(wide, found.q, found.r, found)
    assert found.error_bounds[14] == 0 and not found.r.to_fractions()[:, 14].any()


def test_columns_whose_complement_float64_misses():
    """The condition number is 2^174; float64 takes all columns for one, and finds a complement within their space."""
    a = np.array(
        [
            [2.081528508480162e-86, 1.6004957230012697e21, -1.0062307810017312e-31],
            [1.6004957230012697e21, 2.92604495854504e130, 1.2666030289892702e77],
            [-1.0062307810017312e-31, 1.2666030289892702e77, 1.062109858986498e25],
            [16124705.225828366, 2.1612226361077105e115, 8.31128775784953e61],
        ]
    )
    found = linalg.qr(a, "complete", accuracy=60, dtype="mp")
    check_qr(a, found.q, found.r, found)
    assert linalg.lq(a.T, "complete").error_bound < 2e-16
    with pytest.raises(np.linalg.LinAlgError, match=r"^a: columns are dependent"):
        linalg.qr(a[:, [0, 1, 1]], "complete")


@pytest.mark.parametrize("mode", ["reduced", "complete"])
@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (0, 0)])
def test_without_elements(shape, mode):
    a = np.zeros(shape)
    wanted = [x.shape for x in np.linalg.qr(a, mode)]
    found = linalg.qr(a, mode)
    assert [found.q.shape, found.r.shape] == wanted and found.error_bound == 0
    assert (found.q == np.eye(*found.q.shape)).all()
    assert [x.shape for x in linalg.lq(a.T, mode)[:2]] == [each[::-1] for each in wanted[::-1]]


@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("name", ["float64", "130 bits"])
def test_either_triangle_of_cholesky(name, is_complex, rng):
    options, most = FORMATS[name]
    g = made(rng, (5, 5), is_complex)
    a = g @ adjoint(g)
    a = np.tril(a) + adjoint(np.tril(a, -1))
    a[range(5), range(5)] = a.diagonal().real
    for upper in (False, True):
        known = a.copy()
        known[np.tril_indices(5, -1) if upper else np.triu_indices(5, 1)] = np.nan
        if is_complex:
            known.imag[range(5), range(5)] = np.nan
        found = linalg.cholesky(known, upper=upper, **options)
        factor, bound, _ = found
        factor = mparray(factor)
        low = adjoint(factor) if upper else factor
        each = errors(a, low, adjoint(low))
        assert all(x <= y for x, y in zip(each, found.error_bounds, strict=True))
        assert found.error_bounds.max() == bound < most and found.upper == upper
        assert not np.triu(abs(low.astype("complex128")), 1).any()


def test_errors_of_columns_of_lu(rng):
    a = made(rng, (6, 6), False)
    found = linalg.lu_factor(a)
    assert len(found) == 6 and found.error_bounds.max() == found.error_bound
    each = errors(a[found.p], found.l, found.u)
    assert all(x <= y for x, y in zip(each, found.error_bounds, strict=True))


@pytest.mark.parametrize("is_complex", [False, True])
def test_systems_with_what_was_factored(is_complex, rng):
    a, b = made(rng, (5, 5), is_complex), made(rng, (5, 2), is_complex)
    exact_b = mparray(b)
    factors = linalg.lu_factor(a)
    for trans, of_a in ((0, a), (1, a.T), (2, adjoint(a)), (1, a.T)):
        x, bound, _ = linalg.lu_solve(factors, b, trans)
        assert complex_error(mparray(x), *complex_solve(mparray(of_a), exact_b)) <= bound < 2.0**-52
    product = ozaki.matmul(mparray(a), adjoint(mparray(a)), accuracy="exact")
    for upper in (False, True):
        factor = linalg.cholesky(product, upper=upper, dtype="complex64" if is_complex else "float32")
        x, bound, _ = linalg.cho_solve(factor, b, accuracy="fp64", dtype="complex128" if is_complex else "float64")
        assert complex_error(mparray(x), *complex_solve(product, exact_b)) <= bound < 2.0**-52
        c = np.triu(factor.l) if upper else np.tril(factor.l)
        of_c = ozaki.matmul(adjoint(c) if upper else c, c if upper else adjoint(c), accuracy="exact", dtype="mp")
        known = np.where(np.tri(5).T if upper else np.tri(5), c, np.nan)
        for other in (known, mparray(c)):
            x, bound, _ = linalg.cho_solve((other, not upper), b)
            assert complex_error(mparray(x), *complex_solve(of_c, exact_b)) <= bound < 2.0**-52


def test_what_results_have_beside_their_items_stays(rng):
    g = made(rng, (3, 3), False)
    found, b = linalg.cholesky(g @ g.T, upper=True), np.ones(3)
    wanted = linalg.cho_solve(found, b)
    for other in (found._replace(iterations=7), copy.copy(found), pickle.loads(pickle.dumps(found))):
        assert other.upper and (other.error_bounds == found.error_bounds).all()
        assert (linalg.cho_solve(other, b).x == wanted.x).all()
    assert found._replace(iterations=7).iterations == 7
    low, bound, corrections = found
    assert (low == found.l).all() and (bound, corrections) == found[1:]


def test_the_system_keeps_the_matrix_that_was_factored(rng):
    g = made(rng, (3, 3), False)
    a = g @ g.T
    factors, factor, b = linalg.lu_factor(a), linalg.cholesky(a), np.ones(3)
    exact = complex_solve(mparray(np.tril(a) + np.tril(a, -1).T), mparray(b[:, None]))
    exact_lu = complex_solve(mparray(a.T.copy()), mparray(b[:, None]))
    a[:] = 0
    for (x, bound, _), wanted in ((linalg.cho_solve(factor, b), exact), (linalg.lu_solve(factors, b, 1), exact_lu)):
        assert complex_error(mparray(x[:, None]), *wanted) <= bound


EYE, ONE = np.eye(2), np.ones(2)

REFUSED = {
    "mode": (lambda: linalg.qr(EYE, "full"), ValueError, "^mode: 'full'; expected 'reduced', 'complete' or 'r'"),
    "mode of lq": (lambda: linalg.lq(EYE, "r"), ValueError, "^mode: 'r'; expected 'reduced' or 'complete'"),
    "pivoting": (lambda: linalg.qr(EYE, pivoting=2), TypeError, "^pivoting: 2; expected True or False"),
    "vector": (lambda: linalg.qr(np.ones(2)), ValueError, r"^a: shape \(2,\); expected a matrix"),
    "upper": (lambda: linalg.cholesky(EYE, upper="U"), TypeError, "^upper: 'U'; expected True or False"),
    "trans": (lambda: linalg.lu_solve(linalg.lu_factor(EYE), ONE, 4), ValueError, "^trans: 4; expected 0, 1 or 2"),
    "factor": (lambda: linalg.cho_solve(EYE, ONE), TypeError, "^c_and_lower: ndarray; expected a Cholesky"),
    "lower": (lambda: linalg.cho_solve((EYE, 2), ONE), TypeError, r"^c_and_lower\[1\]: 2; expected True or False"),
    "zero": (
        lambda: linalg.cho_solve((EYE * [1, 0], True), ONE),
        np.linalg.LinAlgError,
        r"^c_and_lower\[0\]: singular, element \[1, 1\] on the diagonal is zero",
    ),
    "rows": (lambda: linalg.cho_solve((EYE, True), np.ones(3)), ValueError, r"^b: shape \(3,\); expected \(2,\)"),
    "spans": (
        lambda: linalg.cho_solve((mparray([[1.0, 0.0], [1.0, 1.0]]).ldexp([[0, 0], [30000, 0]]), True), ONE),
        ValueError,
        r"^c_and_lower: an element is below 2\^-\d+ times the largest of its row",
    ),
    "indefinite": (lambda: linalg.cholesky(-EYE, upper=True), np.linalg.LinAlgError, "^a: not positive definite"),
    "large": (lambda: linalg.cholesky(EYE * 1e300, dtype="float32"), OverflowError, "^dtype: "),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_had_is_refused(name):
    call, kind, message = REFUSED[name]
    with pytest.raises(kind, match=message):
        call()


def test_type_checkers_know_all_arguments_of_qr():
    names = list(inspect.signature(linalg.qr).parameters)
    overloads = typing.get_overloads(inspect.unwrap(linalg.qr))
    assert [list(inspect.signature(each).parameters) for each in overloads] == [names] * 2
