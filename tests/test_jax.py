"""JAX: arrays in and out, and products under jit, grad, vmap and shard_map."""

import os
from functools import partial

import numpy as np
import pytest
from tiers import some_first

import ozaki

# Read when JAX starts. Processes of tests share a GPU, so none may take most of its memory.
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

jax = pytest.importorskip("jax", reason="JAX is not installed")

import jax.numpy as jnp  # noqa: E402
from jax.sharding import AxisType, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402
from jax.test_util import check_grads  # noqa: E402

import ozaki.jax  # noqa: E402
from ozaki.jax import dot_general, matmul  # noqa: E402

FP64 = {"accuracy": "fp64", "reproducible": True}


@pytest.fixture(autouse=True)
def float64():
    """JAX with float64, four CPU devices, and the setting before afterwards."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.fixture(params=["cpu", pytest.param("gpu", marks=pytest.mark.gpu)])
def place(request):
    """A device of JAX on which new arrays lie."""
    if request.param == "gpu":
        pytest.importorskip("cupy", reason="a real device needs CuPy")
    with jax.default_device(jax.devices(request.param)[0]):
        yield request.param


def made(rng, *shape, dtype="f8"):
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if dtype[0] == "c" else x).astype(dtype)


# Concrete arrays -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
def test_the_bits_of_numpy(place, rng, dtype):
    a, b = made(rng, 3, 20, 30, dtype=dtype), made(rng, 30, 10, dtype=dtype)
    for x, y in ((a, b), (a[0], b), (a[0, 0], b), (a[0], b[:, 0]), (a[0, 0], b[:, 0]), (a[:0], b), (a[..., :0], b[:0])):
        c = ozaki.matmul(jnp.asarray(x), jnp.asarray(y), reproducible=True)
        assert isinstance(c, jax.Array) and c.dtype == x.dtype
        assert c.devices() == {jax.devices(place)[0]}
        np.testing.assert_array_equal(np.asarray(c), ozaki.matmul(x, y, reproducible=True))


def test_reports_plans_expressions_and_residuals(place, rng):
    a, b = made(rng, 20, 30), made(rng, 30, 10)
    x, y = jnp.asarray(a), jnp.asarray(b)
    c, report = ozaki.matmul(x, y, return_report=True, **FP64)
    assert isinstance(c, jax.Array) and report.scheme == "residues"
    plan = ozaki.plan(x, y, **FP64)
    assert (ozaki.matmul(ozaki.prepare(x, "left", plan), y, plan=plan) == c).all()
    rest = ozaki.residual(x, y, c)
    np.testing.assert_array_equal(np.asarray(rest), ozaki.residual(a, b, np.asarray(c)))
    sums = ozaki.gemm(2, x, x, 1, jnp.ones((20, 20)), trans_b=True, **FP64)
    np.testing.assert_array_equal(np.asarray(sums), ozaki.gemm(2, a, a, 1, np.ones((20, 20)), trans_b=True, **FP64))
    assert ozaki.mparray(x).shape == (20, 30)


def test_sixteen_bits_are_float32(place, rng):
    a, b = jnp.asarray(made(rng, 5, 40)), jnp.asarray(made(rng, 40, 3))
    for x, y in ((a.astype(jnp.bfloat16), b.astype(jnp.float16)), (a.astype(jnp.float16), b.astype(jnp.float32))):
        wanted = ozaki.matmul(x.astype(jnp.float32), y.astype(jnp.float32), reproducible=True)
        for c in (ozaki.matmul(x, y, reproducible=True), matmul(x, y, reproducible=True)):
            assert c.dtype == jnp.float32 and (c == wanted).all()


BAD = {
    "a NumPy array beside": (lambda a: ozaki.matmul(a, np.eye(3)), TypeError, "b: numpy.ndarray beside a jax array"),
    "out": (lambda a: ozaki.matmul(a, a, out=a), TypeError, "out: a jax array, which cannot be written"),
    "traced": (
        lambda a: jax.jit(lambda x: ozaki.matmul(x, x))(a), TypeError, "a: a traced array, .*use ozaki.jax.matmul"
    ),
    "integers": (lambda a: matmul(a.astype(int), a.astype(int)), TypeError, "a, b: dtypes int64 and int64; expected"),
    "shapes": (lambda a: matmul(a, a[:2]), ValueError, "b: shape"),
    "a scalar": (lambda a: matmul(a[0, 0], a), ValueError, "a: a scalar"),
    "a list": (lambda a: matmul(a, [[1.0]]), TypeError, "b: list; expected an array of jax or NumPy"),
    "axes": (lambda a: dot_general(a, a, (([2], [0]), ([], []))), ValueError, "dimension_numbers: axes .* of a, which"),
    "axes twice": (lambda a: dot_general(a, a, (([0], [0]), ([0], [0]))), ValueError, "dimension_numbers: axes"),
    "sizes": (lambda a: dot_general(a, a[:2], (([0], [0]), ([], []))), ValueError, "dimension_numbers: axes .* sizes"),
    "accuracy": (lambda a: matmul(a, a, accuracy="best"), ValueError, "accuracy: 'best' is not known"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_what_is_refused(place, rng, case):
    call, error, message = BAD[case]
    with pytest.raises(error, match=f"^{message}"):
        call(jnp.asarray(made(rng, 3, 3)))


def test_float64_needs_x64(place, rng):
    a = jnp.asarray(made(rng, 3, 3, dtype="f4"))
    jax.config.update("jax_enable_x64", False)
    with pytest.raises(ValueError, match=r"^dtype: float64 needs jax.config.update\('jax_enable_x64', True\)"):
        ozaki.matmul(a, a, dtype="float64", accuracy="fp64")


DIMENSIONS = (([1], [0]), ([], []))
JAX_FUNCTIONS = {"matmul": matmul, "dot_general": lambda a, b, **options: dot_general(a, b, DIMENSIONS, **options)}


@pytest.mark.parametrize("name", JAX_FUNCTIONS)
def test_nothing_of_a_numpy_operand_is_lost(rng, name):
    """JAX without x64 rounds NumPy's float64 without a word; and it drops masks and units."""
    product, a = JAX_FUNCTIONS[name], made(rng, 3, 3)
    big = a.astype(">f8")
    np.testing.assert_array_equal(product(big, a, **FP64), product(a, a, **FP64))
    quantity = type("Quantity", (np.ndarray,), {"__module__": "astropy.units", "unit": "m", "value": a})
    for x, message in (
        (np.ma.masked_less(a, a.max()), "masked elements"),
        (a.view(quantity), "astropy.Quantity, which has a unit; use a.value"),
        (
            type("DataFrame", (), {"__module__": "pandas", "to_numpy": None})(),
            r"pandas.DataFrame, .*use a.to_numpy\(\)",
        ),
    ):
        with pytest.raises(TypeError, match=f"^a: {message}"):
            product(x, a)
    jax.config.update("jax_enable_x64", False)
    for x in (a, a + 1j, np.arange(9).reshape(3, 3)):
        with pytest.raises(ValueError, match=rf"^b: dtype {x.dtype}, of which JAX makes .*jax_enable_x64.*b.astype\("):
            product(jnp.ones((3, 3)), x)
    assert product(a.astype("f4"), a.astype("f4")).dtype == "float32"


@pytest.mark.parametrize("name", JAX_FUNCTIONS)
def test_accuracies_beyond_the_longest_format_come_with_a_word(rng, name):
    a = jnp.asarray(made(rng, 3, 3, dtype="f4"))
    product = JAX_FUNCTIONS[name]
    assert product(a, a, accuracy="fp64").dtype == "float32"  # as the operands are, which might be float64
    jax.config.update("jax_enable_x64", False)
    for accuracy in ("fp32", 24, 1e-20, "exact", None):
        assert product(a, a, accuracy=accuracy).dtype == "float32"
    for accuracy in ("fp64", "dd", 25):
        for call in (product, jax.jit(product, static_argnames="accuracy")):
            with pytest.warns(UserWarning, match=rf"^accuracy: {accuracy!r} holds before .* float32") as found:
                call(a, a, accuracy=accuracy)
            assert found[0].filename == __file__


def test_errors_in_compiled_code_name_the_argument(place, rng):
    f = jax.jit(lambda x: matmul(x, x, accuracy="fp64", workspace_limit=10, reproducible=True))
    with pytest.raises(jax.errors.JaxRuntimeError, match="workspace_limit: leaves"):
        f(made(rng, 3, 3)).block_until_ready()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"accuracy": "best"}, ValueError, "accuracy: 'best' is not known"),
        ({"accuracy": [53]}, TypeError, "accuracy: list"),
        ({"scheme": "best"}, ValueError, "scheme: 'best' is not known"),
        ({"engine": "best"}, ValueError, "engine: 'best' is not available"),
        ({"slices": 7}, ValueError, "slices: 7 slices of scheme 'auto'"),
        ({"scheme": "residues", "slices": 0}, ValueError, "slices: 0; expected"),
        ({"reproducible": 1}, TypeError, "reproducible: 1; expected"),
        ({"workspace_limit": -1}, ValueError, "workspace_limit: -1; expected"),
    ],
)
def test_wrong_options_are_named_while_a_function_is_traced(place, rng, options, error, message):
    a = made(rng, 3, 3)
    for f in (lambda x: matmul(x, x, **options), lambda x: dot_general(x, x, (([1], [0]), ([], [])), **options)):
        with pytest.raises(error, match=f"^{message}"):
            jax.jit(f).trace(a)


# Traced arrays -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtypes", [("f8", "f8"), ("f4", "f4"), ("c16", "c16"), ("c16", "f8"), ("f4", "f8")])
def test_compiled_code(place, rng, dtypes):
    a, b = made(rng, 2, 6, 9, dtype=dtypes[0]), made(rng, 9, 4, dtype=dtypes[1])
    compiled = jax.jit(lambda x, y: matmul(x, y, reproducible=True))
    for x, y in (
        (a, b), (a[0], b), (a[0, 0], b), (a, b[:, 0]), (a[0, 0], b[:, 0]), (b.T, a[0].T), (a[:, :0], b),
        (a[..., :0], b[:0]), (a[0, 0, :0], b[:0]),
    ):  # fmt: skip
        found = compiled(x, y)
        assert found.dtype == np.matmul(x, y).dtype
        wide = [operand.astype(found.dtype) for operand in (x, y)] if dtypes[0] != dtypes[1] else (x, y)
        np.testing.assert_array_equal(np.asarray(found), ozaki.matmul(*wide, reproducible=True))
    found = jax.jit(lambda x, y: matmul(2 * x, y, **FP64).sum())(a, b)
    np.testing.assert_allclose(found, (2 * (a @ b)).sum(), rtol=1e-4)


@pytest.mark.parametrize("dtypes", some_first(1, [("f8", "f8"), ("c16", "c16"), ("c16", "f8")]))
def test_derivatives(place, rng, dtypes):
    a, b = made(rng, 2, 3, 4, dtype=dtypes[0]), made(rng, 4, 2, dtype=dtypes[1])
    check_grads(lambda x, y: matmul(x, y, **FP64), (a, b), order=2, modes=("fwd", "rev"))


def test_hessians_and_compiled_gradients(place, rng):
    a, b = made(rng, 2, 3, 4), made(rng, 4, 2)
    hessian = jax.hessian(lambda x: (matmul(x, x.T, **FP64) ** 2).sum())(a[0])
    np.testing.assert_allclose(hessian, jax.hessian(lambda x: ((x @ x.T) ** 2).sum())(a[0]), rtol=1e-12)
    gradient = jax.jit(jax.grad(lambda x, y: matmul(x, y, **FP64).sum()))(a[0], b)
    np.testing.assert_array_equal(np.asarray(gradient), ozaki.matmul(np.ones((3, 2)), b.T, **FP64))


def test_the_gradient_of_a_shared_operand_is_one_product(place, rng):
    """XLA would sum the gradients of the products, each rounded, in an order that depends on the device."""
    a, b, weights = made(rng, 2, 1, 3, 4), made(rng, 5, 4, 2), made(rng, 2, 5, 3, 2)
    side_by_side = np.moveaxis(weights, 1, 2).reshape(2, 3, 10), np.moveaxis(b, 0, 1).reshape(4, 10)
    of_a = ozaki.matmul(side_by_side[0], side_by_side[1].T, accuracy="exact")[:, None]
    of_b = ozaki.matmul(a[:, 0].reshape(6, 4).T, np.moveaxis(weights, 1, 0).reshape(5, 6, 2), accuracy="exact")
    summed = jax.grad(lambda x, y: (matmul(x, y, accuracy="exact") * weights).sum(), argnums=(0, 1))
    for found in (summed(a, b), jax.jit(summed)(a, b)):
        for x, expected in zip(found, (of_a, of_b), strict=True):
            np.testing.assert_array_equal(np.asarray(x), expected)
    each = jax.vmap(lambda x, y: matmul(x, y, accuracy="exact"), in_axes=(None, 0))
    of_mapped = jax.grad(lambda x: (each(x, b) * weights[0]).sum())(a[0, 0])
    np.testing.assert_array_equal(
        np.asarray(of_mapped), ozaki.matmul(side_by_side[0][0], side_by_side[1].T, accuracy="exact")
    )
    check_grads(lambda x, y: matmul(x, y, **FP64), (a, b), order=2, modes=("fwd", "rev"))


def test_vmap(place, rng):
    a, b, c = made(rng, 5, 2, 3, 7), made(rng, 7, 4), made(rng, 5, 7, 4)
    close = np.testing.assert_allclose
    for compiled in (lambda f: f, jax.jit):
        close(compiled(jax.vmap(lambda x: matmul(x, b)))(a), a @ b, rtol=1e-12, atol=1e-13)
        close(compiled(jax.vmap(matmul))(a[:, 0], c), a[:, 0] @ c, rtol=1e-12, atol=1e-13)
        close(compiled(jax.vmap(lambda y: matmul(a[0, 0], y)))(c), a[0, 0] @ c, rtol=1e-12, atol=1e-13)
        close(compiled(jax.vmap(jax.vmap(matmul, in_axes=(0, None))))(a, c), a @ c[:, None], rtol=1e-12, atol=1e-13)
        close(compiled(jax.vmap(lambda x, y: matmul(x, y), in_axes=(1, None)))(a, c[:, :, :]), a.swapaxes(0, 1) @ c,
              rtol=1e-12, atol=1e-13)  # fmt: skip
    per_row = jax.vmap(jax.grad(lambda x: (matmul(x, b) ** 2).sum()))(a[0, 0])
    close(per_row, 2 * a[0, 0] @ b @ b.T, rtol=1e-12)


def test_dot_general(place, rng):
    a, b = made(rng, 5, 2, 3, 7), made(rng, 7, 5, 4, 3)
    for dimensions in (
        (((3,), (0,)), ((0,), (1,))), (((2, 3), (3, 0)), ((0,), (1,))), (((0,), (1,)), ((), ())), (((), ()), ((), ())),
        (((), ()), ((2, 3), (3, 0))),
    ):  # fmt: skip
        wanted = jax.lax.dot_general(a, b, dimensions)
        np.testing.assert_allclose(dot_general(a, b, dimensions, **FP64), wanted, rtol=1e-11, atol=1e-13)
        found = jax.jit(lambda x, y, dimensions=dimensions: dot_general(x, y, dimensions, **FP64))(a, b)
        np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-13)


MATRICES = (((1,), (0,)), ((), ()))


@pytest.mark.parametrize("wanted", some_first(2, ["f2", "c16", "bfloat16", "f4", "f8", "c8", None]))
@pytest.mark.parametrize("dtype", some_first(1, ["f4", "f2", "f8", "c8", "c16"]))
def test_results_of_a_preferred_dtype_are_rounded_once(place, rng, dtype, wanted):
    a, b = (jnp.asarray(made(rng, *shape, dtype=dtype)) for shape in ((3, 40), (40, 2)))
    wanted = wanted and jnp.dtype(wanted)
    if dtype[0] == "c" and wanted is not None and wanted.kind != "c":
        with pytest.raises(TypeError, match=r"^preferred_element_type: .*, but the product is complex"):
            dot_general(a, b, MATRICES, None, wanted)
        return
    kind, bits = "complex" if dtype[0] == "c" else "float", 8 * jnp.finfo(a.dtype).dtype.itemsize
    if wanted is not None:
        bits = 8 * jnp.finfo(wanted).dtype.itemsize
    bits = max(bits, 32) * (2 if kind == "complex" else 1)
    once = ozaki.matmul(*(x.astype(jnp.promote_types(a.dtype, "f4")) for x in (a, b)), dtype=f"{kind}{bits}", **FP64)
    for compiled in (lambda f: f, jax.jit):
        found = compiled(lambda x, y: dot_general(x, y, MATRICES, "highest", wanted, **FP64))(a, b)
        assert found.dtype == (wanted or once.dtype) and (found == once.astype(found.dtype)).all()
        mapped = compiled(jax.vmap(lambda x: dot_general(x, b, MATRICES, None, wanted, **FP64)))(a[None])
        assert mapped.dtype == found.dtype and (mapped[0] == found).all()
        of_a, of_b = compiled(jax.grad(lambda x, y: dot_general(x, y, MATRICES, None, wanted, **FP64)
                                       .astype("c16").real.sum(), argnums=(0, 1)))(a, b)  # fmt: skip
        assert (of_a.dtype, of_b.dtype) == (a.dtype, b.dtype)
        np.testing.assert_allclose(of_a, jnp.ones((3, 2), a.dtype) @ b.T, rtol=2e-2, atol=2e-2)
        np.testing.assert_allclose(of_b, a.T @ jnp.ones((3, 2), a.dtype), rtol=2e-2, atol=2e-2)


def test_a_place_in_einsum_and_in_layers(place, rng):
    """As `jnp.einsum` and the layers of Flax call it."""
    a, b = made(rng, 5, 7), made(rng, 7, 4)
    f = partial(dot_general, **FP64)
    for labels, operands in (("ij,jk->ik", (a, b)), ("ij,jk,lk->il", (a, b, b)), ("bij,bjk", (a[None], b[None]))):
        for compiled in (lambda f: f, jax.jit):
            found = compiled(lambda *x, labels=labels: jnp.einsum(labels, *x, _dot_general=f))(*operands)
            np.testing.assert_allclose(found, np.einsum(labels, *operands), rtol=1e-12, atol=1e-12)
        found = jnp.einsum(labels, *operands, _dot_general=f, preferred_element_type="f4", precision="highest")
        assert found.dtype == jnp.float32
    np.testing.assert_array_equal(f(a, b, MATRICES, precision=None), ozaki.matmul(a, b, **FP64))
    found = f(a, b, MATRICES, precision=jax.lax.Precision.HIGHEST, preferred_element_type=jnp.float32)
    np.testing.assert_array_equal(found, ozaki.matmul(a, b, dtype="float32", **FP64))
    assert jnp.einsum("ij,jk", a.astype("f2"), b.astype("f2"), _dot_general=f).dtype == jnp.float16


def test_arguments_of_dot_general_that_do_not_fit(place, rng):
    a = jnp.asarray(made(rng, 3, 3, dtype="f4"))
    with pytest.raises(ValueError, match="Precision"):
        dot_general(a, a, MATRICES, "fp64")
    with pytest.raises(TypeError, match=r"^preferred_element_type: int32; expected a dtype of floats"):
        dot_general(a, a, MATRICES, None, "int32")
    with pytest.raises(NotImplementedError, match=r"^out_sharding: .*; expected None \(jax.sharding.reshard"):
        dot_general(a, a, MATRICES, out_sharding=P())
    jax.config.update("jax_enable_x64", False)
    with pytest.raises(ValueError, match=r"^preferred_element_type: float64 needs .*'jax_enable_x64', True"):
        dot_general(a, a, MATRICES, None, "float64")
    for dtype in ("f8", "c16"):
        with pytest.raises(ValueError, match=r"^b: dtype .*, of which JAX makes .*; .*'jax_enable_x64', True"):
            matmul(a, made(rng, 3, 3, dtype=dtype))
    with pytest.warns(UserWarning, match=r"^accuracy: 'fp64' .* rounded to float32"):
        assert dot_general(a, a, MATRICES, None, "float16", accuracy="fp64").dtype == jnp.float16
    assert matmul(a, np.asarray(a)).dtype == jnp.float32


# Several devices -----------------------------------------------------------------------------------------------------


@pytest.fixture
def mesh():
    devices = jax.devices("cpu")
    if len(devices) < 4:
        pytest.skip("JAX was started with fewer than four CPU devices")
    return jax.make_mesh((4,), ("i",), axis_types=(AxisType.Auto,), devices=devices[:4])


@pytest.mark.parametrize("check", [True, False])
def test_shard_map(mesh, rng, check):
    a, b = made(rng, 20, 32), made(rng, 32, 10)
    rows = jax.shard_map(
        lambda x, y: matmul(x, y, **FP64), mesh=mesh, in_specs=(P("i", None), P()), out_specs=P("i", None),
        check_vma=check,
    )  # fmt: skip
    np.testing.assert_array_equal(np.asarray(jax.jit(rows)(a, b)), ozaki.matmul(a, b, **FP64))
    of_a, of_b = jax.jit(jax.grad(lambda x, y: rows(x, y).sum(), argnums=(0, 1)))(a, b)
    np.testing.assert_allclose(of_a, np.ones((20, 10)) @ b.T, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(of_b, a.T @ np.ones((20, 10)), rtol=1e-12, atol=1e-13)
    inner = jax.shard_map(
        lambda x, y: jax.lax.psum(matmul(x, y, **FP64), "i"), mesh=mesh, in_specs=(P(None, "i"), P("i", None)),
        out_specs=P(), check_vma=check,
    )  # fmt: skip
    np.testing.assert_allclose(jax.jit(inner)(a, b), a @ b, rtol=1e-12, atol=1e-13)
    of_a, of_b = jax.jit(jax.grad(lambda x, y: (inner(x, y) ** 2).sum(), argnums=(0, 1)))(a, b)
    np.testing.assert_allclose(of_a, 2 * (a @ b) @ b.T, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(of_b, a.T @ (2 * (a @ b)), rtol=1e-11, atol=1e-12)


def test_arrays_on_several_devices(mesh, rng):
    a, b = made(rng, 20, 30), made(rng, 30, 10)
    x, y = jax.device_put(a, NamedSharding(mesh, P("i", None))), jax.device_put(b, NamedSharding(mesh, P()))
    np.testing.assert_array_equal(np.asarray(matmul(x, y, **FP64)), ozaki.matmul(a, b, **FP64))
    with pytest.raises(ValueError, match=r"^a: lies on 4 devices; use ozaki.jax.matmul under jax.shard_map"):
        ozaki.matmul(x, y)
    one, other = (jax.device_put(z, device) for z, device in zip((a, b), jax.devices("cpu"), strict=False))
    with pytest.raises(ValueError, match=r"^a: on .*, b: on .*; move one of them"):
        ozaki.matmul(one, other)
