"""The NumPy backend's part of one product: facts about its operands, and the multiplication."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ozaki.backends import results
from ozaki.backends.combining import addend_into, axpby
from ozaki.backends.numpy import _proof, _words
from ozaki.backends.numpy._describe import ROW_BYTES, Described, describe, describing_bytes, sample
from ozaki.backends.numpy._execute import execute, matrices_of
from ozaki.backends.numpy._native import native
from ozaki.backends.numpy._overlap import overlap
from ozaki.backends.numpy._relative import relative_tile, relative_workspace, worst_quotient
from ozaki.backends.numpy._sharing import same_view
from ozaki.backends.numpy._slices import Slices
from ozaki.backends.numpy._threads import within_cpus
from ozaki.backends.numpy._words import WordSlices
from ozaki.backends.panels import Panel, Panels
from ozaki.bounds import native as native_bounds
from ozaki.bounds.levels import FEW_ROWS, Level, levels
from ozaki.bounds.of_scheme import rows_bound
from ozaki.bounds.relative import NONE, Quotient, relative_bits, times
from ozaki.call.combination import ONE, Combination, Factor
from ozaki.call.operands import SIDES, Side
from ozaki.driver.memory import Memory
from ozaki.driver.progress import SILENT, Progress
from ozaki.planning.facts import (
    CutBound,
    LeastProduct,
    NativeInRange,
    Need,
    Overlap,
    Ratio,
    RelativeError,
    RowsBound,
    Sample,
    Spans,
    WorstRatio,
)
from ozaki.records.formats import precision_of
from ozaki.records.plan import Plan
from ozaki.schemes import Scheme, Words, is_exact


class _Computed(NamedTuple):
    """A product, or an expression rounded once, that was computed by a scheme with exact slice products.

    Attributes
    ----------
    c : shape (batch, m, n)
    alpha : the factor of the product in an expression; `ONE` of a product
    nbytes : bytes of c, if it lies beside the result
    """

    scheme: Scheme
    c: Any
    alpha: Factor
    nbytes: int


class Work:
    """A product on NumPy (`backends.Work`); describes each operand once, when a fact or the product needs it.

    Parameters
    ----------
    a, b : the operands as the caller gave them, or their slices
    rows : returns the operand of a side as a stack of rows, shape (batch, rows, k)
    dtype : dtype of the result
    memory : the account of what the product holds
    combination : the expression that is computed in place of the product, or None
    addend : returns its addend, a stack of matrices
    adjoint : whether complex B is the conjugate transpose of A
    progress : is told of each part of the product
    """

    def __init__(
        self,
        a: Any,
        b: Any,
        rows: Callable[[Side], Any],
        dtype: str,
        memory: Memory,
        combination: Combination | None = None,
        addend: Callable[[], Any] | None = None,
        adjoint: bool = False,
        progress: Progress = SILENT,
    ) -> None:
        self._a, self._b, self._rows = a, b, rows
        self._dtype, self._memory, self._adjoint, self._progress = dtype, memory, adjoint, progress
        self._given_combination, self._addend = combination, addend
        self._slices: dict[Side, Slices | WordSlices] = {
            side: x for side, x in zip(SIDES, (a, b), strict=True) if isinstance(x, Slices | WordSlices)
        }
        self._described = {side: slices.described for side, slices in self._slices.items()}
        self._level: Level | None = None
        self._lower: npt.NDArray[np.float64] | None = None
        self._product: _Computed | None = None
        self._ratios: dict[tuple[Any, Level, int, int], float] = {}

    @cached_property
    def _combination(self) -> Combination | None:
        """The expression, with its addend, which may be copied for it."""
        given = self._given_combination
        return given if given is None or self._addend is None else replace(given, c=self._addend())

    @cached_property
    def _itself(self) -> bool:
        """Whether a matrix is multiplied by its own transpose: the rows of A are the columns of B, in memory, too."""
        return not self._slices and same_view(self._rows("left"), self._rows("right"))

    def described(self, side: Side) -> Described:
        """The operand of a side with its description."""
        if side == "right" and self._itself:
            return self.described("left")
        if side not in self._described:
            rows = self._rows(side)
            kept, passing = describing_bytes(rows)
            self._memory.hold(kept)
            self._memory.pass_through(passing)
            self._described[side] = describe(rows)
        return self._described[side]

    @property
    def _operand_pair(self) -> tuple[Described, Described]:
        return self.described("left"), self.described("right")

    def begin(self, needs: Sequence[Need], plan: Plan) -> None:
        """Do nothing: the host itself finds facts, so splitting meanwhile would save no time."""

    def measure(self, need: Need) -> Any:
        """Find a fact about the operands (`planning.facts`)."""
        with within_cpus():
            return self._fact(need)

    def _fact(self, need: Need) -> Any:
        left, right = self._operand_pair
        spans = left.span, right.span
        match need:
            case Spans():
                return spans
            case NativeInRange():
                return native_bounds.in_range(left.on_host, right.on_host, self._dtype)
            case RowsBound(scheme, measure, exponent):
                return rows_bound(left.on_host, right.on_host, scheme, measure, spans, exponent)
            case CutBound(words):
                return rows_bound(left.on_host, right.on_host, words, "componentwise", spans)
            case Sample():
                return sample(left.x, right.x)
            case Overlap():
                return overlap(left, right)
            case LeastProduct():
                return self._least_product(left, right)
            case WorstRatio(scheme, level, few_rows, _, exponent):
                rows = int(left.x.shape[1])
                worst = self._worst_ratio(scheme, level, min(rows, FEW_ROWS) if few_rows else rows, exponent)
                return Ratio(worst, spans, min(left.least_span, right.least_span))
            case RelativeError(scheme):
                return self._relative_bits(scheme)
        raise TypeError(f"need: {need!r} is not known here")

    def _relative_bits(self, scheme: Scheme) -> float:
        """The fact `RelativeError`, from the product that was computed last if it is by this scheme.

        Otherwise it computes that product, and keeps it, since most often it is the one that is asked for next; where
        the limit leaves too little for a second result, some rows of A at a time.
        """
        left, right = self._operand_pair
        spans = left.span, right.span
        if self._product is None or self._product.scheme != scheme:
            self.release()
            shape = max(left.x.shape[0], right.x.shape[0]), int(left.x.shape[1]), int(right.x.shape[1])
            rest, whole = self._memory.rest, results.nbytes(shape, self._dtype)
            if rest is not None and whole > rest // 2:
                worst = self._worst_of_strips(scheme, shape, whole, rest)
                return relative_bits(worst, precision_of(self._dtype))
            self._memory.hold(whole)
            c = results.empty(shape, self._dtype, np)
            execute(scheme, False, left, right, c, self._memory, itself=self._itself, progress=self._progress)
            self._product = _Computed(scheme, c, ONE, whole)
        _, c, alpha, _ = self._product
        tile = relative_tile(c.shape[2], self._memory.rest)
        self._memory.pass_through(relative_workspace(c.shape, tile))
        worst = times(worst_quotient(left, right, spans, scheme, c, tile), alpha.whole, alpha.exponent)
        return relative_bits(worst, precision_of(self._dtype))

    def _worst_of_strips(self, scheme: Scheme, shape: tuple[int, int, int], nbytes: int, rest: int) -> Quotient:
        """The largest quotient (`_relative.worst_quotient`) of a product of `nbytes` bytes, computed strip by strip.

        A strip, some rows, takes no more than half of `rest` bytes, unless one row takes more.
        """
        left, right = self._operand_pair
        batch, m, n = shape
        rows = max(1, min(m, m * batch * (rest // 2) // nbytes))
        strip = results.nbytes((1, rows, n), self._dtype) + ROW_BYTES * (rows + n)  # described as parts, too
        worst = NONE
        for b in range(batch):
            at_left, at_right = (matrices_of(x, slice(b, b + 1)) for x in (left, right))
            of_right = right.part(at_right, slice(None))
            for r in range(0, m, rows):
                of_left = left.part(at_left, slice(r, min(r + rows, m)))
                self._memory.hold(strip)
                c = results.empty((1, of_left.x.shape[1], n), self._dtype, np)
                execute(scheme, False, of_left, of_right, c, self._memory)
                tile = relative_tile(n, self._memory.rest)
                self._memory.pass_through(relative_workspace(c.shape, tile))
                worst = max(worst, worst_quotient(of_left, of_right, (left.span, right.span), scheme, c, tile))
                self._memory.free(strip)
                del c  # before that of the next strip is made
        return worst

    def _worst_ratio(self, scheme: Any, level: Level, rows: int, exponent: int) -> float:
        """The worst ratio of a scheme in the first `rows` rows of A, in units of 2**exponent.

        The image error includes pairs of digits that are left out, unless they vanish for these operands.
        """
        if self._level != level:
            self._lower = None  # frees the memory of the last level before that of this one is taken
            self._level = level
        key = scheme, level, rows, exponent
        if key not in self._ratios:
            self._ratios[key] = self._compare(scheme, level, rows, exponent)
        return self._ratios[key]

    def _compare(self, scheme: Any, level: Level, rows: int, exponent: int) -> float:
        """Compute the worst ratio; keep the lower bound for other schemes if the product is one panel."""
        left, right = self._operand_pair
        spans, panels = (left.span, right.span), self._panels(level)
        if panels.one:
            if self._lower is None:
                self._lower = _proof.lower_bound(left, right, level)
            return _proof.worst_ratio(self._lower, left, right, spans, scheme, rows, exponent)
        return max(
            self._ratio_of_panel(panel, level, scheme, rows, exponent) for panel in panels if panel.rows[0] < rows
        )

    def _ratio_of_panel(self, panel: Panel, level: Level, scheme: Any, rows: int, exponent: int) -> float:
        """The worst ratio in those rows of a panel that are among the first `rows` of A; keeps no lower bound."""
        left, right = self._operand_pair
        parts = _part_in_panel(left, "left", panel), _part_in_panel(right, "right", panel)
        lower = _proof.lower_bound(*parts, level)
        return _proof.worst_ratio(lower, *parts, (left.span, right.span), scheme, rows - panel.rows[0], exponent)

    def _least_product(self, left: Described, right: Described) -> float:
        """The least lower bound of the first level (`planning.facts.LeastProduct`), panel by panel."""
        level = levels(left.k)[0]
        if self._level != level:
            self._lower = None  # frees the memory of the last level before that of this one is taken
        panels = self._panels(level)
        if panels.one:
            if self._lower is None:
                self._level, self._lower = level, _proof.lower_bound(left, right, level)
            return _proof.least_product(self._lower, left, right)
        return min(self._least_of_panel(panel, level) for panel in panels)

    def _least_of_panel(self, panel: Panel, level: Level) -> float:
        left, right = self._operand_pair
        parts = _part_in_panel(left, "left", panel), _part_in_panel(right, "right", panel)
        return _proof.least_product(_proof.lower_bound(*parts, level), *parts)

    def _panels(self, level: Level) -> Panels:
        """The panels of the product whose worst ratios at a level are found within the limit of workspace."""
        (batch_a, m, k), (batch_b, n, _) = (tuple(x.x.shape) for x in self._operand_pair)

        def workspace(batch: int, rows: int, columns: int) -> int:
            return _proof.proof_workspace(level, (min(batch, batch_a), rows, k), (min(batch, batch_b), columns, k))

        panels = Panels((max(batch_a, batch_b), m, n), workspace, self._memory.rest)
        self._memory.pass_through(panels.workspace)
        return panels

    def multiply(self, plan: Plan, c: npt.NDArray[Any]) -> None:
        """Compute the product, or an expression that the plan rounds once, into c, shape (batch, m, n)."""
        assert plan.scheme is not None
        self._lower = None  # frees the memory of the proof
        given = self._given_combination
        once = self._combination if given is not None and plan.rounds_once(given) else None
        kept = self._product if once is None else None
        if kept is not None and kept.scheme == plan.scheme and plan.engine == "auto":
            results.copy(kept.c, c)
            return
        self.release()
        left, right = (self._slices.get(side) or self.described(side) for side in SIDES)
        int8 = plan.engine == "int8"
        memory, progress = self._memory, self._progress
        with within_cpus():
            execute(plan.scheme, int8, left, right, c, memory, once, self._itself, self._adjoint, progress)
        alpha = ONE if once is None else once.alpha
        self._product = _Computed(plan.scheme, c, alpha, 0) if is_exact(plan.scheme) else None

    def release(self) -> None:
        """Free the memory of a proof, and of a product before."""
        if self._product is not None:
            self._memory.free(self._product.nbytes)
        self._lower = self._product = None

    def native(self, c: npt.NDArray[Any]) -> None:
        """Compute NumPy's own product into c."""
        self.release()
        self._memory.pass_through(native(self._a, self._b, self._dtype, c))

    def combine(self, c: npt.NDArray[Any]) -> None:
        """Make the rounded product in c, shape (batch, m, n), the whole expression, with more roundings."""
        assert self._combination is not None
        alpha, beta = (c.dtype.type(factor.value) for factor in self._combination.factors)
        axpby(c, alpha, beta, self._combination.c, self._memory)

    def addend(self, c: Any) -> None:
        """Compute what the expression adds to a product of zeros into c, shape (batch, m, n)."""
        assert self._combination is not None
        addend_into(self._combination, c, self._memory)

    def nonfinite(self, side: Side) -> npt.NDArray[np.int64]:
        """Number of elements of each row that are NaN or Inf, shape (batch, rows)."""
        return self.described(side).on_host.nonfinite

    def underflows(self, side: Side, words: Words) -> int:
        """Number of elements of which these words leave more than `words.residual`, because a word underflows."""
        described = self.described(side)
        return _words.underflows(described, words) if described.on_host.below(words.lowest).any() else 0


def _part_in_panel(operand: Described, side: Side, panel: Panel) -> Described:
    """The part of an operand that belongs to a panel."""
    batch, rows = (slice(*each) for each in panel.of(side, operand.x.shape[0]))
    return operand.part(batch, rows)
