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
    sizes = device.some([((4, 5), (5, 3)), ((2, 7, 40), (40, 6)), ((9,), (9, 3)), ((33, 65), (65, 20))], 1, rng)
    for shapes in sizes:
        a, b = (made(rng, shape, kind) for shape, kind in zip(shapes, kinds, strict=True))
        x, y = device.asarray(a), device.asarray(b)
        every = (
            {"reproducible": True},
            {"scheme": "residues", "slices": 7},  # counts of other tests, too, whose kernels serve these
            {"scheme": "digits", "slices": 7},
            {"accuracy": "fp64", "reproducible": True, "workspace_limit": 2**20},
        )
        for options in device.some(every, 2, rng):
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
        got = ozaki.gemm(1 + 2j, x, y, 0.5j, device.asarray(c), reproducible=True)
        expected = ozaki.gemm(1 + 2j, a, b, 0.5j, c, reproducible=True)
        nothing = ozaki.gemm(1j, x[..., :0], y[:0], 2.0, device.asarray(c), reproducible=True)
        np.testing.assert_array_equal(device.asnumpy(nothing), 2 * c)
        np.testing.assert_allclose(device.asnumpy(got), expected, rtol=1e-5 if c.dtype == "c8" else 1e-13)


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
    for scheme in ("residues", "digits"):
        plan = ozaki.plan(x, y, accuracy="fp64", scheme=scheme)
        expected = ozaki.matmul(a, b, plan=plan)
        left, right = ozaki.prepare(x, "left", plan), ozaki.prepare(y, "right", plan)
        for p, q in ((x, y), (left, right), (left, y), (x, right)):
            got, report = ozaki.matmul(p, q, plan=plan, return_report=True)
            np.testing.assert_array_equal(device.asnumpy(got), expected)
            assert report.bound <= plan.target.tolerance * 1.01 + 2.0**-53


def test_layouts_and_counts(device, rng):
    """Slices are cut from rows as they lie; moduli with a root of -1 give two products, others three."""
    layouts = [
        lambda x: x,
        lambda x: x.swapaxes(-1, -2).copy().swapaxes(-1, -2),
        lambda x: x[:, ::-1].copy()[:, ::-1],
        lambda x: x.repeat(2, axis=1)[:, ::2],
        lambda x: x[::-1].swapaxes(-1, -2).copy().swapaxes(-1, -2)[::-1],
    ]
    counts = [("c16", 15), ("c16", 24), ("c8", 8), ("c16", 3), ("c16", 28), ("c16", 30)]
    for kind, count in device.some(counts, 1, rng):
        a, b = made(rng, (19, 131), kind), made(rng, (131, 7), kind)
        expected = ozaki.matmul(a, b, scheme="residues", slices=count)
        if count > 3:
            np.testing.assert_allclose(expected, a @ b, rtol=0, atol=1e-4 if kind == "c8" else 1e-12)
        for first, second in device.some([(x, y) for x in layouts for y in layouts], 2, rng):
            x, y = first(device.asarray(a)), second(device.asarray(b))
            got = ozaki.matmul(x, y, scheme="residues", slices=count)
            np.testing.assert_array_equal(device.asnumpy(got), expected)


def test_repeated_calls(device, rng):
    """A repeated call finds its facts anew, and has the bits of the first."""
    for kinds in device.some(KINDS, 2, rng):
        a, b = made(rng, (30, 40), kinds[0]), made(rng, (40, 20), kinds[1])
        for scale in (1.0, 3.0, 1.0):
            x, y = (
                (scale * a).astype(a.dtype),
                b * np.exp2(np.arange(20) % (9 if scale == 3 else 1)).astype(b.real.dtype),
            )
            expected = ozaki.matmul(x, y, reproducible=True, accuracy=40)
            got = ozaki.matmul(device.asarray(x), device.asarray(y), reproducible=True, accuracy=40)
            np.testing.assert_array_equal(device.asnumpy(got), expected)


@pytest.mark.parametrize("k", [30, 1500])
def test_proofs_of_rows_of_wide_range(device, rng, k):
    """Every level of a proof finds what NumPy's does, and relative errors too."""
    a, b = made(rng, (12, k), "c16"), made(rng, (k, 9), "c16")
    a[:7] *= np.exp2(rng.integers(-40, 40, (7, k)))
    b[:, :3] *= np.exp2(rng.integers(-40, 40, (k, 3)))
    a[8], a[9].real, b[:, 4].imag, a[10, 2:] = 0, 0, 0, 0  # a row of zeros, parts of zeros, two elements alone
    targets = "fp64", 70, ozaki.Accuracy("relative", 1e-14), ozaki.Accuracy("normwise", 1e-9), "exact"
    for accuracy in device.some(targets, 1, rng):
        dtype = "complex128"
        expected, of_numpy = ozaki.matmul(a, b, accuracy=accuracy, reproducible=True, dtype=dtype, return_report=True)
        x, y = device.asarray(a), device.asarray(b)
        got, report = ozaki.matmul(x, y, accuracy=accuracy, reproducible=True, dtype=dtype, return_report=True)
        np.testing.assert_array_equal(device.asnumpy(got), expected)
        assert (report.bound, report.slices) == (of_numpy.bound, of_numpy.slices)
