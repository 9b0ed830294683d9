"""CuPy on the streams of other libraries."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any


class _Address:
    """The address of a stream, as CUDA's stream protocol gives it."""

    def __init__(self, address: int) -> None:
        self._address = address

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._address


def on_stream(device: int, stream: int | None) -> AbstractContextManager[Any]:
    """Within it, CuPy works on a device, by its index, and on a stream, by its address; on its own one without."""
    import cupy as cp

    here = cp.cuda.runtime.getDevice() == device
    if here and stream in (None, cp.cuda.get_current_stream().ptr):
        return nullcontext()
    entered = ExitStack()
    if not here:
        entered.enter_context(cp.cuda.Device(device))
    if stream is not None:
        entered.enter_context(cp.cuda.Stream.from_external(_Address(stream)))
    return entered
