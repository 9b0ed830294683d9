"""The benchmark of grades: it runs from end to end, and its page has the tables of the newest results."""

import json

import numpy as np
import pytest

from benchmarks import grading
from benchmarks.results import newest_of_devices


def test_a_small_run_from_end_to_end(tmp_path, capsys):
    grading.main(sizes="4,6", output=tmp_path, commit="test", device=grading.Where.cpu, seed=0)
    (path,) = tmp_path.glob("*-*.json")
    assert str(path) in capsys.readouterr().out
    result = json.loads(path.read_text(encoding="utf-8"))
    ways = ["ozaki, fp64", "ozaki, exact", "ozaki, 14 residues", "NumPy"]
    assert [(row["kind"], row["way"]) for row in result["grades"]] == [(k, w) for k in grading.KINDS for w in ways]
    assert [row["grade"] for row in result["grades"]] == ["A", "A", "B", "A"] * 2
    assert all(row["n"] in (4, 6) for row in result["rows"]) and len(result["rows"]) == 2 * 2 * 9 * 4
    text = grading.tables_of(result)
    assert text.count("| float64 |") == text.count("| complex128 |") == 4
    assert text.count("n = 6: ") == 2 and "n = 4" not in text and "**" in text.partition("n = 6: ")[2]


def row(**changes):
    row = {"kind": "float64", "test": "growth", "n": 8, "way": "it", "slices": 14, "error": 0.456, "passes": True}
    return row | {"seconds": 0.0012} | changes


@pytest.mark.parametrize(
    ("changes", "cell"),
    [
        ({}, "14: 0.46, 1.2 ms"),
        ({"slices": 0, "error": 4.5e15, "passes": False, "seconds": 2.0}, "**4.5e+15**, 2 s"),
        ({"error": None, "passes": False, "seconds": 0.25}, "14: **not finite**, 250 ms"),
    ],
)
def test_cells(changes, cell):
    assert grading._cell(row(**changes)) == cell


def test_a_gpu_adds_its_products(monkeypatch):
    names = [way.name for way in grading.compared_on("gpu")]
    assert names == ["ozaki, fp64", "ozaki, exact", "ozaki, 14 residues", "CuPy", "NumPy"]

    class Emulated:
        version = "13.10.0"

        def multiply(self, a, b, out):
            np.matmul(a, b, out=out)

    class GEMMul8:
        version = "2.0"

        def matmul(self, a, b, moduli, out):
            np.matmul(a, b, out=out)

    monkeypatch.setattr(grading.EmulatedDgemm, "on_device", lambda library: Emulated())
    monkeypatch.setattr(grading, "load_gemmul8", lambda folder: GEMMul8())
    found = grading.peers("folder", "library")
    assert [way.name for way in found] == ["cuBLAS 13.10.0 emulated", "GEMMul8 2.0"]
    monkeypatch.setitem(__import__("sys").modules, "cupy", np)
    a, b = np.arange(6.0).reshape(2, 3), np.ones((3, 2))
    assert all((way.multiply(a, b) == a @ b).all() for way in found)
    assert found[1].account(a, b) == ("14 moduli", 14)


def test_the_page_has_the_tables_of_the_newest_results():
    text = grading.DOCUMENT.read_text(encoding="utf-8")
    results = newest_of_devices(grading.FOLDER)
    assert grading.with_tables(text, results) == text and results
