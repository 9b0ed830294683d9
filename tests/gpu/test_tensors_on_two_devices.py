"""Tensors of PyTorch and arrays of CuPy and JAX on the second of two GPUs, while the first is the current one."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import ozaki
from ozaki import linalg

cp = pytest.importorskip("cupy")
pytestmark = pytest.mark.gpu

R = {"scheme": "residues", "slices": 14}


@pytest.fixture(autouse=True)
def _two_devices():
    if cp.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("one GPU; this takes two")
    assert cp.cuda.runtime.getDevice() == 0
    yield
    assert cp.cuda.runtime.getDevice() == 0


@pytest.fixture
def torch():
    found = pytest.importorskip("torch", reason="PyTorch is not installed")
    if found.cuda.device_count() < 2:
        pytest.skip("this PyTorch sees no second GPU")
    assert found.cuda.current_device() == 0
    yield found
    assert found.cuda.current_device() == 0


@pytest.fixture
def operands():
    rng = np.random.default_rng(3)
    return rng.standard_normal((20, 20)) + 5 * np.eye(20), rng.standard_normal((20, 7))


def there(x):
    with cp.cuda.Device(1):
        return ozaki.ascupy(x) if isinstance(x, ozaki.MPArray) else cp.asarray(x)


def test_tensors(torch, operands):
    a, b = operands
    x, y = (torch.from_numpy(each).to("cuda:1") for each in operands)
    for call in (
        lambda a, b: ozaki.matmul(a, b, **R),
        lambda a, b: ozaki.gemm(2, a, b, 0, None, **R),
        lambda a, b: ozaki.einsum("ij,jk->ki", a, b, **R),
        lambda a, b: ozaki.tensordot(a, b, 1, **R),
        lambda a, b: ozaki.residual(a, b, b),
    ):
        for _ in range(3):
            found = call(x, y)
            assert found.device == x.device
            np.testing.assert_array_equal(found.cpu().numpy(), call(a, b))
    out = torch.empty(20, 7, dtype=torch.float64, device="cuda:1")
    assert ozaki.matmul(x, y, out=out, **R) is out
    np.testing.assert_array_equal(out.cpu().numpy(), ozaki.matmul(a, b, **R))
    numbers = ozaki.mparray(x)
    assert numbers.limbs.device.id == 1
    assert (ozaki.asnumpy(numbers) == ozaki.mparray(a)).all()
    assert linalg.solve(x, y).x.device == x.device
    assert linalg.eigh(x + x.T).values.device == x.device
    with torch.cuda.stream(torch.cuda.Stream(device="cuda:1")):
        with torch.cuda.device(0):
            found = ozaki.matmul(ozaki.matmul(x, x, **R), y, **R)
        np.testing.assert_array_equal(found.cpu().numpy(), ozaki.matmul(ozaki.matmul(a, a, **R), b, **R))


def test_tensors_on_two_devices(torch, operands):
    x, y = (torch.from_numpy(each).to(f"cuda:{place}") for place, each in enumerate(operands))
    with pytest.raises(ValueError, match=r"^a: on cuda:0, b: on cuda:1; move one of them"):
        ozaki.matmul(x, y)
    with pytest.raises(ValueError, match=r"^a: on device 0, b: on device 1; expected one device"):
        ozaki.matmul(x, there(ozaki.mparray(operands[1])))
    factors = linalg.lu_factor(x)
    with pytest.raises(ValueError, match=r"^factors: on device 0, b: on device 1; expected one device"):
        linalg.lu_solve(factors, y)
    assert linalg.lu_solve(factors, y.to("cuda:0")).x.device == x.device


def test_programs_of_tensors(torch, operands):
    from ozaki.torch import emulate, matmul

    x, y = (torch.from_numpy(each).to("cuda:1") for each in operands)
    expected = ozaki.matmul(*operands, **R)
    with emulate(**R) as run:
        found = x @ y
    assert run.account.products == 1
    for each in (found, matmul(x, y, **R)):
        assert each.device == x.device
        np.testing.assert_array_equal(each.cpu().numpy(), expected)


def test_programs_of_jax(operands):
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    if jax.default_backend() == "cpu" or len(jax.devices()) < 2:
        pytest.skip("this JAX sees no second GPU")
    from ozaki.jax import matmul

    x, y = (jax.device_put(each.astype(np.float32), jax.devices()[1]) for each in operands)
    expected = ozaki.matmul(*(each.astype(np.float32) for each in operands), scheme="residues", slices=8)
    choices = {"scheme": "residues", "slices": 8}
    calls = (
        lambda: ozaki.matmul(x, y, **choices),
        lambda: matmul(x, y, **choices),
        lambda: jax.jit(lambda x, y: matmul(x, y, **choices))(x, y),
    )
    for call in calls:
        found = call()
        assert found.devices() == x.devices()
        np.testing.assert_array_equal(np.asarray(found), expected)
        cp.cuda.runtime.setDevice(0)  # JAX leaves the device of its arrays current, also by `x @ y` alone


def test_copies_of_numbers(operands):
    """CuPy copies an array on its own device, and reads a pickled one onto the current one."""
    x = there(ozaki.mparray(operands[0], bits=40))
    again = copy.deepcopy(x)
    assert again.limbs.device.id == 1
    with cp.cuda.Device(1):
        assert (again == x).all()
    read = pickle.loads(pickle.dumps(x))
    assert read.limbs.device.id == 0
    assert (ozaki.ascupy(x) == read).all()


def test_large_products(operands):
    """Products of many tiles, 14 residues, on both devices in turn."""
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((2, 700, 700))
    expected = ozaki.matmul(a, b, **R)
    here = cp.asarray(a), cp.asarray(b)
    for _ in range(3):
        for x, y in (here, (there(a), there(b))):
            c = ozaki.matmul(x, y, **R)
            assert c.device.id == x.device.id
            with x.device:
                np.testing.assert_array_equal(cp.asnumpy(c), expected)
