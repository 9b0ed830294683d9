"""Words: operands as sums of low-precision floating-point words, whose products are added in floating point.

Algorithm 2.1 of Fasi, Higham, Lopez, Mary and Mikaitis (SIAM J. Sci. Comput., 2022) with the choices of Markidis et al.
(2018) and of Ootomo and Yokota (IJHPCA 2022); docs/definitions.md, section 7.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from numbers import Integral
from types import MappingProxyType
from typing import ClassVar, Literal, get_args

from ozaki.caches import cached
from ozaki.schemes.formats import FORMATS, H100, Accumulator, Rounding, TensorCore, Word
from ozaki.schemes.image import ceil_log2

Pair = tuple[int, int]
"""(s, t): word s of the left operand and word t of the right one, counted from 1."""

Sharing = Literal["pair", "diagonal", "one"]
"""Pairs that share an accumulator: none, those of equal s + t, or all."""

Promotion = Literal["fp32", "fp64"]
"""Formats of sums outside the tensor core."""

MAX_WORDS = 8
"""The largest `Words.count`."""

_WIDE_CEILING, _WIDE_FLOOR = 30, -30
"""The `ceiling` and the least `floor` of BF16 and TF32 words: no product of two words leaves the range of FP32."""


@dataclass(frozen=True)
class Group:
    """Pairs of words that are added in one accumulator of the tensor core, in the order in which they are added.

    Attributes
    ----------
    turns : the pairs (s, t), one tuple for each time that the accumulator goes through k or through a block
    weight : the product contains the accumulator's sum times 2**-weight
    promoted : whether the accumulator starts from zero every block, the blocks being added outside the tensor core
    """

    turns: tuple[tuple[Pair, ...], ...]
    weight: int
    promoted: bool

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The pairs of all turns, in order."""
        return tuple(pair for turn in self.turns for pair in turn)


@dataclass(frozen=True)
class Words:
    """Float32 operands as `count` low-precision words each, multiplied on tensor cores.

    Rows of A and columns of B are first scaled by powers of two to the top of the format's range. Then, with r_0 = x,
    word s is fl(2**(scale_bits (s-1)) r_(s-1)), and r_s is what that word leaves of r_(s-1).

    Parameters
    ----------
    word : {"fp16", "bf16", "tf32"}
        Format of the words.
    count : int
        Words for each element, 1 to 8.
    scale_bits : int
        Each word is scaled by 2**scale_bits more than the one before, so that low words do not underflow; at most the
        bits of the format's significand.
    pairs : tuple of (int, int), optional
        Words s of the left and t of the right operand that are multiplied, from 1. Default: all s + t <= count + 1.
    block : int, optional
        Inner indices, a multiple of 16, after which the leading product leaves the tensor core's accumulator, which
        truncates, and is added outside, where sums are rounded to nearest. Default: it stays in the accumulator.
    promotion : {"fp32", "fp64"}, optional
        Format of the sums outside the tensor core: of blocks, and of all products. Given with `block`, and only then.
    accumulators : {"diagonal", "pair", "one"}
        Which pairs share an accumulator of the tensor core: those of equal s + t ("diagonal"), none ("pair"), or all
        ("one"). Pairs that share an accumulator take turns at each instruction. But with a `block`, "one" goes through
        the block once for each s + t, low words first, and is multiplied by 2**-scale_bits in between.
    accumulator : {"fp32", "fp16"}
        Format of the tensor core's accumulator. "fp16" takes single words of FP16, promoted.
    rounding : {"RN", "RNA", "RZ"}
        How elements are rounded to words: to nearest with ties to even or away from zero, or toward zero.
    core : TensorCore
        The tensor cores that NumPy models and that the bounds speak of. A preset given by name takes those of the
        operands' device; in a plan from shapes alone, the H100's.

    Raises
    ------
    ValueError, TypeError
        If an argument is not valid; the message names it.

    Notes
    -----
    docs/bounds.md (B8) proves an error bound for these choices. Products of words are added in floating point, so the
    bits depend on the tensor core; only the integer schemes promise the same bits everywhere.

    Examples
    --------
    >>> import ozaki
    >>> ozaki.Words("bf16", count=3).products  # those of words s and t with s + t <= 4
    6
    """

    word: Word = "fp16"
    count: int = 2
    scale_bits: int = 0
    pairs: tuple[Pair, ...] | None = None
    block: int | None = None
    promotion: Promotion | None = None
    accumulators: Sharing = "diagonal"
    accumulator: Accumulator = "fp32"
    rounding: Rounding = "RN"
    core: TensorCore = H100

    exact: ClassVar[bool] = False
    """Products are added in floating point: the bits depend on the tensor core."""

    def __post_init__(self) -> None:
        for name, value, known in (
            ("word", self.word, get_args(Word)),
            ("accumulators", self.accumulators, get_args(Sharing)),
            ("accumulator", self.accumulator, get_args(Accumulator)),
            ("rounding", self.rounding, get_args(Rounding)),
            ("promotion", self.promotion, (None, *get_args(Promotion))),
        ):
            if value not in known:
                raise ValueError(f"{name}: {value!r} is not known; expected one of {', '.join(map(str, known))}")
        if not isinstance(self.core, TensorCore):
            raise TypeError(f"core: {self.core!r}; expected a TensorCore, as ozaki.tensor_core.H100")
        if self.word not in self.core.words:
            raise ValueError(f"word: {self.core.name} does not multiply {self.word}; it takes {self.core.words}")
        for name in ("count", "scale_bits", "block"):
            value = getattr(self, name)
            if isinstance(value, Integral) and not isinstance(value, bool):
                object.__setattr__(self, name, int(value))  # NumPy's integers become Python's
        _check_whole("count", self.count, 1, MAX_WORDS)
        _check_whole("scale_bits", self.scale_bits, 0, FORMATS[self.word].bits)
        if (self.block is None) != (self.promotion is None):
            raise ValueError(
                f"block, promotion: {self.block!r} and {self.promotion!r}; expected both, or neither (no promotion)"
            )
        if self.block is not None:
            _check_whole("block", self.block, 16, 2**20)
            if self.block % 16:
                raise ValueError(f"block: {self.block}; expected a multiple of 16, the depth of an instruction")
        self._check_pairs()
        if self.accumulator == "fp16" and (self.word != "fp16" or self.count != 1 or self.block is None):
            raise ValueError(
                "accumulator: 'fp16' takes single words of FP16 with a block and a promotion: its roundings would "
                "drown second words, and long sums overflow"
            )
        if self.floor >= self.ceiling:
            most = FORMATS[self.word].bits
            enough = next(bits for bits in range(most + 1) if self._floor(bits) < self.ceiling)
            raise ValueError(
                f"scale_bits: {self.scale_bits} leaves the last of {self.count} words of {self.word} below the range "
                f"of the format; expected {enough} to {most}, or fewer words"
            )
        if self.accumulators == "one" and self.count > 1 and self.scale_bits and self.block is None:
            raise ValueError(
                "accumulators: 'one' holds words of different scales only block by block; expected a block, "
                "scale_bits=0, or 'diagonal'"
            )

    def _check_pairs(self) -> None:
        if self.pairs is None:
            return
        known = isinstance(self.pairs, tuple) and all(map(self._is_pair, self.pairs))
        if not known or len(set(self.pairs)) < len(self.pairs):
            raise ValueError(
                f"pairs: {self.pairs!r}; expected different pairs (s, t) from 1 to {self.count}, as a tuple"
            )
        if (1, 1) not in self.pairs:
            raise ValueError(f"pairs: {self.pairs!r} lacks (1, 1), the leading product")

    def _is_pair(self, pair: object) -> bool:
        """Whether `pair` numbers two words that exist; 1.0 and True equal the integer 1, but are refused."""
        return isinstance(pair, tuple) and len(pair) == 2 and all(type(x) is int and 1 <= x <= self.count for x in pair)

    @property
    def name(self) -> str:
        """Name of the preset with these choices, whatever the tensor core; "words" if there is none."""
        return _NAMES.get(_choices(self), "words")

    @property
    def products(self) -> int:
        """Number of slice products."""
        return sum(len(group.pairs) for group in groups(self))

    @property
    def ceiling(self) -> int:
        """Exponent of the bound of scaled elements: below 2**ceiling, words and their sums are finite."""
        if self.accumulator == "fp16":
            assert self.block is not None
            return (FORMATS["fp16"].past - 1 - ceil_log2(self.block)) // 2
        return FORMATS["fp16"].past - 1 if self.word == "fp16" else _WIDE_CEILING

    @property
    def floor(self) -> int:
        """Exponent from which on scaled elements keep their relative accuracy: no underflow of a word affects them."""
        return self._floor(self.scale_bits)

    def _floor(self, scale_bits: int) -> int:
        form = FORMATS[self.word]
        needed = form.least + (form.bits + 1 - scale_bits) * (self.count - 1)
        return needed if self.word == "fp16" else max(needed, _WIDE_FLOOR)

    @property
    def lowest(self) -> int:
        """Exponent, relative to a row's `top`, from which on elements keep their relative accuracy; negative."""
        return self.floor - self.ceiling

    def size(self, s: int) -> float:
        """Bound, relative to abs(x), of word s of x and of what s - 1 words leave of x, if abs(x) >= 2**floor (B8).

        The word counts without its scale 2**(scale_bits (s-1)).
        """
        bits = FORMATS[self.word].bits
        if s == 1:
            return 1.0 if self.rounding == "RZ" else 1 + 2.0**-bits
        return 2.0 ** (1 - (s - 1) * bits) if self.rounding == "RZ" else 2.0 ** -((s - 1) * bits + s - 2)

    def dropped(self, k: int, spans: tuple[int, int]) -> float:
        """Return 0: the relative error of words (docs/bounds.md, B8) includes the pairs that are left out."""
        return 0.0

    @property
    def residual(self) -> float:
        """Bound, relative to abs(x), of what all words leave of a float32 x with abs(x) >= 2**floor; may be 0."""
        left = self.size(self.count + 1)
        below = left < 2.0**-23 if self.rounding != "RZ" else left <= 2.0**-23  # less than the element's last bit
        return 0.0 if below else left


def _check_whole(name: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}: {value!r}; expected a whole number from {least} to {most}")
    if not least <= value <= most:
        raise ValueError(f"{name}: {value}; expected a whole number from {least} to {most}")


@cached(256)
def groups(words: Words) -> tuple[Group, ...]:
    """The groups of pairs that share an accumulator, in the order in which their sums are added: low words first."""
    p = words.count
    pairs = words.pairs or tuple((s, t) for s in range(1, p + 1) for t in range(1, p + 2 - s))
    ordered = sorted(pairs, key=lambda pair: (-sum(pair), -pair[0]))
    key = {"one": lambda pair: 0, "diagonal": sum, "pair": lambda pair: pair}[words.accumulators]
    return tuple(
        Group(
            tuple(_grouped(share, sum) if words.block else [share]),
            words.scale_bits * (sum(share[-1]) - 2),
            words.block is not None and (1, 1) in share,
        )
        for share in _grouped(ordered, key)
    )


def _grouped(pairs: Iterable[Pair], key: Callable[[Pair], object]) -> list[tuple[Pair, ...]]:
    """Group pairs by their keys, in the order of each key's first pair."""
    shares: dict[object, list[Pair]] = {}
    for pair in pairs:
        shares.setdefault(key(pair), []).append(pair)
    return [tuple(share) for share in shares.values()]


_ALL_FOUR = ((1, 1), (1, 2), (2, 1), (2, 2))

_PRESETS = {
    # One word: what a tensor core gives by itself.
    "single-fp16": Words("fp16", 1),
    "single-bf16": Words("bf16", 1),
    "single-tf32": Words("tf32", 1, rounding="RNA"),
    # Markidis et al., as in equations 2 to 6 and code 2 of Ootomo and Yokota: all products in one accumulator.
    "markidis": Words("fp16", 2, pairs=_ALL_FOUR, accumulators="one"),
    # Feng et al. round by the first bit cut off, ties included, so that the sign of the low word counts as a bit.
    "feng": Words("fp16", 2, pairs=_ALL_FOUR, accumulators="one", rounding="RNA"),
    # Ootomo and Yokota, equations 19 to 24 and code 3, but the low words' products are promoted with the leading one:
    # with two sets of accumulators instead of three, a tile is large enough to keep the tensor cores busy.
    "halfhalf": Words("fp16", 2, scale_bits=11, block=64, promotion="fp32", accumulators="one"),
    "tf32tf32": Words("tf32", 2, block=32, promotion="fp32", accumulators="one", rounding="RNA"),
    # Fasi et al., algorithm 2.1: every product in an accumulator of its own.
    "double-fp16": Words("fp16", 2, accumulators="pair"),
    "double-bf16": Words("bf16", 2, accumulators="pair"),
    "triple-bf16": Words("bf16", 3, accumulators="pair"),
    # Fasi et al., algorithm 4.4 with 4.2 and 4.3: the leading product in blocks.
    "fabsum-v1": Words("fp16", 2, block=128, promotion="fp32", accumulators="pair"),
    "fabsum-v2": Words("fp16", 2, block=256, promotion="fp64", accumulators="pair"),
    # The two-stage blog post: an FP16 accumulator that lives for a block of k; a longer block errs more, a shorter one
    # leaves the tensor cores idle while it is promoted.
    "two-stage": Words("fp16", 1, block=64, promotion="fp32", accumulator="fp16"),
}

PRESETS = MappingProxyType(_PRESETS)
"""The methods of the literature, by the names that a caller may give."""


def _choices(words: Words) -> tuple[object, ...]:
    """All that distinguishes presets: every choice but the tensor core."""
    return (
        words.word, words.count, words.scale_bits, words.block, words.promotion, words.accumulator, words.rounding,
        groups(words),
    )  # fmt: skip


_NAMES = {_choices(words): name for name, words in PRESETS.items()}
