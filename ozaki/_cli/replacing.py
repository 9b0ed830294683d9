"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import secrets
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedWriter
from pathlib import Path
from typing import NoReturn

_ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


def check_place(path: str) -> None:
    """Raise where `written_whole` could not write, as far as can be told before anything is written.

    Raises
    ------
    OSError
        Naming the file: it is a folder, its name is not possible, its folder is not there, or one of both may not be
        written.
    """
    real, found = _target(path)
    if found is not None and stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(f"{path}: is a folder; expected the name of a file")
    if found is not None and not os.access(path, os.W_OK):
        raise PermissionError(f"{path}: may not be written")
    if _is_replaced(real, found):
        if not real.parent.is_dir():
            raise FileNotFoundError(f"{path}: no folder {real.parent}")
        if not os.access(real.parent, os.W_OK | os.X_OK):
            raise PermissionError(
                f"{path}: may not be written, for it is written beside its place first, in {real.parent}"
            )


@contextmanager
def written_whole(path: str) -> Iterator[BufferedWriter]:
    """Open a file to be written that takes its place only when everything is written.

    Until then its content is in a temporary file in the same folder. Whatever goes wrong, SIGTERM and SIGHUP included,
    that file is removed, and what was in the place before is still there. The new file has the owner and the
    permissions of the one that it replaces. A symbolic link stays, and the file that it leads to is replaced; other
    hard links to that file keep the old content. A device or a pipe is written directly.

    Parameters
    ----------
    path : str

    Yields
    ------
    binary file

    Raises
    ------
    OSError
        Naming the file.
    """
    real, found = _target(path)
    try:
        if not _is_replaced(real, found):
            with open(path, "wb") as file:
                yield file
            return
        temporary = real.with_name(f".ozaki-{secrets.token_hex(8)}.tmp")
        with _signals_as_exceptions():
            try:
                with open(temporary, "xb") as file:
                    if found is not None:
                        _copy_rights(found, temporary)
                    yield file
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(temporary, real)
            finally:
                temporary.unlink(missing_ok=True)
    except OSError as error:
        raise _named(path, error) from None


def _target(path: str) -> tuple[Path, os.stat_result | None]:
    """Return the file that a name leads to, through symbolic links, and what is there, if something is."""
    try:
        real = Path(os.path.realpath(path))  # fails where the current folder is gone
        if real.is_symlink():
            raise OSError(f"{path}: is a symbolic link that leads back to itself")
        return real, _found(path)
    except ValueError as error:
        raise OSError(f"{path}: {error}; expected the name of a file") from None
    except OSError as error:
        raise _named(path, error) from None


def _found(path: str | Path) -> os.stat_result | None:
    """Return what is there, if something is."""
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _is_replaced(real: Path, found: os.stat_result | None) -> bool:
    """Tell whether a new file takes the place: not of a device or a pipe, nor of an open file that has no name."""
    if found is None:
        return True
    return stat.S_ISREG(found.st_mode) and real.exists() and os.path.samestat(found, real.stat())


def _copy_rights(found: os.stat_result, temporary: Path) -> None:
    """Give a file the owner, if the system lets us, and the permissions of the one that it is to replace."""
    if hasattr(os, "chown"):
        with suppress(PermissionError):
            os.chown(temporary, found.st_uid, found.st_gid)
    os.chmod(temporary, stat.S_IMODE(found.st_mode))


@contextmanager
def _signals_as_exceptions() -> Iterator[None]:
    """Have the signals that would end the process at once raise SystemExit instead."""

    def leave(number: int, frame: object) -> NoReturn:
        raise SystemExit(128 + number)

    taken = [number for number in _ENDING if signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _named(path: str, error: OSError) -> OSError:
    """Return an error that names the file as the user did."""
    return error if error.errno is None else OSError(f"{path}: {error.strerror}")
