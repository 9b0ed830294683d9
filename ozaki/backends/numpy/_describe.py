"""The description of rows on NumPy (docs/definitions.md, section 1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy._limbs import Floats
from ozaki.backends.numpy._numbers import leading
from ozaki.backends.numpy._tiles import TILE, row_tiles
from ozaki.bounds.description import FIELDS, NO_SPAN, SAMPLED, Description, Least
from ozaki.multiprecision.numbers import Numbers
from ozaki.schemes import magnitude_bits
from ozaki.schemes.image import EMPTY_TOP

OBJECTS = 2**16
"""Bytes of workspace added for Python's and NumPy's objects and for arrays of a few rows."""


@dataclass(frozen=True)
class Described:
    """An operand and the description of its rows.

    Attributes
    ----------
    x : shape (batch, rows, elements), the rows of A or the columns of B, real or complex; of multiprecision rows the
        leading bits
    fields : shape (6, batch, rows), in the order of `FIELDS`
    numbers : the rows themselves, if they are multiprecision numbers
    tops : shape (batch, rows): x is the leading bits of 2**-tops numbers; None without `numbers`
    """

    x: npt.NDArray[Any]
    fields: npt.NDArray[np.int64]
    numbers: Numbers | None = None
    tops: npt.NDArray[np.int64] | None = None

    @property
    def k(self) -> int:
        """Real numbers of a row: a complex element has two."""
        return int(self.x.shape[-1]) * parts_of(self.x)

    @cached_property
    def span(self) -> int:
        """Largest top - bottom of a row: with so many bits, every image is exact."""
        return int((self.on_host.top - self.on_host.bottom).max())

    @cached_property
    def least_span(self) -> int:
        """Smallest top - bottom of a row with a nonzero element: with fewer bits, no such row is known to be exact."""
        spans = (self.on_host.top - self.on_host.bottom)[~self.on_host.empty]
        return int(spans.min(initial=NO_SPAN))

    @cached_property
    def on_host(self) -> Description:
        """The fields of the description, as the functions of `ozaki.bounds` take them."""
        description = Description(self.k, *self.fields)
        return description if self.tops is None else replace(description, scale=self.tops)

    def part(self, batch: slice, rows: slice) -> Described:
        """Some rows of some matrices, with their descriptions; all are views."""
        numbers = None if self.numbers is None else self.numbers[batch, rows]
        tops = None if self.tops is None else self.tops[batch, rows]
        return Described(self.x[batch, rows], self.fields[:, batch, rows], numbers, tops)


def describe(x: npt.NDArray[Any] | Numbers) -> Described:
    """Describe the rows of x, shape (batch, rows, elements); those of complex elements as rows of all their parts.

    Multiprecision rows are scaled so that their `top` is 0 (docs/definitions.md, section 8).
    """
    if isinstance(x, Numbers):
        values, tops, bottoms = leading(x)
        described = describe(values)
        bottom = described.fields[FIELDS.index("bottom")]
        bottom[...] = np.where(bottom == EMPTY_TOP, EMPTY_TOP, bottoms)
        return Described(values, described.fields, x, tops)
    batch, rows, k = x.shape
    fields = _empty_fields(batch, rows)
    if k:
        for at in row_tiles(batch, rows, k * parts_of(x)):
            _describe_tile(_parts(x[at]), fields[(slice(None), *at)])
    return Described(x, fields)


def _empty_fields(batch: int, rows: int) -> npt.NDArray[np.int64]:
    """The description of rows without elements, shape (6, batch, rows) as in `FIELDS`."""
    fields = np.zeros((len(FIELDS), batch, rows), np.int64)
    fields[FIELDS.index("top")] = fields[FIELDS.index("bottom")] = EMPTY_TOP
    return fields


def parts_of(x: npt.NDArray[Any]) -> int:
    """Real numbers of an element: 2 of a complex one."""
    return 2 if x.dtype.kind == "c" else 1


def _parts(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The parts of complex elements, one element after the other along the last axis; x itself if it is real."""
    return np.stack([x.real, x.imag], axis=-1).reshape(*x.shape[:-1], -1) if x.dtype.kind == "c" else x


def larger_parts(x: npt.NDArray[Any], nonfinite: bool) -> Floats:
    """abs(x) in float64, of complex elements the larger one of both parts: no more than the absolute value.

    With `nonfinite`, parts that are NaN or Inf count as zero; without, there are none.
    """
    largest: Floats | None = None
    for part in (x.real, x.imag) if x.dtype.kind == "c" else (x,):
        values = np.abs(part.astype(np.float64, copy=False))
        if nonfinite:
            values[~np.isfinite(values)] = 0
        largest = values if largest is None else np.maximum(largest, values, out=largest)
    assert largest is not None
    return largest


ROW_BYTES = 256
"""Bytes of a row: 48 of its fields, 8 of an exponent, the rest for error terms and norms."""


def describing_bytes(x: npt.NDArray[Any] | Numbers) -> tuple[int, int]:
    """Bytes of the description of rows x, shape (batch, rows, elements), and of what making it takes more.

    That is six float64 arrays of a tile, and the parts of complex elements, of whole rows. The leading bits of
    multiprecision rows belong to the description; finding them takes more arrays of a tile, and some of its limbs.
    """
    batch, rows, k = x.shape
    if isinstance(x, Numbers):
        passing, leading_bits = (12 + len(x.limbs)) * min(TILE, batch * rows * k), 8 * batch * rows * k
    else:
        k, leading_bits = k * parts_of(x), 0
        passing = 6 * min(TILE, batch * rows * k) + min(max(TILE, k * (parts_of(x) - 1)), batch * rows * k)
    return ROW_BYTES * batch * rows + leading_bits, 8 * passing + OBJECTS


def sample(
    x: npt.NDArray[Any], y: npt.NDArray[Any], whole: tuple[Described, Described] | None = None
) -> tuple[Least, Least]:
    """The least values over the rows of both operands, shapes (batch, rows, k), by their first `SAMPLED` real numbers.

    `whole` are the descriptions of the whole rows; without them, the samples count as the whole rows.
    """
    samples = [describe(side[..., : SAMPLED // parts_of(side)]) for side in (x, y)]
    left, right = (Least.of(part.on_host, of.on_host) for part, of in zip(samples, whole or samples, strict=True))
    return left, right


def _describe_tile(x: npt.NDArray[Any], fields: npt.NDArray[np.int64]) -> None:
    """Write the fields of the rows of x, shape (batch, rows, k), into `fields`, which come from `_empty_fields`."""
    field = dict(zip(FIELDS, fields, strict=True))
    k = x.shape[-1]
    width = magnitude_bits(k)
    pieces = [x[..., h : h + TILE] for h in range(0, k, TILE)]
    largest, smallest = np.zeros(x.shape[:-1]), np.full(x.shape[:-1], np.inf)
    for piece in pieces:
        values, highest, bad = _finite(piece)
        field["nonfinite"] += bad
        np.maximum(largest, highest, out=largest)
        np.minimum(smallest, _least_nonzero(values), out=smallest)
    filled = largest > 0
    top = np.where(filled, np.frexp(largest)[1], 0).astype(np.int64)
    lowest = np.where(filled, np.frexp(np.where(filled, smallest, 1.0))[1], 0).astype(np.int64)
    flushes = bool((filled & (lowest - top + width < -1000)).any())
    short = np.ones(x.shape[:-1], bool)
    for piece in pieces:
        if len(pieces) > 1:
            values, *_ = _finite(piece)
        scaled = scale(values, (width - top)[..., None])
        magnitudes = np.ceil(scaled)
        if flushes:  # scaling may have flushed a nonzero element to zero, whose magnitude is 1 (rounded up)
            np.maximum(magnitudes, values > 0, out=magnitudes)
        short &= (scaled[..., :16] == magnitudes[..., :16]).all(axis=-1)
        if short.any():
            short &= (scaled == magnitudes).all(axis=-1)
        for h in range(0, piece.shape[-1], 2**13):  # 2**13 squares of at most 2**40 add up exactly
            part = magnitudes[..., h : h + 2**13]
            field["magnitudes"] += part.sum(axis=-1).astype(np.int64)
            field["squares"] += np.einsum("...h,...h->...", part, part).astype(np.int64)
    precision = 24 if x.dtype == np.float32 else 53
    field["top"][...] = np.where(filled, top, EMPTY_TOP)
    field["bottom"][...] = np.where(filled, np.where(short, top - width, lowest - precision), EMPTY_TOP)
    field["peak"][...] = np.ceil(scale(largest, width - top))


def _finite(x: npt.NDArray[Any]) -> tuple[Floats, Floats, Any]:
    """abs(x), zero in place of NaN and Inf; the largest of each row; the number of NaN and Inf of each row."""
    values = np.abs(x.astype(np.float64, copy=False))
    largest = values.max(axis=-1)
    if np.isfinite(largest).all():
        return values, largest, 0
    bad = ~np.isfinite(values)
    values[bad] = 0
    return values, values.max(axis=-1), bad.sum(axis=-1)


def _least_nonzero(values: Floats) -> Floats:
    """The smallest nonzero value of each row; Inf where all are zero."""
    smallest: Floats = values.min(axis=-1)
    return smallest if smallest.all() else np.where(values == 0, np.inf, values).min(axis=-1)


def scale(x: npt.NDArray[Any], exponents: npt.NDArray[np.int64]) -> Floats:
    """x 2**exponents as float64; a power beyond the range of float64 is applied in two factors."""
    powers = exponents.astype(np.int32)
    scaled: Floats
    if powers.size == 0 or np.abs(powers).max() < 1000:
        scaled = x * np.ldexp(1.0, powers)
    else:
        half = powers // 2
        scaled = (x * np.ldexp(1.0, half)) * np.ldexp(1.0, powers - half)
    return scaled


def along_memory(
    x: npt.NDArray[Any], of_rows: npt.NDArray[np.int64]
) -> Iterator[tuple[tuple[slice, slice], npt.NDArray[Any], npt.NDArray[np.int64]]]:
    """Cut x, shape (batch, rows, k), into pieces whose last axis is the one of x with the smaller stride.

    Yields the index of a piece in `turned(x, x)`, the piece, and the part of `of_rows`, shape (batch, rows), that
    belongs to it, in a shape that broadcasts with the piece.
    """
    column_major, x = _is_column_major(x), turned(x, x)
    for at in row_tiles(*x.shape):
        yield at, x[at], of_rows[at[0], None, :] if column_major else of_rows[at[0], at[1], None]


def turned(x: npt.NDArray[Any], like: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """x with its last two axes exchanged if `like` is in column-major order, else x."""
    return x.swapaxes(-1, -2) if _is_column_major(like) else x


def _is_column_major(x: npt.NDArray[Any]) -> bool:
    """Whether x, shape (batch, rows, k), is in column-major order: neighbours in memory are of different rows."""
    return bool(min(x.shape) and x.strides[1] < x.strides[2])
