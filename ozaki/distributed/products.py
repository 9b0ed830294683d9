"""The public products of matrices that are shared out over processes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

import numpy as np

import ozaki
from ozaki.distributed.arrays import Array
from ozaki.distributed.checking import check_arguments, check_array
from ozaki.distributed.communicators.communicator import agree, same_on_all
from ozaki.distributed.computing import compute
from ozaki.distributed.layouts import Distribution, ProcessGrid
from ozaki.distributed.report import DistributedReport
from ozaki.interchange.kinds import is_dtensor
from ozaki.process.environment import default_environment
from ozaki.process.placement import where_they_lie
from ozaki.records.options import NONE_GIVEN, Options, ProductOptions, takes
from ozaki.records.plan import Plan
from ozaki.records.progress import ProgressFunction

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
    check_array("a", a)
    communicator, step = a.communicator, "checking the arguments"
    checked, error = None, None
    with where_they_lie([("a", a.local)]), np.errstate(all="ignore"):
        try:
            checked = check_arguments(a, b, distribution, grid, layers, plan, progress, options, terms)
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
        return compute(a, b, checked, plan, options, return_report, terms is not None, named)
