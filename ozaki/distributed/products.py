"""The public products of matrices that are shared out over processes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Unpack, overload

import numpy as np

import ozaki
from ozaki.backends import Backend
from ozaki.backends.numpy import backend, parts
from ozaki.backends.parts import parts_at
from ozaki.bounds.relative import NONE, Quotient, relative_bits
from ozaki.distributed.arrays import Array, shares_of
from ozaki.distributed.communicators.communicator import agree, known_to_all, same_on_all
from ozaki.distributed.facts import Operands
from ozaki.distributed.layouts import Boxes, Distribution, ProcessGrid, Slab, check_distribution
from ozaki.distributed.moving import Account, empty_like, finish_work
from ozaki.distributed.multiplying import Expression, delivery, multiply, of_rounded
from ozaki.distributed.outline import work_of
from ozaki.distributed.planning import combined, given, planned, question_for
from ozaki.distributed.report import DistributedReport, process_report
from ozaki.distributed.sharing import Sharing, Work, shared_out, within
from ozaki.driver.watching import Watched, watching
from ozaki.interchange.kinds import is_dtensor
from ozaki.planning.checks import check_plan_alone
from ozaki.planning.question import Question
from ozaki.process.environment import default_environment
from ozaki.process.placement import on_gpu, where_they_lie
from ozaki.records.formats import part_of, precision_of
from ozaki.records.options import NONE_GIVEN, Options, ProductOptions, takes
from ozaki.records.plan import Chosen, Plan
from ozaki.records.progress import Progress, ProgressFunction, progress_of
from ozaki.records.shapes import shapes
from ozaki.schemes import Scheme

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor, Placement


@overload
def matmul(
    a: Array,
    b: Array,
    distribution: Distribution | None = None,
    *,
    grid: ProcessGrid | None = None,
    layers: int | None = None,
    plan: Plan | None = None,
    progress: ProgressFunction | None = None,
    return_report: Literal[False] = False,
    **options: Unpack[ProductOptions],
) -> Array: ...
@overload
def matmul(
    a: Array,
    b: Array,
    distribution: Distribution | None = None,
    *,
    grid: ProcessGrid | None = None,
    layers: int | None = None,
    plan: Plan | None = None,
    progress: ProgressFunction | None = None,
    return_report: Literal[True],
    **options: Unpack[ProductOptions],
) -> tuple[Array, DistributedReport]: ...
@overload
def matmul(
    a: DTensor,
    b: DTensor,
    *,
    grid: ProcessGrid | None = None,
    layers: int | None = None,
    plan: Plan | None = None,
    progress: ProgressFunction | None = None,
    placements: Sequence[Placement] | None = None,
    timeout: float | None = None,
    return_report: bool = False,
    **options: Unpack[ProductOptions],
) -> Any: ...
@default_environment
@takes(ProductOptions)
def matmul(
    a: Any,
    b: Any,
    distribution: Distribution | None = None,
    *,
    grid: ProcessGrid | None = None,
    layers: int | None = None,
    plan: Plan | None = None,
    progress: ProgressFunction | None = None,
    placements: Sequence[Placement] | None = None,
    timeout: float | None = None,
    return_report: bool = False,
    **options: Unpack[ProductOptions],
) -> Any:
    """Multiply two matrices that are shared out over processes, to a named accuracy. All processes call it.

    The bits are those of `ozaki.matmul` on one process with `reproducible=True`, for any number of processes, any
    distributions, grid and layers: exponents of rows merge by maximum, products of parts of k are integers that are
    added, and each entry is rounded once (docs/explanation/many_gpus.md).

    Parameters
    ----------
    a, b : Array, DTensor of PyTorch, or dask array
        Shapes (m, k) and (k, n), as `ozaki.distributed.array` makes them, both real or both complex. `a.T` is the
        transpose, so that A^T B and A A^T move no more than A B does. DTensors lie on one mesh, of CPUs or of GPUs and
        of any number of dimensions, with any placements but partial ones. Beside a dask array the other operand may be
        an array of NumPy, and chunks are arrays of NumPy, or all of CuPy; with dask arrays `distribution`, `grid`,
        `layers`, `progress`, `placements`, `timeout` and `return_report` have to stay at their defaults.
    distribution : Distribution, optional
        Of the result. Default: that of `a`, of a Box or boxes `Slab.X`.
    grid : ProcessGrid, optional
        Into how many rows and columns of tiles C is cut. Default: what moves and computes least.
    layers : int, optional
        Into how many parts k is cut, each computed by a grid of processes. Default: more than one where C is small.
    plan : Plan, optional
        As for `ozaki.matmul`.
    progress : function of (done, total, unit), optional
        Called on each process that gives one, with its panels.
    placements : sequence of placements, optional
        Of the result of DTensors. Default: on each dimension of the mesh `Shard(0)` where `a` has it, else `Shard(1)`
        where `b` has it, else `Replicate()`.
    timeout : float, optional
        Seconds to wait for another process, of DTensors; of arrays, `array` takes it. Default: 60.
    return_report : bool
        Return (c, report), the report the same on all processes.
    **options
        As for `ozaki.matmul`; `dtype` names a format of the hardware. `workspace_limit` is that of each process, in
        bytes, beside its shares of operands and result. The native product, words, verify=True and results of 16 bits
        are not for shared out operands, so that 16-bit floats are to be converted to float32 before. On GPUs neither is
        `inner_scaling=True`. Shares of all operands lie in memory of the host, or all on GPUs, those of a process on
        one.

    Returns
    -------
    c : Array, or DTensor on the mesh of the operands; shape (m, n)
        Of dask arrays a lazy dask array, whose chunks are the rows of a's chunks by the columns of b's.
    report : DistributedReport
        Only with `return_report`.

    Raises
    ------
    ValueError, TypeError, NotImplementedError
        Before anything is computed, for what cannot be used or differs among processes: on all of them, but for an
        argument that is wrong on some alone, of which the others raise `ProcessError`.
    ProcessError
        If a process has ended or failed, or does not answer for the communicator's `timeout`; it names rank and step.

    Notes
    -----
    Bounds are those of `ozaki.matmul` (docs/bounds.md). Where that computes undecided entries apart, as it does for
    `accuracy="exact"`, all entries here take as many residues as hold every bit: more time, the same bits.

    Of dask arrays nothing is computed in this call if `scheme` and `slices` name a count, without an accuracy. If the
    plan depends on elements, these are computed, by the scheduler that dask would take, once or several times: persist
    what is dear to compute. Chunks have to be the same each time that they are computed.

    Examples
    --------
    >>> import numpy as np, ozaki
    >>> from ozaki.distributed import Slab, array, matmul
    >>> from ozaki.distributed.communicators.threads import run
    >>> x = np.random.default_rng(0).standard_normal((9, 9))
    >>> def product(communicator):
    ...     rows = slice(3 * communicator.rank, 3 * communicator.rank + 3)
    ...     a = array(x[rows], Slab.X, communicator)
    ...     return matmul(a, a.T, accuracy="fp64").gather()
    >>> all(np.array_equal(c, ozaki.matmul(x, x.T, accuracy="fp64", reproducible=True)) for c in run(3, product))
    True
    """
    asked = Options.of("matmul", options)
    return _multiply(a, b, distribution, grid, layers, plan, progress, return_report, asked, None, placements, timeout)


@default_environment
@takes(ProductOptions)
def gemm(
    alpha: Any,
    a: Any,
    b: Any,
    beta: Any,
    c: Any,
    distribution: Distribution | None = None,
    *,
    grid: ProcessGrid | None = None,
    layers: int | None = None,
    plan: Plan | None = None,
    progress: ProgressFunction | None = None,
    placements: Sequence[Placement] | None = None,
    timeout: float | None = None,
    return_report: bool = False,
    **options: Unpack[ProductOptions],
) -> Any:
    """Compute alpha A B + beta C of matrices that are shared out over processes, rounded once. All processes call it.

    Parameters
    ----------
    alpha, beta : float
        Real and finite, the same on all processes.
    a, b, distribution, grid, layers, plan, progress, placements, timeout, return_report, **options
        As for `matmul`.
    c : Array, DTensor or dask array, as the operands, shape (m, n), or None if beta is 0
        With any distribution or chunks. Default `distribution`, or `placements`, of the result: those of `c`.

    Returns
    -------
    Array, DTensor or lazy dask array, as the operands, shape (m, n), or (that, DistributedReport)

    Raises
    ------
    ValueError, TypeError, NotImplementedError, ProcessError
        As `matmul`.

    Examples
    --------
    >>> import numpy as np
    >>> from ozaki.distributed import Slab, array, gemm
    >>> from ozaki.distributed.communicators.threads import run
    >>> def product(communicator):
    ...     a = array(np.full((2, 4), 3.0), Slab.X, communicator)
    ...     return gemm(2.0, a, a.T, -1.0, array(np.ones((2, 4)), Slab.X, communicator)).local
    >>> run(2, product)[1]
    array([[71., 71., 71., 71.],
           [71., 71., 71., 71.]])
    """
    asked = Options.of("gemm", options)
    terms = alpha, beta, c
    return _multiply(a, b, distribution, grid, layers, plan, progress, return_report, asked, terms, placements, timeout)


def is_dask_array(x: Any) -> bool:
    """Whether this is an array of dask, which is not imported for it."""
    dask = sys.modules.get("dask.array")
    return dask is not None and isinstance(x, dask.Array)


class _Checked(NamedTuple):
    """What a call has made of its arguments before anything is computed."""

    question: Question
    sharing: Sharing
    expression: Expression | None
    progress: Progress
    distribution: Distribution


def _multiply(
    a: Any,
    b: Any,
    distribution: Distribution | None,
    grid: ProcessGrid | None,
    layers: int | None,
    plan: Plan | None,
    progress: ProgressFunction | None,
    return_report: bool,
    options: Options,
    terms: tuple[Any, Any, Any] | None,
    placements: Sequence[Any] | None = None,
    timeout: float | None = None,
) -> Any:
    """Multiply whatever kind of operands there are; `terms` are alpha, beta and c of `gemm`, None of `matmul`."""
    if any(map(is_dask_array, (a, b, terms[2] if terms else None))):
        from ozaki.distributed.dask_arrays import check_alone, multiply_chunks

        check_alone(
            distribution=distribution, grid=grid, layers=layers, progress=progress, placements=placements,
            timeout=timeout, return_report=return_report or None,
        )  # fmt: skip
        return multiply_chunks(a, b, plan, options, terms)
    c = None if terms is None else terms[2]
    if any(is_dtensor(type(x)) for x in (a, b, c)):
        from ozaki.distributed.tensors import taken

        if distribution is not None:
            raise TypeError(f"distribution: {distribution!r} of DTensors; use placements")
        of = taken(a, b, c, placements, timeout)
        terms = None if terms is None else (*terms[:2], of.c)
        found = _multiply(of.a, of.b, of.distribution, grid, layers, plan, progress, return_report, options, terms)
        return (of.given_back(found[0]), found[1]) if return_report else of.given_back(found)
    if placements is not None or timeout is not None:
        name = "placements" if placements is not None else "timeout"
        raise TypeError(
            f"{name}: of DTensors alone; use {'distribution' if name == 'placements' else name + ' of array'}"
        )
    _check_array("a", a)
    communicator, step = a.communicator, "checking the arguments"
    checked, error = None, None
    with where_they_lie([("a", a.local)]), np.errstate(all="ignore"):
        try:
            checked = _check(a, b, distribution, grid, layers, plan, progress, options, terms)
        except (TypeError, ValueError, NotImplementedError) as problem:
            error = problem
        agree(communicator, step, error)
        assert checked is not None
        same_on_all(
            communicator,
            step,
            version=ozaki.__version__,
            shape=checked.question.sizes.shape,
            dtype=(str(a.dtype), str(b.dtype), checked.question.dtype),
            options={name: x for name, x in options._asdict().items() if x != getattr(NONE_GIVEN, name)},
            types_of_options=tuple(map(type, options))[:-1],  # 60 are bits, 60.0 is refused, but they compare equal
            plan=plan,
            distribution=repr((a.distribution, b.distribution, checked.distribution)),
            grid=(checked.sharing.grid, checked.sharing.layers),
            factors=None if terms is None else tuple(map(repr, terms[:2])),
            return_report=bool(return_report),
        )
        named = layers is not None or grid is not None
        if plan is not None:
            options = options._replace(workspace_limit=plan.workspace_limit)
        return _computed(a, b, checked, plan, options, return_report, terms is not None, named)


def _check_array(name: str, x: Any) -> None:
    """Refuse an operand that is no `Array`.

    Raises
    ------
    TypeError
    """
    if isinstance(x, list | tuple):
        raise TypeError(
            f"{name}: {type(x).__name__}; strips lie on the GPUs of one process, and are for ozaki.matmul with "
            "devices=; expected an Array, as ozaki.distributed.array makes it of the share of each process"
        )
    if not isinstance(x, Array):
        raise TypeError(
            f"{name}: {type(x).__name__}; expected an Array, as ozaki.distributed.array makes it, a DTensor or a dask "
            "array (ozaki.matmul multiplies what one process has)"
        )


def _check(
    a: Array,
    b: Any,
    distribution: Distribution | None,
    grid: ProcessGrid | None,
    layers: int | None,
    plan: Plan | None,
    progress: ProgressFunction | None,
    options: Options,
    terms: tuple[Any, Any, Array | None] | None,
) -> _Checked:
    """Check the arguments, each process its own.

    Raises
    ------
    ValueError, TypeError, NotImplementedError
    """
    _check_array("b", b)
    communicator = a.communicator
    for name, x in (("b", b), ("c", None if terms is None else terms[2])):
        of = x.communicator if isinstance(x, Array) else communicator
        if (of.rank, of.size) != (communicator.rank, communicator.size):
            raise ValueError(
                f"{name}: on {of.size} processes, of which this one is {of.rank}; expected the {communicator.size} of "
                f"a, of which it is {communicator.rank}"
            )
    if plan is not None:
        check_plan_alone(plan, options)
        options = options._replace(workspace_limit=plan.workspace_limit)
    sizes = shapes(a.shape, b.shape)
    for name, x in (("b", b), ("c", None if terms is None else terms[2])):
        if isinstance(x, Array) and on_gpu(x.local) != on_gpu(a.local):
            places = ("on GPUs", "in host memory")
            of_x, of_a = places if on_gpu(x.local) else reversed(places)
            raise ValueError(f"{name}: shares {of_x}, but those of a {of_a}; expected all {of_a}")
    if on_gpu(a.local):
        options = _checked_on_gpus(a, b, None if terms is None else terms[2], plan, options)
    question = question_for(sizes.shape, (str(a.dtype), str(b.dtype)), options, terms is not None, _backend_of(a))
    expression = None
    default = a.distribution
    if terms is not None:
        alpha, beta, c = terms
        if c is not None and not isinstance(c, Array):
            raise TypeError(f"c: {type(c).__name__}; expected an Array, or None with beta = 0")
        combination = combined(alpha, beta, c, question)
        if combination is not None:
            addend = combination.c
            expression = Expression(combination, None if addend is None else addend.held)
        default = default if c is None else c.distribution
    if distribution is None:
        if isinstance(default, Boxes):
            default = Slab.X
        distribution = default
    check_distribution(distribution)
    distribution.check(communicator.size)
    distribution.check_cover((sizes.shape[0], sizes.shape[2]))
    sharing = shared_out(sizes.shape, communicator.size, grid, layers)
    return _Checked(question, sharing, expression, progress_of(progress), distribution)


def _backend_of(a: Array) -> Backend:
    """What multiplies where the shares lie."""
    if on_gpu(a.local):
        from ozaki.backends.cupy import backend as cupy

        return cupy
    return backend


def _checked_on_gpus(a: Array, b: Array, c: Any, plan: Plan | None, options: Options) -> Options:
    """The options of a product of shares on GPUs.

    Raises
    ------
    ValueError, NotImplementedError
        For what is not shared out there.
    """
    where_they_lie((name, x.local) for name, x in (("a", a), ("b", b), ("c", c)) if isinstance(x, Array))
    for name, scaled in (
        ("inner_scaling: True", options.inner_scaling),
        ("plan: with inner scaling", plan is not None and plan.inner_scaling),
    ):
        if scaled:
            raise NotImplementedError(f"{name} is not for shares on GPUs, whose tiles would be scaled anew")
    return options._replace(inner_scaling=False)


def _computed(
    a: Array,
    b: Array,
    checked: _Checked,
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
