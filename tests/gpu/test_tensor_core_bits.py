"""The tensor core in software has the bits of the one in hardware."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from operands import tensor_core
from ozaki.schemes.formats import FORMATS
from ozaki.tensor_core import mma, round_to

cp = pytest.importorskip("cupy")
pytestmark = pytest.mark.gpu

COUNT = 2000


@pytest.fixture(scope="module")
def module():
    source = Path(__file__).with_name("mma.cu").read_text(encoding="utf-8")
    return cp.RawModule(code=source, options=("--std=c++17",))


@pytest.fixture
def core():
    return tensor_core()


def numbers(rng, shape, name, spread):
    """Numbers of a format with mixed exponents, zeros and subnormal ones."""
    form = FORMATS[name]
    x = np.ldexp(rng.standard_normal(shape), rng.integers(-spread, spread + 1, shape))
    x[rng.random(shape) < 0.1] = 0
    tiny = rng.random(shape) < 0.02
    x[tiny] = np.ldexp(rng.standard_normal(int(tiny.sum())), form.least - 2)
    return round_to(x, name)


def raw(x, name):
    """Numbers of a format as bits in a CuPy array, as tests/gpu/mma.cu reads them."""
    single = np.ascontiguousarray(x.astype(np.float32))
    if name == "fp16":
        return cp.asarray(single.astype(np.float16).view(np.uint16))
    return cp.asarray((single.view(np.uint32) >> 16).astype(np.uint16) if name == "bf16" else single.view(np.uint32))


@pytest.mark.parametrize("spread", [0, 2, 5, 12])
@pytest.mark.parametrize(
    ("word", "accumulator"), [("fp16", "fp32"), ("bf16", "fp32"), ("tf32", "fp32"), ("fp16", "fp16")]
)
def test_one_instruction(rng, module, core, word, accumulator, spread):
    k = 8 if word == "tf32" else 16
    most = 3 if accumulator == "fp16" else 12  # no overflow
    a, b = (numbers(rng, (COUNT, rows, k), word, min(spread, most)) for rows in (16, 8))
    c = numbers(rng, (COUNT, 16, 8), accumulator, min(spread, most))
    dtype = np.float16 if accumulator == "fp16" else np.float32
    result = cp.asarray(np.ascontiguousarray(c.astype(dtype)))
    kernel = module.get_function(f"{word}_{accumulator}")
    kernel((COUNT,), (32,), (raw(a, word), raw(b, word), result))
    expected = mma(a, b.swapaxes(1, 2), c, word=word, accumulator=accumulator, core=core)
    result = result.get()
    different = result.view(f"u{dtype().itemsize}") != expected.view(f"u{dtype().itemsize}")
    different &= ~((result == 0) & (expected == 0))  # the sign of a zero is not modelled
    first = tuple(np.argwhere(different)[0]) if different.any() else ()
    assert not first, (
        f"{different.sum()} of {different.size} differ, at {first}: {result[first]}, not {expected[first]}"
    )
