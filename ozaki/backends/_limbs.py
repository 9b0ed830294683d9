"""Exact integers as limbs in float64 arrays, and their one rounding.

A value is sum_l limbs[l] 2**(26 l); after `carry` every limb but the highest is balanced, abs <= 2**25.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

LIMB_BITS = 26

Floats = npt.NDArray[np.float64]


def carry(limbs: Floats) -> None:
    """Balance the limbs in place; each must be an integer below 2**52."""
    scratch = np.empty_like(limbs[0])
    for low, high in pairwise(limbs):
        np.multiply(low, 2.0**-LIMB_BITS, out=scratch)
        np.rint(scratch, out=scratch)
        high += scratch
        scratch *= 2.0**LIMB_BITS
        low -= scratch


def add_shifted(limbs: Floats, values: Floats, shift: int) -> None:
    """Add values * 2**shift, the values integers up to 2**53, without overflow of any limb."""
    first, inside = divmod(shift, LIMB_BITS)
    rest = values
    width = LIMB_BITS - inside
    for limb in range(first, len(limbs) - 1):
        above = np.rint(rest * 2.0**-width)
        low = rest - above * 2.0**width
        if inside:
            low *= 2.0**inside
        limbs[limb] += low
        rest, inside, width = above, 0, LIMB_BITS
        if limb - first == 2:  # 53 bits are used up
            limbs[limb + 1] += rest
            return
    limbs[-1] += rest * 2.0**inside


def collapse(limbs: Floats) -> tuple[Floats, Floats]:
    """(high, low) with high + low rounding to any shorter format just as the value does.

    The limbs are summed in pairs from the lowest with error-free additions; the errors are added up with rounding
    to odd (Boldo, Melquiond 2008), so that the last rounding cannot be misled by what was cut off.
    """
    words = _pairs(limbs)
    total = words[0]
    errors = []
    for word in words[1:]:
        total, error = _fast_two_sum(word, total)
        errors.append(error)
    if not errors:
        return total, np.zeros_like(total)
    low = errors[0]
    for error in errors[1:]:
        low = add_to_odd(error, low)
    return total, low


def _pairs(limbs: Floats) -> list[Floats]:
    words = []
    for j in range(0, len(limbs), 2):
        word = limbs[j] if j + 1 == len(limbs) else limbs[j + 1] * 2.0**LIMB_BITS + limbs[j]
        words.append(word * 2.0 ** (LIMB_BITS * j) if j else word)
    return words


def _fast_two_sum(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Sum and error, where abs(a) >= abs(b) or a == 0 (Dekker 1971)."""
    total = a + b
    error = total - a
    np.subtract(b, error, out=error)
    return total, error


def add_to_odd(a: Floats, b: Floats) -> Floats:
    """a + b rounded to odd, where abs(a) >= abs(b) or a == 0."""
    total, error = _fast_two_sum(a, b)
    bits = total.view(np.int64)
    inexact = error != 0
    # Rounded away from zero: step back, then make the last bit odd.
    beyond = (bits ^ error.view(np.int64)) < 0
    beyond &= inexact
    bits -= beyond
    bits |= inexact
    return total


def round_scaled(
    high: Floats, low: Floats, rows: npt.NDArray[np.int64], cols: npt.NDArray[np.int64], out: npt.NDArray[np.floating]
) -> None:
    """out = (high + low) 2**(rows_i + cols_j), rounded once to nearest, ties to even.

    high, low, out have shape (batch, m, n), rows (batch, m), cols (batch, n); high and low come from `collapse`.
    """
    value = high + low if out.dtype == np.float64 else add_to_odd(high, low)
    left, right = rows.astype(np.int32)[..., :, None], cols.astype(np.int32)[..., None, :]
    reach = sum(int(np.abs(e).max(initial=0)) for e in (left, right))
    largest = float(np.abs(high).max(initial=0.0))
    with np.errstate(over="ignore", under="ignore"):
        if reach + max(np.frexp(largest)[1], 0) < 1000:
            value *= np.ldexp(1.0, left)
            value *= np.ldexp(1.0, right)
            out[...] = value
            return
        exponents = left + right
        out[...] = np.ldexp(value, exponents)
        if out.dtype == np.float64:  # value has been rounded already: these must be rounded from high + low
            tiny = (value != 0) & (np.frexp(value)[1] + exponents <= -1022)
            out[tiny] = _subnormal(high[tiny], low[tiny], exponents[tiny])


def _subnormal(high: Floats, low: Floats, exponents: npt.NDArray[np.int32]) -> Floats:
    """(high + low) 2**exponents rounded to a multiple of 2**-1074, where that is below 2**-1022."""
    shift = exponents + 1074
    scaled, rest = np.ldexp(high, shift), np.ldexp(low, shift)
    units = np.floor(scaled)
    # Beyond half a unit? Of three terms of which the last is far smaller, these sums have the right sign.
    beyond = ((scaled - units) - 0.5) + rest
    units += (beyond > 0) | ((beyond == 0) & (units % 2 == 1))
    return np.copysign(np.ldexp(np.abs(units), -1074), high)
