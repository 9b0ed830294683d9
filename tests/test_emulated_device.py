"""The CuPy backend and its kernels without a GPU: on a device that the CPU emulates (tests/emulated)."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "emulated"))
from build import compiler  # noqa: E402

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the emulation is written for glibc's contexts"),
    pytest.mark.skipif(compiler() is None, reason="a C++ compiler (CXX, g++, c++) builds the kernels"),
]

BOTH = ["residues-14-f8", "residues-7-f4", "digits-3-f4", "digits-7-f8", "digits7-5-f4"]
WORDS = ["halfhalf", "tf32tf32", "two-stage"]
PAIRS = ["single-fp16", "single-bf16", "single-tf32", "double-bf16", "triple-bf16", "fabsum-v1", "fabsum-v2"]
CASES = [
    *["descriptions", "magnitudes", "proofs", "exponents", "plans", "plans-again"],
    *["plans-of-other-data-again", "memory-is-held", "batches-again", "heavy-plans-again", "native-again"],
    *["tapes-outlive-launches", "equal-choices-again", "out-elsewhere", "many-blocks", "ends-of-gemm", "far"],
    "fp16-sums",
    *BOTH,
    *["residues-20-f8", "digits-10-f8", "fp16-digits-4-f4", "fp16-digits-11-f8"],
    *WORDS,
    *["markidis", "triple-bf16", "fabsum-v2", "parts", "little-memory"],
    "hopper-proofs",
    "hopper-one-read",
    "hopper-one-read-chosen",
    "hopper-words-in-one-read",
    "hopper-looks",
    "hopper-together",
    "hopper-split",
    "hopper-column-tiles",
    "hopper-halves",
    "hopper-shares",
    "hopper-parts-of-k",
    "hopper-engines",
    "hopper-limits",
    "hopper-workspaces",
    "hopper-quadrants",
    "hopper-winograd",
    "hopper-many-blocks",
    "hopper-fastest",
    "hopper-no-worse-than-native",
    "hopper-digits-where-ordinary",
    "hopper-words-for-a-target",
    "hopper-columns",
    "hopper-pairs",
    "hopper-pair-columns",
    "hopper-tuned",
    *(f"hopper-{name}" for name in (*BOTH, *WORDS, *PAIRS)),
]


def run(*arguments: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(HERE.parent), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, str(HERE / "emulated" / "run.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, f"{arguments}: {done.stderr[-3000:]}"
    return done.stdout


@pytest.mark.parametrize("case", CASES)
def test_same_bits_as_numpy(case):
    run(case, str(random.SystemRandom().getrandbits(32)))


def test_no_case_is_left_out():
    assert run().split() == CASES
