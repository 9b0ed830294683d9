"""Products by digits of compiled code for the processor's int8 units have the bits of those by float64 BLAS."""

import itertools

import numpy as np
import pytest
from cases import assert_same, by_blas, layouts, same_bits
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ozaki
from ozaki.backends.numpy.compiled import digits, self_test
from ozaki.backends.numpy.compiled.panels import TRIANGLE
from ozaki.backends.numpy.engines import int8_digits
from ozaki.schemes import Digits

DIGITS = {"scheme": "digits", "slices": 7}

COUNTS = [("digits", p) for p in range(1, 9)] + [("digits7", p) for p in range(1, 10)]
"""Every scheme that the library multiplies by: of images of one word or two, in one to three limbs."""


def spread(rng, shape, exponent, dtype="float64"):
    return np.ldexp(rng.standard_normal(shape), rng.integers(-exponent, exponent + 1, shape)).astype(dtype)


@pytest.mark.parametrize(("scheme", "count"), [("digits", 9), ("digits", 40), ("digits7", 10), ("fp16-digits", 4)])
def test_what_the_library_has_not_takes_blas(code, rng, scheme, count):
    a, b = rng.standard_normal((2, 30, 30))
    options = {"scheme": scheme, "slices": count}
    c, report = ozaki.matmul(a, b, return_report=True, **options)
    assert report.engine == "NumPy, float64 BLAS" and same_bits(c, by_blas(a, b, **options))


@pytest.mark.parametrize(("scheme", "count"), COUNTS)
def test_every_number_of_digits(code, rng, scheme, count):
    options = {"scheme": scheme, "slices": count}
    for dtype, result in itertools.product(("float32", "float64"), repeat=2):
        a, b = spread(rng, (40, 61), 9, dtype), spread(rng, (61, 70), 9, dtype)
        c, report = ozaki.matmul(a, b, dtype=result, return_report=True, **options)
        assert "int8 by" in report.engine
        assert same_bits(c, by_blas(a, b, dtype=result, **options))


def least_image(scheme):
    """An image whose digits are the least ones, but for the first and the last ones where no float64 has these."""
    half, limit = 1 << scheme.bits - 1, 2**31 if scheme.largest < 2**31 else 2**63
    places = [half << scheme.bits * i for i in range(scheme.count)]
    if sum(places) > limit:
        places[-1] -= places[-1] // half
    while float(sum(places)) != sum(places):
        del places[0]
    return -sum(places)


@pytest.mark.parametrize(("count", "bits"), [(8, 8), (7, 8), (9, 7), (1, 8), (4, 8), (5, 7)])
@pytest.mark.parametrize("k", [1, 3, 6, 8192])
def test_extreme_digits(code, rng, count, bits, k):
    """The least digit in every place, and the largest: no sum of a diagonal leaves an int32."""
    scheme = Digits(count, bits)
    tables = digits.digit_tables_of(scheme)
    bias, half = int(tables.digits["left"]["bias"][0]), tables.half
    least, largest = least_image(scheme), [tables.half - 1 << bits * i for i in range(count)]
    images = np.array([least, least, -1, *largest, *(-x for x in largest), 0], np.float64)
    x, y = rng.choice(images, (1, 9, k)), rng.choice(images, (1, 50, k))
    x[0, 0], y[0, 0] = least, least
    left, right = (
        digits.split_digits(code.library, each, np.zeros(each.shape[:2], np.int64), side, tables)
        for each, side in ((x, "left"), (y, "right"))
    )
    of_x, of_y = (
        [(biased >> np.uint64(bits * (count - 1 - s)) & np.uint64(2 * half - 1)).astype(float) - half
         for s in range(count)]
        for biased in (each[0].astype(np.int64).view(np.uint64) + np.uint64(bias) for each in (x, y))
    )  # fmt: skip
    found = digits.multiply_diagonals(code.library, left, right, tables)
    for d in range(count):
        assert (found[d, 0] == sum(of_x[s] @ of_y[d - s].T for s in range(d + 1))).all()
    assert bits * count > 56 or found[-1, 0, 0, 0] >= (count - 1) * k * half**2


def test_float32_over_and_underflows(code, rng):
    a, b = spread(rng, (30, 40), 60, "float32"), spread(rng, (40, 50), 70, "float32")
    for scale in (1, 2.0**40, 2.0**-60):
        for count in (3, 5):
            options = {"scheme": "digits", "slices": count}
            with np.errstate(all="ignore"):
                left = (a * np.float32(scale)).astype(np.float32)
            assert_same(by_blas(left, b, **options), ozaki.matmul(left, b, **options))


def test_any_length_of_rows(code, rng):
    for k, count in ((0, 7), (1, 7), (2, 8), (8192, 8), (8193, 8), (70_001, 3), (300_000, 4)):
        a, b = rng.standard_normal((3, k)), rng.standard_normal((k, 2))
        options = {"scheme": "digits", "slices": count}
        assert same_bits(ozaki.matmul(a, b, **options), by_blas(a, b, **options))
    for m, n in ((0, 5), (5, 0)):
        assert ozaki.matmul(np.ones((m, 4)), np.ones((4, n)), **DIGITS).shape == (m, n)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_operands_of_sixteen_bits(code, rng, dtype):
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    a, b = (x.astype(dtype) for x in rng.standard_normal((2, 50, 50)))
    options = {"scheme": "digits", "slices": 2}
    c = ozaki.matmul(a, b, **options)
    assert same_bits(c, by_blas(a, b, **options))


def test_complex_products(code, rng):
    z = rng.standard_normal((2, 30, 30)) + 1j * rng.standard_normal((2, 30, 30))
    for x, y in ((z[0], z[1]), (z[0], z[0].T), (z[0], z[0].conj().T), (z[0].astype("c8"), z[1].astype("c8"))):
        c, report = ozaki.matmul(x, y, return_report=True, **DIGITS)
        assert "int8 by" in report.engine and same_bits(c, by_blas(x, y, **DIGITS))


def test_what_a_triangle_leaves_out_is_not_computed(code, rng):
    x, mu, out = rng.standard_normal((1, 300, 40)), np.full((1, 300), 40), np.zeros((1, 300, 300))
    tables = digits.digit_tables_of(Digits(7))
    left, right = (digits.split_digits(code.library, x, mu, side, tables) for side in ("left", "right"))
    digits.multiply_digits(code.library, left, right, tables, mu, mu, out, triangle=True)
    ends = np.minimum(np.arange(300) // TRIANGLE * TRIANGLE + TRIANGLE, 300)
    assert ((out[0] != 0) == (np.arange(300) < ends[:, None])).all()


@pytest.mark.parametrize("k", [30, 9000, 20000])
def test_prepared_operands(code, rng, k):
    """Digits of whole operands are multiplied by compiled code, too, in slabs as those of others are."""
    a, b = rng.standard_normal((30, k)), rng.standard_normal((k, 60))
    plan = ozaki.plan(a.shape, b.shape, dtype="float64", **DIGITS)
    x, y = ozaki.prepare(a, "left", plan), ozaki.prepare(b, "right", plan)
    expected = by_blas(a, b, **DIGITS)
    for left, right in ((x, b), (a, y), (x, y)):
        c, report = ozaki.matmul(left, right, plan=plan, return_report=True)
        assert same_bits(c, expected) and report.engine.startswith("NumPy, int8 by")


def test_progress_counts_each_diagonal(code, rng):
    seen = []
    a, b = rng.standard_normal((2, 60, 60))
    for x, y in ((a, b), (np.tile(a, 150), np.tile(b, (150, 1)))):
        seen.clear()
        c = ozaki.matmul(x, y, progress=lambda done, total, what: seen.append((done, total)), **DIGITS)
        assert seen[-1][0] == seen[-1][1] and same_bits(c, by_blas(x, y, **DIGITS))


def test_a_library_with_wrong_digits_is_refused(code, monkeypatch):
    multiply = self_test.multiply_diagonals

    def wrong(*given):
        sums = multiply(*given)
        sums[-1, 0, -1, -1] ^= 1
        return sums

    monkeypatch.setattr(self_test, "multiply_diagonals", wrong)
    assert self_test.self_test(code.library) == "multiplies digits wrongly on this processor"


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    shape=st.tuples(*3 * [st.integers(1, 60)]),
    scheme=st.sampled_from(COUNTS),
    seed=st.integers(0, 2**32 - 1),
    exponent=st.sampled_from([0, 5, 60, 500]),
    dtype=st.sampled_from(["float32", "float64"]),
    ways=st.tuples(*2 * [st.integers(0, 4)]),
    slab=st.sampled_from([8, 2**13]),
)
def test_any_product(code, shape, scheme, seed, exponent, dtype, ways, slab):
    rng = np.random.default_rng(seed)
    m, k, n = shape
    name, count = scheme
    with np.errstate(all="ignore"):
        a, b = spread(rng, (m, k), exponent, dtype), spread(rng, (k, n), exponent, dtype)
    options = {"scheme": name, "slices": count}
    left, right = (next(itertools.islice(layouts(x), way, None)) for x, way in zip((a, b), ways, strict=True))
    found = int8_digits.DEPTH
    try:
        int8_digits.DEPTH = slab  # so that sums of several slabs are added
        ozaki.clear_caches()
        c = ozaki.matmul(left, right, **options)
    finally:
        int8_digits.DEPTH = found
    assert_same(by_blas(a, b, **options), c)
