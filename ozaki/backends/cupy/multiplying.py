"""The product of two operands whose facts are known, or an expression with it: runs the programs that compute it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

import cupy as cp

from ozaki.backends import results
from ozaki.backends.combining import addend_into, combine_in_pieces
from ozaki.backends.cupy.inputs import OperandView, result_view
from ozaki.backends.cupy.operand_facts import OperandFacts
from ozaki.backends.cupy.products import Expression, combining_program, product_program
from ozaki.backends.cupy.program.arrays import view_of
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.program import Program, Reader
from ozaki.backends.cupy.running import ProgramRuns
from ozaki.backends.cupy.steps.axpby import multiple
from ozaki.backends.cupy.steps.epilogue import Combine
from ozaki.backends.cupy.steps.nonfinite import patch
from ozaki.backends.cupy.steps.product import UNDECIDED
from ozaki.backends.cupy.steps.rows_of_digits import KINDS
from ozaki.backends.cupy.steps.wide import is_wide
from ozaki.backends.cupy.verifying import check_projected, projected
from ozaki.multiprecision.floats import empty as empty_numbers
from ozaki.multiprecision.limbs import LIMB_BITS
from ozaki.multiprecision.numbers import Numbers
from ozaki.records.accuracy import default_accuracy
from ozaki.records.combination import ONE
from ozaki.records.formats import MULTIPRECISION, part_of
from ozaki.records.plan import Plan
from ozaki.records.progress import Progress
from ozaki.records.verification import Verification
from ozaki.schemes import Residues, is_exact
from ozaki.schemes.constants import product_limbs
from ozaki.schemes.row_digits import RowDigits


class Multiplication:
    """Multiplies two operands, and keeps the product that was computed last.

    Attributes
    ----------
    computed : the product, or the expression, that was computed last, if by exact slice products; else None
    launched : the plan, the view of the result and the expression of the last program of a product, or None
    undecided : reads how many entries of that product were computed apart; None if none are
    row_kinds : reads how its rows were multiplied, of `RowDigits`; else None
    """

    def __init__(
        self, runs: ProgramRuns, facts: OperandFacts, progress: Progress, verification: Verification | None
    ) -> None:
        """Compute nothing yet.

        Parameters
        ----------
        runs, facts : run the programs of the product, and find facts about its operands
        progress, verification : as of `backends.Backend.work`
        """
        self._runs, self._facts = runs, facts
        self._progress, self._verification = progress, verification
        self.computed: results.Computed | None = None
        self.launched: tuple[Plan, OperandView, Expression | None] | None = None
        self.undecided: Reader | None = None
        self.row_kinds: Reader | None = None

    def multiply(self, plan: Plan, c: Any) -> None:
        """Compute the product, or the expression, by a plan of slices or words into c (`Work.multiply`)."""
        assert plan.scheme is not None
        runs = self._runs
        if self._verification is not None:
            check_projected(plan.scheme, isinstance(c, Numbers) or runs.inputs().multiprecision)
        runs.execution.finish()
        if plan.inner_scaling:
            self._facts.scale_beside_prepared()
        once = runs.combination is not None and plan.rounds_once(runs.combination)
        of_floats = runs.combination is None or (once and not isinstance(runs.combination.c, Numbers))
        if isinstance(plan.scheme, RowDigits) and not of_floats:
            raise ValueError(
                f"alpha, beta, c: an expression rounded to {plan.dtype} has float64 factors and an addend of floats "
                "on a GPU; use accuracy='fp32'"
            )
        if once:
            runs.read_addend()
        numbers = isinstance(c, Numbers) or (runs.combination is not None and isinstance(runs.combination.c, Numbers))
        if once and is_wide(plan.scheme, numbers or runs.inputs().multiprecision):
            self._multiply_every_bit(plan, c)
            return
        computed = None if once or plan.undecided_apart or plan.engine != "auto" else self.computed
        if computed is not None and (computed.scheme, computed.inner_scaling) == (plan.scheme, plan.inner_scaling):
            results.copy(computed.c, c)
            runs.valid_for_others = False  # no step of a program computes c
            return
        self.release()
        expression, alpha = None, ONE
        if once:
            assert runs.combination is not None
            expression, alpha = Expression(*runs.combination.values, once=True), runs.combination.alpha
        self._multiply_into(plan, c, expression)
        self.computed = None
        if is_exact(plan.scheme) and not plan.undecided_apart:
            self.computed = results.Computed(plan.scheme, c, alpha, inner_scaling=plan.inner_scaling)

    def compute(self, plan: Plan, shape: tuple[int, int, int]) -> None:
        """Compute the product by a plan of slices beside the result: into new memory, until `release`."""
        assert is_exact(plan.scheme)
        runs = self._runs
        nbytes = results.nbytes(shape, runs.dtype)
        runs.memory.hold(nbytes)
        c = results.empty(shape, runs.dtype, cp)
        self._multiply_into(plan, c, None)
        self.computed = results.Computed(plan.scheme, c, nbytes=nbytes, inner_scaling=plan.inner_scaling)

    def _multiply_into(self, plan: Plan, c: Any, expression: Expression | None) -> None:
        """Run the program of a product by slices or words; if it is to be checked, once more where it is wrong."""
        multiply = partial(self._multiply_once, plan, c, expression)
        if self._verification is None or not is_exact(plan.scheme):
            multiply()
        else:
            self._verification.run(partial(projected, self._runs, multiply))

    def _multiply_once(self, plan: Plan, c: Any, expression: Expression | None) -> Program:
        """Run the program of a product by slices or words."""
        runs = self._runs
        inputs, made = runs.inputs(), runs.made
        plan = replace(plan, workspace_limit=made.beside_leading(runs.memory.rest, inputs))
        self.launched = plan, result_view(c), expression
        program = product_program(inputs, runs.device, plan, result_view(c), made, expression)
        runs.made = made.without_products()
        runs.run_into(program, c, self._progress)
        runs.free(made)
        self.undecided, self.row_kinds = program.readers.get(UNDECIDED), program.readers.get(KINDS)
        return program

    def _multiply_every_bit(self, plan: Plan, c: Any) -> None:
        """Compute the expression into c from every bit of the product, which CuPy's own operations add and round."""
        runs = self._runs
        assert runs.combination is not None and isinstance(plan.scheme, Residues)
        self._facts.described()
        self.release()
        bits = LIMB_BITS * product_limbs(plan.scheme)
        nbytes = results.nbytes(c.shape, f"{MULTIPRECISION}{bits}")
        runs.memory.hold(nbytes)
        every_bit = empty_numbers(c.shape, bits, cp)
        self._multiply_into(plan, every_bit, None)
        combine_in_pieces(every_bit, runs.combination, c, runs.memory)
        del every_bit
        runs.memory.free(nbytes)
        runs.valid_for_others = False  # no step of a program computes c
        if not isinstance(c, Numbers):
            self._patch(c)
        self.computed = results.Computed(plan.scheme, c, runs.combination.alpha)

    def _patch(self, c: Any) -> None:
        """Insert what NaN and Inf of the operands give; an addend of numbers is finite: there they stay as they are."""
        runs = self._runs
        assert runs.combination is not None
        inputs = runs.inputs()
        b = Builder(inputs.buffers)
        out = b.given("c", view_of(c))
        alpha, beta = runs.combination.values
        beta = 0.0 if inputs.addend is None else beta
        left, right = self._facts.described()
        patch(b, left, right, Combine(out, alpha, beta, inputs.addend or out))
        runs.run_into(b.program(), c)

    def release(self) -> None:
        """Free a product that was computed beside the result."""
        if self.computed is not None:
            self._runs.memory.free(self.computed.nbytes)
        self.computed = None

    def native(self, c: Any) -> None:
        """Compute the native product of the given arrays into c, its rows contiguous."""
        runs = self._runs
        runs.execution.finish()
        inputs, made = runs.inputs(rows=False), runs.made
        plan = _native_plan(runs.dtype, *runs.operands)
        self.launched = plan, result_view(c), None
        program = product_program(inputs, runs.device, plan, result_view(c), made)
        runs.made = made.without_products()
        runs.run_into(program, c)
        runs.free(made)

    def combine(self, c: Any) -> None:
        """Make the rounded product in c, shape (batch, m, n), the whole expression; after `multiply` or `native`."""
        runs = self._runs
        assert runs.combination is not None and self.launched is not None
        plan, out, _ = self.launched
        expression = Expression(*runs.combination.values, once=False, entries=view_of(c))
        self.launched = plan, out, expression
        runs.run_into(combining_program(runs.inputs(), result_view(c), expression), c)

    def addend(self, c: Any) -> None:
        """Compute what the expression adds to a product of zeros into c, shape (batch, m, n)."""
        runs = self._runs
        runs.read_addend()
        if isinstance(c, Numbers):
            if runs.combination is not None and runs.combination.c is not None:
                addend_into(runs.combination, c, runs.memory)
            return
        if runs.combination is None or runs.addend is None:
            c[...] = 0
            return
        beta = runs.combination.beta.value
        assert not isinstance(beta, complex)
        b = Builder()
        addend, out = b.given("addend", view_of(runs.addend)), b.given("c", view_of(c))
        runs.execution.bind([addend.buffer], [runs.addend])
        multiple(b, beta, addend, out)
        runs.run_into(b.program(), c)


def _native_plan(dtype: str, a: Any, b: Any) -> Plan:
    """A plan that says that the native product runs."""
    shape = a.shape[-2], a.shape[-1], b.shape[-1]
    return Plan(shape, (), dtype, None, default_accuracy(part_of(dtype), shape[1]), inf, inf, True)
