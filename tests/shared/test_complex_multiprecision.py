"""Products of complex multiprecision numbers: exact references on NumPy, and its bits and reports on every device."""

import numpy as np
import pytest
from mparrays import back, moved, same_planes

import ozaki
from ozaki import Accuracy, MPArray, mparray, reference

KINDS = ["complex numbers", "numbers", "c16", "f8"]
PAIRS = [(x, y) for x in KINDS for y in KINDS if "complex numbers" in (x, y) or {x, y} in ({"c16", "numbers"}, {"c16"})]


@pytest.fixture
def device(device):
    """NumPy, a real device or the emulated Ampere."""
    if device.name == "emulated Hopper":
        pytest.skip("its kernels are those of the emulated Ampere")
    return device


def made(rng, shape, kind, bits=150):
    """An operand: floats, or numbers of some `bits` bits, rows of whose elements spread over sixty binary orders."""

    def part():
        return rng.standard_normal(shape)

    if kind == "f8":
        return part()
    if kind == "c16":
        return part() + 1j * part()
    words = [part() * 2.0 ** (-53 * i) for i in range(-(-bits // 53))]
    if kind == "complex numbers":
        words = [word + 1j * part() * 2.0 ** (-53 * i) for i, word in enumerate(words)]
    return mparray(tuple(words), bits=bits).ldexp(rng.integers(-30, 30, shape))


def product(device, a, b, **options):
    """The product on the device, checked: the bits and the bound of NumPy. In host memory, with its report."""
    expected, of_numpy = ozaki.matmul(a, b, return_report=True, **options)
    got, report = ozaki.matmul(moved(device, a), moved(device, b), return_report=True, **options)
    got = back(device, got)
    if isinstance(expected, MPArray):
        assert got.is_complex and same_planes(got, expected)
    else:
        np.testing.assert_array_equal(got, expected)
    fields = "scheme", "slices", "products", "bound", "exponent", "measure"
    assert [getattr(report, x) for x in fields] == [getattr(of_numpy, x) for x in fields]
    return got, report


@pytest.mark.parametrize("kinds", PAIRS, ids=str)
def test_products_and_their_bounds(device, rng, kinds):
    every = (
        {"accuracy": 150, "dtype": "mp"},
        {"accuracy": "exact", "dtype": "mp"},
        {"accuracy": "dd", "dtype": "mp106"},
        {"accuracy": "fp64", "dtype": "complex128"},
        {"accuracy": "exact", "dtype": "complex64"},
        {"accuracy": Accuracy("row-column", 1e-40), "dtype": "mp", "scheme": "residues"},
    )
    for options in device.some(every, 2, rng):
        m, k, n = rng.integers(1, device.size(12, 5), 3)
        a, b = made(rng, (m, k), kinds[0]), made(rng, (k, n), kinds[1])
        c, report = product(device, a, b, **options)
        if report.measure == "row-column":
            error = reference.row_column_error(c, a, b, exponent=report.exponent)
        else:
            error = reference.componentwise_error(c, a, b, exponent=report.exponent)
        assert error <= report.bound


@pytest.mark.parametrize(
    "kinds", [("complex numbers", "complex numbers"), ("complex numbers", "f8"), ("numbers", "c16")]
)
def test_relative_accuracies(device, rng, kinds):
    a, b = made(rng, (4, 6), kinds[0]), made(rng, (6, 3), kinds[1])
    c, report = product(device, a, b, accuracy=Accuracy("relative", 1e-40), dtype="mp")
    assert reference.relative_error(c, a, b) <= report.bound <= 1e-40
    cancelling = mparray([[1j, 1]]), mparray([[1, 2], [-1j, 3]])
    c, _ = product(device, *cancelling, accuracy=Accuracy("relative", 1e-40))
    assert (c == [[0, 3 + 2j]]).all()


@pytest.mark.parametrize(
    "kinds", [("complex numbers", "complex numbers"), ("complex numbers", "f8"), ("c16", "numbers")]
)
def test_batches_vectors_views_and_empty_products(device, rng, kinds):
    a, b = made(rng, (3, 2, 4, 5), kinds[0]), made(rng, (2, 5, 3), kinds[1])
    for left, right in (
        (a, b), (a[0], b), (a[0, 0], b), (a, b[0]), (a[0, 0, 0], b[0]), (a[0, 0], b[0, :, 0]), (a[0, 0, 0], b[0, :, 0]),
        (a[0, 0].T.copy().T if isinstance(a, MPArray) else np.asfortranarray(a[0, 0]), b[0, ::-1].copy()[::-1]),
        (a[0, 0].conj(), b[0]), (a[:, :, :0], b), (a[..., :0], b[:, :0]), (a, b[..., :0]),
        (a[0, 0, :1, :1], b[0, :1, :1]),
    ):  # fmt: skip
        c, _ = product(device, left, right, accuracy=110, dtype="mp")
        wanted = np.matmul(*(x.astype("c16") if isinstance(x, MPArray) else x for x in (left, right)))
        assert c.shape == wanted.shape
        scale = np.matmul(*(abs(x.astype("c16") if isinstance(x, MPArray) else x) for x in (left, right)))
        assert (abs(c.astype("c16") - wanted) <= 1e-14 * scale).all()


def test_plans_prepared_operands_and_limits(device, rng):
    for kinds, dtype in ((("complex numbers",) * 2, "mp"), (("c16", "complex numbers"), "complex128")):
        a, b = (made(rng, shape, kind) for shape, kind in zip(((6, 40), (40, 5)), kinds, strict=True))
        x, y = moved(device, a), moved(device, b)
        options = {"accuracy": 60, "dtype": dtype}
        expected, _ = product(device, a, b, **options)
        plan = ozaki.plan(x, y, **options)
        left, right = ozaki.prepare(x, "left", plan), ozaki.prepare(y, "right", plan)
        for p, q in ((x, y), (x, right), (left, right), (left, y)):
            c = back(device, ozaki.matmul(p, q, plan=plan))
            assert same_planes(c, expected)
        limit = 2**23 if device.xp is np else 2**21
        c, report = ozaki.matmul(x, y, workspace_limit=limit, return_report=True, **options)
        assert same_planes(back(device, c), expected) and report.workspace_bytes <= limit
        with pytest.raises(ValueError, match=r"^workspace_limit: "):
            ozaki.matmul(x, y, workspace_limit=500, **options)
    a, b = (moved(device, made(rng, shape, kind)) for shape, kind in (((6, 40), "c16"), ((40, 5), KINDS[0])))
    plan = ozaki.plan((6, 40), (40, 5), dtype="complex128", scheme="residues", slices=15)
    with pytest.raises(ValueError, match=r"^plan: complex-residues; products with multiprecision numbers"):
        ozaki.matmul(ozaki.prepare(a, "left", plan), b, plan=plan)


def test_expressions(device, rng):
    """Alpha A B + beta C, every bit; with transposes, and addends of all kinds."""
    a, b = made(rng, (5, 4), "complex numbers"), made(rng, (3, 4), "complex numbers")
    x, y = moved(device, a), moved(device, b)
    for kind in device.some(KINDS, 2, rng):
        c = made(rng, (5, 3), kind)
        got = back(device, ozaki.gemm(-3, x, y, 0.75, moved(device, c), trans_b="C", accuracy="exact", dtype="mp"))
        wanted = -3 * ozaki.matmul(a, b.conj().T, accuracy="exact") + 0.75 * (mparray(c))
        assert got.is_complex and (got == wanted).all()
        rounded = ozaki.gemm(-3, x, y, 0.75, moved(device, c), trans_b="C", accuracy=90, dtype="complex128")
        assert np.array_equal(device.asnumpy(rounded), wanted.astype("c16"))
        of_vector = ozaki.gemm(1, x, y.T, 1, moved(device, c), accuracy=200, dtype="mp")
        assert (back(device, of_vector).round_to(100) == (a @ b.T + mparray(c)).round_to(100)).all()
    f, real = made(rng, (5, 3), "c16"), made(rng, (4, 3), "f8")
    got = ozaki.gemm(2, x, moved(device, real), -1, moved(device, f), accuracy="exact", dtype="mp")
    assert (back(device, got) == 2 * ozaki.matmul(a, real, accuracy="exact") - f).all()
    z = made(rng, (3, 5), "c16")
    for n in (1, 4):  # real addends of one column, and in column-major order
        right, column = made(rng, (5, n), "f8"), np.asfortranarray(made(rng, (3, n), "f8"))
        on_device = [moved(device, each) for each in (z, right, column)]
        got = ozaki.gemm(1, *on_device[:2], 1, on_device[2], accuracy="exact", dtype="mp")
        wanted = ozaki.matmul(z, right, accuracy="exact", dtype="mp") + column
        assert (back(device, got) == wanted).all()
    nothing = ozaki.gemm(0, x, moved(device, real), 2, moved(device, f), dtype="mp")
    assert (back(device, nothing) == 2 * mparray(f)).all()
    got = ozaki.gemm(1 + 0j, x, moved(device, real), 0, None, accuracy="exact")
    assert (back(device, got) == ozaki.matmul(a, real, accuracy="exact")).all()


def test_residuals_and_powers(device, rng):
    a, x = made(rng, (6, 6), "c16"), made(rng, (6, 2), "complex numbers")
    b = ozaki.matmul(a, x, accuracy="exact")
    assert (back(device, ozaki.residual(*(moved(device, each) for each in (a, x, b)))) == 0).all()
    rest = ozaki.residual(*(moved(device, each) for each in (a, x.astype("c16"), b)), dtype="complex128")
    wanted = (b - ozaki.matmul(a, x.astype("c16"), accuracy="exact", dtype="mp")).astype("c16")
    np.testing.assert_array_equal(device.asnumpy(rest), wanted)
    unit = moved(device, mparray([[0, 1j], [1, 0]]))
    power = back(device, ozaki.matrix_power(unit, 6))
    assert power.is_complex and (power == [[-1j, 0], [0, -1j]]).all()
    assert (back(device, ozaki.matrix_power(unit, 0)) == np.eye(2)).all()


def test_what_is_refused(device, rng):
    a, b, x = (moved(device, made(rng, (3, 3), kind)) for kind in ("complex numbers", "numbers", "f8"))
    for call, error, message in (
        (lambda: ozaki.matmul(a, b, dtype="float64"), TypeError, "dtype: 'float64', but the product is complex"),
        (lambda: ozaki.matmul(a, b, dtype="int64"), TypeError, "dtype: 'int64', but the product is complex"),
        (lambda: ozaki.matmul(b, x, dtype="complex128"), TypeError, "dtype: 'complex128', but a and b are real"),
        (lambda: ozaki.matmul(a, a, scheme="digits"), ValueError, "scheme: 'digits' has no slices of multiprecision"),
        (lambda: ozaki.matmul(a, a, scheme="native"), ValueError, "scheme: 'native' has no slices of multiprecision"),
        (lambda: ozaki.matmul(a, a, scheme="complex-residues"), ValueError, "scheme: 'complex-residues' has no slices"),
        (lambda: ozaki.gemm(1, b, x, 1, a), TypeError, "c: complex, but a and b are real"),
        (lambda: ozaki.gemm(1j, a, a, 0, None), TypeError, "alpha: 1j; expected a real number: multiply a by it"),
        (lambda: ozaki.gemm(1, a, a, 2 - 1j, a), TypeError, "beta: .2-1j.; expected a real number: multiply c by it"),
        (lambda: ozaki.prepare(b, "left", ozaki.plan(a, a)), TypeError, "x: dtype mp150, but the plan is made for a"),
        (lambda: ozaki.matmul(b, a, plan=ozaki.plan(a, a)), ValueError, "plan: made for a and b that are complex"),
        (lambda: ozaki.matmul(a, a, plan=ozaki.plan((3, 3), (3, 3), dtype="mp")), ValueError, "plan: made for a and b"),
        (lambda: ozaki.matmul(a, x[:2]), ValueError, "b: shape"),
    ):  # fmt: skip
        with pytest.raises(error, match=f"^{message}"):
            call()
