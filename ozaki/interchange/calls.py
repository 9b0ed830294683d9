"""`any_arrays`: public functions take the arrays of every library, and return the kind that they were given."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ozaki._prepared import Prepared
from ozaki.interchange.kinds import Kind, kind_of
from ozaki.multiprecision.numbers import Numbers

_Function = TypeVar("_Function", bound=Callable[..., Any])


def any_arrays(*names: str) -> Callable[[_Function], _Function]:
    """Decorate a function whose arguments `names` are arrays of NumPy or CuPy: it takes those of other libraries, too.

    The function gets views of them, and runs on their device, on the stream that their library works on. A result that
    is an array, alone or first in a tuple, is of their kind; where `out` is given, it is that object.

    Raises
    ------
    TypeError, ValueError
        From the decorated function, for arrays that it cannot take, or of two libraries or devices; the message names
        the argument.
    """

    def decorate(function: _Function) -> _Function:
        order = [*inspect.signature(function).parameters]

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            for x in args:
                if (kind := kind_of(x)) is not None:
                    return _call(function, order, names, kind, args, kwargs)
            for name in names:
                if (kind := kind_of(kwargs.get(name))) is not None:
                    return _call(function, order, names, kind, args, kwargs)
            return function(*args, **kwargs)

        return call  # type: ignore[return-value]

    return decorate


def _call(
    function: Callable[..., Any],
    order: list[str],
    names: tuple[str, ...],
    kind: Kind,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Call a function, whose parameters are `order`, with views of the arrays among its arguments `names`."""
    device = None
    for name, x in (*zip(order, args, strict=False), *kwargs.items()):
        if name in names and x is not None:
            device = _device(kind, name, x, device)
    with kind.on(device):
        views = [_viewed(kind, name, x) for name, x in zip(order, args, strict=False)]
        keywords = {name: _viewed(kind, name, x) if name in names else x for name, x in kwargs.items()}
        found = function(*views, **keywords)
        out = kwargs.get("out")
        if out is None and "out" in order[: len(args)]:
            out = args[order.index("out")]
        if isinstance(found, tuple):
            return _returned(kind, found[0], device, out), *found[1:]
        return _returned(kind, found, device, out)


def _device(kind: Kind, name: str, x: Any, device: Any) -> Any:
    """The device of an array of this kind, which is to be `device`, unless that is None; `device` of what is no array.

    Raises
    ------
    TypeError, ValueError
        If the array is of another library, cannot be taken, or lies elsewhere.
    """
    if isinstance(x, tuple):
        for each in x:
            device = _device(kind, name, each, device)
        return device
    if kind_of(x) is kind:
        found = kind.device(name, x)
        if device is not None and found != device:
            raise ValueError(f"{name}: lies on {found}, but another operand lies on {device}; move one of them")
        return found
    if isinstance(x, Numbers | Prepared | list | int | float | complex):
        return device
    what = type(x).__module__.partition(".")[0] + "." + type(x).__name__
    raise TypeError(f"{name}: {what} beside {kind.name}; convert one of them")


def _viewed(kind: Kind, name: str, x: Any) -> Any:
    if kind_of(x) is None:
        return x
    return tuple(_viewed(kind, name, each) for each in x) if isinstance(x, tuple) else kind.view(name, x)


def _returned(kind: Kind, found: Any, device: Any, out: Any) -> Any:
    """A result as the caller gets it: arrays of this kind, everything else as it is."""
    if out is not None:
        return out
    is_array = isinstance(found, np.ndarray | np.generic) or type(found).__module__.partition(".")[0] == "cupy"
    return kind.made(found, device) if is_array else found
