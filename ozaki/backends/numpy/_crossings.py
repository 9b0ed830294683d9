"""How many entries of a product will be undecided when they are rounded, foretold on NumPy (docs/bounds.md, B14)."""

from __future__ import annotations

import numpy as np

from ozaki.backends.numpy._describe import Described
from ozaki.backends.numpy._scaled import plain
from ozaki.backends.numpy._tiles import OBJECTS, TILE
from ozaki.bounds.description import Ints
from ozaki.bounds.sampled_products import (
    NONE,
    PARTS,
    exponents_of,
    least_exponent,
    looked_at,
    part_bits,
    spread,
)
from ozaki.bounds.undecided import Crossings, Floats, crossings
from ozaki.schemes import Scheme


def some_rows(x: Described) -> Described:
    """The rows of an operand that are looked at, and their descriptions."""
    batch, rows, _ = x.x.shape
    matrices, of_matrix = map(spread, (batch, rows), looked_at(x.x.shape))
    return Described(x.x[matrices][:, of_matrix], x.fields[:, matrices][:, :, of_matrix], x.finite)


def foretell(left: Described, right: Described, scheme: Scheme, dtype: str) -> Crossings:
    """What some rows of A and columns of B, as `some_rows` picks them, say of entries in the format `dtype`."""
    (x, m, k), (y, n, _) = left.x.shape, right.x.shape
    sums = np.zeros((PARTS, max(x, y), m, n))
    slab, width = _slab(left.x.shape, right.x.shape), part_bits(k)
    for h in range(0, k, slab):
        first, second = (_parts(of, slice(h, h + slab), width) for of in (left, right))
        length = first.shape[-1]
        turned = second[:, :, ::-1].reshape(y, n, -1).swapaxes(1, 2)  # the last part comes first
        flat = first.reshape(x, m, -1)
        for p in range(1, PARTS + 1):
            sums[p - 1] += np.matmul(flat[:, :, : p * length], turned[:, (PARTS - p) * length :])
    c = sums[0]
    for each in sums[1:]:
        c = c * 2.0**width + each
    c *= 2.0 ** (-(PARTS + 1) * width)
    largest = np.full(c.shape, NONE)
    small = np.nonzero(np.abs(c) < 2.0 ** least_exponent(k))
    if small[0].size:
        largest[small] = _largest(left, right, small)
    return crossings(exponents_of(c, largest, k), left.on_host, right.on_host, scheme, dtype)


def _largest(left: Described, right: Described, entries: tuple[Ints, ...]) -> Ints:
    """The largest exponents of products, as of `exponents_of`, of entries (matrices, rows, columns)."""
    matrices, rows, columns = entries
    found = np.full(len(rows), 2 * NONE)
    k = left.x.shape[2]
    for h in range(0, k, _EXPONENTS):
        of_left, of_right = (_exponents(of, slice(h, h + _EXPONENTS)) for of in (left, right))
        for i in range(0, len(rows), _ENTRIES):
            some = slice(i, i + _ENTRIES)
            of_rows = of_left[matrices[some] % len(of_left), rows[some]]
            sums = of_rows + of_right[matrices[some] % len(of_right), columns[some]]
            found[some] = np.maximum(found[some], sums.max(1))
    return found


_EXPONENTS, _ENTRIES = 256, 64
"""Inner indices and entries whose exponents are added at a time."""


def _exponents(x: Described, hs: slice) -> Ints:
    """The frexp exponents of elements less their row's top; `NONE` of those that do not count."""
    some = plain(x.x[:, :, hs])
    exponents = np.frexp(some)[1] - x.on_host.top[..., None]
    return np.where(np.isfinite(some) & (some != 0), exponents, NONE)


def foretelling_bytes(left: tuple[int, ...], right: tuple[int, ...]) -> int:
    """Bytes that `foretell` holds for operands of these shapes: copies of rows, and arrays of all their entries."""
    (b, m), (d, n) = (looked_at(x) for x in (left, right))
    slab = _slab((b, m, left[2]), (d, n, left[2]))
    rows = 8 * (b * m + d * n)
    some = 5 * rows * min(left[2], _EXPONENTS) + 24 * _EXPONENTS * min(m * n, _ENTRIES)
    return rows * left[2] + 2 * (PARTS + 2) * rows * slab + (128 + 8 * PARTS) * max(b, d) * m * n + some + OBJECTS


def _slab(left: tuple[int, ...], right: tuple[int, ...]) -> int:
    """Inner indices that are multiplied at a time, of rows of these shapes."""
    return min(max(TILE // PARTS // max(left[0] * left[1], right[0] * right[1]), 1), max(left[2], 1))


def _parts(x: Described, hs: slice, width: int) -> Floats:
    """The parts of rows at some inner indices, shape (batch, rows, PARTS, indices); NaN and Inf count as zeros."""
    rest = plain(x.x[:, :, hs]).astype(np.float64)
    rest[~np.isfinite(rest)] = 0
    rest = np.ldexp(rest, width - x.on_host.top.astype(np.int32)[..., None])
    parts = np.empty((*rest.shape[:2], PARTS, rest.shape[2]))
    for p in range(PARTS):
        np.trunc(rest, out=parts[:, :, p])
        rest -= parts[:, :, p]
        rest *= 2.0**width
    return parts
