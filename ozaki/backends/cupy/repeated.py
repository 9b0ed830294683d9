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
from typing import Any

import cupy as cp

from ozaki.backends.cupy.inputs import Seed, planes_of
from ozaki.backends.cupy.products import Repetition
from ozaki.backends.cupy.program.program import Program
from ozaki.backends.cupy.program.steps import Gemm, Upload
from ozaki.backends.cupy.steps.gemm import FP64
from ozaki.backends.cupy.steps.native import native_obstacle
from ozaki.backends.cupy.steps.projection import VERIFIED
from ozaki.backends.cupy.work import Work
from ozaki.caches import Bytes, Cache, register
from ozaki.multiprecision.array import MPArray
from ozaki.multiprecision.limbs import limbs_of
from ozaki.multiprecision.numbers import Numbers
from ozaki.planning.facts import Facts, Need
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
    obstacle: str | None
    float64: bool
    multiprecision: bool
    misses: int
    verified: bool


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

    def made(self) -> _Kept:
        """The program of such calls."""
        program = self.repetition.program()
        needs = tuple(self.repetition.facts.needs)
        steps = program.steps if needs else ()
        float64 = any(isinstance(step, Gemm) and step.types == FP64 for step in steps)
        obstacle = self.obstacle if float64 else None
        numbers = is_multiprecision(self.dtype)
        plan_for, shape, dtype = self.plan_for, self.shape, self.dtype
        return _Kept(
            program,
            needs,
            plan_for,
            shape,
            dtype,
            obstacle,
            float64,
            numbers,
            self.misses,
            self.repetition.views.verified,
        )


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


def repeated(a: Any, b: Any, c: Any, out: Any, key: Hashable) -> tuple[Any, Chosen] | None:
    """Compute a product by a kept program, if there is one.

    Parameters
    ----------
    a, b, c, out : as given to `matmul`, not checked yet; c is the addend of `gemm` as a stack of matrices, or None
    key : all other arguments that the product depends on

    Returns
    -------
    The result, and the plan that it is by; or None if no program is kept for such a call, if its result does not stand,
    or if memory does not suffice for the whole program.
    """
    if not (ENABLED and _is_ours(a) and _is_ours(b)):
        return None
    if not ((c is None or type(c) is cp.ndarray) and (out is None or type(out) is cp.ndarray)):
        return None
    try:
        call = _call(a, b, c, out, key)
        kept = _kept.get(call)
    except TypeError:  # a key that cannot be hashed: `matmul` refuses them afterwards
        return None
    if kept is None:
        return None
    if isinstance(kept, _Missed):
        kept.rest -= 1
        return None
    if isinstance(kept, _Seen):
        kept = kept.made()
        _kept.put(call, kept)
    if kept.float64 and native_obstacle("float64") != kept.obstacle:  # a proof would rest on sums that are not exact
        _kept.drop(call)
        return None
    arrays = given_arrays(a) + given_arrays(b)
    if c is not None:
        arrays = *arrays, c
    if out is not None and any(cp.may_share_memory(out, x) for x in arrays):
        return None
    if kept.verified:
        arrays = *arrays, Seed()
    numbers = _new_numbers(kept.shape, kept.dtype) if kept.multiprecision else None
    if numbers is None:
        addresses = [x.data.ptr for x in arrays]
        stored = stored_as(kept.dtype)
        run = kept.program.run().start(addresses, lambda: cp.empty(kept.shape, stored) if out is None else out)
    else:
        *first, last = planes_of(numbers)
        run = kept.program.run().start([x.data.ptr for x in (*arrays, *first)], lambda: last)
    if run is None:
        _kept.drop(call)
        return None
    with run:  # ends when no stream but the main one uses its memory
        facts = Facts({need: run.fact(need) for need in kept.needs})
        wrong = run.fact(VERIFIED).wrong if kept.verified else 0
        chosen, result = kept.plan_for(facts), run.result if numbers is None else numbers
    if wrong and chosen is not None:
        warn(_WRONG, RuntimeWarning)
        return None
    if chosen is None:
        _kept.put(call, _Missed(kept.misses + 1, _REST if kept.misses + 1 >= _MOST_MISSES else 0))
        return None
    if kept.misses:
        _kept.put(call, replace(kept, misses=0))
    return result, chosen


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
    # A program for a matrix and its own transpose serves calls whose key says that the operands are so.
    if not ENABLED or (work.for_transposes and not _are_transposes(a, b)):
        return
    call = _call(a, b, c, out, key)
    missed = before if isinstance(before := _kept.peek(call), _Missed) else _Missed(0, 0)
    if missed.rest > 0:
        return
    repetition = work.repetition(facts)
    if repetition is not None:
        obstacle, limit = native_obstacle("float64"), work.memory.limit
        seen = _Seen(repetition, plan_for(), shape, dtype, obstacle, missed.misses)
        if limit is None:
            _kept.put(call, seen)
        elif (made := seen.made()).program.room.counted_in_one_piece <= limit:
            _kept.put(call, made)


def forget() -> None:
    """Drop all programs that are kept."""
    _kept.clear()


def _new_numbers(shape: tuple[int, ...], dtype: str) -> MPArray:
    """A new array for a multiprecision result, its elements undefined."""
    bits = precision_of(dtype)
    limbs = cp.empty((limbs_of(bits), *shape), "I")
    return MPArray(cp.empty(shape, "b"), cp.empty(shape, "q"), limbs, bits)


def _is_ours(x: Any) -> bool:
    """Whether x is a CuPy array, holds multiprecision numbers in some, or is prepared from one."""
    if type(x) is cp.ndarray:
        return True
    if isinstance(x, Prepared):
        return bool(x.backend.name == "cupy")
    return isinstance(x, Numbers) and type(x.limbs) is cp.ndarray


def given_arrays(operand: Any) -> tuple[Any, ...]:
    """The arrays that a program reads: the operand itself, its planes, or those of a prepared one."""
    if type(operand) is cp.ndarray:
        return (operand,)
    if isinstance(operand, Prepared):
        arrays: tuple[Any, ...] = operand.slices.arrays
        return arrays
    return planes_of(operand)


def _call(a: Any, b: Any, c: Any, out: Any, key: Hashable) -> Hashable:
    """All of a call that a program depends on: everything but elements and addresses."""
    more = None if c is None and out is None else (c is None or _view(c), out is None or _view(out))
    return key, cp.cuda.runtime.getDevice(), _are_transposes(a, b), _view(a), _view(b), more


def _are_transposes(a: Any, b: Any) -> bool:
    """Whether these are a matrix and its transpose, of which a program may multiply one triangle."""
    if type(a) is not cp.ndarray or type(b) is not cp.ndarray or a.data.ptr != b.data.ptr or a.ndim != b.ndim:
        return False
    return bool(a.ndim > 1 and (a.shape, a.strides) == tuple((*x[:-2], x[-1], x[-2]) for x in (b.shape, b.strides)))


def _view(x: Any) -> Hashable:
    """All of an operand that a program depends on."""
    if type(x) is cp.ndarray:
        return x.data.device_id, x.dtype.char, x.shape, x.strides
    if isinstance(x, Numbers):
        return x.bits, *map(_view, planes_of(x))
    return x.side, x.plan, x.shape, _view(x.slices.x)
