"""Operands that compiled code has split once: panels of which it multiplies parts, with the bits of float64 BLAS."""

import gc
import itertools

import numpy as np
import pytest
from cases import held_by, layouts, same_bits

import ozaki
from ozaki.backends.numpy._execute import Slices
from ozaki.backends.numpy.compiled import calls, sharing
from ozaki.backends.numpy.compiled.memory import SPARE, Block
from ozaki.backends.numpy.compiled.panels import Panels
from ozaki.backends.numpy.compiled.tables import tables_of
from ozaki.records.plan import Plan
from ozaki.schemes.moduli import first_moduli

RESIDUES = {"scheme": "residues", "slices": 14}
WAYS = {
    "float64": RESIDUES,
    "float32": {"scheme": "residues", "slices": 7},
    "complex128": {"scheme": "residues", "slices": 15},
    "complex64": {"scheme": "residues", "slices": 8},
    "wide": {"scheme": "residues", "slices": 20},
    "wider": {"scheme": "residues", "slices": 60},
    "mp": {"accuracy": 106},
    "complex mp": {"accuracy": 106},
    "mp of two digits": {"accuracy": 330},
}
"""Kinds of operands, and how they are multiplied: by each engine of int8 units, and by NumPy's rounding."""


def made(rng, kind, *shape):
    """An operand of such a kind."""
    x = rng.standard_normal(shape) * np.exp2(rng.integers(-9, 9, (*shape[:-1], 1)))
    if "complex" in kind:
        x = x + 1j * rng.standard_normal(shape)
    if "mp" in kind.split():
        return ozaki.mparray((x, x * 1e-17), 120)
    return x.astype(kind) if kind in ("float32", "complex64") else x


def same(x, y):
    """Whether two results, of floats or of numbers of many bits, have the same bits."""
    if isinstance(x, ozaki.MPArray):
        planes = zip((x.signs, x.exponents, x.limbs), (y.signs, y.exponents, y.limbs), strict=True)
        return x.bits == y.bits and all(same_bits(*both) for both in planes)
    return same_bits(x, y)


def split(a, b, plan):
    """Both operands split."""
    return ozaki.prepare(a, "left", plan), ozaki.prepare(b, "right", plan)


def planned(a, b, limit=None, **options):
    """A plan for both operands, of floats for their shapes: so that no limit is of what describing them takes."""
    if isinstance(a, ozaki.MPArray) or a.dtype != b.dtype:
        return ozaki.plan(a, b, workspace_limit=limit, **options)
    return ozaki.plan(a.shape, b.shape, dtype=str(a.dtype), workspace_limit=limit, **options)


def check(code, a, b, multiply=ozaki.matmul, limit=None, **options):
    """Compare the products with one operand prepared, the other, and both."""
    plan = planned(a, b, limit, **options)
    left, right = split(a, b, plan)
    expected = multiply(a, b, plan=ozaki.plan(a, b, engine="float64", **options))
    for x, y in ((left, b), (a, right), (left, right)):
        c, report = multiply(x, y, plan=plan, return_report=True)
        assert same(c, expected)
        assert report.engine == f"NumPy, int8 by {code}"
        assert limit is None or report.workspace_bytes <= limit


@pytest.mark.parametrize("kind", WAYS)
@pytest.mark.parametrize("shape", [(1, 1, 1), (9, 17, 49), (70, 131, 100)], ids=str)
def test_bits_of_all_engines(code, rng, kind, shape):
    m, k, n = shape
    check(code, made(rng, kind, m, k), made(rng, kind, k, n), **WAYS[kind])


@pytest.mark.parametrize("kind", WAYS)
def test_a_long_k(code, rng, kind):
    """Both operands prepared are multiplied at once, one of them slab by slab."""
    check(code, made(rng, kind, 9, 17_003), made(rng, kind, 17_003, 5), **WAYS[kind])


@pytest.mark.parametrize("kind", WAYS)
def test_stacks(code, rng, kind):
    for left, right in (((3,), (3,)), ((3,), ()), ((), (3,)), ((2, 1), (3,))):
        check(code, made(rng, kind, *left, 10, 30), made(rng, kind, *right, 30, 60), **WAYS[kind])


@pytest.mark.parametrize("kind", ["float64", "complex128", "mp"])
def test_panels_of_the_result_begin_with_panels_of_slices(code, rng, kind):
    """2048 rows or columns of the result are no whole panels of 48, and a limit takes fewer."""
    for m, n in ((3, 2300), (2300, 3)):
        a, b = made(rng, kind, m, 5), made(rng, kind, 5, n)
        check(code, a, b, **WAYS[kind])
    a, b = made(rng, kind, 400, 600), made(rng, kind, 600, 500)
    for part in (0.8, 0.6):
        check(code, a, b, limit=int(part * held_alone(a, b, kind)), **WAYS[kind])


def held_alone(a, b, kind):
    """What a product of operands that are not prepared holds."""
    plan = planned(a, b, **WAYS[kind])
    return ozaki.matmul(a, b, plan=plan, return_report=True)[1].workspace_bytes


@pytest.mark.parametrize("kind", ["float64", "complex128", "mp"])
def test_a_limit_shortens_slabs(code, rng, kind):
    """Whose borders are those of words of slices that are there."""
    a, b = made(rng, kind, 3, 3001), made(rng, kind, 3001, 2)
    check(code, a, b, limit=int(0.4 * held_alone(a, b, kind)), **WAYS[kind])


@pytest.mark.parametrize("kind", ["float64", "complex128", "mp"])
def test_expressions(code, rng, kind):
    for k in (30, 9000):
        a, b, c = made(rng, kind, 12, k), made(rng, kind, k, 50), made(rng, kind, 12, 50)

        def gemm(x, y, c=c, **options):
            return ozaki.gemm(0.3, x, y, 1.5, c, **options)

        check(code, a, b, gemm, **WAYS[kind])


def test_one_real_operand(code, rng):
    a, z = made(rng, "float64", 20, 30), made(rng, "complex128", 30, 40)
    check(code, a, z, **RESIDUES)
    check(code, z.T, a.T, **RESIDUES)


def test_no_elements(code):
    for m, k, n in ((0, 5, 3), (4, 0, 3), (4, 5, 0)):
        for dtype in ("float64", "complex128"):
            a, b = np.ones((m, k), dtype), np.ones((k, n), dtype)
            plan = ozaki.plan(a, b, **WAYS[dtype])
            for x, y in itertools.product(*zip((a, b), split(a, b, plan), strict=True)):
                assert same_bits(ozaki.matmul(x, y, plan=plan), np.zeros((m, n), dtype))


def test_layouts_and_what_is_not_finite(code, rng):
    a, b = made(rng, "float64", 20, 60), made(rng, "float64", 60, 50)
    a[3, 4], a[4, 5], b[6, 7] = np.nan, np.inf, -np.inf
    plan = ozaki.plan(a, b, **RESIDUES)
    expected = ozaki.matmul(a, b, engine="float64", **RESIDUES)
    for x, y in zip(layouts(a), layouts(b), strict=True):
        left, right = split(x, y, plan)
        for given in ((left, y), (x, right), (left, right)):
            assert np.array_equal(ozaki.matmul(*given, plan=plan), expected, equal_nan=True)


def test_extreme_exponents(code, rng):
    """Which NumPy rounds, or the library from limbs."""
    a, b = made(rng, "float64", 20, 30) * 2.0**-700, made(rng, "float64", 30, 40) * 2.0**-330
    check(code, a, b, **RESIDUES)
    check(code, a + 0j, b + 0j, **WAYS["complex128"])


def test_into_memory_of_any_layout(code, rng):
    a, b = made(rng, "float64", 30, 40), made(rng, "float64", 40, 50)
    plan = ozaki.plan(a, b, **RESIDUES)
    left, right = split(a, b, plan)
    expected = ozaki.matmul(a, b, engine="float64", **RESIDUES)
    for out in (np.empty((50, 30)).T, np.empty((30, 100))[:, ::2], np.empty((30, 50), "f8,i2")["f0"]):
        for x, y in ((left, b), (a, right), (left, right)):
            out[...] = np.nan
            assert ozaki.matmul(x, y, plan=plan, out=out) is out and same_bits(out, expected)


def test_threads_change_nothing(code, rng, monkeypatch):
    monkeypatch.setattr(sharing, "threads", lambda: 3)
    monkeypatch.setattr(sharing, "LEAST", 1.0)
    for kind in ("float64", "complex128", "mp"):
        check(code, made(rng, kind, 200, 90), made(rng, kind, 90, 300), **WAYS[kind])


def test_accuracies_are_promised_alike(code, rng):
    a, b = rng.standard_normal((2, 40, 40))
    options = {"accuracy": "fp64", "reproducible": True}
    plan = ozaki.plan(a, b, **options)
    left, right = split(a, b, plan)
    expected, plain = ozaki.matmul(a, b, plan=plan, return_report=True)
    for given in ((left, b), (a, right), (left, right)):
        c, report = ozaki.matmul(*given, plan=plan, return_report=True)
        assert same_bits(c, expected) and report.bound == plain.bound


@pytest.mark.parametrize("kind", ["float64", "complex128", "mp"])
@pytest.mark.parametrize("shape", [(300, 400, 500), (16, 9000, 16)], ids=str)
def test_no_more_is_held_than_the_report_says(code, rng, kind, shape):
    m, k, n = shape
    a, b = made(rng, kind, m, k), made(rng, kind, k, n)
    whole = held_alone(a, b, kind)
    for limit in (None, 4 * whole // 5):
        plan = planned(a, b, limit, **WAYS[kind])
        left, right = split(a, b, plan)
        for x, y in ((left, b), (a, right), (left, right)):
            (c, report), held = held_by(lambda x=x, y=y, plan=plan: ozaki.matmul(x, y, plan=plan, return_report=True))
            result = c.nbytes if isinstance(c, np.ndarray) else c.signs.nbytes + c.exponents.nbytes + c.limbs.nbytes
            assert held - result <= report.workspace_bytes + 400_000  # what imports and caches take
            assert report.workspace_bytes <= (limit or whole)


def test_both_prepared_take_little_memory(code, rng):
    """Their slices are there already, however long k is."""
    a, b = made(rng, "float64", 50, 60_000), made(rng, "float64", 60_000, 50)
    plan = planned(a, b, 2**21, **RESIDUES)
    c, report = ozaki.matmul(*split(a, b, plan), plan=plan, return_report=True)
    assert report.workspace_bytes < 2**21 < 14 * a.size
    assert same_bits(c, ozaki.matmul(a, b, engine="float64", **RESIDUES))


def test_a_byte_is_held_for_each_residue(code, rng):
    x = rng.standard_normal((480, 512))
    plan = ozaki.plan(x, x.T, **RESIDUES)
    panels = [each.slices.planes for each in split(x, x.T, plan)]
    assert all(isinstance(each, Panels) and each.memory.nbytes == 14 * x.size for each in panels)


def test_they_have_memory_of_their_own(code, rng):
    """None that was spare and is much larger; and it is freed with them."""
    SPARE.clear()
    del Block((2**24,)).array  # now spare
    x = rng.standard_normal((100, 100))
    plan = ozaki.plan(x, x, **RESIDUES)
    prepared = ozaki.prepare(x, "left", plan)
    memory = prepared.slices.planes.memory
    while isinstance(memory.base, np.ndarray):
        memory = memory.base
    assert memory.nbytes < 2 * 14 * 104 * 112
    c = ozaki.matmul(prepared, x, plan=plan)
    del prepared, memory
    gc.collect()
    assert all(spare.nbytes != 14 * 104 * 112 + 64 for spare in SPARE._spare)
    assert same_bits(c, ozaki.matmul(x, x, engine="float64", **RESIDUES))


def test_slices_of_another_engine_are_taken_anew(code, rng, monkeypatch):
    """As after the environment has chosen another library."""
    a, b = rng.standard_normal((2, 30, 30))
    expected = ozaki.matmul(a, b, engine="float64", **RESIDUES)
    plan = ozaki.plan(a, b, **RESIDUES)
    compiled = split(a, b, plan)
    monkeypatch.setenv("OZAKI_CPU", "float64")
    ozaki.clear_caches()
    by_blas = split(a, b, plan)
    for left, right in ((compiled[0], b), (a, compiled[1]), compiled, (compiled[0], by_blas[1]), by_blas):
        c, report = ozaki.matmul(left, right, plan=plan, return_report=True)
        assert same_bits(c, expected) and report.engine == "NumPy, float64 BLAS"
    monkeypatch.setenv("OZAKI_CPU", code.name)
    ozaki.clear_caches()
    for left, right in (by_blas, (a, by_blas[1])):
        c, report = ozaki.matmul(left, right, plan=plan, return_report=True)
        assert same_bits(c, expected) and report.engine == f"NumPy, int8 by {code}"


def test_digits_are_held_as_their_engine_has_them(code, rng):
    a, b = rng.standard_normal((2, 30, 30))
    plan = ozaki.plan(a, b, scheme="digits", slices=7)
    assert isinstance(plan, Plan)
    left, right = split(a, b, plan)
    assert isinstance(left.slices, Slices)
    expected, report = ozaki.matmul(a, b, plan=plan, return_report=True)
    for given in ((left, b), (a, right), (left, right)):
        c, found = ozaki.matmul(*given, plan=plan, return_report=True)
        assert same_bits(c, expected) and found.engine == report.engine


@pytest.mark.parametrize("side", ["left", "right"])
def test_parts_of_panels(code, rng, side):
    """Are those of a part that is split by itself."""
    x, mu = rng.standard_normal((3, 200, 100)), rng.integers(30, 40, (3, 200))
    tables = tables_of(first_moduli(14))
    whole = calls.split(code.library, x, mu, side, tables)
    for b, rows, inner in ((slice(1, 3), slice(48, 200), slice(16, 100)), (slice(None), slice(96, 101), slice(32, 48))):
        part = whole[:, b, rows, inner]
        alone = calls.split(code.library, x[b, rows, inner], mu[b, rows], side, tables)
        other = calls.split(code.library, x[b, :7, inner], mu[b, :7], "right" if side == "left" else "left", tables)
        pairs = [(each, other) if side == "left" else (other, each) for each in (part, alone)]
        products = [calls.multiply(code.library, *pair, tables) for pair in pairs]
        assert (products[0] == products[1]).all()
    with pytest.raises(AssertionError):
        whole[:, :, slice(1, 48), :]


@pytest.mark.parametrize("shape", [(1, 0, 5), (0, 0, 5), (0, 4, 5), (3, 4, 0)], ids=str)
def test_empty_numbers(code, shape):
    m, k, n = shape
    a, b = ozaki.mparray(np.ones((m, k))), ozaki.mparray(np.ones((k, n)))
    for slices in (20, 60):
        plan = ozaki.plan(a, b, scheme="residues", slices=slices)
        left, right = ozaki.prepare(a, "left", plan), ozaki.prepare(b, "right", plan)
        for x, y in ((left, b), (a, right), (left, right)):
            assert (ozaki.matmul(x, y, plan=plan) == ozaki.matmul(a, b)).all()
