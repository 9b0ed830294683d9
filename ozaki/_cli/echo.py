"""What a message repeats of text that somebody else wrote: printable, on one line, and not at length."""

from __future__ import annotations

import re

_MOST = 60  # characters that are left of a text that is cut
_ABSURD = re.compile(r"[^\s/'\"():;,]{101,}")  # longer than a number or a file's name is for any good reason
_LONGEST = 1000  # characters of a message


def cut(text: str, most: int = _MOST) -> str:
    """Return a text, or its beginning and its end if it has more characters than `most`."""
    if len(text) <= most:
        return text
    end = most // 3
    return f"{text[: most - end]}...{text[-end:]} ({len(text)} characters)"


def printable(text: str) -> str:
    """Return a text in which whatever does not print as a character is written as an escape sequence."""
    return "".join(x if x.isprintable() else x.encode("unicode_escape").decode("ascii") for x in text)


def one_line(message: str) -> str:
    """Return a message as one printable line, in which numbers, names and other words without end are cut."""
    return cut(_ABSURD.sub(lambda word: cut(word[0]), printable(message)), _LONGEST)
