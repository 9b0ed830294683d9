"""A warning names the caller's line, however deep in the library it is issued, so each line has its own."""

import pathlib
import re
import subprocess
import sys
import warnings

import numpy as np
import pytest

import ozaki
from ozaki.process.warning import warn

N = 30
RNG = np.random.default_rng(5)
PLAN = ozaki.plan(*RNG.standard_normal((2, N, N)), accuracy="fp64", reproducible=True, strict=False)
A, B = np.exp(9 * RNG.standard_normal((2, N, N)))


TENSORS = []


@pytest.fixture(scope="module")
def tensors():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    TENSORS[:] = torch.from_numpy(A), torch.from_numpy(B)


CALLS = {
    "matmul": lambda: ozaki.matmul(A, B, plan=PLAN, return_report=True),
    "matmul of a prepared operand": lambda: ozaki.matmul(
        ozaki.prepare(A, "left", PLAN), B, plan=PLAN, return_report=True
    ),
    "matmul of tensors": lambda: ozaki.matmul(*TENSORS, plan=PLAN, return_report=True),
    "gemm": lambda: ozaki.gemm(2, A, B, 0, None, plan=PLAN, return_report=True),
    "gemm of tensors": lambda: ozaki.gemm(2, *TENSORS, 0, None, plan=PLAN, return_report=True),
}


def lines_of(code):
    with warnings.catch_warnings(record=True) as found:
        warnings.resetwarnings()
        warnings.simplefilter("default")  # Python's own filter for user warnings: once a line
        code()
    return [(each.filename, each.lineno) for each in found]


@pytest.mark.parametrize("name", CALLS)
def test_a_line_has_one_warning(name, request):
    if "tensors" in name:
        request.getfixturevalue("tensors")
    call = CALLS[name]
    ((file, line),) = lines_of(lambda: (call(), call()))
    first = call.__code__.co_firstlineno
    assert file == __file__ and first <= line <= first + 2


def test_two_lines_have_two_warnings():
    found = lines_of(lambda: (CALLS["matmul"](), CALLS["gemm"]()))
    assert len({*found}) == 2 and {file for file, _ in found} == {__file__}


def test_the_innermost_line_outside():
    """Python's own decorators and the libraries that call this one are passed over; a caller's function is not."""

    @np.errstate(all="ignore")
    def inner():
        warn("about what")

    ((file, line),) = lines_of(inner)
    assert (file, line) == (__file__, inner.__wrapped__.__code__.co_firstlineno + 2)


def test_a_program_of_two_lines():
    """Without any filter of its own, as Python runs it."""
    code = (
        "import numpy as np, ozaki\n"
        "rng = np.random.default_rng(5)\n"
        f"p = ozaki.plan(*rng.standard_normal((2, {N}, {N})), accuracy='fp64', reproducible=True, strict=False)\n"
        f"a, b = np.exp(9 * rng.standard_normal((2, {N}, {N})))\n"
        "c = ozaki.matmul(a, b, plan=p, return_report=True)\n"
        "c = ozaki.gemm(1, a, b, 0, None, plan=p, return_report=True)\n"
        "for _ in range(3): c = ozaki.matmul(b, a, plan=p, return_report=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert re.findall(r"^<string>:(\d+): UserWarning: plan: proves", done.stderr, re.M) == ["5", "6", "7"]


def test_every_warning_of_the_library_is_issued_so():
    package = pathlib.Path(ozaki.__file__).parent
    issuing = [path.name for path in package.rglob("*.py") if "warnings.warn(" in path.read_text(encoding="utf-8")]
    assert issuing == ["warning.py"]
