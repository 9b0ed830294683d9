"""Compile the kernels of common products, for the wheel: `python -m building.pack_kernels [ARCHITECTURE...]`.

kernels/common.txt lists them. For each architecture an archive is written, kernels/compiled/sm_90a.tar.xz, which
`ozaki.backends.cupy.program.compiling` finds. NVRTC compiles without a GPU; it comes with
`pip install nvidia-cuda-nvrtc cuda-bindings`.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import tarfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from ozaki.backends.cupy.program.compiling import PACKED, Definitions, common, file_name, folder, options

ARCHITECTURES = ("sm_75", "sm_80", "sm_90a", "sm_100", "sm_120")
"""The oldest of each generation that kernels run on: newer ones of a generation run what is compiled for it."""


def compiled(kernel: tuple[str, Definitions], architecture: str) -> tuple[str, bytes]:
    """The file name of a kernel, and its machine code."""
    from cuda.bindings import nvrtc

    name, macros = kernel
    source = (folder() / name).read_bytes()
    status, program = nvrtc.nvrtcCreateProgram(source, name.encode(), 0, [], [])
    chosen = [option.encode() for option in options(macros, architecture)]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(chosen), chosen)
    if status:
        _, size = nvrtc.nvrtcGetProgramLogSize(program)
        log = bytearray(size)
        nvrtc.nvrtcGetProgramLog(program, log)
        raise RuntimeError(f"{name} does not compile for {architecture}: {log.decode()}")
    _, size = nvrtc.nvrtcGetCUBINSize(program)
    cubin = bytearray(size)
    nvrtc.nvrtcGetCUBIN(program, cubin)
    nvrtc.nvrtcDestroyProgram(program)
    return file_name(name, macros, architecture), bytes(cubin)


def packed(archive: Path) -> dict[str, bytes]:
    """The kernels of an archive by file name, which changes with their sources; none if there is no archive."""
    if not archive.is_file():
        return {}
    with tarfile.open(archive) as members:
        return {member.name: members.extractfile(member).read() for member in members}  # type: ignore[union-attr]


def pack(architecture: str, processes: int) -> None:
    """Write the archive of an architecture, unless it is up to date: whole, or not at all.

    Kernels whose sources have not changed are taken from the archive that is there.
    """
    kernels = {file_name(name, macros, architecture): (name, macros) for name, macros in common(architecture)}
    place = folder() / PACKED / f"{architecture}.tar.xz"
    place.parent.mkdir(exist_ok=True)
    known = packed(place)
    if set(known) == set(kernels):
        print(f"{architecture}: up to date", file=sys.stderr)
        return
    missing = [kernel for name, kernel in kernels.items() if name not in known]
    begun = place.with_suffix(".begun")
    try:
        with ProcessPoolExecutor(processes) as pool, tarfile.open(begun, "w:xz", preset=9) as archive:
            for done, (name, cubin) in enumerate(pool.map(compiled, missing, [architecture] * len(missing)), 1):
                known[name] = cubin
                print(f"\r{architecture}: {done} of {len(missing)} kernels", end="", file=sys.stderr, flush=True)
            for name in kernels:
                member = tarfile.TarInfo(name)
                member.size = len(known[name])
                archive.addfile(member, io.BytesIO(known[name]))
        os.replace(begun, place)
    finally:
        begun.unlink(missing_ok=True)
    print(f", {place.stat().st_size / 1e6:.1f} MB", file=sys.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("architectures", nargs="*", default=ARCHITECTURES, help=f"default: {' '.join(ARCHITECTURES)}")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    chosen = parser.parse_args()
    for each in chosen.architectures:
        pack(each, chosen.processes)
