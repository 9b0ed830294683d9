"""`einsum` and `tensordot`, and NumPy's and CuPy's functions under `emulate`."""

import contextlib
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import ozaki
from ozaki import einsum, emulate, tensordot

FP64 = {"accuracy": "fp64", "reproducible": True}


@pytest.fixture(params=["numpy", pytest.param("cupy", marks=pytest.mark.gpu)])
def xp(request):
    return pytest.importorskip(request.param, reason="a real device needs CuPy")


def host(x):
    return x.get() if hasattr(x, "get") else np.asarray(x)


def made(xp, rng, shapes, dtype="f8"):
    real = [rng.standard_normal(shape) for shape in shapes]
    return [xp.asarray((x + 1j * rng.standard_normal(x.shape) if dtype[0] == "c" else x).astype(dtype)) for x in real]


EINSUMS = [
    ("ij,jk->ik", (3, 4), (4, 5)),
    ("ij,jk", (3, 4), (4, 5)),
    ("ki,jk", (4, 3), (5, 4)),
    ("bij,bjk->bki", (2, 3, 4), (2, 4, 5)),
    (" b i j , b j k -> b k i ", (2, 3, 4), (2, 4, 5)),
    ("...ij,jk->...ik", (2, 6, 3, 4), (4, 5)),
    ("...ij,...jk->ik...", (2, 1, 3, 4), (6, 4, 5)),
    ("i...,i...->...", (3, 4), (3, 4)),
    ("i...,i...", (3, 4), (3, 4)),
    ("ii->i", (4, 4)),
    ("ii", (4, 4)),
    ("iji->j", (4, 3, 4)),
    ("ij->ji", (3, 4)),
    ("ij->j", (3, 4)),
    ("ij->", (3, 4)),
    ("ij,jk->k", (3, 4), (4, 5)),
    ("iij,jk->ik", (3, 3, 4), (4, 5)),
    ("i,i->i", (3,), (3,)),
    ("i,j->ji", (3,), (4,)),
    ("i,i", (3,), (3,)),
    (",i->i", (), (3,)),
    ("ii,i->", (1, 1), (3,)),
    ("iij,jk->ik", (1, 1, 4), (4, 5)),
    ("ijk,kjl->il", (3, 4, 5), (5, 4, 2)),
    ("ab,bc,cd->ad", (3, 4), (4, 5), (5, 6)),
    ("a,b,c->abc", (3,), (4,), (5,)),
    ("ab,ac,ad->abcd", (3, 4), (3, 5), (3, 6)),
    ("abc,cde,be,ad->", (3, 4, 5), (5, 6, 2), (4, 2), (3, 6)),
    ("ij,jk->ik", (4, 1), (5, 6)),
    ("ij,ij->ij", (1, 5), (4, 5)),
    ("ij,jk->ik", (0, 4), (4, 5)),
    ("ij,jk->ik", (3, 0), (0, 5)),
]


@pytest.mark.parametrize("case", EINSUMS, ids=str)
@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_einsum_is_numpys(xp, rng, case, dtype):
    subscripts, *shapes = case
    operands = made(xp, rng, shapes, dtype)
    found, wanted = einsum(subscripts, *operands, accuracy=60), np.einsum(subscripts, *map(host, operands))
    assert found.shape == wanted.shape and found.dtype == wanted.dtype
    np.testing.assert_allclose(host(found), wanted, rtol=1e-11, atol=1e-13)


def test_what_has_no_axes_is_a_scalar():
    """As of NumPy; of CuPy and of multiprecision numbers it is an array."""
    a = np.array([[1.0, 2.0], [3.0, 4.0]])
    for subscripts in ("ij,ij", "ii", "ij->", "ij,jk->"):
        found = einsum(subscripts, *[a] * (subscripts.count(",") + 1), accuracy="fp64")
        assert type(found) is np.float64 and found == np.einsum(subscripts, *[a] * (subscripts.count(",") + 1))
    assert isinstance(einsum("ij->", ozaki.mparray(a)), ozaki.MPArray)


def test_multiprecision_contractions(rng):
    """As of Python's fractions, complex ones and diagonals, too; products without sums are exact here."""
    from mparrays import rationals

    x = ozaki.mparray(rng.integers(-(2**60), 2**60, (3, 3))).ldexp(-70)
    y = ozaki.mparray(rng.integers(-(2**60), 2**60, (3, 3))).ldexp(rng.integers(-9, 9, (3, 3)))
    for subscripts in ("ij,jk->ki", "ii->i", "ii,ij->j", "ij,ij->ij", "ij,kl->likj", "ij->j", "ij,ji", "ij,jk,kl->il"):
        count = subscripts.count(",") + 1
        found = einsum(subscripts, *(x, y, x)[:count], accuracy="exact")
        wanted = np.einsum(subscripts, *map(rationals, (x, y, x)[:count]))
        assert (rationals(found) == wanted).all()
        found = einsum(subscripts, *(x * 1j, y * -1j, x)[:count], accuracy="exact")
        factor = {1: (0, 1), 2: (1, 0), 3: (1, 0)}[count]
        assert (rationals(found.real) == factor[0] * wanted).all()
        assert (rationals(found.imag) == factor[1] * wanted).all()
    assert (rationals(tensordot(x, y, ([0], [1]), accuracy="exact")) == rationals(x).T @ rationals(y).T).all()


def test_two_operands_are_one_product(xp, rng):
    a, b = made(xp, rng, [(2, 3, 40), (2, 40, 5)])
    wanted = ozaki.matmul(a, b, **FP64)
    assert (host(einsum("bij,bjk->bik", a, b, **FP64)) == host(wanted)).all()
    assert (host(tensordot(a[0], b[0], 1, **FP64)) == host(wanted[0])).all()
    assert (host(einsum("bji,bjk->bik", a.swapaxes(1, 2), b, **FP64)) == host(wanted)).all()


@pytest.mark.parametrize(
    "axes", [1, 0, ([0, 1], [1, 0]), (1, 0), (-2, -3), ([], []), ((0,), (1,))], ids=str
)  # fmt: skip
def test_tensordot_is_numpys(xp, rng, axes):
    a, b = made(xp, rng, [(3, 4, 4), (4, 3, 2)])
    try:
        wanted = np.tensordot(host(a), host(b), axes)
    except ValueError:
        with pytest.raises(ValueError, match=r"^axes: those of a have sizes"):
            tensordot(a, b, axes)
        return
    found = tensordot(a, b, axes, accuracy=60)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(host(found), wanted, rtol=1e-12, atol=1e-13)


LARGE = np.array([[1, 2**53 + 1, 5]] * 3)

BAD = {
    "no string": (lambda a: einsum([0, 1], a), TypeError, "subscripts: list; expected a string"),
    "no operands": (lambda a: einsum("ij"), ValueError, "operands: none"),
    "too few": (lambda a: einsum("ij,jk", a), ValueError, "subscripts: 'ij,jk' names 2 operands, but there are 1"),
    "axes": (lambda a: einsum("ijk", a), ValueError, "subscripts: 'ijk' does not fit an operand of 2 axes"),
    "fewer axes": (lambda a: einsum("i", a), ValueError, "subscripts: 'i' does not fit an operand of 2 axes"),
    "sizes": (lambda a: einsum("ij,jk", a, a[:2]), ValueError, "subscripts: axis 'j' has size 2 in operand 1, and 3"),
    "diagonal": (
        lambda a: einsum("ii,i->", a[:, :1], a[0]),
        ValueError,
        "subscripts: axes 'i' of operand 0 have sizes",
    ),
    "diagonal of one": (lambda a: einsum("jj->j", a[:1]), ValueError, "subscripts: axes 'j' of operand 0 have sizes 1"),
    "trace": (lambda a: einsum("ii", a[:2]), ValueError, "subscripts: axes 'i' of operand 0 have sizes 2 and 3"),
    "diagonal, later": (lambda a: einsum("ij,jkj", a, a[:, None, :1]), ValueError, "subscripts: axes 'j' of operand 1"),
    "unknown": (lambda a: einsum("ij->k", a), ValueError, "subscripts: 'ij->k'; expected each axis of the result once"),
    "twice": (lambda a: einsum("ij->ii", a), ValueError, "subscripts: 'ij->ii'; expected each axis of the result once"),
    "letters": (lambda a: einsum("i1->i", a), ValueError, "subscripts: 'i1->i'; expected letters"),
    "dots": (lambda a: einsum("...j->j", a), ValueError, r"subscripts: '...j->j'; expected '\.\.\.' in the result"),
    "integers": (
        lambda a: einsum("ij,jk", a, LARGE),
        ValueError,
        r"operand 1: element \[0, 1\] is 9007199254740993, an",
    ),
    "integers of tensordot": (
        lambda a: tensordot(LARGE, a),
        ValueError,
        r"a: element \[0, 1\] is 9007199254740993, an",
    ),
    "objects": (lambda a: einsum("ij", a.astype(object)), TypeError, "operand 0: dtype object is not supported"),
    "many axes": (lambda a: tensordot(a, a, 3), ValueError, "axes: 3; a has 2 axes, and b 2"),
    "other axes": (lambda a: tensordot(a, a, (2, 0)), ValueError, "axes of a"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_refused(case):
    call, error, message = BAD[case]
    with pytest.raises(error, match=f"^{message}"):
        call(np.ones((3, 3)))


def test_sixteen_bits(xp, rng):
    a, b = made(xp, rng, [(5, 40), (40, 3)], "f2")
    c = ozaki.matmul(a, b, accuracy="fp32", reproducible=True)
    assert c.dtype == np.float32 == einsum("ij,jk->ik", a, b, accuracy="fp32").dtype
    assert (c == ozaki.matmul(a.astype("f4"), b.astype("f4"), accuracy="fp32", reproducible=True)).all()
    assert ozaki.matmul(a, b).dtype == np.float16 == einsum("ij,jk->ik", a, b).dtype
    assert ozaki.matmul(a, b.astype("f8")).dtype == np.float64


def test_bfloat16_of_numpy(rng):
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    a = rng.standard_normal((5, 40)).astype(ml_dtypes.bfloat16)
    c = ozaki.matmul(a, a.T, accuracy="fp32", reproducible=True)
    assert c.dtype == np.float32
    assert (c == ozaki.matmul(a.astype("f4"), a.T.astype("f4"), accuracy="fp32", reproducible=True)).all()
    assert ozaki.matmul(a, a.T).dtype == a.dtype


def test_contractions_of_integer_matrices_have_every_bit():
    flint = pytest.importorskip("flint", reason="python-flint is not installed")
    a = flint.fmpz_mat([[2**40 + 1, 3], [5, 2**41 + 7]])
    assert int(einsum("ij,kl->", a, a)) == (2**40 + 2**41 + 16) ** 2
    assert einsum("ij,jk,kl,lm->im", a, a, a, a).to_integers().tolist() == [
        [int(x) for x in row] for row in (a**4).tolist()
    ]
    assert einsum("ij,jk,kl->il", a, a, a, accuracy="fp64").bits < 70  # an accuracy that is named decides


@pytest.mark.parametrize("subscripts", ["ij,jk,kl->il", "ij,jk,ml->im", "ij,ij,ij->ij"])
def test_float32_beside_float64_is_not_rounded_in_between(xp, rng, subscripts):
    """As NumPy's einsum, which computes in the dtype of its result."""
    a, b = made(xp, rng, [(3, 3), (3, 3)], "f4")
    (c,) = made(xp, rng, [(3, 3)])
    wanted = np.einsum(subscripts, *[host(x).astype("f8") for x in (a, b, c)])
    with emulate(**FP64):
        emulated = xp.einsum(subscripts, a, b, c)
    for found in (einsum(subscripts, a, b, c, **FP64), emulated):
        assert found.dtype == np.float64 and abs(host(found) - wanted).max() < 1e-13
    found = einsum("ij,kl->", a, c, **FP64)
    assert abs(found - host(a).astype("f8").sum() * host(c).sum()) < 1e-13


# emulate -------------------------------------------------------------------------------------------------------------

PROGRAMS = {
    "matmul": lambda xp, a, b, s: xp.matmul(a, b),
    "stacks": lambda xp, a, b, s: xp.matmul(s, s.swapaxes(1, 2)),
    "matmul of vectors": lambda xp, a, b, s: xp.matmul(a[0], b[:, 0]),
    "dot": lambda xp, a, b, s: xp.dot(a, b),
    "dot of vectors": lambda xp, a, b, s: xp.dot(a[0], b[:, 0]),
    "dot of stacks": lambda xp, a, b, s: xp.dot(s, s.swapaxes(1, 2)),
    "vdot": lambda xp, a, b, s: xp.vdot(a, a[::-1]),
    "inner": lambda xp, a, b, s: xp.inner(a, b.T),
    "tensordot": lambda xp, a, b, s: xp.tensordot(s, s, axes=([0, 1], [0, 1])),
    "einsum": lambda xp, a, b, s: xp.einsum("ij,jk->ki", a, b),
    "einsum of three": lambda xp, a, b, s: xp.einsum("ij,jk,lk->il", a, b, b, optimize=True),
    "multi_dot": lambda xp, a, b, s: np.linalg.multi_dot([a, b, a, b[:, 0]]) if xp is np else xp.dot(a, b),
    "out": lambda xp, a, b, s: xp.matmul(a, b, out=xp.empty((4, 4), a.dtype)),
}


@pytest.mark.parametrize("dtype", ["f8", "c16"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_under_emulation(xp, rng, name, dtype):
    operands = made(xp, rng, [(4, 7), (7, 4), (3, 4, 5)], dtype)
    program = PROGRAMS[name]
    wanted = program(xp, *operands)
    with emulate(accuracy=70, reproducible=True, report=True) as run:
        found = program(xp, *operands)
    np.testing.assert_allclose(host(found), host(wanted), rtol=1e-12, atol=1e-13)
    assert type(found) is type(wanted) and run.account.products >= 1 and not run.account.left
    assert 0 < run.account.bound < 2e-16 and "residues" in str(run)


def test_bits_are_those_of_matmul_and_everything_is_undone(xp, rng):
    a, b = made(xp, rng, [(9, 40), (40, 7)])
    functions = [getattr(xp, name) for name in ("matmul", "dot", "vdot", "inner", "tensordot", "einsum")]
    with emulate(**FP64) as outer:
        found = xp.dot(a, b)
        with emulate(accuracy="fp32", reproducible=True) as inner:
            xp.matmul(a, b)
            with pytest.raises(ValueError, match=r"^b: shape \(9, 40\) does not fit a"):
                xp.dot(a, a)
        xp.dot(a, b)
    assert (found == ozaki.matmul(a, b, **FP64)).all()
    assert (outer.account.products, inner.account.products) == (2, 1)
    assert functions == [getattr(xp, name) for name in ("matmul", "dot", "vdot", "inner", "tensordot", "einsum")]
    with outer, outer:
        xp.dot(a, b)
    assert outer.account.products == 3
    assert xp.dot is functions[1]


def test_wrong_options_are_named_before_the_block():
    for options, message in (
        ({"accuracy": "fp65"}, "accuracy: 'fp65' is not known"),
        ({"scheme": "residues", "slices": 0}, "slices: 0; expected a whole number"),
        ({"scheme": "native", "slices": 3}, "slices: 3 slices of scheme 'native'"),
    ):
        with pytest.raises(ValueError, match=f"^{message}"):
            emulate(**options)
    for scheme, slices in (("complex-residues", 12), ("fp16-digits", 4), ("halfhalf", None), ("native", None)):
        emulate(scheme=scheme, slices=slices)


def test_what_is_left_alone_is_said(rng):
    a = rng.standard_normal((4, 4))
    with emulate(accuracy="fp64") as run:
        assert np.dot(a.astype(int), 2).dtype == int
        assert np.dot(a, 2.0).shape == (4, 4) and np.matmul(a.astype("f2"), a.astype("f2")).dtype == np.float16
        assert np.einsum(a, [0, 1], a, [1, 2]).shape == (4, 4) and np.dot([1.0, 2.0], [3.0, 4.0]) == 11
        assert np.matmul(a, a, dtype="f4", casting="same_kind").dtype == np.float32
        assert np.matmul.nin == 2 and (a @ a).shape == (4, 4)
    left = run.account.left
    assert (
        run.account.products == 0
        and left[("matmul", "dtype float16")] == 1 == left[("dot", "an operand of type float")]
    )
    assert left[("matmul", "its arguments")] == 1 == left[("einsum", "its arguments")]


def test_an_einsum_of_one_array_is_numpys_own(rng):
    a = rng.standard_normal((4, 4))
    with emulate(accuracy="fp64") as run:
        np.einsum("ii->i", a)[:] = 7  # a view, that can be written to
        assert np.einsum("ij->", a, optimize=True).shape == ()
    assert (np.diag(a) == 7).all() and not run.account.products and not run.account.left


def test_arguments_that_numpy_takes(rng):
    a, b, out = rng.standard_normal((4, 5)), rng.standard_normal((5, 6)), np.empty((4, 6))
    square = rng.standard_normal((5, 5)) / 3
    with emulate(accuracy=60, reproducible=True) as run:
        assert np.matmul(a, b, out) is out and np.dot(a, b, out) is out and np.matmul(a, b, out=(out,)) is out
        np.testing.assert_allclose(np.tensordot(a=a, b=b, axes=1), out, rtol=1e-12)
        np.testing.assert_allclose(np.dot(a, b=b), out, rtol=1e-12)
        np.testing.assert_allclose(np.einsum("ij,jk->ik", a[:, :1], b, optimize="greedy"), a[:, :1] * b.sum(0))
        long = np.linalg.multi_dot([square] * 30)
        products = run.account.products
        for call in (
            lambda: np.matmul(a, b, out=np.empty((4, 6), int)), lambda: np.dot(a, b, out=np.empty((4, 6), "f4")),
            lambda: np.dot(a, b, out=np.empty((5, 4, 6))), lambda: np.linalg.multi_dot([a]),
        ):  # fmt: skip
            with pytest.raises((TypeError, ValueError)):
                call()
    assert products == 6 + 29
    np.testing.assert_allclose(long, np.linalg.matrix_power(square, 30), rtol=1e-9, atol=1e-20)


def test_chains_are_multiplied_in_the_cheapest_order(rng):
    chain = [rng.standard_normal(shape) for shape in ((49, 58), (58, 51), (51, 50), (50, 34), (34,))]
    with emulate(accuracy=60, reproducible=True) as run:
        found = np.linalg.multi_dot(chain)
    np.testing.assert_allclose(found, np.linalg.multi_dot(chain), rtol=1e-11)
    assert all(entry.shape[2] == 1 for entry in run.account.entries)  # from the vector on


def test_blocks_that_overlap_and_functions_that_are_pickled(rng):
    a, dot = rng.standard_normal((4, 4)), np.dot
    first, second = emulate(accuracy="fp64"), emulate(accuracy="fp64")
    with contextlib.ExitStack() as stack:
        first.__enter__()
        stack.enter_context(second)
        assert pickle.loads(pickle.dumps(np.dot)) is np.dot and np.dot.__name__ == "dot" and np.dot.__doc__
        first.__exit__(None, None, None)
        np.dot(a, a)
    assert np.dot is dot and (first.account.products, second.account.products) == (0, 1)


def test_counts_of_many_threads(rng):
    a = rng.standard_normal((2, 2))
    with emulate(scheme="native") as run, ThreadPoolExecutor(8) as threads:
        list(threads.map(run(lambda _: np.matmul(a, a)), range(400)))
    assert run.account.products == 400


def test_the_library_itself_is_not_emulated(rng):
    a = rng.standard_normal((4, 4))
    with emulate(accuracy="fp64") as run:
        c = ozaki.matmul(a, a, accuracy="dd")
        einsum("ij,jk", a, a)
    assert run.account.products == 0 and (c == ozaki.matmul(a, a, accuracy="dd")).all()


@pytest.mark.gpu
def test_operators_of_cupy(rng):
    cp = pytest.importorskip("cupy", reason="a real device needs CuPy")
    a, b = made(cp, rng, [(9, 40), (40, 7)])
    with emulate(**FP64) as run:
        found, other = a @ b, a.dot(b)
    wanted = ozaki.matmul(a, b, **FP64)
    assert (found == wanted).all() and (other == wanted).all() and run.account.products == 2
    assert type(a @ b) is cp.ndarray and run.account.products == 2
