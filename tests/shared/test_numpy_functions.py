"""NumPy's functions of multiprecision arrays: exact, or products to the arrays' bits, or an error; and in `emulate`."""

from fractions import Fraction

import numpy as np
import pytest
from mparrays import back, moved, rounded, same, same_planes

import ozaki
from ozaki import MPArray, mparray


@pytest.fixture
def device(device):
    """NumPy, a real device or the emulated Ampere."""
    if device.name == "emulated Hopper":
        pytest.skip("its kernels are those of the emulated Ampere")
    return device


def made(rng, shape, is_complex=False):
    """Whole numbers with a tail that float64 has no bits for."""
    x = mparray((rng.integers(-9, 9, shape).astype(float), rng.integers(-9, 9, shape) * 2.0**-90))
    return x + made(rng, shape) * 1j if is_complex else x


def parts(x):
    return (x.real.to_fractions(), x.imag.to_fractions())


def exactly(function, operands):
    """A function that is linear in each of its operands, of the exact numbers: the real and the imaginary parts."""
    found = [np.array(Fraction(0)), np.array(Fraction(0))]
    for choice in np.ndindex(*(2,) * len(operands)):
        term = np.asarray(function(*(parts(x)[which] for x, which in zip(operands, choice, strict=True))))
        power = sum(choice) % 4  # of i
        found[power % 2] = found[power % 2] + (-term if power > 1 else term)
    return found


def within(device, found, wanted, operands, function):
    """Whether the parts of a product are as near as its bits say."""
    assert isinstance(found, MPArray) and found.bits >= 90
    sizes = np.asarray(function(*(abs(parts(x)[0]) + abs(parts(x)[1]) for x in operands)))
    error = [abs(x - y) for x, y in zip(parts(back(device, found)), wanted, strict=True)]
    return all(np.shape(e) == sizes.shape and np.all(e <= sizes * 100 * Fraction(1, 2**90)) for e in error)


X, Y, V, S = (3, 4), (4, 3), (4,), (2, 4, 3)
PRODUCTS = {
    "dot": (np.dot, X, Y),
    "dot of vectors": (np.dot, V, V),
    "dot of a stack": (np.dot, X, S),
    "matmul": (np.matmul, X, S),
    "linalg.matmul": (np.linalg.matmul, X, Y),
    "inner": (np.inner, X, X),
    "tensordot": (lambda s, t: np.tensordot(s, t, axes=([0, 2], [0, 2])), S, S),
    "tensordot of a number": (lambda s, t: np.tensordot(s, t, axes=1), X, V),
    "einsum": (lambda x, s: np.einsum("ij,bjk->bki", x, s), X, S),
    "einsum of one": (lambda x: np.einsum("ij->j", x), X),
    "einsum of a diagonal": (lambda x: np.einsum("iij->i", x), (3, 3, 4)),
    "einsum without sums": (lambda x, y: np.einsum("ij,kl->ikjl", x, y), X, Y),
    "einsum elementwise": (lambda x, y: np.einsum("ij,ij->ij", x, y), X, X),
    "einsum of three": (lambda x, y, v: np.einsum("ij,jk,j->ki", x, y, v), X, Y, V),
    "multi_dot": (lambda x, y, z, v: np.linalg.multi_dot([x, y, z, v]), X, Y, X, V),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(device, rng, name):
    function, *shapes = PRODUCTS[name]
    for is_complex in device.some([False, True], 1, rng):
        operands = [made(rng, shape, is_complex and rng.random() < 0.7) for shape in shapes]
        wanted = exactly(function, operands)
        there = [moved(device, x) for x in operands]
        assert within(device, function(*there), wanted, operands, function)
        with ozaki.emulate(accuracy=150, report=True) as run:
            found = function(*there)
        assert within(device, found, wanted, operands, function)
        assert run.account.products and not run.account.left and 0 < run.account.bound < 2.0**-145
        assert run.account.entries[0].dtype.startswith("mp")


@pytest.mark.parametrize("name", ["vdot", "vecdot", "matvec", "vecmat", "linalg.vecdot"])
def test_products_of_conjugates(device, rng, name):
    if not hasattr(np, name.removeprefix("linalg.")):
        pytest.skip(f"this NumPy has no {name}")
    x, y = made(rng, (4, 4), True), made(rng, (4, 4), True)
    plain = {
        "vdot": lambda a, b: np.dot(a.reshape(-1), b.reshape(-1)),
        "vecdot": lambda a, b: np.einsum("ij,ij->i", a, b),
        "matvec": lambda a, b: np.einsum("ij,bj->bi", a, b),
        "vecmat": lambda a, b: np.einsum("bi,ij->bj", a, b),
        "linalg.vecdot": lambda a, b: np.einsum("ij,ij->i", a, b),
    }[name]
    first = x if name == "matvec" else x.conj()
    function = np.linalg.vecdot if name == "linalg.vecdot" else getattr(np, name)
    found = function(moved(device, x), moved(device, y))
    assert within(device, found, exactly(plain, [first, y]), [x, y], plain)


def test_products_of_vectors_refuse_what_are_none(device):
    x = moved(device, mparray(np.eye(3)))
    for call, message in (
        (lambda: np.vecdot(1.0, x), r"^numpy\.vecdot: shape \(\) of operand 0; expected 1 axes or more"),
        (lambda: np.matvec(x[0], x), r"^numpy\.matvec: shape \(3,\) of operand 0; expected 2 axes or more"),
        (lambda: np.vecmat(x, x[0]), r"^numpy\.vecmat: shape \(3,\) of operand 1; expected 2 axes or more"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    sparse = pytest.importorskip("scipy.sparse").csr_array(np.eye(3))
    for product in (np.vecdot, np.matvec, np.vecmat, np.tensordot, np.inner):
        with pytest.raises(TypeError, match=r"scipy\.csr_array, a sparse array; use \w\.toarray\(\)"):
            product(x, sparse)


def test_operands_beside(device, rng):
    x, a = made(rng, (3, 3)), rng.standard_normal((3, 3))
    there, floats = moved(device, x), device.asarray(a)
    wanted = exactly(np.dot, [mparray(a), x])
    assert within(device, np.dot(floats, there), wanted, [mparray(a), x], np.dot)
    assert within(device, np.dot(a.tolist(), there), wanted, [mparray(a), x], np.dot)
    short = moved(device, mparray(rng.integers(-9, 9, (3, 3)), bits=24))
    of_matmul = back(device, ozaki.matmul(floats, short))
    for found in (floats @ short, np.matmul(floats, short), np.dot(floats, short), np.tensordot(floats, short, 1)):
        assert same_planes(back(device, found), of_matmul)
    # A product of two floats in a chain has the bits of the longest operand, too.
    chain = [np.array([[1.0, 2.0**-60]]), np.array([[1.0], [2.0**-60]]), mparray([[1.0]], bits=300) + 2.0**-299]
    found = np.linalg.multi_dot([device.asarray(chain[0]), device.asarray(chain[1]), moved(device, chain[2])])
    wanted = (1 + Fraction(1, 2**120)) * (1 + Fraction(1, 2**299))
    assert abs(back(device, found).to_fractions()[0, 0] - wanted) < Fraction(1, 2**297)


def test_sums_norms_and_extremes(device, rng):
    for x in (made(rng, (5, 3)), made(rng, (2, 7, 3)), made(rng, (4,)), made(rng, (3, 3), True)):
        there = moved(device, x)
        for axis in [None, *range(-x.ndim, x.ndim), tuple(range(x.ndim))[:2]]:
            keepdims = bool(rng.integers(2))
            found = np.sum(there, axis=axis, keepdims=keepdims)
            assert same_parts(device, found, [np.sum(part, axis=axis, keepdims=keepdims) for part in parts(x)])
        if x.ndim > 1:
            assert same_parts(device, np.trace(there, 1), [np.trace(part, 1) for part in parts(x)])
            last = [np.trace(part, -1, -2, -1) for part in parts(x)]
            assert same_parts(device, np.linalg.trace(there, offset=-1), last)
        if not x.is_complex:
            assert same(back(device, np.max(there, axis=0)), x.to_fractions().max(axis=0))
            assert same(back(device, np.min(there)), x.to_fractions().min())
            axes = (0, -1)[: x.ndim]
            assert same(back(device, np.max(there, axis=axes)), x.to_fractions().max(axis=axes))
        with ozaki.emulate(accuracy=30, report=True) as run:
            norm = back(device, np.linalg.norm(there))
        assert [(entry.operator, entry.bound) for entry in run.account.entries] == [("norm", 0)]
        square = sum(sum(part.reshape(-1) ** 2) for part in parts(x))
        assert norm.shape == () and is_rounded_root(norm.to_fractions().item(), square, x.bits)
    empty = np.sum(moved(device, made(rng, (0, 3))), axis=0)
    assert same(back(device, empty), [0, 0, 0]) and np.linalg.norm(moved(device, made(rng, (3,)) * 0)) == 0
    with pytest.raises(ValueError, match=r"^ord: 1; of an MPArray expected"):
        np.linalg.norm(moved(device, made(rng, (3,))), 1)


def same_parts(device, found, wanted):
    """Whether the real and the imaginary parts of an MPArray are these, exactly."""
    found = back(device, found)
    return all(same(part, numbers) for part, numbers in zip((found.real, found.imag), wanted, strict=True))


def is_rounded_root(found, square, bits):
    """Whether a number of `bits` bits is the nearest one to the root of a rational, which may be next to a midpoint."""
    if not found:
        return square == 0
    unit = Fraction(2) ** (found.numerator.bit_length() - found.denominator.bit_length() + 1 - bits)
    below = unit / 2 if found.numerator == 1 << (found.numerator.bit_length() - 1) else unit
    return rounded(found, bits) == found and (found - below / 2) ** 2 <= square <= (found + unit / 2) ** 2


MOVES = {
    "concatenate": lambda x, y: np.concatenate([x, y], axis=1),
    "concatenate without axes": lambda x, y: np.concatenate([x, y], axis=None),
    "stack": lambda x, y: np.stack([x, y], axis=-1),
    "vstack": lambda x, y: np.vstack([x, y, x]),
    "hstack": lambda x, y: np.hstack((x, y)),
    "dstack": lambda x, y: np.dstack([x, y]),
    "column_stack": lambda x, y: np.column_stack([x[0], y[1]]),
    "block": lambda x, y: np.block([[x, y, x[:, :1]], [y, -x, y[:, 2:3]]]),
    "block of vectors": lambda x, y: np.block([x[0], y[1]]),
    "reshape": lambda x, y: np.reshape(x, (2, -1), order="F"),
    "ravel": lambda x, y: np.ravel(x, "F"),
    "squeeze": lambda x, y: np.squeeze(x[None, :, None]),
    "squeeze to a number": lambda x, y: np.squeeze(x[:1, :1]),
    "expand_dims": lambda x, y: np.expand_dims(x, (0, 2)),
    "transpose": lambda x, y: np.transpose(x),
    "transpose of a stack": lambda x, y: np.transpose(x[None], (2, 0, 1)),
    "swapaxes": lambda x, y: np.swapaxes(x, 0, 1),
    "moveaxis": lambda x, y: np.moveaxis(x, 0, -1),
    "diagonal": lambda x, y: np.diagonal(x, 1),
    "diagonals": lambda x, y: np.diagonal(np.stack([x, y]), -1, 2, 1),
    "linalg.diagonal": lambda x, y: np.linalg.diagonal(np.stack([x, y]), offset=1),
    "linalg.matrix_transpose": lambda x, y: np.linalg.matrix_transpose(np.stack([x, y])),
    "diag": lambda x, y: np.diag(x[0], 1),
    "tril": lambda x, y: np.tril(x, -1),
    "triu": lambda x, y: np.triu(y),
    "flip": lambda x, y: np.flip(x, 1),
    "roll": lambda x, y: np.roll(x, 2, axis=1),
    "tile": lambda x, y: np.tile(x, (2, 1)),
    "repeat": lambda x, y: np.repeat(x, 2, axis=0),
    "split": lambda x, y: np.split(x, 2, axis=1)[1],
    "atleast_3d": lambda x, y: np.atleast_3d(x),
    "broadcast_to": lambda x, y: np.broadcast_to(x, (2, 4, 4)),
    "copy": lambda x, y: np.copy(x),
    "zeros_like": lambda x, y: np.zeros_like(x),
}


@pytest.mark.parametrize("name", MOVES)
def test_elements_are_moved(device, rng, name):
    move = MOVES[name]
    for is_complex in (False, True):
        x, y = made(rng, (4, 4), is_complex), made(rng, (4, 4)) * 3
        found = move(moved(device, x), moved(device, y))
        wanted = [move(p, q) for p, q in zip(parts(x), parts(y), strict=True)]
        assert isinstance(found, MPArray) and found.bits >= x.bits
        assert same_parts(device, found, wanted)


def test_an_array_of_floats_beside(device, rng):
    x, a = made(rng, (2, 3)), rng.standard_normal((2, 3))
    found = back(device, np.vstack([device.asarray(a), moved(device, x)]))
    assert same(found, [*a.tolist(), *x.to_fractions().tolist()])


def test_powers(device, rng):
    x = made(rng, (3, 3))
    there = moved(device, x)
    assert same_planes(back(device, np.linalg.matrix_power(there, 5)), ozaki.matrix_power(x, 5))
    wanted = np.linalg.multi_dot([x.to_fractions()] * 5)
    sizes = np.linalg.multi_dot([abs(x.to_fractions())] * 5)
    with ozaki.emulate(accuracy=120) as run:
        found = np.linalg.matrix_power(there, 5)
    assert (abs(back(device, found).to_fractions() - wanted) <= sizes * 20 * Fraction(1, 2**120)).all()
    assert run.account.products == 3 and run.account.entries[0].operator == "matrix_power"
    assert same_planes(back(device, np.linalg.matrix_power(there, 0)), ozaki.matrix_power(x, 0))


def test_ufuncs(device, rng):
    x, y, a = made(rng, (2, 3)), made(rng, (3,)), rng.integers(-4, 4, (2, 3)).astype(float)
    p, q, floats, f = x.to_fractions(), y.to_fractions(), device.asarray(a), np.vectorize(Fraction)(a)
    there, other = moved(device, x), moved(device, y)
    for found, wanted in (
        (np.add(there, other), p + q), (np.subtract(floats, there), f - p), (np.multiply(0.5, there), p / 2),
        (np.negative(there), -p), (np.positive(there), p), (np.absolute(there), abs(p)), (np.conj(there), p),
        (floats + there, f + p), (floats - there, f - p), (there - floats, p - f), (np.float64(2) * there, 2 * p),
        (np.real(there), p), (np.imag(there), 0 * p), (np.ldexp(there, 3), 8 * p),
    ):  # fmt: skip
        assert isinstance(found, MPArray) and same(back(device, found), wanted)
    for found, wanted in (
        (np.equal(there, floats), p == f), (np.less(floats, there), f < p), (floats >= there, f >= p),
        (np.not_equal(there, there), p != p), (np.greater(there, other), p > q), (floats != there, f != p),
    ):  # fmt: skip
        assert (device.asnumpy(found) == wanted.astype(bool)).all()
    assert np.array_equal(there, there) and not np.array_equal(there, other)
    assert (np.shape(there), np.ndim(there), np.size(there)) == ((2, 3), 2, 6)
    assert np.iscomplexobj(there * 1j) and np.isrealobj(there)


REFUSED = {
    "sqrt": lambda x, a: np.sqrt(x),
    "divide": lambda x, a: a / x,
    "mean": lambda x, a: np.mean(x),
    "linalg.solve": lambda x, a: np.linalg.solve(x, a),
    "linalg.det": lambda x, a: np.linalg.det(x),
    "allclose": lambda x, a: np.allclose(x, x),
    "linspace": lambda x, a: np.linspace(x, x, 3),
    "fft.fft": lambda x, a: np.fft.fft(x),
    "add.reduce": lambda x, a: np.add.reduce(x),
    "sum": lambda x, a: np.sum(x, dtype=float),
    "concatenate": lambda x, a: np.concatenate([x, x], dtype=float),
    "zeros_like": lambda x, a: np.zeros_like(x, dtype=float),
    "einsum": lambda x, a: np.einsum(x, [0, 1], x, [1, 2]),
    "tensordot": lambda x, a: np.linalg.tensordot(x, x, axes=2, other=3),
    "kron": lambda x, a: np.kron(x, x),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_functions_are_refused(device, name):
    x, a = moved(device, mparray(np.eye(2))), np.eye(2)
    if name == "tensordot":
        with pytest.raises(TypeError):
            REFUSED[name](x, a)
        return
    with pytest.raises(TypeError, match=rf"^numpy\.{name}: .*numpy\.asarray\(x\)"):
        REFUSED[name](x, a)


@pytest.mark.parametrize("save", [np.save, np.savez, np.savez_compressed, np.savetxt])
def test_functions_that_write_files_name_the_method_that_does(device, save, tmp_path):
    """The first three would pickle."""
    with pytest.raises(TypeError, match=rf"^numpy\.{save.__name__}: not for an MPArray; x\.save\(file\) writes"):
        save(tmp_path / "x", moved(device, mparray(np.eye(2))))


def test_no_result_goes_into_an_array(device):
    x, out = moved(device, mparray(np.eye(2))), np.zeros((2, 2))
    for call in (
        lambda: np.dot(x, x, out=out), lambda: np.matmul(x, x, out), lambda: np.einsum("ij,jk", x, x, out=out),
        lambda: np.add(x, x, out=out), lambda: np.linalg.multi_dot([x, x], out=out), lambda: np.sum(x, out=out),
        lambda: np.matmul(out, out, out=x), lambda: np.dot(out, out, out=x),
    ):  # fmt: skip
        with ozaki.emulate(accuracy=100) as run, pytest.raises(TypeError):
            call()
        assert not run.account.products and not run.account.left and not out.any()
    with pytest.raises(TypeError, match=r"^numpy\.add: out, as in a \+= x, is not for an MPArray"):
        out += mparray(np.eye(2))
    assert same(np.dot(mparray(np.eye(2)), np.eye(2), out=None), np.eye(2))


def test_operators_in_blocks(device, rng):
    x, a = made(rng, (3, 3)), rng.standard_normal((3, 3))
    there, floats = moved(device, x), device.asarray(a)
    with ozaki.emulate(accuracy=150, report=True) as run:
        found = there @ floats, floats @ there
        ozaki.matmul(there, there)
        ozaki.linalg.solve(x, np.ones(3), accuracy="fp64")
    for c, operands in zip(found, ([x, mparray(a)], [mparray(a), x]), strict=True):
        assert within(device, c, exactly(np.dot, operands), operands, np.dot) and c.bits >= 150
    assert run.account.products == 2 and run.account.entries[0].operator == "matmul" and run.account.bound < 2.0**-145


def test_classes_that_have_functions_of_their_own(device):
    class Units(np.ndarray):
        def __array_function__(self, function, types, args, kwargs):
            return "its own" if function is np.vstack else NotImplemented

    x, units = moved(device, mparray(np.eye(2))), np.eye(2).view(Units)
    assert np.vstack([x, units]) == "its own"
    with pytest.raises(TypeError, match="no implementation found"):
        np.dot(x, units)


def test_other_classes_of_arrays_leave_operators_to_this_one(device):
    x = mparray([1.0, 2.0]) + 2.0**-90
    masked = np.ma.array([1.0, 2.0], mask=[False, False])
    tail = Fraction(1, 2**90)
    assert same(masked + x, [2 + tail, 4 + tail]) and same(masked - x, [-tail, -tail])
    assert same(masked @ x, 5 + 3 * tail)
    xarray = pytest.importorskip("xarray", reason="xarray is not installed")
    assert same((xarray.DataArray([1.0, 2.0]) + x).data, [2 + tail, 4 + tail])  # which keeps arrays of any class
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    try:
        found = pandas.Series([1.0, 2.0]) + x
    except TypeError:
        return
    assert same(found, [2 + tail, 4 + tail])
