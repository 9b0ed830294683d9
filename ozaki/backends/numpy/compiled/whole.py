"""Whole products in one call of the compiled library for each thread: what is small, or has one thread alone."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from ozaki.backends.numpy.compiled.calls import can_read
from ozaki.backends.numpy.compiled.memory import SPARE, Block
from ozaki.backends.numpy.compiled.panels import tile
from ozaki.backends.numpy.compiled.sharing import share_out, workers_for
from ozaki.backends.numpy.compiled.structures import Scaling as ScalingOfLibrary
from ozaki.backends.numpy.compiled.structures import Whole
from ozaki.backends.numpy.compiled.tables import MOST_LIMBS, Tables, tables_of
from ozaki.bounds.description import limits_of
from ozaki.caches import cached
from ozaki.schemes import Scaling
from ozaki.schemes.image import EMPTY_TOP

FARTHEST = 800
"""Largest sum of two exponents for which no entry but zero leaves the normal range of float64 before it is rounded."""

_TURNS = 4
"""Matrices of a stack that each thread has at least: with fewer, threads share out parts of matrices."""


def multiply_whole(
    library: Any,
    x: npt.NDArray[Any],
    y: npt.NDArray[Any],
    scaling: Scaling,
    tables: Tables,
    out: npt.NDArray[Any],
    together: int,
) -> int | None:
    """Write the product of rows x and y, shapes (batch, m or n, k), rounded once, into out, shape (batch, m, n).

    NaN and Inf count as zero. Descriptions and residues of a matrix are made in scratch memory of each thread.

    Parameters
    ----------
    together : matrices whose slices may be held at a time

    Returns
    -------
    nonfinite : number of NaN and Inf that were read; None, and out is undefined, where this is not the way: operands
        in other formats than the result, exponents that are too large, or threads that share out parts of a matrix
    """
    batch, m, n = out.shape
    k, itemsize = x.shape[2], out.itemsize
    if not (x.dtype == y.dtype == out.dtype) or tables.limbs > MOST_LIMBS:
        return None
    cost = float(batch) * len(tables.moduli) * (m * n * (k + 64) / 16 + (m + n) * k)
    workers = workers_for(cost)
    if workers > 1 and (batch < _TURNS * workers or together < workers):
        return None
    if not (can_read(x) and can_read(y) and can_read(out)) or out.strides[2] != itemsize:
        return None
    constants = _constants_of(tables.crt.moduli, scaling)
    rows, columns = tile(m, n)
    given = Whole(
        itemsize == 4, m, k, n, *_rows(x, itemsize), *_rows(y, itemsize), out.ctypes.data,
        out.strides[0] // itemsize, out.strides[1] // itemsize, rows, columns, FARTHEST, *constants.addresses,
    )  # fmt: skip
    at, counts = ctypes.byref(given), list[int]()
    nbytes = library.ozaki_cpu_whole_scratch(at)

    def call(begin: int, end: int) -> None:
        scratch = Block((nbytes,))
        counts.append(library.ozaki_cpu_whole(at, begin, end, scratch.array.ctypes.data))

    share_out(batch, cost, call, x, y, out, constants)
    nonfinite = None if min(counts) < 0 else sum(counts)
    if nonfinite != 0:
        SPARE.clear()  # the scratch, before others hold what they find
    return nonfinite


def _rows(x: npt.NDArray[Any], itemsize: int) -> tuple[int, int, int, int]:
    """The address of rows, and the steps of batch, rows and k; that of the batch is 0 if there is one matrix."""
    of_batch, of_rows, of_k = x.strides
    return x.ctypes.data, 0 if len(x) == 1 else of_batch // itemsize, of_rows // itemsize, of_k // itemsize


@dataclass(frozen=True, eq=False)
class _Constants:
    """What a scheme and the length of rows give a product.

    Attributes
    ----------
    addresses : the last fields of `Whole`
    owners : what lies at these addresses
    """

    addresses: tuple[int, ...]
    owners: tuple[Any, ...]


@cached(64)
def _constants_of(moduli: tuple[int, ...], scaling: Scaling) -> _Constants:
    """The constants of residues modulo these numbers, of rows that are scaled by a rule."""
    tables, limits = tables_of(moduli), limits_of(scaling)
    by_squares = scaling.statistic == "squares"
    fields = scaling.width, EMPTY_TOP, by_squares, scaling.base, len(limits), limits.ctypes.data
    rule, recombination = ScalingOfLibrary(*fields), tables.recombination
    of_tables = (*(tables.residues[side] for side in ("left", "right")), tables.moduli)
    addresses = (
        ctypes.addressof(rule),
        *(x.ctypes.data for x in of_tables),
        ctypes.addressof(recombination),
    )
    return _Constants(addresses, (limits, rule, tables))
