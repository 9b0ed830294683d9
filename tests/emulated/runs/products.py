"""Whole products of slices, and how gemm ends."""

from __future__ import annotations

from typing import Any
from unittest import mock

import cupy as cp
import numpy as np
import pytest

import ozaki
from ozaki.backends.cupy import backend as _cupy
from ozaki.backends.cupy import devices
from ozaki.backends.cupy.program.steps import Out
from ozaki.backends.cupy.steps import gemm, unrounded
from ozaki.backends.cupy.steps.describing import describe
from ozaki.backends.cupy.steps.engines import cublas_fp16, fused_digits
from ozaki.backends.cupy.steps.engines.cublas import Cublas
from ozaki.backends.cupy.steps.engines.cublas_fp16 import CublasFp16
from ozaki.backends.cupy.steps.engines.fused import Fused
from ozaki.backends.cupy.steps.engines.tiled import tiles_of
from ozaki.backends.numpy import backend as _numpy
from ozaki.schemes import Digits
from runs.device import Part, seen
from runs.operands import matrix, same


def product(scheme: str, slices: int, dtype: str, engine: str, rng: np.random.Generator) -> None:
    """Views of every kind, NaN and Inf, subnormal results; repeated calls; prepared operands."""
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
        with seen() as calls:
            for x in (2 * a, a):
                c = ozaki.matmul(cp.asarray(x), cp.asarray(b), engine=engine, **options)
                same(ozaki.matmul(x, b, **options), c)
        assert (calls.long, calls.repeated) == (1, 1)
        plan = ozaki.plan(a.shape, b.shape, dtype=a.dtype.name, engine=engine, **options)
        with seen() as calls:
            for x in (3 * a, a):
                left = ozaki.prepare(cp.asarray(x), "left", plan)
                same(ozaki.matmul(x, b, **options), ozaki.matmul(left, cp.asarray(b), plan=plan))
        assert (calls.long, calls.repeated) == (1, 1)


def broadcast_stacks(rng: np.random.Generator) -> None:
    """Stacks of which each has a single matrix along other axes: natively, and out of slices, twice each."""
    for left, right in (((4, 3), (3,)), ((2, 1), (1, 3)), ((2, 3), (2, 1)), ((2, 1, 3), (4, 3))):
        a, b = matrix(rng, (*left, 5, 40), "f8"), matrix(rng, (*right, 40, 6), "f8")
        for options in (
            {"scheme": "residues", "slices": 14},
            {"scheme": "digits", "slices": 3},
            {"reproducible": True},
        ):
            expected = ozaki.matmul(a, b, **options)
            for out in (None, cp.full(expected.shape, np.nan), None):
                same(expected, ozaki.matmul(cp.asarray(a), cp.asarray(b), out=out, **options))
            c = rng.standard_normal(expected.shape)
            total = ozaki.gemm(2.0, cp.asarray(a), cp.asarray(b), -0.5, cp.asarray(c), **options)
            same(ozaki.gemm(2.0, a, b, -0.5, c, **options), total)
        for _ in range(2):
            native = ozaki.matmul(cp.asarray(a), cp.asarray(b), scheme="native")
            np.testing.assert_allclose(cp.asnumpy(native), a @ b, atol=1e-11)


def rows_for_cublas(rng: np.random.Generator) -> None:
    """More matrices than one call takes; rows longer than cuBLAS takes, which are refused before anything is split."""
    a, b = matrix(rng, (5, 20, 70), "f4"), matrix(rng, (5, 70, 30), "f4")
    with mock.patch.object(gemm, "MOST_BATCHED", 2), seen() as calls:
        got = ozaki.matmul(cp.asarray(a), cp.asarray(b), scheme="residues", slices=5, engine="cublas")
    assert calls.names.count("cublas") == 3 * 5
    same(ozaki.matmul(a, b, scheme="residues", slices=5), got)
    device, deep = devices.current(), Digits(4, 7, word="fp16")
    for engine, scheme, k in ((Cublas(device), Digits(5), 2**31 // 5), (CublasFp16(device), deep, 2**29)):
        with pytest.raises(ValueError, match=r"engine: cuBLAS reads rows of less than 2\*\*31 entries"):
            engine.layout(scheme, "left", 1, 1, k)


def fp16_sums(rng: np.random.Generator) -> None:
    """FP16 digits that fill the accumulators; and of a product so deep that k is cut, and its sums need int64."""
    full = np.full((6, 320), -(126 + 127 / 255) / 256)  # whose digits are -126, -127, -127, ...
    expected = ozaki.matmul(full, full.T, scheme="fp16-digits", slices=5)
    same(expected, ozaki.matmul(cp.asarray(full), cp.asarray(full.T), scheme="fp16-digits", slices=5))
    a, b = matrix(rng, (5, 300), "f8"), matrix(rng, (300, 7), "f8")
    expected = ozaki.matmul(a, b, scheme="fp16-digits", slices=5)
    with (
        mock.patch.object(cublas_fp16, "fp16_depth", return_value=128),
        mock.patch.object(Digits, "depth", return_value=0),
    ):
        same(expected, ozaki.matmul(cp.asarray(a), cp.asarray(b), scheme="fp16-digits", slices=5))


def far(rng: np.random.Generator) -> None:
    """Digits in the tiles of the Hopper engine, where its kernel leaves subnormal results to another."""
    a, b = (np.ldexp(matrix(rng, shape, "f8"), -535) for shape in ((37, 300), (300, 200)))
    device = devices.of("90")
    for scheme in (Digits(7), Digits(4, 7)):
        part, engine = Part(device), Fused(device)
        x, y = part.given(cp.asarray(a)[None], "a"), part.given(cp.asarray(b).T[None], "b")
        left, right = (
            engine.split(part.b, describe(part.b, device, of), side, scheme) for of, side in ((x, "left"), (y, "right"))
        )
        out = part.b.array("c", (1, 37, 200), "d")
        blocks = left.layout.k // tiles_of(device).depth
        kernel = fused_digits.far(device, scheme, left.operand, right.operand, blocks, out.view, 0, 0)
        part.b.launch(kernel, left.planes, right.planes, Out(out.at), left.mu, right.mu)
        same(ozaki.matmul(a, b, scheme=scheme.name, slices=scheme.count), part.value(out)[0])


def many_blocks(rng: np.random.Generator) -> None:
    """More columns, and more of a batch, than a grid has blocks."""
    with mock.patch.object(unrounded, "_MOST_BLOCKS", 2):
        for left, right in (((5, 30, 40), (5, 40, 700)), ((30, 40), (40, 900)), ((3, 4, 40), (40, 300))):
            for scheme, slices, dtype in (("residues", 14, "f8"), ("digits", 4, "f4")):
                a, b = rng.standard_normal(left).astype(dtype), rng.standard_normal(right).astype(dtype)
                got = ozaki.matmul(cp.asarray(a), cp.asarray(b), scheme=scheme, slices=slices)
                same(ozaki.matmul(a, b, scheme=scheme, slices=slices), got)


def out_elsewhere(_rng: np.random.Generator) -> None:
    """A result for another device is refused, and one whose elements share memory."""
    a = cp.asarray(np.eye(4))
    out = cp.asarray(np.lib.stride_tricks.as_strided(np.zeros(7), (4, 4), (8, 8)))
    with pytest.raises(ValueError, match=r"^out: elements share their memory"):
        ozaki.matmul(a, a, out=out)
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
