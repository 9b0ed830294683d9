"""Scaling rows and columns by powers of two, exactly, so that elements are alike in size."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ozaki.linalg.common.arrays import Sum, array_library, on_host, times_powers, times_signs
from ozaki.multiprecision.numbers import Numbers
from ozaki.multiprecision.objects import mparray

Exponents = npt.NDArray[np.int64]

ZERO = np.iinfo(np.int64).min
"""The top of a row or column of zeros."""

LEAST_EXPONENT = -2560
"""Of a scaled matrix, whose largest elements are about 1, elements below 2**LEAST_EXPONENT are left out."""

WIDEST = 16384
"""Elements as small as 2**-WIDEST are multiplied exactly where they must be: products take their time and memory."""


class Powers(NamedTuple):
    """Powers of two, as their exponents: row i of a matrix times 2**rows[i] and column j times 2**columns[j].

    None in place of exponents leaves rows, or columns, as they are.
    """

    rows: Exponents | None = None
    columns: Exponents | None = None

    @property
    def alike(self) -> bool:
        """Whether they leave a matrix as it is."""
        return not any(each is not None and each.any() for each in self)

    def inverse(self) -> Powers:
        """The powers that undo these."""
        return Powers(*(None if each is None else -each for each in self))

    def of_elements(self, xp: Any) -> Any:
        """The exponents of elements, in arrays of a library: an array that broadcasts to the matrix."""
        rows, columns = (None if each is None else xp.asarray(each) for each in self)
        if rows is None:
            return 0 if columns is None else columns
        return rows[:, None] if columns is None else rows[:, None] + columns


NO_POWERS = Powers()


def tops(x: Any, axis: int, powers: Powers = NO_POWERS) -> Exponents:
    """Along an axis of a matrix, the exponent e of the largest part of an element: below 2**e. ZERO where all are 0.

    That of the matrix times powers of two, if these are given.
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
    if not found.shape[axis]:
        return np.full(found.shape[1 - axis], ZERO)
    if powers is not NO_POWERS:
        found = xp.where(found == ZERO, ZERO, found + powers.of_elements(xp))
    top: Exponents = on_host(found.max(axis=axis))
    return top


def tops_or_zero(x: Any, axis: int, powers: Powers = NO_POWERS) -> Exponents:
    """As `tops`, but 0 where all elements are 0."""
    found = tops(x, axis, powers)
    found[found == ZERO] = 0
    return found


def nonzero_tops(a: Any, axis: int, what: str, powers: Powers = NO_POWERS) -> Exponents:
    """As `tops` of the matrix a; `what` begins the message about a row or column of zeros, as "singular, row".

    Raises
    ------
    numpy.linalg.LinAlgError
        If there is one.
    """
    found = tops(a, axis, powers)
    if (zeros := np.flatnonzero(found == ZERO)).size:
        raise np.linalg.LinAlgError(f"a: {what} {zeros[0]} is zero")
    return found


def where_far(exponents: Exponents, apart: bool) -> Exponents:
    """Exponents of powers of two that floats are scaled by, or zeros in place of all where none is needed.

    None is if sizes are near 1 and, where it counts that they are `apart`, near each other.
    """
    least, most = int(exponents.min(initial=0)), int(exponents.max(initial=0))
    needed = max(-least, most) > _NEAR or (apart and int(np.ptp(exponents)) > _ALIKE)
    return exponents if needed else np.zeros_like(exponents)


_NEAR = 100
"""Sizes of 2**-_NEAR to 2**_NEAR: squares and products of a few such numbers are far from the ends of float64."""

_ALIKE = 2
"""Sizes that differ by no more than factors of 2**_ALIKE: condition numbers hardly show it."""


def scaled(x: Any, powers: Powers) -> Any:
    """A matrix times powers of two, exactly: an MPArray if floats do not hold it."""
    if powers.alike:
        return x
    if isinstance(x, Numbers):
        return x.ldexp(powers.of_elements(x.library))  # type: ignore[attr-defined]
    if isinstance(x, Sum):
        high, low = (scaled(each, powers) for each in x)
        return high + low if isinstance(high, Numbers) or isinstance(low, Numbers) else Sum(high, low)
    found = float_scaled(x, powers)
    # Where an element over- or underflows, it does not come back.
    return found if bool((float_scaled(found, powers.inverse()) == x).all()) else scaled(mparray(x), powers)


def float_scaled(x: Any, powers: Powers) -> Any:
    """Floats times powers of two, which may over- or underflow."""
    xp = array_library(x)
    given = [each for each in powers if each is not None]
    if all(abs(each).max(initial=0) <= _PLAIN for each in given):
        rows, columns = (None if each is None else xp.asarray(np.ldexp(1.0, each)) for each in powers)
        x = x if rows is None else x * rows[:, None]
        return x if columns is None else x * columns
    return times_powers(x, _exponents(powers, xp)) if x.dtype.kind == "c" else bounds_scaled(x, powers)


def bounds_scaled(x: Any, powers: Powers) -> Any:
    """Real floats times powers of two, those of a row and a column at once: what underflows does so in the end.

    Error bounds of many bits are so small that a power for rows may take them below all floats before the one for
    columns.
    """
    xp = array_library(x)
    return xp.ldexp(x, _exponents(powers, xp))


def _exponents(powers: Powers, xp: Any) -> Any:
    """Exponents of elements within what `ldexp` takes, beyond which floats are zero or Inf."""
    return xp.clip(powers.of_elements(xp), -5000, 5000).astype(np.int32)


_PLAIN = 1000
"""Exponents of which powers of two are float64 numbers, by which multiplying is quicker than ldexp."""


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
    return times_signs(x, ~tiny), True


def check_span(name: str, x: Any) -> None:
    """Refuse a scaled matrix whose elements are too far apart for products that keep all of them.

    Raises
    ------
    ValueError
    """
    if isinstance(x, Numbers) and bool((nonzero := x.signs != 0).any()):
        least = int(x.exponents[nonzero].min())
        if least < -WIDEST:
            raise ValueError(
                f"{name}: has an element below 2^{least} times the largest of its column, on which a solution far "
                f"smaller than b may depend; expected at least 2^-{WIDEST}, or 0"
            )
