"""Errors that say where in a file their reason stands."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NoReturn

from ozaki._cli.echo import cut

_WORD = re.compile(rb"[^ \t]+")


def words(line: bytes) -> list[re.Match[bytes]]:
    """Return the words of a line, each with its place."""
    return list(_WORD.finditer(without_end(line)))


def without_end(line: bytes) -> bytes:
    """Return a line without what ends it."""
    return line.removesuffix(b"\n").removesuffix(b"\r")


def is_empty(line: bytes) -> bool:
    """Tell whether a line holds nothing but blanks, or a comment."""
    filled = line.lstrip(b" \t")
    return filled.startswith(b"%") or filled in (b"", b"\n", b"\r\n")


def quoted(text: bytes) -> str:
    """Return what a message quotes of a file."""
    return repr(cut(text.decode("utf-8", "backslashreplace")))


def refuse(number: int, line: bytes, word: int, reason: str) -> NoReturn:
    """Raise an error about a word of a line; after the last one, about what is missing there.

    Raises
    ------
    ValueError
        Always.
    """
    found: Sequence[re.Match[bytes]] = words(line)
    start = found[word].start() if word < len(found) else len(line.rstrip())
    raise ValueError(f"line {number}, column {start + 1}: {reason}")
