"""Both operands of one product: real ones, their names in its program, and what is known of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ozaki._description import Description
from ozaki.backends.cupy import devices
from ozaki.backends.cupy.prepared import PreparedSlices
from ozaki.backends.cupy.program.arrays import Array, view_of
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.first_call import FirstCall
from ozaki.backends.cupy.program.program import Evidence
from ozaki.backends.cupy.steps.describing import describe, description_on_host
from ozaki.backends.cupy.steps.operands import Described, Slices
from ozaki.backends.cupy.steps.product import SIDES


class Inputs:
    """The operands, and the program that is built of what is done with them, run part by part.

    Attributes
    ----------
    device : where they lie, the current one
    b : the builder of the program
    memory : what its parts run with
    rows : of each side, its rows (batch, rows, k)
    prepared : the slices of operands that are prepared
    described : whole descriptions, as far as they are made
    """

    def __init__(self, left: Any, right: Any) -> None:
        """Rows (batch, rows, k), or the slices of a prepared operand."""
        self.device, self.b, self.memory = devices.current(), Builder(), FirstCall()
        self.rows: dict[str, Array] = {}
        self.prepared: dict[str, Slices] = {}
        self._real = dict(zip(SIDES, (left, right), strict=True))
        for side, name, given in zip(SIDES, "ab", (left, right), strict=True):
            if isinstance(given, PreparedSlices):
                slices = self.prepared[side] = given.named(self.b, name)
                self.rows[side] = slices.described.x
                symbols = slices.described.x, slices.described.fields, slices.planes, slices.mu
                for symbol, real in zip(symbols, given.arrays, strict=True):
                    self.memory.bind(symbol, real)
            else:
                self.rows[side] = self.b.given(name, view_of(given))
                self.memory.bind(self.rows[side], given)
        self.described = {side: slices.described for side, slices in self.prepared.items()}
        self._on_host: dict[str, Evidence] = {}

    @property
    def both(self) -> tuple[Array, Array]:
        """The rows of both."""
        return self.rows["left"], self.rows["right"]

    @property
    def dtype(self) -> str:
        """Of the result."""
        return "float64" if any(x.char == "d" for x in self.rows.values()) else "float32"

    def real(self, side: str) -> Any:
        """The rows as they were given; None of a prepared operand."""
        given = self._real[side]
        return None if isinstance(given, PreparedSlices) else given

    def describe(self, side: str) -> Described:
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

    def description(self, side: str) -> Evidence:
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
