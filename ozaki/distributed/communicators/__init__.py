"""The engines that run processes, each behind the protocol `Communicator`."""

from __future__ import annotations

import sys
from typing import Any

from ozaki.distributed.communicators.communicator import Communicator

__all__ = ["communicator_of"]


def communicator_of(x: Any = None, timeout: float = 60.0) -> Communicator:
    """The processes that an argument stands for.

    Libraries that the caller has not imported are not imported here: processes are started by it, or by what starts it.

    Parameters
    ----------
    x : a process group of `torch.distributed`, or a `DeviceMesh`; a communicator of `mpi4py`; a `Communicator`, which
        stands for itself; None for the default group of `torch.distributed`, if that is imported and initialised, else
        MPI.COMM_WORLD, if `mpi4py.MPI` is imported
    timeout : seconds to wait for another process, at most; a `Communicator` has its own

    Raises
    ------
    TypeError
        If x is none of these.
    RuntimeError
        If x is None, and no processes have been started.
    """
    dist, mpi = sys.modules.get("torch.distributed"), sys.modules.get("mpi4py.MPI")
    torch_runs = dist is not None and dist.is_available() and dist.is_initialized()
    if x is None:
        if torch_runs:
            x = dist.group.WORLD  # type: ignore[union-attr]
        elif mpi is not None:
            x = mpi.COMM_WORLD
        else:
            raise RuntimeError(
                "no processes have been started: call torch.distributed.init_process_group in a program that torchrun "
                "starts, or import mpi4py.MPI in one that mpiexec starts"
            )
    if torch_runs and isinstance(x, dist.ProcessGroup):  # type: ignore[union-attr]
        from ozaki.distributed.communicators.torch_group import TorchGroup

        return TorchGroup(x, timeout)
    meshes = sys.modules.get("torch.distributed.device_mesh")
    if torch_runs and meshes is not None and isinstance(x, meshes.DeviceMesh) and x.get_coordinate() is not None:
        from ozaki.distributed.communicators.torch_group import MeshProcesses

        return MeshProcesses(x, timeout)
    if mpi is not None and isinstance(x, mpi.Intracomm) and x != mpi.COMM_NULL:
        from ozaki.distributed.communicators.mpi import MPIProcesses

        return MPIProcesses(x, timeout)
    of_mpi = mpi is not None and isinstance(x, mpi.Comm)  # whose null raises errors of its own where it is asked
    names = "rank", "size", "timeout", "all_gather", "all_reduce", "start", "fail"
    if not of_mpi and all(hasattr(x, name) for name in names):
        return x  # type: ignore[no-any-return]
    raise TypeError(
        f"communicator: {type(x).__name__}; expected a process group or a device mesh of torch.distributed that "
        "this process is in, such a communicator of mpi4py within one group of processes, or None"
    )
