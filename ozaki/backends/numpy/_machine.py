"""The host of NumPy arrays, as planning asks about it (`planning.question.Machine`)."""

from __future__ import annotations

from ozaki.backends.numpy import engines
from ozaki.planning.question import Way
from ozaki.records.shapes import Shapes
from ozaki.schemes import Scheme, Words
from ozaki.schemes.formats import H100, TensorCore
from ozaki.schemes.row_digits import RowDigits

finds_facts_on_device = False
entry_apart = 500.0
"""An exact inner product of floats takes some 100 times as long as one of residues, more where columns are strided."""
foretelling = 2.0**26
"""A sample, flags, and lists: some milliseconds."""
timed = True


def core() -> TensorCore:
    """The tensor cores that NumPy models in software for presets of words that are given by name."""
    return H100


def obstacle(scheme: Scheme | Words, engine: str) -> str | None:
    """Why this scheme does not run, or not by the engine of that name; None if it runs, as all words do.

    NumPy models every tensor core.
    """
    return None if isinstance(scheme, Words | RowDigits) else engines.obstacle(scheme, engine)


def fastest(sizes: Shapes, dtype: str, ways: tuple[Way, ...]) -> Way:
    """The native product (None) if it is among the ways, else the first of them.

    A product by slices takes as long as several native float64 products, one by words far longer.
    """
    return None if None in ways else ways[0]


def seconds(sizes: Shapes, dtype: str, way: Way) -> None:
    """Return None: there are too many processors and BLAS libraries for a table of rates."""
