"""A matrix times its own transpose: the bits of the general product, on every device; see tests/test_itself.py, too."""

import numpy as np
import pytest
from devices import REAL

import ozaki


def size_on(device, large, small):
    """Rows or columns: `large` on a real device, which multiplies triangles of large matrices alone."""
    return large if device.name == REAL else small


def part(rng, shape, kind):
    return (rng.standard_normal(shape) * 2.0 ** rng.integers(-9, 9, shape)).astype(
        kind.replace("c16", "f8").replace("c8", "f4")
    )


def same_as_general(device, a, options):
    """Compare with the product of two arrays of the same views; repeated calls, too."""
    x, other = device.asarray(a), device.asarray(a)
    for _ in range(2):
        c = device.asnumpy(ozaki.matmul(x, x.swapaxes(-1, -2), **options))
        np.testing.assert_array_equal(c, device.asnumpy(ozaki.matmul(x, other.swapaxes(-1, -2), **options)))
        np.testing.assert_array_equal(c, c.swapaxes(-1, -2))


OPTIONS = [{"scheme": "residues", "slices": 7}, {"reproducible": True}, {"scheme": "digits", "slices": 3}]


@pytest.mark.parametrize("kind", ["f8", "f4", "c16", "c8"])
def test_the_bits_are_those_of_the_general_product(device, rng, kind):
    """In row-major and in column-major order.

    Digits of -v are not those of v with the other sign, so pairs that are left out of complex products differ.
    """
    options = OPTIONS if kind[0] == "f" else OPTIONS[:2]
    shapes = [
        (2, 65, 40),
        (1, 3),
        (size_on(device, 1100, 70), size_on(device, 1030, 20)),
        (size_on(device, 2100, 30), 1030),
    ]
    for shape, option in device.some([(shape, option) for shape in shapes for option in options], 1, rng):
        a = part(rng, shape, kind)
        a = a + 1j * part(rng, shape, kind) if kind[0] == "c" else a
        same_as_general(device, np.asfortranarray(a) if rng.integers(2) else a, option)


def test_expressions(device, rng):
    """A triangle is multiplied unless an addend, which need not be symmetric, is rounded with the product."""
    n = size_on(device, 1100, 50)
    a = part(rng, (n, n), "f8")
    x, other, c = device.asarray(a), device.asarray(a), device.asarray(part(rng, (n, n), "f8"))
    for alpha, beta in device.some([(2.5, 0), (2.5, -3), (np.inf, 0)], 2, rng):
        got, expected = (ozaki.gemm(alpha, x, y, beta, c, scheme="residues", slices=5) for y in (x.T, other.T))
        np.testing.assert_array_equal(device.asnumpy(got), device.asnumpy(expected))


def test_nan_inf_and_limits(device, rng):
    n = size_on(device, 1200, 50)
    a = part(rng, (n, n), "f8")
    a[[3, n - 10], [4, 15]], a[30, 7] = np.nan, -np.inf
    for options in device.some([{"workspace_limit": 2**26}, {}], 1, rng):
        same_as_general(device, a, {"scheme": "residues", "slices": 7, **options})


def test_hermitian_products(device, rng):
    """A matrix times its own conjugate transpose, by `gemm`: Hermitian, with a real diagonal."""
    n = size_on(device, 1100, 20)
    a = part(rng, (n, n), "c16") + 1j * part(rng, (n, n), "c16")
    x, adjoint, c = device.asarray(a), device.asarray(a.conj().T.copy()), device.asarray(a)
    for options in device.some([{"reproducible": True}, {"scheme": "residues", "slices": 7}], 1, rng):
        for alpha, beta in device.some([(1, 0), (2.5, -1)], 1, rng):
            h, g = (
                device.asnumpy(ozaki.gemm(alpha, x, x, beta, c, **trans, **options))
                for trans in ({"trans_b": "C"}, {"trans_a": "C"})
            )
            expected = [ozaki.gemm(alpha, p, q, beta, c, **options) for p, q in ((x, adjoint), (adjoint, x))]
            np.testing.assert_array_equal(h, device.asnumpy(expected[0]))
            np.testing.assert_array_equal(g, device.asnumpy(expected[1]))
            if beta == 0:
                np.testing.assert_array_equal(h, h.conj().T)
                assert (h.diagonal().imag == 0).all()
