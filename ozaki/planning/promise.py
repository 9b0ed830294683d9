"""The bound of a plan that the caller gives, for the operands that it is used with."""

from __future__ import annotations

from math import inf

from ozaki._formats import is_multiprecision, precision_of
from ozaki._plan import Plan
from ozaki.bounds import native
from ozaki.bounds.rounding import suffices, with_rounding
from ozaki.planning.facts import Facts, NativeInRange, Spans, or_need
from ozaki.planning.proof import exact_bits, proven_bound


@or_need
def proven(plan: Plan, native_obstacle: str | None, facts: Facts, wanted: float = inf) -> tuple[float, bool]:
    """The bound that holds for operands with these facts, and whether the plan's target is met; or the missing fact.

    Parameters
    ----------
    plan : a plan that is not a priori
    native_obstacle : why the native product is not an IEEE product here; None if it is
    wanted : a bound that the result should be no larger than, if that can be proven; by default the target is enough

    Returns
    -------
    bound : in the plan's measure, the rounding to the output included; inf where nothing is proven
    met : whether the bound meets the plan's target
    """
    k, dtype, target = plan.shape[1], plan.dtype, plan.target
    if plan.scheme is None:
        in_range = native_obstacle is None and facts[NativeInRange()]
        bound = native.bound(max(k, 1), dtype) if in_range else inf
        return bound, suffices(bound, target.tolerance, dtype)
    bound = proven_bound(plan.scheme, target, k, dtype, facts, wanted)
    if target.exact and is_multiprecision(dtype):
        met = bound == 0 and exact_bits(facts[Spans()], k) <= precision_of(dtype)
        return (0.0, True) if met else (with_rounding(bound, dtype), False)
    return with_rounding(bound, dtype, target.exponent), bound <= target.tolerance
