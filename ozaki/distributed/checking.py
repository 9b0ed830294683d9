"""What the arguments of a product over processes have to be: each process checks its own."""

from __future__ import annotations

from typing import Any, NamedTuple

from ozaki.backends import Backend
from ozaki.backends.numpy import backend
from ozaki.distributed.arrays import Array
from ozaki.distributed.layouts import Boxes, Distribution, ProcessGrid, Slab, check_distribution
from ozaki.distributed.multiplying import Expression
from ozaki.distributed.planning import combined, question_for
from ozaki.distributed.sharing import Sharing, shared_out
from ozaki.planning.checks import check_plan_alone
from ozaki.planning.question import Question
from ozaki.process.placement import on_gpu, where_they_lie
from ozaki.records.options import Options
from ozaki.records.plan import Plan
from ozaki.records.progress import Progress, ProgressFunction, progress_of
from ozaki.records.shapes import shapes


class Checked(NamedTuple):
    """What a call has made of its arguments before anything is computed."""

    question: Question
    sharing: Sharing
    expression: Expression | None
    progress: Progress
    distribution: Distribution


def check_array(name: str, x: Any) -> None:
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


def check_arguments(
    a: Array,
    b: Any,
    distribution: Distribution | None,
    grid: ProcessGrid | None,
    layers: int | None,
    plan: Plan | None,
    progress: ProgressFunction | None,
    options: Options,
    terms: tuple[Any, Any, Array | None] | None,
) -> Checked:
    """Check the arguments, each process its own.

    Raises
    ------
    ValueError, TypeError, NotImplementedError
    """
    check_array("b", b)
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
    return Checked(question, sharing, expression, progress_of(progress), distribution)


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
