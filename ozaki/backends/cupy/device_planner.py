"""What a device would run, by its record alone: of the current one, or of a model that is not there."""

from __future__ import annotations

from dataclasses import dataclass

from ozaki.backends.cupy.devices import Device
from ozaki.backends.cupy.machine import Machine
from ozaki.backends.cupy.products import program_of
from ozaki.backends.cupy.steps import stacks
from ozaki.backends.cupy.steps.engines.choice import engine_of, has_complex_slices
from ozaki.records.plan import Plan
from ozaki.schemes import Scheme, Words

ENGINES = ("cublas", "fused")


@dataclass(frozen=True)
class DevicePlanner:
    """The answers of a device to planning (`planning.planner.Planner`); no GPU, and no CuPy, is needed for them."""

    device: Device

    @property
    def name(self) -> str:
        """The array library whose arrays the device multiplies."""
        return "cupy"

    @property
    def engines(self) -> tuple[str, ...]:
        """The names of its engines that a caller may give."""
        return ENGINES

    def machine(self) -> Machine:
        """The device, for planning."""
        return Machine(self.device)

    def native_obstacle(self, dtype: str) -> str | None:
        """None: its native product is taken for an IEEE one. A record has no settings by which cuBLAS emulates it."""
        return None

    def engine_name(self, plan: Plan, combined: bool = False, in_steps: bool = False) -> str:
        """Names of the device and of the plan's engine, for reports."""
        if plan.scheme is None:
            return self.device.name
        if not (combined or in_steps) and stacks.multiplies(self.device, plan):
            return f"{self.device.name}, {stacks.LABEL}"
        return f"{self.device.name}, {engine_of(self.device, plan, combined=combined).label}"

    def splits_complex(self, scheme: Scheme | Words | None, engine: str, inner_scaling: bool) -> bool:
        """Whether there are kernels that split complex rows into slices of this scheme, for whatever engine."""
        return has_complex_slices(scheme)

    def steps(self, plan: Plan) -> str:
        """The workspace of a plan on the device, and its steps, a line each."""
        return str(program_of(plan, self.device))
