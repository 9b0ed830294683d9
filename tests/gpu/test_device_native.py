"""The native product on the device, whatever math mode and variables another library has set for cuBLAS."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import pytest

import ozaki
from operands import same_bits
from ozaki import reference

cp = pytest.importorskip("cupy")
pytestmark = pytest.mark.gpu

TF32, EMULATED_FLOAT32, EMULATED_FLOAT64, NO_HALF_SUMS = 3, 4, 8, 16
"""Values of cublasMath_t."""


@contextmanager
def math_mode(mode):
    """Put CuPy's cuBLAS handle into a math mode within a `with` statement."""
    handle = cp.cuda.device.get_cublas_handle()
    before = cp.cuda.cublas.getMathMode(handle)
    cp.cuda.cublas.setMathMode(handle, mode)
    try:
        yield
    finally:
        cp.cuda.cublas.setMathMode(handle, before)


def operands(dtype):
    rng = np.random.default_rng(3)
    return (rng.standard_normal(shape).astype(dtype) for shape in ((300, 700), (700, 200)))


@pytest.mark.parametrize("mode", [TF32, TF32 + NO_HALF_SUMS, NO_HALF_SUMS])
def test_float32_products_are_never_by_tf32(mode):
    a, b = operands("f4")
    device, plain = ozaki.matmul(cp.asarray(a), cp.asarray(b), scheme="native", return_report=True)
    with math_mode(mode):
        c, report = ozaki.matmul(cp.asarray(a), cp.asarray(b), scheme="native", return_report=True)
        same_bits(device.get(), c)
    assert report.bound == plain.bound
    assert reference.componentwise_error(c, a, b) <= report.bound


@pytest.mark.parametrize(("dtype", "mode"), [("f4", EMULATED_FLOAT32), ("f8", EMULATED_FLOAT64)])
def test_emulation_of_the_handle_rules_the_native_product_out(dtype, mode):
    a, b = operands(dtype)
    x, y = cp.asarray(a), cp.asarray(b)
    assert ozaki.matmul(x, y, return_report=True)[1].native
    ozaki.matmul(x, y)  # keeps its program for repeated calls
    with math_mode(mode):
        c, report = ozaki.matmul(x, y, return_report=True)
        for _ in range(2):
            same_bits(c.get(), ozaki.matmul(x, y))
        assert not report.native
        assert reference.componentwise_error(c, a, b) <= report.bound
        assert ozaki.matmul(x, y, scheme="native", return_report=True)[1].bound == np.inf
    assert ozaki.matmul(x, y, return_report=True)[1].native


PROGRAM = """
import os
import cupy as cp, numpy as np, ozaki
from ozaki import reference
rng = np.random.default_rng(3)
a, b = (rng.standard_normal(shape).astype("{dtype}") for shape in ((300, 700), (700, 200)))
cp.cuda.device.get_cublas_handle()
c, report = ozaki.matmul(cp.asarray(a), cp.asarray(b), return_report=True)
assert reference.componentwise_error(c, a, b) <= report.bound
print(report.native, report.why)
os.environ.pop("{variable}")
c, report = ozaki.matmul(cp.asarray(a), cp.asarray(b), return_report=True)
print(report.native, report.why)
"""


@pytest.mark.parametrize(
    ("dtype", "variable", "native"),
    [
        ("f4", "NVIDIA_TF32_OVERRIDE", True),
        ("f4", "CUBLAS_EMULATE_SINGLE_PRECISION", False),
        ("f8", "CUBLAS_EMULATE_DOUBLE_PRECISION", False),
    ],
)
def test_variables_that_cublas_reads_when_it_begins(dtype, variable, native):
    """Unsetting them later changes nothing for cuBLAS, and so nothing for the plan."""
    environment = os.environ | {variable: "1", "CUBLAS_EMULATION_STRATEGY": "eager"}
    program = PROGRAM.format(dtype=dtype, variable=variable)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] == "True" for line in lines] == [native, native]
    assert native or dtype == "f4" or all(variable in line for line in lines)  # that of words does not
