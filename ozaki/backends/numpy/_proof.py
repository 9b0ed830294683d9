"""The proof's products of magnitudes on NumPy, and the worst ratio to them (docs/design.md, section 9)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki._bounds import ErrorTerms, error_terms
from ozaki._description import Described
from ozaki._proof import EVERY, NARROW_BITS, NARROW_DEPTH, SAMPLE, SAMPLED_FROM, Look, Ratio, wide_bits
from ozaki.backends.numpy._describe import TILE, along_memory, row_tiles, scale, turned
from ozaki.backends.numpy._limbs import Floats
from ozaki.schemes import Scheme, Words
from ozaki.schemes.image import EMPTY_TOP


def narrow_product(left: Described, right: Described, sampled: bool, alone: bool = True) -> Floats:
    """Exact products of 7-bit magnitudes; float32 sums of 2**10 such products are exact."""
    a, b = (_magnitudes(x, NARROW_BITS, sampled, np.float32, NARROW_DEPTH) for x in (left, right))

    def product(h: int) -> npt.NDArray[np.float32]:
        part: npt.NDArray[np.float32] = np.matmul(a[:, :, h : h + 2**10], b[:, :, h : h + 2**10].swapaxes(1, 2))
        return part

    total = product(0).astype(np.float64)
    for h in range(2**10, a.shape[2], 2**10):
        total += product(h)
    return total


def least_product(left: Described, right: Described) -> Callable[[], float]:
    """The least of the first level's products, times 2**-14, of rows that are not all zeros; inf without such."""
    of_left, of_right = (~x.on_host.empty for x in (left, right))
    product = narrow_product(left, right, left.k > SAMPLED_FROM)
    least = float(product.min(initial=inf, where=of_left[:, :, None] & of_right[:, None, :])) * 4.0**-NARROW_BITS
    return lambda: least


def wide_product(left: Described, right: Described, alone: bool = True) -> Floats:
    """Exact products of wider magnitudes, and a lower bound by exponents where they are zero."""
    bits = wide_bits(left.k)
    a, b = (_magnitudes(x, bits, False) for x in (left, right))
    product: Floats = np.matmul(a, b.swapaxes(1, 2))
    if not product.all():
        _bound_by_exponents(product, left, right, 2 * bits)
    return product


def _bound_by_exponents(lower: Floats, left: Described, right: Described, raised: int) -> None:
    """Where lower is zero: the largest product of leading powers of two, inf where all products are zero."""
    powers = _leading(left), _leading(right)
    last = [len(e) - 1 for e in powers]
    a, b = ((e > EMPTY_TOP).astype(np.float32) for e in powers)
    lower[(lower == 0) & (np.matmul(a, b.swapaxes(1, 2)) == 0)] = np.inf  # often many, found by one product
    for at, i in zip(*np.nonzero((lower == 0).any(axis=2)), strict=True):
        j = np.nonzero(lower[at, i] == 0)[0]
        for part in np.array_split(j, 1 + len(j) * left.k // TILE):
            best = (powers[0][min(at, last[0]), i] + powers[1][min(at, last[1]), part]).max(axis=-1)
            lower[at, i, part] = np.ldexp(1.0, best + raised)


def _magnitudes(
    operand: Described, bits: int, sampled: bool, dtype: Any = np.float64, depth: int | None = None
) -> npt.NDArray[Any]:
    """Leading bits of the magnitudes of the first `depth` elements of rows, or of those that are sampled."""
    x = operand.x
    description = operand.on_host
    if sampled:
        keep = np.arange(x.shape[-1]) % EVERY < SAMPLE
        x = x[..., keep]
    x = x[..., :depth]
    exponents = np.where(description.empty, 0, bits - description.top)
    nonfinite = bool(description.nonfinite.any())
    magnitudes = np.empty(turned(x, x).shape, dtype)
    for at, piece, of_rows in along_memory(x, exponents):
        values = np.abs(piece.astype(np.float64, copy=False))
        if nonfinite:
            values[~np.isfinite(values)] = 0
        magnitudes[at] = np.floor(scale(values, of_rows))
    return turned(magnitudes, x)


def worst_ratios(
    lower: Floats,
    left: Described,
    right: Described,
    wanted: Sequence[tuple[Scheme | Words, int]],
    alone: bool = True,
) -> list[Look]:
    """The largest image error / lower of each scheme, in so many rows."""
    return [_worst_ratio(lower, left, right, *each) for each in wanted]


def _worst_ratio(lower: Floats, left: Described, right: Described, scheme: Scheme | Words, rows: int) -> Look:
    spans = left.span, right.span
    terms = error_terms(left.on_host, right.on_host, scheme, spans)
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
    found = Ratio(worst, spans, min(left.least_span, right.least_span))
    return Look(lambda: found)


def _numerators(terms: ErrorTerms, b: slice, rows: slice) -> Floats:
    p, q = (side if side.shape[1] == 1 else side[:, b] for side in (terms.left, terms.right))
    p, q = p[:, :, rows, None], q[:, :, None, :]
    total: Floats = p[0] * q[0]
    total += p[1] * q[1]
    total += p[2] * q[2]
    return total


def _leading(operand: Described) -> npt.NDArray[np.int32]:
    """Exponents e of the leading powers of two 2**e <= abs(x) 2**-top; far below all others for a zero."""
    x = operand.x
    exponents = np.frexp(x.astype(np.float64, copy=False))[1].astype(np.int32) - 1
    zero = (x == 0) | ~np.isfinite(x)
    return np.where(zero, 2 * EMPTY_TOP, exponents - operand.on_host.top[..., None]).astype(np.int32)
