"""The report of one product: what its plan promises, and what was counted and proven for these operands."""

from __future__ import annotations

from math import inf
from typing import Any

from ozaki.backends import as_computed
from ozaki.bounds import words as word_bounds
from ozaki.bounds.rounding import with_rounding
from ozaki.call.range import out_of_range
from ozaki.driver.bounding import entry_bounds, native_bound
from ozaki.driver.settling import Settled
from ozaki.driver.works import Works
from ozaki.planning.facts import NativeInRange, RelativeError
from ozaki.planning.proof import relative_bound
from ozaki.records.formats import is_multiprecision
from ozaki.records.plan import Plan
from ozaki.records.report import Report
from ozaki.records.row_kinds import RowKinds
from ozaki.records.shapes import SIDES
from ozaki.schemes import Words, is_exact
from ozaki.schemes.row_digits import RowDigits


def report(works: Works, settled: Settled, asked: frozenset[str], c: Any) -> Report:
    """The report of a product c; the bound of a given plan is the one proven for these operands.

    With "relative" in `asked` it has the relative bound, too, which the computed product proves; with "bounds" those of
    all entries.
    """
    pair, plan, relative = works.pair, settled.plan, "relative" in asked
    if pair.half is not None and asked:
        raise ValueError(
            f"return_report: {sorted(asked)[0]!r}, which products rounded to {pair.half} do not have; use True"
        )
    bounds = entry_bounds(works, plan, c) if "bounds" in asked else None
    scheme, bound, unrounded = plan.scheme, plan.bound, plan.unrounded_bound
    # A multiprecision result refuses NaN and Inf, and has no range that it could leave.
    nonfinite = 0 if pair.empty or is_multiprecision(plan.dtype) else None
    kinds = None if pair.half is None or pair.empty else works.of_rows.row_kinds
    if kinds is not None:
        unrounded, bound = kinds.worst, with_rounding(kinds.worst, plan.dtype)
    if not pair.empty and (scheme is None or not plan.a_priori):
        if scheme is None:
            bound = unrounded = native_bound(works)
        elif settled.proven is not None:
            unrounded, bound, _ = settled.proven
        nonfinite = sum(pair.flagged(side, works.of_rows.nonfinite(side) > 0) for side in SIDES)
    underflows = estimate = None
    if isinstance(scheme, Words):
        underflows = sum(works.of_parts.underflows(side, scheme) // pair.repeats(side) for side in SIDES)
        likely = word_bounds.relative(scheme, max(pair.sizes.length, 1), probable=True)
        estimate = with_rounding(likely * pair.sizes.spread, pair.dtype)
    counted = not pair.empty and not plan.native and (relative or nonfinite is not None)
    outside = _out_of_range(works, plan, c) if counted else None
    relative_error = (inf if outside else _relative_bound(works, plan, bound)) if relative else None
    in_steps = works.verification is not None or any(x.prepared for x, _ in pair.operands)
    once = None if pair.combination is None else plan.rounds_once(pair.combination)
    return Report(
        bound=bound,
        unrounded_bound=unrounded,
        measure=plan.target.measure,
        scheme="native" if scheme is None else scheme.name,
        slices=plan.slices,
        products=plan.products,
        exponent=plan.target.exponent,
        engine=pair.backend.engine_name(as_computed(plan, pair.backend), once is True, in_steps),
        native=plan.native,
        why=plan.why,
        workspace_bytes=pair.memory.most,
        reproducible=plan.reproducible,
        nonfinite=nonfinite,
        out_of_range=outside,
        underflows=underflows,
        estimate=estimate,
        relative_bound=relative_error,
        rounded_once=once,
        bounds=bounds,
        verified=None if works.verification is None else works.verification.verified,
        recomputed=None if works.verification is None else works.verification.recomputed,
        inner_scaling=plan.inner_scaling,
        undecided=_undecided(works, plan),
        row_kinds=None if kinds is None else _counted_rows(plan, kinds),
    )


def _counted_rows(plan: Plan, kinds: RowKinds) -> dict[str, int]:
    """Rows of A by how they were multiplied, of those kinds that there are."""
    assert isinstance(plan.scheme, RowDigits)
    names = [f"{digits} digits" for digits in plan.scheme.kinds] + ["exact"]
    return {name: count for name, count in zip(names, (*kinds.rows, kinds.exact), strict=True) if count}


def _undecided(works: Works, plan: Plan) -> int | None:
    """Number of entries that were computed apart; None of a plan that has none."""
    if not plan.undecided_apart:
        return None
    return 0 if works.pair.empty else works.of_rows.undecided


def _out_of_range(works: Works, plan: Plan, c: Any) -> int:
    """Number of entries of the result that over- or underflowed, or may have (`Report.out_of_range`)."""
    pair = works.pair
    if is_multiprecision(plan.dtype):
        return 0
    if not pair.multiprecision and pair.combination is None and works.measure(NativeInRange()):
        return 0
    if pair.prepared and pair.sizes.is_complex:  # a prepared operand may be rows of parts alone
        return out_of_range(c, None, pair.memory)
    left, right = (x.read if x.prepared else pair.rows(side, False) for x, side in pair.operands)
    return out_of_range(c, (left, right), pair.memory)


def _relative_bound(works: Works, plan: Plan, bound: float) -> float:
    """The largest relative error of an entry (B10), its rounding included, in the unit of the plan's target.

    `bound` is the one that the report has in the plan's measure.
    """
    if plan.scheme is None or not is_exact(plan.scheme):
        return inf
    if bound == 0:
        return 0.0
    bits = (
        inf
        if works.pair.empty or plan.undecided_apart
        else works.measure(RelativeError(plan.scheme, plan.inner_scaling))
    )
    return with_rounding(relative_bound(bits, plan.target.exponent), plan.dtype, plan.target.exponent)
