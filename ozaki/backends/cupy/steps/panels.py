"""The panels in which the worst ratios of a level are found within a limit of memory."""

from __future__ import annotations

from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.program.arrays import Array
from ozaki.backends.cupy.steps.proof import proof_workspace
from ozaki.backends.panels import Panels


def panels_of(device: Device, level: str, left: Array, right: Array, limit: int | None) -> Panels:
    """The panels of operands, shapes (batch, rows, k); `limit`: bytes, or None for one panel of everything."""
    (batch_a, m, k), (batch_b, n, _), parts = left.shape, right.shape, left.dtype.parts

    def workspace(batch: int, rows: int, columns: int) -> int:
        return proof_workspace(device, level, (min(batch, batch_a), rows, k), (min(batch, batch_b), columns, k), parts)

    return Panels((max(batch_a, batch_b), m, n), workspace, limit)
