"""The proof's products of magnitudes on NumPy, and the worst ratio to them (docs/bounds.md, B7)."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy._describe import OBJECTS, TILE, Described, along_memory, row_tiles, scale, turned
from ozaki.backends.numpy._limbs import Floats
from ozaki.bounds.exact import ErrorTerms
from ozaki.bounds.levels import EVERY, NARROW_BITS, NARROW_DEPTH, SAMPLE, Level, levels, wide_bits
from ozaki.bounds.of_scheme import error_terms
from ozaki.schemes import Scheme, Words
from ozaki.schemes.image import EMPTY_TOP

SLAB = 2**10
"""Inner indices whose magnitudes are held at a time; float32 sums of so many products of 7-bit magnitudes are exact."""


def lower_bound(left: Described, right: Described, level: Level) -> Floats:
    """(abs(A) abs(B))_ij from below, shape (batch, m, n), in units of 4**-bits of the level and 2**(top_i + top_j)."""
    if level == "wide":
        return _wide_product(left, right)
    return _product(left, right, NARROW_BITS, np.float32, _indices(left.k, level == "sampled"))


def _wide_product(left: Described, right: Described) -> Floats:
    """Exact products of wide magnitudes.

    Where one is zero: 4**bits times the largest product of leading powers of two, inf where all products are zero.
    """
    bits = wide_bits(left.k)
    product = _product(left, right, bits, np.float64, _slabs(left.k))
    if not product.all():
        _bound_by_exponents(product, left, right, 2 * bits)
    return product


def some_rows(operand: Described, batch: slice, rows: slice) -> Described:
    """Some rows of an operand, described alike."""
    return Described(operand.x[batch, rows], operand.fields[:, batch, rows])


def proof_workspace(level: str, left: tuple[int, ...], right: tuple[int, ...]) -> int:
    """Bytes held while the worst ratios of a level are found for operands of these shapes (batch, rows, k)."""
    k, rows = left[2], (left[0] * left[1], right[0] * right[1])
    entries = max(left[0], right[0]) * left[1] * right[1]
    slab = min(k, SLAB)
    tiles = 5 * min(max(TILE, right[1]), entries) + 4 * min(TILE, max(rows) * slab)
    if level == "wide":
        # Of an entry two float64, or one, a float32 count and masks; of an element a float64, and an exponent.
        return 26 * entries + 12 * sum(rows) * slab + 4 * sum(rows) * k + 8 * tiles + OBJECTS
    taken = max(rows) * slab if level == "sampled" else 0
    return 12 * entries + 4 * sum(rows) * slab + 8 * (taken + tiles) + OBJECTS


def _slabs(k: int) -> Iterator[Any]:
    """Index k in slabs."""
    return (slice(h, h + SLAB) for h in range(0, k, SLAB))


def _indices(k: int, sampled: bool) -> Iterator[Any]:
    """The inner indices of a narrow product, in slabs: at most `NARROW_DEPTH`, all or the sampled ones."""
    if not sampled:
        return _slabs(min(k, NARROW_DEPTH))
    span = SLAB * EVERY // SAMPLE
    some = np.arange(span)[np.arange(span) % EVERY < SAMPLE]
    slabs = range(0, min(k, NARROW_DEPTH * EVERY // SAMPLE), span)
    return ((h + some)[h + some < k] for h in slabs)


def _product(left: Described, right: Described, bits: int, dtype: Any, indices: Iterator[Any]) -> Floats:
    """Exact products of magnitudes of so many bits, those of a slab exact in `dtype`, as float64."""
    total: Floats | None = None
    for hs in indices:
        a, b = (_magnitudes(x, bits, hs, dtype) for x in (left, right))
        part = np.matmul(a, b.swapaxes(1, 2))
        if total is None:
            total = part.astype(np.float64, copy=False)
        else:
            total += part
        del a, b, part  # before the next ones
    assert total is not None
    return total


def least_product(left: Described, right: Described) -> float:
    """The least of the first level's lower bounds, in units of 1, of rows that are not all zeros; inf without such."""
    of_left, of_right = (~x.on_host.empty for x in (left, right))
    product = lower_bound(left, right, levels(left.k)[0])
    return float(product.min(initial=inf, where=of_left[:, :, None] & of_right[:, None, :])) * 4.0**-NARROW_BITS


def _bound_by_exponents(lower: Floats, left: Described, right: Described, raised: int) -> None:
    """Where lower is zero: the largest product of leading powers of two, inf where all products are zero."""
    powers = _leading(left), _leading(right)
    last = [len(e) - 1 for e in powers]
    met = np.zeros(lower.shape, bool)  # whether two nonzero elements do
    for hs in _slabs(left.k):
        a, b = ((e[..., hs] > EMPTY_TOP).astype(np.float32) for e in powers)
        met |= np.matmul(a, b.swapaxes(1, 2)) > 0  # often few do, found by one product
    zero = lower == 0
    met &= zero
    lower[zero ^ met] = np.inf
    for at, i in zip(*np.nonzero(met.any(axis=2)), strict=True):
        j = np.nonzero(met[at, i])[0]
        row, columns = powers[0][min(at, last[0]), i], powers[1][min(at, last[1])]
        for part in np.array_split(j, 1 + len(j) * SLAB // TILE):
            sums = ((row[hs] + columns[part, hs]).max(axis=-1) for hs in _slabs(left.k))
            lower[at, i, part] = np.ldexp(1.0, functools.reduce(np.maximum, sums) + raised)


def _magnitudes(operand: Described, bits: int, hs: Any, dtype: Any) -> npt.NDArray[Any]:
    """Leading bits of the magnitudes of those inner indices, a slice or an array of them."""
    x = operand.x[..., hs]
    description = operand.on_host
    exponents = np.where(description.empty, 0, bits - description.top)
    nonfinite = bool(description.nonfinite.any())
    magnitudes = np.empty(turned(x, x).shape, dtype)
    for at, piece, of_rows in along_memory(x, exponents):
        values = np.abs(piece.astype(np.float64, copy=False))
        if nonfinite:
            values[~np.isfinite(values)] = 0
        magnitudes[at] = np.floor(scale(values, of_rows))
    return turned(magnitudes, x)


def worst_ratio(
    lower: Floats, left: Described, right: Described, spans: tuple[int, int], scheme: Scheme | Words, rows: int
) -> float:
    """The largest image error of a scheme / lower, in the first rows of A, so many."""
    terms = error_terms(left.on_host, right.on_host, scheme, scheme.dropped(left.k, spans))
    terms, lower = ErrorTerms(terms.left[:, :, :rows], terms.right), lower[:, :rows]
    worst = 0.0
    for at in row_tiles(*lower.shape):
        below = lower[at]
        above = _numerators(terms, *at)
        positive = below > 0
        if not positive.all():
            worst = inf if above[~positive].any() else worst
            above, below = above[positive], below[positive]
        above /= below
        worst = max(worst, float(above.max(initial=0.0)))
    return worst


def _numerators(terms: ErrorTerms, b: slice, rows: slice) -> Floats:
    p, q = (side if side.shape[1] == 1 else side[:, b] for side in (terms.left, terms.right))
    p, q = p[:, :, rows, None], q[:, :, None, :]
    total: Floats = p[0] * q[0]
    total += p[1] * q[1]
    total += p[2] * q[2]
    return total


def _leading(operand: Described) -> npt.NDArray[np.int32]:
    """Exponents e of the leading powers of two 2**e <= abs(x) 2**-top; far below all others for a zero."""
    tops = operand.on_host.top.astype(np.int32)
    leading = np.empty(operand.x.shape, np.int32)
    for b, rows in row_tiles(*operand.x.shape):
        for hs in _slabs(operand.k):
            x = operand.x[b, rows, hs]
            exponents = np.frexp(x.astype(np.float64, copy=False))[1] - 1 - tops[b, rows, None]
            exponents[(x == 0) | ~np.isfinite(x)] = 2 * EMPTY_TOP
            leading[b, rows, hs] = exponents
    return leading
