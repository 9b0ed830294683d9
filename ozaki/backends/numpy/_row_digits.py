"""Products of 16-bit floats, rounded once to 16 bits, whose rows have digits of their own count, on NumPy.

docs/definitions.md, section 11, says what is computed.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy._describe import ROW_BYTES, Described, describe, describing_bytes
from ozaki.backends.numpy._exact_rows import multiply_exact
from ozaki.backends.numpy._nonfinite import patch
from ozaki.backends.numpy._row_columns import Columns, columns_of
from ozaki.backends.numpy._row_products import multiply_digits
from ozaki.backends.numpy._row_statistics import EXACT, Kinds, kinds_of, statistics_bytes
from ozaki.backends.numpy._short_sums import write_zeros
from ozaki.backends.numpy._sixteen import Bits, to_sixteen
from ozaki.multiprecision.numbers import Numbers
from ozaki.records.combination import Combination
from ozaki.records.memory import Memory
from ozaki.records.progress import SILENT, Progress
from ozaki.records.row_kinds import RowKinds
from ozaki.schemes.row_digits import LONGEST, RowDigits


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
    combination: Combination | None = None,
    engine: str = "auto",
) -> RowKinds:
    """Compute out = A B, each entry rounded once to the format of the scheme (docs/definitions.md, 11).

    Parameters
    ----------
    x : shape (batch or 1, m, k), float32 with any strides, the rows of A, whose elements the format has
    y : the columns of B: shape (batch or 1, n, k), likewise, or what `columns_of` made of them
    out : shape (batch, m, n), uint16, with any strides: the bits of the result
    memory : counts what is held, and limits it
    progress : is told of the rows that are done
    combination : an expression of the product, which is rounded once in its place; its factors are finite, and its
        addend has the shape of out, in any format
    engine : the name of what multiplies, as `engines.MAKERS` has them: the bits are the same

    Returns
    -------
    kinds : how many rows of each kind there were, and what is proven
    """
    x = np.broadcast_to(x, (len(out), *x.shape[1:]))  # how many digits a row has depends on the matrix beside it, too
    batch, m, k = x.shape
    progress.begin(batch * m, "rows")
    if out.size == 0 or k == 0 or (combination is not None and combination.alpha.is_zero):
        write_zeros(out, combination, scheme.sixteen, memory)
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
            _multiply_kind(kind, kinds, rows, y, out, memory, progress, combination, engine)
    flags = [each.on_host.nonfinite for each in (rows, y.described)]
    if any(each.any() for each in flags):
        convert = partial(to_sixteen, of=scheme.sixteen)
        patch(x, y.described.unscaled, flags, out, memory, combination, convert)
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


def _multiply_kind(
    kind: int,
    kinds: Kinds,
    rows: Described,
    columns: Columns,
    out: Bits,
    memory: Memory,
    progress: Progress,
    combination: Combination | None,
    engine: str,
) -> None:
    """Multiply the rows of one kind: all matrices together where every row is of this kind, else gathered ones.

    Of a stack beside a stack all rows are multiplied if half of them are of the kind with the fewest digits, which
    comes first: the others are written once more.
    """
    multiply = multiply_exact if kind == EXACT else partial(multiply_digits, kind)
    several = len(columns.described.x) > 1
    of_kind = np.count_nonzero(kinds == kind)
    if of_kind == kinds.size or (several and kind == columns.scheme.fewest and 2 * of_kind >= kinds.size):
        multiply(rows, columns, out, memory, progress, combination, engine)
        return
    n, k = columns.described.x.shape[1:]
    for b in np.flatnonzero((kinds == kind).any(axis=1)) if several else (0,):
        at = np.flatnonzero((kinds[b] if several else kinds) == kind)
        beside = columns.part(slice(b, b + 1)) if several else columns
        step = _gathered(len(at), 4 * k + _entry_bytes(combination) * n + ROW_BYTES, memory)
        for first in range(0, len(at), step):
            some = at[first : first + step]
            index = (np.full(len(some), b), some) if several else np.divmod(some, kinds.shape[1])
            nbytes = len(some) * (4 * k + _entry_bytes(combination) * n + ROW_BYTES)
            memory.hold(nbytes)
            fields = np.ascontiguousarray(rows.fields[:, *index])[:, None]
            left = Described(rows.unscaled[index][None], fields, rows.finite)
            to = np.empty((1, len(some), n), np.uint16)
            expression = None if combination is None else combination.at(index)
            if expression is not None and expression.c is not None:
                expression = expression.at(None)  # of a stack of one matrix
            multiply(left, beside, to, memory, progress, expression, engine)
            out[index] = to[0]
            del left, to
            memory.free(nbytes)


def _entry_bytes(combination: Combination | None) -> int:
    """Bytes of an entry of gathered rows of the result, and of the addend."""
    c = None if combination is None else combination.c
    return 2 if c is None else 2 + (4 * len(c.limbs) + 9 if isinstance(c, Numbers) else c.itemsize)


def _gathered(count: int, nbytes: int, memory: Memory) -> int:
    """How many of so many rows are gathered at a time: all, or as many as take a quarter of what a limit leaves."""
    return max(1, count if memory.rest is None else min(count, memory.rest // (4 * nbytes)))
