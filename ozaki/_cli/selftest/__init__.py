"""The self-test: a fixed set of products, whose bits are compared with published ones."""

from __future__ import annotations

import hashlib
import json
from functools import partial
from importlib import resources
from typing import Any

import numpy as np

import ozaki
from ozaki._cli.devices import Place, placed, to_host
from ozaki._cli.printing import format_of
from ozaki._cli.selftest.products import Product

Hashes = dict[str, dict[str, str]]
"""The hash of each product, by the names of its group and its own."""


def published() -> Hashes:
    """Return the hashes that data/selftest.json has; `python -m building.selftest_hashes` writes that file."""
    found: Hashes = json.loads(resources.files("ozaki").joinpath("data", "selftest.json").read_text("utf-8"))
    return found


def hash_on(place: Place, product: Product) -> str:
    """Compute a product on a device, and return the hash of its bits."""
    with place.entered():
        return hash_of(to_host(product.compute(partial(placed, device=place.kind))))


def hash_of(c: Any) -> str:
    """Return the SHA-256 of the format, the shape and the bits of an array or an MPArray.

    The bits are those of the elements in row-major order, of multiprecision numbers those of signs, exponents and
    limbs, one after the other, with the lowest byte of each number first.
    """
    planes = (c.signs, c.exponents, c.limbs) if isinstance(c, ozaki.MPArray) else (c,)
    found = hashlib.sha256(f"{format_of(c)} {c.shape}".encode("ascii"))
    for plane in planes:
        found.update(np.ascontiguousarray(plane, plane.dtype.newbyteorder("<")).tobytes())
    return found.hexdigest()
