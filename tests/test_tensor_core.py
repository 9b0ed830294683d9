"""The tensor core in software, compared with its definition in exact rationals and with published measurements."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from cases import same_bits
from words_definition import mma_by_definition, nearest

from ozaki.schemes.formats import FORMATS
from ozaki.tensor_core import A100, H100, V100, TensorCore, accumulate, mma, round_to

CORES = {core.name: core for core in (V100, A100, H100)}

KINDS = [
    (core, word, accumulator)
    for core in CORES.values()
    for word in core.words
    for accumulator in ("fp32", "fp16")
    if accumulator == "fp32" or word == "fp16"
]


# Against the definition ------------------------------------------------------------------------------------------


def operand(rng, shape, word, spread):
    """Random numbers of a format, of mixed exponents, some zero, some subnormal."""
    form = FORMATS[word]
    x = np.ldexp(rng.standard_normal(shape), rng.integers(-spread, spread + 1, shape))
    x[rng.random(shape) < 0.1] = 0
    tiny = rng.random(shape) < 0.1
    x[tiny] = np.ldexp(rng.standard_normal(int(tiny.sum())), form.least - 3)
    return round_to(x, word)


@pytest.mark.parametrize(("core", "word", "accumulator"), KINDS, ids=lambda x: getattr(x, "name", x))
@pytest.mark.parametrize("spread", [0, 3, 10])
def test_against_the_definition(rng, core, word, accumulator, spread):
    spread = min(spread, 3) if accumulator == "fp16" else spread  # no overflow
    for k in (1, 7, 16, 40):
        a, b = operand(rng, (3, k), word, spread), operand(rng, (k, 5), word, spread)
        c = round_to(rng.standard_normal((3, 5)) * 2.0 ** rng.integers(-20, 6, (3, 5)), accumulator)
        d = mma(a, b, c, word=word, accumulator=accumulator, core=core)
        expected = mma_by_definition(a, b, c, word, accumulator, core).astype(d.dtype)
        assert same_bits(d + 0, expected + 0), (k, a, b, c)  # the sign of a zero after underflow is not modelled


@pytest.mark.parametrize("rounding", ["RN", "RZ"])
def test_rounding_of_the_sum(rng, rounding):
    core = TensorCore("mine", 24, 8, rounding)
    a, b, c = operand(rng, (4, 32), "fp16", 3), operand(rng, (32, 4), "fp16", 3), np.zeros((4, 4))
    d = mma(a, b, c, core=core)
    assert same_bits(d + 0, mma_by_definition(a, b, c, "fp16", "fp32", core).astype(np.float32) + 0)


def test_rounding_modes_differ(rng):
    a = operand(rng, (16, 8), "fp16", 3)
    toward_zero, nearest_even = (mma(a, a.T, 0, core=TensorCore("mine", 24, 8, r)) for r in ("RZ", "RN"))
    assert (np.abs(toward_zero) <= np.abs(nearest_even)).all()
    assert (toward_zero != nearest_even).any()


# What was measured on the hardware -------------------------------------------------------------------------------


def row(values, length=16):
    x = np.zeros((1, length))
    x[0, : len(values)] = values
    return x


@pytest.mark.parametrize(("core", "extra"), [(V100, 0), (A100, 1), (H100, 2)], ids=lambda x: getattr(x, "name", x))
def test_extra_bits(core, extra):
    """Four terms of 2^-(23 + t) beside 1 add up to bits of FP32, but only where the adder keeps their extra bits."""
    for t in (1, 2):
        d = mma(row([2.0 ** -(11 + t)] * 4), row([2.0**-12] * 4).T, np.ones((1, 1)), core=core)
        assert d[0, 0] == 1 + (2.0 ** -(21 + t) if t <= extra else 0)


@pytest.mark.parametrize(("core", "fused"), [(V100, 4), (A100, 8), (H100, 16)], ids=lambda x: getattr(x, "name", x))
def test_terms_added_at_once(core, fused):
    """2^-13 is lost beside 2^13 in the same addition, and kept in the one after 2^13 - 2^13."""
    a = row([2.0**13, -(2.0**13)], 32)
    for at in range(2, 32):
        a[0, 2:] = 0
        a[0, at] = 2.0**-13
        d = mma(a, np.ones((32, 1)), 0, core=core)
        assert d[0, 0] == (0 if at < fused else 2.0**-13), at


def test_truncates_toward_zero():
    for sign in (1, -1):
        d = mma(row([sign, sign * 2.0**-10]), row([1, 2.0**-14 * 1.5]).T, 0)
        assert d[0, 0] == sign, "cut, not rounded"


def test_fp16_accumulator_rounds_to_nearest():
    d = mma(row([1, 2.0**-10]), row([1, 0.75]).T, 0, accumulator="fp16")
    assert d.dtype == np.float16 and d[0, 0] == 1 + 2.0**-10


def test_a_zero_factor_has_no_exponent():
    """A zero beside the largest number does not push small products out of the sum."""
    assert mma(row([0, 2.0**-14]), row([2.0**15, 2.0**-14]).T, 0)[0, 0] == 2.0**-28


# Interface -------------------------------------------------------------------------------------------------------


def test_nan_and_inf():
    a, b = np.ones((3, 4)), np.ones((4, 3))
    a[0, 1], a[1, 2], b[2, 1] = np.inf, np.nan, -np.inf
    with np.errstate(invalid="ignore"):
        expected = a @ b
    np.testing.assert_array_equal(mma(a, b, 0), expected.astype(np.float32))


def test_overflow():
    big = np.full((1, 1), 2.0**100)
    assert mma(big, big, 0, word="bf16")[0, 0] == np.inf
    assert mma(-big, big, 0, word="bf16")[0, 0] == -np.inf
    assert mma([[256.0]], [[256.0]], 0, accumulator="fp16")[0, 0] == np.inf


def test_stacks_and_strides(rng):
    a, b = operand(rng, (2, 3, 40), "bf16", 3), operand(rng, (40, 5), "bf16", 3)
    d = mma(a, b, 0, word="bf16")
    for i in range(2):
        assert same_bits(d[i], mma(a[i], np.asfortranarray(b), np.zeros((3, 5)), word="bf16"))


def test_pairs_share_an_accumulator(rng):
    """Pairs that share an accumulator alternate: both add their first 16 inner indices before the next 16."""
    a, b = operand(rng, (3, 32), "fp16", 3), operand(rng, (5, 32), "fp16", 3)
    low, start = operand(rng, (3, 32), "fp16", 3), np.zeros((3, 5))
    together = accumulate([(low, b), (a, b)], start, "fp16")
    one_by_one = start
    for h in (slice(0, 16), slice(16, 32)):
        for left in (low, a):
            one_by_one = accumulate([(left[:, h], b[:, h])], one_by_one, "fp16")
    assert same_bits(together, one_by_one)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("rounding", ["RN", "RNA", "RZ"])
def test_round_to(rng, name, rounding):
    form = FORMATS[name]
    x = np.ldexp(rng.standard_normal(300), rng.integers(form.least - form.bits - 2, 14, 300)).astype(np.float32)
    halfway = np.ldexp(rng.integers(0, 2**form.bits, 100) + 0.5, form.least - form.bits + rng.integers(0, 10, 100))
    for value in [*x.tolist(), *halfway.tolist(), 0.0, -0.0]:
        assert Fraction(float(round_to(value, name, rounding))) == nearest(Fraction(value), form, rounding)


def test_round_to_agrees_with_numpy(rng):
    x = np.ldexp(rng.standard_normal(10000), rng.integers(-30, 18, 10000))
    with np.errstate(over="ignore"):
        assert same_bits(round_to(x, "fp16"), x.astype(np.float16).astype(np.float64))
        assert same_bits(round_to(x, "fp32"), x.astype(np.float32).astype(np.float64))


@pytest.mark.parametrize(
    ("arguments", "options", "start"),
    [
        (([[0.1]], [[1.0]], 0), {}, "a: holds numbers that are not fp16"),
        (([[1.0]], [[1 + 2.0**-8]], 0), {"word": "bf16"}, "b: holds numbers that are not bf16"),
        (([[1.0]], [[1.0]], 1e-9), {"accumulator": "fp16"}, "c: holds numbers that are not fp16"),
        (([[1.0]], [[1.0]], 0), {"word": "tf32", "core": V100}, "word: V100 does not multiply tf32"),
        (
            ([[1.0]], [[1.0]], 0),
            {"accumulator": "fp64"},
            "accumulator: 'fp64' is not known; expected one of fp32, fp16",
        ),
        (([[1.0]], [[1.0], [1.0]], 0), {}, r"b: shape \(2, 1\) does not fit"),
        (([1.0], [[1.0]], 0), {}, r"b: shape \(1, 1\) does not fit"),
    ],
)
def test_errors(arguments, options, start):
    with pytest.raises(ValueError, match=start):
        mma(*arguments, **options)


def test_the_core_is_an_object():
    with pytest.raises(TypeError, match=r"^core: 'H100'"):
        mma([[1.0]], [[1.0]], 0, core="H100")


@pytest.mark.parametrize("accumulator", ["fp32", "fp16"])
def test_underflow_raises_nothing(accumulator):
    with np.errstate(all="raise"):
        d = mma([[2.0**-13]], [[2.0**-14]], 0, accumulator=accumulator, core=replace(A100, rounding="RN"))
    assert d == (2.0**-27 if accumulator == "fp32" else 0)


@pytest.mark.parametrize(
    ("options", "start"),
    [
        ({"fused": 0}, "fused: 0"),
        ({"fused": True}, "fused: True"),
        ({"alignment_bits": 2000}, "alignment_bits: 2000"),
        ({"rounding": "zz"}, "rounding: 'zz'"),
        ({"words": ("fp8",)}, "words: "),
    ],
)
def test_a_tensor_core_that_the_model_cannot_be_is_named(options, start):
    with pytest.raises(ValueError, match=start):
        replace(A100, **options)


@pytest.mark.parametrize(("options", "start"), [(("fp8",), "name: 'fp8'"), (("fp16", "rn"), "rounding: 'rn'")])
def test_an_unknown_format_or_rounding_is_named(options, start):
    with pytest.raises(ValueError, match=start):
        round_to([1.0], *options)
