"""matmul and gemm as the array API and BLAS have them; NaN, Inf, overflow, underflow, zeros."""

import itertools
import tracemalloc
import warnings
from fractions import Fraction

import numpy as np
import pytest
from cases import first_difference, power, rounded, same_bits, spread, viewed

import ozaki
from ozaki import reference
from ozaki.backends.numpy import _nonfinite as _numpy_nonfinite
from ozaki.schemes import blas

WAYS = [
    {"accuracy": 200, "scheme": "residues"},
    {"accuracy": 200, "scheme": "digits", "engine": "int8"},
    {"scheme": "native"},
    {},
]
EXACT = WAYS[:2]
"""So many bits that data of a narrow range is multiplied exactly: results are rounded once."""


def rounded_product(a, b):
    """The exact product, rounded once."""
    integers, exponent = reference.exact_matmul(a, b)
    dtype = np.result_type(a, b)
    c = np.empty(integers.shape, dtype)
    for at in np.ndindex(c.shape):
        c[at] = rounded(int(integers[at]) * power(exponent), dtype)
    return c


def check(x, y, *about):
    assert same_bits(np.ascontiguousarray(x), np.ascontiguousarray(y)), (first_difference(x, y), *about)


# Shapes and dtypes --------------------------------------------------------------------------------------------------


SHAPES = [
    ((3, 4), (4, 5)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((4,), (4,)),
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
]
EMPTY = [
    ((0, 4), (4, 5)),
    ((3, 4), (4, 0)),
    ((3, 0), (0, 5)),
    ((0, 0), (0, 0)),
    ((0,), (0,)),
    ((0,), (0, 5)),
    ((3, 0), (0,)),
    ((0, 3, 4), (4, 5)),
    ((3, 4), (0, 4, 5)),
    ((2, 3, 0), (2, 0, 5)),
    ((0, 3, 4), (0, 4, 5)),
    ((2, 0, 4), (4, 5)),
    ((0, 3, 0), (0, 5)),
    ((1, 3, 4), (0, 4, 5)),
]


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_shapes(rng, left, right, way):
    a, b = rng.standard_normal(left), rng.standard_normal(right)
    c = ozaki.matmul(a, b, **way)
    expected = np.matmul(a, b)
    assert type(c) is type(expected)
    assert c.shape == np.shape(expected)
    assert c.dtype == np.float64
    assert np.allclose(c, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "way", [*WAYS, {"scheme": "residues", "slices": 14}, {"scheme": "digits", "slices": 3}], ids=str
)
@pytest.mark.parametrize(("left", "right"), EMPTY)
def test_empty_shapes(left, right, way):
    a, b = np.ones(left, np.float32), np.ones(right, np.float32)
    expected = np.matmul(a, b)
    out = np.full(np.shape(expected), np.nan, np.float32)
    assert type(ozaki.matmul(a, b, **way)) is type(expected)
    for c in (ozaki.matmul(a, b, **way), ozaki.matmul(a, b, out=out, **way)):
        assert c.shape == np.shape(expected)
        assert not c.any()
        assert not np.signbit(c).any()
    _, report = ozaki.matmul(a, b, return_report=True, **way)
    assert report.bound <= 1
    plan = ozaki.plan(a, b, **way)
    assert ozaki.matmul(a, b, plan=plan).shape == np.shape(expected)


@pytest.mark.parametrize(("left", "right"), EMPTY)
def test_plans_of_empty_shapes(left, right):
    plan = ozaki.plan(left, right, dtype="float64", scheme="residues", slices=10)
    assert ozaki.matmul(np.ones(left), np.ones(right), plan=plan).shape == np.shape(
        np.matmul(np.ones(left), np.ones(right))
    )


@pytest.mark.parametrize("axes", [32, 33, 62])
def test_batches_of_as_many_axes_as_numpy_has(rng, axes):
    ones = (1,) * (axes - 1)
    left, right = (2, *ones, 3, 4), (*ones, 3, 4, 5)
    for shapes in (
        (left, right),
        (left, (4, 5)),
        ((4,), right),
        (left, (4,)),
        (left, (0, 4, 5)),
        ((3, 0), (*ones, 0, 5)),
    ):
        a, b = (rng.integers(-9, 10, shape).astype(float) for shape in shapes)
        expected = np.matmul(a, b)
        for way in WAYS:
            check(ozaki.matmul(a, b, **way), expected)
            check(ozaki.matmul(a, b, out=np.full(expected.shape, np.nan), **way), expected)
        check(ozaki.gemm(2.0, a, b, -1.0, expected), expected)
    a, b = rng.integers(-9, 10, left).astype(float), rng.integers(-9, 10, right).astype(float)
    plan = ozaki.plan(left, right, dtype="float64", scheme="residues", slices=14)
    check(ozaki.matmul(ozaki.prepare(a, "left", plan), ozaki.prepare(b, "right", plan), plan=plan), np.matmul(a, b))
    with pytest.raises(ValueError, match=r"^b: batch .* does not broadcast"):
        ozaki.matmul(a, np.ones((3, *ones, 4, 5)))


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize(("left", "right"), list(itertools.product(["float32", "float64"], repeat=2)))
def test_dtypes_promote(rng, left, right, way):
    a, b = rng.standard_normal((6, 7)).astype(left), rng.standard_normal((7, 5)).astype(right)
    c = ozaki.matmul(a, b, **way)
    assert c.dtype == np.result_type(left, right)
    if way in EXACT:
        check(c, rounded_product(a, b))


@pytest.mark.parametrize("way", EXACT, ids=str)
def test_any_strides(rng, way):
    for _ in range(20):
        m, k, n = (int(v) for v in rng.integers(1, 20, 3))
        dtype = str(rng.choice(["float32", "float64"]))
        a, b = spread(rng, (m, k), 5, dtype), spread(rng, (k, n), 5, dtype)
        left, right = viewed(rng, a), viewed(rng, b)
        check(ozaki.matmul(left, right, **way), rounded_product(a, b), left.strides, right.strides)
        assert same_bits(np.ascontiguousarray(left), a)
        assert same_bits(np.ascontiguousarray(right), b)


@pytest.mark.parametrize("way", EXACT, ids=str)
def test_broadcast_and_overlapping_operands(rng, way):
    row = rng.standard_normal(9)
    a = np.broadcast_to(row, (4, 9))
    hankel = np.lib.stride_tricks.sliding_window_view(rng.standard_normal(17), 9)
    check(ozaki.matmul(a, hankel.T, **way), rounded_product(a, hankel.T))
    check(ozaki.matmul(hankel, hankel, **way), rounded_product(hankel, hankel))


@pytest.mark.parametrize("way", EXACT, ids=str)
def test_results_are_rounded_once(rng, way):
    for dtype in ("float32", "float64"):
        a, b = spread(rng, (11, 40), 20, dtype), spread(rng, (40, 9), 20, dtype)
        check(ozaki.matmul(a, b, **way), rounded_product(a, b))


def test_a_hard_rounding_to_float32():
    """Next to ties: through float64 in between, these would round twice."""
    a = np.array([[1.0, 2.0**-24, 2.0**-60], [1.0, 2.0**-24, -(2.0**-60)], [1.0, 2.0**-24, 0.0]], np.float32)
    b = np.array([[1.0], [1.0], [1.0]], np.float32)
    c = ozaki.matmul(a, b, accuracy=100, reproducible=True)
    assert c.ravel().tolist() == [1 + 2.0**-23, 1.0, 1.0]


def test_sequences_of_floats_are_arrays():
    assert ozaki.matmul([[1.0, 2.0]], [[3.0], [4.0]]).tolist() == [[11.0]]
    assert ozaki.matmul([np.ma.array([1.0, 2.0])], ([3.0], np.ma.array([4.0]))).tolist() == [[11.0]]  # none masked


def test_masks_are_not_looked_for_among_numbers():
    """Of which a list may have millions."""

    class Row(list):
        def __iter__(self):
            passes.append(self)
            return super().__iter__()

    passes: list[Row] = []
    np.asarray(rows := [Row([1.0, 2.0]), Row([3.0, 4.0])])
    of_numpy = len(passes)
    assert ozaki.matmul(rows, [[1.0], [1.0]]).tolist() == [[3.0], [7.0]]
    assert len(passes) == 2 * of_numpy


def test_inputs_are_never_modified(rng):
    a, b = spread(rng, (20, 30), 40), spread(rng, (30, 10), 40)
    a[2, 3], b[4, 5] = np.nan, np.inf
    before = a.copy(), b.copy()
    a.flags.writeable = b.flags.writeable = False
    for way in ({"accuracy": 1e-3}, {"scheme": "digits", "slices": 5}, {"scheme": "residues", "slices": 14}):
        plan = ozaki.plan(a, b, **way)
        ozaki.matmul(a, b, return_report=True, **way)
        ozaki.matmul(ozaki.prepare(a, "left", plan), b, plan=plan) if not plan.native else None
    assert same_bits(a, before[0])
    assert same_bits(b, before[1])


# out ----------------------------------------------------------------------------------------------------------------


OUTS = {
    "contiguous": lambda shape: np.full(shape, np.nan),
    "transposed": lambda shape: np.full(shape[::-1], np.nan).T,
    "with gaps": lambda shape: np.full((2 * shape[0], 3 * shape[1]), np.nan)[::2, ::3],
    "reversed": lambda shape: np.full(shape, np.nan)[::-1, ::-1],
}


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("kind", OUTS)
def test_out(rng, kind, way):
    a, b = rng.standard_normal((8, 6)), rng.standard_normal((6, 7))
    expected = ozaki.matmul(a, b, **way)
    out = OUTS[kind]((8, 7))
    c, _ = ozaki.matmul(a, b, out=out, return_report=True, **way)
    assert c is out
    check(out, expected)
    out = OUTS[kind]((8, 7))
    assert ozaki.matmul(a, b, out, **way) is out
    check(out, expected)
    out = OUTS[kind]((8, 7))
    assert ozaki.matmul(a, b, out=(out,), **way) is out
    check(out, expected)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_out_leaves_the_gaps_alone(rng, way):
    a, b = rng.standard_normal((4, 6)), rng.standard_normal((6, 5))
    whole = np.full((8, 15), np.nan)
    ozaki.matmul(a, b, out=whole[::2, ::3], **way)
    assert np.isnan(whole).sum() == 8 * 15 - 4 * 5


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_out_may_overlap_an_input(rng, way):
    for make in (lambda x: x, lambda x: x.T, lambda x: x[::-1], lambda x: x[:, ::-1]):
        a, b = rng.standard_normal((9, 9)), rng.standard_normal((9, 9))
        expected = ozaki.matmul(a.copy(), b, **way)
        check(ozaki.matmul(a, b, out=make(a), **way), expected)
        a = rng.standard_normal((9, 9))
        expected = ozaki.matmul(b.copy(), a, **way)
        ozaki.matmul(b, a, out=make(b), **way)
        check(make(b), expected)
    square = rng.standard_normal((9, 9))
    expected = ozaki.matmul(square.copy(), square.copy(), **way)
    check(ozaki.matmul(square, square, out=square, **way), expected)


def test_out_may_overlap_what_was_prepared(rng):
    a, b = rng.standard_normal((9, 9)), rng.standard_normal((9, 9))
    plan = ozaki.plan(a, b, accuracy="fp64", reproducible=True)
    expected, bound = ozaki.matmul(a, b, plan=plan), ozaki.matmul(a, b, plan=plan, return_report=True)[1].bound
    c, report = ozaki.matmul(ozaki.prepare(a, "left", plan), b, plan=plan, out=a, return_report=True)
    check(c, expected)
    assert report.bound == bound


def test_out_of_vectors_and_batches(rng):
    a, b = rng.standard_normal(6), rng.standard_normal(6)
    out = np.full((), np.nan)
    assert ozaki.matmul(a, b, accuracy="dd", out=out) is out
    check(out, rounded_product(a[None], b[:, None])[0, 0][()].reshape(()))
    a, b, out = rng.standard_normal((3, 4, 6)), rng.standard_normal((6, 5)), np.full((3, 4, 5), np.nan)
    ozaki.matmul(a, b, accuracy="dd", reproducible=True, out=out)
    for i in range(3):
        check(out[i], rounded_product(a[i], b))


@pytest.mark.parametrize("scheme", ["auto", "digits", "native"])
def test_no_warnings_whatever_the_caller_asks_of_numpy(scheme):
    """Overflow, underflow and NaN are what IEEE arithmetic gives, and no occasion for NumPy's warnings or errors."""
    rng = np.random.default_rng(3)
    x = np.ldexp(rng.standard_normal((5, 5)), np.arange(25).reshape(5, 5) * 80 - 1000)
    y = np.where(np.eye(5) > 0, np.inf, x)
    with np.errstate(all="raise"):
        for left, right in ((x, x), (x, y), (1e308 * np.ones((5, 5)), x)):
            ozaki.matmul(left, right, scheme=scheme, return_report=True)
            ozaki.gemm(2.0, left, right, -1.0, np.full((5, 5), np.inf), scheme=scheme)
            ozaki.plan(left, right, scheme=scheme)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("options", [{"scheme": "residues", "slices": 14}, {"scheme": "digits", "slices": 5}])
def test_prepared_stacks_keep_to_their_batch(rng, side, options):
    """As many matrices in another order are other operands; leading ones, and a single matrix, change no order."""
    x = rng.standard_normal((2, 1, 4, 4))
    others = [rng.standard_normal((*batch, 4, 4)) for batch in ((3,), (3, 1, 1), (1, 3), (2, 3))]

    def pair(x, other):
        return (x, other) if side == "left" else (other, x)

    plans = [ozaki.plan(*pair(x, other), **options) for other in others]
    assert [plan.batch for plan in plans] == [(2, 3), (3, 2, 1), (2, 3), (2, 3)]
    prepared = ozaki.prepare(x, side, plans[0])
    for other, plan in zip(others, plans, strict=True):
        if plan.batch == (2, 3):
            check(ozaki.matmul(*pair(prepared, other), plan=plan), ozaki.matmul(*pair(x, other), plan=plan))
        else:
            with pytest.raises(ValueError, match=f"{'a' if side == 'left' else 'b'}: prepared for another plan"):
                ozaki.matmul(*pair(prepared, other), plan=plan)
    one, other = ozaki.prepare(x[0, 0], side, plans[0]), rng.standard_normal((3, 2, 1, 4, 4))
    check(ozaki.matmul(*pair(one, other), plan=plans[1]), ozaki.matmul(*pair(x[0, 0], other), plan=plans[1]))


def test_a_result_that_goes_through_a_copy_counts_as_workspace(rng):
    a, b = rng.standard_normal((300, 20)), rng.standard_normal((20, 300))
    options = {"scheme": "residues", "slices": 14, "return_report": True}
    _, report = ozaki.matmul(a, b, out=np.empty((300, 300)), **options)
    _, more = ozaki.matmul(a, b, out=np.empty((300, 300)).T, **options)
    assert more.workspace_bytes == report.workspace_bytes + 8 * 300 * 300
    with pytest.raises(ValueError, match=r"^workspace_limit: 700000 bytes are too few; .* `out` .* take 720000"):
        ozaki.matmul(a, b, out=np.empty((300, 300)).T, workspace_limit=700000, **options)


def test_long_rows_are_held_in_pieces():
    """Within a limit that a row alone would exceed."""
    a, b = np.ones((2, 10**6)), np.ones((10**6, 2))
    tracemalloc.start()
    try:
        ozaki.matmul(a, b, scheme="residues", slices=14, workspace_limit=2**24)
        assert tracemalloc.get_traced_memory()[1] < 2**23
    finally:
        tracemalloc.stop()


def test_rows_with_nan_count_once_however_they_are_broadcast():
    a = np.ones((2, 1, 3, 4))
    a[0, 0, 0, 0] = np.nan
    for b in (np.ones((4, 3)), np.ones((5, 4, 3)), np.ones((2, 5, 4, 3))):
        assert ozaki.matmul(a, b, accuracy="fp64", return_report=True)[1].nonfinite == 1


def test_broadcast_stacks_are_not_copied_for_each_matrix_that_they_meet(rng):
    a, b = rng.standard_normal((30, 1, 20, 30)), rng.standard_normal((1, 20, 30, 20))
    options = {"scheme": "residues", "slices": 14, "return_report": True}
    _, of_one_product = ozaki.matmul(
        a.reshape(600, 30), np.asfortranarray(b.swapaxes(0, 2).reshape(30, 400)), **options
    )
    c, report = ozaki.matmul(a, b, **options)
    assert report.workspace_bytes <= of_one_product.workspace_bytes + b.nbytes
    for i, j in ((0, 0), (29, 19), (7, 11)):
        check(np.ascontiguousarray(c[i, j]), ozaki.matmul(a[i, 0], b[0, j], scheme="residues", slices=14))


def test_copies_of_broadcast_operands_count_as_workspace(rng):
    """Matrices that have a normwise error each are multiplied one by one."""
    a, b = rng.standard_normal((30, 1, 20, 30)), rng.standard_normal((1, 20, 30, 20))
    options = {"accuracy": ozaki.Accuracy("normwise", 1e-15), "reproducible": True, "return_report": True}
    copied = 8 * 600 * 2 * 600
    c, report = ozaki.matmul(a, b, **options)
    assert report.workspace_bytes > copied
    with pytest.raises(ValueError, match=rf"^workspace_limit: {copied} bytes are too few"):
        ozaki.matmul(a, b, workspace_limit=copied, **options)
    limit = copied + 10**7
    same, report = ozaki.matmul(a, b, workspace_limit=limit, **options)
    assert copied < report.workspace_bytes <= limit
    check(same, c)


def test_any_kind_of_array_takes_the_result(rng):
    a, b = rng.standard_normal((3, 4)), rng.standard_normal((4, 2))
    with warnings.catch_warnings(action="ignore", category=PendingDeprecationWarning):
        out = np.matrix(np.full((3, 2), np.nan))
    assert ozaki.matmul(a, b, scheme="residues", slices=14, out=out) is out
    check(out, ozaki.matmul(a, b, scheme="residues", slices=14))


# gemm ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("trans_a", "trans_b"), list(itertools.product([False, True], repeat=2)))
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gemm(rng, trans_a, trans_b, dtype):
    a, b, c = (spread(rng, shape, 4, dtype) for shape in ((5, 8), (8, 6), (5, 6)))
    product = ozaki.matmul(a, b, accuracy=100, reproducible=True)
    left, right = a.T.copy() if trans_a else a, b.T.copy() if trans_b else b
    kind = np.dtype(dtype).type
    for alpha, beta in ((1, 0), (1.5, -2), (0.25, 1), (-1, 1 / 3), (1, 1)):
        before = c.copy()
        d = ozaki.gemm(alpha, left, right, beta, c, trans_a=trans_a, trans_b=trans_b, accuracy=100, reproducible=True)
        check(d, product * kind(alpha) + c * kind(beta))
        check(c, before)


def test_gemm_reads_only_what_counts(rng):
    a, b = rng.standard_normal((4, 5)), rng.standard_normal((5, 3))
    nan, c = np.full((4, 3), np.nan), rng.standard_normal((4, 3))
    assert np.isfinite(ozaki.gemm(2.0, a, b, 0.0, nan)).all()
    assert np.isfinite(ozaki.gemm(2.0, a, b, 0.0, None)).all()
    check(ozaki.gemm(0.0, a * np.nan, b, 3.0, c), 3.0 * c)
    check(ozaki.gemm(0.0, a * np.inf, b, 0.0, nan), np.zeros((4, 3)))
    check(ozaki.gemm(1.0, a[:, :0], b[:0], 3.0, c), 3.0 * c)
    assert np.isnan(ozaki.gemm(1.0, a, b, 1.0, nan)).all()
    plan = ozaki.plan(a, b, accuracy="fp64", reproducible=True)
    check(ozaki.gemm(0.0, a * np.nan, b, 3.0, c, plan=plan), 3.0 * c)


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gemm_of_vectors(rng, dtype, way):
    """A scalar, as matmul has it, whatever kind of scalar is added; into `out`, an array."""
    a, b = (rng.integers(-9, 10, 6).astype(dtype) for _ in range(2))
    kind = np.dtype(dtype).type
    product = a @ b
    for c in (kind(3), np.array(3, dtype), np.float32(3)):
        for alpha, beta in ((1, 0), (2, 0), (0, 0), (1, 1), (-2, 0.5), (0, 2)):
            d, report = ozaki.gemm(alpha, a, b, beta, c, return_report=True, **way)
            assert type(d) is kind and d == alpha * product + beta * 3
            assert report.bound < 1
            out = np.full((), np.nan, dtype)
            assert ozaki.gemm(alpha, a, b, beta, c, out=out, **way) is out
            assert out == d
    matrix = np.diag(a)
    assert ozaki.gemm(2, matrix, b, 1, np.ones(6, dtype), **way).shape == (6,)
    assert ozaki.gemm(2, b, matrix, 1, np.ones(6, dtype), **way).shape == (6,)


def test_gemm_into_out(rng):
    a, b, c = rng.standard_normal((6, 6)), rng.standard_normal((6, 6)), rng.standard_normal((6, 6))
    expected = ozaki.gemm(1.5, a, b, 0.5, c, accuracy="fp64")
    for out in (np.full((6, 6), np.nan), np.full((6, 12), np.nan)[:, ::2], c.copy()):
        assert ozaki.gemm(1.5, a, b, 0.5, c, accuracy="fp64", out=out) is out
        check(out, expected)
    assert ozaki.gemm(1.5, a, b, 0.5, c, accuracy="fp64", out=c) is c
    check(c, expected)
    d, report = ozaki.gemm(1.5, a, b, 0.0, None, accuracy="fp64", scheme="residues", out=a, return_report=True)
    assert d is a
    assert report.scheme == "residues"


def test_gemm_of_mixed_dtypes(rng):
    a, b, c = (rng.standard_normal((3, 3)).astype(t) for t in ("float32", "float64", "float32"))
    d = ozaki.gemm(1.0, a, b, 2.0, c)
    assert d.dtype == np.float64
    check(d, ozaki.matmul(a, b) + c.astype(float) * 2.0)


# NaN and Inf --------------------------------------------------------------------------------------------------------


SLICED = [
    {"scheme": "residues", "slices": 14},
    {"scheme": "digits", "slices": 7},
    {"scheme": "residues", "slices": 14, "engine": "int8"},
    {"accuracy": "fp64", "scheme": "digits7"},
]


def ieee(a, b):
    """The product in float64, one product and one sum at a time."""
    with np.errstate(all="ignore"):
        return np.array([[sum((x * y for x, y in zip(row, col, strict=True)), 0.0) for col in b.T] for row in a])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("way", SLICED, ids=str)
def test_nonfinite_values_follow_ieee(rng, way, dtype):
    special = [np.nan, np.inf, -np.inf]
    for _ in range(15):
        m, k, n = (int(v) for v in rng.integers(1, 9, 3))
        a, b = spread(rng, (m, k), 3, dtype), spread(rng, (k, n), 3, dtype)
        for x in (a, b):
            for _ in range(int(rng.integers(0, 4))):
                x[rng.integers(0, x.shape[0]), rng.integers(0, x.shape[1])] = rng.choice(special)
        c, report = ozaki.matmul(a, b, return_report=True, **way)
        expected = ieee(a, b)
        touched = ~np.isfinite(expected)
        assert np.array_equal(np.isnan(c), np.isnan(expected)), (a, b, c)
        assert np.array_equal(c[touched], expected[touched].astype(dtype), equal_nan=True), (a, b, c)
        finite = np.where(np.isfinite(a), a, 0).astype(dtype), np.where(np.isfinite(b), b, 0).astype(dtype)
        check(c[~touched], ozaki.matmul(*finite, scheme=report.scheme, slices=report.slices)[~touched])
        if "accuracy" in way:
            rows, cols = (~np.isfinite(a).all(axis=1)).sum(), (~np.isfinite(b).all(axis=0)).sum()
            assert report.nonfinite == rows + cols


@pytest.mark.parametrize("way", SLICED, ids=str)
def test_all_nan_and_infinities_of_both_signs(way):
    a = np.array([[np.inf, -np.inf], [np.inf, 0.0], [np.inf, 1.0], [np.nan, np.nan], [0.0, -0.0]])
    b = np.array([[1.0, 0.0, np.inf, -np.inf], [1.0, 1.0, 1.0, 5e-324]])
    c = ozaki.matmul(a, b, **way)
    assert np.array_equal(c, ieee(a, b), equal_nan=True)


def test_nonfinite_values_in_slabs_meet(monkeypatch):
    """An Inf in one slab of k and a -Inf in another make a NaN."""
    monkeypatch.setattr(_numpy_nonfinite, "_PATCH", 4)
    monkeypatch.setattr(blas, "DEPTH", 4)
    a = np.zeros((1, 12))
    a[0, 1], a[0, 10] = np.inf, -np.inf
    assert np.isnan(ozaki.matmul(a, np.ones((12, 1)), scheme="digits", slices=2)).all()
    a[0, 10] = 1
    assert ozaki.matmul(a, np.ones((12, 1)), scheme="digits", slices=2).tolist() == [[np.inf]]


def test_nonfinite_batches(rng):
    a, b = rng.standard_normal((3, 4, 5)), rng.standard_normal((5, 2))
    a[1, 2, 3] = np.nan
    c = ozaki.matmul(a, b, accuracy="fp64")
    assert np.isnan(c).sum() == 2
    assert np.isnan(c[1, 2]).all()
    d = ozaki.matmul(b.T, a.swapaxes(1, 2), accuracy="fp64")
    assert np.array_equal(d, c.swapaxes(1, 2), equal_nan=True)


def test_the_accuracy_is_met_beside_nan_and_inf(rng):
    a, b = spread(rng, (10, 50), 10), spread(rng, (50, 10), 10)
    a[2, 7], b[3, 4] = np.inf, np.nan
    c, report = ozaki.matmul(a, b, accuracy=1e-25, return_report=True)
    rows, cols = [i for i in range(10) if i != 2], [j for j in range(10) if j != 4]
    assert reference.componentwise_error(c[np.ix_(rows, cols)], a[rows], b[:, cols]) <= report.bound <= 2.0**-52


# Overflow, underflow, zeros -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", EXACT, ids=str)
def test_overflow_gives_infinity(way):
    for dtype in ("float32", "float64"):
        big = np.finfo(dtype).max
        a = np.array([[big, big], [big, -big], [big, 0], [-big, -big]], dtype)
        b = np.array([[1, 0.5], [1, 0.5]], dtype)
        c = ozaki.matmul(a, b, **way)
        check(c, rounded_product(a, b))
        assert c.tolist()[0][0] == np.inf
        assert c.tolist()[3][0] == -np.inf
        assert c.tolist()[0][1] == big


@pytest.mark.parametrize("way", EXACT, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_underflow_rounds_once(rng, way, dtype):
    least, low = (-149, -150) if dtype == "float32" else (-1074, -1080)
    for _ in range(20):
        m, k, n = (int(v) for v in rng.integers(1, 8, 3))
        a = np.ldexp(rng.standard_normal((m, k)), low // 2 + rng.integers(-3, 30, (m, 1))).astype(dtype)
        b = np.ldexp(rng.standard_normal((k, n)), low // 2 + rng.integers(-3, 30, (1, n))).astype(dtype)
        check(ozaki.matmul(a, b, **way), rounded_product(a, b), a, b)
    tiny = np.array([[2.0**least, 3 * 2.0**least, -(2.0**least)]], dtype)
    half = np.array([[0.5], [0.5], [0.5]], dtype)
    check(ozaki.matmul(tiny, half, **way), rounded_product(tiny, half))


@pytest.mark.parametrize("way", EXACT, ids=str)
def test_subnormal_operands(rng, way):
    for dtype, least in (("float32", -149), ("float64", -1074)):
        a = np.ldexp(rng.integers(-1000, 1000, (5, 6)).astype(float), least).astype(dtype)
        b = spread(rng, (6, 4), 5, dtype)
        check(ozaki.matmul(a, b, **way), rounded_product(a, b))
        large = np.ldexp(b.T, 100 if dtype == "float32" else 1000)
        check(ozaki.matmul(large, a.T, **way), rounded_product(large, a.T))


@pytest.mark.parametrize("way", [*EXACT, *SLICED], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_signs_of_zeros(way, dtype):
    """An exact zero is +0; a negative result that underflows is -0."""
    a = np.array([[1, -1], [0, 0], [-0.0, -0.0], [1, 1]], dtype)
    b = np.array([[1, -1, 0.0, -0.0], [1, -1, 0.0, -0.0]], dtype)
    c = ozaki.matmul(a, b, **way)
    zeros = c == 0
    assert zeros.sum() == 4 * 4 - 2
    assert not np.signbit(c[zeros]).any()
    tiny = np.array([[np.finfo(dtype).smallest_subnormal]], dtype)
    for sign in (1, -1):
        c = ozaki.matmul(tiny * dtype_of(dtype)(sign), tiny, **way)
        assert c[0, 0] == 0
        assert np.signbit(c[0, 0]) == (sign < 0)


def dtype_of(dtype):
    return np.dtype(dtype).type


def test_the_smallest_and_largest_results_of_one_product(rng):
    """Rows near overflow beside rows near underflow, in one call."""
    a = np.ldexp(rng.standard_normal((8, 3)), np.array([-1070, -1000, -500, -50, 0, 50, 500, 1020])[:, None])
    b = np.ldexp(rng.standard_normal((3, 6)), np.array([-60, -10, 0, 1, 3, 10]))
    for way in EXACT:
        c = ozaki.matmul(a, b, **way)
        check(c, rounded_product(a, b))
        assert Fraction(float(c[0, 0])).denominator <= 2**1074
