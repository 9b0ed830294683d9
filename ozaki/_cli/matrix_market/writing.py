"""Writing a dense matrix as a MatrixMarket file."""

from __future__ import annotations

from io import BufferedIOBase
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki._cli.matrix_market.header import BANNER


def write(file: BufferedIOBase, matrix: npt.NDArray[Any]) -> None:
    """Write a matrix in array format, each number by the fewest digits whose nearest float64 it is.

    A complex element is two numbers, its real and its imaginary part. Integers are written as such. NaN and Inf are
    written as nan, inf and -inf, which C, SciPy and this library read.

    Parameters
    ----------
    file : binary file
    matrix : array of float32, float64, complex64, complex128 or int64, of two dimensions
    """
    rows, columns = matrix.shape
    field = {"i": "integer", "f": "real", "c": "complex"}[matrix.dtype.kind]
    file.write(f"{BANNER} array {field} general\n{rows} {columns}\n".encode("ascii"))
    for column in matrix.T if matrix.size else ():
        if field == "complex":
            lines = [f"{x!r} {y!r}\n" for x, y in zip(_numbers(column.real), _numbers(column.imag), strict=True)]
        else:
            lines = [f"{x!r}\n" for x in _numbers(column)]
        file.write("".join(lines).encode("ascii"))


def _numbers(column: npt.NDArray[Any]) -> list[int] | list[float]:
    """Return the numbers of a column as Python's.

    A float32 becomes a float64: it is read as one, and the fewer digits of a float32 would be read as another number.
    """
    found: list[int] | list[float] = (column if column.dtype.kind == "i" else column.astype(np.float64)).tolist()
    return found
