"""Products of JAX arrays, concrete or traced."""

from __future__ import annotations

from math import prod
from typing import Any, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from ozaki.call.halves import half_asked, half_result
from ozaki.interchange.halves import plain_halves
from ozaki.interchange.plain import check_plain, plain
from ozaki.jax.primitive import product
from ozaki.planning.asking import check_alone
from ozaki.process.warning import warn
from ozaki.records.formats import DTYPES, HALVES
from ozaki.records.options import AccuracyOptions, Options, takes
from ozaki.records.shapes import shapes

Dimensions = tuple[tuple[Any, Any], tuple[Any, Any]]
"""((contracted axes of a, of b), (batch axes of a, of b)), as `jax.lax.dot_general` takes them."""


@takes(AccuracyOptions)
def matmul(a: Any, b: Any, **options: Unpack[AccuracyOptions]) -> Any:
    """Multiply two arrays, as `jax.numpy.matmul` does, to a named accuracy.

    Parameters
    ----------
    a : array, shape (..., m, k) or (k,), float32, float64, complex64 or complex128
        The product of two of float16, or of bfloat16, is rounded once to that format; with an accuracy of more bits, as
        "fp32", it is float32. Floats of 8 bits count as bfloat16.
    b : array, shape (..., k, n) or (k,)
    **options
        As for `ozaki.matmul`; of `scheme` names alone. Products of derivatives have the same.

    Returns
    -------
    array, shape (..., m, n), without m or n where that operand is a vector
        Of the dtype that both promote to. Its bound is that of `ozaki.matmul`.

    Raises
    ------
    ValueError, TypeError
        For shapes and dtypes that do not fit, and for options that are wrong for every product, also while a function
        is traced. For options that the elements or the device make wrong as `ozaki.matmul`, when the product runs; in
        compiled code a JaxRuntimeError then, whose text is that of the error.

    Examples
    --------
    >>> import jax.numpy as jnp, ozaki.jax
    >>> ozaki.jax.matmul(jnp.ones((5, 2, 3)), jnp.ones((3, 4)), accuracy="fp32").shape
    (5, 2, 4)
    """
    asked = Options.of("matmul", options, AccuracyOptions)
    a, b = _promoted(a, b, asked)
    batch = shapes(a.shape, b.shape).batch  # refuses those that do not fit
    _check(asked, a.dtype)
    left, right = (a[None] if a.ndim == 1 else a), (b[:, None] if b.ndim == 1 else b)
    if prod(right.shape[:-2]) == 1:  # a stack times one matrix is one product of more rows
        right = right.reshape(right.shape[-2:])
        rows = left.reshape(prod(left.shape[:-1]), left.shape[-1])
        c = product(rows, right, asked).reshape(*batch, left.shape[-2], right.shape[1])
    else:
        left, right = (jnp.expand_dims(x, range(len(batch) + 2 - x.ndim)) for x in (left, right))
        c = product(left, right, asked)
    if a.ndim == 1:
        c = c[..., 0, :]
    return c[..., 0] if b.ndim == 1 else c


@takes(AccuracyOptions)
def dot_general(
    a: Any,
    b: Any,
    dimension_numbers: Dimensions,
    precision: Any = None,
    preferred_element_type: Any = None,
    *,
    out_sharding: Any = None,
    **options: Unpack[AccuracyOptions],
) -> Any:
    """Contract axes of two arrays, as `jax.lax.dot_general` does, to a named accuracy.

    It takes the arguments of that function, and so the place of it: `jnp.einsum(..., _dot_general=f)` and Flax's
    `nn.Dense(..., dot_general=f)`, where f is `functools.partial(ozaki.jax.dot_general, accuracy="fp64")`.

    Parameters
    ----------
    a, b : arrays, as for `matmul`
    dimension_numbers : ((axes of a, axes of b), (axes of a, axes of b))
        The axes that are summed over, and those of the batch.
    precision : as of `jax.lax.dot_general`
        It changes nothing: `accuracy` says how accurate the product is.
    preferred_element_type : dtype, optional
        Dtype of the result: float32 or float64, to which the product is rounded once, or complex64 or complex128;
        float16 or bfloat16, to which a product of that format is rounded once, and of another one its rounding to
        float32. Default: as of `matmul`.
    out_sharding : None
        Results are sharded as JAX chooses; `jax.sharding.reshard` shards them otherwise.
    **options
        As for `matmul`.

    Returns
    -------
    array: first the axes of the batch, then the other ones of a, then those of b

    Raises
    ------
    ValueError, TypeError
        As `matmul`; for axes that do not fit; for a `precision` that JAX does not know; for a `preferred_element_type`
        that is no dtype of a product, or real where the product is complex, or has 64 bits where JAX has none.
    NotImplementedError
        For an `out_sharding`.

    Examples
    --------
    >>> import jax.numpy as jnp, ozaki.jax
    >>> ozaki.jax.dot_general(jnp.ones((7, 2, 3)), jnp.ones((3, 7, 4)), (([2], [0]), ([0], [1]))).shape
    (7, 2, 4)
    """
    asked = Options.of("dot_general", options, AccuracyOptions)
    if out_sharding is not None:
        raise NotImplementedError(f"out_sharding: {out_sharding}; expected None (jax.sharding.reshard shards results)")
    wanted = None if preferred_element_type is None else _result_dtype(preferred_element_type)
    a, b = _promoted(a, b, asked, wanted)
    (sums_a, sums_b), (batch_a, batch_b) = dimension_numbers
    sums_a, sums_b, batch_a, batch_b = (tuple(map(int, axes)) for axes in (sums_a, sums_b, batch_a, batch_b))
    for name, x, axes in (("a", a, sums_a + batch_a), ("b", b, sums_b + batch_b)):
        if len(set(axes)) < len(axes) or any(not 0 <= axis < x.ndim for axis in axes):
            raise ValueError(
                f"dimension_numbers: axes {axes} of {name}, which has {x.ndim}; expected each at most once"
            )
    for first, second in ((sums_a, sums_b), (batch_a, batch_b)):
        sizes = [a.shape[axis] for axis in first], [b.shape[axis] for axis in second]
        if sizes[0] != sizes[1]:
            raise ValueError(f"dimension_numbers: axes {first} of a have sizes {sizes[0]}, those of b {sizes[1]}")
    free_a = tuple(axis for axis in range(a.ndim) if axis not in sums_a + batch_a)
    free_b = tuple(axis for axis in range(b.ndim) if axis not in sums_b + batch_b)
    batch = tuple(a.shape[axis] for axis in batch_a)
    k = prod(a.shape[axis] for axis in sums_a)
    rows, columns = tuple(a.shape[axis] for axis in free_a), tuple(b.shape[axis] for axis in free_b)
    left = a.transpose(*batch_a, *free_a, *sums_a).reshape(*batch, prod(rows), k)
    right = b.transpose(*batch_b, *sums_b, *free_b).reshape(*batch, k, prod(columns))
    if precision is not None:  # JAX refuses what it does not know
        jax.eval_shape(lambda x, y: jax.lax.dot_general(x, y, dimension_numbers, precision), a, b)
    if wanted is None or wanted == a.dtype:
        _check(asked, a.dtype)
        return product(left, right, asked).reshape(*batch, *rows, *columns)
    if jnp.issubdtype(a.dtype, jnp.complexfloating) and not jnp.issubdtype(wanted, jnp.complexfloating):
        raise TypeError(f"preferred_element_type: {wanted}, but the product is complex; expected a complex one")
    computed = jnp.promote_types(wanted, jnp.float32)
    _check(asked, computed)
    if jnp.issubdtype(wanted, jnp.complexfloating) and not jnp.issubdtype(a.dtype, jnp.complexfloating):
        computed = jnp.finfo(wanted).dtype
    if jnp.promote_types(computed, a.dtype) == computed:  # exact, and so is the sum that is rounded to it
        left, right = left.astype(computed), right.astype(computed)
    else:
        asked = asked._replace(dtype=computed.name)
    return product(left, right, asked).astype(wanted).reshape(*batch, *rows, *columns)


def _result_dtype(preferred: Any) -> Any:
    """The dtype of a result, as a caller names it.

    Raises
    ------
    TypeError
        If products have no such dtype.
    ValueError
        If it has 64 bits, and JAX is without.
    """
    wanted = jnp.dtype(preferred)
    if wanted.name not in (*DTYPES, *HALVES):
        raise TypeError(f"preferred_element_type: {wanted}; expected a dtype of floats or complex numbers")
    if jax.dtypes.canonicalize_dtype(wanted) != wanted:
        raise ValueError(f"preferred_element_type: {wanted} needs jax.config.update('jax_enable_x64', True)")
    return wanted


def _array(name: str, x: Any) -> Any:
    """An operand as an array of JAX, with all of its digits.

    Raises
    ------
    TypeError
        If it is no array of JAX or NumPy, or more than one.
    ValueError
        If JAX would round it.
    """
    if isinstance(x, jax.Array):
        return x
    check_plain(name, x)
    if not isinstance(x, np.ndarray):
        raise TypeError(f"{name}: {type(x).__name__}; expected an array of jax or NumPy")
    x = plain(name, x)
    held = jax.dtypes.canonicalize_dtype(x.dtype)
    if held != x.dtype:
        raise ValueError(
            f"{name}: dtype {x.dtype}, of which JAX makes {held}; jax.config.update('jax_enable_x64', True), or "
            f"{name}.astype({held.name!r})"
        )
    return jnp.asarray(x)


def _check(options: Options, dtype: Any) -> None:
    """Refuse options here that are wrong: in compiled code an error is a page long, and comes when the product runs.

    `dtype` is that of the result. A warning says if JAX has no format with as many bits as the accuracy names.
    """
    if dtype.name in HALVES:
        return  # `half_result` checked them
    check_alone(options)
    target = options.target(1)
    bits = 0 if target is None else target.bits or 0
    if bits > jnp.finfo(dtype).nmant + 1 and not jax.config.jax_enable_x64:
        warn(
            f"accuracy: {options.accuracy!r} holds before the product is rounded to {dtype}, the longest format of JAX "
            "as it is set; jax.config.update('jax_enable_x64', True)"
        )


def _promoted(a: Any, b: Any, options: Options, wanted: Any = None) -> tuple[Any, Any]:
    """Both operands as arrays of the dtype that they promote to, one that can be multiplied.

    16-bit floats of one format stay what they are where the product is rounded to it; `wanted` is the dtype that a
    caller names of the result.

    Raises
    ------
    TypeError, ValueError
    """
    a, b = (plain_halves(_array(name, x)) for name, x in (("a", a), ("b", b)))
    half = half_result(a, b, options, None)
    if half is not None and wanted is not None and wanted != half:
        if half_asked(options)[0] is not None:
            raise ValueError(
                f"preferred_element_type: {wanted}, but accuracy={options.accuracy!r} rounds to {half}; omit one of "
                "the two"
            )
        half = None
    dtype = jnp.promote_types(a.dtype, b.dtype)
    if half is None and dtype.name in HALVES:
        dtype = jnp.dtype("float32")
    if dtype.name not in (*DTYPES, *HALVES):
        raise TypeError(f"a, b: dtypes {a.dtype} and {b.dtype}; expected floats or complex numbers")
    return a.astype(dtype), b.astype(dtype)
