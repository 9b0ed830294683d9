"""Lower bounds of abs(A) abs(B) by products of magnitudes on NumPy, and worst ratios to them (docs/bounds.md, B7)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf, prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy._describe import Described, along_memory, larger_parts, parts_of, scale
from ozaki.backends.numpy._limbs import Floats
from ozaki.backends.numpy._scaled import plain
from ozaki.backends.numpy._tiles import FEW, OBJECTS, TILE
from ozaki.backends.numpy.compiled import Compiled, compiled, proofs
from ozaki.backends.numpy.compiled.memory import SPARE
from ozaki.backends.numpy.program import DESCRIBING, numbered
from ozaki.backends.panels import Panel, Panels
from ozaki.bounds.description import LEAST_LEADING, Ints
from ozaki.bounds.exact import ErrorTerms
from ozaki.bounds.levels import FEW_ROWS, NARROW_BITS, NARROW_DEPTH, SAMPLE, SAMPLED_EVERY, Level, levels, wide_bits
from ozaki.bounds.of_scheme import error_terms
from ozaki.planning.facts import Ratio
from ozaki.records.memory import Memory
from ozaki.records.shapes import SIDES, Side, tiles_of_rows
from ozaki.schemes import Scheme, Words
from ozaki.schemes.image import EMPTY_TOP

_LEAST_ENTRIES = 2**8
"""Entries of a product for which compiled code proves, at least."""

SLAB = 2**10
"""Inner indices multiplied at a time: float32 sums of so many products of 7-bit magnitudes are exact."""


@dataclass(frozen=True)
class FactsProgram:
    """How worst ratios at a level are found: described rows, the lower bound of a panel, and what is compared with it.

    Attributes
    ----------
    level : of the lower bound
    panels : of the product, one after another; None if it is one
    nbytes : bytes that are held while it runs, beside operands and their descriptions
    """

    level: Level
    panels: Panels | None
    nbytes: int

    @property
    def steps(self) -> tuple[str, str]:
        """The steps once rows are described, in words."""
        of = {"sampled": "of 7 bits of a sample of k", "narrow": "of 7 bits", "wide": "of up to 21 bits"}[self.level]
        panels = "" if self.panels is None else "   for each of several panels"
        return (
            f"lower bound          a, b -> of abs(a) abs(b)   by a product of magnitudes {of}, exact{panels}",
            "worst ratio          lower bound, error terms -> bound   sharper levels where it proves too little",
        )

    def __str__(self) -> str:
        """The steps, a line each."""
        return numbered(*DESCRIBING, *self.steps)


def facts_program(level: Level, left: tuple[int, ...], right: tuple[int, ...], limit: int | None) -> FactsProgram:
    """The program of worst ratios for operands of these shapes (batch, rows, k), within a limit of workspace.

    Raises
    ------
    ValueError
        If the smallest panels exceed the limit.
    """
    (batch_a, m, k), (batch_b, n, _) = left, right

    def workspace(batch: int, rows: int, columns: int) -> int:
        return proof_workspace(level, (min(batch, batch_a), rows, k), (min(batch, batch_b), columns, k))

    stack = max(batch_a, batch_b), m, n
    nbytes = workspace(*stack)
    if limit is None or nbytes <= limit:
        return FactsProgram(level, None, nbytes)
    panels = Panels(stack, workspace, limit)
    return FactsProgram(level, panels, panels.workspace)


class Ratios:
    """Facts of two operands that rest on lower bounds of abs(A) abs(B).

    It keeps the lower bound of the level that was asked for last, for other schemes, if the product is one panel: that
    of the first `FEW_ROWS` rows of A, where often a proof fails already, and once it is needed that of the others.

    Parameters
    ----------
    left, right : the operands
    memory : the account of what the product holds
    """

    def __init__(self, left: Described, right: Described, memory: Memory) -> None:
        self._left, self._right, self._memory = left, right, memory
        self._level: Level | None = None
        self._lower: list[Lower] = []
        self._of_right: Any = None  # the panels of magnitudes of the right operand, which compiled code has made
        self._found: dict[tuple[Any, Level, int, int], float] = {}

    def release(self) -> None:
        """Free the lower bound; what was found with it stays."""
        self._level, self._lower, self._of_right = None, [], None

    def fact(self, scheme: Scheme | Words, level: Level, few_rows: bool, exponent: int) -> Ratio:
        """The fact `WorstRatio`; pairs of digits that the scheme leaves out count, unless they vanish here."""
        left, right = self._left, self._right
        rows = int(left.x.shape[1])
        if few_rows:
            rows = min(rows, FEW_ROWS)
        of_left, of_right, key = left.spans, right.spans, (scheme, level, rows, exponent)
        spans = of_left[0], of_right[0]
        if key not in self._found:

            def of_panel(first: int, lower: Lower, part: Described, other: Described) -> float:
                of_part = min(rows - first, part.x.shape[1])
                return worst_ratio(lower, part, other, spans, scheme, of_part, exponent)

            worst = 0.0
            for ratio in self._of_panels(level, rows, of_panel):
                worst = max(worst, ratio)
                if worst == inf:
                    break  # whatever the other rows have
            self._found[key] = worst
        return Ratio(self._found[key], spans, min(of_left[1], of_right[1]))

    def least_product(self) -> float:
        """The fact `LeastProduct`: the least lower bound of the first level."""
        level = levels(self._left.k)[0]
        return min(self._of_panels(level, self._left.x.shape[1], lambda _, *of: least_product(*of)))

    def _of_panels(self, level: Level, rows: int, found: Callable[..., float]) -> Iterator[float]:
        """What a function finds in each panel that has some of the first `rows` rows of A, one after another.

        Its arguments are the first row of the panel, the lower bounds of the level, and the parts of both operands.
        """
        left, right = self._left, self._right
        if self._level != level:
            self.release()  # before the memory of this level is taken
        limit = None if self._memory.limit is None else self._memory.rest
        program = facts_program(level, left.x.shape, right.x.shape, limit)
        self._memory.pass_through(program.nbytes)
        if limit is not None:
            SPARE.clear()
        if program.panels is None:
            self._level = level
            yield from self._of_rows(level, rows, found)
            return
        for panel in program.panels:
            if panel.rows[0] < rows:
                parts = _part_in_panel(left, "left", panel), _part_in_panel(right, "right", panel)
                yield found(panel.rows[0], lower_bound(*parts, level), *parts)

    def _of_rows(self, level: Level, rows: int, found: Callable[..., float]) -> Iterator[float]:
        """Do as `_of_panels` does, of a product in one panel."""
        m = int(self._left.x.shape[1])
        few = FEW_ROWS if m >= 2 * FEW_ROWS else m
        for number, (first, last) in enumerate(((0, few), (few, m))):
            if first >= min(rows, last):
                return
            part = self._left if few == m else self._left.part(slice(None), slice(first, last))
            if len(self._lower) == number:
                if self._of_right is None:
                    self._of_right = magnitudes_of_right(self._left, self._right, level)
                self._lower.append(lower_bound(part, self._right, level, self._of_right))
            yield found(first, self._lower[number], part, self._right)


def _part_in_panel(operand: Described, side: Side, panel: Panel) -> Described:
    """The part of an operand that belongs to a panel."""
    batch, rows = (slice(*each) for each in panel.of(side, operand.x.shape[0]))
    return operand.part(batch, rows)


Lower = Floats | npt.NDArray[np.int32]
"""Lower bounds: int32 where compiled code sums products."""


def lower_bound(left: Described, right: Described, level: Level, of_right: Any = None) -> Lower:
    """Lower bounds of (abs(A) abs(B))_ij, shape (batch, m, n), in units of 2**(top_i + top_j) 4**-bits of the level.

    `of_right` are the panels of `magnitudes_of_right`, made before for these or for more rows of A.
    """
    if level == "wide":
        return _wide_product(left, right)
    count, every = _read(left, level)
    of_right = magnitudes_of_right(left, right, level) if of_right is None else of_right
    if of_right is None:
        return _product(left, right, NARROW_BITS, np.float32, _indices(count, every))
    library = of_right[0]
    of_left = _panels_of_magnitudes(library, left, "left", level)
    rows = left.x.shape[1], right.x.shape[1]
    return proofs.sums_of_products(library, of_left, of_right[1], rows, count)


def magnitudes_of_right(left: Described, right: Described, level: Level) -> tuple[Any, Any] | None:
    """The library that multiplies magnitudes of a level, and those of B, as panels; None where none does."""
    library = None if level == "wide" else _library(left.x.shape, right.x.shape)
    return None if library is None else (library, _panels_of_magnitudes(library, right, "right", level))


def _panels_of_magnitudes(library: Any, operand: Described, side: Side, level: Level) -> Any:
    exponents = _exponents_of_magnitudes(operand, NARROW_BITS)
    return proofs.magnitudes(library, operand.x, exponents, side, *_read(operand, level))


def _read(operand: Described, level: Level) -> tuple[int, int]:
    """How many inner indices the sampled and the narrow level read, and of how many the first `SAMPLE`."""
    every = SAMPLED_EVERY[parts_of(operand.x)] if level == "sampled" else SAMPLE
    return _indices_read(operand.x.shape[-1], every), every


def _library(left: tuple[int, ...], right: tuple[int, ...]) -> Any:
    """The compiled library for operands of these shapes; None where there is none.

    Nor for so few entries that its calls take longer, or that its panels of long rows would mostly be padding.
    """
    entries = max(left[0], right[0]) * left[1] * right[1]
    found = compiled() if max(prod(left), prod(right)) > FEW and entries >= _LEAST_ENTRIES else None
    return found.library if isinstance(found, Compiled) else None


def _wide_product(left: Described, right: Described) -> Floats:
    """The lower bounds of the wide level: the exact product of wide magnitudes.

    Where an entry is zero, the largest product of leading powers of two replaces it, in the same units (4**-bits); inf
    where all products of elements are zero.
    """
    bits = wide_bits(left.k)
    product = _product(left, right, bits, np.float64, _slabs(left.x.shape[-1]))
    if not product.all():
        _bound_by_exponents(product, left, right, 2 * bits)
    return product


def proof_workspace(level: str, left: tuple[int, ...], right: tuple[int, ...]) -> int:
    """Bytes that are held while worst ratios of a level are found for operands of these shapes (batch, rows, k)."""
    k, rows = left[2], (left[0] * left[1], right[0] * right[1])
    entries = max(left[0], right[0]) * left[1] * right[1]
    if level != "wide" and _library(left, right) is not None:
        panels = sum(
            proofs.magnitude_bytes(batch, of_batch, min(k, NARROW_DEPTH), side)
            for (batch, of_batch, _), side in zip((left, right), SIDES, strict=True)
        )
        copied = 16 * k * max(rows)  # of rows that the library cannot read where they are
        return 5 * entries + panels + copied + OBJECTS  # one for `least_product`, of operands with rows of zeros
    slab = min(k, SLAB)
    tiles = 5 * min(max(TILE, right[1]), entries) + 4 * min(TILE, max(rows) * slab)
    if level == "wide":
        # For an entry two float64, or one, a float32 count and masks; for an element of a slab a float64 and masks, and
        # for every element an exponent.
        return 26 * entries + 12 * sum(rows) * slab + 4 * sum(rows) * k + 8 * tiles + OBJECTS
    taken = max(rows) * slab if level == "sampled" else 0
    return 12 * entries + 4 * sum(rows) * slab + 8 * (taken + tiles) + OBJECTS


def _slabs(k: int) -> Iterator[Any]:
    """The inner indices in slabs of at most `SLAB`."""
    return (slice(h, min(h + SLAB, k)) for h in range(0, k, SLAB))


def _indices_read(k: int, every: int) -> int:
    """Number of the first `SAMPLE` of `every` inner indices, at most `NARROW_DEPTH`."""
    return min(k // every * SAMPLE + min(k % every, SAMPLE), NARROW_DEPTH)


def _indices(count: int, every: int) -> Iterator[Any]:
    """So many inner indices, the first `SAMPLE` of `every`, in slabs."""
    if every == SAMPLE:
        return _slabs(count)
    taken = (np.arange(hs.start, hs.stop) for hs in _slabs(count))
    return (at // SAMPLE * every + at % SAMPLE for at in taken)


def _product(left: Described, right: Described, bits: int, dtype: Any, indices: Iterator[Any]) -> Floats:
    """The exact product of magnitudes of `bits` bits, float64; in `dtype`, sums over a slab must be exact."""
    total: Floats | None = None
    for hs in indices:
        a, b = (_magnitudes(x, bits, hs, dtype) for x in (left, right))
        part = np.matmul(a, b.swapaxes(1, 2))
        if total is None:
            total = part.astype(np.float64, copy=False)
        else:
            total += part
        del a, b, part  # frees them before those of the next slab are made
    assert total is not None
    return total


def least_product(lower: Lower, left: Described, right: Described) -> float:
    """The least of the first level's lower bounds, in units of 2**(top_i + top_j), of nonempty rows; inf without such.

    `lower` is what `lower_bound` returns.
    """
    of_left, of_right = (~x.on_host.empty for x in (left, right))
    if not (of_left.any(axis=1) & of_right.any(axis=1)).any():
        return inf
    if not (of_left.all() and of_right.all()):
        of_entries = of_left[:, :, None] & of_right[:, None, :]
        return float(lower.min(where=of_entries, initial=lower.max())) * 4.0**-NARROW_BITS
    return float(lower.min()) * 4.0**-NARROW_BITS


def _bound_by_exponents(lower: Floats, left: Described, right: Described, unit_exponent: int) -> None:
    """Replace zeros of `lower` by the largest product of leading powers of two, inf where all products are zero.

    `lower` is in units of 2**-unit_exponent.
    """
    powers = _leading_exponents(left), _leading_exponents(right)
    last = [len(e) - 1 for e in powers]
    met = np.zeros(lower.shape, bool)  # whether there is an index at which both rows are nonzero
    for hs in _slabs(left.x.shape[-1]):
        a, b = ((e[..., hs] > EMPTY_TOP).astype(np.float32) for e in powers)
        met |= np.matmul(a, b.swapaxes(1, 2)) > 0  # often few entries do
    zero = lower == 0
    met &= zero
    lower[zero ^ met] = np.inf
    for at, i in zip(*np.nonzero(met.any(axis=2)), strict=True):
        j = np.nonzero(met[at, i])[0]
        row, columns = powers[0][min(at, last[0]), i], powers[1][min(at, last[1])]
        for part in np.array_split(j, 1 + len(j) * SLAB // TILE):
            sums = ((row[hs] + columns[part, hs]).max(axis=-1) for hs in _slabs(left.x.shape[-1]))
            lower[at, i, part] = np.ldexp(1.0, functools.reduce(np.maximum, sums) + unit_exponent)


def _magnitudes(operand: Described, bits: int, hs: Any, dtype: Any) -> npt.NDArray[Any]:
    """floor(abs(x) 2**(bits - top)) at the inner indices hs, a slice or an array, shape (batch, rows, indices).

    abs(x) of a complex element is the larger of its parts (B11).
    """
    x = operand.x[..., hs]
    turned, tiles = along_memory(x, _exponents_of_magnitudes(operand, bits))
    magnitudes = np.empty(x.swapaxes(1, 2).shape if turned else x.shape, dtype)
    for at, tile, of_rows in tiles:
        magnitudes[at] = np.floor(scale(larger_parts(tile, not operand.finite), of_rows))
    return magnitudes.swapaxes(1, 2) if turned else magnitudes


def _exponents_of_magnitudes(operand: Described, bits: int) -> Ints:
    """bits - top of each row, shape (batch, rows); 0 of rows of zeros."""
    exponents = bits - operand.on_host.top
    if not isinstance(operand.on_host.filled, slice):
        exponents[operand.on_host.empty] = 0
    return exponents


def worst_ratio(
    lower: Lower,
    left: Described,
    right: Described,
    spans: tuple[int, int],
    scheme: Scheme | Words,
    rows: int,
    exponent: int = 0,
) -> float:
    """The largest ratio of a scheme's image error to `lower` in the first `rows` rows of A.

    It is in units of 2**exponent 4**bits.

    `lower` is what `lower_bound` returns for left and right, of a level with so many bits; `spans` are those of the
    whole operands, of which left and right may be panels.
    """
    terms = error_terms(left.on_host, right.on_host, scheme, scheme.dropped(left.k, spans), exponent)
    return worst_of_terms(_library(left.x.shape, right.x.shape), terms, lower, rows)


def worst_of_terms(library: Any, terms: ErrorTerms, lower: Lower, rows: int) -> float:
    """The largest ratio of error terms to `lower` in the first `rows` rows, by the compiled library if there is one."""
    if library is not None:
        return proofs.worst_ratio(library, terms, lower, rows)
    terms, lower = ErrorTerms(terms.left[:, :, :rows], terms.right), lower[:, :rows]
    worst = 0.0
    batch, m, n = lower.shape
    for at in tiles_of_rows(batch, m, n, TILE):
        below = lower[at]
        above = numerators(terms, *at)
        positive = below > 0
        if not positive.all():
            worst = inf if above[~positive].any() else worst
            above, below = above[positive], below[positive]
        above /= below
        worst = max(worst, float(above.max(initial=0.0)))
    return worst


def numerators(terms: ErrorTerms, b: slice, rows: slice) -> Floats:
    """The image errors of some rows of A, shape (batch, rows, n): the sum of three outer products (B1)."""
    p, q = (side if side.shape[1] == 1 else side[:, b] for side in (terms.left, terms.right))
    p, q = p[:, :, rows, None], q[:, :, None, :]
    total: Floats = p[0] * q[0]
    total += p[1] * q[1]
    total += p[2] * q[2]
    return total


def _leading_exponents(operand: Described) -> npt.NDArray[np.int32]:
    """Exponents e of the leading powers of two, 2**e <= abs(x) 2**-top; 2 EMPTY_TOP for zero, NaN and Inf.

    Multiprecision elements below 2**(top - 1000) have EMPTY_TOP + 1: that power, zero in float64, bounds nothing.
    """
    tops = operand.on_host.top.astype(np.int32)
    leading = np.empty(operand.x.shape, np.int32)
    batch, m, k = operand.x.shape
    for b, rows in tiles_of_rows(batch, m, k, TILE):
        for hs in _slabs(k):
            x = larger_parts(plain(operand.x[b, rows, hs]), nonfinite=True)
            exponents = np.frexp(x)[1] - 1
            if operand.tops is None:
                exponents -= tops[b, rows, None]
            else:  # x is scaled so that tops are 0, and elements below 2**(top - 1000) count as larger than they are
                exponents[exponents < LEAST_LEADING] = EMPTY_TOP + 1
            exponents[x == 0] = 2 * EMPTY_TOP
            leading[b, rows, hs] = exponents
    return leading
