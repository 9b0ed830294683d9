"""Matrix products to a named accuracy, out of exact low-precision products (the Ozaki scheme)."""

from ozaki import reference, tensor_core
from ozaki._accuracy import Accuracy
from ozaki._api import gemm, matmul, plan, prepare
from ozaki._plan import Plan
from ozaki._prepared import Prepared
from ozaki._report import Report
from ozaki.schemes import Words

__version__ = "0.1.0"

__all__ = [
    "Accuracy",
    "Plan",
    "Prepared",
    "Report",
    "Words",
    "__version__",
    "gemm",
    "matmul",
    "plan",
    "prepare",
    "reference",
    "tensor_core",
]
