"""Kernels as functions of shared libraries, made by the system's C++ compiler and tests/emulated/cuda.h."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
KERNELS = HERE.parents[1] / "kernels"
BUILT = Path(tempfile.gettempdir()) / f"ozaki-emulated-{os.getuid()}"


def compiler() -> str | None:
    """The C++ compiler."""
    candidates = (os.environ.get("CXX"), "g++", "c++")
    return next((path for name in candidates if name and (path := shutil.which(name))), None)


@cache
def built(file: str, function: str, macros: tuple[tuple[str, str | int], ...], capability: str) -> Any:
    """The function run(arguments, grid, block) of a library that holds the kernel."""
    text = (KERNELS / file).read_text()
    cluster = re.search(r"__cluster_dims__\((\w+)", text)
    blocks = 1 if cluster is None else int(dict(macros).get(cluster[1], cluster[1]))
    text, dynamic = re.subn(
        r"extern __shared__ (__align__\(16\) )?uint8_t dynamic\[\];", "uint8_t* const dynamic = here->dynamic;", text
    )
    source = f"""{'#include "words.h"' if "words.cuh" in text else ""}
{"".join(f"#define {name} {value}" + chr(10) for name, value in macros)}
{text}
extern "C" void run(void** arguments, const unsigned* grid, const unsigned* block) {{
  const Size grid_size = {{grid[0], grid[1], grid[2]}}, block_size = {{block[0], block[1], block[2]}};
  launch({function}, arguments, grid_size, block_size, {blocks}, {dynamic});
}}
"""
    key = sha256(source.encode() + capability.encode() + _headers()).hexdigest()[:24]
    library = BUILT / f"{Path(file).stem}-{key}.so"
    if not library.exists():
        precompiled = _precompiled(capability)
        with _folder() as folder:
            code, made = folder / "kernel.cpp", folder / "kernel.so"
            code.write_text(source)
            _compile(capability, f"-I{precompiled}", *INCLUDED, "-shared", str(code), "-o", str(made))
            os.replace(made, library)
    return ctypes.CDLL(str(library)).run


INCLUDED = (f"-I{HERE}", f"-I{KERNELS}", "-include", "hopper.h")


@cache
def _precompiled(capability: str) -> Path:
    """A folder that holds hopper.h precompiled, which takes a third of the time to compile a kernel otherwise."""
    place = BUILT / f"hopper-{sha256(capability.encode() + _headers()).hexdigest()[:24]}"
    if not place.exists():
        with _folder() as folder:
            whole = folder / "whole"
            whole.mkdir()
            _compile(capability, "-x", "c++-header", str(HERE / "hopper.h"), "-o", str(whole / "hopper.h.gch"))
            with contextlib.suppress(OSError):  # another process was faster
                os.rename(whole, place)
    return place


@cache
def _headers() -> bytes:
    return b"".join(path.read_bytes() for path in [*sorted(KERNELS.rglob("*.cuh")), *sorted(HERE.glob("*.h"))])


def _compile(capability: str, *arguments: str) -> None:
    options = ["-std=c++17", "-O1", "-ffp-contract=off", "-frounding-math", "-fno-strict-aliasing", "-w", "-fPIC"]
    command = [str(compiler()), *options, f"-DCAPABILITY={capability}", *arguments]
    # Not where hopper.h lies, since the compiler would find that before the precompiled one.
    done = subprocess.run(command, capture_output=True, text=True, cwd=BUILT)
    assert done.returncode == 0, done.stderr


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A folder beside what is built, since files can be renamed into place only from there."""
    BUILT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILT) as folder:
        yield Path(folder)
