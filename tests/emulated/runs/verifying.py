"""Products that are checked: right ones keep their bits; a bit that flips between kernels is found."""

from __future__ import annotations

import warnings
from typing import Any
from unittest import mock

import cupy as cp
import numpy as np
import pytest

import ozaki
from ozaki.backends.cupy.steps import faults
from ozaki.backends.cupy.steps.engines import winograd
from runs.operands import matrix, same

_WAYS: list[dict[str, Any]] = [
    {"accuracy": "fp64"},
    {"scheme": "residues", "slices": 9},
    {"scheme": "residues", "slices": 25, "inner_scaling": True},
    {"accuracy": "fp64", "workspace_limit": 1_500_000},
]
_SIZES = [
    *(((40, 70), (70, 50)), ((150, 300), (300, 90)), ((600, 37), (37, 20))),
    *(((3, 33, 130), (3, 130, 40)), ((5, 33, 300), (1, 300, 40))),
]


def right_products(rng: np.random.Generator) -> None:
    """Bits are those of NumPy, of all layouts; calls are repeated; reports count projections.

    A stack whose rows lie evenly, times one matrix, is one product.
    """
    for left, right in _SIZES:
        for dtype in ("f8", "f4", "c16"):
            a, b = matrix(rng, left, dtype), matrix(rng, right, dtype)
            if rng.random() < 0.5:
                a = a.swapaxes(-1, -2).copy().swapaxes(-1, -2)
            if rng.random() < 0.5:
                b = b.swapaxes(-1, -2).copy().swapaxes(-1, -2)
            on_device = cp.asarray(a), cp.asarray(b)
            for way in _WAYS:
                if "c" in dtype and ("scheme" in way or "workspace_limit" in way):
                    continue
                if "inner_scaling" in way and right[0] == 1:  # of what is broadcast there is none
                    continue
                without = {name: x for name, x in way.items() if name != "workspace_limit"}
                expected = ozaki.matmul(a, b, reproducible=True, **without)
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    got, report = ozaki.matmul(*on_device, verify=True, return_report=True, **way)
                    same(expected, got)
                    each = {1, int(np.prod(left[:-2]))} if right[0] == 1 else {int(np.prod(left[:-2]))}
                    assert report.recomputed == 0 and report.verified in {2 * of for of in each}, report
                    for _ in range(3):
                        same(expected, ozaki.matmul(*on_device, verify=True, **way))
    a, b, c = matrix(rng, (40, 70), "f8"), matrix(rng, (70, 50), "f8"), matrix(rng, (40, 50), "f8")
    x, y, z = map(cp.asarray, (a, b, c))
    for _ in range(3):
        same(ozaki.gemm(-2, a, b, 3, c, reproducible=True), ozaki.gemm(-2, x, y, 3, z, verify=True))
        same(ozaki.matmul(a, a.T, reproducible=True), ozaki.matmul(x, x.T, verify=True))


def quadrants_projected(rng: np.random.Generator) -> None:
    """Products by Strassen-Winograd, whose quadrants are projected."""
    with mock.patch.object(winograd, "_FROM", 1):
        ozaki.clear_caches()
        for m, k, n in ((300, 200, 260), (129, 140, 30)):
            a, b = matrix(rng, (m, k), "f8"), matrix(rng, (k, n), "f8")
            got, report = ozaki.matmul(
                cp.asarray(a), cp.asarray(b), accuracy="fp64", engine="fused", verify=True, return_report=True
            )
            assert "Winograd" in report.engine and (report.verified, report.recomputed) == (2, 0)
            same(ozaki.matmul(a, b, accuracy="fp64", reproducible=True), got)
    ozaki.clear_caches()


def _flips(rng: np.random.Generator, shape: tuple[int, int, int], found: dict[str, int], **way: Any) -> None:
    """Flip a bit in each buffer: either the result is right at once, as of padding, or it is found and right then."""
    m, k, n = shape
    a, b = matrix(rng, (m, k), "f8"), matrix(rng, (k, n), "f8")
    expected = ozaki.matmul(a, b, accuracy="fp64", reproducible=True)
    x, y = cp.asarray(a), cp.asarray(b)
    for buffer in ("a.planes", "b.planes", "a.exponents", "b.exponents", "y"):
        for _ in range(6):
            bits = 4 if "exponents" in buffer else 8
            place = rng.random()
            if "exponents" in buffer:  # the lowest byte of an exponent: others leave the range of images
                rows = m if buffer[0] == "a" else n
                place = (4 * int(rng.integers(rows)) + 0.5) / (4 * rows)
            faults.NEXT.append(faults.Fault(buffer, place, int(rng.integers(bits))))
            with warnings.catch_warnings(record=True) as log:
                warnings.simplefilter("always")
                got, report = ozaki.matmul(x, y, accuracy="fp64", verify=True, return_report=True, **way)
            assert not faults.NEXT, buffer
            assert report.recomputed == len(log) and report.verified == 2
            same(expected, got)
            found[buffer] = found.get(buffer, 0) + report.recomputed


def flipped(rng: np.random.Generator) -> None:
    """A bit that flips in slices, exponents or residues of the product."""
    found: dict[str, int] = {}
    _flips(rng, (256, 256, 512), found)
    # Slices and residues of tiles have padding, and residues of parts of k are read no more once they are summed.
    assert found["a.exponents"] == found["b.exponents"] == 6 and sum(found.values()) >= 14, found
    _flips(rng, (45, 100, 50), found)


def flipped_quadrants(rng: np.random.Generator) -> None:
    """The same by Strassen-Winograd."""
    with mock.patch.object(winograd, "_FROM", 1):
        ozaki.clear_caches()
        found: dict[str, int] = {}
        _flips(rng, (512, 256, 512), found, engine="fused")
        assert found["a.exponents"] == found["b.exponents"] == 6 and sum(found.values()) >= 14, found
    ozaki.clear_caches()


def lasting_faults(rng: np.random.Generator) -> None:
    """A product that is wrong twice ends with an error; the program of a repeated call that is wrong gives way."""
    a, b = matrix(rng, (256, 256), "f8"), matrix(rng, (256, 64), "f8")
    expected = ozaki.matmul(a, b, accuracy="fp64", reproducible=True)
    x, y = cp.asarray(a), cp.asarray(b)
    fault = faults.Fault("a.planes", 0.1, 3)
    faults.NEXT[:] = [fault, fault]
    with pytest.warns(RuntimeWarning, match="computed once more"), pytest.raises(ozaki.VerificationError):
        ozaki.matmul(x, y, accuracy="fp64", verify=True)
    assert not faults.NEXT
    same(expected, ozaki.matmul(x, y, accuracy="fp64", verify=True))
    faults.NEXT[:] = [fault]  # in the program that is kept, and made by the second call
    with pytest.warns(RuntimeWarning, match="computed once more"):
        same(expected, ozaki.matmul(x, y, accuracy="fp64", verify=True))
    for _ in range(2):
        same(expected, ozaki.matmul(x, y, accuracy="fp64", verify=True))
    ozaki.clear_caches()


def refused(rng: np.random.Generator) -> None:
    """What no kernel projects."""
    a, b = cp.asarray(matrix(rng, (40, 70), "f8")), cp.asarray(matrix(rng, (70, 50), "f8"))
    ways: tuple[dict[str, Any], ...] = (
        {"scheme": "digits", "slices": 4},
        {"scheme": "residues", "slices": 60},
        {"dtype": "mp", "accuracy": 80},
    )
    for way in ways:
        with pytest.raises(ValueError, match=r"^verify: on a GPU True checks products of floats"):
            ozaki.matmul(a, b, verify=True, **way)
