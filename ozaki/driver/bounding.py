"""The bounds of all entries of a result, for its report."""

from __future__ import annotations

from math import inf
from typing import Any

from ozaki.backends import as_computed
from ozaki.call.operands import scalar_if_no_axes
from ozaki.driver.works import Works
from ozaki.records.plan import Plan
from ozaki.schemes import is_exact


def entry_bounds(works: Works, plan: Plan, c: Any) -> Any:
    """Bounds of abs(c - C) of the entries of the computed result c, in the shape that the caller gets (B13)."""
    pair = works.pair
    bounds = pair.backend.empty(pair.sizes.stack, "float64")
    combination = None if pair.sums_exactly else pair.combination
    once = combination is None or combination.rounds_once
    if 0 in pair.sizes.stack:
        pass
    elif pair.sums_exactly or (pair.nothing_to_multiply and combination is None):
        bounds[...] = 0
    elif pair.nothing_to_multiply and once:
        works.going_on(works.of_parts).entry_bounds(None, c, bounds)
    elif is_exact(plan.scheme) and once:
        computed = as_computed(plan, pair.backend)
        works.of(computed).entry_bounds(computed, c, bounds)
    else:
        bounds[...] = inf
    return scalar_if_no_axes(pair.destination.shaped(bounds))
