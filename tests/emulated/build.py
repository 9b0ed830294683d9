"""Kernels as functions of shared libraries, made by the system's C++ compiler, cuda.h and cuda.cpp."""

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
        r"extern __shared__ (__align__\(\d+\) )?uint8_t dynamic\[\];", "uint8_t* const dynamic = here->dynamic;", text
    )
    source = f"""{'#include "words.h"' if "words.cuh" in text else ""}
{"".join(f"#define {name} {value}" + chr(10) for name, value in macros)}
{text}
extern "C" EXPORTED void run(void** arguments, const unsigned* grid, const unsigned* block) {{
  launch([](void** given) {{ call({function}, given); }}, arguments, grid, block, {blocks}, {dynamic});
}}
"""
    library = _place(Path(file).stem, capability, source).with_suffix(".so")
    if not library.exists():
        header = ("-include", "hopper.h", f"-I{_precompiled(capability)}")
        with _folder() as folder:
            code = folder / "kernel.cpp"
            code.write_text(source)
            # No library is linked: _load_threads has loaded all, and to read them takes the linker a while.
            _compile(library, capability, *header, "-shared", "-nostdlib", str(code), "-lgcc")
    _load_threads(capability)
    return ctypes.CDLL(str(library)).run


@cache
def _precompiled(capability: str) -> Path:
    """A folder that holds hopper.h precompiled, which takes half of the time to compile a kernel otherwise."""
    place = _place("hopper", capability)
    header = place / "hopper.h.gch"
    if not header.exists():
        place.mkdir(parents=True, exist_ok=True)
        _compile(header, capability, "-x", "c++-header", str(HERE / "hopper.h"))
    return place


@cache
def _load_threads(capability: str) -> None:
    """Load cuda.cpp and the libraries of C++, which all kernels use."""
    library = _place("cuda", capability).with_suffix(".so")
    if not library.exists():
        _compile(library, capability, "-O2", "-shared", "-Wl,--no-as-needed", str(HERE / "cuda.cpp"), "-lm")
    ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)


def _place(name: str, capability: str, source: str = "") -> Path:
    """Where a file lies that is made of this source, of all headers, and with these options."""
    made_of = (source + capability + "".join(_options())).encode() + _shared()
    return BUILT / f"{name}-{sha256(made_of).hexdigest()[:24]}"


@cache
def _shared() -> bytes:
    ours = (path for path in HERE.iterdir() if path.suffix in (".h", ".cpp") or path == Path(__file__))
    return b"".join(path.read_bytes() for path in [*sorted(KERNELS.rglob("*.cuh")), *sorted(ours)])


@cache
def _options() -> tuple[str, ...]:
    """The compiler's options. -Og: most kernels run for less time than -O1 would take more to compile them."""
    options = "-std=c++17 -Og -ffp-contract=off -frounding-math -fno-strict-aliasing -w -fPIC -fvisibility=hidden"
    return (*options.split(), *(("-mfma",) if _has_fma() else ()))


def _has_fma() -> bool:
    """Whether this is an x86 processor for which std::fma may be an instruction: else it is a call, as is usual."""
    with contextlib.suppress(OSError):
        return " fma " in Path("/proc/cpuinfo").read_text()
    return False


def _compile(made: Path, capability: str, *arguments: str) -> None:
    """Compile to that file, which no other process sees before it is complete."""
    with _folder() as folder:
        command = [str(compiler()), *_options(), f"-DCAPABILITY={capability}", *arguments]
        command += [f"-I{HERE}", f"-I{KERNELS}", "-o", str(folder / "made")]
        # Not where hopper.h lies, since the compiler would find that before the precompiled one.
        done = subprocess.run(command, capture_output=True, text=True, cwd=BUILT)
        assert done.returncode == 0, done.stderr
        os.replace(folder / "made", made)


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A folder beside what is built, since files can be renamed into place only from there."""
    BUILT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILT) as folder:
        yield Path(folder)
