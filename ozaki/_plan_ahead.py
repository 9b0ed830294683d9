"""Plans that no operand is looked at for: of a count, or for shapes alone."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import inf

from ozaki import _bounds, _word_bounds
from ozaki._accuracy import Accuracy, default_accuracy
from ozaki._checks import check_choices, check_native, check_proven, check_words
from ozaki._choices import Choices
from ozaki._operands import Shapes, Side, broadcast
from ozaki._plan import Plan
from ozaki._search import choose_a_priori, likely_schemes
from ozaki._ways import NATIVE_ASKED_FOR, Ways, names_of, native_bound, native_plan
from ozaki.backends import Backend
from ozaki.schemes import Digits, Scheme, Words, scaling_of
from ozaki.schemes.named import forced, integer_scheme, words_of


def named_scheme(choices: Choices, dtype: str, k: int, backend: Backend | None) -> Scheme | Words | None:
    """The scheme that choices name with the count of its slices, if they do; it can do what else is asked."""
    if (words := words_of(choices.scheme, None if backend is None else backend.core())) is not None:
        check_words(words, dtype, choices, backend)
        return words
    if choices.slices is None:
        return None
    assert isinstance(choices.scheme, str)
    scheme = forced(integer_scheme(choices.scheme, k), choices.slices)
    scaling_of(scheme, max(k, 1))
    return scheme


def why_named(scheme: Scheme | Words) -> str:
    """Why a named scheme has the slices that it has."""
    return "" if isinstance(scheme, Words) else "count given by slices"


@lru_cache(maxsize=1024)
def plan_for_any(
    sizes: Shapes, dtype: str, scheme: Scheme | Words, target: Accuracy | None, choices: Choices, why: str
) -> Plan:
    """The plan of a scheme for any operands; kept, because small products take no longer than making it."""
    k = max(sizes.shape[1], 1)
    bound = _word_bounds.a_priori(scheme, k) if isinstance(scheme, Words) else _bounds.a_priori(scheme, k)
    check_proven(scheme, bound, target, "row-column", "any operands")
    return Plan(
        sizes.shape, sizes.batch, dtype, scheme, target or _usual(dtype, k),
        _bounds.with_rounding(bound, dtype), True, choices.engine, choices.workspace_limit, why,
    )  # fmt: skip


def plan_for_shapes(sizes: Shapes, dtype: str, choices: Choices) -> Plan:
    """A plan without data: its bound is in the row-column measure, for all operands of these shapes."""
    check_choices(choices, None)
    k = sizes.shape[1]
    target = choices.target(k)
    if (scheme := named_scheme(choices, dtype, k, None)) is not None:
        return plan_for_any(sizes, dtype, scheme, target, choices, why_named(scheme))
    assert isinstance(choices.scheme, str)
    if choices.scheme == "native":
        bound = _bounds.native(max(k, 1), dtype)
        check_native(dtype, target, choices, bound)
        return native_plan(sizes, dtype, target, bound, NATIVE_ASKED_FOR, choices.workspace_limit)
    if target is not None and target.measure == "componentwise":
        raise ValueError(
            "accuracy: a componentwise target (all shorthands are) depends on the data; plan from the operands, "
            f"or ask for Accuracy('row-column', {target.tolerance:.3g}) or a number of slices"
        )
    target = target or _usual(dtype, k)
    choice = choose_a_priori(target, max(k, 1), names_of(integer_scheme(choices.scheme, k)))
    return plan_for_any(sizes, dtype, choice.scheme, target, choices, "")


def plan_for_ordinary(sizes: Shapes, dtype: str, choices: Choices, backend: Backend, slices: Scheme) -> Plan:
    """What runs if the library is to choose, and operands need these slices.

    Nothing is proven of it but for the native product, whose bound holds where no partial sum over- or underflows.
    """
    check_choices(choices, backend)
    k = max(sizes.shape[1], 1)
    bound = native_bound(backend, k, dtype)
    ways = Ways.of(backend, k, dtype, choices, bound)
    way, why = ways.fastest(backend, sizes, dtype, slices)
    target = ways.target
    if ways.words:  # then digits may be, to another target
        digits = likely_schemes(ways.first, k, names_of("auto"))[0]
        first, of_first = ways.fastest(backend, sizes, dtype, digits)
        if first == "slices" and isinstance(digits, Digits):
            way, why, target, slices = first, of_first, ways.first, digits
    if way == "native":
        return native_plan(sizes, dtype, choices.target(k), bound, why, choices.workspace_limit)
    scheme, limit = way if isinstance(way, Words) else slices, choices.workspace_limit
    return Plan(sizes.shape, sizes.batch, dtype, scheme, target, inf, False, choices.engine, limit, why)


def _usual(dtype: str, k: int) -> Accuracy:
    """What is asked for where nobody names an accuracy, in the measure of bounds without data."""
    return replace(default_accuracy(dtype, k), measure="row-column")


def shapes_of_plan(x: tuple[int, ...], side: Side, plan: Plan) -> Shapes:
    """The shapes that a plan was made for, where an operand of shape x fits them."""
    m, k, n = plan.shape
    matrix = (m, k) if side == "left" else (k, n)
    if len(x) < 2 or x[-2:] != matrix or not _broadcasts(x[:-2], plan.batch):
        expected = f"{(*plan.batch, *matrix)}" + (f" or {matrix}" if plan.batch else "")
        raise ValueError(f"x: shape {x} does not fit the {side} side of the plan; expected {expected}")
    return Shapes(plan.batch, plan.shape, (*plan.batch, m, n))


def _broadcasts(batch: tuple[int, ...], to: tuple[int, ...]) -> bool:
    try:
        return broadcast(batch, to) == to
    except ValueError:
        return False
