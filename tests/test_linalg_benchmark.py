"""The benchmark of linear algebra: its errors are those of the bounds, and it runs on every device."""

import numpy as np
import pytest

from benchmarks import linalg
from benchmarks.devices import Cpu, device_of


@pytest.fixture(params=["cpu", pytest.param("gpu", marks=pytest.mark.gpu)])
def where(request):
    if request.param == "cpu":
        return Cpu()
    pytest.importorskip("cupy", reason="a real device needs CuPy")
    return device_of("gpu")


@pytest.mark.parametrize("kind", linalg._KINDS)
def test_errors_are_within_the_bounds(where, kind):
    rows = linalg.measured(where, 12, kind, 0)
    assert [row["function"] for row in rows] == [
        "solve",
        "inv",
        "lstsq",
        "eigh",
        "eigvalsh",
        "svdvals",
        "cholesky",
        "qr",
    ]
    for row in rows:
        assert row["error"] <= row["bound"] < 4e-16 and row["ozaki"] > 0 and row["native"] > 0
    if kind != "N(0, 1)":
        assert all(row["native error"] > 1e3 * row["bound"] for row in rows[:3])
    result = {"device": "D", "versions": {"numpy": "1", "cupy": None}, "rows": rows}
    assert linalg.table(result).count("\n| `") == 8 and "proven" in linalg.table(result)


def test_errors_are_measured_against_more_bits():
    a, b = np.array([[2.0]]), np.array([1.0])
    task = linalg.tasks(np, 1, "N(0, 1)")["solve"]
    exact = task.ours(accuracy=150, dtype="mp")[0].to_fractions()[0]
    off = float(exact) * (1 + 1e-9)
    assert task.error((np.array([off]),)) == pytest.approx(1e-9, rel=1e-3)
    assert linalg._compared(linalg.ozaki.linalg.solve, np.linalg.solve, a, b).error((np.array([0.75]),)) == 0.5
