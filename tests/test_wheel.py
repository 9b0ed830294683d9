"""The built wheel, installed elsewhere, finds its kernels and its data."""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

CHECK = """
import pathlib, sys
import ozaki
from ozaki._cli import longley
from ozaki.backends.cupy.program import compiling

package = pathlib.Path(ozaki.__file__).parent
assert package.is_relative_to(sys.prefix), package
print(ozaki.__version__)
assert compiling.folder() == package / "kernels"
print(*sorted(path.name for path in compiling.folder().rglob("*.cu*")))
assert longley.longley().a.shape == (16, 7)
assert (package / "py.typed").exists()
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The path of a freshly built wheel, without the code for processors (tests/test_compiled.py)."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT],
        check=True,
        capture_output=True,
        env={**os.environ, "OZAKI_NO_COMPILE": "1"},
    )
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_holds_what_it_needs(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {"ozaki/data/longley.dat", "ozaki/data/selftest.json"} <= set(names)
    assert {f"ozaki/{path.relative_to(ROOT)}" for path in (ROOT / "kernels").rglob("*.cu*")} <= set(names)
    assert "ozaki/kernels/common.txt" in names and wheel.stat().st_size < 30e6  # compiled kernels included
    others = "building", "tests", "benchmarks", "examples", "notebooks", "docs", "reproduce"
    assert not [name for name in names if name.startswith(others)]


@pytest.mark.full
def test_an_installed_wheel_finds_kernels_and_data(wheel, tmp_path):
    venv.create(tmp_path / "env", symlinks=True)
    python = tmp_path / "env" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel]
    subprocess.run(pip, check=True, capture_output=True)
    # Dependencies are those of this environment. Python reads no .pth files in a folder that a .pth file names, so an
    # editable install of the library in it is not found.
    (packages,) = (tmp_path / "env").glob("lib/python*/site-packages")
    (packages / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")

    done = subprocess.run([python, "-I", "-c", CHECK], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    version, kernels = done.stdout.splitlines()
    assert version in wheel.name
    assert kernels.split() == sorted(path.name for path in (ROOT / "kernels").rglob("*.cu*"))
    script = tmp_path / "env" / "bin" / "ozaki"
    assert (
        "float64" in subprocess.run([script, "info"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    )
