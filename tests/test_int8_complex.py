"""Complex products by compiled code for the processor's int8 units have the bits of those by float64 BLAS."""

import itertools

import numpy as np
import pytest
from cases import assert_no_more_is_held, by_blas, layouts, same_bits

import ozaki
from ozaki.backends import as_computed
from ozaki.backends.numpy import _describe, _execute, backend
from ozaki.backends.numpy.compiled import calls, self_test, sharing
from ozaki.backends.numpy.engines import engine_of
from ozaki.records.memory import Memory
from ozaki.records.shapes import COMPLEX, REAL
from ozaki.schemes import ComplexResidues

RESIDUES = {"scheme": "residues", "slices": 15}


def made(rng, *shape, dtype="complex128", spread=0):
    """Complex numbers whose parts are up to 2**(2 spread) apart."""

    def part():
        return rng.standard_normal(shape) * np.exp2(rng.integers(-spread, spread + 1, shape))

    return (part() + 1j * part()).astype(dtype)


def of_parts(real, imaginary):
    """Complex numbers of these parts, which arithmetic of NaN and Inf would change."""
    z = np.empty(np.broadcast_shapes(real.shape, imaginary.shape), np.complex128)
    z.real, z.imag = real, imaginary
    return z


def complex_layouts(x):
    """Those of `layouts`, and one in which parts, but not elements, lie at multiples of their size."""
    yield from layouts(x)
    size = x.real.itemsize
    apart = np.zeros(x.shape, np.dtype({"names": ["x"], "formats": [x.dtype], "offsets": [size], "itemsize": 3 * size}))
    apart["x"] = x
    yield apart["x"]


def test_it_is_what_runs(code, rng):
    a, b = made(rng, 70, 70), made(rng, 70, 70)
    for engine in ("auto", "int8"):
        c, report = ozaki.matmul(a, b, engine=engine, return_report=True, **RESIDUES)
        assert report.engine == f"NumPy, int8 by {code}" and report.products == 30
        assert same_bits(c, by_blas(a, b, **RESIDUES))
    plan = ozaki.plan((70, 70), (70, 70), dtype="complex128", **RESIDUES).of_complex_slices
    assert "complex residues modulo 15 numbers, as int8" in backend.steps(plan)
    assert f" 30 products by {code}, exact" in backend.steps(plan)


@pytest.mark.parametrize("count", [17, 20, 45])
def test_wider_images_are_those_of_parts(code, rng, count):
    """Of more than 16 residues the code has the slices of real rows alone."""
    a, b = made(rng, 20, 30), made(rng, 30, 25)
    options = {"scheme": "residues", "slices": count}
    plan = ozaki.plan(a, b, **options)
    assert as_computed(plan, backend).parts == REAL
    for left in (a, ozaki.prepare(a, "left", plan)):
        for right in (b, ozaki.prepare(b, "right", plan)):
            c, report = ozaki.matmul(left, right, plan=plan, return_report=True)
            assert report.engine == f"NumPy, int8 by {code}"
            assert same_bits(c, by_blas(a, b, **options))
    of_expression = ozaki.gemm(0.5, a, b, 2.0, a[:, :25], **options)
    assert same_bits(of_expression, ozaki.gemm(0.5, a, b, 2.0, a[:, :25], engine="float64", **options))


def test_wider_images_of_scaled_rows_are_complex(code, rng):
    """Both parts of an element have one factor, so the rows are split as they are, by float64 BLAS."""
    a, b = made(rng, 20, 30) * np.exp2(rng.integers(-40, 40, 30)), made(rng, 30, 25)
    plan = ozaki.plan(a, b, scheme="residues", slices=20, inner_scaling=True)
    assert as_computed(plan, backend).parts == COMPLEX
    c, report = ozaki.matmul(a, b, plan=plan, return_report=True)
    assert report.engine == "NumPy, float64 BLAS"
    assert same_bits(c, by_blas(a, b, scheme="residues", slices=20, inner_scaling=True))


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (8, 16, 48), (9, 17, 49), (70, 131, 100), (300, 5, 500), (3, 20_000, 2)], ids=str
)
def test_bits_in_every_layout(code, rng, dtype, shape):
    m, k, n = shape
    a, b = (
        (made(rng, *size) * np.exp2(rng.integers(-20, 20, rows))).astype(dtype)
        for size, rows in (((m, k), (m, 1)), ((k, n), (1, n)))
    )
    options = {"scheme": "residues", "slices": 15 if dtype == "complex128" else 8}
    expected = by_blas(a, b, **options)
    pairs = zip(complex_layouts(a), complex_layouts(b), strict=True) if m * k * n < 10**7 else [(a, b)]
    for left, right in pairs:
        assert same_bits(ozaki.matmul(left, right, **options), expected)
    assert same_bits(ozaki.matmul(a.conj(), b.conj(), **options), expected.conj() + 0)


@pytest.mark.parametrize("count", [2, 3, 5, 6, 11, 12, 16, 17])
def test_all_numbers_of_limbs(code, rng, count):
    """One to three limbs are rounded by the library, four by NumPy; one kind of operand may be real."""
    for dtype, result in itertools.product(("complex64", "complex128"), repeat=2):
        a, b = made(rng, 40, 60, dtype=dtype), made(rng, 60, 70, dtype=dtype)
        options = {"scheme": "residues", "slices": count, "dtype": result}
        assert same_bits(ozaki.matmul(a, b, **options), by_blas(a, b, **options))
    assert same_bits(ozaki.matmul(a.real, b, **options), by_blas(a.real, b, **options))


def test_values_that_are_rare(code, rng):
    tiny, huge = 2.0**-1040, 2.0**1000

    def some(share, value):
        """Put a value into a share of the real parts, and of the imaginary ones."""

        def change(x):
            return of_parts(*(np.where(rng.random(x.shape) < share, value, part) for part in (x.real, x.imag)))

        return change

    for change in (
        lambda x: x * 0, lambda x: x * tiny, lambda x: x * huge, some(0.02, np.nan), some(0.02, -np.inf), some(0.9, 0),
        lambda x: of_parts(x.real, 0 * x.imag), lambda x: of_parts(-0.0 * x.real, x.imag * tiny),
        lambda x: of_parts(np.rint(4 * x.real) * 2.0**-1074, np.rint(x.imag) * 2.0**-1074),
        lambda x: x * np.exp2(rng.integers(-300, 300, x.shape).astype(float)),
    ):  # fmt: skip
        with np.errstate(all="ignore"):
            a, b = change(made(rng, 33, 50)), made(rng, 50, 60)
        for left, right in ((a, b), (b.T, a.T)):
            c, expected = (ozaki.matmul(left, right, engine=e, **RESIDUES).view(float) for e in ("int8", "float64"))
            assert np.array_equal(c, expected, equal_nan=True)
            assert (np.isnan(c) | (np.signbit(c) == np.signbit(expected))).all()


def test_ties_are_rounded_to_even(code):
    """Parts of entries in the middle of two floats, and next to it by one unit of the exact product."""
    ones = [2.0**52 + i for i in (1, 2, 3)]
    a = np.array([[one, 0.5, tiny] for one in ones for tiny in (0.0, 2.0**-50, -(2.0**-50))])
    b = np.array([[2.0], [1.0], [1.0]])
    options = {"scheme": "residues", "slices": 16}
    for x in (a + 0j, 1j * a, a + 1j * a[::-1]):
        c = ozaki.matmul(x, b + 0j, **options)
        assert same_bits(c, by_blas(x, b + 0j, **options)) and (c == ozaki.matmul(x, b, accuracy="exact")).all()


def test_stacks_and_expressions(code, rng):
    a, b = made(rng, 4, 1, 20, 30), made(rng, 3, 30, 10)
    assert same_bits(ozaki.matmul(a, b, **RESIDUES), by_blas(a, b, **RESIDUES))
    x, y = made(rng, 40, 40), made(rng, 40, 40)
    for terms in ((1.5, x, x, -0.25, y), (-2.0, x, y, 0.0, None), (0.7, x, y, 0.0, None)):
        assert same_bits(ozaki.gemm(*terms, **RESIDUES), ozaki.gemm(*terms, engine="float64", **RESIDUES))
    out = np.empty((40, 80), complex)[:, ::2]
    assert ozaki.matmul(x, y, out=out, **RESIDUES) is out and same_bits(out, by_blas(x, y, **RESIDUES))
    for shape in ((0, 5, 3), (4, 0, 3), (4, 5, 0)):
        m, k, n = shape
        left, right = made(rng, m, k), made(rng, k, n)
        assert same_bits(ozaki.matmul(left, right, **RESIDUES), by_blas(left, right, **RESIDUES))


@pytest.mark.parametrize("rows", [50, 2100])
def test_a_matrix_times_itself(code, rng, rows):
    """Its own transpose, and its conjugate transpose, whose diagonal is real; several panels, too."""
    a, options = made(rng, rows, 3), {"scheme": "residues", "slices": 15 if rows < 2048 else 5}
    for b in (a.T, a.conj().T):
        assert same_bits(ozaki.matmul(a, b, **options), by_blas(a, b, **options))
    h = ozaki.gemm(1.0, a, a, 0.0, None, trans_b="C", **options)
    assert same_bits(h, h.conj().T + 0) and not np.signbit(np.diag(h).imag).any()
    assert same_bits(h, ozaki.gemm(1.0, a, a, 0.0, None, trans_b="C", engine="float64", **options))


@pytest.mark.parametrize("k", [8192, 8193, 70_000])
def test_slabs(code, rng, k):
    """A long k is multiplied in parts, whose residues are added, and so are expressions."""
    a, b, c = made(rng, 3, k), made(rng, k, 5), made(rng, 3, 5)
    for count in (7, 15) if k < 10_000 else (7,):
        options = {"scheme": "residues", "slices": count}
        expected = by_blas(a, b, **options)
        assert same_bits(ozaki.matmul(a, b, **options), expected)
        assert same_bits(ozaki.matmul(a, b, workspace_limit=20_000_000, **options), expected)
        assert same_bits(*(ozaki.gemm(0.3, a, b, 1.0, c, engine=engine, **options) for engine in ("int8", "float64")))


def test_limits_change_nothing(code, rng):
    a, b = made(rng, 200, 400), made(rng, 400, 300)
    expected, whole = ozaki.matmul(a, b, return_report=True, **RESIDUES)
    for limit in (whole.workspace_bytes, whole.workspace_bytes // 2, whole.workspace_bytes // 5):
        c, report = ozaki.matmul(a, b, workspace_limit=limit, return_report=True, **RESIDUES)
        assert same_bits(c, expected) and report.workspace_bytes <= limit


@pytest.mark.parametrize(
    ("shape", "limit", "power"),
    [
        ((24, 8192, 48), 40_000_000, 0),
        ((24, 500, 2048), None, 0),
        ((16, 9000, 16), 20_000_000, 0),
        ((200, 40, 150), None, 450),  # extreme exponents, so that NumPy rounds
    ],
)
def test_no_more_is_held_than_the_report_says(code, rng, shape, limit, power):
    m, k, n = shape
    a, b, out = made(rng, m, k) * 2.0**power, made(rng, k, n) * 2.0 ** (-2 * power), np.empty((m, n), complex)
    for x in (a, next(itertools.islice(layouts(a), 4, None))):
        assert_no_more_is_held(x, b, out, limit, **RESIDUES)


def test_descriptions(code, rng):
    """Of all parts of a row together, in every layout that the library reads."""
    described = 0
    for dtype, k in itertools.product(("complex64", "complex128"), (1, 7, 300, 9000)):
        with np.errstate(all="ignore"):
            x = made(rng, 2, 37, k, spread=300)
            x[0, ::2] = made(rng, 1, k)
            x[0, :3], x[0, 3].imag, x[0, 4].real = 0, 0, 0
            x[1, 5, ::3].imag, x[1, 6, 0], x[0, 4, -1] = np.nan, np.inf, 5e-324j
            x[0, 10] = np.rint(x[0, 10].real) + 1j * np.rint(x[0, 10].imag)
            x = x.astype(dtype)
            expected = np.zeros((len(_describe.FIELDS), 2, 37), np.int64)
            _describe._describe_tile(_describe._parts(x), expected)
        for rows in complex_layouts(x):
            if calls.can_describe(rows):
                fields = np.empty_like(expected)
                calls.describe(code.library, rows, fields)
                assert (fields == expected).all()
                described += 1
    assert described >= 16


@pytest.mark.parametrize("count", [1, 3])
def test_threads_change_nothing(code, rng, monkeypatch, count):
    monkeypatch.setattr(sharing, "threads", lambda: count)
    monkeypatch.setattr(sharing, "LEAST", 1.0)
    a, b = made(rng, 200, 300), made(rng, 300, 500)
    for left in (a, np.asfortranarray(a)):
        assert same_bits(ozaki.matmul(left, b, **RESIDUES), by_blas(a, b, **RESIDUES))


def test_the_real_product_of_parts(code, rng):
    """Complex residues of real rows, which the same moduli multiply four times in place of twice."""
    a, b = made(rng, 30, 40), made(rng, 40, 20)
    rows = a.view(float), np.stack([b.T.real, -b.T.imag], axis=-1).reshape(20, 80)
    scheme, c = ComplexResidues(15), np.empty((1, 30, 20))
    assert engine_of(scheme, 80, "auto").label == f"int8 by {code}"
    left, right = (_describe.describe(x[None]) for x in rows)
    _execute.execute(scheme, "auto", left, right, c, Memory(None))
    assert same_bits(c[0], by_blas(a, b, **RESIDUES).real)


def test_a_library_with_a_wrong_complex_product_is_refused(code, monkeypatch):
    multiply = calls.multiply

    def wrong(library, left, right, tables):
        products = multiply(library, left, right, tables)
        if tables.parts == 2:
            products[-1, 0, -1, -1] ^= 1
        return products

    monkeypatch.setattr(calls, "multiply", wrong)
    assert self_test.self_test(code.library) == "multiplies complex numbers wrongly on this processor"


@pytest.mark.parametrize("turn", range(5))
def test_any_shapes_strides_and_spreads(code, rng, turn):
    for _ in range(10):
        m, k, n = (int(size) for size in rng.integers(1, rng.choice([4, 20, 100]), 3))
        spread, dtype = int(rng.choice([0, 5, 60])), rng.choice(["complex64", "complex128"])
        a, b = (made(rng, *size, dtype=dtype, spread=spread) for size in ((m, k), (k, n)))
        options = {"scheme": "residues", "slices": int(rng.integers(3, 18))}
        left, right = (list(complex_layouts(x))[rng.integers(6)] for x in (a, b))
        assert same_bits(ozaki.matmul(left, right, **options), by_blas(a, b, **options)), (m, k, n, options)
