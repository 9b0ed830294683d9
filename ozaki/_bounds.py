"""Error bounds, and what is usual (E1, E3, E4), a function each; docs/bounds.md derives them.

All are relative to a measure and hold before the rounding to the output, unless said otherwise. Floating-point
rounding inside this module is covered by `UP`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import hypot, inf, ldexp, log, pi, sqrt

import numpy as np
import numpy.typing as npt

from ozaki import _word_bounds
from ozaki._description import Description, Least
from ozaki._word_bounds import UP
from ozaki.schemes import Digits, Residues, Scheme, Words, magnitude_bits, scaling_of
from ozaki.schemes.image import EMPTY_TOP, ceil_log2

UNIT_ROUNDOFF = {"float32": 2.0**-24, "float64": 2.0**-53}

RANGE = {"float32": (-126, 128), "float64": (-1022, 1024)}
"""Exponents of the smallest normal number, and of what all numbers are below."""


@dataclass(frozen=True)
class ErrorTerms:
    """The image error as a sum of three outer products (B1).

    In units of 2**(top_i + top_j), with u = 2**-bits / 2 for a rounded row and 0 for an exact one and s a row's sum
    of magnitudes: abs(E)_ij <= sum_c left[c, i] right[c, j] with left = (u_i, s_i + k u_i, dropped 2**-bits_i) and
    right = (s_j, u_j, 2**-bits_j).

    Attributes
    ----------
    left, right : float64 arrays, shape (3, batch, rows)
    """

    left: npt.NDArray[np.float64]
    right: npt.NDArray[np.float64]

    @property
    def vanish(self) -> bool:
        """Every term is zero."""
        return not (self.left.any(axis=(1, 2)) & self.right.any(axis=(1, 2))).any()


def dropped(scheme: Scheme, k: int, spans: tuple[int, int]) -> float:
    """Largest worth of the digit pairs that are left out of an entry, in image units (B1).

    Zero where trailing zero digits make them all vanish. The spans are the largest top - bottom of the rows of both
    operands; an image has at least scaling.base bits for them, the rest at its end being zeros.
    """
    if isinstance(scheme, Residues):
        return 0.0
    base = scheme.scaling(k).base
    used = sum(scheme.count - max(base - span, 0) // scheme.bits for span in spans)
    return k * scheme.drop if used > scheme.count + 1 else 0.0


def error_terms(left: Description, right: Description, scheme: Scheme | Words, spans: tuple[int, int]) -> ErrorTerms:
    """B1 for these operands, of a scheme that has a scaling at this k; what B8 adds to the relative error of words."""
    if isinstance(scheme, Words):
        return word_terms(left, right, scheme)
    k = left.k
    scaling = scaling_of(scheme, k)
    ulp_left, ulp_right = (_powers(-side.bits(scaling), side) for side in (left, right))
    u_left = np.where(left.rounded(scaling), ulp_left / 2, 0.0)
    u_right = np.where(right.rounded(scaling), ulp_right / 2, 0.0)
    return ErrorTerms(
        np.stack([u_left, left.sums + k * u_left, dropped(scheme, k, spans) * ulp_left]) * UP,
        np.stack([right.sums, u_right, ulp_right]) * UP,
    )


def word_terms(left: Description, right: Description, words: Words) -> ErrorTerms:
    """B8 for these operands: what small elements add to the relative error of words, as outer products.

    In units of 2**(top_i + top_j), with phi = 2**(floor - ceiling) for a row that may hold elements below 2**floor and
    0 for others. All terms are 0 where the relative bound alone holds.
    """
    k, c = left.k, _word_bounds.small(words, left.k)
    lost = _word_bounds.absolute(words, k) * 4.0**-words.ceiling
    phi, psi = (np.where(side.below(words.lowest), 2.0**words.lowest, 0.0)
                for side in (left, right))  # fmt: skip
    filled_left, filled_right = (np.where(side.empty, 0.0, 1.0) for side in (left, right))
    return ErrorTerms(
        np.stack([c * phi, c * (left.sums + k * phi), lost * filled_left]) * UP,
        np.stack([right.sums, psi, filled_right]) * UP,
    )


def words_by_rows(left: Description, right: Description, words: Words) -> float:
    """B8 for these operands, componentwise, from their descriptions alone; inf where these do not tell enough.

    What small elements add is proven by B9, and taken where it is next to nothing: B7 is sharper.
    """
    terms = word_terms(left, right, words)
    relative = _word_bounds.relative(words, left.k)
    if terms.vanish:
        return relative
    share = least_share(left, right)
    if share == 0:
        return inf
    worst_left, worst_right = (
        np.divide(of, side.least_sums, out=np.zeros_like(of), where=~side.empty).max(axis=(1, 2), initial=0.0)
        for of, side in ((terms.left, left), (terms.right, right))
    )
    added = float((worst_left * worst_right).sum()) / share
    return (relative + added) * UP if added <= _NEXT_TO_NOTHING * relative else inf


_NEXT_TO_NOTHING = 2.0**-7


def words_of_whole(words: Words, k: int) -> float:
    """B8 for operands that words lose nothing of, componentwise; inf where accumulators lose something all the same."""
    return _word_bounds.relative(words, k) if _word_bounds.absolute(words, k) == 0 else inf


def words_by_sample(left: Least, right: Least, some: int, words: Words, k: int) -> float:
    """B8 for any operands whose rows have these largest elements, componentwise; inf where B9 does not tell enough.

    `some` of the k indices were looked at, the same ones of both operands.
    """
    if not (left.told and right.told):
        return inf
    least = _share(left.elements, right.elements, some)
    for side in (left, right):
        least *= side.sums * 2.0**side.steps
    return words_of_least(least, words, k)


def words_of_least(least: float, words: Words, k: int) -> float:
    """B8 for any operands of which (abs(A) abs(B))_ij >= least 2**(top_i + top_j), but for rows of zeros.

    Componentwise; inf if that is 0.
    """
    phi, lost = 2.0**words.lowest, _word_bounds.absolute(words, k) * 4.0**-words.ceiling
    added = _word_bounds.small(words, k) * k * phi * (2 + phi) + lost
    return (_word_bounds.relative(words, k) + added / least) * UP if least > 0 else inf


def least_share(left: Description, right: Description) -> float:
    """B9: a lower bound of (abs(A) abs(B))_ij / (s_i s_j) over all rows that are not empty, s their `least_sums`."""
    return _share(left.least_elements, right.least_elements, left.k)


def _share(left: float, right: float, k: int) -> float:
    """The same, from the least s_i**2 / norm(a_i)**2 of either operand.

    By the Paley-Zygmund inequality at least (1 - t)**2 s_i**2 / norm(a_i)**2 elements of a row are t s_i / k or more;
    where those of two rows are more than k together, as many of them meet. 0 where they are not.
    """
    counts = sum((1 - _FAIR) ** 2 * min(elements, k) for elements in (left, right))
    meeting = max(counts - k * (1 + 2.0**-20), 0.0)
    return float(meeting * (_FAIR / k) ** 2 / UP)


_FAIR = 2.0**-5
"""The t of B9."""


def _powers(exponents: npt.NDArray[np.int64], description: Description) -> npt.NDArray[np.float64]:
    return np.where(description.empty, 0.0, np.ldexp(1.0, exponents.astype(np.int32)))


def row_column(left: Description, right: Description, terms: ErrorTerms) -> float:
    """B2: largest abs(E_ij) / (norm(a_i) norm(b_j)), each term by its own worst rows."""
    per_left = np.divide(terms.left, left.norms, out=np.zeros_like(terms.left), where=left.norms > 0)
    per_right = np.divide(terms.right, right.norms, out=np.zeros_like(terms.right), where=right.norms > 0)
    worst_left = per_left.max(axis=(1, 2), initial=0.0)
    worst_right = per_right.max(axis=(1, 2), initial=0.0)
    return float((worst_left * worst_right).sum()) * UP


def normwise(left: Description, right: Description, terms: ErrorTerms) -> float:
    """B3: norm(E)_F / (norm(A)_F norm(B)_F), worst matrix of the batch, by the triangle inequality.

    Of the rows without NaN or Inf: entries of others have no error, so such rows must not enlarge the norms.
    """
    a, norm_a = _frobenius(left, terms.left)
    b, norm_b = _frobenius(right, terms.right)
    product = norm_a * norm_b
    total = (a * b).sum(axis=0)
    return float(np.divide(total, product, out=np.zeros_like(total), where=product > 0).max(initial=0.0)) * UP


def _frobenius(
    description: Description, terms: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Norms over the rows of the terms, and of the operand, in units of 2**(largest top)."""
    finite = description.nonfinite == 0
    largest = description.top.max(axis=1, keepdims=True, initial=EMPTY_TOP, where=finite)
    exponents = np.clip(description.top - largest, -1000, 0).astype(np.int32)
    weights = np.where(finite, np.ldexp(1.0, exponents), 0.0)
    return _norm(terms * weights), _norm(description.norms * weights)


def _norm(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Along the last axis; no square of the largest element underflows."""
    largest = x.max(axis=-1, keepdims=True, initial=0.0)
    shares = np.divide(x, largest, out=np.zeros_like(x), where=largest > 0)
    norms: npt.NDArray[np.float64] = largest[..., 0] * np.sqrt((shares**2).sum(axis=-1))
    return norms


@lru_cache(maxsize=1024)
def a_priori(scheme: Scheme, k: int) -> float:
    """B4: abs(E_ij) / (norm(a_i) norm(b_j)) for any operands of inner dimension k, from the scaling rule alone.

    The rule gives a row the largest g that fits, so its image is at least half (norm scaling: in norm; max scaling:
    in the largest element) of what would fit, less what rounding the magnitudes up may have added.
    """
    scaling = scheme.scaling(k)
    if scaling is None:
        return inf
    width = magnitude_bits(k)
    if scaling.statistic == "squares":
        image_norm = sqrt(scaling.threshold) / 2 / (1 + sqrt(k) / 2 ** (width - 1))
    else:
        image_norm = scaling.threshold / 2 / (1 + 2.0 ** (1 - width))
    u = 0.5 / ldexp(image_norm, scaling.base - width)
    return (2 * sqrt(k) * u + k * u * u + k * scheme.drop * 4 * u * u) * UP


@lru_cache(maxsize=1024)
def usual_worst(scheme: Scheme, k: int) -> float:
    """E3, an estimate, no bound: what B1 comes to, componentwise, for normal data.

    For digits: what they drop grows with the largest elements of two rows. B4 fears rows of one element; normal rows
    have 2 log(2k) / k of their squares there, and sum abs(a b) is 2/pi of the product of the norms.
    """
    return a_priori(scheme, k) * min(2 * log(2 * k) / k, 1.0) * pi / 2


def usual_of(left: Least, right: Least, some: int, digits: Digits, k: int) -> float:
    """E4, an estimate, no bound: what B1 comes to, componentwise, for rows of which `some` elements were described.

    As if an entry of abs(A) abs(B) were what the sums of its rows let expect, s_i s_j / k. The two worst rows are taken
    together, which makes up for what the first level of B7 does not see.
    """
    scaling = scaling_of(digits, k)
    ulp, (x, y) = 2.0**-scaling.base, (some / side.sums for side in (left, right))
    return ulp / 2 * (x + y) + (ulp * ulp / 4 + digits.drop * ulp * ulp) * x * y


@lru_cache(maxsize=1024)
def usual_rms(scheme: Scheme, k: int) -> float:
    """E1, an estimate, no bound: root-mean-square componentwise error on normal data.

    Independent rounding errors of variance 1/12; sum abs(a b) is 2/pi sqrt(k)**2 sigma**2; rounding bits down leaves
    a row with a fraction f of what would fit, 1/f being 1.47 in root mean square.
    """
    scaling = scheme.scaling(k)
    if scaling is None:
        return inf
    if isinstance(scheme, Residues):
        image_norm = sqrt(scaling.threshold) * 2.0 ** (scaling.base - magnitude_bits(k)) / _SHARE
        return sqrt(1 / 6) / (2 / pi * image_norm)
    tail = sqrt(2 * log(2 * max(k, 2)))  # the largest of k normal numbers, in units of sigma
    largest = max(tail - (log(tail * tail / 2) + log(4 * pi)) / (2 * tail), 1.0)
    sigma = float(scheme.largest) / largest / _SHARE
    rounding = sqrt(1 / 6) / (2 / pi * sqrt(k) * sigma)
    radix, p = 2.0**scheme.bits, scheme.count
    dropped = sqrt(p - 1) * radix**2 / 12 * radix ** (p - 2) / (2 / pi * sqrt(k) * sigma * sigma)
    return hypot(rounding, dropped)


_SHARE = 1.47


def native(k: int, dtype: str) -> float:
    """B5: componentwise bound of a native product in any order of summation, roundings included: gamma_k.

    Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, sections 3.1 and 3.5; where `native_in_range`.
    """
    ku = k * UNIT_ROUNDOFF[dtype]
    return ku / (1 - ku) * UP if ku < 0.5 else inf


def native_in_range(left: Description, right: Description, dtype: str) -> bool:
    """B5: no product of two elements, and no sum of such, over- or underflows on the way of a native product."""
    least, past = RANGE[dtype]
    if left.empty.all() or right.empty.all():
        return True
    largest = sum(int(x.top[x.filled].max()) for x in (left, right))
    smallest = sum(int(x.least[x.filled].min()) for x in (left, right))
    return largest + ceil_log2(left.k) < past and smallest >= least


def with_rounding(bound: float, dtype: str) -> float:
    """B6: the bound after the one rounding to the output format."""
    u = UNIT_ROUNDOFF[dtype]
    return (bound + u * (1 + bound)) * UP if bound else u


def suffices(bound: float, tolerance: float, dtype: str) -> bool:
    """A bound that includes the rounding to the output is as good as a tolerance that does not."""
    return bound <= with_rounding(tolerance, dtype)
