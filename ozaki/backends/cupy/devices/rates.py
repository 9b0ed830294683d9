"""How long products take on a device, from a small table of measured rates."""

from __future__ import annotations

from dataclasses import dataclass

from ozaki.schemes import Digits, Residues, Scheme, Words

_HOPPER_TOPS, _HOPPER_COOL_TOPS = 1550.0, 1850.0
"""Of the fused int8 kernels on an H200: of what is needed, at the limit of power (benchmarks/results: 1423 to 1592),
and of all that clusters could do meanwhile, where some are idle."""

_WORD_TFLOPS, _WORD_COOL_TFLOPS = 660.0, 740.0
"""The same of the wgmma kernel of FP16 words (666 and 667 at 8192 and 16384); half of it for TF32."""

_WIDE = 1536
"""Rows and columns from which on cuBLAS has its rate of int8 (H200, H100: two thirds with 1024 and a long k)."""

_NATIVE = {"float64": 40e-6, "float32": 28e-6}
"""Seconds that small native products take besides what their rate says (H200 and H100: 512 to 2048)."""

_WORDS, _DIGITS, _RESIDUES = 8e-6, 30e-6, 80e-6
"""The same of words; and of slices that are planned from the data, when a plan was made before for such operands."""

_HOST = 33e-6
"""Seconds that native products take at least, one after the other."""

_FOUND, _PLANNED, _GLANCED = 36e-6, 150e-6, 210e-6
"""The same of words, of residues planned from data, and of digits, whose operands are looked at before (below 1536)."""

_SHORT, _LONG, _LONG_OF_WORDS = 256, 8192, 16384
"""Elements of rows below which words take as long to cut, and beyond which residues and words take two reads."""


@dataclass(frozen=True)
class Rates:
    """Peak TFLOP/s of float64 and float32, TOPS of int8 with cuBLAS, TB/s of memory; times are in seconds."""

    float64: float
    float32: float
    int8: float
    memory: float

    def native(self, batch: int, m: int, k: int, n: int, dtype: str) -> float:
        """Of the native product."""
        rate = self.float64 if dtype == "float64" else self.float32
        return max(2e-12 * batch * m * n * k / rate + _NATIVE[dtype], _HOST)

    def slices(
        self, batch: int, m: int, k: int, n: int, dtype: str, scheme: Scheme, entries: float, fused: bool, done: float
    ) -> float:
        """Of a product out of slices that is planned from the data.

        `entries`: of the whole batch, that would be multiplied in the same time if nothing of the device were idle.
        `done`: the part of the operations that is left of them.
        """
        itemsize = 8 if dtype == "float64" else 4
        if fused:
            multiplied = max(batch * m * n / _HOPPER_TOPS, entries / _HOPPER_COOL_TOPS)
        else:
            multiplied = entries / (self.int8 * min((m * n) ** 0.5 / _WIDE, 1))
        multiplied *= 2e-12 * scheme.products * k * done
        # Bytes of an entry between the products and C, written and read.
        between = 6 * scheme.products if not fused else 2 * scheme.count if isinstance(scheme, Residues) else 0
        reads = 1 if isinstance(scheme, Residues) and k <= _LONG else 2
        of_element = reads * itemsize + 1.5 * scheme.count  # half of the slices is read again
        traffic = 1e-12 * ((m + n) * k * of_element + m * n * (between + itemsize)) / self.memory
        proof = 5e-13 * m * n * k / self.int8  # a sampled product
        time = multiplied + batch * (traffic + proof)
        return max(time + _DIGITS, _GLANCED) if isinstance(scheme, Digits) else max(time + _RESIDUES, _PLANNED)

    def words(self, batch: int, m: int, k: int, n: int, words: Words, entries: float) -> float:
        """The same of words on Hopper, of which a quarter is read again from memory."""
        width = 4 if words.word == "tf32" else 2
        multiplied = max(batch * m * n / _WORD_TFLOPS, entries / _WORD_COOL_TFLOPS)
        multiplied *= 1e-12 * words.products * k * width
        reads = 1 if k <= _LONG_OF_WORDS else 2
        cut = (m + n) * max(k, _SHORT) * (4 * reads + 1.25 * width * words.count)
        traffic = 1e-12 * (cut + 4 * m * n) / self.memory
        return max(multiplied + batch * traffic + _WORDS, _FOUND)
