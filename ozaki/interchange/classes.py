"""What is known of classes of arguments, looked up by class in every call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_LIBRARIES = {"cupy", "jax", "jaxlib", "numpy", "ozaki", "torch"}
"""Libraries whose classes stay as they are until the process ends."""

_IMMUTABLE = 1 << 8
"""In `__flags__`, of classes that are not written in Python, whose attributes cannot be set."""


class OfClasses(dict[Any, T]):
    """What a function finds out about classes, by class.

    It is remembered of Python's own classes and those of a few libraries. Others are looked at in every call: a program
    may give them more attributes, or drop them with what their methods hold, as arrays.
    """

    def __init__(self, function: Callable[[Any], T]) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, kind: Any) -> T:
        found = self._function(kind)
        if kind.__flags__ & _IMMUTABLE or kind.__module__.partition(".")[0] in _LIBRARIES:
            self[kind] = found
        return found

    def __call__(self, kind: Any) -> T:
        """As `self[kind]`, also of a class that cannot be hashed."""
        try:
            return self[kind]
        except TypeError:
            return self._function(kind)
