"""The program of a product, or of alpha A B + beta C, by a plan: what `ozaki plan --steps` lists is what runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple

from ozaki.backends.cupy.descriptions import Descriptions
from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.facts import Asked, engine_for, facts_program
from ozaki.backends.cupy.inputs import Inputs, OperandView, Views, contiguous_numbers, contiguous_view
from ozaki.backends.cupy.made import EarlySlices, Made
from ozaki.backends.cupy.program.arrays import DTYPES, Array, View
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.program import Program
from ozaki.backends.cupy.steps import product, rows_of_digits, stacks
from ozaki.backends.cupy.steps.axpby import axpby
from ozaki.backends.cupy.steps.describing import describe
from ozaki.backends.cupy.steps.engines.engine import Engine
from ozaki.backends.cupy.steps.engines.row_digits import engine_of_columns, row_engine
from ozaki.backends.cupy.steps.epilogue import Combine, Round
from ozaki.backends.cupy.steps.native import native
from ozaki.backends.cupy.steps.numbers import NumbersArray, describe_numbers
from ozaki.backends.cupy.steps.operands import Slices
from ozaki.backends.cupy.steps.undecided import list_bytes
from ozaki.planning.facts import Need
from ozaki.records.formats import is_multiprecision, precision_of, stored_as
from ozaki.records.plan import Plan
from ozaki.records.shapes import SIDES, Side
from ozaki.schemes.row_digits import RowDigits


class Expression(NamedTuple):
    """Alpha times the product plus beta times the addend of the inputs; without one, alpha times the product.

    Attributes
    ----------
    alpha, beta : finite
    once : whether the kernels that recombine round the whole expression; else the rounded product becomes it
    entries : with `once` False, the view of the result as (batch, m, n), its columns neighbours in memory
    """

    alpha: float
    beta: float
    once: bool
    entries: View | None = None


def product_program(
    inputs: Inputs, device: Device, plan: Plan, out: OperandView, made: Made, expression: Expression | None = None,
    reports: bool = True,
) -> Program:  # fmt: skip
    """The program of a product by a plan.

    Parameters
    ----------
    out : the view of the result, the last of the given arrays: shape (batch, m, n), contiguous; of a native product
        (*batch, m, n), its rows contiguous
    made : what programs of facts have made; early slices are used if they are of the plan's scheme, and all is freed
    expression : what is computed in place of the product, or None
    reports : whether facts for reports alone are found, too
    """
    b = Builder(inputs.buffers)
    if plan.undecided_apart and plan.workspace_limit is not None:
        listed = list_bytes((prod(plan.batch), plan.shape[0], plan.shape[2]))
        plan = replace(plan, workspace_limit=max(plan.workspace_limit - listed, 0))
    made = made.without_level(b)
    result = out.array("c", b.given)
    if isinstance(plan.scheme, RowDigits):
        _multiply_row_digits(b, device, plan, inputs, result, expression, reports)
    elif plan.scheme is None:
        made.without_slices(b)
        assert isinstance(result, Array)
        native(b, inputs.given["left"], inputs.given["right"], plan.dtype, result)
    elif as_stack(device, plan, inputs, expression):
        made.without_slices(b)
        assert isinstance(result, Array)
        left, right = (inputs.rows_given[side] for side in SIDES)
        stacks.multiply(b, device, plan, left, right, result)
    else:
        _multiply_slices(b, device, plan, inputs, made, result, expression)
    if expression is not None and not expression.once:
        _combine(b, result, expression, inputs.addend)
    return b.program()


def _multiply_row_digits(
    b: Builder, device: Device, plan: Plan, inputs: Inputs, result: Array | NumbersArray,
    expression: Expression | None, reports: bool,
) -> None:  # fmt: skip
    """Add the steps of a product of 16-bit floats."""
    assert isinstance(result, Array)
    once = expression is not None and expression.once
    weighed = expression is not None and once and (expression.alpha, expression.beta) != (1.0, 1.0)
    rows = result.shape[1]
    engine = row_engine(device, plan, rows, weighed or (once and inputs.addend is None))
    columns: Slices | Array
    if (prepared := inputs.prepared.get("right")) is None:
        columns = inputs.rows_given["right"]
    else:  # which may be prepared for an engine that rounds nothing but products
        same = engine_of_columns(engine) == engine_of_columns(row_engine(device, plan, rows))
        columns = prepared if same else prepared.described.x
    epilogue: Round | Combine = Round(result)
    if expression is not None and once:
        beta = 0.0 if inputs.addend is None else expression.beta
        unread = replace(result, dtype=DTYPES["f"])
        epilogue = Combine(result, expression.alpha, beta, inputs.addend or unread)
    rows_of_digits.multiply(b, device, engine, plan, inputs.rows_given["left"], columns, epilogue, reports)


def _multiply_slices(
    b: Builder, device: Device, plan: Plan, inputs: Inputs, made: Made, result: Array | NumbersArray,
    expression: Expression | None,
) -> None:  # fmt: skip
    """Add the steps of a product of slices or words, of which some may be made already, and free these."""
    once = expression is not None and expression.once
    left: product.Given
    right: product.Given
    every_bit = isinstance(result, NumbersArray)
    engine = engine_for(device, plan, inputs, once, once and inputs.addend is not None, every_bit)
    if made.early is not None and _serves(made.early, plan, engine):
        _, _, left, right = made.early
    else:
        made = made.without_slices(b)
        # Operands may be prepared for an engine that rounds nothing but products.
        prepared = inputs.prepared if inputs.prepared and engine == engine_for(device, plan, inputs) else {}
        if plan.inner_scaling:
            rows = Descriptions(b, inputs, made.scaled or Made(), inner_scaling=True).both()
            left, right = (prepared.get(side) or of for side, of in zip(SIDES, rows, strict=True))
        else:
            left, right = (prepared.get(side) or _operand(b, inputs, made, side) for side in SIDES)
    epilogue: Round | Combine = Round(result)
    if expression is not None and once:
        assert isinstance(result, Array)
        beta = 0.0 if inputs.addend is None else expression.beta
        epilogue = Combine(result, expression.alpha, beta, inputs.addend or result)
    product.multiply(b, device, engine, plan, left, right, epilogue, inputs.seed)
    made.without_slices(b)


def as_stack(device: Device, plan: Plan, inputs: Inputs, expression: Expression | None = None) -> bool:
    """Whether one kernel computes the whole product: of a stack of small matrices, which nothing is added to.

    Operands are floats as the caller gave them, and the product is not projected.
    """
    plain = len(inputs.given) == len(SIDES) and inputs.seed is None and (expression is None or not expression.once)
    return plain and stacks.multiplies(device, plan)


def _serves(early: EarlySlices, plan: Plan, engine: Engine) -> bool:
    """Whether slices that were made early are those of a plan, and lie as an engine reads them.

    They were made for a product without an addend, which may have another engine.
    """
    if early.scheme != plan.scheme or plan.inner_scaling:
        return False
    sides = zip(SIDES, (early.left, early.right), strict=True)
    return all(engine.layout(plan.scheme, side, *of.described.x.shape) == of.layout for side, of in sides)


def combining_program(inputs: Inputs, out: OperandView, expression: Expression) -> Program:
    """The program that makes a rounded product, which is in the result, the whole expression."""
    b = Builder(inputs.buffers)
    _combine(b, out.array("c", b.given), expression, inputs.addend)
    return b.program()


def _combine(b: Builder, result: Array | NumbersArray, expression: Expression, addend: Array | None) -> None:
    assert isinstance(result, Array) and expression.entries is not None
    entries = Array(result.buffer, result.offset, *expression.entries)
    axpby(b, expression.alpha, entries, expression.beta, addend)


def _operand(b: Builder, inputs: Inputs, made: Made, side: Side) -> product.Given:
    """An operand as far as it is described: its rows alone where its description is not needed before it is split."""
    known = made.described
    if side in known:
        return known[side]
    if side in inputs.numbers:
        return describe_numbers(b, inputs.numbers[side])
    rows = inputs.rows_given[side]
    return describe(b, rows) if known or inputs.multiprecision else rows


@dataclass(frozen=True)
class Repetition:
    """All that the program of a repeated call depends on: plain data, from which it is made anew.

    Attributes
    ----------
    views, device : the operands, and where they lie
    plan : of the product
    out : the view of the result
    facts : the facts that the call checks, in the order in which the first call asked for them; and what goes with them
    expression : as of `product_program`
    """

    views: Views
    device: Device
    plan: Plan
    out: OperandView
    facts: Asked
    expression: Expression | None = None

    def program(self) -> Program:
        """The program that finds the facts, and beside them computes the product, in one piece of memory."""
        inputs = Inputs.of(self.views)
        made = Made.of(inputs)
        if not self.facts.needs:
            return product_program(inputs, self.device, self.plan, self.out, made, self.expression, reports=False)
        facts, made = facts_program(inputs, self.device, self.facts, made)
        return facts.then(product_program(inputs, self.device, self.plan, self.out, made, self.expression))

    def of_facts(self, needs: Sequence[Need]) -> Repetition:
        """The same for some of the facts."""
        return replace(self, facts=self.facts._replace(needs=[need for need in self.facts.needs if need in needs]))


def program_of(plan: Plan, device: Device) -> Program:
    """The program of a plan, for C-contiguous operands of its dtype, both with the whole batch.

    It has no steps for the facts that the plan rests on. `device` may be the record of one that is not present.
    """
    (m, k, n), batch = plan.shape, prod(plan.batch)

    def view(*shape: int) -> OperandView:
        if is_multiprecision(plan.dtype):
            return contiguous_numbers(precision_of(plan.dtype), shape)
        return contiguous_view(stored_as(plan.dtype), shape)

    left, right, out = view(batch, m, k), view(batch, k, n), view(batch, m, n)
    columns = tuple(of._replace(shape=_swapped(of.shape), steps=_swapped(of.steps)) for of in right.arrays)
    inputs = Inputs.of(Views(left._replace(rows=left.arrays), right._replace(rows=columns)))
    if plan.scheme is not None and 0 in (batch, m, k, n):
        return Builder(inputs.buffers).program()
    return product_program(inputs, device, plan, out, Made.of(inputs))


def _swapped(x: tuple[int, ...]) -> tuple[int, ...]:
    return *x[:-2], x[-1], x[-2]
