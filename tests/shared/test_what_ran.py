"""What ran, for those who want to know: recordings, logs and progress, on every device."""

import logging
import re
from fractions import Fraction

import numpy as np
import pytest
from cases import assert_same

import ozaki

FP64 = {"accuracy": "fp64", "reproducible": True}
GIVEN = {"scheme": "residues", "slices": 14}


def operands(device, rng, shape=(7, 9, 5)):
    m, k, n = shape
    return device.asarray(rng.standard_normal((m, k))), device.asarray(rng.standard_normal((k, n)))


def worst_error(device, c, a, b):
    """The largest componentwise error of a product, exactly."""
    a, b, c = (device.asnumpy(x) for x in (a, b, c))
    worst = Fraction(0)
    for i, j in np.ndindex(c.shape):
        terms = [Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a[i], b[:, j], strict=True)]
        worst = max(worst, abs(Fraction(float(c[i, j])) - sum(terms)) / sum(map(abs, terms)))
    return worst


def test_a_recording_counts_direct_calls(device, rng):
    a, b = operands(device, rng)
    with ozaki.recording() as run:
        for _ in range(3):
            c = ozaki.matmul(a, b, **FP64)
        ozaki.gemm(2.0, a, b, 0, None, **FP64)
    ozaki.matmul(a, b, **FP64)
    found = {entry.operator: entry for entry in run.account.entries}
    assert {name: entry.count for name, entry in found.items()} == {"matmul": 3, "gemm": 1}
    entry = found["matmul"]
    assert (entry.shape, entry.batch, entry.dtype, entry.measure) == ((7, 9, 5), (), "float64", "componentwise")
    assert entry.how.endswith("residues") and worst_error(device, c, a, b) <= entry.bound < 1e-14
    assert str(run).startswith("4 products ran through ozaki\n")


def test_the_bound_of_a_repeated_call_is_that_of_its_operands(device, rng):
    bounds = []
    accuracy = ozaki.Accuracy("componentwise", 1e-11)
    for spread in (0, 3, 0):
        a, b = (
            rng.standard_normal(shape) * np.exp2(rng.integers(-spread, spread + 1, shape)) for shape in ((6, 8), (8, 6))
        )
        a, b = device.asarray(a), device.asarray(b)
        with ozaki.recording() as run:
            c = ozaki.matmul(a, b, accuracy=accuracy, reproducible=True)
        with ozaki.recording() as planned:
            _, report = ozaki.matmul(a, b, accuracy=accuracy, reproducible=True, return_report=True)
        (entry,), (other,) = run.account.entries, planned.account.entries
        assert entry.how == other.how
        assert entry.bound == other.bound == report.bound
        assert worst_error(device, c, a, b) <= entry.bound
        bounds.append(entry.bound)
    assert len(set(bounds)) == 3


def test_no_bound_is_entered_that_nobody_found(device, rng):
    a, b = operands(device, rng)
    with ozaki.recording() as run:
        ozaki.matmul(a, b, scheme="native")
        ozaki.gemm(1.0, a, b, 1.0, ozaki.matmul(a, b, scheme="native"), scheme="native")
    assert [entry.bound for entry in run.account.entries] == [None, None]
    assert "error" not in str(run)
    with ozaki.recording() as run:
        ozaki.matmul(a, b, scheme="native", return_report=True)
        ozaki.matmul(1e-200 * a, 1e-200 * b, scheme="native", return_report=True)
        ozaki.gemm(1.0, a, b, 1.0, ozaki.matmul(a, b, **GIVEN), scheme="native", return_report=True)
    known, given, expression = run.account.entries
    assert known.bound == np.inf and "no bound" in str(known)  # the largest of both
    assert (given.measure, given.how) == ("row-column", "14 residues")
    assert expression.bound is None  # that of the report is of A B alone


def test_a_plan_that_is_given(device, rng):
    a, b = operands(device, rng)
    strict, loose = (ozaki.plan(a, b, **FP64, strict=strict) for strict in (True, False))
    left = ozaki.prepare(a, "left", strict)
    with ozaki.recording() as run:
        for plan in (strict, loose):
            ozaki.matmul(a, b, plan=plan)
        ozaki.matmul(left, b, plan=strict)
    proven, unknown = run.account.entries
    assert proven.count == 2 and 0 < proven.bound < 1e-14
    assert (unknown.count, unknown.bound) == (1, None)


# Logs ----------------------------------------------------------------------------------------------------------------


def test_plans_are_logged_and_at_debug_why(device, rng, caplog):
    a, b = operands(device, rng)
    with caplog.at_level(logging.INFO, "ozaki"):
        for _ in range(3):  # on a GPU the last ones by the program of the first
            ozaki.matmul(a, b, **FP64)
    assert {record.name for record in caplog.records} == {"ozaki"}
    assert [record.levelname for record in caplog.records] == 3 * ["INFO"]
    assert len(set(caplog.messages)) == 1
    assert re.match(r"matmul: \(7 x 9\) \(9 x 5\), float64: (\d+) residues, \1 products; comp", caplog.messages[0])
    caplog.clear()
    with caplog.at_level(logging.DEBUG, "ozaki"):
        ozaki.plan(a, b, **FP64)
    first, *others = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert first[0] == "INFO" and first[1].startswith("plan: (7 x 9) (9 x 5), float64: ")
    assert {level for level, _ in others} == {"DEBUG"}
    text = "\n".join(message for _, message in others)
    assert "plan: native product ruled out by reproducible=True" in text
    assert "plan: fact WorstRatio" in text and "plan: weighed native product" in text and "chosen" in text


def test_logs_change_no_bits(device, rng, caplog):
    a, b = operands(device, rng)
    expected = device.asnumpy(ozaki.matmul(a, b, **FP64))
    with caplog.at_level(logging.DEBUG, "ozaki"), ozaki.recording():
        assert_same(device.asnumpy(ozaki.matmul(a, b, **FP64)), expected)


# Progress ------------------------------------------------------------------------------------------------------------


def calls_of(function, *operands, **options):
    calls = []
    return function(*operands, progress=lambda *call: calls.append(call), **options), calls


def test_progress_ends_with_all_done_and_changes_no_bits(device, rng):
    a, b = operands(device, rng, (40, 30, 20))
    for options in (FP64, GIVEN, {"scheme": "digits", "slices": 7}, {"scheme": "native"}, FP64):
        found, calls = calls_of(ozaki.matmul, a, b, **options)
        assert_same(device.asnumpy(found), device.asnumpy(ozaki.matmul(a, b, **options)))
        *before, (done, total, unit) = calls
        assert done == total > 0 and isinstance(unit, str)
        assert all(0 < each[0] < total for each in before)


def test_progress_of_other_functions(device, rng):
    a, b = operands(device, rng)
    c = device.asarray(rng.standard_normal((7, 5)))
    for function, arguments, products in (
        (ozaki.gemm, (2.0, a, b, 1.0, c), 1),
        (ozaki.tensordot, (a, b, 1), 1),
        (ozaki.einsum, ("ij,jk,lk->il", a, b, c), 2),
    ):
        _, calls = calls_of(function, *arguments, **GIVEN)
        assert sum(done == total for done, total, _ in calls) == products
    for empty in (a[:0], a[:, :0]):
        _, calls = calls_of(ozaki.matmul, empty, b[: empty.shape[1]])
        assert calls == [(1, 1, "products")]
    (_, report), calls = calls_of(ozaki.matmul, a, b, **FP64, return_report=True)
    assert calls[-1][0] == calls[-1][1] and report.scheme == "residues"


def test_what_progress_raises_ends_the_product(device, rng):
    a, b = operands(device, rng)

    def stop(done, total, unit):
        raise KeyboardInterrupt

    out = device.full((7, 5), 0.5)
    with ozaki.recording() as run, pytest.raises(KeyboardInterrupt):
        ozaki.matmul(a, b, out, progress=stop, **GIVEN)
    assert run.account.products == 0
    expected = device.asnumpy(ozaki.matmul(a, b, **GIVEN))
    assert ((device.asnumpy(out) == expected) | (device.asnumpy(out) == 0.5)).all()
    assert_same(device.asnumpy(ozaki.matmul(a, b, out, **GIVEN)), expected)


def test_progress_that_is_no_function(device, rng):
    a, b = operands(device, rng)
    for function, arguments in (
        (ozaki.matmul, (a, b)),
        (ozaki.gemm, (1.0, a, b, 0, None)),
        (ozaki.tensordot, (a, b, 1)),
    ):
        with pytest.raises(TypeError, match=r"progress: int; expected a function of \(done, total, unit\)"):
            function(*arguments, progress=10)
