"""NumPy and CuPy give the same bits: products in Winograd's form."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import ozaki
from operands import random_matrix, same_bits, views

cp = pytest.importorskip("cupy")
pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("seed", range(30))
def test_winograd(seed, monkeypatch):
    """Operands of every size: even, odd, and of one row, whose second half is empty."""
    from ozaki.backends.cupy import repeated
    from ozaki.backends.cupy.steps.engines import choice

    if cp.cuda.Device().compute_capability != "90":
        pytest.skip("an engine for Hopper")
    monkeypatch.setattr(choice.winograd, "_FROM", 0)
    repeated.forget()
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
    options = {"scheme": "residues", "slices": slices, "engine": "fused"}
    expected = ozaki.matmul(a, b, scheme="residues", slices=slices)
    for i in range(3):  # with a report, planned, and repeated by the kept program
        out = cp.full(expected.shape, cp.nan, expected.dtype)
        if i > 0:
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
    """The bits of cuBLAS at sizes that take Winograd's form by default."""
    if cp.cuda.Device().compute_capability != "90":
        pytest.skip("an engine for Hopper")
    for m, k, n in ((10240, 10240, 10240), (10001, 10321, 10451)):
        a, b = (cp.random.standard_normal(shape, dtype=dtype) for shape in ((m, k), (k, n)))
        out = cp.full((m, n), cp.nan, dtype)
        options = {"scheme": "residues", "slices": slices, "return_report": True}
        _, report = ozaki.matmul(a, b, out=out, workspace_limit=10**11, **options)  # a limit with room for quadrants
        assert "Winograd" in report.engine and report.workspace_bytes <= 10**11
        assert "Winograd" in ozaki.matmul(a, b, **options)[1].engine
        expected = ozaki.matmul(a, b, scheme="residues", slices=slices, engine="cublas")
        assert bool((out == expected).all())
