"""Correctly rounded linear algebra has the bits of NumPy's on every device, and results lie there."""

from itertools import product

import numpy as np
from mparrays import back

from ozaki import linalg

CASES = [*product(("solve", "inv", "cholesky", "lu_factor", "qr"), ("float64", "complex128"))]


def test_bits_are_those_of_numpy(device, rng):
    for name, form in device.some(CASES, 1, rng):
        a = np.round(rng.standard_normal((5, 5)) * 4) + 8 * np.eye(5)
        a = a + 1j * rng.standard_normal((5, 5)) if form == "complex128" else a
        # Factors of integers have zeros and whole numbers, which are decided exactly; so has the solution of a x = a.
        a = np.round((a @ a.conj().T) * 4) / 4 if name == "cholesky" else a
        operands = (a, a[:, :2].copy()) if name == "solve" else (a,)
        wanted = getattr(linalg, name)(*operands, reproducible=True)
        found = getattr(linalg, name)(*map(device.asarray, operands), reproducible=True)
        assert found.error_bound == wanted.error_bound
        for x, y in zip(found, wanted, strict=True):
            if isinstance(y, np.ndarray):
                assert back(device, x).tobytes() == y.tobytes()
