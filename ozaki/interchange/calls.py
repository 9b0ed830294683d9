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


def any_arrays(*names: str, numpy: tuple[str, ...] = ()) -> Callable[[_Function], _Function]:
    """Decorate a function whose arguments `names` are arrays of NumPy or CuPy: it takes those of other libraries, too.

    The function gets views of them, and runs on their device, on the stream that their library works on. A result that
    is an array, alone or in a tuple, is of their kind; where `out` is given, it is that object. Of a named tuple the
    fields `numpy` stay arrays of NumPy. A `dtype` of PyTorch becomes the name of that of NumPy.

    Raises
    ------
    TypeError, ValueError
        From the decorated function, for arrays that it cannot take, or of two libraries or devices; the message names
        the argument.
    """

    def decorate(function: _Function) -> _Function:
        order = [*inspect.signature(function).parameters]
        places = tuple((place, name) for place, name in enumerate(order) if name in names)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            for x in args:
                if (kind := kind_of(x)) is not None:
                    return _call(function, places, names, numpy, kind, args, kwargs)
            for name in names:
                if (kind := kind_of(kwargs.get(name))) is not None:
                    return _call(function, places, names, numpy, kind, args, kwargs)
            return function(*args, **kwargs)

        return call  # type: ignore[return-value]

    return decorate


def _call(
    function: Callable[..., Any],
    places: tuple[tuple[int, str], ...],
    names: tuple[str, ...],
    numpy: tuple[str, ...],
    kind: Kind,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Call a function with views of the arrays among its arguments: `names`, by position `places`.

    The fields `numpy` of its result are returned as they are.
    """
    positional, device, out = [*args], None, kwargs.get("out")
    for place, name in places:
        if place < len(args) and args[place] is not None:
            positional[place], device = _viewed(kind, name, args[place], device)
            if name == "out":
                out = args[place]
    for name in names:
        if kwargs.get(name) is not None:
            kwargs[name], device = _viewed(kind, name, kwargs[name], device)
    if isinstance(out, tuple) and len(out) == 1:
        (out,) = out
    if type(kwargs.get("dtype")).__module__ == "torch":
        kwargs["dtype"] = str(kwargs["dtype"]).removeprefix("torch.")  # torch.float64 is "float64" for NumPy
    with kind.on(device):
        found = function(*positional, **kwargs)
        if out is not None:
            kind.written(out)
        if isinstance(found, tuple):
            fields = getattr(found, "_fields", ("",) * len(found))
            returned = [
                each if field in numpy else _returned(kind, each, device, out if place == 0 else None)
                for place, (field, each) in enumerate(zip(fields, found, strict=True))
            ]
            return found._make(returned) if hasattr(found, "_make") else tuple(returned)
        return _returned(kind, found, device, out)


def _viewed(kind: Kind, name: str, x: Any, device: Any) -> tuple[Any, Any]:
    """A view of an argument, and the device of all so far: `device`, if that is not None.

    Raises
    ------
    TypeError, ValueError
        If it is an array of another library, cannot be taken, or lies elsewhere.
    """
    if isinstance(x, tuple):
        views = []
        for each in x:
            view, device = _viewed(kind, name, each, device)
            views.append(view)
        return tuple(views), device
    if kind_of(x) is kind:
        view, found = kind.view(name, x)
        if device is not None and found != device:
            raise ValueError(f"{name}: lies on {found}, but another operand lies on {device}; move one of them")
        return view, found
    if isinstance(x, Numbers | Prepared | list | int | float | complex):
        return x, device
    what = type(x).__module__.partition(".")[0] + "." + type(x).__name__
    raise TypeError(f"{name}: {what} beside {kind.name}; convert one of them")


def _returned(kind: Kind, found: Any, device: Any, out: Any) -> Any:
    """A result as the caller gets it: arrays of this kind, everything else as it is."""
    if out is not None:
        return out
    is_array = isinstance(found, np.ndarray | np.generic) or type(found).__module__.partition(".")[0] == "cupy"
    return kind.made(found, device) if is_array else found
