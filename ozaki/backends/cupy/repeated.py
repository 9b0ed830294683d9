"""Repeated calls: the program of a product is kept, and run at once for other operands of the same views.

What the host does to plan a small product and to build its program takes longer than the kernels. So a call whose views
and choices were seen before starts the kept program before anything is known of its operands. The program finds the
same facts beside the product; if the choice of a plan, asked with these, answers the same, the result stands. If not,
the call goes the long way. No bits depend on that.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import cupy as cp

from ozaki._prepared import Prepared
from ozaki.backends.cupy.program.program import Program
from ozaki.backends.cupy.program.run import Run
from ozaki.backends.cupy.program.steps import Gemm
from ozaki.backends.cupy.steps.gemm import FP64
from ozaki.backends.cupy.steps.native import native_obstacle
from ozaki.backends.cupy.work import Work
from ozaki.planning.facts import Facts, MissingFact, Need

ENABLED = True
"""Whether programs are kept and run for repeated calls. Tests turn it off."""


class _Kept(NamedTuple):
    """A program, and what its result is.

    Attributes
    ----------
    stands : whether the result is right for operands with these facts
    shape, dtype : of the result
    float64 : whether cuBLAS multiplies float64 in it, as proofs of wide magnitudes do
    obstacle : why cuBLAS might have emulated that when the program was built, if it is so
    """

    program: Program
    stands: Callable[[Facts], bool]
    shape: tuple[int, ...]
    dtype: str
    float64: bool
    obstacle: str | None


_kept: dict[Hashable, _Kept] = {}

_MOST = 1024
"""Programs that are kept; when there are so many, all are forgotten."""


class _FactsOfRun(Facts):
    """The facts that a run of a program brings to the host; asking for one waits for it."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self._run = run

    def __getitem__(self, need: Need) -> Any:
        try:
            return self._run.fact(need)
        except KeyError:
            raise MissingFact(need) from None


def repeated(a: Any, b: Any, out: Any, choices: Hashable) -> Any:
    """The product of operands by a program that is kept.

    Parameters
    ----------
    a, b, out, choices : as they were given to `matmul`, not checked; `choices` has all else that a call depends on

    Returns
    -------
    The result, or None if no program is kept for such a call, it does not stand, or there is not enough memory to run
    all of it at once.
    """
    if not ENABLED or not _is_ours(a) or not _is_ours(b) or not (out is None or type(out) is cp.ndarray):
        return None
    try:
        key = _key(a, b, out, choices)
        kept = _kept.get(key)
    except TypeError:  # choices that make no sense are refused elsewhere
        return None
    if kept is None:
        return None
    if kept.float64 and native_obstacle("float64") != kept.obstacle:  # a proof would rest on sums that are not exact
        _kept.pop(key, None)
        return None
    arrays = *given_arrays(a), *given_arrays(b)
    if out is not None and any(cp.may_share_memory(out, x) for x in arrays):
        return None
    run = kept.program.start(arrays, lambda: cp.empty(kept.shape, kept.dtype) if out is None else out)
    if run is None:
        _kept.pop(key, None)
        return None
    with run:  # until the streams beside the main one are through with its memory
        stands, c = kept.stands(_FactsOfRun(run)), run.result
    if stands:
        return c
    _kept.pop(key, None)
    return None


def keep(
    a: Any,
    b: Any,
    out: Any,
    choices: Hashable,
    work: Work,
    facts: Facts,
    stands: Callable[[Facts], bool],
    shape: tuple[int, ...],
    dtype: str,
) -> None:
    """Keep the program of a product that was computed, for calls like it (`backends.Backend.keep`)."""
    program = work.whole(facts) if ENABLED else None
    if program is not None:
        if len(_kept) >= _MOST:
            _kept.clear()
        float64 = bool(facts) and any(isinstance(step, Gemm) and step.types == FP64 for step in program.steps)
        obstacle = native_obstacle("float64") if float64 else None
        _kept[_key(a, b, out, choices)] = _Kept(program, stands, shape, dtype, float64, obstacle)


def forget() -> None:
    """Keep nothing of the calls so far."""
    _kept.clear()


def _is_ours(x: Any) -> bool:
    return type(x) is cp.ndarray or (isinstance(x, Prepared) and x.backend.name == "cupy")


def given_arrays(operand: Any) -> tuple[Any, ...]:
    """What a program reads of an operand: an array, or those of a prepared one."""
    return operand.slices.arrays if isinstance(operand, Prepared) else (operand,)


def _key(a: Any, b: Any, out: Any, choices: Hashable) -> Hashable:
    """All that a program depends on: everything about a call but elements and addresses."""
    return choices, cp.cuda.runtime.getDevice(), _view(a), _view(b), None if out is None else _view(out)


def _view(x: Any) -> Hashable:
    if type(x) is cp.ndarray:
        return x.data.device_id, x.dtype.char, x.shape, x.strides
    return x.side, x.plan, x.shape, _view(x.slices.x)
