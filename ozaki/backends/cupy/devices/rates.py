"""How long products take on a device, from a small table of measured rates. Times are in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

import numpy as np

from ozaki.schemes import Scheme, Words

_WIDE = 1536
"""Rows and columns from which on cuBLAS reaches its int8 rate (H200, H100: two thirds of it with 1024 and a long k)."""

_NATIVE_START = {"float64": 40e-6, "float32": 28e-6}
"""Seconds that a native product takes beyond what its rate says (H200 and H100, n = 512 to 2048)."""

_HOST = 33e-6
"""Seconds that the host needs to start one native product after another."""

LONGEST_OF_WORDS = 16384
"""The most elements of a row that is cut into words in one read; longer ones take two kernels, which read it twice."""

_SHORT_WORDS = 256
"""Length of a row below which words are split no faster than rows of that length."""

LONGEST_OF_SUMS = 8192
"""The most elements of a row that is cut into slices in one read, where sums of magnitudes are needed (residues)."""


def reads_of_rows(k: int) -> int:
    """How often an operand of residues is read to describe and split it."""
    return 1 if k <= LONGEST_OF_SUMS else 2


class Planned(NamedTuple):
    """What planning from data costs a product of slices or words, where such operands were planned before.

    Measured on an H200 (digits: 204 to 253 microseconds from 384 to 1536), and assumed of all devices.

    Attributes
    ----------
    extra : seconds beyond those of the product itself
    least : seconds of the whole product at least: the host takes as long to start it
    """

    extra: float
    least: float


RESIDUES = Planned(80e-6, 150e-6)
DIGITS = Planned(30e-6, 210e-6)  # digits are sampled before they are proven
WORDS = Planned(8e-6, 36e-6)


@dataclass(frozen=True)
class KernelRates:
    """How fast the library's own kernels are on a family of devices that has them.

    Two rates each: of a product that keeps the whole device busy, so that power limits the clock; and, `_cool`, of one
    that leaves multiprocessors idle, per busy multiprocessor as if all were: the clock is then not limited by power.

    Attributes
    ----------
    int8, int8_cool : TOPS of the fused kernels of digits and residues
    words, words_cool : TFLOP/s of the kernels of FP16 words; those of TF32 have half of it
    """

    int8: float
    int8_cool: float
    words: float
    words_cool: float


@dataclass(frozen=True)
class Rates:
    """How fast a family of devices is.

    Attributes
    ----------
    float64, float32 : TFLOP/s of native products
    int8 : TOPS of cuBLAS
    memory : TB/s
    kernels : rates of the library's own kernels; None if the family has none
    measured : whether these were measured; else they are what the maker publishes, or assumed
    """

    float64: float
    float32: float
    int8: float
    memory: float
    kernels: KernelRates | None = None
    measured: bool = False

    def native(self, batch: int, m: int, k: int, n: int, dtype: str) -> float:
        """Seconds that the native product takes."""
        rate = self.float64 if dtype == "float64" else self.float32
        return max(2e-12 * batch * m * n * k / rate + _NATIVE_START[dtype], _HOST)

    def fused(self, entries: float, busy_entries: float) -> float:
        """Picoseconds of the fused kernels for one operation on each entry: the slower of both limits of a product.

        `entries`: of the result. `busy_entries`: how many a busy device could compute in the time of the product.
        """
        assert self.kernels is not None
        return max(entries / self.kernels.int8, busy_entries / self.kernels.int8_cool)

    def cublas(self, m: int, n: int, padded_entries: float) -> float:
        """Picoseconds of cuBLAS for one operation on each of the `padded_entries` that it computes of m x n ones."""
        return padded_entries / (self.int8 * min(sqrt(m * n) / _WIDE, 1))

    def slices(
        self, batch: int, m: int, k: int, n: int, dtype: str, scheme: Scheme, *, operation_ps: float,
        product_bytes: float, reads: int, planned: Planned,
    ) -> float:  # fmt: skip
        """Seconds that a product of slices takes that is planned from its data.

        Parameters
        ----------
        operation_ps : picoseconds that one operation on each entry takes, by `fused` or `cublas`
        product_bytes : bytes that are written and read for the slice products of an entry, until it is recombined
        reads : how often the operands are read to describe and split them
        planned : what planning costs
        """
        itemsize = np.dtype(dtype).itemsize
        of_element = reads * itemsize + 1.5 * scheme.count  # half of the slices is read twice
        traffic = 1e-12 * ((m + n) * k * of_element + m * n * (product_bytes + itemsize)) / self.memory
        proof = 5e-13 * m * n * k / self.int8  # a product of a quarter of k
        time = operation_ps * (2e-12 * scheme.products * k)  # a product has 2 k operations for each entry
        time += batch * (traffic + proof)
        return max(time + planned.extra, planned.least)

    def words(self, batch: int, m: int, k: int, n: int, words: Words, busy_entries: float) -> float:
        """Seconds that a product of words takes; a quarter of the words is read twice.

        `busy_entries`: entries that a busy device could compute in the time of the product.
        """
        assert self.kernels is not None
        width = 4 if words.word == "tf32" else 2
        multiplied = max(batch * m * n / self.kernels.words, busy_entries / self.kernels.words_cool)
        multiplied *= 1e-12 * words.products * k * width
        reads = 1 if k <= LONGEST_OF_WORDS else 2
        cut = (m + n) * max(k, _SHORT_WORDS) * (4 * reads + 1.25 * width * words.count)
        traffic = 1e-12 * (cut + 4 * m * n) / self.memory
        return max(multiplied + batch * traffic + WORDS.extra, WORDS.least)
