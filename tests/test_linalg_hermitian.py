"""Hermitian eigenvalues alone, of pairs of matrices, and relative to each: bounds hold, and are as small as asked."""

from fractions import Fraction
from functools import cache

import flint
import mpmath
import numpy as np
import pytest
from exact_linalg import fractions
from mpmath import mpf, workprec

import ozaki
from ozaki import Accuracy, linalg
from ozaki.linalg.common.upper import frobenius_norm
from ozaki.linalg.spectra.clusters import decomposed_block, errors_by_coupling, ranges
from ozaki.linalg.spectra.decomposition import HermitianDecomposition

BITS = 1200
"""Of references: of matrices that span 300 digits no digit of float64 is lost."""

RELATIVE = Accuracy("relative", 2.0**-53)


def hilbert(n):
    return 1 / (1 + np.add.outer(np.arange(float(n)), np.arange(n)))


def with_spectrum(values, seed=0):
    """A matrix of many bits with exactly these eigenvalues: reflections that are dyadic take them apart."""
    rng, n = np.random.default_rng(seed), 8
    assert len(values) == n
    a = ozaki.mparray(np.diag(np.zeros(n)))
    signs = rng.choice([-1, 1], n)
    for x in range(n):
        unit = np.zeros((n, 1))
        unit[x] = 1
        v = unit - np.outer(signs, signs) @ unit / 4  # a column of I - 2 s s^T / (s^T s)
        w = v - 0.5 * np.repeat(np.array([[1.0], [0.0]]), 4, axis=0) * v[:4].sum()  # and of another, of four places
        column = ozaki.mparray(w)
        a = a + ozaki.matmul(column * values[x], column.T, accuracy="exact", dtype="mp")
    return a


def hermitian(a):
    return np.tril(a) + np.tril(a, -1).conj().T


_RNG = np.random.default_rng(5)
_NORMAL = _RNG.standard_normal((8, 8))
_SIZES = 10.0 ** np.array([-10, -7, -3, 0, 1, 3, 6, 9])

MATRICES = {
    "one": np.array([[-3.7]]),
    "zero": np.zeros((4, 4)),
    "eye": np.eye(5),
    "ones": np.ones((6, 6)),
    "random": hermitian(_NORMAL),
    "complex": hermitian(_NORMAL + 1j * np.tril(_RNG.standard_normal((8, 8)), -1)),
    "hilbert": hilbert(8),
    "wilkinson": np.diag(abs(np.arange(9) - 4.0)) + np.diag(np.ones(8), 1) + np.diag(np.ones(8), -1),
    "diagonal": np.diag([3.0, -1.0, 1e-9, 1e20, -1e-15]),
    "graded": hermitian(_NORMAL[:8, :8] * np.outer(_SIZES, _SIZES)),
    "cluster": np.eye(8) + 2.0**-49 * hermitian(_NORMAL[:8, :8]),
    "two clusters": np.diag([1.0, 1, 1, 2, 2, 2]) + 2.0**-45 * hermitian(_NORMAL[:6, :6]),
    "pairs": np.kron(np.eye(3) + 2.0**-30 * hermitian(_NORMAL[:3, :3]), np.array([[2.0, 1.0], [1.0, 2.0]])),
    "far": hermitian(_NORMAL[:3, :3] * np.outer(*2 * [10.0 ** np.array([-75, 0, 75])])),
    "subnormal": hermitian(_NORMAL[:4, :4]) * 2.0**-1050,
    "huge": hermitian(_NORMAL[:4, :4]) * 2.0**1018,
}
ZERO = {"zero", "ones", "far"}
"""Those with an eigenvalue that is zero, or below 2**-900 of the largest."""

PAIRS = {
    "one": (np.array([[-3.0]]), np.array([[7.0]])),
    "zero": (np.zeros((3, 3)), hilbert(3)),
    "identity": (MATRICES["random"], np.eye(8)),
    "random": (MATRICES["random"], _NORMAL @ _NORMAL.T + np.eye(8)),
    "hilbert": (hermitian(_NORMAL), hilbert(8)),
    "more than float64": (hermitian(_NORMAL[:6, :6]), np.ones((6, 6)) + 2.0**-50 * np.diag(np.arange(1.0, 7))),
    "spread": (np.ones((5, 5)) + np.eye(5), hermitian(hilbert(5) * np.outer(_SIZES[2:7], _SIZES[2:7]))),
    "both": (hilbert(7), hilbert(7)),
    "complex": (hermitian(_NORMAL[:4, :4]), MATRICES["complex"][:4, :4] + 9 * np.eye(4)),
}


def number(x):
    return mpf(x.numerator) / x.denominator


def exact_eigen(a, b=None):
    """Ascending eigenvalues, and eigenvectors, of matrices, to some BITS bits."""
    with workprec(BITS):
        a = ozaki.mparray(a).to_mpmath()
        if b is not None:
            inverse = mpmath.inverse(mpmath.cholesky(ozaki.mparray(b).to_mpmath()))
            a = inverse * a * inverse.H
            a = (a + a.H) / 2
        values, vectors = mpmath.eighe(a)
        vectors = vectors if b is None else inverse.H * vectors
        order = sorted(range(a.rows), key=lambda i: values[i])
        return [values[i] for i in order], [vectors[:, i] for i in order]


@cache
def exact_values(name):
    return exact_eigen(MATRICES[name])[0]


def check_values(found, exact, relative=False):
    """Assert that each error is within its bound."""
    assert found.error_bounds.dtype == np.float64 and found.error_bounds.shape == (len(exact),)
    assert found.error_bound == found.error_bounds.max(initial=0)
    with workprec(BITS):
        largest = max(map(abs, exact))
        slack = largest * mpf(2) ** (100 - BITS)
        for x, y, bound in zip(fractions(found.values), exact, found.error_bounds, strict=True):
            assert abs(number(x) - y) <= mpf(float(bound)) * (abs(y) if relative else largest) + slack


def check_vectors(found, exact, b=None):
    """Assert that each angle, of the inner product of b, is within its bound."""
    with workprec(BITS):
        vectors = ozaki.mparray(found.vectors).to_mpmath()
        b = mpmath.eye(vectors.rows) if b is None else ozaki.mparray(b).to_mpmath()
        for j, (y, bound) in enumerate(zip(exact, found.vector_bounds, strict=True)):
            x = vectors[:, j]
            across = x - y * ((y.H * b * x)[0] / (y.H * b * y)[0])
            sine = mpmath.sqrt(abs((across.H * b * across)[0] / (x.H * b * x)[0]))
            assert sine <= mpf(float(bound)) + mpf(2) ** -600


@pytest.mark.parametrize("accuracy", ["fp64", 100, 250, RELATIVE], ids=["fp64", "100", "250", "relative"])
@pytest.mark.parametrize("name", MATRICES)
def test_eigenvalues_alone(name, accuracy):
    a, relative = MATRICES[name], accuracy == RELATIVE
    if relative and name in ZERO:
        with pytest.raises(ValueError, match=r"^accuracy: an eigenvalue is zero, or too small to be told from it"):
            linalg.eigvalsh(a, accuracy=accuracy)
        return
    if relative and name == "subnormal":
        a = a * 2.0**100
    dtype = "mp" if isinstance(accuracy, int) else None
    found = linalg.eigvalsh(a, accuracy=accuracy, dtype=dtype)
    check_values(found, exact_eigen(a)[0] if relative and name == "subnormal" else exact_values(name), relative)
    usual = 2.0**-52 if dtype is None else 2.0 ** -(accuracy - 1)
    assert found.error_bound <= (2.0**-25 if name == "subnormal" and not dtype and not relative else usual)


@pytest.mark.parametrize("name", MATRICES)
def test_bounds_before_values_are_rounded(name):
    """Rounding to float64 would hide errors that are 100 times smaller."""
    found = linalg.eigvalsh(MATRICES[name], accuracy=53, dtype="mp300")
    check_values(found, exact_values(name))
    assert found.error_bound < 2.0**-55
    values = [float(x) for x in found.values]
    assert values == sorted(values)


@pytest.mark.parametrize("seed", range(5))
def test_what_couples_eigenvalues_changes_them_by_its_square(seed):
    """Of a diagonal matrix and a small one; of two values no bound of half as much would hold."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 8)) if seed else 2
    d = np.cumsum(2.0 ** rng.integers(-3, 4, n))
    e = hermitian(rng.standard_normal((n, n)) * 2.0 ** rng.integers(-12, -4))
    e -= np.diag(np.diag(e))
    size, blocks = frobenius_norm(e), ranges(np.diff(d) < (0.4 if seed else 0))
    columns = np.sqrt((e**2).sum(axis=0)) * (1 + 2.0**-40)
    bounds = errors_by_coupling(columns, np.diff(d) - 2 * size, blocks, size)
    blocked = np.diag(d) + sum(np.pad(e[i:j, i:j], ((i, n - j), (i, n - j))) for i, j in blocks)
    missed = [abs(x - y) for x, y in zip(exact_eigen(np.diag(d) + e)[0], exact_eigen(blocked)[0], strict=True)]
    assert all(x <= y for x, y in zip(missed, bounds, strict=True))
    assert seed or (max(missed) > bounds.max() / 2.2)
    bounds = errors_by_coupling(columns, np.zeros(n - 1), ranges(np.zeros(n - 1, bool)), size)
    assert (bounds == size).all()  # no distance: Weyl's


def test_blocks_are_decomposed_relative_to_their_width(rng):
    for n in (1, 2, 7):
        block = hermitian(rng.standard_normal((n, n))) * 2.0**-60
        offsets = np.sort(rng.random(n)) * 2.0**-50
        values, _, bound = decomposed_block(block, offsets)
        exact, _ = exact_eigen(ozaki.mparray(block) + ozaki.mparray(np.diag(offsets)))
        assert max(abs(mpf(float(x)) - y) for x, y in zip(values, exact, strict=True)) <= bound < 2.0**-90


def test_tiny_values_of_a_wide_block_ascend():
    signs = [[3, 0, 0, 0], [3, 1, 0, 0], [3, -1, -1, 0], [1, -1, 3, -1]]
    exponents = [[20, 0, 0, 0], [-180, 200, 0, 0], [-140, 100, -40, 0], [-160, -120, -200, -220]]
    a = np.ldexp(np.array(signs, float), exponents)  # 0 stood between -1 and 3 * 2**20 in the wrong place
    values = linalg.eigvalsh(a, accuracy=100, dtype="float64").values
    assert (values[1:] >= values[:-1]).all()


@pytest.mark.parametrize("name", MATRICES)
def test_eigenvectors_and_bounds_of_each_eigenvalue(name):
    for accuracy in ("fp64", RELATIVE):
        if accuracy == RELATIVE and name in {"subnormal", *ZERO}:
            continue
        found = linalg.eigh(MATRICES[name], accuracy=accuracy)
        values, vectors = exact_eigen(MATRICES[name])
        check_values(found, values, accuracy == RELATIVE)
        check_vectors(found, vectors)


@pytest.mark.parametrize("accuracy", ["fp64", 150, RELATIVE], ids=["fp64", "150", "relative"])
@pytest.mark.parametrize("name", PAIRS)
def test_pairs(name, accuracy):
    a, b = PAIRS[name]
    dtype, relative = "mp" if accuracy == 150 else None, accuracy == RELATIVE
    if relative and name == "zero":
        with pytest.raises(ValueError, match=r"^accuracy: an eigenvalue is zero"):
            linalg.eigh(a, b, accuracy=accuracy)
        return
    values, vectors = exact_eigen(a, b)
    for function in (linalg.eigvalsh, linalg.eigh):
        found = function(a, b, accuracy=accuracy, dtype=dtype)
        check_values(found, values, relative)
        assert found.error_bound <= (2.0**-52 if dtype is None else 2.0**-149)
    check_vectors(found, vectors, b)
    if dtype == "mp":
        v, b = ozaki.mparray(found.vectors), ozaki.mparray(b)
        gram = v.conj().T @ ozaki.matmul(b, v, accuracy=700, dtype="mp")
        assert abs((gram - ozaki.mparray(np.eye(len(a)))).astype("complex128")).max() < 2.0**-60


SPECTRA = {
    "simple": [1, 2, 3, 4, 5, 6, 7, 8],
    "equal": [2, 2, 2, 2, 2, -1, -1, 5],
    "zeros": [0, 0, 0, 1, 1, 2, 3, 3],
    "close": [1, 1 + Fraction(1, 2**80), 1 + Fraction(1, 2**60), 2, 2 + Fraction(1, 2**40), 3, 4, 4],
    "far": [Fraction(1, 2**90), -Fraction(1, 2**70), Fraction(1, 2**60), 1, 2**20, -3, 7, 2**30],
}


@pytest.mark.parametrize("name", SPECTRA)
def test_spectra_that_are_known_exactly(name):
    exact = sorted(SPECTRA[name])
    a = with_spectrum([ozaki.mparray(x, bits=700) for x in map(str, map(Fraction, SPECTRA[name]))])
    assert sum(a.to_fractions()[i, i] for i in range(8)) == sum(exact)
    largest = max(map(abs, exact))
    for accuracy in (53, 250):
        for function in (linalg.eigvalsh, linalg.eigh):
            found = function(a, accuracy=accuracy, dtype="mp")
            missed = abs(fractions(found.values) - exact)
            assert all(x <= Fraction(bound) * largest for x, bound in zip(missed, found.error_bounds, strict=True))
            assert found.error_bound <= 2.0 ** -(accuracy - 1)
    if 0 not in exact:
        found = linalg.eigvalsh(a, accuracy=Accuracy("relative", 2.0**-70), dtype="mp")
        missed = abs(fractions(found.values) - exact)
        assert all(x <= Fraction(b) * abs(y) for x, y, b in zip(missed, exact, found.error_bounds, strict=True))
        assert found.error_bound <= 2.0**-69


def test_a_hilbert_matrix_relative_to_each_eigenvalue():
    """The smallest is 2e-39 of the largest: beside the enclosures that python-flint finds."""
    n = 26
    entries = [[Fraction(1, 2**10 * (i + j + 1)) for j in range(n)] for i in range(n)]
    a = ozaki.mparray(entries, bits=200)
    found = linalg.eigvalsh(a, accuracy=RELATIVE)
    assert found.error_bound < 2.0**-52 and found.values[0] > 0
    before = flint.ctx.prec
    flint.ctx.prec = 600
    try:
        exact = flint.acb_mat([[flint.fmpq(x.numerator, x.denominator) for x in row] for row in a.to_fractions()])
        enclosures = sorted((x.real for x in exact.eig()), key=lambda x: float(x))
        for x, y, bound in zip(fractions(found.values), enclosures, found.error_bounds, strict=True):
            x = flint.arb(flint.fmpq(x.numerator, x.denominator))
            assert abs(x - y) <= abs(y) * flint.arb(float(bound))
    finally:
        flint.ctx.prec = before


def test_values_alone_take_one_product_and_no_correction(rng):
    a = hermitian(rng.standard_normal((70, 70)))  # smaller ones take no product of the library at all
    with ozaki.recording() as run:
        found = linalg.eigvalsh(a)
    assert run.inside == 1 and found.iterations == 0 and found.error_bound < 1.2e-16
    vectors = linalg.eigh(a)
    largest = abs(found.values).max()
    assert (abs(vectors.values - found.values) <= (vectors.error_bounds + found.error_bounds) * largest * 1.01).all()


@pytest.mark.parametrize("function", [linalg.eigh, linalg.eigvalsh])
def test_the_triangle_that_is_read(function):
    a = MATRICES["complex"][:4, :4]
    b = hermitian(np.array([[5, 0, 0], [1 + 1j, 6, 0], [2j, 1, 7]])) @ np.eye(3)
    wanted = function(a[:3, :3], b, accuracy=80, dtype="mp")
    for uplo, nan in (("L", np.triu), ("U", np.tril)):
        other = nan(np.ones((3, 3)), 1 if uplo == "L" else -1) > 0
        x, y = (np.where(other, complex(np.nan, np.nan), each) for each in (a[:3, :3], b))
        x.imag[np.diag_indices(3)] = np.nan
        for options in ({"UPLO": uplo}, {"lower": uplo == "L"}, {"UPLO": uplo.lower(), "lower": uplo == "U"}):
            same(wanted, function(x, y, accuracy=80, dtype="mp", **options))
    real = np.array([[2.0, 0.5], [np.nan, 3.0]])
    wanted = function(np.array([[2.0, 0.5], [0.5, 3.0]]), accuracy=80, dtype="mp")
    nan = float("nan")
    for other in (
        real,
        [[2.0, 0.5], [nan, 3.0]],
        (real, np.array([[0.0, 0.0], [nan, 0.0]])),
        mpmath.matrix([[2, 0.5], [nan, 3]]),
        flint.arb_mat([[2, 0.5], [flint.arb("nan"), 3]]),
        ozaki.mparray([[2, 0.5], [9, 3]]),
    ):
        assert (function(other, lower=False, accuracy=80, dtype="mp").values == wanted.values).all()
    upper = mpmath.matrix([[2, 0.5 + 1j], [7, 3]])
    lower = mpmath.matrix([[2, 7], [0.5 - 1j, 3]])
    same(function(lower, accuracy=80), function(upper, UPLO="U", accuracy=80))
    with pytest.raises(ValueError, match=r"^a: element \[1, 0\] is nan"):
        function(real)


def same(wanted, found):
    assert len(wanted) == len(found)
    assert all((x == y).all() for x, y in zip(wanted[:2], found[:2], strict=True) if getattr(x, "ndim", 0))
    assert (wanted.error_bounds == found.error_bounds).all()


@pytest.mark.parametrize("function", [linalg.eigh, linalg.eigvalsh])
def test_what_is_refused(function):
    eye, nan = np.eye(2), np.array([[1.0, 0.0], [np.nan, 1.0]])
    for call, error, message in (
        (lambda: function(np.ones((2, 3))), ValueError, r"^a: shape \(2, 3\); expected a square matrix"),
        (lambda: function(np.ones((2, 2, 3))), ValueError, r"^a: shape \(2, 2, 3\); .* or a stack of them"),
        (lambda: function(eye, np.eye(3)), ValueError, r"^b: shape \(3, 3\) does not fit a of shape \(2, 2\)"),
        (lambda: function(eye, np.ones(2)), ValueError, r"^b: shape \(2,\); expected a square matrix"),
        (lambda: function(eye, nan), ValueError, r"^b: element \[1, 0\] is nan"),
        (lambda: function(eye, UPLO="X"), ValueError, r"^UPLO: 'X'; expected 'L' or 'U'"),
        (lambda: function(eye, "U"), TypeError, r"^b: 'U'; expected a matrix \(UPLO='U' names a triangle\)"),
        (lambda: function(eye, lower="no"), TypeError, r"^lower: 'no'; expected True or False"),
        (lambda: linalg.eigh(eye, accuracy="exact"), ValueError, r"^accuracy: 'exact'"),
        (lambda: function(eye, accuracy=Accuracy("componentwise", 0.1)), ValueError, r"^accuracy: measure"),
        (lambda: function(eye, accuracy=901), ValueError, r"^accuracy: 901"),
        (lambda: function(eye, dtype="int64"), TypeError, r"^dtype: 'int64'"),
        (lambda: linalg.eigh(1j * np.eye(2), dtype="float64"), TypeError, r"^dtype: 'float64', but operands are"),
        (lambda: function(eye * 1e300, eye * 1e-300), OverflowError, r"^dtype: an element of the result is too large"),
        (lambda: function(eye * 1e-300, eye * 1e300), OverflowError, r"^dtype: elements of the result are too small"),
        (
            lambda: function(np.diag([1.0, 1e-60]), accuracy=Accuracy("relative", 1e-5), dtype="float32"),
            OverflowError,
            r"^dtype: elements of the result are too small for float32",
        ),
    ):
        with pytest.raises(error, match=message):
            call()
    for b in (-eye, eye * 0, np.ones((2, 2)), np.array([[1.0, 2.0], [2.0, 1.0]]), np.diag([1.0, -1e-300])):
        with pytest.raises(np.linalg.LinAlgError, match=r"^b: not positive definite, or its condition number is too"):
            function(eye, b)


def test_a_b_that_is_barely_positive_definite():
    """By half a unit of the last place, as no float64 shows; and one that is not, by as much."""
    b = ozaki.mparray(np.ones((3, 3))) + ozaki.mparray(np.diag([1.0, 2.0, 3.0])).ldexp(-120)
    a = np.diag([1.0, 2.0, 3.0])
    found = linalg.eigvalsh(a, b, dtype="mp", accuracy=80)
    check_values(found, exact_eigen(a, b)[0])
    assert found.error_bound <= 2.0**-79
    with pytest.raises(np.linalg.LinAlgError, match=r"^b: not positive definite"):
        linalg.eigvalsh(a, b - ozaki.mparray(np.eye(3)).ldexp(-118))


def test_nothing_and_zeros():
    for b in (None, np.zeros((0, 0))):
        values, bound, bounds, steps = linalg.eigvalsh(np.zeros((0, 0)), b)
        assert (values.shape, bound, bounds.shape, steps) == ((0,), 0, (0,), 0)
        found = linalg.eigh(np.zeros((0, 0), complex), b, dtype="mp")
        assert found.vectors.shape == (0, 0) and found.error_bounds.shape == (0,)
    for a in (np.zeros((3, 3)), np.zeros((3, 3), complex), ozaki.mparray(np.zeros((3, 3)))):
        for found in (linalg.eigvalsh(a), linalg.eigh(a), linalg.eigh(a, np.eye(3))):
            assert found.values.tolist() == [0, 0, 0] and found.error_bound == 0


def test_operands_stay_as_they_are_and_results_are_those_of_other_layouts():
    big = np.random.default_rng(1).standard_normal((12, 12))
    big.flags.writeable = False
    before, a, b = big.copy(), big[::2, ::2], np.eye(6)[:, ::-1][:, ::-1]
    wanted = linalg.eigvalsh(a.copy(), b.copy())
    same(wanted, linalg.eigvalsh(a, b))
    same(wanted, linalg.eigvalsh(np.asfortranarray(a), b))
    same(wanted, linalg.eigvalsh(a.T, b, lower=False))
    assert (big == before).all()


def test_results_keep_their_items():
    found = linalg.eigh(np.diag([1.0, 3.0]))
    values, vectors, bound, angles, steps = found
    assert (values is found.values, vectors is found.vectors, angles is found.vector_bounds) == (True,) * 3
    assert bound == found.error_bound and steps == found.iterations and type(found).__name__ == "Eigen"
    assert found._replace(values=0).error_bounds is found.error_bounds
    assert linalg.eigvalsh(np.diag([1.0, 3.0]))._fields == ("values", "error_bound", "error_bounds", "iterations")


@pytest.mark.parametrize("dtype", ["float32", "complex64", "mp3"])
def test_bounds_include_the_rounding_of_each_eigenvalue(dtype):
    a = hermitian(_NORMAL[:5, :5])
    for function in (linalg.eigh, linalg.eigvalsh):
        found = function(a, accuracy=200, dtype=dtype)
        check_values(found, exact_eigen(a)[0])
        assert found.error_bounds.min() < found.error_bound / 2  # a small eigenvalue loses less


@pytest.mark.parametrize("subset", [(0, 0), [2, 4], np.array([6, 7])], ids=str)
@pytest.mark.parametrize("name", ["complex", "hilbert", "graded"])
def test_some_eigenvalues(name, subset):
    """They are those of all eigenvalues, and bounds are relative to the largest of all."""
    a = MATRICES[name]
    first, last = subset
    places = slice(first, last + 1)
    for function in (linalg.eigh, linalg.eigvalsh):
        for usual, options in (
            (2.0**-52, {}),
            (2.0**-150, {"accuracy": 150, "dtype": "mp"}),
            (2.0**-23, {"lower": False, "accuracy": "fp32", "dtype": "complex64"}),
        ):
            found, every = (function(a, **options, subset_by_index=some) for some in (subset, None))
            assert found.error_bound == found.error_bounds.max() <= usual
            with workprec(BITS):
                exact = exact_values(name)
                for x, y, bound in zip(fractions(found.values), exact[places], found.error_bounds, strict=True):
                    assert abs(number(x) - y) <= mpf(float(bound)) * max(map(abs, exact))
            if function is linalg.eigh:
                assert (found.values == every.values[places]).all()
                assert found.vectors.shape == (8, last + 1 - first)
                assert (found.vectors == every.vectors[:, places]).all()
                assert np.allclose(found.vector_bounds, every.vector_bounds[places], rtol=1e-9, atol=0)
    rounded, every = (linalg.eigvalsh(a, subset_by_index=some, reproducible=True) for some in (subset, None))
    assert (rounded.values == every.values[places]).all() and (rounded.error_bounds == every.error_bounds[places]).all()


def test_only_eigenvalues_that_are_wanted_need_their_accuracy():
    a = np.ones((6, 6)) + np.diag([0, 0, 0, 0, 1.0, 2.0])  # of which 0 is an eigenvalue thrice
    for function in (linalg.eigh, linalg.eigvalsh):
        found = function(a, accuracy=RELATIVE, subset_by_index=(3, 5))
        check_values(found, exact_eigen(a)[0][3:], relative=True)
        assert found.error_bound <= 2.0**-52
    huge = np.diag([1e-30, 1e200, 3.0])
    assert linalg.eigvalsh(huge, subset_by_index=(0, 1), accuracy=RELATIVE, dtype="float32").values.tolist() == [
        np.float32(1e-30),
        3.0,
    ]
    with pytest.raises(OverflowError, match=r"^dtype: an element of the result is too large for float32"):
        linalg.eigvalsh(huge, subset_by_index=(0, 2), accuracy=RELATIVE, dtype="float32")
    found = linalg.eigvalsh(huge, subset_by_index=(1, 1), reproducible=True, dtype="float32")
    assert found.values == [3.0] and 0 < found.error_bound < 1e-40


@pytest.mark.parametrize("function", [linalg.eigh, linalg.eigvalsh])
@pytest.mark.parametrize("b", [None, np.eye(6) * 2 + np.ones((6, 6))], ids=["one", "pair"])
def test_singular_matrices_are_refused_before_many_bits(function, b, monkeypatch):
    """An exact determinant proves that an eigenvalue is zero; hundreds of bits would take seconds."""
    correct = HermitianDecomposition.correct

    def few_bits(self, tolerance):
        assert tolerance > 2.0**-200, "hundreds of bits of an eigenvalue that is known to be zero"
        correct(self, tolerance)

    monkeypatch.setattr(HermitianDecomposition, "correct", few_bits)
    cycle = 2 * np.eye(6) - np.roll(np.eye(6), 1, 0) - np.roll(np.eye(6), -1, 0)
    low = np.outer(np.arange(1.0, 7), np.arange(1.0, 7))
    phases = 1j ** np.arange(6)
    for a in (cycle, low, phases[:, None] * cycle * phases.conj(), ozaki.mparray(low).ldexp(-3000)):
        for subset in (None, (0, 5)):
            with pytest.raises(ValueError, match=r"^accuracy: an eigenvalue is zero"):
                function(a, b, accuracy=Accuracy("relative", 1e-10), subset_by_index=subset)


def test_a_zero_that_cannot_be_decided_does_not_matter_where_it_is_not_wanted(monkeypatch):
    monkeypatch.setattr("ozaki.linalg.nearest.eigenvalues.AFFORDABLE", 0)
    a = np.ones((3, 3)) + np.diag([0, 0, 1.0])
    with pytest.raises(np.linalg.LinAlgError, match=r"^reproducible: eigenvalue 0 is 0"):
        linalg.eigvalsh(a, reproducible=True)
    found = linalg.eigvalsh(a, reproducible=True, subset_by_index=(1, 2))
    for x, y in zip(found.values, exact_eigen(a)[0][1:], strict=True):
        assert x == float(y)


@pytest.mark.parametrize("function", [linalg.eigh, linalg.eigvalsh])
def test_places_that_are_none_are_refused(function):
    for n, subset in ((3, (-1, 2)), (3, (2, 1)), (3, (0, 3)), (0, (0, 0))):
        with pytest.raises(ValueError, match=r"^subset_by_index: .*; expected \(first, last\) with 0 <= first"):
            function(np.eye(n), subset_by_index=subset)
    for subset in (2, (0, 1.5), (0, 1, 2), "01", (0,)):
        with pytest.raises(TypeError, match=r"^subset_by_index: .*; expected two integers"):
            function(np.eye(3), subset_by_index=subset)
    assert function(np.zeros((0, 0))).values.shape == (0,)
