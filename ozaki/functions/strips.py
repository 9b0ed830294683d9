"""Operands and results of a product on several devices: matrices as strips of rows or columns, wherever they lie."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from ozaki.backends.numpy import backend as numpy
from ozaki.call.destination import check_out
from ozaki.call.operands import dtype_of
from ozaki.interchange.plain import plain
from ozaki.process.placement import on_gpu
from ozaki.records.formats import DTYPES


def strips_of(name: str, x: Any) -> list[Any]:
    """The strips of an operand, matrices of NumPy or CuPy of one dtype."""
    strips = [plain(name, each) if isinstance(each, np.ndarray) else each for each in _as_list(x)]
    if not strips:
        raise ValueError(f"{name}: no strips; expected one for each device")
    for each in strips:
        if type(each).__module__.split(".")[0] not in ("numpy", "cupy") or getattr(each, "ndim", None) != 2:
            raise TypeError(
                f"{name}: {type(each).__name__}; expected a matrix of NumPy or CuPy, or a list of such strips, with "
                "devices="
            )
        if dtype_of(name, each) not in DTYPES:
            raise TypeError(f"{name}: dtype {each.dtype}; expected one of {', '.join(DTYPES)} with devices=")
        if each.dtype != strips[0].dtype:
            raise TypeError(f"{name}: strips of dtypes {strips[0].dtype} and {each.dtype}; expected one")
    return strips


def _as_list(x: Any) -> list[Any]:
    return list(x) if isinstance(x, list | tuple) else [x]


def even_strips(x: Any, count: int) -> list[Any]:
    """The rows of a matrix in so many even strips, in order."""
    each, more = divmod(x.shape[0], count)
    ends = [i * each + min(i, more) for i in range(count + 1)]
    return [x[first:last] for first, last in pairwise(ends)]


def results(a: Any, of_a: list[Any], out: Any, shape: tuple[int, int, int], dtype: str) -> tuple[Any, list[Any]]:
    """The result, and the strips of it that devices write: the caller's `out`, or memory where the operands lie."""
    m, _, n = shape
    rows = [strip.shape[0] for strip in of_a]
    if not isinstance(a if out is None else out, list | tuple):
        if out is None:
            out = _empty((m, n), dtype, a)
        _check_out(out, (m, n), dtype)
        ends = [sum(rows[:i]) for i in range(len(rows) + 1)]
        return out, [out[first:last] for first, last in pairwise(ends)]
    every_rows = [len(strip) for strip in a] if isinstance(a, list | tuple) else rows  # with strips that have none
    if out is None:
        out = [_empty((len(strip), n), dtype, strip) for strip in a]
    if len(out) != len(every_rows):
        raise ValueError(f"out: {len(out)} strips; expected {len(every_rows)}, one for each device")
    for strip, count in zip(out, every_rows, strict=True):
        _check_out(strip, (count, n), dtype)
    strips = [strip for strip in out if strip.shape[0]]
    for i, strip in enumerate(strips):
        if any(_shared(strip, other) for other in strips[:i]):
            raise ValueError("out: strips share memory; expected memory of its own for each")
    return out, strips or list(out[:1])


def _check_out(out: Any, shape: tuple[int, int], dtype: str) -> None:
    """Refuse a result, or a strip of one, that does not take what is to be written.

    Raises
    ------
    TypeError, ValueError
    """
    if on_gpu(out):
        from ozaki.backends.cupy import backend as cupy

        check_out(out, shape, dtype, cupy)
    else:
        check_out(out, shape, dtype, numpy)


def check_apart(to: list[Any], of_a: list[Any], of_b: list[Any]) -> None:
    """Refuse a result in the memory of an operand, which other devices still read.

    Raises
    ------
    ValueError
    """
    for name, strips in (("a", of_a), ("b", of_b)):
        for out in to:
            for strip in strips:
                if _shared(out, strip):
                    raise ValueError(f"out: shares memory with {name}; expected memory of its own with devices=")


def _shared(x: Any, y: Any) -> bool:
    """Whether what is written into x may change y: they have memory in common, or are maps of one file."""
    if _memory_of(x) != _memory_of(y):
        return False
    return _overlap(x, y) if on_gpu(x) else 0 not in (x.size, y.size) and numpy.overlap(x, y)


def _memory_of(x: Any) -> int | None:
    """The device in whose memory an array lies; None of the host's."""
    return int(x.data.device_id) if on_gpu(x) else None


def _overlap(x: Any, y: Any) -> bool:
    """Whether the stretches of memory overlap in which the elements of two arrays of a device lie."""
    if 0 in (x.size, y.size):
        return False
    (first_x, end_x), (first_y, end_y) = map(_stretch, (x, y))
    return first_x < end_y and first_y < end_x


def _stretch(x: Any) -> tuple[int, int]:
    reach = [(size - 1) * step for size, step in zip(x.shape, x.strides, strict=True)]
    first = x.data.ptr + sum(step for step in reach if step < 0)
    return first, x.data.ptr + sum(step for step in reach if step > 0) + x.itemsize


def clear(x: Any) -> None:
    """Fill an array with zeros where it lies, and wait for that."""
    if not on_gpu(x):
        x[...] = 0
        return
    import cupy as cp

    with cp.cuda.Device(_memory_of(x)):
        x[...] = 0
        cp.cuda.get_current_stream().synchronize()


def _empty(shape: tuple[int, int], dtype: str, like: Any) -> Any:
    """A new array where another one lies."""
    if not on_gpu(like):
        return np.empty(shape, dtype)
    from ozaki.backends.cupy import peers

    return peers.empty(shape, dtype, int(like.data.device_id))
