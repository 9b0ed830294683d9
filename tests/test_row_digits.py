"""Products of 16-bit floats, rounded once to 16 bits, are those of the definition, and within their bound."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from row_digits_definition import EXACT, bits_of, product

from ozaki.backends.numpy._row_digits import multiply_rows
from ozaki.backends.numpy._sixteen import beside_boundary, from_sixteen, on_boundary, to_sixteen
from ozaki.records.memory import Memory
from ozaki.schemes.row_digits import FORMATS, RowDigits, steps, thresholds

NAMES = tuple(FORMATS)


def rounded_to(x, name):
    """Numbers of the format nearest to x, none of them Inf, as float32."""
    of = FORMATS[name]
    values = from_sixteen(np.minimum(to_sixteen(np.asarray(x, np.float64), of), 0xFFFF), of)
    return np.where(np.isfinite(values), values, 1.0).astype(np.float32)


def multiplied(a, b, name, memory=None):
    """The bits of a product of matrices a, shape (m, k), and b, shape (k, n), and the kinds of its rows."""
    out = np.full((1, a.shape[0], b.shape[1]), 0x1234, np.uint16)
    kinds = multiply_rows(RowDigits(name), a[None], b.T[None], out, memory or Memory(None))
    return out[0], kinds


def rows_of_all_kinds(rng, m, k, name):
    """Rows whose kinds differ: normal, with outliers, sparse, of wide span, integers, zeros."""
    x = rng.standard_normal((m, k))
    x[1::6, ::7] *= 100
    x[2::6] *= rng.random((len(x[2::6]), k)) < 0.1
    x[3::6] *= np.exp2(rng.integers(-60, 40, (len(x[3::6]), k)) * (1.0 if name == "bfloat16" else 0.2))
    x[4::6] = np.rint(4 * x[4::6])
    x[5::6, k // 2 :] = 0
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


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    shape=st.tuples(st.integers(1, 13), st.sampled_from([1, 2, 5, 40, 130]), st.integers(1, 9)),
    seed=st.integers(0, 2**32 - 1),
    scales=st.tuples(*2 * [st.sampled_from([0, 0, -120, 100])]),
    columns=st.sampled_from(["normal", "kinds", "zeros", "integers"]),
)
def test_any_product(name, shape, seed, scales, columns):
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
    expected, kinds, worst = product(a, b.T, name)
    got, found = multiplied(a, b.T, name)
    assert found.exact == kinds.count(EXACT)
    assert found.rows == tuple(kinds.count(kind) for kind in FORMATS[name].kinds)
    assert found.worst == worst
    assert np.array_equal(got, expected), np.argwhere(got != expected)[:5]
