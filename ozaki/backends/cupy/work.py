"""One product on the device: facts found about its operands, and the product by a plan, as one program."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ozaki._operands import SIDES, Side
from ozaki._plan import Plan
from ozaki.backends.cupy import evidence
from ozaki.backends.cupy.inputs import Inputs
from ozaki.backends.cupy.program.arrays import Array, view_of
from ozaki.backends.cupy.program.program import Program, Reader
from ozaki.backends.cupy.program.steps import Clear
from ozaki.backends.cupy.program.trim import trimmed
from ozaki.backends.cupy.ratios import Ratios
from ozaki.backends.cupy.steps import product
from ozaki.backends.cupy.steps.engines.choice import engine_of, word_engine
from ozaki.backends.cupy.steps.engines.engine import Engine
from ozaki.backends.cupy.steps.magnitudes import room_for_one_read
from ozaki.backends.cupy.steps.native import native
from ozaki.backends.cupy.steps.operands import Slices
from ozaki.backends.cupy.steps.overlap import overlap
from ozaki.backends.cupy.steps.sample import sample
from ozaki.backends.cupy.steps.words import count_underflows
from ozaki.bounds import native as native_bounds
from ozaki.bounds.description import Description
from ozaki.planning.facts import (
    CutBound,
    LeastProduct,
    NativeInRange,
    Need,
    Overlap,
    Ratio,
    RowsBound,
    Sample,
    Spans,
    WorstRatio,
)
from ozaki.schemes import Scheme, Words

_MOST_STEPS = 4096
"""Of a program that is kept. With more of them, as of large batches that are multiplied one by one, the host gives the
device steps faster than it works them off, so that nothing is gained."""


class _Early(NamedTuple):
    """Both operands, split before the plan was certain."""

    scheme: Scheme | Words
    engine: Engine
    left: Slices
    right: Slices


class Work:
    """What is done with the operands of one product, on the current device and CuPy's current stream.

    Everything that the device does is a step of one program, which is run part by part while it is built.
    """

    def __init__(self, a: Any, b: Any, rows: Callable[[Side], Any], dtype: str, limit: int | None) -> None:
        """Take operands as they were given, matrices or stacks of them, or the slices of prepared ones.

        `rows` gives one as a stack of rows, (batch, rows, k); `dtype`: of the result; `limit`: bytes left for proofs
        and product, or None.
        """
        self._inputs, self._dtype, self._limit = Inputs(a, b, rows), dtype, limit
        self._b, self._device = self._inputs.b, self._inputs.device
        self._ratios = Ratios(self._inputs, limit)
        self._early: _Early | None = None

    # Facts ----------------------------------------------------------------------------------------------------------

    def begin(self, needs: Sequence[Need], plan: Plan) -> None:
        """Begin to find these facts, `WorstRatio` of one level or `RowsBound`, and split for a likely plan.

        The device splits at the same time, so that a product by that plan can begin at once when the facts say so.
        Nothing is done within a limit of memory.
        """
        if self._limit is not None:
            return
        assert plan.scheme is not None
        inputs, b = self._inputs, self._b
        self._release_early()
        engine = engine_of(self._device, plan)
        ratios = [need for need in needs if isinstance(need, WorstRatio)]
        self._ratios.stream = "proof"
        if not inputs.described and self._fits_one_read(engine, plan.scheme, sums=True):
            room = room_for_one_read(b, self._device, *inputs.both) if ratios else None
            early = self._split_early(engine, plan.scheme, sums=True, magnitudes=room)
            inputs.described = {"left": early.left.described, "right": early.right.described}
        left, right = inputs.describe_both()
        if len(ratios) < len(needs):
            with b.on("answers", fork=True):
                inputs.descriptions()
        inputs.run()
        if ratios:
            self._ratios.open(ratios[0].level)
            inputs.run()
        if self._early is None:
            x, y = engine.split(b, left, "left", plan.scheme), engine.split(b, right, "right", plan.scheme)
            self._early = _Early(plan.scheme, engine, x, y)
            inputs.run()
        self._ratios.begin(ratios)
        for need in needs:
            if b.reader(need) is None:
                self._add(need)
        inputs.run()

    def measure(self, need: Need) -> Any:
        """The fact; waits for the device. One that was not begun is begun now.

        Raises
        ------
        ValueError
            If the limit of memory is too small for it.
        """
        with np.errstate(all="ignore"):
            reader = self._b.reader(need) or self._add(need)
            self._inputs.run()
            return self._inputs.memory.fact(reader)

    def _add(self, need: Need) -> Reader:
        """Add the steps that bring a fact to the host."""
        b, inputs = self._b, self._inputs
        match need:
            case Sample():
                return b.read(need, (sample(b, *inputs.both),), _itself)
            case Overlap():
                return b.read(need, (overlap(b, *inputs.both),), _itself)
            case NativeInRange():
                return b.read(need, inputs.descriptions(), partial(_native_in_range, dtype=self._dtype))
            case Spans() if self._ratios.spans is not None:
                return b.read(need, (self._ratios.spans,), _spans_of)
            case Spans():
                return b.read(need, inputs.descriptions(), evidence.spans)
            case RowsBound(scheme, measure):
                bound = partial(evidence.rows_bound, scheme=scheme, measure=measure)
                return b.read(need, inputs.descriptions(), bound)
            case CutBound(words):
                return self._add_cut_bound(need, words)
            case LeastProduct():
                early = self._early
                described = (early.left.described, early.right.described) if early else inputs.describe_both()
                return b.read(need, self._ratios.least_product(described), _least)
            case WorstRatio():
                self._ratios.begin([need])
                reader = b.reader(need)
                assert reader is not None
                return reader
        raise TypeError(f"need: {need!r} is not known here")

    def _add_cut_bound(self, need: CutBound, words: Words) -> Reader:
        """By what cutting in one read finds, and a sample if it loses anything; else by the descriptions."""
        b, inputs = self._b, self._inputs
        self._release_early()
        left, right = inputs.both
        (batch, m, k), n = left.shape, right.shape[1]
        engine = word_engine(self._device, words, max(batch, right.shape[0]), m, k, n)
        if self._limit is not None or inputs.described or not self._fits_one_read(engine, words, sums=False):
            bound = partial(evidence.rows_bound, scheme=words, measure="componentwise")
            return b.read(need, inputs.descriptions(), bound)
        lost = b.cleared_on_host("lost", (1,), "I")
        early = self._split_early(engine, words, sums=False, lost=lost)
        raised = b.evidence(b.arrive(lost), _raised)
        inputs.run()
        found = [raised]
        if inputs.memory.evidence(raised):
            found.append(sample(b, left, right, (early.left.described, early.right.described)))
        return b.read(need, tuple(found), partial(_cut_bound, words=words, k=k))

    # Slices that are made before the plan is certain ----------------------------------------------------------------

    def _fits_one_read(self, engine: Engine, scheme: Scheme | Words, sums: bool) -> bool:
        """Whether both operands are split faster by one kernel each."""
        return all(engine.splits_in_one_read(scheme, side, x, sums) for side, x in self._inputs.rows.items())

    def _split_early(self, engine: Engine, scheme: Scheme | Words, sums: bool, **options: Any) -> _Early:
        """Split both operands in one read each."""
        left, right = (
            product.split_in_one_read(
                self._b, self._device, engine, scheme, x, side, sums, overlaps=side == "right", **options
            )
            for side, x in self._inputs.rows.items()
        )
        assert left is not None and right is not None
        self._early = _Early(scheme, engine, left, right)
        return self._early

    def _release_early(self) -> None:
        """Free them; their descriptions stay if they are whole."""
        if self._early is not None:
            for slices in (self._early.left, self._early.right):
                self._b.release(slices.planes, slices.mu)
                if slices.described.largest:
                    self._b.release(slices.described.fields)
        self._early = None

    # The product ----------------------------------------------------------------------------------------------------

    def multiply(self, plan: Plan, c: Any) -> None:
        """The product by a plan that is not native into c, shape (batch, m, n), its elements in order.

        Slices that were made early serve if they are of the plan's scheme; else they are freed. Once, of one `Work`.

        Raises
        ------
        ValueError
            If the limit of memory is too small for it.
        """
        assert plan.scheme is not None
        plan, inputs = replace(plan, workspace_limit=self._limit), self._inputs
        self._ratios.close()
        out = self._result(c)
        if out.size == 0:
            return
        if inputs.both[0].shape[2] == 0:
            self._b.add(Clear("main", out.at, out.nbytes))
            inputs.run()
            return
        left: product.Given
        right: product.Given
        if self._early is not None and self._early.scheme == plan.scheme:
            _, engine, left, right = self._early
        else:
            self._release_early()
            engine = engine_of(self._device, plan)
            left, right = inputs.both
            if inputs.described:
                left, right = (inputs.prepared.get(side) or inputs.describe(side) for side in SIDES)
        product.multiply(self._b, self._device, engine, plan, left, right, out)
        self._release_early()
        inputs.run()

    def native(self, c: Any) -> None:
        """The native product of the operands as they were given into c, whose rows are contiguous; once of a `Work`."""
        self._ratios.close()
        self._release_early()
        given = self._inputs.given
        native(self._b, given["left"], given["right"], self._dtype, self._result(c))
        self._inputs.run()

    def _result(self, c: Any) -> Array:
        out = self._b.given("c", view_of(c))
        self._inputs.memory.bind(out, c)
        return out

    # What reports and repeated calls ask ----------------------------------------------------------------------------

    def nonfinite(self, side: Side) -> npt.NDArray[np.int64]:
        """How many NaN and Inf each row has, shape (batch, rows); waits for the device."""
        found = self._inputs.description(side)
        self._inputs.run()
        description: Description = self._inputs.memory.evidence(found)
        return description.nonfinite

    def underflows(self, side: Side, words: Words) -> int:
        """Elements of an operand that lose more than their share of bits when they are cut; waits for the device."""
        inputs = self._inputs
        found = inputs.description(side)
        inputs.run()
        description: Description = inputs.memory.evidence(found)
        if not description.below(words.lowest).any():
            return 0
        arrival = count_underflows(self._b, inputs.describe(side), words)
        inputs.run()
        return int(inputs.memory.evidence(self._b.evidence(arrival, np.copy))[0])

    @property
    def workspace(self) -> int:
        """Most bytes held at a time so far, without what has a few bytes a row."""
        return self._b.whole().workspace

    def whole(self, facts: Collection[Need] | None = None) -> Program | None:
        """The program of what was done, for calls with other operands of these views.

        With `facts`, only what these and the result depend on. None if a step of it depends on what the host found of
        these operands, or if there are too many steps.
        """
        program = self._b.whole() if facts is None else trimmed(self._b.whole(), facts)
        return program if program.repeatable and not self._inputs.copied and len(program.steps) < _MOST_STEPS else None


def _itself(found: Any) -> Any:
    return found


def _native_in_range(left: Description, right: Description, dtype: str) -> bool:
    return native_bounds.in_range(left, right, dtype)


def _spans_of(ratio: Ratio) -> tuple[int, int]:
    return ratio.spans


def _raised(flag: npt.NDArray[np.uint32]) -> bool:
    return bool(flag[0])


def _cut_bound(lost: bool, sampled: Any = None, *, words: Words, k: int) -> float:
    return evidence.cut_bound(lost, sampled, words, k)


def _least(*found: float) -> float:
    return min(found)
