"""Products of 16-bit floats rounded once to 16 bits, whose rows have as many digits each as they need.

docs/definitions.md, section 11, says what is computed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial, reduce
from math import ceil, prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.devices.tiles import round_up
from ozaki.backends.cupy.program.arrays import Array, Place, View
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel, Macros
from ozaki.backends.cupy.program.program import Evidence
from ozaki.backends.cupy.program.steps import Clear, Out
from ozaki.backends.cupy.steps.epilogue import (
    Combine,
    Expression,
    Round,
    arguments_of,
    expression_of,
    macros_of,
    places_of,
)
from ozaki.backends.cupy.steps.operands import Described, Layout, Slices
from ozaki.caches import cached
from ozaki.records.memory import too_few_bytes
from ozaki.records.plan import Plan
from ozaki.records.row_kinds import RowKinds
from ozaki.schemes import Digits
from ozaki.schemes.row_digits import RowDigits

FORMATS = {"bfloat16": "BFloat16", "float16": "Float16"}
"""The formats of 16 bits as kernels name them (kernels/arithmetic/sixteen.cuh)."""

KINDS = "row kinds"
"""The fact, of the program of a product, that says how its rows were multiplied."""

_SUMMARY = 288
"""Bytes of the summary of the columns of a matrix: Columns of kernels/arithmetic/row_proof.cuh."""

_MOST_HELD = 32768
"""Bytes of digits of a row that blocks hold, five on a multiprocessor; of longer rows they are found twice."""

_MANY_ROWS, _OF_TEN = 1024, 12288
"""From so many rows on a GPU has several for each multiprocessor at all times; bytes of digits of a row, at most, that
blocks hold of which ten fit a multiprocessor."""

_NONFINITE = 5
"""The field of a description that alone is there: NaN and Inf of each row."""


@dataclass(frozen=True)
class SplitRows:
    """The rows of A as digits, and how many each one has.

    Attributes
    ----------
    slices : the digits, and the image exponents: of a place in tiles, or of a row
    row_of : int32, shape (batch, places): the row at each place, or, not compacted, the digits of each row
    counts : a place: the largest proven error as float64, the number of exact rows, and, uint32, for each matrix the
        rows of the fewest digits and those of the most; of an engine that computes all rows (`whole`) the proven error
        of each row as float64, and then `row_of`
    size : bytes of that
    exact : int64: the numbers b m + i of rows that digits do not prove; None for such an engine
    zeros : as many zero bytes as the engine asks for (`zeros`), which it may overwrite
    """

    slices: Slices
    row_of: Array
    counts: Place
    size: int
    exact: Array | None
    zeros: Place

    @property
    def number_of_exact(self) -> Place:
        """How many rows are exact."""
        return self.counts.plus(8)

    @property
    def numbers(self) -> Place:
        """How many rows have the fewest digits, and how many the most, of each matrix."""
        return self.counts.plus(16)

    def release(self, b: Builder, given: Array) -> None:
        """Free all of it, but the rows as they were given."""
        _release(b, self.slices, given)
        b.release(self.row_of, self.counts, *([] if self.exact is None else [self.exact]))


# Rows as 16-bit floats -----------------------------------------------------------------------------------------------


def narrowed(b: Builder, x: Array, scheme: RowDigits) -> Array:
    """The elements of rows, shape (batch, rows, k), as their 16 bits, side by side along k; x itself if it is so."""
    batch, rows, k = x.shape
    if _is_narrow(x):
        return x
    length = round_up(k, 8)
    whole = b.array(f"{x.buffer.name}.rows", (batch, rows, length), "H")
    out = Array(whole.buffer, whole.offset, whole.dtype, (batch, rows, k), whole.steps)
    b.launch(_narrow_kernel(scheme.format, x.view, length), x, Out(out))
    return out


def _is_narrow(x: Array) -> bool:
    return x.dtype.char == "H" and (x.steps[2] == 1 or x.shape[2] == 1)


@cached(1024)
def _narrow_kernel(half: str, x: View, length: int) -> Kernel:
    batch, rows, k = x.shape
    macros: Macros = {"FORMAT": FORMATS[half], "INPUT": x.dtype.ctype, "ALONG_K": x.along_k}
    grid = (batch * ceil(rows / 64) * ceil(k / 64),)
    return Kernel.of("conversion/narrow.cu", "narrow", macros, grid, (256,), None, *x.steps, rows, k, None, length)


# Digits ---------------------------------------------------------------------------------------------------------------


def _described(b: Builder, x: Array) -> Described:
    """Rows with a description of which only the last field is written."""
    batch, rows, _ = x.shape
    fields = b.array(f"{x.buffer.name}.fields", (6, batch, rows), "q", counted=False)
    return Described(x, fields)


def _summary(b: Builder, x: Array) -> Array:
    """The summary of no columns yet, of each matrix."""
    summary = b.array(f"{x.buffer.name}.summary", (x.shape[0] * _SUMMARY,), "B", counted=False)
    b.add(Clear(b.stream, summary.at, summary.nbytes))
    return summary


def split_columns(b: Builder, engine: Any, scheme: RowDigits, x: Array, summary: Array | None = None) -> Slices:
    """The digits of the columns of B, given as rows of any order, and their summary (`Described.summary`).

    `summary`: of other columns, to which these are added; a column may be added more than once.
    """
    batch, rows, k = x.shape
    layout = engine.layout(scheme, "right", batch, rows, k)
    x = narrowed(b, x, scheme)
    described = _described(b, x)
    summary = summary or _summary(b, x)
    slices = Slices.room(b, Described(x, described.fields, summary=summary), layout)
    kernel = _kernel(scheme, "right", x.view, layout, batch, batch, (rows, 0, 1))
    nothing = Out(summary)
    b.launch(
        kernel, x, Out(slices.planes), Out(slices.mu), Out(nonfinite_of(described)), Out(summary), *[nothing] * 5
    )  # fmt: skip
    return slices


def split_rows(
    b: Builder, engine: Any, scheme: RowDigits, x: Array, columns: Slices, batch: int
) -> SplitRows:  # fmt: skip
    """The digits of the rows of A beside the columns of B; of `batch` matrices, although A may have only one."""
    _, rows, k = x.shape
    layout = engine.layout(scheme, "left", batch, rows, k)
    places = layout.rows if engine.compacts else rows
    x = narrowed(b, x, scheme)
    described = _described(b, x)
    name = x.buffer.name
    planes = b.array(f"{name}.planes", (layout.size,), "b")
    mu = b.array(f"{name}.exponents", (batch, places), "i", counted=False)
    if engine.whole:
        size, exact = 12 * batch * places, None
        counts = zeros = b.buffer(f"{name}.kinds", size, counted=False)
        row_of = replace(mu, buffer=counts.buffer, offset=8 * batch * places)
    else:
        size = 16 + 8 * batch
        counts = b.zeroed(f"{name}.numbers", round_up(size, 16) + engine.zeros)
        zeros = counts.plus(round_up(size, 16))
        row_of = b.array(f"{name}.kinds", (batch, places), "i", counted=False)
        exact = b.array(f"{name}.exact rows", (batch * rows,), "q", counted=False)
    split = SplitRows(Slices(described, planes, layout, mu), row_of, counts, size, exact, zeros)
    how = places, int(engine.compacts), int(not engine.whole)
    kernel = _kernel(scheme, "left", x.view, layout, batch, columns.mu.shape[0], how)
    assert columns.described.summary is not None
    written = planes, mu, nonfinite_of(described)
    counted: tuple[Array | Place, ...] = (counts,) * 3
    if exact is not None:
        counted = split.numbers, exact, split.number_of_exact
    b.launch(kernel, x, *map(Out, written), columns.described.summary, *map(Out, (row_of, *counted, counts)))
    return split


def nonfinite_of(of: Described) -> Array:
    """The number of NaN and Inf of each row."""
    return of.fields.at_index(0, _NONFINITE)


def _threads(rows: int, nbytes: int) -> int:
    """Threads of a block, which has one row, of so many bytes of digits.

    Fewer where there are many rows, and room for ten of them (kernels/conversion/row_digits.cu).
    """
    return 128 if rows >= _MANY_ROWS and nbytes <= _OF_TEN else 256


@cached(1024)
def _kernel(
    scheme: RowDigits, side: str, x: View, layout: Layout, batch: int, summaries: int, how: tuple[int, int, int]
) -> Kernel:
    """`how`: the places of rows, and whether rows are compacted, and counted."""
    places, compacted, counted = how
    own, rows, k = x.shape
    first, most = (scheme.columns, scheme.columns) if side == "right" else (scheme.fewest, scheme.kinds[-1])
    threads = _threads(batch * rows, first * layout.k)
    macros: Macros = {
        "FORMAT": FORMATS[scheme.format], "COLUMNS": int(side == "right"), "OF_COLUMNS": scheme.columns,
        "FEWEST_DIGITS": scheme.fewest, "MOST_DIGITS": scheme.kinds[-1], "REVERSED": int(side == "right"),
        "TILE": layout.tile, "NEIGHBOURS": layout.neighbours, "HELD": int(first * layout.k <= _MOST_HELD),
        "THREADS": threads, "COMPACTED": compacted, "COUNTED": counted,
    }  # fmt: skip
    rules = [Digits(digits).scaling(k) for digits in (first, most)]
    rule = [(of.base, of.threshold) for of in rules]
    to = None, layout.matrix_bytes, layout.row_bytes, layout.slice_bytes, layout.slab, layout.slab_stride
    steps = 0 if own == 1 else x.steps[0], x.steps[1]
    return Kernel.of(
        "conversion/row_digits.cu", "row_digits", macros, (batch * rows,), (threads,), None, *steps, rows, k, layout.k,
        places, own, rules[0].width, *rule, to, None, None, None,
        0 if summaries == 1 else 1, *[None] * 5, shared_mem=first * layout.k if macros["HELD"] else 0,
    )  # fmt: skip


# The product ----------------------------------------------------------------------------------------------------------


def multiply(
    b: Builder, device: Device, engine: Any, plan: Plan, left: Array, right: Slices | Array,
    epilogue: Round | Combine, reports: bool = True,
) -> None:  # fmt: skip
    """Add the steps of a product.

    Parameters
    ----------
    left, right : the rows of A and the columns of B, shapes (batch or 1, rows, k), float32 or uint16; or the digits of
        these
    epilogue : rounds into an array of uint16, shape (batch, m, n)
    reports : whether the fact `KINDS` is brought to the host
    """
    scheme, (m, k, n) = plan.scheme, plan.shape
    assert isinstance(scheme, RowDigits)
    b.title = f"{scheme.fewest} or more digits a row of ({m} x {k}) ({k} x {n}), {plan.dtype}, {device.architecture}"
    batch, m, n = epilogue.shape  # of stacked matrices together
    if k == 0 or (isinstance(epilogue, Combine) and epilogue.alpha == 0.0):
        for i in range(batch):
            combine_rows(b, scheme, epilogue.part(0, i, i + 1), None)
        return
    rows, cols = _panel(engine, plan, left, right, epilogue.shape)
    summary = None
    if cols < n:  # how many digits rows have depends on all columns
        assert isinstance(right, Array)
        summary = _summary(b, right)
        for c in range(0, n, cols):
            some = right.part(1, c, min(c + cols, n))
            _release(b, split_columns(b, engine, scheme, some, summary), some, keeps=True)
    found: list[Evidence] = []
    for c in range(0, n, cols):
        some_columns, columns = right, right
        if isinstance(right, Array):
            some_columns = right.part(1, c, min(c + cols, n))
            columns = split_columns(b, engine, scheme, some_columns, summary)
        assert isinstance(columns, Slices)
        for r in range(0, m, rows):
            some_rows = left.part(1, r, min(r + rows, m))
            of_rows = split_rows(b, engine, scheme, some_rows, columns, batch)
            panel = epilogue.part(1, r, min(r + rows, m)).part(2, c, min(c + cols, n))
            _multiply(b, device, engine, scheme, of_rows, columns, panel)
            if c == 0 and reports:
                arrival = b.to_host("numbers of rows, on the host", of_rows.counts, (of_rows.size,), "B")
                found.append(b.evidence(arrival, partial(_kinds_of_each if engine.whole else _kinds, scheme)))
            of_rows.release(b, some_rows)
        if columns is not right:
            _release(b, columns, some_columns, keeps=summary is not None)
    if summary is not None:
        b.release(summary)
    if reports:
        b.read(KINDS, tuple(found), _merged)


def _multiply(
    b: Builder, device: Device, engine: Any, scheme: RowDigits, rows: SplitRows, columns: Slices,
    epilogue: Round | Combine,
) -> None:  # fmt: skip
    """Multiply rows that are split by columns that are; then compute exact rows, and what NaN and Inf give."""
    engine.multiply(b, scheme, rows, columns, epilogue)
    if rows.exact is None:
        return
    x, y, out = rows.slices.described, columns.described, epilogue.out
    assert isinstance(out, Array)
    views, expression = (x.x.view, y.x.view, out.view), expression_of(epilogue)
    b.launch(
        _exact_kernel(device.multiprocessors, scheme.format, *views, expression), rows.exact, rows.number_of_exact,
        x.x, y.x, Out(out), *places_of(epilogue),
    )  # fmt: skip
    patching = _patch_kernel(scheme.format, *views, expression)
    b.launch(patching, x.x, y.x, x.fields, y.fields, Out(out), *places_of(epilogue))


def combine_rows(
    b: Builder, scheme: RowDigits, epilogue: Round | Combine, product: tuple[Array, Array, Array, Array] | None
) -> None:  # fmt: skip
    """Round one matrix, but for its exact rows.

    `product`: sums of diagonals, the digits of each row, the exponents of rows and of columns; None of a zero product.
    """
    out = epilogue.out
    assert isinstance(out, Array)
    sums = None if product is None else product[0].view
    kernel = _combine_kernel(scheme, sums, out.view, expression_of(epilogue))
    b.launch(kernel, *(product or [out] * 4), Out(out), *places_of(epilogue))


@cached(1024)
def _combine_kernel(scheme: RowDigits, sums: View | None, out: View, expression: Expression | None) -> Kernel:
    _, m, n = out.shape
    macros: Macros = {
        "FORMAT": FORMATS[scheme.format], "SUM": "int32_t" if sums is None else sums.dtype.ctype,
        "OF_COLUMNS": scheme.columns,
    }  # fmt: skip
    macros |= macros_of(expression)
    grid = (m * ceil(n / 1024),)
    steps = (0, 0) if sums is None else sums.steps[:2]
    return Kernel.of(
        "conversion/combine_rows.cu", "combine_rows", macros, grid, (256,), None, *steps, None, None, None, None,
        out.steps[1], n, int(sums is None), *arguments_of(expression),
    )  # fmt: skip


def _panel(
    engine: Any, plan: Plan, left: Array, right: Slices | Array, shape: tuple[int, ...]
) -> tuple[int, int]:  # fmt: skip
    """Rows and columns that are multiplied at a time, within the plan's limit of workspace.

    Raises
    ------
    ValueError
        If the smallest panel takes more.
    """
    scheme, (batch, m, n), k, limit = plan.scheme, shape, left.shape[2], plan.workspace_limit

    def layout(side: str, rows: int) -> Layout:
        stacked = right.shape[0] if side == "right" and isinstance(right, Array) else batch
        found: Layout = engine.layout(scheme, side, stacked, rows, k)
        return found

    def workspace(rows: int, cols: int) -> int:
        size = layout("left", rows).size + _narrowed_bytes(left, rows) + engine.workspace(scheme, batch, rows, cols, k)
        if isinstance(right, Array):
            size += layout("right", cols).size + _narrowed_bytes(right, cols)
        return int(size)

    rows, cols = m, n
    if limit is None:
        return rows, cols
    least = layout("left", 1).unit, n if isinstance(right, Slices) else layout("right", 1).unit
    while workspace(rows, cols) > limit:
        if rows <= least[0] and cols <= least[1]:
            too_few_bytes(limit, workspace(rows, cols))
        if rows > least[0] and (rows >= cols or cols <= least[1]):
            rows = round_up(-(-rows // 2), least[0])
        else:
            cols = round_up(-(-cols // 2), least[1])
    return rows, cols


def _narrowed_bytes(x: Array, rows: int) -> int:
    """Bytes of the copy that `narrowed` makes of so many rows."""
    batch, _, k = x.shape
    return 0 if _is_narrow(x) else 2 * batch * rows * round_up(k, 8)


def _merged(*kinds: RowKinds) -> RowKinds:
    """The kinds of all rows."""
    return reduce(RowKinds.merged, kinds)


def _kinds(scheme: RowDigits, found: npt.NDArray[Any]) -> RowKinds:
    """How the rows were multiplied, from what `SplitRows.counts` holds."""
    worst, exact = float(found[:8].view(np.float64)[0]), int(found[8:16].view(np.int64)[0])
    numbers = found[16:].view(np.uint32).reshape(-1, 2).sum(axis=0)
    return RowKinds(tuple(map(int, numbers[: len(scheme.kinds)])), exact, worst)


def _kinds_of_each(scheme: RowDigits, found: npt.NDArray[Any]) -> RowKinds:
    """The same where `SplitRows.counts` holds it row by row."""
    rows = len(found) // 12
    errors, digits = found[: 8 * rows].view(np.float64), found[8 * rows :].view(np.int32)
    numbers = tuple(int(np.count_nonzero(digits == kind)) for kind in scheme.kinds)
    return RowKinds(numbers, int(np.count_nonzero(digits == 0)), float(errors.max(initial=0.0)))


def _release(b: Builder, slices: Slices, given: Any, keeps: bool = False) -> None:
    """Free slices and what goes with them, but for a summary that it `keeps`, and rows that are no copy."""
    described = slices.described
    b.release(slices.planes, slices.mu, described.fields)
    if described.summary is not None and not keeps:
        b.release(described.summary)
    if described.x is not given:
        b.release(described.x)


@cached(1024)
def _exact_kernel(
    multiprocessors: int, half: str, left: View, right: View, out: View, expression: Expression | None
) -> Kernel:  # fmt: skip
    name = FORMATS[half]
    macros: Macros = {"INPUT_A": name, "INPUT_B": name, "OUTPUT": name, "WHOLE_ROWS": 1}
    macros |= macros_of(expression)
    rows = [(0 if x.shape[0] == 1 else x.steps[0], *x.steps[1:]) for x in (left, right)]
    entries = prod(out.shape)
    grid = (min(ceil(entries / 8), 3 * multiprocessors),)
    return Kernel.of(
        "conversion/inner_products.cu", "inner_products", macros, grid, (256,), None, None, 0, None, *rows[0], None,
        *rows[1], left.shape[2], None, *out.steps, *out.shape[1:], entries, 0, *arguments_of(expression),
    )  # fmt: skip


@cached(1024)
def _patch_kernel(half: str, a: View, b: View, out: View, expression: Expression | None) -> Kernel:
    batch, m, n = out.shape
    name = FORMATS[half]
    macros: Macros = {"INPUT_A": name, "INPUT_B": name, "OUTPUT": name, "REALS": 1, "SIXTEEN": 1}
    macros |= macros_of(expression)
    grid = (batch * ceil(m / 128) * ceil(n / 2048),)
    steps = [step for view in (a, b, out) for step in (0 if view.shape[0] == 1 else view.steps[0], *view.steps[1:])]
    sizes = a.shape[0], b.shape[0], m, n, a.shape[2]
    return Kernel.of(
        "conversion/nonfinite.cu", "patch", macros, grid, (256,), *[None] * 5, *steps, *sizes, *arguments_of(expression)
    )  # fmt: skip
