"""Undecided entries computed apart (docs/bounds.md, B14): every entry is the exact one, rounded once."""

from __future__ import annotations

import math
import tracemalloc
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from cases import same_bits
from hypothesis import given, settings
from hypothesis import strategies as st

import ozaki
from ozaki import Accuracy
from ozaki.backends.numpy._crossings import foretell, foretelling_bytes, slab_within, some_rows
from ozaki.backends.numpy._describe import describe
from ozaki.backends.numpy._execute import _apart
from ozaki.backends.numpy._inner_products import inner_products_bytes
from ozaki.backends.numpy._scaled import scaled_along_k
from ozaki.backends.numpy._undecided import Undecided
from ozaki.bounds.undecided import Crossings, row_errors
from ozaki.planning.undecided import _cheapest
from ozaki.records.memory import Memory
from ozaki.reference import componentwise_error
from ozaki.schemes import Residues, scaling_of

KINDS = (
    "normal", "wide", "sparse", "heavy", "whole", "tiny", "subnormal", "huge", "ties", "cancelling", "special",
)  # fmt: skip
PRECISION = {"f4": (24, -149, 128), "f8": (53, -1074, 1024)}


def draw(rng, shape, kind):
    x = rng.standard_normal(shape)
    if kind == "wide":
        x *= np.exp2(rng.integers(-150, 151, shape).astype(float))
    elif kind == "sparse":
        x *= rng.random(shape) < 0.2
    elif kind == "heavy":
        x = rng.standard_cauchy(shape) ** 3
    elif kind == "whole":
        x = np.rint(8 * x)
    elif kind == "tiny":
        x *= 2.0**-540
    elif kind == "subnormal":
        x = np.rint(9 * x) * 2.0**-1074
    elif kind == "huge":
        x *= 2.0**511
    elif kind == "ties":
        x = np.where(rng.random(shape) < 0.5, 1.0, 2.0**-53 * rng.choice([1, -1], shape))
    elif kind == "special":
        x[rng.random(shape) < 0.05] = rng.choice([np.nan, np.inf, -np.inf])
    elif kind == "cancelling" and shape[1] > 1:
        x[:, -1] = -x[:, 0]
    return x


def rounded(x, dtype):
    """A fraction rounded to nearest, ties to even."""
    precision, least, beyond = PRECISION[dtype]
    size = abs(x)
    if not size:
        return 0.0
    top = size.numerator.bit_length() - size.denominator.bit_length()
    top += size >= Fraction(2) ** top
    unit = Fraction(2) ** max(top - precision, least)
    size = round(size / unit) * unit  # of fractions to even
    value = float(size) if size < Fraction(2) ** beyond else np.inf
    return -value if x < 0 else value


def nearest(a, b, dtype):
    """The product of floats, rounded once; None for entries that NaN or Inf touch."""
    found = np.empty((len(a), b.shape[1]), object)
    for i, j in np.ndindex(found.shape):
        row, column = a[i].tolist(), b[:, j].tolist()
        if np.isfinite(row).all() and np.isfinite(column).all():
            found[i, j] = rounded(sum(Fraction(x) * Fraction(y) for x, y in zip(row, column, strict=True)), dtype)
    return found


def apart(a, b, slices, **options):
    """A plan with so many residues and undecided entries apart, however many these are."""
    plan = ozaki.plan(a, b, scheme="residues", slices=slices, **options)
    return replace(plan, undecided_apart=True, strict=None)


def check(c, a, b, dtype="f8"):
    wanted = nearest(a, b, dtype)
    for at in np.ndindex(wanted.shape):
        if wanted[at] is None:
            assert not np.isfinite(c[at])
        else:
            assert c[at] == wanted[at] and np.signbit(c[at]) == np.signbit(wanted[at]), at


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_every_entry_is_the_nearest(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    m, k, n = (data.draw(st.integers(1, most)) for most in (9, 30, 9))
    kinds, dtype = [data.draw(st.sampled_from(KINDS)) for _ in "ab"], data.draw(st.sampled_from(["f8", "f8", "f4"]))
    a, b = draw(rng, (m, k), kinds[0]), draw(rng, (n, k), kinds[1]).T
    if kinds[0] == "cancelling" and k > 1:
        b[-1] = b[0]
    with np.errstate(all="ignore"):
        a, b = a.astype(dtype), b.astype(dtype)
    scaled = data.draw(st.booleans())
    plan = apart(a, b, data.draw(st.integers(9 if dtype == "f4" else 14, 26)), inner_scaling=scaled)
    with np.errstate(all="ignore"):
        c, report = ozaki.matmul(a, b, plan=plan, return_report=True, verify=data.draw(st.booleans()))
    check(c, a, b, dtype)
    assert 0 <= report.undecided <= m * n and report.unrounded_bound == 0


@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_the_same_by_compiled_code(code, rng, dtype):
    for kind in KINDS:
        a, b = draw(rng, (40, 60), kind), draw(rng, (60, 50), kind)
        with np.errstate(all="ignore"):
            a, b = a.astype(dtype), b.astype(dtype)
            for slices in (10, 14, 17, 20, 24):
                plan = apart(a, b, slices)
                expected = ozaki.matmul(a, b, plan=replace(plan, engine="float64"))
                got, report = ozaki.matmul(a, b, plan=plan, return_report=True)
                assert same_bits(got, expected) and str(code) in report.engine


@pytest.mark.parametrize("kind", ["normal", "wide", "ties", "sparse"])
def test_errors_hold(rng, kind):
    """B14: the exact entry lies within E of the integer."""
    a, b = draw(rng, (6, 20), kind), draw(rng, (20, 7), kind)
    for slices in (9, 15, 20):
        scheme = Residues(slices)
        rows = [describe(np.ascontiguousarray(x)[None]).on_host for x in (a, b.T)]
        mu, nu = (x.exponents(scaling_of(scheme, 20))[0].tolist() for x in rows)
        errors = row_errors(*rows, scheme).of_entries()[0]
        image = [[round(Fraction(x) * Fraction(2) ** e) for x in row] for row, e in zip(a.tolist(), mu, strict=True)]
        other = [[round(Fraction(x) * Fraction(2) ** e) for x in row] for row, e in zip(b.T.tolist(), nu, strict=True)]
        for i, j in np.ndindex(6, 7):
            exact = sum(Fraction(x) * Fraction(y) for x, y in zip(a[i].tolist(), b[:, j].tolist(), strict=True))
            whole = sum(x * y for x, y in zip(image[i], other[j], strict=True))
            assert abs(exact * Fraction(2) ** (mu[i] + nu[j]) - whole) <= Fraction(float(errors[i, j]))


def wild(rng, n):
    """Normal data, one row of which is spread over many binary orders of magnitude."""
    a, b = rng.standard_normal((2, n, n))
    a[n // 2] *= np.exp2(rng.uniform(-60, 60, n))
    return a, b


def heavy(rng, n):
    return tuple(np.exp(3 * rng.standard_normal((2, n, n))))


@pytest.mark.parametrize("data", [wild, heavy])
def test_wide_data_need_few_residues(rng, data):
    """One wild row, or heavy tails, cost an exact product a few entries, not a third of its residues more."""
    a, b = data(rng, 400)
    c, report = ozaki.matmul(a, b, accuracy="exact", return_report=True)
    assert report.slices <= 22 and report.undecided < 400 * 400 / 100
    every_bit = ozaki.matmul(a, b, accuracy="exact", dtype="mp")
    assert same_bits(c, np.asarray(every_bit, np.float64))
    assert componentwise_error(c, a, b) <= 2.0**-53


def test_any_range(rng):
    a, b = (rng.standard_normal((70, 70)) * np.exp2(rng.integers(-500, 501, (70, 70)).astype(float)) for _ in "ab")
    c, report = ozaki.matmul(a, b, accuracy="exact", return_report=True)
    assert report.undecided is not None
    check(c[:4], a[:4], b)


def test_stacks_symmetric_products_and_strides(rng):
    a, b = draw(rng, (6, 200), "ties"), draw(rng, (200, 5), "ties")
    stack = np.stack([a, -2 * a, a[::-1]])
    c = ozaki.matmul(stack, b, plan=apart(stack, b, 16))
    for matrix, of in zip(c, stack, strict=True):
        check(matrix, of, b)
    for x in (a, np.asfortranarray(a), stack[1, ::-1, ::-1]):
        check(ozaki.matmul(x, x.T, plan=apart(x, x.T, 15)), x, x.T)
    long = draw(rng, (2, 20000), "ties"), draw(rng, (20000, 3), "ties")
    check(ozaki.matmul(*long, plan=apart(*long, 17)), *long)


def test_prepared_operands(rng):
    a, b = draw(rng, (7, 60), "ties"), draw(rng, (60, 5), "ties")
    for scaled in (False, True):
        plan = apart(a, b, 16, inner_scaling=scaled)
        wanted = ozaki.matmul(a, b, plan=plan)
        assert same_bits(ozaki.matmul(a, ozaki.prepare(b, "right", plan), plan=plan), wanted)
        assert same_bits(ozaki.matmul(ozaki.prepare(a, "left", plan), b, plan=plan), wanted)


def test_what_is_reported(rng):
    a, b = wild(rng, 300)
    options = {"accuracy": "exact", "return_report": ("relative", "bounds")}
    c, report = ozaki.matmul(a, b, **options)
    assert report.undecided is not None and "undecided" in str(report) and report.unrounded_bound == 0
    assert report.relative_bound <= 2.0**-53
    assert (report.bounds <= np.spacing(np.abs(c)) / 2).all()
    plan = ozaki.plan(a, b, accuracy="exact")
    assert plan.undecided_apart and "undecided entries apart" in str(plan)
    again, other = ozaki.matmul(a[::-1], b, plan=plan, return_report=True)  # holds for any operands
    assert same_bits(again, c[::-1]) and other.bound == report.bound


def test_relative_targets(rng):
    """A relative target is met entry by entry, not by more slices for all, because a few entries cancel."""
    a, b = wild(rng, 300)
    a[0, 1:-1], a[0, -1], b[-1] = 0, -a[0, 0], b[0]  # of two terms nothing is left
    b[0, 0], b[-1, 0] = 1.0, 1 + 2.0**-52
    b[1, :] *= np.exp2(rng.uniform(-300, 300, 300))
    c, report = ozaki.matmul(a, b, accuracy=Accuracy("relative", 2.0**-50), return_report=True)
    assert report.undecided is not None
    check(c[:4, :20], a[:4], b[:, :20])


def test_an_expression_is_not_rounded_so(rng):
    a, b = wild(rng, 200)
    plan = ozaki.plan(a, b, accuracy="exact")
    assert plan.undecided_apart
    with pytest.raises(ValueError, match="plan: has undecided entries"):
        ozaki.gemm(2.0, a, b, 1.0, a, plan=plan)
    assert ozaki.gemm(2.0, a, b, 1.0, a, accuracy="exact", return_report=True)[1].undecided is None


def test_a_limit_of_workspace_changes_no_bits(rng):
    a, b = heavy(rng, 300)
    wanted, report = ozaki.matmul(a, b, accuracy="exact", return_report=True)
    limit = report.workspace_bytes // 2
    c, limited = ozaki.matmul(a, b, accuracy="exact", workspace_limit=limit, return_report=True)
    assert same_bits(c, wanted) and limited.workspace_bytes <= limit and limited.slices == report.slices


def test_lists_of_entries_keep_within_a_limit(rng):
    """Where all entries are undecided, they are computed apart some at a time."""
    a, b = heavy(rng, 200)
    plan = apart(a, b, 14)
    wanted, report = ozaki.matmul(a, b, plan=plan, return_report=True)
    assert report.undecided > 30000
    limit = report.workspace_bytes // 3
    c, limited = ozaki.matmul(a, b, plan=replace(plan, workspace_limit=limit), return_report=True)
    assert same_bits(c, wanted) and limited.workspace_bytes <= limit and limited.undecided == report.undecided


def test_entries_apart_hold_what_a_limit_leaves(rng):
    x, y = draw(rng, (40, 70), "ties")[None], draw(rng, (30, 70), "ties")[None]
    out = np.zeros((1, 40, 30))
    undecided = Undecided(
        row_errors(*(describe(z).on_host for z in (x, y)), Residues(14)), np.ones(out.shape, np.bool_)
    )
    least = inner_products_bytes(x, y, 64)
    for limit in (least + 2**14, least + 2**18):
        _apart(x, y, undecided, out, Memory(limit))  # what is kept is kept from now on
        tracemalloc.start()
        try:
            _apart(x, y, undecided, out, Memory(limit))
            assert tracemalloc.get_traced_memory()[1] <= limit
        finally:
            tracemalloc.stop()
    check(out[0], x[0], y[0].T)


@pytest.mark.parametrize("stacked", [False, True])
def test_rows_scaled_along_k(rng, stacked):
    n = 700  # of fewer entries, one draw in fifty is not worth foretelling
    shape = (2, n, n) if stacked else (n, n)
    a, b = (rng.standard_normal(shape) for _ in "ab")
    d = np.exp2(np.linspace(0, 60, n))
    a, b = a * d, b / d[:, None]
    c, report = ozaki.matmul(a, b, accuracy="exact", return_report=True)
    assert report.inner_scaling and report.undecided is not None
    check(c[1, :1], a[1, :1], b[1]) if stacked else check(c[:1], a[:1], b)


def test_rows_that_repeat_are_not_all_that_is_looked_at(rng):
    """Every tenth row is ordinary, and all others cancel: most entries are zeros, undecided unless they are exact."""
    n, half = 480, 240
    a, b = (rng.integers(-3, 4, (n, n)) * 2.0 ** rng.integers(-40, 41, (n, n)) for _ in "ab")
    a[:, half:], b[half:] = a[:, :half], -b[:half]
    a[::10], b[:, ::10] = np.exp(3 * rng.standard_normal((48, n))), np.exp(3 * rng.standard_normal((n, 48)))
    report = ozaki.matmul(a, b, accuracy="exact", return_report=True)[1]
    assert report.undecided is None or report.undecided < n * n / 100
    assert report.slices > 30


def test_planning_weighs_few_counts(rng, monkeypatch):
    """Few counts are weighed: none that takes more slice products than the best one costs with its entries apart."""
    weighed = []
    share = Crossings.share
    monkeypatch.setattr(Crossings, "share", lambda self, more: weighed.append(more) or share(self, more))
    a, b = draw(rng, (100, 100), "normal"), draw(rng, (100, 100), "wide")
    for options in ({"accuracy": "exact"}, {"accuracy": "fp64", "reproducible": True, "inner_scaling": False}):
        weighed.clear()
        plan = ozaki.plan(a, b, **options)
        assert plan.undecided_apart and 0 < len(weighed) < 30  # of some 90


@given(st.integers(2, 40), st.lists(st.floats(0, 100), min_size=1, max_size=60))
def test_no_count_is_tried_that_costs_more_by_itself(first, apart):
    counts, tried = range(first, first + len(apart)), []
    least, best = _cheapest(counts, lambda count: tried.append(count) or apart[count - first])
    costs = [count + more for count, more in zip(counts, apart, strict=True)]
    assert least == min(costs) and best == counts[costs.index(least)]
    assert all(count < min(costs[: count - first]) for count in tried[1:])


@given(st.lists(st.tuples(st.integers(-512, 64), st.integers(0, 4000), st.integers(1, 2304)), max_size=9))
def test_shares(counts):
    found = Crossings(tuple(counts), 2304 * 9)
    for more in (0.0, 2.5, 17.25, 600.0):
        shares = [number * min(1.0, 2.0 ** (-x - more)) for x, bits, number in counts if bits > more]
        assert found.share(more) == pytest.approx(sum(shares) / (2304 * 9), rel=1e-12)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize(("left", "right"), [((1, 900, 700), (3, 60, 700)), ((6, 3, 40000), (6, 9, 40000))])
def test_foretelling_holds_what_it_counts(rng, left, right, scaled):
    """Few inner indices at a time take little memory, and find the same; no operand is copied as a whole."""
    rows = [draw(rng, (math.prod(of[:2]), of[2]), "wide").reshape(of) for of in (left, right)]
    if scaled:
        rows[0] = np.broadcast_to(rows[0], (len(rows[1]), *rows[0].shape[1:]))
        rows = scaled_along_k(*rows)
    x, y = (describe(of) for of in rows)
    found = {foretell(some_rows(x), some_rows(y), Residues(20), "float64")}  # what is kept is kept from now on
    for limit in (None, 0):
        slab = slab_within(x.x.shape, y.x.shape, limit)
        tracemalloc.start()
        try:
            found.add(foretell(some_rows(x), some_rows(y), Residues(20), "float64", slab))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak <= foretelling_bytes(x.x.shape, y.x.shape, slab)
    assert len(found) == 1 and foretelling_bytes(left, right, slab) < 2**21


def test_foretelling_needs_less_than_the_product(rng):
    """A limit of workspace that suffices for the product suffices to plan it."""
    a, b = draw(rng, (50, 200), "cancelling"), draw(rng, (200, 50), "wide")
    wanted, report = ozaki.matmul(a, b, accuracy="exact", return_report=True)
    limit = report.workspace_bytes // 2
    c, limited = ozaki.matmul(a, b, accuracy="exact", workspace_limit=limit, return_report=True)
    assert same_bits(c, wanted) and limited.workspace_bytes <= limit and limited.slices == report.slices
