"""What a product asks of planning: plain data, no array in it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, ldexp
from typing import Protocol

from ozaki.bounds.rounding import before_rounding, scaled
from ozaki.records.accuracy import Accuracy
from ozaki.records.formats import MULTIPRECISION, is_multiprecision, precision_of
from ozaki.records.options import Options
from ozaki.records.shapes import COMPLEX, REAL, Shapes
from ozaki.schemes import ComplexResidues, Scheme, Words
from ozaki.schemes.constants import MOST_AT_ONCE
from ozaki.schemes.formats import TensorCore
from ozaki.schemes.image import ceil_log2

Way = Scheme | Words | None
"""What may compute a product: slices of a scheme, low-precision words, or the native product (None)."""


SCALED_ALONG_K = ("auto", "residues", "complex-residues", "digits", "digits7")
"""The schemes that a caller may name with inner scaling."""


class Machine(Protocol):
    """What planning asks about the machine that a product runs on; it must be hashable."""

    @property
    def finds_facts_on_device(self) -> bool:
        """Whether a device finds the facts, which the host waits for, so that it can split operands meanwhile."""
        ...

    @property
    def entry_apart(self) -> float:
        """What an entry that is undecided, and computed apart, costs: in slice products of an entry."""
        ...

    @property
    def foretelling(self) -> float:
        """What it costs beside that to foretell and to find undecided entries, in multiplications of slice products."""
        ...

    @property
    def timed(self) -> bool:
        """Whether `seconds` rests on times that were measured on such a machine; else they are guesses."""
        ...

    def core(self) -> TensorCore | None:
        """The tensor cores for which words given by name are planned; None if the machine's are unknown."""
        ...

    def obstacle(self, scheme: Scheme | Words, engine: str) -> str | None:
        """Why nothing here, or not the engine of that name, multiplies this scheme; None if it runs.

        The engine "auto" is any.
        """
        ...

    def fastest(self, sizes: Shapes, dtype: str, ways: tuple[Way, ...]) -> Way:
        """The fastest of these ways to compute a product into a format; a scheme, if among them, comes first."""
        ...

    def seconds(self, sizes: Shapes, dtype: str, way: Way) -> float | None:
        """The seconds that a product into a format is expected to take in that way; None if unknown."""
        ...


@dataclass(frozen=True)
class Question:
    """One product that is to be planned. `planning.asking.question_of` makes it, and checks the options.

    Attributes
    ----------
    sizes : shapes of the product
    dtype : the format of the result: "float32", "complex128", or, say, "mp106"
    options : those of the caller, checked
    machine : where it runs
    native_obstacle : why the native product is not an IEEE product here; None if it is
    native_fits : whether the native product keeps within the caller's limit of workspace
    for_operands : whether the plan has to state a bound for these operands, even where a count is given
    multiprecision : whether an operand, the addend or the result is multiprecision
    expression : whether the product is part of an expression that may be rounded once
    parts_obstacle : why operands that come in parts have no native product, whatever the options; None of whole ones
    named : the scheme that the options name with the count of its slices; None if they leave something open
    """

    sizes: Shapes
    dtype: str
    options: Options
    machine: Machine
    native_obstacle: str | None = None
    native_fits: bool = True
    for_operands: bool = False
    multiprecision: bool = False
    expression: bool = False
    parts_obstacle: str | None = None
    named: Scheme | Words | None = None

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """The hash, computed once: caches keyed by questions are looked up in every repeated call."""
        return hash((self.sizes, self.dtype, self.options, self.machine, self.native_obstacle))

    @property
    def k(self) -> int:
        """The inner dimension, on which shorthands of accuracies depend."""
        return self.sizes.shape[1]

    @cached_property
    def length(self) -> int:
        """The inner dimension of the real product that is computed, on which schemes and bounds depend."""
        return self.sizes.length

    @cached_property
    def complex_rows(self) -> bool:
        """Whether slices are cut from complex rows: those of two complex operands of floats."""
        return self.sizes.parts == COMPLEX and not self.multiprecision

    @cached_property
    def empty(self) -> bool:
        """Whether the product has no entries, or its inner dimension is 0."""
        return 0 in (*self.sizes.stack, self.k)

    @cached_property
    def target(self) -> Accuracy | None:
        """The accuracy asked for, spelled out for this k; None if none is named."""
        return self.options.target(self.k)

    @property
    def rounds_floats(self) -> bool:
        """Whether the result is a real product of floats alone, rounded to floats: entries may be apart (B14)."""
        numbers = self.multiprecision or is_multiprecision(self.dtype)
        return not (self.expression or numbers) and self.sizes.parts == REAL

    @cached_property
    def inner_scaling_obstacle(self) -> str | None:
        """Why the operands of this product are not scaled along k (definitions.md, 10); None if they may be."""
        if self.multiprecision:
            return "not of multiprecision numbers"
        if self.sizes.broadcast:
            return "an operand that is broadcast would be scaled anew for each matrix; give both as many"
        if self.sizes.is_complex and not self.complex_rows:
            return "not of a real and a complex operand; make both complex"
        if isinstance(self.options.scheme, Words) or self.options.scheme not in SCALED_ALONG_K:
            return f"not for scheme={self.options.scheme!r}; use 'residues' or 'auto'"
        if self.complex_rows and self.options.scheme.startswith("digits"):
            return "not for digits of complex operands; use 'residues' or 'auto'"
        if self.complex_rows and self.options.engine == "int8-simulated":
            return "not by engine='int8-simulated' for complex operands"
        return None

    def before_rounding(self, target: Accuracy) -> Accuracy:
        """The target that slices have to meet before the rounding to the result (`target_before_rounding`)."""
        return target_before_rounding(target, self.dtype)

    def with_format(self, bits: int) -> Question:
        """The question with a multiprecision result of so many bits."""
        return replace(self, dtype=f"{MULTIPRECISION}{bits}")

    @property
    def native_may_matter(self) -> bool:
        """Whether the native product is a candidate, or asked for by name."""
        options = self.options
        return options.scheme in ("auto", "native") and options.engine == "auto" and options.by_slices is None


def splits_whole_rows(scheme: Way) -> bool:
    """Whether every device splits complex rows as they are, if the scheme is one of these: then both parts share S."""
    return not isinstance(scheme, ComplexResidues) or (not scheme.several and scheme.slices.count <= MOST_AT_ONCE)


def ordinary_spans(question: Question) -> tuple[int, int]:
    """The largest exponent spans of rows of A and of columns of B to expect of normally distributed elements.

    The smallest of N elements is about N times smaller than the largest, and its last bit lies a format's bits lower.
    """
    _, m, n = question.sizes.real_stack
    bits, k = precision_of(question.dtype), max(question.length, 1)
    return bits + ceil_log2(m * k), bits + ceil_log2(n * k)


def target_before_rounding(target: Accuracy, dtype: str) -> Accuracy:
    """The target that slices have to meet before the rounding to a result of this format.

    The rounding to a format of the hardware comes on top of a tolerance. A multiprecision result meets it with the
    rounding included: its format has the bits for it.

    Raises
    ------
    ValueError
        If the rounding to a multiprecision result is beyond all floats in units of the tolerance.
    """
    if not is_multiprecision(dtype):
        return target
    if 0 < target.tolerance < 2.0**-900:  # in smaller units, so that it does not underflow
        target = replace(target, tolerance=ldexp(target.tolerance, 600), exponent=target.exponent - 600)
    if not target.exact and scaled(1.0, -precision_of(dtype) - target.exponent) == inf:
        raise ValueError(
            f"accuracy: {target.measure} {target.in_words}, but dtype='{dtype}' rounds to {precision_of(dtype)} bits; "
            "ask for dtype='mp', which has as many bits as are asked for, or for a larger tolerance"
        )
    least = 2.0**-1000  # exact images alone meet it, if the format leaves nothing to them
    return replace(target, tolerance=max(before_rounding(target.tolerance, dtype, target.exponent), least))
