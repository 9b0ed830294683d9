"""The NumPy backend's part of one product: facts about its operands, and the multiplication."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends import results
from ozaki.backends.combining import addend_into, axpby
from ozaki.backends.numpy import _words
from ozaki.backends.numpy._bounds import entry_bounds
from ozaki.backends.numpy._crossings import foretell, foretelling_bytes, slab_within, some_rows
from ozaki.backends.numpy._describe import Described, describe, describe_both, describing_bytes, sample
from ozaki.backends.numpy._execute import Slices, execute
from ozaki.backends.numpy._native import native
from ozaki.backends.numpy._overlap import overlap
from ozaki.backends.numpy._proof import Ratios
from ozaki.backends.numpy._relative import bits_of, bits_of_strips
from ozaki.backends.numpy._row_columns import Columns
from ozaki.backends.numpy._row_digits import multiply_rows
from ozaki.backends.numpy._scaled import ScaledRows, factor_bytes, inner_range, scaled_along_k, scaled_beside
from ozaki.backends.numpy._sharing import same_view
from ozaki.backends.numpy._threads import within_cpus
from ozaki.backends.numpy._tiles import TILE
from ozaki.backends.numpy._undecided import Undecided, undecided_bytes
from ozaki.backends.numpy._words import WordSlices
from ozaki.bounds import native as native_bounds
from ozaki.bounds.entries import native_terms, of_zeros, row_terms
from ozaki.bounds.of_scheme import rows_bound
from ozaki.multiprecision.numbers import Numbers
from ozaki.planning.facts import (
    CutBound,
    InnerRange,
    LeastProduct,
    NativeInRange,
    Need,
    Overlap,
    RelativeError,
    RowsBound,
    Sample,
    Spans,
    UndecidedShare,
    WorstRatio,
)
from ozaki.records.combination import ONE, Combination
from ozaki.records.memory import Memory
from ozaki.records.plan import Plan
from ozaki.records.progress import SILENT, Progress
from ozaki.records.row_kinds import RowKinds
from ozaki.records.shapes import SIDES, Side
from ozaki.records.verification import Verification
from ozaki.schemes import Residues, Scheme, Words, is_exact
from ozaki.schemes.row_digits import RowDigits

_SERIAL = 2**16
"""Multiplications of a product of slices that BLAS computes by one thread, whatever their number (OpenBLAS: 2**18)."""


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
    verification : the account of checks of the product, or None
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
        verification: Verification | None = None,
    ) -> None:
        self._a, self._b, self._rows = a, b, rows
        self._dtype, self._memory, self._adjoint, self._progress = dtype, memory, adjoint, progress
        self._given_combination, self._addend, self._verification = combination, addend, verification
        self._slices: dict[Side, Slices | WordSlices] = {
            side: x for side, x in zip(SIDES, (a, b), strict=True) if isinstance(x, Slices | WordSlices)
        }
        self._described = {side: slices.described for side, slices in self._slices.items()}
        self._itself = False  # whether the rows of A are the columns of B, in memory, too
        self._proof: Ratios | None = None
        self._proof_is_scaled = False
        self._product: results.Computed | None = None
        self._columns = b if isinstance(b, Columns) else None
        self.undecided: int | None = None
        self.row_kinds: RowKinds | None = None

    @cached_property
    def _combination(self) -> Combination | None:
        """The expression, with its addend, which may be copied for it."""
        given = self._given_combination
        return given if given is None or self._addend is None else replace(given, c=self._addend())

    def described(self, side: Side) -> Described:
        """The operand of a side with its description."""
        if side not in self._described:
            self._describe()
        return self._described[side]

    def _describe(self, later: bool = False) -> None:
        """Describe the operands that are not described, or split, already: a matrix beside itself once.

        With `later`, rows of floats are described if somebody asks for what that finds.
        """
        sides = [side for side in SIDES if side not in self._described]
        rows = [self._rows(side) for side in sides]
        self._itself = len(rows) == 2 and same_view(*rows)
        if self._itself:
            del rows[1]
        kept, passing = describing_bytes(*rows)
        self._memory.hold(kept)
        self._memory.pass_through(passing)
        found: tuple[Described, ...]
        if later and not any(isinstance(x, Numbers) for x in rows):
            found = tuple(map(Described, rows))
        else:
            found = describe_both(*rows) if len(rows) == 2 else (describe(rows[0]),)
        self._described.update(zip(sides, 2 * found if self._itself else found, strict=True))

    @property
    def _operand_pair(self) -> tuple[Described, Described]:
        return self.described("left"), self.described("right")

    def begin(self, needs: Sequence[Need], plan: Plan) -> None:
        """Do nothing: the host itself finds facts, so splitting meanwhile would save no time."""

    def measure(self, need: Need) -> Any:
        """Find a fact about the operands (`planning.facts`)."""
        left, right = self._operand_pair
        with self._threads(left, right):
            match need:
                case Spans(inner_scaling):
                    left, right = self._scaled_pair if inner_scaling else (left, right)
                    return left.span, right.span
                case InnerRange():
                    return 0 if self._itself else inner_range(self._scaled_rows[0])
                case NativeInRange():
                    if isinstance(left.x, ScaledRows) or isinstance(right.x, ScaledRows):
                        left, right = self._scaled_pair  # the same products
                    return native_bounds.in_range(left.on_host, right.on_host, self._dtype)
                case RowsBound(scheme, measure, exponent):
                    spans = left.span, right.span
                    return rows_bound(left.on_host, right.on_host, scheme, measure, spans, exponent)
                case CutBound(words):
                    return rows_bound(left.on_host, right.on_host, words, "componentwise", (left.span, right.span))
                case Sample():
                    return sample(left.unscaled, right.unscaled)
                case Overlap():
                    return overlap(left, right)
                case LeastProduct():
                    return self._ratios(left, right).least_product()
                case WorstRatio(scheme, level, few_rows, _, exponent, inner_scaling):
                    return self._ratios(left, right, inner_scaling).fact(scheme, level, few_rows, exponent)
                case UndecidedShare(scheme, inner_scaling):
                    pair = self._scaled_pair if inner_scaling else (left, right)
                    shapes = left.x.shape, right.x.shape
                    slab = slab_within(*shapes, self._memory.rest)
                    self._memory.pass_through(foretelling_bytes(*shapes, slab))
                    return foretell(some_rows(pair[0]), some_rows(pair[1]), scheme, self._dtype, slab)
                case RelativeError(scheme, inner_scaling):
                    return self._relative_bits(scheme, inner_scaling)
        raise TypeError(f"need: {need!r} is not known here")

    def _threads(self, left: Described, right: Described) -> AbstractContextManager[Any]:
        """A context in which BLAS has no more threads than there are CPUs, if it takes several."""
        (_, m, k), n = left.x.shape, right.x.shape[1]
        return nullcontext() if m * k * n <= _SERIAL else within_cpus()

    def _ratios(self, left: Described, right: Described, inner_scaling: bool = False) -> Ratios:
        """What finds ratios of operands as they are or scaled along k: of one of both alone, since it holds memory."""
        if self._proof is None or self._proof_is_scaled != inner_scaling:
            if self._proof is not None:
                self._proof.release()
            pair = self._scaled_pair if inner_scaling else (left, right)
            self._proof, self._proof_is_scaled = Ratios(*pair, self._memory), inner_scaling
        return self._proof

    @cached_property
    def _scaled_pair(self) -> tuple[Described, Described]:
        """Both operands scaled along k, with the descriptions of the scaled rows; a matrix beside itself as it is.

        Beside a prepared operand, which is scaled already, the other one follows.
        """
        left, right = self._operand_pair
        if self._itself:
            return left, right
        if isinstance(left.x, ScaledRows):
            return left, self._beside("b", right.unscaled, left.x)
        if isinstance(right.x, ScaledRows):
            return self._beside("a", left.unscaled, right.x), right
        scaled = self._scaled_rows
        held, passing = describing_bytes(left.unscaled, right.unscaled)
        self._memory.hold(held)
        self._memory.pass_through(passing + 8 * min(TILE, max(left.x.size, right.x.size)))
        return describe(scaled[0]), describe(scaled[1])

    @cached_property
    def _scaled_rows(self) -> tuple[ScaledRows, ScaledRows]:
        """Both operands scaled along k, not described."""
        left, right = self._operand_pair
        held, passing = factor_bytes(left.unscaled, right.unscaled)
        self._memory.hold(held)
        self._memory.pass_through(passing)
        return scaled_along_k(left.unscaled, right.unscaled)

    def _beside(self, name: str, x: npt.NDArray[Any], prepared: ScaledRows) -> Described:
        """An operand scaled as a prepared one beside it asks, and described."""
        (held, passing), (described, describing) = factor_bytes(x, x), describing_bytes(x)
        self._memory.hold(held // 2 + described)
        self._memory.pass_through(max(passing, describing + 8 * min(TILE, x.size)))
        return describe(scaled_beside(name, x, prepared))

    def _relative_bits(self, scheme: Scheme, inner_scaling: bool) -> float:
        """The fact `RelativeError`, from the product that was computed last if it is by this scheme.

        Otherwise it computes that product, and keeps it, since most often it is the one that is asked for next; where
        the limit leaves too little for a second result, some rows of A at a time.
        """
        left, right = self._scaled_pair if inner_scaling else self._operand_pair
        kept = self._product
        if kept is None or (kept.scheme, kept.inner_scaling) != (scheme, inner_scaling):
            self.release()
            shape = max(left.x.shape[0], right.x.shape[0]), int(left.x.shape[1]), int(right.x.shape[1])
            rest, whole = self._memory.rest, results.nbytes(shape, self._dtype)
            if rest is not None and whole > rest // 2:
                return bits_of_strips(scheme, left, right, self._dtype, self._memory, self._verification)
            self._memory.hold(whole)
            c = results.empty(shape, self._dtype, np)
            parts = None, self._itself, False, self._progress, self._verification
            execute(scheme, "auto", left, right, c, self._memory, *parts)
            kept = self._product = results.Computed(scheme, c, nbytes=whole, inner_scaling=inner_scaling)
        return bits_of(kept, left, right, self._dtype, self._memory)

    def multiply(self, plan: Plan, c: npt.NDArray[Any]) -> None:
        """Compute the product, or an expression that the plan rounds once, into c, shape (batch, m, n)."""
        assert plan.scheme is not None
        if self._proof is not None:
            self._proof.release()
        if isinstance(plan.scheme, RowDigits):
            self.row_kinds = multiply_rows(
                plan.scheme, self._rows("left"), self._columns or self._rows("right"), c, self._memory, self._progress,
                self._combination,
            )  # fmt: skip
            return
        given = self._given_combination
        once = self._combination if given is not None and plan.rounds_once(given) else None
        kept = self._product if once is None and plan.engine == "auto" else None
        if (
            kept is not None
            and not plan.undecided_apart
            and (kept.scheme, kept.inner_scaling) == (plan.scheme, plan.inner_scaling)
        ):
            results.copy(kept.c, c)
            return
        self.release()
        if not self._described:
            self._describe(later=once is None and isinstance(plan.scheme, Residues))
        left, right = (self._slices.get(side) or self.described(side) for side in SIDES)
        if plan.inner_scaling:
            left, right = (self._slices.get(side, of) for side, of in zip(SIDES, self._scaled_pair, strict=True))
        memory, progress = self._memory, self._progress
        described = [x if isinstance(x, Described) else x.described for x in (left, right)]
        undecided = None
        if plan.undecided_apart:
            assert isinstance(plan.scheme, Residues)
            memory.hold(undecided_bytes(c.shape))
            undecided = Undecided.of(described[0].on_host, described[1].on_host, plan.scheme, c.shape)
        with self._threads(*described):
            how = self._itself, self._adjoint, progress, self._verification, undecided
            execute(plan.scheme, plan.engine, left, right, c, memory, once, *how)
        if plan.undecided_apart:
            memory.free(undecided_bytes(c.shape))
            self.undecided = 0 if undecided is None else undecided.count
        alpha = ONE if once is None else once.alpha
        self._product = None
        if not isinstance(plan.scheme, Words) and not plan.undecided_apart:
            self._product = results.Computed(plan.scheme, c, alpha, inner_scaling=plan.inner_scaling)

    def release(self) -> None:
        """Free the memory of a proof, and of a product before."""
        if self._product is not None:
            self._memory.free(self._product.nbytes)
        self._product = None
        if self._proof is not None:
            self._proof.release()

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

    def entry_bounds(self, plan: Plan | None, c: Any, bounds: npt.NDArray[np.float64]) -> None:
        """Compute the bounds of the entries of the result c, both of shape (batch, m, n), into `bounds`."""
        given = self._given_combination
        alpha, sums = (ONE, False) if given is None else (given.alpha, not given.beta.is_zero)
        if plan is None:
            terms = of_zeros(c.shape[1]), of_zeros(c.shape[2]), 0
            alpha = ONE
        elif plan.scheme is None:
            left, right = self._operand_pair
            terms = native_terms(left.on_host, right.on_host, self._dtype)
        else:
            assert is_exact(plan.scheme)
            left, right = self._scaled_pair if plan.inner_scaling else self._operand_pair
            spans = left.span, right.span
            terms = row_terms(left.on_host, right.on_host, plan.scheme, spans, exact=plan.undecided_apart)
        entry_bounds(c, bounds, *terms, alpha, sums, self._memory)

    def nonfinite(self, side: Side) -> npt.NDArray[np.int64]:
        """Number of elements of each row that are NaN or Inf, shape (batch, rows)."""
        return self.described(side).on_host.nonfinite

    def underflows(self, side: Side, words: Words) -> int:
        """Number of elements of which these words leave more than `words.residual`, because a word underflows."""
        described = self.described(side)
        return _words.underflows(described, words) if described.on_host.below(words.lowest).any() else 0
