"""The files of compiled kernels in CuPy's cache folder: each with a checksum, all together within a bound."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import NamedTuple

MOST_BYTES = 2**29
"""Most bytes that the files take: the kernels of common products of seven architectures (Hopper's take 65 MB)."""

PREFIX = "ozaki_"
"""What the names of the files begin with; others in the folder are CuPy's own."""

_BEING_WRITTEN = ".part"
"""What the names of files end with that a process writes, or left behind when it was killed."""

_LONGEST_WRITE = 3600
"""Seconds after which a file that is being written counts as left behind."""

_CHECKSUM_BYTES = 32


class File(NamedTuple):
    """A file of the library's in the folder."""

    path: Path
    nbytes: int
    last_use: float


def folder() -> Path:
    """CuPy's folder of compiled kernels."""
    return Path(os.environ.get("CUPY_CACHE_DIR", "~/.cupy/kernel_cache")).expanduser()


def find(name: str) -> Path | None:
    """The file of that name, now last used; None if there is none, or what it holds is not what was written."""
    path = folder() / name
    try:
        content = path.read_bytes()
    except OSError:
        return None
    cubin, checksum = content[:-_CHECKSUM_BYTES], content[-_CHECKSUM_BYTES:]
    if sha256(cubin).digest() != checksum:
        return None
    with suppress(OSError):  # another process may have removed it, or own it
        os.utime(path)
    return path


def write(name: str, cubin: bytes) -> Path:
    """Write a kernel into the file of that name, which other processes may read, write or remove at the same time.

    The checksum lies behind the machine code, whose own header says where that ends: the driver loads the whole file.

    Raises
    ------
    OSError
        If it cannot be written, as in a folder that may not be written and on a full disk; then nothing is left of it.
    """
    path, part = folder() / name, None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(prefix=PREFIX, suffix=_BEING_WRITTEN, dir=path.parent, delete=False) as file:
            part = file.name
            file.write(cubin)
            file.write(sha256(cubin).digest())
        os.replace(part, path)
    except OSError as error:
        if part is not None:
            with suppress(OSError):
                os.unlink(part)
        why = f"{error.strerror}; kernels are kept there; set CUPY_CACHE_DIR to a folder with room that may be written"
        raise OSError(error.errno, why, str(path.parent)) from error
    return path


def files() -> list[File]:
    """All files of compiled kernels, and those that are being written, in no order."""
    found = []
    with suppress(OSError), os.scandir(folder()) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX):
                with suppress(OSError):  # another process has removed it
                    status = entry.stat()
                    found.append(File(Path(entry.path), status.st_size, status.st_mtime))
    return found


def trim() -> None:
    """Remove the files that were used longest ago, until the others take no more than `MOST_BYTES`.

    A process that has found a file, but has not loaded it yet, then finds none, and compiles the kernel anew.
    """
    left_behind = time.time() - _LONGEST_WRITE
    known = [file for file in files() if file.path.suffix != _BEING_WRITTEN or file.last_use < left_behind]
    excess = sum(file.nbytes for file in known) - MOST_BYTES
    for file in sorted(known, key=lambda each: each.last_use):
        if excess <= 0 and file.path.suffix != _BEING_WRITTEN:
            continue
        with suppress(OSError):  # another process removes it, too
            file.path.unlink()
        excess -= file.nbytes
