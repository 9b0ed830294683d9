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

    It is no OSError, for Typer and Rich end at a broken pipe with exit code 1.

    Attributes
    ----------
    broken_pipe : whether that is because nobody reads any more
    """

    def __init__(self, error: OSError) -> None:
        super().__init__(f"standard output: {error.strerror}")
        self.broken_pipe = error.errno == errno.EPIPE


def open_standard_streams() -> None:
    """Make standard streams of which failures are known, also of those that are closed.

    Whatever is printed to a closed standard output fails; messages to a closed standard error get lost. Streams keep
    their numbers, lest the next file that is opened get one of them, and with it what libraries print.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            _occupy(number)
    sys.stdout = _text(_Output(1), getattr(sys.stdout, "encoding", None))
    sys.stderr = _text(_Messages(2), getattr(sys.stderr, "encoding", None))


def is_closed_stream(found: os.stat_result) -> bool:
    """Tell whether what a name like /dev/stdout leads to is standard output or error, and was closed at the start."""
    return any(os.path.samestat(found, placeholder) for placeholder in _placeholders)


_placeholders: list[os.stat_result] = []


def _occupy(number: int) -> None:
    """Take the lowest number that is free, which is this one.

    Those to be written get the end of a pipe that is read. Nothing can be written there, and nothing else is the same
    file, so that it is known again by a name that leads to it.
    """
    if number == 0:
        os.open(os.devnull, os.O_RDONLY)
        return
    _, end = os.pipe()
    os.close(end)
    _placeholders.append(os.fstat(number))


class _Output(io.FileIO):
    """Raises one StandardOutputError, and swallows the rest: what is left in buffers, when Python ends."""

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
    """Loses what it cannot write: there is nowhere left to say so, and the exit code says what it would."""

    def __init__(self, number: int) -> None:
        super().__init__(number, "wb", closefd=False)

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def _text(raw: io.FileIO, encoding: str | None) -> io.TextIOWrapper:
    """Return a text stream that writes whole lines, and escapes characters that it has no bytes for."""
    buffered = io.BufferedWriter(raw)
    return io.TextIOWrapper(buffered, encoding or _ENCODING, errors="backslashreplace", line_buffering=True)
