"""Entries of a product that are undecided when they are rounded, on NumPy (docs/bounds.md, B14)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy import _limbs
from ozaki.bounds.description import Description
from ozaki.bounds.undecided import Floats, RowErrors, row_errors
from ozaki.schemes import Scheme


class Undecided:
    """Which entries of a product, or of a part of it, are undecided: flags that are set where it is rounded.

    Attributes
    ----------
    errors : of the rows and columns of the product
    flags : bool, shape (batch, m, n)
    """

    def __init__(self, errors: RowErrors, flags: npt.NDArray[np.bool_]) -> None:
        self.errors, self.flags = errors, flags

    @classmethod
    def of(cls, left: Description, right: Description, scheme: Scheme, shape: tuple[int, ...]) -> Undecided | None:
        """Those of a whole product of a shape (batch, m, n); None if no entry has an error."""
        errors = row_errors(left, right, scheme)
        return None if errors.vanish else cls(errors, np.zeros(shape, np.bool_))

    def at(self, at: tuple[slice, slice, slice]) -> Undecided:
        """Those of a part of the product: some matrices, rows and columns."""
        return Undecided(self.errors.at(*at), self.flags[at])

    @property
    def count(self) -> int:
        """Number of undecided entries."""
        return int(np.count_nonzero(self.flags))

    def entries(self, at: tuple[slice, slice]) -> npt.NDArray[np.int64]:
        """The undecided entries of some rows of some matrices: indices of matrices, rows, columns, shape (3, count)."""
        found = np.stack(np.nonzero(self.flags[at]))
        found[0] += at[0].start or 0
        found[1] += at[1].start or 0
        return found


def undecided_bytes(shape: tuple[int, ...]) -> int:
    """Bytes that the flags and the errors of a product of a shape (batch, m, n) take."""
    batch, m, n = shape
    return batch * (m * n + 16 * (m + n))


def round_decided(
    limbs: Floats,
    rows: npt.NDArray[np.int64],
    columns: npt.NDArray[np.int64],
    out: npt.NDArray[Any],
    undecided: Undecided,
) -> None:
    """Do as `_limbs.round_scaled` does with both ends of each error interval, and flag entries where they differ.

    Undecided entries of out are one of both ends. `limbs` is overwritten.
    """
    errors = undecided.errors.of_entries().reshape(limbs.shape[1:])
    shift = max(int(np.frexp(errors.max(initial=0.0))[1]) - 50, 0)
    whole = np.ceil(errors * 2.0**-shift)
    below = limbs.copy()
    _limbs.add_shifted(limbs, whole, shift)
    _limbs.add_shifted(below, -whole, shift)
    other = np.empty(out.shape, out.dtype)
    _limbs.round_scaled(below, rows, columns, other)
    _limbs.round_scaled(limbs, rows, columns, out)
    bits = f"i{out.itemsize}"
    np.not_equal(np.ascontiguousarray(out).view(bits), other.view(bits), out=undecided.flags)
