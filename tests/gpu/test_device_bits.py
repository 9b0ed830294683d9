"""NumPy and CuPy give the same bits: descriptions, plans, products."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from unittest.mock import patch

import numpy as np
import pytest

import ozaki
from ozaki import reference
from ozaki._description import FIELDS
from ozaki.backends import _numpy
from ozaki.schemes import PRESETS, Digits, Residues
from ozaki.schemes.digits import fp16_digit_bits
from ozaki.schemes.named import forced

cp = pytest.importorskip("cupy")
pytestmark = pytest.mark.gpu

SEEDS = range(40)


def random_matrix(rng, shape, dtype, spread):
    """Normal entries with exponents spread over rows, columns and single elements."""
    x = rng.standard_normal(shape)
    x = np.ldexp(x, rng.integers(-spread, spread + 1, (*shape[:-1], 1)))
    x = np.ldexp(x, rng.integers(-spread, spread + 1, shape) // 2)
    x[rng.random(shape) < 0.05] = 0
    return x.astype(dtype)


def views(rng, x):
    """The same matrix in some memory layout, on host and device."""
    kind = int(rng.integers(6))
    if kind == 1:
        x = np.asfortranarray(x)
    y = cp.asarray(x, order="F" if kind == 1 else "C")
    if kind == 2:
        x, y = x[..., ::-1], y[..., ::-1]
    if kind == 3:
        x, y = x[..., ::-1, :], y[..., ::-1, :]
    if kind == 4:
        x, y = x[..., ::2], y[..., ::2]
    if kind == 5:
        x, y = (
            np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2),
            cp.ascontiguousarray(y.swapaxes(-1, -2)).swapaxes(-1, -2),
        )
    return x, y


def same_bits(x, y):
    x, y = np.ascontiguousarray(x), np.ascontiguousarray(cp.asnumpy(y))
    assert x.dtype == y.dtype and x.shape == y.shape
    if x.tobytes() != y.tobytes():
        at = tuple(np.argwhere(x.view(f"i{x.itemsize}") != y.view(f"i{y.itemsize}"))[0])
        pytest.fail(f"first difference at {at}: {x[at].item().hex()} on NumPy, {y[at].item().hex()} on CuPy")


def engines(scheme, slices, k):
    """The engines of this device for a scheme."""
    from ozaki.backends import _hopper

    if scheme == "fp16-digits":
        return ("cublas",)
    hopper = cp.cuda.Device().compute_capability == "90" and _hopper.fits(forced(scheme, slices), k)
    return ("cublas", "hopper") if hopper else ("cublas",)


@pytest.mark.parametrize("seed", SEEDS)
def test_descriptions(seed):
    from ozaki.backends import _cupy

    rng = np.random.default_rng(seed)
    shape = tuple(int(v) for v in rng.integers(1, 700, 2))
    if seed % 4 == 0:
        shape = (int(rng.integers(1, 5)), int(rng.integers(1, 200000)))
    if seed % 5 == 0:
        shape = (int(rng.integers(1000, 3000)), int(rng.integers(1, 50)))
    x = random_matrix(rng, shape, rng.choice(["f4", "f8"]), int(rng.choice([0, 3, 40, 500])))
    if seed % 3 == 0:
        x.reshape(-1)[rng.integers(0, x.size, 3)] = [np.nan, np.inf, -np.inf]
    if seed % 7 == 0:
        x = np.rint(x)
    x, y = views(rng, x)
    for u, v in ((x, y), (x.T, y.T)):
        host, device = _numpy.describe(u[None]).fields, _cupy.describe(v[None]).fields.get()
        for field, h, d in zip(FIELDS, host, device, strict=True):
            np.testing.assert_array_equal(h, d, err_msg=f"{field}, seed {seed}, shape {u.shape}")


@pytest.mark.parametrize("shape", [(40, 1000), (3, 40000), (1100, 17000), (70, 3000)])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("step", [0.01, 0.5, -0.004])
def test_descriptions_of_graded_rows(shape, dtype, step):
    """Segments of a row lie far below its top, or hold nothing: what was noted for them does not do."""
    from ozaki.backends import _cupy

    rng = np.random.default_rng(shape[1])
    grade = np.clip(step * np.arange(shape[1]), -100, 100).astype(int)
    x = np.ldexp(rng.standard_normal(shape), -grade).astype(dtype)
    x[:, shape[1] // 3 : shape[1] // 2] = 0
    x[1] = np.ldexp(rng.integers(-7, 8, shape[1]).astype(dtype), -grade // 8)  # multiples of a power of two
    x[2, ::50] = np.nan
    x[0] *= x.dtype.type(2.0 ** (-120 if dtype == "f4" else -1010))  # subnormal numbers too
    for u, v in ((x, cp.asarray(x)), (x, cp.asarray(x.T.copy()).T), (x[:, 1:], cp.asarray(x)[:, 1:])):
        host, device = _numpy.describe(u[None]).fields, _cupy.describe(v[None]).fields.get()
        for field, h, d in zip(FIELDS, host, device, strict=True):
            np.testing.assert_array_equal(h, d, err_msg=field)


@pytest.mark.parametrize("seed", range(20))
def test_least_numbers_of_rows(seed):
    """What a look at some elements, and the largest ones of whole rows, tell of all rows."""
    from ozaki.backends import _cupy, _describe_split, _numpy_describe, _word_tiles

    if cp.cuda.Device().compute_capability != "90":
        pytest.skip("words are cut in one read on Hopper")
    rng = np.random.default_rng(5000 + seed)
    batch, k = int(rng.integers(1, 4)), int(rng.integers(2, 900))
    most = 3000 if k > 200 else 30000
    wide = int(rng.choice([3, 12, 70]))
    sides = [random_matrix(rng, (batch, int(rng.integers(1, most)), k), "f4", wide) for _ in "ab"]
    sides[0][:, ::9] = 0
    if seed % 4 == 0:
        sides[1][-1, -1, : k - 1] = 0  # a row that looks empty
    if seed % 5 == 0:
        sides[0][:] = 0
    some, words = int(rng.integers(1, k)), PRESETS["halfhalf"]
    host = [_numpy.describe(x[..., :some]) for x in sides], [_numpy.describe(x) for x in sides]
    on_device = [cp.asarray(x) for x in sides]
    described = [_cupy.describe(x[..., :some]) for x in on_device]
    layouts = [_word_tiles.layout(words, 128, 2, "left", *x.shape) for x in sides]
    cut = [_describe_split.find_and_split(*each).begin() for each in zip(on_device, [words] * 2, layouts, strict=True)]
    looked = described, [slices.described for slices in cut]
    assert _cupy.read_least(*looked, words)() == _numpy_describe.read_least(*host, words)()
    assert _cupy.read_least(described, described)() == _numpy_describe.read_least(host[0], host[0])()


@pytest.mark.parametrize("seed", range(60))
def test_one_read(seed):
    """Blocks that hold whole rows find and cut what two kernels do."""
    from ozaki.backends import _cupy, _describe_split, _hopper, _magnitudes, _split
    from ozaki.backends._tops import tops

    if cp.cuda.Device().compute_capability != "90":
        pytest.skip("clusters are those of Hopper")
    rng = np.random.default_rng(3000 + seed)
    scheme = (Residues(14), Residues(7), Digits(3), Digits(7), Digits(5, 7), Residues(20))[seed % 6]
    sums = isinstance(scheme, Residues) or seed % 4 == 0
    dtype = rng.choice(["f4", "f8"])
    longest = 6144 if dtype == "f8" else 8192 if sums else 12288
    batch, rows, k = int(rng.integers(1, 4)), int(rng.integers(1, 700)), int(rng.integers(1, longest + 1))
    x = random_matrix(rng, (batch, rows, k), dtype, int(rng.choice([0, 3, 40, 100 if dtype == "f4" else 800])))
    x[:, ::5] = rng.integers(-9, 10, x[:, ::5].shape)  # sums of these are exact
    if seed % 3 == 0:
        x.reshape(-1)[rng.integers(0, x.size, 5)] = [np.nan, np.inf, -np.inf, np.nan, np.inf]
    _, x = views(rng, x)
    for side in ("left", "right"):
        layout = _hopper.layout(scheme, side, *x.shape)
        expected = _split.split((_cupy.describe if sums else tops)(x), side, scheme, layout)
        room = None
        if sums:
            room = _magnitudes.room(x, x, _magnitudes.Layout.in_tiles(rows, rows, k, bool(rng.integers(2))))
            room.left.fill(85), room.right.fill(85)
        got = _describe_split.describe_and_split(x, side, scheme, layout, sums, room).begin()
        for i, field in enumerate(FIELDS):
            if sums or field in ("top", "nonfinite"):
                assert bool((expected.described.fields[i] == got.described.fields[i]).all()), (field, seed)
        assert bool((expected.mu == got.mu).all())
        ones = _cupy.describe(cp.ones((batch, layout.filled, layout.k), "f4"))
        slices = _split.split(ones, side, scheme, _hopper.layout(scheme, side, *ones.x.shape)).planes
        filled = cp.tile((slices.reshape(scheme.count, -1) != 0).any(0), scheme.count)
        assert float(filled.mean()) == pytest.approx(layout.filled / layout.rows)
        assert bool((expected.planes == got.planes)[filled].all())
        if room is not None:
            want = _magnitudes.magnitudes(expected.described, expected.described, room.layout)
            ones = _cupy.describe(cp.ones((batch, layout.filled, room.layout.k * 4), "f4"))
            filled = getattr(_magnitudes.magnitudes(ones, ones, room.layout), side) != 0
            assert float(filled.mean()) == pytest.approx(layout.filled / layout.rows)
            assert bool((getattr(want, side) == getattr(room, side))[filled].all())


@pytest.mark.parametrize(
    ("scheme", "slices", "dtype"),
    [("residues", 14, "f8"), ("digits", 3, "f4"), ("digits", 7, "f8"), ("halfhalf", None, "f4")],
)
def test_tiles_begun_together(scheme, slices, dtype):
    """A long k and many tiles; beside a stream that keeps multiprocessors busy, so that not all clusters come."""
    rng = cp.random.default_rng(9)
    a, b = rng.standard_normal((3000, 8300), dtype=dtype), rng.standard_normal((8300, 4700), dtype=dtype)
    c = ozaki.matmul(a, b, scheme=scheme, slices=slices)
    same_bits(ozaki.matmul(a[-9:].get(), b[:, -40:].get(), scheme=scheme, slices=slices), c[-9:, -40:])
    beside = cp.cuda.Stream(non_blocking=True)
    for _ in range(3):
        with beside:
            cp.sort(cp.arange(2**24)[::-1])
        again = ozaki.matmul(a, b, scheme=scheme, slices=slices)
        assert bool((again == c).all())


@pytest.mark.parametrize(
    ("shape", "slices"),
    [((64, 100000, 64), 14), ((256, 70000, 300), 7), ((200, 140001, 130), 16), ((700, 20000, 500), 14)],
)
def test_parts_of_k(shape, slices):
    """Few tiles and a long k: into poisoned memory, of rows and of columns."""
    (m, k, n), rng = shape, np.random.default_rng(10)
    a, b = random_matrix(rng, (m, k), "f8", 3), random_matrix(rng, (k, n), "f8", 3)
    expected = ozaki.matmul(a, b, scheme="residues", slices=slices)
    for x, y in ((cp.asarray(a), cp.asarray(b)), (cp.asarray(a.T.copy()).T, cp.asarray(b.T.copy()).T)):
        for engine in engines("residues", slices, k):
            out = cp.full((m, n), np.nan)
            ozaki.matmul(x, y, scheme="residues", slices=slices, engine=engine, out=out)
            same_bits(expected, out)


def test_small_matrices_of_a_batch():
    """Padded to whole tiles, where cuBLAS would take them one by one."""
    rng = np.random.default_rng(11)
    a, b = random_matrix(rng, (300, 30, 60), "f8", 3), random_matrix(rng, (300, 60, 20), "f8", 3)
    for scheme, slices in (("residues", 14), ("digits", 7)):
        same_bits(
            ozaki.matmul(a, b, scheme=scheme, slices=slices),
            ozaki.matmul(cp.asarray(a), cp.asarray(b), scheme=scheme, slices=slices),
        )


def test_shorter_rows_between():
    """One kernel for all lengths, with as much shared memory as each needs."""
    rng = np.random.default_rng(8)
    for k in (5000, 700, 5000, 130, 5000):
        a, b = random_matrix(rng, (40, k), "f8", 3), random_matrix(rng, (k, 30), "f8", 3)
        for scheme, slices in (("residues", 14), ("digits", 7)):
            expected = ozaki.matmul(a, b, scheme=scheme, slices=slices)
            for engine in engines(scheme, slices, 40):
                options = {"scheme": scheme, "slices": slices, "engine": engine}
                same_bits(expected, ozaki.matmul(cp.asarray(a), cp.asarray(b), **options))


@pytest.mark.parametrize("seed", range(400))
def test_products(seed):
    rng = np.random.default_rng(1000 + seed)
    m, k, n = (int(v) for v in rng.integers(1, 400, 3))
    if seed % 10 == 0:
        m, n, k = m % 20 + 1, n % 20 + 1, int(rng.integers(1, 300000))
    scheme = str(rng.choice(["residues", "digits", "digits7", "fp16-digits"]))
    slices = int(rng.integers(6, 26)) if scheme == "residues" else int(rng.integers(1, 12))
    batch_a = (int(rng.integers(1, 4)),) if seed % 6 == 1 else ()
    batch_b = batch_a if seed % 12 == 1 else ()
    if seed % 18 == 3:
        batch_b = (3,)
    spread = int(rng.choice([0, 5, 60, 400]))
    dtypes = rng.choice(["f4", "f8"], 2)
    a = random_matrix(rng, (*batch_a, m, k), dtypes[0], min(spread, 40) if dtypes[0] == "f4" else spread)
    b = random_matrix(rng, (*batch_b, k, n), dtypes[1], min(spread, 40) if dtypes[1] == "f4" else spread)
    if seed % 8 == 2:
        a.reshape(-1)[rng.integers(0, a.size, 2)] = [np.nan, -np.inf]
        b.reshape(-1)[rng.integers(0, b.size)] = np.inf
    a, ca = views(rng, a)
    b, cb = views(rng, b)
    if a.shape[-1] != b.shape[-2]:
        k = min(a.shape[-1], b.shape[-2])
        a, ca, b, cb = a[..., :k], ca[..., :k], b[..., :k, :], cb[..., :k, :]
    expected = ozaki.matmul(a, b, scheme=scheme, slices=slices)
    for engine in engines(scheme, slices, a.shape[-1]):
        out = cp.full(expected.shape, cp.nan, expected.dtype)
        got = ozaki.matmul(ca, cb, scheme=scheme, slices=slices, engine=engine, out=out)
        assert got is out
        same_bits(expected, got)


@pytest.mark.parametrize("k", [4096, 2**14, 2**20, 2**22 + 70])
def test_fp16_digits(k):
    """Sums that fill the accumulator: but for the last columns, all digits are about as large as they can be."""
    radix = 2 ** fp16_digit_bits(k)
    largest = radix // 2 - 1
    a = np.full((8, k), -(largest - 1 + largest / (radix - 1)) / radix)  # digits 1 - largest, -largest, -largest, ...
    b = a[:6].T.copy()
    b[:, 2:] = np.random.default_rng(k).standard_normal((k, 4))
    expected = ozaki.matmul(a, b, scheme="fp16-digits", slices=3)
    got, report = ozaki.matmul(cp.asarray(a), cp.asarray(b), scheme="fp16-digits", slices=3, return_report=True)
    same_bits(expected, got)
    assert report.scheme.startswith("fp16-digits") and "FP16" in report.engine


@pytest.mark.parametrize("seed", range(100))
def test_plans(seed):
    """The plan that the data leads to, and its bound, are the same on both."""
    rng = np.random.default_rng(5000 + seed)
    m, k, n = (int(v) for v in rng.integers(1, 1500 if seed % 3 else 100, 3))
    spread = int(rng.choice([0, 0, 2, 10, 30]))
    dtype = rng.choice(["f4", "f8"])
    a, b = random_matrix(rng, (m, k), dtype, spread), random_matrix(rng, (k, n), dtype, spread)
    accuracy = [None, "fp64", "fp32", 80, 1e-9, ozaki.Accuracy("row-column", 1e-14), ozaki.Accuracy("normwise", 1e-20)]
    options = {"accuracy": accuracy[seed % len(accuracy)], "reproducible": True}
    expected, x = ozaki.matmul(a, b, return_report=True, **options)
    out = cp.full(expected.shape, np.nan, expected.dtype)
    got, y = ozaki.matmul(cp.asarray(a), cp.asarray(b), out=out, return_report=True, **options)
    assert (x.scheme, x.slices, x.bound, x.measure) == (y.scheme, y.slices, y.bound, y.measure)
    same_bits(expected, got)


def test_panels_prepared_and_streams():
    rng = np.random.default_rng(7)
    a, b = rng.standard_normal((700, 900)), rng.standard_normal((900, 333))
    ca, cb = cp.asarray(a), cp.asarray(b)
    choices = [(s, n, engine) for s, n in (("residues", 14), ("digits", 6)) for engine in engines(s, n, 900)]
    for scheme, slices, engine in choices:
        expected = ozaki.matmul(a, b, scheme=scheme, slices=slices)
        options = {"scheme": scheme, "slices": slices, "engine": engine}
        fixed = 91 * 10**6 if (scheme, engine) == ("digits", "hopper") else 0  # scratch of each multiprocessor
        for limit in (fixed + 5 * 10**7, fixed + 2 * 10**7, fixed + 13 * 10**6):
            c, report = ozaki.matmul(ca, cb, workspace_limit=limit, return_report=True, **options)
            assert report.workspace_bytes <= limit
            same_bits(expected, c)
        plan = ozaki.plan((700, 900), (900, 333), dtype="float64", **options)
        left, right = ozaki.prepare(ca, "left", plan), ozaki.prepare(cb, "right", plan)
        same_bits(expected, ozaki.matmul(left, cb, plan=plan))
        same_bits(expected, ozaki.matmul(ca, right, plan=plan))
        same_bits(expected, ozaki.matmul(left, right, plan=plan))
        with cp.cuda.Stream(non_blocking=True) as stream:
            c = ozaki.matmul(ca, cb, **options)
        stream.synchronize()
        same_bits(expected, c)
        wide = cp.full((700, 666), cp.nan)
        ozaki.matmul(ca, cb, out=wide[:, ::2], **options)
        same_bits(expected, wide[:, ::2])
        assert bool(cp.isnan(wide[:, 1::2]).all())


@pytest.mark.parametrize(
    ("scheme", "slices", "dtype", "m"),
    [("residues", 14, "f8", 700), ("digits", 3, "f4", 8000), ("halfhalf", None, "f4", 700)],
)
def test_limits(scheme, slices, dtype, m):
    """With room for the whole product, which is done again from the tape, and for panels, which are not."""
    rng = cp.random.default_rng(17)
    a, b = (rng.standard_normal(shape, dtype=dtype) for shape in ((m, 900), (900, m - 70)))
    options = {"scheme": scheme, "slices": slices}
    expected, whole = ozaki.matmul(a, b, return_report=True, **options)
    for limit in (10**10, whole.workspace_bytes * 4 // 5, whole.workspace_bytes // 2):
        _, report = ozaki.matmul(a, b, workspace_limit=limit, return_report=True, **options)
        assert report.workspace_bytes <= limit
        assert report.engine == whole.engine or limit == whole.workspace_bytes // 2
        for times in (1, 2, 4):
            c = ozaki.matmul(a, times * b, workspace_limit=limit, **options)
            assert bool((c == times * expected).all())


@pytest.mark.parametrize("seed", range(30))
def test_winograd(seed, monkeypatch):
    """Halves of every size: even, odd, and empty ones."""
    from ozaki.backends import _again, _winograd

    if cp.cuda.Device().compute_capability != "90":
        pytest.skip("an engine for Hopper")
    monkeypatch.setattr(_winograd, "_FROM", 0)
    _again.forget()
    rng = np.random.default_rng(3000 + seed)
    m, k, n = (int(v) for v in rng.integers(1, (1500, 1500, 900)))
    slices, dtype = ((7, "f4"), (14, "f8"), (20, "f8"), (int(rng.integers(8, 20)), "f8"))[seed % 4]
    spread = int(rng.choice([0, 5, 60]))
    a, b = (random_matrix(rng, x, dtype, spread if dtype == "f8" else min(spread, 20)) for x in ((m, k), (k, n)))
    if seed % 5 == 0:
        a[-1, -1], b[0, -1] = np.nan, np.inf
    (a, ca), (b, cb) = views(rng, a), views(rng, b)
    k = min(a.shape[1], b.shape[0])
    a, ca, b, cb = a[:, :k], ca[:, :k], b[:k], cb[:k]
    options = {"scheme": "residues", "slices": slices, "engine": "hopper"}
    expected = ozaki.matmul(a, b, scheme="residues", slices=slices)
    for again in range(3):  # recorded the second time, and done again
        out = cp.full(expected.shape, cp.nan, expected.dtype)
        if again:
            ozaki.matmul(ca, cb, out=out, **options)
        else:
            _, report = ozaki.matmul(ca, cb, out=out, return_report=True, **options)
            assert "Winograd" in report.engine
        same_bits(expected, out)
    plan = ozaki.plan(a.shape, b.shape, dtype=str(expected.dtype), **options)
    left, right = ozaki.prepare(ca, "left", plan), ozaki.prepare(cb, "right", plan)
    same_bits(expected, ozaki.matmul(left, cb, plan=plan))
    same_bits(expected, ozaki.matmul(ca, right, plan=plan))
    with pytest.raises(ValueError, match="prepared for another plan"):
        ozaki.matmul(left, cp.stack([cb, cb]), plan=replace(plan, batch=(2,)))


@pytest.mark.parametrize(("slices", "dtype"), [(14, "f8"), (7, "f4")])
def test_winograd_at_full_size(slices, dtype):
    """As cuBLAS, to the bit, at the least size that takes it and above."""
    if cp.cuda.Device().compute_capability != "90":
        pytest.skip("an engine for Hopper")
    for m, k, n in ((10240, 10240, 10240), (10001, 10321, 10451)):
        a, b = (cp.random.standard_normal(shape, dtype=dtype) for shape in ((m, k), (k, n)))
        out = cp.full((m, n), cp.nan, dtype)
        options = {"scheme": "residues", "slices": slices, "return_report": True}
        _, report = ozaki.matmul(a, b, out=out, workspace_limit=10**11, **options)  # which has room for it
        assert "Winograd" in report.engine and report.workspace_bytes <= 10**11
        assert "Winograd" in ozaki.matmul(a, b, **options)[1].engine
        expected = ozaki.matmul(a, b, scheme="residues", slices=slices, engine="cublas")
        assert bool((out == expected).all())


def test_subnormal_and_huge_results():
    rng = np.random.default_rng(8)
    for scale_a, scale_b in ((-530, -530), (-1000, -70), (500, 520), (-1074, 100)):
        a = np.ldexp(rng.standard_normal((40, 60)), scale_a + rng.integers(-8, 8, (40, 60)))
        b = np.ldexp(rng.standard_normal((60, 50)), scale_b + rng.integers(-8, 8, (60, 50)))
        for dtype in ("f8", "f4"):
            x, y = a.astype(dtype), b.astype(dtype)
            if dtype == "f4":
                x, y = (
                    np.ldexp(rng.standard_normal(v.shape), -70 - rng.integers(0, 70, v.shape)).astype("f4")
                    for v in (x, y)
                )
            for scheme, slices in (("residues", 14), ("digits", 3), ("digits", 7), ("digits7", 7)):
                expected = ozaki.matmul(x, y, scheme=scheme, slices=slices)
                for engine in engines(scheme, slices, 60):
                    options = {"scheme": scheme, "slices": slices, "engine": engine}
                    same_bits(expected, ozaki.matmul(cp.asarray(x), cp.asarray(y), **options))


@pytest.mark.parametrize(
    "shape", [(1, 2000, 5000, 1500), (3, 1025, 1400, 777), (1, 400, 12000, 190), (70, 500, 300, 190)]
)
@pytest.mark.parametrize(("slices", "dtype"), [(2, "f4"), (3, "f4"), (4, "f8"), (7, "f8")])
def test_digits_split_along_k(shape, slices, dtype):
    """As many tiles as make some clusters share the last ones."""
    batch, m, k, n = shape
    rng = np.random.default_rng(sum(shape))
    a, b = rng.standard_normal((batch, m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
    ca, cb = cp.asarray(a), cp.asarray(b)
    for engine in engines("digits", slices, k):
        out = cp.full((batch, m, n), cp.nan, dtype)
        ozaki.matmul(ca, cb, scheme="digits", slices=slices, engine=engine, out=out)
        rows = rng.integers(0, m, 12)
        same_bits(ozaki.matmul(a[:, rows], b, scheme="digits", slices=slices), out[:, rows])


@pytest.mark.parametrize(("scheme", "slices"), [("residues", 14), ("digits", 3), ("digits", 7)])
def test_graph_of_a_product(scheme, slices):
    """A product of a given count is captured once and replayed with other data in the same arrays."""
    if cp.cuda.Device().compute_capability != "90":
        pytest.skip("CuPy lets no graph capture cuBLAS")
    rng = np.random.default_rng(9)
    first, second = ([rng.standard_normal(shape) for shape in ((600, 700), (700, 500))] for _ in range(2))
    second[0][3, 4] = np.nan
    a, b = (cp.asarray(x) for x in first)
    c = cp.full((600, 500), cp.nan)
    options = {"scheme": scheme, "slices": slices, "engine": "hopper", "out": c}
    pool = cp.cuda.MemoryPool()
    with cp.cuda.Stream(non_blocking=True) as stream, cp.cuda.using_allocator(pool.malloc):
        ozaki.matmul(a, b, **options)  # compiles the kernels and fills the pool
        stream.begin_capture()
        ozaki.matmul(a, b, **options)
        graph = stream.end_capture()
    for operands in (first, second, first):
        a.set(operands[0])
        b.set(operands[1])
        c.fill(cp.nan)
        cp.random.standard_normal((4000, 4000))  # would overwrite memory that the graph does not own
        cp.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        same_bits(ozaki.matmul(*operands, scheme=scheme, slices=slices), c)


@pytest.mark.parametrize(
    ("scheme", "slices", "dtype"), [("residues", 14, "f8"), ("digits", 3, "f4"), ("digits", 7, "f8")]
)
def test_a_product_again(scheme, slices, dtype):
    """What is done again is done with the arrays of this call, on its stream."""
    rng = np.random.default_rng(11)
    pairs = [[rng.standard_normal((700, 700)).astype(dtype) for _ in range(2)] for _ in range(3)]
    pairs[1][0][5, 7] = np.inf
    options = {"scheme": scheme, "slices": slices}
    expected = [ozaki.matmul(a, b, **options) for a, b in pairs]
    squares = [ozaki.matmul(a, a, **options) for a, _ in pairs]
    outs = []
    for stream in (cp.cuda.Stream.null, cp.cuda.Stream(non_blocking=True)):
        for (a, b), c, square in zip(pairs, expected, squares, strict=True):
            with stream:
                x, y = cp.asarray(a), cp.asarray(b)
                out = cp.full(c.shape, cp.nan, dtype)
                outs += [
                    (square, ozaki.matmul(x, x, **options)),
                    (c, ozaki.matmul(x, y, out=out, **options)),
                    (c, ozaki.matmul(x, y, **options)),
                    (square, ozaki.matmul(x, x.copy(), **options)),
                    (c, ozaki.matmul(x, cp.asfortranarray(y), **options)),
                ]
            stream.synchronize()
    for c, got in outs:
        same_bits(c, got)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_a_planned_product_again(dtype):
    """What a plan from data ran is done again while the data ask for the same, on any stream; else planned anew."""
    rng = np.random.default_rng(12)
    lefts = [rng.standard_normal((700, 1500)).astype(dtype) for _ in range(4)]
    peaks, whole = lefts[0].copy(), rng.integers(-3, 4, (700, 1500)).astype(dtype)
    peaks[:, 5] *= 2.0**40 if dtype == "f8" else 2.0**12
    b = rng.standard_normal((1500, 600)).astype(dtype)
    steep, sparse = abs(lefts[0]) ** 1.5, lefts[1] * (rng.random((700, 1500)) < 0.1)
    heavy = np.exp(3 * lefts[2])
    lefts[3][4, 5] = np.nan
    options = {"accuracy": "fp64" if dtype == "f8" else "fp32", "reproducible": True}
    outs = []
    for stream in (cp.cuda.Stream.null, cp.cuda.Stream(non_blocking=True)):
        others = steep, *[sparse] * 4, steep, *[heavy] * 4
        for a in (lefts[0], lefts[1], peaks, lefts[2], whole, lefts[0], lefts[3], *others):
            with stream:
                out = cp.full((700, 600), cp.nan, dtype)
                given = cp.asarray(a), cp.asarray(b)
                outs += [(a, ozaki.matmul(*given, out=out, **options)), (a, ozaki.matmul(*given, **options))]
        stream.synchronize()
    expected = {id(a): ozaki.matmul(a, b, **options) for a in (*lefts, peaks, whole, steep, sparse, heavy)}
    for a, got in outs:
        same_bits(expected[id(a)], got)


def test_a_proof_by_cublas_again(monkeypatch):
    """Its product is done again on the stream where the proof waits for it."""
    from cupy.cuda import cublas

    from ozaki.backends._beside import beside

    gemm, handle, used = cublas.gemmEx, cp.cuda.device.get_cublas_handle(), []

    def noting(*arguments):
        gemm(*arguments)
        used.append(cublas.getStream(handle))

    monkeypatch.setattr(cublas, "gemmEx", noting)
    rng = np.random.default_rng(13)
    a, b = cp.asarray(rng.standard_normal((100, 1500))), cp.asarray(rng.standard_normal((1500, 90)))
    options = {"accuracy": "fp64", "scheme": "residues", "engine": "cublas"}
    streams = []
    for _ in range(3):
        used.clear()
        ozaki.matmul(a, b, **options)
        streams.append(list(used))
    assert streams[0] == streams[1] == streams[2]
    assert beside(cp.cuda.runtime.getDevice(), "proof")._stream.ptr in streams[0]


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_gemm(dtype):
    """Factors and addends, subnormals, NaN and Inf, into the addend, into what overlaps it, and apart."""
    rng = np.random.default_rng(14)
    least = -140 if dtype == "f4" else -1060
    for m, k, n, alpha, beta in (
        *((300, 500, 260, *pair) for pair in ((1, 0), (-1.5, 0), (0, 2), (1 / 3, -0.7), (2.0**least, 2.0**least))),
        *((m, 70, n, 0.3, 1.7) for m, n in ((1, 1), (1, 5000), (5000, 1), (37, 4099))),
    ):
        a, b, wide = (random_matrix(rng, shape, dtype, 9) for shape in ((m, k), (k, n), (m, 2 * n + 1)))
        a[0, 0], b[-1, 0], wide[0, ::3] = np.inf, np.nan, np.inf
        for x, c in ((wide[:, :n].copy(), 0), (wide[:, 1::2], 1), (wide.astype("f4")[:, :n], 0)):
            expected = ozaki.gemm(alpha, a, b, beta, x, scheme="residues", slices=9)
            on_device = cp.asarray(wide)
            given = on_device[:, 1::2] if c else cp.asarray(x)
            outs = [None, cp.full((m, n), np.nan, dtype), cp.full((m, 2 * n), np.nan, dtype)[:, ::2]]
            outs += [on_device[:, :n]] if c else []
            outs += [given] if x.dtype == wide.dtype else []
            for out in outs:
                on_device[...] = cp.asarray(wide)
                got = ozaki.gemm(alpha, cp.asarray(a), cp.asarray(b), beta, given, scheme="residues", slices=9, out=out)
                assert out is None or got is out
                same_bits(np.where(np.isnan(expected), np.nan, expected), cp.where(cp.isnan(got), np.nan, got))


@pytest.mark.parametrize(
    ("dtype", "options"),
    [
        ("f8", {"scheme": "residues", "slices": 14}),
        ("f4", {"scheme": "digits", "slices": 3}),
        ("f4", {"scheme": "halfhalf"}),
        ("f4", {"accuracy": "fp32", "reproducible": True}),
        ("f8", {"accuracy": "fp64", "reproducible": True}),
    ],
)
@pytest.mark.parametrize("size", [300, 1100])
def test_operands_written_right_before(dtype, options, size):
    """Both operands are split side by side, and neither before what the stream has to do first is over."""
    rng = np.random.default_rng(15)
    lefts, rights = cp.asarray(rng.standard_normal((2, 3, size, size)).astype(dtype))
    expected = {}
    for i, j in product(range(3), repeat=2):
        cp.cuda.Device().synchronize()
        expected[i, j] = ozaki.matmul(lefts[i], rights[j], **options).get()
    a, b, later = cp.empty_like(lefts[0]), cp.empty_like(rights[0]), []
    for _ in range(5):
        for i, j in expected:
            cp.add(lefts[i], 0, out=a)
            cp.add(rights[j], 0, out=b)
            later.append((expected[i, j], ozaki.matmul(a, b, **options)))
    for want, got in later:
        same_bits(want, got)


def test_threads():
    """Kernels are launched from threads that CUDA has not seen before, at the same time."""
    rng = np.random.default_rng(10)
    operands = [(rng.standard_normal((300, 300)), rng.standard_normal((300, 300))) for _ in range(4)]
    on_device = [tuple(cp.asarray(x) for x in pair) for pair in operands]
    ozaki.matmul(*on_device[0], scheme="residues", slices=14)
    cp.cuda.Device().synchronize()

    def product(i):
        for _ in range(50):
            c = ozaki.matmul(*on_device[i], scheme="residues", slices=14)
        return c.get()

    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(product, range(4)))
    for pair, result in zip(operands, results, strict=True):
        same_bits(ozaki.matmul(*pair, scheme="residues", slices=14), result)


@pytest.mark.parametrize(
    "shape",
    [
        *[(3, 40, 2000, 50), (1, 2500, 1500, 300), (2, 130, 300, 129)],
        *[(1, 2048, 2048, 2048), (2, 2100, 1300, 2050), (1, 256, 132000, 257)],  # more tiles than clusters; saturated
    ],
)
def test_proof(shape):
    """The worst ratio of a batch, some of whose entries have no lower bound."""
    from ozaki.backends import _cupy

    batch, m, k, n = shape
    rng = np.random.default_rng(sum(shape))
    a, b = random_matrix(rng, (batch, m, k), "f8", 3), random_matrix(rng, (n, k), "f8", 3)
    a[0, : m // 2, : k // 2] = 0
    b[: n // 2, k // 2 :] = 0
    a[0, m - 1, ::2] *= 2.0**-60
    b[n - 1, 1::2] *= 2.0**-60
    host = [_numpy.describe(x) for x in (a, b[None])]
    device = [_cupy.describe(x) for x in (cp.asarray(a), cp.asarray(b.T.copy()).T[None])]
    for level in ("sampled", "narrow", "wide"):
        lower = [
            of.wide_product(*d) if level == "wide" else of.narrow_product(*d, level == "sampled")
            for of, d in ((_numpy, host), (_cupy, device))
        ]
        for scheme in (Residues(14), Digits(7), Residues(8), Digits(30)):
            for rows in (m, m // 2, min(m, 128)):
                found = (
                    module.worst_ratios(x, *d, [(scheme, rows)])[0]()
                    for module, x, d in ((_numpy, lower[0], host), (_cupy, lower[1], device))
                )
                assert next(found) == next(found)
        wanted = (Residues(14), m), (Digits(7), min(m, 128)), (Digits(30), m // 2)  # two of them by one launch
        for some in (wanted[:2], wanted):
            found = (
                [look() for look in module.worst_ratios(x, *d, some)]
                for module, x, d in ((_numpy, lower[0], host), (_cupy, lower[1], device))
            )
            assert next(found) == next(found)
    assert np.isinf(lower[0]).any() and ((lower[0] > 0) & (lower[0] < 1)).any()
    np.testing.assert_array_equal(lower[0], lower[1].values[:, :m, :n].get())


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_magnitudes(dtype):
    """Rows and columns; subnormals, the widest exponents, NaN and Inf."""
    from ozaki.backends import _cupy, _magnitudes, _numpy_proof

    def view(x, kind):
        turned = x.swapaxes(1, 2).copy().swapaxes(1, 2)
        return (x, turned, x[..., ::-1])[kind]

    rng = np.random.default_rng(13)
    a, b = random_matrix(rng, (2, 300, 1500), dtype, 20), random_matrix(rng, (1, 270, 1500), dtype, 20)
    for x in (a, b):
        largest = np.finfo(dtype).maxexp - 1
        x[0, 0], x[0, 1] = 0, np.finfo(dtype).smallest_subnormal * rng.integers(-9, 10, 1500)
        x[0, 2], x[0, 3, 5:8] = np.ldexp(x[0, 2] / abs(x[0, 2]).max(), largest), (np.nan, np.inf, -np.inf)
    for kinds in product((0, 1, 2), repeat=2):
        device = [_cupy.describe(view(cp.asarray(x), kind)) for x, kind in zip((a, b), kinds, strict=True)]
        for bits, sampled, k in ((7, False, 1536), (7, True, 384), (21, False, 1536)):
            found = _magnitudes.magnitudes(*device, _magnitudes.Layout((304, 272), k, sampled, bits=bits))
            for x, kind, got in zip((a, b), kinds, found[:2], strict=True):
                want = _numpy_proof._magnitudes(_numpy.describe(view(x, kind)), bits, sampled)
                np.testing.assert_array_equal(want, got[:, : want.shape[1], : want.shape[2]].get())
                assert not got[:, want.shape[1] :].any() and not got[..., want.shape[2] :].any()


@pytest.mark.parametrize(
    ("n", "dtype", "wide", "chosen"),
    [(512, "f4", False, "native"), (1024, "f4", False, "native"), (2048, "f4", False, "halfhalf"),
     (2048, "f4", True, "halfhalf"), (5120, "f4", False, "digits"), (5120, "f4", True, "halfhalf"),
     (512, "f8", False, "native"), (1024, "f8", False, "native"), (2048, "f8", False, "residues"),
     (4096, "f8", False, "residues")],
)  # fmt: skip
def test_what_runs_where_nothing_is_named(n, dtype, wide, chosen):
    if cp.cuda.Device().compute_capability != "90":
        pytest.skip("the rates are those of Hopper")
    a, b = (cp.random.standard_normal((n, n), dtype=dtype) for _ in range(2))
    if wide:
        a, b = cp.exp(a), cp.exp(b)
    plan = ozaki.plan(a, b)
    assert (plan.scheme.name if plan.scheme else "native") == chosen
    if n <= 2048:
        c, report = ozaki.matmul(a, b, return_report=True)
        assert (report.scheme, report.native) == (chosen, chosen == "native")
        assert not ozaki.matmul(a, b, return_report=True, reproducible=True)[1].native
        assert reference.componentwise_error(c[:3, :20].get(), a[:3].get(), b[:, :20].get()) <= report.bound


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("k", [0, 1, 2])
def test_few_inner_indices_and_nothing_named(k, dtype):
    rng = np.random.default_rng(k)
    a, b = (random_matrix(rng, shape, dtype, 3) for shape in ((70, k), (k, 50)))
    c, report = ozaki.matmul(cp.asarray(a), cp.asarray(b), return_report=True)
    assert report.native
    assert reference.componentwise_error(c.get(), a, b) <= report.bound


def test_operands_on_both_sides_of_the_bus():
    with pytest.raises(TypeError, match="b: not a CuPy array"):
        ozaki.matmul(cp.ones((2, 2)), np.ones((2, 2)))


def test_a_priori_plan_does_not_wait():
    """Launching returns long before the device is done."""
    a = cp.random.standard_normal((4096, 4096))
    plan = ozaki.plan(a.shape, a.shape, dtype="float64", scheme="residues", slices=14)
    ozaki.matmul(a, a, plan=plan)
    cp.cuda.Device().synchronize()
    for _ in range(20):
        ozaki.matmul(a, a, plan=plan)
    assert not cp.cuda.get_current_stream().done
    cp.cuda.Device().synchronize()


def test_halves_of_the_cache_are_the_same_each_time():
    """And which cluster has which tile changes no result."""
    from ozaki.backends import _halves, _hopper

    if cp.cuda.Device().compute_capability != "90":
        pytest.skip("clusters are those of Hopper")
    halves, *others = [_halves.second_half(_halves._latencies()) for _ in range(3)]
    assert halves is None or 0 < len(halves) < cp.cuda.Device().attributes["MultiProcessorCount"]
    assert others == [halves, halves]
    rng = np.random.default_rng(10)
    for i, second in enumerate((None, halves, frozenset(range(0, 256, 3)), frozenset(range(256)))):
        k = 300 + 100 * i  # else done again as the first time
        a, b = rng.standard_normal((2100, k)), rng.standard_normal((k, 4100))
        out = cp.full((2100, 4100), np.nan)
        placed = {cp.cuda.runtime.getDevice(): _halves.Places(second)}
        with patch.dict(_halves._found, placed), patch.object(_hopper, "_LARGE", 0):
            for _ in range(2):
                out.fill(np.nan)
                ozaki.matmul(cp.asarray(a), cp.asarray(b), scheme="residues", slices=14, out=out)
                same_bits(ozaki.matmul(a, b, scheme="residues", slices=14), out)
