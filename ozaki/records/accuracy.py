"""Accuracy targets: a measure of the error, a tolerance, and the shorthands that stand for both."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from decimal import Context, Decimal, InvalidOperation
from math import floor, inf, ldexp, sqrt
from numbers import Integral, Real
from typing import Literal, get_args

from ozaki.caches import cached
from ozaki.process.environment import default_environment
from ozaki.records.formats import MOST_BITS, in_units, precision_of

Measure = Literal["componentwise", "row-column", "normwise", "relative"]

_BITS = {"fp32": 24, "fp64": 53, "dd": 106, "qd": 212}
"""Bits of significand that each shorthand names."""

_OF_FORMATS = {name: name for name in ("bf16", "fp16", "exact", *_BITS)} | {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float32": "fp32",
    "single": "fp32",
    "float64": "fp64",
    "double": "fp64",
}
"""The accuracy that a name is likely to mean, written in small letters: its own, or that of a format."""

PLAIN_BITS = 1000
"""Most bits whose tolerance `Accuracy.tolerance` holds alone; that of more bits has a negative `Accuracy.exponent`."""

_TOLERANCE = "expected a number above 0 and below 1, as 5e-16"


@dataclass(frozen=True)
class Accuracy:
    """A measure and a tolerance, met before the one rounding to the output format.

    Parameters
    ----------
    measure : {"componentwise", "row-column", "normwise", "relative"}
        What the error E of the product is compared with. Componentwise: abs(E_ij) <= tolerance (abs(A) abs(B))_ij;
        row-column: abs(E_ij) <= tolerance norm(a_i) norm(b_j), a_i a row of A and b_j a column of B; normwise:
        norm(E)_F <= tolerance norm(A)_F norm(B)_F; relative: abs(E_ij) <= tolerance abs(C_ij), C the exact product, so
        that entries which cancel have as many right digits as all others, and an entry that is zero comes out zero.
        The abs of complex numbers is the modulus.
    tolerance : float
        Relative to the measure, without unit; below 1 (a result of zeros has the error 1). 0 asks for every bit of the
        product, which a multiprecision or integer result can hold.
    bits : int, optional
        Set by the shorthands: on normally distributed data the root-mean-square error is also to be no larger than
        that of a native product with this many bits of significand. This is estimated, not proven.
    exponent : int, optional
        The tolerance is tolerance 2**exponent; 0 or less. For tolerances below the range of a float.

    Raises
    ------
    ValueError, TypeError
        For an unknown measure, or a tolerance that is not a number between 0 and 1.

    Examples
    --------
    >>> import ozaki
    >>> ozaki.Accuracy("relative", 1e-12).in_words
    '1e-12'
    >>> ozaki.Accuracy.of("fp64", k=100)
    Accuracy(measure='componentwise', tolerance=4.440892098500626e-15, bits=53)
    """

    measure: Measure
    tolerance: float
    bits: int | None = None
    exponent: int = 0

    def __repr__(self) -> str:
        more = (f", {name}={x}" for name, x in (("bits", self.bits), ("exponent", self.exponent)) if x)
        return f"Accuracy(measure={self.measure!r}, tolerance={self.tolerance!r}{''.join(more)})"

    def __post_init__(self) -> None:
        if self.measure not in get_args(Measure):
            raise ValueError(
                f"accuracy: measure {self.measure!r} is not known; expected one of {', '.join(get_args(Measure))}"
            )
        if isinstance(self.tolerance, bool) or not isinstance(self.tolerance, Real):
            raise TypeError(f"accuracy: tolerance {self.tolerance!r}; {_TOLERANCE}")
        try:
            tolerance = float(self.tolerance)
        except OverflowError:
            tolerance = inf
        if not 0 <= tolerance < 1:
            whole = tolerance in range(1, MOST_BITS + 1)
            raise ValueError(
                f"accuracy: tolerance {self.tolerance!r}; {_TOLERANCE}"
                + (f", or accuracy={int(tolerance)} for so many bits" if whole else "")
            )
        object.__setattr__(self, "tolerance", tolerance)
        if self.bits is not None:
            _check_bits(self.bits)
            object.__setattr__(self, "bits", int(self.bits))
        if isinstance(self.exponent, bool) or not isinstance(self.exponent, Integral):
            raise TypeError(f"accuracy: exponent {self.exponent!r}; expected a whole number, 0 or less")
        if not -MOST_BITS <= self.exponent <= 0:
            raise ValueError(f"accuracy: exponent {self.exponent!r}; expected {-MOST_BITS} to 0")
        object.__setattr__(self, "exponent", int(self.exponent))

    @property
    def exact(self) -> bool:
        """Whether every bit of the product is asked for."""
        return self.tolerance == 0

    @property
    def in_words(self) -> str:
        """The tolerance for a person, as 5.3e-15."""
        if self.exact:
            return "exact"
        return in_units(self.tolerance, self.exponent, ".3g")

    @staticmethod
    @default_environment
    def of(accuracy: Accuracy | str | int | float, k: int) -> Accuracy:
        """Spell out a shorthand for products of inner dimension k.

        "fp32", "fp64", "dd", "qd" and a whole number of bits b mean componentwise min(k, 4 sqrt(k)) 2**-b, what a
        good native product of that format does in practice, or 1/2 where that is less; a float is a componentwise
        tolerance as it stands. A text may also be what the command line takes: "60", "1e-20", "2^-60", and
        "relative:1e-12", "row-column:2^-60" and so on for a measure and a tolerance.

        Parameters
        ----------
        accuracy : Accuracy, str, int or float
        k : int
            Inner dimension of the product.

        Returns
        -------
        Accuracy

        Raises
        ------
        ValueError, TypeError
            For an unknown name, a number of bits or a tolerance out of range, or another type.
        """
        if isinstance(accuracy, str):
            accuracy = of_text(accuracy)
        if isinstance(accuracy, Accuracy):
            return accuracy
        if isinstance(accuracy, str):
            if accuracy == "exact":
                return Accuracy("componentwise", 0.0)
            if (meant := _OF_FORMATS.get(accuracy.lower())) not in (None, accuracy):
                raise ValueError(f"accuracy: {accuracy!r} is not known; use {meant!r}")
            if accuracy in ("bf16", "fp16"):
                raise ValueError(
                    f"accuracy: {accuracy!r} is of products of two 16-bit operands, rounded once to their format; use "
                    "'fp32'"
                )
            if accuracy not in _BITS:
                raise ValueError(
                    f"accuracy: {accuracy!r} is not known; expected one of {', '.join(_BITS)}, exact, bf16 or fp16 "
                    "(of such operands), a number of bits, a tolerance as a float, 'relative:1e-12' or "
                    "Accuracy(measure, tolerance)"
                )
            return _bits(_BITS[accuracy], k)
        if isinstance(accuracy, bool) or not isinstance(accuracy, Real):
            raise TypeError(
                f"accuracy: {type(accuracy).__name__} is not supported; expected a name (as 'fp64' or 'bf16'), a "
                "number of bits (int, as 53), a tolerance (float below 1, as 5e-16) or Accuracy(measure, tolerance)"
            )
        if isinstance(accuracy, Integral):
            _check_bits(accuracy)
            return _bits(int(accuracy), k)
        if accuracy == 0:
            raise ValueError(f"accuracy: {accuracy!r}; {_TOLERANCE}, or 'exact'")
        return Accuracy("componentwise", accuracy)


def of_text(accuracy: Accuracy | str | int | float) -> Accuracy | str | int | float:
    """The number or the `Accuracy` that a text means; names as "fp64", and all that is no text, as they are.

    Numbers are decimal, or powers of two as 2^-60 and 2**-60; with a measure, as in relative:1e-12, tolerances.

    Raises
    ------
    ValueError, TypeError
        For a measure that is not known, and a tolerance that is none, or below 2**-100000.
    """
    if not isinstance(accuracy, str) or accuracy in _BITS:
        return accuracy
    measure, colon, number = accuracy.rpartition(":")
    value: str | int | float = number
    if power := re.fullmatch(r"2(?:\^|\*\*)(-?[0-9]{1,9})", number):
        value = _power(accuracy, int(power[1]))
    elif number.isascii() and "_" not in number:  # Python reads other digits too, and 1_0 as 10
        for kind in (int, float):
            try:
                value = kind(number)
                break
            except ValueError:
                continue
    if isinstance(value, float) and abs(value) < _NORMAL:
        tiny = _tiny(accuracy, int(power[1]), Decimal(1)) if power else _tiny(accuracy, 0, _decimal(accuracy, number))
        if tiny is not None:
            return Accuracy(measure if colon else "componentwise", tiny[0], exponent=tiny[1])  # type: ignore[arg-type]
    if not colon:
        return value
    if isinstance(value, str):
        raise ValueError(f"accuracy: {accuracy!r}; expected MEASURE:TOLERANCE, as componentwise:1e-20")
    return Accuracy(measure, value)  # type: ignore[arg-type]


_NORMAL = sys.float_info.min
"""The smallest number that a float holds with all its bits."""


def _decimal(text: str, number: str) -> Decimal:
    """The decimal number that a float reads as 0, or nearly so; raises about the accuracy `text` if it is negative."""
    try:
        found = Decimal(number)
    except InvalidOperation:  # beyond all exponents of decimal numbers
        raise ValueError(_least(text)) from None
    if found < 0:
        raise ValueError(f"accuracy: {text!r}; {_TOLERANCE}")
    return found


def _tiny(text: str, exponent: int, factor: Decimal) -> tuple[float, int] | None:
    """Factor 2**exponent, which a float does not hold, as (tolerance, exponent of two); None for 0.

    Raises
    ------
    ValueError
        About the accuracy `text`, if the number is below 2**-100000.
    """
    if not factor:
        return None
    if factor.adjusted() < -MOST_BITS:  # its logarithm may be beyond all numbers
        raise ValueError(_least(text))
    tens = Context(prec=30)
    whole = exponent + floor(tens.divide(tens.log10(factor), tens.log10(Decimal(2)))) + 1
    if whole <= -MOST_BITS:
        raise ValueError(_least(text))
    return float(tens.divide(factor, tens.power(2, whole - exponent))) * (1 - 2.0**-53), whole


def _least(text: str) -> str:
    """What is wrong with an accuracy whose tolerance is too small."""
    return f"accuracy: {text!r}; expected a tolerance of at least 2^-{MOST_BITS}"


def _power(text: str, exponent: int) -> float:
    """2**exponent; raises about the accuracy `text` if it overflows."""
    if exponent > 1023:
        raise ValueError(f"accuracy: {text}; expected a tolerance that float64 holds")
    return ldexp(1.0, exponent)


def _check_bits(bits: object) -> None:
    if isinstance(bits, bool) or not isinstance(bits, Integral):
        raise TypeError(f"accuracy: bits {bits!r}; expected a whole number from 1 to {MOST_BITS}")
    if not 1 <= int(bits) <= MOST_BITS:
        raise ValueError(f"accuracy: {bits} bits; expected 1 to {MOST_BITS} (a tolerance is a float, as 1e-20)")


def _bits(bits: int, k: int) -> Accuracy:
    exponent = 0 if bits <= PLAIN_BITS else PLAIN_BITS - bits
    native = max(1.0, min(k, 4 * sqrt(k))) * 2.0 ** -(bits + exponent)
    return Accuracy("componentwise", min(native, 0.5), bits, exponent)  # 4 sqrt(k) 2**-bits may be 1 or more


@cached(256)
def default_accuracy(dtype: str, k: int) -> Accuracy:
    """The target where the caller names no accuracy: as many bits as the result's format has."""
    return Accuracy.of(precision_of(dtype), k)
