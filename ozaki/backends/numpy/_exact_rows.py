"""Rows of products of 16-bit floats whose entries are exact inner products, rounded once, on NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy._describe import Described
from ozaki.backends.numpy._execute import execute
from ozaki.backends.numpy._inner_products import inner_products, inner_products_bytes
from ozaki.backends.numpy._limbs import Floats
from ozaki.backends.numpy._row_columns import Columns
from ozaki.backends.numpy._short_sums import combine
from ozaki.backends.numpy._sixteen import Bits, beside_boundary, on_boundary, to_sixteen
from ozaki.backends.numpy._tiles import COMBINED_SHARE, TILE
from ozaki.bounds.description import FIELDS
from ozaki.multiprecision.floats import empty
from ozaki.multiprecision.limbs import limbs_of
from ozaki.planning.proof import exact_bits
from ozaki.planning.search import exact_below
from ozaki.records.combination import Combination
from ozaki.records.memory import Memory
from ozaki.records.progress import Progress
from ozaki.records.shapes import tiles_of_rows
from ozaki.schemes import Scheme
from ozaki.schemes.named import scheme_of
from ozaki.schemes.residues import MOST_RESIDUES
from ozaki.schemes.row_digits import Sixteen

_ENTRIES = 2**24
"""Entries that are computed as float64 numbers at a time, if there is no limit."""

_DECIDED = 2**20
"""Elements of rows that are copied at a time to decide between two neighbouring numbers."""


def multiply_exact(
    left: Described,
    columns: Columns,
    out: Bits,
    memory: Memory,
    progress: Progress,
    combination: Combination | None,
    engine: str,
) -> None:
    """Compute the exact products of rows, rounded once, NaN and Inf counted as zero."""
    batch, m, n = out.shape
    left, right = _without_nonfinite(left), _without_nonfinite(columns.described)
    k, of = left.x.shape[2], columns.scheme.sixteen
    spans = left.span, right.span
    scheme = scheme_of("residues", exact_below("residues", MOST_RESIDUES, k, spans))
    bits = exact_bits(spans, k)
    doubtful = bits > 53
    nbytes = 8 if combination is None else 8 * (limbs_of(bits) + 4)
    most = _ENTRIES if memory.rest is None else min(_ENTRIES, memory.rest // (4 * nbytes))
    for b, rows in tiles_of_rows(batch, m, n, max(most, 1)):
        some = left.part(b, rows)
        beside = right if len(right.x) == 1 else right.part(b, slice(None))
        if combination is not None:
            _combine_exact(scheme, engine, some, beside, bits, combination.at((b, rows)), out[b, rows], of, memory)
            progress.step(some.x.shape[0] * some.x.shape[1])
            continue
        values = np.empty((len(some.x), some.x.shape[1], n))
        memory.hold(values.nbytes)
        execute(scheme, engine, some, beside, values, memory)
        to = out[b, rows]
        for i in range(values.shape[0]):
            for r in range(0, values.shape[1], max(1, TILE // n)):
                tile = values[i, r : r + max(1, TILE // n)]
                to[i, r : r + len(tile)] = to_sixteen(tile, of)
                if doubtful:
                    j = min(i, len(beside.x) - 1)
                    of_both = some.unscaled[i, r : r + len(tile)], beside.unscaled[j]
                    _decide(*of_both, tile, to[i, r : r + len(tile)], of, memory)
        memory.free(values.nbytes)
        progress.step(values.shape[0] * values.shape[1])


def _without_nonfinite(rows: Described) -> Described:
    """Rows whose NaN and Inf count as zero, and are not heard of again."""
    if not rows.on_host.nonfinite.any():
        return rows
    fields = rows.fields.copy()
    fields[FIELDS.index("nonfinite")] = 0
    return Described(rows.x, fields, rows.finite)


def _combine_exact(
    scheme: Scheme,
    engine: str,
    left: Described,
    right: Described,
    bits: int,
    combination: Combination,
    out: Bits,
    of: Sixteen,
    memory: Memory,
) -> None:
    """Round an expression of the exact product, whose entries have so many bits, into out."""
    product = empty(out.shape, bits, np)
    held = product.limbs.nbytes + 9 * out.size
    memory.hold(held)
    execute(scheme, engine, left, right, product, memory)
    step = TILE // COMBINED_SHARE
    memory.pass_through((500 + 40 * len(product.limbs)) * min(step, out.size))
    batch, m, n = out.shape
    for b, rows in tiles_of_rows(batch, m, n, step):
        combine(product[b, rows], combination.at((b, rows)), out[b, rows], of)
    memory.free(held)


def _decide(x: npt.NDArray[Any], y: npt.NDArray[Any], values: Floats, out: Bits, of: Sixteen, memory: Memory) -> None:
    """Round entries whose rounded value lies on a boundary of the format by the side on which the exact one lies.

    `values`, shape (rows, columns), are inner products of rows x and y rounded to float64.
    """
    rows, cols = np.nonzero(on_boundary(values, of))
    k = x.shape[1]
    step = max(1, _DECIDED // (k + 1))
    if memory.rest is not None:
        step = max(1, min(step, memory.rest // (64 * (k + 1))))
    for first in range(0, len(rows), step):
        i, j = rows[first : first + step], cols[first : first + step]
        boundary = values[i, j]
        count = len(boundary)
        # The sign of the inner product of rows with one index more, whose product is -boundary.
        longer_x, longer_y = np.empty((2, count, 1, k + 1))
        longer_x[:, 0, :k], longer_y[:, 0, :k] = x[i], y[j]
        longer_x[:, 0, k], longer_y[:, 0, k] = -1.0, boundary
        memory.pass_through(longer_x.nbytes * 2 + 64 * count + inner_products_bytes(longer_x, longer_y, count))
        beyond = np.empty((count, 1, 1))
        zeros = np.zeros(count, np.int64)
        inner_products(longer_x, longer_y, np.stack((np.arange(count), zeros, zeros)), beyond)
        out[i, j] = beside_boundary(boundary, np.sign(beyond.ravel()).astype(np.int64), of)
