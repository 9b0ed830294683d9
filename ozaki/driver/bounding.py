"""The bounds of all entries of a result, for its report."""

from __future__ import annotations

from math import inf
from typing import Any

from ozaki.backends import as_computed
from ozaki.bounds import native
from ozaki.call.operands import scalar_if_no_axes
from ozaki.driver.works import Works
from ozaki.planning.facts import NativeInRange
from ozaki.records.plan import Plan
from ozaki.schemes import is_exact


def entry_bounds(works: Works, plan: Plan, c: Any) -> Any:
    """Bounds of abs(c - C) of the entries of the computed result c, in the shape that the caller gets (B13).

    C is the exact product or expression; they are inf where nothing is proven.
    """
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
    elif plan.native and combination is None and native_bound(works) < inf:
        works.going_on(works.of_rows).entry_bounds(plan, c, bounds)
    else:
        bounds[...] = inf
    return scalar_if_no_axes(pair.destination.shaped(bounds))


def native_bound(works: Works) -> float:
    """The componentwise bound of the native product for these operands, roundings included; inf if it has none."""
    pair = works.pair
    if pair.native_obstacle or not works.measure(NativeInRange()):
        return inf
    return native.bound(max(pair.sizes.length, 1), pair.dtype, pair.sizes.spread)
