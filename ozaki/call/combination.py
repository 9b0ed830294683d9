"""What `gemm` makes of a product: alpha A B + beta C, with factors that are whole numbers times powers of two."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, isfinite, isnan, ldexp, nan
from numbers import Real
from typing import Any

import numpy as np

from ozaki.call.operands import dtype_of
from ozaki.driver.memory import Memory
from ozaki.interchange.plain import check_plain, plain
from ozaki.multiprecision.arithmetic import add, scaled
from ozaki.multiprecision.convert import is_complex_number
from ozaki.multiprecision.floats import of_floats
from ozaki.multiprecision.limbs import HOST_TILE, limbs_of, tile_of
from ozaki.multiprecision.numbers import FARTHEST, Numbers
from ozaki.multiprecision.scalars import dyadic
from ozaki.records.formats import part_of, precision_of
from ozaki.records.shapes import Shapes


@dataclass(frozen=True)
class Factor:
    """A factor of a product or an addend: whole 2**exponent; or NaN, Inf, or a number with an imaginary part.

    Attributes
    ----------
    whole, exponent : `whole` is odd, or 0
    special : NaN, Inf or a complex number, which leave the expression to floating-point arithmetic; None if the factor
        is a real number
    """

    whole: int
    exponent: int
    special: float | complex | None = None

    @classmethod
    def of_float(cls, value: float) -> Factor:
        """The factor that a float is."""
        return cls(*dyadic(value)) if isfinite(value) else cls(0, 0, nan if isnan(value) else value)

    @property
    def is_zero(self) -> bool:
        """Whether it is zero, so that what it multiplies is not read."""
        return self.whole == 0 and self.special is None

    @property
    def is_power(self) -> bool:
        """Whether it is a power of two or the negative of one."""
        return self.whole in (1, -1)

    @property
    def value(self) -> float | complex:
        """The factor as a float, for those that were given as floats; a complex one as it is."""
        return ldexp(self.whole, self.exponent) if self.special is None else self.special


ONE = Factor(1, 0)


@dataclass(frozen=True)
class Combination:
    """The expression alpha A B + beta C.

    Attributes
    ----------
    alpha, beta : Factor
    c : the addend, an array or Numbers; None if `beta` is zero
    """

    alpha: Factor
    beta: Factor
    c: Any

    @property
    def factors(self) -> tuple[Factor, Factor]:
        """Alpha and beta, which a program that computes the expression has as arguments."""
        return self.alpha, self.beta

    @property
    def values(self) -> tuple[float, float]:
        """Alpha and beta as floats: of an expression of real numbers."""
        alpha, beta = self.alpha.value, self.beta.value
        assert not isinstance(alpha, complex) and not isinstance(beta, complex)
        return alpha, beta

    @property
    def is_product(self) -> bool:
        """Whether it is the product A B itself."""
        return self.alpha == ONE and self.beta.is_zero

    @property
    def rounds_once(self) -> bool:
        """Whether exact slices round the whole expression once: no factor is NaN, Inf or has an imaginary part."""
        return self.alpha.special is None and self.beta.special is None

    def exact_bytes(self, entries: int, bits: int) -> int:
        """Bytes that `exactly` holds beside its argument and its result, of as many real entries and bits.

        These are multiples of both terms, and of a tile the limbs of the sum, several times.
        """
        terms = self.bits_of_terms(bits)
        limbs = [limbs_of(each) for each in (*terms, max(terms) + 64)]
        return entries * (100 + 4 * limbs[0] + 8 * limbs[1]) + min(entries, HOST_TILE) * 32 * limbs[2]

    def bits_of_terms(self, bits: int) -> tuple[int, int]:
        """The most bits that an entry of alpha A B and of beta C has, where one of A B has so many."""
        of_c = 0 if self.c is None else self.c.bits if isinstance(self.c, Numbers) else 53
        return bits + self.alpha.whole.bit_length(), of_c + self.beta.whole.bit_length()

    def exactly(self, product: Numbers, memory: Memory) -> Numbers:
        """Every bit of alpha `product` + beta C, which is complex if one of them is.

        Raises
        ------
        ValueError
            If an entry has more than `numbers.MOST_BITS` bits, or the sum takes more than `memory` allows.
        """
        found = scaled(product, self.alpha.whole, self.alpha.exponent)
        if self.c is None:
            return found
        c = self.c if isinstance(self.c, Numbers) else of_floats(self.c)
        try:
            # Within a limit in small tiles on a device, too, though these take it longer.
            tile = tile_of(found.limbs) if memory.limit is None else HOST_TILE
            total = add(found, scaled(c, self.beta.whole, self.beta.exponent), tile=tile)
        except ValueError as error:
            raise ValueError(f"c: {error}") from None
        entries = total.parts.size
        memory.pass_through(min(entries, tile) * 32 * max(0, len(total.limbs) - len(product.limbs) - 2))
        return total

    def at(self, index: Any) -> Combination:
        """The expression for some entries of the result."""
        return self if self.c is None else replace(self, c=self.c[index])


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
    scale = None if multiprecision else part_of(dtype)
    first, second = (factor_of(name, x, scale, sizes.is_complex) for name, x in (("alpha", alpha), ("beta", beta)))
    expected = f"expected an array of shape {sizes.result} and dtype {dtype}"
    if c is None and not second.is_zero:
        raise ValueError(f"c: missing; {expected}, or beta = 0")
    if c is not None and tuple(c.shape) != sizes.result:
        raise ValueError(f"c: shape {tuple(c.shape)} does not fit the product; {expected}")
    if c is not None and not may_be_longer and precision_of(dtype_of("c", c)) > precision_of(dtype):
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
    return Factor.of_float(_in_range(name, x, dtype))


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
