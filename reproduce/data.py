"""The matrices of the papers, drawn by us."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


def uniform(rng: np.random.Generator, shape: tuple[int, ...], low: float, high: float) -> Floats:
    """Uniform on (low, high], as float32."""
    return (high - (high - low) * rng.random(shape)).astype(np.float32)


def exp_rand(rng: np.random.Generator, shape: tuple[int, ...], low: int, high: int) -> Floats:
    """Equation 25 of Ootomo and Yokota: uniform exponents from low to high, uniform significands, random signs."""
    signs = 1 - 2 * rng.integers(0, 2, shape)
    return np.ldexp(signs * (1 + rng.random(shape)), rng.integers(low, high + 1, shape)).astype(np.float32)


def randtlr(rng: np.random.Generator, n: int, tile: int = 64, decay: float = 0.5) -> Floats:
    """A random tile low-rank matrix: in each tile, singular values that fall by a constant factor."""
    x = np.empty((n, n))
    values = decay ** np.arange(tile)
    for i in range(0, n, tile):
        for j in range(0, n, tile):
            left, right = (np.linalg.qr(rng.standard_normal((tile, tile)))[0] for _ in range(2))
            x[i : i + tile, j : j + tile] = ((left * values) @ right)[: n - i, : n - j]
    return x.astype(np.float32)


def spatial(rng: np.random.Generator, n: int, length: float = 0.1) -> Floats:
    """The exponential kernel exp(-distance / length) of points in the unit square, on a jittered grid."""
    side = int(np.ceil(np.sqrt(n)))
    grid = np.stack(np.meshgrid(np.arange(side), np.arange(side)), -1).reshape(-1, 2)[:n]
    points = (grid + 0.4 * rng.random((n, 2))) / side
    distance = np.linalg.norm(points[:, None] - points[None], axis=-1)
    kernel: Floats = np.exp(-distance / length).astype(np.float32)
    return kernel


def cauchy(rng: np.random.Generator, n: int) -> Floats:
    """A Cauchy matrix, 1 / (x_i - y_j), of interleaved points."""
    x = (np.arange(n) + 0.2 * rng.random(n)) / n
    y = (np.arange(n) + 0.5 + 0.2 * rng.random(n)) / n
    return (1 / (x[:, None] - y[None])).astype(np.float32)


def spread_normal(rng: np.random.Generator, shape: tuple[int, ...], phi: float) -> npt.NDArray[Any]:
    """(rand - 0.5) exp(phi randn): the wider phi, the wider the exponents (Mukunoki et al., ISC 2020)."""
    x: npt.NDArray[Any] = (rng.random(shape) - 0.5) * np.exp(phi * rng.standard_normal(shape))
    return x
