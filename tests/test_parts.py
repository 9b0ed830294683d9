"""Products in parts: descriptions merge, un-rounded products are added, and the bits are those of one call."""

import pickle
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_distributed import KINDS, matrix

import ozaki
from ozaki import parts


def described(pieces, side, k):
    merged = np.maximum.reduce([parts.extremes(x, side) for x in pieces])
    added = np.add.reduce([parts.sums(x, side, merged, k) for x in pieces])
    return parts.describe(merged, added, k, str(pieces[0].dtype))


def cut(a, b, cuts):
    ends = [0, *sorted(cuts), a.shape[1]]
    at = [slice(*each) for each in pairwise(ends)]
    return [a[:, each] for each in at], [b[each] for each in at]


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(0, 2**32))
def test_any_parts_have_the_bits_of_the_whole(data, seed):
    rng, draw = np.random.default_rng(seed), data.draw
    m, n, k = draw(st.integers(0, 30)), draw(st.integers(0, 30)), draw(st.sampled_from([1, 2, 50, 400, 3000]))
    dtype, kind = draw(st.sampled_from(["float32", "float64", "complex64", "complex128"])), draw(st.sampled_from(KINDS))
    a, b = matrix(rng, (m, k), kind, dtype), matrix(rng, (n, k), kind, dtype).T
    cuts = draw(st.lists(st.integers(0, k), max_size=4))
    of_a, of_b = cut(a, b, cuts)
    left, right = described(of_a, "left", k), described(of_b, "right", k)
    scheme = "residues" if np.dtype(dtype).kind == "c" else draw(st.sampled_from(["residues", "digits"]))
    plan = ozaki.plan(a.shape, b.shape, dtype=dtype, scheme=scheme, slices=draw(st.integers(7, 20)))
    products = [parts.multiply(x, y, left, right, plan) for x, y in zip(of_a, of_b, strict=True)]
    order = draw(st.permutations(products))
    total = order[0]
    for each in order[1:]:
        if draw(st.booleans()):
            total.add(each)
        else:  # as a communication library adds
            for mine, more in zip(total.arrays, each.arrays, strict=True):
                with np.errstate(invalid="ignore"):
                    mine += more
    wanted = ozaki.matmul(a, b, plan=plan)
    assert np.array_equal(total.round().view("u1"), wanted.view("u1"))
    assert np.array_equal(total.round().view("u1"), wanted.view("u1"))  # what was added stays


def test_tiles_take_some_of_the_rows():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((40, 30)), rng.standard_normal((30, 20))
    left, right = described([a], "left", 30), described([b], "right", 30)
    plan = ozaki.plan(a.shape, b.shape, dtype="float64", scheme="residues", slices=14)
    rows, cols = slice(7, 19), slice(3, 4)
    tile = parts.multiply(a[rows], b[:, cols], left[rows], right[cols], plan)
    assert np.array_equal(tile.round(), ozaki.matmul(a, b, plan=plan)[rows, cols])


@pytest.mark.parametrize("accuracy", [ozaki.Accuracy("row-column", 1e-12), ozaki.Accuracy("normwise", 1e-8), "exact"])
def test_descriptions_give_the_plan_of_the_whole(accuracy):
    rng = np.random.default_rng(1)
    a, b = np.rint(100 * rng.standard_normal((20, 30))), rng.standard_normal((30, 25))
    of_a, of_b = cut(a, b, [4, 20])
    left, right = described(of_a, "left", 30), described(of_b, "right", 30)
    plan = parts.plan(left, right, accuracy=accuracy)
    if accuracy != "exact":
        one = ozaki.plan(a, b, accuracy=accuracy, reproducible=True)
        assert (plan.scheme, plan.bound) == (one.scheme, one.bound)
    first, *others = (parts.multiply(x, y, left, right, plan) for x, y in zip(of_a, of_b, strict=True))
    for each in others:
        first.add(each)
    assert np.array_equal(first.round(), ozaki.matmul(a, b, accuracy=accuracy, reproducible=True))


def test_a_componentwise_accuracy_is_refused():
    x = np.random.default_rng(2).standard_normal((5, 5))
    rows = described([x], "left", 5), described([x], "right", 5)
    with pytest.raises(ValueError, match="accuracy: not proven by descriptions alone"):
        parts.plan(*rows, accuracy="fp64")


def test_what_does_not_fit_is_refused():
    x = np.ones((4, 4))
    left, right = described([x], "left", 4), described([x], "right", 4)
    plan = ozaki.plan((4, 4), (4, 4), dtype="float64", scheme="residues", slices=14)
    good = parts.multiply(x, x, left, right, plan)
    for arguments, error, match in [
        ((x[:3], x, left, right, plan), ValueError, "a: 3 rows"),
        ((x, x[:3], left, right, plan), ValueError, "b: 3 inner indices"),
        ((x.astype("f4"), x, left, right, plan), TypeError, "a: dtype float32; expected float64"),
        ((x, x, x, right, plan), TypeError, "left: ndarray"),
        ((x, x, left, right, "14"), TypeError, "plan: str"),
        ((x, x, left, right, ozaki.plan((4, 5), (5, 4), dtype="float64", scheme="residues", slices=14)), ValueError,
         "plan: for inner dimension 5"),
    ]:  # fmt: skip
        with pytest.raises(error, match=match):
            parts.multiply(*arguments)
    with pytest.raises(ValueError, match="other: "):
        good.add(parts.multiply(x[:2], x, left[:2], right, plan))
    with pytest.raises(ValueError, match="other: of rows or columns with other exponents"):
        good.add(parts.multiply(x, x, described([2 * x], "left", 4), right, plan))
    with pytest.raises(TypeError, match="other: ndarray; expected an Unrounded"):
        good.add(x)
    with pytest.raises(ValueError, match="added: shape"):
        parts.describe(np.zeros((2, 3)), np.zeros((4, 2), np.int64), 4, "float64")
    with pytest.raises(ValueError, match=r"k: -1; expected the inner dimension"):
        parts.sums(x, "left", np.zeros((2, 4)), -1)
    with pytest.raises(TypeError, match="x: masked elements"):
        parts.extremes(np.ma.array(x, mask=x > 0), "left")
    with pytest.raises(ValueError, match="side: 'top'"):
        parts.extremes(x, "top")
    with pytest.raises(TypeError, match="x: dtype int64"):
        parts.extremes(x.astype(int), "left")
    with pytest.raises(TypeError, match=r"x: dtype float16 .* \(x.astype\('float32'\) is exact\)"):
        parts.extremes(x.astype("f2"), "left")
    with pytest.raises(ValueError, match="plan: expected one of residues or digits alone"):
        parts.multiply(x, x, left, right, ozaki.plan((4, 4), (4, 4), accuracy="fp16"))
    with pytest.raises(ValueError, match="merged: shape"):
        parts.sums(x, "left", np.zeros((2, 3)), 4)


def test_plans_of_parts_refuse_what_parts_do_not_have():
    x = np.ones((4, 4))
    left, right = described([x], "left", 4), described([x], "right", 4)
    for options, error, match in [
        ({"scheme": "native"}, ValueError, "scheme: 'native'; expected 'auto', 'residues'"),
        ({"verify": True}, ValueError, "verify: True; not for products in parts"),
        ({"inner_scaling": True}, ValueError, "inner_scaling: True; not for products in parts"),
        ({"dtype": "mp106"}, ValueError, "dtype: 'mp106'; expected 'float32' or 'float64'"),
        ({"dtype": "complex128"}, ValueError, "dtype: 'complex128'; expected 'float32' or 'float64'"),
        ({"accuracy": "bf16"}, ValueError, "accuracy: 'bf16' is of products of two 16-bit operands"),
    ]:
        with pytest.raises(error, match=match):
            parts.plan(left, right, **options)
    with pytest.raises(TypeError, match="b: one operand is complex and the other is real"):
        parts.plan(left, described([x + 0j], "right", 4))
    with pytest.raises(ValueError, match="right: for inner dimension 3; expected 4"):
        parts.plan(left, described([x[:3]], "right", 3))
    plan = parts.plan(left, right, accuracy=ozaki.Accuracy("normwise", 1e-9))
    assert "reproducible" not in plan.why
    assert parts.plan(left, right, accuracy="exact", dtype=np.float32).dtype == "float32"


def test_parts_of_other_products_are_not_added():
    x = np.random.default_rng(4).standard_normal((4, 6))
    nan = x.copy()
    nan[0, 0] = np.nan
    plan = ozaki.plan((4, 6), (6, 4), dtype="float64", scheme="residues", slices=14)

    def part(of, at):
        left, right = described([of], "left", 6), described([x.T], "right", 6)
        return parts.multiply(of[:, at], x.T[at], left, right, plan)

    first, second = part(x, slice(0, 4)), part(x, slice(4, 6))
    for other in (8 * x, nan):
        with pytest.raises(ValueError, match=r"other: of (rows|other rows) or columns with"):
            first.add(part(other, slice(4, 6)))
    with pytest.raises(TypeError, match="other: NoneType"):
        first.add(None)
    first.add(second)
    with pytest.raises(ValueError, match="other: 2 inner indices beside 6 of 6"):
        first.add(second)
    assert np.array_equal(first.round(), ozaki.matmul(x, x.T, plan=plan))


@pytest.mark.parametrize("accuracy", [None, ozaki.Accuracy("row-column", 1e-3)])
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_a_count_is_planned_as_of_shapes(accuracy, dtype):
    x = matrix(np.random.default_rng(5), (5, 8), "normal", dtype)
    rows = described([x], "left", 8), described([x.T], "right", 8)
    options = {"scheme": "residues", "slices": 13, "accuracy": accuracy}
    plan = parts.plan(*rows, **options)
    assert plan.scheme == ozaki.plan(x, x.T, reproducible=True, **options).scheme
    assert np.array_equal(
        parts.multiply(x, x.T, *rows, plan).round(), ozaki.matmul(x, x.T, reproducible=True, **options)
    )


def test_wrong_arguments_of_rounds_and_plans_are_named():
    x = np.random.default_rng(6).standard_normal((4, 6))
    top = parts.extremes(x, "left")
    added = parts.sums(x, "left", top, 6)
    rows, cols = parts.describe(top, added, 6, "float64"), described([x.T], "right", 6)
    shorter = described([x[:, :5]], "left", 5), described([x.T[:5]], "right", 5)
    plan = ozaki.plan((4, 5), (5, 4), dtype="float64", scheme="residues", slices=14)
    for call, match in [
        (lambda: parts.extremes(np.ma.masked_array(x, x > 0), "left"), "x: masked elements"),
        (lambda: parts.sums(x, "left", top.tolist(), 6), "merged: list; expected an array of float64"),
        (lambda: parts.sums(x, "left", top.astype("f4"), 6), "merged: dtype float32"),
        (lambda: parts.sums(x, "left", top, 5), "k: 5; expected that of the whole product"),
        (lambda: parts.sums(x, "left", top, 6.0), "k: 6.0"),
        (lambda: parts.describe(top, added.astype(float), 6, "float64"), "added: dtype float64; expected .* int64"),
        (lambda: parts.describe(top, added[:2], 6, "float64"), r"added: shape \(2, 4\)"),
        (lambda: parts.describe(top, added, -1, "float64"), "k: -1"),
        (lambda: rows[0], "rows: 0; expected a slice"),
        (lambda: parts.multiply(x, x.T, shorter[0], shorter[1], plan), "a: 6 inner indices; expected no more than 5"),
        (lambda: parts.plan(x, cols, accuracy="exact"), "left: ndarray"),
    ]:
        with pytest.raises((ValueError, TypeError, NotImplementedError), match=match):
            call()


def test_more_parts_than_small_integers_add():
    """Residues of hundreds of parts leave int16 unless they are widened."""
    a, b = np.full((2, 1000), 2.0**52 - 1), np.full((1000, 3), 2.0**52 - 3)
    left, right = described([a], "left", 1000), described([b], "right", 1000)
    plan = ozaki.plan(a.shape, b.shape, dtype="float64", scheme="residues", slices=20)
    total = parts.multiply(a[:, :1], b[:1], left, right, plan)
    for h in range(1, 1000):
        total.add(parts.multiply(a[:, h : h + 1], b[h : h + 1], left, right, plan))
    assert np.array_equal(total.round(), ozaki.matmul(a, b, plan=plan))


def test_products_travel(monkeypatch):
    x = np.random.default_rng(7).standard_normal((4, 6))
    x[1, 5] = np.inf
    left, right = described([x], "left", 6), described([x.T], "right", 6)
    for scheme in ("residues", "digits"):
        plan = ozaki.plan((4, 6), (6, 4), dtype="float64", scheme=scheme, slices=14)
        found = [parts.multiply(x[:, at], x.T[at], left, right, plan) for at in (slice(4), slice(4, 6), slice(0))]
        first, second, third = pickle.loads(pickle.dumps(found))
        assert np.array_equal(third.add(second).add(first).round(), ozaki.matmul(x, x.T, plan=plan), equal_nan=True)
    packed = pickle.dumps(found[0])
    monkeypatch.setattr("ozaki.parts.unrounded._engine_of", lambda *_: object())
    with pytest.raises(RuntimeError, match=r"engine: .* there, object here"):
        pickle.loads(packed)


def test_rows_travel():
    x = np.random.default_rng(3).standard_normal((5, 6))
    rows = described([x], "left", 6)
    again = pickle.loads(pickle.dumps(rows))
    assert np.array_equal(again.description.top, rows.description.top) and len(again) == 5
