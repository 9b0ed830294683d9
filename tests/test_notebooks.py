"""The notebooks run from top to bottom, on NumPy."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest
from ipykernel.kernelspec import write_kernel_spec
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.fixture
def this_python(tmp_path, monkeypatch):
    """Make the running interpreter the kernel "python3", and this library the one that it imports."""
    write_kernel_spec(tmp_path / "kernels" / "python3")
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])))


def test_there_are_notebooks():
    assert [path.stem for path in NOTEBOOKS] == ["emulate_dgemm", "pick_slices", "validate_with_mpmath"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_has_the_outputs_of_one_run(path):
    """The site shows notebooks as they are committed: run from top to bottom, without errors, not too large."""
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert any(cell.outputs for cell in cells)
    assert all(output.output_type != "error" for cell in cells for output in cell.outputs)
    assert path.stat().st_size < 300_000


@pytest.mark.full
@pytest.mark.usefixtures("this_python")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=200, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()
    pictures = [out for cell in notebook.cells for out in cell.get("outputs", []) if "image/png" in out.get("data", {})]
    assert pictures
