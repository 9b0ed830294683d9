"""How many clusters of blocks a device runs at once."""

from __future__ import annotations

from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.program.kernels import Kernel


def clusters_at_once(device: Device, kernel: Kernel, cluster: int, of_multiprocessor: int = 1) -> int:
    """How many clusters of `cluster` blocks of a kernel run at once; 0 if none fits.

    For the record of a device that is not present, as if a multiprocessor had room for `of_multiprocessor` blocks.
    """
    if device.number is None:
        return of_multiprocessor * device.multiprocessors // cluster
    from ozaki.backends.cupy.program import launches  # imports CuPy

    return launches.clusters_at_once(kernel, cluster)
