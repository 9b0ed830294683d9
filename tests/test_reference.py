"""Exact products and error measures, compared with slower and with other exact arithmetic."""

import doctest
import math
import threading
from fractions import Fraction

import flint
import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import ozaki
from ozaki import reference
from ozaki.reference import _exact
from tests.mparrays import rationals

SQUARED = [reference.row_column_error, reference.normwise_error, reference.relative_residual]
MEASURES = [reference.componentwise_error, reference.relative_error, *SQUARED]


def to_fractions(integers, exponent):
    return [[int(x) * Fraction(2) ** exponent for x in row] for row in integers]


def fractions(x):
    """The elements as an array of Fractions."""
    if isinstance(x, ozaki.MPArray):
        return rationals(x)
    return np.array([Fraction(y) for y in x.ravel().tolist()], dtype=object).reshape(x.shape)


def exact(a, b):
    """The product in rationals, the slow and obvious way."""
    rows, columns = fractions(a), fractions(b).T
    return [[sum((x * y for x, y in zip(r, c, strict=True)), Fraction(0)) for c in columns] for r in rows]


def with_spread(rng, shape, spread, dtype=np.float64):
    """Normal elements times powers of two within 2**-spread and 2**spread, some zeros."""
    x = np.ldexp(rng.standard_normal(shape), rng.integers(-spread, spread + 1, shape))
    x[rng.random(shape) < 0.1] = 0
    return x.astype(dtype)


@st.composite
def operands(draw):
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    m, k, n = draw(st.tuples(*[st.integers(0, 5)] * 3))
    width = np.finfo(dtype).bits
    finite = st.floats(allow_nan=False, allow_infinity=False, width=width)
    return draw(hnp.arrays(dtype, (m, k), elements=finite)), draw(hnp.arrays(dtype, (k, n), elements=finite))


@given(operands())
@settings(max_examples=200, deadline=None)
def test_exact_matmul_of_any_floats(pair):
    a, b = pair
    integers, exponent = reference.exact_matmul(a, b)
    assert integers.shape == (a.shape[0], b.shape[1])
    assert integers.dtype == object
    assert to_fractions(integers, exponent) == exact(a, b)


@pytest.mark.parametrize("spread", [0, 5, 40, 200, 900])
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 50, 2), (2, 7, 40), (40, 9, 1)])
def test_exact_matmul_at_every_spread(shape, spread):
    m, k, n = shape
    rng = np.random.default_rng(spread + m)
    a, b = with_spread(rng, (m, k), spread), with_spread(rng, (k, n), spread)
    assert to_fractions(*reference.exact_matmul(a, b)) == exact(a, b)


def test_exact_matmul_of_the_extremes():
    tiny, huge = 5e-324, np.finfo(np.float64).max
    a = np.array([[huge, -huge, tiny], [tiny, tiny, -tiny], [0, 0, 0]])
    b = np.array([[huge, tiny], [-huge, huge], [tiny, tiny]])
    assert to_fractions(*reference.exact_matmul(a, b)) == exact(a, b)


def test_exact_matmul_in_several_blocks(monkeypatch):
    rng = np.random.default_rng(4)
    a, b = with_spread(rng, (4, 6), 20), with_spread(rng, (6, 33), 20)
    whole = to_fractions(*reference.exact_matmul(a, b))
    monkeypatch.setattr(_exact, "_PACKED_BYTES", 200)
    monkeypatch.setattr(_exact, "_BUFFER_BYTES", 500)
    assert to_fractions(*reference.exact_matmul(a, b)) == whole


def test_exact_matmul_against_flint():
    rng = np.random.default_rng(5)
    a = rng.integers(-(2**53), 2**53, (40, 60))
    b = rng.integers(-(2**53), 2**53, (60, 50))
    integers, exponent = reference.exact_matmul(a.astype(float), b.astype(float))
    expected = flint.fmpz_mat(a.tolist()) * flint.fmpz_mat(b.tolist())
    assert (integers * 2**exponent).tolist() == [[int(x) for x in row] for row in expected.tolist()]


@pytest.mark.parametrize("shape", [(0, 3, 2), (2, 3, 0), (0, 0, 0), (2, 0, 3)])
def test_exact_matmul_of_nothing(shape):
    m, k, n = shape
    integers, _ = reference.exact_matmul(np.zeros((m, k)), np.zeros((k, n)))
    assert integers.shape == (m, n)
    assert all(x == 0 for x in integers.flat)


def test_strided_and_read_only_operands():
    rng = np.random.default_rng(6)
    a, b = rng.standard_normal((6, 8))[::-2, ::2], rng.standard_normal((5, 4)).T[:, ::-1]
    for x in (a, b):
        x.flags.writeable = False
    assert to_fractions(*reference.exact_matmul(a, b)) == exact(a, b)


def test_exact_entries_are_those_of_the_product():
    rng = np.random.default_rng(7)
    a, b = with_spread(rng, (7, 9), 30), with_spread(rng, (9, 8), 30)
    rows, cols = [5, 0, 5], np.array([7, 2])
    whole = exact(a, b)
    assert to_fractions(*reference.exact_entries(a, b, rows, cols)) == [[whole[i][j] for j in cols] for i in rows]
    assert to_fractions(*reference.exact_entries(a, b, slice(2), None)) == whole[:2]


def test_exact_entries_need_only_these_rows_to_be_finite():
    a, b = np.array([[np.nan, 1.0], [2.0, 3.0]]), np.array([[1.0, np.inf], [1.0, 0.0]])
    assert to_fractions(*reference.exact_entries(a, b, [1], [0])) == [[5]]
    with pytest.raises(ValueError, match="NaN and Inf"):
        reference.exact_matmul(a, b)


@given(operands())
@settings(max_examples=50, deadline=None)
def test_mpmath_agrees(pair):
    a, b = pair
    c = reference.mpmath_matmul(a, b)
    whole = exact(a, b)
    with mpmath.workprec(5000):
        for i, j in np.ndindex(c.shape):
            numerator, denominator = whole[i][j].as_integer_ratio()
            assert c[i, j] == mpmath.mpf(numerator) / denominator


def test_mpmath_products_are_exact_while_other_threads_change_the_precision(rng):
    """mpmath's precision is shared by all threads."""
    a, b = 2.0 ** rng.integers(-200, 200, (2, 8, 8))
    stop = threading.Event()

    def change():
        while not stop.is_set():
            mpmath.mp.prec = 20 + (mpmath.mp.prec + 1) % 20

    before, changing = mpmath.mp.prec, threading.Thread(target=change)
    changing.start()
    try:
        products = [reference.mpmath_matmul(a, b) for _ in range(10)]
    finally:
        stop.set()
        changing.join()
        mpmath.mp.prec = before
    for c in products:
        assert [[Fraction(*mpmath.libmp.to_rational(x._mpf_)) for x in row] for row in c] == exact(a, b)


@pytest.mark.parametrize(
    ("a", "b", "error", "words"),
    [
        (np.zeros((2, 3)), np.zeros((2, 3)), ValueError, r"b: shape \(2, 3\) does not fit a of shape \(2, 3\)"),
        (np.zeros(3), np.zeros((3, 1)), ValueError, "a: expected a matrix"),
        (np.zeros((2, 3, 3)), np.zeros((3, 1)), ValueError, "a: .*of a stack, call it for each matrix"),
        (
            np.zeros((1, 3)),
            np.zeros((3, 1), np.clongdouble),
            TypeError,
            "b: expected float32, float64, complex64, complex128, integers or an MPArray",
        ),
        (
            np.zeros((1, 3), complex),
            np.zeros((2, 1)),
            ValueError,
            r"b: shape \(2, 1\) does not fit a of shape \(1, 3\)",
        ),
        (np.array([[1j, complex(0, np.inf)]]), np.zeros((2, 1)), ValueError, "a: NaN and Inf have no exact product"),
        (np.zeros((1, 1)), np.array([[complex(np.nan, 1)]]), ValueError, "b: NaN and Inf have no exact product"),
    ],
)
def test_what_does_not_fit_is_named(a, b, error, words):
    for product in (reference.exact_matmul, reference.exact_entries, reference.mpmath_matmul):
        with pytest.raises(error, match=words):
            product(a, b)


# --- the measures ------------------------------------------------------------


def slow_measures(c, a, b):
    """Componentwise, relative, row-column, normwise and residual, the last three squared, in rationals."""
    a, b, c = fractions(a), fractions(b), fractions(c)
    whole = exact(a, b)
    errors = [[abs(x - y) for x, y in zip(p, q, strict=True)] for p, q in zip(c, whole, strict=True)]
    scales = exact(abs(a), abs(b))
    rows = [sum(x**2 for x in row) for row in a]
    cols = [sum(x**2 for x in column) for column in b.T]
    cells = [(i, j) for i in range(len(rows)) for j in range(len(cols))]
    total = sum(errors[i][j] ** 2 for i, j in cells)
    return [
        max(errors[i][j] / scales[i][j] for i, j in cells),
        max(errors[i][j] / abs(whole[i][j]) for i, j in cells),
        max(errors[i][j] ** 2 / (rows[i] * cols[j]) for i, j in cells),
        total / (sum(rows) * sum(cols)),
        total / sum(whole[i][j] ** 2 for i, j in cells),
    ]


def assert_rounded_up(value, expected, ulps=1):
    """Check that a float is not below a rational, and at most `ulps` above it."""
    assert Fraction(value) >= expected
    for _ in range(ulps):
        value = math.nextafter(value, -1.0)
    assert value < 0 or Fraction(value) <= expected


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("spread", [0, 20, 300])
@pytest.mark.parametrize("shape", [(1, 1, 1), (4, 6, 5), (2, 30, 7)])
def test_measures_are_exact_and_rounded_up(shape, spread, dtype):
    m, k, n = shape
    rng = np.random.default_rng(spread + k)
    spread = min(spread, 30) if dtype == np.float32 else spread
    a = np.ldexp(1 + rng.random((m, k)), rng.integers(-spread, spread + 1, (m, k))).astype(dtype)
    b = np.ldexp(-1 - rng.random((k, n)), rng.integers(-spread, spread + 1, (k, n))).astype(dtype)
    c = a @ b
    componentwise, relative, *squares = slow_measures(c, a, b)
    assert_rounded_up(reference.componentwise_error(c, a, b), componentwise)
    assert_rounded_up(reference.relative_error(c, a, b), relative)
    for measure, square in zip(SQUARED, squares, strict=True):
        value = measure(c, a, b)
        assert Fraction(value) ** 2 >= square
        below = math.nextafter(value, -1.0)
        assert below < 0 or Fraction(below) ** 2 <= square


def test_an_error_of_half_an_ulp_is_seen():
    a, b = np.ones((1, 2)), np.array([[1.0], [2.0**-80]])
    c = np.ones((1, 1))
    expected = Fraction(1, 2**80 + 1)
    assert_rounded_up(reference.componentwise_error(c, a, b), expected)
    assert reference.componentwise_error(c, a[:, :1], b[:1]) == 0


def test_an_error_never_rounds_to_zero():
    a, b = np.array([[1.5e308]]), np.array([[1.5e308]])
    tiny = np.array([[5e-324]])
    exact_c, no = np.zeros((1, 1)), np.zeros((1, 1))
    assert reference.componentwise_error(exact_c, no, b) == 0
    # 5e-324 is missing from a product of about 2**2047.
    c = np.array([[1.0]])
    a2, b2 = np.array([[1.0, 1.5e308, -1.5e308, 5e-324]]), np.array([[1.0], [1.5e308], [1.5e308], [1.0]])
    assert 0 < reference.componentwise_error(c, a2, b2) <= 5e-324
    assert reference.componentwise_error(tiny, a, b) == 1.0


@pytest.mark.parametrize("measure", MEASURES)
def test_nan_and_inf_never_pass(measure):
    a, b = np.ones((2, 2)), np.ones((2, 2))
    c = a @ b
    assert measure(c, a, b) == 0
    c[1, 0] = np.inf
    assert measure(c, a, b) == math.inf
    c[0, 1] = np.nan
    assert math.isnan(measure(c, a, b))


@pytest.mark.parametrize("measure", MEASURES)
def test_an_error_where_all_products_are_zero_is_infinite(measure):
    a, b = np.zeros((2, 2)), np.ones((2, 2))
    c = np.zeros((2, 2))
    assert measure(c, a, b) == 0
    c[1, 1] = 5e-324
    assert measure(c, a, b) == math.inf


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("shape", [(0, 3, 2), (2, 0, 3), (0, 0, 0)])
def test_nothing_has_no_error(measure, shape):
    m, k, n = shape
    assert measure(np.zeros((m, n)), np.zeros((m, k)), np.zeros((k, n))) == 0


@pytest.mark.parametrize(
    ("rows", "error"),
    [([True], ValueError), ([1.5], TypeError), ([[0]], TypeError), ([2], ValueError), ([-3], ValueError)],
)
def test_what_selects_no_rows_is_named(rows, error):
    x = np.eye(2)
    with pytest.raises(error, match=r"^rows: "):
        reference.componentwise_error(x, x, x, rows=rows)
    with pytest.raises(error, match=r"^cols: "):
        reference.exact_entries(x, x, cols=rows)


@pytest.mark.parametrize("measure", MEASURES)
def test_sampled_measures_are_those_of_the_selected_product(measure):
    rng = np.random.default_rng(8)
    a, b = with_spread(rng, (9, 20), 10), with_spread(rng, (20, 8), 10)
    c = a @ b
    rows, cols = [8, 1], [0, 3, 7]
    sampled = measure(c, a, b, rows=rows, cols=cols)
    if measure is reference.normwise_error:
        assert 0 < sampled < measure(c, a, b)
    else:
        assert sampled == measure(c[np.ix_(rows, cols)], a[rows], b[:, cols])
    masks = {"rows": np.isin(range(9), rows), "cols": np.isin(range(8), cols)}
    assert measure(c, a, b, **masks) == measure(c, a, b, rows=sorted(rows), cols=cols)
    # An error outside the sampled rows is not seen, one inside the sampled columns is.
    c[0, 0] = np.nan
    assert measure(c, a, b, rows=rows) < 1
    assert math.isnan(measure(c, a, b, cols=cols))


def test_componentwise_root_mean_square():
    a = np.array([[1.0], [2.0]])
    b = np.array([[1.0, 4.0]])
    c = a @ b + np.array([[0.5, 0.0], [1.0, 2.0]])
    expected = math.sqrt((0.5**2 + 0 + 0.5**2 + 0.25**2) / 4)
    assert reference.componentwise_error(c, a, b, rms=True) == pytest.approx(expected, rel=1e-15)
    assert reference.componentwise_error(a @ b, a, b, rms=True) == 0


def test_errors_of_every_entry_of_several_results():
    rng = np.random.default_rng(3)
    a, b = with_spread(rng, (4, 30), 20), with_spread(rng, (30, 5), 20)
    results = np.stack([a @ b, (a @ b) * (1 + 2.0**-30), a[:, ::-1] @ b[::-1]])
    errors = reference.componentwise_errors(results[:, None], a, b)
    assert (errors.shape, errors.dtype) == ((3, 1, 4, 5), np.float64)
    for i, j in np.ndindex(4, 5):
        for c, found in zip(results, errors[:, 0, i, j], strict=True):
            assert found == reference.componentwise_error(c, a, b, rows=[i], cols=[j])
    results[0, 1, 2], results[0, 3, 3] = np.nan, -np.inf
    spoiled = reference.componentwise_errors(results[0], a, b)
    assert np.isnan(spoiled[1, 2]) and spoiled[3, 3] == np.inf
    others = np.isfinite(spoiled)
    assert others.sum() == 18 and (spoiled[others] == errors[0, 0][others]).all()
    for shape in ((0, 3, 2), (2, 0, 3), (2, 3, 0)):
        m, k, n = shape
        assert not reference.componentwise_errors(np.zeros((2, m, n)), np.zeros((m, k)), np.zeros((k, n))).any()
    with pytest.raises(ValueError, match=r"^c: expected shape \(\.\.\., 4, 5\), got \(5, 4\)"):
        reference.componentwise_errors(results[0].T, a, b)


def test_a_result_of_another_shape_is_named():
    with pytest.raises(ValueError, match=r"c: expected shape \(2, 2\), got \(2, 3\)"):
        reference.componentwise_error(np.zeros((2, 3)), np.zeros((2, 2)), np.zeros((2, 2)))


# --- multiprecision numbers and integers ---------------------------------------


@st.composite
def numbers(draw, shape):
    """An MPArray of up to 300 bits, whose elements lie up to 700 binary orders apart."""
    elements = st.tuples(st.integers(-(2**300), 2**300), st.integers(-200, 200))
    values = draw(st.lists(elements, min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]))
    exact_values = [x * Fraction(2) ** e for x, e in values]
    return ozaki.mparray(np.array(exact_values, object).reshape(shape)) if values else ozaki.mparray(np.zeros(shape))


@st.composite
def mixed_operands(draw):
    """Two operands, each an MPArray, floats or integers."""
    m, k, n = draw(st.tuples(*[st.integers(0, 3)] * 3))
    pair = []
    for shape in ((m, k), (k, n)):
        kind = draw(st.sampled_from(["mp", "float64", "int64", "uint8", "bool"]))
        if kind == "mp":
            pair.append(draw(numbers(shape)))
        elif kind == "float64":
            pair.append(draw(hnp.arrays(kind, shape, elements=st.floats(-1e30, 1e30))))
        else:
            pair.append(draw(hnp.arrays(kind, shape)))
    return pair


@given(mixed_operands())
@settings(max_examples=150, deadline=None)
def test_exact_products_of_any_numbers(pair):
    a, b = pair
    integers, exponent = reference.exact_matmul(a, b)
    whole = exact(a, b)
    assert to_fractions(integers, exponent) == whole
    c = reference.mpmath_matmul(a, b)
    with mpmath.workprec(3000):
        for i, j in np.ndindex(c.shape):
            assert Fraction(*mpmath.libmp.to_rational(c[i, j]._mpf_)) == whole[i][j]


@given(st.data(), mixed_operands(), st.sampled_from([0, -7, -1000, -100_000]))
@settings(max_examples=150, deadline=None)
def test_measures_of_any_numbers(data, pair, exponent):
    """In units of 2**exponent, too; a result may be multiprecision, float or integer."""
    a, b = pair
    c = data.draw(numbers((a.shape[0], b.shape[1])))
    whole = np.array(exact(a, b), object)
    if 0 in (*c.shape, a.shape[1]) or (fractions(a) == 0).any() or (fractions(b) == 0).any() or (whole == 0).any():
        for measure in MEASURES:
            assert measure(ozaki.mparray(whole.reshape(c.shape)), a, b, exponent=exponent) == 0
        return
    unit = Fraction(2) ** exponent
    expected = slow_measures(c, a, b)
    for measure, value in zip(MEASURES[:2], expected[:2], strict=True):
        assert_rounded_up_or_inf(measure(c, a, b, exponent=exponent), value / unit)
    for measure, value in zip(SQUARED, expected[2:], strict=True):
        found = measure(c, a, b, exponent=exponent)
        if found < math.inf:
            assert Fraction(found) ** 2 >= value / unit**2
            below = math.nextafter(found, -1.0)
            assert below < 0 or Fraction(below) ** 2 <= value / unit**2


def assert_rounded_up_or_inf(value, expected):
    if value == math.inf:
        assert expected > np.finfo(float).max
    else:
        assert_rounded_up(value, expected)


def test_an_error_below_the_range_of_a_float_is_no_zero():
    """The result of 100,000 bits has an error of about 1e-30103."""
    third = ozaki.mparray([["1/3"]], bits=100_000)
    c = third.round_to(90_000)
    one = np.ones((1, 1))
    for measure in MEASURES:
        assert measure(c, third, one) == 5e-324
        assert 2.0**-2 < measure(c, third, one, exponent=-90_000) <= 1
        assert measure(third, third, one, exponent=-90_000) == 0


def test_a_sample_of_multiprecision_products():
    rng = np.random.default_rng(9)
    a, b = (ozaki.mparray(rng.standard_normal(shape)) * (1 + Fraction(1, 2**80)) for shape in ((5, 6), (6, 4)))
    c = ozaki.matmul(a, b, accuracy=100)
    for measure in MEASURES[:-1]:
        assert 0 < measure(c, a, b, rows=[4, 1], cols=slice(2)) <= measure(c, a, b)
    errors = reference.componentwise_errors(c.reshape(1, 5, 4), a, b, exponent=-50)
    assert errors.shape == (1, 5, 4)
    assert errors.max() == reference.componentwise_error(c, a, b, exponent=-50)
    assert reference.componentwise_error(c, a, b, rms=True, exponent=-50) == pytest.approx(np.sqrt((errors**2).mean()))


def test_integers_are_measured_exactly():
    x = np.array([[2**62, -1], [3, 2**63 - 1]])
    c = ozaki.matmul(x, x, dtype="mp")
    assert all(measure(c, x, x) == 0 for measure in MEASURES)
    whole = np.array([[1, 0], [0, 1]])
    off = x.copy()
    off[1, 1] -= 1
    assert_rounded_up(reference.relative_error(off, x, whole), Fraction(1, 2**63 - 1))


@pytest.mark.parametrize("measure", MEASURES)
def test_an_entry_beyond_all_bounds_is_infinite(measure):
    far = ozaki.mparray([[1]]) * Fraction(2**70_000)
    zero = np.zeros((1, 1))
    assert measure(far, zero, zero) == math.inf
    assert measure(far, zero, far) == math.inf
    assert measure(far, zero, ozaki.mparray([[1]]) * Fraction(1, 2**70_000)) == math.inf


def test_elements_too_far_apart_are_named():
    far = ozaki.mparray([[1, 1]]) * Fraction(1)
    near = ozaki.MPArray(far.signs, far.exponents * np.array([[1, 2**50]]), far.limbs, far.bits)
    with pytest.raises(ValueError, match="binary orders apart"):
        reference.exact_matmul(near, near.T)
    assert reference.exact_matmul(near[:, :1], near[:, :1])[0].tolist() == [[1]]


# --- complex numbers -------------------------------------------------------------

KINDS = ["c16 c16", "f8 c16", "c16 f8", "c8 c8", "c8 f8", "f4 c16", "i8 c16", "c8 mp", "mp c16"]


def with_kind(rng, shape, kind, spread=0):
    """A matrix without zeros, of a dtype or an MPArray; parts of complex numbers have their own spreads and signs."""

    def part():
        x = np.ldexp(1 + rng.random(shape), rng.integers(-spread, spread + 1, shape))
        return np.where(rng.random(shape) < 0.5, x, -x)

    if kind == "mp":
        return ozaki.mparray(part()) * (1 + Fraction(1, 2**80))
    if kind == "i8":
        return rng.integers(1, 2**62, shape)
    return (part() + 1j * part()).astype(kind) if kind[0] == "c" else part().astype(kind)


def pair_of(rng, kinds, m, k, n, spread=0):
    left, right = kinds.split()
    return with_kind(rng, (m, k), left, spread), with_kind(rng, (k, n), right, spread)


def halves(x):
    """The real and the imaginary parts as arrays of Fractions; zeros of a real matrix."""
    if not isinstance(x, ozaki.MPArray) and x.dtype.kind == "c":
        return fractions(x.real), fractions(x.imag)
    return fractions(x), fractions(x) * 0


def exact_complex(a, b):
    """The real and the imaginary parts of the product, in rationals."""
    (x, y), (u, v) = halves(a), halves(b)
    return x @ u - y @ v, x @ v + y @ u


def to_parts(integers, exponent):
    """Both parts of what `exact_matmul` returns for complex operands, as lists of Fractions."""
    return [to_fractions(integers[..., part], exponent) for part in (0, 1)]


def squared(x):
    """The squared moduli, in rationals."""
    real, imag = halves(x)
    return real**2 + imag**2


def squared_off(c, a, b):
    """The squared moduli of the errors of all entries, in rationals."""
    return sum((x - y) ** 2 for x, y in zip(halves(c), exact_complex(a, b), strict=True))


def slow_complex_measures(c, a, b):
    """Relative, row-column, normwise and residual, squared, in rationals."""
    off, whole = squared_off(c, a, b), sum(part**2 for part in exact_complex(a, b))
    rows, cols = squared(a).sum(axis=1), squared(b).sum(axis=0)
    return [
        (off / whole).max(),
        (off / (rows[:, None] * cols)).max(),
        off.sum() / (rows.sum() * cols.sum()),
        off.sum() / whole.sum(),
    ]


def slow_componentwise(c, a, b):
    """The componentwise errors of all entries, which are no rationals: mpf of 1000 bits."""
    with mpmath.workprec(1000):
        root = np.vectorize(lambda x: mpmath.sqrt(mpmath.mpf(x.numerator) / x.denominator), otypes=[object])
        return root(squared_off(c, a, b)) / (root(squared(a)) @ root(squared(b)))


def assert_moduli_rounded_up(value, expected):
    """Check that a float is not below an mpf of 1000 bits, and at most the second float that is not."""
    with mpmath.workprec(1000):
        assert value >= expected * (1 - mpmath.mpf(2) ** -990)
        assert math.nextafter(math.nextafter(value, -1.0), -1.0) <= expected


def assert_root_rounded_up(value, square):
    """Check that a float is the smallest that is not below the root of a rational."""
    assert Fraction(value) ** 2 >= square
    below = math.nextafter(value, -1.0)
    assert below < 0 or Fraction(below) ** 2 < square


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 20, 2), (9, 4, 1)])
def test_exact_products_of_complex_numbers(kinds, shape):
    m, k, n = shape
    rng = np.random.default_rng(k)
    for spread in (0, 20):
        a, b = pair_of(rng, kinds, m, k, n, spread)
        whole = [part.tolist() for part in exact_complex(a, b)]
        integers, exponent = reference.exact_matmul(a, b)
        assert (integers.shape, integers.dtype) == ((m, n, 2), object)
        assert to_parts(integers, exponent) == whole
        chosen = to_parts(*reference.exact_entries(a, b, rows=[m - 1, 0], cols=slice(1)))
        assert chosen == [[part[m - 1][:1], part[0][:1]] for part in whole]
        c = reference.mpmath_matmul(a, b)
        assert all(isinstance(x, mpmath.mpc) for x in c.flat)
        for found, part in zip(("real", "imag"), whole, strict=True):
            rationals = [[Fraction(*mpmath.libmp.to_rational(getattr(x, found)._mpf_)) for x in row] for row in c]
            assert rationals == part


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_exact_products_of_any_complex_numbers(data):
    """Parts up to the extremes of the format, zeros of both signs, and empty operands."""
    m, k, n = data.draw(st.tuples(*[st.integers(0, 3)] * 3))
    elements = st.complex_numbers(allow_nan=False, allow_infinity=False)
    a, b = (data.draw(hnp.arrays(complex, shape, elements=elements)) for shape in ((m, k), (k, n)))
    integers, exponent = reference.exact_matmul(a, b)
    assert integers.shape == (m, n, 2)
    if k > 0:
        assert to_parts(integers, exponent) == [part.tolist() for part in exact_complex(a, b)]
    else:
        assert not integers.any()


def test_a_part_of_zeros_beside_far_numbers():
    """The exponent of zeros, which is that of no number, shifts no others by more bits than memory holds."""
    far = ozaki.mparray([[1]]).ldexp(2**40)
    integers, exponent = reference.exact_matmul(np.array([[1j]]), far)
    assert (integers.tolist(), exponent) == ([[[0, 1]]], 2**40)


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("spread", [0, 12, 200])
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 20, 4)])
def test_complex_measures_are_rounded_up(shape, spread, kinds):
    rng = np.random.default_rng(spread)
    a, b = pair_of(rng, kinds, *shape, spread if {"c8", "f4"}.isdisjoint(kinds.split()) else min(spread, 12))
    real, imag = (part.astype(float) for part in exact_complex(a, b))
    # Near, with an error of half the size, and a real result, which misses the imaginary parts.
    for c in (real + 1j * imag, (real + 1j * imag) * (1 + 0.5j), real):
        assert_moduli_rounded_up(reference.componentwise_error(c, a, b), slow_componentwise(c, a, b).max())
        for measure, square in zip(MEASURES[1:], slow_complex_measures(c, a, b), strict=True):
            assert_root_rounded_up(measure(c, a, b), square)


@pytest.mark.parametrize("measure", MEASURES)
def test_a_complex_result_of_real_operands(measure):
    """An imaginary part, which should not be there, is an error as any other."""
    a, b = np.array([[2.0, 1.0]]), np.array([[1.0], [2.0]])
    assert measure(np.array([[4 + 0j]]), a, b) == 0
    assert measure(np.array([[4 + 3j]]), a, b) == measure(np.array([[4.0 - 3.0]]), a, b) > 0
    assert measure(np.array([[7 + 4j]]), a, b) == measure(np.array([[4.0 + 5.0]]), a, b)


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("factors", [(1, 1), (1j, 1), (1, -1j), (1j, 1j)], ids=str)
def test_complex_measures_of_numbers_on_the_axes_are_those_of_real_ones(measure, factors):
    """Their moduli are exact, so that nothing is rounded down: the errors are the same floats."""
    rng = np.random.default_rng(3)
    a, b = with_spread(rng, (4, 9), 200), with_spread(rng, (9, 3), 200)
    expected = measure(a @ b, a, b)
    x, y = factors
    assert measure((a @ b) * (x * y), a * x, b * y) == expected
    if y == 1:
        assert measure((a @ b) * x, a * x, b) == expected


def test_moduli_that_are_whole_are_exact():
    a, b = np.array([[3 + 4j, 5e-324j]]), np.array([[5 + 12j], [8 - 15j]])
    assert_rounded_up(reference.componentwise_error(a @ b + 1, a, b), 1 / (65 + 17 * Fraction(5e-324)), ulps=1)
    assert reference.componentwise_error(np.array([[-33 + 56j + 65]]), a[:, :1], b[:1]) == 1.0


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_componentwise_errors_of_any_complex_numbers(data):
    """Parts from the smallest to the largest, zeros too: never below the error, nor two units above it."""
    elements = st.complex_numbers(allow_nan=False, allow_infinity=False)
    a, b, c = (data.draw(hnp.arrays(complex, shape, elements=elements)) for shape in ((2, 3), (3, 2), (2, 2)))
    errors = reference.componentwise_errors(c, a, b)
    for i, j in np.ndindex(2, 2):
        x, y, z = a[i : i + 1], b[:, j : j + 1], c[i : i + 1, j : j + 1]
        if (squared(x) @ squared(y) == 0).all():
            assert errors[i, j] == (math.inf if squared_off(z, x, y).any() else 0)
        elif errors[i, j] < math.inf:
            assert_moduli_rounded_up(errors[i, j], slow_componentwise(z, x, y)[0, 0])


@pytest.mark.parametrize("measure", MEASURES)
def test_complex_nan_and_inf_never_pass(measure):
    """Nor does one in a part; an entry with both, as native products have, counts as NaN."""
    a = b = np.array([[1, 1j], [1j, 1]])
    c = a @ b
    assert measure(c, a, b) == 0
    for infinite in (np.inf, complex(0, -np.inf)):
        c[1, 0] = infinite
        assert measure(c, a, b) == math.inf
    for nan in (complex(0, np.nan), complex(np.nan, 0), complex(np.inf, np.nan)):
        c[1, 0] = nan
        assert math.isnan(measure(c, a, b))
    assert measure(c, a, b, rows=[0]) == 0
    for spoiled in (np.nan, complex(1, np.inf)):
        x = a.copy()
        x[1, 1] = spoiled
        with pytest.raises(ValueError, match="NaN and Inf have no exact product"):
            measure(a @ b, x, b)
        if measure is not reference.normwise_error:  # its norms are those of all rows
            assert measure(a @ b, x, b, rows=[0]) == 0


@pytest.mark.parametrize("measure", MEASURES)
def test_a_complex_error_where_all_products_are_zero_is_infinite(measure):
    a, b, c = np.zeros((2, 2), complex), np.full((2, 2), 1j), np.zeros((2, 2), complex)
    assert measure(c, a, b) == 0
    c[1, 1] = 5e-324j
    assert measure(c, a, b) == math.inf
    for m, k, n in ((0, 3, 2), (2, 0, 3), (0, 0, 0)):
        assert measure(np.zeros((m, n)), np.zeros((m, k), complex), np.zeros((k, n))) == 0


def test_complex_errors_of_every_entry_of_several_results():
    rng = np.random.default_rng(5)
    a, b = pair_of(rng, "c16 c16", 4, 30, 5, 10)
    results = np.stack([a @ b, (a @ b) * (1 + 2.0**-30 * 1j), (a @ b).real])
    errors = reference.componentwise_errors(results[:, None], a, b)
    assert (errors.shape, errors.dtype) == ((3, 1, 4, 5), np.float64)
    for i, j in np.ndindex(4, 5):
        for c, found in zip(results, errors[:, 0, i, j], strict=True):
            assert found == reference.componentwise_error(c, a, b, rows=[i], cols=[j])
    results[0, 1, 2], results[0, 3, 3], results[0, 0, 0] = np.nan, complex(1, -np.inf), complex(np.inf, np.nan)
    spoiled = reference.componentwise_errors(results[0], a, b)
    assert np.isnan(spoiled[1, 2]) and spoiled[3, 3] == np.inf and np.isnan(spoiled[0, 0])
    others = np.isfinite(spoiled)
    assert others.sum() == 17 and (spoiled[others] == errors[0, 0][others]).all()
    assert reference.componentwise_error(results[1], a, b, rms=True) == pytest.approx(
        np.sqrt((errors[1] ** 2).mean()), rel=1e-14
    )
    scaled = reference.componentwise_errors(results[1], a, b, exponent=-40)
    assert (scaled == errors[1, 0] * 2.0**40).all()


@pytest.mark.parametrize("kinds", KINDS[:7])
def test_complex_products_are_within_their_bounds(kinds):
    a, b = pair_of(np.random.default_rng(6), kinds, 5, 40, 4)
    if a.dtype.kind == "i":
        a = a.astype(float)
    for measure, name in zip(MEASURES, ("componentwise", "relative", "row-column", "normwise"), strict=False):
        c, report = ozaki.matmul(a, b, accuracy=ozaki.Accuracy(name, 1e-6), return_report=True)
        assert 0 < measure(c, a, b) <= report.bound


@pytest.mark.parametrize("name", sorted({*reference.__all__} - {"componentwise_errors"}))
def test_examples_print_what_they_say(name):
    found = doctest.DocTestFinder().find(getattr(reference, name), name, globs={})
    results = [doctest.DocTestRunner().run(examples) for examples in found]
    assert sum(each.attempted for each in results) > 0 == sum(each.failed for each in results)
