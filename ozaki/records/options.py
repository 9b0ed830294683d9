"""The options that a caller makes for a product."""

from __future__ import annotations

from typing import Any, NamedTuple

from ozaki.records.accuracy import Accuracy, of_text
from ozaki.schemes import PRESETS, Words


class Options(NamedTuple):
    """The keyword arguments of `ozaki.matmul` that choose how a product is computed, as the caller gave them."""

    accuracy: Accuracy | str | float | None = None
    scheme: str | Words = "auto"
    slices: int | None = None
    engine: str = "auto"
    reproducible: bool = False
    workspace_limit: int | None = None
    dtype: str | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        """A hashable key of these options, types included: 60 are bits and 60.0 is refused, but they compare equal."""
        return *self, *map(type, self)

    @property
    def made(self) -> list[str]:
        """Names of the options that are not at their defaults, but for `dtype`, which may stand beside a plan."""
        chosen = zip(self._fields, self, Options(), strict=True)
        made = [name for name, x, default in chosen if type(x) is not type(default) or x != default]
        return [name for name in made if name != "dtype"]

    @property
    def leave_slices(self) -> bool:
        """Whether the number of slices is left to the library."""
        words = isinstance(self.scheme, Words) or self.scheme in PRESETS
        return self.slices is None and not words

    @property
    def normwise(self) -> bool:
        """Whether the named accuracy is normwise."""
        accuracy = of_text(self.accuracy) if isinstance(self.accuracy, str) else self.accuracy
        return isinstance(accuracy, Accuracy) and accuracy.measure == "normwise"

    def target(self, k: int) -> Accuracy | None:
        """The named accuracy for inner dimension k, shorthands spelled out; None if none is named."""
        return None if self.accuracy is None else Accuracy.of(self.accuracy, k)
