"""The CuPy backend and its kernels without a GPU: on a device that the CPU emulates (tests/emulated)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import seeds

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "emulated"))
from build import compiler  # noqa: E402
from runs import CASES, FUNCTIONS, HOPPER  # noqa: E402

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the emulation is written for glibc's contexts"),
    pytest.mark.skipif(compiler() is None, reason="a C++ compiler (CXX, g++, c++) builds the kernels"),
]


def parameters():
    """The cases, of which the first one of each module is in the first tier of tests."""
    first = {names[0] for names in FUNCTIONS.values()}
    without = pytest.mark.skipif(find_spec("dask") is None, reason="not installed: dask")
    marks = {case: [without] for case in FUNCTIONS["dask_on_devices"]}
    return [
        pytest.param(case, marks=[*marks.get(case, ()), *([] if case in first else [pytest.mark.full])])
        for case in CASES
    ]


@pytest.mark.parametrize("case", parameters())
def test_same_bits_as_numpy(case):
    command = [sys.executable, str(HERE / "emulated" / "run.py"), case, str(seeds.seed_of(case))]
    environment = os.environ | {"PYTHONPATH": str(HERE.parent), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900)
    assert done.returncode == 0, f"{command[-2:]}: {done.stderr[-3000:]}"


def test_no_function_is_left_out():
    files = {path.stem for path in (HERE / "emulated" / "runs").glob("*.py")}
    assert files - {"__init__", "device", "operands"} == set(FUNCTIONS)
    for module, names in FUNCTIONS.items():
        text = (HERE / "emulated" / "runs" / f"{module}.py").read_text()
        functions = set(re.findall(r"^def (\w+)\((?:_?rng|.*, rng): np.random.Generator\)", text, re.MULTILINE))
        assert functions == {name.removeprefix(HOPPER).replace("-", "_") for name in names}
