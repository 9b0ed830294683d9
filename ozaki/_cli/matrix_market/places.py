"""Words of a line, and errors that name the line and the column of a word."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NoReturn

from ozaki._cli.echo import cut

_WORD = re.compile(rb"[^ \t]+")


def words(line: bytes) -> list[re.Match[bytes]]:
    """Return the words of a line as matches, which have their places."""
    return list(_WORD.finditer(without_end(line)))


def without_end(line: bytes) -> bytes:
    """Return a line without the line break at its end."""
    return line.removesuffix(b"\n").removesuffix(b"\r")


def is_empty(line: bytes) -> bool:
    """Return whether a line is blank or a comment."""
    filled = line.lstrip(b" \t")
    return filled.startswith(b"%") or filled in (b"", b"\n", b"\r\n")


def quoted(text: bytes) -> str:
    """Return a text of the file as messages quote it: in quotation marks, printable, and cut if it is long."""
    return repr(cut(text.decode("utf-8", "backslashreplace")))


def refuse(number: int, line: bytes, word: int, reason: str) -> NoReturn:
    """Raise an error about a word of a line, counted from 0; beyond the last word, about the end of the line.

    Raises
    ------
    ValueError
        Always.
    """
    found: Sequence[re.Match[bytes]] = words(line)
    start = found[word].start() if word < len(found) else len(line.rstrip())
    raise ValueError(f"line {number}, column {start + 1}: {reason}")
