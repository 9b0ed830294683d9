"""What results have beside the items of their tuples."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

_Of = TypeVar("_Of", bound="Bounded")


def largest_of_each(bounds: npt.NDArray[np.float64]) -> Any:
    """The largest bound of the last axis: of a stack an array, of one matrix a float; 0 where there is none."""
    found = bounds.max(axis=-1, initial=0.0)
    return found if bounds.ndim > 1 else float(found)


class Bounded:
    """A result with error bounds of its parts: a class beside the named tuple of a result, whose items stay as many.

    Attributes
    ----------
    error_bounds : NumPy array of float64
        One bound for each column of a solution, each eigenvalue, each entry, as the result says; `error_bound` is the
        largest.
    """

    error_bounds: npt.NDArray[np.float64]

    @classmethod
    def of(cls: type[_Of], *items: Any, error_bounds: npt.NDArray[np.float64]) -> _Of:
        """A result with these items and bounds."""
        found = cls(*items)
        found.error_bounds = error_bounds
        return found

    def _replace(self: _Of, **changes: Any) -> _Of:
        """The result with other items, as of named tuples, and the same bounds, unless these are changed, too."""
        bounds = changes.pop("error_bounds", self.error_bounds)
        found: _Of = super()._replace(**changes)  # type: ignore[misc]
        found.error_bounds = bounds
        return found
