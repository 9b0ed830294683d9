"""Strassen-Winograd: quadrants of operands and their products."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any
from unittest import mock

import cupy as cp
import numpy as np

import ozaki
from ozaki.backends.cupy.steps.describing import describe
from ozaki.backends.cupy.steps.engines import winograd as by_quadrants
from ozaki.backends.cupy.steps.engines.cublas_residues import CublasResidues
from ozaki.backends.cupy.steps.engines.winograd import Winograd
from ozaki.schemes import Residues
from runs.device import Part, seen
from runs.operands import in_tiles, matrix, same


def quadrants(rng: np.random.Generator) -> None:
    """One kernel makes the slices of quadrants and of their sums; empty halves, views of every kind, NaN and Inf."""
    methods = [(Residues(14), "f8"), (Residues(15), "f8"), (Residues(25), "f8"), (Residues(7), "f4")]
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
        part = Part()
        described = describe(part.b, part.given(x))
        plain = CublasResidues(part.device).split(part.b, described, side, scheme)
        got = Winograd(part.device).split(part.b, described, side, scheme)

        above, first = by_quadrants._half(rows), by_quadrants._half(k)
        slices = part.value(plain.planes).reshape(scheme.count, plain.layout.rows, plain.layout.k)
        whole = np.zeros((scheme.count, 2 * above, 2 * first), int)
        whole[:, :rows, :k] = slices[:, :rows, :k]
        p, q, r, s = (x for half in np.split(whole, 2, 1) for x in np.split(half, 2, 2))
        if side == "left":
            blocks = p, q, q - (r + s - p), s, r + s, r + s - p, p - r
        else:
            blocks = p, q, s, q - (s - r + p), r - p, s - r + p, s - r
        m = np.array(scheme.moduli)[:, None, None]
        tiles = got.layout.rows, got.layout.k, got.layout.tile, got.layout.neighbours
        want = [in_tiles((block % m).astype(np.uint8).view(np.int8), *tiles) for block in blocks]
        case = f"{scheme} {dtype} {side} {x.shape} {x.strides}"
        np.testing.assert_array_equal(np.stack(want, 1).reshape(-1), part.value(got.planes), err_msg=case)
        np.testing.assert_array_equal(part.value(plain.mu), part.value(got.mu), err_msg=case)


def winograd(rng: np.random.Generator) -> None:
    """Odd sizes, graded rows, views, Inf, subnormal results; repeated calls; gemm; prepared operands."""
    with mock.patch.object(by_quadrants, "_FROM", 0):
        for shape, slices, dtype in (((531, 330, 255), 7, "f4"), ((90, 250, 207), 14, "f8"), ((70, 130, 41), 25, "f8")):
            m, k, n = shape
            options: dict[str, Any] = {"scheme": "residues", "slices": slices}
            a, b = matrix(rng, (m, k), dtype), matrix(rng, (k, n), dtype)
            a, b = np.ldexp(a, np.arange(m)[:, None] // 16), np.ldexp(b, np.arange(n) // 8)
            b[-1, -1] = np.inf
            tiny = a * a.dtype.type(2.0 ** (-1060 if dtype == "f8" else -140))
            pairs = [(tiny, b), (np.asfortranarray(a)[::-1], b.T.copy().T[:, ::-1]), (a, b)]
            with seen() as calls:
                for x, y in pairs if slices == 7 else pairs[:1]:
                    out = cp.full((m, n), np.nan, dtype)
                    with np.errstate(all="ignore"):
                        expected = ozaki.matmul(x, y, **options)
                    same(expected, ozaki.matmul(cp.asarray(x), cp.asarray(y), out=out, engine="fused", **options))
            assert (calls.long, calls.repeated) == ((2, 1) if slices == 7 else (1, 0))  # two pairs have equal strides
            assert calls.names.count("split_quadrants") == 2 * calls.names.count("recombine_quadrants")
            assert calls.names.count("recombine_quadrants") == calls.long + calls.repeated
            if slices == 7:
                addend = matrix(rng, (m, n), dtype)
                expected = ozaki.gemm(-1 / 3, a, b, 0.7, addend, **options)
                given = cp.asarray(a), cp.asarray(b), cp.asarray(addend)
                with seen() as calls:
                    same(expected, ozaki.gemm(-1 / 3, *given[:2], 0.7, given[2], engine="fused", **options))
                assert "recombine_quadrants" in calls.names
                expected = ozaki.matmul(a, b, **options)
                plan = ozaki.plan(a.shape, b.shape, dtype="float32", engine="fused", **options)
                left, right = ozaki.prepare(cp.asarray(a), "left", plan), ozaki.prepare(cp.asarray(b), "right", plan)
                c, report = ozaki.matmul(left, right, plan=plan, return_report=True)
                same(expected, c)
                assert report.engine.endswith("Strassen-Winograd") and report.products == slices
                c, report = ozaki.matmul(left, right, plan=replace(plan, workspace_limit=10**9), return_report=True)
                same(expected, c)  # a limit with room for quadrants
                assert report.engine.endswith("Strassen-Winograd") and report.workspace_bytes <= 10**9
                others = (replace(plan, workspace_limit=10**7), b), (replace(plan, batch=(2,)), np.stack([b, b]))
                for other, y in others:
                    refused = ""
                    try:
                        ozaki.matmul(left, cp.asarray(y), plan=other)
                    except ValueError as error:
                        refused = str(error)
                    assert "prepared for another plan" in refused
