"""Facts about the operands of one product: runs the programs that find them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.cupy.facts import Asked, facts_program
from ozaki.backends.cupy.made import Made
from ozaki.backends.cupy.products import as_stack
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.program import Reader
from ozaki.backends.cupy.proofs import needs_descriptions
from ozaki.backends.cupy.running import ProgramRuns
from ozaki.backends.cupy.steps.inner import Factors, factors_beside
from ozaki.backends.cupy.steps.native import native_obstacle
from ozaki.backends.cupy.steps.operands import Described
from ozaki.backends.cupy.steps.words import count_underflows
from ozaki.bounds.description import Description
from ozaki.planning.facts import CutBound, Need, Spans, WorstRatio
from ozaki.records.plan import Plan
from ozaki.records.shapes import SIDES, Side
from ozaki.schemes import Words
from ozaki.schemes.inner import out_of_reach


class OperandFacts:
    """Finds facts about the operands of one product, and describes them; each once.

    Parameters
    ----------
    runs : runs the programs of the product
    """

    def __init__(self, runs: ProgramRuns) -> None:
        self._runs = runs
        self._readers: dict[Need, Reader] = {}
        self._found: dict[Need, Any] = {}
        self._needs: dict[Need, None] = {}  # all that programs have found, in order
        self._sampled: set[Words] = set()  # words of which elements lose parts
        self._likely = False  # whether operands were split for a likely plan
        self._limit: int | None = None  # of workspace, for the first of the facts

    def begin(self, needs: Sequence[Need], plan: Plan) -> None:
        """Begin to find facts, all `WorstRatio` of one level or all `RowsBound`, and split for a likely plan.

        The device splits the operands before it is asked for them, so that a product by that plan, if it is chosen, can
        begin at once. Memory must not be limited, because slices and what the facts take are held at once.
        """
        self._likely = not self._as_stack(plan)
        self._find(needs, likely=plan if self._likely else None)

    def _as_stack(self, plan: Plan) -> bool:
        """Whether one kernel computes the product by this plan, which reads no slices."""
        runs = self._runs
        return runs.combination is None and as_stack(runs.device, plan, runs.inputs())

    def measure(self, need: Need) -> Any:
        """Find a fact other than `RelativeError`: begins it if that was not done before, and waits for the device.

        Raises
        ------
        ValueError
            If it cannot be found within the limit of memory.
        """
        with np.errstate(all="ignore"):
            if need not in self._found:
                self._found[need] = self._fact(need)
            return self._found[need]

    def _fact(self, need: Need) -> Any:
        runs = self._runs
        if need not in self._readers:
            if isinstance(need, WorstRatio) and need.level == "wide" and native_obstacle("float64") is not None:
                from ozaki.backends.cupy.on_host import fact_on_host  # another backend, which few calls need

                runs.valid_for_others = False
                return fact_on_host(need, runs.operands, runs.rows_of, runs.dtype)
            self._find([need])
        fact = runs.execution.fact(self._readers[need])
        if isinstance(need, CutBound) and fact == inf and need.words not in self._sampled:
            self._sampled.add(need.words)
            if runs.made.early is not None and runs.made.early.scheme == need.words:
                self._find([need], sampled=(need.words,))
                fact = runs.execution.fact(self._readers[need])
        return fact

    def _find(self, needs: Sequence[Need], bring: Sequence[Side] = (), **more: Any) -> None:
        """Run the program that finds facts, and brings descriptions to the host; waits for nothing that it brings."""
        runs = self._runs
        inputs = runs.inputs()
        runs.execution.finish()
        if any(getattr(need, "inner_scaling", False) for need in needs):
            self.scale_beside_prepared()
        if any(map(needs_descriptions, needs)):
            scaled = any(getattr(need, "inner_scaling", False) for need in needs)
            more["descriptions"] = self.descriptions(scaled)
        before = runs.made
        limit = runs.memory.rest
        if not self._needs:
            self._limit = limit
        asked = Asked(needs, runs.dtype, bring=bring, limit=limit, **more)
        program, runs.made = facts_program(inputs, runs.device, asked, before)
        runs.run(program)
        runs.free(before)
        for need in needs:
            self._needs[need] = None
            self._readers[need] = program.readers[need]

    def asked(self, plan: Plan, facts: Collection[Need] | None) -> Asked:
        """What a repeated call by that plan asks for: these facts, or all that were found.

        It splits the operands early where the call has done so, and for an exact product, whose first fact is `Spans`.
        """
        needs = [need for need in self._needs if facts is None or need in facts]
        split_early = self._likely or (bool(needs) and isinstance(needs[0], Spans) and self._limit is None)
        of_slices = plan.scheme is not None and plan.scheme.exact and not plan.inner_scaling
        likely = plan if split_early and of_slices and not self._as_stack(plan) else None
        return Asked(needs, self._runs.dtype, likely, sampled=frozenset(self._sampled), limit=self._limit)

    def scale_beside_prepared(self) -> None:
        """Find the factors of an operand beside one that is prepared and scaled along k; waits for the device.

        Raises
        ------
        ValueError
            If its scaled elements leave their format.
        """
        runs = self._runs
        inputs = runs.inputs()
        if not inputs.prepared or runs.made.scaled is not None:
            return
        (side, prepared), *_ = inputs.prepared.items()
        assert prepared.described.inner is not None
        runs.valid_for_others = False
        other: Side = "left" if side == "right" else "right"
        b, x = Builder(inputs.buffers), inputs.rows_given[other]
        factors, leaves = factors_beside(b, x, prepared.described.inner)
        runs.run(b.program(keeps=[factors]))
        if runs.execution.evidence(leaves):
            form = "float32" if x.view.dtype.ctype_of_part == "float" else "float64"
            out_of_reach("a" if other == "left" else "b", form)
        pair = (factors, prepared.described.inner)
        left, right = pair if other == "left" else pair[::-1]
        runs.made = replace(runs.made, scaled=Made(factors=Factors(left, right, factors)))

    # Descriptions -----------------------------------------------------------------------------------------------------

    def described(self, scaled: bool = False) -> tuple[Described, Described]:
        """Both operands with their descriptions, or those of rows scaled along k, on the device; waits for nothing."""
        if len(self._made(scaled).described) < 2:
            self._find((), describe=True, of_scaled=scaled)
        left, right = (self._made(scaled).described[side] for side in SIDES)
        return left, right

    def descriptions(self, scaled: bool = False) -> tuple[Description, Description]:
        """The descriptions of both operands, or of rows scaled along k, on the host; waits for the device."""
        if len(self._made(scaled).on_host) < 2:
            self._find((), bring=SIDES, of_scaled=scaled)
        left, right = (self._runs.execution.evidence(self._made(scaled).on_host[side]) for side in SIDES)
        return left, right

    def _made(self, scaled: bool) -> Made:
        """What programs have made of the rows as they are, or of those scaled along k."""
        made = self._runs.made
        return made.scaled or Made() if scaled else made

    def description(self, side: Side) -> Description:
        """The description of an operand on the host; waits for the device."""
        if side not in self._runs.made.on_host:
            self._find((), bring=(side,))
        description: Description = self._runs.execution.evidence(self._runs.made.on_host[side])
        return description

    def nonfinite(self, side: Side) -> npt.NDArray[Any]:
        """The number of NaN and Inf in each row of an operand, shape (batch, rows); waits for the device."""
        return self.description(side).nonfinite

    def underflows(self, side: Side, words: Words) -> int:
        """The number of elements of which words leave out more than the residual of B8; waits for the device."""
        runs = self._runs
        if not self.description(side).below(words.lowest).any():
            return 0
        b = Builder(runs.inputs().buffers)
        found = b.evidence(count_underflows(b, runs.made.described[side], words), np.copy)
        runs.run(b.program())
        return int(runs.execution.evidence(found)[0])
