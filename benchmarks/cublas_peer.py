"""cuBLAS's own emulated DGEMM, by a cuBLAS newer than the one that CuPy brings along.

cuBLAS emulates by residues since 13.7; the committed results are of 13.1. To time a newer one, unpack it outside of the
checkout (the wheel has 444 MB)::

    pip download --no-deps --dest /tmp/wheel nvidia-cublas==13.10.0.20
    unzip -q /tmp/wheel/nvidia_cublas-*.whl -d /tmp/cublas
    python -m benchmarks --task float64 --cublas /tmp/cublas
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any, Self

from benchmarks.devices import cublas_version

LIBRARIES = "libcublasLt.so.13", "libcublas.so.13"
"""File names of cuBLAS in the order in which they are loaded: the second library needs the first."""

ROUTINE = "cublas dgemm, emulated (eager)"

WORKSPACE = 2**33
"""Bytes of cuBLAS's workspace: those of both operands at n = 16384 in 16 residues. Without it, each call allocates."""


def libraries(folder: Path) -> list[Path]:
    """The paths of `LIBRARIES` somewhere below a folder.

    Raises
    ------
    FileNotFoundError
        If one of them is missing, or is there more than once.
    """
    paths = []
    for name in LIBRARIES:
        there = sorted(folder.resolve().rglob(name))
        if len(there) != 1:
            found = ", ".join(map(str, there)) or "none"
            raise FileNotFoundError(f"{name}: {found}; expected one below the folder, as in the wheel nvidia-cublas")
        paths += there
    return paths


def load(folder: Path) -> ctypes.CDLL:
    """Load cuBLAS out of a folder, for this whole process; call it before CuPy is imported.

    A process cannot well have two libraries of one name: the loader would give the newer libcublas.so.13 the
    libcublasLt.so.13 that is loaded already. So the newer ones are loaded first, and CuPy and GEMMul8, which ask for
    cuBLAS by name later, get them too: all products by cuBLAS run on the newer one, whose version CuPy reports and the
    rows of cuBLAS show.

    Raises
    ------
    OSError
        If they are missing or do not load.
    """
    *_, cublas = [ctypes.CDLL(str(path)) for path in libraries(folder)]
    return cublas


class EmulatedDgemm:
    """DGEMM that cuBLAS emulates by int8 products wherever it can ("eager"), with a cuBLAS handle of its own.

    Emulation is set on the handle, not by cuBLAS's environment variables: these would change the native product too,
    which ozaki does not run where they are set.

    Parameters
    ----------
    library : cuBLAS, as `load` returns it
    stream : address of the CUDA stream on which it multiplies
    workspace : array on the device, which cuBLAS may overwrite

    Attributes
    ----------
    version : version of the library, such as "13.10.0"
    """

    def __init__(self, library: ctypes.CDLL, stream: int, workspace: Any) -> None:
        self._library, self._workspace = library, workspace
        self._handle = ctypes.c_void_p()
        self._call("cublasCreate_v2", ctypes.byref(self._handle))
        version = ctypes.c_int()
        self._call("cublasGetVersion_v2", self._handle, ctypes.byref(version))
        self.version = cublas_version(version.value)
        self._call("cublasSetMathMode", self._handle, _FP64_EMULATED_FIXEDPOINT_MATH)
        self._call("cublasSetEmulationStrategy", self._handle, _EMULATION_STRATEGY_EAGER)
        # In this order: setting a stream resets the workspace to cuBLAS's own.
        self._call("cublasSetStream_v2", self._handle, ctypes.c_void_p(stream))
        self._call("cublasSetWorkspace_v2", self._handle, _address(workspace), ctypes.c_size_t(workspace.nbytes))

    @classmethod
    def on_device(cls, library: ctypes.CDLL) -> Self:
        """Make one for CuPy's current device and stream."""
        import cupy

        return cls(library, cupy.cuda.get_current_stream().ptr, cupy.empty(WORKSPACE, cupy.uint8))

    def multiply(self, a: Any, b: Any, out: Any) -> None:
        """Compute out = a b, for C-contiguous float64 matrices on the device.

        cuBLAS is column-major, so out^T = b^T a^T.
        """
        (m, k), n = a.shape, b.shape[1]
        self._call(
            "cublasDgemm_v2", self._handle, _NOT_TRANSPOSED, _NOT_TRANSPOSED, n, m, k, ctypes.byref(_ONE),
            _address(b), n, _address(a), k, ctypes.byref(_ZERO), _address(out), n,
        )  # fmt: skip

    def _call(self, function: str, *arguments: Any) -> None:
        status = getattr(self._library, function)(*arguments)
        if status:
            raise RuntimeError(f"{function} returned the cublasStatus_t {status}")


def _address(array: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.data.ptr)


_ONE, _ZERO = ctypes.c_double(1), ctypes.c_double(0)

# As the header cublas_api.h numbers them.
_NOT_TRANSPOSED = 0
_FP64_EMULATED_FIXEDPOINT_MATH = 8
_EMULATION_STRATEGY_EAGER = 2
