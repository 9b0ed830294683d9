"""Products of dask arrays: lazy dask arrays with the bits of one product, whatever the chunks and the scheduler."""

from __future__ import annotations

from dataclasses import replace
from math import isnan
from typing import Any

import dask.array as da
import numpy as np

from ozaki.backends import backend_of
from ozaki.call.operands import dtype_of
from ozaki.distributed import dask_graphs as graphs
from ozaki.distributed.dask_facts import MeasuredChunks
from ozaki.distributed.dask_tasks import Product
from ozaki.distributed.planning import combined, given, planned, question_for
from ozaki.planning.checks import check_plan_alone
from ozaki.planning.question import Question
from ozaki.process.placement import on_gpu
from ozaki.records.options import Options
from ozaki.records.plan import Plan
from ozaki.records.shapes import shapes

_REMEDIES = {
    "distribution": "rechunk the operands: chunks of the result are rows of a's chunks by columns of b's",
    "grid": "the workers of dask's scheduler compute whatever is ready",
    "layers": "the workers of dask's scheduler compute whatever is ready",
    "placements": "rechunk the operands: chunks of the result are rows of a's chunks by columns of b's",
    "timeout": "dask's scheduler knows when a worker is lost",
    "progress": "use dask.diagnostics.ProgressBar, or distributed.progress of the persisted result",
    "return_report": "nothing has run when the lazy result is returned",
    "workspace_limit": "rechunk the operands: a task holds a few chunks",
}
"""What is not for dask arrays, and what to do instead."""


def check_alone(**given: Any) -> None:
    """Refuse what is not for dask arrays.

    Raises
    ------
    ValueError
    """
    for name, x in given.items():
        if x is not None:
            raise ValueError(f"{name}: not for dask arrays; {_REMEDIES[name]}")


def multiply_chunks(a: Any, b: Any, plan: Plan | None, options: Options, terms: tuple[Any, Any, Any] | None) -> Any:
    """The product of two dask arrays, or an expression with it, as a dask array.

    Where the plan depends on elements, facts about these are computed now.

    Parameters
    ----------
    a, b : dask arrays, of which one may be an array of NumPy
        Their chunks are arrays of NumPy, or all of CuPy.
    plan, options : as for `matmul`
    terms : (alpha, beta, c) of `gemm`

    Raises
    ------
    ValueError, TypeError, NotImplementedError
    """
    if "_array_expr" in da.Array.__module__:
        raise NotImplementedError("dask: its arrays are expressions; set 'array.query-planning' to False, its default")
    if plan is not None:
        check_plan_alone(plan, options)
    check_alone(workspace_limit=(plan or options).workspace_limit)
    a, b = _checked("a", a), _checked("b", b)
    c = None if terms is None or terms[2] is None else _checked("c", terms[2])
    sizes = shapes(a.shape, b.shape)
    if on_gpu(a._meta) or on_gpu(b._meta) or (c is not None and on_gpu(c._meta)):
        options = _checked_on_gpus({"a": a, "b": b, "c": c}, plan, options)
    backend = backend_of(("a", a._meta))
    question = question_for(sizes.shape, (str(a.dtype), str(b.dtype)), options, terms is not None, backend)
    combination = None
    if terms is not None:
        combination = combined(terms[0], terms[1], c, question)
        c = None if combination is None else combination.c
    operands = graphs.DaskOperands(a, b)
    measured = MeasuredChunks(operands, question.dtype)
    with np.errstate(all="ignore"):
        found = _plan_of(plan, question, measured)
    sources = measured.known(found.inner_scaling)
    if sources is None:
        factors = graphs.factors_of(operands) if found.inner_scaling else graphs.factors_known(operands, None)
        sources = graphs.describing(operands, factors)
    scheme: Any = found.scheme
    product = Product(scheme, found.engine, operands.reals * operands.shape[1], question.dtype, operands.on_gpu)
    return graphs.product_of(operands, sources, product, combination, c)


def _checked_on_gpus(operands: dict[str, Any], plan: Plan | None, options: Options) -> Options:
    """The options of a product of chunks on GPUs.

    Raises
    ------
    ValueError, NotImplementedError
        For what is not multiplied there.
    """
    for name, x in operands.items():
        if x is not None and not on_gpu(x._meta):
            raise ValueError(
                f"{name}: its chunks are in host memory, others on GPUs; expected all on GPUs: use "
                f"{name}.map_blocks(cupy.asarray)"
            )
    if (plan or options).inner_scaling:
        raise NotImplementedError("inner_scaling: True is not for chunks on GPUs")
    return options._replace(inner_scaling=False)


def _plan_of(plan: Plan | None, question: Question, measured: MeasuredChunks) -> Plan:
    """The plan of the caller, or the one for these operands.

    Of a named count without an accuracy the bound alone depends on elements, if rows are scaled along k, and no report
    names it: so the plan is that of unscaled rows, for which nothing is computed.
    """
    if plan is not None:
        return given(plan, question, measured, measured.relative_bits)
    scaled = question.options.inner_scaling
    if scaled and question.target is None and question.named is not None:
        plain = replace(question, options=question.options._replace(inner_scaling=None))
        return replace(planned(plain, measured, measured.relative_bits), inner_scaling=True)
    return planned(question, measured, measured.relative_bits)


def _checked(name: str, x: Any) -> Any:
    """An operand as a dask array of matrices of known chunks; one of NumPy is cut into chunks as dask does it.

    Raises
    ------
    TypeError, ValueError
    """
    if type(x) in (np.ndarray, np.memmap):
        x = da.from_array(x)
    if on_gpu(x):
        raise TypeError(f"{name}: an array of CuPy; use dask.array.from_array({name}, asarray=False)")
    if not isinstance(x, da.Array):
        raise TypeError(f"{name}: {type(x).__name__}; expected a dask array, as the other operand is, or one of NumPy")
    if x.ndim != 2:
        raise ValueError(f"{name}: {x.ndim} axes; expected a matrix, two axes")
    dtype_of(name, x)
    if type(x._meta) not in (np.ndarray, np.memmap) and not on_gpu(x._meta):
        what = type(x._meta).__name__
        raise TypeError(f"{name}: its chunks are of {what}; expected arrays of NumPy or CuPy: use map_blocks")
    if any(isnan(size) for sizes in x.chunks for size in sizes):
        raise ValueError(f"{name}: the sizes of its chunks are unknown; call {name}.compute_chunk_sizes() first")
    return x
