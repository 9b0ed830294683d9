"""Matrix products to a named accuracy, out of exact low-precision products (the Ozaki scheme)."""

from ozaki import linalg, reference, tensor_core
from ozaki.caches import cache_info, clear_caches
from ozaki.driver.recording import Recording, recording
from ozaki.functions import numpy_functions as _numpy_functions  # noqa: F401, since NumPy calls it
from ozaki.functions.contractions import einsum, tensordot
from ozaki.functions.emulation import Emulation, emulate
from ozaki.functions.on_devices import DevicesReport
from ozaki.functions.plans import plan, prepare
from ozaki.functions.power import matrix_power
from ozaki.functions.products import gemm, matmul
from ozaki.functions.residual import residual
from ozaki.multiprecision.array import MPArray
from ozaki.multiprecision.moving import ascupy, asnumpy
from ozaki.multiprecision.objects import mparray
from ozaki.process.threads import get_num_threads, set_num_threads
from ozaki.records.accuracy import Accuracy
from ozaki.records.plan import Plan
from ozaki.records.prepared import Prepared
from ozaki.records.report import Report
from ozaki.records.verification import VerificationError
from ozaki.schemes import Words

__version__ = "0.1.0"

__all__ = [
    "Accuracy",
    "DevicesReport",
    "Emulation",
    "MPArray",
    "Plan",
    "Prepared",
    "Recording",
    "Report",
    "VerificationError",
    "Words",
    "__version__",
    "ascupy",
    "asnumpy",
    "cache_info",
    "clear_caches",
    "einsum",
    "emulate",
    "gemm",
    "get_num_threads",
    "linalg",
    "matmul",
    "matrix_power",
    "mparray",
    "plan",
    "prepare",
    "recording",
    "reference",
    "residual",
    "set_num_threads",
    "tensor_core",
    "tensordot",
]
