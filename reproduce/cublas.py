"""Products by cuBLAS with other accumulators and conversions than CuPy's own: the papers' rivals."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np


class Compute(IntEnum):
    """How cuBLAS multiplies; the numbers are those of cublasComputeType_t."""

    FP16 = 64
    FP32 = 68
    FP32_BY_FP16 = 74
    FP32_BY_TF32 = 77


def gemm(a: Any, b: Any, out: Any, compute: Compute, beta: float = 0) -> None:
    """Compute out = a b + beta out, for C-contiguous CuPy matrices.

    cuBLAS is column-major, so out^T = b^T a^T.
    """
    from cupy.cuda import cublas, device, get_current_stream

    (m, k), n = a.shape, b.shape[1]
    one, kept = (np.full(1, x, np.float16 if compute is Compute.FP16 else np.float32) for x in (1, beta))
    handle = device.get_cublas_handle()
    cublas.setStream(handle, get_current_stream().ptr)
    cublas.gemmEx(
        handle, cublas.CUBLAS_OP_N, cublas.CUBLAS_OP_N, n, m, k, one.ctypes.data, b.data.ptr, _TYPES[b.dtype.char], n,
        a.data.ptr, _TYPES[a.dtype.char], k, kept.ctypes.data, out.data.ptr, _TYPES[out.dtype.char], n, int(compute),
        _DEFAULT,
    )  # fmt: skip


_TYPES = {"f": 0, "e": 2}  # CUDA_R_32F, CUDA_R_16F
_DEFAULT = -1  # CUBLAS_GEMM_DEFAULT
