"""The bound of a plan that the caller gives, for the operands that it is used with."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from ozaki.bounds import native
from ozaki.bounds.rounding import suffices, with_rounding
from ozaki.planning.facts import Facts, NativeInRange, Spans, or_need
from ozaki.planning.proof import exact_bits, proven_bound
from ozaki.records.formats import is_multiprecision, precision_of
from ozaki.records.plan import Plan
from ozaki.records.shapes import length_of, spread_of


class Proven(NamedTuple):
    """What holds of a product by a plan.

    Attributes
    ----------
    unrounded : bound in the plan's measure, before the rounding to the output; inf where nothing is proven
    bound : the same with that rounding
    met : whether the plan's target is met
    """

    unrounded: float
    bound: float
    met: bool


@or_need
def proven(plan: Plan, native_obstacle: str | None, facts: Facts, wanted: float = inf) -> Proven:
    """What holds for operands with these facts; or the missing fact.

    Parameters
    ----------
    plan : a plan that is not a priori
    native_obstacle : why the native product is not an IEEE product here; None if it is
    wanted : a bound before the rounding that the result should be no larger than, if that can be proven; by default the
        target is enough
    """
    k, spread, dtype, target = length_of(plan.shape[1], plan.parts), spread_of(plan.parts), plan.dtype, plan.target
    if plan.scheme is None:
        in_range = native_obstacle is None and facts[NativeInRange()]
        bound = native.bound(max(k, 1), dtype, spread) if in_range else inf
        return Proven(bound, bound, suffices(bound, target.tolerance, dtype))
    if plan.undecided_apart:
        return Proven(0.0, with_rounding(0.0, dtype, target.exponent), met=True)
    unrounded = proven_bound(plan.scheme, target, k, facts, wanted, plan.parts, plan.inner_scaling)
    bound = with_rounding(unrounded, dtype, target.exponent)
    if target.exact and is_multiprecision(dtype):
        met = unrounded == 0 and exact_bits(facts[Spans(plan.inner_scaling)], k) <= precision_of(dtype)
        return Proven(unrounded, 0.0 if met else bound, met)
    return Proven(unrounded, bound, unrounded <= target.tolerance)
