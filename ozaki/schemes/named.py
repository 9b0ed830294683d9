"""Schemes by the names that users give them."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from numbers import Integral

from ozaki.schemes import PRESETS, Digits, Residues, Scheme, Words
from ozaki.schemes.digits import MAX_DIGITS, fp16_digit_bits
from ozaki.schemes.formats import TensorCore
from ozaki.schemes.residues import MAX_RESIDUES

SCHEMES = ("auto", "digits", "digits7", "fp16-digits", "residues", "native", *PRESETS)


def forced(name: str, count: int) -> Scheme:
    """The scheme of that name with that many slices."""
    if not name.startswith(("digits", "fp16-digits", "residues")):
        raise ValueError(
            f"slices: {count} slices of scheme {name!r}; name what to count: scheme='digits' or 'residues'"
        )
    most = most_of(name)
    if isinstance(count, bool) or not isinstance(count, Integral) or not 1 <= count <= most:
        raise ValueError(f"slices: {count!r}; expected a whole number from 1 to {most} for scheme {name!r}")
    return scheme_of(name, int(count))


def scheme_of(name: str, count: int) -> Scheme:
    """The same, of a name and a count that are known to be one."""
    if name == "residues":
        return Residues(count)
    kind, _, bits = name.partition("digits")
    return Digits(count, int(bits or 8), "fp16" if kind else "int8")


def words_of(scheme: str | Words, core: TensorCore | None) -> Words | None:
    """The words that a choice of scheme means, if it means words; of a name, on these tensor cores, if known."""
    if isinstance(scheme, Words):
        return scheme
    words = PRESETS.get(scheme)
    return words if words is None or core in (None, words.core) else replace(words, core=core)


def integer_scheme(name: str, k: int) -> str:
    """The name with "fp16-digits" spelled out: digits of as many bits as FP16 products leave exact at this k."""
    return f"{name}{fp16_digit_bits(k)}" if name == "fp16-digits" else name


def most_of(name: str) -> int:
    """The largest count."""
    return MAX_RESIDUES if name == "residues" else MAX_DIGITS


@lru_cache(maxsize=1024)
def least_of(name: str, k: int) -> int:
    """The smallest count that has room for this k."""
    return next(count for count in range(1, most_of(name)) if scheme_of(name, count).scaling(k) is not None)
