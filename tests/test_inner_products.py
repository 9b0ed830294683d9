"""Inner products of a list of entries are correctly rounded, by compiled code and by NumPy, to the same bits."""

import ctypes
import itertools
import math
import platform
from fractions import Fraction

import numpy as np
import pytest
from cases import held_by
from conftest import CODES
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from shim import call, compiled, rounded_bits

import ozaki
from ozaki.backends.numpy import _inner_products as module
from ozaki.backends.numpy._inner_products import inner_products, inner_products_bytes
from ozaki.backends.numpy.compiled import Compiled, sharing
from ozaki.backends.numpy.compiled import compiled as library

FORMATS = ["float32", "float64"]


@pytest.fixture(params=[*CODES.get(platform.machine(), ["portable"]), "float64"])
def route(request, monkeypatch):
    """Each way in which values are computed: the compiled libraries, and NumPy where there is none."""
    monkeypatch.setenv("OZAKI_CPU", request.param)
    ozaki.clear_caches()
    found = library()
    if not isinstance(found, Compiled) and request.param != "float64":
        ozaki.clear_caches()
        pytest.skip(found)
    yield request.param
    monkeypatch.undo()
    ozaki.clear_caches()


def exactly(x, y):
    """The inner product as a fraction; NaN and Inf count as zero."""
    pairs = zip(x.tolist(), y.tolist(), strict=True)
    finite = ((p if math.isfinite(p) else 0.0, q if math.isfinite(q) else 0.0) for p, q in pairs)
    return sum((Fraction(p) * Fraction(q) for p, q in finite), Fraction(0))


def expected_bits(value, dtype):
    """The bits of a fraction, whose denominator is a power of two, rounded once."""
    size = 8 * np.dtype(dtype).itemsize
    return rounded_bits(value.numerator, 1 - value.denominator.bit_length(), size)


def bits_of(x):
    return x.view(f"u{x.dtype.itemsize}")


def check(x, y, dtype, entries=None):
    """Compare entries, all of them if none are named, with exact ones."""
    batch, m, n = max(len(x), len(y)), x.shape[1], y.shape[1]
    if entries is None:
        entries = np.array(list(itertools.product(range(batch), range(m), range(n))), np.int64).reshape(-1, 3).T
    out = np.full((batch, m, n), np.nan, dtype)
    inner_products(x, y, entries, out)
    for b, i, j in entries.T:
        of_x, of_y = x[b if len(x) > 1 else 0, i], y[b if len(y) > 1 else 0, j]
        wanted = expected_bits(exactly(of_x, of_y), dtype)
        assert int(bits_of(out)[b, i, j]) == wanted, (b, i, j, out[b, i, j], of_x[:8], of_y[:8])
    untouched = np.ones(out.shape, bool)
    untouched[tuple(entries)] = False
    assert np.isnan(out[untouched]).all()


def rows(*rows, dtype="float64"):
    """A matrix of rows, with zeros up to the length of the longest one."""
    k = max(map(len, rows))
    return np.array([[*row, *[0.0] * (k - len(row))] for row in rows], dtype)[None]


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("formats", [*itertools.product(FORMATS, FORMATS)], ids="-".join)
@pytest.mark.parametrize("k", [0, 1, 2, 7, 8, 9, 100])
def test_values(route, rng, formats, dtype, k):
    x, y = (rng.standard_normal((2, m, k)).astype(form) for m, form in zip((3, 37), formats, strict=True))
    check(x, y, dtype)


@pytest.mark.parametrize("k", [1023, 1024, 1025, 3000])
def test_long_rows(route, rng, k):
    x, y = rng.standard_normal((1, 3, k)), rng.standard_normal((1, 5, k))
    x[0, 1, ::2] = 0  # some products are zero
    x[0, 2, k // 2 :] = 0
    y[0, 1, : k // 2 * 2 : 2], y[0, 1, 1::2] = x[0, 0, 1::2][: k // 2], -x[0, 0, : k // 2 * 2 : 2][: k // 2]
    if k % 2:
        y[0, 1, -1] = 0
    assert exactly(x[0, 0], y[0, 1]) == 0  # cancels
    check(x, y, "float64")
    check(x, y, "float32")


def test_rows_longer_than_a_tile(route, rng):
    k = module.TILE + 1000
    x, y = rng.standard_normal((1, 2, k)), rng.standard_normal((1, 2, k))
    x[0, 1, 1:] = 0
    x[0, 1, [0, -1]] = 1.0, -1.0
    y[0, 1, [0, -1]] = 1.0
    check(x, y, "float64")


@pytest.mark.parametrize("far", [0, -300, 300])
def test_ties(route, far):
    """Halves of a unit, exactly and beside it by far less than twice the precision holds."""
    one = 2.0**far
    x, y = [], [1.0, 1.0, 1.0, 2.0**-40]
    for odd, half, little in itertools.product((0.0, 2.0**-52), (2.0**-53, -(2.0**-54)), (0.0, 1.0, -1.0)):
        for size in (2.0**-80, 2.0**-120, 2.0**-500, 2.0**-600):
            x.append([one, one * odd, one * half, one * little * size * 2.0**40])
            x.append([-value for value in x[-1]])
    check(rows(*x), rows(y), "float64")


@pytest.mark.parametrize("formats", [("float64", "float64"), ("float64", "float32"), ("float32", "float32")])
def test_ties_of_float32(route, formats):
    """Beside a half of a unit of float32 by less than a unit of float64: rounding to that first would hide it."""
    x = []
    for odd, half, little in itertools.product((0.0, 2.0**-23), (2.0**-24, -(2.0**-25)), (0.0, 1.0, -1.0)):
        for size in (2.0**-40, 2.0**-52, 2.0**-60, 2.0**-90):
            x.append([1.0, odd, half, little * size])
            x.append([-value for value in x[-1]])
            x.append([value * 2.0**-127 for value in x[-2]])  # halves of units of subnormal numbers
    left = rows(*x) if formats[0] == "float64" else rows(*x, dtype="float32")
    check(left, rows([1.0, 1.0, 1.0, 1.0], dtype=formats[1]), "float32")


@pytest.mark.parametrize("dtype", FORMATS)
def test_cancellation(route, rng, dtype):
    """A zero is +0, also of products whose signs differ; what is left of large products is exact."""
    big = rng.standard_normal(6)
    x = rows(*([*big, *-big, rest] for rest in (0.0, -0.0, 2.0**-70, -(2.0**-200), 5e-324)), [-0.0], [0.0])
    y = rows([*big, *big, 1.0], [*-big, *-big, -1.0], [0.0], [-0.0])
    check(x, y, dtype)
    out = np.full((1, 7, 4), np.nan, dtype)
    inner_products(x, y, np.array([[0, 0, 0, 0], [0, 1, 5, 6], [0, 1, 0, 3]]), out)
    assert all(out[0, i, j] == 0 and not np.signbit(out[0, i, j]) for i, j in ((0, 0), (1, 1), (5, 0), (6, 3)))


@pytest.mark.parametrize("dtype", FORMATS)
def test_subnormals(route, rng, dtype):
    """Elements, products, errors of products, and results below the normal numbers."""
    tiny, form = 5e-324, np.finfo(dtype)
    x = [np.ldexp(rng.standard_normal(9), e) for e in (-1074, -1060, -1022, -540, -500, -150, -130, 0)]
    x += [[tiny] * 9, [float(form.tiny), -float(form.smallest_subnormal)], [2.0**-537, 2.0**-537], [2.0**-600]]
    y = [np.ldexp(rng.standard_normal(9), e) for e in (0, -10, -537, -1000, 1000)]
    y += [[tiny] * 9, [0.5], [0.5, 0.5], [-0.75, 0.25, 2.0**-600], [2.0**-538, 2.0**-538], [2.0**-475]]
    check(rows(*x), rows(*y), dtype)


@pytest.mark.parametrize("dtype", FORMATS)
def test_overflow(route, rng, dtype):
    """Too large results, and sums that are not too large although their terms or parts are."""
    form = np.finfo(dtype)
    most = float(form.max)
    half_a_unit = 2.0 ** (int(form.maxexp) - form.nmant - 2)
    x = [[most, half_a_unit], [most, half_a_unit, -5e-324], [-most, -half_a_unit], [most, most, -most]]
    x += [[1e308, 1e308, -1e308], [1.7e308, -1.7e308, 1.0], [2.0**1023, 2.0**1000, 3.0], [2.0**996, 1.0]]
    y = [[1.0, 1.0, 1.0], [2.0, 2.0, 2.0], [2.0**1000, 2.0**1000, 2.0**1000], [1.0, -1.0, 5e-324], [-(2.0**900), 1.0]]
    check(rows(*x), rows(*y), dtype)


def test_huge_ranges(route, rng):
    for span in (60, 400, 1070):
        x, y = (
            np.ldexp(rng.standard_normal((1, m, 30)), rng.integers(-span, min(span, 1020), (1, m, 30))) for m in (5, 9)
        )
        x[rng.random(x.shape) < 0.3] = 0
        check(x, y, "float64")
        check(x, y, "float32")


def test_nan_and_inf_count_as_zero(route, rng):
    x, y = rng.standard_normal((2, 1, 6, 20))
    x[0, 1, 3], x[0, 2, 4], x[0, 3], y[0, 1, 3], y[0, 2, 4], y[0, 3, 7] = np.nan, np.inf, np.nan, -np.inf, 0, -np.nan
    check(x, y, "float64")
    check(x.astype("float32"), y, "float32")


def layouts(x):
    """Stacks equal to x, in all sorts of strides; the last one is not aligned."""
    wide = np.zeros((*x.shape[:2], 2 * x.shape[2]), x.dtype)
    wide[..., ::2] = x
    bytes_ = np.empty(x.nbytes + 1, np.uint8)
    unaligned = bytes_[1:].view(x.dtype).reshape(x.shape)
    unaligned[...] = x
    return [
        x,
        np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2),
        np.ascontiguousarray(x[:, ::-1, ::-1])[:, ::-1, ::-1],
        np.ascontiguousarray(x.swapaxes(1, 2)[:, ::-1]).swapaxes(1, 2)[..., ::-1],
        wide[..., ::2],
        np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 0, 2)), 2, 0),
        unaligned,
    ]


@pytest.mark.parametrize("dtype", FORMATS)
def test_layouts(route, rng, monkeypatch, dtype):
    """Of every pair of layouts the same bits; rows that are copied are copied in parts."""
    monkeypatch.setattr(module, "_COPIED", 200)
    x, y = rng.standard_normal((2, 7, 50)), rng.standard_normal((2, 70, 50))
    entries = np.array(list(itertools.product(range(2), range(7), range(70)))).T
    entries = entries[:, rng.permutation(entries.shape[1])[:600]]
    expected = np.zeros((2, 7, 70), dtype)
    inner_products(x, y, entries, expected)
    check(x, y, dtype, entries[:, :40])
    for left, right in itertools.product(layouts(x), layouts(y)):
        for out in (np.zeros((2, 7, 70), dtype), np.zeros((70, 2, 7), dtype).transpose(1, 2, 0)[:, ::-1]):
            inner_products(left, right, entries, out)
            assert np.array_equal(bits_of(out.copy()), bits_of(expected))


@pytest.mark.parametrize(("left", "right"), [(1, 3), (3, 1), (3, 3)])
@pytest.mark.parametrize("transposed", [False, True])
def test_stacks(route, rng, left, right, transposed):
    """A matrix against a stack, whose entries come in any order and some twice."""
    x, y = rng.standard_normal((left, 5, 12)), rng.standard_normal((right, 40, 12))
    if transposed:
        x, y = layouts(x)[1], layouts(y)[1]
    entries = np.stack([rng.integers(0, size, 300) for size in (3, 5, 40)])
    check(x, y, "float64", entries)


def test_many_entries_of_few_rows(route, rng, monkeypatch):
    """More entries than a group has, or the list is processed at once; and none."""
    monkeypatch.setattr(module, "TILE", 300)
    x, y = rng.standard_normal((1, 100, 3)), rng.standard_normal((1, 7, 3))
    check(x, y, "float64")
    check(x, y, "float64", np.empty((3, 0), np.int64))


def test_threads_share_out(code, rng, monkeypatch):
    x, y = rng.standard_normal((1, 30, 20)), rng.standard_normal((1, 300, 20))
    entries = np.array(list(itertools.product(range(1), range(30), range(300)))).T
    alone, shared = np.zeros((2, 1, 30, 300))
    inner_products(x, y, entries, alone)
    monkeypatch.setattr(sharing, "threads", lambda: 3)
    monkeypatch.setattr(sharing, "LEAST", 1.0)
    inner_products(x, y, entries, shared)
    assert np.array_equal(bits_of(alone), bits_of(shared))


@pytest.mark.parametrize(("shape", "count"), [((300, 300, 400), 1200), ((3, 3, 30_000), 16), ((300, 300, 4), 50_000)])
@pytest.mark.parametrize("strided", [(), (0,), (0, 1)])
def test_memory(route, rng, shape, count, strided):
    m, n, k = shape
    x, y = (
        layouts(each)[1] if side in strided else each
        for side, each in enumerate((rng.standard_normal((1, m, k)), rng.standard_normal((1, n, k))))
    )
    entries = np.stack([rng.integers(0, size, count) for size in (1, m, n)])
    x[:, 0], y[:, 0] = 1.0, np.tile([1.0, -1.0], k // 2)  # exact sums
    out = np.zeros((1, m, n))
    inner_products(x, y, entries[:, :1], out)
    _, held = held_by(lambda: inner_products(x, y, entries, out))
    assert held <= inner_products_bytes(x, y, entries.shape[1])


@pytest.mark.parametrize("dtype", FORMATS)
def test_nothing_is_decided_that_is_not_sure(code, rng, dtype):
    """The library's sums, where all entries are near halves, are those of exact sums, and NumPy's are."""
    k, form = 60, np.finfo(dtype)
    x, y = rng.standard_normal((1, 40, k)), rng.standard_normal((1, 1, k))
    y[0, 0, -2:] = 1.0, 2.0**-30
    for i in range(40):  # the last two products bring the sum to a half, or beside it
        x[0, i, -2:] = 0
        value = exactly(x[0, i], y[0, 0])
        unit = Fraction(2) ** (math.frexp(float(value))[1] - form.nmant - 1)
        target = (math.floor(value / unit) + Fraction(1, 2)) * unit
        x[0, i, -2] = float(target - value)
        x[0, i, -1] = float((target - exactly(x[0, i], y[0, 0])) * 2**30) * (1 if i % 2 else 1 + 2.0**-40)
    check(x, y, dtype)


ELEMENTS = st.one_of(
    st.floats(width=64),
    st.floats(-4, 4, width=16),
    st.builds(math.ldexp, st.integers(-(2**53), 2**53), st.integers(-1074, 900)),
    st.sampled_from([0.0, 1.0, -1.0, 2.0**-53, 1 + 2.0**-52, 2.0**-1074, 2.0**-537, 2.0**1023, math.inf, math.nan]),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pairs=st.lists(st.tuples(ELEMENTS, ELEMENTS), min_size=1, max_size=12), repeat=st.booleans())
def test_any_numbers(route, pairs, repeat):
    """Some numbers, and with `repeat` also the same products with the other sign, in another order."""
    if repeat:
        pairs = [*pairs, *((-p, q) for p, q in reversed(pairs)), *pairs[:1]]
    x, y = (np.array(side)[None, None] for side in zip(*pairs, strict=True))
    check(x, y, "float64")
    check(x, y, "float32")


# The exact sum --------------------------------------------------------------------------------------------------------

SOURCE = """
#include "arithmetic/superaccumulator.cuh"

template <typename T, typename Element>
void sums(const Element* x, const Element* y, typename BitsOf<T>::type* out, int64_t often, int64_t n) {
  Superaccumulator sum;
  sum.clear();
  for (int64_t turn = 0; turn < often; ++turn) {
    for (int64_t i = 0; i < n; ++i) sum.add(parts(bits_of(x[i])), parts(bits_of(y[i])));
    if (turn % 3 == 0) sum.carry();
  }
  *out = sum.template rounded<T>();
}
extern "C" {
void sums_64(const double* x, const double* y, uint64_t* out, int64_t often, int64_t n) {
  sums<double>(x, y, out, often, n);
}
void sums_32(const double* x, const double* y, uint32_t* out, int64_t often, int64_t n) {
  sums<float>(x, y, out, often, n);
}
void sums_of_floats(const float* x, const float* y, uint64_t* out, int64_t often, int64_t n) {
  sums<double>(x, y, out, often, n);
}
}
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    return compiled(SOURCE, tmp_path_factory.mktemp("superaccumulator"))


def summed(shim, name, x, y, often=1):
    out = np.zeros(1, np.uint32 if name == "sums_32" else np.uint64)
    call(getattr(shim, name), x, y, out, ctypes.c_int64(often), len(x))
    return int(out[0])


def test_superaccumulator(shim, prng):
    """All lengths and ranges: bits at random, numbers that cancel but for little, extremes of either sign."""
    for turn in range(600):
        n, span = prng.randrange(1, 20), prng.choice((3, 40, 500, 2046))
        field = prng.randrange(0, 2047 - span + 1)
        x, y = (
            np.array(
                [
                    prng.getrandbits(1) << 63 | (field + prng.randrange(span)) << 52 | prng.getrandbits(52)
                    for _ in range(n)
                ],
                np.uint64,
            ).view(np.float64)
            for _ in range(2)
        )
        if turn % 3 == 0:  # only the last product is left, which is far smaller
            x, y = np.append(x, [*-x, x[0] * 2.0**-60]), np.append(y, [*y, y[0]])
        value = exactly(x, y)
        assert summed(shim, "sums_64", x, y) == expected_bits(value, "float64")
        assert summed(shim, "sums_32", x, y) == expected_bits(value, "float32")


def test_superaccumulator_of_extremes(shim):
    most, least = np.finfo(np.float64).max, 5e-324
    cases = [
        ([least], [least]), ([least, most], [least, most]), ([least] * 3, [-least] * 3), ([most, -most], [most, most]),
        ([most, -most, 1.0], [most, most, least]), ([1.0, 2.0**-600], [2.0**-1075 * 2, -(2.0**-600)]),
        ([0.5, least], [least, least]), ([0.5, -least], [least, least]), ([-0.5], [least]), ([0.0], [-1.0]),
    ]  # fmt: skip
    for (x, y), often in itertools.product(cases, (1, 1000)):
        of_x, of_y = np.array(x), np.array(y)
        value = often * exactly(of_x, of_y)
        assert summed(shim, "sums_64", of_x, of_y, often) == expected_bits(value, "float64"), (x, y, often)
        assert summed(shim, "sums_32", of_x, of_y, often) == expected_bits(value, "float32"), (x, y, often)


def test_superaccumulator_of_float32(shim, prng):
    for _ in range(100):
        x, y = (np.array([prng.getrandbits(32) for _ in range(9)], np.uint32).view(np.float32) for _ in range(2))
        with np.errstate(invalid="ignore"):  # a signalling NaN
            value = exactly(x.astype(float), y.astype(float))
        assert summed(shim, "sums_of_floats", x, y) == expected_bits(value, "float64")
