"""CuPy: the choice of an engine for the slice products, and the run of a product.

Everything runs on the current device and stream, in memory of CuPy's pool; only what plans from data waits for the
device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from itertools import chain
from itertools import product as pairs_of
from math import ceil, prod
from typing import Any

import cupy as cp

from ozaki._description import Described
from ozaki._plan import Plan
from ozaki.backends import (
    Way,
    _cublas,
    _cublas_fp16,
    _describe_split,
    _hopper,
    _winograd,
    _word_hopper,
    _word_mma,
    _word_pairs,
    _word_split,
)
from ozaki.backends import _split as splitting
from ozaki.backends._axpby import axpby as axpby
from ozaki.backends._cupy_describe import describe as describe
from ozaki.backends._cupy_describe import read as read
from ozaki.backends._cupy_describe import read_least as read_least
from ozaki.backends._cupy_native import native as native
from ozaki.backends._cupy_native import native_obstacle as native_obstacle
from ozaki.backends._cupy_proof import narrow_product as narrow_product
from ozaki.backends._cupy_proof import wide_product as wide_product
from ozaki.backends._cupy_proof import worst_ratios as worst_ratios
from ozaki.backends._describe_split import Reading
from ozaki.backends._hopper_tiles import FROM
from ozaki.backends._jit import architecture
from ozaki.backends._launch import Launch, Macros, View, round_up
from ozaki.backends._magnitudes import ahead as magnitudes_ahead
from ozaki.backends._rates import rates_of
from ozaki.backends._split import Engine, Slices
from ozaki.backends._tape import Tape
from ozaki.backends._tops import tops
from ozaki.schemes import Digits, Residues, Scheme, Words
from ozaki.schemes.formats import A100, H100, TensorCore

name = "cupy"
engines: tuple[str, ...] = ("cublas", "hopper")
waits = True


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


def _engine_of(plan: Plan) -> Engine:
    assert plan.scheme is not None
    if isinstance(plan.scheme, Words):
        return _word_engine(plan.scheme, (prod(plan.batch), *plan.shape))
    (m, k, n), batch, limit = plan.shape, prod(plan.batch), plan.workspace_limit
    engine = _engine(plan.scheme, plan.engine, batch, plan.shape)
    if _in_quadrants(engine, plan.scheme, batch, plan.shape) and (
        limit is None or limit >= _workspace(_winograd, plan.scheme, k, batch, m, n)
    ):
        return _winograd
    if limit is not None and engine is _hopper and plan.engine == "auto":
        # Panels do not shrink what digits keep aside, and those of cuBLAS may be smaller.
        least = _workspace(engine, plan.scheme, k, batch, *_units(engine, plan.scheme, k))
        return engine if limit >= 2 * least else _cublas
    return engine


def _in_quadrants(engine: Engine, scheme: Scheme, batch: int, shape: tuple[int, int, int]) -> bool:
    """Whether Strassen-Winograd takes less than that engine alone."""
    return engine is _hopper and batch == 1 and _winograd.fits(scheme, shape)


def _engine(scheme: Scheme, asked: str, batch: int, shape: tuple[int, int, int]) -> Engine:
    """The engine that is asked for, or the fastest here."""
    if isinstance(scheme, Digits) and scheme.word == "fp16":
        return _cublas_fp16
    if asked == "cublas":
        return _cublas
    fits = architecture(cp.cuda.runtime.getDevice()) == "sm_90a" and _hopper.fits(scheme, shape[1])
    if asked == "hopper" and not fits:
        raise ValueError(
            "engine: 'hopper' multiplies residues, or up to 7 digits with moderate k, on devices of compute capability "
            "9.0; use scheme='residues' there, or engine='auto'"
        )
    faster = asked == "hopper" or (fits and _hopper_is_faster(cp.cuda.runtime.getDevice(), scheme, batch, shape))
    return _hopper if faster else _cublas


@lru_cache(maxsize=1024)
def _hopper_is_faster(device: int, scheme: Scheme, batch: int, shape: tuple[int, int, int]) -> bool:
    """Its tiles are not mostly padding; or that costs less than products by cuBLAS, for a batch one after the other."""
    m, k, n = shape
    if min(m, n) >= FROM:
        return True
    if batch == 1 and isinstance(scheme, Residues) and m * n < _FEW_ENTRIES and k > _SHORT:
        return False
    padded, plain = (_workspace(engine, scheme, k, batch, m, n) for engine in (_hopper, _cublas))
    return padded <= max(_MOST_PADDED, plain)


_FEW_ENTRIES, _SHORT = 2**15, 2**13
"""Of a result, which cuBLAS multiplies faster, by smaller tiles, where k is longer than that."""

_MOST_PADDED = 2**33
"""Bytes that small or narrow matrices may take when they are padded to whole tiles; more, if cuBLAS takes as much."""


def _workspace(engine: Engine, scheme: Scheme | Words, k: int, batch: int, rows: int, cols: int) -> int:
    """Bytes of slices and of what an engine holds beside them for a product of that size."""
    slices = sum(engine.layout(scheme, side, batch, x, k).size for side, x in (("left", rows), ("right", cols)))
    return int(slices + engine.workspace(scheme, batch, rows, cols, k))


def _units(engine: Engine, scheme: Scheme | Words, k: int) -> tuple[int, int]:
    """Rows and columns of the smallest panel."""
    rows, cols = (engine.layout(scheme, side, 1, 1, k).unit for side in ("left", "right"))
    return rows, cols


def _word_engine(words: Words, sizes: tuple[int, int, int, int]) -> Engine:
    """For products of so many batches, m, k, n."""
    on_hopper = architecture(cp.cuda.runtime.getDevice()) == "sm_90a"
    if on_hopper and _word_hopper.fits(words):
        return _word_hopper.Engine.of(words, *sizes)
    if on_hopper and _word_pairs.fits(words):
        return _word_pairs.Engine.of(words, *sizes)
    return _word_mma.Engine.of(words, *sizes)


def underflows(operand: Described, words: Words) -> int:
    """Elements that lose more than their share of bits; counted on the device, and waited for."""
    if not operand.on_host.below(words.floor - words.ceiling).any():
        return 0
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
    engine = _engine_of(plan)
    layout = engine.layout(plan.scheme, side, *operand.x.shape)
    if isinstance(plan.scheme, Words):
        return _word_split.split(operand, plan.scheme, layout)
    if engine is _winograd:
        assert isinstance(plan.scheme, Residues)
        return _winograd.split(operand, side, plan.scheme)
    return splitting.split(operand, side, plan.scheme, layout)


def same_slices(plan: Plan, other: Plan) -> bool:
    """A batch or a limit of workspace may ask for another engine."""
    return bool(_engine_of(plan) == _engine_of(other))


def product(plan: Plan, x: Any, y: Any, out: Any) -> int:
    """Compute out = x y^T of rows that nothing is known of; returns the bytes of workspace."""
    sums = isinstance(plan.scheme, Residues)
    look = describe if sums else tops
    if _panel_of(plan, _engine_of(plan), out.shape) != out.shape[1:]:
        return execute(plan, look(x), look(y), out)
    read_left = _in_one_read(x, "left", plan, sums)
    read_right = _in_one_read(y, "right", plan, sums, beside=read_left is not None)
    left, right = (read and read() for read in (read_left, read_right))
    return execute(plan, left.begin() if left else look(x), right.begin() if right else look(y), out)


def split_in_one_read(plan: Plan, x: Any, y: Any) -> tuple[Slices, Slices] | None:
    """The slices of rows that nothing is known of, where each is faster in one read, with what a proof begins with.

    That are whole descriptions, and magnitudes where it asks for such; of words, the largest elements.
    """
    read_left, read_right = _in_one_read(x, "left", plan, True), _in_one_read(y, "right", plan, True, beside=True)
    if read_left is None or read_right is None:
        return None
    more = {}
    if not isinstance(plan.scheme, Words):
        more["ahead"] = magnitudes_ahead(x, y) if plan.target.measure == "componentwise" else None
    left, right = read_left(**more), read_right(**more)
    return left.begin(), right.begin()


def _in_one_read(x: Any, side: str, plan: Plan, sums: bool, beside: bool = False) -> Callable[..., Reading] | None:
    """What finds and cuts rows by one kernel, where that is faster than two; `beside`: right after another one."""
    assert plan.scheme is not None
    engine = _engine_of(plan)
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
    engine = _engine_of(plan)
    _, m, n = out.shape
    assert plan.scheme is not None
    rows, cols = _panel_of(plan, engine, out.shape)
    used = 0
    for c in range(0, n, cols):
        b = _take(right, "right", plan, c, min(c + cols, n))
        for r in range(0, m, rows):
            a = _take(left, "left", plan, r, min(r + rows, m))
            held = engine.multiply(plan.scheme, a, b, out[:, r : r + rows, c : c + cols])
            used = max(used, a.planes.nbytes + b.planes.nbytes + held)
    _patch(left, right, out)
    return used


def _take(operand: Described | Slices, side: str, plan: Plan, first: int, last: int) -> Slices:
    """The slices of some rows."""
    if isinstance(operand, Slices):
        return operand.some_rows(first, last)
    if (first, last) == (0, operand.x.shape[1]):
        return split(operand, side, plan)
    Tape.misses()
    fields = cp.ascontiguousarray(operand.fields[:, :, first:last])
    return split(replace(operand, x=operand.x[:, first:last], fields=fields, ahead=None), side, plan)


def _patch(left: Described | Slices, right: Described | Slices, out: Any) -> None:
    """What IEEE arithmetic gives in rows and columns with NaN or Inf (docs/design.md, section 8)."""
    a, b = (x.described if isinstance(x, Slices) else x for x in (left, right))
    views = View.of(a.x), View.of(b.x), View.of(out)
    arrays = (a.x, b.x, a.fields, b.fields, out)
    _patching(cp.cuda.runtime.getDevice(), *views)(*(x.data for x in arrays))


@lru_cache(maxsize=1024)
def _patching(device: int, a: View, b: View, out: View) -> Launch:
    batch, m, n = out.shape
    macros: Macros = {"INPUT_A": a.ctype, "INPUT_B": b.ctype, "OUTPUT": out.ctype}
    grid = (batch * ceil(m / _PATCH[0]) * ceil(n / _PATCH[1]),)
    steps = ((0 if view.shape[0] == 1 else view.steps[0], *view.steps[1:]) for view in (a, b, out))
    sizes = a.shape[0], b.shape[0], m, n, a.shape[2]
    return Launch("nonfinite.cu", "patch", macros, grid, (256,), *[None] * 5, *chain(*steps), *sizes)


_PATCH = (128, 2048)
"""Rows and columns that a block looks after, as in kernels/nonfinite.cu."""


def _panel_of(plan: Plan, engine: Engine, shape: tuple[int, int, int]) -> tuple[int, int]:
    """Rows and columns of a product of that shape (batch, m, n) that are computed at a time."""
    assert plan.scheme is not None
    device = cp.cuda.runtime.getDevice()
    return _panel(device, engine, plan.scheme, plan.shape[1], *shape, plan.workspace_limit)


@lru_cache(maxsize=1024, typed=True)
def _panel(
    device: int, engine: Engine, scheme: Scheme | Words, k: int, batch: int, m: int, n: int, limit: int | None
) -> tuple[int, int]:
    """Rows and columns computed at a time, within the caller's limit."""

    def workspace(rows: int, cols: int) -> int:
        """Of whatever panel takes most: the last ones are smaller, but may be multiplied in more parts of k."""
        sizes = pairs_of({rows, m % rows or rows}, {cols, n % cols or cols})
        return max(_workspace(engine, scheme, k, batch, *size) for size in sizes)

    rows, cols = m, n
    units = _units(engine, scheme, k)
    while limit is not None and workspace(rows, cols) > limit:
        if rows <= units[0] and cols <= units[1]:
            raise ValueError(
                f"workspace_limit: leaves {limit} bytes for slices, which need at least {workspace(rows, cols)}"
            )
        if rows > units[0] and (rows >= cols or cols <= units[1]):
            rows = round_up(-(-rows // 2), units[0])
        else:
            cols = round_up(-(-cols // 2), units[1])
    return rows, cols


def engine_name(plan: Plan) -> str:
    device = cp.cuda.runtime.getDeviceProperties(cp.cuda.runtime.getDevice())["name"].decode()
    return device if plan.scheme is None else f"{device}, {_engine_of(plan).label}"


def fastest(stack: tuple[int, int, int], k: int, dtype: str, ways: tuple[Way, ...]) -> Way:
    """What takes least of the native product (None), slices as of a scheme, and words."""
    if 0 in (*stack, k):
        return None if None in ways else ways[0]
    return _fastest(cp.cuda.runtime.getDevice(), stack, k, dtype, ways)


@lru_cache(maxsize=1024)
def _fastest(device: int, stack: tuple[int, int, int], k: int, dtype: str, ways: tuple[Way, ...]) -> Way:
    batch, m, n = stack
    rates = rates_of(cp.cuda.Device().compute_capability)
    times: dict[Way, float] = {}
    for way in ways:
        if way is None:
            times[way] = rates.native(batch, m, k, n, dtype)
        elif isinstance(way, Scheme):
            engine = _engine(way, "auto", batch, (m, k, n))
            if engine is _hopper:
                entries = _hopper.occupied(way, batch, m, k, n)
            else:
                layouts = (engine.layout(way, side, 1, x, k) for side, x in (("left", m), ("right", n)))
                entries = batch * prod(layout.rows for layout in layouts)
            done = _winograd.DONE if _in_quadrants(engine, way, batch, (m, k, n)) else 1.0
            times[way] = rates.slices(batch, m, k, n, dtype, way, entries, engine is _hopper, done)
        elif architecture(device) == "sm_90a" and _word_hopper.fits(way):
            entries = _word_hopper.Engine.of(way, batch, m, k, n).occupied(batch, m, n)
            times[way] = rates.words(batch, m, k, n, way, entries)
    return min(times, key=lambda way: times[way])
