"""Rivals and error measures of the papers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.schemes.formats import Rounding
from ozaki.schemes.words import PRESETS, Words
from ozaki.tensor_core import TensorCore, round_to

Array = npt.NDArray[Any]

BLOCK_FMA_1 = TensorCore("block FMA of dimension 1", alignment_bits=40, fused=1, rounding="RN")
"""Products exact, each added in FP32, rounded to nearest: the simulation of Fasi et al., section 3."""


def simt(a: Array, b: Array) -> Array:
    """FP32 as on CUDA cores: one fused multiply-add after the other along k.

    A sum of two float64 numbers rounded to float32 is that of an FMA, but for double roundings, one in 2**29.
    """
    left, right = a.astype(np.float64).T, b.astype(np.float64)
    total = np.zeros((a.shape[0], b.shape[1]))
    for x, y in zip(left, right, strict=True):
        total = (total + np.multiply.outer(x, y)).astype(np.float32).astype(np.float64)
    return total.astype(np.float32)


PARTS = 16
"""The number of parts of the inner dimension in `in_parts`."""


def in_parts(a: Array, b: Array) -> Array:
    """As `simt`, each of 16 equal parts of k by itself, whose sums are then added.

    So GPUs share a long inner dimension out where there are few rows and columns.
    """
    left = a.astype(np.float64).reshape(len(a), PARTS, -1).transpose(2, 1, 0)
    right = b.astype(np.float64).reshape(PARTS, -1, b.shape[1]).transpose(1, 0, 2)
    totals = np.zeros((PARTS, a.shape[0], b.shape[1]))
    for x, y in zip(left, right, strict=True):
        totals = (totals + x[:, :, None] * y[:, None, :]).astype(np.float32).astype(np.float64)
    total = np.zeros(totals.shape[1:], np.float32)
    for part in totals.astype(np.float32):
        total += part
    return total


def markidis(a: Array, b: Array, rounding: Rounding) -> Array:
    """Markidis' method with `mma_rn` or `mma_rz` of Ootomo and Yokota in place of tensor cores, equation 11.

    Of each 16 of k, products are added in float64, cut to 25 bits after each one; then the accumulator, and the sum is
    rounded to float32.
    """
    size = a.shape[0], b.shape[1]
    left, right = (_two_words(x, axis) for x, axis in ((a, 1), (b, 0)))
    sums = []
    for s, t in ((1, 1), (1, 0), (0, 1), (0, 0)):
        x, y = left[s].reshape(size[0], -1, 16), right[t].reshape(-1, 16, size[1])
        total = np.zeros((y.shape[0], *size))
        for h in range(16):
            total = _cut(total + x[:, :, h].T[:, :, None] * y[:, h, None, :], 25)
        sums.append(total)
    c = np.zeros(size)
    for of_block in zip(*sums, strict=True):
        for part in of_block:
            c = (c + part).astype(np.float32).astype(np.float64) if rounding == "RN" else _cut(c + part, 24)
    return c.astype(np.float32)


def _two_words(x: Array, axis: int) -> list[Array]:
    """FP16 words, k padded to a multiple of 16."""
    padded = [(0, -x.shape[axis] % 16 if i == axis else 0) for i in range(2)]
    return parts(np.pad(x, padded), PRESETS["markidis"])[0]


def _cut(x: Array, bits: int) -> Array:
    """The leading bits of float64 numbers."""
    return np.asarray((x.view(np.int64) & -(1 << (53 - bits))).view(np.float64))


def parts(x: Array, words: Words) -> tuple[list[Array], Array]:
    """The words of a matrix as it is, without their scales, and what they leave; float64."""
    left, found = x.astype(np.float64), []
    for s in range(words.count):
        word = round_to(np.ldexp(left, words.scale_bits * s), words.word, words.rounding)
        found.append(np.ldexp(word, -words.scale_bits * s))
        left = left - found[-1]
    return found, left


def held(x: Array, words: Words) -> Array:
    """What words hold of a matrix without the scaling of its rows, as the papers have it; float32."""
    return np.asarray(sum(parts(x, words)[0], np.zeros(x.shape))).astype(np.float32)


def relative_residual(c: Array, a: Array, b: Array) -> float:
    """Equation 7 of Ootomo and Yokota: norm(C64 - C) / norm(C64), C64 a float64 product."""
    exact = a.astype(np.float64) @ b.astype(np.float64)
    return float(np.linalg.norm(exact - c) / np.linalg.norm(exact))


def componentwise(c: Array, a: Array, b: Array) -> float:
    """Equation 3.1 of Fasi et al.: max abs(C64 - C) / (abs(A) abs(B)), C64 a float64 product."""
    return largest_ratio(c, *product_and_scale(a, b))


def product_and_scale(a: Array, b: Array) -> tuple[Array, Array]:
    """C64, and abs(A) abs(B)."""
    left, right = a.astype(np.float64), b.astype(np.float64)
    return left @ right, np.abs(left) @ np.abs(right)


def largest_ratio(c: Array, exact: Array, scale: Array) -> float:
    return float((np.abs(exact - c) / scale).max())
