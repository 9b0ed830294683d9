"""Number formats of tensor cores, and how tensor cores add: data, no array library.

The numbers were all found by experiment, since the vendor publishes none:

* Fasi, Higham, Mikaitis, Pranesh, Numerical behavior of NVIDIA tensor cores, PeerJ Comput. Sci. 7:e330 (2021);
* Xie, Wang, Yang, Yang, MMA-Sim: bit-accurate reference model of tensor cores and matrix cores, arXiv 2511.10909;
* Khattak, Mikaitis, Accurate models of NVIDIA tensor cores, arXiv 2512.07004.
"""

from dataclasses import dataclass
from math import ceil
from types import MappingProxyType
from typing import Literal, get_args

Word = Literal["fp16", "bf16", "tf32"]
Accumulator = Literal["fp32", "fp16"]
Rounding = Literal["RN", "RNA", "RZ"]
"""Roundings: to nearest with ties to even (RN) or away from zero (RNA), and toward zero (RZ)."""


@dataclass(frozen=True)
class Format:
    """A binary floating-point format.

    Attributes
    ----------
    bits
        Number of bits of the significand, the implicit one included.
    least
        Exponent of the smallest normal number.
    past
        Smallest integer for which every number is below 2**past.
    """

    bits: int
    least: int
    past: int


FORMATS = MappingProxyType(
    {
        "fp16": Format(11, -14, 16),
        "bf16": Format(8, -126, 128),
        "tf32": Format(11, -126, 128),
        "fp32": Format(24, -126, 128),
    }
)


@dataclass(frozen=True)
class TensorCore:
    """The way in which the tensor cores of an architecture add products to an accumulator.

    Products are exact. The products of `fused` inner indices and the accumulator are added at once: all are cut
    (toward zero) to `alignment_bits` bits below the largest exponent among them, added exactly, and the sum is rounded
    to the accumulator's format. An instruction for more than `fused` inner indices does this several times.

    Attributes
    ----------
    name : str
    alignment_bits
        Fraction bits kept when the terms are aligned: 23 are those of FP32, more are extra bits.
    fused
        Products of FP16 or BF16 words added at once; half as many of TF32 words.
    rounding : str
        How sums are rounded to FP32; "RZ" in all hardware, "RN" to see what that costs. To FP16 it is "RN".
    words : tuple of str
        Formats of words that the tensor cores multiply.

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
        valid = isinstance(self.words, tuple) and self.words and all(word in known for word in self.words)
        if not valid or len(set(self.words)) < len(self.words):
            raise ValueError(f"words: {self.words!r}; expected some of {', '.join(known)}, each once, as a tuple")

    def terms(self, word: Word) -> int:
        """Number of products of words of that format that are added at once."""
        return max(self.fused // 2, 1) if word == "tf32" else self.fused

    def sums(self, word: Word, k: int) -> int:
        """Number of additions to the accumulator over k inner indices; none takes products of two instructions."""
        whole, rest = divmod(k, depth(word))
        return whole * ceil(depth(word) / self.terms(word)) + ceil(rest / self.terms(word))


V100 = TensorCore("V100", alignment_bits=23, fused=4, words=("fp16",))
A100 = TensorCore("A100", alignment_bits=24, fused=8)
H100 = TensorCore("H100", alignment_bits=25, fused=16)
"""The tensor cores of H100 and H200, which share an architecture; for `mma.sync` and for `wgmma`."""


def depth(word: Word) -> int:
    """Inner indices of one instruction: m16n8k16 for words of 16 bits, m16n8k8 for TF32."""
    return 8 if word == "tf32" else 16
