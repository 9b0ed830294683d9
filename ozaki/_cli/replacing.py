"""Writing a file whole or not at all: it replaces what was there only when all of it is written."""

from __future__ import annotations

import os
import secrets
import signal
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedWriter
from pathlib import Path
from typing import NoReturn

from ozaki._cli.streams import is_closed_stream

_ENDING_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGXCPU") if hasattr(signal, name))


def check_place(path: str) -> None:
    """Raise if `written_whole` could not write a file, as far as this is known without writing.

    Raises
    ------
    OSError
        The message names the file: it is a folder or a closed standard stream, its name is not possible, its folder
        does not exist, or the file or the folder may not be written, or the file not replaced.
    """
    real, found = _target(path)
    if found is not None and is_closed_stream(found):
        raise OSError(f"{path}: leads to a standard stream that is closed")
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
        if found is not None and not _may_replace(found, real.parent.stat()):
            raise PermissionError(f"{path}: may not be replaced, for only its owner may do that in {real.parent}")


@contextmanager
def written_whole(path: str) -> Iterator[BufferedWriter]:
    """Open a file for writing; it takes its place only when the `with` block has ended without an exception.

    Until then its content is in a temporary file in the same folder. Whatever goes wrong, SIGTERM, SIGHUP and SIGXCPU
    included, the temporary file is removed, and what was in the place before is still there. The new file has the owner
    and the permissions of the one that it replaces. A symbolic link stays, and the file that it leads to is replaced;
    other hard links to that file keep the old content. A device or a pipe is written directly.

    Parameters
    ----------
    path : str

    Yields
    ------
    binary file

    Raises
    ------
    OSError
        The message names the file.
    """
    real, found = _target(path)
    try:
        if not _is_replaced(real, found):
            with open(path, "wb") as file:
                yield file
            return
        temporary = real.with_name(f".ozaki-{secrets.token_hex(8)}.tmp")
        with _signals_as_exceptions() as no_more_signals:
            try:
                with open(temporary, "xb") as file:
                    if found is not None:
                        _copy_rights(found, temporary)
                    yield file
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(temporary, real)
            except BaseException:
                try:
                    no_more_signals()
                finally:  # even if a signal comes just then
                    temporary.unlink(missing_ok=True)
                raise
    except OSError as error:
        raise _named(path, error) from None


def _target(path: str) -> tuple[Path, os.stat_result | None]:
    """Return the path that a name leads to, through symbolic links, and the status of the file there, or None."""
    try:
        real = Path(os.path.realpath(path))  # fails where the current folder is gone
        if real.is_symlink():
            raise OSError(f"{path}: is a symbolic link that leads back to itself")
        found = _found(path)
        if found is None and os.path.basename(path) in ("", os.curdir):
            raise OSError(f"{path}: names a folder that is not there; expected the name of a file")
        return real, found
    except ValueError as error:
        raise OSError(f"{path}: {error}; expected the name of a file") from None
    except OSError as error:
        raise _named(path, error) from None


def _found(path: str | Path) -> os.stat_result | None:
    """Return the status of the file at a path; None if there is none."""
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _is_replaced(real: Path, found: os.stat_result | None) -> bool:
    """Return whether a new file replaces the old one: not a device or a pipe, nor an open file without a name."""
    if found is None:
        return True
    return stat.S_ISREG(found.st_mode) and real.exists() and os.path.samestat(found, real.stat())


def _may_replace(found: os.stat_result, folder: os.stat_result) -> bool:
    """Return whether a folder that may be written lets us replace a file: a sticky one, as /tmp, only our own."""
    if not folder.st_mode & stat.S_ISVTX or not hasattr(os, "geteuid"):
        return True
    return os.geteuid() in (0, found.st_uid, folder.st_uid)


def _copy_rights(found: os.stat_result, temporary: Path) -> None:
    """Give a file the permissions of the file that it is to replace, and the owner and the group if the system allows.

    If the group cannot be kept, the group that the file has gets no more rights than others have.
    """
    mode = stat.S_IMODE(found.st_mode)
    if hasattr(os, "chown") and not _chown(temporary, found.st_uid, found.st_gid):
        mode &= ~stat.S_ISUID
        if not _chown(temporary, -1, found.st_gid):
            of_others = (mode & stat.S_IRWXO) << 3
            mode &= ~stat.S_ISGID & (~stat.S_IRWXG | of_others)
    os.chmod(temporary, mode)


def _chown(path: Path, owner: int, group: int) -> bool:
    """Change owner and group, and return whether the system allowed it.

    It does not without the right, nor for an owner that a user namespace does not map.
    """
    try:
        os.chown(path, owner, group)
    except OSError:
        return False
    return True


@contextmanager
def _signals_as_exceptions() -> Iterator[Callable[[], None]]:
    """Make the first signal that would end the process raise SystemExit instead.

    Yields
    ------
    function
        Call it to ignore these signals, and interrupts, until the `with` block ends.
    """

    def ignore() -> None:
        for number in before:
            signal.signal(number, signal.SIG_IGN)

    def leave(number: int, frame: object) -> NoReturn:
        ignore()
        raise SystemExit(128 + number)

    taken = [number for number in _ENDING_SIGNALS if signal.getsignal(number) is signal.SIG_DFL]
    before = {number: signal.getsignal(number) for number in (*taken, signal.SIGINT)}
    before = {
        number: handler for number, handler in before.items() if handler is not None
    }  # None: not installed from Python, and so not to be restored
    for number in taken:
        signal.signal(number, leave)
    try:
        yield ignore
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _named(path: str, error: OSError) -> OSError:
    """Return the error with a message that names the file as the user did."""
    return error if error.errno is None else OSError(f"{path}: {error.strerror}")
