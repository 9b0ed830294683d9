"""Products into another format than that of the operands: what is proven, what is refused, and plans for shapes."""

import math
from fractions import Fraction

import numpy as np
import pytest

import ozaki
from ozaki import Accuracy, reference
from ozaki.records.plan import Candidate
from ozaki.records.report import rounded_up

WIDE = ozaki.mparray([["1/3", "1/7"], ["0.1", 2]], bits=200)


@pytest.mark.parametrize("scheme", ["auto", "residues"])
def test_the_bound_of_a_float32_result_counts_the_bits_of_float64_operands(scheme):
    """A native float32 product would round the operands first, which its bound knows nothing of."""
    rng = np.random.default_rng(0)
    for _ in range(100):
        a, b = rng.random((1, 2)) + 0.5, rng.random((2, 1)) + 0.5
        c, report = ozaki.matmul(a, b, dtype="float32", scheme=scheme, return_report=True)
        assert c.dtype == np.float32 and not report.native
        assert reference.componentwise_error(c, a, b) <= report.bound
    native, report = ozaki.matmul(a, b, dtype="float32", scheme="native", return_report=True)
    assert native.dtype == np.float32 and report.bound == math.inf


@pytest.mark.parametrize(
    "options", [{"scheme": "digits", "slices": 9}, {"scheme": "native"}, {"scheme": "halfhalf"}], ids=str
)
def test_what_has_no_multiprecision_slices_is_refused(options):
    with pytest.raises(ValueError, match=r"^scheme: '\w+' has no slices of multiprecision numbers"):
        ozaki.plan((2, 2), (2, 2), dtype="mp", **options)


@pytest.mark.parametrize(
    ("accuracy", "bits"),
    [
        (None, 53),
        (Accuracy("row-column", 1e-40), 134),
        (Accuracy("normwise", 2.0**-200), 201),
        (Accuracy("row-column", 0.5, exponent=-1999), 2001),
    ],
    ids=str,
)
def test_a_multiprecision_plan_for_shapes_holds_for_any_operands(accuracy, bits):
    plan = ozaki.plan((2, 2), (2, 2), dtype="mp", accuracy=accuracy)
    assert plan.dtype == f"mp{bits}" and plan.a_priori
    for a in (WIDE, np.array([[1.0, 1e-30], [3.0, 7.0]])):
        c, report = ozaki.matmul(a, WIDE, plan=plan, return_report=True)
        assert c.bits == bits and (report.bound, report.exponent) == (plan.bound, plan.target.exponent)
        measure = {"row-column": reference.row_column_error, "normwise": reference.normwise_error}[report.measure]
        assert measure(c, a, WIDE, exponent=report.exponent) <= report.bound
        if accuracy is not None:
            assert report.bound <= accuracy.tolerance


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dtype": "mp", "accuracy": 212}, r"^accuracy: a componentwise target .*Accuracy\('row-column', 3.04e-64\)"),
        ({"dtype": "mp", "accuracy": 2000}, r"^accuracy: .*, exponent=-1000\)"),
        ({"dtype": "mp", "accuracy": "exact"}, r"^accuracy: an exact product .* depends on the data; plan from them"),
        ({"dtype": "int64"}, r"^dtype: an int64 product .* depends on the data; plan from them"),
    ],
    ids=str,
)
def test_what_shapes_do_not_decide_is_refused(options, words):
    with pytest.raises((ValueError, TypeError), match=words):
        ozaki.plan((2, 2), (2, 2), **options)


@pytest.mark.parametrize("x", [1.0, 0.3, 0.999, 5e-324, 7.25e-9])
@pytest.mark.parametrize("exponent", [-1, -999, -1000, -4999, -99_000])
def test_bounds_below_the_range_of_a_float_are_rounded_up(x, exponent):
    digits, _, power = rounded_up(x, exponent).partition("e")
    printed = Fraction(digits) * Fraction(10) ** int(power)
    exact = Fraction(x) * Fraction(1, 2**-exponent)
    assert exact <= printed <= exact * Fraction(11, 10)
    assert 1 <= float(digits) < 10


def test_bounds_that_are_none_or_zero_have_no_exponent():
    assert (rounded_up(math.inf, -1000), rounded_up(0.0, -1000)) == ("none", "0")


def test_candidates_print_what_they_prove_in_units():
    assert "proves 9.4e-302" in str(Candidate("9 residues", None, 1.0, False, "slower", exponent=-1000))
    plan = ozaki.plan(WIDE, WIDE, accuracy=2000)
    assert {candidate.exponent for candidate in plan.candidates} == {plan.target.exponent} and plan.target.exponent
