"""Residuals are the exact ones, rounded once."""

from fractions import Fraction

import numpy as np
import pytest

import ozaki


def exactly(x):
    return np.array([Fraction(float(v)) for v in x.flat], object).reshape(x.shape)


@pytest.mark.parametrize("shape", [(), (1,), (3,)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_residual_is_rounded_once(rng, shape, dtype):
    a, x = rng.standard_normal((20, 17)).astype(dtype), rng.standard_normal((17, *shape)).astype(dtype)
    b = a @ x
    exact = exactly(b) - exactly(a) @ exactly(x)
    found = ozaki.residual(a, x, b)
    assert found.dtype == np.float64 and found.tolist() == exact.astype(float).tolist()
    assert np.abs(b - a @ x).max() == 0 < np.abs(found).max()
    wide = ozaki.residual(a, x, b, dtype="mp")
    assert (wide == exact).all()
    assert (ozaki.residual(a, x, b, dtype="mp30") == wide.round_to(30)).all()
    assert (ozaki.residual(a, x, b, dtype="float32") == wide.astype("float32")).all()


def test_a_solution_in_words(rng):
    a, x = rng.standard_normal((9, 9)), rng.standard_normal((9, 2))
    low = 2.0**-60 * rng.standard_normal((9, 2))
    b = a @ x
    exact = exactly(b) - exactly(a) @ (exactly(x) + exactly(low))
    assert ozaki.residual(a, (x, low), b).tolist() == exact.astype(float).tolist()


def test_an_accuracy_bounds_the_error_of_the_product(rng):
    a, x = rng.standard_normal((30, 40)) * 2.0 ** rng.integers(-300, 300, (30, 40)), rng.standard_normal(40)
    b = a @ x
    exact = exactly(b) - exactly(a) @ exactly(x)
    found = exactly(ozaki.residual(a, x, b, accuracy=80))
    sizes = abs(exactly(a)) @ abs(exactly(x))
    bounds = ozaki.Accuracy.of(80, 40).tolerance * sizes * (1 + 2.0**-53) + abs(exact) * Fraction(1, 2**53)
    assert (abs(found - exact) <= bounds).all()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda a, x, b: ozaki.residual(a, x, b[:2]), ValueError, "b: shape (2,)"),
        (lambda a, x, b: ozaki.residual(a, x[:2], b), ValueError, "x: shape (2,)"),
        (lambda a, x, b: ozaki.residual(a, x, b, dtype="int64"), TypeError, "dtype: "),
        (lambda a, x, b: ozaki.residual(a * np.inf, x, b), ValueError, "a: element [0, 0]"),
        (lambda a, x, b: ozaki.residual(a, x, b * np.nan), ValueError, "b: element [0] is nan"),
    ],
)
def test_bad_input(rng, call, error, message):
    a, x = rng.standard_normal((4, 3)), rng.standard_normal(3)
    with pytest.raises(error) as caught:
        call(a, x, a @ x)
    assert str(caught.value).startswith(message)
