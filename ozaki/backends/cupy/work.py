"""One product on the device: facts found about its operands, and the product by a plan, as one program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ozaki import _bounds
from ozaki._description import Description
from ozaki._plan import Plan
from ozaki.backends.cupy import devices, evidence
from ozaki.backends.cupy.prepared import PreparedSlices
from ozaki.backends.cupy.program.arrays import Array, view_of
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.first_call import FirstCall
from ozaki.backends.cupy.program.program import Evidence, Program, Reader
from ozaki.backends.cupy.program.steps import Clear, Stream
from ozaki.backends.cupy.steps import native as native_steps
from ozaki.backends.cupy.steps import product
from ozaki.backends.cupy.steps.describing import describe, description_on_host
from ozaki.backends.cupy.steps.engines.choice import engine_of, word_engine
from ozaki.backends.cupy.steps.engines.engine import Engine
from ozaki.backends.cupy.steps.magnitudes import first_level, room_for_one_read
from ozaki.backends.cupy.steps.operands import Described, Slices
from ozaki.backends.cupy.steps.panels import Panel, Panels
from ozaki.backends.cupy.steps.proof import Lower, Wanted, least_product, lower_bound, worst_ratios
from ozaki.backends.cupy.steps.sample import sample
from ozaki.backends.cupy.steps.words import count_underflows
from ozaki.planning.facts import (
    CutBound,
    LeastProduct,
    NativeInRange,
    Need,
    Ratio,
    RowsBound,
    Sample,
    Spans,
    WorstRatio,
)
from ozaki.schemes import Scheme, Words

FEW_ROWS = 128
"""Rows of A that show whether a scheme is worth comparing in all of them."""

_MOST_STEPS = 4096
"""Of a program that is kept: beyond, as of large batches one by one, the host is soon ahead of the device."""

_SIDES: tuple[str, str] = product.SIDES


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

    def __init__(self, left: Any, right: Any, limit: int | None = None) -> None:
        """Operands are rows (batch, rows, k), or the slices of a prepared one.

        `limit`: bytes left for proofs and product, or None.
        """
        self._device, self._limit = devices.current(), limit
        self._b, self._memory = Builder(), FirstCall()
        self._rows: dict[str, Array] = {}
        self._real = dict(zip(_SIDES, (left, right), strict=True))
        self._prepared: dict[str, Slices] = {}
        for side, name, given in zip(_SIDES, "ab", (left, right), strict=True):
            if isinstance(given, PreparedSlices):
                self._prepared[side] = given.named(self._b, name)
                self._rows[side] = self._prepared[side].described.x
                slices = self._prepared[side]
                symbols = slices.described.x, slices.described.fields, slices.planes, slices.mu
                for symbol, real in zip(symbols, given.arrays, strict=True):
                    self._memory.bind(symbol, real)
            else:
                self._rows[side] = self._b.given(name, view_of(given))
                self._memory.bind(self._rows[side], given)
        self._described = {side: slices.described for side, slices in self._prepared.items()}
        self._on_host: dict[str, Evidence] = {}
        self._early: _Early | None = None
        self._stream: Stream = "main"
        self._level: str | None = None
        self._panels: Panels | None = None
        self._lower: Lower | None = None
        self._spans: Evidence | None = None
        self._foreign = False

    # Facts ----------------------------------------------------------------------------------------------------------

    def begin(self, needs: Sequence[Need], plan: Plan) -> None:
        """Begin to find these facts, `WorstRatio` of the first level or `RowsBound`, and split for a likely plan.

        The device splits at the same time, so that a product by that plan can begin at once when the facts say so.
        Nothing is done within a limit of memory.
        """
        if self._limit is not None:
            return
        assert plan.scheme is not None
        self._release_early()
        engine, raw = engine_of(self._device, plan), not self._described
        ratios = [need for need in needs if isinstance(need, WorstRatio)]
        self._stream = "proof"
        if raw and self._fits_one_read(engine, plan.scheme, sums=True):
            room = room_for_one_read(self._b, self._device, *self._both) if ratios else None
            self._split_early(engine, plan.scheme, sums=True, magnitudes=room)
            assert self._early is not None
            self._described = {"left": self._early.left.described, "right": self._early.right.described}
        left, right = (self._describe(side) for side in _SIDES)
        if not ratios:
            with self._b.on("answers", fork=True):
                for side in _SIDES:
                    self._description(side)
        self._run()
        if ratios:
            self._go_to(ratios[0].level)
            self._run()
        if self._early is None:
            x, y = engine.split(self._b, left, "left", plan.scheme), engine.split(self._b, right, "right", plan.scheme)
            self._early = _Early(plan.scheme, engine, x, y)
            self._run()
        self._add_ratios([need for need in ratios if need.level == ratios[0].level])
        for need in needs:
            if not isinstance(need, WorstRatio) and self._b.reader(need) is None:
                self._add(need)
        self._run()

    def measure(self, need: Need) -> Any:
        """The fact; waits for the device. One that was not begun is begun now.

        Raises
        ------
        ValueError
            If the limit of memory is too small for it.
        """
        with np.errstate(all="ignore"):
            reader = self._b.reader(need) or self._add(need)
            self._run()
            return self._memory.fact(reader)

    def _add(self, need: Need) -> Reader:
        """Add the steps that bring a fact to the host."""
        b, dtype = self._b, self._dtype
        match need:
            case Sample():
                return b.read(need, (sample(b, *self._both),), _itself)
            case NativeInRange():
                return b.read(need, self._descriptions(), partial(_native_in_range, dtype=dtype))
            case Spans() if self._spans is not None:
                return b.read(need, (self._spans,), _spans_of)
            case Spans():
                return b.read(need, self._descriptions(), evidence.spans)
            case RowsBound(scheme, measure):
                bound = partial(evidence.rows_bound, scheme=scheme, measure=measure)
                return b.read(need, self._descriptions(), bound)
            case CutBound(words):
                return self._add_cut_bound(need, words)
            case LeastProduct():
                return self._add_least_product(need)
            case WorstRatio():
                self._go_to(need.level)
                self._add_ratios([need])
                reader = b.reader(need)
                assert reader is not None
                return reader
        raise TypeError(f"need: {need!r} is not known here")

    def _add_cut_bound(self, need: CutBound, words: Words) -> Reader:
        """By what cutting in one read finds, and a sample if it loses anything; else by the descriptions."""
        b, k = self._b, self._rows["left"].shape[2]
        self._release_early()
        left, right = self._both
        batch = max(left.shape[0], right.shape[0])
        engine = word_engine(self._device, words, batch, left.shape[1], k, right.shape[1])
        if self._limit is not None or self._described or not self._fits_one_read(engine, words, sums=False):
            bound = partial(evidence.rows_bound, scheme=words, measure="componentwise")
            return b.read(need, self._descriptions(), bound)
        lost = b.cleared_on_host("lost", (1,), "I")
        self._split_early(engine, words, sums=False, lost=lost)
        raised = b.evidence(b.arrive(lost), _raised)
        self._run()
        if not self._memory.evidence(raised):
            return b.read(need, (raised,), partial(_cut_bound, words=words, k=k))
        assert self._early is not None
        sampled = sample(b, left, right, (self._early.left.described, self._early.right.described))
        return b.read(need, (raised, sampled), partial(_cut_bound, words=words, k=k))

    def _add_least_product(self, need: Need) -> Reader:
        """By the first level's products; in panels within the limit."""
        b, device = self._b, self._device
        if self._early is not None:
            left, right = self._early.left.described, self._early.right.described
        else:
            left, right = (self._describe(side) for side in _SIDES)
        level, found = first_level(left.k), []
        panels = Panels(device, level, left.x.shape, right.x.shape, self._limit)
        if not panels.one:
            self._close_proof()
        for _, x, y in self._in_panels(panels, left, right):
            lower = lower_bound(b, device, x, y, level)
            found.append(least_product(b, device, lower, x, y))
            lower.release(b)
        return b.read(need, tuple(found), _least)

    def _go_to(self, level: str) -> None:
        """Have the lower bound of a level of proof; frees that of the one before, once all facts of it are there."""
        if self._level == level:
            return
        self._close_proof()
        left, right = (self._describe(side) for side in _SIDES)
        panels = Panels(self._device, level, left.x.shape, right.x.shape, self._limit)
        self._level, self._panels = level, None if panels.one else panels
        if panels.one:
            with self._b.on(self._stream, fork=True):
                self._lower = self._lower_bound(left, right)

    def _lower_bound(self, left: Described, right: Described) -> Lower:
        assert self._level is not None
        ruled_out = self._level == "wide" and native_steps.native_obstacle("float64") is not None
        on_host = self._multiplied_on_host if ruled_out else None
        return lower_bound(self._b, self._device, left, right, self._level, on_host)

    def _multiplied_on_host(self, left: Array, right: Array) -> npt.NDArray[np.float64]:
        """The product of magnitudes (batch, rows, k) by NumPy; waits for them."""
        arrivals = [self._b.to_host(f"{x} on host", x.at, x.shape, x.char) for x in (left, right)]
        self._run()
        x, y = (self._memory.evidence(self._b.evidence(arrival, np.copy)) for arrival in arrivals)
        exact: npt.NDArray[np.float64] = np.matmul(x, y.swapaxes(1, 2))
        return exact

    def _add_ratios(self, needs: Sequence[WorstRatio]) -> None:
        """Begin to find worst ratios of the present level."""
        new = [need for need in dict.fromkeys(needs) if self._b.reader(need) is None]
        if not new:
            return
        if self._panels is not None:
            self._add_ratios_in_panels(self._panels, new)
            return
        assert self._lower is not None
        left, right = (self._describe(side) for side in _SIDES)
        wanted = [self._wanted(need, left, right) for need in new]
        with self._b.on(self._stream):
            found = worst_ratios(self._b, self._device, self._lower, left, right, wanted)
        for need, each in zip(new, found, strict=True):
            if isinstance(need.scheme, Words):
                self._b.read(need, (each, *self._descriptions()), _ratio_of_words)
            else:
                self._spans = self._spans or each
                self._b.read(need, (each,), _itself)

    def _wanted(self, need: WorstRatio, left: Described, right: Described) -> Wanted:
        """What the device compares."""
        m = left.x.shape[1]
        rows = min(m, FEW_ROWS) if need.few_rows else m
        if isinstance(need.scheme, Words):
            return Wanted(_bounds.word_terms(*self._described_on_host(), need.scheme), rows, 0.0)
        return Wanted(need.scheme, rows, _dropped(need, left.k))

    def _add_ratios_in_panels(self, panels: Panels, needs: Sequence[WorstRatio]) -> None:
        """The worst ratios of all panels, one after the other."""
        left, right = (self._describe(side) for side in _SIDES)
        m = left.x.shape[1]
        until = [min(m, FEW_ROWS) if need.few_rows else m for need in needs]
        found: list[list[Evidence]] = [[] for _ in needs]
        for panel, x, y in self._in_panels(panels, left, right):
            first, rows = panel.rows[0], x.x.shape[1]
            here = [i for i, to in enumerate(until) if to > first]
            if not here:
                continue
            wanted = []
            for i in here:
                need, some = needs[i], min(until[i] - first, rows)
                if isinstance(need.scheme, Words):
                    of_left, of_right = (
                        _some_rows(of, panel.of(side, self._rows[side].shape[0]))
                        for side, of in zip(_SIDES, self._described_on_host(), strict=True)
                    )
                    wanted.append(Wanted(_bounds.word_terms(of_left, of_right, need.scheme), some, 0.0))
                else:
                    wanted.append(Wanted(need.scheme, some, _dropped(need, left.k)))
            lower = self._lower_bound(x, y)
            for i, each in zip(here, worst_ratios(self._b, self._device, lower, x, y, wanted), strict=True):
                found[i].append(each)
            lower.release(self._b)
        for need, ratios in zip(needs, found, strict=True):
            self._b.read(need, (*ratios, *self._descriptions()), _ratio_of_panels)

    def _in_panels(
        self, panels: Panels, left: Described, right: Described
    ) -> Iterator[tuple[Panel, Described, Described]]:
        """Each panel, with these rows of both operands, whose descriptions are freed after it."""
        for panel in panels:
            x, y = (
                whole.some_rows(self._b, *panel.of(side, whole.x.shape[0]))
                for whole, side in zip((left, right), _SIDES, strict=True)
            )
            yield panel, x, y
            x.release_rows(self._b, left)
            y.release_rows(self._b, right)

    def _close_proof(self) -> None:
        """Wait for all that was begun, and free the lower bound."""
        self._run()
        self._memory.settle()
        if self._lower is not None:
            self._lower.release(self._b)
        self._lower = self._panels = self._level = None

    # Operands -------------------------------------------------------------------------------------------------------

    @property
    def _dtype(self) -> str:
        return "float64" if any(x.char == "d" for x in self._rows.values()) else "float32"

    @property
    def _both(self) -> tuple[Array, Array]:
        """The rows of both operands."""
        return self._rows["left"], self._rows["right"]

    def _describe(self, side: str) -> Described:
        """The whole description of an operand, made once."""
        if side not in self._described:
            self._described[side] = describe(self._b, self._device, self._rows[side])
        return self._described[side]

    def _description(self, side: str) -> Evidence:
        """The description of an operand on the host, begun once."""
        if side not in self._on_host:
            self._on_host[side] = description_on_host(self._b, self._describe(side))
        return self._on_host[side]

    def _descriptions(self) -> tuple[Evidence, Evidence]:
        return self._description("left"), self._description("right")

    def _described_on_host(self) -> tuple[Description, Description]:
        """Both descriptions; waits for them."""
        left, right = self._descriptions()
        self._run()
        return self._memory.evidence(left), self._memory.evidence(right)

    def _fits_one_read(self, engine: Engine, scheme: Scheme | Words, sums: bool) -> bool:
        """Whether both operands are split faster by one kernel each."""
        return all(engine.splits_in_one_read(scheme, side, x, sums) for side, x in self._rows.items())

    def _split_early(self, engine: Engine, scheme: Scheme | Words, sums: bool, **options: Any) -> None:
        """Split both operands in one read each."""
        slices = [
            product.split_in_one_read(
                self._b, self._device, engine, scheme, x, side, sums, overlaps=side == "right", **options
            )
            for side, x in self._rows.items()
        ]
        left, right = slices
        assert left is not None and right is not None
        self._early = _Early(scheme, engine, left, right)

    def _release_early(self) -> None:
        """Free slices of another plan; their descriptions stay if they are whole."""
        if self._early is not None:
            for slices in (self._early.left, self._early.right):
                self._b.release(slices.planes, slices.mu)
                if slices.described.largest:
                    self._b.release(slices.described.fields)
        self._early = None

    # The product ----------------------------------------------------------------------------------------------------

    def multiply(self, plan: Plan, c: Any) -> None:
        """The product by a plan that is not native into c, shape (batch, m, n), its elements in order.

        Raises
        ------
        ValueError
            If the limit of memory is too small for it.
        """
        assert plan.scheme is not None
        plan = replace(plan, workspace_limit=self._limit)
        self._close_proof()
        out = self._result(c)
        left: product.Given
        right: product.Given
        if 0 in c.shape:
            return
        if self._rows["left"].shape[2] == 0:
            self._b.add(Clear("main", out.at, out.nbytes))
            self._run()
            return
        if self._early is not None and self._early.scheme == plan.scheme:
            _, engine, left, right = self._early
        else:
            self._release_early()
            engine = engine_of(self._device, plan)
            if self._described:
                left, right = (self._prepared.get(side) or self._describe(side) for side in _SIDES)
            else:
                left, right = self._both
        product.multiply(self._b, self._device, engine, plan, left, right, out)
        self._release_early()
        self._run()

    def native(self, a: Any, b: Any, dtype: str, c: Any) -> None:
        """The native product c = a b of matrices or stacks of them as they were given, in `dtype`.

        Columns of c are neighbours in memory.
        """
        self._close_proof()
        self._release_early()
        x, y = self._as_given("left", a), self._as_given("right", b)
        native_steps.native(self._b, x, y, dtype, self._result(c))
        self._run()

    def _as_given(self, side: str, x: Any) -> Array:
        """An operand in its own shape, if it lies where its rows do; else what is run is of use for this call alone."""
        rows, real = self._rows[side], self._real[side]
        if not isinstance(real, PreparedSlices) and x.data.ptr == real.data.ptr:
            return Array(rows.buffer, 0, *view_of(x))
        self._foreign = True
        given = self._b.given(side, view_of(x))
        self._memory.bind(given, x)
        return given

    def _result(self, c: Any) -> Array:
        out = self._b.given("c", view_of(c))
        self._memory.bind(out, c)
        return out

    def _run(self) -> None:
        """Give the device the steps that were added."""
        self._memory.run(self._b.take())

    # What reports and repeated calls ask ----------------------------------------------------------------------------

    def nonfinite(self, side: str) -> npt.NDArray[np.int64]:
        """How many NaN and Inf each row has, shape (batch, rows); waits for the device."""
        found = self._description(side)
        self._run()
        description: Description = self._memory.evidence(found)
        return description.nonfinite

    def underflows(self, words: Words) -> tuple[int, int]:
        """Elements of both operands that lose more than their share of bits when they are cut; waits for the device."""
        counts = []
        for side, description in zip(_SIDES, self._described_on_host(), strict=True):
            count = 0
            if description.below(words.lowest).any():
                arrival = count_underflows(self._b, self._describe(side), words)
                self._run()
                count = int(self._memory.evidence(self._b.evidence(arrival, np.copy))[0])
            counts.append(count)
        left, right = counts
        return left, right

    @property
    def workspace(self) -> int:
        """Most bytes held at a time so far, without what has a few bytes a row."""
        return self._b.whole().workspace

    def whole(self) -> Program | None:
        """The program of all that was done, for calls with other operands of these views.

        None if a step of it depends on what the host found of these operands, or if there are too many steps.
        """
        program = self._b.whole()
        return program if program.repeatable and not self._foreign and len(program.steps) < _MOST_STEPS else None


def _dropped(need: WorstRatio, k: int) -> float:
    """Worth of the digit pairs that are left out of an entry, in image units."""
    assert isinstance(need.scheme, Scheme)
    return k * need.scheme.drop if need.drops else 0.0


def _some_rows(of: Description, at: tuple[tuple[int, int], tuple[int, int]]) -> Description:
    (batch, end), (first, last) = at
    fields = of.top, of.peak, of.magnitudes, of.squares, of.bottom, of.nonfinite
    return Description(of.k, *(field[batch:end, first:last] for field in fields))


def _itself(found: Any) -> Any:
    return found


def _native_in_range(left: Description, right: Description, dtype: str) -> bool:
    return _bounds.native_in_range(left, right, dtype)


def _spans_of(ratio: Ratio) -> tuple[int, int]:
    return ratio.spans


def _raised(flag: npt.NDArray[np.uint32]) -> bool:
    return bool(flag[0])


def _cut_bound(lost: bool, sampled: Any = None, *, words: Words, k: int) -> float:
    return evidence.cut_bound(lost, sampled, words, k)


def _least(*found: float) -> float:
    return min(found)


def _ratio_of_words(ratio: Ratio, left: Description, right: Description) -> Ratio:
    return evidence.with_spans(ratio.worst, left, right)


def _ratio_of_panels(*found: Any) -> Ratio:
    return evidence.ratio_of_panels(found)
