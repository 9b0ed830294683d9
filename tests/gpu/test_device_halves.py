"""Products of 16-bit floats, rounded once to 16 bits, have the bits of NumPy in every batch."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import ozaki
from ozaki.interchange.halves import HalfArray

cp = pytest.importorskip("cupy")
pytestmark = pytest.mark.gpu

HALVES = {"bf16": ml_dtypes.bfloat16, "fp16": np.float16}


def on_device(x):
    bits = cp.asarray(np.ascontiguousarray(x).view(np.uint16))
    return bits.view(np.float16) if x.dtype == np.float16 else HalfArray(bits, "bfloat16")


def same(expected, got):
    bits = cp.asnumpy(got.bits if isinstance(got, HalfArray) else got.view(np.uint16))
    differ = expected.view(np.uint16) != bits
    assert not differ.any(), f"{differ.sum()} of {differ.size} differ, first at {tuple(np.argwhere(differ)[0])}"


def rows(rng, shape, dtype):
    """Rows of all kinds: usual, with outliers, wide, zero, subnormal, near overflow, with NaN and Inf."""
    x, form = rng.standard_normal(shape), ml_dtypes.finfo(dtype)
    for i in range(shape[-2]):
        row = x[..., i, :]
        kind = rng.integers(0, 14)
        if kind == 0:
            row[..., rng.integers(shape[-1])] *= 100
        elif kind == 1:
            row *= np.exp(3 * rng.standard_normal(shape[-1]))
        elif kind == 2:
            row[:] = 0
        elif kind == 3:
            row *= 2.0 ** (form.minexp - 3)
        elif kind == 4:
            row *= 2.0 ** (form.maxexp - 4)
        elif kind == 5:
            row[..., rng.integers(shape[-1])] = rng.choice([np.nan, np.inf, -np.inf])
    with np.errstate(all="ignore"):
        return x.astype(dtype)


@pytest.mark.parametrize("accuracy", HALVES)
@pytest.mark.parametrize("sizes", [(300, 700, 500), (1, 4096, 130), (700, 3000, 300), (65, 64, 1000), (257, 129, 192)])
def test_bits_of_all_kinds_of_rows(sizes, accuracy):
    rng, (m, k, n) = np.random.default_rng(sizes), sizes
    a, b = rows(rng, (m, k), HALVES[accuracy]), rng.standard_normal((k, n)).astype(HALVES[accuracy])
    expected, of_host = ozaki.matmul(a, b, accuracy=accuracy, return_report=True)
    x, y = on_device(a), on_device(b)
    got, report = ozaki.matmul(x, y, accuracy=accuracy, return_report=True)
    same(expected, got)
    assert (report.row_kinds, report.bound) == (of_host.row_kinds, of_host.bound)
    plan = ozaki.plan((m, k), (k, n), accuracy=accuracy)
    columns = ozaki.prepare(y, "right", plan)
    for _ in range(3):  # the later ones are repeated
        same(expected, ozaki.matmul(x, y, accuracy=accuracy))
        same(expected, ozaki.matmul(x, columns, plan=plan))
    limited = ozaki.matmul(x, y, accuracy=accuracy, workspace_limit=max(report.workspace_bytes, 2**24))
    same(expected, limited)


@pytest.mark.parametrize("accuracy", HALVES)
@pytest.mark.parametrize("m", [1, 7, 16, 31, 64])
@pytest.mark.parametrize(("k", "n"), [(4096, 4096), (4099, 1001), (515, 130), (2048, 20000), (100, 6000)])
def test_few_rows_beside_many_columns(m, k, n, accuracy):
    rng, dtype = np.random.default_rng((m, k, n)), HALVES[accuracy]
    a, b = rows(rng, (m, k), dtype), rng.standard_normal((k, n)).astype(dtype)
    b[:, n // 2] *= dtype(2.0**-9)
    b[k // 2, n // 3] = np.inf
    c = rng.standard_normal((m, n)).astype(dtype)
    expected, of_host = ozaki.matmul(a, b, accuracy=accuracy, return_report=True)
    x, y = on_device(a), on_device(b)
    got, report = ozaki.matmul(x, y, accuracy=accuracy, return_report=True)
    same(expected, got)
    assert (report.row_kinds, report.bound) == (of_host.row_kinds, of_host.bound)
    plan = ozaki.plan((m, k), (k, n), accuracy=accuracy)
    columns = ozaki.prepare(y, "right", plan)
    for _ in range(20):  # while the kernel before is still splitting rows
        got = ozaki.matmul(x, columns, plan=plan)
    same(expected, got)
    for alpha, beta in ((1.0, 1.0), (0.3, -2.0)):
        expected = ozaki.gemm(alpha, a, b, beta, c, accuracy=accuracy)
        same(expected, ozaki.gemm(alpha, x, columns, beta, on_device(c), plan=plan))


@pytest.mark.parametrize("accuracy", HALVES)
def test_stacks_of_few_rows(accuracy):
    rng, dtype = np.random.default_rng(5), HALVES[accuracy]
    a, b = rows(rng, (40, 33, 300), dtype), rng.standard_normal((40, 300, 150)).astype(dtype)
    for x, y in ((a, b), (a[:1], b), (a, b[:1])):
        same(ozaki.matmul(x, y, accuracy=accuracy), ozaki.matmul(on_device(x), on_device(y), accuracy=accuracy))


@pytest.mark.parametrize("accuracy", HALVES)
def test_a_row_has_the_same_bits_in_every_batch(accuracy):
    rng, dtype = np.random.default_rng(3), HALVES[accuracy]
    a, b = rows(rng, (4096, 1000), dtype), rng.standard_normal((1000, 384)).astype(dtype)
    plan = ozaki.plan((4096, 1000), (1000, 384), accuracy=accuracy)
    whole = ozaki.matmul(on_device(a), on_device(b), plan=plan)
    bits = cp.asnumpy(whole.bits if isinstance(whole, HalfArray) else whole.view(np.uint16))
    for some in (slice(0, 1), slice(5, 12), slice(100, 164), slice(3000, None), slice(None, None, 7)):
        same(bits[some].view(dtype), ozaki.matmul(on_device(a[some]), on_device(b), accuracy=accuracy))
    stacked = ozaki.matmul(on_device(a.reshape(16, 256, 1000)), on_device(b), accuracy=accuracy)
    same(bits.view(dtype).reshape(16, 256, 384), stacked)


@pytest.mark.parametrize("accuracy", HALVES)
def test_stacks_and_orders_in_memory(accuracy):
    rng, dtype = np.random.default_rng(4), HALVES[accuracy]
    a, b = rows(rng, (3, 200, 300), dtype), rng.standard_normal((3, 300, 100)).astype(dtype)
    expected = ozaki.matmul(a, b, accuracy=accuracy)
    x, y = on_device(a), on_device(np.ascontiguousarray(b.swapaxes(1, 2)))
    turned = HalfArray(y.bits.swapaxes(1, 2), y.format) if isinstance(y, HalfArray) else y.swapaxes(1, 2)
    same(expected, ozaki.matmul(x, turned, accuracy=accuracy))
    out = cp.zeros(expected.shape, np.uint16)
    into = HalfArray(out, "bfloat16") if accuracy == "bf16" else out.view(np.float16)
    assert ozaki.matmul(x, on_device(b), accuracy=accuracy, out=into) is into
    same(expected, into)


@pytest.mark.parametrize("accuracy", HALVES)
def test_tensors_by_kept_programs(accuracy):
    """Repeated calls of tensors, on a stream of their own, too, of prepared weights and into `out`."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch sees no GPU")
    rng, dtype = np.random.default_rng(5), HALVES[accuracy]
    a, b = (rng.standard_normal(shape).astype(dtype) for shape in ((4, 1000), (1000, 384)))
    expected, name = ozaki.matmul(a, b, accuracy=accuracy).view(np.int16), getattr(torch, np.dtype(dtype).name)
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            x, y = (torch.from_numpy(each.view(np.int16)).cuda().view(name) for each in (a, b))
            plan = ozaki.plan(x, y, accuracy=accuracy)
            right = ozaki.prepare(y, "right", plan)
            for _ in range(3):
                out = torch.zeros(4, 384, dtype=name, device="cuda")
                assert ozaki.matmul(x, y, out=out) is out
                for c in (out, ozaki.matmul(x, y), ozaki.matmul(x, right, plan=plan)):
                    assert type(c) is torch.Tensor and c.dtype == name and c.device == x.device
                    np.testing.assert_array_equal(c.view(torch.int16).cpu().numpy(), expected)
            with pytest.raises(TypeError, match=r"^a: requires a gradient"):
                ozaki.matmul(x.clone().requires_grad_(), y)
