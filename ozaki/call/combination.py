"""The expression alpha A B + beta C of the factors and the addend that a caller gives."""

from __future__ import annotations

from math import inf, isfinite, isnan, nan
from numbers import Real
from typing import Any

import numpy as np

from ozaki.call.operands import dtype_of
from ozaki.interchange.plain import check_plain, plain
from ozaki.multiprecision.convert import is_complex_number
from ozaki.multiprecision.numbers import FARTHEST, Numbers
from ozaki.multiprecision.scalars import dyadic
from ozaki.records.combination import Combination, Factor
from ozaki.records.formats import HALVES, part_of, precision_of
from ozaki.records.shapes import Shapes


def combination_of(
    alpha: Any, beta: Any, c: Any, sizes: Shapes, dtype: str, multiprecision: bool, may_be_longer: bool
) -> Combination | None:
    """The expression alpha A B + beta C; None if it is the product itself.

    Parameters
    ----------
    alpha, beta : as the caller gave them
    c : the addend as an array or Numbers, or None
    sizes, dtype : shapes of the product, and the format of the result
    multiprecision : whether an operand, the addend or the result is multiprecision
    may_be_longer : whether the addend may have more bits than the result

    Raises
    ------
    ValueError, TypeError
        If a factor or the addend cannot be used.
    """
    computed = "float32" if dtype in HALVES else dtype  # in whose range factors and addend are taken
    scale = None if multiprecision else part_of(computed)
    first, second = (factor_of(name, x, scale, sizes.is_complex) for name, x in (("alpha", alpha), ("beta", beta)))
    expected = f"expected an array of shape {sizes.result} and dtype {dtype}"
    if c is None and not second.is_zero:
        raise ValueError(f"c: missing; {expected}, or beta = 0")
    if c is not None and tuple(c.shape) != sizes.result:
        raise ValueError(f"c: shape {tuple(c.shape)} does not fit the product; {expected}")
    if c is not None and not may_be_longer and precision_of(dtype_of("c", c)) > precision_of(computed):
        raise TypeError(f"c: dtype {c.dtype} does not fit {dtype} operands; {expected}")
    found = Combination(first, second, None if second.is_zero else c)
    return None if found.is_product else found


def factor_of(name: str, x: Any, dtype: str | None, may_be_complex: bool = False) -> Factor:
    """The factor that a caller gives.

    Parameters
    ----------
    dtype : the hardware's format of the result, or of its parts, in whose range the factor has to be, as the nearest
        float64; None for a multiprecision expression, in which the factor counts exactly
    may_be_complex : whether the product is complex

    Raises
    ------
    ValueError, TypeError
    """
    check_plain(name, x)
    if getattr(x, "shape", None) == () and not isinstance(x, Numbers):
        x = x[()]
    if isinstance(x, np.generic):
        plain(name, x)  # raises, if it is a time
    complex_factor = is_complex_number(x)
    if complex_factor and may_be_complex and x.imag == 0:
        x, complex_factor = x.real, False
    if dtype is None:
        if isinstance(x, str):
            raise TypeError(f"{name}: the text {x!r}; expected a number")
        if complex_factor:
            operand = "a" if name == "alpha" else "c"
            raise TypeError(f"{name}: {x!r}; expected a real number: multiply {operand} by it, which is exact")
        try:
            factor = Factor(*dyadic(x))
        except (ValueError, TypeError) as error:
            raise type(error)(f"{name}: the number {error}") from None
        if abs(factor.exponent) + abs(factor.whole).bit_length() > FARTHEST:
            raise ValueError(f"{name}: its exponent is beyond -2**60 to 2**60")
        return factor
    if may_be_complex and complex_factor:
        return Factor(0, 0, complex(*(_in_range(name, part, dtype) for part in (x.real, x.imag))))
    if not isinstance(x, Real) and not hasattr(x, "_mpf_"):
        raise TypeError(f"{name}: {x!r}; expected a {'' if may_be_complex else 'real '}number")
    value = _in_range(name, x, dtype)
    return Factor(*dyadic(value)) if isfinite(value) else Factor(0, 0, nan if isnan(value) else value)


def _in_range(name: str, x: Any, dtype: str) -> float:
    """A real number as the nearest float64.

    Raises
    ------
    ValueError
        If it is beyond the range of a format.
    """
    try:
        value = float(x)
    except OverflowError:
        value = inf
    narrow = np.dtype(dtype).type(value)
    if (np.isinf(narrow) and abs(x) != inf) or (narrow == 0 != x):
        raise ValueError(f"{name}: {x!r}; expected a number in the range of {dtype}")
    return value
