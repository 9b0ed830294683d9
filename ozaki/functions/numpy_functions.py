"""What NumPy's functions do with an `MPArray`: those that have exact results, or are products; others refuse.

Without them NumPy would take `numpy.asarray(x)`, mpmath's numbers, and compute with mpmath's 15 digits.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from math import isqrt, prod
from operator import index as integer_of
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from ozaki.functions.contracting import of_one_precision
from ozaki.functions.emulation import counted, multiplier
from ozaki.functions.numpy_products import call_of, run
from ozaki.functions.power import matrix_power, power_by
from ozaki.functions.products import matmul
from ozaki.functions.replacing import Replacement
from ozaki.interchange.plain import check_plain
from ozaki.multiprecision import provided
from ozaki.multiprecision.arithmetic import with_bits
from ozaki.multiprecision.array import MPArray
from ozaki.multiprecision.floats import empty
from ozaki.multiprecision.numbers import Numbers, as_complex, moved
from ozaki.multiprecision.objects import mparray
from ozaki.multiprecision.wholes import of_wholes, to_wholes
from ozaki.process.placement import elsewhere
from ozaki.records.formats import DTYPES

_REMEDY = (
    "numpy.asarray(x) makes an array of mpmath's numbers, whose arithmetic rounds to mpmath's precision, and "
    "x.astype('float64') one of floats"
)
_REMEDIES = dict.fromkeys(
    ("save", "savez", "savez_compressed", "savetxt"), "x.save(file) writes all of its bits, and MPArray.load reads them"
)
"""Those of functions that have a better one."""


def array_function(function: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a function of NumPy, called with an `MPArray` among its arguments.

    It is NotImplemented beside an array of a class that treats NumPy's functions in its own way, but CuPy's.

    Raises
    ------
    TypeError
        If there is no such function of multiprecision numbers, or it does not take these arguments.
    """
    if not all(map(_is_known, types)):
        return NotImplemented
    name = f"{function.__module__}.{function.__name__}".removeprefix("numpy.")
    # None of most options says that they are not given; not of an axis along which elements are moved.
    kwargs = {key: value for key, value in kwargs.items() if value is not None or (key == "axis" and name in _MOVING)}
    if name in _PRODUCTS:
        return _product(name, args, kwargs)
    found = _FUNCTIONS.get(name)
    if found is None:
        raise TypeError(f"numpy.{name}: not for an MPArray; {_REMEDIES.get(name, _REMEDY)}")
    try:
        inspect.signature(found).bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"numpy.{name}: {error}, which it does not take of an MPArray; {_REMEDY}") from None
    return found(*args, **kwargs)


def array_ufunc(ufunc: Any, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a ufunc of NumPy, called with an `MPArray` among its arguments.

    Raises
    ------
    TypeError
        As `array_function`.
    """
    name = ufunc.__name__
    known = getattr(np, name, None)
    is_numpys = ufunc is (known.original if isinstance(known, Replacement) else known)  # others may have such names
    if method != "__call__" or name not in _UFUNCS or not is_numpys:
        what = f"{'numpy.' if is_numpys else ''}{name}{'' if method == '__call__' else '.' + method}"
        raise TypeError(f"{what}: not for an MPArray; {_REMEDY}")
    if "out" in kwargs:
        raise TypeError(f"numpy.{name}: out, as in a += x, is not for an MPArray; write a = a + x")
    if kwargs:
        raise TypeError(f"numpy.{name}: {', '.join(kwargs)} is not for an MPArray; {_REMEDY}")
    return _UFUNCS[name](*inputs)


def _is_known(kind: type) -> bool:
    """Whether arrays of a class are treated as NumPy treats its own."""
    if issubclass(kind, Numbers) or kind.__module__.partition(".")[0] == "cupy":
        return True
    return getattr(kind, "__array_function__", None) is np.ndarray.__array_function__


# Products ------------------------------------------------------------------------------------------------------------

_PRODUCTS = {
    **{name: name for name in ("dot", "vdot", "inner", "tensordot", "einsum")},
    **{f"linalg.{name}": name for name in ("multi_dot", "matmul", "tensordot")},
}
"""Functions that are made of products, and what `call_of` knows them by."""


def _product(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a function of `_PRODUCTS`.

    Raises
    ------
    TypeError
        If it is called in a way that is not known, or with `out`.
    """
    known = _PRODUCTS[name]
    call = call_of(known, args, kwargs)
    if call is None or call.out is not None:
        what = "its arguments are" if call is None else "out is"
        raise TypeError(f"numpy.{name}: {what} not for an MPArray; {_REMEDY}")
    factors = _all_numbers(call.arrays, floats_stay=True)
    if known == "multi_dot":
        factors = of_one_precision(factors)
    if known in ("dot", "inner") and not all(x.ndim for x in factors):
        return factors[0] * factors[1]
    return run(known, call.of(known, factors), multiplier(known))


def _numbers(x: Any) -> MPArray:
    return x if isinstance(x, MPArray) else mparray(x)


def _all_numbers(operands: Iterable[Any], floats_stay: bool = False) -> list[Any]:
    """Operands as multiprecision numbers, what is no array in the memory of the others; or floats as given.

    Raises
    ------
    TypeError
        If one has more than numbers.
    ValueError
        If they lie on several GPUs.
    """
    given = [*operands]
    for x in given:
        check_plain("x", x)
    elsewhere((f"operand {place}", x) for place, x in enumerate(given))  # only refuses: the caller has entered it
    xp = next((x.library for x in given if isinstance(x, MPArray)), np)
    stay = [floats_stay and str(getattr(x, "dtype", "")) in DTYPES for x in given]
    found = [x if keep else _numbers(x) for x, keep in zip(given, stay, strict=True)]
    return [x if hasattr(each, "shape") else moved(x, xp) for x, each in zip(found, given, strict=True)]


def _matmul(a: Any, b: Any) -> Any:
    return multiplier("matmul")(a, b)


def _vecdot(a: Any, b: Any) -> Any:
    x, y = _of_at_least("vecdot", (a, 1), (b, 1))
    return multiplier("vecdot")(x.conj()[..., None, :], y[..., :, None])[..., 0, 0]


def _matvec(a: Any, b: Any) -> Any:
    x, y = _of_at_least("matvec", (a, 2), (b, 1))
    return multiplier("matvec")(x, y[..., :, None])[..., 0]


def _vecmat(a: Any, b: Any) -> Any:
    x, y = _of_at_least("vecmat", (a, 1), (b, 2))
    return multiplier("vecmat")(x.conj()[..., None, :], y)[..., 0, :]


def _of_at_least(name: str, *operands: tuple[Any, int]) -> list[Any]:
    """Operands of a function of that name, each of which has as many axes as stands beside it, or more.

    Raises
    ------
    ValueError
        If one has fewer.
    """
    found = _all_numbers((x for x, _ in operands), floats_stay=True)
    for place, (x, (_, least)) in enumerate(zip(found, operands, strict=True)):
        if x.ndim < least:
            raise ValueError(f"numpy.{name}: shape {x.shape} of operand {place}; expected {least} axes or more")
    return found


def _matrix_power(a: Any, n: Any) -> Any:
    """A power, exactly; inside of `emulate` out of products to the block's accuracy."""
    multiply = multiplier("matrix_power")
    if multiply is matmul or n < 2:
        return matrix_power(a, n)
    return power_by(multiply, _numbers(a), integer_of(n))


# Sums and norms ------------------------------------------------------------------------------------------------------


def _sum(a: Any, axis: Any = None, keepdims: bool = False) -> MPArray:
    """Sums along axes, exactly."""
    x = _numbers(a)
    axes = tuple(range(x.ndim)) if axis is None else normalize_axis_tuple(axis, x.ndim)
    terms = _with_first(x, axes)
    found = _total(terms) if len(terms) else _zeros(terms.shape[1:], x)
    return found.reshape(tuple(1 if i in axes else x.shape[i] for i in range(x.ndim))) if keepdims else found


def _with_first(x: MPArray, axes: tuple[int, ...]) -> MPArray:
    """An array whose first axis runs over these axes, and the others over the free ones."""
    free = [i for i in range(x.ndim) if i not in axes]
    return x.transpose(*axes, *free).reshape(prod(x.shape[i] for i in axes), *(x.shape[i] for i in free))


def _total(terms: MPArray) -> MPArray:
    """The sum along the first axis, which is not empty: of pairs, of pairs of these, ..."""
    half, odd = divmod(len(terms), 2)
    if not half:
        return terms[0]
    found = _total(terms[:half] + terms[half : 2 * half])
    return found + terms[-1] if odd else found


def _zeros(shape: tuple[int, ...], like: Numbers) -> MPArray:
    zeros = empty(shape, like.bits, like.library)
    return MPArray._of(as_complex(zeros) if like.is_complex else zeros)


def _trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> MPArray:
    return _sum(_numbers(a).diagonal(offset, axis1, axis2), axis=-1)


def _norm(x: Any, ord: Any = None) -> MPArray:
    """The square root of the sum of squares, rounded to nearest at the bits of x.

    Raises
    ------
    ValueError
        For any other norm.
    """
    numbers = _numbers(x)
    if not (ord is None or (ord == "fro" and numbers.ndim == 2) or (ord == 2 and numbers.ndim == 1)):
        raise ValueError(f"ord: {ord!r}; of an MPArray expected None, 'fro' of a matrix, or 2 of a vector")
    elements = MPArray._of(numbers.parts).reshape(-1)
    square = moved(counted("norm", elements, elements, accuracy="exact"), np)
    (whole,), (exponent,) = to_wholes(square)
    # An integer root of more than bits + 2 bits, whose lowest bit is set where it is no root: it rounds as the root.
    shift = max(2 * (numbers.bits + 3) - whole.bit_length(), 0)
    shift += (int(exponent) - shift) % 2
    root = isqrt(whole << shift)
    root = root << 1 | (root * root != whole << shift)
    found = of_wholes([root], [(int(exponent) - shift) // 2 - 1], (), numbers.bits)
    return MPArray._of(moved(found, numbers.library))


def _extreme(name: str) -> Callable[..., Any]:
    """A function that finds the largest or the smallest elements by a method of that name."""

    def call(a: Any, axis: Any = None) -> Any:
        x = _numbers(a)
        if isinstance(axis, tuple):
            x, axis = _with_first(x, normalize_axis_tuple(axis, x.ndim)), 0
        return getattr(x, name)(axis)

    return call


# Elements in other places --------------------------------------------------------------------------------------------


def _rearranging(name: str, several: bool = False) -> Callable[..., Any]:
    """A function that moves elements and adds zeros: done to their places by NumPy, then to the elements.

    With `several`, its first argument is a sequence of arrays.
    """

    def call(arrays: Any, *args: Any, **kwargs: Any) -> Any:
        if refused := _ROUNDING & kwargs.keys():
            raise TypeError(f"numpy.{name}: {', '.join(sorted(refused))} is not for an MPArray; {_REMEDY}")
        move = getattr(np, name)
        return _rearranged(
            arrays if several else (arrays,), lambda places: move(places if several else places[0], *args, **kwargs)
        )

    return call


def _block(arrays: Any) -> Any:
    """A matrix of blocks, which lie in lists of lists."""
    return _rearranged(_leaves(arrays), lambda places: np.block(_nested(arrays, iter(places))))


def _leaves(x: Any) -> Iterator[Any]:
    """What lies in lists of lists, in order."""
    if isinstance(x, list):
        for each in x:
            yield from _leaves(each)
    else:
        yield x


def _nested(x: Any, places: Iterator[Any]) -> Any:
    """The next places, in lists of lists as those of x."""
    return [_nested(each, places) for each in x] if isinstance(x, list) else next(places)


def _rearranged(arrays: Iterable[Any], move: Callable[[list[Any]], Any]) -> Any:
    """Elements of arrays, and zeros, where `move` puts their places, integers from 1 on, and 0."""
    numbers = _all_numbers(arrays)
    places, count = [], 1
    for x in numbers:
        places.append(np.arange(count, count + x.size).reshape(x.shape))
        count += x.size
    found = move(places)
    elements = _joined(numbers)
    if isinstance(found, list | tuple):
        return type(found)(_chosen(elements, each) for each in found)
    return _chosen(elements, found)


_ROUNDING = {"dtype", "casting", "out", "subok", "like"}
"""Options of functions that move elements which ask for another array than one of multiprecision numbers."""


def _joined(numbers: list[MPArray]) -> MPArray:
    """A zero and the elements of arrays, in one vector.

    Raises
    ------
    TypeError
        If some lie in NumPy memory, and some in CuPy memory.
    """
    if len({x.library for x in numbers}) > 1:
        raise TypeError("operands in NumPy and CuPy memory; move one by ozaki.asnumpy or ozaki.ascupy")
    xp, bits = numbers[0].library, max(x.bits for x in numbers)
    is_complex = any(x.is_complex for x in numbers)
    like = numbers[0] if not is_complex else next(x for x in numbers if x.is_complex)
    vectors = [_zeros((1,), like), *(x.reshape(-1) for x in numbers)]
    parts = [with_bits(as_complex(x) if is_complex else x, bits).parts for x in vectors]
    signs, exponents = (xp.concatenate(each) for each in ([x.signs for x in parts], [x.exponents for x in parts]))
    limbs = xp.concatenate([x.limbs for x in parts], axis=1)
    return MPArray(signs, exponents, limbs, bits, is_complex)


def _chosen(elements: MPArray, places: Any) -> MPArray:
    return elements[elements.library.asarray(places.reshape(-1))].reshape(places.shape)


def _array_equal(a1: Any, a2: Any) -> bool:
    x, y = _all_numbers((a1, a2))
    return x.shape == y.shape and bool((x == y).all())


_MOVING: dict[str, Callable[..., Any]] = {
    **{name: _rearranging(name, True) for name in (
        "column_stack", "concatenate", "dstack", "hstack", "stack", "vstack",
    )},
    **{name: _rearranging(name) for name in (
        "array_split", "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_to", "copy", "diag", "expand_dims", "flip",
        "moveaxis", "ravel", "repeat", "reshape", "roll", "split", "squeeze", "tile", "tril", "triu", "zeros_like",
    )},
}  # fmt: skip
"""Functions that move elements, by their names without "numpy.": NumPy itself is asked what their arguments do."""

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **_MOVING,
    "amax": _extreme("max"),
    "amin": _extreme("min"),
    "array_equal": _array_equal,
    "block": _block,
    "diagonal": lambda a, offset=0, axis1=0, axis2=1: a.diagonal(offset, axis1, axis2),
    "imag": lambda val: val.imag,
    "iscomplexobj": lambda x: x.is_complex,
    "isrealobj": lambda x: not x.is_complex,
    "linalg.diagonal": lambda x, offset=0: x.diagonal(offset, -2, -1),
    "linalg.matrix_power": _matrix_power,
    "linalg.matrix_transpose": lambda x: x.swapaxes(-1, -2),
    "linalg.norm": _norm,
    "linalg.trace": lambda x, offset=0: _trace(x, offset, -2, -1),
    "linalg.vecdot": lambda x1, x2: _vecdot(x1, x2),
    "matrix_transpose": lambda x: x.swapaxes(-1, -2),
    "max": _extreme("max"),
    "min": _extreme("min"),
    "ndim": lambda a: a.ndim,
    "real": lambda val: val.real,
    "shape": lambda a: a.shape,
    "size": lambda a: a.size,
    "sum": _sum,
    "swapaxes": lambda a, axis1, axis2: a.swapaxes(axis1, axis2),
    "trace": _trace,
    "transpose": lambda a, axes=None: a.transpose() if axes is None else a.transpose(axes),
}  # fmt: skip
"""By the names of NumPy's functions, without "numpy."; of arguments and their names as those have."""


def _method(name: str, reflected: str) -> Callable[[Any, Any], Any]:
    """A ufunc of two operands by a method of the left one, or, if only the right one is an `MPArray`, of that."""

    def call(x: Any, y: Any) -> Any:
        return getattr(x, name)(y) if isinstance(x, MPArray) else getattr(y, reflected)(x)

    return call


_UFUNCS: dict[str, Callable[..., Any]] = {
    "absolute": abs,
    "add": _method("__add__", "__radd__"),
    "conjugate": lambda x: x.conj(),
    "equal": _method("__eq__", "__eq__"),
    "greater": _method("__gt__", "__lt__"),
    "greater_equal": _method("__ge__", "__le__"),
    "ldexp": lambda x, exponents: _numbers(x).ldexp(exponents),
    "less": _method("__lt__", "__gt__"),
    "less_equal": _method("__le__", "__ge__"),
    "matmul": _matmul,
    "matvec": _matvec,
    "multiply": _method("__mul__", "__rmul__"),
    "negative": lambda x: -x,
    "not_equal": _method("__ne__", "__ne__"),
    "positive": lambda x: +x,
    "subtract": _method("__sub__", "__rsub__"),
    "vecdot": _vecdot,
    "vecmat": _vecmat,
}
"""By the names of NumPy's ufuncs."""

provided.array_ufunc, provided.array_function = array_ufunc, array_function
