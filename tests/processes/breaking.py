"""A process that dies, fails, or takes long in the middle of a product: what the others have then."""

import os
import time

import launching
import numpy as np

from ozaki import distributed
from ozaki.distributed import Slab
from ozaki.records import progress as records


def work(communicator, how):
    records._INTERVAL = 0.0  # each panel is told
    rank = communicator.rank
    engine = getattr(communicator, "_communicator", None) or communicator._group
    rng = np.random.default_rng(rank)
    a = distributed.array(rng.standard_normal((20, 40_000)), Slab.X, engine, timeout=communicator.timeout)
    before = a.local.copy()
    a.local.flags.writeable = False

    def progress(done, total, unit):
        assert unit == "panels"
        if rank == 1 and done == 2 < total:
            if how == "takes long":
                time.sleep(4)
            if how == "dies":
                os._exit(3)
            if how == "fails":
                raise KeyError(f"panel {done}")

    try:
        distributed.matmul(a, a.T, scheme="residues", slices=14, layers=1, progress=progress)
    finally:
        assert np.array_equal(before, a.local)
    return "all ended well"


if __name__ == "__main__":
    launching.main(work)
