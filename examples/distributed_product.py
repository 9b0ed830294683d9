"""Multiply two matrices on several processes: however they are shared out, the bits are those of one process.

torchrun --nproc-per-node 4 examples/distributed_product.py
mpiexec -n 4 python -m mpi4py examples/distributed_product.py
python examples/distributed_product.py

Residues of parts of k are integers, which are added, and entries are rounded once. So neither the number of processes,
nor who has and who computes what, is in the result. The last column is the start of its SHA-256.
"""

import hashlib
import os
import sys

import numpy as np

import ozaki
from ozaki import distributed
from ozaki.distributed import BlockCyclic, BlockNonCyclic, ProcessGrid, Replicated, Slab
from ozaki.distributed.communicators import communicator_of
from ozaki.distributed.communicators.communicator import Communicator

METHODS = {"fp64": {"accuracy": "fp64"}, "12 residues": {"scheme": "residues", "slices": 12}}


def matrices() -> tuple[np.ndarray, np.ndarray]:
    """Two matrices that every process can make; as a rule each makes, or reads, its share alone."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((150, 2001)), rng.standard_normal((2001, 130))


def digest(c: np.ndarray) -> str:
    """The first digits of the hash of a matrix."""
    return hashlib.sha256(np.ascontiguousarray(c)).hexdigest()[:16]


def layouts(size: int) -> dict[str, tuple]:
    """Distributions of A, B and C, and options, by what they are."""
    tall, wide = ProcessGrid((size, 1)), ProcessGrid((1, size))
    square = ProcessGrid((2, size // 2) if size % 2 == 0 else (1, size))
    return {
        "rows, grid as ozaki chooses it": (Slab.X, Slab.X, Slab.X, {}),
        "rows and columns, tall grid": (Slab.X, Slab.Y, Slab.Y, {"grid": tall}),
        "ScaLAPACK's blocks, wide grid": (
            BlockCyclic(square, (32, 32)),
            Slab.X,
            BlockNonCyclic(square),
            {"grid": wide},
        ),
        "copies, k in layers": (Replicated(), Slab.X, Replicated(), {"layers": size}),
    }


def main(communicator: Communicator) -> None:
    """Print a line for each layout; all processes call it."""
    a, b = matrices()
    first = communicator.rank == 0
    for method, options in METHODS.items():
        one = digest(ozaki.matmul(a, b, reproducible=True, **options))
        if first:
            print(f"{method + ', one process, NumPy':48} {one}")
        for name, (of_a, of_b, of_c, more) in layouts(communicator.size).items():
            x, y = distributed.share_of(a, of_a, communicator), distributed.share_of(b, of_b, communicator)
            c = distributed.matmul(x, y, of_c, **more, **options)
            assert digest(c.gather()) == one, name
            if first:
                print(f"{method + ', ' + name:48} {one}")
    if first:
        print(f"{communicator.size} processes: in each layout the bits of one process")


if __name__ == "__main__":
    if "TORCHELASTIC_RUN_ID" in os.environ:  # set by torchrun
        import torch.distributed as dist

        dist.init_process_group("gloo")
        main(communicator_of(dist.group.WORLD))
        dist.destroy_process_group()
    elif "mpi4py" in sys.modules:  # by python -m mpi4py
        from mpi4py import MPI

        main(communicator_of(MPI.COMM_WORLD))
    else:  # threads in the place of processes
        from ozaki.distributed.communicators.threads import run

        run(4, main)
