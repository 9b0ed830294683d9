"""Which products of 16-bit floats have results of 16 bits, rounded once, and what may be asked of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ozaki.interchange.halves import HalfArray, half_format_of
from ozaki.multiprecision.numbers import Numbers
from ozaki.records.combination import Combination
from ozaki.records.formats import HALVES, format_named
from ozaki.records.options import Options
from ozaki.records.plan import Plan
from ozaki.records.prepared import Prepared
from ozaki.records.shapes import Side

ACCURACIES = {"bf16": "bfloat16", "fp16": "float16"}
"""The names of accuracies that stand for products of a 16-bit format, rounded once to it."""


def half_result(a: Any, b: Any, options: Options, plan: Plan | None, adds_numbers: bool = False) -> str | None:
    """The 16-bit format of the result of a product, which an accuracy or a format names; None of any other result.

    Where nothing is named that says otherwise, two operands of one 16-bit format have a result of that format.

    Parameters
    ----------
    a, b : the operands as given
    plan : a plan that is given in place of options, but for `dtype`
    adds_numbers : whether multiprecision numbers are added, which make the result multiprecision

    Raises
    ------
    ValueError, TypeError
        If a 16-bit result is asked for and the operands, the addend, or another option, do not fit it.
    """
    if plan is not None:
        if plan.dtype not in HALVES:
            return None
        for name, found in (("a", format_of(a)), ("b", format_of(b))):
            if found != plan.dtype:
                raise ValueError(f"plan: made for {plan.dtype}, but {name} is {found}; expected {plan.dtype}")
        wanted = plan.dtype if options.dtype is None else format_named(options.dtype, halves=True)
        if wanted != plan.dtype:
            raise ValueError(f"dtype: {wanted!r}, but the plan is made for {plan.dtype}; omit one of the two")
        half: str | None = plan.dtype
    elif adds_numbers and half_asked(options)[0] is None:
        return None
    else:
        half = half_of((("a", a), ("b", b)), options)
    if adds_numbers and half is not None:
        raise TypeError(f"c: multiprecision, but the result is rounded to {half}; omit what asks for that, or round c")
    return half


def half_of(operands: Sequence[tuple[str, Any]], options: Options) -> str | None:
    """The 16-bit format of the result of operands, given with their names, as `half_result` finds that of two.

    Raises
    ------
    ValueError
        As `half_result`.
    """
    formats = [format_of(x) for _, x in operands]
    half, asked = half_asked(options)
    if half is None:
        return half_by_default(formats, options)
    if any(found != half for found in formats):
        given = " and ".join(f"{name} is {found}" for (name, _), found in zip(operands, formats, strict=True))
        count = "two " if len(formats) == 2 else ""
        others = {found for found in formats if found != half}
        longer = next((name for name, of in ACCURACIES.items() if others == {of} == {*formats}), "fp32")
        raise ValueError(f"{asked} is of {count}{half} operands, but {given}; convert them, or use accuracy={longer!r}")
    return half


def half_by_default(formats: Sequence[str], options: Options) -> str | None:
    """The 16-bit format of operands of these formats, if options leave that of the result to them; else None."""
    first, *others = formats
    named = options.accuracy is not None or options.dtype is not None or bool(_others(options))
    return first if first in HALVES and not named and all(other == first for other in others) else None


def half_asked(options: Options) -> tuple[str | None, str]:
    """The 16-bit format that options ask for, and by which of them; None and "" if for none.

    Raises
    ------
    ValueError
        If other options contradict it.
    """
    named = ACCURACIES.get(options.accuracy) if isinstance(options.accuracy, str) else None
    wanted = None if options.dtype is None else format_named(options.dtype, halves=True)
    half = named or (wanted if wanted in HALVES else None)
    if half is None:
        return None, ""
    if named is None and options.accuracy is not None:
        raise ValueError(
            f"accuracy: {options.accuracy!r} is more than a {half} result holds; omit dtype={half!r}, or the accuracy"
        )
    if wanted not in (None, half):
        raise ValueError(f"dtype: {wanted!r}, but accuracy={options.accuracy!r} rounds to {half}; omit one of the two")
    if others := _others(options):
        raise ValueError(
            f"{others[0]}: products rounded to {half} have no such option; omit it, or use accuracy='fp32'"
        )
    return half, f"accuracy: {options.accuracy!r}" if named else f"dtype: {wanted!r}"


def format_of(x: Any) -> str:
    """The format of an operand as the caller gave it."""
    if isinstance(x, Prepared):
        return x.dtype
    if isinstance(x, Numbers):  # whose dtype is that of the objects which NumPy makes of them
        return type(x).__name__
    return half_format_of(x) or str(getattr(x, "dtype", type(x).__name__))


def check_factors(combination: Combination | None, half: str) -> None:
    """Refuse an expression rounded to 16 bits with a factor that is NaN or Inf.

    Raises
    ------
    ValueError
    """
    for name, factor in () if combination is None else zip(("alpha", "beta"), combination.factors, strict=True):
        if factor.special is not None:
            raise ValueError(f"{name}: {factor.special}; expected a finite number in an expression rounded to {half}")


def check_prepared_half(x: Any, side: Side, half: str) -> None:
    """Refuse to prepare an operand of another format, or a left one, for a product that is rounded to 16 bits.

    Raises
    ------
    TypeError, ValueError
    """
    if (found := format_of(x)) != half:
        raise TypeError(f"x: {found}, but the plan is made for {half}; expected {half}")
    if side == "left":
        raise ValueError(
            f"side: 'left', but rows of A have as many digits as B asks for, in products rounded to {half}; prepare B"
        )


def _others(options: Options) -> list[str]:
    """Names of the options that say how slices are made, which a result of 16 bits leaves to the library."""
    return [name for name in options.made if name not in ("accuracy", "reproducible", "workspace_limit")] + (
        ["verify"] if options.verify else []
    )


def stored(out: Any, half: str) -> Any:
    """The array of bits, uint16, in the memory of an `out` that the caller gave.

    Raises
    ------
    ValueError, TypeError
        If it has another format.
    """
    if isinstance(out, HalfArray):
        found, bits = out.format, out.bits
    else:
        found = format_of(out)
        if found == half and not out.dtype.isnative:
            found = str(out.dtype)
        bits = out.view("uint16") if found == half else None
    if found != half:
        raise ValueError(f"out: {found}; expected {half}")
    return bits


def as_given(c: Any, half: str, operands: tuple[Any, Any]) -> Any:
    """An array of bits, uint16, as one of the kind of the operands; c itself if it is one already.

    Raises
    ------
    ImportError
        If both operands are prepared, and NumPy knows no such format.
    """
    for x in operands:
        if isinstance(x, HalfArray):
            return HalfArray(np.asarray(c) if isinstance(c, np.generic) else c, half)
        if not isinstance(x, Prepared):
            return c if c.dtype == x.dtype else c.view(x.dtype.newbyteorder("="))
    if half == "float16":
        return c.view(half)
    try:
        from ml_dtypes import bfloat16
    except ImportError:
        raise ImportError("a, b: both prepared, of bfloat16, which NumPy has by ml_dtypes; pip install it") from None
    return c.view(bfloat16)
