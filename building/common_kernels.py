"""Which kernels common products need: run them on a GPU, and write kernels/common.txt.

    python -m building.common_kernels [--also FILE]

`building/pack_kernels.py` compiles these for the wheel, so that the first product of a process waits for no compiler.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import ozaki
from ozaki.backends.cupy.program import compiling

LIST = Path(__file__).parents[1] / "kernels" / "common.txt"

Line = str


def line_of(name: str, macros: dict[str, Any]) -> Line:
    """A line of common.txt."""
    return " ".join([name, *(f"{macro}={value}" for macro, value in sorted(macros.items()))])


def products() -> None:
    """Run products of the kinds that users begin with: dtypes, layouts, sizes, accuracies, engines."""
    import cupy as cp

    rng = cp.random.default_rng(0)

    def made(shape: tuple[int, ...], dtype: str) -> Any:
        x = rng.standard_normal(shape)
        return (x + 1j * rng.standard_normal(shape) if dtype[0] == "c" else x).astype(dtype)

    sizes = ((48, 48, 48), (300, 300, 300), (1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096), (4096, 64, 64))
    for dtype, (m, k, n) in itertools.product(("f8", "f4", "c16", "c8"), sizes):
        a, b = made((m, k), dtype), made((k, n), dtype)
        ways: list[dict[str, Any]] = [
            {}, {"reproducible": True}, {"accuracy": "fp64"}, {"accuracy": "fp32"}, {"accuracy": "dd"},
            {"accuracy": 60, "reproducible": True}, {"accuracy": "fp64", "engine": "cublas"},
            {"accuracy": ozaki.Accuracy("row-column", 1e-12), "reproducible": True},
            {"accuracy": ozaki.Accuracy("normwise", 1e-15), "reproducible": True},
        ]  # fmt: skip
        counts = range(6, 21) if k <= 1024 else (7, 8, 13, 14, 15, 16)
        for count, engine in itertools.product(counts, ("auto", "cublas")):
            ways.append({"scheme": "residues", "slices": count, "engine": engine})
        if dtype[0] == "f":
            ways += [{"scheme": "digits", "slices": count} for count in (3, 4, 5, 6, 7, 8)]
            if m == k:
                ways += [{"accuracy": bits, "dtype": "mp"} for bits in (60, 106, 212)]
                ways += [{"accuracy": "exact"}, {"scheme": "halfhalf"}, {"scheme": "tf32tf32"}]
        layouts = [(a, b), (a.T.copy().T, b), (a, b.T.copy().T), (a.T.copy().T, b.T.copy().T)]
        for (x, y), options in itertools.product(layouts, ways):
            _run(x, y, options)
        _run(a, a.T.conj() if dtype[0] == "c" else a.T, {"reproducible": True})
        c = cp.ones((m, n), a.dtype)
        ozaki.gemm(1.5, a, b, -2, c, accuracy="fp64", reproducible=True)
        ozaki.gemm(1.5, a, b, -2, c, scheme="residues", slices=14)
        ozaki.matmul(a, b, return_report=True, reproducible=True)
    for stacks, size in itertools.product(_STACKS, _SIZES):
        dtype, scheme, slices = stacks
        stack = made((2048, size, size), dtype)
        _run(stack, stack, {"scheme": scheme, "slices": slices})
    stack = made((4096, 64, 64), "f8")
    _run(stack, stack, {"reproducible": True})
    for dtype, size in itertools.product(("f8", "f4", "c16", "c8"), (16, 256)):  # facts of small stacks
        _run(made((512, size, size), dtype), made((512, size, size), dtype), {"reproducible": True})
    for bits in (64, 106, 113, 212):
        x, y = (ozaki.mparray(made(shape, "f8"), bits=bits) for shape in ((300, 300), (300, 300)))
        _run(x, y, {"accuracy": bits})
        _run(ozaki.mparray(made((64, 64), "c16"), bits=bits), ozaki.mparray(made((64, 64), "f8"), bits=bits), {})


def of_other_devices() -> set[Line]:
    """Kernels of those stacks for devices without Hopper's instructions, which have others."""
    from ozaki.backends.cupy import devices
    from ozaki.backends.cupy.program.arrays import DTYPES, View
    from ozaki.backends.cupy.steps import stacks
    from ozaki.schemes import ComplexResidues
    from ozaki.schemes.named import scheme_of

    lines = set()
    for capability, multiprocessors, shared_memory in (("80", 108, 167936), ("100", 148, 233472)):
        device = devices.of(capability, multiprocessors=multiprocessors, shared_memory=shared_memory)
        for (dtype, name, slices), n in itertools.product(_STACKS, _SIZES):
            view = View(DTYPES[np.dtype(dtype).char], (2048, n, n), (n * n, n, 1))
            scheme: Any = scheme_of(name, slices)
            scheme = ComplexResidues(slices).slices if dtype[0] == "c" else scheme
            if stacks.tile_of(device, scheme, n, n, n) is not None:
                kernel = stacks.kernel_of(device, scheme, view, view, view)
                lines.add(line_of(kernel.file, dict(kernel.macros)))
    return lines


_SIZES = (16, 32, 64, 128)

_STACKS = (
    ("f8", "residues", 14), ("f8", "residues", 15), ("f4", "residues", 7), ("f4", "digits", 3), ("c16", "residues", 15),
    ("c8", "residues", 7),
)  # fmt: skip
"""Dtypes, schemes and slices of stacks that one kernel multiplies."""


def _run(a: Any, b: Any, options: dict[str, Any]) -> None:
    try:
        ozaki.matmul(a, b, **options)
    except (ValueError, NotImplementedError):  # words of float64, bits beyond what an engine does
        return


def main() -> None:
    """Write the list."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--also", help="a file of more lines, which other programs needed")
    parser.add_argument("--output", default=str(LIST))
    chosen = parser.parse_args()
    lines: set[Line] = set(Path(chosen.also).read_text("ascii").splitlines()) if chosen.also else set()
    real = compiling.kernel

    def noted(name: str, function: str, **macros: str | int) -> Any:
        lines.add(line_of(name, macros))
        return real(name, function, **macros)

    with mock.patch.object(compiling, "kernel", noted):
        products()
    lines |= of_other_devices()
    head = "# Kernels that common products need: file and macros. Written by building/common_kernels.py."
    Path(chosen.output).write_text("\n".join([head, *sorted(lines)]) + "\n", encoding="ascii")
    print(f"{len(lines)} kernels in {chosen.output}")


if __name__ == "__main__":
    main()
