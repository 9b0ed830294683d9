"""Digits by cuBLAS FP16 with FP32 accumulators, which add so narrow ones exactly (docs/design.md, section 10)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import cupy as cp
import numpy as np

from ozaki.backends.cupy._recombine import recombine
from ozaki.backends.cupy._split import Layout, Slices
from ozaki.backends.cupy.engines._cublas import FP16, check_row, collect, gemm
from ozaki.backends.cupy.launching._launch import round_up
from ozaki.schemes import Digits
from ozaki.schemes.digits import fp16_depth

label = "cuBLAS FP16"


@lru_cache(maxsize=1024)
def layout(scheme: Digits, side: str, batch: int, rows: int, k: int) -> Layout:
    """Slices side by side along k."""
    rows = round_up(rows, 16)
    slab = round_up(min(k, fp16_depth(scheme.bits)), 128)
    slabs = -(-k // slab)
    check_row(scheme.count * slab * slabs)
    row = 2 * scheme.count * slab * slabs
    return Layout(
        rows, slab * slabs, rows * row, row, 2 * slab, slab, 2 * scheme.count * slab, batch * rows * row
    )  # fmt: skip


def workspace(scheme: Digits, batch: int, rows: int, cols: int, k: int) -> int:
    """Bytes held beside the slices, the same for each entry of a batch."""
    return rows * round_up(cols, 16) * (4 + scheme.count * np.dtype(_sums(scheme, k)).itemsize)


def _sums(scheme: Digits, k: int) -> str:
    return "int32" if k <= scheme.depth() else "int64"


def multiply(scheme: Digits, a: Slices, b: Slices, out: Any) -> int:
    """out = a b^T, shape (batch, m, n); returns the bytes of workspace."""
    batch, m, n = out.shape
    k, p, ld = a.described.k, scheme.count, round_up(n, 16)
    la, lb = a.layout, b.layout
    depth = fp16_depth(scheme.bits)
    most = max(1, depth // k)  # pairs whose sum is exact
    products = cp.empty((m, ld), np.float32)
    sums = cp.empty((p, m, ld), _sums(scheme, k))
    for i in range(batch):
        at_a, at_b = a.of_batch(i), b.of_batch(i)
        for g in range(la.k // la.slab):
            for pairs in range(1, p + 1):  # left slices 1 .. pairs with the reversed right slices pairs .. 1
                for first in range(0, pairs, most):
                    gemm(
                        FP16, at_a + g * la.slab_stride + first * la.slice,
                        at_b + g * lb.slab_stride + (p - pairs + first) * lb.slice, products.data.ptr, m, ld,
                        min(most, pairs - first) * la.slab, la.row_bytes // 2, lb.row_bytes // 2,
                    )  # fmt: skip
                    collect(products, sums[pairs - 1], g > 0 or first > 0)
        recombine(scheme, sums[:, None], a.exponents(i), b.exponents(i), out[i : i + 1])
    return int(products.nbytes + sums.nbytes)
