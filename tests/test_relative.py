"""The largest relative error that a report proves on request, against exact rationals."""

from fractions import Fraction

import numpy as np
import pytest
from cases import power, same_bits, spread
from mparrays import rationals

import ozaki
from ozaki import Accuracy, reference


def fractions(x):
    """The elements of an array as Fractions."""
    return rationals(x) if isinstance(x, ozaki.MPArray) else np.vectorize(Fraction, otypes=[object])(x)


def largest(c, a, b):
    """The largest abs(c - C) / abs(C) of the exact product C; None where a zero does not come out as zero."""
    wanted = fractions(a) @ fractions(b)
    pairs = list(zip(fractions(c).flat, wanted.flat, strict=True))
    if any(x != y for x, y in pairs if y == 0):
        return None
    return max((abs(x - y) / abs(y) for x, y in pairs if y), default=Fraction(0))


KINDS = ["normal", "spread", "whole", "cancelling", "vanishing"]


def operands(rng, kind, dtype="float64"):
    """Matrices of 6 by 10 and 10 by 5.

    Cancelling: what is left of some entries is 2**-20 of what was added. Vanishing: some entries are zero.
    """
    a, b = rng.standard_normal((6, 10)), rng.standard_normal((10, 5))
    if kind == "spread":
        a, b = spread(rng, a.shape, 20), spread(rng, b.shape, 20)
    elif kind == "whole":
        a, b = np.rint(9 * a), np.rint(9 * b)
    elif kind in ("cancelling", "vanishing"):
        a, b = a.astype("float32").astype("float64"), b.astype("float32").astype("float64")
        a[:, 5:], b[5:] = -a[:, :5], b[:5]
        if kind == "cancelling":
            a[::2, 5] *= 1 + 2.0**-20
            a[1::2] = rng.standard_normal((3, 10))
    return a.astype(dtype), b.astype(dtype)


WAYS = {
    "residues": {"scheme": "residues", "slices": 9},
    "more residues": {"scheme": "residues", "slices": 19},
    "digits": {"scheme": "digits", "slices": 4},
    "int8": {"scheme": "residues", "slices": 13, "engine": "int8-simulated"},
    "an accuracy": {"accuracy": "fp64", "reproducible": True},
    "row-column": {"accuracy": Accuracy("row-column", 1e-14), "reproducible": True},
    "multiprecision": {"accuracy": 90, "dtype": "mp"},
    "many bits": {"accuracy": 1200, "dtype": "mp"},
    "a result of few bits": {"accuracy": 1e-4, "dtype": "mp4"},
    "relative": {"accuracy": Accuracy("relative", 1e-9)},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
def test_it_is_no_less_than_the_true_one(rng, kind, way):
    for dtype in ("float64", "float32"):
        a, b = operands(rng, kind, dtype)
        plain, usual = ozaki.matmul(a, b, return_report=True, **WAYS[way])
        c, report = ozaki.matmul(a, b, return_report="relative", **WAYS[way])
        assert (usual.bound, usual.relative_bound) == (report.bound, None)
        assert (c == plain).all() if isinstance(c, ozaki.MPArray) else same_bits(c, plain)
        proven, true = report.relative_bound, largest(c, a, b)
        if proven == np.inf:
            assert "no relative error is proven: an entry may be no larger than its error" in str(report)
            continue
        assert true is not None and true <= Fraction(proven) * power(report.exponent)
        if report.measure == "relative":
            assert proven == report.bound
        else:
            assert "proven: relative error of every entry <= " in str(report)


def test_it_is_close_to_the_true_one(rng):
    """Within 2**8 at the median: now and then an entry that cancels most has an error that is far below its bound."""
    for way in (
        {"scheme": "residues", "slices": 12},
        {"scheme": "digits", "slices": 5},
        {"accuracy": 50, "dtype": "mp"},
    ):
        excess = []
        for _ in range(7):
            a, b = rng.standard_normal((30, 40)), rng.standard_normal((40, 30))
            c, report = ozaki.matmul(a, b, return_report="relative", **way)
            error = reference.relative_error(c, a, b)
            assert error <= report.relative_bound, way
            excess.append(report.relative_bound / error)
        assert sorted(excess)[3] <= 2**8, way
    c, report = ozaki.matmul(a, b, accuracy=150, return_report="relative")  # here the last rounding is all of it
    assert reference.relative_error(c, a, b) <= report.relative_bound <= 2.0**-52.9
    x, y = rng.integers(-9, 10, (2, 30, 30)).astype("float64")
    assert ozaki.matmul(x, y, scheme="residues", slices=9, return_report="relative")[1].relative_bound == 2.0**-53


def test_entries_that_cancel_below_their_error_have_none():
    a, b = np.array([[1.1, 1.0]]), np.array([[1.0], [-1.1]])
    for x, y in ((a, b), (a, b * (1 + 2.0**-40))):  # nothing is left, and what few slices do not see
        _, report = ozaki.matmul(x, y, scheme="residues", slices=6, return_report="relative")
        assert report.relative_bound == np.inf and report.bound < np.inf
    c, report = ozaki.matmul(a, b, accuracy="exact", dtype="mp", return_report="relative")
    assert c == 0 and report.relative_bound == 0


@pytest.mark.parametrize("options", [{"scheme": "native"}, {"scheme": "halfhalf"}])
def test_nothing_is_proven_of_products_that_are_rounded_on_the_way(rng, options):
    a, b = rng.standard_normal((2, 9, 9)).astype("float32")
    _, report = ozaki.matmul(a, b, return_report="relative", **options)
    assert report.relative_bound == np.inf
    assert "no relative error is proven: only products of slices prove one" in str(report)


def test_of_given_plans_prepared_operands_batches_and_gemm(rng):
    a, b = rng.standard_normal((3, 6, 10)), rng.standard_normal((10, 5))
    plan = ozaki.plan(a, b, accuracy=60, reproducible=True)
    bounds = {
        ozaki.matmul(x, y, plan=plan, return_report="relative")[1].relative_bound
        for x, y in ((a, b), (a, ozaki.prepare(b, "right", plan)), (ozaki.prepare(a, "left", plan), b))
    }
    (bound,) = bounds | {ozaki.gemm(2.0, a, b, 0.0, None, plan=plan, return_report="relative")[1].relative_bound}
    alone = [ozaki.matmul(x, b, accuracy=60, reproducible=True, return_report="relative")[1] for x in a]
    assert bound == max(report.relative_bound for report in alone)
    shapes = ozaki.plan(a.shape, b.shape, dtype="float64", scheme=plan.scheme.name, slices=plan.slices)
    assert ozaki.matmul(a, b, plan=shapes, return_report="relative")[1].relative_bound == bound


def test_entries_that_nan_touches_do_not_count(rng):
    a, b = rng.standard_normal((4, 6)), rng.standard_normal((6, 4))
    options = {"scheme": "residues", "slices": 14, "return_report": "relative"}
    rest = ozaki.matmul(a[1:], b, **options)[1].relative_bound
    a[0, 2] = np.nan
    assert ozaki.matmul(a, b, **options)[1].relative_bound == rest < 1e-9


def test_exponents_beyond_the_precision_of_floats(rng):
    """Exponents of 2**59 leave no bit of a float to a fraction."""
    a, b = (ozaki.mparray(x) for x in operands(rng, "normal"))
    options = {"scheme": "residues", "slices": 14, "dtype": "mp", "return_report": "relative"}
    expected = ozaki.matmul(a, b, **options)[1].relative_bound
    assert ozaki.matmul(a.ldexp(2**59), b, **options)[1].relative_bound == expected < 1e-6


def test_entries_hardly_above_their_errors(rng):
    """Where an entry is hardly above its error, roundings of logarithms count most: bounds beyond 1 hold, too."""
    beyond = 0
    for _ in range(200):
        a, b = operands(rng, "normal")
        c, report = ozaki.matmul(a, b, scheme="residues", slices=3, dtype="mp3", return_report="relative")
        if report.relative_bound < np.inf:
            beyond += report.relative_bound > 1
            assert largest(c, a, b) <= Fraction(report.relative_bound)
    assert beyond


def test_of_an_empty_product():
    for a, b in ((np.ones((0, 3)), np.ones((3, 2))), (np.ones((2, 0)), np.ones((0, 2)))):
        _, report = ozaki.matmul(a, b, reproducible=True, return_report="relative")
        assert report.relative_bound == report.bound == 2.0**-53


def test_out_may_be_an_operand(rng):
    """The operands are compared with the product before this overwrites one of them."""
    a, b = rng.standard_normal((2, 7, 7))
    options = {"scheme": "residues", "slices": 12, "return_report": "relative"}
    apart = ozaki.matmul(a, b, **options)[1].relative_bound
    assert ozaki.matmul(a, b, out=a, **options)[1].relative_bound == apart
