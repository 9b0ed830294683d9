"""Repeated calls: a kept program serves them while its plan is what their data ask for; else they are planned anew."""

from __future__ import annotations

import ctypes
import gc
import itertools
import os
import sys
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from math import inf
from pathlib import Path
from textwrap import indent
from typing import Any
from unittest import mock

import cupy as cp
import numpy as np
import pytest

import ozaki
import streams
from ozaki.backends.cupy import devices
from ozaki.backends.cupy import repeated as kept
from ozaki.backends.cupy.program import compiling
from ozaki.backends.cupy.program.program import Program
from ozaki.backends.cupy.program.run import Execution, Run
from ozaki.backends.cupy.steps import native
from ozaki.planning.facts import WorstRatio
from ozaki.records.options import Options
from runs.device import Seen, in_place_of_the_device, seen
from runs.operands import matrix, same


def batches_repeated(rng: np.random.Generator) -> None:
    """Stacks with new operands and results in each call; operands that share memory, differently in each call."""
    options: dict[str, Any] = {"slices": 4, "engine": "cublas"}
    for scheme in ("residues", "digits"):
        with seen() as calls:
            for _ in range(3):
                a, b = matrix(rng, (3, 20, 70), "f4"), matrix(rng, (3, 70, 30), "f4")
                out = cp.full((3, 20, 30), np.nan, "f4")
                ozaki.matmul(cp.asarray(a), cp.asarray(b)[:, ::-1], scheme=scheme, out=out, **options)
                same(ozaki.matmul(a, b[:, ::-1], scheme=scheme, slices=4), out)
        assert (calls.long, calls.repeated) == (1, 2)
        with seen() as calls:
            same(cp.asnumpy(out), ozaki.matmul(cp.asarray(a), cp.asarray(b)[:, ::-1], scheme=scheme, **options))
            for into in (
                cp.full((3, 30, 20), np.nan, "f4").swapaxes(1, 2),
                cp.full((3, 20, 60), np.nan, "f4")[..., ::2],
            ):
                ozaki.matmul(cp.asarray(a), cp.asarray(b)[:, ::-1], scheme=scheme, out=into, **options)
                same(cp.asnumpy(out), into)
        assert (calls.long, calls.repeated) == (3, 0)  # where the result is not computed in place
        with seen() as calls:
            for first, second in ((0, 20), (20, 0), (5, 40), (0, 0)):
                x = matrix(rng, (120, 120), "f4")
                y = cp.asarray(x)
                left, right = y[first : first + 40, :70], y[second : second + 70, 10:80]
                c = ozaki.matmul(left, right, scheme=scheme, **options)
                same(ozaki.matmul(cp.asnumpy(left), cp.asnumpy(right), scheme=scheme, slices=4), c)
        assert (calls.long, calls.repeated) == (1, 3)
        with seen() as calls:
            for _ in range(2):
                x, y = matrix(rng, (40, 40), "f4"), matrix(rng, (40, 40), "f4")
                left, right = cp.asarray(x), cp.asarray(y)
                for a, b, of_a, of_b in ((left, right, x, y), (left, left, x, x), (right, left, y, x)):
                    same(
                        ozaki.matmul(of_a, of_b, scheme=scheme, slices=4), ozaki.matmul(a, b, scheme=scheme, **options)
                    )
                same(
                    ozaki.matmul(x, x.T, scheme=scheme, slices=4), ozaki.matmul(left, left.T, scheme=scheme, **options)
                )
        assert (calls.long, calls.repeated) == (2, 6)
        with seen() as calls:
            y[3, 5] = np.inf
            right = cp.asarray(y)
            for into in (40, 20, 0, 40):  # the second and the third result overlap an operand, or are one
                z = cp.full((80, 40), np.nan, "f4")
                z[:40] = y
                out = z[into : into + 40]
                ozaki.matmul(z[:40], right, scheme=scheme, out=out, **options)
                same(ozaki.matmul(y, y, scheme=scheme, slices=4), out)
        assert (calls.long, calls.repeated) == (3, 1)


def expressions_repeated(rng: np.random.Generator) -> None:
    """A program of gemm serves calls with the same factors, with other addends; also where `out` is the addend."""
    ways: list[dict[str, Any]] = [{"scheme": "residues", "slices": 4, "engine": "cublas"}, {"scheme": "native"}]
    for options in ways:
        shape, first = (20, 30), True
        for into in ("none", "apart", "c", "gaps"):
            with seen() as calls:
                for alpha in (-1.0, 0.3, -1.0):
                    a, b, c = matrix(rng, (20, 70), "f4"), matrix(rng, (70, 30), "f4"), matrix(rng, shape, "f4")
                    z = cp.asarray(c)
                    outs = {
                        "apart": cp.full(shape, np.nan, "f4"),
                        "c": z,
                        "gaps": cp.full((20, 60), np.nan, "f4")[:, ::2],
                    }
                    out = outs.get(into)
                    got = ozaki.gemm(alpha, cp.asarray(a), cp.asarray(b), 2.0, z, out=out, **options)
                    assert out is None or got is out
                    expected = ozaki.gemm(alpha, a, b, 2.0, c, **options | {"engine": "auto"})
                    if "slices" in options:
                        same(expected, got)
                    else:
                        np.testing.assert_allclose(cp.asnumpy(got), expected, rtol=1e-4, atol=1e-4)
            # Where the result is not computed in `out`, the programs are those that compute it in new memory.
            new = first or into == "apart"
            assert (calls.long, calls.repeated) == ((2, 1) if new else (0, 3)), (into, options)
            first = False


def native_repeated(rng: np.random.Generator) -> None:
    """Native products are repeated, unless cuBLAS has been told to emulate them since."""
    a, b = rng.standard_normal((3, 20, 30)), rng.standard_normal((30, 10))
    with seen() as calls:
        for x in (a, 2 * a):
            out = cp.full((3, 20, 10), np.nan)
            ozaki.matmul(cp.asarray(x), cp.asarray(b), out=out)
            np.testing.assert_allclose(out, x @ b, atol=1e-12)
            same(x @ b, ozaki.matmul(cp.asarray(x), cp.asarray(b)))
    assert (calls.long, calls.repeated, calls.ran) == (2, 2, [None, None])
    for x in (a, 2 * a):
        turned = cp.full((3, 10, 20), np.nan)
        for scheme in ("native", "residues"):  # into an `out` in which the product cannot be computed
            ozaki.matmul(cp.asarray(x), cp.asarray(b), scheme=scheme, out=turned.swapaxes(1, 2))
            np.testing.assert_allclose(turned.swapaxes(1, 2), x @ b, atol=1e-12)
    for emulated in (True, False):
        with mock.patch.dict(os.environ, CUBLAS_EMULATE_DOUBLE_PRECISION=str(int(emulated))), seen() as calls:
            c = ozaki.matmul(cp.asarray(a), cp.asarray(b))
            assert calls.long == 1 and (calls.ran == [None]) != emulated
        same(ozaki.matmul(a, b, reproducible=True) if emulated else a @ b, c)
    x, y = cp.asarray(a.astype("f4")), cp.asarray(b.astype("f4"))
    assert ozaki.plan(x, y).native
    with mock.patch.dict(os.environ, CUBLAS_EMULATE_SINGLE_PRECISION="1"):
        plan = ozaki.plan(x, y)
        assert not plan.native and "CUBLAS_EMULATE_SINGLE_PRECISION" in plan.why
    for mode, left, right, emulated in ((8, a, b, True), (4, x, y, True), (3, x, y, False), (4 + 16, a, b, False)):
        ozaki.matmul(cp.asarray(left), cp.asarray(right))
        with mock.patch.object(cp.cuda.cublas, "getMathMode", lambda handle, mode=mode: mode):
            with seen() as calls:
                ozaki.matmul(cp.asarray(left), cp.asarray(right))
            assert (calls.long, calls.repeated) == ((1, 0) if emulated else (0, 1))
            _, report = ozaki.matmul(cp.asarray(left), cp.asarray(right), return_report=True)
            assert report.native != emulated and ("math mode" in report.why) == emulated
            _, report = ozaki.matmul(cp.asarray(left), cp.asarray(right), scheme="native", return_report=True)
            assert (report.bound == inf) == emulated


def native_views(rng: np.random.Generator) -> None:
    """Native products of operands in any memory order: how many calls of cuBLAS, and copies of what it cannot read."""
    flats, stacks = (
        [scale * x for scale in (1, 2)] for x in (rng.standard_normal((6, 8)), rng.standard_normal((2, 3, 6, 8)))
    )

    def orders(x: Any, xs: Any, y: Any, ys: Any) -> Iterator[tuple[Any, Any, int, int]]:
        turned = ys.swapaxes(-1, -2)
        yield from ((x, y.T, 1, 0), (x.T, y, 1, 0), (x[:, 1:5], y[1:5, 2:], 1, 0), (x[::2], y.T, 1, 0))
        yield from (
            (x[:, ::2], y[1:5], 1, 1),
            (x[::-1], y.T[:, ::-1], 1, 2),
            (cp.broadcast_to(x[0], (5, 8)), y.T, 1, 1),
        )
        yield from ((x[0], y.T, 1, 0), (x, y[0], 1, 0), (x[0], y[1], 1, 0), (x[:, 0], y, 1, 0))
        yield from ((x[:1, ::-1], y.T[:, :1], 1, 1), (x[:, :1], y[:1], 1, 0), (x[:, 2:3], y[4:5, ::2], 1, 1))
        yield from ((xs, y.T, 1, 0), (xs, turned, 1, 0), (xs.swapaxes(-1, -2), y, 1, 0), (x, turned, 1, 0))
        yield from ((xs[:, :, 1:], turned[..., 1:], 1, 0), (xs[:, :2], y.T, 1, 0), (xs[:, ::2], turned[:, 1:], 2, 0))
        yield from ((xs[:, :1], turned[:1], 2, 0), (xs[:1], turned, 2, 0), (xs.swapaxes(0, 1), turned[0, 0], 3, 0))
        yield from ((xs[::-1, ::-1], turned[::-1, ::-1], 6, 0), (xs[..., ::2], turned[:, :, ::2], 1, 4))

    used = cp.cuda.cublas.gemmEx.used, cp.cuda.cublas.gemmStridedBatchedEx.used
    for dtypes in itertools.product(("f4", "f8"), repeat=2):
        both = [[cp.asarray(of[i].astype(dtype)) for dtype in dtypes for of in (flats, stacks)] for i in range(2)]
        for first, second in zip(*(orders(*given) for given in both), strict=True):
            for a, b, products, copies in (first, second):
                for each in used:
                    each.clear()
                with seen() as calls:
                    c = ozaki.matmul(a, b, scheme="native")
                case = dtypes, a.shape, a.strides, b.shape, b.strides
                dtype, *given = max(dtypes), cp.asnumpy(a), cp.asnumpy(b)
                np.testing.assert_allclose(c, np.matmul(*given, dtype=dtype), atol=1e-13 if dtype == "f8" else 1e-4)
                # `Shapes` has matrices of these stacks in another order, so their programs are not kept.
                other_order = (a.shape[:-2], b.shape[:-2]) in (((2, 1), (1, 3)), ((1, 3), (2, 3)))
                assert calls.long == int(a is first[0] or other_order), case
                if dtypes[0] == dtypes[1]:  # else one operand is converted
                    assert sum(map(len, used)) == products, case
                    assert calls.names.count("copy") == copies == len(calls.names) - products, case

    a, b = cp.asarray(stacks[0]), cp.asarray(flats[0].T)
    for most, of_used in ((36, 1), (37, 0)):  # all rows of a stack are one matrix, if cuBLAS can count them
        kept.forget()
        for each in used:
            each.clear()
        with mock.patch.object(native, "_LONGEST", most):
            np.testing.assert_allclose(ozaki.matmul(a, b, scheme="native"), stacks[0] @ flats[0].T, atol=1e-13)
        assert [len(each) for each in used] == [int(i == of_used) for i in range(2)]


def plans_repeated(rng: np.random.Generator) -> None:
    """The program of a plan from data serves repeated calls while their data ask for that plan; else they plan anew."""
    a, b = rng.standard_normal((30, 300)), rng.standard_normal((300, 40))
    assert not held(a, b, accuracy="fp64", reproducible=True)

    for dtype, (m, k, n), engine in (("f4", (20, 1100, 25), "auto"), ("f8", (30, 300, 20), "cublas")):
        usual = [rng.standard_normal((m, k)).astype(dtype) for _ in range(4)]
        peaks, whole = usual[0].copy(), rng.integers(-3, 4, (m, k)).astype(dtype)
        peaks[:, 5] *= 2.0**12
        b = rng.standard_normal((k, n)).astype(dtype)
        options: dict[str, Any] = {"accuracy": "fp32" if dtype == "f4" else "fp64", "reproducible": True}
        got, used, long = [], [], []
        for a in (usual[0], usual[1], peaks, whole, usual[2], usual[3]):
            out = cp.full((m, n), np.nan, dtype)
            cp.cuda.cublas.gemmEx.used.clear()
            with seen() as calls:
                ozaki.matmul(cp.asarray(a), cp.asarray(b), out=out, engine=engine, **options)
            long.append(calls.long)
            got.append((a, out))
            used.append(list(cp.cuda.cublas.gemmEx.used))
        assert long[:2] == [1, 0] and sum(long) == 3, long  # the first, the one with peaks, and the one after that
        assert used[0] == used[1] and used[0][0] > 0  # the proof's product on a stream of its own
        for a, c in got:
            same(ozaki.matmul(a, b, **options), c)


def alternating_plans_repeated(rng: np.random.Generator) -> None:
    """Where plans alternate, kept programs rest after a few runs in vain, and are tried again some calls later."""
    options: dict[str, Any] = {"accuracy": "fp64", "reproducible": True}
    usual, b = rng.standard_normal((30, 40)), rng.standard_normal((40, 20))
    wide = usual * np.exp(6 * rng.standard_normal(usual.shape))
    expected = [ozaki.matmul(x, b, **options) for x in (usual, wide)]

    def vain(*cases: int) -> list[bool]:
        """Multiply these one after the other; of which a kept program was started in vain."""
        found = []
        for i in cases:
            # `repeated` alone starts a run without an `Execution`.
            with seen() as calls, mock.patch.object(Program, "run", counted := _Counted(Program.run)):
                same(expected[i], ozaki.matmul(cp.asarray((usual, wide)[i]), cp.asarray(b), **options))
            found.append(bool(counted.by_repeated and not calls.repeated))
        return found

    with mock.patch.object(kept, "_REST", 4):
        assert vain(*(0, 1) * 4) == [False, True, True, True, False, False, False, False]
        assert vain(0, 1, 0) == [True, False, False]  # one more try, for each rest
        assert vain(0, 0, 0, 0, 0) == [False] * 5
        assert vain(0, 1, 1, 0, 0) == [False, True, False, True, False]  # what served a call counts anew
    kept.forget()


class _Counted:
    """A method of programs that counts its calls by `repeated`."""

    def __init__(self, method: Any) -> None:
        self._method, self.by_repeated = method, 0

    def __get__(self, program: Any, _: Any) -> Any:
        def call() -> Any:
            self.by_repeated += sys._getframe(1).f_code.co_name == "repeated"
            return self._method(program)

        return call


def converted_operands(rng: np.random.Generator) -> None:
    """Of operands that are converted for each call no program is kept: no call would find it."""
    a, b = (cp.asarray(rng.standard_normal((9, 9)).astype("f2")) for _ in range(2))
    for x in (a, a.astype("f4")):
        kept.forget()
        for _ in range(2):
            ozaki.matmul(x, b, accuracy="fp32", reproducible=True)
        assert ozaki.cache_info()["programs"].entries == 0
    kept.forget()


def other_plans_repeated(_rng: np.random.Generator) -> None:
    """Plans from data that need a sharper proof, and from data that need more slices."""
    rng = np.random.default_rng(7)  # other data might need one slice more

    def drawn(kind: str, shape: tuple[int, int]) -> np.ndarray:
        x = rng.standard_normal(shape)
        return x * (rng.random(shape) < 0.1) if kind == "sparse" else abs(x) ** 1.5

    options: dict[str, Any] = {"accuracy": "fp64", "reproducible": True}
    for kind, ratios in (("steep", 2), ("sparse", 3)):
        got, long, asked = [], [], 0
        for _ in range(4):
            a, b, out = drawn(kind, (10, 1500)), drawn(kind, (1500, 9)), cp.full((10, 9), np.nan)
            with seen() as calls:
                ozaki.matmul(cp.asarray(a), cp.asarray(b), out=out, **options)
            long.append(calls.long)
            asked += sum(isinstance(need, WorstRatio) for need in calls.needs)
            got.append((a, b, out))
        assert (long, asked) == ([1, 0, 0, 0], ratios), (kind, long, asked)
        for a, b, c in got:
            same(ozaki.matmul(a, b, **options), c)
        kept.forget()


def heavy_plans_repeated(rng: np.random.Generator) -> None:
    """Plans from wide magnitudes; where cuBLAS may not add exactly, NumPy multiplies these and each call is planned."""
    options: dict[str, Any] = {"accuracy": "fp64", "reproducible": True}

    def multiplied(operands: Sequence[np.ndarray]) -> Seen:
        """Multiply the operands with rows, columns and signs shuffled, which leaves the proof as it is."""
        a, b = (x * rng.choice([-1, 1], x.shape) for x in operands)
        a, b = a[rng.permutation(len(a))], np.asfortranarray(b[:, rng.permutation(b.shape[1])])
        out = cp.full((len(a), b.shape[1]), np.nan)
        with seen() as calls:
            ozaki.matmul(cp.asarray(a), cp.asarray(b), out=out, **options)
        same(ozaki.matmul(a, b, **options), out)
        return calls

    for k, scale in ((1500, 2.0**-560), (700, 2.0**480)):
        shapes = (10, k), (k, 9)
        heavy, usual = ([draw(shape) for shape in shapes] for draw in (rng.standard_cauchy, rng.standard_normal))
        heavy = [x * np.exp2(rng.integers(-150, 1, x.shape)) * scale for x in heavy]  # far from exact
        heavy[0][3], heavy[0][4, :9], heavy[1][9:, 5], heavy[0][7, 7] = 0, 0, 0, np.nan
        for emulated, long in ((False, [1, 0, 0]), (True, [1, 1, 1]), (False, [1, 0, 0])):
            with mock.patch.dict(os.environ, CUBLAS_EMULATE_DOUBLE_PRECISION=str(int(emulated))):
                done = [multiplied(heavy) for _ in long]
            assert [calls.long for calls in done] == long, (k, emulated)
            for calls in done:  # on the device; where it is emulated, NumPy finds the whole fact
                assert ("lower_by_exponents" in calls.names) != emulated
        assert [multiplied(usual).long for _ in range(4)][-2:] == [0, 0]
        kept.forget()


def memory_is_held(rng: np.random.Generator) -> None:
    """A repeated call holds the memory of its proofs until they are done, and no longer."""
    a, b = cp.asarray(rng.standard_normal((20, 1100))), cp.asarray(rng.standard_normal((1100, 25)))
    alloc, fact = cp.cuda.alloc, Run.fact
    held: list[weakref.ref[Any]] = []
    left: list[int] = []

    def allocated(size: int) -> Any:
        memory = alloc(size)
        held.append(weakref.ref(memory))
        weakref.finalize(memory, freed)
        return memory

    def freed() -> None:
        left.append(sum(len(work) for stream, work in streams.waiting.items() if stream != streams.current().ptr))

    def found(run: Run, need: Any) -> Any:
        assert held[-1]() is not None
        return fact(run, need)

    ozaki.matmul(a, b, accuracy="fp64", reproducible=True)
    with mock.patch.object(cp.cuda, "alloc", allocated), mock.patch.object(Run, "fact", found):
        for _ in range(9):
            streams.drain_all()
            ozaki.matmul(a, b, accuracy="fp64", reproducible=True)
            assert held[-1]() is None
        streams.drain_all()
        with mock.patch.object(Run, "fact", side_effect=InterruptedError), pytest.raises(InterruptedError):
            ozaki.matmul(a, b, accuracy="fp64", reproducible=True)
        for error in (KeyboardInterrupt, MemoryError):  # while the steps are started, before the result is allocated
            streams.drain_all()
            with mock.patch.object(cp, "empty", side_effect=error), pytest.raises(error):
                ozaki.matmul(a, b, accuracy="fp64", reproducible=True)
    assert len(held) == 12 and held[-1]() is None and left == [0] * 12, left


def programs_outlive_first_calls(rng: np.random.Generator) -> None:
    """Programs work after all caches of kernels were cleared, and after the thread of the first call has ended."""
    a, b = rng.standard_normal((20, 30)), rng.standard_normal((30, 10))
    x, y = cp.asarray(a), cp.asarray(b)

    def product() -> Any:
        return ozaki.matmul(x, y, scheme="residues", slices=14)

    def by_thread() -> Any:
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(product).result()

    expected = ozaki.matmul(a, b, scheme="residues", slices=14)
    for multiply in (product, by_thread):
        kept.forget()
        with mock.patch.object(compiling, "kernel", wraps=compiling.kernel) as loaded, seen() as calls:
            for _ in range(3):
                same(expected, multiply())
                streams.drain_all()
                backends = [module for name, module in sys.modules.items() if name.startswith("ozaki.backends.")]
                for each in [each for module in backends for each in vars(module).values()]:
                    if hasattr(each, "cache_clear"):
                        each.cache_clear()
                gc.collect()
                junk = [(ctypes.c_void_p * size)(*[8] * size) for size in range(1, 60) for _ in range(100)]
            del junk
        assert (calls.long, calls.repeated) == (1, 2)
        assert (
            loaded.call_count <= 2 * len(calls.names) // 3
        )  # for the first call, and for the first run of its program


def refused_calls_hold_nothing(rng: np.random.Generator) -> None:
    """The error of a product that is refused, which somebody keeps, keeps no memory of proofs."""
    a, b = (np.ldexp(1.0, rng.integers(-900, 900, shape)) for shape in ((30, 40), (40, 20)))
    x, y = cp.asarray(a), cp.asarray(b)
    made, init = [], Execution.__init__

    def noted(execution: Execution, *arguments: Any) -> None:
        made.append(execution)
        init(execution, *arguments)

    for function in (ozaki.matmul, ozaki.plan):
        with mock.patch.object(Execution, "__init__", noted), pytest.raises(ValueError, match=r"^accuracy: ") as error:
            function(x, y, accuracy="fp64", scheme="digits")
        assert made and not any(execution._open for execution in made), error
        made.clear()


def too_little_memory_repeated(rng: np.random.Generator) -> None:
    """A repeated call that cannot allocate all memory of its program at once is planned anew, and runs part by part."""
    a, b = rng.standard_normal((20, 30)), rng.standard_normal((30, 10))
    x, y = cp.asarray(a), cp.asarray(b)
    expected = ozaki.matmul(a, b, scheme="residues", slices=14)
    too_little = cp.cuda.memory.OutOfMemoryError("too little memory")
    alloc, empty = cp.cuda.alloc, cp.empty

    def first_fails(function: Any) -> Any:
        answers = iter([too_little])

        def call(*arguments: Any) -> Any:
            for error in answers:
                raise error
            return function(*arguments)

        return call

    for lacking, long in (("", 1), ("", 0), ("workspace", 1), ("result", 1), ("", 0), ("", 0)):
        with (
            mock.patch.object(cp.cuda, "alloc", first_fails(alloc) if lacking == "workspace" else alloc),
            mock.patch.object(cp, "empty", first_fails(empty) if lacking == "result" else empty),
            seen() as calls,
        ):
            c = ozaki.matmul(x, y, scheme="residues", slices=14)
        same(expected, c)
        assert (calls.long, calls.repeated) == (long, 1 - long), lacking


def equal_choices_repeated(_rng: np.random.Generator) -> None:
    """Numbers that equal a number of bits, but are no integers, are refused even after a call with that number."""
    a = b = cp.asarray(np.eye(4))
    with seen() as calls:
        for _ in range(3):
            ozaki.matmul(a, b, accuracy=60)
            ozaki.matmul(a, b, accuracy=1)
    assert (calls.long, calls.repeated) == (2, 4)
    nonsense: Any
    for nonsense in (60.0, np.float64(60), Fraction(60), 1.0):
        with pytest.raises(ValueError, match=r"^accuracy: tolerance"):
            ozaki.matmul(a, b, accuracy=nonsense)
    assert Options(60).key != Options(60.0).key
    for nonsense in (True, np.True_):
        with pytest.raises(TypeError, match=r"^accuracy: "):
            ozaki.matmul(a, b, accuracy=nonsense)


def held(a: np.ndarray, b: np.ndarray, **options: Any) -> bool:
    """Whether what is kept of a call keeps an operand's memory alive; asserts that a program is kept."""
    x, y = cp.asarray(a), cp.asarray(b)
    owners = [weakref.ref(owner_of(each)) for each in (x, y)]
    kept.forget()
    with seen() as calls:
        for _ in range(2):
            ozaki.matmul(x, y, **options)
    assert (calls.long, calls.repeated) == (1, 1)
    del x, y, calls
    streams.drain_all()
    gc.collect()
    return any(owner() is not None for owner in owners)


def owner_of(x: Any) -> Any:
    """The object that an array and its views share, and that owns their memory."""
    while not hasattr(x, "_memory"):
        x = x.base if isinstance(x, np.ndarray) else x.obj
    return x._memory


def listing_of_design(rng: np.random.Generator) -> None:
    """docs/design.md, section 3, lists the program that a small product keeps on an H100."""
    a, b = cp.asarray(rng.standard_normal((300, 400))), cp.asarray(rng.standard_normal((400, 300)))
    with in_place_of_the_device(devices.of("90", multiprocessors=132, shared_memory=233472, number=0)):
        ozaki.matmul(a, b, accuracy="fp64", reproducible=True)
        (of_product,) = kept._kept.values()
        assert isinstance(of_product, kept._Seen)
    design = Path(__file__).parents[3] / "docs" / "design.md"
    assert indent(str(program := of_product.repetition.program()), "    ") in design.read_text(encoding="utf-8"), str(
        program
    )
