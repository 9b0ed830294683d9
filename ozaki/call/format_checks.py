"""What products into a format cannot do: errors about the dtypes of operands, addend and result."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from ozaki.multiprecision.floats import not_finite
from ozaki.records.accuracy import PLAIN_BITS, Accuracy
from ozaki.records.formats import DTYPES, MULTIPRECISION, QUAD, format_named, is_complex, is_multiprecision
from ozaki.records.options import Options
from ozaki.records.plan import Plan


def format_of_plan(plan: Plan, asked: str | None) -> str:
    """The format of a given plan, which is to be the one that the caller asks for, if he does.

    The exact product of a plan that holds every bit may also be returned as int64, any multiprecision one as quads.

    Raises
    ------
    ValueError
        If it is another one.
    """
    multiprecision = is_multiprecision(plan.dtype)
    fits = asked in (None, plan.dtype) or (asked == "int64" and multiprecision and plan.target.exact)
    if not fits and not (asked in (MULTIPRECISION, QUAD) and multiprecision):
        raise ValueError(f"dtype: {asked!r}, but the plan is made for {plan.dtype}; omit one of the two")
    return plan.dtype


def check_complex(asked: str | None, of_operands: bool, of_addend: bool) -> None:
    """Refuse a real result of complex operands, and a complex result or a complex addend of real ones.

    `asked` is the format that the caller asks for; the others say whether an operand, and the addend, is complex.

    Raises
    ------
    TypeError
    """
    if of_operands:
        if asked is not None and not is_complex(asked) and not is_multiprecision(asked):
            raise TypeError(f"dtype: {asked!r}, but the product is complex; expected 'complex64', 'complex128' or 'mp'")
        return
    if asked is not None and is_complex(asked):
        raise TypeError(f"dtype: {asked!r}, but a and b are real; use .astype({asked!r}) of the result")
    if of_addend:
        raise TypeError("c: complex, but a and b are real; make one of them complex, as a + 0j")


def format_of_parts(asked: Any, dtypes: tuple[str, str]) -> str:
    """The format of a product whose operands are in parts: the one asked for, else the wider one of the operands.

    There are formats of the hardware alone. `dtypes` are those of the operands.

    Raises
    ------
    TypeError, ValueError
        For one complex operand, and for a format of another kind than theirs.
    """
    if is_complex(dtypes[0]) != is_complex(dtypes[1]):
        raise TypeError("b: one operand is complex and the other is real; make both complex, as x + 0j")
    widest = str(np.result_type(*dtypes))
    formats = [each for each in DTYPES if is_complex(each) == is_complex(widest)]
    found = format_named(asked) or widest
    if found not in formats:
        raise ValueError(f"dtype: {asked!r}; expected {formats[0]!r} or {formats[1]!r} of operands in parts")
    return found


def check_quads(asked: str | None, library: str) -> None:
    """Refuse quads as the result of arrays of another library than NumPy, which has none.

    Raises
    ------
    TypeError
    """
    if asked == QUAD and library != "numpy":
        raise TypeError("dtype: numpy_quaddtype has no arrays on a GPU; ask for 'mp113', and use ozaki.asnumpy of it")


def check_target(target: Accuracy | None, multiprecision: bool) -> None:
    """Refuse an accuracy that no result of the hardware's formats can have; `multiprecision`: as of `Pair`.

    Raises
    ------
    ValueError
    """
    if not multiprecision and target is not None and target.exponent:
        raise ValueError(
            f"accuracy: {target.in_words} is too small for a float result; expected 1 to {PLAIN_BITS} bits, or "
            "dtype='mp'"
        )


def check_finite(name: str, x: Any) -> None:
    """Refuse an operand of floats with NaN or Inf, which a multiprecision result cannot hold."""
    if (index := not_finite(x)) is not None:
        raise ValueError(
            f"{name}: element {[*index]} is {x[index]}; an exact or multiprecision result needs finite numbers"
        )


def refuse_words(name: str) -> NoReturn:
    """Raise, since words of that name would round operands.

    Raises
    ------
    ValueError
    """
    raise ValueError(
        f"scheme: {name} multiplies float32 matrices, but an operand is float64; use scheme='residues', or round it "
        "with .astype('float32')"
    )


def check_room(asked: str | None) -> None:
    """Refuse a format of so many bits for an exact product, whose entries decide how many they need.

    Raises
    ------
    ValueError
    """
    if asked is not None and is_multiprecision(asked) and asked != MULTIPRECISION:
        raise ValueError(f"dtype: {asked!r} may round, but accuracy='exact' asks for every bit; use dtype='mp'")


def check_integer(options: Options) -> None:
    """Refuse an accuracy for an integer result, which is exact.

    Raises
    ------
    ValueError
    """
    if options.accuracy is not None and not Accuracy.of(options.accuracy, 1).exact:
        raise ValueError(f"accuracy: {options.accuracy!r}; the int64 result is exact, so omit the accuracy")
