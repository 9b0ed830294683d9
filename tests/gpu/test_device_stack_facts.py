"""Facts of stacks of small matrices: the plans, bounds and bits of NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import ozaki
from operands import random_matrix, same_bits, views

cp = pytest.importorskip("cupy")
pytestmark = pytest.mark.gpu

SHAPES = [
    (2000, 16, 16, 16),
    (300, 64, 64, 64),
    (9, 256, 256, 256),
    (300, 128, 256, 40),
    (700, 7, 33, 1),
    (1, 256, 9, 256),
]


def stack(rng, shape, dtype, spread):
    """Real or complex entries of many magnitudes."""
    real = {"c16": "f8", "c8": "f4"}.get(dtype, dtype)
    x = random_matrix(rng, shape, real, spread)
    return x if real == dtype else (x + 1j * random_matrix(rng, shape, real, spread)).astype(dtype)


@pytest.mark.parametrize("dtype", ["f8", "f4", "c16", "c8"])
@pytest.mark.parametrize("shape", SHAPES)
def test_same_plan_and_bits(shape, dtype):
    """Ordinary stacks and others, the second of them by kept programs, too."""
    rng = np.random.default_rng(list(shape))
    batch, m, k, n = shape
    accuracy = "fp64" if dtype in ("f8", "c16") else "fp32"
    for spread in (0, 0, 0, 9):
        a, x = views(rng, stack(rng, (batch, m, k), dtype, spread))
        b, y = views(rng, stack(rng, (batch, a.shape[-1], n), dtype, spread))
        options = {"accuracy": accuracy, "reproducible": True}
        expected, on_device = (ozaki.plan(*of, **options) for of in ((a, b), (x, y)))
        assert (on_device.undecided_apart, on_device.bound) == (expected.undecided_apart, expected.bound)
        assert on_device.scheme == expected.scheme or expected.undecided_apart  # then of any count the same bits
        for _ in range(2):
            same_bits(ozaki.matmul(a, b, plan=expected), ozaki.matmul(x, y, **options))


@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_nonfinite_subnormal_and_empty_rows(dtype):
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal((500, 20, 24)).astype(dtype), rng.standard_normal((500, 24, 30)).astype(dtype))
    least = np.finfo(dtype).smallest_subnormal
    a[3], a[7, 5], b[9, :, 4], a[11, 2, 3], b[12, 5, 6] = 0, least, least, np.nan, np.inf
    b[13] *= np.finfo(dtype).max / 100
    for accuracy in ("fp64", "fp32", "exact", 1e-7):
        options = {"accuracy": accuracy, "reproducible": True}
        try:
            expected = ozaki.matmul(a, b, **options)
        except ValueError:
            with pytest.raises(ValueError, match="accuracy"):
                ozaki.matmul(cp.asarray(a), cp.asarray(b), **options)
            continue
        same_bits(expected, ozaki.matmul(cp.asarray(a), cp.asarray(b), **options))
