"""Matrices of floats or multiprecision numbers as integers times powers of two of their rows and columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.linalg.determinants import modular
from ozaki.multiprecision.numbers import Numbers
from ozaki.multiprecision.objects import mparray


def integers(a: Any) -> tuple[int, modular.Wholes, modular.Wholes | None]:
    """An exponent e and integers, real and imaginary parts, whose determinant times 2**e is that of a.

    No rows stand for a matrix with a row or column of zeros.

    Raises
    ------
    numpy.linalg.LinAlgError
        If elements lie so far apart that the integers have too many bits.
    """
    x = a if isinstance(a, Numbers) else mparray(a)
    parts = [part.to_ints() for part in ((x.real, x.imag) if x.is_complex else (x,))]  # type: ignore[attr-defined]
    far = np.iinfo(np.int64).max
    lowest = np.min([np.where(wholes != 0, exponents, far) for wholes, exponents in parts], axis=0)
    rows = lowest.min(axis=1, initial=far)
    if (rows == far).any() or (lowest.min(axis=0, initial=far) == far).any():
        return 0, [], None
    columns = np.where(lowest == far, far, lowest - rows[:, None]).min(axis=0, initial=far)
    by = rows[:, None] + columns
    found = [_shifted(wholes, np.where(wholes != 0, exponents - by, 0)) for wholes, exponents in parts]
    return sum(rows.tolist()) + sum(columns.tolist()), found[0], found[1] if len(found) > 1 else None


def _shifted(wholes: npt.NDArray[Any], shifts: npt.NDArray[np.int64]) -> modular.Wholes:
    """Integers times powers of two."""
    spans = shifts.max(axis=1, initial=0).tolist()
    if sum(spans) > modular.MOST_BITS:
        raise np.linalg.LinAlgError(
            f"a: elements lie up to 2^{max(spans)} apart, so an exact determinant may have {sum(spans)} bits; expected "
            f"at most {modular.MOST_BITS}"
        )
    rows = zip(wholes.tolist(), shifts.tolist(), strict=True)
    return [[x << shift for x, shift in zip(*row, strict=True)] for row in rows]
