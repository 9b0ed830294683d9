"""Products done again: recorded once, and found by the views of what a caller gives.

What the host does for a small product takes longer than its kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any, NamedTuple

import cupy as cp

from ozaki.backends._launch import Tape


class Done(NamedTuple):
    """A recorded product, what decides at its pause whether to go on, and the shape and dtype of its result."""

    tape: Tape
    go_on: Callable[[], bool]
    shape: tuple[int, ...]
    dtype: Any


_done: dict[Any, Done] = {}

_MOST = 1024


def again(a: Any, b: Any, out: Any, choices: tuple[Any, ...]) -> Any:
    """The product, done as a call like this one was; None if none was remembered, or these operands need another."""
    if type(a) is not cp.ndarray or type(b) is not cp.ndarray or (out is not None and type(out) is not cp.ndarray):
        return None
    try:
        done = _done.get(_key(a, b, out, choices))
    except TypeError:  # choices that make no sense
        return None
    if done is None or (out is not None and (cp.may_share_memory(out, a) or cp.may_share_memory(out, b))):
        return None
    c = cp.empty(done.shape, done.dtype) if out is None else out
    return c if done.tape(a, b, c, go_on=done.go_on) else None


def remember(a: Any, b: Any, out: Any, choices: tuple[Any, ...], done: Done) -> None:
    """Note what a call has run."""
    if len(_done) >= _MOST:
        _done.clear()
    _done[_key(a, b, out, choices)] = done


def forget() -> None:
    """Record anew from now on."""
    _done.clear()


def _key(a: Any, b: Any, out: Any, choices: tuple[Any, ...]) -> tuple[Any, ...]:
    """All that a recorded product depends on, but for the elements and the addresses."""
    at_a, at_b = a.data, b.data
    return (
        choices, get_ident(), cp.cuda.runtime.getDevice(), at_a.device_id, at_b.device_id, at_a.ptr == at_b.ptr,
        a.dtype.char, a.shape, a.strides, b.dtype.char, b.shape, b.strides,
        None if out is None else (out.data.device_id, out.dtype.char, out.shape, out.strides),
    )  # fmt: skip
