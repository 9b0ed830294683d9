"""The devices: what is known of each family, as data."""

from __future__ import annotations

from typing import Any

from ozaki.backends.cupy.devices import ampere, hopper, others
from ozaki.backends.cupy.devices.device import Device, Family
from ozaki.caches import cached

__all__ = ["Device", "current", "numbered", "of", "with_known_cores"]

_FAMILIES: tuple[Family, ...] = (hopper.FAMILY, *ampere.FAMILIES, others.BLACKWELL)


def of(capability: str, *, multiprocessors: int, shared_memory: int, **fields: Any) -> Device:
    """The record of a device of that compute capability ("90"); `fields` as for `Device.of`.

    No GPU is needed for that.
    """
    family = next((family for family in _FAMILIES if capability in family.capabilities), others.FAMILY)
    numbers = {"multiprocessors": multiprocessors, "shared_memory": shared_memory}
    return Device.of(family, capability, **numbers, **fields)


def with_known_cores() -> tuple[str, ...]:
    """Compute capabilities of the devices whose tensor cores are known to add in a certain way, in order."""
    return tuple(sorted((c for family in _FAMILIES if family.core is not None for c in family.capabilities), key=int))


def current() -> Device:
    """The current device of CuPy."""
    from cupy.cuda import runtime

    return numbered(runtime.getDevice())


@cached(64)
def numbered(number: int) -> Device:
    """The device that CuPy gives this number."""
    import cupy as cp
    from cupy.cuda import runtime

    here, properties = cp.cuda.Device(number), runtime.getDeviceProperties(number)
    attributes = here.attributes
    bits = 2e3 * attributes.get("MemoryClockRate", 0) * attributes.get("GlobalMemoryBusWidth", 0)  # a second
    return of(
        here.compute_capability,
        number=number,
        name=properties["name"].decode(),
        multiprocessors=int(properties["multiProcessorCount"]),
        shared_memory=int(attributes["MaxSharedMemoryPerMultiprocessor"]),
        memory=properties.get("totalGlobalMem"),
        memory_bits=int(bits),
    )
