"""Stacks of small products by one kernel: the bits of NumPy, for all shapes, strides, formats and counts."""

from __future__ import annotations

import numpy as np
import pytest

import ozaki
from operands import random_matrix, same_bits

cp = pytest.importorskip("cupy")
pytestmark = pytest.mark.gpu

SHAPES = [
    *((300, n, n, n) for n in (16, 32, 64)),
    *((20, n, k, n) for n, k in ((128, 128), (256, 128), (64, 256))),
    *((7, 1, 1, 1), (70001, 2, 3, 5), (50, 33, 20, 18), (9, 70, 50, 135), (31, 16, 100, 64), (5, 7, 200, 33)),
]


def made(rng, shape, dtype):
    """Real or complex numbers of a few sizes."""
    if dtype[0] == "f":
        return random_matrix(rng, shape, dtype, 3)
    real, imaginary = (random_matrix(rng, shape, "f8", 3) for _ in range(2))
    return (real + 1j * imaginary).astype(dtype)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("scheme", "slices", "dtype"),
    [
        *(("residues", 14, "f8"), ("residues", 7, "f4"), ("residues", 15, "f8"), ("residues", 20, "f8")),
        *(("digits", 3, "f4"), ("digits", 6, "f8"), ("residues", 15, "c16"), ("residues", 7, "c8")),
    ],
)
def test_stacks(shape, scheme, slices, dtype):
    """Contiguous operands and transposed ones, into an `out` of NaN."""
    (batch, m, k, n), rng = shape, np.random.default_rng(3)
    options = {"scheme": scheme, "slices": slices}
    a, b = (made(rng, shape, dtype) for shape in ((batch, m, k), (batch, k, n)))
    expected = ozaki.matmul(a, b, **options)
    turned = (cp.asarray(x.swapaxes(1, 2).copy()).swapaxes(1, 2) for x in (a, b))
    for x, y in ((cp.asarray(a), cp.asarray(b)), tuple(turned)):
        out = cp.full((batch, m, n), np.nan, dtype)
        ozaki.matmul(x, y, out=out, **options)
        same_bits(expected, out)


@pytest.mark.parametrize(("scheme", "slices", "dtype"), [("residues", 14, "f8"), ("digits", 3, "f4")])
def test_special_numbers_and_any_strides(scheme, slices, dtype):
    """NaN, Inf, zeros, subnormal numbers, results out of range; parts of larger arrays, reversed and broadcast ones."""
    rng = np.random.default_rng(5)
    a = np.ldexp(rng.standard_normal((60, 40, 50)), rng.integers(-40, 40, (60, 40, 1))).astype(dtype)
    a[rng.random(a.shape) < 0.3] = 0
    a[:9][rng.random(a[:9].shape) < 0.01] = np.nan
    a[3:20][rng.random(a[3:20].shape) < 0.01] = -np.inf
    a[20:30] *= np.finfo(dtype).smallest_normal
    a[30:40] *= np.sqrt(np.finfo(dtype).max)
    b = a[::-1, :, ::-1].swapaxes(1, 2)
    for x, y in ((a, b), (a[:, 3:33, ::2], b[:, ::2, 5:]), (np.broadcast_to(a[41], a.shape), b)):
        with np.errstate(all="ignore"):
            expected = ozaki.matmul(x, y, scheme=scheme, slices=slices)
        on_device = cp.asarray(a)
        given = on_device[:, 3:33, ::2] if x.shape[1] == 30 else cp.asarray(x)
        same_bits(expected, ozaki.matmul(given, cp.asarray(y), scheme=scheme, slices=slices))
