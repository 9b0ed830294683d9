"""Lower bounds and worst ratios by compiled code are those by NumPy."""

import numpy as np
import pytest

import ozaki
from ozaki.backends.numpy import _proof
from ozaki.backends.numpy._describe import describe
from ozaki.bounds.levels import NARROW_DEPTH
from ozaki.schemes import Digits, Residues


@pytest.fixture(autouse=True)
def of_few_elements(monkeypatch):
    """Proofs of few elements, too, take compiled code."""
    monkeypatch.setattr(_proof, "FEW", 0)
    monkeypatch.setattr(_proof, "_LEAST_ENTRIES", 0)


def ordinary(rng, shape):
    return rng.standard_normal(shape)


def wide(rng, shape):
    return rng.standard_normal(shape) * 2.0 ** rng.integers(-1070, 900, shape)


def singles(rng, shape):
    return (rng.standard_normal(shape) * 2.0 ** rng.integers(-140, 100, shape)).astype(np.float32)


def pairs(rng, shape):
    x = (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(np.complex64)
    x.real[rng.random(shape) < 0.1] = np.nan
    return x


def few(rng, shape):
    """Nonzero in one element of thirty, with rows of zeros, NaN and Inf."""
    x = rng.standard_normal(shape) * (rng.random(shape) < 0.03)
    x[..., :: max(shape[-2] // 3, 1), :] = 0
    x[..., -1, ::7] = np.nan
    x[..., 0, ::11] = -np.inf
    return x


def equal(left, right, level, monkeypatch, scheme):
    """Compare what compiled code finds of described rows with what NumPy finds."""
    lower = _proof.lower_bound(left, right, level)
    spans = left.spans[0], right.spans[0]
    rows = {1, left.x.shape[1]}
    ratios = [_proof.worst_ratio(lower, left, right, spans, scheme, r) for r in rows]
    least = _proof.least_product(lower, left, right)
    with monkeypatch.context() as patch:
        patch.setattr(_proof, "_library", lambda left, right: None)
        expected = _proof.lower_bound(left, right, level)
        of_expected = [_proof.worst_ratio(expected, left, right, spans, scheme, r) for r in rows]
        assert lower.dtype == (np.float64 if level == "wide" else np.int32) and (lower == expected).all()
        assert ratios == of_expected and least == _proof.least_product(expected, left, right)
    return ratios


@pytest.mark.parametrize("kind", [ordinary, wide, singles, pairs, few])
@pytest.mark.parametrize("k", [1, 31, 33, 1000, 2090])
def test_lower_bounds_are_those_of_numpy(code, rng, monkeypatch, kind, k):
    for batches, m, n in (((1, 1), 1, 1), ((1, 1), 17, 50), ((1, 3), 8, 16), ((3, 1), 9, 97)):
        left, right = (kind(rng, (batch, rows, k)) for batch, rows in zip(batches, (m, n), strict=True))
        turned = np.ascontiguousarray(right.swapaxes(1, 2)).swapaxes(1, 2)
        for a, b in ((left, turned), (turned, left), (left[..., ::-1], turned)):
            for level in ("sampled", "narrow", "wide"):
                equal(describe(a), describe(b), level, monkeypatch, Residues(14))


def test_ratios_of_digits(code, rng, monkeypatch):
    left, right = (describe(rng.standard_normal((1, rows, 300))) for rows in (40, 70))
    assert all(ratio > 0 for ratio in equal(left, right, "narrow", monkeypatch, Digits(5)))


def test_no_more_indices_are_read_than_sums_hold(code, monkeypatch):
    x = np.full((1, 1, NARROW_DEPTH + 100), 1 - 2.0**-20)
    equal(describe(x), describe(x), "narrow", monkeypatch, Residues(14))
    x[..., :NARROW_DEPTH] = 0
    left = describe(x)
    assert not _proof.lower_bound(left, left, "narrow").any()


def test_rows_at_odd_places_in_memory(code, rng, monkeypatch):
    raw = np.zeros(8 * 30 * 40 + 1, np.uint8)
    x = raw[1:].view(np.float64).reshape(1, 30, 40)
    x[...] = rng.standard_normal(x.shape)
    equal(describe(x), describe(x), "narrow", monkeypatch, Residues(14))


def test_a_named_accuracy_has_the_same_plan(code, rng):
    a, b = rng.standard_normal((90, 400)), np.exp(rng.standard_normal((400, 110)))
    reports = []
    for name in (code.name, "float64"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OZAKI_CPU", name)
            ozaki.clear_caches()
            reports.append(ozaki.matmul(a, b, accuracy="fp64", reproducible=True, return_report=True)[1])
    assert (reports[0].slices, reports[0].bound) == (reports[1].slices, reports[1].bound)


def test_proofs_and_products_use_the_same_memory(code, rng):
    a, b = rng.standard_normal((2, 200, 200))

    def misses():
        ozaki.matmul(a, b, accuracy="fp64", reproducible=True)
        return ozaki.cache_info()["memory of int8 slices"].misses

    misses()
    assert misses() == misses()


def test_panels_within_a_limit_prove_the_same(code, rng):
    for shape in ((1500, 40), (3, 600, 40)):
        a, b = rng.standard_normal(shape), rng.standard_normal((40, 1500))
        plans = [ozaki.plan(a, b, accuracy="fp64", reproducible=True, workspace_limit=x) for x in (None, 5_000_000)]
        assert plans[0].scheme == plans[1].scheme and plans[0].bound == plans[1].bound
