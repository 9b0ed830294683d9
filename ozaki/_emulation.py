"""`emulate`: the products of NumPy's and CuPy's functions inside a `with` block, through `ozaki`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Self

import numpy as np

from ozaki._account import Account
from ozaki._accuracy import Accuracy
from ozaki._api import matmul
from ozaki._contractions import einsum_by, tensordot_by

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
    their class cannot be changed; nor can be names that a program took before, as `from numpy import dot` does, and
    what libraries multiply in compiled code. `ozaki.torch.emulate` does the same for PyTorch.

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
        From the products, as `matmul` raises them.

    Examples
    --------
    >>> import numpy as np, ozaki
    >>> a, b = np.array([[1e16, 1.0, -1e16]]), np.ones((3, 1))
    >>> with ozaki.emulate(accuracy="dd", report=True) as run:
    ...     np.dot(a, b)
    array([[1.]])
    >>> print(run)
    1 products ran through ozaki
          1  dot       (1 x 3) (3 x 1)                 float64     28 residues         componentwise error <= 1.2e-16
    """
    options = {
        "accuracy": accuracy, "scheme": scheme, "slices": slices, "engine": engine, "reproducible": reproducible,
        "workspace_limit": workspace_limit,
    }  # fmt: skip
    return Emulation(options, report)


class Emulation:
    """What `emulate` returns: within it, products run through `ozaki`.

    Attributes
    ----------
    account : Account
        What ran how, and what was left to the library.
    """

    def __init__(self, options: dict[str, Any], report: bool) -> None:
        self._options, self._report = options, report
        self._replaced: list[tuple[Any, str, Any]] = []
        self.account = Account()

    def __str__(self) -> str:
        return str(self.account)

    def __enter__(self) -> Self:
        if self._replaced:
            raise RuntimeError("emulate: entered already; make another one for a block inside")
        libraries = [np] + ([sys.modules["cupy"]] if "cupy" in sys.modules else [])
        for library in libraries:
            for name in FUNCTIONS:
                self._replace(library, library, name)
            for name in ("multi_dot", "matmul", "tensordot"):
                if hasattr(library.linalg, name):
                    self._replace(library.linalg, library, name)
        for library in libraries[1:]:
            for name in ("__matmul__", "dot"):
                self._replace(library.ndarray, library, name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._replaced:
            place, name, original = self._replaced.pop()
            setattr(place, name, original)

    def _replace(self, place: Any, library: Any, name: str) -> None:
        original = getattr(place, name)
        self._replaced.append((place, name, original))
        run = partial(_RUN[name.strip("_")], partial(self._product, name.strip("_")))
        setattr(place, name, _replacement(original, name.strip("_"), run, library.ndarray, self.account))

    def _product(self, name: str, a: Any, b: Any) -> Any:
        run: Callable[..., Any] = matmul
        found, report = run(a, b, return_report=self._report, **self._options), None
        if self._report:
            found, report = found
        self.account.enter(name, a, b, report)
        return found


def _replacement(original: Any, name: str, run: Callable[..., Any], ndarray: type, account: Account) -> Any:
    """What stands for a function while products are emulated; it has the other attributes of that one."""

    class Replacement:
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            if _is_own(sys._getframe(1).f_globals.get("__name__", "")):
                return original(*args, **kwargs)
            operands = _operands(name, args)
            reason = _obstacle(operands, ndarray, kwargs)
            if reason:
                if any(isinstance(x, ndarray) for x in operands):
                    account.leave(name, reason)
                return original(*args, **kwargs)
            out = kwargs.get("out")
            found = run(*args, **{key: value for key, value in kwargs.items() if key != "out"})
            if out is None:
                return found[()] if isinstance(found, np.ndarray) and found.ndim == 0 else found
            out[...] = found
            return out

        def __get__(self, instance: Any, owner: Any = None) -> Any:  # as a method of a class
            return self if instance is None else partial(self, instance)

        def __getattr__(self, attribute: str) -> Any:
            return getattr(original, attribute)

    return Replacement()


def _is_own(module: str) -> bool:
    """Whether code of this library calls, which multiplies slices by the functions themselves."""
    return module == "ozaki" or module.startswith("ozaki.")


def _operands(name: str, args: tuple[Any, ...]) -> list[Any]:
    """The operands among a function's positional arguments, and whatever else it does not take here."""
    if name == "multi_dot":
        return [*args[0], *args[1:]] if args else []
    if name == "einsum":
        return [*args[1:]] if args and isinstance(args[0], str) else [*args]
    return [*args[:2], *args[3:]] if name == "tensordot" else [*args]


def _obstacle(operands: list[Any], ndarray: Any, options: dict[str, Any]) -> str:
    """Why a product is left to the library; empty if it is not."""
    if not operands:
        return "no operands"
    for x in operands:
        if type(x) is not ndarray:
            return f"an operand of type {type(x).__name__}"
        if str(x.dtype) not in DTYPES:
            return f"dtype {x.dtype}"
        if not x.ndim:
            return "a scalar"
    others = [name for name in options if name not in ("out", "axes", "optimize")]
    return f"option {others[0]}" if others else ""


def _dot(multiply: Any, a: Any, b: Any) -> Any:
    return multiply(a, b) if b.ndim < 3 else tensordot_by(a, b, (-1, -2), multiply)


def _vdot(multiply: Any, a: Any, b: Any) -> Any:
    return multiply(a.conj().reshape(-1), b.reshape(-1))


def _inner(multiply: Any, a: Any, b: Any) -> Any:
    return tensordot_by(a, b, (-1, -1), multiply)


def _matmul(multiply: Any, a: Any, b: Any) -> Any:
    return multiply(a, b)


def _tensordot(multiply: Any, a: Any, b: Any, axes: Any = 2) -> Any:
    return tensordot_by(a, b, axes, multiply)


def _einsum(multiply: Any, subscripts: str, *operands: Any, optimize: Any = None) -> Any:
    return einsum_by(subscripts, operands, multiply)


def _multi_dot(multiply: Any, arrays: Any) -> Any:
    """A chain of matrices, the first or last of which may be a vector."""
    labels, place = [], 0
    for x in arrays:
        labels.append(tuple(range(place, place + x.ndim)))
        place += x.ndim - 1
    letters = ["".join(chr(ord("a") + label) for label in of) for of in labels]
    ends = (letters[0][:-1] if arrays[0].ndim > 1 else "") + (letters[-1][1:] if arrays[-1].ndim > 1 else "")
    return einsum_by(f"{','.join(letters)}->{ends}", arrays, multiply)


_RUN: dict[str, Callable[..., Any]] = {
    "matmul": _matmul,
    "dot": _dot,
    "vdot": _vdot,
    "inner": _inner,
    "tensordot": _tensordot,
    "einsum": _einsum,
    "multi_dot": _multi_dot,
}
