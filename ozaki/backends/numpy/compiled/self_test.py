"""Whether a compiled library computes what it should, on this processor, before anything is computed by it."""

from __future__ import annotations

from ctypes import CDLL

import numpy as np

from ozaki.backends.numpy.compiled import calls
from ozaki.backends.numpy.compiled.structures import declare
from ozaki.backends.numpy.compiled.tables import tables_of
from ozaki.backends.numpy.compiled.wide_structures import declare_wide
from ozaki.schemes.moduli import first_moduli

INTERFACE = 2
"""The version of the functions of `kernels/cpu/library.cpp`; it goes up with each change of one."""


def self_test(library: CDLL) -> str | None:
    """Why a library is not to be used, in words that follow its name; None if it passes.

    Its processor has the instructions that it takes.
    """
    if (failure := wrong_interface(library)) is not None:
        return failure
    declare(library)
    declare_wide(library)
    for moduli in (first_moduli(14), first_moduli(7)):
        if not all(_products_are_right(library, moduli, k) for k in (5, 1030)):
            return "multiplies wrongly on this processor"
    return None


def wrong_interface(library: CDLL) -> str | None:
    """Why the functions of a library are not those that are called here; None if they are."""
    version = library.ozaki_cpu_interface()
    return None if version == INTERFACE else f"is of other sources (interface {version}, expected {INTERFACE})"


def _products_are_right(library: CDLL, moduli: tuple[int, ...], k: int) -> bool:
    """Whether residues of images whose residues are extreme have the right products, beyond 2**24 in their sums.

    Units that add pairs of products in 16 bits, as there are without VNNI, would saturate.
    """
    tables = tables_of(moduli)
    images = np.array([0, 1, -1, 127, -128, 255, 2**52 - 1, -(2**52) + 1, 12345678901], np.float64)
    rows = np.resize(images, (1, 9, k))
    columns = np.resize(images[::-1], (1, 50, k))
    rows[0, 0], columns[0, 0] = -128, 255
    zeros = [np.zeros(x.shape[:2], np.int64) for x in (rows, columns)]
    left, right = (
        calls.split(library, x, mu, side, tables)
        for x, mu, side in zip((rows, columns), zeros, ("left", "right"), strict=True)
    )
    residues = calls.multiply(library, left, right, tables)
    integers = rows[0].astype(np.int64), columns[0].astype(np.int64).T
    for m, inverse, found in zip(moduli, tables.crt.inverses, residues, strict=True):
        x, y = (each % m for each in integers)
        if ((found[0] - inverse * (x @ y % m)) % m).any():
            return False
    return True
