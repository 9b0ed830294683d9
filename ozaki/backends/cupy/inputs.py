"""Both operands of one product: real ones, their names in its program, and what is known of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

from ozaki._operands import SIDES, Side
from ozaki.backends.cupy import devices
from ozaki.backends.cupy.prepared import PreparedSlices
from ozaki.backends.cupy.program.arrays import Array, view_of
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.first_call import FirstCall
from ozaki.backends.cupy.program.program import Evidence
from ozaki.backends.cupy.steps.describing import describe, description_on_host
from ozaki.backends.cupy.steps.operands import Described, Slices
from ozaki.bounds.description import Description


class Inputs:
    """The operands, and the program that is built of what is done with them, run part by part.

    Attributes
    ----------
    device : where they lie, the current one
    b : the builder of the program
    memory : what its parts run with
    given : operands that are not prepared, in the shapes that they were given
    prepared : the slices of those that are
    described : whole descriptions, as far as they are made
    copied : rows are a copy, so that the program is of use for these operands alone
    """

    def __init__(self, a: Any, b: Any, rows: Callable[[Side], Any]) -> None:
        """Matrices or stacks of them, or the slices of prepared operands; `rows` gives one as (batch, rows, k)."""
        self.device, self.b, self.memory = devices.current(), Builder(), FirstCall()
        self._real_rows = rows
        self.given: dict[Side, Array] = {}
        self.prepared: dict[Side, Slices] = {}
        for side, name, operand in zip(SIDES, "ab", (a, b), strict=True):
            if isinstance(operand, PreparedSlices):
                slices = self.prepared[side] = operand.named(self.b, name)
                symbols = slices.described.x, slices.described.fields, slices.planes, slices.mu
                for symbol, real in zip(symbols, operand.arrays, strict=True):
                    self.memory.bind(symbol, real)
            else:
                self.given[side] = self.b.given(name, view_of(operand))
                self.memory.bind(self.given[side], operand)
        self.described = {side: slices.described for side, slices in self.prepared.items()}
        self.copied = False
        self._on_host: dict[Side, Evidence] = {}

    @cached_property
    def rows(self) -> dict[Side, Array]:
        """Both operands as stacks of rows."""
        return {side: self.prepared[side].described.x if side in self.prepared else self._rows(side) for side in SIDES}

    def _rows(self, side: Side) -> Array:
        """The rows of an operand: a view of what was given, or a copy."""
        given, real = self.given[side], self._real_rows(side)
        if real.data.ptr == self.memory.address(given.at):
            return Array(given.buffer, 0, *view_of(real))
        self.copied = True
        copy = self.b.given(f"copy of {given}", view_of(real))
        self.memory.bind(copy, real)
        return copy

    @property
    def both(self) -> tuple[Array, Array]:
        """The rows of both."""
        return self.rows["left"], self.rows["right"]

    def describe(self, side: Side) -> Described:
        """The whole description of an operand, made once."""
        if side not in self.described:
            self.described[side] = describe(self.b, self.device, self.rows[side])
        return self.described[side]

    def describe_both(self) -> tuple[Described, Described]:
        """Those of both."""
        return self.describe("left"), self.describe("right")

    def forget_magnitudes(self) -> None:
        """Those that were taken when the operands were split are free."""
        self.described = {side: replace(of, magnitudes=None) for side, of in self.described.items()}

    def description(self, side: Side) -> Evidence:
        """The description of an operand on the host, begun once, on the builder's stream."""
        if side not in self._on_host:
            self._on_host[side] = description_on_host(self.b, self.describe(side))
        return self._on_host[side]

    def descriptions(self) -> tuple[Evidence, Evidence]:
        """Those of both."""
        return self.description("left"), self.description("right")

    def on_host(self) -> tuple[Description, Description]:
        """Both descriptions; waits for them."""
        left, right = self.descriptions()
        self.run()
        return self.memory.evidence(left), self.memory.evidence(right)

    def run(self) -> None:
        """Give the device the steps that were added."""
        self.memory.run(self.b.take())
