"""ozaki.parts of arrays on a real GPU: the bits of one call on NumPy."""

import pickle
from functools import reduce

import numpy as np
import pytest

import ozaki
from ozaki import parts

cp = pytest.importorskip("cupy")

pytestmark = pytest.mark.gpu

CUTS = [slice(0, 700), slice(700, 701), slice(701, 3000)]


def operands(dtype):
    rng = np.random.default_rng(58)
    a, b = (np.ldexp(rng.standard_normal(of), rng.integers(-9, 10, of)) for of in ((700, 3000), (3000, 500)))
    if dtype.startswith("complex"):
        a, b = a + 1j * a[::-1, ::-1], b + 1j * b[::-1, ::-1]
    a[3, 7], b[2000, 9] = np.nan, np.inf
    return a.astype(dtype), b.astype(dtype)


def described(pieces, side):
    merged = reduce(np.maximum, [parts.extremes(x, side) for x in pieces])
    return parts.describe(merged, sum(parts.sums(x, side, merged, 3000) for x in pieces), 3000, str(pieces[0].dtype))


@pytest.mark.parametrize(
    ("dtype", "method"),
    [
        ("float64", {"scheme": "residues", "slices": 14}),
        ("float64", {"scheme": "residues", "slices": 55}),
        ("float64", {"scheme": "digits", "slices": 8}),
        ("float64", {"accuracy": ozaki.Accuracy("row-column", 1e-14)}),
        ("float32", {"scheme": "residues", "slices": 9}),
        ("complex64", {"scheme": "residues", "slices": 10}),
        ("complex128", {"scheme": "residues", "slices": 15}),
    ],
)
@pytest.mark.parametrize("way", ["add", "arrays", "pickle"])
def test_bits(dtype, method, way):
    a, b = operands(dtype)
    of_a, of_b = [cp.asarray(a)[:, at] for at in CUTS], [cp.asarray(b)[at] for at in CUTS]
    left, right = described(of_a, "left"), described(of_b, "right")
    plan = parts.plan(left, right, **method)
    total, *others = (parts.multiply(x, y, left, right, plan) for x, y in zip(of_a, of_b, strict=True))
    for each in others:
        if way == "arrays":
            for own, more in zip(total.arrays, each.arrays, strict=True):
                own += more
        else:
            total.add(pickle.loads(pickle.dumps(each)) if way == "pickle" else each)
    found = total.round()
    assert isinstance(found, cp.ndarray)
    with np.errstate(all="ignore"):
        want = ozaki.matmul(a, b, plan=plan)
    assert np.array_equal(cp.asnumpy(found), want, equal_nan=True)
