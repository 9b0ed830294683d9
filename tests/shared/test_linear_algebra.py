"""Linear algebra on every device: results lie there, and their bounds hold in exact rational numbers."""

from fractions import Fraction

import numpy as np
import pytest
from exact_linalg import complex_error, complex_product_error, complex_solve, holds_eigenvalues
from mparrays import back

import ozaki
from ozaki import Accuracy, MPArray, linalg, mparray

FORMATS = {"float64": {}, "complex128": {}, "100 bits": {"accuracy": 100, "dtype": "mp"}}
"""Formats of results, with the options that ask for them of float64 operands, or of complex ones."""


def matrix(rng, form, rows=4):
    """Random numbers, whose columns are far from dependent."""
    made = rng.standard_normal((rows, 4)) + 5 * np.eye(rows, 4)
    return made + 1j * rng.standard_normal(made.shape) if form == "complex128" else made


def hermitian(rng, form):
    """A positive definite matrix."""
    a = matrix(rng, form)
    return a + a.conj().T + 5 * np.eye(4)


def vector(rng, form, rows=4):
    return matrix(rng, form, rows)[:, :1]


def upper(x):
    """A matrix with zeros below the diagonal."""
    return x - mparray(np.tril(x.astype("complex128"), -1))


def adjoint(x):
    return x.conj().T


FUNCTIONS = {
    "solve": (
        lambda rng, form: (matrix(rng, form), vector(rng, form)),
        lambda bound, a, b, x: complex_error(x, *complex_solve(a, b)) <= bound,
    ),
    "inv": (
        lambda rng, form: (matrix(rng, form),),
        lambda bound, a, x: complex_error(x, *complex_solve(a, mparray(np.eye(4)))) <= bound,
    ),
    "lstsq": (
        lambda rng, form: (matrix(rng, form, 7), vector(rng, form, 7)),
        lambda bound, a, b, x: complex_error(x, *complex_solve(a, b)) <= bound,
    ),
    "solve_triangular": (
        lambda rng, form: (matrix(rng, form), vector(rng, form)),
        lambda bound, a, b, x: complex_error(x, *complex_solve(upper(a), b)) <= bound,
    ),
    "lu_factor": (
        lambda rng, form: (matrix(rng, form),),
        lambda bound, a, p, low, up: complex_product_error(a[p], low, up) <= bound,
    ),
    "cholesky": (
        lambda rng, form: (hermitian(rng, form),),
        lambda bound, a, low: complex_product_error(a, low, adjoint(low)) <= bound,
    ),
    "qr": (
        lambda rng, form: (matrix(rng, form, 6),),
        lambda bound, a, q, r: (
            complex_product_error(a, q, r, by_columns=True) <= bound
            and complex_product_error(mparray(np.eye(4)), adjoint(q), q) <= bound
        ),
    ),
    "lq": (
        lambda rng, form: (adjoint(matrix(rng, form, 6)),),
        lambda bound, a, low, q: (
            complex_product_error(adjoint(a), adjoint(q), adjoint(low), by_columns=True) <= bound
            and complex_product_error(mparray(np.eye(4)), q, adjoint(q)) <= bound
        ),
    ),
    "eigh": (
        lambda rng, form: (hermitian(rng, form),),
        lambda bound, a, values, vectors: holds_eigenvalues(a, values, bound),
    ),
}
"""Operands of each function, for a generator and a format; whether the bound holds of operands and results."""


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_lie_where_operands_do_and_bounds_hold(device, rng, name):
    operands_of, holds = FUNCTIONS[name]
    for form in device.some(FORMATS, 1, rng):
        operands = operands_of(rng, form)
        found = getattr(linalg, name)(*map(device.asarray, operands), **FORMATS[form])
        arrays = [x for x in found if isinstance(x, MPArray | device.xp.ndarray)]
        if name == "lq":
            assert isinstance(found.error_bounds, np.ndarray)
            arrays = arrays[:2]
        if name == "eigh":
            assert isinstance(arrays.pop() if device.xp is np else found.vector_bounds, np.ndarray)
        indices = arrays[:1] if name == "lu_factor" else []
        for x in arrays[len(indices) :]:
            assert isinstance(x, MPArray) == (form == "100 bits"), form
            assert isinstance(x.limbs if isinstance(x, MPArray) else x, device.xp.ndarray), form
        values = [mparray(back(device, x)) for x in arrays[len(indices) :]]
        exact = [mparray(x) for x in operands]
        assert holds(found.error_bound, *exact, *map(device.asnumpy, indices), *values), form
        assert found.error_bound < (2.0**-97 if form == "100 bits" else 1e-15), form


@pytest.mark.parametrize("name", ["solve", "cholesky", "qr"])
def test_matrices_without_a_result_are_refused(device, name):
    """Singular ones, ones that are not positive definite, ones with dependent columns."""
    a = device.asarray(np.array([[1.0, 2.0], [2.0, 4.0]]))
    with pytest.raises(np.linalg.LinAlgError):
        getattr(linalg, name)(*((a, device.full(2, 1)) if name == "solve" else (a,)))


@pytest.mark.parametrize("name", ["lu_factor", "cholesky"])
def test_factors_that_are_not_corrected(device, rng, name):
    operands_of, holds = FUNCTIONS[name]
    for form in ("float64", "complex128"):
        operands = operands_of(rng, form)
        found = getattr(linalg, name)(*map(device.asarray, operands), accuracy=None)
        arrays = [x for x in found if isinstance(x, device.xp.ndarray)]
        values = [mparray(back(device, x)) for x in arrays[name == "lu_factor" :]]
        indices = [device.asnumpy(x) for x in arrays[: name == "lu_factor"]]
        assert holds(found.error_bound, *map(mparray, operands), *indices, *values), form
        assert found.error_bound < 1e-14 and found.iterations == 0


def test_solutions_that_are_not_corrected(device, rng):
    for form in ("float64", "complex128"):
        imaginary = 1j if form == "complex128" else 0
        parts = rng.standard_normal((2, 2, 4, 7))
        a, b = np.split(parts[0] + imaginary * parts[1], [4], axis=-1)
        found = linalg.solve(device.asarray(a), device.asarray(b), accuracy=None)
        x = device.asnumpy(found.x)
        rests = mparray(b) - ozaki.matmul(mparray(a), mparray(x), accuracy="exact", dtype="mp")
        sizes = abs(a) @ abs(x) + abs(b)
        assert isinstance(found.x, device.xp.ndarray) and found.backward_errors.shape == (2, 3)
        errors = abs(rests.astype("complex128")) / sizes
        assert (errors.max(axis=-2) <= found.backward_errors * (1 + 2.0**-40)).all()
        assert found.backward_errors.max() < 2.0**-20


def test_many_systems_with_one_matrix(device, rng):
    a, b = matrix(rng, "float64"), vector(rng, "float64")
    factors = linalg.lu_factor(device.asarray(a))
    for trans in (0, 1):
        x, bound, _ = linalg.lu_solve(factors, device.asarray(b), trans)
        assert isinstance(x, device.xp.ndarray)
        exact = complex_solve(mparray(a.T if trans else a), mparray(b))
        assert complex_error(mparray(device.asnumpy(x)), *exact) <= bound < 1e-15


def test_solutions_with_a_factor(device, rng):
    a, b = hermitian(rng, "float64"), vector(rng, "float64")
    factor = linalg.cholesky(device.asarray(np.triu(a)), upper=True)
    exact = ozaki.matmul(np.tril(a), np.tril(a).T, accuracy="exact", dtype="mp")
    for c, of_c in ((factor, mparray(a)), ((device.asarray(np.tril(a)), True), exact)):
        x, bound, _ = linalg.cho_solve(c, device.asarray(b))
        assert isinstance(x, device.xp.ndarray)
        assert complex_error(mparray(device.asnumpy(x)), *complex_solve(of_c, mparray(b))) <= bound < 1e-15


def test_products_with_one_triangle(device, rng):
    a, b = (rng.integers(-9, 10, (5, 5)) * 1.0 for _ in range(2))
    low = np.tril(a)
    known = np.where(np.tri(5), a, np.nan)
    there = {"accuracy": "exact"}
    for found, wanted in (
        (linalg.trmm(1.0, device.asarray(known), device.asarray(b), lower=1, **there), low @ b),
        (linalg.symm(1.0, device.asarray(known), device.asarray(b), lower=1, **there), (low + np.tril(a, -1).T) @ b),
        (
            linalg.syrk(1.0, device.asarray(b), 2.0, device.asarray(known), lower=1, **there),
            b @ b.T + 2 * (low + np.tril(a, -1).T),
        ),
    ):
        assert (device.asnumpy(found) == wanted).all()


@pytest.mark.parametrize("name", ["det", "slogdet", "expm"])
def test_determinants_and_exponentials(device, rng, name):
    """Each beside what NumPy finds with more bits."""
    for form in device.some(FORMATS, 1, rng):
        a = rng.standard_normal((2, 14, 14)) + (1j * rng.standard_normal((2, 14, 14)) if form == "complex128" else 0)
        found = getattr(linalg, name)(device.asarray(a), **FORMATS[form])
        wanted = getattr(linalg, name)(a, accuracy=200, dtype="mp")
        arrays = found[:2] if name == "slogdet" else found[:1]
        assert found.error_bound.shape == (2,) and type(found.error_bound) is np.ndarray
        for x, exact in zip(arrays, wanted, strict=False):
            assert isinstance(x, MPArray) == (form == "100 bits"), form
            assert isinstance(x.limbs if isinstance(x, MPArray) else x, device.xp.ndarray), form
            missed = (mparray(back(device, x)) - exact).astype("complex128").reshape(2, -1)
            sizes = np.ones(2) if name == "slogdet" else abs(exact.astype("complex128").reshape(2, -1)).max(axis=1)
            assert (abs(missed).max(axis=1) <= found.error_bound * sizes * (1 + 2.0**-40) + 2.0**-190 * sizes).all()


def test_singular_values_of_columns_far_apart(device, rng):
    """Each relative to itself, beside what NumPy finds with more bits."""
    for form, complete in (("float64", True), ("complex128", False)):
        a = matrix(rng, form, 5) * 2.0 ** np.array([150, -150, 0, 75])
        found = linalg.svd(device.asarray(a), complete, accuracy=Accuracy("relative", 2.0**-53))
        wanted = linalg.svdvals(a, accuracy=Accuracy("relative", 2.0**-100), dtype="mp")
        arrays = found.u, found.s, found.vh
        assert all(isinstance(x, device.xp.ndarray) for x in arrays) and found.u.shape == (5, 5 if complete else 4)
        u, s, vh = map(device.asnumpy, arrays)
        exact = wanted.values.to_fractions()
        assert all(abs(Fraction(x) / y - 1) <= 2.0**-52 for x, y in zip(s.tolist(), exact, strict=True))
        assert found.error_bound < 2.0**-52 and found.vector_bounds.max() < 1e-14
        for x in (u, vh):
            assert abs(x.conj().T @ x - np.eye(len(x.T))).max() < 1e-14


def test_pseudoinverses(device, rng):
    for shape in ((4, 4), (6, 3)):
        a = rng.uniform(-1, 1, shape) + 5 * np.eye(*shape)
        x, bound, bounds, rank, _ = linalg.pinv(device.asarray(a))
        assert isinstance(x, device.xp.ndarray) and rank == shape[1] and bound == bounds.max() < 2.0**-52
        missed = mparray(device.asnumpy(x)) - linalg.pinv(a, accuracy=100, dtype="mp").x
        assert (abs(missed.astype("float64")).max(axis=0) <= bounds * abs(device.asnumpy(x)).max(axis=0) * 1.001).all()


_STACKED = {
    "eigh": hermitian,
    "eigvalsh": hermitian,
    "eigvals": matrix,
    "qr": matrix,
    "lq": matrix,
    "cholesky": hermitian,
    "lu_factor": matrix,
    "pinv": matrix,
    "cond": matrix,
    "matrix_rank": matrix,
}
"""Functions that take stacks, and what draws matrices for them."""

_AT_ONCE = ("cholesky", "lu_factor", "qr", "lq", "eigh", "eigvalsh", "pinv")
"""Of floats these find all results at once: bits may differ from those of single matrices, and phases of vectors."""


@pytest.mark.parametrize("name", _STACKED)
def test_stacks_of_matrices(device, rng, name):
    """Results lie where the stack does, and are those of each matrix there."""
    function = getattr(linalg, name)
    for form in device.some(FORMATS, 1, rng):
        options = {} if name == "matrix_rank" else FORMATS[form]
        a = np.stack([_STACKED[name](rng, form) for _ in range(2)])
        found = function(device.asarray(a), **options)
        assert type(found.error_bound) is np.ndarray and found.error_bound.shape == (2,)
        for i in range(2):
            alone = function(device.asarray(a[i]), **options)
            near = 1e-14 * (name in _AT_ONCE and "dtype" not in options)
            assert abs(found.error_bound[i] - alone.error_bound) <= near * 2.0**-5
            for x, y in zip(found, alone, strict=True):
                if isinstance(x, MPArray | device.xp.ndarray) and not isinstance(y, int | float):
                    assert type(x) is type(y) or not y.shape, form
                    x, y = back(device, x[i]), back(device, y)
                    assert (abs(abs(x) - abs(y)) <= near if near else x == y).all(), form


@pytest.mark.parametrize("name", ["eigvalsh", "svdvals", "pinv", "solve_triangular"])
def test_stacks_that_are_found_at_once(device, rng, name):
    """Results lie where the stack does, and agree with NumPy's within both bounds; one matrix is left to others."""
    a = np.asarray(rng.standard_normal((3, 5, 5))) + 3 * np.eye(5)
    a[1] = np.eye(5)
    a[2] = a[2] + a[2].T
    function = getattr(linalg, name)
    others = [rng.standard_normal((5, 2))] if name == "solve_triangular" else []
    found, wanted = function(device.asarray(a), *map(device.asarray, others)), function(a, *others)
    x, y = found[0], wanted[0]
    assert type(x) is device.xp.ndarray and type(found.error_bound) is np.ndarray
    sizes = abs(y).max(axis=tuple(range(1, y.ndim)))
    missed = abs(device.asnumpy(x) - y).max(axis=tuple(range(1, y.ndim)))
    assert (missed <= (found.error_bound + wanted.error_bound) * sizes * 1.01).all()
    assert found.error_bound.max() < 3e-16
