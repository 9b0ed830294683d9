"""The relative error of the entries of a product by a scheme: the fact `RelativeError`, from that product itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import inf
from typing import Any, NamedTuple

import cupy as cp

from ozaki.backends import results
from ozaki.backends.cupy import evidence
from ozaki.backends.cupy.inputs import result_view
from ozaki.backends.cupy.multiplying import Multiplication
from ozaki.backends.cupy.operand_facts import OperandFacts
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.program import Evidence
from ozaki.backends.cupy.running import ProgramRuns
from ozaki.backends.cupy.steps import product
from ozaki.backends.cupy.steps.engines.choice import engine_of
from ozaki.backends.cupy.steps.epilogue import Round
from ozaki.backends.cupy.steps.operands import Described
from ozaki.backends.cupy.steps.relative import worst_quotient
from ozaki.bounds.description import Description
from ozaki.bounds.exact import ErrorTerms
from ozaki.bounds.relative import image_errors
from ozaki.records.accuracy import default_accuracy
from ozaki.records.combination import ONE
from ozaki.records.formats import part_of, precision_of
from ozaki.records.plan import Plan
from ozaki.schemes import Scheme


class _Errors(NamedTuple):
    """What entries are compared with: error terms in units of 2**exponent, and the descriptions of both operands."""

    terms: ErrorTerms
    exponent: int
    left: Description
    right: Description

    def of_rows(self, rows: slice) -> _Errors:
        """Those of some rows of the product."""
        terms = ErrorTerms(self.terms.left[:, :, rows], self.terms.right)
        return self._replace(terms=terms, left=self.left.part(slice(None), rows))


def relative_error(
    runs: ProgramRuns, facts: OperandFacts, multiplication: Multiplication, scheme: Scheme, inner_scaling: bool
) -> float:  # fmt: skip
    """The fact `RelativeError`; waits for the device.

    It is found from the product that was computed last, if that is by this scheme. Otherwise this computes that
    product, and keeps it, since most often it is the one that is asked for next; where the limit of memory leaves too
    little for a second result, some rows of A at a time.
    """
    left, right = facts.descriptions(inner_scaling)
    errors = _Errors(*image_errors(left, right, scheme, evidence.spans(left, right)), left, right)
    worst: list[Evidence] = []
    computed = multiplication.computed
    if computed is None or (computed.scheme, computed.inner_scaling) != (scheme, inner_scaling):
        runs.release()
        multiplication.release()
        operands = facts.described(inner_scaling)
        (batch_a, m, k), (batch_b, n, _) = (of.x.shape for of in operands)
        shape = max(batch_a, batch_b), m, n
        target = default_accuracy(part_of(runs.dtype), k)
        plan = Plan((m, k, n), shape[:1], runs.dtype, scheme, target, inf, inf, False, inner_scaling=inner_scaling)
        limit, nbytes = runs.memory.rest, results.nbytes(shape, runs.dtype)
        if limit is not None and nbytes > limit // 2:
            strip = max(1, m * (limit // 2) // nbytes)
            worst += (_worst_of_rows(runs, plan, errors, operands, shape, rows) for rows in _strips(m, strip))
        else:
            multiplication.compute(plan, shape)
    alpha = ONE
    if multiplication.computed is not None:
        alpha = multiplication.computed.alpha
        worst = [_worst_quotient(runs, errors, multiplication.computed.c)]
    found = map(runs.execution.evidence, worst)
    return evidence.relative_bits(*found, alpha=alpha, precision=precision_of(runs.dtype))


def _strips(count: int, most: int) -> Iterator[slice]:
    """Ranges of at most so many rows each."""
    return (slice(first, min(first + most, count)) for first in range(0, count, most))


def _worst_quotient(runs: ProgramRuns, errors: _Errors, c: Any) -> Evidence:
    """Begin to find the `worst_quotient` of a product."""
    b = Builder()
    entries = result_view(c).array("c", b.given)
    found = worst_quotient(b, *errors, entries)
    runs.run_into(b.program(), c)
    return found


def _worst_of_rows(
    runs: ProgramRuns,
    plan: Plan,
    errors: _Errors,
    operands: tuple[Described, Described],
    shape: tuple[int, int, int],
    rows: slice,
) -> Evidence:
    """The `worst_quotient` of some rows of the product of this plan and shape, which are computed and freed.

    `errors` and `operands` are those of the whole product.
    """
    inputs = runs.inputs()
    batch, count, n = shape[0], rows.stop - rows.start, shape[2]
    nbytes = results.nbytes((batch, count, n), runs.dtype)
    runs.memory.hold(nbytes)
    c = results.empty((batch, count, n), runs.dtype, cp)
    plan = replace(plan, shape=(count, plan.shape[1], n), workspace_limit=runs.memory.rest)
    b = Builder(inputs.buffers)
    whole, right = operands
    left = whole.some_rows(b, (0, whole.x.shape[0]), (rows.start, rows.stop))
    engine = engine_of(runs.device, plan, inputs.multiprecision)
    product.multiply(b, runs.device, engine, plan, left, right, Round(result_view(c).array("c", b.given)))
    runs.run_into(b.program(), c)
    found = _worst_quotient(runs, errors.of_rows(rows), c)
    runs.execution.evidence(found)
    runs.execution.finish()
    runs.memory.free(nbytes)
    return found
