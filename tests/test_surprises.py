"""What other libraries surprise with (docs/surprises.md) does not reach users of this one."""

from concurrent.futures import ThreadPoolExecutor

import gmpy2
import numpy as np
import pytest

import ozaki


@pytest.mark.parametrize("n", [140, 513])  # BLAS gives other bits at such sizes, and the same at powers of two
def test_a_row_alone_has_the_bits_that_it_has_in_the_product(rng, n):
    a, b = rng.standard_normal((2, n, n))
    c = ozaki.matmul(a, b, scheme="residues", slices=14)
    assert np.array_equal(ozaki.matmul(a[[n // 3]], b, scheme="residues", slices=14), c[[n // 3]])


def test_a_matrix_times_its_transpose_is_symmetric(rng):
    a = rng.standard_normal((129, 77))
    c = ozaki.matmul(a, a.T, scheme="residues", slices=14)
    assert np.array_equal(c, c.T)


def test_a_diagonal_system_is_divided_not_multiplied_by_inverses():
    assert ozaki.linalg.solve(np.diag([49.0, 1.0]), np.array([49.0, 1.0])).x.tolist() == [1, 1]


def test_multiprecision_products_keep_their_bits_in_the_threads_of_a_pool():
    """The contexts of gmpy2 are those of one thread."""
    with gmpy2.context(precision=212):
        third = gmpy2.mpfr(1) / 3
        x = ozaki.mparray([[third]], bits=212)
        here = (ozaki.matmul(x, x) + x).to_fractions()
        with ThreadPoolExecutor(1) as pool:
            there = pool.submit(lambda: (ozaki.matmul(x, x) + ozaki.mparray([[third]], bits=212)).to_fractions())
            assert there.result() == here
