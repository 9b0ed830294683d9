"""The device to compute on, and the versions, devices and engines that are installed."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

import ozaki
from ozaki._cli.echo import cut
from ozaki._cli.files import Matrix
from ozaki._cli.options import Device
from ozaki.backends import Backend, backend_of
from ozaki.backends.cupy.device_planner import DevicePlanner
from ozaki.backends.cupy.devices.models import MODELS
from ozaki.backends.cupy.program import kernel_files
from ozaki.backends.numpy._threads import libraries as blas_libraries
from ozaki.backends.numpy.compiled import Compiled, compiled
from ozaki.process import cpus
from ozaki.process.threads import threads_of_blas


def pick_device(device: Device) -> str:
    """Return "gpu" or "cpu"; if a GPU is asked for and there is none, raise, saying what it needs."""
    if device is Device.cpu:
        return "cpu"
    if importlib.util.find_spec("cupy") is None:
        if device is Device.gpu:
            raise ModuleNotFoundError(
                "device: a GPU needs CuPy: pip install 'cupy-cuda13x[ctk]' (or 12x); "
                "`ozaki plan --gpu h100` plans for a GPU that is not here"
            )
        return "cpu"
    if gpus():
        return "gpu"
    if device is Device.gpu:
        raise ValueError(
            "device: no GPU found; see `ozaki info`; `ozaki plan --gpu h100` plans for a GPU that is not here"
        )
    return "cpu"


def gpus() -> int:
    """Return the number of GPUs that CuPy can use; CuPy must be installed."""
    import cupy

    try:
        return int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError:
        return 0


@dataclass(frozen=True)
class Place:
    """A device to compute on.

    Attributes
    ----------
    kind : "cpu" or "gpu"
    name : as "CPU" or "GPU 0, NVIDIA H100 80GB HBM3"
    index : the number of a GPU
    """

    kind: str
    name: str
    index: int = 0

    def entered(self) -> AbstractContextManager[Any]:
        """Return a context in which a GPU is the one that arrays are made on."""
        return nullcontext() if self.kind == "cpu" else array_library("gpu").cuda.Device(self.index)


def places(device: Device) -> list[Place]:
    """Return the CPU and every GPU, or, unless `device` is auto, these or that alone; raise as `pick_device` does."""
    found = [] if device is Device.gpu else [Place("cpu", "CPU")]
    if device is not Device.cpu and pick_device(device) == "gpu":
        names = [gpu["name"] for gpu in environment()["gpus"]]
        found += [Place("gpu", f"GPU {index}, {name}", index) for index, name in enumerate(names)]
    return found


def array_library(device: str) -> Any:
    """Return the array library for the device "cpu" or "gpu": NumPy or CuPy."""
    if device == "cpu":
        return np
    import cupy

    return cupy


def backend_on(device: str) -> Backend:
    """Return the backend that multiplies on "cpu" or "gpu"."""
    return backend_of(("x", array_library(device).zeros(0)))


def recorded(model: str, device: Device) -> DevicePlanner:
    """Return what a model of GPU, which need not be here, answers to planning.

    Raises
    ------
    ValueError
        If nothing is recorded of the model, or the device is the CPU.
    """
    if device is Device.cpu:
        raise ValueError("--gpu asks for a plan for a GPU, and --device cpu for one for the CPU; remove one of them")
    if model.lower() not in MODELS:
        raise ValueError(f"--gpu: {cut(model)!r} is not known; expected one of {', '.join(MODELS)}")
    return DevicePlanner(MODELS[model.lower()])


def placed(x: Matrix, device: str) -> Any:
    """Return `x` in the memory of "cpu" or "gpu"."""
    if isinstance(x, ozaki.MPArray):
        return x if device == "cpu" else ozaki.ascupy(x)
    return array_library(device).asarray(x)


def to_host(x: Any) -> Any:
    """Return `x` in NumPy's memory, copied from a GPU if it lies there."""
    if isinstance(x, ozaki.MPArray):
        return ozaki.asnumpy(x)
    return x.get() if hasattr(x, "get") else np.asarray(x)


EXTRAS = {"cupy": "cuda13", "torch": "torch", "jax": "jax", "scipy": "examples", "matplotlib": "plot"}
"""Packages that need not be installed, and extras of this one that bring them; of CuPy the one for CUDA 13."""


def environment() -> dict[str, Any]:
    """Return versions, GPUs, engines, threads, and what is compiled, as plain data; memory in bytes."""
    packages = ("ozaki", "numpy", "mpmath", *(package for package in EXTRAS if package != "cupy"))
    versions: dict[str, str | None] = {"python": platform.python_version()}
    for package in packages:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = ozaki.__version__ if package == "ozaki" else None
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    versions["blas"] = f"{blas['name']} {blas['version']}"
    threads = {"blas": max((each.num_threads for each in blas_libraries().lib_controllers), default=None)}
    threads |= {"blas_in_products": threads_of_blas(), "ozaki": ozaki.get_num_threads(), "cpus": cpus.usable()}
    versions["cupy"] = None
    devices: list[dict[str, Any]] = []
    from ozaki.backends.numpy import backend as _numpy

    engines = {"numpy": list(_numpy.engines)}
    if importlib.util.find_spec("cupy") is not None:
        import cupy

        versions["cupy"] = cupy.__version__
        if gpus():
            from ozaki.backends.cupy import backend as _cupy

            versions["cuda driver"], versions["cuda runtime"] = (
                f"{v // 1000}.{v % 1000 // 10}"
                for v in (cupy.cuda.runtime.driverGetVersion(), cupy.cuda.runtime.runtimeGetVersion())
            )
            engines["cupy"] = list(_cupy.engines)
            for index in range(gpus()):
                properties = cupy.cuda.runtime.getDeviceProperties(index)
                devices.append(
                    {
                        "name": properties["name"].decode(),
                        "capability": f"{properties['major']}{properties['minor']}",
                        "memory": properties["totalGlobalMem"],
                    }
                )
    code = compiled()
    name = code.name if isinstance(code, Compiled) else None
    cpu = {"code": name, "what": str(code) if name else f"float64 BLAS: {code}"}
    kernels = {
        "folder": str(kernel_files.folder()),
        "bytes": sum(file.nbytes for file in kernel_files.files()),
        "most_bytes": kernel_files.MOST_BYTES,
    }
    return {
        "versions": versions, "gpus": devices, "engines": engines, "cpu": cpu, "threads": threads, "kernels": kernels,
    }  # fmt: skip
