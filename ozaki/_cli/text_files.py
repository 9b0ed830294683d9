"""Multiprecision numbers as text: decimal digits, one row a line.

The first line names shape and bits, "# ozaki: shape (2, 3), bits 212"; of a stack, the rows of all matrices follow one
another. Each entry has as many digits as tell apart all numbers of so many bits, so what is read is what was written.
Where all entries are whole numbers, and not much longer than their bits, they are written as such.
"""

from __future__ import annotations

import re
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from functools import lru_cache
from io import BufferedIOBase
from math import ceil, log10, prod

import numpy as np

from ozaki._cli.byte_order_mark import without_mark
from ozaki._cli.echo import cut
from ozaki.multiprecision.array import MPArray
from ozaki.multiprecision.convert import numbers_of
from ozaki.multiprecision.numbers import MOST_BITS

_HEADER = re.compile(r"# ozaki: shape \(((?:[0-9]{1,18}(?:, ?|(?=\))))*)\), bits ([0-9]{1,8})\s*")
_EXAMPLE = "# ozaki: shape (2, 3), bits 212"

_GUARD = 25
"""Digits that are computed beyond those written: 10**digits is more than 2**bits by far more than their error."""

_LONGER = 64
"""Binary orders by which whole numbers may be longer than `bits`, and are still written as such."""


def write(file: BufferedIOBase, x: MPArray) -> None:
    """Write an array as text."""
    file.write(f"# ozaki: shape {x.shape}, bits {x.bits}\n".encode("ascii"))
    entries = _texts(x)
    columns = x.shape[-1] if x.ndim else 1
    for start in range(0, len(entries), max(columns, 1)):
        file.write((" ".join(entries[start : start + columns]) + "\n").encode("ascii"))


def read(file: BufferedIOBase) -> MPArray:
    """Read an array that `write` wrote, or that anybody wrote in the same form.

    An entry is a decimal number or a quotient as 1/3, rounded to nearest; blank lines, and lines that begin with #, are
    left out.

    Raises
    ------
    ValueError
        If it has another form; the message names the line.
    """
    first, *lines = without_mark(file.read()).decode("ascii", errors="replace").splitlines() or [""]
    found = _HEADER.fullmatch(first)
    if not found:
        raise ValueError(
            f"line 1: {cut(first)!r}; expected shape and bits, as {_EXAMPLE}; a file of np.savetxt? load it with "
            "np.loadtxt and save it with np.save"
        )
    shape, bits = tuple(int(size) for size in re.findall("[0-9]+", found[1])), int(found[2])
    if not 1 <= bits <= MOST_BITS:
        raise ValueError(f"line 1: {bits} bits; expected 1 to {MOST_BITS}")
    columns = shape[-1] if shape else 1
    rows = [(number, line.split()) for number, line in enumerate(lines, 2) if line.strip() and line.lstrip()[0] != "#"]
    for number, row in rows:
        if len(row) != columns:
            raise ValueError(f"line {number}: {len(row)} entries; expected {columns}, by the shape in line 1")
    expected = prod(shape[:-1]) if columns else 0
    if len(rows) != expected:
        raise ValueError(f"{len(rows)} rows; expected {expected}, by the shape in line 1")
    entries = np.empty(len(rows) * columns, object)
    entries[:] = [entry for _, row in rows for entry in row]
    try:
        x = numbers_of(entries.reshape(shape), bits)
    except ValueError as error:
        raise ValueError(str(error).removeprefix("x: ")) from None
    return MPArray(x.signs, x.exponents, x.limbs, bits)


def _texts(x: MPArray) -> list[str]:
    """The elements in decimal, in row-major order."""
    integers, exponents = (each.reshape(-1).tolist() for each in x.to_ints())
    if min(exponents, default=0) >= 0 and int(x.exponents.max(initial=0)) <= x.bits + _LONGER:
        return [str(Decimal(whole << exponent)) for whole, exponent in zip(integers, exponents, strict=True)]
    digits = ceil(x.bits * log10(2)) + 1
    context = Context(prec=digits + _GUARD, Emax=MAX_EMAX, Emin=MIN_EMIN)
    how = f".{digits - 1}e"

    @lru_cache(maxsize=1024)
    def power(exponent: int) -> Decimal:
        return context.power(2, exponent)

    pairs = zip(integers, exponents, strict=True)
    return [format(context.multiply(Decimal(w), power(e)), how) if w else "0" for w, e in pairs]
