"""Whole products in one call of compiled code have the bits of those in parts, and of those by float64 BLAS."""

import itertools

import numpy as np
import pytest
from cases import by_blas, same_bits

import ozaki
from ozaki.backends.numpy import _describe
from ozaki.backends.numpy.compiled import sharing
from ozaki.backends.numpy.engines.int8_residues import Int8ResidueEngine

RESIDUES = {"scheme": "residues", "slices": 14}


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    monkeypatch.setattr(sharing, "threads", lambda: 1)


@pytest.fixture
def whole(monkeypatch):
    """What whole products returned, one after the other: None where they are multiplied in parts."""
    found, multiply = [], Int8ResidueEngine.multiply_whole

    def seen(*given):
        found.append(multiply(*given))
        return found[-1]

    monkeypatch.setattr(Int8ResidueEngine, "multiply_whole", seen)
    return found


def in_parts(a, b, **options):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Int8ResidueEngine, "multiply_whole", lambda *_: None)
        return ozaki.matmul(a, b, **options)


def layouts(x):
    """The same numbers in memory in other ways."""
    yield x
    yield np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)
    yield np.repeat(x, 2, axis=-1)[..., ::2]
    yield np.ascontiguousarray(x[..., ::-1, ::-1])[..., ::-1, ::-1]
    yield np.asfortranarray(x)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "shape",
    [
        (1, 1, 1),
        (3, 5, 2),
        (7, 4, 8),
        (8, 9, 16),
        (9, 64, 17),
        (31, 65, 33),
        (40, 256, 49),
        (17, 257, 96),
        (2, 900, 40),
    ],
    ids=str,
)
def test_bits_in_every_layout(code, rng, whole, dtype, shape):
    m, k, n = shape
    options = {"scheme": "residues", "slices": 14 if dtype == "float64" else 7}
    for left, right in ((), ()), ((4,), (4,)), ((3,), (1,)), ((1,), (3,)), ((2, 1), (1, 3)):
        a, b = (
            (rng.standard_normal(x) * np.exp2(rng.integers(-30, 30, (*x[:-1], 1)))).astype(dtype)
            for x in ((*left, m, k), (*right, k, n))
        )
        expected = by_blas(a, b, **options)
        assert same_bits(in_parts(a, b, **options), expected)
        for x, y in zip(layouts(a), layouts(b), strict=True):
            whole.clear()
            assert same_bits(ozaki.matmul(x, y, **options), expected) and whole == [0]


@pytest.mark.parametrize(
    "shape", [(270, 60, 500), (700, 300, 20), (20, 300, 700), (100, 2000, 33), (1, 2000, 100)], ids=str
)
def test_several_tiles(code, rng, whole, shape):
    """Also of long and narrow matrices, whose panels are not all held."""
    m, k, n = shape
    for left, right in ((), ()), ((2,), (2,)), ((2, 1), (1, 2)):
        a, b = rng.standard_normal((*left, m, k)), rng.standard_normal((*right, k, n))
        expected = by_blas(a, b, **RESIDUES)
        for x, y in itertools.islice(zip(layouts(a), layouts(b), strict=True), 2):
            assert same_bits(ozaki.matmul(x, y, **RESIDUES), expected) and whole.pop() == 0


@pytest.mark.parametrize("count", [2, 5, 6, 7, 8, 10, 11, 15, 16])
def test_all_numbers_of_limbs(code, rng, whole, count):
    a, b = rng.standard_normal((3, 20, 30)), rng.standard_normal((3, 30, 26))
    options = {"scheme": "residues", "slices": count}
    assert same_bits(ozaki.matmul(a, b, **options), by_blas(a, b, **options)) and whole == [0]
    x, y = a.astype(np.float32), b.astype(np.float32)
    assert same_bits(ozaki.matmul(x, y, **options), by_blas(x, y, **options)) and whole == [0, 0]


def test_values_that_are_rare(code, rng, whole):
    a, b = rng.standard_normal((5, 20, 30)), rng.standard_normal((5, 30, 26))
    a[1, 3, 4], a[2, :, 7], b[3, 2], b[4] = np.nan, np.inf, -np.inf, 0
    a[0, 5], a[4] = 0, np.rint(4 * a[4]) * 2.0**-1074
    b[0] *= np.exp2(rng.integers(-200, 200, b[0].shape))
    c = ozaki.matmul(a[:4], b[:4], **RESIDUES)
    assert np.array_equal(c, by_blas(a[:4], b[:4], **RESIDUES), equal_nan=True) and whole == [1 + 20 + 26]
    assert same_bits(ozaki.matmul(a[4:], b[:1], **RESIDUES), by_blas(a[4:], b[:1], **RESIDUES))
    assert whole[1] is None  # exponents that are too large


def test_what_is_multiplied_in_parts(code, rng, whole):
    a, b = rng.standard_normal((20, 30)), rng.standard_normal((30, 10))
    singles, odd = a.astype(np.float32), np.zeros((20, 30), [("padding", "i2"), ("x", "f8")])["x"]
    odd[...] = a
    for x, y in ((singles, b), (odd, b), (rng.standard_normal((2, 9000)), rng.standard_normal((9000, 3)))):
        whole.clear()
        assert same_bits(ozaki.matmul(x, y, **RESIDUES), by_blas(x, y, **RESIDUES)) and whole in ([], [None])


def test_threads_share_out_matrices(code, rng, whole, monkeypatch):
    monkeypatch.setattr(sharing, "LEAST", 1.0)
    a, b = rng.standard_normal((40, 12, 20)), rng.standard_normal((40, 20, 30))
    expected = by_blas(a, b, **RESIDUES)
    for count, batch, found in ((1, 40, 0), (3, 40, 0), (8, 40, 0), (8, 5, None)):
        monkeypatch.setattr(sharing, "threads", lambda count=count: count)
        assert same_bits(ozaki.matmul(a[:batch], b[:batch], **RESIDUES), expected[:batch]) and whole.pop() == found
    a[20, 3, 3], b[0, 4, 4] = np.nan, np.inf
    assert np.array_equal(ozaki.matmul(a, b, **RESIDUES), by_blas(a, b, **RESIDUES), equal_nan=True)


def test_rows_are_described_for_those_who_ask(code, rng, monkeypatch):
    a, b = rng.standard_normal((2, 20, 20))
    a[3] = np.nan
    expected = ozaki.matmul(a, b, **RESIDUES)
    assert np.isnan(expected[3]).all() and np.isfinite(expected[4:]).all()

    def fail(*_):
        raise AssertionError("described")

    for name in ("describe", "describe_both"):
        monkeypatch.setattr(_describe, name, fail)
    assert same_bits(ozaki.matmul(a[4:], b, **RESIDUES), expected[4:])


def test_an_operand_by_itself(code, rng, whole):
    x = rng.standard_normal((30, 30))
    for a, b in itertools.product((x, x.T), repeat=2):
        assert same_bits(ozaki.matmul(a, b, **RESIDUES), by_blas(a, b, **RESIDUES)) and whole.pop() == 0
    expected = ozaki.matmul(x, x, **RESIDUES)
    assert same_bits(ozaki.matmul(x, x, out=x, **RESIDUES), expected)
