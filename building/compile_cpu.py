"""Compile the code for processors, kernels/cpu/: `python building/compile_cpu.py`, and while a wheel is built.

It takes nothing but Python and a C++ compiler: `CXX` of the environment, else c++, g++ or clang++. Libraries for the
instructions that processors of this kind may have go into ozaki/compiled/, where `ozaki.backends.numpy.compiled` finds
them. Where there is no compiler, or `OZAKI_NO_COMPILE=1` is in the environment, one line says so, and the package does
without: its products take float64 BLAS. Libraries that were there before stay, but go into no wheel.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FOLDER = Path("ozaki") / "compiled"
"""Where the libraries go, in the root of the sources and in the wheel."""

OPTIONS = ["-std=c++17", "-fPIC", "-shared", "-fvisibility=hidden", "-ffp-contract=off", "-fno-math-errno"]
"""Of every library. A product and a sum are fused where the sources say so, and nowhere else: bits depend on it."""

PORTABLE = ["-O1"]
"""That library is there for its bits, and is compiled soonest so."""

X86 = {
    "vnni": ["-O3", "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni", "-mfma"],
    "avxvnni": ["-O3", "-mavx2", "-mfma", "-mavxvnni"],
}
"""Libraries for x86-64, with the instructions that `ozaki_cpu_runs_here` of each asks the processor for."""

ARM = {"neon": ["-O3", "-march=armv8.2-a+i8mm"]}
"""Those for AArch64."""


class _NotCompiledError(Exception):
    """Why there is no library, or not each one: a line."""


def compile_libraries(root: Path, say: Callable[[str], object]) -> list[Path]:
    """Compile what can be compiled here, and return the libraries; if one is missing, `say` why, in a line.

    A library is written aside and then takes its place, so that a process which has loaded the one before keeps it.
    """
    made: list[Path] = []
    try:
        compiler = _compiler()
        (root / FOLDER).mkdir(exist_ok=True)
        begun = [(place, *_begin(compiler, options, root, place)) for place, options in _libraries(root)]
        failed, reasons = [], []
        for place, aside, process in begun:
            _, errors = process.communicate()
            with _removed(aside):
                if process.returncode:
                    failed.append(place.stem)
                    reasons.append(_first_error(errors) or f"exit status {process.returncode}")
                else:
                    os.replace(aside, place)
                    made.append(place)
        if failed:
            raise _NotCompiledError(f"{shlex.join(compiler)} failed on {' and '.join(failed)}: {reasons[0]}")
    except (_NotCompiledError, OSError) as error:
        what = "not all of the code" if made else "no code"
        say(f"ozaki: {what} for this processor is compiled: {error}; `ozaki info` says what products take instead")
    return made


def _compiler() -> list[str]:
    """The words that call the compiler."""
    if os.environ.get("OZAKI_NO_COMPILE", "0") not in ("", "0"):
        raise _NotCompiledError("OZAKI_NO_COMPILE is in the environment")
    if sys.platform == "win32":
        raise _NotCompiledError("its sources are for GCC and Clang, not for Windows")
    if named := shlex.split(os.environ.get("CXX", "")):
        return named
    for name in ("c++", "g++", "clang++"):
        if shutil.which(name):
            return [name]
    raise _NotCompiledError("there is no C++ compiler (c++, g++, clang++, or CXX in the environment)")


def _libraries(root: Path) -> Iterator[tuple[Path, list[str]]]:
    """The libraries for processors like this one, and the options that make each another one."""
    machine = platform.machine().lower()
    of_machine = X86 if machine in ("x86_64", "amd64") else ARM if machine in ("aarch64", "arm64") else {}
    for name, options in {"portable": PORTABLE, **of_machine}.items():
        yield root / FOLDER / f"cpu_{name}.so", options


def _begin(compiler: list[str], options: list[str], root: Path, place: Path) -> tuple[Path, subprocess.Popen[str]]:
    """Begin to compile a library, and return the file that it is written to meanwhile."""
    aside = place.with_suffix(f".{os.getpid()}.begun")
    source = root / "kernels" / "cpu" / "library.cpp"
    words = [*compiler, *OPTIONS, *options, f"-I{root / 'kernels'}", str(source), "-o", str(aside)]
    plain = {**os.environ, "LC_ALL": "C"}  # for `_first_error`
    return aside, subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=plain)


@contextmanager
def _removed(aside: Path) -> Iterator[None]:
    """A context after which there is no such file."""
    try:
        yield
    finally:
        aside.unlink(missing_ok=True)


def _first_error(errors: str) -> str:
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line), lines[0] if lines else "")


def get_build_hook() -> type[Any]:
    """The class that hatchling asks for while it builds (pyproject.toml); hatchling is needed for nothing else here."""
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
    from packaging.tags import platform_tags

    class CompiledCode(BuildHookInterface):  # type: ignore[type-arg]
        """Compiles the libraries, and makes the wheel that they are in one for this platform and any Python."""

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            made = compile_libraries(Path(self.root), self.app.display_warning)
            if made and version != "editable":  # which finds them where they are
                for place in made:
                    build_data["force_include"][str(place)] = (FOLDER / place.name).as_posix()
                # Those for many Linuxes promise that older ones have all that is linked to, which nobody looked at.
                known = next(tag for tag in platform_tags() if not tag.startswith(("manylinux", "musllinux")))
                build_data["pure_python"], build_data["tag"] = False, f"py3-none-{known}"

    return CompiledCode


if __name__ == "__main__":
    compile_libraries(Path(__file__).parents[1], lambda line: print(line, file=sys.stderr))
