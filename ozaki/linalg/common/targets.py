"""What a caller asks of a solution: how accurate, in which format."""

from __future__ import annotations

from math import ceil, log2
from typing import Any, Literal, NamedTuple

from ozaki.records.accuracy import Accuracy, of_text
from ozaki.records.formats import (
    COMPLEX,
    QUAD,
    SIGNIFICAND_BITS,
    format_named,
    is_multiprecision,
    part_of,
    precision_of,
    result_format,
)

MOST_BITS = 900
"""The most bits that solutions, factors and spectra have."""

SMALLEST = 2.0**-MOST_BITS
"""The smallest tolerance: error bounds are float64 numbers."""

_EXPECTED = (
    f"expected 'fp32', 'fp64', 'dd', 'qd', a number of bits from 1 to {MOST_BITS} (an int, as 106), or a tolerance "
    f"from 2^-{MOST_BITS} to below 1 (a float, as 1e-20)"
)


OF_DTYPE = "dtype"
"""The accuracy that has as many bits as the dtype of the result: what None stands for, if for no accuracy at all."""


class Target(NamedTuple):
    """The accuracy of a solution before it is rounded to its format.

    Attributes
    ----------
    measure : "normwise": errors of a column relative to its largest element; "relative": each to its element
    tolerance : the largest such error
    dtype : the format of the solution: "float64", "complex128", "mp60" and so on
    """

    measure: Literal["normwise", "relative"]
    tolerance: float
    dtype: str


def target_of_real(accuracy: Accuracy | str | float | None, dtype: Any, operands: list[str]) -> Target:
    """As `target_of`, of a result that is real whatever the operands are."""
    return target_of(accuracy, dtype, [part_of(each) for each in operands])


def target_of(accuracy: Accuracy | str | float | None, dtype: Any, operands: list[str]) -> Target:
    """The target of a solution of operands with these formats.

    Raises
    ------
    ValueError, TypeError
        If the accuracy or the dtype cannot be had of a solution.
    """
    accuracy = None if accuracy == OF_DTYPE else accuracy
    asked = format_named(dtype)
    if asked in ("int64", QUAD):
        raise TypeError(f"dtype: {asked!r}; expected a floating-point dtype or 'mp'")
    if asked in SIGNIFICAND_BITS and any(x in COMPLEX for x in operands):
        raise TypeError(f"dtype: {asked!r}, but operands are complex; expected complex64, complex128 or 'mp'")
    named = None if accuracy is None else _named(accuracy)
    measure: Literal["normwise", "relative"] = "normwise"
    accuracy = None if accuracy is None else of_text(accuracy)
    if isinstance(accuracy, Accuracy):
        if accuracy.measure not in ("normwise", "relative"):
            raise ValueError(f"accuracy: measure {accuracy.measure!r}; expected 'normwise' or 'relative' of a solution")
        measure = "relative" if accuracy.measure == "relative" else "normwise"
    found = result_format(asked, tuple(operands), named)
    tolerance = 2.0 ** -precision_of(found) if named is None else named.tolerance
    if named is None and tolerance < SMALLEST:
        raise ValueError(
            f"accuracy: none named, and the result has {precision_of(found)} bits; name at most {MOST_BITS} bits"
        )
    if is_multiprecision(found) and asked in (None, "mp"):
        found = f"mp{max(2, ceil(-log2(tolerance)) + 2)}"  # rounding to it takes a quarter of the tolerance
    return Target(measure, tolerance, found)


def _named(accuracy: Accuracy | str | float) -> Accuracy:
    """The accuracy that a caller names.

    Raises
    ------
    ValueError, TypeError
        If no solution or factor can have it.
    """
    try:
        named = Accuracy.of(accuracy, 1)
    except (ValueError, TypeError) as error:  # whose message speaks of products
        raise type(error)(f"accuracy: {accuracy!r}; {_EXPECTED}") from None
    if named.exact:
        raise ValueError(f"accuracy: {accuracy!r}; the result may have no end in binary, so name bits or a tolerance")
    if named.exponent or named.tolerance < SMALLEST:
        raise ValueError(f"accuracy: {accuracy!r}; {_EXPECTED}")
    return named
