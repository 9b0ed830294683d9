"""One call: the operands checked, the choices made, the steps run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import inf, prod
from typing import Any, Literal

from ozaki import _bounds, _word_bounds
from ozaki._accuracy import Accuracy, default_accuracy
from ozaki._checks import (
    check_choices,
    check_native,
    check_out,
    check_proven,
    check_runs,
)
from ozaki._choices import Choices
from ozaki._description import Described, Sides
from ozaki._measured import Measured
from ozaki._operands import Shapes, Side, as_array, dtype_of, left_rows, right_rows, shapes
from ozaki._plan import Plan
from ozaki._plan_ahead import named_scheme, plan_for_any, why_named
from ozaki._prepared import Prepared
from ozaki._proof import EVERY, SAMPLE
from ozaki._report import Report
from ozaki._search import Search, choose_a_priori, likely_schemes
from ozaki._ways import NATIVE_ASKED_FOR, OUT_OF_RANGE, Ways, names_of, native_bound, native_plan
from ozaki.backends import Backend, backend_of
from ozaki.schemes import Digits, Scheme, Words
from ozaki.schemes.digits import MAX_DIGITS
from ozaki.schemes.named import integer_scheme

_SIDES: tuple[Side, Side] = ("left", "right")


class Call:
    """The operands of one product, checked, and what has been found out about them.

    Of a stack, each matrix has a `normwise` error of its own, so they are not folded into one.
    """

    def __init__(self, a: Any, b: Any, normwise: bool = False) -> None:
        self.backend: Backend = backend_of(("a", a), ("b", b))
        self.a, self.b = (
            x if isinstance(x, Prepared) else as_array(name, x, self.backend) for name, x in (("a", a), ("b", b))
        )
        self.dtype = max(dtype_of("a", self.a), dtype_of("b", self.b))  # the names sort by width
        self.sizes = shapes(tuple(self.a.shape), tuple(self.b.shape))
        if normwise or isinstance(self.a, Prepared):  # whose matrices stand one by one
            self.sizes = replace(self.sizes, fold=False)
        self._views: dict[Side, Any] = {}
        self._copied = 0
        self._described: dict[Side, Described] = {}
        self._ahead: tuple[Scheme | Words | None, dict[Side, Any]] | None = None
        self._search: Search | None = None
        self._right_again: Callable[[], bool] | None = None
        self._still: list[Callable[[], bool]] = []  # what else a call done again asks
        self._native_again: Callable[..., object] | None = None
        self._native_by_data = False  # a native product, if it runs, does so for what these operands are
        self._unforeseen = False  # they were taken for ordinary ones

    def described(self, side: Side) -> Described:
        """The description of an operand, made once."""
        operand = self.a if side == "left" else self.b
        if isinstance(operand, Prepared):
            return operand.slices.described  # type: ignore[no-any-return]
        if side not in self._described:
            self._described[side] = self.backend.describe(self._rows(side))
        return self._described[side]

    def plan(self, choices: Choices, full: bool = False) -> Plan:
        """The plan for these operands; `full` proves a bound for them where a named scheme needs none."""
        for name, x in (("a", self.a), ("b", self.b)):
            if isinstance(x, Prepared):
                raise ValueError(f"plan: missing; {name} is prepared for a plan, so give plan={name}.plan")
        check_choices(choices, self.backend)
        k = self.sizes.shape[1]
        target = choices.target(k)
        if (named := named_scheme(choices, self.dtype, k, self.backend)) is not None:
            return self._named(named, target, choices, full)
        assert isinstance(choices.scheme, str)
        bound = native_bound(self.backend, k, self.dtype)
        native = partial(native_plan, self.sizes, self.dtype, target, bound, a_priori=target is None)
        if choices.scheme == "native":
            check_native(self.dtype, target, choices, bound)
            if target is not None and not self._in_range:
                raise ValueError(f"accuracy: {OUT_OF_RANGE} if the product is native; use scheme='auto'")
            obstacle = self.backend.native_obstacle(self.dtype)
            why = f"{NATIVE_ASKED_FOR}; {obstacle}" if obstacle else NATIVE_ASKED_FOR
            return native(why=why)
        ways = Ways.of(self.backend, k, self.dtype, choices, bound)
        slices = None
        if ways.words and not self._empty:
            plan, slices = self._proven_first(ways, choices, full)
            if plan is not None:
                return plan
        way, why = self._fastest(ways, slices)
        if isinstance(way, Words) and not self._empty:
            plan = self._plan(way, ways.target, inf, choices, why)
            if (proven := self._proven_at_a_look(plan, way, ways.words_tolerance)) <= ways.words_tolerance:
                return replace(plan, bound=_bounds.with_rounding(proven, self.dtype))
            self._ahead, self._native_by_data, ways = None, True, ways.without_words()
            way, why = self._fastest(ways)
        if way == "native":
            return native(why=why)
        names = names_of(integer_scheme(choices.scheme, k))
        if self._empty:
            chosen = choose_a_priori(Accuracy("row-column", 1.0), max(k, 1), names).scheme
            return self._plan(chosen, ways.target, 0.0, choices, "an empty product")
        ahead = self._goes_ahead(choices, full)
        search = self._begun(ways.target, names, choices, ahead)
        choice = search.choose()
        if ahead:
            self._search = search
            _note_lately(self._kind(ways.target, names), choice.scheme)
        way, why = self._fastest(replace(ways, words=()), choice.scheme)
        if way == "native":  # these operands need more than ordinary ones
            self._native_by_data = True
            return native(why=why)
        return self._plan(choice.scheme, ways.target, choice.bound, choices, why)

    def _fastest(self, ways: Ways, slices: Scheme | None = None) -> tuple[Words | Literal["native", "slices"], str]:
        """As `Ways.fastest`, but for a native product that proves nothing."""
        way, why = ways.fastest(self.backend, self.sizes, self.dtype, slices)
        if way == "native" and ways.named and not self._in_range:
            return ways.without_native().fastest(self.backend, self.sizes, self.dtype, slices)
        return way, why

    @property
    def _in_range(self) -> bool:
        """Whether B5 holds for these operands."""
        left, right = (self.described(side).on_host for side in _SIDES)
        return _bounds.native_in_range(left, right, self.dtype)

    def _proven_first(self, ways: Ways, choices: Choices, full: bool) -> tuple[Plan | None, Scheme | None]:
        """The plan of digits, if they are fastest for ordinary operands and a first look finds these to be such.

        Else the slices that these operands will need at least, where that is seen.
        """
        names, k = names_of("auto"), self.sizes.shape[1]
        digits = likely_schemes(ways.first, k, names)[0]
        way, why = self._fastest(ways, digits)
        if way != "slices" or not isinstance(digits, Digits) or ways.first.measure != "componentwise":
            return None, None
        more = replace(digits, count=digits.count + 1)
        some = min(_GLANCE, k)
        sample = self._described_some(some)
        least = self.backend.read_least(sample, sample)

        def ordinary() -> bool:
            return _SURELY * _bounds.usual_of(*least(), some, digits, k) <= ways.first.tolerance

        self._native_by_data = True
        if not ordinary():
            self._still.append(lambda: not ordinary())
            return None, more
        ahead = self._goes_ahead(choices, full)
        search = self._begun(ways.first, names, choices, ahead)
        if not search.likely_proven():
            self._unforeseen = True
            return None, more
        choice = search.choose()
        self._still.append(ordinary)
        if ahead:
            self._search = search
        return self._plan(choice.scheme, ways.first, choice.bound, choices, why), None

    def _described_some(self, some: int) -> Sides:
        """Descriptions of the first inner indices."""
        left, right = (self.backend.describe(self._rows(side)[..., :some]) for side in _SIDES)
        return left, right

    def _goes_ahead(self, choices: Choices, full: bool) -> bool:
        """The operands are split while a device looks at them."""
        return self.backend.waits and choices.workspace_limit is None and not full

    def _begun(self, target: Accuracy, names: tuple[str, ...], choices: Choices, ahead: bool) -> Search:
        """A search for the fewest slice products; `ahead` splits while the device has yet to say what it finds."""
        search = Search(self.backend, self.sizes.shape[1], target, names)
        if not ahead:
            search.begin(self.described("left"), self.described("right"))
            return search
        before, last = _lately.get(self._kind(target, names), (None, None))
        likely = last if last is not None and last == before else search.likely
        plan = self._plan(likely, target, inf, choices, "")
        meanwhile = None if self._split_in_one_read(plan) else partial(self._split_ahead, plan)
        search.begin(self.described("left"), self.described("right"), meanwhile)
        return search

    def _kind(self, target: Accuracy, names: tuple[str, ...]) -> _Kind:
        return self.sizes, self.dtype, target, names

    def _split_in_one_read(self, plan: Plan) -> bool:
        """Describe and split at once for the most likely plan, where that is faster."""
        if self._described:
            return False
        slices = self.backend.split_in_one_read(plan, self._rows("left"), self._rows("right"))
        if slices is None:
            return False
        self._ahead = plan.scheme, dict(zip(_SIDES, slices, strict=True))
        self._described = {side: each.described for side, each in self._ahead[1].items()}
        return True

    def _split_ahead(self, plan: Plan) -> None:
        """Split for the most likely plan."""
        self._ahead = plan.scheme, {side: self.backend.split(self.described(side), side, plan) for side in _SIDES}

    @property
    def _empty(self) -> bool:
        return 0 in (*self.sizes.stack, self.sizes.shape[1])

    def _named(self, scheme: Scheme | Words, target: Accuracy | None, choices: Choices, full: bool) -> Plan:
        if target is None and not full:
            return plan_for_any(self.sizes, self.dtype, scheme, None, choices, why_named(scheme))
        goal = target or default_accuracy(self.dtype, self.sizes.shape[1])
        bound = self._prove(scheme, goal)
        check_proven(scheme, bound, target, goal.measure, "these operands")
        return self._plan(scheme, goal, bound, choices, why_named(scheme))

    def _proven_at_a_look(self, plan: Plan, words: Words, tolerance: float) -> float:
        """What words prove without a product; a call done again asks whether that is still enough, or not."""
        proven = self._by_sample(plan, words) or self._by_rows(words)
        if (bound := proven()) <= tolerance:
            self._right_again = lambda: proven() <= tolerance
        else:
            self._still.append(lambda: proven() > tolerance)
        return bound

    def _by_sample(self, plan: Plan, words: Words) -> Callable[[], float] | None:
        """Proven of what is found while words are cut, and a description of some inner indices.

        Nothing where they are not cut in one read.
        """
        k, backend = self.sizes.shape[1], self.backend
        slices = None
        if plan.workspace_limit is None:
            slices = backend.split_in_one_read(plan, self._rows("left"), self._rows("right"))
        if slices is None:
            return None
        self._ahead = words, dict(zip(_SIDES, slices, strict=True))
        some = max(_SAMPLE, k // EVERY * SAMPLE)
        least = backend.read_least(self._described_some(some), (slices[0].described, slices[1].described), words)
        return lambda: _bounds.words_by_sample(*least(), min(some, k), words, k)

    def _by_rows(self, words: Words) -> Callable[[], float]:
        """Proven of the whole descriptions."""
        reads = [self.backend.read(self.described(side)) for side in _SIDES]

        def proven() -> float:
            left, right = (read() for read in reads)
            return _bounds.words_by_rows(left, right, words)

        return proven

    def _prove(self, scheme: Scheme | Words, target: Accuracy) -> float:
        """The bound of a scheme for these operands, before the rounding; as sharp as the target needs."""
        if self._empty:
            return 0.0
        measured = Measured(self.backend, self.described("left"), self.described("right"), target.measure)
        while (bound := measured.bound(scheme)) > target.tolerance and measured.sharpen(MAX_DIGITS):
            pass
        return bound

    def _plan(self, scheme: Scheme | Words, target: Accuracy, bound: float, choices: Choices, why: str) -> Plan:
        proven = _bounds.with_rounding(bound, self.dtype)
        sizes, engine, limit = self.sizes, choices.engine, choices.workspace_limit
        return Plan(sizes.shape, sizes.batch, self.dtype, scheme, target, proven, False, engine, limit, why)

    def check_plan(self, plan: Plan) -> None:
        """The operands fit the plan."""
        if (plan.shape, plan.batch) != (self.sizes.shape, self.sizes.batch):
            raise ValueError(
                f"plan: made for batch {plan.batch} and (m, k, n) = {plan.shape}, "
                f"but a and b have batch {self.sizes.batch} and {self.sizes.shape}"
            )
        if plan.dtype != self.dtype:
            raise ValueError(f"plan: made for {plan.dtype}, but a and b give {self.dtype}")
        for name, x, side in (("a", self.a, "left"), ("b", self.b, "right")):
            if isinstance(x, Prepared):
                if x.side != side:
                    raise ValueError(f"{name}: prepared as {x.side} operand; prepare it as {side}")
                same = (x.plan.scheme, x.plan.engine, x.plan.shape) == (plan.scheme, plan.engine, plan.shape)
                same = same and self.backend.same_slices(x.plan, plan)
                if not same or x.slices.described.x.shape[0] not in (1, prod(plan.batch)):
                    raise ValueError(f"{name}: prepared for another plan; prepare it with this one")
        check_choices(Choices(engine=plan.engine, workspace_limit=plan.workspace_limit), self.backend)
        check_runs(plan.scheme, self.backend)

    def check_out(self, out: Any) -> None:
        """`out`, where there is one, can take the result."""
        if out is not None:
            check_out(out, self.sizes.result, self.dtype, self.backend)

    def result(self, out: Any) -> Any:
        """Where the result is computed, shape (batch, m, n): apart from the operands, which the report looks at too."""
        if out is None:
            return self.backend.empty(self.sizes.stack, self.dtype)
        operands = [x.slices.described.x if isinstance(x, Prepared) else x for x in (self.a, self.b)]
        if not self.backend.contiguous(out) or any(self.backend.overlap(out, x) for x in operands):
            return self.backend.empty(self.sizes.stack, self.dtype)
        return out.reshape(self.sizes.stack)

    def returned(self, c: Any, out: Any) -> Any:
        """The result in its own shape, in `out` if there is one."""
        if c.shape != self.sizes.result:
            c = c.reshape(self.sizes.result)
        if out is None:
            return c
        if not self.backend.overlap(out, c):
            out[...] = c
        return out

    def run(self, plan: Plan, c: Any, given: bool) -> int:
        """Compute the product into c by a plan, given by the caller or not; returns the bytes of workspace."""
        if given or (plan.a_priori and not self._native_by_data):
            self._right_again = _always
        if 0 in self.sizes.stack:
            return 0
        if self.sizes.shape[1] == 0:
            c[...] = 0
            return 0
        if plan.scheme is None:
            self.backend.native(self._rows("left"), self._rows("right"), self.dtype, c)
            if self._right_again is not None:
                self._native_again = partial(_native_again, self.backend, self.sizes, self.dtype)
                self._right_again = partial(_without_obstacle, self.backend, self.dtype)
            return 0
        nothing_known = not self._described and self._ahead is None
        if nothing_known and not isinstance(self.a, Prepared) and not isinstance(self.b, Prepared):
            rows = self._rows("left"), self._rows("right")
            return self._copied + self.backend.product(self._within_limit(plan), *rows, c)
        if self._ahead is not None and self._ahead[0] != plan.scheme:
            self._ahead = None  # frees the memory
        elif self._ahead is not None and self._search is not None and self._search.plain:
            self._search.keep()
            self._right_again = partial(self._search.finds, plan.scheme)
        left, right = self._operand("left"), self._operand("right")
        return self._copied + self.backend.execute(self._within_limit(plan), left, right, c)

    @contextmanager
    def recorded(self, out: Any, choices: tuple[Any, ...], c: Any) -> Iterator[None]:
        """Let calls like this one run what is run here into c, where that is worth it."""
        large = prod(self.sizes.batch) * prod(self.sizes.shape) > _LARGEST_AGAIN
        if self.backend.name != "cupy" or self._empty or large:
            yield
            return
        from ozaki.backends import _again
        from ozaki.backends._tape import Tape

        given = *_again.arrays_of(self.a), *_again.arrays_of(self.b), c if out is None else out
        read = [
            x
            for side, operand in zip(_SIDES, (self.a, self.b), strict=True)
            for x in (_again.arrays_of(operand) if isinstance(operand, Prepared) else (self._rows(side),))
        ]
        tape = Tape()
        with tape.recording(*read, c):
            yield
        *same, into_out = (x.data.ptr == y.data.ptr for x, y in zip((*read, c), given, strict=True))
        if self._right_again is None or self._unforeseen or not into_out:
            return
        if self._native_again or (tape.complete and all(same)):
            right_again = partial(_all_hold, self._right_again, *self._still)
            done = _again.Done(self._native_again or tape, right_again, self.sizes.result, c.dtype)
            _again.remember(self.a, self.b, out, choices, done)

    def _rows(self, side: Side) -> Any:
        """An operand as rows, a copy of it where no view has these shapes."""
        if side not in self._views:
            operand, rows = (self.a, left_rows) if side == "left" else (self.b, right_rows)
            self._views[side] = view = rows(operand, self.sizes)
            if not self.backend.overlap(view, operand):
                self._copied += view.nbytes
        return self._views[side]

    def _within_limit(self, plan: Plan) -> Plan:
        """The plan with what copies of the operands leave of its limit."""
        if plan.workspace_limit is None or not self._copied:
            return plan
        rest = replace(plan, workspace_limit=plan.workspace_limit - self._copied)
        prepared = isinstance(self.a, Prepared) or isinstance(self.b, Prepared)
        if self._copied >= plan.workspace_limit or (prepared and not self.backend.same_slices(plan, rest)):
            raise ValueError(
                f"workspace_limit: {plan.workspace_limit} bytes are too few; copies of operands that are broadcast or "
                f"stand in no order take {self._copied}"
            )
        return rest

    def _operand(self, side: Side) -> Any:
        """What there is of an operand to compute with: slices, or a description."""
        operand = self.a if side == "left" else self.b
        if isinstance(operand, Prepared):
            return operand.slices
        return self.described(side) if self._ahead is None else self._ahead[1][side]

    def report(self, plan: Plan, workspace: int, given: bool) -> Report:
        """What ran; the bound of a plan that may come from other operands is proven anew for these."""
        scheme, bound, nonfinite = plan.scheme, plan.bound, None
        if not self._empty and (scheme is None or not plan.a_priori):
            if scheme is None and not self._in_range:
                bound = inf
            elif scheme is not None and given:
                bound = _bounds.with_rounding(self._prove(scheme, plan.target), self.dtype)
            both = self.described("left"), self.described("right")
            nonfinite = sum(int((x.on_host.nonfinite > 0).sum()) for x in both)
        underflows = estimate = None
        if isinstance(scheme, Words):
            underflows = sum(self.backend.underflows(self.described(side), scheme) for side in _SIDES)
            likely = _word_bounds.relative(scheme, max(self.sizes.shape[1], 1), probable=True)
            estimate = _bounds.with_rounding(likely, self.dtype)
        return Report(
            bound=bound,
            measure=plan.target.measure,
            scheme="native" if scheme is None else scheme.name,
            slices=plan.slices,
            products=plan.products,
            engine=self.backend.engine_name(plan),
            native=plan.native,
            why=plan.why,
            workspace_bytes=workspace,
            reproducible=plan.reproducible,
            nonfinite=nonfinite,
            underflows=underflows,
            estimate=estimate,
        )


_Kind = tuple[Shapes, str, Accuracy, tuple[str, ...]]
_Twice = tuple[Scheme | None, Scheme | None]

_lately: dict[_Kind, _Twice] = {}
"""What the last two plans for products of a kind took; if the same, their operands are split for it meanwhile."""


def _note_lately(kind: _Kind, scheme: Scheme) -> None:
    _, last = _lately.get(kind, (None, None))
    if len(_lately) >= _MOST_KINDS:
        _lately.clear()
    _lately[kind] = last, scheme


_MOST_KINDS = 1024


def _always() -> bool:
    """What is run does not depend on the operands' elements."""
    return True


def _all_hold(*conditions: Callable[[], bool]) -> bool:
    return all(holds() for holds in conditions)


def _without_obstacle(backend: Backend, dtype: str) -> bool:
    """The environment still lets the native product be what it was."""
    return backend.native_obstacle(dtype) is None


def _native_again(backend: Backend, sizes: Shapes, dtype: str, a: Any, b: Any, c: Any) -> None:
    backend.native(left_rows(a, sizes), right_rows(b, sizes), dtype, c.reshape(sizes.stack))


_SAMPLE = 1024
"""Inner indices that are described for words, at least."""

_GLANCE = 256
"""Of which the sums show whether operands are ordinary ones."""

_SURELY = 1.5
"""Times what they let expect: to find out that a proof fails takes longer than it may save."""

_LARGEST_AGAIN = 2**39
"""Multiplications beyond which the host's time is nothing, and memory much."""
