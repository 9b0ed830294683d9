"""Bounds of the entries of products are those that NumPy computes, bit for bit."""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np

import ozaki
from runs.operands import hard, matrix, same

_WAYS: tuple[dict[str, Any], ...] = (
    {"scheme": "residues", "slices": 9},
    {"scheme": "residues", "slices": 70},
    {"scheme": "residues", "slices": 12, "inner_scaling": True},
    {"scheme": "digits", "slices": 4},
    {"scheme": "digits7", "slices": 7},
    {"accuracy": "fp64", "reproducible": True},
    {"accuracy": "exact"},
    {"scheme": "native"},
)


def _compare(a: Any, b: Any, **way: Any) -> None:
    """Compare result and bounds of two products."""
    expected, report = ozaki.matmul(a, b, return_report="bounds", **way)
    got, found = ozaki.matmul(cp.asarray(a), cp.asarray(b), return_report="bounds", **way)
    same(np.asarray(expected), got)
    assert isinstance(found.bounds, cp.ndarray)
    same(np.asarray(report.bounds), found.bounds)
    numbers = {line for line in str(report).splitlines() if "by itself" in line}
    assert numbers <= set(str(found).splitlines())


def bounds_of_entries(rng: np.random.Generator) -> None:
    """Of all formats, schemes and kinds of rows, of products and of expressions."""
    for dtype in ("f4", "f8"):
        x = hard(rng, 70, dtype)
        for way in _WAYS:
            _compare(x, x[::-1].swapaxes(1, 2), **way)
            _compare(x[0], matrix(rng, (70, 300), dtype, 30), **way)
    for left, right in (("c16", "c16"), ("c8", "c8"), ("c16", "f8"), ("f8", "c16")):
        a, b = (_complex(rng, shape, of) for shape, of in (((2, 19, 40), left), ((2, 40, 33), right)))
        for way in _WAYS:
            if left == right or not way.get("inner_scaling"):
                _compare(a, b, **way)
    a, b, c = (matrix(rng, shape, "f8", 20) for shape in ((2, 21, 40), (2, 40, 35), (2, 21, 35)))
    c[0, 3, 4], c[1, 0] = np.inf, 0
    for alpha, beta in ((0.3, 0.0), (-(2.0**-1060), 1.0), (1e300, 1e-5), (0.0, 0.7), (np.nan, 1.0)):
        for way in _WAYS:
            expected, report = ozaki.gemm(alpha, a, b, beta, c, return_report="bounds", **way)
            on_device = cp.asarray(a), cp.asarray(b), cp.asarray(c)
            got, found = ozaki.gemm(
                alpha, *on_device[:2], beta, on_device[2], return_report="bounds", **way
            )  # fmt: skip
            same(expected, got)
            same(report.bounds, found.bounds)
    for x, y in ((a[0, 0], b[0, :, 0]), (a, b[0, :, 0]), (a[:, :0], b), (a[..., :0], b[:, :0])):
        _compare(x, y, accuracy="fp64", reproducible=True)
    plan = ozaki.plan(a, b, accuracy="fp64", reproducible=True)
    expected = ozaki.matmul(a, b, plan=plan, return_report="bounds")[1].bounds
    prepared = ozaki.prepare(cp.asarray(b), "right", plan)
    same(expected, ozaki.matmul(cp.asarray(a), prepared, plan=plan, return_report="bounds")[1].bounds)


def bounds_of_products(rng: np.random.Generator) -> None:
    """Of real and complex products that one kernel splits, whose descriptions lie where it leaves them."""
    for dtype in ("f8", "c16"):
        a, b = (matrix(rng, shape, dtype, 9) for shape in ((150, 70), (70, 130)))
        for way in (*_WAYS[2:3], *_WAYS[5:7]):
            _compare(a, b, **way)


def _complex(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """A matrix, complex if the dtype is, with NaN, Inf and zeros."""
    real = matrix(rng, shape, "f8", 25)
    x = real.astype(dtype) if dtype[0] == "f" else (real + 1j * matrix(rng, shape, "f8", 25)).astype(dtype)
    x[..., 3, 5] = np.nan
    x[..., 7, :] = 0
    return x


def bounds_of_numbers(rng: np.random.Generator) -> None:
    """Of multiprecision operands and results, of exponents beyond the range of floats, real and complex."""
    x = ozaki.mparray(matrix(rng, (9, 40), "f8", 30)) @ ozaki.mparray(matrix(rng, (40, 30), "f8", 3))
    y = ozaki.mparray(matrix(rng, (30, 11), "f8", 200))
    z = ozaki.mparray(matrix(rng, (30, 11), "f8", 20) + 1j * matrix(rng, (30, 11), "f8", 20))
    for left, right in ((x, y), (x.ldexp(2000), y), (x.ldexp(-(2**40)), y), (x.ldexp(2**59), y), (x, z)):
        a, b = ozaki.ascupy(left), ozaki.ascupy(right)
        for way in ({}, {"accuracy": 300}, {"scheme": "residues", "slices": 9}, {"accuracy": "exact"}):
            report = ozaki.matmul(left, right, return_report="bounds", **way)[1]
            same(report.bounds, ozaki.matmul(a, b, return_report="bounds", **way)[1].bounds)
        if not right.is_complex:
            c = ozaki.mparray(matrix(rng, (9, 11), "f8", 5))
            for alpha, beta in ((3**90, 1), (-0.5, 0), (0, 5)):
                report = ozaki.gemm(alpha, left, right, beta, c, return_report="bounds")[1]
                same(report.bounds, ozaki.gemm(alpha, a, b, beta, ozaki.ascupy(c), return_report="bounds")[1].bounds)
    for dtype in ("float32", "float64"):
        report = ozaki.matmul(x, y, dtype=dtype, accuracy="fp32", return_report="bounds")[1]
        found = ozaki.matmul(
            ozaki.ascupy(x), ozaki.ascupy(y), dtype=dtype, accuracy="fp32", return_report="bounds"
        )[1]  # fmt: skip
        same(report.bounds, found.bounds)


def bounds_within_limits(rng: np.random.Generator) -> None:
    """A limit of workspace holds, and changes no bit."""
    a, b = matrix(rng, (300, 50), "f8"), matrix(rng, (50, 280), "f8")
    ways: tuple[dict[str, Any], ...] = {"accuracy": "fp64", "reproducible": True}, {"scheme": "digits", "slices": 6}
    for way in ways:
        expected = ozaki.matmul(a, b, return_report="bounds", **way)[1].bounds
        x, y = cp.asarray(a), cp.asarray(b)
        _, plain = ozaki.matmul(x, y, return_report=True, **way)
        _, report = ozaki.matmul(x, y, return_report="bounds", **way)
        assert report.workspace_bytes == plain.workspace_bytes
        same(expected, report.bounds)
        limit = plain.workspace_bytes // 2
        _, report = ozaki.matmul(x, y, return_report="bounds", workspace_limit=limit, **way)
        assert report.workspace_bytes <= limit
        same(expected, report.bounds)
