"""What parts of rows say of the whole rows: two arrays, merged by maximum and by addition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy import parts
from ozaki.bounds import merging
from ozaki.bounds.description import Description
from ozaki.interchange.plain import plain
from ozaki.records.formats import DTYPES, is_complex
from ozaki.records.shapes import SIDES, Side


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of A, or the columns of B, as a product needs to know them; `describe` makes them.

    Attributes
    ----------
    description : Description
        Integers of each row, each of shape (1, rows).
    k : int
        Inner dimension of the whole product.
    dtype : str
        The format of the elements.
    """

    description: Description
    k: int
    dtype: str

    def __len__(self) -> int:
        return int(self.description.top.shape[1])

    def __getitem__(self, rows: slice) -> Rows:
        """Some of the rows: for a tile of the product."""
        if not isinstance(rows, slice):
            raise TypeError(f"rows: {rows!r}; expected a slice, as 2:5")
        return Rows(self.description.part(slice(None), rows), self.k, self.dtype)


def as_rows(name: str, x: Any, side: Side) -> npt.NDArray[Any]:
    """A part of an operand as rows of A or columns of B, shape (1, rows, indices).

    Raises
    ------
    TypeError, ValueError
    """
    if side not in SIDES:
        raise ValueError(f"side: {side!r}; expected 'left' or 'right'")
    if not isinstance(x, np.ndarray):
        raise TypeError(f"{name}: {type(x).__name__}; expected an array of NumPy")
    if x.ndim != 2:
        raise ValueError(f"{name}: {x.ndim} axes; expected a matrix")
    found = plain(name, x)  # no masks, no matrices
    if str(found.dtype) not in DTYPES:
        raise TypeError(f"{name}: dtype {found.dtype}; expected one of {', '.join(DTYPES)}")
    return (found if side == "left" else found.T)[None]


def extremes(x: npt.NDArray[Any], side: Side) -> npt.NDArray[np.float64]:
    """The first round: the extreme elements of each row of a part of an operand.

    Parameters
    ----------
    x : array, shape (m, indices) of A, (indices, n) of B; float32, float64, complex64 or complex128
        Some of the inner indices; none counts, too.
    side : {"left", "right"}

    Returns
    -------
    array, float64, shape (2, rows)
        The largest magnitude, and minus the smallest one that is not zero, of each row of A or column of B: merge those
        of all parts by their maximum (`numpy.maximum`, MPI.MAX).

    Raises
    ------
    TypeError, ValueError

    Examples
    --------
    >>> import numpy as np
    >>> from ozaki import parts
    >>> parts.extremes(np.array([[1.0, -8.0, 0.0]]), "left").tolist()
    [[8.0], [-1.0]]
    """
    with np.errstate(all="ignore"):
        return parts.extremes(as_rows("x", x, side))


def sums(x: npt.NDArray[Any], side: Side, merged: npt.NDArray[np.float64], k: int) -> npt.NDArray[np.int64]:
    """The second round: sums over the inner indices of a part, in units that the merged extremes give.

    Parameters
    ----------
    x, side : as for `extremes`
    merged : array, float64, shape (2, rows)
        The maximum of the extremes of all parts.
    k : int
        Inner dimension of the whole product.

    Returns
    -------
    array, int64, shape (4, rows)
        Add those of all parts (MPI.SUM): no sum overflows.

    Raises
    ------
    TypeError, ValueError
    """
    rows = as_rows("x", x, side)
    _check_merged("merged", merged, "float64", 2, rows.shape[1])
    if _length(k) < rows.shape[2]:
        raise ValueError(f"k: {k}; expected that of the whole product, at least the {rows.shape[2]} indices of x")
    with np.errstate(all="ignore"):
        return parts.sums(rows, merged, _reals(str(x.dtype), k))


def describe(merged: npt.NDArray[np.float64], added: npt.NDArray[np.int64], k: int, dtype: str) -> Rows:
    """The rows, out of the merged results of both rounds (docs/definitions.md, 1).

    Parameters
    ----------
    merged : array, float64, shape (2, rows), the maximum of all `extremes`
    added : array, int64, shape (4, rows), the sum of all `sums`
    k : inner dimension of the whole product
    dtype : the format of the elements

    Returns
    -------
    Rows

    Raises
    ------
    ValueError
    """
    if str(dtype) not in DTYPES:
        raise ValueError(f"dtype: {dtype!r}; expected one of {', '.join(DTYPES)}")
    _check_merged("merged", merged, "float64", 2, np.shape(merged)[-1] if np.ndim(merged) else 0)
    _check_merged("added", added, "int64", 4, merged.shape[1])
    return Rows(merging.described(merged, added, _reals(str(dtype), k), str(dtype)), _length(k), str(dtype))


def _reals(dtype: str, k: int) -> int:
    """Real numbers of a whole row."""
    return 2 * _length(k) if is_complex(dtype) else _length(k)


def _length(k: Any) -> int:
    """An inner dimension, checked."""
    if not hasattr(k, "__index__") or k < 0:
        raise ValueError(f"k: {k!r}; expected the inner dimension of the whole product, a whole number")
    return int(k)


def _check_merged(name: str, x: Any, dtype: str, rounds: int, rows: int) -> None:
    if not isinstance(x, np.ndarray) or str(x.dtype) != dtype:
        found = f"dtype {x.dtype}" if isinstance(x, np.ndarray) else type(x).__name__
        raise TypeError(f"{name}: {found}; expected an array of {dtype}, merged from those of all parts")
    if x.shape != (rounds, rows):
        raise ValueError(f"{name}: shape {x.shape}; expected {(rounds, rows)}, as all parts have it")
