"""Find the CUDA sources and compile them at run time; CuPy keeps the result on disk."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

_PLACES = (Path(__file__).parents[1] / "kernels", Path(__file__).parents[2] / "kernels")
"""Beside the package in a wheel; at the top of a checkout."""


@cache
def folder() -> Path:
    """The folder of the CUDA sources.

    Raises
    ------
    FileNotFoundError
        If the installation has lost it.
    """
    for place in _PLACES:
        if (place / "common.cuh").is_file():
            return place
    raise FileNotFoundError(f"no kernels in {' or '.join(map(str, _PLACES))}; install ozaki again")


@cache
def source(name: str) -> str:
    """A kernel's source, headed by a hash of all headers: CuPy's cache does not look into included files."""
    headers = sha256(b"".join(header.read_bytes() for header in sorted(folder().glob("*.cuh"))))
    return f"// headers {headers.hexdigest()}\n{(folder() / name).read_text()}"


@cache
def options(macros: tuple[tuple[str, str | int], ...]) -> tuple[str, ...]:
    """Compiler options of a kernel with these macros."""
    return ("-std=c++17", f"-I{folder()}", *(f"-D{name}={value}" for name, value in macros))


@cache
def _module(device: int, name: str, macros: tuple[tuple[str, str | int], ...]) -> Any:
    import cupy

    return cupy.RawModule(code=source(name), options=options(macros))


@cache
def _function(device: int, name: str, function: str, macros: tuple[tuple[str, str | int], ...]) -> Any:
    return _module(device, name, macros).get_function(function)


def kernel(name: str, function: str, **macros: str | int) -> Any:
    """The kernel `function` of kernels/`name`, compiled for the current device."""
    import cupy

    return _function(cupy.cuda.runtime.getDevice(), name, function, tuple(sorted(macros.items())))
