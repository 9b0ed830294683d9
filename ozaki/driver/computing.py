"""The product, or the expression with it, by a plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ozaki.backends import as_computed
from ozaki.backends.combining import addend_into, axpby
from ozaki.call.pair import Pair
from ozaki.driver.works import Works
from ozaki.records.formats import is_multiprecision
from ozaki.records.memory import too_few_bytes
from ozaki.records.plan import Plan
from ozaki.records.shapes import REAL


def compute(works: Works, plan: Plan) -> Any:
    """Compute the product, or the expression, by a plan: shape `sizes.stack`, in memory of the destination.

    Raises
    ------
    ValueError
        If the limit of workspace leaves too little.
    """
    pair = works.pair
    combination = None if pair.sums_exactly else pair.combination
    c = pair.destination.memory(plan.dtype)
    if 0 in pair.sizes.stack:
        return c
    if pair.sums_exactly:
        pair.memory.hold(pair.returning_bytes(plan.dtype))
    if pair.nothing_to_multiply:
        _without_product(works, plan, c)
        return c
    if plan.scheme is None:
        pair.check_native_limit()
        works.native().native(pair.sizes.own_shape(c))
    else:
        computed = works.computed(plan)
        works.check_describing(as_real=computed.parts == REAL)
        _check_slices_within_limit(pair, plan)
        apart = pair.sizes.parts != REAL and computed.parts == REAL
        entries = pair.destination.entries(c) if apart else c
        works.of(computed).multiply(computed, entries)
        if apart:
            pair.destination.join(entries, c)
    if combination is not None and not plan.rounds_once(combination):
        _combine(works, c)
    return c


def _without_product(works: Works, plan: Plan, c: Any) -> None:
    """Write into c what an expression is whose product is zero: beta times the addend; zeros without either."""
    pair = works.pair
    combination = None if pair.sums_exactly else pair.combination
    if combination is None:
        if not is_multiprecision(plan.dtype):  # else it begins with zeros
            c[...] = 0
    elif pair.half is not None:
        works.of_rows.multiply(plan, c)
    elif isinstance(combination.beta.special, complex):
        addend_into(replace(combination, c=pair.addend), c, pair.memory)
    else:
        entries = pair.destination.entries(c)
        works.of_parts.addend(entries)
        pair.destination.join(entries, c)


def _combine(works: Works, c: Any) -> None:
    """Make the rounded product in c the expression; each operation rounds."""
    pair = works.pair
    if not pair.sizes.is_complex:
        works.of_rows.combine(c)
        return
    assert pair.combination is not None
    alpha, beta = (factor.value for factor in pair.combination.factors)
    axpby(c, alpha, beta, pair.addend, pair.memory)


def _check_slices_within_limit(pair: Pair, plan: Plan) -> None:
    """Refuse a limit that leaves too little for the engine that an operand was prepared for.

    The operand was prepared under the whole limit; less, without what the pair holds, may need another engine.

    Raises
    ------
    ValueError
    """
    limit = plan.workspace_limit
    if limit is None or not pair.prepared:
        return
    held = pair.memory.held
    plan = as_computed(plan, pair.backend)
    if not pair.backend.same_slices(plan, replace(plan, workspace_limit=limit - held)):
        too_few_bytes(limit, limit + held)
