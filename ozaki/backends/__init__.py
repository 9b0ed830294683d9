"""The array libraries: each describes, splits, multiplies and recombines on its own arrays."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from ozaki._description import Described, Description, Least, Sides
from ozaki._operands import Side
from ozaki._plan import Plan
from ozaki._prepared import Prepared
from ozaki._proof import ProofBackend
from ozaki.schemes import Scheme, Words
from ozaki.schemes.formats import TensorCore

ENGINES = ("float64", "int8", "cublas", "hopper")
"""Every engine of every backend."""

Way = Scheme | Words | None
"""How a product runs: slices, words, or the native product."""


class Again(NamedTuple):
    """What calls like one that has run may do.

    Attributes
    ----------
    right : whether what ran is right for the operands that there are then
    shape : of the result
    """

    right: Callable[[], bool]
    shape: tuple[int, ...]


class Backend(ProofBackend, Protocol):
    """What a backend module offers; arrays of operands are stacks of rows, shape (batch, rows, k)."""

    name: str
    engines: tuple[str, ...]
    waits: bool
    """Whether planning waits for a device that could do something else meanwhile."""
    row_bytes: int
    """Bytes for each row of an operand, held for its description and what follows from it, that count as workspace."""

    def __hash__(self) -> int: ...
    def owns(self, x: Any) -> bool:
        """Whether x is an array of this library."""
        ...

    def check_device(self, operands: tuple[tuple[str, Any], ...]) -> None:
        """Named operands of the backend lie where it computes."""
        ...

    def asarray(self, x: Any) -> Any:
        """x, or an array of what it holds."""
        ...

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Memory for a result, its last axis contiguous."""
        ...

    def contiguous(self, x: Any) -> bool:
        """Whether a result can be computed in x."""
        ...

    def overlap(self, x: Any, y: Any) -> bool:
        """Whether two arrays may share memory."""
        ...

    def describe(self, x: Any) -> Described:
        """The rows of x, float32 or float64, and integers that tell of them (docs/design.md, section 3)."""
        ...

    def describing_workspace(self, shape: tuple[int, ...]) -> int:
        """Bytes held while rows of that shape (batch, rows, k) are described, and freed then."""
        ...

    def read(self, described: Described) -> Callable[[], Description]:
        """Begin to bring a description to the host; calling the result waits for it."""
        ...

    def look(self, x: Any, y: Any, whole: Sides | None = None) -> Callable[[], tuple[Least, Least]]:
        """Likewise what the first elements of the rows of both tell, given what words found of the whole rows."""
        ...

    def split(self, operand: Described, side: Side, plan: Plan) -> Any:
        """The slices of an operand, as the engine of the plan reads them."""
        ...

    def split_in_one_read(self, plan: Plan, x: Any, y: Any) -> tuple[Any, Any] | None:
        """Slices of rows that nothing is known of, with their descriptions; None where that is no faster."""
        ...

    def cut_in_one_read(self, plan: Plan, x: Any, y: Any) -> tuple[Any, Any, Callable[[], bool]] | None:
        """Words likewise, and whether an element is so small that it loses part of itself; that is waited for."""
        ...

    def same_slices(self, plan: Plan, other: Plan) -> bool:
        """Whether slices for one plan serve another one, of the same scheme, engine and (m, k, n)."""
        ...

    def product(self, plan: Plan, x: Any, y: Any, out: Any) -> int:
        """out = x y^T, shape (batch, m, n), of rows that nothing is known of; the bytes of workspace."""
        ...

    def execute(self, plan: Plan, left: Any, right: Any, out: Any) -> int:
        """The same of operands that are described or split."""
        ...

    def recorded(
        self, a: Any, b: Any, out: Any, c: Any, choices: tuple[Any, ...], again: Callable[[], Again | None]
    ) -> AbstractContextManager[None]:
        """While a product is computed into c: note what is done, for `again`, where that spares the host anything.

        What may be done again is asked when the product is there.
        """
        ...

    def axpby(self, alpha: Any, x: Any, beta: Any, y: Any, out: Any) -> None:
        """out = alpha x + beta y (None: not read), both products and the sum rounded; x, of out's dtype, is lost."""
        ...

    def underflows(self, operand: Described, words: Words) -> int:
        """Elements that lose more than their share of bits when they are cut into words."""
        ...

    def core(self) -> TensorCore | None:
        """The tensor cores of words that are given by name; None if those here are unknown."""
        ...

    def words_obstacle(self, words: Words) -> str | None:
        """Why these words do not run here, or not by themselves; None if they do."""
        ...

    def native(self, a: Any, b: Any, dtype: str, out: Any) -> int:
        """out = a b, in `dtype`, of matrices or of stacks of them, whose batches are broadcast.

        Returns the bytes of copies that were made for it.
        """
        ...

    def native_obstacle(self, dtype: str) -> str | None:
        """A setting by which the native product is less than an IEEE one; None if there is none."""
        ...

    def fastest(self, stack: tuple[int, int, int], k: int, dtype: str, ways: tuple[Way, ...]) -> Way:
        """Of these ways, a scheme first, the fastest for a product (batch, m, n)."""
        ...

    def seconds(self, stack: tuple[int, int, int], k: int, dtype: str, way: Way) -> float | None:
        """How long a product (batch, m, n) is expected to take in that way; None where nothing is known of it."""
        ...

    def engine_name(self, plan: Plan) -> str:
        """Device and engine, for the report."""
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


def again(a: Any, b: Any, out: Any, choices: tuple[Any, ...]) -> Any:
    """The product of CuPy arrays, done as a call like this one was before; None if it has to be found out how."""
    module = sys.modules.get("ozaki.backends.cupy._again")
    return None if module is None else module.again(a, b, out, choices)
