"""Plans are plain data, have the smallest proven count, and do not depend on scalings, orders and tiles."""

import pickle
from dataclasses import FrozenInstanceError, replace
from fractions import Fraction
from math import inf, sqrt

import numpy as np
import pytest
from cases import MOST_BYTES, bounds_of, power, same_bits, set_sizes, spread, work_of

import ozaki
from ozaki import Accuracy, reference
from ozaki._cli.verify import MEASURES
from ozaki.backends.numpy import _proof as _numpy_proof
from ozaki.backends.numpy._describe import describe
from ozaki.backends.numpy._proof import Ratios
from ozaki.bounds import exact as exact_bounds
from ozaki.bounds import native as native_bounds
from ozaki.bounds.a_priori import a_priori
from ozaki.bounds.rounding import with_rounding
from ozaki.planning import search
from ozaki.planning.facts import WorstRatio
from ozaki.planning.proof import Proof
from ozaki.planning.search import _usually_good
from ozaki.records.report import power_of_two, rounded_up
from ozaki.schemes import Digits, Residues
from ozaki.schemes.digits import MAX_DIGITS
from ozaki.schemes.named import FAMILIES, scheme_of

COUNTS = {"digits": MAX_DIGITS, "digits7": MAX_DIGITS, "residues": MOST_BYTES}


# Accuracy -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "bits"), [("fp32", 24), ("fp64", 53), ("dd", 106), ("qd", 212)])
def test_shorthands(name, bits):
    for k in (1, 2, 15, 16, 17, 100, 4096):
        accuracy = Accuracy.of(name, k)
        assert accuracy == Accuracy("componentwise", min(k, 4 * sqrt(k)) * 2.0**-bits, bits)
        assert Accuracy.of(bits, k) == Accuracy.of(np.int64(bits), k) == accuracy
    assert Accuracy.of(name, 0).tolerance == 2.0**-bits


def test_a_float_is_a_tolerance_as_it_stands():
    assert Accuracy.of(1e-20, 1000) == Accuracy.of(np.float64(1e-20), 1) == Accuracy("componentwise", 1e-20)
    assert Accuracy.of(np.float32(0.25), 7) == Accuracy("componentwise", 0.25)
    target = Accuracy("normwise", 1e-3)
    assert Accuracy.of(target, 1000) is target


def test_few_bits_of_long_sums_promise_something(rng):
    """Tolerances of few bits are at most 0.5; the error of a native product of so few bits could exceed 1."""
    for k in (0, 1, 2, 10, 4096, 2**40):
        for bits in range(1, 30):
            accuracy = Accuracy.of(bits, k)
            assert accuracy == Accuracy("componentwise", min(max(1, min(k, 4 * sqrt(k))) * 2.0**-bits, 0.5), bits)
    a, b = rng.standard_normal((3, 4096)), rng.standard_normal((4096, 3))
    for bits in (1, 8):
        c, report = ozaki.matmul(a, b, accuracy=bits, reproducible=True, return_report=True)
        assert reference.componentwise_error(c, a, b) <= report.bound <= 0.5 + 2.0**-52


# A plan is plain data -----------------------------------------------------------------------------------------------


def test_plans_are_plain_data(rng):
    a, b = rng.standard_normal((2, 8, 50)), rng.standard_normal((50, 6))
    plans = [
        ozaki.plan(a, b, accuracy="fp64", reproducible=True),
        ozaki.plan(a, b),
        ozaki.plan(a, b, scheme="digits", slices=4, engine="int8-simulated", workspace_limit=10**8),
        ozaki.plan(a.shape, b.shape, dtype="float64", scheme="residues"),
    ]
    for plan in plans:
        again = pickle.loads(pickle.dumps(plan))
        assert again == plan
        assert hash(again) == hash(plan)
        assert again is not plan
        with pytest.raises(FrozenInstanceError):
            plan.bound = 0.0
        assert same_bits(ozaki.matmul(a, b, plan=again), ozaki.matmul(a, b, plan=plan))
    assert len(set(plans)) == len(plans)
    assert ozaki.plan(a, b, accuracy="fp64", reproducible=True) == plans[0]


def test_what_a_plan_says():
    plan = ozaki.plan((5, 3, 4), (4, 2), dtype="float32", scheme="digits", slices=3)
    assert (plan.shape, plan.batch, plan.dtype) == ((3, 4, 2), (5,), "float32")
    assert (plan.slices, plan.products, plan.native, plan.reproducible) == (3, 6, False, True)
    assert plan.a_priori
    assert str(plan).splitlines()[0] == "5 x (3 x 4) (4 x 2), float32: 3 digits, 6 products"
    assert "for any operands" in str(plan)
    native = ozaki.plan(np.ones((3, 4)), np.ones((4, 2)))
    assert (native.slices, native.products, native.native, native.reproducible) == (0, 1, True, False)
    assert "native" in str(native) and "for these operands" in str(native)


@pytest.mark.parametrize("options", [{}, {"scheme": "native"}])
def test_a_native_plan_proves_nothing_for_operands_that_leave_the_range(options):
    """Partial sums of 1e400 - 1e400 overflow."""
    plan = ozaki.plan(np.array([[1e200, 1e200]]), np.array([[1e200], [-1e200]]), **options)
    assert plan.native and plan.bound == np.inf and "no bound" in str(plan)
    with pytest.raises(ValueError, match="over- or underflow on the way"):
        ozaki.plan(np.array([[1e200, 1e200]]), np.array([[1e200], [-1e200]]), scheme="native", accuracy=1e-5)
    _, report = ozaki.matmul(np.ones((1, 2)), np.ones((2, 1)), plan=plan, return_report=True)
    assert report.bound == ozaki.plan((1, 2), (2, 1), dtype="float64", scheme="native").bound < 1e-15


def test_what_a_report_says(rng):
    a, b = rng.standard_normal((30, 40)), rng.standard_normal((40, 20))
    a[3, 4] = np.nan
    _, report = ozaki.matmul(a, b, accuracy="fp64", return_report=True)
    assert (report.scheme, report.native, report.reproducible, report.nonfinite) == ("residues", False, True, 1)
    assert report.slices == report.products
    assert report.workspace_bytes > 0
    assert str(report).splitlines()[0] == f"{report.slices} residues, {report.slices} slice products on {report.engine}"
    before = power_of_two(report.unrounded_bound)
    proven = f"componentwise error <= {rounded_up(report.bound)} ({before} before the rounding to the output)"
    assert f"proven: {proven}" in str(report).splitlines()
    assert "NaN or Inf" in str(report)
    _, report = ozaki.matmul(a, b, return_report=True)
    assert report.native
    assert "native product" in report.why
    assert "bits may differ" in str(report) and report.unrounded_bound == report.bound
    assert f"error <= {rounded_up(report.bound)} (roundings included)" in str(report)
    _, report = ozaki.matmul(a, b, scheme="fp16-digits", slices=4, return_report=True)
    assert str(report).startswith(f"4 {report.scheme}, 10 slice products")
    assert "4 fp16-digits" in str(ozaki.plan(a, b, scheme="fp16-digits", slices=4))


# The native product -------------------------------------------------------------------------------------------------


def test_the_native_product_runs_where_it_may(rng):
    a, b = rng.standard_normal((20, 30)), rng.standard_normal((30, 20))
    native = {
        "nothing": ({}, "componentwise"),
        "tolerance": ({"accuracy": 1e-10}, "componentwise"),
        "by name": ({"scheme": "native"}, "componentwise"),
        "by name, proven": ({"scheme": "native", "accuracy": Accuracy("normwise", 1e-10)}, "normwise"),
    }
    slices = {
        "fp64": {"accuracy": "fp64"},
        "reproducible": {"reproducible": True},
        "engine": {"engine": "int8-simulated"},
        "scheme": {"scheme": "digits"},
        "count": {"scheme": "residues", "slices": 14},
    }
    for name, (options, measure) in native.items():
        c, report = ozaki.matmul(a, b, return_report=True, **options)
        assert report.native, name
        assert report.why, name
        assert same_bits(c, a @ b)
        assert report.measure == measure, name
    for name, options in slices.items():
        _, report = ozaki.matmul(a, b, return_report=True, **options)
        assert not report.native, name
        assert report.reproducible, name


def test_the_native_bound_is_in_the_measure_asked_for(rng):
    a, b = rng.standard_normal((20, 30)), rng.standard_normal((30, 20))
    for measure in ("componentwise", "row-column", "normwise"):
        plan = ozaki.plan(a, b, accuracy=Accuracy(measure, 1e-10))
        assert plan.native
        assert plan.target == Accuracy(measure, 1e-10)
        assert plan.bound == native_bounds.bound(30, "float64")


# The smallest count -------------------------------------------------------------------------------------------------


def norm_bound(a, b, scheme, measure):
    left, right = describe(a[None]), describe(b.T[None])
    if scheme.scaling(left.k) is None:
        return inf
    terms = exact_bounds.error_terms(
        left.on_host, right.on_host, scheme, scheme.dropped(left.k, (left.span, right.span))
    )
    return (exact_bounds.row_column if measure == "row-column" else exact_bounds.normwise)(
        left.on_host, right.on_host, terms
    )


def componentwise_bound(a, b, scheme, lower):
    """The largest ratio of the entrywise bound to a lower bound of abs(A) abs(B), in rationals."""
    left, right = describe(a[None]), describe(b.T[None])
    if scheme.scaling(left.k) is None:
        return inf
    terms = exact_bounds.error_terms(
        left.on_host, right.on_host, scheme, scheme.dropped(left.k, (left.span, right.span))
    )
    worst = Fraction(0)
    for i, j in np.ndindex(lower.shape):
        pairs = zip(terms.left[:, 0, i], terms.right[:, 0, j], strict=True)
        above = sum(Fraction(float(x)) * Fraction(float(y)) for x, y in pairs)
        if above and not lower[i, j]:
            return inf
        if above:
            worst = max(worst, above / lower[i, j])
    return worst


def magnitudes(a, b, bits=None):
    """abs(A) abs(B) in units of 2**(top_i + top_j), from magnitudes of `bits` bits, or exactly."""
    tops = [[int(t) for t in describe(x[None]).on_host.top[0]] for x in (a, b.T)]
    if bits is None:
        exact, exponent = reference.exact_matmul(abs(a), abs(b))
        unit = [[power(exponent - s - t) for t in tops[1]] for s in tops[0]]
        return np.array([[int(x) * u for x, u in zip(*row, strict=True)] for row in zip(exact, unit, strict=True)])
    narrow = [
        [[int(Fraction(abs(float(v))) * power(bits - top) // 1) for v in row] for row, top in zip(x, t, strict=True)]
        for x, t in zip((a, b.T), tops, strict=True)
    ]
    sums = [[sum(u * v for u, v in zip(x, y, strict=True)) for y in narrow[1]] for x in narrow[0]]
    return np.array([[Fraction(s, 4**bits) for s in row] for row in sums])


def smallest(name, bound, accuracy, k):
    """The first count whose bound meets the target, found by trying all; None without one."""
    for count in range(1, COUNTS[name] + 1):
        scheme = scheme_of(name, count)
        found = bound(scheme)
        if found <= accuracy.tolerance and (found == 0 or _usually_good(scheme, accuracy, k)):
            return count
    return None


@pytest.mark.parametrize("name", list(COUNTS))
@pytest.mark.parametrize("measure", ["row-column", "normwise"])
def test_the_count_is_the_smallest_by_norms(rng, name, measure):
    for _ in range(25):
        m, k, n = (int(v) for v in rng.integers(1, 40, 3))
        span = int(rng.integers(0, 60))
        a, b = spread(rng, (m, k), span), spread(rng, (k, n), span)
        target = Accuracy(measure, float(2.0 ** rng.uniform(-100, 0)))
        wanted = smallest(name, lambda scheme: norm_bound(a, b, scheme, measure), target, k)  # noqa: B023
        plan = ozaki.plan(a, b, accuracy=target, scheme=name)
        assert plan.slices == wanted, (plan, a, b)


@pytest.mark.parametrize("name", list(COUNTS))
@pytest.mark.parametrize("accuracy", ["fp32", "fp64", 40, 1e-7, 1e-25, 0.3])
def test_the_count_is_the_smallest_for_ordinary_data(rng, name, accuracy):
    m, k, n = (int(v) for v in rng.integers(1, 12, 3))
    k *= 10
    a, b = rng.standard_normal((m, k)), rng.random((k, n))
    target = Accuracy.of(accuracy, k)
    counts = [
        smallest(name, lambda scheme: componentwise_bound(a, b, scheme, lower), target, k)  # noqa: B023
        for lower in (magnitudes(a, b), magnitudes(a, b, 7))
    ]
    plan = ozaki.plan(a, b, accuracy=accuracy, scheme=name, reproducible=True)
    assert counts[0] <= plan.slices <= counts[1], (plan, counts)


@pytest.mark.parametrize("name", ["digits", "residues"])
def test_the_count_is_the_smallest_for_wide_data(rng, name):
    """The count is between the smallest for the exact lower bound and the smallest for one of 7-bit magnitudes."""
    for _ in range(6):
        m, k, n = (int(v) for v in rng.integers(1, 12, 3))
        span = int(rng.integers(5, 30))
        a, b = spread(rng, (m, k), span), spread(rng, (k, n), span)
        a[a == 0] = b[b == 0] = 1.0
        target = Accuracy("componentwise", float(2.0 ** rng.uniform(-60, -3)))
        exact, *others = (
            smallest(name, lambda scheme: componentwise_bound(a, b, scheme, lower), target, k)  # noqa: B023
            for lower in (magnitudes(a, b), magnitudes(a, b, 7), magnitudes(a, b, 21))
        )
        plan = ozaki.plan(a, b, accuracy=target, scheme=name)
        proven = [count for count in others if count is not None]
        assert exact <= plan.slices, (plan, exact)
        if plan.unrounded_bound > 0:  # images that are exact may have been cheaper than to prove fewer slices
            assert plan.slices <= (proven[0] if proven else inf), (plan, others)
        if others[1] is not None:
            assert plan.products < scheme_of(name, others[1]).products + 30  # the wide level takes as long as 30


def test_a_slice_less_proves_less_for_a_sampled_lower_bound(rng):
    a, b = rng.standard_normal((6, 2000)), rng.random((2000, 5))
    lower = magnitudes(a, b)
    for name in COUNTS:
        for tolerance in 2.0 ** rng.uniform(-60, -10, 10):
            plan = ozaki.plan(a, b, accuracy=float(tolerance), scheme=name, reproducible=True)
            less = componentwise_bound(a, b, scheme_of(name, plan.slices - 1), lower)
            assert less * 1.2 > tolerance, (plan, float(less))  # sampled sums are about a quarter


@pytest.mark.parametrize("name", list(COUNTS))
def test_the_count_is_the_smallest_a_priori(rng, name):
    for k in (1, 2, 100, 4096, 300000, 10**7, 2**33):
        for tolerance in 2.0 ** rng.uniform(-90, 0, 6):
            target = Accuracy("row-column", float(tolerance))
            plan = ozaki.plan((5, k), (k, 5), dtype="float64", accuracy=target, scheme=name)
            assert plan.slices == smallest(name, lambda scheme: a_priori(scheme, k), target, k)  # noqa: B023
            assert plan.bound == with_rounding(a_priori(plan.scheme, k), "float64")


def test_auto_takes_the_fewest_products(rng):
    for trial in range(120):
        m, k, n = (int(v) for v in rng.integers(1, 30, 3))
        span, bits = int(rng.integers(0, 40)), float(rng.uniform(*((-90, -1) if trial % 2 else (-24, -8))))
        a, b = spread(rng, (m, k), span), spread(rng, (k, n), span)
        target = Accuracy(str(rng.choice(["componentwise", "row-column", "normwise"])), 2.0**bits)
        plans = [
            ozaki.plan(a, b, accuracy=target, scheme=scheme, reproducible=True)
            for scheme in ("auto", "digits", "residues")
        ]
        products = [plan.products for plan in plans]
        assert products[0] == min(products) or plans[0].unrounded_bound == 0, plans
        assert products[0] < min(products) + 30, plans  # exact images need no proof, whose last level takes as long


def test_a_glance_never_sees_more_than_there_is(rng):
    """The first rows give a lower bound of the bound, and the bound itself if the worst row is among them."""
    a, b = rng.random((300, 500)).astype("f4"), rng.random((500, 40)).astype("f4")
    a[200] = np.ldexp(a[200], rng.integers(-20, 0, 500))
    for x, worst_is_seen in ((a, False), (a[::-1], True)):
        work = work_of(x, b)
        for scheme in (Digits(3), Digits(4), Residues(7)):
            ((seen,), (bound,)) = (
                bounds_of(work, 500, "componentwise", scheme, few_rows=few_rows) for few_rows in (True, False)
            )
            assert seen <= bound and (seen * 1.01 > bound) == worst_is_seen, (seen, bound)


def test_a_glance_does_not_depend_on_tiles(rng, monkeypatch):
    a, b = rng.random((300, 60)).astype("f4"), rng.random((60, 40)).astype("f4")
    need = WorstRatio(Digits(3), "narrow", few_rows=True)
    expected = work_of(a, b).measure(need)
    set_sizes(monkeypatch, 40 * 50)
    assert work_of(a, b).measure(need) == expected


def test_a_slice_less_grows_the_bound_by_what_the_search_relies_on(rng):
    """A slice less multiplies the bound by `growth` or more, so the search misses no smaller count."""
    assert Digits(2).growth == Digits(2, 7).growth == 0
    for _ in range(60):
        k = int(np.exp(rng.uniform(0, np.log(3000))))
        a, b = spread(rng, (3, k), int(rng.integers(0, 40))), spread(rng, (k, 3), int(rng.integers(0, 40)))
        if rng.integers(0, 2):
            a[:, 1:] *= 2.0**-40  # one huge element in each row
        name = str(rng.choice(list(COUNTS)))
        count = int(rng.integers(2, COUNTS[name]))
        work = work_of(a, b)
        for measure in ("row-column", "normwise", "componentwise"):
            more, less = bounds_of(work, k, measure, *(scheme_of(name, c) for c in (count, count - 1)))
            growth = scheme_of(name, count).growth
            assert growth == 0 or less >= more * growth * (1 - 1e-9), (name, count, k, measure)


HEAVY = {
    "lognormal": (2, lambda rng, shape: np.exp(2 * rng.standard_normal(shape))),
    "steeper": (2, lambda rng, shape: np.exp(3 * rng.standard_normal(shape))),
    "cauchy": (2, lambda rng, shape: rng.standard_cauchy(shape)),
    "sparse": (2, lambda rng, shape: rng.standard_normal(shape) * (rng.random(shape) < 0.05)),
    "kernel": (8, lambda _, shape: np.exp(-((np.subtract.outer(*(np.linspace(0, 20, n) for n in shape))) ** 2))),
}


@pytest.mark.parametrize("kind", list(HEAVY))
def test_few_comparisons_find_the_count_of_all(monkeypatch, kind):
    """The search takes few comparisons and finds the plan that trying one count after another finds."""
    most, draw = HEAVY[kind]
    rng = np.random.default_rng(7)  # other data may need more comparisons
    a, b = draw(rng, (60, 1500)), draw(rng, (1500, 50))
    compared = []
    compare = Ratios._of_panels
    monkeypatch.setattr(Ratios, "_of_panels", lambda *given: compared.append(given) or compare(*given))
    plan = ozaki.plan(a, b, accuracy="fp64", reproducible=True)
    few = len(compared)
    monkeypatch.setattr(search, "_in_reach", lambda choice, *_: choice.scheme.count + 1)
    monkeypatch.setattr(Proof, "_surely_unproven", lambda *_: False)
    assert ozaki.plan(a, b, accuracy="fp64", reproducible=True) == plan
    # Where exact images are taken after one proof of each level, nothing is tried one by one.
    assert few <= most and few <= max(len(compared) - few - 1, 2), (few, len(compared) - few)


@pytest.mark.parametrize("accuracy", ["fp32", "fp64", 2.0**-8, 2.0**-12, 2.0**-40, 2.0**-70])
def test_counts_passed_over_change_no_plan(rng, monkeypatch, accuracy):
    """Passing over counts changes no plan, even if rows become exact in between, or entries have no lower bound."""
    for _ in range(12):
        m, k, n = int(rng.integers(1, 20)), int(np.exp(rng.uniform(0, np.log(1500)))), int(rng.integers(1, 20))
        span, dtype = int(rng.choice([12, 17, 40, 70])), str(rng.choice(["f4", "f8"]))
        a, b = spread(rng, (m, k), span, dtype), spread(rng, (k, n), span, dtype)
        whole = np.ldexp(rng.integers(-9, 10, (m, k)) * 1.0, rng.integers(0, span, (m, k))).astype(dtype)
        a = np.where(rng.random((m, 1)) < rng.choice([0, 0.5, 1]), whole, a)
        a *= rng.random((m, k)) < rng.uniform(0.05, 2)
        b[:, ::2] = np.rint(b[:, ::2] * 8)

        def planned(measure, scheme):
            target = replace(Accuracy.of(accuracy, k), measure=measure)  # noqa: B023
            try:
                return ozaki.plan(a, b, accuracy=target, scheme=scheme, reproducible=True)  # noqa: B023
            except ValueError as error:
                return str(error)

        choices = [(m, s) for m in ("componentwise", "row-column", "normwise") for s in ("auto", "digits", "residues")]
        plans = [planned(*choice) for choice in choices]
        with monkeypatch.context() as one_by_one:
            one_by_one.setattr(search, "_in_reach", lambda choice, *_: choice.scheme.count + 1)
            one_by_one.setattr(Proof, "_surely_unproven", lambda *_: False)
            assert [planned(*choice) for choice in choices] == plans


def test_the_first_count_is_found_from_any_guess(rng):
    for _ in range(500):
        first = int(rng.integers(1, 40))
        last = first + int(rng.integers(0, 200))
        smallest, guess = (int(x) for x in rng.integers(first - 5, last + 20, 2))
        asked = []

        def holds(count):
            asked.append(count)  # noqa: B023
            return count >= smallest  # noqa: B023

        expected = min(max(smallest, first), last)
        assert search.first_count(holds, first, last, guess) == expected
        assert all(first <= count < last for count in asked) and len(set(asked)) == len(asked)
        if expected - 1 <= guess <= expected:
            assert len(asked) <= 2
        assert len(asked) <= 2 + 2 * abs(min(max(guess, first), last) - expected).bit_length()


@pytest.mark.parametrize("name", ["digits", "digits7", "residues", "complex-residues"])
def test_guesses_of_counts_spare_bounds(name, monkeypatch):
    """The counts for an accuracy and for exact images are guessed so well that few schemes are tried."""
    asked = []
    tried = search.first_count

    def first_count(holds, first, last, guess=0):
        return tried(
            lambda count: [asked.append(count), holds(count)][1] if guess else holds(count), first, last, guess
        )

    monkeypatch.setattr(search, "first_count", first_count)
    for k in (3, 300, 4099):
        for bits in (20, 53, 106, 212):
            asked.clear()
            search._usual.__wrapped__(name, Accuracy.of(bits, k), k)
            assert len(asked) <= 4, (k, bits)
            asked.clear()
            search.exact_below.__wrapped__(name, FAMILIES[name].most, k, (bits, 0))
            assert len(asked) <= 4, (k, bits)


def test_an_entry_without_a_lower_bound_may_become_exact(rng, monkeypatch):
    """An entry without a lower bound becomes exact with one slice more; then the first level proves the others."""
    a, b = rng.random((6, 40)) + 0.5, rng.random((40, 5)) + 0.5
    a[0] = b[:, 0] = 0
    a[0, :2] = 1, 2.0**-10
    b[1, 0] = 1
    four, five = bounds_of(work_of(a, b), 40, "componentwise", Residues(4), Residues(5))
    assert four == inf > five > 0
    monkeypatch.setattr(_numpy_proof, "_wide_product", None)
    assert ozaki.plan(a, b, accuracy=2.0**-10, scheme="residues").slices == 5


def test_no_row_has_more_bits_than_its_scaling_tells(rng):
    """`Scaling.most_bits` is the most bits that an image of k elements can have; a power of two alone has as many."""
    for _ in range(60):
        k = int(np.exp(rng.uniform(0, np.log(3000))))
        x = spread(rng, (1, 5, k), int(rng.integers(0, 40)))
        x[0, 0] = 0
        x[0, 0, k // 2] = 1
        name = str(rng.choice(list(COUNTS)))
        scaling = scheme_of(name, int(rng.integers(5, COUNTS[name]))).scaling(k)
        description = describe(x).on_host
        bits = description.bits(scaling)
        assert max(bits[~description.empty]) <= scaling.most_bits == bits[0, 0]


def test_one_digit_may_be_as_good_as_two():
    """One digit leaves no pair out: with one huge element in each row and a large k, that is all that counts."""
    a = np.full((1, 2**14), 2.0**-40, np.float32)
    a[:, 0] = 1 / 3
    one, two = (norm_bound(a, a.T, Digits(p), "row-column") for p in (1, 2))
    assert one < 1.1 * two
    target = Accuracy("row-column", max(one, two) * 1.001)
    assert ozaki.plan(a, a.T, accuracy=target, scheme="digits", reproducible=True).slices == 1


# What a plan must not depend on -------------------------------------------------------------------------------------


ACCURACIES = ["fp64", 70, Accuracy("componentwise", 1e-20), Accuracy("row-column", 1e-18)]


@pytest.mark.parametrize("accuracy", ACCURACIES, ids=str)
def test_powers_of_two_change_nothing(rng, accuracy):
    """Rows and columns scaled by powers of two: the same plan, and the same bits but for the exponents."""
    for _ in range(5):
        m, k, n = (int(v) for v in rng.integers(1, 30, 3))
        a, b = spread(rng, (m, k), 12), spread(rng, (k, n), 12)
        rows, cols = rng.integers(-400, 401, (m, 1)), rng.integers(-400, 401, (1, n))
        plan = ozaki.plan(a, b, accuracy=accuracy, reproducible=True)
        scaled = np.ldexp(a, rows), np.ldexp(b, cols)
        assert ozaki.plan(*scaled, accuracy=accuracy, reproducible=True) == plan
        c = ozaki.matmul(*scaled, plan=plan)
        assert same_bits(c, np.ldexp(ozaki.matmul(a, b, plan=plan), rows + cols))


def test_a_power_of_two_on_the_whole_changes_nothing_normwise(rng):
    a, b = spread(rng, (20, 30), 12), spread(rng, (30, 20), 12)
    target = Accuracy("normwise", 1e-17)
    plan = ozaki.plan(a, b, accuracy=target)
    assert ozaki.plan(np.ldexp(a, 300), np.ldexp(b, -500), accuracy=target) == plan


@pytest.mark.parametrize("accuracy", ACCURACIES, ids=str)
def test_the_order_of_the_inner_index_changes_nothing(rng, accuracy):
    a, b = spread(rng, (9, 700), 12), spread(rng, (700, 8), 12)
    order = rng.permutation(700)
    plan = ozaki.plan(a, b, accuracy=accuracy, reproducible=True)
    assert ozaki.plan(a[:, order], b[order], accuracy=accuracy, reproducible=True) == plan
    assert same_bits(ozaki.matmul(a[:, order], b[order], plan=plan), ozaki.matmul(a, b, plan=plan))


@pytest.mark.parametrize("accuracy", [*ACCURACIES, Accuracy("normwise", 1e-15)], ids=str)
def test_tiles_change_nothing(rng, monkeypatch, accuracy):
    cases = [(spread(rng, (15, 90), span), spread(rng, (90, 11), span)) for span in (3, 40, 600)]
    cases += [(spread(rng, (4, 1500), 3), spread(rng, (1500, 4), 3))]
    for a, _ in cases:
        a[3] = np.rint(a[3] * 4)

    def planned(a, b):
        try:
            return ozaki.plan(a, b, accuracy=accuracy, reproducible=True)
        except ValueError as error:  # no plan: the scaled operands must have none either
            return str(error)

    plans = [planned(*case) for case in cases]
    for tile in (1, 100, 1000):
        set_sizes(monkeypatch, tile)
        assert [planned(*case) for case in cases] == plans


def test_a_batch_has_one_plan_which_any_of_its_matrices_may_need(rng):
    a, b = rng.standard_normal((3, 10, 40)), rng.standard_normal((40, 10))
    a[1] *= np.ldexp(1.0, -rng.integers(0, 30, (10, 40)))
    alone = [ozaki.plan(x, b, accuracy="fp64", reproducible=True).slices for x in a]
    plan = ozaki.plan(a, b, accuracy="fp64", reproducible=True)
    assert plan.slices == max(alone)
    assert plan.batch == (3,)


@pytest.mark.parametrize("measure", ["componentwise", "row-column", "normwise"])
def test_more_accurate_products_prove_more_before_their_rounding(rng, measure):
    """The rounding to float64 hides the accuracy in `bound`, not in `unrounded_bound`."""
    a, b = (np.ldexp(1 + rng.random(shape), rng.integers(-60, 60, shape)) for shape in ((20, 30), (30, 20)))
    proven = []
    for bits in (64, 80, 106):
        asked = {"accuracy": Accuracy(measure, 2.0**-bits), "scheme": "residues"}
        plan = ozaki.plan(a, b, **asked)
        for options in (asked, {"plan": plan}):
            _, report = ozaki.matmul(a, b, return_report=True, **options)
            assert (report.bound, report.unrounded_bound) == (plan.bound, plan.unrounded_bound)
            assert report.bound == with_rounding(report.unrounded_bound, "float64")
            assert f"({power_of_two(report.unrounded_bound)} before the rounding" in str(report)
        assert f"({power_of_two(plan.unrounded_bound)} before the rounding)" in str(plan)
        c = ozaki.matmul(a, b, scheme="residues", slices=plan.slices, dtype="mp400")
        assert MEASURES[measure](c, a, b) <= plan.unrounded_bound <= 2.0**-bits
        proven.append(plan.unrounded_bound)
    assert proven == sorted(set(proven), reverse=True)


@pytest.mark.parametrize(
    ("x", "exponent", "text"),
    [(0.0, -9, "exact"), (2.0**-107, 0, "2^-107"), (1.001 * 2.0**-107, 0, "2^-106"), (0.3, -1000, "2^-1001")],
)
def test_bounds_are_rounded_up_to_powers_of_two(x, exponent, text):
    assert power_of_two(x, exponent) == text


# Using plans --------------------------------------------------------------------------------------------------------


def test_an_a_priori_plan_needs_no_look_at_the_data(rng, monkeypatch):
    plan = ozaki.plan((10, 40), (40, 10), dtype="float64", accuracy=Accuracy("normwise", 1e-14))
    monkeypatch.setattr(_numpy_proof, "lower_bound", None)
    _, report = ozaki.matmul(
        rng.standard_normal((10, 40)), rng.standard_normal((40, 10)), plan=plan, return_report=True
    )
    assert report.bound == plan.bound
    assert report.measure == "normwise"
    assert report.nonfinite is None


def test_a_plan_serves_other_operands_and_the_report_proves_anew(rng):
    a, b = rng.standard_normal((10, 40)), rng.standard_normal((40, 10))
    plan = ozaki.plan(a, b, accuracy="fp64", reproducible=True)
    same, report = ozaki.matmul(a, b, plan=plan, return_report=True)
    assert report.bound == plan.bound
    assert same_bits(same, ozaki.matmul(a, b, accuracy="fp64", reproducible=True))
    _, report = ozaki.matmul(np.rint(a), np.rint(b), plan=plan, return_report=True)
    assert (report.bound, report.unrounded_bound) == (2.0**-53, 0.0)
    assert "(exact before the rounding to the output)" in str(report)


def large_meets_small(a, b):
    """Columns of a times powers of two down to 2**-312, and rows of b times these in the other order."""
    grades = 2.0 ** (-8.0 * np.arange(40))
    return a * grades, b * grades[::-1, None]


@pytest.mark.parametrize(
    "options",
    [
        {"accuracy": "fp64", "reproducible": True},
        {"reproducible": True},
        {"accuracy": "fp64", "scheme": "residues", "slices": 15},
        {"accuracy": ozaki.Accuracy("row-column", 1e-16)},
        {"accuracy": ozaki.Accuracy("normwise", 1e-16)},
        {"accuracy": 1e-12},
    ],
    ids=str,
)
def test_a_plan_is_refused_for_operands_that_it_does_not_suit(rng, options):
    """Componentwise, a plan made for other operands is refused where exponents inside rows spoil its bound."""
    a, b = rng.standard_normal((10, 40)), rng.standard_normal((40, 10))
    other = large_meets_small(a, b)
    other = (np.ldexp(1 + a**2, -1060), b) if options.get("accuracy") == 1e-12 else other
    plan, loose = (ozaki.plan(a, b, strict=strict, **options) for strict in (True, False))
    check = ozaki.matmul(a, b, plan=plan, return_report=True)
    assert check[1].bound <= plan.bound
    assert same_bits(check[0], ozaki.matmul(a, b, plan=loose))
    fits = plan.target.measure != "componentwise" and plan.scheme is not None
    if fits:
        assert ozaki.matmul(*other, plan=plan, return_report=True)[1].bound <= plan.target.tolerance + 2.0**-52
        return
    for report in (False, True):
        with pytest.raises(ValueError, match=r"^plan: proves a componentwise error of .* strict=False"):
            ozaki.matmul(*other, plan=plan, return_report=report)
    ozaki.matmul(*other, plan=loose)
    if plan.scheme is not None:
        with pytest.warns(UserWarning, match="plan: proves a componentwise error"):
            _, report = ozaki.matmul(*other, plan=loose, return_report=True)
        assert report.bound > plan.target.tolerance


def test_a_plan_of_a_given_count_promises_no_accuracy(rng):
    a, b = rng.standard_normal((10, 40)), rng.standard_normal((40, 10))
    other = large_meets_small(a, b)
    plan = ozaki.plan(a, b, scheme="residues", slices=15)
    assert plan.strict is None
    assert ozaki.matmul(*other, plan=plan, return_report=True)[1].bound > plan.bound
    assert ozaki.plan(a, b).strict is None  # the native product
    assert ozaki.plan(a.shape, b.shape, dtype="float64").strict is None


def test_a_report_proves_no_less_than_the_plan_of_the_same_operands(rng):
    """The report's bound is at most the plan's, even if the search took a sharper level than the target needs."""
    for k in (40, 1100, 3000):
        a, b = rng.standard_normal((8, k)), rng.standard_normal((k, 8))
        for bits in range(30, 60):
            plan = ozaki.plan(a, b, accuracy=2.0**-bits, reproducible=True)
            assert ozaki.matmul(a, b, plan=plan, return_report=True)[1].bound <= plan.bound
