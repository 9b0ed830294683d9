"""The candidates for a product: the native product, low-precision words and slices; and the fastest of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import Literal

from ozaki.bounds import native
from ozaki.bounds import words as word_bounds
from ozaki.bounds.rounding import suffices
from ozaki.caches import cached
from ozaki.planning.question import Machine, Question
from ozaki.planning.search import likely_schemes
from ozaki.records.accuracy import Accuracy, default_accuracy
from ozaki.records.formats import part_of
from ozaki.records.report import rounded_up
from ozaki.schemes import PRESETS, Scheme, Words
from ozaki.schemes.formats import FORMATS
from ozaki.schemes.named import integer_scheme

Kind = Words | Literal["native", "slices"]
"""One kind of candidate: certain words, the native product, or slices, whose scheme and count are still open."""


@dataclass(frozen=True)
class Candidates:
    """What may run for a question, and what it has to prove.

    Attributes
    ----------
    target : what slices have to prove
    digits_target : what digits have to prove to run in place of words, if a sample finds the operands ordinary
    words : words that prove `words_tolerance` of operands without small elements, and perhaps of these operands
    words_tolerance : what words have to prove, componentwise, before the rounding to the result
    native_ruled_out : why the native product may not run; None if it may
    families : names of the families of integer schemes that slices may be of; the first wins a tie
    accuracy_named : whether the caller named the accuracy, so that it has to be proven
    slices : whether slices may run
    """

    target: Accuracy
    digits_target: Accuracy
    words: tuple[Words, ...]
    words_tolerance: float
    native_ruled_out: str | None
    families: tuple[str, ...]
    accuracy_named: bool
    slices: bool = True

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """The hash, computed once: `fastest` looks candidates up in its cache for every product."""
        return hash((self.target, self.digits_target, self.words, self.native_ruled_out, self.slices))

    def without_slices(self) -> Candidates:
        """The candidates but for slices, where a proof of slices has failed, would fail, or is to be tried last."""
        return replace(self, slices=False)

    def without_native(self) -> Candidates:
        """The candidates but for the native product, where it may leave the range of its format."""
        return replace(self, native_ruled_out=f"native product ruled out: {OUT_OF_RANGE}")

    def without(self, words: Words) -> Candidates:
        """The candidates but for these words, where they prove too little."""
        others = tuple(other for other in self.words if other != words)
        ruled_out = f"{words.name} proves too little"
        return replace(self, words=others, native_ruled_out=None if self.native_ruled_out is None else ruled_out)


OUT_OF_RANGE = "products of these operands, or sums of them, may over- or underflow on the way"


def native_bound(question: Question) -> float:
    """The componentwise bound of the native product, roundings included; inf where it is not an IEEE product."""
    if question.native_obstacle:
        return inf
    return native.bound(max(question.length, 1), question.dtype, question.sizes.spread)


def names_of(scheme: str, k: int, multiprecision: bool, complex_rows: bool) -> tuple[str, ...]:
    """Names of the families of integer schemes that a choice of scheme leaves open; the first wins a tie.

    `multiprecision` says whether an operand, the addend or the result is; then there are residues alone. `complex_rows`
    says whether slices are cut from complex rows; these have residues alone, unless the caller names digits.

    A scheme that has no slices of multiprecision numbers is refused before (`check_multiprecision`).
    """
    if multiprecision:
        return ("residues",)
    if scheme == "auto":  # of complex rows digits take four products for each pair
        return ("complex-residues",) if complex_rows else ("digits", "residues")
    return (integer_scheme(scheme, k, complex_rows),)


@cached(1024)
def candidates_of(question: Question) -> Candidates:
    """The candidates for a question, as far as they are known without the operands."""
    options, dtype, target = question.options, question.dtype, question.target
    assert isinstance(options.scheme, str)
    families = names_of(options.scheme, question.length, question.multiprecision, question.complex_rows)
    if options.verify and options.scheme == "auto":  # GPUs check no digits, and plans are the same everywhere
        families = tuple(name for name in families if name != "digits")
    words: tuple[Words, ...] = ()
    tolerance = 0.0 if target is None else target.tolerance
    ruled_out: str | None
    if options.scheme != "auto":
        ruled_out = ""
    elif options.by_slices is not None:
        ruled_out = question.parts_obstacle or f"native product ruled out by {options.by_slices}=True"
    elif options.engine != "auto":
        ruled_out = f"native product ruled out by engine={options.engine!r}"
    else:
        if not question.multiprecision:
            length, spread = question.length, question.sizes.spread
            if target is None:
                # Words have to prove as much as the native product: its bound for one index less leaves room for the
                # rounding to the result.
                tolerance = native.bound(max(length - 1, 0), dtype, spread)
            words = _words_that_may_do(question.machine, length, dtype, target, tolerance / spread)
        ruled_out = question.native_obstacle
        if ruled_out is None and target is not None:
            bound = native_bound(question)
            if not suffices(bound, target.tolerance, dtype):
                ruled_out = f"native product proves at best {rounded_up(bound)}"
    if ruled_out is None and not question.native_fits:
        ruled_out = "native product ruled out: converting an operand takes more than the limit"
    usual = question.before_rounding(target or default_accuracy(dtype, question.k))
    digits_target = usual
    if target is None and words:
        digits_target = replace(usual, tolerance=min(_DIGITS_LEEWAY * usual.tolerance, tolerance))
    return Candidates(usual, digits_target, words, tolerance, ruled_out, families, target is not None)


_DIGITS_LEEWAY = 8
"""Factor on the tolerance of the shorthand that digits may prove in place of words where no accuracy is named.

The first level, which reads a quarter of k, proves 4 to 6 times that tolerance for three digits and normal data at k =
2560 to 4096, and less beyond; all of k would prove a quarter of it. The native product's own bound in place of this
factor would let data of wide range have errors far above those of native products.
"""


def _words_that_may_do(
    machine: Machine, k: int, dtype: str, target: Accuracy | None, tolerance: float
) -> tuple[Words, ...]:
    """Presets of words that run on the machine and prove the tolerance for operands without small elements.

    Only promoted ones, whose root-mean-square error on ordinary data is below that of a native float32 product.
    """
    if part_of(dtype) != "float32" or (
        target is not None and target.bits is not None and target.bits > FORMATS["fp32"].bits
    ):
        return ()
    return tuple(
        words
        for words in (PRESETS["halfhalf"], PRESETS["tf32tf32"])
        if not machine.obstacle(words, "auto") and word_bounds.relative(words, max(k, 1)) <= tolerance
    )


@cached(1024)
def fastest(question: Question, candidates: Candidates, slices: Scheme | None = None) -> tuple[Kind, str]:
    """The fastest candidate, and the reason for it, as a plan states it.

    `slices` is the scheme whose time stands for slices: what these operands need, by default what ordinary ones need.
    """
    likely = slices or likely_schemes(candidates.target, max(question.length, 1), candidates.families)[0]
    ways = (
        *((likely,) if candidates.slices else ()),
        *candidates.words,
        *((None,) if candidates.native_ruled_out is None else ()),
    )
    way = question.machine.fastest(question.sizes, question.dtype, ways)
    asked = "it proves what is asked" if candidates.accuracy_named else "no accuracy is named"
    if way is None:
        return "native", f"native product: fastest here, and {asked}"
    if isinstance(way, Words):
        no_more = ", and the native product proves no more" if candidates.native_ruled_out is None else ""
        return way, f"{way.name}: fastest here, and {asked}{no_more}"
    return "slices", candidates.native_ruled_out or "slices are faster here than the native product"
