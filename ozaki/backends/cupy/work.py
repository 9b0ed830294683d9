"""One product on the device: finding facts about its operands, and multiplying them, as one program."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any, NamedTuple

import cupy as cp
import numpy as np
import numpy.typing as npt

from ozaki.backends import results
from ozaki.backends.combining import addend_into, combine_in_pieces
from ozaki.backends.cupy import evidence
from ozaki.backends.cupy.binding import bound_numbers
from ozaki.backends.cupy.inputs import Inputs
from ozaki.backends.cupy.program.arrays import Array, view_of
from ozaki.backends.cupy.program.program import Evidence, Program, Reader
from ozaki.backends.cupy.program.trim import trimmed
from ozaki.backends.cupy.ratios import Ratios
from ozaki.backends.cupy.steps import product
from ozaki.backends.cupy.steps.axpby import axpby, multiple
from ozaki.backends.cupy.steps.combined import Combined
from ozaki.backends.cupy.steps.engines.choice import engine_of, panel_of, word_engine
from ozaki.backends.cupy.steps.engines.engine import Engine
from ozaki.backends.cupy.steps.engines.fused_residues import SymmetricResidues, Symmetry
from ozaki.backends.cupy.steps.magnitudes import room_for_one_read
from ozaki.backends.cupy.steps.native import native
from ozaki.backends.cupy.steps.nonfinite import patch
from ozaki.backends.cupy.steps.numbers import NumbersArray
from ozaki.backends.cupy.steps.operands import Slices
from ozaki.backends.cupy.steps.overlap import overlap
from ozaki.backends.cupy.steps.relative import worst_quotient
from ozaki.backends.cupy.steps.sample import sample
from ozaki.backends.cupy.steps.tables import limbs_of_product
from ozaki.backends.cupy.steps.words import count_underflows
from ozaki.bounds import native as native_bounds
from ozaki.bounds.description import Description
from ozaki.bounds.exact import ErrorTerms, error_terms
from ozaki.bounds.relative import Quotient, relative_bits, times
from ozaki.call.combination import ONE, Combination, Factor
from ozaki.call.operands import SIDES, Side
from ozaki.driver.memory import Memory, too_few_bytes
from ozaki.driver.progress import SILENT, Progress
from ozaki.multiprecision.floats import empty as empty_numbers
from ozaki.multiprecision.limbs import LIMB_BITS
from ozaki.multiprecision.numbers import Numbers
from ozaki.planning.facts import (
    CutBound,
    LeastProduct,
    NativeInRange,
    Need,
    Overlap,
    Ratio,
    RelativeError,
    RowsBound,
    Sample,
    Spans,
    WorstRatio,
)
from ozaki.records.accuracy import default_accuracy
from ozaki.records.formats import COMPLEX, MULTIPRECISION, part_of, precision_of
from ozaki.records.plan import Plan
from ozaki.schemes import Residues, Scheme, Words, is_exact, scaling_of

_MOST_STEPS = 4096
"""The most steps of a program that is kept. With more, as for large batches that are multiplied one by one, the host
starts steps faster than the device completes them, so that repeating the program would gain nothing."""


class _EarlySlices(NamedTuple):
    """Slices or words of both operands, made before the plan is known."""

    scheme: Scheme | Words
    engine: Engine
    left: Slices
    right: Slices


class _Computed(NamedTuple):
    """A product, or an expression rounded once, that was computed by a scheme with exact slice products.

    Attributes
    ----------
    out : the symbolic array of c
    c : shape (batch, m, n)
    alpha : the factor of the product in an expression; `ONE` of a product
    nbytes : bytes of c, if it lies beside the result
    """

    scheme: Scheme
    out: Array | NumbersArray
    c: Any
    alpha: Factor = ONE
    nbytes: int = 0


class Work:
    """Finds facts about two operands and multiplies them, on the current device and CuPy's current stream.

    Everything that the device does is a step of one program, which is run part by part while it is built.

    Attributes
    ----------
    memory : as given
    for_transposes : whether the program is right for a matrix and its own transpose alone
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
    ) -> None:
        """Begin the program of a product.

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

        Raises
        ------
        ValueError
            If the leading bits of multiprecision operands take as much.
        """
        self.memory, self._inputs = memory, Inputs(a, b, rows, memory)
        self._dtype, self._adjoint, self._progress = dtype, adjoint, progress
        if (rest := memory.rest) is not None and (leading := self._inputs.leading_bytes) and leading >= rest:
            too_few_bytes(rest, leading)
        self._builder, self._device = self._inputs.builder, self._inputs.device
        self._ratios = Ratios(self._inputs)
        self._early: _EarlySlices | None = None
        self._combination, self._given_addend = combination, addend
        self._addend: Array | None = None
        self._out: Array | None = None
        self._product: _Computed | None = None
        self.for_transposes = False
        if dtype not in COMPLEX:  # of complex entries the addend may be a copy, which not every product reads
            self._read_addend()

    def _read_addend(self) -> None:
        """Name the addend in the program, before the result, unless it holds multiprecision numbers."""
        if self._given_addend is not None:
            assert self._combination is not None
            c, self._given_addend = self._given_addend(), None
            self._combination = replace(self._combination, c=c)
            if not isinstance(c, Numbers):
                self._addend = self._builder.given("addend", view_of(c))
                self._inputs.first_call.bind(self._addend, c)

    # Facts ----------------------------------------------------------------------------------------------------------

    def begin(self, needs: Sequence[Need], plan: Plan) -> None:
        """Begin to find facts, all `WorstRatio` of one level or all `RowsBound`, and split for a likely plan.

        The device splits the operands before it is asked for them, so that a product by that plan, if it is chosen, can
        begin at once. Memory must not be limited, because slices and what the facts take are held at once.
        """
        assert plan.scheme is not None and self._inputs.limit is None
        inputs, b = self._inputs, self._builder
        self._release_early()
        engine = self._engine(plan)
        ratios = [need for need in needs if isinstance(need, WorstRatio)]
        self._ratios.stream = "proof"
        if not inputs.described and self._fits_one_read(engine, plan.scheme, whole=True):
            room = room_for_one_read(b, self._device, *inputs.both_rows) if ratios else None
            early = self._split_early(engine, plan.scheme, whole=True, magnitudes=room)
            inputs.described = {"left": early.left.described, "right": early.right.described}
        left, right = inputs.describe_both()
        if not ratios:
            with b.on("to_host", fork=True):
                inputs.descriptions()
        inputs.run()
        if ratios:
            self._ratios.open(ratios[0].level)
            inputs.run()
        if self._early is None and self._in_one_panel(engine, plan):
            x, y = engine.split(b, left, "left", plan.scheme), engine.split(b, right, "right", plan.scheme)
            self._early = _EarlySlices(plan.scheme, engine, x, y)
            inputs.run()
        self._ratios.begin(ratios)
        for need in needs:
            if b.reader(need) is None:
                self._add_fact(need)
        inputs.run()

    def measure(self, need: Need) -> Any:
        """Find a fact: begins it if that was not done before, and waits for the device.

        Raises
        ------
        ValueError
            If it cannot be found within the limit of memory.
        """
        with np.errstate(all="ignore"):
            reader = self._builder.reader(need) or self._add_fact(need)
            self._inputs.run()
            return self._inputs.first_call.fact(reader)

    def _add_fact(self, need: Need) -> Reader:
        """Add the steps that bring a fact to the host, and register its reader."""
        b, inputs = self._builder, self._inputs
        match need:
            case Sample():
                return b.read(need, (sample(b, *inputs.both_rows),), evidence.unchanged)
            case Overlap():
                return b.read(need, (overlap(b, *inputs.both_rows),), evidence.unchanged)
            case NativeInRange():
                return b.read(need, inputs.descriptions(), partial(_native_in_range, dtype=self._dtype))
            case Spans() if self._ratios.spans is not None:
                return b.read(need, (self._ratios.spans,), _spans_of)
            case Spans():
                return b.read(need, inputs.descriptions(), evidence.spans)
            case RowsBound(scheme, measure, exponent):
                bound = partial(evidence.rows_bound, scheme=scheme, measure=measure, exponent=exponent)
                return b.read(need, inputs.descriptions(), bound)
            case CutBound(words):
                return self._add_cut_bound(need, words)
            case LeastProduct():
                early = self._early
                described = (early.left.described, early.right.described) if early else inputs.describe_both()
                return b.read(need, self._ratios.least_product(described), _least)
            case RelativeError(scheme):
                return self._add_relative_error(need, scheme)
            case WorstRatio():
                self._ratios.begin([need])
                reader = b.reader(need)
                assert reader is not None
                return reader
        raise TypeError(f"need: {need!r} is not known here")

    def _add_relative_error(self, need: RelativeError, scheme: Scheme) -> Reader:
        """Add the steps for a `RelativeError`, and register its reader; waits for the device.

        It is found from the product that was computed last, if that is by this scheme. Otherwise this computes that
        product, and keeps it, since most often it is the one that is asked for next.
        """
        b, inputs = self._builder, self._inputs
        left, right = inputs.on_host()
        exponent = -scaling_of(scheme, left.k).base  # so that no error underflows
        terms = error_terms(left, right, scheme, scheme.dropped(left.k, evidence.spans(left, right)), exponent)
        alpha, worst = ONE, tuple[Evidence, ...]()
        if self._product is None or self._product.scheme != scheme:
            self._release_early()
            self._release_product()
            self._ratios.close()
            (batch_a, m, k), (batch_b, n, _) = (x.shape for x in inputs.both_rows)
            shape = max(batch_a, batch_b), m, n
            target = default_accuracy(part_of(self._dtype), k)
            plan = Plan((m, k, n), shape[:1], self._dtype, scheme, target, inf, inf, False)
            limit, whole = self._inputs.limit, results.nbytes(shape, self._dtype)
            if limit is not None and whole > limit // 2:
                rows = max(1, m * (limit // 2) // whole)
                worst = tuple(
                    self._worst_of_rows(plan, terms, exponent, (left, right), shape, slice(r, min(r + rows, m)))
                    for r in range(0, m, rows)
                )
            else:
                self.memory.hold(whole)
                c = results.empty(shape, self._dtype, cp)
                self._product = _Computed(scheme, self._result(c), c, nbytes=whole)
                self._multiply_into(replace(plan, workspace_limit=self._inputs.limit), self._product.out)
        if self._product is not None:
            alpha, worst = self._product.alpha, (worst_quotient(b, terms, exponent, left, right, self._product.out),)
        return b.read(need, worst, partial(_relative_bits, alpha=alpha, precision=precision_of(self._dtype)))

    def _worst_of_rows(
        self, plan: Plan, terms: ErrorTerms, exponent: int, of: tuple[Description, Description],
        shape: tuple[int, int, int], rows: slice,
    ) -> Evidence:  # fmt: skip
        """The `worst_quotient` of some rows of the product of this plan and shape, which are computed and freed.

        `terms`, `exponent` and the descriptions `of` both operands are those of the whole product.
        """
        inputs, b = self._inputs, self._builder
        batch, count, n = shape[0], rows.stop - rows.start, shape[2]
        nbytes = results.nbytes((batch, count, n), self._dtype)
        self.memory.hold(nbytes)
        c = results.empty((batch, count, n), self._dtype, cp)
        out = self._result(c)
        plan = replace(plan, shape=(count, plan.shape[1], n), workspace_limit=self._inputs.limit)
        whole, right = inputs.describe_both()
        left = whole.some_rows(b, (0, whole.x.shape[0]), (rows.start, rows.stop))
        engine = engine_of(self._device, plan, inputs.multiprecision)
        product.multiply(b, self._device, engine, plan, left, right, out)
        left.release_rows(b, whole)
        some = ErrorTerms(terms.left[:, :, rows], terms.right)
        found = worst_quotient(b, some, exponent, of[0].some_rows(rows), of[1], out)
        inputs.run()
        self._unbind(out)
        self.memory.free(nbytes)
        return found

    def _release_product(self) -> None:
        """Free a product that was computed beside the result."""
        if self._product is not None and self._product.nbytes:
            self._unbind(self._product.out)
            self.memory.free(self._product.nbytes)
        self._product = None

    def _unbind(self, out: Array | NumbersArray) -> None:
        """Let go of the memory of a product that no later step touches."""
        for array in (out,) if isinstance(out, Array) else (out.signs, out.exponents, out.limbs):
            self._inputs.first_call.unbind(array)

    def _add_cut_bound(self, need: CutBound, words: Words) -> Reader:
        """Add the steps for a `CutBound`, and register its reader; waits for the device.

        Where one kernel reads and cuts each operand, it cuts them now, and finds whether words lose part of an element;
        only if they do, both operands are sampled. Elsewhere the bound follows from the descriptions of all rows.
        """
        b, inputs = self._builder, self._inputs
        self._release_early()
        left, right = inputs.both_rows
        (batch, m, k), n = left.shape, right.shape[1]
        engine = word_engine(self._device, words, max(batch, right.shape[0]), m, k, n)
        may_cut = left.view.parts == 1 and inputs.limit is None and not inputs.described  # words cut real rows
        if not may_cut or not self._fits_one_read(engine, words, whole=False):
            bound = partial(evidence.rows_bound, scheme=words, measure="componentwise")
            return b.read(need, inputs.descriptions(), bound)
        lost = b.cleared_on_host("lost", (1,), "I")
        early = self._split_early(engine, words, whole=False, lost=lost)
        raised = b.evidence(b.arrive(lost), _flag_is_set)
        inputs.run()
        found = [raised]
        if inputs.first_call.evidence(raised):
            found.append(sample(b, left, right, (early.left.described, early.right.described)))
        return b.read(need, tuple(found), partial(_cut_bound, words=words, k=k))

    # Slices that are made before the plan is known ------------------------------------------------------------------

    def _fits_one_read(self, engine: Engine, scheme: Scheme | Words, whole: bool) -> bool:
        """Whether one kernel for each operand, which reads it once, splits both faster than two kernels do."""
        if self._inputs.multiprecision:
            return False
        return all(engine.splits_in_one_read(scheme, side, x, whole) for side, x in self._inputs.rows.items())

    def _split_early(self, engine: Engine, scheme: Scheme | Words, whole: bool, **options: Any) -> _EarlySlices:
        """Split both operands by one kernel each, which reads it once; `options` as for `product.split_in_one_read`."""
        left, right = (
            product.split_in_one_read(
                self._builder, self._device, engine, scheme, x, side, whole, overlaps=side == "right", **options
            )
            for side, x in self._inputs.rows.items()
        )
        self._early = _EarlySlices(scheme, engine, left, right)
        return self._early

    def _in_one_panel(self, engine: Engine, plan: Plan) -> bool:
        """Whether the slices of whole operands fit the device."""
        (batch_a, m, _), (batch_b, n, _) = (x.shape for x in self._inputs.both_rows)
        return panel_of(engine, plan, (max(batch_a, batch_b), m, n)) == (m, n)

    def _release_early(self) -> None:
        """Free the slices that were made early; whole descriptions stay, largest elements alone are freed with them."""
        if self._early is not None:
            for slices in (self._early.left, self._early.right):
                self._builder.release(slices.planes, slices.mu)
                if slices.described.only_largest:
                    self._builder.release(slices.described.fields)
        self._early = None

    # The product ----------------------------------------------------------------------------------------------------

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
        inputs = self._inputs
        self._ratios.close()
        once = self._combination is not None and plan.rounds_once(self._combination)
        if once:
            self._read_addend()
        wide = isinstance(c, Numbers) or (isinstance(plan.scheme, Residues) and plan.scheme.several)
        wide = wide or (self._combination is not None and isinstance(self._combination.c, Numbers))
        if once and (inputs.multiprecision or wide):
            self._multiply_every_bit(plan, c)
            return
        kept = None if once else self._product
        if kept is not None and kept.scheme == plan.scheme and plan.engine == "auto":
            results.copy(kept.c, c)
            inputs.copied = True
            return
        self._release_product()
        out = self._result(c)
        plan = replace(plan, workspace_limit=self._inputs.limit)
        self._multiply_into(plan, self._combined(out) if once else out)
        alpha = self._combination.alpha if self._combination is not None and once else ONE
        self._product = _Computed(plan.scheme, out, c, alpha) if is_exact(plan.scheme) else None

    def _multiply_every_bit(self, plan: Plan, c: Any) -> None:
        """Compute the expression into c from every bit of the product, which CuPy's own operations add and round."""
        assert self._combination is not None and isinstance(plan.scheme, Residues)
        inputs, b = self._inputs, self._builder
        described = inputs.describe_both()
        self._release_product()
        bits = LIMB_BITS * limbs_of_product(plan.scheme)
        nbytes = results.nbytes(c.shape, f"{MULTIPRECISION}{bits}")
        self.memory.hold(nbytes)
        whole = empty_numbers(c.shape, bits, cp)
        every_bit = bound_numbers(b, inputs.first_call, "every bit", whole)
        self._multiply_into(replace(plan, workspace_limit=self._inputs.limit), every_bit)
        combine_in_pieces(whole, self._combination, c, self.memory)
        self._unbind(every_bit)
        del whole
        self.memory.free(nbytes)
        inputs.copied = True  # no step of the program computes c
        out = self._result(c)
        if not isinstance(c, Numbers):
            patch(b, *described, self._combined(out))  # an addend of numbers is finite: NaN and Inf stay as they are
            inputs.run()
        self._product = _Computed(plan.scheme, out, c, self._combination.alpha)

    def _combined(self, out: Array | NumbersArray) -> Combined:
        """The array of the result with the expression; without a multiprecision addend, which no kernel reads."""
        assert self._combination is not None and isinstance(out, Array)
        alpha, beta = self._combination.values
        return Combined.of(out, alpha, 0.0 if self._addend is None else beta, self._addend)

    def _multiply_into(self, plan: Plan, out: Array | NumbersArray) -> None:
        """Run the steps of a product, which takes the slices that were made early if they are of the plan's scheme."""
        inputs = self._inputs
        left: product.Given
        right: product.Given
        if self._early is not None and self._early.scheme == plan.scheme:
            _, engine, left, right = self._early
        else:
            self._release_early()
            engine = self._engine(plan)
            left, right = inputs.both_rows
            if inputs.described or inputs.multiprecision:
                # Operands may be prepared for an engine that rounds nothing but products.
                prepared = inputs.prepared if engine == self._engine_of_products(plan) else {}
                left, right = (prepared.get(side) or inputs.describe(side) for side in SIDES)
        product.multiply(self._builder, self._device, engine, plan, left, right, out)
        self._release_early()
        inputs.run(self._progress)

    def release(self) -> None:
        """Free what proofs, early slices and a product before hold; waits for facts that were begun."""
        self._ratios.close()
        self._release_early()
        self._release_product()
        self._inputs.run()

    def native(self, c: Any) -> None:
        """Compute the native product of the given arrays into c, its rows contiguous; at most once, as `multiply`."""
        self._ratios.close()
        self._release_early()
        given, out = self._inputs.given, self._result(c)
        assert isinstance(out, Array)
        native(self._builder, given["left"], given["right"], self._dtype, out)
        self._inputs.run()

    def combine(self, c: Any) -> None:
        """Make the rounded product in c, shape (batch, m, n), the whole expression; after `multiply` or `native`."""
        assert self._out is not None and self._combination is not None
        alpha, beta = self._combination.values
        axpby(self._builder, alpha, Array(self._out.buffer, 0, *view_of(c)), beta, self._addend)
        self._inputs.run()

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
        out = self._result(c)
        assert isinstance(out, Array)
        beta = self._combination.beta.value
        assert not isinstance(beta, complex)
        multiple(self._builder, beta, self._addend, out)
        self._inputs.run()

    def _engine(self, plan: Plan) -> Engine:
        """The engine that multiplies by a plan of slices or words, and rounds what is asked for."""
        combined = self._combination is not None and plan.rounds_once(self._combination)
        symmetry: Symmetry | None = "hermitian" if self._adjoint else "symmetric" if self._inputs.itself else None
        if combined and self._combination is not None and self._combination.c is not None:
            symmetry = None
        engine = engine_of(self._device, plan, self._inputs.multiprecision, combined, symmetry)
        self.for_transposes = isinstance(engine, SymmetricResidues) and engine.symmetry == "symmetric"
        return engine

    def _engine_of_products(self, plan: Plan) -> Engine:
        """The engine that operands are prepared for."""
        return engine_of(self._device, plan, self._inputs.multiprecision)

    def _result(self, c: Any) -> Array | NumbersArray:
        """Name the result in the program: the last given array."""
        if isinstance(c, Numbers):
            return bound_numbers(self._builder, self._inputs.first_call, "c", c)
        self._out = out = self._builder.given("c", view_of(c))
        self._inputs.first_call.bind(out, c)
        return out

    # For reports and repeated calls ---------------------------------------------------------------------------------

    def nonfinite(self, side: Side) -> npt.NDArray[np.int64]:
        """The number of NaN and Inf in each row of an operand, shape (batch, rows); waits for the device."""
        found = self._inputs.description(side)
        self._inputs.run()
        description: Description = self._inputs.first_call.evidence(found)
        return description.nonfinite

    def underflows(self, side: Side, words: Words) -> int:
        """The number of elements of which words leave out more than the residual of B8; waits for the device."""
        inputs = self._inputs
        found = inputs.description(side)
        inputs.run()
        description: Description = inputs.first_call.evidence(found)
        if not description.below(words.lowest).any():
            return 0
        arrival = count_underflows(self._builder, inputs.describe(side), words)
        inputs.run()
        return int(inputs.first_call.evidence(self._builder.evidence(arrival, np.copy))[0])

    def within_limit(self, program: Program) -> bool:
        """Whether a repeated call, whose memory is one piece, keeps within the limit, too."""
        return self._inputs.limit is None or program.counted_in_one_piece <= self._inputs.limit

    def whole(self, facts: Collection[Need] | None = None) -> Program | None:
        """The program of all that was done so far, for repeated calls.

        With `facts`, only the steps that these facts and the result depend on. None if the program is valid for these
        operands alone (it uploads what the host computed from them, or reads copies of them), or has too many steps.
        """
        program = self._builder.whole() if facts is None else trimmed(self._builder.whole(), facts)
        return program if program.repeatable and not self._inputs.copied and len(program.steps) < _MOST_STEPS else None


def _relative_bits(*worst: Quotient, alpha: Factor, precision: int) -> float:
    return relative_bits(times(max(worst), alpha.whole, alpha.exponent), precision)


def _native_in_range(left: Description, right: Description, dtype: str) -> bool:
    return native_bounds.in_range(left, right, dtype)


def _spans_of(ratio: Ratio) -> tuple[int, int]:
    return ratio.spans


def _flag_is_set(flag: npt.NDArray[np.uint32]) -> bool:
    return bool(flag[0])


def _cut_bound(lost: bool, sampled: Any = None, *, words: Words, k: int) -> float:
    return evidence.cut_bound(lost, sampled, words, k)


def _least(*found: float) -> float:
    """The least product of all panels."""
    return min(found)
