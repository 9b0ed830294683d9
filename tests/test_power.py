"""Powers of matrices, compared with Python's integers."""

from fractions import Fraction

import numpy as np
import pytest
from mparrays import same

import ozaki
from ozaki import mparray


@pytest.mark.parametrize("n", [0, 1, 2, 3, 10, 37])
def test_powers_are_exact(rng, n):
    whole = rng.integers(-9, 10, (2, 3, 3))
    for a, values in (
        (whole, whole.astype(object)),
        (whole[0].tolist(), whole[0].astype(object)),
        (whole / 8, np.vectorize(Fraction, otypes=[object])(whole / 8)),
        (mparray(whole).ldexp(-200), whole * Fraction(1, 2**200)),
        (np.zeros((0, 0), int), np.zeros((0, 0), object)),
    ):
        wanted = np.broadcast_to(np.eye(values.shape[-1], dtype=int).astype(object), values.shape)
        for _ in range(n):
            wanted = wanted @ values
        found = ozaki.matrix_power(a, n)
        assert isinstance(found, ozaki.MPArray) and same(found, wanted)


def test_squarings_are_few(monkeypatch):
    calls = []
    monkeypatch.setattr("ozaki._power.matmul", lambda a, b, **options: calls.append(options) or ozaki.matmul(a, b))
    ozaki.matrix_power(np.eye(2, dtype=int), np.int64(1000))
    assert len(calls) == 9 + 5 and all(options == {"accuracy": "exact"} for options in calls)


@pytest.mark.parametrize(
    ("a", "n", "error", "message"),
    [
        (np.eye(2), -1, ValueError, "n: -1; expected 0 or more"),
        (np.eye(2), 1.0, TypeError, "n: float; expected an integer"),
        (np.ones((2, 3)), 2, ValueError, r"a: shape \(2, 3\); expected square matrices"),
        (np.ones(2), 0, ValueError, r"a: shape \(2,\)"),
        ([["0.1"]], 2, ValueError, "a: element .* has no end in binary"),
    ],
)
def test_what_has_no_power_is_refused(a, n, error, message):
    with pytest.raises(error, match=f"^{message}"):
        ozaki.matrix_power(a, n)
