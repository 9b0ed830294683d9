"""gemm on NumPy with multiprecision numbers, and the cuts of terms that lie far apart, against exact rationals."""

import tracemalloc
from fractions import Fraction

import definition
import mparrays
import mpmath
import numpy as np
import pytest
from cases import power, rounded
from hypothesis import given, settings
from hypothesis import strategies as st
from mparrays import rationals

import ozaki
from ozaki.multiprecision.arithmetic import near_sum, rounded_to
from ozaki.multiprecision.convert import exactly
from ozaki.multiprecision.floats import to_floats


def numbers(rng, shape, bits=120, far=40):
    """Multiprecision numbers of up to so many bits, their exponents up to `far` apart; some are zero."""
    wholes = np.array([int.from_bytes(rng.bytes(bits // 8), "little") for _ in range(int(np.prod(shape)))], object)
    wholes = [w * int(s) * power(int(e) - bits) for w, s, e in zip(
        wholes, rng.integers(-1, 2, wholes.size), rng.integers(-far, far, wholes.size), strict=True)]  # fmt: skip
    return ozaki.mparray(np.array(wholes, object).reshape(shape).tolist())


def as_rationals(x):
    if isinstance(x, ozaki.MPArray):
        return rationals(x)
    return np.array([Fraction(float(v)) for v in x.ravel()], object).reshape(x.shape)


ALPHAS = [1, -1, 3, -0.375, Fraction(5, 2**70), 2**90 + 1, mpmath.mpf("0.1"), Fraction(-1, 2**400)]


@pytest.mark.parametrize("kinds", ["mmm", "ffm", "mff", "fmm", "ffi"])
def test_multiprecision_expressions(rng, kinds):
    """The result has the bits of `matmul`, each entry those of the expression of the images, rounded once."""
    make = {
        "m": lambda shape: numbers(rng, shape),
        "f": lambda shape: rng.standard_normal(shape),
        "i": lambda shape: rng.integers(-9, 10, shape),
    }
    for options in ({}, {"accuracy": 90, "dtype": "mp"}, {"accuracy": 60, "dtype": "float64"}, {"dtype": "mp77"}):
        if "m" not in kinds and "dtype" not in options:
            continue
        a, b, c = (make[kind](shape) for kind, shape in zip(kinds, ((4, 6), (6, 3), (4, 3)), strict=True))
        alpha, beta = (ALPHAS[i] for i in rng.integers(len(ALPHAS), size=2))
        got, report = ozaki.gemm(alpha, a, b, beta, c, return_report=True, **options)
        mu, nu, cbar = definition.images(
            as_rationals(a), as_rationals(b), ozaki.schemes.Residues(report.slices), definition.rows_of_rationals
        )
        asked = options.get("dtype", "mp")
        dtype = asked if asked.startswith("float") else f"mp{got.bits}"
        if asked != "float64" and (kinds[:2] != "ff" or options):
            least = c.bits if kinds[2] == "m" and not options else 0
            assert got.bits == max(ozaki.matmul(a, b, **options).bits, least)
        wanted, added = np.empty(c.shape, object), as_rationals(c)
        factors = [
            Fraction(*x.as_integer_ratio()) if not isinstance(x, mpmath.mpf) else ratio(x) for x in (alpha, beta)
        ]
        for i, j in np.ndindex(c.shape):
            value = factors[0] * cbar[i][j] * power(-(mu[i] + nu[j])) + factors[1] * added[i, j]
            wanted[i, j] = definition.rounded_to(value, dtype)
        if asked == "float64":
            assert got.dtype == np.float64 and got.tolist() == wanted.tolist()
        else:
            assert mparrays.same(got, wanted)
        sizes = abs(factors[0]) * (abs(as_rationals(a)) @ abs(as_rationals(b))) + abs(factors[1]) * abs(added)
        exact = factors[0] * (as_rationals(a) @ as_rationals(b)) + factors[1] * added
        assert report.rounded_once
        assert (abs(as_rationals(got) - exact) <= Fraction(report.bound) * sizes).all()


def ratio(x):
    """An mpf as a Fraction."""
    sign, whole, exponent, _ = x._mpf_
    return (-1) ** sign * int(whole) * power(int(exponent))


def test_bits_of_the_addend_count(rng):
    """An addend of more bits than the operands, which are floats, makes the result multiprecision with its bits."""
    a, b, c = rng.standard_normal((3, 4)), rng.standard_normal((4, 2)), numbers(rng, (3, 2), 200)
    assert ozaki.gemm(1, a, b, 1, c).bits == c.bits
    assert ozaki.gemm(1, a, b, 1, c, dtype="float64").dtype == np.float64
    assert ozaki.gemm(1, a, b, 1, c, dtype="mp106").bits == 106


@pytest.mark.parametrize("accuracy", ["exact", None])
def test_exact_expressions(rng, accuracy):
    """Every bit, of integers without asking; int64 where the result fits; a plan that holds every bit."""
    a, b, c = rng.integers(-9, 10, (3, 4)), rng.integers(-9, 10, (4, 2)), rng.integers(-9, 10, (3, 2))
    options = {} if accuracy is None else {"accuracy": accuracy}
    assert mparrays.same(ozaki.gemm(3, a, b, -2, c, dtype="mp", **options), 3 * (a @ b) - 2 * c)
    assert mparrays.same(ozaki.gemm(0.5, a, b, 0, None, dtype="mp", **options), 0.5 * (a @ b))
    whole = ozaki.gemm(3, a, b, -2, c, dtype="int64", **options)
    assert whole.dtype == np.int64 and whole.tolist() == (3 * (a @ b) - 2 * c).tolist()
    assert ozaki.gemm(0, a, b, 5, c, dtype="int64", **options).tolist() == (5 * c).tolist()
    with pytest.raises(ValueError, match="no whole number"):
        ozaki.gemm(0.125, a, b, 1, 2 * c + 1, dtype="int64", **options)
    with pytest.raises(OverflowError, match="does not fit int64"):
        ozaki.gemm(2**62, a * 0 + 1, b * 0 + 1, 1, c, dtype="int64", **options)
    x, y, z = numbers(rng, (3, 4)), numbers(rng, (4, 2)), numbers(rng, (3, 2), far=2000)
    alpha, beta = mpmath.mpf("0.3"), Fraction(7, 2**30)
    exact = ratio(alpha) * (rationals(x) @ rationals(y)) + beta * rationals(z)
    assert mparrays.same(ozaki.gemm(alpha, x, y, beta, z, accuracy="exact"), exact)
    plan = ozaki.plan(x, y, accuracy="exact")
    assert mparrays.same(ozaki.gemm(alpha, x, y, beta, z, plan=plan), exact)
    with pytest.raises(ValueError, match=r"^c: the exact sum at \[0, 0\] takes \d+ bits, more than"):
        ozaki.gemm(1, np.ones((3, 4)), np.ones((4, 2)), 1, far_below(1, (3, 2)), accuracy="exact")


def far_below(value, shape):
    """An array of one number times 2**-2**40."""
    ones = ozaki.mparray(np.full(shape, value))
    return ozaki.MPArray(ones.signs, ones.exponents - 2**40, ones.limbs, ones.bits)


def test_widest_ranges(rng):
    """Terms that lie 2**40 binary orders apart take no memory for it; the smaller one decides a tie."""
    ones, tiny = ozaki.mparray(np.ones((2, 2))), far_below(1.0, (2, 2))
    half = ozaki.mparray(np.full((2, 2), 1)) + np.full((2, 2), 2.0**-53)  # a tie of float64, to even: 1
    identity = ozaki.mparray(np.eye(2))
    for sign, wanted in ((1, 1 + 2.0**-52), (-1, 1.0)):
        got = ozaki.gemm(1, half, identity, sign, tiny, dtype="float64", accuracy="exact")
        assert got.tolist() == np.full((2, 2), wanted).tolist()
    got = ozaki.gemm(Fraction(1, 2**5000), ones, identity, 1, tiny, accuracy=60)
    assert got.bits == 60 and mparrays.same(got, np.full((2, 2), Fraction(1, 2**5000)))


def test_float64_addends_of_float32_results(rng):
    """With a dtype that is asked for, operands and addend may have more bits than the result: one rounding."""
    a, b, c = rng.standard_normal((5, 6)), rng.standard_normal((6, 4)), rng.standard_normal((5, 4))
    for x, y in ((a, b), (a.astype("f4"), b.astype("f4"))):
        got, report = ozaki.gemm(-1.5, x, y, 0.1, c, dtype="float32", return_report=True)
        assert report.rounded_once and got.dtype == np.float32
        exact = -Fraction(3, 2) * (as_rationals(x) @ as_rationals(y)) + Fraction(0.1) * as_rationals(c)
        sizes = Fraction(3, 2) * (abs(as_rationals(x)) @ abs(as_rationals(y))) + Fraction(0.1) * abs(as_rationals(c))
        assert (abs(as_rationals(got) - exact) <= Fraction(report.bound) * sizes).all()


def test_mpmath_factors_of_floats():
    """A factor of a float expression is the nearest float64."""
    ones = np.ones((1, 1))
    for alpha in (mpmath.mpf("0.1"), Fraction(1, 10), np.float32(0.5), 2**60 + 1):
        assert ozaki.gemm(alpha, ones, ones, 0, None, accuracy="fp64", reproducible=True) == float(alpha)


terms = st.tuples(st.integers(-(2**70), 2**70), st.integers(-250, 250))


@settings(deadline=None, max_examples=300)
@given(terms, terms, st.integers(2, 60))
def test_near_sums_round_as_sums_do(x, y, bits):
    """To any number of bits, and into the subnormals of the hardware's formats."""
    values = [Fraction(whole) * power(exponent) for whole, exponent in (x, y)]
    near = near_sum(*(exactly([value]) for value in values), bits)
    assert mparrays.same(rounded_to(near, bits), [mparrays.rounded(sum(values), bits)])
    for shift in (0, -900):
        scaled = near_sum(*(exactly([value * power(shift)]) for value in values), 53)
        for dtype in ("float32", "float64"):
            wanted = rounded(sum(values) * power(shift), dtype)
            assert to_floats(scaled, dtype)[0].tobytes() == wanted.tobytes()


@pytest.mark.parametrize("shape", [(64, 9, 64), (300, 5, 300), (1, 5, 5000), (2000, 3, 1)])
def test_no_more_is_held_than_the_report_says(rng, shape):
    """The sums of terms count as workspace, whatever the format of the result."""
    m, k, n = shape
    a, b, c = rng.standard_normal((m, k)), rng.standard_normal((k, n)), rng.standard_normal((m, n))
    ways = [{"scheme": "residues", "slices": 3}, {"scheme": "digits", "slices": 7}]
    for way in [*ways, *({"accuracy": bits, "dtype": "mp"} for bits in (60, 300, 2000))]:

        def call(way=way):
            return ozaki.gemm(0.3, a, b, 0.7, c, return_report=True, **way)

        call()
        tracemalloc.start()
        result, report = call()
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert most - result.nbytes <= report.workspace_bytes, way


@pytest.mark.parametrize(("left", "right"), [((3,), ()), ((), (3,)), ((2, 1), (1, 3)), ((2,), (2,))])
def test_stacks_of_multiprecision_matrices(rng, left, right):
    """Each matrix of a batch has its own addend, vectors and empty products as in `matmul`."""
    batch = np.broadcast_shapes(left, right)
    a, b, c = numbers(rng, (*left, 2, 3)), numbers(rng, (*right, 3, 2)), numbers(rng, (*batch, 2, 2))
    for options in ({"accuracy": "exact"}, {"accuracy": 400}, {"dtype": "float64", "accuracy": 400}):
        got = ozaki.gemm(-3, a, b, Fraction(1, 4), c, **options)
        exact = -3 * (rationals(a) @ rationals(b)) + Fraction(1, 4) * rationals(c)
        if "dtype" in options:
            assert got.tolist() == exact.astype(float).tolist()
        else:
            assert mparrays.same(got, exact)
    given = a[..., 0, :].reshape(-1, 3)[0], b.reshape(-1, 3, 2)[0], c.reshape(-1, 2)[0]
    vector = ozaki.gemm(2, *given[:2], 1, given[2])
    assert vector.shape == (2,) and vector.bits >= max(of.bits for of in given)
    nothing = ozaki.gemm(2, a[..., :0], b[..., :0, :], -1, c)
    assert mparrays.same(nothing, -rationals(c).astype(object))
    assert ozaki.gemm(2, a[..., :0, :], b, 0, None).shape == (*batch, 0, 2)
    assert mparrays.same(ozaki.gemm(0, a, b, 0, None), 0 * rationals(c))
