"""`emulate`: the products of NumPy's and CuPy's functions inside a `with` block, through `ozaki`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import get_ident
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import numpy as np

from ozaki.account import Account
from ozaki.call.halves import half_asked
from ozaki.functions.contracting import Multiply
from ozaki.functions.decorating import decorated
from ozaki.functions.numpy_errors import SIGNALLED_AS, errors_of, not_ignored, signal
from ozaki.functions.numpy_products import Call, call_of, run, shape_of
from ozaki.functions.products import matmul
from ozaki.functions.replacing import Replacement, replace_all, restore_all
from ozaki.locks import Lock, after_fork
from ozaki.multiprecision import provided
from ozaki.multiprecision.numbers import Numbers
from ozaki.multiprecision.objects import mparray
from ozaki.planning.asking import check_alone
from ozaki.process.blocks import Blocks
from ozaki.process.placement import where_they_lie
from ozaki.records.accuracy import Accuracy
from ozaki.records.options import MethodOptions, Options, takes

DTYPES = ("float32", "float64", "complex64", "complex128")
"""Dtypes of arrays whose products are emulated unless a 16-bit one is asked for; others are left to the library."""

UNSEEN = "@ and .dot of NumPy arrays, names imported before the block, compiled code (SciPy, scikit-learn)"
"""What the account of an emulation cannot tell of."""

_Function = TypeVar("_Function", bound=Callable[..., Any])


@takes(MethodOptions)
def emulate(
    accuracy: Accuracy | str | float | None = None,
    *,
    report: bool = False,
    **options: Unpack[MethodOptions],
) -> Emulation:
    """Send the matrix products of NumPy and CuPy code inside a `with` block through `ozaki`.

    These are the products of `matmul`, `dot`, `vdot`, `inner`, `tensordot`, `einsum` and `linalg.multi_dot` of both
    modules, of `@` and `.dot` of CuPy arrays, and of NumPy's functions and `@` of an `MPArray`. `@` and `.dot` of NumPy
    arrays run as they are: their class cannot be changed; nor can be names that a program, or NumPy itself, took
    before, as `from numpy import dot` does, CuPy where it is imported inside the block, and what libraries multiply in
    compiled code. So do other functions, as `numpy.vecdot` and, of floats, `numpy.linalg.matrix_power`, and products of
    lists alone. The account counts none of these. `ozaki.torch.emulate` does the same for PyTorch.

    Parameters
    ----------
    accuracy, **options
        As for `matmul`, of each product. With "bf16" or "fp16" products of arrays of that format alone are emulated,
        each rounded once to it; else of float32, float64, complex64 and complex128.
    report : bool
        Prove a bound for every product, for the account: it takes a pass over the operands of each, and on a GPU waits
        for it.

    Returns
    -------
    Emulation
        The context manager, whose `account` says what ran. It is a decorator, too.

    Raises
    ------
    ValueError, TypeError
        For options that are wrong for every product; others from the products, as `matmul` raises them.

    Notes
    -----
    A block holds for the thread or the task of asyncio that enters it, and for tasks that are created inside, as
    `numpy.errstate` does: for each the innermost block that it is in, whatever blocks others are in. When the block
    ends, it ends for all of them; so wait inside for the tasks.

    Threads that a program starts inside are in no block (but in builds of Python whose threads inherit the context),
    nor are those of a `ThreadPoolExecutor`, of `loop.run_in_executor` or of joblib: the account counts their calls, as
    `outside`. Hand such a thread `run(function)` in place of `function`, where `run` is the emulation: a decorated
    function runs in a block of its own, with the same account. `contextvars.copy_context().run` and `asyncio.to_thread`
    take the block along, too. Other processes are neither emulated nor counted.

    As a decorator it takes functions, also asynchronous ones, for the length of each call, and generators, for each of
    their steps. A `with` block inside of a generator holds for its caller, too, while the generator waits.

    Floating-point errors are handled as `numpy.errstate` says, of functions of which NumPy signals them (not `vdot` and
    `einsum`). They are those of the entries that are returned: in products of slices nothing overflows on the way.

    Examples
    --------
    >>> import numpy as np, ozaki
    >>> a, b = np.array([[1e16, 1.0, -1e16]]), np.ones((3, 1))
    >>> with ozaki.emulate(accuracy="dd", report=True) as run:
    ...     np.dot(a, b)
    array([[1.]])
    >>> run.account.products, run.account.bound < 2e-16
    (1, True)

    As a decorator:

    >>> @ozaki.emulate(accuracy="dd")
    ... def product(a, b):
    ...     return np.dot(a, b)
    >>> product(a, b)
    array([[1.]])
    """
    asked = Options.of("emulate", options, MethodOptions)._replace(accuracy=accuracy)
    half, _ = half_asked(asked)
    if half is None:
        check_alone(asked)
    return Emulation(asked._asdict(), report, DTYPES if half is None else (half,))


class Emulation:
    """What `emulate` returns: within it, products run through `ozaki`.

    It may be entered any number of times, also by several threads at once.

    Attributes
    ----------
    account : Account
        What ran how, and what was left to the library.
    dtypes : tuple of str
        Dtypes of arrays whose products are emulated.
    """

    def __init__(self, options: dict[str, Any], report: bool, dtypes: tuple[str, ...]) -> None:
        self._options, self._report, self.dtypes = options, report, dtypes
        self._blocks: list[_Block] = []  # of `with` statements, that have not ended
        self.account = Account(UNSEEN)

    def __str__(self) -> str:
        return str(self.account)

    def __enter__(self) -> Self:
        block = _Block(self)
        self._blocks.append(block)
        try:
            block.__enter__()
        except BaseException:  # an interrupt
            self._blocks.remove(block)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        of_context = _BLOCKS.here()
        with _lock.held:
            here = [block for block in self._blocks if block in of_context]
            if not self._blocks:
                raise RuntimeError("emulate: the block is left more often than it was entered")
            block = (here or self._blocks)[-1]  # else: a generator that is closed in another context
            self._blocks.remove(block)
        block.__exit__(kind, error, trace)

    def __call__(self, function: _Function) -> _Function:
        """Decorate a function: each call of it is a block of this emulation.

        Parameters
        ----------
        function : callable
            Of an asynchronous function, the block lasts until what it returns was awaited; of a generator, also an
            asynchronous one, each step is a block. Where another function returns a coroutine or a generator, that is
            treated alike.

        Returns
        -------
        callable, of the same kind

        Raises
        ------
        TypeError
            For a class, and for a method that `staticmethod`, `classmethod` or `property` has wrapped.
        """
        if isinstance(function, type):
            raise TypeError(f"function: the class {function.__name__}; decorate its methods")
        if isinstance(function, staticmethod | classmethod | property):
            raise TypeError(f"function: a {type(function).__name__}; decorate the function first, below that line")
        if not callable(function):
            raise TypeError(f"function: {type(function).__name__}; expected a function")
        return decorated(function, partial(_Block, self))  # type: ignore[return-value]

    def multiply(self, operator: str, a: Any, b: Any, out: Any = None) -> Any:
        """The product of a and b, entered in the account as one of that operator."""
        a, b = (x if hasattr(x, "shape") else mparray(x) for x in (a, b))  # beside an MPArray, also lists and matrices
        return self.account.multiply(operator, a, b, partial(matmul, a, b, out=out, **self._options), self._report)


def multiplier(operator: str) -> Multiply:
    """What multiplies for an operator of an `MPArray`: the innermost block here, or `matmul`."""
    emulation = _emulation_here()
    return matmul if emulation is None else partial(emulation.multiply, operator)


provided.multiply = lambda a, b: multiplier("matmul")(a, b)


def counted(operator: str, a: Any, b: Any, **options: Any) -> Any:
    """The product of a and b with these options, whatever the innermost block here was asked for, in its account."""
    emulation = _emulation_here()
    if emulation is None:
        return matmul(a, b, **options)
    options["workspace_limit"] = emulation._options["workspace_limit"]
    return emulation.account.multiply(operator, a, b, partial(matmul, a, b, **options), emulation._report)


# Blocks --------------------------------------------------------------------------------------------------------------


class _Block:
    """A length of time in which an emulation holds, from `__enter__` to `__exit__`.

    It holds in the context that enters it, and in copies of that. `__exit__` may run in another one.
    """

    def __init__(self, emulation: Emulation) -> None:
        self.emulation, self.is_open, self.thread = emulation, False, 0

    def __enter__(self) -> Self:
        self.thread, self.is_open = get_ident(), True
        try:
            with _lock.held:
                _open.append(self)
                replace_all(_instead)
            _BLOCKS.enter(self)
        except BaseException:  # an interrupt
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._end()
        except BaseException:  # an interrupt
            self._end()
            raise

    def _end(self) -> None:
        self.is_open = False
        _drop_ended()
        _BLOCKS.here()  # which drops it


_lock = Lock()

_open: list[_Block] = []
"""The blocks of all threads that have begun and not ended; while there are any, functions are replaced."""

_BLOCKS: Blocks[_Block] = Blocks("ozaki.emulate")
"""The blocks that this thread or task is in."""


def _drop_ended() -> None:
    """Restore the functions once all blocks have ended."""
    with _lock.held:
        _open[:] = [block for block in _open if block.is_open]
        if not _open:
            restore_all()


def _forked() -> None:
    """End the blocks of threads that are not there in a forked process."""
    here = _BLOCKS.here()
    for block in _open:
        block.is_open = block in here or block.thread == get_ident()
    _drop_ended()


after_fork(_forked)


def _emulation_here() -> Emulation | None:
    """The emulation of the innermost block that this thread or task is in."""
    here = _BLOCKS.here()
    return here[-1].emulation if here else None


# What runs in place of a function ------------------------------------------------------------------------------------


def _instead(function: Replacement, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a function that is replaced: through `ozaki` if the caller is in a block and it can be."""
    emulation, name = _emulation_here(), function.name
    call = call_of(name, args, kwargs)
    arrays = (*args, *kwargs.values()) if call is None else (*call.arrays, call.out)
    is_no_product = name == "einsum" and len(args) < 3  # sums, traces and views of one array
    if is_no_product or any(isinstance(x, Numbers) for x in arrays):  # whose class knows what is to be done
        return function.original(*args, **kwargs)
    if emulation is None:
        found = function.original(*args, **kwargs)
        if call is not None:
            _pass_by(call, function.ndarray)
        return found
    reason = "its arguments"
    if call is not None:
        reason = _obstacle(call, function.ndarray, emulation.dtypes) or _obstacle_of_out(name, call)
    if call is None or reason:
        found = function.original(*args, **kwargs)
        if call is None or any(isinstance(x, function.ndarray) for x in call.arrays):
            emulation.account.leave(name, reason)
        return found
    kinds, errors, count = not_ignored() if name in SIGNALLED_AS else set(), set(), 0

    out = call.out if _is_its_result(name, call, function.ndarray) else None

    def multiply(a: Any, b: Any) -> Any:
        nonlocal count
        c, count = emulation.multiply(name, a, b, out=out), count + 1
        errors.update(errors_of(a, b, c, kinds))
        return c

    with np.errstate(all="ignore"), where_they_lie((("operands", call.arrays), ("out", call.out))):
        found = run(name, call, multiply)
        if not count:
            emulation.account.leave(name, "products without sums")
        if call.out is not None and out is None:
            call.out[...] = found
            found = call.out
    signal(errors, SIGNALLED_AS.get(name, name))
    return found[()] if call.out is None and isinstance(found, np.ndarray) and found.ndim == 0 else found


def _is_its_result(name: str, call: Call, ndarray: Any) -> bool:
    """Whether `out` can be the result of the one product of a call.

    Not where it lies in an operand of NumPy, which is read for errors after the product.
    """
    if call.out is None or not (name == "matmul" or (name == "dot" and call.arrays[1].ndim < 3)):
        return False
    return ndarray is not np.ndarray or not any(np.may_share_memory(call.out, x) for x in call.arrays)


def _pass_by(call: Call, ndarray: Any) -> None:
    """Count a call of a thread or task that is in no block in the accounts of all open ones that would emulate it."""
    with _lock.held:
        emulations = dict.fromkeys(block.emulation for block in _open)
    for each in emulations:
        if not _obstacle(call, ndarray, each.dtypes):
            each.account.pass_by()


def _obstacle(call: Call, ndarray: Any, dtypes: tuple[str, ...]) -> str:
    """Why a product is left to the library, as far as classes and dtypes say; empty if it is not."""
    for x in call.arrays if call.out is None else (*call.arrays, call.out):
        if type(x) is not ndarray:
            return f"an operand of type {type(x).__name__}"
        if str(x.dtype) not in dtypes:
            return f"dtype {x.dtype}"
    if any(not x.ndim for x in call.arrays):
        return "a scalar"
    return "fewer than two operands" if len(call.arrays) < 2 else ""


def _obstacle_of_out(name: str, call: Call) -> str:
    """Why a result is not the one that `out` would hold; empty if it is, or there is none.

    Raises
    ------
    ValueError
        If the operands do not fit.
    """
    if call.out is None:
        return ""
    if call.out.dtype != np.result_type(*(x.dtype for x in call.arrays)):
        return f"out of dtype {call.out.dtype}"
    if call.out.shape != shape_of(name, call):
        return f"out of shape {call.out.shape}"
    return "" if getattr(call.out.flags, "writeable", True) else "out that is read-only"
