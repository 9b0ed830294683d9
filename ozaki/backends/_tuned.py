"""Tiles that were the fastest when a device was tuned: data/tiles.json, written by `python -m benchmarks.tiles`.

By architecture and method, products are listed as [m, k, n, columns, group, stages]; what is not listed goes by the
rule of the kernel's engine. As Ootomo and Yokota choose for each size (IJHPCA 2022, section 3.5.1).
"""

from __future__ import annotations

import json
from functools import cache, lru_cache
from importlib import resources
from typing import NamedTuple

from ozaki.schemes import Words

_UNIT = 256
"""Sizes that are equal in these units have as many tiles, or nearly so, and share an entry."""

Size = tuple[int, int, int]


class Tiles(NamedTuple):
    """Columns of a tile, pairs of row tiles walked together, stages of the ring."""

    columns: int
    group: int
    stages: int


@cache
def table() -> dict[str, dict[str, dict[Size, Tiles]]]:
    """All entries, by architecture and method."""
    lists = json.loads(resources.files("ozaki").joinpath("data", "tiles.json").read_text("utf-8"))
    return {
        architecture: {
            method: {_in_units(*entry[:3]): Tiles(*entry[3:]) for entry in entries}
            for method, entries in methods.items()
        }
        for architecture, methods in lists.items()
    }


def tiles(architecture: str, words: Words, m: int, k: int, n: int) -> Tiles | None:
    """What was fastest for such a product; None where none was tuned."""
    if architecture not in table():
        return None
    return _found(architecture, words, m, k, n)


@lru_cache(maxsize=1024)
def _found(architecture: str, words: Words, m: int, k: int, n: int) -> Tiles | None:
    return table()[architecture].get(words.name, {}).get(_in_units(m, k, n))


def _in_units(m: int, k: int, n: int) -> Size:
    return -(-m // _UNIT), -(-k // _UNIT), -(-n // _UNIT)
