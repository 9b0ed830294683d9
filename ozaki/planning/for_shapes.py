"""Plans that need no facts: for shapes alone, of a scheme whose count is given, and of the native product."""

from __future__ import annotations

from dataclasses import replace

from ozaki.bounds import native
from ozaki.bounds.of_scheme import a_priori
from ozaki.bounds.rounding import UP, with_rounding
from ozaki.caches import cached
from ozaki.planning.asking import named_scheme
from ozaki.planning.candidates import names_of
from ozaki.planning.checks import check_native, check_options, check_proven
from ozaki.planning.question import target_before_rounding
from ozaki.planning.search import choose_a_priori
from ozaki.records.accuracy import Accuracy, default_accuracy
from ozaki.records.formats import SIGNIFICAND_BITS, is_complex, is_multiprecision, result_format
from ozaki.records.options import Options
from ozaki.records.plan import Plan, plan_of
from ozaki.records.shapes import Shapes, Side, broadcast
from ozaki.schemes import Scheme, Words

NATIVE_ASKED_FOR = "native product: asked for by scheme='native'"


def plan_for_shapes(sizes: Shapes, asked: str, options: Options) -> Plan:
    """A plan without data: its bound is in the row-column measure, for all operands of these shapes.

    Parameters
    ----------
    asked : the format that the caller asks for, as `format_named` returns it

    Raises
    ------
    ValueError
        If the data decide what is asked for.
    """
    check_options(options, None)
    if options.inner_scaling:
        raise ValueError(
            "inner_scaling: True depends on the data, so a plan for shapes alone has none; plan from operands"
        )
    k = sizes.shape[1]
    target = options.target(k)
    if asked == "int64" or (target is not None and target.exact):
        what = "dtype: an int64 product" if asked == "int64" else "accuracy: an exact product"
        raise ValueError(f"{what} takes slices for all bits of its operands, so it depends on the data; plan from them")
    dtype = result_format(asked, (asked,) if is_complex(asked) else tuple(SIGNIFICAND_BITS), target)
    multiprecision, complex_rows = is_multiprecision(dtype), is_complex(dtype)
    if complex_rows:
        sizes = replace(sizes, parts=(2, 2))
    length = sizes.length
    asked_for, target = target, None if target is None else target_before_rounding(target, dtype)
    if (scheme := named_scheme(options, dtype, length, None, complex_rows, multiprecision)) is not None:
        return plan_for_any(sizes, dtype, scheme, target, options, why_named(scheme))
    assert isinstance(options.scheme, str)
    if options.scheme == "native":
        bound = native.bound(max(length, 1), dtype, sizes.spread)
        check_native(dtype, target, options, bound)
        return native_plan(sizes, dtype, target, bound, NATIVE_ASKED_FOR, options)
    if asked_for is not None and asked_for.measure in ("componentwise", "relative"):
        exponent = f", exponent={asked_for.exponent}" if asked_for.exponent else ""
        raise ValueError(
            f"accuracy: a {asked_for.measure} target (shorthands are componentwise) depends on the data; plan from the "
            f"operands, or ask for Accuracy('row-column', {asked_for.tolerance:.3g}{exponent}) or a number of slices"
        )
    target = target or usual_target(dtype, k)
    # The real product of parts has a bound that is smaller by the spread (B11).
    real_target = replace(target, tolerance=target.tolerance / sizes.spread / UP) if sizes.is_complex else target
    names = names_of(options.scheme, length, multiprecision, complex_rows)
    if options.verify and options.scheme == "auto":
        names = tuple(name for name in names if name != "digits")
    choice = choose_a_priori(real_target, max(length, 1), names)
    return plan_for_any(sizes, dtype, choice.scheme, target, options, "")


def why_named(scheme: Scheme | Words) -> str:
    """The reason that a plan states for the count of a scheme that the caller names."""
    return "count given by slices" if scheme.exact else ""


@cached(1024)
def plan_for_any(
    sizes: Shapes, dtype: str, scheme: Scheme | Words, target: Accuracy | None, options: Options, why: str
) -> Plan:
    """The plan of a scheme for any operands of these shapes, its bound in the row-column measure.

    Plans are cached, because making one takes as long as a small product.

    Raises
    ------
    ValueError
        If the scheme does not prove the target for all operands.
    """
    goal = target or usual_target(dtype, max(sizes.shape[1], 1))
    bound = a_priori(scheme, max(sizes.length, 1), goal.exponent) * sizes.spread
    check_proven(scheme, bound, target, "row-column", "any operands")
    proven = with_rounding(bound, dtype, goal.exponent)
    return plan_of(sizes, dtype, scheme, goal, proven, bound, options, why, a_priori=True)


def usual_target(dtype: str, k: int) -> Accuracy:
    """The target where no accuracy is named, in the row-column measure, which bounds for any operands are in."""
    return replace(default_accuracy(dtype, k), measure="row-column")


def native_plan(
    sizes: Shapes,
    dtype: str,
    target: Accuracy | None,
    bound: float,
    why: str,
    options: Options,
    a_priori: bool = True,
) -> Plan:
    """The plan of the native product: its bound is componentwise, and so holds in every measure.

    Options that name an engine have ruled it out before.
    """
    target = target or default_accuracy(dtype, sizes.shape[1])
    return plan_of(sizes, dtype, None, target, bound, bound, options, why, a_priori=a_priori)


def shapes_of_plan(x: tuple[int, ...], side: Side, plan: Plan) -> Shapes:
    """The shapes that a plan was made for; refuses an operand whose shape x does not fit that side."""
    m, k, n = plan.shape
    matrix = (m, k) if side == "left" else (k, n)
    if len(x) < 2 or x[-2:] != matrix or not _broadcasts(x[:-2], plan.batch):
        expected = f"{(*plan.batch, *matrix)}" + (f" or {matrix}" if plan.batch else "")
        raise ValueError(f"x: shape {x} does not fit the {side} side of the plan; expected {expected}")
    return Shapes(plan.batch, plan.shape, (*plan.batch, m, n), parts=plan.parts)


def _broadcasts(batch: tuple[int, ...], to: tuple[int, ...]) -> bool:
    try:
        return broadcast(batch, to) == to
    except ValueError:
        return False
