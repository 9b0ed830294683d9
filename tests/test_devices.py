"""`devices=` where there is no GPU: which blocks a product is cut into, and what is refused."""

import sys
from itertools import pairwise
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ozaki
from ozaki.devices.blocks import LARGEST, Room, blocks_of

sizes = st.integers(0, 50_000)


@given(
    sizes,
    st.lists(sizes, min_size=1, max_size=3),
    st.integers(1, 50_000),
    st.integers(31, 40),
    st.sampled_from([*LARGEST]),
)
def test_blocks_hold_each_row_and_column_once(rows, widths, k, bits, where):
    ends = np.cumsum([0, *widths]).tolist()
    strips = [range(first, last) for first, last in pairwise(ends)]
    blocks = blocks_of(range(rows), strips, k, Room(2**bits, 8, 14), where)
    for parts, extent, most in zip((blocks.rows, blocks.cols), (rows, ends[-1]), LARGEST[where], strict=True):
        assert [part.start for part in parts] == [0, *(part.stop for part in parts)][: len(parts)]
        assert sum(map(len, parts)) == extent and all(0 < len(part) <= most for part in parts)
    for part in blocks.cols:
        assert any(part.start >= strip.start and part.stop <= strip.stop for strip in strips)
    if blocks.keeps:
        assert ends[-1] * k * 22 <= 2**bits


def test_less_memory_makes_smaller_blocks_until_none_fits():
    counts = [blocks_of(range(9000), [range(9000)], 9000, Room(2**bits, 8, 14)).count for bits in (40, 33, 31, 29, 27)]
    assert counts == sorted(counts) and counts[0] < counts[-1]
    with pytest.raises(MemoryError, match="1000 bytes are left, but the smallest blocks take"):
        blocks_of(range(9000), [range(9000)], 9000, Room(1000, 8, 14))


@pytest.mark.parametrize(
    ("devices", "error", "match"),
    [
        ("gpu", TypeError, "devices: 'gpu'; expected 'all', a number, 'cuda:1', or a list of these"),
        (True, TypeError, "devices: bool; expected"),
        ([], ValueError, "devices: none; expected"),
        ("cuda:0", ValueError, "devices: CuPy is not installed; leave it out"),
        ([0, 1], ValueError, "devices: CuPy is not installed; leave it out"),
    ],
)
def test_refused_without_cupy(devices, error, match):
    with mock.patch.dict(sys.modules, {"cupy": None}), pytest.raises(error, match=match):
        ozaki.matmul(np.eye(3), np.eye(3), devices=devices)
