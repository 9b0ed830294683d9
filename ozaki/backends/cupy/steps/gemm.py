"""Products by cuBLAS: integers, digits as FP16, and native ones."""

from __future__ import annotations

from ozaki.backends.cupy.program.arrays import Place
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.steps import Gemm, GemmTypes

INT8 = GemmTypes(3, 10, 72, 1, "i", 4)
"""CUDA_R_8I, CUDA_R_32I, CUBLAS_COMPUTE_32I."""

FP16 = GemmTypes(2, 0, 68, 2, "f", 4)
"""CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F."""

FP64 = GemmTypes(1, 1, 70, 8, "d", 8)
"""CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F."""

FP32 = GemmTypes(0, 0, 69, 4, "f", 4)
"""CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_PEDANTIC: never by TF32, whatever mode or variable asks for that.

On an H100 it takes as long as CUBLAS_COMPUTE_32F and gives the same bits; that of float64 takes a third longer.
"""

_BATCHED_BELOW = 2**22
"""Entries of a product from which cuBLAS is faster one product at a time (H200: 1471 against 1147 TOPS at 8192)."""

MOST_BATCHED = 65535
"""Products of one call: the most that a grid has on its third axis."""


def gemms(
    b: Builder, types: GemmTypes, at: tuple[Place, Place, Place], sizes: tuple[int, int, int],
    leading: tuple[int, int, int], count: int = 1, steps: tuple[int, int, int] = (0, 0, 0),
    transposed: tuple[bool, bool] = (False, True),
) -> None:  # fmt: skip
    """C = A B, `count` times, so many entries of A, B and C apart; all of the same A or B where that is 0.

    Parameters
    ----------
    at : of A, B and C
    sizes : m, n, k
    leading : entries from one row of A, B and C to the next as they lie in memory
    transposed : whether A lies as k rows of m, and B as n rows of k
    """
    m, n, k = sizes
    bytes_apart = [step * size for step, size in zip(steps, (types.size, types.size, types.product_size), strict=True)]

    def add(first: int, some: int) -> None:
        a, right, c = (place.plus(first * apart) for place, apart in zip(at, bytes_apart, strict=True))
        b.add(Gemm(b.stream, types, a, right, c, m, n, k, *leading, transposed, some, steps))

    if count == 1 or m * n >= _BATCHED_BELOW:
        for i in range(count):
            add(i, 1)
    else:
        for first in range(0, count, MOST_BATCHED):
            add(first, min(MOST_BATCHED, count - first))
