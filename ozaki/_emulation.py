"""`emulate`: the products of NumPy's and CuPy's functions inside a `with` block, through `ozaki`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial, update_wrapper
from importlib import import_module
from threading import RLock
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np

from ozaki._accuracy import Accuracy
from ozaki._api import matmul
from ozaki._choices import Choices
from ozaki._contractions import einsum_by, tensordot_by
from ozaki._placement import where_they_lie
from ozaki.account import Account
from ozaki.planning.given import check_alone

FUNCTIONS = ("matmul", "dot", "vdot", "inner", "tensordot", "einsum")
"""Names of functions of both libraries that are replaced; in `linalg` also multi_dot, and NumPy's matmul, tensordot."""

DTYPES = ("float32", "float64", "complex64", "complex128")
"""Dtypes of arrays whose products are emulated; others are left to the library."""


def emulate(
    accuracy: Accuracy | str | float | None = None,
    *,
    report: bool = False,
    scheme: str = "auto",
    slices: int | None = None,
    engine: str = "auto",
    reproducible: bool = False,
    workspace_limit: int | None = None,
) -> Emulation:
    """Send the matrix products of NumPy and CuPy code inside a `with` block through `ozaki`.

    It replaces `matmul`, `dot`, `vdot`, `inner`, `tensordot`, `einsum` and `linalg.multi_dot` of both modules, for all
    threads, until the block ends; and `@` and `.dot` of CuPy arrays. `@` and `.dot` of NumPy arrays run as they are:
    their class cannot be changed; nor can be names that a program, or NumPy itself, took before, as `from numpy import
    dot` does, CuPy where it is imported inside the block, and what libraries multiply in compiled code. So do other
    functions, as `numpy.vecdot` and `numpy.linalg.matrix_power`, and products of lists alone. The account counts none
    of these. `ozaki.torch.emulate` does the same for PyTorch.

    Parameters
    ----------
    accuracy, scheme, slices, engine, reproducible, workspace_limit
        As for `matmul`, of each product.
    report : bool
        Prove a bound for every product, for the account: it takes a pass over the operands of each, and on a GPU waits
        for it.

    Returns
    -------
    Emulation
        The context manager, whose `account` says what ran.

    Raises
    ------
    ValueError, TypeError
        For choices that are wrong for every product; others from the products, as `matmul` raises them.

    Examples
    --------
    >>> import numpy as np, ozaki
    >>> a, b = np.array([[1e16, 1.0, -1e16]]), np.ones((3, 1))
    >>> with ozaki.emulate(accuracy="dd", report=True) as run:
    ...     np.dot(a, b)
    array([[1.]])
    >>> print(run)
    1 product ran through ozaki
          1  dot       (1 x 3) (3 x 1)                 float64     28 residues         componentwise error <= 1.2e-16
    """
    choices = Choices(accuracy, scheme, slices, engine, reproducible, workspace_limit)
    check_alone(choices)
    return Emulation(choices._asdict(), report)


class Emulation:
    """What `emulate` returns: within it, products run through `ozaki`.

    Attributes
    ----------
    account : Account
        What ran how, and what was left to the library.
    """

    def __init__(self, options: dict[str, Any], report: bool) -> None:
        self._options, self._report = options, report
        self.account = Account()

    def __str__(self) -> str:
        return str(self.account)

    def __enter__(self) -> Self:
        with _lock:
            if self in _active:
                raise RuntimeError("emulate: entered already; make another one for a block inside")
            if not _active:
                _replace_all()
            _active.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with _lock:
            _active.remove(self)
            if not _active:
                _restore_all()

    def run(self, name: str, call: Call) -> Any:
        """The result of a function of that name, called with what `call` says."""
        return _RUN[name](partial(self._product, name), *call.operands, **call.options)

    def _product(self, name: str, a: Any, b: Any) -> Any:
        return self.account.multiply(name, a, b, partial(matmul, a, b, **self._options), self._report)


# Replacing functions -------------------------------------------------------------------------------------------------

_lock = RLock()
_active: list[Emulation] = []
"""The emulations that are entered, of all threads; products go through the last one."""

_replaced: list[tuple[Any, str, Any]] = []
"""The functions that are replaced while there are any: where, their names, and they themselves."""


def _replace_all() -> None:
    libraries = [np] + ([sys.modules["cupy"]] if "cupy" in sys.modules else [])
    for library in libraries:
        for name in FUNCTIONS:
            _replace(library, name, library)
        for name in ("multi_dot", "matmul", "tensordot"):
            if hasattr(library.linalg, name):
                _replace(library.linalg, name, library)
    for library in libraries[1:]:
        for name in ("__matmul__", "dot"):
            _replace(library.ndarray, name, library)


def _replace(place: Any, name: str, library: Any) -> None:
    original = getattr(place, name)
    _replaced.append((place, name, original))
    setattr(place, name, _Replacement(original, name.strip("_"), library.ndarray, f"{place.__name__}.{name}"))


def _restore_all() -> None:
    while _replaced:
        place, name, original = _replaced.pop()
        setattr(place, name, original)


class _Replacement:
    """What stands for a function while products are emulated; it has the other attributes of that one."""

    def __init__(self, original: Any, name: str, ndarray: Any, path: str) -> None:
        update_wrapper(self, original)
        self._original, self._name, self._ndarray, self._path = original, name, ndarray, path

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        emulation = _active[-1] if _active else None
        one_array = self._name == "einsum" and len(args) < 3  # whose sums, traces and views are no products
        if emulation is None or one_array or _called_by_this_library():
            return self._original(*args, **kwargs)
        call = _call_of(self._name, args, kwargs)
        reason = "its arguments" if call is None else _obstacle(call, self._ndarray)
        if reason or call is None:
            if reason and (call is None or any(isinstance(x, self._ndarray) for x in call.arrays)):
                emulation.account.leave(self._name, reason)
            return self._original(*args, **kwargs)
        with where_they_lie((("operands", call.arrays), ("out", call.out))):
            found = emulation.run(self._name, call)
            if call.out is None:
                return found[()] if isinstance(found, np.ndarray) and found.ndim == 0 else found
            if call.out.shape != found.shape or call.out.dtype != found.dtype:
                return self._original(*args, **kwargs)  # which raises the library's own error, or casts as that does
            call.out[...] = found
            return call.out

    def __get__(self, instance: Any, owner: Any = None) -> Any:  # as a method of a class
        return self if instance is None else partial(self, instance)

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self.__dict__["_original"], attribute)

    def __reduce__(self) -> Any:
        return _named, (self._path,)


def _named(path: str) -> Any:
    """The function of a path, as "numpy.linalg.multi_dot": what it stands for where a pickle is read."""
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


def _called_by_this_library() -> bool:
    """Whether this library calls a function that is replaced: it multiplies slices by that function itself."""
    try:
        name = sys._getframe(2).f_globals.get("__name__", "")
    except ValueError:  # called by no Python code
        return False
    return bool(name == "ozaki" or name.startswith("ozaki."))


class Call(NamedTuple):
    """The arguments of a function.

    Attributes
    ----------
    operands : positional ones, as `_RUN` takes them
    arrays : the operands that are arrays
    options : for `_RUN`
    out : where the result goes, or None
    """

    operands: tuple[Any, ...]
    arrays: tuple[Any, ...]
    options: dict[str, Any]
    out: Any


def _call_of(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
    """A call's arguments; None if there are some that are not known here."""
    try:
        call: Call = _ARGUMENTS[name](*args, **kwargs)
    except TypeError:
        return None
    out = call.out
    return call._replace(out=out[0]) if isinstance(out, tuple) and len(out) == 1 else call


def _of_two(a: Any, b: Any, out: Any = None) -> Call:
    return Call((a, b), (a, b), {}, out)


def _of_tensordot(a: Any, b: Any, axes: Any = 2) -> Call:
    return Call((a, b), (a, b), {"axes": axes}, None)


def _of_einsum(subscripts: Any, *operands: Any, out: Any = None, optimize: bool | str = False) -> Call:
    if not isinstance(subscripts, str) or optimize not in (True, False, "greedy", "optimal"):
        raise TypeError
    return Call((subscripts, *operands), operands, {}, out)


def _of_multi_dot(arrays: Any, *, out: Any = None) -> Call:
    return Call((arrays,), tuple(arrays), {}, out)


_ARGUMENTS: dict[str, Callable[..., Call]] = {
    "matmul": _of_two,
    "dot": _of_two,
    "vdot": lambda a, b: _of_two(a, b),
    "inner": lambda a, b: _of_two(a, b),
    "tensordot": _of_tensordot,
    "einsum": _of_einsum,
    "multi_dot": _of_multi_dot,
}


def _obstacle(call: Call, ndarray: Any) -> str:
    """Why a product is left to the library; empty if it is not."""
    for x in call.arrays if call.out is None else (*call.arrays, call.out):
        if type(x) is not ndarray:
            return f"an operand of type {type(x).__name__}"
        if str(x.dtype) not in DTYPES:
            return f"dtype {x.dtype}"
    if any(not x.ndim for x in call.arrays):
        return "a scalar"
    return "fewer than two operands" if len(call.arrays) < 2 else ""


# What runs in place of a function: called with a function that multiplies, and the operands --------------------------


def _product(multiply: Any, a: Any, b: Any) -> Any:
    return multiply(a, b)


def _dot(multiply: Any, a: Any, b: Any) -> Any:
    return multiply(a, b) if b.ndim < 3 else tensordot_by(a, b, (-1, -2), multiply)


def _vdot(multiply: Any, a: Any, b: Any) -> Any:
    return multiply(a.conj().reshape(-1), b.reshape(-1))


def _inner(multiply: Any, a: Any, b: Any) -> Any:
    return tensordot_by(a, b, (-1, -1), multiply)


def _tensordot(multiply: Any, a: Any, b: Any, axes: Any) -> Any:
    return tensordot_by(a, b, axes, multiply)


def _einsum(multiply: Any, subscripts: str, *operands: Any) -> Any:
    return einsum_by(subscripts, operands, multiply)


def _multi_dot(multiply: Any, arrays: Any) -> Any:
    """A chain of matrices, the first and last of which may be vectors, in the order of the fewest multiplications.

    Cormen, Leiserson, Rivest and Stein, "Introduction to Algorithms", section on matrix-chain multiplication.
    """
    chain = [*arrays]
    for place, x in enumerate(chain):
        if x.ndim != 2 and not (x.ndim == 1 and place in (0, len(chain) - 1)):
            raise np.linalg.LinAlgError(f"arrays: item {place} has {x.ndim} dimensions; expected a matrix")
    sizes = [chain[0].shape[0] if chain[0].ndim > 1 else 1, *(x.shape[0] for x in chain[1:])]
    sizes.append(chain[-1].shape[-1] if chain[-1].ndim > 1 else 1)
    count = len(chain)
    costs, cuts = np.zeros((count, count)), np.zeros((count, count), int)
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            of_cut = [costs[i, at] + costs[at + 1, j] + sizes[i] * sizes[at + 1] * sizes[j + 1] for at in range(i, j)]
            cuts[i, j] = i + int(np.argmin(of_cut))
            costs[i, j] = min(of_cut)

    def product(i: int, j: int) -> Any:
        return chain[i] if i == j else multiply(product(i, cuts[i, j]), product(cuts[i, j] + 1, j))

    return product(0, count - 1)


_RUN: dict[str, Callable[..., Any]] = {
    "matmul": _product,
    "dot": _dot,
    "vdot": _vdot,
    "inner": _inner,
    "tensordot": _tensordot,
    "einsum": _einsum,
    "multi_dot": _multi_dot,
}
