"""Eigenvalues and singular values of stacks that are found at once: bounds hold by exact elimination of fractions."""

from fractions import Fraction
from types import SimpleNamespace

import mpmath
import numpy as np
import pytest
from exact_linalg import eigenvalues_below, fractions

import ozaki
from ozaki import Accuracy, linalg
from ozaki.linalg.spectra import eigh, eigvalsh, svd

RNG = np.random.default_rng(16)
RELATIVE = Accuracy("relative", 2.0**-53)


def hermitian(a):
    """The Hermitian matrices with these lower triangles and real diagonals."""
    lower = np.tril(a, -1)
    return lower + lower.conj().swapaxes(-1, -2) + a.real * np.eye(a.shape[-1], dtype=a.real.dtype)


def drawn(*shape):
    return RNG.standard_normal(shape)


STACKS = {
    "random": drawn(6, 5, 5),
    "complex": drawn(4, 3, 3) + 1j * drawn(4, 3, 3),
    "complex, single": (drawn(3, 3, 3) + 1j * drawn(3, 3, 3)).astype("complex64"),
    "single": drawn(4, 5, 5).astype("float32"),
    "1 x 1": drawn(3, 1, 1),
    "2 x 2, two axes": drawn(2, 3, 2, 2),
    "of all sizes": np.ldexp(drawn(6, 3, 3), np.array([0, 1010, -1040, 700, -990, -300])[:, None, None]),
    "graded": np.ldexp(drawn(3, 5, 5), np.arange(5)[:, None] * 30 - np.arange(5) * 30),
    "values nearly meet": np.stack(
        [np.diag([1.0, 1.0 + 2.0**-k, 3.0]) + 2.0**-40 for k in (10, 20, 30, 40, 45, 50, 52)]
    ),
    "multiple and none": np.stack([np.eye(4), np.zeros((4, 4)), np.ones((4, 4)), np.diag([1.0, 1, 2, 3]), drawn(4, 4)]),
}

TARGETS = {"single": 1.3e-7, "complex, single": 1.3e-7, "of all sizes": 1e-10}
"""What bounds are below, if not the usual: 2**-1040 is subnormal."""


def parts(x):
    """The Hermitian matrix of fractions whose eigenvalues are those of x, each twice."""
    real, imag = fractions(x.real), fractions(x.imag)
    return np.block([[real, -imag], [imag, real]])


def hold(matrix, values, bounds, places, relative=False):
    """Whether the eigenvalues of a matrix, each twice in one of fractions, lie within bounds of values, ascending."""
    near, bounds = fractions(values), [Fraction(float(bound)) for bound in bounds]
    exact = [abs(value) / (1 - bound) for value, bound in zip(near, bounds, strict=True)]  # at most
    largest = max(abs(value) for value in near) / (1 - max(bounds))
    for value, bound, size, place in zip(near, bounds, exact, places, strict=True):
        error = bound * (size if relative else largest) + Fraction(2) ** -1200  # no pivot is zero then
        assert eigenvalues_below(matrix, value - error) <= 2 * place
        assert eigenvalues_below(matrix, value + error) >= 2 * (place + 1)
    return True


@pytest.mark.parametrize("name", STACKS)
def test_bounds_of_eigenvalues(name):
    a = hermitian(STACKS[name])
    found = linalg.eigvalsh(a)
    assert found.values.shape == found.error_bounds.shape == a.shape[:-1] and found.values.dtype == a.real.dtype
    assert (found.error_bounds.max(axis=-1) == found.error_bound).all()
    assert found.error_bound.max() < TARGETS.get(name, 2.3e-16)
    for index in np.ndindex(a.shape[:-2]):
        assert hold(parts(a[index]), found.values[index], found.error_bounds[index], range(a.shape[-1]))


def number(x, i, j):
    """Element (i, j) of an array or an `MPArray` of complex numbers, in mpmath's."""
    return mpmath.mpc(*(mpmath.mpf(part.numerator) / part.denominator for part in (x.real[i, j], x.imag[i, j])))


@pytest.mark.parametrize("name", STACKS)
def test_bounds_of_eigenvectors(name):
    a = hermitian(STACKS[name])
    found, values = linalg.eigh(a), linalg.eigvalsh(a)
    assert found.vectors.dtype == a.dtype and found.vector_bounds.shape == a.shape[:-1]
    both = (found.error_bounds + values.error_bounds) * abs(values.values).max(axis=-1, keepdims=True)
    assert (abs(found.values - values.values) <= both * 1.001).all()
    with mpmath.workprec(400):
        for index in np.ndindex(a.shape[:-2]):
            exact = linalg.eigh(ozaki.mparray(a[index]), accuracy=150)
            x, y = (ozaki.mparray(each) for each in (found.vectors[index], exact.vectors))
            x, y = (SimpleNamespace(real=fractions(each.real), imag=fractions(each.imag)) for each in (x, y))
            for j in range(a.shape[-1]):
                if not np.isfinite(found.vector_bounds[index][j]):
                    continue
                assert exact.vector_bounds[j] < 1e-30
                u, v = ([number(each, i, j) for i in range(a.shape[-1])] for each in (x, y))
                cosine = abs(mpmath.fdot(u, v, conjugate=True)) / mpmath.norm(u) / mpmath.norm(v)
                sine = mpmath.sqrt(max(0, 1 - cosine**2))
                assert sine <= found.vector_bounds[index][j] + 1e-30
    if "random" in name or "complex" in name:
        assert found.vector_bounds.max() < (1e-6 if "single" in name else 1e-15)


@pytest.mark.parametrize("columns", [1, 2, 5])
@pytest.mark.parametrize("name", STACKS)
def test_bounds_of_singular_values(name, columns):
    a = STACKS[name][..., :columns]
    m, n = a.shape[-2:]
    tall, wide = linalg.svdvals(a), linalg.svdvals(a.conj().swapaxes(-1, -2))
    assert tall.values.dtype == wide.values.dtype == a.real.dtype
    both = (tall.error_bounds + wide.error_bounds) * tall.values.max(axis=-1, keepdims=True)
    assert (abs(tall.values - wide.values) <= both * 1.001).all()
    assert tall.error_bound.max() < TARGETS.get(name, 2.3e-16)
    for index in np.ndindex(a.shape[:-2]):
        matrix = np.zeros((m + n, m + n), a.dtype)
        matrix[:m, m:], matrix[m:, :m] = a[index], a[index].conj().T
        values, bounds = tall.values[index][::-1], tall.error_bounds[index][::-1]
        assert hold(parts(matrix), values, bounds, range(m, m + n))


@pytest.mark.parametrize("relative", [False, True])
def test_random_ones_are_found_at_once(relative, monkeypatch):
    def refused(*_, **__):
        raise AssertionError

    monkeypatch.setattr(eigvalsh, "_of_one", refused)
    monkeypatch.setattr(eigh, "_of_one", refused)
    monkeypatch.setattr(svd, "_values_of_one", refused)
    options = {"accuracy": RELATIVE} if relative else {}
    a = drawn(50, 6, 6)
    with ozaki.recording() as run:
        values, singular = linalg.eigvalsh(hermitian(a), **options), linalg.svdvals(a[..., :5], **options)
        vectors = linalg.eigh(hermitian(a), **options)
    assert np.array_equal(vectors.values, values.values) and vectors.iterations == 1
    assert (vectors.vector_bounds < 1e-13).all() and vectors.vectors.flags.c_contiguous
    assert run.inside == 0 and values.iterations == singular.iterations == 0
    assert max(values.error_bound.max(), singular.error_bound.max()) < 2.3e-16
    for found, matrices in ((values, hermitian(a)), (singular, None)):
        assert found.values.flags.c_contiguous
        if matrices is not None and relative:
            for index in range(5):
                assert hold(parts(matrices[index]), found.values[index], found.error_bounds[index], range(6), True)


def test_others_are_found_one_by_one():
    a = hermitian(drawn(4, 4, 4))
    a[1] = np.diag([1.0, 1.0, 2.0, 2.0])
    found = linalg.eigvalsh(a)
    for index in range(4):
        alone = linalg.eigvalsh(a[index])
        assert np.array_equal(found.values[index], alone.values)
        assert isinstance(alone.error_bound, float) and found.error_bound[index] == alone.error_bound
    assert found.values[1].tolist() == [1, 1, 2, 2]
    a[2, 0, 0] = np.nan
    with pytest.raises(ValueError, match=r"element \[2, 0, 0\] is nan"):
        linalg.eigvalsh(a)
    with pytest.raises(OverflowError, match=r"too large for float32.*\(matrix \[3\] of the stack\)"):
        linalg.svdvals(np.ldexp(drawn(4, 3, 3), np.array([0, 0, 0, 300])[:, None, None]), dtype="float32")


@pytest.mark.full
def test_fuzzed_bounds():
    for _ in range(60):
        n, kind = int(RNG.integers(1, 6)), int(RNG.integers(4))
        a = drawn(4, n, n) + 1j * drawn(4, n, n) * (kind == 1)
        if kind == 2:
            a = np.ldexp(a.real, RNG.integers(-200, 200, (4, n, n)))
        if kind == 3:
            a = RNG.integers(-3, 4, (4, n, n)) * 2.0 ** RNG.integers(-30, 30)
        a = hermitian(a if kind == 1 else a.real)
        found = linalg.eigvalsh(a)
        for x, values, bounds in zip(a, found.values, found.error_bounds, strict=True):
            assert hold(parts(x), values, bounds, range(n))
