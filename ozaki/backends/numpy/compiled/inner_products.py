"""Calls of the compiled library for inner products of a list of entries (kernels/cpu/inner_products.h)."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy.compiled.calls import can_read
from ozaki.backends.numpy.compiled.memory import Block
from ozaki.backends.numpy.compiled.sharing import share_out
from ozaki.backends.numpy.compiled.structures import InnerProducts

SCRATCH = 5 * 2**16
"""Bytes of the scratch of a thread, at most (`InnerScratch` of inner_products.h)."""

LISTED = 80
"""Bytes of the arrays that `inner_products` makes, for each entry, and of the entries with exchanged operands."""

_ROWS, _MOST = 32, 128
"""Rows of y, and most entries, of a group (`GROUP_ROWS`, `MOST_ENTRIES`)."""

_Ints = npt.NDArray[np.int64]


def along_k(x: npt.NDArray[Any]) -> bool:
    """Whether the library reads rows as the first operand of `inner_products`: neighbours along k are neighbours."""
    return can_read(x) and (x.strides[2] == x.itemsize or x.shape[2] == 1)


def inner_products(
    library: Any, x: npt.NDArray[Any], y: npt.NDArray[Any], entries: _Ints, dtype: np.dtype[Any]
) -> npt.NDArray[Any]:
    """The inner products of entries, shape (3, count): each correctly rounded to `dtype`, shape (count,).

    `along_k(x)` and `can_read(y)` hold; k is not 0. NaN and Inf count as zero.
    """
    k, count = x.shape[2], entries.shape[1]
    # Entries of the same eight rows of y come together, as groups of at most `_MOST`, and in the order of rows of x.
    groups = entries[0] * -(-y.shape[1] // _ROWS) + entries[2] // _ROWS
    order = np.argsort(groups * x.shape[1] + entries[1], kind="stable")
    groups, ordered = groups[order], np.take(entries, order, axis=1)
    begin = np.append(np.flatnonzero(np.diff(groups, prepend=-1)), count)
    number = -(-np.diff(begin) // _MOST)
    within = np.arange(number.sum()) - np.repeat(np.cumsum(number) - number, number)
    starts = np.append(np.repeat(begin[:-1], number) + within * _MOST, count)
    found = np.empty(count, dtype)
    of_x, of_y = ((0 if len(each) == 1 else each.strides[0] // each.itemsize) for each in (x, y))
    given = InnerProducts(
        x.ctypes.data, y.ctypes.data, x.itemsize == 4, y.itemsize == 4, dtype.itemsize == 4, k,
        of_x, x.strides[1] // x.itemsize, y.shape[1], of_y, *(step // y.itemsize for step in y.strides[1:]),
        *(each.ctypes.data for each in ordered), starts.ctypes.data, found.ctypes.data,
    )  # fmt: skip
    at, room = ctypes.byref(given), library.ozaki_cpu_inner_products_scratch()

    def call(first: int, last: int) -> None:
        own = Block((room,))
        library.ozaki_cpu_inner_products(at, first, last, own.address)

    share_out(len(starts) - 1, 8.0 * count * (k + 64), call, x, y, ordered, starts, found)
    values = np.empty_like(found)
    values[order] = found
    return values
