"""The rounding of alpha A B + beta C, once, from every bit of A B (docs/definitions.md, section 5); NumPy and CuPy."""

from __future__ import annotations

from math import nan
from typing import Any

from ozaki._combination import Combination
from ozaki.multiprecision.arithmetic import near_sum, rounded_to, scaled
from ozaki.multiprecision.floats import PRECISION, empty, of_floats, to_floats
from ozaki.multiprecision.limbs import library
from ozaki.multiprecision.numbers import Numbers


def combine_into(product: Numbers, combination: Combination, out: Any) -> None:
    """Round alpha `product` + beta c into out, an array of floats or Numbers, all of one shape and array library.

    The factors are numbers.
    """
    xp = product.library
    alpha, beta, c = combination.alpha, combination.beta, combination.c
    bits = out.bits if isinstance(out, Numbers) else PRECISION[str(out.dtype)]
    total, special = scaled(product, alpha.whole, alpha.exponent), None
    if c is not None:
        if not isinstance(c, Numbers):
            finite = xp.isfinite(c)
            if not bool(finite.all()):
                special = ~finite
                c = xp.where(finite, c, c.dtype.type(0))
            c = of_floats(c)
        total = near_sum(total, scaled(c, beta.whole, beta.exponent), bits)
    if isinstance(out, Numbers):
        copy_numbers(rounded_to(total, bits), out)
        return
    out[...] = to_floats(total, str(out.dtype))
    if special is not None:
        out[special] = special_addend(combination, special)


def copy_numbers(x: Numbers, out: Numbers) -> None:
    """Copy numbers into an array with room for no fewer bits."""
    out.signs[...], out.exponents[...] = x.signs, x.exponents
    out.limbs[: len(x.limbs)], out.limbs[len(x.limbs) :] = x.limbs, 0


def addend_into(combination: Combination, out: Any) -> None:
    """Round beta c into out, where the product counts as zero: an exact zero is +0."""
    if combination.beta.special is None:
        xp = out.library if isinstance(out, Numbers) else library(out)
        combine_into(empty(out.shape, 1, xp), combination, out)
    else:
        assert not isinstance(out, Numbers)
        out[...] = combination.c * combination.beta.value


def special_addend(combination: Combination, at: Any) -> Any:
    """What the entries `at` of c add to Inf and NaN: beta c where c is Inf or NaN itself, else zero."""
    if isinstance(combination.c, Numbers):
        return 0.0
    c, beta = combination.c[at], combination.beta.whole
    xp = library(c)
    signed = xp.where(c != c, nan, c * ((beta > 0) - (beta < 0)))  # always the same NaN
    return xp.where(xp.isfinite(c), 0.0, signed)
