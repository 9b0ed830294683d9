"""Reading the entries of a MatrixMarket file, the lines behind its header."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BufferedIOBase
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from ozaki._cli.matrix_market.header import Header
from ozaki._cli.matrix_market.numbers import INTEGER, REAL, UNSIGNED, first_lost, to_floats, to_integers
from ozaki._cli.matrix_market.places import is_empty, quoted, refuse, words

_BLOCK = 1 << 22  # bytes that are read and parsed at a time; split into words they take about ten times the memory
_INDEX = rb"\d{1,18}+"

Indices = npt.NDArray[np.int64]
Values = npt.NDArray[Any]


@dataclass(frozen=True)
class Block:
    """Consecutive entries of a file.

    Attributes
    ----------
    lines : array of int
        Number of the line of each entry, from 1.
    rows, columns : arrays of int
        Row and column of each entry, from 0; empty for a file in array format, which has none.
    values : array of float64 or complex128; of integers one of int64, or of objects if that does not hold them
        Value of each entry.

    Raises
    ------
    ValueError
        If the arrays have different lengths.
    """

    lines: Indices
    rows: Indices
    columns: Indices
    values: Values

    def __post_init__(self) -> None:
        lines, rows, columns, values = self.lines.size, self.rows.size, self.columns.size, self.values.size
        if not (lines == values and rows == columns and rows in (0, values)):
            raise ValueError(f"{values} values in {lines} lines, with {rows} rows and {columns} columns")


def read_blocks(file: BufferedIOBase, header: Header, integers: bool) -> Iterator[Block]:
    """Read the entries block by block, as many as the header says; `integers`: the values as integers.

    Raises
    ------
    ValueError
        If an entry is not of the kind that the header says, float64 does not hold its number, or its place is not in
        the matrix: the message names line and column. If entries are missing: the message names the line.
    """
    kinds = _kinds(header)
    valid = _valid(kinds)
    missing, number = header.entries, header.lines + 1
    while lines := file.readlines(_BLOCK):
        if not lines[-1].endswith(b"\n"):
            lines[-1] += (
                b"\n"  # in `lines` as well as in `text`: both have to agree whether a last "\r" is a blank line
            )
        text = b"".join(lines)
        matched = valid.match(text)
        assert matched is not None  # the pattern also matches nothing at all
        if matched.end() < len(text):
            bad = text.count(b"\n", 0, matched.end())
            _refuse_entry(number + bad, lines[bad], kinds)
        entries = _Entries.of(lines, text, number, len(kinds))
        if entries.numbers.size > missing:
            entries.refuse(missing, 0, f"expected {header.entries} entries; here is one more")
        missing -= entries.numbers.size
        number += len(lines)
        yield Block(entries.numbers, *_places(entries, header), _values(entries, header, integers))
    if missing:
        got = header.entries - missing
        raise ValueError(f"line {number - 1}: the file ends after {got} of {header.entries} entries")


def _kinds(header: Header) -> list[tuple[bytes, str]]:
    """Return, for each word of an entry, the pattern that it must match and what messages call it."""
    value = {
        "real": [(REAL, "a number")],
        "complex": [(REAL, "a real part"), (REAL, "an imaginary part")],
        "integer": [(INTEGER, "an integer")],
        "unsigned-integer": [(UNSIGNED, "an integer without sign")],
        "pattern": [],
    }[header.field]
    return [*([(_INDEX, "a row"), (_INDEX, "a column")] if header.sparse else []), *value]


def _valid(kinds: list[tuple[bytes, str]]) -> re.Pattern[bytes]:
    """Return a pattern that matches as many lines as are valid: entries, comments and blank lines."""
    entry = rb"[ \t]++".join(rb"(?:" + pattern + rb")" for pattern, _ in kinds)
    return re.compile(rb"(?:[ \t]*+(?:%[^\n]*+|" + entry + rb"[ \t]*+)?\r?+\n)*+")


def _refuse_entry(number: int, line: bytes, kinds: list[tuple[bytes, str]]) -> NoReturn:
    """Raise an error that says what is wrong with a line that is no valid entry."""
    found = words(line)
    expected = f"an entry is {', '.join(name for _, name in kinds)}"
    for place, (pattern, name) in enumerate(kinds):
        if place >= len(found):
            refuse(number, line, place, f"{name} is missing; {expected}")
        if not re.fullmatch(pattern, found[place][0]):
            refuse(number, line, place, f"{quoted(found[place][0])} is not {name}")
    refuse(number, line, len(kinds), f"{quoted(found[len(kinds)][0])} is too much; {expected}")


@dataclass(frozen=True)
class _Entries:
    """The words of a block of valid lines.

    Attributes
    ----------
    lines : list of bytes
        All lines, including those without an entry.
    first : int
        Number of the first line in the file.
    numbers : array of int
        Numbers of the lines that have an entry.
    columns : list of lists of bytes
        The first words of all entries, their second words, and so on.
    """

    lines: list[bytes]
    first: int
    numbers: Indices
    columns: list[list[bytes]]

    @staticmethod
    def of(lines: list[bytes], text: bytes, first: int, width: int) -> _Entries:
        """Split lines into entries of `width` words; `text` is all lines joined."""
        found = text.split()
        if len(found) == width * len(lines) and b"%" not in text:
            numbers = np.arange(first, first + len(lines), dtype=np.int64)
        else:
            filled = [i for i, line in enumerate(lines) if not is_empty(line)]
            found = b" ".join([lines[i] for i in filled]).split()
            numbers = first + np.array(filled, dtype=np.int64)
        return _Entries(lines, first, numbers, [found[i::width] for i in range(width)])

    def refuse(self, entry: int, word: int, reason: str) -> NoReturn:
        """Raise an error about a word of an entry, both counted from 0."""
        number = int(self.numbers[entry])
        refuse(number, self.lines[number - self.first], word, reason)

    def refuse_where(self, wrong: npt.NDArray[np.bool_], word: int, reason: Callable[[int], str]) -> None:
        """Raise an error about the first entry for which `wrong` is true, if there is one."""
        if wrong.any():
            entry = int(wrong.argmax())
            self.refuse(entry, word, reason(entry))


def _places(entries: _Entries, header: Header) -> tuple[Indices, Indices]:
    """Return the rows and columns of entries, from 0.

    Raises for places outside the matrix and, unless it is a general one, for those above its diagonal.
    """
    if not header.sparse:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    rows, columns = (np.array(list(map(int, found)), dtype=np.int64) - 1 for found in entries.columns[:2])
    _check_range(entries, 0, "row", rows, header.rows)
    _check_range(entries, 1, "column", columns, header.columns)
    if header.symmetry != "general":
        expected = f"expected those of a {header.symmetry} matrix on and below it only, which the others follow from"
        entries.refuse_where(rows < columns, 0, lambda i: f"this entry lies above the diagonal; {expected}")
    return rows, columns


def _check_range(entries: _Entries, word: int, name: str, indices: Indices, size: int) -> None:
    wrong = (indices < 0) | (indices >= size)
    entries.refuse_where(wrong, word, lambda i: f"there is no {name} {indices[i] + 1}; expected 1 to {size}")


def _values(entries: _Entries, header: Header, integers: bool) -> Values:
    """Return the values of entries; raise if they are no `integers` and float64 does not hold one, or a part of one."""
    if header.field == "pattern":
        return np.ones(entries.numbers.size)
    last = len(entries.columns) - 1
    if integers:
        return to_integers(entries.columns[last])
    if header.field == "complex":
        values = np.empty(entries.numbers.size, dtype=np.complex128)
        # Not real + 1j * imaginary, which turns Inf into NaN, and loses the signs of zeros.
        values.real, values.imag = _floats(entries, last - 1, header), _floats(entries, last, header)
        return values
    floats = _floats(entries, last, header)
    return floats + 0.0 if header.whole else floats  # integers have no negative zero


def _floats(entries: _Entries, word: int, header: Header) -> npt.NDArray[np.float64]:
    """Return the numbers that a word of each entry is; raise if float64 does not hold one."""
    found = entries.columns[word]
    floats = to_floats(found)
    lost = first_lost(found, floats, header.whole)
    if lost is not None:
        entry, reason = lost
        entries.refuse(entry, word, f"{quoted(found[entry])} {reason}")
    return floats
