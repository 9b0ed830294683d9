"""Text from outside as messages quote it: printable, on one line, and cut to a limited length."""

from __future__ import annotations

import re

_MOST = 60  # characters that a longer text is cut to
_TOO_LONG_WORD = re.compile(r"[^\s/'\"():;,]{101,}")  # a word longer than numbers and names of files usually are
_LONGEST = 1000  # characters that a longer message is cut to


def cut(text: str, most: int = _MOST) -> str:
    """Return a text; if it has more than `most` characters, only its beginning, its end and its length."""
    if len(text) <= most:
        return text
    end = most // 3
    return f"{text[: most - end]}...{text[-end:]} ({len(text)} characters)"


def printable(text: str) -> str:
    """Return a text with an escape sequence in place of each character that is not printable."""
    return "".join(x if x.isprintable() else x.encode("unicode_escape").decode("ascii") for x in text)


def one_line(message: str) -> str:
    """Return a message as one printable line, in which words of more than 100 characters are cut."""
    return cut(_TOO_LONG_WORD.sub(lambda word: cut(word[0]), printable(message)), _LONGEST)
