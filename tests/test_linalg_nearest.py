"""Solutions, inverses, factors and eigenvalues whose every entry is the float nearest to the exact one."""

import os
import subprocess
import sys
from fractions import Fraction
from itertools import pairwise
from math import inf

import flint
import numpy as np
import pytest
from exact_linalg import fractions, parts

import ozaki
from ozaki import Accuracy, linalg
from ozaki.linalg.common.targets import Target
from ozaki.linalg.nearest import settling
from ozaki.linalg.nearest.cholesky import _Definite
from ozaki.linalg.nearest.eigenvalues import nearest_eigenvalues
from ozaki.linalg.nearest.intervals import KNOWN, Interval, Rounded, exponent_above, rounded
from ozaki.linalg.nearest.lu import _Square
from ozaki.linalg.nearest.qr import _Tall
from ozaki.linalg.nearest.quotients import by_roots, quotients
from ozaki.linalg.nearest.solutions import _Equations

# Exact results -------------------------------------------------------------------------------------------------------


class Gaussian:
    """A complex number with fractions as its parts."""

    def __init__(self, real, imag=Fraction(0)):
        self.real, self.imag = real, imag

    def __bool__(self):
        return bool(self.real or self.imag)

    def __sub__(self, y):
        return Gaussian(self.real - y.real, self.imag - y.imag)

    def __add__(self, y):
        return Gaussian(self.real + y.real, self.imag + y.imag)

    def __mul__(self, y):
        return Gaussian(self.real * y.real - self.imag * y.imag, self.real * y.imag + self.imag * y.real)

    def __truediv__(self, y):
        size = y.real**2 + y.imag**2
        found = self * y.conjugate()
        return Gaussian(found.real / size, found.imag / size)

    def conjugate(self):
        return Gaussian(self.real, -self.imag)


def gaussian(x):
    x = ozaki.mparray(x)
    each = zip(fractions(x.real).flat, fractions(x.imag).flat, strict=True)
    found = np.empty(x.shape, object)
    found.flat = [Gaussian(*pair) for pair in each]
    return found


def eliminated(a, columns, choice=None):
    """Rows of the upper factor, the unit lower one, and the order of the rows."""
    a, order = a.copy(), [*range(len(a))]
    low = np.full((len(a), columns), Gaussian(Fraction(0)))
    for k in range(columns):
        if choice is not None:
            place = k + choice(a[k:, k])
            for x in (a, low):
                x[[k, place]] = x[[place, k]]
            order[k], order[place] = order[place], order[k]
        low[k, k] = Gaussian(Fraction(1))
        for i in range(k + 1, len(a)):
            low[i, k] = a[i, k] / a[k, k]
            a[i] = a[i] - a[k] * low[i, k]
    return a, low, order


def largest(column):
    sizes = [abs(x.real) + abs(x.imag) for x in column]
    return sizes.index(max(sizes))


def exact_solution(a, b):
    n = len(a)
    rows, _, _ = eliminated(np.concatenate([gaussian(a), gaussian(b)], axis=1), n, largest)
    for k in reversed(range(n)):
        rows[k] = rows[k] / rows[k, k]
        for i in range(k):
            rows[i] = rows[i] - rows[k] * rows[i, k]
    return rows[:, n:]


def check_number(x, exact, square=Fraction(1)):
    """Whether each part of a float is nearest to that of exact / sqrt(square), ties to even."""
    for part, wanted in ((x.real, exact.real), (x.imag, exact.imag)):
        kind = np.asarray(part).dtype.type
        part = kind(part)
        assert np.isfinite(part) and not (part == 0 and np.signbit(part))
        middles = [(Fraction(float(part)) + Fraction(float(np.nextafter(part, kind(to))))) / 2 for to in (-inf, inf)]
        # m and wanted / sqrt(square) compare as the squares with signs do.
        of_wanted = wanted * abs(wanted) / square
        below, above = (m * abs(m) for m in middles)
        assert below <= of_wanted <= above
        if of_wanted in (below, above):
            bits = {4: np.uint32, 8: np.uint64}[part.itemsize]
            assert int(part.view(bits)) % 2 == 0


def check_array(found, exact, squares=None):
    assert found.shape == exact.shape
    for index in np.ndindex(found.shape):
        check_number(found[index], exact[index], Fraction(1) if squares is None else squares[index[1]])


def check_solution(found, a, b, measure="normwise"):
    exact = exact_solution(a, b)
    check_array(found.x, exact)
    sizes = np.array([[x.real**2 + x.imag**2 for x in row] for row in exact], object)
    missed = np.array([[x.real**2 + x.imag**2 for x in row] for row in gaussian(found.x) - exact], object)
    if measure == "normwise":
        sizes, missed = sizes.max(axis=0), missed.max(axis=0)
    assert (missed <= sizes * Fraction(found.error_bound) ** 2).all()


def check_lu(found, a):
    exact, low, order = eliminated(gaussian(a), len(a), largest)
    assert found.p.tolist() == order
    check_array(found.l, low)
    for index in np.ndindex(a.shape):
        check_number(found.u[index], exact[index] if index[0] <= index[1] else Gaussian(Fraction(0)))
    check_product(gaussian(a)[found.p], found.l, found.u, found.error_bound)


def check_cholesky(found, a):
    exact, _, _ = eliminated(gaussian(a), len(a))
    # Row k of the upper factor of A over the root of its diagonal is row k of L^H.
    low = np.array([[x.conjugate() for x in row] for row in exact]).T
    low = np.where(np.tri(len(a), dtype=bool), low, Gaussian(Fraction(0)))
    check_array(found.l, low, [exact[k, k].real for k in range(len(a))])
    check_product(gaussian(a), found.l, found.l.conj().T, found.error_bound)


def check_qr(found, a):
    exact, adjoint = gaussian(a), gaussian(a.conj().T)
    n = a.shape[1]
    rows, _, _ = eliminated(np.concatenate([adjoint.dot(exact), adjoint], axis=1), n)
    squares = [rows[k, k].real for k in range(n)]
    q = np.array([[x.conjugate() for x in row[n:]] for row in rows]).T
    check_array(found.q, q, squares)
    r = np.where(np.tri(n, k=-1, dtype=bool), Gaussian(Fraction(0)), rows[:, :n])
    check_array(found.r.T, r.T, squares)
    check_product(exact, found.q, found.r, found.error_bound, by_columns=True)
    check_product(gaussian(np.eye(n)), found.q.conj().T, found.q, found.error_bound)


def check_product(wanted, x, y, bound, by_columns=False):
    of_x, of_y = gaussian(x), gaussian(y)
    rest = wanted - of_x.dot(of_y)
    squares = [np.array([[z.real**2 + z.imag**2 for z in row] for row in each], object) for each in (of_x, of_y)]
    rows, columns = squares[0].sum(axis=1), squares[1].sum(axis=0)
    for i, j in np.ndindex(rest.shape):
        size = columns[j] * (1 if by_columns else rows[i])
        assert rest[i, j].real ** 2 + rest[i, j].imag ** 2 <= Fraction(bound) ** 2 * size


# Problems ------------------------------------------------------------------------------------------------------------


def drawn(rng, m, n, family, is_complex=False):
    """A matrix of a family; its real parts, and of complex matrices imaginary ones, are drawn alike."""
    if is_complex:
        return drawn(rng, m, n, family) + 1j * drawn(rng, m, n, family)
    if family == "integers":
        return rng.integers(-3, 4, (m, n)).astype(float)
    if family == "sparse":
        return rng.integers(-3, 4, (m, n)) * (rng.random((m, n)) < 0.4) + 4.0 * np.eye(m, n)
    if family == "graded":
        return rng.standard_normal((m, n)) * 2.0 ** rng.integers(-40, 41, (m, n))
    if family == "rows":
        return rng.standard_normal((m, n)) * 10.0 ** rng.integers(-140, 141, (m, 1))
    if family == "few bits":
        return np.round(rng.standard_normal((m, n)) * 16) / 16 + 2.0**-50 * rng.integers(-1, 2, (m, n))
    if family == "near singular":
        found = rng.integers(-3, 4, (m, n)).astype(float)
        found[-1] = found[0] + found[1 % m] + 2.0**-45 * rng.integers(-2, 3, n)
        return found
    return rng.standard_normal((m, n))


FAMILIES = ("normal", "integers", "sparse", "graded", "rows", "few bits", "near singular")


def is_regular(a):
    try:
        exact_solution(a, np.zeros((len(a), 1)))
    except ZeroDivisionError:
        return False
    return True


def definite(rng, n, family, is_complex):
    """A positive definite matrix of floats: integers or numbers of few bits times their adjoint, exactly."""
    x = drawn(rng, n, n, family, is_complex)
    if family not in ("integers", "sparse"):
        x = np.round(x * 2**10 / max(abs(x).max(), 1e-300)) / 2**6
    a = x @ x.conj().T + np.eye(n) * 2.0 ** int(rng.integers(-4, 5))
    if family == "rows":
        scales = 2.0 ** rng.integers(-200, 201, n)
        a = a * scales[:, None] * scales
    return a


def check_call(function, rng):
    """A random call, whose result is judged by fractions."""
    n, family = int(rng.integers(1, 7)), str(rng.choice(FAMILIES))
    is_complex = rng.random() < 0.4
    dtype = [None, "complex64" if is_complex else "float32"][rng.random() < 0.2]
    if family == "rows":
        dtype = None
    if function == "cholesky":
        a = definite(rng, n, family, is_complex)
        check_cholesky(linalg.cholesky(a, dtype=dtype, reproducible=True), a)
        return
    m = n + int(rng.integers(0, 4)) if function == "qr" else n
    a = drawn(rng, m, n, family, is_complex)
    b, judge = None, {"lu": check_lu, "qr": check_qr}.get(function)
    if function == "solve":
        x = ozaki.mparray(rng.integers(-2, 3, (n, 2))) * ozaki.mparray(1 + 2.0**-52).ldexp(-1)
        b = drawn(rng, n, 2, family, is_complex) if rng.random() < 0.5 else ozaki.matmul(a, x, dtype="mp")
    options = {"reproducible": True, "dtype": dtype or a.dtype}
    try:
        if judge is not None:
            judge(getattr(linalg, "lu_factor" if function == "lu" else "qr")(a, **options), a)
        elif function == "inv":
            check_solution(linalg.inv(a, **options), a, np.eye(n))
        else:
            check_solution(linalg.solve(a, b, **options), a, b)
    except (np.linalg.LinAlgError, OverflowError):
        # What is refused is refused without the option, too.
        options["reproducible"] = False
        with pytest.raises((np.linalg.LinAlgError, OverflowError)):
            {"lu": linalg.lu_factor, "qr": linalg.qr, "inv": linalg.inv, "solve": linalg.solve}[function](
                *((a,) if b is None else (a, b)), **options
            )


FUNCTIONS = ("solve", "inv", "cholesky", "lu", "qr")


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_entry_is_the_nearest(function, rng):
    for _ in range(8):
        check_call(function, rng)


@pytest.mark.full
@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_entry_of_many_is_the_nearest(function, rng):
    for _ in range(100):
        check_call(function, rng)


# Boundaries ----------------------------------------------------------------------------------------------------------


def test_a_solution_halfway_between_two_floats_is_rounded_to_even():
    x = linalg.solve([[1.0, -1.0], [0.0, 1.0]], [1.0, 2.0**-53], reproducible=True).x
    assert x.tolist() == [1.0, 2.0**-53]
    x = linalg.solve([[1.0, -1.0], [0.0, 1.0]], [1 + 2.0**-52, 2.0**-53], accuracy="exact").x
    assert x[0] == 1 + 2.0**-51
    x = linalg.solve([[2.0, -3.0], [3.0, 1.0]], [2 - 3 * 2.0**-24, 3 + 2.0**-24], dtype="float32", reproducible=True).x
    assert x.tolist() == [1.0, 2.0**-24] and x.dtype == np.float32


def test_a_midpoint_beside_a_third_takes_exact_elimination(monkeypatch):
    # A solution of numbers of few bits alone would be proven by its residual.
    a = np.array([[1.0, 0.0, 1.0], [0.0, 3.0, 0.0], [1.0, 0.0, -1.0]])
    middle = ozaki.mparray(1) + ozaki.mparray(1).ldexp(-53)
    b = ozaki.mparray([1, 0, 1]) * middle + ozaki.mparray([0, 1, 0])
    found = linalg.solve(a, b, dtype="float64", reproducible=True).x
    assert found.tolist() == [1.0, 1 / 3, 0.0]
    monkeypatch.setattr(settling, "AFFORDABLE", 0.0)
    with pytest.raises(np.linalg.LinAlgError, match=r"reproducible: x\[0, 0\] is 0, or lies on a boundary"):
        linalg.solve(a, b, dtype="float64", reproducible=True)


def midpoints(n, rng):
    """A unit lower triangular matrix of midpoints between floats, and zeros."""
    low = np.tril(rng.integers(-2, 3, (n, n)), -1)
    return ozaki.mparray(low / 4.0) + ozaki.mparray(low).ldexp(-55) + np.eye(n)


def test_factors_of_midpoints(rng):
    low = midpoints(5, rng)
    a = ozaki.matmul(low, low.T, accuracy="exact", dtype="mp")
    check_cholesky(linalg.cholesky(a, dtype="float64", reproducible=True), a)
    a = ozaki.matmul(low, low.T * 3, accuracy="exact", dtype="mp")
    check_lu(linalg.lu_factor(a, dtype="float64", reproducible=True), a)
    check_cholesky(linalg.cholesky(a, dtype="float64", reproducible=True), a)


def test_zeros_of_large_banded_matrices_follow_from_their_places(monkeypatch):
    monkeypatch.setattr(settling, "AFFORDABLE", 0.0)
    n = 60
    a = 2.5 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
    low = linalg.cholesky(a, reproducible=True).l
    assert not np.tril(low, -2).any() and (np.diagonal(low, -1) < 0).all()
    factors = linalg.lu_factor(a, reproducible=True)
    assert not np.tril(factors.l, -2).any() and not np.triu(factors.u, 2).any()
    r = linalg.qr(a, reproducible=True).r
    assert not np.triu(r, 3).any()
    assert not np.triu(linalg.inv(np.tril(a), reproducible=True).x, 1).any()


def test_zeros_that_elements_cancel_to_are_decided_exactly():
    a = np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 3.0], [1.0, 2.0, 1.0]]) * 3
    factors = linalg.lu_factor(a, reproducible=True)
    check_lu(factors, a)
    assert factors.p.tolist() == [0, 2, 1] and factors.l[2, 1] == 0
    check_solution(linalg.inv(a, reproducible=True), a, np.eye(3))
    a = np.array([[1.0, 1.0, 1.0], [1.0, 2.0, 1.0], [1.0, 1.0, 4.0]]) / 3 * 3
    check_cholesky(linalg.cholesky(a, reproducible=True), a)


# The order of rows ---------------------------------------------------------------------------------------------------


def test_of_equal_pivots_the_first_is_taken():
    a = np.array([[1.0, 2.0, 0.0], [-1.0, 1.0, 1.0], [1.0, 1.0, 5.0]])
    factors = linalg.lu_factor(a, reproducible=True)
    assert factors.p.tolist() == [0, 1, 2]
    check_lu(factors, a)
    # What is left of a complex column is compared, not the minors over whose quotients it is.
    a = np.array([[-3j, -1 + 3j, -2 - 1j, -3 - 1j], [1 - 2j, -2 + 2j, -2 - 1j, 3 - 2j]])
    a = np.concatenate([a, [[1j, 2, 1, -3 + 1j], [-2 + 2j, -2 + 2j, -3 - 1j, 2 - 2j]]])
    check_lu(linalg.lu_factor(a, reproducible=True), a)
    # In float64 the last two rows tie in the second column; the last one is larger.
    a = np.array([[3.0, 1.0, 0.0], [1.0, 1.0, 1.0], [1.0 + 2.0**-52, 1.0, 2.0]])
    check_lu(linalg.lu_factor(a, reproducible=True), a)


def test_rows_that_tie_in_a_large_matrix_are_refused(monkeypatch):
    monkeypatch.setattr(settling, "AFFORDABLE", 0.0)
    with pytest.raises(np.linalg.LinAlgError, match="a row that may be the 1th pivot is as good as the 0th one"):
        linalg.lu_factor(np.array([[1.0, 2.0], [-1.0, 1.0]]), reproducible=True)


def test_factors_solve_systems():
    a = np.array([[1.0, 2.0], [3.0, 4.0]])
    factors = linalg.lu_factor(a, reproducible=True)
    assert linalg.lu_solve(factors, np.array([5.0, 11.0])).x.tolist() == [1.0, 2.0]


# Eigenvalues ---------------------------------------------------------------------------------------------------------


def eigenvalues(a, dtype="float64", measure="normwise"):
    target = Target(measure, 2.0**-53, dtype)
    values, bounds, _ = nearest_eigenvalues(
        a, target, lambda bits: linalg.eigh(a, accuracy=bits, dtype="mp"), slice(0, len(a))
    )
    unit = 2.0**-24 if values.dtype == np.float32 else 2.0**-53
    assert (bounds <= unit * (1 + 2.0**-30)).all() and ((bounds > 0) == (values != 0)).all()
    return values


def check_eigenvalues(values, a):
    """Whether each value is nearest to the eigenvalue of its place: roots are counted by Descartes, all being real."""
    matrix = parts(ozaki.mparray(a))  # which has each eigenvalue twice
    rows = [[flint.fmpq(x.numerator, x.denominator) for x in row] for row in matrix]
    polynomial = flint.fmpq_mat(rows).charpoly()

    def above(x):
        """How many eigenvalues are above x, or are x, and how many are x alone."""
        moved = polynomial(flint.fmpq_poly([flint.fmpq(x.numerator, x.denominator), 1]))
        signs = [(c > 0) - (c < 0) for c in moved.coeffs()]
        zeros = next(i for i, sign in enumerate(signs) if sign)
        kept = [sign for sign in signs if sign]
        return sum(x != y for x, y in pairwise(kept)) // 2, zeros // 2

    n = len(a)
    for k, x in enumerate(values):
        below, over = ((Fraction(float(x)) + Fraction(float(np.nextafter(x, to)))) / 2 for to in (-inf, inf))
        (larger, equal), (larger_over, equal_over) = above(below), above(over)
        even = int(x.view(np.uint64)) % 2 == 0
        # The eigenvalue is above `below`, or on it and rounded to even; and so at the other end.
        assert n - k <= larger + (equal if even else 0)
        assert n - 1 - k >= larger_over + (0 if even else equal_over)
    assert not np.signbit(values[values == 0]).any()


def test_eigenvalues_halfway_between_two_floats():
    assert eigenvalues(np.array([[1.0, 2.0**-53], [2.0**-53, 1.0]])).tolist() == [1 - 2.0**-53, 1.0]
    assert eigenvalues(np.array([[1.0, 2.0**-54], [2.0**-54, 1.0]])).tolist() == [1.0, 1.0]
    found = eigenvalues(np.array([[2.0, -(2.0**-51) * 1.5j], [2.0**-51 * 1.5j, 2.0]]), "complex128")
    assert found.tolist() == [2 - 2.0**-51 * 1.5, 2 + 2.0**-50] and found.dtype == np.float64
    assert eigenvalues(np.array([[1.0, 2.0**-24], [2.0**-24, 1.0]]), "float32").tolist() == [1 - 2.0**-24, 1.0]


def test_eigenvalues_are_the_nearest(rng):
    for _ in range(12):
        n, family = int(rng.integers(1, 6)), str(rng.choice(["normal", "integers", "sparse", "few bits"]))
        is_complex = rng.random() < 0.4
        a = drawn(rng, n, n, family, is_complex)
        a = (a + a.conj().T) / 2
        check_eigenvalues(eigenvalues(a, a.dtype.name), a)


def test_a_zero_eigenvalue_is_exact_or_refused(monkeypatch):
    a = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 3.0]])
    assert eigenvalues(a).tolist() == [0.0, 2.0, 3.0]
    assert eigenvalues(np.zeros((2, 2))).tolist() == [0.0, 0.0]
    # No diagonal element of what is left is a pivot.
    a = np.array([[0.0, 1.0j, 0.0], [-1.0j, 0.0, 0.0], [0.0, 0.0, 0.0]])
    assert eigenvalues(a, "complex128").tolist() == [-1.0, 0.0, 1.0]
    monkeypatch.setattr("ozaki.linalg.nearest.eigenvalues.AFFORDABLE", 0.0)
    monkeypatch.setattr(settling, "MOST_BITS", 100)
    with pytest.raises(np.linalg.LinAlgError, match="eigenvalue 1 is 0, or lies on a boundary"):
        eigenvalues(a, "complex128")


@pytest.mark.parametrize("affordable", [True, False])
def test_eigenvalues_that_a_format_rounds_to_zero(affordable, monkeypatch):
    if not affordable:
        monkeypatch.setattr("ozaki.linalg.nearest.eigenvalues.AFFORDABLE", 0.0)
    for small in (2.0**-151, -(2.0**-160), 2.0**-700):
        a = np.array([[small, 0.0], [0.0, 0.5]])
        values, bound, bounds, _ = linalg.eigvalsh(a, reproducible=True, dtype="float32")
        assert values.tolist() == [0.0, 0.5] and not np.signbit(values[0]) and bound == bounds.max()
        assert abs(Fraction(small)) / Fraction(1, 2) <= Fraction(bounds[0]) <= Fraction(2) ** -148
        with pytest.raises(OverflowError, match=r"^dtype: elements of the result are too small for float32"):
            linalg.eigvalsh(a, reproducible=True, dtype="float32", accuracy=ozaki.Accuracy("relative", 1e-9))
        with pytest.raises(OverflowError, match=r"^dtype: elements of the result are too small for float32"):
            linalg.eigvalsh(a * 2.0**-200, reproducible=True, dtype="float32")
        with pytest.raises(OverflowError, match=r"^dtype: an eigenvalue is too large for float32"):
            linalg.eigvalsh(a * 2.0**200, reproducible=True, dtype="float32")
    # Half the smallest number is halfway between that and zero, which is even.
    if affordable:
        for small in (2.0**-150, -(2.0**-150)):
            found = linalg.eigvalsh(np.diag([small, 1.0]), reproducible=True, dtype="float32")
            assert found.values.tolist() == [0.0, 1.0] and 2.0**-150 <= found.error_bounds[0] <= 2.0**-149


def test_no_bound_of_an_eigenvalue_is_zero_because_it_underflowed():
    found = linalg.eigvalsh(np.array([[1.0, 0.5], [0.5, 1.0]]) * 2.0**900, reproducible=True)
    assert (found.error_bounds > 0).all()
    a = ozaki.mparray(np.diag([1.0, 3.0])).ldexp(np.array([[0, 0], [0, -840]])) * ozaki.mparray("1/3", bits=900)
    found = linalg.eigvalsh(a.ldexp(200), reproducible=True, dtype="float64")
    exact = fractions(a.ldexp(200)).diagonal()[::-1]
    for x, y, bound in zip(found.values, exact, found.error_bounds, strict=True):
        assert abs(Fraction(float(x)) - y) <= Fraction(bound) * exact[1] and bound


# What is promised besides --------------------------------------------------------------------------------------------


def test_exact_elimination_and_intervals_agree(rng, monkeypatch):
    for is_complex in (False, True):
        a = drawn(rng, 7, 7, "normal", is_complex)
        s = a @ a.conj().T + np.eye(7)
        functions = [lambda a=a: linalg.inv(a, reproducible=True), lambda s=s: linalg.cholesky(s, reproducible=True)]
        functions += [lambda a=a: linalg.lu_factor(a, reproducible=True), lambda a=a: linalg.qr(a, reproducible=True)]
        for function in functions:
            with monkeypatch.context() as patch:
                patch.setattr(settling, "AFFORDABLE", 0.0)
                by_intervals = function()
            with monkeypatch.context() as patch:
                patch.setattr(settling, "rounded", undecided)
                exactly = function()
            for x, y in zip(by_intervals, exactly, strict=True):
                if isinstance(x, np.ndarray):
                    assert x.tobytes() == y.tobytes()


@pytest.mark.parametrize("is_complex", [False, True])
def test_intervals_hold_the_exact_numbers(is_complex, rng):
    for family in ("normal", "graded", "few bits", "near singular"):
        a = drawn(rng, 5, 5, family, is_complex)
        if not is_regular(a):
            continue
        b, s = drawn(rng, 5, 2, "normal"), definite(rng, 5, "normal", is_complex)
        problems = [
            _Equations(a, b, lambda bits, a=a, b=b: linalg.solve(a, b, accuracy=bits, dtype="mp")),
            _Definite(s, lambda bits, s=s: linalg.cholesky(s, accuracy=bits, dtype="mp")),
            _Square(a, lambda bits, a=a: linalg.lu_factor(a, accuracy=bits, dtype="mp")),
            _Tall(a, lambda bits, a=a: linalg.qr(a, accuracy=bits, dtype="mp")),
        ]
        for problem in problems:
            # A quotient is cut off after 130 bits, which is little beside these errors.
            intervals = problem.enclose(int(rng.integers(55, 90)))
            masks = [np.ones(each.x.shape, np.bool_) for each in intervals]
            for (x, errors), exact in zip(intervals, problem.exact(masks), strict=True):
                off = ozaki.mparray(np.ones(x.shape)).ldexp(np.maximum(np.broadcast_to(errors, x.shape), -900))
                off = off + abs(exact.real).max() * ozaki.mparray(1).ldexp(-128)
                missed = x - exact
                for part in (missed.real, missed.imag) if missed.is_complex else (missed,):
                    assert (abs(part) <= off).all()


def test_what_a_quotient_is_cut_off_by_still_counts():
    middle, far = 2**53 + 1, 2**400
    over = np.array([[middle * far, middle * far + 1, middle * far - 1, -middle * far - 1, 0]], object)
    wanted = [2.0**53, 2.0**53 + 2, 2.0**53, -(2.0**53) - 2, 0.0]
    assert quotients((over,), far, 0).astype("float64").tolist() == [wanted]
    assert by_roots((over,), far * far, 0).astype("float64").tolist() == [wanted]
    assert quotients((over,), -far, 3).astype("float64").tolist() == [[-8 * x for x in wanted]]
    # (middle far)^2 / y lies just below the square of the midpoint for y one larger.
    assert by_roots((over[:, :1],), far * far + 1, 0).astype("float64").tolist() == [[2.0**53]]
    assert by_roots((over[:, :1] + 2 * far,), far * far - 1, 0).astype("float64").tolist() == [[2.0**53 + 4]]


def test_numbers_that_are_known_exactly():
    x = ozaki.mparray([1, 1]) + ozaki.mparray([1, 3]).ldexp(-53)  # midpoints
    for errors in (np.array([KNOWN, KNOWN + 2**50]), exponent_above([0.0, 0.0]) + np.array([2000, -2000])):
        found = rounded(Interval(x, errors), "float64")
        assert found.decided.all() and found.low.tolist() == [1.0, 1 + 2.0**-51] and not found.may_vanish.any()
    found = rounded(Interval(x, np.array([-5000, -54])), "float64")
    assert not found.decided.any() and (found.low < found.high).all()


def undecided(interval, dtype):
    """Intervals of which nothing is decided."""
    real = np.zeros(interval.x.shape + (2,) * interval.x.is_complex, np.float64)
    return Rounded(real, real + 1, real == 1)


def test_underflow():
    a = np.array([[2.0, 0.0], [0.0, 1.0]])
    b = np.array([[5e-324], [1.0]])
    found = linalg.solve(a, b, reproducible=True)
    assert found.x.tolist() == [[0.0], [1.0]] and found.error_bound == linalg.solve(a, a, reproducible=True).error_bound
    b = np.array([[3 * 5e-324], [5e-324]])
    found = linalg.solve(a, b, reproducible=True)
    assert found.x.tolist() == [[2 * 5e-324], [5e-324]]
    check_solution(found, a, b)
    with pytest.raises(OverflowError, match="too small for float64"):
        linalg.solve(a, np.array([5e-324, 0.0]), reproducible=True)
    with pytest.raises(OverflowError, match="too small for float64"):
        linalg.solve(a, np.array([5e-324, 1.0]), accuracy=Accuracy("relative", 2.0**-53), reproducible=True)
    with pytest.raises(OverflowError, match="too large for float64"):
        linalg.solve(a / 4, np.array([1e308, 1.0]), reproducible=True)


def test_relative_bounds():
    a, b = np.array([[2.0, 1.0], [1.0, 3.0]]), np.array([[1.0], [1e-300]])
    found = linalg.solve(a, b, accuracy=Accuracy("relative", 1e-3), reproducible=True)
    check_solution(found, a, b)
    assert found.error_bound < 1.2e-16


def test_what_is_refused():
    a = np.eye(2)
    for function in (linalg.inv, linalg.cholesky, linalg.lu_factor, linalg.qr):
        with pytest.raises(ValueError, match="reproducible: the result has the format mp"):
            function(a, dtype="mp", reproducible=True)
        with pytest.raises(TypeError, match="reproducible: 'yes'; expected True or False"):
            function(a, reproducible="yes")
        with pytest.raises(np.linalg.LinAlgError):
            function(np.ones((2, 2)), accuracy="exact")
    with pytest.raises(ValueError, match="reproducible: the result has the format mp"):
        linalg.solve(a, ozaki.mparray([1, 2]), reproducible=True)


@pytest.mark.parametrize("shape", [(0,), (0, 2)])
def test_nothing(shape):
    found = linalg.solve(np.zeros((0, 0)), np.zeros(shape), reproducible=True)
    assert found.x.shape == shape and found.error_bound == 0
    for function in (linalg.inv, linalg.cholesky, linalg.lu_factor, linalg.qr):
        assert function(np.zeros((0, 0)), reproducible=True).error_bound == 0


def test_singular_matrices_without_right_hand_sides_are_refused():
    assert linalg.solve(np.eye(2), np.zeros((2, 0)), reproducible=True).x.shape == (2, 0)
    for singular in (np.ones((2, 2)), np.array([np.eye(2), np.ones((2, 2))])):
        with pytest.raises(np.linalg.LinAlgError, match=r"^a: singular"):
            linalg.solve(singular, np.zeros((2, 0)), reproducible=True)


def test_what_is_recorded_is_one_result():
    with ozaki.recording() as found:
        linalg.solve(np.eye(3), np.ones(3), reproducible=True)
    assert found.results.products == 1 and found.inside


_BITS = """
import hashlib, numpy as np
from ozaki import linalg
rng = np.random.default_rng(58)
a = rng.standard_normal((24, 24))
c = a + 1j * rng.standard_normal((24, 24))
for x in (a, c, np.round(a * 2)):
    s = x @ x.conj().T + 40 * np.eye(24)
    s = np.round(s * 2**20) / 2**20
    for found in (linalg.solve(x, x[:, :3] + 1, reproducible=True), linalg.inv(x, reproducible=True),
                  linalg.cholesky(s, reproducible=True), linalg.lu_factor(x, reproducible=True),
                  linalg.qr(x, reproducible=True)):
        items = [each for each in found if isinstance(each, np.ndarray)]
        print(hashlib.sha256(b"".join(map(np.ndarray.tobytes, items))).hexdigest(), found.error_bound)
"""


@pytest.mark.full
def test_bits_are_those_of_every_processor():
    printed = [
        subprocess.run(
            [sys.executable, "-c", _BITS],
            env={**os.environ, "OPENBLAS_CORETYPE": kind, "OPENBLAS_NUM_THREADS": threads},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for kind, threads in (("Haswell", "1"), ("SkylakeX", "2"), ("Prescott", "1"))
    ]
    assert len(printed[0].split()) == 30 and printed.count(printed[0]) == 3
