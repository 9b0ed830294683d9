"""Determinants: their bounds hold in exact integers, and exact ones are exact."""

from fractions import Fraction
from itertools import pairwise, permutations
from math import inf, prod

import mpmath
import numpy as np
import pytest
from exact_linalg import fractions

import ozaki
from ozaki import linalg
from ozaki.linalg.determinants import deciding, elimination, modular, scalars, singular, stacks

flint = pytest.importorskip("flint", reason="python-flint is not installed")


def exact(a):
    """The determinant of a real matrix, by python-flint's integers."""
    ints, exponents = ozaki.mparray(a).to_ints()
    low, n = int(exponents.min(initial=0)), len(ints)
    each = zip(ints.ravel().tolist(), exponents.ravel().tolist(), strict=True)
    whole = flint.fmpz_mat(n, n, [x << (e - low) if x else 0 for x, e in each]).det()
    return Fraction(int(whole)) * Fraction(2) ** (low * n)


def complex_exact(a):
    """The parts of the determinant of a complex matrix in fractions, by the sum over all permutations."""
    re, im = fractions(a.real), fractions(a.imag)
    real, imag = Fraction(0), Fraction(0)
    for order in permutations(range(len(re))):
        x, y = Fraction((-1) ** sum(order[i] > order[j] for j in range(len(order)) for i in range(j))), Fraction(0)
        for i, j in enumerate(order):
            x, y = x * re[i, j] - y * im[i, j], x * im[i, j] + y * re[i, j]
        real, imag = real + x, imag + y
    return real, imag


def value(x):
    return fractions(x)[()] if isinstance(x, ozaki.MPArray) else Fraction(float(x))


_LOW, _HIGH = np.float32(-inf), np.float32(inf)


def hilbert(n):
    return 1 / (1 + np.add.outer(np.arange(float(n)), np.arange(float(n))))


def families(n):
    """Matrices of n rows of many kinds, of condition numbers up to infinity."""
    rng = np.random.default_rng(n)
    g = rng.standard_normal((n, n))
    q, _ = np.linalg.qr(g)
    yield "normal", g
    yield "hilbert", hilbert(n)
    yield "vandermonde", np.vander(rng.uniform(-1, 1, n))
    yield "kahan", np.triu(-0.3 * np.ones((n, n)), 1) + np.diag(0.95 ** np.arange(n))
    yield "frank", np.minimum.outer(np.arange(1.0, n + 1), np.arange(1.0, n + 1))
    yield "graded", g * 2.0 ** rng.integers(-20, 21, (n, 1)) * 2.0 ** rng.integers(-20, 21, n)
    yield "near singular", (q * np.logspace(0, -17, n)) @ g
    low, high = np.tril(rng.integers(-3, 4, (n, n)), -1), np.triu(rng.integers(-3, 4, (n, n)), 1)
    yield "determinant 1", (low + np.eye(n)) @ (high + np.eye(n))
    yield "permuted", np.eye(n)[rng.permutation(n)] * 3
    yield "singular", (rng.integers(-9, 10, (n, n - 1)) @ rng.integers(-9, 10, (n - 1, n))).astype(float)


@pytest.fixture(params=[False, True], ids=["by triangular matrices", "as usual"])
def small(request, monkeypatch):
    """Whether small matrices have exact determinants at once, as usual."""
    if not request.param:
        monkeypatch.setattr(deciding, "SMALL", 0)


@pytest.mark.parametrize("n", [1, 3, 14])
def test_bounds_hold(n, small):
    for name, a in families(n):
        wanted = exact(a)
        for options in ({}, {"accuracy": 150, "dtype": "mp"}, {"accuracy": 1e-3, "dtype": "mp"}):
            found = linalg.det(a, **options)
            assert abs(value(found.det) - wanted) <= Fraction(found.error_bound) * abs(wanted), (name, options)
            tolerance = 2.0**-52 if not options else options["accuracy"]
            assert found.error_bound <= (tolerance if tolerance < 1 else 2.0**-tolerance), (name, options)
            if not wanted:
                assert found.det == 0 and found.error_bound == 0


@pytest.mark.parametrize("accuracy", [53, 300])
def test_ill_conditioned_matrices_take_triangular_matrices(accuracy, monkeypatch):
    def not_exactly(*_):
        raise AssertionError("an exact determinant took the place of one by triangular matrices")

    monkeypatch.setattr(modular, "determinant", not_exactly)
    rng = np.random.default_rng(4)
    g = rng.standard_normal((18, 18))
    q, r = np.linalg.qr(g)
    cases = [(q * np.logspace(0, -k, 18)) @ r for k in (6, 12, 17, 30)]
    cases.append(ozaki.matmul(cases[1], cases[3], accuracy="exact", dtype="mp"))
    for a in cases:
        wanted = exact(a)
        found = linalg.det(a, accuracy=accuracy, dtype="mp")
        assert abs(value(found.det) / wanted - 1) <= Fraction(found.error_bound) <= Fraction(1, 2**accuracy)
        assert found.iterations <= (2 if accuracy == 53 else 5)


def test_nine_hundred_bits(small):
    a = hilbert(6)
    found = linalg.det(a, accuracy=900, dtype="mp")
    assert abs(value(found.det) / exact(a) - 1) <= Fraction(found.error_bound) <= Fraction(1, 2**900)


@pytest.mark.parametrize("n", [2, 13])
def test_exact_determinants(n):
    for name, a in families(n):
        wanted = exact(a)
        found = linalg.det(a, accuracy="exact", dtype="mp")
        assert value(found.det) == wanted and found.error_bound == 0, name
        found = linalg.det(a, accuracy="exact")
        assert found.det == float(wanted), name
        assert abs(value(found.det) - wanted) <= Fraction(found.error_bound) * abs(wanted)
        if 1e-30 < abs(wanted) < 1e30:
            single = np.float32(linalg.det(a, accuracy="exact", dtype="float32").det)
            near = [
                abs(Fraction(float(x)) - wanted) for x in (single, *(np.nextafter(single, s) for s in (_LOW, _HIGH)))
            ]
            assert min(near) == near[0], name  # its two neighbours are no nearer


@pytest.mark.parametrize(("more", "wanted"), [(0, 1.0), (2.0**-90, 1 + 2.0**-52), (-(2.0**-90), 1.0)])
def test_the_nearest_number_to_what_is_near_the_middle_of_two(more, wanted, monkeypatch):
    """A determinant of 1 + 2^-53 + more; of the middle itself the even one of the two is taken."""
    monkeypatch.setattr(deciding, "_LITTLE_WORK", 0.0)  # triangular matrices try first, and cannot tell
    a = ozaki.mparray(np.eye(14))
    a = a + ozaki.mparray(np.diag([2.0**-53] + [0.0] * 13)) + ozaki.mparray(np.diag([more] + [0.0] * 13))
    low = ozaki.mparray(np.tril(np.random.default_rng(1).integers(-2, 3, (14, 14)), -1) + np.eye(14))
    a = ozaki.matmul(low, ozaki.matmul(a, low.T, accuracy="exact", dtype="mp"), accuracy="exact", dtype="mp")
    assert linalg.det(a, accuracy="exact", dtype="float64").det == wanted


def test_200_rows_of_integers():
    a = np.random.default_rng(0).integers(-(2**10), 2**10, (200, 200))
    found = linalg.det(a, dtype="mp")
    assert found.error_bound == 0
    assert int(found.det) == int(flint.fmpz_mat(200, 200, a.ravel().tolist()).det())
    with pytest.raises(OverflowError, match=r"^dtype: the determinant is too large for float64; ask for"):
        linalg.det(a)
    a = a[:40, :40]
    a[:, 0] = a[:, 1:] @ np.random.default_rng(1).integers(-1, 2, 39)
    assert linalg.det(a) == (0.0, 0.0, 0)


def test_integers_have_all_bits():
    assert int(linalg.det([[2**70, 1], [1, 2**70]], dtype="mp").det) == 2**140 - 1
    assert linalg.det([[2**70, 1], [1, 2**70]], dtype="mp", accuracy=53).det.bits <= 55
    assert linalg.det([[2**70, 1], [1, 2**70]], dtype="mp60", accuracy="exact").det == 2**140
    assert linalg.det(np.array([[3, 1], [2, 5]], np.int8)).det == 13.0


@pytest.mark.parametrize("n", [1, 2, 5])
def test_complex_matrices(n, small):
    rng = np.random.default_rng(n)
    a = rng.standard_normal((n, n)) + 1j * rng.standard_normal((n, n))
    real, imag = complex_exact(a)
    square = real**2 + imag**2
    for options in ({}, {"accuracy": 120, "dtype": "mp"}, {"accuracy": "exact"}, {"accuracy": "exact", "dtype": "mp"}):
        found = linalg.det(a, **options)
        re, im = (value(part) for part in (found.det.real, found.det.imag))
        assert (re - real) ** 2 + (im - imag) ** 2 <= Fraction(found.error_bound) ** 2 * square
        assert found.error_bound <= 2.0**-52
    assert (re, im) == (real, imag)
    sign, logarithm, bound, (of_sign, of_logarithm), _ = linalg.slogdet(a, accuracy=120, dtype="mp")
    with mpmath.workprec(400):
        z = mpmath.mpc(*(mpmath.mpf(x.numerator) / x.denominator for x in (real, imag)))
        assert abs(sign.to_mpmath() - z / abs(z)) <= of_sign <= bound <= 2.0**-118
        assert abs(logarithm.to_mpmath() - mpmath.log(abs(z))) <= of_logarithm <= bound
    found = linalg.slogdet(a)
    assert found.sign.dtype == np.complex128 and found.logabsdet.dtype == np.float64
    singular = linalg.slogdet(np.ones((3, 3)) * 1j)
    assert singular.sign == 0 and singular.logabsdet == -inf and singular.error_bound == 0


def test_logarithms():
    for name, a in families(13):
        wanted = exact(a)
        for options in ({}, {"accuracy": 200, "dtype": "mp"}, {"dtype": "float32"}):
            if not wanted:
                continue
            sign, logarithm, bound, bounds, _ = linalg.slogdet(a, **options)
            assert sign == (1 if wanted > 0 else -1) and bounds[0] == 0 and bounds[1] == bound
            with mpmath.workprec(600):
                true = mpmath.log(abs(mpmath.mpf(wanted.numerator))) - mpmath.log(wanted.denominator)
                x = logarithm.to_mpmath() if options.get("dtype") == "mp" else mpmath.mpf(float(logarithm))
                assert abs(x - true) <= bound, (name, options)
            if options.get("dtype") == "mp":
                assert bound <= 2.0**-198
    assert linalg.slogdet(np.ones((20, 20)))[:3] == (0.0, -inf, 0.0)
    with pytest.raises(np.linalg.LinAlgError, match=r"^a: singular; the logarithm of its determinant is -inf"):
        linalg.slogdet(np.ones((20, 20)), dtype="mp")
    with pytest.raises(ValueError, match=r"^accuracy: 'exact'; a logarithm has no end in binary"):
        linalg.slogdet(np.eye(2), accuracy="exact")


@pytest.mark.parametrize(("whole", "exponent"), [(1, 0), (3, -2), (2**900 + 1, -900), (7, 2**55), (5, -(2**50))])
@pytest.mark.parametrize("places", [60, 1000, 3000])
def test_a_logarithm_is_off_by_less_than_one_unit(whole, exponent, places):
    with mpmath.workprec(places + 300):
        true = (mpmath.log(whole) + exponent * mpmath.log(2)) * mpmath.mpf(2) ** places
        assert abs(scalars.logarithm_of_abs(scalars.Scalar(whole, 0, exponent), places) - true) < 1
        true = (mpmath.log(whole**2 + 9) / 2 + exponent * mpmath.log(2)) * mpmath.mpf(2) ** places
        assert abs(scalars.logarithm_of_abs(scalars.Scalar(whole, -3, exponent), places) - true) < 1


def test_products_and_quotients_of_scalars_err_by_less_than_they_say():
    rng = np.random.default_rng(5)
    numbers = [scalars.Scalar(*map(int, rng.integers(-(2**40), 2**40, 2)), int(rng.integers(-9, 9))) for _ in range(40)]

    def gauss(x):
        return Fraction(x.real) * Fraction(2) ** x.exponent, Fraction(x.imag) * Fraction(2) ** x.exponent

    def off(x, true):
        (a, b), (c, d) = gauss(x), true
        return (a - c) ** 2 + (b - d) ** 2, c**2 + d**2

    true = (Fraction(1), Fraction(0))
    for x in numbers:
        a, b = gauss(x)
        true = true[0] * a - true[1] * b, true[0] * b + true[1] * a
    missed, size = off(scalars.product_of_scalars(numbers, 70), true)
    assert missed <= (40 * Fraction(2) ** (3 - 70)) ** 2 * size
    for x, y in pairwise(numbers):
        (a, b), (c, d) = gauss(x), gauss(y)
        square = c**2 + d**2
        missed, size = off(x.over(y, 30), ((a * c + b * d) / square, (b * c - a * d) / square))
        assert missed <= (Fraction(2) ** (2 - 30)) ** 2 * size


@pytest.mark.parametrize(("n", "bits"), [(0, 1), (1, 40), (3, 23), (9, 100), (17, 60), (40, 8)])
def test_determinants_modulo_primes(n, bits):
    rng = np.random.default_rng(n)
    wholes = [[int(x) << max(bits - 30, 0) | int(x) & 1 for x in row] for row in rng.integers(-(2**29), 2**29, (n, n))]
    assert modular.determinant(wholes) == (int(flint.fmpz_mat(n, n, [x for row in wholes for x in row]).det()), 0)


@pytest.mark.parametrize("imag", [False, True])
def test_determinants_that_one_prime_divides_are_not_zero(imag):
    (prime,) = modular.largest_primes(1, imag)
    unit = 1j if imag else 1
    for a, is_zero in (([[2, 4], [1, 2]], True), ([[2, 4], [1, 3]], False), ([[prime, 0], [0, 1]], False)):
        assert singular.is_singular(np.array(a) * (1.0 * unit)) == is_zero
    assert singular.is_singular(np.array([[prime, prime], [1.0, 1.0]]) * unit)
    zeros = [[0, 0], [0, 0]] if imag else None
    assert modular.is_zero_modulo_one([[prime, 0], [0, 1]], zeros)  # that alone proves nothing
    assert not modular.is_zero_modulo_one([[2, 4], [1, 3]], zeros)


@pytest.mark.parametrize("scale", [1.0, 2.0**-1000, 2.0**900])
def test_matrices_that_are_known_to_be_singular(scale):
    low = np.arange(16.0).reshape(4, 4) * scale
    near = low.copy()
    near[3, 3] = np.nextafter(near[3, 3], np.inf)
    near[2, 2] = np.nextafter(near[2, 2], np.inf)
    for a in (low, low + 1j * low, ozaki.mparray(low), np.zeros((2, 2))):
        assert singular.is_singular(a)
    for a in (near + np.diag([1, 0, 0, 0]) * scale, np.zeros((0, 0)), np.eye(3)):
        assert not singular.is_singular(a)
    far = ozaki.mparray(np.ones((3, 3))).ldexp(np.array([[0, 0, 0], [0, 0, 0], [0, -400000, 0]]))
    assert not singular.is_singular(far)  # though it is: as integers its elements would have too many bits


def test_hadamards_bound_is_reached():
    a = np.array([[1]])
    for _ in range(5):
        a = np.block([[a, a], [a, -a]])
    wholes = (a * 2**20).tolist()
    found = modular.determinant(wholes)[0]
    assert found == 32**16 * 2 ** (20 * 32) * round(np.linalg.det(a) / 32**16)
    assert 2 * abs(found) < 2 ** modular.bits_of_bound(wholes) < 8 * abs(found)
    primes = modular.largest_primes(modular.bits_of_bound(wholes), False)
    assert prod(primes) > 2 * abs(found) and all(flint.fmpz(p).is_prime() for p in primes)
    assert primes == sorted(set(primes), reverse=True) and 2**22 < primes[-1] < primes[0] < 2**23
    assert all(p % 4 == 1 for p in modular.largest_primes(900, True))


def test_residues_of_pivots_that_vanish():
    """A prime that divides the determinant, and a leading minor of zero."""
    p = modular.largest_primes(10, False)[0]
    wholes = [[0, 1, 0], [p, 0, 0], [0, 0, 5]]
    assert modular.determinant(wholes) == (-5 * p, 0)
    assert modular._eliminated(modular.residues(wholes, [p]), [p]) == [0]


def test_sizes_of_determinants():
    huge = np.eye(40) * 1e300
    assert abs(value(linalg.det(huge, accuracy=90, dtype="mp").det) / Fraction(1e300) ** 40 - 1) <= Fraction(2) ** -90
    sign, logarithm, bound, _, _ = linalg.slogdet(huge)
    with mpmath.workprec(200):
        assert abs(mpmath.mpf(float(logarithm)) - 40 * mpmath.log(mpmath.mpf(1e300))) <= bound < 1e-11
    assert sign == 1
    tiny = linalg.det(np.diag([1e-160, 1e-160]))
    assert 0 < tiny.det < 1e-319 and 1e-6 < tiny.error_bound < 1e-3
    true = Fraction(1e-160) ** 2
    assert abs(Fraction(float(tiny.det)) - true) <= Fraction(tiny.error_bound) * true
    with pytest.raises(OverflowError, match=r"^dtype: the determinant is too small for float64"):
        linalg.det(np.diag([1e-160, 1e-200]))
    beyond = ozaki.mparray(np.eye(14)).ldexp(2**58)
    with pytest.raises(OverflowError, match=r"^a: the determinant lies beyond 2\^-2\^60 to 2\^2\^60"):
        linalg.det(beyond)
    found = linalg.slogdet(beyond, accuracy=60, dtype="mp")
    with mpmath.workprec(300):
        assert abs(found.logabsdet.to_mpmath() - 14 * 2**58 * mpmath.log(2)) <= found.error_bound < 2.0**-59
    far = ozaki.mparray(np.eye(20)) + ozaki.mparray(np.ones((20, 20))).ldexp(-100000)
    found = linalg.det(far, accuracy=200)
    assert abs(value(found.det) - 1) <= Fraction(found.error_bound) <= Fraction(1, 2**200)
    with pytest.raises(np.linalg.LinAlgError, match=r"^a: its determinant may have \d+ bits; expected at most"):
        linalg.det(far, accuracy="exact")


def test_stacks():
    rng = np.random.default_rng(3)
    stack = rng.standard_normal((2, 3, 14, 14))
    stack[1, 2] = 1.0
    for options in ({}, {"accuracy": 90, "dtype": "mp"}):
        found = linalg.det(stack, **options)
        assert found.det.shape == found.error_bound.shape == (2, 3) and found.error_bound[1, 2] == 0
        for index in np.ndindex(2, 3):
            one = linalg.det(stack[index], **options)
            assert (found.det[index], found.error_bound[index]) == (one.det, one.error_bound)
    found = linalg.slogdet(stack)
    assert found.sign.shape == found.logabsdet.shape == (2, 3) and found.error_bounds.shape == (2, 3, 2)
    assert (found.error_bound == found.error_bounds.max(axis=-1)).all() and found.logabsdet[1, 2] == -inf
    with pytest.raises(OverflowError, match=r"slogdet \(matrix \[1\] of the stack\)$"):
        linalg.det(np.array([np.eye(2), 1e300 * np.eye(2)]))
    with pytest.raises(np.linalg.LinAlgError, match=r"ask for dtype='float64' \(matrix \[1, 2\] of the stack\)$"):
        linalg.slogdet(stack, dtype="mp")
    assert linalg.det(np.zeros((4, 0, 0))).det.tolist() == [1.0] * 4
    assert linalg.det(np.zeros((0, 3, 3))).det.shape == linalg.slogdet(np.zeros((0, 3, 3))).sign.shape == (0,)
    assert linalg.det(np.zeros((0, 0))) == (1.0, 0.0, 0) and linalg.slogdet(np.zeros((0, 0)))[:2] == (1.0, 0.0)


@pytest.mark.parametrize("options", [{}, {"accuracy": 1e-3}, {"accuracy": 60}, {"dtype": "float32"}], ids=str)
@pytest.mark.parametrize("n", [1, 2, 5, 17])
def test_bounds_of_stacks_hold(n, options):
    stack = np.array([a for _, a in families(n)])
    if "dtype" in options:  # those that are numbers of float32
        stack = stack[[not exact(a) or 2.0**-100 < abs(exact(a)) < 2.0**100 for a in stack]]
    exacts = [exact(a) for a in stack]
    for copies in (1, 2):
        found = linalg.det(np.concatenate([stack] * copies), **options)
        for x, bound, true in zip(found.det, found.error_bound, exacts * copies, strict=True):
            assert abs(value(x) - true) <= Fraction(float(bound)) * abs(true)
            unit = 2.0 ** (-24 if "dtype" in options else -53)
            assert bound <= options.get("accuracy", 0.0) % 1 + 2.01 * unit or 0 < abs(true) < 2.0**-120
    logarithms = linalg.slogdet(stack, **options)
    with mpmath.workprec(2000):
        for sign, log, bounds, true in zip(*logarithms[:2], logarithms.error_bounds, exacts, strict=True):
            assert sign == (true > 0) - (true < 0) and bounds[0] == 0
            if true:
                of_true = mpmath.log(abs(true.numerator)) - mpmath.log(true.denominator)
                assert abs(mpmath.mpf(float(log)) - of_true) <= bounds[1]
            else:
                assert log == -inf and bounds[1] == 0


def test_bounds_of_complex_stacks_hold():
    rng = np.random.default_rng(9)
    stack = rng.standard_normal((7, 4, 4)) + 1j * rng.standard_normal((7, 4, 4))
    stack[1], stack[2, 3], stack[3, :, 2] = stack[1].real, 1e-9 * stack[2, 2], 1j * stack[3, :, 1]
    stack[4] *= 10.0 ** rng.integers(-40, 40, (4, 1)) * 10.0 ** rng.integers(-40, 40, 4)
    found = linalg.det(stack)
    for a, x, bound in zip(stack, found.det, found.error_bound, strict=True):
        real, imag = complex_exact(a)
        off = (value(x.real) - real) ** 2 + (value(x.imag) - imag) ** 2
        assert off <= Fraction(bound) ** 2 * (real**2 + imag**2) and bound <= 2.0**-52
    assert found.det[3] == 0 and found.error_bound[3] == 0
    sign, log, _, bounds, _ = linalg.slogdet(stack)
    for i in (0, 1, 2, 4, 5, 6):
        real, imag = complex_exact(stack[i])
        with mpmath.workprec(400):
            z = mpmath.mpc(*(mpmath.mpf(x.numerator) / x.denominator for x in (real, imag)))
            assert abs(mpmath.mpc(sign[i]) - z / abs(z)) <= bounds[i, 0] <= 2.0**-51
            assert abs(mpmath.mpf(float(log[i])) - mpmath.log(abs(z))) <= bounds[i, 1] <= 2.0**-44


def test_only_ill_conditioned_matrices_are_found_one_by_one(monkeypatch):
    calls = []
    single = deciding.determinant
    monkeypatch.setattr(deciding, "determinant", lambda *given: calls.append(given) or single(*given))
    rng = np.random.default_rng(2)
    stack = rng.standard_normal((30, 20, 20))
    stack[7] = hilbert(20)
    stack[11] *= np.geomspace(1e-150, 1e150, 20)  # which are scaled
    q, r = np.linalg.qr(stack[0])
    stack[13] = (q * np.geomspace(1, 1e-7, 20)) @ r  # of which the trace of E^2 counts
    linalg.det(stack)
    assert [given[0].tolist() for given in calls] == [stack[7].tolist()]
    integers = rng.integers(-9, 10, (30, 6, 6))
    found = linalg.det(integers)
    assert len(calls) == 1 and found.det.tolist() == [float(exact(a.astype(float))) for a in integers]
    linalg.slogdet(stack, dtype="mp")
    assert len(calls) == 31  # as many bits as are asked for
    linalg.det(np.zeros((2, 20, 20)))
    linalg.det(np.full((2, 20, 20), 5e-324))
    linalg.slogdet(np.eye(20) * np.array([1e300, 1e-300, 5e-324])[:, None, None])
    assert len(calls) == 36


def test_norms_too_large_to_tell_what_underflows(monkeypatch):
    """Determinants that would be proven are not, if the norms of X and Y are not known to be small enough."""
    a = np.random.default_rng(0).standard_normal((3, 5, 5))
    assert None not in stacks.determinants(a, 2.0**-55)
    monkeypatch.setattr(stacks, "_LARGEST", 1.0)
    assert stacks.determinants(a, 2.0**-55) == [None] * 3


@pytest.mark.parametrize(("form", "bits", "least"), [("float64", 53, -1074), ("float32", 24, -149)])
def test_numbers_of_many_bits_are_rounded_to_the_nearest_float(form, bits, least):
    rng = np.random.default_rng(bits)
    kind = np.dtype(form).type
    for length, exponent in ((1, 0), (bits, 3), (bits + 1, -9), (bits + 2, 0), (bits + 2, least - 1), (3, least - 2)):
        for real in {1 << (length - 1), (1 << length) - 1, *(int(x) % 2**length for x in rng.integers(1, 2**62, 20))}:
            for sign in (1, -1):
                x = scalars.Scalar(sign * real, 1, exponent)
                found, left = x.nearest(form)
                assert kind(found.real) == found.real  # a number of that format
                exact_value = Fraction(sign * real) * Fraction(2) ** exponent
                assert Fraction(left.real) * Fraction(2) ** left.exponent == exact_value - Fraction(found.real)
                size, off = abs(kind(found.real)), abs(exact_value - Fraction(found.real))
                gaps = [abs(Fraction(float(np.nextafter(size, side)) - float(size))) for side in (_LOW, _HIGH)]
                even = Fraction(float(size)) / gaps[1] % 2 == 0
                assert off < min(gaps) / 2 or (off == min(gaps) / 2 and even) or (off < gaps[1] / 2 and even)
    for whole, exponent, wanted in (((1 << bits) - 1, 4000, inf), (-1, 2**70, -inf), (1, -(2**70), 0.0), (0, 5, 0.0)):
        found, left = scalars.Scalar(whole, 0, exponent).nearest(form)
        assert found == wanted and (wanted or left.real == whole)


def test_sizes_of_scalars_are_bounded():
    for x, unit in (((3, 4, 2), (0, 5, 2)), ((2**900 + 1, -(2**899), -900), (1, 0, 0)), ((1, 0, -5000), (1, 1, 0))):
        found = Fraction(scalars.Scalar(*x).size(scalars.Scalar(*unit)))
        true = Fraction(x[0] ** 2 + x[1] ** 2, unit[0] ** 2 + unit[1] ** 2) * Fraction(4) ** (x[2] - unit[2])
        assert true <= found**2 <= max(true * (1 + Fraction(1, 2**39)), Fraction(1, 2**2140))
    assert scalars.Scalar(0).size(scalars.Scalar(1)) == 0


def test_what_cannot_be_used_is_refused_and_nothing_is_changed(monkeypatch):
    for function in (linalg.det, linalg.slogdet):
        for a, message in (
            (np.ones((2, 3)), r"^a: shape \(2, 3\); expected a square matrix"),
            (np.ones(3), r"^a: shape \(3,\); expected a square matrix"),
            (np.array([[1.0, np.nan], [0, 1]]), r"^a: element \[0, 1\] is nan; expected finite numbers"),
        ):
            with pytest.raises(ValueError, match=message):
                function(a)
        with pytest.raises(ValueError, match=r"^accuracy: 901"):
            function(np.eye(2), accuracy=901)
        with pytest.raises(TypeError, match=r"^dtype: 'float64', but operands are complex"):
            function(np.eye(2) * 1j, dtype="float64")
    a = np.asfortranarray(np.random.default_rng(0).standard_normal((20, 40)))[:, ::2]
    before = a.copy()
    assert linalg.det(a) == linalg.det(a.copy()) and (a == before).all()
    monkeypatch.setattr(deciding, "_MOST_WORK", 1.0)
    with pytest.raises(np.linalg.LinAlgError, match=r"^a: singular, or .*accuracy='exact' finds its determinant, in"):
        linalg.det(np.ones((20, 20)))
    with pytest.raises(np.linalg.LinAlgError, match=r"in some minutes or more \(matrix \[1\] of the stack\)$"):
        linalg.det(np.array([np.eye(20), np.ones((20, 20))]))
    with pytest.raises(OverflowError, match=r"^dtype: the determinant is too large .*\(matrix \[1\] of the stack\)$"):
        linalg.det(np.array([np.eye(2), 1e200 * np.eye(2)]))
    assert linalg.det(np.ones((20, 20)), accuracy="exact").det == 0


@pytest.mark.parametrize("dtype", [float, complex])
def test_factors_in_float64(dtype):
    """What the determinant is computed from need not be accurate, but is on well-conditioned matrices."""
    for n in (1, 7, 8, 9, 40, 65):
        rng = np.random.default_rng(n)
        stack = rng.standard_normal((2, 3, n, n)) + (1j * rng.standard_normal((2, 3, n, n)) if dtype is complex else 0)
        before = stack.copy()
        orders, signs, inverses, uppers = elimination.factors(stack)
        for index in np.ndindex(2, 3):
            a, order, inverse, upper = stack[index], orders[index], inverses[index], uppers[index]
            assert (np.triu(inverse, 1) == 0).all() and (inverse.diagonal() == 1).all()
            assert (np.tril(upper, -1) == 0).all() and abs(np.linalg.inv(inverse)).max() < 1 + 1e-9
            assert abs(inverse @ a[order] - upper).max() < 1e-11
            assert signs[index] == round(np.linalg.det(np.eye(n)[order]))
        assert (stack == before).all()
    _, _, _, upper = elimination.factors(np.ones((3, 3)))
    assert upper[1, 1] == 2.0**-52  # in place of a zero
