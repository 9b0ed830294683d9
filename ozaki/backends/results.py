"""Results and their memory: arrays of the hardware's formats, or multiprecision numbers; NumPy and CuPy."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

from ozaki.backends.combining import copy_numbers
from ozaki.multiprecision.floats import empty as empty_numbers
from ozaki.multiprecision.limbs import limbs_of
from ozaki.multiprecision.numbers import Numbers
from ozaki.records.combination import ONE, Factor
from ozaki.records.formats import is_multiprecision, part_bytes, parts_in, precision_of, stored_as
from ozaki.schemes import Scheme


class Computed(NamedTuple):
    """A product, or an expression rounded once, that was computed by a scheme with exact slice products.

    Attributes
    ----------
    c : shape (batch, m, n)
    alpha : the factor of the product in an expression; `ONE` of a product
    nbytes : bytes of c, if it lies beside the result
    inner_scaling : whether its slices are those of rows scaled along k
    """

    scheme: Scheme
    c: Any
    alpha: Factor = ONE
    nbytes: int = 0
    inner_scaling: bool = False


def empty(shape: tuple[int, ...], dtype: str, xp: Any) -> Any:
    """A new array of the library xp for a result, C-contiguous, elements undefined; of multiprecision numbers zeros."""
    if is_multiprecision(dtype):
        return empty_numbers(shape, precision_of(dtype), xp)
    return xp.empty(shape, stored_as(dtype))


def nbytes(shape: tuple[int, ...], dtype: str) -> int:
    """Bytes that `empty` allocates."""
    if is_multiprecision(dtype):  # a sign, an exponent and limbs
        return prod(shape) * (9 + 4 * limbs_of(precision_of(dtype)))
    return prod(shape) * part_bytes(dtype) * parts_in(dtype)


def copy(x: Any, out: Any) -> None:
    """Copy a result into another array of its format; multiprecision numbers into one of no fewer bits."""
    if isinstance(x, Numbers):
        copy_numbers(x, out)
    else:
        out[...] = x
