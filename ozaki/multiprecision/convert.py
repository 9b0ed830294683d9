"""`Numbers` of whatever a caller gives: arrays, words, nested lists, matrices and numbers of other libraries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Complex, Real
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.interchange.plain import check_items, check_plain, plain
from ozaki.multiprecision.arithmetic import with_bits
from ozaki.multiprecision.collector import paused_collector
from ozaki.multiprecision.errors import UnfitError
from ozaki.multiprecision.floats import BFLOAT16_BITS, PRECISION, of_floats, of_integers, of_words
from ozaki.multiprecision.limbs import library
from ozaki.multiprecision.numbers import Integers, Numbers, as_complex, of_parts
from ozaki.multiprecision.quads import is_quad
from ozaki.multiprecision.scalars import wholes_of
from ozaki.multiprecision.wholes import of_wholes
from ozaki.process.environment import default_environment
from ozaki.records.formats import COMPLEX, QUAD_BITS

_MATRICES: dict[tuple[str, str], Callable[[Any], tuple[tuple[int, ...], list[Any]]]] = {
    ("mpmath", "matrix"): lambda x: ((x.rows, x.cols), list(x)),
    ("flint", "fmpz_mat"): lambda x: ((x.nrows(), x.ncols()), x.entries()),
    ("flint", "fmpq_mat"): lambda x: ((x.nrows(), x.ncols()), x.entries()),
    ("flint", "arb_mat"): lambda x: ((x.nrows(), x.ncols()), x.entries()),
    ("flint", "acb_mat"): lambda x: ((x.nrows(), x.ncols()), x.entries()),
    ("mparray", "MPArray"): lambda x: (x.shape, x._data.reshape(-1).tolist()),  # it has no conversion of its own
}
"""By library and class: the shape and the entries, in row-major order."""


@default_environment
def numbers_of(x: Any, bits: int | None) -> Numbers:
    """The numbers of anything that `mparray` takes; with `bits` given, rounded to nearest in a format of so many bits.

    Raises
    ------
    ValueError, TypeError
        As `mparray` says.
    """
    with paused_collector():
        found = _numbers_of(x, bits, bits)
    return found if bits is None else with_bits(found, bits)


def exactly(x: Any, name: str = "x") -> Numbers:
    """The numbers of anything that `mparray` takes without `bits`; `name` is that of the argument, for messages.

    Raises
    ------
    ValueError, TypeError
        As `mparray` says.
    """
    try:
        return numbers_of(x, None)
    except (ValueError, TypeError) as error:
        raise type(error)(f"{name}: {str(error).removeprefix('x: ')}") from None


def is_matrix(x: Any) -> bool:
    """Whether x is a matrix of mpmath or python-flint, or an array of mparray: of numbers without hardware format."""
    return _matrix_of(x) is not None


def _matrix_of(x: Any) -> Callable[[Any], tuple[tuple[int, ...], list[Any]]] | None:
    kind = type(x)
    return _MATRICES.get((kind.__module__.partition(".")[0], kind.__name__))


@default_environment
def comparable(x: Any, bits: int) -> Numbers:
    """The numbers of anything that `mparray` takes, exactly; what is not dyadic as one of more than `bits` bits.

    So it equals the same numbers of `bits` bits as x does.

    Raises
    ------
    ValueError, TypeError
        As `mparray` says.
    """
    with paused_collector():
        return _numbers_of(x, bits, None)


def _of_objects(values: list[Any], shape: tuple[int, ...], cut: int | None, bits: int | None) -> Numbers:
    """The numbers of single objects in row-major order.

    What is not dyadic is cut off as `wholes_of` does for `cut` bits; all are rounded at `bits` bits. If one of them is
    complex, all are.

    Raises
    ------
    ValueError, TypeError
        If one of them does not fit; the message names it.
    """
    if _holds_complex(values):
        pairs = [(value.real, value.imag) if is_complex_number(value) else (value, 0) for value in values]
        try:
            return of_parts(of_wholes(*wholes_of([part for pair in pairs for part in pair], cut), (*shape, 2), bits))
        except UnfitError as unfit:
            raise UnfitError(unfit.position // 2, unfit.error).named(shape) from None
    try:
        return of_wholes(*wholes_of(values, cut), shape, bits)
    except UnfitError as unfit:
        raise unfit.named(shape) from None


def _holds_complex(values: list[Any]) -> bool:
    """Whether one of these objects is a complex number."""
    kinds = set(map(type, values))
    if any(issubclass(kind, Numbers) for kind in kinds):
        return any(map(is_complex_number, values))
    return any(map(_is_complex_class, kinds))


def is_complex_number(value: Any) -> bool:
    """Whether a single object is a complex number of Python, NumPy, mpmath, gmpy2 or python-flint, or an `MPArray`."""
    return value.is_complex if isinstance(value, Numbers) else _is_complex_class(type(value))


def _is_complex_class(kind: type) -> bool:
    of_flint = kind.__module__.partition(".")[0] == "flint" and kind.__name__ == "acb"
    return of_flint or (issubclass(kind, Complex) and not issubclass(kind, Real))


def _numbers_of(x: Any, cut: int | None, bits: int | None) -> Numbers:
    """The numbers, exactly where they lie in arrays of a library; single objects as `_of_objects` says."""
    if isinstance(x, Numbers):
        return x
    if isinstance(x, tuple):
        return of_words(_stacked(x))
    matrix = _matrix_of(x)
    if matrix is not None:
        shape, entries = matrix(x)
        found = _of_objects(entries, shape, cut, bits)
        return Integers.of(found) if type(x).__name__ == "fmpz_mat" else found
    check_plain("x", x)
    if isinstance(x, Sequence) and not isinstance(x, str | bytes | memoryview):
        check_items("x", x)
        x = _nested(x)
    elif library(x) is np:
        if not (hasattr(x, "__array__") or isinstance(x, memoryview)):
            return _of_objects([x], (), cut, bits)
        x = plain("x", x, objects=True)
    return _of_array(x, cut, bits)


def _of_array(x: Any, cut: int | None, bits: int | None) -> Numbers:
    """The numbers of a NumPy or CuPy array."""
    if x.dtype.name == "bfloat16":
        found = of_floats(x.astype(np.float32))  # exact
        return Numbers(found.signs, found.exponents, found.limbs, BFLOAT16_BITS)
    name = x.dtype.name if isinstance(x.dtype, np.dtype) and x.dtype.kind in "fiubc" else ""
    if name in PRECISION or name in COMPLEX:
        return of_floats(x)
    if x.dtype.kind in "iub" and name:
        found = of_integers(x)
        return Numbers(found.signs, found.exponents, found.limbs, max(found.bits, 2))
    if library(x) is not np or not (x.dtype.kind in "OUTfc" or is_quad(x)):
        raise TypeError(f"x: an array of dtype {x.dtype}; expected floats, complex numbers, integers, bools or objects")
    flat = x.reshape(-1)
    # Long doubles and quads stay scalars of their libraries: tolist() would round them to Python's numbers.
    found = _of_objects(flat.tolist() if x.dtype.kind in "OUT" else [*flat], x.shape, cut, bits)
    if is_quad(x) and bits is None:
        found = with_bits(found, QUAD_BITS)
    return as_complex(found) if x.dtype.kind == "c" else found


def _nested(x: Sequence[Any]) -> npt.NDArray[Any]:
    """Nested lists as an array of objects."""
    try:
        array = np.array(x, dtype=object)
    except ValueError:
        raise ValueError("x: nested lists of unequal lengths; expected rows that are equally long") from None
    return array


def _stacked(words: Sequence[Any]) -> Any:
    """The words of an unevaluated sum as one array, shape (w, ...)."""
    if not words:
        raise ValueError("x: an empty tuple; a tuple holds the words of an unevaluated sum: one float64 array or more")
    words = [plain("x", x) if isinstance(x, np.ndarray) and library(x) is np else x for x in words]
    for place, word in enumerate(words):
        is_array = isinstance(word, np.ndarray | np.generic) or library(word) is not np
        named = word.dtype if is_array else type(word).__name__
        if str(getattr(named, "name", named)) not in ("float64", "complex128"):
            raise TypeError(
                f"x: item {place} of the tuple is of type {named}; a tuple holds the words of an unevaluated sum as "
                "float64 or complex128 arrays, and a list holds elements"
            )
        if word.shape != words[0].shape:
            raise ValueError(f"x: word {place} has shape {word.shape}, word 0 {words[0].shape}; expected equal shapes")
    if len({library(word) for word in words}) > 1:
        raise TypeError("x: words in NumPy and CuPy memory; expected one library")
    dtype = np.result_type(*(word.dtype.newbyteorder("=") for word in words))
    return library(words[0]).stack([word.astype(dtype, copy=False) for word in words])
