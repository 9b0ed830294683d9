"""The bounds of words hold on random data and on data made to break them, which comes close to them."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from cases import measured, proven_in, spread, with_ranges, work_of
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import some_first
from word_schemes import ALL

import ozaki
from ozaki import Words, reference
from ozaki._cli.verify import MEASURES
from ozaki.backends.numpy import _proof
from ozaki.backends.numpy._describe import describe, sample
from ozaki.backends.numpy._proof import least_product, lower_bound
from ozaki.bounds import words as word_bounds
from ozaki.bounds.levels import levels
from ozaki.bounds.rounding import with_rounding
from ozaki.schemes import PRESETS
from ozaki.tensor_core import A100, H100, V100, TensorCore

SCHEMES = st.builds(
    Words,
    word=st.sampled_from(["fp16", "bf16", "tf32"]),
    count=st.integers(1, 2),
    scale_bits=st.integers(0, 8),
    block=st.just(32),
    promotion=st.sampled_from(["fp32", "fp64"]),
    accumulators=st.sampled_from(["pair", "diagonal", "one"]),
    rounding=st.sampled_from(["RN", "RNA", "RZ"]),
    core=st.sampled_from([A100, H100, TensorCore("mine", 23, 4), TensorCore("mine", 24, 8, "RN")]),
)


def check(a, b, words):
    """Check the bound for any operands, which is reported, and that for these operands in each measure."""
    c, report = ozaki.matmul(a, b, scheme=words, return_report=True)
    assert report.measure == "row-column"
    assert reference.row_column_error(c, a, b) <= report.bound, (words, report)
    plan, work = ozaki.plan(a, b, scheme=words), work_of(a, b)
    for measure in ("componentwise", "row-column", "normwise"):
        assert MEASURES[measure](c, a, b) <= proven_in(measure, plan, work), (measure, words)


def test_bounds_are_checked_as_they_are_reported(rng):
    a, b = with_ranges(rng, (7, 90), 12, "float32"), with_ranges(rng, (5, 90), 12, "float32").T
    plan = ozaki.plan(a, b, scheme="halfhalf")
    for measure in ("componentwise", "row-column", "normwise"):
        c, report = measured(measure, a, b, scheme="halfhalf")
        assert report.bound == proven_in(measure, plan, work_of(a, b)) and MEASURES[measure](c, a, b) <= report.bound


@pytest.mark.parametrize("name", ALL)
def test_random_data(rng, name):
    for span in (0, 5, 12, 30, 60):
        m, k, n = (int(v) for v in rng.integers(1, (12, 400, 12)))
        check(with_ranges(rng, (m, k), span, "float32"), with_ranges(rng, (n, k), span, "float32").T, ALL[name])


@settings(max_examples=60, deadline=None)
@given(SCHEMES, st.integers(0, 2**32 - 1), st.integers(1, 150), st.integers(0, 60))
def test_random_schemes(words, seed, k, span):
    rng = np.random.default_rng(seed)
    check(with_ranges(rng, (3, k), span, "float32"), with_ranges(rng, (4, k), span, "float32").T, words)


def cut_every_time(words, k):
    """Ones and their neighbours below: every instruction cuts nearly a unit off the sum."""
    bits = {"fp16": 11, "bf16": 8, "tf32": 11}[words.word]
    a = np.full((2, k), np.float32(1 - 2.0**-bits))
    a[1, ::3] = 1
    return a, a.T.copy()


def worst_words(words, k):
    """Elements just above a power of two that lose as much as words can."""
    bits = {"fp16": 11, "bf16": 8, "tf32": 11}[words.word]
    x = np.float32(1 + 2.0**-bits + 2.0 ** -min(2 * bits + 1, 23))
    return np.full((2, k), x), np.full((k, 3), x)


def first_large(words, k):
    """One large product, then small ones that the adder cuts to nothing."""
    a = np.full((2, k), np.float32(2.0**-13 * (1 - 2.0**-8)))
    a[:, 0] = 2.0**12
    return a, np.ones((k, 2), np.float32)


def widest(words, k):
    """Rows with every exponent of float32; each meets its opposite, so that products are normal numbers."""
    exponents = np.linspace(-149, 127, max(k, 2)).astype(int)
    a = np.ldexp(np.float32(1 + 2.0**-12 + 2.0**-23), exponents).astype(np.float32)
    return np.stack([a, a[::-1]]), np.ldexp(np.ones((len(exponents), 1), np.float32), -np.abs(exponents[:, None]))


@pytest.mark.parametrize("data", [cut_every_time, worst_words, first_large, widest])
@pytest.mark.parametrize("name", ALL)
def test_adversaries(name, data):
    for k in (1, 16, 33, 1000):
        check(*data(ALL[name], k), ALL[name])


def far_between(words, k):
    """A large product, then small ones, one for each instruction."""
    a = np.zeros((1, k), np.float32)
    a[0, ::16] = 2.0**-12
    b = a.T * np.float32(2 - 2.0**-6)
    a[0, 0] = b[0, 0] = 1
    return a, b


@pytest.mark.parametrize("rounding", ["RZ", "RN"])
@pytest.mark.parametrize("fused", some_first(2, [1, 12, 3, 6, 32, 64, 256]))
def test_tensor_cores_of_any_depth(rng, fused, rounding):
    """Bounds hold for any number of products that are added at once, even one that does not divide the depth."""
    core = TensorCore("any", alignment_bits=int(rng.integers(5, 41)), fused=fused, rounding=rounding)
    every = tuple((s, t) for s in (1, 2, 3) for t in (1, 2, 3))
    for words in (
        Words("bf16", 3, pairs=every, accumulators="pair", core=core),
        Words("tf32", 2, core=core),
        Words("fp16", 2, scale_bits=11, block=32, promotion="fp32", core=core),
    ):
        for data in (far_between, cut_every_time, first_large):
            for k in (17, min(256 * fused, 3200)):  # 3200 sums of one product would take a minute and find no more
                check(*data(words, k), words)
        check(rng.standard_normal((3, 200), dtype="f4"), rng.standard_normal((200, 4), dtype="f4"), words)


@pytest.mark.parametrize("name", ["single-fp16", "markidis", "double-fp16", "halfhalf"])
def test_adversaries_come_close(name):
    """The errors of chains of truncations reach a fair share of their bounds."""
    shares = []
    for data in (cut_every_time, worst_words, first_large):
        a, b = data(PRESETS[name], 4096)
        c, report = measured("componentwise", a, b, scheme=name)
        shares.append(reference.componentwise_error(c, a, b) / report.bound)
    assert max(shares) > 1 / 16, shares


@pytest.mark.parametrize("name", PRESETS)
def test_the_bound_is_within_2_10_of_the_error_for_ordinary_data(rng, name):
    for k in (100, 1000):
        a, b = rng.standard_normal((24, k)).astype("f4"), rng.standard_normal((k, 24)).astype("f4")
        c, report = measured("componentwise", a, b, scheme=name)
        error = reference.componentwise_error(c, a, b)
        assert error <= report.bound <= 2**10 * error


def test_theorem_2_1():
    """Our bounds are at most those of Fasi et al., theorem 2.1: ((p+1) u_low^p + gamma) abs(A) abs(B)."""
    for name, leading in (("single-fp16", 2 * 2.0**-11), ("double-bf16", 3 * 2.0**-16), ("single-bf16", 2 * 2.0**-8)):
        words = replace(PRESETS[name], core=TensorCore("exact but for FP32", 40, 1, "RN", ("fp16", "bf16")))
        for k in (1, 16):
            theirs = leading + (k + words.count**2 - 1) * 2.0**-24
            assert word_bounds.relative(words, k) <= theirs * (1 + 2.0**-6)


def test_longer_blocks_and_sums_prove_less():
    for name, words in ALL.items():
        bounds = [word_bounds.relative(words, k) for k in (1, 10, 100, 1000, 10000, 10**6, 10**9)]
        assert bounds == sorted(bounds), name
        likely = [word_bounds.relative(words, k, True) for k in (1, 10, 100, 1000, 10000, 10**6, 10**9)]
        assert all(x <= y for x, y in zip(likely, bounds, strict=True))
    worse = [replace(PRESETS["markidis"], core=core) for core in (H100, A100, V100)]
    bounds = [word_bounds.relative(words, 1000) for words in worse]
    assert bounds == sorted(bounds)


@pytest.mark.parametrize(("bits", "k"), [(9, 32), (10, 64), (11, 64), (12, 128)])
def test_small_sums_of_fp16_are_aligned_as_if_normal(bits, k):
    """A tensor core of few bits cuts what is added to a subnormal accumulator, however small that is."""
    core = TensorCore("of few bits", bits, 16)
    words = Words("fp16", 1, block=k, promotion="fp32", accumulator="fp16", core=core)
    a = np.full((1, k), 2.0**-12 * (1 - 2**-9), np.float32)
    b = np.full((k, 1), 2.0**-12 * (1 + 2**-10), np.float32)
    a[0, 0], a[0, -2:], b[-2:, 0] = 2.0**-12, (0, 16 * (1 - 2**-11)), (16 * (1 - 2**-11), 0)
    c, report = measured("componentwise", a, b, scheme=words)
    exact = sum(Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a[0], b[:, 0], strict=True))
    error = abs(Fraction(float(c[0, 0])) - exact) / exact
    assert report.measure == "componentwise" and 0.1 < error <= report.bound


@pytest.mark.parametrize("core", [V100, A100, H100], ids=lambda core: core.name)
def test_what_small_sums_of_fp16_lose_is_magnified_within_their_block(core):
    words = replace(PRESETS["two-stage"], core=core)
    assert word_bounds.absolute(words, 2**20) <= 1.001 * 2**10 * word_bounds.absolute(words, 2**10)
    assert word_bounds.a_priori(words, 2**20) < 2 * word_bounds.a_priori(words, 2**10)


def test_halfhalf_proves_fp32(rng):
    """halfhalf, promoted every block, proves "fp32", and a smaller bound than the native product, from k = 256 on."""
    for k in (256, 4096):
        a, b = rng.uniform(0.5, 1, (2, 5, k)).astype("f4")
        plan = ozaki.plan(a, b.T, scheme="halfhalf", accuracy="fp32")
        assert plan.bound < ozaki.plan(a, b.T, scheme="native").bound
    with pytest.raises(ValueError, match=r"^accuracy: markidis proves"):
        ozaki.plan(a, b.T, scheme="markidis", accuracy="fp32")


def test_small_elements_cost_a_proof(rng):
    """Elements below the floor of words raise the componentwise bound only as far as they matter."""
    a, b = rng.standard_normal((2, 8, 64)).astype("f4")
    near = ozaki.plan(a, b.T, scheme="halfhalf", accuracy=1e-5).bound
    a[:, ::2] *= np.float32(2.0**-35)
    far = ozaki.plan(a, b.T, scheme="halfhalf", accuracy=1e-5).bound
    assert near < far < 1.01 * near
    a[:, 1::2], b[:, ::2] = 0, 1
    a[:, 1] = 1
    b[:, 1] = 0  # the largest elements meet zeros
    assert ozaki.plan(a, b.T, scheme="halfhalf", accuracy=0.5).bound > 2 * near


def rows_of(rng, kind, rows, k):
    """Random rows of one kind: dense, sparse, graded, or nonzero in different halves; with a row of zeros."""
    x = rng.standard_normal((rows, k))
    if kind == "uniform":
        x = rng.random((rows, k))
    elif kind == "sparse":
        x *= rng.random((rows, k)) < 0.3
    elif kind == "graded":
        x = np.ldexp(x, rng.integers(-20, 20, (rows, k)))
    elif kind == "halves":
        x[::2, : k // 2] = x[1::2, k // 2 :] = 0
    x[0] *= kind != "normal"
    return (x * 2.0 ** rng.integers(-30, 30, (rows, 1))).astype("f4")


@pytest.mark.parametrize("kind", ["normal", "uniform", "sparse", "graded", "halves"])
def test_what_rows_have_in_common(rng, kind):
    """B9 is a lower bound of each entry, and far from zero for ordinary rows."""
    for k in (1, 2, 7, 100, 2000):
        a, b = rows_of(rng, kind, 9, k), rows_of(rng, kind, 8, k)
        left, right = (describe(x[None]).on_host for x in (a, b))
        share = word_bounds.least_share(left, right)
        entries = np.ldexp(abs(a).astype("f8") @ abs(b).astype("f8").T, -(left.top[0][:, None] + right.top[0]))
        least = share * left.least_sums[0][:, None] * right.least_sums[0]
        assert (least <= entries * (1 + 2.0**-40)).all()
        if k == 2000:
            assert (share > 0.1 * k * (2.0**-5 / k) ** 2) == (kind in ("normal", "uniform"))


@pytest.mark.parametrize("kind", ["normal", "uniform", "sparse", "graded", "halves"])
def test_words_by_some_inner_indices(rng, kind):
    """Bounds of words from a sample of inner indices and the largest elements of rows hold for all elements."""
    words = PRESETS["halfhalf"]
    for k, some in ((7, 7), (384, 384), (600, 384), (2000, 384)):
        a, b = rows_of(rng, kind, 9, k), rows_of(rng, kind, 8, k)
        a[:, some + 1 :: 2] *= np.float32(2.0**-33)  # small elements outside the sample
        whole = describe(a[None]), describe(b[None])
        bound = word_bounds.by_sample(*sample(a[None], b[None], whole), some, words, k)
        error = reference.componentwise_error(ozaki.matmul(a, b.T, scheme=words), a, b.T)
        assert error <= with_rounding(bound, "float32")
        if some >= 384:
            assert (bound < 1.25 * word_bounds.relative(words, k)) == (kind in ("normal", "uniform"))
        if k == some:
            exact = word_bounds.by_rows(*(x.on_host for x in whole), words)
            assert exact <= bound or bound == exact == np.inf


@pytest.mark.parametrize("kind", ["normal", "units", "rectified", "sparse", "graded", "halves", "against"])
def test_words_by_the_least_product(rng, kind):
    """Bounds of words from the least product hold; they are sharp unless large elements meet small ones alone."""
    words = PRESETS["halfhalf"]
    for k in (7, 600, 3000):
        plain = kind if kind in ("sparse", "graded", "halves") else "normal"
        a, b = rows_of(rng, plain, 9, k), rows_of(rng, plain, 8, k)
        units = np.ldexp(1.0, rng.integers(-12, 13, k))
        if kind in ("units", "rectified", "against"):
            a = (a * units).astype("f4")
        if kind == "rectified":
            a, b = np.maximum(a, 0), np.maximum(b, 0)
        if kind == "against":
            b = (b / units / units).astype("f4")
        left, right = describe(a[None]), describe(b[None])
        tops = (np.where(x.on_host.empty, 0, x.on_host.top)[0] for x in (left, right))
        entries = np.ldexp(abs(a).astype("f8") @ abs(b).astype("f8").T, -np.add.outer(*tops))
        least = least_product(lower_bound(left, right, levels(k)[0]), left, right)
        assert (least <= entries[a.any(axis=1)][:, b.any(axis=1)]).all()
        bound = word_bounds.by_least(least, words, k)
        error = reference.componentwise_error(ozaki.matmul(a, b.T, scheme=words), a, b.T)
        assert error <= with_rounding(bound, "float32")
        if k > 7 and kind != "graded":  # graded rows may go either way
            sharp = bound < 1.25 * word_bounds.relative(words, k)
            assert sharp == (kind in ("normal", "units", "rectified", "sparse")), (kind, k, least)


def test_equal_rows_have_all_in_common():
    """`least_share` of rows of ones, the largest one there is, is loose by its constants alone."""
    ones = describe(np.ones((1, 3, 64), "f4")).on_host
    assert 0.8 * 64 * (2.0**-5 / 64) ** 2 < word_bounds.least_share(ones, ones) < 64 * (2.0**-5 / 64) ** 2


def test_small_elements_of_ordinary_rows_cost_nothing(rng, monkeypatch):
    """Bounds with a few elements below the floor of words need no product of magnitudes."""
    a, b = rng.standard_normal((2, 8, 4096)).astype("f4")
    before = ozaki.plan(a, b.T, scheme="halfhalf", accuracy="fp32").bound
    a[3, 7] = b[2, 5] = 2.0**-60
    with monkeypatch.context() as patch:
        patch.setattr(_proof, "lower_bound", None)
        after = ozaki.plan(a, b.T, scheme="halfhalf", accuracy="fp32").bound
    assert before < after < 1.01 * before
    c = ozaki.matmul(a, b.T, scheme="halfhalf", accuracy="fp32")
    assert reference.componentwise_error(c, a, b.T) <= after


def test_an_estimate_of_the_usual_error(rng):
    """The estimate E2 for rounding to nearest is 370 to 620 times the root mean square error here; it is no bound."""
    core = TensorCore("mine", 24, 8, "RN")
    for name in ("markidis", "double-fp16", "halfhalf"):
        words = replace(PRESETS[name], core=core)
        a, b = spread(rng, (16, 4096), 0, "float32"), spread(rng, (4096, 16), 0, "float32")
        c, estimate = ozaki.matmul(a, b, scheme=words), word_bounds.relative(words, 4096, True)
        assert reference.componentwise_error(c, a, b) < estimate
        usual = reference.componentwise_error(c, a, b, rms=True)
        assert 200 * usual < estimate < 800 * usual
