"""The error terms of a componentwise proof (B1): where they lie on the device, and the bytes of those from the host."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ozaki.backends.cupy.devices.tiles import PADDED_COLUMNS, round_up
from ozaki.backends.cupy.program.arrays import Place
from ozaki.bounds.exact import ErrorTerms


class Terms(NamedTuple):
    """Where the error terms of both operands lie in one buffer: rounded ones, then exact ones (arithmetic/worst.cuh).

    Attributes
    ----------
    batch_a, m : matrices and rows of the left operand
    batch_b, n : matrices and rows of the right operand
    rows : rows of the left and of the right operand in all matrices
    padded : rows of a matrix of the left and the right operand that have rounded terms: whole fours, and whole tiles
    rounded : rows of the left and of the right operand that have rounded terms, in all matrices
    nbytes : bytes of all terms
    """

    batch_a: int
    m: int
    batch_b: int
    n: int
    rows: tuple[int, int]
    padded: tuple[int, int]
    rounded: tuple[int, int]
    nbytes: int

    @classmethod
    def of(cls, left: tuple[int, ...], right: tuple[int, ...]) -> Terms:
        """The layout of the error terms of operands of these shapes (batch, rows, k)."""
        (batch_a, m, *_), (batch_b, n, *_) = left, right
        rows, padded = (batch_a * m, batch_b * n), (round_up(m, 4), round_up(n, PADDED_COLUMNS))
        rounded = batch_a * padded[0], batch_b * padded[1]
        nbytes = _ROUNDED_BYTES * sum(rounded) + 24 * sum(rows)
        return cls(batch_a, m, batch_b, n, rows, padded, rounded, nbytes)

    def places(self, memory: Place) -> list[Place]:
        """Addresses in the buffer: of exact and rounded terms of the left operand, then of those of the right one."""
        exact = memory.plus(_ROUNDED_BYTES * sum(self.rounded))
        return [exact, memory, exact.plus(24 * self.rows[0]), memory.plus(_ROUNDED_BYTES * self.rounded[0])]

    @property
    def structs(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The structs Terms (arithmetic/worst.cuh) of the left and of the right operand."""
        (a, b), (padded_a, padded_b) = self.rows, self.padded
        left = (self.m, _ROUNDED_BYTES // 4 * padded_a) if self.batch_a > 1 else (0, 0)
        right = (self.n, _ROUNDED_BYTES // 4 * padded_b) if self.batch_b > 1 else (0, 0)
        return (None, None, a, *left), (None, None, b, *right)

    def from_host(self, terms: ErrorTerms) -> npt.NDArray[np.uint8]:
        """The bytes of the buffer for error terms from the host."""
        left, right = self.padded
        rounded = _rounded(terms.left, left, False).tobytes() + _rounded(terms.right, right, True).tobytes()
        return np.frombuffer(rounded + terms.left.tobytes() + terms.right.tobytes(), np.uint8)


_ROUNDED_BYTES = 20
"""Bytes of a row's rounded terms: ROUNDED float32 numbers (kernels/arithmetic/worst.cuh)."""


def _rounded(terms: npt.NDArray[np.float64], padded: int, columns: bool) -> npt.NDArray[np.float32]:
    """Rounded terms as kernels/arithmetic/worst.cuh has them, [batch][padded / 4][5][4]."""
    _, batch, rows = terms.shape
    out = np.zeros((batch, padded // 4, 5, 4), np.float32)
    each = np.zeros((3, batch, padded), np.float32)
    each[..., :rows] = _to_float32(terms, np.inf)
    out[:, :, :3] = each.reshape(3, batch, -1, 4).transpose(1, 2, 0, 3)
    if columns:
        first = np.where(terms[0] == 0, np.nan, terms[0])
        inverse = np.full((batch, padded), np.nan, np.float32)
        inverse[:, :rows] = _to_float32(1 / first, -np.inf)
        out[:, :, 3] = inverse.reshape(batch, -1, 4)
        quotients = np.zeros((2, batch, padded), np.float32)
        quotients[..., :rows] = np.nan_to_num(_to_float32(terms[1:] / first, np.inf), posinf=np.inf)
        largest = quotients.reshape(2, batch, -1, 16).max(3)
        out[:, :, 4, :2] = largest.repeat(4, 2).transpose(1, 2, 0)
    return out


def _to_float32(x: npt.NDArray[np.float64], toward: float) -> npt.NDArray[np.float32]:
    """x rounded to float32, up for `toward` = inf, down for -inf."""
    nearest = x.astype(np.float32)
    beyond = nearest < x if toward > 0 else nearest > x
    return np.where(beyond, np.nextafter(nearest, np.float32(toward)), nearest)
