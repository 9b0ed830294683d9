"""The division of tiles, and of k, among the clusters of Hopper."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

import cupy as cp
import numpy as np

import ozaki
from ozaki.backends.cupy import devices
from ozaki.backends.cupy import repeated as kept
from ozaki.backends.cupy.steps.engines import (
    fused_residues,
    shares,
    tiled,
    word_promoted,
)
from ozaki.backends.cupy.steps.engines import halves as of_cache
from ozaki.backends.cupy.steps.engines.choice import engine_of, panel_of
from ozaki.schemes import PRESETS
from ozaki.tensor_core import H100
from runs.device import in_place_of_the_device, like_the_device, seen
from runs.operands import matrix, same

TILES = devices.of("90", multiprocessors=132, shared_memory=233472).tiles


def together(rng: np.random.Generator) -> None:
    """Clusters that begin tiles, or passes over k, together; emulated ones run in turn, so none waits for long."""
    for scheme, slices in (("residues", 4), ("digits", 3), (replace(PRESETS["halfhalf"], core=H100), None)):
        multiply = partial(ozaki.matmul, scheme=scheme, slices=slices)
        module = tiled if slices else word_promoted
        with mock.patch.object(module, "_LONG", 2), in_place_of_the_device(like_the_device()):
            for repeated in range(2):
                a, b = matrix(rng, (9, 270), "f4"), matrix(rng, (270, 900), "f4")
                with seen() as calls:
                    c = multiply(cp.asarray(a), cp.asarray(b), engine="fused" if slices else "auto")
                same(multiply(a, b), c)
                assert (calls.repeated, calls.clears("cluster count")) == (repeated, 1), scheme


def split_along_k(rng: np.random.Generator) -> None:
    """An odd number of tiles for two clusters, which share the last one along k."""
    shapes = (("digits", 3), (600, 2500, 100)), (("digits7", 2), (130, 2500, 120)), (("digits", 4), (1030, 1930, 190))
    for (scheme, slices), (m, k, n) in shapes:
        a, b = rng.standard_normal((m, k)).astype("f4"), rng.standard_normal((k, n)).astype("f4")
        out = cp.full((m, n), np.nan, "f4")
        with seen() as calls:
            ozaki.matmul(cp.asarray(a), cp.asarray(b), scheme=scheme, slices=slices, engine="fused", out=out)
        assert calls.clears("flags") == 1
        same(ozaki.matmul(a, b, scheme=scheme, slices=slices), out)


def column_tiles(rng: np.random.Generator) -> None:
    """Two clusters with wide and narrow tiles: one narrow tile, two, only narrow ones, one wider than the product.

    Clusters take their places in the order of tiles by halves of the cache. Also a panel of few columns.
    """
    shapes = ((30, 400, 300), 6), ((530, 260, 400), 7), ((600, 300, 250), 5), ((20, 260, 50), 4), ((90, 260, 200), 3)
    for (m, k, n), slices in shapes:
        a, b = rng.standard_normal((m, k)).astype("f4"), rng.standard_normal((k, n)).astype("f4")
        out = cp.full((m, n), np.nan, "f4")
        with mock.patch.object(fused_residues, "_LARGE", 0), seen() as calls:
            ozaki.matmul(cp.asarray(a), cp.asarray(b), scheme="residues", slices=slices, engine="fused", out=out)
        assert calls.clears("place count") == 1
        same(ozaki.matmul(a, b, scheme="residues", slices=slices), out)
    a, b = rng.standard_normal((30, 260)).astype("f4"), rng.standard_normal((260, 448)).astype("f4")
    options: dict[str, Any] = {"scheme": "residues", "slices": 5, "workspace_limit": 1_500_000}
    plan = ozaki.plan(a.shape, b.shape, dtype="float32", engine="fused", **options)
    assert panel_of(engine_of(devices.current(), plan), plan, (1, 30, 448)) == (30, 384)  # and 64
    right = ozaki.prepare(cp.asarray(b), "right", plan)
    for y in (cp.asarray(b), right):
        with seen() as calls:
            same(ozaki.matmul(a, b, scheme="residues", slices=5), ozaki.matmul(cp.asarray(a), y, plan=plan))
        assert calls.names.count("residue_gemm") == 2
        c = rng.standard_normal((len(a), b.shape[1])).astype(a.dtype)
        expected = ozaki.gemm(-1.0, a, b, 0.3, c, scheme="residues", slices=5)
        same(expected, ozaki.gemm(-1.0, cp.asarray(a), y, 0.3, cp.asarray(c), plan=plan))


def triangles(rng: np.random.Generator) -> None:
    """A matrix times its own transpose, in several rows and columns of tiles; not in panels, nor with an addend.

    Of a batch those that the kernel of stacks does not take: it would compute all entries.
    """
    options: dict[str, Any] = {"scheme": "residues", "slices": 4}
    for shape, kind in (((400, 3), "f4"), ((2, 270, 5), "f8"), ((270, 3), "c8"), ((3, 1), "f8")):
        a = rng.standard_normal(shape).astype(kind)
        a = a + 1j * rng.standard_normal(shape).astype(kind.replace("c8", "f4")) if kind == "c8" else a
        x = cp.asarray(a)
        expected = ozaki.matmul(a, a.swapaxes(-1, -2).copy(), **options)
        with mock.patch.object(fused_residues, "_LEAST_SYMMETRIC", 1):
            for _ in range(2):
                with seen() as calls:
                    same(expected, ozaki.matmul(x, x.swapaxes(-1, -2), **options))
                assert calls.names.count("mirror") == 1
            with seen() as calls:
                same(expected, ozaki.matmul(x, cp.asarray(a).swapaxes(-1, -2), **options))
                same(expected, ozaki.matmul(x, x.swapaxes(-1, -2), workspace_limit=10**8, **options))
                c = rng.standard_normal(expected.shape).astype(a.dtype)
                got = ozaki.gemm(2.0, x, x.swapaxes(-1, -2), 1.0, cp.asarray(c), **options)
                same(ozaki.gemm(2.0, a, a.swapaxes(-1, -2).copy(), 1.0, c, **options), got)
                by_facts: dict[str, Any] = {"accuracy": 1e-3, "reproducible": True}
                got = ozaki.gemm(2.0, x, x.swapaxes(-1, -2), 1.0, cp.asarray(c), **by_facts)
                same(ozaki.gemm(2.0, a, a.swapaxes(-1, -2).copy(), 1.0, c, **by_facts), got)
                if kind == "c8":
                    got = ozaki.gemm(2.0, x, x, 1.0, cp.asarray(c), trans_b="C", **by_facts)
                    same(ozaki.gemm(2.0, a, a.conj().T.copy(), 1.0, c, **by_facts), got)
            assert "mirror" not in calls.names
            if kind == "c8":
                with seen() as calls:
                    h = ozaki.gemm(2.0, x, x, 0, None, trans_b="C", **options)
                    g = ozaki.gemm(2.0, x, x, 0, None, trans_a="C", **options)
                same(ozaki.gemm(2.0, a, a.conj().T, 0, None, **options), h)
                same(ozaki.gemm(2.0, a.conj().T, a, 0, None, **options), g)
                assert calls.names.count("mirror") == 2
            if x.ndim == 2:  # the same rows in another shape; then other operands of that shape
                same(expected, ozaki.matmul(x[None], x.T, **options)[0])
                other, left = a[::-1].copy(), cp.asarray(a)
                general = ozaki.matmul(a, other.T, **options)
                same(general, ozaki.matmul(left[None], cp.asarray(other).T, **options)[0])
            if kind[0] == "f":
                wide, general = (
                    ozaki.matmul(x, y.swapaxes(-1, -2), dtype="mp80", **options) for y in (x, cp.asarray(a))
                )
                assert bool((wide == general).all())
            got = ozaki.gemm(-0.3, x, x.swapaxes(-1, -2), 0, None, **options)
            same(ozaki.gemm(-0.3, a, a.swapaxes(-1, -2).copy(), 0, None, **options), got)


def halves(rng: np.random.Generator) -> None:
    """`second_half` tells halves of the cache by near and far words; None where latencies are not of two kinds."""
    for share in (0.5, 0.4, 0.7):
        kinds = rng.random(132) < share
        near = rng.random(24) < 0.5
        near[:2] = True, False
        clocks = 2400 + 1600 * (kinds[:, None] != near) + rng.integers(0, 300, 132)[:, None] + rng.integers(0, 200, 24)
        clocks += rng.integers(0, 200, clocks.shape)
        assert of_cache.second_half(clocks) == frozenset(np.flatnonzero(kinds != kinds[0]).tolist())
        clocks[5] = 0
        assert of_cache.second_half(clocks) is None  # one latency is missing
        assert of_cache.second_half(2400 + rng.integers(0, 200, clocks.shape)) is None
    assert of_cache.second_half(np.full((132, 24), 2400)) is None
    places = of_cache.Places(frozenset({0, 33, 255}))
    assert places.struct[1].tobytes() == np.array([1, 2, 0, 0, 0, 0, 0, 2**31], np.uint32).tobytes()


def side_by_side(rng: np.random.Generator) -> None:
    """Two clusters and few tiles: k in two parts of equal length, the rest, if any, in a launch of its own.

    Where accumulators would overflow in fewer parts than there are clusters, the parts of k are multiplied in turn.
    """
    for k, deepest, split in ((2560, 512, (2, 10, 0)), (5200, 24, (2, 19, 3)), (5200, 8, (1, 41, 0))):
        a, b = rng.standard_normal((30, k)).astype("f4"), rng.standard_normal((k, 40)).astype("f4")
        out, options = cp.full((30, 40), np.nan, "f4"), dict[str, Any](scheme="residues", slices=5)
        with mock.patch.object(shares, "UNSIGNED_DEPTH", deepest * TILES.depth):
            shares.parts_of_k.cache_clear()
            blocks = TILES.blocks(k)
            parts = shares.parts_of_k(TILES, 2, 5, 1, 30, 40, blocks)
            assert (parts, *shares.of_parts(blocks, parts)) == split
            launched = 2 if split[2] > 0 else -(-blocks // deepest) if parts == 1 else 1
            for repeated in range(2):
                with seen() as calls:
                    ozaki.matmul(cp.asarray(a), cp.asarray(b), engine="fused", out=out, **options)
                same(ozaki.matmul(a, b, **options), out)
                assert (calls.repeated, calls.names.count("residue_gemm")) == (repeated, launched)
                out[:] = np.nan
        kept.forget()
    shares.parts_of_k.cache_clear()


def fair_shares(rng: np.random.Generator) -> None:
    """Each narrow tile goes to one cluster, no cluster ends much later than it must, and all read what is stored."""
    for wide, narrow, clusters in rng.integers((1, 1, 2), (3000, 900, 70), (200, 3)).tolist():
        end, light = shares.narrow_shares(TILES, wide, narrow, clusters, 2**30)
        heavy = wide % clusters
        others = clusters - heavy
        assert 0 <= light <= narrow and (heavy > 0 or light == narrow)
        ends = [wide // clusters * 192 + len(range(o, light, others)) * 150 for o in range(others)]
        ends += [(wide // clusters + 1) * 192 + len(range(light + o, narrow, heavy)) * 150 for o in range(heavy)]
        assert sum(ends) == 192 * wide + 150 * narrow
        assert abs(max(ends) - end) < 1e-3 and end <= sum(ends) / clusters + 192
    for work, blocks, most in rng.integers((1, 2, 2), (3000, 300, 70), (300, 3)).tolist():
        clusters, whole, sharers = shares.few_digit_shares(work, blocks, most)
        rest = work - whole
        assert 0 < clusters <= most and whole % clusters * rest == 0 and sharers <= clusters
        assert (rest == 0) == (sharers == 0) and (rest == 0 or (sharers > rest and rest * blocks >= 4 * sharers))
    _, unit, *_ = TILES.padded("right", 1, 128)
    for n in (*range(1, 900), *rng.integers(900, 99999, 99).tolist()):
        work = int(rng.integers(1, 300)), int(rng.integers(2, 70)), int(rng.integers(2, 70))
        (wide, narrow), end, _ = shares.columns(TILES, n, *work)
        strips = wide * 3 + narrow * 2
        fewest = -strips % 3
        assert (
            end <= shares.narrow_shares(TILES, work[0] * ((strips - 2 * fewest) // 3), work[0] * fewest, *work[1:])[0]
        )
        multiplied, stored = 2 * (192 * wide + 128 * narrow), TILES.padded("right", n, 128)[2]
        assert n <= multiplied <= stored and (multiplied < n + 128 or n <= 128)
        first = int(rng.integers(-(-n // unit))) * unit  # of a panel, which reads what is stored of all columns
        (wide, narrow), *_ = shares.columns(TILES, n - first, *work)
        assert first + 2 * (192 * wide + 128 * narrow) <= stored
