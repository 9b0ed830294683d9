"""Products on the device are no less accurate than the native product."""

from __future__ import annotations

import numpy as np
import pytest

import ozaki
from ozaki import reference
from ozaki.bounds import native as native_bounds

cp = pytest.importorskip("cupy")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not cp.cuda.is_available(), reason="no GPU")]


@pytest.mark.parametrize("reproducible", [True, False])
@pytest.mark.parametrize("accuracy", ["fp32", "fp64"])
@pytest.mark.parametrize("draw", ["standard_normal", "random"])
@pytest.mark.parametrize("n", [1024, 4096])
def test_no_worse_than_the_native_product(n, draw, accuracy, reproducible):
    """Root-mean-square componentwise errors in some rows and columns, against exact entries."""
    rng = np.random.default_rng(n)
    dtype = "f8" if accuracy == "fp64" else "f4"
    a, b = (getattr(rng, draw)((n, n)).astype(dtype) for _ in range(2))
    rows, cols = (np.sort(rng.choice(n, count, replace=False)) for count in (8, 64))
    ca, cb = cp.asarray(a), cp.asarray(b)
    c, report = ozaki.matmul(ca, cb, accuracy=accuracy, reproducible=reproducible, return_report=True)
    assert 1 < report.slices <= 15
    ours, native = (
        reference.componentwise_error(x.get()[rows][:, cols], a[rows], b[:, cols], rms=True) for x in (c, ca @ cb)
    )
    assert ours <= native, (ours, native)


@pytest.mark.parametrize("spread", [0, 30])
@pytest.mark.parametrize("n", [512, 2048, 4096])
def test_the_default_proves_no_less_than_the_native_product(n, spread):
    """The default's bound holds and is at most the native one, even if columns of A, and rows of B, differ in scale."""
    rng = np.random.default_rng(n + spread)
    scale = np.ldexp(1.0, rng.integers(-spread, spread + 1, n)).astype("f4")
    a, b = (rng.standard_normal((n, n), dtype="f4") for _ in range(2))
    a, b = a * scale, b / scale[:, None]
    c, report = ozaki.matmul(cp.asarray(a), cp.asarray(b), return_report=True)
    assert report.measure == "componentwise" and report.bound <= native_bounds.bound(n, "float32"), report
    rows, cols = (np.sort(rng.choice(n, count, replace=False)) for count in (8, 64))
    got = c.get()[rows][:, cols]
    assert reference.componentwise_error(got, a[rows], b[:, cols]) <= report.bound, report
    for _ in range(2):  # planned, and repeated by the kept program
        repeated = ozaki.matmul(cp.asarray(a), cp.asarray(b)).get()[rows][:, cols]
        assert reference.componentwise_error(repeated, a[rows], b[:, cols]) <= report.bound, report


@pytest.mark.parametrize("dtypes", [("f4", "f4"), ("f8", "f8"), ("f4", "f8")])
def test_native_products_of_operands_in_any_order(dtypes):
    """Matrices and stacks that cuBLAS reads in place or that are copied for it; the second pair by repeated calls."""
    rng = np.random.default_rng(14)
    first, second = (
        [cp.asarray(rng.standard_normal((2, 3, 60, 80)).astype(dtype)) for dtype in dtypes] for _ in range(2)
    )
    for a, b in (first, second):
        x, y, turned = a[0, 0], b[0, 0], b.swapaxes(-1, -2)
        matrices = (x, y.T), (x.T, y), (x[:, ::2], y[3:43]), (x[::-1], y.T[:, ::-1]), (x[::2, 3:], y.T[3:, 1:])
        vectors = (
            (x[0], y.T),
            (x, y[0]),
            (x[0], y[1]),
            (x[:, 0], y),
            (x[:1, ::-1], y.T[:, :1]),
            (x[:, 2:3], y[4:5, ::2]),
        )
        shared = (a, y.T), (a.swapaxes(-1, -2), y), (x, turned), (a[:, :2], y.T), (a.swapaxes(0, 1), y.T)
        stacks = (a, turned), (a[:, :1], turned[:1]), (a[::-1, ::-1], turned[:, ::-1]), (a[..., ::2], turned[:, :, ::2])
        for left, right in (*matrices, *vectors, *shared, *stacks):
            c = ozaki.matmul(left, right, scheme="native")
            expected = np.matmul(left.get(), right.get(), dtype="f8")
            np.testing.assert_allclose(c.get(), expected, rtol=0, atol=1e-4 if c.dtype == "f4" else 1e-12)
