"""Result files: JSON with one row a line, so that a change shows the rows that it changes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def write(path: Path, content: Any) -> None:
    """Write a result file, and make its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text(content) + "\n", encoding="utf-8")


def text(content: Any, margin: str = "") -> str:
    """JSON of some content; an object of plain values is one line, and so is a list of values or of points."""
    if _is_one_line(content):
        return json.dumps(content, allow_nan=False, ensure_ascii=False)
    inner = margin + " "
    if isinstance(content, dict):
        items: Iterable[str] = (f"{json.dumps(key)}: {text(value, inner)}" for key, value in content.items())
        begin, end = "{}"
    else:
        items = (text(value, inner) for value in content)
        begin, end = "[]"
    lines = f",\n{inner}".join(items)
    return f"{begin}\n{inner}{lines}\n{margin}{end}"


def _is_one_line(content: Any) -> bool:
    if isinstance(content, dict):
        return not any(isinstance(value, (dict, list, tuple)) for value in content.values())
    if isinstance(content, (list, tuple)):
        return not any(isinstance(value, dict) or not _is_one_line(value) for value in content)
    return True
