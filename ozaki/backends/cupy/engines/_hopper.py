"""Slice products by the library's own kernels for Hopper: what is left of them in registers, in one launch.

Residues leave bytes, which are recombined; digits the result itself.
"""

from __future__ import annotations

from typing import Any

from ozaki.backends.cupy._split import Slices
from ozaki.backends.cupy.engines import _hopper_digits, _hopper_residues
from ozaki.backends.cupy.engines._hopper_tiles import DEPTH, blocks_of, layout
from ozaki.schemes import Digits, Residues, Scheme

__all__ = ["fits", "label", "layout", "multiply", "occupied", "workspace"]

label = "fused int8 kernel"

_MOST_DIGITS = 7
"""As kernels/arithmetic/diagonals.cuh joins them."""


def fits(scheme: Scheme, k: int) -> bool:
    """Whether there is a kernel for these slices: digits need accumulators that never overflow."""
    if isinstance(scheme, Residues):
        return True
    deepest = scheme.depth(2**31 - 2 ** (31 - scheme.bits) - 4)
    return scheme.count <= _MOST_DIGITS and DEPTH * blocks_of(k) <= deepest


def workspace(scheme: Scheme, batch: int, rows: int, cols: int, k: int) -> int:
    """Bytes held beside the slices."""
    if isinstance(scheme, Digits):
        return _hopper_digits.workspace(scheme)
    return _hopper_residues.workspace(scheme, batch, rows, cols, k)


def multiply(scheme: Scheme, a: Slices, b: Slices, out: Any) -> int:
    """out = a b^T, shape (batch, m, n), its columns neighbours in memory; returns the bytes of workspace."""
    if isinstance(scheme, Digits):
        return _hopper_digits.multiply(scheme, a, b, out)
    return _hopper_residues.multiply(scheme, a, b, out)


def occupied(scheme: Scheme, batch: int, m: int, k: int, n: int) -> float:
    """Entries of each slice product that would keep all clusters busy for as long as a product does."""
    if isinstance(scheme, Digits):
        return _hopper_digits.occupied(scheme, batch, m, k, n)
    return _hopper_residues.occupied(scheme, batch, m, k, n)
