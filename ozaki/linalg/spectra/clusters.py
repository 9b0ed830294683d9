"""Clusters of values that lie too close to be told apart, what is turned within them, and norms that bound errors."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.functions.products import gemm, matmul
from ozaki.linalg.common.arrays import adjoint, array_library, on_host
from ozaki.linalg.common.products import componentwise
from ozaki.linalg.common.upper import column_norm, norms, row_norm
from ozaki.multiprecision.objects import mparray


def ranges_of_clusters(together: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """The ranges of ordered values of which each is close to the next: (first, behind the last).

    `together` says of all pairs whether they are close.
    """
    ends = [0, *(i + 1 for i in range(len(together) - 1) if not together[i, i + 1]), len(together)]
    return [(p, q) for p, q in pairwise(ends) if q - p > 1]


def orthonormal(x: Any, bits: int) -> Any:
    """A matrix of orthonormal columns near x, whose columns are nearly so, in so many bits."""
    found, eye = mparray(x), array_library(x).eye(x.shape[1])
    while True:
        gram = gemm(-1, adjoint(found), found, 1, eye, accuracy=componentwise(2.0**-bits), dtype="mp")
        missing = row_norm(gram)
        found = (found + matmul(found, gram, accuracy=componentwise(2.0**-bits), dtype="mp").ldexp(-1)).round_to(bits)
        if not 2.0 ** (-bits / 2) < missing < 0.5:  # a step squares what is missing
            return found


def spectral_norm(x: Any) -> float:
    """An upper bound of the spectral norm of abs(x), and so of x: the root of its row norm times its column norm.

    The product of these bounds of two matrices is one of abs(x) abs(y), on which errors of products rest.
    """
    return row_norm(x) ** 0.5 * column_norm(x) ** 0.5 * (1 + 2.0**-50) if x.size else 0.0


def frobenius_norm(x: Any) -> float:
    """An upper bound of the Frobenius norm."""
    return float(euclidean(norms(x, 0)[:, None])[0]) if x.size else 0.0


def euclidean(sizes: Any) -> npt.NDArray[np.float64]:
    """Upper bounds of the Euclidean norms of columns whose elements are no larger than these sizes, in NumPy."""
    return on_host(norms(sizes, 0)) if sizes.shape[0] else np.zeros(sizes.shape[1])
