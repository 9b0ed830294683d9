"""Kernels that describe and split an operand in one read of it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial
from math import ceil
from typing import Any
from unittest import mock

import cupy as cp
import numpy as np

import ozaki
from ozaki.backends.cupy import devices
from ozaki.backends.cupy.devices import Device, rates
from ozaki.backends.cupy.program.arrays import DTYPES, View, view_of
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.steps import one_read as steps
from ozaki.backends.cupy.steps.describing import describe, find_largest
from ozaki.backends.cupy.steps.engines import word_promoted
from ozaki.backends.cupy.steps.engines.choice import engine_of, fused_engine
from ozaki.backends.cupy.steps.engines.word_tiles import layout as layout_of_words
from ozaki.backends.cupy.steps.magnitudes import RESULT, MagnitudeLayout, Magnitudes
from ozaki.backends.cupy.steps.magnitudes import magnitudes as take_magnitudes
from ozaki.backends.cupy.steps.words import split_words
from ozaki.bounds.description import FIELDS
from ozaki.schemes import PRESETS, Digits, Residues, Words
from ozaki.tensor_core import H100
from runs.device import Part, like_the_device, seen
from runs.operands import hard, matrix, same

MOST_SHARED = 227 * 1024 - 2048
"""Bytes of dynamic shared memory of a block, besides static ones."""


def one_read(rng: np.random.Generator) -> None:
    """One read finds the description, exponents and slices that two find; one block and more, views of every kind."""
    residues = fused_engine(devices.current(), Residues(14))
    for char, strides, rows, whole in itertools.product("fd", ((1, 2**17), (2**17, 1)), (2, 8192), (True, False)):
        view = View(DTYPES[char], (1, rows, 1), (0, *strides))
        for k in range(128, 32769, 128):
            scheme, tile = Digits(3) if char == "f" else Residues(14), residues.layout(Residues(14), "left", 1, 256, k)
            if not steps.fits(scheme, tile, view, whole):
                break
            held = steps._held(k, view, whole)
            assert held.share % 128 == 0 and k <= held.cluster * held.share
            assert steps._EXCHANGED + held.all_rows * held.share * view.dtype.itemsize <= MOST_SHARED
            assert view.along_k or held.rows * view.dtype.itemsize % 16 == 0
            assert held.sharing == 4 or (held.cluster == 1 and held.rows > 1)
            of_lane = 4 * ceil(held.share / (128 * held.sharing))
            assert of_lane <= 64 or k > rates.LONGEST_OF_SUMS
        assert k * view.dtype.itemsize > (65536 if not whole and view.along_k else 32768)
    cases = (
        (Residues(14), "f8", "right", True), (Residues(7), "f4", "right", True), (Digits(3), "f4", "right", False),
        (Digits(7), "f8", "right", True), (Digits(7), "f8", "right", False), (Digits(5, 7), "f4", "right", True),
        (Residues(20), "f8", "right", True), (Digits(4, 7), "f4", "left", False), (Digits(2), "f4", "left", True),
    )  # fmt: skip
    for scheme, dtype, side, whole in cases:
        fused = fused_engine(devices.current(), scheme)
        order, cluster = rng.integers(4), int(rng.choice((1, 2) if whole else (1, 2, 4)))
        known: tuple[int, ...] = (2, 4) if order == 0 and dtype == "f8" else (4,) if order == 0 else (1, 2)
        if order == 0 and dtype == "f4" and not whole:
            known = (4, 8)
        held = steps._Held(cluster, 384 if cluster == 1 else 512 // cluster, int(rng.choice(known)))
        if cluster == 1 and held.rows > 1:
            held = held._replace(sharing=int(rng.choice((1, 4))))
        x = cp.asarray(hard(rng, 304, dtype))  # rows begin at multiples of 16 bytes
        x = (x.swapaxes(1, 2).copy().swapaxes(1, 2)[..., 3:], x[..., :301], x[:, ::-1, 1:], x[1:, :, ::-1])[order]
        part, other = Part(), Part()
        given, layout = part.given(x), fused.layout(scheme, side, *x.shape)
        by_itself = (describe if whole else find_largest)(part.b, given)
        expected = fused.split(part.b, by_itself, side, scheme)
        read = other.given(x)
        room = magnitudes_of(other, x, bool(rng.integers(2))) if whole else None
        steps._describe_split_kernel.cache_clear()  # whose entries have other sizes than `held`
        with mock.patch.object(steps, "_held", return_value=held):
            got = steps.describe_and_split(other.b, read, side, scheme, layout, whole, room)
        steps._describe_split_kernel.cache_clear()
        case = f"{scheme} {dtype} {side} {order} {held}"
        wanted_fields, found_fields = part.fields(by_itself), other.fields(got.described)
        for i, field in enumerate(FIELDS):
            if whole or field in ("top", "nonfinite"):
                np.testing.assert_array_equal(wanted_fields[i], found_fields[i], err_msg=f"{field} {case}")
        np.testing.assert_array_equal(part.value(expected.mu), other.value(got.mu), err_msg=case)
        filled = filled_places(scheme, side, layout)
        assert filled.mean() == layout.written_rows / layout.rows
        np.testing.assert_array_equal(
            part.value(expected.planes)[filled], other.value(got.planes)[filled], err_msg=case
        )
        if room is not None:
            want = part.value(taken(part, x, x, room.layout, side))
            width = room.layout.k * (4 if room.layout.sampled else 1)
            ones = cp.asarray(np.ones((x.shape[0], layout.written_rows, width), "f4"))
            filled = part.value(taken(part, ones, ones, room.layout, side)) != 0
            assert filled.mean() == layout.written_rows / layout.rows
            np.testing.assert_array_equal(want[filled], other.value(getattr(room, side))[filled], err_msg=case)
            if side == "left":
                assert (other.raw(room.results[0], len(room.results) * RESULT.size) == 0).all()


def filled_places(scheme: Any, side: str, layout: Any) -> np.ndarray:
    """A mask of the bytes of slices that the kernel has to fill: those where the slices of ones are nonzero."""
    batch, part = layout.size // (scheme.count * layout.rows * layout.k), Part()
    ones = part.given(cp.asarray(np.ones((batch, layout.written_rows, layout.k), "f4")))
    slices = fused_engine(part.device, scheme).split(part.b, describe(part.b, ones), side, scheme)
    planes = part.value(slices.planes).reshape(scheme.count, -1)
    return np.tile((planes != 0).any(0), scheme.count)


def magnitudes_of(part: Part, x: Any, sampled: bool) -> Magnitudes:
    """Memory for the magnitudes of x as the left and as the right operand, in tiles."""
    _, rows, k = x.shape
    taken = (k // 128) * 32 + min(k % 128, 32) if sampled else k
    sides = (part.device.tiles.padded(side, rows, taken) for side in ("left", "right"))
    (tile_a, _, rows_a, depth), (tile_b, _, rows_b, _) = sides
    layout = MagnitudeLayout((rows_a, rows_b), depth, sampled, (tile_a, tile_b))
    return Magnitudes.room(part.b, part.given(x), part.given(x), layout, clear=False)


def taken(part: Part, x: Any, y: Any, layout: MagnitudeLayout, side: str) -> Any:
    """The magnitudes of an operand, taken by a kernel of their own."""
    left, right = (describe(part.b, part.given(of)) for of in (x, y))
    with mock.patch.object(MagnitudeLayout, "of", return_value=layout):
        return getattr(take_magnitudes(part.b, part.device, left, right, "narrow"), side)


def words_in_one_read(rng: np.random.Generator) -> None:
    """One read finds the words, exponents and largest elements that two find."""
    for strides in ((1, 2**18), (2**18, 1)):
        view = View(DTYPES["f"], (1, 2, 1), (0, *strides))
        for k in range(128, rates.LONGEST_OF_WORDS + 1, 128):
            stream = steps._stream(k, view)
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
        stream = steps._Stream(cluster, int(rng.choice(warps[cluster])) * group // 16, group)
        x = cp.asarray(x)
        x = (x.swapaxes(1, 2).copy().swapaxes(1, 2)[..., 3:], x[..., :301], x[:, ::-1, 1:], x[1:, :, ::-1])[order]
        words = replace(PRESETS[name], core=H100)
        together = words.count if word_promoted.multiplies(words) else 1
        layout = layout_of_words(words, columns, together, side, *x.shape)
        part = Part()
        whole = find_largest(part.b, part.given(x))
        expected = split_words(part.b, whole, words, layout)
        for y in (cp.asarray(np.sign(cp.asnumpy(x))), x):
            read = Part(like_the_device())
            lost = read.b.cleared_on_host("lost", (1,), "I")
            with mock.patch.object(steps, "_stream", return_value=stream):
                got = steps.find_and_split(read.b, read.device, read.given(y), words, layout, lost)
            raised = read.value(read.b.evidence(read.b.arrive(lost), np.copy))
            assert raised[0] == lossy(cp.asnumpy(y), words)
        case = f"{name} {side} {order} {stream}"
        wanted_fields, found_fields = part.fields(whole), read.fields(got.described)
        for field in ("top", "nonfinite"):
            i = FIELDS.index(field)
            np.testing.assert_array_equal(wanted_fields[i], found_fields[i], err_msg=case)
        np.testing.assert_array_equal(part.value(expected.mu), read.value(got.mu), err_msg=case)
        np.testing.assert_array_equal(part.value(expected.planes), read.value(got.planes), err_msg=case)


def lossy(x: np.ndarray, words: Words) -> bool:
    """Whether some elements, once scaled, are below the floor of the words."""
    magnitudes = np.where(np.isfinite(x), abs(x), 0).astype("f8")
    tops = np.frexp(magnitudes.max(axis=-1, keepdims=True))[1]
    small = (magnitudes > 0) & (magnitudes < np.ldexp(1.0, tops + words.floor - words.ceiling))
    return bool(small.any())


def one_read_chosen(rng: np.random.Generator) -> None:
    """Products read an operand once where blocks can hold its rows and that is faster, with the same bits."""
    done = []
    digits = ("f4", 2700, "digits", 2), ("f4", 9000, "digits", 3)
    cases = ("f8", 2100, "residues", 14), ("f8", 300, "residues", 14), *digits
    for dtype, k, scheme, slices in cases:
        a, b = rng.standard_normal((9, k)).astype(dtype), rng.standard_normal((k, 11)).astype(dtype)
        multiply = partial(ozaki.matmul, scheme=scheme, slices=slices)
        with seen() as calls:
            c = multiply(cp.asarray(a), cp.asarray(b), engine="fused")
        assert once_each(calls.names, "describe_split"), (dtype, k, scheme)
        same(multiply(a, b), c)
        done.append((multiply, a, b, c))
    for multiply, a, b, c in done:  # after calls with rows of other lengths
        with seen() as calls:
            same(c, multiply(cp.asarray(a), cp.asarray(b), engine="fused"))
        assert calls.repeated == 1 and once_each(calls.names, "describe_split")
    default = partial(ozaki.matmul, accuracy="fp64", reproducible=True)
    for repeated in (0, 1, 1):
        a, b = rng.standard_normal((10, 300)), rng.standard_normal((300, 11))
        with seen() as calls:
            same(default(a, b), default(cp.asarray(a), cp.asarray(b), engine="fused"))
        assert calls.repeated == repeated and once_each(calls.names, "describe_split")
    for with_report in (True, False, False, True):  # magnitudes are taken in the same read
        a, b = matrix(rng, (260, 300), "f4"), matrix(rng, (300, 257), "f4")
        with seen() as calls:
            c = default(cp.asarray(a), cp.asarray(b), engine="fused", return_report=with_report)
        assert {"describe_split", "proof_gemm"} <= {*calls.names}
        assert {"describe", "magnitudes"}.isdisjoint(calls.names)
        expected, other = default(a, b, return_report=True)
        if with_report:
            c, report = c
            assert report.bound == other.bound
        same(expected, c)
    for dtype, k, scheme, slices, along_k in (
        ("f8", 200, "residues", 49, True), ("f4", 8200, "residues", 7, True), ("f8", 8200, "digits", 2, True),
        ("f4", 16400, "digits", 2, True), ("f4", 16400, "digits", 2, False), ("f8", 6200, "residues", 14, False),
    ):  # fmt: skip
        x = cp.zeros((9, k) if along_k else (k, 9), dtype)
        plan = ozaki.plan((9, k), (k, 11), dtype=x.dtype.name, engine="fused", scheme=scheme, slices=slices)
        assert not reads_once(plan, x if along_k else x.T, whole=scheme == "residues"), (dtype, k, scheme, along_k)
    words = replace(PRESETS["halfhalf"], core=H100)
    a, b = rng.standard_normal((9, 300)).astype("f4"), rng.standard_normal((300, 11)).astype("f4")
    with seen() as calls:
        ozaki.matmul(cp.asarray(a), cp.asarray(b), scheme=words)
    assert once_each(calls.names, "tops_split_words")
    plan = ozaki.plan((9, 16400), (16400, 11), dtype="float32", scheme=words)
    assert not reads_once(plan, cp.zeros((9, 16400), "f4"), whole=False)


def once_each(kernels: list[str], kernel: str) -> bool:
    """Whether that kernel ran for each operand, and no other one described or split them."""
    others = {"describe", "describe_finish", "tops", "split", "split_words"}
    return kernels.count(kernel) == 2 and others.isdisjoint(kernels)


def reads_once(plan: Any, rows: Any, whole: bool) -> bool:
    """Whether a left operand with these rows is described and split by one kernel."""
    device: Device = devices.current()
    array = Builder().given("a", view_of(rows[None]))
    assert plan.scheme is not None
    return engine_of(device, plan).splits_in_one_read(plan.scheme, "left", array, whole)
