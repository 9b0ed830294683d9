"""Words: the bits of the definition, the presets of the literature, limits of scaling and accumulators."""

import pickle
import tracemalloc
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from cases import measured, same_bits, spread
from word_schemes import ALL, OTHERS
from words_definition import split

import ozaki
from ozaki import Words, reference
from ozaki.backends.numpy import _machine, _words
from ozaki.backends.numpy._describe import Described, describe
from ozaki.schemes import PRESETS
from ozaki.schemes.words import groups
from ozaki.tensor_core import TensorCore


def operands(rng, m, k, n, span=3):
    return spread(rng, (m, k), span, "float32"), spread(rng, (k, n), span, "float32")


# Bits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["halfhalf", "markidis", "fabsum-v2"])
def test_bits_do_not_depend_on_tiles(rng, name, monkeypatch):
    a, b = operands(rng, 37, 1000, 29)
    c = ozaki.matmul(a, b, scheme=name)
    monkeypatch.setattr(_words, "_OUTPUTS", 64)
    monkeypatch.setattr(_words, "_SLAB", 256)
    assert same_bits(ozaki.matmul(a, b, scheme=name), c)
    assert same_bits(ozaki.matmul(a[5:6], b[:, :3], scheme=name), c[5:6, :3])


def test_presets_as_in_their_sources():
    assert [len(groups(PRESETS[name])) for name in ("markidis", "halfhalf", "double-fp16")] == [1, 1, 3]
    assert groups(PRESETS["markidis"])[0].turns == (((2, 2), (2, 1), (1, 2), (1, 1)),)
    for name in ("halfhalf", "tf32tf32"):
        (both,) = groups(PRESETS[name])
        assert (both.turns, both.weight, both.promoted) == ((((2, 1), (1, 2)), ((1, 1),)), 0, True)
    low, leading = groups(OTHERS["halfhalf as published"])
    assert (low.pairs, low.weight, low.promoted) == (((2, 1), (1, 2)), 11, False)
    assert (leading.pairs, leading.weight, leading.promoted) == (((1, 1),), 0, True)
    products = {"single-fp16": 1, "markidis": 4, "halfhalf": 3, "double-bf16": 3, "triple-bf16": 6, "two-stage": 1}
    assert {name: PRESETS[name].products for name in products} == products


@pytest.mark.parametrize("name", PRESETS)
def test_presets_by_name(rng, name):
    a, b = operands(rng, 5, 40, 6)
    c, report = ozaki.matmul(a, b, scheme=name, return_report=True)
    assert report.scheme == name and f"({name})" in str(report)
    assert same_bits(c, ozaki.matmul(a, b, scheme=PRESETS[name]))
    assert replace(PRESETS[name], core=TensorCore("mine", 30, 4)).name == name


def test_order_of_accuracy(rng):
    """Presets are ordered as in their papers: correction helps, and so does promotion out of the accumulator."""
    a, b = rng.uniform(0.0, 1.0, (2, 16, 4096)).astype(np.float32)
    b = b.T
    error = {
        name: reference.componentwise_error(ozaki.matmul(a, b, scheme=name), a, b)
        for name in ("single-bf16", "single-fp16", "markidis", "halfhalf", "tf32tf32", "double-fp16", "fabsum-v1")
    }
    native = reference.componentwise_error(a @ b, a, b)
    assert error["single-bf16"] > error["single-fp16"] > error["halfhalf"]
    assert error["markidis"] > error["double-fp16"] > 4 * error["fabsum-v1"]
    assert error["markidis"] > 20 * error["halfhalf"]
    assert max(error["halfhalf"], error["tf32tf32"]) < 4 * native


def test_feng_rounds_ties_apart():
    """The presets of Markidis and Feng differ where a tie of the conversion does."""
    a = np.array([[1 + 2.0**-11]], np.float32)
    high = [split(a.astype(float), PRESETS[name])[0][0, 0] for name in ("markidis", "feng")]
    assert high == [1.0, 1 + 2.0**-10]


# Scaling and underflow -------------------------------------------------------------------------------------------


def test_whole_numbers_of_numpy():
    words = Words("fp16", np.int64(2), np.int8(11), block=np.uint16(64), promotion="fp32", accumulators="one")
    assert words == PRESETS["halfhalf"] and (type(words.count), type(words.block)) == (int, int)


@pytest.mark.parametrize("block", [16, 32, 64, 128, 1024])
def test_accumulators_of_fp16_do_not_overflow(block):
    """Blocks of the largest elements, all of one sign, fit FP16; with a ceiling higher by one they would not."""
    words = replace(PRESETS["two-stage"], block=block)
    x = np.full((2, 2 * block), 2 - 2.0**-10, np.float32)
    c = ozaki.matmul(x, x.T, scheme=words)
    np.testing.assert_allclose(c, x.astype(float) @ x.T, rtol=(block // 16 + 1) * 2.0**-11)
    assert block * 4.0 ** (words.ceiling + 1) > float(np.finfo(np.float16).max)


@pytest.mark.parametrize("name", [name for name, words in ALL.items() if words.word == "fp16"])
def test_underflows_are_counted(name):
    words = ALL[name]
    x = np.ones((3, 8), np.float32)
    x[1, 1:5] = np.float32(1 + 2.0**-10 / 3) * 2.0**-40
    x[2, 2] = 2.0**-20  # short: nothing is lost
    described = describe(x[None])
    parts = np.array(split(_words._scaled(x, _words.exponents(described, words)[0]), words))
    left = _words._scaled(x, _words.exponents(described, words)[0])
    left = left - sum(np.ldexp(part, -words.scale_bits * s) for s, part in enumerate(parts))
    assert _words.underflows(described, words) == 4 == np.count_nonzero(left[1, 1:5])
    _, report = ozaki.matmul(x, np.ones((8, 2), np.float32), scheme=words, return_report=True)
    assert report.underflows == 4 and "4 elements" in str(report)


SPLITS = [
    (word, count, scale) for word in ("fp16", "bf16", "tf32") for count, scale in ((1, 0), (2, 0), (2, 7), (3, 8))
]
SPLITS += [(word, count, 11) for word in ("fp16", "tf32") for count in (2, 3)]  # all bits of a word


@pytest.mark.parametrize(("word", "count", "scale"), SPLITS)
@pytest.mark.parametrize("rounding", ["RN", "RNA", "RZ"])
def test_sizes_of_words(rng, word, rounding, count, scale):
    """Words and residuals are within the bounds of B8, for elements above the floor and below it."""
    words = Words(word, count, scale_bits=scale, rounding=rounding)
    x = np.ldexp(rng.uniform(1, 2, 400).astype(np.float32), rng.integers(words.floor - 15, words.ceiling, 400))
    x[:40] = np.ldexp(np.float32(1 + 2.0**-11 + 2.0**-23), words.floor - 1 + np.arange(40) % 4)
    x = np.where(np.abs(x) < 2.0**words.ceiling, x, 1).astype(float)
    size = np.maximum(np.abs(x), 2.0**words.floor)
    parts = split(x[None], words)
    left = [Fraction(v) for v in x]
    for s, part in enumerate(parts, 1):
        value = np.ldexp(part[0], -scale * (s - 1))
        assert (np.abs(value) <= words.size(s) * size).all()
        left = [v - Fraction(w) for v, w in zip(left, value.tolist(), strict=True)]
        assert all(
            abs(v) <= Fraction(words.size(s + 1)) * Fraction(z) for v, z in zip(left, size.tolist(), strict=True)
        )
    for v, z in zip(left, x.tolist(), strict=True):
        if abs(z) >= 2.0**words.floor:
            assert abs(v) <= Fraction(words.residual) * abs(Fraction(z))


# What callers may rely on ----------------------------------------------------------------------------------------


def test_plans_are_data(rng):
    a, b = operands(rng, 5, 40, 6)
    plan = ozaki.plan(a, b, scheme="triple-bf16")
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert (plan.slices, plan.products, plan.native, plan.reproducible) == (3, 6, False, False)
    assert "3 words (triple-bf16), 6 products" in str(plan)
    other = a[::-1].copy()
    assert same_bits(ozaki.matmul(other, b, plan=plan), ozaki.matmul(other, b, scheme="triple-bf16"))


@pytest.mark.parametrize("name", ["halfhalf", "triple-bf16", "two-stage"])
@pytest.mark.parametrize("shape", [(100, 300, 90), (16, 9000, 16)])
def test_the_workspace_is_what_is_held(rng, name, shape):
    a, b = operands(rng, *shape)
    out = np.empty((shape[0], shape[2]), np.float32)
    ozaki.matmul(a, b, scheme=name, out=out)
    tracemalloc.start()
    plan = ozaki.plan(a.shape, b.shape, dtype="float32", scheme=name)
    _, report = ozaki.matmul(a, b, plan=plan, out=out, return_report=True)
    held = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert report.workspace_bytes / 8 < held < report.workspace_bytes + 2**21, (held, report)


def test_backends_without_kernels_say_so(rng, monkeypatch):
    a, b = operands(rng, 3, 20, 4)
    plan = ozaki.plan(a.shape, b.shape, dtype="float32", scheme="halfhalf")
    monkeypatch.setattr(_machine, "obstacle", lambda scheme, engine: "no kernels; use scheme='auto'")
    for call in (
        lambda: ozaki.matmul(a, b, scheme="halfhalf"),
        lambda: ozaki.plan(a, b, scheme="halfhalf"),
        lambda: ozaki.matmul(a, b, plan=plan),
        lambda: ozaki.prepare(a, "left", plan),
    ):
        with pytest.raises(NotImplementedError, match=r"^scheme: no kernels; use scheme='auto'"):
            call()


def test_the_estimate_stands_beside_the_bound(rng):
    a, b = operands(rng, 8, 2000, 8, 0)
    c, report = measured("componentwise", a, b, scheme="double-fp16")
    assert reference.componentwise_error(c, a, b) < report.estimate < report.bound / 4
    assert f"about {report.estimate:.1e}" in str(report)
    assert ozaki.matmul(a, b, return_report=True)[1].estimate is None


def test_the_default_never_takes_words(rng):
    a, b = operands(rng, 50, 60, 50)
    for accuracy in (None, "fp32", 1e-3):
        report = ozaki.matmul(a, b, accuracy=accuracy, return_report=True)[1]
        assert report.scheme in ("native", "digits", "residues")


def test_fp16_digits(rng):
    """Mukunoki's digits have as many bits as an FP32 accumulator adds exactly, and the product is the exact one."""
    for k, bits in ((16, 11), (300, 8), (4096, 7), (2**14, 6)):
        a, b = operands(rng, 2, k, 2)
        c, report = ozaki.matmul(a, b, scheme="fp16-digits", slices=3, return_report=True)
        assert report.scheme == f"fp16-digits{bits}" and report.reproducible
        assert k * 4 ** (bits - 1) <= 2**24 < 4 * k * 4 ** (bits - 1)
        bound = ozaki.plan(a, b, scheme="fp16-digits", slices=3).bound
        assert reference.componentwise_error(c, a, b) <= bound
    a, b = rng.standard_normal((2, 8, 2**14))
    few, many = (ozaki.plan(a, b.T, scheme=s, accuracy="fp64").products for s in ("digits", "fp16-digits"))
    assert few < many, "int8 digits need fewer products: the point of the slides"


def test_described_rows_below(rng):
    """`below` misses no row with elements below a power of two, and does not name ordinary rows."""
    x = spread(rng, (200, 30), 20, "float32")
    x[::7] = np.rint(x[::7] * 64)
    described = Described(x[None], describe(x[None]).fields).on_host
    least = np.where(x == 0, np.inf, np.abs(x)).min(axis=1)
    for exponent in range(-40, 0, 3):
        below = (least < np.ldexp(1.0, described.top[0] + exponent)) & ~described.empty[0]
        assert (described.below(exponent)[0] | ~below).all()
        assert not (described.below(exponent)[0] & (least >= np.ldexp(1.0, described.top[0] + exponent)))[1::7].any()
