"""What a message repeats of text that somebody else wrote: not at length."""

from __future__ import annotations

_MOST = 60  # characters that are left of a text that is cut


def cut(text: str, most: int = _MOST) -> str:
    """Return a text, or its beginning and its end if it has more characters than `most`."""
    if len(text) <= most:
        return text
    end = most // 3
    return f"{text[: most - end]}...{text[-end:]} ({len(text)} characters)"
