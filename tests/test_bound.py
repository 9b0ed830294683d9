"""Bounds hold, for random and for adversarial data, and are no looser than they need to be."""

from fractions import Fraction
from math import ceil, hypot, inf, isqrt, sqrt

import definition
import numpy as np
import pytest
from cases import LOOSEST, bounds_of, measured, power, same_bits, spread, viewed, with_ranges, work_of
from tiers import some_first

import ozaki
from ozaki import Accuracy, reference
from ozaki._cli.verify import MEASURES
from ozaki.backends.numpy._describe import Described, describe, sample
from ozaki.bounds import exact as exact_bounds
from ozaki.bounds import native as native_bounds
from ozaki.bounds.a_priori import a_priori, usual_of_sample, usual_rms
from ozaki.bounds.description import SAMPLED
from ozaki.bounds.rounding import with_rounding
from ozaki.schemes import Digits, Residues, magnitude_bits

UNIT = {"float32": 2.0**-24, "float64": 2.0**-53}


def sampled(rng, size, most=10):
    return np.sort(rng.permutation(size)[:most])


# The promise --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("repetition", some_first(2, range(10)))
@pytest.mark.parametrize("measure", list(MEASURES))
@pytest.mark.parametrize("scheme", ["digits", "residues"])
def test_error_bound_and_target(rng, scheme, measure, repetition):
    """error <= bound <= target for random problems, tolerances and ranges."""
    for _ in range(4):
        m, k, n = (int(v) for v in rng.integers(0, 301, 3))
        if repetition % 2:
            m, k, n = m // 8, k // 8, n // 8
        if measure == "normwise":  # this measure is one of the whole matrix
            m, n = m // 6, n // 6
        dtype, span = str(rng.choice(["float32", "float64"])), int(rng.integers(0, 61))
        a, b = with_ranges(rng, (m, k), span, dtype), with_ranges(rng, (n, k), span, dtype).T
        target = Accuracy(measure, float(2.0 ** rng.uniform(-90, -2)))
        c, report = ozaki.matmul(
            viewed(rng, a), viewed(rng, b), accuracy=target, scheme=scheme, reproducible=True, return_report=True
        )
        rows, cols = sampled(rng, m, most=m if measure == "normwise" else 10), sampled(rng, n)
        cols = None if measure == "normwise" else cols
        error = MEASURES[measure](c, a, b, rows=rows, cols=cols)
        about = (target, report, a.shape, b.shape, a.dtype, span)
        assert report.measure == measure
        assert error <= report.bound, about
        assert report.bound <= (target.tolerance + UNIT[dtype] * (1 + target.tolerance)) * (1 + 2**-29), about


@pytest.mark.parametrize("accuracy", ["fp32", "fp64", "dd", 30, 80, 1e-5, 1e-40])
def test_the_bound_of_every_shorthand(rng, accuracy):
    for dtype in ("float32", "float64"):
        a, b = spread(rng, (9, 120), 8, dtype), spread(rng, (120, 7), 8, dtype)
        c, report = ozaki.matmul(a, b, accuracy=accuracy, reproducible=True, return_report=True)
        assert reference.componentwise_error(c, a, b) <= report.bound
        tolerance = Accuracy.of(accuracy, 120).tolerance
        assert report.bound <= (tolerance + UNIT[dtype] * (1 + tolerance)) * (1 + 2**-29)


@pytest.mark.parametrize("generator", some_first(1, ["standard_normal", "random"]))
@pytest.mark.parametrize("k", some_first(2, [10, 300, 100, 1000]))
@pytest.mark.parametrize("accuracy", ["fp32", "fp64"])
def test_the_bound_is_within_2_8_of_the_error_for_ordinary_data(rng, generator, k, accuracy):
    draw = getattr(rng, generator)
    a, b = draw((100, k)), draw((k, 100))  # in fewer entries the worst error may be far below what an error can be
    for scheme in ("digits", "residues"):
        c, report = ozaki.matmul(a, b, accuracy=accuracy, scheme=scheme, return_report=True)
        error = reference.componentwise_error(c, a, b)
        assert error <= report.bound <= 2**8 * error, (scheme, report)


@pytest.mark.parametrize("measure", ["row-column", "normwise"])
def test_the_norm_bounds_are_within_2_8_of_the_error_for_ordinary_data(rng, measure):
    for tolerance in (1e-6, 1e-10):
        a, b = rng.standard_normal((40, 500)), rng.standard_normal((500, 40))
        c, report = ozaki.matmul(a, b, accuracy=Accuracy(measure, tolerance), reproducible=True, return_report=True)
        error = MEASURES[measure](c, a, b)
        assert error <= report.bound <= 2**8 * error


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scheme", ["digits", "residues", "auto"])
def test_products_of_integers_report_just_the_rounding(rng, dtype, scheme):
    a, b = (rng.integers(-1000, 1001, shape).astype(dtype) for shape in ((20, 50), (50, 20)))
    for left, right in ((a, b), (np.eye(50, dtype=dtype)[:20] * 0.5, b), (a, np.eye(50, dtype=dtype))):
        c, report = ozaki.matmul(left, right, accuracy=1e-300, scheme=scheme, reproducible=True, return_report=True)
        assert report.bound == UNIT[dtype]
        assert np.array_equal(c, left.astype("float64") @ right.astype("float64"))


def test_identity_times_anything_reports_just_the_rounding(rng):
    b = spread(rng, (30, 30), 10)
    c, report = ozaki.matmul(np.eye(30), b, accuracy=1e-300, reproducible=True, return_report=True)
    assert report.bound == 2.0**-53
    assert np.array_equal(c, b)


@pytest.mark.parametrize("scheme", ["digits", "digits7", "residues"])
def test_forced_slices_get_the_bound_that_they_have(rng, scheme):
    a, b = spread(rng, (12, 200), 10), spread(rng, (200, 12), 10)
    a[3], b[:, 5] = 0, 0
    bounds = []
    for slices in (2, 4, 8, 16, 30):
        for measure in MEASURES:
            c, report = measured(measure, a, b, scheme=scheme, slices=slices)
            assert report.measure == measure
            if report.bound < 1:
                target = Accuracy(measure, LOOSEST)
                assert report.bound <= ozaki.plan(a, b, scheme=scheme, slices=slices, accuracy=target).bound
            assert MEASURES[measure](c, a, b) <= report.bound
        bounds.append(ozaki.plan(a, b, scheme=scheme, slices=slices).bound)
    assert bounds == sorted(bounds, reverse=True)


def test_a_batch_has_the_bound_of_its_worst_matrix(rng):
    for left, right in (((4,), (4,)), ((4,), ()), ((), (4,))):
        a, b = spread(rng, (*left, 6, 1500), 3), spread(rng, (*right, 1500, 5), 3)
        a[..., 2, 10:] *= 2.0**-30
        for measure in MEASURES:
            target = Accuracy(measure, 1e-13)
            c, report = ozaki.matmul(a, b, accuracy=target, reproducible=True, return_report=True)
            every_a, every_b = np.broadcast_to(a, (4, 6, 1500)), np.broadcast_to(b, (4, 1500, 5))
            worst = max(MEASURES[measure](c[i], every_a[i], every_b[i]) for i in range(4))
            assert worst <= report.bound <= target.tolerance + 2.0**-52


def test_the_matrices_of_a_stack_have_normwise_errors_of_their_own(rng):
    """Normwise errors are bounded for each matrix, though with one right operand all could be multiplied as one."""
    a, b = rng.standard_normal((2, 4, 64)), rng.integers(-4, 5, (64, 4)).astype(float)
    a[0] = rng.integers(-4, 5, (4, 64)) * 2.0**60
    target = Accuracy("normwise", 1e-8)
    plan = ozaki.plan(a, b, accuracy=target, reproducible=True)
    for options in ({"accuracy": target, "reproducible": True}, {"plan": plan}):
        c, report = ozaki.matmul(a, b, return_report=True, **options)
        worst = max(reference.normwise_error(c[i], a[i], b) for i in range(2))
        assert 0 < worst <= report.bound <= target.tolerance + 2.0**-52


def test_a_plan_of_other_data_is_proven_anew(rng):
    a, b = rng.standard_normal((10, 100)), rng.standard_normal((100, 10))
    plan = ozaki.plan(a, b, accuracy="fp64", reproducible=True, strict=False)
    wide = a * 2.0 ** -rng.integers(0, 60, a.shape)
    with pytest.warns(UserWarning, match="plan: proves"):
        c, report = ozaki.matmul(wide, b / wide[0, :, None], plan=plan, return_report=True)
    assert report.bound > plan.bound
    assert reference.componentwise_error(c, wide, b / wide[0, :, None]) <= report.bound


def test_the_report_speaks_of_the_operands_even_where_the_result_overwrites_one(rng):
    a, b = spread(rng, (30, 30), 20), spread(rng, (30, 30), 20)
    plan = ozaki.plan(a, b, accuracy="fp64", reproducible=True)
    _, expected = ozaki.matmul(a, b, plan=plan, return_report=True)
    _, report = ozaki.matmul(a, b, plan=plan, out=a, return_report=True)
    assert report.bound == expected.bound


# Entry by entry, before the rounding --------------------------------------------------------------------------------


def image_errors(a, b, scheme, images=None):
    """abs(Cbar 2**-(mu_i + nu_j) - (A B)_ij), exactly; `images` are those of the definition."""
    mu, nu, cbar = images or definition.images(a, b, scheme)
    exact, exponent = reference.exact_matmul(a, b)
    error = np.empty(exact.shape, object)
    for i, j in np.ndindex(exact.shape):
        error[i, j] = abs(cbar[i][j] * power(-(mu[i] + nu[j])) - int(exact[i, j]) * power(exponent))
    return error


def described(a, b) -> tuple[Described, Described]:
    return describe(a[None]), describe(b.T[None])


def squares(rows):
    """The exact sum of squares of each row."""
    found = [reference.exact_matmul(row[None], row[:, None]) for row in rows]
    return [int(total[0, 0]) * power(exponent) for total, exponent in found]


def check_every_bound(a, b, scheme, *about, images=None):
    """Assert B1 for each entry, B2, B3, B4 and the componentwise ratio, in rationals; return how sharp B1 is."""
    errors = image_errors(a, b, scheme, images)
    left, right = described(a, b)
    spans = left.span, right.span
    terms = exact_bounds.error_terms(left.on_host, right.on_host, scheme, scheme.dropped(left.k, spans))
    tops = left.on_host.top[0], right.on_host.top[0]
    squares_a, squares_b = squares(a), squares(b.T)
    row_column = Fraction(exact_bounds.row_column(left.on_host, right.on_host, terms))
    for_any = a_priori(scheme, a.shape[1])
    magnitudes, exponent = reference.exact_matmul(abs(a), abs(b))
    plan = ozaki.plan(a, b, scheme=scheme.name, slices=scheme.count)
    sharpest = Fraction(0)
    for i, j in np.ndindex(errors.shape):
        where = (scheme, i, j, *about)
        bound = sum(
            Fraction(float(x)) * Fraction(float(y))
            for x, y in zip(terms.left[:, 0, i], terms.right[:, 0, j], strict=True)
        )
        bound *= power(int(tops[0][i]) + int(tops[1][j])) if bound else 1
        assert errors[i, j] <= bound, where
        norms = squares_a[i] * squares_b[j]
        assert errors[i, j] ** 2 <= row_column**2 * norms, where
        assert for_any == inf or errors[i, j] ** 2 <= Fraction(for_any) ** 2 * norms, where
        if plan.bound < inf:
            assert errors[i, j] <= Fraction(plan.bound) * int(magnitudes[i, j]) * power(exponent), where
        if bound:
            sharpest = max(sharpest, errors[i, j] / bound)
    normwise = Fraction(exact_bounds.normwise(left.on_host, right.on_host, terms))
    assert sum(e**2 for e in errors.flat) <= normwise**2 * sum(squares_a) * sum(squares_b), (scheme, *about)
    return float(sharpest)


SCHEMES = [
    Digits(1),
    Digits(2),
    Digits(3),
    Digits(7),
    Digits(4, 7),
    Residues(3),
    Residues(7),
    Residues(15),
    Residues(40),
]


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_bounds_of_random_data(rng, scheme):
    for _ in range(6):
        m, k, n = (int(v) for v in rng.integers(1, 12, 3))
        dtype, span = str(rng.choice(["float32", "float64"])), int(rng.integers(0, 100))
        a, b = with_ranges(rng, (m, k), span, dtype), with_ranges(rng, (n, k), span, "float64").T
        check_every_bound(a, b, scheme, a, b)


def thresholds(scheme, k):
    """Rows of equal elements whose statistic lies next to where their image gets a bit more or less."""
    scaling = scheme.scaling(k)
    edge = float(scaling.threshold)
    if scaling.statistic == "squares":
        edge = np.sqrt(edge / k)
    near = np.floor(edge) / 2.0 ** np.arange(8)[:, None] + np.array([-1, -0.5, 0, 0.5, 1])
    return np.repeat(near.reshape(-1, 1), k, axis=1)


def adversaries(rng, scheme, k):
    """Yield names and rows for which errors come near their bounds."""
    scaling = scheme.scaling(k)
    huge = np.full((3, k), 2.0**-30)
    huge[:, 0] = [1.0, 1 - 2.0**-53, 1 + 2.0**-52]
    yield "one huge element in each row", huge * (1 + 2.0**-20)
    yield "all elements equal", np.array([[1.0], [1 / 3], [1 - 2.0**-53], [2 / 3]]) * np.ones(k)
    yield "powers of two", np.ldexp(1.0, rng.integers(-30, 1, (4, k)))
    yield "alternating", np.array([[1.0], [1 / 3]]) * (-1.0) ** np.arange(k)
    yield "at the thresholds", thresholds(scheme, k)[::5]
    base = max(scaling.base - 1, 0)
    if base < 52:  # the image lies halfway between two integers, always rounded to the same side
        yield "ties", (np.array([[2.0**base], [2.0 ** (base - 1)]]) + 0.5) * np.ones(k)
        yield "ties upwards", (np.array([[2.0**base], [2.0 ** (base - 1)]]) + 1.5) * np.ones(k)
    if isinstance(scheme, Digits):
        r, p = scheme.bits, scheme.count
        low = sum(-(2 ** (r - 1)) * 2 ** (r * s) for s in range(p - 1))
        heads = [0, 1, 2 ** (r - 1) - 1, -(2 ** (r - 1)) + 1, 2 ** (r - 2)]
        rows = [[float(h * 2 ** (r * (p - 1)) + low)] * k for h in heads]
        for row in rows:  # fixes the shared exponent: the largest image is D
            row[0] = float(scheme.largest - 1)
        yield "extreme digits", np.array(rows)
        rows[0][0] = rows[1][0] = scheme.largest / 2 * (1 + 2.0**-12)  # the smallest row of that exponent
        yield "extreme digits in small rows", np.array(rows[:2])
    else:
        # Every element halfway between two integers, rounded up, in the smallest row of that exponent.
        room = isqrt(scheme.range) - (isqrt(k - 1) // 2 + 1)
        half = max(ceil((room / 2 / sqrt(k) - 1.5) / 2), 0) * 2 + 1.5
        if half < 2**52:
            yield "ties upwards in small rows", np.full((1, k), half)
    tiny = np.full((2, k), 2.0**-1074)
    tiny[1, 0] = 2.0**-1020
    yield "subnormal", tiny


@pytest.mark.parametrize(
    ("scheme", "k"),
    [
        pytest.param(s, k, marks=() if k == 17 else pytest.mark.full)
        for s in SCHEMES
        for k in (1, 2, 17, 300)
        if s.scaling(k)
    ],
    ids=str,
)
def test_bounds_of_adversarial_data(rng, scheme, k):
    kinds = dict(adversaries(rng, scheme, k))
    for name, a in kinds.items():
        for other in {"all elements equal", "one huge element in each row", name}:
            check_every_bound(a, kinds[other].T[:, :4], scheme, name, other, k)


@pytest.mark.full
@pytest.mark.parametrize("scheme", [Residues(4), Digits(3)], ids=str)
def test_bounds_of_adversarial_data_with_a_large_k(rng, scheme):
    k = 30000
    kinds = dict(adversaries(rng, scheme, k))
    for name in ("one huge element in each row", "all elements equal", "ties", "at the thresholds"):
        check_every_bound(kinds[name][:2], kinds["all elements equal"].T[:, :2], scheme, name)


@pytest.mark.parametrize(
    ("scheme", "k"),
    [(Residues(2), 100), (Residues(2), 2636), (Residues(3), 2674), (Digits(2), 400), (Digits(3, 7), 50)],
)
def test_the_a_priori_bound_is_sharp(rng, scheme, k):
    """The smallest rows of an exponent, all elements at their worst: little room is left below B4."""
    name = "ties upwards in small rows" if isinstance(scheme, Residues) else "extreme digits in small rows"
    a = dict(adversaries(rng, scheme, k))[name][:1]
    check_every_bound(a, a.T, scheme)
    norm = sum(Fraction(float(x)) ** 2 for x in a[0])
    assert image_errors(a, a.T, scheme)[0, 0] >= 0.85 * Fraction(a_priori(scheme, k)) * norm


@pytest.mark.full
@pytest.mark.parametrize("scheme", [Residues(8), Digits(3)], ids=str)
def test_bits_and_bounds_with_magnitudes_of_fewer_bits(rng, scheme):
    """Bits and bounds for k above 2**20, where the statistics of rows have fewer than 20 bits."""
    k = 2**20 + 3
    a, b = spread(rng, (1, k), 8), spread(rng, (1, k), 8).T
    a[0, :5] = b[:5, 0] = 2.0**-60
    images = definition.images(a, b, scheme)  # once: a million elements in Python's integers take seconds
    expected = definition.rounded_images(*images, a.dtype)
    assert same_bits(ozaki.matmul(a, b, scheme=scheme.name, slices=scheme.count), expected)
    check_every_bound(a, b, scheme, images=images)


def test_the_entrywise_bound_is_sharp():
    """B1 is reached up to the width of magnitudes, if every element is rounded by one half to the same side."""
    for scheme in (Residues(5), Residues(7), Digits(2), Digits(3)):
        k = 64
        bits = int(described(np.ones((1, k)), np.ones((k, 1)))[0].on_host.bits(scheme.scaling(k))[0, 0])
        a = np.full((1, k), 2.0 ** (bits - 1) + 0.5)
        sharpness = check_every_bound(a, a.T, scheme)
        assert sharpness > (0.9 if isinstance(scheme, Residues) else 0.1), scheme


def test_the_digits_bound_is_sharp_where_pairs_are_dropped():
    for r, p in ((8, 3), (8, 5), (7, 4)):
        scheme, k = Digits(p, r), 50
        low = sum(-(2 ** (r - 1)) * 2 ** (r * s) for s in range(p - 1))
        a = np.full((1, k), float((100 if r == 8 else 40) * 2 ** (r * (p - 1)) + low))
        assert check_every_bound(a, a.T, scheme) > 0.4


def test_normwise_bounds_survive_far_below_the_smallest_square():
    """A large exact row beside a tiny rounded one, with so many digits that squared errors underflow."""
    a = np.zeros((2, 3))
    a[0, 0] = 2.0**300
    a[1] = [1.0, 2.0**-520, 0]
    b = np.array([[1.0], [1.0], [0]])
    for scheme in (Digits(60), Residues(49)):
        check_every_bound(a, b, scheme)


def test_the_componentwise_bound_where_only_exponents_tell():
    """Entries whose products are all tiny beside their row and column: the last level of the proof."""
    for low in (30, 200, 400):
        a = np.array([[1.0, 2.0**-low, 0], [1.0, 0, 2.0 ** -(low + 5)], [0, 1 / 3, 1]])
        b = np.array([[0, 1.0], [2.0**-low, 2 / 3], [1.0, 2.0**-low]])
        for scheme in (Digits(20), Digits(60), Residues(16), Residues(49)):
            check_every_bound(a, b, scheme, low)


@pytest.mark.parametrize("kind", ["band", "blocks", "sparse", "triangular"])
def test_entries_without_products_are_no_obstacle(rng, kind):
    """Zeros of the result that come from zeros of the operands have no error, and need no lower bound."""
    i, j = np.indices((60, 60))
    pattern = {
        "band": abs(i - j) < 4,
        "blocks": i // 10 == j // 10,
        "sparse": rng.random((60, 60)) < 0.05,
        "triangular": i < j,
    }
    for left, right in (((), ()), ((3,), (3,)), ((), (3,)), ((3,), ())):
        a, b = spread(rng, (*left, 60, 60), 6) * pattern[kind], spread(rng, (*right, 60, 60), 6) * pattern[kind]
        c, report = ozaki.matmul(a, b, accuracy="fp64", scheme="residues", return_report=True)
        assert report.bound <= Accuracy.of("fp64", 60).tolerance + 2.0**-52
        for at in np.ndindex(c.shape[:-2]):
            x, y = a[at] if left else a, b[at] if right else b
            assert reference.componentwise_error(c[at], x, y) <= report.bound


def test_the_componentwise_bound_of_the_smallest_products():
    """A product of two tiny numbers in a row and a column with huge elements takes hundreds of residues."""
    a = np.array([[2.0**1023, 2.0**-1074, 0.0]])
    b = np.array([[0.0], [2.0**-1074], [2.0**1023]])
    for low in (2.0**-1074, 2.0**-900, 2.0**-200):
        a[0, 1] = b[1, 0] = low
        assert ozaki.plan(a, b, scheme="residues", slices=20).bound > 1e30
        with pytest.raises(ValueError, match="accuracy"):
            ozaki.plan(a, b, accuracy="fp64", scheme="digits", reproducible=True)
        c, report = ozaki.matmul(a, b, accuracy="fp64", scheme="residues", return_report=True)
        assert report.slices > 200
        assert report.bound == 2.0**-53
        assert c == low * low  # exact, or 0 where that is below the smallest number
    b[1] = 0
    assert ozaki.plan(a, b, scheme="residues", slices=20).bound == 2.0**-53  # all products are zero


# The native product, the last rounding, the norms --------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_native_bound(rng, dtype):
    for k in (1, 2, 10, 1000):
        a, b = rng.random((10, k)).astype(dtype), rng.random((k, 10)).astype(dtype)
        c, report = ozaki.matmul(a, b, scheme="native", return_report=True)
        assert reference.componentwise_error(c, a, b) <= report.bound
        k_u = k * UNIT[dtype]
        assert k_u / (1 - k_u) <= report.bound <= k_u / (1 - k_u) * (1 + 2**-20)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_native_product_proves_nothing_where_it_may_leave_its_range(dtype):
    """Partial sums that overflow, and products that underflow, though the result does not."""
    largest = np.finfo(dtype).max * np.array(0.9, dtype)
    tiny = np.finfo(dtype).tiny
    one = np.ones((3, 1), dtype)
    for row, column in (
        (largest * np.array([[1, 1, -1]], dtype), one),
        (np.array([[1, 1, -2]], dtype), one * largest),
        (np.array([[0.3, 0.3, -0.6]], dtype), one * tiny),
        (np.array([[0.3, 0.3, -0.6]], dtype) * tiny, one),
    ):
        c, report = ozaki.matmul(row, column, return_report=True)
        assert report.native and report.bound == inf
        for options in ({"accuracy": 1e-6}, {"accuracy": 10}):
            c, report = ozaki.matmul(row, column, return_report=True, **options)
            assert not report.native and "over- or underflow" in report.why
            products = [Fraction(float(x)) * Fraction(float(y)) for x, y in zip(row[0], column[:, 0], strict=True)]
            allowed = Fraction(report.bound) * sum(map(abs, products)) + power(-1075 if dtype == "float64" else -150)
            assert np.isfinite(c).all() and abs(Fraction(float(c[0, 0])) - sum(products)) <= allowed
        with pytest.raises(ValueError, match=r"^accuracy: .* over- or underflow"):
            ozaki.matmul(row, column, scheme="native", accuracy=1e-3)


@pytest.mark.parametrize("dtype", some_first(1, ["float32", "float64"]))
def test_a_named_accuracy_is_met_whatever_runs(rng, dtype):
    """Operands near the ends of the range, multiplied natively where B5 holds."""
    least, past = native_bounds.RANGE[dtype]
    natives = 0
    for _ in range(300):
        k = int(rng.integers(1, 9))
        middle = rng.choice([least, 0, past]) // 2
        exponents = [rng.integers(middle - 20, middle + 20, shape) for shape in ((2, k), (k, 2))]
        a, b = (
            np.ldexp(rng.uniform(0.5, 1, e.shape) * rng.choice([-1, 1], e.shape), e).astype(dtype) for e in exponents
        )
        c, report = ozaki.matmul(a, b, accuracy=9, return_report=True)
        natives += report.native
        in_range = np.isfinite(c).all() and (abs(c) >= np.finfo(dtype).tiny).all()
        if in_range or report.native:
            assert reference.componentwise_error(c, a, b) <= report.bound <= 2.0**-5
    assert 20 < natives < 280


def test_a_native_product_without_a_bound_says_so():
    a = np.ones((1, 2**23), np.float32)
    c, report = ozaki.matmul(a, a.T, return_report=True)
    assert report.native
    assert report.bound == inf
    assert "no error bound" in str(report)
    assert c[0, 0] == 2**23


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_with_rounding_is_an_upper_bound(rng, dtype):
    u = Fraction(UNIT[dtype])
    for bound in [0.0, 5e-324, 1e-300, *2.0 ** rng.uniform(-140, 3, 200)]:
        # An error of u/(1+u), not u, is the largest of a rounding.
        assert Fraction(with_rounding(bound, dtype)) >= Fraction(bound) + u / (1 + u) * (1 + Fraction(bound))
    assert with_rounding(0.0, dtype) == UNIT[dtype]


def test_norms_and_sums_of_the_description_bound_the_true_ones(rng):
    """Sums are bounded from above, norms from below, and as sharply as magnitudes that are rounded up allow."""
    for k in (1, 3, 100, 3000):
        unit = power(-magnitude_bits(k))
        x = spread(rng, (20, k), 60)
        x[0], x[1] = 1.0, 0.5
        description = describe(x[None]).on_host
        for i, row in enumerate(x):
            exact = [Fraction(float(v)) * power(-int(description.top[0, i])) for v in row if v]
            total, squares = sum(map(abs, exact)), sum(v * v for v in exact)
            assert total <= Fraction(float(description.sums[0, i])) <= total + k * unit
            assert Fraction(float(description.norms[0, i])) ** 2 <= squares
            assert description.norms[0, i] >= (sqrt(squares) - sqrt(k) * unit) * (1 - 2.0**-39)


def test_the_usual_error_is_what_normal_data_has(rng):
    """E1: the root-mean-square error of N(0,1) data, before the rounding, within a factor of two."""
    k = 256
    for scheme in (Residues(6), Residues(9), Digits(3), Digits(4), Digits(5, 7)):
        a, b = rng.standard_normal((12, k)), rng.standard_normal((k, 12))
        errors = image_errors(a, b, scheme)
        magnitudes = np.abs(a) @ np.abs(b)
        rms = hypot(*(float(e) / w for e, w in zip(errors.flat, magnitudes.flat, strict=True))) / 12
        assert rms / 2 < usual_rms(scheme, k) < rms * 2, scheme


@pytest.mark.parametrize("kind", ["normal", "uniform", "lognormal"])
def test_what_some_indices_let_expect_is_near_what_is_proven(rng, kind):
    k, digits = 2048, Digits(3)
    draw = {"normal": rng.standard_normal, "uniform": rng.random, "lognormal": lambda s: rng.lognormal(0, 0.5, s)}[kind]
    left, right = (draw((1, 200, k)).astype("f4") for _ in "ab")
    expected = usual_of_sample(*sample(left, right), SAMPLED, digits, k)
    (proven,) = bounds_of(work_of(left[0], right[0].T), k, "componentwise", digits)
    assert 0.15 * proven < expected < 1.2 * proven
