"""Calls like one before, done again."""

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
from typing import Any
from unittest import mock

import cupy as cp
import numpy as np
import pytest
import streams
from ozaki.backends.cupy.launching._tape import Tape

import ozaki
from ozaki import _search
from ozaki._choices import Choices
from ozaki.backends.cupy import _again, _native
from ozaki.backends.cupy import backend as _cupy
from ozaki.backends.cupy.launching import _launch
from runs.operands import matrix, same


def batches_again(rng: np.random.Generator) -> None:
    """Matrices of a batch one by one, from the tape the second time; operands that share memory are told apart."""
    options: dict[str, Any] = {"slices": 4, "engine": "cublas"}
    for scheme in ("residues", "digits"):
        with mock.patch.object(_cupy, "execute", wraps=_cupy.execute) as execute:
            for _ in range(3):
                a, b = matrix(rng, (3, 20, 70), "f4"), matrix(rng, (3, 70, 30), "f4")
                out = cp.full((3, 20, 30), np.nan, "f4")
                ozaki.matmul(cp.asarray(a), cp.asarray(b)[:, ::-1], scheme=scheme, out=out, **options)
                same(ozaki.matmul(a, b[:, ::-1], scheme=scheme, slices=4), out)
            assert execute.call_count == 1
            for first, second in ((0, 20), (20, 0), (5, 40), (0, 0)):
                x = matrix(rng, (120, 120), "f4")
                y = cp.asarray(x)
                left, right = y[first : first + 40, :70], y[second : second + 70, 10:80]
                c = ozaki.matmul(left, right, scheme=scheme, **options)
                same(ozaki.matmul(cp.asnumpy(left), cp.asnumpy(right), scheme=scheme, slices=4), c)


def native_again(rng: np.random.Generator) -> None:
    """The native product too, while the environment lets it be what it was."""
    a, b = rng.standard_normal((3, 20, 30)), rng.standard_normal((30, 10))
    for x in (a, 2 * a):
        out = cp.full((3, 20, 10), np.nan)
        ozaki.matmul(cp.asarray(x), cp.asarray(b), out=out)
        np.testing.assert_allclose(out, x @ b, atol=1e-12)
        turned = cp.full((3, 10, 20), np.nan)
        for scheme in ("native", "residues"):  # where `out` is no place to compute in
            ozaki.matmul(cp.asarray(x), cp.asarray(b), scheme=scheme, out=turned.swapaxes(1, 2))
            np.testing.assert_allclose(turned.swapaxes(1, 2), x @ b, atol=1e-12)
    with mock.patch.dict(os.environ, CUBLAS_EMULATE_DOUBLE_PRECISION="1"):
        same(ozaki.matmul(a, b, reproducible=True), ozaki.matmul(cp.asarray(a), cp.asarray(b)))
    x, y = cp.asarray(a.astype("f4")), cp.asarray(b.astype("f4"))
    assert ozaki.plan(x, y).native
    with mock.patch.dict(os.environ, CUBLAS_EMULATE_SINGLE_PRECISION="1"):
        plan = ozaki.plan(x, y)
        assert not plan.native and "CUBLAS_EMULATE_SINGLE_PRECISION" in plan.why
    for mode, left, right, emulated in ((8, a, b, True), (4, x, y, True), (3, x, y, False), (4 + 16, a, b, False)):
        with mock.patch.object(cp.cuda.cublas, "getMathMode", lambda handle, mode=mode: mode):
            _, report = ozaki.matmul(cp.asarray(left), cp.asarray(right), return_report=True)
            assert report.native != emulated and ("math mode" in report.why) == emulated
            _, report = ozaki.matmul(cp.asarray(left), cp.asarray(right), scheme="native", return_report=True)
            assert (report.bound == inf) == emulated


def native_views(rng: np.random.Generator) -> None:
    """Native products of operands in any order: how many products of cuBLAS, and copies of what it cannot read."""
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
    call = _launch.Launch.__call__
    for dtypes in itertools.product(("f4", "f8"), repeat=2):
        both = [[cp.asarray(of[i].astype(dtype)) for dtype in dtypes for of in (flats, stacks)] for i in range(2)]
        for first, second in zip(*(orders(*given) for given in both), strict=True):
            for a, b, products, copies in (first, second):
                for each in used:
                    each.clear()
                with mock.patch.object(_launch.Launch, "__call__", autospec=True, side_effect=call) as launched:
                    c = ozaki.matmul(a, b, scheme="native")
                case = dtypes, a.shape, a.strides, b.shape, b.strides
                dtype, *given = max(dtypes), cp.asnumpy(a), cp.asnumpy(b)
                np.testing.assert_allclose(c, np.matmul(*given, dtype=dtype), atol=1e-13 if dtype == "f8" else 1e-4)
                if dtypes[0] == dtypes[1]:  # else one of them is copied
                    assert sum(map(len, used)) == products, case
                    assert launched.call_count == (0 if a is second[0] else copies), case

    a, b = cp.asarray(stacks[0]), cp.asarray(flats[0].T)
    for most, of_used in ((36, 1), (37, 0)):  # rows of a stack are one matrix as far as cuBLAS counts
        _again.forget()
        for each in used:
            each.clear()
        with mock.patch.object(_native, "_LONGEST", most):
            np.testing.assert_allclose(ozaki.matmul(a, b, scheme="native"), stacks[0] @ flats[0].T, atol=1e-13)
        assert [len(each) for each in used] == [int(i == of_used) for i in range(2)]


def plans_again(rng: np.random.Generator) -> None:
    """What a plan from data ran is done again while the data ask for the same; else it is planned anew."""
    a, b = rng.standard_normal((30, 300)), rng.standard_normal((300, 40))
    assert not held(a, b, accuracy="fp64", reproducible=True)

    for dtype, (m, k, n), engine in (("f4", (20, 1100, 25), "auto"), ("f8", (30, 200, 20), "cublas")):
        usual = [rng.standard_normal((m, k)).astype(dtype) for _ in range(4)]
        peaks, whole = usual[0].copy(), rng.integers(-3, 4, (m, k)).astype(dtype)
        peaks[:, 5] *= 2.0**12
        b = rng.standard_normal((k, n)).astype(dtype)
        options: dict[str, Any] = {"accuracy": "fp32" if dtype == "f4" else "fp64", "reproducible": True}
        begin, got, used = _search.Search.begin, [], []
        with mock.patch.object(_search.Search, "begin", autospec=True, side_effect=begin) as planned:
            for a in (usual[0], usual[1], peaks, whole, usual[2], usual[3]):
                out = cp.full((m, n), np.nan, dtype)
                cp.cuda.cublas.gemmEx.used.clear()
                ozaki.matmul(cp.asarray(a), cp.asarray(b), out=out, engine=engine, **options)
                got.append((a, out))
                used.append(list(cp.cuda.cublas.gemmEx.used))
        assert planned.call_count == 3  # the first one, peaks, and what came after them
        assert used[0] == used[1] and used[0][0] > 0  # the proof's product beside the others
        for a, c in got:
            same(ozaki.matmul(a, b, **options), c)


def plans_of_other_data_again(_rng: np.random.Generator) -> None:
    """Data that need a sharper proof, and such as need more slices, which are split for once that is known."""
    rng = np.random.default_rng(7)  # other data might need one slice more

    def drawn(kind: str, shape: tuple[int, int]) -> np.ndarray:
        x = rng.standard_normal(shape)
        return x * (rng.random(shape) < 0.1) if kind == "sparse" else abs(x) ** 1.5

    options: dict[str, Any] = {"accuracy": "fp64", "reproducible": True}
    for kind, looks, plans in (("steep", 2, 1), ("sparse", 3, 3)):
        begin, look, got = _search.Search.begin, _cupy.worst_ratios, []
        with (
            mock.patch.object(_search.Search, "begin", autospec=True, side_effect=begin) as planned,
            mock.patch.object(_cupy, "worst_ratios", side_effect=look) as looked,
        ):
            for _ in range(plans + 2):
                a, b, out = drawn(kind, (10, 1500)), drawn(kind, (1500, 9)), cp.full((10, 9), np.nan)
                ozaki.matmul(cp.asarray(a), cp.asarray(b), out=out, **options)
                got.append((a, b, out))
        made = sum(len(call.args[3]) for call in looked.call_args_list)
        assert (planned.call_count, made) == (plans, looks * plans), (kind, made)
        for a, b, c in got:
            same(ozaki.matmul(a, b, **options), c)
        _again.forget()


def heavy_plans_again(rng: np.random.Generator) -> None:
    """Plans from wide magnitudes are made anew, out of NumPy's product where cuBLAS may not add exactly."""
    options: dict[str, Any] = {"accuracy": "fp64", "reproducible": True}

    def planned(operands: Sequence[np.ndarray]) -> int:
        """How often, for data that differ but need the same proof."""
        a, b = (x * rng.choice([-1, 1], x.shape) for x in operands)
        a, b = a[rng.permutation(len(a))], np.asfortranarray(b[:, rng.permutation(b.shape[1])])
        out, begin = cp.full((len(a), b.shape[1]), np.nan), _search.Search.begin
        with mock.patch.object(_search.Search, "begin", autospec=True, side_effect=begin) as begun:
            ozaki.matmul(cp.asarray(a), cp.asarray(b), out=out, **options)
        same(ozaki.matmul(a, b, **options), out)
        return begun.call_count

    for k, scale in ((1500, 2.0**-560), (700, 2.0**480)):
        shapes = (10, k), (k, 9)
        heavy, usual = ([draw(shape) for shape in shapes] for draw in (rng.standard_cauchy, rng.standard_normal))
        heavy = [x * scale for x in heavy]
        heavy[0][3], heavy[0][4, :9], heavy[1][9:, 5], heavy[0][7, 7] = 0, 0, 0, np.nan
        with mock.patch.object(_cupy, "wide_product", side_effect=_cupy.wide_product) as wide:
            assert [planned(heavy) for _ in range(4)] == [1, 1, 1, 1]
            with mock.patch.dict(os.environ, CUBLAS_EMULATE_DOUBLE_PRECISION="1"):
                assert [planned(heavy), wide.call_count] == [1, 5]
        assert [planned(usual) for _ in range(4)][-2:] == [0, 0]


def memory_is_held(rng: np.random.Generator) -> None:
    """What a proof looks at is held until it is through, when it is done again too."""
    a, b = cp.asarray(rng.standard_normal((20, 1100))), cp.asarray(rng.standard_normal((1100, 25)))
    begin, finds = Tape.begin, _search.Search.finds
    held: list[weakref.ref[Any]] = []

    def begun(tape: Tape, *arrays: Any) -> Any:
        rest = begin(tape, *arrays)

        def noted(c: Any) -> Any:
            memory = rest(c)
            held.append(weakref.ref(memory))
            return memory

        return noted

    def found(search: Any, scheme: Any) -> Any:
        assert held[-1]() is not None
        return finds(search, scheme)

    with mock.patch.object(Tape, "begin", begun), mock.patch.object(_search.Search, "finds", found):
        for _ in range(3):
            ozaki.matmul(a, b, accuracy="fp64", reproducible=True)
    assert len(held) == 2 and held[-1]() is None


def tapes_outlive_launches(rng: np.random.Generator) -> None:
    """Also where launches have been forgotten meanwhile, or the thread that recorded them has ended."""
    a, b = rng.standard_normal((20, 30)), rng.standard_normal((30, 10))
    x, y = cp.asarray(a), cp.asarray(b)

    def product() -> Any:
        return ozaki.matmul(x, y, scheme="residues", slices=14)

    def by_thread() -> Any:
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(product).result()

    expected, init = ozaki.matmul(a, b, scheme="residues", slices=14), _launch.Launch.__init__
    begun: list[None] = []
    with mock.patch.object(_launch.Launch, "__init__", lambda *_, **__: begun.append(init(*_, **__))):
        for multiply in (product, by_thread):
            for _ in range(3):  # the first one records
                same(expected, multiply())
                streams.drain_all()
                backends = [module for name, module in sys.modules.items() if name.startswith("ozaki.backends.")]
                for each in [each for module in backends for each in vars(module).values()]:
                    if hasattr(each, "cache_clear"):
                        each.cache_clear()
                gc.collect()
                junk = [(ctypes.c_void_p * size)(*[8] * size) for size in range(1, 60) for _ in range(100)]
            del junk
    assert 0 < len(begun) < 40  # not anew each time


def too_little_memory_again(rng: np.random.Generator) -> None:
    """All memory of a tape at once may be more than there is: then the product is planned anew, a step at a time."""
    a, b = rng.standard_normal((20, 30)), rng.standard_normal((30, 10))
    x, y = cp.asarray(a), cp.asarray(b)
    expected = ozaki.matmul(a, b, scheme="residues", slices=14)
    begin, begun, lacking = Tape.begin, [], ""
    too_little = mock.Mock(side_effect=cp.cuda.memory.OutOfMemoryError("too little memory"))

    def begun_with(tape: Tape, *arrays: Any) -> Any:
        begun.append(tape)
        rest = too_little() if lacking == "between" else begin(tape, *arrays)
        return too_little if lacking == "result" else rest

    with mock.patch.object(Tape, "begin", begun_with):
        for runs, lacking in enumerate(("", "between", "result", "", "")):  # recorded; twice anew, and recorded; again
            same(expected, ozaki.matmul(x, y, scheme="residues", slices=14))
            assert len(begun) == runs, lacking
    assert too_little.call_count == 2


def equal_choices_again(_rng: np.random.Generator) -> None:
    """Numbers that equal a number of bits, but are none, are refused after it has run, as before."""
    a = b = cp.asarray(np.eye(4))
    for _ in range(3):
        ozaki.matmul(a, b, accuracy=60)
        ozaki.matmul(a, b, accuracy=1)
    nonsense: Any
    for nonsense in (60.0, np.float64(60), Fraction(60), 1.0):
        with pytest.raises(ValueError, match=r"^accuracy: tolerance"):
            ozaki.matmul(a, b, accuracy=nonsense)
    assert Choices(60).key != Choices(60.0).key
    for nonsense in (True, np.True_):
        with pytest.raises(TypeError, match=r"^accuracy: "):
            ozaki.matmul(a, b, accuracy=nonsense)


def held(a: np.ndarray, b: np.ndarray, **options: Any) -> bool:
    """Whether what is kept of a call, which is something, holds an operand."""
    x, y = cp.asarray(a), cp.asarray(b)
    owners = [weakref.ref(owner_of(each)) for each in (x, y)]
    _again.forget()
    for _ in range(3):  # what such operands need is known from the second time on
        ozaki.matmul(x, y, **options)
    assert _again._done
    del x, y
    streams.drain_all()
    gc.collect()
    return any(owner() is not None for owner in owners)


def owner_of(x: Any) -> Any:
    """What has an array's memory, as its views do."""
    while not hasattr(x, "_memory"):
        x = x.base if isinstance(x, np.ndarray) else x.obj
    return x._memory
