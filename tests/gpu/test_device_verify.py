"""`verify=True` on the device: right products pass, and a bit that flips between kernels is found."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import ozaki

cp = pytest.importorskip("cupy")
pytestmark = pytest.mark.gpu


def operands(m, k, n, seed=0):
    rng = np.random.default_rng(seed)
    return cp.asarray(rng.standard_normal((m, k))), cp.asarray(rng.standard_normal((k, n)))


@pytest.mark.parametrize("shape", [(1000, 700, 900), (1, 3000, 5), (4096, 4096, 4096), (8192, 8192, 8192)])
@pytest.mark.parametrize("accuracy", ["fp64", "exact"])
def test_right_products(shape, accuracy):
    a, b = operands(*shape)
    expected = ozaki.matmul(a, b, accuracy=accuracy, reproducible=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        c, report = ozaki.matmul(a, b, accuracy=accuracy, verify=True, return_report=True)
        assert (report.verified, report.recomputed) == (2, 0)
        assert bool((c == expected).all())
        for _ in range(3):
            assert bool((ozaki.matmul(a, b, accuracy=accuracy, verify=True) == expected).all())


@pytest.mark.parametrize("buffer", ["a.planes", "b.planes", "a.exponents", "b.exponents", "y"])
@pytest.mark.parametrize("size", [1024, 8192])
def test_a_flipped_bit_is_found(buffer, size):
    from ozaki.backends.cupy.steps import faults

    a, b = operands(size, size, size)
    expected = ozaki.matmul(a, b, accuracy="fp64", reproducible=True)
    rng, found = np.random.default_rng(1), 0
    for _ in range(8):
        place, bit = rng.random(), int(rng.integers(8))
        if "exponents" in buffer:  # the lowest byte of an exponent: others leave the range of images
            place, bit = (4 * int(rng.integers(size)) + 0.5) / (4 * size), int(rng.integers(4))
        faults.NEXT.append(faults.Fault(buffer, place, bit))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            c, report = ozaki.matmul(a, b, accuracy="fp64", verify=True, return_report=True)
        assert not faults.NEXT
        assert bool((c == expected).all())
        found += report.recomputed
    assert found >= (8 if "exponents" in buffer else 2)  # slices and residues of tiles have padding
