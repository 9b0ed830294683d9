"""Singular values, condition numbers, ranks and pseudoinverses against mpmath at high precision, and exact ranks."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from tiers import some_first

import ozaki
from ozaki import Accuracy, linalg
from ozaki.linalg.spectra import graded, pinv, problem, singular, svd

RNG = np.random.default_rng(58)


def hilbert(m, n):
    return 1 / (1 + np.add.outer(np.arange(float(m)), np.arange(float(n))))


def kahan(n, s=0.5):
    c = (1 - s * s) ** 0.5
    return np.diag(s ** np.arange(n)) @ (np.triu(np.full((n, n), -c), 1) + np.eye(n))


def orthogonal(n):
    return np.linalg.qr(RNG.standard_normal((n, n)))[0]


def clustered(n):
    return orthogonal(n) * np.array([1.0, 1 + 1e-9, 1 + 1e-14, 0.5, 0.5, 1e-12] + [1e-13] * (n - 6)) @ orthogonal(n)


LOW = RNG.integers(-5, 6, (7, 2)) @ RNG.integers(-5, 6, (2, 5))

MATRICES = {
    "normal": RNG.standard_normal((6, 6)),
    "tall": RNG.standard_normal((7, 4)),
    "wide": RNG.standard_normal((3, 6)),
    "complex": RNG.standard_normal((4, 5)) + 1j * RNG.standard_normal((4, 5)),
    "hilbert": hilbert(8, 8),
    "tall hilbert": hilbert(9, 5),
    "kahan": kahan(7),
    "vandermonde": np.vander(np.linspace(0, 1, 9), 7),
    "graded rows": RNG.standard_normal((5, 5)) * 10.0 ** np.arange(0, -50, -10)[:, None],
    "graded columns": RNG.standard_normal((6, 4)) * 10.0 ** np.arange(0, -40, -10),
    "clustered": clustered(8),
    "orthogonal": orthogonal(5),
    "columns of an orthogonal one": orthogonal(6)[:, :3],
    "identity": np.eye(4),
    "ones": np.ones((5, 3)),
    "integers of rank 2": LOW,
    "complex of rank 2": LOW.T * (1 + 2j),
    "zeros": np.zeros((3, 2)),
    "one": np.array([[-3.0]]),
    "complex one": np.array([[3 - 4j]]),
    "row": np.array([[3.0, 0.0, 4.0]]),
    "diagonal": np.diag([1.0, 0.0, -2.0, 1e-300]),
    "huge": RNG.standard_normal((3, 3)) * 1e307,
    "tiny": RNG.standard_normal((3, 3)) * 1e-307,
    "single": RNG.standard_normal((4, 3)).astype(np.float32),
    "spans": ozaki.mparray(RNG.standard_normal((3, 3))).ldexp(np.array([0, -900, 2000])),
}


def judged(x):
    return ozaki.mparray(x).to_mpmath()


def exact_svd(a):
    """u, s and vh of mpmath, thin, s descending."""
    m = judged(a)
    with mpmath.workprec(1600):
        u, s, vh = mpmath.svd_c(m if m.rows >= m.cols else m.H)
        return (u, s, vh) if m.rows >= m.cols else (vh.H, s, u.H)


EXACT = {}


@pytest.fixture
def exact(name):
    if name not in EXACT:
        EXACT[name] = exact_svd(MATRICES[name])
    return EXACT[name]


def check_values(values, bounds, exact, relative=False):
    with mpmath.workprec(1600):
        values, largest = judged(values.reshape(-1, 1)), exact[0]
        for i, bound in enumerate(bounds):
            assert abs(values[i] - exact[i]) <= float(bound) * (
                exact[i] if relative else largest
            ) + largest * mpmath.ldexp(1, -1300)


def sine(x, y):
    """The sine of the angle between two vectors of mpmath."""
    inner = mpmath.fsum(mpmath.conj(p) * q for p, q in zip(x, y, strict=True))
    rest = [p - q * mpmath.conj(inner) for p, q in zip(x, y, strict=True)]  # of x that y, of length 1, has no part of
    return mpmath.sqrt(mpmath.fsum(abs(p) ** 2 for p in rest) / mpmath.fsum(abs(p) ** 2 for p in x))


@pytest.mark.parametrize("options", [{}, {"accuracy": 200, "dtype": "mp"}], ids=["default", "200 bits"])
@pytest.mark.parametrize("name", some_first(16, MATRICES))
def test_values(name, options, exact):
    found = linalg.svdvals(MATRICES[name], **options)
    check_values(found.values, found.error_bounds, exact[1])
    assert found.error_bound == found.error_bounds.max()
    single = name == "single" and not options
    assert found.error_bound <= (2.0**-24 if single else 2.0 ** -(options.get("accuracy", 53) - 1))


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("options", [{}, {"accuracy": 200, "dtype": "mp"}], ids=["default", "200 bits"])
@pytest.mark.parametrize("name", some_first(9, [name for name in MATRICES if name not in ("spans", "huge")]))
def test_decompositions(name, full, options, exact):
    a = MATRICES[name]
    u, s, vh, bound, bounds, angles, _ = linalg.svd(a, full, **options)
    (m, n), k = a.shape, min(a.shape)
    assert u.shape == (m, m if full else k) and s.shape == (k,) and vh.shape == (n if full else k, n)
    assert angles.shape == (2, k) and bounds.shape == (k,) and bound == bounds.max()
    check_values(s, bounds, exact[1])
    near = 2e-6 if name == "single" and not options else 2.0**-190 if options else 2e-14
    with mpmath.workprec(1600):
        of_u, of_s, of_v = judged(u), judged(s.reshape(-1, 1)), judged(vh)
        assert mpmath.mnorm(of_u.H * of_u - mpmath.eye(of_u.cols)) <= near
        assert mpmath.mnorm(of_v * of_v.H - mpmath.eye(of_v.rows)) <= near
        rest = of_u[:, :k] * mpmath.diag([of_s[i] for i in range(k)]) * of_v[:k, :] - judged(a)
        assert mpmath.mnorm(rest) <= near * exact[1][0]
        for j in range(k):
            for got, wanted, angle in (
                (of_u[:, j], exact[0][:, j], angles[0, j]),
                (of_v[j, :].H, exact[2][j, :].H, angles[1, j]),
            ):
                assert angle == np.inf or sine(list(got), list(wanted)) <= float(angle) + mpmath.ldexp(1, -1400)
    if name in ("normal", "tall", "wide", "complex", "kahan"):
        assert angles.max() <= near


@pytest.mark.parametrize("bits", [53, 300])
@pytest.mark.parametrize(
    "name", some_first(2, ["hilbert", "kahan", "graded rows", "graded columns", "clustered", "wide", "complex"])
)
def test_relative_accuracy(name, bits, exact):
    found = linalg.svdvals(MATRICES[name], accuracy=Accuracy("relative", 2.0**-bits), dtype="mp")
    check_values(found.values, found.error_bounds, exact[1], relative=True)
    assert found.error_bound < 2.0**-bits
    if name != "spans":
        found = linalg.svd(MATRICES[name], False, accuracy=Accuracy("relative", 2.0**-53))
        check_values(found.s, found.error_bounds, exact[1], relative=True)
        assert found.error_bound <= 2.0**-52


@pytest.mark.parametrize("power", [30, 400])
@pytest.mark.parametrize("shape", some_first(2, [(6, 6), (7, 4), (5, 7)]))
@pytest.mark.parametrize("complex_one", some_first(1, [False, True]))
def test_columns_or_rows_far_apart_take_few_corrections(shape, power, complex_one, rng):
    """As many bits as powers of two span would take dozens of them, and seconds, or not be had at all."""
    m, n = shape
    a = rng.standard_normal((m, n)) + 1j * rng.standard_normal((m, n)) * complex_one
    a = a if complex_one else a.real
    powers = np.rint(np.linspace(power, -power, min(m, n)))
    powers[1] = powers[0]  # alike beside those that are not
    a = a * 2.0 ** rng.permutation(powers) if m >= n else a * 2.0 ** rng.permutation(powers)[:, None]
    for x in (a, a.T) if m == n else (a,):
        exact = exact_svd(x)
        for bits, dtype in ((53, "float64"), (200, "mp")):
            found = linalg.svdvals(x, accuracy=Accuracy("relative", 2.0**-bits), dtype=dtype)
            assert found.iterations <= bits // 20
            check_values(found.values, found.error_bounds, exact[1], relative=True)
            assert found.error_bound <= 2.0 ** (1 - bits)
        for full in (False, True):
            u, s, vh, *_, angles, _ = linalg.svd(x, full, accuracy=Accuracy("relative", 2.0**-53))
            assert angles.max() < 1e-9
            with mpmath.workprec(1600):
                of_u, of_v = judged(u), judged(vh)
                assert mpmath.mnorm(of_u.H * of_u - mpmath.eye(of_u.cols)) <= 1e-14
                assert mpmath.mnorm(of_v * of_v.H - mpmath.eye(of_v.rows)) <= 1e-14
                for j in range(len(s)):
                    assert sine(list(of_u[:, j]), list(exact[0][:, j])) <= float(angles[0, j])
                    assert sine(list(of_v[j, :].H), list(exact[2][j, :].H)) <= float(angles[1, j])


def rows_and_columns_apart(shape, power, is_complex, columns=True):
    rng, (m, n) = np.random.default_rng(0), shape
    b = rng.standard_normal((m, n)) + 1j * rng.standard_normal((m, n)) * is_complex
    powers = rng.integers(-power, power, m)[:, None] + rng.integers(-power, power, n) * columns
    return ozaki.mparray(b if is_complex else b.real).ldexp(powers)


@pytest.mark.parametrize("power", [60, 300])
@pytest.mark.parametrize("shape", some_first(2, [(5, 5), (6, 4), (3, 7)]))
@pytest.mark.parametrize("is_complex", some_first(1, [False, True]))
def test_rows_and_columns_far_apart_take_few_corrections(shape, power, is_complex, monkeypatch):
    """Corrections of vectors in float64 would take dozens, of as many bits as powers of two span, or not be had."""
    monkeypatch.delattr(svd, "SingularDecomposition")
    for columns in (True, False):
        a = rows_and_columns_apart(shape, power, is_complex, columns)
        if not columns and shape[0] < shape[1]:
            a = a.swapaxes(0, 1)
        with mpmath.workprec(5000):
            m = judged(a)
            u, exact, vh = mpmath.svd_c(m if m.rows >= m.cols else m.H)
            u, vh = (u, vh) if m.rows >= m.cols else (vh.H, u.H)
        for bits in (53, 150):
            found = linalg.svdvals(a, accuracy=Accuracy("relative", 2.0**-bits), dtype="mp")
            assert found.iterations <= 6
            with mpmath.workprec(5000):
                check_values(found.values, found.error_bounds, list(exact), relative=True)
        found = linalg.svd(a, accuracy=Accuracy("relative", 2.0**-53), dtype="mp")
        assert found.vector_bounds.max() < 1e-9
        with mpmath.workprec(5000):
            of_u, of_v = judged(found.u), judged(found.vh)
            for j in range(len(exact)):
                assert sine(list(of_u[:, j]), list(u[:, j])) <= float(found.vector_bounds[0, j])
                assert sine(list(of_v[j, :].H), list(vh[j, :].H)) <= float(found.vector_bounds[1, j])


def test_columns_that_float64_takes_for_dependent_in_large_rows():
    """A row that is far above the others is all that float64 sees; which column is large there decides their order."""
    large = np.array([[-1, -1, -5, 1], [-2, 3, 2, 3], [2, 0, 3, 3], [-1, 1, 0, 4.0]])
    triangular = np.array([[7, 4, -2, 1], [0, 9, 0, 1], [0, 6, 4, 0], [0, -2, 0, 1.0]])
    for b, columns in ((large, [95, -39, 113, -65]), (triangular, [-12, -52, -178, 224])):
        a = ozaki.mparray(b).ldexp(np.array([[-300], [-300], [300], [-300]]) + np.array(columns))
        found = linalg.svdvals(a, accuracy=Accuracy("relative", 2.0**-53), dtype="mp")
        assert found.iterations <= 4
        with mpmath.workprec(5000):
            values = mpmath.svd_c(judged(a), compute_uv=False)
            check_values(found.values, found.error_bounds, list(values), relative=True)


def test_rows_and_columns_too_far_apart_are_refused_at_once(monkeypatch):
    monkeypatch.delattr(svd, "SingularDecomposition")
    dependent = np.array([[1.0, 2, 3], [4, 5, 6], [7, 8, 9]])
    regular = np.array([[1.0, 2, 3], [4, 5, 6], [7, 8, 10]])
    for b, power in ((dependent, 40), (regular, 600)):
        rows, columns = np.array([[0], [-power], [-2 * power]]), np.array([0, power, -power])
        with pytest.raises(ValueError, match=r"^accuracy: singular value 2 is zero, .* Accuracy\('normwise'"):
            linalg.svdvals(ozaki.mparray(b).ldexp(rows + columns), accuracy=Accuracy("relative", 2.0**-53))


def test_rows_far_apart_that_matter_little_take_float64_alone(monkeypatch):
    monkeypatch.setattr(graded, "GradedDecomposition", None)
    a = rows_and_columns_apart((12, 4), 20, False, columns=False).astype("float64")
    found = linalg.svdvals(a, accuracy=Accuracy("relative", 2.0**-53))
    check_values(found.values, found.error_bounds, exact_svd(a)[1], relative=True)
    assert found.iterations <= 1


def test_equal_values_of_columns_far_apart(rng):
    q = np.array([[1.0, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]])  # orthogonal, twice that
    a = q * 2.0 ** np.array([300, -300, 300, -300])
    found = linalg.svd(a, accuracy=Accuracy("relative", 2.0**-300), dtype="mp")
    assert [*map(float, found.s.to_fractions())] == pytest.approx([2.0**301] * 2 + [2.0**-299] * 2, rel=1e-15)
    assert found.error_bound <= 2.0**-300 and found.iterations <= 8
    turned = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    values = linalg.svdvals(
        turned * 2.0 ** np.array([300, -300, 300, -300]), accuracy=Accuracy("relative", 1e-60), dtype="mp"
    )
    check_values(
        values.values, values.error_bounds, exact_svd(turned * 2.0 ** np.array([300, -300, 300, -300]))[1], True
    )


@pytest.mark.parametrize("is_complex", [False, True])
def test_small_values_of_usual_matrices_take_float64_alone(is_complex, rng, monkeypatch):
    def no_many_bits(*_):
        raise AssertionError("multiprecision numbers for a matrix of a small condition number")

    monkeypatch.setattr(singular.SingularDecomposition, "_to_multiprecision", no_many_bits)
    a = orthogonal(12) * np.linspace(1, 0.01, 12) @ orthogonal(12) * (1 + 2j if is_complex else 1)
    exact = exact_svd(a)[1]
    found = linalg.svdvals(a, accuracy=Accuracy("relative", 2.0**-53))
    check_values(found.values, found.error_bounds, exact, relative=True)
    number, least = linalg.cond(a), linalg.norm(a, -2)
    with mpmath.workprec(1600):
        assert abs(mpmath.mpf(float(number.value)) / (exact[0] / exact[11]) - 1) <= number.error_bound < 2.0**-52
        assert abs(mpmath.mpf(float(least.value)) / exact[11] - 1) <= least.error_bound < 2.0**-52


@pytest.mark.parametrize("complex_one", [False, True])
def test_columns_beyond_the_range_of_float64_apart(complex_one, rng):
    """Squares of such ratios, and of complex numbers quotients by cosines, have nothing left in float64."""
    for _ in range(2):
        a = rng.standard_normal((6, 6)) + 1j * rng.standard_normal((6, 6)) * complex_one
        a = ozaki.mparray(a if complex_one else a.real).ldexp(rng.permutation([0, -328, -1583, -1582, -1583, -2100]))
        found = linalg.svdvals(a, accuracy=Accuracy("relative", 2.0**-53), dtype="mp")
        assert found.iterations <= 3
        with mpmath.workprec(6000):
            values = mpmath.svd_c(judged(a), compute_uv=False)
            check_values(found.values, found.error_bounds, list(values), relative=True)


def test_vectors_of_values_that_have_few_bits():
    a = np.array([[3.0, 4.0], [4.0, -3.0]]) * [1, 2.0**-30]
    found = linalg.svd(a, accuracy=Accuracy("relative", 2.0**-53))
    assert found.s.tolist() == [5, 5 * 2.0**-30]
    assert abs(abs(found.u) - [[0.6, 0.8], [0.8, 0.6]]).max() < 2.0**-52 and found.vector_bounds.max() < 2.0**-50


@np.errstate(all="ignore")
def test_gaps_of_values_at_a_power_of_two(rng):
    """Of 1 2^1 and 1.99 2^0 the second one has the smaller exponent, of 1 2^1 and 0.99 2^1 none, of 2 2^0 the first."""
    a = np.eye(3) * [1 + 2.0**-40, 1, 2.0**-30] + 2.0**-60 * rng.standard_normal((3, 3)) * [1, 1, 2.0**-30]
    found = graded.GradedDecomposition(a, 2.0**-60)
    zero = (None, np.zeros(3))
    before = found.vector_bounds(zero, zero)
    assert before.max() < 1
    shift = np.array([1, 0, 0])
    found.values, found.exponents = found.values.ldexp(shift), found.exponents - shift
    found._near = found._near * 2.0**shift
    assert found.vector_bounds(zero, zero).tolist() == before.tolist()


def test_close_values_that_float64_does_not_tell_apart():
    signs = np.array([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]])
    turn = np.array([[1, 2, 3, 4], [-2, 1, -4, 3], [-3, 4, 1, -2], [-4, -3, 2, 1]])
    shares = [2**80 + 5, 2**80 + 3, 2**80 + 2, 2**80]
    a = np.zeros((5, 5), object)
    a[:4, :4], a[4, 4] = signs @ np.diag(shares) @ turn, 1
    found = linalg.svdvals(ozaki.mparray(a), accuracy=Accuracy("relative", 2.0**-150), dtype="mp")
    with mpmath.workprec(1000):
        exact = [2 * mpmath.sqrt(30) * share for share in shares] + [mpmath.mpf(1)]
        check_values(found.values, found.error_bounds, exact, relative=True)
    assert found.iterations <= 10


def reflected(shares, is_complex, rng):
    """A matrix of known singular values: reflections by vectors of 2^k units, which are exact, on both sides."""
    n = len(shares)
    a = ozaki.mparray([[x if i == j else 0 for j in range(n)] for i, x in enumerate(shares)], bits=4000)
    for left in [True, False] * 3:
        v = rng.choice([1, -1, 1j, -1j] if is_complex else [1.0, -1.0], n)
        v = v * (rng.permutation(n) < 2 ** rng.integers(1, n.bit_length()))
        x = ozaki.mparray(np.eye(n) - np.outer(v, v.conj()) * (2 / (abs(v) ** 2).sum()))
        a = ozaki.matmul(*((x, a) if left else (a, x)), accuracy="exact", dtype="mp")
    return a


def check_places(found, shares):
    values = (found.s if hasattr(found, "s") else found.values).to_fractions()
    for x, exact, bound in zip(values, shares, found.error_bounds, strict=True):
        assert abs(x - exact) <= Fraction(float(bound)) * shares[0]


@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("function", ["svdvals", "svd"])
@pytest.mark.parametrize(
    "shares",
    [
        [1 + Fraction(i * i, 2**149) for i in range(7, -1, -1)],
        [1 + Fraction(1, 2 ** (181 // (8 - i))) for i in range(8)],
        [1 + Fraction(1, 2**96), *[Fraction(1)] * 6, 1 - Fraction(1, 2**40)],
    ],
    ids=["close", "closer and closer", "equal"],
)
def test_close_values_of_matrices_without_scaling(shares, function, is_complex):
    """What turns vectors of close values is large, and squares and small terms of it were lost in float64."""
    a = reflected(shares, is_complex, np.random.default_rng(0))
    found = getattr(linalg, function)(a, accuracy=300, dtype="mp")
    check_places(found, shares)
    assert found.error_bound < 2.0**-300 and found.iterations <= 12
    if function == "svd":
        gram = ozaki.matmul(found.vh, found.vh.conj().swapaxes(0, 1), accuracy="exact", dtype="mp")
        assert (abs((gram - np.eye(8)).astype("complex128")) < 2.0**-290).all()


@pytest.mark.parametrize("seed", some_first(6, [34, 39, 54, 56, 57, 58, *range(20)]))
def test_values_that_a_correction_in_float64_puts_out_of_order(seed):
    """Their places are those of the values in order, so the bound has to know."""
    shares = [1 + Fraction(1, 2**56), Fraction(1), Fraction(1, 2), Fraction(1, 2) - Fraction(1, 2**57)]
    found = linalg.svdvals(reflected(shares, False, np.random.default_rng(seed)), accuracy=80, dtype="mp")
    check_places(found, shares)
    assert (found.values[:-1] >= found.values[1:]).all()


def test_vectors_that_are_far_off_are_no_error(monkeypatch, rng):
    """Squares of their norms are beyond float64."""
    a = rng.standard_normal((3, 3)) * [1, 2.0**-20, 2.0**-40]
    monkeypatch.setattr(graded, "rotated", lambda b, exponents: (b * 2.0**700, exponents))
    found = linalg.svdvals(a, accuracy=Accuracy("relative", 2.0**-53))
    check_values(found.values, found.error_bounds, exact_svd(a)[1], relative=True)


def test_values_that_are_zero_have_no_relative_accuracy():
    for a in (np.zeros((2, 2)), np.diag([1.0, 0.0])):
        with pytest.raises(ValueError, match=r"^accuracy: singular value \d is zero, or too small .*'normwise', tol"):
            linalg.svdvals(a, accuracy=Accuracy("relative", 1e-10))


@pytest.mark.parametrize("shape", [(8, 8), (9, 6), (6, 9)], ids=str)
def test_dependent_columns_are_refused_before_many_bits(shape, monkeypatch):
    """An exact determinant proves that the smallest value is zero; hundreds of bits would take seconds."""

    def no_corrections(*_):
        raise AssertionError("corrections of singular values that are known to be zero")

    monkeypatch.setattr(singular.SingularDecomposition, "reach", no_corrections)
    m, n = shape
    a = np.arange(float(m * n)).reshape(m, n)
    last = min(m, n) - 1
    for x in (a, a + 1j * a, ozaki.mparray(a).ldexp(-3000)):
        for function in (linalg.svd, linalg.svdvals):
            with pytest.raises(ValueError, match=rf"^accuracy: singular value {last} is zero, or too small"):
                function(x, accuracy=Accuracy("relative", 1e-10))
        with pytest.raises(np.linalg.LinAlgError, match=r"^a: singular"):
            linalg.cond(x)
        with pytest.raises(ValueError, match=rf"^x: the norm -2 is singular value {last}, which is zero"):
            linalg.norm(x, -2)


def test_corrections_that_do_not_converge_are_refused_with_a_remedy(monkeypatch):
    monkeypatch.setattr(singular, "MOST_CORRECTIONS", 0)
    monkeypatch.setattr(problem, "MOST_CORRECTIONS", 0)
    for function in (linalg.svd, linalg.eigh):
        with pytest.raises(np.linalg.LinAlgError, match=r"^a: corrections .* do not converge; ask for a lower"):
            function(np.array([[2.0, 1.0], [1.0, 1.0]]), accuracy=300, dtype="mp")


@pytest.mark.full
def test_many_bits():
    a = RNG.standard_normal((4, 3))
    found = linalg.svdvals(a, accuracy=880, dtype="mp")
    check_values(found.values, found.error_bounds, exact_svd(a)[1])
    assert found.error_bound < 2.0**-880


@pytest.mark.parametrize("seed", some_first(3, range(20)))
def test_small_values_beside_clusters(seed):
    """A block of one value near 0 has a phase, or a sign, and clusters may gain little in a correction."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((2, 3, 3)) + 1j * rng.standard_normal((2, 3, 3)) * (seed % 2)
    left, right = np.linalg.qr(x)[0]
    a = left * rng.choice([1, 1, 1e-8, 1e-16, 1e-17, 0], 3) @ right
    for options in ({}, {"accuracy": 200, "dtype": "mp"}):
        found = linalg.svdvals(a, **options)
        check_values(found.values, found.error_bounds, exact_svd(a)[1])


def test_empty_matrices():
    for shape in ((0, 3), (2, 0), (0, 0)):
        u, s, vh, bound, *_ = linalg.svd(np.zeros(shape))
        assert (u == np.eye(shape[0])).all() and (vh == np.eye(shape[1])).all() and s.shape == (0,) and bound == 0
        u, s, vh, *_ = linalg.svd(np.zeros(shape), False, dtype="mp", accuracy=100)
        assert u.shape == (shape[0], 0) and vh.shape == (0, shape[1])
        assert linalg.svdvals(np.zeros(shape, complex)).values.dtype == np.float64


def test_values_that_a_format_does_not_hold():
    with pytest.raises(OverflowError, match="too large for float32"):
        linalg.svdvals(np.array([[1e300]]), dtype="float32")
    with pytest.raises(OverflowError, match="too small for float32"):
        linalg.svdvals(np.array([[1e-300]]), dtype="float32")
    with pytest.raises(OverflowError, match="too small for float32"):
        linalg.svdvals(np.diag([1, 1e-60]), dtype="float32", accuracy=Accuracy("relative", 1e-6))
    found = linalg.svdvals(np.diag([1e-40, 1e-42]), dtype="float32")  # subnormal
    assert 2.0**-24 < found.error_bound < 2.0**-8


def test_bad_operands():
    for function in (linalg.svd, linalg.svdvals, linalg.cond, linalg.pinv, linalg.matrix_rank):
        argument = "A" if function is linalg.matrix_rank else "a"
        for bad, message in (
            (np.zeros(3), "expected a matrix"),
            (np.array([[np.nan]]), "expected finite numbers"),
            (np.array([[1.0, np.inf]]), "expected finite numbers"),
        ):
            with pytest.raises(ValueError, match=f"^{argument}: .*{message}"):
                function(bad)
    with pytest.raises(ValueError, match=r"^p: 3; expected None, 2"):
        linalg.cond(np.eye(2), 3)
    with pytest.raises(ValueError, match=r"^a: shape \(2, 3\); expected a square"):
        linalg.cond(np.ones((2, 3)), 1)
    with pytest.raises(ValueError, match=r"^tol: -1; expected"):
        linalg.matrix_rank(np.eye(2), -1)
    with pytest.raises(ValueError, match=r"^rtol: given with tol"):
        linalg.matrix_rank(np.eye(2), 1, rtol=1)
    with pytest.raises(ValueError, match=r"^rtol: 2; expected"):
        linalg.pinv(np.eye(2), rtol=2)


def test_limits_of_all_kinds():
    a = np.array([[4.0, 1.0], [1.0, 2.0]])  # 3 + 2^(1/2) and 3 - 2^(1/2)
    for kind in (float, np.float32, np.float16, np.float64, Fraction):
        assert linalg.matrix_rank(a, kind(2.5))[:3] == linalg.matrix_rank(a, rtol=kind(0.375))[:3] == (1, 1, 1)
        assert linalg.pinv(a, rtol=kind(0.375)).rank == 1
    assert linalg.matrix_rank(a, np.int64(3))[:3] == linalg.matrix_rank(a, 3)[:3] == (1, 1, 1)
    for bad in ("0.5", [1], 1j):
        with pytest.raises(TypeError, match=r"^tol: .*; expected a number that is at least 0"):
            linalg.matrix_rank(a, bad)
        with pytest.raises(TypeError, match=r"^rtol: .*; expected a number that is at least 0"):
            linalg.matrix_rank(a, rtol=bad)
        with pytest.raises(TypeError, match=r"^rtol: .*; expected a number above 0 and below 1, or None"):
            linalg.pinv(a, rtol=bad)


def test_operands_stay_as_they_are():
    a = np.asfortranarray(RNG.standard_normal((9, 6)))[::2, ::2]
    before = a.copy()
    a.flags.writeable = False
    for function in (linalg.svd, linalg.svdvals, linalg.cond, linalg.pinv, linalg.matrix_rank):
        first, second = function(a)[0], function(before)[0]
        assert np.array_equal(first, second)
    assert (a == before).all()


# Condition numbers ---------------------------------------------------------------------------------------------------


def exact_norm(m, p):
    rows = [[abs(m[i, j]) for j in range(m.cols)] for i in range(m.rows)]
    if p == "fro":
        return mpmath.sqrt(mpmath.fsum(x * x for row in rows for x in row))
    sums = [mpmath.fsum(row) for row in (rows if abs(p) == np.inf else zip(*rows, strict=True))]
    return max(sums) if p > 0 else min(sums)


@pytest.mark.parametrize("p", [None, 2, -2, 1, -1, np.inf, -np.inf, "fro"])
@pytest.mark.parametrize(
    "name", some_first(3, ["normal", "hilbert", "one", "kahan", "graded rows", "clustered", "huge", "tall"])
)
def test_condition_numbers(name, p, exact):
    a = MATRICES[name]
    if a.shape[0] != a.shape[1] and p not in (None, 2, -2):
        return
    for options in ({}, {"accuracy": 150, "dtype": "mp"}):
        value, bound, _ = linalg.cond(a, p, **options)
        with mpmath.workprec(1600):
            if p in (None, 2, -2):
                wanted = exact[1][0] / exact[1][len(exact[1]) - 1]
                wanted = 1 / wanted if p == -2 else wanted
            else:
                m = judged(a)
                wanted = exact_norm(m, p) * exact_norm(m**-1, p)
            got = judged(value.reshape(1, 1))[0, 0]
            assert abs(got - wanted) <= bound * wanted
        assert bound <= 2.0 ** -(options.get("accuracy", 53) - 1)


@pytest.mark.parametrize("is_complex", [False, True])
def test_condition_numbers_of_ill_conditioned_matrices_take_the_inverse(is_complex, monkeypatch):
    def no_many_bits(*_):
        raise AssertionError("singular vectors in many bits, for a value that the inverse has")

    monkeypatch.setattr(singular.SingularDecomposition, "_to_multiprecision", no_many_bits)
    turn = np.kron(np.array([[1, 2], [3, -1]]), np.eye(4)) + (1j * np.eye(8) if is_complex else 0)
    matrices = (hilbert(8, 8) @ turn, turn * 10.0 ** np.arange(0, -16, -2), turn @ np.vander(np.linspace(0, 1, 8)))
    for a in matrices:
        exact = exact_svd(a)[1]
        for p in (2, -2):
            found = linalg.cond(a, p)
            with mpmath.workprec(1600):
                value = exact[0] / exact[7] if p == 2 else exact[7] / exact[0]
                assert abs(mpmath.mpf(float(found.value)) / value - 1) <= found.error_bound < 2.0**-52


def test_condition_numbers_of_many_bits():
    a = ozaki.mparray([[1, 1], [1, 1 + 2.0**-52]]).ldexp(np.array([[0, 0], [0, 0]]))
    assert linalg.cond(a, 1).error_bound < 2.0**-52
    a = ozaki.mparray([[2**250, 2**250], [2**250, 2**250 + 1]])
    for p in (1, np.inf):  # the norm times that of the inverse, of the determinant 2^250
        assert float(linalg.cond(a, p).value) == (2.0**251 + 1) * (2.0**251 + 1) / 2.0**250


def test_condition_numbers_that_are_refused():
    for a in (np.zeros((2, 2)), np.arange(9).reshape(3, 3)):
        for p in (None, 1):
            with pytest.raises(np.linalg.LinAlgError, match=r"^a: singular"):
                linalg.cond(a, p)
    with pytest.raises(np.linalg.LinAlgError, match=r"^a: no elements"):
        linalg.cond(np.zeros((0, 0)))


# Ranks ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", some_first(3, range(12)))
def test_ranks_of_integers_are_proven(seed):
    flint = pytest.importorskip("flint", reason="python-flint is not installed")
    rng = np.random.default_rng(seed)
    m, n, r = rng.integers(1, 12, 3)
    a = rng.integers(-9, 10, (m, r)) @ rng.integers(-9, 10, (r, n))
    wanted = flint.fmpz_mat(a.tolist()).rank()
    for x in (a, a.astype(float), a * 2.0**-40, a * (1 - 2j), ozaki.mparray(a)):
        rank, least, most, *_ = linalg.matrix_rank(x, 0)
        assert rank == least == most == wanted
    assert linalg.matrix_rank(a)[:3] == (wanted, wanted, wanted)


def test_ranks_above_a_tolerance():
    a = orthogonal(6) * 10.0 ** np.arange(0, -30, -5) @ orthogonal(6)
    for k in range(6):
        if k <= 3:  # smaller singular values are rounding errors
            assert linalg.matrix_rank(a, 3 * 10.0 ** (-5 * k))[:3] == (k, k, k)
            assert linalg.matrix_rank(a, rtol=3 * 10.0 ** (-5 * k))[:3] == (k, k, k)
    assert linalg.matrix_rank(hilbert(20, 20))[:3] == (np.linalg.matrix_rank(hilbert(20, 20)),) * 3
    assert linalg.matrix_rank(hilbert(20, 20), 0)[:3] == (20, 20, 20)
    assert linalg.matrix_rank(hilbert(8, 8).astype(np.float32)).most < 8
    assert linalg.matrix_rank(np.diag([1.0, 5e-324]), 0)[:3] == (2, 2, 2)
    assert linalg.matrix_rank(np.diag([1e30, 1e-40]), 1e-41)[:3] == (2, 2, 2)
    assert linalg.matrix_rank(np.zeros((3, 2)), 0)[:3] == linalg.matrix_rank(np.zeros((0, 2)))[:3] == (0, 0, 0)


def test_ranks_that_are_left_open():
    rank, least, most, bound, _ = linalg.matrix_rank(np.diag([2.0, 1.0, 1.0, 0.5]), 1.0)
    assert (least, most) == (1, 3) and least <= rank <= most and bound < 2.0**-240
    a = RNG.standard_normal((20, 15))
    a = np.concatenate([a, a], axis=1)  # of too many bits for a proof
    found = linalg.matrix_rank(a, 0)
    assert (found.rank, found.least, found.most) == (15, 15, 20)


# Pseudoinverses ------------------------------------------------------------------------------------------------------


def exact_pinv(a, rank):
    u, s, vh = exact_svd(a)
    with mpmath.workprec(1600):
        found = mpmath.matrix(vh.cols, u.rows)
        for k in range(rank):
            found += vh[k, :].H * u[:, k].H / s[k]
    return found


def check_pinv(a, found):
    wanted, got = exact_pinv(a, found.rank), judged(found.x)
    with mpmath.workprec(1600):
        assert (got.rows, got.cols) == (wanted.rows, wanted.cols)
        for j, bound in enumerate(found.error_bounds):
            sizes = [abs(wanted[i, j]) for i in range(wanted.rows)]
            missed = max(abs(wanted[i, j] - got[i, j]) for i in range(wanted.rows))
            assert missed <= float(bound) * max(sizes) + mpmath.ldexp(1, -1200)
    assert found.error_bound == found.error_bounds.max()


@pytest.mark.parametrize("options", [{}, {"accuracy": 200, "dtype": "mp"}], ids=["default", "200 bits"])
@pytest.mark.parametrize(
    "name",
    some_first(
        5,
        [
            "tall",
            "wide",
            "complex",
            "hilbert",
            "one",
            "normal",
            "tall hilbert",
            "vandermonde",
            "graded columns",
            "single",
        ],
    ),
)
def test_pseudoinverses(name, options):
    found = linalg.pinv(MATRICES[name], **options)
    check_pinv(MATRICES[name], found)
    assert found.rank == min(MATRICES[name].shape)
    assert found.error_bound <= (
        2.0**-24 if name == "single" and not options else 2.0 ** -(options.get("accuracy", 53) - 1)
    )


@pytest.mark.parametrize("dtype", ["float64", "complex128", "float32"])
@pytest.mark.parametrize("shape", [(7, 7), (9, 4)])
def test_pseudoinverses_of_usual_matrices_take_float64_alone(shape, dtype, rng, monkeypatch):
    monkeypatch.setattr(pinv, "_Regular", None)
    a = rng.standard_normal(shape) + 3 * np.eye(*shape) + (1j * rng.standard_normal(shape) if dtype[0] == "c" else 0)
    a = (a * 2.0 ** rng.integers(-20, 20, shape[1])).astype(dtype)
    found = linalg.pinv(a)
    check_pinv(a, found)
    assert found.x.dtype == dtype and found.rank == shape[1] and found.iterations >= 1
    assert found.error_bound <= (2.0**-23 if dtype == "float32" else 2.0**-52)


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128"])
def test_pseudoinverses_of_wide_matrices_take_float64_alone(dtype, monkeypatch):
    """Errors of the adjoint are relative to rows: of columns of like sizes, and a few powers of two apart."""
    monkeypatch.setattr(pinv, "_Regular", None)
    rng = np.random.default_rng(0)
    for shape, power in (((3, 7), 0), ((5, 6), 0), ((1, 4), 0), ((4, 9), 4)):
        a = rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if dtype[0] == "c" else 0)
        a = (a * 2.0 ** rng.integers(0, power + 1, (shape[0], 1))).astype(dtype)
        a[:, 0] = 0
        found = linalg.pinv(a)
        check_pinv(a, found)
        assert found.x.dtype == dtype and found.rank == shape[0] and found.iterations >= 1
        assert found.error_bound <= (2.0**-23 if dtype == "float32" else 2.0**-52)
        assert not found.x[0].any()


def test_ranks_by_a_tolerance_take_float64_alone(rng, monkeypatch):
    monkeypatch.setattr(singular.SingularDecomposition, "_to_multiprecision", None)
    a = rng.standard_normal((20, 9)) @ rng.standard_normal((9, 20))
    assert linalg.matrix_rank(a)[:3] == linalg.matrix_rank(a * (1 + 2j))[:3] == (9, 9, 9)


@pytest.mark.parametrize(
    "a", [LOW, LOW.T, LOW * (1 + 1j), hilbert(7, 7), np.diag([0.0, 3.0, 0.0])[:, :2], np.ones((1, 4))]
)
def test_truncated_pseudoinverses(a):
    for options in ({}, {"accuracy": 150, "dtype": "mp"}):
        found = linalg.pinv(a, rtol=1e-4, **options)
        check_pinv(a, found)
        assert found.rank == np.linalg.matrix_rank(a, rtol=1e-4)
        assert found.error_bound <= 2.0 ** -(options.get("accuracy", 53) - 1)


def test_pseudoinverses_of_zeros_and_nothing():
    for shape in ((0, 3), (2, 0)):
        assert linalg.pinv(np.zeros(shape)).x.shape == shape[::-1]
    x, bound, bounds, rank, _ = linalg.pinv(np.zeros((2, 3)), rtol=1e-10)
    assert (x == np.zeros((3, 2))).all() and bound == rank == 0 and bounds.shape == (2,)


def test_more_bits_than_can_be_had_are_no_singular_matrix():
    a = np.array([[2.0, 1.0], [1.0, 3.0]])
    assert linalg.cond(a, accuracy=880, dtype="mp").error_bound < 2.0**-880
    relative = Accuracy("relative", 2.0**-900)
    for call in (
        lambda: linalg.cond(a, accuracy=900, dtype="mp"),
        lambda: linalg.norm(a, -2, accuracy=900, dtype="mp"),
        lambda: linalg.svdvals(a, accuracy=relative, dtype="mp"),
    ):
        with pytest.raises(ValueError, match=r"^accuracy: too many bits of .*; ask for fewer"):
            call()


def test_pseudoinverses_that_are_refused():
    for a in (LOW, LOW.T, np.zeros((2, 2)), np.ones((2, 2))):
        with pytest.raises(np.linalg.LinAlgError, match=r"^a: neither columns nor rows are independent.* name rtol"):
            linalg.pinv(a)
    with pytest.raises(np.linalg.LinAlgError, match=r"^rtol: singular value 1 cannot be told from 0\.5 times"):
        linalg.pinv(np.diag([1, 0.5]), rtol=0.5)
    far = np.array([[2.5e130, 3.25e130], [8e-123, -7e-123], [-8e-54, 2e-58]])
    with pytest.raises(ValueError, match=r"^accuracy: out of reach, .*; scale the rows or columns of a$"):
        linalg.pinv(far, rtol=1e-6)
    assert linalg.pinv(far * np.array([[1e-120], [1e112], [1e43]]), rtol=1e-6).error_bound < 2e-16


@pytest.mark.parametrize("sizes", [(1.0, 1e200), (1.0, 1e-200), (3.0, 1e150)])
def test_pseudoinverses_of_columns_that_span_much(sizes):
    a = np.array(sizes)[:, None]
    exact = [Fraction(x) / sum(Fraction(x) ** 2 for x in sizes) for x in sizes]
    found = linalg.pinv(a, accuracy=100, dtype="mp")
    for x, wanted, bound in zip(found.x.to_fractions()[0], exact, found.error_bounds, strict=True):
        assert abs(x - wanted) <= Fraction(bound) * wanted


def test_a_row_of_zeros():
    a = np.array([[1.0, 2.0], [0.0, 0.0], [3.0, 5.0]])
    for x, found in ((a, linalg.pinv(a)), (a.T, linalg.pinv(a.T))):
        exact = np.linalg.pinv(x)
        assert abs(found.x - exact).max() < 1e-13 and found.error_bound < 2e-16
    assert (linalg.pinv(a).x[:, 1] == 0).all() and linalg.pinv(a).error_bounds[1] == 0
    assert Fraction(float(linalg.pinv(np.array([[4.0]])).x[0, 0])) == Fraction(1, 4)
