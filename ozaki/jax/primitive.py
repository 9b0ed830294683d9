"""The primitive of JAX that stands for a product: stacks (..., m, k) and (..., k, n) with as many axes.

An axis of one matrix stands for as many of it as the other operand has. The primitive is bilinear, so JAX derives all
its derivatives from it. Each is one product of the same options, also that of an operand which many matrices share:
its gradient is summed by the product, and rounded once. Compiled code calls
back into `ozaki.matmul`, which reads the operands in JAX's memory and writes the result there: on a GPU the callback
starts kernels on the stream of the compiled code, and copies nothing. It is given 16-bit floats as their bits, since
buffers tell no other library of them.
"""

from __future__ import annotations

from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.buffer_callback import buffer_callback
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.lax import dot_general_p

from ozaki.functions.products import matmul
from ozaki.interchange.halves import HalfArray
from ozaki.interchange.streams import on_stream
from ozaki.records.formats import HALVES, STORED_AS
from ozaki.records.options import Options

PRODUCT = Primitive("ozaki_product")


def product(a: Any, b: Any, options: Options) -> Any:
    """The product of stacks of matrices, of one dtype: shapes (..., m, k) and (..., k, n) with as many axes.

    Each axis of the batch has the same size in both, or one matrix in either.

    Of 16-bit floats it is rounded once to their format; the options must be such that `ozaki.matmul` does so.

    Under shard_map an operand that is the same on all devices along an axis of the mesh is marked as one that varies,
    if the other one does: its cotangent is then summed over these devices.
    """
    axes = _varying(a) | _varying(b)
    a, b = (jax.lax.pcast(x, tuple(missing), to="varying") if (missing := axes - _varying(x)) else x for x in (a, b))
    return PRODUCT.bind(a, b, options=options)


def _varying(x: Any) -> Any:
    """The axes of the mesh of a shard_map along which an operand varies from device to device."""
    return jax.typeof(x).mat.varying


@PRODUCT.def_impl
def _run(a: Any, b: Any, *, options: Options) -> Any:
    """Concrete arrays, outside of jit; those on several devices as jit partitions them."""
    a, b = jnp.asarray(a), jnp.asarray(b)  # derivatives bring NumPy's arrays, too
    if len(a.devices() | b.devices()) > 1:
        return jax.jit(product, static_argnums=2)(a, b, options)
    return matmul(a, b, **options._asdict())


@PRODUCT.def_abstract_eval
def _shape(a: Any, b: Any, *, options: Options) -> Any:
    """Shape, dtype and sharding: those of a product of JAX's own."""
    a, b = _repeated(a, b), _repeated(b, a)
    batch = tuple(range(a.ndim - 2))
    dimensions = ((a.ndim - 1,), (b.ndim - 2,)), (batch, batch)
    found, _ = dot_general_p.abstract_eval(
        a, b, dimension_numbers=dimensions, precision=None, preferred_element_type=None, out_sharding=None
    )
    return found if options.dtype is None else found.update(dtype=np.dtype(options.dtype))


def _repeated(x: Any, other: Any) -> Any:
    """The type of an operand with as many matrices as the other has along each axis, sharded as these are."""
    one = [axis for axis in range(x.ndim - 2) if x.shape[axis] == 1]
    shape, spec = list(x.shape), list(x.sharding.spec)
    for axis in one:
        shape[axis], spec[axis] = other.shape[axis], other.sharding.spec[axis]
    return x.update(shape=tuple(shape), sharding=x.sharding.update(spec=jax.P(*spec)))


def _on_cpu(a: Any, b: Any, *, options: Options) -> Any:
    """What code compiled for CPUs does."""
    half = _half_of(a)

    def into(context: Any, out: Any, a: Any, b: Any) -> None:
        left, right, result = (_numbers(np.asarray(buffer), half) for buffer in (a, b, out))
        matmul(left, right, out=result, **options._asdict())

    return _called(into, a, b, half, options)


def _on_gpu(a: Any, b: Any, *, options: Options) -> Any:
    """What code compiled for CUDA devices does."""
    half = _half_of(a)

    def into(context: Any, out: Any, a: Any, b: Any) -> None:
        import cupy as cp

        # On the buffers' device before CuPy sees them: on another one it would copy them, and the result be lost.
        with on_stream(_device_of(out), context.stream):
            left, right, result = (_numbers(cp.asarray(buffer), half) for buffer in (a, b, out))
            matmul(left, right, out=result, **options._asdict())

    return _called(into, a, b, half, options)


def _half_of(x: Any) -> str | None:
    """The 16-bit format of an operand, and so of both and of the result; None of any other."""
    return x.dtype.name if x.dtype.name in HALVES else None


def _numbers(x: Any, half: str | None) -> Any:
    """The array in a buffer, which holds the bits of 16-bit floats."""
    return x if half is None else HalfArray(x, half)


def _called(into: Any, a: Any, b: Any, half: str | None, options: Options) -> Any:
    """The result that a function writes from two operands when compiled code runs."""
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    shape, dtype = (*batch, a.shape[-2], b.shape[-1]), options.dtype or a.dtype
    if half is None:
        return buffer_callback(into, jax.ShapeDtypeStruct(shape, dtype))(a, b)
    bits = [jax.lax.bitcast_convert_type(x, STORED_AS) for x in (a, b)]
    return jax.lax.bitcast_convert_type(buffer_callback(into, jax.ShapeDtypeStruct(shape, STORED_AS))(*bits), dtype)


def _device_of(buffer: Any) -> int:
    """The number of the CUDA device on which a buffer lies."""
    from cupy.cuda import runtime

    address, _ = buffer.__cuda_array_interface__["data"]
    return int(runtime.pointerGetAttributes(address).device if address else runtime.getDevice())


for _platform, _code in (("cpu", _on_cpu), ("cuda", _on_gpu)):
    mlir.register_lowering(PRODUCT, mlir.lower_fun(_code, multiple_results=False), platform=_platform)


def _of_one_dtype(a: Any, b: Any) -> tuple[Any, Any]:
    """Both operands in the dtype of the wider one: a cotangent is narrower where the result was."""
    dtype = jnp.promote_types(a.dtype, b.dtype)
    return a.astype(dtype), b.astype(dtype)


def _gradient_of_a(cotangent: Any, a: Any, b: Any, *, options: Options) -> Any:
    shared = _shared(a.aval, cotangent)
    left, right = _side_by_side(cotangent, shared), jnp.swapaxes(_side_by_side(b, shared), -1, -2)
    return product(*_of_one_dtype(left, right), options._replace(dtype=None))


def _gradient_of_b(cotangent: Any, a: Any, b: Any, *, options: Options) -> Any:
    shared = _shared(b.aval, cotangent)
    left, right = (_side_by_side(jnp.swapaxes(x, -1, -2), shared) for x in (a, cotangent))
    return product(*_of_one_dtype(left, jnp.swapaxes(right, -1, -2)), options._replace(dtype=None))


def _shared(operand: Any, result: Any) -> list[int]:
    """The axes of the batch along which the matrices of a result share one of the operand."""
    return [axis for axis in range(operand.ndim - 2) if operand.shape[axis] == 1 != result.shape[axis]]


def _side_by_side(x: Any, axes: list[int]) -> Any:
    """The matrices along axes of the batch as one, each beside the one before: a sum over its k is one over all."""
    *batch, rows, columns = x.shape
    moved = jnp.moveaxis(x, axes, range(x.ndim - 1 - len(axes), x.ndim - 1))
    kept = [1 if axis in axes else size for axis, size in enumerate(batch)]
    return moved.reshape(*kept, rows, columns * prod(batch[axis] for axis in axes))


ad.defbilinear(PRODUCT, _gradient_of_a, _gradient_of_b)


def _mapped(operands: Any, axes: Any, *, options: Options) -> tuple[Any, int]:
    """The products along a mapped axis: more rows or columns of one product, if one operand is a matrix for all.

    Not more columns of 16-bit floats, where these decide how many digits a row has.
    """
    (a, b), (axis_a, axis_b) = operands, axes
    if axis_b is None and a.ndim == 3:
        a = jnp.moveaxis(a, axis_a, 0)
        c = product(a.reshape(a.shape[0] * a.shape[1], a.shape[2]), b, options)
        return c.reshape(*a.shape[:2], c.shape[1]), 0
    if axis_a is None and b.ndim == 3 and _half_of(b) is None:
        b = jnp.moveaxis(b, axis_b, 1)
        c = product(a, b.reshape(b.shape[0], b.shape[1] * b.shape[2]), options)
        return c.reshape(c.shape[0], *b.shape[1:]), 1
    a, b = (x[None] if axis is None else jnp.moveaxis(x, axis, 0) for x, axis in ((a, axis_a), (b, axis_b)))
    return product(a, b, options), 0


batching.primitive_batchers[PRODUCT] = _mapped
