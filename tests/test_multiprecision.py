"""Products with multiprecision operands and results, against rationals and against their definition.

What is promised of every entry is compared with the exact product, and every bit with the definition.
"""

import re
from fractions import Fraction
from operator import mul

import definition
import mpmath
import numpy as np
import pytest
from cases import assert_same, power, set_sizes, viewed
from hypothesis import given, settings
from hypothesis import strategies as st
from mparrays import KINDS, operand, pair, planes, rationals, rounded, same, same_planes, transposed
from tiers import some_first

import ozaki
from ozaki import Accuracy, MPArray, mparray

BITS = [53, 64, 106, 113, 212, 500, 1024, 3000]


def fractions(x):
    """The elements of an array as Fractions, in an array of objects of the same shape."""
    if isinstance(x, MPArray):
        return rationals(x)
    x, found = np.asarray(x), np.empty(np.shape(x), object)
    for at in np.ndindex(x.shape):
        found[at] = Fraction(x[at].item())
    return found


def whole(row):
    """A row of dyadic Fractions as integers times 2**-exponent; sums of Fractions would take gcds."""
    exponent = max((v.denominator.bit_length() - 1 for v in row), default=0)
    return [v.numerator << (exponent - v.denominator.bit_length() + 1) for v in row], exponent


def products(a, b, absolute=False):
    """The exact product of two matrices of Fractions, or of their magnitudes, as a list of rows."""
    left, right = ([whole([abs(v) if absolute else v for v in row]) for row in x] for x in (a, b.T))
    return [[sum(map(mul, x, y)) * power(-(e + f)) for y, f in right] for x, e in left]


def norms(x):
    """The squares of the norms of the rows of a matrix."""
    return [sum(v * v for v in values) * power(-2 * e) for values, e in map(whole, x)]


def within(measure, a, b, c, limit):
    """Whether the error of c is at most `limit` in that measure; all are Fractions, so squares replace norms."""
    exact = products(a, b)
    errors = [[abs(x - y) for x, y in zip(*rows, strict=True)] for rows in zip(c, exact, strict=True)]
    if measure == "componentwise":
        of = products(a, b, absolute=True)
        return all(e <= limit * x for rows in zip(errors, of, strict=True) for e, x in zip(*rows, strict=True))
    left, right = norms(a), norms(b.T)
    if measure == "normwise":
        return sum(e * e for row in errors for e in row) <= limit**2 * sum(left) * sum(right)
    return all(
        e * e <= limit**2 * x * y for x, row in zip(left, errors, strict=True) for y, e in zip(right, row, strict=True)
    )


def near(a, b, c):
    """Both operands and their product as Fractions, rows of A and columns of B times powers of two that end near 1.

    They change neither image nor error but for these powers, and Fractions far from 1 are slow.
    """
    tops = [
        np.where(x.signs != 0, x.exponents, -(2**62)).max(axis=axis, keepdims=True)
        if isinstance(x, MPArray)
        else np.zeros((1, 1), np.int64)
        for x, axis in ((a, 1), (b, 0))
    ]
    tops = [np.where(top > -(2**62), top, 0) for top in tops]
    moved = (x.ldexp(-top) if isinstance(x, MPArray) else x for x, top in ((a, tops[0]), (b, tops[1])))
    return *map(fractions, moved), fractions(c.ldexp(-tops[0] - tops[1]))


def check(a, b, asked, **options):
    """Multiply, and compare with the promise, with the report's bound and, bit for bit, with the definition."""
    before = [(x, x.copy()) for x in (a, b)]
    c, report = ozaki.matmul(a, b, accuracy=asked, return_report=True, **options)
    plan = ozaki.plan(a, b, accuracy=asked, **options)
    for x, copy in before:
        assert all(np.array_equal(p, q) for p, q in zip(planes(x), planes(copy), strict=True)), "an operand changed"
    target = Accuracy.of(asked, a.shape[-1])
    p, q, found = near(a, b, c) if target.measure != "normwise" else map(fractions, (a, b, c))
    limit = Fraction(target.tolerance) * power(target.exponent)
    bound = Fraction(report.bound) * power(report.exponent)
    assert (plan.bound, plan.target.exponent, plan.target.measure) == (report.bound, report.exponent, report.measure)
    assert report.measure == target.measure
    assert within(target.measure, p, q, found, limit), "the promise is broken"
    assert within(target.measure, p, q, found, bound), "the bound is broken"
    assert found.tolist() == definition.product_of_rationals(p, q, plan.scheme, plan.dtype)
    return c, report, plan


# The promise and the definition --------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("kind", KINDS)
def test_entries_keep_the_promise_and_are_those_of_the_definition(prng, bits, kind):
    for _ in range(2):
        m, k, n = (prng.randint(1, 4) for _ in range(3))
        k = k if prng.random() < 0.5 else prng.randint(1, 12)
        operand_bits = prng.choice((2, 40, 53, bits, 2 * bits))
        a, b = pair(prng, m, k, n, operand_bits, (kind, prng.choice((kind, "uniform"))))
        c, _, plan = check(a, b, bits)
        # The format leaves half of a tolerance to the images, and has no bit more than that takes.
        assert c.bits in (bits, bits + 1) and plan.dtype == f"mp{c.bits}"


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("measure", ["row-column", "normwise"])
def test_entries_keep_the_promise_in_the_other_measures(prng, bits, measure):
    for kind in ("uniform", "graded", "cancelling", "sparse", *(["far"] if measure == "row-column" else [])):
        a, b = pair(prng, 3, prng.randint(1, 9), 2, bits, (kind, prng.choice((kind, "uniform"))))
        tolerance, exponent = prng.uniform(0.01, 0.99), -bits
        check(a, b, Accuracy(measure, tolerance, exponent=exponent))


@pytest.mark.parametrize("tolerance", [0.9, 0.5, 0.26, 1e-3, 1e-100, 1e-300, 1e-315, 5e-324])
def test_tolerances_from_the_loosest_to_the_smallest_float(prng, tolerance):
    a, b = pair(prng, 3, 5, 3, 1200, ("uniform", "graded"))
    for measure in ("componentwise", "row-column", "normwise"):
        check(a, b, Accuracy(measure, tolerance))
        check(a, b, Accuracy(measure, tolerance, exponent=-prng.randrange(1500)))


@pytest.mark.parametrize("bits", [2, 31, 32, 33, 64, 65, 107, 1500])
def test_formats_of_any_number_of_bits(prng, bits):
    for kinds in (("uniform", "uniform"), ("graded", "sparse"), ("cancelling", "whole")):
        a, b = pair(prng, 3, 6, 3, 120, kinds)
        plan = ozaki.plan(a, b, dtype=f"mp{bits}")
        c, report = ozaki.matmul(a, b, dtype=f"mp{bits}", return_report=True)
        assert c.bits == bits and plan.bound == report.bound
        p, q = fractions(a), fractions(b)
        assert fractions(c).tolist() == definition.product_of_rationals(p, q, plan.scheme, f"mp{bits}")
        assert within("componentwise", p, q, fractions(c), Fraction(report.bound) * power(report.exponent))


@pytest.mark.full
def test_forty_thousand_bits(prng):
    """Moduli of three digits of seven bits, sums over many pieces, and over many moduli."""
    a, b = pair(prng, 2, 2, 2, 40_000, ("uniform", "uniform"))
    c, _, _ = check(a, b, 40_000)
    assert c.bits == 40_000


@pytest.mark.parametrize("k", [2049, 100_000])
def test_a_long_inner_dimension(prng, k):
    """Products over several slabs of k are reduced, and added."""
    a, b = pair(prng, 1, k, 1, 60, ("cancelling", "uniform"))
    check(a, b, 60)


@pytest.mark.parametrize("kind", ["uniform", "graded", "sparse", "cancelling", "one", "zeros"])
@pytest.mark.parametrize("asked", [1e-12, 1e-200])
def test_relative_accuracies(prng, kind, asked):
    """Every entry has its digits, however much cancels, and zeros are zero; also out of floats."""
    a, b = pair(prng, 3, 6, 2, 300, (kind, "uniform"))
    for x, y in ((a, b), (a.ldexp(0).astype("float64"), b.astype("float64"))):
        wanted = products(fractions(x), fractions(y))
        for dtype in ("mp", "float64") if asked == 1e-12 else ("mp",):
            c, report = ozaki.matmul(x, y, accuracy=Accuracy("relative", asked), dtype=dtype, return_report=True)
            limit = Fraction(report.bound)
            assert dtype != "mp" or limit <= Fraction(asked)
            for found, exact in zip(fractions(c).flat, (v for row in wanted for v in row), strict=True):
                assert abs(found - exact) <= limit * abs(exact)


def test_elements_far_below_the_largest_of_their_rows(prng):
    """Elements below 2**-1000 of a row's largest one are planned for as if they were larger, but proven as they are."""
    tiny = Fraction(1, 3 * 2**1500)
    for low in (2**-3, 2**-900, 2**-990, Fraction(1, 2**1010), Fraction(1, 2**1100), Fraction(1, 2**5000)):
        a = mparray([[tiny / 2**40, 0, 1], [Fraction(low) / 3, 1, Fraction(1, 5)]], bits=60)
        b = mparray([[1, Fraction(2, 3)], [0, 1], [0, 0]], bits=60)
        for accuracy in (2.0**-30, 53, 400, Accuracy("componentwise", 2.0**-60, 210), Accuracy("row-column", 1e-30)):
            check(a, b, accuracy)


def test_exponents_near_the_farthest():
    """Exponents are int64: rows that lie 2**40 binary orders apart are multiplied as any others."""
    third = mparray([["1/3", "1/5"]], bits=100)
    for e, f in ((2**40, -(2**40)), (2**33, 2**33), (-(2**59), -(2**59)), (2**59, 2**58)):
        c = ozaki.matmul(third.ldexp(e), transposed(third).ldexp(f))
        wanted = ozaki.matmul(third, transposed(third))
        assert same_planes(c.ldexp(-e).ldexp(-f), wanted)
        far = ozaki.matmul(third.ldexp(e), transposed(third).ldexp(f), dtype="float64")
        assert far.item() == (wanted.astype("float64").item() if e + f == 0 else np.inf if e + f > 0 else 0.0)


# Results in the hardware's formats -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("accuracy", some_first(3, [None, 53, 900, 24, 212, 1100, 3000]))
def test_floats_are_the_product_of_the_images_rounded_once(prng, dtype, accuracy):
    """Also where it has so many limbs that a float64 holds no weight of the highest."""
    precision, smallest, past = {"float32": (24, -149, 128), "float64": (53, -1074, 1024)}[dtype]
    for kinds in (("uniform", "uniform"), ("cancelling", "graded"), ("sparse", "one"), ("far", "uniform")):
        a, b = pair(prng, 2, 6, 2, accuracy or precision, kinds)
        ends = smallest - 2, smallest + 2, past - 1, past, -(10**10), 10**10
        for e in (0, *ends) if (accuracy or 0) < 900 else (0, prng.choice(ends), prng.choice(ends)):
            left = a if abs(e) < 10**6 else a.ldexp(-e // 2)
            right = b.ldexp(e)
            plan = ozaki.plan(left, right, dtype=dtype, accuracy=accuracy)
            c, report = ozaki.matmul(left, right, dtype=dtype, accuracy=accuracy, return_report=True)
            if abs(e) >= 10**6:
                assert not np.isfinite(c[c != 0]).any()
                continue
            wanted = definition.product_of_rationals(fractions(left), fractions(right), plan.scheme, dtype)
            assert_same(np.array(wanted, dtype), c, plan.scheme, e)
            sizes = abs(fractions(left)) @ abs(fractions(right))
            in_range = np.isfinite(c).all() and (sizes >= power(smallest + 100)).all()  # no bound where c underflows
            if e == 0 and in_range and kinds[0] != "far" and report.exponent == 0:
                bound = Fraction(report.bound) * power(report.exponent)
                assert within("componentwise", fractions(left), fractions(right), fractions(c), bound)


@pytest.mark.parametrize("dtype", ["float64", "float32", "mp64", "mp53", "mp1100"])
def test_ties_and_last_bits_far_below(dtype):
    """Sums that lie halfway between two numbers of a format, or a bit beside, far below what it holds."""
    bits = {"float64": 53, "float32": 24}.get(dtype) or int(dtype[2:])
    for wanted in (2**bits + 1, 2**bits + 3, 2 ** (bits + 1) - 1, 2 ** (bits + 1) - 3):
        for beside in (0, 1, -1):
            for e in (0, -40):
                a, b = mparray([[wanted * power(e), power(e - 300)]]), mparray([[1], [beside]])
                c = ozaki.matmul(a, b, accuracy=bits + 350, dtype=dtype)
                assert fractions(c).item() == definition.rounded_to((wanted + beside * power(-300)) * power(e), dtype)


# Engines, tiles, workspace, plans ------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [53, 113, 500, 3000])
@pytest.mark.parametrize("dtype", ["mp", "float64"])
def test_engines_limits_plans_and_preparation_change_no_bits(prng, bits, dtype):
    for kinds in (("uniform", "graded"), ("cancelling", "uniform"), ("far", "sparse")):
        a, b = pair(prng, 5, prng.randint(1, 40), 4, bits, kinds)
        options = {"accuracy": bits, "dtype": dtype}
        c, report = ozaki.matmul(a, b, return_report=True, **options)
        assert same_planes(ozaki.matmul(a, b, engine="int8-simulated", **options), c)
        assert same_planes(ozaki.matmul(a, b, engine="float64", **options), c)
        limited, small = ozaki.matmul(a, b, workspace_limit=2**22, return_report=True, **options)
        assert same_planes(limited, c) and small.workspace_bytes <= 2**22 and small.bound == report.bound
        plan = ozaki.plan(a, b, **options)
        assert (plan.bound, plan.slices) == (report.bound, report.slices)
        for _ in "ab":
            again, of_plan = ozaki.matmul(a, b, plan=plan, return_report=True)
            assert same_planes(again, c) and of_plan.bound == report.bound
        assert same_planes(ozaki.matmul(a, b, plan=plan, dtype=dtype), c)
        left, right = ozaki.prepare(a, "left", plan), ozaki.prepare(b, "right", plan)
        for x, y in ((left, right), (left, b), (a, right)):
            assert same_planes(ozaki.matmul(x, y, plan=plan), c)


@pytest.mark.parametrize("tile", some_first(1, [5, 64]))
@pytest.mark.parametrize("panel", some_first(1, [3, 16]))
def test_tiles_and_panels_change_no_bits(prng, monkeypatch, tile, panel):
    cases = []
    for bits, dtype in ((70, "mp"), (400, "mp"), (1500, "float64")):
        a, b = pair(prng, 7, 20, 6, bits, ("graded", "uniform"))
        floats = np.array([[prng.uniform(-1, 1) for _ in range(6)] for _ in range(20)])
        for right in (b, floats):
            options = {"accuracy": bits, "dtype": dtype}
            cases.append((a, right, options, ozaki.matmul(a, right, **options)))
    set_sizes(monkeypatch, tile, panel)
    for a, b, options, c in cases:
        assert same_planes(ozaki.matmul(a, b, **options), c), options


def test_plans_are_proven_anew_for_other_operands(prng):
    easy, longer = operand(prng, (2, 3), 60, "uniform"), operand(prng, (2, 3), 1500, "uniform")
    hard = easy.ldexp(np.array([[0, -600, 0], [0, 0, -500]]))
    b = mparray([[0, 0], ["1/3", 0], [0, "1/7"]], bits=90)
    plan = ozaki.plan(longer, b, accuracy=2000)
    with pytest.raises(ValueError, match=r"^plan: proves a componentwise error of .*e-\d\d\d .* accuracy of .*e-602 "):
        ozaki.matmul(mparray([["1/3"] * 3] * 2, bits=2500), b, plan=plan)
    small = ozaki.plan(easy, b, accuracy=60)
    with pytest.raises(ValueError, match=r"^plan: proves a componentwise error"):
        ozaki.matmul(hard, b, plan=small)
    # A plan for every bit has a format that holds those of its own operands, and perhaps of no others.
    narrow, wide = mparray([[5, 3]]), mparray([[63, 61]])
    plan = ozaki.plan(narrow, transposed(narrow), accuracy="exact")
    assert fractions(ozaki.matmul(narrow, transposed(narrow), plan=plan)).tolist() == [[34]]
    with pytest.raises(ValueError, match=r"^plan: "):
        ozaki.matmul(wide, transposed(wide), plan=plan)
    with pytest.raises(ValueError, match=r"^dtype: 'float64', but the plan is made for mp"):
        ozaki.matmul(narrow, transposed(narrow), plan=plan, dtype="float64")


def test_the_bounds_of_plans_and_candidates_in_words(prng):
    """Bounds below the range of a float are printed with their power of two."""
    a, b = pair(prng, 2, 3, 2, 2500, ("uniform", "uniform"))
    _, report = ozaki.matmul(a, b, accuracy=2000, return_report=True)
    plan = ozaki.plan(a, b, accuracy=2000)
    for text in (str(report), str(plan), str(plan.candidates[0])):
        assert re.search(r" \d\.\de-60\d\b", text), text
    exact = ozaki.plan(a, b, accuracy="exact")
    assert exact.bound == 0 and [x.chosen for x in exact.candidates] == [True]
    assert ozaki.matmul(a, b, accuracy="exact", return_report=True)[1].bound == 0


# Shapes --------------------------------------------------------------------------------------------------------------


def reference(a, b):
    """The exact product by the rules of matmul, of arrays of Fractions: NumPy multiplies objects."""
    left, right = (a[None] if a.ndim == 1 else a), (b[:, None] if b.ndim == 1 else b)
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    left, right = (np.broadcast_to(x, batch + x.shape[-2:]) for x in (left, right))
    c = np.full((*batch, left.shape[-2], right.shape[-1]), Fraction(0), object)
    for at in np.ndindex(batch):
        if c[at].size:
            c[at] = np.array(products(left[at], right[at]), object).reshape(c[at].shape)
    c = c[..., 0, :] if a.ndim == 1 else c
    return c[..., 0] if b.ndim == 1 else c


SHAPES = [
    ((1, 1), (1, 1)), ((3,), (3,)), ((3,), (3, 2)), ((2, 3), (3,)), ((1, 5), (5, 1)), ((4, 1), (1, 3)),
    ((0, 2), (2, 3)), ((2, 3), (3, 0)), ((2, 0), (0, 3)), ((0,), (0,)), ((0, 3, 2), (2, 2)),
    ((3, 2, 4), (4, 2)), ((2, 4), (3, 4, 2)), ((3, 2, 4), (3, 4, 1)), ((3, 1, 2, 4), (1, 2, 4, 2)),
    ((2, 1, 1, 2), (3, 2, 2)), ((4,), (3, 4, 2)), ((3, 2, 4), (4,)),
]  # fmt: skip


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_shapes_and_batches(prng, shapes):
    a, b = (operand(prng, shape, 70, "graded") for shape in shapes)
    wanted = reference(fractions(a), fractions(b))
    exact = ozaki.matmul(a, b, accuracy="exact")
    assert exact.shape == np.shape(wanted) and np.all(fractions(exact) == wanted)
    for asked in (None, 90, Accuracy("normwise", 1e-30), Accuracy("row-column", 1e-30)):
        c, report = ozaki.matmul(a, b, accuracy=asked, return_report=True)
        assert c.shape == np.shape(wanted) and isinstance(c, MPArray)
        if isinstance(asked, int):
            largest = reference(abs(fractions(a)), abs(fractions(b)))
            assert np.all(abs(fractions(c) - wanted) <= Fraction(report.bound) * largest)
    whole = ozaki.matmul(*(np.full(shape, 3) for shape in shapes), dtype="int64")
    assert whole.shape == np.shape(wanted) and whole.dtype == np.int64 and (whole == 9 * shapes[0][-1]).all()
    assert isinstance(whole, np.int64) == (np.ndim(wanted) == 0)
    floats = ozaki.matmul(a, b, dtype="float64")
    assert np.shape(floats) == np.shape(wanted) and floats.dtype == np.float64


@pytest.mark.parametrize("repetition", range(3))
def test_strides_change_no_bits(prng, rng, repetition):
    a, b = operand(prng, (2, 4, 6), 150, "graded"), operand(prng, (2, 6, 3), 150, "uniform")
    c = ozaki.matmul(a, b)
    views = [
        lambda x: transposed(transposed(x).copy()),
        lambda x: x[..., ::-1, ::-1].copy()[..., ::-1, ::-1],
        lambda x: mparray(np.repeat(np.repeat(np.asarray(x), 2, -1), 3, -2))[..., ::3, ::2],
        lambda x: x[::-1].copy()[::-1],
    ]
    for of_a in views:
        for of_b in views:
            found = ozaki.matmul(of_a(a), of_b(b), dtype=f"mp{c.bits}")
            assert (fractions(found) == fractions(c)).all()
    floats = rng.standard_normal((6, 3))
    assert same_planes(ozaki.matmul(a, viewed(rng, floats), accuracy=1200), ozaki.matmul(a, floats, accuracy=1200))


def test_an_operand_may_stand_on_both_sides(prng):
    x = operand(prng, (4, 4), 200, "graded")
    assert same_planes(ozaki.matmul(x, x), ozaki.matmul(x.copy(), x.copy())) and same_planes(
        x @ x.T, ozaki.matmul(x, x.T)
    )


# Mixed operands ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("bits", [24, 200, 1000, 2200, 5000])
def test_floats_beside_multiprecision_numbers(prng, rng, dtype, bits):
    """Images of floats of more bits than a float64 has room for, subnormal elements, and either side."""
    x = np.ldexp(rng.standard_normal((3, 5)), rng.integers(-40, 40, (3, 5)))
    lowest, highest = (-149, 127) if dtype == "float32" else (-1074, 1023)
    for e in (0, lowest + 20, highest - 45):
        floats = np.ldexp(x, e).astype(dtype)
        numbers = operand(prng, (5, 2), bits, "uniform")
        check(floats, numbers, bits)
        check(transposed(numbers), floats.T, Accuracy("row-column", 0.7, exponent=-bits))
        assert (floats @ numbers == ozaki.matmul(floats, numbers)).all()
        assert (transposed(numbers) @ floats.T == ozaki.matmul(transposed(numbers), floats.T)).all()


def test_the_larger_precision_of_two_operands_is_that_of_the_result(prng):
    numbers = operand(prng, (3, 3), 40, "uniform")
    """But it has 53 bits at least."""
    for other, bits in ((np.eye(3), 53), (np.eye(3, dtype="f4"), 53), (operand(prng, (3, 3), 90, "uniform"), 90)):
        for a, b in ((numbers, other), (other, numbers)):
            assert ozaki.matmul(a, b).bits == bits


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint64", "int64", "bool"])
def test_integers_beside_multiprecision_numbers(prng, dtype):
    numbers = operand(prng, (3, 2), 300, "graded")
    info = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    whole = np.array([info, info[::-1], info], dtype).T
    for a, b in ((whole, numbers), (transposed(numbers), whole.T)):
        c = ozaki.matmul(a, b, dtype="mp")
        assert (fractions(c) == reference(fractions(a), fractions(b))).all()
        plan = ozaki.plan(a, b, dtype="mp", accuracy=100)
        wanted = definition.product_of_rationals(fractions(a), fractions(b), plan.scheme, "mp100")
        assert fractions(ozaki.matmul(a, b, dtype="mp", accuracy=100)).tolist() == wanted


@pytest.mark.parametrize("accuracy", [53, 212, 3000])
def test_more_bits_out_of_floats(prng, rng, accuracy):
    """Of float64 and float32 matrices alone, whose images take a thousand bits and more where they are graded."""
    for dtype in ("float32", "float64"):
        for spread in (0, 60, 1000 if dtype == "float64" else 120):
            a, b = (np.ldexp(rng.standard_normal((3, 4)), -rng.integers(0, spread + 1, (3, 4))) for _ in "ab")
            check(a.astype(dtype), b.T.astype(dtype), accuracy, dtype="mp")


def test_float32_operands_and_a_float64_result(rng):
    """Products of float32 numbers are rounded once to float64; of float64 ones to float32, also natively."""
    a, b = rng.standard_normal((4, 30)).astype("f4"), rng.standard_normal((30, 3)).astype("f4")
    for options in ({"accuracy": 60}, {"reproducible": True}, {"scheme": "residues", "slices": 15}):
        plan = ozaki.plan(a, b, dtype="float64", **options)
        wanted = definition.product_of_rationals(fractions(a), fractions(b), plan.scheme, "float64")
        assert_same(np.array(wanted), ozaki.matmul(a, b, dtype="float64", **options))
        assert_same(np.array(wanted), ozaki.matmul(a, b, plan=plan, dtype="float64"))
    wide = rng.standard_normal((4, 1)), rng.standard_normal((1, 3))
    for options in ({}, {"accuracy": "fp32"}, {"scheme": "native"}, {"reproducible": True}):
        c, report = ozaki.matmul(*wide, dtype="float32", return_report=True, **options)
        assert c.dtype == np.float32
        if report.bound < np.inf:
            assert within("componentwise", *map(fractions, wide), fractions(c), Fraction(report.bound)), report


# Integers ------------------------------------------------------------------------------------------------------------


INTEGERS = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("other", INTEGERS)
def test_integers_are_multiplied_exactly(rng, dtype, other):
    """Elements of every dtype at the ends of its range."""
    operands = []
    for name, shape in ((dtype, (3, 9)), (other, (9, 2))):
        low, high = (0, 1) if name == "bool" else (np.iinfo(name).min, np.iinfo(name).max)
        ends = np.array([low, high, low // 2, high // 2, 1, 0, high - 1], object)
        operands.append(rng.choice(ends, shape).astype(name))
    a, b = operands
    wanted = a.astype(object) @ b.astype(object)
    for asked in ({}, {"accuracy": "exact"}):
        c = ozaki.matmul(a, b, dtype="mp", **asked)
        assert (fractions(c) == wanted).all()
    rounded_once = ozaki.matmul(a, b, dtype="mp20")
    assert rounded_once.bits == 20
    if all(-(2**63) <= x < 2**63 for x in wanted.flat):
        assert same_planes(ozaki.matmul(a, b, dtype="int64"), wanted.astype(np.int64))
    else:
        index = [int(i) for i in np.argwhere((wanted < -(2**63)) | (wanted >= 2**63))[0]]
        with pytest.raises(OverflowError, match=rf"^dtype: entry \[{index[0]}, {index[1]}\] "):
            ozaki.matmul(a, b, dtype="int64")
    assert ozaki.matmul(a, b, dtype="float64", accuracy=200).tolist() == [
        [float(int(x)) for x in row] for row in wanted
    ]


@pytest.mark.parametrize("entry", [2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 0, 2**64, -(2**64), 2**100])
def test_int64_results_at_the_ends_of_their_range(entry):
    """As a product of integers, of floats and of multiprecision numbers, as a scalar and in a matrix."""
    fits = -(2**63) <= entry < 2**63
    high, low = divmod(entry, 2**31)
    makers = {"MPArray": lambda x: mparray(np.array(x, object), bits=200)}
    if abs(high) < 2**53:
        makers |= {"int64": lambda x: np.array(x, np.int64), "float64": lambda x: np.array(x, np.float64)}
    for make in makers.values():
        a, b = make([[1, 0], [high, low]]), make([[2**31, 0], [1, 1]])
        for x, y in ((a, b), (a[1], b[:, 0])):
            if fits:
                c = ozaki.matmul(x, y, dtype="int64")
                assert c.dtype == np.int64 and c[-1, 0] == entry if np.ndim(c) else c == entry
            else:
                where = r"\[1, 0\]" if x.ndim == 2 else r"\[\]"
                with pytest.raises(OverflowError, match=f"^dtype: entry {where} of the result does not fit int64"):
                    ozaki.matmul(x, y, dtype="int64")


def test_no_int64_of_what_is_no_whole_number():
    for half in (mparray([[1, 0.5]]), np.array([[1.0, 0.5]]), mparray([[1, power(-3000)]])):
        with pytest.raises(ValueError, match=r"^dtype: entry \[0, 1\] of the result is no whole number"):
            ozaki.matmul(mparray([[1]]), half, dtype="int64")
    assert ozaki.matmul(np.array([[0.5, 0.5]]), np.array([[3.0], [1.0]]), dtype="int64").tolist() == [[2]]


def test_plans_of_int64_results():
    a = np.array([[7, -(2**20)], [3, 2**11]])
    plan = ozaki.plan(a, a, dtype="int64")
    assert same_planes(ozaki.matmul(a, a, plan=plan, dtype="int64"), a @ a)
    assert fractions(ozaki.matmul(a, a, plan=plan)).tolist() == (a @ a).tolist()


# Properties ----------------------------------------------------------------------------------------------------------


dyadic = st.builds(lambda n, e: n * power(e), st.integers(-(2**90), 2**90), st.integers(-400, 400)) | st.integers(-3, 3)


@st.composite
def matrices(draw, elements=dyadic):
    m, k, n = (draw(st.integers(1, 3)) for _ in range(3))
    a, b = ([[Fraction(draw(elements)) for _ in range(c)] for _ in range(r)] for r, c in ((m, k), (k, n)))
    return np.array(a, object), np.array(b, object)


@given(matrices())
@settings(deadline=None, max_examples=40)
def test_exact_products_are_exact(operands):
    a, b = operands
    c = ozaki.matmul(mparray(a), mparray(b), accuracy="exact")
    assert rationals(c).tolist() == products(a, b)
    # As many bits as the longest entry has.
    longest = max(
        (x.numerator // (x.numerator & -x.numerator)).bit_length() for x in rationals(c).flat if x
    ) if any(rationals(c).flat) else 1  # fmt: skip
    assert c.bits == longest


@given(matrices(), st.integers(2, 300), st.data())
@settings(deadline=None, max_examples=40)
def test_powers_of_two_of_rows_and_columns_change_exponents_alone(operands, bits, data):
    a, b = (mparray(x) for x in operands)
    exponents = st.integers(-(10**9), 10**9)
    of_rows = np.array([[data.draw(exponents)] for _ in range(a.shape[0])])
    of_columns = np.array([[data.draw(exponents) for _ in range(b.shape[1])]])
    along = np.array([data.draw(st.integers(-500, 500)) for _ in range(a.shape[1])])
    for options in ({"accuracy": bits}, {"dtype": f"mp{bits}"}, {"accuracy": "exact"}):
        c = ozaki.matmul(a, b, **options)
        moved = ozaki.matmul(a.ldexp(of_rows), b.ldexp(of_columns), **options)
        assert same_planes(moved, c.ldexp(of_rows + of_columns)), options
    exact = ozaki.matmul(a.ldexp(along), b.ldexp(-along[:, None]), accuracy="exact")
    assert same_planes(exact, ozaki.matmul(a, b, accuracy="exact"))


@given(matrices(), st.integers(2, 300), st.integers(1, 200))
@settings(deadline=None, max_examples=20)
def test_zeros_behind_the_bits_of_operands_change_nothing(operands, bits, more):
    a, b = (mparray(x) for x in operands)
    wide = [mparray(np.asarray(x), bits=x.bits + more) for x in (a, b)]
    wide = [
        MPArray(x.signs, x.exponents, np.pad(x.limbs, ((0, 7), (0, 0), (0, 0))), 32 * (len(x.limbs) + 7)) for x in wide
    ]
    for options in ({"accuracy": bits}, {"dtype": f"mp{bits}"}, {"accuracy": "exact"}, {"dtype": "float32"}):
        assert same_planes(ozaki.matmul(*wide, **options), ozaki.matmul(a, b, **options)), options


@given(matrices(st.integers(-(2**63), 2**63 - 1)))
@settings(deadline=None, max_examples=40)
def test_int64_is_exact_or_refused(operands):
    a, b = (x.astype(object).astype(np.int64) for x in operands)
    wanted = products(*operands)
    try:
        assert ozaki.matmul(a, b, dtype="int64").tolist() == wanted
    except OverflowError:
        assert any(not -(2**63) <= x < 2**63 for row in wanted for x in row)


@given(matrices(), st.integers(2, 200))
@settings(deadline=None, max_examples=40)
def test_one_product_is_rounded_correctly(operands, bits):
    """Where an entry is one product of numbers that the images hold, it is the exact product, rounded once."""
    a, b = (x[:, :1] if i == 0 else x[:1] for i, x in enumerate(operands))
    c = ozaki.matmul(mparray(a), mparray(b), dtype=f"mp{bits}", accuracy=Accuracy("componentwise", 0.5, exponent=-800))
    exact = products(a, b)
    assert rationals(c).tolist() == [[rounded(x, bits) for x in row] for row in exact]


def test_matrices_of_other_libraries_are_taken_exactly():
    """Where NumPy would make float64 of them."""
    flint = pytest.importorskip("flint")
    with mpmath.workprec(200):
        a = mpmath.matrix([[mpmath.mpf(1) / 3, 2], [0, mpmath.mpf("0.1")]])
    x = mparray(a)
    assert (ozaki.matmul(a, a, accuracy="exact") == ozaki.matmul(x, x, accuracy="exact")).all()
    assert (ozaki.matmul(x, a, accuracy="exact") == ozaki.matmul(x, x, accuracy="exact")).all()
    assert (ozaki.gemm(1, a, a, 1, a, accuracy="exact") == ozaki.matmul(x, x, accuracy="exact") + x).all()
    whole = flint.fmpz_mat([[2**70, 1], [0, -3]])
    assert same(ozaki.matmul(whole, whole, accuracy="exact"), [[2**140, 2**70 - 3], [0, 9]])
    with pytest.raises(ValueError, match=r"^b: element \[0, 1\] is 1/3, which has no end in binary"):
        ozaki.matmul(a, flint.fmpq_mat([[1, flint.fmpq(1, 3)], [0, 1]]))
    with pytest.raises(TypeError, match=r"^a: dtype object is not supported; .*ozaki.mparray\(a, bits\)"):
        ozaki.matmul([[mpmath.mpf(1)]], [[1.0]])
