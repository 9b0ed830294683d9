"""Writing a file whole or not at all: it replaces what was there only when all of it is written."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedWriter
from pathlib import Path


def check_place(path: str) -> None:
    """Raise if `written_whole` could not write a file, as far as this is known without writing.

    Raises
    ------
    OSError
        The message names the file: it is a folder, its folder does not exist, or one of the two may not be written.
    """
    with _naming(path):
        place = Path(os.path.realpath(path))
        if place.is_dir():
            raise IsADirectoryError(f"{path}: is a folder; expected the name of a file")
        if os.path.exists(path) and not os.access(path, os.W_OK):
            raise PermissionError(f"{path}: may not be written")
        if _is_replaced(path):
            if not place.parent.is_dir():
                raise FileNotFoundError(f"{path}: no folder {place.parent}")
            if not os.access(place.parent, os.W_OK | os.X_OK):
                raise PermissionError(
                    f"{path}: may not be written, for it is written beside its place first, in {place.parent}"
                )


@contextmanager
def written_whole(path: str) -> Iterator[BufferedWriter]:
    """Open a file for writing; it takes its place only when the `with` block has ended without an exception.

    Until then its content is in a temporary file in the same folder, which is removed after an exception, as after
    Ctrl-C. The new file has the permissions of the one that it replaces. A symbolic link stays, and the file that it
    leads to is replaced; other hard links to that file keep the old content. A device or a pipe is written directly.

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
    with _naming(path):
        if not _is_replaced(path):
            with open(path, "wb") as file:
                yield file
            return
        place = Path(os.path.realpath(path))
        temporary = place.with_name(f".ozaki-{secrets.token_hex(8)}.tmp")
        try:
            with open(temporary, "xb") as file:
                if place.exists():
                    os.chmod(temporary, place.stat().st_mode & 0o777)  # no set-id bits, since the owner may be another
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, place)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def _is_replaced(path: str) -> bool:
    """Return whether a new file replaces what is there, if anything is: not a device or a pipe."""
    return os.path.isfile(path) or not os.path.exists(path)


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Let errors of the system name the file as the user did."""
    try:
        yield
    except OSError as error:
        raise error if error.errno is None else OSError(f"{path}: {error.strerror}") from None
