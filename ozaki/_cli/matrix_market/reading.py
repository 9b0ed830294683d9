"""Reading a MatrixMarket file as a dense matrix."""

from __future__ import annotations

import os
from collections.abc import Iterator
from io import BufferedIOBase
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki._cli.matrix_market.entries import Block, Indices, Values, read_blocks
from ozaki._cli.matrix_market.header import Header, read_header
from ozaki.call.integers import of_objects


def read(file: BufferedIOBase, integers: bool = False) -> npt.NDArray[Any]:
    """Read a matrix of real or complex numbers, of integers, or of a pattern, whose entries become ones.

    Parameters
    ----------
    file : binary file
    integers : bool
        Whether a file of integers becomes an array of integers.

    Returns
    -------
    array of float64 or complex128; of integers one of int64, uint64 or, beyond these, of Python's
        Each element, or part of a complex one, is the float64 nearest to the decimal number in the file.

    Raises
    ------
    ValueError
        If the file violates the format, a number is beyond the range of float64, an integer that is to become one is
        not exactly a float64, an entry comes twice, or one on the diagonal of a skew-symmetric matrix is not 0, or of a
        hermitian one not real. The message names the line and, if the reason is a word, its column.
    MemoryError
        If the matrix is larger than the memory of the machine.
    """
    header = read_header(file)
    _check_fits(header)
    matrix = (_from_places if header.sparse else _from_columns)(file, header, integers and header.whole)
    if matrix.dtype != object:
        return matrix
    found = of_objects(matrix)
    assert found is not None  # all are integers
    return found


def _check_fits(header: Header) -> None:
    """Raise if the matrix exceeds the memory of the machine: the system might allocate memory that it does not have."""
    needed = header.dtype.itemsize * header.rows * header.columns
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else needed
    if needed > available:
        raise MemoryError(
            f"line {header.lines}: a matrix of {header.rows} x {header.columns} {header.dtype} elements takes "
            f"{needed / 2**30:.3g} GiB; this machine has {available / 2**30:.3g} GiB"
        )


def _all_blocks(file: BufferedIOBase, header: Header, integers: bool) -> Iterator[Block]:
    """Read the entries, and check their number: `_from_columns` stores them in memory that is not initialized.

    Raises
    ------
    ValueError
        If there are not as many entries as the header says.
    """
    got = 0
    for block in read_blocks(file, header, integers):
        got += block.values.size
        yield block
    if got != header.entries:
        raise ValueError(f"{got} of {header.entries} entries were read")


def _from_places(file: BufferedIOBase, header: Header, integers: bool) -> Values:
    """Read entries that come with their rows and columns; `integers`: as integers."""
    blocks = list(_all_blocks(file, header, integers))
    if not blocks:
        return np.zeros((header.rows, header.columns), np.int64 if integers else header.dtype)
    entries = Block(
        np.concatenate([block.lines for block in blocks]),
        np.concatenate([block.rows for block in blocks]),
        np.concatenate([block.columns for block in blocks]),
        np.concatenate([block.values for block in blocks]),
    )
    _check_once(entries, header)
    matrix = np.zeros((header.rows, header.columns), entries.values.dtype)
    diagonal = entries.rows == entries.columns
    _check_diagonal(entries.lines[diagonal], entries.values[diagonal], header)
    if header.symmetry != "general":
        matrix[entries.columns, entries.rows] = _mirrored(entries.values, header)
    matrix[entries.rows, entries.columns] = entries.values
    return matrix


def _check_once(entries: Block, header: Header) -> None:
    """Raise if an entry comes twice: the format does not say what that means, and a sum would be rounded."""
    keys = entries.rows * header.columns + entries.columns
    order = np.argsort(keys, kind="stable")
    repeated = np.flatnonzero(keys[order[1:]] == keys[order[:-1]])
    if repeated.size:
        i = repeated[np.argmin(order[repeated + 1])]
        first, second = order[i], order[i + 1]
        place = f"({entries.rows[first] + 1}, {entries.columns[first] + 1})"
        raise ValueError(
            f"line {entries.lines[second]}: entry {place} is in line {entries.lines[first]} already; expected it once"
        )


def _check_diagonal(lines: Indices, values: Values, header: Header) -> None:
    """Raise if one of these values on the diagonal is none that a matrix of such a symmetry has there."""
    if header.symmetry not in ("skew-symmetric", "hermitian"):
        return
    skew = header.symmetry == "skew-symmetric"
    wrong = np.flatnonzero((values if skew else values.imag) != 0)
    if wrong.size:
        i = wrong[0]
        expected = "0" if skew else "an imaginary part of 0"
        raise ValueError(
            f"line {lines[i]}: {values[i]} on the diagonal; expected {expected} in a {header.symmetry} matrix"
        )


def _from_columns(file: BufferedIOBase, header: Header, integers: bool) -> Values:
    """Read entries that come column by column: all, those on and below the diagonal, or those below it.

    `integers`: as integers.
    """
    stored: Values = np.empty(header.entries, np.int64 if integers else header.dtype)
    diagonal = _diagonal_places(header.rows if header.symmetry == "hermitian" else 0)
    start = 0
    for block in _all_blocks(file, header, integers):
        end = start + block.values.size
        if block.values.dtype == object:
            stored = stored.astype(object, copy=False)
        stored[start:end] = block.values
        here = diagonal[(start <= diagonal) & (diagonal < end)] - start
        _check_diagonal(block.lines[here], block.values[here], header)
        start = end
    if header.symmetry == "general":
        return stored.reshape((header.rows, header.columns), order="F")
    matrix = np.zeros((header.rows, header.columns), stored.dtype)
    below = int(header.symmetry == "skew-symmetric")
    start = 0
    for column in range(header.columns):
        rows = slice(column + below, header.rows)
        part = stored[start : start + rows.stop - rows.start]
        start += part.size
        matrix[column, rows] = _mirrored(part, header)
        matrix[rows, column] = part
    return matrix


def _diagonal_places(size: int) -> Indices:
    """Return which entries are on the diagonal, in a file that has the columns of a matrix from there downwards."""
    columns = np.arange(size, dtype=np.int64)
    return size * columns - columns * (columns - 1) // 2


def _mirrored(values: Values, header: Header) -> Values:
    """Return the values above the diagonal that belong to these values below it."""
    if header.symmetry == "hermitian":
        return values.conj()
    if header.symmetry != "skew-symmetric":
        return values
    return 0 - values if header.whole else np.negative(values)  # integers have no negative zero
