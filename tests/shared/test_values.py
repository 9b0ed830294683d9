"""The values of a product: rounded once; NaN, Inf, overflow, underflow and the signs of zeros as IEEE 754 has them."""

import numpy as np
import pytest
from cases import assert_same, rounded_product, spread

import ozaki
from ozaki import reference


def exact(device):
    """Options with bits enough to multiply operands of `few_bits` exactly, so that results are rounded once only."""
    if device.slow:
        return [{"scheme": "residues", "slices": 14}]
    options = {"engine": "int8-simulated"} if device.name == "numpy" else {}
    return [{"accuracy": 200, "scheme": "residues"}, {"accuracy": 200, "scheme": "digits", **options}]


def few_bits(device, x):
    """x; on slow devices rounded to 16 bits, since more slices would need more kernels built."""
    if not device.slow:
        return x
    fraction, exponent = np.frexp(x.astype("f8"))
    return np.ldexp(np.rint(np.ldexp(fraction, 16)), exponent - 16).astype(x.dtype)


def check(device, a, b):
    for way in exact(device):
        assert_same(rounded_product(a, b), device.matmul(a, b, **way), way, a, b)


# Rounding -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("left", "right"), [("f4", "f4"), ("f4", "f8"), ("f8", "f4"), ("f8", "f8")])
def test_results_are_rounded_once(device, rng, left, right):
    a, b = (few_bits(device, spread(rng, s, 20, t)) for s, t in (((11, 40), left), ((40, 9), right)))
    check(device, a, b)


def test_a_hard_rounding_to_float32(device):
    """Sums next to ties of float32, which rounding to float64 first would round to the wrong side."""
    a = np.array([[1.0, 2.0**-24, 2.0**-60], [1.0, 2.0**-24, -(2.0**-60)], [1.0, 2.0**-24, 0.0]], np.float32)
    c = device.matmul(a, np.ones((3, 1), np.float32), accuracy=100, reproducible=True)
    assert c.ravel().tolist() == [1 + 2.0**-23, 1.0, 1.0]


# NaN and Inf --------------------------------------------------------------------------------------------------------


def sliced(device, dtype="f8"):
    """Options that multiply slices: given counts by every engine, and a named accuracy."""
    counts = (("residues", 7), ("digits", 3)) if dtype == "f4" else (("residues", 14), ("digits", 7))
    engines = device.engines[-1:] if device.slow else device.engines
    ways = [{"scheme": scheme, "slices": n, "engine": engine} for scheme, n in counts for engine in engines]
    return ways if device.slow else [*ways, {"accuracy": "fp64", "scheme": "digits7"}]


def ieee(a, b):
    """The product in float64, one product and one sum at a time."""
    with np.errstate(all="ignore"):
        return np.array([[sum((x * y for x, y in zip(row, col, strict=True)), 0.0) for col in b.T] for row in a])


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_nonfinite_values_follow_ieee(device, rng, dtype):
    for _ in range(device.size(15, 2)):
        m, k, n = (int(v) for v in rng.integers(1, 9, 3))
        a, b = spread(rng, (m, k), 3, dtype), spread(rng, (k, n), 3, dtype)
        for x in (a, b):
            for _ in range(int(rng.integers(0, 4))):
                x[rng.integers(0, x.shape[0]), rng.integers(0, x.shape[1])] = rng.choice([np.nan, np.inf, -np.inf])
        expected = ieee(a, b)
        touched = ~np.isfinite(expected)
        finite = [np.where(np.isfinite(x), x, 0).astype(dtype) for x in (a, b)]
        for way in device.some(sliced(device, dtype), 3, rng):
            c, report = device.matmul(a, b, return_report=True, **way)
            assert_same(expected[touched].astype(dtype), c[touched], way, a, b)
            of_finite = device.matmul(*finite, scheme=report.scheme, slices=report.slices)
            assert_same(of_finite[~touched], c[~touched], way, a, b)
            if "accuracy" in way:
                rows, cols = (~np.isfinite(a).all(axis=1)).sum(), (~np.isfinite(b).all(axis=0)).sum()
                assert report.nonfinite == rows + cols


def test_all_nan_and_infinities_of_both_signs(device):
    a = np.array([[np.inf, -np.inf], [np.inf, 0.0], [np.inf, 1.0], [np.nan, np.nan], [0.0, -0.0]])
    b = np.array([[1.0, 0.0, np.inf, -np.inf], [1.0, 1.0, 1.0, 5e-324]])
    for way in sliced(device):
        assert_same(ieee(a, b), device.matmul(a, b, **way), way)


def test_nonfinite_elements_leave_all_other_entries_alone(device, rng):
    a, b = spread(rng, (12, 30), 9), spread(rng, (30, 9), 9)
    with_some = a.copy(), b.copy()
    with_some[0][3, 5], with_some[0][7, 0], with_some[1][2, 4] = np.nan, np.inf, -np.inf
    rows, cols = [i for i in range(12) if i not in (3, 7)], [j for j in range(9) if j != 4]
    for way in (way for way in sliced(device) if "slices" in way):
        c, d = device.matmul(a, b, **way), device.matmul(*with_some, **way)
        assert_same(c[np.ix_(rows, cols)], d[np.ix_(rows, cols)], way)
        assert not np.isfinite(d[[3, 7]]).any()
        assert not np.isfinite(d[:, 4]).any()


def test_nonfinite_stacks(device, rng):
    a, b = rng.standard_normal((3, 4, 5)), rng.standard_normal((5, 2))
    a[1, 2, 3] = np.nan
    c = device.matmul(a, b, accuracy="fp64")
    assert np.isnan(c).sum() == 2
    assert np.isnan(c[1, 2]).all()
    d = device.matmul(b.T, a.swapaxes(1, 2), accuracy="fp64", reproducible=True)
    assert np.array_equal(np.isnan(d), np.isnan(c.swapaxes(1, 2)))
    np.testing.assert_allclose(d, c.swapaxes(1, 2), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("right", [(4, 3), (5, 4, 3), (2, 5, 4, 3)])
def test_rows_with_nan_count_once_however_they_are_broadcast(device, right):
    a = np.ones((2, 1, 3, 4))
    a[0, 0, 0, 0] = np.nan
    assert device.matmul(a, np.ones(right), accuracy="fp64", return_report=True)[1].nonfinite == 1


def test_the_accuracy_is_met_beside_nan_and_inf(device, rng):
    a, b = spread(rng, (10, 50), 10), spread(rng, (50, 10), 10)
    a[2, 7], b[3, 4] = np.inf, np.nan
    accuracy = device.size(1e-25, 1e-16)
    c, report = device.matmul(a, b, accuracy=accuracy, return_report=True)
    rows, cols = [i for i in range(10) if i != 2], [j for j in range(10) if j != 4]
    assert reference.componentwise_error(c[np.ix_(rows, cols)], a[rows], b[:, cols]) <= report.bound <= 2.0**-52


# Overflow, underflow, zeros -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_overflow_gives_infinity(device, dtype):
    big = np.finfo(dtype).max
    a = np.array([[big, big], [big, -big], [big, 0], [-big, -big]], dtype)
    b = np.array([[1, 0.5], [1, 0.5]], dtype)
    for way in exact(device):
        c = device.matmul(a, b, **way)
        assert_same(rounded_product(a, b), c, way)
        assert c.tolist()[0] == [np.inf, big]
        assert c.tolist()[3][0] == -np.inf


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_underflow_rounds_once(device, rng, dtype):
    least, low = (-149, -150) if dtype == "f4" else (-1074, -1080)
    for _ in range(device.size(20, 3)):
        m, k, n = (int(v) for v in rng.integers(1, 8, 3))
        a = np.ldexp(few_bits(device, rng.standard_normal((m, k))), low // 2 + rng.integers(-3, 30, (m, 1)))
        b = np.ldexp(few_bits(device, rng.standard_normal((k, n))), low // 2 + rng.integers(-3, 30, (1, n)))
        check(device, a.astype(dtype), b.astype(dtype))
    tiny = np.array([[2.0**least, 3 * 2.0**least, -(2.0**least)]], dtype)
    check(device, tiny, np.full((3, 1), 0.5, dtype))


@pytest.mark.parametrize(("dtype", "least", "large"), [("f4", -149, 100), ("f8", -1074, 1000)])
def test_subnormal_operands(device, rng, dtype, least, large):
    a = np.ldexp(rng.integers(-1000, 1000, (5, 6)).astype(float), least).astype(dtype)
    b = few_bits(device, spread(rng, (6, 4), 5, dtype))
    check(device, a, b)
    check(device, np.ldexp(b.T, large), a.T)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_signs_of_zeros(device, rng, dtype):
    """An exact zero is +0; a negative result that underflows is -0."""
    a = np.array([[1, -1], [0, 0], [-0.0, -0.0], [1, 1]], dtype)
    b = np.array([[1, -1, 0.0, -0.0], [1, -1, 0.0, -0.0]], dtype)
    tiny, kind = np.array([[np.finfo(dtype).smallest_subnormal]], dtype), np.dtype(dtype).type
    for way in device.some([*exact(device), *sliced(device, dtype)], 4, rng):
        c = device.matmul(a, b, **way)
        zeros = c == 0
        assert zeros.sum() == 4 * 4 - 2
        assert not np.signbit(c[zeros]).any()
        for sign in (1, -1):
            c = device.matmul(tiny * kind(sign), tiny, **way)
            assert c[0, 0] == 0
            assert np.signbit(c[0, 0]) == (sign < 0)


def test_the_smallest_and_largest_results_of_one_product(device, rng):
    """Rows near overflow beside rows near underflow, in one call."""
    a, b = few_bits(device, rng.standard_normal((8, 3))), few_bits(device, rng.standard_normal((3, 6)))
    a = np.ldexp(a, np.array([-1070, -1000, -500, -50, 0, 50, 500, 1020])[:, None])
    b = np.ldexp(b, np.array([-60, -10, 0, 1, 3, 10]))
    check(device, a, b)


@pytest.mark.parametrize(
    ("dtype", "scales"),
    [
        ("f8", (-530, -530)),
        ("f8", (-1000, -70)),
        ("f8", (500, 520)),
        ("f8", (-1074, 100)),
        ("f4", (-105, -105)),
        ("f4", (-60, -80)),
    ],
)
def test_subnormal_and_huge_results(device, rng, dtype, scales):
    """Every engine has the bits of NumPy for given counts, whose products are not exact."""
    a, b = (
        np.ldexp(rng.standard_normal(shape), scale + rng.integers(-8, 8, shape)).astype(dtype)
        for shape, scale in zip(((40, 60), (60, 50)), scales, strict=True)
    )
    counts = [("residues", 14), ("digits", 3), ("digits", 7), ("digits7", 7)]
    if device.slow:
        counts = [("residues", 7), ("digits", 3)] if dtype == "f4" else [("residues", 14), ("digits", 7)]
    for scheme, slices in counts:
        expected = ozaki.matmul(a, b, scheme=scheme, slices=slices)
        for engine in device.engines[-1:] if device.slow else device.engines:
            got = device.matmul(a, b, scheme=scheme, slices=slices, engine=engine)
            assert_same(expected, got, scheme, slices, engine)


def test_reports_count_entries_out_of_range(device, rng):
    """Where the bound of a report does not hold, the report says of how many entries."""
    kind = {"scheme": "residues", "accuracy": "fp64", "return_report": True}
    a, b = rng.standard_normal((2, 20, 20))
    assert device.matmul(a, b, **kind)[1].out_of_range == 0
    rows = np.where(np.arange(20) % 4 == 0, 1e-200, 1.0)[:, None]
    rows[1] = 1e200
    rows[2] = np.nan  # whose entries are counted as such
    columns = np.where(np.arange(20) < 7, 1e-150, 1.0)
    columns[19] = 1e200
    c, report = device.matmul(a * rows, b * columns, **kind)
    assert report.out_of_range == 5 * 7 + 1 == (abs(c) < 1e-307).sum() + np.isinf(c).sum()
    assert "36 entries are Inf, or smaller than the normal" in str(report) and report.nonfinite == 1
    by_count = device.matmul(a * rows, b * columns, scheme="residues", slices=14, return_report=True)[1]
    assert by_count.out_of_range is None and "were not looked for" in str(by_count)
    diagonal = np.diag(rows[3:, 0])  # zeros of which all products are zero are exact
    assert device.matmul(diagonal, np.diag(columns[3:]), **kind)[1].out_of_range == 1
    if not device.slow:
        z = (a + 1j * b) * rows[:, ::-1]
        assert device.matmul(z[4:], b * columns, **kind)[1].out_of_range == 4 * 7


def test_no_relative_bound_of_entries_out_of_range(device, rng):
    a, b = rng.standard_normal((2, 20, 20))
    for factor in (1e-160, 1e160):
        kind = {"slices": 14, "scheme": "residues", "return_report": "relative"}
        report = device.matmul(a * factor, b * factor, **kind)[1]
        assert report.out_of_range == 400 and report.relative_bound == np.inf
        assert "no relative error is proven: entries are out of range" in str(report)


def test_native_products_keep_subnormal_operands(device):
    """Products of subnormal and large float32 numbers are normal: kernels that flush the former would return 0."""
    for m, k, n in ((1, 2, 1), (1, 2, 3), (3, 2, 1), (3, 2, 2)):
        a, b = np.full((m, k), 2.0**-130, "f4"), np.full((k, n), 2.0**100, "f4")
        for x, y in ((a, b), (a[0], b), (a, b[:, 0])):
            c, report = device.matmul(x, y, scheme="native", return_report=True)
            assert report.native and report.bound < 1e-6
            assert (c == k * 2.0**-30).all()
