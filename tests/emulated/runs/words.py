"""Products of words, on every engine that multiplies them."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from unittest import mock

import cupy as cp
import numpy as np

import ozaki
from ozaki.backends.cupy import devices
from ozaki.backends.cupy.program import compiling
from ozaki.backends.cupy.steps.engines import word_mma, word_pairs, word_promoted, word_tiles
from ozaki.backends.cupy.steps.engines.word_mma import MmaWords, Shape
from ozaki.schemes import PRESETS, Words
from ozaki.tensor_core import A100
from runs.device import in_place_of_the_device, like_the_device
from runs.operands import matrix, same

MOST_SHARED = 227 * 1024
"""Bytes of shared memory that a block of Hopper can have."""


def parts(rng: np.random.Generator) -> None:
    """The mma.sync kernel: units of k in shared memory, shapes of tiles, batches, views, prepared operands."""
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
        engine = MmaWords(devices.current(), Shape(warps, rows, columns, units))
        with mock.patch.object(MmaWords, "of", return_value=engine), in_place_of_the_device(like_the_device()):
            out = cp.full((2, 5, 140), np.nan, "f4")
            ozaki.matmul(left, right, scheme=method, out=out[..., ::2])
            same(ozaki.matmul(a, b, scheme=method), out[..., ::2])
            assert np.isnan(out[..., 1::2]).all()
            plan = ozaki.plan((5, 133), (133, 70), dtype="float32", scheme=method)
            prepared = ozaki.prepare(right[0, -2::-3], "right", plan)
            expected = ozaki.matmul(a[1, :, 1::3], b[0, -2::-3], scheme=method)
            same(expected, ozaki.matmul(left[1, :, 1::3], prepared, plan=plan))


def little_memory(rng: np.random.Generator) -> None:
    """The tile depends on the product and on shared memory; a multiprocessor with too little for the large tiles."""
    halfhalf, many = PRESETS["halfhalf"], Words("bf16", 8, accumulators="one", core=A100)

    def tile(words: Words, memory: int, columns: int) -> tuple[int, int, int]:
        device = devices.of("90", multiprocessors=4, shared_memory=memory)
        engine = MmaWords.of(device, words, 1, 128, 40, columns)
        assert engine == MmaWords.of(device, words, 1, 1, 40, 1), "prepared words are for tiles of every size"
        return engine.shape.warps, engine.shape.rows, engine.shape.columns

    of_h200, of_a100, of_4090 = 233472, 167936, 102400
    assert [tile(halfhalf, of_h200, 64 * tiles) for tiles in (4, 5)] == [(8, 64, 16), (4, 64, 32)]
    assert [tile(halfhalf, memory, 6400) for memory in (of_a100, of_4090)] == [(8, 64, 32), (8, 32, 32)]
    assert [tile(PRESETS["markidis"], memory, 6400)[2] for memory in (of_h200, of_a100, of_4090)] == [64] * 3
    assert tile(PRESETS["triple-bf16"], of_h200, 6400) == (8, 64, 32)
    assert tile(many, of_4090, 6400) == (8, 32, 32)
    a, b = matrix(rng, (5, 40), "f4"), matrix(rng, (40, 70), "f4")
    with in_place_of_the_device(replace(devices.current(), shared_memory=of_4090)):
        same(ozaki.matmul(a, b, scheme=many), ozaki.matmul(cp.asarray(a), cp.asarray(b), scheme=many))


def pairs(rng: np.random.Generator) -> None:
    """Scales, pairs and blocks that no preset has, some longer than the ring; batches, views, prepared operands."""
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
    """Tiles of every width of `word_pairs`, more of them than clusters."""
    for name in ("single-fp16", "fabsum-v1"):
        method = PRESETS[name]
        widths = word_pairs._COLUMNS[word_pairs._totals(method)]
        for columns in widths:
            a, b = matrix(rng, (3, 80), "f4"), matrix(rng, (80, 2 * columns + 20), "f4")
            with mock.patch.dict(widths, {columns: 1.0}, clear=True):
                same(ozaki.matmul(a, b, scheme=method), ozaki.matmul(cp.asarray(a), cp.asarray(b), scheme=method))


def columns(rng: np.random.Generator) -> None:
    """Tiles of every width of `word_promoted`, with different numbers of blocks."""
    for name, ks in (("halfhalf", (150,)), ("two-stage", (50, 150, 230))):
        method = PRESETS[name]
        for columns, k in itertools.product(word_promoted._COLUMNS[method.count], ks):
            a, b = matrix(rng, (3, k), "f4"), matrix(rng, (k, columns + 20), "f4")
            with mock.patch.dict(word_promoted._COLUMNS, {method.count: {columns: 1.0}}):
                same(ozaki.matmul(a, b, scheme=method), ozaki.matmul(cp.asarray(a), cp.asarray(b), scheme=method))


def widths(_rng: np.random.Generator) -> None:
    """Every tile width has a wgmma instruction, and as many stages, at most five, as shared memory holds."""
    source = (compiling.folder() / "hardware/wgmma_words.cuh").read_text()
    found = re.findall(r"^(DEFINE|DEFINE_HALVES)\(\d+, (\d+),", source, re.MULTILINE)
    instructions = {macro: {int(n) for name, n in found if name == macro} for macro, _ in found}
    of_halves, of_floats = word_promoted._COLUMNS[1], {*word_promoted._COLUMNS[2]}.union(*word_pairs._COLUMNS.values())
    assert of_halves.keys() <= instructions["DEFINE_HALVES"] and of_floats <= instructions["DEFINE"]
    assert word_tiles.STAGES.keys() == of_halves.keys() | of_floats
    for columns, stages in word_tiles.STAGES.items():
        stage = (word_tiles.ROWS + columns) * word_tiles.DEPTH + 2 * 8  # and two barriers
        assert stages == min((MOST_SHARED - 1024) // stage, 5), columns
    for file, rows in (("words/word_ring_sm90.cuh", word_tiles.ROWS), ("words/word_mma.cu", word_mma._ROWS)):
        assert f"constexpr int ROWS = {rows}, " in (compiling.folder() / file).read_text()
