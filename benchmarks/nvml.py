"""What NVML, the driver's library, tells of a GPU."""

from __future__ import annotations

from typing import Any


class Nvml:
    """The GPU at that address of the PCI bus; a `Meter`.

    Raises
    ------
    ImportError
        Without pynvml.
    pynvml.NVMLError
        Here and by every method, where NVML has no answer.
    """

    def __init__(self, bus_id: str) -> None:
        import pynvml

        pynvml.nvmlInit()
        self._nvml: Any = pynvml
        self._device = pynvml.nvmlDeviceGetHandleByPciBusId(bus_id)

    def watts(self) -> float:
        """Power at this moment: from Ampere on, NVML's usual reading is a mean over the last second."""
        (field,) = self._nvml.nvmlDeviceGetFieldValues(self._device, [self._nvml.NVML_FI_DEV_POWER_INSTANT])
        if field.nvmlReturn != self._nvml.NVML_SUCCESS:
            raise self._nvml.NVMLError(field.nvmlReturn)
        return 1e-3 * float(field.value.uiVal)

    def joules(self) -> float:
        """Energy since some moment in the past, counted on every tenth of a second or so."""
        return 1e-3 * float(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._device))

    def seconds_limited(self) -> float:
        """Seconds for which the limit of power has held the clock down, of all time."""
        limit = self._nvml.NVML_PERF_POLICY_POWER
        return 1e-9 * float(self._nvml.nvmlDeviceGetViolationStatus(self._device, limit).violationTime)

    def driver(self) -> str:
        """Its version."""
        return str(self._nvml.nvmlSystemGetDriverVersion())
