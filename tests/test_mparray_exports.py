"""What an `MPArray` becomes: floats, words, numbers of other libraries, files, text."""

import copy
import io
import pickle
import subprocess
import sys
import types
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mparrays import power, rationals, rounded, same

import ozaki
from ozaki import MPArray, mparray
from ozaki.multiprecision import limbs

numbers = (
    st.builds(lambda n, e: n * power(e), st.integers(-(2**200), 2**200), st.integers(-1300, 1000))
    | st.builds(Fraction, st.floats(allow_nan=False, allow_infinity=False))
    | st.builds(lambda n, e: n * power(e), st.integers(-(2**60), 2**60), st.integers(-1150, -1074))
)
FORMATS = {"float16": (11, -24, 16), "float32": (24, -149, 128), "float64": (53, -1074, 1024)}


def to_format(value, dtype):
    """The float nearest to a Fraction, by definition: a multiple of the least one, of so many bits, or Inf."""
    bits, least, past = FORMATS[dtype]
    found = rounded(value, bits)
    if abs(found) < power(least + bits - 1):
        found = round(value / power(least)) * power(least)
    if abs(found) >= power(past):
        return np.inf if found > 0 else -np.inf
    return float(found)


@given(st.lists(numbers, min_size=1, max_size=5), st.sampled_from(sorted(FORMATS)))
@settings(deadline=None)
def test_floats_are_rounded_once(values, dtype):
    found = mparray(values).astype(dtype)
    assert found.dtype == dtype and found.tolist() == [to_format(v, dtype) for v in values]


@pytest.mark.parametrize("dtype", sorted(FORMATS))
def test_floats_next_to_ties(dtype):
    bits, least, past = FORMATS[dtype]
    values = []
    for head in (1, 2, 3, 2**bits - 1, 2**bits, 2**bits + 1, 2 ** (bits + 1) - 1, 2 ** (bits + 1) - 3):
        for exponent in (least - 2, least - 1, least, 0, past - bits - 1, past - bits):
            for rest in (-power(least - 500), 0, power(least - 500)):
                values += [head * power(exponent) + rest, -head * power(exponent) + rest]
    x = mparray(values)
    assert x.astype(dtype).tolist() == [to_format(v, dtype) for v in values]
    assert x.reshape(-1, 2).T.astype(np.dtype(dtype)).shape == (2, len(values) // 2)


def test_subnormals_and_the_largest_numbers():
    x = np.array([5e-324, 2.0**-1022, np.finfo(float).max, -5e-324, 0.0])
    assert mparray(x).astype("float64").tolist() == x.tolist()
    with np.errstate(all="raise"):
        half = mparray(x) * 0.5
        assert half.astype(np.float64).tolist() == [0, 2.0**-1023, np.finfo(float).max / 2, 0, 0]
        assert mparray(x).astype(">f4").tolist() == [0, 0, np.inf, 0, 0] and mparray(x).astype("f4").dtype == "f4"


@pytest.mark.parametrize("dtype", ["int64", "longdouble", "clongdouble", "U5"])
def test_dtypes_that_are_refused(dtype):
    with pytest.raises(TypeError, match=r"^dtype: .*; expected float64, float32, float16, complex128, complex64"):
        mparray([1]).astype(dtype)
    with pytest.raises(TypeError, match=r"^dtype: "):
        np.asarray(mparray([1]), dtype=dtype)


@given(st.lists(numbers, min_size=1, max_size=5), st.integers(1, 6))
@settings(deadline=None)
def test_words(values, count):
    words = mparray(values).words(count)
    assert words.shape == (count, len(values)) and words.dtype == np.float64
    for i, value in enumerate(values):
        rest = value
        for word in words[:, i].tolist():
            assert word == to_format(rest, "float64")
            rest = rest - Fraction(word) if np.isfinite(word) else Fraction()


def test_words_hold_what_they_can(rng):
    x = mparray((rng.standard_normal((3, 4)), 2.0**-60 * rng.standard_normal((3, 4))))
    assert x.words(3).shape == (3, 3, 4) and (mparray(tuple(x.words(3))) == x).all()
    assert mparray(tuple(x.T.words(2))).shape == (4, 3) and x[0, 0].words(2).shape == (2,)
    assert mparray([2**2000, 3]).words(3).tolist() == [[np.inf, 3], [0, 0], [0, 0]]
    assert mparray(np.zeros((0, 2))).words(2).shape == (2, 0, 2)
    for count, error in ((0, ValueError), (-1, ValueError), (2.0, TypeError), ("2", TypeError)):
        with pytest.raises(error, match=r"^count: "):
            x.words(count)


@given(st.lists(numbers, min_size=1, max_size=6))
@settings(deadline=None)
def test_integers_and_exponents(values):
    ints, exponents = mparray(values).to_ints()
    assert ints.dtype == object and exponents.dtype == np.int64
    for value, whole, exponent in zip(values, ints.tolist(), exponents.tolist(), strict=True):
        assert type(whole) is int and whole * power(exponent) == value
        assert whole % 2 == 1 or (whole, exponent) == (0, 0)


@given(st.lists(numbers, min_size=4, max_size=4), st.integers(1, 300))
@settings(deadline=None)
def test_mpmath(values, precision):
    x = mparray(values)
    with mpmath.workprec(precision):
        matrix, scalar, vector = x.reshape(2, 2).to_mpmath(), x[0].to_mpmath(), x.to_mpmath()
        assert type(matrix) is mpmath.matrix and (matrix.rows, matrix.cols) == (2, 2)
        assert type(scalar) is mpmath.mpf and vector.dtype == object and type(vector[0]) is mpmath.mpf
        assert same(mparray(matrix), np.array(values).reshape(2, 2)) and same(mparray(vector), values)
        assert np.asarray(x).tolist() == x.tolist() == [*matrix] == x.astype(object).tolist()
    for value, number in zip(values, x.tolist(), strict=True):  # as mpmath itself makes it
        assert number._mpf_ == mpmath.libmp.from_rational(value.numerator, value.denominator, 10000)
        assert type(number._mpf_[1]) is mpmath.libmp.MPZ


def test_shapes_of_exports():
    x = mparray(np.arange(6).reshape(2, 3))
    assert same(mparray(x.T[::-1].to_mpmath()), np.arange(6).reshape(2, 3).T[::-1])
    assert mparray(np.zeros((0, 3))).to_mpmath().rows == 0 and mparray(np.zeros((2, 0, 3))).to_mpmath().shape == (
        2,
        0,
        3,
    )
    assert np.asarray(mparray(2.5)).shape == () and mparray(2.5).tolist() == 2.5
    assert np.asarray(x, dtype=float).tolist() == [[0, 1, 2], [3, 4, 5]] and np.array(x, "f4").dtype == np.float32
    assert np.array(x, copy=True).dtype == object
    with pytest.raises(ValueError, match=r"^copy: False"):
        np.array(x, copy=False)


def test_flint():
    flint = pytest.importorskip("flint")
    values = [[Fraction(3**200), -power(-5000)], [Fraction(), Fraction(1, 2)]]
    x = mparray(values)
    matrix = x.to_flint()
    assert type(matrix) is flint.arb_mat and all(entry.is_exact() for entry in matrix.entries())
    assert same(mparray(matrix), values) and same(mparray(x.T[::-1].to_flint()), np.array(values, object).T[::-1])
    assert same(mparray(x[0].to_flint()), [[values[0][0]], [values[0][1]]])
    assert type(x[0, 0].to_flint()) is flint.arb and same(mparray(x[0, 0].to_flint()), values[0][0])
    assert (mparray(np.zeros((0, 3))).to_flint().ncols(), mparray(np.zeros(0)).to_flint().nrows()) == (3, 0)
    with pytest.raises(ValueError, match=r"^to_flint: 3 dimensions"):
        x[None].to_flint()


def test_flint_is_named_where_it_is_absent(monkeypatch):
    monkeypatch.setitem(sys.modules, "flint", None)
    with pytest.raises(ImportError, match="install python-flint"):
        mparray([1]).to_flint()


def test_nothing_is_imported_that_the_caller_has_not():
    code = """
import sys, numpy as np, ozaki
from fractions import Fraction
x = ozaki.mparray([[1, Fraction(1, 3)], ["0.1", 2.5]], bits=99)
y = (2 * x + np.ones((2, 2)) - x[0] == x).any() or x.round_to(7).words(2).any() and x.to_ints()
print([name for name in ("mpmath", "gmpy2", "flint", "numpy_quaddtype", "cupy") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_pickle_and_copy():
    x = mparray([["1/3", 2**100], [0, -1]], bits=77)
    for y in (pickle.loads(pickle.dumps(x)), pickle.loads(pickle.dumps(x.T[::-1])), copy.deepcopy(x), copy.copy(x)):
        assert isinstance(y, MPArray) and y.bits == 77
        assert (y == x).all() or (y == x.T[::-1]).all()


@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (3,), (2, 3), (2, 3, 4)])
def test_files(shape, tmp_path):
    x = mparray(np.arange(np.prod(shape)).reshape(shape) * Fraction(3, 2**70) - 1)
    for y in (x, x.T):
        y.save(tmp_path / "x")
        found = MPArray.load(tmp_path / "x.npz")
        assert isinstance(found, MPArray) and found.bits == x.bits and found.shape == y.shape and (found == y).all()
    file = io.BytesIO()
    x.save(file)
    file.seek(0)
    with np.load(file, allow_pickle=False) as stored:
        assert {name: stored[name].dtype for name in stored} == {
            "signs": np.int8, "exponents": np.int64, "limbs": np.uint32, "bits": np.int64,
        }  # fmt: skip
        assert stored["limbs"].shape == (-(-x.bits // 32), *shape)
    file.seek(0)
    assert (MPArray.load(file) == x).all()


def test_the_planes_are_as_documented():
    x = mparray([Fraction(5, 2**40), -(2**100) - 1])
    for i, value in enumerate([Fraction(5, 2**40), -(2**100) - 1]):
        fraction = sum(int(limb) * power(-32 * (j + 1)) for j, limb in enumerate(x.limbs[:, i]))
        assert Fraction(1, 2) <= fraction < 1 and int(x.signs[i]) * fraction * power(int(x.exponents[i])) == value


def broken(name, change):
    x = mparray([[1, 2**40 + 1, 0]])
    planes = {"signs": x.signs, "exponents": x.exponents, "limbs": x.limbs, "bits": np.int64(x.bits)}
    planes[name] = change(planes[name].copy())
    file = io.BytesIO()
    np.savez(file, **{key: plane for key, plane in planes.items() if plane is not None})
    file.seek(0)
    return file


def replaced(index, value):
    def change(plane):
        plane[index] = value
        return plane

    return change


@pytest.mark.parametrize(
    ("name", "change", "text"),
    [
        ("limbs", lambda x: None, "no array 'limbs'"),
        ("signs", lambda x: x.astype(int), "signs of dtype int64; expected int8"),
        ("limbs", lambda x: x.astype(object), "allow_pickle"),
        ("limbs", lambda x: x[:1], "limbs of shapes"),
        ("exponents", lambda x: x[:, :1], "exponents and limbs of shapes"),
        ("bits", lambda x: np.int64(0), "bits must be one positive integer"),
        ("bits", lambda x: np.array([41]), "bits must be one positive integer"),
        ("bits", lambda x: np.int64(40), "an element of more than 40 bits"),
        ("bits", lambda x: np.int64(400), "13 limbs for 400 bits"),
        ("signs", replaced((0, 0), 2), "a sign that is not -1, 0 or 1"),
        ("signs", replaced((0, 0), -128), "a sign that is not -1, 0 or 1"),
        ("signs", replaced((0, 0), 0), "an exponent beyond .* or of a zero"),
        ("signs", replaced((0, 2), 1), "not normalised"),
        ("exponents", replaced((0, 0), 2**62), "an exponent beyond"),
        ("exponents", replaced((0, 0), -(2**63)), "an exponent beyond"),
        ("limbs", replaced((0, 0, 0), 2**30), "not normalised"),
        ("limbs", replaced((1, 0, 2), 2**31), "not normalised"),
    ],
)
def test_files_that_are_refused(name, change, text):
    with pytest.raises(ValueError, match=text):
        MPArray.load(broken(name, change))


def test_other_files_are_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.ones(3))
    with pytest.raises(ValueError, match=r"^file: a single array"):
        MPArray.load(tmp_path / "x.npy")
    np.save(tmp_path / "x.npy", np.asarray(mparray([1, 2])))
    with pytest.raises(ValueError, match=r"^file: .*; expected a file that MPArray.save wrote \(numpy.save pickles"):
        MPArray.load(tmp_path / "x.npy")
    (tmp_path / "x.npz").write_bytes(b"no zip")
    with pytest.raises(ValueError, match=r"^file: .*pickle"):
        MPArray.load(tmp_path / "x.npz")
    file = io.BytesIO()
    mparray([1, 2]).save(file)
    for damaged in (b"", file.getvalue()[:-30], file.getvalue().replace(b"\x00\x00\x80", b"\x00\x01\x80")):
        with pytest.raises(ValueError, match=r"^file: "):
            MPArray.load(io.BytesIO(damaged))
    with pytest.raises(FileNotFoundError):
        MPArray.load(tmp_path / "absent.npz")


@pytest.mark.parametrize(
    ("x", "lines"),
    [
        (2.5, ["mparray(2.5, bits=50)"]),
        ([1, -2], ["mparray([ 1.0, -2.0], bits=50)"]),
        (
            [["1/3", 2**100], [0, "-1e-300"]],
            ["mparray([[   0.333333, 1.26765e+30],", "         [        0.0,   -1.0e-300]], bits=50)"],
        ),
        ([[], []], ["mparray([], shape=(2, 0), bits=50)"]),
    ],
    ids=str,
)
def test_repr(x, lines):
    assert repr(mparray(x, bits=50)) == "\n".join(lines)


def test_large_arrays_are_summarised_and_not_converted():
    x = mparray(np.broadcast_to(np.arange(3000.0), (2000, 3000)))
    assert repr(x[0]) == "mparray([   0.0,    1.0,    2.0, ..., 2997.0, 2998.0, 2999.0], shape=(3000,), bits=53)"
    assert repr(x).count("\n") == 6 and repr(x).endswith("shape=(2000, 3000), bits=53)") and str(x).count("...") == 7
    assert repr(x[:3]).count("\n") == 2 and repr(x[:30, :40]).count("...") > 0 and repr(x[:30, :20]).count("...") == 0
    with np.printoptions(threshold=10, edgeitems=1):
        assert str(x[0, :12]) == "[ 0.0 ... 11.0]"
    assert str(mparray([1, 2])) == "[1.0 2.0]"


def test_moving_within_numpy_and_without_cupy(monkeypatch):
    x = mparray([1, 2])
    assert ozaki.asnumpy(x) is x
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(ImportError, match="install cupy-cuda12x or cupy-cuda13x"):
        ozaki.ascupy(x)
    for move in (ozaki.asnumpy, ozaki.ascupy):
        with pytest.raises(TypeError, match=r"^x: ndarray; expected an MPArray"):
            move(np.ones(2))


class OtherArray(np.ndarray):
    """An array of a stand-in for CuPy, whose arrays NumPy does not take; its max and min know no `initial`."""

    data = types.SimpleNamespace(device_id=0)

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        assert all(isinstance(x, OtherArray | np.generic | int | float) for x in inputs), "a host array"
        if "out" in options:
            options["out"] = tuple(x.view(np.ndarray) for x in options["out"])
        return on_other(getattr(ufunc, method)(*map(on_host, inputs), **options))

    def __getitem__(self, at):
        found = on_host(self)[on_host(at) if not isinstance(at, tuple) else tuple(map(on_host, at))]
        return on_other(np.asarray(found))

    def max(self, axis=None):
        return on_other(np.asarray(on_host(self).max(axis=axis)))

    def min(self, axis=None):
        return on_other(np.asarray(on_host(self).min(axis=axis)))


OtherArray.__module__ = "cupy"


def on_host(x):
    return x.view(np.ndarray) if isinstance(x, OtherArray) else x


def on_other(x):
    if isinstance(x, tuple):
        return tuple(map(on_other, x))
    return np.asarray(x).view(OtherArray) if isinstance(x, np.ndarray | np.generic) else x


@pytest.fixture
def cupy(monkeypatch):
    """A stand-in for CuPy, on host memory."""
    module = types.ModuleType("cupy")

    def wrapped(function):
        def call(*arguments, **options):
            taken = [[*map(on_host, x)] if isinstance(x, list) else on_host(x) for x in arguments]
            return on_other(function(*taken, **{key: on_host(value) for key, value in options.items()}))

        return call

    for name in (
        "abs", "arange", "argmax", "argmin", "asarray", "bitwise_and", "broadcast_to", "clip", "concatenate", "empty",
        "equal", "frexp", "full", "isfinite", "isinf", "isnan", "ldexp", "maximum", "minimum", "sign", "stack",
        "take_along_axis", "where", "zeros",
    ):  # fmt: skip
        setattr(module, name, wrapped(getattr(np, name)))
    kernels = types.SimpleNamespace()  # those of backends/cupy/limbs.py need a device
    for name in ("leading_zeros", "trailing_zeros", "window", "add_window", "settled", "rounded", "to_double"):
        setattr(kernels, name, wrapped(getattr(limbs, name)))
    monkeypatch.setattr(limbs, "_kernels", lambda x: kernels if isinstance(x, OtherArray) else None)
    module.asnumpy = lambda x: np.array(on_host(x))
    module.ndarray = OtherArray
    module.cuda = types.SimpleNamespace(runtime=types.SimpleNamespace(getDevice=lambda: 0))
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


def test_numbers_in_another_librarys_memory(cupy):
    values = [[Fraction(3**100, 2**40), Fraction(-5)], [Fraction(), Fraction(7, 2**300)]]
    x = mparray(values)
    y = ozaki.ascupy(x)
    assert type(y.limbs) is OtherArray and type(y.signs) is OtherArray and ozaki.ascupy(y) is y
    assert type(ozaki.asnumpy(y).limbs) is np.ndarray and (ozaki.asnumpy(y) == x).all()
    for change in (
        lambda z: z + z.T, lambda z: z - z[:1], lambda z: 3 * z, lambda z: z * 0, lambda z: -z, lambda z: abs(z) + 1,
        lambda z: z.round_to(40), lambda z: 0.5 - z, lambda z: z + np.ones(2).tolist(),
        lambda z: z[[1, 0], ::-1].copy(), lambda z: z.max(axis=0), lambda z: z.min(), lambda z: z.ldexp([-9, 3]),
    ):  # fmt: skip
        result = change(y)
        assert type(result.limbs) is OtherArray and same(ozaki.asnumpy(result), rationals(change(x)))
    assert type(y == y.T) is OtherArray and on_host(y == y.T).tolist() == (x == x.T).tolist()
    others = on_other(np.array([np.nan, -4.0]))
    for found, wanted in ((y < y.T, x < x.T), (y >= -5, x >= -5), (y < others, x < on_host(others))):
        assert type(found) is OtherArray and on_host(found).tolist() == wanted.tolist()
    assert type(y.astype("f4")) is OtherArray and on_host(y.astype("f4")).tolist() == x.astype("f4").tolist()
    assert type(y.words(3)) is OtherArray and on_host(y.words(3)).tolist() == x.words(3).tolist()
    assert y.tolist() == x.tolist() and repr(y) == repr(x) and y.to_ints()[0].tolist() == x.to_ints()[0].tolist()
    assert y.to_fractions().tolist() == values
    with pytest.raises(TypeError, match=r"use ozaki.asnumpy"):
        np.asarray(y)
    for a, b in ((x, y), (y, x), (y, np.ones((2, 2)))):
        with pytest.raises(TypeError, match="operands in NumPy and CuPy memory"):
            a + b


def test_arrays_of_another_library(cupy):
    floats = on_other(np.array([[1.5, -(2.0**-1074), 0.0]]))
    x = mparray(floats)
    assert type(x.limbs) is OtherArray and same(x, [[1.5, -power(-1074), 0]])
    assert same(mparray((floats, floats)), [[3, -power(-1073), 0]])
    assert same(mparray(on_other(np.array([-(2**63), 5]))), [-(2**63), 5]) and same(x + floats, [[3, -power(-1073), 0]])
    with pytest.raises(ValueError, match=r"^x: element \[1\] is nan"):
        mparray(on_other(np.array([1.0, np.nan])))
    assert mparray(on_other(np.zeros((0, 3)))).shape == (0, 3)
