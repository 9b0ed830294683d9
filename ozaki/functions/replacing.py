"""Functions of NumPy and CuPy that multiply matrices, replaced by others for a while."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial, update_wrapper
from importlib import import_module
from typing import Any

import numpy as np

FUNCTIONS = ("matmul", "dot", "vdot", "inner", "tensordot", "einsum")
"""Names of functions of both libraries that are replaced; in `linalg` also multi_dot, and NumPy's matmul, tensordot."""

Instead = Callable[["Replacement", tuple[Any, ...], dict[str, Any]], Any]
"""What runs instead of a function: called with what stands for it, and its arguments."""

_replaced: list[tuple[Any, str, Replacement]] = []
"""The functions that are replaced: where, their names, and what stands for them."""


def replace_all(instead: Instead) -> None:
    """Replace all functions that are not replaced yet, as those of a library that was imported since."""
    libraries = [np] + ([sys.modules["cupy"]] if "cupy" in sys.modules else [])
    done = {(place, name) for place, name, _ in _replaced}
    for library in libraries:
        for place, names in (
            (library, FUNCTIONS),
            (library.linalg, ("multi_dot", "matmul", "tensordot")),
            (library.ndarray, () if library is np else ("__matmul__", "dot")),
        ):
            for name in names:
                if (place, name) not in done and hasattr(place, name):
                    _replace(place, name, library.ndarray, instead)


def _replace(place: Any, name: str, ndarray: Any, instead: Instead) -> None:
    """Put what stands for a function into its place, a module or a class."""
    original = getattr(place, name)
    if isinstance(original, Replacement):  # a program took it for the original, and put it back
        original = original.original
    replacement = Replacement(original, name.strip("_"), ndarray, f"{place.__name__}.{name}", instead)
    _replaced.append((place, name, replacement))
    setattr(place, name, replacement)


def restore_all() -> None:
    """Undo `replace_all`, but for functions that a program has replaced since."""
    while _replaced:
        place, name, replacement = _replaced[-1]
        if vars(place).get(name) is replacement:
            setattr(place, name, replacement.original)
        _replaced.pop()  # not before: an interrupt could come between


class Replacement:
    """What stands for a function; it has the other attributes of that one.

    Attributes
    ----------
    original : the function
    name : without underscores: "matmul" of `__matmul__`, too
    ndarray : the class of arrays of its library
    """

    def __init__(self, original: Any, name: str, ndarray: Any, path: str, instead: Instead) -> None:
        update_wrapper(self, original)
        self.original, self.name, self.ndarray = original, name, ndarray
        self._path, self._instead = path, instead

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if _called_by_this_library():
            return self.original(*args, **kwargs)
        return self._instead(self, args, kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:  # as a method of a class
        return self if instance is None else partial(self, instance)

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self.__dict__["original"], attribute)

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
