"""Results that are more than a product: alpha A B + beta C, rounded once by the kernels that round products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ozaki.backends.cupy.program.arrays import Array
from ozaki.backends.cupy.program.kernels import Macros


@dataclass(frozen=True)
class Combined(Array):
    """The array of a result, shape (batch, m, n), into which alpha times a product plus beta times c is rounded.

    Engines pass it on to the kernels that recombine, in panels as any other array.

    Attributes
    ----------
    alpha, beta : the factors, which are finite
    c : the addend, of the same shape, in other memory; with beta = 0 any array of the shape, which is not read
    """

    alpha: float = 1.0
    beta: float = 0.0
    c: Array | None = None

    @classmethod
    def of(cls, out: Array, alpha: float, beta: float, c: Array | None) -> Combined:
        """The result `out` with an expression; c is None if beta is 0."""
        return cls(out.buffer, out.offset, out.char, out.shape, out.strides, alpha, beta, c or out)

    def part(self, axis: int, first: int, last: int) -> Combined:
        """Elements first, ..., last - 1 along an axis."""
        assert self.c is not None
        out = super().part(axis, first, last)
        return Combined.of(out, self.alpha, self.beta, self.c.part(axis, first, last))


Expression = tuple[str, Any]
"""What a kernel's builder is given of an expression: the C type of c or its parts, the argument but for the address."""


def expression_of(out: Array) -> Expression | None:
    """The expression that is rounded into `out`; None for the product alone."""
    if not isinstance(out, Combined):
        return None
    assert out.c is not None
    return out.c.view.ctype_of_part, (out.alpha, out.beta, None, *out.c.view.steps_of_parts)


def macros_of(expression: Expression | None) -> Macros:
    """The macro of kernels that recombine an expression: none for the product alone."""
    return {} if expression is None else {"ADDEND": expression[0]}


def arguments_of(expression: Expression | None) -> list[Any]:
    """The argument that follows all others: the struct Combination of kernels/arithmetic/combination.cuh."""
    return [] if expression is None else [expression[1]]


def addend_of(out: Array) -> list[Array]:
    """The array whose address that argument has."""
    return [out.c] if isinstance(out, Combined) and out.c is not None else []
