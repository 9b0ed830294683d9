"""Schemes by the names that users give them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral

from ozaki.caches import Table, cached
from ozaki.schemes import PRESETS, ComplexResidues, Digits, Residues, Scheme, Words
from ozaki.schemes.digits import LEAST_FP16_BITS, MAX_DIGITS, MOST_FP16_BITS, fp16_digit_bits
from ozaki.schemes.formats import TensorCore
from ozaki.schemes.residues import MOST_COMPLEX, MOST_RESIDUES


@dataclass(frozen=True)
class Family:
    """The schemes of one name, which differ in their number of slices.

    Attributes
    ----------
    make : returns the scheme with a given number of slices
    most : the largest number of slices
    """

    make: Callable[[int], Scheme]
    most: int


FAMILIES = Table(
    {
        "digits": Family(Digits, MAX_DIGITS),
        "digits7": Family(partial(Digits, bits=7), MAX_DIGITS),
        **{
            f"fp16-digits{bits}": Family(partial(Digits, bits=bits, word="fp16"), MAX_DIGITS)
            for bits in range(LEAST_FP16_BITS, MOST_FP16_BITS + 1)
        },
        "residues": Family(Residues, MOST_RESIDUES),
        "complex-residues": Family(ComplexResidues, MOST_COMPLEX),
    }
)
"""The families by name. "fp16-digits" is no key: `integer_scheme` appends the bits that suit the inner dimension."""


def known() -> tuple[str, ...]:
    """The names that a caller may give as `scheme`."""
    exact = (name for name in FAMILIES if not name.startswith("fp16-digits"))
    return ("auto", *exact, "fp16-digits", "native", *PRESETS)


def forced(name: str, count: int) -> Scheme:
    """The scheme of a name and a number of slices that a caller gives; both are checked.

    Raises
    ------
    ValueError
        For a name that has no slices to count, or a count out of range.
    """
    if name not in FAMILIES:
        raise ValueError(
            f"slices: {count} slices of scheme {name!r}; name what to count, as scheme='digits' or 'residues' does"
        )
    most = FAMILIES[name].most
    if isinstance(count, bool) or not isinstance(count, Integral) or not 1 <= count <= most:
        raise ValueError(f"slices: {count!r}; expected a whole number from 1 to {most} for scheme {name!r}")
    return scheme_of(name, int(count))


@cached(1024)
def scheme_of(name: str, count: int) -> Scheme:
    """The scheme `name` with `count` slices; the name must be in `FAMILIES` and the count in range."""
    return FAMILIES[name].make(count)


def words_of(scheme: str | Words, core: TensorCore | None) -> Words | None:
    """The words that a caller's `scheme` means; None if it is no scheme of words.

    A preset given by name gets the tensor cores `core`, unless that is None.
    """
    if isinstance(scheme, Words):
        return scheme
    words = PRESETS.get(scheme)
    return words if words is None or core in (None, words.core) else replace(words, core=core)


def integer_scheme(name: str, k: int, complex_rows: bool) -> str:
    """The name of the family that a caller means: "complex-residues" by "residues", where slices are of complex rows.

    To "fp16-digits" the bits are appended whose products FP16 leaves exact at this k.

    Raises
    ------
    ValueError
        For complex residues of other operands.
    """
    if name == "residues" and complex_rows:
        return "complex-residues"
    if name == "complex-residues" and not complex_rows:
        raise ValueError("scheme: 'complex-residues' are those of two complex operands of floats; use 'residues'")
    return f"{name}{fp16_digit_bits(k)}" if name == "fp16-digits" else name


@cached(1024)
def least_of(name: str, k: int) -> int:
    """The smallest number of slices with which schemes of a family can scale rows of length k."""
    counts = range(1, FAMILIES[name].most + 1)
    return next(count for count in counts if scheme_of(name, count).scaling(k) is not None)
