"""`out` whose elements share memory, or that shares memory with an operand or with the file it is mapped from."""

import mmap

import numpy as np
import pytest
from cases import same_bits
from numpy.lib.stride_tricks import as_strided

import ozaki

WAYS = [{}, {"scheme": "residues", "slices": 14}, {"accuracy": "fp64", "reproducible": True}]


def layouts(rng):
    """Yield shapes of two or three axes with random strides of any order and sign; elements may share memory."""
    for _ in range(300):
        shape = tuple(int(size) for size in rng.integers(1, 5, rng.integers(2, 4)))
        yield shape, tuple(8 * int(step) for step in rng.integers(-9, 10, len(shape)))


def strided(shape, strides):
    """An array of zeros with that shape and these strides, in bytes, and the memory that it lies in."""
    first = sum(-step * (size - 1) for step, size in zip(strides, shape, strict=True) if step < 0) // 8
    memory = np.zeros(2000)
    return as_strided(memory[first:], shape, strides), memory


def test_out_whose_elements_share_memory_is_refused(rng):
    refused = 0
    for shape, strides in layouts(rng):
        out, memory = strided(shape, strides)
        places = {sum(i * step for i, step in zip(at, strides, strict=True)) for at in np.ndindex(shape)}
        a, b = rng.standard_normal((*shape[:-1], 6)), rng.standard_normal((6, shape[-1]))
        if len(places) == out.size:
            ozaki.matmul(a, b, out=out, scheme="residues", slices=14)
            assert same_bits(np.ascontiguousarray(out), ozaki.matmul(a, b, scheme="residues", slices=14)), strides
        else:
            refused += 1
            with pytest.raises(ValueError, match=r"^out: elements share their memory; expected an array in which each"):
                ozaki.matmul(a, b, out=out)
            assert not memory.any()
    assert 0 < refused < 300


def test_parts_of_elements_are_shared_too():
    memory = np.zeros(100, np.uint8)
    out = as_strided(memory[:16].view(np.float64)[:1], (2, 2), (16, 4))
    with pytest.raises(ValueError, match=r"^out: elements share"):
        ozaki.matmul(np.eye(2), np.eye(2), out=out)


def mapped(path, shape, mode="r+"):
    return np.lib.format.open_memmap(path, mode=mode, dtype="f8", shape=shape if mode == "w+" else None)


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("linked", [False, True])
def test_a_file_that_is_mapped_as_operand_and_as_out(rng, tmp_path, way, linked):
    """The product runs in panels of 2048 rows, none of which may read what the one before has written."""
    path, other = tmp_path / "x.npy", tmp_path / "link.npy"
    if linked:
        other.symlink_to(path)
    x, b = rng.standard_normal((5000, 4)), rng.standard_normal((4, 4))
    file = mapped(path, x.shape, "w+")
    file[...] = x
    file.flush()
    expected = ozaki.matmul(x, b, **way)
    for operand in (np.load(path, mmap_mode="r"), np.asarray(np.load(path, mmap_mode="r"))[::-1][::-1]):
        out = mapped(other if linked else path, x.shape)
        assert ozaki.matmul(operand, b, out=out, **way) is out
        assert same_bits(np.array(out), expected)
        out[...] = x
    out = mapped(path, x.shape)
    assert ozaki.gemm(2.0, operand, b, 1.0, operand, out=out, **way) is out
    assert same_bits(np.array(out), ozaki.gemm(2.0, x, b, 1.0, x, **way))


def test_plain_memory_maps_may_be_of_one_file(rng, tmp_path):
    path = tmp_path / "x.bin"
    x, b = rng.standard_normal((5000, 4)), rng.standard_normal((4, 4))
    path.write_bytes(x.tobytes())
    with open(path, "r+b") as file:
        maps = mmap.mmap(file.fileno(), 0), mmap.mmap(file.fileno(), 0)
    operand, out = (np.frombuffer(each).reshape(5000, 4) for each in maps)
    ozaki.matmul(operand, b, out=out, scheme="residues", slices=14)
    assert same_bits(out.copy(), ozaki.matmul(x, b, scheme="residues", slices=14))


def test_two_files_are_no_copy(rng, tmp_path):
    a, b = rng.standard_normal((300, 20)), rng.standard_normal((20, 300))
    left, out = mapped(tmp_path / "a.npy", a.shape, "w+"), mapped(tmp_path / "c.npy", (300, 300), "w+")
    left[...] = a
    options = {"scheme": "residues", "slices": 14, "return_report": True}
    _, report = ozaki.matmul(left, b, out=out, **options)
    assert report.workspace_bytes == ozaki.matmul(a, b, **options)[1].workspace_bytes
