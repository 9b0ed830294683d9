"""How an element that cannot be converted is named."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


class UnfitError(Exception):
    """An element cannot be converted.

    Parameters
    ----------
    position : int
        Its place in row-major order.
    error : ValueError or TypeError
        Whose text goes on where the name of the element ends: "is nan; ..."
    """

    def __init__(self, position: int, error: ValueError | TypeError) -> None:
        super().__init__(position, error)
        self.position, self.error = position, error

    def named(self, shape: tuple[int, ...]) -> ValueError | TypeError:
        """The error to raise for an element of an array of that shape."""
        index = np.unravel_index(self.position, shape) if shape else ()
        return type(self.error)(f"x: {element(index)} {self.error}")


def element(index: Sequence[object]) -> str:
    """The name of an element in a message."""
    return f"element {[int(i) for i in index]}" if len(index) else "the number"  # type: ignore[call-overload]
