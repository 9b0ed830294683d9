"""Compare the CuPy backend on an emulated device with NumPy, bit for bit: `python tests/emulated/run.py CASE SEED`.

Needs a process of its own, in which `import cupy` gives the emulation. The cases are listed in runs/__init__.py.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from unittest import mock

import numpy as np

import cupy_on_numpy
import streams
from runs import FUNCTIONS, HOPPER

Run = Callable[[np.random.Generator], None]


def find(case: str) -> Run:
    """The function of a case; call this after `install_device`, since it imports CuPy."""
    module = next(module for module, names in FUNCTIONS.items() if case in names)
    found: Run = getattr(import_module(f"runs.{module}"), case.removeprefix(HOPPER).replace("-", "_"))
    return found


def install_device(capability: str) -> None:
    """Make `import cupy` give an emulated device of that compute capability."""
    cupy_on_numpy.install(capability)
    halves = import_module("ozaki.backends.cupy.steps.engines.halves")
    places = halves.Places(frozenset({0}))  # the first cluster is at one half, the other cluster at the other
    mock.patch.object(halves, "_measure", return_value=places).start()


if __name__ == "__main__":
    case, seed = sys.argv[1], int(sys.argv[2])
    install_device("90" if case.startswith(HOPPER) else "80")
    run = find(case)
    streams.chance.seed(seed)
    run(np.random.default_rng(seed))
