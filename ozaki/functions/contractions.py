"""`einsum` and `tensordot`: contractions of arrays, out of matrix products."""

from __future__ import annotations

from functools import partial
from typing import Any, Unpack

from ozaki.backends import backend_of
from ozaki.call.halves import half_of
from ozaki.call.integers import as_floats, as_numbers
from ozaki.call.operands import are_integers, as_array, dtype_of, scalar_if_no_axes
from ozaki.driver.watching import named
from ozaki.functions.contracting import einsum_by, tensordot_by
from ozaki.functions.products import multiply_rearranged
from ozaki.interchange.calls import any_arrays
from ozaki.interchange.halves import HalfArray, plain_halves, widened
from ozaki.multiprecision.array import MPArray
from ozaki.multiprecision.numbers import Integers, Numbers
from ozaki.records.options import Options, ProductOptions, takes
from ozaki.records.prepared import Prepared
from ozaki.records.progress import ProgressFunction


@any_arrays("a", "b", halves=True)
@named("tensordot")
@takes(ProductOptions)
def tensordot(
    a: Any,
    b: Any,
    axes: int | tuple[Any, Any] = 2,
    *,
    progress: ProgressFunction | None = None,
    **options: Unpack[ProductOptions],
) -> Any:
    """Sum products of two arrays over some of their axes, as `numpy.tensordot` does, to a named accuracy.

    Parameters
    ----------
    a, b : arrays of one library and device, or MPArrays, as for `matmul`
    axes : int or (axes of a, axes of b)
        An int n: the last n axes of a, and the first n of b. Default: 2.
    progress, **options
        As for `matmul`: it is one matrix product.

    Returns
    -------
    array: the other axes of a, then those of b
        Of the dtype that `matmul` gives. Its bound is that of the product, with the sums over all contracted axes as
        inner dimension. No report is returned. Of two operands of bfloat16, or of float16, it is rounded once to that
        format, and what belongs to one index of the other axes of a has the same bits whatever else a holds.

    Raises
    ------
    ValueError, TypeError
        For axes that do not fit; else as `matmul`.

    Examples
    --------
    >>> import numpy as np, ozaki
    >>> ozaki.tensordot(np.ones((2, 3, 4)), np.ones((4, 3, 5)), axes=([1, 2], [1, 0]), accuracy="fp64").shape
    (2, 5)
    """
    asked = Options.of("tensordot", options)
    given = [(name, plain_halves(x)) for name, x in (("a", a), ("b", b))]
    backend, half = backend_of(*given), half_of(given, asked)
    left, right = (_array(name, x, backend, half) for name, x in given)
    multiply = partial(multiply_rearranged, given=(a, b), options=asked, backend=backend, progress=progress)
    return tensordot_by(left, right, axes, multiply)


@any_arrays("operands", halves=True)
@named("einsum")
def _einsum(subscripts: str, operands: tuple[Any, ...], options: Options, progress: ProgressFunction | None) -> Any:
    """`einsum` of operands in one tuple, in which `any_arrays` finds those of other libraries."""
    labelled = [(f"operand {place}", plain_halves(x)) for place, x in enumerate(operands)]
    backend, half = backend_of(*labelled), half_of(labelled, options)
    names, arrays = [name for name, _ in labelled], [_array(name, x, backend, half) for name, x in labelled]
    if half is None and any(isinstance(x, Numbers) for x in arrays):
        arrays = [as_numbers(x) if are_integers(x) else x for x in arrays]
    elif half is None and options.dtype is None:
        arrays = [as_floats(name, x) if are_integers(x) else x for name, x in zip(names, arrays, strict=True)]
    given = partial(multiply_rearranged, given=operands, options=options, backend=backend, progress=progress)

    def multiply(a: Any, b: Any) -> Any:
        found = given(a, b)
        of_integers = isinstance(found, Numbers) and are_integers(a) and are_integers(b)
        # So that products of it have every bit, too.
        return Integers.of(found) if of_integers and options.accuracy is None else found

    found = einsum_by(subscripts, arrays, multiply, always=options.dtype is not None and half is None)
    if isinstance(found, Numbers):
        return MPArray._of(found)
    return found if isinstance(found, HalfArray) else scalar_if_no_axes(found)


@takes(ProductOptions)
def einsum(
    subscripts: str,
    *operands: Any,
    progress: ProgressFunction | None = None,
    **options: Unpack[ProductOptions],
) -> Any:
    """Evaluate Einstein's summation convention, as `numpy.einsum` does, out of products to a named accuracy.

    Parameters
    ----------
    subscripts : str
        As "bij,bjk->bik"; also with "...", and without "->".
    *operands : arrays of one library and device, or MPArrays, as for `matmul`
    **options
        As for `matmul`, of each product.
    progress : function of (done, total, unit), optional
        As for `matmul`, of each product in turn; a single operand without sums has none.

    Returns
    -------
    array
        Two operands are multiplied by one matrix product, of which the bound holds; products without sums, as in
        "i,i->i" or "i,j->ij", round once. More operands are contracted two at a time, in the order that
        `numpy.einsum_path` names, and each result is rounded to its dtype. An axis that a single operand has, and the
        result has not, is first summed by a product with ones. For these all operands first get the precision of the
        longest: that of an `MPArray`, or float64. No report is returned.

        Operands that are all of bfloat16, or all of float16, have a result of that format, as of `matmul`; beside
        others they count as float32. Each product is rounded to it: once, where there is one product. Then what belongs
        to one index of the first operand, of its axes that are not summed over, has the same bits whatever else it
        holds.

    Raises
    ------
    ValueError, TypeError
        For subscripts that do not fit the operands; else as `matmul`.

    Examples
    --------
    >>> import numpy as np, ozaki
    >>> a, b = np.ones((5, 2, 3)), np.ones((5, 3, 4))
    >>> ozaki.einsum("bij,bjk->bki", a, b, accuracy="fp64").shape
    (5, 4, 2)
    """
    asked = Options.of("einsum", options)
    if not isinstance(subscripts, str):
        raise TypeError(f"subscripts: {type(subscripts).__name__}; expected a string, as 'ij,jk->ik'")
    if not operands:
        raise ValueError("operands: none; expected as many arrays as subscripts name")
    return _einsum(subscripts, operands, asked, progress)


def _array(name: str, x: Any, backend: Any, half: str | None) -> Any:
    """An operand as an array of floats, complex numbers or integers of the backend, or as an `MPArray`.

    16-bit floats stay what they are in products that are rounded to them (`half`), else they become float32.

    Raises
    ------
    TypeError, ValueError
        If it is none.
    """
    if half is not None:
        if isinstance(x, Prepared):
            raise TypeError(f"{name}: Prepared; expected an array of {half}")
        return x if isinstance(x, HalfArray) else backend.asarray(name, x)
    found = widened(x) if isinstance(x, HalfArray) else as_array(name, x, backend)
    if isinstance(found, Numbers) and not isinstance(found, Integers):
        return MPArray._of(found)
    if not are_integers(found):
        dtype_of(name, found)
    return found
