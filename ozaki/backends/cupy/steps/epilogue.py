"""What becomes of an un-rounded product: it is kept, or rounded once, alone or in alpha A B + beta C."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ozaki.backends.cupy.program.arrays import Array
from ozaki.backends.cupy.program.kernels import Macros
from ozaki.backends.cupy.steps.numbers import NumbersArray


@dataclass(frozen=True)
class Keep:
    """It is the result of the step itself, to be rounded later; so far tests alone ask for it.

    Attributes
    ----------
    shape : (batch, m, n)
    """

    shape: tuple[int, ...]

    def part(self, axis: int, first: int, last: int) -> Keep:
        """That of elements first, ..., last - 1 along an axis."""
        return Keep((*self.shape[:axis], last - first, *self.shape[axis + 1 :]))


@dataclass(frozen=True)
class Round:
    """It is rounded into an array.

    Attributes
    ----------
    out : shape (batch, m, n), its columns neighbours in memory
    """

    out: Array | NumbersArray

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape (batch, m, n) of the product."""
        return self.out.shape

    def part(self, axis: int, first: int, last: int) -> Round:
        """That of elements first, ..., last - 1 along an axis."""
        return Round(self.out.part(axis, first, last))


@dataclass(frozen=True)
class Combine:
    """Alpha times it plus beta times c is rounded into an array, once.

    Attributes
    ----------
    out : shape (batch, m, n), its columns neighbours in memory
    alpha, beta : the factors, which are finite
    c : the addend, of the same shape, in other memory; with beta = 0 any array of the shape, which is not read
    """

    out: Array
    alpha: float
    beta: float
    c: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape (batch, m, n) of the product."""
        return self.out.shape

    def part(self, axis: int, first: int, last: int) -> Combine:
        """That of elements first, ..., last - 1 along an axis."""
        c = self.c.part(axis, first, last)
        return Combine(self.out.part(axis, first, last), self.alpha, self.beta, c)


Epilogue = Keep | Round | Combine

Expression = tuple[str, Any]
"""What a kernel's builder is given of an expression: the C type of c or its parts, the argument but for the address."""


def expression_of(epilogue: Round | Combine) -> Expression | None:
    """The expression that is rounded; None for the product alone."""
    if isinstance(epilogue, Round):
        return None
    c = epilogue.c.view
    return c.dtype.ctype_of_part, (epilogue.alpha, epilogue.beta, None, *c.steps_of_parts)


def macros_of(expression: Expression | None) -> Macros:
    """The macro of kernels that recombine an expression: none for the product alone."""
    return {} if expression is None else {"ADDEND": expression[0]}


def arguments_of(expression: Expression | None) -> list[Any]:
    """The argument that follows all others: the struct Combination of kernels/arithmetic/combination.cuh."""
    return [] if expression is None else [expression[1]]


def addend_of(epilogue: Round | Combine) -> list[Array]:
    """The array whose address that argument has."""
    return [] if isinstance(epilogue, Round) else [epilogue.c]
