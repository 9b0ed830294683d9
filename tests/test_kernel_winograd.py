"""Sums of residues, of slices and of products in Winograd's form: arithmetic/winograd.cuh against NumPy's integers."""

import ctypes
import itertools

import numpy as np
import pytest
from definition import moduli_of
from shim import call, compiled

MODULI = moduli_of(49)

SOURCE = """
#include "arithmetic/winograd.cuh"

extern "C" {
// Four blocks and four sums of bytes, n bytes each, n a multiple of 4.
void slice_sums_all(const uint32_t* blocks, int left, uint32_t m, uint32_t* out, int64_t n) {
  for (int64_t i = 0, words = n / 4; i < words; ++i) {
    const uint32_t p = blocks[i], q = blocks[words + i], r = blocks[2 * words + i], s = blocks[3 * words + i];
    uint32_t sum[4];
    if (left) slice_sums<true>(p, q, r, s, Modulus(m), sum);
    else slice_sums<false>(p, q, r, s, Modulus(m), sum);
    for (int j = 0; j < 4; ++j) out[j * words + i] = sum[j];
  }
}
void product_sums_all(const uint32_t* products, uint32_t m, uint32_t* out, int64_t n) {
  for (int64_t i = 0, words = n / 4; i < words; ++i) {
    uint32_t p[7], sum[4];
    for (int j = 0; j < 7; ++j) p[j] = products[j * words + i];
    product_sums(p, Modulus(m), sum);
    for (int j = 0; j < 4; ++j) out[j * words + i] = sum[j];
  }
}
}
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    return compiled(SOURCE, tmp_path_factory.mktemp("winograd"))


@pytest.mark.parametrize("left", [1, 0])
def test_sums_of_slices(shim, left):
    """Sums of quadrants of slices: every pair of residues in every place, and all corners, for every modulus."""
    for m in MODULI:
        one, other = (x.ravel() for x in np.meshgrid(np.arange(m), np.arange(m)))
        zero = np.zeros_like(one)
        fill = -np.arange(len(one)) * 7 % m
        corners = itertools.product([0, 1, m // 2, m // 2 + 1, m - 2, m - 1], repeat=4)
        rows = [np.array(list(corners)).T]
        rows += [np.array(x) for x in itertools.permutations([one, other, zero, fill])]
        p, q, r, s = blocks = np.concatenate(rows, axis=1)[:, : sum(x.shape[1] for x in rows) // 4 * 4]
        if left:
            sums = np.array([r + s, r + s - p, p - r, q - (r + s - p)])
        else:
            sums = np.array([r - p, s - (r - p), s - r, q - (s - (r - p))])
        out = np.empty(blocks.shape, np.uint8)
        call(shim.slice_sums_all, blocks.astype(np.uint8), left, ctypes.c_uint32(m), out, blocks.shape[1])
        assert np.array_equal(out, sums % m), m


def test_sums_of_products(shim):
    """Sums of reduced products: every pair of bytes in every place, and every sum of four, for every modulus."""
    for m in MODULI:
        one, other = (x.ravel() for x in np.meshgrid(np.arange(m), np.arange(m)))
        total = np.arange(4 * (m - 1) + 1)
        parts = np.array([total // 4 + (total % 4 > i) for i in range(4)])
        pairs = np.array([one, other, m - 1 - one, one * 5 % m, 0 * one, other * 3 % m, m - 1 - other])
        rows = [np.roll(pairs, i, axis=0) for i in range(7)] + [parts[[0, 1, 3, 3, 2, 1, 2]], np.zeros((7, 3), int)]
        p = np.concatenate(rows, axis=1)
        p = p[:, : p.shape[1] // 4 * 4]
        out = np.empty((4, p.shape[1]), np.uint8)
        call(shim.product_sums_all, p.astype(np.uint8), ctypes.c_uint32(m), out, p.shape[1])
        sums = [p[list(places)].sum(axis=0) % m for places in ((0, 1), (0, 5, 4, 2), (0, 5, 6, 3), (0, 5, 6, 4))]
        assert np.array_equal(out, sums), m
