"""Factors of stacks that are found at once, judged by exact rational numbers."""

import logging
import re

import numpy as np
import pytest
from exact_linalg import complex_product_error
from hypothesis import given, settings
from hypothesis import strategies as st

import ozaki
from ozaki import linalg, mparray

NONE = np.linalg.LinAlgError


def hilbert(n):
    return 1 / (1 + np.add.outer(np.arange(float(n)), np.arange(float(n))))


def definite(rng, n, kind, is_complex):
    """A positive definite matrix."""
    g = rng.standard_normal((n, n)) + (1j * rng.standard_normal((n, n)) if is_complex else 0)
    a = g @ g.conj().T + np.eye(n)
    if kind in ("graded", "subnormal"):
        sizes = np.ldexp(1.0, rng.integers(-530, 0, n) if kind == "subnormal" else rng.integers(-200, 200, n))
        a = a * sizes * sizes[:, None]
    elif kind == "conditioned":
        q = np.linalg.qr(g)[0]
        a = q * np.geomspace(1, 10.0 ** -rng.integers(0, 15), n) @ q.conj().T
    elif kind == "diagonal":
        a = np.diag(np.ldexp(1.0, rng.integers(-1000, 1000, n))).astype(g.dtype)
    elif kind == "integers":
        a = np.round(a * 4) / 4
    elif kind == "Hilbert":
        a = hilbert(n).astype(g.dtype)
    elif kind == "near-singular":
        a = np.ones((n, n), g.dtype) + 2.0**-52 * np.eye(n)
    strict = np.tril(a, -1)
    return strict + strict.conj().T + np.diag(np.diag(a).real)


KINDS = ["usual", "graded", "subnormal", "conditioned", "diagonal", "integers", "Hilbert", "near-singular"]


def holds(a, found, factors, by_columns=False):
    """Whether the bound of each column of the product of factors of matrices holds."""
    for index in np.ndindex(a.shape[:-2]):
        bounds = found.error_bounds[index]
        assert found.error_bound[index] == bounds.max()
        wanted, x, y = (mparray(each.astype(complex)) for each in factors(index))
        for j in range(y.shape[-1]):
            assert complex_product_error(wanted[:, j : j + 1], x, y[:, j : j + 1], by_columns) <= bounds[j]
    return True


def alone(function, a, index):
    """What a function finds of a matrix of a stack, or the error and the message with which it refuses it."""
    try:
        return function(a[index])
    except (NONE, OverflowError) as error:
        return type(error), f"{error} (matrix {[*index]} of the stack)"


def refused(function, a):
    """Whether a function refuses a matrix of a stack; of the stack it says so of the first of these."""
    found = [each for i in range(len(a)) if type(each := alone(function, a, (i,))) is tuple]
    if found:
        error, message = found[0]
        with pytest.raises(error, match=f"^{re.escape(message)}$"):
            function(a)
    return bool(found)


def one_by_one(monkeypatch, module):
    monkeypatch.setattr(f"ozaki.linalg.factors.{module}.takes", lambda *_: False)


# Cholesky ------------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 5),
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=3),
    is_complex=st.booleans(),
    upper=st.booleans(),
    single=st.booleans(),
    accuracy=st.sampled_from(["dtype", "fp64", 12, 50, 80]),
)
def test_each_bound_of_cholesky_holds(seed, n, kinds, is_complex, upper, single, accuracy):
    rng = np.random.default_rng(seed)
    a = np.stack([definite(rng, n, kind, is_complex) for kind in kinds])
    dtype = ("complex64" if is_complex else "float32") if single else None

    def find(a):
        return linalg.cholesky(a, upper=upper, accuracy=accuracy, dtype=dtype)

    if refused(find, a):
        return
    found = find(a)
    low = found.l.conj().swapaxes(-1, -2) if upper else found.l
    assert (np.triu(low, 1) == 0).all()
    diagonals = np.diagonal(low, axis1=-2, axis2=-1)
    assert (diagonals.real > 0).all() and (diagonals.imag == 0).all()
    assert holds(a, found, lambda i: (a[i], low[i], low[i].conj().T))
    if not single and "subnormal" not in kinds:
        assert found.error_bound.max() <= (2.0**-11 if accuracy == 12 else 2.0**-49 if accuracy == 50 else 2.0**-51)


STACKS = {
    "usual": (["usual"] * 5, 5),
    "mixed": (["usual", "near-singular", "graded", "near-singular", "diagonal"], 3),
    "far apart": (["diagonal", "subnormal", "graded"], 3),
}
"""Kinds of 11 x 11 matrices, and how many of them are found at once."""


@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("name", STACKS)
def test_how_many_cholesky_factors_are_found_at_once(name, is_complex, rng, caplog, monkeypatch):
    kinds, count = STACKS[name]
    a = np.stack([definite(rng, 11, kind, is_complex) for kind in kinds])
    with caplog.at_level(logging.DEBUG, "ozaki"):
        found = linalg.cholesky(a)
    assert f"cholesky: found at once: {count} of {len(a)} matrices" in caplog.messages
    assert holds(a, found, lambda i: (a[i], found.l[i], found.l[i].conj().T))
    alone = linalg.cholesky(a[0])
    assert alone.iterations <= 1 and abs(alone.l - found.l[0]).max() <= 1e-15 * abs(alone.l).max()
    one_by_one(monkeypatch, "cholesky")
    expected = linalg.cholesky(a)
    assert found.l.dtype == expected.l.dtype and found.iterations == expected.iterations
    assert (abs(found.error_bounds - expected.error_bounds) <= 2.0**-52).all()
    sizes = np.linalg.norm(expected.l, axis=-1, keepdims=True)
    condition = 1e10 if "Hilbert" in kinds else 1e4
    assert (abs(found.l - expected.l) <= condition * 2.0**-52 * sizes).all()


def test_parts_of_a_stack(rng, monkeypatch):
    """Stacks are factored in parts that fit into a cache, each of a matrix at least."""
    a = np.stack([definite(rng, 4, "usual", False) for _ in range(6)]).reshape(3, 2, 4, 4)
    a[1, 1] = hilbert(4) @ hilbert(4)
    for elements in (1, 40, 70):
        monkeypatch.setattr("ozaki.linalg.factors.stacks._CACHED", elements)
        found = linalg.cholesky(a)
        assert found.l.shape == a.shape and found.error_bounds.shape == (3, 2, 4)
        assert holds(a, found, lambda i, found=found: (a[i], found.l[i], found.l[i].T))


def test_accuracies_that_the_first_factor_has(rng):
    """Such a factor is not corrected, whatever others in its stack need."""
    a = np.stack([np.eye(3), definite(rng, 3, "usual", False)])
    assert linalg.cholesky(a, accuracy=30).iterations == 0
    assert linalg.cholesky(a[:1]).iterations == linalg.cholesky(a[0]).iterations == 0
    found = linalg.cholesky(a)
    assert found.iterations == 1 and (found.l[0] == np.eye(3)).all()
    assert linalg.cholesky(a[:, :1, :1]).l.shape == (2, 1, 1)


REFUSED = {
    "indefinite": np.diag([1.0, -1.0]),
    "singular": np.ones((2, 2)),
    "only looks definite": np.array([[1.0, 1 - 2.0**-53], [1 - 2.0**-53, 1 - 2.0**-52]]),
    "zero on the diagonal": np.array([[0.0, 1.0], [1.0, 1.0]]),
    "far apart": np.array([[1e-300, 1e300], [1e300, 1.0]]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_matrices_that_are_not_definite_are_named(name):
    a = np.stack([np.eye(2)] * 2 + [REFUSED[name]] + [np.eye(2)])
    error, message = alone(linalg.cholesky, a, (2,))
    assert error is NONE
    with pytest.raises(NONE) as caught:
        linalg.cholesky(a)
    assert str(caught.value) == message


def test_singular_matrices_that_have_factors_in_float64():
    """Their residuals are as small as those of definite ones: only inverses of factors show that nothing is proven."""
    ones = np.arange(2.0, 60)[:, None, None] * np.ones((2, 2))
    for a in ones:
        for accuracy in (12, "fp64"):
            with pytest.raises(NONE, match=r"^a: not positive definite"):
                linalg.cholesky(a, accuracy=accuracy)
    for a in (ones, ones[::-1]):
        with pytest.raises(NONE, match=r"^a: not positive definite.*\(matrix \[0\] of the stack\)$"):
            linalg.cholesky(a, accuracy=12)


def test_a_format_that_is_too_narrow_for_one():
    a = np.stack([np.eye(2), np.eye(2) * 1e300, np.eye(2) * 1e-300])
    with pytest.raises(OverflowError, match=r"^dtype: .* too large .*\(matrix \[1\] of the stack\)$"):
        linalg.cholesky(a, dtype="float32")
    with pytest.raises(OverflowError, match=r"^dtype: .* too small .*\(matrix \[1\] of the stack\)$"):
        linalg.cholesky(a[::2], dtype="float32")


def test_a_report_of_factors_found_at_once(rng):
    a = np.stack([definite(rng, 3, "usual", False) for _ in range(4)])
    with ozaki.recording() as run:
        found = linalg.cholesky(a)
    (entry,) = run.results.entries
    assert run.inside == 0 and entry.batch == (4,) and entry.bound == found.error_bound.max()


# LU ------------------------------------------------------------------------------------------------------------------


def regular(rng, n, kind, is_complex):
    """A matrix that is mostly regular."""
    a = rng.standard_normal((n, n)) + (1j * rng.standard_normal((n, n)) if is_complex else 0)
    if kind == "conditioned":
        q = np.linalg.qr(a)[0]
        return q * np.geomspace(1, 10.0 ** -rng.integers(0, 15), n) @ q.conj().T
    if kind == "near-singular":
        return np.ones((n, n), a.dtype) + 2.0**-52 * np.eye(n)
    if kind in ("columns", "subnormal"):
        return a * np.ldexp(1.0, rng.integers(-1060 if kind == "subnormal" else -900, 900, n))
    if kind == "rows":
        return a * np.ldexp(1.0, rng.integers(-30, 30, n))[:, None]
    return {
        "Hilbert": hilbert(n) + 0 * a,
        "integers": np.round(2 * a),
        "permuted": np.eye(n, dtype=a.dtype)[rng.permutation(n)],
    }.get(kind, a)


@settings(deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 5),
    kinds=st.lists(
        st.sampled_from(
            ["usual", "conditioned", "near-singular", "columns", "subnormal", "rows", "integers", "permuted"]
        ),
        min_size=1,
        max_size=3,
    ),
    is_complex=st.booleans(),
    single=st.booleans(),
    accuracy=st.sampled_from(["dtype", "fp64", 12, 50, 80]),
)
def test_each_bound_of_lu_holds(seed, n, kinds, is_complex, single, accuracy):
    pytest.importorskip("scipy", reason="SciPy is not installed")
    rng = np.random.default_rng(seed)
    a = np.stack([regular(rng, n, kind, is_complex) for kind in kinds])
    dtype = ("complex64" if is_complex else "float32") if single else None

    def find(a):
        return linalg.lu_factor(a, accuracy=accuracy, dtype=dtype)

    if refused(find, a):
        return
    found = find(a)
    assert (np.sort(found.p, axis=-1) == np.arange(n)).all()
    assert (np.triu(found.l) == np.eye(n)).all() and (np.tril(found.u, -1) == 0).all()
    assert holds(a, found, lambda i: (a[i][found.p[i]], found.l[i], found.u[i]))
    if not single and "subnormal" not in kinds:
        assert found.error_bound.max() <= (2.0**-11 if accuracy == 12 else 2.0**-49 if accuracy == 50 else 2.0**-51)


@pytest.mark.parametrize("is_complex", [False, True])
def test_how_many_lu_factors_are_found_at_once(is_complex, caplog, monkeypatch):
    scipy_linalg = pytest.importorskip("scipy.linalg", reason="SciPy is not installed")
    kinds, rng = ["usual", "Hilbert", "columns", "Hilbert", "permuted", "usual"], np.random.default_rng(7)
    a = np.stack([regular(rng, 11, kind, is_complex) for kind in kinds]).reshape(3, 2, 11, 11)
    with caplog.at_level(logging.DEBUG, "ozaki"):
        found = linalg.lu_factor(a, accuracy=75)
    assert "lu_factor: found at once: 4 of 6 matrices" in caplog.messages
    assert holds(a, found, lambda i: (a[i][found.p[i]], found.l[i], found.u[i]))
    one_by_one(monkeypatch, "lu")
    expected = linalg.lu_factor(a, accuracy=75)
    assert found.l.dtype == found.u.dtype == expected.l.dtype and found.p.dtype == expected.p.dtype
    assert found.iterations == expected.iterations and (found.p == expected.p).all()
    for i in ((0, 0), (2, 1)):
        assert abs(found.l[i] - expected.l[i]).max() <= 2.0**-50
        order = np.arange(11)
        for row, other in enumerate(scipy_linalg.lu_factor(a[i])[1].tolist()):
            order[row], order[other] = order[other], order[row]
        assert (found.p[i] == order).all()


def test_no_matrix_that_lu_refuses_is_hidden_in_a_stack(rng):
    pytest.importorskip("scipy", reason="SciPy is not installed")
    a = np.stack([np.eye(3), np.ones((3, 3)), rng.standard_normal((3, 3))])
    assert refused(linalg.lu_factor, a)
    assert refused(lambda a: linalg.lu_factor(a, dtype="float32"), np.stack([np.eye(2), np.eye(2) * 1e-300]))


# QR ------------------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    m=st.integers(1, 4),
    n=st.integers(1, 4),
    kinds=st.lists(st.sampled_from(["usual", "conditioned", "columns", "rows", "integers"]), min_size=1, max_size=2),
    is_complex=st.booleans(),
    single=st.booleans(),
    accuracy=st.sampled_from([None, "fp64", 12, 50, 80]),
)
def test_each_bound_of_qr_and_lq_holds(seed, m, n, kinds, is_complex, single, accuracy):
    rng, k = np.random.default_rng(seed), min(m, n)
    a = np.stack([regular(rng, max(m, n), kind, is_complex)[:m, :n] for kind in kinds])
    dtype = ("complex64" if is_complex else "float32") if single else None

    def find(a):
        return linalg.qr(a, accuracy=accuracy, dtype=dtype)

    adjoints = np.ascontiguousarray(a.conj().swapaxes(-1, -2))
    if refused(find, a):
        refused(lambda a: linalg.lq(a, accuracy=accuracy, dtype=dtype), adjoints)
        return
    found, other = find(a), linalg.lq(adjoints, accuracy=accuracy, dtype=dtype)
    assert found.q.shape[1:] == (m, k) and found.r.shape[1:] == (k, n) and (np.tril(found.r, -1) == 0).all()
    eyes = np.broadcast_to(np.eye(k), (len(a), k, k))
    assert holds(a, found, lambda i: (a[i], found.q[i], found.r[i]), by_columns=True)
    assert holds(eyes, found, lambda i: (eyes[i], found.q[i].conj().T, found.q[i]))
    for i in np.ndindex(other.error_bound.shape):
        assert (abs(other.q[i].conj().T - found.q[i]) <= 1e-6).all() or "conditioned" in kinds
    assert holds(a, other, lambda i: (a[i], other.q[i].conj().T, other.l[i].conj().T), by_columns=True)
    if not single:
        assert found.error_bound.max() <= (2.0**-11 if accuracy == 12 else 2.0**-48)


@pytest.mark.parametrize("shape", [(11, 11), (11, 9), (9, 11)])
@pytest.mark.parametrize("is_complex", [False, True])
def test_how_many_orthonormal_factors_are_found_at_once(shape, is_complex, caplog, monkeypatch):
    kinds, rng = ["usual", "Hilbert", "columns", "Hilbert", "usual", "usual"], np.random.default_rng(7)
    a = np.stack([regular(rng, 11, kind, is_complex)[: shape[0], : shape[1]] for kind in kinds])
    with caplog.at_level(logging.DEBUG, "ozaki"):
        found = linalg.qr(a, accuracy=75)
    assert "qr: found at once: 4 of 6 matrices" in caplog.messages
    assert holds(a[:2], found, lambda i: (a[i], found.q[i], found.r[i]), by_columns=True)
    alone = linalg.qr(a, "r", accuracy=75)
    assert alone.q is None and (alone.r == found.r).all()
    one_by_one(monkeypatch, "qr")
    expected = linalg.qr(a, accuracy=75)
    assert found.q.dtype == found.r.dtype == expected.r.dtype and found.iterations == expected.iterations
    for i in (0, 5):
        assert abs(found.q[i] - expected.q[i]).max() <= 2.0**-48


def test_dependent_columns_and_rows_in_a_stack(rng):
    a = np.stack([np.eye(3), rng.standard_normal((3, 3)), np.ones((3, 3))])
    for function in (linalg.qr, linalg.lq, lambda a: linalg.qr(a, "complete")):
        assert refused(function, a)
    with pytest.raises(NONE, match=r"^a: rows are dependent.*\(matrix \[2\] of the stack\)$"):
        linalg.lq(a)
