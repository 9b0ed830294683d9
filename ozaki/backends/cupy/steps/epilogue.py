"""What becomes of an un-rounded product: it is kept, or rounded once, alone or in alpha A B + beta C."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ozaki.backends.cupy.program.arrays import Array, Place
from ozaki.backends.cupy.program.kernels import Macros
from ozaki.backends.cupy.program.steps import Out
from ozaki.backends.cupy.steps.numbers import NumbersArray
from ozaki.backends.cupy.steps.projection import Projection
from ozaki.backends.cupy.steps.undecided import Undecided


@dataclass(frozen=True)
class Keep:
    """It is the result of the step itself, to be added to others and rounded later (`steps/parts.py`).

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
    projection : where its integers are projected, or None
    undecided : where undecided entries are listed, of real residues of byte moduli, or None
    """

    out: Array | NumbersArray
    projection: Projection | None = None
    undecided: Undecided | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape (batch, m, n) of the product."""
        return self.out.shape

    def part(self, axis: int, first: int, last: int) -> Round:
        """That of elements first, ..., last - 1 along an axis."""
        undecided = None if self.undecided is None else self.undecided.part(axis, first, last)
        return Round(self.out.part(axis, first, last), _part(self.projection, axis, first, last), undecided)


@dataclass(frozen=True)
class Combine:
    """Alpha times it plus beta times c is rounded into an array, once.

    Attributes
    ----------
    out : shape (batch, m, n), its columns neighbours in memory
    alpha, beta : the factors, which are finite
    c : the addend, of the same shape, in other memory; with beta = 0 any array of the shape, which is not read
    projection : where the integers of the product are projected, or None
    """

    out: Array
    alpha: float
    beta: float
    c: Array
    projection: Projection | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape (batch, m, n) of the product."""
        return self.out.shape

    def part(self, axis: int, first: int, last: int) -> Combine:
        """That of elements first, ..., last - 1 along an axis."""
        c = self.c.part(axis, first, last)
        projection = _part(self.projection, axis, first, last)
        return Combine(self.out.part(axis, first, last), self.alpha, self.beta, c, projection)


def _part(of: Projection | None, axis: int, first: int, last: int) -> Projection | None:
    return None if of is None else of.part(axis, first, last)


Epilogue = Keep | Round | Combine

Expression = tuple[str, Any, Any, Any]
"""What a kernel's builder is given of an expression, projections and undecided entries: the C type of c or its parts,
and the arguments of all three but for addresses; "" and None for what there is not."""


def expression_of(epilogue: Round | Combine) -> Expression | None:
    """The expression that is rounded, the projections and the undecided entries; None for the product alone."""
    projection = None if epilogue.projection is None else epilogue.projection.argument
    if isinstance(epilogue, Round):
        undecided = None if epilogue.undecided is None else epilogue.undecided.argument
        return None if projection is None and undecided is None else ("", None, projection, undecided)
    c = epilogue.c.view
    return c.dtype.ctype_of_part, (epilogue.alpha, epilogue.beta, None, *c.steps_of_parts), projection, None


def macros_of(expression: Expression | None) -> Macros:
    """The macros of kernels that recombine an expression, project, or list entries: none for the product alone."""
    macros: Macros = {}
    if expression is None:
        return macros
    addend, _, projection, undecided = expression
    if addend:
        macros["ADDEND"] = addend
    if projection is not None:
        macros["PROJECTED"] = 1
    if undecided is not None:
        macros["UNDECIDED"] = 1
    return macros


def arguments_of(expression: Expression | None) -> list[Any]:
    """The arguments that follow all others: the structs Combination, Projection and Listing of the kernels."""
    return [] if expression is None else [each for each in expression[1:] if each is not None]


def places_of(epilogue: Round | Combine) -> list[Array | Place | Out]:
    """The places whose addresses these arguments have."""
    found: list[Array | Place | Out] = [] if isinstance(epilogue, Round) else [epilogue.c]
    if epilogue.projection is not None:
        found += epilogue.projection.written
    if isinstance(epilogue, Round) and epilogue.undecided is not None:
        found += epilogue.undecided.written
    return found
