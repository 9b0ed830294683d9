"""Products of all kinds of data: no bound is broken, entry by entry, and exact products are the nearest floats.

Run so many products as OZAKI_FUZZ says, in PARTS tests; by default a few.
"""

import os
from fractions import Fraction

import numpy as np
import pytest

import ozaki

PARTS = 16
PRODUCTS = int(os.environ.get("OZAKI_FUZZ", "0"))
KINDS = (
    "normal", "sparse", "banded", "lognormal", "cauchy", "wild", "triangular", "blocks", "integers", "zeros", "tiny",
    "subnormal", "huge", "ties",
)  # fmt: skip
SMALLEST = {"float64": Fraction(1, 2**1074), "float32": Fraction(1, 2**149)}


def draw(rng, shape):
    """Rows and columns of some kind of data."""
    kind, x = KINDS[rng.integers(len(KINDS))], rng.standard_normal(shape)
    i, j = np.indices(shape)
    if kind == "sparse":
        x *= rng.random(shape) < 0.2
    elif kind == "banded":
        x *= abs(i - j) < 3
    elif kind == "lognormal":
        x = np.exp(3 * x) * rng.choice([-1, 1], shape)
    elif kind == "cauchy":
        x = rng.standard_cauchy(shape)
    elif kind == "wild":
        x[rng.integers(shape[0])] *= np.exp2(rng.uniform(-60, 60, shape[1]))
    elif kind == "triangular":
        x = np.tril(x)
    elif kind == "blocks":
        x *= np.exp2((i // 3 * 37 + j // 3 * 11) % 64 - 32.0)
    elif kind == "integers":
        x = np.rint(8 * x)
    elif kind == "zeros":
        x[:, rng.random(shape[1]) < 0.3] = 0
    elif kind == "tiny":
        x *= 2.0**-300
    elif kind == "subnormal":
        x = np.rint(9 * x) * 2.0 ** rng.choice([-1074, -537])
    elif kind == "huge":
        x *= 2.0**500
    elif kind == "ties":
        x = np.where(rng.random(shape) < 0.5, 1.0, 2.0**-53 * rng.choice([-1, 1], shape))
    return x


def operands(rng, largest):
    m, k, n = (int(rng.integers(1, most)) for most in largest)
    a, b = draw(rng, (m, k)), draw(rng, (k, n))
    if rng.random() < 0.4:  # graded along k
        d = np.exp2(rng.integers(-60, 61, k).astype(float))
        a, b = a * d, b / d[:, None]
    dtype = "float32" if rng.random() < 0.25 else "float64"
    if dtype == "float32":
        a, b = (np.clip(x, -1e30, 1e30) for x in (a, b))
    a, b = a.astype(dtype), b.astype(dtype)
    if rng.random() < 0.3:
        a, b = np.asfortranarray(a), b[:, ::-1]
    return a, b


def way(rng, dtype):
    """What is asked of a product."""
    usual = "fp32" if dtype == "float32" else "fp64"
    ways = (
        {"accuracy": usual, "reproducible": True},
        {"accuracy": "exact"},
        {"accuracy": usual, "inner_scaling": True},
        {"accuracy": float(2.0 ** rng.uniform(-60, -5)), "reproducible": True},
        {"accuracy": ozaki.Accuracy("relative", float(2.0 ** rng.uniform(-48, -10)))},
        {"scheme": "residues", "slices": int(rng.integers(8, 26))},
        {"scheme": "digits", "slices": int(rng.integers(4, 9))},
    )
    return ways[rng.integers(len(ways))]


def check(device, rng):
    """One product; returns whether it was computed, since some ask for more than can be proven."""
    a, b = operands(rng, (24, 40, 16))
    asked = way(rng, str(a.dtype))
    try:
        with np.errstate(all="ignore"):
            c, report = device.matmul(a, b, return_report="bounds", **asked)
    except ValueError:
        return False
    c, bounds, smallest = np.asarray(c), device.asnumpy(report.bounds), SMALLEST[str(c.dtype)]
    for i, j in zip(rng.integers(0, len(a), 5), rng.integers(0, b.shape[1], 5), strict=True):
        terms = [Fraction(x) * Fraction(y) for x, y in zip(a[i].tolist(), b[:, j].tolist(), strict=True)]
        exact, size = sum(terms), sum(map(abs, terms))
        if not np.isfinite(c[i, j]):
            assert size >= Fraction(float(np.finfo(c.dtype).max))
            continue
        error = abs(Fraction(float(c[i, j])) - exact)
        assert bounds[i, j] == np.inf or error <= Fraction(float(bounds[i, j])), (asked, i, j)
        if report.measure == "componentwise" and report.bound < np.inf:
            assert error <= Fraction(report.bound) * size + smallest / 2, (asked, i, j)
        elif report.measure == "relative":
            assert error <= Fraction(report.bound) * abs(exact) + smallest / 2, (asked, i, j)
        if asked.get("accuracy") == "exact":
            for beside in (np.nextafter(c[i, j], c.dtype.type(to)) for to in (-np.inf, np.inf)):
                assert not np.isfinite(beside) or error <= abs(Fraction(float(beside)) - exact), (i, j)
    return True


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.timeout(3600 if PRODUCTS else 300)
def test_no_bound_is_broken(device, seed, part):
    rng = np.random.default_rng([seed, part])
    count = PRODUCTS // PARTS if PRODUCTS else device.size(40, 2)
    computed = sum(check(device, rng) for _ in range(count))
    assert 2 * computed >= count
