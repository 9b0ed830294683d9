"""What parts of rows say of the whole rows: two arrays, merged by maximum and by addition."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.parts import parts_at
from ozaki.bounds import merging
from ozaki.bounds.description import Description
from ozaki.call.operands import dtype_of
from ozaki.interchange.plain import plain
from ozaki.process.placement import on_gpu, where_they_lie
from ozaki.records.formats import DTYPES, format_named, is_complex
from ozaki.records.shapes import SIDES, Side


@dataclass(frozen=True, eq=False)
class Rows:
    """What a product needs to know of the rows of A, or the columns of B; `describe` makes it.

    `len(rows)` is their number, and `rows[slice]` is the same of some of them, for a tile of the product.

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
        """The descriptions of some of the rows, for a tile of the product."""
        if not isinstance(rows, slice):
            raise TypeError(f"rows: {rows!r}; expected a slice, as 2:5")
        return Rows(self.description.part(slice(None), rows), self.k, self.dtype)


def as_rows(name: str, x: Any, side: Side) -> Any:
    """A part of an operand, called `name` in messages, as rows of A or columns of B, shape (1, rows, indices).

    It is an array of NumPy, or on a GPU one of CuPy.

    Raises
    ------
    TypeError, ValueError
    """
    if side not in SIDES:
        raise ValueError(f"side: {side!r}; expected 'left' or 'right'")
    if not (on_gpu(x) or isinstance(x, np.ndarray)):
        raise TypeError(f"{name}: {type(x).__name__}; expected an array of NumPy or CuPy, as numpy.asarray({name})")
    matrix = x if on_gpu(x) else plain(name, x)
    if matrix.ndim != 2:
        raise ValueError(f"{name}: {matrix.ndim} axes; expected a matrix, two axes")
    dtype_of(name, matrix)
    return (matrix if side == "left" else matrix.T)[None]


def extremes(x: Any, side: Side) -> npt.NDArray[np.float64]:
    """The first round: the extreme elements of each row of a part of an operand.

    Parameters
    ----------
    x : array of NumPy or CuPy, float32, float64, complex64 or complex128
        Shape (m, indices) of A, (indices, n) of B: all rows or columns, at some of the inner indices, or at none.
    side : {"left", "right"}
        Whether x is a part of A or of B.

    Returns
    -------
    array, float64, shape (2, rows)
        The largest magnitude, and minus the smallest one that is not zero, of each row of A or column of B, NaN and Inf
        left out: 0 and -inf of a row of zeros. Merge those of all parts by their maximum (`numpy.maximum`, MPI.MAX).

    Raises
    ------
    TypeError, ValueError
        For an array of another library, shape or dtype, and for another side.

    Examples
    --------
    >>> import numpy as np
    >>> from ozaki import parts
    >>> parts.extremes(np.array([[1.0, -8.0, 0.0]]), "left").tolist()
    [[8.0], [-1.0]]
    """
    rows = as_rows("x", x, side)
    with np.errstate(all="ignore"), where_they_lie((("x", x),)):
        found: npt.NDArray[np.float64] = parts_at(x).extremes(rows)
    return found


def sums(x: Any, side: Side, merged: npt.NDArray[np.float64], k: int) -> npt.NDArray[np.int64]:
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
        Of magnitudes, of their squares, and counts of elements that are no multiples of the unit, and of NaN and Inf.
        Add those of all parts (MPI.SUM): no sum overflows. An array of NumPy, as of `extremes`.

    Raises
    ------
    TypeError, ValueError
        As `extremes`, and for merged extremes of other rows.

    Examples
    --------
    >>> import numpy as np
    >>> from ozaki import parts
    >>> x = np.array([[1.0, -8.0, 0.0, np.inf]])
    >>> merged = np.maximum(parts.extremes(x[:, :1], "left"), parts.extremes(x[:, 1:], "left"))
    >>> both = parts.sums(x[:, :1], "left", merged, 4) + parts.sums(x[:, 1:], "left", merged, 4)
    >>> np.array_equal(both, parts.sums(x, "left", merged, 4)), int(both[3, 0])
    (True, 1)
    """
    rows = as_rows("x", x, side)
    _check_k(k)
    if k < rows.shape[2]:
        raise ValueError(f"k: {k}; expected that of the whole product, at least the {rows.shape[2]} indices of x")
    _check_merged("merged", merged, "float64", 2, rows.shape[1])
    with np.errstate(all="ignore"), where_they_lie((("x", x),)):
        found: npt.NDArray[np.int64] = parts_at(x).sums(rows, merged, _reals(str(rows.dtype), k))
    return found


def describe(merged: npt.NDArray[np.float64], added: npt.NDArray[np.int64], k: int, dtype: str) -> Rows:
    """The rows, out of the merged results of both rounds (docs/definitions.md, 1).

    Parameters
    ----------
    merged : array, float64, shape (2, rows)
        The maximum of all `extremes`.
    added : array, int64, shape (4, rows)
        The sum of all `sums`.
    k : int
        Inner dimension of the whole product.
    dtype : str or dtype
        The format of the elements: "float32", "float64", "complex64" or "complex128".

    Returns
    -------
    Rows

    Raises
    ------
    TypeError, ValueError
        For arrays of other shapes, or another format.

    Examples
    --------
    >>> import numpy as np
    >>> from ozaki import parts
    >>> x = np.array([[1.0, -8.0, 0.0], [2.0, 2.0, 2.0]])
    >>> merged = parts.extremes(x, "left")
    >>> len(parts.describe(merged, parts.sums(x, "left", merged, 3), 3, "float64"))
    2
    """
    name = format_named(dtype)
    if name not in DTYPES:
        raise ValueError(f"dtype: {dtype!r}; expected one of {', '.join(DTYPES)}")
    _check_k(k)
    _check_merged("merged", merged, "float64", 2, np.shape(merged)[-1] if np.ndim(merged) else 0)
    _check_merged("added", added, "int64", 4, merged.shape[1])
    return Rows(merging.described(merged, added, _reals(name, k), name), k, name)


def _reals(dtype: str, k: int) -> int:
    """Real numbers of a whole row."""
    return 2 * k if is_complex(dtype) else k


def _check_k(k: Any) -> None:
    """Refuse what is no inner dimension.

    Raises
    ------
    ValueError
    """
    if isinstance(k, bool) or not isinstance(k, Integral) or k < 0:
        raise ValueError(f"k: {k!r}; expected the inner dimension of the whole product, a whole number")


def _check_merged(name: str, x: Any, dtype: str, count: int, rows: int) -> None:
    """Refuse the result of a round that has not `count` numbers of a dtype for each of so many rows.

    Raises
    ------
    TypeError, ValueError
    """
    if not isinstance(x, np.ndarray) or str(x.dtype) != dtype:
        found = f"dtype {x.dtype}" if isinstance(x, np.ndarray) else type(x).__name__
        raise TypeError(f"{name}: {found}; expected an array of {dtype}, merged from those of all parts")
    if x.shape != (count, rows):
        raise ValueError(f"{name}: shape {x.shape}; expected {(count, rows)}, as all parts have it")
