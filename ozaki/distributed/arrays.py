"""Matrices of which each process holds a share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.distributed.communicators import communicator_of
from ozaki.distributed.communicators.communicator import Communicator, agree, same_on_all
from ozaki.distributed.layouts import Box, Boxes, Distribution, Replicated, Share, check_distribution
from ozaki.distributed.moving import Account, Held, Move, begin, empty_like, on_gpu
from ozaki.interchange.kinds import is_dtensor, kind_of
from ozaki.interchange.plain import plain
from ozaki.records.formats import DTYPES


@dataclass(frozen=True, eq=False)
class Array:
    """A matrix of which each process holds a share; `ozaki.distributed.array` makes one.

    Attributes
    ----------
    local : array of NumPy, or of CuPy on this process's GPU; the share of this process
    shape : of the whole matrix
    distribution : which rows and columns each process holds
    communicator : the processes
    """

    local: npt.NDArray[Any]
    shape: tuple[int, int]
    distribution: Distribution
    communicator: Communicator

    @property
    def dtype(self) -> np.dtype[Any]:
        """The format of the elements."""
        return self.local.dtype

    @property
    def T(self) -> Array:  # noqa: N802 - as arrays have it
        """The transpose, a view: nothing moves."""
        return Array(self.local.T, (self.shape[1], self.shape[0]), self.distribution.T, self.communicator)

    def conj(self) -> Array:
        """The complex conjugate; the matrix itself, if it is real."""
        local = self.local.conj() if self.dtype.kind == "c" else self.local
        return Array(local, self.shape, self.distribution, self.communicator)

    def redistribute(self, distribution: Distribution) -> Array:
        """The same matrix, shared out in another way. All processes call it.

        Raises
        ------
        ValueError, TypeError
            If the distribution is for another number of processes, or is none.
        """
        communicator = self.communicator
        agree_on(communicator, distribution, "redistributing a matrix", self.shape)
        wants = shares_of(distribution, self.shape, communicator.size)
        out = empty_like(self.local, wants[communicator.rank].shape)
        begin(communicator, [Move(self.held, wants, out)], Account(), "redistributing a matrix").wait()
        return Array(out, self.shape, distribution, communicator)

    def gather(self) -> npt.NDArray[Any]:
        """The whole matrix, on every process. All processes call it."""
        return self.redistribute(Replicated()).local

    @property
    def held(self) -> Held:
        """The local share, with the shares of all processes."""
        size = self.communicator.size
        replicas = [self.distribution.replica(rank) for rank in range(size)]
        return Held(self.local, shares_of(self.distribution, self.shape, size), replicas)


def shares_of(distribution: Distribution, shape: tuple[int, int], size: int) -> list[Share]:
    """The shares of all processes of a matrix, by rank."""
    return [distribution.share(shape, rank, size) for rank in range(size)]


def array(local: Any, distribution: Distribution | Box, communicator: Any = None, *, timeout: float = 60.0) -> Array:
    """A matrix out of what each process holds of it. All processes call it; nothing is copied.

    Parameters
    ----------
    local : array, two axes, float32, float64, complex64 or complex128
        The share of this process, of NumPy or CuPy, or a tensor of PyTorch, which is viewed. (Tensors on the memory of
        shares are made by `torch.from_numpy(c.local)`, on a GPU by `torch.from_dlpack`.) On a GPU it lies on the one
        that is CuPy's current device; shares of all processes lie on GPUs, or all on hosts. Then a process group has to
        move both, as `init_process_group("cpu:gloo,cuda:nccl")` makes one.
    distribution : Distribution or Box
        `Slab.X`, `Slab.Y`, `BlockCyclic(...)`, `BlockNonCyclic(...)`, `Replicated()`, or this process's own `Box(...)`.
    communicator : optional
        A process group or a `DeviceMesh` of torch.distributed, or a communicator of mpi4py. Default: torch's default
        group if it is initialised, else MPI's COMM_WORLD if mpi4py is imported.
    timeout : float
        Seconds to wait for another process, at most, in products of this array as the left operand and wherever else
        it goes. One that computes longer than that between two messages is taken for missing.

    Returns
    -------
    Array

    Raises
    ------
    ValueError, TypeError
        On all processes, for a share of another shape than the distribution gives, or dtypes that differ.

    Examples
    --------
    >>> import numpy as np
    >>> from ozaki.distributed import Slab, array
    >>> from ozaki.distributed.communicators.threads import run
    >>> def product(communicator):
    ...     rows = array(np.full((2, 3), communicator.rank + 1.0), Slab.X, communicator)
    ...     return rows.shape, rows.gather()[:, 0].tolist()
    >>> run(2, product)[0]
    ((4, 3), [1.0, 1.0, 2.0, 2.0])
    """
    processes = communicator_of(communicator, timeout)
    step, error, found = "making a distributed array", None, None
    try:
        found = _checked(local)
        if not isinstance(distribution, Box):
            check_distribution(distribution)
            distribution.check(processes.size)
    except (TypeError, ValueError) as problem:
        error = problem
    agree(processes, step, error)
    assert found is not None
    same_on_all(processes, step, distribution=type(distribution).__name__)
    if isinstance(distribution, Box):
        distribution = Boxes(tuple(processes.all_gather(distribution, step)))
    library = "cupy" if on_gpu(found) else "numpy"
    same_on_all(processes, step, dtype=str(found.dtype), distribution=repr(distribution), library=library)
    shapes = processes.all_gather(found.shape, step)
    shape = distribution.shape_of(shapes)
    for rank, each in enumerate(shapes):
        expected = distribution.share(shape, rank, processes.size).shape
        if each != expected:
            raise ValueError(
                f"local: shape {each} on process {rank}; expected {expected}, its share of a matrix of shape {shape} "
                f"by {distribution!r}"
            )
    return Array(found, shape, distribution, processes)


def share_of(x: Any, distribution: Distribution, communicator: Any = None, *, timeout: float = 60.0) -> Array:
    """A matrix that every process can read, of which each takes its share: a view or a copy of its part alone.

    Parameters
    ----------
    x : array, two axes; the same on all processes, as a memory map of one file
    distribution, communicator, timeout : as for `array`

    Returns
    -------
    Array
    """
    processes = communicator_of(communicator, timeout)
    x = x if hasattr(x, "shape") else plain("x", x)
    agree_on(processes, distribution, "taking shares of a matrix", x.shape)
    rows, cols = distribution.share(x.shape, processes.rank, processes.size)
    at_rows, at_cols = (slice(at.start, at.stop) if isinstance(at, range) else at for at in (rows, cols))
    return array(x[at_rows][:, at_cols], distribution, processes)


def agree_on(communicator: Communicator, distribution: Distribution, step: str, shape: tuple[int, int]) -> None:
    """Refuse, on all processes alike, a distribution that one of them cannot use, or that differs among them.

    So it is with the shape of the matrix.

    Raises
    ------
    TypeError, ValueError, ProcessError
    """
    error: Exception | None = None
    try:
        if len(shape) != 2:
            raise ValueError(f"x: {len(shape)} axes; expected a matrix, two axes")
        check_distribution(distribution)
        distribution.check(communicator.size)
        distribution.check_cover(shape)
    except (TypeError, ValueError) as problem:
        error = problem
    agree(communicator, step, error)
    same_on_all(communicator, step, distribution=repr(distribution), shape=tuple(shape))


def _checked(local: Any) -> npt.NDArray[Any]:
    """The local share as an array of NumPy.

    Raises
    ------
    TypeError, ValueError
    """
    if is_dtensor(type(local)):
        raise TypeError("local: DTensor, which is shared out already; pass it to ozaki.distributed.matmul as it is")
    if (kind := kind_of(local)) is not None and str(getattr(local, "dtype", "")).endswith("float16"):
        raise TypeError(f"local: dtype {local.dtype}; expected one of {', '.join(DTYPES)}; use local.float()")
    view = local if kind is None else kind.view("local", local)[0]
    if on_gpu(view):
        check_current_device(view)
    found = view if on_gpu(view) else plain("local", view)
    if found.ndim != 2:
        raise ValueError(f"local: {found.ndim} axes; expected a matrix, two axes")
    if str(found.dtype) not in DTYPES:
        raise TypeError(f"local: dtype {found.dtype}; expected one of {', '.join(DTYPES)}")
    return found


def check_current_device(x: Any) -> None:
    """Refuse an array of CuPy on another device than the current one, on which this process computes.

    Raises
    ------
    ValueError
    """
    import cupy as cp

    number, current = int(x.data.device_id), int(cp.cuda.runtime.getDevice())
    if number != current:
        raise ValueError(
            f"local: on device {number}, but CuPy's current device is {current}; expected that of the process: "
            f"`cupy.cuda.Device({number}).use()`"
        )
