"""Repeated calls: the program of a product is kept, and run at once for other operands of the same views.

To plan a small product and to build its program takes the host longer than the kernels take. So a call whose views and
choices were seen before starts the kept program before any fact about its operands is known. The program also finds the
facts that its plan rests on; if `choose`, asked anew with these, returns a plan of the same scheme, the result is
valid. If not, the product is planned and computed anew. No bits depend on that.

Of calls whose data alternate between plans, each would run a program for nothing. So after `_MOST_MISSES` such runs in
succession the next `_REST` calls are planned anew, without a program that is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import cupy as cp
from cupy.cuda import get_current_stream, runtime

from ozaki.backends.cupy.inputs import Seed, planes_of
from ozaki.backends.cupy.prepared import PreparedSlices
from ozaki.backends.cupy.products import Repetition
from ozaki.backends.cupy.program.arrays import View
from ozaki.backends.cupy.program.program import Program
from ozaki.backends.cupy.program.run import Run
from ozaki.backends.cupy.program.steps import Gemm, Upload
from ozaki.backends.cupy.steps.gemm import FP64
from ozaki.backends.cupy.steps.native import native_obstacle
from ozaki.backends.cupy.steps.projection import VERIFIED
from ozaki.backends.cupy.work import Work
from ozaki.caches import Bytes, Cache, register
from ozaki.interchange.halves import HalfArray
from ozaki.interchange.kinds import Given, Kind
from ozaki.interchange.streams import on_stream
from ozaki.multiprecision.array import MPArray
from ozaki.multiprecision.limbs import limbs_of
from ozaki.multiprecision.numbers import Numbers
from ozaki.planning.facts import Facts, Need
from ozaki.process.environment import default_environment
from ozaki.process.warning import warn
from ozaki.records.formats import is_multiprecision, precision_of, stored_as
from ozaki.records.plan import Chosen
from ozaki.records.prepared import Prepared

ENABLED = True
"""Whether programs are kept and run for repeated calls. Tests turn it off."""

_MOST_MISSES, _REST = 3, 64
"""Runs in succession whose result does not stand, before programs rest, and for how many calls they do."""


_WRONG = "verify: the product of integers is wrong (random projections disagree); it is computed once more"


@dataclass(frozen=True)
class _Kept:
    """A program that is kept for repeated calls.

    Attributes
    ----------
    program : finds the facts and computes the product
    needs : the facts that it finds
    plan_for : the plan for other operands, by their facts, if the result of the program is right for them; else None
    shape, dtype : shape and dtype of the result
    extents : of the arrays that the program reads, and of the result, the last one: the bytes from the address to the
        first element in memory, and to the end of the last one
    obstacle : the `native_obstacle` of float64 when facts were found, if facts rest on float64 products by cuBLAS, as
        at the wide level of proofs; else None
    float64 : whether they do
    multiprecision : whether the result is multiprecision numbers
    misses : runs for calls like it, the last ones, whose result did not stand
    verified : whether the product is projected, for which each run is given a random number
    """

    program: Program
    needs: tuple[Need, ...]
    plan_for: Callable[[Facts], Chosen | None]
    shape: tuple[int, ...]
    dtype: str
    extents: tuple[tuple[int, int], ...]
    obstacle: str | None
    float64: bool
    multiprecision: bool
    misses: int
    verified: bool

    def would_overwrite(self, addresses: tuple[int, ...], out: int) -> bool:
        """Whether a result at the address `out` may share memory with an array that the program reads."""
        *read, (first, end) = self.extents
        for at, (begin, after) in zip(addresses, read, strict=True):
            if at + begin < out + end and out + first < at + after:
                return True
        return False


@dataclass(frozen=True)
class _Seen:
    """A call that was made once: what the program for calls like it is made from, by the first of them.

    Attributes
    ----------
    repetition : makes the program
    plan_for, shape, dtype, obstacle, misses : as of `_Kept`
    """

    repetition: Repetition
    plan_for: Callable[[Facts], Chosen | None]
    shape: tuple[int, ...]
    dtype: str
    obstacle: str | None
    misses: int = 0

    @default_environment
    def made(self) -> _Kept:
        """The program of such calls."""
        program = self.repetition.program()
        needs = tuple(self.repetition.facts.needs)
        steps = program.steps if needs else ()
        float64 = any(isinstance(step, Gemm) and step.types == FP64 for step in steps)
        obstacle = self.obstacle if float64 else None
        numbers = is_multiprecision(self.dtype)
        plan_for, shape, dtype, views = self.plan_for, self.shape, self.dtype, self.repetition.views
        arrays = *views.left.arrays, *views.right.arrays, *([] if views.addend is None else [views.addend])
        extents = tuple(map(_extent, (*arrays, self.repetition.out.arrays[-1])))
        return _Kept(
            program, needs, plan_for, shape, dtype, extents, obstacle, float64, numbers, self.misses, views.verified
        )  # fmt: skip


def _extent(view: View) -> tuple[int, int]:
    """Bytes from the address of an array to its first element in memory, and to the end of the last one."""
    reach = [step * (size - 1) for step, size in zip(view.steps, view.shape, strict=True)]
    size = view.dtype.itemsize
    return size * sum(min(x, 0) for x in reach), size * (sum(max(x, 0) for x in reach) + 1)


@dataclass
class _Missed:
    """A call for which no program is kept, since the last result by one did not stand.

    Attributes
    ----------
    misses : as of `_Kept`
    rest : calls like it for which none is to be kept
    """

    misses: int
    rest: int


def _bytes_of(kept: _Kept | _Seen | _Missed) -> Bytes:
    """The tables that a program brings to the device, once it is made, and the page-locked memory of its idle runs."""
    if not isinstance(kept, _Kept):
        return Bytes()
    tables = tuple(step.data for step in kept.program.steps if isinstance(step, Upload))
    return Bytes(0, sum(run.pinned_bytes for run in [*kept.program.idle]), tables)


_kept: Cache[Hashable, _Kept | _Seen | _Missed] = register("programs", Cache(1024, _bytes_of, 2**28))
"""By all of a call that a program depends on. Runs that are idle go with their program."""


Call = tuple[tuple[Any, ...], int, tuple[int, ...], tuple[Any, int] | None]
"""A call as kept programs see it: its key, which is all of it that a program depends on, everything but elements and
addresses, and which says in the third place whether it is a matrix by its own transpose; the device that the operands
lie on; the addresses of the arrays that a program reads, in the order of `Program.given`; and the array for the result,
as the caller gave it, with its address, or None for a new one."""


def call_of(a: Any, b: Any, c: Any, out: Any, key: Hashable, kind: Kind | None = None) -> Call | None:
    """A call whose arrays a kept program may read as they are; None of any other.

    Parameters
    ----------
    a, b, c, out : as given to `matmul`, not checked yet; c is the addend of `gemm` as a stack of matrices, or None
    key : all other arguments that the product depends on
    kind : of arrays of another library than CuPy
    """
    if not ENABLED or (left := _given(a, kind)) is None or (right := _given(b, kind)) is None:
        return None
    device, rows, addresses = left
    other, columns, more_addresses = right
    if device != other:
        return None
    transposes = addresses == more_addresses and _are_transposes(left, right)
    addresses += more_addresses
    more, into = None, None
    if c is not None or out is not None:
        added, to = None if c is None else _given(c, kind), None if out is None else _given(out, kind)
        if (c is not None and added is None) or (out is not None and to is None):
            return None
        more = added and added[:2], to and to[:2]
        if added is not None:
            addresses += added[2]
        if to is not None:
            into = out, to[2][0]
    return (key, device, transposes, rows, columns, more), device, addresses, into


def at_once(a: Any, b: Any, out: Any, key: Hashable, kind: Kind | None) -> tuple[bool, tuple[Any, Chosen] | None]:
    """The product of arrays of any library, wherever they lie, by a kept program (`backends.repeated_at_once`)."""
    call = call_of(a, b, None, out, key, kind)
    if call is None:
        return False, None
    device = call[1]
    stream = None if kind is None else kind.stream(device)
    if kind is not None and stream is None:
        return False, None
    if device == runtime.getDevice() and (stream is None or stream == get_current_stream().ptr):
        found = repeated(call, kind)
    else:
        with on_stream(device, stream):
            found = repeated(call, kind)
    if out is not None and kind is not None and found is not None:
        kind.written(out)
    return True, found


def repeated(call: Call, kind: Kind | None = None) -> tuple[Any, Chosen] | None:
    """Compute a product by a kept program, if there is one; CuPy works where the operands lie.

    Returns
    -------
    The result, of CuPy arrays of 16 bits as uint16, and the plan that it is by; or None if no program is kept for such
    a call, if its result does not stand, or if memory does not suffice for the whole program.
    """
    key, device, addresses, out = call
    try:
        kept = _kept.get(key)
    except TypeError:  # a key that cannot be hashed: `matmul` refuses them afterwards
        return None
    if type(kept) is not _Kept and (kept := _made(key, kept)) is None:
        return None
    if kept.float64 and native_obstacle("float64") != kept.obstacle:  # a proof would rest on sums that are not exact
        _kept.drop(key)
        return None
    if out is not None and kept.would_overwrite(addresses, out[1]):
        return None
    numbers, new = None, _new if kind is None else kind.new
    if kept.verified:
        addresses = *addresses, Seed().ptr
    if kept.multiprecision:
        numbers = _new_numbers(kept.shape, kept.dtype)
        *first, last = planes_of(numbers)
        addresses = *addresses, *[x.data.ptr for x in first]
        out = last, last.data.ptr
    run = kept.program.run().start(addresses, out or partial(new, kept.shape, kept.dtype, device))
    if run is None:
        _kept.drop(key)
        return None
    try:
        chosen = _judged(kept, run) if kept.needs else kept.plan_for(_NO_FACTS)
        wrong, result = kept.verified and run.fact(VERIFIED).wrong, run.result
    finally:
        run.end()
    if wrong and chosen is not None:
        warn(_WRONG, RuntimeWarning)
        return None
    if chosen is None:
        _kept.put(key, _Missed(kept.misses + 1, _REST if kept.misses + 1 >= _MOST_MISSES else 0))
        return None
    if kept.misses:
        _kept.put(key, replace(kept, misses=0))
    return result if numbers is None else numbers, chosen


def _made(key: Hashable, known: _Kept | _Seen | _Missed | None) -> _Kept | None:
    """The program for calls of this key, made if it has to be; None if there is to be none."""
    if isinstance(known, _Missed):
        known.rest -= 1
        return None
    if isinstance(known, _Seen):
        made = known.made()
        _kept.put(key, made)
        return made
    return known


@default_environment
def _judged(kept: _Kept, run: Run) -> Chosen | None:
    """The plan for the operands of a run, by their facts, if its result is right for them; else None."""
    return kept.plan_for(Facts({need: run.fact(need) for need in kept.needs}))


_NO_FACTS = Facts()


def keep(
    a: Any,
    b: Any,
    c: Any,
    out: Any,
    key: Hashable,
    work: Work,
    facts: Facts,
    plan_for: Callable[[], Callable[[Facts], Chosen | None]],
    shape: tuple[int, ...],
    dtype: str,
) -> None:
    """Keep the program of a product that was computed, for calls like it (`backends.Backend.keep`)."""
    call = call_of(a, b, c, out, key)
    if call is None:
        return
    key, *_ = call
    _, _, transposes, *_ = key
    if work.for_transposes and not transposes:  # such a program serves no other calls
        return
    missed = before if isinstance(before := _kept.peek(key), _Missed) else _Missed(0, 0)
    if missed.rest > 0:
        return
    repetition = work.repetition(facts)
    if repetition is not None:
        obstacle, limit = native_obstacle("float64"), work.memory.limit
        seen = _Seen(repetition, plan_for(), shape, dtype, obstacle, missed.misses)
        if limit is None:
            _kept.put(key, seen)
        elif (made := seen.made()).program.room.counted_in_one_piece <= limit:
            _kept.put(key, made)


def forget() -> None:
    """Drop all programs that are kept."""
    _kept.clear()


def _new(shape: tuple[int, ...], dtype: str, device: int) -> tuple[Any, int]:
    """A new array for a result of floats on the current device, its elements undefined, and its address."""
    c = cp.empty(shape, stored_as(dtype))
    return c, c.data.ptr


def _new_numbers(shape: tuple[int, ...], dtype: str) -> MPArray:
    """A new array for a multiprecision result, its elements undefined."""
    bits = precision_of(dtype)
    limbs = cp.empty((limbs_of(bits), *shape), "I")
    return MPArray(cp.empty(shape, "b"), cp.empty(shape, "q"), limbs, bits)


def _given(x: Any, kind: Kind | None = None) -> Given | None:
    """An argument as programs are given it: a CuPy array, or one of `kind`; numbers in CuPy arrays; a prepared operand.

    None of anything else. Where slices of a prepared operand lie follows from its plan and the view of its rows.
    """
    if type(x) is Prepared:
        if type(x.slices) is not PreparedSlices:
            return None
        device, rows, addresses = x.slices.given
        return device, (x.side, x.plan, x.shape, rows), addresses
    if kind is not None:
        return kind.given(x)
    if type(x) is cp.ndarray:
        dtype, data = x.dtype, x.data
        if dtype.itemsize == 1:  # of 8-bit floats `matmul` takes bfloat16 copies
            return None
        char = dtype.char
        return data.device_id, (_HALVES.get(char, char), x.shape, x.strides), (data.ptr,)
    if type(x) is HalfArray:
        if type(x.bits) is not cp.ndarray:
            return None
        data = x.bits.data
        return data.device_id, (x.format, x.bits.shape, x.bits.strides), (data.ptr,)
    if isinstance(x, Numbers) and type(x.limbs) is cp.ndarray:
        planes = planes_of(x)
        views = [(of.data.device_id, of.dtype.char, of.shape, of.strides) for of in planes]
        return x.limbs.data.device_id, (x.bits, *views), tuple([of.data.ptr for of in planes])
    return None


_HALVES = {"e": "float16", "E": "bfloat16"}
"""Formats of 16 bits by the characters of dtypes of CuPy, the second one by ml_dtypes."""


def _are_transposes(a: Given, b: Given) -> bool:
    """Whether these, at the same addresses, are a matrix and its transpose: a program may multiply one triangle."""
    if len(a[2]) != 1:  # of one array each
        return False
    (*_, shape, steps), (*_, other, other_steps) = a[1], b[1]
    if not len(shape) == len(other) > 1:
        return False
    return (shape, steps) == tuple((*x[:-2], x[-1], x[-2]) for x in (other, other_steps))
