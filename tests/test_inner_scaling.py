"""Scaling along k: (A S) (S^-1 B) has the product of A B, and needs fewer slices where rows are graded along k."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ozaki
from ozaki import reference
from ozaki.schemes.inner import REACH

DTYPES = ["f8", "f4", "c16", "c8"]
WIDTHS = {"f8": 40, "c16": 40, "f4": 15, "c8": 15}
"""How many binary orders of magnitude inner indices are apart, up and down."""


def same_bits(x, y):
    x, y = np.ascontiguousarray(x), np.ascontiguousarray(y)
    kind = f"u{x.real.itemsize}"
    return x.dtype == y.dtype and x.shape == y.shape and bool((x.view(kind) == y.view(kind)).all())


def graded(rng, left, right, dtype="f8", zeros=0.0):
    """Operands A D and D^-1 B, D a diagonal of powers of two in disorder; some of their inner indices are zero."""
    k, width = left[-1], WIDTHS[dtype]
    d = np.exp2(rng.integers(-width, width + 1, (*left[:-2], k)).astype(float))
    a, b = rng.standard_normal(left), rng.standard_normal(right)
    if dtype.startswith("c"):
        a, b = a + 1j * rng.standard_normal(left), b + 1j * rng.standard_normal(right)
    a, b = a * d[..., None, :], b / d[..., :, None]
    a[..., rng.random(k) < zeros] = 0
    b[..., rng.random(k) < zeros, :] = 0
    return a.astype(dtype), b.astype(dtype)


def mean_exponents(x, axis):
    """Floors of mean frexp exponents of the nonzero elements along an axis, as integers; None where there are none."""
    parts = np.stack([x.real, x.imag]) if x.dtype.kind == "c" else x[None]
    found = []
    for t in range(x.shape[1 - axis]):
        line = parts[:, :, t] if axis == 0 else parts[:, t]
        line = line[np.isfinite(line) & (line != 0)]
        found.append(int(np.frexp(line)[1].sum()) // line.size if line.size else None)
    return found


def scaled(a, b):
    """A S and S^-1 B by the definition, as floats hold them; indices that contribute nothing are zero in both."""
    a, b = a.copy(), b.copy()
    for t, (p, q) in enumerate(zip(mean_exponents(a, 0), mean_exponents(b, 1), strict=True)):
        if p is None or q is None:
            a[:, t], b[t] = 0, 0
        else:
            s = (q - p) // 2
            a[:, t] *= a.real.dtype.type(2.0**s)
            b[t] *= b.real.dtype.type(2.0**-s)
    return a, b


WAYS = {
    "residues": {"scheme": "residues", "slices": 15},
    "wider residues": {"scheme": "residues", "slices": 20},
    "wide residues": {"scheme": "residues", "slices": 40},
    "digits": {"scheme": "digits", "slices": 6},
    "seven bits": {"scheme": "digits7", "slices": 9},
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("order", ["CC", "FF", "CF", "FC"])
def test_the_images_are_those_of_scaled_operands(code, rng, dtype, way, order):
    if dtype.startswith("c") and "residues" not in way:
        pytest.skip("digits of complex operands are not scaled")
    if dtype.startswith("c") and way == "wide residues":
        pytest.skip("so many residues of complex operands are not scaled")
    a, b = graded(rng, (40, 150), (150, 60), dtype, zeros=0.1)
    expected = ozaki.matmul(*scaled(a, b), **WAYS[way])
    x, y = np.array(a, order=order[0]), np.array(b, order=order[1])
    for engine in ("auto", "float64"):
        c = ozaki.matmul(x, y, engine=engine, inner_scaling=True, **WAYS[way])
        assert same_bits(c, expected)


@pytest.mark.parametrize("side", ["left", "right"])
def test_float32_beside_a_prepared_operand_whose_factors_it_does_not_hold(code, rng, side):
    d = rng.integers(-400, 401, 40).astype(float)
    a, b = rng.standard_normal((30, 40)) * np.exp2(d), rng.standard_normal((40, 20)).astype("f4")
    x, y = (a, b) if side == "left" else (b.T, a.T)
    plan = ozaki.plan(x, y, scheme="residues", slices=40, inner_scaling=True)

    def product(b):
        prepared = ozaki.prepare(x if side == "left" else y, side, plan)
        return ozaki.matmul(prepared, b, plan=plan) if side == "left" else ozaki.matmul(b.T, prepared, plan=plan).T

    with pytest.raises(ValueError, match="leave the range of float32"):
        product(b)
    b[abs(d) > 100] = 0
    assert same_bits(product(b), ozaki.matmul(a, b, accuracy="exact"))


@pytest.mark.parametrize("side", ["left", "right"])
def test_one_prepared_matrix_beside_a_stack_of_which_one_lacks_an_index(code, rng, side):
    a, b = graded(rng, (3, 20, 30), (3, 30, 25))
    if side == "left":
        a = a[:1].repeat(3, axis=0)
        b[1, 7] = 0
    else:
        b = b[:1].repeat(3, axis=0)
        a[1, :, 7] = 0
    plan = ozaki.plan(a, b, scheme="residues", slices=60, inner_scaling=True)
    x, y = (ozaki.prepare(a[0], side, plan), b) if side == "left" else (a, ozaki.prepare(b[0], side, plan))
    assert same_bits(ozaki.matmul(x, y, plan=plan), ozaki.matmul(a, b, accuracy="exact", inner_scaling=False))


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_prepared_operand_that_proves_too_little_is_told_from_other_operands(rng, side):
    # Far wider than what the residues leave over: where B's part of the scale is narrow, A alone may prove enough.
    d = np.exp2(rng.permutation(np.arange(-100.0, 100)))
    a, b = rng.standard_normal((100, 200)) * d, rng.standard_normal((200, 100)) / np.sqrt(d)[:, None]
    plan = ozaki.plan(a, b, accuracy="exact")
    assert plan.inner_scaling
    x, y = (ozaki.prepare(a, side, plan), b) if side == "left" else (a, ozaki.prepare(b, side, plan))
    with pytest.raises(ValueError, match="by what the prepared one has; plan with inner_scaling=False"):
        ozaki.matmul(x, y, plan=plan)
    plain = ozaki.plan(a, b, accuracy="exact", inner_scaling=False)
    x, y = (ozaki.prepare(a, side, plain), b) if side == "left" else (a, ozaki.prepare(b, side, plain))
    assert same_bits(ozaki.matmul(x, y, plan=plain), ozaki.matmul(a, b, plan=plan))


@pytest.mark.parametrize(
    "shapes", [((1, 1), (1, 1)), ((2, 1), (1, 40)), ((50, 3000), (3000, 2)), ((3, 20, 30), (3, 30, 25))]
)
def test_shapes(code, rng, shapes):
    a, b = graded(rng, *shapes)
    c = ozaki.matmul(a, b, inner_scaling=True, **WAYS["residues"])
    for at in np.ndindex(c.shape[:-2]):
        assert same_bits(c[at], ozaki.matmul(*scaled(a[at], b[at]), **WAYS["residues"]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_fewer_slices_prove_as_much(code, rng, dtype):
    a, b = graded(rng, (50, 300), (300, 60), dtype)
    bits = "fp64" if dtype in ("f8", "c16") else "fp32"
    plain, with_scaling = (
        ozaki.plan(a, b, accuracy=bits, reproducible=True, inner_scaling=wanted) for wanted in (False, None)
    )
    assert with_scaling.inner_scaling and not plain.inner_scaling
    assert with_scaling.products < plain.products - 5
    ordinary = ozaki.plan(
        np.ones_like(a) * rng.random(a.shape), b * 0 + rng.random(b.shape), accuracy=bits, reproducible=True
    )
    assert with_scaling.slices <= ordinary.slices + 1 and not ordinary.inner_scaling
    assert "inner scaling" in str(with_scaling) and "inner scaling" not in str(plain)
    exact, plainly = (ozaki.plan(a, b, accuracy="exact", inner_scaling=wanted) for wanted in (None, False))
    assert exact.inner_scaling and exact.slices < plainly.slices
    assert same_bits(*(ozaki.matmul(a, b, accuracy="exact", inner_scaling=wanted) for wanted in (None, False)))
    _, report = ozaki.matmul(a, b, accuracy=bits, reproducible=True, return_report=True)
    assert report.inner_scaling and "scaled along k" in str(report)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["f8", "f4"]), st.sampled_from([None, True]))
def test_bounds_hold(seed, dtype, wanted):
    rng = np.random.default_rng(seed)
    m, k, n = (int(x) for x in rng.integers(1, 40, 3))
    a, b = graded(rng, (m, k), (k, n), dtype, zeros=0.2)
    a[rng.random(a.shape) < 0.3] = 0
    if rng.random() < 0.3:
        a[rng.integers(m)] *= 2.0**30
    c, report = ozaki.matmul(
        a, b, accuracy="fp64" if dtype == "f8" else "fp32", reproducible=True, inner_scaling=wanted, return_report=True
    )
    assert reference.componentwise_error(c, a, b) <= report.bound


def test_nothing_is_gained_where_rows_are_not_graded(rng):
    """Ordinary data, a wild row, a diagonal, and data of chance: no scaling, and the same slices as without it."""
    n = 80
    wild = rng.standard_normal((n, n))
    wild[7] *= np.exp2(rng.uniform(-60, 60, n))
    kinds = (
        rng.standard_normal((n, n)),
        wild,
        np.diag(np.exp2(np.linspace(-60, 60, n))),
        np.exp(3 * rng.standard_normal((n, n))),
    )
    for a in kinds:
        b = rng.standard_normal((n, n))
        plans = [ozaki.plan(a, b, accuracy="fp64", reproducible=True, inner_scaling=wanted) for wanted in (None, False)]
        if plans[0].inner_scaling:
            assert plans[0].products < plans[1].products
        else:
            assert plans[0].scheme == plans[1].scheme


def test_nan_and_inf_see_the_operands(code, rng):
    a, b = graded(rng, (30, 60), (60, 40))
    a[:, 7], b[9] = 0, 0
    a[3, 9], a[4, 11], b[7, 5] = np.nan, np.inf, -np.inf  # two of them where the other operand is zero
    with np.errstate(all="ignore"):
        expected = a @ b
    c = ozaki.matmul(a, b, inner_scaling=True, scheme="residues", slices=16)
    assert (np.isnan(c) == np.isnan(expected)).all() and (np.isinf(c) == np.isinf(expected)).all()
    finite = np.isfinite(expected)
    clean = [np.where(np.isfinite(x), x, 0) for x in (a, b)]
    assert (c[finite] == ozaki.matmul(*clean, inner_scaling=True, scheme="residues", slices=16)[finite]).all()


def test_elements_out_of_reach_are_not_scaled(rng):
    a, b = rng.standard_normal((2, 40, 50)), rng.standard_normal((2, 50, 40))
    a[0, :, 3] *= 2.0**1000
    a[0, 1, 3] = 2.0**-600
    way = {"scheme": "residues", "slices": 20}
    c = ozaki.matmul(a, b, inner_scaling=True, **way)
    assert same_bits(c[0], ozaki.matmul(a[0], b[0], **way))
    assert same_bits(c[1], ozaki.matmul(*scaled(a[1], b[1]), **way))
    assert REACH["float32"] < 126 and REACH["float64"] < 1022


def test_a_matrix_beside_itself_is_not_scaled(rng):
    a, _ = graded(rng, (40, 60), (60, 40))
    way = {"scheme": "residues", "slices": 16}
    assert same_bits(ozaki.matmul(a, a.T, inner_scaling=True, **way), ozaki.matmul(a, a.T, **way))


def test_no_operand_is_copied(rng):
    a, b = graded(rng, (700, 800), (800, 600))
    reports = [
        ozaki.matmul(a, b, scheme="residues", slices=14, inner_scaling=wanted, return_report=True)[1]
        for wanted in (False, True)
    ]
    assert reports[1].workspace_bytes - reports[0].workspace_bytes < a.nbytes / 2


def test_gemm_and_relative_bounds(code, rng):
    a, b = graded(rng, (40, 90), (90, 50))
    c = rng.standard_normal((40, 50))
    found, report = ozaki.gemm(0.5, a, b, -2.0, c, accuracy="fp64", reproducible=True, return_report=True)
    exact = ozaki.gemm(0.5, a, b, -2.0, c, accuracy="exact", inner_scaling=False)
    assert report.slices < 20 and np.abs(found - exact).max() <= 1e-13 * (abs(a) @ abs(b)).max()
    product, report = ozaki.matmul(a, b, accuracy="fp64", reproducible=True, return_report="relative")
    assert reference.relative_error(product, a, b) <= report.relative_bound < 1e-6


def own(x):
    """Factors of a right operand that is prepared alone, and of what stands beside it; it has no index of zeros."""
    s = np.array([-found for found in mean_exponents(x, 1)])
    return np.ldexp(1.0, s)


def test_a_prepared_operand_is_scaled_alone(code, rng):
    """Rows of the other one do not depend on what else is in the batch."""
    a, b = graded(rng, (40, 120), (120, 50))
    plan = ozaki.plan(a, b, accuracy="fp64", reproducible=True)
    right = ozaki.prepare(b, "right", plan)
    c, report = ozaki.matmul(a, right, plan=plan, return_report=True)
    assert reference.componentwise_error(c, a, b) <= report.bound <= plan.bound * 4
    by_hand = ozaki.matmul(a / own(b), b * own(b)[:, None], scheme="residues", slices=plan.slices)
    assert same_bits(c, by_hand)
    few = ozaki.plan(a[:3], b, scheme="residues", slices=plan.slices, inner_scaling=True)
    prepared = ozaki.prepare(b, "right", few)
    assert same_bits(ozaki.matmul(a[5:8], prepared, plan=few), c[5:8])
    left = ozaki.prepare(a, "left", plan)
    c, report = ozaki.matmul(left, b, plan=plan, return_report=True)
    assert reference.componentwise_error(c, a, b) <= report.bound
    with pytest.raises(ValueError, match="both prepared"):
        ozaki.matmul(left, right, plan=plan)
    beside = ozaki.prepare(np.ldexp(b, 600), "right", few)
    with pytest.raises(ValueError, match=r"^a: elements leave the range"):
        ozaki.matmul(np.ldexp(a[:3], 940), beside, plan=few)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"accuracy": ozaki.Accuracy("row-column", 1e-15)}, "row-column"),
        ({"accuracy": ozaki.Accuracy("relative", 1e-10)}, "relative"),
        ({"scheme": "fp16-digits", "slices": 5}, "fp16-digits"),
        ({"scheme": "native"}, "native"),
    ],
)
def test_what_it_is_not_for(rng, options, message):
    a, b = graded(rng, (40, 50), (50, 40))
    with pytest.raises(ValueError, match=f"inner_scaling.*{message}"):
        ozaki.matmul(a, b, inner_scaling=True, **options)


def test_refusals(rng):
    a, b = graded(rng, (40, 50), (50, 40))
    with pytest.raises(TypeError, match="inner_scaling: 'yes'"):
        ozaki.matmul(a, b, inner_scaling="yes")
    with pytest.raises(ValueError, match="inner_scaling: True depends on the data"):
        ozaki.plan((40, 50), (50, 40), dtype="float64", inner_scaling=True)
    with pytest.raises(ValueError, match="broadcast"):
        ozaki.matmul(np.stack([a, a]), b, inner_scaling=True, scheme="residues", slices=14)
    plan = ozaki.plan(np.stack([a, a]), np.stack([b, b]), accuracy="fp64", reproducible=True)
    assert plan.inner_scaling
    with pytest.raises(ValueError, match="plan: has inner scaling"):
        ozaki.matmul(np.stack([a, a]), b, plan=plan)
    with pytest.raises(ValueError, match="inner_scaling: True, but 80 residues of complex operands"):
        ozaki.matmul(a + 1j, b + 1j, inner_scaling=True, scheme="residues", slices=80)
    with pytest.raises(ValueError, match="inner_scaling: True, but not of multiprecision numbers"):
        ozaki.matmul(ozaki.mparray(a), ozaki.mparray(b), accuracy=100, inner_scaling=True)


def test_a_plan_serves_other_operands(rng):
    a, b = graded(rng, (40, 70), (70, 50))
    plan = ozaki.plan(a, b, accuracy="fp64", reproducible=True)
    x, y = graded(rng, (40, 70), (70, 50))
    c, report = ozaki.matmul(x, y, plan=plan, return_report=True)
    assert reference.componentwise_error(c, x, y) <= report.bound
    assert same_bits(c, ozaki.matmul(*scaled(x, y), scheme="residues", slices=plan.slices))


def test_the_product_is_exact(rng):
    """Entries that only indices of both kinds contribute to, against fractions."""
    a, b = graded(rng, (6, 40), (40, 30), zeros=0.3)
    c = ozaki.matmul(a, b, accuracy="exact", inner_scaling=True)
    for i, j in ((0, 0), (5, 29), (3, 7)):
        total = sum(Fraction(x) * Fraction(y) for x, y in zip(a[i].tolist(), b[:, j].tolist(), strict=True))
        assert c[i, j] == float(total)
