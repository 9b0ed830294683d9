"""What the sample of a product shows: in words, and as plain data."""

from __future__ import annotations

import math
import re
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from typing import Any

from ozaki._cli.comparing import Entry, Parts
from ozaki._cli.judging import Judged, Met
from ozaki._cli.printing import error_of
from ozaki.records.formats import MOST_BITS, MULTIPRECISION
from ozaki.records.report import rounded_up

_GUARD = 25
"""Digits beyond the printed ones that the conversion to decimal is computed with."""


def in_words(judged: Judged, name: str) -> str:
    """Return the verdict on the product in the file `name`: one sentence, and a line for each of its reasons."""
    if judged.least_accurate is None and not judged.nonfinite:
        return f"{name}: {nothing_checked(judged.skipped)}"
    lines = [_sentence(judged, name), *_reasons(judged)]
    if judged.met is not None:
        lines.append(_of_accuracy(judged.met, judged))
    if judged.skipped:
        lines.append(
            f"not compared: {_entries(judged.skipped)} that NaN or Inf in A or B touch, or whose exact number over- or "
            f"underflows {judged.format}"
        )
    return "\n  ".join(lines)


def nothing_checked(skipped: int) -> str:
    """Return why no entry was compared with an exact one; `skipped` is how many were sampled."""
    if not skipped:
        return "nothing was checked: the product has no entries"
    every = "the only sampled entry" if skipped == 1 else f"each of the {skipped} sampled entries"
    return f"nothing was checked: {every} over- or underflows, or NaN or Inf in A or B touch it"


def as_json(judged: Judged, name: str) -> dict[str, Any]:
    """Return the numbers of the verdict; those of an entry are None if none was compared."""
    least, fewest = judged.least_accurate, judged.fewest_digits
    missing = judged.nonfinite[0] if judged.nonfinite else None
    digits = None if fewest is None else judged.digits(fewest)
    found: dict[str, Any] = {
        "holds": judged.holds,
        "product": name,
        "format": judged.format,
        "entries": len(judged.entries),
        "skipped": judged.skipped,
        "nonfinite": len(judged.nonfinite),
        "nonfinite_at": None if missing is None else judged.index(missing),
        "error": None if least is None else least.componentwise_error(),
        "log2_error": None if least is None else least.componentwise,
        "error_at": None if least is None else judged.index(least),
        "log2_good_error": judged.good[judged.format],
        "as_good_as": judged.as_good_as,
        "digits": digits,
        "of_digits": judged.most_digits,
        "digits_at": None if fewest is None else judged.index(fewest),
        "found": None if fewest is None else _decimal(fewest.found, fewest.unit, _shown(digits)),
        "exact": None if fewest is None else _decimal(fewest.exact, fewest.unit, _shown(digits)),
        "cancelled_bits": None if fewest is None else fewest.cancelled,
        "wrong_zeros": judged.wrong_zeros,
        "bits": judged.bits,
        "accuracy": None,
    }
    if judged.met is not None:
        target = judged.met.target
        found["accuracy"] = {
            "holds": judged.met.holds,
            "measure": target.measure,
            "tolerance": target.tolerance,
            "exponent": target.exponent,
            "error": judged.met.error,
            "log2_error": judged.met.log2_error,
        }
    return found


def _sentence(judged: Judged, name: str) -> str:
    """Return what the product is as good as."""
    worst = judged.least_accurate
    if judged.nonfinite:
        first, one = judged.nonfinite[0], len(judged.nonfinite) == 1
        exactly = _decimal(first.exact, first.unit, 3)
        return (
            f"{name} is wrong: {_entries(len(judged.nonfinite))} {'is' if one else 'are'} NaN or Inf where the exact "
            f"product is a number: {_at(judged, first)}{'' if one else ', the first,'} is exactly {exactly}"
        )
    assert worst is not None  # else `nothing_checked` is all that there is to say
    if worst.componentwise == -math.inf:
        return f"{name} is exact in {_entries(len(judged.entries))}"
    if judged.is_another:
        overflow = "" if judged.precision is not None else "did its integers overflow, "
        return f"{name} is not the product of A and B: {overflow}is it B times A, or that of other files?"
    if judged.as_good_as == judged.format:
        return f"{name} is as accurate as {_good_product(judged.format)} in {_entries(len(judged.entries))}"
    if judged.as_good_as is not None:
        return f"{name} is only as accurate as {_good_product(judged.as_good_as)}, though its format is {judged.format}"
    return f"{name} is less accurate than {_good_product(list(judged.good)[-1])}"


def _reasons(judged: Judged) -> list[str]:
    """Return a line about the largest error, and lines about the fewest correct digits and how to get all."""
    worst, fewest = judged.least_accurate, judged.fewest_digits
    if worst is None or fewest is None or fewest.relative == -math.inf:
        return []
    below = "integers have none"
    if judged.precision is not None:
        below = f"that of {_good_product(judged.format)} stays below {_size(judged.good[judged.format])}"
    error = (
        f"largest error: {error_of(worst.componentwise_error())} of abs(A) abs(B), the same sum of absolute values, at "
        f"{_at(judged, worst)}; {below}"
    )
    digits = judged.digits(fewest)
    if digits == judged.most_digits:
        return [error, f"all {digits} digits of every sampled entry are correct"]
    return [error, *_few_digits(judged, fewest)]


def _few_digits(judged: Judged, entry: Entry) -> list[str]:
    """Return a line about the entry that has the fewest correct digits, and lines about how to get all."""
    digits = judged.digits(entry)
    of = "" if judged.most_digits is None else f" of {judged.most_digits}"
    found, exact = (_decimal(x, entry.unit, _shown(digits)) for x in (entry.found, entry.exact))
    line = f"worst sampled entry: {_at(judged, entry)} has {digits}{of} correct digits: it is {found}, exactly {exact}"
    if 1 <= entry.cancelled < math.inf:
        line += f"; its terms cancel to {_size(-entry.cancelled)} of abs(A) abs(B)"
    lines = [line]
    if judged.precision is None:
        lines.append("ozaki gives every digit with --dtype int64 or, of numbers that it does not hold, --dtype mp")
    elif judged.bits is not None and judged.bits <= MOST_BITS:
        lines.append(f"ozaki gives nearly all digits of every sampled entry with accuracy={judged.bits}")
    if judged.wrong_zeros:
        lines.append(
            f"{_entries(judged.wrong_zeros)} should be 0; ozaki gives zeros, too, with "
            f"accuracy=relative:2^-{judged.precision or 53}"
        )
    return lines


def _of_accuracy(met: Met, judged: Judged) -> str:
    """Return whether the product meets the accuracy that was asked for."""
    error = f"{met.target.measure} error {_size(met.log2_error)}"
    if judged.precision is not None:
        error += f" before the rounding to {judged.format}"
    holds = "met" if met.holds else "NOT met"
    return f"the accuracy that you ask for is {holds} in the sample: {error}; allowed: {met.target.in_words}"


def _good_product(name: str) -> str:
    """Return the words for a good product of a format."""
    multiprecision = re.fullmatch(f"(complex )?{MULTIPRECISION}([0-9]+)", name)
    if multiprecision:
        return f"a good {multiprecision[1] or ''}product of {multiprecision[2]} bits"
    return f"a good native {name} product"


def _entries(count: int) -> str:
    """Return a count of sampled entries in words."""
    return "1 sampled entry" if count == 1 else f"{count} sampled entries"


def _at(judged: Judged, entry: Entry) -> str:
    """Return the indices of an entry, as "[3, 17]"."""
    return str(list(judged.index(entry)))


def _size(log2: float) -> str:
    """Return 2**log2 in two decimal digits, rounded up."""
    if math.isinf(log2):
        return "inf" if log2 > 0 else "0"
    whole = math.floor(log2)
    return rounded_up(2.0 ** (log2 - whole), whole)


def _shown(digits: int | None) -> int:
    """Return how many digits of two numbers show that so many are equal."""
    return 3 if digits is None else digits + 2


def _decimal(parts: Parts, unit: int, digits: int) -> str:
    """Return a number, or the parts of a complex one, in units of 2**unit, in so many decimal digits."""
    context = Context(prec=digits + _GUARD, Emax=MAX_EMAX, Emin=MIN_EMIN)

    power = context.power(2, unit) if any(parts) else Decimal(1)
    texts = [f"{context.multiply(context.create_decimal(x), power):.{digits - 1}e}" if x else "0" for x in parts]
    return texts[0] + "".join(f"{'' if x[0] == '-' else '+'}{x}j" for x in texts[1:])
