"""What planning asks about the host of NumPy arrays (`planning.question.Machine`)."""

from __future__ import annotations

from ozaki.planning.question import Way
from ozaki.schemes import Words
from ozaki.schemes.formats import H100, TensorCore

waits = False


def core() -> TensorCore:
    """The tensor cores that the presets of words have: NumPy models them in software."""
    return H100


def words_obstacle(words: Words) -> None:
    """Nothing: every tensor core is modelled."""


def fastest(stack: tuple[int, int, int], k: int, dtype: str, ways: tuple[Way, ...]) -> Way:
    """The native product if it will do: one by slices costs several in float64, one by words far more."""
    return None if None in ways else ways[0]


def seconds(stack: tuple[int, int, int], k: int, dtype: str, way: Way) -> None:
    """Nothing: processors and BLAS libraries are too many for a table."""
