"""Operands described and split in one read."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial
from math import ceil
from typing import Any
from unittest import mock

import cupy as cp
import numpy as np
from ozaki.backends.cupy._magnitudes import MagnitudeLayout, Magnitudes
from ozaki.backends.cupy._tops import tops
from ozaki.backends.cupy.engines import _hopper, _word_hopper, _word_split, _word_tiles
from ozaki.backends.cupy.launching._host import Flag
from ozaki.backends.cupy.launching._launch import View

import ozaki
from ozaki.backends.cupy import _describe_split, _magnitudes, _split
from ozaki.backends.cupy import backend as _cupy
from ozaki.bounds.description import FIELDS
from ozaki.schemes import PRESETS, Digits, Residues, Words
from ozaki.tensor_core import H100
from runs.operands import hard, matrix, same

MOST_SHARED = 227 * 1024 - 2048
"""Bytes of dynamic shared memory of a block, beside static ones."""


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


def filled_places(scheme: Any, side: str, layout: Any) -> np.ndarray:
    """Where the slices of rows that are filled lie: where those of ones are, of any number."""
    batch = layout.size // (scheme.count * layout.rows * layout.k)
    ones = cp.asarray(np.ones((batch, layout.filled, layout.k), "f4"))
    slices = _split.split(_cupy.describe(ones), side, scheme, _hopper.layout(scheme, side, *ones.shape))
    return np.tile((cp.asnumpy(slices.planes).reshape(scheme.count, -1) != 0).any(0), scheme.count)


def magnitudes_of(x: np.ndarray, sampled: bool) -> Magnitudes:
    """Room for those of x as both operands, in tiles."""
    room = _magnitudes.room(x, x, MagnitudeLayout.in_tiles(x.shape[1], x.shape[1], x.shape[2], sampled))
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
            for y in (cp.asarray(np.sign(cp.asnumpy(x))), x):
                lost = Flag()
                got = _describe_split.find_and_split(y, words, layout, lost).begin()
                assert lost.arriving()() == lossy(cp.asnumpy(y), words)
        told = f"{name} {side} {order} {stream}"
        for field in ("top", "nonfinite"):
            i = FIELDS.index(field)
            np.testing.assert_array_equal(expected.described.fields[i], got.described.fields[i], err_msg=told)
        np.testing.assert_array_equal(expected.mu, got.mu, err_msg=told)
        np.testing.assert_array_equal(expected.planes, got.planes, err_msg=told)
    _describe_split._launch_of_words.cache_clear()


def lossy(x: np.ndarray, words: Words) -> bool:
    """Whether elements are below the floor of words when they are scaled."""
    magnitudes = np.where(np.isfinite(x), abs(x), 0).astype("f8")
    tops = np.frexp(magnitudes.max(axis=-1, keepdims=True))[1]
    small = (magnitudes > 0) & (magnitudes < np.ldexp(1.0, tops + words.floor - words.ceiling))
    return bool(small.any())


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
