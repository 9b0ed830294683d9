"""Matrices of which each process holds a share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from ozaki.call.operands import dtype_of
from ozaki.distributed.communicators import communicator_of
from ozaki.distributed.communicators.communicator import Communicator, agree, same_on_all
from ozaki.distributed.layouts import Box, Boxes, Distribution, Replicated, Share, as_index, check_distribution
from ozaki.distributed.moving import Account, Held, Move, begin, empty_like
from ozaki.interchange.kinds import is_dtensor, kind_of
from ozaki.interchange.plain import plain
from ozaki.multiprecision.numbers import Numbers
from ozaki.process.placement import on_gpu, where_they_lie
from ozaki.records.formats import DTYPES


@dataclass(frozen=True, eq=False)
class Array:
    """A matrix of which each process holds a share; `ozaki.distributed.array` makes one.

    Attributes
    ----------
    local : array of NumPy, or of CuPy on this process's GPU
        The share of this process; float32, float64, complex64 or complex128.
    shape : tuple of int
        Of the whole matrix.
    distribution : Distribution
        Which rows and columns each process holds.
    communicator : Communicator
        The processes.
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
        with where_they_lie([("local", self.local)]):
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
        agree_on(communicator, distribution, "redistributing a matrix")
        distribution.check_cover(self.shape)
        wants = shares_of(distribution, self.shape, communicator.size)
        with where_they_lie([("local", self.local)]):
            out = empty_like(self.local, wants[communicator.rank].shape)
            begin(communicator, [Move(self.held, wants, out)], Account(), "redistributing a matrix").wait()
        return Array(out, self.shape, distribution, communicator)

    def gather(self) -> npt.NDArray[Any]:
        """The whole matrix, on every process. All processes call it."""
        return self.redistribute(Replicated()).local

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Refuse to become an array of NumPy, which would hold this object as its one element.

        Raises
        ------
        TypeError
        """
        raise TypeError(
            f"distributed.Array of shape {self.shape}: its elements lie on {self.communicator.size} processes; use "
            ".gather(), which all processes call, or .local, the share of this one"
        )

    @property
    def held(self) -> Held:
        """The local share, and who holds which others: what moving and measuring take."""
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
        The share of this process: an array of NumPy or CuPy, or a tensor of PyTorch, which is viewed. (Tensors on the
        memory of shares are made by `torch.from_numpy(c.local)`, on a GPU by `torch.from_dlpack`.) Elements in the
        other byte order, and lists, are copied. Shares of all processes lie in host memory, or all on GPUs: that of a
        process on the GPU that is CuPy's current device. Of GPUs, a process group has to move what lies in host memory,
        too: `init_process_group("cpu:gloo,cuda:nccl")` makes such a group.
    distribution : Distribution or Box
        `Slab.X`, `Slab.Y`, `BlockCyclic(...)`, `BlockNonCyclic(...)`, `Chunked(...)`, `Replicated()`, the same on all
        processes; or the `Box(...)` of this process.
    communicator : optional
        A process group or a `DeviceMesh` of torch.distributed, or a communicator of mpi4py. Default: torch's default
        group if it is initialised, else MPI's COMM_WORLD if mpi4py is imported.
    timeout : float
        Seconds to wait for another process, at most, when this array is gathered or redistributed, and in products with
        it as the left operand. A process that computes longer than that between two messages is taken for missing.

    Returns
    -------
    Array

    Raises
    ------
    TypeError, ValueError
        For what is no matrix of these dtypes, or no distribution, on the processes that have given it: others raise
        `ProcessError`. On all processes, for shapes that are not those of shares of one matrix, and for dtypes or
        distributions that differ.
    RuntimeError
        If no processes have been started.

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
    own_box = distribution if isinstance(distribution, Box) else None
    try:
        found = _checked(local)
        if not isinstance(distribution, Box):
            check_distribution(distribution)
            distribution.check(processes.size)
    except (TypeError, ValueError) as problem:
        error = problem
    agree(processes, step, error)
    assert found is not None
    of_all = repr(distribution) if own_box is None else "a Box of each process"
    library = "cupy" if on_gpu(found) else "numpy"
    same_on_all(processes, step, dtype=str(found.dtype), distribution=of_all, library=library)
    given = processes.all_gather((found.shape, own_box), step)
    if isinstance(distribution, Box):
        distribution = Boxes(tuple(box for _, box in given))
    return Array(found, _whole([shape for shape, _ in given], distribution), distribution, processes)


def _whole(shapes: list[tuple[int, int]], distribution: Distribution) -> tuple[int, int]:
    """The shape of the matrix of which the processes have given shares of these shapes.

    Raises
    ------
    ValueError
        If these are not its shares. Which process is wrong may not be known, as of two processes: so the message has
        the shape of a process that fits beside those of some that do not.
    """
    shape = distribution.shape_of(shapes)
    expected = [share.shape for share in shares_of(distribution, shape, len(shapes))]
    ranks = range(len(shapes))
    wrong = [rank for rank in ranks if shapes[rank] != expected[rank]]
    if wrong:
        named = sorted([*[rank for rank in ranks if rank not in wrong][:1], *wrong[:3]])
        given, right = (", ".join(f"{each[rank]} on process {rank}" for rank in named) for each in (shapes, expected))
        raise ValueError(
            f"local: shapes {given}; expected {right}: the shares of a matrix of shape {shape} by {distribution!r}"
        )
    return shape


def share_of(x: Any, distribution: Distribution, communicator: Any = None, *, timeout: float = 60.0) -> Array:
    """A matrix that every process can read, of which each takes its share: a view or a copy of its part alone.

    Parameters
    ----------
    x : array, two axes
        The same on all processes, as a memory map of one file; its dtype as for `array`.
    distribution : Distribution
        The same on all processes; no `Box`.
    communicator, timeout : as for `array`

    Returns
    -------
    Array

    Raises
    ------
    TypeError, ValueError, RuntimeError
        As `array`, and for shapes of x that differ among processes.

    Examples
    --------
    >>> import numpy as np
    >>> from ozaki.distributed import Slab, share_of
    >>> from ozaki.distributed.communicators.threads import run
    >>> x = np.arange(12.0).reshape(4, 3)
    >>> run(2, lambda communicator: share_of(x, Slab.Y, communicator).local[0].tolist())
    [[0.0, 1.0], [2.0]]
    """
    processes, step = communicator_of(communicator, timeout), "taking shares of a matrix"
    agree_on(processes, distribution, step)
    shape: tuple[int, ...] = tuple(getattr(x, "shape", ()))
    is_matrix = len(shape) == 2
    what = f"{len(shape)} axes" if shape else type(x).__name__
    error = None if is_matrix else TypeError(f"x: {what}; expected an array of two axes, as numpy.asarray(x)")
    agree(processes, step, error)
    same_on_all(processes, step, shape=shape)
    distribution.check_cover((shape[0], shape[1]))
    share = distribution.share((shape[0], shape[1]), processes.rank, processes.size)
    return array(x[as_index(share.rows)][:, as_index(share.cols)], distribution, processes)


def agree_on(communicator: Communicator, distribution: Distribution, step: str) -> None:
    """Refuse, on all processes alike, a distribution that one of them cannot use, or that differs among them.

    Raises
    ------
    TypeError, ValueError, ProcessError
    """
    error: Exception | None = None
    try:
        check_distribution(distribution)
        distribution.check(communicator.size)
    except (TypeError, ValueError) as problem:
        error = problem
    agree(communicator, step, error)
    same_on_all(communicator, step, distribution=repr(distribution))


def _checked(local: Any) -> npt.NDArray[Any]:
    """The local share as an array of NumPy or CuPy.

    Raises
    ------
    TypeError, ValueError
    """
    if is_dtensor(type(local)):
        raise TypeError("local: DTensor, which is shared out already; pass it to ozaki.distributed.matmul as it is")
    if isinstance(local, Numbers):
        raise TypeError("local: multiprecision numbers; expected floats, as local.astype('float64') rounds to")
    kind = kind_of(local)
    if kind is not None and str(local.dtype).removeprefix("torch.") not in DTYPES:
        refuse_dtype("local", local.dtype)
    found: npt.NDArray[Any] = local if kind is None else kind.view("local", local)[0]
    if on_gpu(found):
        check_current_device(found)
    else:
        found = plain("local", found)
    if found.ndim != 2:
        raise ValueError(f"local: {found.ndim} axes; expected a matrix, two axes")
    dtype_of("local", found)
    return found


def refuse_dtype(name: str, dtype: Any) -> NoReturn:
    """Refuse a tensor, or an array of JAX, of another dtype than products have.

    Raises
    ------
    TypeError
    """
    is_half = str(dtype).endswith("float16")
    if str(dtype).startswith("torch."):
        remedy = f"{name}.float()" if is_half else f"{name}.double()"
    else:
        remedy = f"{name}.astype('{'float32' if is_half else 'float64'}')"
    raise TypeError(f"{name}: dtype {dtype}; expected one of {', '.join(DTYPES)}; use {remedy}")


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
