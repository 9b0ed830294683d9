"""Products done again: recorded once, and found by the views of what a caller gives.

What the host does for a small product takes longer than its kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any, NamedTuple

import cupy as cp

from ozaki._prepared import Prepared
from ozaki.backends import Again
from ozaki.backends.cupy.launching._tape import Tape


class Done(NamedTuple):
    """What runs a product, whether it was the right one for the operands, and the shape and dtype of its result."""

    tape: Tape
    fits: Callable[[], bool]
    shape: tuple[int, ...]
    dtype: Any


_done: dict[Any, Done] = {}

_MOST = 1024


def again(a: Any, b: Any, out: Any, choices: tuple[Any, ...]) -> Any:
    """The product, done as a call like this one was; None if none was remembered, or these operands need another."""
    if not _is_ours(a) or not _is_ours(b) or (out is not None and type(out) is not cp.ndarray):
        return None
    try:
        key = _key(a, b, out, choices)
        done = _done.get(key)
    except TypeError:  # choices that make no sense
        return None
    arrays = *arrays_of(a), *arrays_of(b)
    if done is None or (out is not None and any(cp.may_share_memory(out, x) for x in arrays)):
        return None
    try:
        rest = done.tape.begin(*arrays)  # meanwhile there is time for the result's memory
        c = cp.empty(done.shape, done.dtype) if out is None else out
        memory = rest(c)
    except cp.cuda.memory.OutOfMemoryError:  # what lies between steps is held at once here, before the first of them
        cp.cuda.Device().synchronize()
        _done.pop(key, None)
        return None
    fits = done.fits()  # the device knows long before it is through, and is kept busy until then
    del memory  # at which the proof has looked on a stream of its own
    if fits:
        return c
    _done.pop(key, None)
    return None


def _is_ours(x: Any) -> bool:
    return type(x) is cp.ndarray or (isinstance(x, Prepared) and x.backend.name == "cupy")


def arrays_of(x: Any) -> tuple[Any, ...]:
    """What a product reads of an operand, prepared or not."""
    if type(x) is cp.ndarray:
        return (x,)
    return x.slices.described.x, x.slices.described.fields, x.slices.planes, x.slices.mu


@contextmanager
def recorded(
    a: Any, b: Any, out: Any, c: Any, choices: tuple[Any, ...], again: Callable[[], Again | None]
) -> Iterator[None]:
    """Note what is done while a product is computed into c, if the device can be given the same again."""
    tape = Tape()
    with tape.recording(*arrays_of(a), *arrays_of(b), c):
        yield
    into_out = out is None or c.data.ptr == out.data.ptr
    if (found := again()) is not None and into_out and tape.complete:
        if len(_done) >= _MOST:
            _done.clear()
        _done[_key(a, b, out, choices)] = Done(tape, found.right, found.shape, c.dtype)


def forget() -> None:
    """Record anew from now on."""
    _done.clear()


def _key(a: Any, b: Any, out: Any, choices: tuple[Any, ...]) -> tuple[Any, ...]:
    """All that a recorded product depends on, but for the elements and the addresses."""
    same = arrays_of(a)[0].data.ptr == arrays_of(b)[0].data.ptr
    views = _view(a), _view(b), None if out is None else _view(out)
    return choices, get_ident(), cp.cuda.runtime.getDevice(), same, views


def _view(x: Any) -> tuple[Any, ...]:
    if type(x) is cp.ndarray:
        return x.data.device_id, x.dtype.char, x.shape, x.strides
    return x.side, x.plan, x.shape, *_view(x.slices.described.x)
