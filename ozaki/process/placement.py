"""The GPU on which operands lie, made CuPy's current device for the length of a call.

CuPy allocates on the current device, launches kernels there, and keeps a current stream for each device. So every
public function, and every method of an `MPArray`, enters the device of its operands before it touches an element, and
leaves it when it returns or raises. What they call takes the current device for that of their operands.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

_Class = TypeVar("_Class", bound=type)


def where_they_lie(operands: Iterable[tuple[str, Any]]) -> AbstractContextManager[Any]:
    """A context in which the GPU of these (name, operand) pairs is CuPy's current device (`elsewhere`)."""
    return elsewhere(operands) or nullcontext()


def elsewhere(operands: Iterable[tuple[str, Any]]) -> AbstractContextManager[Any] | None:
    """A context in which the GPU of these (name, operand) pairs is CuPy's current device; None if it is so already.

    An operand is a CuPy array, an object that holds some (`MPArray`, `Prepared`, `LU`: their `_an_array` is one), or a
    tuple of these. Whatever else is among them lies on no GPU.

    Raises
    ------
    ValueError
        If they lie on several GPUs.
    """
    cupy = sys.modules.get("cupy")
    if cupy is None:
        return None
    first: _Named | None = None
    for name, x in operands:
        if x is not None:
            first = _found(name, x, first, cupy.ndarray)
    if first is None or first[1] == cupy.cuda.runtime.getDevice():
        return None
    device: AbstractContextManager[Any] = cupy.cuda.Device(first[1])
    return device


_Named = tuple[str, int]
"""The name of an array, and the number of the GPU on which it lies."""


def _found(name: str, x: Any, first: _Named | None, ndarray: type) -> _Named | None:
    """The first array on a GPU: `first`, that of the operands before x, or, where they have none, that of x.

    Raises
    ------
    ValueError
        If one of x lies on another GPU.
    """
    if isinstance(x, ndarray):
        number = x.data.device_id  # type: ignore[attr-defined]
        if first is None:
            return name, number
        if number != first[1]:
            raise ValueError(
                f"{first[0]}: on device {first[1]}, {name}: on device {number}; expected one device: within `with "
                f"cupy.cuda.Device({first[1]})`, cupy.array copies an array there, and ozaki.ascupy an MPArray"
            )
    elif (array := getattr(type(x), "_an_array", None)) is not None:
        return _found(name, array.fget(x), first, ndarray)
    elif isinstance(x, tuple):
        for place, each in enumerate(x):
            first = _found(f"{name}[{place}]", each, first, ndarray)
    return first


def on_gpu(x: Any) -> bool:
    """Whether x is an array of CuPy, which is not imported for others."""
    return type(x).__module__.partition(".")[0] == "cupy"


def methods_where_it_lies(cls: _Class) -> _Class:
    """Decorate a class of arrays: its methods and properties run on the device of the array and of their arguments.

    Those whose names begin with one underscore are left as they are: only others call them. So are class methods, and
    what it inherits.
    """
    for name, member in [*vars(cls).items()]:
        if name in _LEFT or (name.startswith("_") and not name.startswith("__")):
            continue
        if isinstance(member, property) and member.fget is not None:
            setattr(cls, name, property(_entering(member.fget), doc=member.__doc__))
        elif inspect.isfunction(member):
            setattr(cls, name, _entering(member))
    return cls


_LEFT = ("__init__", "__annotate__", "__annotate_func__", "shape", "ndim", "size", "nbytes", "library")
"""Functions that Python keeps in a class, and properties: they touch no element."""


def _entering(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that enters the device of its object and its arguments first."""
    names = ["the array", *[*inspect.signature(method).parameters][1:]]

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        if "cupy" not in sys.modules:
            return method(*args, **kwargs)
        device = elsewhere((*zip(names, args, strict=False), *kwargs.items()))
        if device is None:
            return method(*args, **kwargs)
        with device:
            return method(*args, **kwargs)

    return call
