"""Plans that no operand is looked at for: of a count, or for shapes alone."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from ozaki import _bounds, _word_bounds
from ozaki._accuracy import Accuracy
from ozaki._checks import check_choices, check_native, check_room, check_words
from ozaki._operands import Shapes, Side
from ozaki._plan import Plan, choose_a_priori, default_accuracy, forced, integer_scheme, words_of
from ozaki._ways import NATIVE_ASKED_FOR, names_of, native_plan
from ozaki.backends import Backend
from ozaki.schemes import Scheme, Words

COUNT_GIVEN = "count given by slices"
"""Why such a plan has the slices that it has."""


@lru_cache(maxsize=1024, typed=True)
def counted(
    backend: Backend, sizes: Shapes, dtype: str, name: str, slices: int, engine: str, workspace_limit: int | None
) -> Plan:
    """The plan of a given count, for any operands; kept, because small products take no longer than making it."""
    check_choices(name, engine, workspace_limit, backend)
    scheme = forced(integer_scheme(name, sizes.shape[1]), slices)
    check_room(scheme, sizes.shape[1])
    bound = _bounds.with_rounding(_bounds.a_priori(scheme, sizes.shape[1]), dtype)
    target = Accuracy("row-column", 1.0)
    return Plan(sizes.shape, sizes.batch, dtype, scheme, target, bound, True, engine, workspace_limit, COUNT_GIVEN)


def plan_for_shapes(
    sizes: Shapes,
    dtype: str,
    accuracy: Accuracy | str | float | None,
    scheme: str | Words,
    slices: int | None,
    engine: str,
    reproducible: bool,
    workspace_limit: int | None,
) -> Plan:
    """A plan without data: its bound is in the row-column measure, for all operands of these shapes."""
    check_choices(scheme, engine, workspace_limit, None)
    k = sizes.shape[1]
    target = None if accuracy is None else Accuracy.of(accuracy, k)
    chosen: Scheme | Words
    if (words := words_of(scheme)) is not None:
        check_words(words, dtype, slices, engine, reproducible, None)
        chosen, bound, why = words, _word_bounds.a_priori(words, max(k, 1)), ""
        if target is not None and (target.measure == "componentwise" or bound > target.tolerance):
            raise ValueError(
                f"accuracy: {words.name} proves {bound:.3g} (row-column) for any operands; accuracy asks for "
                f"{target.measure} {target.tolerance:.3g}; use scheme='auto', or plan from operands"
            )
        return Plan(
            sizes.shape, sizes.batch, dtype, words, target or Accuracy("row-column", bound),
            _bounds.with_rounding(bound, dtype), True, engine, workspace_limit, why,
        )  # fmt: skip
    assert isinstance(scheme, str)
    scheme = integer_scheme(scheme, k)
    if slices is not None:
        chosen, why = forced(scheme, slices), COUNT_GIVEN
        check_room(chosen, k)
        bound = _bounds.a_priori(chosen, max(k, 1))
        if target is not None and (target.measure == "componentwise" or bound > target.tolerance):
            raise ValueError(
                f"slices: {slices} {scheme} prove {bound:.3g} (row-column) for any operands; accuracy asks for "
                f"{target.measure} {target.tolerance:.3g}; give more slices, or plan from operands"
            )
        target = target or Accuracy("row-column", bound)
    elif scheme == "native":
        proven = _bounds.native(max(k, 1), dtype)
        check_native(dtype, target, engine, reproducible, proven)
        return native_plan(sizes, dtype, target, proven, NATIVE_ASKED_FOR)
    else:
        if target is not None and target.measure == "componentwise":
            raise ValueError(
                "accuracy: a componentwise target (all shorthands are) depends on the data; plan from the operands, "
                f"or ask for Accuracy('row-column', {target.tolerance:.3g}) or a number of slices"
            )
        target, why = target or replace(default_accuracy(dtype, k), measure="row-column"), ""
        choice = choose_a_priori(target, max(k, 1), names_of(scheme))
        chosen, bound = choice.scheme, choice.bound
    return Plan(
        sizes.shape, sizes.batch, dtype, chosen, target, _bounds.with_rounding(bound, dtype), True, engine,
        workspace_limit, why,
    )  # fmt: skip


def shapes_of_plan(x: tuple[int, ...], side: Side, plan: Plan) -> Shapes:
    """The shapes that a plan was made for, where an operand of shape x fits them."""
    m, k, n = plan.shape
    matrix = (m, k) if side == "left" else (k, n)
    if len(x) < 2 or x[-2:] != matrix or not _broadcasts(x[:-2], plan.batch):
        expected = f"{(*plan.batch, *matrix)}" + (f" or {matrix}" if plan.batch else "")
        raise ValueError(f"x: shape {x} does not fit the {side} side of the plan; expected {expected}")
    return Shapes(plan.batch, plan.shape, (*plan.batch, m, n), fold=False)


def _broadcasts(batch: tuple[int, ...], to: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(batch, to) == to
    except ValueError:
        return False
