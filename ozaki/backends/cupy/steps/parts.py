"""Parts of products: what parts of rows say of the whole rows, and un-rounded products that are added to others."""

from __future__ import annotations

import struct
from math import ceil

from ozaki.backends.cupy.program.arrays import Array, View
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel, Macros
from ozaki.backends.cupy.program.steps import Out
from ozaki.caches import cached
from ozaki.schemes import Residues, magnitude_bits
from ozaki.schemes.constants import KernelScheme

COLUMNS = 16
"""Rows of un-rounded products have multiples of so many entries, so that threads read 16 neighbours at a time."""

_DEPTH = 2048
"""Inner indices that a block of kernels/conversion/describe_parts.cu takes at a time."""

_MOST_BLOCKS = 65535
"""The most blocks of a grid on its second axis."""


def extremes_kernel(x: View) -> Kernel:
    """The launch that finds what rows x, shape (1, rows, indices), say of their largest and smallest elements.

    It writes uint64 (2, rows), zeros before: the bits of the largest magnitude as float64; those of the smallest one
    that is not zero, complemented, so that both merge by maximum. They stay zeros of a row without such elements.
    """
    return _describing("extremes_of_parts", x)


def sums_kernel(x: View, k: int) -> Kernel:
    """The launch that finds the second round of `bounds.merging` for rows x, shape (1, rows, indices).

    It takes the tops, int32, of the whole rows, of k real numbers each, and writes int64 (4, rows), zeros before.
    """
    return _describing("sums_of_parts", x, magnitude_bits(k))


@cached(1024)
def _describing(function: str, x: View, width: int | None = None) -> Kernel:
    (_, rows, k), reals, along_k = x.shape, x.dtype.parts, x.along_k
    _, sr, sk = x.steps_of_parts
    k *= reals
    if sk == reals:  # all parts of a row are neighbours, as if elements were real
        sk, reals = 1, 1
    macros: Macros = {"INPUT": x.dtype.ctype_of_part, "REALS": reals, "ALONG_K": along_k}
    grid = (ceil(rows / (8 if along_k else 32)), min(ceil(k / _DEPTH), _MOST_BLOCKS))
    more = () if width is None else (None, width)
    return Kernel.of(
        "conversion/describe_parts.cu", function, macros, grid, (256,), None, sr, sk, rows, k, *more, None
    )  # fmt: skip


def add_planes(b: Builder, scheme: KernelScheme, planes: Array, sums: Array) -> None:
    """Add an un-rounded product to that of other parts of k.

    Parameters
    ----------
    scheme : of both products
    planes : shape (planes, 1, m, n or more), as engines leave them
    sums : shape (planes, 1, m, n to a multiple of `COLUMNS`), of integers no narrower
    """
    if not isinstance(scheme, Residues):
        for plane in range(sums.shape[0]):
            more, own = (each.at_index(0, plane).at_index(0, 0) for each in (planes, sums))
            assert more.contiguous and own.contiguous and more.shape == own.shape
            b.launch(_collect(more.view, own.view), more, Out(own))
        return
    first = 0
    for digits, count in enumerate(scheme.by_digits, 1):
        if count == 0:
            continue
        of_bytes = sum((d + 1) * n for d, n in enumerate(scheme.by_digits[: digits - 1]))
        moduli = b.table("moduli", struct.pack(f"<{count}I", *scheme.moduli[first : first + count]))
        more, own = (each.part(0, of_bytes, each.shape[0]) for each in (planes, sums))
        b.launch(_adding(digits, count, more.view, own.view), more, Out(own), moduli)
        b.release(moduli)
        first += count


@cached(1024)
def _adding(digits: int, count: int, planes: View, sums: View) -> Kernel:
    _, _, rows, columns = sums.shape
    assert all(step % COLUMNS == 0 for of in (planes, sums) for step in (of.steps[0], of.steps[2], columns))
    grid = (ceil(rows * columns / 4096), count)
    return Kernel.of(
        "conversion/add_residues.cu", "add_residues_of_parts", {"DIGITS": digits}, grid, (256,), None,
        planes.steps[0], planes.steps[2], None, sums.steps[0], sums.steps[2], rows, columns, None,
    )  # fmt: skip


@cached(1024)
def _collect(products: View, sums: View) -> Kernel:
    macros: Macros = {"PRODUCT": products.dtype.ctype, "SUM": sums.dtype.ctype}
    rows, columns = sums.shape
    return Kernel.of(
        "conversion/collect.cu", "collect", macros, (ceil(rows * columns / 1024),), (256,), None, None,
        rows * columns, 1,
    )  # fmt: skip
