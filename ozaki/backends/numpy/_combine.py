"""The rounding of alpha A B + beta C on NumPy, once (docs/definitions.md, section 5)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki._combination import Combination
from ozaki.backends.numpy._results import copy
from ozaki.multiprecision.arithmetic import near_sum, rounded_to, scaled
from ozaki.multiprecision.floats import PRECISION, empty, of_floats, to_floats
from ozaki.multiprecision.numbers import Numbers


def combine_into(product: Numbers, combination: Combination, out: npt.NDArray[Any] | Numbers) -> None:
    """Round alpha `product` + beta c into out, all of one shape; the factors are numbers."""
    alpha, beta, c = combination.alpha, combination.beta, combination.c
    bits = out.bits if isinstance(out, Numbers) else PRECISION[str(out.dtype)]
    total, special = scaled(product, alpha.whole, alpha.exponent), None
    if c is not None:
        if not isinstance(c, Numbers):
            finite = np.isfinite(c)
            if not finite.all():
                special = ~finite
                c = np.where(finite, c, c.dtype.type(0))
            c = of_floats(c)
        total = near_sum(total, scaled(c, beta.whole, beta.exponent), bits)
    if isinstance(out, Numbers):
        copy(rounded_to(total, bits), out)
        return
    out[...] = to_floats(total, str(out.dtype))
    if special is not None:
        out[special] = special_addend(combination, special)


def addend_into(combination: Combination, out: npt.NDArray[Any] | Numbers) -> None:
    """Round beta c into out, where the product counts as zero: an exact zero is +0."""
    if combination.beta.special is None:
        combine_into(empty(out.shape, 1, np), combination, out)
    else:
        assert not isinstance(out, Numbers)
        out[...] = combination.c * combination.beta.value


def special_addend(combination: Combination, at: Any) -> Any:
    """What the entries `at` of c add to Inf and NaN: beta c where c is Inf or NaN itself, else zero."""
    c = combination.c[at]
    signed = np.where(np.isnan(c), np.nan, c * np.sign(combination.beta.whole))
    return np.where(np.isfinite(c), 0.0, signed)
