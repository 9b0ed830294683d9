"""The overlap of the large elements of sampled rows and columns, on NumPy (`planning.facts.Overlap`)."""

from __future__ import annotations

from math import inf

import numpy as np

from ozaki.backends.numpy._describe import Described, larger_parts
from ozaki.backends.numpy._limbs import Floats
from ozaki.bounds.overlap import ROWS, Indices, sampled_matrices, sampled_row


def overlap(left: Described, right: Described) -> float:
    """The least k sum_h x_ih y_jh / (sum_h x_ih sum_h y_jh) of sampled rows and columns, x and y 7-bit magnitudes."""
    (batch_a, m, k), (batch_b, n, _) = left.x.shape, right.x.shape
    count, step = sampled_matrices(max(batch_a, batch_b))
    least = inf
    for entry in range(0, count * step, step):
        x, y = (
            _magnitudes(of.unscaled[entry if batch > 1 else 0], rows)
            for of, batch, rows in ((left, batch_a, m), (right, batch_b, n))
        )
        products_of_sums = np.outer(x.sum(axis=1), y.sum(axis=1))
        ratios = Indices.of(k).total * (x @ y.T) / np.where(products_of_sums > 0, products_of_sums, 1)
        least = min(least, float(ratios.min(initial=inf, where=products_of_sums > 0)))
    return least


def _magnitudes(x: Floats, rows: int) -> Floats:
    """floor(abs(x) 2^(7 - top)) of sampled elements, shape (ROWS, count); `top` is that of the sampled elements.

    abs(x) of a complex element is the larger of its parts.
    """
    segments, step, _ = Indices.of(x.shape[1])
    h = (step * np.arange(segments)[:, None] + np.arange(32)).ravel()
    samples = larger_parts(x[np.ix_([sampled_row(r, rows) for r in range(ROWS)], h[h < x.shape[1]])], nonfinite=True)
    tops = np.frexp(samples.max(axis=1))[1]
    magnitudes: Floats = np.floor(np.ldexp(samples, (7 - tops)[:, None]))
    return magnitudes
