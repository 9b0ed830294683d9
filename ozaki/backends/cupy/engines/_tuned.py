"""Tiles that were the fastest when a device was tuned: data/tiles.json, written by `python -m benchmarks.tiles`.

By architecture and method, products are listed as [m, k, n, ...] with what their engine is made of; what is not listed
goes by the engine's rule. As Ootomo and Yokota choose for each size (IJHPCA 2022, section 3.5.1).
"""

from __future__ import annotations

import json
from functools import cache, lru_cache
from importlib import resources

from ozaki.schemes import Words

_UNIT = 256
"""Sizes that are equal in these units have as many tiles, or nearly so, and share an entry."""

Size = tuple[int, int, int]


Choice = tuple[int, ...]
"""What an engine of words is made of: three numbers of those with wgmma, five of that with mma.sync."""


@cache
def table() -> dict[str, dict[str, dict[Size, Choice]]]:
    """All entries, by architecture and method."""
    lists = json.loads(resources.files("ozaki").joinpath("data", "tiles.json").read_text("utf-8"))
    return {
        architecture: {
            method: {_in_units(*entry[:3]): tuple(entry[3:]) for entry in entries}
            for method, entries in methods.items()
        }
        for architecture, methods in lists.items()
    }


def choice(architecture: str, words: Words, batch: int, m: int, k: int, n: int, numbers: int) -> Choice | None:
    """What was fastest for such a product, of an engine of so many numbers; None where none was tuned."""
    if batch != 1 or architecture not in table():
        return None
    found = _found(architecture, words, m, k, n)
    return found if found is not None and len(found) == numbers else None


@lru_cache(maxsize=1024)
def _found(architecture: str, words: Words, m: int, k: int, n: int) -> Choice | None:
    return table()[architecture].get(words.name, {}).get(_in_units(m, k, n))


def _in_units(m: int, k: int, n: int) -> Size:
    return -(-m // _UNIT), -(-k // _UNIT), -(-n // _UNIT)
