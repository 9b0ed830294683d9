"""The array libraries: what each has to offer (`Backend`), and which one an operand belongs to."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

from ozaki._operands import Side
from ozaki._plan import Plan
from ozaki._prepared import Prepared
from ozaki.planning.facts import Facts, Need
from ozaki.planning.question import Machine
from ozaki.schemes import Words

ENGINES = ("float64", "int8", "cublas", "hopper")
"""Every engine of every backend."""


class Work(Protocol):
    """What a backend does for one product: it finds facts about the operands, and multiplies."""

    @property
    def workspace(self) -> int:
        """Most bytes held at a time so far, beside operands, result, and what `Backend.row_bytes` counts."""
        ...

    def begin(self, needs: Sequence[Need], plan: Plan) -> None:
        """Begin to find these facts, and meanwhile to split for this plan, where a device does; waits for nothing."""
        ...

    def measure(self, need: Need) -> Any:
        """Find a fact about the operands (`planning.facts`), and wait for it.

        Raises
        ------
        ValueError
            If it cannot be found within the limit of workspace.
        """
        ...

    def multiply(self, plan: Plan, c: Any) -> None:
        """Compute the product by the slices or words of a plan into c, shape (batch, m, n), contiguous.

        Raises
        ------
        ValueError
            If it cannot be computed within the limit of workspace.
        """
        ...

    def native(self, c: Any) -> None:
        """Compute the array library's own product of the operands into c, shape (*batch, m, n), rows contiguous."""
        ...

    def nonfinite(self, side: Side) -> Any:
        """How many elements of each row are NaN or Inf, shape (batch, rows), in host memory."""
        ...

    def underflows(self, side: Side, words: Words) -> int:
        """How many elements of an operand lose more than their share of bits when they are cut into words."""
        ...


class Backend(Protocol):
    """What a backend module offers."""

    name: str
    engines: tuple[str, ...]
    row_bytes: int
    """Bytes for each row of an operand, held for its description and what follows from it, that count as workspace."""

    def owns(self, x: Any) -> bool:
        """Whether x is an array of this library."""
        ...

    def check_device(self, operands: tuple[tuple[str, Any], ...]) -> None:
        """Refuse named operands that do not lie where the backend computes."""
        ...

    def asarray(self, x: Any) -> Any:
        """x, or an array of what it holds."""
        ...

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Memory for a result, its last axis contiguous."""
        ...

    def broadcast_to(self, x: Any, shape: tuple[int, ...]) -> Any:
        """A view of x in that shape."""
        ...

    def contiguous(self, x: Any) -> bool:
        """Whether a result can be computed in x."""
        ...

    def overlap(self, x: Any, y: Any) -> bool:
        """Whether two arrays may share memory."""
        ...

    def machine(self) -> Machine:
        """What planning asks about the machine that computes here and now."""
        ...

    def native_obstacle(self, dtype: str) -> str | None:
        """A setting by which the native product is less than an IEEE one; None if there is none."""
        ...

    def engine_name(self, plan: Plan) -> str:
        """Device and engine, for the report."""
        ...

    def steps(self, plan: Plan) -> str:
        """The steps of a plan, a line each, for operands that lie in memory row by row."""
        ...

    def same_slices(self, plan: Plan, other: Plan) -> bool:
        """Whether slices for one plan serve another one, of the same scheme, engine and (m, k, n)."""
        ...

    def describing_workspace(self, shape: tuple[int, ...]) -> int:
        """Bytes held while rows of that shape (batch, rows, k) are described, and freed then."""
        ...

    def work(self, a: Any, b: Any, rows: Callable[[Side], Any], dtype: str, limit: int | None) -> Work:
        """One product.

        Parameters
        ----------
        a, b : matrices or stacks of them, as the caller gave them; or slices made by `split`
        rows : gives an operand as a stack of rows, shape (batch, rows, k), a copy where no view has that shape
        dtype : of the result
        limit : most bytes that proofs and the product may hold at a time, or None
        """
        ...

    def split(self, rows: Any, side: Side, plan: Plan) -> Any:
        """The slices of an operand, for many products."""
        ...

    def keep(
        self,
        a: Any,
        b: Any,
        out: Any,
        choices: Hashable,
        work: Any,
        facts: Facts,
        stands: Callable[[Facts], bool],
        shape: tuple[int, ...],
        dtype: str,
    ) -> None:
        """Keep what was done for a product, where a repeated call is faster by that.

        Parameters
        ----------
        a, b, out : the operands, and where the caller wanted the result, or None
        choices : all else that the call depends on
        work : the product that was computed
        facts : those that its plan rests on
        stands : whether the same result is right for operands with these facts
        shape, dtype : of the result
        """
        ...

    def axpby(self, alpha: Any, x: Any, beta: Any, y: Any, out: Any) -> None:
        """out = alpha x + beta y (None: not read), both products and the sum rounded; x, of out's dtype, is lost."""
        ...


def backend_of(*operands: tuple[str, Any]) -> Backend:
    """The backend of named operands.

    Raises
    ------
    TypeError
        Where NumPy and CuPy arrays are mixed.
    """
    cupy = [_is_cupy(x) for _, x in operands]
    if not any(cupy):
        from ozaki.backends.numpy import backend as _numpy

        return _numpy
    if not all(cupy):
        here, other = operands[cupy.index(True)][0], operands[cupy.index(False)][0]
        raise TypeError(f"{other}: not a CuPy array, but {here} is; move one of them with cupy.asarray or cupy.asnumpy")
    from ozaki.backends.cupy import backend as _cupy

    _cupy.check_device(operands)
    return _cupy


def _is_cupy(x: Any) -> bool:
    if type(x).__module__.split(".")[0] == "cupy":
        return True
    return isinstance(x, Prepared) and bool(x.backend.name == "cupy")


def repeated(a: Any, b: Any, out: Any, choices: Hashable) -> Any:
    """The product as a repeated call has it at once (`backends/cupy/repeated.py`); None if it goes the long way."""
    module = sys.modules.get("ozaki.backends.cupy.repeated")
    return None if module is None else module.repeated(a, b, out, choices)
