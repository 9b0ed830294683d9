"""The CuPy backend on an emulated device, bit for bit beside NumPy: `python tests/emulated/run.py CASE SEED`.

In a process of its own, since CuPy's place is taken. The cases are those of runs/__init__.py.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module

import cupy_on_numpy
import numpy as np
import streams
from runs import FUNCTIONS, HOPPER

Run = Callable[[np.random.Generator], None]


def find(case: str) -> Run:
    """What is run, once CuPy's place is taken."""
    module = next(module for module, names in FUNCTIONS.items() if case in names)
    found: Run = getattr(import_module(f"runs.{module}"), case.removeprefix(HOPPER).replace("-", "_"))
    return found


def install_device(capability: str) -> None:
    """Take CuPy's place by an emulated device of that compute capability."""
    cupy_on_numpy.install(capability)
    halves = import_module("ozaki.backends.cupy.steps.engines.halves")
    halves._found[0] = halves.Places(frozenset({0}))  # the first cluster's multiprocessor; the other one has another


if __name__ == "__main__":
    case, seed = sys.argv[1], int(sys.argv[2])
    install_device("90" if case.startswith(HOPPER) else "80")
    run = find(case)
    streams.chance.seed(seed)
    run(np.random.default_rng(seed))
