"""PyTorch programs of 16-bit tensors within `ozaki.torch.emulate`: which products run, their bits in every batch."""

import hashlib
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest

import ozaki

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

import ozaki.torch  # noqa: E402
from ozaki.torch import addmm, emulate, matmul  # noqa: E402

FORMATS = {"bf16": torch.bfloat16, "fp16": torch.float16}
UNITS = {"bf16": 2.0**-8, "fp16": 2.0**-11}


@pytest.fixture(params=FORMATS)
def accuracy(request):
    torch.manual_seed(0)
    return request.param


@pytest.fixture
def half(accuracy):
    return FORMATS[accuracy]


@contextmanager
def reduced():
    """The decomposition of attention multiplies 16-bit floats."""
    before = torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed()
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(before)


PROGRAMS = {
    "bmm": (lambda a, b, c: torch.bmm(a, b), {"bmm"}),
    "baddbmm": (lambda a, b, c: torch.baddbmm(c, a, b, beta=0.5, alpha=-2), {"baddbmm"}),
    "addmm": (lambda a, b, c: torch.addmm(c[0], a[0], b[0], beta=0.5, alpha=-2), {"addmm"}),
    "addmm of a row": (lambda a, b, c: torch.addmm(c[0, 0], a[0], b[0]), {"addmm"}),
    "addmm beta 0": (lambda a, b, c: torch.addmm(c[0] * np.nan, a[0], b[0], beta=0), {"addmm"}),
    "addmm_": (lambda a, b, c: c[0].clone().addmm_(a[0], b[0]), {"addmm_"}),
    "addmv": (lambda a, b, c: torch.addmv(c[0, :, 0], a[0], b[0, :, 0], alpha=3), {"addmv"}),
    "out": (lambda a, b, c: torch.mm(a[0], b[0], out=torch.empty_like(c[0])), {"mm"}),
    "linear": (lambda a, b, c: functional.linear(a, b[0].T, c[0, 0]), {"addmm"}),
    "linear without bias": (lambda a, b, c: functional.linear(a, b[0].T), {"mm"}),
    "einsum": (lambda a, b, c: torch.einsum("bij,bjk->bki", a, b), {"bmm"}),
    "tensordot": (lambda a, b, c: torch.tensordot(a, b, dims=([0, 2], [0, 1])), {"mm"}),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(accuracy, half, name):
    program, operators = PROGRAMS[name]
    a, b, c = (torch.randn(shape, dtype=half) for shape in ((3, 6, 50), (3, 50, 8), (3, 6, 8)))
    exact, scale = program(*(x.double() for x in (a, b, c))), program(*(x.double().abs() for x in (a, b, c)))
    scale = torch.bmm(a.double().abs(), b.double().abs()).sum(0).max() * 3 + scale.abs().max()
    for infer in (False, True):
        with torch.inference_mode(infer), emulate(accuracy=accuracy, report=True) as run:
            found = program(a, b, c)
        assert found.dtype == half and {entry.operator for entry in run.account.entries} == operators
        assert not run.account.left and run.account.bound <= 2.1 * UNITS[accuracy]
        assert ((found.double() - exact).abs() <= 2.1 * UNITS[accuracy] * scale).all()


def test_results_are_those_of_the_library(accuracy, half):
    a, b, c = (torch.randn(shape, dtype=half) for shape in ((6, 50), (50, 8), (6, 8)))
    with emulate(accuracy=accuracy):
        found, sum_of_both = a @ b, torch.addmm(c, a, b, beta=0.5, alpha=2)
    assert torch.equal(found, ozaki.matmul(a, b, accuracy=accuracy))
    assert torch.equal(sum_of_both, ozaki.gemm(2, a, b, 0.5, c, accuracy=accuracy))
    assert torch.equal(sum_of_both, addmm(c, a, b, beta=0.5, alpha=2))


def test_what_is_left_alone_is_named(accuracy, half):
    x = torch.randn(2, 4, 10, 16, dtype=half)
    y = x[0]
    net = torch.nn.Conv1d(10, 3, 3).to(half)
    fused = torch.nn.MultiheadAttention(16, 4, batch_first=True).to(half).eval()
    with emulate(accuracy=accuracy) as run, torch.no_grad():
        functional.scaled_dot_product_attention(x, x, x)
        net(y)
        fused(y, y, y)
        for other in (torch.float32, torch.float64, torch.complex64):
            x.to(other) @ x.to(other).mT
    left = run.account.left
    assert run.account.products == 0
    for name in ("convolution", "_native_multi_head_attention"):
        assert left[name, "its products are inside"] == 1
    assert any("scaled_dot_product" in name and reason == "its products are inside" for name, reason in left)
    for name in ("float32", "float64", "complex64"):
        assert left["bmm", f"dtype {name}"] == 1
    with emulate(accuracy=accuracy), pytest.raises(RuntimeError, match="same dtype"):  # PyTorch's own error
        x[0, 0] @ x[0, 0].float().T


def hash_of(x):
    return hashlib.sha256(x.detach().contiguous().view(torch.int16).numpy().tobytes()).hexdigest()


def attention(x):
    q = x.unflatten(-1, (4, 16)).transpose(1, 2)
    with reduced():
        return functional.scaled_dot_product_attention(q, q, q)


def drawn(layer):
    """A layer none of whose biases is zero, as PyTorch initialises some."""
    for p in layer.parameters():
        torch.nn.init.normal_(p, std=0.1)
    return layer


def of_layers(dtype):
    """Programs of layers whose weights are drawn once."""
    linear = torch.nn.Linear(64, 30).to(dtype)
    several = drawn(torch.nn.MultiheadAttention(64, 4, batch_first=True).to(dtype))
    layer = drawn(torch.nn.TransformerEncoderLayer(64, 4, 96, dropout=0, batch_first=True).to(dtype))
    recurrent = drawn(torch.nn.GRU(64, 5, batch_first=True).to(dtype))
    single = torch.nn.Linear(64, 30)

    def encoder(x):
        with reduced():
            return layer(x)

    def autocast(x):
        with torch.autocast("cpu", dtype=dtype):
            return single(x.float())

    return {
        "linear": linear,
        "linear of sequences first": lambda x: linear(x.transpose(0, 1)).transpose(0, 1),
        "GRU": lambda x: recurrent(x)[0],
        "bmm": lambda x: torch.bmm(x, x.mT),
        "baddbmm": lambda x: torch.baddbmm(x @ x.mT, x, x.mT, beta=0.5, alpha=0.25),
        "einsum": lambda x: torch.einsum("bsi,oi->bso", x, linear.weight),
        "attention": attention,
        "MultiheadAttention": lambda x: several(x, x, x)[0],
        "TransformerEncoderLayer": encoder,
        "autocast": autocast,
    }


@pytest.mark.parametrize("name", of_layers(torch.float32))
def test_a_sequence_has_the_same_bits_in_every_batch(accuracy, half, name):
    program = of_layers(half)[name]
    x = torch.randn(64, 10, 64, dtype=half)
    x[:, :, 5] *= 30
    x[40] *= 100 if accuracy == "bf16" else 10
    found, gradients = set(), set()
    for batch in (1, 7, 64):
        some = x[:batch].clone().requires_grad_()
        with emulate(accuracy=accuracy) as run:
            y = program(some)
            (gradient,) = torch.autograd.grad(y.float().square().sum(), some)
        assert run.account.products and not run.account.left and y.dtype == gradient.dtype == half
        found.add(hash_of(y[0]))
        gradients.add(hash_of(gradient[0]))
    assert len(found) == len(gradients) == 1


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_a_row_has_the_same_bits_in_any_layout(accuracy, half, mode):
    """PyTorch adds a bias in the product of a contiguous operand only, and makes a stack the left operand at times."""
    linear, of_heads = torch.nn.Linear(64, 30).to(half), torch.randn(3, 64, 30, dtype=half)
    of_heads[:, ::5] *= 50  # so that the digits of rows differ
    x = torch.randn(6, 5, 64, dtype=half)
    x[2, 1, 3] *= 1000
    programs = (lambda x: linear(x), lambda x: functional.linear(x, linear.weight), lambda x: x @ of_heads[:, None])
    with emulate(accuracy=accuracy) as run:
        whole = [program(x).detach() for program in programs]
    turned = (
        x.transpose(0, 1).contiguous().transpose(0, 1),
        x.mT.contiguous().mT,
        x[..., None].repeat(1, 1, 1, 2)[..., 1],
    )
    with emulate(accuracy=accuracy), mode():
        for y in (x, *turned):
            y.requires_grad_(mode is torch.enable_grad)
            for program, expected in zip(programs, whole, strict=True):
                assert torch.equal(program(y), expected)
                assert torch.equal(program(y[:1]), expected[..., :1, :, :])
            for program, expected in zip((*programs[:2], lambda x: x @ of_heads), whole, strict=True):
                assert torch.equal(program(y[2]), expected[..., 2, :, :])
                assert torch.equal(program(y[2, 1]), expected[..., 2, 1, :])
        assert functional.linear(x[0, 0], linear.weight[0], linear.bias[0]).shape == ()
    assert run.account.products == 3 and not run.account.left


def test_blocks_within_one_another_share_out_the_dtypes(accuracy, half):
    """The decomposition of attention multiplies float32: the outer block has these products."""
    x = torch.randn(2, 4, 10, 16, dtype=half)
    with (
        emulate(accuracy="exact", dtypes=(torch.float32,)) as outer,
        emulate(accuracy=accuracy) as inner,
        sdpa_kernel(SDPBackend.MATH),
    ):
        functional.scaled_dot_product_attention(x, x, x)
        x @ x.mT
    assert (outer.account.products, inner.account.products) == (2, 1)
    assert inner.account.left == {("bmm", "dtype float32"): 2} and not outer.account.left


@pytest.mark.parametrize("infer", [False, True])
def test_exact_sums_of_float32_have_the_same_bits_in_every_batch(infer):
    """Of a transposed batch one sequence alone is contiguous. Products of other formats are those of PyTorch."""
    torch.manual_seed(0)
    linear, x = torch.nn.Linear(20, 8), torch.randn(5, 7, 20).transpose(0, 1)
    with torch.inference_mode(infer), emulate(accuracy="exact", dtypes=(torch.float32,)) as run:
        whole, alone = linear(x), linear(x[:1])
        other = linear.double()(x.double())
    assert torch.equal(whole[:1], alone)
    assert [entry.operator for entry in run.account.entries] == ["addmm", "addmm"]
    assert torch.equal(other, linear(x.double()))


def test_a_step_of_an_optimiser_under_autocast(accuracy, half):
    net = torch.nn.Sequential(torch.nn.Linear(20, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    before = [p.detach().clone() for p in net.parameters()]
    step = torch.optim.SGD(net.parameters(), lr=0.1)
    with emulate(accuracy=accuracy) as run:
        with torch.autocast("cpu", dtype=half):
            loss = net(torch.randn(8, 20)).float().square().sum()
        loss.backward()
        step.step()
    assert not run.account.left
    assert sum(entry.count for entry in run.account.entries if entry.operator == "mm") == 3  # of gradients
    assert {entry.dtype for entry in run.account.entries} == {str(half).removeprefix("torch.")}
    for p, q in zip(net.parameters(), before, strict=True):
        assert p.dtype == torch.float32 and p.isfinite().all() and not torch.equal(p, q)


@pytest.mark.parametrize("emulated", [True, False])
def test_gradients_of_gradients(accuracy, half, emulated):
    a, b, c = (torch.randn(shape, dtype=half).requires_grad_() for shape in ((3, 6, 9), (3, 9, 5), (3, 6, 5)))

    def programs(x, y, z):
        if emulated:
            return torch.bmm(x, y), torch.baddbmm(z, x, y, alpha=0.5)
        return matmul(x, y), addmm(z, x, y, alpha=0.5)

    def found(*operands):
        both = sum(f.square().sum() for f in programs(*operands))
        first = torch.autograd.grad(both, operands, create_graph=True)
        return torch.autograd.grad(sum(x.square().sum() for x in first), operands)

    with ExitStack() as stack:
        run = stack.enter_context(emulate(accuracy=accuracy)) if emulated else None
        second = found(a, b, c)
    assert run is None or (run.account.products > 6 and not run.account.left)
    expected = found(*(x.detach().double().requires_grad_() for x in (a, b, c)))
    for x, y in zip(second, expected, strict=True):
        assert x.dtype == half
        torch.testing.assert_close(x.double(), y, rtol=0.1, atol=0.05 * float(y.abs().max()))


@pytest.mark.parametrize("alpha", [1, -0.3])
def test_gradients_of_broadcast_operands_are_rounded_once(accuracy, half, alpha):
    """The sum over the axes along which an operand was broadcast is a part of the product."""
    a, b, grad = (torch.randn(shape, dtype=half) for shape in ((2, 1, 4, 9), (3, 9, 5), (2, 3, 4, 5)))
    a.requires_grad_()
    b.requires_grad_()
    addmm(torch.zeros((), dtype=half), a, b, alpha=alpha, accuracy=accuracy).backward(grad)
    for i in range(2):
        left, right = grad[i].movedim(0, 1).reshape(4, 15), b.detach().mT.reshape(15, 9)
        assert torch.equal(a.grad[i, 0], ozaki.gemm(alpha, left, right, 0, None, accuracy=accuracy))
    for j in range(3):
        left, right = a.detach().reshape(8, 9).mT, grad[:, j].reshape(8, 5)
        assert torch.equal(b.grad[j], ozaki.gemm(alpha, left, right, 0, None, accuracy=accuracy))
    rows, weights = (torch.randn(shape, dtype=half, requires_grad=True) for shape in ((3, 4, 9), (9, 5)))
    matmul(rows, weights).backward(grad[0])
    assert torch.equal(weights.grad, ozaki.matmul(rows.detach().reshape(12, 9).mT, grad[0].reshape(12, 5)))
    assert torch.equal(rows.grad, ozaki.matmul(grad[0], weights.detach().mT))


def test_dtypes_that_do_not_fit_are_refused(accuracy, half):
    other = torch.float32
    for dtypes, options, error, message in (
        (("bfloat16",), {}, TypeError, r"dtypes: \('bfloat16',\); expected a tuple of dtypes of torch"),
        (half, {}, TypeError, "dtypes: torch.*; expected a tuple"),
        ((torch.int8,), {}, TypeError, "dtypes: torch.int8; expected dtypes of 16-bit or longer floats"),
        ((half, other), {"accuracy": accuracy}, ValueError, f"dtypes: torch.float32, but accuracy='{accuracy}' is of"),
        ((half,), {"accuracy": "fp32"}, ValueError, f"dtypes: {half}, whose products would be float32 .*'{accuracy}'"),
        ((half,), {"scheme": "digits"}, ValueError, f"dtypes: {half}, whose products would be float32"),
    ):
        with pytest.raises(error, match=message):
            emulate(dtypes=dtypes, **options)
    x = torch.randn(4, 4, dtype=half)
    with emulate(dtypes=(half, other), reproducible=True) as run:
        found = x @ x, x.float() @ x.float()
    assert [y.dtype for y in found] == [half, other] and run.account.products == 2
    assert torch.equal(found[0], ozaki.matmul(x, x))


def test_errors_of_operators_name_the_argument(accuracy, half):
    a, b, c = (torch.randn(shape, dtype=half) for shape in ((3, 6, 9), (2, 9, 5), (6, 5)))
    with pytest.raises(ValueError, match=r"b: batch \(2,\) .* does not broadcast .*; expected equal sizes, or 1"):
        matmul(a, b)
    with pytest.raises(ValueError, match=r"c: shape \(6, 3\); expected \(6, 5\), or one that broadcasts to it"):
        addmm(c[:, :3], a[0], b[0])
    for x in (b[0].float(), b[0].to(next(x for x in FORMATS.values() if x != half))):
        assert matmul(a, x).dtype == torch.float32
        with pytest.raises(ValueError, match=f"accuracy: '{accuracy}' is of two .* and b is"):
            matmul(a, x, accuracy=accuracy)


@pytest.mark.parametrize("eight", [torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("other", [None, torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_compiled_programs_know_the_dtype_of_products_of_8_bits(eight, other):
    """Floats of 8 bits count as bfloat16, also of tensors without elements, by which a program is compiled."""
    torch.manual_seed(0)
    a, b = torch.randn(4, 8).to(eight), torch.randn(8, 3).to(other or eight)
    wanted = torch.promote_types(torch.bfloat16, other or torch.bfloat16)
    assert matmul(a, b).dtype == wanted
    with FakeTensorMode() as fake:
        assert matmul(fake.from_tensor(a), fake.from_tensor(b)).dtype == wanted
