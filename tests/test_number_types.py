"""Every type of number that goes into `mparray`, with its special values, in one table."""

from decimal import Decimal
from fractions import Fraction
from math import inf, nan

import mpmath
import numpy as np
import pytest
from mparrays import power

import ozaki
from ozaki import mparray

try:
    import flint
    import gmpy2
except ImportError:  # the rows of python-flint and gmpy2 are left out
    flint = gmpy2 = None
try:
    import numpy_quaddtype as quads
except ImportError:
    quads = None
try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None

HUGE = 2**59
"""An exponent that no hardware has."""


def long_double(text):
    return np.longdouble(text)


def subnormal(dtype):
    return np.nextafter(dtype(0), dtype(1))


LONG = np.finfo(np.longdouble)


def mpf(whole, exponent):
    return mpmath.mp.make_mpf(mpmath.libmp.from_man_exp(whole, exponent))


FINITE = {
    # a number, and the fraction, or the pair (whole, exponent), that it is; of complex numbers a list of both parts'
    "int": (-(3**80), Fraction(-(3**80))),
    "int 0": (0, 0),
    "bool": (True, 1),
    "float": (0.1, Fraction(0.1)),
    "float -0": (-0.0, 0),
    "float subnormal": (5e-324, power(-1074)),
    "float largest": (-1.7976931348623157e308, -Fraction(1.7976931348623157e308)),
    "complex": (complex(-0.0, 5e-324), [0, power(-1074)]),
    "Fraction": (Fraction(-3, 2**200), Fraction(-3, 2**200)),
    "Decimal": (Decimal("-12.5"), Fraction(-25, 2)),
    "Decimal -0": (Decimal("-0E+99"), 0),
    "Decimal, huge exponent": (Decimal("0E+999999999"), 0),
    "Decimal, long": (Decimal("1E+3000"), Fraction(10**3000)),
    "str": ("-2.5e-1", Fraction(-1, 4)),
    "str fraction": ("3/8", Fraction(3, 8)),
    "str -0": ("-0.0e-9", 0),
    "np.int8": (np.int8(-128), -128),
    "np.int64": (np.int64(-(2**63)), -(2**63)),
    "np.uint64": (np.uint64(2**64 - 1), 2**64 - 1),
    "np.bool": (np.bool_(True), 1),
    "np.float16": (np.float16(6e-8), power(-24)),
    "np.float32": (np.float32(1e-45), power(-149)),
    "np.float64 -0": (np.float64(-0.0), 0),
    "np.float64": (np.float64(-0.1), -Fraction(0.1)),
    "np.longdouble": (1 + long_double(2) ** -LONG.nmant, 1 + power(-LONG.nmant)),
    "np.longdouble -0": (long_double("-0.0"), 0),
    "np.longdouble subnormal": (subnormal(np.longdouble), power(LONG.minexp - LONG.nmant)),
    "np.longdouble largest": (LONG.max, power(LONG.maxexp) - power(LONG.maxexp - LONG.nmant - 1)),
    "np.complex64": (np.complex64(complex(1e-45, -0.0)), [power(-149), 0]),
    "np.clongdouble": (
        np.clongdouble(1j) * (1 + long_double(2) ** -LONG.nmant),
        [0, 1 + power(-LONG.nmant)],
    ),
    "mpf": (mpf(-(3**100), -70), -(3**100) * power(-70)),
    "mpf 0": (mpmath.mpf(0), 0),
    "mpf, huge exponent": (mpf(3, HUGE), (3, HUGE)),
    "mpf, far from 0": (mpf(-3, -HUGE), (-3, -HUGE)),
    "mpc": (mpmath.mpc(mpf(1, -3000), 2), [power(-3000), 2]),
}
REFUSED = {
    # NaN and infinities, and, of numbers of any exponent, those beyond 2**60
    **{f"float {x}": x for x in (inf, -inf, nan)},
    **{f"complex {x}": complex(1, x) for x in (inf, -inf, nan)},
    **{f"Decimal {x}": Decimal(x) for x in ("Infinity", "-Infinity", "NaN", "-NaN", "sNaN")},
    **{f"str {x}": x for x in ("inf", "-Infinity", "nan", "sNaN")},
    **{
        f"{d.__name__} {x}": d(x) for d in (np.float16, np.float32, np.float64, np.longdouble) for x in (inf, -inf, nan)
    },
    **{f"{d.__name__} {x}": d(complex(x, 1)) for d in (np.complex64, np.complex128) for x in (inf, nan)},
    "clongdouble": np.clongdouble(complex(1, nan)),
    **{f"mpf {x}": mpmath.mpf(x) for x in ("inf", "-inf", "nan")},
    **{f"mpc {x}": mpmath.mpc(1, x) for x in ("inf", "-inf", "nan")},
    "mpf, exponent too large": mpf(3, 2**61),
    "mpf, exponent too small": mpf(3, -(2**61)),
}
if flint is not None:
    FINITE |= {
        "fmpz": (flint.fmpz(-(3**80)), Fraction(-(3**80))),
        "fmpq": (flint.fmpq(-3, 2**70), Fraction(-3, 2**70)),
        "arf": (flint.arf((-(3**80), -99)), -(3**80) * power(-99)),
        "arf 0": (flint.arf(0), 0),
        "arf -0": (flint.arf(-0.0), 0),
        "arf, huge exponent": (flint.arf((3, HUGE)), (3, HUGE)),
        "arf, far from 0": (flint.arf((-3, -HUGE)), (-3, -HUGE)),
        "arb": (flint.arb((5, -3)), Fraction(5, 8)),
        "arb with a radius": (flint.arb(2, "1e300"), 2),
        "arb, huge exponent": (flint.arb((3, HUGE)), (3, HUGE)),
        "acb": (flint.acb(flint.arb(0, 1), flint.arb((3, -HUGE))), [0, (3, -HUGE)]),
        "mpz": (gmpy2.mpz(-(3**80)), Fraction(-(3**80))),
        "mpq": (gmpy2.mpq(-3, 2**70), Fraction(-3, 2**70)),
        "mpfr": (gmpy2.mpfr("0.1"), Fraction(0.1)),
        "mpfr -0": (gmpy2.mpfr("-0"), 0),
        "mpfr, huge exponent": (gmpy2.mul_2exp(gmpy2.mpfr(3), 10**9), (3, 10**9)),
        "mpfr, far from 0": (gmpy2.div_2exp(gmpy2.mpfr(-3), 10**9), (-3, -(10**9))),
        "mpc of gmpy2": (gmpy2.mpc(complex(-0.0, 5e-324)), [0, power(-1074)]),
    }
    REFUSED |= {
        **{
            f"{kind.__name__} {x}": kind(x)
            for kind in (flint.arf, flint.arb, flint.acb)
            for x in ("inf", "-inf", "nan")
        },
        "arb of infinite radius": flint.arb(0, "inf"),
        "acb of an infinite part": flint.acb(1, flint.arb("nan")),
        "arf, exponent too large": flint.arf((3, 2**61)),
        "arb, exponent too small": flint.arb((3, -(2**61))),
        **{f"mpfr {x}": gmpy2.mpfr(x) for x in ("inf", "-inf", "nan")},
        **{f"mpc of gmpy2 {x}": gmpy2.mpc(complex(1, x)) for x in (inf, -inf, nan)},
    }
if quads is not None:
    FINITE |= {
        "quad": (1 + quads.epsilon, 1 + power(-112)),
        "quad -0": (quads.QuadPrecision("-0.0"), 0),
        "quad subnormal": (quads.smallest_subnormal, power(-16494)),
        "quad largest": (quads.max_value, power(16384) - power(16384 - 113)),
        "quad of a long double": (quads.QuadPrecision("-2.25", backend="longdouble"), Fraction(-9, 4)),
    }
    REFUSED |= {
        **{f"quad {x}": quads.QuadPrecision(x) for x in ("inf", "-inf", "nan")},
        **{f"quad of a long double {x}": quads.QuadPrecision(x, backend="longdouble") for x in ("inf", "nan")},
    }
if ml_dtypes is not None:
    FINITE |= {
        "bfloat16": (ml_dtypes.bfloat16(-1.0078125), Fraction(-129, 128)),
        "bfloat16 -0": (ml_dtypes.bfloat16(-0.0), 0),
        "bfloat16 subnormal": (ml_dtypes.finfo(ml_dtypes.bfloat16).smallest_subnormal, power(-133)),
        "bfloat16 largest": (ml_dtypes.finfo(ml_dtypes.bfloat16).max, power(128) - power(120)),
    }
    REFUSED |= {f"bfloat16 {x}": ml_dtypes.bfloat16(x) for x in (inf, -inf, nan)}


def is_part(x, part):
    """Whether an `MPArray` of one real element is that number, given as in `FINITE`."""
    (whole,), (exponent,) = (each.reshape(-1).tolist() for each in x.to_ints())
    if isinstance(part, tuple):
        return (whole, exponent) == part
    return Fraction(part) == whole * power(exponent)


def is_number(x, number):
    """Whether an `MPArray` of one element is that number, given as in `FINITE`."""
    if not isinstance(number, list):
        return not x.is_complex and is_part(x, number)
    return x.is_complex and is_part(x.real, number[0]) and is_part(x.imag, number[1])


def forms(value):
    """A number alone, in nested lists, in an array of objects, and, of NumPy's types, in an array of its dtype."""
    objects = np.empty((1, 1), object)
    objects[0, 0] = value
    yield from (value, [[value]], objects)
    if hasattr(value, "dtype"):
        yield np.array([[value]], value.dtype)


@pytest.mark.parametrize("name", FINITE)
def test_a_number_is_kept_exactly(name):
    value, number = FINITE[name]
    for x in forms(value):
        found = mparray(x)
        assert is_number(found, number)
        assert is_number(found * 1, number)
        if not isinstance(x, str):  # which is no operand
            assert (found == x).all()


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_number_is_refused(name):
    value = REFUSED[name]
    reason = "is too (large|small); the exponent" if "exponent" in name else "is .*; there is no such"
    for x in forms(value):
        element = "the number" if x is value else r"element \[0, 0\]"
        for bits in (None, 60):
            with pytest.raises(ValueError, match=f"^x: {element} {reason}"):
                mparray(x, bits)
    if "exponent" not in name and not isinstance(value, str):
        with pytest.raises(ValueError, match=r"^other: the number is .*; there is no such"):
            mparray([1]) * value


def test_a_table_with_all_libraries():
    """The rows of a library that is not installed are left out above: here that shows."""
    for library in ("flint", "gmpy2", "ml_dtypes", "numpy_quaddtype"):
        pytest.importorskip(library, reason=f"{library} is not installed, so its numbers were not tried")


def test_what_has_no_end_in_binary_names_what_rounds_it():
    x = mparray([[1, 2], [3, 4]])
    message = "which has no end in binary; ozaki.mparray rounds it if `bits` are given"
    for call, name in (
        (lambda: x * Fraction(1, 3), "other: the number"),
        (lambda: Fraction(1, 3) * x, "other: the number"),
        (lambda: x - [[1, "0.1"], [2, 3]], r"other: element \[0, 1\]"),
        (lambda: mparray([Decimal("0.1")]), r"x: element \[0\]"),
        (lambda: ozaki.gemm(Fraction(1, 3), x, x, 0, None), "alpha: the number"),
    ):
        with pytest.raises(ValueError, match=f"^{name} .*{message}"):
            call()
    assert bool((x * mparray(Fraction(1, 3), bits=60) != 0).all())


class Whole:
    """A number of a class of which only some are integers, as arrays without axes of several libraries."""

    def __init__(self, value):
        self.value = value

    def __int__(self):
        return int(self.value)

    def __index__(self):
        if self.value != int(self.value):
            raise TypeError("only integers can be converted to an index")
        return int(self.value)


def test_nothing_is_cut_off_what_may_be_an_integer():
    assert mparray([[Whole(2**70)]]).to_integers().tolist() == [[2**70]]
    for x in (Whole(1.5), [[Whole(1.5)]]):
        with pytest.raises(TypeError, match=r"^x: .* is of type Whole; expected an integer"):
            mparray(x)


def test_strings_of_variable_width():
    assert (mparray(np.array(["0.5", "1/4"], np.dtypes.StringDType())) == [0.5, 0.25]).all()


def test_arrays_of_the_package_mparray():
    """Its class MPArray, which has no conversion to NumPy, of the numbers of mpmath."""
    theirs = pytest.importorskip("mparray", reason="mparray is not installed")
    third = mpmath.mpf(1) / 3
    x = theirs.asarray(np.array([[third, 2], [-1, 0.5]], object))
    wanted = mparray([[third, 2], [-1, 0.5]])
    for found in (mparray(x), ozaki.matmul(x, np.eye(2), dtype="mp", accuracy=100), 0 + mparray(0) + x):
        assert (found == wanted).all()
    assert (wanted == x).all() and not (wanted < x).any() and (x == mparray(x)).shape == (2, 2)
    assert mparray(x[0, 0]) == third and mparray(theirs.asarray(2**80)).to_integers() == 2**80
    assert mparray(theirs.asarray([1, 2j])).is_complex and mparray(theirs.asarray([True])) == 1
    assert mparray(theirs.ones((2, 0, 3))).shape == (2, 0, 3)
    with pytest.raises(ValueError, match=r"^a: element \[1\] is \+?inf; there is no such"):
        ozaki.matmul(theirs.asarray([1.0, np.inf]), [1.0, 1.0])
    with pytest.raises(TypeError, match=r"^x: element \[0\] is of type MPArray; expected"):
        mparray([x[1, 1]])
