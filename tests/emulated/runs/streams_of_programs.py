"""The streams that programs use besides the current one, and threads that run programs at the same time."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier, get_ident
from typing import Any
from unittest import mock

import cupy as cp
import numpy as np

import ozaki
import streams
from ozaki.backends.cupy import repeated as kept
from runs.device import seen
from runs.operands import matrix, same

THREADS = 4


def at_once(function: Callable[[], Any]) -> list[Any]:
    """The results of a function in `THREADS` new threads that call it at the same time."""
    barrier = Barrier(THREADS)

    def begin(_: int) -> Any:
        barrier.wait()
        return function()

    with ThreadPoolExecutor(THREADS) as threads:
        return list(threads.map(begin, range(THREADS)))


def streams_of_threads(rng: np.random.Generator) -> None:
    """Each thread has two streams of its own for proofs, whatever it runs; programs without proofs use none."""
    a, b = rng.standard_normal((20, 1100)), rng.standard_normal((1100, 25))
    x, y = cp.asarray(a), cp.asarray(b)
    used: dict[int, set[int]] = defaultdict(set)
    record, wait_for = streams.record, streams.wait_for

    def recorded(event: int, stream: int) -> None:
        used[get_ident()].add(stream)
        record(event, stream)

    def waited(stream: int, event: int) -> None:
        used[get_ident()].add(stream)
        wait_for(stream, event)

    given: dict[str, Any] = {"scheme": "residues", "slices": 14}
    from_data: dict[str, Any] = {"accuracy": "fp64", "reproducible": True}
    for options, of_each in ((given, 0), (from_data, 2)):

        def multiply(options: Any = options) -> list[Any]:
            return [ozaki.matmul(x, y, **options) for _ in range(3)]

        expected = ozaki.matmul(a, b, **options)
        with mock.patch.multiple(cp.cuda.runtime, eventRecord=recorded, streamWaitEvent=waited):
            results = at_once(multiply)
        for c in itertools.chain(*results):
            same(expected, c)
        others = [sorted(found - {0}) for found in used.values()]
        assert len(others) == (THREADS if of_each else 0) and all(len(each) == of_each for each in others), others
        assert len({stream for each in others for stream in each}) == of_each * THREADS, others
        used.clear()
        kept.forget()


def threads_at_once(rng: np.random.Generator) -> None:
    """Threads that make the same calls run one program at the same time, or each its own, and get the right bits."""
    cases: list[tuple[Any, Any, dict[str, Any]]] = []
    kinds: tuple[tuple[str, dict[str, Any]], ...] = (
        ("f8", {"scheme": "residues", "slices": 14}),
        ("f8", {"scheme": "digits", "slices": 3}),
        ("f8", {"accuracy": "fp64", "reproducible": True}),
        ("f4", {"accuracy": ozaki.Accuracy("row-column", 1e-6), "reproducible": True}),
    )
    for dtype, options in kinds:
        cases += [(matrix(rng, (9, 300), dtype), matrix(rng, (300, 11), dtype), options) for _ in range(3)]
    expected = [ozaki.matmul(a, b, **options) for a, b, options in cases]
    on_device = [(cp.asarray(a), cp.asarray(b), options) for a, b, options in cases]

    def multiply() -> None:
        order = np.random.default_rng(get_ident()).permutation(2 * len(cases)) % len(cases)
        for i in order.tolist():
            a, b, options = on_device[i]
            same(expected[i], ozaki.matmul(a, b, **options))

    with seen() as calls:
        at_once(multiply)
        assert calls.repeated > 0
        at_once(multiply)  # by programs that threads which have ended have built
    for a, b, options in on_device:
        ozaki.matmul(a, b, **options)
    with seen() as calls:
        for c, (a, b, options) in zip(expected[::3], on_device[::3], strict=True):
            ozaki.matmul(a, b, **options)
            for each in at_once(partial(ozaki.matmul, a, b, **options)):
                same(c, each)
    assert calls.long <= len(cases) // 3 and calls.repeated > 0
