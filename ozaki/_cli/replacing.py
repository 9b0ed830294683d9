"""Files that are written whole or not at all."""

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

_ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGXCPU") if hasattr(signal, name))


def check_place(path: str) -> None:
    """Raise where `written_whole` could not write, as far as can be told before anything is written.

    Raises
    ------
    OSError
        Naming the file: it is a folder or a closed standard stream, its name is not possible, its folder is not there,
        or one of both may not be written or replaced.
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
    """Open a file to be written that takes its place only when everything is written.

    Until then its content is in a temporary file in the same folder. Whatever goes wrong, SIGTERM, SIGHUP and SIGXCPU
    included, that file is removed, and what was in the place before is still there. The new file has the owner and the
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
                finally:  # even if one comes just then
                    temporary.unlink(missing_ok=True)
                raise
    except OSError as error:
        raise _named(path, error) from None


def _target(path: str) -> tuple[Path, os.stat_result | None]:
    """Return the file that a name leads to, through symbolic links, and what is there, if something is."""
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


def _may_replace(found: os.stat_result, folder: os.stat_result) -> bool:
    """Tell whether a folder that may be written lets us replace a file: a sticky one, as /tmp, not that of others."""
    if not folder.st_mode & stat.S_ISVTX or not hasattr(os, "geteuid"):
        return True
    return os.geteuid() in (0, found.st_uid, folder.st_uid)


def _copy_rights(found: os.stat_result, temporary: Path) -> None:
    """Give a file the owner and the group, if the system lets us, and the permissions of the one it is to replace.

    Where the group becomes another, that one gets no more than others.
    """
    mode = stat.S_IMODE(found.st_mode)
    if hasattr(os, "chown") and not _chown(temporary, found.st_uid, found.st_gid):
        mode &= ~stat.S_ISUID
        if not _chown(temporary, -1, found.st_gid):
            of_others = (mode & stat.S_IRWXO) << 3
            mode &= ~stat.S_ISGID & (~stat.S_IRWXG | of_others)
    os.chmod(temporary, mode)


def _chown(path: Path, owner: int, group: int) -> bool:
    """Tell whether the system lets us: not without the right, nor to an owner that a user namespace does not map."""
    try:
        os.chown(path, owner, group)
    except OSError:
        return False
    return True


@contextmanager
def _signals_as_exceptions() -> Iterator[Callable[[], None]]:
    """Have the signals that would end the process at once raise SystemExit instead; only the first that comes.

    Yields
    ------
    function
        Has these signals, and interrupts, ignored from now on.
    """

    def ignore() -> None:
        for number in before:
            signal.signal(number, signal.SIG_IGN)

    def leave(number: int, frame: object) -> NoReturn:
        ignore()
        raise SystemExit(128 + number)

    taken = [number for number in _ENDING if signal.getsignal(number) is signal.SIG_DFL]
    before = {number: signal.getsignal(number) for number in (*taken, signal.SIGINT)}
    before = {number: handler for number, handler in before.items() if handler is not None}  # None is not Python's own
    for number in taken:
        signal.signal(number, leave)
    try:
        yield ignore
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _named(path: str, error: OSError) -> OSError:
    """Return an error that names the file as the user did."""
    return error if error.errno is None else OSError(f"{path}: {error.strerror}")
