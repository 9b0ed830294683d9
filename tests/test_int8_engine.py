"""Products by compiled code for the processor's int8 units have the bits of those by float64 BLAS."""

import ctypes
import itertools
import os
import sys
import threading
import time

import numpy as np
import pytest
from cases import by_blas, layouts, same_bits
from children import in_child

import ozaki
from ozaki.backends.numpy import _describe, _execute
from ozaki.backends.numpy.compiled import calls, sharing
from ozaki.backends.numpy.compiled.panels import TRIANGLE
from ozaki.backends.numpy.compiled.self_test import self_test
from ozaki.backends.numpy.compiled.tables import complex_tables_of, tables_of
from ozaki.schemes.moduli import complex_moduli, first_moduli

RESIDUES = {"scheme": "residues", "slices": 14}


@pytest.mark.parametrize("count", [2, 3, 5, 6, 10, 11, 15, 16, 17])
def test_all_numbers_of_limbs(code, rng, count):
    """Up to three limbs are rounded from float64, four, as of 17 residues, from words; no room for k: refused alike."""
    for dtype, result in itertools.product(("float32", "float64"), repeat=2):
        a, b = rng.standard_normal((40, 60)).astype(dtype), rng.standard_normal((60, 70)).astype(dtype)
        options = {"scheme": "residues", "slices": count, "dtype": result}
        assert same_bits(ozaki.matmul(a, b, **options), by_blas(a, b, **options))


@pytest.mark.parametrize(
    "tables",
    [*map(tables_of, map(first_moduli, range(1, 18))), *map(complex_tables_of, map(complex_moduli, range(1, 19)))],
)
def test_sums_of_limbs_are_exact(tables):
    """Residues as large as they can be, times limbs, and the quotient times a limb, add up to at most 2**53 units."""
    of_entries = tables.weights.reshape(-1, tables.limbs)
    weights = [[*map(int, limbs)] for limbs in of_entries.tolist()]
    product = [*map(int, tables.product.tolist())]
    assert [sum(limbs) for limbs in weights[: len(tables.crt.weights)]] == [*tables.crt.weights]
    assert sum(product) == tables.crt.product
    residues = tables.parts * [m // 2 for m in tables.crt.moduli]
    quotient = 1 + sum(r * sum(limbs) for r, limbs in zip(residues, weights, strict=True)) // tables.crt.product
    for of_limb, of_product in zip(zip(*weights, strict=True), product, strict=True):
        unit = min(x & -x for x in (*of_limb, of_product) if x)
        most = sum(r * x for r, x in zip(residues, of_limb, strict=True)) + quotient * of_product
        assert most <= 2**53 * unit


def test_descriptions(code, rng):
    for dtype, k in itertools.product(("float32", "float64"), (1, 7, 300, 20_000)):
        x = rng.standard_normal((2, 40, k)) * np.exp2(
            rng.integers(-300, 300, (2, 40, k)) * (rng.random((2, 40, 1)) < 0.5)
        )
        x[0, :3] = 0
        x[1, 5, ::3], x[1, 6, 0], x[0, 4, -1] = np.nan, np.inf, 5e-324
        x[0, 10] = np.rint(x[0, 10])
        with np.errstate(all="ignore"):
            x = x.astype(dtype)
        for rows in layouts(x):
            fields = np.empty((len(_describe.FIELDS), 2, 40), np.int64)
            if calls.can_read(rows):
                calls.describe(code.library, rows, fields)
                expected = np.zeros_like(fields)
                with np.errstate(all="ignore"):
                    _describe._describe_tile(rows, expected)
                assert (fields == expected).all()


def test_blas_asks_nothing_that_compiled_code_needs(monkeypatch, rng):
    """A wrong OMP_NUM_THREADS, for one, is no error of a product that takes none of these threads."""

    def fail():
        raise AssertionError("asked for threads")

    monkeypatch.setattr(_execute, "threads", fail)
    a, b = rng.standard_normal((2, 20, 20))
    assert ozaki.matmul(a, b, engine="float64", **RESIDUES).shape == (20, 20)


@pytest.mark.parametrize("where", ["the caller's thread", "another one"])
def test_an_error_in_a_thread_is_raised(code, rng, monkeypatch, where):
    monkeypatch.setattr(sharing, "threads", lambda: 3)
    monkeypatch.setattr(sharing, "LEAST", 1.0)
    block, main = calls.Block, threading.get_ident()

    def fail(shape):
        if len(shape) == 1 and (threading.get_ident() == main) == (where == "the caller's thread"):  # scratch
            raise MemoryError("no scratch")
        time.sleep(0.01)  # so that all threads have something to do
        return block(shape)

    monkeypatch.setattr(calls, "Block", fail)
    with pytest.raises(MemoryError, match="no scratch"):
        ozaki.matmul(rng.standard_normal((2000, 20)), rng.standard_normal((20, 1000)), **RESIDUES)


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), KeyboardInterrupt()], ids=str)
def test_threads_that_do_not_start(code, rng, monkeypatch, error):
    """Without more threads the caller's does it all; an interrupt is raised once those that have begun have ended."""
    monkeypatch.setattr(sharing, "threads", lambda: 4)
    monkeypatch.setattr(sharing, "LEAST", 1.0)
    begun = []

    class Rarely(threading.Thread):
        def start(self):
            if begun:
                raise error
            begun.append(self)
            super().start()

    monkeypatch.setattr(sharing, "Thread", Rarely)
    a, b = rng.standard_normal((400, 50)), rng.standard_normal((50, 500))
    if isinstance(error, RuntimeError):
        assert same_bits(ozaki.matmul(a, b, **RESIDUES), by_blas(a, b, **RESIDUES))
    else:
        with pytest.raises(KeyboardInterrupt):
            ozaki.matmul(a, b, **RESIDUES)
    assert begun


@pytest.mark.parametrize("n", [127, 129, 300])
def test_half_of_a_complex_product_is_computed(code, rng, n):
    """And mirrored: the product of a matrix and its transpose, conjugate or not, in stacks."""
    a = rng.standard_normal((2, n, 90)) * 2.0 ** rng.integers(-40, 40, (2, n, 1))
    z, options = a + 1j * rng.standard_normal(a.shape), {"scheme": "residues", "slices": 15}
    for turn in (np.asarray, np.conj):
        turned = turn(z).swapaxes(1, 2)
        assert same_bits(ozaki.matmul(z, turned, **options), by_blas(z, turned.copy(), **options))
    hermitian = ozaki.gemm(1.0, z[0], z[0], 0.0, None, trans_b="C", **options)
    assert same_bits(hermitian, by_blas(z[0], z[0].conj().T.copy(), **options))


@pytest.mark.parametrize("parts", [1, 2], ids=["real", "complex"])
def test_what_a_triangle_leaves_out_is_not_computed(code, rng, parts):
    x = rng.standard_normal((1, 300, 40 * parts)).view("float64" if parts == 1 else "complex128")
    tables = tables_of(first_moduli(14)) if parts == 1 else complex_tables_of(complex_moduli(15))
    mu, out = np.full((1, 300), 40), np.zeros((1, 300, 300), x.dtype)
    left, right = (calls.split(code.library, x, mu, side, tables) for side in ("left", "right"))
    calls.multiply_rounded(code.library, left, right, tables, mu, mu, out, triangle=True)
    ends = np.minimum(np.arange(300) // TRIANGLE * TRIANGLE + TRIANGLE, 300)
    assert ((out[0] != 0) == (np.arange(300) < ends[:, None])).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_multiplies(code, rng, monkeypatch):
    monkeypatch.setattr(sharing, "threads", lambda: 2)
    monkeypatch.setattr(sharing, "LEAST", 1.0)
    a, b = rng.standard_normal((2, 100, 100))
    expected = ozaki.matmul(a, b, **RESIDUES)
    assert in_child(lambda: same_bits(ozaki.matmul(a, b, **RESIDUES), expected))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="sets the environment by glibc")
def test_another_library_may_flush_subnormals(code, rng):
    """Threads of the library, and the caller's, compute in the default environment, and leave it as they found it."""
    a, b = rng.standard_normal((60, 60)) * 2.0**-1060, rng.standard_normal((60, 60))
    expected = ozaki.matmul(a, b, **RESIDUES)
    libm = ctypes.CDLL(None)
    found = ctypes.create_string_buffer(256)
    libm.fegetenv(found)
    changed = bytearray(found.raw)
    changed[28:32] = (int.from_bytes(changed[28:32], "little") | 0x8040).to_bytes(4, "little")  # MXCSR: FTZ, DAZ
    try:
        libm.fesetenv(bytes(changed))
        c = ozaki.matmul(a, b, **RESIDUES)
    finally:
        libm.fesetenv(found)
    assert same_bits(c, expected)


def test_a_library_with_a_wrong_product_is_refused(code, monkeypatch):
    multiply = calls.multiply
    assert self_test(code.library) is None

    def wrong(*given):
        products = multiply(*given)
        products[-1, 0, -1, -1] ^= 1
        return products

    monkeypatch.setattr(calls, "multiply", wrong)
    assert self_test(code.library) == "multiplies wrongly on this processor"


@pytest.mark.full
def test_fuzz(code, rng):
    """Any shapes, strides and spreads."""
    for _ in range(150):
        m, k, n = (int(size) for size in rng.integers(1, rng.choice([4, 20, 150]), 3))
        spread, dtype = int(rng.choice([0, 5, 60])), rng.choice(["float32", "float64"])
        a, b = (
            (rng.standard_normal(size) * np.exp2(rng.integers(-spread, spread + 1, size))).astype(dtype)
            for size in ((m, k), (k, n))
        )
        options = {"scheme": "residues", "slices": int(rng.integers(3, 17))}
        left, right = (list(layouts(x))[rng.integers(5)] for x in (a, b))
        assert same_bits(ozaki.matmul(left, right, **options), by_blas(a, b, **options)), (m, k, n, options)
