"""Products of matrices that are shared out over processes, with the bits of one process.

Processes are started by torchrun, mpiexec or srun, and talk by torch.distributed or mpi4py. Or the operands are dask
arrays, whose chunks the workers of a scheduler multiply.
"""

from ozaki.distributed.arrays import Array, array, share_of
from ozaki.distributed.chunks import Chunked
from ozaki.distributed.communicators.communicator import ProcessError
from ozaki.distributed.layouts import (
    BlockCyclic,
    BlockNonCyclic,
    Box,
    Boxes,
    Distribution,
    ProcessGrid,
    Replicated,
    Slab,
)
from ozaki.distributed.outline import Outline, plan
from ozaki.distributed.products import gemm, matmul
from ozaki.distributed.report import DistributedReport, ProcessReport

__all__ = [
    "Array",
    "BlockCyclic",
    "BlockNonCyclic",
    "Box",
    "Boxes",
    "Chunked",
    "DistributedReport",
    "Distribution",
    "Outline",
    "ProcessError",
    "ProcessGrid",
    "ProcessReport",
    "Replicated",
    "Slab",
    "array",
    "gemm",
    "matmul",
    "plan",
    "share_of",
]
