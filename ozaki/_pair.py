"""The operands of one product, checked, as stacks of rows; and the memory of its result."""

from __future__ import annotations

from dataclasses import replace
from itertools import dropwhile
from math import prod
from typing import Any

from ozaki._accuracy import PLAIN_BITS, Accuracy
from ozaki._checks import check_choices, check_finite, check_holds_multiprecision, check_out, check_runs
from ozaki._choices import Choices
from ozaki._combination import Combination, factor_of
from ozaki._complex import COMPLEX, REAL, contiguous, join_into, numbers_of_entries, real_entries, real_rows
from ozaki._formats import MULTIPRECISION, format_named, is_complex, is_multiprecision, part_of, precision_of
from ozaki._operands import (
    SIDES,
    Side,
    as_array,
    dtype_of,
    holds_complex,
    left_rows,
    right_rows,
    scalar_if_no_axes,
    shapes,
)
from ozaki._plan import Plan
from ozaki._prepared import Prepared
from ozaki._result import result_format
from ozaki._workspace import too_few_bytes
from ozaki.backends import Backend, as_computed, backend_of
from ozaki.multiprecision.array import MPArray
from ozaki.multiprecision.floats import of_integers, to_int64, trimmed
from ozaki.multiprecision.numbers import Numbers
from ozaki.schemes import PRESETS, Words

NO_MULTIPRECISION = "native product ruled out: there is none of multiprecision numbers"


class Pair:
    """The operands of one product.

    Parameters
    ----------
    a, b : the operands as the caller gave them
    choices : what the caller chose: the format of the result depends on it
    plan : a plan that the caller gives in place of choices, or None
    out : where the caller wants the result; None for a new array
    terms : alpha, beta and c, as the caller gave them, of alpha A B + beta C; None for the product alone
    adjoint : whether B is the conjugate transpose of A, in other memory

    Attributes
    ----------
    backend : Backend
    a, b : array or Prepared
    choices : what the caller chose; an integer product whose accuracy is not named is exact
    dtype : the format in which the result is computed: "float32", "complex128", or, say, "mp106"
    wide : whether an operand or the result is multiprecision
    formats : those of the operands, the addend included
    combination : Combination or None: the expression that is computed in place of the product
    sizes : Shapes
    out : array or None, as given
    in_place : whether the product can be computed in `out`
    copied : bytes of copies made so far: of operands that cannot be viewed as rows, and of a result that cannot be
        computed in `out`, or whose parts are joined after they are computed
    """

    def __init__(
        self,
        a: Any,
        b: Any,
        choices: Choices | None = None,
        plan: Plan | None = None,
        out: Any = None,
        terms: tuple[Any, Any, Any] | None = None,
        adjoint: bool = False,
    ) -> None:
        self.adjoint = adjoint
        self.backend: Backend = backend_of(("a", a), ("b", b))
        self.a, self.b = (
            x if isinstance(x, Prepared) else as_array(name, x, self.backend) for name, x in (("a", a), ("b", b))
        )
        c = None if terms is None or terms[2] is None else as_array("c", terms[2], self.backend)
        choices = choices or Choices()
        self.asked = format_named(choices.dtype)
        if plan is not None:
            wide = is_multiprecision(plan.dtype) or any(map(_is_multiprecision, (self.a, self.b, c)))
            choices = Choices(plan.target, dtype=self._asked_of(plan) if wide else choices.dtype)
        self.choices = choices
        if choices.dtype is not None and (_is_integer(self.a) or _is_integer(self.b)):
            self.a, self.b = (of_integers(x) if _is_integer(x) else x for x in (self.a, self.b))
            if choices.accuracy is None and self.asked == MULTIPRECISION:
                self.choices = choices._replace(accuracy="exact")
        if choices.dtype is not None and c is not None and _is_integer(c):
            c = of_integers(c)
        if self.asked == "int64":
            _check_integer(self.choices)
            self.choices = self.choices._replace(accuracy="exact")
        self._of_operands = dtype_of("a", self.a), dtype_of("b", self.b)
        self.formats = self._of_operands if c is None else (*self._of_operands, dtype_of("c", c))
        self.sizes = shapes(tuple(self.a.shape), tuple(self.b.shape))
        left, right = _parts_of(self.a), _parts_of(self.b)
        if (left, right) != REAL:
            self.sizes = replace(self.sizes, parts=(left, right))
        self._check_complex(c)
        target = self.choices.target(self.sizes.shape[1])
        if plan is None and target is not None and target.exact:
            _check_room(self.asked)
        asked = format_named(choices.dtype)
        # An addend of floats leaves the result the format of the product.
        deciding = self.formats if isinstance(c, Numbers) else self._of_operands
        self.dtype = result_format(asked, deciding, target)
        self.wide = any(map(is_multiprecision, (self.dtype, *self.formats)))
        self._check_format(out)
        self.combination = None if terms is None else self._combination(*terms[:2], c)
        if is_multiprecision(self.dtype):
            self._check_finite()
        # In the normwise measure each matrix of a batch has an error of its own, so they are not stacked into a larger.
        if self.choices.normwise or self._forbids_stacking():
            self.sizes = replace(self.sizes, in_left=(), in_right=())
        self._views: dict[tuple[Side, bool], Any] = {}
        self.out = out
        if out is not None:
            check_out(out, self.sizes.result, self.dtype, self.backend)
        self._addend: Any = None
        self.in_place = out is not None and self._can_hold_the_result(out)
        self.copied = 0 if out is None or self.in_place else int(out.nbytes)
        if self.sizes.parts == (2, 1) and not is_multiprecision(self.dtype):  # entries are joined in the result later
            self.copied += prod(self.sizes.real_stack) * _itemsize(self.dtype)

    @property
    def native_obstacle(self) -> str | None:
        """Why the native product may not run; None if it may."""
        if self.wide:
            return NO_MULTIPRECISION
        if self._wider:
            return f"native product ruled out: it would round operands to {self.dtype} first"
        return self.backend.native_obstacle(part_of(self.dtype))

    @property
    def _wider(self) -> bool:
        """Whether an operand of floats has more bits than the result, which slices alone round once."""
        return not self.wide and max(map(precision_of, self.formats)) > precision_of(self.dtype)

    def _asked_of(self, plan: Plan) -> str:
        """The format of a given plan, which is to be the one that the caller asks for, if he does.

        The exact product of a plan that holds every bit may also be returned as int64.

        Raises
        ------
        ValueError
            If it is another one.
        """
        fits = self.asked in (None, plan.dtype) or (self.asked == "int64" and plan.target.exact)
        if not fits and not (self.asked == MULTIPRECISION and is_multiprecision(plan.dtype)):
            raise ValueError(f"dtype: {self.asked!r}, but the plan is made for {plan.dtype}; omit one of the two")
        return plan.dtype

    def _check_format(self, out: Any) -> None:
        """Refuse what products into this format cannot do.

        Raises
        ------
        NotImplementedError, ValueError
        """
        target = self.choices.target(self.sizes.shape[1])
        if not self.wide and target is not None and target.exponent:
            raise ValueError(
                f"accuracy: {target.in_words} is too small for a float result; expected 1 to {PLAIN_BITS} bits, or "
                "dtype='mp'"
            )
        scheme = self.choices.scheme
        if self._wider and (isinstance(scheme, Words) or scheme in PRESETS):
            _refuse_words(scheme if isinstance(scheme, str) else scheme.name)
        if out is not None and is_multiprecision(self.dtype):
            raise ValueError("out: a multiprecision result is a new array; omit `out`")

    def _check_complex(self, c: Any) -> None:
        """Refuse a real result of complex operands, and a complex one, or a complex addend, of real operands.

        Raises
        ------
        TypeError
        """
        if not self.sizes.is_complex:
            if self.asked is not None and is_complex(self.asked):
                raise TypeError(
                    f"dtype: {self.asked!r}, but a and b are real; use .astype({self.asked!r}) of the result"
                )
            if c is not None and _parts_of(c) == 2:
                raise TypeError("c: complex, but a and b are real; make one of them complex, as a + 0j")
            return
        if self.asked is not None and not is_complex(self.asked) and not is_multiprecision(self.asked):
            raise TypeError(
                f"dtype: {self.asked!r}, but the product is complex; expected 'complex64', 'complex128' or 'mp'"
            )

    def _check_finite(self) -> None:
        """Refuse NaN and Inf, which a multiprecision result cannot hold."""
        c = None if self.combination is None else self.combination.c
        for name, x in (("a", self.a), ("b", self.b), ("c", c)):
            if x is not None and not isinstance(x, Numbers | Prepared):
                check_finite(name, x)

    def _combination(self, alpha: Any, beta: Any, c: Any) -> Combination | None:
        """The expression alpha A B + beta C; None if it is the product itself.

        Raises
        ------
        ValueError, TypeError
            If a factor or the addend cannot be used.
        """
        scale = None if self.wide else part_of(self.dtype)
        first, second = (
            factor_of(name, x, scale, self.sizes.is_complex) for name, x in (("alpha", alpha), ("beta", beta))
        )
        expected = f"expected an array of shape {self.sizes.result} and dtype {self.dtype}"
        if c is None and not second.is_zero:
            raise ValueError(f"c: missing; {expected}, or beta = 0")
        if c is not None and tuple(c.shape) != self.sizes.result:
            raise ValueError(f"c: shape {tuple(c.shape)} does not fit the product; {expected}")
        longer = c is not None and not self.wide and precision_of(dtype_of("c", c)) > precision_of(self.dtype)
        if longer and self.asked is None:
            raise TypeError(f"c: dtype {c.dtype} does not fit {self.dtype} operands; {expected}")
        found = Combination(first, second, None if second.is_zero else c)
        return None if found.is_product else found

    @property
    def sums_exactly(self) -> bool:
        """Whether a multiprecision result has every bit; then an addend is added to the product that does."""
        target = self.choices.target(self.sizes.shape[1])
        return is_multiprecision(self.dtype) and target is not None and target.exact

    @property
    def nothing_to_multiply(self) -> bool:
        """Whether the operands do not count: the inner dimension or alpha is 0."""
        return self.sizes.shape[1] == 0 or (self.combination is not None and self.combination.alpha.is_zero)

    def computed_addend(self, of_parts: bool) -> Any:
        """The addend as the entries that are computed, in its own precision; copies are counted as those of `addend`.

        With `of_parts` real entries, of a complex product those of the real one of parts.
        """
        c = self.addend
        if c is None or not self.sizes.is_complex:
            return c
        own = "complex64" if dtype_of("c", c) in ("complex64", "float32") else "complex128"
        entries = real_entries(c, own, self.sizes.parts) if of_parts else contiguous(c, own)
        if entries.size and not self.backend.overlap(entries, c):
            self.copied += int(entries.nbytes)
        return entries

    @property
    def addend(self) -> Any:
        """The addend in the shape `sizes.stack`; a copy, counted in `copied`, where no view has that shape."""
        c = None if self.combination is None else self.combination.c
        if self._addend is None and c is not None:
            self._addend = self.sizes.stacked(c)
            if c.size and not self.backend.overlap(self._addend, c):
                self.copied += int(self._addend.nbytes)
        return self._addend

    @property
    def given(self) -> tuple[Any, Any, Any, Any]:
        """The arrays that a program reads and writes: the operands, the addend, and `out` if that is computed in."""
        return self.a, self.b, self.addend, self.out if self.in_place else None

    @property
    def repeatable(self) -> bool:
        """Whether a repeated call can run the program of this one: it reads no copies, and need not check elements.

        An expression may be computed beside `out`, which often is the addend; `gemm` copies it there in each call. A
        multiprecision result refuses NaN and Inf in floats, and an exact one has a format of its own for each product.
        """
        target = self.choices.target(self.sizes.shape[1])
        if is_multiprecision(self.dtype):
            floats = [x for x in (self.a, self.b) if not isinstance(x, Numbers | Prepared)]
            if floats or (target is not None and target.exact):
                return False
        of_out = int(self.out.nbytes) if self.combination and self.out is not None and not self.in_place else 0
        return self.copied == of_out

    def _can_hold_the_result(self, out: Any) -> bool:
        """Whether the product can be computed in `out`.

        It must not overlap an operand: a report reads the operands after the product, and an addend is read for entries
        that NaN and Inf touch, after all others are written.
        """
        operands = [x.slices.x if isinstance(x, Prepared) else x for x in (self.a, self.b)]
        if self.combination is not None and self.combination.c is not None:
            operands.append(self.combination.c)
        in_order = self.sizes.in_order and self.backend.contiguous(out)
        return in_order and not any(self.backend.overlap(out, x) for x in operands)

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
        return self.sizes.parts == COMPLEX and not self.wide

    def matrices(self, of_parts: bool) -> tuple[Any, Any]:
        """Both operands as given, vectors as matrices; for a prepared operand its slices.

        With `of_parts` real matrices: of complex operands those whose rows and columns `rows` has.
        """
        if of_parts and self.sizes.is_complex:
            left, right = (x.slices if isinstance(x, Prepared) else self.rows(side, True) for x, side in self._sides)
            return left, (right if isinstance(self.b, Prepared) else right.swapaxes(1, 2))
        return self._matrices

    @property
    def _sides(self) -> tuple[tuple[Any, Side], tuple[Any, Side]]:
        return (self.a, "left"), (self.b, "right")

    @property
    def _matrices(self) -> tuple[Any, Any]:
        a, b = (x.slices if isinstance(x, Prepared) else x for x in (self.a, self.b))
        # A vector is no prepared operand: plans are made for matrices.
        return (a[None, :] if len(self.a.shape) == 1 else a), (b[:, None] if len(self.b.shape) == 1 else b)

    def rows(self, side: Side, of_parts: bool) -> Any:
        """An operand as a stack of rows; a copy, counted in `copied`, where no view has that shape.

        With `of_parts` real rows: of complex operands those of their parts (`_complex.real_rows`).
        """
        if (side, of_parts) not in self._views:
            operand, rows = (self.a, left_rows) if side == "left" else (self.b, right_rows)
            view = rows(operand, self.sizes, self.backend.broadcast_to)
            if of_parts:
                view = real_rows(view, side, self.sizes.parts)
            self._views[side, of_parts] = view
            if not self.backend.overlap(view, operand):
                self.copied += view.nbytes
        return self._views[side, of_parts]

    @property
    def held(self) -> int:
        """Bytes held until the product is done: copies, and the descriptions of operands that are not prepared."""
        stack = self.sizes.stack if self.of_complex_rows else self.sizes.real_stack
        given = (1, self.a), (2, self.b)
        rows = sum(stack[0] * stack[axis] for axis, x in given if not isinstance(x, Prepared))
        return self.copied + self.backend.row_bytes * rows

    def native_fits(self, limit: int | None) -> bool:
        """Whether the native product keeps within `limit` bytes: converted operands, and a result apart from `out`."""
        return limit is None or self._native_bytes <= limit

    @property
    def _native_bytes(self) -> int:
        itemsize = _itemsize(self.dtype) * (1 + is_complex(self.dtype))
        converted = sum(itemsize * prod(x.shape) for x in (self.a, self.b) if dtype_of("", x) != self.dtype)
        return self.copied + converted

    def check_native_limit(self, limit: int | None) -> None:
        """Refuse a limit (bytes) that converted operands and a result apart from `out` exceed.

        Raises
        ------
        ValueError
        """
        if not self.native_fits(limit):
            raise ValueError(
                f"workspace_limit: {limit} bytes are too few for the native product; operands that are converted, and "
                f"an `out` in which nothing can be computed, take {self._native_bytes}"
            )

    def check_limit(self, limit: int | None, of_parts: bool) -> None:
        """Refuse a limit of workspace (bytes) that `held` and the describing of operands exceed.

        `of_parts`: as for `rows`.

        Raises
        ------
        ValueError
        """
        if limit is None:
            return
        _ = self.addend  # which may be copied
        sides = [side for side, x in zip(SIDES, (self.a, self.b), strict=True) if not isinstance(x, Prepared)]
        rows = [self.rows(side, of_parts) for side in sides]  # which may be copies
        describing = [self.backend.describing_workspace((*x.shape[:2], self.sizes.length)) for x in rows]
        if limit > self.held:
            if (needed := max(describing, default=0)) > limit - self.held:
                too_few_bytes(limit - self.held, needed)
            return
        if not self.copied:
            too_few_bytes(limit, self.held)
        raise ValueError(
            f"workspace_limit: {limit} bytes are too few; copies of operands that are broadcast or whose elements lie "
            f"in no order, and of an `out` in which nothing can be computed, take {self.copied}"
        )

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

    def check_plan(self, plan: Plan) -> None:
        """Refuse a plan that the operands or the machine do not fit.

        Raises
        ------
        ValueError, NotImplementedError
        """
        if (plan.shape, plan.batch) != (self.sizes.shape, self.sizes.batch):
            raise ValueError(
                f"plan: made for batch {plan.batch} and (m, k, n) = {plan.shape}, "
                f"but a and b have batch {self.sizes.batch} and {self.sizes.shape}"
            )
        if plan.dtype != self.dtype:
            raise ValueError(f"plan: made for {plan.dtype}, but a and b give {self.dtype}")
        if plan.parts != self.sizes.parts:
            made, given = (" and ".join(_KINDS[n] for n in parts) for parts in (plan.parts, self.sizes.parts))
            raise ValueError(f"plan: made for a and b that are {made}, but they are {given}")
        if self.wide:
            check_holds_multiprecision(plan)
        if self._wider and isinstance(plan.scheme, Words):
            _refuse_words(plan.scheme.name)
        for name, x, side in (("a", self.a, "left"), ("b", self.b, "right")):
            if isinstance(x, Prepared):
                if x.side != side:
                    raise ValueError(f"{name}: prepared as {x.side} operand; prepare it as {side}")
                same = (x.plan.scheme, x.plan.engine, x.plan.shape, x.plan.parts) == (
                    plan.scheme, plan.engine, plan.shape, plan.parts,
                )  # fmt: skip
                same = same and self.backend.same_slices(*(as_computed(each, self.backend) for each in (x.plan, plan)))
                stack = x.slices.x.shape[0]  # its matrices have the order of the batch that it was prepared for
                if not same or (stack != 1 and _stripped(x.plan.batch) != _stripped(plan.batch)):
                    raise ValueError(f"{name}: prepared for another plan; prepare it with this one")
        check_choices(Choices(engine=plan.engine, workspace_limit=plan.workspace_limit), self.backend)
        check_runs(plan.scheme, plan.engine, self.backend.machine())

    def result(self, dtype: str) -> Any:
        """Memory for the result, shape (batch, m, n): that of `out` if `in_place`.

        `dtype` is the format that the plan gives the result.
        """
        if is_multiprecision(dtype) and self.sizes.is_complex:
            return numbers_of_entries(self.backend.empty(self.sizes.real_stack, dtype), self.sizes.parts)
        if self.in_place:
            return self.backend.asarray(self.out).reshape(self.sizes.stack)
        return self.backend.empty(self.sizes.stack, dtype)

    def entries(self, c: Any) -> Any:
        """Memory for the entries of the real product of a complex one: that of its result c, if a view has that shape.

        c itself of a real product.
        """
        parts = self.sizes.parts
        if parts == (2, 1) and not isinstance(c, Numbers):
            return self.backend.empty(self.sizes.real_stack, part_of(self.dtype))
        return c if parts == REAL else real_entries(c, self.dtype, parts)

    def join(self, entries: Any, c: Any) -> None:
        """Bring computed entries of the real product into the result c, where they are not in its memory already."""
        if self.sizes.parts == (2, 1) and not isinstance(c, Numbers):
            join_into(entries, c)

    def returned(self, c: Any) -> Any:
        """The computed result c in the caller's shape, copied to `out` if that is given and not `in_place`."""
        if c.shape != self.sizes.result:
            c = self.sizes.own_shape(c).reshape(self.sizes.result)
        if isinstance(c, Numbers):
            if self.sums_exactly and self.combination is not None:
                c = self.combination.exactly(c)
            if self.sums_exactly:
                c = trimmed(c)
            return scalar_if_no_axes(to_int64(c)) if self.asked == "int64" else MPArray._of(c)
        if self.out is None:
            return scalar_if_no_axes(c)
        if not self.in_place:
            self.out[...] = c
        return self.out


def _itemsize(dtype: str) -> int:
    """Bytes of a part of an entry in a format of the hardware."""
    return 8 if part_of(dtype) == "float64" else 4


_KINDS = {1: "real", 2: "complex"}


def _parts_of(x: Any) -> int:
    """Real parts of an element of an operand or an addend: 2 of complex ones."""
    if isinstance(x, Prepared):
        return x.plan.parts[x.side == "right"]
    return 1 + holds_complex(x)


def _is_integer(x: Any) -> bool:
    """Whether x is an array of integers or bools."""
    return not isinstance(x, Numbers | Prepared) and x.dtype.kind in "biu"


def _is_multiprecision(x: Any) -> bool:
    """Whether x holds multiprecision numbers, prepared or not."""
    return isinstance(x, Numbers) or (isinstance(x, Prepared) and is_multiprecision(x.dtype))


def _refuse_words(name: str) -> None:
    raise ValueError(
        f"scheme: {name} multiplies float32 matrices, but an operand is float64; use scheme='residues', or round it "
        "with .astype('float32')"
    )


def _check_room(asked: str | None) -> None:
    """Refuse a format of so many bits for an exact product, whose entries decide how many they need."""
    if asked is not None and is_multiprecision(asked) and asked != MULTIPRECISION:
        raise ValueError(f"dtype: {asked!r} may round, but accuracy='exact' asks for every bit; use dtype='mp'")


def _check_integer(choices: Choices) -> None:
    """Refuse an accuracy for an integer result, which is exact."""
    if choices.accuracy is not None and not Accuracy.of(choices.accuracy, 1).exact:
        raise ValueError(f"accuracy: {choices.accuracy!r}; the int64 result is exact, so omit the accuracy")


def _stripped(batch: tuple[int, ...]) -> tuple[int, ...]:
    """A batch without its leading axes of size 1, which do not change the order of its matrices."""
    return tuple(dropwhile(lambda size: size == 1, batch))
