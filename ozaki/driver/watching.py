"""What ran, for those who want to know: the logger "ozaki", and recordings that are open in this context.

Plans are logged at INFO, and why they were chosen at DEBUG. What products inside functions of `ozaki.linalg` do is
logged at DEBUG alone: of these functions INFO says what they reached. Where nobody listens, a product pays for a look
at one context variable, and for one question to the logger.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from ozaki.account import Ran, proven_in_words, way_of
from ozaki.multiprecision.numbers import Numbers
from ozaki.process.blocks import Blocks
from ozaki.records.formats import is_multiprecision
from ozaki.records.plan import Chosen, Plan
from ozaki.records.report import Report, power_of_two, priced, rounded_up, several

if TYPE_CHECKING:
    from ozaki.driver.recording import Block
    from ozaki.planning.facts import Facts
    from ozaki.planning.question import Question
    from ozaki.records.combination import Combination

LOGGER = logging.getLogger("ozaki")
LOGGER.addHandler(logging.NullHandler())

RECORDINGS: Blocks[Block] = Blocks("ozaki.recordings")
"""The blocks of recordings that are open in this context."""

_Function = TypeVar("_Function", bound=Callable[..., Any])


class _Call(NamedTuple):
    """A call of a public function that multiplies by others.

    Attributes
    ----------
    name : of the function
    solves : whether its result has a bound of its own, so that its products are steps alone
    inner : whether results that are reached now are steps, too
    """

    name: str
    solves: bool
    inner: bool = False


_call: ContextVar[_Call | None] = ContextVar("ozaki.call", default=None)
"""The public function that the caller called, while it runs others."""


def named(name: str, solves: bool = False) -> Callable[[_Function], _Function]:
    """Decorate a public function, or what runs in its place: products inside it are logged and recorded by its name.

    The function that was called first counts. `solves` says that it calls `reached` with a bound of its result.
    """

    def decorate(function: _Function) -> _Function:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if _call.get() is not None:
                return function(*args, **kwargs)
            token = _call.set(_Call(name, solves))
            try:
                return function(*args, **kwargs)
            finally:
                _call.reset(token)

        return call  # type: ignore[return-value]

    return decorate


@contextmanager
def inside() -> Iterator[None]:
    """What functions of linear algebra reach in this block is a step of the one that was called, and not recorded."""
    call = _call.get()
    token = _call.set(_Call("" if call is None else call.name, solves=True, inner=True))
    try:
        yield
    finally:
        _call.reset(token)


def watching() -> bool:
    """Whether anybody wants to know what runs now."""
    return bool(RECORDINGS.here()) or LOGGER.isEnabledFor(logging.INFO)


# Products ------------------------------------------------------------------------------------------------------------


class Watched(NamedTuple):
    """A product that somebody wants to know of.

    Attributes
    ----------
    function : the public function that multiplies
    a, b : the operands, which have shapes
    combination : the expression that is computed in place of the product, or None
    dtype : the format that the caller asked for, or None
    """

    function: str
    a: Any
    b: Any
    combination: Combination | None = None
    dtype: str | None = None

    def chosen(self, chosen: Chosen, question: Question | None = None, facts: Facts | None = None) -> None:
        """Log a plan that is about to run, at DEBUG with what the choice rests on.

        That is the question and the facts that it answers; without a question the caller gave the plan.
        """
        call = _call.get()
        level = logging.DEBUG if call is not None and call.solves else logging.INFO
        if not LOGGER.isEnabledFor(level):
            return
        name, plan = self._name, chosen.plan
        LOGGER.log(level, "%s: %s", name, _Line(plan, self._bound(chosen)))
        if not LOGGER.isEnabledFor(logging.DEBUG):
            return
        if plan.why:
            LOGGER.debug("%s: %s", name, plan.why)
        if facts is not None:
            for need, value in facts.items():
                LOGGER.debug("%s: fact %s: %s", name, need, value)
        if question is not None and facts is not None:
            from ozaki.planning.weigh import weigh

            for candidate in weigh(replace(question, dtype=plan.dtype), facts, plan):
                LOGGER.debug("%s: weighed %s", name, candidate)

    def ran(self, chosen: Chosen, report: Report | None = None) -> None:
        """Enter the product into all recordings that are open, with the bound of its report if there is one."""
        blocks = RECORDINGS.here()
        if not blocks:
            return
        call, plan, bound = _call.get(), chosen.plan, self._bound(chosen)
        if report is not None:
            bound = None if report.rounded_once is False else report.bound
        dtype = "int64" if self.dtype == "int64" else plan.dtype
        if is_multiprecision(dtype) and 2 in plan.parts:
            dtype = f"complex {dtype}"
        how = way_of(plan.native, plan.slices, "" if plan.scheme is None else plan.scheme.name)
        ran = Ran(how, dtype, plan.target.measure, bound, plan.target.exponent)
        for block in blocks:
            if call is not None and call.solves:
                block.recording.count_inside()
            else:
                block.recording.account.add(self._name, tuple(self.a.shape), tuple(self.b.shape), ran)

    def ran_before(self, chosen: Chosen) -> None:
        """Log and enter a product by the program of an earlier call."""
        self.chosen(chosen)
        LOGGER.debug("%s: by the program of an earlier call, since the plan has its scheme", self._name)
        self.ran(chosen)

    @property
    def _name(self) -> str:
        """The public function that the caller called."""
        call = _call.get()
        return self.function if call is None else call.name

    def _bound(self, chosen: Chosen) -> float | None:
        """The bound of the result: of an expression that is rounded more than once, none is known."""
        of_product = self.combination is not None and not chosen.plan.rounds_once(self.combination)
        return None if of_product else chosen.bound


class _Line(NamedTuple):
    """A plan as a line of a log, which is made only if a handler prints it."""

    plan: Plan
    bound: float | None

    def __str__(self) -> str:
        plan, bound = self
        batch, (m, k, n) = "".join(f"{size} x " for size in plan.batch), plan.shape
        what = "native product" if plan.scheme is None else priced(plan.slices, plan.scheme.name, plan.products)
        proven = proven_in_words(plan.target.measure, bound, plan.target.exponent)
        before = ""
        if bound is not None and 0 < bound < inf and plan.scheme is not None and bound == plan.bound:
            before = f" ({power_of_two(plan.unrounded_bound, plan.target.exponent)} before the rounding)"
        return f"{batch}({m} x {k}) ({k} x {n}), {plan.dtype}: {what}" + (f"; {proven}{before}" if proven else "")


# Linear algebra ------------------------------------------------------------------------------------------------------


def step(text: str, *values: Any) -> None:
    """Log a step of the function that was called, at DEBUG; a float among the values is a bound, and is rounded up."""
    if LOGGER.isEnabledFor(logging.DEBUG):
        call = _call.get()
        shown = (rounded_up(x) if isinstance(x, float) and x < inf else x for x in values)
        LOGGER.debug("%s: " + text, "" if call is None else call.name, *shown)


_Result = TypeVar("_Result")


def reached(found: _Result, left: tuple[int, ...], x: Any, measure: str) -> _Result:
    """Log and record a result of linear algebra, and return it.

    Parameters
    ----------
    found : the result, with `iterations` and `error_bound`, of a stack an array of bounds, of which the largest counts
    left : shape of what is multiplied by x in the equation that the result solves
    x : an array of the result
    measure : of the bound
    """
    call, numbers = _call.get(), isinstance(x, Numbers)
    if not watching() or (call is not None and call.inner):
        return found
    name = "" if call is None else call.name
    dtype = f"{'complex ' * x.is_complex}mp{x.bits}" if numbers else str(x.dtype)
    bound = float(np.max(found.error_bound, initial=0.0))  # type: ignore[attr-defined]
    ran = Ran(several(found.iterations, "correction"), dtype, measure, bound)  # type: ignore[attr-defined]
    sizes = " ".join(f"({' x '.join(map(str, shape))})" for shape in (left, x.shape))
    LOGGER.info("%s: %s, %s: %s; %s", name, sizes, dtype, ran.how, proven_in_words(measure, ran.bound, ran.exponent))
    for block in RECORDINGS.here():
        block.recording.results.add(name, left, tuple(x.shape), ran)
    return found
