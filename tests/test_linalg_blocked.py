"""Factors by blocks of columns: bounds against fractions, pivots, blocks of all widths, matrices without factors."""

import numpy as np
import pytest
import scipy.linalg
from exact_linalg import fractions, product_error

import ozaki
from ozaki.linalg.factors.blocked import cholesky_by_blocks, lu_by_blocks

SIZES = [(1, 4), (4, 4), (7, 3), (12, 5), (9, 1)]


def factors(x):
    """The order of the rows of a tall matrix, and its factors, by LAPACK."""
    packed, exchanges = scipy.linalg.lu_factor(x)
    m, w = x.shape
    p = np.arange(m)
    for i, j in enumerate(exchanges):
        p[[i, j]] = p[[j, i]]
    return p, np.tril(packed, -1) + np.eye(m, w), np.triu(packed[:w])


@pytest.mark.parametrize(("n", "width"), SIZES)
@pytest.mark.parametrize("spread", [0, 20, 300])
def test_lu(rng, n, width, spread):
    a = rng.standard_normal((n, n)) * 2.0 ** rng.integers(-spread, 1, (n, n))
    a[rng.integers(n, size=n), np.arange(n)] = 0.75  # columns are about 1
    given = a.copy()
    order, lower, upper, error = lu_by_blocks(a, factors, width)
    assert (a == given).all() and sorted(order) == list(range(n))
    assert (lower == np.tril(lower)).all() and (np.diagonal(lower) == 1).all() and (upper == np.triu(upper)).all()
    assert abs(lower).max() <= 1 + 2.0**-52, "the largest element of each column is its pivot"
    assert product_error(fractions(a[order]), fractions(lower), fractions(upper)) <= error < n * 2.0**-50


def test_the_order_of_rows_is_that_of_large_pivots(rng):
    """Of integers of few bits each step is exact, so pivots are the ones of the whole matrix at once."""
    a = rng.integers(-8, 9, (6, 6)).astype(float)
    order, lower, upper, _ = lu_by_blocks(a, factors, 2)
    p, left, right = factors(a)
    ties = abs(np.tril(left, -1)) > 1 - 2.0**-40
    if not ties.any():
        assert (order == p).all() and np.allclose(lower, left) and np.allclose(upper, right)


@pytest.mark.parametrize(("n", "width"), SIZES)
def test_cholesky(rng, n, width):
    x = rng.standard_normal((n, n))
    a = x @ x.T / n + np.eye(n)
    a = (a + a.T) / 2
    lower, error = cholesky_by_blocks(a, np.linalg.cholesky, width)
    assert (lower == np.tril(lower)).all()
    assert product_error(fractions(a), fractions(lower), fractions(lower).T) <= error < n * 2.0**-50


def test_complex_matrices(rng):
    x = rng.standard_normal((9, 9)) + 1j * rng.standard_normal((9, 9))
    order, lower, upper, error = lu_by_blocks(x, factors, 4)
    missed = ozaki.residual(lower, upper, x[order], dtype="mp")
    sizes = np.outer(np.linalg.norm(lower, axis=1), np.linalg.norm(upper, axis=0))
    assert (abs(missed.astype("complex128")) <= error * sizes * (1 + 2.0**-40)).all()
    a = x @ x.conj().T / 9 + np.eye(9)
    a = (a + a.conj().T) / 2
    lower, error = cholesky_by_blocks(a, np.linalg.cholesky, 4)
    missed = ozaki.residual(lower, lower.conj().T.copy(), a, dtype="mp")
    norms = np.linalg.norm(lower, axis=1)
    assert (abs(missed.astype("complex128")) <= error * np.outer(norms, norms) * (1 + 2.0**-40)).all()


def test_matrices_without_factors(rng):
    a = np.eye(6)
    a[5, 5] = -1
    with np.errstate(all="ignore"), pytest.raises(np.linalg.LinAlgError):
        cholesky_by_blocks(a, np.linalg.cholesky, 2)
