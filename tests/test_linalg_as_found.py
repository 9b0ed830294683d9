"""Systems solved by the array library alone: the backward errors that are proven are at least the exact ones."""

import inspect
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from exact_linalg import fractions

import ozaki
from ozaki import linalg
from ozaki.linalg.systems import as_found

RNG = np.random.default_rng(8)


def hilbert(n):
    return 1 / (1 + np.add.outer(np.arange(float(n)), np.arange(float(n))))


SPARSE = np.diag([1.0, 2.0, 3.0, 4.0]) + np.diag([0.0, 5.0, 0.0], 1)

CASES = {
    "one": (np.array([[3.0]]), np.array([1.0])),
    "random": (RNG.standard_normal((30, 30)), RNG.standard_normal((30, 2))),
    "hilbert": (hilbert(9), np.ones(9)),
    "rows": (RNG.standard_normal((6, 6)) * 10.0 ** RNG.integers(-290, 290, (6, 1)), RNG.standard_normal((6, 3))),
    "columns": (RNG.standard_normal((6, 6)) * 10.0 ** RNG.integers(-90, 290, 6), RNG.standard_normal((6, 1))),
    "both": (
        RNG.standard_normal((5, 5)) * np.outer(10.0 ** RNG.integers(-60, 60, 5), 10.0 ** RNG.integers(-60, 60, 5)),
        RNG.standard_normal(5) * 10.0 ** RNG.integers(-60, 60, 5),
    ),
    "subnormal": (np.tril(np.full((3, 3), 5e-324)) + np.diag([1e-322, 5e-320, 3e-310]), np.full(3, 4e-324)),
    "huge": (np.full((3, 3), 1.7e308) * np.array([[1, 0.5, 0], [0.3, 1, -1], [-1, 1, 0.1]]), np.full(3, 1.1e308)),
    "sparse": (SPARSE, np.array([[1.0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 1e-300, 0]])),
    "zeros": (SPARSE, np.zeros((4, 2))),
    "far": (np.array([[1.0, 1e-200], [1e-200, 1e-250]]), np.array([1.0, 1e-150])),
    "spread solution": (np.diag([1.0, 2.0**60, 2.0**-60]) @ np.array([[2.0, 1, 1], [1, 3, 1], [1, 1, 4]]), [1.0, 3, 2]),
    "growth": (np.eye(40) - np.tril(np.ones((40, 40)), -1) + np.eye(1, 40, 39), RNG.standard_normal(40)),
    "complex": (RNG.standard_normal((4, 4)) + 1j * RNG.standard_normal((4, 4)), RNG.standard_normal((4, 2))),
    "complex sides": (RNG.standard_normal((3, 3)), 1j * RNG.standard_normal(3)),
}


def square(x):
    """The squared moduli of numbers, as fractions."""
    return fractions(np.real(x)) ** 2 + fractions(np.imag(x)) ** 2


def sums_of_moduli(a, x, b):
    """Lower bounds of abs(a) abs(x) + abs(b), exact ones of real numbers."""
    if not any(map(np.iscomplexobj, (a, x, b))):
        return fractions(abs(a)) @ fractions(abs(x)) + fractions(abs(b))
    return (fractions(abs(a)) @ fractions(abs(x)) + fractions(abs(b))) * (1 - Fraction(1, 2**48))


def check(a, x, b, bounds):
    """Assert that the backward error of each column is at most its bound, and not far below."""
    a, x, b = np.asarray(a), np.asarray(x), np.asarray(b)
    x, b = (each.reshape(len(a), -1).astype(np.result_type(each, np.float64)) for each in (x, b))
    a_re, a_im, x_re, x_im = (fractions(f(each)) for each in (a, x) for f in (np.real, np.imag))
    real = fractions(b.real) - a_re @ x_re + a_im @ x_im
    imag = fractions(b.imag) - a_re @ x_im - a_im @ x_re
    sizes, squares = sums_of_moduli(a, x, b), real**2 + imag**2
    assert bounds.shape == (x.shape[1],)
    for j, bound in enumerate(map(Fraction, bounds.tolist())):
        for i in range(len(a)):
            assert squares[i, j] <= (bound * sizes[i, j]) ** 2, (i, j)
    return sizes, squares


@pytest.mark.parametrize("by_slices", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_backward_errors_hold(name, by_slices, monkeypatch):
    a, b = CASES[name]
    if not by_slices:
        monkeypatch.setattr(as_found, "at_once", lambda *_: False)
    found = linalg.solve(a, b, accuracy=None)
    assert found.x.shape == np.shape(b) and found.iterations == 0
    assert found.error_bound == np.inf and (found.error_bounds == np.inf).all()
    check(a, found.x, b, found.backward_errors)
    usual = {"growth": 1e-3}.get(name, 1e-14)
    assert (found.backward_errors <= usual).all()
    assert name != "zeros" or not found.backward_errors.any()


@pytest.mark.parametrize("name", ["one", "random", "hilbert", "sparse", "complex", "huge"])
def test_bits_are_those_of_numpy(name):
    a, b = CASES[name]
    sides = np.asarray(b)
    wanted = np.linalg.solve(a, sides if sides.ndim > 1 else sides[:, None]).reshape(sides.shape)
    assert name == "huge" or (linalg.solve(a, b, accuracy=None).x == wanted).all()


def test_bounds_are_as_small_as_the_backward_errors():
    for name in ("random", "hilbert", "spread solution", "growth", "rows", "both", "far"):
        a, b = CASES[name]
        found = linalg.solve(a, b, accuracy=None)
        sizes, squares = check(a, found.x, b, found.backward_errors)
        exact = [max(map(float, column)) ** 0.5 for column in (squares / sizes**2).T]
        assert (found.backward_errors <= np.maximum(2.1 * np.array(exact), 2.0**-53)).all(), name


def test_stacks():
    a, b = RNG.standard_normal((2, 3, 4, 4)), RNG.standard_normal((3, 4, 2))
    a[0, 1] = SPARSE * 1e-250
    found = linalg.solve(a, b, accuracy=None)
    assert (
        found.x.shape == (2, 3, 4, 2) and found.backward_errors.shape == (2, 3, 2) and found.error_bound.shape == (2, 3)
    )
    for i, j in product(range(2), range(3)):
        check(a[i, j], found.x[i, j], b[j], found.backward_errors[i, j])
    assert found.backward_errors.max() < 1e-14
    found = linalg.solve(a, np.ones(4), accuracy=None)
    assert found.x.shape == (2, 3, 4) and found.backward_errors.shape == (2, 3, 1)
    for shape in ((0, 3, 3), (2, 0, 0), (0, 0)):
        found = linalg.solve(np.zeros(shape), np.zeros((*shape[:-1], 2)), accuracy=None)
        assert found.x.shape == (*shape[:-1], 2) and found.backward_errors.shape == (*shape[:-2], 2)


def test_what_float64_finds_singular():
    with pytest.raises(np.linalg.LinAlgError, match=r"^a: singular, as far as float64 tells; ask for an accuracy$"):
        linalg.solve(np.ones((3, 3)), np.ones(3), accuracy=None)
    stack = np.array([np.eye(2), np.ones((2, 2)), np.zeros((2, 2))])
    with pytest.raises(np.linalg.LinAlgError, match=r"ask for an accuracy \(matrix \[1\] of the stack\)$"):
        linalg.solve(stack, np.ones(2), accuracy=None)
    near = np.array([[1.0, 1.0], [1.0, 1 + 2.0**-52]])
    found = linalg.solve(near, np.array([1.0, 2.0]), accuracy=None)
    check(near, found.x, np.array([1.0, 2.0]), found.backward_errors)
    with pytest.raises(OverflowError, match=r"^dtype: an element of the result is too large for float64"):
        linalg.solve(np.eye(2) * 1e-300, np.full(2, 1e300), accuracy=None)
    with pytest.raises(OverflowError, match=r"^dtype: elements of the result are too small for float64"):
        linalg.solve(np.eye(2) * 1e300, np.array([[1.0, 1e-300], [0.0, 0.0]]), accuracy=None)
    assert not linalg.solve(np.eye(2) * 1e300, np.zeros((2, 3)), accuracy=None).x.any()


def test_results_of_other_formats():
    a, b = RNG.standard_normal((7, 7)), RNG.standard_normal(7)
    single = linalg.solve(a, b, accuracy=None, dtype="float32")
    check(a, single.x, b, single.backward_errors)
    assert single.x.dtype == np.float32 and 1e-9 < single.backward_errors[0] < 2.0**-23
    single = linalg.solve(a.astype(np.float32), b.astype(np.float32), accuracy=None)
    assert single.x.dtype == np.float32
    for given, options in ((ozaki.mparray(a), {}), (a, {"dtype": "mp60"})):
        found, wanted = (linalg.solve(given, b, accuracy=each, **options) for each in (None, "dtype"))
        assert type(found) is linalg.Solution and (found.x == wanted.x).all() and found.error_bound < 2.0**-52
    nearest = linalg.solve(a, b, accuracy=None, reproducible=True)
    assert nearest.error_bound <= 2.0**-52
    triangle = linalg.solve(a, b, accuracy=None, assume_a="upper triangular", transposed=True)
    check(np.triu(a).T, triangle.x, b, triangle.backward_errors)


def test_the_default_is_as_many_bits_as_the_dtype_has():
    a, b = RNG.standard_normal((5, 5)), RNG.standard_normal(5)
    assert linalg.solve(a, b).error_bound == linalg.solve(a, b, accuracy="dtype").error_bound <= 2.0**-52
    with pytest.raises(ValueError, match=r"^accuracy: 'dtypes'"):
        linalg.solve(a, b, accuracy="dtypes")


def of_results():
    """The functions with an accuracy of their result, not of a product."""
    for name in linalg.__all__:
        function = getattr(linalg, name)
        known = () if isinstance(function, type) else inspect.signature(function).parameters
        if "accuracy" in known and "alpha" not in known:
            yield name


@pytest.mark.parametrize("name", [*of_results()])
def test_every_function_takes_the_name_of_its_default(name):
    function = getattr(linalg, name)
    a, b = np.array([[4.0, 1.0], [1.0, 3.0]]), np.ones(2)
    operands = {"lu_solve": (linalg.lu_factor(a), b), "cho_solve": (linalg.cholesky(a), b), "solve": (a, b)}
    given = operands.get(name, (a, b) if name in ("lstsq", "solve_triangular") else (a,))
    assert repr(function(*given, accuracy="dtype")) == repr(function(*given))
    if name not in ("solve", "lu_factor", "cholesky"):
        assert repr(function(*given, accuracy=None)) == repr(function(*given))


def test_it_is_recorded_by_its_backward_error():
    with ozaki.recording() as run:
        found = linalg.solve(*CASES["random"], accuracy=None)
    (entry,) = run.results.entries
    assert entry.operator == "solve" and entry.bound == found.backward_errors.max()


def test_other_libraries():
    torch = pytest.importorskip("torch")
    a, b = RNG.standard_normal((5, 5)), RNG.standard_normal((5, 2))
    found = linalg.solve(torch.as_tensor(a), torch.as_tensor(b), accuracy=None)
    assert isinstance(found.x, torch.Tensor) and type(found.backward_errors) is np.ndarray
    check(a, found.x.numpy(), b, found.backward_errors)
