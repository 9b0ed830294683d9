"""The array libraries: what each has to offer (`Backend`), and which one an operand belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ozaki._operands import Side
from ozaki._plan import Plan
from ozaki._prepared import Prepared
from ozaki.planning.facts import Need
from ozaki.planning.question import Machine
from ozaki.schemes import Words

ENGINES = ("float64", "int8", "cublas", "hopper")
"""Every engine of every backend."""


class Work(Protocol):
    """What a backend does for one product of two operands, stacks of rows or slices.

    Attributes
    ----------
    workspace : most bytes held at a time so far, beside the operands and the result, and beside what describes rows if
        the backend counts that by `row_bytes`
    """

    workspace: int

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

    def nonfinite(self, side: Side) -> Any:
        """How many elements of each row are NaN or Inf, shape (batch, rows), in host memory."""
        ...

    def underflows(self, side: Side, words: Words) -> int:
        """How many elements of an operand lose more than their share of bits when they are cut into words."""
        ...


class Backend(Protocol):
    """What a backend module offers; operands are given to `work` as stacks of rows, shape (batch, rows, k)."""

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

    def same_slices(self, plan: Plan, other: Plan) -> bool:
        """Whether slices for one plan serve another one, of the same scheme, engine and (m, k, n)."""
        ...

    def describing_workspace(self, shape: tuple[int, ...]) -> int:
        """Bytes held while rows of that shape (batch, rows, k) are described, and freed then."""
        ...

    def work(self, left: Any, right: Any, dtype: str, limit: int | None) -> Work:
        """One product of two stacks of rows, or of slices made by `split`, which holds at most `limit` bytes, if given."""
        ...

    def split(self, rows: Any, side: Side, plan: Plan) -> Any:
        """The slices of an operand, for many products."""
        ...

    def native(self, a: Any, b: Any, dtype: str, out: Any) -> int:
        """out = a b, in `dtype`, of matrices or of stacks of them, whose batches are broadcast.

        Returns the bytes of copies that were made for it.
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
        from ozaki.backends.numpy import _backend as _numpy

        return _numpy
    if not all(cupy):
        here, other = operands[cupy.index(True)][0], operands[cupy.index(False)][0]
        raise TypeError(f"{other}: not a CuPy array, but {here} is; move one of them with cupy.asarray or cupy.asnumpy")
    from ozaki.backends.cupy import _backend as _cupy

    _cupy.check_device(operands)
    return _cupy


def _is_cupy(x: Any) -> bool:
    if type(x).__module__.split(".")[0] == "cupy":
        return True
    return isinstance(x, Prepared) and bool(x.backend.name == "cupy")
