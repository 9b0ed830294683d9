"""Products done again: recorded once, and found by the views of what a caller gives.

What looks at arguments takes longer than the kernels of a small product.
"""

from __future__ import annotations

from functools import lru_cache
from threading import get_ident
from typing import Any, NamedTuple

import cupy as cp

from ozaki.backends._launch import Tape, View
from ozaki.schemes import Scheme, Words


class _Done(NamedTuple):
    """A recorded product, and the shape and dtype of its result."""

    tape: Tape
    shape: tuple[int, ...]
    dtype: Any


_done: dict[Any, _Done] = {}

_MOST = 1024


@lru_cache(maxsize=_MOST)
def _tape(
    thread: int, device: int, scheme: Scheme | Words, engine: str, x: View, y: View, out: View, same: bool
) -> Tape:
    return Tape()


def tape(scheme: Scheme | Words, engine: str, x: Any, y: Any, out: Any) -> Tape:
    """The tape of a product by kernels of our own alone, for operands and a result with these views."""
    same = bool(x.data.ptr == y.data.ptr)
    views = View.of(x), View.of(y), View.of(out)
    return _tape(get_ident(), cp.cuda.runtime.getDevice(), scheme, engine, *views, same)


def again(a: Any, b: Any, choices: tuple[Any, ...]) -> Any:
    """The product of operands on the current device, if a call like this one was remembered; else None."""
    if type(a) is not cp.ndarray or type(b) is not cp.ndarray:
        return None
    try:
        done = _done.get(_key(a, b, choices))
    except TypeError:  # choices that make no sense
        return None
    if done is None:
        return None
    c = cp.empty(done.shape, done.dtype)
    done.tape(a, b, c)
    return c


def remember(
    a: Any, b: Any, choices: tuple[Any, ...], scheme: Scheme | Words, engine: str, x: Any, y: Any, out: Any, c: Any
) -> None:
    """Note what a call ran, if it was recorded: the product of the rows x and y into out, returned as c.

    Whatever the operands hold, such a call is to run the same.
    """
    product = tape(scheme, engine, x, y, out)
    if product.complete and (x.data.ptr, y.data.ptr) == (a.data.ptr, b.data.ptr):
        if len(_done) >= _MOST:
            _done.clear()
        _done[_key(a, b, choices)] = _Done(product, c.shape, c.dtype)


def forget() -> None:
    """Record anew from now on."""
    _tape.cache_clear()
    _done.clear()


def _key(a: Any, b: Any, choices: tuple[Any, ...]) -> tuple[Any, ...]:
    at_a, at_b = a.data, b.data
    return (
        choices, get_ident(), cp.cuda.runtime.getDevice(), at_a.device_id, at_b.device_id, at_a.ptr == at_b.ptr,
        a.dtype.char, a.shape, a.strides, b.dtype.char, b.shape, b.strides,
    )  # fmt: skip
