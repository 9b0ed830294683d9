"""Complex arrays of multiprecision numbers: elements, exact arithmetic, shapes, ways in and out."""

import copy
import io
import pickle
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mparrays import power, rationals, rounded, same

import ozaki
from ozaki import mparray

numbers = st.builds(lambda n, e: n * power(e), st.integers(-(2**130), 2**130), st.integers(-200, 200)) | st.builds(
    Fraction, st.integers(-4, 4)
)
pairs = st.tuples(numbers, numbers)


def of_parts(values, bits=None):
    """A complex array of pairs of numbers."""
    real, imag = (mparray([value[part] for value in values], bits=bits) for part in (0, 1))
    return real + 1j * imag


def parts(x):
    """The elements as pairs of Fractions, a nested list or, of an array without axes, one pair."""
    assert x.is_complex and x.signs.shape == (*x.shape, 2)
    real, imag = rationals(x.real), rationals(x.imag)
    found = np.empty((*x.shape, 2), object)
    found[..., 0], found[..., 1] = real, imag
    return found.tolist()


@given(st.lists(st.tuples(pairs, pairs), min_size=1, max_size=5), pairs)
@settings(deadline=None)
def test_arithmetic_is_exact(values, factor):
    a, b = ([list(value[i]) for value in values] for i in (0, 1))
    x, y, f = of_parts(a), of_parts(b), of_parts([factor])[0]
    assert parts(x) == a and parts(y) == b
    assert parts(x + y) == [[p[0] + q[0], p[1] + q[1]] for p, q in zip(a, b, strict=True)]
    assert parts(x - y) == [[p[0] - q[0], p[1] - q[1]] for p, q in zip(a, b, strict=True)]
    assert parts(x - y.real) == [[p[0] - q[0], p[1]] for p, q in zip(a, b, strict=True)]
    u, v = factor
    wanted = [[p * u - q * v, p * v + q * u] for p, q in a]
    assert parts(x * f) == wanted == parts(f * x)
    assert parts(x.real * f) == [[p * u, p * v] for p, _ in a] and parts(x * f.real) == [[p * u, q * u] for p, q in a]
    assert parts(-x) == [[-p, -q] for p, q in a] and parts(x.conj()) == [[p, -q] for p, q in a] and +x is x
    assert (x == y).tolist() == [p == q for p, q in zip(a, b, strict=True)] == (~(x != y)).tolist()
    assert (x == x.real).tolist() == [q == 0 for _, q in a] and (x.conj().conj() == x).all()
    assert parts(x.round_to(20)) == [[rounded(p, 20), rounded(q, 20)] for p, q in a]
    shifts = np.arange(len(a)) - 2
    assert parts(x.ldexp(shifts)) == [
        [p * power(s), q * power(s)] for (p, q), s in zip(a, shifts.tolist(), strict=True)
    ]


def test_numbers_of_all_kinds():
    gmpy2, flint = pytest.importorskip("gmpy2"), pytest.importorskip("flint")
    with mpmath.workprec(200):
        number = mpmath.mpc("0.1", "-2e30")
    values = [
        0.5 + 2j, np.complex64(1 - 1j), number, gmpy2.mpc("1.5-3j"), flint.acb(0.25, 3), mparray(1 - 7j), "1/3", 2, 3.5,
        mparray("0.1", bits=80), np.clongdouble(1 + 2.0**-60 * 1j), Fraction(1, 8), -1j,
    ]  # fmt: skip
    x = mparray(values, bits=250)
    tenth = rationals(mparray(number.real))[()]
    wanted = [
        [Fraction(1, 2), 2], [1, -1], [tenth, -rounded(Fraction(2 * 10**30), 200)], [Fraction(3, 2), -3],
        [Fraction(1, 4), 3], [1, -7], [rounded(Fraction(1, 3), 250), 0], [2, 0], [Fraction(7, 2), 0],
        [rounded(Fraction(1, 10), 80), 0], [1, power(-60)], [Fraction(1, 8), 0], [0, -1],
    ]  # fmt: skip
    assert parts(x) == wanted and x.bits == 250
    with mpmath.workprec(100):
        matrix = mpmath.matrix([[mpmath.mpc(1, "0.5"), 2], [3, mpmath.mpc(0, -4)]])
    assert parts(mparray(matrix)) == [[[1, Fraction(1, 2)], [2, 0]], [[3, 0], [0, -4]]]
    assert parts(mparray(flint.acb_mat([[flint.acb(1, 2), 3]]))) == [[[1, 2], [3, 0]]]
    assert mparray(1j).shape == () and mparray([1j, 2]).bits == 2 and not mparray([1, 2]).is_complex


@pytest.mark.parametrize("dtype", ["c8", "c16", ">c16", "G"])
def test_arrays_of_complex_floats(dtype, rng):
    x = (rng.standard_normal((3, 4)) + 1j * rng.standard_normal((3, 4))).astype(dtype)
    for view in (x, x.T, x[::2, ::-1], x[0], x[:0], x[1, 2]):
        y = mparray(view)
        assert y.is_complex and y.shape == view.shape and np.array_equal(y.real, mparray(view.real))
        assert np.array_equal(y.imag, mparray(view.imag))
        if dtype != "G":
            assert y.bits == (24 if dtype == "c8" else 53)
            assert np.array_equal(y.astype(dtype), view) and (y == view).all()


def test_words(rng):
    x, y = (rng.standard_normal(5) + 1j * rng.standard_normal(5) for _ in range(2))
    z = mparray((x, y * 2.0**-60))
    assert (z == mparray(x) + mparray(y).ldexp(-60)).all()
    words = z.words(3)
    assert words.dtype == np.complex128 and words.shape == (3, 5) and (mparray(tuple(words)) == z).all()
    assert np.array_equal(words[0], z.astype("c16"))
    mixed = mparray((x, rng.standard_normal(5)))
    assert mixed.is_complex


def test_shapes_and_indices(rng):
    values = rng.standard_normal((3, 4, 5)) + 1j * rng.standard_normal((3, 4, 5))
    x = mparray(values)
    for index in (
        0, -1, slice(1, None), (0, 1, 2), (..., 0), (0, ..., 1), (slice(None), None, 1), np.array([0, 2]),
        (slice(None), np.array([[0, 1]])), values.real > 0, (np.array([0, 1]), slice(None), np.array([2, 3])),
    ):  # fmt: skip
        found = x[index]
        assert found.shape == values[index].shape and np.array_equal(found.astype("c16"), values[index])
    for change in (
        lambda z: z.reshape(12, 5), lambda z: z.reshape(-1), lambda z: z.reshape((5, -1, 2)), lambda z: z.T,
        lambda z: z.transpose(1, 2, 0), lambda z: z.swapaxes(0, 2), lambda z: z.copy(), lambda z: z.T[1:, ::2].copy(),
    ):  # fmt: skip
        assert np.array_equal(np.asarray(change(x).astype("c16")), change(values))
    assert (x.ndim, x.size, len(x), x.shape) == (3, 60, 3, (3, 4, 5)) and x.nbytes == 120 * (9 + 8)
    assert np.shares_memory(x.real.limbs, x.limbs) and np.shares_memory(x[1].T.limbs, x.limbs)
    assert [each.shape for each in x] == [(4, 5)] * 3
    for index in ((0, 0, 0, 0), 3, (..., 5)):
        with pytest.raises(IndexError):
            x[index]
    with pytest.raises(ValueError, match="broadcast"):
        x + mparray([1j, 2])


def test_ways_out(tmp_path):
    flint = pytest.importorskip("flint")
    x = mparray([["1/3", 2 - 0.5j], [0, -1j]], bits=150)
    assert x.to_mpmath()[0, 1] == mpmath.mpc(2, -0.5) and isinstance(x.to_mpmath()[0, 0], mpmath.mpc)
    assert (mparray(x.to_mpmath()) == x).all() and (mparray(x.tolist()) == x).all()
    assert x.to_flint()[0, 1] == flint.acb(2, -0.5) and (mparray(x.to_flint()) == x).all()
    assert x[0, 1].to_mpmath() == mpmath.mpc(2, -0.5) and x[0].to_flint().nrows() == 2
    assert np.asarray(x).dtype == object and np.asarray(x)[0, 1] == mpmath.mpc(2, -0.5)
    assert np.asarray(x, "c16").tolist() == [[1 / 3, 2 - 0.5j], [0, -1j]] and complex(x[0, 1]) == 2 - 0.5j
    assert complex(mparray(3)) == 3 and mparray([1, 2]).astype("c8").dtype == "c8"
    assert x.astype("c8")[0, 0] == np.complex64(np.float32(1 / 3))
    for path in (tmp_path / "x.npz", io.BytesIO()):
        x.save(path)
        if isinstance(path, io.BytesIO):
            path.seek(0)
        y = ozaki.MPArray.load(path)
        assert y.is_complex and y.bits == x.bits and y.shape == x.shape and (y == x).all()
    for y in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x), ozaki.asnumpy(x)):
        assert y.is_complex and (y == x).all()
    assert repr(mparray([[1, 0.5j], [-2 - 1j, 0]])) == (
        "mparray([[ (1.0 + 0.0j),  (0.0 + 0.5j)],\n         [(-2.0 - 1.0j),  (0.0 + 0.0j)]], bits=2)"
    )
    assert repr(mparray(np.zeros((0, 3), complex))) == "mparray([], shape=(0, 3), is_complex=True, bits=53)"
    assert str(mparray(0.1 - 2j)) == "(0.1 - 2.0j)" and "..." in repr(mparray(np.zeros((50, 50), complex)))


@pytest.mark.parametrize("flag", ["False", np.nan, 2, [], [True, False]])
def test_a_file_whose_flag_is_no_bool_is_refused(tmp_path, flag):
    x = mparray([1j, 2])
    np.savez(tmp_path / "x.npz", signs=x.signs, exponents=x.exponents, limbs=x.limbs, bits=np.int64(2), is_complex=flag)
    with pytest.raises(ValueError, match=r"^file: is_complex must be one bool"):
        ozaki.MPArray.load(tmp_path / "x.npz")


def test_a_file_whose_planes_have_no_axis_of_parts_is_refused(tmp_path):
    np.savez(
        tmp_path / "x.npz", signs=np.ones(3, np.int8), exponents=np.zeros(3, np.int64), bits=np.int64(2),
        limbs=np.full((1, 3), 2**31, np.uint32), is_complex=True,
    )  # fmt: skip
    with pytest.raises(
        ValueError, match=r"^file: planes of shape \(3,\); those of complex numbers end in an axis of 2"
    ):
        ozaki.MPArray.load(tmp_path / "x.npz")


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (abs, TypeError, "abs: a modulus is irrational in general"),
        (lambda x: x < x, TypeError, "complex numbers have no order"),
        (lambda x: x.real >= 1j, TypeError, "complex numbers have no order"),
        (lambda x: x.max(), TypeError, "max: the numbers are complex"),
        (lambda x: x.min(axis=0), TypeError, "min: the numbers are complex"),
        (lambda x: x.to_ints(), TypeError, "to_ints: the numbers are complex; use it of x.real and x.imag"),
        (lambda x: x.to_fractions(), TypeError, "to_fractions: the numbers are complex"),
        (lambda x: float(x[0, 0]), TypeError, "float: the numbers are complex"),
        (lambda x: complex(x), TypeError, "only an array without axes"),
        (lambda x: x.astype("f8"), TypeError, "dtype: float64, but the numbers are complex; expected complex128"),
        (lambda x: x.astype("i8"), TypeError, "dtype: int64; expected"),
        (lambda x: x * x, TypeError, r"\*: two arrays"),
        (lambda x: mparray([1, 1j, complex(0, np.nan)]), ValueError, r"x: element \[2\] is nan"),
        (lambda x: mparray(np.array([[1, complex(0, np.inf)]])), ValueError, r"x: element \[0, 1\] is infj"),
        (lambda x: mparray([1j, "2+3j"]), ValueError, r"x: element \[1\] is '2\+3j'"),
        (lambda x: mparray([1j, "0.1"]), ValueError, r"x: element \[1\] is '0.1', which has no end in binary"),
        (lambda x: mparray(np.array([1, complex(0, np.nan)], "G")), ValueError, r"x: element \[1\] is nan"),
        (lambda x: x.swapaxes(0, 5), np.exceptions.AxisError, "axis 5 is out of bounds"),
        (lambda x: mparray([1j, None]), TypeError, r"x: element \[1\] is of type NoneType"),
        (lambda x: mparray((np.zeros(2, "c8"),)), TypeError, "x: item 0 .* float64 or complex128 arrays"),
    ],
)
def test_what_is_refused(call, error, text):
    with pytest.raises(error, match=f"^({text})"):
        call(mparray([[1j, 2]]))


def test_comparison_with_what_no_element_can_be():
    x = mparray([1 + 1j, 2, 1j])
    assert (x == np.array([1 + 1j, complex(2, np.nan), complex(np.inf, 1)])).tolist() == [True, False, False]
    assert (x != np.array([1 + 1j, np.nan, np.inf])).tolist() == [False, True, True]
    assert (x == [1 + 1j, 2, "1/3"]).tolist() == [True, True, False] and (x == 2).tolist() == [False, True, False]
    assert (x.real == 1j).tolist() == [False] * 3 and not (x == complex(np.nan, 0)).any()


def test_real_arrays_have_parts():
    x = mparray(["0.1", -3], bits=90)
    assert x.real is x and x.conj() is x and same(x.imag, [0, 0]) and x.imag.bits == 90 and not x.is_complex
    assert bool(mparray(1j)) and not bool(mparray(0j))


def test_a_sum_of_parts_too_far_apart_names_its_element():
    with pytest.raises(ValueError, match=r"the exact sum at \[1\] takes"):
        mparray([1j, 1j]) + mparray([0, mpmath.ldexp(1, 2**40)]) * 1j


def test_what_mpmath_computes():
    """A product as a user of mpmath has it: in and out, against its own, computed with more bits."""
    with mpmath.workprec(500):
        a, b = (mpmath.matrix(3, 3) for _ in range(2))
        for i, j in np.ndindex(3, 3):
            a[i, j] = mpmath.mpc(*(mpmath.rand() - 0.5 for _ in range(2)))
            b[i, j] = mpmath.mpc(mpmath.rand(), i - j)
        wanted = a * b
        c = ozaki.matmul(a, b, accuracy=500).to_mpmath()
        scale = mpmath.matrix([[sum(abs(a[i, q] * b[q, j]) for q in range(3)) for j in range(3)] for i in range(3)])
        assert all(abs(c[i, j] - wanted[i, j]) <= 8 * scale[i, j] * mpmath.mpf(2) ** -500 for i, j in np.ndindex(3, 3))


def test_matrices_and_factors_of_other_libraries():
    flint = pytest.importorskip("flint")
    z = mpmath.matrix([[mpmath.mpc(1, 2), 3], [mpmath.mpc(0, -1), mpmath.mpf("0.5")]])
    x = mparray(z)
    assert (ozaki.gemm(1, z, z, 0, None, trans_b="C", accuracy="exact") == ozaki.matmul(x, x.conj().T)).all()
    assert (ozaki.residual(z, z, ozaki.matmul(z, z, accuracy="exact")) == 0).all()
    assert ozaki.residual([[1j]], [[1.0]], [[1j]]).dtype == np.complex128
    for one in (flint.acb(2, 0), mpmath.mpc(2, 0), np.array(2 + 0j), 2 + 0j):
        assert (ozaki.gemm(one, x, x, 0, None, accuracy="exact") == 2 * ozaki.matmul(x, x, accuracy="exact")).all()
    for factor in (flint.acb(2, 1), mpmath.mpc(2, 1), mparray(1j)):
        with pytest.raises(TypeError, match=r"^alpha: .*expected a real number: multiply a by it"):
            ozaki.gemm(factor, x, x, 0, None)
    with pytest.raises(TypeError, match=r"^b: element \[0, 0\] is of type"):
        ozaki.matmul(x, mpmath.iv.matrix([[1, 2], [3, 4]]))
    assert (x @ [[1, 2], [3, 4]] == ozaki.matmul(x, mparray([[1, 2], [3, 4]]))).all()
    assert (np.array([[1, 2], [3, 4]]) @ x == ozaki.matmul(mparray([[1, 2], [3, 4]]), x)).all()
    swapped = np.array([1 + 2j, 3], ">c16")
    assert (mparray((swapped,)) == mparray(swapped)).all()
