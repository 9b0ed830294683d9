"""Digits and residues: what the fixed-point images and the digit pairs left out cost, for these operands (B1 to B3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ozaki.bounds.description import Description
from ozaki.bounds.rounding import UP
from ozaki.schemes import Scheme, scaling_of

FAR = 2.0**900
"""What an error of 2**900 units or more counts as: `planning.proof` takes bounds near it for none at all."""


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
        """Whether every term is zero."""
        return not (self.left.any(axis=(1, 2)) & self.right.any(axis=(1, 2))).any()


def error_terms(left: Description, right: Description, scheme: Scheme, dropped: float, exponent: int = 0) -> ErrorTerms:
    """B1 for these operands and a scheme, which must have a scaling at this k.

    `dropped`: the largest value of the slice products that the scheme leaves out of an entry, in image units. The terms
    are divided by 2**exponent, so that none underflows where errors are far below the range of a float64.
    """
    k = left.k
    scaling = scaling_of(scheme, k)
    bits_left, bits_right = left.bits(scaling), right.bits(scaling)
    u_left, u_right = (  # of rows whose image may differ from 2**mu x
        np.where(bits + side.bottom < side.top, _powers(-bits - exponent, side) / 2, 0.0)
        for side, bits in ((left, bits_left), (right, bits_right))
    )
    # The second term has the factor 2**-exponent in u_right already.
    u_unscaled = u_left if exponent == 0 else np.where(u_left > 0, _powers(-bits_left, left) / 2, 0.0)
    return ErrorTerms(
        np.stack([u_left, left.sums + k * u_unscaled, dropped * _powers(-bits_left - exponent, left)]) * UP,
        np.stack([right.sums, u_right, _powers(-bits_right, right)]) * UP,
    )


def _powers(exponents: npt.NDArray[np.int64], description: Description) -> npt.NDArray[np.float64]:
    """2**exponents, shape (batch, rows), but at least 2**-1070 and at most `FAR`; 0 for empty rows."""
    powers = np.ldexp(1.0, np.minimum(np.maximum(exponents, -1070), 900).astype(np.int32))
    if not isinstance(description.filled, slice):
        powers[description.empty] = 0
    return powers


def row_column(left: Description, right: Description, terms: ErrorTerms) -> float:
    """B2: largest abs(E_ij) / (norm(a_i) norm(b_j)), each term by its own worst rows."""
    per_left = np.divide(terms.left, left.norms, out=np.zeros_like(terms.left), where=left.norms > 0)
    per_right = np.divide(terms.right, right.norms, out=np.zeros_like(terms.right), where=right.norms > 0)
    worst_left = per_left.max(axis=(1, 2), initial=0.0)
    worst_right = per_right.max(axis=(1, 2), initial=0.0)
    return float((worst_left * worst_right).sum()) * UP


def normwise(left: Description, right: Description, terms: ErrorTerms) -> float:
    """B3: norm(E)_F / (norm(A)_F norm(B)_F), worst matrix of the batch, by the triangle inequality.

    Rows with NaN or Inf count as zeros: their entries have no error, so they must not enlarge the norms.
    """
    a, norm_a = _frobenius(left, terms.left)
    b, norm_b = _frobenius(right, terms.right)
    product = norm_a * norm_b
    total = (a * b).sum(axis=0)
    return float(np.divide(total, product, out=np.zeros_like(total), where=product > 0).max(initial=0.0)) * UP


def _frobenius(
    description: Description, terms: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Norms of each term, shape (3, batch), and of the operand, shape (batch,), in units of 2**(largest top)."""
    finite = description.nonfinite == 0
    counted = finite & ~description.empty
    tops = description.top + description.scale
    largest = tops.max(axis=1, keepdims=True, initial=_LOWEST, where=counted)
    exponents = np.clip(tops - largest, -1000, 0).astype(np.int32)
    weights = np.where(finite, np.ldexp(1.0, exponents), 0.0)
    return _norm(terms * weights), _norm(description.norms * weights)


_LOWEST = -(2**62)
"""An exponent below all others."""


def _norm(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Euclidean norms along the last axis of x >= 0, scaled so that the largest square does not underflow."""
    largest = x.max(axis=-1, keepdims=True, initial=0.0)
    shares = np.divide(x, largest, out=np.zeros_like(x), where=largest > 0)
    norms: npt.NDArray[np.float64] = largest[..., 0] * np.sqrt((shares**2).sum(axis=-1))
    return norms
