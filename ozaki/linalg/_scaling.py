"""Scaling rows and columns by powers of two, exactly, so that elements are alike in size."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.linalg._arrays import Sum, array_library, on_host
from ozaki.multiprecision.numbers import Numbers
from ozaki.multiprecision.objects import mparray

Exponents = npt.NDArray[np.int64]

ZERO = np.iinfo(np.int64).min
"""The top of a row or column of zeros."""

LEAST_EXPONENT = -2560
"""Of a scaled matrix, whose largest elements are about 1, elements below 2**LEAST_EXPONENT are left out."""

_WIDEST = 16384
"""Elements as small as 2**-_WIDEST are multiplied exactly where they must be: products take their time and memory."""


def tops(x: Any, axis: int, by: Any = None) -> Exponents:
    """Along an axis of a matrix, the exponent e of the largest part of an element: below 2**e. ZERO where all are 0.

    With `by` of the matrix times 2**by, which has a power for each element, row or column.
    """
    x = x.high if isinstance(x, Sum) else x
    xp = array_library(x)
    if isinstance(x, Numbers):
        exponents, nonzero = x.exponents, x.signs != 0
    else:
        parts = xp.stack((x.real, x.imag), axis=-1) if x.dtype.kind == "c" else x
        exponents, nonzero = xp.frexp(parts)[1].astype(np.int64), parts != 0
    found = xp.where(nonzero, exponents, ZERO)
    if found.ndim == 3:
        found = found.max(axis=2)
    if by is not None:
        found = xp.where(found == ZERO, ZERO, found + by)
    if not found.shape[axis]:
        return np.full(found.shape[1 - axis], ZERO)
    top: Exponents = on_host(found.max(axis=axis))
    return top


def tops_or_zero(x: Any, axis: int, by: Any = None) -> Exponents:
    """As `tops`, but 0 where all elements are 0."""
    found = tops(x, axis, by)
    found[found == ZERO] = 0
    return found


def nonzero_tops(a: Any, axis: int, what: str, by: Any = None) -> Exponents:
    """As `tops` of the matrix a; `what` begins the message about a row or column of zeros, as "singular, row".

    Raises
    ------
    numpy.linalg.LinAlgError
        If there is one.
    """
    found = tops(a, axis, by)
    if (zeros := np.flatnonzero(found == ZERO)).size:
        raise np.linalg.LinAlgError(f"a: {what} {zeros[0]} is zero")
    return found


def scaled(x: Any, rows: Exponents, columns: Exponents) -> Any:
    """The matrix x with row i times 2**rows[i] and column j times 2**columns[j]: exactly, an MPArray if need be."""
    if not (rows.any() or columns.any()):
        return x
    xp = array_library(x)
    return ldexp(x, xp.asarray(rows)[:, None] + xp.asarray(columns))


def ldexp(x: Any, by: Any) -> Any:
    """Numbers times 2**by, exactly: an MPArray if floats do not hold them."""
    if isinstance(x, Numbers):
        return x.ldexp(by)  # type: ignore[attr-defined]
    if isinstance(x, Sum):
        high, low = (ldexp(each, by) for each in x)
        return high + low if isinstance(high, Numbers) or isinstance(low, Numbers) else Sum(high, low)
    found = float_ldexp(x, by)
    # Where an element over- or underflows, it does not come back.
    return found if bool((float_ldexp(found, -by) == x).all()) else mparray(x).ldexp(by)


def float_ldexp(x: Any, by: Any) -> Any:
    """Floats times 2**by, which may over- or underflow."""
    xp = array_library(x)
    by = xp.clip(by, -5000, 5000).astype(np.int32)
    if x.dtype.kind != "c":
        return xp.ldexp(x, by)
    found = xp.empty(np.broadcast_shapes(by.shape, x.shape), x.dtype)
    found.real, found.imag = xp.ldexp(x.real, by), xp.ldexp(x.imag, by)
    return found


def without_tiny(x: Any) -> tuple[Any, bool]:
    """A scaled matrix without its elements below 2**LEAST_EXPONENT, and whether it had any.

    They change results far less than the smallest accuracy (docs/linalg.md, L6), but a product accurate in each entry
    takes as many bits as its operands span. Parts of complex elements count one by one.
    """
    if not isinstance(x, Numbers):
        return x, False  # float64 spans fewer bits
    tiny = (x.signs != 0) & (x.exponents <= LEAST_EXPONENT)
    if not bool(tiny.any()):
        return x, False
    return type(x)(x.signs * ~tiny, x.exponents * ~tiny, x.limbs * ~tiny, x.bits, x.is_complex), True


def check_span(name: str, x: Any) -> None:
    """Refuse a scaled matrix whose elements are too far apart for products that keep all of them.

    Raises
    ------
    ValueError
    """
    if isinstance(x, Numbers) and bool((nonzero := x.signs != 0).any()):
        least = int(x.exponents[nonzero].min())
        if least < -_WIDEST:
            raise ValueError(
                f"{name}: has an element below 2^{least} times the largest of its column, on which a solution far "
                f"smaller than b may depend; expected at least 2^-{_WIDEST}, or 0"
            )
