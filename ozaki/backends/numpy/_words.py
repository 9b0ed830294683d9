"""Words on NumPy: cutting operands, and their products on tensor cores in software (docs/definitions.md, section 7)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy._describe import Described
from ozaki.backends.numpy._tiles import OBJECTS
from ozaki.backends.numpy.program import DESCRIBING, numbered
from ozaki.records.memory import too_few_bytes
from ozaki.records.progress import SILENT, Progress
from ozaki.schemes.words import Group, Words, groups
from ozaki.tensor_core import Floats, accumulate, round_to

_OUTPUTS = 2**12
"""Sums computed at a time, one for each entry and block of k: their arrays stay in the second-level cache."""

_LEAST_OUTPUTS = 2**6
"""Fewest sums at a time: a limit of workspace that is too small even for these is refused."""

_SLAB = 2**12
"""Inner indices that are cut into words at a time, rounded to whole blocks, at least one."""


@dataclass(frozen=True)
class WordSlices:
    """An operand that is cut into words, and the exponents of its scaling.

    Attributes
    ----------
    described : the operand with its description
    planes : the words, shape (count, batch, rows, k)
    mu : exponents that the rows are scaled by, shape (batch, rows)
    """

    described: Described
    planes: npt.NDArray[np.float32]
    mu: npt.NDArray[np.int64]

    @property
    def x(self) -> npt.NDArray[Any]:
        """The operand, shape (batch, rows, k)."""
        rows: npt.NDArray[Any] = self.described.unscaled
        return rows


def exponents(operand: Described, words: Words) -> npt.NDArray[np.int64]:
    """The exponents mu that scale rows to just below 2**ceiling, shape (batch, rows); 0 for a row of zeros."""
    description = operand.on_host
    return np.where(description.empty, 0, words.ceiling - description.top)


def split(operand: Described, words: Words) -> WordSlices:
    """The words of a whole operand."""
    mu = exponents(operand, words)
    return WordSlices(operand, _words_of(operand.unscaled, mu, words).astype(np.float32), mu)


def underflows(operand: Described, words: Words) -> int:
    """Number of elements of which the words leave more than `words.residual` allows, because a word underflows."""
    mu, found = exponents(operand, words), 0
    for b, rows, hs in _tiles(operand.x.shape):
        x = operand.unscaled[b, rows, hs]
        scaled = _scaled(x, mu[b, rows])
        planes = _words_of(x, mu[b, rows], words)
        left = scaled - sum(np.ldexp(word, -words.scale_bits * s) for s, word in enumerate(planes))
        found += int(np.count_nonzero(np.abs(left) > words.residual * np.abs(scaled)))
    return found


def _tiles(shape: tuple[int, ...]) -> Iterator[tuple[slice, slice, slice]]:
    """Cut (batch, rows, k) into tiles of about 2**13 elements of one matrix."""
    batch, rows, k = shape
    step = max(1, 2**13 // max(min(k, _SLAB), 1))
    for b in range(batch):
        for r in range(0, rows, step):
            for h in range(0, k, _SLAB):
                yield slice(b, b + 1), slice(r, r + step), slice(h, h + _SLAB)


def _scaled(x: npt.NDArray[Any], mu: npt.NDArray[np.int64]) -> Floats:
    """2**mu x, exact in float64; nonfinite elements count as zero."""
    values = np.where(np.isfinite(x), x, 0).astype(np.float64)
    scaled: Floats = np.ldexp(values, mu[..., None].astype(np.int32))
    return scaled


def _words_of(x: npt.NDArray[Any], mu: npt.NDArray[np.int64], words: Words) -> Floats:
    """The words of x, scaled by 2**mu, float64, shape (count, *x.shape).

    Word s, from 0, is what the words before it leave, times 2**(scale_bits s), rounded.
    """
    left = _scaled(x, mu)
    planes = np.empty((words.count, *x.shape))
    for s in range(words.count):
        planes[s] = round_to(np.ldexp(left, words.scale_bits * s), words.word, words.rounding)
        left -= np.ldexp(planes[s], -words.scale_bits * s)
    return planes


def workspace(words: Words, shape: tuple[int, int, int], k: int, outputs: int) -> int:
    """Bytes that are held while `outputs` sums of a product, shape (batch, m, n), are computed at a time."""
    rows, cols = _sides(outputs, shape[1:])
    outputs = min(outputs, rows * cols * -(-k // (words.block or k)))  # one for each entry and block
    sums = len(groups(words)) + 1 + 4 * words.core.terms(words.word)
    # Arrays as large as a tile of an operand: while it is cut, and while its words are multiplied.
    copies = max(words.count + 11, 2 * (words.count + 2 + max(len(group.pairs) for group in groups(words))))
    return 8 * (outputs * sums + copies * (rows + cols) * min(_slab(words), k)) + OBJECTS


def _sides(outputs: int, shape: tuple[int, ...]) -> tuple[int, int]:
    """Rows and columns of a tile of about `outputs` entries, of a product of shape (m, n)."""
    m, n = shape
    rows = min(m, max(int(outputs**0.5), outputs // max(n, 1)))
    return max(rows, 1), max(min(n, outputs // max(rows, 1)), 1)


def _slab(words: Words) -> int:
    """Inner indices that are cut into words at a time: whole blocks."""
    block = words.block or _SLAB
    return block * max(1, _SLAB // block)


@dataclass(frozen=True)
class WordProgram:
    """A product by words, tile by tile.

    Attributes
    ----------
    words : its scheme
    outputs : sums that are computed at a time
    rows, columns : of a tile of the result
    nbytes : bytes that are held while it runs, beside operands, their descriptions and the result
    """

    words: Words
    outputs: int
    rows: int
    columns: int
    nbytes: int

    def __str__(self) -> str:
        """The steps, a line each."""
        tiles = f"in tiles of {self.rows} x {self.columns} entries"
        cores = f"on modelled tensor cores of {self.words.core.name}"
        return numbered(*DESCRIBING, f"cut and multiply     a, b -> c   {tiles}, {cores}")


def word_program(words: Words, shape: tuple[int, int, int], k: int, limit: int | None) -> WordProgram:
    """The program of a product of shape (batch, m, n), which keeps within `limit` bytes, None for no limit.

    Raises
    ------
    ValueError
        If the smallest tiles exceed the limit.
    """
    outputs = _OUTPUTS
    while limit is not None and (needed := workspace(words, shape, k, outputs)) > limit:
        if outputs <= _LEAST_OUTPUTS:
            too_few_bytes(limit, needed)
        outputs //= 2
    return WordProgram(words, outputs, *_sides(outputs, shape[1:]), workspace(words, shape, k, outputs))


def execute(
    program: WordProgram,
    left: Described | WordSlices,
    right: Described | WordSlices,
    out: npt.NDArray[Any],
    progress: Progress = SILENT,
) -> None:
    """Compute out, shape (batch, m, n), NaN and Inf counted as zero."""
    words, rows, cols = program.words, program.rows, program.columns
    mu, nu = (x.mu if isinstance(x, WordSlices) else exponents(x, words) for x in (left, right))
    batch, m, n = out.shape
    progress.begin(batch * len(range(0, m, rows)) * len(range(0, n, cols)), "tiles")
    for b in range(batch):
        i, j = (min(b, len(x) - 1) for x in (mu, nu))
        for r in range(0, m, rows):
            for c in range(0, n, cols):
                rows_at, cols_at = (i, slice(r, r + rows)), (j, slice(c, c + cols))
                total = _multiply(words, left, right, mu, nu, rows_at, cols_at, program.outputs)
                shift = -(mu[rows_at][:, None] + nu[cols_at][None, :])
                out[b, r : r + rows, c : c + cols] = np.ldexp(total, shift.astype(np.int32))
                progress.step()


Tile = tuple[int, slice]
"""(matrix, rows) of an operand."""


def _multiply(
    words: Words,
    left: Described | WordSlices,
    right: Described | WordSlices,
    mu: npt.NDArray[np.int64],
    nu: npt.NDArray[np.int64],
    rows_at: Tile,
    cols_at: Tile,
    outputs: int,
) -> Floats:
    """The sum of all groups for a tile of entries, in the format of the promotion, as float64."""
    k = (left.described if isinstance(left, WordSlices) else left).k
    shape = (len(mu[rows_at]), len(nu[cols_at]))
    accumulators = groups(words)
    sums = [np.zeros(shape) for _ in accumulators]
    slab = _slab(words)
    for h in range(0, k, slab):
        hs = slice(h, min(h + slab, k))
        a, b = _words_at(left, mu, rows_at, hs, words), _words_at(right, nu, cols_at, hs, words)
        for g, group in enumerate(accumulators):
            if group.promoted:
                sums[g] = _add_blocks(words, group, a, b, sums[g], outputs)
            else:
                pairs = [(a[s - 1], b[t - 1]) for s, t in group.pairs]
                sums[g] = accumulate(pairs, sums[g], words.word, words.accumulator, words.core)
    total = np.ldexp(sums[0], -accumulators[0].weight)
    for term, group in zip(sums[1:], accumulators[1:], strict=True):
        total = _outer(words, total + np.ldexp(term, -group.weight))
    return total


def _words_at(
    operand: Described | WordSlices, mu: npt.NDArray[np.int64], rows_at: Tile, hs: slice, words: Words
) -> Floats:
    """The words of some rows and inner indices hs of an operand, float64, shape (count, rows, k)."""
    if isinstance(operand, WordSlices):
        return operand.planes[:, rows_at[0], rows_at[1], hs].astype(np.float64)
    return _words_of(operand.unscaled[rows_at[0], rows_at[1], hs], mu[rows_at], words)


def _add_blocks(words: Words, group: Group, a: Floats, b: Floats, total: Floats, outputs: int) -> Floats:
    """The total plus the sums of all blocks of k, each from a zero accumulator, added outside the tensor core."""
    assert words.block is not None
    k, block = a.shape[-1], words.block
    together = block * max(1, outputs // total.size)
    whole = k - k % block
    cuts = [slice(h, min(h + together, whole)) for h in range(0, whole, together)] + [slice(whole, k)] * (whole < k)
    for cut in cuts:
        count = max((cut.stop - cut.start) // block, 1)
        sums, last_turn = np.zeros((count, *total.shape)), None
        for turn in group.turns:
            if last_turn is not None:
                sums = np.ldexp(sums, words.scale_bits * (sum(turn[0]) - sum(last_turn[0]))).astype(np.float32)
            pairs = [(_blocks(a[s - 1][:, cut], count), _blocks(b[t - 1][:, cut], count)) for s, t in turn]
            sums, last_turn = accumulate(pairs, sums, words.word, words.accumulator, words.core), turn
        for each in sums:
            total = _outer(words, total + each)
    return total


def _blocks(x: Floats, count: int) -> Floats:
    """x, shape (rows, count * block), as shape (count, rows, block)."""
    return np.moveaxis(x.reshape(len(x), count, -1), 1, 0)


def _outer(words: Words, x: Floats) -> Floats:
    """A float64 sum outside the tensor core, rounded to FP32 unless promotion is to FP64."""
    return x if words.promotion == "fp64" else x.astype(np.float32).astype(np.float64)
