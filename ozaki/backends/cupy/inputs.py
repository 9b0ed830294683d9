"""Both operands of one product: the real arrays, their symbolic arrays in its program, their descriptions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

from ozaki.backends.cupy import devices
from ozaki.backends.cupy.binding import bound_numbers, planes_of, same_view
from ozaki.backends.cupy.prepared import PreparedSlices
from ozaki.backends.cupy.program.arrays import Array, view_of
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.first_call import FirstCall
from ozaki.backends.cupy.program.program import Evidence
from ozaki.backends.cupy.steps.describing import describe, description_on_host
from ozaki.backends.cupy.steps.numbers import NumbersArray, describe_numbers
from ozaki.backends.cupy.steps.operands import Described, Slices
from ozaki.bounds.description import Description
from ozaki.call.operands import SIDES, Side
from ozaki.driver.memory import Memory
from ozaki.driver.progress import SILENT, Progress
from ozaki.multiprecision.numbers import Numbers


class Inputs:
    """Both operands, and the program of their product, which is built and run part by part.

    Attributes
    ----------
    device : the current device, where the operands lie
    builder : the builder of the program
    first_call : what runs the program's parts, and holds their memory
    multiprecision : whether an operand holds multiprecision numbers
    given : floating-point operands that are not prepared, in the shapes in which the caller gave them
    prepared : slices of the operands that are prepared
    described : whole descriptions, of the operands for which the program computes one so far
    copied : whether the rows of an operand, or the result, are a copy, so that the program is valid for these operands
        alone
    """

    def __init__(self, a: Any, b: Any, rows: Callable[[Side], Any], memory: Memory) -> None:
        """Name both operands in a new program.

        Parameters
        ----------
        a, b : matrices or stacks of them, or slices of prepared operands
        rows : gives an operand as a stack of rows, shape (batch, rows, k)
        memory : the account of what the product holds
        """
        self.device, self.builder, self.first_call = devices.current(), Builder(), FirstCall(memory)
        self._real_rows, self._memory = rows, memory
        self.multiprecision = self.copied = False
        self._numbers: dict[Side, NumbersArray] = {}
        self.given: dict[Side, Array] = {}
        self.prepared: dict[Side, Slices] = {}
        for side, name, operand in zip(SIDES, "ab", (a, b), strict=True):
            if isinstance(operand, PreparedSlices):
                self.prepared[side], symbols = operand.named(self.builder, name)
                self.multiprecision = self.multiprecision or operand.tops is not None
                for symbol, real in zip(symbols, operand.arrays, strict=True):
                    self.first_call.bind(symbol, real)
            elif isinstance(operand, Numbers):
                self.multiprecision = True
                self._numbers[side] = self._named_numbers(name, operand, rows(side))
            else:
                self.given[side] = self.builder.given(name, view_of(operand))
                self.first_call.bind(self.given[side], operand)
        self.described = {side: slices.described for side, slices in self.prepared.items()}
        self._descriptions_on_host: dict[Side, Evidence] = {}

    @cached_property
    def itself(self) -> bool:
        """Whether a matrix is multiplied by its own transpose: the rows of A are the columns of B, in memory, too."""
        return len(self.given) == 2 and same_view(*map(self._real_rows, SIDES))

    @cached_property
    def rows(self) -> dict[Side, Array]:
        """Both operands as stacks of rows, shape (batch, rows, k); of multiprecision ones the leading bits."""
        return {side: self._described_rows(side) if side not in self.given else self._rows(side) for side in SIDES}

    def _described_rows(self, side: Side) -> Array:
        """The rows of an operand that is prepared, or described by its leading bits."""
        return self.describe(side).x

    def _rows(self, side: Side) -> Array:
        """The rows of an operand: a view of the given array, or a copy where no view has that shape."""
        given, real = self.given[side], self._real_rows(side)
        if real.data.ptr == self.first_call.address(given.at):
            return Array(given.buffer, 0, *view_of(real))
        self.copied = True
        copy = self.builder.given(f"copy of {given}", view_of(real))
        self.first_call.bind(copy, real)
        return copy

    @property
    def leading_bytes(self) -> int:
        """Bytes of the leading bits of multiprecision operands that are not prepared."""
        sides = [side for side in SIDES if side not in self.given and side not in self.prepared]
        return sum(8 * int(self._real_rows(side).size) for side in sides)

    @property
    def limit(self) -> int | None:
        """Most bytes that proofs, or the product, may hold at a time beside what is held for something else."""
        if self._memory.limit is None:
            return None
        elsewhere = self._memory.held - self.first_call.counted_bytes
        return max(self._memory.limit - elsewhere - self.leading_bytes, 0)

    @property
    def both_rows(self) -> tuple[Array, Array]:
        """The rows of the left and the right operand."""
        return self.rows["left"], self.rows["right"]

    def describe(self, side: Side) -> Described:
        """The whole description of an operand; adds the steps that compute it if there are none yet."""
        if side not in self.described:
            if side in self.given:
                self.described[side] = describe(self.builder, self.rows[side])
            else:
                self.described[side] = describe_numbers(self.builder, self._numbers[side])
        return self.described[side]

    def _named_numbers(self, name: str, given: Numbers, rows: Numbers) -> NumbersArray:
        """The rows of a multiprecision operand, shape (batch, rows, k), named in the program."""
        numbers = bound_numbers(self.builder, self.first_call, name, rows)
        places = zip(planes_of(given), (numbers.signs, numbers.exponents, numbers.limbs), strict=True)
        if any(plane.data.ptr != self.first_call.address(symbol.at) for plane, symbol in places):
            self.copied = True
        return numbers

    def describe_both(self) -> tuple[Described, Described]:
        """The whole descriptions of the left and the right operand."""
        return self.describe("left"), self.describe("right")

    def forget_magnitudes(self) -> None:
        """Drop the magnitudes that were taken when the operands were split: their buffers were released."""
        self.described = {side: replace(of, magnitudes=None) for side, of in self.described.items()}

    def description(self, side: Side) -> Evidence:
        """The description of an operand on the host; the first call adds its copy, on the builder's stream."""
        if side not in self._descriptions_on_host:
            self._descriptions_on_host[side] = description_on_host(self.builder, self.describe(side))
        return self._descriptions_on_host[side]

    def descriptions(self) -> tuple[Evidence, Evidence]:
        """The descriptions of the left and the right operand on the host, as evidence."""
        return self.description("left"), self.description("right")

    def on_host(self) -> tuple[Description, Description]:
        """The descriptions of the left and the right operand on the host; waits for the device."""
        left, right = self.descriptions()
        self.run()
        return self.first_call.evidence(left), self.first_call.evidence(right)

    def run(self, progress: Progress = SILENT) -> None:
        """Start the steps that were added since the last call; does not wait for them."""
        self.first_call.run(self.builder.take(), progress)
