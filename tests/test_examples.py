"""The examples run, print what they promise, and notice products that are rounded to fewer bits."""

import runpy
from pathlib import Path

import pytest

import ozaki

FOLDER = Path(__file__).parents[1] / "examples"

PRINTED = {
    "fibonacci": "the recurrence in Python's integers gives the same number",
    "hilbert": "all 400 entries are those of scipy.linalg.invhilbert",
    "interpolation": "from the polynomial",
    "longley": "all certified digits are right",
    "newton_schulz": "bits, proven in fractions",
    "purification": "by the closed form of the eigenvalues",
    "quantum_circuit": "each state alone has the same bits",
    "refinement": "exact residuals, two float64",
}
"""What each example prints in its last line."""


def run(name):
    runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")


def test_there_are_examples():
    assert sorted(path.stem for path in FOLDER.glob("*.py")) == sorted(PRINTED)


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_runs(name, capsys):
    run(name)
    lines = capsys.readouterr().out.splitlines()
    assert PRINTED[name] in lines[-1]
    assert 3 <= len(lines) <= 12 and max(map(len, lines)) < 120


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_notices_a_rounded_product(name, monkeypatch):
    exact = ozaki.matmul

    def rounded(*operands, **options):
        if name == "quantum_circuit":  # whose products have 53 bits
            product, report = exact(*operands, **options)
            return product.astype("complex64").astype("complex128"), report
        return exact(*operands, **options).round_to(53)

    monkeypatch.setattr(ozaki, "matmul", rounded)
    with pytest.raises((AssertionError, ValueError)):  # ValueError: a singular matrix, or the logarithm of 0
        run(name)
