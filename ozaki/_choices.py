"""What a caller may choose of a product."""

from __future__ import annotations

from typing import Any, NamedTuple

from ozaki._accuracy import Accuracy
from ozaki.schemes import PRESETS, Words


class Choices(NamedTuple):
    """The choices of `ozaki.matmul`, as they were made."""

    accuracy: Accuracy | str | float | None = None
    scheme: str | Words = "auto"
    slices: int | None = None
    engine: str = "auto"
    reproducible: bool = False
    workspace_limit: int | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells them from all others: 60 bits are not 60.0, which is refused, though the numbers are equal."""
        return *self, *map(type, self)

    @property
    def made(self) -> list[str]:
        """The names of those that were made."""
        chosen = zip(self._fields, self, Choices(), strict=True)
        return [name for name, x, default in chosen if type(x) is not type(default) or x != default]

    @property
    def leave_slices(self) -> bool:
        """Whether the number of slices is left to the library."""
        words = isinstance(self.scheme, Words) or self.scheme in PRESETS
        return self.slices is None and not words

    @property
    def normwise(self) -> bool:
        """The accuracy is that of whole matrices."""
        return isinstance(self.accuracy, Accuracy) and self.accuracy.measure == "normwise"

    def target(self, k: int) -> Accuracy | None:
        """The accuracy for inner dimension k, spelled out, if one is named."""
        return None if self.accuracy is None else Accuracy.of(self.accuracy, k)
