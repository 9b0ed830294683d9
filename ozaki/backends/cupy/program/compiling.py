"""Compile the CUDA sources at run time with NVRTC, and keep the result on disk."""

from __future__ import annotations

import os
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from ozaki.backends.cupy import devices

_PLACES = (Path(__file__).parents[3] / "kernels", Path(__file__).parents[4] / "kernels")
"""Where the CUDA sources may be: inside the package as a wheel installs it; at the top of a checkout."""

Definitions = tuple[tuple[str, str | int], ...]
"""(name, value) of macros, sorted."""


@cache
def folder() -> Path:
    """The folder of the CUDA sources.

    Raises
    ------
    FileNotFoundError
        If the installation lacks it.
    """
    for place in _PLACES:
        if (place / "arithmetic" / "common.cuh").is_file():
            return place
    raise FileNotFoundError(f"no kernels in {' or '.join(map(str, _PLACES))}; install ozaki again")


def options(macros: Definitions, architecture: str) -> tuple[str, ...]:
    """The options of NVRTC for a kernel with these macros; `architecture` as "sm_90a"."""
    defined = (f"-D{name}={value}" for name, value in macros)
    return ("-std=c++17", f"-I{folder()}", f"--gpu-architecture={architecture}", *defined)


def _cache() -> Path:
    """CuPy's folder of compiled kernels."""
    return Path(os.environ.get("CUPY_CACHE_DIR", "~/.cupy/kernel_cache")).expanduser()


@cache
def _headers() -> bytes:
    return b"".join(header.read_bytes() for header in sorted(folder().rglob("*.cuh")))


@cache
def _cubin(name: str, macros: Definitions, target: str) -> Path:
    """The file of a compiled kernel, from the cache on disk (CuPy's folder) or else compiled now.

    CuPy's own compilation is not used: it would flush float32 subnormals, overlook changes of included headers, and
    leave out the instructions that Hopper alone has.
    """
    from cupy.cuda import nvrtc

    source = (folder() / name).read_text()
    described = repr((nvrtc.getVersion(), options(macros, target))).encode()
    key = sha256(source.encode() + _headers() + described).hexdigest()
    place = _cache() / f"ozaki_{Path(name).stem}_{key[:32]}.cubin"
    if place.is_file():
        return place
    program = nvrtc.createProgram(source, name, (), ())
    try:
        nvrtc.compileProgram(program, options(macros, target))
        cubin = nvrtc.getCUBIN(program)
    except nvrtc.NVRTCError as error:
        raise RuntimeError(f"{name} does not compile for {target}: {nvrtc.getProgramLog(program)}") from error
    finally:
        nvrtc.destroyProgram(program)
    place.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile(dir=place.parent, delete=False) as file:
        file.write(cubin)
    os.replace(file.name, place)
    return place


@cache
def _function(device: int, name: str, function: str, macros: Definitions) -> Any:
    import cupy

    return cupy.RawModule(path=str(_cubin(name, macros, devices.numbered(device).architecture))).get_function(function)


def kernel(name: str, function: str, **macros: str | int) -> Any:
    """The kernel `function` of kernels/`name`, compiled for the current device."""
    import cupy

    return _function(cupy.cuda.runtime.getDevice(), name, function, tuple(sorted(macros.items())))
