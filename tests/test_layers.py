"""Imports go down the list of folders in docs/design.md, section 4: so no folders import each other.

Imports within functions count, and those for types alone, too: whoever reads a file needs what it names. A folder
counts with the folders in it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]


def order() -> list[str]:
    """The folders and files of the package from top to bottom, as the table lists them."""
    section = (ROOT / "docs" / "design.md").read_text(encoding="utf-8").split("\n## 4. Folders\n")[1].split("\n## ")[0]
    cells = re.findall(r"^\|([^|]*)\|", section, flags=re.MULTILINE)
    found = [_outer(name) for cell in cells for name in re.findall(r"`([^`]+)`", cell)]
    return [name for i, name in enumerate(found) if i == 0 or name != found[i - 1]]


def _outer(path: str) -> str:
    """The folder directly within the package, or the file there, to which a path belongs."""
    outer, slash, _ = path.partition("/")
    return outer + slash


def files() -> Iterator[tuple[str, str]]:
    """The files of the package as paths within it, and their texts."""
    for path in sorted((ROOT / "ozaki").rglob("*.py")):
        yield path.relative_to(ROOT / "ozaki").as_posix(), path.read_text(encoding="utf-8")


def imported(text: str) -> Iterator[str]:
    """The modules that a file imports, wherever it does; names that it takes from them are added: they may be such."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name their modules in full"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def where(module: str) -> str | None:
    """The folder or file of the package to which a module, or a name in one, belongs; None of other libraries."""
    package, *inside = module.split(".")
    if package != "ozaki":
        return None
    if inside and (ROOT / "ozaki" / inside[0]).is_dir():
        return f"{inside[0]}/"
    return f"{inside[0]}.py" if inside and (ROOT / "ozaki" / f"{inside[0]}.py").is_file() else "__init__.py"


def test_the_list_is_complete():
    listed = order()
    assert len(listed) == len(set(listed)), "files of a folder are listed apart"
    assert set(listed) == {_outer(path) for path, _ in files()}


def test_imports_go_down():
    place = {name: i for i, name in enumerate(order())}
    upward = []
    for path, text in files():
        for module in imported(text):
            folder = where(module)
            if folder is not None and place[folder] < place[_outer(path)]:
                upward.append(f"{path} imports {module}")
    assert not upward, "\n".join(upward)


def test_imports_are_found_wherever_they_are():
    text = """
import ozaki.call.pair as pair
from ozaki import linalg
from ozaki.schemes import (
    Digits,
    Words,
)
if TYPE_CHECKING:
    from ozaki.planning.facts import Facts
def late():
    import ozaki, numpy
    from ozaki.account import Account
"""
    found = [*map(where, imported(text))]
    expected = ["call/", "linalg/", "schemes/", "schemes/", "__init__.py", None, "planning/", "account.py"]
    assert sorted(found, key=str) == sorted(expected, key=str)
