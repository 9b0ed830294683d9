"""`any_arrays`: public functions take the arrays of every library, and return the kind that they were given."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ozaki.interchange.classes import OfClasses
from ozaki.interchange.halves import HalfArray
from ozaki.interchange.kinds import Kind, kind_of, kind_of_class
from ozaki.interchange.plain import check_plain, has_more
from ozaki.process.placement import elsewhere
from ozaki.records.report import Report

_Function = TypeVar("_Function", bound=Callable[..., Any])


def any_arrays(*names: str, numpy: tuple[str, ...] = (), halves: bool = False) -> Callable[[_Function], _Function]:
    """Decorate a function whose arguments `names` are arrays of NumPy or CuPy: it takes those of other libraries, too.

    The function gets views of them, and runs on their device, on the stream that their library works on. A result that
    is an array, alone or in a tuple, is of their kind; where `out` is given, it is that object. Of a named tuple the
    fields `numpy` stay arrays of NumPy. With `halves` it takes 16-bit floats as `HalfArray`, else float32 copies.

    Raises
    ------
    TypeError, ValueError
        For arrays that have more than numbers, as units and labels (`interchange.plain`), or are of two libraries or
        devices; from the decorated function, for those that it cannot take. The message names the argument.
    """

    def decorate(function: _Function) -> _Function:
        order = [*inspect.signature(function).parameters]
        places = tuple((place, name) for place, name in enumerate(order) if name in names)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                foreign = any(map(_foreign, map(type, args))) or any(map(_foreign, map(type, kwargs.values())))
            except TypeError:  # a class that cannot be hashed
                foreign = True
            if foreign:
                for name, x in _given(places, names, args, kwargs):
                    _check_plain(name, x)
                for x in args:
                    if (kind := kind_of(x)) is not None:
                        return _call(function, places, names, (numpy, halves), kind, args, kwargs)
                for name in names:
                    if (kind := kind_of(kwargs.get(name))) is not None:
                        return _call(function, places, names, (numpy, halves), kind, args, kwargs)
            return _run(function, places, names, args, kwargs)

        return call  # type: ignore[return-value]

    return decorate


@OfClasses
def _is_foreign(kind: Any) -> bool:
    """Whether arguments of a class are to be looked at: they may have more than numbers, or hold others, as tuples."""
    return kind is tuple or kind_of_class(kind) is not None or has_more(kind)


_foreign = _is_foreign.__getitem__
"""Takes the least time of all ways to ask."""


def _check_plain(name: str, x: Any) -> None:
    """Refuse an argument, or an item of a tuple, that has more than numbers (`check_plain`)."""
    if type(x) is tuple:
        for item, each in _items(name, x):
            check_plain(item, each)
    else:
        check_plain(name, x)


def _items(name: str, x: tuple[Any, ...]) -> Iterable[tuple[str, Any]]:
    """The items of an argument that is a tuple, and what messages call them."""
    return ((f"operand {place}" if name == "operands" else name, each) for place, each in enumerate(x))


def _given(
    places: tuple[tuple[int, str], ...], names: tuple[str, ...], args: Sequence[Any], kwargs: dict[str, Any]
) -> list[tuple[str, Any]]:
    """The arguments that may be arrays, with their names: those given by position `places`, then those by name."""
    given = [(name, args[place]) for place, name in places if place < len(args)]
    return (
        given if kwargs.keys().isdisjoint(names) else given + [(name, kwargs[name]) for name in names if name in kwargs]
    )


def _run(
    function: Callable[..., Any],
    places: tuple[tuple[int, str], ...],
    names: tuple[str, ...],
    args: Sequence[Any],
    kwargs: dict[str, Any],
) -> Any:
    """Call a function on the GPU of the arrays among its arguments: `names`, by position `places`."""
    device = elsewhere(_given(places, names, args, kwargs)) if "cupy" in sys.modules else None
    if device is None:
        return function(*args, **kwargs)
    with device:
        return function(*args, **kwargs)


def _call(
    function: Callable[..., Any],
    places: tuple[tuple[int, str], ...],
    names: tuple[str, ...],
    how: tuple[tuple[str, ...], bool],
    kind: Kind,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Call a function with views of the arrays among its arguments: `names`, by position `places`.

    `how`: the fields of its result that are returned as they are, and whether it takes 16-bit floats.
    """
    numpy, halves = how
    positional, first, out = [*args], _NOWHERE, kwargs.get("out")
    for place, name in places:
        if place < len(args) and args[place] is not None:
            positional[place], first = _viewed(kind, name, args[place], first, halves)
            if name == "out":
                out = args[place]
    for name in names:
        if kwargs.get(name) is not None:
            kwargs[name], first = _viewed(kind, name, kwargs[name], first, halves)
    device = first.device
    if isinstance(out, tuple) and len(out) == 1:
        (out,) = out
    with kind.on(device):
        found = _run(function, places, names, positional, kwargs)
        if out is not None:
            kind.written(out)
        if isinstance(found, tuple):
            fields = getattr(found, "_fields", ("",) * len(found))
            returned = [
                each if field in numpy else _returned(kind, each, device, out if place == 0 else None)
                for place, (field, each) in enumerate(zip(fields, found, strict=True))
            ]
            if hasattr(found, "_replace"):  # keeps what a result has beside its items
                return found._replace(**dict(zip(fields, returned, strict=True)))
            return tuple(returned)
        return _returned(kind, found, device, out)


class _Placed(NamedTuple):
    """The name of an argument, and the device that it lies on."""

    name: str
    device: Any


_NOWHERE = _Placed("", None)


def _viewed(kind: Kind, name: str, x: Any, first: _Placed, halves: bool) -> tuple[Any, _Placed]:
    """A view of an argument, and the first array so far: `first`, if there was one before.

    Raises
    ------
    TypeError, ValueError
        If it is an array of another library, cannot be taken, or lies elsewhere.
    """
    if hasattr(type(x), "_an_array") or isinstance(x, list | int | float | complex):
        return x, first
    if isinstance(x, tuple):
        views = []
        for item, each in _items(name, x):
            view, first = _viewed(kind, item, each, first, halves)
            views.append(view)
        return tuple(views), first
    if kind_of(x) is kind:
        view, found = kind.view(name, x, halves)
        if first.device is not None and found != first.device:
            raise ValueError(f"{first.name}: on {first.device}, {name}: on {found}; move one of them")
        return view, _Placed(name, found)
    what = type(x).__module__.partition(".")[0] + "." + type(x).__name__
    raise TypeError(f"{name}: {what} beside {kind.name}; convert one of them")


def _returned(kind: Kind, found: Any, device: Any, out: Any) -> Any:
    """A result as the caller gets it: arrays of this kind, that of a report, too; everything else as it is."""
    if out is not None:
        return out
    if isinstance(found, Report) and found.bounds is not None and kind.holds(found.bounds.dtype):
        return replace(found, bounds=kind.made(found.bounds, device))
    if isinstance(found, HalfArray):
        return kind.made_of_bits(found.bits, found.format, device)
    is_array = isinstance(found, np.ndarray | np.generic) or type(found).__module__.partition(".")[0] == "cupy"
    return kind.made(found, device) if is_array else found
