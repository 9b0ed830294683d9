"""PyTorch: tensors in and out, operators with gradients, and whole programs under `emulate`."""

import numpy as np
import pytest
from tiers import some_first

import ozaki

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import ozaki.torch  # noqa: E402
from ozaki.torch import addmm, bmm, emulate, matmul  # noqa: E402

FP64 = {"accuracy": "fp64", "reproducible": True}
DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def place(request):
    """A device of PyTorch."""
    if request.param == "cuda":
        pytest.importorskip("cupy", reason="a real device needs CuPy")
    torch.manual_seed(0)
    return request.param


def made(*shape, dtype=torch.float64, place="cpu", grad=False):
    return torch.randn(*shape, dtype=dtype, device=place, requires_grad=grad)


def array(x):
    return x.detach().cpu().resolve_conj().numpy()


# Tensors in, tensors out ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_bits_of_numpy(place, dtype):
    a, b = made(3, 20, 30, dtype=dtype, place=place), made(30, 10, dtype=dtype, place=place)
    for x, y in (
        (a, b), (a[0], b), (a[0].T.contiguous().T, b.T.contiguous().T), (a[:, ::2, ::3], b[::3]), (a[0, 0], b),
        (a[0], b[:, 0]), (a[0, 0], b[:, 0]), (a[:0], b), (a[..., :0], b[:0]), (a[0].conj(), b),
    ):  # fmt: skip
        c = ozaki.matmul(x, y, reproducible=True)
        assert isinstance(c, torch.Tensor) and c.device == a.device and c.dtype == dtype
        np.testing.assert_array_equal(array(c), ozaki.matmul(array(x), array(y), reproducible=True))


def test_reports_plans_prepared_operands_and_out(place):
    a, b = made(20, 30, place=place), made(30, 10, place=place)
    c, report = ozaki.matmul(a, b, return_report=True, **FP64)
    assert isinstance(c, torch.Tensor) and report.scheme == "residues"
    plan = ozaki.plan(a, b, **FP64)
    left = ozaki.prepare(a, "left", plan)
    assert torch.equal(ozaki.matmul(left, b, plan=plan), c)
    out = torch.empty(20, 10, dtype=torch.float64, device=place)
    assert ozaki.matmul(a, b, out, **FP64) is out and torch.equal(out, c)
    strided = torch.empty(10, 20, dtype=torch.float64, device=place).T
    assert ozaki.matmul(a, b, out=strided, **FP64) is strided and torch.equal(strided, c)
    rest = ozaki.gemm(-1, a, b, 1, c, accuracy="dd", reproducible=True)
    assert torch.equal(rest, ozaki.residual(a, b, c, accuracy="dd")) and rest.abs().max() < 1e-13
    assert torch.equal(ozaki.gemm(2, a, a, 0, None, trans_b="T", **FP64), ozaki.matmul(2 * a, a.T, **FP64))
    assert ozaki.mparray(a).shape == (20, 30) and ozaki.matmul(a, b, dtype="mp").bits == 53


def test_sixteen_bits_are_float32(place):
    a, b = made(5, 40, place=place), made(40, 3, place=place)
    for of_a, of_b in ((torch.float16, torch.bfloat16), (torch.bfloat16, torch.float32)):
        x, y = a.to(of_a), b.to(of_b)
        c = ozaki.matmul(x, y, reproducible=True)
        assert c.dtype == torch.float32
        assert torch.equal(c, ozaki.matmul(x.float(), y.float(), reproducible=True))
        assert matmul(x, y).dtype == torch.float32
    assert ozaki.matmul(a.half(), b, reproducible=True).dtype == torch.float64


def test_dtypes_of_pytorch_are_those_of_numpy(place):
    a = made(4, 4, dtype=torch.float32, place=place)
    for dtype in (torch.float64, torch.float32):
        found = ozaki.matmul(a, a, dtype=dtype, accuracy=40)
        assert found.dtype == dtype and torch.equal(found, ozaki.matmul(a, a, dtype=str(dtype)[6:], accuracy=40))
    whole = torch.arange(9, device=a.device).reshape(3, 3)
    assert torch.equal(ozaki.matmul(whole, whole, dtype=torch.int64).cpu(), whole.cpu() @ whole.cpu())
    assert ozaki.linalg.solve(a, a, dtype=torch.float64).x.dtype == torch.float64
    with pytest.raises(ValueError, match=r"^dtype: 'float16' is of two float16 operands"):
        ozaki.matmul(a, a, dtype=torch.float16)


def test_inputs_are_neither_copied_nor_changed(place):
    a = made(4, 4, place=place)
    before = a.clone()
    assert ozaki.prepare(a, "left", ozaki.plan(a, a, **FP64)).slices.x.shape[-2:] == (4, 4)
    ozaki.matmul(a, a, **FP64)
    assert torch.equal(a, before)


BAD = {
    "a NumPy array beside": (lambda a: ozaki.matmul(a, np.eye(3)), TypeError, "b: numpy.ndarray beside a torch tensor"),
    "a gradient": (
        lambda a: ozaki.matmul(a, a.clone().requires_grad_()),
        TypeError,
        r"b: requires a gradient, which is not tracked here; use b.detach\(\) \(of products ozaki.torch.matmul",
    ),
    "sparse": (lambda a: ozaki.matmul(a.to_sparse(), a), TypeError, "a: a tensor of layout torch.sparse_coo"),
    "sparse operator": (lambda a: matmul(a.to_sparse(), a), TypeError, "a: a tensor of layout torch.sparse_coo"),
    "meta": (lambda a: ozaki.matmul(a, torch.ones(3, 3, device="meta")), ValueError, "b: lies on meta; expected a CPU"),
    "two devices": (
        lambda a: matmul(a, torch.ones(3, 3, dtype=a.dtype, device="meta")), ValueError, "b: lies on meta"
    ),
    "integers": (lambda a: ozaki.matmul(a.long() + 2**53 + 1, a), ValueError, r"a: element \[.*\] is 9007199254740"),
    "complex halves": (lambda a: ozaki.matmul(a, a.to(torch.complex32)), TypeError, "b: dtype torch.complex32 is not"),
    "shapes": (lambda a: matmul(a, a[:2]), ValueError, "b: shape"),
    "shapes of vectors": (lambda a: matmul(a, a[0, :2]), ValueError, r"b: shape \(2,\) does not fit a of"),
    "a scalar": (lambda a: matmul(a, a[0, 0]), ValueError, "b: a scalar"),
    "a prepared one": (
        lambda a: matmul(a, ozaki.prepare(a, "right", ozaki.plan(a, a, scheme="residues"))), TypeError,
        r"b: Prepared; expected a torch tensor \(ozaki.matmul takes prepared operands",
    ),
    "an array": (lambda a: matmul(a, np.eye(3)), TypeError, "b: ndarray; expected a torch tensor"),
    "bmm of matrices": (lambda a: bmm(a, a), ValueError, r"a: shape \(3, 3\); expected three axes"),
    "bmm of other stacks": (lambda a: bmm(a.expand(2, 3, 3), a.expand(4, 3, 3)), ValueError, "b: 4 matrices, but a"),
    "addmm of vectors": (lambda a: addmm(a, a, a[0]), ValueError, r"b: shape \(3,\); expected a matrix"),
    "accuracy": (lambda a: matmul(a, a, accuracy="best"), ValueError, "accuracy: 'best' is not known"),
    "accuracy of a dtype": (lambda a: matmul(a, a, accuracy=1e-400 or 0.0), ValueError, "accuracy: 0.0"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*ComplexHalf", "ignore:.*[Ss]parse")
@pytest.mark.parametrize("case", BAD)
def test_what_is_refused(place, case):
    call, error, message = BAD[case]
    with pytest.raises(error, match=f"^{message}"):
        call(made(3, 3, place=place))


@pytest.mark.filterwarnings("ignore:.*quantized")
def test_quantised_tensors_are_refused():
    x = torch.quantize_per_tensor(torch.ones(2, 2), 0.1, 0, torch.qint8)
    with pytest.raises(TypeError, match=r"^a: a quantised tensor; use a.dequantize\(\)"):
        ozaki.matmul(x, torch.ones(2, 2))


def test_out_is_written_or_refused(place):
    a = made(3, 3, place=place)
    for out in (made(3, 3, dtype=torch.complex128, place=place).conj(), torch._neg_view(a.clone()), a.half()):
        with pytest.raises((TypeError, ValueError), match=r"^out: "):
            ozaki.matmul(a.to(out.dtype if out.is_complex() else a.dtype), a, out=out)
    out = torch.empty_like(a)
    assert ozaki.matmul(a, a, out=(out,), **FP64) is out and torch.equal(out, ozaki.matmul(a, a, **FP64))
    x = made(3, 3, place=place, grad=True)
    y = 1 * x
    z = (y * y).sum()
    ozaki.matmul(a, a, out=y.detach())
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()


def test_libraries_are_not_mixed_in_einsum(place):
    with pytest.raises(TypeError, match=r"^operand 0: numpy.ndarray beside a torch tensor"):
        ozaki.einsum("ij,jk", np.ones((2, 2)), made(2, 2, place=place))
    assert isinstance(ozaki.einsum("ij,jk", made(2, 2, place=place), made(2, 2, place=place)), torch.Tensor)


# Operators -----------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
@pytest.mark.parametrize(
    "dtypes", some_first(1, [(torch.float64,) * 2, (torch.complex128,) * 2, (torch.complex128, torch.float64)])
)
def test_gradients(place, dtypes):
    a = made(2, 2, 3, dtype=dtypes[0], place=place, grad=True)
    b = made(3, 2, dtype=dtypes[1], place=place, grad=True)
    c = made(2, dtype=dtypes[0], place=place, grad=True)
    options = {"nondet_tol": 0.0, "fast_mode": False}
    assert torch.autograd.gradcheck(lambda x, y: matmul(x, y, **FP64), (a, b), **options)
    assert torch.autograd.gradgradcheck(lambda x, y: matmul(x, y, **FP64), (a[:1, :2], b[:, :2]))
    assert torch.autograd.gradcheck(lambda x, y: matmul(x[0, 0], y, **FP64), (a, b), **options)
    factors = {"beta": 2 - 1j, "alpha": 0.5j} if a.is_complex() else {"beta": -2, "alpha": 0.5}
    options["check_forward_ad"] = True
    assert torch.autograd.gradcheck(lambda x, y: matmul(x, y, **FP64), (a, b), **options)
    assert torch.autograd.gradcheck(lambda *x: addmm(*x, **factors, **FP64), (c, a, b), **options)


def test_gradients_are_products_of_the_same_choices(place):
    a, b = made(6, 50, place=place, grad=True), made(50, 4, place=place, grad=True)
    grad = made(6, 4, place=place)
    matmul(a, b, **FP64).backward(grad)
    assert torch.equal(a.grad, ozaki.matmul(grad, b.detach().T, **FP64))
    assert torch.equal(b.grad, ozaki.matmul(a.detach().T, grad, **FP64))


def test_shapes_of_torch(place):
    a, b = made(2, 1, 3, 4, place=place), made(5, 4, 6, place=place)
    for x, y in ((a, b), (a[0, 0], b), (a, b[0]), (a[0, 0, 0], b), (a, b[0, :, 0]), (a[0, 0, 0], b[0, :, 0])):
        torch.testing.assert_close(matmul(x, y, **FP64), torch.matmul(x, y))
    x, y, z = made(3, 2, 4, place=place), made(3, 4, 5, place=place), made(3, 2, 5, place=place)
    torch.testing.assert_close(bmm(x, y, **FP64), torch.bmm(x, y))
    torch.testing.assert_close(
        addmm(z[0], x[0], y[0], beta=2, alpha=-1), torch.addmm(z[0], x[0], y[0], beta=2, alpha=-1)
    )
    torch.testing.assert_close(addmm(z, x, y, beta=0), torch.bmm(x, y))


def test_vmap(place):
    a, b, c = made(4, 2, 3, 7, place=place), made(7, 5, place=place), made(4, 5, place=place)
    vmap = torch.func.vmap
    torch.testing.assert_close(vmap(lambda x: matmul(x, b))(a), a @ b)
    torch.testing.assert_close(vmap(lambda x, y: matmul(x, y), in_dims=(2, None))(a, b), (a @ b).movedim(2, 0)[:, :, :])
    torch.testing.assert_close(vmap(vmap(lambda x: matmul(x, b)))(a), a @ b)
    torch.testing.assert_close(vmap(lambda y: matmul(a[0, 0], y), in_dims=1)(b), (a[0, 0] @ b).T)
    torch.testing.assert_close(vmap(lambda x, z: addmm(z, x, b))(a, c), a @ b + c[:, None, None])
    torch.testing.assert_close(vmap(lambda z: addmm(z, a[0, 0], b))(c), a[0, 0] @ b + c[:, None])
    per_row = vmap(torch.func.grad(lambda x: matmul(x, b).square().sum()))(a[0, 0])
    torch.testing.assert_close(per_row, 2 * a[0, 0] @ b @ b.T)


@pytest.mark.parametrize(
    "accuracy",
    [None, "fp64", 60, 1e-20, ozaki.Accuracy("row-column", 1e-17), ozaki.Accuracy("normwise", 1e-15 / 3)],
)
def test_accuracies_are_arguments_of_operators(accuracy):
    a, b = made(5, 9), made(9, 4)
    assert torch.equal(matmul(a, b, accuracy=accuracy), ozaki.matmul(a, b, accuracy=accuracy))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_operators_are_as_pytorch_asks(place):
    a, b = made(3, 4, place=place, grad=True), made(4, 5, place=place, grad=True)
    choices = "fp64", "auto", None, "auto", True, False, None, None
    torch.library.opcheck(torch.ops.ozaki.matmul.default, (a, b, *choices))
    torch.library.opcheck(torch.ops.ozaki.addmm.default, (b[0], a, b, 2, 1.5, *choices))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_operators_and_compiled_code_under_vmap(place):
    a, b = made(5, 3, 4, place=place), made(4, 2, place=place)
    choices = "fp64", "auto", None, "auto", True, False, None, None
    found = torch.vmap(lambda x: torch.ops.ozaki.matmul(x, b, *choices))(a)
    assert torch.equal(found, ozaki.matmul(a, b, **FP64))
    of_vmap = torch.vmap(lambda x: matmul(x, b, **FP64))
    assert torch.equal(torch.compile(of_vmap, fullgraph=True, backend="aot_eager")(a), found)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_compiled_code(place):
    a, b = made(6, 7, place=place, grad=True), made(7, 3, place=place, grad=True)
    compiled = torch.compile(lambda x, y: 2 * addmm(x[:, :3], x, y, **FP64), fullgraph=True, backend="aot_eager")
    found, wanted = compiled(a, b), 2 * addmm(a[:, :3], a, b, **FP64)
    assert torch.equal(found, wanted)
    of_found, of_wanted = (torch.autograd.grad(x.square().sum(), (a, b)) for x in (found, wanted))
    assert all(map(torch.equal, of_found, of_wanted))


# Whole programs ------------------------------------------------------------------------------------------------------


def test_a_training_step_runs_unchanged(place):
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)).to(place, torch.float64)
    x = made(5, 8, place=place)
    net(x).square().mean().backward()
    expected = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    with emulate(accuracy="fp64", report=True, reproducible=True) as run:
        net(x).square().mean().backward()
    for parameter, wanted in zip(net.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, wanted, rtol=1e-13, atol=1e-13)
    account = run.account
    assert account.products == 5 and not account.left and 0 < account.bound < 1e-14
    assert {entry.operator for entry in account.entries} == {"addmm", "mm"}
    assert all(entry.how.endswith("residues") for entry in account.entries)
    assert str(run).startswith("5 products ran through ozaki\n") and "componentwise error <=" in str(run)
    count = account.products
    net(x)
    assert account.products == count  # everything is as before


def test_an_iterative_solver_of_pytorch_runs_unchanged(place):
    """LOBPCG, which is written in Python, with products, factorisations and in-place operations."""
    a = made(60, 60, place=place)
    a = a @ a.T
    start = made(60, 3, place=place)
    with emulate(accuracy="fp64", report=True, reproducible=True) as run:
        values, vectors = torch.lobpcg(a, k=3, X=start, niter=200, tol=1e-10)
    torch.testing.assert_close(values, torch.linalg.eigvalsh(a).flip(0)[:3], rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(a @ vectors, vectors * values, rtol=1e-4, atol=1e-3)
    assert run.account.products > 50 and run.account.bound < 1e-13
    assert all(reason == "its products are inside" for _, reason in run.account.left)


PROGRAMS = {
    "@": lambda a, b, s, t: a @ b,
    "stack @": lambda a, b, s, t: s @ t,
    "stack @ matrix": lambda a, b, s, t: s @ b[:5],
    "matrix @ vector": lambda a, b, s, t: a @ b[:, 0],
    "vector @ vector": lambda a, b, s, t: a[0] @ b[:, 0],
    "vdot": lambda a, b, s, t: torch.vdot(a[0], b[:, 0]),
    "einsum": lambda a, b, s, t: torch.einsum("bij,bjk->bki", s, t),
    "tensordot": lambda a, b, s, t: torch.tensordot(s, t, dims=([0, 2], [0, 1])),
    "inner": lambda a, b, s, t: torch.inner(a, b.T),
    "multi_dot": lambda a, b, s, t: torch.linalg.multi_dot([a, b, b.mT.conj()]),
    "matrix_power": lambda a, b, s, t: torch.linalg.matrix_power(a @ b[:, :4], 5),
    "linear": lambda a, b, s, t: torch.nn.functional.linear(a, b.T, b[0]),
    "addmm": lambda a, b, s, t: torch.addmm(b[0], a, b, beta=-1, alpha=2),
    "addmm beta 0": lambda a, b, s, t: torch.addmm(b[0] * np.nan, a, b, beta=0),
    "addmv": lambda a, b, s, t: torch.addmv(a[:, 0], a, b[:, 0], alpha=2),
    "addbmm": lambda a, b, s, t: torch.addbmm(s[0, :, :1], s, t, beta=3),
    "baddbmm": lambda a, b, s, t: torch.baddbmm(s[:, :, :1], s, t, alpha=0.5),
    "in place": lambda a, b, s, t: (a @ b).addmm_(a, b, beta=2),
    "out": lambda a, b, s, t: torch.mm(a, b, out=torch.empty(0, dtype=a.dtype, device=a.device)),
    "conjugates": lambda a, b, s, t: a.conj() @ a.mH.conj(),
}


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(place, name, dtype):
    operands = [made(*shape, dtype=dtype, place=place) for shape in ((4, 7), (7, 6), (3, 4, 5), (3, 5, 6))]
    program = PROGRAMS[name]
    expected = program(*operands)
    for infer in (False, True):
        with torch.inference_mode(infer), emulate(accuracy=70, reproducible=True) as run:
            found = program(*operands)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
        assert run.account.products >= 1 and not run.account.left


def test_bits_of_a_program_are_those_of_matmul(place):
    a, b = made(9, 40, place=place), made(40, 7, place=place)
    with emulate(**FP64):
        c = a @ b
    assert torch.equal(c, ozaki.matmul(a, b, **FP64)) and not torch.equal(c, a @ b)


def test_what_is_left_alone_is_said(place):
    a = made(4, 4, place=place)
    with emulate(accuracy="fp64") as run:
        a.half() @ a.half()
        torch.linalg.solve(a, a)
        torch.nn.functional.conv1d(a[None], a[:, :, None])
        a @ a
    left = run.account.left
    assert left[("mm", "dtype float16")] == 1 and run.account.products == 1
    assert ("_linalg_solve_ex", "its products are inside") in left and any(name == "convolution" for name, _ in left)
    assert "operators were left alone" in str(run) and "mm: dtype float16" in str(run)


REFUSED = {
    "dtypes": lambda a: a @ a.float(),
    "shapes": lambda a: a @ a[:2],
    "batches": lambda a: torch.addbmm(a[:2, :2], a.new_ones(3, 2, 4), a.new_ones(2, 6, 2)),
    "bmm of matrices": lambda a: torch.bmm(a, a),
    "mm of stacks": lambda a: torch.mm(a[None], a),
    "out of another dtype": lambda a: torch.mm(a, a, out=torch.empty(3, 3)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_errors_of_programs_are_those_of_pytorch(name):
    a = made(3, 3)
    with pytest.raises(RuntimeError) as outside:
        REFUSED[name](a)
    with emulate(accuracy="fp64") as run, pytest.raises(RuntimeError) as inside:
        REFUSED[name](a)
    assert str(inside.value) == str(outside.value) and run.account.products == 0


def test_wrong_options_are_named_before_the_block():
    for options, message in (
        ({"accuracy": "fp65"}, "accuracy: 'fp65' is not known"),
        ({"scheme": "residues", "slices": 0}, "slices: 0; expected a whole number"),
        ({"scheme": "native", "slices": 3}, "slices: 3 slices of scheme 'native'"),
    ):
        with pytest.raises(ValueError, match=f"^{message}"):
            emulate(**options)


def test_nested_blocks_and_errors_undo_themselves():
    a = made(3, 3)
    with emulate(scheme="residues", slices=14) as outer:
        with emulate(scheme="residues", slices=15) as inner:
            a @ a
        a @ a
        with pytest.raises(ValueError, match=r"^workspace_limit: leaves"), emulate(**FP64, workspace_limit=10):
            a @ a
        a @ a
    a @ a
    assert (outer.account.products, inner.account.products) == (2, 1)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_tensors_without_elements_are_left_alone():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as fake:
        x = fake.from_tensor(made(3, 3))
        with emulate(accuracy="fp64") as run:
            assert (x @ x).shape == (3, 3)
    assert run.account.products == 0
    with fake, pytest.raises(TypeError, match=r"^a: FakeTensor, which has no elements; .*ozaki.torch.matmul"):
        ozaki.matmul(x, x)
    with fake:
        assert matmul(x, x).shape == (3, 3)
