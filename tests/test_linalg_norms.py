"""Norms of vectors and matrices against mpmath at high precision, and NumPy's shapes."""

import itertools
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from tiers import some_first

import ozaki
from ozaki import linalg

RNG = np.random.default_rng(582)


def wide_span(n):
    return RNG.standard_normal(n) * 10.0 ** RNG.integers(-300, 300, n)


VECTORS = {
    "normal": RNG.standard_normal(7),
    "huge": RNG.standard_normal(5) * 1e299,
    "subnormal": np.array([5e-324, 2e-310, -3e-320]),
    "complex": RNG.standard_normal(6) + 1j * RNG.standard_normal(6),
    "huge complex": (RNG.standard_normal(4) + 1j * RNG.standard_normal(4)) * 1e299,
    "wide complex": wide_span(6) + 1j * wide_span(6),
    "subnormal complex": np.array([5e-324 + 5e-324j, 1e-320j]),
    "zeros": np.zeros(3),
    "one": np.array([-3.0]),
    "with a zero": np.array([0, 1, 2j]),
    "integers": np.array([3, 4, -12]),
    "multiprecision": ozaki.mparray(RNG.standard_normal(4)).ldexp(np.array([0, -5000, 4000, 3])),
    "complex multiprecision": ozaki.mparray(RNG.standard_normal(3) + 1j).ldexp(np.array([0, -50, 40])),
    "single": RNG.standard_normal(5).astype(np.float32),
}


def judged(x):
    return ozaki.mparray(x).reshape(-1, 1).to_mpmath()


def exact_norm(v, p):
    sizes = [abs(x) for x in v]
    if p in (np.inf, -np.inf):
        return max(sizes) if p > 0 else min(sizes)
    if p == 0:
        return mpmath.mpf(sum(x != 0 for x in sizes))
    if p < 0 and not all(sizes):
        return mpmath.mpf(0)
    return mpmath.fsum(x ** mpmath.mpf(p) for x in sizes) ** (1 / mpmath.mpf(p))


def check(found, wanted):
    got = judged(found.value.reshape(-1))
    for i, exact in enumerate(wanted):
        bound = float(found.error_bounds.reshape(-1)[i])
        assert abs(got[i] - exact) <= bound * exact * (1 + mpmath.ldexp(1, -900))
    assert found.error_bound == found.error_bounds.max()


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, Fraction])
def test_powers_of_all_kinds(kind):
    assert linalg.norm([1.0, 2.0, 4.0], kind(1.5)).value == linalg.norm([1.0, 2.0, 4.0], 1.5).value


@pytest.mark.parametrize("p", [None, 2, 1, np.inf, -np.inf, 0, 3, 0.5, 1.5, -1, -2, 2.75])
@pytest.mark.parametrize("name", some_first(6, VECTORS))
def test_norms_of_vectors(name, p):
    with mpmath.workprec(3000):
        wanted = exact_norm(judged(VECTORS[name]), 2 if p is None else p)
        for accuracy, dtype in ((None, None), (60, "mp"), (200, "mp"), (870, "mp")):
            try:
                found = linalg.norm(VECTORS[name], p, accuracy=accuracy, dtype=dtype)
            except OverflowError:
                assert dtype is None and not 1e-320 < wanted < 1e306
                continue
            check(found, [wanted])
            if accuracy is not None or "sub" not in name:
                usual = 24 if name == "single" else 53
                assert found.error_bound <= 2.0 ** (1 - (accuracy or usual))


@pytest.mark.parametrize("x", [RNG.standard_normal((3, 4, 5)), RNG.standard_normal((2, 3, 3)) * (1 + 2j)])
def test_shapes_are_as_numpys(x):
    orders, axes = (None, 1, 2, np.inf, -np.inf, 0, 3, "fro", "nuc", -1, -2, "no"), (None, 0, -1, (0, 1), (2, 1), (0,))
    for p, axis, keepdims in itertools.product(orders, axes, (False, True)):
        try:
            wanted = np.linalg.norm(x, p, axis, keepdims)
        except ValueError:
            with pytest.raises(ValueError, match=r"^(ord|x): "):
                linalg.norm(x, p, axis, keepdims)
            continue
        found = linalg.norm(x, p, axis, keepdims)
        assert np.shape(found.value) == np.shape(wanted) == found.error_bounds.shape
        assert type(found.value) is type(wanted)
        np.testing.assert_allclose(found.value, wanted, rtol=1e-13)
        assert found.error_bound <= 2.0**-52


@pytest.mark.parametrize("p", ["fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf])
@pytest.mark.parametrize("shape", some_first(1, [(3, 3), (5, 2), (2, 3)]))
def test_norms_of_matrices(p, shape):
    for a in (
        RNG.standard_normal(shape) * 1e305,
        RNG.standard_normal(shape) * (1 - 1j),
        ozaki.mparray(RNG.standard_normal(shape)),
    ):
        with mpmath.workprec(2000):
            m = ozaki.mparray(a).to_mpmath()
            rows = [[abs(m[i, j]) for j in range(m.cols)] for i in range(m.rows)]
            if p == "fro":
                wanted = mpmath.sqrt(mpmath.fsum(x * x for row in rows for x in row))
            elif p in ("nuc", 2, -2):
                s = [mpmath.re(x) for x in mpmath.svd_c(m if m.rows >= m.cols else m.H, compute_uv=False)]
                wanted = mpmath.fsum(s) if p == "nuc" else max(s) if p == 2 else min(s)
            else:
                sums = [mpmath.fsum(row) for row in (rows if abs(p) == np.inf else zip(*rows, strict=True))]
                wanted = max(sums) if p > 0 else min(sums)
            for options in ({}, {"accuracy": 180, "dtype": "mp"}):
                found = linalg.norm(a, p, **options)
                check(found, [wanted])
                assert found.error_bound <= 2.0 ** (1 - options.get("accuracy", 53))


def test_norms_of_long_vectors():
    """Which are sums of sums."""
    x = RNG.standard_normal(5000)
    for v in (x, x + 1j * x[::-1]):
        with mpmath.workprec(300):
            sizes = judged(v)
            check(linalg.norm(v), [exact_norm(sizes, 2)])
            check(linalg.norm(v, 1), [exact_norm(sizes, 1)])


def test_nothing():
    for shape in ((0,), (0, 3), (3, 0), (2, 0, 3)):
        x = np.zeros(shape)
        assert linalg.norm(x).value == 0
        for p in (1, 2, np.inf):
            for axis in (0, -1):
                assert (linalg.norm(x, p, axis).value == np.linalg.norm(x, p, axis)).all()
    assert linalg.norm(np.zeros((2, 0, 3)), "nuc", axis=(1, 2)).value.tolist() == [0, 0]
    for p in (-np.inf, -1, -2, -3):
        with pytest.raises(ValueError, match=r"^x: no elements, of which there is no norm"):
            linalg.norm(np.zeros(0), p)
    for p in (-np.inf, -2):
        with pytest.raises(ValueError, match=r"^x: shape \(0, 0\); the norm .* is the smallest of no "):
            linalg.norm(np.zeros((0, 0)), p)


def test_single_numbers_and_lists():
    assert linalg.norm(-3.0).value == 3 and linalg.norm([3, 4]).value == 5
    assert linalg.norm([[1, 2], [3, 4]], "fro", dtype="float32").value.dtype == np.float32


def test_what_is_refused():
    for x, p, axis, error, message in (
        (np.ones((2, 2)), 3, None, ValueError, r"^ord: 3; expected None, fro, nuc, ±inf, ±1 or ±2, of matrices"),
        (np.ones((2, 2)), 0, None, ValueError, r"^ord: 0; "),
        (np.ones(2), "nuc", None, ValueError, r"^ord: 'nuc'; expected None, inf, .* of vectors"),
        (np.ones(2), 1 / 3, None, ValueError, r"^ord: 0\.33"),
        (np.ones((2, 2, 2)), 2, None, ValueError, r"^x: 3 axes; expected 1 or 2 with ord=2, or `axis`"),
        (np.ones((2, 2)), 2, (0, 0), ValueError, "repeated axis"),
        (np.ones((2, 2)), 2, 5, ValueError, "out of bounds"),
        (np.ones((2, 2)), 2, "rows", TypeError, r"^axis: 'rows'; expected"),
        (np.array([np.nan]), 2, None, ValueError, "^x: .* expected finite"),
        (np.ones((2, 2)), -2, None, ValueError, "^x: the norm -2 is singular value 1, .*svdvals"),
    ):
        with pytest.raises(error, match=message):
            linalg.norm(x, p, axis)
    with pytest.raises(OverflowError, match="too large for float64"):
        linalg.norm(np.full(4, 1.7e308))
    with pytest.raises(OverflowError, match="too small for float32"):
        linalg.norm(np.array([1e-60]), dtype="float32")
