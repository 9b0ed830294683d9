"""Words on NumPy: the split, the products on tensor cores in software, the sum (docs/definitions.md, section 7)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki._workspace import too_few_bytes
from ozaki.backends.numpy._describe import OBJECTS, Described
from ozaki.schemes.words import Group, Words, groups
from ozaki.tensor_core import Floats, accumulate, round_to

_OUTPUTS = 2**12
"""Entries worked on at a time, blocks of k counted: the arrays of their products stay in the second-level cache."""

_LEAST_OUTPUTS = 2**6

_SLAB = 2**12
"""Inner indices that are split at a time, at least a block."""


@dataclass(frozen=True)
class WordSlices:
    """One operand, split: `planes` of shape (count, batch, rows, k), float32, and the exponents mu of the scaling."""

    described: Described
    planes: npt.NDArray[np.float32]
    mu: npt.NDArray[np.int64]

    @property
    def x(self) -> npt.NDArray[Any]:
        """The rows of the operand."""
        rows: npt.NDArray[Any] = self.described.x
        return rows


def exponents(operand: Described, words: Words) -> npt.NDArray[np.int64]:
    """The exponents mu that bring rows just below 2**ceiling; 0 for a row without nonzero elements."""
    description = operand.on_host
    return np.where(description.empty, 0, words.ceiling - description.top)


def split(operand: Described, words: Words) -> WordSlices:
    """The words of a whole operand."""
    mu = exponents(operand, words)
    return WordSlices(operand, _words_of(operand.x, mu, words).astype(np.float32), mu)


def underflows(operand: Described, words: Words) -> int:
    """Elements whose words leave more than underflow-free words would: they are worth less than their bits say."""
    mu, found = exponents(operand, words), 0
    for b, rows, hs in _tiles(operand.x.shape):
        x = operand.x[b, rows, hs]
        scaled = _scaled(x, mu[b, rows])
        planes = _words_of(x, mu[b, rows], words)
        left = scaled - sum(np.ldexp(word, -words.scale_bits * s) for s, word in enumerate(planes))
        found += int(np.count_nonzero(np.abs(left) > words.residual * np.abs(scaled)))
    return found


def _tiles(shape: tuple[int, ...]) -> Iterator[tuple[slice, slice, slice]]:
    batch, rows, k = shape
    step = max(1, 2**13 // max(min(k, _SLAB), 1))
    for b in range(batch):
        for r in range(0, rows, step):
            for h in range(0, k, _SLAB):
                yield slice(b, b + 1), slice(r, r + step), slice(h, h + _SLAB)


def _scaled(x: npt.NDArray[Any], mu: npt.NDArray[np.int64]) -> Floats:
    """2**mu x, exact; nonfinite elements count as zero."""
    values = np.where(np.isfinite(x), x, 0).astype(np.float64)
    scaled: Floats = np.ldexp(values, mu[..., None].astype(np.int32))
    return scaled


def _words_of(x: npt.NDArray[Any], mu: npt.NDArray[np.int64], words: Words) -> Floats:
    """Word s is 2**(scale_bits s) times what the words before it leave, rounded; shape (count, *x.shape)."""
    left = _scaled(x, mu)
    planes = np.empty((words.count, *x.shape))
    for s in range(words.count):
        planes[s] = round_to(np.ldexp(left, words.scale_bits * s), words.word, words.rounding)
        left -= np.ldexp(planes[s], -words.scale_bits * s)
    return planes


def workspace(words: Words, shape: tuple[int, int, int], k: int, outputs: int) -> int:
    """Bytes held while that many entries of a product, shape (batch, m, n), are computed."""
    rows, cols = _sides(outputs, shape[1:])
    outputs = min(outputs, rows * cols * -(-k // (words.block or k)))  # blocks of k counted
    sums = len(groups(words)) + 1 + 4 * words.core.terms(words.word)
    # Of an operand's tile: while it is cut, and while its words are multiplied.
    copies = max(words.count + 11, 2 * (words.count + 2 + max(len(group.pairs) for group in groups(words))))
    return 8 * (outputs * sums + copies * (rows + cols) * min(_slab(words), k)) + OBJECTS


def _sides(outputs: int, shape: tuple[int, ...]) -> tuple[int, int]:
    """Rows and columns of a tile."""
    m, n = shape
    rows = min(m, max(int(outputs**0.5), outputs // max(n, 1)))
    return max(rows, 1), max(min(n, outputs // max(rows, 1)), 1)


def _slab(words: Words) -> int:
    """Inner indices taken at a time: whole blocks."""
    block = words.block or _SLAB
    return block * max(1, _SLAB // block)


def execute(
    words: Words, left: Described | WordSlices, right: Described | WordSlices, out: npt.NDArray[Any], limit: int | None
) -> int:
    """Compute out, shape (batch, m, n), finite elements only; returns the bytes of workspace."""
    outputs = _OUTPUTS
    k = (left.described if isinstance(left, WordSlices) else left).k
    while limit is not None and (needed := workspace(words, out.shape, k, outputs)) > limit:
        if outputs <= _LEAST_OUTPUTS:
            too_few_bytes(limit, needed)
        outputs //= 2
    mu, nu = (x.mu if isinstance(x, WordSlices) else exponents(x, words) for x in (left, right))
    batch, m, n = out.shape
    rows, cols = _sides(outputs, (m, n))
    for b in range(batch):
        i, j = (min(b, len(x) - 1) for x in (mu, nu))
        for r in range(0, m, rows):
            for c in range(0, n, cols):
                at, to = (i, slice(r, r + rows)), (j, slice(c, c + cols))
                total = _multiply(words, left, right, mu, nu, at, to, outputs)
                shift = -(mu[at][:, None] + nu[to][None, :])
                out[b, r : r + rows, c : c + cols] = np.ldexp(total, shift.astype(np.int32))
    return workspace(words, out.shape, k, outputs)


Tile = tuple[int, slice]


def _multiply(
    words: Words,
    left: Described | WordSlices,
    right: Described | WordSlices,
    mu: npt.NDArray[np.int64],
    nu: npt.NDArray[np.int64],
    at: Tile,
    to: Tile,
    outputs: int,
) -> Floats:
    """The sum of all groups for a tile of entries, in the format of the promotion."""
    k = (left.described if isinstance(left, WordSlices) else left).k
    shape = (len(mu[at]), len(nu[to]))
    shares = groups(words)
    sums = [np.zeros(shape) for _ in shares]
    slab = _slab(words)
    for h in range(0, k, slab):
        hs = slice(h, min(h + slab, k))
        a, b = _words_at(left, mu, at, hs, words), _words_at(right, nu, to, hs, words)
        for g, group in enumerate(shares):
            if group.promoted:
                sums[g] = _add_blocks(words, group, a, b, sums[g], outputs)
            else:
                pairs = [(a[s - 1], b[t - 1]) for s, t in group.pairs]
                sums[g] = accumulate(pairs, sums[g], words.word, words.accumulator, words.core)
    total = np.ldexp(sums[0], -shares[0].weight)
    for term, group in zip(sums[1:], shares[1:], strict=True):
        total = _outer(words, total + np.ldexp(term, -group.weight))
    return total


def _words_at(operand: Described | WordSlices, mu: npt.NDArray[np.int64], at: Tile, hs: slice, words: Words) -> Floats:
    """The words of some rows and inner indices, shape (count, rows, k)."""
    if isinstance(operand, WordSlices):
        return operand.planes[:, at[0], at[1], hs].astype(np.float64)
    return _words_of(operand.x[at[0], at[1], hs], mu[at], words)


def _add_blocks(words: Words, group: Group, a: Floats, b: Floats, total: Floats, outputs: int) -> Floats:
    """Promotion: each block from a zero accumulator, then added to the total outside the tensor core."""
    assert words.block is not None
    k, block = a.shape[-1], words.block
    together = block * max(1, outputs // total.size)
    whole = k - k % block
    cuts = [slice(h, min(h + together, whole)) for h in range(0, whole, together)] + [slice(whole, k)] * (whole < k)
    for cut in cuts:
        count = max((cut.stop - cut.start) // block, 1)
        sums, before = np.zeros((count, *total.shape)), None
        for turn in group.turns:
            if before is not None:
                sums = np.ldexp(sums, words.scale_bits * (sum(turn[0]) - sum(before[0]))).astype(np.float32)
            pairs = [(_blocks(a[s - 1][:, cut], count), _blocks(b[t - 1][:, cut], count)) for s, t in turn]
            sums, before = accumulate(pairs, sums, words.word, words.accumulator, words.core), turn
        for each in sums:
            total = _outer(words, total + each)
    return total


def _blocks(x: Floats, count: int) -> Floats:
    """Shape (rows, count * block) as (count, rows, block)."""
    return np.moveaxis(x.reshape(len(x), count, -1), 1, 0)


def _outer(words: Words, x: Floats) -> Floats:
    """A sum outside the tensor core: in FP32, or in FP64 as it is."""
    return x if words.promotion == "fp64" else x.astype(np.float32).astype(np.float64)
