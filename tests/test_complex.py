"""Complex products on NumPy, against rational numbers; other devices are compared with NumPy in tests/shared."""

import tracemalloc
from fractions import Fraction
from math import hypot, inf

import definition
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ozaki
from ozaki import Accuracy
from ozaki.reference import componentwise_error
from ozaki.schemes import ComplexResidues
from ozaki.schemes.moduli import root_of_minus_one

KINDS = ["c16 c16", "f8 c16", "c16 f8", "c8 c8", "c8 f8", "f4 c16", "f4 c8"]


def made(rng, shape, dtype, spread=0):
    """An array of a dtype, its elements up to 2**spread apart."""

    def part():
        return rng.standard_normal(shape) * 2.0 ** rng.integers(-spread, 1, shape)

    return (part() + 1j * part()).astype(dtype) if dtype[0] == "c" else part().astype(dtype)


def exact(a, b):
    """The exact product: the real and the imaginary parts as object arrays of Fractions."""
    (x, y), (u, v) = (
        tuple(np.vectorize(Fraction, otypes=[object])(p.astype("f8")) for p in (z.real, z.imag)) for z in (a, b)
    )
    return x @ u - y @ v, x @ v + y @ u


def errors(c, a, b):
    """Moduli of the errors of all entries."""
    off = [
        np.vectorize(Fraction, otypes=[object])(got) - want
        for got, want in zip((c.real, c.imag), exact(a, b), strict=True)
    ]
    return np.vectorize(lambda x, y: hypot(float(x), float(y)), otypes=[float])(*off)


def scale_of(measure, a, b, c):
    """What the measure compares the errors with."""
    a, b = (abs(x.astype("c16")) for x in (a, b))
    if measure == "componentwise":
        return a @ b
    if measure == "row-column":
        return np.linalg.norm(a, axis=1)[:, None] * np.linalg.norm(b, axis=0)
    return np.vectorize(lambda x, y: hypot(float(x), float(y)), otypes=[float])(*exact(*c))


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"accuracy": "fp64"},
        {"accuracy": "fp32", "reproducible": True},
        {"accuracy": "dd"},
        {"scheme": "digits"},
        {"scheme": "residues", "slices": 9},
        {"accuracy": Accuracy("row-column", 1e-10)},
        {"accuracy": Accuracy("relative", 1e-10)},
        {"scheme": "native"},
    ],
    ids=str,
)
def test_errors_are_within_the_proven_bound(kinds, options, rng):
    for m, k, n, spread in ((5, 33, 4, 0), (1, 1, 1, 0), (3, 200, 2, 20)):
        a, b = made(rng, (m, k), kinds[:3].strip(), spread), made(rng, (k, n), kinds[3:].strip(), spread)
        c, report = ozaki.matmul(a, b, return_report=True, **options)
        assert c.dtype == (a @ b).dtype and report.bound < inf
        assert (errors(c, a, b) <= report.bound * scale_of(report.measure, a, b, (a, b))).all()


@pytest.mark.parametrize("kinds", KINDS)
def test_every_bit_rounds_each_part_once(kinds, rng):
    a, b = made(rng, (4, 30), kinds[:3].strip(), 15), made(rng, (30, 3), kinds[3:].strip(), 15)
    b[10:20] = np.where(rng.random((10, 3)) < 0.5, 0, b[10:20])
    c = ozaki.matmul(a, b, accuracy="exact")
    for got, want in zip((c.real, c.imag), exact(a, b), strict=True):
        if c.dtype == "c16":  # Python rounds a Fraction to the nearest double
            assert got.tolist() == [[float(x) for x in row] for row in want]
        else:
            off = np.vectorize(lambda x, y: abs(float(Fraction(float(x)) - y)), otypes=[float])(got, want)
            assert (off <= np.spacing(abs(got)) / 2).all()


@pytest.mark.parametrize("count", [3, 8, 15, 21, 40, 55])
@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_residues_have_the_bits_of_the_definition(count, dtype, rng):
    for m, k, n in ((4, 21, 3), (1, 1, 1), (2, 1100, 2)):
        a, b = made(rng, (m, k), dtype, 25), made(rng, (k, n), dtype, 10)
        expected = definition.complex_product(a, b, ComplexResidues(count))
        for engine in ("float64", "int8", "int8-simulated"):
            c, report = ozaki.matmul(a, b, scheme="residues", slices=count, engine=engine, return_report=True)
            assert report.scheme == "complex-residues"
            np.testing.assert_array_equal(c, expected)


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 2**22).map(lambda x: 2 * x + 1))
def test_roots_of_minus_one(m):
    root = root_of_minus_one(m)
    assert (root * root + 1) % m == 0 or not root
    factors = [p for p in range(3, 3000) if m % p == 0]
    rest = m
    for p in factors:
        while rest % p == 0:
            rest //= p
    assert bool(root) == all(p % 4 == 1 for p in (*factors, *([rest] if rest > 1 else [])))


SHAPES = [
    ((4, 5), (5, 3)), ((2, 4, 5), (5, 3)), ((4, 5), (2, 5, 3)), ((2, 4, 5), (2, 5, 3)), ((2, 1, 4, 5), (3, 5, 3)),
    ((5,), (5, 3)), ((4, 5), (5,)), ((5,), (5,)), ((2, 4, 5), (5,)), ((0, 5), (5, 3)), ((4, 0), (0, 3)),
]  # fmt: skip


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("kinds", ["c16 c16", "f8 c16", "c16 f8"])
def test_shapes(shapes, kinds, rng):
    a, b = (made(rng, shape, kind) for shape, kind in zip(shapes, kinds.split(), strict=True))
    expected = a @ b
    for options in ({}, {"reproducible": True}, {"scheme": "residues", "slices": 14}):
        c = ozaki.matmul(a, b, **options)
        assert (c.shape, c.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_allclose(c, expected, rtol=1e-12)
    if expected.ndim:
        c = ozaki.matmul(a, b, reproducible=True)
        for out in (np.empty_like(expected), np.empty((*expected.shape, 2), expected.dtype)[..., 0]):
            assert ozaki.matmul(a, b, out=out, reproducible=True) is out
            np.testing.assert_array_equal(out, c)


@pytest.mark.parametrize("kinds", ["c16 c16", "f8 c16", "c16 f8"])
def test_memory_order_and_limits_change_no_bits(kinds, rng):
    a, b = (made(rng, shape, kind) for shape, kind in zip(((20, 30), (30, 10)), kinds.split(), strict=True))
    expected = ozaki.matmul(a, b, reproducible=True)
    for x in (np.asfortranarray(a), np.repeat(a, 2, 1)[:, ::2], a[::-1].copy()[::-1]):
        for y in (b, np.asfortranarray(b), b[:, ::-1].copy()[:, ::-1]):
            np.testing.assert_array_equal(ozaki.matmul(x, y, reproducible=True), expected)
    np.testing.assert_array_equal(ozaki.matmul(a, b, reproducible=True, workspace_limit=400_000), expected)
    with pytest.raises(ValueError, match=r"^workspace_limit: "):
        ozaki.matmul(a, b, reproducible=True, workspace_limit=1000)


@pytest.mark.parametrize("kinds", ["c16 c16", "f8 c16", "c16 f8"])
@pytest.mark.parametrize("shape", [(200, 300, 200), (20, 5000, 30)], ids=str)
def test_no_more_memory_is_held_than_the_report_says(kinds, shape, rng):
    m, k, n = shape
    a, b = (made(rng, size, kind) for size, kind in zip(((m, k), (k, n)), kinds.split(), strict=True))
    for options in (
        {"scheme": "residues", "slices": 15},
        {"scheme": "digits", "slices": 4},
        {"scheme": "residues", "slices": 9, "workspace_limit": 3 * 10**7},
    ):
        ozaki.matmul(a, b, **options)  # fills caches of constants
        tracemalloc.start()
        c, report = ozaki.matmul(a, b, return_report=True, **options)
        held = tracemalloc.get_traced_memory()[1] - c.nbytes
        tracemalloc.stop()
        assert held <= report.workspace_bytes <= options.get("workspace_limit", inf)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 6), st.integers(1, 20), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_conjugates_and_transposes(m, k, n, seed):
    """Equal bits where the mathematics has equal numbers."""
    rng = np.random.default_rng(seed)
    a, b = made(rng, (m, k), "c16", 10), made(rng, (k, n), "c16", 10)
    c = ozaki.matmul(a, b, reproducible=True)
    np.testing.assert_array_equal(ozaki.matmul(a.conj(), b.conj(), reproducible=True), c.conj())
    np.testing.assert_array_equal(ozaki.matmul(b.T, a.T, reproducible=True), c.T)
    adjoint = a.conj().T.copy()
    np.testing.assert_array_equal(ozaki.gemm(1, adjoint, b, 0, None, trans_a="C", reproducible=True), c)
    h = ozaki.gemm(1, a, a, 0, None, trans_b="C", reproducible=True)
    np.testing.assert_array_equal(h, h.conj().T)
    assert (h.diagonal().imag == 0).all()


@pytest.mark.parametrize("kinds", ["c16 c16", "f8 c16", "c16 f8"])
def test_expressions(kinds, rng):
    a, b = (made(rng, shape, kind) for shape, kind in zip(((2, 6, 9), (9, 4)), kinds.split(), strict=True))
    for c in (made(rng, (2, 6, 4), "c16"), made(rng, (2, 6, 4), "f8")):
        for options in ({}, {"reproducible": True}, {"accuracy": "dd"}):
            d = ozaki.gemm(2.5, a, b, -0.5, c, **options)
            np.testing.assert_allclose(d, 2.5 * (a @ b) - 0.5 * c, rtol=1e-12)
            d, report = ozaki.gemm(1 + 2j, a, b, -0.5j, c, return_report=True, **options)
            np.testing.assert_allclose(d, (1 + 2j) * (a @ b) - 0.5j * c, rtol=1e-12)
            assert not report.rounded_once
            np.testing.assert_array_equal(
                ozaki.gemm(2 + 0j, a, b, 0, None, **options), ozaki.gemm(2, a, b, 0, None, **options)
            )
            np.testing.assert_array_equal(ozaki.gemm(0, a, b, 1j, c, **options), 1j * c)
        np.testing.assert_array_equal(ozaki.gemm(0, a, b, 2, c, reproducible=True), 2 * c)
    d = c.astype("c16")
    assert ozaki.gemm(1, a, b, 1, d, out=d, reproducible=True) is d
    np.testing.assert_array_equal(d, ozaki.gemm(1, a, b, 1, c, reproducible=True))


def test_addends_keep_their_own_precision(rng):
    """An addend of float64, or of its complex numbers, is added to a complex64 product before the one rounding."""
    a, b = made(rng, (6, 9), "c8"), made(rng, (9, 4), "c8")
    real, imaginary = exact(a, b)
    for c in (made(rng, (6, 4), "c16"), made(rng, (6, 4), "f8")):
        d = ozaki.gemm(1, a, b, 1, c, accuracy="exact", dtype="complex64")
        for got, product, addend in ((d.real, real, c.real), (d.imag, imaginary, c.imag)):
            sums = product + np.vectorize(Fraction, otypes=[object])(addend)
            expected = [[np.float32(x) for x in row] for row in sums]
            assert got.tolist() == np.array(expected, "f4").tolist()
    large = ozaki.gemm(1, a, b, 1e-30, made(rng, (6, 4), "c16") * 1e60, accuracy="exact", dtype="complex64")
    assert np.isfinite(large).all()


def test_operands_are_not_read_with_a_factor_of_zero(rng):
    a, b, c = made(rng, (3, 4), "c16"), made(rng, (4, 3), "c16"), made(rng, (3, 3), "c16")
    a[0, 0] = np.nan
    for zero in (0, 0j, -0.0):
        d, report = ozaki.gemm(zero, a, b, 1, c, accuracy="fp64", return_report=True)
        np.testing.assert_array_equal(d, c)
        assert report.nonfinite is None or report.nonfinite == 0


def test_residuals_have_all_their_digits(rng):
    a, x = made(rng, (8, 8), "c16"), made(rng, (8, 1), "c16")
    y = a @ x
    got = ozaki.gemm(-1, a, x, 1, y, accuracy="exact")
    np.testing.assert_array_equal(ozaki.residual(a, x, y), got)
    for part, of_y, product in zip((got.real, got.imag), (y.real, y.imag), exact(a, x), strict=True):
        assert part.tolist() == [[float(Fraction(float(s)) - p)] for (s,), (p,) in zip(of_y, product, strict=True)]


def test_nan_and_inf_are_those_of_real_products_of_parts(rng):
    a, b = made(rng, (6, 8), "c16"), made(rng, (8, 5), "c16")
    a[3, 4], a[5, 6], b[2, 3] = np.nan, complex(0, np.inf), -np.inf
    c, report = ozaki.matmul(a, b, reproducible=True, return_report=True)
    assert report.nonfinite == 3
    with np.errstate(all="ignore"):

        def sums(x, y):
            return (x[:, :, None] * y).sum(axis=1)

        for got, want in (
            (c.real, sums(a.real, b.real) + sums(a.imag, -b.imag)),
            (c.imag, sums(a.real, b.imag) + sums(a.imag, b.real)),
        ):
            np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
            np.testing.assert_array_equal(got[np.isinf(want)], want[np.isinf(want)])
            assert np.isfinite(got[np.isfinite(want)]).all()


def test_plans_and_prepared_operands(rng):
    for kinds in ("c16 c16", "f8 c16", "c16 f8"):
        a, b = (made(rng, shape, kind) for shape, kind in zip(((7, 9), (9, 3)), kinds.split(), strict=True))
        plan = ozaki.plan(a, b, accuracy="fp64", reproducible=True)
        assert (plan.shape, plan.dtype) == ((7, 9, 3), "complex128")
        left, right = ozaki.prepare(a, "left", plan), ozaki.prepare(b, "right", plan)
        expected = ozaki.matmul(a, b, accuracy="fp64", reproducible=True)
        for x in (a, left):
            for y in (b, right):
                c, report = ozaki.matmul(x, y, plan=plan, return_report=True)
                np.testing.assert_array_equal(c, expected)
                assert report.bound == plan.bound
    square, real = made(rng, (3, 3), "c16"), made(rng, (3, 3), "f8")
    with pytest.raises(ValueError, match=r"^plan: made for a and b that are complex and real, but they are real and"):
        ozaki.matmul(real, square, plan=ozaki.plan(square, real, reproducible=True))


@pytest.mark.parametrize(("slices", "products"), [(15, 30), (20, 40), (22, 46)])
def test_products_are_two_or_three_for_each_modulus(slices, products):
    plan = ozaki.plan((6, 50), (50, 4), dtype="complex128", scheme="residues", slices=slices)
    assert (plan.slices, plan.products) == (slices, products)


def test_plans_for_shapes_are_those_of_two_complex_operands(rng):
    plan = ozaki.plan((6, 50), (50, 4), dtype="complex128", accuracy=Accuracy("row-column", 1e-15))
    a, b = made(rng, (6, 50), "c16", 30), made(rng, (50, 4), "c16", 30)
    c = ozaki.matmul(a, b, plan=plan)
    assert (errors(c, a, b) <= plan.bound * scale_of("row-column", a, b, None)).all()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda a, x: ozaki.matmul(a, a, dtype="float64"), TypeError, "dtype: 'float64', but the product is complex"),
        (lambda a, x: ozaki.matmul(x, x, dtype="complex128"), TypeError, "dtype: 'complex128', but a and b are real"),
        (lambda a, x: ozaki.matmul(a, x.astype(int), dtype="int64"), TypeError, "dtype: 'int64', but the product is"),
        (lambda a, x: ozaki.gemm(1j, x, x, 0, None), TypeError, "alpha: 1j; expected a real number"),
        (lambda a, x: ozaki.gemm("1", a, a, 0, None), TypeError, "alpha: '1'; expected a number"),
        (
            lambda a, x: ozaki.gemm(1, a.astype("F"), a.astype("F"), 1e60j, a),
            ValueError,
            "beta: 1e\\+60; expected a number in",
        ),
        (lambda a, x: ozaki.gemm(1, x, x, 1, a), TypeError, "c: complex, but a and b are real"),
        (lambda a, x: ozaki.gemm(1, a, a, 0, None, trans_a="X"), TypeError, "trans_a: 'X'; expected True or False"),
        (lambda a, x: ozaki.matmul(a, a, out=x), ValueError, "out: .*expected .* and complex128"),
        (lambda a, x: ozaki.matmul(a, a, scheme="halfhalf"), ValueError, "scheme: halfhalf multiplies float32"),
        (lambda a, x: ozaki.matmul(a.astype("G"), a), TypeError, "a: dtype complex256 is not supported"),
        (
            lambda a, x: ozaki.matmul(a, x, scheme="complex-residues"),
            ValueError,
            "scheme: 'complex-residues' are those",
        ),
        (
            lambda a, x: ozaki.prepare(x, "left", ozaki.plan(a, a, reproducible=True)),
            TypeError,
            "x: dtype float64, but the plan is made for a complex left operand",
        ),
    ],
)
def test_what_is_refused(call, error, message):
    a, x = np.eye(3) * 1j, np.eye(3)
    with pytest.raises(error, match=f"^{message}"):
        call(a, x)


def test_real_numbers_in_complex_arrays(rng):
    """A bound compares with abs(A) abs(B), so that parts which are zero everywhere need no slices of their own."""
    a, b = rng.standard_normal((30, 50)) + 0j, 1j * rng.standard_normal((50, 20))
    c, report = ozaki.matmul(a, b, accuracy="fp64", reproducible=True, return_report=True)
    assert report.slices <= 16
    assert componentwise_error(c, a, b) <= report.bound <= Accuracy.of("fp64", 50).tolerance * (1 + 2**-10) + 2**-53
