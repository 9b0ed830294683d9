"""Bounds of the entries of a result, one for each entry: runs the program that computes them."""

from __future__ import annotations

from typing import Any

from ozaki.backends.cupy.inputs import result_view
from ozaki.backends.cupy.operand_facts import OperandFacts
from ozaki.backends.cupy.program.arrays import view_of
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.running import ProgramRuns
from ozaki.backends.cupy.steps.bounds import entry_bounds as bounds_step
from ozaki.backends.cupy.steps.bounds import terms_of, terms_of_zeros, terms_uploaded
from ozaki.bounds.description import NO_SPAN
from ozaki.bounds.entries import native_terms
from ozaki.multiprecision.numbers import Numbers
from ozaki.planning.facts import Spans
from ozaki.records.combination import ONE
from ozaki.records.plan import Plan
from ozaki.schemes import is_exact


def entry_bounds(runs: ProgramRuns, facts: OperandFacts, plan: Plan | None, c: Any, bounds: Any) -> None:
    """Compute the bounds of the entries of the result c, both of shape (batch, m, n), into `bounds`.

    plan : of the product; None if that is zero
    """
    given, unit = runs.combination, 0
    alpha, sums = (ONE, False) if given is None else (given.alpha, not given.beta.is_zero)
    c = c.parts if isinstance(c, Numbers) else c
    if plan is None:
        alpha, b = ONE, Builder()
        terms = terms_of_zeros(b, bounds.shape)
    elif plan.scheme is None:
        b = Builder()
        *on_host, unit = native_terms(*facts.descriptions(), runs.dtype)
        terms = terms_uploaded(b, *on_host)
    else:
        assert is_exact(plan.scheme)
        scaled = plan.inner_scaling
        spans = facts.measure(Spans(scaled)) if plan.scheme.drop else (NO_SPAN, NO_SPAN)
        left, right = facts.described(scaled)
        b = Builder(runs.inputs().buffers)
        terms, unit = terms_of(
            b, left, right, plan.scheme, plan.scheme.dropped(left.k, spans), exact=plan.undecided_apart
        )
    entries = result_view(c).array("c", b.given)
    bounds_step(b, terms, unit, alpha, sums, entries, b.given("bounds", view_of(bounds)))
    runs.run_into(b.program(), c, bounds=bounds)
