"""Powers of matrices, compared with Python's integers and rationals."""

from fractions import Fraction
from math import isqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mparrays import power, rationals, same

import ozaki
from ozaki import Accuracy, mparray
from ozaki.functions import power as power_module


@pytest.mark.parametrize("n", [0, 1, 2, 3, 10, 37])
def test_powers_are_exact(rng, n):
    whole = rng.integers(-9, 10, (2, 3, 3))
    for a, values in (
        (whole, whole.astype(object)),
        (whole[0].tolist(), whole[0].astype(object)),
        (whole / 8, np.vectorize(Fraction, otypes=[object])(whole / 8)),
        (mparray(whole).ldexp(-200), whole * Fraction(1, 2**200)),
        (np.zeros((0, 0), int), np.zeros((0, 0), object)),
    ):
        wanted = np.broadcast_to(np.eye(values.shape[-1], dtype=int).astype(object), values.shape)
        for _ in range(n):
            wanted = wanted @ values
        found = ozaki.matrix_power(a, n)
        assert isinstance(found, ozaki.MPArray) and same(found, wanted)


def test_squarings_are_few(monkeypatch):
    calls = []
    monkeypatch.setattr(
        "ozaki.functions.power.matmul", lambda a, b, **options: calls.append(options) or ozaki.matmul(a, b)
    )
    ozaki.matrix_power(np.eye(2, dtype=int), np.int64(1000))
    assert len(calls) == 9 + 5 and all(Accuracy.of(**options, k=2).exact for options in calls)


def modulus(x):
    """The modulus of each complex rational number, rounded down: a pair of arrays of Fractions; of real ones abs."""
    real, imag = x
    if imag is None:
        return abs(real)
    squares = real * real + imag * imag
    wide = [(v.numerator * v.denominator << 400, v.denominator) for v in squares.reshape(-1).tolist()]
    roots = [Fraction(isqrt(square), denominator << 200) for square, denominator in wide]
    return np.array(roots, object).reshape(squares.shape)


def product(x, y):
    if x[1] is None:
        return x[0] @ y[0], None
    return x[0] @ y[0] - x[1] @ y[1], x[0] @ y[1] + x[1] @ y[0]


def parts(x):
    x = x if isinstance(x, ozaki.MPArray) else mparray(x)
    return rationals(x.real), rationals(x.imag) if x.is_complex else None


MATRICES = {
    "signed": lambda rng: rng.standard_normal((3, 3)),
    "positive": lambda rng: rng.random((3, 3)),
    "complex": lambda rng: rng.standard_normal((3, 3)) + 1j * rng.standard_normal((3, 3)),
    "graded": lambda rng: np.ldexp(rng.standard_normal((3, 3)), rng.integers(-20, 10, (3, 3))),
    "nilpotent": lambda rng: np.array([[1.0, -1.0, 0.5], [1.0, -1.0, 0.25], [0.0, 0.0, 0.0]]),
    "zeros": lambda rng: np.triu(rng.standard_normal((3, 3)), 1) + np.diag([0.5, 0.0, 2.0]),
    "float32": lambda rng: rng.standard_normal((3, 3)).astype("f4"),
    "integers": lambda rng: rng.integers(-9, 10, (3, 3)),
    "multiprecision": lambda rng: mparray((rng.random((3, 3)), 2.0**-60 * rng.random((3, 3)))),
}
ACCURACIES = ["fp32", "fp64", 60, "dd", 1e-3, Accuracy("componentwise", 0.9), Accuracy("componentwise", 0.5, None, -1),
              1100, "exact"]  # fmt: skip


@pytest.mark.parametrize("kind", MATRICES)
def test_an_accuracy_is_kept(rng, kind):
    """Abs(c - a^n) <= tol abs(a)^n, entry by entry, and what rounds the result to its dtype, in exact rationals."""
    a = MATRICES[kind](rng)
    x = parts(a)
    sizes = modulus(x), None
    for n in (1, 2, 3, 6, 37, 64):
        exact, bound = x, sizes
        for _ in range(n - 1):
            exact, bound = product(exact, x), product(bound, sizes)
        for accuracy in rng.choice(np.array(ACCURACIES, object), 3):
            found = ozaki.matrix_power(a, n, accuracy=accuracy)
            target = Accuracy.of(accuracy, 3)
            tolerance = Fraction(target.tolerance) * power(target.exponent)
            if not isinstance(found, ozaki.MPArray):
                tolerance += (1 + tolerance) * power(-24 if found.dtype == np.float32 else -53)
            real, imag = parts(found)
            error = real - exact[0], None if imag is None else imag - exact[1]
            assert (modulus(error) <= tolerance * bound[0] * (1 + power(-100))).all()


@given(st.integers(1, 10**9), st.one_of(st.floats(1e-300, 0.999), st.integers(1, 3000)))
@settings(deadline=None, max_examples=300)
def test_shares_of_an_accuracy_add_up(n, accuracy):
    """The factors 1 + t of all products, each as often as it is in the power, are 1 + tol at most (B12)."""
    target = Accuracy.of(accuracy, 7)
    bits = 4000

    def rounded_up(x):
        return Fraction(-(-(x.numerator << bits) // x.denominator), 1 << bits)

    def multiplied(x, y, accuracy):
        return rounded_up(x * y * (1 + Fraction(accuracy.tolerance) * power(accuracy.exponent)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(power_module, "matmul", multiplied)
        found = power_module._power(Fraction(1), n, target)
    assert found <= 1 + Fraction(target.tolerance) * power(target.exponent)


def test_an_accuracy_costs_few_bits(rng):
    """The power of 1000 has the bits of one product, and takes 10 more for those before; the exact one has 50,000."""
    a = rng.standard_normal((2, 5, 5))
    found = ozaki.matrix_power(a, 1000, accuracy="dd")
    assert found.shape == (2, 5, 5) and found.bits <= 107
    assert ozaki.matrix_power(a, 1, accuracy="dd").bits == 53


def test_formats_of_powers(rng):
    a = rng.random((3, 3))
    for x, accuracy, dtype in (
        (a, "fp64", "float64"),
        (a, 1e-15, "float64"),
        (a, 1e-17, None),
        (a, "dd", None),
        (a.astype("f4"), "fp32", "float32"),
        (a.astype("f4"), "fp64", None),
        (a.astype("f2"), "fp32", "float32"),
        (a + 1j, "fp64", "complex128"),
        ([[1, 2], [3, 4]], "fp64", "float64"),
        (np.array([[1, 2], [3, 4]], object), "fp64", "float64"),
        (memoryview(a), "fp64", "float64"),
        (mparray(a), "fp64", None),
        ([[Fraction(1, 2)]], "fp64", None),
        (a, "exact", None),
    ):
        found = ozaki.matrix_power(x, 5, accuracy=accuracy)
        assert isinstance(found, ozaki.MPArray) if dtype is None else found.dtype == dtype
    whole = np.array([[1, 1], [1, 0]])
    assert ozaki.matrix_power(whole, 90, dtype="int64").tolist() == np.linalg.matrix_power(whole, 90).tolist()
    assert (ozaki.matrix_power(a, 7, dtype="float64") == ozaki.matrix_power(a, 7).astype("float64")).all()
    assert ozaki.matrix_power(a, 7, accuracy="dd", dtype="mp60").bits == 60
    assert (ozaki.matrix_power(a, 0, accuracy="fp64") == np.eye(3)).all()
    with pytest.raises(OverflowError, match=r"^dtype: entry"):
        ozaki.matrix_power(whole, 100, dtype="int64")
    for options, error, message in (
        (
            {"accuracy": Accuracy("normwise", 1e-9)},
            ValueError,
            "accuracy: measure 'normwise'; expected a componentwise",
        ),
        ({"accuracy": "fp65"}, ValueError, "accuracy: 'fp65' is not known"),
        ({"dtype": "mp60"}, ValueError, "dtype: 'mp60' may round"),
        ({"dtype": "int32"}, TypeError, "dtype: 'int32' is not supported"),
    ):
        with pytest.raises(error, match=f"^{message}"):
            ozaki.matrix_power(a, 3, **options)
    with pytest.raises(TypeError, match=r"^dtype: 'float64', but the product is complex"):
        ozaki.matrix_power(a + 1j, 3, accuracy="fp64", dtype="float64")


@pytest.mark.parametrize(
    ("a", "n", "error", "message"),
    [
        (np.eye(2), -1, ValueError, "n: -1; expected 0 or more"),
        (np.eye(2), 1.0, TypeError, "n: float; expected an integer"),
        (np.ones((2, 3)), 2, ValueError, r"a: shape \(2, 3\); expected square matrices"),
        (np.ones(2), 0, ValueError, r"a: shape \(2,\)"),
        ([["0.1"]], 2, ValueError, "a: element .* has no end in binary"),
    ],
)
def test_what_has_no_power_is_refused(a, n, error, message):
    with pytest.raises(error, match=f"^{message}"):
        ozaki.matrix_power(a, n)
