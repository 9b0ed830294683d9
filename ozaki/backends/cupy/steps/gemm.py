"""Products by cuBLAS: of int8 slices, of digits as FP16 numbers, and native ones."""

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

On an H100, CUBLAS_COMPUTE_32F_PEDANTIC takes as long as CUBLAS_COMPUTE_32F and gives the same bits, while
CUBLAS_COMPUTE_64F_PEDANTIC takes a third longer than CUBLAS_COMPUTE_64F.
"""

COMPLEX128 = GemmTypes(5, 5, 70, 16, "D", 16)
"""CUDA_C_64F, CUDA_C_64F, CUBLAS_COMPUTE_64F."""

COMPLEX64 = GemmTypes(4, 4, 69, 8, "F", 8)
"""CUDA_C_32F, CUDA_C_32F, CUBLAS_COMPUTE_32F_PEDANTIC."""

_BATCHED_BELOW = 2**22
"""From so many entries of C on, cuBLAS is faster with one product a call than batched (H200: 1471 against 1147 TOPS at
8192)."""

MOST_BATCHED = 65535
"""The most products of one batched call: as many as a grid may have blocks on its third axis."""


def gemms(
    b: Builder, types: GemmTypes, at: tuple[Place, Place, Place], sizes: tuple[int, int, int],
    leading: tuple[int, int, int], count: int = 1, steps: tuple[int, int, int] = (0, 0, 0),
    transposed: tuple[bool, bool] = (False, True),
) -> None:  # fmt: skip
    """Add `count` products C = A B, by one call of cuBLAS or several.

    Parameters
    ----------
    at : addresses of the first A, B and C
    sizes : m, n, k
    leading : entries from one row of A, B and C to the next, as they lie in memory
    steps : entries from one A, B and C to the next; 0 where all products share one
    transposed : whether A lies in memory as k rows of m, and B as n rows of k
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


def check_row(entries: int) -> None:
    """Refuse rows that are longer than cuBLAS can be told.

    Raises
    ------
    ValueError
    """
    if entries >= 2**31:
        raise ValueError(
            f"engine: cuBLAS reads rows of less than 2**31 entries, not {entries}; use scheme='residues', or add up "
            "products of parts of the inner dimension"
        )
