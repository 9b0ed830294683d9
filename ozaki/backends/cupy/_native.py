"""The native product on the device: cuBLAS, where its settings leave it an IEEE product."""

from __future__ import annotations

import os
from typing import Any

import cupy as cp
import numpy as np
from cupy._core import _routines_linalg


def native(a: Any, b: Any, dtype: str, out: Any) -> None:
    """The native product out = a b, in `dtype`, of matrices or of stacks, whose batches are broadcast.

    Of stacks CuPy copies what is transposed, and cuBLAS does not split k. But of matrices CuPy sums a single entry by
    kernels of its own, which flush float32 subnormals.
    """
    if dtype == "float64":
        a, b = as_float64(a), as_float64(b)
    elif out.shape == (1, 1):
        a, b, out = a[None], b[None], out[None]
    cp.matmul(a, b, out=out)


def native_obstacle(dtype: str) -> str | None:
    """Settings under which cuBLAS computes less than an IEEE product."""
    if dtype == "float32" and (os.environ.get("CUPY_TF32", "0") != "0" or _by_tf32()):
        return "native product ruled out: CUPY_TF32 makes it less accurate than float32"
    if dtype == "float32" and os.environ.get("CUBLAS_EMULATE_SINGLE_PRECISION", "0") != "0":
        return "native product ruled out: CUBLAS_EMULATE_SINGLE_PRECISION leaves its accuracy to cuBLAS"
    if dtype == "float64" and os.environ.get("CUBLAS_EMULATE_DOUBLE_PRECISION", "0") != "0":
        return "native product ruled out: CUBLAS_EMULATE_DOUBLE_PRECISION leaves its accuracy to cuBLAS"
    return None


def _by_tf32() -> bool:
    """CuPy reads its setting once, and goes by what it was then."""
    return bool(_routines_linalg.get_compute_type(np.dtype(np.float32)) == _routines_linalg.COMPUTE_TYPE_TF32)


def as_float64(x: Any) -> Any:
    """x as float64 through its bits: CuPy's own cast flushes float32 subnormals."""
    if x.dtype == np.float64:
        return x
    bits = cp.ascontiguousarray(x).view(np.int32)
    field = (bits >> 23) & 255
    mantissa = (bits & 0x7FFFFF) + cp.where(field > 0, 1 << 23, 0)
    magnitude = cp.ldexp(mantissa.astype(np.float64), (cp.maximum(field, 1) - 150).astype(np.int32))
    return cp.where(bits < 0, -magnitude, magnitude)
