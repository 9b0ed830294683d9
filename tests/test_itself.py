"""Products of a matrix with its own transpose: symmetric, with the bits of the general product."""

import numpy as np
import pytest

import ozaki

OPTIONS = [
    {"scheme": "residues", "slices": 14},
    {"scheme": "residues", "slices": 9, "engine": "int8-simulated"},
    {"scheme": "residues", "slices": 9, "workspace_limit": 2 * 10**7},
    {"scheme": "digits", "slices": 5},
    {"accuracy": "fp64", "reproducible": True},
    {"accuracy": "dd"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("shape", [(5, 7), (300, 40), (3, 20, 30), (1, 1), (2, 0)], ids=str)
def test_the_bits_are_those_of_the_general_product(shape, options, rng):
    a = rng.standard_normal(shape) * 2.0 ** rng.integers(-9, 9, shape)
    a = np.asfortranarray(a) if rng.integers(2) else a
    for x, y in ((a, a.swapaxes(-1, -2)), (a.swapaxes(-1, -2), a)):
        c = ozaki.matmul(x, y, **options)
        np.testing.assert_array_equal(c, ozaki.matmul(x, y.copy(), **options))
        np.testing.assert_array_equal(c, c.swapaxes(-1, -2))
        np.testing.assert_array_equal(ozaki.gemm(-2, x, y, 0, None, **options), -2 * c)
        addend = rng.standard_normal(c.shape)
        expected = ozaki.gemm(2, x, y.copy(), 1, addend, **options)
        np.testing.assert_array_equal(ozaki.gemm(2, x, y, 1, addend, **options), expected)


def test_many_panels(rng):
    """More rows than are computed at a time, and more inner indices than are multiplied at a time."""
    for shape in ((2200, 3), (40, 4500)):
        a = rng.standard_normal(shape).astype("f4")
        c = ozaki.matmul(a, a.T, scheme="residues", slices=7)
        np.testing.assert_array_equal(c, c.T)
        np.testing.assert_array_equal(c, ozaki.matmul(a, a.T.copy(), scheme="residues", slices=7))


def test_many_panels_of_complex_products(rng):
    a = (rng.standard_normal((2200, 2)) + 1j * rng.standard_normal((2200, 2))).astype("c8")
    options = {"scheme": "residues", "slices": 7, "workspace_limit": 2**27}
    c, h = ozaki.matmul(a, a.T, **options), ozaki.gemm(1, a, a, 0, None, trans_b="C", **options)
    np.testing.assert_array_equal(c, ozaki.matmul(a, a.T.copy(), **options))
    np.testing.assert_array_equal(h, ozaki.matmul(a, a.conj().T, **options))


def test_other_views_of_the_same_memory(rng):
    """A transpose of some other part of the memory is no transpose of the matrix."""
    a = rng.standard_normal((8, 8))
    for x, y in ((a[:4], a[4:].T), (a, a), (a, a[::-1].T), (a[:, :4], a[:, ::2].T)):
        c = ozaki.matmul(x, y, reproducible=True)
        np.testing.assert_array_equal(c, ozaki.matmul(x.copy(), y.copy(), reproducible=True))


def test_nan_inf_and_multiprecision(rng):
    a = rng.standard_normal((6, 9))
    numbers = ozaki.mparray(a, bits=200)
    assert bool((ozaki.matmul(numbers, numbers.T) == ozaki.matmul(numbers, numbers.T.copy())).all())
    a[2, 3], a[4, 4] = np.nan, np.inf
    c = ozaki.matmul(a, a.T, reproducible=True)
    np.testing.assert_array_equal(c, ozaki.matmul(a, a.T.copy(), reproducible=True))
