"""Products by compiled code for the processor's int8 units have the bits of those by float64 BLAS."""

import ctypes
import itertools
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from cases import held_by, layouts, same_bits
from children import in_child

import ozaki
from ozaki.backends.numpy import _describe, _execute, backend
from ozaki.backends.numpy.compiled import calls, sharing
from ozaki.backends.numpy.compiled.panels import TRIANGLE
from ozaki.backends.numpy.compiled.self_test import self_test
from ozaki.backends.numpy.compiled.tables import complex_tables_of, tables_of
from ozaki.schemes.moduli import complex_moduli, first_moduli

RESIDUES = {"scheme": "residues", "slices": 14}


def by_blas(a, b, **options):
    return ozaki.matmul(a, b, engine="float64", **options)


def test_it_is_what_runs(code, rng):
    a, b = rng.standard_normal((2, 70, 70))
    for engine in ("auto", "int8"):
        c, report = ozaki.matmul(a, b, engine=engine, return_report=True, **RESIDUES)
        assert report.engine == f"NumPy, int8 by {code}"
        assert same_bits(c, by_blas(a, b, **RESIDUES))
    assert "as int8" in backend.steps(ozaki.plan((70, 70), (70, 70), dtype="float64", **RESIDUES))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (8, 16, 48), (9, 17, 49), (70, 131, 100), (300, 5, 500), (3, 20_000, 2)], ids=str
)
def test_bits_in_every_layout(code, rng, dtype, shape):
    m, k, n = shape
    exponents = rng.integers(-20, 20, (m, 1)), rng.integers(-20, 20, (1, n))
    a, b = (
        np.ldexp(rng.standard_normal(size), powers).astype(dtype)
        for size, powers in zip(((m, k), (k, n)), exponents, strict=True)
    )
    count = 14 if dtype == "float64" else 7
    expected = by_blas(a, b, scheme="residues", slices=count)
    pairs = zip(layouts(a), layouts(b), strict=True) if m * k * n < 10**7 else [(a, b)]
    for left, right in pairs:
        assert same_bits(ozaki.matmul(left, right, scheme="residues", slices=count), expected)


@pytest.mark.parametrize("count", [2, 3, 5, 6, 10, 11, 15, 16])
def test_all_numbers_of_limbs(code, rng, count):
    """One to three limbs are rounded by the library, four by NumPy; a count that has no room for k is refused alike."""
    for dtype, result in itertools.product(("float32", "float64"), repeat=2):
        a, b = rng.standard_normal((40, 60)).astype(dtype), rng.standard_normal((60, 70)).astype(dtype)
        options = {"scheme": "residues", "slices": count, "dtype": result}
        assert same_bits(ozaki.matmul(a, b, **options), by_blas(a, b, **options))


def test_values_that_are_rare(code, rng):
    tiny, huge = 2.0**-1040, 2.0**1000

    def some(share, value):
        return lambda x: np.where(rng.random(x.shape) < share, value, x)

    for change in (
        lambda x: x * 0, lambda x: x * tiny, lambda x: x * huge, some(0.1, np.nan), some(0.1, -np.inf), some(0.9, 0),
        lambda x: np.rint(4 * x) * 2.0**-1074, lambda x: x * np.exp2(rng.integers(-300, 300, x.shape).astype(float)),
    ):  # fmt: skip
        with np.errstate(all="ignore"):
            a, b = change(rng.standard_normal((33, 50))), rng.standard_normal((50, 60))
        for left, right in ((a, b), (b.T, a.T)):
            c = ozaki.matmul(left, right, **RESIDUES)
            assert np.array_equal(c, by_blas(left, right, **RESIDUES), equal_nan=True)


def test_ties_are_rounded_to_even(code):
    """Entries in the middle of two floats, and next to it by one unit of the exact product."""
    ones = [2.0**52 + i for i in (1, 2, 3)]
    a = np.array([[one, 0.5, tiny] for one in ones for tiny in (0.0, 2.0**-50, -(2.0**-50))])
    b = np.array([[2.0], [1.0], [1.0]])
    options = {"scheme": "residues", "slices": 15}
    c = ozaki.matmul(a, b, **options)
    assert same_bits(c, by_blas(a, b, **options)) and (c == ozaki.matmul(a, b, accuracy="exact")).all()


def test_stacks_and_expressions(code, rng):
    a, b = rng.standard_normal((4, 1, 20, 30)), rng.standard_normal((3, 30, 10))
    assert same_bits(ozaki.matmul(a, b, **RESIDUES), by_blas(a, b, **RESIDUES))
    x = rng.standard_normal((40, 40))
    assert same_bits(ozaki.matmul(x, x.T, **RESIDUES), by_blas(x, x.T, **RESIDUES))
    terms = 1.5, x, x, -0.25, rng.standard_normal((40, 40))
    assert same_bits(ozaki.gemm(*terms, **RESIDUES), ozaki.gemm(*terms, engine="float64", **RESIDUES))
    out = np.empty((40, 80))[:, ::2]
    assert ozaki.matmul(x, x, out=out, **RESIDUES) is out and same_bits(out, by_blas(x, x, **RESIDUES))


def test_limits_change_nothing(code, rng):
    a, b = rng.standard_normal((500, 900)), rng.standard_normal((900, 700))
    expected, whole = ozaki.matmul(a, b, return_report=True, **RESIDUES)
    for limit in (whole.workspace_bytes, whole.workspace_bytes // 2, whole.workspace_bytes // 4):
        c, report = ozaki.matmul(a, b, workspace_limit=limit, return_report=True, **RESIDUES)
        assert same_bits(c, expected) and report.workspace_bytes <= limit


@pytest.mark.parametrize(
    ("shape", "limit"), [((64, 8192, 64), 14_000_000), ((24, 500, 4096), None), ((16, 9000, 16), 10_000_000)]
)
def test_no_more_is_held_than_the_report_says(code, rng, shape, limit):
    m, k, n = shape
    a, b, out = rng.standard_normal((m, k)), rng.standard_normal((k, n)), np.empty((m, n))
    for x in (a, next(itertools.islice(layouts(a), 4, None))):
        options = {"out": out, "workspace_limit": limit, "return_report": True, **RESIDUES}
        (_, report), held = held_by(lambda x=x, options=options: ozaki.matmul(x, b, **options))
        assert held <= report.workspace_bytes + 400_000  # what imports and caches take
        assert limit is None or report.workspace_bytes <= limit


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


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_threads_change_nothing(code, rng, monkeypatch, count):
    monkeypatch.setattr(sharing, "threads", lambda: count)
    monkeypatch.setattr(sharing, "LEAST", 1.0)
    a, b = rng.standard_normal((200, 300)), rng.standard_normal((300, 150))
    assert same_bits(ozaki.matmul(a, b, **RESIDUES), by_blas(a, b, **RESIDUES))
    with ThreadPoolExecutor(4) as pool:
        for c in pool.map(lambda _: ozaki.matmul(a, b, **RESIDUES), range(8)):
            assert same_bits(c, by_blas(a, b, **RESIDUES))


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
def test_half_of_a_symmetric_product_is_computed(code, rng, n):
    """And mirrored: the product of a matrix and its transpose, in stacks, and with what is not finite."""
    a = rng.standard_normal((2, n, 90)) * 2.0 ** rng.integers(-40, 40, (2, n, 1))
    z = a + 1j * rng.standard_normal(a.shape)
    for x in (a, a.astype(np.float32), a[..., ::-1], a.swapaxes(1, 2)):
        assert same_bits(ozaki.matmul(x, x.swapaxes(1, 2), **RESIDUES), by_blas(x, x.swapaxes(1, 2).copy(), **RESIDUES))
    for turn in (np.asarray, np.conj):
        turned = turn(z).swapaxes(1, 2)
        assert same_bits(
            ozaki.matmul(z, turned, scheme="residues", slices=15),
            by_blas(z, turned.copy(), scheme="residues", slices=15),
        )
    hermitian = ozaki.gemm(1.0, z[0], z[0], 0.0, None, trans_b="C", scheme="residues", slices=15)
    assert same_bits(hermitian, by_blas(z[0], z[0].conj().T.copy(), scheme="residues", slices=15))
    a[0, 5, 7], a[1, 126, 3] = np.nan, np.inf
    assert same_bits(ozaki.matmul(a, a.swapaxes(1, 2), **RESIDUES), by_blas(a, a.swapaxes(1, 2).copy(), **RESIDUES))


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


def test_a_limit_shortens_slabs(code, rng):
    """Panels are 48 rows wide: of long rows they are more than a limit may allow, in slabs of 8192."""
    for m, k, n, limit in ((1, 3000, 1, 300_000), (3, 3000, 2, 600_000)):
        a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
        c, report = ozaki.matmul(a, b, scheme="residues", slices=4, workspace_limit=limit, return_report=True)
        assert report.workspace_bytes <= limit and report.engine == f"NumPy, int8 by {code}"
        assert same_bits(c, by_blas(a, b, scheme="residues", slices=4))
