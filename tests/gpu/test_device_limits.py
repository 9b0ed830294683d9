"""NumPy and CuPy give the same bits: products within a workspace, and of prepared operands."""

from __future__ import annotations

import numpy as np
import pytest

import ozaki
from operands import engines, same_bits

cp = pytest.importorskip("cupy")
pytestmark = pytest.mark.gpu


def test_panels_prepared_and_streams():
    rng = np.random.default_rng(7)
    a, b = rng.standard_normal((700, 900)), rng.standard_normal((900, 333))
    ca, cb = cp.asarray(a), cp.asarray(b)
    choices = [(s, n, engine) for s, n in (("residues", 14), ("digits", 6)) for engine in engines(s, n, 900)]
    for scheme, slices, engine in choices:
        expected = ozaki.matmul(a, b, scheme=scheme, slices=slices)
        options = {"scheme": scheme, "slices": slices, "engine": engine}
        fixed = 91 * 10**6 if (scheme, engine) == ("digits", "fused") else 0  # scratch of each multiprocessor
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
    """Limits with room for the whole product, and for panels only, in first and in repeated calls."""
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
