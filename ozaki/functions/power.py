"""Powers of matrices, with all their bits or to a named accuracy."""

from __future__ import annotations

from math import ceil, ldexp, log2
from operator import index as integer_of
from typing import Any

import numpy as np

from ozaki.call.format_checks import check_complex, check_quads, check_room
from ozaki.call.integers import of_objects
from ozaki.driver.watching import named
from ozaki.functions.contracting import Multiply
from ozaki.functions.products import matmul
from ozaki.interchange.calls import any_arrays
from ozaki.multiprecision.array import MPArray
from ozaki.multiprecision.convert import exactly, is_matrix
from ozaki.multiprecision.floats import to_int64
from ozaki.multiprecision.numbers import Numbers, moved
from ozaki.multiprecision.objects import mparray
from ozaki.process.environment import default_environment
from ozaki.records.accuracy import PLAIN_BITS, Accuracy
from ozaki.records.formats import DTYPES, HALVES, MULTIPRECISION, format_named, is_multiprecision, precision_of


@any_arrays("a")
@default_environment
@named("matrix_power")
def matrix_power(a: Any, n: int, *, accuracy: Accuracy | str | float = "exact", dtype: Any = None) -> Any:
    """Compute a matrix to a power by repeated squaring: exactly, or to a named accuracy.

    Parameters
    ----------
    a : MPArray, or anything else that `mparray` takes without `bits`, shape (..., m, m)
    n : int
        The power, 0 or more.
    accuracy : Accuracy, str, int or float
        "exact": every bit, of which there are about n times as many as in `a`. Else a componentwise accuracy, as for
        `matmul` of matrices of this size: with it a power of 1000 takes 10 bits more than one product.
    dtype : str, optional
        The format of the result, as for `matmul`. Default: that of `a`, if it is an array of floats or complex numbers
        whose format has as many bits as the accuracy asks for (integers count as float64); else "mp".

    Returns
    -------
    MPArray or array, of the shape of `a`

    Raises
    ------
    ValueError
        If `n` is below 0, the matrices are not square, an accuracy is not componentwise, or an entry of a product has
        too many bits.
    TypeError
        If `n` is no integer, or the dtype none of a power.
    OverflowError
        With dtype="int64", if an entry does not fit; the message names it.

    Notes
    -----
    With tol the tolerance of the accuracy: abs(c - a^n)_ij <= tol (abs(a)^n)_ij before a rounding to `dtype`, if that
    is not "mp" (docs/bounds.md, B12). So each entry of a power of a nonnegative matrix has so many right bits.

    Examples
    --------
    >>> import numpy as np, ozaki
    >>> ozaki.matrix_power(np.array([[1, 1], [1, 0]]), 100).to_integers()[0, 1]
    354224848179261915075
    >>> ozaki.matrix_power(np.array([[0.9, 0.2], [0.1, 0.7]]), 1000, accuracy="dd").bits
    108
    """
    try:
        exponent = integer_of(n)
    except TypeError:
        raise TypeError(f"n: {type(n).__name__}; expected an integer, 0 or more") from None
    if exponent < 0:
        raise ValueError(f"n: {n}; expected 0 or more: inverses have no end in binary")
    square = MPArray._of(exactly(a, "a"))
    if square.ndim < 2 or square.shape[-2] != square.shape[-1]:
        raise ValueError(f"a: shape {square.shape}; expected square matrices, as (3, 3)")
    target = Accuracy.of(accuracy, square.shape[-1])
    if target.measure != "componentwise":
        raise ValueError(f"accuracy: measure {target.measure!r}; expected a componentwise one, of abs(a)^n")
    asked = _format(a, square, target, dtype)
    if exponent == 0:
        one = np.eye(square.shape[-1], dtype=np.complex128 if square.is_complex else np.float64)
        found = moved(mparray(np.broadcast_to(one, square.shape)), square.library)
    else:
        found = _power(square, exponent, target)
    if asked == "int64":
        return to_int64(found)
    if not is_multiprecision(asked):
        return found.astype(asked if dtype is None else dtype)
    return found if asked == MULTIPRECISION else found.round_to(precision_of(asked))


def _power(square: MPArray, exponent: int, target: Accuracy) -> MPArray:
    """A power of 1 or more, to a target."""
    products = exponent.bit_length() + exponent.bit_count() - 2
    of_last, of_others = (target, target) if target.exact or exponent < 3 else _shares(target, exponent - 2)

    def multiply(x: MPArray, y: MPArray) -> Any:
        nonlocal products
        products -= 1
        return matmul(x, y, accuracy=of_others if products else of_last)

    found: MPArray = power_by(multiply, square, exponent)
    return found


def power_by(multiply: Multiply, square: Any, exponent: int) -> Any:
    """A power of 1 or more by calls of `multiply`: `exponent.bit_length() + exponent.bit_count() - 2` of them."""
    result: Any = None
    while True:
        if exponent % 2:
            result = square if result is None else multiply(result, square)
        exponent //= 2
        if exponent == 0:
            return result
        square = multiply(square, square)


def _shares(target: Accuracy, errors: int) -> tuple[Accuracy, Accuracy]:
    """The accuracy of the last product, and that of those before, whose error is in the power `errors` times (B12)."""
    whole = target.tolerance / (1 + ldexp(target.tolerance, target.exponent)) * (1 - 2.0**-40)
    of_others = _tolerance(whole, target.exponent - 1 - errors.bit_length())
    return _tolerance(whole, target.exponent - 1, target.bits), of_others


def _tolerance(tolerance: float, exponent: int, bits: int | None = None) -> Accuracy:
    """The componentwise accuracy of tolerance 2**exponent, which may be below the range of a float."""
    unit = min(PLAIN_BITS - ceil(-log2(tolerance)) + exponent, 0)
    return Accuracy("componentwise", ldexp(tolerance, exponent - unit), bits, unit)


def _format(a: Any, numbers: MPArray, target: Accuracy, dtype: Any) -> str:
    """The format of the result.

    Raises
    ------
    TypeError, ValueError
        If the dtype is none of a power of these numbers.
    """
    asked = format_named(dtype)
    check_complex(asked, numbers.is_complex, of_addend=False)
    check_quads(asked, numbers.library.__name__)
    if target.exact:
        check_room(asked)
    if asked is not None:
        return asked
    own = _format_of(a)
    if own is None or target.exact:
        return MULTIPRECISION
    held = precision_of(own) >= target.bits if target.bits else target.tolerance >= 2.0 ** -precision_of(own)
    return own if held else MULTIPRECISION


def _format_of(a: Any) -> str | None:
    """The format of the hardware that an operand counts as; None if it has none."""
    if isinstance(a, Numbers | tuple) or is_matrix(a):
        return None
    found = a if hasattr(a, "dtype") else np.asarray(a)
    dtype = found.dtype
    if dtype.kind in "biu" or (dtype.kind == "O" and of_objects(found) is not None):
        return "float64"
    name = "float32" if dtype.name in HALVES else dtype.name
    return name if name in DTYPES else None
