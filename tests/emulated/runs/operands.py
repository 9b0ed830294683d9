"""Operands of cases, and the comparison of their results."""

from __future__ import annotations

import cupy as cp
import numpy as np


def matrix(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, spread: int = 3) -> np.ndarray:
    x = np.ldexp(rng.standard_normal(shape), rng.integers(-spread, spread + 1, shape))
    return x.astype(dtype)


def hard(rng: np.random.Generator, k: int, dtype: str) -> np.ndarray:
    """Two matrices of 41 rows; some are zero, subnormal, graded, near overflow, of few bits, or have NaN and Inf."""
    x = matrix(rng, (2, 41, k), dtype, 20)
    least = np.finfo(dtype).smallest_subnormal
    x[0, 0], x[1, 1] = 0, least * rng.integers(-9, 10, k)
    x[0, 2] = np.ldexp(x[0, 2], -np.arange(k) // 3)
    x[1, 3, rng.integers(k, size=9)] = [np.nan, np.inf, -np.inf] * 3
    x[0, 4], x[1, 5, ::2] = np.nan, least
    x[0, 6] = np.ldexp(x[0, 6] / abs(x[0, 6]).max(), np.finfo(dtype).maxexp - 1)
    x[0, 7], x[1, 7] = rng.integers(-7, 8, k), rng.integers(-(2**20), 2**20, k)
    x[1, 8] = x[0, 7]
    x[1, 8, k // 2] += 2.0**-20
    return x


def in_tiles(x: np.ndarray, rows: int, k: int, tile: int, neighbours: int) -> np.ndarray:
    """Bytes (batch, rows, k), padded and in the order of tiles of kernels/hardware/tiles.cuh."""
    j = np.arange(tile)
    if n := neighbours:
        j = j - j % (4 * n) + 8 * (j % n // 2) + 2 * (j // n % 4) + j % 2
    place = j[:, None]
    padded = np.zeros((len(x), rows, k), np.int8)
    padded[:, : x.shape[1], : x.shape[2]] = x
    pieces = padded.reshape(len(x), -1, tile, k // 128, 8, 16).swapaxes(2, 3)
    stored = np.empty_like(pieces)
    stored[..., place, np.arange(8) ^ place % 8, :] = pieces
    return stored.reshape(len(x), -1)


def same(expected: np.ndarray, got: np.ndarray) -> None:
    got = cp.asnumpy(got)
    assert expected.dtype == got.dtype and expected.shape == got.shape, (expected.dtype, got.dtype)
    if expected.dtype.kind == "c":
        same(np.ascontiguousarray(expected).view(expected.real.dtype), np.ascontiguousarray(got).view(got.real.dtype))
        return
    differ = expected.view(f"u{expected.itemsize}") != got.view(f"u{got.itemsize}")
    differ &= ~(np.isnan(expected) & np.isnan(got))
    assert not differ.any(), f"{differ.sum()} of {differ.size} differ, first at {tuple(np.argwhere(differ)[0])}"
