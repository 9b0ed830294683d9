"""NumPy and CuPy prove and plan the same; what runs where no accuracy is named."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import ozaki
from operands import random_matrix, same_bits
from ozaki import reference
from ozaki.backends.numpy import _overlap, _proof
from ozaki.backends.numpy._describe import describe
from ozaki.bounds.levels import EVERY, SAMPLE, bits_of, levels
from ozaki.planning.facts import LeastProduct, Ratio
from ozaki.schemes import Digits, Residues

cp = pytest.importorskip("cupy")
pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("seed", range(100))
def test_plans(seed):
    """A plan from data, its bound and the bits of its product are those of NumPy.

    Where undecided entries are computed apart, so that every entry is the nearest float, each machine takes the count
    of residues that costs it least.
    """
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
    assert (x.scheme, x.bound, x.measure) == (y.scheme, y.bound, y.measure)
    assert (x.undecided is None) == (y.undecided is None)
    assert x.slices == y.slices or x.undecided is not None
    same_bits(expected, got)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_the_record_of_a_model_plans_as_the_device_does(dtype):
    """What `ozaki plan --gpu` says of a model is what the device of that model runs."""
    from ozaki._cli.planning import of_shapes
    from ozaki.backends.cupy import backend
    from ozaki.backends.cupy.device_planner import DevicePlanner
    from ozaki.backends.cupy.devices.models import MODELS

    here = cp.cuda.runtime.getDeviceProperties(0)["name"].decode()
    model = next((name for name in MODELS if name.upper() in here), None)
    if model is None:
        pytest.skip(f"nothing is recorded of {here}")
    for n in (64, 512, 1024, 4096, 8192):
        for accuracy in (None, "fp64", 80):
            options = {"accuracy": accuracy, "dtype": dtype}
            real, recorded = (
                of_shapes((n, n), (n, n), options, "gpu", one) for one in (backend, DevicePlanner(MODELS[model]))
            )
            assert real.plan.scheme == recorded.plan.scheme, (n, accuracy)
            assert real.engine.rpartition(", ")[2] == recorded.engine.rpartition(", ")[2] or real.plan.native
            assert real.seconds == pytest.approx(recorded.seconds, rel=0.1)


@pytest.mark.parametrize(
    "shape",
    [
        *[(3, 40, 2000, 50), (1, 2500, 1500, 300), (2, 130, 300, 129)],
        *[(1, 2048, 2048, 2048), (2, 2100, 1300, 2050), (1, 256, 132000, 257)],  # more tiles than clusters; saturated
    ],
)
def test_proof(shape):
    """The worst ratio of a batch, some of whose entries have no lower bound."""
    from built import Steps
    from ozaki.backends.cupy.steps.proof import Wanted, lower_bound, worst_ratios

    batch, m, k, n = shape
    rng = np.random.default_rng(sum(shape))
    a, b = random_matrix(rng, (batch, m, k), "f8", 3), random_matrix(rng, (n, k), "f8", 3)
    a[0, : m // 2, : k // 2] = 0
    b[: n // 2, k // 2 :] = 0
    a[0, m - 1, ::2] *= 2.0**-60
    b[n - 1, 1::2] *= 2.0**-60
    host = [describe(x) for x in (a, b[None])]
    spans, least_span = tuple(x.span for x in host), min(x.spans[1] for x in host)
    steps = Steps()
    device = steps.described(cp.asarray(a), cp.asarray(b.T.copy()).T[None])

    def found(lower, *wanted):
        some = [Wanted(scheme, rows, scheme.dropped(k, spans)) for scheme, rows in wanted]
        return [*map(steps.evidence, worst_ratios(steps.b, steps.device, lower, *device, some))]

    for level in ("sampled", "narrow", "wide"):
        expected, lower = _proof.lower_bound(*host, level), lower_bound(steps.b, steps.device, *device, level)

        def ratio(scheme, rows):
            return Ratio(_proof.worst_ratio(expected, *host, spans, scheme, rows), spans, least_span)  # noqa: B023

        for scheme, rows in product((Residues(14), Digits(7), Residues(8), Digits(30)), (m, m // 2, min(m, 128))):
            assert found(lower, (scheme, rows)) == [ratio(scheme, rows)]
        wanted = (Residues(14), m), (Digits(7), min(m, 128)), (Digits(30), m // 2)  # one launch finds two ratios
        for some in (wanted[:2], wanted):
            assert found(lower, *some) == [ratio(*each) for each in some]
        if level != "wide":
            lower.release(steps.b)
    assert np.isinf(expected).any() and ((expected > 0) & (expected < 1)).any()
    np.testing.assert_array_equal(expected, steps.real(lower.products)[:, :m, :n].get())


@pytest.mark.parametrize(
    "shape",
    [(1, 3, 300, 2), (1, 70, 1500, 60), (2, 700, 300, 260), (1, 2500, 3000, 300), (1, 256, 132000, 257)],
)
def test_least_product(shape):
    """The least product of rows that are not all zeros, from whole descriptions and from largest elements alone."""
    from built import Steps, work_of
    from ozaki.backends.cupy.steps.describing import describe as describe_whole
    from ozaki.backends.cupy.steps.describing import find_largest
    from ozaki.backends.cupy.steps.proof import least_product, lower_bound

    batch, m, k, n = shape
    rng = np.random.default_rng(sum(shape))
    for kind in ("ordinary", "apart", "zeros"):
        a, b = rng.random((batch, m, k), "f4"), rng.random((n, k), "f4")
        a[0, 1], a[-1, 2, k - 1], b[0, 1] = 0, np.nan, np.inf
        if kind == "apart":
            a[-1, m - 1, 32:], b[n - 1, :32] = 0, 0
        if kind == "zeros":
            b[:] = 0
        host = describe(a), describe(b[None])
        expected = _proof.least_product(_proof.lower_bound(*host, levels(k)[0]), *host)
        assert (expected == 0, np.isinf(expected)) == (kind == "apart", kind == "zeros")
        x, y = cp.asarray(a), cp.asarray(b.T.copy()).T
        for find in (describe_whole, find_largest):
            steps = Steps()
            sides = [find(steps.b, of) for of in steps.given(x, y[None])]
            lower = lower_bound(steps.b, steps.device, *sides, levels(k)[0])
            assert steps.evidence(least_product(steps.b, steps.device, lower, *sides)) == expected
        if batch == 1:
            assert work_of(x[0], y.T).measure(LeastProduct()) == expected


@pytest.mark.parametrize("seed", range(24))
def test_overlap(seed):
    """`Overlap`, sampled in both operands: of few and many rows, inner indices and matrices."""
    from built import Steps
    from ozaki.backends.cupy.steps.overlap import overlap as on_device

    rng = np.random.default_rng(6000 + seed)
    m, k, n = (int(v) for v in rng.integers(1, (40, 400, 40) if seed % 3 else (600, 9000, 600)))
    batches = ((1, 1), (3, 1), (1, 20), (19, 19))[seed % 4]
    dtypes, spread = rng.choice(["f4", "f8"], 2), int(rng.choice([0, 3, 40]))
    a, b = (random_matrix(rng, (of, rows, k), x, spread) for of, rows, x in zip(batches, (m, n), dtypes, strict=True))
    if seed % 5 == 0:
        a.reshape(-1)[:: a.size // 7 + 1], b[:, 0] = np.nan, 0
    if seed % 7 == 0:
        a[:] = 0
    steps = Steps()
    x, y = cp.asarray(a), cp.asarray(b.swapaxes(1, 2).copy()).swapaxes(1, 2)
    found = steps.evidence(on_device(steps.b, *steps.given(x, y)))
    assert found == _overlap.overlap(describe(a), describe(b))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_magnitudes(dtype):
    """Magnitudes of operands in any memory order; subnormals, numbers near overflow, NaN and Inf."""
    from built import Steps, without_tiles
    from ozaki.backends.cupy import devices
    from ozaki.backends.cupy.steps.magnitudes import magnitudes

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
        steps = Steps(without_tiles(devices.current()))
        described = steps.described(*(view(cp.asarray(x), kind) for x, kind in zip((a, b), kinds, strict=True)))
        for level in ("narrow", "sampled", "wide"):
            found = magnitudes(steps.b, steps.device, *described, level)
            for x, kind, array in zip((a, b), kinds, (found.left, found.right), strict=True):
                inner = np.arange(x.shape[2])
                inner = inner[inner % EVERY < SAMPLE] if level == "sampled" else inner
                want = _proof._magnitudes(describe(view(x, kind)), bits_of(level, 1500), inner, np.float64)
                got = steps.real(array).get()
                np.testing.assert_array_equal(want, got[:, : want.shape[1], : want.shape[2]])
                assert not got[:, want.shape[1] :].any() and not got[..., want.shape[2] :].any()


@pytest.mark.parametrize(
    ("n", "dtype", "data", "chosen"),
    [(512, "f4", "normal", "native"), (1024, "f4", "normal", "halfhalf"), (2048, "f4", "lognormal", "halfhalf"),
     (5120, "f4", "normal", "digits"), (5120, "f4", "lognormal", "halfhalf"), (4096, "f4", "graded", "tf32tf32"),
     (4096, "f4", "features", "halfhalf"), (3000, "f4", "rectified", "halfhalf"),
     (512, "f8", "normal", "native"), (1024, "f8", "normal", "native"), (3072, "f8", "normal", "residues"),
     (4096, "f8", "normal", "residues")],
)  # fmt: skip
def test_what_runs_where_nothing_is_named(n, dtype, data, chosen):
    if cp.cuda.Device().compute_capability != "90":
        pytest.skip("the rates are those of Hopper")
    a, b = (cp.random.standard_normal((n, n), dtype=dtype) for _ in range(2))
    if data == "lognormal":
        a, b = cp.exp(a), cp.exp(b)
    if data == "graded":
        scale = cp.ldexp(cp.ones(n, dtype), cp.random.randint(-16, 17, n))
        a, b = a * scale, b / scale[:, None]
    if data in ("features", "rectified"):  # columns of different units
        a *= cp.ldexp(cp.ones(n, dtype), cp.random.randint(-16, 17, n))
    if data == "rectified":
        a = cp.maximum(a, 0)
    plan = ozaki.plan(a, b)
    assert (plan.scheme.name if plan.scheme else "native") == chosen
    if n <= 4096:
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
