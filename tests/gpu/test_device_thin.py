"""NumPy and CuPy give the same bits: products with few inner indices, and batches of more matrices than a grid has."""

from __future__ import annotations

import numpy as np
import pytest

import ozaki
from operands import random_matrix, same_bits

cp = pytest.importorskip("cupy")
pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("k", [1, 31, 64, 65, 128, 129, 256])
@pytest.mark.parametrize(("dtype", "slices"), [("f8", 14), ("f8", 15), ("f8", 18), ("f4", 4), ("f4", 7)])
def test_few_inner_indices(k, dtype, slices):
    rng = np.random.default_rng(k)
    a, b = random_matrix(rng, (1500, k), dtype, 30), random_matrix(rng, (k, 1003), dtype, 30)
    a[5, 0], b[0, 7] = np.nan, np.inf
    options = {"scheme": "residues", "slices": slices}
    expected = ozaki.matmul(a, b, **options)
    for x, y in ((cp.asarray(a), cp.asarray(b)), (cp.asarray(a.T.copy()).T, cp.asarray(b.T.copy()).T)):
        for engine in ("auto", "cublas"):
            out = cp.full(expected.shape, np.nan, dtype)
            ozaki.matmul(x, y, engine=engine, out=out, **options)
            same_bits(expected, out)


@pytest.mark.parametrize("rows", [63, 65, 20000])
def test_blocks_with_several_tiles(rows):
    """Blocks that go through many tiles, beside entries that engine="cublas" computes."""
    rng = np.random.default_rng(rows)
    a, b = cp.asarray(rng.standard_normal((rows, 100))), cp.asarray(rng.standard_normal((100, 3001)))
    options = {"scheme": "residues", "slices": 14}
    same_bits(cp.asnumpy(ozaki.matmul(a, b, engine="cublas", **options)), ozaki.matmul(a, b, **options))


@pytest.mark.parametrize(("batch", "k"), [(70001, 5), (3001, 300)])
def test_many_matrices(batch, k):
    """More matrices than a grid has layers, and so many that slices are made for some at a time."""
    rng = np.random.default_rng(k)
    a, b = rng.standard_normal((batch, 2, k)), rng.standard_normal((batch, k, 3))
    expected = ozaki.matmul(a, b, scheme="residues", slices=14)
    same_bits(expected, ozaki.matmul(cp.asarray(a), cp.asarray(b), scheme="residues", slices=14))
