"""The ways a product may run, natively, out of words or out of slices: the fastest that proves what is asked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import Literal

from ozaki import _bounds, _word_bounds
from ozaki._accuracy import Accuracy, default_accuracy
from ozaki._choices import Choices
from ozaki._operands import Shapes
from ozaki._plan import Plan
from ozaki._search import likely_schemes
from ozaki.backends import Backend
from ozaki.schemes import PRESETS, Scheme, Words
from ozaki.schemes.formats import FORMATS


def native_bound(backend: Backend, k: int, dtype: str) -> float:
    """What the native product proves, roundings included; inf where a setting makes it less than an IEEE product."""
    return inf if backend.native_obstacle(dtype) else _bounds.native(max(k, 1), dtype)


def native_plan(
    sizes: Shapes,
    dtype: str,
    target: Accuracy | None,
    bound: float,
    why: str,
    limit: int | None,
    a_priori: bool = True,
) -> Plan:
    """The plan of the native product: its bound is componentwise, and so holds in every measure."""
    target = target or default_accuracy(dtype, sizes.shape[1])
    return Plan(sizes.shape, sizes.batch, dtype, None, target, bound, a_priori, workspace_limit=limit, why=why)


@dataclass(frozen=True)
class Ways:
    """What may run: slices, and others that are as good.

    Attributes
    ----------
    target : what slices are to prove
    first : what they are to prove at a first look, to run in place of words
    words : that may prove what is asked, if their operands' small elements let them
    words_tolerance : what they have to prove, componentwise, before the rounding to the result
    ruled_out : why the native product may not run; None if it may
    named : the caller has named the accuracy, so it has to be proven
    sliced : slices may prove what is asked
    """

    target: Accuracy
    first: Accuracy
    words: tuple[Words, ...]
    words_tolerance: float
    ruled_out: str | None
    named: bool
    sliced: bool = True

    @classmethod
    def of(cls, backend: Backend, k: int, dtype: str, choices: Choices, bound: float) -> Ways:
        """Of a call, `bound` that of the native product, roundings included."""
        target = choices.target(k)
        words: tuple[Words, ...] = ()
        # A native product of k - 1 indices and one rounding more prove no more than one of k indices.
        tolerance = _bounds.native(max(k - 1, 0), dtype) if target is None else target.tolerance
        ruled_out: str | None
        if choices.scheme != "auto":
            ruled_out = ""
        elif choices.reproducible:
            ruled_out = "native product ruled out by reproducible=True"
        elif choices.engine != "auto":
            ruled_out = f"native product ruled out by engine={choices.engine!r}"
        else:
            words = _words_as_good(backend, k, dtype, target, tolerance)
            ruled_out = backend.native_obstacle(dtype)
            if ruled_out is None and target is not None and not _bounds.suffices(bound, target.tolerance, dtype):
                ruled_out = f"native product proves only {bound:.2g}"
        usual = target or default_accuracy(dtype, k)
        first = usual
        if target is None and words:
            first = replace(usual, tolerance=min(_NEAR * usual.tolerance, tolerance))
        return cls(usual, first, words, tolerance, ruled_out, target is not None)

    def fastest(
        self, backend: Backend, sizes: Shapes, dtype: str, slices: Scheme | None = None
    ) -> tuple[Words | Literal["native", "slices"], str]:
        """What runs where these slices are needed, or those that ordinary data need; and why."""
        if not self.words and self.ruled_out is not None:
            return "slices", self.ruled_out
        k = sizes.shape[1]
        ways = (
            *((slices or likely_schemes(self.target, max(k, 1), names_of("auto"))[0],) if self.sliced else ()),
            *self.words,
            *((None,) if self.ruled_out is None else ()),
        )
        way = backend.fastest(sizes.stack, k, dtype, ways)
        asked = "it proves what is asked" if self.named else "no accuracy is named"
        if way is None:
            return "native", f"native product: fastest here, and {asked}"
        if isinstance(way, Words):
            no_more = ", and the native product proves no more" if self.ruled_out is None else ""
            return way, f"{way.name}: fastest here, and {asked}{no_more}"
        return "slices", self.ruled_out or "slices are faster here than the native product"

    def without_native(self) -> Ways:
        """Where it may leave the range of its format."""
        return replace(self, ruled_out=f"native product ruled out: {OUT_OF_RANGE}")

    def without_slices(self) -> Ways:
        """Where their proof would take longer than what else may run."""
        return replace(self, sliced=False)

    def without(self, words: Words) -> Ways:
        """Where these prove too little."""
        others = tuple(other for other in self.words if other != words)
        ruled_out = f"{words.name} proves too little at a first look"
        return replace(self, words=others, ruled_out=None if self.ruled_out is None else ruled_out)


_NEAR = 8
"""Times the shorthand that slices may prove in place of words where no accuracy is named.

Three digits prove 4 to 6 times it for normal data at k = 2560 to 4096, and less beyond; they have a quarter of that.
The native product's own bound would let data of wide range have errors far above those of native products.
"""


def _words_as_good(
    backend: Backend, k: int, dtype: str, target: Accuracy | None, tolerance: float
) -> tuple[Words, ...]:
    """Words that may prove what is asked.

    Their root-mean-square error on ordinary data is below that of a native float32 product, promoted as they are.
    """
    if dtype != "float32" or (target is not None and target.bits is not None and target.bits > FORMATS["fp32"].bits):
        return ()
    return tuple(
        words
        for words in (PRESETS["halfhalf"], PRESETS["tf32tf32"])
        if not backend.words_obstacle(words) and _word_bounds.relative(words, max(k, 1)) <= tolerance
    )


OUT_OF_RANGE = "products of these operands, or sums of them, may over- or underflow on the way"

NATIVE_ASKED_FOR = "native product: asked for by scheme='native'"


def names_of(scheme: str) -> tuple[str, ...]:
    """The schemes to choose from; the first wins a tie."""
    return ("digits", "residues") if scheme == "auto" else (scheme,)
