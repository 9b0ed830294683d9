"""The proof's error terms of both operands: where they lie on the device, and how the host rounds its own."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ozaki.backends.cupy.devices.tiles import PADDED_COLUMNS
from ozaki.backends.cupy.program.arrays import Array, Place
from ozaki.backends.cupy.program.kernels import round_up
from ozaki.bounds.exact import ErrorTerms


class Terms(NamedTuple):
    """Where the error terms of both operands lie: all rounded ones, then the exact ones (arithmetic/worst.cuh)."""

    batch_a: int
    m: int
    batch_b: int
    n: int

    @classmethod
    def of(cls, left: Array, right: Array) -> Terms:
        """Of operands (batch, rows, k)."""
        return cls(*left.shape[:2], *right.shape[:2])

    @property
    def rows(self) -> tuple[int, int]:
        """Of all of the batch."""
        return self.batch_a * self.m, self.batch_b * self.n

    @property
    def padded(self) -> tuple[int, int]:
        """Rows of a batch entry for which there are rounded terms; the columns are those of whole tiles."""
        return round_up(self.m, 4), round_up(self.n, PADDED_COLUMNS)

    @property
    def rounded(self) -> tuple[int, int]:
        """Those of all of the batch."""
        return self.batch_a * self.padded[0], self.batch_b * self.padded[1]

    @property
    def nbytes(self) -> int:
        """Of all terms."""
        return _ROUNDED * sum(self.rounded) + 24 * sum(self.rows)

    def places(self, memory: Place) -> list[Place]:
        """Exact and rounded terms of the left operand, then of the right one."""
        exact = memory.plus(_ROUNDED * sum(self.rounded))
        return [exact, memory, exact.plus(24 * self.rows[0]), memory.plus(_ROUNDED * self.rounded[0])]

    @property
    def structs(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The structs Terms of both."""
        (a, b), (padded_a, padded_b) = self.rows, self.padded
        left = (self.m, _ROUNDED // 4 * padded_a) if self.batch_a > 1 else (0, 0)
        right = (self.n, _ROUNDED // 4 * padded_b) if self.batch_b > 1 else (0, 0)
        return (None, None, a, *left), (None, None, b, *right)

    def from_host(self, terms: ErrorTerms) -> npt.NDArray[np.uint8]:
        """The bytes at these places."""
        left, right = self.padded
        rounded = _rounded(terms.left, left, False).tobytes() + _rounded(terms.right, right, True).tobytes()
        return np.frombuffer(rounded + terms.left.tobytes() + terms.right.tobytes(), np.uint8)


_ROUNDED = 20
"""Bytes of a row's rounded terms: ROUNDED floats of kernels/arithmetic/worst.cuh."""


def _rounded(terms: npt.NDArray[np.float64], padded: int, columns: bool) -> npt.NDArray[np.float32]:
    """Rounded terms as there, [batch][rows / 4][5][4]."""
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
    """Rounded up or down."""
    nearest = x.astype(np.float32)
    beyond = nearest < x if toward > 0 else nearest > x
    return np.where(beyond, np.nextafter(nearest, np.float32(toward)), nearest)
