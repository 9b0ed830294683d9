"""Eigenvalues of general matrices on every device: those of NumPy, within the bounds of both."""

import numpy as np
import pytest
from mparrays import back

from ozaki import MPArray, linalg, mparray

FORMS = ["float64", "complex128", "100 bits", "defective"]


@pytest.mark.parametrize("name", ["eig", "eigvals"])
def test_results_lie_where_operands_do_and_agree(device, rng, name):
    # On a slow device corrections in many bits take minutes.
    for form in device.some(FORMS[: device.size(4, 2)], 1, rng):
        a = rng.standard_normal((4, 4)) + (1j * rng.standard_normal((4, 4)) if form == "complex128" else 0)
        if form == "defective":
            a = np.array([[3.0, 1.0, 0.0], [-1.0, 1.0, 0.0], [1.0, 2.0, 5.0]])  # 2 twice, and 5
        options = {"accuracy": 100, "dtype": "mp"} if form == "100 bits" else {}
        found = getattr(linalg, name)(device.asarray(a), **options)
        exact = linalg.eigvals(a, accuracy=200, dtype="mp")
        for x in found[: 2 if name == "eig" else 1]:
            assert isinstance(x, MPArray) == (form == "100 bits"), form
            assert isinstance(x.limbs if isinstance(x, MPArray) else x, device.xp.ndarray), form
        assert type(found.error_bounds) is np.ndarray and found.error_bound == found.error_bounds.max()
        values = mparray(back(device, found.values)).astype("complex128")
        near = exact.values.astype("complex128")
        assert abs(values[:, None] - near).min(axis=1).max() <= 1e-15 * abs(near).max() + 1e-7 * (form == "defective")
        assert found.error_bound < (2.0**-97 if form == "100 bits" else 1e-15), form
        if name == "eig":
            vectors = mparray(back(device, found.vectors)).astype("complex128")
            assert abs(a @ vectors - vectors * values).max() < 1e-7
            assert np.isinf(found.vector_bounds).sum() == 2 * (form == "defective")
            assert found.vector_bounds.min() < 1e-15
