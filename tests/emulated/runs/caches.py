"""What is cached between calls on a device: programs with their runs, argument blocks and streams; all can be freed."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from unittest import mock

import cupy as cp
import numpy as np

import ozaki
import streams
from ozaki.backends.cupy import repeated
from ozaki.backends.cupy.program.program import MOST_IDLE, Program
from ozaki.backends.cupy.program.run import Run
from ozaki.backends.cupy.program.streams import _thread
from ozaki.records import progress as of_products
from runs.device import seen
from runs.operands import same

PROVEN: dict[str, Any] = {"accuracy": "fp64", "reproducible": True}


@contextmanager
def without_collector() -> Iterator[None]:
    """Within it nothing is freed but what nobody refers to."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def caches_cleared(rng: np.random.Generator) -> None:
    """All caches know what they hold, and hold nothing once they are cleared; results are the same before and after."""
    ozaki.clear_caches()
    a, b = rng.standard_normal((20, 1100)), rng.standard_normal((1100, 25))
    expected = ozaki.matmul(a, b, **PROVEN)
    many: dict[str, Any] = {"scheme": "residues", "slices": 60}
    of_many = ozaki.matmul(a[:3, :90], b[:90], **many)
    x, y = cp.asarray(a), cp.asarray(b)
    found: list[weakref.ref[Any]] = []
    for _ in range(2):
        with seen() as calls:
            for _ in range(3):
                same(expected, ozaki.matmul(x, y, **PROVEN))
                same(of_many, ozaki.matmul(x[:3, :90], y[:90], **many))
        assert calls.long > 0 < calls.repeated, calls
        assert all(each() is None for each in found), "after the caches were cleared, something of them was used"
        held = ozaki.cache_info()
        programs, blocks = held["programs"], held["backends.cupy.program.calls.idle_blocks"]
        assert (programs.entries, programs.size, programs.hits) == (2, 1024, calls.repeated), programs
        assert programs.pinned_bytes > 0 < programs.host_bytes, programs  # of proofs, of tables of many moduli
        assert blocks.entries > 0 and blocks.size == 4096
        assert held["side streams"].entries == 2
        kept = made()
        runs = [run for program in kept for run in program.idle]
        taken = [block.pieces for run in runs for _, block in run._taken]
        found = [weakref.ref(each) for each in (*kept, *runs, *_thread.streams.values())]
        found += [weakref.ref(each) for each in taken]
        assert runs and taken
        with without_collector():
            del kept, runs, taken
            ozaki.clear_caches()
            left = {name: cache.entries for name, cache in ozaki.cache_info().items() if cache.entries}
            assert left == {"side streams": 2}, left  # until the next product of this thread
            streams.drain_all()
            assert {type(each()) for each in found} <= {type(None), type(_thread.streams[0])}, found


def cleared_in_a_call(rng: np.random.Generator) -> None:
    """What a call uses when caches are cleared is freed when it ends, and not cached."""
    a, b = rng.standard_normal((20, 1100)), rng.standard_normal((1100, 25))
    x, y = cp.asarray(a), cp.asarray(b)
    expected, fact = ozaki.matmul(a, b, **PROVEN), Run.fact
    used: list[weakref.ref[Run]] = []

    def cleared(run: Run, need: Any) -> Any:
        used.append(weakref.ref(run))
        ozaki.clear_caches()
        return fact(run, need)

    with without_collector():
        for _ in range(3):
            same(expected, ozaki.matmul(x, y, **PROVEN))  # planned anew
            with mock.patch.object(Run, "fact", cleared):
                same(expected, ozaki.matmul(x, y, **PROVEN))
            assert used and all(each() is None for each in used)
            assert ozaki.cache_info()["programs"].entries == 0
    steps: list[int] = []

    def progress(done: int, of: int, unit: str) -> None:
        steps.append(done)
        ozaki.clear_caches()

    with mock.patch.object(of_products, "_INTERVAL", 0):
        for _ in range(2):
            same(expected, ozaki.matmul(x, y, progress=progress, **PROVEN))
    assert len(steps) > 5


def made() -> list[Program]:
    """The programs of calls that were repeated, in the order in which they were made."""
    return [kept.program for kept in repeated._kept.values() if isinstance(kept, repeated._Kept)]


def programs_dropped(rng: np.random.Generator) -> None:
    """Of more programs than are cached those go that were used longest ago, each with its runs."""
    given: dict[str, Any] = {"scheme": "residues", "slices": 5, "engine": "cublas"}
    pairs = [(rng.standard_normal((4 + i, 9)), rng.standard_normal((9, 3))) for i in range(4)]

    def planned(i: int) -> bool:
        """Multiply a pair; whether that was planned anew."""
        a, b = pairs[i]
        with seen() as calls:
            same(ozaki.matmul(a, b, scheme="residues", slices=5), ozaki.matmul(*map(cp.asarray, (a, b)), **given))
        return bool(calls.long)

    repeated.forget()
    with mock.patch.object(repeated._kept, "size", 3), without_collector():
        assert [planned(i) for i in (0, 1, 2, 0, 1, 2)] == [True] * 3 + [False] * 3
        assert not planned(0)
        programs = [*map(weakref.ref, made())]
        assert planned(3)  # in place of 1
        assert sorted(program() is None for program in programs) == [False, False, True]
        assert [planned(i) for i in (0, 2, 3, 1, 0)] == [False, False, False, True, True]
        assert ozaki.cache_info()["programs"].entries == 3
    repeated.forget()


def runs_of_threads(rng: np.random.Generator) -> None:
    """More threads than a program has idle runs for leave no more than these; streams end with their threads."""
    a, b = rng.standard_normal((20, 1100)), rng.standard_normal((1100, 25))
    x, y = cp.asarray(a), cp.asarray(b)
    expected = ozaki.matmul(a, b, **PROVEN)
    for _ in range(2):
        same(expected, ozaki.matmul(x, y, **PROVEN))
    (program,) = made()
    count = MOST_IDLE + 3

    def start(_: int) -> Any:
        c = cp.full((20, 25), np.nan)
        return program.run().start([x.data.ptr, y.data.ptr], lambda: (c, c.data.ptr))

    with ThreadPoolExecutor(1) as thread:
        runs = list(thread.map(start, range(count)))
        assert len({id(run) for run in runs}) == count
        assert ozaki.cache_info()["side streams"].entries == 4
        for _ in thread.map(Run.end, runs):
            pass
    del runs
    assert len(program.idle) == MOST_IDLE
    streams.drain_all()
    gc.collect()
    assert ozaki.cache_info()["side streams"].entries == 2
    pinned = sum(run.pinned_bytes for run in program.idle)
    assert ozaki.cache_info()["programs"].pinned_bytes == pinned > 0
