"""Repeated calls, on other streams, in graphs and by threads, have the bits of NumPy."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import product

import numpy as np
import pytest

import ozaki
from operands import same_bits

cp = pytest.importorskip("cupy")
pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(
    ("scheme", "slices", "dtype"), [("residues", 14, "f8"), ("digits", 3, "f4"), ("digits", 7, "f8")]
)
def test_repeated_products(scheme, slices, dtype):
    """A kept program runs with the arrays of each repeated call, on the current stream of that call."""
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


@pytest.mark.parametrize("options", [{"scheme": "residues", "slices": 14}, {"scheme": "native"}])
def test_repeated_by_threads_that_come_and_go(options):
    """A new thread may have the identifier of one that has ended, and no CUDA context yet."""
    rng = np.random.default_rng(12)
    a, b = rng.standard_normal((200, 300)), rng.standard_normal((300, 100))
    x, y, expected = cp.asarray(a), cp.asarray(b), ozaki.matmul(a, b, scheme="residues", slices=14)
    for _ in range(4):
        with ThreadPoolExecutor(1) as thread:
            got = thread.submit(ozaki.matmul, x, y, **options).result()
        cp.cuda.Device().synchronize()
        np.testing.assert_allclose(cp.asnumpy(got), expected, atol=1e-12)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_repeated_products_planned_from_data(dtype):
    """The program of a plan from data serves calls on any stream whose data ask for that plan; others plan anew."""
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


def test_repeated_proofs_by_cublas(monkeypatch):
    """cuBLAS multiplies magnitudes on the stream of proofs in each call, not on the stream of the call."""
    from cupy.cuda import cublas

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
    assert set(streams[0]) - {cp.cuda.get_current_stream().ptr}


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
    options = {"scheme": scheme, "slices": slices, "engine": "fused", "out": c}
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
    """Neither operand is split before the work that the current stream had at the call is done."""
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
    """Kernels are launched at the same time from several threads without a CUDA context."""
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


def test_a_priori_plan_does_not_wait():
    """A product of a plan without data returns long before the device is done."""
    a = cp.random.standard_normal((4096, 4096))
    plan = ozaki.plan(a.shape, a.shape, dtype="float64", scheme="residues", slices=14)
    ozaki.matmul(a, a, plan=plan)
    cp.cuda.Device().synchronize()
    for _ in range(20):
        ozaki.matmul(a, a, plan=plan)
    assert not cp.cuda.get_current_stream().done
    cp.cuda.Device().synchronize()
