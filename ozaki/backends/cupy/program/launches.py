"""Kernels launched alone, outside programs.

A launch through CuPy takes the host 6 to 13 microseconds, most of them to convert arguments; one from an argument block
takes 3 to 5.
"""

from __future__ import annotations

import cupy as cp
from cupy.cuda import runtime

from ozaki.backends.cupy.program import driver, streams
from ozaki.backends.cupy.program.calls import idle_block, loaded
from ozaki.backends.cupy.program.kernels import Kernel


def launch(kernel: Kernel, *addresses: int) -> None:
    """Launch a kernel, of these addresses, on CuPy's current stream; it reads them before this returns."""
    idle, block = idle_block(kernel, runtime.getDevice())
    for number, address in zip(kernel.addresses, addresses, strict=True):
        block.pieces[number] = address
    main, *_ = streams.addresses(None)
    block.start(main)
    idle.append(block)


def clusters_at_once(kernel: Kernel, cluster: int) -> int:
    """How many clusters of `cluster` blocks of a kernel the current device runs at once."""
    cp.cuda.Device().use()
    return driver.most_clusters(loaded(kernel).kernel.ptr, cluster, kernel.block, kernel.shared_mem)
