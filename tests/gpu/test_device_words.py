"""Words on the device have the bits of the tensor core in software, whatever the kernel, layout and tile."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import ozaki
from operands import random_matrix, tensor_core
from ozaki.bounds.description import FIELDS
from ozaki.schemes import PRESETS

cp = pytest.importorskip("cupy")
pytestmark = pytest.mark.gpu

PROMOTED = ["halfhalf", "tf32tf32", "two-stage"]
PAIRS = ["single-fp16", "single-bf16", "single-tf32", "double-fp16", "double-bf16", "triple-bf16"]
PAIRS += ["fabsum-v1", "fabsum-v2"]
ON_HOPPER = [*PROMOTED, *PAIRS]
"""Presets that have kernels of their own on Hopper, one kernel for each of the two lists."""


@pytest.fixture(scope="module")
def core():
    return tensor_core()


@pytest.fixture(params=["wgmma", "mma.sync"])
def kernel(request, monkeypatch):
    """The instruction of the kernel that multiplies: each one that the device has."""
    from ozaki.backends.cupy import repeated
    from ozaki.backends.cupy.steps.engines import choice

    repeated.forget()
    if request.param == "mma.sync":
        for engine in (choice.word_promoted, choice.word_pairs):
            monkeypatch.setattr(engine, "multiplies", lambda words: False)
    elif cp.cuda.Device().compute_capability != "90":
        pytest.skip("wgmma needs Hopper")
    yield request.param
    repeated.forget()


def operands(rng, m, k, n, spread=3):
    return random_matrix(rng, (m, k), "f4", spread), random_matrix(rng, (k, n), "f4", spread)


def same_numbers(expected, got):
    """Assert equal bits, except for the sign of zeros, which the model does not claim."""
    got = cp.asnumpy(got)
    assert (expected.dtype, expected.shape) == (got.dtype, got.shape)
    different = expected.view(np.int32) != got.view(np.int32)
    different &= ~((expected == 0) & (got == 0)) & ~(np.isnan(expected) & np.isnan(got))
    if different.any():
        at = tuple(np.argwhere(different)[0])
        pytest.fail(
            f"{different.sum()} of {different.size} differ, first at {at}: {expected[at].item().hex()} in the model, "
            f"{got[at].item().hex()} on the device"
        )


def same_in_samples(rng, a, b, words, count=20):
    """Multiply; assert that some rows and columns have the bits of the model, and that all entries are finite."""
    c = multiplied(cp.asarray(a), cp.asarray(b), words)
    rows, cols = (np.unique(rng.integers(0, size, count)) for size in c.shape)
    same_numbers(ozaki.matmul(a[rows], b[:, cols], scheme=words), c[rows][:, cols])
    assert bool(cp.isfinite(c).all())


def multiplied(a, b, words, **options):
    out = cp.full((*a.shape[:-1], b.shape[-1]), cp.nan, np.float32)
    assert ozaki.matmul(a, b, scheme=words, out=out, **options) is out
    return out


@pytest.mark.parametrize("shape", [(1, 1, 1), (129, 64, 193), (300, 1000, 500), (40, 5000, 420), (257, 65, 209)])
@pytest.mark.parametrize("columns", [128, 192, 208, 256])
@pytest.mark.parametrize("name", ON_HOPPER)
def test_tiles(core, name, columns, shape, kernel, monkeypatch):
    from ozaki.backends.cupy.steps.engines import choice

    if kernel == "mma.sync" and columns != 128:
        pytest.skip("the kernel has no columns to choose")
    rng = np.random.default_rng(sum(shape))
    words = replace(PRESETS[name], core=core)
    widths, key = choice.word_promoted._COLUMNS, words.count
    if name in PAIRS:
        widths, key = choice.word_pairs._COLUMNS, choice.word_pairs._totals(words)
    if columns not in widths[key]:
        pytest.skip("the kernel has no such tiles of such words")
    monkeypatch.setitem(widths, key, {columns: 1.0})
    a, b = operands(rng, *shape)
    same_in_samples(rng, a, b, words)


@pytest.mark.parametrize("shape", [(129, 64, 193), (300, 1000, 500), (40, 5000, 420)])
@pytest.mark.parametrize("tile", [(4, 64, 32, 4), (4, 64, 64, 2), (8, 64, 16, 3), (8, 32, 32, 4), (8, 64, 32, 2)])
@pytest.mark.parametrize("name", ["halfhalf", "tf32tf32", "markidis", "two-stage", "triple-bf16", "fabsum-v1"])
@pytest.mark.parametrize("kernel", ["mma.sync"], indirect=True)
def test_tiles_of_mma(core, name, tile, shape, kernel, monkeypatch):
    """Shapes of the mma.sync kernel: warps, rows and columns of each, units of k in shared memory."""
    from ozaki.backends.cupy.steps.engines import choice, word_mma

    monkeypatch.setattr(choice.MmaWords, "of", lambda device, *_: choice.MmaWords(device, word_mma.Shape(*tile)))
    rng = np.random.default_rng(sum(shape))
    same_in_samples(rng, *operands(rng, *shape), replace(PRESETS[name], core=core))


@pytest.mark.parametrize("block", [64, 192, 320, 448, 2048])
@pytest.mark.parametrize("name", ["single-fp16", "fabsum-v1", "fabsum-v2"])
def test_blocks(core, name, block):
    """Blocks shorter and longer than the ring of stages."""
    rng = np.random.default_rng(block)
    promotion = PRESETS[name].promotion or "fp32"
    words = replace(PRESETS[name], core=core, block=block, promotion=promotion)
    a, b = operands(rng, 300, 3000, 700)
    same_in_samples(rng, a, b, words)


@pytest.mark.parametrize("name", [*ON_HOPPER, "markidis"])
def test_more_tiles_than_multiprocessors(core, name):
    rng = np.random.default_rng(3)
    words = replace(PRESETS[name], core=core)
    a, b = rng.standard_normal((3000, 700)).astype("f4"), rng.standard_normal((700, 5000)).astype("f4")
    same_in_samples(rng, a, b, words, 40)


@pytest.mark.parametrize("name", ON_HOPPER)
def test_batches(core, name, kernel):
    rng = np.random.default_rng(4)
    words = replace(PRESETS[name], core=core)
    for stack_a, stack_b in (((3,), (3,)), ((3,), ()), ((), (3,)), ((2, 1), (1, 3))):
        a, b = random_matrix(rng, (*stack_a, 50, 130), "f4", 3), random_matrix(rng, (*stack_b, 130, 60), "f4", 3)
        same_numbers(ozaki.matmul(a, b, scheme=words), ozaki.matmul(cp.asarray(a), cp.asarray(b), scheme=words))


@pytest.mark.parametrize("seed", range(24))
def test_words_in_one_read(core, seed):
    """The kernel whose clusters hold whole rows finds the exponents and words that two kernels find."""
    from built import Steps
    from ozaki.backends.cupy.steps.describing import find_largest
    from ozaki.backends.cupy.steps.engines.choice import word_engine
    from ozaki.backends.cupy.steps.one_read import find_and_split
    from ozaki.backends.cupy.steps.words import split_words

    if cp.cuda.Device().compute_capability != "90":
        pytest.skip("clusters are those of Hopper")
    rng = np.random.default_rng(4000 + seed)
    batch, rows, k = int(rng.integers(1, 3)), int(rng.integers(1, 600)), int(rng.integers(1, (4097, 16385)[seed % 2]))
    x = random_matrix(rng, (batch, rows, k), "f4", int(rng.choice([1, 40])))
    if seed % 3 == 0:
        x.reshape(-1)[rng.integers(0, x.size, 5)] = [np.nan, np.inf, -np.inf, np.nan, np.inf]
    x = cp.asarray(x)
    for y in (x, x.swapaxes(1, 2).copy().swapaxes(1, 2), x[:, ::-1, 1:]):
        if 0 in y.shape:
            continue
        words = replace(PRESETS[ON_HOPPER[seed % len(ON_HOPPER)]], core=core)
        for side in ("left", "right"):
            steps = Steps()
            b, device, given = steps.b, steps.device, steps.given(y)
            layout = word_engine(device, words, batch, rows, y.shape[2], rows).layout(words, side, *y.shape)
            expected = split_words(b, find_largest(b, given), words, layout)
            lost = b.cleared_on_host("lost", (1,), "I")
            got = find_and_split(b, device, given, words, layout, lost)
            raised = b.evidence(b.arrive(lost), lambda flag: bool(flag[0]))
            for of in ("mu", "planes"):
                assert bool((steps.real(getattr(expected, of)) == steps.real(getattr(got, of))).all())
            fields = [steps.real(of.described.fields).get() for of in (expected, got)]
            for field in ("top", "nonfinite"):
                np.testing.assert_array_equal(*(of[FIELDS.index(field)] for of in fields))
            magnitudes = cp.where(cp.isfinite(y), abs(y), 0).astype("f8")
            tops_of_rows = cp.frexp(magnitudes.max(axis=-1, keepdims=True))[1]
            small = magnitudes < cp.ldexp(cp.ones_like(magnitudes), tops_of_rows + (words.floor - words.ceiling))
            assert steps.evidence(raised) == bool((small & (magnitudes > 0)).any())


@pytest.mark.parametrize("name", ON_HOPPER)
def test_panels_prepared_and_streams(core, name, kernel):
    rng = np.random.default_rng(7)
    words = replace(PRESETS[name], core=core)
    a, b = rng.standard_normal((700, 900)).astype("f4"), rng.standard_normal((900, 433)).astype("f4")
    ca, cb = cp.asarray(a), cp.asarray(b)
    expected, report = ozaki.matmul(ca, cb, scheme=words, return_report=True)
    expected = expected.get()
    assert report.scheme == name and kernel in report.engine
    for part in (2, 3):
        limit = report.workspace_bytes // part
        c, less = ozaki.matmul(ca, cb, scheme=words, workspace_limit=limit, return_report=True)
        assert less.workspace_bytes <= limit
        same_numbers(expected, c)
    plan = ozaki.plan(a.shape, b.shape, dtype="float32", scheme=words)
    left, right = ozaki.prepare(ca, "left", plan), ozaki.prepare(cb, "right", plan)
    for x, y in ((left, cb), (ca, right), (left, right)):
        same_numbers(expected, ozaki.matmul(x, y, plan=plan))
    with cp.cuda.Stream(non_blocking=True) as stream:
        c = ozaki.matmul(ca, cb, scheme=words)
    stream.synchronize()
    same_numbers(expected, c)
    wide = cp.full((700, 866), cp.nan, np.float32)
    ozaki.matmul(ca, cb, out=wide[:, ::2], scheme=words)
    same_numbers(expected, wide[:, ::2])
    assert bool(cp.isnan(wide[:, 1::2]).all())


@pytest.mark.parametrize("name", ["halfhalf", "tf32tf32"])
def test_no_less_accurate_than_the_native_product(core, name):
    """n is so large that cuBLAS does not split k, as it does for few tiles: sums of positive numbers gain by that."""
    rng = np.random.default_rng(9)
    for make in (rng.standard_normal, rng.random):
        a, b = make((2048, 2048)).astype("f4"), make((2048, 2048)).astype("f4")
        ca, cb = cp.asarray(a), cp.asarray(b)
        exact = a.astype("f8") @ b.astype("f8")
        size = np.abs(a).astype("f8") @ np.abs(b).astype("f8")
        words, native = (
            np.sqrt((((c.get() - exact) / size) ** 2).mean())
            for c in (ozaki.matmul(ca, cb, scheme=replace(PRESETS[name], core=core)), ca @ cb)
        )
        assert words <= native


def test_graph(core):
    """A product is captured once and replayed with other data in the same arrays."""
    rng = np.random.default_rng(10)
    a, b = cp.zeros((300, 200), "f4"), cp.zeros((200, 250), "f4")
    c = cp.full((300, 250), cp.nan, "f4")
    options = {"scheme": replace(PRESETS["halfhalf"], core=core), "out": c}
    pool = cp.cuda.MemoryPool()
    with cp.cuda.Stream(non_blocking=True) as stream, cp.cuda.using_allocator(pool.malloc):
        ozaki.matmul(a, b, **options)
        stream.begin_capture()
        ozaki.matmul(a, b, **options)
        graph = stream.end_capture()
    for _ in range(2):
        first, second = operands(rng, 300, 200, 250)
        a.set(first)
        b.set(second)
        cp.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        same_numbers(ozaki.matmul(first, second, scheme=options["scheme"]), c)
