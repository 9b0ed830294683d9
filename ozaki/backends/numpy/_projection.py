"""Random projections of a product on NumPy: C x beside A (B x), modulo two primes (docs/checking.md).

Everything is exact. Integers are cut into pieces of 26 bits and vectors into halves of 16, whose products float64 BLAS
adds exactly; numbers modulo a prime are int64.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy import _limbs
from ozaki.backends.numpy._describe import Described, parts_of, scale
from ozaki.backends.numpy._limbs import Floats
from ozaki.backends.numpy._numbers import image_pieces
from ozaki.backends.numpy._scaled import ScaledRows, plain
from ozaki.backends.numpy._tiles import OBJECTS, TILE
from ozaki.backends.numpy._unrounded import Project
from ozaki.backends.numpy.engines.digits import leading_digits
from ozaki.backends.numpy.engines.residues import WIDEST_OF_FLOATS
from ozaki.multiprecision.floats import of_floats
from ozaki.multiprecision.numbers import Numbers
from ozaki.records.shapes import tiles_of_rows
from ozaki.records.verification import Projected
from ozaki.schemes import Digits, Scheme
from ozaki.schemes.blas import LIMB_BITS, PIECE_BITS
from ozaki.schemes.projections import PRIMES, Residues, powers_of_two, random_vector, reduced

Ints = npt.NDArray[np.int64]

_HALF = 16
"""Bits of the lower half of an element of a vector; the upper one has 15."""

_MOST_PIECES = 48
"""Pieces of the widest image that is a float64."""

_TURN = 2**11
"""Products of a piece, of at most 2**26, and a half that float64 adds exactly."""


class Projection:
    """C x of the integer product of one call, collected while it is rounded, and compared with A (B x) at its end.

    Parameters
    ----------
    shape : (batch, m, n) of the product
    parts : real numbers of an entry
    image : what entries above the diagonal are that are not multiplied, as `Program.image`
    tile : elements of an operand that are projected at a time
    """

    def __init__(self, shape: tuple[int, int, int], parts: int, image: str | None, tile: int = TILE) -> None:
        batch, m, n = shape
        self._conjugate, self._tile = image == "conjugate", tile
        self._x = random_vector(n)[None]
        self._of_columns = _halves(self._x)
        self._found = np.zeros((batch, m, parts, len(PRIMES)), np.int64)
        self._whole = True  # whether all limbs are whole numbers

    def add(self, limbs: Floats, b: slice, rows: slice, cols: slice, shift: int, mirrored: bool) -> None:
        """Add the entries of some rows and columns, integers 2**shift times their limbs, which are carried.

        Parameters
        ----------
        limbs : shape (count, entries), as `Engine.limbs` returns them
        mirrored : whether the entries right of the square on the diagonal are left out, since they are the images of
            those of other rows: then entries of these columns count for the rows that they are the images of, too
        """
        found = self._found[b, rows]
        batch, m, parts, _ = found.shape
        _limbs.carry(limbs)
        self._whole &= all(np.array_equal(limb, np.rint(limb)) for limb in limbs)
        for part in range(parts):
            entries = limbs.reshape(len(limbs), batch, m, -1, parts)[..., part]
            for weight, limb in zip(_weights(LIMB_BITS, len(limbs), shift), entries, strict=True):
                _add(found[:, :, part], _products(limb, self._of_columns[:, cols], False), weight)
                if not mirrored:
                    continue
                left = limb[..., : max(min(rows.start, cols.stop) - cols.start, 0)]
                to = self._found[b, cols.start : cols.start + left.shape[2], part]
                turned = _products(left, self._of_columns[:, rows], True)
                _add(to, reduced(-turned) if part and self._conjugate else turned, weight)

    def of_panel(self, at: tuple[slice, slice, slice], shift: int, mirrored: bool) -> Project:
        """What adds entries of a panel, matrices, rows and columns `at` of the product, by their places in it."""

        def add(limbs: Floats, *within: slice) -> None:
            places = zip(at, within, strict=True)
            b, rows, cols = (slice(of.start + x.start, min(of.start + x.stop, of.stop)) for of, x in places)
            self.add(limbs, b, rows, cols, shift, mirrored)

        return add

    def compare(self, left: Described, right: Described, mu: Ints, nu: Ints, scheme: Scheme) -> Projected:
        """Whether C x is A (B x), from the elements of both operands and the exponents of their images."""
        batch, matrices = len(self._found), max(len(left.x), len(right.x))
        assert batch == matrices
        expected = np.zeros(self._found.shape, np.int64)
        parts = expected.shape[2]
        slots = scheme.count if isinstance(scheme, Digits) else 1
        for slot in range(slots):
            of_b = [
                _project(right, nu, part, scheme, slot, "right", self._of_columns, self._tile) for part in range(parts)
            ]
            for i in range(parts):
                for j in range(parts):
                    of_a = _project(left, mu, i, scheme, slot, "left", _halves(of_b[j]), self._tile)
                    if i and j:
                        of_a = reduced(-of_a)
                    _add(expected[:, :, (i + j) % 2], of_a, 1)
        wrong = (self._found != expected).any(axis=(1, 2)) | (not self._whole)
        return Projected(wrong.size, int(np.count_nonzero(wrong)))


def projection_bytes(batch: int, m: int, k: int, n: int, parts: int, pieces: int, tile: int) -> int:
    """Bytes that a projection holds, with what it takes while tiles are projected; k as elements of a row."""
    vectors = 100 * n + batch * parts * (64 * m + 200 * k)
    widest = max(m, n, k)
    of_tile = 8 * (8 + pieces) * min(max(tile, widest), max(m, n) * k * batch)
    return vectors + of_tile + 200 * widest * batch + OBJECTS


def _halves(x: Residues) -> Floats:
    """Vectors modulo the primes, shape (batch, length, 2), as the lower and the upper half modulo each prime."""
    halves = np.empty((*x.shape, 2))
    halves[..., 0], halves[..., 1] = x & (2**_HALF - 1), x >> _HALF
    return halves.reshape(*x.shape[:-1], -1)


def _products(values: Floats, vectors: Floats, transposed: bool) -> Residues:
    """Matrices, shape (batch, rows, columns), of integers up to 2**26 times vectors, shape (batch or 1, length, 4).

    With `transposed` their transposes. The result has shape (batch, rows or columns, 2).
    """
    length = values.shape[1 if transposed else 2]
    total = np.zeros((max(len(values), len(vectors)), values.shape[2 if transposed else 1], len(PRIMES)), np.int64)
    for h in range(0, length, _TURN):
        hs = slice(h, h + _TURN)
        some = values[:, hs].swapaxes(1, 2) if transposed else values[..., hs]
        sums = np.matmul(some, vectors[:, hs]).astype(np.int64)
        total += reduced(sums[..., 0::2] + (reduced(sums[..., 1::2]) << _HALF))
    return total


def _add(to: Residues, terms: Residues, weight: Residues | int) -> None:
    """Add terms times a weight, all below 2**31 but for the terms, which are reduced, modulo the primes."""
    to[...] = reduced(to + reduced(terms) * weight)


def _weights(bits: int, count: int, shift: int = 0) -> Iterator[Residues]:
    """2**(bits l + shift) modulo the primes, for l = 0, 1, ..."""
    return (powers_of_two(bits * i + shift) for i in range(count))


def _project(
    operand: Described, mu: Ints, part: int, scheme: Scheme, slot: int, side: str, vectors: Floats,
    size: int,
) -> Residues:  # fmt: skip
    """The image of a part of an operand times vectors: of the left one each row, of the right one each inner index.

    Parameters
    ----------
    mu : exponents of the images
    part : 0 or, of a complex operand, 1 for imaginary parts
    slot : 0; of digits the number of the digit of A, before which B counts with as many digits as are multiplied by it
    vectors : as `_halves` returns them, shape (batch or 1, columns of A, or of B, 4)
    size : elements to project at a time

    Returns
    -------
    shape (batch, rows of A, or inner indices, 2)
    """
    over_rows = side == "right"
    batch, rows, k = operand.x.shape
    found = np.zeros((max(batch, len(vectors)), k if over_rows else rows, len(PRIMES)), np.int64)
    for (b, r, hs), pieces, turned in _images(operand, mu, part, scheme, slot, side, size):
        at, along = (hs, r) if over_rows else (r, hs)
        to = found[b if batch > 1 else slice(None), at]
        of_vectors = vectors[b if len(vectors) > 1 and batch > 1 else slice(None), along]
        shift = 0
        if isinstance(scheme, Digits):
            shift = scheme.bits * (scheme.count - 1 - slot if side == "left" else slot)
        for weight, piece in zip(_weights(PIECE_BITS, len(pieces), shift), pieces, strict=True):
            _add(to, _products(piece, of_vectors, turned != over_rows), weight)
    return found


Tile = tuple[tuple[slice, slice, slice], list[Floats], bool]


def _images(operand: Described, mu: Ints, part: int, scheme: Scheme, slot: int, side: str, size: int) -> Iterator[Tile]:
    """Tiles of the image of an operand: matrices, rows and inner indices, pieces, and whether these are transposed.

    The image is the sum of pieces[j] 2**(PIECE_BITS j), each at most 2**PIECE_BITS.
    """
    if operand.numbers is not None:
        yield from _images_of_numbers(operand.numbers, mu, scheme, size // 4)
        return
    x = operand.x if parts_of(operand.x) == 1 else operand.x.imag if part else operand.x.real
    if _pieces_of(scheme) * PIECE_BITS > WIDEST_OF_FLOATS:
        yield from _images_of_numbers(x, mu, scheme, size // 4)
        return
    turned = x.strides[1] < x.strides[2] and x.size > 0
    x, of_rows = (x.swapaxes(1, 2), mu[:, None, :]) if turned else (x, mu[:, :, None])
    for b, some in tiles_of_rows(len(x), x.shape[1], x.shape[2], size):
        tile = x[b, some]
        values = (tile if isinstance(tile, np.ndarray) else tile.values()).astype(np.float64, copy=False)
        exponents = of_rows[b] if turned else of_rows[b, some]
        image = np.rint(scale(values if operand.finite else np.where(np.isfinite(values), values, 0.0), exponents))
        if isinstance(scheme, Digits):
            image = _digits_of(image, scheme, slot, side)
        at = (b, slice(None), some) if turned else (b, some, slice(None))
        yield at, _pieces(image), turned


def _digits_of(image: Floats, scheme: Digits, slot: int, side: str) -> Floats:
    """Digit `slot` of each image of A; of B the integer of the leading digits that are multiplied by it."""
    p, bits = scheme.count, scheme.bits
    if side == "right":
        return leading_digits(image, p - slot, p, bits)
    return leading_digits(image, slot + 1, p, bits) - leading_digits(image, slot, p, bits) * 2.0**bits


def _pieces_of(scheme: Scheme) -> int:
    """Number of pieces that hold any image."""
    return -(-scheme.largest.bit_length() // PIECE_BITS)


def _images_of_numbers(
    x: Numbers | npt.NDArray[Any] | ScaledRows, mu: Ints, scheme: Scheme, size: int
) -> Iterator[Tile]:
    """Do as `_images` does, of multiprecision numbers, or of floats whose images leave the range of float64."""
    count = _pieces_of(scheme)
    batch, rows, k = x.shape
    for b, r in tiles_of_rows(batch, rows, k, size):
        some = x[b, r]
        if isinstance(some, Numbers):
            tile = some
        else:
            values = plain(some)
            tile = of_floats(np.where(np.isfinite(values), values, 0.0))
        of_elements = np.broadcast_to(mu[b, r][..., None], tile.shape).reshape(-1)
        pieces = image_pieces(tile.reshape(-1), of_elements, count)
        yield (b, r, slice(None)), list(pieces.reshape(count, *tile.shape)), False


def _pieces(image: Floats) -> list[Floats]:
    """Integers in float64 as pieces of at most 2**PIECE_BITS, the lowest first."""
    pieces: list[Floats] = []
    most = max(float(image.max(initial=0)), -float(image.min(initial=0)))
    while most > 2.0**PIECE_BITS and len(pieces) < _MOST_PIECES:  # Inf, after a fault, ends, too
        above = np.rint(image * 2.0**-PIECE_BITS)
        image -= above * 2.0**PIECE_BITS
        pieces.append(image)
        image, most = above, most * 2.0**-PIECE_BITS + 1
    return [*pieces, image]
