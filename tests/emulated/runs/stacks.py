"""Stacks of small products by one kernel, against NumPy, bit for bit."""

from __future__ import annotations

from dataclasses import replace
from math import isqrt
from typing import Any

import cupy as cp
import numpy as np

import ozaki
from ozaki.backends.cupy import devices
from ozaki.schemes import Residues
from runs.device import guarded, in_place_of_the_device, seen
from runs.operands import hard, matrix, same


def strided(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, kind: int) -> np.ndarray:
    """A stack of matrices of that shape: contiguous, transposed, a part of a larger one, reversed, or all equal."""
    batch, m, n = shape
    if kind == 1:
        return matrix(rng, (batch, n, m), dtype, 30).swapaxes(1, 2)
    if kind == 2:
        return matrix(rng, (batch + 1, m + 3, 2 * n + 1), dtype)[1:, 2 : m + 2, 1::2][:, :, :n]
    if kind == 3:
        return matrix(rng, shape, dtype)[::-1, ::-1, ::-1]
    if kind == 4:
        return np.broadcast_to(matrix(rng, (1, m, n), dtype), shape)
    return matrix(rng, shape, dtype)


def product(a: np.ndarray, b: np.ndarray, **options: Any) -> None:
    """One product on the device, in one launch, has the bits of NumPy."""
    with np.errstate(all="ignore"):
        expected = ozaki.matmul(a, b, **options)
    with seen() as calls:
        got = ozaki.matmul(cp.asarray(a), cp.asarray(b), **options)
    same(expected, got)
    assert calls.names == ["stack"], (a.shape, b.shape, calls.names)


def stacks(rng: np.random.Generator) -> None:
    """Ragged shapes, strides, formats and counts."""
    shapes = [(3, 16, 16, 16), (2, 5, 1, 7), (5, 17, 16, 3), (3, 32, 32, 32), (2, 33, 20, 18), (2, 64, 64, 64)]
    shapes += [(2, 70, 50, 35), (2, 20, 100, 40), (2, 16, 200, 33), (2, 1, 256, 1)]
    for batch, m, k, n in shapes:
        dtypes = "f8", rng.choice(["f8", "f4"])
        a, b = (
            strided(rng, (batch, m, k), dtypes[0], int(rng.integers(4))),
            strided(rng, (batch, k, n), dtypes[1], int(rng.integers(5))),
        )
        if batch % 2:
            a, b = b.swapaxes(1, 2), a.swapaxes(1, 2)
        product(a, b, scheme="residues", slices=14)
        product(a.astype("f4"), b.astype("f4"), scheme="digits", slices=3)
    product(matrix(rng, (2, 50, 200), "f4"), matrix(rng, (2, 200, 64), "f4"), scheme="digits", slices=3)
    for slices in range(1, 7):
        m, k, n = rng.integers(1, 40, 3)
        dtype = "f4" if slices < 4 else "f8"
        product(matrix(rng, (2, m, k), dtype), matrix(rng, (2, k, n), dtype), scheme="digits", slices=slices)
    for slices in (4, 5, 7, 8, 11, 12, 13, 15, 17, 20):
        m, k, n = rng.integers(1, 40, 3)
        dtype = "f4" if slices < 9 else "f8"
        product(matrix(rng, (2, m, k), dtype), matrix(rng, (2, k, n), dtype), scheme="residues", slices=slices)


def complex_matrix(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, kind: int) -> np.ndarray:
    """A stack of complex matrices, as `strided` has them."""
    batch, m, n = shape
    part = "f8" if dtype == "c16" else "f4"
    x = strided(rng, (batch, m, 2 * n), part, kind)
    made = np.empty(shape, dtype)
    made.real, made.imag = x[:, :, :n], x[:, :, n:]
    return made.swapaxes(1, 2).copy().swapaxes(1, 2) if kind == 1 else made[:, ::-1] if kind == 3 else made


def complex_stacks(rng: np.random.Generator) -> None:
    """Of both formats, ragged and strided ones; NaN, Inf, zeros; results out of range."""
    shapes = [(3, 16, 16, 16), (2, 5, 1, 7), (2, 33, 20, 18), (2, 70, 50, 35), (2, 20, 100, 40), (2, 3, 128, 70)]
    for batch, m, k, n in shapes:
        dtypes, kinds = rng.choice(["c16", "c8"], 2), rng.integers(0, 5, 2)
        a, b = (
            complex_matrix(rng, (batch, m, k), dtypes[0], int(kinds[0])),
            complex_matrix(rng, (batch, k, n), dtypes[1], int(kinds[1])),
        )
        product(a, b, scheme="residues", slices=15)
        product(a.astype("c8"), b.astype("c8").conj(), scheme="residues", slices=7)
    for slices in (4, 5, 6, 8, 10, 11, 12, 13, 14):
        m, k, n = rng.integers(1, 40, 3)
        dtype = "c8" if slices < 9 else "c16"
        a, b = complex_matrix(rng, (2, m, k), dtype, 0), complex_matrix(rng, (2, k, n), dtype, 0)
        product(a, b, scheme="residues", slices=slices)
    for dtype, slices in (("c16", 15), ("c8", 8)):
        x = hard(rng, 30, "f8" if dtype == "c16" else "f4")
        a = (x + 0j).astype(dtype)
        a.imag = x[::-1, ::-1]
        product(a, a.conj().swapaxes(1, 2), scheme="residues", slices=slices)
        product(a[:, :, :14], a[::-1, 3:17], scheme="residues", slices=slices)
        least = float(np.finfo(dtype).smallest_subnormal)
        for scale in (float(np.finfo(dtype).max) ** 0.5, least**0.5, 2.0**-10 * least**0.5):
            a, b = (complex_matrix(rng, (2, 17, 17), "c16", 0) * scale for _ in "ab")
            product(a.astype(dtype), b.astype(dtype), scheme="residues", slices=slices)


def hard_stacks(rng: np.random.Generator) -> None:
    """NaN, Inf, zeros, subnormal numbers and huge ranges; results that over- and underflow; integers; ties."""
    schemes = (
        ("residues", "f8", 14),
        ("residues", "f4", 7),
        ("residues", "f8", 15),
        ("residues", "f8", 20),
        ("digits", "f4", 3),
        ("digits", "f8", 6),
    )
    for scheme, dtype, slices in schemes:
        for k in (12, 30, 90):
            x = hard(rng, max(k, 12), dtype)[:, :, :k]
            product(x, x[::-1].swapaxes(1, 2), scheme=scheme, slices=slices)
        least = np.finfo(dtype).smallest_subnormal
        for scale in (np.finfo(dtype).max ** 0.5, least**0.5, 2.0**-10 * least**0.5):
            a, b = (rng.standard_normal((2, 17, 17)) * scale for _ in "ab")
            product(a.astype(dtype), b.astype(dtype), scheme=scheme, slices=slices)
        a, b = (rng.integers(-9, 10, (2, 17, 17)) * 2.0**e for e in (30, -40))
        product(a.astype(dtype), b.astype(dtype), scheme=scheme, slices=slices)
        single = np.zeros((3, 20, 20), dtype)
        single[:, np.arange(20), rng.integers(0, 20, 20)] = rng.choice([-1.0, 1.0], (3, 20)) * (1 + rng.random((3, 20)))
        product(single, single.swapaxes(1, 2), scheme=scheme, slices=slices)
        product(single + single * 1e-9, matrix(rng, (3, 20, 4), dtype), scheme=scheme, slices=slices)


def tiles_in_turn(rng: np.random.Generator) -> None:
    """Blocks that compute several tiles of a product, and keep the slices of rows and columns; of many warps, too."""
    with in_place_of_the_device(replace(devices.current(), multiprocessors=1)):
        for shape in ((9, 70, 20, 100), (33, 40, 7, 50), (7, 150, 70, 70), (5, 40, 130, 64), (12, 16, 33, 130)):
            batch, m, k, n = shape
            a, b = matrix(rng, (batch, m, k), "f8"), matrix(rng, (batch, k, n), "f8")
            a[0, rng.integers(m), k - 1], b[1, k - 1, rng.integers(n)] = np.nan, np.inf
            product(a, b, scheme="residues", slices=14)
            product(a.astype("f4"), b.astype("f4"), scheme="digits", slices=3)


def long_images(rng: np.random.Generator) -> None:
    """Images so long that quotients by 253 may be off by one: of each residue, of both signs."""
    for slices in (14, 15, 20):
        longest = float(isqrt(Residues(slices).range)) * (1 - 2.0**-12)
        images = np.rint(longest / 4) * 4 + np.arange(512) * 4 * max(float(np.spacing(longest)), 1.0)
        for shape in ((16, 16), (32, 32)):
            a = np.zeros((512 // shape[0], *shape))
            a[:, np.arange(shape[0]), rng.integers(0, shape[0], shape[0])] = images.reshape(-1, shape[0])
            product(a, matrix(rng, a.shape, "f8"), scheme="residues", slices=slices)
            product(matrix(rng, a.shape, "f8"), (-a).swapaxes(1, 2), scheme="residues", slices=slices)


def stacks_at_the_end_of_memory(rng: np.random.Generator) -> None:
    """No kernel reads or writes beyond the operands and the result."""
    with guarded():
        for shape in ((3, 15, 13, 17), (2, 31, 33, 5)):
            batch, m, k, n = shape
            product(matrix(rng, (batch, m, k), "f8"), matrix(rng, (batch, k, n), "f8"), scheme="residues", slices=14)
