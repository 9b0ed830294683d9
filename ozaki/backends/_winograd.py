"""Residue products of large matrices as seven of halves instead of eight: a level of Strassen's algorithm.

In Winograd's form. Sums modulo m are exact, so the products are those of `_hopper`, and so are the bits.
"""

from __future__ import annotations

from functools import cache, lru_cache
from itertools import product
from typing import Any

import cupy as cp

from ozaki._description import Described
from ozaki.backends import _hopper
from ozaki.backends._launch import Launch, Macros, round_up
from ozaki.backends._recombine import recombine_quadrants
from ozaki.backends._split import Block, Layout, Slices, accumulator_moduli, split_blocks
from ozaki.schemes import Residues, Scheme

label = f"{_hopper.label}, Strassen-Winograd"

_FROM = 10000
"""Least m, n and k: an eighth of the products must take longer than the sums (H200: at 8192 they do not, at 12288 they
take half as long)."""

_MOST_MODULI = 20
"""Far more than ordinary data need; recombining many more does not fit registers (tests/test_compile.py)."""

_PRODUCTS = 7

_PLACES = {"left": (0, 1, 2, 3), "right": (0, 1, 3, 2)}
"""Entries of the blocks (upper rows, first half of k), (upper, second), (lower, first) and (lower, second), as in
kernels/winograd.cu."""


def fits(scheme: Scheme, shape: tuple[int, int, int]) -> bool:
    """Whether it is faster than the same products without it."""
    return isinstance(scheme, Residues) and scheme.count <= _MOST_MODULI and min(shape) >= _FROM


def _half(size: int) -> int:
    """Rows or k of the first half: what is aligned without it still is, and there are no more tiles."""
    return round_up(-(-size // 2), 64)


@cache
def layout(scheme: Residues, side: str, batch: int, rows: int, k: int) -> Layout:
    """For each modulus an operand of each product, a block in tiles, of half the rows and half of k."""
    return _hopper.layout(scheme, side, _PRODUCTS, _half(rows), _half(k))


def workspace(scheme: Residues, rows: int, cols: int, k: int) -> int:
    """Bytes held beside the slices."""
    return _PRODUCTS * _hopper.workspace(scheme, _half(rows), _half(cols), k)


def split(operand: Described, side: str, scheme: Residues) -> Slices:
    """The slices of the blocks that are multiplied, and of the sums of blocks."""
    _, rows, k = operand.x.shape
    lay = layout(scheme, side, 1, rows, k)
    halves = ([(0, min(_half(size), size)), (_half(size), max(size - _half(size), 0))] for size in (rows, k))
    blocks = tuple(
        Block(*of_rows, *of_k, place * lay.batch)
        for place, (of_rows, of_k) in zip(_PLACES[side], product(*halves), strict=True)
    )
    slices = split_blocks(operand, side, scheme, lay, blocks)
    _summing(cp.cuda.runtime.getDevice(), scheme, side, lay)(slices.parts.data)
    return slices


@lru_cache(maxsize=1024)
def _summing(device: int, scheme: Residues, side: str, lay: Layout) -> Launch:
    grid = (lay.batch // 4096, scheme.count)
    macros: Macros = {"LEFT": int(side == "left")}
    return Launch("winograd.cu", "winograd", macros, grid, (256,), None, lay.batch, accumulator_moduli(scheme))


def multiply(scheme: Residues, a: Slices, b: Slices, out: Any) -> int:
    """out = a b^T, shape (1, m, n), its columns neighbours in memory; returns the bytes of workspace."""
    _, m, n = out.shape
    at_a, at_b = ((None, x.layout.slice, x.layout.batch) for x in (a, b))
    planes = _hopper.residue_products(scheme, a, b, at_a, at_b, (_PRODUCTS, _half(m), _half(n)))
    recombine_quadrants(scheme, planes, _half(n), a.mu, b.mu, out)
    return int(planes.nbytes)
