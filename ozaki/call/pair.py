"""The operands of one product, checked, as stacks of rows; the format of its result, and what is added to it."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from ozaki.backends import Backend, backend_of
from ozaki.backends.results import nbytes
from ozaki.call.combination import Combination, combination_of
from ozaki.call.complex_parts import COMPLEX, REAL, contiguous, real_entries, real_rows
from ozaki.call.destination import Destination
from ozaki.call.format_checks import (
    check_all_finite,
    check_complex,
    check_integer,
    check_quads,
    check_room,
    check_target,
    format_of_plan,
    refuse_words,
)
from ozaki.call.integers import are_integers, as_floats, as_numbers
from ozaki.call.operands import (
    Side,
    as_array,
    dtype_of,
    holds_complex,
    left_rows,
    right_rows,
    scalar_if_no_axes,
    shapes,
)
from ozaki.driver.memory import Memory
from ozaki.multiprecision.array import MPArray
from ozaki.multiprecision.floats import are_whole, to_int64, trimmed
from ozaki.multiprecision.limbs import HOST_TILE, tile_of
from ozaki.multiprecision.numbers import Numbers
from ozaki.multiprecision.quads import to_quads
from ozaki.records.accuracy import Accuracy
from ozaki.records.formats import MULTIPRECISION, QUAD, format_named, is_multiprecision, part_of, precision_of
from ozaki.records.options import Options
from ozaki.records.plan import Plan
from ozaki.records.prepared import Prepared
from ozaki.records.result_format import result_format
from ozaki.schemes import PRESETS, Words

NO_MULTIPRECISION = "native product ruled out: there is none of multiprecision numbers"


class Pair:
    """The operands of one product.

    Parameters
    ----------
    a, b : the operands as the caller gave them
    memory : the account in which copies are counted
    choices : what the caller chose: the format of the result depends on it
    plan : a plan that the caller gives in place of choices, or None
    out : where the caller wants the result; None for a new array
    terms : alpha, beta and c, as the caller gave them, of alpha A B + beta C; None for the product alone
    adjoint : whether B is the conjugate transpose of A, in other memory

    Attributes
    ----------
    backend : Backend
    memory : as given
    a, b : array or Prepared
    choices : what the caller chose; an integer product whose accuracy is not named is exact
    asked : the format that the caller names for the result; None if none is named
    dtype : the format in which the result is computed: "float32", "complex128", or, say, "mp106"
    multiprecision : whether an operand, the addend or the result is multiprecision
    formats : those of the operands, the addend included
    combination : Combination or None: the expression that is computed in place of the product
    sizes : Shapes
    destination : Destination: the memory of the result
    copied : bytes of copies made so far: of integers, of operands that cannot be viewed as rows, and of the destination
    """

    def __init__(
        self,
        a: Any,
        b: Any,
        memory: Memory,
        choices: Options | None = None,
        plan: Plan | None = None,
        out: Any = None,
        terms: tuple[Any, Any, Any] | None = None,
        adjoint: bool = False,
    ) -> None:
        self.adjoint, self.memory = adjoint, memory
        self.backend: Backend = backend_of(("a", a), ("b", b))
        self.a, self.b = (
            x if isinstance(x, Prepared) else self._converted(x, as_array(name, x, self.backend))
            for name, x in (("a", a), ("b", b))
        )
        c = (
            None
            if terms is None or terms[2] is None
            else self._converted(terms[2], as_array("c", terms[2], self.backend))
        )
        choices = choices or Options()
        self.asked = format_named(choices.dtype)
        check_quads(self.asked, self.backend.name)
        if plan is not None:
            multiprecision = is_multiprecision(plan.dtype) or any(map(_is_multiprecision, (self.a, self.b, c)))
            choices = Options(plan.target, dtype=format_of_plan(plan, self.asked) if multiprecision else choices.dtype)
        self.choices = choices
        if choices.accuracy is None and self._gives_every_bit():
            self.choices = choices._replace(accuracy="exact")
        self.copied = 0
        if any(map(are_integers, (self.a, self.b, c))):
            in_floats = choices.dtype is None and not any(isinstance(x, Numbers) for x in (self.a, self.b, c))
            self.a, self.b, c = (
                self._of_integers(name, x, in_floats) for name, x in (("a", self.a), ("b", self.b), ("c", c))
            )
        if self.asked == "int64":
            check_integer(self.choices)
            self.choices = self.choices._replace(accuracy="exact")
        of_operands = dtype_of("a", self.a), dtype_of("b", self.b)
        self.formats = of_operands if c is None else (*of_operands, dtype_of("c", c))
        self.sizes = shapes(tuple(self.a.shape), tuple(self.b.shape))
        left, right = _parts_of(self.a), _parts_of(self.b)
        if (left, right) != REAL:
            self.sizes = replace(self.sizes, parts=(left, right))
        check_complex(self.asked, self.sizes.is_complex, of_addend=c is not None and holds_complex(c))
        target = self._target
        if plan is None and target is not None and target.exact:
            check_room(self.asked)
        # An addend of floats leaves the result the format of the product.
        deciding = self.formats if isinstance(c, Numbers) else of_operands
        self.dtype = result_format(format_named(choices.dtype), deciding, target)
        self.multiprecision = any(map(is_multiprecision, (self.dtype, *self.formats)))
        check_target(target, self.multiprecision)
        scheme = self.choices.scheme
        if self.rounds_operands and (isinstance(scheme, Words) or scheme in PRESETS):
            refuse_words(scheme if isinstance(scheme, str) else scheme.name)
        if out is not None and is_multiprecision(self.dtype):
            raise ValueError("out: a multiprecision result is a new array; omit `out`")
        self.combination: Combination | None = None
        if terms is not None:
            may_be_longer = self.multiprecision or self.asked is not None
            self.combination = combination_of(*terms[:2], c, self.sizes, self.dtype, self.multiprecision, may_be_longer)
        if is_multiprecision(self.dtype):
            check_all_finite((("a", self.a), ("b", self.b), ("c", self._added)))
        # In the normwise measure each matrix of a batch has an error of its own, so they are not stacked into a larger.
        if self.choices.normwise or self._forbids_stacking():
            self.sizes = replace(self.sizes, in_left=(), in_right=())
        self._views: dict[tuple[Side, bool], Any] = {}
        self._addend: Any = None
        self._addends: dict[bool, Any] = {}  # as `computed_addend` returns them
        read = [x.slices.x if isinstance(x, Prepared) else x for x in (self.a, self.b)]
        read += [] if self._added is None else [self._added]
        self.destination = Destination(out, self.sizes, self.dtype, self.backend, read)
        self._copied(self.destination.copied)

    def _gives_every_bit(self) -> bool:
        """Whether a multiprecision result without a named accuracy is exact: that of integers, and of whole numbers.

        With dtype="mp" one operand of integers is enough, or two of whole numbers, whatever they were made of. Without,
        it is the product of integers by whole numbers; two `MPArray`s give the larger precision of both.
        """
        numbers = _is_multiprecision(self.a) or _is_multiprecision(self.b)
        if self.asked is None and not numbers:
            return False
        integers = are_integers(self.a) or are_integers(self.b)
        if self.asked == MULTIPRECISION and integers:
            return True
        if self.asked not in (None, MULTIPRECISION) or not numbers or not (integers or self.asked):
            return False
        return all(are_integers(x) or (isinstance(x, Numbers) and are_whole(x)) for x in (self.a, self.b))

    def _of_integers(self, name: str, x: Any, in_floats: bool) -> Any:
        """An operand or the addend, integers as multiprecision numbers, or `in_floats` as float64: a copy.

        Raises
        ------
        ValueError
            If float64 does not hold one of the integers.
        """
        if x is None or isinstance(x, Numbers) or not are_integers(x):
            return x
        found = as_floats(name, x) if in_floats else as_numbers(x)
        self._copied(int(found.nbytes))
        if x.dtype.kind == "O":
            self.memory.pass_through(_converting_bytes(found))
        return found

    def _converted(self, given: Any, found: Any) -> Any:
        """The array that was made of what the caller gave; counted, unless it lies in that memory."""
        if found is not given and (isinstance(found, Numbers) or found.flags.owndata):
            self.memory.hold_copy(int(found.nbytes))
            if isinstance(found, Numbers):
                self.memory.pass_through(_converting_bytes(found))
        return found

    def _copied(self, nbytes: int) -> None:
        """Count a copy."""
        self.memory.hold_copy(nbytes)
        self.copied += nbytes

    @property
    def _target(self) -> Accuracy | None:
        """The accuracy asked for; None if none is named."""
        return self.choices.target(self.sizes.shape[1])

    @property
    def _added(self) -> Any:
        """The addend as the caller gave it; None if nothing is added."""
        return None if self.combination is None else self.combination.c

    @property
    def native_obstacle(self) -> str | None:
        """Why the native product may not run; None if it may."""
        if self.multiprecision:
            return NO_MULTIPRECISION
        if self.rounds_operands:
            return f"native product ruled out: it would round operands to {self.dtype} first"
        return self.backend.native_obstacle(part_of(self.dtype))

    @property
    def rounds_operands(self) -> bool:
        """Whether an operand of floats has more bits than the result: all but slices would round it first."""
        return not self.multiprecision and max(map(precision_of, self.formats)) > precision_of(self.dtype)

    @property
    def sums_exactly(self) -> bool:
        """Whether a multiprecision result has every bit; `returned` then adds the addend to the exact product."""
        return is_multiprecision(self.dtype) and self._target is not None and self._target.exact

    @property
    def nothing_to_multiply(self) -> bool:
        """Whether the operands do not count: the inner dimension or alpha is 0."""
        return self.sizes.shape[1] == 0 or (self.combination is not None and self.combination.alpha.is_zero)

    def computed_addend(self, of_parts: bool) -> Any:
        """The addend as the entries that are computed, in its own precision; a copy, counted in `copied`, where needed.

        With `of_parts` real entries, of a complex product those of the real one of parts.
        """
        c = self.addend
        if c is None or not self.sizes.is_complex:
            return c
        if of_parts not in self._addends:
            own = "complex64" if dtype_of("c", c) in ("complex64", "float32") else "complex128"
            entries = real_entries(c, own, self.sizes.parts) if of_parts else contiguous(c, own)
            if entries.size and not self.backend.overlap(entries, c):
                self._copied(int(entries.nbytes))
            self._addends[of_parts] = entries
        return self._addends[of_parts]

    @property
    def addend(self) -> Any:
        """The addend in the shape `sizes.stack`; a copy, counted in `copied`, where no view has that shape."""
        c = self._added
        if self._addend is None and c is not None:
            self._addend = self.sizes.stacked(c)
            if c.size and not self.backend.overlap(self._addend, c):
                self._copied(int(self._addend.nbytes))
        return self._addend

    @property
    def given(self) -> tuple[Any, Any, Any, Any]:
        """The arrays that a program reads, and `out`, or None if the result is not computed in it.

        Those are the operands and the addend; None if nothing is added.
        """
        return self.a, self.b, self.addend, self.destination.out if self.destination.in_place else None

    @property
    def repeatable(self) -> bool:
        """Whether a repeated call can run the program of this one: it reads no copies, and need not check elements.

        An expression may be computed apart from `out`, which often is the addend; `gemm` copies it there each time. A
        multiprecision result refuses NaN and Inf in floats, and an exact one has a format of its own for each product.
        """
        if is_multiprecision(self.dtype):
            floats = [x for x in (self.a, self.b) if not isinstance(x, Numbers | Prepared)]
            if floats or self.sums_exactly:
                return False
        return self.copied == (self.destination.bytes_apart if self.combination else 0)

    def _forbids_stacking(self) -> bool:
        """Whether a prepared operand forbids stacking: its matrices are split already, each by itself."""
        of_right = isinstance(self.b, Prepared) and prod(self.b.shape[:-2]) != 1
        return isinstance(self.a, Prepared) or of_right

    @property
    def prepared(self) -> bool:
        """Whether an operand is prepared."""
        return isinstance(self.a, Prepared) or isinstance(self.b, Prepared)

    @property
    def empty(self) -> bool:
        """Whether the result has no entries, or the inner dimension is 0."""
        return 0 in (*self.sizes.stack, self.sizes.shape[1])

    @property
    def of_complex_rows(self) -> bool:
        """Whether the rows that are described are complex: those of two complex operands of floats."""
        return self.sizes.parts == COMPLEX and not self.multiprecision

    def matrices(self, of_parts: bool) -> tuple[Any, Any]:
        """Both operands as given, vectors as matrices; for a prepared operand its slices.

        With `of_parts` real matrices: of complex operands those whose rows and columns `rows` has.
        """
        if of_parts and self.sizes.is_complex:
            left, right = (x.slices if isinstance(x, Prepared) else self.rows(side, True) for x, side in self.operands)
            return left, (right if isinstance(self.b, Prepared) else right.swapaxes(1, 2))
        return self._matrices

    @property
    def operands(self) -> tuple[tuple[Any, Side], tuple[Any, Side]]:
        """Each operand, with its side."""
        return (self.a, "left"), (self.b, "right")

    @property
    def _matrices(self) -> tuple[Any, Any]:
        a, b = (x.slices if isinstance(x, Prepared) else x for x in (self.a, self.b))
        # A vector is no prepared operand: plans are made for matrices.
        return (a[None, :] if len(self.a.shape) == 1 else a), (b[:, None] if len(self.b.shape) == 1 else b)

    def rows(self, side: Side, of_parts: bool) -> Any:
        """An operand as a stack of rows; a copy, counted in `copied`, where no view has that shape.

        With `of_parts` real rows: of complex operands those of their parts (`call.complex_parts.real_rows`).
        """
        if (side, of_parts) not in self._views:
            operand, rows = (self.a, left_rows) if side == "left" else (self.b, right_rows)
            view = rows(operand, self.sizes, self.backend.broadcast_to)
            if of_parts:
                whole, view = view, real_rows(view, side, self.sizes.parts)
                if view is not whole and not self.backend.overlap(whole, operand):
                    self.memory.pass_through(int(whole.nbytes + view.nbytes))
            if not self.backend.overlap(view, operand):
                self._copied(int(view.nbytes))
            self._views[side, of_parts] = view
        return self._views[side, of_parts]

    def copies(self, side: Side) -> int:
        """How many times each matrix of an operand occurs in its stack of rows: several times if it is broadcast."""
        operand = self.a if side == "left" else self.b
        batch = operand.slices.x.shape[0] if isinstance(operand, Prepared) else self.sizes.stack[0]
        return max(1, int(batch) // max(1, prod(operand.shape[:-2])))

    def repeats(self, side: Side) -> int:
        """How many times each element of an operand occurs in its rows; a column of B may be in two rows of parts."""
        return self.copies(side) * (2 if side == "right" and self.sizes.parts == (2, 2) else 1)

    def flagged(self, side: Side, flags: Any) -> int:
        """Number of rows of the operand of which a row that is multiplied is flagged; flags: shape (batch, rows)."""
        rows = self.sizes.stack[1 if side == "left" else 2]
        return int(flags.reshape(flags.shape[0], rows, -1).any(axis=-1).sum()) // self.copies(side)

    def returning_bytes(self, dtype: str) -> int:
        """Bytes that `returned` holds beside what it returns, of a computed result of this format.

        The whole of a computed result that is not returned itself counts, and what converting it takes; of an exact
        sum about as much as it takes where both terms are of one size.
        """
        if not self.sums_exactly:
            return 0
        entries = prod(self.sizes.stack) * (1 + self.sizes.is_complex)
        self.memory.require(_trimming_bytes(entries, HOST_TILE))
        if self.combination is None and self.asked != "int64":
            return 0
        found = nbytes((entries,), dtype)
        if self.combination is not None:
            found += self.combination.exact_bytes(entries, precision_of(dtype))
        return found + (60 * entries if self.asked == "int64" else 0)

    def returned(self, c: Any) -> Any:
        """What the caller gets of the computed result c, shape `sizes.stack`: of his shape, in `out` if he gave one."""
        c = self.destination.shaped(c)
        if not isinstance(c, Numbers):
            return self.destination.returned(c)
        if self.sums_exactly and self.combination is not None:
            c = self.combination.exactly(c, self.memory)
        if self.sums_exactly:
            tile = tile_of(c.limbs) if self.memory.limit is None else HOST_TILE
            self.memory.pass_through(_trimming_bytes(c.parts.size, tile))
            c = trimmed(c, tile)
        if self.asked == "int64":
            return scalar_if_no_axes(to_int64(c))
        return scalar_if_no_axes(to_quads(c)) if self.asked == QUAD else MPArray._of(c)


def _converting_bytes(x: Numbers) -> int:
    """Bytes held while numbers were made of those of other libraries, or of Python's ints, beside the numbers."""
    return 256 * prod(x.shape) + 2 * int(x.nbytes)


def _trimming_bytes(entries: int, tile: int) -> int:
    """Bytes held while the longest of so many numbers is searched for, tile by tile: eight arrays of int64."""
    return 64 * min(entries, tile)


def _parts_of(x: Any) -> int:
    """Real parts of an element of an operand or an addend: 2 of complex ones."""
    if isinstance(x, Prepared):
        return x.plan.parts[x.side == "right"]
    return 1 + holds_complex(x)


def _is_multiprecision(x: Any) -> bool:
    """Whether x holds multiprecision numbers, prepared or not."""
    return isinstance(x, Numbers) or (isinstance(x, Prepared) and is_multiprecision(x.dtype))
