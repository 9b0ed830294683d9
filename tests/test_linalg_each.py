"""Stacks of matrices that are factored or decomposed: what each call alone finds, put together."""

import re

import numpy as np
import pytest

import ozaki
from ozaki import MPArray, linalg, mparray
from ozaki.linalg.common.results import Bounded

RNG = np.random.default_rng(58)
SHIFT = 4 * np.eye(3)
A = RNG.integers(-9, 10, (3, 2, 3, 3)) / 8 + SHIFT
COMPLEX = A + 1j * RNG.integers(-9, 10, (3, 2, 3, 3)) / 16
KINDS = {
    "float64": lambda x: x.real,
    "float32": lambda x: x.real.astype(np.float32),
    "complex128": lambda x: x,
    "MPArray": lambda x: mparray(x.real),
    "complex MPArray": mparray,
}


def hermitian(x):
    return x + x.conj().swapaxes(-1, -2)


FUNCTIONS = {
    "svdvals": (linalg.svdvals, COMPLEX),
    "svdvals, tall": (linalg.svdvals, COMPLEX[..., :2]),
    "svd": (linalg.svd, COMPLEX),
    "svd, wide": (lambda a: linalg.svd(a, full_matrices=False), COMPLEX[..., :2, :]),
    "eigh": (linalg.eigh, hermitian(COMPLEX)),
    "eigh, some": (lambda a: linalg.eigh(a, lower=False, subset_by_index=(0, 1)), hermitian(COMPLEX)),
    "eigh of pairs": (lambda a: linalg.eigh(a, hermitian(a)), COMPLEX),
    "eigvalsh": (linalg.eigvalsh, hermitian(COMPLEX)),
    "eigvalsh of pairs": (lambda a: linalg.eigvalsh(a, hermitian(a)), COMPLEX),
    "qr": (linalg.qr, COMPLEX),
    "qr, complete": (lambda a: linalg.qr(a, "complete"), COMPLEX[..., :2]),
    "qr, r alone": (lambda a: linalg.qr(a, "r"), COMPLEX[..., :2, :]),
    "qr, pivots": (lambda a: linalg.qr(a, pivoting=True), COMPLEX),
    "lq": (linalg.lq, COMPLEX[..., :2, :]),
    "cholesky": (linalg.cholesky, hermitian(COMPLEX)),
    "cholesky, upper": (lambda a: linalg.cholesky(a, upper=True), hermitian(COMPLEX)),
    "cholesky as found": (lambda a: linalg.cholesky(a, accuracy=None), hermitian(COMPLEX)),
    "lu_factor": (linalg.lu_factor, COMPLEX),
    "lu_factor as found": (lambda a: linalg.lu_factor(a, accuracy=None), COMPLEX),
    "pinv": (linalg.pinv, COMPLEX),
    "pinv, tall": (lambda a: linalg.pinv(a, rtol=1e-9), COMPLEX[..., :2]),
    "cond": (linalg.cond, COMPLEX),
    "cond, 1": (lambda a: linalg.cond(a, 1), COMPLEX),
    "matrix_rank": (linalg.matrix_rank, COMPLEX),
    "eig": (linalg.eig, COMPLEX),
    "eigvals": (linalg.eigvals, COMPLEX),
    "expm": (linalg.expm, COMPLEX),
    "solve_triangular": (lambda a: linalg.solve_triangular(a, np.ones(3), lower=True), COMPLEX),
    "solve_triangular, columns": (lambda a: linalg.solve_triangular(a, np.ones((3, 2)), 2), COMPLEX),
    "cho_solve of factors": (lambda a: linalg.cho_solve((a, False), np.ones((3, 2))), COMPLEX),
}
"""Functions of one operand, and stacks of complex matrices for them, 3 x 2 of them."""


AT_ONCE = ("cho_solve of factors", "cholesky", "cholesky, upper", "lu_factor", "qr", "qr, r alone", "lq")
"""Of floats these find all results of a stack at once, perhaps in other orders of summation: bits may differ. That
bounds hold is tested elsewhere (test_linalg_stacks.py, test_linalg_factors_at_once.py)."""


def names(found):
    """The items of a result that say something of each matrix, and its error bounds."""
    of_all = ("iterations", "system")
    return [*(name for name in found._fields if name not in of_all), *["error_bounds"] * isinstance(found, Bounded)]


def same(x, y):
    """Whether two numbers, or arrays, are the same: values, shapes and dtypes."""
    if x is None or y is None:
        return x is y
    if isinstance(x, MPArray):
        return isinstance(y, MPArray) and x.shape == y.shape and bool((x == y).all())
    x, y = np.asarray(x), np.asarray(y)
    return x.shape == y.shape and x.dtype == y.dtype and x.tobytes() == y.tobytes()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_stack_has_what_each_call_finds(name, kind):
    function, a = FUNCTIONS[name]
    a = KINDS[kind](a)
    before = a.copy()
    found, steps = function(a), []
    for index in np.ndindex(3, 2):
        alone = function(a[index])
        assert type(alone) is type(found)
        for item in names(found):
            whole = getattr(found, item)
            if item in ("values", "vectors") and name in ("eig", "eigvals") and isinstance(whole, np.ndarray):
                # Real where all eigenvalues of the stack are.
                assert same(whole[index], getattr(alone, item).astype(whole.dtype))
            elif whole is not None and name in AT_ONCE and (not isinstance(whole, MPArray) or "cho_solve" in name):
                single = getattr(alone, item)
                missed = abs((whole[index] - single).astype("complex128"))
                assert missed.shape == np.shape(single)
                assert isinstance(whole, MPArray) or whole[index].dtype == np.asarray(single).dtype
                assert (missed <= (2e-7 if kind == "float32" else 4e-16) * (4 if item in "lu" else 1)).all()
            else:
                assert same(None if whole is None else whole[index], getattr(alone, item)), item
        steps.append(alone.iterations)
    assert found.iterations == max(steps)
    bound = found.error_bound
    assert isinstance(bound, np.ndarray) and bound.dtype == np.float64 and bound.shape == (3, 2)
    assert (a == before).all()


LAYOUTS = {
    "backwards": lambda a: a[::-1, :, ::-1, ::-1],
    "other axes first": lambda a: a.swapaxes(0, 1),
    "transposed": lambda a: a.swapaxes(-1, -2),
    "the same matrix several times": lambda a: np.broadcast_to(a[:1, :1], (2, 2, *a.shape[2:])),
}
"""Views of a stack, whose Hermitian matrices stay Hermitian."""


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["svd, wide", "eigh", "qr, pivots", "cholesky", "lu_factor", "pinv, tall", "eig"])
def test_stacks_of_any_layout(name, layout):
    function, a = FUNCTIONS[name]
    view = LAYOUTS[layout](a)
    view.flags.writeable = False
    found = function(view)
    for index in np.ndindex(view.shape[:2]):
        alone = function(view[index])
        assert all(same(getattr(found, item)[index], getattr(alone, item)) for item in names(found))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_empty_stack_has_the_shapes_and_dtypes_of_others(name, kind):
    function, a = FUNCTIONS[name]
    a = KINDS[kind](a)
    found, others = function(a[:, :0]), function(a)
    assert type(found) is type(others) and found.iterations == 0
    for item in names(found):
        x, y = getattr(found, item), getattr(others, item)
        if y is None:
            assert x is None
            continue
        assert type(x) is type(y) and x.shape == (3, 0, *y.shape[2:])
        assert name in ("eig", "eigvals") or x.dtype == y.dtype
        assert not isinstance(x, MPArray) or x.is_complex == y.is_complex or "eig" in name


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if "cond" not in name and "solve" not in name])
def test_matrices_without_elements_in_a_stack(name):
    function, a = FUNCTIONS[name]
    if "some" in name:
        return  # there is no eigenvalue of which one could be asked
    found = function(a[..., :0, :0])
    alone = function(a[0, 0, :0, :0])
    for item in names(found):
        y = getattr(alone, item)
        assert (getattr(found, item) is None) if y is None else getattr(found, item).shape == (3, 2, *np.shape(y))


def test_an_empty_stack_takes_no_time():
    """What stands in for the matrices of a stack without any is an exponential that takes no product."""
    for kind in KINDS.values():
        with ozaki.recording() as run:
            assert linalg.expm(kind(COMPLEX[:0]), accuracy=900, dtype="mp").expm.shape == (0, 2, 3, 3)
        assert run.inside == 0


@pytest.mark.parametrize("function", [linalg.eig, linalg.eigvals, linalg.expm])
def test_results_of_complex_zeros_are_complex(function):
    """As those of any complex matrix, alone and in a stack."""
    for zeros in (np.zeros((2, 3, 3), complex), np.zeros((2, 3, 3), "complex64")):
        for a in (zeros, mparray(zeros)):
            for found in (function(a), function(a[0])):
                for x in (found[0], getattr(found, "vectors", found[0])):
                    assert x.is_complex if isinstance(a, MPArray) else x.dtype == a.dtype
    assert not function(mparray(np.zeros((2, 3, 3))))[0].is_complex


SINGULAR = np.stack([[np.eye(3)] * 2, [np.eye(3), np.ones((3, 3))], [np.eye(3)] * 2])
REFUSED = {
    "qr": (lambda: linalg.qr(SINGULAR), np.linalg.LinAlgError, "^a: columns are dependent"),
    "lq": (lambda: linalg.lq(SINGULAR), np.linalg.LinAlgError, "^a: rows are dependent"),
    "cholesky": (lambda: linalg.cholesky(SINGULAR), np.linalg.LinAlgError, "^a: not positive definite"),
    "cholesky as found": (
        lambda: linalg.cholesky(-SINGULAR * (SINGULAR == 1).all((-1, -2), keepdims=True) + np.eye(3), accuracy=None),
        np.linalg.LinAlgError,
        "^a: not positive definite",
    ),
    "lu_factor": (lambda: linalg.lu_factor(SINGULAR), np.linalg.LinAlgError, "^a: singular"),
    "lu_factor as found, of rows far apart": (
        lambda: linalg.lu_factor(SINGULAR * np.array([[1e200], [1], [1e-200]]), accuracy=None),
        np.linalg.LinAlgError,
        "^a: singular",
    ),
    "pinv": (lambda: linalg.pinv(SINGULAR), np.linalg.LinAlgError, "^a: neither columns nor rows are independent"),
    "cond": (lambda: linalg.cond(SINGULAR), np.linalg.LinAlgError, "^a: singular"),
    "solve_triangular": (
        lambda: linalg.solve_triangular(np.where(SINGULAR.all((-1, -2), keepdims=True), 0, SINGULAR), np.ones(3)),
        np.linalg.LinAlgError,
        r"^a: singular, element \[0, 0\] on the diagonal is zero",
    ),
    "eigh": (lambda: linalg.eigh(SINGULAR, SINGULAR), np.linalg.LinAlgError, "^b: not positive definite"),
    "eigvalsh": (
        lambda: linalg.eigvalsh(SINGULAR, accuracy=ozaki.Accuracy("relative", 1e-9)),
        ValueError,
        "^accuracy: an eigenvalue is zero",
    ),
    "svdvals": (
        lambda: linalg.svdvals(SINGULAR * np.where(SINGULAR.all((-1, -2), keepdims=True), 1e200, 1), dtype="float32"),
        OverflowError,
        "^dtype: an element of the result is too large for float32",
    ),
    "eigvals": (
        lambda: linalg.eigvals(SINGULAR * 0 + np.where(SINGULAR.all((-1, -2), keepdims=True), TURNED, 1), dtype=float),
        TypeError,
        "^dtype: 'float64', but eigenvalue",
    ),
}
TURNED = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
"""A permutation, whose eigenvalues are roots of 1."""


@pytest.mark.parametrize("name", REFUSED)
def test_a_matrix_that_is_refused_is_named(name):
    call, error, message = REFUSED[name]
    with pytest.raises(error, match=message + r"[\s\S]*\(matrix \[1, 1\] of the stack\)$"):
        call()


@pytest.mark.parametrize("library", ["torch", "jax"])
@pytest.mark.parametrize("name", [name for name in FUNCTIONS if "pair" not in name and "solve" not in name])
def test_stacks_of_other_libraries(name, library):
    module = pytest.importorskip(library)
    made = module.tensor if library == "torch" else module.numpy.asarray
    function, a = FUNCTIONS[name]
    a = np.ascontiguousarray(a.real.astype(np.float32))
    found, expected = function(made(a)), function(a)
    for item in names(found):
        x, y = getattr(found, item), getattr(expected, item)
        in_numpy = item.endswith(("bound", "bounds")) or item in ("rank", "least", "most")
        assert y is None or type(x) is (np.ndarray if in_numpy else type(made(a)))
        assert y is None or ((item == "p" or str(x.dtype).endswith(str(y.dtype))) and (np.asarray(x) == y).all())


def test_the_right_sides_of_factored_stacks():
    """The systems of a stack are solved at once, as those of `solve`, and b broadcasts."""
    spd = hermitian(A)
    lu, low = linalg.lu_factor(A), linalg.cholesky(spd)
    for b in (np.ones(3), RNG.standard_normal((2, 3, 1)), RNG.standard_normal((3, 1, 3, 2)), np.ones((3, 0))):
        for trans in (0, 1):
            found = linalg.lu_solve(lu, b, trans)
            expected = linalg.solve(A, b, transposed=bool(trans))
            assert found.x.shape == expected.x.shape and found.error_bound.shape == (3, 2)
            assert found.error_bounds.shape == expected.error_bounds.shape
            assert (abs(found.x - expected.x) <= 4e-16 * abs(expected.x).max(initial=0)).all()
        for factor in (low, (np.linalg.cholesky(spd), True)):
            found, expected = linalg.cho_solve(factor, b), linalg.solve(spd, b)
            near = 4e-16 if factor is low else 1e-13
            assert found.x.shape == expected.x.shape and found.error_bound.shape == (3, 2)
            assert (abs(found.x - expected.x) <= near * abs(expected.x).max(initial=0)).all()
        found = linalg.solve_triangular(A, b, lower=True)
        expected = linalg.solve(np.tril(A), b)
        assert found.x.shape == expected.x.shape and found.error_bounds.shape == expected.error_bounds.shape
        assert (abs(found.x - expected.x) <= 4e-16 * abs(expected.x).max(initial=0)).all()
    relative = ozaki.Accuracy("relative", 2.0**-40)
    assert linalg.solve_triangular(A[0, 0], np.ones(3), accuracy=relative).error_bounds.shape == (3,)
    assert linalg.solve_triangular(A, np.ones(3), accuracy=relative).error_bounds.shape == (3, 2, 3)
    for call in (linalg.lu_solve, linalg.cho_solve):
        with pytest.raises(ValueError, match=r"^b: shape \(4, 1, 3, 1\); expected \(3,\) or \(\.\.\., 3, columns\)"):
            call(lu if call is linalg.lu_solve else low, np.ones((4, 1, 3, 1)))


def test_the_matrices_of_pairs_broadcast():
    a, b = hermitian(A), hermitian(A[:, :1]) + SHIFT
    found = linalg.eigh(a, b)
    for index in np.ndindex(3, 2):
        assert same(found.values[index], linalg.eigh(a[index], b[index[0], 0]).values)
    with ozaki.recording() as run:
        assert linalg.eigvalsh(a[0, 0], b).values.shape == (3, 1, 3)
    assert run.results.entries[0].batch == (3, 1)
    with pytest.raises(ValueError, match=r"^b: shape \(4, 1, 3, 3\) does not fit a of shape \(3, 2, 3, 3\)$"):
        linalg.eigh(a, np.broadcast_to(SHIFT, (4, 1, 3, 3)))


@pytest.mark.parametrize("function", [linalg.cholesky, linalg.lu_factor, linalg.qr, linalg.eigvalsh])
def test_nearest_floats_of_stacks(function):
    a = hermitian(A[:2, 0])
    found = function(a, reproducible=True)
    for i in range(2):
        alone = function(a[i], reproducible=True)
        assert all(same(getattr(found, item)[i], getattr(alone, item)) for item in names(found))
    assert function(a[:0], reproducible=True).error_bound.shape == (0,)
    for stack in (a, a[:0], a[:, :0, :0]):  # the option is wrong, no matrix is
        with pytest.raises(ValueError, match=r"^reproducible: the result has the format mp80; [^(]*$"):
            function(stack, reproducible=True, dtype="mp80")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_report_of_a_stack(name):
    function, a = FUNCTIONS[name]
    function(a)  # logged, too, but not recorded
    with ozaki.recording() as run:
        found = function(a)
    entry = run.results.entries[-1]
    assert entry.operator == re.split("[, ]", name)[0] and entry.bound == found.error_bound.max()
    assert entry.batch == (3, 2)
