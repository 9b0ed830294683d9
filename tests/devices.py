"""The devices that shared tests run on, and how arrays are moved to a device and back.

A test that takes the fixture `device` runs on NumPy, on two emulated GPUs and, with the marker `gpu`, on a real one.
"""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import ozaki

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

NUMPY, EMULATED, REAL = "numpy", ("emulated Ampere", "emulated Hopper"), "a real device"


@dataclass(frozen=True)
class Device:
    """An array library, and the device that its arrays lie on.

    Attributes
    ----------
    xp : NumPy or CuPy
    engines : names of the engines that multiply slices on this device, as `ozaki.matmul` takes them
    slow : a product takes a fifth of a second or more, however small it is; tests then run few and small ones (`some`,
        `size`)
    """

    name: str
    xp: ModuleType
    engines: tuple[str, ...]
    slow: bool = False

    def asarray(self, x: Any) -> Any:
        """A copy of x on the device with the strides of x, gaps between elements included; on NumPy, x itself."""
        x = np.asarray(x)
        if self.name == REAL and x.size:
            first, end = np.lib.array_utils.byte_bounds(x)
            memory = self.xp.asarray(np.frombuffer((ctypes.c_char * (end - first)).from_address(first), np.uint8))
            return self.xp.ndarray(x.shape, x.dtype, memory.data + (x.ctypes.data - first), x.strides)
        return self.xp.asarray(x)

    def asnumpy(self, x: Any) -> Any:
        """The elements in host memory; waits until they are computed. A NumPy scalar stays one."""
        return x if self.xp is np else self.xp.asnumpy(x)

    def full(self, shape: Any, value: Any, dtype: Any = "f8") -> Any:
        return self.xp.full(shape, value, dtype)

    def matmul(self, a: Any, b: Any, **options: Any) -> Any:
        """`ozaki.matmul` of two arrays in host memory, run on this device, with the result in host memory."""
        found = ozaki.matmul(self.asarray(a), self.asarray(b), **options)
        return (self.asnumpy(found[0]), *found[1:]) if isinstance(found, tuple) else self.asnumpy(found)

    def synchronize(self) -> None:
        """Wait until the device has done all work."""
        if self.xp is not np:
            self.xp.cuda.Device().synchronize()

    def kind(self, expected: Any) -> type:
        """The type of a result that is `expected` in NumPy: for two vectors, NumPy has a scalar, CuPy an array."""
        return type(expected) if self.xp is np else self.xp.ndarray

    def some(self, cases: Sequence[Any], count: int, rng: np.random.Generator) -> list[Any]:
        """All cases; on a slow device, `count` of them drawn at random."""
        cases = list(cases)
        if not self.slow or len(cases) <= count:
            return cases
        return [cases[i] for i in sorted(rng.choice(len(cases), count, replace=False))]

    def size(self, usual: int, small: int) -> int:
        """`usual`; on a slow device, `small`."""
        return small if self.slow else usual


def emulation_obstacle() -> str | None:
    """The reason why this machine cannot emulate a device; None if it can."""
    if not sys.platform.startswith("linux"):
        return "the emulation is written for glibc's contexts"
    from build import compiler

    return None if compiler() else "a C++ compiler (CXX, g++, c++) builds the kernels"


def parameters(emulated: Sequence[str] = EMULATED) -> list[Any]:
    """The parameters of the fixture `device`: names of devices, of these emulated ones."""
    obstacle = emulation_obstacle()
    skipped = pytest.mark.skipif(obstacle is not None, reason=str(obstacle))
    return [NUMPY, *(pytest.param(name, marks=skipped) for name in emulated), pytest.param(REAL, marks=pytest.mark.gpu)]


def device(name: str) -> Device:
    """The device of that name. For an emulated one, CuPy must be the emulation in this process."""
    if name == NUMPY:
        return Device(name, np, ("float64", "int8", "int8-simulated"))
    cupy = pytest.importorskip("cupy", reason="a real device needs CuPy")
    if name == REAL and not _has_gpu(cupy):
        pytest.skip("no GPU")
    capability = cupy.cuda.Device().compute_capability
    return Device(name, cupy, ("cublas", "fused") if capability == "90" else ("cublas",), slow=name in EMULATED)


def _has_gpu(cupy: Any) -> bool:
    try:
        return bool(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError:
        return False
