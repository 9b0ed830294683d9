"""Number formats of tensor cores, and how their units add: facts as data, no array library.

Sources of the numbers, all found by experiment, since the vendor publishes none:

* Fasi, Higham, Mikaitis, Pranesh, Numerical behavior of NVIDIA tensor cores, PeerJ Comput. Sci. 7:e330 (2021);
* Xie, Wang, Yang, Yang, MMA-Sim: bit-accurate reference model of tensor cores and matrix cores, arXiv 2511.10909;
* Khattak, Mikaitis, Accurate models of NVIDIA tensor cores, arXiv 2512.07004.
"""

from dataclasses import dataclass
from math import ceil
from typing import Literal, get_args

Word = Literal["fp16", "bf16", "tf32"]
Accumulator = Literal["fp32", "fp16"]
Rounding = Literal["RN", "RNA", "RZ"]
"""To nearest with ties to even or away from zero, and toward zero."""


@dataclass(frozen=True)
class Format:
    """A binary floating-point format.

    Attributes
    ----------
    bits : of the significand, the implicit one included
    least : exponent of the smallest normal number
    past : the largest number is below 2**past
    """

    bits: int
    least: int
    past: int


FORMATS = {
    "fp16": Format(11, -14, 16),
    "bf16": Format(8, -126, 128),
    "tf32": Format(11, -126, 128),
    "fp32": Format(24, -126, 128),
}


@dataclass(frozen=True)
class TensorCore:
    """How the tensor cores of an architecture add products to an accumulator.

    Products are exact. The products of `fused` inner indices and the accumulator are added at once: all are cut
    (toward zero) to `alignment_bits` bits below the largest exponent among them, added exactly, and the sum is rounded
    to the accumulator's format. An instruction of a greater depth does so several times.

    Attributes
    ----------
    name : str
    alignment_bits : fraction bits kept when the terms are aligned: 23 are those of FP32, more are extra bits
    fused : products of FP16 or BF16 words added at once; half as many of TF32 words
    rounding : of sums to FP32; "RZ" in all hardware, "RN" to see what that costs. Sums to FP16 are rounded "RN".
    words : formats that it multiplies

    Raises
    ------
    ValueError, TypeError
        For numbers that the model cannot add exactly, or unknown names.
    """

    name: str
    alignment_bits: int
    fused: int
    rounding: Literal["RN", "RZ"] = "RZ"
    words: tuple[Word, ...] = ("fp16", "bf16", "tf32")

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise TypeError(f"name: {self.name!r}; expected a str")
        for name, least, most in (("alignment_bits", 1, 40), ("fused", 1, 256)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise ValueError(f"{name}: {value!r}; expected a whole number from {least} to {most}")
        if self.rounding not in ("RN", "RZ"):
            raise ValueError(f"rounding: {self.rounding!r}; expected 'RN' or 'RZ'")
        known = get_args(Word)
        some = isinstance(self.words, tuple) and self.words and all(word in known for word in self.words)
        if not some or len(set(self.words)) < len(self.words):
            raise ValueError(f"words: {self.words!r}; expected some of {', '.join(known)}, each once, as a tuple")

    def terms(self, word: Word) -> int:
        """Products of that format added at once."""
        return max(self.fused // 2, 1) if word == "tf32" else self.fused

    def sums(self, word: Word, k: int) -> int:
        """How often products of k inner indices are added to the accumulator; each instruction begins anew."""
        whole, rest = divmod(k, depth(word))
        return whole * ceil(depth(word) / self.terms(word)) + ceil(rest / self.terms(word))


V100 = TensorCore("V100", alignment_bits=23, fused=4, words=("fp16",))
A100 = TensorCore("A100", alignment_bits=24, fused=8)
H100 = TensorCore("H100", alignment_bits=25, fused=16)
"""Also H200: the same architecture, both for `mma.sync` and for `wgmma`."""


def depth(word: Word) -> int:
    """Inner indices that one instruction takes: m16n8k16 for words of 16 bits, m16n8k8 for TF32."""
    return 8 if word == "tf32" else 16
