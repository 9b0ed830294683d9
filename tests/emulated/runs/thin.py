"""Products with few inner indices, which one kernel multiplies, recombines and rounds."""

from __future__ import annotations

import dataclasses
from typing import Any
from unittest import mock

import cupy as cp
import numpy as np

import ozaki
from ozaki.backends.cupy.steps import stacks
from ozaki.backends.cupy.steps.engines import thin_residues
from ozaki.multiprecision.numbers import moved
from runs.device import seen
from runs.operands import same

SHAPES = (
    ((1, 1), (1, 1)), ((5, 33), (33, 7)), ((70, 129), (129, 100)), ((20, 256), (256, 30)), ((130, 200), (200, 9)),
    ((97, 64), (64, 65)), ((200, 128), (128, 70)), ((96, 96), (96, 64)), ((3, 40, 20), (3, 20, 30)),
    ((2, 1, 30, 17), (3, 17, 5)), ((4, 9, 31), (31, 6)), ((50, 100), (2, 100, 3)),
)  # fmt: skip


def matrix(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Any:
    """Numbers of some kind: ordinary, small integers, wide, near over- or underflow, or with NaN and Inf."""
    x = rng.standard_normal(shape)
    kind = rng.integers(7)
    of_range = 1000 if dtype == "f8" else 120
    if kind == 1:
        x = np.rint(3 * x)
    elif kind == 2:
        x = x * np.exp2(rng.integers(-40, 40, shape))
    elif kind == 3:
        x = x * 2.0 ** (of_range // 2 + rng.integers(-4, 16))
    elif kind == 4:
        x = x * 2.0 ** (-of_range // 2 - rng.integers(0, 40))
    elif kind == 5:
        x.flat[rng.integers(x.size, size=2)] = rng.choice([np.nan, np.inf, -np.inf], 2)
    elif kind == 6:
        x = x * (rng.random(shape) < 0.3)
    return x.astype(dtype)


def strided(rng: np.random.Generator, x: Any) -> Any:
    """The same elements, with other strides."""
    kind = rng.integers(3)
    if kind == 0:
        return x.swapaxes(-1, -2).copy().swapaxes(-1, -2)
    if kind == 1:
        wide = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
        wide[..., ::2] = x
        return wide[..., ::2]
    return x


def thin_products(rng: np.random.Generator) -> None:
    """Products of all kinds of rows, batches, strides and counts; of one block, so that it has several tiles, too."""
    for left, right in SHAPES:
        for dtype, slices in (("f8", int(rng.integers(12, 19))), ("f4", int(rng.integers(4, 9)))):
            a, b = matrix(rng, left, dtype), matrix(rng, right, dtype)
            expected = ozaki.matmul(a, b, scheme="residues", slices=slices)
            given = cp.asarray(strided(rng, a)), cp.asarray(strided(rng, b))
            group = mock.patch.object(thin_residues, "_GROUP", 64 * int(rng.integers(1, 4)))
            with seen() as ran, group, mock.patch.object(stacks, "multiplies", return_value=False):
                same(expected, ozaki.matmul(*given, scheme="residues", slices=slices))
            assert {"thin_gemm", "stack"} & set(ran.names) and "recombine" not in ran.names


def thin_in_rounds(rng: np.random.Generator) -> None:
    """Blocks that have several tiles each, and the last one fewer."""
    a, b = matrix(rng, (300, 40), "f8"), matrix(rng, (40, 200), "f8")
    expected = ozaki.matmul(a, b, scheme="residues", slices=14)
    with mock.patch.object(thin_residues, "_blocks", return_value=3), seen() as ran:
        same(expected, ozaki.matmul(cp.asarray(a), cp.asarray(b), scheme="residues", slices=14))
    assert "thin_gemm" in ran.names


def thin_otherwise(rng: np.random.Generator) -> None:
    """What else may become of a product: it is combined, checked, listed, within a limit, or of a prepared operand."""
    for slices in (4, 14, 18):
        a, b, c = rng.standard_normal((100, 60)), rng.standard_normal((60, 70)), rng.standard_normal((100, 70))
        options: dict[str, Any] = {"scheme": "residues", "slices": slices}
        given = cp.asarray(a), cp.asarray(b), cp.asarray(c)
        expected = ozaki.matmul(a, b, **options)
        with seen() as ran:
            same(ozaki.gemm(0.3, a, b, -1.5, c, **options), ozaki.gemm(0.3, *given[:2], -1.5, given[2], **options))
            same(expected, ozaki.matmul(*given[:2], verify=True, **options))
        assert ran.names.count("thin_gemm") >= 2 and "residue_gemm" not in ran.names
        plan = ozaki.plan(*given[:2], **options)
        prepared = ozaki.prepare(given[1], "right", plan)
        same(expected, ozaki.matmul(given[0], prepared, plan=plan))
        combined = ozaki.gemm(0.3, given[0], prepared, -1.5, given[2], plan=plan)
        same(ozaki.gemm(0.3, a, b, -1.5, c, **options), combined)
        addend = ozaki.mparray(c) + 2.0**-80  # so every bit is added to it
        same(ozaki.gemm(-1, a, b, 1, addend, dtype="f8", **options), on_device(addend, *given[:2], **options))
        limit = 2 * (96 + 64) * (128 + 64) * slices
        got, report = ozaki.matmul(*given[:2], workspace_limit=limit, return_report=True, **options)
        same(expected, got)
        assert report.workspace_bytes <= limit
    a = np.rint(9 * rng.standard_normal((60, 50)))
    a[0, 0], b = 2.0**70, rng.standard_normal((50, 40))
    expected = ozaki.matmul(a, b, accuracy="exact")
    plan = ozaki.plan(cp.asarray(a), cp.asarray(b), scheme="residues", slices=17)
    apart = dataclasses.replace(plan, undecided_apart=True)
    same(expected, ozaki.matmul(cp.asarray(a), cp.asarray(b), plan=apart))


def on_device(addend: Any, a: Any, b: Any, **options: Any) -> Any:
    """The addend, multiprecision numbers of NumPy, less a b on the device, in float64."""
    return ozaki.gemm(-1, a, b, 1, moved(addend, cp), dtype="f8", **options)


def thin_to_an_accuracy(rng: np.random.Generator) -> None:
    """Operands that are split early, beside a proof, in one read or two: of rows that end anywhere in a tile."""
    for shape in ((250, 100, 190), (97, 33, 65), (70, 256, 33), (16, 128, 400), (260, 256, 500), (500, 20, 3)):
        for dtype, accuracy in (("f8", "fp64"), ("f4", "fp32")):
            m, k, n = shape
            a, b = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
            options: dict[str, Any] = {"accuracy": accuracy, "reproducible": True}
            expected, of_host = ozaki.matmul(a, b, return_report=True, **options)
            for x in (cp.asarray(a), cp.asarray(a.T.copy()).T):
                with seen() as ran:
                    got, report = ozaki.matmul(x, cp.asarray(b), return_report=True, **options)
                same(expected, got)
                assert report.bound == of_host.bound and "thin_gemm" in ran.names
