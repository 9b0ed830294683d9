"""The CuPy backend on an emulated device, bit for bit beside NumPy: `python tests/emulated/run.py [CASE SEED]`.

Without a case it names them all. In a process of its own, since CuPy's place is taken.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import os
import sys
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from math import ceil
from typing import Any
from unittest import mock

import cupy_on_numpy
import numpy as np
import pytest
import streams

HOPPER = "hopper-"
cupy_on_numpy.install("90" if sys.argv[1:] and sys.argv[1].startswith(HOPPER) else "80")

import cupy as cp  # noqa: E402

import ozaki  # noqa: E402
from ozaki import _bounds, _call, _search  # noqa: E402
from ozaki._choices import Choices  # noqa: E402
from ozaki._description import FIELDS  # noqa: E402
from ozaki.backends import (  # noqa: E402
    _again,
    _cublas,
    _cublas_fp16,
    _cupy,
    _describe_split,
    _halves,
    _hopper,
    _launch,
    _magnitudes,
    _numpy,
    _numpy_describe,
    _numpy_proof,
    _rates,
    _recombine,
    _split,
    _tape,
    _tuned,
    _winograd,
    _word_hopper,
    _word_mma,
    _word_pairs,
    _word_split,
    _word_tiles,
)
from ozaki.backends._launch import View  # noqa: E402
from ozaki.backends._magnitudes import Layout, Magnitudes  # noqa: E402
from ozaki.backends._tape import Tape  # noqa: E402
from ozaki.backends._tops import tops  # noqa: E402
from ozaki.reference import componentwise_error  # noqa: E402
from ozaki.schemes import PRESETS, Digits, Residues, Scheme, Words  # noqa: E402
from ozaki.tensor_core import A100, H100, TensorCore  # noqa: E402

_halves._found[0] = _halves.Places(frozenset({0}))  # the first cluster's multiprocessor; the other one has another
MOST_SHARED = 227 * 1024 - 2048
"""Bytes of dynamic shared memory of a block, beside static ones."""


def matrix(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, spread: int = 3) -> np.ndarray:
    x = np.ldexp(rng.standard_normal(shape), rng.integers(-spread, spread + 1, shape))
    return x.astype(dtype)


def same(expected: np.ndarray, got: np.ndarray) -> None:
    got = cp.asnumpy(got)
    assert expected.dtype == got.dtype and expected.shape == got.shape, (expected.dtype, got.dtype)
    differ = expected.view(f"u{expected.itemsize}") != got.view(f"u{got.itemsize}")
    differ &= ~(np.isnan(expected) & np.isnan(got))
    assert not differ.any(), f"{differ.sum()} of {differ.size} differ, first at {tuple(np.argwhere(differ)[0])}"


def hard(rng: np.random.Generator, k: int, dtype: str) -> np.ndarray:
    """Two of 41 rows, some without normal numbers, with NaN and Inf, graded, of the widest exponents, of few bits."""
    x = matrix(rng, (2, 41, k), dtype, 20)
    least = np.finfo(dtype).smallest_subnormal
    x[0, 0], x[1, 1] = 0, least * rng.integers(-9, 10, k)
    x[0, 2] = np.ldexp(x[0, 2], -np.arange(k) // 3)
    x[1, 3, rng.integers(k, size=9)] = [np.nan, np.inf, -np.inf] * 3
    x[0, 4], x[1, 5, ::2] = np.nan, least
    x[0, 6] = np.ldexp(x[0, 6] / abs(x[0, 6]).max(), np.finfo(dtype).maxexp - 1)
    x[0, 7], x[1, 7] = rng.integers(-7, 8, k), rng.integers(-(2**20), 2**20, k)
    x[1, 8] = x[0, 7]
    x[1, 8, k // 2] += 2.0**-20
    return x


def in_tiles(x: np.ndarray, rows: int, k: int, tile: int, neighbours: int) -> np.ndarray:
    """Bytes as kernels/tiles.cuh has them."""
    j = np.arange(tile)
    if n := neighbours:
        j = j - j % (4 * n) + 8 * (j % n // 2) + 2 * (j // n % 4) + j % 2
    place = j[:, None]
    padded = np.zeros((len(x), rows, k), np.int8)
    padded[:, : x.shape[1], : x.shape[2]] = x
    pieces = padded.reshape(len(x), -1, tile, k // 128, 8, 16).swapaxes(2, 3)
    stored = np.empty_like(pieces)
    stored[..., place, np.arange(8) ^ place % 8, :] = pieces
    return stored.reshape(len(x), -1)


def descriptions(rng: np.random.Generator) -> None:
    """Rows, columns, strides, graded rows, NaN and Inf."""
    for dtype in ("f4", "f8"):
        for shape in ((3, 2900), (70, 130), (9, 33)):
            x = matrix(rng, shape, dtype, 20)
            x[0] = np.ldexp(x[0], -np.arange(shape[1]) // 9)
            x[1, ::3] = 0
            x[2, 5], x[2, 7] = np.nan, -np.inf
            for v in (x, np.asfortranarray(x), x[:, ::-1], x[:, 1:]):
                host, device = _numpy.describe(v[None]).fields, _cupy.describe(cp.asarray(v)[None]).fields.get()
                for field, h, d in zip(FIELDS, host, device, strict=True):
                    np.testing.assert_array_equal(h, d, err_msg=f"{field} {dtype} {shape}")


def looks(rng: np.random.Generator) -> None:
    """The least numbers of rows: empty ones, such as look empty, subnormal ones; none at all."""
    words, kept = PRESETS["halfhalf"], set()
    for batch, m, n, wide in ((1, 40, 9000, 3), (3, 9, 1, 30), (3, 9, 8, 4), (1, 5, 4, 30)):
        a, b = (matrix(rng, (batch, rows, 300), "f4", wide) for rows in (m, n))
        a[:, 3], b[:, 0] = 0, np.ldexp(b[:, 0], -130 - rng.integers(20))
        a[0, 4] *= np.arange(300) != 7
        if n == 4:
            a[0, 2, :100], b[:] = 0, 0
        sides = a, b
        some = [_numpy.describe(x[..., :100]) for x in sides]
        shown = some[0], some[1]
        want = _numpy_describe.read_least(shown, (_numpy.describe(a), _numpy.describe(b)), words)()
        left, right = (cp.asarray(x) for x in sides)
        described = _cupy.describe(left[..., :100]), _cupy.describe(right[..., :100])
        assert _cupy.read_least(described, (of_words(left, words), of_words(right, words)), words)() == want
        assert _cupy.read_least(described, described)() == _numpy_describe.read_least(shown, shown)()
        assert want[0].told == (n != 4) and (n != 4 or want[1] == (np.inf, np.inf, 0, True, True))
        kept |= {least.kept for least in want}
    assert kept == {True, False}


def of_words(x: Any, words: Words) -> Any:
    """What is found of rows while they are cut into words."""
    layout = _word_tiles.layout(words, 128, words.count, "left", *x.shape)
    return _describe_split.find_and_split(x, words, layout).begin().described


def magnitudes(rng: np.random.Generator) -> None:
    """Of both operands at once, in rows, in tiles, and wide ones; views of every kind."""

    def view(x: np.ndarray) -> np.ndarray:
        turned = x.swapaxes(1, 2).copy().swapaxes(1, 2)
        views = x[..., :301], turned[..., 3:], turned[1:, ::-1, 1:302], x[:, ::-1, 2:303], x[1:, :, 300::-1]
        return views[rng.integers(len(views))]

    layouts = [
        Layout((rows, cols), k, sampled, tiles)
        for rows, cols, tiles in ((48, 48, (0, 0)), (512, 192, (256, 192)))
        for k, sampled in ((384, False), (128, True))
    ]
    layouts += [Layout((44, 44), 384, bits=bits) for bits in (21, int(rng.integers(8, 21)))]
    for dtypes, layout in itertools.product(itertools.product(("f4", "f8"), repeat=2), layouts):
        given = [view(hard(rng, 304, dtype)) for dtype in dtypes]
        left, right = (_cupy.describe(cp.asarray(x)) for x in given)
        got = _magnitudes.magnitudes(left, right, layout)
        for x, rows, tile, found in zip(given, layout.rows, layout.tiles, got[:2], strict=True):
            want = _numpy_proof._magnitudes(_numpy.describe(x), layout.bits, layout.sampled)
            if tile:
                want, found = in_tiles(want, rows, layout.k, tile, 16 * (tile == 192)), found.reshape(len(x), -1)
            else:
                want = np.pad(want, ((0, 0), (0, rows - want.shape[1]), (0, layout.k - want.shape[2])))
            told = f"{x.dtype} {x.shape} {x.strides} {layout}"
            np.testing.assert_array_equal(want, found, err_msg=told)


def proofs(rng: np.random.Generator) -> None:
    """Sampled products and their worst ratio, where there is no lower bound too."""
    a, b = matrix(rng, (2, 40, 300), "f8"), matrix(rng, (30, 300), "f8")
    a[0, :20, :150] = 0
    b[:15, 150:] = 0
    host = [_numpy.describe(x) for x in (a, b[None])]
    device = [_cupy.describe(cp.asarray(x)) for x in (a, b[None])]
    for level in ("sampled", "narrow", "wide"):
        lower = [
            of.wide_product(*d) if level == "wide" else of.narrow_product(*d, level == "sampled")
            for of, d in ((_numpy, host), (_cupy, device))
        ]
        for scheme in (Residues(14), Digits(7), Digits(20)):
            ways = [(of, x, d) for of, x, d in ((_numpy, lower[0], host), (_cupy, lower[1], device))]
            for rows in (lower[0].shape[1], lower[0].shape[1] // 2):
                expected, found = (of.worst_ratios(x, *d, [(scheme, rows)])[0]() for of, x, d in ways)
                assert expected == found
        wanted = [(Residues(14), 40), (Digits(7), 20), (Digits(20), 40)]  # side by side
        expected, found = ([look() for look in of.worst_ratios(x, *d, wanted)] for of, x, d in ways)
        assert expected == found


def exponents(rng: np.random.Generator) -> None:
    """Where wide magnitudes have no product: heavy tails, sums of zeros, too small for any bound; any views."""
    for batch_a, batch_b, m, k, n in ((1, 1, 150, 70, 67), (2, 1, 9, 300, 130), (1, 2, 66, 33, 5), (2, 2, 70, 64, 64)):
        a, b = (rng.standard_cauchy((batch, rows, k)) ** 3 for batch, rows in ((batch_a, m), (batch_b, n)))
        a *= rng.random(a.shape) < 0.7
        b[..., k // 3 :] *= rng.random((batch_b, n, 1)) < 0.5  # then nothing meets in part of k
        a[0, :4] = b[:, 2] = 0
        a[0, :4, 0] = b[:, 2, 2] = 1
        a[0, :4, 1], b[:, 2, 1] = np.ldexp(1.0, [-962, -963, -1014, -1015]), 2.0**-100
        a[0, 4], b[0, 4, 5], a[-1, 5, :7] = 0, np.nan, np.inf
        a[0, 6] = np.ldexp(rng.integers(1, 9, k).astype(float), -1074)
        b = b.astype(rng.choice(["f4", "f8"]))
        step = rng.choice([-1, 1])
        a, b = (np.asarray(x, order=rng.choice(["C", "F"]))[..., ::step] for x in (a, b))
        host = _numpy.describe(a), _numpy.describe(b)
        device = _cupy.describe(cp.asarray(a)), _cupy.describe(cp.asarray(b))
        lower, found = _numpy.wide_product(*host), _cupy.wide_product(*device)
        assert np.isinf(lower).any() and (lower[0, :4, 2] == [2.0**-1022, 2.0**-1023, 2.0**-1074, 0]).all()
        cp.cuda.Device().synchronize()  # the proof's stream as well
        np.testing.assert_array_equal(lower, found.values[:, :m, :n])
        for scheme in (Residues(14), Digits(7)):
            expected = _numpy.worst_ratios(lower, *host, [(scheme, m)])[0]()
            assert expected == _cupy.worst_ratios(found, *device, [(scheme, m)])[0]()


def fused_proofs(rng: np.random.Generator) -> None:
    """The same out of tiles: wide and narrow ones, batches, odd shapes, a glance, words."""
    for batch_a, batch_b, m, k, n in (
        (1, 1, 530, 700, 500),
        (2, 1, 300, 261, 259),
        (1, 2, 260, 1100, 257),
        (2, 2, 257, 256, 384),
    ):
        a, b = matrix(rng, (batch_a, m, k), "f4"), matrix(rng, (batch_b, n, k), "f4")
        a[0, : m // 2, : k // 2] = 0
        b[-1, : n // 3, k // 2 :] = 0
        a[0, 3], b[0, 5, 7], a[0, 9, 1] = 0, np.nan, np.inf
        a = np.asarray(a, order=rng.choice(["C", "F"]))
        host = _numpy.describe(a), _numpy.describe(b)
        device = _cupy.describe(cp.asarray(a)), _cupy.describe(cp.asarray(b))
        for sampled in (False, True) if k > 1024 else (False,):
            lower = _numpy.narrow_product(*host, sampled), _cupy.narrow_product(*device, sampled)
            assert isinstance(lower[1], Magnitudes)
            for scheme, rows in ((Residues(8), m), (Digits(7), 128), (Digits(30), m), (PRESETS["halfhalf"], m)):
                found, expected = (
                    module.worst_ratios(x, *d, [(scheme, rows)])[0]()
                    for module, x, d in ((_cupy, lower[1], device), (_numpy, lower[0], host))
                )
                assert found == expected, (found, expected, scheme, rows, (batch_a, batch_b, m, k, n))
            wanted = (Residues(8), m), (Digits(7), 128), (Digits(30), m - 9)  # two of them by one launch
            for some in (wanted[:2], wanted):
                found, expected = (
                    [look() for look in module.worst_ratios(x, *d, some)]
                    for module, x, d in ((_cupy, lower[1], device), (_numpy, lower[0], host))
                )
                assert found == expected, (found, expected, (batch_a, batch_b, m, k, n))


def product(scheme: str, slices: int, dtype: str, engine: str, rng: np.random.Generator) -> None:
    """Views of every kind, NaN and Inf, subnormal results; from the tape the second time, where there is one."""
    options: dict[str, Any] = {"scheme": scheme, "slices": slices}
    for m, k, n in ((33, 270, 130), (5, 1, 3))[: 1 if engine == "hopper" else 2]:  # tiles take as long for both
        a, b = matrix(rng, (m, k), dtype), matrix(rng, (k, n), dtype)
        b[0, 0] = np.inf
        tiny = a * a.dtype.type(2.0 ** (-1060 if dtype == "f8" else -140))
        for x, y in ((a, b), (np.asfortranarray(a), b.T.copy().T), (a[::-1], b[:, ::-1]), (tiny, b), (a, b)):
            out = cp.full((m, n), np.nan, dtype)
            with np.errstate(all="ignore"):
                expected = ozaki.matmul(x, y, **options)
                same(expected, ozaki.matmul(cp.asarray(x), cp.asarray(y), out=out, engine=engine, **options))
        for x in (2 * a, a):  # the second one is found by its views
            same(ozaki.matmul(x, b, **options), ozaki.matmul(cp.asarray(x), cp.asarray(b), engine=engine, **options))
        plan = ozaki.plan(a.shape, b.shape, dtype=a.dtype.name, engine=engine, **options)
        for x in (3 * a, a):  # and so is a prepared one
            left = ozaki.prepare(cp.asarray(x), "left", plan)
            same(ozaki.matmul(x, b, **options), ozaki.matmul(left, cp.asarray(b), plan=plan))


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


def fp16_sums(rng: np.random.Generator) -> None:
    """FP16 digits that fill the accumulators; and of a product so deep that k is cut, and its sums need int64."""
    full = np.full((6, 320), -(126 + 127 / 255) / 256)  # whose digits are -126, -127, -127, ...
    expected = ozaki.matmul(full, full.T, scheme="fp16-digits", slices=5)
    same(expected, ozaki.matmul(cp.asarray(full), cp.asarray(full.T), scheme="fp16-digits", slices=5))
    a, b = matrix(rng, (5, 300), "f8"), matrix(rng, (300, 7), "f8")
    expected = ozaki.matmul(a, b, scheme="fp16-digits", slices=5)
    with (
        mock.patch.object(_cublas_fp16, "fp16_depth", return_value=128),
        mock.patch.object(Digits, "depth", return_value=0),
    ):
        same(expected, ozaki.matmul(cp.asarray(a), cp.asarray(b), scheme="fp16-digits", slices=5))


def far(rng: np.random.Generator) -> None:
    """Digits in the tiles of the Hopper engine, where its kernel leaves subnormal results to another."""
    a, b = (np.ldexp(matrix(rng, shape, "f8"), -535) for shape in ((37, 300), (300, 200)))
    for scheme in (Digits(7), Digits(4, 7)):
        views = (("left", cp.asarray(a)), ("right", cp.asarray(b).T))
        left, right = (
            _split.split(_cupy.describe(x[None]), side, scheme, _hopper.layout(scheme, side, 1, *x.shape))
            for side, x in views
        )
        out = cp.full((1, 37, 200), np.nan)
        launch = _hopper._digit_far(0, scheme, left.operand, right.operand, left.layout.k // 128, View.of(out), 0, 0)
        launch(left.planes.data, right.planes.data, out.data, left.mu.data, right.mu.data)
        same(ozaki.matmul(a, b, scheme=scheme.name, slices=scheme.count), out[0])


def filled_places(scheme: Any, side: str, layout: Any) -> np.ndarray:
    """Where the slices of rows that are filled lie: where those of ones are, of any number."""
    batch = layout.size // (scheme.count * layout.rows * layout.k)
    ones = cp.asarray(np.ones((batch, layout.filled, layout.k), "f4"))
    slices = _split.split(_cupy.describe(ones), side, scheme, _hopper.layout(scheme, side, *ones.shape))
    return np.tile((cp.asnumpy(slices.planes).reshape(scheme.count, -1) != 0).any(0), scheme.count)


def one_read(rng: np.random.Generator) -> None:
    """Descriptions, exponents and slices of one read are those of two; one block and two, views of every kind."""
    for char, steps, rows, sums in itertools.product("fd", ((8, 2**20), (2**20, 8)), (2, 8192), (True, False)):
        view = View(char, (1, rows, 1), (0, *steps))
        for k in range(128, 32769, 128):
            scheme, tile = (Digits(3) if char == "f" else Residues(14)), _hopper.layout(Residues(14), "left", 1, 256, k)
            if not _describe_split.fits(scheme, tile, view, sums):
                break
            held = _describe_split._held(k, view, sums)
            assert held.share % 128 == 0 and k <= held.cluster * held.share
            assert _describe_split._EXCHANGED + held.all_rows * held.share * view.itemsize <= MOST_SHARED
            assert view.along_k or held.rows * view.itemsize % 16 == 0
            assert held.sharing == 4 or (held.cluster == 1 and held.rows > 1)
            of_lane = 4 * ceil(held.share / (128 * held.sharing))
            assert of_lane <= 64 or k > _describe_split._LONGEST_OF_SUMS
        assert k * view.itemsize > (65536 if not sums and view.along_k else 32768)
    cases = (
        (Residues(14), "f8", "right", True), (Residues(7), "f4", "right", True), (Digits(3), "f4", "right", False),
        (Digits(7), "f8", "right", True), (Digits(7), "f8", "right", False), (Digits(5, 7), "f4", "right", True),
        (Residues(20), "f8", "right", True), (Digits(4, 7), "f4", "left", False), (Digits(2), "f4", "left", True),
    )  # fmt: skip
    for scheme, dtype, side, sums in cases:
        order, cluster = rng.integers(4), int(rng.choice((1, 2) if sums else (1, 2, 4)))
        known: tuple[int, ...] = (2, 4) if order == 0 and dtype == "f8" else (4,) if order == 0 else (1, 2)
        if order == 0 and dtype == "f4" and not sums:
            known = (4, 8)
        held = _describe_split._Held(cluster, 384 if cluster == 1 else 512 // cluster, int(rng.choice(known)))
        if cluster == 1 and held.rows > 1:
            held = held._replace(sharing=int(rng.choice((1, 4))))
        x = cp.asarray(hard(rng, 304, dtype))  # rows begin at multiples of 16 bytes
        x = (x.swapaxes(1, 2).copy().swapaxes(1, 2)[..., 3:], x[..., :301], x[:, ::-1, 1:], x[1:, :, ::-1])[order]
        layout = _hopper.layout(scheme, side, *x.shape)
        expected = _split.split((_cupy.describe if sums else tops)(x), side, scheme, layout)
        _describe_split._launch.cache_clear()
        room = magnitudes_of(x, bool(rng.integers(2))) if sums else None
        with mock.patch.object(_describe_split, "_held", return_value=held):
            got = _describe_split.describe_and_split(x, side, scheme, layout, sums, room).begin()
        told = f"{scheme} {dtype} {side} {order} {held}"
        for i, field in enumerate(FIELDS):
            if sums or field in ("top", "nonfinite"):
                want = expected.described.fields[i]
                np.testing.assert_array_equal(want, got.described.fields[i], err_msg=f"{field} {told}")
        np.testing.assert_array_equal(expected.mu, got.mu, err_msg=told)
        filled = filled_places(scheme, side, layout)
        assert filled.mean() == layout.filled / layout.rows
        np.testing.assert_array_equal(expected.planes[filled], got.planes[filled], err_msg=told)
        if room is not None:
            want = _magnitudes.magnitudes(expected.described, expected.described, room.layout)
            looked_at = room.layout.k * (4 if room.layout.sampled else 1)
            ones = _cupy.describe(cp.asarray(np.ones((x.shape[0], layout.filled, looked_at), "f4")))
            filled = getattr(_magnitudes.magnitudes(ones, ones, room.layout), side) != 0
            assert filled.mean() == layout.filled / layout.rows
            expected, found = (getattr(of, side)[filled] for of in (want, room))
            np.testing.assert_array_equal(expected, found, err_msg=told)
    _describe_split._launch.cache_clear()


def magnitudes_of(x: np.ndarray, sampled: bool) -> Magnitudes:
    """Room for those of x as both operands, in tiles."""
    room = _magnitudes.room(x, x, Layout.in_tiles(x.shape[1], x.shape[1], x.shape[2], sampled))
    room.left.fill(85), room.right.fill(85)
    return room


def words_in_one_read(rng: np.random.Generator) -> None:
    """Words, exponents and largest elements of one read are those of two."""
    for steps in ((4, 2**20), (2**20, 4)):
        view = View("f", (1, 2, 1), (0, *steps))
        for k in range(128, _describe_split._LONGEST_OF_WORDS + 1, 128):
            stream = _describe_split._stream(k, view)
            assert k <= stream.cluster * stream.warps * (2048 // stream.rows)
            assert stream.warps <= 16 and stream.shared_mem <= MOST_SHARED
            assert stream.rows in (16, 16 if view.along_k else 32)
    for name, side, columns in (
        ("halfhalf", "right", 208), ("halfhalf", "left", 128), ("tf32tf32", "right", 192), ("two-stage", "right", 256),
        ("triple-bf16", "right", 208), ("fabsum-v1", "left", 128),
    ):  # fmt: skip
        x = matrix(rng, (2, 41, 304), "f4", 20)
        x[0, 0], x[1, 1] = 0, np.finfo("f4").smallest_subnormal * rng.integers(-9, 10, 304)
        x[1, 3, rng.integers(304, size=9)] = [np.nan, np.inf, -np.inf] * 3
        x[0, 4], x[0, 6] = np.nan, np.ldexp(x[0, 6] / abs(x[0, 6]).max(), 127)
        order, warps = rng.integers(4), {1: (3, 5), 2: (2, 3), 4: (1, 2), 8: (1,)}
        cluster = int(rng.choice(list(warps)))
        group = int(rng.choice((16, 32))) if order == 0 else 16
        stream = _describe_split._Stream(cluster, int(rng.choice(warps[cluster])) * group // 16, group)
        x = cp.asarray(x)
        x = (x.swapaxes(1, 2).copy().swapaxes(1, 2)[..., 3:], x[..., :301], x[:, ::-1, 1:], x[1:, :, ::-1])[order]
        words = replace(PRESETS[name], core=H100)
        together = words.count if _word_hopper.fits(words) else 1
        layout = _word_tiles.layout(words, columns, together, side, *x.shape)
        expected = _word_split.split(tops(x), words, layout)
        with mock.patch.object(_describe_split, "_stream", return_value=stream):
            _describe_split._launch_of_words.cache_clear()
            got = _describe_split.find_and_split(x, words, layout).begin()
        told = f"{name} {side} {order} {stream}"
        np.testing.assert_array_equal(lossy(cp.asnumpy(x), words), got.described.fields[FIELDS.index("bottom")], told)
        for field in ("top", "nonfinite"):
            i = FIELDS.index(field)
            np.testing.assert_array_equal(expected.described.fields[i], got.described.fields[i], err_msg=told)
        np.testing.assert_array_equal(expected.mu, got.mu, err_msg=told)
        np.testing.assert_array_equal(expected.planes, got.planes, err_msg=told)
    _describe_split._launch_of_words.cache_clear()


def lossy(x: np.ndarray, words: Words) -> np.ndarray:
    """Rows with elements that are below the floor of words when they are scaled."""
    magnitudes = np.where(np.isfinite(x), abs(x), 0).astype("f8")
    tops = np.frexp(magnitudes.max(axis=-1, keepdims=True))[1]
    small = (magnitudes > 0) & (magnitudes < np.ldexp(1.0, tops + words.floor - words.ceiling))
    return np.asarray(small.any(axis=-1))


def one_read_chosen(rng: np.random.Generator) -> None:
    """Given counts read an operand once where blocks can hold its rows and that is faster; the same bits."""
    done = []
    digits = ("f4", 2700, "digits", 2), ("f4", 9000, "digits", 3)
    cases = ("f8", 2100, "residues", 14), ("f8", 300, "residues", 14), *digits
    for dtype, k, scheme, slices in cases:
        a, b = rng.standard_normal((9, k)).astype(dtype), rng.standard_normal((k, 11)).astype(dtype)
        multiply = partial(ozaki.matmul, scheme=scheme, slices=slices)
        split = _describe_split.describe_and_split
        with mock.patch.object(_describe_split, "describe_and_split", side_effect=split) as read:
            c = multiply(cp.asarray(a), cp.asarray(b), engine="hopper")
        assert read.call_count == 2, (dtype, k, scheme)
        same(multiply(a, b), c)
        done.append((multiply, a, b, c))
    for multiply, a, b, c in done:  # other lengths of rows were in between
        same(c, multiply(cp.asarray(a), cp.asarray(b), engine="hopper"))
    default = partial(ozaki.matmul, accuracy="fp64", reproducible=True)
    with mock.patch.object(_describe_split, "describe_and_split", side_effect=split) as read:
        for done_again in (False, True, True):
            a, b = rng.standard_normal((10, 300)), rng.standard_normal((300, 11))
            same(default(a, b), default(cp.asarray(a), cp.asarray(b), engine="hopper"))
            assert read.call_count == 2, done_again
    with mock.patch.object(_magnitudes, "_taking", side_effect=_magnitudes._taking) as taking:
        for _ in range(3):  # with magnitudes, planned and done again
            a, b = matrix(rng, (260, 300), "f4"), matrix(rng, (300, 257), "f4")
            c, report = default(cp.asarray(a), cp.asarray(b), engine="hopper", return_report=True)
            expected, other = default(a, b, return_report=True)
            same(expected, c)
            assert report.bound == other.bound
    assert taking.call_count == 0
    for dtype, k, scheme, slices, along_k in (
        ("f8", 200, "residues", 49, True), ("f4", 8200, "residues", 7, True), ("f8", 8200, "digits", 2, True),
        ("f4", 16400, "digits", 2, True), ("f4", 16400, "digits", 2, False), ("f8", 6200, "residues", 14, False),
    ):  # fmt: skip
        x = cp.zeros((9, k) if along_k else (k, 9), dtype)
        plan = ozaki.plan((9, k), (k, 11), dtype=x.dtype.name, engine="hopper", scheme=scheme, slices=slices)
        look = (x if along_k else x.T)[None], "left", plan, scheme == "residues"
        assert _cupy._in_one_read(*look) is None, (dtype, k, scheme, along_k)
    words = replace(PRESETS["halfhalf"], core=H100)
    a, b = rng.standard_normal((9, 300)).astype("f4"), rng.standard_normal((300, 11)).astype("f4")
    cut = _describe_split.find_and_split
    with mock.patch.object(_describe_split, "find_and_split", side_effect=cut) as read:
        ozaki.matmul(cp.asarray(a), cp.asarray(b), scheme=words)
    assert read.call_count == 2
    plan = ozaki.plan((9, 16400), (16400, 11), dtype="float32", scheme=words)
    assert _cupy._in_one_read(cp.zeros((1, 9, 16400), "f4"), "left", plan, False) is None


def together(rng: np.random.Generator) -> None:
    """Clusters that begin tiles together, or passes over k; one after the other here, so that none waits for long."""
    for scheme, slices in (("residues", 4), ("digits", 3), (replace(PRESETS["halfhalf"], core=H100), None)):
        multiply, module = partial(ozaki.matmul, scheme=scheme, slices=slices), _hopper if slices else _word_hopper
        with (
            mock.patch.object(module, "_LONG", 2),
            mock.patch.object(_launch, "cleared", wraps=_tape.cleared) as cleared,
        ):
            for _ in range(2):
                a, b = matrix(rng, (9, 270), "f4"), matrix(rng, (270, 900), "f4")
                same(multiply(a, b), multiply(cp.asarray(a), cp.asarray(b), engine="hopper" if slices else "auto"))
        assert cleared.call_count == 1, scheme  # else from the tape


def split_along_k(rng: np.random.Generator) -> None:
    """Three tiles, or one, for two clusters: both have a part of the last one."""
    shapes = (("digits", 3), (600, 2500, 100)), (("digits7", 2), (130, 2500, 120)), (("digits", 4), (1030, 1930, 190))
    for (scheme, slices), (m, k, n) in shapes:
        a, b = rng.standard_normal((m, k)).astype("f4"), rng.standard_normal((k, n)).astype("f4")
        out = cp.full((m, n), np.nan, "f4")
        with mock.patch.object(_hopper, "cleared", wraps=_tape.cleared) as cleared:
            ozaki.matmul(cp.asarray(a), cp.asarray(b), scheme=scheme, slices=slices, engine="hopper", out=out)
        assert cleared.call_count == 1
        same(ozaki.matmul(a, b, scheme=scheme, slices=slices), out)


def column_tiles(rng: np.random.Generator) -> None:
    """Two clusters. Wide tiles with one narrow one, with two, two narrow ones, one for more columns than there are.

    Places by halves of the cache, which here are those of the grid back to front. A panel of few columns.
    """
    shapes = ((30, 400, 300), 6), ((530, 260, 400), 7), ((600, 300, 250), 5), ((20, 260, 50), 4), ((90, 260, 200), 3)
    for (m, k, n), slices in shapes:
        a, b = rng.standard_normal((m, k)).astype("f4"), rng.standard_normal((k, n)).astype("f4")
        out = cp.full((m, n), np.nan, "f4")
        with (
            mock.patch.object(_hopper, "_LARGE", 0),
            mock.patch.object(_halves, "cleared", wraps=_tape.cleared) as cleared,
        ):
            ozaki.matmul(cp.asarray(a), cp.asarray(b), scheme="residues", slices=slices, engine="hopper", out=out)
        assert cleared.call_count == 1
        same(ozaki.matmul(a, b, scheme="residues", slices=slices), out)
    a, b = rng.standard_normal((30, 260)).astype("f4"), rng.standard_normal((260, 448)).astype("f4")
    options: dict[str, Any] = {"scheme": "residues", "slices": 5, "workspace_limit": 1_500_000}
    plan = ozaki.plan(a.shape, b.shape, dtype="float32", engine="hopper", **options)
    assert _cupy._panel(_hopper, Residues(5), 260, 1, 30, 448, options["workspace_limit"]) == (30, 384)  # and 64
    right = ozaki.prepare(cp.asarray(b), "right", plan)
    for y in (cp.asarray(b), right):
        same(ozaki.matmul(a, b, scheme="residues", slices=5), ozaki.matmul(cp.asarray(a), y, plan=plan))


def halves(rng: np.random.Generator) -> None:
    """Told apart by near and far words, whatever else the clocks hang on; not where there is nothing to tell."""
    for share in (0.5, 0.4, 0.7):
        kinds = rng.random(132) < share
        near = rng.random(24) < 0.5
        clocks = 2400 + 1600 * (kinds[:, None] != near) + rng.integers(0, 300, 132)[:, None] + rng.integers(0, 200, 24)
        clocks += rng.integers(0, 200, clocks.shape)
        assert _halves.second_half(clocks) == frozenset(np.flatnonzero(kinds != kinds[0]).tolist())
        clocks[5] = 0
        assert _halves.second_half(clocks) is None  # one did not come
        assert _halves.second_half(2400 + rng.integers(0, 200, clocks.shape)) is None
    assert _halves.second_half(np.full((132, 24), 2400)) is None
    places = _halves.Places(frozenset({0, 33, 255}))
    assert places.struct[1].tobytes() == np.array([1, 2, 0, 0, 0, 0, 0, 2**31], np.uint32).tobytes()


def quadrants(rng: np.random.Generator) -> None:
    """Quadrants and their sums out of one kernel; empty halves, views of every kind, NaN and Inf."""
    methods = [(Residues(14), "f8"), (Residues(15), "f8"), (Residues(20), "f8"), (Residues(7), "f4")]
    shapes = [(1, 1), (64, 300), (65, 64), (200, 385), (531, 129), (130, 530)]
    orders = itertools.product(("left", "right"), ("C", "F"))
    rng.shuffle(methods)
    for (side, order), (scheme, dtype), (rows, k) in zip(
        orders, methods, rng.permutation(shapes)[:4].tolist(), strict=True
    ):
        y = matrix(rng, (rows + 1, 2 * k), dtype, 20)
        y[0, -1], y[-1, 0], y[-1, -3:] = np.nan, -np.inf, np.finfo(dtype).smallest_subnormal
        y = cp.asarray(np.asfortranarray(y) if order == "F" else y)
        x = (y[1:, :k], y[1:, k - 1 : -1], y[:0:-1, ::-2], y[:-1, ::2])[rng.integers(4)][None]
        described = _cupy.describe(x)
        plain = _split.split(described, side, scheme, _cublas.layout(scheme, side, 1, rows, k))
        got = _winograd.split(described, side, scheme)

        above, first = _winograd._half(rows), _winograd._half(k)
        whole = np.zeros((scheme.count, 2 * above, 2 * first), int)
        whole[:, :rows, :k] = plain.planes.reshape(scheme.count, plain.layout.rows, plain.layout.k)[:, :rows, :k]
        p, q, r, s = (x for half in np.split(whole, 2, 1) for x in np.split(half, 2, 2))
        if side == "left":
            blocks = p, q, q - (r + s - p), s, r + s, r + s - p, p - r
        else:
            blocks = p, q, s, q - (s - r + p), r - p, s - r + p, s - r
        m = np.array(scheme.moduli)[:, None, None]
        tiles = got.layout.rows, got.layout.k, got.layout.tile, got.layout.neighbours
        want = [in_tiles((block % m).astype(np.uint8).view(np.int8), *tiles) for block in blocks]
        told = f"{scheme} {dtype} {side} {x.shape} {x.strides}"
        np.testing.assert_array_equal(np.stack(want, 1).reshape(-1), got.planes, err_msg=told)
        np.testing.assert_array_equal(plain.mu, got.mu, err_msg=told)


def winograd(rng: np.random.Generator) -> None:
    """Odd sizes, graded rows, views, Inf, subnormal results; from the tape the second time; prepared operands."""
    with mock.patch.object(_winograd, "_FROM", 0):
        for shape, slices, dtype in (((531, 330, 255), 7, "f4"), ((90, 250, 207), 14, "f8"), ((70, 130, 41), 20, "f8")):
            m, k, n = shape
            options: dict[str, Any] = {"scheme": "residues", "slices": slices}
            a, b = matrix(rng, (m, k), dtype), matrix(rng, (k, n), dtype)
            a, b = np.ldexp(a, np.arange(m)[:, None] // 16), np.ldexp(b, np.arange(n) // 8)
            b[-1, -1] = np.inf
            tiny = a * a.dtype.type(2.0 ** (-1060 if dtype == "f8" else -140))
            pairs = [(tiny, b), (np.asfortranarray(a)[::-1], b.T.copy().T[:, ::-1]), (a, b)]
            with mock.patch.object(_winograd, "multiply", wraps=_winograd.multiply) as multiply:
                for x, y in pairs if slices == 7 else pairs[:1]:
                    out = cp.full((m, n), np.nan, dtype)
                    with np.errstate(all="ignore"):
                        expected = ozaki.matmul(x, y, **options)
                    same(expected, ozaki.matmul(cp.asarray(x), cp.asarray(y), out=out, engine="hopper", **options))
            assert multiply.call_count == (2 if slices == 7 else 1), multiply.call_count  # else from the tape
            if slices == 7:
                plan = ozaki.plan(a.shape, b.shape, dtype="float32", engine="hopper", **options)
                left, right = ozaki.prepare(cp.asarray(a), "left", plan), ozaki.prepare(cp.asarray(b), "right", plan)
                c, report = ozaki.matmul(left, right, plan=plan, return_report=True)
                same(expected, c)
                assert report.engine.endswith("Strassen-Winograd") and report.products == slices
                c, report = ozaki.matmul(left, right, plan=replace(plan, workspace_limit=10**9), return_report=True)
                same(expected, c)  # which has room for it
                assert report.engine.endswith("Strassen-Winograd") and report.workspace_bytes <= 10**9
                others = (replace(plan, workspace_limit=10**7), b), (replace(plan, batch=(2,)), np.stack([b, b]))
                for other, y in others:
                    refused = ""
                    try:
                        ozaki.matmul(left, cp.asarray(y), plan=other)
                    except ValueError as error:
                        refused = str(error)
                    assert "prepared for another plan" in refused


def parts_of_k(rng: np.random.Generator) -> None:
    """Two clusters and few tiles: two parts of k, with nothing left over, or what is left added to the first one."""
    for k, rest in (2560, 0), (5200, 3), (70000, 3):
        a, b = rng.standard_normal((30, k)).astype("f4"), rng.standard_normal((k, 40)).astype("f4")
        out, options = cp.full((30, 40), np.nan, "f4"), dict[str, Any](scheme="residues", slices=5)
        parts, blocks = _hopper._parts(0, 5, 1, 30, 40, -(-k // 128)), -(-k // 128)
        assert (parts, *_hopper._shares_of_parts(blocks, parts)) == (2, (blocks - rest) // 2, rest)
        for _ in range(2):
            ozaki.matmul(cp.asarray(a), cp.asarray(b), engine="hopper", out=out, **options)
            same(ozaki.matmul(a, b, **options), out)
            out[:] = np.nan


def engines(_rng: np.random.Generator) -> None:
    """The own kernel, but where padding would cost more than cuBLAS does."""
    with mock.patch.object(_hopper, "cluster_blocks", return_value=132):
        for scheme, batch, shape, engine in (
            (Residues(14), 1, (1024, 2**20, 1024), _hopper),
            (Residues(14), 1, (64, 2**16, 64), _cublas),
            (Residues(14), 1, (64, 100, 64), _hopper),
            (Residues(14), 1, (64, 2**16, 600), _hopper),
            (Digits(3), 1, (64, 2**15, 64), _hopper),
            (Digits(3), 1, (64, 2**16, 64), _cublas),
            (Residues(7), 1000, (100, 100, 100), _hopper),
            (Digits(3), 1000, (100, 100, 100), _hopper),
            (Residues(7), 100000, (100, 100, 100), _cublas),
        ):
            assert _cupy._engine(scheme, "auto", batch, shape) is engine, (scheme, batch, shape)
        assert _cupy._engine(Residues(14), "hopper", 1, (64, 2**16, 64)) is _hopper


def within_limits(rng: np.random.Generator) -> None:
    """The own kernel in panels, where what it keeps aside leaves room for them; else cuBLAS, in smaller ones."""
    a, b = matrix(rng, (40, 260), "f4"), matrix(rng, (260, 50), "f4")
    with mock.patch.object(_hopper, "FROM", 1):
        for scheme in (Residues(3), Digits(2)):
            options: dict[str, Any] = {"scheme": scheme.name, "slices": scheme.count}
            expected, enough = ozaki.matmul(a, b, **options), 2 * _cupy._workspace(_hopper, scheme, 260, 1, 256, 384)
            for limit, engine in ((enough, _hopper), (enough - 1, _cublas)):
                given = {"workspace_limit": limit, "return_report": True, **options}
                c, report = ozaki.matmul(cp.asarray(a), cp.asarray(b), **given)
                same(expected, c)
                assert report.engine.endswith(engine.label) and report.workspace_bytes <= limit, (report, limit)
    a, b = matrix(rng, (300, 26), "f4"), matrix(rng, (26, 270), "f4")
    for limit, name in ((10**5, "residues"), (10**5, "digits"), (25 * 10**4, "halfhalf")):  # which take several
        options = {"scheme": name} | ({} if name == "halfhalf" else {"slices": 3, "engine": "cublas"})
        whole = ozaki.matmul(cp.asarray(a), cp.asarray(b), **options)
        for limited, calls in ((limit, 2), (10**9, 1)):  # panels are never done from the tape
            with (
                mock.patch.object(_cupy, "_take", side_effect=_cupy._take) as take,
                mock.patch.object(_cupy, "product", side_effect=_cupy.product) as product,
            ):
                for _ in range(2):
                    c = ozaki.matmul(cp.asarray(a), cp.asarray(b), workspace_limit=limited, **options)
                    same(whole.get(), c)
            assert (take.call_count > 4) == (limited == limit) and product.call_count == calls, (scheme, limited)
        plan = ozaki.plan(a.shape, b.shape, dtype="float32", workspace_limit=limit, **options)
        for times in (1, 8):  # the exponents of panels are not those of the call before
            left, right = (
                ozaki.prepare(cp.asarray(a), "left", plan),
                ozaki.prepare(cp.asarray(times * b), "right", plan),
            )
            same((times * whole).get(), ozaki.matmul(left, right, plan=plan))


def workspaces(rng: np.random.Generator) -> None:
    """What is expected is held: once for a batch that is multiplied one by one, and of digits kept aside at most."""
    a, b = matrix(rng, (3, 40, 260), "f4"), matrix(rng, (3, 260, 50), "f4")
    schemes: tuple[Scheme, ...] = (Residues(3), Digits(4))
    for scheme, engine in itertools.product(schemes, ("cublas", "hopper")):
        options: dict[str, Any] = {"scheme": scheme.name, "slices": scheme.count, "engine": engine}
        _, report = ozaki.matmul(cp.asarray(a), cp.asarray(b), return_report=True, **options)
        module = {"cublas": _cublas, "hopper": _hopper}[engine]
        expected = _cupy._workspace(module, scheme, 260, 3, 40, 50)
        at_most = isinstance(scheme, Digits) and engine == "hopper"
        assert report.workspace_bytes == expected or (at_most and report.workspace_bytes < expected), (scheme, engine)
        given = {"workspace_limit": expected, **options}
        same(
            ozaki.matmul(a, b, scheme=scheme.name, slices=scheme.count),
            ozaki.matmul(cp.asarray(a), cp.asarray(b), **given),
        )


def fair_shares(rng: np.random.Generator) -> None:
    """Narrow tiles: each to one cluster, and none ends much later than it must; all read what is stored."""
    for wide, narrow, clusters in rng.integers((1, 1, 2), (3000, 900, 70), (200, 3)).tolist():
        end, light = _hopper._narrow_shares(wide, narrow, clusters, 2**30)
        heavy = wide % clusters
        others = clusters - heavy
        assert 0 <= light <= narrow and (heavy > 0 or light == narrow)
        ends = [wide // clusters * 192 + len(range(o, light, others)) * 150 for o in range(others)]
        ends += [(wide // clusters + 1) * 192 + len(range(light + o, narrow, heavy)) * 150 for o in range(heavy)]
        assert sum(ends) == 192 * wide + 150 * narrow
        assert abs(max(ends) - end) < 1e-3 and end <= sum(ends) / clusters + 192
    for work, blocks, most in rng.integers((1, 2, 2), (3000, 300, 70), (300, 3)).tolist():
        clusters, whole, sharers = _hopper._few_shares(work, blocks, most)
        rest = work - whole
        assert 0 < clusters <= most and whole % clusters * rest == 0 and sharers <= clusters
        assert (rest == 0) == (sharers == 0) and (rest == 0 or (sharers > rest and rest * blocks >= 4 * sharers))
    _, unit, *_ = _hopper.tiled("right", 1, 128)
    for n in (*range(1, 900), *rng.integers(900, 99999, 99).tolist()):
        work = int(rng.integers(1, 300)), int(rng.integers(2, 70)), int(rng.integers(2, 70))
        (wide, narrow), end, _ = _hopper._columns(n, *work)
        strips = wide * 3 + narrow * 2
        fewest = -strips % 3
        assert end <= _hopper._narrow_shares(work[0] * ((strips - 2 * fewest) // 3), work[0] * fewest, *work[1:])[0]
        multiplied, stored = 2 * (192 * wide + 128 * narrow), _hopper.tiled("right", n, 128)[2]
        assert n <= multiplied <= stored and (multiplied < n + 128 or n <= 128)
        first = int(rng.integers(-(-n // unit))) * unit  # of a panel, which reads what is stored of all columns
        (wide, narrow), *_ = _hopper._columns(n - first, *work)
        assert first + 2 * (192 * wide + 128 * narrow) <= stored


def words(name: str, core: TensorCore, rng: np.random.Generator) -> None:
    """Twice, from the tape the second time; the tensor core's bits are those of the model."""
    method = replace(PRESETS[name], core=core)
    assert ozaki.plan(cp.zeros((3, 5), "f4"), cp.zeros((5, 2), "f4"), scheme=name).scheme == method
    for m, k, n in ((20, 70, 130), (3, 200, 5)):
        for order in ("C", "F", "C"):
            a, b = (np.asarray(matrix(rng, shape, "f4"), order=order) for shape in ((m, k), (k, n)))
            b[0, 0] = np.nan
            out = cp.full((m, n), np.nan, "f4")
            same(ozaki.matmul(a, b, scheme=method), ozaki.matmul(cp.asarray(a), cp.asarray(b), scheme=method, out=out))
    for far in (-100, 60):  # results that are subnormal, or overflow
        a, b = (np.ldexp(matrix(rng, shape, "f4"), far, dtype="f4") for shape in ((5, 70), (70, 130)))
        same(ozaki.matmul(a, b, scheme=method), ozaki.matmul(cp.asarray(a), cp.asarray(b), scheme=method))


def parts(rng: np.random.Generator) -> None:
    """Blocks of k that shared memory holds, several at a time or none; tiles; batches, views, prepared operands."""
    halfhalf, tf32, fabsum = (replace(PRESETS[name], core=A100) for name in ("halfhalf", "tf32tf32", "fabsum-v1"))
    cases = (
        (halfhalf, 4), (replace(halfhalf, block=16), 3), (replace(halfhalf, block=176), 2),
        (replace(tf32, block=64), 4), (fabsum, 1),
        (replace(tf32, count=3, scale_bits=5, block=48, accumulators="diagonal"), 3),
        (replace(halfhalf, block=32, promotion="fp64", accumulators="diagonal"), 4),
        (Words("bf16", 4, 5, accumulators="pair", rounding="RZ", core=A100), 2),
    )  # fmt: skip
    for (method, units), (warps, rows, columns) in zip(cases, itertools.cycle(((4, 64, 32), (8, 32, 32), (8, 64, 32)))):
        a, b = matrix(rng, (2, 5, 400), "f4"), matrix(rng, (2, 400, 70), "f4")
        left, right = cp.asarray(a), cp.asarray(b)
        engine = _word_mma.Engine(warps, rows, columns, units, group=1)
        with mock.patch.object(_word_mma.Engine, "of", return_value=engine):
            _again.forget()
            out = cp.full((2, 5, 140), np.nan, "f4")
            ozaki.matmul(left, right, scheme=method, out=out[..., ::2])
            same(ozaki.matmul(a, b, scheme=method), out[..., ::2])
            assert np.isnan(out[..., 1::2]).all()
            plan = ozaki.plan((5, 133), (133, 70), dtype="float32", scheme=method)
            prepared = ozaki.prepare(right[0, -2::-3], "right", plan)
            expected = ozaki.matmul(a[1, :, 1::3], b[0, -2::-3], scheme=method)
            same(expected, ozaki.matmul(left[1, :, 1::3], prepared, plan=plan))


def little_memory(rng: np.random.Generator) -> None:
    """Tiles by what is to be multiplied and what a multiprocessor has; one that holds no unit of the large tiles."""
    halfhalf, many = PRESETS["halfhalf"], Words("bf16", 8, accumulators="one", core=A100)

    def tile(words: Words, memory: int, columns: int) -> tuple[int, int, int]:
        with mock.patch.object(_word_mma, "_shared_memory", return_value=memory):
            _word_mma._large.cache_clear()
            engine = _word_mma.Engine.of(words, 1, 128, 40, columns)
        _word_mma._large.cache_clear()
        return engine.warps, engine.rows, engine.columns

    of_h200, of_a100, of_4090 = 233472, 167936, 102400
    assert [tile(halfhalf, of_h200, 64 * tiles) for tiles in (4, 5)] == [(8, 64, 16), (4, 64, 32)]
    assert [tile(halfhalf, memory, 6400) for memory in (of_a100, of_4090)] == [(8, 64, 32), (8, 32, 32)]
    assert [tile(PRESETS["markidis"], memory, 6400)[2] for memory in (of_h200, of_a100, of_4090)] == [64] * 3
    assert tile(PRESETS["triple-bf16"], of_h200, 6400) == (8, 64, 32)
    assert tile(many, of_4090, 6400) == (8, 32, 32)
    a, b = matrix(rng, (5, 40), "f4"), matrix(rng, (40, 70), "f4")
    with mock.patch.object(_word_mma, "_shared_memory", return_value=of_4090):
        same(ozaki.matmul(a, b, scheme=many), ozaki.matmul(cp.asarray(a), cp.asarray(b), scheme=many))
    _word_mma._large.cache_clear()


def pairs(rng: np.random.Generator) -> None:
    """Weights and blocks that no preset has, some longer than the ring; batches, views, prepared operands."""
    fabsum = replace(PRESETS["fabsum-v2"], scale_bits=11, block=448)
    some = Words("tf32", 3, 5, ((1, 1), (1, 3), (2, 2)), 96, "fp32", "pair", rounding="RZ")
    for method, k in ((fabsum, 1000), (some, 300), (Words("bf16", 4, 5, accumulators="pair", rounding="RZ"), 70)):
        a, b = matrix(rng, (2, 3, k), "f4"), matrix(rng, (2, k, 5), "f4")
        left, right = cp.asarray(a), cp.asarray(b)
        out = cp.full((2, 3, 10), np.nan, "f4")
        expected = ozaki.matmul(a, b, scheme=method)
        _, report = ozaki.matmul(left, right, scheme=method, out=out[..., ::2], return_report=True)
        same(expected, out[..., ::2])
        assert np.isnan(out[..., 1::2]).all() and report.engine.endswith("wgmma kernel"), report.engine
    plan = ozaki.plan(a[0].shape, b[0].shape, dtype="float32", scheme=method)
    prepared = ozaki.prepare(right[0], "right", plan)
    same(expected[0], ozaki.matmul(left[0], prepared, plan=plan))


def pair_columns(rng: np.random.Generator) -> None:
    """Tiles of every width, and more of them than clusters."""
    for name in ("single-fp16", "fabsum-v1"):
        method = PRESETS[name]
        widths = _word_pairs._COLUMNS[_word_pairs._totals(method)]
        for columns in widths:
            a, b = matrix(rng, (3, 80), "f4"), matrix(rng, (80, 2 * columns + 20), "f4")
            with mock.patch.dict(widths, {columns: 1.0}, clear=True):
                same(ozaki.matmul(a, b, scheme=method), ozaki.matmul(cp.asarray(a), cp.asarray(b), scheme=method))


def columns(rng: np.random.Generator) -> None:
    """Tiles of every width."""
    for name in ("halfhalf", "two-stage"):
        method = PRESETS[name]
        for columns in _word_hopper._COLUMNS[method.count]:
            a, b = matrix(rng, (3, 150), "f4"), matrix(rng, (150, columns + 20), "f4")
            with mock.patch.dict(_word_hopper._COLUMNS, {method.count: {columns: 1.0}}):
                same(ozaki.matmul(a, b, scheme=method), ozaki.matmul(cp.asarray(a), cp.asarray(b), scheme=method))


def tuned(rng: np.random.Generator) -> None:
    """What the table has for a product, beside the rule for others; the words of one operand serve both."""
    a, b = matrix(rng, (3, 150), "f4"), matrix(rng, (150, 300), "f4")
    for name, module in (("halfhalf", _word_hopper), ("fabsum-v1", _word_pairs), ("markidis", _word_mma)):
        method = PRESETS[name]
        ruled = module.Engine.of(method, 1, 3, 150, 300)
        choice = (8, 64, 32, 1, 2) if module is _word_mma else (ruled.columns, 2, 4)
        table = {"sm_90a": {name: {(1, 1, 2): choice}}}
        with mock.patch.object(_tuned, "table", return_value=table):
            _tuned._found.cache_clear()
            engine = module.Engine.of(method, 1, 3, 150, 300)
            assert repr(engine) == repr(module.Engine(*choice)) != repr(ruled)
            assert engine == ruled == module.Engine.of(method, 2, 3, 150, 300)
            same(ozaki.matmul(a, b, scheme=method), ozaki.matmul(cp.asarray(a), cp.asarray(b), scheme=method))
        _tuned._found.cache_clear()


def fastest(rng: np.random.Generator) -> None:
    """What runs where no accuracy is named, by the rates of the device."""
    halfhalf = (PRESETS["halfhalf"],)
    of_h200 = [mock.patch.object(module, "cluster_blocks", return_value=132) for module in (_hopper, _word_tiles)]
    of_shapes: tuple[tuple[tuple[int, int, int], Scheme, Any], ...] = (
        ((256, 2**16, 256), Digits(3), None),
        ((1024, 2**14, 1024), Digits(3), Digits(3)),
        ((64, 2**18, 64), Residues(7), None),
        ((10000, 1000, 500), Residues(7), halfhalf[0]),
    )
    for shape, scheme, expected in of_shapes:
        with of_h200[0], of_h200[1]:
            m, k, n = shape
            assert _cupy.fastest((1, m, n), k, "float32", (scheme, *halfhalf, None)) == expected, shape
    for n, dtype, scheme, expected in (
        (512, "float32", Residues(7), None),
        (768, "float32", Residues(7), None),
        (1024, "float32", Residues(7), None),
        (1536, "float32", Residues(7), halfhalf[0]),
        (2048, "float32", Residues(7), halfhalf[0]),
        (2000, "float32", Digits(3), halfhalf[0]),
        (4096, "float32", Digits(3), Digits(3)),
        (4096, "float32", Residues(7), halfhalf[0]),
        (8192, "float32", Digits(3), Digits(3)),
        (8192, "float32", Residues(7), halfhalf[0]),
        (16384, "float32", Digits(3), Digits(3)),
        (1024, "float64", Residues(14), None),
        (2048, "float64", Residues(14), Residues(14)),
        (8192, "float64", Residues(14), Residues(14)),
    ):
        ways = (scheme, *(halfhalf if dtype == "float32" else ()), None)
        with of_h200[0], of_h200[1]:
            assert _cupy.fastest((1, n, n), n, dtype, ways) == expected, (n, dtype, scheme)
    for dtype, k in itertools.product(("f4", "f8"), (0, 1, 2)):
        a, b = cp.asarray(matrix(rng, (9, k), dtype)), cp.asarray(matrix(rng, (k, 5), dtype))
        assert ozaki.matmul(a, b, return_report=True)[1].native
    a, b = (rng.uniform(1, 2, shape).astype("f4") for shape in ((40, 300), (300, 50)))  # words lose none of these
    with mock.patch.multiple(_rates.Rates, native=lambda *_: np.inf, slices=lambda *_: np.inf):
        c, report = ozaki.matmul(cp.asarray(a), cp.asarray(b), return_report=True)
        assert (report.scheme, report.reproducible, report.native) == ("halfhalf", False, False), report
        assert report.measure == "componentwise" and report.bound <= _bounds.native(300, "float32")
        same(ozaki.matmul(a, b, scheme="halfhalf"), c)
        _, report = ozaki.matmul(cp.asarray(a), cp.asarray(b), reproducible=True, return_report=True)
        assert report.scheme == "residues"


def no_worse_than_native(rng: np.random.Generator) -> None:
    """Without an accuracy, operands whose small elements words lose, and such that need many slices."""
    k = 300
    scale = np.ldexp(1.0, rng.integers(-30, 31, k)).astype("f4")
    a, b = matrix(rng, (40, k), "f4", 0), matrix(rng, (k, 50), "f4", 0)
    graded = a * scale, b / scale[:, None]
    lost = componentwise_error(ozaki.matmul(*graded, scheme="halfhalf"), *graded)
    assert lost > _bounds.native(k, "float32")
    times = {"words": 1.0, "native": 10.0}
    with (
        mock.patch.object(_rates.Rates, "words", side_effect=lambda *_: times["words"]),
        mock.patch.object(_rates.Rates, "native", side_effect=lambda *_: times["native"]),
        mock.patch.object(_rates.Rates, "slices", side_effect=lambda *a: float(a[5].products)),
    ):
        for slower, ran in (("native", "residues"), ("slices", "native")):
            times["native"] = 1e3 if slower == "native" else 10.0
            _cupy._fastest.cache_clear()
            for x, y in (graded, graded):  # the second one may be done again
                c, report = ozaki.matmul(cp.asarray(x), cp.asarray(y), return_report=True)
                assert report.scheme == ran and report.bound <= _bounds.native(k, "float32"), report
                assert componentwise_error(cp.asnumpy(c), x, y) <= report.bound
                same(cp.asnumpy(c), cp.asnumpy(ozaki.matmul(cp.asarray(x), cp.asarray(y))))
            _, report = ozaki.matmul(cp.asarray(a), cp.asarray(b), return_report=True)
            assert report.scheme == "halfhalf" and report.bound <= _bounds.native(k, "float32"), report
        long = matrix(rng, (2, 16500), "f4", 0), matrix(rng, (16500, 3), "f4", 0)  # described as a whole
        times["native"] = 1e3
        _cupy._fastest.cache_clear()
        small = np.where(np.arange(k) % 2, a, np.ldexp(a, -40)).astype("f4")  # words lose these elements
        assert not held(a, b) and not held(*long) and not held(small, b, accuracy="fp32")
        times["words"], times["native"] = 1e3, 10.0  # residues for these, native for such that need more
        _cupy._fastest.cache_clear()
        _again.forget()
        run = _call.Call.run
        with mock.patch.object(_call.Call, "run", autospec=True, side_effect=run) as planned:
            for x, y in ((a, b), (a, b), graded, (a, b), (a, b)):
                ozaki.matmul(cp.asarray(x), cp.asarray(y))
        assert [call.args[1].native for call in planned.call_args_list] == [False, True, False]
    _cupy._fastest.cache_clear()


def digits_where_ordinary(rng: np.random.Generator) -> None:
    """Without an accuracy, digits for ordinary operands, words for others; those that only look it are planned anew."""
    k = 2560
    usual = matrix(rng, (12, k), "f4", 0), matrix(rng, (k, 9), "f4", 0)
    wide = tuple(np.exp(x) for x in usual)
    early = np.arange(k) < 1024
    late = np.where(early, usual[0], wide[0]), np.where(early[:, None], usual[1], wide[1])
    times = {"words": 6.5, "native": 1e3}
    with (
        mock.patch.object(_rates.Rates, "words", side_effect=lambda *_: times["words"]),
        mock.patch.object(_rates.Rates, "native", side_effect=lambda *_: times["native"]),
        mock.patch.object(_rates.Rates, "slices", side_effect=lambda *a: float(a[5].products)),
    ):
        for words, others in ((6.5, "halfhalf"), (20.0, "residues")):
            times["words"] = words
            _cupy._fastest.cache_clear()
            _again.forget()
            cases = (*usual, "digits"), (*wide, others), (*late, others)
            found = []
            for x, y, scheme in cases:
                c, report = ozaki.matmul(cp.asarray(x), cp.asarray(y), return_report=True)
                assert report.scheme == scheme and report.bound <= _bounds.native(k, "float32"), report
                assert componentwise_error(cp.asnumpy(c), x, y) <= report.bound
                slices: dict[str, Any] = {} if scheme == "halfhalf" else {"slices": report.slices}
                same(ozaki.matmul(x, y, scheme=scheme, **slices), c)
                found.append(cp.asnumpy(c))
            run = _call.Call.run
            with mock.patch.object(_call.Call, "run", autospec=True, side_effect=run) as planned:
                for i in (0, 1, 1, 0, 0, 2, 2, 0):
                    x, y, _ = cases[i]
                    same(found[i], ozaki.matmul(cp.asarray(x), cp.asarray(y)))
            ran = [call.args[1].scheme.name for call in planned.call_args_list]
            assert ran == ["digits", others, "digits", others, others, "digits"], ran
        assert not held(*usual) and not held(*wide)
        _, report = ozaki.matmul(cp.asarray(usual[0]), cp.asarray(usual[1]), workspace_limit=2**20, return_report=True)
        assert report.scheme == "digits"
        _, report = ozaki.matmul(
            *map(cp.asarray, usual), accuracy=ozaki.Accuracy("row-column", 1e-5), return_report=True
        )
        assert report.scheme == "digits"
    _cupy._fastest.cache_clear()


def words_for_a_target(rng: np.random.Generator) -> None:
    """Words where they prove what is asked, by the description of each call's operands; else slices."""
    usual = [matrix(rng, (40, 300), "f4", 0) for _ in range(3)]
    b, wide = matrix(rng, (300, 50), "f4", 0), matrix(rng, (300, 250), "f4", 0)
    small, graded = usual[0].copy(), usual[0].copy()
    small[3, 7] *= np.float32(2.0**-40)  # adds next to nothing to the bound
    graded[:, ::2] *= np.float32(2.0**-40)  # too much to see at a first look
    begin, got = _search.Search.begin, []
    with (
        mock.patch.object(_rates.Rates, "slices", return_value=1.0),
        mock.patch.object(_search.Search, "begin", autospec=True, side_effect=begin) as planned,
    ):
        for a in (*usual[:2], small, graded, graded, usual[2]):
            out = cp.full((40, 50), np.nan, "f4")
            ozaki.matmul(cp.asarray(a), cp.asarray(b), out=out, accuracy="fp32")
            got.append((a, out))
        assert planned.call_count == 1  # slices are done again only while words prove too little
        tight: dict[str, Any] = {"accuracy": "fp32", "workspace_limit": 7 * 10**5}
        for scale in (1, 64):  # in panels, never done again
            x = wide * np.float32(scale)
            same(ozaki.matmul(b.T, x, scheme="halfhalf"), ozaki.matmul(cp.asarray(b.T), cp.asarray(x), **tight))
        for accuracy in ("fp32", 22, ozaki.Accuracy("row-column", 1e-5)):
            plan = ozaki.plan(cp.asarray(small), cp.asarray(b), accuracy=accuracy)
            assert plan.scheme == PRESETS["halfhalf"] and "proves what is asked" in plan.why, plan
            assert ozaki.plan(small, b, scheme="halfhalf", accuracy=accuracy).bound <= plan.bound < 6e-6
        for more in (25, 1e-7, "fp64"):  # of another format, or more than they prove
            assert not isinstance(ozaki.plan(cp.asarray(a), cp.asarray(b), accuracy=more).scheme, Words)
        plan = ozaki.plan(cp.asarray(graded), cp.asarray(b), accuracy="fp32")
        assert not isinstance(plan.scheme, Words) and "halfhalf proves too little" in plan.why, plan
    for a, c in got:
        method = {"accuracy": "fp32", "reproducible": True} if a is graded else {"scheme": "halfhalf"}
        same(ozaki.matmul(a, b, **method), c)


def plans(rng: np.random.Generator) -> None:
    """The same plan, bound and bits from data; for heavy tails from wide magnitudes and exponents."""
    for dtype, (m, k, n), tails in (("f4", (20, 1100, 25), 0), ("f8", (30, 200, 20), 0), ("f8", (20, 1100, 25), 3)):
        a, b = (matrix(rng, shape, dtype) * rng.standard_cauchy(shape) ** tails for shape in ((m, k), (k, n)))
        a, b = a.astype(dtype), b.astype(dtype)
        expected, told = ozaki.matmul(a, b, reproducible=True, return_report=True)
        with mock.patch.object(_cupy, "wide_product", side_effect=_cupy.wide_product) as wide:
            got, report = ozaki.matmul(cp.asarray(a), cp.asarray(b), reproducible=True, return_report=True)
        same(expected, got)
        assert (told.scheme, told.slices, told.bound) == (report.scheme, report.slices, report.bound)
        assert wide.called == (tails > 0)
    a, b = matrix(rng, (2, 1, 4, 100), "f8"), matrix(rng, (3, 100, 5), "f8")
    for accuracy in ("fp64", ozaki.Accuracy("row-column", 1e-14), ozaki.Accuracy("normwise", 1e-14)):
        options: dict[str, Any] = {"accuracy": accuracy, "reproducible": True}
        same(ozaki.matmul(a, b, **options), ozaki.matmul(cp.asarray(a), cp.asarray(b), **options))


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


def equal_choices_again(_rng: np.random.Generator) -> None:
    """Numbers that are equal but mean another accuracy are another choice."""
    a = b = cp.asarray(np.eye(4))
    for accuracy, slices in ((60, 15), (60.0, 0), (60, 15), (60.0, 0)):
        _, report = ozaki.matmul(a, b, accuracy=accuracy, return_report=True)
        assert (report.slices > 0) == (slices > 0), accuracy
        ozaki.matmul(a, b, accuracy=accuracy)
        ozaki.matmul(a, b, accuracy=accuracy)
    assert Choices(60).key != Choices(60.0).key
    ozaki.matmul(a, b, accuracy=1)
    nonsense: Any
    for nonsense in (True, np.True_):
        with pytest.raises(TypeError, match=r"^accuracy: "):
            ozaki.matmul(a, b, accuracy=nonsense)


def many_blocks(rng: np.random.Generator) -> None:
    """More columns, and more of a batch, than a grid has blocks."""
    with mock.patch.object(_recombine, "_MOST_BLOCKS", 2):
        for left, right in (((5, 30, 40), (5, 40, 700)), ((30, 40), (40, 900)), ((3, 4, 40), (40, 300))):
            for scheme, slices, dtype in (("residues", 14, "f8"), ("digits", 4, "f4")):
                a, b = rng.standard_normal(left).astype(dtype), rng.standard_normal(right).astype(dtype)
                got = ozaki.matmul(cp.asarray(a), cp.asarray(b), scheme=scheme, slices=slices)
                same(ozaki.matmul(a, b, scheme=scheme, slices=slices), got)


def out_elsewhere(_rng: np.random.Generator) -> None:
    """A result for another device is refused."""
    a = cp.asarray(np.eye(4))
    out = cp.full((4, 4), np.nan)
    out.device_id = 1
    with pytest.raises(ValueError, match=r"^out: lies on device 1"):
        ozaki.matmul(a, a, scheme="residues", slices=14, out=out)
    with pytest.raises(ValueError, match=r"^out: lies on device 1"):
        ozaki.gemm(1.0, a, a, 0.0, None, out=out)


def ends_of_gemm(rng: np.random.Generator) -> None:
    """Both factors, addends of any order, subnormals; into a result that is the addend, overlaps it, or is apart."""
    for shape in ((5, 9), (2, 3, 2, 2100), (5000,), (), (4, 0)):
        n = shape[-1] if shape else 0
        for dtype, addend in (("f4", "f4"), ("f8", "f8"), ("f8", "f4")):
            x, far = rng.standard_normal(shape).astype(dtype), np.ldexp(1.0, -140 if dtype == "f4" else -1060)
            for alpha, beta in np.array([(-1.5, 0), (1, 1), (1 / 3, -0.7), (far, 0), (far, far)], dtype):
                for width, some in ((n, slice(None)), (2 * n + 1, slice(1, None, 2)), (2 * n, slice(None, n - 1, -1))):
                    whole = np.array(rng.standard_normal((*shape[:-1], width)[-len(shape) or 2 :]), addend)
                    on_device = cp.asarray(whole)
                    y = on_device[(..., some) if shape else ...]
                    outs = [None, cp.full(shape, np.nan, dtype), cp.full((*shape, 2), np.nan, dtype)[..., 0]]
                    if addend == dtype:  # the addend itself, and what overlaps it
                        outs += [y, on_device[..., :n]] if width == 2 * n + 1 and shape else [y]
                    for out in outs:
                        expected, given = np.array(x), cp.asarray(np.array(x))
                        into, before = given if out is None else out, cp.asnumpy(y).copy()
                        _numpy.axpby(alpha, expected, beta, before if beta else None, expected)
                        _cupy.axpby(alpha, given, beta, y if beta else None, into)
                        same(expected, into)
    a, b, c = (rng.standard_normal((30, 30)) for _ in range(3))
    options: dict[str, Any] = {"scheme": "residues", "slices": 14}
    expected, out = ozaki.gemm(2.0, a, b, -0.3, c, **options), cp.asarray(c)
    assert ozaki.gemm(2.0, cp.asarray(a), cp.asarray(b), -0.3, out, out=out, **options) is out
    same(expected, out)


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


def memory_is_held(rng: np.random.Generator) -> None:
    """What a proof looks at is held until it is through, when it is done again too."""
    a, b = cp.asarray(rng.standard_normal((20, 1100))), cp.asarray(rng.standard_normal((1100, 25)))
    call, finds = Tape.__call__, _search.Search.finds
    held: list[weakref.ref[Any]] = []

    def called(tape: Tape, *arrays: Any) -> Any:
        memory = call(tape, *arrays)
        held.append(weakref.ref(memory))
        return memory

    def found(search: Any, scheme: Any) -> Any:
        assert held[-1]() is not None
        return finds(search, scheme)

    with mock.patch.object(Tape, "__call__", called), mock.patch.object(_search.Search, "finds", found):
        for _ in range(3):
            ozaki.matmul(a, b, accuracy="fp64", reproducible=True)
    assert len(held) == 2 and held[-1]() is None


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


BOTH = (("residues", 14, "f8"), ("residues", 7, "f4"), ("digits", 3, "f4"), ("digits", 7, "f8"), ("digits7", 5, "f4"))
CUBLAS = (
    *BOTH, ("residues", 20, "f8"), ("digits", 10, "f8"), ("fp16-digits", 4, "f4"), ("fp16-digits", 11, "f8"),
)  # fmt: skip
WORDS = ("halfhalf", "tf32tf32", "two-stage")
PAIRS = ("single-fp16", "single-bf16", "single-tf32", "double-bf16", "triple-bf16", "fabsum-v1", "fabsum-v2")
CASES: dict[str, Callable[[np.random.Generator], None]] = {
    "descriptions": descriptions,
    "magnitudes": magnitudes,
    "proofs": proofs,
    "exponents": exponents,
    "plans": plans,
    "plans-again": plans_again,
    "plans-of-other-data-again": plans_of_other_data_again,
    "memory-is-held": memory_is_held,
    "batches-again": batches_again,
    "heavy-plans-again": heavy_plans_again,
    "native-again": native_again,
    "tapes-outlive-launches": tapes_outlive_launches,
    "equal-choices-again": equal_choices_again,
    "out-elsewhere": out_elsewhere,
    "many-blocks": many_blocks,
    "ends-of-gemm": ends_of_gemm,
    "far": far,
    "fp16-sums": fp16_sums,
    **{"-".join(map(str, case)): partial(product, *case, "cublas") for case in CUBLAS},
    **{name: partial(words, name, A100) for name in (*WORDS, "markidis", "triple-bf16", "fabsum-v2")},
    "parts": parts,
    "little-memory": little_memory,
    HOPPER + "proofs": fused_proofs,
    HOPPER + "one-read": one_read,
    HOPPER + "one-read-chosen": one_read_chosen,
    HOPPER + "words-in-one-read": words_in_one_read,
    HOPPER + "looks": looks,
    HOPPER + "together": together,
    HOPPER + "split": split_along_k,
    HOPPER + "column-tiles": column_tiles,
    HOPPER + "halves": halves,
    HOPPER + "shares": fair_shares,
    HOPPER + "parts-of-k": parts_of_k,
    HOPPER + "engines": engines,
    HOPPER + "limits": within_limits,
    HOPPER + "workspaces": workspaces,
    HOPPER + "quadrants": quadrants,
    HOPPER + "winograd": winograd,
    HOPPER + "many-blocks": many_blocks,
    HOPPER + "fastest": fastest,
    HOPPER + "no-worse-than-native": no_worse_than_native,
    HOPPER + "digits-where-ordinary": digits_where_ordinary,
    HOPPER + "words-for-a-target": words_for_a_target,
    HOPPER + "columns": columns,
    HOPPER + "pairs": pairs,
    HOPPER + "pair-columns": pair_columns,
    HOPPER + "tuned": tuned,
    **{HOPPER + "-".join(map(str, case)): partial(product, *case, "hopper") for case in BOTH},
    **{HOPPER + name: partial(words, name, H100) for name in (*WORDS, *PAIRS)},
}

if __name__ == "__main__":
    if len(sys.argv) == 3:
        streams.chance.seed(int(sys.argv[2]))
        CASES[sys.argv[1]](np.random.default_rng(int(sys.argv[2])))
    else:
        print(*CASES, sep="\n")
