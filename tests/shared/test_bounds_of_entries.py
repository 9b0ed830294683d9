"""Bounds of entries have the same bits on every device (docs/bounds.md, B13)."""

import numpy as np
import pytest
from cases import assert_same, spread

import ozaki

WAYS = [
    {"accuracy": "fp64", "reproducible": True},
    {"scheme": "digits", "slices": 6},
    {"accuracy": "exact"},
    {"accuracy": 200, "dtype": "mp"},
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_they_are_those_of_numpy(device, rng, way, dtype):
    a, b = spread(rng, (2, 40, 60), 20), spread(rng, (60, 300), 20)
    if dtype == "complex128":
        a, b = a - 1j * spread(rng, a.shape, 20), b + 1j * spread(rng, b.shape, 20)
    if "dtype" not in way:
        a[0, 3, 4] = np.nan
    x, y = device.asarray(a), device.asarray(b)
    expected = ozaki.matmul(a, b, return_report="bounds", **way)[1]
    report = ozaki.matmul(x, y, return_report="bounds", **way)[1]
    assert_same(expected.bounds, device.asnumpy(report.bounds))
    c = b[:40] if dtype == "float64" else b[:40] * (1 + 1j)
    c = np.broadcast_to(c, (2, 40, 300)).copy()
    expected = ozaki.gemm(-0.3, a, b, 7.0, c, return_report="bounds", **way)[1]
    report = ozaki.gemm(-0.3, x, y, 7.0, device.asarray(c), return_report="bounds", **way)[1]
    assert_same(expected.bounds, device.asnumpy(report.bounds))
