"""NumPy: arrays in host memory, the same image and the same bits as on every other backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki import _environment
from ozaki._masks import unmasked
from ozaki._operands import Side
from ozaki._plan import Plan
from ozaki.backends.numpy import _machine
from ozaki.backends.numpy._axpby import axpby as axpby
from ozaki.backends.numpy._describe import describe
from ozaki.backends.numpy._describe import describing_workspace as describing_workspace
from ozaki.backends.numpy._execute import split as _split
from ozaki.backends.numpy._sharing import overlap as overlap
from ozaki.backends.numpy._slices import Slices
from ozaki.backends.numpy._words import WordSlices
from ozaki.backends.numpy.listing import steps_of
from ozaki.backends.numpy.work import Work
from ozaki.planning.question import Machine
from ozaki.schemes import Words

name = "numpy"
engines: tuple[str, ...] = ("float64", "int8")
row_bytes = 256  # 48 for the fields of a description, 8 for an exponent, the rest for error terms and norms


def asarray(x: Any) -> npt.NDArray[Any]:
    """x, or an array of what it holds; masked elements are refused."""
    return unmasked(x)


def empty(shape: tuple[int, ...], dtype: str) -> npt.NDArray[Any]:
    """Memory for a result."""
    return np.empty(shape, dtype)


def owns(x: Any) -> bool:
    """Whether x is an array of NumPy."""
    return isinstance(x, np.ndarray)


def check_device(operands: tuple[tuple[str, Any], ...]) -> None:
    """All arrays lie in host memory."""


def contiguous(x: npt.NDArray[Any]) -> bool:
    """Whether a result can be computed in x."""
    return x.flags.c_contiguous


def broadcast_to(x: npt.NDArray[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """A view of x with its batch repeated."""
    return np.broadcast_to(x, shape)


def machine() -> Machine:
    """What planning asks about the host."""
    return _machine


def native_obstacle(dtype: str) -> str | None:
    """BLAS computes in threads of its own, in which rounding and subnormals may be other than IEEE 754's."""
    obstacle = _environment.obstacle()
    return f"native product ruled out: {obstacle}" if obstacle else None


def engine_name(plan: Plan) -> str:
    """What multiplies, for reports."""
    if plan.scheme is None:
        return "NumPy"
    if isinstance(plan.scheme, Words):
        return f"NumPy, model of {plan.scheme.core.name} tensor cores"
    return "NumPy, int8 slices" if plan.engine == "int8" else "NumPy, float64 BLAS"


def steps(plan: Plan) -> str:
    """The steps of a plan, a line each."""
    return steps_of(plan)


def same_slices(plan: Plan, other: Plan) -> bool:
    """True: a scheme alone decides how slices lie."""
    return True


def work(a: Any, b: Any, rows: Callable[[Side], Any], dtype: str, limit: int | None) -> Work:
    """One product (`backends.Backend.work`)."""
    return Work(a, b, rows, dtype, limit)


def keep(*_: Any) -> None:
    """Keep nothing: NumPy's time is that of the product."""


def split(rows: npt.NDArray[Any], side: Side, plan: Plan) -> Slices | WordSlices:
    """The slices of an operand that is prepared."""
    return _split(describe(rows), side, plan)
