"""First singular vectors of matrices whose rows are far apart in size, too, in as many bits as these take.

Let S be upper triangular and the columns of A S orthonormal: a product of inverses of R factors in float64. The columns
of S are far apart in size, and alike otherwise. So rotations in float64 find T, nearly unitary, for which S T has
orthogonal columns; these are inverses of singular values times the right vectors of A, and A S T are the left ones.
"""

from __future__ import annotations

from math import ceil, log2
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.functions.products import matmul
from ozaki.linalg.common.arrays import array_library, exactly, on_host, rounded
from ozaki.linalg.common.products import componentwise, not_tiny, product
from ozaki.linalg.common.scaling import Exponents, Powers, scaled, tops, tops_or_zero
from ozaki.linalg.common.upper import LEAST, frobenius_norm, norms_on_host
from ozaki.linalg.spectra.rotations import Places, rotated

_MOST_FACTORS = 30
"""Each R factor gains some 50 bits."""

_NEARLY = 2.0**-20
"""Columns count as orthonormal up to this: corrections do the rest."""


_LEAST_PIVOT = 2.0**-52
"""What takes the place of smaller pivots of columns near 1: float64 finds no digit of these, which may be 0."""


def first_vectors(b: Any, exponents: Exponents) -> tuple[Any, Exponents]:
    """V' in many bits, as of `rotated`: the columns of b V' are orthogonal, their norms from 1/2 to 1, about.

    Raises
    ------
    numpy.linalg.LinAlgError
        If columns of b are dependent.
    OverflowError
        If b is so ill-conditioned, or they are dependent, that it takes more than 940 bits.
    """
    xp, order = array_library(b), _pivots(on_host(rounded(b)), exponents)
    s, bits = _orthonormal(b[:, xp.asarray(order)])  # inv(D) S is that of A = b D
    of_s = Powers(rows=-exponents[order])
    units = tops(s, 0, of_s)
    graded = on_host(rounded(scaled(s, Powers(of_s.rows, -units))))
    turn, found = rotated(graded, units)
    turn = turn / np.linalg.norm(graded @ turn, axis=0)
    turn, found = turn[:, ::-1].copy(), 1 - found[::-1]
    if not bool(np.isfinite(turn).all()):
        raise np.linalg.LinAlgError(_NOT_ORTHONORMAL)
    turned = scaled(exactly(xp.asarray(turn)), Powers(-units, -found))
    v = matmul(s, turned, accuracy=componentwise(2.0**-bits), dtype="mp")
    back = xp.asarray(np.argsort(order))
    return v[back].round_to(bits), found


def _pivots(x: npt.NDArray[Any], exponents: Exponents) -> Places:
    """The order of columns times powers of two in which each is the largest, those before taken away from it.

    Of rows far apart, large ones first, Householder's reflections err relative to each row.
    """
    n, order, e = x.shape[1], np.arange(x.shape[1]), exponents.astype(np.float64)
    x = x[np.argsort(-tops_or_zero(x, 1), kind="stable")].copy()
    for j in range(n):
        rest = x[j:, j:]
        largest = abs(rest).max(axis=0)
        norms = np.linalg.norm(rest / np.where(largest > 0, largest, 1.0), axis=0)
        sizes = np.log2(norms) + np.log2(largest)  # -inf of zeros
        first = j + int((sizes + e[j:]).argmax())
        for each in (x.T, order, e):
            each[[j, first]] = each[[first, j]]
        v = rest[:, 0] / (largest[first - j] or 1.0)
        v[0] += (v[0] / abs(v[0]) if v[0] else 1.0) * np.linalg.norm(v)
        rest -= np.outer(v, v.conj() @ rest) * (2 / ((abs(v) ** 2).sum() or 1.0))
    return order


def _orthonormal(b: Any) -> tuple[Any, int]:
    """S, upper triangular, for which the columns of b S are nearly orthonormal, and bits that it takes.

    Raises
    ------
    numpy.linalg.LinAlgError
        If columns of b are dependent.
    OverflowError
        If it takes more than 940 bits.
    """
    xp, n = array_library(b), b.shape[1]
    s, norm = exactly(xp.eye(n)), frobenius_norm(b)
    places = np.argsort(-tops_or_zero(b, 1), kind="stable")  # the QR decomposition keeps small rows below large ones
    for _ in range(_MOST_FACTORS):
        size = norm * float(norms_on_host(s, 0).max())
        fine = 2.0**-60 / size
        if not fine > LEAST:
            raise OverflowError(_NOT_ORTHONORMAL)
        w = on_host(product(b, s, not_tiny(fine), multiprecision=False))[places]
        gram: npt.NDArray[Any] = np.eye(n) - w.conj().T @ w
        bits = ceil(log2(size)) + 60
        if float(np.linalg.norm(gram)) < _NEARLY:
            return s, bits
        by = np.ldexp(1.0, -tops_or_zero(w, 0))
        r: Any = np.linalg.qr(w * by, mode="r")
        diagonal = r.diagonal()
        r[range(n), range(n)] = np.where(abs(diagonal) < _LEAST_PIVOT, _LEAST_PIVOT, diagonal)
        inverse: Any = np.triu(np.linalg.inv(r)) * by[:, None]
        if not bool(np.isfinite(inverse).all()):
            raise np.linalg.LinAlgError(_NOT_ORTHONORMAL)
        s = matmul(s, exactly(xp.asarray(inverse)), accuracy=componentwise(2.0 ** -(bits + 60)), dtype="mp")
        s = s.round_to(bits + 60)
    raise np.linalg.LinAlgError(_NOT_ORTHONORMAL)


_NOT_ORTHONORMAL = "a: columns are dependent, or too ill-conditioned"
