"""A matrix times its own transpose: the bits of the general product, on every device; see tests/test_itself.py, too."""

import numpy as np
import pytest

import ozaki


@pytest.fixture
def of_any_size(device, monkeypatch):
    """Multiply triangles of small matrices, too, where the device has kernels for that."""
    if device.name != "numpy":
        from ozaki.backends.cupy.steps.engines import fused_residues

        monkeypatch.setattr(fused_residues, "_LEAST_SYMMETRIC", 1)


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


SHAPES = [(400, 9), (2, 65, 40), (1, 3), (300, 130)]
OPTIONS = [{"scheme": "residues", "slices": 5}, {"reproducible": True}, {"scheme": "digits", "slices": 3}]


@pytest.mark.usefixtures("of_any_size")
@pytest.mark.parametrize("kind", ["f8", "f4", "c16", "c8"])
def test_the_bits_are_those_of_the_general_product(device, rng, kind):
    """In row-major and in column-major order.

    Digits of -v are not those of v with the other sign, so pairs that are left out of complex products differ.
    """
    options = OPTIONS if kind[0] == "f" else OPTIONS[:2]
    for shape, option in device.some([(shape, option) for shape in SHAPES for option in options], 2, rng):
        a = part(rng, shape, kind)
        a = a + 1j * part(rng, shape, kind) if kind[0] == "c" else a
        same_as_general(device, np.asfortranarray(a) if rng.integers(2) else a, option)


@pytest.mark.usefixtures("of_any_size")
def test_expressions(device, rng):
    """A triangle is multiplied unless an addend, which need not be symmetric, is rounded with the product."""
    a = part(rng, (270, 10), "f8")
    x, other, c = device.asarray(a), device.asarray(a), device.asarray(part(rng, (270, 270), "f8"))
    for alpha, beta in device.some([(2.5, 0), (2.5, -3), (np.inf, 0)], 2, rng):
        got, expected = (ozaki.gemm(alpha, x, y, beta, c, scheme="residues", slices=5) for y in (x.T, other.T))
        np.testing.assert_array_equal(device.asnumpy(got), device.asnumpy(expected))


@pytest.mark.usefixtures("of_any_size")
def test_nan_inf_and_limits(device, rng):
    a = part(rng, (280, 20), "f8")
    a[[3, 270], [4, 15]], a[200, 7] = np.nan, -np.inf
    for options in device.some([{"workspace_limit": 2**23}, {}], 1, rng):
        same_as_general(device, a, {"scheme": "residues", "slices": 5, **options})


@pytest.mark.gpu
def test_large_matrices(rng):
    cp = pytest.importorskip("cupy")
    for shape in ((2100, 1500), (1030, 4096)):
        for kind in ("f8", "c8"):
            a = cp.asarray(part(rng, shape, kind))
            a = a + 1j * a[::-1] if kind == "c8" else a
            c = ozaki.matmul(a, a.T, scheme="residues", slices=8)
            assert bool((c == c.T).all())
            assert bool((c == ozaki.matmul(a, a.T.copy(), scheme="residues", slices=8)).all())
