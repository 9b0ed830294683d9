"""Complex products: the bits and reports of NumPy on every device; what they are is tested in tests/test_complex.py."""

import numpy as np
import pytest

import ozaki

KINDS = [("c16", "c16"), ("f8", "c16"), ("c16", "f8"), ("c8", "c8"), ("c8", "f8")]


def made(rng, shape, dtype):
    def part():
        return rng.standard_normal(shape)

    return (part() + 1j * part()).astype(dtype) if dtype[0] == "c" else part().astype(dtype)


@pytest.mark.parametrize("kinds", KINDS, ids=str)
def test_bits_and_bounds_of_numpy(device, rng, kinds):
    sizes = device.some([((4, 5), (5, 3)), ((2, 7, 40), (40, 6)), ((9,), (9, 3)), ((33, 65), (65, 20))], 2, rng)
    for shapes in sizes:
        a, b = (made(rng, shape, kind) for shape, kind in zip(shapes, kinds, strict=True))
        x, y = device.asarray(a), device.asarray(b)
        for options in (
            {"reproducible": True},
            {"scheme": "residues", "slices": 9},
            {"scheme": "digits"},
            {"accuracy": "fp64", "reproducible": True, "workspace_limit": 2**20},
        ):
            expected, of_numpy = ozaki.matmul(a, b, return_report=True, **options)
            got, report = ozaki.matmul(x, y, return_report=True, **options)
            np.testing.assert_array_equal(device.asnumpy(got), expected)
            assert (report.bound, report.slices, report.nonfinite) == (
                of_numpy.bound, of_numpy.slices, of_numpy.nonfinite,
            )  # fmt: skip
        c = made(rng, expected.shape, expected.dtype.str[1:])
        for addend in (c, c.real.copy()):
            expected = ozaki.gemm(2.5, a, b, -0.5, addend, reproducible=True)
            got = ozaki.gemm(2.5, x, y, -0.5, device.asarray(addend), reproducible=True)
            np.testing.assert_array_equal(device.asnumpy(got), expected)


@pytest.mark.parametrize("kinds", KINDS, ids=str)
def test_native_products(device, rng, kinds):
    """In every layout, with expressions, and beside NaN and Inf."""
    a, b = made(rng, (2, 6, 9), kinds[0]), made(rng, (9, 4), kinds[1])
    tolerance = {"rtol": 1e-4 if (a @ b).dtype == "c8" else 1e-12, "atol": 1e-5 if (a @ b).dtype == "c8" else 1e-12}
    for x in (a, a[:, ::-1], a.swapaxes(1, 2).copy().swapaxes(1, 2), np.repeat(a, 2, 2)[..., ::2]):
        for y in (b, b.T.copy().T):
            got = ozaki.matmul(device.asarray(x), device.asarray(y), scheme="native")
            np.testing.assert_allclose(device.asnumpy(got), x @ y, **tolerance)
    c = made(rng, (2, 6, 4), (a @ b).dtype.str[1:])
    got = ozaki.gemm(2.5, device.asarray(a), device.asarray(b), -0.5, device.asarray(c), scheme="native")
    np.testing.assert_allclose(device.asnumpy(got), 2.5 * (a @ b) - 0.5 * c, **tolerance)


def test_nan_and_inf(device, rng):
    a, b = made(rng, (6, 8), "c16"), made(rng, (8, 5), "c16")
    a[3, 4], a[5, 6], b[2, 3] = np.nan, complex(0, np.inf), -np.inf
    expected = ozaki.matmul(a, b, reproducible=True)
    got = ozaki.matmul(device.asarray(a), device.asarray(b), reproducible=True)
    np.testing.assert_array_equal(device.asnumpy(got), expected)


def test_prepared_operands(device, rng):
    a, b = made(rng, (7, 40), "c16"), made(rng, (40, 3), "c16")
    x, y = device.asarray(a), device.asarray(b)
    plan = ozaki.plan(x, y, accuracy="fp64", reproducible=True)
    expected = ozaki.matmul(a, b, plan=plan)
    left, right = ozaki.prepare(x, "left", plan), ozaki.prepare(y, "right", plan)
    for p, q in ((x, y), (left, right), (left, y), (x, right)):
        np.testing.assert_array_equal(device.asnumpy(ozaki.matmul(p, q, plan=plan)), expected)
