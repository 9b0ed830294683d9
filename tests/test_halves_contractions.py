"""Contractions of 16-bit operands, and the products of NumPy's functions of them: each product rounded once."""

import numpy as np
import pytest

import ozaki

ml_dtypes = pytest.importorskip("ml_dtypes")

HALVES = {"bf16": ml_dtypes.bfloat16, "fp16": np.float16}
UNITS = {"bf16": 2.0**-8, "fp16": 2.0**-11}


@pytest.fixture(params=HALVES)
def accuracy(request):
    return request.param


@pytest.fixture
def made(rng, accuracy):
    def draw(*shape):
        return rng.standard_normal(shape).astype(HALVES[accuracy])

    return draw


def bits(x):
    return np.array(x, order="C").view(np.uint16)


def wide(x):
    return x.astype(float)


SHAPES = {
    "bij,bjk->bik": ((3, 4, 5), (3, 5, 6)),
    "bij,jk->kbi": ((3, 4, 5), (5, 6)),
    "...ij,...jk": ((3, 4, 5), (3, 5, 6)),
    "i,i": ((7,), (7,)),
    "i,j->ij": ((7,), (5,)),
    "i,i->i": ((7,), (7,)),
    "ii,ij->j": ((4, 4), (4, 5)),
    "ij->j": ((4, 5),),
    "ii": ((4, 4),),
    "ij,jk,kl->il": ((4, 5), (5, 6), (6, 3)),
    "ij,k->": ((4, 5), (6,)),
}


@pytest.mark.parametrize("subscripts", SHAPES)
def test_einsum_keeps_the_format(made, accuracy, subscripts):
    operands = [made(*shape) for shape in SHAPES[subscripts]]
    found = ozaki.einsum(subscripts, *operands)
    exact, scale = (np.einsum(subscripts, *map(f, map(wide, operands))) for f in (lambda x: x, abs))
    assert found.dtype == operands[0].dtype and found.shape == exact.shape
    least = 2.0**-24  # of float16
    assert (abs(wide(found) - exact) <= 2.1 * len(operands) * UNITS[accuracy] * scale + least).all()
    for options in ({"accuracy": accuracy}, {"dtype": str(found.dtype)}):
        assert np.array_equal(bits(ozaki.einsum(subscripts, *operands, **options)), bits(found))
    if len(operands) > 1:
        assert ozaki.einsum(subscripts, *operands, accuracy="fp32").dtype == np.float32
        assert ozaki.einsum(subscripts, operands[0].astype("f4"), *operands[1:]).dtype == np.float32


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_tensors_and_arrays_of_jax_are_contracted_alike(made, library):
    half = str(made(1).dtype)
    if library == "torch":
        torch = pytest.importorskip("torch")

        def given(x):
            return torch.from_numpy(bits(x).view(np.int16)).view(getattr(torch, half))

        def taken(x):
            assert x.dtype == getattr(torch, half)
            return x.contiguous().view(torch.int16).numpy().view(np.uint16)

    else:
        given, taken = pytest.importorskip("jax.numpy").asarray, bits
    for subscripts, shapes in SHAPES.items():
        operands = [made(*shape) for shape in shapes]
        found = taken(ozaki.einsum(subscripts, *map(given, operands)))
        assert np.array_equal(found, bits(ozaki.einsum(subscripts, *operands))), subscripts
    a, b, axes = made(3, 4, 5), made(3, 5, 6), ([0, 2], [0, 1])
    assert np.array_equal(taken(ozaki.tensordot(given(a), given(b), axes)), bits(ozaki.tensordot(a, b, axes)))


def test_products_without_sums_are_those_of_numpy(rng, accuracy):
    """Also of tensors, whose bits are read; with ties, results out of range, and NaN."""
    torch = pytest.importorskip("torch")
    dtype = HALVES[accuracy]
    x = rng.integers(0, 2**16, (2, 2000), dtype=np.uint16)
    with np.errstate(all="ignore"):
        a, b = x.view(dtype)
        expected = a * b
    half = getattr(torch, str(a.dtype))
    tensors = [torch.from_numpy(each.view(np.int16)).view(half) for each in (a, b)]
    for options in ({}, {"dtype": str(a.dtype)}):
        found = ozaki.einsum("i,i->i", *tensors, **options).view(torch.int16).numpy().view(dtype)
        differ = (bits(found) != bits(expected)) & ~(np.isnan(found) & np.isnan(expected))
        assert not differ.any()


@pytest.mark.parametrize(("name", "bits"), [("float16", 0x7E00), ("bfloat16", 0x7FC0)])
def test_products_without_sums_of_tensors_have_one_nan(name, bits):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x = torch.ones((1, 1), dtype=getattr(torch, name))
    other = torch.tensor([[bits + 1 - 2**15]], dtype=torch.int16).view(
        x.dtype
    )  # of the other sign, with another payload
    assert other.isnan().all()
    c = ozaki.einsum("ij,jk->ijk", x, other)
    assert c.dtype == x.dtype and int(c.view(torch.int16)) == bits


def test_one_product_is_that_of_matmul_and_of_each_row_alone(made):
    a, b = made(6, 4, 5), made(5, 7)
    a[2] *= 100
    c = ozaki.matmul(a, b)
    for found in (ozaki.einsum("bij,jk->bik", a, b), ozaki.tensordot(a, b, 1)):
        assert np.array_equal(bits(found), bits(c))
    for some in (slice(0, 1), slice(2, 3), slice(1, 6)):
        assert np.array_equal(bits(ozaki.einsum("bij,jk->bik", a[some], b)), bits(c[some]))
        assert np.array_equal(bits(ozaki.tensordot(a[some], b, 1)), bits(c[some]))


def test_what_does_not_fit_is_refused(made, accuracy):
    a, b = made(4, 5), made(5, 6)
    for call, message in (
        (lambda: ozaki.einsum("ij,jk", a, b.astype("f4"), accuracy=accuracy), "operand 1 is float32; convert them, or"),
        (lambda: ozaki.einsum("ij->j", a.astype("f8"), accuracy=accuracy), "operand 0 is float64; convert them, or"),
        (lambda: ozaki.tensordot(a, b.astype("f8"), 1, accuracy=accuracy), "b is float64; convert them, or use"),
        (lambda: ozaki.einsum("ij,jk", a, b, accuracy=accuracy, dtype="float32"), "dtype: 'float32', but accuracy="),
        (lambda: ozaki.tensordot(a, b, 1, accuracy=accuracy, scheme="digits"), "scheme: products rounded to"),
        (lambda: ozaki.einsum("ij,jk", a, b[:3]), "subscripts: axis 'j' has size 3 in operand 1, and 5 before"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    right = ozaki.prepare(b, "right", ozaki.plan(a, b))
    for call in (lambda: ozaki.einsum("ij,jk", a, right), lambda: ozaki.tensordot(a, right, 1)):
        with pytest.raises(TypeError, match=f"(operand 1|b): Prepared; expected an array of {a.dtype}"):
            call()
    assert ozaki.einsum("ij,jk", a, ozaki.mparray(np.ones((5, 2)))).bits >= 53
    assert ozaki.einsum("ij,jk", a, np.ones((5, 2), int)).dtype == np.float64


def test_copies_count_as_workspace(made):
    a, b = made(30, 20, 40), made(20, 50)
    rows = np.ascontiguousarray(a.swapaxes(1, 2)).reshape(1200, 20)
    enough, too_little = 2**24, 0  # for the product of these rows
    while enough - too_little > 1000:
        limit = (enough + too_little) // 2
        try:
            ozaki.matmul(rows, b, workspace_limit=limit)
            enough = limit
        except ValueError:
            too_little = limit
    with pytest.raises(ValueError, match="workspace_limit"):
        ozaki.einsum("ijb,jk->ibk", a, b, workspace_limit=enough)
    assert ozaki.einsum("ijb,jk->ibk", a, b, workspace_limit=enough + a.nbytes).dtype == a.dtype


# NumPy's functions within blocks -------------------------------------------------------------------------------------


def test_functions_of_numpy_within_a_block(made, accuracy):
    a, b, c = made(6, 5), made(5, 7), ozaki.matmul
    with ozaki.emulate(accuracy=accuracy) as run:
        for found in (
            np.matmul(a, b), np.dot(a, b), np.inner(a, b.T), np.tensordot(a, b, 1), np.einsum("ij,jk->ik", a, b),
            np.linalg.multi_dot([a, b]),
        ):  # fmt: skip
            assert found.dtype == a.dtype and np.array_equal(bits(found), bits(c(a, b)))
        assert np.vdot(a, a) == c(a.reshape(-1), a.reshape(-1))
        chain = np.linalg.multi_dot([a, b, b.T])
        np.matmul(wide(a), wide(b))
        out = np.zeros((6, 7), a.dtype)
        assert np.matmul(a, b, out=out) is out and np.array_equal(bits(out), bits(c(a, b)))
    assert np.array_equal(bits(chain), bits(c(a, c(b, b.T))))  # each is rounded
    assert {entry.dtype for entry in run.account.entries} == {str(a.dtype)} and run.account.products == 10
    assert run.account.left == {("matmul", "dtype float64"): 1}
    with ozaki.emulate() as run:
        np.matmul(a, a.T)
    assert run.account.left == {("matmul", f"dtype {a.dtype}"): 1}
    with pytest.raises(ValueError, match="scheme: products rounded to"):
        ozaki.emulate(accuracy=accuracy, scheme="digits")


def test_errors_of_floats_are_those_of_the_format(accuracy):
    sizes = {"bf16": (3e38, 1e-39), "fp16": (6e4, 6e-8)}[accuracy]
    with np.errstate(all="ignore"):
        large, small = (np.full((2, 2), size).astype(HALVES[accuracy]) for size in sizes)
    with ozaki.emulate(accuracy=accuracy), np.errstate(all="raise"):
        for size, message in ((large, "overflow"), (small, "underflow")):
            with pytest.raises(FloatingPointError, match=message):
                np.matmul(size, size)
        np.matmul(small / small, small)  # subnormal, and exact


def test_masked_elements_are_refused_where_nothing_is_summed(made):
    """No product looks at these operands. Without a masked element the result is a plain array, as of other floats."""
    x = made(4, 4)
    masked = np.ma.array(x, mask=np.eye(4))
    for subscripts, count in (("ij->ji", 1), ("ii->i", 1), ("ij,ij->ij", 2), ("ij,kl->ijkl", 2)):
        with pytest.raises(TypeError, match="operand 0: masked elements have no value"):
            ozaki.einsum(subscripts, masked, *[x] * (count - 1))
        plain = ozaki.einsum(subscripts, np.ma.array(x), *[x] * (count - 1))
        assert type(plain) is np.ndarray and np.array_equal(bits(plain), bits(ozaki.einsum(subscripts, *[x] * count)))
