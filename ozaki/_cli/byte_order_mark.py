"""The byte order mark that editors, above all on Windows, put before a text."""

from __future__ import annotations

import codecs

LONGEST = len(codecs.BOM_UTF8)
"""Bytes of the mark that is left out."""

_OTHERS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)


def without_mark(start: bytes) -> bytes:
    """Return the beginning of a text of one byte a character without the mark of UTF-8, if it has that.

    Raises
    ------
    ValueError
        If it has the mark of another encoding.
    """
    if start.startswith(_OTHERS):
        raise ValueError("line 1: is text in UTF-16 or UTF-32; save it in UTF-8 or ASCII")
    return start.removeprefix(codecs.BOM_UTF8)
