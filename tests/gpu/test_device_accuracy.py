"""As accurate as the native product, on the device."""

from __future__ import annotations

import numpy as np
import pytest

import ozaki
from ozaki import reference

cp = pytest.importorskip("cupy")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not cp.cuda.is_available(), reason="no GPU")]


@pytest.mark.parametrize("reproducible", [True, False])
@pytest.mark.parametrize("accuracy", ["fp32", "fp64"])
@pytest.mark.parametrize("draw", ["standard_normal", "random"])
@pytest.mark.parametrize("n", [1024, 4096])
def test_no_worse_than_the_native_product(n, draw, accuracy, reproducible):
    """Root-mean-square componentwise errors in some rows and columns, which are known exactly."""
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
