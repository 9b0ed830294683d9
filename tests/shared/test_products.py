"""The bits of sliced products: those of NumPy and of the definition, by every engine, in every layout."""

import contextlib
from fractions import Fraction

import definition
import numpy as np
import pytest
from cases import assert_same, spread, viewed

import ozaki
from ozaki.schemes import Digits, Residues
from ozaki.schemes.digits import fp16_digit_bits

ON_ALL = [
    ("residues", 14, "f8"),
    ("residues", 7, "f4"),
    ("digits", 3, "f4"),
    ("digits", 7, "f8"),
    ("digits7", 5, "f4"),
]
COUNTS = [
    *ON_ALL,
    ("residues", 20, "f8"),
    ("digits", 10, "f8"),
    ("fp16-digits", 4, "f4"),
    ("fp16-digits", 11, "f8"),
]


def engines(device, scheme, slices, k=1):
    """The device's engines for such slices; on an emulated device only the last one, since each needs kernels built."""
    if scheme == "fp16-digits":
        return [name for name in device.engines if name in ("float64", "cublas")]
    found = [name for name in device.engines if name != "fused" or is_for_hopper(device, scheme, slices, k)]
    return found[-1:] if device.slow else found


def is_for_hopper(device, scheme, slices, k):
    """Whether the engine "fused" takes these slices; if not, assert what its error says."""
    options = {"scheme": scheme, "slices": slices, "engine": "fused"}
    if scheme == "residues" or (slices <= 7 and k < 2**14):
        return True
    with contextlib.suppress(ValueError):
        device.matmul(np.zeros((1, k)), np.zeros((k, 1)), **options)
        return True
    with pytest.raises(ValueError, match=r"^engine: 'fused' multiplies residues, or up to 7 digits with moderate k"):
        device.matmul(np.zeros((1, k)), np.zeros((k, 1)), **options)
    return False


def matrix(rng, shape, dtype, exponents=3):
    x = np.ldexp(rng.standard_normal(shape), rng.integers(-exponents, exponents + 1, shape))
    return x.astype(dtype)


@pytest.mark.parametrize(("scheme", "slices", "dtype"), COUNTS)
def test_products(device, rng, scheme, slices, dtype):
    """Operands in every memory order, NaN and Inf, subnormal results; repeated calls; prepared operands."""
    if device.name == "emulated Hopper" and (scheme, slices, dtype) not in ON_ALL:
        pytest.skip("its kernels are not built for this device")
    options = {"scheme": scheme, "slices": slices}
    for engine in engines(device, scheme, slices):
        for m, k, n in ((33, 270, 130), (5, 1, 3))[: 1 if device.slow and engine == "fused" else 2]:
            a, b = matrix(rng, (m, k), dtype), matrix(rng, (k, n), dtype)
            b[0, 0] = np.inf
            tiny = a * a.dtype.type(2.0 ** (-1060 if dtype == "f8" else -140))
            for x, y in ((a, b), (np.asfortranarray(a), b.T.copy().T), (a[::-1], b[:, ::-1]), (tiny, b), (a, b)):
                out = device.full((m, n), np.nan, dtype)
                got = device.matmul(x, y, out=out, engine=engine, **options)
                assert_same(ozaki.matmul(x, y, **options), got, engine)
            for x in (2 * a, a):
                assert_same(ozaki.matmul(x, b, **options), device.matmul(x, b, engine=engine, **options), engine)
            plan = ozaki.plan(a.shape, b.shape, dtype=a.dtype.name, engine=engine, **options)
            for x in (3 * a, a):
                left = ozaki.prepare(device.asarray(x), "left", plan)
                c = ozaki.matmul(left, device.asarray(b), plan=plan)
                assert_same(ozaki.matmul(x, b, **options), device.asnumpy(c), engine)


def random_matrix(rng, shape, dtype, exponents):
    """Normal entries times powers of two drawn for each row and for each element; some zeros."""
    x = np.ldexp(rng.standard_normal(shape), rng.integers(-exponents, exponents + 1, (*shape[:-1], 1)))
    x = np.ldexp(x, rng.integers(-exponents, exponents + 1, shape) // 2)
    x[rng.random(shape) < 0.05] = 0
    with np.errstate(over="ignore", under="ignore"):
        return x.astype(dtype)


@pytest.mark.parametrize("repetition", range(8))
def test_products_of_all_kinds(device, rng, repetition):
    """Scheme, count, shape, stack, dtypes, exponents and layout at random; one product in ten has long rows."""
    for _ in range(device.size(50 if device.name != "numpy" else 5, 1)):
        m, k, n = (int(v) for v in rng.integers(1, device.size(400, 90), 3))
        if rng.random() < 0.1:
            m, n, k = m % 20 + 1, n % 20 + 1, int(rng.integers(1, device.size(300000, 3000)))
        if device.slow:  # each other count takes kernels that have to be built
            scheme, slices, dtype = ON_ALL[rng.integers(len(ON_ALL))]
            dtypes = [dtype, dtype]
        else:
            scheme = str(rng.choice(["residues", "digits", "digits7", "fp16-digits"]))
            slices = int(rng.integers(6, 26)) if scheme == "residues" else int(rng.integers(1, 12))
            dtypes = rng.choice(["f4", "f8"], 2)
        stacks = [((), ()), ((3,), ()), ((), (3,)), ((2,), (2,))][max(0, int(rng.integers(-4, 4)))]
        exponents = int(rng.choice([0, 5, 60, 400]))
        a, b = (
            viewed(rng, random_matrix(rng, (*stack, *shape), dtype, min(exponents, 40) if dtype == "f4" else exponents))
            for stack, shape, dtype in zip(stacks, ((m, k), (k, n)), dtypes, strict=True)
        )
        if rng.random() < 0.2:
            a, b = a.copy(), b.copy()
            a.reshape(-1)[rng.integers(0, a.size, 2)] = [np.nan, -np.inf]
            b.reshape(-1)[rng.integers(0, b.size)] = np.inf
        expected = ozaki.matmul(a.copy(), b.copy(), scheme=scheme, slices=slices)
        for engine in engines(device, scheme, slices, k):
            out = device.full(expected.shape, np.nan, expected.dtype)
            got = device.matmul(a, b, scheme=scheme, slices=slices, engine=engine, out=out)
            assert_same(expected, got, scheme, slices, engine, a.strides, b.strides)


@pytest.mark.parametrize(("scheme", "dtype"), [
    (Residues(14), "f8"), (Residues(7), "f4"), (Digits(3), "f4"), (Digits(7), "f8"), (Digits(5, 7), "f4"),
])  # fmt: skip
def test_the_bits_are_those_of_the_definition(device, rng, scheme, dtype):
    """Operands with elements from the smallest numbers to the largest, and ordinary ones."""
    low, high = (-149, 120) if dtype == "f4" else (-1074, 1000)
    for _ in range(device.size(10, 1)):
        m, k, n = int(rng.integers(1, 9)), int(rng.integers(1, 70)), int(rng.integers(1, 9))
        wide = [np.ldexp(rng.standard_normal(shape), rng.integers(low, high, shape)) for shape in ((m, k), (k, n))]
        usual = [spread(rng, shape, 30) for shape in ((m, k), (k, n))]
        for a, b in (wide, usual):
            a, b = a.astype(dtype), b.astype(dtype)
            expected = definition.product(a, b, scheme)
            for engine in engines(device, scheme.name, scheme.count, k):
                got = device.matmul(a, b, scheme=scheme.name, slices=scheme.count, engine=engine)
                assert_same(expected, got, scheme, engine, a, b)


def test_fp16_digits(device, rng):
    """Sums that fill the accumulator: all digits, except in the last columns, are about as large as they can be."""
    for k in (320, 4096, 2**14, 2**20, 2**22 + 70)[: 5 if device.name == "a real device" else 3]:
        radix = 2 ** fp16_digit_bits(k)
        largest = radix // 2 - 1
        a = np.full((8, k), -(largest - 1 + largest / (radix - 1)) / radix)  # 1 - largest, -largest, -largest, ...
        b = a[:6].T.copy()
        b[:, 2:] = rng.standard_normal((k, 4))
        expected = ozaki.matmul(a, b, scheme="fp16-digits", slices=4)
        got, report = device.matmul(a, b, scheme="fp16-digits", slices=4, return_report=True)
        assert_same(expected, got, k)
        assert report.scheme.startswith("fp16-digits")
        assert device.name == "numpy" or "FP16" in report.engine


def test_shorter_rows_between(device, rng):
    """Rows of different lengths in turn: one kernel serves all, with as much shared memory as each needs."""
    for k in device.size((5000, 700, 5000, 130, 5000), (1500, 130, 1500)):
        a, b = matrix(rng, (40, k), "f8"), matrix(rng, (k, 30), "f8")
        for scheme, slices in (("residues", 14), ("digits", 7)):
            expected = ozaki.matmul(a, b, scheme=scheme, slices=slices)
            for engine in engines(device, scheme, slices, k):
                assert_same(expected, device.matmul(a, b, scheme=scheme, slices=slices, engine=engine), k, engine)


# Stacks -------------------------------------------------------------------------------------------------------------


STACKS = [
    ((3,), (3,)),
    ((3,), ()),
    ((), (3,)),
    ((1,), (3,)),
    ((3,), (1,)),
    ((1, 1), ()),
    ((4, 3), (3,)),
    ((2, 1), (1, 3)),
    ((2, 3), (2, 1)),
    ((2, 1, 3), (4, 3)),
    ((5, 2, 1, 3), (2, 4, 1)),
]


@pytest.mark.parametrize(("left", "right"), STACKS)
def test_a_stack_equals_a_loop(device, rng, left, right):
    """A product of stacks, of slices or native, equals one product for each pair; repeated, into `out` and by gemm."""
    left, right = left[-device.size(4, 2) :], right[-device.size(4, 2) :]
    a, b = matrix(rng, (*left, 5, 40), "f8"), matrix(rng, (*right, 40, 6), "f8")
    batch = np.broadcast_shapes(left, right)
    every_a, every_b = np.broadcast_to(a, (*batch, 5, 40)), np.broadcast_to(b, (*batch, 40, 6))
    x, y = device.asarray(a), device.asarray(b)
    ways = [{"scheme": "residues", "slices": 14}, {"scheme": "digits", "slices": 7}, {"reproducible": True}]
    for options in device.some(ways, 1, rng):
        expected = ozaki.matmul(a, b, **options)
        if "slices" in options:
            for at in np.ndindex(batch):
                assert_same(expected[at], ozaki.matmul(every_a[at], every_b[at], **options), at)
        for out in (None, device.full(expected.shape, np.nan), None):
            assert_same(expected, device.asnumpy(ozaki.matmul(x, y, out=out, **options)), options)
        c = rng.standard_normal(expected.shape)
        total = ozaki.gemm(2.0, x, y, -0.5, device.asarray(c), **options)
        assert_same(ozaki.gemm(2.0, a, b, -0.5, c, **options), device.asnumpy(total), options)
    for _ in range(2):
        np.testing.assert_allclose(device.matmul(a, b, scheme="native"), a @ b, atol=1e-11)


@pytest.mark.parametrize(("scheme", "slices"), [("residues", 14), ("digits", 7)])
def test_small_matrices_of_a_stack(device, rng, scheme, slices):
    """Many small matrices, which engines may pad to whole tiles and multiply at once."""
    count = device.size(300, 20)
    a, b = matrix(rng, (count, 30, 60), "f8"), matrix(rng, (count, 60, 20), "f8")
    expected = ozaki.matmul(a, b, scheme=scheme, slices=slices)
    assert_same(expected, device.matmul(a, b, scheme=scheme, slices=slices))


# Plans from data ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "shape", "tolerance"), [("f4", (20, 1100, 25), 1e-6), ("f8", (30, 200, 20), 1e-14)])
def test_plans_from_data(device, rng, dtype, shape, tolerance):
    """The plan, the bound and the bits are those of NumPy."""
    m, k, n = shape
    a, b = matrix(rng, (m, k), dtype), matrix(rng, (k, n), dtype)
    for accuracy in (None, ozaki.Accuracy("row-column", tolerance)):
        options = {"accuracy": accuracy, "reproducible": True}
        expected, report = ozaki.matmul(a, b, return_report=True, **options)
        got, other = device.matmul(a, b, return_report=True, **options)
        assert_same(expected, got)
        assert (other.scheme, other.slices, other.bound) == (report.scheme, report.slices, report.bound)
        plan, there = ozaki.plan(a, b, **options), ozaki.plan(device.asarray(a), device.asarray(b), **options)
        assert (there.scheme, there.bound, there.target) == (plan.scheme, plan.bound, plan.target)


@pytest.mark.parametrize(
    "accuracy", ["fp64", ozaki.Accuracy("row-column", 1e-14), ozaki.Accuracy("normwise", 1e-14)], ids=str
)
def test_plans_of_stacks(device, rng, accuracy):
    a, b = matrix(rng, (2, 1, 4, 100), "f8"), matrix(rng, (3, 100, 5), "f8")
    options = {"accuracy": accuracy, "reproducible": True, "return_report": True}
    (expected, report), (got, other) = ozaki.matmul(a, b, **options), device.matmul(a, b, **options)
    assert_same(expected, got)
    assert (other.scheme, other.slices, other.bound) == (report.scheme, report.slices, report.bound)


def test_other_data_in_calls_alike(device, rng):
    """What a first call found of its data is not used for the data of repeated calls: all have the bits of NumPy."""
    usual, peaks, few = rng.standard_normal((30, 200)), rng.standard_normal((30, 200)), rng.integers(-3, 4, (30, 200))
    peaks[:, 5] *= 2.0**12
    nan = usual.copy()
    nan[4, 5] = np.nan
    b = rng.standard_normal((200, 20))
    options = {"accuracy": "fp64", "reproducible": True}
    for a in (usual, 2 * usual, peaks, few.astype("f8"), nan, usual, usual):
        assert_same(ozaki.matmul(a, b, **options), device.matmul(a, b, **options))


def test_numbers_that_equal_a_number_of_bits_are_refused_after_it_ran(device):
    a = device.asarray(np.eye(4))
    for bits in (53, 1, 53, 1):
        ozaki.matmul(a, a, accuracy=bits)
    for nonsense in (53.0, np.float64(53), 1.0, Fraction(53)):
        with pytest.raises(ValueError, match=r"^accuracy: tolerance"):
            ozaki.matmul(a, a, accuracy=nonsense)


def test_arrays_in_use_elsewhere(device, rng):
    """A result is computed from the operands as they were at the call, though they are overwritten right after."""
    a, b = rng.standard_normal((40, 60)), rng.standard_normal((60, 30))
    x, y = device.asarray(a.copy()), device.asarray(b.copy())
    for options in ({"scheme": "residues", "slices": 14}, {"accuracy": "fp64", "reproducible": True}):
        found = []
        for factor in (1, 2, 4):
            x[...] = device.asarray(factor * a)
            found.append(ozaki.matmul(x, y, **options))
            x[...] = device.full(a.shape, np.nan)
        for factor, c in zip((1, 2, 4), found, strict=True):
            assert_same(ozaki.matmul(factor * a, b, **options), device.asnumpy(c), factor, options)
