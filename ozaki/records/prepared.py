"""An operand that is split already."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

from ozaki.records.plan import Plan


@dataclass(frozen=True, eq=False)
class Prepared:
    """An operand that is split already; it takes the operand's place in `matmul` with the same plan.

    Copying returns the object itself, since it never changes. It cannot be pickled: its slices are made for the device
    that they lie on.

    Attributes
    ----------
    side : str
        "left" or "right".
    plan : Plan
        The plan that it was split for.
    shape, dtype
        Of the operand.
    slices, backend
        The split operand and the backend that split it; private to the library.
    """

    side: Literal["left", "right"]
    plan: Plan
    shape: tuple[int, ...]
    dtype: str
    slices: Any = field(repr=False)
    backend: Any = field(repr=False)

    @property
    def _an_array(self) -> Any:
        """The rows; all that was split lies where they do (`process.placement.where_they_lie`)."""
        return self.slices.x

    def __copy__(self) -> Prepared:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Prepared:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Prepared operand cannot be pickled; pickle the operand and `prepared.plan`, and prepare it again with "
            f"ozaki.prepare(operand, {self.side!r}, plan)"
        )
