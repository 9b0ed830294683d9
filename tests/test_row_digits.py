"""Products of 16-bit floats, rounded once to 16 bits, are those of the definition, and within their bound."""

import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from cases import layouts
from hypothesis import given, settings
from hypothesis import strategies as st
from row_digits_definition import EXACT, bits_of, exact_values, inner_product, product
from row_digits_definition import operands as as_rows

import ozaki
from ozaki.backends.numpy import _row_digits, _row_statistics
from ozaki.backends.numpy._describe import describe
from ozaki.backends.numpy._row_columns import columns_of
from ozaki.backends.numpy._row_digits import multiply_rows
from ozaki.backends.numpy._sixteen import beside_boundary, from_sixteen, on_boundary, to_sixteen
from ozaki.backends.numpy.compiled import compiled, self_test
from ozaki.backends.numpy.engines import int8_digits
from ozaki.bounds.row_digits import as_units, errors, least_products, least_tables
from ozaki.records.combination import Combination, Factor
from ozaki.records.memory import Memory
from ozaki.records.progress import Progress
from ozaki.records.row_kinds import RowKinds
from ozaki.schemes.row_digits import FORMATS, RowDigits, pairs, steps, thresholds

NAMES = tuple(FORMATS)


def rounded_to(x, name):
    """Numbers of the format nearest to x, none of them Inf, as float32."""
    of = FORMATS[name]
    values = from_sixteen(np.minimum(to_sixteen(np.asarray(x, np.float64), of), 0xFFFF), of)
    return np.where(np.isfinite(values), values, 1.0).astype(np.float32)


def multiplied(a, b, name, **options):
    """The bits of a product of matrices a, shape (..., m, k), and b, shape (..., k, n), and the kinds of its rows."""
    x, y = (z[None] if z.ndim == 2 else z for z in (a, b))
    out = np.full((len(x), x.shape[1], y.shape[2]), 0x1234, np.uint16)
    with np.errstate(all="ignore"):  # as every call of a public function
        kinds = multiply_rows(RowDigits(name), x, y.swapaxes(1, 2), out, **({"memory": Memory(None)} | options))
    return out.reshape(*a.shape[:-1], b.shape[-1]), kinds


def rows_of_all_kinds(rng, m, k, name):
    """Rows whose kinds differ: normal, with outliers, sparse, of wide span, integers, almost zero, one huge element."""
    x = rng.standard_normal((m, k))
    x[1::6, ::7] *= 100
    x[2::6] *= rng.random((len(x[2::6]), k)) < 0.1
    x[3::6] *= np.exp2(rng.integers(-60, 40, (len(x[3::6]), k)) * (1.0 if name == "bfloat16" else 0.2))
    x[4::6] = np.rint(4 * x[4::6])
    x[5::12, 1:] = 0
    x[11::12, 0] = 3000
    return rounded_to(x, name)


@pytest.mark.parametrize("name", NAMES)
def test_numbers_of_sixteen_bits(name):
    of = FORMATS[name]
    every = np.arange(2**16).astype(np.uint16)
    values = from_sixteen(every, of)
    bits = to_sixteen(values, of)
    same = np.isfinite(values) & (values != 0)
    assert (bits[same] == every[same]).all() and (bits[values == 0] == 0).all()
    assert np.array_equal(np.isnan(values), (every & 0x7FFF) > of.infinity)
    assert (bits[np.isnan(values)] == of.infinity | 1 << of.precision - 2).all()
    assert np.array_equal(bits[np.isinf(values)], every[np.isinf(values)])
    finite = np.unique(np.abs(values[np.isfinite(values)]))
    middles = (finite[1:] + finite[:-1]) / 2
    middles = np.append(middles, finite[-1] + (finite[-1] - finite[-2]) / 2)
    below, above = to_sixteen(np.nextafter(middles, 0), of), to_sixteen(np.nextafter(middles, np.inf), of)
    assert (above == below + 1).all() and above[-1] == of.infinity
    assert on_boundary(middles, of).all() and not on_boundary(finite, of).any()
    assert not on_boundary(np.nextafter(middles, np.inf), of).any()
    for sign in (1, -1):
        x, negative = sign * middles, np.uint16(0x8000 if sign < 0 else 0)
        assert (to_sixteen(x, of) == (below + (below & 1) | negative)).all()
        for side, expected in ((sign, above), (-sign, below), (0, below + (below & 1))):
            assert (beside_boundary(x, np.full(x.shape, side), of) == (expected | negative)).all()


@given(st.sampled_from(NAMES), st.floats(-3e38, 3e38), st.integers(-300, 300))
@settings(max_examples=200)
def test_rounding_is_that_of_the_definition(name, x, exponent):
    x = float(np.ldexp(np.float64(x), exponent))
    if np.isfinite(x):
        assert to_sixteen(np.array([x]), FORMATS[name])[0] == bits_of(Fraction(x), name)


def test_thresholds_are_integers():
    assert thresholds() == tuple(int((1 - (b % 4 + 1) / 8) * 2.0 ** (19 - b // 4)) for b in range(64))
    assert all(step > 0 for step in steps()) and sum(steps()) == thresholds()[0]


@settings(max_examples=50, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    shape=st.tuples(st.integers(1, 12), st.sampled_from([1, 2, 5, 30, 70]), st.integers(1, 5)),
    seed=st.integers(0, 2**32 - 1),
    scales=st.tuples(*2 * [st.sampled_from([0, 0, -120, 100])]),
    columns=st.sampled_from(["normal", "kinds", "zeros", "integers"]),
    factors=st.sampled_from([None, (1.0, 1.0), (-0.5, 4.0), (3.0, -0.1)]),
)
def test_any_product(name, shape, seed, scales, columns, factors):
    m, k, n = shape
    rng = np.random.default_rng(seed)
    if name == "float16":
        scales = tuple(scale // 10 for scale in scales)
    a = rows_of_all_kinds(rng, m, k, name)
    b = rows_of_all_kinds(rng, n, k, name) if columns == "kinds" else rounded_to(rng.standard_normal((n, k)), name)
    if columns == "integers":
        b = np.rint(b * 4)
    b[:: 2 if columns == "zeros" else n + 1] = 0
    a, b = (rounded_to(np.ldexp(x.astype(np.float64), scale), name) for x, scale in zip((a, b), scales, strict=True))
    options, expression = {}, {}
    if factors is not None:
        c = rounded_to(np.ldexp(rng.standard_normal((m, n)), sum(scales) + rng.integers(-12, 12)), name)
        options, expression = expression_of(*factors, c[None]), dict(zip(("alpha", "beta"), factors, strict=True), c=c)
    expected, kinds, worst = product(a, b.T, name, **expression)
    got, found = multiplied(a, b.T, name, **options)
    assert found.exact == kinds.count(EXACT)
    assert found.rows == tuple(kinds.count(kind) for kind in FORMATS[name].kinds)
    assert found.worst == worst
    assert np.array_equal(got, expected), np.argwhere(got != expected)[:5]


def factor(x):
    """The factor that a float is."""
    fraction, exponent = np.frexp(x)
    whole, exponent = int(fraction * 2**53), int(exponent) - 53
    zeros = (whole & -whole).bit_length() - 1
    return Factor(whole >> zeros, exponent + zeros)


def expression_of(alpha, beta, c):
    return {"combination": Combination(factor(alpha), factor(beta), c)}


def operands(rng, name, m=40, k=300, n=60):
    """Rows of all kinds, and columns of normal numbers, of which one is zero, and one has a number no digit reaches."""
    a, b = rows_of_all_kinds(rng, m, k, name), rounded_to(rng.standard_normal((k, n)), name)
    b[:, n // 2], b[0, 0] = 0, 2.0**-24
    return a, b


@pytest.mark.parametrize("name", NAMES)
def test_a_row_has_the_bits_that_it_has_alone(rng, name):
    a, b = operands(rng, name)
    whole, kinds = multiplied(a, b, name)
    assert kinds.exact and all(kinds.rows)
    one_by_one = [multiplied(row[None], b, name) for row in a]
    assert np.array_equal(whole, np.concatenate([bits for bits, _ in one_by_one]))
    merged = one_by_one[0][1]
    for _, each in one_by_one[1:]:
        merged = merged.merged(each)
    assert merged == kinds
    order = rng.permutation(len(a))
    assert np.array_equal(multiplied(a[order], b, name)[0], whole[order])
    assert np.array_equal(multiplied(a[:7], b, name)[0], whole[:7])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("beside", [0.0, 1.0])
def test_stacks(rng, name, beside):
    """Each matrix of a stack has the bits that it has alone, also where most rows are of one kind."""
    a, b = (np.stack(x) for x in zip(*(operands(rng, name, 12, 70, 9) for _ in range(5)), strict=True))
    normal = rounded_to(rng.standard_normal(a.shape), name)
    a = np.where(rng.random((5, 12, 1)) < beside, normal, a)
    for x, y in ((a, b), (a, b[:1]), (a[::-1], b[::2].repeat(2, 0)[:5])):
        got, kinds = multiplied(x, y, name)
        apart = [multiplied(x[i], y[min(i, len(y) - 1)], name) for i in range(5)]
        assert np.array_equal(got, np.stack([bits for bits, _ in apart]))
        assert kinds.exact == sum(each.exact for _, each in apart) and sum(kinds.rows) + kinds.exact == 60
        assert kinds.worst == max(each.worst for _, each in apart)


@pytest.mark.parametrize("name", NAMES)
def test_exact_rows_beside_and_on_boundaries(rng, name):
    """Float64 rounds these sums to the middle of two numbers; a column of its own keeps anything from being proven."""
    of = FORMATS[name]
    least = {"bfloat16": (-60, -73), "float16": (-24, -24)}[name]
    half = 2.0**-of.precision
    rows = [[sign, sign * step, sign * 2.0 ** least[0], 0] for sign in (1, -1) for step in (half, 3 * half)]
    columns = [[1, 1, tiny, 2.0**-20] for tiny in (0, 2.0 ** least[1], -(2.0 ** least[1]))] + [[0, 0, 1, 2.0**-20]]
    a, b = np.array(rows, np.float32), np.array(columns, np.float32).T
    a = np.concatenate([a, a * np.float32(2.0 ** (127 if name == "bfloat16" else 15))])
    a[:, 3] = 2.0**-20 if name == "bfloat16" else 0
    b[3] = 0
    expected, kinds, _ = product(a, b, name)
    assert kinds == [EXACT] * len(a)
    assert np.array_equal(multiplied(a, b, name)[0], expected)
    assert len(set(expected[0, :3].tolist())) == 2 and len(set(expected[1, :3].tolist())) == 2


def test_all_exponents_of_bfloat16(rng):
    """Rows of the smallest and the largest numbers, whose products overflow, and underflow."""
    a = np.ldexp(1.0, rng.integers(-133, 128, (6, 20)))
    b = np.ldexp(1.0, rng.integers(-133, 128, (20, 5)))
    a, b = rounded_to(a, "bfloat16"), rounded_to(b * rng.choice([1, -1], b.shape), "bfloat16")
    a[:3], b[:, :2] = a[:3] * np.float32(2.0**-120), b[:, :2] * np.float32(2.0**-100)
    a[3] = np.float32(2.0**-133)
    a, b = rounded_to(a, "bfloat16"), rounded_to(b, "bfloat16")
    expected, kinds, _ = product(a, b, "bfloat16")
    assert np.array_equal(multiplied(a, b, "bfloat16")[0], expected) and EXACT in kinds
    assert (expected & 0x7FFF == 0x7F80).any()


@pytest.mark.parametrize("name", NAMES)
def test_nan_and_inf(rng, name):
    a, b = operands(rng, name, 12, 33, 9)
    zeros_a, zeros_b = a.copy(), b.copy()
    for x, zeros, places in ((a, zeros_a, ((0, 3), (4, 5), (4, 6), (7, 0))), (b, zeros_b, ((3, 2), (9, 2)))):
        for at, value in zip(places, (np.inf, np.nan, -np.inf, -np.inf), strict=False):
            x[at], zeros[at] = value, 0
    got, kinds = multiplied(a, b, name)
    expected, of_zeros, _ = product(zeros_a, zeros_b, name)
    assert kinds.exact == of_zeros.count(EXACT)
    signs = [np.where(np.isfinite(x), np.sign(x), x).astype(np.float64) for x in (a, b)]
    with np.errstate(invalid="ignore"):
        touched = signs[0] @ signs[1]
    special = ~np.isfinite(touched)
    expected[special] = to_sixteen(touched, FORMATS[name])[special]
    assert np.array_equal(got, expected)
    assert special[0].all() and special[:, 2].all() and not special[1, 0]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("factors", [(1.0, 1.0), (0.3, -2.0)])
def test_nan_and_inf_of_an_addend(rng, name, factors):
    a, b = operands(rng, name, 12, 33, 9)
    c = rounded_to(rng.standard_normal((12, 9)), name)
    plain = c.copy()
    c[2, 3], c[4, 4], c[5, 1], plain[2, 3], plain[4, 4], plain[5, 1] = np.nan, np.inf, -np.inf, 0, 0, 0
    a[5, 0] = np.inf
    got, _ = multiplied(a, b, name, **expression_of(*factors, c[None]))
    a[5, 0] = 0
    expected, _, _ = product(a, b, name, *factors, plain)
    rows = [i for i in range(12) if i not in (2, 4, 5)]
    assert np.array_equal(got[rows], expected[rows])
    values = from_sixteen(got, FORMATS[name])
    sign = np.sign(factors[1])
    assert np.isnan(values[2, 3]) and values[4, 4] == sign * np.inf and not np.isfinite(values[5]).any()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(0, 5, 4), (3, 5, 0), (3, 0, 4), (1, 1, 1)])
def test_shapes_without_entries(name, shape):
    m, k, n = shape
    a, b = np.full((m, k), 3, np.float32), np.full((k, n), -0.5, np.float32)
    got, kinds = multiplied(a, b, name)
    assert np.array_equal(from_sixteen(got, FORMATS[name]), a @ b)
    assert kinds == RowKinds((m, *[0] * (len(FORMATS[name].kinds) - 1)), 0, 0.0)
    columns_of(RowDigits(name), b.T[None], split=True)
    c = np.full((1, m, n), 5, np.float32)
    got, _ = multiplied(a, b, name, **expression_of(2.0, 3.0, c))
    assert np.array_equal(from_sixteen(got, FORMATS[name]), 2 * (a @ b) + 3 * c[0])


def test_rows_beyond_the_longest_are_exact(monkeypatch, rng):
    a, b = operands(rng, "bfloat16", 6, 40, 7)
    monkeypatch.setattr(_row_digits, "LONGEST", 39)
    got, kinds = multiplied(a, b, "bfloat16")
    assert kinds == RowKinds((0, 0), 6, 0.0)
    values = [[sum(Fraction(float(x)) * Fraction(float(y)) for x, y in zip(row, column, strict=True)) for column in b.T]
              for row in a]  # fmt: skip
    assert got.tolist() == [[bits_of(value, "bfloat16") for value in row] for row in values]


# The bound, and what is measured --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_bound(rng, name):
    """Before the rounding, each entry errs by at most what is proven, relative to abs(A) abs(B), in rationals."""
    a, b = operands(rng, name, 24, 120, 6)
    values, kinds, worst = exact_values(a, b, name)
    _, found = multiplied(a, b, name)
    assert found.worst == worst <= RowDigits(name).tolerance
    errors = []
    for row, computed, kind in zip(a, values, kinds, strict=True):
        for column, value in zip(b.T, computed, strict=True):
            terms = [Fraction(float(x)) * Fraction(float(y)) for x, y in zip(row, column, strict=True)]
            error = abs(value - sum(terms))
            assert error <= Fraction(worst) * sum(map(abs, terms)) and (kind != EXACT or error == 0)
            errors.append(error > 0)
    assert any(errors)


def hostile(rng, count, k, digits, name):
    """Rows whose images have remainders of a half and digits of -128 wherever the format has room for them."""
    last = [
        0.5,
        1.5,
        128.5,
        127.5,
        128.0,
        2.0**15,
        2.0**15 + 128,
        2.0**15 + 256,
        2.0**16,
        2.0**23,
        2.0**23 + 2.0**15,
        0,
    ]
    x = rng.choice(last, (count, k), p=rng.dirichlet(np.ones(len(last))))
    x *= rng.choice([1, 1, 1, -1], (count, k))
    x[:, rng.permutation(k)[: rng.integers(0, k)]] *= rng.choice([0, 1, 256])
    x[:, rng.integers(k)] = 1.25 * 2.0 ** (8 * digits - 2)  # the image is x itself
    return rounded_to(x * 2.0 ** -(8 * digits - 16), name)


@pytest.mark.parametrize("name", NAMES)
def test_hostile_rows_and_columns_keep_the_bound(rng, name):
    """Of any rows and columns: neither is the error above, nor abs(A) abs(B) below what their statistics say."""
    scheme = RowDigits(name)
    q, tightest = scheme.columns, dict.fromkeys(scheme.kinds, 0.0)
    for p in scheme.kinds * 40:
        k = int(rng.integers(2, 40))
        a, b = hostile(rng, 4, k, p, name), hostile(rng, 4, k, q, name)
        if rng.random() < 0.5:  # the largest of the row beside the smallest of the column
            a, b = (np.take_along_axis(x, np.argsort(s * np.abs(x), axis=1), 1) for x, s in ((a, 1), (b, -1)))
        rows, columns = describe(a[None]), describe(b[None])
        of_rows = _row_statistics.statistics_of(rows, p, scheme.low)
        of_rows = type(of_rows)(*(x[:, 0] if x.ndim == 3 and x is of_rows.low else x[0] for x in of_rows))
        summary = _row_statistics.summary_of(scheme, columns)
        bounds = errors(scheme, p, k, of_rows, summary)
        tables = least_tables(k, summary.counts)
        least = as_units(least_products(k, of_rows.counts, tables, np.zeros(len(a), np.int64)))
        for row, bound, at_least in zip(as_rows(a), bounds.tolist(), least.tolist(), strict=True):
            mu, of_row, _, _ = row.of(p)
            for column in as_rows(b):
                nu, of_column, _, _ = column.of(q)
                unit = Fraction(2) ** (row.top + column.top)
                products = {(s, t): np.dot(of_row[s - 1], of_column[t - 1]) for s, t in pairs(p, q)}
                computed = sum(2 ** (8 * (p + q - s - t)) * int(value) for (s, t), value in products.items())
                error = abs(computed * Fraction(2) ** -(mu + nu) - inner_product(row, column)) / unit
                assert error <= Fraction(bound)
                tightest[p] = max(tightest[p], float(error) / bound if bound else 0.0)
                magnitudes = [abs(each) for each in row.elements], [abs(each) for each in column.elements]
                sizes = (type(x)(e, x.exponents) for x, e in zip((row, column), magnitudes, strict=True))
                assert Fraction(at_least) <= inner_product(*sizes) / unit
    assert min(tightest.values()) > 0.1, tightest


@pytest.mark.parametrize("rows", ["outliers", "huge element", "wide", "sparse"])
def test_rows_of_four_digits(rng, rows):
    """Of float16, what three digits do not prove four do: no row is exact, and none errs beyond the last rounding."""
    k, n = 1024, 40
    a, b = rng.standard_normal((24, k)), rounded_to(rng.standard_normal((k, n)), "float16")
    if rows == "outliers":
        a[:, :: k // 3] *= 1000
    elif rows == "huge element":
        a[:, 5] = 3000
    elif rows == "wide":
        a = np.exp(4 * a - 4).clip(max=3000)
    else:
        a[:, k // 64 :] = 0
    a = rounded_to(a, "float16")
    bits, kinds = multiplied(a, b, "float16")
    assert kinds.exact == 0 and kinds.rows[1] > 12 and kinds.worst <= 2.0**-11
    exact, magnitudes = a.astype(np.float64) @ b, np.abs(a).astype(np.float64) @ np.abs(b)
    found = from_sixteen(bits, FORMATS["float16"])
    unit = np.exp2(np.frexp(np.maximum(np.abs(exact), np.abs(found)))[1] - 12.0)  # half a unit of the last place
    assert (np.abs(found - exact) <= 2.0**-17 * magnitudes + unit).all()


@pytest.mark.parametrize(("k", "largest"), [(1024, 2.0**-13), (4096, 2.0**-14)])
@pytest.mark.parametrize("outliers", [False, True])
def test_measured_errors_of_normal_numbers(rng, k, largest, outliers):
    """At k = 4096 they are at most 2**-14 of abs(A) abs(B), also where some columns are a hundred times the others."""
    a, b = rng.standard_normal((60, k)), rounded_to(rng.standard_normal((k, 70)), "bfloat16")
    if outliers:
        a[:, :: k // 3] *= 100
    a = rounded_to(a, "bfloat16")
    bits, kinds = multiplied(a, b, "bfloat16")
    assert kinds.exact == 0 and kinds.worst <= 2.0**-8
    assert kinds.rows[0] == 60 or outliers  # of outliers some rows of 1024 elements may be proven
    assert kinds.rows[1] > 50 or not outliers
    exact, magnitudes = a.astype(np.float64) @ b, np.abs(a).astype(np.float64) @ np.abs(b)
    found = from_sixteen(bits, FORMATS["bfloat16"])
    unit = np.exp2(np.frexp(np.maximum(np.abs(exact), np.abs(found)))[1] - 9.0)  # half a unit of the last place
    assert (np.abs(found - exact) <= largest * magnitudes + unit).all()


# Compiled code --------------------------------------------------------------------------------------------------------


def by_float64(monkeypatch, call):
    """What a function returns where no compiled code is taken."""
    with monkeypatch.context() as patched:
        patched.setenv("OZAKI_CPU", "float64")
        ozaki.clear_caches()
        assert isinstance(compiled(), str)
        found = call()
    ozaki.clear_caches()
    return found


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(70, 300, 130), (9, 3000, 50), (300, 17, 49), (33, 1, 17)])
def test_compiled_code_has_the_same_bits(code, monkeypatch, rng, name, shape):
    a, b = operands(rng, name, *shape)
    a[0, 0], b[-1, -1] = np.nan, np.inf
    m, _, n = shape
    c = rounded_to(rng.standard_normal((1, m, n)), name)
    c[0, 1, 1] = np.inf
    for options in ({}, expression_of(1.0, 1.0, c), expression_of(-0.25, 8.0, c), expression_of(0.3, 0.7, c)):
        expected, kinds = by_float64(monkeypatch, lambda options=options: multiplied(a, b, name, **options))
        got, found = multiplied(a, b, name, **options)
        assert found == kinds and np.array_equal(got, expected)


@pytest.mark.parametrize("name", NAMES)
def test_compiled_code_finds_the_same_statistics(code, monkeypatch, rng, name):
    """Of subnormal, large, NaN and Inf elements, and rows of zeros, in any layout."""
    x = rounded_to(np.ldexp(rng.standard_normal((3, 37, 50)), rng.integers(-140, 120, (3, 37, 1))), "bfloat16")
    x[:, ::5] *= np.ldexp(np.float32(1), rng.integers(-20, 1, (3, 8, 50)))
    x[:, 3], x[:, 4, 7], x[:, 6, 3:] = 0, np.nan, np.inf
    x[:, 7, 1:] = 2.0**-149
    x[:, 8, 0], x[:, 8, 1:] = 2.0**127, 2.0**-149
    for rows in layouts(x):
        for digits, last in ((2, 1), (3, 1), (3, 2), (4, 2)):

            def found(rows=rows, digits=digits, last=last):
                return _row_statistics.statistics_of(_row_statistics.Described(rows), digits, last)

            for one, other in zip(by_float64(monkeypatch, found), found(), strict=True):
                assert np.array_equal(one, other)


@pytest.mark.parametrize("engine", ["float64", "int8-simulated", "int8"])
def test_engines_by_name(code, rng, engine):
    a, b = operands(rng, "bfloat16")
    expected, kinds = multiplied(a, b, "bfloat16")
    got, found = multiplied(a, b, "bfloat16", engine=engine)
    assert found == kinds and np.array_equal(got, expected)
    out = np.zeros((1, *expected.shape), np.uint16)
    prepared = columns_of(RowDigits("bfloat16"), b.T[None], split=True)
    multiply_rows(RowDigits("bfloat16"), a[None], prepared, out, Memory(None), engine=engine)
    assert np.array_equal(out[0], expected)


@pytest.mark.parametrize("name", NAMES)
def test_layouts(code, rng, name):
    a, b = operands(rng, name, 30, 70, 50)
    expected, kinds = multiplied(a, b, name)
    for x in layouts(a):
        for y in layouts(b):
            got, found = multiplied(x, y, name)
            assert found == kinds and np.array_equal(got, expected)
    wide = np.zeros((1, 60, 150), np.uint16)
    for out in (wide[:, ::2, ::3], wide[:, ::-2, ::-3], np.zeros((1, 50, 30), np.uint16).swapaxes(1, 2)):
        multiply_rows(RowDigits(name), a[None], b.T[None], out, Memory(None))
        assert np.array_equal(out[0], expected)
    c = rounded_to(rng.standard_normal((30, 50)), name)
    expected, _ = multiplied(a, b, name, **expression_of(1.0, 1.0, c[None]))
    for each in layouts(c):
        assert np.array_equal(multiplied(a, b, name, **expression_of(1.0, 1.0, each[None]))[0], expected)


@pytest.mark.parametrize("name", NAMES)
def test_slabs_of_k(code, monkeypatch, rng, name):
    a, b = operands(rng, name, 20, 200, 30)
    c = rounded_to(rng.standard_normal((1, 20, 30)), name)
    expected = [multiplied(a, b, name), multiplied(a, b, name, **expression_of(1.0, 1.0, c))]
    monkeypatch.setattr(int8_digits, "DEPTH", 32)
    ozaki.clear_caches()
    prepared = columns_of(RowDigits(name), b.T[None], split=True)
    for options, (bits, kinds) in zip(({}, expression_of(1.0, 1.0, c)), expected, strict=True):
        got, found = multiplied(a, b, name, **options)
        assert found == kinds and np.array_equal(got, bits)
        out = np.zeros((1, 20, 30), np.uint16)
        assert multiply_rows(RowDigits(name), a[None], prepared, out, Memory(None), **options) == kinds
        assert np.array_equal(out[0], bits)


@pytest.mark.parametrize("name", NAMES)
def test_columns_that_are_split_once(code, monkeypatch, rng, name):
    a, b = (np.stack(x) for x in zip(*(operands(rng, name, 12, 70, 60) for _ in range(3)), strict=True))
    scheme, columns = RowDigits(name), b.swapaxes(1, 2)
    expected, kinds = multiplied(a, b, name)
    prepared = columns_of(scheme, columns, split=True)
    out = np.zeros(expected.shape, np.uint16)

    def multiply():
        out[...] = 0
        return multiply_rows(scheme, a, prepared, out, Memory(None))

    assert multiply() == kinds and np.array_equal(out, expected)
    assert by_float64(monkeypatch, multiply) == kinds and np.array_equal(out, expected)  # without the digits
    one = columns_of(scheme, columns[:1], split=True)
    for rows in (a, a[:, :1]):
        out = np.zeros((3, rows.shape[1], 60), np.uint16)
        multiply_rows(scheme, rows, one, out, Memory(None))
        assert np.array_equal(out, multiplied(rows, b[:1], name)[0])


def test_a_library_that_rounds_wrongly_is_refused(code, monkeypatch):
    multiply = self_test.multiply_short

    def wrong(*given):
        multiply(*given)
        given[6][0, -1, -1] ^= 1

    monkeypatch.setattr(self_test, "multiply_short", wrong)
    assert self_test.self_test(code.library) == "multiplies 16-bit floats wrongly on this processor"


# What it holds, and tells ---------------------------------------------------------------------------------------------


def held(call):
    """The most bytes that a second call of a function holds; a first call fills what is kept."""
    call()
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("limit", [None, 8_000_000])
@pytest.mark.parametrize("kind", ["normal", "kinds", "expression"])
def test_memory(code, monkeypatch, rng, limit, kind):
    a, b = operands(rng, "bfloat16", 150, 600, 500)
    if kind == "normal":
        a = rounded_to(rng.standard_normal(a.shape), "bfloat16")
    options = expression_of(1.0, 3.0, np.ones((1, 150, 500), np.float32)) if kind == "expression" else {}
    out, memory = np.zeros((1, 150, 500), np.uint16), []

    def multiply():
        memory[:] = [Memory(limit)]
        return multiply_rows(RowDigits("bfloat16"), a[None], b.T[None], out, memory[0], **options)

    def check():
        most = held(multiply)
        assert memory[0].held == 0
        assert most <= memory[0].most + 400_000
        assert limit is None or memory[0].most <= limit
        return out.copy()

    by_blas = by_float64(monkeypatch, check)
    assert np.array_equal(check(), by_blas)
    with pytest.raises(ValueError, match="workspace_limit"):
        multiply_rows(RowDigits("bfloat16"), a[None], b.T[None], out, Memory(10_000), **options)


def test_progress(rng):
    a, b = operands(rng, "bfloat16", 30, 40, 50)
    seen = []
    progress = Progress(lambda *told: seen.append(told))
    _, kinds = multiplied(a, b, "bfloat16", progress=progress)
    progress.step(1)
    assert kinds.exact and progress._done == 31
    progress.end()
    assert seen[-1] == (30, 30, "rows")
