"""GPUs by name, so that `ozaki plan --gpu` can speak for those that are not there: what NVIDIA publishes of each.

Sources: the architectures' white papers for the multiprocessors, the CUDA C++ Programming Guide for the shared memory
of one, the models' data sheets for the memory and its bandwidth. H100 and A100 are the SXM modules of 80 GB.
"""

from __future__ import annotations

from ozaki.backends.cupy.devices import of
from ozaki.backends.cupy.devices.device import Device


def _model(name: str, capability: str, multiprocessors: int, shared: int, gigabytes: int, bandwidth: float) -> Device:
    """The record of a model; `shared`: KiB of shared memory of a multiprocessor; `bandwidth`: of memory, in TB/s."""
    return of(
        capability,
        name=f"NVIDIA {name}",
        multiprocessors=multiprocessors,
        shared_memory=shared * 1024,
        memory=gigabytes * 10**9,
        memory_bits=int(8e12 * bandwidth),
    )


MODELS = {
    "t4": _model("T4", "75", 40, 64, 16, 0.32),
    "a100": _model("A100", "80", 108, 164, 80, 2.04),
    "rtx3090": _model("GeForce RTX 3090", "86", 82, 100, 24, 0.94),
    "l4": _model("L4", "89", 58, 100, 24, 0.3),
    "l40s": _model("L40S", "89", 142, 100, 48, 0.86),
    "rtx4090": _model("GeForce RTX 4090", "89", 128, 100, 24, 1.01),
    "h100": _model("H100", "90", 132, 228, 80, 3.35),
    "h200": _model("H200", "90", 132, 228, 141, 4.8),
    "b200": _model("B200", "100", 148, 228, 180, 7.7),
    "rtx5090": _model("GeForce RTX 5090", "120", 170, 100, 32, 1.79),
}
