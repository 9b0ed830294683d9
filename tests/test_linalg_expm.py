"""Exponentials of matrices: their bounds hold against balls of python-flint."""

from fractions import Fraction
from math import factorial

import numpy as np
import pytest
from exact_linalg import fractions

import ozaki
from ozaki import linalg
from ozaki.linalg.common.arrays import added
from ozaki.linalg.functions.doubled import Doubled
from ozaki.linalg.functions.enclosed import Enclosed

flint = pytest.importorskip("flint", reason="python-flint is not installed")


@pytest.fixture(autouse=True)
def precision():
    before, flint.ctx.prec = flint.ctx.prec, 3000
    yield
    flint.ctx.prec = before


def fraction(ball):
    """The middle of a ball, which has to be so small that nothing here could see it."""
    whole, exponent = ball.mid().man_exp()
    assert ball.is_zero() or ball.rel_accuracy_bits() > 1100 or abs(ball.mid()) < flint.arb(2) ** -1100
    return Fraction(int(whole)) * Fraction(2) ** int(exponent)


def exact(a):
    """The real and the imaginary parts of the exponential, in fractions."""
    a = ozaki.mparray(a)
    balls = a.to_flint().exp().entries()
    parts = [(fraction(x.real), fraction(x.imag)) if a.is_complex else (fraction(x), Fraction(0)) for x in balls]
    return [np.array(each, object).reshape(a.shape) for each in zip(*parts, strict=True)]


def check(a, found, name=""):
    """Assert that both bounds hold."""
    real, imag = exact(a)
    x = ozaki.mparray(found.expm)
    missed = (fractions(x.real) - real) ** 2 + (fractions(x.imag) - imag) ** 2
    sizes = real**2 + imag**2
    assert missed.max() <= Fraction(found.error_bound) ** 2 * sizes.max(), name
    for column, bound in enumerate(found.error_bounds.tolist()):
        if np.isfinite(bound):
            assert missed[:, column].max() <= Fraction(bound) ** 2 * sizes[:, column].max(), name


def families(n):
    rng = np.random.default_rng(n)
    g = rng.standard_normal((n, n))
    yield "normal", g
    yield "large", 30 * g
    yield "tiny", 1e-150 * g
    yield "skew", 1e4 * (g - g.T)
    yield "negative definite", -100 * (g @ g.T)
    yield "nilpotent", 1e5 * np.triu(g, 1)
    yield "triangular", np.triu(g) + 1e4 * np.triu(g, 1)
    yield "stiff", 0.1 * g - np.diag(np.logspace(-2, 2.8, n))
    yield "spans", g * 10.0 ** rng.uniform(-300, 1, (n, n))
    yield "complex", 3 * g + 5j * rng.standard_normal((n, n))
    yield "unitary", 1e3j * (g + g.T)
    yield "many bits", ozaki.mparray(g) + ozaki.mparray(g.T).ldexp(-300)


@pytest.mark.parametrize("n", [1, 4])
def test_bounds_hold(n):
    for name, a in families(n):
        for options in ({"dtype": "mp", "accuracy": 150},):
            found = linalg.expm(a, **options)
            check(a, found, name)
            assert found.error_bound <= 2.0 ** -options["accuracy"]
        if name not in ("many bits", "large"):
            found = linalg.expm(a)
            assert found.expm.dtype == a.dtype and found.error_bound < 2.0**-52
            check(a, found, name)


def test_nine_hundred_bits():
    a = np.array([[1.0, 2.0], [-3.0, 0.5]])
    found = linalg.expm(a, accuracy=900, dtype="mp")
    assert found.error_bound <= 2.0**-900
    check(a, found)


def test_the_hump_takes_more_bits_and_no_digits():
    a = np.array([[-1.0, 0, 0, 0], [1e6, -2, 0, 0], [0, 1e6, -3, 0], [1e-6, 0, 1e6, -1]])
    check(a, found := linalg.expm(a))
    assert found.error_bound < 2.0**-52
    # Of no triangular form, whatever the order: powers of two do not balance it.
    q = np.array([[3.0, -4.0], [4.0, 3.0]]) / 5
    b = q @ np.array([[-2000.0, 5000.0], [0.0, -2000.5]]) @ q.T + np.diag([1999.0, 1999.0])
    found = linalg.expm(b, accuracy=100, dtype="mp")
    check(b, found)
    assert found.error_bound <= 2.0**-100


def test_what_is_known():
    found = linalg.expm(np.zeros((3, 3)))
    assert (found.expm == np.eye(3)).all() and found.error_bound == 0 and (found.error_bounds == 0).all()
    found = linalg.expm([[0, 1, 0], [0, 0, 1], [0, 0, 0]])
    assert found.expm.tolist() == [[1, 1, 0.5], [0, 1, 1], [0, 0, 1]]
    assert linalg.expm(np.array([[1.0]])).expm == np.e
    assert linalg.expm(np.array([[1.0]], np.float32)).expm.dtype == np.float32
    assert linalg.expm(np.zeros((0, 0))).expm.shape == (0, 0)
    a = np.random.default_rng(0).standard_normal((6, 6))
    twice = linalg.expm(2 * a, accuracy=200, dtype="mp").expm
    once = linalg.expm(a, accuracy=200, dtype="mp").expm
    assert abs(fractions(once @ once) - fractions(twice)).max() < 2.0**-180


def test_columns_far_smaller_than_others():
    a = np.diag([-2000.0, 0.0, -30.0])
    found = linalg.expm(a, dtype="mp", accuracy=100)
    check(a, found)
    assert found.error_bounds[0] == np.inf and found.error_bounds[1] <= 2.0**-100 < found.error_bounds[2] < 2.0**-50
    found = linalg.expm(a)  # where the first one underflows
    assert found.expm[0, 0] == 0 and found.error_bound < 2.0**-52 and found.error_bounds[0] == np.inf
    check(a, found)


def test_elements_far_apart():
    ones = ozaki.mparray(np.ones((2, 2)))
    found = linalg.expm(ones.ldexp(-(2**50)), accuracy=60)
    assert fractions(found.expm).tolist() == np.eye(2).tolist() and 0 < found.error_bound < 2.0**-60
    # The exponential of the identity, and the element above its diagonal times that: the other one is far too small.
    found = linalg.expm(ones.ldexp(np.array([[0, 30], [-(7 * 10**6), 0]])), accuracy=60)
    e = exact(np.eye(1))[0][0, 0]
    missed = abs(fractions(found.expm) - np.array([[e, e * 2**30], [0, e]], object))
    assert missed.max() <= Fraction(found.error_bound) * e * 2**30 and found.error_bound < 2.0**-60
    assert (
        missed.max(axis=0) <= [Fraction(x) * y for x, y in zip(found.error_bounds, (e, e * 2**30), strict=True)]
    ).all()


def test_large_norms():
    rng = np.random.default_rng(1)
    g = rng.standard_normal((10, 10))
    turned = linalg.expm(1e5 * (g - g.T))
    assert turned.error_bound < 2.0**-52
    assert abs(turned.expm @ turned.expm.T - np.eye(10)).max() < 1e-14
    with pytest.raises(OverflowError, match=r"^dtype: an element of the result is too large for float64; ask for"):
        linalg.expm(1e5 * np.eye(3))
    with pytest.raises(OverflowError, match=r"^dtype: elements of the result are too small for float64; ask for"):
        linalg.expm(-1e5 * np.eye(3))
    found = linalg.expm(np.array([[-1e5]]), dtype="mp", accuracy=100)
    check(np.array([[-1e5]]), found)
    with pytest.raises(OverflowError, match=r"^dtype: an element .* too large .*\(matrix \[1\] of the stack\)$"):
        linalg.expm(np.array([np.eye(2), 1e3 * np.eye(2)]))
    with pytest.raises(np.linalg.LinAlgError, match=r"^a: its norm is about 2\^100; expected at most 2\^40"):
        linalg.expm(np.array([[-(2.0**100)]]), dtype="mp")


def test_stacks():
    stack = np.random.default_rng(2).standard_normal((2, 3, 4, 4))
    for options in ({}, {"dtype": "mp", "accuracy": 80}):
        found = linalg.expm(stack, **options)
        assert found.expm.shape == stack.shape
        assert found.error_bound.shape == (2, 3) and found.error_bounds.shape == (2, 3, 4)
        for index in np.ndindex(2, 3):
            one = linalg.expm(stack[index], **options)
            assert (found.expm[index] == one.expm).all() and found.error_bound[index] == one.error_bound
            assert (found.error_bounds[index] == one.error_bounds).all()
    empty = linalg.expm(np.zeros((0, 3, 3)))
    assert empty.expm.shape == (0, 3, 3) and empty.error_bound.shape == (0,) and empty.error_bounds.shape == (0, 3)
    empty = linalg.expm(np.zeros((3, 0, 0)))
    assert empty.error_bound.tolist() == [0, 0, 0] and empty.error_bounds.shape == (3, 0)
    with pytest.raises(np.linalg.LinAlgError, match=r"at most 2\^40 \(matrix \[1\] of the stack\)$"):
        linalg.expm(np.array([np.eye(2), 1e300 * np.eye(2)]))


def test_what_cannot_be_used_is_refused_and_nothing_is_changed():
    for a, message in (
        (np.ones((2, 3)), r"^a: shape \(2, 3\); expected a square matrix"),
        (np.ones(3), r"^a: shape \(3,\); expected a square matrix"),
        (np.array([[1.0, np.inf], [0, 1]]), r"^a: element \[0, 1\] is inf; expected finite numbers"),
    ):
        with pytest.raises(ValueError, match=message):
            linalg.expm(a)
    with pytest.raises(ValueError, match=r"^accuracy: an Accuracy; expected .*relative to its largest element"):
        linalg.expm(np.eye(2), accuracy=ozaki.Accuracy("relative", 1e-9))
    with pytest.raises(ValueError, match=r"^accuracy: 901"):
        linalg.expm(np.eye(2), accuracy=901)
    a = np.asfortranarray(np.random.default_rng(0).standard_normal((4, 8)))[:, ::2]
    before = a.copy()
    assert (linalg.expm(a).expm == linalg.expm(a.copy()).expm).all() and (a == before).all()


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128"])
@pytest.mark.parametrize("n", [1, 5])
def test_usual_matrices_take_sums_of_two_floats(n, dtype, rng, monkeypatch):
    monkeypatch.setattr(Enclosed, "times", None)  # of many bits
    for size in (2.0**-90, 1e-3, 1.0, 8.0):
        a = rng.standard_normal((n, n)) + (1j * rng.standard_normal((n, n)) if dtype == "complex128" else 0)
        for x in (size * a, size * (a - a.conj().T)):
            found = linalg.expm(x, dtype=dtype)
            check(x, found)
            assert found.expm.dtype == dtype and found.error_bound < (2.0**-23 if dtype == "float32" else 2.0**-52)


@pytest.mark.parametrize("is_complex", [False, True])
def test_bounds_of_sums_of_two_floats(is_complex, rng):
    """Of products, sums and quotients, against exact ones, where the errors of operands are none."""

    def made(size):
        x = rng.standard_normal((2, 6, 6)) @ np.diag([1, 1, 1e-3, 1e5, 1, 0])
        x = (x[0] + 1j * x[1] if is_complex else x[0]) * size
        return Doubled(added(x, x * 2.0**-54 * rng.standard_normal((6, 6))))

    def missed(found, exact):
        off = ozaki.mparray(tuple(found.x)) - exact
        return sum((fractions(part) ** 2).sum() for part in (off.real, off.imag))

    def holds(found, exact, most):
        assert missed(found, exact) <= Fraction(2.0**found.error) ** 2
        assert found.error <= most

    for size in (1.0, 2.0**-200):
        x, y = made(1.0), made(size)
        values = [ozaki.mparray(tuple(each.x)) for each in (x, y)]
        (euclidean, spectral), (of_y, spectral_y) = x.norms, y.norms
        largest = np.linalg.norm(x.x.high, 2)
        assert np.log2(largest) <= spectral + 1e-9 and spectral <= euclidean < np.log2(largest) + 3
        for bits, most in ((60, -55), (80, -75)):
            product = ozaki.matmul(*values, accuracy="exact", dtype="mp")
            holds(x.times(y, bits), product, euclidean + of_y + most)
        holds(x.over(factorial(20), 0), values[0] * ozaki.mparray([f"1/{factorial(20)}"], bits=300)[0], euclidean - 150)
        holds(x.summed([x, y, x, x], 0), values[0] + values[1] + values[0] + values[0], euclidean + 3 - 90)
    inexact = Doubled(x.x, -30.0).times(Doubled(y.x, -20.0), 80)
    least = max(-30.0 + spectral_y, -20.0 + spectral)
    assert least <= inexact.error <= least + 2


@pytest.mark.parametrize("is_complex", [False, True])
def test_bounds_of_norms_and_products(is_complex):
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal((2, 6, 6)) @ np.diag([1, 1, 1e-3, 1e5, 1, 0]) for _ in range(2))
    x, y = (c[0] + 1j * c[1] if is_complex else c[0] for c in (a, b))
    x, y = Enclosed(ozaki.mparray(x), -30.0), Enclosed(ozaki.mparray(y), -20.0)
    euclidean, spectral = x.norms
    singular = np.linalg.norm(np.asarray(x.x.astype("complex128")), 2)
    assert np.log2(singular) <= spectral + 1e-12 and spectral <= euclidean < np.log2(singular) + 3
    for bits in (40, 1100):
        found = x.times(y, bits)
        whole = ozaki.matmul(x.x, y.x, accuracy="exact", dtype="mp")
        missed = sum(
            (fractions(p) - fractions(q)) ** 2 for p, q in ((found.x.real, whole.real), (found.x.imag, whole.imag))
        )
        most = Fraction(2) ** int(2 * (euclidean + y.norms[0]) + 1) / 4**bits
        assert missed.sum() <= most and (bits == 1100 or missed.any())
        least = max(-30.0 + y.norms[1], -20.0 + spectral)
        assert least <= found.error <= least + 2
