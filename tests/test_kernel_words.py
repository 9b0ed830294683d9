"""Arithmetic and layouts of the word kernels, compiled by the system's C++ compiler, compared with NumPy."""

import ctypes
import itertools

import numpy as np
import pytest
from shim import call, compiled

from ozaki.schemes import PRESETS, Words
from ozaki.tensor_core import round_to

ROUNDINGS = ("RN", "RNA", "RZ")
SPLITS = {
    "fp16": [(1, 0), (2, 0), (2, 11), (3, 11), (8, 11)],
    "bf16": [(1, 0), (2, 0), (3, 0), (3, 8)],
    "tf32": [(1, 0), (2, 0), (2, 11), (3, 11)],
}
CASES = [(w, r, p, s) for w in SPLITS for r in ROUNDINGS for p, s in SPLITS[w]]

SOURCE = """
#include "words/fragments.cuh"
#include "words/word_tiles.cuh"
#include "arithmetic/words.cuh"
extern "C" {
void scaled(const float* x, const int* e, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = Scale(e[i])(x[i]);
}
int column(int j) { return permuted_column<4>(j); }
int64_t tile_place(int64_t row, int64_t byte, int64_t row_bytes, int s, int count, int tile, int permuted) {
  return permuted ? word_tile_offset<4>(row, byte, row_bytes, s, count, tile)
                  : word_tile_offset<0>(row, byte, row_bytes, s, count, tile);
}
int64_t fragment_place(int64_t row, int64_t byte, int64_t row_bytes, int right) {
  return right ? fragment_offset<true>(row, byte, row_bytes) : fragment_offset<false>(row, byte, row_bytes);
}
"""
OF_SPLIT = """
void split_{word}_{rounding}_{count}_{scale}(const float* x, float* out, float* left, int64_t n) {{
  for (int64_t i = 0; i < n; ++i) {{
    float words[{count}];
    left[i] = split_into_words<{WORD}, {rounding}, {scale}>(x[i], words);
    for (int s = 0; s < {count}; ++s) out[s * n + i] = words[s];
  }}
}}
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    splits = "".join(OF_SPLIT.format(word=w, WORD=w.upper(), rounding=r, count=p, scale=s) for w, r, p, s in CASES)
    library = compiled(SOURCE + splits + "}\n", tmp_path_factory.mktemp("words"))
    library.tile_place.restype = library.fragment_place.restype = ctypes.c_int64
    return library


def numbers(words):
    """Float32 numbers around every place where rounding to the format changes, up to the ceiling."""
    exponents = np.arange(max(words.floor - 45, -126), words.ceiling)
    fractions = np.uint32([0, 1, 0x0FFF, 0x1000, 0x1001, 0x2FFF, 0x3000, 0x7FFF, 0x8000, 0x8001, 0x18000, 0x7FFFFF])
    some = np.random.default_rng(1).integers(0, 2**23, 40, dtype=np.uint32)
    bits = ((exponents + 127).astype(np.uint32) << 23)[:, None] | np.concatenate([fractions, some])
    x = bits.reshape(-1).view(np.float32)
    x = x[np.abs(x) < 2.0**words.ceiling]
    return np.concatenate([x, -x, np.float32([0.0])])


@pytest.mark.parametrize(("word", "rounding", "count", "scale"), CASES)
def test_words(shim, word, rounding, count, scale):
    words = Words(word, count, scale_bits=scale, rounding=rounding)
    x = numbers(words)
    found, left = np.empty((count, x.size), np.float32), np.empty(x.size, np.float32)
    call(getattr(shim, f"split_{word}_{rounding}_{count}_{scale}"), x, found, left, x.size)
    rest = x.astype(np.float64)
    for s in range(count):
        expected = round_to(np.ldexp(rest, scale * s), word, rounding)
        different = found[s] != expected
        assert not different.any(), (s, [v[different][0].item().hex() for v in (x, found[s], expected)])
        rest = rest - np.ldexp(expected, -scale * s)
    np.testing.assert_array_equal(left, rest)


def test_scaling_rounds_once(shim):
    rng = np.random.default_rng(2)
    x = rng.integers(0, 2**32, 20000, dtype=np.uint32).view(np.float32)
    x = x[np.isfinite(x)]
    e = np.where(np.abs(x) < 2.0**100, rng.integers(-360, 255, x.size), rng.integers(-252, 255, x.size))
    e[::2] = np.clip(rng.integers(-160, 140, e[::2].size) - np.frexp(x[::2])[1], -252, 254)  # near the ends of float32
    e = e.astype(np.int32)
    found = np.empty_like(x)
    call(shim.scaled, x, e, found, x.size)
    with np.errstate(over="ignore"):
        expected = np.ldexp(x.astype(np.float64), e).astype(np.float32)
    np.testing.assert_array_equal(found.view(np.int32), expected.view(np.int32))


def test_columns_of_a_thread_are_neighbours(shim):
    columns = [shim.column(j) for j in range(256)]
    assert sorted(columns) == list(range(256))
    for i, t, x in itertools.product(range(32), range(4), range(2)):  # accumulator of wgmma, as in word_gemm_sm90.cu
        assert columns[16 * (i // 2) + 4 * t + 2 * (i % 2) + x] == 8 * i + 2 * t + x


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(("tile", "permuted"), [(128, 0), (192, 1), (208, 1), (256, 1)])
def test_tiles(shim, tile, permuted, count):
    """Every 16 bytes of all words have a place of their own, from which wgmma reads them."""
    rows, row_bytes = 2 * tile, 256
    seen = set()
    for row, byte, s in itertools.product(range(rows), range(0, row_bytes, 16), range(count)):
        at = shim.tile_place(*(ctypes.c_int64(v) for v in (row, byte, row_bytes)), s, count, tile, permuted)
        seen.add(at)
        r = shim.column(row % tile) if permuted else row % tile
        share = 128 // count
        block = (row // tile * (row_bytes // share) + byte // share) * tile * 128
        assert at == block + r * 128 + ((share // 16 * s + byte % share // 16) ^ r % 8) * 16
    assert seen == set(range(0, count * rows * row_bytes, 16))


@pytest.mark.parametrize("right", [0, 1])
def test_fragments(shim, right):
    """Lane 4 g + t of a warp finds the operands of mma.sync in its 16 bytes."""
    rows, row_bytes = 32, 64
    places = {
        (row, byte): shim.fragment_place(*(ctypes.c_int64(v) for v in (row, byte, row_bytes)), right)
        for row in range(rows)
        for byte in range(0, row_bytes, 4)
    }
    assert sorted(places.values()) == list(range(0, rows * row_bytes, 4))
    for tile, unit, g, t, i in itertools.product(range(2), range(2), range(8), range(4), range(4)):
        at = (tile * 2 + unit) * 512 + (4 * g + t) * 16 + 4 * i
        lower, later = (i // 2, i % 2) if right else (i % 2, i // 2)
        assert places[16 * tile + g + 8 * lower, 32 * unit + 4 * t + 16 * later] == at


def test_every_preset_has_a_split_that_is_tested():
    for words in PRESETS.values():
        assert (words.word, words.rounding, words.count, words.scale_bits) in CASES
