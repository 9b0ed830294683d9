"""Places in a tile: kernels/hardware/tiles.cuh against where wgmma reads operands and leaves results."""

import pytest
from shim import compiled

SOURCE = """
#include "hardware/tiles.cuh"

extern "C" {
int offset_in_tile(int row, int piece) { return tile_offset(row, piece); }
int permuted_16(int j) { return permuted_column<16>(j); }
int permuted_8(int j) { return permuted_column<8>(j); }
int permuted_4(int j) { return permuted_column<4>(j); }
int column_of_16(int r) { return column_of_permuted<16>(r); }
int column_of_8(int r) { return column_of_permuted<8>(r); }
int column_of_4(int r) { return column_of_permuted<4>(r); }
}
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    return compiled(SOURCE, tmp_path_factory.mktemp("tiles"))


def test_tiles(shim):
    for r in range(256):
        assert [shim.offset_in_tile(r, p) for p in range(8)] == [128 * r + 16 * (p ^ r % 8) for p in range(8)]
    for permuted, column_of, n in (
        (shim.permuted_16, shim.column_of_16, 16),
        (shim.permuted_8, shim.column_of_8, 8),
        (shim.permuted_4, shim.column_of_4, 4),
    ):
        columns = [4 * n * g + 8 * (o // 2) + 2 * x + o % 2 for g in range(48 // n) for x in range(4) for o in range(n)]
        assert [permuted(j) for j in range(192)] == columns
        assert sorted(columns) == list(range(192))
        assert [column_of(r) for r in columns] == list(range(192))
