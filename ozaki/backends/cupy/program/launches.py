"""Kernels loaded on a device, and the argument blocks that launch them.

A launch through CuPy takes the host 6 to 13 microseconds, most of them to convert arguments; one from an argument block
takes 3 to 5.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import addressof, c_uint64, c_void_p
from threading import Lock
from typing import Any, NamedTuple

import cupy as cp
from cupy.cuda import runtime

from ozaki.backends.cupy.program import compiling, driver, streams
from ozaki.backends.cupy.program.kernels import Kernel


class Block(NamedTuple):
    """An argument block: the arguments of a kernel in memory, for one launch at a time.

    Attributes
    ----------
    pieces : the arguments, as in `Kernel.pieces`; the addresses among them are written before a launch
    start : launches the kernel on the stream whose address it is given
    """

    pieces: Any
    start: Callable[[int], object]


def block_of(kernel: Kernel) -> Block:
    """A new argument block; compiles the kernel for the current device if that was not done before."""
    call = _loaded(kernel)
    pieces = (c_uint64 * len(kernel.pieces))(*kernel.pieces)
    addresses = (c_void_p * len(kernel.starts))(*(addressof(pieces) + 8 * start for start in kernel.starts))
    return Block(pieces, driver.launcher(call.kernel.ptr, kernel.grid, kernel.block, kernel.shared_mem, addresses))


def idle_block(kernel: Kernel, device: int) -> tuple[list[Block], Block]:
    """An argument block that no launch uses, and the list that it goes back to after its launch."""
    idle = kernel.idle_blocks.setdefault(device, [])
    try:
        return idle, idle.pop()
    except IndexError:
        return idle, block_of(kernel)


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
    return driver.most_clusters(_loaded(kernel).kernel.ptr, cluster, kernel.block, kernel.shared_mem)


def _loaded(kernel: Kernel) -> Any:
    """The kernel on the current device; its limit of dynamic shared memory is raised to what this launch needs."""
    call = compiling.kernel(kernel.file, kernel.function, **kernel.macros)
    if kernel.shared_mem:
        with _allowing:
            if call.max_dynamic_shared_size_bytes < kernel.shared_mem:
                call.max_dynamic_shared_size_bytes = kernel.shared_mem
    return call


_allowing = Lock()
"""Held while the limit of shared memory is raised, so that no thread lowers what another one has set."""
