"""Judges a product that somebody else computed by its errors in sampled rows and columns."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import ozaki
from ozaki import Accuracy
from ozaki._cli.comparing import Compared, Entry, compared, finite_rows, log2_ratio
from ozaki._cli.files import Matrix
from ozaki._cli.printing import format_of
from ozaki._cli.sampling import Stack, samples, stack_of
from ozaki.call.operands import holds_complex
from ozaki.records.formats import MOST_BITS, precision_of
from ozaki.records.shapes import Shapes, shapes
from ozaki.reference._measures import largest_ratio, root_up

_ANOTHER = -4.0
"""Log2 of a componentwise error from which on a matrix is more likely another one than a bad product."""


@dataclass(frozen=True)
class Met:
    """Whether a product meets an accuracy in the sample.

    Attributes
    ----------
    target : the accuracy
    error : the largest error in its measure, rounded up, in units of 2**target.exponent. It is that before the rounding
        to the product's format, as the accuracy is: each number counts as the one nearest to the exact entry among
        those within half a unit in its last place.
    log2_error : log2 of the error itself, for errors that are too large for these units, too
    holds : whether some entry was compared, the error is no larger than the tolerance, and no entry is NaN or Inf that
        should not be
    """

    target: Accuracy
    error: float
    log2_error: float
    holds: bool


@dataclass(frozen=True)
class Judged:
    """What the sample shows of a product.

    Attributes
    ----------
    format : the format of its numbers, as "float64", "int64" or "mp212"
    precision : the bits of their significands, of complex numbers those of each part; None of integers
    entries : those that were compared with exact ones
    nonfinite : those that are NaN or Inf, though the exact number neither over- nor underflows the format
    skipped : number of all others in the sample: NaN or Inf in A or B touch them, or the exact number over- or
        underflows
    good : log2 of the componentwise error, roundings included, that a good native product stays below: first of the
        product's own format (-inf of integers, which are exact), then of float64 and float32 if these hold fewer bits
    met : whether the accuracy that was asked for is met; None if none was
    of_vectors : whether A and B are vectors; the product has no axis for the row of the one, the column of the other
    """

    format: str
    precision: int | None
    entries: list[Entry]
    nonfinite: list[Entry]
    skipped: int
    good: dict[str, float]
    met: Met | None
    of_vectors: tuple[bool, bool]

    @property
    def holds(self) -> bool:
        """Whether this is the product, has every number that it should, and meets the accuracy that was asked for.

        If no entry was compared, nobody knows, and it is False.
        """
        met = self.met is None or self.met.holds
        return bool(self.entries) and not self.nonfinite and not self.is_another and met

    @property
    def is_another(self) -> bool:
        """Whether the matrix is more likely another one than a bad product.

        That is so if an error is not much smaller than the terms of its entry, or if it is larger than in a good
        product of any format and most entries have no correct bit. (Of a matrix that has nothing to do with A and B
        errors are about 1 / sqrt(k) of the terms.)
        """
        worst = self.least_accurate
        if worst is None or self.as_good_as is not None:
            return False
        wrong = sum(entry.relative >= -1 for entry in self.entries)
        return worst.componentwise >= _ANOTHER or 2 * wrong > len(self.entries)

    @property
    def least_accurate(self) -> Entry | None:
        """The entry of the largest componentwise error; None if none was compared."""
        return max(self.entries, key=lambda entry: entry.componentwise, default=None)

    @property
    def as_good_as(self) -> str | None:
        """The first format of `good` whose good native product has no smaller error; None if there is none."""
        error = max((entry.componentwise for entry in self.entries), default=-math.inf)
        return next((name for name, most in self.good.items() if error <= most), None)

    @property
    def fewest_digits(self) -> Entry | None:
        """The entry of the largest error relative to the exact entry; None if none was compared."""
        return max(self.entries, key=lambda entry: entry.relative, default=None)

    @property
    def most_digits(self) -> int | None:
        """Decimal digits that any number of the format holds; None of integers."""
        return None if self.precision is None else math.floor(self.precision * math.log10(2))

    def index(self, entry: Entry) -> tuple[int, ...]:
        """Return the indices of an entry in the product."""
        *stack, row, col = entry.place
        of_a, of_b = self.of_vectors
        return *stack, *([] if of_a else [row]), *([] if of_b else [col])

    def digits(self, entry: Entry) -> int | None:
        """Return how many leading decimal digits of an entry are correct; None if an integer has no error."""
        if entry.relative == -math.inf:
            return self.most_digits
        right = 0 if entry.relative > 0 else math.floor(-entry.relative * math.log10(2))
        return right if self.most_digits is None else min(right, self.most_digits)

    @property
    def bits(self) -> int | None:
        """The accuracy in bits that makes nearly all digits of every compared entry right.

        These are the bits of the format, and log2 of the largest (abs(A) abs(B)) / abs(C), rounded up; None of
        integers, and if every entry is zero.
        """
        cancelled = [entry.cancelled for entry in self.entries if any(entry.exact)]
        if self.precision is None or not cancelled:
            return None
        return self.precision + math.ceil(max(cancelled))

    @property
    def wrong_zeros(self) -> int:
        """Number of compared entries that are exactly zero, but not in the product."""
        return sum(any(entry.found) and not any(entry.exact) for entry in self.entries)


def judge(c: Matrix, a: Matrix, b: Matrix, accuracy: Any, rows: int, cols: int, seed: int) -> Judged:
    """Compare some rows and columns of a product with exact ones.

    Parameters
    ----------
    c : array or MPArray
        The product, of the shape that `matmul` gives it; integers are exact numbers.
    a, b : arrays or MPArrays
        What it is to be the product of.
    accuracy : as `matmul` takes it
        The accuracy that it is to meet; None for none.
    rows, cols, seed : int
        How many rows and columns to pick, and the seed of the choice. If C holds a NaN or an Inf where A and B have
        none, the first one is picked, too.
    """
    sizes = replace(shapes(a.shape, b.shape), parts=(1 + holds_complex(a), 1 + holds_complex(b)))
    target = None if accuracy is None else Accuracy.of(accuracy, sizes.shape[1])
    precision = precision_of(format_of(c).removeprefix("complex ")) if _is_rounded(c) else None
    stack = stack_of(c, a, b)
    sample = samples(stack, rows, cols, seed, _first_missing(stack))
    found = [compared(of_matrix, rounded=precision is not None) for of_matrix in sample]
    nonfinite = [entry for each in found for entry in each.nonfinite]
    return Judged(
        format_of(c),
        precision,
        [entry for each in found for entry in each.entries],
        nonfinite,
        sum(each.skipped for each in found),
        _good(format_of(c), precision, sizes),
        None if target is None else _met(found, target, missing=bool(nonfinite)),
        (a.ndim == 1, b.ndim == 1),
    )


def _is_rounded(c: Matrix) -> bool:
    return isinstance(c, ozaki.MPArray) or c.dtype.kind in "fc"


def _good(own: str, precision: int | None, sizes: Shapes) -> dict[str, float]:
    """Return log2 of the errors below which good native products stay, as `Judged.good` has them."""

    def error(bits: int) -> float:
        # The accuracy of so many bits, which is that of sums of real numbers; complex ones have twice as many terms.
        target = Accuracy.of(min(bits, MOST_BITS), sizes.length)
        return math.log2(target.tolerance * sizes.spread) + target.exponent

    found = {own: -math.inf if precision is None else error(precision)}
    for name in ("complex128", "complex64") if sizes.is_complex else ("float64", "float32"):
        if precision is None or precision_of(name) < precision:
            found[name] = error(precision_of(name))
    return found


def _met(found: list[Compared], target: Accuracy, missing: bool) -> Met:
    """Return whether the sampled entries meet an accuracy; they do not if one is missing."""
    error, log2_error = 0.0, -math.inf
    for each in found:
        pairs, exponent = each.squares(target.measure)
        square, scale = largest_ratio(iter(pairs))
        error = max(error, root_up(square, scale, exponent - 2 * target.exponent))
        log2_error = max(log2_error, log2_ratio(square, scale) + exponent / 2)
    some = any(each.entries for each in found)
    return Met(target, error, log2_error, some and not missing and error <= target.tolerance)


def _first_missing(stack: Stack) -> tuple[int, ...] | None:
    """Return the indices of the first NaN, or else Inf, of the product whose row of A and column of B have neither."""
    if isinstance(stack.c, ozaki.MPArray) or np.isfinite(stack.c).all():
        return None
    rows, cols = finite_rows(stack.a), finite_rows(stack.b.swapaxes(-1, -2))
    ordinary = rows[..., :, None] & cols[..., None, :]
    for kind in (np.isnan, np.isinf):
        missing = ordinary & kind(stack.c)
        if missing.any():
            return tuple(int(i) for i in np.unravel_index(int(missing.argmax()), missing.shape))
    return None
