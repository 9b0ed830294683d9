"""Stacks of systems, bounds for each column and element, and residuals by slices, judged by exact rational numbers."""

import pickle
from fractions import Fraction

import numpy as np
import pytest
from exact_linalg import complex_error, complex_solve, exact_solve, fractions, parts, sqrt_of
from mpmath import matrix

import ozaki
from ozaki import Accuracy, linalg, mparray
from ozaki.linalg.common.slices import count_for, residual_by_slices
from ozaki.linalg.systems import solving
from ozaki.linalg.systems.stacks import Inverses

RELATIVE = Accuracy("relative", 2.0**-50)
RNG = np.random.default_rng(5)


def hilbert(n):
    return 1 / (1 + np.add.outer(np.arange(float(n)), np.arange(float(n))))


def conditioned(n, condition, seed=0):
    rng = np.random.default_rng(seed)
    left, right = (np.linalg.qr(rng.standard_normal((n, n)))[0] for _ in range(2))
    return left * np.geomspace(1, 1 / condition, n) @ right


STACKS = {
    "random": RNG.standard_normal((4, 6, 6)),
    "of all conditions": np.stack([conditioned(6, 2.0**power, power) for power in (0, 17, 24, 27, 31, 37, 60)]),
    "one is ill-conditioned": np.stack([np.eye(9), hilbert(9), RNG.standard_normal((9, 9))]),
    "graded": np.ldexp(RNG.standard_normal((3, 5, 5)), np.arange(5)[:, None] * 30 - np.arange(5) * 70),
    "huge and tiny": np.ldexp(RNG.standard_normal((5, 3, 3)), np.array([1000, -1000, 500, -340, -1050])[:, None, None]),
    "triangular": np.tril(RNG.integers(1, 9, (3, 7, 7)).astype(float)),
    "1 x 1": RNG.standard_normal((3, 1, 1)),
}


def holds(found, exact_x, accuracy):
    """Whether all bounds of the solutions of a stack hold, and are what the accuracy asks for or the dtype allows."""
    assert found.error_bound.shape == found.x.shape[:-2]
    for index in np.ndindex(found.error_bound.shape):
        exact, bounds = exact_x(index), found.error_bounds[index]
        missed = abs(fractions(found.x[index]) - exact)
        sizes = abs(exact)
        if accuracy is not RELATIVE:
            missed, sizes = missed.max(axis=0), sizes.max(axis=0)
        assert bounds.shape == missed.shape and found.error_bound[index] == bounds.max()
        for each, size, bound in zip(missed.flat, sizes.flat, bounds.flat, strict=True):
            assert each <= Fraction(bound) * size
    return True


@pytest.mark.parametrize("accuracy", ["fp64", 20, RELATIVE], ids=str)
@pytest.mark.parametrize("name", STACKS)
def test_each_bound_of_a_stack_of_systems_holds(name, accuracy):
    a = STACKS[name]
    b = np.ldexp(np.random.default_rng(1).standard_normal((*a.shape[:-1], 3)), [0, -300, 300])
    if name == "huge and tiny":
        b = b[..., :1] * abs(a).max(axis=-1, keepdims=True)  # other solutions are none that float64 holds
    found = linalg.solve(a, b, accuracy=accuracy)
    assert holds(found, lambda i: exact_solve(fractions(a[i]), fractions(b[i])), accuracy)
    assert found.error_bound.max() <= (2.0**-20 if accuracy == 20 else 2.0**-49 if accuracy is RELATIVE else 3e-16)


@pytest.mark.parametrize("accuracy", ["fp64", RELATIVE], ids=str)
@pytest.mark.parametrize("name", [name for name in STACKS if name != "huge and tiny"])
def test_each_bound_of_a_stack_of_inverses_holds(name, accuracy):
    a = STACKS[name]
    if accuracy is RELATIVE and name in ("triangular", "one is ill-conditioned"):
        with pytest.raises(
            ValueError, match=r"^accuracy: an element of the solution is zero.*\(matrix \[0\] of the st"
        ):
            linalg.inv(a, accuracy=accuracy)
        return
    found = linalg.inv(a, accuracy=accuracy)
    assert holds(found, lambda i: exact_solve(fractions(a[i]), fractions(np.eye(a.shape[-1]))), accuracy)
    assert found.error_bound.max() <= (2.0**-49 if accuracy is RELATIVE else 3e-16)


@pytest.mark.parametrize("accuracy", ["fp64", RELATIVE], ids=str)
@pytest.mark.parametrize("name", [name for name in STACKS if name != "huge and tiny"])
def test_each_bound_of_a_stack_of_least_squares_holds(name, accuracy):
    a = np.concatenate([STACKS[name], np.flip(STACKS[name], -2) + np.eye(STACKS[name].shape[-1])], axis=-2)
    b = np.random.default_rng(2).standard_normal((*a.shape[:-1], 2))
    found = linalg.lstsq(a, b, accuracy=accuracy)

    def exact(index):
        of_a, of_b = fractions(a[index]), fractions(b[index])
        return exact_solve(of_a.T @ of_a, of_a.T @ of_b)

    assert holds(found, exact, accuracy)
    assert found.error_bound.max() <= (2.0**-49 if accuracy is RELATIVE else 3e-16)


@pytest.mark.parametrize("function", ["solve", "inv", "lstsq"])
def test_stacks_of_complex_matrices(function, rng):
    a = rng.standard_normal((3, 5, 5)) + 1j * rng.standard_normal((3, 5, 5))
    b = rng.standard_normal((3, 5, 2))
    a[1] = hilbert(5) * (1 + 2j)
    calls = {"solve": (a, b), "inv": (a,), "lstsq": (np.concatenate([a, a.conj()], -2), np.concatenate([b, 2 * b], -2))}
    found = getattr(linalg, function)(*calls[function])
    of_a = calls[function][0]
    right = np.eye(5)[None].repeat(3, 0) if function == "inv" else calls[function][1]
    for i in range(3):
        exact = complex_solve(mparray(of_a[i]), mparray(right[i].astype(complex)))
        assert complex_error(mparray(found.x[i]), *exact) <= found.error_bound[i] <= 4e-16
        for j in range(right.shape[-1]):
            column = [each[:, j : j + 1] for each in exact]
            assert complex_error(mparray(found.x[i, :, j : j + 1]), *column) <= found.error_bounds[i, j]


# Shapes ---------------------------------------------------------------------------------------------------------------

SHAPES = {
    "a vector": ((4, 4), (4,), (4,)),
    "a vector for each": ((3, 4, 4), (4,), (3, 4)),
    "columns": ((4, 4), (4, 2), (4, 2)),
    "columns for each": ((3, 4, 4), (4, 2), (3, 4, 2)),
    "one matrix": ((4, 4), (3, 4, 2), (3, 4, 2)),
    "broadcast": ((3, 1, 4, 4), (2, 4, 1), (3, 2, 4, 1)),
    "one in a stack": ((1, 4, 4), (2, 3, 4, 1), (2, 3, 4, 1)),
    "as many vectors as rows": ((4, 4, 4), (4, 4), (4, 4, 4)),
}


@pytest.mark.parametrize("dtype", [None, "float32", "mp"])
@pytest.mark.parametrize("function", [linalg.solve, linalg.lstsq])
@pytest.mark.parametrize("name", SHAPES)
def test_shapes_are_those_of_numpy(name, function, dtype, rng):
    of_a, of_b, of_x = SHAPES[name]
    a, b = rng.standard_normal(of_a) + 4 * np.eye(4), rng.standard_normal(of_b)
    found = function(a, b, dtype=dtype)
    expected = np.linalg.solve(a, b)
    assert expected.shape == of_x == found.x.shape
    x, error_bound, iterations = found
    assert abs(np.asarray(x.astype("float64")) / expected - 1).max() < 1e-3 and iterations >= 1
    batch = of_x[:-1] if len(of_b) == 1 else of_x[:-2]
    assert np.shape(error_bound) == batch and isinstance(error_bound, np.ndarray if batch else float)
    assert found.error_bounds.shape == (*batch, 1 if len(of_b) == 1 else of_b[-1])
    relative = function(a, b, accuracy=Accuracy("relative", 1e-3), dtype=dtype)
    assert relative.error_bounds.shape == of_x and relative.error_bounds.max() <= 2e-3


@pytest.mark.parametrize("measure", ["normwise", "relative"])
def test_nothing_in_nothing_out(measure):
    accuracy = Accuracy(measure, 1e-9)
    shapes = [((0, 3, 3), (0, 3, 2)), ((2, 0, 0), (2, 0, 2)), ((2, 3, 3), (2, 3, 0)), ((0, 0), (0,)), ((0, 2, 2), (2,))]
    for of_a, of_b in shapes:
        a = np.broadcast_to(np.eye(of_a[-1]), of_a)
        for function in (linalg.solve, linalg.lstsq):
            found = function(a, np.ones(of_b), accuracy=accuracy)
            assert found.x.shape == np.linalg.solve(a, np.ones(of_b)).shape
            assert np.max(found.error_bound, initial=0.0) == 0.0 == found.error_bounds.max(initial=0.0)
            assert np.shape(found.error_bound) == of_a[:-2]
        if 0 in of_a:
            assert linalg.inv(a, accuracy=accuracy).x.shape == of_a
    for function in (linalg.solve, linalg.lstsq):
        with pytest.raises(np.linalg.LinAlgError, match=r"\(matrix \[1\] of the stack\)$"):
            function(np.stack([np.eye(3), np.ones((3, 3))]), np.ones((2, 3, 0)), accuracy=accuracy)


ODD = {
    "rows": (
        lambda: linalg.solve(np.eye(3), np.ones((3, 2, 3))),
        r"^b: shape \(3, 2, 3\); expected \(3,\) or \(\.\.\., 3",
    ),
    "axes": (lambda: linalg.lstsq(np.ones((2, 3, 2)), np.ones((5, 3, 1))), r"^b: shape \(5, 3, 1\); .* \(2, 3, 2\)$"),
    "not square": (
        lambda: linalg.inv(np.ones((2, 3, 4))),
        r"^a: shape \(2, 3, 4\); expected a square matrix.* stack of",
    ),
    "no matrix": (lambda: linalg.solve(np.ones(3), np.ones(3)), r"^a: shape \(3,\); expected a square matrix"),
    "nan": (lambda: linalg.inv(np.stack([np.eye(2), np.eye(2) * np.nan])), r"^a: element \[1, 0, 0\] is nan"),
}


@pytest.mark.parametrize("name", ODD)
def test_what_fits_nothing_is_refused(name):
    call, message = ODD[name]
    with pytest.raises(ValueError, match=message):
        call()


def test_a_matrix_that_is_refused_is_named(rng):
    a = rng.standard_normal((2, 3, 4, 4))
    a[1, 2, :, 1] = a[1, 2, :, 0]
    for call in (lambda: linalg.solve(a, np.ones(4)), lambda: linalg.inv(a), lambda: linalg.lstsq(a, np.ones(4))):
        with pytest.raises(np.linalg.LinAlgError, match=r"^a: .*\(matrix \[1, 2\] of the stack\)$"):
            call()
    large = np.stack([np.eye(2), np.eye(2) * 1e-300])
    with pytest.raises(OverflowError, match=r"^dtype: .* too large for float64.*\(matrix \[1\] of the stack\)$"):
        linalg.solve(large, np.array([1e300, 1e300]))
    with pytest.raises(OverflowError, match=r"^dtype: .* too small for float32.*\(matrix \[0\] of the stack\)$"):
        linalg.solve(large * 1e60, np.ones(2), dtype="float32")


# One way through ------------------------------------------------------------------------------------------------------


def test_a_stack_takes_as_many_calls_as_a_matrix(rng, monkeypatch):
    """Matrices that float64 inverts well are never looked at one by one."""
    calls = []
    inverse = np.linalg.inv
    monkeypatch.setattr(np.linalg, "inv", lambda x: calls.append(x.shape) or inverse(x))
    monkeypatch.setattr(solving, "left_inverse", None)
    monkeypatch.setattr(solving, "least_squares_of", None)
    a, b = rng.standard_normal((50, 6, 6)) + 6 * np.eye(6), rng.standard_normal((50, 6, 1))
    for call in (lambda: linalg.solve(a, b), lambda: linalg.inv(a), lambda: linalg.lstsq(a, b)):
        calls.clear()
        assert call().iterations == 1 and calls == [(50, 6, 6)]


def test_only_ill_conditioned_matrices_are_solved_one_by_one(rng, monkeypatch):
    calls = []
    single = solving.left_inverse
    monkeypatch.setattr(solving, "left_inverse", lambda x: calls.append(x) or single(x))
    a = rng.standard_normal((4, 10, 10)) + 10 * np.eye(10)
    a[2] = conditioned(10, 1e15)
    found = linalg.solve(a, np.ones((3, 1, 10, 1)))
    assert len(calls) == 1 and found.x.shape == (3, 4, 10, 1) and found.iterations > 1
    assert (found.error_bound <= 2e-16).all()


@pytest.mark.parametrize("power", [19, 24, 29, 34, 38])
def test_condition_numbers_of_which_float64_finds_an_inverse(power, monkeypatch):
    """They take more corrections, but no multiprecision numbers; neither do others beside them."""
    monkeypatch.setattr(solving, "left_inverse", None)
    a = np.stack([conditioned(7, 2.0**power, power), conditioned(7, 2.0, 1)])
    b = np.random.default_rng(power).standard_normal((2, 7, 2))
    for found, right in ((linalg.solve(a, b), b), (linalg.inv(a), np.stack([np.eye(7)] * 2))):
        assert holds(found, lambda i, right=right: exact_solve(fractions(a[i]), fractions(right[i])), "normwise")
        assert found.error_bound.max() < 3e-16 and (found.iterations > 1) >= (power > 30)


def test_the_inverse_of_a_singular_matrix_proves_nothing():
    """A library that finds one singular exactly raises for the whole stack."""
    inverses = Inverses(np.stack([np.eye(3), np.ones((3, 3)), np.diag([1.0, 2.0, 0.0]), np.eye(3) * 2.0**1020]))
    assert inverses.good.tolist() == [True, False, False, True]
    assert not Inverses(np.zeros((3, 3))).good


def test_multiprecision_stacks():
    a = mparray(np.stack([hilbert(5), np.eye(5)])) + mparray("1e-30", bits=200)
    found = linalg.solve(a, np.ones(5), accuracy=100)
    assert found.x.shape == (2, 5) and (found.error_bound <= 2.0**-100).all()
    for i in range(2):
        exact = exact_solve(a[i].to_fractions(), fractions(np.ones(5)))[:, 0]
        missed = abs(found.x[i].to_fractions() - exact).max()
        assert missed <= Fraction(found.error_bound[i]) * abs(exact).max()
    inverse = linalg.inv(a, dtype="float64")
    assert isinstance(inverse.x, np.ndarray) and (inverse.error_bound <= 2e-16).all()


def test_bounds_stand_beside_three_items(rng):
    a, b = rng.standard_normal((4, 4)), rng.standard_normal((4, 3))
    for found in (linalg.solve(a, b), linalg.lstsq(a, b), linalg.lu_solve(linalg.lu_factor(a), b), linalg.inv(a)):
        assert len(found) == 3 and found._fields == ("x", "error_bound", "iterations")
        assert found.error_bounds.shape == found.x.shape[1:] and found.error_bounds.max() == found.error_bound
        assert isinstance(found.error_bound, float) and found.error_bounds.dtype == np.float64
        again = pickle.loads(pickle.dumps(found))._replace(iterations=7)
        assert (again.error_bounds == found.error_bounds).all() and again.iterations == 7 and type(again) is type(found)


@pytest.mark.parametrize(("dtype", "least"), [("float64", -1074), ("float32", -149)])
def test_bounds_hold_for_subnormal_solutions(dtype, least, rng):
    a = rng.standard_normal((9, 3, 3)) + 4 * np.eye(3)
    b = np.ldexp(rng.uniform(1, 2, (9, 3, 1)), (least + np.arange(5, 50, 5))[:, None, None])
    found = linalg.solve(a, b, dtype=dtype)
    assert found.iterations == 1
    assert holds(found, lambda i: exact_solve(fractions(a[i]), fractions(b[i])), "normwise")
    assert (np.diff(np.log2(found.error_bound[:3])) < -1).all()


def test_a_column_of_zeros_is_exact_beside_others(rng):
    a = rng.standard_normal((2, 4, 4))
    b = rng.standard_normal((2, 4, 3))
    b[..., 1] = 0
    for function in (linalg.solve, linalg.lstsq):
        found = function(a, b)
        assert (found.x[..., 1] == 0).all() and (found.error_bounds[..., 1] == 0).all()
        assert (found.error_bounds[..., [0, 2]] > 0).all()


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_stacks_of_other_libraries(library, rng):
    module = pytest.importorskip(library)
    made = module.tensor if library == "torch" else module.numpy.asarray
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 4, 4), (3, 4, 1)))
    found = linalg.solve(made(a), made(b))
    assert type(found.x) is type(made(a)) and found.x.shape == (3, 4, 1)
    assert type(found.error_bound) is np.ndarray and type(found.error_bounds) is np.ndarray
    assert (np.asarray(found.x) == linalg.solve(a, b).x).all()


def test_integers_are_taken_exactly():
    a = np.array([[2**53 - 1, 3], [5, 7]])
    for given in (a, a.astype(np.uint64), a.tolist(), a.astype(object)):
        found = linalg.solve(given, np.array([1, 2], dtype=np.int8))
        exact = exact_solve(fractions(a), fractions(np.array([1, 2])))[:, 0]
        assert abs(fractions(found.x) - exact).max() <= Fraction(found.error_bound) * abs(exact).max()
    for beyond in (2**53 + 1, -(2**63), 2**64 - 1):
        x = linalg.inv(np.array([[beyond]]), dtype="mp", accuracy=200).x.to_fractions()[0, 0]
        assert abs(x * beyond - 1) <= Fraction(2) ** -200


# What is read of a matrix ---------------------------------------------------------------------------------------------

LOWER, UPPER = np.tri(5, dtype=bool), np.tri(5, dtype=bool).T
READ = {
    "diagonal": np.eye(5, dtype=bool),
    "tridiagonal": np.tri(5, k=1, dtype=bool) & np.tri(5, k=1, dtype=bool).T,
    "banded": LOWER | UPPER,
    "general": LOWER | UPPER,
    "gen": LOWER | UPPER,
    None: LOWER | UPPER,
    "upper triangular": UPPER,
    "lower triangular": LOWER,
}
BOTH = {"sym": False, "symmetric": False, "her": True, "hermitian": True, "pos": True, "positive definite": True}


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("name", [*READ, *BOTH])
def test_only_what_is_named_is_read(name, lower, transposed, rng):
    a = rng.standard_normal((2, 5, 5)) + 1j * rng.standard_normal((2, 5, 5)) + 5 * np.eye(5)
    b = rng.standard_normal((5, 2))
    if name in READ:
        meant, given = np.where(READ[name], a, 0), np.where(READ[name], a, np.nan)
    else:
        half = np.where(LOWER if lower else UPPER, a, 0)
        strict = half * (1 - np.eye(5))
        diagonal = (half.real if BOTH[name] else half) * np.eye(5)
        meant = strict + (strict.conj() if BOTH[name] else strict).swapaxes(-1, -2) + diagonal
        given = np.where(LOWER if lower else UPPER, a, np.inf)
        if BOTH[name]:
            given.imag[:, range(5), range(5)] = np.nan
    before = given.copy()
    found = linalg.solve(given, b, lower, assume_a=name, transposed=transposed)
    expected = linalg.solve(meant.swapaxes(-1, -2) if transposed else meant, b)
    assert (abs(found.x - expected.x) <= 4e-16 * abs(expected.x).max()).all() and found.error_bound.max() < 4e-16
    np.testing.assert_array_equal(given, before)


@pytest.mark.parametrize("made", [mparray, lambda a: a.tolist(), lambda a: matrix(a.tolist()), lambda a: (a, 0 * a)])
def test_matrices_of_all_kinds_are_read_so(made):
    a = np.array([[4.0, 1, 2], [7, 5, 3], [7, 7, 6]])
    expected = linalg.solve(np.triu(a) + np.triu(a, 1).T, np.ones(3), accuracy=100, dtype="mp").x
    assert (linalg.solve(made(a), np.ones(3), assume_a="pos", accuracy=100, dtype="mp").x == expected).all()


def test_names_and_flags_that_are_none_are_refused():
    with pytest.raises(ValueError, match=r"^assume_a: 'posdef'; expected one of None, 'general', 'gen', 'banded'"):
        linalg.solve(np.eye(2), np.ones(2), assume_a="posdef")
    for name in ("lower", "transposed"):
        with pytest.raises(TypeError, match=f"^{name}: 'yes'; expected True or False"):
            linalg.solve(np.eye(2), np.ones(2), **{name: "yes"})
    with pytest.raises(ValueError, match=r"^a: shape"):
        linalg.solve(np.ones((2, 3)), np.ones(2), assume_a="sym")


# Residuals by slices --------------------------------------------------------------------------------------------------


def operands(kind, dtype, k, rng):
    """C below 1, X below 1 and Y of any size."""

    def draw(*shape):
        x = rng.uniform(-1, 1, shape)
        if kind == "just below 1":
            x = np.full(shape, 1 - 2.0**-53)
        elif kind == "graded":
            x = np.ldexp(x, -rng.integers(0, 200, shape))
        elif kind == "sparse":
            x = x * (rng.random(shape) < 0.3)
        return x

    def parts_of(*shape):
        return draw(*shape) + (1j * draw(*shape) if dtype is complex else 0)

    return parts_of(2, 3), parts_of(2, k), np.ldexp(1.0, [0, 70, -200]) * parts_of(k, 3)


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("kind", ["uniform", "just below 1", "graded", "sparse"])
def test_residuals_err_by_no_more_than_their_bounds(kind, dtype, rng):
    for k in (1, 3, 64, 65):
        c, x, y = operands(kind, dtype, k, rng)
        exact = parts(c)[:, :3] - parts(x) @ parts(y)[:, :3]
        for count in (1, 2, 3, 4):
            (high, low), errors = residual_by_slices(c, x, y, count)
            missed = parts(high)[:, :3] + parts(low)[:, :3] - exact
            squares = (missed**2)[:2] + (missed**2)[2:] if dtype is complex else missed**2
            for j in range(3):
                assert sqrt_of(max(squares[:, j], default=0)) <= errors[j] * (1 + 1e-12)
        assert kind != "uniform" or errors[0] < 2.0**-93  # what two-sums leave is rounded


def test_residuals_of_rows_of_any_size(rng):
    x = np.ldexp(rng.uniform(-1, 1, (3, 8)), np.array([[40], [0], [-30]]))
    y, tops = rng.uniform(-1, 1, (8, 2)), np.array([40, 0, -30])
    (high, low), errors = residual_by_slices(np.zeros((3, 2)), x, y, 2, x_tops=tops)
    missed = fractions(high) + fractions(low) + fractions(x) @ fractions(y)
    assert (abs(missed).max(axis=0) <= fractions(errors)).all() and (errors < 2.0**-50).all()


def test_slices_of_few_bits_are_multiplied_exactly(rng):
    """Any order of summation gives these, so every library does."""
    x, y = (rng.integers(-(2**20), 2**20, shape) * 2.0**-20 for shape in ((4, 5, 30), (4, 30, 6)))
    (high, low), _ = residual_by_slices(np.zeros((4, 5, 6)), x, y, 1)
    for i in range(4):
        assert (fractions(high[i]) + fractions(low[i]) == -fractions(x[i]) @ fractions(y[i])).all()


def test_as_many_slices_as_a_tolerance_takes():
    x = np.ones((20, 20))
    assert [count_for(tolerance, x, x) for tolerance in (1.0, 2.0**-60, 2.0**-70, 2.0**-105, 0.0)] == [1, 1, 2, 3, 4]


def test_a_report_of_a_stack(rng):
    with ozaki.recording() as run:
        found = linalg.solve(rng.standard_normal((5, 4, 4)), np.ones(4))
    (entry,) = run.results.entries
    assert entry.operator == "solve" and entry.bound == found.error_bound.max()
