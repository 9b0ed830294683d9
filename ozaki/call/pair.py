"""The operands of one product, checked, as stacks of rows; the format of its result, and what is added to it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from math import prod
from typing import Any

from ozaki.backends import Backend, backend_of
from ozaki.backends.combining import exact_bytes, exactly
from ozaki.backends.results import nbytes
from ozaki.call.combination import combination_of
from ozaki.call.complex_parts import contiguous, real_entries, real_rows
from ozaki.call.destination import Destination
from ozaki.call.format_checks import (
    check_complex,
    check_integer,
    check_quads,
    check_room,
    check_target,
    format_of_plan,
    refuse_words,
)
from ozaki.call.halves import as_given, check_factors, half_result, stored
from ozaki.call.integers import as_floats, as_numbers
from ozaki.call.operands import Operand, are_integers, as_array, operand, scalar_if_no_axes
from ozaki.interchange.halves import HalfArray, as_bits, widened
from ozaki.multiprecision.array import MPArray
from ozaki.multiprecision.floats import are_whole, to_int64, trimmed
from ozaki.multiprecision.limbs import HOST_TILE, tile_of
from ozaki.multiprecision.numbers import Numbers
from ozaki.multiprecision.quads import to_quads
from ozaki.planning.checks import check_options
from ozaki.records.accuracy import Accuracy
from ozaki.records.combination import Combination
from ozaki.records.formats import (
    MULTIPRECISION,
    QUAD,
    format_named,
    is_multiprecision,
    part_of,
    precision_of,
    result_format,
)
from ozaki.records.memory import Memory
from ozaki.records.options import NONE_GIVEN, Options
from ozaki.records.plan import Plan
from ozaki.records.prepared import Prepared
from ozaki.records.shapes import COMPLEX, REAL, Shapes, Side, shapes
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
    memory, adjoint : as given
    left, right, added : Operand: A, B and C; `added` is None if nothing is added
    choices : what the caller chose, each by itself checked, the accuracy spelled out; an integer product whose accuracy
        is not named is exact
    target : the accuracy asked for; None if none is named
    asked : the format that the caller names for the result; None if none is named
    half : the 16-bit format of the result, that of both operands; None of a result of another format
    dtype : the format in which the result is computed: "float32", "complex128", or, say, "mp106"
    part : that of a real part of it: "float32", "float64", "mp106"
    multiprecision : whether an operand, the addend or the result is multiprecision
    rounds_operands : whether an operand of floats has more bits than the result: all but slices would round it first
    prepared : whether an operand is
    of_complex_rows : whether the rows that are described are complex: those of two complex operands of floats
    sums_exactly : whether a multiprecision result has every bit; `returned` then adds the addend to the exact product
    combination : Combination or None: the expression that is computed in place of the product
    empty : whether the result has no entries, or the inner dimension is 0
    nothing_to_multiply : whether the operands do not count: the inner dimension or alpha is 0
    sizes : Shapes
    destination : Destination: the memory of the result
    copied : bytes of copies made so far: of operands of other dtypes, or that cannot be viewed as rows, and of the
        destination
    """

    sizes: Shapes
    dtype: str
    part: str
    target: Accuracy | None
    multiprecision: bool
    rounds_operands: bool

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
        self.adjoint, self.memory, self.copied = adjoint, memory, 0
        self.backend: Backend = backend_of(("a", a), ("b", b))
        choices = choices or NONE_GIVEN
        if plan is None:  # else all of them have their defaults, but for `dtype`
            check_options(choices, self.backend)
        c = None if terms is None else terms[2]
        if c is not None:
            # No copy that keeps a program from being repeated: `gemm` looks for one when the addend has been taken.
            c = self._taken("c", c, memory.hold_copy)
        self.half = half_result(a, b, choices, plan, isinstance(c, Numbers))
        self._halves, self._half_out = (a, b), out
        if self.half is not None:
            out = None if out is None else stored(out, self.half)
            choices = choices._replace(accuracy=None, dtype=None)
        a, b = self._taken("a", a, self._copied), self._taken("b", b, self._copied)
        self.asked = None if choices.dtype is None else format_named(choices.dtype)
        if self.asked == QUAD:
            check_quads(self.asked, self.backend.name)
        if plan is not None and self.half is None:
            fitting = format_of_plan(plan, self.asked)
            multiprecision = is_multiprecision(plan.dtype) or any(map(_is_multiprecision, (a, b, c)))
            choices = Options(plan.target, dtype=fitting if multiprecision else choices.dtype)
        self.choices = choices
        integers = [are_integers(x) for x in (a, b, c)]
        if choices.accuracy is None and self._gives_every_bit(a, b, any(integers[:2])):
            self.choices = choices._replace(accuracy="exact")
        if any(integers):
            in_floats = choices.dtype is None and not any(isinstance(x, Numbers) for x in (a, b, c))
            a, b, c = (self._of_integers(name, x, in_floats) for name, x in (("a", a), ("b", b), ("c", c)))
        if self.asked == "int64":
            check_integer(self.choices)
            self.choices = self.choices._replace(accuracy="exact")
        self.left, self.right = operand("a", a), operand("b", b)
        self.added: Operand | None = None if c is None else operand("c", c)
        self._find_format(plan, choices)
        if out is not None and is_multiprecision(self.dtype):
            raise ValueError("out: a multiprecision result is a new array; omit `out`")
        self.combination: Combination | None = None
        if terms is not None:
            may_be_longer = self.multiprecision or self.asked is not None
            self.combination = combination_of(*terms[:2], c, self.sizes, self.dtype, self.multiprecision, may_be_longer)
            if self.half is not None:
                check_factors(self.combination, self.half)
        if self.combination is None or self.combination.c is None:
            self.added = None
        read = [self.left, self.right] + ([] if self.added is None else [self.added])
        if is_multiprecision(self.dtype):
            for name, each in zip("abc", read, strict=False):
                each.check_finite(name)
            self.sums_exactly = self.target is not None and self.target.exact
        else:
            self.sums_exactly = False
        of_right = self.right.prepared and prod(self.right.shape[:-2]) != 1
        # In the normwise measure each matrix of a batch has an error of its own, so they are not stacked into a larger;
        # those of a prepared operand are split already, each by itself. In products rounded to 16 bits the digits of a
        # row follow from all columns beside which it is multiplied, which must be those of one matrix.
        normwise = self.target is not None and self.target.measure == "normwise"
        if self.left.prepared or of_right or normwise or (self.half is not None and self.sizes.in_right):
            self.sizes = replace(self.sizes, in_left=(), in_right=())
        self.prepared = self.left.prepared or self.right.prepared
        k, combination = self.sizes.shape[1], self.combination
        self.empty = 0 in (*self.sizes.stack, k)
        self.nothing_to_multiply = k == 0 or (combination is not None and combination.alpha.is_zero)
        self.of_complex_rows = self.sizes.parts == COMPLEX and not self.multiprecision
        self._views: dict[tuple[Side, bool], Any] = {}
        self._addend: Any = None
        self._addends: dict[bool, Any] = {}  # as `computed_addend` returns them
        self.destination = Destination(out, self.sizes, self.dtype, self.backend, [x.read for x in read])
        self._copied(self.destination.copied)

    def _find_format(self, plan: Plan | None, choices: Options) -> None:
        """Find the shapes and the format of the result, and refuse what cannot be had into it."""
        left, right, c = self.left, self.right, self.added
        self.sizes = shapes(left.shape, right.shape)
        is_complex = (left.parts, right.parts) != REAL
        if is_complex:
            self.sizes = replace(self.sizes, parts=(left.parts, right.parts))
        if is_complex or self.asked is not None or c is not None:
            check_complex(self.asked, is_complex, of_addend=c is not None and c.parts == 2)
        self.target = None
        if self.choices.accuracy is not None:
            self.target = self.choices.target(self.sizes.shape[1])
            self.choices = self.choices._replace(accuracy=self.target)
        if plan is None and self.target is not None and self.target.exact:
            check_room(self.asked)
        # An addend of floats leaves the result the format of the product.
        deciding = (left.format, right.format) + ((c.format,) if c is not None and c.multiprecision else ())
        asked = self.asked if choices.dtype is None or plan is None else format_named(choices.dtype)
        self.dtype = result_format(asked, deciding, self.target)
        self.part = part_of(self.dtype)
        of_addend = c is not None and c.multiprecision
        self.multiprecision = left.multiprecision or right.multiprecision or of_addend or is_multiprecision(self.dtype)
        most = max(left.bits, right.bits, 0 if c is None else c.bits)
        self.rounds_operands = not self.multiprecision and most > precision_of(self.dtype)
        if self.target is not None:
            check_target(self.target, self.multiprecision)
        if self.half is not None:
            self.dtype = self.part = self.half
            self.rounds_operands = False
        scheme = self.choices.scheme
        if self.rounds_operands and (isinstance(scheme, Words) or scheme in PRESETS):
            refuse_words(scheme if isinstance(scheme, str) else scheme.name)

    def _gives_every_bit(self, a: Any, b: Any, integers: bool) -> bool:
        """Whether a multiprecision result without a named accuracy is exact: that of integers, and of whole numbers.

        With dtype="mp" one operand of integers is enough, or two of whole numbers, whatever they were made of. Without,
        it is the product of integers by whole numbers; two `MPArray`s give the larger precision of both.
        """
        numbers = _is_multiprecision(a) or _is_multiprecision(b)
        if self.asked is None and not numbers:
            return False
        if self.asked == MULTIPRECISION and integers:
            return True
        if self.asked not in (None, MULTIPRECISION) or not numbers or not (integers or self.asked):
            return False
        return all(are_integers(x) or (isinstance(x, Numbers) and are_whole(x)) for x in (a, b))

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

    def _taken(self, name: str, given: Any, count: Callable[[int], None]) -> Any:
        """An array of what the caller gave; a copy is counted by `count`."""
        if isinstance(given, Prepared):
            return given
        if name in "ab" and self.half is not None and self.backend.reads_halves:
            return HalfArray(as_bits(given), self.half)
        if isinstance(given, HalfArray):
            found = widened(given)
            count(int(found.nbytes))
            return found
        found = as_array(name, given, self.backend)
        if found is not given and (isinstance(found, Numbers) or found.flags.owndata or _converted(found, given)):
            count(int(found.nbytes))
            if isinstance(found, Numbers):
                self.memory.pass_through(_converting_bytes(found))
        return found

    def _copied(self, nbytes: int) -> None:
        """Count a copy."""
        if nbytes:
            self.memory.hold_copy(nbytes)
            self.copied += nbytes

    @property
    def native_obstacle(self) -> str | None:
        """Why the native product may not run; None if it may."""
        if self.multiprecision:
            return NO_MULTIPRECISION
        if self.rounds_operands:
            return f"native product ruled out: it would round operands to {self.dtype} first"
        return self.backend.native_obstacle(self.part)

    def computed_addend(self, as_real: bool) -> Any:
        """The addend as the entries that are computed, in its own precision; a copy, counted in `copied`, where needed.

        With `as_real` real entries, of a complex product those of the real one of parts.
        """
        c = self.addend
        if c is None or not self.sizes.is_complex:
            return c
        if as_real not in self._addends:
            own = "complex64" if self.added is not None and self.added.bits == 24 else "complex128"
            entries = real_entries(c, own, self.sizes.parts) if as_real else contiguous(c, own)
            if entries.size and not self.backend.overlap(entries, c):
                self._copied(int(entries.nbytes))
            self._addends[as_real] = entries
        return self._addends[as_real]

    @property
    def addend(self) -> Any:
        """The addend in the shape `sizes.stack`; a copy, counted in `copied`, where no view has that shape."""
        if self._addend is None and self.added is not None:
            c = self.added.value
            self._addend = self.sizes.stacked(c)
            if c.size and not self.backend.overlap(self._addend, c):
                self._copied(int(self._addend.nbytes))
        return self._addend

    @property
    def given(self) -> tuple[Any, Any, Any, Any]:
        """The arrays that a program reads, and `out`, or None if the result is not computed in it.

        Those are the operands and the addend; None if nothing is added. Bits of 16-bit floats say of which format.
        """
        out = self.destination.out if self.destination.in_place else None
        left, right = self.left.value, self.right.value
        if self.half is not None and self.backend.reads_halves:
            left, right, out = (HalfArray(x, self.half) if self.backend.owns(x) else x for x in (left, right, out))
        return left, right, self.addend, out

    @property
    def repeatable(self) -> bool:
        """False if the program would read a copy of an operand, or if elements must be validated on each call.

        An expression may be computed apart from `out`, which often is the addend; `gemm` copies it there each time. A
        multiprecision result refuses NaN and Inf in floats, and an exact one has a format of its own for each product.
        """
        if is_multiprecision(self.dtype):
            floats = any(not (x.multiprecision or x.prepared) for x in (self.left, self.right))
            if floats or self.sums_exactly:
                return False
        return self.copied == (self.destination.bytes_apart if self.combination else 0)

    def matrices(self, as_real: bool) -> tuple[Any, Any]:
        """Both operands as given, vectors as matrices; for a prepared operand its slices.

        With `as_real` real matrices: of complex operands those whose rows and columns `rows` has.
        """
        left, right = self.left, self.right
        if as_real and self.sizes.is_complex:
            a = left.matrix("left") if left.prepared else self.rows("left", True)
            b = right.matrix("right") if right.prepared else self.rows("right", True).swapaxes(1, 2)
            return a, b
        return left.matrix("left"), right.matrix("right")

    @property
    def operands(self) -> tuple[tuple[Operand, Side], tuple[Operand, Side]]:
        """Each operand, with its side."""
        return (self.left, "left"), (self.right, "right")

    def rows(self, side: Side, as_real: bool) -> Any:
        """An operand as a stack of rows; a copy, counted in `copied`, where no view has that shape.

        With `as_real` real rows: of complex operands those of their parts (`complex_parts.real_rows`).
        """
        if (side, as_real) not in self._views:
            operand = self.left if side == "left" else self.right
            given, view = operand.read, operand.rows(side, self.sizes, self.backend.broadcast_to)
            if as_real and operand.parts == 2:
                of_complex, view = view, real_rows(view, side, self.sizes.parts)
                if view is not of_complex and not self.backend.overlap(of_complex, given):
                    self.memory.pass_through(int(of_complex.nbytes + view.nbytes))
            if not self.backend.overlap(view, given):
                self._copied(int(view.nbytes))
            self._views[side, as_real] = view
        return self._views[side, as_real]

    # Limits of workspace ----------------------------------------------------------------------------------------------

    @property
    def native_fits(self) -> bool:
        """Whether the native product keeps within the limit: converted operands, and a result apart from `out`."""
        if self.memory.limit is None or self.multiprecision:  # there is none of multiprecision numbers
            return True
        return self.memory.held + self._converted_bytes <= self.memory.limit

    @property
    def _converted_bytes(self) -> int:
        """Bytes of the copies of operands that a native product makes, because their dtype is not the result's."""
        return sum(nbytes(x.shape, self.dtype) for x, _ in self.operands if x.format != self.dtype)

    def check_native_limit(self) -> None:
        """Refuse a limit that converted operands and a result apart from `out` exceed.

        Raises
        ------
        ValueError
        """
        if not self.native_fits:
            needed = self.memory.held + self._converted_bytes
            raise ValueError(
                f"workspace_limit: {self.memory.limit} bytes are too few for the native product; operands that are "
                f"converted, and an `out` in which nothing can be computed, take {needed}"
            )

    def check_describing(self, as_real: bool) -> None:
        """Refuse a limit that the copies of operands, their descriptions and the describing exceed.

        `as_real`: as for `rows`.

        Raises
        ------
        ValueError
        """
        rows = [self.rows(side, as_real) for x, side in self.operands if not x.prepared]  # which may be copies
        if self.memory.limit is None:
            return
        held = most = 0
        for x in rows:
            kept, passing = self.backend.describing_bytes(x)
            held += kept
            most = max(most, held + passing)
        self.memory.require(most)

    def copies(self, side: Side) -> int:
        """How many times each matrix of an operand occurs in its stack of rows: several times if it is broadcast."""
        operand = self.left if side == "left" else self.right
        batch = operand.read.shape[0] if operand.prepared else self.sizes.stack[0]
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
            found += exact_bytes(self.combination, entries, precision_of(dtype))
        return found + (60 * entries if self.asked == "int64" else 0)

    def returned(self, c: Any) -> Any:
        """What the caller gets of the computed result c, shape `sizes.stack`: of his shape, in `out` if he gave one."""
        c = self.destination.shaped(c)
        if self.half is not None:
            bits = self.destination.returned(c)
            return as_given(bits, self.half, self._halves) if self._half_out is None else self._half_out
        if not isinstance(c, Numbers):
            return self.destination.returned(c)
        if self.sums_exactly and self.combination is not None:
            c = exactly(c, self.combination, self.memory)
        if self.sums_exactly:
            tile = tile_of(c.limbs) if self.memory.limit is None else HOST_TILE
            self.memory.pass_through(_trimming_bytes(c.parts.size, tile))
            whole, c = c, trimmed(c, tile)
            if self.asked not in ("int64", QUAD):
                c = _apart(c, whole, self.memory)
        if self.asked == "int64":
            return scalar_if_no_axes(to_int64(c))
        return scalar_if_no_axes(to_quads(c)) if self.asked == QUAD else MPArray._of(c)


def _converted(found: Any, given: Any) -> bool:
    """Whether an array has another dtype than what it was made of."""
    return bool(getattr(given, "dtype", found.dtype) != found.dtype)


def _converting_bytes(x: Numbers) -> int:
    """Bytes held while numbers were made of those of other libraries, or of Python's ints, beside the numbers."""
    return 256 * prod(x.shape) + 2 * int(x.nbytes)


def _apart(x: Numbers, whole: Numbers, memory: Memory) -> Numbers:
    """Trimmed numbers in memory of their own, where much of that of the whole ones would be held for nothing.

    The same numbers if the memory does not suffice.
    """
    more = int(x.limbs.nbytes)
    if 4 * whole.nbytes > 5 * x.nbytes and (memory.rest is None or more <= memory.rest):
        with suppress(MemoryError):
            limbs = x.limbs.copy(order="K")
            memory.pass_through(more)
            return Numbers(x.signs, x.exponents, limbs, x.bits, x.is_complex)
    return x


def _trimming_bytes(entries: int, tile: int) -> int:
    """Bytes held while the longest of so many numbers is searched for, tile by tile: eight arrays of int64."""
    return 64 * min(entries, tile)


def _is_multiprecision(x: Any) -> bool:
    """Whether x holds multiprecision numbers, prepared or not."""
    return isinstance(x, Numbers) or (isinstance(x, Prepared) and is_multiprecision(x.dtype))
