"""The array libraries: what each backend offers (`Backend`, `Work`), and which backend operands belong to."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Sequence
from types import ModuleType
from typing import Any, Protocol

from ozaki.interchange.halves import HalfArray
from ozaki.interchange.kinds import kind_of_class
from ozaki.multiprecision import provided
from ozaki.multiprecision.numbers import Numbers
from ozaki.planning.facts import Facts, Need
from ozaki.planning.planner import Planner
from ozaki.records.combination import Combination
from ozaki.records.memory import Memory
from ozaki.records.options import Options
from ozaki.records.plan import Chosen, Plan
from ozaki.records.prepared import Prepared
from ozaki.records.progress import Progress
from ozaki.records.row_kinds import RowKinds
from ozaki.records.shapes import REAL, Side
from ozaki.records.verification import Verification
from ozaki.schemes import Words


class Work(Protocol):
    """The part of one product that a backend does: finding facts about the operands, and multiplying them.

    It counts the memory that it allocates in the product's account (`Memory`), and keeps within what the limit leaves.
    """

    @property
    def undecided(self) -> int | None:
        """Number of entries of the last product that were computed apart (`Plan.undecided_apart`); None if none is."""
        ...

    @property
    def row_kinds(self) -> RowKinds | None:
        """How the rows of the last product were multiplied, where each has digits of its own count; else None."""
        ...

    def begin(self, needs: Sequence[Need], plan: Plan) -> None:
        """Start to find these facts and to split the operands for this plan, if a device does so; wait for nothing.

        Called without a limit of workspace alone.
        """
        ...

    def measure(self, need: Need) -> Any:
        """Find a fact about the operands (`planning.facts`), and wait for it.

        Raises
        ------
        ValueError
            If it cannot be found within the limit of workspace.
        TypeError
            If there is no such fact.
        """
        ...

    def multiply(self, plan: Plan, c: Any) -> None:
        """Compute the product into c, shape (batch, m, n), contiguous, by the slices or words of a plan.

        The product has entries, and k > 0. If the plan rounds the work's expression once (`Plan.rounds_once`), the
        result is the whole expression.

        Raises
        ------
        ValueError
            If it cannot be computed within the limit of workspace.
        """
        ...

    def release(self) -> None:
        """Free the memory of proofs and early slices, because another `Work` goes on; descriptions stay."""
        ...

    def native(self, c: Any) -> None:
        """Compute the array library's own product into c, shape (*batch, m, n), whose rows are contiguous."""
        ...

    def combine(self, c: Any) -> None:
        """Replace the rounded product in c, shape (batch, m, n), by the work's expression; each operation rounds.

        The factors are rounded to the dtype of c, too. Called after `multiply` or `native` of the same c.
        """
        ...

    def addend(self, c: Any) -> None:
        """Compute into c, shape (batch, m, n), what the work's expression adds to a product of zeros, rounded once.

        Called in place of `multiply` and `native`.
        """
        ...

    def entry_bounds(self, plan: Plan | None, c: Any, bounds: Any) -> None:
        """Compute the bounds of the entries of the result c into `bounds`, float64, both of shape (batch, m, n).

        c is the product by a plan of slices that this object has computed, or its expression rounded once, perhaps
        complex where the object multiplied rows of parts; or a native product that is in range, of the same operands.
        Without a plan the product is zero, and c what is added.

        Raises
        ------
        ValueError
            If they cannot be computed within the limit of workspace.
        """
        ...

    def nonfinite(self, side: Side) -> Any:
        """Number of elements of each row that are NaN or Inf, shape (batch, rows), in host memory."""
        ...

    def underflows(self, side: Side, words: Words) -> int:
        """Number of elements of which these words leave more than `words.residual`, because a word underflows."""
        ...


class Keep(Protocol):
    """How a backend keeps the program of a computed product for repeated calls, if that makes them faster."""

    def __call__(
        self,
        a: Any,
        b: Any,
        c: Any,
        out: Any,
        key: Hashable,
        work: Any,
        facts: Facts,
        plan_for: Callable[[], Callable[[Facts], Chosen | None]],
        shape: tuple[int, ...],
        dtype: str,
    ) -> None:
        """Keep a program.

        Parameters
        ----------
        a, b, c, out : the operands as the caller gave them, the addend as the work has it, or None, and the array for
            the result that the caller gave, or None
        key : everything else that the call depends on
        work : the `Work` that computed the product
        facts : the facts that its plan rests on
        plan_for : called if the program is kept; returns a function that holds no operands: of the facts of others the
            plan for them, if it has the same scheme, else None
        shape, dtype : shape and dtype of the result
        """
        ...


class Backend(Planner, Protocol):
    """The functions and constants that the module of a backend offers."""

    def owns(self, x: Any) -> bool:
        """Whether x is an array of this library."""
        ...

    def asarray(self, name: str, x: Any) -> Any:
        """The argument x of that name, or an array of this library that holds its elements.

        Raises
        ------
        TypeError, ValueError
            If it cannot be converted, or something of it would be lost.
        """
        ...

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """A new array for a result, its last axis contiguous, its elements undefined."""
        ...

    def broadcast_to(self, x: Any, shape: tuple[int, ...]) -> Any:
        """A view of x, broadcast to that shape."""
        ...

    def contiguous(self, x: Any) -> bool:
        """Whether the memory of x is contiguous, so that a result can be computed in it."""
        ...

    def overlap(self, x: Any, y: Any) -> bool:
        """Whether two arrays may share memory."""
        ...

    def same_view(self, x: Any, y: Any) -> bool:
        """Whether two arrays are the same elements of the same memory in the same order; False of prepared operands."""
        ...

    @property
    def reads_halves(self) -> bool:
        """Whether products rounded to 16 bits read the bits of operands, uint16; else float32 copies."""
        ...

    @property
    def checks_complex_slices(self) -> bool:
        """Whether products of slices of complex rows can be checked by projections."""
        ...

    def same_slices(self, plan: Plan, other: Plan) -> bool:
        """Whether slices made for `plan` also serve `other`: what they depend on is the same for both."""
        ...

    def describing_bytes(self, rows: Any) -> tuple[int, int]:
        """Bytes of the description of an operand, rows of shape (batch, rows, k), and of what making it takes more."""
        ...

    def work(
        self,
        a: Any,
        b: Any,
        rows: Callable[[Side], Any],
        dtype: str,
        memory: Memory,
        combination: Combination | None = None,
        addend: Callable[[], Any] | None = None,
        adjoint: bool = False,
        progress: Progress = ...,
        verification: Verification | None = ...,
    ) -> Work:
        """The `Work` of one product; nothing is computed yet.

        Parameters
        ----------
        a, b : matrices or stacks of matrices, as the caller gave them; or slices made by `split`
        rows : returns the operand of a side as rows, shape (batch, rows, k); a copy if no view has that shape. Both are
            real, or both complex
        dtype : dtype of the result, complex if the rows are
        memory : the account of what the product holds
        combination : the expression that is computed in place of the product, or None; whether it has an addend counts
            alone
        addend : returns the addend, shape (batch, m, n), maybe a copy, so it is called where the addend is read; of an
            expression that has one
        adjoint : whether complex B is the conjugate transpose of A, so that the product is Hermitian
        progress : is told of each part of the product that is computed or, on a device, launched
        verification : the account of checks of the product of integers by slices, or None: it is not checked
        """
        ...

    def split(self, rows: Any, side: Side, plan: Plan) -> Any:
        """The slices of an operand, a stack of rows of shape (batch, rows, k), to be used in many products."""
        ...

    @property
    def keep(self) -> Keep | None:
        """Keeps programs for repeated calls; None where planning takes so little that this would save nothing."""
        ...


def backend_of(*operands: tuple[str, Any]) -> Backend:
    """The backend that multiplies these (name, array) operands.

    Raises
    ------
    TypeError
        If NumPy and CuPy arrays are mixed.
    """
    cupy = [_is_cupy(x) for _, x in operands]
    if not any(cupy):
        from ozaki.backends.numpy import backend as _numpy

        return _numpy
    if not all(cupy):
        here, other = operands[cupy.index(True)][0], operands[cupy.index(False)][0]
        raise TypeError(f"{other}: not a CuPy array, but {here} is; move one of them with cupy.asarray or cupy.asnumpy")
    from ozaki.backends.cupy import backend as _cupy

    return _cupy


def as_computed(plan: Plan, backend: Planner) -> Plan:
    """The plan as a backend computes it: by slices of complex rows, or as the real product of parts.

    Of a plan of real operands the plan itself.
    """
    if plan.parts == REAL:
        return plan
    splits = backend.splits_complex(plan.scheme, plan.engine, plan.inner_scaling)
    return plan.of_complex_slices if splits else plan.of_real


def _is_cupy(x: Any) -> bool:
    if isinstance(x, Numbers):
        x = x.limbs
    elif isinstance(x, HalfArray):
        x = x.bits
    if type(x).__module__.split(".")[0] == "cupy":
        return True
    return isinstance(x, Prepared) and bool(x.backend.name == "cupy")


def repeated(a: Any, b: Any, c: Any, out: Any, key: Hashable) -> tuple[Any, Chosen] | None:
    """The product by the program of an earlier call, and its plan; None if the call must be planned.

    Parameters
    ----------
    a, b, out : as given to `matmul`, arrays of NumPy or CuPy
    c : the addend of `gemm` as a stack of matrices, or None
    key : all other arguments that the product depends on

    See `backends/cupy/repeated.py`.
    """
    module = sys.modules.get("ozaki.backends.cupy.repeated")
    call = None if module is None else module.call_of(a, b, c, out, key)
    return None if module is None or call is None else module.repeated(call)


def repeated_at_once(
    a: Any, b: Any, out: Any, plan: Plan | None, options: Options
) -> tuple[bool, tuple[Any, Chosen] | None]:
    """The same of arrays of any library, wherever they lie, before they are views of CuPy's.

    In the caller's floating-point environment: what is computed on the host takes the default one.

    Returns
    -------
    Whether the program of an earlier call was looked for; if not, `repeated` is to be asked of the views. And what
    `repeated` returns, where the result is of the library of the operands.
    """
    module = sys.modules.get("ozaki.backends.cupy.repeated")
    if module is None:
        return False, None
    try:
        kind = kind_of_class[type(a)] or kind_of_class[type(b)]
    except TypeError:  # a class that cannot be hashed
        return False, None
    found: tuple[bool, tuple[Any, Chosen] | None] = module.at_once(a, b, out, (plan, *options.key), kind)
    return found


def _limb_kernels() -> ModuleType:
    from ozaki.backends.cupy import limbs

    return limbs


provided.limb_kernels = _limb_kernels
