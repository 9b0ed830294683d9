"""Workspace: limits change no bits and are kept, and reports say how much is held."""

import numpy as np
import pytest
from cases import assert_same

import ozaki

COUNTS = [("residues", 7, "f4"), ("residues", 14, "f8"), ("digits", 3, "f4"), ("halfhalf", None, "f4")]


def operands(device, rng, scheme, dtype):
    m, k, n = device.size((450, 900, 330), (300, 26, 400))
    if device.name == "numpy" and scheme == "halfhalf":
        m, k, n = 40, 600, 50  # small, since the tensor core is modelled number by number
    return rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)


def options_of(device, scheme, slices):
    """Options of `ozaki.matmul` for the engine whose panels are smallest: cuBLAS, where there is one."""
    engine = {} if scheme == "halfhalf" or "cublas" not in device.engines else {"engine": "cublas"}
    return {"scheme": scheme, "slices": slices, **engine}


@pytest.mark.parametrize(("scheme", "slices", "dtype"), COUNTS)
def test_a_limit_changes_nothing(device, rng, scheme, slices, dtype):
    """Limits with room for the whole product, and for panels only; repeated with other data of the same shape."""
    a, b = operands(device, rng, scheme, dtype)
    x, y, twice = device.asarray(a), device.asarray(b), device.asarray(2 * b)
    options = options_of(device, scheme, slices)
    c, whole = ozaki.matmul(x, y, return_report=True, **options)
    expected = device.asnumpy(c)
    smaller = (0.8, 0.6) if scheme == "halfhalf" else (0.8, 0.5, 0.33)
    for limit in (10**10, *(int(whole.workspace_bytes * part) for part in smaller)):
        c, report = ozaki.matmul(x, y, workspace_limit=limit, return_report=True, **options)
        assert_same(expected, device.asnumpy(c), limit)
        assert report.workspace_bytes <= limit
        assert (report.scheme, report.slices, report.bound) == (whole.scheme, whole.slices, whole.bound)
        assert_same(2 * expected, device.asnumpy(ozaki.matmul(x, twice, workspace_limit=limit, **options)), limit)


@pytest.mark.parametrize(("scheme", "slices", "dtype"), COUNTS)
def test_prepared_operands_in_panels(device, rng, scheme, slices, dtype):
    a, b = operands(device, rng, scheme, dtype)
    x, y = device.asarray(a), device.asarray(b)
    options = options_of(device, scheme, slices)
    c, whole = ozaki.matmul(x, y, return_report=True, **options)
    plan = ozaki.plan(x, y, workspace_limit=int(whole.workspace_bytes * 0.6), **options)
    for times in (1, 8):  # the second right operand has other shared exponents
        left, right = ozaki.prepare(x, "left", plan), ozaki.prepare(device.asarray(times * b), "right", plan)
        for pair in ((left, right), (left, device.asarray(times * b)), (x, right)):
            assert_same(times * device.asnumpy(c), device.asnumpy(ozaki.matmul(*pair, plan=plan)), times)


def test_panels_leave_the_gaps_of_out_alone(device, rng):
    a, b = operands(device, rng, "residues", "f4")
    options = options_of(device, "residues", 7)
    expected, whole = device.matmul(a, b, return_report=True, **options)
    m, n = expected.shape
    wide = device.full((m, 2 * n), np.nan, "f4")
    limit = whole.workspace_bytes // 2 + 4 * m * n
    ozaki.matmul(device.asarray(a), device.asarray(b), out=wide[:, ::2], workspace_limit=limit, **options)
    got = device.asnumpy(wide)
    assert_same(expected, got[:, ::2])
    assert np.isnan(got[:, 1::2]).all()


def test_panels_into_an_operand(device, rng):
    """`out` is an operand, which the panels after the first still have to read."""
    n = device.size(700, 200)
    a, b = rng.standard_normal((n, n)).astype("f4"), rng.standard_normal((n, n)).astype("f4")
    options = options_of(device, "residues", 7)
    expected, whole = device.matmul(a, b, return_report=True, **options)
    limit = whole.workspace_bytes // 2 + a.nbytes
    for side in (0, 1):
        pair = device.asarray(a.copy()), device.asarray(b.copy())
        c, report = ozaki.matmul(*pair, out=pair[side], workspace_limit=limit, return_report=True, **options)
        assert c is pair[side]
        assert report.workspace_bytes <= limit
        assert_same(expected, device.asnumpy(c), side)


@pytest.mark.parametrize("accuracy", ["fp64", ozaki.Accuracy("row-column", 1e-15)], ids=str)
def test_a_plan_is_the_same_within_a_limit(device, rng, accuracy):
    """Within a limit, proofs run in panels, and lead to the plan that is made without a limit."""
    a, b = rng.standard_normal((70, 300)), rng.standard_normal((300, 40))
    a[:, 5:] *= rng.random((70, 295)) < 0.5
    options = {"accuracy": accuracy, "reproducible": True}
    expected, whole = ozaki.matmul(a, b, return_report=True, **options)
    limit = device.size(2 * 10**6, 10**6)
    c, report = device.matmul(a, b, workspace_limit=limit, return_report=True, **options)
    assert_same(expected, c)
    assert report.workspace_bytes <= limit
    plan = ozaki.plan(device.asarray(a), device.asarray(b), workspace_limit=limit, **options)
    assert (plan.scheme, plan.bound) == (ozaki.plan(a, b, **options).scheme, whole.bound)
    assert (report.scheme, report.slices, report.bound) == (whole.scheme, whole.slices, whole.bound)


@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_a_relative_accuracy_keeps_the_limit(device, rng, dtype):
    """It is proven from a product, of which a limit has some rows computed at a time."""
    a, b = rng.standard_normal((60, 20)), rng.standard_normal((20, 300))
    if dtype == "c16":
        a, b = a + 1j * rng.standard_normal(a.shape), b - 1j * rng.standard_normal(b.shape)
    options = {"accuracy": ozaki.Accuracy("relative", 1e-9), "reproducible": True, "return_report": True}
    expected, whole = device.matmul(a, b, **options)
    limit = int(whole.workspace_bytes * 0.7)
    c, report = device.matmul(a, b, workspace_limit=limit, **options)
    assert_same(expected, c)
    assert report.workspace_bytes <= limit
    assert (report.scheme, report.slices, report.bound) == (whole.scheme, whole.slices, whole.bound)


def test_a_result_that_goes_through_a_copy_counts_as_workspace(device, rng):
    """No engine writes a transposed `out`: the result is computed in memory of its own, then copied."""
    a, b = rng.standard_normal((60, 20)), rng.standard_normal((20, 60))
    options = {"scheme": "residues", "slices": 14, "return_report": True}
    _, report = ozaki.matmul(device.asarray(a), device.asarray(b), out=device.full((60, 60), 0), **options)
    out = device.full((60, 60), 0).T
    _, more = ozaki.matmul(device.asarray(a), device.asarray(b), out=out, **options)
    assert more.workspace_bytes == report.workspace_bytes + 8 * 60 * 60
    limit = 8 * 60 * 60 - 100
    words = rf"^workspace_limit: {limit} bytes are too few; .* `out` that holds no result"
    with pytest.raises(ValueError, match=words):
        ozaki.matmul(device.asarray(a), device.asarray(b), out=out, workspace_limit=limit, **options)


@pytest.mark.parametrize("way", [{"scheme": "residues", "slices": 14}, {"accuracy": "fp64", "reproducible": True}])
def test_a_limit_that_is_too_small_is_refused_before_out_is_touched(device, rng, way):
    a, b, out = rng.standard_normal((30, 40)), rng.standard_normal((40, 20)), device.full((30, 20), 7)
    with pytest.raises(ValueError, match=r"^workspace_limit: .* needs at least \d+"):
        device.matmul(a, b, workspace_limit=1000, out=out, **way)
    assert (device.asnumpy(out) == 7).all()


def test_the_native_product_keeps_the_limit(device):
    """The native product needs workspace to convert an operand, and cannot write a transposed `out`."""
    a, b = np.ones((100, 100), "f4"), np.ones((100, 100))
    for way in ({}, {"scheme": "native"}, {"accuracy": 1e-10}):
        out = device.full((100, 100), np.nan).T
        with pytest.raises(ValueError, match=r"^workspace_limit: 1000 bytes are too few"):
            device.matmul(a, b, out=out, workspace_limit=1000, **way)
        assert np.isnan(device.asnumpy(out)).all()
    out = device.full((100, 100), np.nan).T
    _, report = device.matmul(a[:, :0], b[:0], out=out, return_report=True)
    assert report.workspace_bytes == out.nbytes


def test_bits_of_exact_products_are_counted_within_their_tiles(device, rng):
    """A device looks through more elements at a time than NumPy does, but no more than that within a limit."""
    a, b = (device.asarray(rng.standard_normal(shape)) for shape in ((170, 2), (2, 170)))
    exact = {"dtype": "mp", "accuracy": "exact", "return_report": True}
    c, whole = ozaki.matmul(a, b, **exact)
    at_a_time = 2**14 if device.name == "numpy" else 170 * 170
    assert whole.workspace_bytes >= 64 * at_a_time
    found, report = ozaki.matmul(a, b, workspace_limit=64 * 2**14 + 10**6, **exact)
    assert report.workspace_bytes <= 64 * 2**14 + 10**6
    assert bool((found == c).all())
