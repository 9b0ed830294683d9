"""`ozaki.jax` of 16-bit floats: results of their format, concrete, compiled, mapped and differentiated."""

from functools import partial

import numpy as np
import pytest

import ozaki

jax = pytest.importorskip("jax", reason="JAX is not installed")

import jax.numpy as jnp  # noqa: E402

from ozaki.jax import dot_general, matmul  # noqa: E402

HALVES = {"bf16": jnp.bfloat16, "fp16": jnp.float16}
MATRICES = (((1,), (0,)), ((), ()))


@pytest.fixture(params=HALVES)
def accuracy(request):
    return request.param


@pytest.fixture
def operands(rng, accuracy):
    a, b = rng.standard_normal((30, 50)), rng.standard_normal((50, 20))
    a[4] *= 100
    return tuple(jnp.asarray(x, HALVES[accuracy]) for x in (a, b))


@pytest.fixture
def same(operands, accuracy):
    """Whether a result has the format of the operands, and the bits of `ozaki.matmul` of two."""

    def is_same(c, a, b):
        expected = ozaki.matmul(np.asarray(a), np.asarray(b), accuracy=accuracy)
        assert c.dtype == operands[0].dtype
        return np.array_equal(np.asarray(c).view(np.uint16), expected.view(np.uint16))

    return is_same


def test_products_keep_the_format(operands, accuracy, same):
    a, b = operands
    named = partial(matmul, accuracy=accuracy)
    for f in (matmul, named, jax.jit(matmul), jax.jit(named)):
        assert same(f(a, b), a, b) and same(f(a[3:10], b), a[3:10], b) and same(f(a[4], b), a[4], b)
        assert same(f(a, b[:, 0]), a, b[:, 0]) and same(f(a[None], b)[0], a, b)
    assert matmul(a[:0], b).shape == (0, 20) and jax.jit(matmul)(a[:, :0], b[:0]).dtype == a.dtype


def test_other_formats_have_float32_results(operands, accuracy):
    a, b = operands
    assert matmul(a, b, accuracy="fp32").dtype == matmul(a, b.astype("f4")).dtype == jnp.float32
    other = next(x for x in HALVES.values() if x != a.dtype)
    assert matmul(a, b.astype(other)).dtype == jnp.float32
    found = matmul(a, b, scheme="digits", slices=3)
    assert (found == ozaki.matmul(a.astype("f4"), b.astype("f4"), scheme="digits", slices=3)).all()


def test_mapped_products_have_the_bits_of_each(operands, same, rng):
    """Also where the operand that is mapped is B, of which no columns may stand beside those of others."""
    a, b = operands
    wide = b * jnp.asarray(np.exp2(rng.integers(-9, 9, (50, 1))), b.dtype)  # in whose product most rows are exact
    stack = jnp.stack([b, wide, b[::-1]])
    for compiled in (lambda f: f, jax.jit):
        for c, y in zip(compiled(jax.vmap(lambda y: matmul(a, y)))(stack), stack, strict=True):
            assert same(c, a, y)
        assert same(compiled(jax.vmap(lambda x: matmul(x, b)))(a), a, b)
        for c, y in zip(compiled(jax.vmap(matmul, in_axes=(None, 0)))(a, stack), stack, strict=True):
            assert same(c, a, y)


def test_derivatives_are_products_of_the_same_format(operands, accuracy, same):
    a, b = operands
    ones = jnp.ones((30, 20), a.dtype)
    for compiled in (lambda f: f, jax.jit):
        gradient = compiled(jax.grad(lambda a, b: matmul(a, b).astype("f4").sum(), argnums=(0, 1)))
        of_a, of_b = gradient(a, b)
        assert same(of_a, ones, b.T) and same(of_b, a.T, ones)
        value, tangent = compiled(lambda a, b: jax.jvp(matmul, (a, b), (a, b)))(a, b)
        assert same(value, a, b) and tangent.dtype == a.dtype
    of_a = jax.grad(lambda a: matmul(a, b, accuracy="fp32").sum())(a)
    assert of_a.dtype == a.dtype
    stack = jnp.stack([b, 3 * b, b[::-1]])
    of_a = jax.grad(lambda a: matmul(a, stack).astype("f4").sum())(a)  # the sum of three, rounded once
    assert same(of_a, jnp.ones((30, 60), a.dtype), jnp.moveaxis(stack, 0, 1).reshape(50, 60).T)
    second = jax.grad(lambda a: jax.grad(lambda a: matmul(a, b).astype("f4").var())(a).astype("f4").var())(a)
    assert second.dtype == a.dtype and jnp.isfinite(second).all()


def test_dot_general(operands, accuracy, same):
    a, b = operands
    named = partial(dot_general, accuracy=accuracy)
    for f in (dot_general, named):
        assert same(f(a, b, MATRICES), a, b) and same(f(a, b, MATRICES, None, a.dtype), a, b)
        assert same(jax.jit(lambda a, b, f=f: jnp.einsum("ij,jk->ik", a, b, _dot_general=f))(a, b), a, b)
    assert dot_general(a, b, MATRICES, None, jnp.float32).dtype == jnp.float32
    found = dot_general(a, b, MATRICES, None, a.dtype, accuracy="fp32", reproducible=True)
    once = ozaki.matmul(a, b, accuracy="fp32", reproducible=True)
    assert found.dtype == a.dtype and (found == once.astype(a.dtype)).all()
    batched = dot_general(a.reshape(2, 15, 50), jnp.stack([b, b]), (([2], [1]), ([0], [0])))
    assert same(batched.reshape(30, 20), a, b)


def test_floats_of_8_bits_count_as_bfloat16(rng):
    a = jnp.asarray(rng.standard_normal((5, 5)), jnp.float8_e4m3fn)
    wide = a.astype(jnp.bfloat16)
    assert matmul(a, a).dtype == jnp.bfloat16 and (matmul(a, a) == matmul(wide, wide)).all()


def test_what_does_not_fit_is_refused(operands, accuracy):
    a, b = operands
    other = next(x for x in HALVES.values() if x != a.dtype)
    for call, message in (
        (lambda: matmul(a, b.astype("f4"), accuracy=accuracy), f"accuracy: '{accuracy}' is of two .* b is float32"),
        (
            lambda: jax.jit(partial(matmul, accuracy=accuracy))(a, b.astype(other)),
            "them, or use accuracy='fp32'",
        ),
        (lambda: matmul(a, b, accuracy=accuracy, scheme="digits"), "scheme: products rounded to"),
        (lambda: matmul(a, b.T), r"b: shape \(20, 50\) does not fit a of shape \(30, 50\); expected \(50, n\)"),
        (lambda: matmul(jnp.stack([a] * 3), jnp.stack([b] * 2)), r"b: batch \(2,\) .*; expected equal sizes, or 1"),
        (
            lambda: dot_general(a, b, MATRICES, None, "float32", accuracy=accuracy),
            f"preferred_element_type: float32, but accuracy='{accuracy}' rounds to .*; omit one of the two",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            call()
