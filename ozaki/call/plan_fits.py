"""Whether a plan that the caller gives is one for these operands, and prepared operands are made for it, here."""

from __future__ import annotations

from itertools import dropwhile

from ozaki.backends import as_computed
from ozaki.call.format_checks import refuse_words
from ozaki.call.pair import Pair
from ozaki.planning.checks import check_engine, check_holds_multiprecision, check_runs
from ozaki.records.plan import Plan, slices_depend_on
from ozaki.records.prepared import Prepared
from ozaki.schemes import Words


def check_plan_fits(plan: Plan, pair: Pair) -> None:
    """Refuse a plan that the operands or the machine do not fit.

    Raises
    ------
    ValueError, NotImplementedError
    """
    sizes = pair.sizes
    if (plan.shape, plan.batch) != (sizes.shape, sizes.batch):
        raise ValueError(
            f"plan: made for batch {plan.batch} and (m, k, n) = {plan.shape}, "
            f"but a and b have batch {sizes.batch} and {sizes.shape}; plan for these"
        )
    if plan.dtype != pair.dtype:
        raise ValueError(f"plan: made for {plan.dtype}, but a and b give {pair.dtype}")
    if plan.parts != sizes.parts:
        made, given = (" and ".join(_KINDS[n] for n in parts) for parts in (plan.parts, sizes.parts))
        raise ValueError(f"plan: made for a and b that are {made}, but they are {given}")
    if pair.multiprecision:
        check_holds_multiprecision(plan)
    if pair.rounds_operands and isinstance(plan.scheme, Words):
        refuse_words(plan.scheme.name)
    for name, operand, side in (("a", pair.left, "left"), ("b", pair.right, "right")):
        if operand.prepared:
            x = operand.value
            if x.side != side:
                raise ValueError(f"{name}: prepared as {x.side} operand; prepare it as {side}")
            if not _serves(x, plan):
                raise ValueError(
                    f"{name}: prepared for another plan; prepare it with this one{_limit(plan)} (ozaki.plan makes it)"
                )
    if plan.inner_scaling:
        _check_scaled(pair)
    if plan.undecided_apart and pair.combination is not None:
        raise ValueError(
            "plan: has undecided entries computed apart, not of an expression; leave the plan to gemm, or give slices="
        )
    check_engine(plan.engine, pair.backend)
    check_runs(plan.scheme, plan.engine, pair.backend.machine())


def _check_scaled(pair: Pair) -> None:
    """Refuse operands that a plan with inner scaling does not fit."""
    if pair.left.prepared and pair.right.prepared:
        raise ValueError(
            "a, b: both prepared with inner scaling, each for itself; prepare one, or plan with inner_scaling=False"
        )
    several = any(x.value.slices.x.shape[0] > 1 for x, _ in pair.operands if x.prepared)
    if pair.sizes.broadcast and (several or not pair.prepared):
        raise ValueError(
            "plan: has inner scaling, which an operand that is broadcast would have anew for each matrix; give both as "
            "many, or plan with inner_scaling=False"
        )


def _limit(plan: Plan) -> str:
    """The limit of workspace of a plan, which may be what tells it from another one."""
    return "" if plan.workspace_limit is None else f", of workspace_limit={plan.workspace_limit}"


_KINDS = {1: "real", 2: "complex"}


def _serves(x: Prepared, plan: Plan) -> bool:
    """Whether the slices of a prepared operand are those that a plan needs."""
    made = x.plan
    if slices_depend_on(made) != slices_depend_on(plan):
        return False
    if not x.backend.same_slices(*(as_computed(each, x.backend) for each in (made, plan))):
        return False
    stack = x.slices.x.shape[0]  # its matrices have the order of the batch that it was prepared for
    return bool(stack == 1 or _stripped(made.batch) == _stripped(plan.batch))


def _stripped(batch: tuple[int, ...]) -> tuple[int, ...]:
    """A batch without its leading axes of size 1, which do not change the order of its matrices."""
    return tuple(dropwhile(lambda size: size == 1, batch))
