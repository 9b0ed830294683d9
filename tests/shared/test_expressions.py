"""gemm by exact slices: alpha A B + beta C is rounded once, to the bits of the definition, on every device."""

from fractions import Fraction

import definition
import numpy as np
import pytest
from cases import assert_same, power, rounded, viewed

import ozaki
from ozaki.schemes import Digits, Residues

SCHEMES = [(Residues(14), "f8"), (Residues(7), "f4"), (Digits(3), "f4"), (Digits(7), "f8")]
FACTORS = [
    (-1.0, 1.0),
    (1 / 3, -0.7),
    (-2.0, 0.0),
    (0.3, 0.0),
    (2.0**-20, 1.0),
    (1.0, 2.0**-60),
    (2.0**100, -(2.0**99)),
]


def fractions(x):
    return np.array([Fraction(float(v)) for v in np.ravel(x)], object).reshape(np.shape(x))


def defined(a, b, scheme, alpha, beta, c):
    """RN(alpha Cbar 2**-(mu_i + nu_j) + beta c_ij) of matrices of finite numbers, in rationals."""
    mu, nu, cbar = definition.images(a, b, scheme)
    dtype = np.result_type(a, b)
    out = np.empty((len(mu), len(nu)), dtype)
    for i, j in np.ndindex(out.shape):
        value = Fraction(alpha) * cbar[i][j] * power(-(mu[i] + nu[j]))
        out[i, j] = rounded(value + (Fraction(beta) * Fraction(float(c[i, j])) if beta else 0), dtype)
    return out


def addend(rng, a, b, alpha, beta, dtype):
    """Entries that cancel alpha A B, wholly or but for the last bits; others of all sizes, zeros and subnormals."""
    c = np.array(a.astype("f8") @ b.astype("f8") * (-alpha / beta if beta else 1.0))
    with np.errstate(over="ignore", under="ignore"):
        c[rng.random(c.shape) < 0.2] *= 1 + 2.0**-20
        far = rng.random(c.shape) < 0.3
        c[far] = np.ldexp(c[far], rng.integers(-100, 100, far.sum()))
        c = np.clip(c, -np.finfo(dtype).max, np.finfo(dtype).max).astype(dtype)
    c[rng.random(c.shape) < 0.05] = 0.0
    c[rng.random(c.shape) < 0.05] = -np.finfo(dtype).smallest_subnormal
    return c


@pytest.mark.parametrize(("scheme", "dtype"), SCHEMES, ids=str)
def test_bits_of_the_definition(device, rng, scheme, dtype):
    options = {"scheme": scheme.name, "slices": scheme.count}
    for alpha, beta in device.some(FACTORS, 3, rng):
        m, k, n = rng.integers(1, 12), rng.integers(1, 40), rng.integers(1, 14)
        a, b = (rng.standard_normal(shape).astype(dtype) for shape in ((m, k), (k, n)))
        a[rng.random(a.shape) < 0.1] = 0
        b = np.ldexp(b, rng.integers(-9, 10, n)).astype(dtype)
        c = addend(rng, a, b, alpha, beta, dtype)
        x, y, z = (device.asarray(viewed(rng, v)) for v in (a, b, c))
        expected = defined(a, b, scheme, alpha, beta, c)
        for _ in range(2):
            got = ozaki.gemm(alpha, x, y, beta, z if beta else None, **options)
            assert_same(expected, device.asnumpy(got), alpha, beta, options)
        if scheme.name == "residues" and dtype == "f8":
            narrow = rng.standard_normal((m, n)).astype("f4")
            got = ozaki.gemm(alpha, x, y, beta, device.asarray(narrow), **options)
            assert_same(defined(a, b, scheme, alpha, beta, narrow), device.asnumpy(got), alpha, beta, "f4")


@pytest.mark.parametrize(("scheme", "dtype"), [SCHEMES[0], SCHEMES[2]], ids=str)
def test_subnormal_and_infinite_sums(device, rng, scheme, dtype):
    """Sums in the subnormals are rounded once; a sum is Inf if it overflows itself, not if one of its terms does."""
    info, options = np.finfo(dtype), {"scheme": scheme.name, "slices": scheme.count}
    a, b = (rng.standard_normal(shape).astype(dtype) for shape in ((6, 9), (9, 8)))
    tiny = np.ldexp(a, info.minexp - 3).astype(dtype)
    c = np.ldexp(rng.standard_normal((6, 8)), info.minexp - rng.integers(0, 30, (6, 8))).astype(dtype)
    large = np.ldexp(a, info.maxexp - 3).astype(dtype)
    against = np.where(rng.random((6, 8)) < 0.5, np.sign(a @ b), rng.uniform(-1, 1, (6, 8)))
    most = (info.max * against).astype(dtype)
    for x, alpha, beta, z in ((tiny, 0.3, -0.7, c), (tiny, 2.0**-9, 1.0, c), (large, 4.0, -1.5, most)):
        got = ozaki.gemm(alpha, device.asarray(x), device.asarray(b), beta, device.asarray(z), **options)
        expected = defined(x, b, scheme, alpha, beta, z)
        assert_same(expected, device.asnumpy(got), alpha, beta)
    assert np.isinf(expected).any() and np.isfinite(expected).any()


def test_a_zero_is_positive(device, rng):
    """An exact zero is +0, whatever the signs of factors and terms; a sum that underflows keeps its sign."""
    a, b = (rng.integers(-5, 6, shape).astype("f8") for shape in ((4, 3), (3, 5)))
    x, y, options = device.asarray(a), device.asarray(b), {"scheme": "residues", "slices": 14}
    zeros = np.zeros((4, 5))
    nothing = device.asarray(-zeros)
    for alpha, beta, left, c in (
        (-1.0, 1.0, x, device.asarray(a @ b)),
        (-1.0, 0.0, 0 * x, None),
        (-3.0, 0.0, 0 * x, None),
        (-3.0, -1.0, 0 * x, nothing),
        (3.0, 1.0, 0 * x, nothing),
        (0.0, 1.0, x, nothing),
        (0.0, -0.5, x, device.asarray(zeros)),
    ):
        assert_same(zeros, device.asnumpy(ozaki.gemm(alpha, left, y, beta, c, **options)), alpha, beta)
    assert_same(zeros, device.asnumpy(ozaki.gemm(1.0, x[:, :0], y[:0], 1.0, nothing, **options)))
    least = device.asarray(zeros - np.finfo("f8").smallest_subnormal)
    assert_same(-zeros, device.asnumpy(ozaki.gemm(1.0, 0 * x, y, 0.25, least, **options)))


@pytest.mark.parametrize(("scheme", "dtype"), [SCHEMES[0], SCHEMES[2]], ids=str)
def test_nan_and_inf(device, rng, scheme, dtype):
    """Those of c count as in IEEE arithmetic beside a finite product; beside those of A and B, finite c do not."""
    options = {"scheme": scheme.name, "slices": scheme.count}
    a, b, c = (rng.standard_normal(shape).astype(dtype) for shape in ((5, 6), (6, 7), (5, 7)))
    c[:, 1], c[:, 2], c[3, 3] = np.inf, np.nan, -np.inf
    special = a.copy()
    special[0, 0], special[2, 1] = -np.inf, np.nan
    for alpha, beta in device.some([(-1.0, 1.0), (0.3, -2.0), (2.0, 0.0), (-0.7, 0.0), (3.0, 2.0**99)], 3, rng):
        finite = np.where(np.isfinite(c), c, 0)
        expected = defined(a, b, scheme, alpha, beta, finite)
        with np.errstate(invalid="ignore"):
            if beta:
                expected = np.where(np.isfinite(c), expected, c * np.sign(beta)).astype(dtype)
            product = np.sign(alpha) * (special @ b)
            added = np.where(np.isfinite(c), 0, np.sign(beta) * c) if beta else 0
            touched = np.where(np.isfinite(product), expected, product + added).astype(dtype)
        for left, wanted in ((a, expected), (special, touched)):
            got = ozaki.gemm(alpha, device.asarray(left), device.asarray(b), beta, device.asarray(c), **options)
            assert_same(wanted, device.asnumpy(got), alpha, beta)
    for alpha, beta in ((np.nan, 1.0), (1.0, np.inf), (-np.inf, 0.0), (0.0, np.nan)):
        got = ozaki.gemm(alpha, device.asarray(a), device.asarray(b), beta, device.asarray(c), **options)
        with np.errstate(invalid="ignore"):
            whole = np.zeros((), dtype) if alpha == 0 else np.array(alpha, dtype) * ozaki.matmul(a, b, **options)
            wanted = whole + np.array(beta, dtype) * c if beta else whole
        assert_same(np.asarray(wanted, dtype), device.asnumpy(got), alpha, beta)


def test_what_is_not_read(device, rng):
    """With alpha = 0 neither A nor B counts, with beta = 0 not c; beta c alone is rounded once."""
    c, options = rng.standard_normal((4, 5)).astype("f4"), {"scheme": "residues", "slices": 7}
    nan, ones = (device.full((4, 4), value, "f4") for value in (np.nan, 1))
    right, none = device.full((4, 5), 1, "f4"), device.full((4, 5), np.nan, "f4")
    beta = 1 / 3  # of more bits than float32 has
    expected = defined(np.zeros((4, 1), "f4"), np.zeros((1, 5), "f4"), Residues(7), 1, beta, c)
    plan = ozaki.plan((4, 4), (4, 5), dtype="float32", **options)
    prepared = ozaki.prepare(nan, "left", plan)
    for left, way in ((nan, options), (nan, {"scheme": "native"}), (nan, {"plan": plan}), (prepared, {"plan": plan})):
        assert_same(expected, device.asnumpy(ozaki.gemm(0.0, left, right, beta, device.asarray(c), **way)), way)
        assert_same(np.zeros((4, 5), "f4"), device.asnumpy(ozaki.gemm(0, left, right, 0, none, **way)), way)
    assert_same(np.full((4, 5), -12, "f4"), device.asnumpy(ozaki.gemm(-3, ones, right, 0, none, **options)))


def test_into_any_memory(device, rng):
    """`out` may be c, overlap it or an operand, or have gaps; operands may be transposed, stacked and prepared."""
    scheme = [Residues(14), Digits(7)][rng.integers(2)]
    options = {"scheme": scheme.name, "slices": scheme.count}
    a, b, c = (rng.standard_normal(shape) for shape in ((7, 6), (6, 7), (7, 7)))
    expected = defined(a, b, scheme, 1 / 3, -0.7, c)
    for where in ("c", "half of c", "gaps", "c transposed", "a"):
        wide = device.asarray(np.concatenate([c, c], 1))
        x, y, z = device.asarray(a.copy()), device.asarray(b), wide[:, :7]
        square = device.asarray(np.concatenate([a, a[:, :1]], 1))
        outs = {"c": z, "half of c": wide[:, 3:10], "gaps": device.full((7, 14), np.nan)[:, ::2], "a": square}
        out = outs.get(where)
        if where == "c transposed":
            z = device.asarray(c.T.copy()).T
            out = z
        x = square[:, :6] if where == "a" else x
        for _ in range(1 if where in ("c", "half of c", "a", "c transposed") else 2):
            assert ozaki.gemm(1 / 3, x, y, -0.7, z, out=out, **options) is out
            assert_same(expected, device.asnumpy(out), where, options)
    turned = ozaki.gemm(
        1 / 3, device.asarray(a.T.copy()), device.asarray(b.T.copy()), -0.7, device.asarray(c), trans_a=True,
        trans_b=True, **options,
    )  # fmt: skip
    assert_same(expected, device.asnumpy(turned), options)
    plan = ozaki.plan(a.shape, b.shape, dtype="float64", **options)
    left, right = ozaki.prepare(device.asarray(a), "left", plan), ozaki.prepare(device.asarray(b), "right", plan)
    for pair in device.some([(left, right), (device.asarray(a), right), (left, device.asarray(b))], 2, rng):
        assert_same(expected, device.asnumpy(ozaki.gemm(1 / 3, *pair, -0.7, device.asarray(c), plan=plan)), plan)


STACKS = [((3,), ()), ((), (3,)), ((2, 3), (3,)), ((2, 1), (1, 3)), ((3, 1), (3, 1))]


@pytest.mark.parametrize(("left", "right"), STACKS)
def test_stacks(device, rng, left, right):
    """Every matrix of a batch has its own addend, whichever operand is broadcast, and wherever the addend lies."""
    options = {"scheme": "residues", "slices": 14}
    a, b = rng.standard_normal((*left, 3, 9)), rng.standard_normal((*right, 9, 4))
    batch = np.broadcast_shapes(left, right)
    c = rng.standard_normal((*batch, 3, 4))
    every_a, every_b = np.broadcast_to(a, (*batch, 3, 9)), np.broadcast_to(b, (*batch, 9, 4))
    for z in (device.asarray(c), device.asarray(viewed(rng, c))):
        got = device.asnumpy(ozaki.gemm(-1.0, device.asarray(a), device.asarray(b), 0.3, z, **options))
        for at in np.ndindex(batch):
            assert_same(defined(every_a[at], every_b[at], Residues(14), -1.0, 0.3, c[at]), got[at], at)
    assert ozaki.gemm(2, device.full((2, 0, 3), 1), device.full((3, 4), 1), 1, device.full((2, 0, 4), 1)).size == 0


def test_residuals(device, rng):
    """gemm(-1, A, x, 1, y, accuracy="dd") and `residual` have all digits of what cancels, as the report says."""
    a, x = rng.standard_normal((9, 12)), rng.standard_normal(12)
    y = a @ x
    exact = fractions(y) - fractions(a) @ fractions(x)
    given = device.asarray(a), device.asarray(x), device.asarray(y)
    got, report = ozaki.gemm(
        -1, *given[:2], 1, given[2], accuracy="dd", scheme="residues", return_report=True
    )  # fmt: skip
    assert device.asnumpy(got).tolist() == [float(v) for v in exact]
    assert report.rounded_once and report.bound < 2.0**-52
    sizes = abs(fractions(a)) @ abs(fractions(x)) + abs(fractions(y))
    assert (abs(fractions(device.asnumpy(got)) - exact) <= Fraction(report.bound) * sizes).all()
    assert device.asnumpy(ozaki.residual(*given)).tolist() == [float(v) for v in exact]
    _, report = ozaki.gemm(-1, *given[:2], 1, given[2], scheme="native", return_report=True)
    assert report.rounded_once is False and "A B alone" in str(report)
    assert ozaki.matmul(*given[:2], return_report=True)[1].rounded_once is None


def test_exact_products_of_floats(device, rng):
    """With accuracy="exact" a float result is the exact one, rounded once, by as many residues as that takes."""
    a, b = rng.standard_normal((5, 7)), np.ldexp(rng.standard_normal((7, 6)), rng.integers(-30, 30, (7, 6)))
    exact = fractions(a) @ fractions(b)
    c, report = device.matmul(a, b, accuracy="exact", return_report=True)
    assert c.tolist() == exact.astype(float).tolist()
    assert report.bound == 2.0**-53 and report.scheme == "residues"
    far = device.size(400, 130)  # some 150 or 70 residues; those after the 49th take two digits
    wide = device.asarray(np.ldexp(a, rng.choice([-far, far], a.shape)))
    wide[0, 0], wide[0, 1] = 2.0**far, 2.0**-far
    given = wide, device.asarray(b * 2.0**-60)
    exact_wide = fractions(device.asnumpy(wide)) @ fractions(b * 2.0**-60)
    assert device.asnumpy(ozaki.matmul(*given, accuracy="exact")).tolist() == exact_wide.astype(float).tolist()
    a[0, 0], b[2, 1] = np.inf, np.nan
    with np.errstate(invalid="ignore"):
        special = a @ b
    c = device.matmul(a, b, accuracy="exact")
    assert_same(special, np.where(np.isfinite(special), special, c))
    assert c[1:, [0, 2]].tolist() == exact[1:, [0, 2]].astype(float).tolist()


def test_engines(device, rng):
    """Every engine that rounds expressions gives the same bits; the kernels that round digits alone say so."""
    a, b, c = (rng.standard_normal(shape).astype("f4") for shape in ((6, 9), (9, 5), (6, 5)))
    given = device.asarray(a), device.asarray(b)
    for scheme in (Digits(3), Residues(7)):
        expected = defined(a, b, scheme, 0.3, -1.0, c)
        for engine in device.engines:
            options = {"scheme": scheme.name, "slices": scheme.count, "engine": engine, "return_report": True}
            if engine == "fused" and scheme.name == "digits":
                with pytest.raises(ValueError, match=r"^engine: 'fused' rounds products of digits alone"):
                    ozaki.gemm(0.3, *given, -1.0, device.asarray(c), **options)
                options["engine"] = "auto"
            got, report = ozaki.gemm(0.3, *given, -1.0, device.asarray(c), **options)
            assert_same(expected, device.asnumpy(got), options)
            assert scheme.name == "residues" or "fused" not in report.engine
