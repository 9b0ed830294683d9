"""The outcome of the self-test: which products have the published bits, in words and as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import ozaki
from ozaki._cli.selftest import Hashes
from ozaki._cli.selftest.products import PRODUCTS, Product
from ozaki.records.report import several


@dataclass
class Bits:
    """The bits of the products on one device.

    Attributes
    ----------
    device : its name
    published : the hashes that the products should have
    hashes : those that they have
    """

    device: str
    published: Hashes
    hashes: Hashes = field(default_factory=dict)

    def add(self, product: Product, its_hash: str) -> None:
        """Take down the hash of a product."""
        self.hashes.setdefault(product.group, {})[product.name] = its_hash

    @property
    def differing(self) -> list[str]:
        """The products that have other bits than the published ones, as "complex: fp64"."""
        return [f"{group}: {name}" for group in self.hashes for name in self.differing_in(group)]

    def differing_in(self, group: str) -> list[str]:
        """Return the products of a group that have other bits than the published ones."""
        known = self.published.get(group, {})
        return [name for name, its_hash in self.hashes[group].items() if known.get(name) != its_hash]

    def as_json(self) -> dict[str, Any]:
        """Return the outcome as plain data."""
        return {"device": self.device, "differing": self.differing, "hashes": self.hashes}

    def __str__(self) -> str:
        lines = [self.device]
        for group, of_products in self.hashes.items():
            wrong = self.differing_in(group)
            found = f"{len(wrong)} with OTHER BITS: {'; '.join(wrong)}" if wrong else "the published bits"
            lines.append(f"  {group:<24}{several(len(of_products), 'product')}, {found}")
        return "\n".join(lines)


def in_words(found: list[Bits]) -> str:
    """Return a line for each group of products on each device, and the verdict."""
    where = " and on ".join("the CPU" if bits.device == "CPU" else bits.device.partition(",")[0] for bits in found)
    count, wrong = len(PRODUCTS), sum(len(bits.differing) for bits in found)
    verdict = f"All {count} products have the bits that ozaki {ozaki.__version__} publishes, on {where}."
    if wrong:
        verdict = (
            f"{several(wrong, 'product')} of {count} on {where} with other bits than ozaki {ozaki.__version__} "
            "publishes: please report this, with what `ozaki info` prints."
        )
    return "\n".join([*map(str, found), verdict])
