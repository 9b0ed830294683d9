"""Runs of the programs of one product, one after the other, on its operands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ozaki.backends.cupy import devices
from ozaki.backends.cupy.inputs import Inputs, OperandView, Seed, Views, arrays_of, planes_of, same_view
from ozaki.backends.cupy.made import Made
from ozaki.backends.cupy.prepared import PreparedSlices, alike
from ozaki.backends.cupy.program.arrays import view_of
from ozaki.backends.cupy.program.program import Program
from ozaki.backends.cupy.program.run import Execution
from ozaki.backends.cupy.steps.numbers import leading_bytes
from ozaki.multiprecision.numbers import Numbers
from ozaki.records.combination import Combination
from ozaki.records.formats import COMPLEX
from ozaki.records.memory import Memory, too_few_bytes
from ozaki.records.progress import SILENT, Progress
from ozaki.records.shapes import SIDES, Side


class ProgramRuns:
    """Runs the programs of one product, on the current device and CuPy's current stream.

    Attributes
    ----------
    operands, rows_of, dtype, memory : as given: a and b, and `rows`
    combination : as given, with its addend once that was read
    device : the current one
    execution : runs the programs
    made : what the programs so far keep in device memory for later ones
    steps : of all programs that ran
    valid_for_others : whether no program has read copies, or what the host computed from these operands
    """

    def __init__(
        self,
        a: Any,
        b: Any,
        rows: Callable[[Side], Any],
        dtype: str,
        memory: Memory,
        combination: Combination | None,
        addend: Callable[[], Any] | None,
        adjoint: bool,
        verified: bool,
    ) -> None:
        """See what the operands are; nothing is computed.

        Parameters
        ----------
        a, b, rows, dtype, memory, combination, addend, adjoint : as of `backends.Backend.work`
        verified : whether the product is projected, for which programs are given a random number

        Raises
        ------
        ValueError
            If the leading bits of multiprecision operands take as much memory as there may be.
        """
        self.operands, self.rows_of, self.dtype, self.memory = (a, b), rows, dtype, memory
        self.combination, self._given_addend = combination, addend
        self._adjoint, self._verified = adjoint, verified
        self.device, self.execution = devices.current(), Execution(memory)
        self._named: Inputs | None = None
        self.made = Made()
        self.steps, self.valid_for_others = 0, True
        if dtype not in COMPLEX:  # of complex entries the addend may be a copy, which not every product reads
            self.read_addend()
        sizes = (int(rows(side).size) for side, x in zip(SIDES, (a, b), strict=True) if isinstance(x, Numbers))
        leading = sum(map(leading_bytes, sizes))
        if (rest := memory.rest) is not None and leading and leading >= rest:
            too_few_bytes(rest, leading)

    # The addend and the operands in programs --------------------------------------------------------------------------

    def read_addend(self) -> None:
        """Take the addend, which may be copied for that."""
        if self._given_addend is not None:
            assert self.combination is not None
            c, self._given_addend = self._given_addend(), None
            self.combination = replace(self.combination, c=c)

    @property
    def addend(self) -> Any:
        """The addend, if programs read it: of floats, and taken."""
        c = None if self.combination is None or self._given_addend is not None else self.combination.c
        return None if isinstance(c, Numbers) else c

    def inputs(self, rows: bool = True) -> Inputs:
        """Both operands and the addend as programs of this product name them; `rows`: as rows, too.

        They are named anew where more is asked for than before; what programs have made stays valid.
        """
        named = self._named
        if named is not None:
            has_rows = len(named.rows_given) == len(named.given)
            if (has_rows or not rows) and (named.views.addend is None) == (self.addend is None):
                return named
        arrays: list[Any] = []
        left, right = (self._view(side, x, rows, arrays) for side, x in zip(SIDES, self.operands, strict=True))
        itself = rows and left.layout is None and right.layout is None and not (left.bits or right.bits)
        itself = itself and same_view(*map(self.rows_of, SIDES))
        addend = None
        if self.addend is not None:
            arrays.append(self.addend)
            addend = view_of(self.addend)
        verified = self._verified
        if verified:  # no triangle is projected
            arrays.append(Seed())
        self._named = Inputs.of(
            Views(left, right, addend, itself and not verified, self._adjoint and not verified, verified)
        )
        self.execution.bind(self._named.buffers, arrays)
        if named is None:
            self.made = Made.of(self._named)
        return self._named

    def _view(self, side: Side, x: Any, rows: bool, arrays: list[Any]) -> OperandView:
        """The view of an operand; adds the arrays that programs are given to `arrays`."""
        if isinstance(x, PreparedSlices):
            arrays += x.arrays
            return x.view
        if isinstance(x, Numbers):
            real = alike(self.rows_of(side))
            self._is_copy(any(of.data.ptr != to.data.ptr for of, to in zip(planes_of(x), planes_of(real), strict=True)))
            arrays += planes_of(real)
            views = tuple(map(view_of, planes_of(real)))
            return OperandView(views, views, x.bits)
        if not rows:
            arrays.append(x)
            return OperandView((view_of(x),))
        real = self.rows_of(side)
        given = (x, real) if (copied := real.data.ptr != x.data.ptr) else (x,)
        self._is_copy(copied)
        arrays += given
        return OperandView(tuple(map(view_of, given)), (view_of(real),))

    def _is_copy(self, copied: bool) -> None:
        self.valid_for_others = self.valid_for_others and not copied

    # Programs ---------------------------------------------------------------------------------------------------------

    def run(self, program: Program, progress: Progress = SILENT) -> None:
        """Start a program; what it computes of uploaded data is valid for these operands alone."""
        self.steps += len(program.steps)
        self.valid_for_others = self.valid_for_others and program.repeatable
        self.execution.run(program, progress)

    def run_into(self, program: Program, c: Any, progress: Progress = SILENT, bounds: Any = None) -> None:
        """Run a program whose last given arrays are those of a result, and after them its bounds, if any."""
        arrays = arrays_of(c) if bounds is None else (*arrays_of(c), bounds)
        buffers = program.given[-len(arrays) :]
        self.execution.bind(buffers, arrays)
        self.run(program, progress)
        self.execution.unbind(buffers)

    def free(self, before: Made) -> None:
        """Free what was made before and is not kept any more."""
        kept = {array.buffer for array in self.made.arrays}
        self.execution.release([array.buffer for array in before.arrays if array.buffer not in kept])

    def release(self) -> None:
        """Free what proofs and early slices hold; waits for facts that were begun."""
        self.execution.finish()
        before = self.made
        self.made = self.made.without_magnitudes()
        self.free(before)
