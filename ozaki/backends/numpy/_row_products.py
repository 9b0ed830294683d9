"""Products of rows of one number of digits, rounded once to 16 bits, on NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ozaki.backends.numpy._describe import Described
from ozaki.backends.numpy._execute import combined_views
from ozaki.backends.numpy._limbs import Floats
from ozaki.backends.numpy._row_columns import Columns
from ozaki.backends.numpy._short_sums import write_rounded, write_special
from ozaki.backends.numpy._sixteen import Bits
from ozaki.backends.numpy._tiles import COMBINED_SHARE, TILE
from ozaki.backends.numpy.compiled.calls import can_read
from ozaki.backends.numpy.compiled.row_digits import can_combine, can_write_short
from ozaki.backends.numpy.engines import compiled_for
from ozaki.backends.numpy.engines.row_digits import Int8RowDigitEngine, engine_of_rows
from ozaki.backends.numpy.program import Program, Views, program_of
from ozaki.bounds.row_digits import Ints
from ozaki.caches import cached
from ozaki.process.threads import threads
from ozaki.records.combination import Combination
from ozaki.records.memory import Memory
from ozaki.records.progress import Progress
from ozaki.records.shapes import SIDES, tiles_of_rows
from ozaki.schemes import Digits
from ozaki.schemes.row_digits import RowDigits


def multiply_digits(
    digits: int,
    left: Described,
    columns: Columns,
    out: Bits,
    memory: Memory,
    progress: Progress,
    combination: Combination | None,
    engine: str,
) -> None:
    """Multiply rows of so many digits, NaN and Inf counted as zero, and round once into out."""
    batch, m, n = out.shape
    k, right = left.x.shape[2], columns.described
    library = compiled_for(Digits(digits), k, engine)
    planes = columns.planes if columns.are_split_for(library) else None
    views = Views(batch, m, k, n, sides=SIDES if planes is None else ("left",))
    if combination is not None:
        arrays, addend = combined_views(combination, out)
        views = views._replace(combined=arrays, addend=addend)
    if library is not None:
        copied = max(0 if can_read(x.unscaled) else 4 for x in (left, right))
        views = views._replace(copied=copied, written=0 if can_write_short(out) else 2, threads=threads())
    program = row_program(columns.scheme, digits, engine, views, memory.rest)
    memory.pass_through(program.nbytes)
    multiply = _Multiplying(program, columns, left, left.on_host.exponents(program.scaling), planes)
    for b, rows, cols in _panels(program):
        at = b, rows, cols
        multiply.into(out[at], *at, combination if combination is None else combination.at(at))
        if cols.stop == n:
            progress.step((b.stop - b.start) * (rows.stop - rows.start))


@cached(64)
def row_program(scheme: RowDigits, digits: int, engine_name: str, views: Views, limit: int | None) -> Program:
    """The program that multiplies rows of so many digits, with the largest panels that keep within a limit.

    Raises
    ------
    ValueError
        If the smallest panels exceed the limit.
    """
    engine = engine_of_rows(scheme, digits, views.k, engine_name)
    return program_of(engine, Digits(digits).scaling(views.k), views, limit)


def _panels(program: Program) -> Iterator[tuple[slice, slice, slice]]:
    """Matrices, rows and columns of each panel of the result, all rows of some columns one after the other."""
    batch, m, _, n = program.views[:4]
    for first in range(0, batch, program.together):
        for c in range(0, n, program.columns):
            for r in range(0, m, program.rows):
                yield (
                    slice(first, min(first + program.together, batch)),
                    slice(r, min(r + program.rows, m)),
                    slice(c, min(c + program.columns, n)),
                )


class _Multiplying:
    """A program with its operands: rows with exponents mu, and columns, perhaps with their digits."""

    def __init__(self, program: Program, columns: Columns, left: Described, mu: Ints, planes: Any) -> None:
        self._program, self._columns, self._left, self._mu, self._planes = program, columns, left, mu, planes
        self._kept: Any = None
        self._kept_at: tuple[slice, slice] | None = None

    def into(self, out: Bits, b: slice, rows: slice, cols: slice, combination: Combination | None) -> None:
        """Write a panel of the result."""
        program, columns = self._program, self._columns
        engine, form = program.engine, columns.scheme.sixteen
        matrices = slice(0, 1) if len(columns.nu) == 1 else b
        exponents = self._mu[b, rows], columns.nu[matrices, cols]
        sums: Floats | None = None
        for h in program.slabs:
            hs = slice(h, min(h + engine.slab, engine.k))
            beside = self._right(matrices, cols, hs)
            x = engine.split_rows(self._left.unscaled[b, rows, hs], exponents[0], "left", self._left.finite)
            if isinstance(engine, Int8RowDigitEngine) and len(program.slabs) == 1 and can_combine(combination):
                engine.multiply_short(x, beside, *exponents, out, combination)
                write_special(combination, out, form)
                return
            part = engine.multiply(x, beside)
            del x, beside  # before those of the next slab are made
            sums = part if sums is None else np.add(sums, part, out=sums)
        assert sums is not None
        batch, m, n = out.shape
        for at in tiles_of_rows(batch, m, n, TILE // (4 if combination is None else COMBINED_SHARE)):
            limbs = engine.limbs(sums[:, *at].reshape(len(sums), -1))
            mu, nu = exponents[0][at], exponents[1] if len(exponents[1]) == 1 else exponents[1][at[0]]
            of_entries = (engine.shift - mu)[..., None] - nu[:, None, :]
            write_rounded(limbs, of_entries, out[at], form, combination if combination is None else combination.at(at))

    def _right(self, matrices: slice, cols: slice, hs: slice) -> Any:
        """The slices of some columns over a slab; those of one slab serve all rows."""
        if self._planes is not None:
            return self._planes[:, matrices, cols, hs]
        program, columns = self._program, self._columns
        if self._kept_at != (matrices, cols):
            self._kept = None  # before those of other columns are made
        elif self._kept is not None:
            return self._kept
        x = columns.described.unscaled[matrices, cols, hs]
        made = program.engine.split_rows(x, columns.nu[matrices, cols], "right", columns.described.finite)
        if program.keeps_columns:
            self._kept, self._kept_at = made, (matrices, cols)
        return made
