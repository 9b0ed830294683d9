"""What planning asks of an array library: `Planner`, the part of a backend that needs no operands."""

from __future__ import annotations

from typing import Protocol

from ozaki.planning.question import Machine
from ozaki.records.plan import Plan
from ozaki.schemes import Scheme, Words


class Planner(Protocol):
    """The part of a backend that plans for shapes and describes plans; the record of an absent GPU can do that too."""

    @property
    def name(self) -> str:
        """The name of the array library: "numpy" or "cupy"."""
        ...

    @property
    def engines(self) -> tuple[str, ...]:
        """The names of its engines that a caller may give."""
        ...

    def machine(self) -> Machine:
        """The machine that would compute (on a GPU: the current device), as planning asks about it."""
        ...

    def native_obstacle(self, dtype: str) -> str | None:
        """The setting that makes the native product less accurate than an IEEE one; None if there is none."""
        ...

    def splits_complex(self, scheme: Scheme | Words | None, engine: str, inner_scaling: bool) -> bool:
        """Whether complex rows are split into slices of this scheme, for an engine of that name.

        Other products of complex operands are real ones of their parts.
        """
        ...

    def engine_name(self, plan: Plan, combined: bool = False, in_steps: bool = False) -> str:
        """Device and engine that run a plan, as the report names them.

        `combined`: with an addend, rounded once; `in_steps`: of operands that are split already, or a product that is
        checked, which no kernel computes as a whole.
        """
        ...

    def steps(self, plan: Plan) -> str:
        """The steps of a plan, a line each, for operands in row-major order."""
        ...
