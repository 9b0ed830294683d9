"""Residue products of large matrices as seven of halves instead of eight: a level of Strassen's algorithm.

In Winograd's form. Sums modulo m are exact, so the products are those of `_hopper`, and so are the bits.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import cupy as cp
import numpy as np

from ozaki._description import FIELDS, Described
from ozaki.backends.cupy._recombine import recombine_quadrants
from ozaki.backends.cupy._split import Layout, Slices, cutting_constants, cutting_macros
from ozaki.backends.cupy.engines import _hopper, _hopper_residues
from ozaki.backends.cupy.launching._launch import Launch, View, round_up
from ozaki.schemes import Residues, Scheme, scaling_of

label = f"{_hopper.label}, Strassen-Winograd"

_FROM = 8192
"""Least m, n and k: an eighth of the products must take longer than the sums (H200: 3 per cent faster at 8192 when
power limits both, the same when it does not)."""

_MOST_MODULI = 20
"""Far more than ordinary data need; recombining many more does not fit registers (tests/test_compile.py)."""

_PRODUCTS = 7

DONE = _PRODUCTS / 8
"""Part of the multiplications."""


def fits(scheme: Scheme, shape: tuple[int, int, int]) -> bool:
    """Whether it is faster than the same products without it."""
    return isinstance(scheme, Residues) and scheme.count <= _MOST_MODULI and min(shape) >= _FROM


def _half(size: int) -> int:
    """Rows or k of the first half: what is aligned without it still is, and there are no more tiles."""
    return round_up(-(-size // 2), 128)


@lru_cache(maxsize=1024)
def layout(scheme: Residues, side: str, batch: int, rows: int, k: int) -> Layout:
    """For each modulus an operand of each product, a block in tiles, of half the rows and half of k."""
    return _hopper.layout(scheme, side, _PRODUCTS, _half(rows), _half(k))


def workspace(scheme: Residues, batch: int, rows: int, cols: int, k: int) -> int:
    """Bytes held beside the slices."""
    return _hopper.workspace(scheme, _PRODUCTS, _half(rows), _half(cols), k)


def split(operand: Described, side: str, scheme: Residues) -> Slices:
    """The slices of the blocks that are multiplied: quadrants, and sums of quadrants."""
    _, rows, k = operand.x.shape
    lay = layout(scheme, side, 1, rows, k)
    planes, mu = cp.empty(lay.size, np.int8), cp.empty((1, rows), np.int32)
    launch = _splitting(cp.cuda.runtime.getDevice(), View.of(operand.x), side, scheme, lay)
    launch(operand.x.data, operand.fields.data, mu.data, planes.data)
    return Slices(operand, planes, lay, mu)


@lru_cache(maxsize=1024)
def _splitting(device: int, view: View, side: str, scheme: Residues, lay: Layout) -> Launch:
    _, rows, k = view.shape
    scaling = scaling_of(scheme, k)
    upper_rows, first_k = (min(_half(size), size) for size in (rows, k))
    grid = (lay.rows * view.itemsize // 128 * (lay.k // 128),)
    return Launch(
        "conversion/split_quadrants.cu", "split_quadrants", cutting_macros(view, side, scheme, lay), grid, (128,), None,
        *view.steps[1:], rows, k, upper_rows, first_k, lay.rows, lay.k, None, FIELDS.index(scaling.statistic),
        scaling.step, scaling.base, scaling.threshold, None, None, *cutting_constants(scheme, side, lay),
        shared_mem=0 if view.along_k else 64 * 1024,
    )  # fmt: skip


def multiply(scheme: Residues, a: Slices, b: Slices, out: Any) -> int:
    """out = a b^T, shape (1, m, n), its columns neighbours in memory; returns the bytes of workspace."""
    _, m, n = out.shape
    at_a, at_b = ((None, x.layout.slice, x.layout.batch) for x in (a, b))
    planes = _hopper_residues.products(scheme, a, b, at_a, at_b, (_PRODUCTS, _half(m), _half(n)))
    recombine_quadrants(scheme, planes, _half(n), a.mu, b.mu, out)
    return int(planes.nbytes)
