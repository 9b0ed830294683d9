"""The expression alpha A B + beta C, with factors that are whole numbers times powers of two."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ldexp
from typing import Any


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

    def at(self, index: Any) -> Combination:
        """The expression for some entries of the result."""
        return self if self.c is None else replace(self, c=self.c[index])
