"""The engines of a GPU: which one multiplies the slices of a plan, in which panels, and what is fastest there."""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from math import inf, prod
from typing import Any, Protocol

import cupy as cp

from ozaki._plan import Plan
from ozaki._workspace import too_few_bytes
from ozaki.backends import Way
from ozaki.backends.cupy._rates import rates_of
from ozaki.backends.cupy._split import Layout, Slices
from ozaki.backends.cupy.engines import _cublas, _cublas_fp16, _hopper, _winograd, _word_hopper, _word_mma, _word_pairs
from ozaki.backends.cupy.engines._hopper_tiles import FROM
from ozaki.backends.cupy.launching._jit import architecture
from ozaki.backends.cupy.launching._launch import round_up
from ozaki.schemes import Digits, Residues, Scheme, Words


class Engine(Protocol):
    """What multiplies slices, and how it wants them to lie: a module, or an instance for one shape of tiles."""

    @property
    def label(self) -> str: ...
    def __hash__(self) -> int: ...
    def layout(self, scheme: Any, side: str, batch: int, rows: int, k: int) -> Layout: ...
    def workspace(self, scheme: Any, batch: int, rows: int, cols: int, k: int) -> int: ...
    def multiply(self, scheme: Any, a: Slices, b: Slices, out: Any) -> int: ...


def engine_of(plan: Plan) -> Engine:
    assert plan.scheme is not None
    if isinstance(plan.scheme, Words):
        return word_engine(plan.scheme, (prod(plan.batch), *plan.shape))
    (m, k, n), batch, limit = plan.shape, prod(plan.batch), plan.workspace_limit
    engine = _engine(plan.scheme, plan.engine, batch, plan.shape)
    if _in_quadrants(engine, plan.scheme, batch, plan.shape) and (
        limit is None or limit >= workspace_of(_winograd, plan.scheme, k, batch, m, n)
    ):
        return _winograd
    if limit is not None and engine is _hopper and plan.engine == "auto":
        # Panels do not shrink what digits keep aside, and those of cuBLAS may be smaller.
        least = workspace_of(engine, plan.scheme, k, batch, *units_of(engine, plan.scheme, k))
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
    padded, plain = (workspace_of(engine, scheme, k, batch, m, n) for engine in (_hopper, _cublas))
    return padded <= max(_MOST_PADDED, plain)


_FEW_ENTRIES, _SHORT = 2**15, 2**13
"""Of a result, which cuBLAS multiplies faster, by smaller tiles, where k is longer than that."""

_MOST_PADDED = 2**34
"""Bytes that small or narrow matrices may take when they are padded to whole tiles; more, if cuBLAS takes as much."""


def workspace_of(engine: Engine, scheme: Scheme | Words, k: int, batch: int, rows: int, cols: int) -> int:
    """Bytes of slices and of what an engine holds beside them for a product of that size."""
    slices = sum(engine.layout(scheme, side, batch, x, k).size for side, x in (("left", rows), ("right", cols)))
    return int(slices + engine.workspace(scheme, batch, rows, cols, k))


def units_of(engine: Engine, scheme: Scheme | Words, k: int) -> tuple[int, int]:
    """Rows and columns of the smallest panel."""
    rows, cols = (engine.layout(scheme, side, 1, 1, k).unit for side in ("left", "right"))
    return rows, cols


def word_engine(words: Words, sizes: tuple[int, int, int, int]) -> Engine:
    """For products of so many batches, m, k, n."""
    on_hopper = architecture(cp.cuda.runtime.getDevice()) == "sm_90a"
    if on_hopper and _word_hopper.fits(words):
        return _word_hopper.Engine.of(words, *sizes)
    if on_hopper and _word_pairs.fits(words):
        return _word_pairs.Engine.of(words, *sizes)
    return _word_mma.Engine.of(words, *sizes)


def same_slices(plan: Plan, other: Plan) -> bool:
    """A batch or a limit of workspace may ask for another engine."""
    return bool(engine_of(plan) == engine_of(other))


def panel_of(plan: Plan, engine: Engine, shape: tuple[int, int, int]) -> tuple[int, int]:
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
        sizes = product({rows, m % rows or rows}, {cols, n % cols or cols})
        return max(workspace_of(engine, scheme, k, batch, *size) for size in sizes)

    rows, cols = m, n
    units = units_of(engine, scheme, k)
    while limit is not None and workspace(rows, cols) > limit:
        if rows <= units[0] and cols <= units[1]:
            too_few_bytes(limit, workspace(rows, cols))
        if rows > units[0] and (rows >= cols or cols <= units[1]):
            rows = round_up(-(-rows // 2), units[0])
        else:
            cols = round_up(-(-cols // 2), units[1])
    return rows, cols


def engine_name(plan: Plan) -> str:
    device = cp.cuda.runtime.getDeviceProperties(cp.cuda.runtime.getDevice())["name"].decode()
    return device if plan.scheme is None else f"{device}, {engine_of(plan).label}"


def fastest(stack: tuple[int, int, int], k: int, dtype: str, ways: tuple[Way, ...]) -> Way:
    """What takes least of the native product (None), slices as of a scheme, and words."""
    if 0 in (*stack, k):
        return None if None in ways else ways[0]
    return _fastest(cp.cuda.runtime.getDevice(), stack, k, dtype, ways)


@lru_cache(maxsize=1024)
def _fastest(device: int, stack: tuple[int, int, int], k: int, dtype: str, ways: tuple[Way, ...]) -> Way:
    times = {way: _seconds(device, stack, k, dtype, way) for way in ways}
    return min(times, key=lambda way: inf if (time := times[way]) is None else time)


def seconds(stack: tuple[int, int, int], k: int, dtype: str, way: Way) -> float | None:
    """How long a product (batch, m, n) is expected to take in that way; None for words of other kernels."""
    return None if 0 in (*stack, k) else _seconds(cp.cuda.runtime.getDevice(), stack, k, dtype, way)


def _seconds(device: int, stack: tuple[int, int, int], k: int, dtype: str, way: Way) -> float | None:
    batch, m, n = stack
    here = cp.cuda.Device()
    rates = rates_of(here.compute_capability, here.attributes)
    if way is None:
        return rates.native(batch, m, k, n, dtype)
    if isinstance(way, Scheme):
        engine = _engine(way, "auto", batch, (m, k, n))
        if engine is _hopper:
            entries = _hopper.occupied(way, batch, m, k, n)
        else:
            layouts = (engine.layout(way, side, 1, x, k) for side, x in (("left", m), ("right", n)))
            entries = batch * prod(layout.rows for layout in layouts)
        done = _winograd.DONE if _in_quadrants(engine, way, batch, (m, k, n)) else 1.0
        return rates.slices(batch, m, k, n, dtype, way, entries, engine is _hopper, done)
    if architecture(device) == "sm_90a" and _word_hopper.fits(way):
        entries = _word_hopper.Engine.of(way, batch, m, k, n).occupied(batch, m, n)
        return rates.words(batch, m, k, n, way, entries)
    return None
