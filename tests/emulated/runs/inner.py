"""Products of operands that are scaled along k: statistics, descriptions, proofs and slices of scaled rows."""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np
import pytest

import ozaki
from runs.operands import same

_SIZES = [((40, 70), (70, 50)), ((150, 300), (300, 90)), ((3, 33, 130), (3, 130, 40)), ((600, 37), (37, 20))]


def graded(rng: np.random.Generator, left: tuple[int, ...], right: tuple[int, ...], dtype: str) -> tuple[Any, Any]:
    """Operands graded along k, some inner indices of which are zero, with an element that is NaN now and then."""
    k, reach = left[-1], 12 if dtype in ("f4", "c8") else 40
    d = np.exp2(rng.integers(-reach, reach + 1, (*left[:-2], k)).astype(float))
    a, b = rng.standard_normal(left), rng.standard_normal(right)
    if dtype in ("c8", "c16"):
        a, b = a + 1j * rng.standard_normal(left), b + 1j * rng.standard_normal(right)
    a, b = a * d[..., None, :], b / d[..., :, None]
    a[..., rng.random(k) < 0.05] = 0
    b[..., rng.random(k) < 0.05, :] = 0
    if rng.random() < 0.3:
        a[..., 2, 5] = np.nan
        b[..., 3, 1] = np.inf
    return a.astype(dtype), b.astype(dtype)


def inner_scaling(rng: np.random.Generator) -> None:
    """Plans and bits are those of NumPy, for operands in any order, also where a count is named."""
    for left, right in _SIZES:
        for dtype in ("f8", "f4", "c16", "c8"):
            a, b = graded(rng, left, right, dtype)
            if rng.random() < 0.5:
                a = a.swapaxes(-1, -2).copy().swapaxes(-1, -2)
            if rng.random() < 0.5:
                b = b.swapaxes(-1, -2).copy().swapaxes(-1, -2)
            on_device = cp.asarray(a), cp.asarray(b)
            bits = "fp32" if dtype in ("f4", "c8") else "fp64"
            ways: list[dict[str, Any]] = [
                {"accuracy": bits, "reproducible": True},
                {"accuracy": "exact"},
                {"accuracy": bits, "inner_scaling": True},
                {"scheme": "residues", "slices": 16, "inner_scaling": True},
            ]
            # All take minutes on the emulated device that has the most kernels.
            for way in (ways[i] for i in rng.permutation(4)[:2]):
                expected, report = ozaki.matmul(a, b, return_report=True, **way)
                got, found = ozaki.matmul(*on_device, return_report=True, **way)
                same(expected, got)
                assert (report.slices, report.bound, report.nonfinite) == (found.slices, found.bound, found.nonfinite)
                same(expected, ozaki.matmul(*on_device, **way))  # a repeated call
        a, b = graded(rng, left, right, "f8")
        many: dict[str, Any] = {"scheme": "residues", "slices": 55, "inner_scaling": True}
        same(ozaki.matmul(a, b, **many), ozaki.matmul(cp.asarray(a), cp.asarray(b), **many))
        digits: dict[str, Any] = {"scheme": "digits", "slices": 8, "inner_scaling": True}
        same(ozaki.matmul(a, b, **digits), ozaki.matmul(cp.asarray(a), cp.asarray(b), **digits))


def out_of_reach(rng: np.random.Generator) -> None:
    """Scaled elements that a format would not hold leave operands as they are, in that matrix of a stack."""
    a, b = rng.standard_normal((2, 40, 50)), rng.standard_normal((2, 50, 40))
    a[0, :, 3] *= 2.0**1000
    a[0, 1, 3] = 2.0**-600
    a[1] *= np.exp2(np.linspace(0, 60, 50))
    named: dict[str, Any] = {"scheme": "residues", "slices": 20, "inner_scaling": True}
    for way in ({"accuracy": "exact"}, named):
        same(ozaki.matmul(a, b, **way), ozaki.matmul(cp.asarray(a), cp.asarray(b), **way))


def beside_prepared(rng: np.random.Generator) -> None:
    """An operand that is prepared is scaled alone, and the other one follows; elements out of reach are refused."""
    for dtype in ("f8", "f4", "c16"):
        a, b = graded(rng, (2, 40, 70), (2, 70, 50), dtype)
        a, b = np.nan_to_num(a, nan=1.0), np.nan_to_num(b, posinf=1.0)
        for x, y in ((a, b), (a[0], b[0])):
            plan = ozaki.plan(x, y, scheme="residues", slices=16, inner_scaling=True)
            on_device = cp.asarray(x), cp.asarray(y)
            for side in (0, 1):
                given, found = [x, y], [*on_device]
                given[side] = ozaki.prepare(given[side], ("left", "right")[side], plan)
                found[side] = ozaki.prepare(found[side], ("left", "right")[side], plan)
                expected, report = ozaki.matmul(*given, plan=plan, return_report=True)
                got, of_device = ozaki.matmul(*found, plan=plan, return_report=True)
                same(expected, got)
                assert report.bound == of_device.bound
                same(expected, ozaki.matmul(*found, plan=plan))
    a, b = graded(rng, (40, 70), (70, 50), "f8")
    plan = ozaki.plan(a, b, scheme="residues", slices=15, inner_scaling=True)
    right = ozaki.prepare(cp.asarray(np.ldexp(np.nan_to_num(b, posinf=1.0), 600)), "right", plan)
    with pytest.raises(ValueError, match=r"^a: elements leave the range of float64"):
        ozaki.matmul(cp.asarray(np.ldexp(np.nan_to_num(a, nan=1.0), 940)), right, plan=plan)
