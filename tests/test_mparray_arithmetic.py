"""Exact arithmetic of `MPArray`, its shapes and indices, compared with rationals."""

import operator
from decimal import Decimal
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mparrays import power, rationals, rounded, same

import ozaki
from ozaki import mparray

numbers = (
    st.builds(lambda n, e: n * power(e), st.integers(-(2**200), 2**200), st.integers(-300, 300))
    | st.builds(Fraction, st.floats(allow_nan=False, allow_infinity=False))
    | st.builds(Fraction, st.integers(-8, 8))
)


def test_long_doubles_keep_all_bits_in_products():
    x = np.array([[np.longdouble(1) / 3, np.longdouble(1) / 7]])
    exact = sum(Fraction(*each.as_integer_ratio()) ** 2 for each in x[0])
    assert ozaki.matmul(ozaki.mparray(x), ozaki.mparray(x.T), accuracy="exact").to_fractions()[0, 0] == exact


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=6))
@settings(deadline=None)
def test_sums_and_differences_are_exact(pairs):
    a, b = (list(each) for each in zip(*pairs, strict=True))
    x, y = mparray(a), mparray(b)
    assert same(x + y, [p + q for p, q in pairs]) and same(x - y, [p - q for p, q in pairs])
    assert same(-x, [-p for p in a]) and same(abs(x), [abs(p) for p in a]) and +x is x
    assert (x == y).tolist() == [p == q for p, q in pairs] and (x != y).tolist() == [p != q for p, q in pairs]
    assert (x - x == 0).all() and (x + y - y == x).all()


@given(st.lists(numbers, min_size=1, max_size=4), st.integers(-(2**130), 2**130), st.integers(-200, 200))
@settings(deadline=None)
def test_multiples_are_exact(values, whole, exponent):
    x, factor = mparray(values), whole * power(exponent)
    wanted = [v * factor for v in values]
    assert same(x * factor, wanted) and same(factor * x, wanted)
    assert same(x * mparray(factor), wanted) and same(mparray(factor) * x, wanted)
    assert same(x * whole, [v * whole for v in values])


@given(st.lists(numbers, min_size=1, max_size=5), st.sampled_from([2, 3, 31, 32, 33, 53, 64, 65, 100]))
@settings(deadline=None)
def test_rounding(values, bits):
    assert same(mparray(values).round_to(bits), [rounded(v, bits) for v in values])


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=6), st.sampled_from([2, 32, 33, 64, 200]))
@settings(deadline=None)
def test_order(pairs, bits):
    """Numbers of any size, signs and bits; many of them agree in all but their last bits."""
    a = [rounded(p, bits) for p, _ in pairs]
    for b in ([q for _, q in pairs], [p + power(-400) * (i - 1) for i, p in enumerate(a)], [-p for p in a]):
        x, y = mparray(a), mparray(b)
        for compare in (operator.lt, operator.le, operator.gt, operator.ge):
            wanted = [compare(p, q) for p, q in zip(a, b, strict=True)]
            assert compare(x, y).tolist() == wanted and compare(x, np.array(b, object)).tolist() == wanted
            assert compare(x, b[0]).tolist() == [compare(p, b[0]) for p in a]
            assert compare(b[0], x).tolist() == [compare(b[0], p) for p in a]


def test_order_with_what_no_element_can_be():
    third = mparray([Fraction(1, 3), 1, -2], bits=100)
    assert (third < Fraction(1, 3)).tolist() == [rationals(third)[0] < Fraction(1, 3), False, True]
    for bits in range(2, 90):  # the numbers next to 1/3
        low = 2**bits // 3
        x = mparray([low, low + 1]) * power(-bits)
        assert (x < Fraction(1, 3)).tolist() == [True, False] == (x <= Fraction(1, 3)).tolist()
    others = np.array([np.nan, np.inf, -np.inf])
    assert (third < others).tolist() == (third <= others).tolist() == [False, True, False]
    assert (third > others).tolist() == (third >= others).tolist() == [False, False, True]
    assert not (third < np.nan).any() and not (third >= float("nan")).any() and (third < float("inf")).all()
    assert (mparray([10**400]) < np.inf).all() and (mparray([[1], [2]]) < np.array([2.0, np.nan])).tolist() == [
        [True, False],
        [False, False],
    ]
    far = mparray([mpmath.ldexp(1, 2**59), mpmath.ldexp(-1, 2**59)])
    assert (far > 1).tolist() == [True, False]  # their difference would have too many bits
    for other in (None, "1", object(), (np.ones(2), np.ones(2))):
        with pytest.raises(TypeError):
            third < other  # noqa: B015


@given(st.lists(numbers, min_size=12, max_size=12))
@settings(deadline=None)
def test_extremes(values):
    q = np.array(values, object).reshape(2, 3, 2)
    x = mparray(q)
    for y, p in ((x, q), (x[:, ::2], q[:, ::2]), (x.T, q.T), (x[:1, 0], q[:1, 0])):
        assert same(y.max(), p.max()) and same(y.min(), p.min()) and y.max().bits == y.bits
        for axis in range(-p.ndim, p.ndim):
            assert same(y.max(axis), p.max(axis)) and same(y.min(axis=axis), p.min(axis=axis))


def test_extremes_of_nothing_and_of_no_axis():
    assert same(mparray(3).max(), 3) and mparray(np.ones((0, 2))).max(axis=1).shape == (0,)
    for empty, axis in ((np.ones((0, 2)), None), (np.ones((0, 2)), 0), (np.ones(0), -1)):
        with pytest.raises(ValueError, match=r"^min of no elements: the shape is"):
            mparray(empty).min(axis)
    for x, axis in ((mparray(3), 0), (mparray([1]), 1)):
        with pytest.raises(np.exceptions.AxisError):
            x.max(axis)
    with pytest.raises(TypeError):
        mparray([1]).max(axis=0.0)


@given(st.lists(numbers, min_size=3, max_size=3), st.lists(st.integers(-(2**20), 2**20), min_size=3, max_size=3))
@settings(deadline=None)
def test_multiples_by_powers_of_two(values, exponents):
    x = mparray(values)
    assert same(x.ldexp(np.array(exponents)[:, None]), [[v * power(e) for v in values] for e in exponents])
    assert same(x.ldexp(exponents[0]), [v * power(exponents[0]) for v in values]) and x.ldexp(5).bits == x.bits


def test_multiples_by_powers_of_two_that_are_refused():
    x = mparray([1, 0])
    assert same(x.ldexp(2**59).ldexp(-(2**59)), [1, 0]) and same(x[1:].ldexp(2**62), [0])
    for e in (2**60, -(2**61), 2**62, np.uint64(2**63), -(2**63)):
        with pytest.raises(ValueError, match=r"^exponents: an element would have an exponent beyond"):
            x.ldexp(e)
    for e in (1.0, [0.5, 1], "1"):
        with pytest.raises(TypeError, match=r"^exponents: dtype .*; expected integers"):
            x.ldexp(e)
    with pytest.raises(ValueError, match="broadcast"):
        x.ldexp([1, 2, 3])


SCALARS = [
    2, -3, True, 0.375, Fraction(-5, 4), Decimal("2.5"), np.float64(0.1), np.float32(0.1), np.int64(2**62 + 1),
    np.uint8(200), np.bool_(True), np.longdouble(1) / 3, mpmath.mpf("0.7"), mpmath.ldexp(3, -5000),
]  # fmt: skip


def fraction_of(x):
    return Fraction(*map(int, x.as_integer_ratio())) if isinstance(x, np.floating) else rationals(mparray(x))[()]


@pytest.mark.parametrize("scalar", SCALARS, ids=lambda x: f"{type(x).__name__} {x}"[:30])
def test_scalars_on_either_side(scalar):
    x, s = mparray([[1.5, -2], [0, 2**70]]), fraction_of(scalar)
    q = rationals(x)
    assert same(x + scalar, q + s) and same(scalar + x, q + s)
    assert same(x - scalar, q - s) and same(scalar - x, s - q)
    assert same(x * scalar, q * s) and same(scalar * x, q * s)
    assert (x + scalar == scalar + x).all() and ((x == scalar) == (q == s)).all() and ((scalar == x) == (q == s)).all()
    assert ((x + s - x) == scalar).all() and not (x != x + scalar - scalar).any()


def test_scalars_of_other_libraries():
    gmpy2, flint = pytest.importorskip("gmpy2"), pytest.importorskip("flint")
    x = mparray([1, 2])
    for scalar in (gmpy2.mpz(3), gmpy2.mpq(3, 1), gmpy2.mpfr(3), flint.fmpz(3), flint.arb(3), flint.fmpq(3)):
        assert same(x + scalar, [4, 5]) and same(scalar + x, [4, 5]) and same(scalar - x, [2, 1])
        assert same(x * scalar, [3, 6]) and same(scalar * x, [3, 6]) and (x + 2 == scalar).tolist() == [True, False]


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "longdouble", "i1", "u8", "?", object])
def test_arrays_on_either_side(dtype):
    x, y = mparray([[1, 2**80], ["0.5", 0]]), np.array([[1, 0], [0, 1]]).astype(dtype)
    for a, b in ((x, y), (y, x), (x, y[0]), (y[:, :1], x), (x[0], y), (x, y.tolist()), (y[:1].tolist(), x)):
        p, s = (
            rationals(e) if isinstance(e, ozaki.MPArray) else np.array(e).astype(int).astype(object) for e in (a, b)
        )
        assert same(a + b, p + s) and same(a - b, p - s)
        assert ((a == b) == (p == s)).all() and ((a != b) == (p != s)).all() and (a == b).dtype == bool


def test_broadcasting():
    x, y = mparray(np.arange(6.0).reshape(2, 1, 3)), mparray(np.arange(4).reshape(4, 1))
    assert (x + y).shape == (2, 4, 3) and same(x + y, rationals(x) + rationals(y))
    assert same(x - mparray(1), rationals(x) - 1) and (x == y).shape == (2, 4, 3)
    assert (mparray(np.zeros((0, 3))) + x[0]).shape == (0, 3)
    for call in (operator.add, operator.sub, operator.eq):
        with pytest.raises(ValueError, match="broadcast"):
            call(x, mparray([1, 2]))
    with pytest.raises(ValueError, match=r"element \[1\] is nan"):
        x + np.array([1.0, np.nan, 2])


def test_elementwise_products_are_refused():
    x = mparray([1.0, 2.0])
    for other in (x, np.ones(2), np.ones(1), [1, 2], x[:1], mparray([[1]])):
        for call in (lambda a, b: a * b, lambda a, b: b * a):
            with pytest.raises(TypeError, match=r"elementwise products are not offered.*@ multiplies matrices"):
                call(x, other)
    assert same(x * mparray(3), [3, 6]) and same(mparray(3) * x, [3, 6]) and same(np.ones(2) * mparray(3), [3, 3])
    assert same(np.array(3) * x, [3, 6]) and same(x * np.array(3), [3, 6])


def test_what_cannot_be_added_or_multiplied():
    x = mparray([1.0, 2.0])
    for other in (None, "1", b"1", object(), (np.ones(2), np.ones(2)), {}):
        for call in (operator.add, operator.sub, operator.mul):
            for a, b in ((x, other), (other, x)):
                with pytest.raises(TypeError):
                    call(a, b)
        assert (x == other) is False and (x != other) is True
    for bad in (Fraction(1, 3), Decimal("0.1")):
        for call in (operator.add, operator.sub, operator.mul):
            with pytest.raises(ValueError, match=r"^other: the number is .* which has no end in binary"):
                call(x, bad)
    for bad in (np.nan, np.inf, np.float32(np.nan)):
        with pytest.raises(ValueError, match=r"is (nan|inf); there is no such multiprecision number"):
            x + bad
        with pytest.raises(ValueError, match=r"is (nan|inf); there is no such multiprecision number"):
            bad * x
    with pytest.raises(TypeError):
        hash(x)
    with pytest.raises(TypeError):
        np.add(x, "1")


def test_equality_with_what_no_element_can_be():
    third = mparray([Fraction(1, 3), 1], bits=100)
    assert (third == Fraction(1, 3)).tolist() == [False, False] and (third != [Fraction(1, 3), 1]).tolist() == [
        True,
        False,
    ]
    assert (third == np.array([np.nan, 1])).tolist() == [False, True] and (third != np.inf).all()
    assert (third == np.nan).tolist() == [False, False]
    for bits in range(1, 120):  # all numbers that 1/3 could be cut off to
        cut = mparray([2**bits // 3 * 2 + 1, 2**101 + 1]) * power(-bits - 1)
        assert not (cut == Fraction(1, 3)).any()
    # A number of more bits that agrees in all that the array has.
    assert (third == third[0] + mparray(power(-500))).tolist() == [False, False]
    assert mparray(2.0) == 2 and mparray(2.0) != 3


def test_sums_of_numbers_too_far_apart_are_refused():
    x = mparray([[1.0, mpmath.ldexp(1, 2**25)]])
    assert same(x[0, 0] + 1, 2)
    with pytest.raises(ValueError, match=r"exact sum at \[0, 1\] takes 33554434 bits, more than 16777216"):
        x + 1
    far = mparray([2**1000000, 1]) + power(-1000)
    assert same(far, [2**1000000 + power(-1000), 1 + power(-1000)])


def test_multiples_beyond_the_widest_exponent_are_refused():
    x = mparray([mpmath.ldexp(1, 2**60 - 10), 0, 1])
    assert (x * 2 == mparray([mpmath.ldexp(1, 2**60 - 9), 0, 2])).all()
    for factor in (2.0**20, mpmath.ldexp(1, 2**60), mpmath.ldexp(1, -(2**61))):
        with pytest.raises(ValueError, match=r"exponent (beyond|of a multi)"):
            x * factor
    assert same(mparray([0, 0]) * mpmath.ldexp(1, 2**59), [0, 0])


@pytest.mark.full
def test_multiples_by_a_factor_of_many_bits():
    """Sums of 2**15 products of 48 bits and more are carried before they leave int64."""
    factor, value = 2**1150000 - 1, 2**1150000 - 3
    (ints,), (exponents,) = (mparray([value]) * factor).to_ints()
    assert ints << int(exponents) == value * factor


def test_zeros():
    zero = mparray(np.zeros((2, 3)))
    assert (
        same(zero * 5, np.zeros((2, 3), int))
        and same(-zero, np.zeros((2, 3), int))
        and same(zero + 3, np.full((2, 3), 3))
    )
    assert same(mparray([1, -2]) * 0, [0, 0]) and (zero == -zero).all() and (0.0 * zero == 0).all()
    assert not mparray(0.0) and mparray([[0.5]])


def test_attributes():
    x = mparray(np.ones((2, 3, 4)))
    assert (x.shape, x.ndim, x.size, x.bits, len(x), x.nbytes) == ((2, 3, 4), 3, 24, 53, 2, 24 * 17)
    assert x.real is x and x.T.shape == (4, 3, 2)
    assert [same(a, b) for a, b in zip(x, np.ones((2, 3, 4), int), strict=True)] == [True, True]
    scalar = mparray(2.5)
    assert float(scalar) == 2.5 and scalar.shape == () and float(mparray([2.5])[0]) == 2.5
    for call in (len, iter, list):
        with pytest.raises(TypeError, match="without axes"):
            call(scalar)
    with pytest.raises(TypeError):
        float(mparray([1]))
    with pytest.raises(ValueError, match="ambiguous"):
        bool(x)


ALL = slice(None)
INDICES = [
    0, -1, (1, 2), (1, 2, 3), (ALL, 1), (slice(None, None, -1), slice(1, 3)), (..., 0), (0, ...), (None, 1), (),
    ..., None, [1, 0], ([0, 1], [2, 0]), (0, ALL, [1, 3]), ([0, 1], ALL, [1, 3]), np.array([[0, 1], [1, 1]]),
    (ALL, [2, 0], slice(1, 3)), (0, [1, 2], 0), np.ones((2, 3), bool), np.zeros(2, bool), ([], ALL, [1]),
    (1, np.array([True, False, True])), (np.int64(1), np.int8(2)), (ALL, None, [0, 0, 1], None, 1), np.array(1), True,
    (..., [1]), (0, ALL, np.array([1, 3])), (np.array([0, 1]), ALL, 1), (np.array([[1]]), None, ALL, [2]),
]  # fmt: skip


@pytest.mark.parametrize("index", INDICES, ids=str)
@pytest.mark.parametrize("bits", [20, 53, 100])
def test_indices(index, bits):
    """Where a slice lies between arrays of indices, NumPy puts their axes first, but not before that of the limbs."""
    values = np.arange(24).reshape(2, 3, 4) + Fraction(1, 2 ** (bits - 8))
    x = mparray(values)
    assert same(x[index], values[index])
    assert same(x.swapaxes(0, 1)[:, ::-1].swapaxes(0, 1)[index], values[::-1][index])


def test_indices_that_are_refused():
    x = mparray(np.ones((2, 3)))
    for index in (2, (0, 3), (0, 0, 0), [5], 1.0, "a", np.ones(3, bool)):
        with pytest.raises(IndexError):
            x[index]


def test_shapes(rng):
    values = rng.integers(-(2**40), 2**40, (2, 3, 4)).astype(object) * (2**30 + 1)
    x = mparray(values)
    for change in (
        lambda y: y.reshape(4, 6), lambda y: y.reshape(-1), lambda y: y.reshape((6, -1)), lambda y: y.T,
        lambda y: y.transpose(1, 2, 0), lambda y: y.transpose((2, 0, 1)), lambda y: y.swapaxes(0, -1),
        lambda y: y.T.reshape(3, 8), lambda y: y[::-1].T[::2].reshape(-1), lambda y: y[:, :0].reshape(0, 7),
        lambda y: y.copy(),
    ):  # fmt: skip
        assert same(change(x), change(values)) and isinstance(change(x), ozaki.MPArray)
    view = x[::-1, 1:].T
    assert same(view + view, 2 * values[::-1, 1:].T) and same(view * 3, 3 * values[::-1, 1:].T)
    assert same(view.round_to(9), [[[rounded(Fraction(v), 9) for v in r] for r in m] for m in values[::-1, 1:].T])
    for wrong in (lambda: x.reshape(5, 5), lambda: x.transpose(0, 1), lambda: x.swapaxes(0, 5)):
        with pytest.raises((ValueError, IndexError)):
            wrong()
    assert not np.may_share_memory(x.copy().limbs, x.limbs)


def test_one_element_and_none():
    one, none = mparray([[3]]), mparray(np.zeros((0, 2)))
    assert same(one + 1, [[4]]) and same(one.reshape(()), 3) and same(mparray(3).reshape(1, 1), [[3]])
    for result in (none + none, none - 1, none * 3, -none, abs(none), none.round_to(2), none.copy()):
        assert result.shape == (0, 2)
    assert none.T.shape == (2, 0) and (none == none).shape == (0, 2) and [*none] == []
