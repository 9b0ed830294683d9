"""Writing a dense matrix as a MatrixMarket file."""

from __future__ import annotations

from io import BufferedIOBase
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki._cli.matrix_market.header import BANNER


def write(file: BufferedIOBase, matrix: npt.NDArray[Any]) -> None:
    """Write a matrix in array format, each element by the fewest digits whose nearest float64 it is.

    Integers are written as such. NaN and Inf are written as nan, inf and -inf, which C, SciPy and this library read.

    Parameters
    ----------
    file : binary file
    matrix : array of float32, float64 or int64, of two dimensions
    """
    rows, columns = matrix.shape
    whole = matrix.dtype.kind == "i"
    file.write(f"{BANNER} array {'integer' if whole else 'real'} general\n{rows} {columns}\n".encode("ascii"))
    for column in matrix.T if matrix.size else ():
        # A float32 is written as a float64, too: it is read as one, and fewer digits would be read as another number.
        elements = (column if whole else column.astype(np.float64)).tolist()
        file.write("".join([f"{x!r}\n" for x in elements]).encode("ascii"))
