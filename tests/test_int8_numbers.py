"""Numbers of many bits, and wide images of floats, by compiled code: the bits of products by float64 BLAS."""

import tracemalloc

import numpy as np
import pytest
from mparrays import same_planes

import ozaki
from ozaki.backends.numpy import _numbers
from ozaki.backends.numpy.compiled import compiled, wide
from ozaki.bounds.description import LEAST_LEADING
from ozaki.schemes import Residues


def numbers(rng, shape, bits):
    """Normal numbers of so many bits."""
    words = range(max(1, min(-(-bits // 53), 18)))
    return ozaki.mparray(tuple(rng.standard_normal(shape) * 2.0 ** (-54 * w) for w in words))


def shifted(x, exponents):
    """The same numbers times powers of two."""
    return ozaki.MPArray(x.signs, np.where(x.signs != 0, x.exponents + exponents, 0), x.limbs, x.bits)


def check(a, b, **options):
    """Assert that the product is compiled, and has the bits of that by BLAS; return it."""
    c, report = ozaki.matmul(a, b, return_report=True, **options)
    assert "int8 by" in report.engine
    assert same_planes(c, ozaki.matmul(a, b, engine="float64", **options))
    return c


@pytest.mark.parametrize("bits", [60, 106, 212, 342, 512, 1024])
def test_bits_of_numbers(code, rng, bits):
    shapes = [((1, 1), (1, 1)), ((9, 17), (17, 50)), ((50, 49), (49, 3)), ((2, 7, 5), (5, 47)), ((3, 0), (0, 4))]
    for of_a, of_b in shapes:
        a, b = numbers(rng, of_a, bits), numbers(rng, of_b, bits)
        check(a, b, accuracy=bits)
        turned = a.swapaxes(-1, -2).copy().swapaxes(-1, -2), b.swapaxes(-1, -2).copy().swapaxes(-1, -2)
        check(*turned, accuracy=bits)
        check(a[..., ::-1, ::-1], b[..., ::-1, ::-1], accuracy=bits)


def test_images_whose_sums_are_folded(code, rng):
    """Of more than 63 words: residues of one byte are sums beyond 2**23."""
    x, y = (ozaki.mparray(tuple(rng.standard_normal(shape) * 2.0 ** (-20 * w) for w in range(50))) for shape in SMALL)
    check(shifted(x, rng.integers(-1500, 1500, SMALL[0])), y, scheme="residues", slices=400, dtype="mp300")


SMALL = (5, 30), (30, 7)


@pytest.mark.parametrize("dtype", ["mp2", "mp31", "mp32", "mp33", "mp64", "mp500", "float32", "float64"])
def test_results_of_any_format(code, rng, dtype):
    a, b = numbers(rng, (20, 30), 150), numbers(rng, (30, 40), 100)
    for count in (12, 29, 60):
        check(a, b, scheme="residues", slices=count, dtype=dtype)
    check(a, rng.standard_normal((30, 40)), accuracy=100, dtype=dtype)
    check(a.astype("float64"), rng.standard_normal((30, 40)), scheme="residues", slices=20, dtype=dtype)


def test_ties_are_rounded_to_even(code):
    """Images in the middle of two integers, and results in the middle of two numbers, and next to it."""
    ones = [2**70 + i for i in range(-3, 4)]
    tail = ozaki.mparray([[1, 2.0**-40, -(2.0**-40), 0.5, -0.5, 0.0, 2.0**-90]])
    a = ozaki.mparray(np.array([[one, 1] for one in ones], object))
    b = ozaki.mparray(np.array([[1] * 7, [0] * 7], object))
    rows = ozaki.gemm(1.0, ozaki.mparray([[0.0], [1.0]]), tail, 1.0, b, accuracy="exact")
    for bits in (68, 69, 70, 71, 72):
        check(a, rows, scheme="residues", slices=70, dtype=f"mp{bits}")
        check(-a, rows, scheme="residues", slices=16, dtype=f"mp{bits}")
    for count in range(17, 30):
        check(a, rows, scheme="residues", slices=count)


def test_powers_of_two_are_rounded_up_to(code):
    """All bits of a result are ones, so that rounding carries through all its limbs."""
    a = ozaki.mparray(np.array([[2**200 - 1], [2**128 - 1], [2**64 - 1], [1], [0]], object))
    for bits in (2, 31, 32, 33, 63, 64, 65, 96, 127, 128, 129, 199, 200):
        check(a, ozaki.mparray([[1.0, -1.0]]), scheme="residues", slices=70, dtype=f"mp{bits}")


def test_rows_of_wide_exponents(code, rng):
    a, b = numbers(rng, (20, 33), 200), numbers(rng, (33, 50), 200)
    within, far = rng.integers(-300, 300, (20, 33)), rng.integers(-(2**50), 2**50, (20, 1))
    zeros = ozaki.mparray(rng.standard_normal((20, 33)) * (rng.random((20, 33)) < 0.2))
    for x in (shifted(a, within), shifted(a, far), zeros, shifted(zeros, within)):
        check(x, b, accuracy=150)
        check(b.swapaxes(0, 1), x.swapaxes(0, 1), accuracy=150)
    check(shifted(a, within), b, accuracy="exact")


def test_wide_images_of_floats(code, rng):
    """As exact products of floats take them, also where results over- or underflow."""
    a, b = rng.standard_normal((40, 60)), rng.standard_normal((60, 55))
    graded = a * np.exp2(rng.integers(-60, 60, a.shape).astype(float))
    tiny, huge = np.rint(a * 4) * 2.0**-1074, a * 2.0**1000
    with np.errstate(all="ignore"):
        for x in (a, graded, tiny, huge, a * np.exp2(rng.integers(-900, 900, (40, 1)).astype(float))):
            check(x, b, scheme="residues", slices=30)
            check(x, (b * 2.0**60).T.copy().T, accuracy="exact")
            check(x.astype(np.float32), b.astype(np.float32), scheme="residues", slices=20)
        spoilt = graded.copy()
        spoilt[3, 5], spoilt[8, 9] = np.inf, np.nan
        found = [ozaki.matmul(spoilt, b, scheme="residues", slices=40, engine=name) for name in ("int8", "float64")]
    assert np.array_equal(*found, equal_nan=True)


@pytest.mark.parametrize("count", [29, 56])
def test_slabs_and_expressions(code, rng, count):
    """Which are rounded outside the library."""
    long = numbers(rng, (3, 8200), 100), numbers(rng, (8200, 2), 100)
    check(*long, scheme="residues", slices=count)
    a, b, c = (numbers(rng, (20, 20), 150) for _ in range(3))
    terms = 1.5, a, b, -0.25, c
    options = {"scheme": "residues", "slices": count}
    assert same_planes(ozaki.gemm(*terms, **options), ozaki.gemm(*terms, engine="float64", **options))
    check(a, a.swapaxes(0, 1), **options)


def test_several_turns_along_k(code, rng):
    """Products of two digits are reduced each 2048 inner indices."""
    check(numbers(rng, (9, 4200), 60), numbers(rng, (4200, 50), 60), scheme="residues", slices=53)


def test_no_more_is_held_than_the_report_says(code, rng):
    for bits, (m, k, n) in ((106, (200, 700, 150)), (300, (150, 100, 300))):
        a, b = numbers(rng, (m, k), bits), numbers(rng, (k, n), bits)
        for options in ({}, {"workspace_limit": 12_000_000}):
            ozaki.matmul(a, b, accuracy=bits, **options)
            ozaki.clear_caches()
            compiled()  # which tries the library
            tracemalloc.start()
            try:
                c, report = ozaki.matmul(a, b, accuracy=bits, return_report=True, **options)
                held = tracemalloc.get_traced_memory()[1] - c.nbytes
            finally:
                tracemalloc.stop()
            assert held <= report.workspace_bytes + 1_000_000  # what imports, tables and caches take


def test_limits_hold(code, rng):
    a, b = numbers(rng, (250, 300), 212), numbers(rng, (300, 270), 212)
    expected, whole = ozaki.matmul(a, b, accuracy=212, return_report=True)
    for limit in (whole.workspace_bytes, 12_500_000):
        c, report = ozaki.matmul(a, b, accuracy=212, workspace_limit=limit, return_report=True)
        assert same_planes(c, expected) and report.workspace_bytes <= limit


def test_threads_change_nothing(code, rng, monkeypatch):
    a, b = numbers(rng, (100, 90), 300), numbers(rng, (90, 100), 300)
    expected = check(a, b, accuracy=300)
    monkeypatch.setattr("ozaki.backends.numpy.compiled.sharing.LEAST", 1.0)
    monkeypatch.setattr("ozaki.backends.numpy.compiled.sharing.threads", lambda: 3)
    assert same_planes(ozaki.matmul(a, b, accuracy=300), expected)


def test_leading_bits(code, rng, monkeypatch):
    x = shifted(numbers(rng, (2, 70, 40), 150), rng.integers(-2000, 2000, (2, 70, 40)))
    zeros = shifted(ozaki.mparray(rng.standard_normal((2, 70, 40)) * (rng.random((2, 70, 40)) < 0.3)), 70)
    for each in (x, zeros, zeros[:, :, :1]):
        rows = _numbers.Numbers(each.signs, each.exponents, each.limbs, each.bits)
        for view in (rows, rows.swapaxes(1, 2), rows[:, ::-2]):
            found = wide.leading(code.library, view, LEAST_LEADING)
            monkeypatch.setattr(_numbers, "compiled", lambda: "none")
            assert all(np.array_equal(p, q) for p, q in zip(found, _numbers.leading(view), strict=True))
            monkeypatch.undo()


def test_too_many_bits_take_blas(code, rng):
    a, b = numbers(rng, (3, 3), 60), numbers(rng, (3, 3), 60)
    _, report = ozaki.matmul(a, b, scheme="residues", slices=700, return_report=True)
    assert Residues(700).largest.bit_length() > 4096 and report.engine == "NumPy, float64 BLAS"


@pytest.mark.parametrize("count", [29, 53])
def test_a_matrix_times_its_transpose(code, rng, count):
    """Tiles above the diagonal are left out, and its entries copied."""
    for shape in ((140, 20), (300, 9), (2, 130, 5)):
        a = numbers(rng, shape, 80)
        check(a, a.swapaxes(-1, -2), scheme="residues", slices=count)
    x = rng.standard_normal((270, 30))
    check(x, x.T, scheme="residues", slices=count)
