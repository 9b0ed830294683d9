"""One product on the device: its facts and itself, each by a program."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any

import cupy as cp
import numpy as np
import numpy.typing as npt

from ozaki.backends import results
from ozaki.backends.combining import addend_into, combine_in_pieces
from ozaki.backends.cupy import devices, evidence
from ozaki.backends.cupy.facts import Asked, Made, engine_for, facts_program, needs_descriptions
from ozaki.backends.cupy.inputs import Inputs, OperandView, Seed, Views, arrays_of, planes_of, result_view, same_view
from ozaki.backends.cupy.prepared import PreparedSlices, alike
from ozaki.backends.cupy.products import Expression, Repetition, combining_program, product_program
from ozaki.backends.cupy.program.arrays import view_of
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.program import Evidence, Program, Reader
from ozaki.backends.cupy.program.run import Execution
from ozaki.backends.cupy.steps import product
from ozaki.backends.cupy.steps.axpby import multiple
from ozaki.backends.cupy.steps.bounds import entry_bounds, terms_of, terms_of_zeros, terms_uploaded
from ozaki.backends.cupy.steps.engines.choice import engine_of
from ozaki.backends.cupy.steps.engines.fused_residues import SymmetricResidues
from ozaki.backends.cupy.steps.epilogue import Combine, Round
from ozaki.backends.cupy.steps.inner import Factors, factors_beside
from ozaki.backends.cupy.steps.native import native_obstacle
from ozaki.backends.cupy.steps.nonfinite import patch
from ozaki.backends.cupy.steps.numbers import leading_bytes
from ozaki.backends.cupy.steps.operands import Described
from ozaki.backends.cupy.steps.projection import VERIFIED
from ozaki.backends.cupy.steps.relative import worst_quotient
from ozaki.backends.cupy.steps.wide import is_wide
from ozaki.backends.cupy.steps.words import count_underflows
from ozaki.bounds.description import NO_SPAN, Description
from ozaki.bounds.entries import native_terms
from ozaki.bounds.exact import ErrorTerms
from ozaki.bounds.relative import image_errors
from ozaki.multiprecision.floats import empty as empty_numbers
from ozaki.multiprecision.limbs import LIMB_BITS
from ozaki.multiprecision.numbers import Numbers
from ozaki.planning.facts import CutBound, Need, RelativeError, Spans, WorstRatio
from ozaki.records.accuracy import default_accuracy
from ozaki.records.combination import ONE, Combination
from ozaki.records.formats import COMPLEX, MULTIPRECISION, part_of, precision_of
from ozaki.records.memory import Memory, too_few_bytes
from ozaki.records.plan import Plan
from ozaki.records.progress import SILENT, Progress
from ozaki.records.shapes import SIDES, Side
from ozaki.records.verification import Projected, Verification
from ozaki.schemes import ComplexSlices, Residues, Scheme, Words, is_exact
from ozaki.schemes.constants import MOST_AT_ONCE, product_limbs
from ozaki.schemes.inner import out_of_reach

_MOST_STEPS = 4096
"""The most steps of a program that is kept. With more, as for large batches that are multiplied one by one, the host
starts steps faster than the device completes them, so that repeating the program would gain nothing."""


@dataclass
class _Asked:
    """What a call has asked for so far, from which its repetition is made.

    Attributes
    ----------
    needs : the facts, in order
    likely : whether operands were split for a likely plan
    sampled : words of which elements lose parts
    limit : of workspace, for the first of the facts
    steps : of all programs that ran
    valid_for_others : whether no program has read copies, or what the host computed from these operands
    product : the plan, the view of the result and the expression
    """

    needs: dict[Need, None]
    sampled: set[Words]
    likely: bool = False
    limit: int | None = None
    steps: int = 0
    valid_for_others: bool = True
    product: tuple[Plan, OperandView, Expression | None] | None = None


class Work:
    """Finds facts about two operands and multiplies them, on the current device and CuPy's current stream.

    Attributes
    ----------
    memory : as given
    """

    def __init__(
        self,
        a: Any,
        b: Any,
        rows: Callable[[Side], Any],
        dtype: str,
        memory: Memory,
        combination: Combination | None = None,
        addend: Callable[[], Any] | None = None,
        adjoint: bool = False,
        progress: Progress = SILENT,
        verification: Verification | None = None,
    ) -> None:
        """See what the operands are; nothing is computed.

        Parameters
        ----------
        a, b : matrices or stacks of them, as the caller gave them, or the slices of prepared operands
        rows : gives an operand as a stack of rows, shape (batch, rows, k)
        dtype : dtype of the result
        memory : the account of what the product holds
        combination : the expression that is computed in place of the product, or None
        addend : returns its addend, a stack
        adjoint : whether B is the conjugate transpose of A
        progress : is told of each launch of the product
        verification : the account of checks of the product, or None

        Raises
        ------
        ValueError
            If the leading bits of multiprecision operands take as much.
        """
        self.memory, self._device = memory, devices.current()
        self._operands, self._rows_of = (a, b), rows
        self._dtype, self._adjoint, self._progress = dtype, adjoint, progress
        self._combination, self._given_addend = combination, addend
        self._verification = verification
        self._execution = Execution(memory)
        self._named: Inputs | None = None
        self._made = Made()
        self._readers: dict[Need, Reader] = {}
        self._found: dict[Need, Any] = {}
        self._asked = _Asked({}, set())
        self._product: results.Computed | None = None
        if dtype not in COMPLEX:  # of complex entries the addend may be a copy, which not every product reads
            self._read_addend()
        sizes = (int(rows(side).size) for side, x in zip(SIDES, (a, b), strict=True) if isinstance(x, Numbers))
        leading = sum(map(leading_bytes, sizes))
        if (rest := memory.rest) is not None and leading and leading >= rest:
            too_few_bytes(rest, leading)

    def _read_addend(self) -> None:
        """Take the addend, which may be copied for that."""
        if self._given_addend is not None:
            assert self._combination is not None
            c, self._given_addend = self._given_addend(), None
            self._combination = replace(self._combination, c=c)

    @property
    def _addend(self) -> Any:
        """The addend, if programs read it: of floats, and taken."""
        c = None if self._combination is None or self._given_addend is not None else self._combination.c
        return None if isinstance(c, Numbers) else c

    # The operands in programs -----------------------------------------------------------------------------------------

    def _inputs(self, rows: bool = True) -> Inputs:
        """Both operands and the addend as programs of this product name them; `rows`: as rows, too.

        They are named anew where more is asked for than before; what programs have made stays valid.
        """
        named = self._named
        if named is not None:
            has_rows = len(named.rows_given) == len(named.given)
            if (has_rows or not rows) and (named.views.addend is None) == (self._addend is None):
                return named
        arrays: list[Any] = []
        left, right = (self._view(side, x, rows, arrays) for side, x in zip(SIDES, self._operands, strict=True))
        itself = rows and left.layout is None and right.layout is None and not (left.bits or right.bits)
        itself = itself and same_view(*map(self._rows_of, SIDES))
        addend = None
        if self._addend is not None:
            arrays.append(self._addend)
            addend = view_of(self._addend)
        verified = self._verification is not None
        if verified:  # no triangle is projected
            arrays.append(Seed())
        self._named = Inputs.of(
            Views(left, right, addend, itself and not verified, self._adjoint and not verified, verified)
        )
        self._execution.bind(self._named.buffers, arrays)
        if named is None:
            self._made = Made.of(self._named)
        return self._named

    def _view(self, side: Side, x: Any, rows: bool, arrays: list[Any]) -> OperandView:
        """The view of an operand; adds the arrays that programs are given to `arrays`."""
        if isinstance(x, PreparedSlices):
            arrays += x.arrays
            return x.view
        if isinstance(x, Numbers):
            real = alike(self._rows_of(side))
            self._is_copy(any(of.data.ptr != to.data.ptr for of, to in zip(planes_of(x), planes_of(real), strict=True)))
            arrays += planes_of(real)
            views = tuple(map(view_of, planes_of(real)))
            return OperandView(views, views, x.bits)
        if not rows:
            arrays.append(x)
            return OperandView((view_of(x),))
        real = self._rows_of(side)
        given = (x, real) if (copied := real.data.ptr != x.data.ptr) else (x,)
        self._is_copy(copied)
        arrays += given
        return OperandView(tuple(map(view_of, given)), (view_of(real),))

    def _is_copy(self, copied: bool) -> None:
        self._asked.valid_for_others = self._asked.valid_for_others and not copied

    def _run(self, program: Program, progress: Progress = SILENT) -> None:
        """Start a program; what it computes of uploaded data is valid for these operands alone."""
        self._asked.steps += len(program.steps)
        self._asked.valid_for_others = self._asked.valid_for_others and program.repeatable
        self._execution.run(program, progress)

    # Facts ------------------------------------------------------------------------------------------------------------

    def begin(self, needs: Sequence[Need], plan: Plan) -> None:
        """Begin to find facts, all `WorstRatio` of one level or all `RowsBound`, and split for a likely plan.

        The device splits the operands before it is asked for them, so that a product by that plan, if it is chosen, can
        begin at once. Memory must not be limited, because slices and what the facts take are held at once.
        """
        self._asked.likely = True
        self._find(needs, likely=plan)

    def _find(self, needs: Sequence[Need], bring: Sequence[Side] = (), **more: Any) -> None:
        """Run the program that finds facts, and brings descriptions to the host; waits for nothing that it brings."""
        inputs = self._inputs()
        self._execution.finish()
        if any(getattr(need, "inner_scaling", False) for need in needs):
            self._scale_beside_prepared()
        if any(map(needs_descriptions, needs)):
            scaled = any(getattr(need, "inner_scaling", False) for need in needs)
            more["descriptions"] = self._descriptions(scaled)
        before = self._made
        limit = self.memory.rest
        if not self._asked.needs:
            self._asked.limit = limit
        asked = Asked(needs, self._dtype, bring=bring, limit=limit, **more)
        program, self._made = facts_program(inputs, self._device, asked, before)
        self._run(program)
        self._free(before)
        for need in needs:
            self._asked.needs[need] = None
            self._readers[need] = program.readers[need]

    def _scale_beside_prepared(self) -> None:
        """Find the factors of an operand beside one that is prepared and scaled along k; waits for the device.

        Raises
        ------
        ValueError
            If its scaled elements leave their format.
        """
        inputs = self._inputs()
        if not inputs.prepared or self._made.scaled is not None:
            return
        (side, prepared), *_ = inputs.prepared.items()
        assert prepared.described.inner is not None
        self._asked.valid_for_others = False
        other: Side = "left" if side == "right" else "right"
        b, x = Builder(inputs.buffers), inputs.rows_given[other]
        factors, leaves = factors_beside(b, x, prepared.described.inner)
        self._run(b.program(keeps=[factors]))
        if self._execution.evidence(leaves):
            form = "float32" if x.view.dtype.ctype_of_part == "float" else "float64"
            out_of_reach("a" if other == "left" else "b", form)
        pair = (factors, prepared.described.inner)
        left, right = pair if other == "left" else pair[::-1]
        self._made = replace(self._made, scaled=Made(factors=Factors(left, right, factors)))

    def _free(self, before: Made) -> None:
        """Free what was made before and is not kept any more."""
        kept = {array.buffer for array in self._made.arrays}
        self._execution.release([array.buffer for array in before.arrays if array.buffer not in kept])

    def measure(self, need: Need) -> Any:
        """Find a fact: begins it if that was not done before, and waits for the device.

        Raises
        ------
        ValueError
            If it cannot be found within the limit of memory.
        """
        with np.errstate(all="ignore"):
            if need not in self._found:
                self._found[need] = self._fact(need)
            return self._found[need]

    def _fact(self, need: Need) -> Any:
        if need not in self._readers:
            if isinstance(need, RelativeError):
                return self._relative_error(need.scheme, need.inner_scaling)
            if isinstance(need, WorstRatio) and need.level == "wide" and native_obstacle("float64") is not None:
                return self._found_on_host(need)
            self._find([need])
        fact = self._execution.fact(self._readers[need])
        if isinstance(need, CutBound) and fact == inf and need.words not in self._asked.sampled:
            self._asked.sampled.add(need.words)
            if self._made.early is not None and self._made.early.scheme == need.words:
                self._find([need], sampled=(need.words,))
                fact = self._execution.fact(self._readers[need])
        return fact

    def _described(self, scaled: bool) -> tuple[Described, Described]:
        """Both operands with their descriptions, or those of rows scaled along k, on the device; waits for nothing."""

        def made() -> Made:
            return self._made.scaled or Made() if scaled else self._made

        if len(made().described) < 2:
            self._find((), describe=True, of_scaled=scaled)
        left, right = (made().described[side] for side in SIDES)
        return left, right

    def _descriptions(self, scaled: bool = False) -> tuple[Description, Description]:
        """The descriptions of both operands, or of rows scaled along k, on the host; waits for the device."""

        def made() -> Made:
            return self._made.scaled or Made() if scaled else self._made

        if len(made().on_host) < 2:
            self._find((), bring=SIDES, of_scaled=scaled)
        left, right = (self._execution.evidence(made().on_host[side]) for side in SIDES)
        return left, right

    def _found_on_host(self, need: Need) -> Any:
        """A fact that NumPy finds, where cuBLAS may not multiply float64 exactly: it is the same on every backend."""
        from ozaki.backends.numpy.work import Work as OnHost

        self._asked.valid_for_others = False
        rows = {side: self._on_host(side) for side in SIDES}
        return OnHost(rows["left"], rows["right"], rows.__getitem__, self._dtype, Memory(None)).measure(need)

    def _on_host(self, side: Side) -> Any:
        """The rows of an operand in host memory; of a prepared one, described as it was when it was prepared."""
        from ozaki.backends.numpy._describe import Described
        from ozaki.backends.numpy._execute import Slices

        x = self._operands[side == "right"]
        if isinstance(x, PreparedSlices):
            tops = None if x.tops is None else cp.asnumpy(x.tops)
            described = Described(cp.asnumpy(x.x), cp.asnumpy(x.fields), tops=tops)
            return Slices(described, None, None, np.empty(0, np.int64))
        rows = self._rows_of(side)
        if isinstance(rows, Numbers):
            signs, exponents, limbs = map(cp.asnumpy, planes_of(rows))
            return Numbers(signs, exponents, limbs, rows.bits)
        return cp.asnumpy(rows)

    def _relative_error(self, scheme: Scheme, inner_scaling: bool) -> float:
        """The fact `RelativeError`; waits for the device.

        It is found from the product that was computed last, if that is by this scheme. Otherwise this computes that
        product, and keeps it, since most often it is the one that is asked for next.
        """
        left, right = self._descriptions(inner_scaling)
        terms, exponent = image_errors(left, right, scheme, evidence.spans(left, right))
        worst: tuple[Evidence, ...] = ()
        kept = self._product
        if kept is None or (kept.scheme, kept.inner_scaling) != (scheme, inner_scaling):
            self.release()
            described = self._made.described if not inner_scaling else (self._made.scaled or Made()).described
            (batch_a, m, k), (batch_b, n, _) = (described[side].x.shape for side in SIDES)
            shape = max(batch_a, batch_b), m, n
            target = default_accuracy(part_of(self._dtype), k)
            plan = Plan((m, k, n), shape[:1], self._dtype, scheme, target, inf, inf, False, inner_scaling=inner_scaling)
            limit, nbytes = self.memory.rest, results.nbytes(shape, self._dtype)
            if limit is not None and nbytes > limit // 2:
                rows = max(1, m * (limit // 2) // nbytes)
                worst = tuple(
                    self._worst_of_rows(plan, terms, exponent, (left, right), shape, slice(r, min(r + rows, m)))
                    for r in range(0, m, rows)
                )
            else:
                self.memory.hold(nbytes)
                c = results.empty(shape, self._dtype, cp)
                self._multiply_into(plan, c, None)
                self._product = results.Computed(scheme, c, nbytes=nbytes, inner_scaling=inner_scaling)
        alpha = ONE
        if self._product is not None:
            alpha = self._product.alpha
            worst = (self._worst_quotient(terms, exponent, (left, right), self._product.c),)
        found = map(self._execution.evidence, worst)
        return evidence.relative_bits(*found, alpha=alpha, precision=precision_of(self._dtype))

    def _worst_quotient(
        self, terms: ErrorTerms, exponent: int, of: tuple[Description, Description], c: Any
    ) -> Evidence:  # fmt: skip
        """Begin to find the `worst_quotient` of a product."""
        b = Builder()
        entries = result_view(c).array("c", b.given)
        found = worst_quotient(b, terms, exponent, *of, entries)
        self._run_into(b.program(), c)
        return found

    def _worst_of_rows(
        self, plan: Plan, terms: ErrorTerms, exponent: int, of: tuple[Description, Description],
        shape: tuple[int, int, int], rows: slice,
    ) -> Evidence:  # fmt: skip
        """The `worst_quotient` of some rows of the product of this plan and shape, which are computed and freed.

        `terms`, `exponent` and the descriptions `of` both operands are those of the whole product.
        """
        inputs = self._inputs()
        batch, count, n = shape[0], rows.stop - rows.start, shape[2]
        nbytes = results.nbytes((batch, count, n), self._dtype)
        self.memory.hold(nbytes)
        c = results.empty((batch, count, n), self._dtype, cp)
        plan = replace(plan, shape=(count, plan.shape[1], n), workspace_limit=self.memory.rest)
        b = Builder(inputs.buffers)
        made = self._made.scaled if plan.inner_scaling and self._made.scaled is not None else self._made
        of_all, right = (made.described[side] for side in SIDES)
        left = of_all.some_rows(b, (0, of_all.x.shape[0]), (rows.start, rows.stop))
        engine = engine_of(self._device, plan, inputs.multiprecision)
        product.multiply(b, self._device, engine, plan, left, right, Round(result_view(c).array("c", b.given)))
        self._run_into(b.program(), c)
        some = ErrorTerms(terms.left[:, :, rows], terms.right)
        found = self._worst_quotient(some, exponent, (of[0].part(slice(None), rows), of[1]), c)
        self._execution.evidence(found)
        self._execution.finish()
        self.memory.free(nbytes)
        return found

    # The product ------------------------------------------------------------------------------------------------------

    def multiply(self, plan: Plan, c: Any) -> None:
        """Compute the product by a plan of slices or words into c, shape (batch, m, n), contiguous.

        The product has entries, and k > 0. Waits for facts that were begun, not for the product. Uses the slices that
        were made early if they are of the plan's scheme, else frees them. At most one call of `multiply` or `native`
        for each `Work`.

        Raises
        ------
        ValueError
            If it cannot be computed within the limit of memory.
        """
        assert plan.scheme is not None
        if self._verification is not None:
            self._check_projected(plan, c)
        self._execution.finish()
        if plan.inner_scaling:
            self._scale_beside_prepared()
        once = self._combination is not None and plan.rounds_once(self._combination)
        if once:
            self._read_addend()
        numbers = isinstance(c, Numbers) or (self._combination is not None and isinstance(self._combination.c, Numbers))
        if once and is_wide(plan.scheme, numbers or self._inputs().multiprecision):
            self._multiply_every_bit(plan, c)
            return
        computed = None if once or plan.engine != "auto" else self._product
        if computed is not None and (computed.scheme, computed.inner_scaling) == (plan.scheme, plan.inner_scaling):
            results.copy(computed.c, c)
            self._asked.valid_for_others = False  # no step of a program computes c
            return
        self._release_product()
        expression, alpha = None, ONE
        if once:
            assert self._combination is not None
            expression, alpha = Expression(*self._combination.values, once=True), self._combination.alpha
        self._multiply_into(plan, c, expression)
        self._product = None
        if is_exact(plan.scheme):
            self._product = results.Computed(plan.scheme, c, alpha, inner_scaling=plan.inner_scaling)

    def _check_projected(self, plan: Plan, c: Any) -> None:
        """Refuse a product that kernels do not project.

        Raises
        ------
        ValueError
        """
        scheme, what = plan.scheme, ""
        if isinstance(c, Numbers) or self._inputs().multiprecision:
            what = "multiprecision numbers"
        elif not isinstance(scheme, Residues) or isinstance(scheme, ComplexSlices):
            what = (
                "slices of complex rows"
                if isinstance(scheme, ComplexSlices)
                else str(plan.scheme.name if plan.scheme is not None else "a native product")
            )
        elif scheme.several:
            what = f"{scheme.count} residues"
        if what:
            raise ValueError(
                f"verify: on a GPU True checks products of floats by at most {MOST_AT_ONCE} residues, not {what}; "
                "leave it out, or multiply NumPy arrays"
            )

    def _multiply_into(self, plan: Plan, c: Any, expression: Expression | None) -> None:
        """Run the program of a product by slices or words; if it is to be checked, once more where it is wrong."""
        if self._verification is None or not is_exact(plan.scheme):
            self._multiply_once(plan, c, expression)
        else:
            self._verification.run(partial(self._projected, plan, c, expression))

    def _projected(self, plan: Plan, c: Any, expression: Expression | None) -> Projected:
        """Do so once, and return what its projections say."""
        seed = self._inputs().seed
        assert seed is not None
        self._execution.bind([seed.buffer], [Seed()])
        program = self._multiply_once(plan, c, expression)
        found: Projected = self._execution.fact(program.readers[VERIFIED])
        return found

    def _multiply_once(self, plan: Plan, c: Any, expression: Expression | None) -> Program:
        """Run the program of a product by slices or words."""
        inputs, made = self._inputs(), self._made
        plan = replace(plan, workspace_limit=made.beside_leading(self.memory.rest, inputs))
        self._asked.product = plan, result_view(c), expression
        program = product_program(inputs, self._device, plan, result_view(c), made, expression)
        self._made = made.without_products()
        self._run_into(program, c, self._progress)
        self._free(made)
        return program

    def _run_into(self, program: Program, c: Any, progress: Progress = SILENT, bounds: Any = None) -> None:
        """Run a program whose last given arrays are those of a result, and after them its bounds, if any."""
        arrays = arrays_of(c) if bounds is None else (*arrays_of(c), bounds)
        buffers = program.given[-len(arrays) :]
        self._execution.bind(buffers, arrays)
        self._run(program, progress)
        self._execution.unbind(buffers)

    def _multiply_every_bit(self, plan: Plan, c: Any) -> None:
        """Compute the expression into c from every bit of the product, which CuPy's own operations add and round."""
        assert self._combination is not None and isinstance(plan.scheme, Residues)
        self._find((), describe=True)
        self._release_product()
        bits = LIMB_BITS * product_limbs(plan.scheme)
        nbytes = results.nbytes(c.shape, f"{MULTIPRECISION}{bits}")
        self.memory.hold(nbytes)
        every_bit = empty_numbers(c.shape, bits, cp)
        self._multiply_into(plan, every_bit, None)
        combine_in_pieces(every_bit, self._combination, c, self.memory)
        del every_bit
        self.memory.free(nbytes)
        self._asked.valid_for_others = False  # no step of a program computes c
        if not isinstance(c, Numbers):
            self._patch(c)
        self._product = results.Computed(plan.scheme, c, self._combination.alpha)

    def _patch(self, c: Any) -> None:
        """Insert what NaN and Inf of the operands give; an addend of numbers is finite: there they stay as they are."""
        assert self._combination is not None
        inputs = self._inputs()
        b = Builder(inputs.buffers)
        out = b.given("c", view_of(c))
        alpha, beta = self._combination.values
        beta = 0.0 if inputs.addend is None else beta
        described = self._made.described
        patch(b, described["left"], described["right"], Combine(out, alpha, beta, inputs.addend or out))
        self._run_into(b.program(), c)

    def _release_product(self) -> None:
        """Free a product that was computed beside the result."""
        if self._product is not None:
            self.memory.free(self._product.nbytes)
        self._product = None

    def release(self) -> None:
        """Free what proofs, early slices and a product before hold; waits for facts that were begun."""
        self._execution.finish()
        before = self._made
        self._made = self._made.without_magnitudes()
        self._free(before)
        self._release_product()

    def native(self, c: Any) -> None:
        """Compute the native product of the given arrays into c, its rows contiguous; at most once, as `multiply`."""
        self._execution.finish()
        inputs, made = self._inputs(rows=False), self._made
        plan = _native_plan(self._dtype, *self._operands)
        self._asked.product = plan, result_view(c), None
        program = product_program(inputs, self._device, plan, result_view(c), made)
        self._made = made.without_products()
        self._run_into(program, c)
        self._free(made)

    def combine(self, c: Any) -> None:
        """Make the rounded product in c, shape (batch, m, n), the whole expression; after `multiply` or `native`."""
        assert self._combination is not None and self._asked.product is not None
        plan, out, _ = self._asked.product
        expression = Expression(*self._combination.values, once=False, entries=view_of(c))
        self._asked.product = plan, out, expression
        self._run_into(combining_program(self._inputs(), result_view(c), expression), c)

    def addend(self, c: Any) -> None:
        """Compute what the expression adds to a product of zeros into c, shape (batch, m, n)."""
        self._read_addend()
        if isinstance(c, Numbers):
            if self._combination is not None and self._combination.c is not None:
                addend_into(self._combination, c, self.memory)
            return
        if self._combination is None or self._addend is None:
            c[...] = 0
            return
        beta = self._combination.beta.value
        assert not isinstance(beta, complex)
        b = Builder()
        addend, out = b.given("addend", view_of(self._addend)), b.given("c", view_of(c))
        self._execution.bind([addend.buffer], [self._addend])
        multiple(b, beta, addend, out)
        self._run_into(b.program(), c)

    # For reports and repeated calls -----------------------------------------------------------------------------------

    def entry_bounds(self, plan: Plan | None, c: Any, bounds: Any) -> None:
        """Compute the bounds of the entries of the result c, both of shape (batch, m, n), into `bounds`."""
        given, unit = self._combination, 0
        alpha, sums = (ONE, False) if given is None else (given.alpha, not given.beta.is_zero)
        c = c.parts if isinstance(c, Numbers) else c
        if plan is None:
            alpha, b = ONE, Builder()
            terms = terms_of_zeros(b, bounds.shape)
        elif plan.scheme is None:
            b = Builder()
            *on_host, unit = native_terms(*self._descriptions(), self._dtype)
            terms = terms_uploaded(b, *on_host)
        else:
            assert is_exact(plan.scheme)
            scaled = plan.inner_scaling
            spans = self.measure(Spans(scaled)) if plan.scheme.drop else (NO_SPAN, NO_SPAN)
            left, right = self._described(scaled)
            b = Builder(self._inputs().buffers)
            terms, unit = terms_of(b, left, right, plan.scheme, plan.scheme.dropped(left.k, spans))
        entries = result_view(c).array("c", b.given)
        entry_bounds(b, terms, unit, alpha, sums, entries, b.given("bounds", view_of(bounds)))
        self._run_into(b.program(), c, bounds=bounds)

    def nonfinite(self, side: Side) -> npt.NDArray[Any]:
        """The number of NaN and Inf in each row of an operand, shape (batch, rows); waits for the device."""
        return self._description(side).nonfinite

    def _description(self, side: Side) -> Description:
        if side not in self._made.on_host:
            self._find((), bring=(side,))
        description: Description = self._execution.evidence(self._made.on_host[side])
        return description

    def underflows(self, side: Side, words: Words) -> int:
        """The number of elements of which words leave out more than the residual of B8; waits for the device."""
        if not self._description(side).below(words.lowest).any():
            return 0
        b = Builder(self._inputs().buffers)
        found = b.evidence(count_underflows(b, self._made.described[side], words), np.copy)
        self._run(b.program())
        return int(self._execution.evidence(found)[0])

    @property
    def for_transposes(self) -> bool:
        """Whether the program is right for a matrix and its own transpose alone."""
        if self._asked.product is None or self._asked.product[0].scheme is None or not self._inputs().views.itself:
            return False
        plan, _, expression = self._asked.product
        once = expression is not None and expression.once
        engine = engine_for(self._device, plan, self._inputs(), once, once and self._addend is not None)
        return isinstance(engine, SymmetricResidues) and engine.symmetry == "symmetric"

    def repetition(self, facts: Collection[Need] | None = None) -> Repetition | None:
        """What the program of a repeated call depends on, which finds these facts, or all that were asked for.

        None if what was done is valid for these operands alone (the host computed a part, or a program reads copies),
        or has too many steps.
        """
        asked = self._asked
        if not asked.valid_for_others or asked.product is None or asked.steps >= _MOST_STEPS:
            return None
        plan, out, expression = asked.product
        needs = [need for need in asked.needs if facts is None or need in facts]
        likely = plan if asked.likely and plan.scheme is not None and plan.scheme.exact else None
        found = Asked(needs, self._dtype, likely, sampled=frozenset(asked.sampled), limit=asked.limit)
        return Repetition(self._inputs(rows=False).views, self._device, plan, out, found, expression)


def _native_plan(dtype: str, a: Any, b: Any) -> Plan:
    """A plan that says that the native product runs."""
    shape = a.shape[-2], a.shape[-1], b.shape[-1]
    return Plan(shape, (), dtype, None, default_accuracy(part_of(dtype), shape[1]), inf, inf, True)
