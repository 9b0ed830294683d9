"""Eigenvalues of general matrices: bounds hold against balls of FLINT, in some pairing of values."""

from fractions import Fraction

import numpy as np
import pytest
from flint import acb, acb_mat, arb, ctx, fmpq, fmpq_mat
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_bipartite_matching

import ozaki
from ozaki import Accuracy, linalg, mparray
from ozaki.linalg.spectra import similarity
from ozaki.linalg.spectra.balancing import balance, on_diagonal
from ozaki.linalg.spectra.conjugates import Pairs
from ozaki.linalg.spectra.discs import discs, groups, reach, turned


@pytest.fixture(autouse=True)
def precision():
    before, ctx.prec = ctx.prec, 1500
    yield
    ctx.prec = before


def balls(x):
    """Numbers of FLINT, exactly, in an array of objects."""
    x = mparray(x)
    found = np.empty(x.shape, object)
    for i, (re, im) in enumerate(zip(x.real.to_fractions().flat, x.imag.to_fractions().flat, strict=True)):
        found.flat[i] = acb(*(arb(fmpq(part.numerator, part.denominator)) for part in (re, im)))
    return found


def exact_values(a):
    """Balls that contain the eigenvalues of a matrix, with multiplicities."""
    try:
        return acb_mat(balls(a).tolist()).eig(multiple=True)
    except ValueError:  # of some multiple ones; the characteristic polynomial of real matrices has them
        rows = [[fmpq(x.numerator, x.denominator) for x in row] for row in mparray(a).to_fractions()]
        return [x for x, count in fmpq_mat(rows).charpoly().complex_roots() for _ in range(count)]


def holds(found, exact, relative=False):
    """Whether values can be paired with exact ones so that all bounds hold."""
    values, n = balls(found.values), len(exact)
    sizes = [abs(x) for x in exact]
    largest = max(sizes, key=lambda x: float(x.mid()))
    near = np.zeros((n, n), int)
    for i in range(n):
        for j in range(n):
            allowed = (sizes[j] if relative else largest) * arb(float(found.error_bounds[i]))
            near[i, j] = not abs(values[i] - exact[j]) > allowed
    assert found.error_bound == found.error_bounds.max() and found.error_bounds.dtype == np.float64
    return bool((maximum_bipartite_matching(csr_matrix(near), perm_type="column") >= 0).all())


def sines(a, found):
    """The sines of angles between vectors and exact ones, as balls; of a matrix with different eigenvalues."""
    values, vectors = acb_mat(balls(a).tolist()).eig(right=True)
    vectors, columns, near = np.array(vectors.tolist()), balls(found.vectors), balls(found.values)
    result = []
    for i in range(len(values)):
        j = min(range(len(values)), key=lambda j: float(abs(values[j] - near[i]).mid()))
        x, y = vectors[:, j], columns[:, i]
        share = sum(p.conjugate() * q for p, q in zip(x, y, strict=True)) / sum(abs(p) ** 2 for p in x)
        rest = sum(abs(q - p * share) ** 2 for p, q in zip(x, y, strict=True))
        result.append((rest / sum(abs(q) ** 2 for q in y)).sqrt())
    return result


def frank(n):
    return np.array([[n - max(i, j) if j >= i - 1 else 0.0 for j in range(n)] for i in range(n)])


def grcar(n):
    return np.triu(np.tril(np.ones((n, n)), 3)) - np.eye(n, k=-1)


def companion(n):
    """Of the polynomial with the zeros 1 to n."""
    found = np.diag(np.ones(n - 1), -1)
    found[0] = -np.poly(np.arange(1, n + 1))[1:]
    return found


def similar(rng, blocks):
    """An integer matrix with these Jordan blocks, pairs of an integer eigenvalue and a size."""
    n = sum(size for _, size in blocks)
    jordan, at = np.zeros((n, n), int), 0
    for value, size in blocks:
        part = slice(at, at + size)
        jordan[part, part] = value * np.eye(size, dtype=int) + np.eye(size, k=1, dtype=int)
        at += size
    eye = np.eye(n, dtype=int)
    x = (np.tril(rng.integers(-1, 2, (n, n)), -1) + eye) @ (np.triu(rng.integers(-1, 2, (n, n)), 1) + eye)
    inverse = fmpq_mat([[int(each) for each in row] for row in x]).inv()
    return (x @ jordan @ np.array([[int(each.p) for each in row] for row in inverse.tolist()])).astype(float)


FAMILIES = {
    "random": lambda rng: rng.standard_normal((9, 9)),
    "complex": lambda rng: rng.standard_normal((7, 7)) + 1j * rng.standard_normal((7, 7)),
    "Frank": lambda rng: frank(12),
    "Grcar": lambda rng: grcar(15),
    "companion": lambda rng: companion(10),
    "graded": lambda rng: rng.standard_normal((6, 6)) * 10.0 ** -np.arange(0, 60, 10)[:, None],
    "scaled badly": lambda rng: np.ldexp(
        rng.standard_normal((6, 6)), np.subtract.outer(*2 * [rng.integers(-90, 90, 6)])
    ),
    "normal": lambda rng: np.roll(np.eye(6), 1, axis=0),
    "close": lambda rng: similar(rng, [(1, 1), (2, 1), (3, 1)]) + 2.0**30 * np.eye(3),
    "multiprecision": lambda rng: mparray((rng.standard_normal((5, 5)), 2.0**-70 * rng.standard_normal((5, 5)))),
    "one by one": lambda rng: rng.standard_normal((1, 1)),
}


@pytest.mark.parametrize("options", [{}, {"accuracy": 200, "dtype": "mp"}], ids=["default", "200 bits"])
@pytest.mark.parametrize("name", FAMILIES)
def test_bounds_hold(name, options, rng):
    a = FAMILIES[name](rng)
    found, exact = linalg.eig(a, **options), exact_values(a)
    assert holds(found, exact) and holds(linalg.eigvals(a, **options), exact)
    assert found.error_bound <= (2.0**-200 if options else 2.0**-52)
    assert found.vector_bounds.dtype == np.float64
    for sine, bound in zip(sines(a, found), found.vector_bounds, strict=True):
        assert bound == np.inf or not sine > arb(float(bound))
    if name != "graded":  # whose small eigenvalues are nothing beside the largest
        assert found.vector_bounds.max() < (2.0**-195 if options else 1e-14)
    norms = np.linalg.norm(np.asarray(found.vectors).astype(complex), axis=0)
    assert abs(norms - 1).max() < 1e-7


@pytest.mark.parametrize("blocks", [[(1, 2), (3, 1)], [(-2, 3), (0, 1)], [(1, 4), (2, 1)], [(2, 2), (2, 1), (5, 2)]])
def test_defective_matrices_have_honest_bounds(blocks):
    a = similar(np.random.default_rng(5), blocks)
    exact = [acb(value) for value, size in blocks for _ in range(size)]
    counts = [sum(size for other, size in blocks if other == value) for value, _ in blocks]
    multiple = sum(size for (_, size), count in zip(blocks, counts, strict=True) if count > 1)
    for options in ({"accuracy": 1e-3}, {}, {"accuracy": 80, "dtype": "mp"}):
        found = linalg.eig(a, **options)
        assert holds(found, exact) and np.isinf(found.vector_bounds).sum() == multiple
    assert holds(linalg.eigvals(a), exact)


def test_what_is_not_known_is_refused():
    a = np.array([[3.0, 1.0, 0.0], [-1.0, 1.0, 1.0], [0.0, 0.0, 5.0]])  # 2 twice, and 5
    assert holds(linalg.eig(a, accuracy=200, dtype="mp"), [acb(2), acb(2), acb(5)])
    with pytest.raises(np.linalg.LinAlgError, match=r"^accuracy: not reached by eigenvalues \d \(.*ask for a lower "):
        linalg.eigvals(a, accuracy=890, dtype="mp")


def test_singular_matrices_are_refused_before_many_bits(monkeypatch):
    """An exact determinant proves that an eigenvalue is zero; hundreds of bits would take time."""
    correct = similarity.GeneralDecomposition.correct

    def few(self, goal):
        assert self.steps < 3, "corrections of an eigenvalue that is known to be zero"
        correct(self, goal)

    monkeypatch.setattr(similarity.GeneralDecomposition, "correct", few)
    a = np.array([[4.0, 1.0, 2.0], [1.0, 5.0, 3.0], [5.0, 6.0, 5.0]])  # the last row is the sum of the others
    for x in (a, a + 1j * a, mparray(a).ldexp(-3000)):
        for function in (linalg.eig, linalg.eigvals):
            with pytest.raises(np.linalg.LinAlgError, match=r"^accuracy: not reached .* \d \(.+, to inf\), "):
                function(x, accuracy=Accuracy("relative", 1e-10))


def test_multiple_eigenvalues_of_normal_matrices(rng):
    """Those have a basis of eigenvectors, so that nothing is lost; each cycle of length 3 has the same three."""
    a = np.eye(7)[[1, 2, 0, 4, 5, 3, 6]][:, rng.permutation(7)]
    found, exact = linalg.eig(a, accuracy=300, dtype="mp"), exact_values(a)
    assert holds(found, exact) and found.error_bound < 2.0**-300
    assert linalg.eig(np.eye(3)).values.tolist() == [1, 1, 1]


@pytest.mark.parametrize("kind", ["upper", "lower", "permuted", "nilpotent"])
@pytest.mark.parametrize("form", ["float64", "complex128", "mp"])
def test_eigenvalues_of_triangular_matrices_stand_on_the_diagonal(kind, form, rng):
    a = np.triu(rng.integers(-4, 5, (6, 6)), kind == "nilpotent") * (1 + 1j if form == "complex128" else 1.0)
    exact = sorted(np.diagonal(a).tolist(), key=lambda x: (x.real, x.imag))
    a = a.T if kind == "lower" else a
    if kind == "permuted":
        order = rng.permutation(6)
        a = a[order][:, order]
    a = mparray(a) if form == "mp" else a
    for function in (linalg.eig, linalg.eigvals):
        values, *_ = found = function(a)
        assert sorted(np.asarray(values).tolist(), key=lambda x: (x.real, x.imag)) == exact
        assert found.error_bound == 0


def test_a_triangular_part_is_exact(rng):
    """Eigenvalues on the diagonal, where rows or columns have nothing else, beside those of a block."""
    block = rng.standard_normal((3, 3))
    a = np.block([[np.diag([2.0, 2.0]), rng.standard_normal((2, 3))], [np.zeros((3, 2)), block]])
    a[0, 1] = 1.0  # so that 2 is defective
    found = linalg.eigvals(a)
    assert found.values[:2].tolist() == [2, 2] and found.error_bounds[:2].tolist() == [0, 0]
    assert holds(found, [acb(2), acb(2), *exact_values(block)])
    assert on_diagonal(a).tolist() == [True, True, False, False, False]


def test_conjugates_are_exact_and_real_eigenvalues_real(rng):
    for options in ({}, {"accuracy": 120, "dtype": "mp"}):
        a = rng.standard_normal((9, 9))
        values, vectors, *_ = linalg.eig(a, **options)
        parts = (values.real.to_fractions(), values.imag.to_fractions()) if options else (values.real, values.imag)
        pairs = sorted(zip(*map(np.ndarray.tolist, parts), strict=True))
        assert pairs == sorted((re, -im) for re, im in pairs) and sum(im == 0 for _, im in pairs) % 2 == 1
        real = [i for i, im in enumerate(parts[1]) if im == 0]
        imag = mparray(vectors).imag.to_fractions()
        assert not imag[:, real].any()


def test_the_format_is_real_where_all_eigenvalues_are(rng):
    real, other = np.array([[2.0, 1.0], [1.0, 3.0]]), np.array([[0.0, 1.0], [-1.0, 0.0]])
    for function in (linalg.eig, linalg.eigvals):
        assert function(real).values.dtype == np.float64 and function(other).values.dtype == np.complex128
        assert function(real.astype("float32")).values.dtype == np.float32
        assert function(other.astype("float32")).values.dtype == np.complex64
        assert function(real, dtype="complex128").values.dtype == np.complex128
        assert function(real + 0j).values.dtype == np.complex128
        assert not function(real, dtype="mp").values.is_complex and function(other, dtype="mp").values.is_complex
        with pytest.raises(TypeError, match=r"^dtype: 'float64', but eigenvalue 0 is not real; expected 'complex128'"):
            function(other, dtype="float64")
        with pytest.raises(TypeError, match=r"^dtype: 'float64', but operands are complex"):
            function(real + 0j, dtype="float64")
    found = linalg.eig(real)
    assert found.vectors.dtype == np.float64 and linalg.eig(other).vectors.dtype == np.complex128


def test_relative_accuracy(rng):
    a = rng.standard_normal((6, 6)) * 10.0 ** -np.arange(0, 60, 10)[:, None]
    for options in ({}, {"dtype": "mp"}):
        found = linalg.eigvals(a, accuracy=Accuracy("relative", 1e-20), **options)
        assert holds(found, exact_values(a), relative=True)
        assert found.error_bound < (1e-20 if options else 2.0**-52)
    singular = np.arange(1.0, 10.0).reshape(3, 3)
    assert holds(linalg.eigvals(singular), exact_values(singular))
    with pytest.raises(np.linalg.LinAlgError, match=r"which may be zero, .* or for one relative to the largest$"):
        linalg.eigvals(singular, accuracy=Accuracy("relative", 1e-6))


def test_small_formats_and_ill_conditioned_eigenvalues(rng):
    """Of Frank's matrix with 24 rows float64 finds no digit of half of the eigenvalues."""
    a = frank(24)
    found = linalg.eig(a)
    assert holds(found, exact_values(a)) and found.vector_bounds.max() < 1e-14
    assert abs(np.sort(np.linalg.eigvals(a).real) - np.sort(found.values)).max() > 1e-3
    single = linalg.eig(rng.standard_normal((5, 5)).astype(np.float32), accuracy=1e-4)
    assert single.error_bound < 2e-7 and single.vector_bounds.max() < 2e-7


def test_sizes_far_apart():
    """Of [[1, t], [1 / t, 1]] the eigenvalues are 0 and 2, and vectors (t, -1) and (t, 1)."""
    a = mparray([[1, 1], [1, 1]]).ldexp(np.array([[0, -3000], [3000, 0]]))
    found = linalg.eig(a, accuracy=100)
    assert holds(found, [acb(0), acb(2)]) and found.error_bound < 2.0**-100
    vectors = found.vectors.to_fractions()
    assert abs(abs(vectors[0] / vectors[1]) * Fraction(2) ** 3000 - 1).max() < Fraction(1, 2**90)
    for power in (-1070, 1020):
        scaled = np.ldexp(np.array([[2.0, 1.0], [1.0, 1.0]]), power)
        found, exact = (linalg.eigvals(x, dtype="mp") for x in (scaled, np.ldexp(scaled, -power)))
        assert (found.values == exact.values.ldexp(power)).all()
    with pytest.raises(OverflowError, match=r"^dtype: an element of the result is too large"):
        linalg.eigvals(np.full((2, 2), 1.5e308))
    assert linalg.eigvals(np.full((2, 2), 5e-324)).values.tolist() in ([1e-323, 0], [0, 1e-323])


def test_edges(rng):
    for function in (linalg.eig, linalg.eigvals):
        assert function(np.zeros((0, 0))).values.shape == (0,)
        zero = function(np.zeros((3, 3)))
        assert zero.values.tolist() == [0, 0, 0] and zero.error_bound == 0
        with pytest.raises(ValueError, match=r"^a: shape \(2, 3\); expected a square matrix"):
            function(np.zeros((2, 3)))
        with pytest.raises(ValueError, match=r"^a: element \[0, 1\] is nan"):
            function(np.array([[1, np.nan], [0, 1]]))
        with pytest.raises(ValueError, match=r"^accuracy: "):
            function(np.eye(2), accuracy=0)
    assert linalg.eig(np.zeros((3, 3))).vectors.tolist() == np.eye(3).tolist()
    assert linalg.eig(np.zeros((0, 0))).vectors.shape == (0, 0)
    a = rng.standard_normal((5, 5))
    a.flags.writeable = False
    for view in (a.T, a[::-1, ::-1], np.asfortranarray(a)):
        assert holds(linalg.eigvals(view), exact_values(view))
    assert linalg.eigvals([[0, 1], [-1, 0]]).values.tolist() == [1j, -1j]


def test_discs_of_a_matrix_with_known_eigenvalues():
    """Values of D + E, for E from next to nothing to as large as the gaps, can be paired within the bounds.

    What is known of E is off by as much as its errors allow.
    """
    rng = np.random.default_rng(1)
    for power in np.repeat([-9.0, -4.0, -2.0, -1.0, -0.7, -0.5, -0.3, 0.0], 150):
        n = int(rng.integers(2, 6))
        d = np.round(rng.standard_normal(n) + 1j * rng.standard_normal(n) * rng.integers(0, 2), int(rng.integers(0, 5)))
        phases = np.exp(2j * np.pi * rng.random((n, n)))
        e = phases * rng.random((n, n)) ** 4 * 10.0**power
        e *= 2.0 ** np.subtract.outer(*2 * [rng.integers(-2, 3, n)])
        errors = abs(e) * rng.choice([1e-9, 0.01, 0.5], (n, n)) + 1e-30
        known = e + errors * np.exp(2j * np.pi * rng.random((n, n)))
        d, e = d + np.diagonal(known), e - np.diag(np.diagonal(known))  # the diagonal of E goes to D
        np.fill_diagonal(known, 0)
        gaps = abs(d - d[:, None]) * (1 - 1e-14)
        np.fill_diagonal(gaps, np.inf)
        sizes = abs(known) + errors
        found = discs(gaps, sizes)
        bounds, (values, vectors) = reach(abs(d - d[:, None]), found), np.linalg.eig(np.diag(d) + e)
        near = abs(d[:, None] - values) <= bounds[:, None] + 1e-12 + 1e-6 * 10.0**power
        assert (maximum_bipartite_matching(csr_matrix(near.astype(int)), perm_type="column") >= 0).all()
        change = np.where(found.alone & ~np.eye(n, dtype=bool), known / np.where(gaps == np.inf, 1, d - d[:, None]), 0)
        missed = turned(found, gaps, abs(change), sizes, errors)
        for i in np.flatnonzero(found.alone):
            (j,) = np.flatnonzero(near[i])
            exact = vectors[:, j] / vectors[i, j]
            assert (abs(exact - change[:, i] - np.eye(n)[i]) <= missed[:, i] * (1 + 1e-6) + 1e-12).all()


def test_isolated_discs_shrink_to_their_squares():
    sizes = np.full((3, 3), 1e-10)
    np.fill_diagonal(sizes, 0.0)
    gaps = np.where(np.eye(3), np.inf, 1.0)
    found = discs(gaps, sizes)
    assert 1e-20 < found.radii.max() < 5e-20 and found.alone.all()
    # Of a group, whose members 0 and 1 are one value: [[0, t], [t, 1]] has an eigenvalue near -t**2.
    gaps[0, 1] = gaps[1, 0] = 0.0
    sizes[0, 2] = sizes[2, 0] = 0.1
    found = discs(gaps, sizes)
    assert abs(np.linalg.eigvalsh([[0, 0.1], [0.1, 1]])[0]) < found.radii[0] < 0.02 and not found.alone[:2].any()
    assert groups(np.abs(np.subtract.outer(*2 * [np.array([0, 3, 1, 9])])) < 2.5).tolist() == [1, 1, 1, 0]


def test_bounds_hold_with_inverses_that_are_far_from_exact(rng, monkeypatch):
    """Then what I - Y X leaves of E is most of what is not known."""
    inverse = similarity.inverse_of

    def blurred(x, guess):
        y, missed, _ = inverse(x, guess)
        more = rng.uniform(-1, 1, y.shape) * 2.0**-6
        y = y + more @ y  # I - Y X becomes I - Y X - more Y X
        missed = abs(more).sum(axis=1) * 1.01 + 2 * missed
        return y, missed, missed.max()

    monkeypatch.setattr(similarity, "inverse_of", blurred)
    for _ in range(5):
        a = rng.standard_normal((6, 6))
        found, exact = linalg.eig(a, accuracy=58, dtype="mp200"), exact_values(a)
        assert holds(found, exact)
        for sine, bound in zip(sines(a, found), found.vector_bounds, strict=True):
            assert not sine > arb(float(bound))


def test_real_bases_of_conjugate_pairs(rng):
    pairs, after = Pairs(np.array([0, 3]), np.array([2, 1])), Pairs(np.array([1]), np.array([4]))

    def basis(pairs):
        t = np.eye(5, dtype=complex)
        for p, q in zip(*pairs, strict=True):
            t[np.ix_([p, q], [p, q])] = [[1, 1], [1j, -1j]]
        return t

    t, x = basis(pairs), rng.standard_normal((5, 5))
    assert np.allclose(pairs.eigenvectors(x), x @ t, rtol=1e-15)
    exact = mparray(x)
    assert (pairs.eigenvectors(exact) == pairs.eigenvectors(x)).all()
    assert np.allclose(pairs.similar(x), np.linalg.inv(t) @ x @ t, rtol=1e-13)
    assert np.allclose(pairs.real_similar(pairs.similar(x), pairs), x, rtol=1e-13)
    made = np.linalg.inv(t) @ x @ basis(after)
    assert np.allclose(pairs.real_similar(made, after), x, rtol=1e-13)
    assert np.allclose(pairs.coordinates(x), np.linalg.inv(t) @ x, rtol=1e-13)
    assert (pairs.sizes(abs(x)) >= abs(pairs.similar(x)) * (1 - 1e-15)).all()


def test_balancing_by_powers_of_two(rng):
    by = rng.integers(-700, 700, 8)
    for a in (rng.standard_normal((8, 8)), rng.standard_normal((8, 8)) * (1 + 1j)):
        powers = balance(mparray(a).ldexp(by[:, None] - by))
        left = by - powers
        balanced = np.ldexp(abs(a), left[:, None] - left)
        rows, columns = balanced.max(axis=1), balanced.max(axis=0)
        assert (abs(np.log2(rows / columns)) < 12).all()
    assert not balance(rng.uniform(1, 2, (5, 5))).any() and not balance(np.diag([1.0, 1e300])).any()


def test_results_of_other_libraries(rng):
    a = rng.standard_normal((4, 4))
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    found, expected = linalg.eig(torch.from_numpy(a)), linalg.eig(a)
    assert isinstance(found.vectors, torch.Tensor) and found.values.tolist() == expected.values.tolist()
    for name in ("error_bounds", "vector_bounds"):
        assert type(getattr(found, name)) is np.ndarray
    with ozaki.recording() as run:
        linalg.eigvals(a)
    assert [entry.operator for entry in run.results.entries] == ["eigvals"]
