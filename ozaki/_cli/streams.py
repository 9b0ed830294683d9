"""Standard output and standard error, which may be closed, full, or a pipe that nobody reads."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Any

_ENCODING = "utf-8"


class StandardOutputError(Exception):
    """Standard output could not be written.

    This is no OSError, since Typer and Rich would end the process with exit code 1 at a broken pipe.

    Attributes
    ----------
    broken_pipe : whether the reason is that nobody reads the pipe any more
    """

    def __init__(self, error: OSError) -> None:
        super().__init__(f"standard output: {error.strerror}")
        self.broken_pipe = error.errno == errno.EPIPE


def open_standard_streams() -> None:
    """Replace standard output and standard error by streams whose failures are known, even if they are closed.

    Whatever is printed to a closed standard output fails; messages to a closed standard error get lost. Closed streams
    keep their numbers: else the next file that is opened would get one, and with it what libraries print.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            _occupy(number)
    sys.stdout = _text(_Output(1), getattr(sys.stdout, "encoding", None))
    sys.stderr = _text(_Messages(2), getattr(sys.stderr, "encoding", None))


def is_closed_stream(found: os.stat_result) -> bool:
    """Return whether a file, as of the name /dev/stdout, is standard output or error, and was closed at the start."""
    return any(os.path.samestat(found, placeholder) for placeholder in _placeholders)


_placeholders: list[os.stat_result] = []
"""Status of the files that `_occupy` put in place of closed standard output and standard error."""


def _occupy(number: int) -> None:
    """Open a file that gets this number of a closed standard stream, which must be the lowest free number.

    Standard output and error get the end of a pipe that is for reading. Nothing can be written there, and no other name
    leads to the same file, so `is_closed_stream` recognizes it.
    """
    if number == 0:
        os.open(os.devnull, os.O_RDONLY)
        return
    _, end = os.pipe()
    os.close(end)
    _placeholders.append(os.fstat(number))


class _Output(io.FileIO):
    """Standard output; the first failure raises StandardOutputError, and later writes are discarded.

    When Python ends, it writes what is left in buffers, which would fail again.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number, "wb", closefd=False)
        self._failed = False

    def write(self, data: Any, /) -> int:
        if self._failed:
            return memoryview(data).nbytes
        try:
            return super().write(data)
        except OSError as error:
            self._failed = True
            raise StandardOutputError(error) from None


class _Messages(io.FileIO):
    """Standard error; discards what it cannot write. The exit code still says what was wrong."""

    def __init__(self, number: int) -> None:
        super().__init__(number, "wb", closefd=False)

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def _text(raw: io.FileIO, encoding: str | None) -> io.TextIOWrapper:
    """Return a text stream that writes whole lines, and escapes characters that the encoding lacks."""
    buffered = io.BufferedWriter(raw)
    return io.TextIOWrapper(buffered, encoding or _ENCODING, errors="backslashreplace", line_buffering=True)
