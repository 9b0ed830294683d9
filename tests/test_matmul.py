"""What only NumPy has: sequences as operands, warnings, memory maps, matrices; and the memory that a call holds.

What matmul and gemm do on every device is in tests/shared.
"""

import tracemalloc

import numpy as np
import pytest
from cases import first_difference, same_bits, set_sizes

import ozaki
from ozaki.backends.numpy import _nonfinite as _numpy_nonfinite


def check(x, y, *about):
    assert same_bits(np.ascontiguousarray(x), np.ascontiguousarray(y)), (first_difference(x, y), *about)


def test_sequences_of_floats_are_arrays():
    assert ozaki.matmul([[1.0, 2.0]], [[3.0], [4.0]]).tolist() == [[11.0]]
    assert ozaki.matmul([np.ma.array([1.0, 2.0])], ([3.0], np.ma.array([4.0]))).tolist() == [[11.0]]  # none masked


@pytest.mark.parametrize("scheme", ["auto", "digits", "native"])
def test_no_warnings_whatever_the_caller_asks_of_numpy(scheme):
    """Overflow, underflow and NaN are what IEEE arithmetic gives, and no occasion for NumPy's warnings or errors."""
    rng = np.random.default_rng(3)
    x = np.ldexp(rng.standard_normal((5, 5)), np.arange(25).reshape(5, 5) * 80 - 1000)
    y = np.where(np.eye(5) > 0, np.inf, x)
    with np.errstate(all="raise"):
        for left, right in ((x, x), (x, y), (1e308 * np.ones((5, 5)), x)):
            ozaki.matmul(left, right, scheme=scheme, return_report=True)
            ozaki.gemm(2.0, left, right, -1.0, np.full((5, 5), np.inf), scheme=scheme)
            ozaki.plan(left, right, scheme=scheme)


def test_long_rows_are_held_in_pieces():
    """A limit that the slices of a single row would exceed is kept."""
    a, b = np.ones((2, 10**6)), np.ones((10**6, 2))
    tracemalloc.start()
    try:
        ozaki.matmul(a, b, scheme="residues", slices=14, workspace_limit=2**24)
        assert tracemalloc.get_traced_memory()[1] < 2**23
    finally:
        tracemalloc.stop()


def test_broadcast_stacks_are_not_copied_for_each_matrix_that_they_meet(rng):
    a, b = rng.standard_normal((30, 1, 20, 30)), rng.standard_normal((1, 20, 30, 20))
    options = {"scheme": "residues", "slices": 14, "return_report": True}
    _, of_one_product = ozaki.matmul(
        a.reshape(600, 30), np.asfortranarray(b.swapaxes(0, 2).reshape(30, 400)), **options
    )
    c, report = ozaki.matmul(a, b, **options)
    assert report.workspace_bytes <= of_one_product.workspace_bytes + b.nbytes
    for i, j in ((0, 0), (29, 19), (7, 11)):
        check(np.ascontiguousarray(c[i, j]), ozaki.matmul(a[i, 0], b[0, j], scheme="residues", slices=14))


def test_copies_of_broadcast_operands_count_as_workspace(rng):
    """Broadcast operands are copied for a normwise target, since each matrix then has a bound of its own."""
    a, b = rng.standard_normal((30, 1, 20, 30)), rng.standard_normal((1, 20, 30, 20))
    options = {"accuracy": ozaki.Accuracy("normwise", 1e-15), "reproducible": True, "return_report": True}
    copied = 8 * 600 * 2 * 600
    c, report = ozaki.matmul(a, b, **options)
    assert report.workspace_bytes > copied
    with pytest.raises(ValueError, match=rf"^workspace_limit: {copied} bytes are too few"):
        ozaki.matmul(a, b, workspace_limit=copied, **options)
    limit = copied + 10**7
    same, report = ozaki.matmul(a, b, workspace_limit=limit, **options)
    assert copied < report.workspace_bytes <= limit
    check(same, c)


def test_any_plain_array_takes_the_result(rng, tmp_path):
    a, b = rng.standard_normal((3, 4)), rng.standard_normal((4, 2))

    class Sub(np.ndarray):
        """An array with nothing beside its numbers."""

    mapped = np.lib.format.open_memmap(tmp_path / "c.npy", mode="w+", dtype="f8", shape=(3, 2))
    for out in (np.full((3, 2), np.nan).view(Sub), np.ma.array(np.zeros((3, 2))), mapped):
        assert ozaki.matmul(a, b, scheme="residues", slices=14, out=out) is out
        check(np.asarray(out), ozaki.matmul(a, b, scheme="residues", slices=14))


def test_nonfinite_values_in_slabs_meet(monkeypatch):
    """An Inf in one slab of k and a -Inf in another make a NaN."""
    monkeypatch.setattr(_numpy_nonfinite, "_PATCH", 4)
    set_sizes(monkeypatch, 2**16, 4)
    a = np.zeros((1, 12))
    a[0, 1], a[0, 10] = np.inf, -np.inf
    assert np.isnan(ozaki.matmul(a, np.ones((12, 1)), scheme="digits", slices=2)).all()
    a[0, 10] = 1
    assert ozaki.matmul(a, np.ones((12, 1)), scheme="digits", slices=2).tolist() == [[np.inf]]
