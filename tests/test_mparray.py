"""`ozaki.mparray`: from whatever holds numbers, exactly or rounded once."""

import random
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

fractions = st.fractions() | st.builds(
    lambda n, d, e: Fraction(n, d) * power(e),
    st.integers(-(10**40), 10**40),
    st.integers(1, 10**40),
    st.integers(-3000, 3000),
)
precisions = st.sampled_from([2, 3, 24, 31, 32, 33, 53, 63, 64, 65, 96, 200])


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f4", ">f8", "longdouble"])
def test_floats_are_exact(dtype, rng):
    info = np.finfo(np.dtype(dtype))
    x = np.concatenate([
        np.ldexp(rng.standard_normal(50), rng.integers(-20, 10, 50)).astype(dtype),
        np.array([0, info.max, -info.max, info.tiny, info.smallest_subnormal, -info.smallest_subnormal, info.eps]),
    ]).astype(dtype)  # fmt: skip
    x[-8] = -np.array(0, dtype)
    before = x.copy()
    found = mparray(x)
    assert same(found, [Fraction(*map(int, v.as_integer_ratio())) for v in x])
    assert x.tobytes() == before.tobytes()
    if dtype != "longdouble":
        assert found.bits == {2: 11, 4: 24, 8: 53}[x.dtype.itemsize]


def test_negative_zero_is_zero():
    assert same(mparray(np.array([-0.0, 0.0])), [0, 0])
    assert same(mparray([-0.0, Decimal("-0"), "-0.0", mpmath.mpf(-0.0)]), [0] * 4)


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i2", "u2", ">i4", "u4", "i8", "u8", ">u8"])
def test_integers_are_exact(dtype):
    if dtype == "?":
        values, bits = [0, 1], 2
    else:
        info = np.iinfo(np.dtype(dtype))
        values, bits = [info.min, info.max, 0, 1, info.max // 3], info.bits - (info.kind == "i")
    x = np.array(values, dtype)
    assert same(mparray(x), values) and mparray(x).bits == bits
    assert same(mparray(x.reshape(1, -1).T), [[int(v)] for v in values])
    assert same(mparray(list(x)), values) and same(mparray(x[0]), values[0])


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (), (1,), (1, 1, 1), (2, 3, 4)])
@pytest.mark.parametrize("kind", ["f4", "f8", "i8", "?", object])
def test_shapes(shape, kind):
    size = int(np.prod(shape))
    x = (np.arange(size) % 2).astype(kind).reshape(shape)
    found = mparray(x)
    assert found.shape == shape and same(found, x.astype(int).astype(object))
    words = np.arange(size, dtype=float).reshape(shape)
    assert same(mparray((words, 2.0**-60 * words)), words.astype(int) * Fraction(2**60 + 1, 2**60))


def test_strided_views(rng):
    x = rng.standard_normal((6, 7, 8))
    for view in (x[::2, ::-1, 1::3], x.T, x.transpose(1, 0, 2)[:, ::-2], np.broadcast_to(x[:1], x.shape)):
        for kind in (float, np.float32, object):
            y = view.astype(kind)[..., ::-1] if kind is not float else view
            assert same(mparray(y), y.astype(object))
        assert same(mparray((view, view)), 2 * view)


@given(st.lists(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=4, max_size=4), min_size=1))
def test_words_are_unevaluated_sums(rows):
    words = np.array(rows).T
    found = mparray(tuple(words))
    assert same(found, [sum(map(Fraction, row), Fraction()) for row in rows])


def test_words_are_a_tuple_and_nothing_else():
    x = np.ones((2, 3, 4))
    assert mparray(x).shape == mparray(list(x)).shape == (2, 3, 4)
    assert mparray(tuple(x)).shape == (3, 4)
    assert same(mparray((np.float64(1), np.float64(2.0**-99))), 1 + power(-99))
    assert same(mparray((np.zeros(3),)), [0] * 3)
    for wrong in ((1.0, 2.0), (x, [1.0]), (x.astype("f4"),), (x.astype(int),)):
        with pytest.raises(TypeError, match=r"^x: item \d of the tuple.*words of an unevaluated sum"):
            mparray(wrong)
    with pytest.raises(ValueError, match=r"^x: word 1 has shape \(3, 4\), word 0 \(2, 3, 4\)"):
        mparray((x, x[0]))
    with pytest.raises(ValueError, match=r"^x: an empty tuple"):
        mparray(())
    bad = [np.ones((3, 4)), np.ones((3, 4))]
    bad[1][2, 1] = np.inf
    with pytest.raises(ValueError, match=r"^x: word 1 of element \[2, 1\] is inf"):
        mparray(tuple(bad))


@given(st.lists(fractions, min_size=1, max_size=5), precisions)
@settings(deadline=None)
def test_fractions_are_rounded_once(values, bits):
    assert same(mparray(values, bits=bits), [rounded(v, bits) for v in values])
    texts = [str(v) for v in values]
    assert (mparray(texts, bits=bits) == mparray(values, bits=bits)).all()


@given(st.decimals(allow_nan=False, allow_infinity=False), precisions)
@settings(deadline=None)
def test_decimals_are_rounded_once(value, bits):
    if abs(value.adjusted()) < 10**4:
        wanted = rounded(Fraction(value), bits)
        assert same(mparray(value, bits=bits), wanted) and same(mparray(f" {value} ", bits=bits), wanted)


@given(st.integers(0, 10**30), st.integers(-25000, 25000), precisions)
@settings(deadline=None, max_examples=30)
def test_decimals_with_far_exponents(digits, exponent, bits):
    """Powers of ten from 10**16384 on are bracketed."""
    wanted = rounded(Fraction(digits) * (Fraction(10) ** exponent), bits)
    assert same(mparray(f"-{digits}e{exponent}", bits=bits), -wanted)


@pytest.mark.parametrize("exponent", [20000, -20000])
def test_a_far_decimal_next_to_a_tie(exponent):
    """The digits are those for which the number lies within 2**-1000 of a tie: the bracket is narrowed for it."""
    ten = Fraction(10) ** exponent
    tie = (2**52 + 1) * 2**9 + 2**8  # of 60 bits
    digits = round(tie * 2**2000 / ten * power(round(float(mpmath.log(10, 2)) * exponent)))
    number = digits * ten
    wanted = rounded(number, 53)
    assert same(mparray(f"{digits}e{exponent}", bits=53), wanted)
    assert abs(wanted / number - 1) > power(-55)  # nearly half a unit in the last place


def test_decimals_of_any_exponent():
    far = mparray(["1e300000000", "1e-300000000"], bits=100)
    mpmath.mp.prec, before = 200, mpmath.mp.prec
    try:
        wanted = [mpmath.mpf(10) ** e for e in (300000000, -300000000)]
        assert all(abs(a / b - 1) < mpmath.mpf(2) ** -99 for a, b in zip(far.tolist(), wanted, strict=True))
    finally:
        mpmath.mp.prec = before
    assert same(mparray("1" * 10000), int_of_ones(10000))
    assert same(
        mparray("1" * 10000 + "/" + "1" * 5000, bits=70), rounded(Fraction(int_of_ones(10000), int_of_ones(5000)), 70)
    )
    assert same(mparray(Decimal("0." + "0" * 20 + "5") * 2**21, bits=300), rounded(Fraction(2**21 * 5, 10**21), 300))
    assert same(mparray(["0.5", "1.250e1", "3_0", "-7/14", "+8/2"]), [0.5, 12.5, 30, -0.5, 4])


def int_of_ones(digits):
    return (10**digits - 1) // 9


@given(st.lists(st.integers() | st.integers(-(2**300), 2**300), min_size=1), st.none() | precisions)
@settings(deadline=None)
def test_python_integers(values, bits):
    found = mparray(values, bits=bits)
    assert same(found, values if bits is None else [rounded(Fraction(v), bits) for v in values])
    widest = max((abs(v) // (v & -v)).bit_length() if v else 0 for v in values)
    assert found.bits == (max(2, widest) if bits is None else bits)


def test_trailing_zeros_take_no_memory():
    x = mparray([2**1000000, -3 * 2**999998, 1])
    assert x.bits == 2 and x.nbytes == 3 * 13
    assert x.to_ints()[0].tolist() == [1, -3, 1] and x.to_ints()[1].tolist() == [1000000, 999998, 0]
    y = mparray([3**100000, 1], bits=100)
    assert y.nbytes == 2 * (9 + 16) and same(y, [rounded(Fraction(3**100000), 100), 1])


def test_elements_far_apart():
    values = [2**1000000 + 2**999900, 3 * power(-1000000), 1]
    assert same(mparray(values), values)
    assert same(mparray([mpmath.ldexp(3, 10**6), mpmath.ldexp(-5, -(10**6))]), [3 * power(10**6), -5 * power(-(10**6))])


def test_the_widest_exponents():
    x = mparray([mpmath.ldexp(1, 2**60 - 1), mpmath.ldexp(1, -(2**60))])
    assert x.exponents.tolist() == [2**60, -(2**60) + 1]
    assert x.tolist() == [mpmath.ldexp(1, 2**60 - 1), mpmath.ldexp(1, -(2**60))]
    assert x.astype("f8").tolist() == [np.inf, 0]
    assert len(repr(x)) < 100
    for exponent, size in ((2**60, "large"), (10**30, "large"), (-(2**60) - 2, "small"), (-(10**30), "small")):
        with pytest.raises(ValueError, match=rf"^x: element \[1\] is too {size}; the exponent"):
            mparray([1, mpmath.ldexp(1, exponent)])
    with pytest.raises(ValueError, match=r"^x: the number is too large"):
        mparray("1e999999999999999999", bits=50)


def test_ties_go_to_even():
    values = [5, 7, 9, 11, 13, 15, -5, -7, 4.5, 2**70 + 2**68, 2**70 + 2**68 + 1, Fraction(2**70 * 5 + 1, 2**70)]
    assert same(mparray(values, bits=2), [4, 8, 8, 12, 12, 16, -4, -8, 4, 2**70, 2**70 + 2**69, 6])
    assert same(mparray([2**64 - 1, 2**64 + 1], bits=64), [2**64 - 1, 2**64])
    assert same(mparray([2**64 - 1, 2**65 - 1], bits=32), [2**64, 2**65])
    # Close to a tie of a long number: nothing is rounded twice.
    for below in (-1, 0, 1):
        n = (2**53 + 1) * 2**500 + below
        for x in (n, Fraction(n), str(n)):
            assert same(mparray(x, bits=53), rounded(Fraction(n), 53))


def test_bits_are_the_least_that_hold_all():
    assert mparray([1, 2, 0]).bits == 2
    assert mparray([1, 2.5, Fraction(1, 1024)]).bits == 3
    assert mparray([1.5, 2**100 + 1]).bits == 101
    assert mparray(np.ones(3)).bits == 53


def test_bits_that_are_given_are_those_of_the_array():
    assert mparray([1.0, 0.5], bits=100).bits == 100
    assert mparray(["0.1"], bits=100).bits == 100
    assert mparray(np.ones(3), bits=100).bits == 100
    assert mparray(np.ones(3), bits=20).bits == 20


def test_arrays_and_words_are_rounded(rng):
    x = rng.standard_normal(50)
    assert same(mparray(x, bits=17), [rounded(Fraction(v), 17) for v in x])
    y = 2.0**-70 * rng.standard_normal(50)
    assert same(mparray((x, y), bits=80), [rounded(Fraction(a) + Fraction(b), 80) for a, b in zip(x, y, strict=True)])
    assert same(
        mparray(mparray((x, y)), bits=30), [rounded(Fraction(a) + Fraction(b), 30) for a, b in zip(x, y, strict=True)]
    )
    assert same(mparray(np.array([2**62 + 1, -1]), bits=60), [2**62, -1])


def test_a_mixture_of_all_types():
    gmpy2 = pytest.importorskip("gmpy2")
    flint = pytest.importorskip("flint")
    values = [
        (3, 3), (True, 1), (0.375, 0.375), (Fraction(1, 3), Fraction(1, 3)), ("0.1", Fraction(1, 10)),
        ("-2.5e-3", Fraction(-1, 400)), ("1/3", Fraction(1, 3)), (Decimal("0.7"), Fraction(7, 10)),
        (np.float32(0.1), Fraction(float(np.float32(0.1)))), (np.float16(0.1), Fraction(float(np.float16(0.1)))),
        (np.longdouble(1) / 3, Fraction(*map(int, (np.longdouble(1) / 3).as_integer_ratio()))),
        (np.int64(2**62 + 1), 2**62 + 1), (np.uint64(2**64 - 1), 2**64 - 1), (np.bool_(True), 1),
        (np.str_("0.5"), 0.5), (mpmath.mpf("0.1"), Fraction(0.1)), (mpmath.mpf(0), 0),
        (gmpy2.mpz(-(3**50)), -(3**50)), (gmpy2.xmpz(5), 5), (gmpy2.mpq(2, 7), Fraction(2, 7)),
        (gmpy2.mpfr("0.1"), Fraction(0.1)), (gmpy2.mpfr("-0"), 0),
        (flint.fmpz(3**60), 3**60), (flint.fmpq(-2, 7), Fraction(-2, 7)),
        (flint.arb((3**60, -7)), 3**60 * power(-7)), (flint.arf(0.1), Fraction(0.1)),
    ]  # fmt: skip
    given, wanted = zip(*values, strict=True)
    for bits in (20, 53, 200):
        assert same(mparray(list(given), bits=bits), [rounded(Fraction(v), bits) for v in wanted])
        for x, value in values:
            assert same(mparray([x, x], bits=bits), [rounded(Fraction(value), bits)] * 2)
            assert same(mparray(x, bits=bits), rounded(Fraction(value), bits))


def test_matrices_of_other_libraries():
    flint = pytest.importorskip("flint")
    x = [[1, 2, 3], [4, 5, 6]]
    assert same(mparray(mpmath.matrix(x)), x) and same(mparray(flint.fmpz_mat(x)), x)
    assert same(mparray(flint.fmpq_mat(x)), x) and same(mparray(flint.arb_mat(x)), x)
    assert mparray(mpmath.matrix(0, 3)).shape == mparray(flint.fmpz_mat(0, 3)).shape == (0, 3)
    assert mparray(mpmath.matrix([1, 2])).shape == (2, 1)
    third = flint.fmpq_mat([[flint.fmpq(1, 3)]])
    assert same(mparray(third, bits=9), [[rounded(Fraction(1, 3), 9)]])
    with pytest.raises(
        ValueError, match=r"^x: element \[0, 0\] is 1/3, which has no end in binary; ozaki.mparray rounds it"
    ):
        mparray(third)
    ball = flint.arb("0.1")  # it counts as its midpoint
    assert ball.rad() > 0 and same(
        mparray(ball), Fraction(int(ball.mid().man_exp()[0])) * power(int(ball.mid().man_exp()[1]))
    )


def test_constants_of_mpmath_are_their_values_not_those_at_its_precision():
    with mpmath.workprec(400):
        for constant in (mpmath.pi, mpmath.e, mpmath.phi, mpmath.euler):
            (ints,), (exponents,) = mparray([+constant]).to_ints()
            exact = ints * power(int(exponents))
            for bits in (2, 53, 200):
                assert same(mparray(constant, bits=bits), rounded(exact, bits))
                with mpmath.workprec(11):
                    assert same(mparray([constant, 1], bits=bits), [rounded(exact, bits), 1])
    with pytest.raises(
        ValueError, match=r"^x: the number is .*pi.*, which has no end in binary; ozaki.mparray rounds it"
    ):
        mparray(mpmath.pi)
    with pytest.raises(ValueError, match="depends on mpmath's precision"):
        mparray(mpmath.eps, bits=10)


def test_quad_precision():
    quads = pytest.importorskip("numpy_quaddtype")
    third = np.array([1, -2, 0], quads.QuadPrecDType()) / np.array([3, 7, 1], quads.QuadPrecDType())
    wanted = [rounded(Fraction(1, 3), 113), rounded(Fraction(-2, 7), 113), 0]
    assert same(mparray(third), wanted) and same(mparray(list(third)), wanted)
    assert same(mparray(third[0]), wanted[0]) and same(
        mparray(third[::-1], bits=50), [rounded(v, 50) for v in wanted[::-1]]
    )
    extremes = np.array([quads.max_value, quads.smallest_subnormal])
    assert same(mparray(extremes), [power(16384) - power(16384 - 113), power(-16494)])
    with pytest.raises(ValueError, match=r"^x: element \[1\] is"):
        mparray(np.array([1.0, np.inf]).astype(quads.QuadPrecDType()))
    long = np.array([1.5, -2.25]).astype(quads.QuadPrecDType("longdouble"))
    assert same(mparray(long), [1.5, -2.25])


def test_nested_lists():
    assert same(mparray([[1, 2], [3, 4]]), [[1, 2], [3, 4]])
    assert same(mparray([(1, 2), (3, 4)]), [[1, 2], [3, 4]])
    assert same(mparray([np.array([1.0, 2.0]), [3, "4"]]), [[1, 2], [3, 4]])
    assert same(mparray([mparray([1, 2]), mparray([3, 4])]), [[1, 2], [3, 4]])
    assert same(mparray([mparray(1), mparray(2)]), [1, 2])
    assert mparray([]).shape == (0,) and mparray([[], []]).shape == (2, 0)
    assert same(mparray(np.array(["0.5", "3"])), [0.5, 3])
    assert same(mparray(range(3)), [0, 1, 2]) and same(mparray([range(2), range(2)]), [[0, 1]] * 2)
    for ragged in ([[1, 2], [3]], [[1, 2], 3], [1, [2, 3]], [[[1], [2]], [[3], 4]], [np.ones(2), np.ones(3)]):
        with pytest.raises(ValueError, match=r"^x: .*equal"):
            mparray(ragged)


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (np.nan, ValueError, "is nan; there is no such"),
        (-np.inf, ValueError, "is -inf; there is no such"),
        (np.float32(np.inf), ValueError, "is inf; there is no such"),
        (np.longdouble(np.nan), ValueError, "is nan; there is no such"),
        (mpmath.inf, ValueError, r"is \+?inf; there is no such"),
        (mpmath.nan, ValueError, "is nan; there is no such"),
        (Decimal("NaN"), ValueError, "is NaN; there is no such"),
        ("-Infinity", ValueError, "is '-Infinity'; there is no such"),
        (Fraction(1, 3), ValueError, "is 1/3, which has no end in binary; ozaki.mparray rounds it"),
        ("0.1", ValueError, "is '0.1', which has no end in binary; ozaki.mparray rounds it"),
        (Decimal("1e-30000"), ValueError, "is 1E-30000, which has no end in binary; ozaki.mparray rounds it"),
        ("1e9999999", ValueError, "is '1e9999999', which has more than 16777216 bits; ozaki.mparray rounds it"),
        ("0x10", ValueError, "is '0x10'; expected a decimal number"),
        ("", ValueError, "is ''; expected a decimal number"),
        ("1/0", ValueError, "is '1/0'; the denominator is zero"),
        ("1e9999999999999999999999", ValueError, "is '1e9999999999999999999999'; expected a decimal number"),
        (None, TypeError, "is of type NoneType; expected an integer"),
        (b"1", TypeError, "is of type bytes; expected an integer"),
        (complex(1, np.inf), ValueError, "is inf; there is no such"),
        (mpmath.mpc(1, mpmath.nan), ValueError, "is nan; there is no such"),
        ({}, TypeError, "is of type dict; expected an integer"),
        (np.datetime64("2020-01-01"), TypeError, "is of type datetime64; expected an integer"),
    ],
    ids=str,
)
def test_what_is_refused(value, error, text):
    with pytest.raises(error, match=rf"^x: element \[1, 0\] {text}"):
        mparray([[1, 2], [value, "what comes later is not named"]])
    if not isinstance(value, np.generic | float):
        with pytest.raises(error, match=f"^x: the number {text}"):
            mparray(value)


def test_what_is_refused_of_other_libraries():
    gmpy2 = pytest.importorskip("gmpy2")
    flint = pytest.importorskip("flint")
    for value in (gmpy2.mpfr("nan"), gmpy2.mpfr("inf"), flint.arb("nan"), flint.arb("inf"), flint.arb(0, "inf")):
        with pytest.raises(ValueError, match=r"^x: element \[2\] is .*; there is no such multiprecision number"):
            mparray([0, 1, value])
    for value in (gmpy2.mpc("nan"), flint.acb("inf")):
        with pytest.raises(ValueError, match=r"^x: element \[2\] is .*; there is no such multiprecision number"):
            mparray([0, 1, value])
    with pytest.raises(TypeError, match=r"^x: element \[2\] is of type nmod; expected"):
        mparray([0, 1, flint.nmod(1, 7)])


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "longdouble"])
def test_nan_in_an_array_is_named(dtype):
    x = np.ones((3, 4), dtype)
    x[2, 1:3] = np.nan
    with pytest.raises(ValueError, match=r"^x: element \[2, 1\] is nan; there is no such"):
        mparray(x)
    with pytest.raises(ValueError, match=r"^x: element \[1, 2\] is nan; there is no such"):
        mparray(x.T)
    with pytest.raises(ValueError, match=r"^x: the number is nan; there is no such"):
        mparray(x[2, 1])


def test_arrays_that_are_refused():
    for x in (np.array(["2020"], "M8"), np.zeros(2, "i4,f4")):
        with pytest.raises(TypeError, match=r"^x: dtype .*, (which has a unit|whose elements have fields); use "):
            mparray(x)
    row = np.ma.array([1.0, 2.0], mask=[False, True])
    objects = np.array([1.0, None])
    objects[1] = np.ma.masked
    for x in (row, [row], [[[row]]], [1.0, np.ma.masked], objects):
        with pytest.raises(TypeError, match=r"^x: masked elements"):
            mparray(x)
    assert same(mparray(np.ma.array([1.0, 2.0])), [1, 2])


@pytest.mark.parametrize(("bits", "error"), [(1, ValueError), (0, ValueError), (-5, ValueError), (1000001, ValueError),
                                             (2.0, TypeError), ("53", TypeError), (True, TypeError)])  # fmt: skip
def test_bits_that_are_refused(bits, error):
    for call in (lambda: mparray([1], bits), lambda: mparray(np.ones(2)).round_to(bits)):
        with pytest.raises(error, match=r"^bits: .*; expected an integer from 2 to 1,000,000"):
            call()


def test_a_million_bits():
    n = 3**700000
    x = mparray([n, -1], bits=1000000)
    assert same(x, [rounded(Fraction(n), 1000000), -1])
    assert same(mparray("1/3", bits=np.int64(1000000)), rounded(Fraction(1, 3), 1000000))


def test_inputs_are_not_modified():
    numbers = [[3 << 80, mpmath.mpf(5)], ["0.5", Fraction(1, 4)]]
    array = np.array(numbers, object)
    mparray(numbers, bits=2), mparray(array, bits=2)
    assert numbers == [[3 << 80, mpmath.mpf(5)], ["0.5", Fraction(1, 4)]] and (array == np.array(numbers, object)).all()
    x = np.ones(3)
    y = mparray(x)
    x[:] = 7
    assert same(y, [1, 1, 1])


def test_many_elements_in_pieces():
    """More than are converted at a time."""
    prng = random.Random(1)
    values = [prng.getrandbits(64 * 40) - 2**2559 for _ in range(30000)]
    x = mparray(values)
    ints, exponents = x.to_ints()
    assert [i << e for i, e in zip(ints.tolist(), exponents.tolist(), strict=True)] == values
    assert (rationals(x[-3:]) == [Fraction(v) for v in values[-3:]]).all()
    assert x.tolist() == [mpmath.mp.make_mpf(mpmath.libmp.from_int(v)) for v in values]


def test_the_collector_runs_again():
    import gc

    assert gc.isenabled()
    mparray([1, 2]).tolist()
    with pytest.raises(ValueError, match="nan"):
        mparray([mpmath.nan])
    assert gc.isenabled()
    gc.disable()
    try:
        mparray([1, 2]).tolist()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_an_mparray_is_returned_as_it_is():
    x = mparray([1, 5])
    assert mparray(x) is x and (mparray(x, bits=40) == x).all() and isinstance(mparray(x, bits=2), ozaki.MPArray)
