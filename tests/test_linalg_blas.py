"""Products with matrices of which one triangle is read: as SciPy's BLAS has them, of whole numbers exactly."""

import numpy as np
import pytest

import ozaki
from ozaki import linalg, mparray

scipy_blas = pytest.importorskip("scipy.linalg.blas", reason="SciPy is not installed")

CASES = [(is_complex, lower) for is_complex in (False, True) for lower in (0, 1)]


def whole(rng, *shape, is_complex=False):
    x = rng.integers(-99, 100, shape).astype(float)
    return x + 1j * rng.integers(-99, 100, shape) if is_complex else x


def hidden(a, lower, diagonal=False):
    """A matrix with NaN where it is not read."""
    found = a.copy()
    found[np.triu_indices(len(a), 1) if lower else np.tril_indices(len(a), -1)] = np.nan
    if diagonal:
        found[range(len(a)), range(len(a))] = np.nan
    return found


def of_scipy(name, is_complex):
    return getattr(scipy_blas, ("z" if is_complex else "d") + name)


@pytest.mark.parametrize(("is_complex", "lower"), CASES)
@pytest.mark.parametrize("side", [0, 1])
def test_triangular_ones(is_complex, lower, side, rng):
    a, b = whole(rng, 4, 4, is_complex=is_complex), whole(rng, *((3, 4) if side else (4, 3)), is_complex=is_complex)
    for trans in (0, 1, 2):
        for diag in (0, 1):
            known = hidden(a, lower, diag == 1)
            wanted = of_scipy("trmm", is_complex)(2.0, a, b, side, lower, trans, diag)
            assert (linalg.trmm(2.0, known, b, side, lower, trans, diag, accuracy="exact") == wanted).all()
            assert np.isnan(known).any()  # not written
    found = linalg.trmm(2.0, mparray(a), b, side, lower, accuracy="exact", dtype="mp")
    assert (found.astype("complex128") == of_scipy("trmm", is_complex)(2.0, a, b, side, lower)).all()


@pytest.mark.parametrize(("is_complex", "lower"), CASES)
@pytest.mark.parametrize("side", [0, 1])
def test_symmetric_and_hermitian_ones(is_complex, lower, side, rng):
    a, b, c = (whole(rng, 4, 4, is_complex=is_complex) for _ in range(3))
    b, c = (x[:3] if side else x[:, :3] for x in (b, c))
    known = hidden(a, lower)
    for ours, theirs, kind in ((linalg.symm, "symm", is_complex), (linalg.hemm, "hemm", True)):
        x, y, z = (each.astype(complex) for each in (a, b, c)) if kind else (a, b, c)
        for beta in (0.0, 3.0):
            wanted = of_scipy(theirs, kind)(2.0, x, y, beta, z, side, lower)
            assert (ours(2.0, known, b, beta, c, side, lower, accuracy="exact") == wanted).all()
        found = ours(2.0, mparray(a), b, 0.0, None, side, lower, accuracy="exact", dtype="mp")
        assert (found.astype("complex128") == of_scipy(theirs, kind)(2.0, x, y, side=side, lower=lower)).all()


def test_the_diagonal_of_a_hermitian_one_is_real(rng):
    a = whole(rng, 3, 3, is_complex=True)
    known = a.copy()
    known.imag[range(3), range(3)] = np.nan
    wanted = scipy_blas.zhemm(1.0, a, np.eye(3), lower=1)
    assert (linalg.hemm(1.0, known, np.eye(3), lower=1, accuracy="exact") == wanted).all()
    assert (linalg.herk(1.0, a, 1.0, known, accuracy="exact").diagonal().imag == 0).all()


@pytest.mark.parametrize(("is_complex", "lower"), CASES)
@pytest.mark.parametrize("trans", [0, 1])
def test_a_matrix_with_itself(is_complex, lower, trans, rng):
    a, c = whole(rng, *((5, 4) if trans else (4, 5)), is_complex=is_complex), whole(rng, 4, 4, is_complex=is_complex)
    triangle = np.tril if lower else np.triu
    for beta in (0.0, 3.0):
        wanted = of_scipy("syrk", is_complex)(2.0, a, beta, c, trans, lower)
        found = linalg.syrk(2.0, a, beta, hidden(c, lower), trans, lower, accuracy="exact")
        assert (triangle(found) == triangle(wanted)).all() and (found == found.T).all()
        wanted = scipy_blas.zherk(2.0, a + 0j, beta, c + 0j, 2 * trans, lower)
        found = linalg.herk(2.0, a, beta, hidden(c, lower), 2 * trans, lower, accuracy="exact")
        assert (triangle(found) == triangle(wanted)).all() and (found == found.conj().T).all()
    found = linalg.herk(2.0, mparray(a), trans=2 * trans, accuracy="exact", dtype="mp").astype("complex128")
    assert (triangle(found) == triangle(scipy_blas.zherk(2.0, a + 0j, trans=2 * trans, lower=lower))).all()


@pytest.mark.parametrize("options", [{"accuracy": "fp64"}, {"scheme": "residues", "slices": 14}, {"accuracy": 60}])
def test_both_triangles_have_the_same_bits_and_reports_their_bounds(options, rng):
    a, c = rng.standard_normal((20, 30)), rng.standard_normal((20, 20))
    exact = mparray(a).to_fractions() @ mparray(a).to_fractions().T
    exact = exact + mparray(np.triu(c) + np.triu(c, 1).T).to_fractions()
    found, report = linalg.syrk(1.0, a, 1.0, c, return_report="bounds", **options)
    assert (found == found.T).all() and (report.bounds == report.bounds.T).all()
    assert (abs(mparray(found).to_fractions() - exact) <= mparray(report.bounds).to_fractions()).all()


def test_a_native_product_is_made_symmetric_too(rng):
    a = rng.standard_normal((7, 3)).astype(np.float32)
    found = linalg.syrk(1.0, a, 1.0, rng.standard_normal((7, 7)).astype(np.float32))
    assert found.dtype == np.float32 and (found == found.T).all()


def test_stacks_lists_and_matrices_without_elements(rng):
    a = whole(rng, 2, 3, 3)
    assert (linalg.trmm(1.0, a, a, accuracy="exact") == np.triu(a) @ a).all()
    assert (linalg.syrk(1.0, a, trans=1, accuracy="exact") == a.swapaxes(1, 2) @ a).all()
    assert (linalg.symm(1, [[1, 2], [9, 3]], [[1, 0], [0, 1]]) == [[1, 2], [2, 3]]).all()
    assert linalg.trmm(1.0, np.zeros((0, 0)), np.zeros((0, 3))).shape == (0, 3)
    assert (linalg.syrk(1.0, np.zeros((3, 0)), 2.0, np.eye(3)) == 2 * np.eye(3)).all()


def test_products_are_recorded_by_the_name_of_the_function(rng):
    a = rng.standard_normal((64, 64))
    with ozaki.recording() as run:
        linalg.syrk(1.0, a, accuracy="exact")
    assert [(each.operator, each.count) for each in run.account.entries] == [("syrk", 1)]


A, B = np.ones((3, 3)), np.ones((3, 2))

REFUSED = {
    "shape of a": (lambda: linalg.trmm(1, A[:2], B), r"^a: shape \(2, 3\); expected a square matrix"),
    "shape of b": (lambda: linalg.trmm(1, A, B.T), r"^b: shape \(2, 3\) does not fit a .*; expected \(3, columns\)"),
    "rows": (lambda: linalg.symm(1, A, B, side=1), r"^b: shape \(3, 2\) does not fit a .*; expected \(rows, 3\)"),
    "vector": (lambda: linalg.trmm(1, A, B[:, 0]), r"^b: shape \(3,\)"),
    "side": (lambda: linalg.trmm(1, A, B, "right"), "^side: 'right'; expected 0 or 1"),
    "lower": (lambda: linalg.symm(1, A, B, lower=2), "^lower: 2; expected 0 or 1"),
    "trans": (lambda: linalg.trmm(1, A, B, trans_a=3), "^trans_a: 3; expected 0, 1 or 2"),
    "diag": (lambda: linalg.trmm(1, A, B, diag="U"), "^diag: 'U'; expected 0 or 1"),
    "c": (lambda: linalg.symm(1, A, B, 1, A), r"^c: shape \(3, 3\)"),
    "square c": (lambda: linalg.syrk(1, A, 1, B), r"^c: shape \(3, 2\); expected a square matrix"),
    "one axis": (lambda: linalg.syrk(1, A[0]), r"^a: shape \(3,\); expected a matrix"),
    "complex": (lambda: linalg.syrk(1, A * 1j, trans=2), "^trans: 2 of a complex matrix; expected 0 or 1"),
    "hermitian": (lambda: linalg.herk(1, A * 1j, trans=1), "^trans: 1 of a complex matrix; expected 0 or 2"),
    "alpha": (lambda: linalg.herk(1j, A), "^alpha: 1j; expected a real number"),
    "beta": (lambda: linalg.herk(1, A, 1 + 1j, A), r"^beta: \(1\+1j\); expected a real number"),
    "16 bits": (lambda: linalg.syrk(1, A.astype("f2"), accuracy="fp16"), "^accuracy: 'fp16' is of .* so omit it"),
    "16-bit result": (lambda: linalg.symm(1, A, B, dtype="float16"), "^dtype: 'float16' is of .* so omit it"),
}


@pytest.mark.parametrize("function", [linalg.hemm, linalg.herk, linalg.symm, linalg.syrk, linalg.trmm])
def test_operands_of_16_bits_count_as_float32(function):
    """So no function has a result of 16 bits, whose error would ask for operands that the caller has given."""
    x = A.astype("f2")
    operands = (x,) if function in (linalg.herk, linalg.syrk) else (x, x)
    assert function(1, *operands).dtype == np.float32
    with pytest.raises(ValueError, match=f"to {function.__name__} operands of 16 bits are"):
        function(1, *operands, accuracy="fp16")


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_had_is_refused(name):
    call, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        call()


def test_dtypes_are_refused_by_the_name_of_the_argument():
    for side in (0, 1):
        with pytest.raises(TypeError, match=r"^a: dtype <U1 "):
            linalg.symm(1, np.full((2, 2), "x"), np.ones((2, 2)), side=side)
        with pytest.raises(TypeError, match=r"^b: dtype <U1 "):
            linalg.symm(1, np.ones((2, 2)), np.full((2, 2), "x"), side=side)
