"""PyTorch's tracers, transforms and lazy views beside `ozaki.torch.emulate` and `ozaki.matmul`: never a wrong value."""

import pytest

import ozaki

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import torch.autograd.forward_ad as forward_ad  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

import ozaki.torch  # noqa: E402
from ozaki.torch import emulate  # noqa: E402

FP64 = {"accuracy": "fp64", "reproducible": True}

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def made(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype)


# Lazy conjugates and negatives ---------------------------------------------------------------------------------------

FACTORISED = {
    "pinv": lambda a: torch.linalg.pinv(a[:3]),
    "pinv, hermitian": lambda a: torch.linalg.pinv(a + a.mH, hermitian=True),
    "pinverse": lambda a: torch.pinverse(a[:, :2]),
    "lstsq": lambda a: torch.linalg.lstsq(a[:, :2], a)[:2],
    "solve": lambda a: torch.linalg.solve(a, a.mH),
    "inv": lambda a: torch.linalg.inv(a.conj()),
    "det": lambda a: torch.linalg.det(a.adjoint()),
    "slogdet": lambda a: torch.linalg.slogdet(a)[1],
    "eigvalsh": lambda a: torch.linalg.eigvalsh(a + a.mH),
    "eigh": lambda a: torch.linalg.eigh(a + a.mH)[1].abs(),
    "eigvals": lambda a: torch.linalg.eigvals(a).abs().sort().values,
    "svdvals": lambda a: torch.linalg.svdvals(a.mH),
    "svd": lambda a: torch.linalg.svd(a)[0].abs(),
    "qr": lambda a: torch.linalg.qr(a)[1].abs(),
    "cholesky": lambda a: torch.linalg.cholesky(a @ a.mH + 4 * torch.eye(4)),
    "cholesky_solve": lambda a: torch.cholesky_solve(a, torch.tril(a) + 4 * torch.eye(4)),
    "lu": lambda a: torch.linalg.lu(a)[2].abs(),
    "solve_triangular": lambda a: torch.linalg.solve_triangular(a.mH + 4 * torch.eye(4), a, upper=True),
    "matrix_exp": lambda a: torch.linalg.matrix_exp(a.mH),
    "matrix_power": lambda a: torch.linalg.matrix_power(a.mH, -3),
    "matrix_norm": lambda a: torch.linalg.matrix_norm(a, "nuc"),
    "cond": lambda a: torch.linalg.cond(a),
    "tensorsolve": lambda a: torch.linalg.tensorsolve(a.reshape(2, 2, 4), a[:2, :2].conj()),
    "multi_dot": lambda a: torch.linalg.multi_dot([a, a.mH, a.conj()]),
    "householder": lambda a: torch.linalg.householder_product(a, a[0]),
    "einsum": lambda a: torch.einsum("ij,kj,kl->il", a, a.conj(), a.mH),
    "linear": lambda a: torch.nn.functional.linear(a.conj(), a.mH, a[0].conj()),
    "bilinear": lambda a: torch.einsum("i,kij,j->k", a[0].conj(), a[None] * a[:, :, None], a[1]),
    "addbmm": lambda a: torch.addbmm(a.conj(), a[None].conj(), a.mH[None], beta=2 - 1j if a.is_complex() else 2),
    "negatives": lambda a: (
        torch.view_as_real(a.conj().resolve_conj()).sum(-1) @ a.conj().imag
        if a.is_complex()
        else torch._neg_view(a) @ torch._neg_view(a.T)
    ),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("name", FACTORISED)
def test_values_and_gradients_are_those_outside(name, dtype):
    def run():
        x = a.clone().requires_grad_()
        found = FACTORISED[name](x)
        found = found if isinstance(found, tuple) else (found,)
        (gradient,) = torch.autograd.grad(sum((y * torch.arange(1, y.numel() + 1).reshape(y.shape)).abs().sum()
                                              for y in found), x)  # fmt: skip
        return [y.detach() for y in found], gradient

    a = made(4, 4, dtype=dtype)
    expected, of_expected = run()
    with emulate(**FP64) as account:
        found, gradient = run()
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(gradient, of_expected, rtol=1e-7, atol=1e-8)
    assert account.account.products + len(account.account.left) > 0
    with torch.inference_mode(), emulate(**FP64):
        found = FACTORISED[name](a)
    torch.testing.assert_close(found if isinstance(found, tuple) else [found], type(found)(expected)
                               if isinstance(found, tuple) else expected, rtol=1e-9, atol=1e-9)  # fmt: skip


def test_a_pseudo_inverse_is_one_and_is_named():
    a = made(3, 2, dtype=torch.complex128)
    with emulate(**FP64) as run:
        x = torch.linalg.pinv(a)
    torch.testing.assert_close(a @ x @ a, a, rtol=1e-12, atol=1e-12)
    assert run.account.left["linalg_pinv", "its products are inside"] == 1


def test_zeros_without_memory_are_zeros():
    zero, a = torch._efficientzerotensor((3, 3), dtype=torch.float64), made(3, 3)
    with emulate(**FP64):
        for found in (zero @ a, torch.dot(zero[0], a[0]), torch.vdot(a[0], zero[0]), torch.addmm(zero, zero, a)):
            assert not found.count_nonzero()
    assert not ozaki.matmul(zero, a, **FP64).count_nonzero()
    with pytest.raises(TypeError, match=r"^out: a lazy conjugate, negative or zero"):
        ozaki.matmul(a, a, out=zero)


# Tracers -------------------------------------------------------------------------------------------------------------

PROGRAMS = {
    "@": lambda a, b: a @ b,
    "matrix @ vector": lambda a, b: a @ b[:, 0],
    "dot": lambda a, b: torch.dot(a[0], b[:, 0]),
    "vdot": lambda a, b: torch.vdot(a[0], b[:, 0]),
    "addmm": lambda a, b: torch.addmm(b[0], a, b, beta=2, alpha=3),
    "addmm beta 0": lambda a, b: torch.addmm(b[0], a, b, beta=0, alpha=3),
    "addmv": lambda a, b: torch.addmv(a[:, 0], a, b[:, 0], alpha=3),
    "addbmm": lambda a, b: torch.addbmm(b[0], a.expand(2, -1, -1), b.expand(2, -1, -1)),
    "linear": lambda a, b: torch.nn.functional.linear(a, b.T, b[0]),
    "in place": lambda a, b: (a @ b).addmm_(a, b),
    "conjugates": lambda a, b: a.conj() @ b.mH.mT,
    "gradient": lambda a, b: torch.func.grad(lambda x: (x @ b).abs().square().sum())(a),
    "hessian": lambda a, b: torch.func.hessian(lambda x: (x @ b.real).square().sum())(a[0].real),
    "vmap": lambda a, b: torch.vmap(lambda x: x @ b)(a),
}


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_graph_holds_the_products_of_the_block(name, mode):
    if (name, mode) == ("hessian", "symbolic"):
        pytest.skip("PyTorch itself does not trace it")
    program, a, b = PROGRAMS[name], made(3, 4, dtype=torch.complex128), made(4, 5, dtype=torch.complex128)
    with emulate(**FP64) as run:
        graph = make_fx(program, tracing_mode=mode)(a, b)
    calls = [str(node.target) for node in graph.graph.nodes]
    assert sum(call.startswith("ozaki.") for call in calls) == sum(run.account.traced.values()) >= 1
    assert not any(call.startswith(("aten.mm", "aten.addmm", "aten.dot", "aten.bmm", "aten.mv")) for call in calls)
    assert run.account.products == 0 and "traced" in str(run)
    for x, y in ((a, b), (2 * a, b - 1)):
        torch.testing.assert_close(graph(x, y), program(x, y), rtol=1e-12, atol=1e-12)
        with emulate(**FP64):
            inside = program(x, y)
        if name not in ("in place", "gradient"):
            torch.testing.assert_close(graph(x, y), inside, rtol=0, atol=1e-14)


def test_a_graph_keeps_the_accuracy_of_the_block():
    a, b = torch.tensor([[1e16, 1.0, -1e16]]).double(), torch.ones(3, 1, dtype=torch.float64)
    with emulate(accuracy=120):
        graph = make_fx(torch.matmul)(a, b)
        _, linear = torch.func.linearize(lambda x: x @ b, a)
    assert graph(a, b).item() == linear(a).item() == 1.0


def test_a_product_that_no_graph_can_hold_is_left_and_counted():
    a, b = made(3, 3), made(3, 3)
    with emulate(dtypes=(torch.float32,)) as run:
        graph = make_fx(torch.matmul)(a, b)
    assert torch.equal(graph(2 * a, b), 2 * a @ b) and run.account.left == {("mm", "dtype float64"): 1}
    assert not run.account.traced


def test_wrong_shapes_are_errors_under_a_tracer():
    a = made(3, 4)
    for mode in ("real", "fake", "symbolic"):
        with emulate(**FP64), pytest.raises(RuntimeError):
            make_fx(torch.matmul, tracing_mode=mode)(a, a)


TRANSFORMS = {
    "linearize": lambda f, a, t: torch.func.linearize(f, a)[1](t),
    "jvp": lambda f, a, t: torch.func.jvp(f, (a,), (t,)),
    "vjp": lambda f, a, t: torch.func.vjp(f, a)[1](f(a)),
    "jacrev": lambda f, a, t: torch.func.jacrev(f)(a),
    "jacfwd": lambda f, a, t: torch.func.jacfwd(f)(a),
    "hessian": lambda f, a, t: torch.func.hessian(lambda x: f(x).square().sum())(a),
    "vmap": lambda f, a, t: torch.vmap(f)(torch.stack([a, t])),
    "functionalize": lambda f, a, t: torch.func.functionalize(f)(a),
    "traced functionalize": lambda f, a, t: make_fx(torch.func.functionalize(f))(a)(t),
    "forward": lambda f, a, t: _forward(f, a, t),
    "jacobian": lambda f, a, t: torch.autograd.functional.jacobian(f, a, vectorize=True, strategy="forward-mode"),
    "checkpoint": lambda f, a, t: torch.autograd.grad(
        torch.utils.checkpoint.checkpoint(f, x := a.clone().requires_grad_(), use_reentrant=False).sum(), x
    ),
    "jit": lambda f, a, t: torch.jit.trace(f, a)(t),
    "compile": lambda f, a, t: torch.compile(f, backend="aot_eager")(a),
    "pre-dispatch": lambda f, a, t: make_fx(f, pre_dispatch=True)(a)(t),
}


def _forward(f, a, t):
    with forward_ad.dual_level():
        return tuple(forward_ad.unpack_dual(f(forward_ad.make_dual(a, t))))


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name):
    a, t, b = made(3, 4), made(3, 4), made(4, 5)
    expected = TRANSFORMS[name](lambda x: (x @ b).sin() @ b.T, a, t)
    with emulate(**FP64) as run:
        found = TRANSFORMS[name](lambda x: (x @ b).sin() @ b.T, a, t)
        if name != "linearize":  # whose result is that of a graph, which holds the products
            assert run.account.products + sum(run.account.traced.values())
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    if name in ("linearize", "jvp", "vmap", "functionalize", "traced functionalize", "forward", "jit", "jacrev"):
        direct = TRANSFORMS[name](lambda x: ozaki.torch.matmul(ozaki.torch.matmul(x, b).sin(), b.T), a, t)
        torch.testing.assert_close(direct, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("trace", [False, True])
def test_operators_that_call_functions_run_and_are_named(trace):
    a, b = made(3, 3), made(3, 3)

    def function(x, y):
        return torch.cond(x.sum() > -1e9, torch.matmul, torch.add, (x, y)) @ y

    with emulate(**FP64) as run:
        found = (make_fx(function)(a, b) if trace else function)(a, b)
    torch.testing.assert_close(found, a @ b @ b, rtol=1e-12, atol=1e-12)
    assert run.account.left["cond", "its products are inside"]
    assert (run.account.products, run.account.traced) == ((0, {"mm": 1}) if trace else (1, {}))


def traced(call, **options):
    return make_fx(lambda x, y: call(x, y), **options)


# What only concrete tensors can do -----------------------------------------------------------------------------------


def test_products_without_derivatives_refuse_tracers_and_tangents():
    a = made(3, 3)
    for call in (ozaki.matmul, lambda x, y: ozaki.linalg.solve(x, y).x, lambda x, y: ozaki.einsum("ij,jk", x, y)):
        for options in ({}, {"pre_dispatch": True}):
            with pytest.raises(TypeError, match=r"a tensor of a traced program, .*; use ozaki.torch.matmul"):
                traced(call, **options)(a, a)
        with forward_ad.dual_level(), pytest.raises(TypeError, match="has a forward derivative, which is not tracked"):
            call(a, forward_ad.make_dual(a, a))
    with forward_ad.dual_level():
        assert torch.equal(ozaki.matmul(a, a, **FP64), ozaki.torch.matmul(a, a, **FP64))


# Tensors without elements, by which a program is compiled ------------------------------------------------------------

DTYPES = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128", "int64", "int32", "uint8", "bool")


@pytest.mark.parametrize("first", DTYPES)
@pytest.mark.parametrize("second", DTYPES)
def test_compiled_programs_know_the_dtypes_of_products(first, second):
    """Integers count as float64. Code that is compiled for another dtype reads the memory of a result wrongly."""
    a, b = torch.ones(2, 3).to(getattr(torch, first)), torch.ones(3, 2).to(getattr(torch, second))
    for options in ({}, {"accuracy": "fp64"}):
        with FakeTensorMode() as fake:
            foretold = ozaki.torch.matmul(fake.from_tensor(a), fake.from_tensor(b), **options)
        assert foretold.dtype == ozaki.torch.matmul(a, b, **options).dtype


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64, torch.complex64])
def test_results_lie_in_memory_as_compiled_programs_expect(dtype):
    """Of a stack beside one with more axes the product computes another order; inductor refuses such a result."""
    for of_a, of_b in (((3,), (2, 3)), ((2, 3), (3,)), ((2, 1), (1, 3)), ((5, 2, 3), (2, 1)), ((3,), (5, 1, 3))):
        a, b, c = made(*of_a, 4, 5, dtype=dtype), made(*of_b, 5, 6, dtype=dtype), made(6, dtype=dtype)
        for function in (lambda a, b, c: ozaki.torch.matmul(a, b), lambda a, b, c: ozaki.torch.addmm(c, a, b)):
            with FakeTensorMode() as fake:
                foretold = function(*map(fake.from_tensor, (a, b, c)))
            found = function(a, b, c)
            assert found.shape == foretold.shape and found.stride() == foretold.stride()
