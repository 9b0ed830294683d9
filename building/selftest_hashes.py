"""Publish the bits of the products of `ozaki selftest` anew: compute them on NumPy, and write ozaki/data/selftest.json.

    python -m building.selftest_hashes

This is for products that are added, and for bits that change on purpose, which the changelog then lists.
"""

from __future__ import annotations

import json
from pathlib import Path

from ozaki._cli.devices import Place
from ozaki._cli.selftest import Hashes, hash_on
from ozaki._cli.selftest.products import PRODUCTS

FILE = Path(__file__).parents[1] / "ozaki" / "data" / "selftest.json"


def text() -> str:
    """Return what the file has to hold."""
    found: Hashes = {}
    for product in PRODUCTS:
        found.setdefault(product.group, {})[product.name] = hash_on(Place("cpu", "CPU"), product)
    return json.dumps(found, indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
    print(f"written: {FILE}")
