"""Products of processes whose shares lie on GPUs, here threads that each have a device: the bits of NumPy."""

from __future__ import annotations

from typing import Any
from unittest import mock

import cupy as cp
import numpy as np
import pytest

import ozaki
from ozaki import distributed
from ozaki.distributed import BlockCyclic, ProcessGrid, Replicated, Slab
from ozaki.distributed.communicators.direct import Direct
from ozaki.distributed.communicators.threads import Threads, run
from runs.operands import matrix, same

METHODS: tuple[dict[str, Any], ...] = (
    {"scheme": "residues", "slices": 14},
    {"accuracy": "fp64"},
    {"accuracy": "exact"},
    {"accuracy": ozaki.Accuracy("row-column", 1e-12)},
    {"accuracy": ozaki.Accuracy("relative", 1e-9)},
)


def shared(x: np.ndarray, of: Any, communicator: Any) -> Any:
    """The share of this thread, on its device."""
    rows, cols = of.share(x.shape, communicator.rank, communicator.size)
    return distributed.array(cp.asarray(np.ascontiguousarray(x[np.ix_(rows, cols)])), of, communicator)


def shares_on_devices(rng: np.random.Generator) -> None:
    a, b = matrix(rng, (45, 60), "f8"), matrix(rng, (60, 37), "f8")
    a[3, 7], b[9, 2] = np.nan, np.inf
    c = matrix(rng, (45, 37), "f8")
    blocks = BlockCyclic(ProcessGrid((2, 1)), (4, 7))
    for of_a, of_b, of_c in ((Slab.X, Slab.Y, Slab.X), (Slab.Y, Slab.X, blocks), (blocks, Replicated(), Replicated())):
        for method in METHODS:

            def work(communicator: Any, of: Any = (of_a, of_b, of_c), method: Any = method) -> tuple[Any, ...]:
                with cp.cuda.Device(communicator.rank):
                    x, y = shared(a, of[0], communicator), shared(b, of[1], communicator)
                    found, report = distributed.matmul(x, y, of[2], return_report=True, **method)
                    data: Any = found.local.data
                    assert data.device_id == communicator.rank and report.nonfinite == 2
                    more = distributed.gemm(-1.5, x, y, 0.5, shared(c, of[2], communicator), **method)
                    return cp.asnumpy(found.gather()), cp.asnumpy(more.gather())

            want = ozaki.matmul(a, b, reproducible=True, inner_scaling=False, **method)
            plus = ozaki.gemm(-1.5, a, b, 0.5, c, reproducible=True, inner_scaling=False, **method)
            for found, more in run(2, work, 20):
                same(want, found)
                same(plus, more)


def through_memory_of_the_host(rng: np.random.Generator) -> None:
    """Shares on GPUs of processes whose engine moves arrays of the host alone."""
    a, b = matrix(rng, (25, 60), "f8"), matrix(rng, (60, 17), "f8")

    def work(communicator: Any) -> Any:
        with cp.cuda.Device(communicator.rank):
            x, y = shared(a, Slab.X, communicator), shared(b, Slab.X, communicator)
            return cp.asnumpy(distributed.matmul(x, y, Slab.Y, scheme="residues", slices=14).gather())

    with mock.patch.object(Threads, "_start_on_gpu", Direct._start_on_gpu):
        for found in run(2, work, 20):
            same(ozaki.matmul(a, b, scheme="residues", slices=14), found)


def refused_on_devices(rng: np.random.Generator) -> None:
    a = matrix(rng, (6, 6), "f8")

    def work(communicator: Any) -> bool:
        with cp.cuda.Device(communicator.rank):
            x = shared(a, Slab.X, communicator)
            for options, match in (
                ({"layers": 2}, "layers: 2 of shares on GPUs"),
                ({"workspace_limit": 10**9}, "workspace_limit: not of shares on GPUs"),
                ({"inner_scaling": True}, "inner_scaling: True is not"),
            ):
                with pytest.raises(NotImplementedError, match=match):
                    distributed.matmul(x, x, **options)
            with pytest.raises(ValueError, match="b: shares in host memory"):
                distributed.matmul(x, distributed.share_of(a, Slab.X, communicator))
        return True

    assert all(run(2, work, 20))
