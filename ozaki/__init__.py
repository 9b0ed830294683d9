"""Matrix products to a named accuracy, out of exact low-precision products (the Ozaki scheme)."""

from ozaki import linalg, reference, tensor_core
from ozaki._accuracy import Accuracy
from ozaki._api import gemm, matmul, plan, prepare
from ozaki._contractions import einsum, tensordot
from ozaki._emulation import Emulation, emulate
from ozaki._plan import Plan
from ozaki._power import matrix_power
from ozaki._prepared import Prepared
from ozaki._recording import Recording, recording
from ozaki._report import Report
from ozaki._residual import residual
from ozaki.multiprecision.array import MPArray
from ozaki.multiprecision.moving import ascupy, asnumpy
from ozaki.multiprecision.objects import mparray
from ozaki.schemes import Words

__version__ = "0.1.0"

__all__ = [
    "Accuracy",
    "Emulation",
    "MPArray",
    "Plan",
    "Prepared",
    "Recording",
    "Report",
    "Words",
    "__version__",
    "ascupy",
    "asnumpy",
    "einsum",
    "emulate",
    "gemm",
    "linalg",
    "matmul",
    "matrix_power",
    "mparray",
    "plan",
    "prepare",
    "recording",
    "reference",
    "residual",
    "tensor_core",
    "tensordot",
]
