"""How long products take on a device, from a small table of measured rates."""

from __future__ import annotations

from dataclasses import dataclass

from ozaki.schemes import Digits, Residues, Scheme, Words

_HOPPER_TOPS, _HOPPER_COOL_TOPS = 1550.0, 1850.0
"""Of the fused int8 kernels on an H200: of what is needed, at the limit of power (benchmarks/results: 1423 to 1592),
and of all that clusters could do meanwhile, where some are idle."""

_WORD_TFLOPS, _WORD_COOL_TFLOPS = 660.0, 740.0
"""The same of the wgmma kernel of FP16 words (666 and 667 at 8192 and 16384); half of it for TF32."""

_WIDE = 2048
"""Rows and columns from which on cuBLAS has its rate of int8 (H200: half of it with 1024 and a long k)."""

_NATIVE = 40e-6
"""Seconds that small native products take besides what their rate says (H200: 20 to 80 from 512 to 2048)."""

_LAUNCHES = 45e-6
"""The same of products by our own kernels."""

_PLANNING = 20e-6
"""Seconds that a plan from data takes besides, when it was made before for such operands (H200: 1024 to 2048)."""

_PLANNED, _GLANCED = 150e-6, 210e-6
"""Seconds that products planned from data take at least, and those by digits, whose operands are looked at before these
are chosen (H200, one after the other: 100 to 200 and 204 to 253 below 1536)."""

_LOOK = 15e-6
"""The same of words, whose operands are looked at before (H200: 1024 to 3072)."""


@dataclass(frozen=True)
class Rates:
    """Peak TFLOP/s of float64 and float32, TOPS of int8 with cuBLAS, TB/s of memory; times are in seconds."""

    float64: float
    float32: float
    int8: float
    memory: float

    def native(self, batch: int, m: int, k: int, n: int, dtype: str) -> float:
        """Of the native product."""
        return 2e-12 * batch * m * n * k / (self.float64 if dtype == "float64" else self.float32) + _NATIVE

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
        traffic = 1e-12 * ((m + n) * k * (2 * itemsize + scheme.count) + m * n * (between + itemsize)) / self.memory
        proof = 5e-13 * m * n * k / self.int8 + 8e-12 * m * n / self.memory  # a sampled product, written and read
        time = multiplied + batch * (traffic + proof) + _LAUNCHES + _PLANNING
        return max(time, _GLANCED if isinstance(scheme, Digits) else _PLANNED)

    def words(self, batch: int, m: int, k: int, n: int, words: Words, entries: float) -> float:
        """The same of words on Hopper, whose operands are read once and a quarter of them twice."""
        width = 4 if words.word == "tf32" else 2
        multiplied = max(batch * m * n / _WORD_TFLOPS, entries / _WORD_COOL_TFLOPS)
        multiplied *= 1e-12 * words.products * k * width
        traffic = 1e-12 * ((m + n) * k * (5 + width * words.count) + 4 * m * n) / self.memory
        return multiplied + batch * traffic + _LAUNCHES + _LOOK


_RATES = {  # by compute capability
    "80": Rates(19.5, 19.5, 450.0, 1.4),
    "90": Rates(57.0, 51.0, 1300.0, 3.9),
    "100": Rates(37.0, 75.0, 2500.0, 7.0),
}
"""9.0: measured on an H200 (benchmarks/results); the others: the vendor's figures, derated by a third."""

_OTHERS = Rates(0.6, 30.0, 250.0, 0.6)
"""Cards without float64 tensor cores, as 7.5, 8.6, 8.9, 12.0: float64 at 1/32 to 1/64 of float32."""


def rates_of(capability: str) -> Rates:
    """The rates of a device of that compute capability."""
    return _RATES.get(capability, _OTHERS)
