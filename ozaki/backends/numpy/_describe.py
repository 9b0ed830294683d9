"""The description of rows on NumPy (docs/definitions.md, section 1)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy._limbs import Floats
from ozaki.backends.numpy._numbers import leading
from ozaki.backends.numpy._scaled import ScaledRows, plain
from ozaki.backends.numpy._tiles import FEW, OBJECTS, TILE
from ozaki.backends.numpy.compiled import Compiled, calls, compiled
from ozaki.backends.numpy.compiled.calls import parts_of as parts_of
from ozaki.bounds.description import FIELDS, NO_SPAN, SAMPLED, Description, Ints, Least
from ozaki.multiprecision.numbers import Numbers
from ozaki.records.shapes import tiles_of_rows
from ozaki.schemes import magnitude_bits
from ozaki.schemes.image import EMPTY_TOP


class Described:
    """An operand and the description of its rows.

    Parameters
    ----------
    x : shape (batch, rows, elements), the rows of A or the columns of B, real or complex, perhaps scaled along k; of
        multiprecision rows the leading bits
    fields : shape (6, batch, rows), in the order of `FIELDS`; without them rows of floats are described once this is
        asked for
    finite : whether no element is NaN or Inf; of a part of an operand whether that is known
    numbers : the rows themselves, if they are multiprecision numbers
    tops : shape (batch, rows): x is the leading bits of 2**-tops numbers; None without `numbers`
    k : real numbers of a whole row, if x has some of its elements alone, and the fields are those of the whole row

    Attributes
    ----------
    k : real numbers of a whole row: a complex element has two
    """

    def __init__(
        self,
        x: npt.NDArray[Any] | ScaledRows,
        fields: Ints | None = None,
        finite: bool = False,
        numbers: Numbers | None = None,
        tops: Ints | None = None,
        k: int | None = None,
    ) -> None:
        self.x, self.numbers, self.tops = x, numbers, tops
        self.k = x.shape[-1] * parts_of(x) if k is None else k
        if fields is not None:
            self.fields, self.finite = fields, finite

    @cached_property
    def fields(self) -> Ints:
        """As given, or found."""
        return self._found.fields

    @cached_property
    def finite(self) -> bool:
        """As given, or found."""
        return self._found.finite

    @cached_property
    def _found(self) -> Described:
        return describe(self.x)

    @cached_property
    def on_host(self) -> Description:
        """The fields, as the functions of `ozaki.bounds` take them."""
        top, peak, magnitudes, squares, bottom, nonfinite = self.fields
        scale = 0 if self.tops is None else self.tops
        return Description(self.k, top, peak, magnitudes, squares, bottom, nonfinite, scale)

    @cached_property
    def spans(self) -> tuple[int, int]:
        """Largest top - bottom of a row, and smallest one of a row with a nonzero element.

        With as many bits as the largest every image is exact, with fewer than the smallest no such row is known to be.
        """
        spans = self.on_host.top - self.on_host.bottom
        return int(spans.max()), int(spans[self.on_host.filled].min(initial=NO_SPAN))

    @property
    def unscaled(self) -> npt.NDArray[Any]:
        """The rows, for what takes none that are scaled along k."""
        assert not isinstance(self.x, ScaledRows)
        return self.x

    @property
    def span(self) -> int:
        """The largest of the `spans`."""
        return self.spans[0]

    def part(self, batch: slice, rows: slice) -> Described:
        """Some rows of some matrices, with their descriptions; all are views."""
        numbers = None if self.numbers is None else self.numbers[batch, rows]
        tops = None if self.tops is None else self.tops[batch, rows]
        return Described(self.x[batch, rows], self.fields[:, batch, rows], self.finite, numbers, tops)


def describe(x: npt.NDArray[Any] | ScaledRows | Numbers) -> Described:
    """Describe the rows of x, shape (batch, rows, elements); those of complex elements as rows of all their parts.

    Multiprecision rows are scaled so that their `top` is 0 (docs/definitions.md, section 8).
    """
    if isinstance(x, Numbers):
        values, tops, bottoms = leading(x)
        described = describe(values)
        bottom = described.fields[FIELDS.index("bottom")]
        bottom[...] = np.where(bottom == EMPTY_TOP, EMPTY_TOP, bottoms)
        return Described(values, described.fields, True, x, tops)
    batch, rows, k = x.shape
    if x.size == 0:
        return Described(x, _empty_fields(batch, rows), True)
    fields, finite = np.zeros((len(FIELDS), batch, rows), np.int64), True
    if x.size * parts_of(x) > FEW and calls.can_describe(x) and isinstance(found := compiled(), Compiled):
        calls.describe(found.library, x, fields)
        return Described(x, fields, not fields[FIELDS.index("nonfinite")].any())
    if x.size * parts_of(x) <= TILE:
        return Described(x, fields, _describe_tile(_parts(x), fields))
    for b, r in tiles_of_rows(batch, rows, k * parts_of(x), TILE):
        finite &= _describe_tile(_parts(x[b, r]), fields[:, b, r])
    return Described(x, fields, finite)


def describe_both(x: npt.NDArray[Any] | Numbers, y: npt.NDArray[Any] | Numbers) -> tuple[Described, Described]:
    """Describe the rows of both operands; as rows of one matrix where they are so small that this saves time."""
    if (
        isinstance(x, Numbers)
        or isinstance(y, Numbers)
        or not 0 < x.size + y.size <= FEW
        or x.dtype != y.dtype
        or x.dtype.kind == "c"
        or 0 in x.shape + y.shape
    ):
        return describe(x), describe(y)
    (batch_x, m, k), (batch_y, n, _) = x.shape, y.shape
    rows = batch_x * m
    both = np.concatenate((x.reshape(-1, k), y.reshape(-1, k)))
    fields = np.zeros((len(FIELDS), len(both)), np.int64)
    finite = _describe_tile(both, fields)
    of_x, of_y = fields[:, :rows].reshape(-1, batch_x, m), fields[:, rows:].reshape(-1, batch_y, n)
    return Described(x, of_x, finite), Described(y, of_y, finite)


def _empty_fields(batch: int, rows: int) -> npt.NDArray[np.int64]:
    """The description of rows without elements, shape (6, batch, rows) as in `FIELDS`."""
    fields = np.zeros((len(FIELDS), batch, rows), np.int64)
    fields[FIELDS.index("top")] = fields[FIELDS.index("bottom")] = EMPTY_TOP
    return fields


def _parts(x: npt.NDArray[Any] | ScaledRows) -> npt.NDArray[Any] | ScaledRows:
    """The parts of complex elements, one element after the other along the last axis; x itself if it is real."""
    if x.dtype.kind != "c":
        return x
    values = plain(x)
    return np.stack([values.real, values.imag], axis=-1).reshape(*x.shape[:-1], -1)


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


def describing_bytes(*operands: npt.NDArray[Any] | Numbers) -> tuple[int, int]:
    """Bytes of the descriptions of operands, shape (batch, rows, elements), and of what making them takes more.

    That is six float64 arrays of a tile, and the parts of complex elements, of whole rows. The leading bits of
    multiprecision rows belong to the description; finding them takes more arrays of a tile, and some of its limbs.
    Operands are described one after another.
    """
    held = most = 0
    for x in operands:
        batch, rows, k = x.shape
        if isinstance(x, Numbers):
            passing, leading_bits = (12 + len(x.limbs)) * min(TILE, batch * rows * k), 8 * batch * rows * k
        else:
            parts = parts_of(x)
            k, leading_bits = k * parts, 0
            passing = 6 * min(TILE, batch * rows * k) + min(max(TILE, k * (parts - 1)), batch * rows * k)
        held += ROW_BYTES * batch * rows + leading_bits
        most = max(most, held + 8 * passing + OBJECTS)
    return held, most - held


def sample(
    x: npt.NDArray[Any], y: npt.NDArray[Any], whole: tuple[Described, Described] | None = None
) -> tuple[Least, Least]:
    """The least values over the rows of both operands, shapes (batch, rows, k), by their first `SAMPLED` real numbers.

    `whole` are the descriptions of the whole rows; without them, the samples count as the whole rows.
    """
    samples = [describe(side[..., : SAMPLED // parts_of(side)]) for side in (x, y)]
    left, right = (Least.of(part.on_host, of.on_host) for part, of in zip(samples, whole or samples, strict=True))
    return left, right


def _describe_tile(x: npt.NDArray[Any] | ScaledRows, fields: Ints) -> bool:
    """Write the fields of some rows x, shape (..., rows, k), into zeros; return whether all elements are finite."""
    top, peak, magnitudes, squares, bottom, nonfinite = fields
    k = x.shape[-1]
    width = magnitude_bits(k)
    pieces = [x] if k <= TILE else [x[..., h : h + TILE] for h in range(0, k, TILE)]
    values, largest, smallest, bad = _finite(plain(pieces[0]))
    for piece in pieces[1:]:
        values, highest, least, others = _finite(plain(piece))
        bad = bad + others
        np.maximum(largest, highest, out=largest)
        np.minimum(smallest, least, out=smallest)
    empty = None if largest.all() else largest == 0
    if empty is not None:
        smallest[empty] = 1
    tops, lowest = np.frexp(largest)[1], np.frexp(smallest)[1]
    powers = width - tops
    flushes = bool((lowest + powers).min() < -1000)
    short = None
    for piece in pieces:
        if len(pieces) > 1:
            values = _finite(plain(piece))[0]
        scaled = scale(values, powers[..., None])
        units = np.ceil(scaled)
        if flushes:  # scaling may have flushed a nonzero element to zero, whose magnitude is 1 (rounded up)
            np.maximum(units, values > 0, out=units)
        exact = (scaled[..., :16] == units[..., :16]).all(axis=-1)
        if exact.any():
            exact = (scaled == units).all(axis=-1)
        short = exact if short is None else short & exact
        if len(pieces) == 1 and k <= _SQUARES:
            magnitudes[...], squares[...] = units.sum(axis=-1), np.vecdot(units, units)
            continue
        for h in range(0, piece.shape[-1], _SQUARES):
            part = units[..., h : h + _SQUARES]
            magnitudes += part.sum(axis=-1).astype(np.int64)
            squares += np.vecdot(part, part).astype(np.int64)
    lowest -= 24 if x.dtype == np.float32 else 53
    assert short is not None
    bottom[...] = np.where(short, tops - width, lowest) if short.any() else lowest
    top[...], peak[...], nonfinite[...] = tops, np.ceil(np.ldexp(largest, powers)), bad
    if empty is not None:
        top[empty] = bottom[empty] = EMPTY_TOP
    return isinstance(bad, int)


_SQUARES = 2**13
"""Squares of magnitudes, of at most 2**40 each, that float64 adds up exactly."""


def _finite(x: npt.NDArray[Any]) -> tuple[Floats, Floats, Floats, int | Ints]:
    """Magnitudes, with zero in place of NaN and Inf; of each row the largest, the smallest but zero, and these' number.

    The smallest of a row of zeros is Inf; where all rows are finite, the number is 0 of them all.
    """
    values, bad = np.abs(x.astype(np.float64, copy=False)), 0
    largest = values.max(axis=-1)
    if not np.isfinite(largest).all():
        infinite = ~np.isfinite(values)
        values[infinite] = 0
        largest, bad = values.max(axis=-1), infinite.sum(axis=-1)
    smallest = values.min(axis=-1)
    if np.count_nonzero(smallest) < smallest.size:
        smallest = np.where(values == 0, np.inf, values).min(axis=-1)
    return values, largest, smallest, bad


def scale(x: npt.NDArray[Any], exponents: npt.NDArray[np.signedinteger[Any]]) -> Floats:
    """x 2**exponents as float64; a power beyond the range of float64 is applied in two factors."""
    powers = exponents.astype(np.int32, copy=False)
    scaled: Floats
    if x.size <= FEW:  # one call, which takes more time for an element
        scaled = np.ldexp(x.astype(np.float64, copy=False), powers)
    elif powers.size == 0 or np.abs(powers).max() < 1000:
        scaled = x * np.ldexp(1.0, powers)
    else:
        half = powers // 2
        scaled = (x * np.ldexp(1.0, half)) * np.ldexp(1.0, powers - half)
    return scaled


def along_memory(
    x: npt.NDArray[Any] | ScaledRows, of_rows: Ints
) -> tuple[bool, Iterable[tuple[tuple[slice, slice], npt.NDArray[Any], Ints]]]:
    """Cut x, shape (batch, rows, k), into tiles that lie along memory.

    Returns
    -------
    turned : whether x is in column-major order, neighbours in memory being of different rows, so that its last two axes
        are exchanged before it is cut
    tiles : for each its index, the tile, and the part of `of_rows`, shape (batch, rows), that belongs to it, in a shape
        that broadcasts with the tile
    """
    turned = x.strides[1] < x.strides[2] and x.size > 0
    of_rows = of_rows[:, None, :] if turned else of_rows[:, :, None]
    if turned:
        x = x.swapaxes(1, 2)
    if x.size <= TILE:
        return turned, [((slice(None), slice(None)), plain(x), of_rows)]
    batch, rows, k = x.shape
    tiles = tiles_of_rows(batch, rows, k, TILE)
    return turned, ((at, plain(x[at]), of_rows[at[0]] if turned else of_rows[at]) for at in tiles)
