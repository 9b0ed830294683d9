"""One product on the device: what `backends.Work` asks, and how the product is repeated."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.cupy.bounds import entry_bounds
from ozaki.backends.cupy.facts import engine_for
from ozaki.backends.cupy.multiplying import Multiplication
from ozaki.backends.cupy.operand_facts import OperandFacts
from ozaki.backends.cupy.products import Repetition, as_stack
from ozaki.backends.cupy.relative import relative_error
from ozaki.backends.cupy.running import ProgramRuns
from ozaki.backends.cupy.steps.engines.fused_residues import SymmetricResidues
from ozaki.planning.facts import Need, RelativeError
from ozaki.records.combination import Combination
from ozaki.records.memory import Memory
from ozaki.records.plan import Plan
from ozaki.records.progress import SILENT, Progress
from ozaki.records.row_kinds import RowKinds
from ozaki.records.shapes import Side
from ozaki.records.verification import Verification
from ozaki.schemes import Words

_MOST_STEPS = 4096
"""The most steps of a program that is kept. With more, as for large batches that are multiplied one by one, the host
starts steps faster than the device completes them, so that repeating the program would gain nothing."""


class Work:
    """Finds facts about two operands and multiplies them, on the current device and CuPy's current stream.

    Attributes
    ----------
    memory : as given
    """

    def __init__(
        self,
        a: Any,
        b: Any,
        rows: Callable[[Side], Any],
        dtype: str,
        memory: Memory,
        combination: Combination | None = None,
        addend: Callable[[], Any] | None = None,
        adjoint: bool = False,
        progress: Progress = SILENT,
        verification: Verification | None = None,
    ) -> None:
        """See what the operands are; nothing is computed.

        Parameters
        ----------
        a, b : matrices or stacks of them, as the caller gave them, or the slices of prepared operands
        rows : gives an operand as a stack of rows, shape (batch, rows, k)
        dtype : dtype of the result
        memory : the account of what the product holds
        combination : the expression that is computed in place of the product, or None
        addend : returns its addend, a stack
        adjoint : whether B is the conjugate transpose of A
        progress : is told of each launch of the product
        verification : the account of checks of the product, or None

        Raises
        ------
        ValueError
            If the leading bits of multiprecision operands take as much.
        """
        self.memory = memory
        verified = verification is not None
        self._runs = ProgramRuns(a, b, rows, dtype, memory, combination, addend, adjoint, verified)
        self._facts = OperandFacts(self._runs)
        self._multiplication = Multiplication(self._runs, self._facts, progress, verification)
        self._relative_errors: dict[RelativeError, float] = {}

    @property
    def undecided(self) -> int | None:
        """Number of entries of the last product that were computed apart; waits for the device."""
        reader = self._multiplication.undecided
        return None if reader is None else int(self._runs.execution.fact(reader))

    @property
    def row_kinds(self) -> RowKinds | None:
        """How the rows of the last product were multiplied; None but of `RowDigits`. Waits for the device."""
        reader = self._multiplication.row_kinds
        found: RowKinds | None = None if reader is None else self._runs.execution.fact(reader)
        return found

    # Facts ------------------------------------------------------------------------------------------------------------

    def begin(self, needs: Sequence[Need], plan: Plan) -> None:
        """Begin to find facts, all `WorstRatio` of one level or all `RowsBound`, and split for a likely plan.

        The device splits the operands before it is asked for them, so that a product by that plan, if it is chosen, can
        begin at once. Memory must not be limited, because slices and what the facts take are held at once.
        """
        self._facts.begin(needs, plan)

    def measure(self, need: Need) -> Any:
        """Find a fact: begins it if that was not done before, and waits for the device.

        Raises
        ------
        ValueError
            If it cannot be found within the limit of memory.
        """
        if not isinstance(need, RelativeError):
            return self._facts.measure(need)
        if need not in self._relative_errors:
            parts = self._runs, self._facts, self._multiplication
            with np.errstate(all="ignore"):
                self._relative_errors[need] = relative_error(*parts, need.scheme, need.inner_scaling)
        return self._relative_errors[need]

    def nonfinite(self, side: Side) -> npt.NDArray[Any]:
        """The number of NaN and Inf in each row of an operand, shape (batch, rows); waits for the device."""
        return self._facts.nonfinite(side)

    def underflows(self, side: Side, words: Words) -> int:
        """The number of elements of which words leave out more than the residual of B8; waits for the device."""
        return self._facts.underflows(side, words)

    # The product ------------------------------------------------------------------------------------------------------

    def multiply(self, plan: Plan, c: Any) -> None:
        """Compute the product by a plan of slices or words into c, shape (batch, m, n), contiguous.

        The product has entries, and k > 0. Waits for facts that were begun, not for the product. Uses the slices that
        were made early if they are of the plan's scheme, else frees them. At most one call of `multiply` or `native`
        for each `Work`.

        Raises
        ------
        ValueError
            If it cannot be computed within the limit of memory.
        """
        self._multiplication.multiply(plan, c)

    def release(self) -> None:
        """Free what proofs, early slices and a product before hold; waits for facts that were begun."""
        self._runs.release()
        self._multiplication.release()

    def native(self, c: Any) -> None:
        """Compute the native product of the given arrays into c, its rows contiguous; at most once, as `multiply`."""
        self._multiplication.native(c)

    def combine(self, c: Any) -> None:
        """Make the rounded product in c, shape (batch, m, n), the whole expression; after `multiply` or `native`."""
        self._multiplication.combine(c)

    def addend(self, c: Any) -> None:
        """Compute what the expression adds to a product of zeros into c, shape (batch, m, n)."""
        self._multiplication.addend(c)

    def entry_bounds(self, plan: Plan | None, c: Any, bounds: Any) -> None:
        """Compute the bounds of the entries of the result c, both of shape (batch, m, n), into `bounds`."""
        entry_bounds(self._runs, self._facts, plan, c, bounds)

    # For repeated calls -----------------------------------------------------------------------------------------------

    @property
    def for_transposes(self) -> bool:
        """Whether the program is right for a matrix and its own transpose alone."""
        runs, launched = self._runs, self._multiplication.launched
        if launched is None or launched[0].scheme is None or not runs.inputs().views.itself:
            return False
        plan, _, expression = launched
        if as_stack(runs.device, plan, runs.inputs(), expression):
            return False
        once = expression is not None and expression.once
        engine = engine_for(runs.device, plan, runs.inputs(), once, once and runs.addend is not None)
        return isinstance(engine, SymmetricResidues) and engine.symmetry == "symmetric"

    def repetition(self, facts: Collection[Need] | None = None) -> Repetition | None:
        """What the program of a repeated call depends on, which finds these facts, or all that were asked for.

        None if what was done is valid for these operands alone (the host computed a part, or a program reads copies),
        or has too many steps.
        """
        runs, launched = self._runs, self._multiplication.launched
        if not runs.valid_for_others or launched is None or runs.steps >= _MOST_STEPS:
            return None
        plan, out, expression = launched
        return Repetition(
            runs.inputs(rows=False).views, runs.device, plan, out, self._facts.asked(plan, facts), expression
        )
