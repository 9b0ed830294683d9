"""Integers of Python, of other libraries and of tensors as operands, and the way back to Python's; quads."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mparrays import power, rounded

import ozaki
from ozaki import mparray

LONG = 2**62 - 1


def exact(found):
    assert isinstance(found, ozaki.MPArray)
    return found.to_integers().tolist()


@pytest.mark.parametrize(
    ("a", "wanted"),
    [
        ([[1, 2]], 5),
        ([[True, False]], 1),
        ([[1, 2.0]], 5),
        ([[2**70, 2]], 2**70 + 4),  # float64 holds it
        ([[np.int8(1), np.uint64(2)]], 5),
        ([np.array([1, 2])], 5),
        (np.array([[1, 2]], ">i4"), 5),
        (np.array([[1, 2]], object), 5),
        ([[2**60, 0.5]], 2**60 + 1),
    ],
    ids=str,
)
def test_lists_and_objects_count_as_float64(a, wanted):
    b = [[1], [2]]
    calls = (
        lambda: ozaki.matmul(a, b, accuracy="fp64"),
        lambda: ozaki.gemm(1, a, b, 0, None),
        lambda: ozaki.einsum("ij,jk", a, b),
        lambda: ozaki.tensordot(a, b, 1),
        lambda: ozaki.matmul(a, b, plan=ozaki.plan(a, b, accuracy="fp64", reproducible=True)),
    )
    for call in calls:
        found = call()
        assert type(found) is np.ndarray and found.dtype == np.float64 and found.tolist() == [[float(wanted)]]


def test_all_bits_of_long_integers():
    """Python's integers of any length, in lists and in arrays of objects, with dtype "mp"."""
    a = [[2**63 + 1, -1], [2**90 + 7, 3]]  # NumPy makes floats of the first row alone
    wanted = (np.array(a, object) @ np.array(a, object)).tolist()
    for x in (a, np.array(a, object)):
        assert exact(ozaki.matmul(x, x, dtype="mp")) == wanted
        assert exact(ozaki.einsum("ij,jk", x, x, dtype="mp")) == wanted
        assert exact(ozaki.matmul(x, mparray(x))) == wanted
    assert exact(ozaki.matmul(a[:1], np.array(a), dtype="mp")) == wanted[:1]
    assert exact(ozaki.matrix_power(a, 2)) == wanted
    assert exact(ozaki.residual(a, [1, 1], [2**80 + 1, 2], dtype="mp")) == [2**80 + 1 - 2**63, -(2**90) - 8]
    assert ozaki.residual([[2**53 + 1]], [1], [2**53 + 2]).tolist() == [1.0]
    plan = ozaki.plan(a, a, dtype="mp")
    assert exact(ozaki.matmul(ozaki.prepare(a, "left", plan), a, plan=plan)) == wanted


def test_integers_that_numpy_rounds_beside_floats_are_named():
    for x in ([[0.5, 2**60 + 1]], [[1j, 2**60 + 1]], [np.array([0.5, 1]), np.array([1, 2**60 + 1])]):
        name = r"\[1, 1\]" if len(x) == 2 else r"\[0, 1\]"
        for dtype in (None, "mp"):
            with pytest.raises(ValueError, match=rf"^a: element {name} is 1152921504606846977, .* beside floats"):
                ozaki.matmul(x, [[1], [1]], dtype=dtype)
    assert ozaki.mparray([[0.5, 2**60 + 1]]).to_fractions()[0, 1] == 2**60 + 1


@given(st.lists(st.integers(-(2**70), 2**70), min_size=4, max_size=4), st.sampled_from([None, "mp"]))
@settings(deadline=None, max_examples=60)
def test_nothing_is_lost_silently(values, dtype):
    """Each product of integers is that of the numbers given, correctly rounded, or an error."""
    a, b = [values[:2]], [[values[2]], [values[3]]]
    wanted = values[0] * values[2] + values[1] * values[3]
    if dtype is None and any(float(v) != v for v in values):
        with pytest.raises(ValueError, match="dtype='mp'"):
            ozaki.matmul(a, b, accuracy="exact")
        return
    found = ozaki.matmul(a, b, dtype=dtype, accuracy=None if dtype else "exact")
    assert found.to_integers()[0, 0] == wanted if dtype else found[0, 0] == float(wanted)


def test_integers_of_other_libraries_stay_exact():
    flint, gmpy2 = pytest.importorskip("flint"), pytest.importorskip("gmpy2")
    x = flint.fmpz_mat([[LONG, 1], [-3, LONG]])
    wanted = [[int(v) for v in row] for row in (x * x).tolist()]
    plain = np.array([[LONG, 1], [-3, LONG]], object)
    objects = np.array([[gmpy2.mpz(LONG), 1], [flint.fmpz(-3), np.int64(LONG)]], object)
    for a, b in ((x, x), (objects, x), (x, mparray(objects)), (mparray(x), mparray(x))):
        assert exact(ozaki.matmul(a, b, dtype="mp")) == wanted
        assert exact(ozaki.gemm(1, a, b, 1, x, dtype="mp")) == (np.array(wanted, object) + plain).tolist()
        assert exact(ozaki.gemm(1, a, b, 0, None, dtype="mp", trans_a=True)) == exact(
            ozaki.matmul(mparray(a).T, mparray(b), dtype="mp")
        )
    for a, b in ((x, x), (objects, x), (x, mparray(objects)), (mparray(objects), x)):
        assert exact(ozaki.matmul(a, b)) == exact(ozaki.einsum("ij,jk", a, b)) == wanted
    assert exact(mparray(objects) @ x) == wanted
    rounded_ones = ozaki.matmul(x, x, accuracy="dd")  # an accuracy that is named decides
    assert rounded_ones.bits < 124 and exact(rounded_ones) != wanted


def test_complex_whole_numbers_stay_exact():
    z = mparray([[2**40 + 1]]) * 1j + LONG
    found = ozaki.matmul(z, z, dtype="mp")
    assert found.real.to_integers().tolist() == [[LONG**2 - (2**40 + 1) ** 2]]
    assert found.imag.to_integers().tolist() == [[2 * LONG * (2**40 + 1)]]


def test_integer_tensors():
    torch = pytest.importorskip("torch")
    a = torch.tensor([[1, 2], [3, 4]])
    found = ozaki.matmul(a, a.to(torch.uint8), accuracy="fp64")
    assert found.dtype == torch.float64 and found.tolist() == [[7.0, 10.0], [15.0, 22.0]]
    assert ozaki.einsum("ij,jk", a, a, dtype=torch.int64).tolist() == [[7, 10], [15, 22]]
    with pytest.raises(ValueError, match=r"^a: element \[0, 0\] is 4611686018427387903, .*dtype='mp'"):
        ozaki.matmul(a * 0 + LONG, a)
    assert exact(ozaki.matmul(a * 0 + LONG, a, dtype="mp")) == [[4 * LONG, 6 * LONG]] * 2


def test_the_way_back():
    x = mparray([[5, -12], [2**90, 0]])
    assert x.to_integers().tolist() == [[5, -12], [2**90, 0]] and type(x.to_integers()[0, 0]) is int
    assert int(x[1, 0]) == 2**90 and int(mparray(-2.5)) == -2 and mparray(7).to_integers()[()] == 7
    for bad, text in (
        (mparray([[1, 0.5]]), r"element \[0, 1\] is no whole number; to_fractions\(\)"),
        (mparray([3]).ldexp(2**25), r"element \[0\] takes more than 16777216 bits"),
        (mparray(0.5), "the number is no whole number"),
    ):
        with pytest.raises(ValueError, match=f"^{text}"):
            bad.to_integers()
    for call in (lambda: mparray([1j]).to_integers(), lambda: int(x), lambda: int(mparray(1j))):
        with pytest.raises(TypeError):
            call()


# Quads ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def quads():
    return pytest.importorskip("numpy_quaddtype")


def test_quads_are_operands(quads, rng):
    """As the `MPArray` of their numbers, of 113 bits; nested lists of single ones, too."""
    a, b = (np.array(rng.standard_normal((2, 2))).astype(quads.QuadPrecDType()) / 3 for _ in "ab")
    wanted = ozaki.matmul(mparray(a), mparray(b))
    assert mparray(a).bits == wanted.bits == 113
    for x, y in ((a, b), (list(a), [[*row] for row in b]), (mparray(a), b), (a, mparray(b))):
        assert (ozaki.matmul(x, y) == wanted).all()
    assert (ozaki.gemm(1, a, b, 1, b) == ozaki.gemm(1, mparray(a), mparray(b), 1, mparray(b))).all()
    assert ozaki.matmul(a, b, accuracy="fp64", dtype="float64").dtype == np.float64
    with pytest.raises(ValueError, match=r"^b: element \[1, 0\] is nan; there is no such multiprecision number"):
        ozaki.matmul(a, np.array([[1.0, 2], [np.nan, 3]]).astype(quads.QuadPrecDType()))


def test_quads_are_results(quads, rng):
    dtype = quads.QuadPrecDType()
    a, b = rng.standard_normal((2, 3, 3))
    for options in ({}, {"accuracy": "exact"}, {"accuracy": "dd"}):
        found = ozaki.matmul(a, b, dtype=dtype, **options)
        assert found.dtype == dtype and found.shape == (3, 3)
        wide = ozaki.matmul(a, b, dtype="mp" if options.get("accuracy") == "exact" else "mp113", **options)
        assert (mparray(found) == wide.round_to(113)).all()
    assert type(ozaki.matmul(a[0], b[0], dtype=dtype)) is quads.QuadPrecision
    plan = ozaki.plan(a, b, dtype=dtype)
    assert (ozaki.matmul(a, b, plan=plan, dtype=dtype) == ozaki.matmul(a, b, dtype=dtype)).all()
    assert ozaki.residual(a, b[0], b[1], dtype=dtype).dtype == ozaki.einsum("ij,jk", a, b, dtype=dtype).dtype == dtype
    assert ozaki.plan((2, 2), (2, 2), dtype=dtype).dtype == "mp113"
    for call in (
        lambda: ozaki.matmul(a, b, dtype=quads.QuadPrecDType("longdouble")),
        lambda: ozaki.matmul(a + 0j, b, dtype=dtype),
        lambda: ozaki.linalg.solve(a, b, dtype=dtype),
    ):
        with pytest.raises(TypeError, match=r"^dtype: "):
            call()


wholes = st.integers(-(2**230), 2**230).filter(bool)
exponents = st.one_of(st.integers(-300, 300), st.integers(-16800, -16300), st.integers(16100, 16400))


@given(wholes, exponents)
@settings(deadline=None, max_examples=300)
def test_quads_are_rounded_once(whole, exponent):
    """To nearest, ties to even; into subnormals, zeros and infinities, too."""
    quads = pytest.importorskip("numpy_quaddtype")
    value = whole * power(exponent)
    found = mparray([whole]).ldexp(exponent).astype(quads.QuadPrecDType())
    least = power(-16494)
    wanted = rounded(value, 113)
    if abs(wanted) < power(-16382):
        wanted = round(value / least) * least
    if abs(wanted) >= power(16384):
        assert found[0] == np.array([np.sign(whole) * np.inf]).astype(quads.QuadPrecDType())[0]
        return
    ints, shifts = mparray(found).to_ints()
    assert Fraction(ints[0]) * power(int(shifts[0])) == wanted


def test_quads_are_not_needed():
    """The library asks for the package only where the caller names its dtype."""
    import subprocess
    import sys

    code = "import sys; sys.modules['numpy_quaddtype'] = None; import ozaki; x = ozaki.mparray([1]); print(x @ x)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "1.0\n"
