"""Plans without products, and operands that are split for them once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Unpack

import numpy as np

from ozaki.backends import as_computed, backend_of
from ozaki.call.complex_parts import real_rows
from ozaki.call.format_checks import check_finite
from ozaki.call.halves import check_prepared_half, half_asked
from ozaki.call.integers import as_floats, as_numbers
from ozaki.call.operands import are_integers, as_array, dtype_of, holds_complex, left_rows, right_rows
from ozaki.call.pair import Pair
from ozaki.driver.settling import planned, question, settled
from ozaki.driver.watching import Watched, watching
from ozaki.driver.works import Works
from ozaki.interchange.calls import any_arrays
from ozaki.interchange.halves import HalfArray, as_bits, plain_halves, widened
from ozaki.multiprecision.numbers import Numbers
from ozaki.planning.checks import (
    check_engine,
    check_flag,
    check_holds_multiprecision,
    check_is_plan,
    check_limit,
    check_runs,
)
from ozaki.planning.for_shapes import plan_for_shapes, shapes_of_plan
from ozaki.planning.halves import plan_for_halves
from ozaki.planning.weigh import explained
from ozaki.process.environment import default_environment
from ozaki.records.formats import HALVES, format_named, is_multiprecision, part_of, precision_of
from ozaki.records.memory import Memory
from ozaki.records.options import Options, ProductOptions, takes
from ozaki.records.plan import Chosen, Plan
from ozaki.records.prepared import Prepared
from ozaki.records.shapes import Side, shape_of, shapes


@any_arrays("a", "b", halves=True)
@default_environment
@np.errstate(all="ignore")
@takes(ProductOptions)
def plan(a: Any, b: Any, *, strict: bool = True, **options: Unpack[ProductOptions]) -> Plan:
    """Choose scheme and slices for a product, without computing it.

    Parameters
    ----------
    a, b : arrays, or two shapes
        With arrays the data decides, and the bound holds for these operands. With shapes (tuples of int) the plan is
        made a priori: its bound is in the row-column measure and holds for all operands of these shapes.
    **options
        As for `matmul`; but with shapes `dtype` is "float32", "float64", "complex64" or "complex128", that of operands
        and result, or "mp" (or "mp106"), that of the result of real operands. With "bfloat16" or "float16", or
        accuracy="bf16" or "fp16", the plan is of two operands of that format, and its bound componentwise.
    strict : bool
        For a plan made from arrays for an accuracy. True: each product by the plan is first proven for its own
        operands, and refused if it misses the accuracy. False saves that proof; then a product misses it silently,
        unless a report is asked for, which comes with a warning.

    Returns
    -------
    Plan

    Raises
    ------
    ValueError, TypeError
        For an argument that cannot be used, which the message names; also for a componentwise target with shapes alone:
        such an error depends on the exponents inside rows and columns.
    NotImplementedError
        For words of CuPy arrays, as in `matmul`.

    Examples
    --------
    >>> import ozaki
    >>> print(ozaki.plan((100, 100), (100, 100), dtype="float64", accuracy=ozaki.Accuracy("row-column", 1e-16)))
    (100 x 100) (100 x 100), float64: 15 residues, 15 products
    row-column error <= 1.7e-16 (2^-54 before the rounding), for any operands
    """
    asked = Options.of("plan", options)
    check_flag("strict", strict)
    if isinstance(a, tuple) and isinstance(b, tuple):
        sizes, (half, _) = shapes(shape_of("a", a), shape_of("b", b)), half_asked(asked)
        if half is None and asked.dtype is None:
            raise ValueError("dtype: missing; a plan from shapes needs that of the operands, as 'float64', or 'mp'")
        if half is not None:
            made = plan_for_halves(sizes, half, asked)
        else:
            made = plan_for_shapes(sizes, str(format_named(asked.dtype)), asked)
        if watching():
            Watched("plan", None, None).chosen(Chosen(made, made.bound))
        return made
    for name, x, other in (("a", a, b), ("b", b, a)):
        if isinstance(x, tuple) and not isinstance(other, tuple):
            raise TypeError(f"{name}: a tuple, as shapes are, beside an array; expected two shapes, or two arrays")
    pair = Pair(plain_halves(a), plain_halves(b), account(asked, None), asked)
    if pair.half is not None:
        made = plan_for_halves(pair.sizes, pair.half, pair.choices)
        if watching():
            Watched("plan", pair.left, pair.right).chosen(Chosen(made, made.bound))
        return made
    asked_for = question(pair, for_operands=True)
    works = Works(pair)
    try:
        made, facts, *_ = planned(works, asked_for)
    except BaseException:
        works.release()
        raise
    if watching():
        Watched("plan", pair.left, pair.right).chosen(Chosen(made, made.bound), asked_for, facts)
    made = explained(replace(asked_for, dtype=made.dtype), facts, made)
    promised = asked.accuracy is not None or (asked.leave_slices and not made.native)
    return replace(made, strict=strict) if promised and not made.a_priori else made


def planned_for(a: Any, b: Any, options: Options, given: Plan | None) -> Plan:
    """The plan of two arrays or shapes, or the given one with the bound that is proven of it for two arrays."""
    if given is None:
        return plan(a, b, **options._asdict())
    with np.errstate(all="ignore"):
        works = Works(Pair(a, b, Memory(None), Options(dtype=given.dtype), given), given)
        try:
            answer = settled(works, given, report=True).proven
        finally:
            works.release()
    return given if answer is None else replace(given, bound=answer.bound, unrounded_bound=answer.unrounded)


def account(options: Options, plan: Plan | None) -> Memory:
    """The account of a call's workspace, of which the given plan has the limit, if there is one."""
    limit = options.workspace_limit if plan is None else plan.workspace_limit
    check_limit(limit)
    return Memory(limit)


@any_arrays("x", halves=True)
@default_environment
@np.errstate(all="ignore")
def prepare(x: Any, side: Side, plan: Plan) -> Prepared:
    """Split one operand once, for many products with the same plan.

    Parameters
    ----------
    x : array of the shape that the plan has for this side; its batch may broadcast to the plan's
    side : {"left", "right"}
        "right" for products that are rounded to 16 bits: those take it beside any number of rows, without `plan`.
    plan : Plan
        One with slices or words, not the native product.

    Returns
    -------
    Prepared
        It refers to `x`, which must not change while it is in use.

    Raises
    ------
    ValueError, TypeError
        For an argument that cannot be used, which the message names; before anything is split.
    NotImplementedError
        For words of CuPy arrays, as in `matmul`.

    Examples
    --------
    >>> import numpy as np, ozaki
    >>> plan = ozaki.plan((2, 2), (2, 2), dtype="float64", scheme="residues", slices=14)
    >>> left = ozaki.prepare(np.eye(2), "left", plan)
    >>> [float(ozaki.matmul(left, x * np.eye(2), plan=plan)[0, 0]) for x in (1.5, 2.5)]
    [1.5, 2.5]
    """
    if not isinstance(side, str):
        raise TypeError(f"side: {type(side).__name__}; expected 'left' or 'right'")
    if side not in ("left", "right"):
        raise ValueError(f"side: {side!r}; expected 'left' or 'right'")
    check_is_plan(plan)
    if plan.scheme is None:
        raise ValueError("plan: the native product has no slices to prepare; plan with reproducible=True")
    if isinstance(x, Prepared):
        raise TypeError("x: prepared already; expected an array")
    x = plain_halves(x)
    backend = backend_of(("x", x))
    half = plan.dtype if plan.dtype in HALVES else None
    if half is not None:
        check_prepared_half(x, side, half)
    bits = half is not None and backend.reads_halves
    x = as_bits(x) if bits else widened(x) if isinstance(x, HalfArray) else as_array("x", x, backend)
    if are_integers(x) and not bits:
        x = as_numbers(x) if is_multiprecision(plan.dtype) else as_floats("x", x, "plan with dtype='mp'")
    dtype = half or dtype_of("x", x)
    check_engine(plan.engine, backend)
    check_runs(plan.scheme, plan.engine, backend.machine())
    if isinstance(x, Numbers) or is_multiprecision(plan.dtype):
        check_holds_multiprecision(plan)
    if not isinstance(x, Numbers) and is_multiprecision(plan.dtype):
        check_finite("x", x)
    if holds_complex(x) != (plan.parts[side == "right"] == 2):
        made = "real" if holds_complex(x) else "complex"
        raise TypeError(f"x: dtype {dtype}, but the plan is made for a {made} {side} operand")
    if not is_multiprecision(dtype) and precision_of(dtype) > precision_of(plan.dtype):
        raise TypeError(f"x: dtype {dtype}, but the plan is made for {plan.dtype}; expected {part_of(plan.dtype)}")
    sizes = shapes_of_plan(x.shape, side, plan)
    rows = (left_rows if side == "left" else right_rows)(x, sizes, backend.broadcast_to)
    computed = as_computed(plan, backend)
    if computed.parts != plan.parts:
        rows = real_rows(rows, side, plan.parts)
    return Prepared(side, plan, x.shape, dtype, backend.split(rows, side, computed), backend)
