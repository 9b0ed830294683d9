"""Products of several processes whose shares lie on GPUs, through NCCL, or through memory of the host: NumPy's bits."""

import sys

import pytest
from launching import PROGRAMS, with_gloo, with_mpi, with_nccl, with_threads

cp = pytest.importorskip("cupy")

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def expected():
    sys.path.insert(0, str(PROGRAMS))
    import shares_on_gpus

    return shares_on_gpus.expected()


def same(lines, expected):
    assert all(line is not None and "result" in line for line in lines), lines
    for line in lines:
        assert {name: expected[method] for name, (method, _) in line["result"].items()} == {
            name: bits for name, (_, bits) in line["result"].items()
        }


@pytest.mark.parametrize(("launch", "size"), [(with_gloo, 2), (with_gloo, 3), (with_mpi, 3)])
def test_through_memory_of_the_host(launch, size, expected):
    same(launch("shares_on_gpus", size), expected)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_through_nccl(size, expected):
    if cp.cuda.runtime.getDeviceCount() < size:
        pytest.skip(f"{size} GPUs are not there")
    same(with_nccl("shares_on_gpus", size), expected)


def test_of_threads(expected):
    same([{"result": found} for found in with_threads("shares_on_gpus", 3)], expected)


def test_dtensors():
    for launch, size in ((with_gloo, 2), (with_gloo, 3), (with_nccl, cp.cuda.runtime.getDeviceCount())):
        for line in launch("dtensors_on_gpus", size):
            assert line is not None and "result" in line and all(line["result"].values()), line
