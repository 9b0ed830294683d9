"""Compiled kernels: those that came with the package, those on disk, and the others, which NVRTC compiles now."""

from __future__ import annotations

import io
import lzma
import re
import tarfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

from ozaki.backends.cupy import devices
from ozaki.backends.cupy.program import kernel_files
from ozaki.backends.cupy.program.kernels import Kernel
from ozaki.caches import Cache, cached, register
from ozaki.process import cpus
from ozaki.process.warning import warn

_PLACES = (Path(__file__).parents[3] / "kernels", Path(__file__).parents[4] / "kernels")
"""Where the CUDA sources may be: inside the package as a wheel installs it; at the top of a checkout."""

PACKED = "compiled"
"""The folder beside the sources that holds kernels which came compiled: an archive for each architecture."""

Definitions = tuple[tuple[str, str | int], ...]
"""(name, value) of macros, sorted."""

_MOST = 4096
"""The most kernels that are known to be loaded, or on disk: more than three times as many as common.txt lists."""


@cached(1)
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


@cached(1)
def _headers() -> bytes:
    return b"".join(header.read_bytes() for header in sorted(folder().rglob("*.cuh")))


def key(name: str, macros: Definitions, architecture: str, compiler: str = "") -> str:
    """What tells a compiled kernel from all others: its sources and headers, macros, architecture and compiler."""
    described = repr((macros, architecture, compiler)).encode()
    return sha256((folder() / name).read_bytes() + _headers() + described).hexdigest()[:32]


def common(architecture: str) -> list[tuple[str, Definitions]]:
    """Files and macros of the kernels that common products need, those that run on an architecture (common.txt)."""
    found = []
    for line in (folder() / "common.txt").read_text(encoding="ascii").splitlines():
        file, *macros = line.split()
        hoppers = file in _HOPPER_ALONE or file.endswith("_sm90.cu") or _HOPPERS_MACRO in macros
        if file == "#" or (hoppers and architecture != "sm_90a"):
            continue
        pairs = (macro.split("=") for macro in macros)
        found.append((file, tuple((name, int(x) if x.lstrip("-").isdecimal() else x) for name, x in pairs)))
    return found


_HOPPER_ALONE = ("conversion/split_quadrants.cu", "hardware/halves.cu")
"""Files of kernels for Hopper whose names do not say so."""

_HOPPERS_MACRO = "WARPGROUPS=1"
"""Of those kernels for Hopper whose files have kernels for all devices (kernels/stacks/stack.cu)."""


# Files ---------------------------------------------------------------------------------------------------------------


def file_name(name: str, macros: Definitions, architecture: str, compiler: str = "") -> str:
    """The name of the file of a compiled kernel, in the cache and in archives."""
    return f"{kernel_files.PREFIX}{Path(name).stem}_{key(name, macros, architecture, compiler)}.cubin"


def _architectures(target: str) -> list[str]:
    """Architectures whose packed kernels a device runs: its own, and older ones of the same generation."""
    found = re.fullmatch(r"sm_(\d+)(\d)([a-z]?)", target)
    assert found is not None
    generation, minor, suffix = found.groups()
    older = [] if suffix else [f"sm_{generation}{lower}" for lower in range(int(minor) - 1, -1, -1)]
    return [target, *older]


@cached(16)
def _unpack(archive: Path) -> None:
    """Write all kernels of an archive into the cache, if all of it can be read; else warn, and write none.

    They share most of their code, so they are packed as one. Its checksums are read with its end.
    """
    found = []
    try:
        with lzma.open(archive) as file:
            whole = io.BytesIO(file.read())
        with tarfile.open(fileobj=whole) as members:
            for member in members:
                if content := members.extractfile(member):
                    found.append((Path(member.name).name, content.read()))
    except (OSError, EOFError, tarfile.TarError, lzma.LZMAError) as error:
        warn(
            f"{archive}: damaged ({error}), so its kernels are compiled when they are needed; install ozaki again",
            RuntimeWarning,
        )
        return
    for name, cubin in found:
        if kernel_files.find(name) is None:
            kernel_files.write(name, cubin)
    kernel_files.trim()


@cached(16)
def _common(architecture: str) -> frozenset[tuple[str, Definitions]]:
    return frozenset(common(architecture))


@cached(_MOST)
def _packed(name: str, macros: Definitions, target: str) -> Path | None:
    """The file of a kernel that came compiled; None if it did not."""
    for architecture in _architectures(target):
        archive = folder() / PACKED / f"{architecture}.tar.xz"
        if archive.is_file() and (name, macros) in _common(architecture):
            file = file_name(name, macros, architecture)
            if place := kernel_files.find(file):
                return place
            _unpack(archive)
            if place := kernel_files.find(file):  # else the archive is older than the sources
                return place
    return None


def _compile(name: str, macros: Definitions, target: str) -> Path:
    """Compile a kernel by NVRTC into its file.

    CuPy's own compilation is not used: it would flush float32 subnormals, overlook changes of included headers, and
    leave out the instructions that Hopper alone has.
    """
    from cupy.cuda import nvrtc

    program = nvrtc.createProgram((folder() / name).read_text(), name, (), ())
    try:
        nvrtc.compileProgram(program, options(macros, target))
        cubin = nvrtc.getCUBIN(program)
    except nvrtc.NVRTCError as error:
        raise RuntimeError(f"{name} does not compile for {target}: {nvrtc.getProgramLog(program)}") from error
    finally:
        nvrtc.destroyProgram(program)
    place = kernel_files.write(_compiled_name(name, macros, target), cubin)
    kernel_files.trim()
    return place


def _compiled_name(name: str, macros: Definitions, target: str) -> str:
    """The name of the file of a kernel that NVRTC compiles."""
    from cupy.cuda import nvrtc

    return file_name(name, macros, target, repr(nvrtc.getVersion()))


@cached(_MOST)
def _compiled(name: str, macros: Definitions, target: str) -> Path:
    """The file of a kernel that NVRTC compiled, now if there is none in the cache on disk."""
    return kernel_files.find(_compiled_name(name, macros, target)) or _compile(name, macros, target)


def _file(name: str, macros: Definitions, target: str) -> Path:
    return _packed(name, macros, target) or _compiled(name, macros, target)


# Kernels -------------------------------------------------------------------------------------------------------------


@cached(_MOST)
def _function(device: int, name: str, function: str, macros: Definitions) -> Any:
    """The kernel on a device, from the first file that the driver loads; if it refuses those there are, compiled anew.

    A packed kernel may be newer than the driver, a file may hold what the driver does not take although it holds what
    was written, and another process may have removed one since it was found. The new file takes the old one's place.
    """
    from cupy.cuda import driver

    target = devices.numbered(device).architecture
    for place in (_packed(name, macros, target), kernel_files.find(_compiled_name(name, macros, target))):
        if place is not None:
            try:
                return _load(place, function)
            except driver.CUDADriverError:
                continue
    return _load(_compile(name, macros, target), function)


def _load(place: Path, function: str) -> Any:
    """A kernel of a file, loaded on the current device; CuPy keeps what it has loaded until `cupy.clear_memo`.

    Raises
    ------
    CUDADriverError
        If the driver does not load the file, or there is none.
    """
    import cupy

    found = cupy.RawModule(path=str(place)).get_function(function)
    _ = found.kernel  # some versions of CuPy load the file only now
    return found


def kernel(name: str, function: str, **macros: str | int) -> Any:
    """The kernel `function` of kernels/`name`, compiled for the current device."""
    import cupy

    return _function(cupy.cuda.runtime.getDevice(), name, function, tuple(sorted(macros.items())))


_seen: Cache[tuple[str, str, Definitions], bool] = register("kernel files", Cache(_MOST))
"""Kernels whose files were made or found, by architecture, file and macros."""


def compile_common() -> Iterator[int]:
    """Make the files of all kernels that common products need on the current device.

    Yields how many there are, and then, after each of them, how many are left.
    """
    target = devices.current().architecture
    wanted = common(target)
    yield len(wanted)
    with ThreadPoolExecutor(cpus.usable()) as threads:
        for done, _ in enumerate(threads.map(lambda each: _file(each[0], each[1], target), wanted), 1):
            yield len(wanted) - done


def compile_together(kernels: Iterable[Kernel]) -> None:
    """Make the files of kernels for the current device, those that NVRTC has to compile at the same time."""
    target = devices.current().architecture
    wanted = {(target, kernel.file, tuple(sorted(kernel.macros.items()))) for kernel in kernels}
    new = [each for each in wanted if _seen.get(each) is None]
    missing = [(name, macros) for _, name, macros in new if _packed(name, macros, target) is None]
    for each in new:
        _seen.put(each, True)
    if len(missing) < 2:
        return
    with ThreadPoolExecutor(min(len(missing), cpus.usable())) as threads:
        for _ in threads.map(lambda each: _compiled(each[0], each[1], target), missing):
            pass
