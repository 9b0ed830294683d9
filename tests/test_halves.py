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


def test_results_go_into_out(operands, accuracy):
    a, b = operands
    out = np.zeros((30, 20), a.dtype)
    assert ozaki.matmul(a, b, out, accuracy=accuracy) is out
    assert np.array_equal(bits(out), bits(ozaki.matmul(a, b, accuracy=accuracy)))
    for wrong in (np.zeros((30, 20), np.float32), np.zeros((20, 30), a.dtype)):
        with pytest.raises(ValueError, match="out: "):
            ozaki.matmul(a, b, wrong, accuracy=accuracy)


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
    if name == "float8_e4m3fn":
        assert report.row_kinds == (("2 digits", 20),) or dict(report.row_kinds) == {"2 digits": 20}
    plan = ozaki.plan(a, b, accuracy="bf16")
    right = ozaki.prepare(b, "right", plan)
    assert np.array_equal(bits(ozaki.matmul(a, right, plan=plan)), bits(c))
    torch = pytest.importorskip("torch")
    x, y = (torch.from_numpy(each.view(np.uint8)).view(getattr(torch, name)) for each in (a, b))
    z = ozaki.matmul(x, y)
    assert z.dtype == torch.bfloat16 and np.array_equal(z.view(torch.int16).numpy().view(np.uint16), bits(c))
