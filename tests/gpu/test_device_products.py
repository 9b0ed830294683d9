"""NumPy and CuPy give the same bits: products of all schemes and shapes, by every engine."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest

import ozaki
from operands import engines, random_matrix, same_bits

cp = pytest.importorskip("cupy")
pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("options", [{"scheme": "residues", "slices": 5}, {"accuracy": "fp32", "reproducible": True}])
def test_more_matrices_than_a_grid_has_layers(options):
    rng = np.random.default_rng(4)
    a, b = (rng.standard_normal(shape, dtype="f4") for shape in ((70001, 2, 3), (70001, 3, 2)))
    expected = ozaki.matmul(a, b, **options)
    for engine in ("auto", "cublas"):
        same_bits(expected, ozaki.matmul(cp.asarray(a), cp.asarray(b), engine=engine, **options))


@pytest.mark.parametrize(
    ("shape", "slices"),
    [((64, 100000, 64), 14), ((256, 70000, 300), 7), ((200, 140001, 130), 16), ((700, 20000, 500), 14)],
)
def test_parts_of_k(shape, slices):
    """Few tiles and a long k, into an `out` of NaN; operands contiguous along rows and along columns."""
    (m, k, n), rng = shape, np.random.default_rng(10)
    a, b = random_matrix(rng, (m, k), "f8", 3), random_matrix(rng, (k, n), "f8", 3)
    expected = ozaki.matmul(a, b, scheme="residues", slices=slices)
    for x, y in ((cp.asarray(a), cp.asarray(b)), (cp.asarray(a.T.copy()).T, cp.asarray(b.T.copy()).T)):
        for engine in engines("residues", slices, k):
            out = cp.full((m, n), np.nan)
            ozaki.matmul(x, y, scheme="residues", slices=slices, engine=engine, out=out)
            same_bits(expected, out)


@pytest.mark.parametrize(
    ("scheme", "slices", "dtype"),
    [("residues", 14, "f8"), ("digits", 3, "f4"), ("digits", 7, "f8"), ("halfhalf", None, "f4")],
)
def test_tiles_begun_together(scheme, slices, dtype):
    """A long k and many tiles; another stream keeps multiprocessors busy, so that clusters wait for some in vain."""
    rng = cp.random.default_rng(9)
    a, b = rng.standard_normal((3000, 8300), dtype=dtype), rng.standard_normal((8300, 4700), dtype=dtype)
    c = ozaki.matmul(a, b, scheme=scheme, slices=slices)
    same_bits(ozaki.matmul(a[-9:].get(), b[:, -40:].get(), scheme=scheme, slices=slices), c[-9:, -40:])
    busy = cp.cuda.Stream(non_blocking=True)
    for _ in range(3):
        with busy:
            cp.sort(cp.arange(2**24)[::-1])
        repeated = ozaki.matmul(a, b, scheme=scheme, slices=slices)
        assert bool((repeated == c).all())


@pytest.mark.parametrize(
    "shape", [(1, 2000, 5000, 1500), (3, 1025, 1400, 777), (1, 400, 12000, 190), (70, 500, 300, 190)]
)
@pytest.mark.parametrize(("slices", "dtype"), [(2, "f4"), (3, "f4"), (4, "f8"), (7, "f8")])
def test_digits_split_along_k(shape, slices, dtype):
    """Numbers of tiles for which some clusters share the last tiles along k."""
    batch, m, k, n = shape
    rng = np.random.default_rng(sum(shape))
    a, b = rng.standard_normal((batch, m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
    ca, cb = cp.asarray(a), cp.asarray(b)
    for engine in engines("digits", slices, k):
        out = cp.full((batch, m, n), cp.nan, dtype)
        ozaki.matmul(ca, cb, scheme="digits", slices=slices, engine=engine, out=out)
        rows = rng.integers(0, m, 12)
        same_bits(ozaki.matmul(a[:, rows], b, scheme="digits", slices=slices), out[:, rows])


def test_halves_of_the_cache_are_the_same_each_time():
    """Two more measurements find the same halves; which cluster has which tile changes no result."""
    from ozaki.backends.cupy.steps.engines import fused_residues, halves

    if cp.cuda.Device().compute_capability != "90":
        pytest.skip("clusters are those of Hopper")
    found, *others = [halves.second_half(halves._latencies()) for _ in range(3)]
    assert found is None or 0 < len(found) < cp.cuda.Device().attributes["MultiProcessorCount"]
    assert others == [found, found]
    rng = np.random.default_rng(10)
    for i, second in enumerate((None, found, frozenset(range(0, 256, 3)), frozenset(range(256)))):
        k = 300 + 100 * i  # else the call would be repeated by the program with the first places
        a, b = rng.standard_normal((2100, k)), rng.standard_normal((k, 4100))
        out = cp.full((2100, 4100), np.nan)
        placed = patch.object(fused_residues, "places", return_value=halves.Places(second))
        with placed, patch.object(fused_residues, "_LARGE", 0):
            for _ in range(2):
                out.fill(np.nan)
                ozaki.matmul(cp.asarray(a), cp.asarray(b), scheme="residues", slices=14, out=out)
                same_bits(ozaki.matmul(a, b, scheme="residues", slices=14), out)
