"""Products with multiprecision operands and results: the bits, plans and reports of NumPy on every device.

What the bits are is tested on NumPy, against rationals (tests/test_multiprecision.py).
"""

import numpy as np
import pytest
from mparrays import KINDS, back, moved, operand, pair, same_planes, transposed

import ozaki
from ozaki import Accuracy, MPArray, mparray

BITS = [53, 106, 212, 500, 1024]


@pytest.fixture
def device(device):
    """NumPy, a real device or the emulated Ampere: the kernels of the emulated Hopper are in `tests/emulated/runs`."""
    if device.name == "emulated Hopper":
        pytest.skip("its kernels are those of the emulated Ampere")
    return device


def same_as_numpy(device, a, b, **options):
    """Multiply on the device and on NumPy, compare bits, and the bounds of reports."""
    expected, of_numpy = ozaki.matmul(a, b, return_report=True, **options)
    got, report = ozaki.matmul(moved(device, a), moved(device, b), return_report=True, **options)
    assert same_planes(back(device, got), expected if isinstance(expected, MPArray) else np.asarray(expected))
    fields = "scheme", "slices", "products", "bound", "exponent", "measure", "nonfinite"
    assert [getattr(report, x) for x in fields] == [getattr(of_numpy, x) for x in fields]


def layouts(rng, x):
    """The same matrix in a memory order of chance: rows or columns next to each other, reversed, or with gaps."""
    kind = rng.integers(4)
    if kind == 0:
        return x
    if kind == 1:
        return transposed(transposed(x).copy())
    if kind == 2:
        return x[::-1].copy()[::-1]
    size = (2 * x.shape[0], 3 * x.shape[1])
    wide = mparray(np.zeros(size), bits=x.bits)
    for of, plane in ((wide.signs, x.signs), (wide.exponents, x.exponents), (wide.limbs, x.limbs)):
        of.flags.writeable = True
        of[..., ::2, ::3] = plane
    return wide[::2, ::3]


@pytest.mark.parametrize("bits", BITS)
def test_all_kinds_of_operands(device, rng, prng, bits):
    for kind in device.some(KINDS, 2, rng):
        for _ in range(device.size(3, 1)):
            m, k, n = (
                prng.randint(1, device.size(70, 12)),
                prng.randint(1, device.size(300, 40)),
                prng.randint(1, 20),
            )
            a, b = pair(prng, m, k, n, prng.choice((40, bits, 2 * bits)), (kind, prng.choice((kind, "uniform"))))
            same_as_numpy(device, layouts(rng, a), transposed(layouts(rng, transposed(b))), accuracy=bits)


@pytest.mark.parametrize("dtype", ["float64", "float32", "mp", "mp77", "mp1100"])
def test_formats_of_results(device, rng, prng, dtype):
    for kinds in device.some([("uniform", "graded"), ("cancelling", "uniform"), ("sparse", "whole")], 1, rng):
        a, b = pair(prng, 4, prng.randint(2, 30), 5, 200, kinds)
        for accuracy in device.some([None, 24, 60, 300], 2, rng):
            same_as_numpy(device, a, b, accuracy=accuracy, dtype=dtype)
            same_as_numpy(device, a.astype("float64"), b, accuracy=accuracy, dtype=dtype)


@pytest.mark.parametrize("measure", ["row-column", "normwise", "componentwise"])
def test_measures_and_tolerances_far_below_the_range_of_floats(device, prng, measure):
    a, b = pair(prng, 3, 9, 4, 1300, ("uniform", "graded"))
    same_as_numpy(device, a, b, accuracy=Accuracy(measure, prng.uniform(0.01, 0.9), exponent=-1200))
    same_as_numpy(device, a, b, accuracy=Accuracy(measure, 1e-40))


def test_every_bit(device, rng, prng):
    for kind in device.some(KINDS, 2, rng):
        a, b = pair(prng, 3, 7, 2, 150, (kind, "uniform"))
        if kind != "graded":
            same_as_numpy(device, a, b, accuracy="exact")


def test_floats_and_integers_with_wide_results(device, rng):
    a, b = rng.standard_normal((5, 33)), rng.standard_normal((33, 4)) * 2.0 ** rng.integers(-40, 40, (33, 4))
    for options in ({"accuracy": "qd"}, {"accuracy": 400}, {"accuracy": "exact"}, {"accuracy": 1200}):
        same_as_numpy(device, a, b, dtype="mp", **options)
    same_as_numpy(device, a, b, accuracy=300)
    same_as_numpy(device, a.astype("f4"), b.astype("f4"), accuracy="fp64", dtype="float64")
    same_as_numpy(device, a, b, dtype="float32", accuracy=20)
    whole = rng.integers(-(2**40), 2**40, (3, 9)), rng.integers(-(2**15), 2**15, (9, 4), dtype=np.int32)
    for dtype in ("int64", "mp"):
        same_as_numpy(device, *whole, dtype=dtype)
    large = moved(device, np.full((2, 2), 2**62))
    with pytest.raises(OverflowError, match=r"entry \[0, 0\]"):
        ozaki.matmul(large, large, dtype="int64")


def test_nan_and_inf_beside_multiprecision_numbers(device, prng, rng):
    a = operand(prng, (4, 9), 90, "uniform")
    b = rng.standard_normal((9, 5))
    b[2, 1], b[3, 3] = np.nan, np.inf
    same_as_numpy(device, a, b, dtype="float64", accuracy=60)
    with pytest.raises(ValueError, match=r"^b: element \[2, 1\] is nan"):
        ozaki.matmul(moved(device, a), moved(device, b))


def test_inf_beside_an_addend_beyond_the_range_of_floats(device):
    a, b = np.array([[-np.inf, 1.0], [1.0, 1.0]]), np.ones((2, 2))
    large = mparray([[2**3000] * 2] * 2)
    c = ozaki.gemm(1, moved(device, a), moved(device, b), 1, moved(device, large), dtype="float64", accuracy=60)
    assert back(device, c).tolist() == [[-np.inf] * 2, [np.inf] * 2]


def test_batches_vectors_and_empty_products(device, prng):
    a, b = operand(prng, (3, 2, 5, 4), 110, "uniform"), operand(prng, (2, 4, 3), 110, "graded")
    same_as_numpy(device, a, b)
    same_as_numpy(device, a[0], b)
    same_as_numpy(device, a[0, 0], b)
    same_as_numpy(device, a, b[0])
    same_as_numpy(device, a[0, 0, 0], b[0])
    same_as_numpy(device, a[0, 0], b[0, :, 0])
    for m, k, n in ((0, 3, 2), (3, 0, 2), (3, 2, 0), (1, 1, 1)):
        same_as_numpy(device, operand(prng, (m, k), 80, "uniform"), operand(prng, (k, n), 80, "uniform"))


def test_plans_prepared_operands_and_limits(device, prng):
    for dtype, bits in (("mp", 106), ("float64", 60), ("mp", 400)):
        a, b = pair(prng, 20, 140, 9, bits, ("uniform", "uniform"))
        options = {"accuracy": bits, "dtype": dtype}
        expected = ozaki.matmul(a, b, **options)
        x, y = moved(device, a), moved(device, b)
        plan = ozaki.plan(x, y, **options)
        left, right = ozaki.prepare(x, "left", plan), ozaki.prepare(y, "right", plan)
        for p, q in ((x, y), (left, right), (left, y), (x, right)):
            c, report = ozaki.matmul(p, q, plan=plan, return_report=True)
            assert same_planes(back(device, c), expected) and report.bound == plan.bound
        limit = 2**23 if device.xp is np else 2**21
        c, report = ozaki.matmul(x, y, workspace_limit=limit, return_report=True, **options)
        assert same_planes(back(device, c), expected) and report.workspace_bytes <= limit
        with pytest.raises(ValueError, match=r"^workspace_limit: "):
            ozaki.matmul(x, y, workspace_limit=1000, **options)


@pytest.mark.parametrize("asked", [1e-12, 1e-120])
def test_relative_accuracies(device, rng, prng, asked):
    """Entries have their digits, however much cancels; facts about products are the same everywhere."""
    for kind in device.some(["uniform", "graded", "sparse", "cancelling", "zeros"], 2, rng):
        a, b = pair(prng, 3, 6, 4, 300, (kind, "uniform"))
        same_as_numpy(device, a, b, accuracy=Accuracy("relative", asked))
    x, y = rng.standard_normal((2, 7, 7))
    same_as_numpy(device, x, y, accuracy=Accuracy("relative", asked), dtype="mp" if asked < 1e-15 else "float64")


def test_relative_errors_in_reports(device, rng, prng):
    """Also of digits, of floats and of expressions; where an entry cancels to nothing there is none."""
    a, b = rng.standard_normal((9, 20)), rng.standard_normal((20, 5))
    wide = pair(prng, 4, 9, 3, 130, ("uniform", "graded"))
    for x, y, options in (
        (a, b, {"scheme": "residues", "slices": 12}),
        (a.astype("f4"), b.astype("f4"), {"scheme": "digits", "slices": 3}),
        (*wide, {"accuracy": 90}),
        (np.array([[1.1, 1.0]]), np.array([[1.0], [-1.1]]), {"scheme": "residues", "slices": 6}),
    ):
        bounds = [
            ozaki.matmul(*operands, return_report="relative", **options)[1].relative_bound
            for operands in ((x, y), (moved(device, x), moved(device, y)))
        ]
        assert bounds[0] == bounds[1]
    c = a @ b
    asked = {"accuracy": 60, "return_report": "relative"}
    _, report = ozaki.gemm(-3.0, a, b, 2.5, c, **asked)
    _, of_device = ozaki.gemm(-3.0, *(moved(device, x) for x in (a, b)), 2.5, moved(device, c), **asked)
    assert report.relative_bound == of_device.relative_bound


def test_elements_far_below_the_largest_of_their_rows(device):
    """Elements below 2**-1000 of a row's largest one are planned for as if they were larger, but proven as they are."""
    low = [mparray([[0, 0, 1], [1, 1, 1]]).ldexp([[0, 0, 0], [e, 0, -1]]) for e in (-990, -1001, -1100, -5000)]
    b = mparray([[1, "2/3"], [0, 1], [0, 0]], bits=60)
    for a in device.some(low, 2, np.random.default_rng(0)):
        same_as_numpy(device, a, b, accuracy=400)
        same_as_numpy(device, a, b, accuracy=Accuracy("componentwise", 2.0**-60, exponent=-210))


def test_repeated_calls_with_other_operands(device, prng):
    """A call like one before runs the same program; operands that need other slices get them."""
    for dtype, accuracy in (("mp", 106), ("float64", 60)):
        for kind in ("uniform", "uniform", "graded", "uniform", "zeros", "uniform"):
            a, b = pair(prng, 5, 12, 4, 150, (kind, "uniform"))
            expected = ozaki.matmul(a, b, accuracy=accuracy, dtype=dtype)
            got = ozaki.matmul(moved(device, a), moved(device, b), accuracy=accuracy, dtype=dtype)
            assert same_planes(back(device, got), expected)


def test_exponents_near_the_farthest(device):
    third = mparray([["1/3", "1/5"]], bits=100)
    for e, f in ((2**40, -(2**40)), (-(2**59), -(2**59)), (2**59, 2**58)):
        a, b = third.ldexp(e), transposed(third).ldexp(f)
        same_as_numpy(device, a, b)
        same_as_numpy(device, a, b, dtype="float64", accuracy=60)


def test_residuals(device, rng):
    a, x = rng.standard_normal((9, 9)), rng.standard_normal(9)
    b = a @ x
    expected = ozaki.residual(a, x, b)
    got = ozaki.residual(*(moved(device, each) for each in (a, x, b)))
    assert np.array_equal(device.asnumpy(got), expected)


def test_expressions_rounded_once(device, rng, prng):
    """alpha A B + beta C with numbers of any precision, and of more residues than int8 holds."""
    a, b = pair(prng, 5, 17, 3, 120, ("uniform", "graded"))
    c = operand(prng, (5, 3), 90, "graded")
    floats = rng.standard_normal((5, 3))
    floats[1, 1] = np.inf
    cases = [
        (-1, a, b, 1, c, {}),
        (0.3, a, b, -7, c, {"accuracy": 300}),
        (2, a, b, 0, None, {"accuracy": "exact"}),
        (-1, a, b, 0.1, c, {"accuracy": "exact"}),
        (0.5, a, b, -1.0, floats, {"dtype": "float64", "accuracy": 60}),
        (-1.5, a.astype("float64"), b.astype("float64"), 1.0, floats, {"accuracy": 400}),
        (0, a, b, 3, c, {}),
    ]
    for alpha, x, y, beta, z, options in device.some(cases, 4, rng):
        expected = ozaki.gemm(alpha, x, y, beta, z, **options)
        got = ozaki.gemm(
            alpha, *(moved(device, v) for v in (x, y)), beta, z if z is None else moved(device, z), **options
        )
        assert same_planes(back(device, got), expected)


@pytest.mark.parametrize("slices", [9, 51])
def test_own_kernels(device, rng, prng, slices):
    """The kernels of Hopper: of residues of a byte, and of two residues of two."""
    a, b = pair(prng, 5, 40, 7, 3 * slices, ("uniform", "graded"))
    plan = ozaki.plan((5, 40), (40, 7), dtype="mp200", scheme="residues", slices=slices)
    for x, y in ((a, b), (a, transposed(transposed(b).copy()))):
        expected = ozaki.matmul(x, y, plan=plan)
        assert same_planes(back(device, ozaki.matmul(moved(device, x), moved(device, y), plan=plan)), expected)


def test_multiprecision_addends_of_products_of_floats(device, rng, prng):
    """beta C counts exactly, however few residues the product takes; NaN and Inf of the product stay what they are."""
    a, b = rng.standard_normal((5, 7)), rng.standard_normal((7, 4))
    c = operand(prng, (5, 4), 70, "uniform")
    for dtype in ("float32", "float64"):
        for special in (1.0, np.nan, np.inf):
            a[1, 2], options = special, {"dtype": dtype, "accuracy": 20}
            expected = ozaki.gemm(0.5, a, b, -3.0, c, **options)
            given = moved(device, a), moved(device, b), -3.0, moved(device, c)
            got = back(device, ozaki.gemm(0.5, *given, **options))
            np.testing.assert_array_equal(got, expected)
            rows = [0, 2, 3, 4]
            error = abs(expected[rows] - (0.5 * a[rows] @ b - 3.0 * c.astype("float64")[rows]))
            assert error.max() < 1e-4 and np.isfinite(expected[1]).any() == (special == 1)


def test_no_words_or_digits_of_multiprecision_numbers(device, prng):
    """A float32 result is no reason to try them: of zeros, too, there are residues alone."""
    a, b = pair(prng, 2, 16, 17, 53, ("zeros", "far"))
    same_as_numpy(device, a, b, accuracy=20, dtype="float32")
    assert ozaki.plan(a, b, accuracy=20, dtype="float32").scheme.name == "residues"


def test_powers_to_an_accuracy(device, rng):
    a = rng.standard_normal((device.size(9, 3),) * 2)
    for x in (a, mparray(a)):
        for options in device.some(({"accuracy": 80}, {"accuracy": "fp64"}), 1, rng):
            found = ozaki.matrix_power(moved(device, x), 11, **options)
            wanted = ozaki.matrix_power(x, 11, **options)
            assert same_planes(back(device, found), wanted)


@pytest.mark.parametrize("options", [{}, {"accuracy": 200}, {"accuracy": "exact"}, {"dtype": "mp", "accuracy": 200}])
def test_floats_in_contractions_keep_their_products(device, options):
    """Products of two floats, and sums of one, come first in these: float64 rounded them."""
    a = np.array([[1 + 2.0**-40, 0.0], [0.0, 1.0]])
    x, one = device.asarray(a), mparray(device.asarray(np.eye(2)), bits=200)
    wanted = mparray(a) + mparray([[1, 0], [0, 0]]).ldexp(-40) + mparray([[1, 0], [0, 0]]).ldexp(-80)
    for subscripts in ("ij,jk,kl->il", "ij,ij,ij->ij"):
        assert (back(device, ozaki.einsum(subscripts, x, x, one, **options)) == wanted).all()
    total = ozaki.einsum("ij,k->", device.asarray(np.array([[1.0, 2.0**-100]])), one[0], **options)
    assert back(device, total) == 1 + mparray(1).ldexp(-100)
