"""Linear algebra of arrays of every library: results are of their kind, bounds of their results hold."""

from contextlib import nullcontext
from fractions import Fraction

import numpy as np
import pytest
from exact_linalg import error, exact_solve, fractions, product_error

import ozaki
from ozaki import linalg

A = np.array([[4.0, 1.0, 0.5], [1.0, 3.0, -2.0], [0.5, -2.0, 5.0]])  # positive definite
B = np.array([1.0, 2.0, -3.0])


def numpy_arrays():
    return np.asarray, np.ndarray, nullcontext()


def big_endian_arrays():
    return lambda x: np.asarray(x, x.dtype.newbyteorder(">")), np.ndarray, nullcontext()


def multiprecision_arrays():
    return ozaki.mparray, ozaki.MPArray, nullcontext()


def tensors():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    return torch.from_numpy, torch.Tensor, nullcontext()


def parameters():
    """Without gradients, as when a network is used."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    return lambda x: torch.nn.Parameter(torch.from_numpy(x)), torch.Tensor, torch.no_grad()


def jax_arrays(x64):
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    return jax.numpy.asarray, jax.Array, jax.enable_x64(x64)


LIBRARIES = {
    "numpy": numpy_arrays,
    "big-endian": big_endian_arrays,
    "mparray": multiprecision_arrays,
    "torch": tensors,
    "torch parameters": parameters,
    "jax": lambda: jax_arrays(False),
    "jax with 64 bits": lambda: jax_arrays(True),
}

FUNCTIONS = {
    "solve": linalg.solve,
    "inv": lambda a, b, **options: linalg.inv(a, **options),
    "lstsq": linalg.lstsq,
    "lu_factor": lambda a, b, **options: linalg.lu_factor(a, **options),
    "lu_solve": lambda a, b, **options: linalg.lu_solve(linalg.lu_factor(a), b, **options),
    "cholesky": lambda a, b, **options: linalg.cholesky(a, **options),
    "cho_solve": lambda a, b, **options: linalg.cho_solve(linalg.cholesky(a), b, **options),
    "cho_solve of a factor": lambda a, b, **options: linalg.cho_solve((a, True), b, **options),
    "solve_triangular": lambda a, b, **options: linalg.solve_triangular(a, b, **options),
    "qr": lambda a, b, **options: linalg.qr(a, **options),
    "pivoted qr": lambda a, b, **options: linalg.qr(a, pivoting=True, **options),
    "lq": lambda a, b, **options: linalg.lq(a, **options),
    "eigh": lambda a, b, **options: linalg.eigh(a, **options),
    "eigvalsh": lambda a, b, **options: linalg.eigvalsh(a, **options),
    "expm": lambda a, b, **options: linalg.expm(a, **options),
    "svdvals": lambda a, b, **options: linalg.svdvals(a, **options),
    "svd": lambda a, b, **options: linalg.svd(a, **options),
    "pinv": lambda a, b, **options: linalg.pinv(a, **options),
}

ARRAYS = {
    "solve": 1, "inv": 1, "lstsq": 1, "lu_factor": 3, "lu_solve": 1, "cholesky": 1, "cho_solve": 1,
    "cho_solve of a factor": 1, "solve_triangular": 1, "qr": 2, "pivoted qr": 3, "lq": 2, "eigh": 2, "eigvalsh": 1,
    "expm": 1,
}  # fmt: skip
ARRAYS |= {"svdvals": 1, "svd": 3, "pinv": 1}
"""How many arrays, which are of the kind of the operands, each result begins with."""


def check(function, found):
    """Assert that the bound of a result holds, in fractions."""
    arrays = [np.asarray(x) if not isinstance(x, ozaki.MPArray) else x for x in found[: ARRAYS[function]]]
    systems = {"cho_solve of a factor": np.tril(A) @ np.tril(A).T, "solve_triangular": np.triu(A)}
    if function in ("solve", "lstsq", "lu_solve", "cho_solve", *systems):
        assert error(arrays[0], exact_solve(fractions(systems.get(function, A)), fractions(B))) <= found.error_bound
    elif function in ("inv", "pinv"):
        assert error(arrays[0], exact_solve(fractions(A), np.eye(3, dtype=int))) <= found.error_bound
    elif function == "eigvalsh":
        exact = linalg.eigh(A, accuracy=200, dtype="mp").values.to_fractions()
        assert abs(fractions(arrays[0]) - exact).max() <= Fraction(found.error_bound + 2.0**-190) * abs(exact).max()
        assert type(found.error_bounds) is np.ndarray and found.error_bounds.dtype == np.float64
    elif function == "expm":
        missed = abs(fractions(arrays[0]) - fractions(exact := linalg.expm(A, accuracy=200, dtype="mp").expm))
        assert missed.max() <= found.error_bound * abs(fractions(exact)).max() + 2.0**-190
        assert type(found.error_bounds) is np.ndarray
    elif function == "eigh":
        values, vectors = fractions(arrays[0]), fractions(arrays[1])
        assert abs(fractions(A) @ vectors - vectors * values).max() < 2e-6
        assert type(found.vector_bounds) is np.ndarray and found.vector_bounds.dtype == np.float64
        exact = linalg.eigh(A, accuracy=200, dtype="mp").vectors.to_fractions()
        sines = 1 - (vectors * exact).sum(axis=0) ** 2 / ((vectors**2).sum(axis=0) * (exact**2).sum(axis=0))
        assert all(s <= b**2 + 1e-58 for s, b in zip(sines, found.vector_bounds, strict=True))
    elif function in ("svd", "svdvals"):
        exact = linalg.eigh(A, accuracy=200, dtype="mp").values.to_fractions()[::-1]  # A is positive definite
        values = fractions(arrays[function == "svd"])
        assert (abs(values - exact) <= [Fraction(x) * exact[0] for x in found.error_bounds]).all()
        assert type(found.error_bounds) is np.ndarray and max(found.error_bounds) == found.error_bound
        if function == "svd":
            u, vh = fractions(arrays[0]), fractions(arrays[2])
            assert abs(u * values @ vh - fractions(A)).max() < 2e-6
    else:
        left, right = (arrays[0], arrays[0].T) if function == "cholesky" else arrays[:2]
        matrix = A
        if function == "lu_factor":
            (left, right), matrix = arrays[1:], A[np.asarray(found.p)]
        elif function == "pivoted qr":
            matrix = A[:, np.asarray(found.p)]
        elif function == "lq":
            left, right = right.T, left.T
        bound, of_columns = found.error_bound, function in ("qr", "pivoted qr", "lq")
        assert product_error(fractions(matrix), fractions(left), fractions(right), of_columns) <= bound
    if hasattr(found, "error_bounds") and function != "expm":  # whose columns are measured by themselves
        assert type(found.error_bounds) is np.ndarray and found.error_bounds.max() == found.error_bound


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_results_are_of_the_kind_of_the_operands(library, function):
    made, kind, setting = LIBRARIES[library]()
    with setting:
        for dtype in ("float32", "float64"):
            if library == "jax" and dtype == "float64":
                continue
            found = FUNCTIONS[function](made(A.astype(dtype)), made(B.astype(dtype)))
            for x in found[: ARRAYS[function]]:
                indices = hasattr(found, "p") and x is found.p
                assert isinstance(x, np.ndarray if indices and library == "mparray" else kind)
                if not indices and library != "mparray":
                    assert str(x.dtype).endswith(dtype)
            assert found.error_bound < (1e-6 if dtype == "float32" else 1e-15)
            check(function, found)


@pytest.mark.parametrize("library", LIBRARIES)
def test_determinants_are_of_the_kind_of_the_operands(library):
    made, kind, setting = LIBRARIES[library]()
    with setting:
        stack = np.stack([A, A.T]).astype(np.float32)
        for a, kinds in ((stack, kind), (stack[0], (kind, np.generic))):
            found, logarithms = linalg.det(made(a)), linalg.slogdet(made(a))
            for x in (found.det, logarithms.sign, logarithms.logabsdet):
                assert isinstance(x, kinds) and x.shape == a.shape[:-2]
                assert library == "mparray" or str(x.dtype).endswith("float32")
            assert (np.asarray(found.det, np.float64) == np.linalg.det(a.astype(np.float64)).astype(np.float32)).all()
            assert type(logarithms.error_bounds) is np.ndarray and np.max(found.error_bound) < 1e-7


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("library", ["big-endian", "torch", "jax", "jax with 64 bits"])
def test_complex_matrices_and_many_bits(library, function):
    made, kind, setting = LIBRARIES[library]()
    with setting:
        a, b = A + 1j * np.triu(np.ones((3, 3)), 1) - 1j * np.tril(np.ones((3, 3)), -1), B * (1 + 2j)
        found = FUNCTIONS[function](made(a.astype(np.complex64)), made(b.astype(np.complex64)))
        wanted = FUNCTIONS[function](a.astype(np.complex64), b.astype(np.complex64))
        for x, y in zip(found[: ARRAYS[function]], wanted, strict=False):
            assert isinstance(x, kind) and (np.asarray(x) == y).all()
        found = FUNCTIONS[function](made(A.astype(np.float32)), made(B.astype(np.float32)), accuracy=100, dtype="mp")
        arrays = [x for x in found[: ARRAYS[function]] if x is not getattr(found, "p", None)]
        assert all(isinstance(x, ozaki.MPArray) for x in arrays) and found.error_bound < 2.0**-97


@pytest.mark.parametrize("dtype", [">f8", ">f4", ">c16", ">c8", ">i4", ">i8", ">f2"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_byte_orders_give_the_same(function, dtype):
    a, b = np.round(2 * A).astype(dtype), B.astype(dtype)
    found = FUNCTIONS[function](a, b)
    wanted = FUNCTIONS[function](*(x.astype(x.dtype.newbyteorder("=")) for x in (a, b)))
    for x, y in zip(found[: ARRAYS[function]], wanted, strict=False):
        assert x.dtype == y.dtype and x.dtype.isnative and (x == y).all()


@pytest.mark.parametrize("function", FUNCTIONS)
def test_gradients_are_not_tracked(function):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    a, b = torch.nn.Parameter(torch.from_numpy(A)), torch.from_numpy(B)
    name = "c_and_lower" if function == "cho_solve of a factor" else "a"
    message = rf"^{name}: requires a gradient, which is not tracked here; use {name}\.detach\(\) "
    with pytest.raises(TypeError, match=message):
        FUNCTIONS[function](a, b)
    found = FUNCTIONS[function](a.detach(), b)
    assert not found[0].requires_grad
    check(function, found)


def test_traced_arrays_are_refused():
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    with pytest.raises(TypeError, match=r"^a: a traced array, which has no elements yet; call this outside of jit"):
        jax.jit(linalg.inv)(jax.numpy.eye(2))


def test_results_of_64_bits_need_them_switched_on():
    with (setting := jax_arrays(False))[2]:
        made, a = setting[0], A.astype(np.float32)
        for call in (lambda: linalg.inv(made(a), dtype="float64"), lambda: linalg.eigh(made(a.astype(np.int32)))):
            with pytest.raises(ValueError, match=r"^dtype: float64 needs jax.*; without it ask for a dtype of 32 bits"):
                call()
        assert linalg.eigh(made(np.round(a).astype(np.int32)), dtype="float32").values.shape == (3,)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (((1, 2), (3, 4)), "b: item 0 of the tuple is of type tuple; "),
        ((np.ones(2), np.ones(3)), "b: word 1 has shape "),
        ((np.ones(2), np.full(2, np.nan)), "b: word 1 of element "),
        ((), "b: an empty tuple"),
    ],
)
def test_words_that_cannot_be_summed_are_named(words, message):
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        linalg.solve(np.eye(2), words)
