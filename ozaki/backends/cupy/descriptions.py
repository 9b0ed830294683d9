"""The descriptions of both operands in a program, of their rows as they are or scaled along k."""

from __future__ import annotations

from dataclasses import replace

from ozaki.backends.cupy.inputs import Inputs
from ozaki.backends.cupy.made import Made
from ozaki.backends.cupy.program.arrays import Array
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.program import Evidence
from ozaki.backends.cupy.steps.describing import describe, description_on_host
from ozaki.backends.cupy.steps.inner import Factors, inner_factors
from ozaki.backends.cupy.steps.numbers import describe_numbers
from ozaki.backends.cupy.steps.operands import Described
from ozaki.records.shapes import SIDES, Side


class Descriptions:
    """Adds the steps that describe operands to a program, unless they are described already.

    Attributes
    ----------
    b : Builder
    inputs : the operands
    made : what earlier programs of the call, and the steps so far, make for later ones
    """

    def __init__(self, b: Builder, inputs: Inputs, made: Made, inner_scaling: bool = False) -> None:
        """Begin with what earlier programs have made; `inner_scaling`: of the rows scaled along k."""
        self.b, self.inputs, self.made, self._inner_scaling = b, inputs, made, inner_scaling

    def of(self, side: Side) -> Described:
        """The whole description of an operand."""
        if side not in self.made.described:
            described = self._scaled() if self._inner_scaling else {**self.made.described, side: self._as_it_is(side)}
            self.made = replace(self.made, described=described)
        return self.made.described[side]

    def both(self) -> tuple[Described, Described]:
        """The whole descriptions of both operands."""
        return self.of("left"), self.of("right")

    def _as_it_is(self, side: Side) -> Described:
        numbers = self.inputs.numbers.get(side)
        return describe(self.b, self.inputs.rows_given[side]) if numbers is None else describe_numbers(self.b, numbers)

    def _scaled(self) -> dict[Side, Described]:
        """Both operands as rows scaled along k; without factors as they are, and prepared ones as those are."""
        prepared, rows, factors = self.inputs.prepared, self.inputs.rows_given, self.factors()
        inner = (None, None) if factors is None else (factors.left, factors.right)
        return {
            side: prepared[side].described if side in prepared else describe(self.b, rows[side], of)
            for side, of in zip(SIDES, inner, strict=True)
        }

    def factors(self) -> Factors | None:
        """The factors of inner indices; None of a matrix beside itself."""
        if self.made.factors is None and not self.inputs.views.itself:
            rows = self.inputs.rows_given
            self.made = replace(self.made, factors=inner_factors(self.b, rows["left"], rows["right"]))
        return self.made.factors

    def rows(self, side: Side) -> Array:
        """An operand as a stack of rows; of multiprecision numbers, and of prepared operands, the described ones."""
        given = self.inputs.rows_given.get(side)
        return self.of(side).x if given is None else given

    def both_rows(self) -> tuple[Array, Array]:
        """Both operands as stacks of rows."""
        return self.rows("left"), self.rows("right")

    def on_host(self, side: Side) -> Evidence:
        """The description of an operand on the host; the first call adds its copy, on the builder's stream."""
        if side not in self.made.on_host:
            of = description_on_host(self.b, self.of(side))
            self.made = replace(self.made, on_host={**self.made.on_host, side: of})
        return self.made.on_host[side]

    def both_on_host(self) -> tuple[Evidence, Evidence]:
        """The descriptions of both operands on the host."""
        return self.on_host("left"), self.on_host("right")
