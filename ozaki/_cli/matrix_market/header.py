"""Reading the header of a MatrixMarket file: the kind of matrix that it holds, and its size."""

from __future__ import annotations

import re
from dataclasses import dataclass
from io import BufferedIOBase
from typing import Any

import numpy as np

from ozaki._cli.byte_order_mark import LONGEST, without_mark
from ozaki._cli.matrix_market.places import is_empty, quoted, refuse, without_end, words

BANNER = "%%MatrixMarket matrix"

_LONGEST = 1024  # most characters of a line, by the definition of the format
_FORMATS = ("coordinate", "array")
_FIELDS = ("real", "double", "complex", "integer", "unsigned-integer", "pattern")
_SYMMETRIES = ("general", "symmetric", "skew-symmetric", "hermitian")
_SIZE = re.compile(rb"\d{1,18}")


@dataclass(frozen=True)
class Header:
    """The contents of the header of a file.

    Attributes
    ----------
    sparse : whether entries come with their rows and columns; else all entries come, column by column
    field : "real", "complex", "integer", "unsigned-integer" or "pattern"
    symmetry : "general", "symmetric", "skew-symmetric" or, of complex numbers, "hermitian", which of real ones is
        "symmetric"
    rows, columns : size of the matrix
    entries : number of entries that follow
    lines : number of lines of the header
    """

    sparse: bool
    field: str
    symmetry: str
    rows: int
    columns: int
    entries: int
    lines: int

    @property
    def whole(self) -> bool:
        """Whether the numbers are integers."""
        return self.field.endswith("integer")

    @property
    def dtype(self) -> np.dtype[Any]:
        """The format that numbers are read into: complex128, or float64 for all that are real."""
        return np.dtype("complex128" if self.field == "complex" else "float64")


def read_header(file: BufferedIOBase) -> Header:
    """Read the header of a file, up to the line that says its sizes.

    Raises
    ------
    ValueError
        If the file is no MatrixMarket file, or holds what is not supported; the message names line and column.
    """
    layout, field, symmetry = _kind(without_mark(file.readline(LONGEST + _LONGEST + len(b"\r\n"))))
    sparse = layout == "coordinate"
    number, line = _first_filled(file)
    rows, columns, *entries = _sizes(number, line, ("ROWS", "COLUMNS", "ENTRIES") if sparse else ("ROWS", "COLUMNS"))
    if symmetry != "general" and rows != columns:
        refuse(number, line, 0, f"a {symmetry} matrix is square, not {rows} x {columns}")
    stored = {
        "general": rows * columns,
        "symmetric": rows * (rows + 1) // 2,
        "skew-symmetric": rows * (rows - 1) // 2,
        "hermitian": rows * (rows + 1) // 2,
    }[symmetry]
    if not entries:
        return Header(sparse, field, symmetry, rows, columns, stored, number)
    # A skew-symmetric file may spell out the zeros of its diagonal.
    most = rows * (rows + 1) // 2 if symmetry == "skew-symmetric" else stored
    if entries[0] > most:
        refuse(number, line, 2, f"{entries[0]} entries; a {symmetry} {rows} x {columns} matrix has {most} at most")
    return Header(sparse, field, symmetry, rows, columns, entries[0], number)


def _kind(line: bytes) -> tuple[str, str, str]:
    """Return format, field and symmetry, which the first line says; words behind these mean nothing."""
    found = words(line)
    if not found or found[0][0].lower() != b"%%matrixmarket":
        refuse(1, line, 0, f"expected a first line {BANNER} FORMAT FIELD SYMMETRY; this is no MatrixMarket file")
    if len(without_end(line)) > _LONGEST:
        raise ValueError(f"line 1: is longer than {_LONGEST} characters, the most that the format has")
    if len(found) < 5:
        refuse(1, line, 5, f"expected {BANNER} FORMAT FIELD SYMMETRY, got {len(found)} words")
    # The definition has readers ignore upper and lower case.
    what, layout, field, symmetry = (word[0].decode("latin-1").lower() for word in found[1:5])
    known = (("matrix",), _FORMATS, _FIELDS, _SYMMETRIES)
    for place, (got, expected) in enumerate(zip((what, layout, field, symmetry), known, strict=True), 1):
        if got not in expected:
            refuse(1, line, place, f"{quoted(found[place][0])} is not known; expected {' or '.join(expected)}")
    if symmetry == "hermitian" and field != "complex":
        symmetry = "symmetric"  # SciPy and Julia name real matrices so, too
    if field == "pattern" and (layout == "array" or symmetry == "skew-symmetric"):
        refuse(1, line, 3, f"a pattern has no values, so it cannot be {'an array' if layout == 'array' else symmetry}")
    return layout, "real" if field == "double" else field, symmetry


def _first_filled(file: BufferedIOBase) -> tuple[int, bytes]:
    """Return the first line that is neither blank nor a comment, and its number."""
    number = 1
    for line in file:
        number += 1
        if not is_empty(line):
            return number, line
    raise ValueError(f"line {number}: the file ends before the sizes of the matrix")


def _sizes(number: int, line: bytes, names: tuple[str, ...]) -> list[int]:
    """Return the whole numbers of a line, one for each name; raise if it is anything else."""
    found = words(line)
    for place, name in enumerate(names):
        if place >= len(found) or not _SIZE.fullmatch(found[place][0]):
            got = f", got {quoted(found[place][0])}" if place < len(found) else ""
            refuse(number, line, place, f"expected the sizes {' '.join(names)}, {name} as a whole number{got}")
    if len(found) > len(names):
        refuse(number, line, len(names), f"expected the sizes {' '.join(names)} and nothing else")
    return [int(word[0]) for word in found]
