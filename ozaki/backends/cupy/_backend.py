"""CuPy: the run of a product.

Everything runs on the current device and stream, in memory of CuPy's pool; only what plans from data waits for the
device.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import cupy as cp

from ozaki._description import Described
from ozaki._plan import Plan
from ozaki.backends.cupy import _describe_split
from ozaki.backends.cupy import _split as splitting
from ozaki.backends.cupy._again import recorded as recorded
from ozaki.backends.cupy._axpby import axpby as axpby
from ozaki.backends.cupy._choice import engine_name as engine_name
from ozaki.backends.cupy._choice import engine_of, panel_of
from ozaki.backends.cupy._choice import fastest as fastest
from ozaki.backends.cupy._choice import same_slices as same_slices
from ozaki.backends.cupy._choice import seconds as seconds
from ozaki.backends.cupy._describe import describe as describe
from ozaki.backends.cupy._describe import describing_workspace as describing_workspace
from ozaki.backends.cupy._describe import look as look
from ozaki.backends.cupy._describe import read as read
from ozaki.backends.cupy._describe_split import Reading
from ozaki.backends.cupy._magnitudes import ahead as magnitudes_ahead
from ozaki.backends.cupy._native import native as native
from ozaki.backends.cupy._native import native_obstacle as native_obstacle
from ozaki.backends.cupy._nonfinite import patch
from ozaki.backends.cupy._proof import least_product as least_product
from ozaki.backends.cupy._proof import narrow_product as narrow_product
from ozaki.backends.cupy._proof import proof_workspace as proof_workspace
from ozaki.backends.cupy._proof import some_rows as some_rows
from ozaki.backends.cupy._proof import wide_product as wide_product
from ozaki.backends.cupy._proof import worst_ratios as worst_ratios
from ozaki.backends.cupy._split import Slices
from ozaki.backends.cupy._tops import tops
from ozaki.backends.cupy.engines import _hopper, _winograd, _word_split
from ozaki.backends.cupy.launching._host import Flag
from ozaki.backends.cupy.launching._launch import View
from ozaki.schemes import Residues, Words
from ozaki.schemes.formats import A100, H100, TensorCore

name = "cupy"
engines: tuple[str, ...] = ("cublas", "hopper")
waits = True
row_bytes = 0  # some 60, which are not counted


# Arrays -------------------------------------------------------------------------------------------------------------


def owns(x: Any) -> bool:
    return isinstance(x, cp.ndarray)


def asarray(x: Any) -> Any:
    return x if isinstance(x, cp.ndarray) else cp.asarray(x)


def empty(shape: tuple[int, ...], dtype: str) -> Any:
    return cp.empty(shape, dtype)


def contiguous(x: Any) -> bool:
    return bool(x.flags.c_contiguous)


def overlap(x: Any, y: Any) -> bool:
    return bool(cp.may_share_memory(x, y))


def check_device(operands: tuple[tuple[str, Any], ...]) -> None:
    """All operands lie on the current device."""
    current = cp.cuda.runtime.getDevice()
    for label, x in operands:
        array = x if isinstance(x, cp.ndarray) else x.slices.described.x
        device = array.data.device_id
        if device != current:
            raise ValueError(
                f"{label}: lies on device {device}, the current device is {current}; "
                f"move it, or enter cupy.cuda.Device({device})"
            )


# Splitting, multiplying, recombining ---------------------------------------------------------------------------------


def underflows(operand: Described, words: Words) -> int:
    """Elements that lose more than their share of bits; counted on the device, and waited for."""
    return _word_split.underflows(operand, words)


_CORES = {"80": A100, "86": A100, "87": A100, "89": A100, "90": H100}
"""By compute capability: the tensor cores whose sums are known."""


def core() -> TensorCore | None:
    """Those of the device."""
    return _CORES.get(cp.cuda.Device().compute_capability)


def words_obstacle(words: Words) -> str | None:
    """The device has no tensor cores that the words' bounds speak of."""
    here = core()
    if here is None:
        capability = cp.cuda.Device().compute_capability
        known = ", ".join(f"{c[:-1]}.{c[-1:]}" for c in _CORES)
        return (
            f"words have bounds for tensor cores of compute capability {known}, not {capability[:-1]}."
            f"{capability[-1:]}; use scheme='digits'"
        )
    if words.core != here:
        return (
            f"{words.name} speaks of the tensor cores of {words.core.name}, and those here add as those of "
            f"{here.name}; use dataclasses.replace(words, core=ozaki.tensor_core.{here.name})"
        )
    return None


def split(operand: Described, side: str, plan: Plan) -> Slices:
    """The slices of a whole operand."""
    assert plan.scheme is not None
    engine = engine_of(plan)
    layout = engine.layout(plan.scheme, side, *operand.x.shape)
    if isinstance(plan.scheme, Words):
        return _word_split.split(operand, plan.scheme, layout)
    if engine is _winograd:
        assert isinstance(plan.scheme, Residues)
        return _winograd.split(operand, side, plan.scheme)
    return splitting.split(operand, side, plan.scheme, layout)


def product(plan: Plan, x: Any, y: Any, out: Any) -> int:
    """Compute out = x y^T of rows that nothing is known of; returns the bytes of workspace."""
    sums = isinstance(plan.scheme, Residues)
    look = describe if sums else tops
    if panel_of(plan, engine_of(plan), out.shape) != out.shape[1:]:
        return execute(plan, look(x), look(y), out)
    read_left = _in_one_read(x, "left", plan, sums)
    read_right = _in_one_read(y, "right", plan, sums, beside=read_left is not None)
    left, right = (read and read() for read in (read_left, read_right))
    return execute(plan, left.begin() if left else look(x), right.begin() if right else look(y), out)


def split_in_one_read(plan: Plan, x: Any, y: Any) -> tuple[Slices, Slices] | None:
    """The slices of rows that nothing is known of, where each is faster in one read, with what a proof begins with.

    That are whole descriptions, and magnitudes where it asks for such.
    """
    read_left, read_right = _in_one_read(x, "left", plan, True), _in_one_read(y, "right", plan, True, beside=True)
    if read_left is None or read_right is None:
        return None
    ahead = magnitudes_ahead(x, y) if plan.target.measure == "componentwise" else None
    left, right = read_left(ahead=ahead), read_right(ahead=ahead)
    return left.begin(), right.begin()


def cut_in_one_read(plan: Plan, x: Any, y: Any) -> tuple[Slices, Slices, Callable[[], bool]] | None:
    """The words of rows likewise, with their largest elements, and whether an element loses part of itself."""
    read_left, read_right = _in_one_read(x, "left", plan, False), _in_one_read(y, "right", plan, False, beside=True)
    if read_left is None or read_right is None:
        return None
    lost = Flag()
    left, right = read_left(lost=lost), read_right(lost=lost)
    return left.begin(), right.begin(), lost.arriving()


def _in_one_read(x: Any, side: str, plan: Plan, sums: bool, beside: bool = False) -> Callable[..., Reading] | None:
    """What finds and cuts rows by one kernel, where that is faster than two; `beside`: right after another one."""
    assert plan.scheme is not None
    engine = engine_of(plan)
    layout = engine.layout(plan.scheme, side, *x.shape)
    if not _describe_split.fits(plan.scheme, layout, View.of(x), sums):
        return None
    if isinstance(plan.scheme, Words):
        return partial(_describe_split.find_and_split, x, plan.scheme, layout, beside=beside)
    if engine is not _hopper:
        return None
    return partial(_describe_split.describe_and_split, x, side, plan.scheme, layout, sums, beside=beside)


def execute(plan: Plan, left: Described | Slices, right: Described | Slices, out: Any) -> int:
    """Compute out, shape (batch, m, n); returns the bytes of workspace."""
    engine = engine_of(plan)
    _, m, n = out.shape
    assert plan.scheme is not None
    rows, cols = panel_of(plan, engine, out.shape)
    used = 0
    for c in range(0, n, cols):
        b = _take(right, "right", plan, c, min(c + cols, n))
        for r in range(0, m, rows):
            a = _take(left, "left", plan, r, min(r + rows, m))
            held = engine.multiply(plan.scheme, a, b, out[:, r : r + rows, c : c + cols])
            used = max(used, a.planes.nbytes + b.planes.nbytes + held)
    patch(left, right, out)
    return used


def _take(operand: Described | Slices, side: str, plan: Plan, first: int, last: int) -> Slices:
    """The slices of some rows."""
    if isinstance(operand, Slices):
        return operand.some_rows(first, last)
    if (first, last) == (0, operand.x.shape[1]):
        return split(operand, side, plan)
    return split(some_rows(operand, slice(None), slice(first, last)), side, plan)
