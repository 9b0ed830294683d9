"""The panels in which the worst ratios of a level are found within a limit of memory."""

from __future__ import annotations

from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.steps.proof import proof_workspace
from ozaki.backends.panels import Panels


def panels_of(device: Device, level: str, left: tuple[int, ...], right: tuple[int, ...], limit: int | None) -> Panels:
    """The panels of operands of shapes (batch, rows, k); `limit`: bytes, or None for one panel of everything."""
    (batch_a, m, k), (batch_b, n, _) = left, right

    def workspace(batch: int, rows: int, columns: int) -> int:
        return proof_workspace(device, level, (min(batch, batch_a), rows, k), (min(batch, batch_b), columns, k))

    return Panels((max(batch_a, batch_b), m, n), workspace, limit)
