"""NumPy and CuPy give the same bits: products of all schemes and shapes, by every engine."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from operands import engines, random_matrix, same_bits, views

import ozaki
from ozaki.schemes.digits import fp16_digit_bits

cp = pytest.importorskip("cupy")
pytestmark = pytest.mark.gpu


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


def test_subnormal_and_huge_results():
    rng = np.random.default_rng(8)
    for scale_a, scale_b in ((-530, -530), (-1000, -70), (500, 520), (-1074, 100)):
        a = np.ldexp(rng.standard_normal((40, 60)), scale_a + rng.integers(-8, 8, (40, 60)))
        b = np.ldexp(rng.standard_normal((60, 50)), scale_b + rng.integers(-8, 8, (60, 50)))
        for dtype in ("f8", "f4"):
            x, y = a, b
            if dtype == "f4":
                x, y = (
                    np.ldexp(rng.standard_normal(v.shape), -70 - rng.integers(0, 70, v.shape)).astype("f4")
                    for v in (a, b)
                )
            for scheme, slices in (("residues", 14), ("digits", 3), ("digits", 7), ("digits7", 7)):
                expected = ozaki.matmul(x, y, scheme=scheme, slices=slices)
                for engine in engines(scheme, slices, 60):
                    options = {"scheme": scheme, "slices": slices, "engine": engine}
                    same_bits(expected, ozaki.matmul(cp.asarray(x), cp.asarray(y), **options))


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


@pytest.mark.parametrize("options", [{"scheme": "residues", "slices": 5}, {"accuracy": "fp32", "reproducible": True}])
def test_more_matrices_than_a_grid_has_layers(options):
    rng = np.random.default_rng(4)
    a, b = (rng.standard_normal(shape, dtype="f4") for shape in ((70001, 2, 3), (70001, 3, 2)))
    expected = ozaki.matmul(a, b, **options)
    for engine in ("auto", "cublas"):
        same_bits(expected, ozaki.matmul(cp.asarray(a), cp.asarray(b), engine=engine, **options))


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


@pytest.mark.parametrize(
    ("scheme", "slices", "dtype"),
    [("residues", 14, "f8"), ("digits", 3, "f4"), ("digits", 7, "f8"), ("halfhalf", None, "f4")],
)
def test_tiles_begun_together(scheme, slices, dtype):
    """A long k and many tiles; another stream keeps multiprocessors busy, so that not all clusters come."""
    rng = cp.random.default_rng(9)
    a, b = rng.standard_normal((3000, 8300), dtype=dtype), rng.standard_normal((8300, 4700), dtype=dtype)
    c = ozaki.matmul(a, b, scheme=scheme, slices=slices)
    same_bits(ozaki.matmul(a[-9:].get(), b[:, -40:].get(), scheme=scheme, slices=slices), c[-9:, -40:])
    busy = cp.cuda.Stream(non_blocking=True)
    for _ in range(3):
        with busy:
            cp.sort(cp.arange(2**24)[::-1])
        repeated = ozaki.matmul(a, b, scheme=scheme, slices=slices)
        assert bool((repeated == c).all())


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


def test_halves_of_the_cache_are_the_same_each_time():
    """And which cluster has which tile changes no result."""
    from ozaki.backends.cupy.steps.engines import fused_residues, halves

    if cp.cuda.Device().compute_capability != "90":
        pytest.skip("clusters are those of Hopper")
    found, *others = [halves.second_half(halves._latencies()) for _ in range(3)]
    assert found is None or 0 < len(found) < cp.cuda.Device().attributes["MultiProcessorCount"]
    assert others == [found, found]
    rng = np.random.default_rng(10)
    for i, second in enumerate((None, found, frozenset(range(0, 256, 3)), frozenset(range(256)))):
        k = 300 + 100 * i  # else the program of the first time would run
        a, b = rng.standard_normal((2100, k)), rng.standard_normal((k, 4100))
        out = cp.full((2100, 4100), np.nan)
        placed = {cp.cuda.runtime.getDevice(): halves.Places(second)}
        with patch.dict(halves._found, placed), patch.object(fused_residues, "_LARGE", 0):
            for _ in range(2):
                out.fill(np.nan)
                ozaki.matmul(cp.asarray(a), cp.asarray(b), scheme="residues", slices=14, out=out)
                same_bits(ozaki.matmul(a, b, scheme="residues", slices=14), out)


def test_operands_on_both_sides_of_the_bus():
    with pytest.raises(TypeError, match="b: not a CuPy array"):
        ozaki.matmul(cp.ones((2, 2)), np.ones((2, 2)))


@pytest.mark.parametrize("shape", [(0, 5, 3), (4, 5, 0), (0, 0, 0), (3, 0, 4), (0, 10000, 3), (0, 1, 3)])
def test_empty_products(shape):
    m, k, n = shape
    for dtype in ("f4", "f8"):
        a, b = np.zeros((m, k), dtype), np.zeros((k, n), dtype)
        x, y = cp.asarray(a), cp.asarray(b)
        for options in ({}, {"accuracy": "fp32"}, {"reproducible": True}, {"scheme": "digits", "slices": 3}):
            same_bits(a @ b, ozaki.matmul(x, y, **options))
            same_bits(a @ b, ozaki.matmul(x, y, return_report=True, **options)[0])
        for scheme in ("residues", "digits"):
            plan = ozaki.plan(a.shape, b.shape, dtype=a.dtype.name, scheme=scheme, slices=7)
            same_bits(a @ b, ozaki.matmul(ozaki.prepare(x, "left", plan), ozaki.prepare(y, "right", plan), plan=plan))
