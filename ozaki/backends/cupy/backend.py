"""The CuPy backend (`backends.Backend`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cupy as cp

from ozaki.backends import results
from ozaki.backends.cupy import devices
from ozaki.backends.cupy.device_planner import ENGINES, DevicePlanner
from ozaki.backends.cupy.inputs import same_view as views_are_same
from ozaki.backends.cupy.machine import Machine
from ozaki.backends.cupy.prepared import split as split
from ozaki.backends.cupy.repeated import keep as keep
from ozaki.backends.cupy.steps.engines.choice import engine_of, has_complex_slices
from ozaki.backends.cupy.steps.native import native_obstacle as native_obstacle
from ozaki.backends.cupy.work import Work
from ozaki.multiprecision.arithmetic import broadcast_to as broadcast_numbers
from ozaki.multiprecision.numbers import Numbers
from ozaki.records.combination import Combination
from ozaki.records.memory import Memory
from ozaki.records.plan import Plan, slices_depend_on
from ozaki.records.progress import SILENT, Progress
from ozaki.records.shapes import Side
from ozaki.records.verification import Verification
from ozaki.schemes import Scheme, Words

name = "cupy"
engines: tuple[str, ...] = ENGINES


# Arrays -------------------------------------------------------------------------------------------------------------


def owns(x: Any) -> bool:
    """Whether x is a CuPy array."""
    return isinstance(x, cp.ndarray)


def asarray(name: str, x: Any) -> Any:
    """The argument x of that name if it is a CuPy array, else a CuPy array of its elements."""
    return x if isinstance(x, cp.ndarray) else cp.asarray(x)


def empty(shape: tuple[int, ...], dtype: str) -> Any:
    """A new array for a result, C-contiguous, its elements undefined; of multiprecision numbers zeros."""
    return results.empty(shape, dtype, cp)


def contiguous(x: Any) -> bool:
    """Whether x is C-contiguous, so that a result can be computed in it."""
    return bool(x.flags.c_contiguous)


def overlap(x: Any, y: Any) -> bool:
    """Whether two arrays may share memory."""
    return bool(cp.may_share_memory(*(z.limbs if isinstance(z, Numbers) else z for z in (x, y))))


def broadcast_to(x: Any, shape: tuple[int, ...]) -> Any:
    """A view of x, broadcast to that shape."""
    return broadcast_numbers(x, shape) if isinstance(x, Numbers) else cp.broadcast_to(x, shape)


def same_view(x: Any, y: Any) -> bool:
    """Whether two arrays are the same elements of the same memory in the same order."""
    return isinstance(x, cp.ndarray) and isinstance(y, cp.ndarray) and views_are_same(x, y)


# Planning -----------------------------------------------------------------------------------------------------------


def machine() -> Machine:
    """The current device, for planning."""
    return Machine(devices.current())


def _here() -> DevicePlanner:
    return DevicePlanner(devices.current())


def engine_name(plan: Plan, combined: bool = False, in_steps: bool = False) -> str:
    """Names of the current device and of the plan's engine, for reports."""
    return _here().engine_name(plan, combined, in_steps)


def splits_complex(scheme: Scheme | Words | None, engine: str, inner_scaling: bool) -> bool:
    """Whether there are kernels that split complex rows into slices of this scheme, for whatever engine."""
    return has_complex_slices(scheme)


def steps(plan: Plan) -> str:
    """The workspace of a plan on the current device, and its steps, a line each."""
    return _here().steps(plan)


def same_slices(plan: Plan, other: Plan) -> bool:
    """Whether slices for one plan serve another one.

    They lie as the engine wants them to, and a batch or a limit of workspace may ask for another engine.
    """
    if slices_depend_on(plan) != slices_depend_on(other):
        return False
    device = devices.current()
    return bool(engine_of(device, plan) == engine_of(device, other))


def describing_bytes(rows: Any) -> tuple[int, int]:
    """No bytes: the 60 or so of a row do not count as workspace, and the program counts leading bits itself."""
    return 0, 0


# Products -----------------------------------------------------------------------------------------------------------


checks_complex_slices = False
reads_halves = True


def work(
    a: Any,
    b: Any,
    rows: Callable[[Side], Any],
    dtype: str,
    memory: Memory,
    combination: Combination | None = None,
    addend: Callable[[], Any] | None = None,
    adjoint: bool = False,
    progress: Progress = SILENT,
    verification: Verification | None = None,
) -> Work:
    """One product (`backends.Backend.work`)."""
    return Work(a, b, rows, dtype, memory, combination, addend, adjoint, progress, verification)
