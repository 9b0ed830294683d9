"""Programs of products: run once part by part, then as a whole with other operands of the same shapes and strides."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from typing import Any
from unittest import mock

import cupy as cp
import numpy as np

import ozaki
import streams
from ozaki.backends.combining import addend_into
from ozaki.backends.combining import axpby as axpby_on_numpy
from ozaki.backends.cupy import devices
from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.prepared import PreparedSlices
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.program import Program
from ozaki.backends.cupy.program.run import Run
from ozaki.backends.cupy.steps import axpby as end_of_product
from ozaki.backends.cupy.steps.proof import panels_of
from ozaki.backends.cupy.work import Work
from ozaki.backends.numpy import backend as on_numpy
from ozaki.bounds import words as word_bounds
from ozaki.multiprecision.scalars import dyadic
from ozaki.planning.facts import (
    CutBound,
    LeastProduct,
    NativeInRange,
    Need,
    RowsBound,
    Sample,
    Spans,
    WorstRatio,
)
from ozaki.records.accuracy import Accuracy
from ozaki.records.combination import ONE, Combination, Factor
from ozaki.records.memory import Memory
from ozaki.records.plan import Plan
from ozaki.schemes import PRESETS, Digits, Residues, Scheme, Words
from runs.device import Part
from runs.operands import matrix, same

Pair = tuple[np.ndarray, np.ndarray]


def on_hopper() -> bool:
    return devices.current().capability == "90"


def plan_of(scheme: Scheme | Words, a: np.ndarray, b: np.ndarray, **choices: Any) -> Plan:
    """A plan for rows (batch, m, k) and (batch, n, k), with no bound."""
    batch = max(len(a), len(b))
    shape = a.shape[1], a.shape[2], b.shape[1]
    dtype = str(max(a.dtype.name, b.dtype.name))
    target = Accuracy("componentwise", 1e-10)
    return Plan(shape, (batch,), dtype, scheme, target, inf, inf, True, **choices)


def expected(scheme: Scheme | Words, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The product of rows by NumPy."""
    with np.errstate(all="ignore"):
        c: np.ndarray = ozaki.matmul(a, b.swapaxes(1, 2), **named(scheme))
    return c


def named(scheme: Scheme | Words) -> dict[str, Any]:
    """The options of `ozaki.matmul` that ask for a scheme."""
    if isinstance(scheme, Words):
        return {"scheme": scheme}
    name = "fp16-digits" if scheme.name.startswith("fp16-digits") else scheme.name
    return {"scheme": name, "slices": scheme.count}


def on_device(x: np.ndarray) -> Any:
    """A copy of x on the device, with the same strides."""
    return cp.asarray(x)


def filled(shape: tuple[int, ...], dtype: str) -> Any:
    return cp.full(shape, np.nan, dtype)


def work_on(pair: Pair, limit: int | None = None) -> Work:
    """The CuPy backend's `Work` for the product of these rows."""
    left, right = map(on_device, pair)
    return work_of(left, right, dtype_of(*pair), limit)


def work_of(left: Any, right: Any, dtype: str, limit: int | None = None) -> Work:
    """The `Work` for rows that are on the device, or for the slices of a prepared operand."""
    rows = {"left": left, "right": right}
    given = right if isinstance(right, PreparedSlices) else right.swapaxes(1, 2)
    return Work(left, given, rows.__getitem__, dtype, Memory(limit))


def whole_of(work: Work) -> Program | None:
    """The program of all that was done so far, made anew, as a repeated call runs it."""
    repetition = work.repetition()
    return None if repetition is None else repetition.program()


def started(program: Program, arrays: Iterable[Any], c: Any) -> Run | None:
    """A run of a program with these operands, into c; it holds them."""
    held = [*arrays]
    run = program.run().start([x.data.ptr for x in held], lambda: (c, c.data.ptr))
    if run is not None:
        run.held = held  # type: ignore[attr-defined]
    return run


@contextmanager
def ended(run: Run) -> Iterator[None]:
    """End a run with a `with` statement."""
    try:
        yield
    finally:
        run.end()


def run_whole(program: Program, arrays: Iterable[Any], c: Any) -> None:
    """Run a whole program with these operands, into c."""
    run = started(program, arrays, c)
    assert run is not None
    with ended(run):
        assert run.result is c


def facts_of(a: np.ndarray, b: np.ndarray, need: Need) -> Any:
    """The fact that NumPy finds; dropped pairs of digits count as the need says, even if they vanish for these rows."""
    rows = {"left": a, "right": b}
    work = on_numpy.work(a, b.swapaxes(1, 2), rows.__getitem__, dtype_of(a, b), Memory(None))
    if not isinstance(need, WorstRatio) or not isinstance(need.scheme, Digits):
        return work.measure(need)
    dropped = a.shape[2] * need.scheme.drop if need.drops else 0.0
    with mock.patch.object(Digits, "dropped", return_value=dropped):
        return work.measure(need)


def dtype_of(a: Any, b: Any) -> str:
    """The dtype of the product."""
    return str(max(a.dtype.name, b.dtype.name))


def compare(need: Need, a: np.ndarray, b: np.ndarray, found: Any) -> None:
    with np.errstate(all="ignore"):
        wanted = facts_of(a, b, need)
    assert found == wanted, (need, found, wanted)


def operands_for_facts(rng: np.random.Generator, kind: str, m: int, k: int, n: int, dtype: str) -> Pair:
    a, b = matrix(rng, (1, m, k), dtype), matrix(rng, (1, n, k), dtype)
    if kind == "hard":
        a[0, 3], b[0, 5, 7], a[0, 9, 1] = 0, np.nan, np.inf
        a[0, : m // 2, : k // 2] = 0
        b[0, : n // 3, k // 2 :] = 0
    return a, b


def facts(rng: np.random.Generator) -> None:
    """All facts are those of NumPy: measured one after the other, and by the whole program for other operands."""
    core = devices.current().family.core
    assert core is not None
    halfhalf = replace(PRESETS["halfhalf"], core=core)
    sizes = ((20, 1100, 25), (30, 200, 20))
    for m, k, n in ((20, 1100, 25), (260, 270, 257)) if on_hopper() else sizes:
        levels: list[Any] = ["sampled", "narrow", "wide"] if k > 1024 else ["narrow", "wide"]
        needs: list[Need] = [NativeInRange(), Spans()]
        needs += [RowsBound(s, of) for s in (Residues(8), Digits(3)) for of in ("row-column", "normwise")]
        needs += [RowsBound(halfhalf, "componentwise"), LeastProduct(), Sample()]
        for level in levels:
            ratios: list[tuple[Scheme, bool, bool]] = [
                (Residues(8), False, True),
                (Digits(3), True, True),
                (Digits(3), False, False),
            ]
            needs += [WorstRatio(scheme, level, few, drops) for scheme, few, drops in ratios]
        pairs = [operands_for_facts(rng, kind, m, k, n, "f4") for kind in ("hard", "ordinary", "hard")]
        plan = plan_of(Residues(8), *pairs[0])
        work = work_on(pairs[0])
        for need in needs:
            compare(need, *pairs[0], work.measure(need))
        of_words = WorstRatio(halfhalf, levels[-1])
        c = filled((1, m, n), "f4")
        work.multiply(plan, c)
        same(expected(Residues(8), *pairs[0]), c)
        program = whole_of(work)
        assert program is not None
        for a, b in (*pairs, pairs[0]):
            c = filled((1, m, n), "f4")
            run = started(program, [on_device(a), on_device(b)], c)
            assert run is not None
            with ended(run):
                for i in rng.permutation(len(needs)):
                    compare(needs[i], a, b, run.fact(needs[i]))
            same(expected(Residues(8), a, b), c)
        for need in (of_words, WorstRatio(Residues(8), levels[-1])):
            work = work_on(pairs[0])
            compare(need, *pairs[0], work.measure(need))
            work.multiply(plan, c)
            assert (whole_of(work) is None) == (need is of_words)


def facts_within_limits(rng: np.random.Generator) -> None:
    """Facts that are found in panels are those of NumPy, and so are those of the whole program."""
    core = devices.current().family.core
    assert core is not None
    halfhalf = replace(PRESETS["halfhalf"], core=core)
    for batch_a, batch_b, m, k, n in ((1, 1, 70, 1100, 40), (3, 1, 40, 70, 30), (1, 2, 20, 70, 50)):
        levels: list[Any] = ["sampled", "narrow", "wide"] if k > 1024 else ["narrow", "wide"]
        pairs = [(matrix(rng, (batch_a, m, k), "f4"), matrix(rng, (batch_b, n, k), "f4")) for _ in range(2)]
        shapes = (batch_a, m, k), (batch_b, n, k)
        needs: list[Need] = [LeastProduct()]
        for level in levels:
            needs += [WorstRatio(Residues(8), level), WorstRatio(Digits(3), level, drops=False)]
        least = 0
        for level in levels:
            least = max(least, smallest_limit(devices.current(), level, *shapes))
        limit = max(2 * least, 2 * 10**5)
        plan = plan_of(Residues(4), *pairs[0])
        work = work_on(pairs[0], limit)
        for need in needs:
            compare(need, *pairs[0], work.measure(need))
        assert work.memory.most <= limit, (work.memory.most, limit)
        c = filled((max(batch_a, batch_b), m, n), "f4")
        work.multiply(plan, c)
        same(expected(Residues(4), *pairs[0]), c)
        program = whole_of(work)
        assert program is not None
        for a, b in pairs:
            c = filled(c.shape, "f4")
            run = started(program, [on_device(a), on_device(b)], c)
            assert run is not None
            with ended(run):
                for need in needs:
                    compare(need, a, b, run.fact(need))
            same(expected(Residues(4), a, b), c)
        work = work_on(pairs[0], limit)
        compare(WorstRatio(halfhalf, "narrow"), *pairs[0], work.measure(WorstRatio(halfhalf, "narrow")))


def smallest_limit(device: Device, level: str, *shapes: tuple[int, ...]) -> int:
    """A limit of workspace, in bytes, that is enough for the smallest panels of float64 rows of two shapes."""
    left, right = (Builder().array("rows", shape, "d") for shape in shapes)
    limit = 1000
    while True:
        try:
            panels_of(device, level, left, right, limit)
        except ValueError:
            limit *= 2
        else:
            return limit


def facts_begun(rng: np.random.Generator) -> None:
    """Facts that are found while the operands are split for a likely plan, which turns out right or wrong.

    Which of the two is drawn each time, since each takes seconds.
    """
    sizes = ((20, 1100, 25, "f4"), (30, 200, 20, "f8"))
    if on_hopper():  # the second size in tiles, with magnitudes taken in the read that splits
        sizes = ((20, 1100, 25, "f8"), (260, 270, 257, "f4"))
    for m, k, n, dtype in sizes:
        level: Any = "sampled" if k > 1024 else "narrow"
        scheme = Residues(4 if dtype == "f4" else 14)
        ratios = [WorstRatio(scheme, level), WorstRatio(Digits(3), level, few_rows=True)]
        bounds = [RowsBound(scheme, "row-column")]
        for needs in (ratios, bounds):
            pairs = [operands_for_facts(rng, kind, m, k, n, dtype) for kind in ("ordinary", "hard")]
            likely = (scheme, Digits(2))[int(rng.integers(2))]
            plan = plan_of(scheme, *pairs[0])
            work = work_on(pairs[0])
            more: list[Need] = [Spans(), WorstRatio(scheme, level, drops=False), LeastProduct()]
            sharper: list[Need] = [WorstRatio(scheme, "wide"), WorstRatio(scheme, level, True, False)]
            if likely == scheme:
                more += sharper  # the last one asks for the first level again
            else:
                compare(more[1], *pairs[0], work.measure(more[1]))  # on the main stream
                more = [*sharper, *more]
            work.begin(needs, replace(plan, scheme=likely))
            for need in (*needs, *more):
                compare(need, *pairs[0], work.measure(need))
            c = filled((1, m, n), dtype)
            work.multiply(plan, c)
            same(expected(scheme, *pairs[0]), c)
            program = whole_of(work)
            assert program is not None
            for a, b in (*pairs, pairs[0]):
                c = filled((1, m, n), dtype)
                run = started(program, [on_device(a), on_device(b)], c)
                assert run is not None
                with ended(run):
                    for need in (*needs, *more):
                        compare(need, a, b, run.fact(need))
                same(expected(scheme, a, b), c)


def words_cut(rng: np.random.Generator) -> None:
    """`CutBound` of operands of which words lose nothing, and of which they lose something; in one read and in two."""
    core = devices.current().family.core
    assert core is not None
    halfhalf, tf32tf32 = (replace(PRESETS[name], core=core) for name in ("halfhalf", "tf32tf32"))
    m, k, n = 40, 500, 130
    x, y = (rng.uniform(1, 2, (1, rows, k)).astype("f4") for rows in (m, n))
    small = x.copy()
    small[0, :, 3] *= np.float32(2.0**-40)
    whole, lossy = (x, y), (small, y)
    for first, other in ((whole, lossy), (lossy, whole)):
        plan = plan_of(halfhalf, *first)
        work, need = work_on(first), CutBound(halfhalf)
        found = work.measure(need)
        c = filled((1, m, n), "f4")
        work.multiply(plan, c)
        same(expected(halfhalf, *first), c)
        program = whole_of(work)
        assert program is not None
        for pair, is_first in ((first, True), (other, False), (first, True)):
            c = filled((1, m, n), "f4")
            run = started(program, [on_device(x) for x in pair], c)
            assert run is not None
            with ended(run):
                again_found = run.fact(need)
            same(expected(halfhalf, *pair), c)
            if not on_hopper():
                assert again_found == facts_of(*pair, RowsBound(halfhalf, "componentwise"))
            elif pair is whole:
                assert again_found == word_bounds.lossless(halfhalf, k)
            elif first is lossy:
                assert again_found < inf
            else:
                assert again_found == inf  # the sample was not taken the first time
            assert found == again_found or not is_first
    work = work_on(lossy)
    work.measure(CutBound(halfhalf))
    work.measure(LeastProduct())
    work.measure(CutBound(tf32tf32))
    c = filled((1, m, n), "f4")
    work.multiply(plan_of(tf32tf32, *lossy), c)
    same(expected(tf32tf32, *lossy), c)
    assert (work.underflows("left", halfhalf), work.underflows("right", halfhalf)) == (m, 0)
    assert (work.nonfinite("left") == 0).all()


def native_programs(rng: np.random.Generator) -> None:
    """Native products of operands in any memory order and of stacks, also into results with gaps between rows."""
    for dtypes in (("f8", "f8"), ("f4", "f8"), ("f4", "f4")):
        for left, right in (((5, 7), (7, 4)), ((3, 5, 7), (7, 4)), ((2, 1, 5, 7), (3, 7, 4)), ((5, 7), (3, 7, 4))):
            for turned, apart in ((False, False), (False, True), (True, False)):
                pairs = []
                for _ in range(2):
                    x, y = (rng.standard_normal(of).astype(d) for of, d in zip((left, right), dtypes, strict=True))
                    pairs.append((x.swapaxes(-1, -2).copy().swapaxes(-1, -2), y[..., ::-1]) if turned else (x, y))
                wanted = [np.matmul(*pair) for pair in pairs]
                a, b = map(on_device, pairs[0])
                work, c = Work(a, b, never, wanted[0].dtype.name, Memory(None)), room_for(wanted[0], apart)
                work.native(c)
                np.testing.assert_allclose(cp.asnumpy(c), wanted[0], atol=1e-4)
                program = whole_of(work)
                assert program is not None
                for pair, want in zip(pairs, wanted, strict=True):
                    c = room_for(want, apart)
                    run_whole(program, map(on_device, pair), c)
                    np.testing.assert_allclose(cp.asnumpy(c), want, atol=1e-4)


def never(side: str) -> Any:
    raise AssertionError(side)


def room_for(result: np.ndarray, apart: bool) -> Any:
    """Memory for a result; `apart`: with gaps between its rows."""
    *stack, columns = result.shape
    return filled((*stack, 2 * columns if apart else columns), result.dtype.name)[..., :columns]


def programs_of_one_array(rng: np.random.Generator) -> None:
    """Operands that share memory: overlapping parts of one matrix, and one matrix twice."""
    scheme = Residues(5)
    x = matrix(rng, (120, 120), "f4")
    plan = plan_of(scheme, x[None, :40, :70], x[None, :30, :70])
    program = None
    for first, second in ((0, 20), (20, 0), (5, 40), (0, 0)):
        y = on_device(x)
        a, b = y[None, first : first + 40, :70], y[None, second : second + 30, 10:80]
        c = filled((1, 40, 30), "f4")
        if program is None:
            work = work_of(a, b, "float32")
            work.multiply(plan, c)
            program = whole_of(work)
            assert program is not None
        else:
            run_whole(program, (a, b), c)
        same(expected(scheme, *(cp.asnumpy(each) for each in (a, b))), c)
    y = on_device(x)
    work, c = work_of(y[None], y[None], "float32"), filled((1, 120, 120), "f4")
    work.multiply(plan_of(scheme, x[None], x[None]), c)
    same(expected(scheme, x[None], x[None]), c)
    program = whole_of(work)
    assert program is not None
    c = filled((1, 120, 120), "f4")
    run_whole(program, (y[None], y[None]), c)
    same(expected(scheme, x[None], x[None]), c)


def runs_at_once(rng: np.random.Generator) -> None:
    """Runs of one program at the same time have memory of their own; also those of a thread that has ended."""
    scheme, need = Residues(14), WorstRatio(Residues(14), "sampled")
    pairs = [operands_for_facts(rng, "ordinary", 20, 1100, 25, "f8") for _ in range(3)]
    plan = plan_of(scheme, *pairs[0])
    work = work_on(pairs[0])
    work.begin([need], plan)
    work.measure(need)
    work.multiply(plan, filled((1, 20, 25), "f8"))
    program = whole_of(work)
    del work
    assert program is not None

    def begun(pair: Pair) -> tuple[Any, Any, Any]:
        arrays, c = [on_device(x) for x in pair], filled((1, 20, 25), "f8")
        run = started(program, arrays, c)
        assert run is not None
        return run, c, arrays

    def by_thread(pair: Pair) -> Any:
        run, c, _arrays = begun(pair)
        with ended(run):
            compare(need, *pair, run.fact(need))
        same(expected(scheme, *pair), c)

    for _ in range(3):
        runs = [begun(pair) for pair in pairs]
        for (run, c, _), pair in zip(reversed(runs), reversed(pairs), strict=True):
            with ended(run):
                compare(need, *pair, run.fact(need))
            same(expected(scheme, *pair), c)
        assert len(program.idle) == 3
        for pair in pairs:
            with ThreadPoolExecutor(1) as thread:
                thread.submit(by_thread, pair).result()
        streams.drain_all()
    for pair in pairs:  # nobody asks for the facts
        run, c, arrays = begun(pair)
        with ended(run):
            pass
        assert others_are_done()
        same(expected(scheme, *pair), c)
        work = work_on(pair)
        work.begin([need], plan)
        del work
        assert others_are_done()
    del arrays


def others_are_done() -> bool:
    """Whether nothing waits on streams other than the main one, except for overwriting freed memory."""
    others = (each for stream, queue in streams.waiting.items() if stream != 0 for each in queue)
    return all(getattr(each, "args", None) == (0xA5,) for each in others)


def too_little_memory(rng: np.random.Generator) -> None:
    """A program starts nothing if its memory, or its result, cannot be allocated; it can be run later."""
    scheme = Residues(14)
    a, b = matrix(rng, (1, 20, 30), "f8"), matrix(rng, (1, 10, 30), "f8")
    work = work_on((a, b))
    work.multiply(plan_of(scheme, a, b), filled((1, 20, 10), "f8"))
    program = whole_of(work)
    assert program is not None
    lacking = mock.Mock(side_effect=cp.cuda.memory.OutOfMemoryError("too little memory"))
    arrays, c = [on_device(a), on_device(b)], filled((1, 20, 10), "f8")
    with mock.patch.object(cp.cuda, "alloc", lacking):
        assert started(program, arrays, c) is None
    assert program.run().start([x.data.ptr for x in arrays], lacking) is None
    assert lacking.call_count == 2 and len(program.idle) == 1
    run_whole(program, arrays, c)
    same(expected(scheme, a, b), c)


def wide_magnitudes_on_host(rng: np.random.Generator) -> None:
    """NumPy multiplies wide magnitudes where cuBLAS may not add exactly; no whole program is kept then."""
    a, b = (rng.standard_cauchy((1, rows, 700)) for rows in (10, 9))
    need = WorstRatio(Residues(14), "wide")
    for emulated in (False, True):
        with mock.patch.dict(os.environ, CUBLAS_EMULATE_DOUBLE_PRECISION=str(int(emulated))):
            work = work_on((a, b))
            compare(need, a, b, work.measure(need))
            c = filled((1, 10, 9), "f8")
            work.multiply(plan_of(Residues(14), a, b), c)
        same(expected(Residues(14), a, b), c)
        assert (whole_of(work) is None) == emulated


def ends_of_products(rng: np.random.Generator) -> None:
    """The end of gemm by a product that is rounded already; and what is left of it without a product."""
    for shape in ((1, 5, 9), (6, 2, 2100), (1, 1, 5000)):
        for dtype, addend in (("f4", "f4"), ("f8", "f8"), ("f8", "f4")):
            x, y = rng.standard_normal(shape).astype(dtype), rng.standard_normal(shape).astype(addend)
            for alpha, beta in ((-1.5, 0.0), (1.0, 1.0), (1 / 3, -0.7)):
                wanted, part = np.array(x), Part()
                scaling = wanted.dtype.type(alpha), wanted.dtype.type(beta)
                axpby_on_numpy(wanted, *scaling, y if beta else None, Memory(None))
                memory, out = on_device(np.array(x)), cp.full(shape, np.nan, dtype)
                given, c = part.given(memory), part.given(on_device(y), "c")
                end_of_product.axpby(part.b, alpha, given, beta, c if beta else None)
                if beta:
                    end_of_product.multiple(part.b, beta, c, part.given(out, "out"))
                part.run()
                same(wanted, memory)
                if beta:
                    alone = np.empty_like(x)
                    addend_into(Combination(ONE, Factor(*dyadic(beta)), y), alone, Memory(None))
                    same(alone, out)
