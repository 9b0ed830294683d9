"""One call: the steps of a plan run, recorded for calls like it, and reported."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from math import inf, prod
from typing import Any

from ozaki import _bounds, _word_bounds
from ozaki._choices import Choices
from ozaki._operands import Side
from ozaki._pair import SIDES, Pair
from ozaki._plan import Plan
from ozaki._planning import Planning
from ozaki._prepared import Prepared
from ozaki._report import Report, rounded_up
from ozaki._ways import native_bound
from ozaki._workspace import too_few_bytes
from ozaki.backends import Again, Backend
from ozaki.schemes import Words


class Call:
    """What is done with the operands of one product."""

    def __init__(self, pair: Pair) -> None:
        self._pair, self._planning = pair, Planning(pair)
        self._proven = inf

    def plan(self, choices: Choices) -> Plan:
        """The plan for these operands, which may be split already when it is made."""
        return self._planning.plan(choices)

    def check_plan(self, plan: Plan, report: bool) -> None:
        """Prove for these operands what a given plan promises, or what a report will say of it.

        Raises
        ------
        ValueError
            Where a strict plan's target is not met.
        """
        pair = self._pair
        if pair.empty or plan.a_priori or not (plan.strict or report):
            return
        target, dtype = plan.target, pair.dtype
        if plan.scheme is None:
            proven = native_bound(pair.backend, pair.sizes.shape[1], dtype) if pair.in_range else inf
            met = _bounds.suffices(proven, target.tolerance, dtype)
        else:
            known = plan.bound if report else inf
            bound = self._planning.prove(plan.scheme, target, plan.workspace_limit, known)
            proven, met = _bounds.with_rounding(bound, dtype), bound <= target.tolerance
        self._proven = proven
        if met or plan.strict is None:
            return
        message = (
            f"plan: proves a {target.measure} error of {rounded_up(proven)} for these operands, but it was made for an "
            f"accuracy of {target.tolerance:.3g} and other operands"
        )
        if plan.strict:
            raise ValueError(f"{message}; plan from these, or make the plan with strict=False")
        warnings.warn(message, stacklevel=4)

    def run(self, plan: Plan, c: Any, given: bool) -> int:
        """Compute the product into c by a plan, given by the caller or not; returns the bytes of workspace."""
        pair, planning = self._pair, self._planning
        if (given and not plan.strict) or (plan.a_priori and not planning.native_by_data):
            planning.right_again = _always
        if 0 in pair.sizes.stack:
            return 0
        if pair.sizes.shape[1] == 0:
            c[...] = 0
            return 0
        return self._run(plan, c)

    def _run(self, plan: Plan, c: Any) -> int:
        """The same of operands that are not empty; copies of them are not counted."""
        pair, planning = self._pair, self._planning
        if plan.scheme is None:
            pair.check_native_limit(plan.workspace_limit)
            copied = pair.backend.native(*pair.matrices, pair.dtype, pair.sizes.own_shape(c))
            if planning.right_again is not None:
                planning.right_again = partial(_without_obstacle, pair.backend, pair.dtype)
            return copied
        if pair.undescribed and planning.ahead is None:
            rows = pair.rows("left"), pair.rows("right")
            return pair.backend.product(self._within_limit(plan), *rows, c)
        if planning.ahead is not None and planning.ahead[0] != plan.scheme:
            planning.ahead = None  # frees the memory
        elif planning.ahead is not None and planning.search is not None and planning.search.plain:
            planning.search.keep()
            planning.right_again = partial(planning.search.finds, plan.scheme)
        left, right = self._operand("left"), self._operand("right")
        return pair.backend.execute(self._within_limit(plan), left, right, c)

    def recorded(self, out: Any, choices: tuple[Any, ...], c: Any) -> AbstractContextManager[None]:
        """Let calls like this one run what is run here into c, where that is worth it."""
        pair = self._pair
        if pair.empty or prod(pair.sizes.batch) * prod(pair.sizes.shape) > _LARGEST_AGAIN:
            return nullcontext()
        return pair.backend.recorded(pair.a, pair.b, out, c, choices, self._again)

    def _again(self) -> Again | None:
        """What calls like this one may do, now that it has run; None if that is for nobody to tell."""
        planning = self._planning
        if planning.right_again is None or planning.unforeseen or self._pair.copied or not self._pair.sizes.in_order:
            return None
        return Again(partial(_all_hold, planning.right_again, *planning.still), self._pair.sizes.result)

    def _within_limit(self, plan: Plan) -> Plan:
        """The plan with what is left of its limit for the product."""
        pair = self._pair
        rest = pair.left_of(plan.workspace_limit)
        if rest == plan.workspace_limit:
            return plan
        less = replace(plan, workspace_limit=rest)
        if pair.prepared and not pair.backend.same_slices(plan, less):
            assert plan.workspace_limit is not None
            too_few_bytes(plan.workspace_limit, plan.workspace_limit + pair.held)
        return less

    def _operand(self, side: Side) -> Any:
        """What there is of an operand to compute with: slices, or a description."""
        pair = self._pair
        operand = pair.a if side == "left" else pair.b
        if isinstance(operand, Prepared):
            return operand.slices
        return pair.described(side) if self._planning.ahead is None else self._planning.ahead[1][side]

    def report(self, plan: Plan, workspace: int, given: bool) -> Report:
        """What ran; the bound of a plan that may come from other operands is proven anew for these."""
        pair = self._pair
        scheme, bound, nonfinite = plan.scheme, plan.bound, None
        if not pair.empty and (scheme is None or not plan.a_priori):
            if scheme is None:
                bound = native_bound(pair.backend, pair.sizes.shape[1], pair.dtype) if pair.in_range else inf
            elif given:
                bound = self._proven
            rows = {side: int((pair.described(side).on_host.nonfinite > 0).sum()) for side in SIDES}
            nonfinite = sum(count // pair.copies(side) for side, count in rows.items())
        held = pair.copied
        if not pair.empty:
            held = pair.held + max(workspace, self._planning.workspace, pair.describing)
        underflows = estimate = None
        if isinstance(scheme, Words):
            small = (side for side in SIDES if pair.described(side).on_host.below(scheme.lowest).any())
            underflows = sum(pair.backend.underflows(pair.described(x), scheme) // pair.copies(x) for x in small)
            likely = _word_bounds.relative(scheme, max(pair.sizes.shape[1], 1), probable=True)
            estimate = _bounds.with_rounding(likely, pair.dtype)
        return Report(
            bound=bound,
            measure=plan.target.measure,
            scheme="native" if scheme is None else scheme.name,
            slices=plan.slices,
            products=plan.products,
            engine=pair.backend.engine_name(plan),
            native=plan.native,
            why=plan.why,
            workspace_bytes=held,
            reproducible=plan.reproducible,
            nonfinite=nonfinite,
            underflows=underflows,
            estimate=estimate,
        )


def _always() -> bool:
    """What is run does not depend on the operands' elements."""
    return True


def _all_hold(*conditions: Callable[[], bool]) -> bool:
    return all(holds() for holds in conditions)


def _without_obstacle(backend: Backend, dtype: str) -> bool:
    """The environment still lets the native product be what it was."""
    return backend.native_obstacle(dtype) is None


_LARGEST_AGAIN = 2**39
"""Multiplications beyond which the host's time is nothing, and memory much."""
