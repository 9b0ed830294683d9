"""Undecided entries are computed apart on every device (docs/bounds.md, B14), with the bits of the exact product."""

from dataclasses import replace

import numpy as np
import pytest
from cases import assert_same

import ozaki

KINDS = ["normal", "wide", "ties", "subnormal", "huge", "cancelling", "special"]


def draw(rng, shape, kind):
    x = rng.standard_normal(shape)
    if kind == "wide":
        x *= np.exp2(rng.integers(-60, 61, shape).astype(float))
    elif kind == "ties":
        x = np.where(rng.random(shape) < 0.5, 1.0, 2.0**-53 * rng.choice([1, -1], shape))
    elif kind == "subnormal":
        x = np.rint(9 * x) * 2.0**-537
    elif kind == "huge":
        x *= 2.0**511
    elif kind == "cancelling":
        x[..., : shape[-1] // 2] = -x[..., shape[-1] // 2 : 2 * (shape[-1] // 2)]
    elif kind == "special":
        x[rng.random(shape) < 0.02] = rng.choice([np.nan, np.inf, -np.inf])
    return x


def operands(rng, left, right, kind, dtype="float64"):
    a, b = draw(rng, left, kind), draw(rng, right[:-2] + right[:-3:-1], kind).swapaxes(-1, -2)
    with np.errstate(all="ignore"):
        a, b = a.astype(dtype), b.astype(dtype)
    if kind == "cancelling":
        k = left[-1] // 2
        b[..., :k, :] = b[..., k : 2 * k, :]
    return a, b


def apart(a, b, slices, **options):
    """A plan with so many residues and undecided entries apart, however many these are."""
    return replace(ozaki.plan(a, b, scheme="residues", slices=slices, **options), undecided_apart=True, strict=None)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_bits_are_those_of_the_exact_product(device, rng, dtype):
    m, k, n = 30, device.size(300, 70), 45
    for kind in device.some(KINDS, 3, rng):
        a, b = operands(rng, (m, k), (k, n), kind, dtype)
        for slices in (11, 18) if dtype == "float32" else (16, 21):
            plan = apart(a, b, slices)
            expected, on_host = ozaki.matmul(a, b, plan=plan, return_report=True)
            c, report = device.matmul(a, b, plan=plan, return_report=True)
            assert_same(c, expected)
            assert on_host.undecided <= report.undecided <= m * n
            if kind not in ("special", "wide"):
                exact = ozaki.matmul(a, b, scheme="residues", slices=40, plan=None)
                assert_same(c, exact)


def test_stacks_strides_and_symmetric_products(device, rng):
    a, b = operands(rng, (3, 20, 50), (50, 33), "ties")
    plan = apart(a, b, 16)
    assert_same(device.matmul(a, b, plan=plan), ozaki.matmul(a, b, plan=plan))
    for x in (a[0], np.asfortranarray(a[1]), a[2, ::-1, ::-1]):
        plan = apart(x, x.T, 15)
        there = device.asarray(x)
        assert_same(device.asnumpy(ozaki.matmul(there, there.T, plan=plan)), ozaki.matmul(x, x.T, plan=plan))


def test_prepared_operands_and_inner_scaling(device, rng):
    a, b = operands(rng, (20, 60), (60, 40), "ties")
    for scaled in (False, True):
        plan = apart(a, b, 16, inner_scaling=scaled)
        wanted = ozaki.matmul(a, b, plan=plan)
        x, y = device.asarray(a), device.asarray(b)
        assert_same(device.asnumpy(ozaki.matmul(x, y, plan=plan)), wanted)
        right, left = ozaki.prepare(y, "right", plan), ozaki.prepare(x, "left", plan)
        assert_same(device.asnumpy(ozaki.matmul(x, right, plan=plan)), wanted)
        assert_same(device.asnumpy(ozaki.matmul(left, y, plan=plan)), wanted)


def test_repeated_calls_and_verified_ones(device, rng):
    a, b = operands(rng, (20, 60), (60, 40), "ties")
    plan = apart(a, b, 16)
    for _ in range(3):
        a = draw(rng, a.shape, "ties")
        assert_same(device.matmul(a, b, plan=plan), ozaki.matmul(a, b, plan=plan))
    c, report = device.matmul(a, b, plan=plan, verify=True, return_report=("bounds", "relative"))
    assert_same(c, ozaki.matmul(a, b, plan=plan))
    expected = ozaki.matmul(a, b, plan=plan, return_report=("bounds", "relative"))[1]
    assert report.verified and report.relative_bound == expected.relative_bound
    assert_same(device.asnumpy(report.bounds), expected.bounds)


def test_wide_data_choose_it(device, rng):
    """Exact products of wide data take few residues, on a GPU large ones, and the bits of those that hold every bit."""
    n = device.size(300, 150)
    a, b = rng.standard_normal((2, n, n))
    a[n // 2] *= np.exp2(rng.uniform(-60, 60, n))
    c, report = device.matmul(a, b, accuracy="exact", return_report=True)
    if device.xp is np:
        assert report.undecided is not None and report.slices < 24
    assert_same(c, np.asarray(ozaki.matmul(a, b, accuracy="exact", dtype="mp"), np.float64))
