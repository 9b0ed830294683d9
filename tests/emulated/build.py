"""Kernels as functions of shared libraries, made by the system's C++ compiler and tests/emulated/cuda.h."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import tempfile
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
    source = f"""#define CAPABILITY {capability}
#include "{"words.h" if "words.cuh" in text else "hopper.h"}"
{"".join(f"#define {name} {value}" + chr(10) for name, value in macros)}
{text}
extern "C" void run(void** arguments, const unsigned* grid, const unsigned* block) {{
  const Size grid_size = {{grid[0], grid[1], grid[2]}}, block_size = {{block[0], block[1], block[2]}};
  launch({function}, arguments, grid_size, block_size, {blocks}, {dynamic});
}}
"""
    headers = b"".join(path.read_bytes() for path in [*sorted(KERNELS.rglob("*.cuh")), *sorted(HERE.glob("*.h"))])
    library = BUILT / f"{Path(file).stem}-{sha256(source.encode() + headers).hexdigest()[:24]}.so"
    if not library.exists():
        BUILT.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=BUILT) as folder:
            code, made = Path(folder) / "kernel.cpp", Path(folder) / "kernel.so"
            code.write_text(source)
            options = ["-std=c++17", "-O2", "-ffp-contract=off", "-frounding-math", "-fno-strict-aliasing", "-w"]
            options += ["-shared", "-fPIC", f"-I{HERE}", f"-I{KERNELS}"]
            command = [str(compiler()), *options, str(code), "-o", str(made)]
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            os.replace(made, library)
    return ctypes.CDLL(str(library)).run
