"""Blocks of clusters of singular values, decomposed in float64, with the errors of their values bounded.

B of docs/linalg.md, L9, is diagonal but for these blocks, by whose own vectors those of the cluster are turned.
"""

from __future__ import annotations

from math import inf
from typing import Any, NamedTuple

from ozaki.linalg.common.arrays import adjoint, array_library
from ozaki.linalg.common.products import UNIT, native_error, native_product
from ozaki.linalg.common.upper import LEAST, UP, spectral_norm
from ozaki.linalg.factors.correcting import native

NONE_FOUND = "float64 finds no singular values"


class Block(NamedTuple):
    """The decomposition of the block of a cluster: B restricted to it is left diag(values) right^H.

    Attributes
    ----------
    rows, columns : slices: of U and of V
    left, right : float64 matrices
    error : bound of the errors of its values
    turned : bound of the spectral norms of B right - left diag(values) and B^H left - right diag(values)
    """

    rows: slice
    columns: slice
    left: Any
    right: Any
    error: float
    turned: float


def block_of_values(part: slice, middle: Any, offsets: Any) -> tuple[Block, Any]:
    """The block of a cluster of values, each less the first of them, and its eigenvalues, descending."""
    xp = array_library(offsets)
    matrix = middle[part, part] + xp.diag(offsets)
    values, vectors = native(xp.linalg.eigh, matrix, NONE_FOUND)
    values, vectors = values[::-1], vectors[:, ::-1].copy()
    rest = native_product(matrix, vectors) - vectors * values
    norm, norm_x = spectral_norm(matrix), spectral_norm(vectors)
    error, largest = native_error(matrix, vectors) + UNIT, float(abs(values).max())
    turned = spectral_norm(rest) + error * (norm + largest) * norm_x + UNIT * norm + LEAST
    lacking = _lacking(vectors)
    missed = (norm_x * turned + 2 * lacking * largest) / max(1 - lacking, LEAST)
    missed = missed * UP if lacking < _NEARLY else inf
    return Block(part, part, vectors, vectors, missed, turned * UP), values


def block_of_small_values(rows: slice, columns: slice, middle: Any, values: Any) -> tuple[Block, Any]:
    """The block of the cluster of values that may be 0, and its singular values."""
    xp, n = array_library(values), len(values)
    matrix = middle[rows, columns].copy()
    matrix[:n] += xp.diag(values)
    left, found, right = native(lambda x: tuple(xp.linalg.svd(x, full_matrices=True)), matrix, NONE_FOUND)
    right = adjoint(right)
    rest = native_product(matrix, right) - left[:, :n] * found
    norm, largest = spectral_norm(matrix), float(abs(found).max())
    error = native_error(matrix, right) + UNIT
    turned = spectral_norm(rest) + error * (norm * spectral_norm(right) + largest * spectral_norm(left)) + UNIT * norm
    of_left, of_right = _lacking(left), _lacking(right)
    missed = (turned + LEAST + largest * (of_left + of_right)) / max(1 - of_right, LEAST) * UP
    missed = missed if max(of_left, of_right) < _NEARLY else inf
    return Block(rows, columns, left, right, missed, 4 * missed), found


_NEARLY = 2.0**-22
"""Vectors of a block are orthonormal up to less than this, which bounds of angles allow for."""


def _lacking(x: Any) -> float:
    """An upper bound of the spectral norm of I - X^H X, X square in float64."""
    norm = spectral_norm(x)
    gram = array_library(x).eye(x.shape[1]) - native_product(adjoint(x), x)
    return spectral_norm(gram) + (native_error(adjoint(x), x) + UNIT) * norm**2
