"""Limbs: exact sums, and the one rounding of results, compared with rationals."""

from fractions import Fraction
from itertools import pairwise
from unittest import mock

import numpy as np
import pytest
from cases import power, rounded, same_bits
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ozaki.backends.numpy import _limbs
from ozaki.schemes.blas import LIMB_BITS

BITS = LIMB_BITS


@pytest.fixture(autouse=True)
def _as_in_matmul():
    with np.errstate(all="ignore"):
        yield


def value(limbs):
    return sum(int(x) << (BITS * j) for j, x in enumerate(limbs))


def balanced(x, count):
    """An integer as `count` limbs, all balanced except the highest."""
    limbs = []
    for _ in range(count - 1):
        low = (x + 2 ** (BITS - 1)) % 2**BITS - 2 ** (BITS - 1)
        limbs.append(float(low))
        x = (x - low) >> BITS
    return np.array([*limbs, float(x)])[:, None]


@st.composite
def wide_integers(draw):
    """Integers of up to 600 bits, many of them next to ties, to powers of two and to limb boundaries."""
    kind = draw(st.integers(0, 3))
    size = draw(st.integers(1, 600))
    if kind == 0:
        x = draw(st.integers(0, 2**size))
    elif kind == 1:  # few bits set or cleared
        x = sum(2**e for e in draw(st.lists(st.integers(0, size), max_size=4)))
        x = abs(x - draw(st.sampled_from([0, 1, 2**BITS, 2 ** (2 * BITS - 1)])))
    elif kind == 2:  # 53 bits or one more, then far below a last bit
        head = draw(st.integers(2**52, 2**54))
        x = (head << size) + draw(st.sampled_from([-1, 0, 1]))
    else:  # the middle between two numbers, next to it
        head = 2 * draw(st.integers(2**52, 2**53 - 1)) + 1
        x = (head << size) + draw(st.integers(-2, 2)) * 2 ** draw(st.integers(0, size))
    return x if draw(st.booleans()) else -x


@given(st.lists(st.integers(-(2**51), 2**51), min_size=1, max_size=12))
def test_carry_keeps_the_value_and_balances(raw):
    limbs = np.array(raw, np.float64)[:, None].copy()
    _limbs.carry(limbs)
    assert value(limbs[:, 0]) == value(raw)
    assert (np.abs(limbs[:-1]) <= 2 ** (BITS - 1)).all()


@given(st.integers(0, 250), st.lists(st.integers(-(2**53), 2**53), min_size=1, max_size=20))
def test_add_shifted_adds_exactly(shift, values):
    limbs = np.zeros((-(-(shift + 60) // BITS), 1))
    for x in values:
        _limbs.add_shifted(limbs, np.array([float(x)]), shift)
    assert value(limbs[:, 0]) == sum(values) << shift
    assert (np.abs(limbs) <= 2**52).all()


def test_add_shifted_at_its_ends():
    for shift in range(60):
        for x in (2**53, -(2**53), 2**53 - 1, 1, -1, 0):
            limbs = np.zeros((-(-(shift + 60) // BITS), 1))
            _limbs.add_shifted(limbs, np.array([float(x)]), shift)
            assert value(limbs[:, 0]) == x << shift
            assert (np.abs(limbs[:-1]) <= 2 ** (BITS - 1)).all()


def to_odd(x):
    """A rational rounded to odd at 53 bits."""
    if x == 0:
        return 0.0
    size = abs(x)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < power(exponent)
    units = size / power(exponent - 52)
    whole = units.numerator // units.denominator
    whole |= whole != units
    result = float(np.ldexp(float(whole), exponent - 52))
    return result if x > 0 else -result


@given(st.integers(-(2**53), 2**53), st.integers(-(2**53), 2**53), st.integers(-200, 0))
@example(2**53, -1, -1)
@example(2**52, -1, -60)
@example(-(2**52), 1, -60)
@example(1, -1, 0)
def test_add_to_odd(x, y, shift):
    a, b = float(x), float(np.ldexp(float(y), shift))
    if abs(a) < abs(b) and a != 0:
        a, b = b, a
    total = _limbs.add_to_odd(np.array([a]), np.array([b]))[0]
    assert total == to_odd(Fraction(a) + Fraction(b))


@given(wide_integers())
@settings(max_examples=500, deadline=None)
def test_collapse_keeps_what_any_rounding_needs(x):
    limbs = balanced(x, -(-(abs(x).bit_length() + 2) // BITS))
    high, low = (v[0] for v in _limbs.collapse(limbs))
    assert float(high) + float(low) == rounded(Fraction(x), "float64")
    assert Fraction(float(high)) + Fraction(float(low)) == x or low.view(np.int64) & 1  # an inexact result is odd
    if abs(x) < 2**127:
        both = _limbs.add_to_odd(np.array([high]), np.array([low]))[0]
        assert np.float32(both) == rounded(Fraction(x), "float32")


@given(st.lists(wide_integers(), min_size=1, max_size=5), st.data())
@settings(max_examples=500, deadline=None)
def test_nearest_of_limbs_in_no_order(integers, data):
    """Several integers at a time, each as limbs that overlap."""
    count = max(-(-(abs(x).bit_length() + 2) // BITS) for x in integers)
    limbs = np.concatenate([balanced(x, count) for x in integers], axis=1)
    for low, high in pairwise(limbs):
        moved = data.draw(st.integers(-(2**24), 2**24))
        low += moved * 2.0**BITS
        high -= moved
    wanted = [rounded(Fraction(x), "float64") for x in integers]
    assert same_bits(_limbs.nearest(limbs), np.array(wanted))


@pytest.mark.parametrize("count", [4, 5, 7, 13])
def test_ordinary_limbs_are_not_put_in_order(rng, count):
    limbs = rng.integers(-(2**51), 2**51, (count, 2**14)).astype(np.float64)
    limbs[-1] = rng.integers(-(2**24), 2**24, 2**14)
    expected = np.add(*_limbs._in_order(limbs.copy()))
    with mock.patch.object(_limbs, "_in_order", side_effect=AssertionError):
        assert same_bits(_limbs.nearest(limbs), expected)


def checked_rounding(x, rows, cols, dtype):
    limbs = balanced(x, -(-(abs(x).bit_length() + 2) // BITS))
    out = np.full((1, 1, 1), np.nan, dtype)
    _limbs.round_scaled(limbs, np.array([[rows]], np.int64), np.array([[cols]], np.int64), out)
    wanted = rounded(Fraction(x) * power(rows + cols), dtype)
    assert same_bits(out, np.full((1, 1, 1), wanted)), (x, rows, cols, float(out[0, 0, 0]).hex(), float(wanted).hex())


@given(wide_integers(), st.integers(-900, 900), st.integers(-900, 900), st.sampled_from(["float32", "float64"]))
@settings(max_examples=500, deadline=None)
def test_rounding_once_at_any_scale(x, rows, cols, dtype):
    checked_rounding(x, rows, cols, dtype)


@given(
    wide_integers(),
    st.integers(-4, 60),
    st.integers(-1200, 1200),
    st.sampled_from([("float32", -149), ("float64", -1074)]),
)
@settings(max_examples=1000, deadline=None)
@example(-1, 0, 0, ("float64", -1074))
@example(3 * 2**200 + 1, 1, -1100, ("float64", -1074))
def test_rounding_into_the_subnormals(x, bits, rows, target):
    """Results of `bits` bits above half the smallest number, in all of the subnormals and around them."""
    dtype, smallest = target
    exponent = smallest - 2 + bits - abs(x).bit_length()
    checked_rounding(x, rows, exponent - rows, dtype)


@pytest.mark.parametrize(("dtype", "past"), [("float32", 128), ("float64", 1024)])
@pytest.mark.parametrize("sign", [1, -1])
def test_overflow_rounds_to_infinity_and_not_before(dtype, past, sign):
    precision = 24 if dtype == "float32" else 53
    last = 2**precision - 1
    for x, exponent in [
        (last, 0),
        (2 * last + 1, -1),
        (4 * last + 1, -2),
        (4 * last + 3, -2),
        (last + 1, 0),
        (1, 5000),
    ]:
        for half in (0, 300, -1300):
            shift = past - precision + exponent
            checked_rounding(sign * x, half, shift - half, dtype)


def test_every_tie_of_small_integers():
    for exponent in range(-1078, -1070):
        x = np.arange(-64.0, 65.0)
        out = np.full((1, 1, x.size), np.nan)
        cols = np.full((1, x.size), exponent, np.int64)
        _limbs.round_scaled(x.reshape(1, -1).copy(), np.zeros((1, 1), np.int64), cols, out)
        wanted = np.array([rounded(Fraction(int(v)) * power(exponent), "float64") for v in x]).reshape(out.shape)
        assert same_bits(out, wanted)


@pytest.mark.parametrize(("dtype", "smallest"), [("float32", -149), ("float64", -1074)])
def test_hard_roundings_of_every_width(dtype, smallest):
    """Ties, and the numbers next to ties, of results with 1 to 54 bits above the smallest number."""
    for bits in range(1, 55):
        for head in (2**bits - 1, 2 ** (bits - 1), 2 ** (bits - 1) + 1, 2 ** (bits - 1) + 2 ** (bits // 2)):
            for far in (3, 60, 120):
                for below in (-1, 0, 1):
                    x = ((2 * head + 1) << far) + below
                    checked_rounding(x, 7, smallest - 1 - far - 7, dtype)
                    checked_rounding(-x, 7, smallest - 1 - far - 7, dtype)
