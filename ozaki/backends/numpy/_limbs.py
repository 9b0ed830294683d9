"""Exact integers as limbs in float64 arrays, and their one rounding.

A value is sum_l limbs[l] 2**(26 l). After `carry` every limb but the highest is balanced: abs(limb) <= 2**25. The
functions that round need so many limbs that the highest is then below 2**26 in magnitude.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy._tiles import FEW
from ozaki.caches import cached
from ozaki.schemes.blas import LIMB_BITS

Floats = npt.NDArray[np.float64]


def carry(limbs: Floats) -> None:
    """Balance the limbs in place; each must be an integer of magnitude below 2**52."""
    scratch = np.empty_like(limbs[0])
    for low, high in pairwise(limbs):
        np.multiply(low, 2.0**-LIMB_BITS, out=scratch)
        np.rint(scratch, out=scratch)
        high += scratch
        scratch *= 2.0**LIMB_BITS
        low -= scratch


def carry_once(limbs: Floats) -> None:
    """Carry from each limb to the next at once, in place, so that all but the highest are at most 2**25 + 2**26.

    Each must be an integer of magnitude below 2**52.
    """
    above = np.rint(limbs[:-1] * 2.0**-LIMB_BITS)
    limbs[:-1] -= above * 2.0**LIMB_BITS
    limbs[1:] += above


def add_shifted(limbs: Floats, values: Floats, shift: int) -> None:
    """Add values * 2**shift to the limbs in place, overflowing none; values are integers up to 2**53."""
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
    """Sum limbs, as `carry` leaves them, to (high, low): high + low rounds to float64 or less as the value does.

    The limbs are summed in pairs from the lowest with error-free additions; the errors are added up with rounding
    to odd (Boldo, Melquiond 2008), so that what is cut off cannot change the last rounding.
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
    """Each two neighbouring limbs as one float64 of at most 53 bits, weights included, the lowest first."""
    words = []
    for j in range(0, len(limbs), 2):
        word = limbs[j] if j + 1 == len(limbs) else limbs[j + 1] * 2.0**LIMB_BITS + limbs[j]
        words.append(word * 2.0 ** (LIMB_BITS * j) if j else word)
    return words


def _fast_two_sum(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """The rounded sum a + b and its error, where abs(a) >= abs(b) or a == 0 (Dekker 1971)."""
    total = a + b
    error = total - a
    np.subtract(b, error, out=error)
    return total, error


def add_to_odd(a: Floats, b: Floats) -> Floats:
    """a + b rounded to odd, where abs(a) >= abs(b) or a == 0."""
    total, error = _fast_two_sum(a, b)
    bits = total.view(np.int64)
    inexact = error != 0
    # Where the sum was rounded away from zero, step back by a unit; then make the last bit of inexact sums odd.
    beyond = (bits ^ error.view(np.int64)) < 0
    beyond &= inexact
    bits -= beyond
    bits |= inexact
    return total


def two_sum(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """The rounded sum a + b and its error (Knuth, The Art of Computer Programming, volume 2, section 4.2.2)."""
    total = a + b
    of_b = total - a
    error = total - of_b
    np.subtract(a, error, out=error)
    np.subtract(b, of_b, out=of_b)
    error += of_b
    return total, error


def nearest(limbs: Floats) -> Floats:
    """The values rounded to nearest float64, ties to even; limbs are integers below 2**52, and overwritten.

    The four highest limbs are added by error-free additions, and the other limbs are added to the errors of these,
    with rounding. Where that rounding could change the result, `collapse` sums the limbs instead.
    """
    count = len(limbs)
    if count < 4:
        return np.add(*_in_order(limbs))
    weights = _weights(count)
    limbs *= weights
    total, left = two_sum(limbs[-1], limbs[-2])
    for limb in limbs[-3:-5:-1]:
        total, error = two_sum(total, limb)
        left += error
    for limb in limbs[:-4][::-1]:
        left += limb
    # `most` bounds every partial sum of the highest limbs, and `rest` the sum of the magnitudes of all numbers added to
    # `left`, in fewer than `count` additions. So `off` bounds the error of `left`.
    most = float(np.maximum.reduce(np.abs(total), initial=0.0)) + 2.0 ** (53 + LIMB_BITS * (count - 3))
    rest = 3 * 2.0**-53 * most + (2.0 ** (53 + LIMB_BITS * (count - 5)) if count > 4 else 0.0)
    off = (count + 1) * 2.0**-53 * rest
    values: Floats = total + (left - off)
    left += off
    left += total
    doubtful = values != left
    if np.count_nonzero(doubtful):
        values[doubtful] = np.add(*_in_order(limbs[:, doubtful] / weights))
    return values


@cached(64)
def _weights(count: int) -> Floats:
    """The weights of so many limbs, shape (count, 1)."""
    return np.ldexp(1.0, LIMB_BITS * np.arange(count))[:, None]


def _in_order(limbs: Floats) -> tuple[Floats, Floats]:
    """Balance the limbs in place, then `collapse` them."""
    carry(limbs)
    return collapse(limbs)


def round_scaled(
    limbs: Floats,
    rows: npt.NDArray[np.int64],
    cols: npt.NDArray[np.int64],
    out: npt.NDArray[np.floating],
    reach: int | None = None,
) -> None:
    """Compute out = value 2**(rows_i + cols_j), rounded once to nearest, ties to even.

    Shapes are (batch, m, n) of out, (batch, m) of rows, (batch, n) of cols and (count, batch m n) of limbs, which are
    integers below 2**52, and overwritten. `reach`, if it is known, bounds abs(rows_i) + abs(cols_j).
    """
    left, right = rows.astype(np.int32)[..., :, None], cols.astype(np.int32)[..., None, :]
    if reach is None:
        reach = sum(int(np.abs(e).max(initial=0)) for e in (left, right))
    double = out.dtype == np.float64
    if reach + LIMB_BITS * len(limbs) + 27 < 1000:  # no product by a power of two is rounded
        value = (nearest(limbs) if double else add_to_odd(*_in_order(limbs))).reshape(out.shape)
        if out.size <= FEW:  # one call, which takes more time for an entry
            np.ldexp(value, left + right, out=out, casting="same_kind")
            return
        value *= np.ldexp(1.0, left)
        value *= np.ldexp(1.0, right)
        out[...] = value
        return
    high, low = (x.reshape(out.shape) for x in _in_order(limbs))
    value = high + low if double else add_to_odd(high, low)
    exponents = left + right
    out[...] = np.ldexp(value, exponents)
    if double:  # `value` is rounded already, so results that become subnormal are rounded anew, from high + low
        tiny = (value != 0) & (np.frexp(value)[1] + exponents <= -1022)
        out[tiny] = _subnormal(high[tiny], low[tiny], exponents[tiny])


def _subnormal(high: Floats, low: Floats, exponents: npt.NDArray[np.int32]) -> Floats:
    """(high + low) 2**exponents, below 2**-1022 in magnitude, rounded to a multiple of 2**-1074, ties to even."""
    shift = exponents + 1074
    scaled, rest = np.ldexp(high, shift), np.ldexp(low, shift)
    units = np.floor(scaled)
    # The part of the value beyond units + 1/2: only its sign matters, and that is right, since `rest` is below
    # the last bit of `scaled`.
    beyond = ((scaled - units) - 0.5) + rest
    units += (beyond > 0) | ((beyond == 0) & (units % 2 == 1))
    return np.copysign(np.ldexp(np.abs(units), -1074), high)
