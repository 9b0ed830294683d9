"""The emulated GPUs: which is the current one of a thread, and on which one memory lies.

A kernel that reads memory of another GPU than the current one ends a process on real hardware; here it raises, and so
does CuPy's own work on such arrays, which there runs slowly, unordered with other work, or not at all.
"""

from __future__ import annotations

import bisect
from threading import RLock, local
from typing import Any

COUNT = 2


class WrongDeviceError(Exception):
    """Work on memory, a stream, an event or a kernel of another device than the current one."""


class _Thread(local):
    """The current device of a thread, and the devices on which it has a CUDA context."""

    def __init__(self) -> None:
        self.current = 0
        self.contexts: set[int] = set()
        self.entered: list[int] = []


_thread = _Thread()


def current() -> int:
    """cudaGetDevice."""
    return _thread.current


def use(number: int) -> None:
    """cudaSetDevice, which gives the thread a context there."""
    if number not in range(COUNT):
        raise ValueError(f"device {number}: invalid device ordinal")
    _thread.current = number
    _thread.contexts.add(number)


def has_context() -> bool:
    """Whether the thread has a context on its current device."""
    return _thread.current in _thread.contexts


def enter(number: int) -> None:
    """What `with cupy.cuda.Device(number)` does: nothing, on the current device."""
    _thread.entered.append(_thread.current)
    if number != _thread.current:
        use(number)


def leave() -> None:
    """What it does at its end."""
    use(_thread.entered.pop())


def check(what: str, *devices: int | None) -> None:
    """Raise if one of these devices, of which None is unknown, is not the current one."""
    for number in devices:
        if number not in (None, current()):
            raise WrongDeviceError(f"{what} of device {number}, while device {current()} is the current one")


# Memory --------------------------------------------------------------------------------------------------------------

_lock = RLock()
_begins: list[int] = []
_blocks: dict[int, tuple[int, int]] = {}
"""Where each block of device memory ends, and its device, by the address at which it begins."""


held, most = [0] * COUNT, [0] * COUNT
"""Bytes of all blocks of each device: now, and the most since a case has set it."""


def register(begin: int, size: int) -> None:
    """Note a new block on the current device."""
    with _lock:
        bisect.insort(_begins, begin)
        device = current()
        _blocks[begin] = begin + size, device
        held[device] += size
        most[device] = max(most[device], held[device])


def unregister(begin: int) -> None:
    """Forget a block that is freed."""
    with _lock:
        _begins.pop(bisect.bisect_left(_begins, begin))
        end, device = _blocks.pop(begin)
        held[device] -= end - begin


def device_of(address: Any) -> int | None:
    """The device whose memory begins, lies or ends at an address; None if that is no device memory."""
    with _lock:
        place = bisect.bisect_right(_begins, address) - 1
        if place < 0:
            return None
        end, device = _blocks[_begins[place]]
        return device if address <= end else None
