"""Products of words: their bits are those of the tensor core in software, in every layout; and their reports."""

from dataclasses import replace

import numpy as np
import pytest
from cases import assert_same, measured, spread, viewed
from word_schemes import ALL
from words_definition import words_by_definition

import ozaki
from ozaki import reference, tensor_core
from ozaki.schemes import PRESETS

ON_HOPPER = ["halfhalf", "tf32tf32", "two-stage", "single-fp16", "single-bf16", "single-tf32"]
ON_HOPPER += ["double-bf16", "triple-bf16", "fabsum-v1", "fabsum-v2"]
"""Presets that have kernels of their own on Hopper."""

EMULATED = {
    "emulated Ampere": ["halfhalf", "tf32tf32", "two-stage", "markidis", "triple-bf16", "fabsum-v2"],
    "emulated Hopper": ON_HOPPER,
}
"""Presets that are tested on emulated devices, where each one needs kernels built."""


@pytest.fixture(autouse=True)
def model(device):
    """Skip on a device whose tensor cores have no model."""
    try:
        core_of(device)
    except NotImplementedError as error:
        pytest.skip(str(error))


def core_of(device):
    probe = device.full((1, 1), 1, "f4")
    return ozaki.plan(probe, probe, scheme="single-bf16").scheme.core


def here(device, words):
    """The words for the tensor cores of this device; unchanged on NumPy, which models all tensor cores."""
    return words if device.xp is np else replace(words, core=core_of(device))


def skip_unless_emulated(device, name):
    if device.slow and name not in EMULATED[device.name]:
        pytest.skip("its kernels are not built for emulated devices")


def operands(rng, m, k, n, span=3):
    return spread(rng, (m, k), span, "float32"), spread(rng, (k, n), span, "float32")


def same_numbers(expected, got, *about):
    """Assert equal bits, except for the sign of zeros, which the model does not claim."""
    expected, got = (np.where(x == 0, x.dtype.type(0), x) for x in (expected, got))
    assert_same(expected, got, *about)


@pytest.mark.parametrize("name", ALL)
def test_bits_of_the_definition(device, rng, name):
    skip_unless_emulated(device, name)
    words = here(device, ALL[name])
    for k, span in device.some(((1, 0), (16, 3), (70, 8), (40, 60)), 1, rng):
        a, b = operands(rng, 3, k, 4, span)
        c = device.matmul(viewed(rng, a), viewed(rng, b), scheme=words)
        same_numbers(words_by_definition(a, b, words), c, k, span)


@pytest.mark.parametrize("name", ALL)
def test_bits_of_the_model(device, rng, name):
    """The bits of NumPy, which models the tensor core: any layout, NaN; repeated calls; subnormal and huge results."""
    skip_unless_emulated(device, name)
    words = here(device, ALL[name])
    for m, k, n in ((20, 70, 130), (3, 200, 5)):
        for order in ("C", "F", "C"):
            a, b = (np.asarray(x, order=order) for x in operands(rng, m, k, n))
            b[0, 0] = np.nan
            out = device.full((m, n), np.nan, "f4")
            got = device.matmul(a, b, scheme=words, out=out)
            same_numbers(ozaki.matmul(a, b, scheme=words), got, order)
    for far in (-100, 60):
        a, b = (np.ldexp(x, far) for x in operands(rng, 5, 70, 130))
        same_numbers(ozaki.matmul(a, b, scheme=words), device.matmul(a, b, scheme=words), far)
    for _ in range(6 if device.name == "a real device" else 0):
        m, k, n = (int(v) for v in rng.integers(1, (90, 400, 90)))
        a, b = operands(rng, m, k, n, int(rng.choice([0, 3, 10, 30, 60])))
        got = device.matmul(viewed(rng, a), viewed(rng, b), scheme=words)
        same_numbers(ozaki.matmul(a, b, scheme=words), got, m, k, n)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_by_name(device, name):
    skip_unless_emulated(device, name)
    a, b = (device.full(shape, 1, "f4") for shape in ((3, 70), (70, 5)))
    words = here(device, PRESETS[name])
    plan = ozaki.plan(a, b, scheme=name)
    assert plan.scheme == words
    c, report = ozaki.matmul(a, b, scheme=name, return_report=True)
    assert report.scheme == name and f"({name})" in str(report)
    assert_same(device.asnumpy(c), device.asnumpy(ozaki.matmul(a, b, scheme=words)))
    assert_same(device.asnumpy(c), device.asnumpy(ozaki.matmul(a, b, plan=plan)))


@pytest.mark.parametrize("name", ["halfhalf", "tf32tf32", "fabsum-v2"])
def test_stacks(device, rng, name):
    words = here(device, PRESETS[name])
    for left, right in (((3,), (3,)), ((3,), ()), ((), (3,)), ((2, 1), (1, 3))):
        a, b = spread(rng, (*left, 5, 70), 3, "float32"), spread(rng, (*right, 70, 6), 3, "float32")
        c = device.matmul(a, b, scheme=words)
        every_a, every_b = (np.broadcast_to(x, (*c.shape[:-2], *x.shape[-2:])) for x in (a, b))
        for at in np.ndindex(c.shape[:-2]):
            same_numbers(ozaki.matmul(every_a[at], every_b[at], scheme=words), c[at], left, right)


@pytest.mark.parametrize(
    ("left", "right"),
    [((0, 3), (3, 4)), ((2, 0), (0, 4)), ((2, 3), (3, 0)), ((0, 2, 3), (3, 4)), ((3,), (3,)), ((2, 3), (3,))],
)
def test_shapes(device, left, right):
    a, b = np.ones(left, np.float32), np.ones(right, np.float32)
    c, report = device.matmul(a, b, scheme="halfhalf", accuracy=1e-5, return_report=True)
    assert_same(a @ b, c)
    assert report.bound < 1e-5


@pytest.mark.parametrize("name", [*ON_HOPPER, "markidis"])
def test_nan_and_inf(device, rng, name):
    skip_unless_emulated(device, name)
    words = here(device, PRESETS[name])
    a, b = operands(rng, 6, 20, 7, 0)
    clean = device.matmul(a, b, scheme=words)
    a[1, 2], a[2, 3], b[5, 1], b[3, 4], b[2, 4] = np.nan, np.inf, -np.inf, 0, 0
    a[3, 5] = 0
    with np.errstate(invalid="ignore"):
        ieee = a.astype(float) @ b.astype(float)
    c, report = device.matmul(a, b, scheme=words, accuracy=0.1, return_report=True)
    touched = ~np.isfinite(ieee)
    assert touched.any() and report.nonfinite == 3
    np.testing.assert_array_equal(c[touched], ieee[touched].astype(np.float32))
    assert np.isfinite(c[~touched]).all()
    assert_same(clean[[0, 4, 5]][:, [0, 2]], c[[0, 4, 5]][:, [0, 2]])
    same_numbers(ozaki.matmul(a, b, scheme=words), c)


def test_over_and_underflow_of_the_result(device):
    big, tiny = np.full((1, 1), 2.0**100, np.float32), np.full((1, 1), 2.0**-75, np.float32)
    assert device.matmul(big, big, scheme="halfhalf")[0, 0] == np.inf
    assert device.matmul(-big, big, scheme="tf32tf32")[0, 0] == -np.inf
    assert device.matmul(tiny, tiny, scheme="halfhalf")[0, 0] == 0
    subnormal = np.full((1, 1), 2.0**-140, np.float32)
    assert device.matmul(subnormal, np.ones((1, 1), np.float32), scheme="halfhalf")[0, 0] == 2.0**-140


@pytest.mark.parametrize("name", ["halfhalf", "double-fp16", "tf32tf32", "two-stage"])
def test_scaling_covers_the_range_of_float32(device, rng, name):
    """Rows and columns times powers of two change nothing but the exponents of the result."""
    skip_unless_emulated(device, name)
    a, b = operands(rng, 6, 50, 7)
    mu, nu = rng.integers(-60, 60, 6), rng.integers(-50, 50, 7)
    c = device.matmul(a, b, scheme=name)
    far = device.matmul(np.ldexp(a, mu[:, None]), np.ldexp(b, nu), scheme=name)
    assert_same(np.ldexp(c, np.add.outer(mu, nu)), far)
    largest = np.full((2, 3), np.finfo(np.float32).max)
    assert (device.matmul(largest, np.full((3, 2), 2.0**-100, np.float32), scheme=name) > 2.0**28).all()


@pytest.mark.parametrize("name", ON_HOPPER)
def test_subnormal_and_huge_results(device, rng, name):
    skip_unless_emulated(device, name)
    words = here(device, PRESETS[name])
    for left, right in device.some(((-60, -70), (-100, -30), (60, 60), (-140, 100), (-149, 116)), 1, rng):
        a, b = (
            np.ldexp(rng.standard_normal(shape), scale + rng.integers(-8, 8, shape)).astype("f4")
            for shape, scale in (((40, 70), left), ((70, 50), right))
        )
        with np.errstate(over="ignore"):
            expected = ozaki.matmul(a, b, scheme=words)
        same_numbers(expected, device.matmul(a, b, scheme=words), left, right)


@pytest.mark.parametrize("name", ["halfhalf", "tf32tf32", "fabsum-v2"])
def test_prepared_operands(device, rng, name):
    a, b = operands(rng, 9, 300, 8, 30)
    x, y = device.asarray(viewed(rng, a)), device.asarray(viewed(rng, b))
    plan = ozaki.plan(x, y, scheme=name)
    expected = ozaki.matmul(a, b, scheme=plan.scheme)
    left, right = ozaki.prepare(x, "left", plan), ozaki.prepare(y, "right", plan)
    for pair in ((left, y), (x, right), (left, right)):
        c, report = ozaki.matmul(*pair, plan=plan, return_report=True)
        same_numbers(expected, device.asnumpy(c))
        assert report.underflows is not None and report.bound == plan.bound
    other = "two-stage" if name == "halfhalf" else "halfhalf"
    with pytest.raises(ValueError, match="prepared for another plan"):
        ozaki.matmul(left, y, plan=ozaki.plan(x, y, scheme=other))


def test_gemm_and_out(device, rng):
    a, b = operands(rng, 5, 40, 6)
    x, y = device.asarray(a.T.copy()), device.asarray(b)
    c = device.matmul(a, b, scheme="halfhalf")
    wide = device.full((5, 12), np.nan, "f4")
    ozaki.gemm(2.0, x, y, 0.0, None, trans_a=True, scheme="halfhalf", out=wide[:, ::2])
    got = device.asnumpy(wide)
    assert_same(2 * c, got[:, ::2])
    assert np.isnan(got[:, 1::2]).all()


def test_underflows_are_counted(device):
    x = np.ones((3, 8), np.float32)
    x[1, 1:5] = np.float32(1 + 2.0**-10 / 3) * 2.0**-40
    x[2, 2] = 2.0**-20  # short: nothing is lost
    _, report = device.matmul(x, np.ones((8, 2), np.float32), scheme="halfhalf", return_report=True)
    assert report.underflows == 4 and "4 elements" in str(report)
    x = np.float32([[1, 1 / 3, 2.0**-12, 0, np.nan]])
    _, report = device.matmul(x, x.T, scheme="halfhalf", return_report=True)
    assert report.underflows == 0 and "lose bits by underflow" not in str(report)
    assert device.matmul(x, x.T, return_report=True)[1].underflows is None


@pytest.mark.parametrize("name", PRESETS)
def test_reports_are_those_of_numpy(device, rng, name):
    """Reports are those of NumPy (bounds in two measures, estimate, underflows), and the componentwise bound holds."""
    skip_unless_emulated(device, name)
    words = here(device, PRESETS[name])
    for span in device.some((0, 12, 30), 1, rng):
        a, b = operands(rng, 40, device.size(300, 70), 20, span)
        x, y = device.asarray(a), device.asarray(b)
        for measure in ("componentwise", "row-column"):
            expected = measured(measure, a, b, scheme=words)[1]
            c, report = measured(measure, x, y, scheme=words)
            assert replace(report, engine=expected.engine, workspace_bytes=expected.workspace_bytes) == expected
            if measure == "componentwise":
                assert reference.componentwise_error(device.asnumpy(c), a, b) <= report.bound


def test_inputs_are_never_modified(device, rng):
    a, b = operands(rng, 5, 40, 6)
    before = a.copy(), b.copy()
    a.flags.writeable = b.flags.writeable = False
    x, y = device.asarray(a), device.asarray(b)
    ozaki.matmul(x, y, scheme="halfhalf", accuracy=0.5)
    assert_same(before[0], device.asnumpy(x))
    assert_same(before[1], device.asnumpy(y))


def test_other_tensor_cores_are_refused(device):
    core = core_of(device)
    other = tensor_core.A100 if core != tensor_core.A100 else tensor_core.V100
    words, x = replace(PRESETS["single-fp16"], core=other), device.full((2, 2), 1, "f4")
    if device.xp is np:  # which models all tensor cores
        assert_same(np.full((2, 2), 2, "f4"), ozaki.matmul(x, x, scheme=words))
    else:
        with pytest.raises(
            NotImplementedError, match=f"^scheme: single-fp16 speaks of the tensor cores of {other.name}"
        ):
            ozaki.matmul(x, x, scheme=words)
