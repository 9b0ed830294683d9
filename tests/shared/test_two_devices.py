"""Operands on another GPU than the current one: every public function, and every method of `MPArray`, works there.

CuPy works on its current device, and a kernel that reads memory of another one ends the process. An emulated device
raises then, and there are two of it. On real ones: `python -m pytest -m gpu tests/shared/test_two_devices.py`.
"""

import inspect
import io
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest
from devices import EMULATED, REAL

import ozaki
from ozaki import MPArray, linalg, mparray, reference

ONE = [EMULATED[0], pytest.param(REAL, marks=pytest.mark.gpu)]
BOTH = [*EMULATED, pytest.param(REAL, marks=pytest.mark.gpu)]

R = {"scheme": "residues", "slices": 14}
PLAN = ozaki.plan((3, 4), (4, 5), dtype="float64", **R)

rng = np.random.default_rng(1)
A, B, C, OUT = (*(rng.standard_normal(shape) for shape in ((3, 4), (4, 5), (3, 5))), np.zeros((3, 5)))
V, W = rng.standard_normal((2, 3))
S = np.array([[4.0, 1.0, 0.5], [1.0, 3.0, 0.25], [0.5, 0.25, 2.0]])
WHOLE = rng.integers(-9, 10, (3, 3))
X, Y, Z = (mparray(x).ldexp(-3) + mparray(x).ldexp(-70) for x in (A, B, A + 1))
K = mparray(A + 1j * Z.astype("f8"))
HALF = mparray(1.5)


@dataclass
class Case:
    """A call of a public function, and its operands in host memory, which the test moves to a device.

    Attributes
    ----------
    elsewhere : whether the result lies on the current device, not on that of the operands
    mixes : whether the operands may lie on several devices
    """

    call: object
    operands: tuple
    elsewhere: bool = False
    mixes: bool = False


def case(call, *operands, **more):
    return Case(call, operands, **more)


def recorded(a, b):
    with ozaki.recording() as run:
        c = ozaki.matmul(a, b, **R)
    return c, run.account.products


def cleared(a, b):
    """A product before and after everything that is cached was dropped."""
    first = ozaki.matmul(a, b, **R)
    ozaki.clear_caches()
    return first, ozaki.matmul(a, b, **R)


def by_one_thread(a, b):
    """A product by as many threads as there are, and by one."""
    first = ozaki.matmul(a, b, **R)
    ozaki.set_num_threads(1)
    try:
        return first, ozaki.matmul(a, b, **R), ozaki.get_num_threads()
    finally:
        ozaki.set_num_threads(None)


def emulated(a, b, c):
    """Products inside `emulate`, whose functions replace those of the arrays' library."""
    xp = mparray(a).library
    with ozaki.emulate(**R) as run:
        found = xp.matmul(a, b), xp.dot(a, b), xp.einsum("ij,jk->ki", a, b), a @ b, xp.matmul(a, b, out=c)
    assert run.account.products == 5, run
    return found


def message(call, error):
    with pytest.raises(error) as raised:
        call()
    return str(raised.value)


def loaded(x):
    with io.BytesIO() as file:
        x.save(file)
        file.seek(0)
        return MPArray.load(file)


FUNCTIONS = {
    "ascupy": [case(ozaki.ascupy, X, elsewhere=True), case(ozaki.ascupy, K[:, 1], elsewhere=True)],
    "asnumpy": [case(ozaki.asnumpy, X), case(ozaki.asnumpy, K[:, ::2])],
    "cache_info": [
        case(lambda a, b: (ozaki.matmul(a, b, **R), ozaki.cache_info()["records.shapes.shapes"].entries > 0), A, B)
    ],
    "clear_caches": [case(cleared, A, B)],
    "einsum": [
        case(lambda a, b: ozaki.einsum("ij,jk->ki", a, b, **R), A, B),
        case(lambda a: ozaki.einsum("ii->i", a), S),
        case(lambda a, b, c: ozaki.einsum("ij,jk,ik->i", a, b, c, **R), A, B, C),
    ],
    "emulate": [case(emulated, A, B, OUT)],
    "recording": [case(recorded, A, B)],
    "gemm": [
        case(lambda a, b, c: ozaki.gemm(2, a, b, -1, c, **R), A, B, C),
        case(lambda a, b, c, out: ozaki.gemm(2, a, b, 1, c, out=out, trans_a=True, **R), A.T, B, C, OUT),
        case(lambda a, b, c: ozaki.gemm(2, a, b, -1, c, accuracy=100), X, B, mparray(C)),
        case(lambda a, b, c: ozaki.gemm(2, a, b, 1j, c, scheme="native"), A * 1j, B, C * 1j),
    ],
    "get_num_threads": [case(lambda a, b: (ozaki.matmul(a, b, **R), ozaki.get_num_threads() >= 1), A, B)],
    "matmul": [
        case(lambda a, b: ozaki.matmul(a, b, **R), A, B),
        case(lambda a, b: ozaki.matmul(a, b, accuracy="fp64", return_report="relative"), A, B),
        case(lambda a, b: ozaki.matmul(a, b, scheme="native"), A, B),
        case(lambda a, b, out: ozaki.matmul(a, b, out, scheme="digits", slices=7), A, B, OUT),
        case(lambda a, b, out: ozaki.matmul(a, b, out=(out[::-1],), **R), A, B, OUT),
        case(lambda a, b: ozaki.matmul(a, b, dtype="int64"), WHOLE, WHOLE),
        case(lambda a, b: ozaki.matmul(a, b), X, Y),
        case(lambda a, b: ozaki.matmul(a, b), X, B),
        case(lambda a, b: ozaki.matmul(a, b, accuracy="exact"), A * 1j, Y),
        case(lambda a, b: ozaki.matmul(a, b, **R), A[:, :0], B[:0]),
    ],
    "matrix_power": [case(lambda a, n=n: ozaki.matrix_power(a, n), x) for x in (WHOLE, S) for n in (0, 3)],
    "mparray": [
        case(mparray, A),
        case(mparray, WHOLE),
        case(lambda a: mparray(a, bits=20), A * 1j),
        case(lambda x: mparray(x, bits=20), X),
        case(lambda a, b: mparray((a, b)), A, A * 2.0**-60),
    ],
    "plan": [case(lambda a, b: ozaki.plan(a, b, accuracy="fp64"), A, B), case(ozaki.plan, X, Y)],
    "prepare": [
        case(lambda a, b: ozaki.matmul(ozaki.prepare(a, "left", PLAN), b, plan=PLAN), A, B),
        case(lambda a, b: ozaki.matmul(a, ozaki.prepare(b, "right", PLAN), plan=PLAN), A, B),
        case(
            lambda a, b: ozaki.matmul(ozaki.prepare(a, "left", PLAN), ozaki.prepare(b, "right", PLAN), plan=PLAN), A, B
        ),
    ],
    "residual": [
        case(ozaki.residual, S, V, W),
        case(lambda a, x, y, b: ozaki.residual(a, (x, y), b), S, V, W * 2.0**-60, mparray(W)),
    ],
    "set_num_threads": [case(by_one_thread, A, B)],
    "tensordot": [case(lambda a, b: ozaki.tensordot(a, b, axes=1, **R), A, B)],
    "linalg.hemm": [case(lambda a, b: linalg.hemm(1.0, a, b, **R), S, S)],
    "linalg.herk": [case(lambda a, c: linalg.herk(1.0, a, 2.0, c, **R), A, S)],
    "linalg.symm": [case(lambda a, b: linalg.symm(1.0, a, b, **R), S, S)],
    "linalg.syrk": [case(lambda a: linalg.syrk(1.0, a, **R), A)],
    "linalg.trmm": [case(lambda a, b: linalg.trmm(1.0, a, b, **R), S, S)],
    "linalg.cho_solve": [
        case(lambda a, b: linalg.cho_solve(linalg.cholesky(a), b), S, V),
        case(lambda a, b: linalg.cho_solve((a, True), b), S, V),
    ],
    "linalg.cholesky": [case(linalg.cholesky, S), case(lambda a: linalg.cholesky(a, upper=True), mparray(S))],
    "linalg.eigh": [case(linalg.eigh, S), case(linalg.eigh, S, S)],
    "linalg.eigvalsh": [
        case(linalg.eigvalsh, S),
        case(linalg.eigvalsh, np.eye(3) + 1e-14 * S),
        case(linalg.eigvalsh, S, mparray(S)),
    ],
    "linalg.eig": [case(linalg.eig, S), case(linalg.eig, A[:, :3])],
    "linalg.eigvals": [case(linalg.eigvals, S)],
    "linalg.det": [case(linalg.det, S), case(lambda a: linalg.det(a, accuracy=100, dtype="mp"), mparray(S))],
    "linalg.expm": [case(linalg.expm, S)],
    "linalg.inv": [case(linalg.inv, S), case(lambda a: linalg.inv(a, accuracy=100, dtype="mp"), mparray(S))],
    "linalg.lq": [case(linalg.lq, S[:2])],
    "linalg.lstsq": [case(linalg.lstsq, A.T, B[:, 0])],
    "linalg.lu_factor": [case(linalg.lu_factor, S)],
    "linalg.lu_solve": [case(lambda a, b: linalg.lu_solve(linalg.lu_factor(a), b), S, V)],
    "linalg.qr": [
        case(linalg.qr, S[:, :2]),
        case(lambda a: linalg.qr(a, "complete", pivoting=True), S[:, :2]),
        case(lambda a: linalg.qr(a, accuracy=100, dtype="mp"), S[:2]),
    ],
    "linalg.solve": [
        case(linalg.solve, S, V),
        case(linalg.solve, S, mparray(V)),
        case(linalg.solve, np.stack([S, 2 * S]), V),
        case(lambda a, b: linalg.solve(a, b, accuracy=None), np.stack([S, 2 * S]), V),
    ],
    "linalg.solve_triangular": [case(lambda a, b: linalg.solve_triangular(a, b, lower=True), S, V)],
    "linalg.slogdet": [case(linalg.slogdet, S)],
    "linalg.cond": [case(linalg.cond, S), case(lambda a: linalg.cond(a, 1), S)],
    "linalg.matrix_rank": [case(linalg.matrix_rank, S)],
    "linalg.norm": [case(linalg.norm, A), case(lambda x: linalg.norm(x, 2), mparray(S))],
    "linalg.pinv": [case(linalg.pinv, A.T)],
    "linalg.svd": [case(linalg.svd, A), case(lambda a: linalg.svd(a, accuracy=100, dtype="mp"), mparray(S))],
    "linalg.svdvals": [case(linalg.svdvals, A), case(linalg.svdvals, 1j * S)],
    "reference.componentwise_error": [case(reference.componentwise_error, C, A, B, mixes=True)],
    "reference.componentwise_errors": [case(reference.componentwise_errors, C, A, B, mixes=True)],
    "reference.exact_entries": [case(lambda a, b: reference.exact_entries(a, b, rows=[1]), A, B, mixes=True)],
    "reference.exact_matmul": [
        case(reference.exact_matmul, A, B, mixes=True),
        case(reference.exact_matmul, X, B, mixes=True),
    ],
    "reference.mpmath_matmul": [case(reference.mpmath_matmul, A, B, mixes=True)],
    "reference.normwise_error": [case(reference.normwise_error, C, A, B, mixes=True)],
    "reference.relative_error": [case(reference.relative_error, C, A, B, mixes=True)],
    "reference.relative_residual": [case(reference.relative_residual, C, A, B, mixes=True)],
    "reference.row_column_error": [case(reference.row_column_error, C, A, B, mixes=True)],
}

METHODS = {
    "T": [case(lambda x: x.T, X)],
    "__abs__": [case(abs, X)],
    "__add__": [case(lambda x, y: x + y, X, y) for y in (Z, A, K, WHOLE[0, :1])] + [case(lambda x: x + 1, X)],
    "__array__": [case(lambda x: message(lambda: np.asarray(x), TypeError), X)],
    "__bool__": [case(bool, X[0, :1])],
    "__complex__": [case(complex, K[0, 0])],
    "__eq__": [case(lambda x, y: x == y, X, y) for y in (X + Z * 0, A, K)],
    "__float__": [case(float, X[0, 0])],
    "__ge__": [case(lambda x, y: x >= y, X, y) for y in (Z, A, np.full((3, 4), np.inf))],
    "__getitem__": [
        case(lambda x: (x[1], x[1:, ::2], x[..., None, 0], x[[0, 2]]), X),
        case(lambda x, places: (x[places], x[1, places]), X, np.array([0, 2, 1])),
        case(lambda x, mask: x[mask], K, A > 0),
    ],
    "__gt__": [case(lambda x, y: x > y, X, Z), case(lambda x: x > 0, X)],
    "__iter__": [case(list, K)],
    "__le__": [case(lambda x, y: x <= y, X, Z)],
    "__len__": [case(len, X)],
    "__lt__": [case(lambda x, y: x < y, X, y) for y in (Z, A)] + [case(lambda x: x < np.inf, X)],
    "__matmul__": [case(lambda x, y: x @ y, X, y) for y in (Y, B)],
    "__mul__": [case(lambda x, y: x * y, K, HALF), case(lambda x: x * (3 + 0.5j), K)],
    "__ne__": [case(lambda x, y: x != y, X, Z)],
    "__neg__": [case(lambda x: -x, K)],
    "__pos__": [case(lambda x: +x, X)],
    "__radd__": [case(lambda y, x: y + x, A, X), case(lambda x: 1 + x, X)],
    "__repr__": [case(repr, K)],
    "__rmatmul__": [case(lambda a, y: a @ y, A, Y)],
    "__rmul__": [case(lambda x: -7 * x, X)],
    "__rsub__": [case(lambda y, x: y - x, A, X), case(lambda x: 1 - x, K)],
    "__str__": [case(str, X)],
    "__sub__": [case(lambda x, y: x - y, X, y) for y in (Z, A, K)],
    "alike": [case(lambda x: x.alike(x.parts), K)],
    "astype": [case(lambda x, name=name: x.astype(name), X) for name in ("f8", "f4", "f2", "c16", object)],
    "__array_function__": [
        case(lambda x: (np.dot(x, x.T), np.trace(x), np.vstack([x, x])), X),
        case(lambda x, y: np.tensordot(x, y, 1), X, X.T),
        case(lambda x, y: (np.vstack([x, y]), np.stack([y, x])), X, Z),
        case(lambda x, a: np.concatenate([x, a]), X, A),
    ],
    "__int__": [case(lambda x: int(x), mparray(7))],
    "conj": [case(lambda x: x.conj(), K)],
    "copy": [case(lambda x: x[:, ::2].copy(), K)],
    "diagonal": [case(lambda x: x.diagonal(), K)],
    "dtype": [case(lambda x: str(x.dtype), X)],
    "flat": [case(lambda x: x.T.flat, X)],
    "imag": [case(lambda x: x.imag, X), case(lambda x: x.imag, K[0, 0])],
    "ldexp": [case(lambda x, by: x.ldexp(by), x, np.arange(4)) for x in (X, K)] + [case(lambda x: x.ldexp([1]), X)],
    "library": [case(lambda x: x.library.__name__, X)],
    "load": [case(loaded, X)],
    "max": [case(lambda x: (x.max(), x.max(axis=1)), X)],
    "min": [case(lambda x: (x.min(), x.min(axis=0)), X)],
    "nbytes": [case(lambda x: x.nbytes, X)],
    "ndim": [case(lambda x: x.ndim, K)],
    "parts": [case(lambda x: x.parts, K)],
    "real": [case(lambda x: x.real, K), case(lambda x: x.real, K[0, 0])],
    "reshape": [case(lambda x: (x.reshape(-1), x.T.reshape(2, 6)), K)],
    "round_to": [case(lambda x: x.round_to(30), K)],
    "save": [case(loaded, K[:, ::2])],
    "shape": [case(lambda x: x.shape, K)],
    "size": [case(lambda x: x.size, K)],
    "swapaxes": [case(lambda x: x.swapaxes(0, 1), K)],
    "to_flint": [case(lambda x: pytest.importorskip("flint") and str(x.to_flint()), X)],
    "to_fractions": [case(lambda x: x.to_fractions(), X)],
    "to_integers": [case(lambda x: x.to_integers(), mparray([[7, 2**70]]))],
    "to_ints": [case(lambda x: x.to_ints(), X)],
    "to_mpmath": [case(lambda x: str(x.to_mpmath()), K)],
    "tolist": [case(lambda x: x.tolist(), X)],
    "transpose": [case(lambda x: x.transpose(1, 0), K)],
    "words": [case(lambda x: x.words(2), x) for x in (X, K)],
}

TOUCH_NO_ELEMENT = {"__init__", "__module__", "__dict__", "__weakref__", "__annotations__", "__hash__"}
TOUCH_NO_ELEMENT |= {"__array_ufunc__", "__array_priority__", "__static_attributes__", "__firstlineno__", "__doc__"}
TOUCH_NO_ELEMENT |= {"__pandas_priority__", "__annotate__", "__annotate_func__", "__annotations_cache__"}
TOUCH_NO_ELEMENT |= {"__init_subclass__", "__subclasshook__"}


@pytest.fixture
def second(device):
    """The number of a device that is not the current one."""
    if device.xp.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("one GPU; this takes two")
    assert current(device) == 0
    yield 1
    assert current(device) == 0


def current(device):
    return device.xp.cuda.runtime.getDevice()


def moved(device, number, x):
    """An operand on the device of that number."""
    with device.xp.cuda.Device(number):
        return ozaki.ascupy(x) if isinstance(x, MPArray) else device.asarray(np.array(x))


def described(device, number, found):
    """A result in host memory, to be compared; checks that its arrays lie on the device of that number."""
    if hasattr(found, "limbs"):
        planes = found.signs, found.exponents, found.limbs
        return [found.bits, found.is_complex, *(described(device, number, plane) for plane in planes)]
    if isinstance(found, tuple | list):
        return [described(device, number, each) for each in found]
    if isinstance(found, device.xp.ndarray):
        assert found.device.id == number
        with device.xp.cuda.Device(number):
            found = device.asnumpy(found)
    if isinstance(found, np.ndarray):
        return [found.dtype.str, found.shape, found.tolist() if found.dtype.kind == "O" else found.tobytes()]
    return str(found)


def check(device, second, each, times=1):
    """Compute a case on both devices, while the first is the current one, and compare all bits; then mix them."""
    found = []
    for number in [0, second] * times:
        operands = [moved(device, number, x) for x in each.operands]
        assert current(device) == 0
        result = each.call(*operands)
        assert current(device) == 0
        found.append(described(device, 0 if each.elsewhere else number, result))
    assert found == found[:1] * len(found)
    for place in range(len(each.operands)) if len(each.operands) > 1 else ():
        operands = [moved(device, second * (i == place), x) for i, x in enumerate(each.operands)]
        if each.mixes:
            assert described(device, 0, each.call(*operands)) == found[0]
        else:
            with pytest.raises(ValueError, match=r"^[^:]+: on device [01], [^:]+: on device [01]; expected one device"):
                each.call(*operands)
        assert current(device) == 0


@pytest.mark.parametrize("device", ONE, indirect=True)
def test_every_public_name_has_a_case(device):
    public = {name for name in ozaki.__all__ if inspect.isfunction(getattr(ozaki, name))}
    for module in (linalg, reference):
        names = {name for name in module.__all__ if inspect.isfunction(getattr(module, name))}
        public |= {f"{module.__name__.removeprefix('ozaki.')}.{name}" for name in names}
    assert public == {*FUNCTIONS}
    own = {name for name in dir(MPArray) if getattr(MPArray, name) is not getattr(object, name, None)}
    assert {name for name in own if name.startswith("__") or name[0] != "_"} - TOUCH_NO_ELEMENT == {*METHODS}


@pytest.mark.parametrize("device", ONE, indirect=True)
@pytest.mark.parametrize("name", [*FUNCTIONS])
def test_functions(device, second, name):
    for each in FUNCTIONS[name]:
        check(device, second, each)


@pytest.mark.parametrize("device", ONE, indirect=True)
@pytest.mark.parametrize("name", [*METHODS])
def test_methods(device, second, name):
    for each in METHODS[name]:
        check(device, second, each)


@pytest.mark.parametrize("device", BOTH, indirect=True)
def test_products_on_every_kind_of_device(device, second):
    """Repeated calls, which run programs that were kept, included."""
    for each in FUNCTIONS["matmul"][:4]:
        check(device, second, each, times=3)


@pytest.mark.parametrize("device", ONE, indirect=True)
def test_the_current_device_after_errors(device, second):
    a, x, bad = (moved(device, second, each) for each in (A, X, np.array([0.0, np.nan])))
    factors, b = linalg.lu_factor(moved(device, second, S)), moved(device, 0, V)
    plan = ozaki.plan((3, 4), (4, 5), dtype="float64", **R)
    prepared = ozaki.prepare(a, "left", plan)
    for call, error, text in (
        (lambda: ozaki.matmul(a, a), ValueError, r"^b: shape"),
        (lambda: ozaki.mparray(bad), ValueError, r"^x: element \[1\]"),
        (lambda: x.words(0), ValueError, r"^count: 0"),
        (lambda: x + A, TypeError, r"^operands in NumPy and CuPy memory"),
        (lambda: x[7], IndexError, r"ndex 7"),
        (lambda: linalg.solve(a, a), ValueError, r"^a: shape"),
        (lambda: linalg.lu_solve(factors, b), ValueError, r"^factors: on device 1, b: on device 0; expected one"),
        (lambda: ozaki.matmul(prepared, moved(device, 0, B), plan=plan), ValueError, r"^a: on device 1, b: on device"),
        (lambda: mparray((a, moved(device, 0, A))), ValueError, r"^x\[0\]: on device 1, x\[1\]: on device 0; expected"),
        (lambda: x + moved(device, 0, X), ValueError, r"^the array: on device 1, other: on device 0; expected one"),
    ):
        with pytest.raises(error, match=text):
            call()
        assert current(device) == 0


@pytest.mark.parametrize("device", ONE, indirect=True)
def test_the_current_stream_of_the_operands_device(device, second):
    """CuPy keeps a current stream for each device: steps of one call after the other are ordered by that."""
    cuda, expected = device.xp.cuda, ozaki.matmul(ozaki.matmul(A, B, **R), np.eye(5), **R)
    a, b, eye = (moved(device, second, x) for x in (A, B, np.eye(5)))
    x = moved(device, second, X)
    cuda.Device(second).synchronize()
    with cuda.Device(second), cuda.Stream(non_blocking=True):
        for _ in range(3):
            with cuda.Device(0), cuda.Stream(non_blocking=True):
                c = ozaki.matmul(ozaki.matmul(a, b, **R), eye, **R)
                total = x + x.ldexp(3) - x
            assert described(device, second, c) == described(device, second, expected)
            assert described(device, second, total) == described(device, second, X + X.ldexp(3) - X)


@pytest.mark.parametrize("device", ONE, indirect=True)
def test_threads_on_different_devices(device, second):
    """A new thread has no CUDA context, and device 0 as its current one."""
    operands = {number: [moved(device, number, x) for x in (A, B, X)] for number in (0, second)}

    def computed(number):
        a, b, x = operands[number]
        found = x.astype("f8"), ozaki.matmul(a, b, **R), x + a, x.max()
        return [described(device, number, each) for each in found]

    expected = computed(0)
    for number in (0, second):
        with ThreadPoolExecutor(1) as thread:
            assert thread.submit(computed, number).result() == expected
    with ThreadPoolExecutor(4) as threads:
        assert [*threads.map(computed, [0, second] * 4)] == [expected] * 8


@pytest.mark.parametrize("device", ONE, indirect=True)
def test_numbers_between_devices(device, second):
    for x in (X, K[:, ::2], X[:0], HALF, X.T):
        there = moved(device, second, x)
        here = ozaki.ascupy(there)
        expected = described(device, 0, moved(device, 0, x.copy()))
        assert described(device, 0, here) == expected
        assert ozaki.ascupy(here) is here
        with device.xp.cuda.Device(second):
            assert ozaki.ascupy(there) is there
            assert described(device, second, ozaki.ascupy(here)) == expected
        assert described(device, 0, ozaki.asnumpy(there)) == described(device, 0, ozaki.asnumpy(here))
        assert described(device, 0, here + here) == described(device, 0, ozaki.ascupy(there + there))
