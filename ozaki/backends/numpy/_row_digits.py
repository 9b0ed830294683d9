"""Products of 16-bit floats, rounded once to 16 bits, whose rows have digits of their own count, on NumPy.

docs/definitions.md, section 11, says what is computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy import _limbs
from ozaki.backends.numpy._describe import ROW_BYTES, Described, describe, describing_bytes
from ozaki.backends.numpy._execute import execute
from ozaki.backends.numpy._inner_products import inner_products, inner_products_bytes
from ozaki.backends.numpy._limbs import Floats
from ozaki.backends.numpy._nonfinite import patch
from ozaki.backends.numpy._row_statistics import EXACT, Kinds, kinds_of, statistics_bytes, summary_of
from ozaki.backends.numpy._sixteen import Bits, beside_boundary, on_boundary, to_sixteen
from ozaki.backends.numpy._tiles import TILE
from ozaki.backends.numpy.engines.row_digits import RowDigitEngine
from ozaki.backends.numpy.program import Program, Views, program_of
from ozaki.bounds.row_digits import Ints, RowStatistics
from ozaki.planning.proof import exact_bits
from ozaki.planning.search import exact_below
from ozaki.records.memory import Memory
from ozaki.records.progress import SILENT, Progress
from ozaki.records.row_kinds import RowKinds
from ozaki.records.shapes import tiles_of_rows
from ozaki.schemes import Digits
from ozaki.schemes.named import scheme_of
from ozaki.schemes.residues import MOST_RESIDUES
from ozaki.schemes.row_digits import LONGEST, RowDigits, Sixteen

_EXACT_ENTRIES = 2**24
"""Entries of exact rows that are computed as float64 numbers at a time, if there is no limit."""

_DECIDED = 2**20
"""Elements of rows that are copied at a time to decide between two neighbouring numbers."""


@dataclass(frozen=True)
class Columns:
    """The columns of B, and what of them decides how many digits rows of A have.

    Attributes
    ----------
    scheme : of the product
    described : the columns as rows, shape (batch or 1, n, k), float32
    summary : of the columns of each matrix
    nu : exponents of the images, shape (batch or 1, n)
    """

    scheme: RowDigits
    described: Described
    summary: RowStatistics
    nu: Ints

    @property
    def x(self) -> npt.NDArray[Any]:
        """The columns as rows, shape (batch or 1, n, k)."""
        rows: npt.NDArray[Any] = self.described.unscaled
        return rows


def columns_of(scheme: RowDigits, y: npt.NDArray[Any]) -> Columns:
    """Describe and summarise the columns of B, given as rows y, shape (batch, n, k), float32 with any strides."""
    described = describe(y)
    scaling = Digits(scheme.columns).scaling(y.shape[2])
    return Columns(scheme, described, summary_of(scheme, described), described.on_host.exponents(scaling))


def row_digit_steps(scheme: RowDigits) -> tuple[str, ...]:
    """What is done with described operands, for people."""
    kinds = " or ".join(map(str, scheme.kinds))
    return (
        f"count digits         a, summary of b -> {kinds} digits of each row of a, or exact",
        f"multiply             a, b of {scheme.columns} digits -> diagonals of digits; rows of one count together",
        f"round                diagonals -> c, {scheme.format}",
        "compute exactly      rows without a proof -> c",
    )


def multiply_rows(
    scheme: RowDigits,
    x: npt.NDArray[Any],
    y: npt.NDArray[Any] | Columns,
    out: Bits,
    memory: Memory,
    progress: Progress = SILENT,
) -> RowKinds:
    """Compute out = A B, each entry rounded once to the format of the scheme (docs/definitions.md, 11).

    Parameters
    ----------
    x : shape (batch, m, k), float32 with any strides, the rows of A, whose elements the format has
    y : the columns of B: shape (batch or 1, n, k), likewise, or what `columns_of` made of them
    out : shape (batch, m, n), uint16, with any strides: the bits of the result
    memory : counts what is held, and limits it
    progress : is told of the rows that are done

    Returns
    -------
    kinds : how many rows of each kind there were, and what is proven
    """
    batch, m, k = x.shape
    progress.begin(batch * m, "rows")
    if out.size == 0 or k == 0:
        out[...] = 0
        return RowKinds((batch * m, *(0 for _ in scheme.kinds[1:])), 0, 0.0)
    held = 0
    if not isinstance(y, Columns):
        held += _hold_description(memory, y)
        memory.pass_through(statistics_bytes(len(y), y.shape[1], k))
        y = columns_of(scheme, y)
    held += _hold_description(memory, x)
    rows = describe(x)
    kinds, worst = _kinds(scheme, rows, y, memory)
    found = [int((kinds == kind).sum()) for kind in (*scheme.kinds, EXACT)]
    for kind, count in zip((*scheme.kinds, EXACT), found, strict=True):
        if count:
            _multiply_kind(kind, kinds, rows, y, out, memory, progress)
    flags = [each.on_host.nonfinite for each in (rows, y.described)]
    if any(each.any() for each in flags):
        convert = partial(to_sixteen, of=scheme.sixteen)
        patch(x, y.described.unscaled, flags, out, memory, convert=convert)
    memory.free(held)
    return RowKinds(tuple(found[:-1]), found[-1], worst)


def _hold_description(memory: Memory, x: npt.NDArray[Any]) -> int:
    """Count the description of rows, and what finding it takes; returns the bytes to free."""
    kept, passing = describing_bytes(x)
    memory.hold(kept)
    memory.pass_through(passing)
    return kept


def _kinds(scheme: RowDigits, rows: Described, columns: Columns, memory: Memory) -> tuple[Kinds, float]:
    """The kinds of all rows, shape (batch, rows), and the largest proven error."""
    batch, m, k = rows.x.shape
    if k > LONGEST:
        return np.full((batch, m), EXACT, np.int8), 0.0
    memory.pass_through(statistics_bytes(batch, m, k))
    return kinds_of(scheme, rows, columns.summary)


# Rows of one kind -----------------------------------------------------------------------------------------------------


def _multiply_kind(
    kind: int, kinds: Kinds, rows: Described, columns: Columns, out: Bits, memory: Memory, progress: Progress
) -> None:
    """Multiply the rows of one kind, all matrices together where every row is of this kind; else gather them."""
    multiply = _multiply_exact if kind == EXACT else partial(_multiply_digits, kind)
    if (kinds == kind).all():
        multiply(rows, columns.described, columns, out, memory)
        progress.step(kinds.size)
        return
    n, k = columns.described.x.shape[1:]
    several = len(columns.described.x) > 1
    places = [np.flatnonzero(each == kind) for each in kinds] if several else [np.flatnonzero(kinds == kind)]
    for b, at in enumerate(places):
        of_columns = slice(b, b + 1) if several else slice(None)
        right = columns.described.part(of_columns, slice(None))
        step = _gathered(len(at), n, k, memory)
        for first in range(0, len(at), step):
            some = at[first : first + step]
            index = (np.full(len(some), b), some) if several else np.divmod(some, kinds.shape[1])
            nbytes = len(some) * (4 * k + 2 * n + ROW_BYTES)
            memory.hold(nbytes)
            fields = np.ascontiguousarray(rows.fields[:, *index])[:, None]
            left = Described(rows.unscaled[index][None], fields, rows.finite)
            to = np.empty((1, len(some), n), np.uint16)
            multiply(left, right, columns, to, memory, of_columns)
            out[index] = to[0]
            del left, to
            memory.free(nbytes)
            progress.step(len(some))


def _gathered(count: int, n: int, k: int, memory: Memory) -> int:
    """How many of so many rows are gathered at a time: all, or as many as take a quarter of what a limit leaves."""
    if memory.rest is None:
        return max(count, 1)
    return max(1, min(count, memory.rest // (4 * (4 * k + 2 * n + ROW_BYTES))))


def _multiply_digits(
    digits: int,
    left: Described,
    right: Described,
    columns: Columns,
    out: Bits,
    memory: Memory,
    of_columns: slice = slice(None),
) -> None:
    """Multiply rows of so many digits, NaN and Inf counted as zero."""
    batch, m, n = out.shape
    k = left.x.shape[2]
    scaling = Digits(digits).scaling(k)
    engine = RowDigitEngine.of_kind(digits, columns.scheme.columns, k)
    program = program_of(engine, scaling, Views(batch, m, k, n), memory.rest)
    memory.pass_through(program.nbytes)
    mu, nu = left.on_host.exponents(scaling), columns.nu[of_columns]
    for first in range(0, batch, program.together):
        b = slice(first, min(first + program.together, batch))
        of_right = slice(0, 1) if len(right.x) == 1 else b
        for c in range(0, n, program.columns):
            cols = slice(c, min(c + program.columns, n))
            kept = None  # frees the slices of the columns before
            for r in range(0, m, program.rows):
                rows = slice(r, min(r + program.rows, m))
                sums: Floats | None = None
                for h in program.slabs:
                    hs = slice(h, min(h + program.engine.slab, k))
                    if kept is None or not program.keeps_columns:
                        kept = _split(program, right, nu, "right", of_right, cols, hs)
                    of_rows = _split(program, left, mu, "left", b, rows, hs)
                    part = program.engine.multiply(of_rows, kept)
                    del of_rows
                    sums = part if sums is None else np.add(sums, part, out=sums)
                assert sums is not None
                _round(program, sums, mu[b, rows], nu[of_right, cols], out[b, rows, cols], columns.scheme.sixteen)


def _split(program: Program, of: Described, mu: Ints, side: str, b: slice, rows: slice, hs: slice) -> Any:
    """The slices of some rows of some matrices, over a slab."""
    return program.engine.split_rows(of.unscaled[b, rows, hs], mu[b, rows], side, of.finite)


def _round(program: Program, sums: Floats, mu: Ints, nu: Ints, out: Bits, of: Sixteen) -> None:
    """Round the sums of all slabs once into out: Cbar 2**-(mu + nu)."""
    batch, m, n = out.shape
    for b, rows in tiles_of_rows(batch, m, n, TILE // 4):
        limbs = program.engine.limbs(sums[:, b, rows].reshape(len(sums), -1))
        exponents = (program.engine.shift - mu[b, rows])[..., None] - (nu if len(nu) == 1 else nu[b])[:, None, :]
        out[b, rows] = to_sixteen(scaled_to_odd(limbs, exponents), of)


def scaled_to_odd(limbs: Floats, exponents: Ints) -> Floats:
    """Exact integers times powers of two, rounded to odd in float64, which has far smaller numbers than 16 bits have.

    Shapes are (count, entries) of the limbs, which are overwritten, and that of the result of the exponents.
    """
    _limbs.carry(limbs)
    values = _limbs.add_to_odd(*_limbs.collapse(limbs)).reshape(exponents.shape)
    return np.ldexp(values, exponents.astype(np.int32), out=values)


# Exact rows -----------------------------------------------------------------------------------------------------------


def _multiply_exact(
    left: Described,
    right: Described,
    columns: Columns,
    out: Bits,
    memory: Memory,
    of_columns: slice = slice(None),
) -> None:
    """Compute the exact products of rows, rounded once, NaN and Inf counted as zero."""
    batch, m, n = out.shape
    k, of, spans = left.x.shape[2], columns.scheme.sixteen, (left.span, right.span)
    scheme = scheme_of("residues", exact_below("residues", MOST_RESIDUES, k, spans))
    doubtful = exact_bits(spans, k) > 53
    most = _EXACT_ENTRIES if memory.rest is None else min(_EXACT_ENTRIES, memory.rest // 32)
    for b, rows in tiles_of_rows(batch, m, n, max(most, 1)):
        some = left.part(b, rows)
        beside = right if len(right.x) == 1 else right.part(b, slice(None))
        values = np.empty((len(some.x), some.x.shape[1], n))
        memory.hold(values.nbytes)
        execute(scheme, "auto", some, beside, values, memory)
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
