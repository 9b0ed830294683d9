"""Single numbers of Python, NumPy, mpmath, gmpy2, python-flint and numpy_quaddtype as wholes times powers of two.

No library is imported for this: its numbers are recognised by the module of their class and by what they offer. A
number that is not dyadic, as 1/3, is cut off after bits + 2 bits, and one more bit is set to say so: that number rounds
at `bits` bits as the exact one does.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Context, Decimal, InvalidOperation
from math import gcd
from numbers import Rational
from operator import index as integer_of
from typing import Any

import numpy as np

from ozaki.multiprecision.errors import UnfitError
from ozaki.multiprecision.numbers import MOST_BITS

Whole = tuple[int, int]
"""A whole number and the exponent of the power of two that it is multiplied by."""

EXPECTED = (
    "an integer, a float, a complex number, a Fraction, a Decimal, a decimal string or one as '1/3', or a number of "
    "mpmath, gmpy2, python-flint or numpy_quaddtype"
)


def wholes_of(values: list[Any], bits: int | None) -> tuple[list[int], list[int]]:
    """Whole numbers and exponents of any numbers.

    Parameters
    ----------
    values : list of numbers
    bits : int or None
        What is not dyadic is cut off so that it can be rounded at so many bits; None: it is refused.

    Raises
    ------
    UnfitError
        If an element is no finite real number, or not dyadic without `bits`.
    """
    kinds = set(map(type, values))
    if len(kinds) == 1:
        return _of_one_kind(kinds.pop(), values, bits)
    places: dict[type, list[int]] = {kind: [] for kind in kinds}
    for place, value in enumerate(values):
        places[type(value)].append(place)
    wholes, exponents = [0] * len(values), [0] * len(values)
    unfit: list[UnfitError] = []
    for kind, where in places.items():
        try:
            found = _of_one_kind(kind, [values[place] for place in where], bits)
        except UnfitError as error:
            unfit.append(UnfitError(where[error.position], error.error))
            continue
        for place, whole, exponent in zip(where, *found, strict=True):
            wholes[place], exponents[place] = whole, exponent
    if unfit:
        raise min(unfit, key=lambda each: each.position)
    return wholes, exponents


def dyadic(value: Any) -> Whole:
    """A number as whole 2**exponent, exactly, whole odd or 0.

    Raises
    ------
    ValueError, TypeError
        If it is not dyadic, or no finite real number; the message starts with "is".
    """
    whole, exponent = _reader(type(value))(value, None)
    zeros = (whole & -whole).bit_length() - 1 if whole else -exponent
    return whole >> max(zeros, 0), exponent + zeros


def _of_one_kind(kind: type, values: list[Any], bits: int | None) -> tuple[list[int], list[int]]:
    if kind is int:
        return values, [0] * len(values)
    found = _of_floats(values) if issubclass(kind, float) else _of_mpfs(values) if _is_mpf(kind) else None
    if found is not None:
        return found
    read = _reader(kind)
    wholes, exponents = [], []
    for position, value in enumerate(values):
        try:
            whole, exponent = read(value, bits)
        except (ValueError, TypeError) as error:
            raise UnfitError(position, error) from None
        wholes.append(whole)
        exponents.append(exponent)
    return wholes, exponents


def _of_floats(values: list[float]) -> tuple[list[int], list[int]] | None:
    """All at once; None if one of them is NaN or Inf."""
    x = np.array(values, np.float64)
    if not bool(np.isfinite(x).all()):
        return None
    fractions, exponents = np.frexp(x)
    return (fractions * 2.0**53).astype(np.int64).tolist(), (exponents - 53).tolist()


def _is_mpf(kind: type) -> bool:
    return kind.__module__.startswith("mpmath.") and kind.__name__ == "mpf"


def _of_mpfs(values: list[Any]) -> tuple[list[int], list[int]] | None:
    """All at once; None if one of them is NaN or Inf."""
    parts = [value._mpf_ for value in values]
    exponents = [part[2] for part in parts]
    if any(not part[1] and part[2] for part in parts):
        return None
    return [-int(part[1]) if part[0] else int(part[1]) for part in parts], exponents


def _reader(kind: type) -> Callable[[Any, int | None], Whole]:
    """What reads numbers of one class."""
    root = kind.__module__.partition(".")[0]
    if issubclass(kind, list | tuple | np.ndarray):
        return _refuse_row
    if issubclass(kind, np.floating):
        return _of_float
    if issubclass(kind, Rational):
        return _of_rational
    for base, read in ((np.bool_, _of_integer), (float, _of_float), (str, _of_text), (Decimal, _of_decimal)):
        if issubclass(kind, base):
            return read
    if root == "flint":
        named = {"fmpz": _of_integer, "fmpq": _of_fmpq, "arb": _of_arb, "arf": _of_arf}
        return named.get(kind.__name__, _refuse)
    if root == "numpy_quaddtype":
        return _of_quad
    if root == "ml_dtypes" and kind.__name__ == "bfloat16":
        return lambda value, bits: _of_float(float(value), bits)
    if root == "mpmath" and kind.__name__ == "constant":
        return _of_constant
    if hasattr(kind, "to_ints"):
        return _of_mparray
    if hasattr(kind, "as_mantissa_exp"):  # gmpy2's mpfr has _mpf_, too, but another one for zeros than mpmath
        return _of_mpfr
    if hasattr(kind, "_mpf_"):
        return _of_mpf
    return _of_index if hasattr(kind, "__index__") else _refuse


def _refuse(value: Any, bits: int | None) -> Whole:
    raise TypeError(f"is of type {type(value).__name__}; expected {EXPECTED}")


def _refuse_row(value: Any, bits: int | None) -> Whole:
    raise ValueError(f"is of type {type(value).__name__}; expected a number: all rows must be equally long")


def _of_integer(value: Any, bits: int | None) -> Whole:
    return int(value), 0


def _of_index(value: Any, bits: int | None) -> Whole:
    """A number of a class of which some are integers: int(value) would cut off what is behind the point of others."""
    try:
        return integer_of(value), 0
    except (TypeError, ValueError):
        return _refuse(value, bits)


def _of_rational(value: Any, bits: int | None) -> Whole:
    return _quotient(int(value.numerator), int(value.denominator), bits, value)


def _of_float(value: Any, bits: int | None) -> Whole:
    if not np.isfinite(value):
        raise _not_finite(value)
    numerator, denominator = value.as_integer_ratio()
    return int(numerator), 1 - int(denominator).bit_length()


def _of_text(value: str, bits: int | None) -> Whole:
    text = str(value).strip()
    parts = re.fullmatch(r"([+-]?)([0-9]+) *(?:/ *([0-9]+))?", text)
    if parts:
        numerator, denominator = integer(parts[2]), integer(parts[3] or "1")
        if denominator == 0:
            raise ValueError(f"is {_short(value)}; the denominator is zero")
        common = gcd(numerator, denominator)
        numerator, denominator = numerator // common, denominator // common
        return _quotient(-numerator if parts[1] == "-" else numerator, denominator, bits, value)
    try:
        number = Decimal(text, Context(traps=[InvalidOperation]))
    except InvalidOperation:
        raise ValueError(f"is {_short(value)}; expected a decimal number, or a fraction as '1/3'") from None
    return _of_decimal(number, bits, value)


def _of_decimal(value: Decimal, bits: int | None, given: Any = None) -> Whole:
    """A decimal number; `given` is what the caller wrote."""
    given = value if given is None else given
    if not value.is_finite():
        raise _not_finite(given)
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    whole = integer(bytes(48 + digit for digit in digits).decode())
    whole = -whole if sign else whole
    if whole == 0:
        return 0, 0
    fives = abs(exponent)
    near = fives <= max(_FAR, bits or 0)
    if exponent >= 0:
        if near or (bits is None and 3 * fives <= MOST_BITS):
            return whole * 5**fives, exponent
        if bits is None:
            raise ValueError(f"is {_short(given)}, which has more than {MOST_BITS} bits; {_ROUNDS}")
    elif 2 * fives <= abs(whole).bit_length():
        quotient, rest = divmod(whole, 5**fives)  # 5**fives has more than 2 fives bits, so no other number is dyadic
        if rest == 0:
            return quotient, exponent
    if exponent < 0 and (near or bits is None):
        if bits is None:
            raise _not_dyadic(given)
        found, shift = _quotient(whole, 5**fives, bits, given)
        return found, shift + exponent
    assert bits is not None
    return _far_decimal(whole, exponent, bits)


_FAR = 2**14
"""Powers of five from this one on are bracketed, not computed, where the result is rounded anyway."""


def _far_decimal(whole: int, exponent: int, bits: int) -> Whole:
    """Whole 10**exponent, which has more than bits + 2 bits, cut off after bits + 2 of them; the next bit is set.

    It is bracketed more and more narrowly, until both ends agree in these bits.
    """
    precision = bits + 128
    magnitude = abs(whole)
    while True:
        low, high, shift = _power_of_five(abs(exponent), precision)
        if exponent >= 0:
            low, high = magnitude * low, magnitude * high
        else:
            room = 2 * precision + max(0, precision - magnitude.bit_length())
            low, high, shift = (magnitude << room) // high, -(-(magnitude << room) // low), -shift - room
        excess = low.bit_length() - bits - 2
        if excess > 0 and low >> excess == high >> excess:
            found = (low >> excess) << 1 | 1
            return -found if whole < 0 else found, exponent + shift + excess - 1
        precision *= 2


def _power_of_five(power: int, precision: int) -> tuple[int, int, int]:
    """Low, high, shift, so that low 2**shift <= 5**power <= high 2**shift, of about `precision` bits each."""
    low, high, shift = 1, 1, 0
    for bit in f"{power:b}":
        low, high, shift = low * low, high * high, 2 * shift
        if bit == "1":
            low, high = 5 * low, 5 * high
        excess = max(high.bit_length() - precision, 0)
        low, high, shift = low >> excess, -(-high >> excess), shift + excess
    return low, high, shift


def _of_mpf(value: Any, bits: int | None) -> Whole:
    sign, mantissa, exponent, _ = value._mpf_
    if not mantissa and exponent:
        raise _not_finite(value)
    return -int(mantissa) if sign else int(mantissa), int(exponent)


def _of_constant(value: Any, bits: int | None) -> Whole:
    """A constant of mpmath, as pi: not its value at mpmath's present precision.

    It is computed ever more precisely until its first bits + 2 bits are sure: mpmath's error is below four units.
    """
    if bits is None:
        raise _not_dyadic(value)
    for doubling in range(8):
        precision = (bits + 64) << doubling
        _, mantissa, exponent, length = value.func(precision, "f")
        mantissa, exponent = int(mantissa) << (precision - length), exponent - (precision - length)
        excess = mantissa.bit_length() - bits - 2
        if (mantissa - 4) >> excess == (mantissa + 4) >> excess:
            return (mantissa >> excess) << 1 | 1, exponent + excess - 1
    raise ValueError(f"is {_short(value)}, which depends on mpmath's precision; give mpmath.mpf of it")


def _of_mpfr(value: Any, bits: int | None) -> Whole:
    try:
        mantissa, exponent = value.as_mantissa_exp()
    except (ValueError, OverflowError):
        raise _not_finite(value) from None
    return int(mantissa), int(exponent)


def _of_mparray(value: Any, bits: int | None) -> Whole:
    """An MPArray without axes, among other numbers in a list."""
    if value.ndim:
        return _refuse_row(value, bits)
    ints, exponents = value.to_ints()
    return int(ints[()]), int(exponents[()])


def _of_fmpq(value: Any, bits: int | None) -> Whole:
    return _quotient(int(value.p), int(value.q), bits, value)


def _of_arb(value: Any, bits: int | None) -> Whole:
    """The midpoint of a ball; one of infinite radius is refused."""
    if not value.is_finite():
        raise _not_finite(value)
    return _of_arf(value.mid(), bits)


def _of_arf(value: Any, bits: int | None) -> Whole:
    if not value.is_finite():  # its man_exp() is that of zero
        raise _not_finite(value)
    mantissa, exponent = value.man_exp()
    return int(mantissa), int(exponent)


def _of_quad(value: Any, bits: int | None) -> Whole:
    """A number of numpy_quaddtype: read out of its bytes where it is of IEEE 754's binary128."""
    if value.dtype.backend != 0:  # it is a long double
        return _of_float(np.asarray(value).astype(np.longdouble)[()], bits)
    code = int.from_bytes(value.tobytes(), "little")
    field, fraction = code >> 112 & 0x7FFF, code & (2**112 - 1)
    if field == 0x7FFF:
        raise _not_finite(value)
    magnitude = fraction | (field > 0) << 112
    return -magnitude if code >> 127 else magnitude, max(field, 1) - 16383 - 112


def _quotient(numerator: int, denominator: int, bits: int | None, given: Any) -> Whole:
    """A quotient in lowest terms."""
    if not denominator & (denominator - 1):
        return numerator, 1 - denominator.bit_length()
    if bits is None:
        raise _not_dyadic(given)
    shift = bits + 2 + denominator.bit_length() - abs(numerator).bit_length()
    above, below = max(shift, 0), max(-shift, 0)
    whole, rest = divmod(abs(numerator) << above, denominator << below)
    whole = whole << 1 | (rest != 0)
    return -whole if numerator < 0 else whole, -shift - 1


def integer(digits: str) -> int:
    """The whole number of a string of decimal digits, of any length: int(digits) refuses long ones."""
    if len(digits) <= 600:
        return int(digits)
    half = len(digits) // 2
    power: int = 10**half
    return integer(digits[:-half]) * power + integer(digits[-half:])


_ROUNDS = "ozaki.mparray rounds it if `bits` are given"


def _not_finite(value: Any) -> ValueError:
    return ValueError(f"is {_short(value)}; there is no such multiprecision number")


def _not_dyadic(value: Any) -> ValueError:
    return ValueError(f"is {_short(value)}, which has no end in binary; {_ROUNDS}")


def _short(value: Any) -> str:
    """The number as a caller would write it, if that is short."""
    try:
        text = repr(value) if isinstance(value, str) or type(value).__name__ == "constant" else str(value)
    except ValueError:  # Python refuses to print integers of many digits
        return f"a {type(value).__name__} of many digits"
    return text if len(text) <= 60 else f"{text[:40]}..."
