"""Integers as operands: float64 numbers where these hold them, else an error; exactly with dtype "int64" and "mp"."""

import re

import numpy as np
import pytest
from mparrays import back

import ozaki
from ozaki import mparray

REMEDY = "an integer that float64 does not hold; with dtype='int64' or dtype='mp' the product is exact"


@pytest.fixture
def device(device):
    """NumPy, a real device or the emulated Ampere: integers become floats or multiprecision numbers on all alike."""
    if device.name == "emulated Hopper":
        pytest.skip("integers are converted as on the emulated Ampere")
    return device


def python(x):
    """A matrix of integers as an array of Python's."""
    return np.asarray(x).astype(object)


def test_integers_count_as_float64(device, rng):
    """The bits and the dtype are those of the float64 numbers, for each integer dtype, alone and beside floats."""
    for dtype in device.some("?bBhHiIlL", 1, rng):
        a, b = rng.integers(0, 2 if dtype == "?" else 100, (2, 6, 6)).astype(dtype)
        for x, y in device.some(((a, b), (a, b / 3), ((a / 3).astype("f4"), b)), 2, rng):
            got, report = device.matmul(x, y, accuracy="fp64", reproducible=True, return_report=True)
            as_floats = (z.astype("f8") if z.dtype.kind in "biu" else z for z in (x, y))
            wanted, of_floats = ozaki.matmul(*as_floats, accuracy="fp64", reproducible=True, return_report=True)
            assert got.dtype == np.float64 and got.tobytes() == wanted.tobytes()
            assert report.bound == of_floats.bound and report.slices == of_floats.slices


def test_what_float64_does_not_hold_is_named(device):
    a, b = np.full((2, 3), 2**60), np.ones((3, 2), np.uint64)
    options = {"accuracy": "fp64", "reproducible": True}
    assert (device.matmul(a, b, **options) == 3.0 * 2**60).all()  # it holds 2**60
    for name, x, y, at, value in (
        ("a", np.where([[1, 1, 0], [1, 1, 1]], 1, 2**53 + 1), b, "[0, 2]", 2**53 + 1),
        ("a", np.full((2, 3), -(2**63) + 1), b, "[0, 0]", -(2**63) + 1),
        ("b", a, np.where(b > 0, np.uint64(2**64 - 1), b), "[0, 0]", 2**64 - 1),
    ):
        for call in (
            lambda x, y: ozaki.matmul(x, y, accuracy="fp64"),
            lambda x, y: ozaki.gemm(1, x, y, 0, None),
            lambda x, y: ozaki.plan(x, y, accuracy="fp64"),
            lambda x, y: ozaki.tensordot(x, y, 1),
        ):
            with pytest.raises(ValueError, match=re.escape(f"{name}: element {at} is {value}, {REMEDY}")):
                call(device.asarray(x), device.asarray(y))
    lowest = np.full((2, 3), -(2**63))  # whose magnitude int64 does not hold
    assert (device.matmul(lowest, b, **options) == -3.0 * 2**63).all()


def test_whole_numbers_stay_exact_with_dtype_mp(device, rng):
    """Of integers, and of an `MPArray` of whole numbers; the result comes back as Python's integers."""
    a, b = rng.integers(-(2**62), 2**62, (2, 3, 3))
    exact = python(a) @ python(b)
    arrays = device.asarray(a), device.asarray(b)
    wide = [mparray(x) for x in arrays]
    for x, y in device.some((arrays, wide, (arrays[0], wide[1])), 1, rng):
        found = ozaki.matmul(x, y, dtype="mp")
        assert found.library is device.xp and (found.to_integers() == exact).all()
        assert type(found.to_integers()[0, 0]) is int
        got = ozaki.gemm(-3, x, y, 1, arrays[0], dtype="mp", trans_b="T")
        assert (got.to_integers() == python(a) - 3 * (python(a) @ python(b).T)).all()
    assert (back(device, arrays[0] @ wide[1]).to_integers() == exact).all()
    halves = ozaki.matmul(wide[0].ldexp(-1), wide[1], dtype="mp")  # no whole numbers: as many bits as the operands
    assert halves.bits == 63 and not (back(device, halves).ldexp(1).to_fractions() == exact).all()
    assert (wide[0] @ wide[1]).bits == 63  # of two MPArrays: the larger precision
    assert (device.matmul(a >> 40, b >> 40, dtype="int64") == (a >> 40) @ (b >> 40)).all()


def test_integers_everywhere(device, rng):
    """Plans, prepared operands, residuals, contractions, powers: as of float64 numbers, or exact."""
    a, b = rng.integers(-9, 10, (2, 4, 4))
    x, y = device.asarray(a), device.asarray(b)
    plan = ozaki.plan(x, y, accuracy="fp64", reproducible=True)
    assert plan.dtype == "float64"
    for left, right in ((x, y), (ozaki.prepare(x, "left", plan), y), (x, ozaki.prepare(y, "right", plan))):
        assert (device.asnumpy(ozaki.matmul(left, right, plan=plan)) == a @ b).all()
    out = device.full((4, 4), np.nan)
    assert ozaki.gemm(2, x, y, -1, x, out=out) is out and (device.asnumpy(out) == 2 * a @ b - a).all()
    large = b + (b != 0) * 2**60
    rest = ozaki.residual(x, y, device.asarray(large))
    assert rest.dtype == np.float64 and (device.asnumpy(rest) == (large - a @ b).astype("f8")).all()
    found = ozaki.einsum("ij,jk->ki", x, y, accuracy="fp64", reproducible=True)
    assert (device.asnumpy(found) == (a @ b).T).all()
    assert float(device.asnumpy(ozaki.tensordot(x, y, accuracy="fp64", reproducible=True))) == (a * b).sum()
    assert (back(device, ozaki.matrix_power(x, 5)).to_integers() == np.linalg.matrix_power(python(a), 5)).all()


@pytest.mark.parametrize("dtype", ["int64", "mp"])
def test_contractions_of_integers_are_exact(device, rng, dtype):
    shift = 2 if dtype == "int64" else 60
    a, b, c = rng.integers(-(2**shift), 2**shift, (3, 3, 3))
    c *= 2 ** (62 - shift) // 40 if dtype == "int64" else 1
    x, y, z = map(device.asarray, (a, b, c))
    cases = ["ij,jk->ik", "ij,jk,kl->il", "i...,i...->...", "ij,ij->ij", "ii,i->", "ij->ji", "ij->j", "ii", "i,j->ij"]
    for subscripts in device.some(cases, 3, rng):
        count = subscripts.count(",") + 1
        given, exact = (x, y, z)[3 - count :], [python(a), python(b), python(c)][3 - count :]
        vectors = [name in ("i", "j") for name in subscripts.partition("->")[0].split(",")]
        given, exact = ([m[0] if v else m for m, v in zip(of, vectors, strict=True)] for of in (given, exact))
        found = ozaki.einsum(subscripts, *given, dtype=dtype)
        wanted = np.einsum(subscripts, *exact)
        if dtype == "mp":
            assert isinstance(found, ozaki.MPArray) and (back(device, found).to_integers() == wanted).all()
        else:
            assert found.dtype == np.int64 and (device.asnumpy(found) == wanted).all()
    found = ozaki.tensordot(y, z, ([0], [1]), dtype=dtype)
    wanted = np.tensordot(python(b), python(c), ([0], [1]))
    assert ((back(device, found).to_integers() if dtype == "mp" else device.asnumpy(found)) == wanted).all()


def test_integers_beside_multiprecision_numbers_have_every_bit(device):
    """Products of integers alone come first in these; int64 wrapped around, and float64 rounded them."""
    x = device.asarray(np.array([2**40 + 1, 2**53 + 1]))
    one = mparray(device.full(2, 1.0))
    found = ozaki.einsum("i,i,i->i", x, x, one)
    assert back(device, found).to_integers().tolist() == [(2**40 + 1) ** 2, (2**53 + 1) ** 2]
    found = ozaki.einsum("i,j,k->", x, x, one)
    assert int(back(device, found)) == 2 * (2**40 + 2**53 + 2) ** 2
    found = ozaki.einsum("i,i,i->i", device.full(2, 1.0, "f4"), x, one)
    assert back(device, found).to_integers().tolist() == [2**40 + 1, 2**53 + 1]
