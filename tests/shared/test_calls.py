"""What matmul takes and returns: shapes, dtypes and layouts of any kind, `out`, gemm, prepared operands.

Most operands are small whole numbers, so that every way of multiplying them gives the same exact result.
"""

import copy
import gc
import itertools
import pickle

import numpy as np
import pytest
from cases import assert_same, rounded_sum, same_bits, viewed
from numpy.lib.stride_tricks import as_strided, sliding_window_view
from tiers import some_first

import ozaki

RESIDUES, NATIVE = {"scheme": "residues", "slices": 14}, {"scheme": "native"}
FP64 = {"accuracy": "fp64", "reproducible": True}


def ways(device, *dtypes):
    """Options of `ozaki.matmul`: two given counts, the native product, a plan from data, and the default."""
    counts = (7, 3) if {np.dtype(dtype) for dtype in dtypes} == {np.dtype("f4")} else (14, 7)
    given = [{"scheme": scheme, "slices": count} for scheme, count in zip(("residues", "digits"), counts, strict=True)]
    return [*given, *three_ways(device)[1:], {}]


def three_ways(device):
    """Options of `ozaki.matmul`: a given count, planned without data; the native product; a plan from data.

    A plan from whole numbers may have any small count of slices, and an emulated device builds kernels for each count.
    So on slow devices that plan may be the native product.
    """
    return [RESIDUES, NATIVE, {"accuracy": "fp64"} if device.slow else FP64]


def whole(rng, shape, dtype="f8"):
    return rng.integers(-9, 10, shape).astype(dtype)


# Shapes and dtypes --------------------------------------------------------------------------------------------------


SHAPES = [
    ((3, 4), (4, 5)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((1, 1), (1, 1)),
    ((5, 1), (1, 6)),
    ((1, 9), (9, 1)),
    ((2, 3, 4), (4, 5)),
    ((3, 4), (2, 4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (7, 4, 5)),
    ((2, 3, 4), (4,)),
    ((4,), (2, 4, 5)),
    ((1, 3, 4), (4, 5)),
    ((3, 4), (1, 1, 4, 5)),
    ((6, 1, 3, 4), (6, 1, 4, 1)),
    ((33, 270), (270, 130)),
]
EMPTY = [
    ((0, 4), (4, 5)),
    ((3, 4), (4, 0)),
    ((3, 0), (0, 5)),
    ((0, 0), (0, 0)),
    ((0,), (0,)),
    ((0,), (0, 5)),
    ((3, 0), (0,)),
    ((0, 10000), (10000, 3)),
    ((0, 1), (1, 3)),
    ((0, 3, 4), (4, 5)),
    ((3, 4), (0, 4, 5)),
    ((2, 3, 0), (2, 0, 5)),
    ((0, 3, 4), (0, 4, 5)),
    ((2, 0, 4), (4, 5)),
    ((0, 3, 0), (0, 5)),
    ((1, 3, 4), (0, 4, 5)),
]


@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_shapes(device, rng, left, right):
    for way in device.some(ways(device), 2, rng):
        a, b = whole(rng, left), whole(rng, right)
        expected = np.matmul(a, b)
        c = ozaki.matmul(device.asarray(a), device.asarray(b), **way)
        assert type(c) is device.kind(expected), way
        assert_same(expected + 0.0, device.asnumpy(c) + 0.0, way)  # cuBLAS chooses the sign of a native zero


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("left", "right"), EMPTY)
def test_empty_shapes(device, rng, left, right, dtype):
    """Empty products are +0 by every kind of plan, into `out` too, and of prepared operands."""
    a, b = device.full(left, 1, dtype), device.full(right, 1, dtype)
    expected = np.matmul(np.ones(left, dtype), np.ones(right, dtype))
    accuracies = [{"accuracy": x} for x in ("fp32", ozaki.Accuracy("row-column", 2.0**-35))]
    if not device.slow:  # so many slices take kernels that have to be built
        accuracies += [{"accuracy": 200}, {"accuracy": 200, "scheme": "digits"}, {"scheme": "digits", "slices": 3}]
    for way in device.some([*ways(device, dtype), *accuracies], 4, rng):
        out = device.full(np.shape(expected), np.nan, dtype)
        c, report = ozaki.matmul(a, b, return_report=True, **way)
        assert type(c) is device.kind(expected), way
        assert report.bound <= 1
        plan = ozaki.plan(a, b, **way)
        assert ozaki.matmul(a, b, out=out, **way) is out
        for got in (c, out, ozaki.matmul(a, b, **way), ozaki.matmul(a, b, plan=plan)):
            assert_same(expected, device.asnumpy(got), way)
    if len(left) == len(right) == 2:
        for scheme in ("residues", "digits"):
            plan = ozaki.plan(left, right, dtype=dtype, scheme=scheme, slices=7)
            x, y = ozaki.prepare(a, "left", plan), ozaki.prepare(b, "right", plan)
            assert_same(expected, device.asnumpy(ozaki.matmul(x, y, plan=plan)), scheme)


@pytest.mark.parametrize(("left", "right"), EMPTY)
def test_plans_of_empty_shapes(device, left, right):
    plan = ozaki.plan(left, right, dtype="float64", scheme="residues", slices=10)
    c = ozaki.matmul(device.full(left, 1), device.full(right, 1), plan=plan)
    assert c.shape == np.shape(np.matmul(np.ones(left), np.ones(right)))


@pytest.mark.parametrize("axes", [32, 33, 62])
def test_stacks_of_many_axes(device, rng, axes):
    """Stacks of as many axes as an array may have, twice what NumPy's own functions for shapes take."""
    ones = (1,) * (axes - 1)
    left, right = (2, *ones, 3, 4), (*ones, 3, 4, 5)
    shapes = [(left, right), (left, (4, 5)), ((4,), right), (left, (4,)), ((3, 4), right)]
    for x, y in device.some([*shapes, (left, (0, 4, 5)), ((3, 0), (*ones, 0, 5))], 4, rng):
        a, b = whole(rng, x), whole(rng, y)
        expected = np.matmul(a, b)
        left_there, right_there = device.asarray(a), device.asarray(b)
        for way in device.some(ways(device), 1, rng):
            out = device.full(expected.shape, np.nan)
            c, report = ozaki.matmul(left_there, right_there, return_report=True, **way)
            assert report.bound < 1
            assert ozaki.matmul(left_there, right_there, out=out, **way) is out
            for got in (c, out):
                assert_same(expected, device.asnumpy(got), way)
        total = ozaki.gemm(2.0, left_there, right_there, -1.0, device.asarray(expected))
        assert_same(expected, device.asnumpy(total))
    a, b = whole(rng, left), whole(rng, right)
    plan = ozaki.plan(left, right, dtype="float64", **RESIDUES)
    prepared = ozaki.prepare(device.asarray(a), "left", plan), ozaki.prepare(device.asarray(b), "right", plan)
    assert_same(np.matmul(a, b), device.asnumpy(ozaki.matmul(*prepared, plan=plan)))
    with pytest.raises(ValueError, match=r"^b: batch .* does not broadcast"):
        device.matmul(a, np.ones((3, *ones, 4, 5)))


@pytest.mark.parametrize(("left", "right"), list(itertools.product(["float32", "float64"], repeat=2)))
def test_dtypes_promote(device, rng, left, right):
    a, b = whole(rng, (6, 7), left), whole(rng, (7, 5), right)
    for way in device.some(ways(device, left, right), 3, rng):
        assert_same(np.matmul(a, b, dtype=np.result_type(left, right)), device.matmul(a, b, **way), way)


def test_any_strides(device, rng):
    for _ in range(device.size(40, 4)):
        m, k, n = (int(v) for v in rng.integers(1, 20, 3))
        dtype = str(rng.choice(["float32", "float64"]))
        a, b = whole(rng, (m, k), dtype), whole(rng, (k, n), dtype)
        left, right = device.asarray(viewed(rng, a)), device.asarray(viewed(rng, b))
        for way in device.some(ways(device, dtype), 2, rng):
            c = ozaki.matmul(left, right, **way)
            # cuBLAS chooses the sign of a native zero
            assert_same(a @ b + 0.0, device.asnumpy(c) + 0.0, left.strides, right.strides, way)
        assert_same(a, device.asnumpy(left))
        assert_same(b, device.asnumpy(right))


def test_operands_whose_elements_share_memory(device, rng):
    """Broadcast rows and overlapping windows, copied from NumPy or made on the device."""
    row, line = whole(rng, 9), whole(rng, 17)
    a, hankel = np.broadcast_to(row, (4, 9)), sliding_window_view(line, 9)
    broadcast = device.xp.broadcast_to(device.asarray(row), (4, 9))
    for way in ways(device):
        assert_same(a @ hankel.T, device.matmul(a, hankel.T, **way), way)
        assert_same(hankel @ hankel, device.matmul(hankel, hankel, **way), way)
        assert_same(a @ hankel.T, device.asnumpy(ozaki.matmul(broadcast, device.asarray(hankel.T), **way)), way)


def test_two_views_of_one_array(device, rng):
    """A square, a product with its own transpose, and one of two parts; each computed twice."""
    x = whole(rng, (40, 40))
    y = device.asarray(x)
    pairs = [
        lambda z: (z, z),
        lambda z: (z, z.T),
        lambda z: (z[:20, :30], z[10:, ::-1]),
        lambda z: (z[20:, 5:], z[:35, :7]),
    ]
    for way in three_ways(device):
        for views in device.some(pairs, 2, rng):
            expected = np.matmul(*views(x))
            for _ in range(2):
                assert_same(expected, device.asnumpy(ozaki.matmul(*views(y), **way)), way)


def test_nothing_of_a_product_is_kept_until_the_collector_runs(device, rng):
    """What holds its memory is in no circle of references."""
    x, y = device.asarray(rng.standard_normal((20, 30))), device.asarray(rng.standard_normal((30, 10)))

    def held():
        return [type(each) for each in gc.get_objects() if str(type(each).__module__).startswith("ozaki.back")]

    ozaki.matmul(x, y, return_report=True, **FP64)  # what is made once for all products
    gc.collect()
    gc.disable()
    try:
        before = held()
        ozaki.matmul(x, y, return_report=True, **FP64)
        assert {each.__name__ for each in held()} == {each.__name__ for each in before}
    finally:
        gc.enable()


def test_inputs_are_never_modified(device, rng):
    a, b = rng.standard_normal((20, 30)), rng.standard_normal((30, 10))
    a[2, 3], b[4, 5] = np.nan, np.inf
    before = a.copy(), b.copy()
    a.flags.writeable = b.flags.writeable = False
    x, y = device.asarray(a), device.asarray(b)
    for way in ({"accuracy": "fp64" if device.slow else 1e-3}, {"scheme": "digits", "slices": 7}, RESIDUES):
        plan = ozaki.plan(x, y, **way)
        ozaki.matmul(x, y, return_report=True, **way)
        if not plan.native:
            ozaki.matmul(ozaki.prepare(x, "left", plan), y, plan=plan)
    assert same_bits(device.asnumpy(x), before[0])
    assert same_bits(device.asnumpy(y), before[1])


# out ----------------------------------------------------------------------------------------------------------------


OUTS = {
    "contiguous": lambda full: full((8, 7)),
    "transposed": lambda full: full((7, 8)).T,
    "with gaps": lambda full: full((16, 21))[::2, ::3],
    "reversed": lambda full: full((8, 7))[::-1, ::-1],
}


@pytest.mark.parametrize("kind", OUTS)
def test_out(device, rng, kind):
    a, b = whole(rng, (8, 6)), whole(rng, (6, 7))
    left, right = device.asarray(a), device.asarray(b)
    for way in device.some(ways(device), 3, rng):
        outs = [OUTS[kind](lambda shape: device.full(shape, np.nan)) for _ in range(3)]
        c, _ = ozaki.matmul(left, right, out=outs[0], return_report=True, **way)
        assert c is outs[0]
        assert ozaki.matmul(left, right, outs[1], **way) is outs[1]
        assert ozaki.matmul(left, right, out=(outs[2],), **way) is outs[2]
        for out in outs:
            assert_same(a @ b, device.asnumpy(out), way)


def test_out_leaves_the_gaps_alone(device, rng):
    a, b = whole(rng, (4, 6)), whole(rng, (6, 5))
    for way in ways(device):
        wide = device.full((8, 15), np.nan)
        ozaki.matmul(device.asarray(a), device.asarray(b), out=wide[::2, ::3], **way)
        got = device.asnumpy(wide)
        assert_same(a @ b, got[::2, ::3], way)
        assert np.isnan(got).sum() == 8 * 15 - 4 * 5


def test_out_may_overlap_an_input(device, rng):
    views = [lambda x: x, lambda x: x.T, lambda x: x[::-1], lambda x: x[:, ::-1]]
    for way in device.some(ways(device), 3, rng):
        for make in device.some(views, 2, rng):
            a, b = whole(rng, (9, 9)), whole(rng, (9, 9))
            for left in (True, False):
                x, y = device.asarray(a.copy()), device.asarray(b)
                out = make(x)
                got = ozaki.matmul(x, y, out=out, **way) if left else ozaki.matmul(y, x, out=out, **way)
                assert got is out
                assert_same(a @ b if left else b @ a, device.asnumpy(out), way, left)
        square = device.asarray(a.copy())
        ozaki.matmul(square, square, out=square, **way)
        assert_same(a @ a, device.asnumpy(square), way)


def test_out_may_overlap_what_was_prepared(device, rng):
    a, b = rng.standard_normal((9, 9)), rng.standard_normal((9, 9))
    x, y = device.asarray(a.copy()), device.asarray(b)
    plan = ozaki.plan(x, y, **FP64)
    expected, report = ozaki.matmul(x, y, plan=plan, return_report=True)
    c, other = ozaki.matmul(ozaki.prepare(x, "left", plan), y, plan=plan, out=x, return_report=True)
    assert c is x
    assert_same(device.asnumpy(expected), device.asnumpy(c))
    assert other.bound == report.bound


def test_out_whose_elements_share_memory_is_refused(device):
    out = device.asarray(as_strided(np.zeros(7), (4, 4), (8, 8)))
    with pytest.raises(ValueError, match=r"^out: elements share their memory"):
        ozaki.matmul(device.full((4, 4), 1), device.full((4, 4), 1), out=out)


def test_vectors(device, rng):
    """Products of two vectors have the type that NumPy or CuPy gives them; repeated, into `out` and by gemm too."""
    for way, k in device.some(itertools.product(three_ways(device), (0, 1, 70)), 3, rng):
        x, y = whole(rng, k), whole(rng, k)
        a, b, expected = device.asarray(x), device.asarray(y), x @ y
        for _ in range(3):
            got = ozaki.matmul(a, b, **way)
            assert type(got) is device.kind(expected)
            assert_same(expected, device.asnumpy(got), way, k)
            given = [device.full((), np.nan) for _ in range(3)]
            assert ozaki.matmul(a, b, given[0], **way) is given[0]
            assert ozaki.matmul(a, b, out=(given[1],), **way) is given[1]
            assert ozaki.gemm(2.0, a, b, 0.0, None, out=given[2], **way) is given[2]
            for out, factor in zip(given, (1, 1, 2), strict=True):
                assert_same(factor * expected, device.asnumpy(out), way, k)


def test_stacks_into_out(device, rng):
    a, b = whole(rng, (3, 4, 6)), whole(rng, (6, 5))
    for way in ways(device):
        out = (
            device.full((5, 4, 3), np.nan).T.swapaxes(1, 2)
            if "digits" in way.values()
            else device.full((3, 4, 5), np.nan)
        )
        out = out.swapaxes(1, 2) if "digits" in way.values() else out
        assert ozaki.matmul(device.asarray(a), device.asarray(b), out=out, **way) is out
        assert_same(a @ b, device.asnumpy(out), way)


# gemm ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("trans_a", "trans_b"), list(itertools.product([False, True], repeat=2)))
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gemm(device, rng, trans_a, trans_b, dtype):
    a, b = whole(rng, (5, 8), dtype), whole(rng, (8, 6), dtype)
    c = rng.standard_normal((5, 6)).astype(dtype)
    left, right = (device.asarray(x.T.copy() if turned else x) for x, turned in ((a, trans_a), (b, trans_b)))
    addend = device.asarray(c)
    for alpha, beta in ((1, 0), (1.5, -2), (0.25, 1), (-1, 1 / 3), (1, 1)):
        options = {"trans_a": trans_a, "trans_b": trans_b, "scheme": "residues", "slices": 7}
        d = ozaki.gemm(alpha, left, right, beta, addend, **options)
        assert_same(rounded_sum(alpha, a @ b, beta, c), device.asnumpy(d), alpha, beta)
        assert_same(c, device.asnumpy(addend))


def test_gemm_reads_only_what_counts(device, rng):
    a, b, c = whole(rng, (4, 5)), whole(rng, (5, 3)), rng.standard_normal((4, 3))
    x, y, addend, nan = device.asarray(a), device.asarray(b), device.asarray(c), device.full((4, 3), np.nan)
    no_numbers = device.full((4, 5), np.nan)
    plan = ozaki.plan(x, y, **FP64)
    for expected, got in (
        (2 * (a @ b), ozaki.gemm(2.0, x, y, 0.0, nan)),
        (2 * (a @ b), ozaki.gemm(2.0, x, y, 0.0, None)),
        (3.0 * c, ozaki.gemm(0.0, no_numbers, y, 3.0, addend)),
        (np.zeros((4, 3)), ozaki.gemm(0.0, device.full((4, 5), np.inf), y, 0.0, nan)),
        (3.0 * c, ozaki.gemm(1.0, x[:, :0], y[:0], 3.0, addend)),
        (np.full((4, 3), np.nan), ozaki.gemm(1.0, x, y, 1.0, nan)),
        (3.0 * c, ozaki.gemm(0.0, no_numbers, y, 3.0, addend, plan=plan)),
    ):
        assert_same(expected, device.asnumpy(got))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gemm_of_vectors(device, rng, dtype):
    """gemm of two vectors returns what matmul does, whatever kind of scalar is added; `out` is an array."""
    a, b = whole(rng, 6, dtype), whole(rng, 6, dtype)
    x, y, kind = device.asarray(a), device.asarray(b), np.dtype(dtype).type
    addends = [np.array(3, dtype), np.array(3, "f4")] + ([kind(3), np.float32(3)] if device.xp is np else [])
    for way in device.some(ways(device, dtype), 3, rng):
        for c, (alpha, beta) in device.some(
            itertools.product(addends, ((1, 0), (2, 0), (0, 0), (1, 1), (-2, 0.5), (0, 2))), 2, rng
        ):
            c = device.asarray(c) if isinstance(c, np.ndarray) else c
            expected = kind(alpha * (a @ b) + beta * 3)
            d, report = ozaki.gemm(alpha, x, y, beta, c, return_report=True, **way)
            assert type(d) is device.kind(expected)
            assert report.bound < 1
            out = device.full((), np.nan, dtype)
            assert ozaki.gemm(alpha, x, y, beta, c, out=out, **way) is out
            for got in (d, out):
                assert_same(expected, device.asnumpy(got), alpha, beta, way)
    matrix, ones = device.asarray(np.diag(a)), device.full(6, 1, dtype)
    for way in three_ways(device):
        assert_same(2 * a * b + 1, device.asnumpy(ozaki.gemm(2, matrix, y, 1, ones, **way)))
        assert_same(2 * b * a + 1, device.asnumpy(ozaki.gemm(2, y, matrix, 1, ones, **way)))


def test_gemm_into_out(device, rng):
    a, b, c = whole(rng, (6, 6)), whole(rng, (6, 6)), rng.standard_normal((6, 6))
    x, y, addend = (device.asarray(v.copy()) for v in (a, b, c))
    expected = 1.5 * (a @ b) + 0.5 * c
    for way in three_ways(device):
        addend = device.asarray(c.copy())
        for out in (device.full((6, 6), np.nan), device.full((6, 12), np.nan)[:, ::2], addend):
            assert ozaki.gemm(1.5, x, y, 0.5, addend, out=out, **way) is out
            assert_same(expected, device.asnumpy(out), way)
    d, report = ozaki.gemm(1.5, x, y, 0.0, None, accuracy="fp64", scheme="residues", out=x, return_report=True)
    assert d is x and report.scheme == "residues"
    assert_same(1.5 * (a @ b), device.asnumpy(x))


def test_gemm_of_mixed_dtypes(device, rng):
    a, b, c = whole(rng, (3, 3), "f4"), whole(rng, (3, 3), "f8"), rng.standard_normal((3, 3)).astype("f4")
    d = ozaki.gemm(1.0, device.asarray(a), device.asarray(b), 2.0, device.asarray(c))
    assert_same(a @ b + c.astype(float) * 2.0, device.asnumpy(d))


@pytest.mark.parametrize(("dtype", "addend"), [("f4", "f4"), ("f8", "f8"), ("f8", "f4")])
@pytest.mark.parametrize("shape", [(5, 9), (2, 3, 2, 2100), (5000,), (), (4, 0)], ids=str)
def test_sums_of_gemm(device, rng, shape, dtype, addend):
    """alpha x + beta y for addends y of any layout, subnormals too; `out` is the addend, overlaps it, or does neither.

    The native product of a 1 x 1 one and a row is that row, so the product is x, whatever its shape.
    """
    n = shape[-1] if shape else 0
    x, kind = rng.standard_normal(shape).astype(dtype), np.dtype(dtype).type
    left = device.full((*shape[:-1], 1, 1) if len(shape) > 1 else (1,), 1, dtype)
    right = device.asarray(x[..., None, :] if shape else x[None])
    far = np.ldexp(1.0, -140 if dtype == "f4" else -1060)

    def of_product(y):
        """y in the shape of the product: with an axis of length one before the last, if y has more than one axis."""
        return y[..., None, :] if len(shape) > 1 else y

    for alpha, beta in ((-1.5, 0), (1, 1), (1 / 3, -0.7), (far, 0), (far, far)):
        for width, part in ((n, slice(None)), (2 * n + 1, slice(1, None, 2)), (2 * n, slice(None, n - 1, -1))):
            values = np.array(rng.standard_normal((*shape[:-1], width)[-len(shape) or 2 :]), addend)
            outs = ["none", "apart", "with gaps"]
            if addend == dtype:
                outs += (
                    ["the addend", "its first half", "its second half"] if width > 2 * n and shape else ["the addend"]
                )
            for where in outs:
                on_device = device.asarray(values.copy())
                y = of_product(on_device[(..., part) if shape else ...])
                out = {
                    "none": None,
                    "apart": of_product(device.full(shape, np.nan, dtype)),
                    "with gaps": of_product(device.full((*shape, 2), np.nan, dtype)[..., 0]),
                    "the addend": y,
                    "its first half": of_product(on_device[..., :n]) if shape else None,
                    "its second half": of_product(on_device[..., n + 1 :]) if shape else None,
                }[where]
                before = device.asnumpy(y).copy()
                expected = x.reshape(before.shape) * kind(alpha)
                expected = expected + before * kind(beta) if beta else expected
                got = ozaki.gemm(alpha, left, right, beta, y if beta else None, out=out, scheme="native")
                assert out is None or got is out
                assert_same(expected.astype(dtype), device.asnumpy(got), alpha, beta, where, part)


@pytest.mark.parametrize("dtype", some_first(1, ["f8", "f4"]))
def test_gemm_of_all_kinds(device, rng, dtype):
    """gemm has NumPy's bits for any sizes and factors, NaN and Inf; into the addend, overlapping it, and elsewhere."""
    far = 2.0**-140 if dtype == "f4" else 2.0**-1060
    sizes = device.size(((300, 500, 260), (1, 70, 1), (1, 70, 5000), (5000, 70, 1), (37, 70, 4099)), ((37, 70, 130),))
    factors = ((1, 0), (-1.5, 0), (0, 2), (1 / 3, -0.7), (far, far))
    options = {"scheme": "residues", "slices": 14 if dtype == "f8" else 7}
    for (m, k, n), i in itertools.product(sizes, rng.choice(len(factors), 2, replace=False)):
        alpha, beta = factors[i]
        a, b, wide = (rng.standard_normal(shape).astype(dtype) for shape in ((m, k), (k, n), (m, 2 * n + 1)))
        a[0, 0], b[-1, 0], wide[0, ::3] = np.inf, np.nan, np.inf
        left, right = device.asarray(a), device.asarray(b)
        for where in ("none", "apart", "the addend", "its first half", "its second half", "of float32"):
            on_device = device.asarray(wide.astype("f4") if where == "of float32" else wide.copy())
            y = on_device[:, 1::2]
            expected = ozaki.gemm(alpha, a, b, beta, device.asnumpy(y).copy(), **options)
            apart = device.full((m, 2 * n), np.nan, dtype)[:, ::2]
            halves = {"its first half": on_device[:, :n], "its second half": on_device[:, n + 1 :]}
            out = {"apart": apart, "the addend": y, **halves}.get(where)
            got = ozaki.gemm(alpha, left, right, beta, y, out=out, **options)
            assert out is None or got is out
            assert_same(expected, device.asnumpy(got), alpha, beta, where)


# Prepared operands --------------------------------------------------------------------------------------------------


def test_copies_of_what_is_prepared(device):
    """A prepared operand is its own copy, and cannot be pickled; its plan can."""
    x = device.asarray(np.eye(4))
    left = ozaki.prepare(x, "left", ozaki.plan((4, 4), (4, 4), dtype="float64", **RESIDUES))
    assert copy.copy(left) is left and copy.deepcopy(left) is left
    with pytest.raises(TypeError, match=r"pickle the operand and `prepared\.plan`"):
        pickle.dumps(left)
    other = ozaki.prepare(x, "left", pickle.loads(pickle.dumps(left.plan)))
    assert_same(np.eye(4), device.asnumpy(ozaki.matmul(other, x, plan=left.plan)))


STACKS = [
    ((3,), (3,)),
    ((3,), ()),
    ((), (3,)),
    ((1,), (3,)),
    ((3,), (1,)),
    ((2, 3), (3,)),
    ((2, 1), (1, 3)),
    ((1, 1), ()),
    ((2, 3), (2, 1)),
    ((2, 1, 3), (4, 3)),
    ((5, 2, 1, 3), (2, 4, 1)),
]


@pytest.mark.parametrize(("left", "right"), STACKS)
def test_prepared_stacks(device, rng, left, right):
    left, right = left[-device.size(4, 2) :], right[-device.size(4, 2) :]
    a, b = rng.standard_normal((*left, 5, 40)), rng.standard_normal((*right, 40, 6))
    x, y = device.asarray(viewed(rng, a)), device.asarray(viewed(rng, b))
    for options in device.some(ways(device)[:2], 1, rng):
        expected, plan = ozaki.matmul(a, b, **options), ozaki.plan(x, y, **options)
        first, second = ozaki.prepare(x, "left", plan), ozaki.prepare(y, "right", plan)
        for pair in device.some(((first, y), (x, second), (first, second), (first, second)), 2, rng):
            assert_same(expected, device.asnumpy(ozaki.matmul(*pair, plan=plan)), plan)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("options", [RESIDUES, {"scheme": "digits", "slices": 7}], ids=str)
def test_prepared_stacks_keep_to_their_batch(device, rng, side, options):
    """A prepared stack is refused if the batch has its matrices in another order; a prepared matrix fits any batch."""
    x = whole(rng, (2, 1, 4, 4))
    others = [whole(rng, (*batch, 4, 4)) for batch in ((3,), (3, 1, 1), (1, 3), (2, 3))]

    def pair(x, other):
        return (x, other) if side == "left" else (other, x)

    there = [device.asarray(other) for other in others]
    plans = [ozaki.plan(*pair(device.asarray(x), other), **options) for other in there]
    assert [plan.batch for plan in plans] == [(2, 3), (3, 2, 1), (2, 3), (2, 3)]
    prepared = ozaki.prepare(device.asarray(x), side, plans[0])
    for other, on_device, plan in zip(others, there, plans, strict=True):
        if plan.batch == (2, 3):
            c = ozaki.matmul(*pair(prepared, on_device), plan=plan)
            assert_same(np.matmul(*pair(x, other)), device.asnumpy(c))
        else:
            with pytest.raises(ValueError, match=f"{'a' if side == 'left' else 'b'}: prepared for another plan"):
                ozaki.matmul(*pair(prepared, on_device), plan=plan)
    one, other = ozaki.prepare(device.asarray(x[0, 0]), side, plans[0]), whole(rng, (3, 2, 1, 4, 4))
    c = ozaki.matmul(*pair(one, device.asarray(other)), plan=plans[1])
    assert_same(np.matmul(*pair(x[0, 0], other)), device.asnumpy(c))


def test_a_prepared_operand_serves_many_products(device, rng):
    a = rng.standard_normal((20, 60))
    plan = ozaki.plan(a.shape, (60, 10), dtype="float64", **RESIDUES)
    left = ozaki.prepare(device.asarray(a), "left", plan)
    for _ in range(5):
        b = rng.standard_normal((60, 10))
        c = ozaki.matmul(left, device.asarray(b), plan=plan)
        assert_same(ozaki.matmul(a, b, **RESIDUES), device.asnumpy(c))
