"""The way of a product over processes from checked arguments to the result: facts, plan, product, report."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ozaki.backends.numpy import backend, parts
from ozaki.backends.parts import parts_at
from ozaki.bounds.relative import NONE, Quotient, relative_bits
from ozaki.distributed.arrays import Array, shares_of
from ozaki.distributed.checking import Checked
from ozaki.distributed.communicators.communicator import agree, known_to_all, same_on_all
from ozaki.distributed.facts import Operands
from ozaki.distributed.moving import Account, empty_like, finish_work
from ozaki.distributed.multiplying import delivery, multiply, of_rounded
from ozaki.distributed.outline import work_of
from ozaki.distributed.planning import given, planned
from ozaki.distributed.report import DistributedReport, process_report
from ozaki.distributed.sharing import Work, shared_out, within
from ozaki.driver.watching import Watched, watching
from ozaki.planning.question import Question
from ozaki.process.placement import on_gpu
from ozaki.records.formats import part_of, precision_of
from ozaki.records.options import Options
from ozaki.records.plan import Chosen, Plan
from ozaki.records.progress import progress_of
from ozaki.schemes import Scheme


def compute(
    a: Array,
    b: Array,
    checked: Checked,
    plan: Plan | None,
    options: Options,
    return_report: bool,
    combined: bool,
    named: bool,
) -> Any:
    """The product, or the expression with it if `combined`: all processes call it.

    It is computed in panels, or on GPUs of whole tiles. `named`: whether the caller names grid or layers.

    Raises
    ------
    ValueError, NotImplementedError, ProcessError
    """
    question, communicator, limit = checked.question, a.communicator, options.workspace_limit
    (m, k, n), size, account = question.sizes.shape, communicator.size, Account()
    operands: Operands
    on_gpus: Any = None
    if on_gpu(a.local):
        from ozaki.distributed import on_gpus

        asked = options._replace(reproducible=True, inner_scaling=False, workspace_limit=limit)
        where = (m, k, n), checked.sharing, question.dtype, account, asked
        operands = on_gpus.OnGpus(communicator, a.held, b.held, *where)
    else:
        element = max(a.local.itemsize, b.local.itemsize)
        of_proof = within(shared_out((m, k, n), size, None, 1), Work(element, _LOWER_BOUND, _MAGNITUDES), limit)
        operands = Operands(communicator, a.held, b.held, (m, k, n), of_proof, question.dtype, account)

    def relative(scheme: Scheme, inner_scaling: bool) -> float:
        return _relative_bits(operands, question, scheme, inner_scaling, limit)

    sharing, whole = checked.sharing, False
    with known_to_all(communicator, TypeError, ValueError, NotImplementedError):
        if plan is not None:
            found = given(plan, question, operands, relative)
        elif on_gpus is None:
            found = planned(question, operands, relative)
        else:
            found = on_gpus.planned(question, operands, sharing.layers > 1 or limit is not None)
        if on_gpus is not None:
            sharing, whole = on_gpus.way(found, operands, sharing, limit, named)
    operands.release()
    watched = Watched("gemm" if combined else "matmul", a, b) if watching() and not whole else None
    if watched is not None:
        watched.chosen(Chosen(found, found.bound))
    scheme: Any = found.scheme
    engine: Any = None
    name, error = "", None
    try:
        if not whole:
            engine = parts_at(a.local).engine_for(scheme, question.length, found.engine)
            sharing = within(sharing, _work(operands, engine, combined), limit)
        name = engine.label if on_gpus is None else on_gpus.engine_name(found, sharing, engine, combined)
    except (TypeError, ValueError, NotImplementedError) as problem:  # GPUs may differ
        error = problem
    agree(communicator, "choosing a plan", error)
    same_on_all(communicator, "choosing a plan", scheme=scheme, engine=name)
    wants = shares_of(checked.distribution, (m, n), size)
    with known_to_all(communicator):
        out = empty_like(a.local, wants[communicator.rank].shape, question.dtype)
        deliver = delivery(communicator, sharing, wants, out, account)
        if whole:
            on_gpus.multiply_whole(operands, sharing, found, checked.expression, deliver, checked.progress)
        elif 0 not in (m, n):
            how = scheme, found.engine, found.inner_scaling
            multiply(operands, sharing, *how, deliver, checked.expression, checked.progress)
        if on_gpus is not None:
            finish_work()
        checked.progress.end()
    if watched is not None:
        watched.ran(Chosen(found, found.bound))
    c = Array(out, (m, n), checked.distribution, communicator)
    if not return_report:
        return c
    left, right = operands.described
    reports = communicator.all_gather(process_report(sharing, communicator.rank, account), "reporting")
    nonfinite = int((left.nonfinite > 0).sum() + (right.nonfinite > 0).sum())
    if on_gpus is None:
        name = backend.engine_name(replace(found, scheme=parts.sliced(scheme)))
    return c, DistributedReport(
        found, found.bound, sharing, name, nonfinite, True if combined else None, tuple(reports)
    )


_LOWER_BOUND, _MAGNITUDES = 20, 16
"""Bytes of an entry while lower bounds of it are found, and of the magnitudes of an element, at most."""


def _work(operands: Operands, engine: Any, combined: bool = False) -> Work:
    """What the product, or an expression with it, asks of a process, in bytes."""
    dtypes = str(operands.a.local.dtype), str(operands.b.local.dtype)
    element = max(np.dtype(dtype).itemsize for dtype in (*dtypes, operands.dtype))
    if on_gpu(operands.a.local):
        from ozaki.distributed.on_gpus import WorkOnGpu

        return WorkOnGpu.of(engine, operands, element, combined)
    return work_of(engine, element)


def _relative_bits(
    operands: Operands, question: Question, scheme: Scheme, inner_scaling: bool, limit: int | None
) -> float:
    """The fact `RelativeError`: from a product by the scheme, which no process holds as a whole."""
    communicator = operands.communicator
    engine = parts.engine_for(scheme, question.length, "auto")
    sharing = within(shared_out(operands.shape, communicator.size, None, 1), _work(operands, engine), limit)
    worst = NONE
    spans = operands.spans(inner_scaling)[0]

    def compare(number: tuple[int, int], block: Any) -> None:
        nonlocal worst
        of = of_rounded(sharing, communicator.rank, number, operands.of(inner_scaling))
        worst = max(worst, parts.worst_quotient(of, spans, scheme, block))

    multiply(operands, sharing, scheme, "auto", inner_scaling, compare, None, progress_of(None))
    found = max(Quotient(*each) for each in communicator.all_gather(tuple(worst), "proving the accuracy"))
    return relative_bits(found, precision_of(part_of(question.dtype)))
