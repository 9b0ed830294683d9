"""Products of 16-bit operands that are rounded once to 16 bits: arrays of every library, options, plans, reports."""

from __future__ import annotations

import numpy as np
import pytest

import ozaki

ml_dtypes = pytest.importorskip("ml_dtypes")

HALVES = {"bf16": ml_dtypes.bfloat16, "fp16": np.float16}


@pytest.fixture(params=HALVES)
def accuracy(request):
    return request.param


@pytest.fixture
def operands(rng, accuracy):
    dtype = HALVES[accuracy]
    return rng.standard_normal((30, 50)).astype(dtype), rng.standard_normal((50, 20)).astype(dtype)


def bits(x):
    return np.asarray(x).view(np.uint16)


def test_a_result_has_the_format_of_its_operands(operands, accuracy):
    a, b = operands
    c, report = ozaki.matmul(a, b, accuracy=accuracy, return_report=True)
    exact, scale = a.astype(float) @ b.astype(float), abs(a.astype(float)) @ abs(b.astype(float))
    assert c.dtype == a.dtype
    assert (abs(c.astype(float) - exact) <= report.bound * scale).all()
    assert sum(report.row_kinds.values()) == len(a)
    of_kinds = [f"{rows} {how}" if how == "exact" else f"{rows} with {how}" for how, rows in report.row_kinds.items()]
    assert f"\nrows of A: {', '.join(of_kinds)}\n" in str(report)
    by_dtype = ozaki.matmul(a, b, dtype=str(a.dtype))
    assert np.array_equal(bits(by_dtype), bits(c))


def test_numpys_other_names_of_float16(rng):
    a = rng.standard_normal((3, 3)).astype(np.float16)
    for dtype in ("half", "f2", "e", np.half):
        assert ozaki.matmul(a, a, dtype=dtype).dtype == np.float16
        assert ozaki.plan(a.shape, a.shape, dtype=dtype).dtype == "float16"
        with pytest.raises(ValueError, match="dtype: 'float16' is of two float16 operands, but a is float64"):
            ozaki.matmul(a.astype(float), a, dtype=dtype)


def test_a_row_has_the_same_bits_in_every_batch(operands, accuracy):
    a, b = operands
    a[3] *= 100
    a[3, 7] = 30000
    a[5, 1:] = 0
    c = ozaki.matmul(a, b, accuracy=accuracy)
    for rows in (slice(0, 1), slice(3, 4), slice(5, 6), slice(2, 9), slice(None, None, 3)):
        assert np.array_equal(bits(ozaki.matmul(a[rows], b, accuracy=accuracy)), bits(c[rows]))
    stacked = ozaki.matmul(a.reshape(5, 6, 50), b, accuracy=accuracy)
    assert np.array_equal(bits(stacked).reshape(30, 20), bits(c))


def test_operands_are_broadcast(operands, accuracy):
    a, b = operands
    several = np.stack([b, b * b.dtype.type(3), b[::-1]])
    c = ozaki.matmul(a, several, accuracy=accuracy)
    assert c.shape == (3, 30, 20)
    for of, each in zip(c, several, strict=True):
        assert np.array_equal(bits(of), bits(ozaki.matmul(a, each, accuracy=accuracy)))
    both = ozaki.matmul(a.reshape(2, 1, 15, 50), several, accuracy=accuracy)
    assert np.array_equal(bits(both[1, 2]), bits(c[2, 15:]))
    assert np.array_equal(bits(ozaki.matmul(a[0], several, accuracy=accuracy)), bits(c[:, 0]))


def test_a_matrix_has_the_same_bits_whatever_matrices_are_beside_it(rng, accuracy):
    """Whatever is broadcast: the digits of a row follow from the columns of one matrix."""
    for of_a, of_b in (((2, 1), (3,)), ((), (3,)), ((3,), ()), ((2, 3), (3,)), ((3,), (2, 1)), ((1, 3, 1), (2, 1, 3))):
        a, b = (rng.standard_normal((*batch, *of)) for batch, of in ((of_a, (20, 40)), (of_b, (40, 20))))
        every_other = np.arange(np.prod(of_b, dtype=int)).reshape(*of_b, 1, 1) % 2  # in which most rows are exact
        b *= np.exp(4 * every_other * rng.standard_normal((*of_b, 40, 1)))
        a, b = (np.clip(x, -6e4, 6e4).astype(HALVES[accuracy]) for x in (a, b))
        c = ozaki.matmul(a, b)
        lefts, rights = (np.broadcast_to(x, (*c.shape[:-2], *x.shape[-2:])) for x in (a, b))
        for at in np.ndindex(c.shape[:-2]):
            assert np.array_equal(bits(c[at]), bits(ozaki.matmul(lefts[at], rights[at]))), (of_a, of_b, at)


def test_numbers_in_another_byte_order(operands):
    a, b = operands
    if a.dtype.kind != "f":
        pytest.skip("bfloat16 has one byte order")
    swapped = [x.astype(">f2") for x in operands]
    c = ozaki.matmul(a, b)
    assert np.array_equal(bits(ozaki.matmul(*swapped)), bits(c))
    assert np.array_equal(bits(ozaki.gemm(1, *swapped, 0, None)), bits(c))
    plan = ozaki.plan(*swapped)
    assert np.array_equal(bits(ozaki.matmul(swapped[0], ozaki.prepare(swapped[1], "right", plan), plan=plan)), bits(c))
    with pytest.raises(ValueError, match="out: >f2; expected float16"):
        ozaki.matmul(a, b, np.zeros(c.shape, ">f2"))


def test_prepared_weights_serve_any_number_of_rows(operands, accuracy):
    a, b = operands
    c = ozaki.matmul(a, b)
    right = ozaki.prepare(b, "right", ozaki.plan(a, b))
    for rows in (1, 7, 30):
        plan = ozaki.plan((rows, 50), (50, 20), accuracy=accuracy)
        for options in ({}, {"accuracy": accuracy}, {"plan": plan}):
            assert np.array_equal(bits(ozaki.matmul(a[:rows], right, **options)), bits(c[:rows]))
    stacked = ozaki.matmul(a.reshape(5, 6, 50), right)
    assert np.array_equal(bits(stacked).reshape(30, 20), bits(c))
    with pytest.raises(ValueError, match="a: prepared as right operand; prepare it as left"):
        ozaki.matmul(right, np.ones((20, 3), a.dtype))


def test_a_prepared_operand_gives_the_same_bits(operands, accuracy):
    a, b = operands
    plan = ozaki.plan(a, b, accuracy=accuracy)
    assert plan == ozaki.plan(a.shape, b.shape, accuracy=accuracy)
    right = ozaki.prepare(b, "right", plan)
    for given in ((a, right), (a, b)):
        assert np.array_equal(bits(ozaki.matmul(*given, plan=plan)), bits(ozaki.matmul(a, b, accuracy=accuracy)))
    with pytest.raises(ValueError, match="side: 'left'"):
        ozaki.prepare(a, "left", plan)
    with pytest.raises(TypeError, match="x: float32, but the plan is made for"):
        ozaki.prepare(b.astype(np.float32), "right", plan)
    with pytest.raises(ValueError, match="plan: made for"):
        ozaki.matmul(a.astype(np.float32), b, plan=plan)


def test_a_prepared_operand_serves_any_number_of_rows(operands, accuracy):
    a, b = operands
    c, plan = ozaki.matmul(a, b, accuracy=accuracy), ozaki.plan(a, b, accuracy=accuracy)
    right = ozaki.prepare(b, "right", plan)
    for x, expected in ((a[:7], c[:7]), (a.reshape(5, 6, 50), c.reshape(5, 6, 20)), (a[0], c[0]), (a[:0], c[:0])):
        assert np.array_equal(bits(ozaki.matmul(x, right)), bits(expected))
        by_plan = ozaki.matmul(x, right, plan=ozaki.plan(x.shape, b.shape, accuracy=accuracy))
        assert np.array_equal(bits(by_plan), bits(expected))


def test_a_prepared_operand_beside_another_format_is_refused(operands, accuracy):
    """A plan, which other prepared operands lack there, would not help."""
    a, b = operands
    right = ozaki.prepare(b, "right", ozaki.plan(a, b))
    other = next(dtype for name, dtype in HALVES.items() if name != accuracy)
    for x, options in ((a.astype(other), {}), (a.astype("f4"), {}), (a, {"accuracy": "fp32"}), (a, {"dtype": "f4"})):
        with pytest.raises(ValueError, match=f"b: prepared for a product of two {a.dtype} operands, rounded to it"):
            ozaki.matmul(x, right, **options)


def test_an_operand_that_is_prepared_for_others_is_refused(operands, accuracy):
    a, b = operands
    left = ozaki.prepare(a, "right", ozaki.plan((3, 30), (30, 50), accuracy=accuracy))
    with pytest.raises(ValueError, match="a: prepared as right operand"):
        ozaki.matmul(left, b)
    # Of a stack, whose matrices then would go with others.
    several = np.stack([b, b[::-1], b * b.dtype.type(2)])
    right = ozaki.prepare(several, "right", ozaki.plan(a.shape, several.shape, accuracy=accuracy))
    assert np.array_equal(bits(ozaki.matmul(a, right)), bits(ozaki.matmul(a, several)))
    for x in (np.stack([a, a, a])[:, None], np.stack([a, a])[:, None]):
        with pytest.raises(ValueError, match="b: prepared for another plan"):
            ozaki.matmul(x, right)


def test_results_go_into_out(operands, accuracy):
    a, b = operands
    out = np.zeros((30, 20), a.dtype)
    assert ozaki.matmul(a, b, out, accuracy=accuracy) is out
    assert np.array_equal(bits(out), bits(ozaki.matmul(a, b, accuracy=accuracy)))
    for wrong in (np.zeros((30, 20), np.float32), np.zeros((20, 30), a.dtype)):
        with pytest.raises(ValueError, match="out: "):
            ozaki.matmul(a, b, wrong, accuracy=accuracy)


def test_operands_of_another_byte_order(operands, accuracy):
    a, b = operands
    swapped = [x.astype(x.dtype.newbyteorder("S")) for x in operands]
    c, plan = ozaki.matmul(a, b, accuracy=accuracy), ozaki.plan(a, b, accuracy=accuracy)
    for x, y in ((swapped[0], b), (a, swapped[1]), swapped, (swapped[0], ozaki.prepare(swapped[1], "right", plan))):
        got = ozaki.matmul(x, y, plan=plan)
        assert got.dtype.isnative and np.array_equal(bits(got), bits(c))
    with pytest.raises(ValueError, match="out: "):
        ozaki.matmul(a, b, np.zeros((30, 20), swapped[0].dtype), accuracy=accuracy)


def test_expressions_are_rounded_once(operands, accuracy, rng):
    a, b = operands
    c = rng.standard_normal((30, 20)).astype(a.dtype)
    found = ozaki.gemm(0.3, a, b, -2.0, c, accuracy=accuracy)
    exact = 0.3 * (a.astype(float) @ b.astype(float)) - 2 * c.astype(float)
    scale = 0.3 * abs(a.astype(float)) @ abs(b.astype(float))
    u = 2.0 ** -(8 if accuracy == "bf16" else 11)
    assert found.dtype == a.dtype
    assert (abs(found.astype(float) - exact) <= u * (1 + u) * scale + u * abs(exact)).all()
    assert np.array_equal(
        bits(ozaki.gemm(1, a, b, 0, None, accuracy=accuracy)), bits(ozaki.matmul(a, b, accuracy=accuracy))
    )
    turned = ozaki.gemm(0.3, a.T.copy(), b, -2.0, c, trans_a=True, accuracy=accuracy)
    assert np.array_equal(bits(turned), bits(found))
    assert np.array_equal(
        bits(ozaki.gemm(0, a, b, 2, c, accuracy=accuracy)), bits((2 * c.astype(float)).astype(a.dtype))
    )
    assert np.array_equal(bits(ozaki.gemm(1, a[:, :0], b[:0], 1, c, accuracy=accuracy)), bits(c))
    target = c.copy()
    assert ozaki.gemm(0.3, a, b, -2.0, target, out=target, accuracy=accuracy) is target
    assert np.array_equal(bits(target), bits(found))
    with pytest.raises(ValueError, match="alpha: nan"):
        ozaki.gemm(np.nan, a, b, 1, c, accuracy=accuracy)


def test_vectors_and_empty_products(operands, accuracy):
    a, b = operands
    c = ozaki.matmul(a, b, accuracy=accuracy)
    entry = ozaki.matmul(a[0], b[:, 0], accuracy=accuracy)
    assert entry.shape == () and entry.dtype == a.dtype
    assert ozaki.matmul(a[:0], b, accuracy=accuracy).shape == (0, 20)
    empty = ozaki.matmul(a[:, :0], b[:0], accuracy=accuracy)
    assert empty.dtype == c.dtype and not empty.astype(float).any()


def test_a_multiprecision_addend_makes_the_result_one(operands, accuracy, rng):
    a, b = operands
    c = ozaki.mparray(rng.standard_normal((30, 20)), 200)
    wide = (x.astype(np.float32) for x in operands)
    assert (ozaki.gemm(1, a, b, 1, c) == ozaki.gemm(1, *wide, 1, c)).all()
    for options in ({"accuracy": accuracy}, {"dtype": str(a.dtype)}, {"plan": ozaki.plan(a, b)}):
        with pytest.raises(TypeError, match="c: multiprecision"):
            ozaki.gemm(1, a, b, 1, c, **options)


def test_a_plan_beside_another_format_is_refused(operands, accuracy):
    a, b = operands
    plan = ozaki.plan(a, b, accuracy=accuracy)
    assert ozaki.matmul(a, b, plan=plan, dtype=str(a.dtype)).dtype == a.dtype
    for dtype in ("float32", "float64", "mp"):
        with pytest.raises(ValueError, match=f"dtype: '{dtype}', but the plan is made for {a.dtype}"):
            ozaki.matmul(a, b, plan=plan, dtype=dtype)


def test_other_options_are_refused(operands, accuracy):
    a, b = operands
    name = str(a.dtype)
    for options, message in (
        ({"accuracy": accuracy, "dtype": "float32"}, "dtype: 'float32'"),
        ({"accuracy": "fp32", "dtype": name}, "accuracy: 'fp32' is more than"),
        ({"accuracy": accuracy, "scheme": "digits", "slices": 2}, "scheme: products rounded to .* have no"),
        ({"accuracy": accuracy, "verify": True}, "verify: products rounded to .* have no"),
        ({"accuracy": accuracy, "return_report": "bounds"}, "return_report: 'bounds'"),
        ({"scheme": "row-digits"}, "scheme: 'row-digits' cannot be named; .*'bf16' or 'fp16'"),
    ):
        with pytest.raises(ValueError, match=message):
            ozaki.matmul(a, b, **options)


def test_operands_of_other_formats_are_refused(operands, accuracy):
    a, b = operands
    other = next(dtype for name, dtype in HALVES.items() if name != accuracy)
    for x, y in ((a.astype(np.float32), b), (a, b.astype(other))):
        with pytest.raises(ValueError, match=rf"accuracy: '{accuracy}' is of two .* accuracy='fp32'"):
            ozaki.matmul(x, y, accuracy=accuracy)
    with pytest.raises(ValueError, match=f"a is {a.dtype} and b is MPArray; convert them, or use accuracy='fp32'"):
        ozaki.matmul(a, ozaki.mparray(b.astype(float)), accuracy=accuracy)
    named = next(name for name in HALVES if name != accuracy)
    with pytest.raises(ValueError, match=f"convert them, or use accuracy='{named}'"):
        ozaki.matmul(a.astype(other), b.astype(other), accuracy=accuracy)
    with pytest.raises(ValueError, match=r"b: batch \(2,\) of shape .* of a, .*; expected equal sizes, or 1"):
        ozaki.matmul(np.stack([a] * 3), np.stack([b] * 2), accuracy=accuracy)
    with pytest.raises(ValueError, match=rf"out: shape \(20, 30\) and dtype {a.dtype}; expected \(30, 20\) and"):
        ozaki.matmul(a, b, np.zeros((20, 30), a.dtype))
    with pytest.raises(TypeError, match=f"c: dtype float64 does not fit {a.dtype} operands"):
        ozaki.gemm(1, a, b, 1, np.zeros((30, 20)))
    with pytest.raises(ValueError, match=f"accuracy: '{accuracy}' is of products of two 16-bit operands"):
        ozaki.residual(a, b, np.zeros((30, 20)), accuracy=accuracy)
    with pytest.raises(ValueError, match="devices: "):
        ozaki.matmul(a, b, accuracy=accuracy, devices="all")
    with pytest.raises(ValueError, match="accuracy: "):
        ozaki.linalg.solve(np.eye(2), np.ones(2), accuracy=accuracy)


def test_more_accuracy_has_a_float32_result(operands):
    a, b = operands
    assert ozaki.matmul(a, b, accuracy="fp32").dtype == np.float32


def test_a_limit_of_workspace_changes_no_bits(operands, accuracy):
    a, b = operands
    plain = ozaki.matmul(a, b, accuracy=accuracy)
    limited, report = ozaki.matmul(a, b, accuracy=accuracy, workspace_limit=2**19, return_report=True)
    assert np.array_equal(bits(limited), bits(plain)) and report.workspace_bytes <= 2**19
    with pytest.raises(ValueError, match="workspace_limit: "):
        ozaki.matmul(a, b, accuracy=accuracy, workspace_limit=100)


def test_tensors_keep_their_dtype(operands, accuracy):
    torch = pytest.importorskip("torch")
    import ozaki.torch

    a, b = operands
    half = getattr(torch, str(a.dtype))
    x, y = (torch.from_numpy(bits(each).view(np.int16)).view(half) for each in operands)
    expected = bits(ozaki.matmul(a, b, accuracy=accuracy))

    def same(c):
        return c.dtype == half and np.array_equal(c.view(torch.int16).numpy().view(np.uint16), expected)

    assert same(ozaki.matmul(x, y, accuracy=accuracy))
    assert same(ozaki.matmul(x, y, dtype=half))
    out = torch.empty(30, 20, dtype=half)
    assert ozaki.matmul(x, y, out, accuracy=accuracy) is out and same(out)
    with pytest.raises(
        ValueError, match=rf"out: shape \(30, 20\) and dtype {a.dtype}; expected \(30, 20\) and float32"
    ):
        ozaki.matmul(x, y, out, accuracy="fp32")
    plan = ozaki.plan(x, y, accuracy=accuracy)
    assert same(ozaki.matmul(x, ozaki.prepare(y, "right", plan), plan=plan))
    assert same(ozaki.matmul(x.T.contiguous().T, y, accuracy=accuracy))
    with ozaki.torch.emulate(accuracy=accuracy) as run:
        assert same(x @ y)
        (x.float() @ y.float())
        z = torch.addmm(torch.ones(20, dtype=half), x, y)
    assert z.dtype == half
    assert [entry.dtype for entry in run.account.entries] == 2 * [str(a.dtype)]


def test_gradients_of_tensors_have_their_dtype(operands, accuracy):
    torch = pytest.importorskip("torch")
    import ozaki.torch

    half = getattr(torch, str(operands[0].dtype))
    x, y = (torch.from_numpy(bits(each).view(np.int16)).view(half).requires_grad_() for each in operands)
    c = ozaki.torch.matmul(x, y, accuracy=accuracy)
    c.backward(torch.ones_like(c))
    assert c.dtype == x.grad.dtype == y.grad.dtype == half
    expected = ozaki.torch.matmul(torch.ones_like(c), y.detach().T, accuracy=accuracy)
    assert torch.equal(x.grad, expected)


def test_arrays_of_jax_keep_their_dtype(operands, accuracy):
    jnp = pytest.importorskip("jax.numpy")
    a, b = operands
    c = ozaki.matmul(jnp.asarray(a), jnp.asarray(b), accuracy=accuracy)
    assert type(c).__module__.startswith("jax") and c.dtype == a.dtype
    assert np.array_equal(bits(c), bits(ozaki.matmul(a, b, accuracy=accuracy)))


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_operands_of_8_bits_count_as_bfloat16(rng, name):
    a, b = (rng.standard_normal(shape).astype(getattr(ml_dtypes, name)) for shape in ((20, 60), (60, 10)))
    wide = [x.astype(ml_dtypes.bfloat16) for x in (a, b)]
    c, report = ozaki.matmul(a, b, return_report=True)
    assert c.dtype == ml_dtypes.bfloat16 and np.array_equal(bits(c), bits(ozaki.matmul(*wide)))
    assert ozaki.matmul(a, b, accuracy="fp32").dtype == np.float32
    added = rng.standard_normal((20, 10)).astype(a.dtype)
    summed = ozaki.gemm(1, a, b, 1, added.astype(ml_dtypes.bfloat16))
    assert np.array_equal(bits(ozaki.gemm(1, a, b, 1, added)), bits(summed))
    if name == "float8_e4m3fn":
        assert report.row_kinds == (("2 digits", 20),) or dict(report.row_kinds) == {"2 digits": 20}
    plan = ozaki.plan(a, b, accuracy="bf16")
    right = ozaki.prepare(b, "right", plan)
    assert np.array_equal(bits(ozaki.matmul(a, right, plan=plan)), bits(c))
    torch = pytest.importorskip("torch")
    x, y = (torch.from_numpy(each.view(np.uint8)).view(getattr(torch, name)) for each in (a, b))
    z = ozaki.matmul(x, y)
    assert z.dtype == torch.bfloat16 and np.array_equal(z.view(torch.int16).numpy().view(np.uint16), bits(c))
    for given in ((a, b, np.zeros((20, 10), a.dtype)), (x, y, torch.zeros(20, 10).to(x.dtype))):
        with pytest.raises((TypeError, ValueError), match=f"out: .*{name}"):
            ozaki.matmul(*given)
