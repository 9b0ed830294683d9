"""Readings of NVML, the driver's library, for a GPU."""

from __future__ import annotations

from typing import Any


class Nvml:
    """The GPU at an address of the PCI bus; a `Meter` (reproduce/power.py).

    Raises
    ------
    ImportError
        Without pynvml.
    pynvml.NVMLError
        Raised here and by every method, if NVML has no answer.
    """

    def __init__(self, bus_id: str) -> None:
        import pynvml

        pynvml.nvmlInit()
        self._nvml: Any = pynvml
        self._device = pynvml.nvmlDeviceGetHandleByPciBusId(bus_id)

    def watts(self) -> float:
        """Power at this moment, in watts; NVML's usual reading is a mean over the last second from Ampere on."""
        (field,) = self._nvml.nvmlDeviceGetFieldValues(self._device, [self._nvml.NVML_FI_DEV_POWER_INSTANT])
        if field.nvmlReturn != self._nvml.NVML_SUCCESS:
            raise self._nvml.NVMLError(field.nvmlReturn)
        return 1e-3 * float(field.value.uiVal)

    def joules(self) -> float:
        """Energy in joules since some moment in the past; the counter advances about every tenth of a second."""
        return 1e-3 * float(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._device))

    def seconds_limited(self) -> float:
        """Seconds for which the power limit has held the clock down, since some moment in the past."""
        limit = self._nvml.NVML_PERF_POLICY_POWER
        return 1e-9 * float(self._nvml.nvmlDeviceGetViolationStatus(self._device, limit).violationTime)

    def driver(self) -> str:
        """The version of the driver."""
        return str(self._nvml.nvmlSystemGetDriverVersion())
