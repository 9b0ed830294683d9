"""Products with devices= on real GPUs: on one in blocks, and on all that are there."""

from unittest import mock

import numpy as np
import pytest

import ozaki
from ozaki.devices import blocks

cp = pytest.importorskip("cupy")

pytestmark = pytest.mark.gpu


def of_blocks(rows, cols):
    """A context in which blocks have at most so many rows and columns."""
    return mock.patch.dict(blocks.LARGEST, dict.fromkeys(blocks.LARGEST, (rows, cols)))


def operands(dtype="float64"):
    rng = np.random.default_rng(56)
    a, b = rng.standard_normal((1100, 700)), rng.standard_normal((700, 900))
    if dtype == "complex128":
        return a[:500] + 1j * a[600:], (b + 1j * b[::-1])[:700]
    return a.astype(dtype), b.astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@pytest.mark.parametrize("method", [{"scheme": "residues", "slices": 12}, {"accuracy": "fp32"}])
@pytest.mark.parametrize("devices", [0, "all"])
def test_bits_of_one_call(dtype, method, devices):
    a, b = operands(dtype)
    want = ozaki.matmul(a, b, reproducible=True, inner_scaling=False, **method)
    with of_blocks(256, 200):
        for x, y in ((a, b), (cp.asarray(a), cp.asarray(b)), (cp.asarray(a), b), (a, cp.asarray(b.T).T)):
            c, report = ozaki.matmul(x, y, devices=devices, return_report=True, **method)
            assert type(c) is type(x)
            assert np.array_equal(cp.asnumpy(c), want)
            assert sum(each.blocks[0] for each in report.devices) > 1


def test_memory_maps(tmp_path):
    a, b = operands()
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    x, y = (np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in "ab")
    out = np.lib.format.open_memmap(tmp_path / "c.npy", "w+", np.float64, (1100, 900))
    with of_blocks(300, 128):
        assert ozaki.matmul(x, y, out, scheme="residues", slices=14, devices="cuda:0") is out
    out.flush()
    assert np.array_equal(np.load(tmp_path / "c.npy"), ozaki.matmul(a, b, scheme="residues", slices=14))


def test_strips_on_their_devices():
    a, b = operands()
    count = cp.cuda.runtime.getDeviceCount()
    x, y = [], []
    for device, (rows, cols) in enumerate(zip(np.array_split(a, count), np.array_split(b, count, axis=1), strict=True)):
        with cp.cuda.Device(device):
            x.append(cp.asarray(rows))
            y.append(cp.asarray(cols))
    strips = ozaki.matmul(x, y, scheme="residues", slices=14, devices="all")
    assert [strip.device.id for strip in strips] == list(range(count))
    found = np.concatenate([cp.asnumpy(strip) for strip in strips])
    assert np.array_equal(found, ozaki.matmul(a, b, scheme="residues", slices=14))


def test_work_on_the_callers_stream_comes_first():
    stream = cp.cuda.Stream(non_blocking=True)
    a, b = operands()
    with stream:
        x = cp.zeros(a.shape)
        for _ in range(50):
            x += 1
        x[...] = cp.asarray(a)
        c = ozaki.matmul(x, cp.asarray(b), scheme="residues", slices=14, devices="all")
    assert np.array_equal(cp.asnumpy(c), ozaki.matmul(a, b, scheme="residues", slices=14))
